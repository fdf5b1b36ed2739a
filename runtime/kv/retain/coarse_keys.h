// A head's keys in 7 bits per coordinate: a bound of each distance from integer products, which mostly spares the exact one.
#pragma once

#include "kernels/common/codecs.h"

#include <cstdint>

namespace ks
{

class CoarseKeys
{
public:
    static uint64_t floats_needed(uint32_t n, uint32_t dim) { return uint64_t(n + 7) / 8 * eight_bytes(dim) / 4; } // of a table for n keys

    CoarseKeys() = default;
    // keys (n_keys, dim): those that say where the table's grid lies; it has no keys yet. unit: all keys are taken at length 1.
    CoarseKeys(const float* keys, uint32_t n_keys, uint32_t dim, bool unit, float* table);

    float set(uint32_t i, const float* key); // entry i is the key; returns its length, if `unit`
    void copy(uint32_t to, uint32_t from);
    // apart[i] is not above the squared distance of the key to entry i, for i < n; infinity from there to a multiple of
    // eight. Returns the least.
    float bounds(const float* key, uint32_t n, float* apart) const;

private:
    // Of eight keys side by side: a byte per coordinate, four of a key together, then the squares of all, then the errors of all.
    static uint32_t padded(uint32_t dim) { return (dim + 7) / 8 * 8; }
    static uint64_t eight_bytes(uint32_t dim) { return 8 * padded(dim) + 64; }
    uint8_t* eight(uint32_t i) const { return m_table + i / 8 * eight_bytes(m_n_dims); }

    uint8_t* m_table = nullptr;
    uint32_t m_dim = 0, m_n_dims = 0; // n_dims: with zeros up to a multiple of eight
    bool m_unit = false;
    float m_step = 0, m_steps = 0; // a coordinate's, and how many of them are 1
    float m_middle[codec_max_dim] = {};
};

// Over eight at a time. The first i of [from, n) where x[i] is not above the limit, or its own one; n: there is none.
uint32_t first_within(const float* x, float limit, uint32_t from, uint32_t n);
uint32_t first_within(const float* x, const float* limits, uint32_t from, uint32_t n); // readable up to a multiple of eight
uint32_t first_reaching(const float* x, float bar, uint32_t from, uint32_t n);         // where it is not below the bar
float largest(const float* x, uint32_t n);

} // namespace ks
