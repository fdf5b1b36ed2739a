// Kernels with one fault each, and which of the three builds of the CUDA shim finds the fault.
// The plain build reports an error or gives a wrong result. The sanitizer builds stop the program.
//     test_cuda_faults            lists the kernels and the builds that find their faults
//     test_cuda_faults NAME       exit 0: nothing found, 3: a wrong result, 4: an error of the shim
#include "kernels/cuda/cuda_util.cuh"

#include <cstring>

using namespace ks;

static __global__ void missing_barrier(const float* x, float* o)
{
    KS_SHARED(float, s, [128]);
    s[threadIdx.x] = x[threadIdx.x];
    o[threadIdx.x] = s[127 - threadIdx.x];
}

static __global__ void missing_barrier_before_writing(const float* x, float* o)
{
    KS_SHARED(float, s, [128]);
    float sum = 0;
    for (int t = 0; t < 4; t++) {
        s[threadIdx.x] = x[t * 128 + threadIdx.x];
        __syncthreads();
        sum += s[127 - threadIdx.x];
    }
    o[threadIdx.x] = sum;
}

static __global__ void missing_barrier_in_sum(const float* x, float* o)
{
    KS_SHARED(float, s, [4]);
    float sum = warp_sum(x[threadIdx.x]);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
    if (threadIdx.x == 0) o[0] = s[0] + s[1] + s[2] + s[3];
}

static __global__ void barriers_apart(const float* x, float* o)
{
    if (threadIdx.x < 64)
        __syncthreads();
    else
        __syncthreads();
    o[threadIdx.x] = x[threadIdx.x];
}

static __global__ void return_before_barrier(const float* x, float* o)
{
    if (threadIdx.x >= 100) return;
    __syncthreads();
    o[threadIdx.x] = x[threadIdx.x];
}

static __global__ void barrier_in_uneven_loop(const float* x, float* o)
{
    for (uint i = threadIdx.x; i < 200; i += 128) __syncthreads();
    o[threadIdx.x] = x[threadIdx.x];
}

static __global__ void read_past_the_end(const float* x, float* o)
{
    o[threadIdx.x] = x[threadIdx.x] + 0 * x[threadIdx.x + 385];
}

static __global__ void write_past_the_end(const float* x, float* o)
{
    const uint i = first_thread();
    if (i <= 512) o[i] = x[i % 512];
}

static __global__ void write_past_shared(const float* x, float* o)
{
    KS_SHARED(float, s, [128]);
    float* p = s;
    p[threadIdx.x + 1] = x[threadIdx.x];
    __syncthreads();
    o[threadIdx.x] = threadIdx.x ? x[threadIdx.x] : p[1];
}

static __global__ void misaligned_load(const float* x, float* o)
{
    const float4 v = __ldg(reinterpret_cast<const float4*>(x + 1 + 4 * threadIdx.x));
    o[threadIdx.x] = v.x;
}

static __global__ void missing_syncwarp(const float* x, float* o)
{
    KS_SHARED(float, s, [32]);
    s[threadIdx.x] = x[threadIdx.x];
    o[threadIdx.x] = s[threadIdx.x ^ 1];
}

static __global__ void shuffle_as_fence(const float* x, float* o)
{
    KS_SHARED(float, s, [32]);
    s[threadIdx.x] = x[threadIdx.x];
    const int zero = 0 * __shfl_sync(all_lanes, int(threadIdx.x), 0);
    o[threadIdx.x] = s[(threadIdx.x ^ 1) + uint(zero)];
}

static __global__ void lost_update(const float*, float* o)
{
    o[0] += 1;
}

static __global__ void race_between_blocks(const float*, float* o)
{
    const uint i = first_thread();
    const float other = o[(i + 128) % 512];
    o[i] = other + 1;
}

static __global__ void shuffle_in_branch(const float* x, float* o)
{
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) v += __shfl_xor_sync(all_lanes, v, 1);
    o[threadIdx.x] = v;
}

static __global__ void shuffle_from_absent_lane(const float* x, float* o)
{
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) v += __shfl_xor_sync(0xffffu, v, 16);
    o[threadIdx.x] = v;
}

static __global__ void shuffle_in_part_of_a_warp(const float* x, float* o)
{
    o[threadIdx.x] = warp_sum(x[threadIdx.x]);
}

static __global__ void shared_never_written(const float* x, float* o)
{
    KS_SHARED(float, s, [128]);
    if (threadIdx.x < 100) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    o[threadIdx.x] = s[threadIdx.x];
}

static __global__ void half_a_sum(const float* x, float* o)
{
    float sum = x[threadIdx.x];
    for (int apart = 8; apart > 0; apart /= 2) sum += __shfl_xor_sync(all_lanes, sum, apart);
    if (threadIdx.x == 0) o[0] = sum;
}

static __global__ void last_block_without_fence(const float* x, float* o)
{
    uint* count = reinterpret_cast<uint*>(o + 256);
    if (threadIdx.x != 0) return;
    o[blockIdx.x] = x[blockIdx.x];
    if (atomicAdd(count, 1u) != gridDim.x - 1) return;
    float sum = 0;
    for (uint i = 0; i < gridDim.x; i++) sum += o[i];
    o[gridDim.x] = sum;
}

