#include "backends/cpu/cpu_peaks.h"

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

namespace ks
{

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// The best of many short windows. Other processes run for whole milliseconds, so some windows are
// undisturbed.
template <class Window>
static double best_rate(double seconds, const Window& window)
{
    double best = 0, begin = now(), from = begin;
    while (from - begin < seconds) {
        const double amount = window(), to = now();
        best = std::max(best, amount / (to - from));
        from = to;
    }
    return best;
}

// Sums words with the prefetch distance of the matmul kernels, which raises the bandwidth.
static uint64_t sum_words(const uint64_t* words, size_t n)
{
    constexpr size_t kDistance = 1536 / sizeof(uint64_t);
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= n; i += 8) {
        __builtin_prefetch(words + i + kDistance);
        for (size_t j = 0; j < 8; j++) sum[j] += words[i + j];
    }
    for (size_t j = 1; j < 8; j++) sum[0] += sum[j];
    return sum[0];
}

// Twice the last cache, if that takes no more than a quarter of the free memory.
static size_t bytes_outside_caches(size_t window)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE), pages = sysconf(_SC_AVPHYS_PAGES);
    const size_t wanted = cache > 0 ? 2 * size_t(cache) : 0,
                 most = pages > 0 ? size_t(pages) / 4 * size_t(sysconf(_SC_PAGESIZE)) : 0;
    return std::max(4 * window, std::min(wanted, most) / window * window);
}

static double read_bandwidth(ThreadPool& pool, double seconds)
{
    constexpr size_t kWindow = 64 << 20, kSlice = 512 << 10;
    const size_t n_bytes = bytes_outside_caches(kWindow);
    void* memory =
        mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    madvise(memory, n_bytes, MADV_HUGEPAGE); // like the weights; it raises the bandwidth
    auto* bytes = static_cast<uint8_t*>(memory);
    // Untouched pages would all map to the same page of zeros.
    for (size_t i = 0; i < n_bytes; i += 4096) bytes[i] = 1;
    size_t at = 0;
    std::atomic<uint64_t> sink{0};
    const double best = best_rate(seconds, [&] {
        pool.parallel_for(kWindow / kSlice, [&](uint32_t i, int) {
            sink +=
                sum_words(reinterpret_cast<const uint64_t*>(bytes + at + i * kSlice), kSlice / 8);
        });
        at = (at + kWindow) % n_bytes;
        return double(kWindow);
    });
    munmap(memory, n_bytes);
    return best;
}

static double dot_peak(ThreadPool& pool, double seconds, uint64_t (*dots)(uint32_t n_rounds))
{
    constexpr double kPartSeconds = 0.5e-3;
    uint32_t n_rounds = 1;
    for (double begin = now(); dots(n_rounds), now() - begin < kPartSeconds && n_rounds < 1u << 30;
         begin = now())
        n_rounds *= 2;
    const uint32_t n_parts = 4 * uint32_t(pool.size());
    std::atomic<uint64_t> products{0};
    return best_rate(seconds, [&] {
        products = 0;
        pool.parallel_for(n_parts, [&](uint32_t, int) { products += dots(n_rounds); });
        return 2 * double(products);
    });
}

CpuPeaks measure_cpu_peaks(int n_threads)
{
    ThreadPool pool(n_threads > 0 ? n_threads : count_cores());
    pool.start();
    const char* given = getenv("KNAPSACK_PEAK_SECONDS");
    const double seconds = given ? std::clamp(atof(given), 0., 60.) : 0.9,
                 bandwidth = read_bandwidth(pool, seconds * 2 / 3);
    return {bandwidth, dot_peak(pool, seconds / 3, choose_cpu_kernels().matmul.dot_peak)};
}

} // namespace ks
