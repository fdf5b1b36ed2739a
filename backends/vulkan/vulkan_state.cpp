// The recurrent ops.
#include "backends/vulkan/vulkan_ops.h"

namespace ks
{

void VulkanBackend::conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Tensor& state)
{
    KS_CHECK(a.kernel >= 2 && a.kernel <= max_conv_kernel && bool(bias) == bool(a.biased),
             "conv: kernel %u, bias (%u, %u)", a.kernel, bias.rows, bias.cols);
    const uint64_t n = uint64_t(a.n_tokens) * a.cols;
    const VulkanBinding bound[] = {values(y, n), values(x, n),
                                   values(w, uint64_t(a.kernel) * a.cols), optional(bias, a.cols),
                                   values(state, uint64_t(a.kernel - 1) * a.cols)};
    run("conv", "", {}, a, bound,
        {divide_up(a.cols, kThreads), divide_up(a.n_tokens, conv_tokens)});
}

void VulkanBackend::scan(bool delta, const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    KS_CHECK(a.n_groups && a.n_heads % a.n_groups == 0 && a.state_dim % scan_lanes == 0 &&
                 a.state_dim <= max_state_dim && (!delta || a.head_dim == a.state_dim),
             "scan: %u heads, %u groups, a state of %u x %u", a.n_heads, a.n_groups, a.head_dim,
             a.state_dim);
    const uint64_t n_rows = uint64_t(a.n_heads) * a.head_dim,
                   n_gates = uint64_t(a.n_tokens) * a.n_heads;
    const VulkanBinding bound[] = {values(y, a.n_tokens * n_rows),
                                   values(in.x, uint64_t(a.n_tokens) * scan_cols(a)),
                                   values(in.dt, n_gates),
                                   delta ? values(in.beta, n_gates) : values(in.d, a.n_heads),
                                   values(in.a, a.n_heads),
                                   values(in.dt_bias, a.n_heads),
                                   values(in.state, n_rows * a.state_dim)};
    const uint32_t width = m_device.candidate().faster.width;
    const bool sums = reduces() && a.state_dim <= scan_values * width;
    const char* const ops[2][2] = {{"ssm_scan", "ssm_scan_sums"}, {"delta", "delta_sums"}};
    run(ops[delta][sums], "", {}, a, bound,
        {divide_up(n_rows, kThreads / (sums ? width : scan_lanes))});
}

void VulkanBackend::delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    scan(true, a, y, in);
}

void VulkanBackend::ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    scan(false, a, y, in);
}

} // namespace ks