static __global__ void last_block_with_fence(const float* x, float* o)
{
    uint* count = reinterpret_cast<uint*>(o + 256);
    if (threadIdx.x != 0) return;
    o[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    if (atomicAdd(count, 1u) != gridDim.x - 1) return;
    __threadfence();
    float sum = 0;
    for (uint i = 0; i < gridDim.x; i++) sum += o[i];
    o[gridDim.x] = sum;
}

static __global__ void shift_too_far(const float* x, float* o)
{
    const uint mask = (1u << (threadIdx.x + 1)) - 1;
    o[threadIdx.x] = x[threadIdx.x] + float(mask == 12345u);
}

static __global__ void copy_back(const float* x, float* o)
{
    o[threadIdx.x] = x[threadIdx.x];
}

static float g_x[512];
static float* g_o;

static bool differs(uint n, float (*expected)(uint))
{
    for (uint i = 0; i < n; i++)
        if (!(g_o[i] == expected(i))) return true;
    return false;
}
static float same(uint i)
{
    return g_x[i];
}
static float reversed(uint i)
{
    return g_x[127 - i];
}
static float neighbour(uint i)
{
    return g_x[i ^ 1];
}
static float sum_of(uint n)
{
    float sum = 0;
    for (uint i = 0; i < n; i++) sum += g_x[i];
    return sum;
}

enum Finder { nobody, plain, address, race };
struct Fault {
    const char* name;
    Finder finder;
    void (*kernel)(const float*, float*);
    uint blocks, threads;
    bool (*wrong)();
};

static bool four_rows()
{
    return differs(
        128, [](uint i) { return g_x[127 - i] + g_x[255 - i] + g_x[383 - i] + g_x[511 - i]; });
}
static bool total_of_block()
{
    return g_o[0] != sum_of(128);
}
static bool total_of_warp()
{
    return g_o[0] != sum_of(32);
}
static bool total_of_blocks()
{
    return g_o[8] != sum_of(8);
}
static bool in_order()
{
    return differs(128, same);
}
static bool in_order_32()
{
    return differs(32, same);
}
static bool backwards()
{
    return differs(128, reversed);
}
static bool swapped()
{
    return differs(32, neighbour);
}
static bool ones()
{
    return differs(512, [](uint) { return 1.f; });
}
static bool counted()
{
    return g_o[0] != 256;
}
static bool fine()
{
    return false;
}

static const Fault kFaults[] = {
    {"last_block_with_fence", nobody, last_block_with_fence, 8, 32, total_of_blocks},
    {"missing_barrier", plain, missing_barrier, 1, 128, backwards},
    {"missing_barrier_before_writing", plain, missing_barrier_before_writing, 1, 128, four_rows},
    {"missing_barrier_in_sum", plain, missing_barrier_in_sum, 1, 128, total_of_block},
    {"barriers_apart", plain, barriers_apart, 1, 128, in_order},
    {"return_before_barrier", plain, return_before_barrier, 1, 128, fine},
    {"barrier_in_uneven_loop", plain, barrier_in_uneven_loop, 1, 128, fine},
    {"misaligned_load", plain, misaligned_load, 1, 32, fine},
    {"missing_syncwarp", plain, missing_syncwarp, 1, 32, swapped},
    {"race_between_blocks", plain, race_between_blocks, 4, 128, ones},
    {"shuffle_in_branch", plain, shuffle_in_branch, 1, 32, fine},
    {"shuffle_from_absent_lane", plain, shuffle_from_absent_lane, 1, 32, fine},
    {"shuffle_in_part_of_a_warp", plain, shuffle_in_part_of_a_warp, 1, 20, fine},
    {"shared_never_written", plain, shared_never_written, 1, 128, in_order},
    {"half_a_sum", plain, half_a_sum, 1, 32, total_of_warp},
    {"too_many_threads", plain, copy_back, 1, 2048, fine},
    {"read_past_the_end", address, read_past_the_end, 1, 128, in_order},
    {"write_past_the_end", address, write_past_the_end, 5, 128, in_order},
    {"write_past_shared", address, write_past_shared, 1, 128, fine},
    {"shift_too_far", address, shift_too_far, 1, 32, in_order_32},
    {"shuffle_as_fence", race, shuffle_as_fence, 1, 32, swapped},
    {"lost_update", race, lost_update, 2, 128, counted},
    {"last_block_without_fence", race, last_block_without_fence, 8, 32, total_of_blocks},
};

static const char* const kFinders[] = {"nobody", "plain", "address", "race"};

int main(int n_args, char** args)
{
    for (uint i = 0; i < 512; i++) g_x[i] = float(i % 37) + 1;
    for (const Fault& fault : kFaults) {
        if (n_args < 2) printf("%s %s\n", fault.name, kFinders[fault.finder]);
        if (n_args < 2 || strcmp(fault.name, args[1]) != 0) continue;
        float* x = nullptr;
        if (cudaMalloc(&x, sizeof g_x) != cudaSuccess ||
            cudaMalloc(&g_o, sizeof g_x) != cudaSuccess)
            return 1;
        memcpy(x, g_x, sizeof g_x);
        memset(g_o, 0, sizeof g_x);
        try {
            KS_LAUNCH(fault.kernel, fault.blocks, fault.threads, cudaStream_t(nullptr), x, g_o);
        } catch (const cudashim::Error& error) {
            printf("%s\n", error.what());
            return 4;
        }
        return fault.wrong() ? 3 : 0;
    }
    return n_args < 2 ? 0 : 1;
}
