#include "runtime/model/tensor_names.h"

#include <algorithm>
#include <cinttypes>
#include <cstdlib>

namespace ks
{

struct Section {
    Role role;
    uint32_t rows; // of a matrix; of a norm: heads with weights of their own
};

// Binds the tensors of a file to their roles, each with its name without .weight.
class TensorBinder
{
public:
    TensorBinder(const Gguf& gguf, const Config& config)
        : m_gguf(gguf), m_c(config), m_used(gguf.tensors().size())
    {
    }

    Status bind_model();
    Status bind_layer(uint32_t il);
    Status check_unused() const;
    std::vector<TensorPart> take_parts() { return std::move(m_parts); }

private:
    std::string name(const char* stem) const
    {
        return m_layer_name.empty() ? stem : m_layer_name + stem;
    }
    const GgufTensor* find(const char* stem, const char* suffix) const
    {
        return m_gguf.find_tensor(name(stem) + suffix);
    }
    Status matrix(const char* stem, uint32_t cols, std::vector<Section> sections,
                  bool required = true);
    Status norm(const char* stem, Role role, uint32_t cols, uint32_t rows = 1,
                bool required = true);
    Status bias(const char* stem, const std::vector<Section>& sections);
    Status divisors(const char* stem, Role role);
    Status attention(const LayerConfig& layer);
    Status qkv(const LayerConfig& layer);
    Status queries_and_gates(const LayerConfig& layer);
    Status vector(const char* stem, const char* suffix, Role role, Piece piece, uint32_t n,
                  bool column = false, bool required = true);
    Status convolution(const char* stem);
    Status recurrent(const LayerConfig& layer);
    Status short_conv();
    Status delta();
    Status mamba2();
    Status qk_norms(const LayerConfig& layer);
    Status ffn(const LayerConfig& layer);
    Status dense_ffn(uint32_t n);
    Status experts();
    Status expert_matrices(const char* stem, uint32_t cols, uint32_t rows,
                           const std::vector<Role>& roles);
    Status layer_embeddings();
    Status layer_end();
    Status missing(const std::string& tensor, uint32_t cols, uint32_t rows) const;
    Status check(const GgufTensor& t, uint32_t cols, uint32_t rows, bool vector,
                 uint32_t n = 1) const;
    void use(const GgufTensor& t, Role role, uint32_t first, uint32_t rows, uint32_t cols,
             Piece piece);
    bool ignores(const GgufTensor& t) const;

