// The tensors of a layer.
#include "runtime/model/tensor_binder.h"

namespace ks
{

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
    const bool has_gates = m_c.family->attention_gates == AttentionGates::in_queries;
    const uint32_t d = layer.head_dim;
    if (has_gates || !find("attn_qkv", ".weight")) {
        KS_TRY(has_gates ? by_head("attn_q", m_c.dim, layer.n_heads,
                                   {{Role::attn_q, d}, {Role::attn_gate, d}})
                         : matrix("attn_q", m_c.dim, q));
        KS_TRY(matrix("attn_k", m_c.dim, k));
        return matrix("attn_v", m_c.dim, v, !m_c.family->value_norm);
    }
    KS_TRY(matrix("attn_qkv", m_c.dim, {q[0], k[0], v[0]}));
    if (find("attn_qkv", ".bias")) return {};
    KS_TRY(bias("attn_q", q));
    KS_TRY(bias("attn_k", k));
    return bias("attn_v", v);
}

// A matrix whose heads have the rows of all sections, one after the other.
Status TensorBinder::by_head(const char* stem, uint32_t cols, uint32_t n_heads,
                             const std::vector<Section>& of_head)
{
    if (const GgufTensor* b = find(stem, ".bias"))
        return fail(Code::unsupported,
                    "%s is a bias of rows that alternate, which is not supported",
                    m_gguf.location_of(*b).c_str());
    std::vector<Section> sections = of_head;
    uint32_t stride = 0, first = 0;
    for (Section& s : sections) {
        stride += s.rows;
        s.rows *= n_heads;
    }
    const size_t begin = m_parts.size();
    KS_TRY(matrix(stem, cols, sections));
    for (size_t i = begin; i < m_parts.size(); i++) {
        TensorPart& part = m_parts[i];
        if (!part.is_matrix()) continue;
        part.run = part.rows / n_heads;
        part.stride = stride;
        part.first = first;
        first += part.run;
    }
    return {};
}

