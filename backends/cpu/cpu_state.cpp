// The recurrent ops: threads share the tokens of conv and the heads of delta and ssm_scan.
#include "backends/cpu/cpu_backend.h"

#include <cstring>

namespace ks
{

// The state then holds the last kernel - 1 of the rows that it held and those of x.
static void keep_last_rows(const ConvArgs& a, float* state, const float* x)
{
    const uint32_t n_kept = a.kernel - 1, n_new = std::min(a.n_tokens, n_kept),
                   n_old = n_kept - n_new;
    const size_t row = a.cols;
    memmove(state, state + n_new * row, 4 * n_old * row);
    memcpy(state + n_old * row, x + (a.n_tokens - n_new) * row, 4 * n_new * row);
}

void CpuBackend::conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                      const Tensor& bias, const Tensor& state)
{
    check_conv(a, y, x, w, bias, state);
    for_rows(a.n_tokens, a.cols, [&](uint32_t begin, uint32_t end) {
        for (uint64_t t = begin; t < end; t++) {
            const float* rows[max_conv_kernel];
            for (uint64_t j = 0, n_kept = a.kernel - 1; j < a.kernel; j++)
                rows[j] = t + j < n_kept ? state.ptr() + (t + j) * a.cols
                                         : x.ptr() + (t + j - n_kept) * a.cols;
            m_kernels.vector.conv(a, y.ptr() + t * a.cols, rows, w.ptr(),
                                  a.biased ? bias.ptr() : nullptr);
        }
    });
    keep_last_rows(a, state.ptr(), x.ptr());
}

static ScanTask scan_task(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    return {a,          y.ptr(),    in.x.ptr(),       in.dt.ptr(),   in.beta.ptr(),
            in.a.ptr(), in.d.ptr(), in.dt_bias.ptr(), in.state.ptr()};
}

void CpuBackend::delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    check_delta(a, y, in);
    const ScanTask task = scan_task(a, y, in);
    m_pool.parallel_for(a.n_heads, [&](uint32_t head, int) { m_kernels.vector.delta(task, head); });
}

void CpuBackend::ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    check_ssm_scan(a, y, in);
    const ScanTask task = scan_task(a, y, in);
    m_pool.parallel_for(a.n_heads,
                        [&](uint32_t head, int) { m_kernels.vector.ssm_scan(task, head); });
}

} // namespace ks
