// The codecs that code keys in groups, by channels: bytes, errors, codes, and the vector kernels
// against the scalar specification.
#include "backends/reference/reference_backend.h"
#include "kernels/cpu/cpu_kernels.h"
#include "tests/backends/coded_rows.h"

#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>
#include <limits>

using namespace ks;

static const Format kCodecs[] = {Format::kivi, Format::kivi2};

static double error_of(const std::vector<float>& x, const std::vector<float>& y)
{
    double error = 0, energy = 0;
    for (size_t i = 0; i < x.size(); i++)
        error += std::pow(double(x[i]) - y[i], 2), energy += double(x[i]) * x[i];
    return error / energy;
}

// The values of a group by the description in kivi.h, with quotients in float64.
static std::vector<float> by_description(const std::vector<float>& x, uint32_t d, uint32_t bits)
{
    std::vector<float> y(x.size());
    const int max_code = (1 << bits) - 1;
    for (uint32_t i = 0; i < d; i++) {
        float min = x[i], max = x[i];
        for (uint32_t r = 1; r < 32; r++)
            min = std::min(min, x[r * d + i]), max = std::max(max, x[r * d + i]);
        const float low = HALF_TO_FLOAT(FLOAT_TO_HALF(min)),
                    scale =
                        HALF_TO_FLOAT(FLOAT_TO_HALF(std::max(0.f, max - low) / float(max_code)));
        for (uint32_t r = 0; r < 32; r++) {
            const double steps = scale > 0 ? (double(x[r * d + i]) - low) / scale : 0;
            y[r * d + i] =
                low + scale * float(std::min(max_code, std::max(0, int(std::floor(steps + 0.5)))));
        }
    }
    return y;
}

TEST_CASE("kivi: bytes, errors of Gaussian channels, and values by the description")
{
    CHECK(codec_info(Format::kivi).group == 32);
    CHECK(coded_bytes(Format::kivi, 64, 64) == 64 * 40);
    CHECK(codec_of_values(Format::kivi) == Format::kiviv);
    CHECK(codec_of_values(Format::q8) == Format::q8);
    for (uint32_t d : kHeadDims)
        for (Format format : kCodecs) {
            CAPTURE(name_of(format, d));
            const uint32_t n = 400000 / (32 * d);
            Random random(d);
            std::vector<float> x, y;
            for (uint32_t i = 0; i < n; i++) {
                const std::vector<float> one = random.normals(32 * d),
                                         coded = decode_group(
                                             format, encode_group(format, one.data(), d), d);
                x.insert(x.end(), one.begin(), one.end());
                y.insert(y.end(), coded.begin(), coded.end());
                if (i > 3) continue;
                const std::vector<float> expected =
                    by_description(one, d, format == Format::kivi ? 4 : 2);
                uint32_t differ = 0; // quotients at the border of two codes
                for (size_t k = 0; k < one.size(); k++) differ += coded[k] != expected[k];
                CHECK(differ < 32 * d / 500 + 2);
            }
            CHECK(error_of(x, y) ==
                  doctest::Approx(format == Format::kivi ? 0.0061 : 0.154).epsilon(0.015));
        }
}

// Channels with different scales and means, as keys have. A channel's range does not affect the
// error of other channels.
TEST_CASE("kivi: channels with different ranges have the error of equal channels")
{
    for (uint32_t d : {64u, 80u, 128u}) {
        Random random(d);
        std::vector<float> x(32 * d), apart(32 * d), mean(d), size(d);
        for (uint32_t i = 0; i < d; i++)
            mean[i] = i % 8 ? 0.f : float(random.uniform(-40, 40)),
            size[i] = float(random.uniform(0.1, 4));
        for (uint32_t k = 0; k < 32 * d; k++) x[k] = mean[k % d] + size[k % d] * random.normal();
        const std::vector<float> y =
            decode_group(Format::kivi, encode_group(Format::kivi, x.data(), d), d);
        std::vector<float> of_q4(32 * d), of_values(32 * d);
        std::vector<float> hadamard = x;
        for (uint32_t r = 0; r < 32; r++) {
            hadamard_head(&hadamard[r * d], d, false);
            const std::vector<float> one =
                decode(Format::q4, encode(Format::q4, &hadamard[r * d], d), d);
            std::copy(one.begin(), one.end(), of_q4.begin() + r * d);
            const std::vector<float> other =
                decode(Format::kiviv, encode(Format::kiviv, &x[r * d], d), d);
            std::copy(other.begin(), other.end(), of_values.begin() + r * d);
        }
        const double error = error_of(x, y), q4 = error_of(hadamard, of_q4),
                     by_row = error_of(x, of_values);
        CAPTURE(d);
        MESSAGE("d " << d << ": " << error << " by channels, " << by_row << " by rows, " << q4
                     << " in rotated q4");
        CHECK(q4 > 5 * error);
        CHECK(by_row > 10 * error);
    }
}

