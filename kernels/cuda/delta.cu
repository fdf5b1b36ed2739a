// The gated delta rule (runtime/base/backend.h).
#include "kernels/cuda/scan.cuh"

namespace ks
{

template <uint n_values>
__global__ void delta_kernel(ScanArgs a, ScanTensors in)
{
    begin_kernel();
    ScanRows<n_values> rows(a);
    if (rows.n == 0u) return;
    rows.load(a, in.state);
    const uint n = a.state_dim, q_at = delta_group(a, rows.head) * n, k_at = q_at + a.n_groups * n,
               v_at = (2u * a.n_groups + rows.head) * n + rows.first;
    for (uint64_t t = 0u; t < a.n_tokens; t++) {
        const float* x = in.x + t * scan_cols(a);
        const uint64_t gate = t * a.n_heads + rows.head;
        const float decay = expf(in.a[rows.head] * softplus(in.dt[gate] + in.dt_bias[rows.head]));
        const float beta = sigmoid(in.beta[gate]);
        float q[n_values], k[n_values], qq = 0.f, kk = 0.f, kq = 0.f;
        load_lane<n_values>(a, x + q_at, q);
        load_lane<n_values>(a, x + k_at, k);
        KS_UNROLL
        for (uint v = 0u; v < n_values; v++) {
            qq += q[v] * q[v];
            kk += k[v] * k[v];
            kq += k[v] * q[v];
        }
        const float q_scale = 1.f / sqrtf((warp_sum(qq) + a.eps) * float(n)),
                    k_scale = 1.f / sqrtf(warp_sum(kk) + a.eps);
        kq = warp_sum(kq);
        KS_UNROLL
        for (uint r = 0u; r < scan_rows; r++) {
            float known = 0.f, found = 0.f;
            KS_UNROLL
            for (uint v = 0u; v < n_values; v++) {
                known += rows.m[r][v] * k[v];
                found += rows.m[r][v] * q[v];
            }
            known = decay * k_scale * warp_sum(known);
            const float value = r < rows.n ? x[v_at + r] : 0.f,
                        step = beta * k_scale * (value - known);
            found = q_scale * (decay * warp_sum(found) + step * kq);
            KS_UNROLL
            for (uint v = 0u; v < n_values; v++) rows.m[r][v] = decay * rows.m[r][v] + step * k[v];
            if (r < rows.n && threadIdx.x % 32u == 0u)
                in.y[(t * a.n_heads + rows.head) * n + rows.first + r] = found;
        }
    }
    rows.store(a, in.state);
}

void delta_launch(const ScanArgs& a, const ScanTensors& in, cudaStream_t stream)
{
    KS_LAUNCH_SCAN(delta_kernel, a, in, stream);
}

} // namespace ks
