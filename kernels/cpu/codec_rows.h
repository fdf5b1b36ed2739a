// Encodes and decodes rows of a cache one by one, and groups of rows: f32, f16 and the codecs of
// kernels/common/codecs.h.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/tensor.h"

namespace ks
{

// The index of a cache's format in CodecTable.
inline int codec_index(Format format)
{
    return int(codec_number(format));
}

// The words of a row, and its tail.
struct CodedRow {
    uint32_t* words;
    uint8_t* tail;
};

// Row `row` of n_rows in the two planes at `cache`: words of all rows, then tails of all rows.
inline CodedRow coded_row(void* cache, uint64_t n_rows, uint64_t row, uint32_t row_bytes)
{
    const uint32_t n_words = row_bytes / 4, n_tail = row_bytes % 4;
    return {static_cast<uint32_t*>(cache) + row * n_words,
            static_cast<uint8_t*>(cache) + 4 * n_rows * n_words + row * n_tail};
}

inline CodedRow coded_row(const Tensor& t, uint64_t row)
{
    const uint32_t row_bytes = codec_info(t.format).row_bytes(t.cols);
    if (is_coded(t.format)) return coded_row(t.ptr<uint8_t>(), t.rows, row, row_bytes);
    return {reinterpret_cast<uint32_t*>(t.ptr<uint8_t>() + row * row_bytes), nullptr}; // one plane
}

// A row's tail, at most three bytes, as one word.
inline uint32_t tail_word(const uint8_t* tail, uint32_t row_bytes)
{
    const uint32_t n = row_bytes % 4;
    uint16_t two = 0;
    if (n > 1) memcpy(&two, tail, 2);
    return n % 2 ? two | uint32_t(tail[n - 1]) << (8 * (n - 1)) : two;
}

template <class Codec>
static inline void encode_row(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
{
    uint32_t row[codec_max_dim + 1]; // no codec needs more than four bytes per value
    const uint32_t bytes = Codec::row_bytes(d);
    Codec::encode(x, row, d);
    memcpy(words, row, bytes / 4 * 4);
    for (uint32_t i = 0; i < bytes % 4; i++) tail[i] = uint8_t(row[bytes / 4] >> (8 * i));
}

template <class Codec>
static inline void decode_row(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    const uint32_t last = tail_word(tail, Codec::row_bytes(d));
    for (uint32_t i = 0; i < d; i++) x[i] = Codec::value(words, 0, last, i, d);
}

void encode_row(Format format, const float* x, uint32_t d, uint32_t* words, uint8_t* tail);
void decode_row(Format format, const uint32_t* words, const uint8_t* tail, uint32_t d, float* x);

constexpr uint32_t kMostInGroup = kivi_rows; // rows of the largest group

// The words of the group that has the row.
inline uint32_t* coded_group(const Tensor& t, uint64_t row)
{
    const CodecInfo& info = codec_info(t.format);
    return t.ptr<uint32_t>() + row / info.group * (info.group * info.row_bytes(t.cols) / 4);
}

void encode_group(Format format, const float* x, uint32_t d, uint32_t* words); // x (group, d)
void decode_group_row(Format format, const uint32_t* words, uint32_t nth, uint32_t d, float* x);
// Checks that moves (n, 2) fill whole groups: the rows of each group, in order.
void check_group_moves(Format format, const uint32_t* moves, uint32_t n);

} // namespace ks
