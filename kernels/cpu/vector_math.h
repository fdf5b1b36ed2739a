// Conversion of cache rows without a codec, loops over vectors, and vector exponentials.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace ks
{

template <class V, bool is_half>
KS_INLINE typename V::F load_cached(const void* cache, size_t i)
{
    return is_half ? V::load_half(static_cast<const uint16_t*>(cache) + i)
                   : V::load(static_cast<const float*>(cache) + i);
}

// at(p) loads the n <= 8 values from p[i] on. A partial vector is copied, so memory after it is not
// read.
template <class S>
struct VectorAt {
    uint32_t i, n;
    KS_INLINE typename S::F8 operator()(const float* p) const
    {
        if (n == 8) return S::load(p + i);
        float partial[8] = {};
        for (uint32_t j = 0; j < n; j++) partial[j] = p[i + j];
        return S::load(partial);
    }
};

// y[i] = op(at) for i < n, eight values at a time.
template <class S, class Op>
KS_INLINE void for_each(float* y, uint32_t n, Op op)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) S::store(y + i, op(VectorAt<S>{i, 8}));
    if (i == n) return;
    float partial[8];
    S::store(partial, op(VectorAt<S>{i, n - i}));
    for (uint32_t j = i; j < n; j++) y[j] = partial[j - i];
}

// 2^(n + f) for an integer n and |f| <= 0.5. The polynomial, a minimax fit, is within 0.3 ulp of
// 2^f.
template <class S>
KS_INLINE typename S::F8 power_of_two(typename S::W8 n, typename S::F8 f)
{
    typename S::F8 p = S::broadcast(0.00015353342f);
    p = S::fma(p, f, S::broadcast(0.0013398901f));
    p = S::fma(p, f, S::broadcast(0.009618438f));
    p = S::fma(p, f, S::broadcast(0.055503324f));
    p = S::fma(p, f, S::broadcast(0.24022648f));
    p = S::fma(p, f, S::broadcast(0.6931472f));
    return S::times_power_of_two(S::fma(p, f, S::broadcast(1.f)), n);
}

// 2^x for x <= 0, within 2 ulp. Values below 2^-126 give 0, and so does -inf.
template <class S>
KS_INLINE typename S::F8 exp2_of_negative(typename S::F8 x)
{
    typename S::F8 clamped = S::max(S::broadcast(-126.f), x);
    typename S::W8 n = S::to_int(clamped);
    return S::zero_where_less(power_of_two<S>(n, clamped - S::to_float(n)), x,
                              S::broadcast(-126.f));
}

// e^x within 2 ulp; without a fused multiply-add the relative error is 1e-5. x is clamped to [-87,
// 88].
template <class S>
KS_INLINE typename S::F8 exp(typename S::F8 x)
{
    x = S::min(S::broadcast(88.f), S::max(S::broadcast(-87.f), x));
    typename S::W8 n = S::to_int(x * S::broadcast(1.442695041f));
    // log2(e) in two parts: rounded to one float, it would be off by 1.9e-8 x
    typename S::F8 f = S::fma(x, S::broadcast(1.442695041f), S::zero() - S::to_float(n));
    return power_of_two<S>(n, S::fma(x, S::broadcast(1.925963033e-8f), f));
}

// x / (1 + e^-z)
template <class S>
KS_INLINE typename S::F8 times_sigmoid(typename S::F8 x, typename S::F8 z)
{
    return x / (S::broadcast(1.f) + exp<S>(S::zero() - z));
}

// cap tanh(x / cap) = cap (1 - 2 / (1 + e^(2x / cap)))
template <class S>
KS_INLINE typename S::F8 softcapped(typename S::F8 x, float cap)
{
    typename S::F8 e = exp<S>(x * S::broadcast(2.f / cap));
    return S::broadcast(cap) - S::broadcast(2.f * cap) / (S::broadcast(1.f) + e);
}

// e^x - 1 - x for x <= 0. From -0.5 on it is x^2 times a Taylor polynomial, elsewhere a difference.
template <class S>
KS_INLINE typename S::F8 expm1_minus(typename S::F8 x)
{
    constexpr float kTaylor[] = {1 / 5040.f, 1 / 720.f, 1 / 120.f, 1 / 24.f, 1 / 6.f, 1 / 2.f};
    const typename S::F8 split = S::broadcast(-0.5f);
    typename S::F8 p = S::broadcast(1 / 40320.f);
    for (float c : kTaylor) p = S::fma(p, x, S::broadcast(c));
    const typename S::F8 near = S::zero_where_less(p * x * x, x, split),
                         far = exp<S>(x) - S::broadcast(1.f) - x;
    return near + (far - S::zero_where_less(far, x, split));
}

} // namespace ks
