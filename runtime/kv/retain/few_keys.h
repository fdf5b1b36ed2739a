// The coordinates in which a head's keys spread most: two keys are at least as far apart as these few say, which mostly spares a
// comparison of the rest.
#pragma once

#include <cstdint>

namespace ks
{

constexpr uint32_t kFew = 24;

class FewKeys
{
public:
    static uint64_t floats_needed(uint32_t n) { return uint64_t(n + 7) / 8 * 8 * (kFew + 1); } // of a table for n keys

    FewKeys() = default;
    // keys (n_keys, dim): those that say which coordinates; the table has no keys yet.
    FewKeys(const float* keys, uint32_t n_keys, uint32_t dim, float* table);

    void set(uint32_t i, const float* key, float scale); // entry i is the key, scaled
    void copy(uint32_t to, uint32_t from);
    // apart[i] is less than the squared distance of the scaled key to entry i, for i < n; infinity from there to a multiple of
    // eight. Returns the least.
    float bounds(const float* key, float scale, uint32_t n, float* apart) const;
    // The first i >= from where apart[i] is not above the limit; n: there is none.
    static uint32_t first_within(const float* apart, uint32_t from, uint32_t n, float limit);

private:
    float* entry(uint32_t i) const { return m_table + i / 8 * (8 * (kFew + 1)) + i % 8; } // and every eighth float from there
    float* m_table = nullptr; // (n / 8, kFew + 1, 8): coordinates, then the sum of their squares
    uint32_t m_n = 0, m_at[kFew] = {};
};

} // namespace ks
