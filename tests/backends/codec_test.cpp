// The codecs of keys and values: their bytes, their codes, and the vector kernels against the
// scalar specification.
#include "kernels/cpu/cpu_kernels.h"
#include "tests/backends/coded_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>
#include <limits>

using namespace ks;

static uint32_t random_bits(uint32_t i)
{
    return philox({i, 0, 0, 0}, 8)[0];
}

TEST_CASE("codecs: names, bytes and the order of the list")
{
#define KS_NAME(codec, ...) CHECK(std::string(codec_info(Format::codec).name) == #codec);
    CODECS(KS_NAME)
    GROUP_CODECS(KS_NAME)
    KS_NAME(f32)
    KS_NAME(f16)
#undef KS_NAME
    const struct {
        Format format;
        uint32_t bytes[5]; // at 64, 80, 96, 128, 256
    } known[] = {
        {Format::f16, {128, 160, 192, 256, 512}}, {Format::q8, {68, 86, 102, 136, 272}},
        {Format::q4, {36, 46, 54, 72, 144}},      {Format::turbo4, {34, 42, 50, 66, 130}},
        {Format::turbo3, {26, 32, 38, 50, 98}},   {Format::turbo2, {18, 22, 26, 34, 66}},
        {Format::turbo2v, {18, 22, 26, 34, 66}},  {Format::polar, {31, 39, 47, 62, 124}},
        {Format::kiviv, {40, 52, 60, 80, 160}},   {Format::kivi, {40, 50, 60, 80, 160}},
        {Format::kivi2, {24, 30, 36, 48, 96}},
    };
    const uint32_t dims[5] = {64, 80, 96, 128, 256};
    for (const auto& row : known) {
        CAPTURE(codec_info(row.format).name);
        for (int i = 0; i < 5; i++)
            CHECK(codec_info(row.format).row_bytes(dims[i]) == row.bytes[i]);
    }
    CHECK(coded_bytes(Format::turbo4, 3, 64) == 128); // 102 and padding
    CHECK(coded_bytes(Format::polar, 64, 64) == 31 * 64);
}

TEST_CASE("codecs: a decoded row has the same code")
{
    for (Format format : all_codecs()) {
        if (format == Format::turbo2v) continue; // its fitted scale shrinks with every encoding
        for (uint32_t d : kHeadDims) {
            CAPTURE(name_of(format, d));
            if (d < 64 && codec_info(format).hadamard && format < Format::polar)
                continue; // too few values for the norm of the levels
            Random random(d);
            int changed = 0;
            for (int i = 0; i < 500; i++) {
                const std::vector<uint8_t> row =
                    encode(format, random.normals(d, i % 2 ? 1.f : 100.f).data(), d);
                changed += encode(format, decode(format, row, d).data(), d) != row;
            }
            CHECK(changed == 0);
        }
    }
}