TEST_CASE("kivi: a decoded group has the same codes")
{
    for (Format format : kCodecs)
        for (uint32_t d : kHeadDims)
            for (float size : {1.f, 100.f}) {
                const std::vector<uint32_t> words =
                    encode_group(format, Random(d).normals(32 * d, size).data(), d);
                CHECK(encode_group(format, decode_group(format, words, d).data(), d) == words);
            }
}

TEST_CASE("kivi: pinned codes")
{
    const uint64_t known[] = {0xe7b20f92136c5cf7u, 0x6940ae85c3ad357du};
    for (int which = 0; which < 2; which++) {
        uint64_t hash = 0xcbf29ce484222325u;
        auto add = [&](uint32_t word) { hash = (hash ^ word) * 0x100000001b3u; };
        for (uint32_t d : kHeadDims) {
            std::vector<float> x(32 * d); // of integers and exact products alone
            for (uint32_t k = 0; k < 32 * d; k++) {
                const uint32_t a = philox({k, d, 0, 0}, 8)[0];
                x[k] = float(int(a & 0xffffu) + int(a >> 16) - 0xffff) * 0x1p-15f +
                       float(k % d % 7) * 4.f;
            }
            const std::vector<uint32_t> words = encode_group(kCodecs[which], x.data(), d);
            for (uint32_t word : words) add(word);
            for (float y : decode_group(kCodecs[which], words, d)) add(FLOAT_TO_BITS(y));
        }
        if (getenv("KS_PRINT")) printf("0x%016llxu\n", (unsigned long long)hash);
        CHECK(hash == known[which]);
    }
}

static void decode_rows(const VectorKernels& kernels, Format format,
                        const std::vector<uint32_t>& words, const std::vector<uint32_t>& rows,
                        uint32_t first, uint32_t d, float* x)
{
    const int codec = codec_index(format);
    kernels.codecs[codec].decode(rows_of(kernels, codec, words.data(), nullptr, 0), rows.data(),
                                 first, uint32_t(rows.size()), d, x, {});
}

// Zeros, NaNs, and values that round to zero have the codes of zero. A constant channel has no
// error beyond the rounding of its minimum to f16.
static void check_constants(Format format, uint32_t d)
{
    const float inf = std::numeric_limits<float>::infinity(),
                tiny = std::numeric_limits<float>::denorm_min();
    const uint32_t n = 32 * d;
    const std::vector<uint32_t> zero(n * codec_info(format).row_bytes(d) / (4 * d));
    for (float small : {0.f, -0.f, float(NAN), -float(NAN), tiny, -tiny, 1e-19f, 1e-9f, -1e-9f})
        CHECK(encode_group(format, std::vector<float>(n, small).data(), d) == zero);
    CHECK(decode_group(format, zero, d) == std::vector<float>(n, 0.f));
    for (float constant : {1.f, -3.f, 65504.f, inf, 0.3f, -1e30f}) {
        const float clamped = coded_value(constant),
                    rounded = HALF_TO_FLOAT(FLOAT_TO_HALF(clamped));
        const std::vector<float> y = decode_group(
            format, encode_group(format, std::vector<float>(n, constant).data(), d), d);
        if (rounded >= clamped) CHECK(y == std::vector<float>(n, rounded));
        CHECK(error_of(std::vector<float>(n, clamped), y) < 1e-6);
    }
}

