// Tensors: their names, shapes and types.
#include "tests/model/config_bed.h"

using namespace ks;

TEST_CASE("tensors: missing ones, wrong shapes, unsupported types")
{
    for (const char* architecture : kArchitectures) {
        const GgufBuilder whole = small_model(architecture);
        for (const GgufBuilder::TensorInfo& t : whole.tensors) {
            const std::string name = t.name.substr(8);
            if (name.find(".bias") != std::string::npos) continue;
            // A file without the fused matrix has to have three.
            const size_t fused = name.find("attn_qkv");
            const std::string missing =
                fused == std::string::npos ? name : std::string(name).replace(fused, 8, "attn_q");
            model_refused(GgufBuilder(whole).drop_tensor(name), Code::invalid,
                          {"no tensor '" + missing + "'"});
            std::vector<uint64_t> dims = t.dims;
            dims.back() *= 2;
            if (name != "token_embd.weight")
                model_refused(GgufBuilder(whole).tensor(name, dims), Code::invalid,
                              {"tensor '" + name + "' at offset"});
            dims = t.dims;
            dims.resize(3, 1);
            CHECK(read_model(GgufBuilder(whole).tensor(name, dims))
                      .ok()); // trailing ones change nothing
            dims[2] = 2;
            model_refused(GgufBuilder(whole).tensor(name, dims), Code::invalid, {name});
        }
    }
    model_refused(llama().tensor("blk.1.ffn_down.weight", {32, 64}), Code::invalid,
                  {"'blk.1.ffn_down.weight'", "has 32 x 64 values, 64 x 32"});
    model_refused(llama().tensor("token_embd.weight", {64, 6}), Code::invalid,
                  {"'token_embd.weight'", "64 x 6", "32 x 6"});
    model_refused(llama().tensor("token_embd.weight", {32, 7}), Code::invalid,
                  {"7 rows", "tokenizer.ggml.tokens has 6"});
    model_refused(llama().tensor("output.weight", {32, 7}), Code::invalid, {"'output.weight'"});

    const uint32_t f16 = 1, q8_0 = 8, i8 = 24;
    CHECK(read_model(llama().tensor("output_norm.weight", {32}, f16)).ok());
    CHECK(read_model(llama().tensor("blk.0.attn_k.weight", {32, 16}, q8_0)).ok());
    model_refused(llama().tensor("output_norm.weight", {32}, q8_0), Code::unsupported,
                  {"'output_norm.weight'", "Q8_0 (8)", "F32, F16 or BF16"});
    model_refused(
        llama().tensor("blk.0.attn_k.weight", {32, 16}, i8), Code::unsupported,
        {"'blk.0.attn_k.weight'", "I8 (24)", "F32, F16, BF16, Q8_0", "TQ2_0, IQ1_S or IQ1_M"});
    CHECK(read_model(llama().tensor("vision.patch", {32}, i8))
              .ok()); // an unknown type is ignored in a tensor that is not used
}

TEST_CASE("tensors: optional and unknown ones")
{
    ReadModel model;
    REQUIRE(read_model(llama(), &model).ok());
    const size_t n = model.parts.size();
    REQUIRE(read_model(llama()
                           .tensor("output.weight", {32, 6})
                           .tensor("rope_freqs.weight", {8})
                           .tensor("blk.1.attn_k.bias", {16}),
                       &model)
                .ok());
    CHECK(model.parts.size() == n + 3);
    int n_found = 0;
    for (const TensorPart& p : model.parts) {
        n_found += p.role == Role::output && p.rows == 6;
        n_found += p.role == Role::rope_freqs && p.cols == 8;
        n_found += p.role == Role::attn_k && p.piece == Piece::bias && p.layer == 1 &&
                   p.rows == 1 && p.cols == 16;
    }
    CHECK(n_found == 3);
    model_refused(llama().tensor("blk.1.attn_k.bias", {32}), Code::invalid,
                  {"'blk.1.attn_k.bias'", "32", "16 x 1"});
    model_refused(llama().tensor("rope_freqs.weight", {16}), Code::invalid,
                  {"'rope_freqs.weight'", "8 x 1"});
    for (const char* name :
         {"blk.0.attn_sinks.weight", "blk.2.attn_k.weight", "blk.0.ffn_gate_exps.weight",
          "token_embd.bias", "token_embd_norm.weight"})
        model_refused(llama().tensor(name, {32}), Code::unsupported,
                      {std::string("'") + name + "'", "not part of a llama model of 2 layers"});
    model_refused(small_model("qwen3").tensor("blk.0.attn_k.scale", {16}), Code::invalid,
                  {"attn_k.scale", "1 x 1"});
}
