// The codecs of keys and values: their bytes, their errors, and what any input gives.
#include "backends/reference/reference_backend.h"
#include "kernels/cpu/cpu_kernels.h"
#include "tests/backends/coded_rows.h"
#include "tests/sanitized.h"

#include <algorithm>
#include <chrono>
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

// A bench whose rows go through the ops.
struct Rows {
    Bench bench{"cpu", 0};
    uint32_t d;
    explicit Rows(uint32_t head_dim) : d(head_dim)
    {
        ScratchShape shape;
        shape.n_tokens = 1;
        shape.max_cols = shape.head_dim = d;
        bench.scratch(shape); // starts the threads
    }

    std::vector<float> hadamard(std::vector<float> x)
    {
        for (size_t i = 0; i < x.size(); i += d) hadamard_head(&x[i], d, false);
        return x;
    }

    std::vector<float> decoded(Format format, const std::vector<float>& x)
    {
        const uint32_t n = uint32_t(x.size() / d);
        std::vector<uint32_t> rows(n);
        for (uint32_t i = 0; i < n; i++) rows[i] = i;
        Tensor from = bench.input(n, d, x), y = bench.output(n, d), list = bench.words(rows),
               head_layout = bench.words(std::vector<uint32_t>(layout_words));
        Tensor cache = bench.coded(format, n, d, std::vector<uint8_t>(coded_bytes(format, n, d)));
        bench.backend().kv_write({n, 1, d, n, 0, 0}, {cache, {}}, {from, {}}, Tensor(),
                                 head_layout);
        bench.backend().kv_read({n, d}, y, cache, list);
        return bench.read(y);
    }
};

struct Error {
    double error = 0, energy = 0;
    void add(const std::vector<float>& x, const std::vector<float>& y)
    {
        for (size_t i = 0; i < x.size(); i++) {
            error += std::pow(double(x[i]) - y[i], 2);
            energy += double(x[i]) * x[i];
        }
    }
    double relative() const { return error / energy; }
};

// The errors that theory gives codes of rotated rows at d = 128; at other d the codes' share of a
// row changes a little.
TEST_CASE("codecs: errors of Gaussian rows" * doctest::skip(kSanitized))
{
    const struct {
        Format format;
        double error[5]; // at 64, 80, 96, 128, 256
    } known[] = {
        {Format::q8, {0.0000289, 0.0000274, 0.0000289, 0.0000289, 0.0000289}},
        {Format::q4, {0.00738, 0.00705, 0.00738, 0.00738, 0.00738}},
        {Format::turbo4, {0.00887, 0.00900, 0.00908, 0.00918, 0.00935}},
        {Format::turbo3, {0.03283, 0.0332, 0.03349, 0.0338, 0.03435}},
        {Format::turbo2, {0.1165, 0.1174, 0.1181, 0.1188, 0.1200}},
        {Format::turbo2v, {0.1130, 0.1138, 0.1145, 0.1152, 0.1164}},
        {Format::polar, {0.0321, 0.0321, 0.0321, 0.0321, 0.0321}},
        {Format::kiviv, {0.00612, 0.00574, 0.00612, 0.00612, 0.00612}},
    };
    const uint32_t dims[5] = {64, 80, 96, 128, 256}, n = 10000;
    for (int i = 0; i < 5; i++) {
        const uint32_t d = dims[i];
        Error errors[sizeof known / sizeof known[0]];
        for (int batch = 0; batch < 10; batch++) {
            Rows rows(d);
            const std::vector<float> x = rows.hadamard(Random(d + batch).normals(uint64_t(n) * d));
            for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
                errors[k].add(x, rows.decoded(known[k].format, x));
        }
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            CAPTURE(name_of(known[k].format, d));
            CHECK(errors[k].relative() == doctest::Approx(known[k].error[i]).epsilon(0.01));
            if (getenv("KS_PRINT"))
                printf("%-12s %6.3f bits  %.7f\n", name_of(known[k].format, d).c_str(),
                       8.0 * codec_info(known[k].format).row_bytes(d) / d, errors[k].relative());
        }
    }
}

