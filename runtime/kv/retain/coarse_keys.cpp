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

constexpr int32_t kMost = 63, kZero = 64; // of a coordinate; stored as byte kZero + x, so that no two products leave 16 bits
constexpr float kLess = 0.9999f;          // what a bound keeps of itself: more than rounding does to it or to the exact distance

CoarseKeys::CoarseKeys(const float* keys, uint32_t n_keys, uint32_t dim, bool unit, float* table)
    : m_table(reinterpret_cast<uint8_t*>(table)), m_dim(dim)
{
    const uint32_t step = n_keys / 128 + 1; // some will do
    float low[codec_max_dim], high[codec_max_dim], widest = 0;
    std::fill_n(low, dim, INFINITY);
    std::fill_n(high, dim, -INFINITY);
    for (uint32_t i = 0; i < n_keys; i += step) {
        const float* key = keys + uint64_t(i) * dim;
        const float scale = unit ? 1 / std::sqrt(dot(key, key, dim)) : 1;
        for (uint32_t j = 0; j < dim; j++) {
            const float x = key[j] * scale;
            low[j] = x < low[j] ? x : low[j];
            high[j] = x > high[j] ? x : high[j];
        }
    }
    for (uint32_t j = 0; j < dim; j++) {
        const float width = (high[j] - low[j]) / 2;
        m_middle[j] = width < INFINITY ? low[j] + width : 0;
        widest = width < INFINITY ? std::max(widest, width) : widest;
    }
    m_step = widest / kMost;
    m_steps = widest > 0 ? kMost / widest : 0;
}

// A key that is no number has an error that is none, and a bound of zero.
CoarseKeys::Point CoarseKeys::round(const float* key, float scale, int8_t* at) const
{
    int32_t square = 0;
    float squares[8] = {};
    for (uint32_t j = 0; j < m_dim; j++) {
        const float x = key[j] * scale - m_middle[j], steps = x * m_steps + (kZero + 0.5f);
        const float within = steps > kZero - kMost ? (steps < kZero + kMost ? steps : kZero + kMost) : kZero - kMost;
        at[j] = int8_t(int32_t(within) - kZero);
        const float off = x - float(at[j]) * m_step;
        squares[j % 8] += off * off;
        square += at[j] * at[j];
    }
    std::memset(at + m_dim, 0, padded(m_dim) - m_dim);
    float error = 0;
    for (float part : squares) error += part;
    return {square, std::sqrt(error) / kLess};
}

void CoarseKeys::set(uint32_t i, const float* key, float scale)
{
    int8_t at[codec_max_dim];
    const Point p = round(key, scale, at);
    for (uint32_t j = 0; j < padded(m_dim); j++) eight(i)[j / 4 * 32 + i % 8 * 4 + j % 4] = uint8_t(at[j] + kZero);
    std::memcpy(point(i), &p.square, 4);
    std::memcpy(point(i) + 32, &p.error, 4);
}

void CoarseKeys::copy(uint32_t to, uint32_t from)
{
    for (uint32_t j = 0; j < padded(m_dim) / 4 + 2; j++)
        std::memcpy(eight(to) + j * 32 + to % 8 * 4, eight(from) + j * 32 + from % 8 * 4, 4);
}

// Squared distances of the key to eight entries, in steps.
static void eight_plain(const uint8_t* eight, const int8_t* key, uint32_t n_dims, int32_t own, int32_t* apart)
{
    int32_t sums[8] = {};
    for (uint32_t j = 0; j < n_dims; j += 4)
        for (uint32_t i = 0; i < 8; i++)
            for (uint32_t k = 0; k < 4; k++) sums[i] += int32_t(eight[j * 8 + i * 4 + k]) * key[j + k];
    for (uint32_t i = 0; i < 8; i++) {
        int32_t square;
        std::memcpy(&square, eight + n_dims * 8 + i * 4, 4);
        apart[i] = own + square - 2 * sums[i];
    }
}

static float bounds_plain(const uint8_t* table, uint64_t eight_bytes, const int8_t* key, uint32_t n_dims, int32_t own, float error,
                          float step, uint32_t n, float* apart)
{
    float least = INFINITY;
    for (uint32_t i = 0; i < n; i += 8, table += eight_bytes) {
        int32_t steps[8];
        float errors[8];
        eight_plain(table, key, n_dims, own, steps);
        std::memcpy(errors, table + n_dims * 8 + 32, sizeof errors);
        for (uint32_t k = 0; k < 8; k++) {
            const float bound = std::sqrt(float(steps[k])) * step - (errors[k] + error), some = bound > 0 ? bound : 0;
            apart[i + k] = i + k < n ? some * some : INFINITY;
            least = std::min(least, apart[i + k]);
        }
    }
    return least;
}

