// matmul: which shader, and how the work is cut.
#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kSide = 32; // rows and tokens of a workgroup where there are many (shaders/matmul.comp)
constexpr uint32_t kUnit = 32; // values that a thread takes at a time where there are few (shaders/matvec.glsl)

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

void VulkanBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets, const Tensor& x)
{
    constexpr uint32_t kFew = 8;
    const uint32_t lanes = m_device.limits().lanes;
    for (int i = 0; i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        KS_CHECK(w.cols == a.cols && (i > 0 || w.rows == a.rows), "matmul: (%u, %u), w (%u, %u)", a.rows, a.cols, w.rows, w.cols);
        const uint32_t step = weight_rows(w);
        for (uint32_t row = 0; row < w.rows; row += step) {
            const RowRange part{row, std::min(step, w.rows - row)};
            const VulkanBinding bound[] = {values(targets[i].y, uint64_t(a.n_tokens) * w.rows), weight_part(w, part),
                                           values(x, uint64_t(a.n_tokens) * a.cols)};
            struct {
                MatmulArgs a;
                RowRange part;
            } push{{a.n_tokens, w.rows, a.cols, a.accumulate}, part};
            const bool few = lanes || a.n_tokens <= kFew;
            const MatvecShape s = few ? shape_of(lanes, a.n_tokens, part.n_rows, a.cols) : MatvecShape{0, 16, 1};
            Groups groups{divide_up(part.n_rows, kSide), divide_up(a.n_tokens, kSide)};
            if (few) groups = {matvec_groups(s, part.n_rows), divide_up(a.n_tokens, s.few)};
            run(lanes ? "matmul_lanes" : "matmul", format_info(w.format).name, {{s.few, s.splits, s.n_tiles}}, push, bound, groups,
                double(part.n_rows) * a.cols * a.n_tokens);
        }
    }
}

} // namespace ks