// With the norm itself for a scale, Lloyd-Max codes have their own error; a matched or fitted scale
// takes a part of it.
TEST_CASE("codecs: errors of the levels alone")
{
    const struct {
        Format format;
        double error[2]; // at 64, 128
    } known[] = {{Format::turbo4, {0.00913, 0.00931}},
                 {Format::turbo3, {0.03339, 0.03397}},
                 {Format::turbo2, {0.11453, 0.11600}}};
    for (const auto& k : known) {
        for (uint32_t d : {64u, 128u}) {
            Rows rows(d);
            const std::vector<float> x = rows.hadamard(Random(9 * d).normals(20000 * d)),
                                     y = rows.decoded(k.format, x);
            double error = 0, energy = 0;
            for (size_t at = 0; at < x.size(); at += d) {
                double sum = 0, decoded = 0, levels = 0;
                for (uint32_t i = 0; i < d; i++)
                    sum += double(x[at + i]) * x[at + i], decoded += double(y[at + i]) * y[at + i];
                const std::vector<uint8_t> row = encode(k.format, &x[at], d);
                const double g =
                    HALF_TO_FLOAT(uint(row[row.size() - 2] | row[row.size() - 1] << 8));
                levels = decoded / (g * g);                 // sum of c^2
                CHECK(std::fabs(decoded / sum - 1) < 1e-3); // the norm is kept
                for (uint32_t i = 0; i < d; i++)
                    error += std::pow(x[at + i] - y[at + i] / g * std::sqrt(sum / d), 2);
                energy += sum;
                CHECK(levels > 0);
            }
            CAPTURE(name_of(k.format, d));
            CHECK(error / energy == doctest::Approx(k.error[d == 128]).epsilon(0.01));
        }
    }
}

// Channels far above the others: what keys have, and what the rotation is for. Few of them leave
// rotated values of few magnitudes, whose angles are multiples of 45 degrees: the edges of the
// polar codes' sectors.
TEST_CASE("codecs: outlier channels")
{
    const struct {
        Format format;
        double bound;
    } known[] = {{Format::q8, 0.0001},   {Format::q4, 0.015},    {Format::turbo4, 0.02},
                 {Format::turbo3, 0.06}, {Format::turbo2, 0.16}, {Format::turbo2v, 0.16},
                 {Format::polar, 0.08}};
    for (uint32_t d : {64u, 80u, 96u, 128u, 256u}) {
        for (uint32_t n_outliers : {1u, 2u, 3u, 4u, 6u, d}) {
            Rows rows(d);
            Random random(d + n_outliers);
            std::vector<float> x = random.normals(500 * d);
            for (size_t at = 0; at < x.size(); at += d)
                for (uint32_t k = 0; k < n_outliers; k++)
                    x[at + (n_outliers == d ? k : random.below(d))] +=
                        n_outliers == d ? 20.f : float(random.uniform(10, 300));
            const std::vector<float> y = rows.hadamard(x);
            for (const auto& k : known) {
                CAPTURE(name_of(k.format, d));
                CAPTURE(n_outliers);
                Error error;
                error.add(y, rows.decoded(k.format, y));
                if (getenv("KS_PRINT"))
                    printf("%-12s %3u outliers %.5f\n", name_of(k.format, d).c_str(), n_outliers,
                           error.relative());
                CHECK(error.relative() < k.bound);
            }
        }
    }
}

static float angle(const std::vector<float>& radii, size_t i)
{
    return std::atan2(radii[i + 1], radii[i]);
}

// Lemma 2 of the paper: the angles of rotated rows. The codes' own shares say the same.
TEST_CASE("polar: the distribution of angles")
{
    const uint32_t d = 64, n = 20000;
    Rows rows(d);
    std::vector<float> radii =
        rows.hadamard(Random(3).normals(n * d)); // Gaussian, so what is left is the angles' own
    const double pi = std::acos(-1.0);
    for (int level = 1; level <= 5; level++) {
        CAPTURE(level);
        constexpr int kBins = 16;
        double expected[kBins] = {}, found[kBins] = {}, sum = 0;
        const double range = level == 1 ? 2 * pi : pi / 2;
        for (int i = 0; i < 1000 * kBins; i++) {
            const double density = level == 1
                                       ? 1
                                       : std::pow(std::sin(2 * (i + 0.5) / (1000 * kBins) * range),
                                                  (1 << (level - 1)) - 1);
            expected[i / 1000] += density;
            sum += density;
        }
        std::vector<float> next;
        for (size_t i = 0; i < radii.size(); i += 2) {
            double a = angle(radii, i);
            if (a < 0) a += 2 * pi;
            found[std::min(kBins - 1, int(a / range * kBins))] += 2.0 / double(radii.size());
            next.push_back(std::hypot(radii[i], radii[i + 1]));
        }
        for (int i = 0; i < kBins; i++) {
            const double share = expected[i] / sum,
                         deviation = std::sqrt(share / double(next.size()));
            CHECK(std::fabs(found[i] - share) < 5 * deviation + 1e-6);
        }
        radii = next;
    }
}

