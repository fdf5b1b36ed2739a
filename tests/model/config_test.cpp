// Configurations: keys, families, ranges, windows, RoPE scaling.
#include "tests/model/config_bed.h"

#include <cmath>
#include <limits>

using namespace ks;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("config: values of keys, and defaults of missing keys")
{
    Config c = config_of(llama());
    CHECK(std::string(c.family->name) == "llama");
    CHECK(c.name == "small");
    CHECK(c.dim == 32);
    CHECK(c.n_layers() == 2);
    CHECK(c.n_heads == 2);
    CHECK(c.n_kv_heads == 1);
    CHECK(c.head_dim == 16);
    CHECK(c.ffn_dim == 64);
    CHECK(c.n_vocab == 6);
    CHECK(c.n_context == 128);
    CHECK(c.rope.n_rot == 16);
    CHECK(c.norm_eps == 1e-5f);
    CHECK(c.attention_scale == 0.25f);
    CHECK(c.final_softcap == 0);
    CHECK(c.rope.base == 10000);
    CHECK(c.rope.factor == 1);
    CHECK(c.rope.mscale == 1);
    CHECK(c.rope_original_context == 128);
    CHECK(c.window == 0);
    CHECK_FALSE(c.layers[0].window);
    CHECK(c.tied);

    c = config_of(llama()
                      .u32("llama.rope.dimension_count", 8)
                      .f32("llama.rope.freq_base", 5e5f)
                      .f32("llama.final_logit_softcapping", 30));
    CHECK(c.rope.n_rot == 8);
    CHECK(c.rope.base == 5e5);
    CHECK(c.final_softcap == 30);
    CHECK_FALSE(config_of(llama().tensor("output.weight", {32, 6})).tied);
    CHECK(config_of(llama().string("general.name", "evil\x1b[2J")).name == "evil\\x1b[2J");
    // The tensor's shape decides.
    CHECK(config_of(llama().u32("llama.expert_count", 0).u32("llama.vocab_size", 99)).n_vocab == 6);
}

TEST_CASE("config: every family, its flags and its tensors")
{
    for (const char* architecture : kArchitectures) {
        CAPTURE(architecture);
        ReadModel model;
        Status status = read_model(small_model(architecture), &model);
        REQUIRE_MESSAGE(status.ok(), status.message());
        const Family& f = *model.config.family;
        const std::string a = architecture;
        CHECK(f.rope_pairs == (a == "llama" ? rope_interleaved : rope_neox));
        CHECK(f.activation == (a == "gemma3" ? act_gelu : act_silu));
        const bool normed = a == "gemma3" || a == "qwen3", fused = a == "phi3";
        CHECK(f.qk_norm == (normed ? QkNorm::head : QkNorm::none));
        CHECK(f.norms == (a == "gemma3" ? Norms::both : Norms::before));
        CHECK(f.scaled_embedding == (a == "gemma3"));
        CHECK(f.fused_gate_up == fused);
        size_t per_layer = 9 + 3 * (a == "qwen2") + 2 * normed + 2 * (a == "gemma3");
        CHECK(model.parts.size() == 2 + 2 * per_layer);
        for (const TensorPart& p : model.parts) {
            CHECK(p.tensor->dims[0] == p.cols);
            if (p.piece == Piece::bias) continue;
            CHECK(p.first + p.rows <= p.tensor->dims[1]);
            if (p.role == Role::attn_q) CHECK(p.rows == 32);
            if (p.role == Role::attn_k || p.role == Role::attn_v) CHECK(p.rows == 16);
            if (p.role == Role::attn_k) CHECK(p.first == (fused ? 32 : 0));
            if (p.role == Role::attn_v) CHECK(p.first == (fused ? 48 : 0));
            if (p.role == Role::ffn_gate || p.role == Role::ffn_up) CHECK(p.rows == 64);
            if (p.role == Role::ffn_up) CHECK(p.first == (fused ? 64 : 0));
            if (p.role == Role::ffn_down) CHECK(p.layer < 2);
        }
    }
    model_refused(llama().string("general.architecture", "mamba2"), Code::unsupported,
                  {"'mamba2'", "recurrent layers"});
    for (const std::string architecture : {"qwen", "", "LLAMA", "llama\x1b[2J"}) {
        model_refused(llama().string("general.architecture", architecture), Code::unsupported,
                      {"'" + printable(architecture) + "'", "docs/models.md"});
    }
    model_refused(llama().drop("general.architecture"), Code::invalid, {"general.architecture"});
    model_refused(llama().u32("general.architecture", 1), Code::invalid,
                  {"general.architecture", "a string"});
}

