// The scan of Mamba 2 (runtime/base/backend.h).
#include "kernels/cuda/scan.cuh"

namespace ks
{

template <uint n_values>
__global__ void ssm_scan_kernel(ScanArgs a, ScanTensors in)
{
    begin_kernel();
    ScanRows<n_values> rows(a);
    if (rows.n == 0u) return;
    rows.load(a, in.state);
    const uint n = a.state_dim, inner = a.n_heads * a.head_dim,
               x_at = rows.head * a.head_dim + rows.first,
               b_at = inner + ssm_group(a, rows.head) * n, c_at = b_at + a.n_groups * n;
    for (uint64_t t = 0u; t < a.n_tokens; t++) {
        const float* x = in.x + t * scan_cols(a);
        const float step = softplus(in.dt[t * a.n_heads + rows.head] + in.dt_bias[rows.head]);
        const float decay = expf(in.a[rows.head] * step);
        float b[n_values], c[n_values];
        load_lane<n_values>(a, x + b_at, b);
        load_lane<n_values>(a, x + c_at, c);
        KS_UNROLL
        for (uint r = 0u; r < scan_rows; r++) {
            const float value = r < rows.n ? x[x_at + r] : 0.f;
            float sum = 0.f;
            KS_UNROLL
            for (uint v = 0u; v < n_values; v++) {
                rows.m[r][v] = decay * rows.m[r][v] + step * value * b[v];
                sum += rows.m[r][v] * c[v];
            }
            sum = warp_sum(sum) + in.d[rows.head] * value;
            if (r < rows.n && threadIdx.x % 32u == 0u) in.y[t * inner + x_at + r] = sum;
        }
    }
    rows.store(a, in.state);
}

void ssm_scan_launch(const ScanArgs& a, const ScanTensors& in, cudaStream_t stream)
{
    KS_LAUNCH_SCAN(ssm_scan_kernel, a, in, stream);
}

} // namespace ks
