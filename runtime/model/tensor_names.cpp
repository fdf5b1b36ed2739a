#include "runtime/model/tensor_names.h"

#include <cinttypes>

namespace ks
{

enum class Kind { matrix, vector, optional_matrix, optional_vector };

struct Section {
    Role role;
    uint32_t rows;
};

struct TensorSpec {
    const char* name; // %u: the layer
    Kind kind;
    uint32_t cols;
    std::vector<Section> sections; // one after the other in the tensor's rows
};

static std::vector<TensorSpec> model_specs(const Gguf& gguf, const Config& c)
{
    std::vector<TensorSpec> specs = {
        {"token_embd.weight", Kind::matrix, c.dim, {{Role::token_embd, c.n_vocab}}},
        {"output.weight", Kind::optional_matrix, c.dim, {{Role::output, c.n_vocab}}},
        {"output_norm.weight", Kind::vector, c.dim, {{Role::output_norm, 1}}},
        {"rope_freqs.weight", Kind::optional_vector, c.n_rot / 2, {{Role::rope_freqs, 1}}},
    };
    // Factors come in pairs, and one table of divisors is enough: rope_freqs wins.
    bool factors = gguf.find_tensor("rope_factors_long.weight") || gguf.find_tensor("rope_factors_short.weight");
    if (factors && !gguf.find_tensor("rope_freqs.weight")) {
        specs.push_back({"rope_factors_long.weight", Kind::vector, c.n_rot / 2, {{Role::rope_factors_long, 1}}});
        specs.push_back({"rope_factors_short.weight", Kind::vector, c.n_rot / 2, {{Role::rope_factors_short, 1}}});
    }
    return specs;
}

static std::vector<TensorSpec> layer_specs(const Config& c)
{
    const Family& f = *c.family;
    const uint32_t q_rows = c.n_heads * c.head_dim, kv_rows = c.n_kv_heads * c.head_dim;
    std::vector<TensorSpec> specs;
    auto matrix = [&](const char* name, uint32_t cols, std::vector<Section> sections) {
        specs.push_back({name, Kind::matrix, cols, sections});
    };
    auto vector = [&](const char* name, Role role, uint32_t cols, Kind kind = Kind::vector) {
        specs.push_back({name, kind, cols, {{role, 1}}});
    };

    vector("blk.%u.attn_norm.weight", Role::attn_norm, c.dim);
    if (f.fused_qkv) {
        matrix("blk.%u.attn_qkv.weight", c.dim, {{Role::attn_q, q_rows}, {Role::attn_k, kv_rows}, {Role::attn_v, kv_rows}});
    } else {
        matrix("blk.%u.attn_q.weight", c.dim, {{Role::attn_q, q_rows}});
        matrix("blk.%u.attn_k.weight", c.dim, {{Role::attn_k, kv_rows}});
        matrix("blk.%u.attn_v.weight", c.dim, {{Role::attn_v, kv_rows}});
    }
    if (f.qkv_bias) {
        vector("blk.%u.attn_q.bias", Role::attn_q_bias, q_rows, Kind::optional_vector);
        vector("blk.%u.attn_k.bias", Role::attn_k_bias, kv_rows, Kind::optional_vector);
        vector("blk.%u.attn_v.bias", Role::attn_v_bias, kv_rows, Kind::optional_vector);
    }
    if (f.qk_norm) {
        vector("blk.%u.attn_q_norm.weight", Role::attn_q_norm, c.head_dim);
        vector("blk.%u.attn_k_norm.weight", Role::attn_k_norm, c.head_dim);
    }
    matrix("blk.%u.attn_output.weight", q_rows, {{Role::attn_output, c.dim}});
    if (f.post_norms) vector("blk.%u.post_attention_norm.weight", Role::attn_post_norm, c.dim);
    vector("blk.%u.ffn_norm.weight", Role::ffn_norm, c.dim);
    if (f.fused_qkv) {
        matrix("blk.%u.ffn_up.weight", c.dim, {{Role::ffn_gate, c.ffn_dim}, {Role::ffn_up, c.ffn_dim}});
    } else {
        matrix("blk.%u.ffn_gate.weight", c.dim, {{Role::ffn_gate, c.ffn_dim}});
        matrix("blk.%u.ffn_up.weight", c.dim, {{Role::ffn_up, c.ffn_dim}});
    }
    matrix("blk.%u.ffn_down.weight", c.ffn_dim, {{Role::ffn_down, c.dim}});
    if (f.post_norms) vector("blk.%u.post_ffw_norm.weight", Role::ffn_post_norm, c.dim);
    return specs;
}

class Binder
{
public:
    Binder(const Gguf& gguf, const Config& config) : m_gguf(gguf), m_config(config), m_used(gguf.tensors().size()) {}
    Status bind(const TensorSpec& spec, uint32_t layer, std::vector<TensorPart>* parts);
    Status check_unused() const;

private:
    Status check(const TensorSpec& spec, const GgufTensor& t, uint64_t rows) const;

