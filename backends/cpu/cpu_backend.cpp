#include "backends/cpu/cpu_backend.h"

#include "backends/kernel_choice.h"

namespace ks
{

CpuBackend::CpuBackend(const BackendOptions& options)
    : ReferenceBackend(options), m_kernels(choose_cpu_kernels()),
      m_pool(options.n_threads > 0 ? options.n_threads : count_cores())
{
    for (uint32_t i = 0; i < codec_max_dim; i++) m_signs[i] = hadamard_sign(i);
}

DeviceInfo CpuBackend::info() const
{
    DeviceInfo info = ReferenceBackend::info();
    info.id = info.backend = "cpu";
    info.ablations = false;
    info.name = processor_name() + ", " + std::to_string(m_pool.size()) +
                (m_pool.size() == 1 ? " thread, " : " threads, ") + m_kernels.name;
    add_attention_lines(info.paths,
                        [&](const AttentionArgs& a) { return attention_choice(a, {}); });
    return info;
}

CpuBackend::Scratch CpuBackend::place(const ScratchShape& shape, uint8_t* memory) const
{
    Scratch s;
    auto take = [&](uint64_t bytes) {
        uint8_t* at = memory ? memory + s.bytes : nullptr;
        s.bytes += align_up(bytes, kRegionAlign);
        return at;
    };
    uint64_t threads = uint64_t(m_pool.size());
    s.acts = reinterpret_cast<ActBlock*>(
        take((std::max(uint64_t(shape.n_tokens) * (shape.max_cols / 32),
                       uint64_t(shape.expert_rows) * (shape.expert_cols / 32)) +
              act_padding) *
             sizeof(ActBlock)));
    s.sums = reinterpret_cast<float*>(take(threads * kMaxTokenBlock * max_lanes * 4));
    s.attention = reinterpret_cast<float*>(
        take(shape.n_heads ? threads * attention_scratch_floats(shape.head_dim) * 4 : 0));
    s.partials = reinterpret_cast<float*>(
        take(4ull * (kMaxSplits + 1) * shape.n_heads * (kPartialHead + shape.head_dim)));
    s.logits_stride = (shape.scored_slots + 8) / 8 * 8; // slots and the token itself, whole vectors
    s.logits = reinterpret_cast<float*>(
        take(shape.scored_slots ? 4ull * shape.n_heads * s.logits_stride : 0));
    s.choices = reinterpret_cast<uint32_t*>(take(4ull * shape.expert_rows));
    s.first_choice = reinterpret_cast<uint32_t*>(take(4ull * (shape.n_experts + 1)));
    s.chosen = reinterpret_cast<uint32_t*>(take(4ull * shape.n_experts));
    s.reference_offset = s.bytes;
    s.bytes += ReferenceBackend::scratch_bytes(shape);
    return s;
}

uint64_t CpuBackend::scratch_bytes(const ScratchShape& shape) const
{
    return place(shape, nullptr).bytes;
}

void CpuBackend::set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape)
{
    m_shape = shape;
    m_scratch = place(shape, static_cast<uint8_t*>(buffer.data) + offset);
    ReferenceBackend::set_scratch(buffer, offset + m_scratch.reference_offset, shape);
    m_pool.start();
}

void CpuBackend::embed(const EmbedArgs& a, const Tensor& y, const Tensor& table, const Tensor& ids)
{
    for_rows(a.n_tokens, a.dim * 8, [&](uint32_t begin, uint32_t end) {
        EmbedArgs part = a;
        Tensor part_y = y, part_ids = ids;
        part.n_tokens = end - begin;
        part_y.offset += 4ull * begin * a.dim;
        part_ids.offset += 4ull * begin;
        part_ids.cols -= begin;
        ReferenceBackend::embed(part, part_y, table, part_ids);
    });
}

void CpuBackend::norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w)
{
    check_norm(a, y, x, w);
    for_rows(a.rows, a.dim, [&](uint32_t begin, uint32_t end) {
        for (uint64_t r = begin; r < end; r++)
            m_kernels.vector.norm(a, y.ptr() + r * a.dim, x.ptr() + (a.first_row + r) * a.dim,
                                  w.ptr() + r % a.w_rows * a.dim);
    });
}

