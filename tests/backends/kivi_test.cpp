// Keys that are coded in groups, by channels: bytes, errors, what any input gives, and the ops on
// them.
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

// A group by the words of kivi.h, in double precision where it says so.
static std::vector<float> by_hand(const std::vector<float>& x, uint32_t d, uint32_t bits)
{
    std::vector<float> y(x.size());
    const int most = (1 << bits) - 1;
    for (uint32_t i = 0; i < d; i++) {
        float least = x[i], top = x[i];
        for (uint32_t r = 1; r < 32; r++)
            least = std::min(least, x[r * d + i]), top = std::max(top, x[r * d + i]);
        const float low = HALF_TO_FLOAT(FLOAT_TO_HALF(least)),
                    scale = HALF_TO_FLOAT(FLOAT_TO_HALF(std::max(0.f, top - low) / float(most)));
        for (uint32_t r = 0; r < 32; r++) {
            const double steps = scale > 0 ? (double(x[r * d + i]) - low) / scale : 0;
            y[r * d + i] =
                low + scale * float(std::min(most, std::max(0, int(std::floor(steps + 0.5)))));
        }
    }
    return y;
}

TEST_CASE("kivi: bytes, errors of Gaussian channels, and what the description says")
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
                const std::vector<float> expected = by_hand(one, d, format == Format::kivi ? 4 : 2);
                uint32_t differ = 0; // a quotient at the border of two codes
                for (size_t k = 0; k < one.size(); k++) differ += coded[k] != expected[k];
                CHECK(differ < 32 * d / 500 + 2);
            }
            CHECK(error_of(x, y) ==
                  doctest::Approx(format == Format::kivi ? 0.0061 : 0.154).epsilon(0.015));
        }
}

// Channels with a size and a mean of their own, as keys have: nothing of one channel's is in
// another's error.
TEST_CASE("kivi: channels that differ lose as little as channels that do not")
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

TEST_CASE("kivi: every input has a code, and vectors find the same")
{
    const float inf = std::numeric_limits<float>::infinity(),
                tiny = std::numeric_limits<float>::denorm_min();
    for (Format format : kCodecs)
        for (uint32_t d : kHeadDims) {
            CAPTURE(name_of(format, d));
            const uint32_t n = 32 * d;
            const std::vector<uint32_t> zero(n * codec_info(format).row_bytes(d) / (4 * d));
            for (float nothing :
                 {0.f, -0.f, float(NAN), -float(NAN), tiny, -tiny, 1e-19f, 1e-9f, -1e-9f})
                CHECK(encode_group(format, std::vector<float>(n, nothing).data(), d) == zero);
            CHECK(decode_group(format, zero, d) == std::vector<float>(n, 0.f));
            for (float same :
                 {1.f, -3.f, 65504.f, inf, 0.3f, -1e30f}) { // a constant is itself, as a half
                const float half = HALF_TO_FLOAT(FLOAT_TO_HALF(coded_value(same)));
                const std::vector<float> y = decode_group(
                    format, encode_group(format, std::vector<float>(n, same).data(), d), d);
                if (half >= coded_value(same)) CHECK(y == std::vector<float>(n, half));
                CHECK(error_of(std::vector<float>(n, coded_value(same)), y) < 1e-6);
            }
            for (uint32_t i = 0; i < 60; i++) {
                std::vector<float> x(n);
                for (uint32_t k = 0; k < n; k++) {
                    uint32_t bits = philox({i * n + k, 0, 0, 0}, 9)[0];
                    if (i % 3)
                        bits = (bits & 0x807fffffu) | (100 + bits % 29 + i % 20)
                                                          << 23; // values of about one
                    if (i % 7 == 0 && bits % 5) bits = bits & 0x80000000u;
                    x[k] = BITS_TO_FLOAT(bits);
                    if (i % 5 == 0)
                        x[k] = 1000.f + float(k % d) + 0x1p-6f * float(bits % 4); // far from zero
                }
                const std::vector<uint32_t> words = encode_group(format, x.data(), d);
                const std::vector<float> y = decode_group(format, words, d);
                bool finite = true;
                for (float v : y) finite &= std::isfinite(v);
                CHECK(finite);
                std::vector<float> counted = x;
                for (float& v : counted) v = coded_value(v);
                CHECK(encode_group(format, counted.data(), d) == words);
                for (const VectorKernels* kernels : vector_tables()) {
                    std::vector<uint32_t> found(words.size(), 77), all(32);
                    kernels->codecs[codec_index(format)].encode(x.data(), d, found.data(), nullptr);
                    CHECK(found == words);
                    std::vector<float> z(n);
                    for (uint32_t r = 0; r < 32; r++) all[r] = 5 + r;
                    decode_rows(*kernels, format, words, all, 5, d, z.data());
                    CHECK(memcmp(y.data(), z.data(), 4 * n) == 0);
                }
            }
        }
}

