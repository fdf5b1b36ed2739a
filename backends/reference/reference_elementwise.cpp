// The ops on rows and on single values: norm, glu, add, scale, copy_cols, softcap
// and argmax.
#include "backends/reference/reference_backend.h"

#include <algorithm>
#include <cmath>

namespace ks
{

void check_norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w)
{
    KS_CHECK(a.kind == norm_rms || a.kind == norm_layer, "norm: kind %u", a.kind);
    KS_CHECK(a.w_rows > 0 && w.cols == a.dim, "norm: %u rows of %u, w (%u, %u)", a.w_rows, a.dim,
             w.rows, w.cols);
    check_values("norm", y, uint64_t(a.rows) * a.dim);
    check_values("norm", x, (uint64_t(a.first_row) + a.rows) * a.dim);
    check_values("norm", w, uint64_t(a.w_rows) * a.dim);
}

void ReferenceBackend::norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w)
{
    check_norm(a, y, x, w);
    for (uint32_t r = 0; r < a.rows; r++) {
        const float* from = x.ptr() + (uint64_t(a.first_row) + r) * a.dim;
        const float* weight = w.ptr() + uint64_t(r % a.w_rows) * a.dim;
        float* to = y.ptr() + uint64_t(r) * a.dim;
        double mean = 0, squares = 0;
        for (uint32_t i = 0; i < a.dim && a.kind == norm_layer; i++) mean += from[i];
        mean /= a.dim;
        for (uint32_t i = 0; i < a.dim; i++) squares += (from[i] - mean) * (from[i] - mean);
        const double scale = 1.0 / std::sqrt(squares / a.dim + a.eps);
        for (uint32_t i = 0; i < a.dim; i++) to[i] = float((from[i] - mean) * scale * weight[i]);
    }
}

void check_glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up)
{
    KS_CHECK(a.act <= act_none, "glu: activation %u", a.act);
    KS_CHECK(a.gate_group > 0 && a.n % a.gate_group == 0 && (a.gated || a.gate_group == 1),
             "glu: %u values, %u to a gate", a.n, a.gate_group);
    KS_CHECK(a.act != act_swiglu_oai || a.gated, "glu: activation %u without up", a.act);
    KS_CHECK(bool(up) == bool(a.gated), "glu: up (%u, %u), gated %u", up.rows, up.cols, a.gated);
    check_values("glu", y, a.n);
    check_values("glu", gate, a.n / a.gate_group);
    if (a.gated) check_values("glu", up, a.n);
}

static double activation(const GluArgs& a, double g)
{
    const double root = 0.7978845608028654; // sqrt(2 / pi)
    switch (a.act) {
    case act_silu:
        return g / (1.0 + std::exp(-g));
    case act_gelu:
        return 0.5 * g * (1.0 + std::tanh(root * (g + 0.044715 * g * g * g)));
    case act_relu2:
        return g > 0 ? g * g : 0.0;
    case act_sigmoid:
        return 1.0 / (1.0 + std::exp(-g));
    case act_swiglu_oai:
        g = std::min(g, double(swiglu_oai_limit));
        return g / (1.0 + std::exp(-double(swiglu_oai_alpha) * g));
    case act_none:
        return g;
    default:
        if (g > 0) return a.alpha_p * g * g + a.beta * g;
        return (std::expm1(std::min(g, double(a.eps))) - g) * a.alpha_n + a.beta * g;
    }
}

void ReferenceBackend::glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up)
{
    check_glu(a, y, gate, up);
    for (uint32_t i = 0; i < a.n; i++) {
        const double g = activation(a, gate.ptr()[i / a.gate_group]);
        double u = a.gated ? up.ptr()[i] : 1.0;
        if (a.act == act_swiglu_oai)
            u = std::clamp(u, -double(swiglu_oai_limit), double(swiglu_oai_limit)) + 1.0;
        y.ptr()[i] = float(g * u);
    }
}

void ReferenceBackend::add(const AddArgs& a, const Tensor& x, const Tensor& b)
{
    KS_CHECK(a.b_rows == 1 || a.b_rows == a.rows, "add: %u rows to %u", a.b_rows, a.rows);
    check_values("add", x, uint64_t(a.rows) * a.cols);
    check_values("add", b, uint64_t(a.b_rows) * a.cols);
    for (uint32_t r = 0; r < a.rows; r++)
        for (uint32_t i = 0; i < a.cols; i++)
            x.ptr()[uint64_t(r) * a.cols + i] +=
                b.ptr()[uint64_t(a.b_rows == 1 ? 0 : r) * a.cols + i];
}

void ReferenceBackend::scale(const ScaleArgs& a, const Tensor& x, const Tensor& s)
{
    check_values("scale", x, uint64_t(a.rows) * a.cols);
    check_values("scale", s, a.rows);
    for (uint32_t r = 0; r < a.rows; r++)
        for (uint32_t i = 0; i < a.cols; i++) x.ptr()[uint64_t(r) * a.cols + i] *= s.ptr()[r];
}

void check_copy(const CopyColsArgs& a, const Tensor& y, const Tensor& x)
{
    KS_CHECK(a.y_first + a.cols <= a.y_cols && a.x_first + a.cols <= a.x_cols,
             "copy_cols: %u from %u of %u to %u of %u", a.cols, a.x_first, a.x_cols, a.y_first,
             a.y_cols);
    check_values("copy_cols", y, uint64_t(a.rows) * a.y_cols);
    check_values("copy_cols", x, uint64_t(a.rows) * a.x_cols);
}

void ReferenceBackend::copy_cols(const CopyColsArgs& a, const Tensor& y, const Tensor& x)
{
    check_copy(a, y, x);
    for (uint64_t r = 0; r < a.rows; r++)
        std::copy_n(x.ptr() + r * a.x_cols + a.x_first, a.cols, y.ptr() + r * a.y_cols + a.y_first);
}

void ReferenceBackend::softcap(const SoftcapArgs& a, const Tensor& x)
{
    check_values("softcap", x, a.n);
    for (uint32_t i = 0; i < a.n; i++)
        x.ptr()[i] = float(a.cap * std::tanh(double(x.ptr()[i]) / a.cap));
}

void ReferenceBackend::argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x)
{
    check_values("argmax", x, uint64_t(a.rows) * a.cols);
    check_values("argmax", out, a.rows);
    for (uint32_t r = 0; r < a.rows; r++) {
        const float* row = x.ptr() + uint64_t(r) * a.cols;
        out.ptr<uint32_t>()[r] = uint32_t(std::max_element(row, row + a.cols) - row);
    }
}

} // namespace ks
