#include "runtime/kv/retain/few_keys.h"

#include <algorithm>
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

void FewKeys::set(uint32_t i, const float* key, float scale)
{
    for (uint32_t k = 0; k < kFew; k++) entry(i)[8 * k] = k < m_n ? key[m_at[k]] * scale : 0;
}

void FewKeys::copy(uint32_t to, uint32_t from)
{
    for (uint32_t k = 0; k < kFew; k++) entry(to)[8 * k] = entry(from)[8 * k];
}

typedef float Float8 __attribute__((vector_size(32)));

// Each entry has a lane of its own, so wider vectors change no bit.
inline __attribute__((always_inline)) void distances_of(const float* table, const float* own, uint32_t n, float* apart)
{
    for (uint32_t i = 0; i < n; i += 8, table += 8 * kFew) {
        Float8 even = {}, odd = {}, x, y; // two sums, as adding takes longer than what else there is to do
        for (uint32_t k = 0; k < kFew; k += 2) {
            std::memcpy(&x, table + 8 * k, sizeof x);
            std::memcpy(&y, table + 8 * k + 8, sizeof y);
            x -= own[k];
            y -= own[k + 1];
            even += x * x;
            odd += y * y;
        }
        even += odd;
        std::memcpy(apart + i, &even, sizeof even);
    }
}

static void distances_plain(const float* table, const float* own, uint32_t n, float* apart)
{
    distances_of(table, own, n, apart);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void distances_avx2(const float* table, const float* own, uint32_t n, float* apart)
{
    distances_of(table, own, n, apart);
}
static const bool has_avx2 = __builtin_cpu_supports("avx2");
#else
static constexpr bool has_avx2 = false;
constexpr auto distances_avx2 = distances_plain;
#endif

void FewKeys::distances(const float* key, float scale, uint32_t n, float* apart) const
{
    float own[kFew] = {};
    for (uint32_t k = 0; k < m_n; k++) own[k] = key[m_at[k]] * scale;
    (has_avx2 ? distances_avx2 : distances_plain)(m_table, own, n, apart);
}

} // namespace ks
