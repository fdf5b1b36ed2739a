// What this machine does at most with the cpu backend's threads and kernels, measured: a speed is to be compared with it.
#pragma once

namespace ks
{

struct CpuPeaks {
    double bytes_per_second;    // read by all threads from memory that no cache holds; 0: there was none
    double int8_ops_per_second; // of dot products: two for each product
};

// Takes about a second. n_threads 0: as many as the machine has cores.
CpuPeaks measure_cpu_peaks(int n_threads);

} // namespace ks