Status TensorBinder::latent_qkv(const LayerConfig& layer)
{
    const LatentConfig& l = m_c.latent;
    const uint32_t n = layer.n_heads, n_rot = m_c.rope.n_rot;
    const std::vector<Section> query = {{Role::attn_q, l.key_dim}, {Role::attn_q_rope, n_rot}};
    if (l.q_dim) {
        KS_TRY(matrix("attn_q_a", m_c.dim, {{Role::attn_q_a, l.q_dim}}));
        KS_TRY(norm("attn_q_a_norm", Role::attn_q_a_norm, l.q_dim));
        KS_TRY(by_head("attn_q_b", l.q_dim, n, query));
    } else {
        KS_TRY(by_head("attn_q", m_c.dim, n, query));
    }
    KS_TRY(
        matrix("attn_kv_a_mqa", m_c.dim, {{Role::attn_kv_a, l.dim}, {Role::attn_k_rope, n_rot}}));
    KS_TRY(norm("attn_kv_a_norm", Role::attn_kv_a_norm, l.dim));
    KS_TRY(matrices("attn_k_b", n, l.key_dim, l.dim, {Role::attn_k_b}));
    return matrices("attn_v_b", n, l.dim, l.value_dim, {Role::attn_v_b});
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
    const uint32_t cols = !layer.attends() ? m_c.dim : f.latent ? m_c.out_cols() : layer.q_cols();
    if (f.norms != Norms::after) KS_TRY(norm("attn_norm", Role::attn_norm, m_c.dim));
    if (layer.attends()) KS_TRY(f.latent ? latent_qkv(layer) : qkv(layer));
    if (layer.attends() && f.qk_norm != QkNorm::none) KS_TRY(qk_norms(layer));
    if (f.sinks)
        KS_TRY(vector("attn_sinks", ".weight", Role::attn_sinks, Piece::weight, layer.n_heads));
    if (f.attention_gates == AttentionGates::by_head)
        KS_TRY(matrix("attn_gate", m_c.dim, {{Role::attn_gate, layer.n_heads}}));
    if (f.attention_gates == AttentionGates::by_value)
        KS_TRY(matrix("attn_gate", m_c.dim, {{Role::attn_gate, layer.q_cols()}}));
    if (f.sub_norms) KS_TRY(norm("attn_sub_norm", Role::attn_sub_norm, cols));
    KS_TRY(matrix("attn_output", cols, {{Role::attn_output, m_c.dim}}));
    return f.norms == Norms::after || f.norms == Norms::both
               ? norm("post_attention_norm", Role::attn_post_norm, m_c.dim)
               : Status();
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
    if (!layer.experts || f.experts_beside_ffn) KS_TRY(dense_ffn(n));
    if (layer.experts) KS_TRY(experts());
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

// A tensor with n matrices, of all experts or heads. With several roles, each has their rows one
// after the other.
Status TensorBinder::matrices(const char* stem, uint32_t n, uint32_t cols, uint32_t rows,
                              const std::vector<Role>& roles)
{
    const uint32_t stride = uint32_t(roles.size()) * rows;
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
    const uint32_t dim = m_c.dim, cols = m_c.expert_cols();
    if (find("ffn_gate.0", ".weight"))
        return fail(Code::unsupported,
                    "%s has a tensor for every expert, as files before April 2024 have; newer ones "
                    "have one tensor for all experts",
                    m_gguf.label().c_str());
    if (m_c.family->experts_beside_ffn) {
        KS_TRY(norm("pre_ffw_norm_2", Role::experts_norm, dim));
        KS_TRY(norm("post_ffw_norm_1", Role::ffn_dense_post_norm, dim));
        KS_TRY(norm("post_ffw_norm_2", Role::experts_post_norm, dim));
        KS_TRY(vector("ffn_gate_inp", ".scale", Role::router_norm, Piece::weight, dim));
    }
    KS_TRY(matrix("ffn_gate_inp", dim, {{Role::ffn_router, e.n}}));
    KS_TRY(vector("exp_probs_b", ".bias", Role::expert_bias, Piece::weight, e.n, false, false));
    if (e.latent_dim) KS_TRY(matrix("ffn_latent_down", dim, {{Role::ffn_latent_down, cols}}));
    if (m_c.family->gated && find("ffn_gate_up_exps", ".weight")) {
        KS_TRY(matrices("ffn_gate_up_exps", e.n, cols, e.dim,
                        {Role::ffn_gate_exps, Role::ffn_up_exps}));
    } else {
        if (m_c.family->gated)
            KS_TRY(matrices("ffn_gate_exps", e.n, cols, e.dim, {Role::ffn_gate_exps}));
        KS_TRY(matrices("ffn_up_exps", e.n, cols, e.dim, {Role::ffn_up_exps}));
    }
    KS_TRY(matrices("ffn_down_exps", e.n, e.dim, cols, {Role::ffn_down_exps}));
    if (e.latent_dim) KS_TRY(matrix("ffn_latent_up", cols, {{Role::ffn_latent_up, dim}}));
    if (!e.shared_dim) return {};
    KS_TRY(shared_expert());
    return m_c.family->gated_shared
               ? matrix("ffn_gate_inp_shexp", dim, {{Role::ffn_shared_gate, 1}})
               : Status();
}

// Without a gate's tensor, ffn_up_shexp may hold the gate's rows, then its own.
Status TensorBinder::shared_expert()
{
    const uint32_t dim = m_c.dim, n = m_c.experts.shared_dim;
    const Section gate{Role::ffn_gate_shared, n}, up{Role::ffn_up_shared, n};
    const GgufTensor* t = find("ffn_up_shexp", ".weight");
    const bool gated = m_c.family->gated,
               fused = gated && t && t->dims[1] == 2 * n && !find("ffn_gate_shexp", ".weight");
    if (gated && !fused) KS_TRY(matrix("ffn_gate_shexp", dim, {gate}));
    KS_TRY(fused ? matrix("ffn_up_shexp", dim, {gate, up}) : matrix("ffn_up_shexp", dim, {up}));
    return matrix("ffn_down_shexp", n, {{Role::ffn_down_shared, dim}});
}

} // namespace ks
