// Rows of a coded pool become f32, a tile at a time.
#pragma once

#include "kernels/cpu/attention_tile.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// f32 and f16 are codecs, too.
template <class S, bool half> void decode_plain(const CodedRows& from, const uint32_t* rows, uint32_t n, uint32_t head_dim, float* out)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < head_dim; d += 8)
            S::store(out + size_t(i) * head_dim + d, load_cached<S, half>(from.words, size_t(rows[i]) * head_dim + d));
}

} // namespace
} // namespace ks
