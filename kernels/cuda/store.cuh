// Writes rows of a cache.
#pragma once

#include "kernels/cuda/cache.cuh"

namespace ks
{

// Stores the codes in `row` as row r.
template <class C>
DEVICE void store_row(const CudaCache& to, uint r, uint d, const uint* row)
{
    const uint words = C::words(d), n_tail = C::n_tail(d);
    uint* out = row_words<C>(to, r, d);
    uint8_t* tail =
        reinterpret_cast<uint8_t*>(to.words + uint64_t(to.n_rows) * words) + uint64_t(r) * n_tail;
    for (uint i = 0u; i < words; i++) out[i] = row[i];
    for (uint i = 0u; i < n_tail; i++) tail[i] = uint8_t(row[words] >> (8u * i));
}

DEVICE void store_value(const CudaCache& to, uint r, uint i, uint d, float value)
{
    if (to.format == plain_f32)
        to.words[uint64_t(r) * d + i] = FLOAT_TO_BITS(value);
    else
        reinterpret_cast<uint16_t*>(to.words)[uint64_t(r) * d + i] = uint16_t(FLOAT_TO_HALF(value));
}

} // namespace ks
