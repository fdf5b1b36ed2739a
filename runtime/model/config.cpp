#include "runtime/model/config.h"

#include "runtime/model/gguf.h"
#include "runtime/model/rope.h"

#include <cinttypes>
#include <cmath>
#include <vector>

namespace ks
{

// A row of the table: a name, how RoPE pairs values, an activation, and the family's other flags.
struct FamilyRow : Family {
    constexpr FamilyRow(const char* its_name, uint32_t its_rope_pairs, uint32_t its_activation)
    {
        name = its_name;
        rope_pairs = its_rope_pairs;
        activation = its_activation;
    }
    constexpr FamilyRow with_qkv_bias() const { return with(&Family::qkv_bias); }
    constexpr FamilyRow with_qk_norm() const { return with(&Family::qk_norm); }
    constexpr FamilyRow with_post_norms() const { return with(&Family::post_norms); }
    constexpr FamilyRow with_scaled_embedding() const { return with(&Family::scale_embedding); }
    constexpr FamilyRow with_window_layers() const { return with(&Family::window_layers); }
    constexpr FamilyRow with_fused_qkv() const { return with(&Family::fused_qkv); }

private:
    constexpr FamilyRow with(bool Family::*flag) const
    {
        FamilyRow row = *this;
        row.*flag = true;
        return row;
    }
};

static const FamilyRow kFamilies[] = {
    FamilyRow("llama", rope_interleaved, act_silu).with_qkv_bias(),
    FamilyRow("gemma3", rope_neox, act_gelu)
        .with_qk_norm()
        .with_post_norms()
        .with_scaled_embedding()
        .with_window_layers(),
    FamilyRow("qwen2", rope_neox, act_silu).with_qkv_bias(),
    FamilyRow("qwen3", rope_neox, act_silu).with_qk_norm(),
    FamilyRow("phi3", rope_neox, act_silu).with_fused_qkv(),
};

ModelShape Config::model_shape() const
{
    ModelShape shape;
    shape.n_layers = n_layers;
    shape.n_heads = n_heads;
    shape.n_kv_heads = n_kv_heads;
    shape.head_dim = head_dim;
    shape.n_rot = n_rot;
    shape.rope_pairs = family->rope_pairs;
    shape.window = window;
    shape.window_period = window_period;
    shape.key_bias = key_bias;
    shape.wide_normed_keys = has_wide_normed_keys();
    return shape;
}

constexpr uint32_t kMaxDim = 1u << 20;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 512;
constexpr uint32_t kMaxVocab = 1u << 20;
constexpr uint32_t kGemma27bLayers = 62; // its attention scale differs, and no key says so

// Reads keys with the prefix of the family's name and checks their range. A missing key leaves the
// value as it is.
struct Keys {
    const Gguf& gguf;
    const Config& config;

    std::string label() const { return gguf.label(); }
    std::string key(const char* name) const
    {
        return std::string(config.family->name) + "." + name;
    }

    Status ranged(const char* name, double value, double low, double high) const
    {
        if (value >= low && value <= high) return {}; // false for NaN
        return fail(Code::invalid, "%s is %.10g, %.10g to %.10g was expected",
                    gguf.location_of(*gguf.find(key(name))).c_str(), value, low, high);
    }

    Status need(std::initializer_list<const char*> names) const
    {
        for (const char* name : names)
            if (!gguf.find(key(name)))
                return fail(Code::invalid, "%s has no key '%s'", label().c_str(),
                            key(name).c_str());
        return {};
    }

    Status integer(const char* name, uint32_t low, uint32_t high, uint32_t* out) const
    {
        bool found;
        KS_TRY(gguf.get_u32(key(name), out, &found));
        return found ? ranged(name, *out, low, high) : Status();
    }

    Status real(const char* name, double low, double high, double* out) const
    {
        bool found;
        KS_TRY(gguf.get_f64(key(name), out, &found));
        return found ? ranged(name, *out, low, high) : Status();
    }

