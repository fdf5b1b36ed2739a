#include "runtime/kv/retain/few_keys.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ks
{

FewKeys::FewKeys(const float* keys, uint32_t n_keys, uint32_t dim, float* table) : m_table(table)
{
    float spread[kFew];
    const uint32_t step = n_keys / 128 + 1; // some will do
    for (uint32_t j = 0; j < dim; j++) {
        float sum = 0, squares = 0, count = 0;
        for (uint32_t i = 0; i < n_keys; i += step, count++) {
            const float value = keys[uint64_t(i) * dim + j];
            sum += value;
            squares += value * value;
        }
        const float own = squares - sum * sum / count;
        const uint32_t slot = m_n < kFew ? m_n++ : uint32_t(std::min_element(spread, spread + kFew) - spread);
        if (j >= kFew && !(own > spread[slot])) continue;
        spread[slot] = own;
        m_at[slot] = j;
    }
}

// What a square gives less than it is: more than rounding does to a bound or to the distance it is compared with.
constexpr float kShare = 0.9999f;

void FewKeys::set(uint32_t i, const float* key, float scale)
{
    float square = 0;
    for (uint32_t k = 0; k < kFew; k++) {
        const float x = k < m_n ? key[m_at[k]] * scale : 0;
        entry(i)[8 * k] = x;
        square += x * x;
    }
    entry(i)[8 * kFew] = square * kShare;
}

void FewKeys::copy(uint32_t to, uint32_t from)
{
    for (uint32_t k = 0; k <= kFew; k++) entry(to)[8 * k] = entry(from)[8 * k];
}

typedef float Float8 __attribute__((vector_size(32)));

#define KS_ALWAYS_INLINE inline __attribute__((always_inline))

// Each entry has a lane of its own, so wider vectors change no bit. own: the key's coordinates times -2, and its square.
KS_ALWAYS_INLINE float bounds_of(const float* table, const float* own, uint32_t n, float* apart)
{
    Float8 least = Float8{} + INFINITY;
    const auto add_eight = [&](uint32_t i, uint32_t n_there) __attribute__((always_inline))
    {
        const float* eight = table + uint64_t(i) * (kFew + 1);
        Float8 x, y, odd = Float8{} + own[kFew], even; // two sums, as adding takes longer than what else there is to do
        std::memcpy(&even, eight + 8 * kFew, sizeof even);
        for (uint32_t k = 0; k < kFew; k += 2) {
            std::memcpy(&x, eight + 8 * k, sizeof x);
            std::memcpy(&y, eight + 8 * k + 8, sizeof y);
            even += x * own[k];
            odd += y * own[k + 1];
        }
        even += odd;
        for (uint32_t k = n_there; k < 8; k++) even[k] = INFINITY;
        std::memcpy(apart + i, &even, sizeof even);
        least = even < least ? even : least;
    };
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) add_eight(i, 8);
    if (i < n) add_eight(i, n - i);
    float of_all = least[0];
    for (uint32_t k = 1; k < 8; k++) of_all = std::min(of_all, least[k]);
    return of_all;
}

KS_ALWAYS_INLINE uint32_t first_of(const float* apart, uint32_t from, uint32_t n, float limit)
{
    for (uint32_t i = from / 8 * 8; i < n; i += 8) {
        Float8 eight;
        uint64_t within[4];
        std::memcpy(&eight, apart + i, sizeof eight);
        const auto lanes = ~(eight > limit);
        std::memcpy(within, &lanes, sizeof within);
        if (!(within[0] | within[1] | within[2] | within[3])) continue;
        for (uint32_t j = std::max(i, from); j < std::min(i + 8, n); j++)
            if (!(apart[j] > limit)) return j;
    }
    return n;
}

static float bounds_plain(const float* table, const float* own, uint32_t n, float* apart)
{
    return bounds_of(table, own, n, apart);
}

static uint32_t first_plain(const float* apart, uint32_t from, uint32_t n, float limit)
{
    return first_of(apart, from, n, limit);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static float bounds_avx2(const float* table, const float* own, uint32_t n, float* apart)
{
    return bounds_of(table, own, n, apart);
}

__attribute__((target("avx2"))) static uint32_t first_avx2(const float* apart, uint32_t from, uint32_t n, float limit)
{
    return first_of(apart, from, n, limit);
}
static const bool has_avx2 = __builtin_cpu_supports("avx2");
#else
static constexpr bool has_avx2 = false;
constexpr auto bounds_avx2 = bounds_plain;
constexpr auto first_avx2 = first_plain;
#endif

float FewKeys::bounds(const float* key, float scale, uint32_t n, float* apart) const
{
    float own[kFew + 1] = {}, square = 0;
    for (uint32_t k = 0; k < m_n; k++) {
        const float x = key[m_at[k]] * scale;
        own[k] = -2 * x;
        square += x * x;
    }
    own[kFew] = square * kShare;
    return (has_avx2 ? bounds_avx2 : bounds_plain)(m_table, own, n, apart);
}

uint32_t FewKeys::first_within(const float* apart, uint32_t from, uint32_t n, float limit)
{
    return (has_avx2 ? first_avx2 : first_plain)(apart, from, n, limit);
}

} // namespace ks
