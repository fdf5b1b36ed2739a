// Matrices of every weight format as they are in a file.
#include "kernels/common/formats.h"
#include "tests/backends/op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace ks
{

std::vector<Format> all_formats()
{
    const char* skipped = getenv("KS_TEST_WITHOUT"); // names of formats, for slow devices
    std::vector<Format> formats;
    for (int i = 0; i < int(Format::n_weights); i++)
        if (!skipped || !strstr(skipped, format_info(Format(i)).name)) formats.push_back(Format(i));
    return formats;
}

std::vector<uint32_t> FileMatrix::tiles() const
{
    std::vector<uint32_t> out(weight_bytes(format, rows, cols) / 4);
    weight_to_tiles(format, bytes.data(), rows, cols, out.data());
    return out;
}

// Decodes each row in a tile of its own, so the result does not depend on the place in a tile.
template <class F>
static std::vector<float> row_values(const FileMatrix& m)
{
    std::vector<float> out;
    FileMatrix row{m.format, 1, m.cols, {}};
    size_t row_bytes = m.bytes.size() / m.rows;
    for (uint32_t r = 0; r < m.rows; r++) {
        row.bytes.assign(&m.bytes[r * row_bytes], &m.bytes[r * row_bytes] + row_bytes);
        std::vector<uint32_t> tile = row.tiles();
        for (uint32_t k = 0; k < m.cols; k++)
            out.push_back(F::value(tile.data(),
                                   k / F::block * (F::half_words + tile_rows * F::words), 0,
                                   k % F::block));
    }
    return out;
}

std::vector<float> FileMatrix::values() const
{
    switch (format) {
#define KS_VALUES(name)                                                                            \
    case Format::name:                                                                             \
        return row_values<format_##name>(*this);
        FORMATS(KS_VALUES)
#undef KS_VALUES
    default:
        break;
    }
    return {};
}

// The offsets of a block's f16 scales or exponent, and their size for values of about one.
// In formats with an offset as the second scale, the offset cancels the mean of the values.
struct Scales {
    Format format;
    int first;
    double size;
    int second;
    double ratio; // second scale / first scale
};
static const Scales kScales[] = {
    {Format::q8_0, 0, 1 / 74.0, -1, 0},    {Format::q4_0, 0, 1 / 4.6, -1, 0},
    {Format::q4_1, 0, 1 / 4.6, 2, -7.5},   {Format::q5_0, 0, 1 / 9.2, -1, 0},
    {Format::q5_1, 0, 1 / 9.2, 2, -15.5},  {Format::q2_k, 80, 1 / 12.0, 82, 1.5},
    {Format::q3_k, 108, 1 / 43.0, -1, 0},  {Format::q4_k, 0, 1 / 200.0, 2, 7.5},
    {Format::q5_k, 0, 1 / 400.0, 2, 15.5}, {Format::q6_k, 208, 1 / 1370.0, -1, 0},
    {Format::iq4_nl, 0, 1 / 70.0, -1, 0},  {Format::iq4_xs, 0, 1 / 1300.0, -1, 0},
    {Format::iq2_xxs, 0, 1 / 55.0, -1, 0}, {Format::iq2_xs, 0, 1 / 50.0, -1, 0},
    {Format::iq2_s, 0, 1 / 55.0, -1, 0},   {Format::iq3_xxs, 0, 1 / 150.0, -1, 0},
    {Format::iq3_s, 0, 1 / 130.0, -1, 0},  {Format::mxfp4, 0, 1 / 5.4, -1, 0},
    {Format::q1_0, 0, 1, -1, 0},           {Format::q2_0, 0, 1 / 1.2, -1, 0},
    {Format::nvfp4, 0, 1 / 2.7, -1, 0},    {Format::tq1_0, 52, 1.2, -1, 0},
    {Format::tq2_0, 64, 1 / 1.2, -1, 0},   {Format::iq1_s, 0, 1 / 7.0, -1, 0},
    {Format::iq1_m, 48, 1 / 7.0, -1, 0},
};

static void put_half(uint8_t* at, double value)
{
    uint16_t half = uint16_t(FLOAT_TO_HALF(float(value)));
    memcpy(at, &half, 2);
}

void put_iq1_m_half(uint8_t* block, uint32_t half)
{
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t& byte = block[49 + 2 * i]; // the top byte of a scale
        byte = uint8_t((byte & 15) | (half >> (4 * i) & 15) << 4);
    }
}

// The byte of the nearest power of two, then bytes of scales 1/8 larger.
static void put_ue4m3(uint8_t* at, double value)
{
    const long exponent = std::lround(std::log2(std::fabs(value)));
    for (int i = 0; i < 4; i++) at[i] = uint8_t(8 * std::clamp(exponent + 7, 0l, 14l) + i);
}

void set_scales(Format format, uint8_t* block, double factor)
{
    for (const Scales& s : kScales) {
        if (s.format != format) continue;
        if (format == Format::mxfp4) { // the exponent of a power of two
            block[s.first] = uint8_t(128 + std::lround(std::log2(std::fabs(factor * s.size))));
            continue;
        }
        if (format == Format::nvfp4) {
            put_ue4m3(block, factor * s.size);
            continue;
        }
        if (format == Format::iq1_m) {
            put_iq1_m_half(block, FLOAT_TO_HALF(float(factor * s.size)));
            continue;
        }
        put_half(block + s.first, factor * s.size);
        if (s.second >= 0) put_half(block + s.second, factor * s.size * s.ratio);
    }
}

static void fill_block(Format format, uint8_t* block, Random& random)
{
    uint32_t size = format_info(format).block_bytes;
    if (format_info(format).block == 1) {
        float value = random.normal();
        uint32_t bits = format == Format::f16    ? FLOAT_TO_HALF(value)
                        : format == Format::bf16 ? FLOAT_TO_BITS(value) >> 16
                                                 : FLOAT_TO_BITS(value);
        memcpy(block, &bits, size);
        return;
    }
    for (uint32_t i = 0; i < size; i++) block[i] = uint8_t(random.below(256));
    set_scales(format, block, random.uniform(0.5, 1.5) * (random.below(2) ? 1 : -1));
    // Scales of nvfp4 that are zero, subnormal, or have the top bit set.
    const uint8_t special[] = {0, 127, 5, 128, 129, 0xb4};
    if (format == Format::nvfp4 && random.below(2))
        block[random.below(4)] = special[random.below(sizeof special)];
}

FileMatrix random_matrix(Format format, uint32_t rows, uint32_t cols, uint64_t seed)
{
    const FormatInfo& info = format_info(format);
    FileMatrix m{format, rows, cols,
                 std::vector<uint8_t>(uint64_t(rows) * (cols / info.block) * info.block_bytes)};
    Random random(seed);
    // Large matrices are timed only. They repeat a period of blocks.
    size_t period = std::min<size_t>(m.bytes.size(), 9973 * size_t(info.block_bytes));
    for (size_t at = 0; at < period; at += info.block_bytes)
        fill_block(format, &m.bytes[at], random);
    for (size_t at = period; at < m.bytes.size(); at++) m.bytes[at] = m.bytes[at - period];
    return m;
}

} // namespace ks
