// The measured peaks of the processor bound what kernels reach, and are plausible.
#include "backends/cpu/cpu_peaks.h"
#include "tests/backends/simd_bits.h"
#include "tests/sanitized.h"

#include <algorithm>
#include <chrono>
#include <doctest/doctest.h>

using namespace ks;

// The shortest time of several runs.
template <class Run>
static double seconds_of(const Run& run)
{
    double best = 1e9;
    for (int i = 0; i < 7; i++) {
        const auto begin = std::chrono::steady_clock::now();
        run();
        best = std::min(
            best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
}

// Whether it holds in one of several measurements: other processes disturb some of them.
template <class Holds>
static bool holds_once(const Holds& holds)
{
    for (int i = 0; i < 8; i++)
        if (holds()) return true;
    return false;
}

TEST_CASE("peak: twice the rounds do twice the products in twice the time")
{
    for (const MatmulKernels* kernels :
         {kMatmulGeneric, kMatmulVnniEmulated, &choose_cpu_kernels().matmul}) {
        if (!kernels) continue;
        const uint64_t products = kernels->dot_peak(1);
        CHECK(products % 256 == 0);
        uint32_t n = 64;
        while (n < 1u << 26 && seconds_of([&] { kernels->dot_peak(n); }) < 2e-4) n *= 2;
        CHECK(n < 1u << 26); // otherwise the compiler removed the rounds
        CHECK(kernels->dot_peak(2 * n) == 2 * n * products);
        CHECK(holds_once([&] {
            return seconds_of([&] { kernels->dot_peak(4 * n); }) >
                   2 * seconds_of([&] { kernels->dot_peak(n); });
        }));
    }
}

TEST_CASE("peak: no matmul is faster" * doctest::skip(kSanitized))
{
    const CpuKernels kernels = choose_cpu_kernels();
    constexpr uint32_t kRows = 64, kCols = 512, kTokens = 64;
    const BitsCase c = bits_case(Format::q4_0, kRows, kCols, kTokens);
    std::vector<ActBlock> acts(kTokens * kCols / 32 + act_padding);
    for (uint32_t t = 0; t < kTokens; t++)
        kernels.matmul.quantize(c.x.data() + t * kCols, kCols, acts.data() + t, kTokens, false);
    std::vector<uint32_t> tiles = c.weight.tiles();
    std::vector<float> y(kTokens * kRows), sums(kTokens * max_lanes);
    MatmulTask task{tiles.data(), kRows / tile_rows, kRows, kCols, kTokens, acts.data(),
                    c.x.data(),   y.data(),          kRows, false, 1.f,     sums.data()};
    const auto matmul = kernels.matmul.matmul[int(Format::q4_0)];
    double peak = 0;
    CHECK(holds_once([&] {
        uint64_t products = 0;
        const double peak_seconds = seconds_of([&] { products = kernels.matmul.dot_peak(4096); });
        peak = double(products) / peak_seconds;
        return peak > .9 * kRows * kCols * kTokens / seconds_of([&] { matmul(task); });
    }));
    // No vector unit has more than two instructions of 64 products per cycle at 6 GHz.
    CHECK(peak < 2 * 64 * 6e9);
}

TEST_CASE("peak: the numbers of this machine are plausible")
{
    const CpuPeaks peaks = measure_cpu_peaks(1);
    CHECK(peaks.bytes_per_second > 1e8);
    CHECK(peaks.bytes_per_second < 1e12);
    CHECK(peaks.int8_ops_per_second > 1e8);
    CHECK(peaks.int8_ops_per_second < 1e14);
}
