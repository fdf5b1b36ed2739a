// Files whose window layers have heads of another size than the others: their gates and RoPE.
#include "tests/model/config_bed.h"

using namespace ks;

namespace
{

const std::string a = "afmoe.";

// Two heads in each of four layers, of window_dim values in window layers and 16 in the last.
GgufBuilder afmoe(uint32_t window_dim, bool scaled)
{
    GgufBuilder b = small_model("afmoe", 4);
    b.u32(a + "attention.sliding_window", 8);
    b.u32(a + "attention.key_length_swa", window_dim);
    b.u32(a + "attention.value_length_swa", window_dim);
    b.u32(a + "rope.dimension_count_swa", window_dim);
    if (scaled) b.f32(a + "attention.scale", 0.25f);
    for (uint32_t il = 0; il < 4; il++) {
        const std::string p = "blk." + std::to_string(il) + ".";
        const uint32_t d = il == 3 ? 16 : window_dim;
        for (const char* name : {"q", "k", "v", "output"})
            b.drop_tensor(p + "attn_" + name + ".weight");
        b.tensor(p + "attn_q.weight", {32, 2 * d}).tensor(p + "attn_gate.weight", {32, 2 * d});
        b.tensor(p + "attn_k.weight", {32, d}).tensor(p + "attn_v.weight", {32, d});
        b.tensor(p + "attn_q_norm.weight", {d}).tensor(p + "attn_k_norm.weight", {d});
        b.tensor(p + "attn_output.weight", {2 * d, 32});
        b.tensor(p + "post_attention_norm.weight", {32}).tensor(p + "post_ffw_norm.weight", {32});
    }
    return b;
}

GgufBuilder with_gate(GgufBuilder b, uint32_t il, const std::vector<uint64_t>& dims)
{
    const std::string name = "blk." + std::to_string(il) + ".attn_gate.weight";
    return b.drop_tensor(name).tensor(name, dims);
}

} // namespace

TEST_CASE("window heads: each layer has gates for its own values")
{
    for (uint32_t d : {8u, 16u, 24u}) {
        ReadModel model;
        const Status status = read_model(afmoe(d, true), &model);
        REQUIRE_MESSAGE(status.ok(), status.message());
        CHECK(model.config.rope_window.n_rot == d);
        CHECK(model.config.attention_scale == 0.25f);
        int n_gates = 0;
        for (const TensorPart& part : model.parts) {
            if (part.role != Role::attn_gate) continue;
            CHECK(part.rows == (part.layer == 3 ? 32 : 2 * d));
            n_gates++;
        }
        CHECK(n_gates == 4);
    }
}

TEST_CASE("window heads: files that are refused")
{
    // The scale of attention follows from the size of a head, of which there are two.
    model_refused(afmoe(8, false), Code::unsupported, {"of 8 values", "of 16", "attention.scale"});
    CHECK(read_model(afmoe(16, false)).ok());
    for (uint32_t d : {8u, 24u}) {
        // Gates for the other layers' heads, for a value less or more, and for each head.
        for (uint64_t rows : {uint64_t(32), uint64_t(2 * d - 1), uint64_t(2 * d + 1), uint64_t(2)})
            model_refused(with_gate(afmoe(d, true), 1, {32, rows}), Code::invalid,
                          {"blk.1.attn_gate.weight", "32 x " + std::to_string(2 * d)});
        model_refused(with_gate(afmoe(d, true), 3, {32, 2 * d}), Code::invalid,
                      {"blk.3.attn_gate.weight", "32 x 32"});
        model_refused(with_gate(afmoe(d, true), 2, {2 * d, 32}), Code::invalid,
                      {"blk.2.attn_gate.weight"});
        model_refused(with_gate(afmoe(d, true), 2, {32, d, 2}), Code::invalid,
                      {"blk.2.attn_gate.weight"});
        model_refused(afmoe(d, true).drop_tensor("blk.0.attn_gate.weight"), Code::invalid,
                      {"blk.0.attn_gate.weight"});
        model_refused(afmoe(d, true).drop(a + "attention.value_length_swa"), Code::unsupported,
                      {"keys have " + std::to_string(d), "values 16"});
        model_refused(afmoe(d, true).drop(a + "attention.key_length_swa"), Code::unsupported,
                      {"keys have 16"});
    }
    model_refused(afmoe(16, true).u32(a + "rope.dimension_count_swa", 18), Code::invalid,
                  {"rope.dimension_count_swa'", "is 18, 2 to 16"});
}

TEST_CASE("window heads: divisors of RoPE for fewer values than window layers rotate")
{
    const auto divided = [](uint32_t n_rot) {
        GgufBuilder b = afmoe(16, true);
        b.u32(a + "rope.dimension_count", n_rot).tensor("rope_freqs.weight", {n_rot / 2});
        return b;
    };
    CHECK(read_model(divided(16)).ok());
    model_refused(divided(8), Code::unsupported, {"over 8 values", "over 16"});
    CHECK(read_model(divided(8).u32(a + "rope.dimension_count_swa", 8)).ok());
}