static uint64_t hash_of(const std::vector<uint8_t>& bytes, uint64_t hash)
{
    for (uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
    return hash;
}

// Integers and exact products only, so the value does not depend on a math library.
static float exact_value(uint32_t i)
{
    const uint32_t a = random_bits(i);
    return float(int(a & 0xffffu) + int(a >> 16) - 0xffff) * 0x1p-15f * (a % 61 == 0 ? 16.f : 1.f);
}

TEST_CASE("codecs: pinned codes")
{
    const struct {
        Format format;
        uint64_t hash;
    } known[] = {
        {Format::q8, 0x1a64960c65cd79cfu},     {Format::q4, 0xd71f708953722d73u},
        {Format::turbo4, 0xed6808ee15ec1d4bu}, {Format::turbo3, 0x9853706ee72c35dau},
        {Format::turbo2, 0x9a1e931bbcaef171u}, {Format::turbo2v, 0x8880777de60da12eu},
        {Format::polar, 0x068ddbbd027ff441u},  {Format::kiviv, 0x5c09928a500e50fdu},
    };
    for (const auto& k : known) {
        uint64_t hash = 0xcbf29ce484222325u;
        for (uint32_t d : kHeadDims)
            for (uint32_t r = 0; r < 50; r++) {
                std::vector<float> x(d);
                for (uint32_t i = 0; i < d; i++) x[i] = exact_value(1000 * r + i);
                const std::vector<uint8_t> row = encode(k.format, x.data(), d);
                hash = hash_of(row, hash);
                const std::vector<float> y = decode(k.format, row, d);
                std::vector<uint8_t> bytes(4 * d);
                memcpy(bytes.data(), y.data(), bytes.size());
                hash = hash_of(bytes, hash);
            }
        CAPTURE(codec_info(k.format).name);
        if (getenv("KS_PRINT"))
            printf("{Format::%s, 0x%016llxu},\n", codec_info(k.format).name,
                   (unsigned long long)hash);
        CHECK(hash == k.hash);
    }
}

static bool all_finite(const std::vector<float>& x)
{
    return std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
}

struct ManyRows {
    static constexpr uint32_t n = 40, first = 7; // slot `first` is row 0 of the pool
    std::vector<uint32_t> cache;
    std::vector<uint32_t> slots; // in an order that jumps
    CodedRow row(uint32_t r, uint32_t bytes) { return coded_row(cache.data(), n, r, bytes); }
};

static ManyRows random_rows(Format format, uint32_t d)
{
    const uint32_t bytes = codec_info(format).row_bytes(d);
    ManyRows rows;
    rows.cache.resize(rows.n * bytes / 4 + 16);
    const std::vector<float> x = Random(d).normals(rows.n * d);
    for (uint32_t r = 0; r < rows.n; r++) {
        const CodedRow at = rows.row(r, bytes);
        encode_row(format, &x[r * d], d, at.words, at.tail);
        rows.slots.push_back(rows.first + r * 17 % rows.n);
    }
    return rows;
}

TEST_CASE("codecs: a call that decodes several rows gives the bits of single rows")
{
    for (const VectorKernels* kernels : vector_tables())
        for (int i = 0; i < int(Format::count); i++) {
            const Format format = Format(i);
            if (i > int(Format::f16) && (!is_coded(format) || codec_info(format).group > 1))
                continue;
            for (uint32_t d : kHeadDims) {
                const uint32_t bytes = codec_info(format).row_bytes(d);
                ManyRows rows = random_rows(format, d);
                const CodedRow all = rows.row(0, bytes);
                const CodedRows pool =
                    rows_of(*kernels, codec_index(format), all.words, all.tail, bytes);
                for (uint32_t n : {1u, 3u, 8u, 16u, 21u, 40u}) {
                    CAPTURE(name_of(format, d));
                    CAPTURE(n);
                    std::vector<float> found(n * d), row(d);
                    pool.decode(pool, rows.slots.data(), rows.first, n, d, found.data(), {});
                    bool same = true;
                    for (uint32_t k = 0; k < n; k++) {
                        const CodedRow at = rows.row(rows.slots[k] - rows.first, bytes);
                        decode_row(format, at.words, at.tail, d, row.data());
                        same &= memcmp(row.data(), &found[k * d], 4 * d) == 0;
                    }
                    CHECK(same);
                }
            }
        }
}

// Decodes the only row of a pool.
static void decode_one(const VectorKernels& kernels, int codec, const uint32_t* words,
                       const uint8_t* tail, uint32_t d, float* x)
{
    const uint32_t row = 0;
    kernels.codecs[codec].decode(rows_of(kernels, codec, words, tail, 0), &row, 0, 1, d, x, {});
}

// Zeros, NaNs, and values that round to zero have the code of zero. Large values are clamped to
// f16.
static void check_limits(Format format, uint32_t d)
{
    const float inf = std::numeric_limits<float>::infinity(),
                tiny = std::numeric_limits<float>::denorm_min();
    const std::vector<uint8_t> zero = encode(format, std::vector<float>(d, 0.f).data(), d);
    CHECK(decode(format, zero, d) == std::vector<float>(d, 0.f));
    for (float small : {-0.f, float(NAN), -float(NAN), tiny, -tiny, 1e-38f, 1e-19f, 1e-9f, -1e-9f})
        CHECK(encode(format, std::vector<float>(d, small).data(), d) == zero);
    for (float large : {inf, 1e38f, 65504.f, 65505.f}) {
        const std::vector<uint8_t> row = encode(format, std::vector<float>(d, large).data(), d);
        CHECK(row == encode(format, std::vector<float>(d, 65504.f).data(), d));
        const std::vector<float> y = decode(format, row, d);
        CHECK(all_finite(y));
        CHECK(y[0] > 10000.f); // a polar block of 32 has a radius of 65504 at most
    }
}

// Random bits as floats: all exponents, in a third of the rows values of about one, in a seventh
// mostly zeros.
static std::vector<float> random_floats(uint32_t d, uint32_t i)
{
    std::vector<float> x(d);
    for (uint32_t k = 0; k < d; k++) {
        uint32_t bits = random_bits(i * d + k);
        if (i % 3 == 0) bits = (bits & 0x807fffffu) | (100 + bits % 29 + i % 20) << 23;
        if (i % 7 == 0 && bits % 5) bits = bits & 0x80000000u;
        x[k] = BITS_TO_FLOAT(bits);
    }
    return x;
}

static void check_vectors(Format format, const std::vector<float>& x,
                          const std::vector<uint8_t>& row, const std::vector<float>& y)
{
    const uint32_t d = uint32_t(x.size());
    for (const VectorKernels* kernels : vector_tables()) {
        std::vector<uint32_t> words(row.size() / 4);
        std::vector<uint8_t> found(row.size());
        uint8_t* tail = found.data() + 4 * words.size();
        kernels->codecs[codec_index(format)].encode(x.data(), d, words.data(), tail);
        memcpy(found.data(), words.data(), 4 * words.size());
        CHECK(found == row);
        std::vector<float> z(d);
        decode_one(*kernels, codec_index(format), words.data(), tail, d, z.data());
        CHECK(memcmp(y.data(), z.data(), 4 * d) == 0);
    }
}

TEST_CASE("codecs: every input has a code, and vector kernels give the same bits")
{
    for (Format format : all_codecs()) {
        for (uint32_t d : kHeadDims) {
            CAPTURE(name_of(format, d));
            check_limits(format, d);
            for (uint32_t i = 0; i < 1000; i++) {
                const std::vector<float> x = random_floats(d, i);
                const std::vector<uint8_t> row = encode(format, x.data(), d);
                const std::vector<float> y = decode(format, row, d);
                CHECK(all_finite(y));
                check_vectors(format, x, row, y);
                std::vector<float> clamped = x;
                for (float& v : clamped) v = coded_value(v);
                CHECK(encode(format, clamped.data(), d) == row);
                std::vector<uint8_t> bytes(row.size()); // no encoder's output
                for (size_t k = 0; k < bytes.size(); k++)
                    bytes[k] = uint8_t(random_bits(i * 999 + uint32_t(k)));
                decode(format, bytes, d);
            }
        }
    }
}
