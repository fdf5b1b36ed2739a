// Weight formats: the values of pinned blocks are right bit for bit, tiles lose no bit of a file,
// and f16 conversions give the bits of the hardware.
#include "kernels/common/formats.h"
#include "runtime/base/rng.h"
#include "runtime/base/tensor.h"
#include "tests/backends/golden_formats.h"
#include "tests/backends/op_harness.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <iterator>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace ks;

static std::vector<uint8_t> random_bytes(size_t n, uint64_t seed)
{
    std::vector<uint8_t> bytes(n + 16);
    for (size_t i = 0; i < n; i += 16) {
        std::array<uint32_t, 4> words = philox({uint32_t(i), 0, 0, 0}, seed);
        memcpy(&bytes[i], words.data(), 16);
    }
    bytes.resize(n);
    return bytes;
}

// Converts a matrix to tiles and checks that the word behind them is not written.
static std::vector<uint32_t> to_tiles(Format format, const std::vector<uint8_t>& file,
                                      uint32_t rows, uint32_t cols)
{
    constexpr uint32_t kGuard = 0xa5a5a5a5;
    std::vector<uint32_t> tiles(weight_bytes(format, rows, cols) / 4 + 1, kGuard);
    weight_to_tiles(format, file.data(), rows, cols, tiles.data());
    CHECK(tiles.back() == kGuard);
    tiles.pop_back();
    return tiles;
}

template <class F>
static void check_golden(Format format, uint32_t ggml_type, const uint8_t* bytes, size_t n_bytes,
                         const uint32_t* values, size_t n_values)
{
    const FormatInfo& info = format_info(format);
    CAPTURE(info.name);
    CHECK(info.ggml_type == ggml_type);
    const uint32_t n = uint32_t(n_values / info.block); // pinned blocks
    REQUIRE(n * info.block == n_values);
    REQUIRE(n * info.block_bytes == n_bytes);
    const uint32_t rows = 19, n_blocks = 3,
                   cols = n_blocks * info.block; // two full tiles and three rows
    std::vector<uint8_t> file;
    for (uint32_t i = 0; i < rows * n_blocks; i++)
        file.insert(file.end(), bytes + i % n * info.block_bytes,
                    bytes + (i % n + 1) * info.block_bytes);
    std::vector<uint32_t> tiles = to_tiles(format, file, rows, cols);
    const uint32_t stride = F::half_words + tile_rows * F::words;
    int wrong = 0;
    for (uint32_t i = 0; i < rows * n_blocks; i++) {
        uint32_t row = i / n_blocks, at = (row / tile_rows * n_blocks + i % n_blocks) * stride;
        for (uint32_t k = 0; k < F::block; k++)
            wrong += FLOAT_TO_BITS(F::value(tiles.data(), at, row % tile_rows, k)) !=
                     values[i % n * F::block + k];
    }
    CHECK(wrong == 0);
}

TEST_CASE("formats: values of pinned blocks")
{
#define KS_GOLDEN(name)                                                                            \
    check_golden<format_##name>(Format::name, golden_##name##_type, golden_##name##_bytes,         \
                                sizeof golden_##name##_bytes, golden_##name##_values,              \
                                sizeof golden_##name##_values / 4);
    FORMATS(KS_GOLDEN)
#undef KS_GOLDEN
}

