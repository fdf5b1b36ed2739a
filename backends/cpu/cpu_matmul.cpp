// matmul: threads take chunks of weight tiles one by one. Activations are quantised once.
#include "backends/cpu/cpu_matmul.h"

#include "backends/cpu/cpu_backend.h"

#include <algorithm>

namespace ks
{

#define KS_SAME_INDEX(name) static_assert(int(cpu_format_##name) == int(Format::name), #name);
FORMATS(KS_SAME_INDEX)
#undef KS_SAME_INDEX

constexpr uint64_t kActBytesInCache = 320 * 1024; // quantised activations that stay in L2
// Least time of a chunk: a hundred times the cost of taking one.
constexpr double kChunkNanoseconds = 2000;

uint32_t token_block(uint32_t n_tokens, uint32_t cols, uint32_t most)
{
    const uint64_t fit = kActBytesInCache / (uint64_t(cols / 32 + 1) * sizeof(ActBlock));
    const uint32_t block = uint32_t(std::min<uint64_t>(most, std::max<uint64_t>(32, fit)));
    const uint32_t n_blocks = (n_tokens + block - 1) / block;
    return (n_tokens + n_blocks - 1) / n_blocks;
}

void CpuBackend::quantize(const MatmulArgs& a, const Tensor& x, uint32_t block, bool half_scales)
{
    uint64_t n_groups = a.cols / 32;
    for_rows(a.n_tokens, a.cols, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++) {
            uint32_t first = t / block * block, size = std::min(block, a.n_tokens - first);
            m_kernels.matmul.quantize(x.ptr() + uint64_t(t) * a.cols, a.cols,
                                      m_scratch.acts + n_groups * first + (t - first), size,
                                      half_scales);
        }
    });
}

MatmulChunks::MatmulChunks(const MatmulArgs& a, const MatmulTarget* targets, int n_targets)
{
    for (int i = 0; i < n_targets; i++) {
        const FormatInfo& f = format_info(targets[i].w.format);
        tile_words[i] = a.cols / f.block * (f.half_words + tile_rows * f.words);
        // Weights arrive at 10 GB/s, and a thread multiplies 50 times a nanosecond. Kernels read
        // two tiles at a time.
        const double nanoseconds =
            tile_words[i] * 0.4 + double(a.cols) * tile_rows * a.n_tokens * 0.02;
        tiles[i] = std::max(1u, uint32_t(kChunkNanoseconds / nanoseconds / 2)) * 2;
        const uint32_t n_tiles = (targets[i].w.rows + tile_rows - 1) / tile_rows;
        first[i + 1] = first[i] + (n_tiles + tiles[i] - 1) / tiles[i];
    }
}

MatmulTask MatmulChunks::task(const Place& at, const Tensor& w, uint32_t cols) const
{
    MatmulTask task;
    task.tiles = w.ptr<uint32_t>() + uint64_t(at.tile) * tile_words[at.target];
    task.n_rows = w.rows - at.tile * tile_rows;
    task.n_tiles = std::min(tiles[at.target], (task.n_rows + tile_rows - 1) / tile_rows);
    task.cols = cols;
    task.y_stride = w.rows;
    task.accumulate = false;
    task.scale = 1;
    return task;
}

void CpuBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                        const Tensor& x)
{
    KS_CHECK(n_targets >= 1 && n_targets <= MatmulChunks::kMaxTargets, "matmul: %d targets",
             n_targets);
    KS_CHECK(a.n_tokens <= m_shape.n_tokens && a.cols <= m_shape.max_cols,
             "matmul: %u tokens of %u, %u cols of %u", a.n_tokens, m_shape.n_tokens, a.cols,
             m_shape.max_cols);
    bool quantized = false, half_scales = true;
    for (int i = 0; i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        KS_CHECK(w.cols == a.cols && targets[i].y.cols == w.rows && x.cols == a.cols,
                 "matmul: %u x %u, x %u, y %u", w.rows, w.cols, x.cols, targets[i].y.cols);
        quantized |= format_info(w.format).block > 1;
        half_scales &= m_kernels.matmul.half_scales[int(w.format)];
    }
    const uint32_t block = token_block(a.n_tokens, a.cols, kMaxTokenBlock);
    if (quantized) quantize(a, x, block, half_scales);

    const MatmulChunks chunks(a, targets, n_targets);
    m_pool.parallel_for(chunks.first[n_targets], [&](uint32_t chunk, int thread) {
        const MatmulChunks::Place at = chunks.place(chunk);
        const MatmulTarget& target = targets[at.target];
        const Tensor& w = target.w;
        MatmulTask task = chunks.task(at, w, a.cols);
        task.accumulate = a.accumulate != 0;
        task.scale = target.scale;
        task.prefetch_to_l2 = m_kernels.prefetch_to_l2;
        task.sums = m_scratch.sums + uint64_t(thread) * kMaxTokenBlock * max_lanes;
        for (uint32_t t = 0; t < a.n_tokens; t += block) {
            task.n_tokens = std::min(block, a.n_tokens - t);
            task.acts = m_scratch.acts + uint64_t(t) * (a.cols / 32);
            task.x = x.ptr() + uint64_t(t) * a.cols;
            task.y = target.y.ptr() + uint64_t(t) * w.rows + at.tile * tile_rows;
            m_kernels.matmul.matmul[int(w.format)](task);
        }
    });
}

} // namespace ks
