// Instructions that CUDA C++ has no function for. This is the only header with PTX.
// In tests the CUDA shim implements the same functions in C++ (tests/cuda_shim/cuda_shim_mma.h).
#pragma once

#include "kernels/cuda/cuda_util.cuh"

#ifdef __CUDACC__

namespace ks
{

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 750
// Devices below compute capability 7.5 (Xavier) have no such instructions. These functions compute
// the same products.
// Lane l gets rows l / 4 and l / 4 + 8 of a and columns 2 (l % 4) and 2 (l % 4) + 1 of b by
// shuffles.
// The functions are not inlined: inlined, they need more registers than a thread has.
// int8, sixteen values of each row and column:
static __device__ __noinline__ int4 mma_emulated(int4 d, uint2 a, uint b)
{
    const int lane = int(threadIdx.x % 32u), row = lane & ~3, column = 8 * (lane & 3);
    for (int t = 0; t < 4; t++) {
        const int low = int(__shfl_sync(all_lanes, a.x, row + t)),
                  high = int(__shfl_sync(all_lanes, a.y, row + t));
        const int first = int(__shfl_sync(all_lanes, b, column + t)),
                  second = int(__shfl_sync(all_lanes, b, column + 4 + t));
        d.x = __dp4a(low, first, d.x);
        d.y = __dp4a(low, second, d.y);
        d.z = __dp4a(high, first, d.z);
        d.w = __dp4a(high, second, d.w);
    }
    return d;
}

// f16, eight values of each row and column:
static __device__ __noinline__ float4 mma_emulated(float4 d, uint2 a, uint b)
{
    const int lane = int(threadIdx.x % 32u), row = lane & ~3, column = 8 * (lane & 3);
    for (int t = 0; t < 4; t++) {
        const uint low = __shfl_sync(all_lanes, a.x, row + t),
                   high = __shfl_sync(all_lanes, a.y, row + t);
        const uint first = __shfl_sync(all_lanes, b, column + t),
                   second = __shfl_sync(all_lanes, b, column + 4 + t);
        for (uint half = 0u; half < 32u; half += 16u) {
            const float l = HALF_TO_FLOAT(low >> half & 0xffffu),
                        h = HALF_TO_FLOAT(high >> half & 0xffffu);
            const float x = HALF_TO_FLOAT(first >> half & 0xffffu),
                        y = HALF_TO_FLOAT(second >> half & 0xffffu);
            d.x += l * x;
            d.y += l * y;
            d.z += h * x;
            d.w += h * y;
        }
    }
    return d;
}
#endif

// d (16, 8) += a (16, 16) b (16, 8) in int8, four values per word. Lane l holds:
//   a: values 4 (l % 4) .. 4 (l % 4) + 3 of rows l / 4 (a[0]) and l / 4 + 8 (a[1])
//   b: values 4 (l % 4) .. 4 (l % 4) + 3 of column l / 4
//   d: columns 2 (l % 4) and 2 (l % 4) + 1 of rows l / 4 (d[0], d[1]) and l / 4 + 8 (d[2], d[3])
DEVICE void mma_m16n8k16_s8(int (&d)[4], const uint (&a)[2], uint b)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a[0]), "r"(b));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(d[2]), "+r"(d[3])
                 : "r"(a[1]), "r"(b));
#else
    const int4 sum = mma_emulated(make_int4(d[0], d[1], d[2], d[3]), make_uint2(a[0], a[1]), b);
    d[0] = sum.x;
    d[1] = sum.y;
    d[2] = sum.z;
    d[3] = sum.w;
#endif
}

// d (16, 8) += a (16, 16) b (16, 8) in f16 with f32 sums, two values per word. With i = 2 (l % 4),
// lane l holds:
//   a: values i, i + 1 of rows l / 4 (a[0]) and l / 4 + 8 (a[1]); values i + 8, i + 9 of them
//   (a[2], a[3])
//   b: values i, i + 1 (b[0]) and i + 8, i + 9 (b[1]) of column l / 4
//   d: the same elements as in mma_m16n8k16_s8
DEVICE void mma_m16n8k16_f16(float (&d)[4], const uint (&a)[4], const uint (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#else
    float4 sum = mma_emulated(make_float4(d[0], d[1], d[2], d[3]), make_uint2(a[0], a[1]), b[0]);
    sum = mma_emulated(sum, make_uint2(a[2], a[3]), b[1]);
    d[0] = sum.x;
    d[1] = sum.y;
    d[2] = sum.z;
    d[3] = sum.w;
#endif
}

// Prefetches the 32-byte sector of global memory that contains this address into L2.
DEVICE void prefetch(const void* at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(at)));
}