static uint32_t first_plain(const float* apart, uint32_t from, uint32_t n, float limit)
{
    for (uint32_t i = from; i < n; i++)
        if (!(apart[i] > limit)) return i;
    return n;
}

#ifdef __x86_64__
// The same integers, and the same operations on each float.
__attribute__((target("avx2"))) static float bounds_avx2(const uint8_t* table, uint64_t eight_bytes, const int8_t* key, uint32_t n_dims,
                                                         int32_t own, float error, float step, uint32_t n, float* apart)
{
    const __m256i ones = _mm256_set1_epi16(1), all_own = _mm256_set1_epi32(own);
    const __m256 all_error = _mm256_set1_ps(error), all_step = _mm256_set1_ps(step);
    __m256 least = _mm256_set1_ps(INFINITY);
    for (uint32_t i = 0; i < n; i += 8, table += eight_bytes) {
        __m256i sums = _mm256_setzero_si256();
        const auto four = [&](uint32_t j) __attribute__((target("avx2"), always_inline))
        {
            int32_t of_key;
            std::memcpy(&of_key, key + j, 4);
            return _mm256_maddubs_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table + j * 8)), _mm256_set1_epi32(of_key));
        };
        for (uint32_t j = 0; j < n_dims; j += 8)
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_add_epi16(four(j), four(j + 4)), ones));
        const __m256i squares = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(table + n_dims * 8));
        const __m256 errors = _mm256_loadu_ps(reinterpret_cast<const float*>(table + n_dims * 8 + 32));
        const __m256i steps = _mm256_sub_epi32(_mm256_add_epi32(all_own, squares), _mm256_slli_epi32(sums, 1));
        const __m256 bound =
            _mm256_sub_ps(_mm256_mul_ps(_mm256_sqrt_ps(_mm256_cvtepi32_ps(steps)), all_step), _mm256_add_ps(errors, all_error));
        const __m256 some = _mm256_and_ps(bound, _mm256_cmp_ps(bound, _mm256_setzero_ps(), _CMP_GT_OQ));
        const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(int32_t(n - i)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        const __m256 squared = _mm256_blendv_ps(_mm256_set1_ps(INFINITY), _mm256_mul_ps(some, some), _mm256_castsi256_ps(there));
        _mm256_storeu_ps(apart + i, squared);
        least = _mm256_min_ps(least, squared);
    }
    float lanes[8], of_all = INFINITY;
    _mm256_storeu_ps(lanes, least);
    for (float lane : lanes) of_all = std::min(of_all, lane);
    return of_all;
}

__attribute__((target("avx2"))) static uint32_t first_avx2(const float* apart, uint32_t from, uint32_t n, float limit)
{
    for (uint32_t i = from / 8 * 8; i < n; i += 8) {
        const int above = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(apart + i), _mm256_set1_ps(limit), _CMP_GT_OQ));
        for (uint32_t j = std::max(i, from); above != 0xff && j < std::min(i + 8, n); j++)
            if (!(above >> (j - i) & 1)) return j;
    }
    return n;
}
static const bool has_avx2 = __builtin_cpu_supports("avx2");
#else
static constexpr bool has_avx2 = false;
constexpr auto bounds_avx2 = bounds_plain;
constexpr auto first_avx2 = first_plain;
#endif

float CoarseKeys::bounds(const float* key, float scale, uint32_t n, float* apart) const
{
    int8_t at[codec_max_dim];
    const Point p = round(key, scale, at);
    const uint32_t n_dims = uint32_t(padded(m_dim));
    int32_t own = p.square; // and what the bytes' zero adds to twice a product
    for (uint32_t j = 0; j < n_dims; j++) own += 2 * kZero * at[j];
    return (has_avx2 ? bounds_avx2 : bounds_plain)(m_table, eight_bytes(m_dim), at, n_dims, own, p.error, m_step * kLess, n, apart);
}

uint32_t CoarseKeys::first_within(const float* apart, uint32_t from, uint32_t n, float limit)
{
    return (has_avx2 ? first_avx2 : first_plain)(apart, from, n, limit);
}

} // namespace ks