// The CRC32 of zlib and PNG.
static uint32_t crc32(const std::vector<float>& values)
{
    uint32_t crc = ~0u;
    for (float value : values) {
        crc ^= FLOAT_TO_BITS(value);
        for (int i = 0; i < 32; i++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
    }
    return ~crc;
}

TEST_CASE("formats: values of a thousand blocks, which reach every entry of a grid")
{
    CHECK(std::size(golden_many) == size_t(Format::n_weights) - 3); // all but f32, f16, bf16
    for (const GoldenMany& golden : golden_many) {
        Format format;
        REQUIRE(format_from_ggml(golden.type, &format));
        const FormatInfo& info = format_info(format);
        CAPTURE(info.name);
        FileMatrix m{format, 1, 1000 * info.block, {}};
        for (uint32_t at = 0; at < 1000 * info.block_bytes; at++) { // as the script makes them
            const uint32_t hashed = at * 2654435761u;
            m.bytes.push_back(uint8_t((hashed ^ hashed >> 15) * 2246822519u >> 24));
        }
        for (size_t at = 0; at < m.bytes.size(); at += info.block_bytes)
            for (int scale : golden.scales)
                if (scale >= 0) memcpy(&m.bytes[at + size_t(scale)], "\0\x3c", 2); // 1
        for (size_t at = 0; format == Format::iq1_m && at < m.bytes.size(); at += info.block_bytes)
            put_iq1_m_half(&m.bytes[at], 0x3c00);
        CHECK(crc32(m.values()) == golden.crc);
    }
}

// Field 4j + i of a file's word, of n bits, is at bit 8i + nj of the tile's.
static uint32_t file_order(uint32_t word, uint32_t n)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < 8 / n; j++)
            out |= (word >> (8 * i + n * j) & ((1u << n) - 1)) << (n * (4 * j + i));
    return out;
}

// The block of a row in the layout of the file, rebuilt from a tile by the description in
// formats.h.
template <class F>
static void block_from_tile(const uint32_t* tile, uint32_t r, uint8_t* out)
{
    if (F::half_words)
        memcpy(out + F::half_byte, reinterpret_cast<const uint8_t*>(tile) + F::half_words / 2 * r,
               F::half_words / 2);
    for (uint32_t j = 0; j < F::words; j++) {
        uint32_t word = tile[F::half_words + tile_rows * j + r];
        if (j == F::permuted_word || F::permuted_word == permuted_bits) word = file_order(word, 1);
        if (F::permuted_word == permuted_pairs) word = file_order(word, 2);
        memcpy(out + F::words_byte + 4 * j, &word, 4);
    }
}

template <class F>
static void check_lossless(Format format)
{
    const FormatInfo& info = format_info(format);
    CAPTURE(info.name);
    for (uint32_t rows : {1u, 7u, 8u, 9u, 24u}) {
        const uint32_t n_blocks = rows == 24 ? 1 : 5;
        std::vector<uint8_t> file = random_bytes(rows * n_blocks * info.block_bytes, rows);
        std::vector<uint32_t> tiles = to_tiles(format, file, rows, n_blocks * info.block);
        const uint32_t stride = F::half_words + tile_rows * F::words, n_tiles = (rows + 7) / 8;
        CHECK(tiles.size() * 4 ==
              n_tiles * 8 * n_blocks *
                  info.block_bytes); // the bytes of the file and of padding rows
        std::vector<uint8_t> back(n_tiles * 8 * n_blocks * info.block_bytes, 0xff);
        for (uint32_t i = 0; i < n_tiles * 8 * n_blocks; i++) {
            uint32_t row = i / n_blocks;
            block_from_tile<F>(&tiles[(row / 8 * n_blocks + i % n_blocks) * stride], row % 8,
                               &back[i * info.block_bytes]);
        }
        file.resize(back.size(), 0);
        CHECK(back == file);
    }
}

TEST_CASE("formats: tiles keep every bit of a file and have zeros as padding")
{
#define KS_LOSSLESS(name) check_lossless<format_##name>(Format::name);
    FORMATS(KS_LOSSLESS)
#undef KS_LOSSLESS
}

TEST_CASE("formats: the type numbers of GGUF files")
{
    int known = 0;
    for (uint32_t type = 0; type < 1000; type++) {
        Format format = Format::count;
        if (!format_from_ggml(type, &format)) continue;
        known++;
        CHECK(format_info(format).ggml_type == type);
    }
    CHECK(known == int(Format::n_weights));
    Format format;
    CHECK_FALSE(format_from_ggml(0xffffffff, &format));
    CHECK_FALSE(format_from_ggml(4, &format)); // q4_2, withdrawn
}