// Starts a copy of 16 bytes from global to shared memory. Both addresses are multiples of 16.
// The bytes may be read after wait_for_copies().
DEVICE void copy_16(uint* to, const uint* from)
{
#if __CUDA_ARCH__ >= 800
    const uint at = uint(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
#else
    *reinterpret_cast<uint4*>(to) = __ldg(reinterpret_cast<const uint4*>(from));
#endif
}

// Waits for the copies that this lane started.
DEVICE void wait_for_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

} // namespace ks

#else
#include <cuda_shim_mma.h>
#endif

namespace ks
{

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
constexpr bool mma_is_emulated = true;
#else
constexpr bool mma_is_emulated = false;
#endif

// power_of_two in one instruction. Results below 2^-126 are 0.
DEVICE float power_of_two_flushed(float x)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return power_of_two(x);
#endif
}

// Makes an address opaque to the compiler. Otherwise the compiler computes the common part of
// several addresses first, and each address then takes three instructions instead of one.
template <class T>
DEVICE const T* opaque_address(const T* at)
{
#ifdef __CUDA_ARCH__
    asm("" : "+l"(at));
#endif
    return at;
}

// Loads from shared memory, `bytes` after the start of a table. The table is aligned to a power of
// two above `bytes`, so one OR gives the address.
DEVICE float load_at_offset(const float* table, uint bytes)
{
#ifdef __CUDA_ARCH__
    float x;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(x)
                 : "r"(uint(__cvta_generic_to_shared(table)) | bytes));
    return x;
#else
    return table[bytes / 4u];
#endif
}
DEVICE void load_at_offset(const float* table, uint bytes, float (&out)[2])
{
#ifdef __CUDA_ARCH__
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(out[0]), "=f"(out[1])
                 : "r"(uint(__cvta_generic_to_shared(table)) | bytes));
#else
    out[0] = table[bytes / 4u];
    out[1] = table[bytes / 4u + 1u];
#endif
}

// The same with the offset in one byte of a word. The table starts at a multiple of 256.
DEVICE float load_at_byte_offset(const float* table, uint word, uint byte)
{
#ifdef __CUDA_ARCH__
    float x;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(x)
                 : "r"(__byte_perm(word, uint(__cvta_generic_to_shared(table)), 0x7650u | byte)));
    return x;
#else
    return table[(word >> 8u * byte & 255u) / 4u];
#endif
}

// Loads four 8x8 matrices of f16, two values per word, from shared memory (ldmatrix).
// Lane l passes the place of row l % 8 of matrix l / 8. That row is the four words from rows[at]
// on, aligned to 16 bytes.
// Lane l receives values 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each matrix.
DEVICE void load_matrices(const uint* rows, uint at, uint (&out)[2][2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0][0]), "=r"(out[0][1]), "=r"(out[1][0]), "=r"(out[1][1])
                 : "r"(uint(__cvta_generic_to_shared(rows + at))));
#else
    const uint lane = threadIdx.x % 32u;
    for (uint i = 0u; i < 4u; i++)
        out[i / 2u][i % 2u] = rows[__shfl_sync(all_lanes, at, int(8u * i + lane / 4u)) + lane % 4u];
#endif
}

// The same, transposed: lane l receives value l / 4 of rows 2 (l % 4) and 2 (l % 4) + 1 of each
// matrix.
DEVICE void load_transposed_matrices(const uint* rows, uint at, uint (&out)[2][2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0][0]), "=r"(out[0][1]), "=r"(out[1][0]), "=r"(out[1][1])
                 : "r"(uint(__cvta_generic_to_shared(rows + at))));
#else
    const uint lane = threadIdx.x % 32u, shift = lane / 4u % 2u * 16u;
    for (uint i = 0u; i < 4u; i++) {
        const uint row = 8u * i + 2u * (lane % 4u);
        const uint low = rows[__shfl_sync(all_lanes, at, int(row)) + lane / 8u];
        const uint high = rows[__shfl_sync(all_lanes, at, int(row + 1u)) + lane / 8u];
        out[i / 2u][i % 2u] = (low >> shift & 0xffffu) | (high >> shift & 0xffffu) << 16;
    }
#endif
}

} // namespace ks
