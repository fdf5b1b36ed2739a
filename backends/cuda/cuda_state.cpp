// The recurrent ops.
#include "backends/cuda/cuda_backend.h"

namespace ks
{

void CudaBackend::conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                       const Tensor& bias, const Tensor& state)
{
    KS_CHECK(a.kernel >= 2 && a.kernel <= max_conv_kernel && bool(bias) == bool(a.biased),
             "conv: kernel %u, bias (%u, %u)", a.kernel, bias.rows, bias.cols);
    const uint64_t n = uint64_t(a.n_tokens) * a.cols;
    m_quantized_input = {};
    m_stream.run("conv", conv_launch, a, cuda_values(y, n), cuda_values(x, n),
                 cuda_values(w, uint64_t(a.kernel) * a.cols), cuda_values(bias, a.cols),
                 cuda_values(state, uint64_t(a.kernel - 1) * a.cols));
}

static ScanTensors scan_tensors(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    KS_CHECK(a.n_groups && a.n_heads % a.n_groups == 0 && a.state_dim % scan_lanes == 0 &&
                 a.state_dim <= max_state_dim,
             "scan: %u heads, %u groups, %u columns", a.n_heads, a.n_groups, a.state_dim);
    const uint64_t n_rows = uint64_t(a.n_heads) * a.head_dim,
                   n_gates = uint64_t(a.n_tokens) * a.n_heads;
    return {
        cuda_values(y, a.n_tokens * n_rows), cuda_values(in.x, uint64_t(a.n_tokens) * scan_cols(a)),
        cuda_values(in.dt, n_gates),         cuda_values(in.beta, n_gates),
        cuda_values(in.a, a.n_heads),        cuda_values(in.d, a.n_heads),
        cuda_values(in.dt_bias, a.n_heads),  cuda_values(in.state, n_rows * a.state_dim)};
}

void CudaBackend::delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    KS_CHECK(a.head_dim == a.state_dim && in.beta, "delta: a state of %u x %u", a.head_dim,
             a.state_dim);
    m_quantized_input = {};
    m_stream.run("delta", delta_launch, a, scan_tensors(a, y, in));
}

void CudaBackend::ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    KS_CHECK(bool(in.d), "ssm_scan: no factors d");
    m_quantized_input = {};
    m_stream.run("ssm_scan", ssm_scan_launch, a, scan_tensors(a, y, in));
}

} // namespace ks