    // One value for all layers, or an array with the same value for each.
    Status per_layer(const char* name, uint32_t low, uint32_t high, uint32_t* out) const
    {
        std::vector<uint32_t> values;
        const GgufValue* v = gguf.find(key(name));
        if (!v) return {};
        KS_TRY(gguf.get_u32s(key(name), config.n_layers, &values));
        if (v->type == GgufType::array && v->count != config.n_layers) {
            return fail(Code::invalid, "%s has %zu values, %u were expected",
                        gguf.location_of(*v).c_str(), values.size(), config.n_layers);
        }
        *out = values[0];
        for (uint32_t value : values) {
            KS_TRY(ranged(name, value, low, high));
            if (value == *out) continue;
            return fail(Code::unsupported,
                        "%s has %u and %u, only layers that are all equal are supported",
                        gguf.location_of(*v).c_str(), *out, value);
        }
        return {};
    }
};

static Status read_family(const Gguf& gguf, Config& c)
{
    std::string_view architecture, name;
    bool found;
    KS_TRY(gguf.get_string("general.architecture", &architecture, &found));
    if (!found)
        return fail(Code::invalid, "%s has no key 'general.architecture'", gguf.label().c_str());
    std::string possible;
    for (const Family& family : kFamilies) {
        if (architecture == family.name) c.family = &family;
        possible += std::string(" ") + family.name;
    }
    if (!c.family) {
        return fail(Code::unsupported, "%s: architecture '%s' is not supported, this build runs%s",
                    gguf.label().c_str(), printable(architecture).c_str(), possible.c_str());
    }
    KS_TRY(gguf.get_string("general.name", &name));
    c.name = printable(name);
    return {};
}

static Status read_shape(const Keys& keys, Config& c)
{
    double eps = 0, softcap = 0;
    uint32_t n_experts = 0;
    KS_TRY(keys.need({"block_count", "embedding_length", "context_length", "feed_forward_length",
                      "attention.head_count", "attention.layer_norm_rms_epsilon"}));
    KS_TRY(keys.integer("block_count", 1, kMaxLayers, &c.n_layers));
    KS_TRY(keys.integer("embedding_length", 1, kMaxDim, &c.dim));
    KS_TRY(keys.integer("context_length", 1, kMaxContext, &c.n_context));
    KS_TRY(keys.per_layer("feed_forward_length", 1, kMaxDim, &c.ffn_dim));
    KS_TRY(keys.real("attention.layer_norm_rms_epsilon", 1e-15, 0.5, &eps));
    KS_TRY(keys.real("final_logit_softcapping", 0, 1e6, &softcap));
    KS_TRY(keys.integer("expert_count", 0, UINT32_MAX, &n_experts));
    if (n_experts > 1)
        return fail(Code::unsupported,
                    "%s is a mixture of %u experts, only dense models are supported",
                    keys.label().c_str(), n_experts);
    c.norm_eps = float(eps);
    c.final_softcap = float(softcap);
    return {};
}

static Status read_heads(const Keys& keys, Config& c)
{
    KS_TRY(keys.per_layer("attention.head_count", 1, kMaxHeads, &c.n_heads));
    c.n_kv_heads = c.n_heads;
    KS_TRY(keys.per_layer("attention.head_count_kv", 1, kMaxHeads, &c.n_kv_heads));
    if (c.n_heads % c.n_kv_heads != 0)
        return fail(Code::invalid, "%s: %u heads cannot share %u KV heads evenly",
                    keys.label().c_str(), c.n_heads, c.n_kv_heads);
    c.head_dim = c.dim % c.n_heads == 0 ? c.dim / c.n_heads : 0;
    uint32_t value_dim = c.head_dim;
    KS_TRY(keys.integer("attention.key_length", 2, kMaxHeadDim, &c.head_dim));
    KS_TRY(keys.integer("attention.value_length", 2, kMaxHeadDim, &value_dim));
    if (c.head_dim < 2 || c.head_dim > kMaxHeadDim || c.head_dim % 2 != 0) {
        return fail(Code::invalid,
                    "%s: %u heads of %u values for a width of %u, an even number of 2 to %u values "
                    "was expected",
                    keys.label().c_str(), c.n_heads, c.head_dim, c.dim, kMaxHeadDim);
    }
    if (c.head_dim != value_dim) {
        return fail(
            Code::unsupported,
            "%s: a head's keys have %u values, its values %u, only equal numbers are supported",
            keys.label().c_str(), c.head_dim, value_dim);
    }
    bool by_width = c.family->window_layers && c.n_layers == kGemma27bLayers;
    c.attention_scale =
        float(1 / std::sqrt(by_width ? double(c.dim) / c.n_heads : double(c.head_dim)));
    return {};
}

static Status read_yarn(const Keys& keys, double factor, Config& c)
{
    double share = 1, mscale = 1;
    KS_TRY(keys.real("rope.scaling.yarn_beta_fast", 1e-3, 1e6, &c.rope_yarn_fast));
    KS_TRY(keys.real("rope.scaling.yarn_beta_slow", 1e-3, 1e6, &c.rope_yarn_slow));
    KS_TRY(keys.real("rope.scaling.yarn_ext_factor", 0, 1e3, &share));
    KS_TRY(keys.real("rope.scaling.yarn_attn_factor", 1e-3, 1e3, &mscale));
    if (share != 1)
        return fail(Code::unsupported, "%s: YaRN with an ext_factor of %g, only 1 is supported",
                    keys.label().c_str(), share);
    if (factor < 1)
        return fail(Code::invalid, "%s: YaRN with a factor of %g, 1 and more was expected",
                    keys.label().c_str(), factor);
    c.rope_yarn = factor;
    c.rope_mscale *= mscale * yarn_mscale(factor);
    return {};
}

static Status read_rope(const Keys& keys, Config& c)
{
    std::string_view type = "linear"; // what a factor without a type means
    double factor = 0;
    c.n_rot = c.head_dim;
    c.rope_original_context = c.n_context;
    KS_TRY(keys.integer("rope.dimension_count", 2, c.head_dim, &c.n_rot));
    if (c.n_rot % 2 != 0)
        return fail(Code::invalid, "%s: RoPE over %u values, an even number was expected",
                    keys.label().c_str(), c.n_rot);
    KS_TRY(keys.real("rope.freq_base", 1, 1e15, &c.rope_base));
    KS_TRY(keys.real("rope.scaling.attn_factor", 1e-3, 1e3, &c.rope_mscale));
    KS_TRY(keys.integer("rope.scaling.original_context_length", 1, kMaxContext,
                        &c.rope_original_context));
    for (const char* name : {"rope.scale_linear", "rope.scaling.factor"}) { // the older key first
        KS_TRY(keys.gguf.get_f64(keys.key(name), &factor));
        if (factor != 0) KS_TRY(keys.ranged(name, factor, 1e-3, 1e6));
    }
    KS_TRY(keys.gguf.get_string(keys.key("rope.scaling.type"), &type));
    if (type != "none" && type != "linear" && type != "longrope" && type != "yarn") {
        return fail(
            Code::unsupported,
            "%s: RoPE scaling '%s' is not supported, only none, linear, yarn and longrope are",
            keys.label().c_str(), printable(type).c_str());
    }
    if (type == "yarn") KS_TRY(read_yarn(keys, factor, c));
    if (type != "none" && type != "yarn" && factor != 0) c.rope_factor = factor;
    c.rope_longrope = type == "longrope";
    if (c.rope_longrope && !keys.gguf.find_tensor("rope_factors_long.weight"))
        return fail(Code::invalid,
                    "%s has longrope scaling, but no tensor 'rope_factors_long.weight'",
                    keys.label().c_str());
    return {};
}

// The pattern is a period, or one flag per layer (1: window) which must amount to a period.
static Status read_windows(const Keys& keys, Config& c)
{
    const char* const name = "attention.sliding_window_pattern";
    const GgufValue* pattern = keys.gguf.find(keys.key(name));
    KS_TRY(keys.integer("attention.sliding_window", 0, kMaxContext, &c.window));
    KS_TRY(keys.real("rope.freq_base_swa", 1, 1e15, &c.rope_base_window));
    if (!pattern || pattern->type != GgufType::array)
        return keys.integer(name, 1, kMaxContext, &c.window_period);
    std::vector<uint32_t> flags;
    KS_TRY(keys.gguf.get_u32s(pattern->key, kMaxLayers, &flags));
    bool periodic = flags.size() == c.n_layers;
    c.window_period = 1; // ends as n_layers + 1 where every layer has a window
    while (periodic && c.window_period <= c.n_layers && flags[c.window_period - 1] != 0)
        c.window_period++;
    for (uint32_t il = 0; periodic && il < c.n_layers; il++)
        periodic = (flags[il] != 0) == (il % c.window_period < c.window_period - 1);
    if (periodic) return {};
    return fail(Code::unsupported, "%s has %zu flags that no period over %u layers gives",
                keys.gguf.location_of(*pattern).c_str(), flags.size(), c.n_layers);
}

static Status read_vocab_size(const Gguf& gguf, Config& c)
{
    const GgufTensor* embedding = gguf.find_tensor("token_embd.weight");
    const GgufValue* tokens = gguf.find("tokenizer.ggml.tokens");
    if (!embedding)
        return fail(Code::invalid, "%s has no tensor 'token_embd.weight'", gguf.label().c_str());
    uint64_t rows = embedding->dims[1];
    if (rows > kMaxVocab)
        return fail(Code::invalid, "%s has %" PRIu64 " rows, at most %u were expected",
                    gguf.location_of(*embedding).c_str(), rows, kMaxVocab);
    if (tokens && tokens->count != rows) {
        return fail(Code::invalid,
                    "%s has %" PRIu64 " rows, but tokenizer.ggml.tokens has %" PRIu64,
                    gguf.location_of(*embedding).c_str(), rows, tokens->count);
    }
    c.n_vocab = uint32_t(rows);
    c.tied = !gguf.find_tensor("output.weight");
    return {};
}

Result<Config> read_config(const Gguf& gguf)
{
    Config config;
    Keys keys{gguf, config};
    KS_TRY(read_family(gguf, config));
    KS_TRY(read_shape(keys, config));
    KS_TRY(read_heads(keys, config));
    KS_TRY(read_rope(keys, config));
    if (config.family->window_layers) KS_TRY(read_windows(keys, config));
    KS_TRY(read_vocab_size(gguf, config));
    for (uint32_t il = 0; config.family->qkv_bias && il < config.n_layers; il++)
        config.key_bias |=
            gguf.find_tensor("blk." + std::to_string(il) + ".attn_k.bias") != nullptr;
    return config;
}

} // namespace ks
