// Instructions that C++ has no name for: the one header with PTX. In tests the stand-in does what they do.
#pragma once

#include "kernels/cuda/cuda_util.cuh"

#ifdef __CUDACC__

namespace ks
{

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 750
// Before such instructions (Xavier): both products by hand, words of rows l / 4 and l / 4 + 8, and of columns 2 (l % 4) and the next, from
// the lanes that have them. Functions that are called: written out where they are used they take more registers than there are.
static __device__ __noinline__ int4 mma_by_hand(int4 d, uint2 a, uint b)
{
    const int lane = int(threadIdx.x % 32u), row = lane & ~3, column = 8 * (lane & 3);
    for (int t = 0; t < 4; t++) {
        const int low = int(__shfl_sync(all_lanes, a.x, row + t)), high = int(__shfl_sync(all_lanes, a.y, row + t));
        const int first = int(__shfl_sync(all_lanes, b, column + t)), second = int(__shfl_sync(all_lanes, b, column + 4 + t));
        d.x = __dp4a(low, first, d.x);
        d.y = __dp4a(low, second, d.y);
        d.z = __dp4a(high, first, d.z);
        d.w = __dp4a(high, second, d.w);
    }
    return d;
}

// Of eight halves of each row and column.
static __device__ __noinline__ float4 mma_by_hand(float4 d, uint2 a, uint b)
{
    const int lane = int(threadIdx.x % 32u), row = lane & ~3, column = 8 * (lane & 3);
    for (int t = 0; t < 4; t++) {
        const uint low = __shfl_sync(all_lanes, a.x, row + t), high = __shfl_sync(all_lanes, a.y, row + t);
        const uint first = __shfl_sync(all_lanes, b, column + t), second = __shfl_sync(all_lanes, b, column + 4 + t);
        for (uint half = 0u; half < 32u; half += 16u) {
            const float l = HALF_TO_FLOAT(low >> half & 0xffffu), h = HALF_TO_FLOAT(high >> half & 0xffffu);
            const float x = HALF_TO_FLOAT(first >> half & 0xffffu), y = HALF_TO_FLOAT(second >> half & 0xffffu);
            d.x += l * x;
            d.y += l * y;
            d.z += h * x;
            d.w += h * y;
        }
    }
    return d;
}
#endif

// d (16, 8) += a (16, 16) b (16, 8) of bytes. Lane l has of a rows l / 4 and l / 4 + 8, of each bytes 4 (l % 4) to + 3; of b the same
// of column l / 4; of d rows l / 4 (d[0], d[1]) and l / 4 + 8 (d[2], d[3]), columns 2 (l % 4) and the next.
DEVICE void mma_m16n8k16_s8(int (&d)[4], const uint (&a)[2], uint b)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(d[0]), "+r"(d[1]) : "r"(a[0]), "r"(b));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(d[2]), "+r"(d[3]) : "r"(a[1]), "r"(b));
#else
    const int4 sum = mma_by_hand(make_int4(d[0], d[1], d[2], d[3]), make_uint2(a[0], a[1]), b);
    d[0] = sum.x;
    d[1] = sum.y;
    d[2] = sum.z;
    d[3] = sum.w;
#endif
}

// d (16, 8) += a (16, 16) b (16, 8) of halves, two to a word. Lane l has of a rows l / 4 (a[0], a[2]) and l / 4 + 8 (a[1], a[3]), halves
// 2 (l % 4) and the next (a[0], a[1]), and those 8 further on; of b the same of column l / 4; of d what it has of bytes' products.
DEVICE void mma_m16n8k16_f16(float (&d)[4], const uint (&a)[4], const uint (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#else
    float4 sum = mma_by_hand(make_float4(d[0], d[1], d[2], d[3]), make_uint2(a[0], a[1]), b[0]);
    sum = mma_by_hand(sum, make_uint2(a[2], a[3]), b[1]);
    d[0] = sum.x;
    d[1] = sum.y;
    d[2] = sum.z;
    d[3] = sum.w;
#endif
}

// Asks for the 32 bytes of global memory around this one, which will be read: they may then be nearer.
DEVICE void ask_for(const void* at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(at)));
}

// Begins to copy 16 bytes from global to shared memory, where both are multiples of 16; they are there after wait_for_copies.
DEVICE void copy_16(uint* to, const uint* from)
{
#if __CUDA_ARCH__ >= 800
    const uint at = uint(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(__cvta_generic_to_global(from)) : "memory");
#else
    *reinterpret_cast<uint4*>(to) = __ldg(reinterpret_cast<const uint4*>(from));
#endif
}

// For this lane's copies.
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
constexpr bool mma_is_by_hand = true;
#else
constexpr bool mma_is_by_hand = false;
#endif

// power_of_two, in one instruction: what would be below 2^-126 is 0.
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

// An address that is not taken apart: else what several have in common is summed up first, and each takes three instructions for one.
template <class T> DEVICE const T* whole(const T* at)
{
#ifdef __CUDA_ARCH__
    asm("" : "+l"(at));
#endif
    return at;
}

// What lies in shared memory so many bytes after a table that begins at a multiple of a power of two above them: one instruction makes
// the address of a field.
DEVICE float load_of_table(const float* table, uint bytes)
{
#ifdef __CUDA_ARCH__
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(uint(__cvta_generic_to_shared(table)) | bytes));
    return x;
#else
    return table[bytes / 4u];
#endif
}
DEVICE void load_of_table(const float* table, uint bytes, float (&out)[2])
{
#ifdef __CUDA_ARCH__
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(out[0]), "=f"(out[1]) : "r"(uint(__cvta_generic_to_shared(table)) | bytes));
#else
    out[0] = table[bytes / 4u];
    out[1] = table[bytes / 4u + 1u];
#endif
}

// The same where a byte of a word says how many, of a table that begins at a multiple of 256.
DEVICE float load_of_byte(const float* table, uint word, uint byte)
{
#ifdef __CUDA_ARCH__
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(__byte_perm(word, uint(__cvta_generic_to_shared(table)), 0x7650u | byte)));
    return x;
#else
    return table[(word >> 8u * byte & 255u) / 4u];
#endif
}

// Four matrices of 8 rows of 8 halves, two to a word, from shared memory: row l % 8 of matrix l / 8 is the four words from rows[at] on, a
// multiple of 16 bytes, where lane l says so. Lane l gets of each matrix halves 2 (l % 4) and the next of row l / 4.
DEVICE void load_matrices(const uint* rows, uint at, uint (&out)[2][2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0][0]), "=r"(out[0][1]), "=r"(out[1][0]), "=r"(out[1][1])
                 : "r"(uint(__cvta_generic_to_shared(rows + at))));
#else
    const uint lane = threadIdx.x % 32u;
    for (uint i = 0u; i < 4u; i++) out[i / 2u][i % 2u] = rows[__shfl_sync(all_lanes, at, int(8u * i + lane / 4u)) + lane % 4u];
#endif
}

// The same, turned: lane l gets of each matrix half l / 4 of rows 2 (l % 4) and the next.
DEVICE void load_turned_matrices(const uint* rows, uint at, uint (&out)[2][2])
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
