// RoPE of f32 rows.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// Applies RoPE to one token. angles: (cos, sin) for each of n_rot / 2 pairs.
template <class S>
void rope(const RopeArgs& a, float* y, const float* x, const float* angles)
{
    const uint32_t half = a.n_rot / 2;
    const bool interleaved = a.pairs == rope_interleaved;
    for (uint32_t h = 0; h < a.n_heads; h++, x += a.head_dim, y += a.head_dim) {
        for (uint32_t i = a.n_rot; y != x && i < a.head_dim; i++) y[i] = x[i];
        uint32_t i = 0;
        for (; i + 8 <= half; i += 8) {
            typename S::F8 c, s, u, v;
            S::load_pairs(angles + 2 * i, &c, &s);
            if (interleaved)
                S::load_pairs(x + 2 * i, &u, &v);
            else
                u = S::load(x + i), v = S::load(x + half + i);
            typename S::F8 first = S::fma(u, c, S::zero() - v * s), second = S::fma(u, s, v * c);
            if (interleaved)
                S::store_pairs(y + 2 * i, first, second);
            else
                S::store(y + i, first), S::store(y + half + i, second);
        }
        for (; i < half; i++) {
            const uint32_t first = first_of_pair(a.pairs, i),
                           second = second_of_pair(a.pairs, i, a.n_rot);
            float c = angles[2 * i], s = angles[2 * i + 1], u = x[first], v = x[second];
            y[first] = u * c - v * s;
            y[second] = u * s + v * c;
        }
    }
}

} // namespace
} // namespace ks
