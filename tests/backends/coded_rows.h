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

inline std::string name_of(Format format, uint32_t d)
{
    return std::string(codec_info(format).name) + ", " + std::to_string(d);
}

} // namespace ks
