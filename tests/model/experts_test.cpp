// Mixtures of experts: their keys, and their tensors.
#include "tests/model/config_bed.h"

using namespace ks;

namespace
{

const std::string l = "llama.", kLayers[] = {"blk.0.", "blk.1."};

// Six experts of 16 values in both layers.
GgufBuilder mixtral()
{
    GgufBuilder b = llama();
    b.u32(l + "expert_count", 6).u32(l + "expert_used_count", 2);
    b.u32(l + "expert_feed_forward_length", 16);
    for (const std::string& layer : kLayers) {
        for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"})
            b.drop_tensor(layer + name + ".weight");
        b.tensor(layer + "ffn_gate_inp.weight", {32, 6});
        b.tensor(layer + "ffn_gate_exps.weight", {32, 16, 6});
        b.tensor(layer + "ffn_up_exps.weight", {32, 16, 6});
        b.tensor(layer + "ffn_down_exps.weight", {16, 32, 6});
    }
    return b;
}

const TensorPart& part(const ReadModel& model, Role role, Piece piece = Piece::weight)
{
    for (const TensorPart& p : model.parts)
        if (p.role == role && p.piece == piece && p.layer == 1) return p;
    REQUIRE_MESSAGE(false, "no such part");
    return model.parts[0];
}

} // namespace

TEST_CASE("experts: keys and their ranges")
{
    const Config c = config_of(mixtral());
    CHECK(c.experts.n == 6);
    CHECK(c.experts.n_used == 2);
    CHECK(c.experts.dim == 16);
    CHECK(c.experts.shared_dim == 0);
    CHECK(c.ffn_dim == 0);
    CHECK(c.layers[1].experts);
    CHECK(c.experts.route.kind == route_softmax);
    CHECK(c.experts.route.normalise == 1);
    CHECK(c.experts.route.scale == 1);
    // Without the key the tensors say the width.
    CHECK(config_of(mixtral().drop(l + "expert_feed_forward_length")).experts.dim == 16);

    model_refused(mixtral().drop(l + "expert_used_count"), Code::invalid,
                  {"'llama.expert_used_count'"});
    model_refused(mixtral().u32(l + "expert_used_count", 7), Code::invalid, {"is 7, 1 to 6"});
    model_refused(mixtral().u32(l + "expert_used_count", 0), Code::invalid, {"is 0, 1 to 6"});
    model_refused(mixtral().u32(l + "expert_count", 1025), Code::unsupported,
                  {"1025 experts, at most 1024"});
    model_refused(mixtral().u32(l + "expert_gating_func", 4), Code::unsupported,
                  {"function 4", "softmax"});
    model_refused(mixtral().u32(l + "expert_group_count", 4), Code::invalid,
                  {"2 of 6 experts", "4 of 4 groups"});
    model_refused(mixtral().u32(l + "expert_feed_forward_length", 12), Code::unsupported,
                  {"experts of 12 values, a multiple of 8"});
    model_refused(mixtral().f32(l + "expert_weights_scale", -1), Code::invalid,
                  {"'llama.expert_weights_scale'"});
    model_refused(small_model("qwen3").u32("qwen3.expert_count", 6), Code::unsupported,
                  {"6 experts", "qwen3 models are dense"});
    CHECK(
        config_of(mixtral().u32(l + "expert_group_count", 3).u32(l + "expert_group_used_count", 1))
            .experts.route.n_groups_used == 1);
}

TEST_CASE("experts: tensors")
{
    ReadModel model;
    GgufBuilder b = mixtral();
    b.tensor("blk.1.ffn_down_exps.bias", {32, 6}).tensor("blk.1.ffn_up_exps.scale", {6});
    b.tensor("blk.1.exp_probs_b.bias", {6});
    REQUIRE(read_model(b, &model).ok());
    CHECK(part(model, Role::ffn_down_exps).rows == 6 * 32);
    CHECK(part(model, Role::ffn_down_exps, Piece::bias).rows == 6);
    CHECK(part(model, Role::ffn_down_exps, Piece::bias).cols == 32);
    CHECK(part(model, Role::ffn_up_exps, Piece::scales).cols == 6);
    CHECK(part(model, Role::ffn_up_exps, Piece::scales).on_device());
    CHECK(part(model, Role::expert_bias).cols == 6);

    model_refused(mixtral().tensor("blk.1.ffn_up_exps.weight", {32, 16, 5}), Code::invalid,
                  {"'blk.1.ffn_up_exps.weight'", "32 x 16 x 5", "32 x 16 x 6 was expected"});
    model_refused(mixtral().drop_tensor("blk.1.ffn_up_exps.weight"), Code::invalid,
                  {"'blk.1.ffn_up_exps.weight'"});
    model_refused(mixtral().tensor("blk.1.ffn_up.weight", {32, 64}), Code::unsupported,
                  {"'blk.1.ffn_up.weight'"});
    model_refused(mixtral().tensor("blk.0.ffn_gate.0.weight", {32, 64}), Code::unsupported,
                  {"a tensor for every expert"});
}

TEST_CASE("experts: gate and up may be one tensor")
{
    GgufBuilder b = mixtral();
    for (const std::string& layer : kLayers) {
        b.drop_tensor(layer + "ffn_gate_exps.weight").drop_tensor(layer + "ffn_up_exps.weight");
        b.tensor(layer + "ffn_gate_up_exps.weight", {32, 32, 6});
    }
    ReadModel model;
    REQUIRE(read_model(b, &model).ok());
    const TensorPart &gate = part(model, Role::ffn_gate_exps), &up = part(model, Role::ffn_up_exps);
    CHECK(gate.rows == 6 * 16);
    CHECK(gate.row_in_tensor(15) == 15);
    CHECK(gate.row_in_tensor(16) == 32);
    CHECK(up.row_in_tensor(0) == 16);
    CHECK(up.row_in_tensor(95) == 191);
}
