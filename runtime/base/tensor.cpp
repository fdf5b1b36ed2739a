#include "runtime/base/tensor.h"

#include "runtime/base/status.h"

#include <cstring>

namespace ks
{

// clang-format off
#define KS_INFO(name) \
    {#name, format_##name::ggml_type, format_##name::block, \
     4 * format_##name::words + format_##name::half_words / 2, format_##name::half_words, \
     format_##name::half_byte, format_##name::words, format_##name::words_byte},
// clang-format on
static const FormatInfo kFormats[] = {FORMATS(KS_INFO)};
#undef KS_INFO
static_assert(sizeof kFormats / sizeof kFormats[0] == size_t(Format::n_weights),
              "Format and FORMATS differ");

const FormatInfo& format_info(Format format)
{
    KS_CHECK(format < Format::n_weights, "format %d", int(format));
    return kFormats[int(format)];
}

bool format_from_ggml(uint32_t ggml_type, Format* out)
{
    for (int i = 0; i < int(Format::n_weights); i++) {
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

static uint32_t f32_row(uint32_t head_dim)
{
    return 4 * head_dim;
}

static uint32_t f16_row(uint32_t head_dim)
{
    return 2 * head_dim;
}

template <class Codec>
static uint32_t mean_row(uint32_t head_dim)
{
    // Exact, since head_dim is a multiple of 16.
    return 4 * Codec::group_words(head_dim) / Codec::group;
}

const CodecInfo& codec_info(Format format)
{
    static const CodecInfo f32 = {"f32", false, f32_row}, f16 = {"f16", false, f16_row};
    if (format <= Format::f16) return format == Format::f32 ? f32 : f16;
    switch (format) {
#define KS_CODEC(name, number)                                                                     \
    case Format::name: {                                                                           \
        static const CodecInfo info = {#name, codec_##name::hadamard != 0,                         \
                                       codec_##name::row_bytes};                                   \
        return info;                                                                               \
    }
#define KS_GROUP_CODEC(name, number)                                                               \
    case Format::name: {                                                                           \
        static const CodecInfo info = {#name, codec_##name::hadamard != 0, mean_row<codec_##name>, \
                                       codec_##name::group};                                       \
        return info;                                                                               \
    }
        CODECS(KS_CODEC)
        GROUP_CODECS(KS_GROUP_CODEC)
#undef KS_CODEC
#undef KS_GROUP_CODEC
    default:
        break;
    }
    KS_CHECK(false, "format %d", int(format));
    return f32;
}

bool is_coded(Format format)
{
    return format >= Format::n_weights && format < Format::count;
}

uint32_t codec_number(Format format)
{
    return is_coded(format) ? uint32_t(format) - uint32_t(Format::n_weights) + 2 : uint32_t(format);
}

Format codec_of_number(uint32_t number)
{
    return Format(number <= uint32_t(Format::f16) ? number
                                                  : number - 2 + uint32_t(Format::n_weights));
}

uint64_t coded_bytes(Format format, uint64_t rows, uint32_t head_dim)
{
    const CodecInfo& info = codec_info(format);
    KS_CHECK(rows % info.group == 0, "%s: %llu rows in groups of %u", info.name,
             (unsigned long long)rows, info.group);
    return (rows * info.row_bytes(head_dim) + 63) / 64 * 64;
}

uint32_t tail_bytes(Format format, uint32_t head_dim)
{
    return is_coded(format) && codec_info(format).group == 1
               ? codec_info(format).row_bytes(head_dim) % 4
               : 0;
}

Format codec_of_values(Format format)
{
    if (format == Format::kivi) return Format::kiviv;
    return format == Format::turbo2 ? Format::turbo2v : format;
}

// Swaps the bits of `mask` with those that are n places higher.
static uint32_t swap_bits(uint32_t word, uint32_t mask, int n)
{
    const uint32_t differ = (word ^ word >> n) & mask;
    return word ^ differ ^ differ << n;
}

// Bits 8i + 2j and 8i + 2j + 1 of the result are bits 8j + 2i and 8j + 2i + 1 of the word in the
// file: a transposed square.
static uint32_t permute_pairs(uint32_t word)
{
    return swap_bits(swap_bits(word, 0x00cc00cc, 6), 0x0000f0f0, 12);
}

// Bit 8i + j of the result is bit 4j + i of the word in the file.
static uint32_t permute_bits(uint32_t word)
{
    return swap_bits(swap_bits(permute_pairs(word), 0x0000ff00, 8), 0x00aa00aa, 7);
}

template <class F>
static uint32_t permute(uint32_t word, uint32_t j)
{
    if (F::permuted_word == permuted_pairs) return permute_pairs(word);
    return F::permuted_word == permuted_bits || F::permuted_word == j ? permute_bits(word) : word;
}

// Converts eight rows of the file. Missing rows point to a block of zeros and have step 0. The
// constants of the format make every copy below a plain load and store.
template <class F>
static void rows_to_tile(const uint8_t* const from[tile_rows], const uint32_t step[tile_rows],
                         uint32_t n_blocks, uint32_t* to)
{
    for (uint32_t b = 0; b < n_blocks; b++) {
        if (F::half_words) {
            constexpr uint32_t n = F::half_words / 2; // bytes of a row
            for (uint32_t r = 0; r < tile_rows; r++)
                memcpy(reinterpret_cast<uint8_t*>(to) + n * r,
                       from[r] + uint64_t(b) * step[r] + F::half_byte, n);
            to += F::half_words;
        }
        for (uint32_t j = 0; j < F::words; j++, to += tile_rows) {
            for (uint32_t r = 0; r < tile_rows; r++)
                memcpy(to + r, from[r] + uint64_t(b) * step[r] + F::words_byte + 4 * j, 4);
            for (uint32_t r = 0; r < tile_rows; r++) to[r] = permute<F>(to[r], j);
        }
    }
}

template <class F>
static void rows_to_tiles(const FormatInfo& info, const uint8_t* file_rows, uint32_t n_rows,
                          uint32_t cols, uint32_t* tiles)
{
    static const uint8_t zeros[256] = {};
    static_assert(4 * F::words + F::half_words / 2 <= sizeof zeros, "a block");
    const uint32_t n_blocks = cols / F::block;
    const uint64_t row_bytes = uint64_t(n_blocks) * info.block_bytes;
    for (uint32_t first = 0; first < n_rows; first += tile_rows) {
        const uint8_t* from[tile_rows];
        uint32_t step[tile_rows];
        for (uint32_t r = 0; r < tile_rows; r++) {
            bool there = first + r < n_rows;
            from[r] = there ? file_rows + (first + r) * row_bytes : zeros;
            step[r] = there ? info.block_bytes : 0;
        }
        rows_to_tile<F>(from, step, n_blocks, tiles);
        tiles += uint64_t(n_blocks) * (F::half_words + tile_rows * F::words);
    }
}

void weight_to_tiles(Format format, const uint8_t* file_rows, uint32_t n_rows, uint32_t cols,
                     uint32_t* tiles)
{
    const FormatInfo& info = format_info(format);
    switch (format) {
#define KS_TO_TILES(name)                                                                          \
    case Format::name:                                                                             \
        return rows_to_tiles<format_##name>(info, file_rows, n_rows, cols, tiles);
        FORMATS(KS_TO_TILES)
#undef KS_TO_TILES
    default:
        break;
    }
}

} // namespace ks
