// Philox4x32-10 against the known answers of its authors' Random123 library, and the numbers made
// from its words.
#include "runtime/base/rng.h"

#include <cmath>
#include <doctest/doctest.h>

using namespace ks;
using Words = std::array<uint32_t, 4>;

TEST_CASE("rng: known answers")
{
    CHECK(philox({0, 0, 0, 0}, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("rng: uniform")
{
    CHECK(random_uniform(0, 0) ==
          double((uint64_t(0x6627e8d5) << 21) | (0xe169c58d >> 11)) / 9007199254740992.0);
    // The upper word of the counter matters.
    CHECK(random_uniform(1, uint64_t(1) << 32) != random_uniform(1, 0));
    double sum = 0, squares = 0, least = 1, most = 0;
    constexpr int n = 200000;
    for (int i = 0; i < n; i++) {
        double u = random_uniform(42, uint64_t(i));
        sum += u;
        squares += u * u;
        least = std::fmin(least, u);
        most = std::fmax(most, u);
    }
    CHECK(std::fabs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
    CHECK(std::fabs(squares / n - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / n));
    CHECK(least >= 0);
    CHECK(most < 1);
}
