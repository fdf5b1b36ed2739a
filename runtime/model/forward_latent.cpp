// Latent attention (MLA of DeepSeek-V2), with the matrices of keys and values absorbed. What all
// heads read of a token is one row: its key after RoPE, then its latent, which is its value, too.
#include "runtime/model/transformer.h"

namespace ks
{

void Transformer::copy_cols(const Tensor& y, uint32_t y_first, const Tensor& x, uint32_t x_first,
                            uint32_t cols)
{
    m_backend->copy_cols({x.rows, cols, y.cols, y_first, x.cols, x_first}, y, x);
}

// y = W x + bias, for each head with a matrix of its own.
void Transformer::multiply_heads(const Layer& layer, const Tensor& y, const ExpertsLinear& w,
                                 const Tensor& x)
{
    const uint32_t n_heads = layer.c.n_heads;
    const ExpertsTarget target{y, w.w, w.scales, w.bias};
    m_backend->matmul_experts({layer.n, n_heads, n_heads, y.cols, x.cols, 1}, &target, 1, x,
                              first_rows(m_a.head_ids, layer.n));
}

// Queries and keys before RoPE. The part that it rotates comes first.
void Transformer::project_latent(const Layer& layer, const Tensor& x, const Tensor& q,
                                 const Tensor& k)
{
    const LayerWeights& w = layer.w;
    const LatentConfig& c = m_c.latent;
    const uint32_t n = layer.n, n_heads = layer.c.n_heads, n_rot = m_c.rope.n_rot,
                   n_rows = n * n_heads, head_dim = layer.c.head_dim;
    const auto project = [&](const Tensor& from, const Tensor& y, const Linear& to_y,
                             const Tensor& roped, const Linear& to_roped) {
        const MatmulTarget targets[] = {{y, to_y.w, to_y.scale},
                                        {roped, to_roped.w, to_roped.scale}};
        m_backend->matmul({n, y.cols, from.cols, 0}, targets, roped ? 2 : 1, from);
        add_bias(y, to_y.bias);
        add_bias(roped, to_roped.bias);
    };
    Tensor in = x;
    if (c.q_dim) {
        in = shaped(m_a.up, n, c.q_dim);
        project(x, in, w.attn_q_a, {}, {});
        norm(in, in, w.attn_q_a_norm);
    }
    const Tensor of_heads = shaped(q, n_rows, head_dim), q_roped = shaped(m_a.att, n_rows, n_rot),
                 to_latents = shaped(m_a.att, n_rows, c.dim);
    project(in, shaped(m_a.gate, n, n_heads * c.key_dim), w.attn_q,
            shaped(q_roped, n, n_heads * n_rot), w.attn_q_rope);
    copy_cols(of_heads, 0, q_roped, 0, n_rot);
    multiply_heads(layer, to_latents, w.attn_k_b, shaped(m_a.gate, n_rows, c.key_dim));
    copy_cols(of_heads, n_rot, to_latents, 0, c.dim);

    const Tensor latents = shaped(m_a.up, n, c.dim), k_roped = shaped(m_a.gate, n, n_rot);
    project(x, latents, w.attn_kv_a, k_roped, w.attn_k_rope);
    norm(latents, latents, w.attn_kv_a_norm);
    copy_cols(k, 0, k_roped, 0, n_rot);
    copy_cols(k, n_rot, latents, 0, c.dim);
}

// The values of each head, from the latents that it attended to.
Tensor Transformer::latent_values(const Layer& layer, const Tensor& att)
{
    const LatentConfig& c = m_c.latent;
    const uint32_t n_heads = layer.c.n_heads, n_rows = layer.n * n_heads;
    const Tensor latents = shaped(m_a.q, n_rows, c.dim);
    copy_cols(latents, 0, shaped(att, n_rows, layer.c.head_dim), m_c.rope.n_rot, c.dim);
    multiply_heads(layer, shaped(m_a.gate, n_rows, c.value_dim), layer.w.attn_v_b, latents);
    return shaped(m_a.gate, layer.n, n_heads * c.value_dim);
}

} // namespace ks
