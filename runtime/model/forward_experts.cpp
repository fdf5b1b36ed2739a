// The FFN branch of a mixture of experts.
#include "runtime/model/transformer.h"

#include <cmath>

namespace ks
{

// x += the chosen experts and the shared one. With a post norm, x += its norm. Everything that
// reads `in` comes before the sum, which may overwrite it.
void Transformer::experts_branch(const Layer& layer, const Tensor& in)
{
    const LayerWeights& w = layer.w;
    const bool normed = bool(w.ffn_post_norm.w), latent = bool(w.latent_up.w);
    const uint32_t n = layer.n, n_used = m_c.experts.n_used, cols = m_c.expert_cols(),
                   accumulate = normed ? 0 : 1;
    const Tensor y = shaped(normed ? m_a.h : m_a.x, n, m_c.dim),
                 sum = latent ? shaped(m_a.up, n, cols) : y;
    route(layer, in);
    run_experts(layer, in);
    if (w.up_shared.w) shared_expert(layer, in);
    m_backend->combine_experts(
        {n, n_used, cols, latent ? 0 : accumulate, latent ? 1 : m_c.residual_scale}, sum,
        shaped(m_a.expert_out, n * n_used, cols), shaped(m_a.expert_weights, n, n_used));
    const auto add = [&](const Linear& linear, const Tensor& x, uint32_t to_y) {
        const MatmulTarget target{y, linear.w, linear.scale * m_c.residual_scale};
        m_backend->matmul({n, m_c.dim, x.cols, to_y}, &target, 1, x);
        add_bias(y, linear.bias);
    };
    if (latent) add(w.latent_up, sum, accumulate);
    if (w.up_shared.w) add(w.down_shared, shaped(m_a.gate, n, m_c.experts.shared_dim), 1);
    if (normed) add_normed(w.ffn_post_norm, y);
}

// x += norm(norm(experts) + norm(FFN)). The router reads x by a norm of its own.
void Transformer::experts_beside_ffn(const Layer& layer)
{
    const LayerWeights& w = layer.w;
    const uint32_t n = layer.n, n_used = m_c.experts.n_used, dim = m_c.dim;
    const Tensor x = first_rows(m_a.x, n), h = first_rows(m_a.h, n),
                 out = shaped(m_a.expert_out, n * n_used, dim), y = shaped(m_a.expert_out, n, dim);
    norm(h, x, w.experts_norm);
    norm(y, x, w.router_norm);
    route(layer, y);
    run_experts(layer, h);
    m_backend->combine_experts({n, n_used, dim, 0, 1}, h, out,
                               shaped(m_a.expert_weights, n, n_used));
    norm(h, h, w.experts_post_norm);
    norm(y, x, w.ffn_norm);
    const Tensor values = ffn_values(layer, w.ffn_gate, w.ffn_up, y);
    const MatmulTarget down{y, w.ffn_down.w, w.ffn_down.scale};
    m_backend->matmul({n, dim, values.cols, 0}, &down, 1, values);
    add_bias(y, w.ffn_down.bias);
    norm(y, y, w.ffn_dense_post_norm);
    m_backend->add({n, dim, n}, h, y);
    add_normed(w.ffn_post_norm, h);
}

// Sets expert_ids and expert_weights.
void Transformer::route(const Layer& layer, const Tensor& in)
{
    const ExpertsConfig& e = m_c.experts;
    const uint32_t n = layer.n;
    const Tensor logits = shaped(m_a.expert_logits, n, e.n);
    const float by_width = layer.w.router_norm.w ? 1 / std::sqrt(float(m_c.dim)) : 1;
    const MatmulTarget router{logits, layer.w.router.w, layer.w.router.scale * by_width};
    m_backend->matmul({n, e.n, m_c.dim, 0}, &router, 1, in);
    add_bias(logits, layer.w.router.bias);
    RouteArgs args = e.route;
    args.n_tokens = n;
    m_backend->route(args, shaped(m_a.expert_ids, n, e.n_used),
                     shaped(m_a.expert_weights, n, e.n_used), logits, layer.w.expert_bias);
}

// Sets expert_out, the output of each chosen expert. It has their latent input before.
void Transformer::run_experts(const Layer& layer, const Tensor& in)
{
    const LayerWeights& w = layer.w;
    const ExpertsConfig& e = m_c.experts;
    const uint32_t n = layer.n, n_rows = n * e.n_used, cols = m_c.expert_cols();
    const bool gated = m_c.family->gated, latent = bool(w.latent_down.w);
    const Tensor ids = shaped(m_a.expert_ids, n, e.n_used),
                 gate = shaped(m_a.expert_gate, n_rows, e.dim),
                 up = gated ? shaped(m_a.expert_up, n_rows, e.dim) : gate,
                 out = shaped(m_a.expert_out, n_rows, cols),
                 x = latent ? shaped(m_a.expert_out, n, cols) : in;
    const MatmulTarget to_latent{x, w.latent_down.w, w.latent_down.scale};
    const ExpertsTarget gate_up[] = {{gate, w.gate_exps.w, w.gate_exps.scales, w.gate_exps.bias},
                                     {up, w.up_exps.w, w.up_exps.scales, w.up_exps.bias}},
                        down{out, w.down_exps.w, w.down_exps.scales, w.down_exps.bias};
    if (latent) {
        m_backend->matmul({n, cols, m_c.dim, 0}, &to_latent, 1, in);
        add_bias(x, w.latent_down.bias);
    }
    m_backend->matmul_experts({n, e.n_used, e.n, e.dim, cols, 0}, gate_up + !gated, 1 + gated, x,
                              ids);
    m_backend->glu({n_rows * e.dim, m_c.activation, 1, gated, 0, 0, 0, 0}, gate, gate,
                   gated ? up : Tensor());
    m_backend->matmul_experts({n, e.n_used, e.n, cols, e.dim, 1}, &down, 1, gate, ids);
}

// The shared expert up to its last matrix, in `gate`. A gate of its own multiplies its values.
void Transformer::shared_expert(const Layer& layer, const Tensor& in)
{
    const Linear& w = layer.w.shared_gate;
    const Tensor values = ffn_values(layer, layer.w.gate_shared, layer.w.up_shared, in),
                 weight = shaped(m_a.expert_logits, layer.n, 1);
    const MatmulTarget target{weight, w.w, w.scale};
    if (!w.w) return;
    m_backend->matmul({layer.n, 1, m_c.dim, 0}, &target, 1, in);
    m_backend->glu({layer.n * values.cols, act_sigmoid, values.cols, 1, 0, 0, 0, 0}, values, weight,
                   values);
}

} // namespace ks
