#include "runtime/kv/retain/coarse_keys.h"

#include "runtime/kv/retain/vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace ks
{
namespace
{

constexpr int32_t kMost = 63, kZero = 64; // of a coordinate; stored as byte kZero + x, so that no four products leave 16 bits
constexpr float kLess = 0.9999f;          // what a bound keeps of itself: more than rounding does to it or to the exact distance

typedef int8_t Byte8 __attribute__((vector_size(8)));
typedef int8_t Byte32 __attribute__((vector_size(32)));

KS_ALWAYS_INLINE uint32_t word_at(const void* from)
{
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

// A key as the table has it.
struct Rounded {
    int8_t at[codec_max_dim], stored[codec_max_dim];
    int32_t square;
    int32_t own;  // the square, and what the bytes' zero adds to its products
    float error;  // distance to the key, rounded up; of one that is no number none, and no bound holds it back
    float length; // the key's, where all are taken at length 1
};

struct Grid {
    const float* middle; // (n_dims)
    float step, steps;
    uint32_t n_dims;
    bool unit;
};

KS_ALWAYS_INLINE void round_of(const Grid& g, const float* key, Rounded& out)
{
    out.length = g.unit ? std::sqrt(dot(key, key, g.n_dims)) : 1;
    const float scale = 1 / out.length;
    Float8 errors = {};
    Int8 squares = {};
    const Float8 lowest = Float8{} + (kZero - kMost), highest = Float8{} + (kZero + kMost);
    for (uint32_t j = 0; j < g.n_dims; j += 8) {
        const Float8 x = *floats_at(key + j) * scale - *floats_at(g.middle + j), wanted = x * g.steps + (kZero + 0.5f);
        const Float8 above = wanted > lowest ? wanted : lowest, within = above < highest ? above : highest;
        const Int8 whole = __builtin_convertvector(within, Int8) - kZero;
        const Float8 off = x - __builtin_convertvector(whole, Float8) * g.step;
        const Byte8 bytes = __builtin_shufflevector(Byte32(whole), Byte32(whole), 0, 4, 8, 12, 16, 20, 24, 28),
                    stored = bytes + int8_t(kZero);
        errors += off * off;
        squares += whole * whole;
        std::memcpy(out.at + j, &bytes, sizeof bytes);
        std::memcpy(out.stored + j, &stored, sizeof stored);
    }
    out.square = sum_of(squares);
    out.error = std::sqrt(sum_of(errors)) * (2 - kLess);
}

struct KeyRanges {
    const float* keys;
    uint32_t n, dim;
    bool unit;
};

// Of each coordinate; some keys will do.
KS_ALWAYS_INLINE void ranges_of(const KeyRanges& r, float* low, float* high)
{
    std::fill_n(low, r.dim, INFINITY);
    std::fill_n(high, r.dim, -INFINITY);
    for (uint32_t i = 0; i < r.n; i += r.n / 128 + 1) {
        const float* key = r.keys + uint64_t(i) * r.dim;
        const float scale = r.unit ? 1 / std::sqrt(dot(key, key, r.dim)) : 1;
        for (uint32_t j = 0; j < r.dim; j++) {
            const float x = key[j] * scale;
            low[j] = x < low[j] ? x : low[j];
            high[j] = x > high[j] ? x : high[j];
        }
    }
}

struct Sweep {
    const uint8_t* table;
    uint64_t eight_bytes;
    uint32_t n_dims, n;
    float square; // of a step
    const Rounded& key;
};

// From the products of eight entries as they are stored with the key. (a - m)^2 is at least 15/16 a^2 - 15 m^2, which takes no
// root: a the coarse distance, m both errors.
KS_ALWAYS_INLINE void put_bounds(const Sweep& s, uint32_t i, const uint8_t* eight, const Int8& products, float* apart, Float8& least)
{
    const Int8 steps = *ints_at(eight + 8 * s.n_dims) + s.key.own - 2 * products;
    const Float8 error = *floats_at(eight + 8 * s.n_dims + 32) + s.key.error;
    const Float8 some = __builtin_convertvector(steps, Float8) * s.square - 15 * (error * error);
    Float8 bound = some > 0 ? some : Float8{};
    for (uint32_t k = s.n - i; k < 8; k++) bound[k] = INFINITY;
    std::memcpy(apart + i, &bound, sizeof bound);
    least = bound < least ? bound : least;
}

KS_ALWAYS_INLINE float least_of(const Float8& x)
{
    float of_all = INFINITY;
    for (uint32_t k = 0; k < 8; k++) of_all = std::min(of_all, x[k]);
    return of_all;
}

KS_ALWAYS_INLINE float largest_of(const float* x, uint32_t n)
{
    Float8 most = Float8{} - INFINITY;
    float of_all = -INFINITY;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const Float8 eight = *floats_at(x + i);
        most = eight > most ? eight : most;
    }
    for (uint32_t k = 0; k < 8; k++) of_all = std::max(of_all, most[k]);
    for (; i < n; i++) of_all = std::max(of_all, x[i]);
    return of_all;
}

// What any machine does.
struct Plain {
    static void round(const Grid& g, const float* key, Rounded& out) { round_of(g, key, out); }
    static void ranges(const KeyRanges& r, float* low, float* high) { ranges_of(r, low, high); }
    static float bounds(const Sweep& s, float* apart)
    {
        Float8 least = Float8{} + INFINITY;
        const uint8_t* eight = s.table;
        for (uint32_t i = 0; i < s.n; i += 8, eight += s.eight_bytes) {
            int32_t sums[8] = {};
            for (uint32_t j = 0; j < s.n_dims; j += 4)
                for (uint32_t k = 0; k < 32; k++) sums[k / 4] += int32_t(eight[j * 8 + k]) * s.key.at[j + k % 4];
            const Int8 products = *ints_at(sums);
            put_bounds(s, i, eight, products, apart, least);
        }
        return least_of(least);
    }
    static uint32_t first(const float* x, float limit, uint32_t from, uint32_t n)
    {
        while (from < n && x[from] > limit) from++;
        return from;
    }
    static uint32_t first(const float* x, const float* limits, uint32_t from, uint32_t n)
    {
        while (from < n && x[from] > limits[from]) from++;
        return from;
    }
    static uint32_t reaching(const float* x, float bar, uint32_t from, uint32_t n)
    {
        while (from < n && x[from] < bar) from++;
        return from;
    }
    static float largest(const float* x, uint32_t n) { return largest_of(x, n); }
};

#ifdef __x86_64__
struct Avx2 {
    KS_AVX2 static void round(const Grid& g, const float* key, Rounded& out) { round_of(g, key, out); }
    KS_AVX2 static void ranges(const KeyRanges& r, float* low, float* high) { ranges_of(r, low, high); }
    KS_AVX2 static float bounds(const Sweep& s, float* apart)
    {
        const __m256i ones = _mm256_set1_epi16(1);
        Float8 least = Float8{} + INFINITY;
        for (uint32_t i = 0; i < s.n; i += 16) { // two eights for one look at the key
            const uint8_t *low = s.table + i / 8 * s.eight_bytes, *high = i + 8 < s.n ? low + s.eight_bytes : low;
            __m256i of_low = _mm256_setzero_si256(), of_high = of_low;
            for (uint32_t j = 0; j < s.n_dims; j += 8) {
                const __m256i k0 = _mm256_set1_epi32(int32_t(word_at(s.key.at + j))),
                              k4 = _mm256_set1_epi32(int32_t(word_at(s.key.at + j + 4)));
                of_low = add_products(of_low, low + 8 * j, k0, k4, ones);
                of_high = add_products(of_high, high + 8 * j, k0, k4, ones);
            }
            put_bounds(s, i, low, Int8(of_low), apart, least);
            if (high != low) put_bounds(s, i + 8, high, Int8(of_high), apart, least);
        }
        return least_of(least);
    }
    KS_AVX2 static uint32_t first(const float* x, float limit, uint32_t from, uint32_t n)
    {
        uint32_t i = from / 8 * 8, found = 0;
        for (; i < n && !(found = hits(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(limit), _CMP_NGT_UQ), i, from)); i += 8) {
        }
        return found ? std::min(n, i + uint32_t(__builtin_ctz(found))) : n;
    }
    KS_AVX2 static uint32_t first(const float* x, const float* limits, uint32_t from, uint32_t n)
    {
        uint32_t i = from / 8 * 8, found = 0;
        for (; i < n && !(found = hits(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(limits + i), _CMP_NGT_UQ), i, from)); i += 8) {
        }
        return found ? std::min(n, i + uint32_t(__builtin_ctz(found))) : n;
    }
    KS_AVX2 static uint32_t reaching(const float* x, float bar, uint32_t from, uint32_t n)
    {
        uint32_t i = from / 8 * 8, found = 0;
        for (; i < n && !(found = hits(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(bar), _CMP_NLT_UQ), i, from)); i += 8) {
        }
        return found ? std::min(n, i + uint32_t(__builtin_ctz(found))) : n;
    }
    KS_AVX2 static float largest(const float* x, uint32_t n) { return largest_of(x, n); }