TEST_CASE("polar: a block's norm is its radius")
{
    for (uint32_t d : {64u, 80u, 112u, 256u}) {
        CAPTURE(d);
        const std::vector<float> x = Random(d).normals(d, 7),
                                 y = decode(Format::polar, encode(Format::polar, x.data(), d), d);
        for (uint32_t base = 0; base < d; base += 16) {
            double before = 0, after = 0;
            for (uint32_t i = base; i < base + 16; i++)
                before += double(x[i]) * x[i], after += double(y[i]) * y[i];
            CHECK(std::sqrt(after / before) ==
                  doctest::Approx(1).epsilon(0.0005)); // half of a half's last bit
        }
    }
}

TEST_CASE("codecs: a decoded row has the same code")
{
    for (Format format : all_codecs()) {
        if (format == Format::turbo2v) continue; // its scale shrinks again
        for (uint32_t d : kHeadDims) {
            CAPTURE(name_of(format, d));
            if (d < 64 && codec_info(format).hadamard && format < Format::polar)
                continue; // too few values to have the levels' norm
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

// Made of integers and exact products alone, so that no library has a part in it.
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

// The only row of its pool.
static void decode_rows(const VectorKernels& kernels, int codec, const uint32_t* words,
                        const uint8_t* tail, uint32_t d, float* x)
{
    const uint32_t row = 0;
    kernels.codecs[codec].decode(rows_of(kernels, codec, words, tail, 0), &row, 0, 1, d, x, {});
}

TEST_CASE("codecs: many rows at a call are what each row is")
{
    for (const VectorKernels* kernels : vector_tables())
        for (int format = 0; format < int(Format::count); format++) {
            if (format > int(Format::f16) &&
                (!is_coded(Format(format)) || codec_info(Format(format)).group > 1))
                continue;
            const int codec = codec_index(Format(format));
            for (uint32_t d : kHeadDims) {
                const uint32_t n_rows = 40, bytes = codec_info(Format(format)).row_bytes(d),
                               first = 7;
                std::vector<uint32_t> cache(n_rows * bytes / 4 + 16);
                const CodedRow all = coded_row(cache.data(), n_rows, 0, bytes);
                const CodedRows pool = rows_of(*kernels, codec, all.words, all.tail, bytes);
                std::vector<float> x = Random(d).normals(n_rows * d), row(d);
                std::vector<uint32_t> rows;
                for (uint32_t r = 0; r < n_rows; r++) {
                    const CodedRow at = coded_row(cache.data(), n_rows, r, bytes);
                    encode_row(Format(format), &x[r * d], d, at.words, at.tail);
                    rows.push_back(first + r * 17 % n_rows);
                }
                for (uint32_t n : {1u, 3u, 8u, 16u, 21u, 40u}) {
                    CAPTURE(name_of(Format(format), d));
                    CAPTURE(n);
                    std::vector<float> found(n * d);
                    pool.decode(pool, rows.data(), first, n, d, found.data(), {});
                    bool same = true;
                    for (uint32_t i = 0; i < n; i++) {
                        const CodedRow at = coded_row(cache.data(), n_rows, rows[i] - first, bytes);
                        decode_row(Format(format), at.words, at.tail, d, row.data());
                        same &= memcmp(row.data(), &found[i * d], 4 * d) == 0;
                    }
                    CHECK(same);
                }
            }
        }
}

TEST_CASE("perf: codecs" * doctest::skip(!getenv("KS_PERF")))
{
    const CpuKernels kernels = choose_cpu_kernels();
    for (uint32_t d : {64u, 128u, 256u}) {
        constexpr uint32_t n = 64; // of a tile
        const std::vector<float> x = Random(1).normals(n * d);
        std::vector<float> y(n * d), logits(3 * n), sums(3 * d);
        std::vector<uint32_t> rows;
        for (uint32_t i = 0; i < n; i++) rows.push_back(i);
        for (Format format : all_codecs()) {
            const int codec = codec_index(format);
            const uint32_t bytes = codec_info(format).row_bytes(d);
            std::vector<uint32_t> cache(coded_bytes(format, n, d) / 4);
            const CodedRow all = coded_row(cache.data(), n, 0, bytes);
            const VectorKernels& vector = kernels.vector;
            const CodedRows pool = rows_of(vector, codec, all.words, all.tail, bytes);
            std::vector<float> prepared(kPreparedFloats * d);
            enum {
                encode,
                decode,
                plain_encode,
                plain_decode,
                logits_1,
                logits_3,
                outputs_1,
                outputs_3,
                n_kinds
            };
            double best[n_kinds];
            std::fill(best, best + n_kinds, 1e9);
            for (int run = 0; run < 100 * n_kinds; run++) {
                const int kind = run % n_kinds;
                const uint32_t n_heads = kind == logits_3 || kind == outputs_3 ? 3 : 1;
                if (pool.prepare) pool.prepare(x.data(), n_heads, d, prepared.data());
                auto start = std::chrono::steady_clock::now();
                if (kind == decode) pool.decode(pool, rows.data(), 0, n, d, y.data(), {});
                if ((kind == logits_1 || kind == logits_3) && pool.logits)
                    pool.logits(pool, rows.data(), 0, n, d,
                                pool.prepare ? prepared.data() : x.data(), n_heads, logits.data(),
                                y.data(), {});
                if ((kind == outputs_1 || kind == outputs_3) && pool.outputs)
                    pool.outputs(pool, rows.data(), 0, n, d, x.data(), n_heads, sums.data(), d, {});
                for (uint32_t r = 0;
                     r < n && (kind == encode || kind == plain_encode || kind == plain_decode);
                     r++) {
                    const CodedRow row = coded_row(cache.data(), n, r, bytes);
                    if (kind == encode)
                        vector.codecs[codec].encode(&x[r * d], d, row.words, row.tail);
                    if (kind == plain_encode) encode_row(format, &x[r * d], d, row.words, row.tail);
                    if (kind == plain_decode) decode_row(format, row.words, row.tail, d, &y[r * d]);
                }
                best[kind] =
                    std::min(best[kind],
                             std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
                                     .count() /
                                 n);
            }
            printf("%-12s encode %7.1f ns a row, decode %7.1f; without vectors %7.1f, %7.1f",
                   name_of(format, d).c_str(), best[encode] * 1e9, best[decode] * 1e9,
                   best[plain_encode] * 1e9, best[plain_decode] * 1e9);
            if (pool.logits)
                printf("; logits of one head %5.1f, of three %5.1f", best[logits_1] * 1e9,
                       best[logits_3] * 1e9);
            if (pool.outputs)
                printf("; outputs %5.1f, %5.1f", best[outputs_1] * 1e9, best[outputs_3] * 1e9);
            printf("\n");
        }
    }
}

TEST_CASE("codecs: every input has a code")
{
    const float inf = std::numeric_limits<float>::infinity(),
                tiny = std::numeric_limits<float>::denorm_min();
    for (Format format : all_codecs()) {
        for (uint32_t d : kHeadDims) {
            CAPTURE(name_of(format, d));
            const std::vector<uint8_t> zero = encode(format, std::vector<float>(d, 0.f).data(), d);
            CHECK(decode(format, zero, d) == std::vector<float>(d, 0.f));
            for (float nothing :
                 {-0.f, float(NAN), -float(NAN), tiny, -tiny, 1e-38f, 1e-19f, 1e-9f, -1e-9f})
                CHECK(encode(format, std::vector<float>(d, nothing).data(), d) == zero);
            for (float much : {inf, 1e38f, 65504.f, 65505.f}) {
                const std::vector<uint8_t> row =
                    encode(format, std::vector<float>(d, much).data(), d);
                CHECK(row == encode(format, std::vector<float>(d, 65504.f).data(), d));
                const std::vector<float> y = decode(format, row, d);
                CHECK(all_finite(y));
                CHECK(y[0] > 10000.f); // a polar block of 32 has a radius of 65504 at most
            }
            for (uint32_t i = 0; i < 1000; i++) {
                std::vector<float> x(d);
                for (uint32_t k = 0; k < d; k++) {
                    uint32_t bits = random_bits(i * d + k);
                    if (i % 3 == 0)
                        bits = (bits & 0x807fffffu) | (100 + bits % 29 + i % 20)
                                                          << 23; // values of about one
                    if (i % 7 == 0 && bits % 5) bits = bits & 0x80000000u;
                    x[k] = BITS_TO_FLOAT(bits);
                }
                const std::vector<uint8_t> row = encode(format, x.data(), d);
                const std::vector<float> y = decode(format, row, d);
                CHECK(all_finite(y));
                for (const VectorKernels* kernels : vector_tables()) { // the same bits with vectors
                    std::vector<uint32_t> words(row.size() / 4);
                    std::vector<uint8_t> found(row.size());
                    uint8_t* tail = found.data() + 4 * words.size();
                    kernels->codecs[codec_index(format)].encode(x.data(), d, words.data(), tail);
                    memcpy(found.data(), words.data(), 4 * words.size());
                    CHECK(found == row);
                    std::vector<float> z(d);
                    decode_rows(*kernels, codec_index(format), words.data(), tail, d, z.data());
                    CHECK(memcmp(y.data(), z.data(), 4 * d) == 0);
                }
                std::vector<float> counted = x;
                for (float& v : counted) v = coded_value(v);
                CHECK(encode(format, counted.data(), d) == row);
                std::vector<uint8_t> bytes(row.size());
                for (size_t k = 0; k < bytes.size(); k++)
                    bytes[k] = uint8_t(random_bits(i * 999 + uint32_t(k)));
                decode(format, bytes, d);
            }
        }
    }
}
