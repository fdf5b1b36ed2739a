// matmul: the choice of the shader and the division of the work.
#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kSide = 32;     // rows and tokens of a tiled workgroup (shaders/matmul.comp)
constexpr uint32_t kWideSide = 64; // the same in shaders/matmul_int8.comp and matmul_f16.comp
constexpr uint32_t kMaxMatvecTokens = 8; // most tokens of a matvec
// Fewest columns for int8 with one token. With fewer, quantizing x takes longer than it saves.
constexpr uint32_t kInt8Cols = 2048;
constexpr uint32_t kUnit = 32; // values that a matvec thread takes at a time (shaders/matvec.glsl)

uint64_t matvec_groups(const MatvecShape& s, uint32_t rows)
{
    return divide_up(divide_up(rows, tile_rows), kThreads / tile_rows / s.splits * s.n_tiles);
}

MatvecShape matvec_shape(uint32_t lanes, uint32_t n_tokens, uint32_t rows, uint32_t cols)
{
    if (lanes == 0) return {n_tokens > 4 ? 8 : n_tokens > 2 ? 4 : n_tokens, 16, 1};
    const MatvecShape two{1, 2, 4}, eight{1, 8, 4};
    auto cost = [&](const MatvecShape& s) {
        return align_up(matvec_groups(s, rows), 4) * divide_up(cols / kUnit, s.splits);
    };
    const uint32_t splits = cost(two) <= cost(eight) ? 2 : 8;
    return n_tokens == 1 ? MatvecShape{1, splits, 4} : MatvecShape{8, splits, 2};
}

// A way to multiply: its shader, the feature it uses (vulkan_features.h), and the size of its
// workgroups. Weights of single values (f32, f16, bf16) are multiplied in f32.
struct VulkanBackend::Product {
    const char* op;
    uint32_t use = 0;      // 0: the shader reads x in f32
    uint32_t side = kSide; // rows and tokens of a tiled workgroup
    bool tiled = false;
};

VulkanBackend::Product VulkanBackend::product_of(Format format, uint32_t n_tokens,
                                                 uint32_t cols) const
{
    const uint32_t uses = m_device.limits().uses;
    const bool tiled = n_tokens > kMaxMatvecTokens;
    if (m_device.limits().lanes) return {"matmul_lanes"};
    if (format_info(format).block == 1) return {"matmul", 0, kSide, tiled};
    if (tiled && uses & use_matrices)
        return {"matmul_f16_matrices", use_matrices, kWideSide, tiled};
    if (uses & use_int8_dot && (n_tokens > 1 || cols >= kInt8Cols))
        return {"matmul_int8", use_int8_dot, kWideSide, tiled};
    if (tiled && uses & use_f16) return {"matmul_f16", use_f16, kWideSide, tiled};
    return {"matmul", 0, kSide, tiled};
}

static uint64_t bytes_of_quantized(uint32_t n_tokens, uint32_t cols)
{
    return uint64_t(n_tokens) * (cols / kUnit) * act_words * 4;
}

static uint64_t f16_bytes(uint32_t n_tokens, uint32_t cols)
{
    return uint64_t(n_tokens) * (2ull * cols + 4);
}

// The largest converted copy of x (int8 or f16).
uint64_t VulkanBackend::prepared_bytes(const ScratchShape& shape) const
{
    const uint32_t uses = m_device.limits().uses;
    return std::max(uses & use_int8_dot ? bytes_of_quantized(shape.n_tokens, shape.max_cols) : 0,
                    uses & (use_f16 | use_matrices) ? f16_bytes(shape.n_tokens, shape.max_cols)
                                                    : 0);
}

VulkanBinding VulkanBackend::convert_input(const MatmulArgs& a, const Product& product,
                                           const Tensor& x)
{
    const bool f16 = product.use != use_int8_dot;
    const uint64_t bytes =
        f16 ? f16_bytes(a.n_tokens, a.cols) : bytes_of_quantized(a.n_tokens, a.cols);
    KS_CHECK(bytes <= m_scratch.bytes, "matmul: %u tokens, scratch of %llu", a.n_tokens,
             (unsigned long long)m_scratch.bytes);
    const VulkanBinding prepared{m_scratch.buffer, m_scratch.offset, bytes, m_scratch.buffer_bytes};
    const VulkanBinding bound[] = {prepared, values(x, uint64_t(a.n_tokens) * a.cols)};
    run(f16 ? "to_f16" : "quantize", "", {}, a, bound,
        f16 ? Groups{a.n_tokens} : threads_for(uint64_t(a.n_tokens) * (a.cols / 16)));
    return prepared;
}

void VulkanBackend::multiply(const MatmulArgs& a, const Product& product,
                             const MatmulTarget& target, const VulkanBinding& x)
{
    const Tensor& w = target.w;
    const VulkanFeatures& faster = m_device.candidate().faster;
    const uint32_t lanes = m_device.limits().lanes, step = weight_rows(w);
    for (uint32_t row = 0; row < w.rows; row += step) {
        const RowRange part{row, std::min(step, w.rows - row)};
        const VulkanBinding bound[] = {values(target.y, uint64_t(a.n_tokens) * w.rows),
                                       weight_part(w, part), x};
        struct {
            MatmulArgs a;
            RowRange part;
            float scale;
        } push{{a.n_tokens, w.rows, a.cols, a.accumulate}, part, target.scale};
        const MatvecShape s = product.tiled ? MatvecShape{0, 16, 1}
                                            : matvec_shape(lanes, a.n_tokens, part.n_rows, a.cols);
        Groups groups{divide_up(part.n_rows, product.side), divide_up(a.n_tokens, product.side)};
        if (!product.tiled)
            groups = {matvec_groups(s, part.n_rows), divide_up(a.n_tokens, s.n_vec_tokens)};
        VulkanSpecial special{{s.n_vec_tokens, s.splits, s.n_tiles}};
        if (product.use == use_matrices) special = {{faster.m, faster.n, faster.k, faster.width}};
        run(product.op, format_info(w.format).name, special, push, bound, groups,
            double(part.n_rows) * a.cols * a.n_tokens);
    }
}

void VulkanBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                           const Tensor& x)
{
    VulkanBinding prepared{};
    for (int i = 0; i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        KS_CHECK(w.cols == a.cols && (i > 0 || w.rows == a.rows), "matmul: (%u, %u), w (%u, %u)",
                 a.rows, a.cols, w.rows, w.cols);
        const Product product = product_of(w.format, a.n_tokens, a.cols);
        if (product.use && !prepared.buffer) prepared = convert_input(a, product, x);
        multiply(a, product, targets[i],
                 product.use ? prepared : values(x, uint64_t(a.n_tokens) * a.cols));
    }
}

} // namespace ks