void CpuBackend::rope(const RopeTarget* targets, int n_targets)
{
    for (const RopeTarget* target = targets; target < targets + n_targets; target++) {
        check_target(*target);
        const RopeArgs& a = target->a;
        const uint64_t row = uint64_t(a.n_heads) * a.head_dim;
        for_rows(a.n_tokens, uint32_t(row), [&](uint32_t begin, uint32_t end) {
            for (uint64_t t = begin; t < end; t++) {
                const uint32_t n_groups = std::max(1u, a.n_groups);
                const RopeArgs group{1, a.n_heads / n_groups, a.head_dim, a.n_rot, a.pairs, 0, 0};
                float *y = target->y.ptr() + t * row, *x = target->x.ptr() + t * row;
                for (uint64_t g = 0, at = 0; g < n_groups; g++, at += row / n_groups)
                    m_kernels.vector.rope(group, y + at, x + at,
                                          target->angles.ptr() + (a.n_groups ? g : t) * a.n_rot);
                if (a.hadamard) m_kernels.vector.hadamard(y, a.n_heads, a.head_dim, m_signs, false);
            }
        });
    }
}

void CpuBackend::glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up)
{
    check_glu(a, y, gate, up);
    const uint32_t row = std::max(1u, 1024 / a.gate_group) * a.gate_group;
    for_rows((a.n + row - 1) / row, 2 * row, [&](uint32_t begin, uint32_t end) {
        const uint64_t from = uint64_t(begin) * row;
        GluArgs part = a;
        part.n = uint32_t(std::min<uint64_t>(a.n, uint64_t(end) * row) - from);
        m_kernels.vector.glu(part, y.ptr() + from, gate.ptr() + from / a.gate_group,
                             a.gated ? up.ptr() + from : nullptr);
    });
}

void CpuBackend::add(const AddArgs& a, const Tensor& x, const Tensor& b)
{
    for_rows(a.rows, a.cols, [&](uint32_t begin, uint32_t end) {
        for (uint64_t r = begin; r < end; r++)
            m_kernels.vector.add(x.ptr() + r * a.cols, b.ptr() + (a.b_rows == 1 ? 0 : r * a.cols),
                                 a.cols);
    });
}

void CpuBackend::scale(const ScaleArgs& a, const Tensor& x, const Tensor& s)
{
    for_rows(a.rows, a.cols, [&](uint32_t begin, uint32_t end) {
        for (uint64_t r = begin; r < end; r++)
            m_kernels.vector.scale(x.ptr() + r * a.cols, a.cols, s.ptr()[r]);
    });
}

void CpuBackend::copy_cols(const CopyColsArgs& a, const Tensor& y, const Tensor& x)
{
    check_copy(a, y, x);
    for_rows(a.rows, a.cols, [&](uint32_t begin, uint32_t end) {
        for (uint64_t r = begin; r < end; r++)
            std::copy_n(x.ptr() + r * a.x_cols + a.x_first, a.cols,
                        y.ptr() + r * a.y_cols + a.y_first);
    });
}

void CpuBackend::softcap(const SoftcapArgs& a, const Tensor& x)
{
    constexpr uint32_t kRow = 1024;
    for_rows((a.n + kRow - 1) / kRow, 2 * kRow, [&](uint32_t begin, uint32_t end) {
        m_kernels.vector.softcap(x.ptr() + begin * kRow, std::min(a.n, end * kRow) - begin * kRow,
                                 a.cap);
    });
}

void CpuBackend::argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x)
{
    for (uint64_t r = 0; r < a.rows; r++)
        out.ptr<uint32_t>()[r] = m_kernels.vector.argmax(x.ptr() + r * a.cols, a.cols);
}

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options)
{
    return std::unique_ptr<Backend>(new CpuBackend(options));
}

} // namespace ks
