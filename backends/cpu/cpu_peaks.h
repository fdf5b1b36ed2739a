// Measured peaks of this machine with the threads and kernels of the cpu backend. Speeds are
// compared with them.
#pragma once

namespace ks
{

struct CpuPeaks {
    // Read by all threads from memory outside all caches; 0 if memory could not be allocated.
    double bytes_per_second;
    double int8_ops_per_second; // of dot products; a multiply-add counts as two
};

// Takes about a second, or KNAPSACK_PEAK_SECONDS. n_threads 0: one per core.
CpuPeaks measure_cpu_peaks(int n_threads);

} // namespace ks