TEST_CASE("kivi: rows of several groups at a call")
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

static std::vector<double> as_doubles(const std::vector<uint32_t>& words)
{
    std::vector<double> out;
    for (uint32_t word : words)
        for (int i = 0; i < 4; i++) out.push_back(word >> (8 * i) & 255);
    return out;
}

// Groups 2, 0 and 3 of four come from rows that lie anywhere, or from codes.
static OpCase move_case(Format format, uint32_t d, Format kind)
{
    std::vector<uint32_t> old, source, moves;
    for (uint32_t g = 0; g < 4; g++)
        for (std::vector<uint32_t>* pool : {&old, &source}) {
            const std::vector<uint32_t> one =
                encode_group(format, Random(g + (pool == &old ? 9 : 90)).normals(32 * d).data(), d);
            pool->insert(pool->end(), one.begin(), one.end());
        }
    auto x = std::make_shared<std::vector<float>>(Random(d).normals(128 * d));
    for (float& v : *x) v = kind == Format::f16 ? HALF_TO_FLOAT(FLOAT_TO_HALF(v)) : v;
    const uint32_t from[] = {1, 3, 0}, to[] = {2, 0, 3}, size = uint32_t(old.size() / 4);
    for (uint32_t i = 0; i < 96; i++)
        moves.insert(moves.end(), {kind == format ? 32 * from[i / 32] + i % 32 : i * 53 % 128,
                                   32 * to[i / 32] + i % 32});
    OpCase c;
    c.name = name_of(format, d) + ", from " + codec_info(kind).name;
    c.bound = kExact;
    auto bytes = [](const std::vector<uint32_t>& words) {
        std::vector<uint8_t> out(4 * words.size());
        memcpy(out.data(), words.data(), out.size());
        return out;
    };
    c.prepare = [=](Bench& bench) {
        Tensor pool = bench.coded(format, 128, d, bytes(old)), list = bench.words(moves);
        Tensor rows = kind == format ? bench.coded(format, 128, d, bytes(source))
                                     : bench.input(128, d, *x, kind);
        bench.will_change(pool);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_move({96, d}, pool, rows, list); }, {pool}};
    };
    c.formula = [=] {
        std::vector<uint32_t> out = old;
        for (uint32_t g = 0; g < 3; g++) {
            std::vector<float> rows;
            for (uint32_t r = 0; r < 32; r++) {
                const float* row = &(*x)[uint64_t((32 * g + r) * 53 % 128) * d];
                rows.insert(rows.end(), row, row + d);
            }
            std::vector<uint32_t> one = encode_group(format, rows.data(), d);
            if (kind == format)
                one.assign(source.begin() + from[g] * size, source.begin() + (from[g] + 1) * size);
            std::copy(one.begin(), one.end(), out.begin() + to[g] * size);
        }
        return as_doubles(out);
    };
    return c;
}

static OpCase read_case(Format format, uint32_t d)
{
    std::vector<uint8_t> pool(4 * 32 * codec_info(format).row_bytes(d));
    auto y = std::make_shared<std::vector<float>>();
    for (uint32_t g = 0; g < 4; g++) {
        const std::vector<uint32_t> one = encode_group(format, Random(g).normals(32 * d).data(), d);
        const std::vector<float> decoded = decode_group(format, one, d);
        memcpy(&pool[g * 4 * one.size()], one.data(), 4 * one.size());
        y->insert(y->end(), decoded.begin(), decoded.end());
    }
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < 77; i++) rows.push_back(i * 29 % 128);
    OpCase c;
    c.name = name_of(format, d);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor from = bench.coded(format, 128, d, pool), out = bench.output(77, d),
               list = bench.words(rows);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_read({77, d}, out, from, list); }, {out}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint32_t row : rows)
            out.insert(out.end(), y->begin() + row * d, y->begin() + (row + 1) * d);
        return out;
    };
    return c;
}

TEST_CASE("kivi: kv_move and kv_read")
{
    std::vector<OpCase> moves, reads;
    for (Format format : kCodecs)
        for (uint32_t d : kHeadDims) {
            for (Format kind : {format, Format::f16, Format::f32})
                moves.push_back(move_case(format, d, kind));
            reads.push_back(read_case(format, d));
        }
    check_ops("kv_move", moves);
    check_ops("kv_read", reads);
}
