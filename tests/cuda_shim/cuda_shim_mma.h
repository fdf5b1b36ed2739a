// The instructions of kernels/cuda/mma.cuh in C++, with PTX's fragment layouts. The last lane that
// arrives computes for all lanes.
#pragma once

#include "cuda_runtime.h"

namespace cudashim
{

template <class Sum>
struct Fragments {
    Sum* d;
    const unsigned *a, *b;
};

// A lane has n_words of a row along k. Each word has `each` values; get(word, i) reads value i.
template <class Sum, int n_words, int each, class Get>
CUDASHIM_NOSAN void multiply_fragments(unsigned part, void** lanes, Get get)
{
    if (part != ~0u) {
        fail("mma.sync needs all 32 lanes");
        return;
    }
    constexpr int k_size = 4 * n_words * each;
    static Sum a[16][k_size], b[k_size][8];
    for (int lane = 0; lane < 32; lane++) {
        auto* f = static_cast<Fragments<Sum>*>(lanes[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int w = 0; w < n_words; w++)
            for (int e = 0; e < each; e++) {
                const int k = (4 * w + t) * each + e;
                a[g][k] = get(f->a[2 * w], e);
                a[g + 8][k] = get(f->a[2 * w + 1], e);
                b[k][g] = get(f->b[w], e);
            }
    }
    for (int lane = 0; lane < 32; lane++) {
        auto* f = static_cast<Fragments<Sum>*>(lanes[lane]);
        for (int i = 0; i < 4; i++) {
            Sum sum = 0;
            for (int k = 0; k < k_size; k++)
                sum += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
            f->d[i] += sum;
        }
    }
}

CUDASHIM_NOSAN inline void multiply_s8(unsigned part, void** lanes)
{
    multiply_fragments<int, 1, 4>(
        part, lanes, [](unsigned word, int i) { return int(int8_t(word >> (8 * i))); });
}

CUDASHIM_NOSAN inline float f16_value(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16, rest = h & 0x7fff;
    uint32_t bits = (rest << 13) + 0x38000000u;
    if (rest >= 0x7c00) bits = 0x7f800000u | (rest & 0x3ff) << 13;
    float value;
    if (rest < 0x400) {
        value = float(rest) * 5.9604644775390625e-8f;
        memcpy(&bits, &value, 4);
    }
    bits |= sign;
    memcpy(&value, &bits, 4);
    return value;
}
CUDASHIM_NOSAN inline void multiply_f16(unsigned part, void** lanes)
{
    multiply_fragments<float, 2, 2>(
        part, lanes, [](unsigned word, int i) { return f16_value(word >> (16 * i) & 0xffff); });
}

// Asynchronous copies of each thread that are in flight. Their targets hold NaNs until the thread
// waits, so an early read is noticed.
struct Copy {
    uint4* to;
    const uint4* from;
    uint64_t launch;
};
constexpr int max_copies = 32;
inline Copy copies_[1024][max_copies];
inline int n_copies_[1024];

CUDASHIM_NOSAN inline void add_copy(uint4* to, const uint4* from)
{
    int& n = n_copies_[CUDASHIM_E.cur];
    if (n && copies_[CUDASHIM_E.cur][0].launch != stats.launches)
        n = 0; // left over from a failed launch
    if (n == max_copies) fail("more than 32 copies of a thread are in flight");
    copies_[CUDASHIM_E.cur][n++] = {to, from, stats.launches};
}
CUDASHIM_NOSAN inline bool take_copy(Copy* out)
{
    int& n = n_copies_[CUDASHIM_E.cur];
    if (n == 0) return false;
    *out = copies_[CUDASHIM_E.cur][--n];
    return out->launch == stats.launches;
}

} // namespace cudashim

namespace ks
{

// Only reads the byte, so that a sanitizer checks the address.
inline void prefetch(const void* at)
{
    (void)*static_cast<const volatile char*>(at);
}

inline void copy_16(unsigned* to, const unsigned* from)
{
    const auto* at = cudashim::aligned_(reinterpret_cast<const uint4*>(to));
    *const_cast<uint4*>(at) = make_uint4(~0u, ~0u, ~0u, ~0u);
    cudashim::add_copy(const_cast<uint4*>(at),
                       cudashim::aligned_(reinterpret_cast<const uint4*>(from)));
}

inline void wait_for_copies()
{
    for (cudashim::Copy copy; cudashim::take_copy(&copy);) *copy.to = *copy.from;
}

inline void mma_m16n8k16_s8(int (&d)[4], const unsigned (&a)[2], unsigned b, CUDASHIM_SITE)
{
    cudashim::Fragments<int> f{d, a, &b};
    cudashim::collective(20, ~0u, &f, cudashim::multiply_s8, false, file_, line_);
}

inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                             CUDASHIM_SITE)
{
    cudashim::Fragments<float> f{d, a, b};
    cudashim::collective(21, ~0u, &f, cudashim::multiply_f16, false, file_, line_);
}

} // namespace ks
