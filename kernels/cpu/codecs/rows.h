// Decodes rows to f32 as attention reads them. Heads of a multiple of 64 values have loops of their
// own, without a copy of the row and without branches. Row::any_dim decodes other heads to the same
// bits.
#pragma once

#include "kernels/cpu/codecs/codec.h"
#include "kernels/cpu/codecs/vectors.h"
#include "kernels/cpu/vector_math.h"

namespace ks
{

// Codes of 64 dims of a plane. Right shifts by multiples of dims / 2 give one vector of adjacent
// dims after the other.
template <class V, uint32_t bits, uint32_t dims>
KS_INLINE typename V::W in_fields(typename V::W words)
{
    static const uint32_t right[3][2][16] = {
        {{0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3},
         {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}},
        {{0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2},
         {0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6}},
        {{}, {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4}}};
    return 2 * bits == dims ? words : V::shift_each(words, right[bits / 2][dims / 16]);
}

// A row of a multiple of 64 values, read in vectors of `dims` values. Its tail, if any, is one f16.
template <class V>
struct OneRow {
    static constexpr int dims = V::lanes;
    const uint32_t* words;
    const uint8_t* tail;

    KS_INLINE OneRow(const uint32_t* pool, const uint8_t* tails, uint32_t n_words, uint32_t n_tail,
                     const uint32_t* rows)
        : words(pool + size_t(rows[0]) * n_words), tail(tails + size_t(rows[0]) * n_tail)
    {
    }
    template <uint32_t bits>
    KS_INLINE typename V::W plane(uint32_t word) const
    {
        return in_fields<V, bits, dims>(V::template repeat<2 * bits>(words + word));
    }
    // 64 signed bytes from a word on; at() gives one vector of them.
    struct Bytes {
        const int8_t* bytes;
        Bytes() = default;
        KS_INLINE Bytes(const OneRow& row, uint32_t word)
            : bytes(reinterpret_cast<const int8_t*>(row.words + word))
        {
        }
        KS_INLINE typename V::W at(int nth) const { return V::load_bytes(bytes + nth * dims); }
    };
    KS_INLINE typename V::F half(uint32_t nth) const
    {
        return V::broadcast_half(reinterpret_cast<const uint16_t*>(words)[nth]);
    }
    KS_INLINE void half4(uint32_t nth, typename V::F* x) const
    {
        V::broadcast_half4(reinterpret_cast<const uint16_t*>(words) + nth, x);
    }
    KS_INLINE typename V::F tail_half() const
    {
        return V::broadcast_half(tail[0] | uint32_t(tail[1]) << 8);
    }
    // Bytes from byte `nth` on, of a row of row_bytes bytes. They do not cross from the words into
    // the tail.
    template <class T>
    KS_INLINE T code(uint32_t row_bytes, uint32_t nth) const
    {
        const uint32_t n = row_bytes / 4 * 4;
        T x;
        memcpy(&x, nth < n ? reinterpret_cast<const uint8_t*>(words) + nth : tail + (nth - n),
               sizeof x);
        return x;
    }
};

// Codes as floats from `least` on. Bits of a lane above the code are ignored. Vectors of sixteen
// lanes look them up in a table.
template <uint32_t bits, int least>
struct CodeFloats {
    float at[16];
    constexpr CodeFloats() : at()
    {
        for (int i = 0; i < 16; i++) at[i] = float(i % (1 << bits) + least);
    }
    template <class V>
    KS_INLINE static typename V::F all()
    {
        static constexpr CodeFloats<bits, least> floats;
        return V::load(floats.at);
    }
    template <class V>
    KS_INLINE static typename V::F of(typename V::W codes)
    {
        if constexpr (V::lanes == 16)
            return V::pick_of(all<V>(), codes);
        else
            return V::to_float((codes & V::each((1u << bits) - 1)) - V::each(uint32_t(-least)));
    }
};

// Decodes rows of a multiple of 64 values. known_d: d if it is a common head size, so that offsets
// in a row are constants; else 0.
template <class Row, uint32_t known_d>
void decode_groups(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                   uint32_t d, float* x, const PrefetchRows& ahead)
{
    if (known_d) d = known_d;
    using V = typename Row::V;
    const Row decoder;
    const uint32_t n_words = from.row_words, n_tail = from.row_tail;
    for (uint32_t i = 0; i < n; i++, x += d) {
        const uint32_t row = rows[i] - first;
        prefetch(ahead, i);
        for (uint32_t base = 0; base < d; base += 64) {
            const typename Row::Values values(
                decoder, OneRow<V>(from.words, from.tails, n_words, n_tail, &row), d, base);
            KS_UNROLL(8)
            for (int j = 0; j < 64 / int(V::lanes); j++)
                V::store(x + base + V::lanes * j, values.at(j));
        }
    }
}

// Decodes rows rows[i] - first of a pool into x (n, d).
template <class Row>
void decode_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                 uint32_t d, float* x, const PrefetchRows& ahead)
{
    if (d == 64) return decode_groups<Row, 64>(from, rows, first, n, d, x, ahead);
    if (d == 128) return decode_groups<Row, 128>(from, rows, first, n, d, x, ahead);
    if (d == 256) return decode_groups<Row, 256>(from, rows, first, n, d, x, ahead);
    if (d % 64 == 0) return decode_groups<Row, 0>(from, rows, first, n, d, x, ahead);
    for (uint32_t i = 0; i < n; i++) {
        const size_t row = rows[i] - first;
        prefetch(ahead, i);
        Row::any_dim(from.words + row * from.row_words, from.tails + row * from.row_tail, d,
                     x + size_t(i) * d);
    }
}

} // namespace ks
