#include "runtime/model/config.h"

#include "runtime/model/gguf.h"

#include <cinttypes>
#include <cmath>
#include <vector>

namespace ks
{

// clang-format off
static const Family kFamilies[] = {
    // name     pairs            activation qkv_bias qk_norm post_norms scale_embedding window_layers fused_qkv
    {"llama",  rope_neighbours, act_silu,  true,    false,  false,     false,          false,        false},
    {"gemma3", rope_halves,     act_gelu,  false,   true,   true,      true,           true,         false},
    {"qwen2",  rope_halves,     act_silu,  true,    false,  false,     false,          false,        false},
    {"qwen3",  rope_halves,     act_silu,  false,   true,   false,     false,          false,        false},
    {"phi3",   rope_halves,     act_silu,  false,   false,  false,     false,          false,        true},
};
// clang-format on

constexpr uint32_t kMaxDim = 1u << 20;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 512;
constexpr uint32_t kMaxVocab = 1u << 20;
constexpr uint32_t kMaxContext = 1u << 30; // positions and sums of two of them fit into 32 bits
constexpr uint32_t kGemma27bLayers = 62;   // no key says that its attention scale is another one

enum class Need { required, optional };

// The keys below the family's name, each with the range that makes sense.
class ConfigReader
{
public:
    ConfigReader(const Gguf& gguf, Config& config) : m_gguf(gguf), m_config(config) {}
    Status read();

private:
    std::string key(const char* name) const { return std::string(m_config.family->name) + "." + name; }
    std::string label() const { return m_gguf.label(); }
    Status ranged(const char* name, double value, double low, double high) const;
    Status missing(const char* name) const;
    Status integer(const char* name, uint32_t low, uint32_t high, uint32_t* out, Need need) const;
    Status per_layer(const char* name, uint32_t low, uint32_t high, uint32_t* out, Need need) const;
    Status real(const char* name, double low, double high, double* out, Need need) const;
    Status read_family();
    Status read_shape();
    Status read_heads();
    Status read_vocab_size();
    Status read_rope();
    Status read_rope_scaling();
    Status read_windows();
    Status read_window_pattern();

