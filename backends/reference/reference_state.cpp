// The recurrent ops: conv, delta and ssm_scan. A state is rounded to f32 after every token, so
// chunks do not change a bit.
#include "backends/reference/reference_backend.h"

#include <cmath>

namespace ks
{

void check_conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                const Tensor& bias, const Tensor& state)
{
    KS_CHECK(a.act == act_none || a.act == act_silu, "conv: activation %u", a.act);
    KS_CHECK(a.kernel >= 2 && a.kernel <= max_conv_kernel && bool(bias) == bool(a.biased),
             "conv: kernel %u, bias (%u, %u)", a.kernel, bias.rows, bias.cols);
    check_values("conv", y, uint64_t(a.n_tokens) * a.cols);
    check_values("conv", x, uint64_t(a.n_tokens) * a.cols);
    check_values("conv", w, uint64_t(a.kernel) * a.cols);
    check_values("conv", state, uint64_t(a.kernel - 1) * a.cols);
    if (a.biased) check_values("conv", bias, a.cols);
}

void ReferenceBackend::conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                            const Tensor& bias, const Tensor& state)
{
    check_conv(a, y, x, w, bias, state);
    for (uint32_t c = 0; c < a.cols; c++) {
        float seen[max_conv_kernel]; // the last inputs, the oldest first
        for (uint32_t j = 0; j + 1 < a.kernel; j++) seen[j] = state.ptr()[uint64_t(j) * a.cols + c];
        for (uint64_t t = 0; t < a.n_tokens; t++) {
            seen[a.kernel - 1] = x.ptr()[t * a.cols + c];
            double sum = a.biased ? bias.ptr()[c] : 0;
            for (uint32_t j = 0; j < a.kernel; j++)
                sum += double(w.ptr()[uint64_t(j) * a.cols + c]) * seen[j];
            y.ptr()[t * a.cols + c] = float(a.act == act_silu ? sum / (1 + std::exp(-sum)) : sum);
            for (uint32_t j = 0; j + 1 < a.kernel; j++) seen[j] = seen[j + 1];
        }
        for (uint32_t j = 0; j + 1 < a.kernel; j++) state.ptr()[uint64_t(j) * a.cols + c] = seen[j];
    }
}

static void check_scan(const char* op, const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    KS_CHECK(a.n_groups > 0 && a.n_heads % a.n_groups == 0, "%s: %u heads, %u groups", op,
             a.n_heads, a.n_groups);
    KS_CHECK(a.state_dim % scan_lanes == 0 && a.state_dim <= max_state_dim, "%s: %u columns", op,
             a.state_dim);
    const uint64_t rows = uint64_t(a.n_heads) * a.head_dim;
    check_values(op, y, a.n_tokens * rows);
    check_values(op, in.x, uint64_t(a.n_tokens) * scan_cols(a));
    check_values(op, in.dt, uint64_t(a.n_tokens) * a.n_heads);
    check_values(op, in.a, a.n_heads);
    check_values(op, in.dt_bias, a.n_heads);
    check_values(op, in.state, rows * a.state_dim);
}

void check_delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    KS_CHECK(a.head_dim == a.state_dim, "delta: a state of %u x %u", a.head_dim, a.state_dim);
    check_scan("delta", a, y, in);
    check_values("delta", in.beta, uint64_t(a.n_tokens) * a.n_heads);
}

void check_ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    check_scan("ssm_scan", a, y, in);
    check_values("ssm_scan", in.d, a.n_heads);
}

static double softplus(double x)
{
    return x > 20 ? x : std::log1p(std::exp(x));
}

void ReferenceBackend::delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    check_delta(a, y, in);
    const uint32_t n = a.state_dim;
    for (uint32_t h = 0; h < a.n_heads; h++)
        for (uint64_t t = 0; t < a.n_tokens; t++) {
            const float* x = in.x.ptr() + t * scan_cols(a);
            const float *q = x + delta_group(a, h) * n, *k = q + a.n_groups * n,
                        *v = x + (2 * a.n_groups + h) * n;
            const double dt =
                             softplus(double(in.dt.ptr()[t * a.n_heads + h]) + in.dt_bias.ptr()[h]),
                         decay = std::exp(in.a.ptr()[h] * dt),
                         beta = 1 / (1 + std::exp(-double(in.beta.ptr()[t * a.n_heads + h])));
            const double q_scale = 1 / std::sqrt((reference_dot(q, q, n) + a.eps) * n),
                         k_scale = 1 / std::sqrt(reference_dot(k, k, n) + a.eps);
            for (uint32_t i = 0; i < n; i++) {
                float* row = in.state.ptr() + (uint64_t(h) * n + i) * n;
                const double known = decay * k_scale * reference_dot(row, k, n),
                             step = beta * (v[i] - known) * k_scale;
                for (uint32_t j = 0; j < n; j++) row[j] = float(decay * row[j] + step * k[j]);
                y.ptr()[(t * a.n_heads + h) * n + i] = float(q_scale * reference_dot(row, q, n));
            }
        }
}

void ReferenceBackend::ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    check_ssm_scan(a, y, in);
    const uint32_t n = a.state_dim, inner = a.n_heads * a.head_dim;
    for (uint32_t h = 0; h < a.n_heads; h++)
        for (uint64_t t = 0; t < a.n_tokens; t++) {
            const float *x = in.x.ptr() + t * scan_cols(a), *u = x + h * a.head_dim;
            const float *b = x + inner + ssm_group(a, h) * n, *c = b + a.n_groups * n;
            const double dt =
                             softplus(double(in.dt.ptr()[t * a.n_heads + h]) + in.dt_bias.ptr()[h]),
                         decay = std::exp(in.a.ptr()[h] * dt);
            for (uint32_t i = 0; i < a.head_dim; i++) {
                float* row = in.state.ptr() + (uint64_t(h) * a.head_dim + i) * n;
                for (uint32_t j = 0; j < n; j++) row[j] = float(decay * row[j] + dt * u[i] * b[j]);
                y.ptr()[t * inner + h * a.head_dim + i] =
                    float(reference_dot(row, c, n) + double(in.d.ptr()[h]) * u[i]);
            }
        }
}

} // namespace ks
