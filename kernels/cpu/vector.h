// Elementwise and reduction ops that read every value once.
#pragma once

#include "kernels/cpu/codecs.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/scan.h"

namespace ks
{

template <class S>
KS_INLINE float sum_of(const float* x, uint32_t n)
{
    typename S::F8 sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (uint32_t j = 0; j < 4; j++) sums[j] = sums[j] + S::load(x + i + 8 * j);
    float sum = S::sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < n; i++) sum += x[i];
    return sum;
}

template <class S>
void norm(const NormArgs& a, float* y, const float* x, const float* w)
{
    const float mean = a.kind == norm_layer ? sum_of<S>(x, a.dim) / float(a.dim) : 0.f;
    const typename S::F8 means = S::broadcast(mean);
    typename S::F8 sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
    uint32_t i = 0;
    for (; i + 32 <= a.dim; i += 32) {
        for (uint32_t j = 0; j < 4; j++) {
            typename S::F8 v = S::load(x + i + 8 * j) - means;
            sums[j] = S::fma(v, v, sums[j]);
        }
    }
    float sum = S::sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < a.dim; i++) sum += (x[i] - mean) * (x[i] - mean);
    typename S::F8 scale = S::broadcast(1.f / __builtin_sqrtf(sum / float(a.dim) + a.eps));
    for_each<S>(y, a.dim,
                [&](VectorAt<S> at) KS_INLINED { return (at(x) - means) * scale * at(w); });
}

// Walsh-Hadamard butterflies of a block of 8 n values, n <= 8. After a transpose, the steps 1, 2
// and 4 combine whole vectors.
template <class S, uint32_t n>
KS_INLINE void hadamard_vectors(float* x)
{
    typename S::F8 v[8];
    auto stage = [&](uint32_t step, uint32_t n_vectors) KS_INLINED {
        KS_UNROLL(8)
        for (uint32_t i = 0; i < n_vectors; i++) {
            if (i & step) continue;
            const typename S::F8 a = v[i], b = v[i + step];
            v[i] = a + b;
            v[i + step] = a - b;
        }
    };
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) v[i] = i < n ? S::load(x + 8 * i) : S::zero();
    S::transpose(v);
    stage(1, 8), stage(2, 8), stage(4, 8);
    S::transpose(v);
    if (n > 1) stage(1, n);
    if (n > 2) stage(2, n);
    if (n > 4) stage(4, n);
    KS_UNROLL(8)
    for (uint32_t i = 0; i < n; i++) S::store(x + 8 * i, v[i]);
}

// The butterflies of one block, without its scale.
template <class S>
void hadamard_transform(float* x, uint32_t block)
{
    if (block == 32) hadamard_vectors<S, 4>(x);
    if (block == 16) hadamard_vectors<S, 2>(x);
    if (block == 8) hadamard_vectors<S, 1>(x);
    for (uint32_t i = 0; block >= 64 && i < block; i += 64) hadamard_vectors<S, 8>(x + i);
    for (uint32_t step = block < 8 ? 1 : 64; step < block; step *= 2) {
        const bool scalar = step < 8;
        for (uint32_t i = 0; i < block; i += scalar ? 1 : 8) {
            if (i & step) continue;
            if (scalar) {
                const float a = x[i], b = x[i + step];
                x[i] = a + b;
                x[i + step] = a - b;
                continue;
            }
            const typename S::F8 a = S::load(x + i), b = S::load(x + i + step);
            S::store(x + i, a + b);
            S::store(x + i + step, a - b);
        }
    }
}

// The Hadamard transform of one token, with the operations in the order of the specification
// (hadamard_head in backends/reference). signs (head_dim).
template <class S>
void hadamard(float* x, uint32_t n_heads, uint32_t head_dim, const float* signs, bool inverse)
{
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        if (!inverse)
            for_each<S>(x, head_dim, [&](VectorAt<S> at) KS_INLINED { return at(x) * at(signs); });
        for (uint32_t base = 0, block; base < head_dim; base += block) {
            block = hadamard_block(base, head_dim);
            const typename S::F8 scale = S::broadcast(hadamard_scale(block));
            float* part = x + base;
            hadamard_transform<S>(part, block);
            for_each<S>(part, block, [&](VectorAt<S> at) KS_INLINED { return at(part) * scale; });
        }
        if (inverse)
            for_each<S>(x, head_dim, [&](VectorAt<S> at) KS_INLINED { return at(x) * at(signs); });
    }
}

