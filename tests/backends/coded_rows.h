// Rows of coded caches, one by one.
#pragma once

#include "kernels/cpu/codec_rows.h"
#include "tests/backends/op_harness.h"

#include <cstring>

namespace ks
{

inline std::vector<Format> all_codecs()
{
    std::vector<Format> codecs;
    for (int i = int(Format::n_weights); i < int(Format::count); i++) codecs.push_back(Format(i));
    return codecs;
}

const uint32_t kHeadDims[] = {16, 64, 80, 96, 112, 128, 192, 256, 512};

// A row alone: words, then tail.
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

// The two planes of a cache, all of whose rows are those of `never` until they are kept.
struct CodedPool {
    Format format;
    uint32_t n, d;
    std::vector<uint8_t> bytes;

    CodedPool(Format f, uint32_t n_rows, uint32_t head_dim, float never) : format(f), n(n_rows), d(head_dim), bytes(coded_bytes(f, n, d))
    {
        std::vector<float> x(d);
        for (uint32_t row = 0; row < n; row++) {
            x.assign(d, never);
            keep(row, x.data());
        }
    }
    // x becomes what its codes say.
    void keep(uint32_t at, float* x)
    {
        const CodedRow row = coded_row(bytes.data(), n, at, codec_info(format).row_bytes(d));
        encode_row(format, x, d, row.words, row.tail);
        decode_row(format, row.words, row.tail, d, x);
    }
};

inline std::string name_of(Format format, uint32_t d)
{
    return std::string(codec_info(format).name) + ", " + std::to_string(d);
}

} // namespace ks