    const Gguf& m_gguf;
    Config& m_config;
};

Status ConfigReader::ranged(const char* name, double value, double low, double high) const
{
    if (value >= low && value <= high) return {}; // false for NaN
    const std::string full = key(name);
    const GgufValue* v = m_gguf.find(full);
    return fail(Code::invalid, "%s: %s at offset %" PRIu64 " is %.10g, %.10g to %.10g was expected", label().c_str(), full.c_str(),
                v->offset, value, low, high);
}

Status ConfigReader::missing(const char* name) const
{
    return fail(Code::invalid, "%s has no key '%s', which a %s model needs", label().c_str(), key(name).c_str(), m_config.family->name);
}

Status ConfigReader::integer(const char* name, uint32_t low, uint32_t high, uint32_t* out, Need need) const
{
    bool found;
    KS_TRY(m_gguf.get_u32(key(name), out, &found));
    if (!found) return need == Need::required ? missing(name) : Status();
    return ranged(name, *out, low, high);
}

// One value for all layers, or an array with the same value for each.
Status ConfigReader::per_layer(const char* name, uint32_t low, uint32_t high, uint32_t* out, Need need) const
{
    bool found;
    std::vector<uint32_t> values;
    KS_TRY(m_gguf.get_u32s(key(name), m_config.n_layers, &values, &found));
    if (!found) return need == Need::required ? missing(name) : Status();
    for (size_t i = 0; i < values.size(); i++) {
        KS_TRY(ranged(name, values[i], low, high));
        if (values[i] != values[0]) {
            return fail(Code::unsupported, "%s: %s is %u in layer 0 and %u in layer %zu, only models with equal layers are supported",
                        label().c_str(), key(name).c_str(), values[0], values[i], i);
        }
    }
    if (m_gguf.find(key(name))->type == GgufType::array && values.size() != m_config.n_layers) {
        return fail(Code::invalid, "%s: %s has %zu values, one for each of %u layers was expected", label().c_str(), key(name).c_str(),
                    values.size(), m_config.n_layers);
    }
    *out = values[0];
    return {};
}

Status ConfigReader::real(const char* name, double low, double high, double* out, Need need) const
{
    bool found;
    KS_TRY(m_gguf.get_f64(key(name), out, &found));
    if (!found) return need == Need::required ? missing(name) : Status();
    return ranged(name, *out, low, high);
}

Status ConfigReader::read_family()
{
    std::string_view architecture, name;
    bool found;
    KS_TRY(m_gguf.get_string("general.architecture", &architecture, &found));
    if (!found) return fail(Code::invalid, "%s has no key 'general.architecture'", label().c_str());
    std::string possible;
    for (const Family& family : kFamilies) {
        if (architecture == family.name) m_config.family = &family;
        possible += (possible.empty() ? "" : ", ") + std::string(family.name);
    }
    if (!m_config.family) {
        return fail(Code::unsupported, "%s: architecture '%s' is not supported, this build runs %s", label().c_str(),
                    printable(architecture).c_str(), possible.c_str());
    }
    KS_TRY(m_gguf.get_string("general.name", &name));
    m_config.name = printable(name);
    return {};
}

Status ConfigReader::read_shape()
{
    Config& c = m_config;
    double eps = 0, softcap = 0;
    uint32_t n_experts = 0;
    KS_TRY(integer("block_count", 1, kMaxLayers, &c.n_layers, Need::required));
    KS_TRY(integer("embedding_length", 1, kMaxDim, &c.dim, Need::required));
    KS_TRY(integer("context_length", 1, kMaxContext, &c.n_context, Need::required));
    KS_TRY(per_layer("feed_forward_length", 1, kMaxDim, &c.ffn_dim, Need::required));
    KS_TRY(real("attention.layer_norm_rms_epsilon", 1e-15, 0.5, &eps, Need::required));
    KS_TRY(real("final_logit_softcapping", 0, 1e6, &softcap, Need::optional));
    KS_TRY(m_gguf.get_u32(key("expert_count"), &n_experts));
    if (n_experts > 1) {
        return fail(Code::unsupported, "%s is a mixture of %u experts, only models with one feed-forward network per layer are supported",
                    label().c_str(), n_experts);
    }
    c.norm_eps = float(eps);
    c.final_softcap = float(softcap);
    return {};
}

Status ConfigReader::read_heads()
{
    Config& c = m_config;
    KS_TRY(per_layer("attention.head_count", 1, kMaxHeads, &c.n_heads, Need::required));
    c.n_kv_heads = c.n_heads;
    KS_TRY(per_layer("attention.head_count_kv", 1, kMaxHeads, &c.n_kv_heads, Need::optional));
    if (c.n_heads % c.n_kv_heads != 0) {
        return fail(Code::invalid, "%s: %s is %u, which does not divide into %u KV heads", label().c_str(),
                    key("attention.head_count").c_str(), c.n_heads, c.n_kv_heads);
    }
    c.head_dim = c.dim % c.n_heads == 0 ? c.dim / c.n_heads : 0;
    uint32_t value_dim = c.head_dim;
    KS_TRY(integer("attention.key_length", 2, kMaxHeadDim, &c.head_dim, Need::optional));
    KS_TRY(integer("attention.value_length", 2, kMaxHeadDim, &value_dim, Need::optional));
    if (c.head_dim < 2 || c.head_dim > kMaxHeadDim || c.head_dim % 2 != 0) {
        return fail(Code::invalid, "%s: %u heads over a width of %u have %u values each, an even number from 2 to %u was expected",
                    label().c_str(), c.n_heads, c.dim, c.head_dim, kMaxHeadDim);
    }
    if (c.head_dim != value_dim) {
        return fail(Code::unsupported, "%s: keys have %u values and values %u in a head, only models where they are equal are supported",
                    label().c_str(), c.head_dim, value_dim);
    }
    bool by_width = c.family->window_layers && c.n_layers == kGemma27bLayers;
    c.attention_scale = float(1 / std::sqrt(by_width ? double(c.dim) / c.n_heads : double(c.head_dim)));
    return {};
}

Status ConfigReader::read_vocab_size()
{
    const GgufTensor* embedding = m_gguf.find_tensor("token_embd.weight");
    const GgufValue* tokens = m_gguf.find("tokenizer.ggml.tokens");
    if (!embedding) return fail(Code::invalid, "%s has no tensor 'token_embd.weight'", label().c_str());
    if (embedding->dims[1] > kMaxVocab) {
        return fail(Code::invalid, "%s: tensor 'token_embd.weight' at offset %" PRIu64 " has %" PRIu64 " rows, at most %u was expected",
                    label().c_str(), embedding->info_offset, embedding->dims[1], kMaxVocab);
    }
    if (tokens && tokens->count != embedding->dims[1]) {
        return fail(Code::invalid,
                    "%s: 'tokenizer.ggml.tokens' at offset %" PRIu64 " has %" PRIu64 " tokens, but tensor 'token_embd.weight' has %" PRIu64
                    " rows",
                    label().c_str(), tokens->offset, tokens->count, embedding->dims[1]);
    }
    m_config.n_vocab = uint32_t(embedding->dims[1]);
    m_config.tied = !m_gguf.find_tensor("output.weight");
    return {};
}

Status ConfigReader::read_rope()
{
    Config& c = m_config;
    c.n_rot = c.head_dim;
    KS_TRY(integer("rope.dimension_count", 2, c.head_dim, &c.n_rot, Need::optional));
    if (c.n_rot % 2 != 0)
        return fail(Code::invalid, "%s: %s is %u, an even number was expected", label().c_str(), key("rope.dimension_count").c_str(),
                    c.n_rot);
    KS_TRY(real("rope.freq_base", 1, 1e15, &c.rope_base, Need::optional));
    return read_rope_scaling();
}

Status ConfigReader::read_rope_scaling()
{
    Config& c = m_config;
    std::string_view type = "linear"; // what a factor without a type means
    KS_TRY(m_gguf.get_string(key("rope.scaling.type"), &type));
    if (type != "none" && type != "linear" && type != "longrope") {
        return fail(Code::unsupported, "%s: %s '%s' is not supported, only none, linear and longrope are", label().c_str(),
                    key("rope.scaling.type").c_str(), printable(type).c_str());
    }
    double factor = 0;
    for (const char* name : {"rope.scale_linear", "rope.scaling.factor"}) {
        KS_TRY(m_gguf.get_f64(key(name), &factor));
        if (factor != 0) KS_TRY(ranged(name, factor, 1e-3, 1e6));
    }
    if (type != "none" && factor != 0) c.rope_factor = factor;
    KS_TRY(real("rope.scaling.attn_factor", 1e-3, 1e3, &c.rope_mscale, Need::optional));
    c.rope_original_context = c.n_context;
    KS_TRY(integer("rope.scaling.original_context_length", 1, kMaxContext, &c.rope_original_context, Need::optional));
    if (type == "longrope" && !m_gguf.find_tensor("rope_factors_long.weight"))
        return fail(Code::invalid, "%s has longrope scaling, but no tensor 'rope_factors_long.weight'", label().c_str());
    return {};
}

Status ConfigReader::read_windows()
{
    Config& c = m_config;
    if (!c.family->window_layers) return {};
    KS_TRY(integer("attention.sliding_window", 0, kMaxContext, &c.window, Need::optional));
    KS_TRY(real("rope.freq_base_swa", 1, 1e15, &c.rope_base_window, Need::optional));
    return read_window_pattern();
}

// A period, or one flag per layer (1: window), which must amount to a period.
Status ConfigReader::read_window_pattern()
{
    const char* const name = "attention.sliding_window_pattern";
    Config& c = m_config;
    const GgufValue* v = m_gguf.find(key(name));
    if (!v || v->type != GgufType::array) return integer(name, 1, kMaxContext, &c.window_period, Need::optional);
    std::vector<uint32_t> flags;
    KS_TRY(m_gguf.get_u32s(key(name), kMaxLayers, &flags));
    uint32_t period = 1; // ends at n_layers + 1 where every layer has a window
    while (period <= c.n_layers && period <= flags.size() && flags[period - 1] != 0) period++;
    bool periodic = flags.size() == c.n_layers;
    for (uint32_t il = 0; periodic && il < c.n_layers; il++) periodic = (flags[il] != 0) == (il % period < period - 1);
    if (!periodic) {
        return fail(Code::unsupported, "%s: %s has %zu flags, only a period over %u layers with its last layer global is supported",
                    label().c_str(), key(name).c_str(), flags.size(), c.n_layers);
    }
    c.window_period = period;
    return {};
}

Status ConfigReader::read()
{
    KS_TRY(read_family());
    KS_TRY(read_shape());
    KS_TRY(read_heads());
    KS_TRY(read_rope());
    KS_TRY(read_windows());
    return read_vocab_size();
}

Result<Config> read_config(const Gguf& gguf)
{
    Config config;
    KS_TRY(ConfigReader(gguf, config).read());
    return config;
}

} // namespace ks
