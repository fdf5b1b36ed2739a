// The state of delta and ssm_scan. A warp has some rows of a head's state in registers while they
// pass over the tokens of a chunk.
#pragma once

#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

constexpr uint scan_rows = 4u; // of a warp

// The rows of a warp: those from `first` on of a head, n of them. n_values of each are in a lane.
template <uint n_values>
struct ScanRows {
    uint head, first, n;
    float m[scan_rows][n_values];

    DEVICE_MEMBER explicit ScanRows(const ScanArgs& a)
    {
        const uint n_parts = (a.head_dim + scan_rows - 1u) / scan_rows, warp = first_thread() / 32u;
        head = warp / n_parts;
        first = warp % n_parts * scan_rows;
        n = head >= a.n_heads ? 0u : a.head_dim - first;
        if (n > scan_rows) n = scan_rows;
    }
    // Calls body(r, v, index of the value in the state).
    template <class Body>
    DEVICE_MEMBER void for_values(const ScanArgs& a, const Body& body)
    {
        KS_UNROLL
        for (uint r = 0u; r < scan_rows; r++) {
            KS_UNROLL
            for (uint v = 0u; v < n_values; v++) {
                const uint col = 32u * v + threadIdx.x % 32u;
                if (r < n && col < a.state_dim)
                    body(m[r][v], (uint64_t(head) * a.head_dim + first + r) * a.state_dim + col);
                else
                    m[r][v] = 0.f;
            }
        }
    }
    DEVICE_MEMBER void load(const ScanArgs& a, const float* state)
    {
        for_values(a, [&](float& value, uint64_t at) { value = state[at]; });
    }
    DEVICE_MEMBER void store(const ScanArgs& a, float* state)
    {
        for_values(a, [&](float& value, uint64_t at) { state[at] = value; });
    }
};

// A lane's values of a row of x; zeros behind its end.
template <uint n_values>
DEVICE void load_lane(const ScanArgs& a, const float* x, float* values)
{
    KS_UNROLL
    for (uint v = 0u; v < n_values; v++) {
        const uint col = 32u * v + threadIdx.x % 32u;
        values[v] = col < a.state_dim ? x[col] : 0.f;
    }
}

DEVICE float softplus(float x)
{
    return x > 20.f ? x : log1pf(expf(x));
}

static uint scan_blocks(const ScanArgs& a)
{
    const uint n_warps = a.n_heads * ((a.head_dim + scan_rows - 1u) / scan_rows),
               n_each = n_threads / 32u;
    return (n_warps + n_each - 1u) / n_each;
}

// Launches the instance of a kernel that has all columns of the state in its lanes.
#define KS_LAUNCH_SCAN(kernel, a, in, stream)                                                      \
    do {                                                                                           \
        if (a.state_dim <= 32u)                                                                    \
            KS_LAUNCH(kernel<1u>, scan_blocks(a), n_threads, stream, a, in);                       \
        else if (a.state_dim <= 64u)                                                               \
            KS_LAUNCH(kernel<2u>, scan_blocks(a), n_threads, stream, a, in);                       \
        else if (a.state_dim <= 128u)                                                              \
            KS_LAUNCH(kernel<4u>, scan_blocks(a), n_threads, stream, a, in);                       \
        else                                                                                       \
            KS_LAUNCH(kernel<8u>, scan_blocks(a), n_threads, stream, a, in);                       \
    } while (0)

} // namespace ks
