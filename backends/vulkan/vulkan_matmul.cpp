// matmul: which shader, and how the work is cut.
#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kSide = 32;      // rows and tokens of a workgroup where there are many (shaders/matmul.comp)
constexpr uint32_t kWideSide = 64;  // the same in shaders/matmul_dots.comp and matmul_halves.comp
constexpr uint32_t kFew = 8;        // tokens at most
constexpr uint32_t kDotCols = 2048; // from which on one token's products pay for its int8: narrower ones end before
constexpr uint32_t kUnit = 32;      // values that a thread takes at a time where there are few (shaders/matvec.glsl)

// Of the products of a few tokens.
struct MatvecShape {
    uint32_t few;     // tokens of a workgroup
    uint32_t splits;  // threads that share a row
    uint32_t n_tiles; // of a thread
};

static uint64_t matvec_groups(const MatvecShape& s, uint32_t rows)
{
    return divide_up(divide_up(rows, tile_rows), kThreads / tile_rows / s.splits * s.n_tiles);
}

// Splits are what fills all of few workgroups; where lanes read x together its cost is shared by tiles. How a row's sum is split does
// not depend on the tokens: a prompt and the same tokens one by one have the same bits.
static MatvecShape shape_of(uint32_t lanes, uint32_t n_tokens, uint32_t rows, uint32_t cols)
{
    if (lanes == 0) return {n_tokens > 4 ? 8 : n_tokens > 2 ? 4 : n_tokens, 16, 1};
    const MatvecShape two{1, 2, 4}, eight{1, 8, 4};
    auto cost = [&](const MatvecShape& s) { return align_up(matvec_groups(s, rows), 4) * divide_up(cols / kUnit, s.splits); };
    const uint32_t splits = cost(two) <= cost(eight) ? 2 : 8;
    return n_tokens == 1 ? MatvecShape{1, splits, 4} : MatvecShape{8, splits, 2};
}

// A way to multiply: its shader, what it uses (vulkan_features.h), and how it cuts the work. Without blocks weights are multiplied as they
// are, in f32.
struct VulkanBackend::Product {
    const char* op;
    uint32_t use = 0;      // 0: it reads x as it is
    uint32_t side = kSide; // rows and tokens of a workgroup, where there are many
    bool many = false;
};

VulkanBackend::Product VulkanBackend::product_of(Format format, uint32_t n_tokens, uint32_t cols) const
{
    const uint32_t uses = m_device.limits().uses;
    const bool many = n_tokens > kFew;
    if (m_device.limits().lanes) return {"matmul_lanes"};
    if (format_info(format).block == 1) return {"matmul", 0, kSide, many};
    if (many && uses & use_matrices) return {"matmul_halves_matrices", use_matrices, kWideSide, many};
    if (uses & use_dots && (n_tokens > 1 || cols >= kDotCols)) return {"matmul_dots", use_dots, kWideSide, many};
    if (many && uses & use_halves) return {"matmul_halves", use_halves, kWideSide, many};
    return {"matmul", 0, kSide, many};
}

static uint64_t bytes_of_quantized(uint32_t n_tokens, uint32_t cols)
{
    return uint64_t(n_tokens) * (cols / kUnit) * act_words * 4;
}

static uint64_t bytes_of_halved(uint32_t n_tokens, uint32_t cols)
{
    return uint64_t(n_tokens) * (2ull * cols + 4);
}

// Of x as products read it.
uint64_t VulkanBackend::made_bytes(const ScratchShape& shape) const
{
    const uint32_t uses = m_device.limits().uses;
    return std::max(uses & use_dots ? bytes_of_quantized(shape.n_tokens, shape.max_cols) : 0,
                    uses & (use_halves | use_matrices) ? bytes_of_halved(shape.n_tokens, shape.max_cols) : 0);
}

VulkanBinding VulkanBackend::make_input(const MatmulArgs& a, const Product& product, const Tensor& x)
{
    const bool halves = product.use != use_dots;
    const uint64_t bytes = halves ? bytes_of_halved(a.n_tokens, a.cols) : bytes_of_quantized(a.n_tokens, a.cols);
    KS_CHECK(bytes <= m_scratch.bytes, "matmul: %u tokens, scratch of %llu", a.n_tokens, (unsigned long long)m_scratch.bytes);
    const VulkanBinding made{m_scratch.buffer, m_scratch.offset, bytes, m_scratch.buffer_bytes};
    const VulkanBinding bound[] = {made, values(x, uint64_t(a.n_tokens) * a.cols)};
    run(halves ? "halve" : "quantize", "", {}, a, bound, halves ? Groups{a.n_tokens} : threads_for(uint64_t(a.n_tokens) * (a.cols / 16)));
    return made;
}

void VulkanBackend::multiply(const MatmulArgs& a, const Product& product, const MatmulTarget& target, const VulkanBinding& x)
{
    const Tensor& w = target.w;
    const VulkanFaster& faster = m_device.candidate().faster;
    const uint32_t lanes = m_device.limits().lanes, step = weight_rows(w);
    for (uint32_t row = 0; row < w.rows; row += step) {
        const RowRange part{row, std::min(step, w.rows - row)};
        const VulkanBinding bound[] = {values(target.y, uint64_t(a.n_tokens) * w.rows), weight_part(w, part), x};
        struct {
            MatmulArgs a;
            RowRange part;
        } push{{a.n_tokens, w.rows, a.cols, a.accumulate}, part};
        const MatvecShape s = product.many ? MatvecShape{0, 16, 1} : shape_of(lanes, a.n_tokens, part.n_rows, a.cols);
        Groups groups{divide_up(part.n_rows, product.side), divide_up(a.n_tokens, product.side)};
        if (!product.many) groups = {matvec_groups(s, part.n_rows), divide_up(a.n_tokens, s.few)};
        VulkanSpecial special{{s.few, s.splits, s.n_tiles}};
        if (product.use == use_matrices) special = {{faster.m, faster.n, faster.k, faster.width}};
        run(product.op, format_info(w.format).name, special, push, bound, groups, double(part.n_rows) * a.cols * a.n_tokens);
    }
}

void VulkanBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets, const Tensor& x)
{
    VulkanBinding made{};
    for (int i = 0; i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        KS_CHECK(w.cols == a.cols && (i > 0 || w.rows == a.rows), "matmul: (%u, %u), w (%u, %u)", a.rows, a.cols, w.rows, w.cols);
        const Product product = product_of(w.format, a.n_tokens, a.cols);
        if (product.use && !made.buffer) made = make_input(a, product, x);
        multiply(a, product, targets[i], product.use ? made : values(x, uint64_t(a.n_tokens) * a.cols));
    }
}

} // namespace ks
