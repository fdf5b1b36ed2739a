// The errors of the codecs of keys and values, against theory.
#include "backends/reference/reference_backend.h"
#include "tests/backends/coded_rows.h"
#include "tests/sanitized.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>

using namespace ks;

// Encodes and decodes rows with the ops of the cpu backend.
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

// The errors that theory gives for Gaussian rows at d = 128. At other d the scale is another share
// of a row, which changes the error a little.
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

// The error of Lloyd-Max levels if the row's norm is the scale. A matched or fitted scale reduces
// it.
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
                CHECK(std::fabs(decoded / sum - 1) < 1e-3); // the row keeps its norm
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

// Channels far above the others, as keys have them; the Hadamard transform spreads them. With few
// such channels, transformed values have few magnitudes. Their angles are multiples of 45 degrees,
// which are the edges of the sectors of polar codes.
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

// Lemma 2 of the PolarQuant paper: the distribution of the angles of transformed rows, by level.
TEST_CASE("polar: the distribution of angles")
{
    const uint32_t d = 64, n = 20000;
    Rows rows(d);
    std::vector<float> radii = rows.hadamard(Random(3).normals(n * d));
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

TEST_CASE("polar: a block keeps its norm")
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
                  doctest::Approx(1).epsilon(0.0005)); // half of the last bit of f16
        }
    }
}