    const Gguf& m_gguf;
    const Config& m_c;
    std::vector<bool> m_used;
    std::vector<TensorPart> m_parts;
    std::string m_layer_name; // "blk.3."
    uint32_t m_il = 0;
};

Status TensorBinder::missing(const std::string& tensor, uint32_t cols, uint32_t rows) const
{
    return fail(Code::invalid, "%s has no tensor '%s' of %u x %u values", m_gguf.label().c_str(),
                tensor.c_str(), cols, rows);
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

// n: matrices in the tensor.
Status TensorBinder::check(const GgufTensor& t, uint32_t cols, uint32_t rows, bool vector,
                           uint32_t n) const
{
    if (t.dims[0] != cols || t.dims[1] != rows || t.dims[2] != n || t.dims[3] != 1) {
        const std::string last = n > 1 ? " x " + std::to_string(n) : "";
        return fail(Code::invalid, "%s has %s values, %u x %u%s was expected",
                    m_gguf.location_of(t).c_str(), t.shape().c_str(), cols, rows, last.c_str());
    }
    bool plain = t.format == Format::f32 || t.format == Format::f16 || t.format == Format::bf16;
    if (t.known && (plain || !vector)) return {};
    return fail(Code::unsupported, "%s has type %s (%u), %s was expected",
                m_gguf.location_of(t).c_str(), find_ggml_type(t.ggml_type)->name, t.ggml_type,
                vector ? "F32, F16 or BF16" : weight_types().c_str());
}

void TensorBinder::use(const GgufTensor& t, Role role, uint32_t first, uint32_t rows, uint32_t cols,
                       Piece piece)
{
    m_used[&t - m_gguf.tensors().data()] = true;
    m_parts.push_back({role, m_il, &t, first, rows, cols, piece});
}

// The rows of several matrices may be in one tensor, one section after the other.
Status TensorBinder::matrix(const char* stem, uint32_t cols, std::vector<Section> sections,
                            bool required)
{
    uint32_t rows = 0;
    for (const Section& s : sections) rows += s.rows;
    const GgufTensor* t = find(stem, ".weight");
    if (!t) return required ? missing(name(stem) + ".weight", cols, rows) : Status();
    KS_TRY(check(*t, cols, rows, false));
    const GgufTensor* scale = find(stem, ".scale");
    if (scale) KS_TRY(check(*scale, 1, 1, true));
    uint32_t first = 0;
    for (const Section& s : sections) {
        use(*t, s.role, first, s.rows, cols, Piece::weight);
        if (scale) use(*scale, s.role, 0, 1, 1, Piece::scale);
        first += s.rows;
    }
    return bias(stem, sections);
}

Status TensorBinder::bias(const char* stem, const std::vector<Section>& sections)
{
    const GgufTensor* t = find(stem, ".bias");
    if (!t) return {};
    uint32_t n = 0, first = 0;
    for (const Section& s : sections) n += s.rows;
    KS_TRY(check(*t, n, 1, true));
    for (const Section& s : sections) {
        use(*t, s.role, first, 1, s.rows, Piece::bias);
        first += s.rows;
    }
    return {};
}

Status TensorBinder::norm(const char* stem, Role role, uint32_t cols, uint32_t rows, bool required)
{
    const GgufTensor *t = find(stem, ".weight"), *b = find(stem, ".bias");
    if (!t) t = find(stem, ""); // ffn_norm of falcon-h1
    if (!t) return required ? missing(name(stem) + ".weight", cols, rows) : Status();
    KS_TRY(check(*t, cols, rows, true));
    use(*t, role, 0, rows, cols, Piece::weight);
    if (!b) return {};
    KS_TRY(check(*b, cols, 1, true));
    use(*b, role, 0, 1, cols, Piece::bias);
    return {};
}

Status TensorBinder::divisors(const char* stem, Role role)
{
    return vector(stem, ".weight", role, Piece::weight, m_c.rope.n_rot / 2);
}

// One matrix has the rows of all layers.
Status TensorBinder::layer_embeddings()
{
    const uint32_t dim = m_c.layer_dim, rows = m_c.n_layers() * dim;
    const GgufTensor *embeddings = m_gguf.find_tensor(kLayerEmbeddings),
                     *proj = m_gguf.find_tensor("per_layer_model_proj.weight");
    if (!embeddings) return missing(kLayerEmbeddings, rows, m_c.n_vocab);
    KS_TRY(check(*embeddings, rows, m_c.n_vocab, false));
    m_used[embeddings - m_gguf.tensors().data()] = true;
    if (!proj) return missing("per_layer_model_proj.weight", m_c.dim, rows);
    KS_TRY(check(*proj, m_c.dim, rows, false));
    for (m_il = 0; m_il < m_c.n_layers(); m_il++)
        use(*proj, Role::layer_proj, m_il * dim, dim, m_c.dim, Piece::weight);
    m_il = 0;
    return norm("per_layer_proj_norm", Role::layer_proj_norm, dim);
}

Status TensorBinder::bind_model()
{
    const GgufTensor* embedding = find("token_embd", ".weight"); // read_config() has found it
    KS_TRY(check(*embedding, m_c.dim, m_c.n_vocab, false));
    use(*embedding, Role::token_embd, 0, m_c.n_vocab, m_c.dim, Piece::weight);
    KS_TRY(matrix("output", m_c.dim, {{Role::output, m_c.n_vocab}}, false));
    KS_TRY(norm(m_c.family->output_norm, Role::output_norm, m_c.dim));
    if (m_c.layer_dim) KS_TRY(layer_embeddings());
    // Factors come in pairs. rope_freqs takes precedence over both.
    if (find("rope_freqs", ".weight")) return divisors("rope_freqs", Role::rope_freqs);
    if (!find("rope_factors_long", ".weight") && !find("rope_factors_short", ".weight")) return {};
    KS_TRY(divisors("rope_factors_long", Role::rope_factors_long));
    return divisors("rope_factors_short", Role::rope_factors_short);
}

Status TensorBinder::bind_layer(uint32_t il)
{
    const LayerConfig& layer = m_c.layers[il];
    m_il = il;
    m_layer_name = "blk." + std::to_string(il) + ".";
    if (layer.n_heads) KS_TRY(attention(layer));
    if (layer.recurrent) KS_TRY(recurrent(layer));
    if (layer.ffn_dim) KS_TRY(ffn(layer));
    return m_c.family->layer_inputs ? layer_end() : Status();
}

// What follows the FFN.
Status TensorBinder::layer_end()
{
    const GgufTensor* scale = find("layer_output_scale", ".weight");
    if (m_c.layer_dim) {
        KS_TRY(matrix("inp_gate", m_c.dim, {{Role::layer_gate, m_c.layer_dim}}));
        KS_TRY(matrix("proj", m_c.layer_dim, {{Role::layer_output, m_c.dim}}));
        KS_TRY(norm("post_norm", Role::layer_post_norm, m_c.dim));
    }
    if (!scale) return {};
    KS_TRY(check(*scale, 1, 1, true));
    use(*scale, Role::layer_scale, 0, 1, 1, Piece::weight);
    return {};
}

Status TensorBinder::qkv(const LayerConfig& layer)
{
    const std::vector<Section> q = {{Role::attn_q, layer.q_cols()}},
                               k = {{Role::attn_k, layer.kv_cols()}},
                               v = {{Role::attn_v, layer.kv_cols()}};
    if (!layer.owns_kv) return matrix("attn_q", m_c.dim, q);
    if (m_c.family->gated_values || !find("attn_qkv", ".weight")) {
        KS_TRY(m_c.family->gated_values ? queries_and_gates(layer) : matrix("attn_q", m_c.dim, q));
        KS_TRY(matrix("attn_k", m_c.dim, k));
        return matrix("attn_v", m_c.dim, v, !m_c.family->value_norm);
    }
    KS_TRY(matrix("attn_qkv", m_c.dim, {q[0], k[0], v[0]}));
    if (find("attn_qkv", ".bias")) return {};
    KS_TRY(bias("attn_q", q));
    KS_TRY(bias("attn_k", k));
    return bias("attn_v", v);
}

// A head's rows of attn_q are its query, then its gate.
Status TensorBinder::queries_and_gates(const LayerConfig& layer)
{
    const uint32_t rows = layer.n_heads * m_c.head_dim;
    const size_t first = m_parts.size();
    KS_TRY(matrix("attn_q", m_c.dim, {{Role::attn_q, rows}, {Role::attn_gate, rows}}));
    for (size_t i = first; i < m_parts.size(); i++) {
        TensorPart& part = m_parts[i];
        if (!part.is_matrix()) continue;
        part.first = part.role == Role::attn_gate ? m_c.head_dim : 0;
        part.run = m_c.head_dim;
        part.stride = 2 * m_c.head_dim;
    }
    return {};
}

Status TensorBinder::qk_norms(const LayerConfig& layer)
{
    const bool by_row = m_c.family->qk_norm == QkNorm::row,
               by_head = m_c.family->qk_norm == QkNorm::layer_norms,
               required = !by_head && !m_c.family->optional_qk_norm;
    const uint32_t q = layer.n_heads, k = layer.n_kv_heads, d = layer.head_dim;
    KS_TRY(norm("attn_q_norm", Role::attn_q_norm, by_row ? q * d : d, by_head ? q : 1, required));
    if (!layer.owns_kv) return {};
    return norm("attn_k_norm", Role::attn_k_norm, by_row ? k * d : d, by_head ? k : 1, required);
}

Status TensorBinder::attention(const LayerConfig& layer)
{
    const Family& f = *m_c.family;
    const uint32_t cols = layer.attends() ? layer.q_cols() : m_c.dim;
    if (f.norms != Norms::after) KS_TRY(norm("attn_norm", Role::attn_norm, m_c.dim));
    if (layer.attends()) KS_TRY(qkv(layer));
    if (layer.attends() && f.qk_norm != QkNorm::none) KS_TRY(qk_norms(layer));
    if (f.sinks)
        KS_TRY(vector("attn_sinks", ".weight", Role::attn_sinks, Piece::weight, layer.n_heads));
    const uint32_t n_gates = layer.n_heads * (f.gates_by_value ? m_c.head_dim : 1);
    if (f.gated_heads) KS_TRY(matrix("attn_gate", m_c.dim, {{Role::attn_gate, n_gates}}));
    if (f.sub_norms) KS_TRY(norm("attn_sub_norm", Role::attn_sub_norm, cols));
    KS_TRY(matrix("attn_output", cols, {{Role::attn_output, m_c.dim}}));
    return f.norms == Norms::after || f.norms == Norms::both
               ? norm("post_attention_norm", Role::attn_post_norm, m_c.dim)
               : Status();
}

// n values side by side, or below each other.
Status TensorBinder::vector(const char* stem, const char* suffix, Role role, Piece piece,
                            uint32_t n, bool column, bool required)
{
    const GgufTensor* t = find(stem, suffix);
    const uint32_t cols = column ? 1 : n, rows = column ? n : 1;
    if (!t) return required ? missing(name(stem) + suffix, cols, rows) : Status();
    KS_TRY(check(*t, cols, rows, true));
    use(*t, role, 0, 1, n, piece);
    return {};
}

// Its weights lie column by column in the file, and row by row on the device.
Status TensorBinder::convolution(const char* stem)
{
    const uint32_t cols = m_c.recurrent.conv_cols, kernel = m_c.recurrent.kernel;
    const GgufTensor *t = find(stem, ".weight"), *b = find(stem, ".bias");
    if (!t) return missing(name(stem) + ".weight", kernel, cols);
    KS_TRY(check(*t, kernel, cols, true));
    use(*t, Role::ssm_conv, 0, kernel, cols, Piece::weight);
    return b ? vector(stem, ".bias", Role::ssm_conv, Piece::bias, cols) : Status();
}

Status TensorBinder::short_conv()
{
    const uint32_t n = m_c.dim;
    KS_TRY(matrix("shortconv.in_proj", n,
                  {{Role::ssm_beta, n}, {Role::ssm_gate, n}, {Role::ssm_in, n}}));
    KS_TRY(convolution("shortconv.conv"));
    return matrix("shortconv.out_proj", n, {{Role::ssm_out, n}});
}

Status TensorBinder::delta()
{
    const RecurrentConfig& r = m_c.recurrent;
    KS_TRY(matrix("attn_qkv", m_c.dim, {{Role::ssm_in, r.conv_cols}}));
    KS_TRY(matrix("attn_gate", m_c.dim, {{Role::ssm_gate, r.inner()}}));
    KS_TRY(matrix("ssm_alpha", m_c.dim, {{Role::ssm_dt, r.n_heads}}));
    KS_TRY(matrix("ssm_beta", m_c.dim, {{Role::ssm_beta, r.n_heads}}));
    KS_TRY(convolution("ssm_conv1d"));
    KS_TRY(vector("ssm_dt", ".bias", Role::ssm_dt, Piece::bias, r.n_heads));
    KS_TRY(vector("ssm_a", "", Role::ssm_a, Piece::weight, r.n_heads));
    KS_TRY(norm("ssm_norm", Role::ssm_norm, r.head_dim));
    return matrix("ssm_out", r.inner(), {{Role::ssm_out, m_c.dim}});
}

Status TensorBinder::mamba2()
{
    const RecurrentConfig& r = m_c.recurrent;
    KS_TRY(matrix(
        "ssm_in", m_c.dim,
        {{Role::ssm_gate, r.inner()}, {Role::ssm_in, r.conv_cols}, {Role::ssm_dt, r.n_heads}}));
    KS_TRY(convolution("ssm_conv1d"));
    KS_TRY(vector("ssm_dt", ".bias", Role::ssm_dt, Piece::bias, r.n_heads));
    KS_TRY(vector("ssm_a", "", Role::ssm_a, Piece::weight, r.n_heads, true));
    KS_TRY(vector("ssm_d", "", Role::ssm_d, Piece::weight, r.n_heads, true));
    KS_TRY(norm("ssm_norm", Role::ssm_norm, r.inner() / r.n_groups, r.n_groups,
                m_c.family->recurrent_layers != RecurrentLayers::all));
    return matrix("ssm_out", r.inner(), {{Role::ssm_out, m_c.dim}});
}

Status TensorBinder::recurrent(const LayerConfig& layer)
{
    if (!layer.n_heads) KS_TRY(norm("attn_norm", Role::attn_norm, m_c.dim));
    switch (m_c.family->recurrent) {
    case Recurrent::conv:
        return short_conv();
    case Recurrent::delta:
        return delta();
    default:
        return mamba2();
    }
}

Status TensorBinder::ffn(const LayerConfig& layer)
{
    const Family& f = *m_c.family;
    const uint32_t n = layer.ffn_dim;
    if (f.norms == Norms::before || f.norms == Norms::both)
        KS_TRY(norm(f.one_branch ? "attn_norm" : f.ffn_norm, Role::ffn_norm, m_c.dim, 1,
                    !f.optional_ffn_norm));
    KS_TRY(layer.experts ? experts() : dense_ffn(n));
    return f.norms == Norms::after || f.norms == Norms::both
               ? norm("post_ffw_norm", Role::ffn_post_norm, m_c.dim)
               : Status();
}

Status TensorBinder::dense_ffn(uint32_t n)
{
    const Family& f = *m_c.family;
    if (f.gated && !f.fused_gate_up) KS_TRY(matrix("ffn_gate", m_c.dim, {{Role::ffn_gate, n}}));
    KS_TRY(f.fused_gate_up ? matrix("ffn_up", m_c.dim, {{Role::ffn_gate, n}, {Role::ffn_up, n}})
                           : matrix("ffn_up", m_c.dim, {{Role::ffn_up, n}}));
    if (f.sub_norms) KS_TRY(norm("ffn_sub_norm", Role::ffn_sub_norm, n));
    return matrix("ffn_down", n, {{Role::ffn_down, m_c.dim}});
}

// A tensor with the matrices of all experts. With several roles, each expert has their rows one
// after the other.
Status TensorBinder::expert_matrices(const char* stem, uint32_t cols, uint32_t rows,
                                     const std::vector<Role>& roles)
{
    const uint32_t n = m_c.experts.n, stride = uint32_t(roles.size()) * rows;
    const GgufTensor *t = find(stem, ".weight"), *scales = find(stem, ".scale"),
                     *bias = roles.size() == 1 ? find(stem, ".bias") : nullptr;
    if (!t) return missing(name(stem) + ".weight", cols, stride);
    KS_TRY(check(*t, cols, stride, false, n));
    if (scales) KS_TRY(check(*scales, n, 1, true));
    if (bias) KS_TRY(check(*bias, rows, n, true));
    for (uint32_t i = 0; i < roles.size(); i++) {
        use(*t, roles[i], i * rows, n * rows, cols, Piece::weight);
        m_parts.back().run = rows;
        m_parts.back().stride = stride;
        if (scales) use(*scales, roles[i], 0, 1, n, Piece::scales);
        if (bias) use(*bias, roles[i], 0, n, rows, Piece::bias);
    }
    return {};
}

Status TensorBinder::experts()
{
    const ExpertsConfig& e = m_c.experts;
    const uint32_t dim = m_c.dim;
    if (find("ffn_gate.0", ".weight"))
        return fail(Code::unsupported,
                    "%s has a tensor for every expert, as files before April 2024 have; newer ones "
                    "have one tensor for all experts",
                    m_gguf.label().c_str());
    KS_TRY(matrix("ffn_gate_inp", dim, {{Role::ffn_router, e.n}}));
    KS_TRY(vector("exp_probs_b", ".bias", Role::expert_bias, Piece::weight, e.n, false, false));
    if (find("ffn_gate_up_exps", ".weight")) {
        KS_TRY(expert_matrices("ffn_gate_up_exps", dim, e.dim,
                               {Role::ffn_gate_exps, Role::ffn_up_exps}));
    } else {
        KS_TRY(expert_matrices("ffn_gate_exps", dim, e.dim, {Role::ffn_gate_exps}));
        KS_TRY(expert_matrices("ffn_up_exps", dim, e.dim, {Role::ffn_up_exps}));
    }
    KS_TRY(expert_matrices("ffn_down_exps", e.dim, dim, {Role::ffn_down_exps}));
    if (!e.shared_dim) return {};
    KS_TRY(matrix("ffn_gate_shexp", dim, {{Role::ffn_gate_shared, e.shared_dim}}));
    KS_TRY(matrix("ffn_up_shexp", dim, {{Role::ffn_up_shared, e.shared_dim}}));
    KS_TRY(matrix("ffn_down_shexp", e.shared_dim, {{Role::ffn_down_shared, dim}}));
    return m_c.family->gated_shared
               ? matrix("ffn_gate_inp_shexp", dim, {{Role::ffn_shared_gate, 1}})
               : Status();
}

// Blocks that do not run, keys and values of layers that read those of another, and scales of
// activations that other programs quantize.
bool TensorBinder::ignores(const GgufTensor& t) const
{
    constexpr std::string_view kInputScale = ".input_scale";
    if (t.name.size() > kInputScale.size() &&
        t.name.substr(t.name.size() - kInputScale.size()) == kInputScale)
        return true;
    if (t.name.substr(0, 4) != "blk.") return false;
    const uint64_t block = std::strtoul(std::string(t.name.substr(4, 8)).c_str(), nullptr, 10);
    if (block >= m_c.n_layers()) return block < m_c.n_blocks;
    const std::string_view stem = t.name.substr(std::min(t.name.size(), t.name.find('.', 4)));
    const bool of_kv = stem.substr(0, 7) == ".attn_k" || stem.substr(0, 7) == ".attn_v";
    return !m_c.layers[block].runs() || (of_kv && !m_c.layers[block].owns_kv);
}

// Refuses tensors that the forward pass would ignore: ignoring them would change the output.
Status TensorBinder::check_unused() const
{
    for (size_t i = 0; i < m_used.size(); i++) {
        const GgufTensor& t = m_gguf.tensors()[i];
        bool ours = false;
        for (std::string_view start : {"blk.", "token_embd", "output", "per_layer_"})
            ours |= t.name.substr(0, start.size()) == start;
        if (m_used[i] || !ours || ignores(t)) continue;
        return fail(Code::unsupported,
                    "%s is not part of a %s model of %u layers as this build knows it",
                    m_gguf.location_of(t).c_str(), m_c.family->name, m_c.n_layers());
    }
    return {};
}

Result<std::vector<TensorPart>> bind_tensors(const Gguf& gguf, const Config& config)
{
    TensorBinder binder(gguf, config);
    KS_TRY(binder.bind_model());
    for (uint32_t il = 0; il < config.n_layers(); il++) KS_TRY(binder.bind_layer(il));
    KS_TRY(binder.check_unused());
    return binder.take_parts();
}

} // namespace ks
