// Latent attention (deepseek2): its keys, tensors, cache and ladder of `auto`.
#include "runtime/model/rope.h"
#include "runtime/plan/auto.h"
#include "tests/model/config_bed.h"

#include <cmath>

using namespace ks;

// Two heads: queries of 12 + 4 values, values of 8, latents of 24. q_dim 0: without attn_q_a.
static GgufBuilder deepseek2(uint32_t q_dim = 0)
{
    GgufBuilder b = small_model("deepseek2");
    const std::string a = "deepseek2.attention.";
    b.u32(a + "kv_lora_rank", 24).u32(a + "key_length", 28).u32(a + "value_length", 24);
    b.u32(a + "key_length_mla", 16).u32(a + "value_length_mla", 8);
    b.u32("deepseek2.rope.dimension_count", 4);
    if (q_dim) b.u32(a + "q_lora_rank", q_dim);
    for (uint32_t il = 0; il < 2; il++) {
        const std::string p = "blk." + std::to_string(il) + ".attn_";
        for (const char* name : {"q", "k", "v"}) b.drop_tensor(p + name + ".weight");
        b.tensor(p + (q_dim ? "q_b.weight" : "q.weight"), {q_dim ? q_dim : 32, 32});
        if (q_dim) b.tensor(p + "q_a.weight", {32, q_dim}).tensor(p + "q_a_norm.weight", {q_dim});
        b.tensor(p + "kv_a_mqa.weight", {32, 28}).tensor(p + "kv_a_norm.weight", {24});
        b.tensor(p + "k_b.weight", {12, 24, 2}).tensor(p + "v_b.weight", {24, 8, 2});
        b.tensor(p + "output.weight", {16, 32});
    }
    return b;
}

TEST_CASE("latent: shapes")
{
    for (uint32_t q_dim : {0u, 20u}) {
        ReadModel model;
        const Status status = read_model(deepseek2(q_dim), &model);
        REQUIRE_MESSAGE(status.ok(), status.message());
        const Config& c = model.config;
        CHECK(c.latent.dim == 24);
        CHECK(c.latent.q_dim == q_dim);
        CHECK(c.latent.key_dim == 12);
        CHECK(c.latent.value_dim == 8);
        CHECK(c.head_dim == 28);
        CHECK(c.rope.n_rot == 4);
        CHECK(c.attention_scale == 0.25f);
        CHECK(c.model_shape().values_in_keys);
        // Rows of a head's query without RoPE and with it alternate in the file.
        for (const TensorPart& part : model.parts) {
            if (part.role != Role::attn_q && part.role != Role::attn_q_rope) continue;
            const bool roped = part.role == Role::attn_q_rope;
            CHECK(part.rows == (roped ? 8 : 24));
            CHECK(part.row_in_tensor(roped ? 5 : 13) == (roped ? 16 + 12 + 1 : 16 + 1));
        }
    }
}

TEST_CASE("latent: YaRN scales logits")
{
    GgufBuilder b = deepseek2();
    b.string("deepseek2.rope.scaling.type", "yarn").f32("deepseek2.rope.scaling.factor", 40);
    CHECK(config_of(b).attention_scale == 0.25f);
    b.f32("deepseek2.rope.scaling.yarn_log_multiplier", 0.07f);
    Config c = config_of(b);
    const auto scaled = [](double factor) {
        return doctest::Approx(0.25 * std::pow(1 + 0.07 * std::log(factor), 2));
    };
    CHECK(c.rope.mscale == 1);
    CHECK(c.attention_scale == scaled(40));
    REQUIRE(stretch_context(parse_recipe("exact,rope=yarn,stretch=2").value(), c).ok());
    CHECK(c.rope.mscale == 1);
    CHECK(c.attention_scale == scaled(80));
}

TEST_CASE("latent: files that are refused")
{
    const std::string a = "deepseek2.attention.";
    model_refused(deepseek2().drop(a + "key_length_mla"), Code::unsupported,
                  {"key_length_mla", "attn_kv_b", "attn_k_b"});
    model_refused(deepseek2().drop(a + "kv_lora_rank"), Code::invalid, {"kv_lora_rank"});
    model_refused(deepseek2().u32(a + "head_count_kv", 2), Code::invalid, {"2 KV heads"});
    model_refused(deepseek2().u32(a + "head_count", 1025), Code::unsupported, {"1025", "1024"});
    model_refused(deepseek2().u32(a + "head_count", 130), Code::invalid, {"attn_q.weight", "2080"});
    model_refused(deepseek2().u32(a + "kv_lora_rank", 28), Code::unsupported, {"28", "multiples"});
    model_refused(deepseek2().u32(a + "kv_lora_rank", 576), Code::unsupported, {"576", "4"});
    model_refused(deepseek2().u32(a + "key_length_mla", 4), Code::invalid, {"5 to"});
    model_refused(deepseek2().drop_tensor("blk.1.attn_v_b.weight"), Code::invalid,
                  {"blk.1.attn_v_b.weight"});
    model_refused(deepseek2().tensor("blk.0.attn_q.bias", {32}), Code::unsupported,
                  {"attn_q.bias", "alternate"});
    model_refused(deepseek2().tensor("blk.0.attn_kv_b.weight", {24, 40}), Code::unsupported,
                  {"attn_kv_b"});
}

TEST_CASE("latent: auto has f16, then q8")
{
    ModelShape model;
    model.layers.assign(2, {2, 1, 32});
    model.values_in_keys = true;
    const std::vector<Rung> rungs = ladder(model, {}, parse_recipe("auto").value(), false);
    REQUIRE(rungs.size() == 2);
    CHECK(rungs[0].recipe.k == Format::f16);
    CHECK(rungs[1].recipe.k == Format::q8);
    CHECK(rungs[1].recipe.v == Format::q8);
    CHECK(rungs[1].share == 0);
}
