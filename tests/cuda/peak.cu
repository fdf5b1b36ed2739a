// Prints the read bandwidth of the device's memory in GB/s: the best of several passes over a block
// larger than its caches.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static __global__ void read_all(const uint4* from, size_t n, uint32_t* out)
{
    uint32_t sum = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
         i += size_t(gridDim.x) * blockDim.x) {
        const uint4 v = from[i];
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x12345678u) *out = sum; // keeps the compiler from removing the reads
}

static void check(cudaError_t error, const char* what)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "peak: %s: %s\n", what, cudaGetErrorString(error));
    exit(5);
}

int main()
{
    size_t free_bytes = 0, total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "no device");
    const size_t bytes = std::min<size_t>(1u << 30, free_bytes / 4) / 4096 * 4096;
    void* block = nullptr;
    check(cudaMalloc(&block, bytes), "cudaMalloc");
    check(cudaMemset(block, 1, bytes), "cudaMemset");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    double best = 0;
    for (int pass = 0; pass < 12; pass++) {
        check(cudaEventRecord(begin), "cudaEventRecord");
        read_all<<<4096, 256>>>(static_cast<const uint4*>(block), bytes / 16,
                                static_cast<uint32_t*>(block));
        check(cudaEventRecord(end), "cudaEventRecord");
        check(cudaEventSynchronize(end), "reading");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        if (pass >= 2) best = std::max(best, double(bytes) / ms * 1e-6);
    }
    printf("%.1f\n", best);
    return 0;
}