private:
    KS_AVX2 static __m256i bytes(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
    // And the products of eight dims.
    KS_AVX2 KS_ALWAYS_INLINE static __m256i add_products(__m256i sums, const uint8_t* at, __m256i k0, __m256i k4, __m256i ones)
    {
        const __m256i both = _mm256_add_epi16(_mm256_maddubs_epi16(bytes(at), k0), _mm256_maddubs_epi16(bytes(at + 32), k4));
        return _mm256_add_epi32(sums, _mm256_madd_epi16(both, ones));
    }
    // Of eight from i on, those that count.
    KS_AVX2 static uint32_t hits(__m256 lanes, uint32_t i, uint32_t from)
    {
        return uint32_t(_mm256_movemask_ps(lanes)) & (i < from ? ~0u << (from - i) : ~0u);
    }
};
#else
using Avx2 = Plain;
#endif

// The key in the table's steps; it may end before a multiple of eight.
void round(const Grid& g, const float* key, uint32_t dim, Rounded& out)
{
    float ended[codec_max_dim];
    if (dim % 8) {
        std::fill(std::copy_n(key, dim, ended), ended + g.n_dims, 0.0f);
        key = ended;
    }
    (has_avx2 ? Avx2::round : Plain::round)(g, key, out);
}

} // namespace

