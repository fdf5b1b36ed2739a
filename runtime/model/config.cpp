#include "runtime/model/config.h"

#include "runtime/model/gguf.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

namespace ks
{

constexpr uint32_t kMaxDim = 1u << 20;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 512;
constexpr uint32_t kMaxVocab = 1u << 20;
constexpr uint32_t kMaxLoops = 16;

ModelShape Config::model_shape() const
{
    ModelShape shape;
    for (uint32_t loop = 0; loop < n_loops; loop++)
        for (const LayerConfig& layer : layers) {
            if (layer.stores())
                shape.layers.push_back(
                    {layer.n_heads, layer.n_kv_heads, layer.head_dim, layer.window,
                     layer.rope ? (layer.window ? rope_window : rope).n_rot : 0});
            if (!layer.owns_kv && layer.attends()) shape.layers[layer.il_cache].n_readers++;
        }
    shape.rope_pairs = rope_pairs;
    shape.window = window;
    shape.key_bias = key_bias && n_loops == 1; // loops share the bias
    shape.wide_normed_keys = has_wide_normed_keys();
    shape.sinks = family->sinks;
    shape.values_in_keys = latent.dim != 0;
    shape.normed_after_rope = family->qk_norm_after_rope;
    return shape;
}

uint32_t Config::n_cached() const
{
    return uint32_t(std::count_if(layers.begin(), layers.end(),
                                  [](const LayerConfig& layer) { return layer.stores(); }));
}

uint32_t Config::q_cols() const
{
    uint32_t most = 0;
    for (const LayerConfig& layer : layers) most = std::max(most, layer.q_cols());
    return most;
}

uint32_t Config::kv_cols() const
{
    uint32_t most = 0;
    for (const LayerConfig& layer : layers) most = std::max(most, layer.kv_cols());
    return most;
}

std::string Keys::label() const
{
    return gguf.label();
}

std::string Keys::key(const char* name) const
{
    return std::string(config.family->name) + "." + name;
}

bool Keys::has(const char* name) const
{
    return gguf.find(key(name)) != nullptr;
}

Status Keys::ranged(const std::string& key, double value, double low, double high) const
{
    if (value >= low && value <= high) return {}; // false for NaN
    return fail(Code::invalid, "%s is %.10g, %.10g to %.10g was expected",
                gguf.location_of(*gguf.find(key)).c_str(), value, low, high);
}

Status Keys::need(std::initializer_list<const char*> names) const
{
    for (const char* name : names)
        if (!has(name))
            return fail(Code::invalid, "%s has no key '%s'", label().c_str(), key(name).c_str());
    return {};
}

Status Keys::integer(const char* name, uint32_t low, uint32_t high, uint32_t* out) const
{
    bool found;
    KS_TRY(gguf.get_u32(key(name), out, &found));
    return found ? ranged(key(name), *out, low, high) : Status();
}

Status Keys::real(const char* name, double low, double high, double* out) const
{
    bool found;
    KS_TRY(gguf.get_f64(key(name), out, &found));
    return found ? ranged(key(name), *out, low, high) : Status();
}

Status Keys::real(const char* name, double low, double high, float* out) const
{
    double value = *out;
    KS_TRY(real(name, low, high, &value));
    *out = float(value);
    return {};
}

Status Keys::flag(const char* name, bool* out) const
{
    return gguf.get_bool(key(name), out);
}

Status Keys::per_layer(const char* name, uint32_t low, uint32_t high,
                       std::vector<uint32_t>& out) const
{
    const GgufValue* v = gguf.find(key(name));
    const uint32_t n_layers = config.n_layers();
    if (!v) return {};
    KS_TRY(gguf.get_u32s(key(name), kMaxLayers, &out));
    if (v->type != GgufType::array) out.assign(n_layers, out[0]);
    if (out.size() < n_layers)
        return fail(Code::invalid, "%s has %zu values, %u were expected",
                    gguf.location_of(*v).c_str(), out.size(), n_layers);
    out.resize(n_layers);
    for (uint32_t value : out) KS_TRY(ranged(key(name), value, low, high));
    return {};
}

static Status read_family(const Gguf& gguf, Config& c)
{
    std::string_view architecture, name;
    bool found;
    KS_TRY(gguf.get_string("general.architecture", &architecture, &found));
    if (!found)
        return fail(Code::invalid, "%s has no key 'general.architecture'", gguf.label().c_str());
    c.family = find_family(architecture);
    const char* feature = missing_feature(architecture);
    if (!c.family && feature)
        return fail(Code::unsupported, "%s: architecture '%s' needs %s, which this build lacks",
                    gguf.label().c_str(), printable(architecture).c_str(), feature);
    if (!c.family) {
        return fail(Code::unsupported,
                    "%s: architecture '%s' is none of the %u that this build runs "
                    "(docs/models.md lists them)",
                    gguf.label().c_str(), printable(architecture).c_str(), count_families());
    }
    KS_TRY(gguf.get_string("general.name", &name));
    c.name = printable(name);
    return {};
}

// Blocks behind the layers predict further tokens and do not run.
static Status read_layers(const Keys& keys, Config& c)
{
    uint32_t n_predicting = 0;
    KS_TRY(keys.need({"block_count", "embedding_length", "context_length", "feed_forward_length",
                      "attention.head_count"}));
    KS_TRY(keys.integer("block_count", 1, kMaxLayers, &c.n_blocks));
    KS_TRY(keys.integer("nextn_predict_layers", 0, c.n_blocks - 1, &n_predicting));
    c.layers.resize(c.n_blocks - n_predicting);
    if (!c.family->loops) return {};
    bool skipped = false;
    KS_TRY(keys.integer("num_loops", 1, kMaxLoops, &c.n_loops));
    KS_TRY(keys.flag("skip_loop_final_norm", &skipped));
    c.norms_between_loops = !skipped;
    return {};
}

static Status read_shape(const Keys& keys, Config& c)
{
    const Family& f = *c.family;
    const bool rms = f.norm_kind == norm_rms;
    const char* eps = rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    if (f.one_branch && !keys.has(eps)) eps = "attention.layer_norm_epsilon"; // of its old files
    const uint32_t least = f.partial_layers || f.recurrent != Recurrent::none ? 0 : 1;
    KS_TRY(keys.need({eps}));
    KS_TRY(keys.integer("embedding_length", 1, kMaxDim, &c.dim));
    KS_TRY(keys.integer("context_length", 1, kMaxContext, &c.n_context));
    KS_TRY(keys.real(eps, 1e-15, 0.5, &c.norm_eps));
    std::vector<uint32_t> ffn_dims, n_heads, n_kv_heads;
    KS_TRY(keys.per_layer("feed_forward_length", least, kMaxDim, ffn_dims));
    KS_TRY(keys.per_layer("attention.head_count", least, kMaxHeads, n_heads));
    n_kv_heads = n_heads;
    KS_TRY(keys.per_layer("attention.head_count_kv", least, kMaxHeads, n_kv_heads));
    for (uint32_t il = 0; il < c.n_layers(); il++) {
        if (n_kv_heads[il] && n_heads[il] % n_kv_heads[il] != 0)
            return fail(Code::invalid, "%s: %u heads cannot share %u KV heads evenly",
                        keys.label().c_str(), n_heads[il], n_kv_heads[il]);
        LayerConfig& layer = c.layers[il];
        layer.ffn_dim = ffn_dims[il];
        layer.n_heads = n_heads[il];
        layer.n_kv_heads = n_heads[il] ? n_kv_heads[il] : 0;
        // A layer of partial_layers without an FFN does not run.
        if (f.partial_layers && !ffn_dims[il]) layer.n_heads = layer.n_kv_heads = 0;
    }
    if (f.recurrent != Recurrent::none) KS_TRY(read_recurrent(keys, c));
    for (const LayerConfig& layer : c.layers) {
        c.n_heads = std::max(c.n_heads, layer.n_heads);
        c.n_kv_heads = std::max(c.n_kv_heads, layer.n_kv_heads);
        c.ffn_dim = std::max(c.ffn_dim, layer.ffn_dim);
    }
    if (c.n_kv_heads) return {};
    return fail(Code::invalid, "%s has no layer with heads and KV heads%s", keys.label().c_str(),
                f.partial_layers ? " and an FFN" : "");
}

// The family's activation, or that of the file where its models differ.
static Status read_activation(const Keys& keys, Config& c)
{
    const struct {
        const char* name;
        uint32_t activation;
    } known[] = {{"silu", act_silu},   {"swish", act_silu},
                 {"gelu", act_gelu},   {"gelu_pytorch_tanh", act_gelu},
                 {"relu2", act_relu2}, {"xielu", act_xielu}};
    std::string_view name;
    bool found;
    c.activation = c.family->activation;
    KS_TRY(keys.gguf.get_string(keys.key("hidden_activation"), &name, &found));
    if (!found) return {};
    for (const auto& row : known)
        if (name == row.name) return c.activation = row.activation, Status();
    return fail(Code::unsupported,
                "%s: activation '%s' is not supported, only silu, gelu, relu2 and xielu are",
                keys.label().c_str(), printable(name).c_str());
}

// The size of a layer's heads. suffix: of the keys, "" or "_swa".
static Status read_head_dim(const Keys& keys, const char* suffix, uint32_t n_heads, uint32_t* out)
{
    const std::string key_length = std::string("attention.key_length") + suffix,
                      value_length = std::string("attention.value_length") + suffix;
    uint32_t value_dim = *out;
    KS_TRY(keys.integer(key_length.c_str(), 2, kMaxHeadDim, out));
    KS_TRY(keys.integer(value_length.c_str(), 2, kMaxHeadDim, &value_dim));
    if (*out < 2 || *out > kMaxHeadDim || *out % 2 != 0) {
        return fail(Code::invalid,
                    "%s: %u heads of %u values for a width of %u, an even number of 2 to %u values "
                    "was expected",
                    keys.label().c_str(), n_heads, *out, keys.config.dim, kMaxHeadDim);
    }
    if (*out == value_dim) return {};
    return fail(Code::unsupported,
                "%s: a head's keys have %u values, its values %u, only equal numbers are supported",
                keys.label().c_str(), *out, value_dim);
}

static Status read_heads(const Keys& keys, Config& c)
{
    const auto first = std::find_if(c.layers.begin(), c.layers.end(),
                                    [](const LayerConfig& layer) { return layer.n_heads != 0; });
    const uint32_t n_heads = first->n_heads;
    uint32_t whole = c.dim % n_heads == 0 ? c.dim / n_heads : 0;
    KS_TRY(read_head_dim(keys, "", n_heads, &whole));
    uint32_t of_window = whole;
    if (c.window) KS_TRY(read_head_dim(keys, "_swa", n_heads, &of_window));
    for (LayerConfig& layer : c.layers) {
        layer.head_dim = layer.window ? of_window : whole;
        c.head_dim = std::max(c.head_dim, layer.head_dim);
    }
    c.rope.n_rot = whole;
    c.rope_window.n_rot = of_window;
    const bool by_width = c.n_layers() == c.family->scaled_by_width;
    float scale = c.family->attention_scale;
    KS_TRY(keys.real("attention.scale", 0, 1e3, &scale));
    if (scale == 0 && of_window != whole)
        return fail(Code::unsupported,
                    "%s: heads of %u values in window layers, of %u in others and no key '%s', "
                    "without which only equal numbers are supported",
                    keys.label().c_str(), of_window, whole, keys.key("attention.scale").c_str());
    c.attention_scale =
        scale != 0 ? scale
                   : float(1 / std::sqrt(by_width ? double(c.dim) / n_heads : double(whole)));
    return {};
}

// Scales and soft caps. MiniCPM's files without scales rely on their defaults.
static Status read_scales(const Keys& keys, Config& c)
{
    const LogitScale meaning = c.family->logit_scale;
    float logit_scale = 0;
    if (c.family->scaled_embedding) c.embedding_scale = std::sqrt(float(c.dim));
    if (c.family->minicpm_scales) {
        c.embedding_scale = 12;
        c.residual_scale = float(1.4 / std::sqrt(double(c.n_layers())));
        logit_scale = 256.f / float(c.dim);
    } else if (meaning != LogitScale::none) {
        KS_TRY(keys.need({"logit_scale"}));
    }
    c.final_softcap = c.family->softcap;
    c.attention_softcap = c.family->attention_softcap;
    KS_TRY(keys.real("embedding_scale", 1e-6, 1e6, &c.embedding_scale));
    KS_TRY(keys.real("residual_scale", 0, 1e6, &c.residual_scale));
    if (meaning != LogitScale::none) KS_TRY(keys.real("logit_scale", 1e-6, 1e6, &logit_scale));
    KS_TRY(keys.real("attention.temperature_scale", 0, 1e3, &c.temperature));
    KS_TRY(keys.real("final_logit_softcapping", 0, 1e6, &c.final_softcap));
    if (c.family->attention_softcap != 0)
        KS_TRY(keys.real("attn_logit_softcapping", 0, 1e6, &c.attention_softcap));
    if (c.residual_scale == 0) c.residual_scale = 1;
    if (logit_scale != 0)
        c.logit_scale = meaning == LogitScale::divisor ? 1 / logit_scale : logit_scale;
    return {};
}

// The pattern is a period, or one flag per layer (1: window).
static Status read_windows(const Keys& keys, Config& c)
{
    const Family& f = *c.family;
    const char* const name = "attention.sliding_window_pattern";
    if (!f.window_period || (f.window_layers && c.n_layers() != f.window_layers)) return {};
    c.window = f.window;
    KS_TRY(keys.integer("attention.sliding_window", 0, kMaxContext, &c.window));
    if (f.window_period == 1) KS_TRY(keys.need({"attention.sliding_window", name}));
    if (f.shared_kv)
        KS_TRY(keys.need({"attention.sliding_window", name, "attention.key_length_swa",
                          "attention.value_length_swa", "embedding_length_per_layer_input"}));
    if (!c.window) return {};
    const GgufValue* pattern = keys.gguf.find(keys.key(name));
    const bool has_flags = pattern && pattern->type == GgufType::array;
    std::vector<uint32_t> flags;
    uint32_t period = f.window_period;
    if (has_flags)
        KS_TRY(keys.per_layer(name, 0, 1, flags));
    else
        KS_TRY(keys.integer(name, 0, kMaxContext, &period));
    bool any = false;
    for (uint32_t il = 0; il < c.n_layers(); il++) {
        c.layers[il].window = has_flags ? flags[il] : period == 0 || il % period < period - 1;
        any |= c.layers[il].window;
    }
    if (!any) c.window = 0;
    return {};
}

static Status read_xielu(const Gguf& gguf, Config& c)
{
    const char* const names[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    for (int i = 0; i < 4; i++) {
        std::vector<double> values;
        bool found;
        KS_TRY(gguf.get_f64s(names[i], kMaxLayers, &values, &found));
        if (!found)
            return fail(Code::invalid, "%s has no key '%s'", gguf.label().c_str(), names[i]);
        if (values.size() == 1) values.resize(c.n_layers(), values[0]);
        if (values.size() < c.n_layers())
            return fail(Code::invalid, "%s has %zu values, %u were expected",
                        gguf.location_of(*gguf.find(names[i])).c_str(), values.size(),
                        c.n_layers());
        for (uint32_t il = 0; il < c.n_layers(); il++) {
            KS_TRY(Keys({gguf, c}).ranged(names[i], values[il], -1e3, 1e3));
            const double softplus = values[il] > 20 ? values[il] : std::log1p(std::exp(values[il]));
            c.layers[il].xielu[i] = float(i < 2 ? softplus : values[il]);
        }
    }
    for (LayerConfig& layer : c.layers) layer.xielu[1] += layer.xielu[2]; // alpha_n holds beta
    return {};
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

// Whether some layer has a key bias, alone or as a part of a fused one, and none norms its keys.
static bool has_key_bias(const Gguf& gguf, uint32_t n_layers)
{
    bool found = false;
    for (uint32_t il = 0; il < n_layers; il++) {
        const std::string block = "blk." + std::to_string(il);
        if (gguf.find_tensor(block + ".attn_k_norm.weight")) return false;
        for (const char* name : {".attn_k.bias", ".attn_qkv.bias"})
            found |= gguf.find_tensor(block + name) != nullptr;
    }
    return found;
}

Result<Config> read_config(const Gguf& gguf)
{
    Config config;
    Keys keys{gguf, config};
    KS_TRY(read_family(gguf, config));
    KS_TRY(read_layers(keys, config));
    KS_TRY(read_shape(keys, config));
    KS_TRY(read_vocab_size(gguf, config));
    KS_TRY(read_experts(keys, config));
    KS_TRY(read_activation(keys, config));
    KS_TRY(read_windows(keys, config));
    KS_TRY(config.family->latent ? read_latent(keys, config) : read_heads(keys, config));
    KS_TRY(read_shared_kv(keys, config));
    KS_TRY(read_layer_inputs(keys, config));
    KS_TRY(read_scales(keys, config));
    KS_TRY(read_rope(keys, config));
    if (config.activation == act_xielu) KS_TRY(read_xielu(gguf, config));
    config.key_bias = has_key_bias(gguf, config.n_layers());
    return config;
}

} // namespace ks