// Random bits as floats: all exponents, in two thirds of the groups values of about one, in a
// seventh mostly zeros, in a fifth channels that are far from zero.
static std::vector<float> random_floats(uint32_t d, uint32_t i)
{
    std::vector<float> x(32 * d);
    for (uint32_t k = 0; k < 32 * d; k++) {
        uint32_t bits = philox({i * 32 * d + k, 0, 0, 0}, 9)[0];
        if (i % 3) bits = (bits & 0x807fffffu) | (100 + bits % 29 + i % 20) << 23;
        if (i % 7 == 0 && bits % 5) bits = bits & 0x80000000u;
        x[k] = BITS_TO_FLOAT(bits);
        if (i % 5 == 0) x[k] = 1000.f + float(k % d) + 0x1p-6f * float(bits % 4);
    }
    return x;
}

static void check_vectors(Format format, const std::vector<float>& x,
                          const std::vector<uint32_t>& words, const std::vector<float>& y)
{
    const uint32_t d = uint32_t(x.size() / 32);
    for (const VectorKernels* kernels : vector_tables()) {
        std::vector<uint32_t> found(words.size(), 77), all(32);
        kernels->codecs[codec_index(format)].encode(x.data(), d, found.data(), nullptr);
        CHECK(found == words);
        std::vector<float> z(x.size());
        for (uint32_t r = 0; r < 32; r++) all[r] = 5 + r;
        decode_rows(*kernels, format, words, all, 5, d, z.data());
        CHECK(memcmp(y.data(), z.data(), 4 * x.size()) == 0);
    }
}

TEST_CASE("kivi: every input has a code, and vector kernels give the same bits")
{
    for (Format format : kCodecs)
        for (uint32_t d : kHeadDims) {
            CAPTURE(name_of(format, d));
            check_constants(format, d);
            for (uint32_t i = 0; i < 60; i++) {
                const std::vector<float> x = random_floats(d, i);
                const std::vector<uint32_t> words = encode_group(format, x.data(), d);
                const std::vector<float> y = decode_group(format, words, d);
                bool finite = true;
                for (float v : y) finite &= std::isfinite(v);
                CHECK(finite);
                std::vector<float> clamped = x;
                for (float& v : clamped) v = coded_value(v);
                CHECK(encode_group(format, clamped.data(), d) == words);
                check_vectors(format, x, words, y);
            }
        }
}

TEST_CASE("kivi: a call that decodes rows of several groups")
{
    const uint32_t n_groups = 4, first = 64;
    for (const VectorKernels* kernels : vector_tables())
        for (Format format : kCodecs)
            for (uint32_t d : kHeadDims) {
                std::vector<uint32_t> words;
                std::vector<float> y;
                for (uint32_t g = 0; g < n_groups; g++) {
                    const std::vector<uint32_t> one =
                        encode_group(format, Random(d + g).normals(32 * d).data(), d);
                    const std::vector<float> decoded = decode_group(format, one, d);
                    words.insert(words.end(), one.begin(), one.end());
                    y.insert(y.end(), decoded.begin(), decoded.end());
                }
                Random random(d);
                for (int run = 0; run < 30; run++) {
                    std::vector<uint32_t> rows;
                    for (uint32_t n = 1 + random.below(64), at = 0; rows.size() < n;
                         at = (at + 1) % 128) {
                        if (run % 3 == 0 || rows.empty() || random.below(4) == 0)
                            at = random.below(128);
                        rows.push_back(first + at);
                    }
                    std::vector<float> found(rows.size() * d);
                    decode_rows(*kernels, format, words, rows, first, d, found.data());
                    bool same = true;
                    for (size_t i = 0; i < rows.size(); i++)
                        same &= memcmp(&found[i * d], &y[(rows[i] - first) * d], 4 * d) == 0;
                    CAPTURE(name_of(format, d));
                    CHECK(same);
                }
            }
}