CoarseKeys::CoarseKeys(const float* keys, uint32_t n_keys, uint32_t dim, bool unit, float* table)
    : m_table(reinterpret_cast<uint8_t*>(table)), m_dim(dim), m_n_dims(padded(dim)), m_unit(unit)
{
    float low[codec_max_dim], high[codec_max_dim], widest = 0;
    (has_avx2 ? Avx2::ranges : Plain::ranges)({keys, n_keys, dim, unit}, low, high);
    for (uint32_t j = 0; j < dim; j++) {
        const float width = (high[j] - low[j]) / 2;
        if (!(width < INFINITY)) continue;
        m_middle[j] = low[j] + width;
        widest = std::max(widest, width);
    }
    m_step = widest / kMost;
    m_steps = widest > 0 ? kMost / widest : 0;
}

float CoarseKeys::set(uint32_t i, const float* key)
{
    Rounded r;
    round({m_middle, m_step, m_steps, m_n_dims, m_unit}, key, m_dim, r);
    uint8_t* to = eight(i) + i % 8 * 4;
    for (uint32_t j = 0; j < m_n_dims; j += 4) std::memcpy(to + j * 8, r.stored + j, 4);
    std::memcpy(to + 8 * m_n_dims, &r.square, 4);
    std::memcpy(to + 8 * m_n_dims + 32, &r.error, 4);
    return r.length;
}

void CoarseKeys::copy(uint32_t to, uint32_t from)
{
    for (uint32_t j = 0; j < m_n_dims / 4 + 2; j++) std::memcpy(eight(to) + j * 32 + to % 8 * 4, eight(from) + j * 32 + from % 8 * 4, 4);
}

float CoarseKeys::bounds(const float* key, uint32_t n, float* apart) const
{
    Rounded r;
    round({m_middle, m_step, m_steps, m_n_dims, m_unit}, key, m_dim, r);
    r.own = r.square;
    for (uint32_t j = 0; j < m_n_dims; j++) r.own += 2 * kZero * r.at[j];
    const Sweep sweep{m_table, eight_bytes(m_n_dims), m_n_dims, n, m_step * m_step * kLess * 15 / 16, r};
    return (has_avx2 ? Avx2::bounds : Plain::bounds)(sweep, apart);
}

uint32_t first_within(const float* x, float limit, uint32_t from, uint32_t n)
{
    return has_avx2 ? Avx2::first(x, limit, from, n) : Plain::first(x, limit, from, n);
}

uint32_t first_within(const float* x, const float* limits, uint32_t from, uint32_t n)
{
    return has_avx2 ? Avx2::first(x, limits, from, n) : Plain::first(x, limits, from, n);
}

uint32_t first_reaching(const float* x, float bar, uint32_t from, uint32_t n)
{
    return (has_avx2 ? Avx2::reaching : Plain::reaching)(x, bar, from, n);
}

float largest(const float* x, uint32_t n)
{
    return (has_avx2 ? Avx2::largest : Plain::largest)(x, n);
}

} // namespace ks