TEST_CASE("config: required keys")
{
    for (const char* name :
         {"block_count", "embedding_length", "context_length", "feed_forward_length",
          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
        const std::string key = std::string("llama.") + name;
        model_refused(llama().drop(key), Code::invalid, {"no key '" + key + "'"});
        model_refused(llama().string(key, "32"), Code::invalid, {key, "string"});
        model_refused(llama().i32(key, -1), Code::invalid, {key});
        model_refused(llama().f32(key, kNan), Code::invalid, {key});
    }
    // Without head_count_kv there are as many KV heads as heads.
    model_refused(llama().drop("llama.attention.head_count_kv"), Code::invalid,
                  {"attn_k.weight", "32 x 16", "32 x 32"});
}

TEST_CASE("config: integers out of range")
{
    const std::string l = "llama.", a = "llama.attention.";
    const struct {
        std::string key;
        std::vector<uint32_t> bad;
    } integers[] = {
        {l + "block_count", {0, 1, 3, 513, UINT32_MAX}},
        {l + "embedding_length", {0, 1, 31, 64, UINT32_MAX}},
        {l + "context_length", {0, (1u << 30) + 1, UINT32_MAX}},
        {l + "feed_forward_length", {0, 63, 128, UINT32_MAX}},
        {a + "head_count", {0, 1, 3, 32, 4097, UINT32_MAX}},
        {a + "head_count_kv", {0, 2, 3, 65537, UINT32_MAX}},
        {a + "key_length", {0, 1, 15, 18, 514, UINT32_MAX}},
        {a + "value_length", {0, 1, 15, 18, 514, UINT32_MAX}},
        {l + "rope.dimension_count", {0, 1, 7, 18, UINT32_MAX}},
        {l + "rope.scaling.original_context_length", {0, UINT32_MAX}},
        {l + "expert_count", {2, UINT32_MAX}},
    };
    for (const auto& row : integers) {
        for (uint32_t value : row.bad) {
            CAPTURE(row.key);
            CAPTURE(value);
            Status status = read_model(llama().u32(row.key, value));
            CHECK((status.code() == Code::invalid || status.code() == Code::unsupported));
            CHECK(is_readable(status.message()));
        }
    }
}

TEST_CASE("config: real numbers out of range")
{
    const std::string l = "llama.", a = "llama.attention.";
    const struct {
        std::string key;
        std::vector<float> bad;
    } reals[] = {
        {a + "layer_norm_rms_epsilon", {kNan, kInfinity, -1, 0, 1}},
        {l + "rope.freq_base", {kNan, kInfinity, -1, 0, 0.5f}},
        {l + "rope.scaling.factor", {kNan, kInfinity, -1, 1e-30f}},
        {l + "rope.scale_linear", {kNan, -kInfinity}},
        {l + "rope.scaling.attn_factor", {kNan, kInfinity, 0, -1}},
        {l + "final_logit_softcapping", {kNan, kInfinity, -1}},
    };
    for (const auto& row : reals)
        for (float value : row.bad)
            model_refused(llama().f32(row.key, value), Code::invalid,
                          {row.key + "' at offset ", "was expected"});
}

TEST_CASE("config: the message names the key, the value and the range")
{
    const std::string l = "llama.", a = "llama.attention.";
    model_refused(llama().u32(l + "context_length", 0), Code::invalid,
                  {"'llama.context_length' at offset ", "is 0, 1 to 1073741824 was expected"});
    model_refused(llama().u32(a + "key_length", 32), Code::unsupported, {"32", "16", "equal"});
    model_refused(llama().u32(a + "key_length", 15).u32(a + "value_length", 15), Code::invalid,
                  {"2 heads of 15 values", "even"});
    CHECK(config_of(llama().f64(a + "layer_norm_rms_epsilon", 1e-6)).norm_eps == 1e-6f);

    GgufBuilder b; // three KV heads for four heads, with matching tensors
    b = llama().u32(a + "head_count", 4).u32(a + "head_count_kv", 3);
    for (const char* name : {"blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.1.attn_k.weight",
                             "blk.1.attn_v.weight"})
        b.tensor(name, {32, 24});
    model_refused(b, Code::invalid, {"4 heads", "3 KV heads"});
}

TEST_CASE("config: the file's activation")
{
    const std::string key = "llama.hidden_activation";
    CHECK(config_of(llama()).activation == act_silu);
    CHECK(config_of(llama().string(key, "relu2")).activation == act_relu2);
    CHECK(config_of(llama().string(key, "gelu_pytorch_tanh")).activation == act_gelu);
    model_refused(llama().string(key, "tanh"), Code::unsupported, {"'tanh'", "relu2"});
    model_refused(llama().string(key, "xielu"), Code::invalid, {"xielu.alpha_p"});
}

TEST_CASE("config: one value for each layer")
{
    const std::string key = "llama.attention.head_count";
    CHECK(config_of(llama().array<uint32_t>(key, GgufType::u32, {2, 2})).n_heads == 2);
    CHECK(config_of(llama().array<uint32_t>(key, GgufType::u32, {2, 2, 9})).n_heads == 2);
    model_refused(llama().array<uint32_t>(key, GgufType::u32, {2, 4}), Code::invalid,
                  {"blk.1.attn_q.weight", "64 was expected"});
    model_refused(llama().array<uint32_t>(key, GgufType::u32, {2}), Code::invalid,
                  {key, "1 values, 2 were expected"});
    model_refused(llama().array<uint32_t>(key, GgufType::u32, {}), Code::invalid,
                  {key, "array of 0"});
    model_refused(llama().array<uint32_t>(key, GgufType::u32, {0, 0}), Code::invalid,
                  {key, "is 0"});
    model_refused(llama().strings(key, {"2", "2"}), Code::invalid, {key, "string"});
    CHECK(config_of(llama().array<int32_t>("llama.feed_forward_length", GgufType::i32, {64, 64}))
              .ffn_dim == 64);
    model_refused(llama().array<uint32_t>("llama.block_count", GgufType::u32, {2}), Code::invalid,
                  {"llama.block_count", "integer"});
}

static std::string window_layers(const Config& c)
{
    std::string layers;
    for (uint32_t il = 0; il < c.n_layers(); il++) layers += c.layers[il].window ? 'w' : 'g';
    return layers;
}

TEST_CASE("config: gemma3's windows and scale")
{
    const std::string key = "gemma3.attention.sliding_window_pattern";
    Config c = config_of(small_model("gemma3", 7));
    CHECK(c.window == 8);
    CHECK(c.rope_window.base == 10000);
    CHECK(window_layers(c) == "wwwwwgw");
    CHECK(window_layers(config_of(small_model("gemma3", 7).u32(key, 3))) == "wwgwwgw");
    CHECK(window_layers(config_of(small_model("gemma3", 3).u32(key, 1))) == "ggg");
    CHECK(window_layers(config_of(
              small_model("gemma3", 3).drop("gemma3.attention.sliding_window"))) == "ggg");
    CHECK(window_layers(config_of(small_model("gemma3", 3).u32(key, 0))) == "www");

    auto flags = [&](std::vector<uint8_t> values) {
        return small_model("gemma3", 5).array(key, GgufType::boolean, values);
    };
    CHECK(window_layers(config_of(flags({1, 1, 0, 1, 1}))) == "wwgww");
    CHECK(window_layers(config_of(flags({0, 0, 0, 0, 0}))) == "ggggg");
    CHECK(window_layers(config_of(flags({1, 1, 1, 1, 1}))) == "wwwww");
    CHECK(window_layers(config_of(flags({1, 1, 1, 1, 0}))) == "wwwwg");
    CHECK(window_layers(config_of(flags({0, 1, 1, 1, 1}))) == "gwwww");
    CHECK(window_layers(config_of(flags({1, 0, 0, 1, 0}))) == "wggwg");
    CHECK(window_layers(config_of(flags({1, 0, 1, 0, 1, 0}))) == "wgwgw");
    model_refused(flags({1, 1, 0, 1}), Code::invalid, {key, "4 values, 5 were expected"});
    model_refused(flags({1, 1, 0, 1, 2}), Code::invalid, {key});

    CHECK(
        config_of(small_model("gemma3").f32("gemma3.rope.freq_base_swa", 2e4f)).rope_window.base ==
        2e4);
}

// Keys have 16 values, the model's width is 32 for one head. Only the model with 62 layers scales
// by the width.
TEST_CASE("config: gemma3's attention scale")
{
    auto wide = [](uint32_t n_layers) {
        GgufBuilder b = small_model("gemma3", n_layers);
        b.u32("gemma3.attention.head_count", 1)
            .u32("gemma3.attention.key_length", 16)
            .u32("gemma3.attention.value_length", 16);
        for (uint32_t il = 0; il < n_layers; il++) {
            const std::string p = "blk." + std::to_string(il) + ".";
            b.tensor(p + "attn_q.weight", {32, 16}).tensor(p + "attn_output.weight", {16, 32});
        }
        return b;
    };
    CHECK(config_of(wide(61)).attention_scale == 0.25f);
    CHECK(config_of(wide(62)).attention_scale == float(1 / std::sqrt(32.0)));
}

TEST_CASE("config: RoPE scaling")
{
    const std::string s = "llama.rope.scaling.";
    // Without a type, scaling is linear.
    CHECK(config_of(llama().f32(s + "factor", 8)).rope.factor == 8);
    CHECK(config_of(llama().f32(s + "factor", 8).string(s + "type", "linear")).rope.factor == 8);
    CHECK(config_of(llama().f32(s + "factor", 8).string(s + "type", "none")).rope.factor == 1);
    CHECK(config_of(llama().f32(s + "factor", 0)).rope.factor == 1);
    CHECK(config_of(llama().f32("llama.rope.scale_linear", 4)).rope.factor == 4);
    CHECK(config_of(llama().f32("llama.rope.scale_linear", 4).f32(s + "factor", 2)).rope.factor ==
          2);
    CHECK(config_of(llama().f32(s + "attn_factor", 1.25f)).rope.mscale == 1.25);
    model_refused(llama().string(s + "type", "su"), Code::unsupported,
                  {"'su'", "none, linear, yarn and longrope"});
    model_refused(llama().string(s + "type", "yarn"), Code::invalid, {"YaRN with a factor of 0"});
    GgufBuilder yarn = llama()
                           .string(s + "type", "yarn")
                           .f32(s + "factor", 4)
                           .u32(s + "original_context_length", 64);
    CHECK(config_of(yarn).rope.yarn == 4);
    CHECK(config_of(yarn).rope.factor == 1);
    CHECK(config_of(yarn).rope.mscale == doctest::Approx(1.1386294));
    // Files carry these keys, which llama.cpp does not read.
    yarn.f32(s + "yarn_beta_fast", 16).f32(s + "yarn_ext_factor", 0.5f);
    CHECK(config_of(yarn.f32(s + "yarn_attn_factor", 1.2079f)).rope_yarn_fast == 32);
    CHECK(config_of(yarn).rope.mscale == doctest::Approx(1.1386294));
    model_refused(llama().u32(s + "type", 1), Code::invalid, {s + "type", "a string"});
}

TEST_CASE("config: RoPE scaling of window layers")
{
    // Gemma 3's window layers keep their frequencies, Gemma 2's are scaled like the others.
    for (const std::string family : {"gemma3", "gemma2"}) {
        const std::string key = family + ".rope.scaling.";
        const Config c = config_of(small_model(family)
                                       .string(key + "type", "yarn")
                                       .f32(key + "factor", 4)
                                       .u32(key + "original_context_length", 64));
        const bool scaled = family == "gemma2";
        CHECK(c.rope_window.yarn == (scaled ? 4 : 1));
        CHECK(c.rope_window.mscale == (scaled ? c.rope.mscale : 1));
        CHECK(c.rope_window.divided == scaled);
    }
}

TEST_CASE("config: longrope")
{
    GgufBuilder phi = small_model("phi3")
                          .string("phi3.rope.scaling.type", "longrope")
                          .u32("phi3.rope.scaling.original_context_length", 32);
    model_refused(phi, Code::invalid, {"longrope", "rope_factors_long.weight"});
    phi.tensor("rope_factors_long.weight", {8});
    model_refused(phi, Code::invalid, {"rope_factors_short.weight"});
    phi.tensor("rope_factors_short.weight", {8});
    ReadModel model;
    REQUIRE(read_model(phi, &model).ok());
    CHECK(model.config.rope_original_context == 32);
    int n_factors = 0;
    for (const TensorPart& p : model.parts)
        n_factors += p.role == Role::rope_factors_long || p.role == Role::rope_factors_short;
    CHECK(n_factors == 2);
    model_refused(phi.tensor("rope_factors_short.weight", {4}), Code::invalid,
                  {"rope_factors_short.weight", "has 4 values, 8 x 1"});
}
