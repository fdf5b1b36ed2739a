// Single rows and groups of rows of coded caches, by the scalar specification.
#pragma once

#include "kernels/cpu/codec_rows.h"
#include "tests/backends/op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ks
{

// The codecs that code every row by itself.
inline std::vector<Format> all_codecs()
{
    std::vector<Format> codecs;
    for (int i = int(Format::n_weights); i < int(Format::count); i++)
        if (codec_info(Format(i)).group == 1) codecs.push_back(Format(i));
    return codecs;
}

const uint32_t kHeadDims[] = {16, 64, 80, 96, 112, 128, 192, 256, 512};

// One encoded row: its words, then its tail.
inline std::vector<uint8_t> encode(Format format, const float* x, uint32_t d)
{
    const uint32_t bytes = codec_info(format).row_bytes(d), n_words = bytes / 4;
    std::vector<uint32_t> words(n_words);
    std::vector<uint8_t> row(bytes);
    encode_row(format, x, d, words.data(), row.data() + 4 * n_words);
    memcpy(row.data(), words.data(), 4 * n_words);
    return row;
}

inline std::vector<float> decode(Format format, const std::vector<uint8_t>& row, uint32_t d)
{
    std::vector<uint32_t> words(row.size() / 4 + 1);
    memcpy(words.data(), row.data(), row.size() / 4 * 4);
    std::vector<float> x(d);
    decode_row(format, words.data(), row.data() + row.size() / 4 * 4, d, x.data());
    return x;
}

// The words of one group of rows, x (group, d).
inline std::vector<uint32_t> encode_group(Format format, const float* x, uint32_t d)
{
    std::vector<uint32_t> words(codec_info(format).group * codec_info(format).row_bytes(d) / 4);
    encode_group(format, x, d, words.data());
    return words;
}

// The rows of one group, (group, d).
inline std::vector<float> decode_group(Format format, const std::vector<uint32_t>& words,
                                       uint32_t d)
{
    const uint32_t group = codec_info(format).group;
    std::vector<float> x(group * d);
    for (uint32_t r = 0; r < group; r++) decode_group_row(format, words.data(), r, d, &x[r * d]);
    return x;
}

// A coded pool in the layout of coded_row. Rows have the value `unwritten` until keep() sets them.
struct CodedPool {
    Format format;
    uint32_t n, d;
    std::vector<uint8_t> bytes;

    CodedPool(Format f, uint32_t n_rows, uint32_t head_dim, float unwritten)
        : format(f), n(n_rows), d(head_dim), bytes(coded_bytes(f, n, d))
    {
        const uint32_t group = codec_info(f).group;
        std::vector<float> x(group * d, unwritten);
        if (group > 1) {
            const std::vector<uint32_t> words = encode_group(format, x.data(), d);
            for (uint32_t row = 0; row < n; row += group) put_group(row, words);
            return;
        }
        const std::vector<uint8_t> one = encode(format, x.data(), d);
        for (uint32_t row = 0; row < n; row++) {
            const CodedRow to = coded_row(bytes.data(), n, row, uint32_t(one.size()));
            memcpy(to.words, one.data(), one.size() / 4 * 4);
            memcpy(to.tail, one.data() + one.size() / 4 * 4, one.size() % 4);
        }
    }
    void put_group(uint32_t at, const std::vector<uint32_t>& words)
    {
        memcpy(bytes.data() + uint64_t(at) * codec_info(format).row_bytes(d), words.data(),
               4 * words.size());
    }
    // Encodes x, one row or the group of rows from row `at` on, and replaces x by the decoded
    // values.
    void keep(uint32_t at, float* x)
    {
        if (codec_info(format).group > 1) {
            const std::vector<uint32_t> words = encode_group(format, x, d);
            const std::vector<float> decoded = decode_group(format, words, d);
            put_group(at, words);
            std::copy(decoded.begin(), decoded.end(), x);
            return;
        }
        const CodedRow row = coded_row(bytes.data(), n, at, codec_info(format).row_bytes(d));
        encode_row(format, x, d, row.words, row.tail);
        decode_row(format, row.words, row.tail, d, x);
    }
};

// The scalar kernels, the ones chosen for this processor, and with AVX-512 also the ones of AVX2.
inline std::vector<const VectorKernels*> vector_tables()
{
    const VectorKernels* chosen = &choose_cpu_kernels().vector;
    std::vector<const VectorKernels*> tables = {kVectorGeneric, chosen};
    if (chosen == kVectorAvx512) tables.push_back(kVectorAvx2);
    return tables;
}

// y = H D x, or its inverse D H x, in float64. H[i][j] = (-1)^popcount(i & j) / sqrt(block), D has
// the signs of hadamard_sign.
template <class T>
std::vector<double> hadamard(const T* x, uint32_t d, bool inverse)
{
    std::vector<double> y(d);
    for (uint32_t base = 0, left = d, block; left; base += block, left -= block) {
        block = 1;
        while (block * 2 <= left) block *= 2;
        for (uint32_t i = 0; i < block; i++)
            for (uint32_t j = 0; j < block; j++) {
                const double sign = (__builtin_popcount(i & j) % 2 ? -1 : 1) *
                                    hadamard_sign(base + (inverse ? i : j));
                y[base + i] += sign * double(x[base + j]) / std::sqrt(double(block));
            }
    }
    return y;
}

inline std::string name_of(Format format, uint32_t d)
{
    return std::string(codec_info(format).name) + ", " + std::to_string(d);
}

} // namespace ks
