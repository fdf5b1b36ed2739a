#include "runtime/base/tensor.h"

#include "kernels/common/formats.h"
#include "runtime/base/status.h"

#include <cstring>

namespace ks
{

#define KS_INFO(name)                                                                                                                      \
    {#name,                                                                                                                                \
     format_##name::ggml_type,                                                                                                             \
     format_##name::block,                                                                                                                 \
     4 * format_##name::words + format_##name::half_words / 2,                                                                             \
     format_##name::half_words,                                                                                                            \
     format_##name::half_byte,                                                                                                             \
     format_##name::words,                                                                                                                 \
     format_##name::words_byte},
static const FormatInfo kFormats[] = {FORMATS(KS_INFO)};
#undef KS_INFO
static_assert(sizeof kFormats / sizeof kFormats[0] == size_t(Format::count), "Format and FORMATS differ");

#define KS_PERMUTED(name) format_##name::permuted_word,
static const uint32_t kPermutedWord[] = {FORMATS(KS_PERMUTED)};
#undef KS_PERMUTED

const FormatInfo& format_info(Format format)
{
    KS_CHECK(format < Format::count, "format %d", int(format));
    return kFormats[int(format)];
}

bool format_from_ggml(uint32_t ggml_type, Format* out)
{
    for (int i = 0; i < int(Format::count); i++) {
        if (kFormats[i].ggml_type != ggml_type) continue;
        *out = Format(i);
        return true;
    }
    return false;
}

uint64_t weight_bytes(Format format, uint64_t rows, uint64_t cols)
{
    const FormatInfo& info = format_info(format);
    uint64_t tiles = (rows + tile_rows - 1) / tile_rows;
    return tiles * (cols / info.block) * (info.half_words + uint64_t(tile_rows) * info.words) * 4;
}

// Bit 8i + j of the result is bit 4j + i of the file's word.
static uint32_t permute_high_bits(uint32_t word)
{
    uint32_t out = 0;
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t four = word >> (4 * j) & 15u;
        out |= ((four * 0x00204081u) & 0x01010101u) << j;
    }
    return out;
}

void weight_to_tiles(Format format, const uint8_t* file_rows, uint32_t n_rows, uint32_t cols, uint32_t* tiles)
{
    const FormatInfo& info = format_info(format);
    const uint32_t n_blocks = cols / info.block;
    const uint64_t row_bytes = uint64_t(n_blocks) * info.block_bytes;
    const uint32_t permuted = kPermutedWord[int(format)];
    const uint32_t stride = info.half_words + tile_rows * info.words; // words of a tile-block
    for (uint32_t first = 0; first < n_rows; first += tile_rows) {
        uint32_t rows = n_rows - first < tile_rows ? n_rows - first : tile_rows;
        if (rows < tile_rows) memset(tiles, 0, 4ull * stride * n_blocks);
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t* from = file_rows + (first + r) * row_bytes;
            uint32_t* to = tiles;
            for (uint32_t b = 0; b < n_blocks; b++, from += info.block_bytes, to += stride) {
                if (info.half_words) memcpy(reinterpret_cast<uint8_t*>(to) + 2 * r, from + info.half_byte, 2);
                uint32_t* word = to + info.half_words + r;
                for (uint32_t j = 0; j < info.words; j++) memcpy(word + tile_rows * j, from + info.words_byte + 4 * j, 4);
                if (permuted < info.words) word[tile_rows * permuted] = permute_high_bits(word[tile_rows * permuted]);
            }
        }
        tiles += uint64_t(stride) * n_blocks;
    }
}

} // namespace ks