#if defined(__x86_64__)
static bool has_hardware_f16()
{
    return __builtin_cpu_supports("avx2"); // every CPU with AVX2 has F16C
}
__attribute__((target("f16c"))) static float hardware_to_float(uint32_t half)
{
    return _cvtsh_ss(uint16_t(half));
}
__attribute__((target("f16c"))) static uint32_t hardware_to_half(float f)
{
    return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__aarch64__)
static bool has_hardware_f16()
{
    return true;
}
static float hardware_to_float(uint32_t half)
{
    uint16_t bits = uint16_t(half);
    __fp16 h;
    memcpy(&h, &bits, 2);
    return float(h);
}
static uint32_t hardware_to_half(float f)
{
    __fp16 h = __fp16(f);
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return bits;
}
#else
static bool has_hardware_f16()
{
    return false;
}
static float hardware_to_float(uint32_t)
{
    return 0;
}
static uint32_t hardware_to_half(float)
{
    return 0;
}
#endif

static bool same_half(uint32_t bits)
{
    return FLOAT_TO_HALF(BITS_TO_FLOAT(bits)) == hardware_to_half(BITS_TO_FLOAT(bits));
}

TEST_CASE("f16: every value survives the conversion to f32 and back")
{
    int wrong = 0;
    for (uint32_t half = 0; half < 65536; half++) {
        bool nan = (half & 0x7fffu) > 0x7c00u;
        wrong += FLOAT_TO_HALF(HALF_TO_FLOAT(half)) !=
                 (nan ? half | 0x200u : half); // a NaN becomes a quiet NaN
    }
    CHECK(wrong == 0);
    CHECK(HALF_TO_FLOAT(0x3555) == 0.333251953125f);
    CHECK(HALF_TO_FLOAT(0x0001) == 0x1p-24f);
    CHECK(HALF_TO_FLOAT(0x7bff) == 65504.f);
}

TEST_CASE("f16: conversions have the bits of the hardware")
{
    if (!has_hardware_f16()) return;
    int wrong = 0;
    for (uint32_t half = 0; half < 65536; half++) {
        uint32_t bits = FLOAT_TO_BITS(hardware_to_float(half));
        wrong += FLOAT_TO_BITS(HALF_TO_FLOAT(half)) != bits;
        // The floats around every f16 value, and around the tie between it and the next one.
        if ((half & 0x7fffu) >= 0x7c00u) continue;
        uint32_t next = FLOAT_TO_BITS(hardware_to_float(half + 1));
        uint32_t tie = (half & 0x7fffu) == 0x7bffu
                           ? bits + 0x1000u
                           : FLOAT_TO_BITS((BITS_TO_FLOAT(bits) + BITS_TO_FLOAT(next)) / 2);
        for (int around = -2; around <= 2; around++)
            wrong += !same_half(bits + uint32_t(around)) + !same_half(tie + uint32_t(around));
    }
    CHECK(wrong == 0);
    const char* every = getenv("KS_ALL_FLOATS"); // checks all 2^32 floats, in half a minute
    for (uint64_t bits = 0; bits < uint64_t(1) << 32; bits += every ? 1 : 509)
        wrong += !same_half(uint32_t(bits));
    CHECK(wrong == 0);
}

TEST_CASE("perf: weight_to_tiles" * doctest::skip(!getenv("KS_PERF")))
{
    for (int i = 0; i < int(Format::n_weights); i++) {
        const uint32_t rows = 8192, cols = 2048;
        std::vector<uint8_t> file = random_bytes(weight_bytes(Format(i), rows, cols), 1);
        std::vector<uint32_t> tiles(file.size() / 4);
        double best = 1e9;
        for (int run = 0; run < 5; run++) {
            auto start = std::chrono::steady_clock::now();
            weight_to_tiles(Format(i), file.data(), rows, cols, tiles.data());
            best = std::min(
                best,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        printf("weight_to_tiles %-8s %6.2f GB/s\n", format_info(Format(i)).name,
               double(file.size()) / best / 1e9);
    }
}
