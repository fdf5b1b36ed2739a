// The recurrent branch of a layer: short convolution, gated delta net or Mamba 2. Its tensors lie
// in the buffers of attention and of the FFN, which do not run at the same time.
#include "runtime/model/transformer.h"

namespace ks
{

// Beside attention, a recurrent branch reads the same normed input.
void Transformer::recurrent_branch(const Layer& layer)
{
    const LayerWeights& w = layer.w;
    const Tensor h = first_rows(m_a.h, layer.n);
    const Tensor in = layer.c.n_heads ? h : normed(h, first_rows(m_a.x, layer.n), w.attn_norm);
    add_branch(w.ssm_out, {}, m_c.recurrent.n_heads ? scan(layer, in) : short_conv(layer, in));
}

void Transformer::convolve(const Layer& layer, const Tensor& y, const Tensor& x)
{
    const Norm& w = layer.w.ssm_conv;
    const uint32_t act = m_c.recurrent.n_heads ? act_silu : act_none;
    for (uint32_t i = 0; i < m_n_spans; i++) {
        const Span& s = m_spans[i];
        m_backend->conv({s.n, x.cols, m_c.recurrent.kernel, act, bool(w.bias)}, rows_of(y, s),
                        rows_of(x, s), w.w, w.bias, s.state->layer(layer.il_state).conv);
    }
}

// gate * conv(beta * in)
Tensor Transformer::short_conv(const Layer& layer, const Tensor& x)
{
    const LayerWeights& w = layer.w;
    const uint32_t n = layer.n, cols = m_c.dim;
    const Tensor in = shaped(m_a.gate, n, cols), out = shaped(m_a.up, n, cols),
                 beta = shaped(m_a.q, n, cols), gate = shaped(m_a.att, n, cols);
    const GluArgs product{n * cols, act_none, 1, 1, 0, 0, 0, 0};
    const MatmulTarget targets[] = {{beta, w.ssm_beta.w, w.ssm_beta.scale},
                                    {gate, w.ssm_gate.w, w.ssm_gate.scale},
                                    {in, w.ssm_in.w, w.ssm_in.scale}};
    m_backend->matmul({n, cols, m_c.dim, 0}, targets, 3, x);
    add_bias(beta, w.ssm_beta.bias);
    add_bias(gate, w.ssm_gate.bias);
    add_bias(in, w.ssm_in.bias);
    m_backend->glu(product, in, beta, in);
    convolve(layer, out, in);
    m_backend->glu(product, out, gate, out);
    return out;
}

Tensor Transformer::scan(const Layer& layer, const Tensor& x)
{
    const LayerWeights& w = layer.w;
    const RecurrentConfig& r = m_c.recurrent;
    const uint32_t n = layer.n;
    const bool delta = m_c.family->recurrent == Recurrent::delta;
    const Tensor in = shaped(m_a.gate, n, r.conv_cols), mixed = shaped(m_a.up, n, r.conv_cols),
                 gate = shaped(m_a.att, n, r.inner()), y = shaped(m_a.q, n, r.inner()),
                 dt = shaped(m_a.k, n, r.n_heads), beta = shaped(m_a.v, n, r.n_heads);
    const MatmulTarget targets[] = {{in, w.ssm_in.w, w.ssm_in.scale},
                                    {gate, w.ssm_gate.w, w.ssm_gate.scale},
                                    {dt, w.ssm_dt.w, w.ssm_dt.scale}},
                       of_beta{beta, w.ssm_beta.w, w.ssm_beta.scale};
    m_backend->matmul({n, in.cols, m_c.dim, 0}, targets, 3, x);
    add_bias(in, w.ssm_in.bias);
    add_bias(gate, w.ssm_gate.bias);
    convolve(layer, mixed, in);
    if (delta) m_backend->matmul({n, beta.cols, m_c.dim, 0}, &of_beta, 1, x);

    for (uint32_t i = 0; i < m_n_spans; i++) {
        const Span& s = m_spans[i];
        const ScanArgs a{s.n, r.n_heads, r.n_groups, r.head_dim, r.state_dim, m_c.norm_eps};
        const ScanInputs inputs{rows_of(mixed, s),
                                rows_of(dt, s),
                                rows_of(beta, s),
                                w.ssm_a.w,
                                w.ssm_d.w,
                                w.ssm_dt.bias,
                                s.state->layer(layer.il_state).matrix};
        if (delta)
            m_backend->delta(a, rows_of(y, s), inputs);
        else
            m_backend->ssm_scan(a, rows_of(y, s), inputs);
    }
    if (delta) norm(y, y, w.ssm_norm);
    m_backend->glu({n * y.cols, act_silu, 1, 1, 0, 0, 0, 0}, y, gate, y);
    if (!delta && w.ssm_norm.w) norm(y, y, w.ssm_norm);
    return y;
}

} // namespace ks