    const Gguf& m_gguf;
    const Config& m_config;
    std::vector<bool> m_used; // by index of the tensor
};

Status Binder::bind(const TensorSpec& spec, uint32_t layer, std::vector<TensorPart>* parts)
{
    char name[64];
    snprintf(name, sizeof name, spec.name, layer);
    uint64_t rows = 0;
    for (const Section& s : spec.sections) rows += s.rows;
    const GgufTensor* t = m_gguf.find_tensor(name);
    if (!t) {
        if (spec.kind == Kind::optional_matrix || spec.kind == Kind::optional_vector) return {};
        return fail(Code::invalid, "%s has no tensor '%s', %s needs it with %u x %" PRIu64 " values", m_gguf.label().c_str(), name,
                    m_config.family->name, spec.cols, rows);
    }
    KS_TRY(check(spec, *t, rows));
    m_used[t - m_gguf.tensors().data()] = true;
    uint32_t first_row = 0;
    for (const Section& s : spec.sections) {
        parts->push_back({s.role, layer, t, first_row, s.rows, spec.cols});
        first_row += s.rows;
    }
    return {};
}

Status Binder::check(const TensorSpec& spec, const GgufTensor& t, uint64_t rows) const
{
    const std::string file = m_gguf.label(t.file), name = printable(t.name);
    if (t.dims[0] != spec.cols || t.dims[1] != rows || t.dims[2] != 1 || t.dims[3] != 1) {
        std::string found;
        for (uint32_t i = 0; i < t.n_dims; i++) found += (i ? " x " : "") + std::to_string(t.dims[i]);
        return fail(Code::invalid, "%s: tensor '%s' at offset %" PRIu64 " has %s values, %u x %" PRIu64 " was expected", file.c_str(),
                    name.c_str(), t.info_offset, found.c_str(), spec.cols, rows);
    }
    bool vector = spec.kind == Kind::vector || spec.kind == Kind::optional_vector;
    bool plain = t.known && (t.format == Format::f32 || t.format == Format::f16 || t.format == Format::bf16);
    if (vector ? plain : t.known) return {};
    return fail(Code::unsupported, "%s: tensor '%s' at offset %" PRIu64 " has type %s (%u), %s was expected", file.c_str(), name.c_str(),
                t.info_offset, find_ggml_type(t.ggml_type)->name, t.ggml_type,
                vector ? "F32, F16 or BF16" : "one of F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K to Q6_K IQ4_NL IQ4_XS");
}

// A tensor that the forward leaves out changes what the model says, so it must not be left out silently.
Status Binder::check_unused() const
{
    for (size_t i = 0; i < m_used.size(); i++) {
        const GgufTensor& t = m_gguf.tensors()[i];
        bool ours = false;
        for (std::string_view start : {"blk.", "token_embd", "output"}) ours |= t.name.substr(0, start.size()) == start;
        if (m_used[i] || !ours) continue;
        return fail(Code::unsupported,
                    "%s: tensor '%s' at offset %" PRIu64 " is not one of a %s model with %u layers as this build knows it",
                    m_gguf.label(t.file).c_str(), printable(t.name).c_str(), t.info_offset, m_config.family->name, m_config.n_layers);
    }
    return {};
}

Result<std::vector<TensorPart>> bind_tensors(const Gguf& gguf, const Config& config)
{
    std::vector<TensorPart> parts;
    Binder binder(gguf, config);
    for (const TensorSpec& spec : model_specs(gguf, config)) KS_TRY(binder.bind(spec, 0, &parts));
    const std::vector<TensorSpec> specs = layer_specs(config);
    for (uint32_t il = 0; il < config.n_layers; il++)
        for (const TensorSpec& spec : specs) KS_TRY(binder.bind(spec, il, &parts));
    KS_TRY(binder.check_unused());
    return parts;
}

} // namespace ks
