// RoPE frequencies beyond the trained context. The test has its own copy of the formulas, as in the
// papers.
#include "runtime/model/rope.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace ks;

static Config trained()
{
    Config c;
    c.rope.n_rot = c.rope_window.n_rot = 64;
    c.rope.base = 10000;
    c.n_context = c.rope_original_context = 4096;
    return c;
}

static std::vector<double> stretched(const std::string& recipe, Config* out = nullptr,
                                     Config c = trained())
{
    REQUIRE(stretch_context(parse_recipe(recipe).value(), c).ok());
    if (out) *out = c;
    return rope_frequencies(c, c.rope, {});
}

static void equal(const std::vector<double>& f, const std::vector<double>& wanted)
{
    REQUIRE(f.size() == wanted.size());
    for (size_t i = 0; i < f.size(); i++) CHECK(f[i] == doctest::Approx(wanted[i]).epsilon(1e-12));
}

TEST_CASE("rope: linear and NTK")
{
    std::vector<double> plain(32), linear(32), ntk(32);
    for (uint32_t i = 0; i < 32; i++) {
        plain[i] = 1 / std::pow(10000.0, i / 32.0);
        linear[i] = plain[i] / 3;
        // The slowest pair gets a third of its frequency, the fastest pair keeps its own.
        ntk[i] = plain[i] * std::pow(3.0, -2.0 * i / 62);
    }
    CHECK(ntk[31] == doctest::Approx(plain[31] / 3));
    Config c;
    equal(stretched("exact"), plain);
    equal(stretched("exact,rope=linear,stretch=3", &c), linear);
    CHECK(c.n_context == 12288);
    CHECK(c.rope.mscale == 1);
    equal(stretched("mix,rope=ntk,stretch=3", &c), ntk);
    CHECK(c.n_context == 12288);
    equal(rope_frequencies(c, c.rope_window, {}), plain); // windows are shorter than the context
    CHECK(c.rope_window.mscale == 1);
    // Mistral's files cancel YaRN's factor by yarn_log_multiplier 1.
    for (bool weakened : {false, true}) {
        Config m;
        m.rope_yarn_log = weakened;
        scale_by_yarn(16, 1, m);
        CHECK(m.rope.mscale == doctest::Approx(weakened ? 1 : 1 + 0.1 * std::log(16.0)));
    }
}

// "YaRN: Efficient Context Window Extension": pairs with more than 32 rotations in the trained
// context keep their frequency. Pairs with less than one rotation are divided by the factor.
// Between these two dimensions, rounded outwards, there is a linear ramp.
TEST_CASE("rope: YaRN")
{
    Config c;
    const std::vector<double> f = stretched("exact,rope=yarn,stretch=8", &c);
    const double pi = 3.14159265358979323846;
    const auto dimension = [&](double rotations) {
        return 64 * std::log(4096 / (2 * pi * rotations)) / (2 * std::log(10000.0));
    };
    const double low = std::floor(dimension(32)), high = std::ceil(dimension(1));
    CHECK(low == 10);
    CHECK(high == 23);
    std::vector<double> wanted(32);
    for (int i = 0; i < 32; i++) {
        const double own = std::pow(10000.0, -i / 32.0), part = i <= low ? 0
                                                                : i >= high
                                                                    ? 1
                                                                    : (i - low) / (high - low);
        wanted[i] = (1 - part) * own + part * own / 8;
    }
    equal(f, wanted);
    CHECK(c.rope.mscale == doctest::Approx(1 + 0.1 * std::log(8.0)));
    CHECK(c.n_context == 32768);
    // A scaling factor of the file is included.
    Config own = trained();
    own.rope.yarn = 2;
    own.rope.mscale = 1.5;
    scale_by_yarn(2, 1, own);
    equal(stretched("exact,rope=yarn,stretch=4", &c, own), wanted);
    CHECK(c.rope.mscale == doctest::Approx(1.5 * (1 + 0.1 * std::log(8.0))));
}

TEST_CASE("rope: configurations that cannot be stretched")
{
    Config c = trained();
    c.rope_longrope = true;
    const Status longrope = stretch_context(parse_recipe("exact,rope=ntk,stretch=2").value(), c);
    CHECK(longrope.code() == Code::unsupported);
    CHECK(longrope.message().find("longrope") != std::string::npos);
    c = trained();
    c.rope.n_rot = 2;
    CHECK(stretch_context(parse_recipe("exact,rope=ntk,stretch=2").value(), c).code() ==
          Code::unsupported);
    CHECK(stretch_context(parse_recipe("exact,rope=linear,stretch=2").value(), c).ok());
    c.n_context = kMaxContext;
    CHECK(stretch_context(parse_recipe("exact,rope=linear,stretch=2").value(), c).ok());
    CHECK(c.n_context == kMaxContext);
}