template <class S, uint32_t act>
KS_INLINE typename S::F8 activation(const GluArgs& a, typename S::F8 g)
{
    const typename S::F8 zero = S::zero();
    if (act == act_silu) return times_sigmoid<S>(g, g);
    if (act == act_gelu) { // 0.5 g (1 + tanh(u)) = g / (1 + e^-2u)
        typename S::F8 cubic = S::fma(g * g, S::broadcast(0.044715f), S::broadcast(1.f));
        return times_sigmoid<S>(g, g * cubic * S::broadcast(2.f * 0.7978845608f));
    }
    if (act == act_relu2) return S::max(g, zero) * S::max(g, zero);
    if (act == act_none) return g;
    if (act == act_sigmoid) return times_sigmoid<S>(S::broadcast(1.f), g);
    if (act == act_swiglu_oai) {
        const typename S::F8 capped = S::min(g, S::broadcast(swiglu_oai_limit));
        return times_sigmoid<S>(capped, capped * S::broadcast(swiglu_oai_alpha));
    }
    const typename S::F8 above = S::max(g, zero), below = S::min(g, zero),
                         capped = S::min(below, S::broadcast(a.eps));
    const typename S::F8 n = (expm1_minus<S>(capped) + (capped - below)) * S::broadcast(a.alpha_n);
    // n is for g <= 0 only.
    return above * above * S::broadcast(a.alpha_p) + S::zero_where_less(n, zero, g) +
           g * S::broadcast(a.beta);
}

// The factor of a gate.
template <class S, uint32_t act>
KS_INLINE typename S::F8 factor(typename S::F8 up)
{
    if (act != act_swiglu_oai) return up;
    const typename S::F8 limit = S::broadcast(swiglu_oai_limit);
    return S::max(S::min(up, limit), S::zero() - limit) + S::broadcast(1.f);
}

template <class S, uint32_t act>
void glu_of(const GluArgs& a, float* y, const float* gate, const float* up)
{
    const auto gated = [&](VectorAt<S> at) KS_INLINED {
        return activation<S, act>(a, at(gate)) * factor<S, act>(at(up));
    };
    if (!a.gated)
        return for_each<S>(
            y, a.n, [&](VectorAt<S> at) KS_INLINED { return activation<S, act>(a, at(gate)); });
    if (a.gate_group == 1) return for_each<S>(y, a.n, gated);
    for (uint32_t i = 0; i < a.n; i += a.gate_group, gate++) {
        const typename S::F8 g = activation<S, act>(a, S::broadcast(*gate));
        for_each<S>(y + i, a.gate_group,
                    [&](VectorAt<S> at) KS_INLINED { return g * factor<S, act>(at(up + i)); });
    }
}

template <class S>
void glu(const GluArgs& a, float* y, const float* gate, const float* up)
{
    const auto kernel = a.act == act_silu         ? glu_of<S, act_silu>
                        : a.act == act_gelu       ? glu_of<S, act_gelu>
                        : a.act == act_relu2      ? glu_of<S, act_relu2>
                        : a.act == act_sigmoid    ? glu_of<S, act_sigmoid>
                        : a.act == act_swiglu_oai ? glu_of<S, act_swiglu_oai>
                        : a.act == act_none       ? glu_of<S, act_none>
                                                  : glu_of<S, act_xielu>;
    kernel(a, y, gate, up);
}

template <class S>
void add(float* x, const float* b, uint32_t n)
{
    for_each<S>(x, n, [&](VectorAt<S> at) KS_INLINED { return at(x) + at(b); });
}

template <class S>
void scale(float* x, uint32_t n, float factor)
{
    for_each<S>(x, n, [&](VectorAt<S> at) KS_INLINED { return at(x) * S::broadcast(factor); });
}

template <class S>
void softcap(float* x, uint32_t n, float cap)
{
    for_each<S>(x, n, [&](VectorAt<S> at) KS_INLINED { return softcapped<S>(at(x), cap); });
}

// The lowest index of the largest value. A NaN never wins, except at index 0.
template <class S>
uint32_t argmax(const float* x, uint32_t n)
{
    typename S::F8 tops[4];
    for (typename S::F8& top : tops) top = S::broadcast(x[0]);
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (uint32_t j = 0; j < 4; j++) tops[j] = S::max(S::load(x + i + 8 * j), tops[j]);
    float top = S::largest(S::max(S::max(tops[0], tops[1]), S::max(tops[2], tops[3])));
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (i = 0; i < n; i++)
        if (x[i] == top) return i;
    return 0;
}

// The kernel table of one instruction set.
#define KS_VECTOR_KERNELS(S)                                                                       \
    {                                                                                              \
        norm<S>, rope<S>, hadamard<S>, glu<S>, add<S>, scale<S>, softcap<S>, argmax<S>, conv<S>,   \
            delta<S>, ssm_scan<S>, codec_table<S>()                                                \
    }

} // namespace ks
