// The recurrent ops. A head's rows of the state are independent: a few rows at a time stay in L1
// while they pass over the tokens. Every token has the same operations in the same order, so chunks
// do not change a bit.
#pragma once

#include "kernels/cpu/vector_math.h"

#include <math.h>

namespace ks
{

// One token: rows[j] (cols) is the input kernel - 1 - j tokens before it.
template <class S>
void conv(const ConvArgs& a, float* y, const float* const* rows, const float* w, const float* bias)
{
    for_each<S>(y, a.cols, [&](VectorAt<S> at) KS_INLINED {
        typename S::F8 sum = bias ? at(bias) : S::zero();
        for (uint32_t j = 0; j < a.kernel; j++)
            sum = S::fma(at(w + size_t(j) * a.cols), at(rows[j]), sum);
        return a.act == act_silu ? times_sigmoid<S>(sum, sum) : sum;
    });
}

// Scalars of a token and a head.
struct ScanGate {
    float decay;
    float step;             // of ssm_scan: the factor of a value
    float beta;             // of delta, like the following
    float q_scale, k_scale; // 1 / norm
    float kq;               // k q, without their scales
};
constexpr uint32_t kGatedTokens = 64; // whose gates are computed at once
// Rows of a state whose sums fit into registers.
template <class S>
constexpr uint32_t scan_rows = S::Wide::lanes == 16 ? 8 : 4;

// The sums of n vectors, n a multiple of 8.
template <class S>
KS_INLINE void sums_of(const typename S::Wide::F* vectors, uint32_t n, float* sums)
{
    KS_UNROLL(2)
    for (uint32_t i = 0; i < n; i += 8) {
        typename S::F8 folded[8];
        KS_UNROLL(8)
        for (uint32_t j = 0; j < 8; j++) {
            if constexpr (S::Wide::lanes == 8) {
                folded[j] = vectors[i + j];
            } else {
                float both[16];
                S::Wide::store(both, vectors[i + j]);
                folded[j] = S::load(both) + S::load(both + 8);
            }
        }
        S::store(sums + i, S::sums8(folded));
    }
}

inline float softplus(float x)
{
    return x > 20.f ? x : log1pf(expf(x));
}

inline ScanGate scan_gate(const ScanTask& task, uint32_t head, size_t token)
{
    ScanGate gate{};
    gate.step = softplus(task.dt[token * task.s.n_heads + head] + task.dt_bias[head]);
    gate.decay = expf(task.a[head] * gate.step);
    return gate;
}

template <class S>
KS_INLINE void delta_scales(const ScanArgs& s, const float* q, const float* k, ScanGate& gate)
{
    typename S::F8 qq = S::zero(), kk = qq, kq = qq;
    for (uint32_t j = 0; j < s.state_dim; j += 8) {
        const typename S::F8 vq = S::load(q + j), vk = S::load(k + j);
        qq = S::fma(vq, vq, qq), kk = S::fma(vk, vk, kk), kq = S::fma(vk, vq, kq);
    }
    gate.q_scale = 1.f / __builtin_sqrtf((S::sum(qq) + s.eps) * float(s.state_dim));
    gate.k_scale = 1.f / __builtin_sqrtf(S::sum(kk) + s.eps);
    gate.kq = S::sum(kq);
}

// One token in scan_rows rows of a state.
template <class S>
KS_INLINE void delta_token(const ScanGate& gate, uint32_t n, float* rows, const float* q,
                           const float* k, const float* v, float* y)
{
    using V = typename S::Wide;
    constexpr uint32_t n_rows = scan_rows<S>;
    typename V::F sums[2 * n_rows], steps[n_rows];
    for (typename V::F& sum : sums) sum = V::zero();
    for (uint32_t j = 0; j < n; j += V::lanes) {
        const typename V::F vq = V::load(q + j), vk = V::load(k + j);
        KS_UNROLL(8)
        for (uint32_t r = 0; r < n_rows; r++) {
            const typename V::F row = V::load(rows + r * n + j);
            sums[r] = V::fma(row, vk, sums[r]);
            sums[n_rows + r] = V::fma(row, vq, sums[n_rows + r]);
        }
    }
    float dots[2 * n_rows];
    sums_of<S>(sums, 2 * n_rows, dots);
    KS_UNROLL(8)
    for (uint32_t r = 0; r < n_rows; r++) {
        const float known = gate.decay * gate.k_scale * dots[r],
                    step = gate.beta * gate.k_scale * (v[r] - known);
        y[r] = gate.q_scale * (gate.decay * dots[n_rows + r] + step * gate.kq);
        steps[r] = V::broadcast(step);
    }
    const typename V::F decay = V::broadcast(gate.decay);
    for (uint32_t j = 0; j < n; j += V::lanes) {
        const typename V::F vk = V::load(k + j);
        KS_UNROLL(8)
        for (uint32_t r = 0; r < n_rows; r++)
            V::store(rows + r * n + j, V::fma(steps[r], vk, decay * V::load(rows + r * n + j)));
    }
}

template <class S>
void delta(const ScanTask& task, uint32_t head)
{
    const ScanArgs& s = task.s;
    const uint32_t n = s.state_dim;
    const size_t cols = scan_cols(s);
    const float *q = task.x + size_t(delta_group(s, head)) * n, *k = q + size_t(s.n_groups) * n,
                *v = task.x + (2 * size_t(s.n_groups) + head) * n;
    ScanGate gates[kGatedTokens];
    for (uint32_t first = 0; first < s.n_tokens; first += kGatedTokens) {
        const uint32_t end = first + kGatedTokens < s.n_tokens ? first + kGatedTokens : s.n_tokens;
        for (size_t t = first; t < end; t++) {
            ScanGate& gate = gates[t - first] = scan_gate(task, head, t);
            gate.beta = 1.f / (1.f + expf(-task.beta[t * s.n_heads + head]));
            delta_scales<S>(s, q + t * cols, k + t * cols, gate);
        }
        for (uint32_t i = 0; i < n; i += scan_rows<S>)
            for (size_t t = first; t < end; t++)
                delta_token<S>(gates[t - first], n, task.state + (size_t(head) * n + i) * n,
                               q + t * cols, k + t * cols, v + t * cols + i,
                               task.y + (t * s.n_heads + head) * n + i);
    }
}

// One token in n_rows rows of a state.
template <class S, uint32_t n_rows>
KS_INLINE void ssm_token(const ScanGate& gate, uint32_t n, float d, float* rows, const float* x,
                         const float* b, const float* c, float* y)
{
    using V = typename S::Wide;
    typename V::F sums[8], inputs[n_rows];
    for (typename V::F& sum : sums) sum = V::zero();
    KS_UNROLL(8)
    for (uint32_t r = 0; r < n_rows; r++) inputs[r] = V::broadcast(gate.step * x[r]);
    const typename V::F decay = V::broadcast(gate.decay);
    for (uint32_t j = 0; j < n; j += V::lanes) {
        const typename V::F vb = V::load(b + j), vc = V::load(c + j);
        KS_UNROLL(8)
        for (uint32_t r = 0; r < n_rows; r++) {
            float* at = rows + r * n + j;
            const typename V::F row = V::fma(inputs[r], vb, decay * V::load(at));
            V::store(at, row);
            sums[r] = V::fma(row, vc, sums[r]);
        }
    }
    float dots[8];
    sums_of<S>(sums, 8, dots);
    for (uint32_t r = 0; r < n_rows; r++) y[r] = dots[r] + d * x[r];
}

template <class S, uint32_t n_rows>
KS_INLINE void ssm_rows(const ScanTask& task, uint32_t head, uint32_t i, uint32_t first,
                        uint32_t end, const ScanGate* gates)
{
    const ScanArgs& s = task.s;
    const size_t cols = scan_cols(s), inner = size_t(s.n_heads) * s.head_dim, n = s.state_dim,
                 at = size_t(head) * s.head_dim + i;
    const float *b = task.x + inner + ssm_group(s, head) * n, *c = b + s.n_groups * n;
    for (size_t t = first; t < end; t++)
        ssm_token<S, n_rows>(gates[t - first], uint32_t(n), task.d[head], task.state + at * n,
                             task.x + t * cols + at, b + t * cols, c + t * cols,
                             task.y + t * inner + at);
}

template <class S>
void ssm_scan(const ScanTask& task, uint32_t head)
{
    const ScanArgs& s = task.s;
    ScanGate gates[kGatedTokens];
    for (uint32_t first = 0; first < s.n_tokens; first += kGatedTokens) {
        const uint32_t end = first + kGatedTokens < s.n_tokens ? first + kGatedTokens : s.n_tokens;
        for (uint32_t t = first; t < end; t++) gates[t - first] = scan_gate(task, head, t);
        uint32_t i = 0;
        for (; i + scan_rows<S> <= s.head_dim; i += scan_rows<S>)
            ssm_rows<S, scan_rows<S>>(task, head, i, first, end, gates);
        for (; i < s.head_dim; i++) ssm_rows<S, 1>(task, head, i, first, end, gates);
    }
}

} // namespace ks
