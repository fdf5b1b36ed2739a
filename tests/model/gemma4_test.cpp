// Gemma 4's layers: heads by kind, keys and values of earlier layers, embeddings for each layer.
#include "tests/model/config_bed.h"

using namespace ks;

// Layers wwgwwg: window layers with heads of 8 values, full ones with 16. The last n_shared read
// the keys of earlier ones.
static GgufBuilder gemma4(uint32_t n_shared, uint32_t layer_dim)
{
    GgufBuilder b = small_model("gemma4", 6);
    const std::string a = "gemma4.";
    b.u32(a + "attention.key_length", 16).u32(a + "attention.value_length", 16);
    b.u32(a + "attention.key_length_swa", 8).u32(a + "attention.value_length_swa", 8);
    b.u32(a + "attention.sliding_window", 4).u32(a + "attention.shared_kv_layers", n_shared);
    b.u32(a + "embedding_length_per_layer_input", layer_dim);
    b.array<uint8_t>(a + "attention.sliding_window_pattern", GgufType::boolean, {1, 1, 0, 1, 1, 0});
    for (uint32_t il = 0; il < 6; il++) {
        const std::string p = "blk." + std::to_string(il) + ".";
        const uint64_t d = il % 3 == 2 ? 16 : 8;
        b.tensor(p + "attn_q.weight", {32, 2 * d}).tensor(p + "attn_output.weight", {2 * d, 32});
        b.tensor(p + "attn_k.weight", {32, d}).tensor(p + "attn_v.weight", {32, d});
        b.tensor(p + "attn_q_norm.weight", {d}).tensor(p + "attn_k_norm.weight", {d});
        b.tensor(p + "post_attention_norm.weight", {32}).tensor(p + "post_ffw_norm.weight", {32});
        if (!layer_dim) continue;
        b.tensor(p + "inp_gate.weight", {32, layer_dim}).tensor(p + "proj.weight", {layer_dim, 32});
        b.tensor(p + "post_norm.weight", {32});
    }
    if (!layer_dim) return b;
    b.tensor("per_layer_token_embd.weight", {6 * layer_dim, 6});
    b.tensor("per_layer_model_proj.weight", {32, 6 * layer_dim});
    return b.tensor("per_layer_proj_norm.weight", {layer_dim});
}

TEST_CASE("gemma4: heads by kind, and layers that share keys")
{
    const Config c = config_of(gemma4(3, 0));
    CHECK(c.head_dim == 16);
    CHECK(c.attention_scale == 1);
    CHECK(c.final_softcap == 30);
    CHECK(c.rope.n_rot == 16);
    CHECK(c.rope_window.n_rot == 8);
    CHECK(c.n_cached() == 3);
    const uint32_t il_cache[] = {0, 1, 2, 1, 1, 2}, head_dims[] = {8, 8, 16, 8, 8, 16};
    for (uint32_t il = 0; il < 6; il++) {
        CHECK(c.layers[il].owns_kv == (il < 3));
        CHECK(c.layers[il].il_cache == il_cache[il]);
        CHECK(c.layers[il].head_dim == head_dims[il]);
    }
    const ModelShape shape = c.model_shape();
    REQUIRE(shape.layers.size() == 3);
    const uint32_t n_readers[] = {1, 3, 2};
    for (uint32_t il = 0; il < 3; il++) CHECK(shape.layers[il].n_readers == n_readers[il]);
}

TEST_CASE("gemma4: optional and unused tensors")
{
    ReadModel model;
    REQUIRE(read_model(gemma4(0, 0).drop_tensor("blk.2.attn_v.weight"), &model).ok());
    const size_t n_parts = model.parts.size();
    REQUIRE(read_model(gemma4(0, 0), &model).ok());
    CHECK(model.parts.size() == n_parts + 1);
    // The keys and values of layers that read others may be there.
    GgufBuilder b = gemma4(3, 0);
    REQUIRE(read_model(b, &model).ok());
    CHECK(model.parts.size() == n_parts + 1 - 3 * 3);
    for (const char* name : {"attn_k", "attn_v", "attn_k_norm"})
        b.drop_tensor(std::string("blk.4.") + name + ".weight");
    CHECK(read_model(b).ok());
    model_refused(gemma4(0, 0).drop_tensor("blk.3.attn_k.weight"), Code::invalid,
                  {"blk.3.attn_k.weight"});
    b = gemma4(0, 0).tensor("blk.0.layer_output_scale.weight", {1});
    CHECK(read_model(b.tensor("v.blk.0.attn_k.weight", {3, 3})).ok());
    model_refused(b.tensor("blk.0.layer_output_scale.weight", {2}), Code::invalid, {"1 x 1"});
}

TEST_CASE("gemma4: embeddings for each layer stay in the file")
{
    ReadModel model;
    REQUIRE(read_model(gemma4(2, 32), &model).ok());
    CHECK(model.config.layer_dim == 32);
    CHECK(model.config.layer_table.bytes == 6 * 32 * 6 * 4);
    uint32_t n_rows = 0;
    for (const TensorPart& part : model.parts) {
        CHECK(part.tensor->name != kLayerEmbeddings);
        if (part.role != Role::layer_proj) continue;
        CHECK(part.first == 32 * part.layer);
        n_rows += part.rows;
    }
    CHECK(n_rows == 6 * 32);
    model_refused(gemma4(0, 32).drop_tensor("per_layer_token_embd.weight"), Code::invalid,
                  {"no tensor 'per_layer_token_embd.weight' of 192 x 6"});
    model_refused(gemma4(0, 32).tensor("per_layer_model_proj.weight", {32, 96}), Code::invalid,
                  {"32 x 192 was expected"});
    // Q8_0 has blocks of 32 values.
    CHECK(read_model(gemma4(0, 32).tensor("per_layer_token_embd.weight", {192, 6}, 8)).ok());
    model_refused(gemma4(0, 16).tensor("per_layer_token_embd.weight", {96, 6}, 8),
                  Code::unsupported, {"blocks of 32", "layers of 16"});
}

TEST_CASE("gemma4: refused")
{
    const std::string a = "gemma4.";
    for (const char* name : {"attention.sliding_window", "attention.sliding_window_pattern",
                             "attention.key_length_swa", "attention.value_length_swa",
                             "embedding_length_per_layer_input"})
        model_refused(gemma4(0, 0).drop(a + name), Code::invalid, {name});
    model_refused(gemma4(4, 0), Code::invalid, {"layer 2 has no earlier full layer"});
    model_refused(gemma4(6, 0), Code::invalid, {"shared_kv_layers", "0 to 5 was expected"});
    GgufBuilder b = gemma4(3, 0);
    model_refused(
        b.array<uint32_t>(a + "attention.head_count_kv", GgufType::u32, {1, 1, 1, 1, 2, 1}),
        Code::unsupported, {"layer 4 has 2 heads over 2 KV heads"});
    model_refused(gemma4(0, 0).u32(a + "attention.value_length_swa", 16), Code::unsupported,
                  {"keys have 8 values, its values 16"});
    model_refused(gemma4(0, 0).u32(a + "expert_count", 8), Code::invalid,
                  {"no key 'gemma4.expert_used_count'"});
}
