#include "runtime/model/tensor_names.h"

#include <cinttypes>

namespace ks
{

enum class Kind { matrix, optional_matrix, vector, optional_vector };

struct TensorSpec {
    const char* name; // %u: layer
    Kind kind;
    uint32_t cols;
    struct Section {
        Role role;
        uint32_t rows;
    };
    std::vector<Section> sections; // consecutive rows of the tensor
};

static std::vector<TensorSpec> model_specs(const Gguf& gguf, const Config& c)
{
    std::vector<TensorSpec> specs = {
        {"token_embd.weight", Kind::matrix, c.dim, {{Role::token_embd, c.n_vocab}}},
        {"output.weight", Kind::optional_matrix, c.dim, {{Role::output, c.n_vocab}}},
        {"output_norm.weight", Kind::vector, c.dim, {{Role::output_norm, 1}}},
        {"rope_freqs.weight", Kind::optional_vector, c.n_rot / 2, {{Role::rope_freqs, 1}}},
    };
    // Factors come in pairs. rope_freqs takes precedence over both.
    bool factors = gguf.find_tensor("rope_factors_long.weight") ||
                   gguf.find_tensor("rope_factors_short.weight");
    if (factors && !gguf.find_tensor("rope_freqs.weight")) {
        specs.push_back({"rope_factors_long.weight",
                         Kind::vector,
                         c.n_rot / 2,
                         {{Role::rope_factors_long, 1}}});
        specs.push_back({"rope_factors_short.weight",
                         Kind::vector,
                         c.n_rot / 2,
                         {{Role::rope_factors_short, 1}}});
    }
    return specs;
}

static void add_attention(const Config& c, std::vector<TensorSpec>& specs)
{
    const Family& f = *c.family;
    const uint32_t q_rows = c.n_heads * c.head_dim, kv_rows = c.n_kv_heads * c.head_dim;
    auto add = [&](const char* name, Kind kind, uint32_t cols,
                   std::vector<TensorSpec::Section> sections) {
        specs.push_back({name, kind, cols, std::move(sections)});
    };
    add("blk.%u.attn_norm.weight", Kind::vector, c.dim, {{Role::attn_norm, 1}});
    if (f.fused_qkv) {
        add("blk.%u.attn_qkv.weight", Kind::matrix, c.dim,
            {{Role::attn_q, q_rows}, {Role::attn_k, kv_rows}, {Role::attn_v, kv_rows}});
    } else {
        add("blk.%u.attn_q.weight", Kind::matrix, c.dim, {{Role::attn_q, q_rows}});
        add("blk.%u.attn_k.weight", Kind::matrix, c.dim, {{Role::attn_k, kv_rows}});
        add("blk.%u.attn_v.weight", Kind::matrix, c.dim, {{Role::attn_v, kv_rows}});
    }
    if (f.qkv_bias) {
        add("blk.%u.attn_q.bias", Kind::optional_vector, q_rows, {{Role::attn_q_bias, 1}});
        add("blk.%u.attn_k.bias", Kind::optional_vector, kv_rows, {{Role::attn_k_bias, 1}});
        add("blk.%u.attn_v.bias", Kind::optional_vector, kv_rows, {{Role::attn_v_bias, 1}});
    }
    if (f.qk_norm) {
        add("blk.%u.attn_q_norm.weight", Kind::vector, c.head_dim, {{Role::attn_q_norm, 1}});
        add("blk.%u.attn_k_norm.weight", Kind::vector, c.head_dim, {{Role::attn_k_norm, 1}});
    }
    add("blk.%u.attn_output.weight", Kind::matrix, q_rows, {{Role::attn_output, c.dim}});
    if (f.post_norms)
        add("blk.%u.post_attention_norm.weight", Kind::vector, c.dim, {{Role::attn_post_norm, 1}});
}

static void add_ffn(const Config& c, std::vector<TensorSpec>& specs)
{
    auto add = [&](const char* name, Kind kind, uint32_t cols,
                   std::vector<TensorSpec::Section> sections) {
        specs.push_back({name, kind, cols, std::move(sections)});
    };
    add("blk.%u.ffn_norm.weight", Kind::vector, c.dim, {{Role::ffn_norm, 1}});
    if (c.family->fused_qkv) {
        add("blk.%u.ffn_up.weight", Kind::matrix, c.dim,
            {{Role::ffn_gate, c.ffn_dim}, {Role::ffn_up, c.ffn_dim}});
    } else {
        add("blk.%u.ffn_gate.weight", Kind::matrix, c.dim, {{Role::ffn_gate, c.ffn_dim}});
        add("blk.%u.ffn_up.weight", Kind::matrix, c.dim, {{Role::ffn_up, c.ffn_dim}});
    }
    add("blk.%u.ffn_down.weight", Kind::matrix, c.ffn_dim, {{Role::ffn_down, c.dim}});
    if (c.family->post_norms)
        add("blk.%u.post_ffw_norm.weight", Kind::vector, c.dim, {{Role::ffn_post_norm, 1}});
}

static std::vector<TensorSpec> layer_specs(const Config& c)
{
    std::vector<TensorSpec> specs;
    add_attention(c, specs);
    add_ffn(c, specs);
    return specs;
}

// The names of the weight formats, for messages.
static std::string weight_types()
{
    std::string names;
    for (int i = 0; i < int(Format::n_weights); i++) {
        if (i > 0) names += i + 1 < int(Format::n_weights) ? ", " : " or ";
        names += find_ggml_type(format_info(Format(i)).ggml_type)->name;
    }
    return names;
}

static Status check(const Gguf& gguf, const TensorSpec& spec, const GgufTensor& t, uint64_t rows)
{
    if (t.dims[0] != spec.cols || t.dims[1] != rows || t.dims[2] != 1 || t.dims[3] != 1) {
        return fail(Code::invalid, "%s has %s values, %u x %" PRIu64 " was expected",
                    gguf.location_of(t).c_str(), t.shape().c_str(), spec.cols, rows);
    }
    bool vector = spec.kind == Kind::vector || spec.kind == Kind::optional_vector;
    bool plain = t.format == Format::f32 || t.format == Format::f16 || t.format == Format::bf16;
    if (t.known && (plain || !vector)) return {};
    return fail(Code::unsupported, "%s has type %s (%u), %s was expected",
                gguf.location_of(t).c_str(), find_ggml_type(t.ggml_type)->name, t.ggml_type,
                vector ? "F32, F16 or BF16" : weight_types().c_str());
}

static Status bind(const Gguf& gguf, const TensorSpec& spec, uint32_t layer,
                   std::vector<TensorPart>& parts, std::vector<bool>& used)
{
    char name[64];
    snprintf(name, sizeof name, spec.name, layer);
    uint32_t rows = 0;
    for (const TensorSpec::Section& s : spec.sections) rows += s.rows;
    const GgufTensor* t = gguf.find_tensor(name);
    if (!t && (spec.kind == Kind::optional_matrix || spec.kind == Kind::optional_vector)) return {};
    if (!t)
        return fail(Code::invalid, "%s has no tensor '%s' of %u x %u values", gguf.label().c_str(),
                    name, spec.cols, rows);
    KS_TRY(check(gguf, spec, *t, rows));
    used[t - gguf.tensors().data()] = true;
    uint32_t first_row = 0;
    for (const TensorSpec::Section& s : spec.sections) {
        parts.push_back({s.role, layer, t, first_row, s.rows, spec.cols});
        first_row += s.rows;
    }
    return {};
}

// Refuses tensors that the forward pass would ignore: ignoring them would change the output.
static Status check_unused(const Gguf& gguf, const Config& config, const std::vector<bool>& used)
{
    for (size_t i = 0; i < used.size(); i++) {
        const GgufTensor& t = gguf.tensors()[i];
        bool ours = false;
        for (std::string_view start : {"blk.", "token_embd", "output"})
            ours |= t.name.substr(0, start.size()) == start;
        if (used[i] || !ours) continue;
        return fail(Code::unsupported,
                    "%s is not part of a %s model of %u layers as this build knows it",
                    gguf.location_of(t).c_str(), config.family->name, config.n_layers);
    }
    return {};
}

Result<std::vector<TensorPart>> bind_tensors(const Gguf& gguf, const Config& config)
{
    std::vector<TensorPart> parts;
    std::vector<bool> used(gguf.tensors().size());
    for (const TensorSpec& spec : model_specs(gguf, config))
        KS_TRY(bind(gguf, spec, 0, parts, used));
    const std::vector<TensorSpec> specs = layer_specs(config);
    for (uint32_t il = 0; il < config.n_layers; il++)
        for (const TensorSpec& spec : specs) KS_TRY(bind(gguf, spec, il, parts, used));
    KS_TRY(check_unused(gguf, config, used));
    return parts;
}

} // namespace ks
