#include "backends/cuda/cuda_backend.h"

#include <algorithm>

namespace ks
{

Result<std::unique_ptr<Backend>> make_cuda_backend(const std::string& id)
{
    for (const CudaFound& found : find_cuda_devices()) {
        if (found.info.id != id) continue;
        std::unique_ptr<CudaBackend> backend(new CudaBackend);
        KS_TRY(backend->open(found));
        return std::unique_ptr<Backend>(std::move(backend));
    }
    return fail(Code::device, "there is no device '%s' here", printable(id).c_str());
}

Status CudaBackend::open(const CudaFound& device)
{
    m_device = device;
    return m_stream.open(device);
}

CudaBackend::~CudaBackend()
{
    (void)m_stream.wait();
}

Result<bool> CudaBackend::time_kernels(bool on)
{
    KS_TRY(m_stream.time_kernels(on));
    return true;
}

DeviceInfo CudaBackend::info() const
{
    for (const CudaFound& found : find_cuda_devices())
        if (found.info.id == m_device.info.id)
            return found.info; // with the memory that is free now
    return m_device.info;
}

Result<Buffer> CudaBackend::alloc(uint64_t bytes, const std::vector<uint64_t>&)
{
    KS_TRY(m_stream.wait());
    Result<void*> memory = cuda_block(m_device, align_up(bytes, 4), m_stream.handle());
    if (!memory.ok()) return memory.status();
    return Buffer{memory.value(), bytes};
}

void CudaBackend::free(Buffer& buffer)
{
    if (!buffer.data) return;
    (void)m_stream.wait();
    (void)cudaFree(buffer.data);
    buffer = {};
}

static uint8_t* bytes_of(const Buffer& buffer, uint64_t offset, uint64_t bytes)
{
    KS_CHECK(offset <= buffer.bytes && bytes <= buffer.bytes - offset,
             "%llu bytes at %llu of a buffer of %llu", (unsigned long long)bytes,
             (unsigned long long)offset, (unsigned long long)buffer.bytes);
    return static_cast<uint8_t*>(buffer.data) + offset;
}

template <class T>
T* cuda_values(const Tensor& t, uint64_t n)
{
    if (!t) return nullptr;
    KS_CHECK(uint64_t(t.rows) * t.cols >= n, "%llu values of (%u, %u)", (unsigned long long)n,
             t.rows, t.cols);
    return reinterpret_cast<T*>(bytes_of(t.buffer, t.offset, 4 * n));
}
template float* cuda_values<float>(const Tensor&, uint64_t);
template uint32_t* cuda_values<uint32_t>(const Tensor&, uint64_t);

void CudaBackend::upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes)
{
    m_quantized_input = {};
    m_stream.upload(bytes_of(to, offset, bytes), from, bytes);
}

void CudaBackend::download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes)
{
    m_stream.download(to, bytes_of(from, offset, bytes), bytes);
}

void CudaBackend::fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word)
{
    m_quantized_input = {};
    uint32_t* words = reinterpret_cast<uint32_t*>(bytes_of(to, offset, bytes));
    if (bytes / 4) m_stream.run("fill", fill_launch, uint64_t(bytes / 4), words, word);
}

CudaBackend::Scratch CudaBackend::place(const ScratchShape& shape, uint8_t* memory) const
{
    Scratch s;
    auto take = [&](auto** region, uint64_t n) {
        if (memory)
            *region =
                reinterpret_cast<std::remove_reference_t<decltype(*region)>>(memory + s.bytes);
        s.bytes += align_up(n * sizeof **region, 256);
    };
    const uint64_t n_values = uint64_t(shape.n_heads) * shape.head_dim;
    take(&s.acts, std::max(uint64_t(shape.max_cols / 32) * shape.n_tokens,
                           uint64_t(shape.expert_cols / 32) * shape.expert_rows));
    take(&s.list,
         3ull * experts_max_blocks(shape.expert_rows, shape.n_experts) + shape.expert_rows);
    const uint64_t partials_at = s.bytes;
    take(&s.partials, n_partials(shape));
    const uint64_t partials_end = s.bytes,
                   n_rounds =
                       (uint64_t(shape.selected_slots) + select_threads - 1) / select_threads;
    s.select.stride = shape.selected_slots;
    s.select.n_shares = uint32_t(std::min<uint64_t>(n_rounds, max_select_shares));
    if (shape.selected_slots) { // the counters of select share memory with the partial results
        s.bytes = partials_at;
        take(&s.select.digits, uint64_t(shape.n_kv_heads) * select_passes * select_digits);
        take(&s.select.found, uint64_t(shape.n_kv_heads) * select_passes * 3);
        take(&s.select.norms, uint64_t(shape.n_heads) * s.select.n_shares * 2);
        take(&s.select.counts, uint64_t(shape.n_kv_heads) * s.select.n_shares);
        s.bytes = std::max(s.bytes, partials_end);
    }
    take(&s.roped, n_values * shape.n_tokens);
    take(&s.dequantized, n_dequantized(shape));
    if (!shape.selected_slots) return s;
    take(&s.select.query, n_values);
    take(&s.select.before_rope, n_values);
    take(&s.select.logits, uint64_t(shape.n_heads) * shape.selected_slots);
    take(&s.select.votes, uint64_t(shape.n_kv_heads) * shape.selected_slots);
    take(&s.select.words, 2);
    return s;
}

uint64_t CudaBackend::scratch_bytes(const ScratchShape& shape) const
{
    return place(shape, nullptr).bytes;
}

void CudaBackend::set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape)
{
    m_quantized_input = {};
    m_scratch = place(shape, bytes_of(buffer, offset, scratch_bytes(shape)));
    m_shape = shape;
}

// Where a kernel writes the int8 copy of y, or null. The kernel must compute `unit` neighbouring
// values together, in whole blocks of 32, and the scratch must be large enough.
ActGroup* CudaBackend::int8_copy_of(const Tensor& y, uint32_t n_tokens, uint32_t cols,
                                    uint32_t unit)
{
    m_quantized_input = {};
    if (unit % 32 != 0 || cols % 32 != 0 || cols > m_shape.max_cols || n_tokens > m_shape.n_tokens)
        return nullptr;
    m_quantized_input = {cuda_values(y, uint64_t(n_tokens) * cols), n_tokens, cols};
    return m_scratch.acts;
}

uint32_t* cuda_weight(const Tensor& w)
{
    KS_CHECK(w.cols % format_info(w.format).block == 0, "rows of %u values in blocks of %u", w.cols,
             format_info(w.format).block);
    return reinterpret_cast<uint32_t*>(
        bytes_of(w.buffer, w.offset, weight_bytes(w.format, w.rows, w.cols)));
}

void CudaBackend::embed(const EmbedArgs& a, const Tensor& y, const Tensor& table, const Tensor& ids)
{
    m_quantized_input = {};
    KS_CHECK(table.cols == a.dim, "embed: dim %u, table (%u, %u)", a.dim, table.rows, table.cols);
    m_stream.run({"embed", table.format}, embed_launch, a, uint32_t(table.format),
                 cuda_values(y, uint64_t(a.n_tokens) * a.dim), cuda_weight(table),
                 cuda_values<uint32_t>(ids, a.n_tokens));
}

void CudaBackend::norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w)
{
    KS_CHECK(a.w_rows > 0 && w.cols == a.dim, "norm: %u rows of %u, w (%u, %u)", a.w_rows, a.dim,
             w.rows, w.cols);
    const uint64_t n = uint64_t(a.rows) * a.dim, first = uint64_t(a.first_row) * a.dim;
    m_stream.run("norm", norm_launch, a, cuda_values(y, n), cuda_values(x, first + n),
                 cuda_values(w, uint64_t(a.w_rows) * a.dim), int8_copy_of(y, a.rows, a.dim, a.dim));
}

void CudaBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                         const Tensor& x)
{
    KS_CHECK(a.cols <= m_shape.max_cols && a.n_tokens <= m_shape.n_tokens,
             "matmul: %u tokens of %u cols, scratch for %u of %u", a.n_tokens, a.cols,
             m_shape.n_tokens, m_shape.max_cols);
    float* values = cuda_values(x, uint64_t(a.n_tokens) * a.cols);
    bool quantized = is_quantized(values, a.n_tokens, a.cols);
    m_quantized_input = {};
    for (int i = 0; i < n_targets;) {
        const Format format = targets[i].w.format;
        MatmulTargets same{};
        for (; i < n_targets && same.n < max_targets && targets[i].w.format == format; i++) {
            const Tensor &w = targets[i].w, &y = targets[i].y;
            KS_CHECK(w.cols == a.cols && (i > 0 || w.rows == a.rows),
                     "matmul: (%u, %u), w (%u, %u)", a.rows, a.cols, w.rows, w.cols);
            same.y[same.n] = cuda_values(y, uint64_t(a.n_tokens) * w.rows);
            same.w[same.n] = cuda_weight(w);
            same.scale[same.n] = targets[i].scale;
            same.rows[same.n++] = w.rows;
        }
        if (matmul_uses_int8(uint32_t(format)) && !quantized)
            m_stream.run("quantize", quantize_launch, a, m_scratch.acts, values);
        quantized |= matmul_uses_int8(uint32_t(format));
        m_stream.run({"matmul", format}, matmul_launch, a, uint32_t(format), same, values,
                     m_scratch.acts);
    }
}

void CudaBackend::rope(const RopeTarget* targets, int n_targets)
{
    KS_CHECK(n_targets > 0 && uint32_t(n_targets) <= max_targets, "rope: %d targets", n_targets);
    RopeTargets all{};
    m_quantized_input = {};
    for (const RopeTarget* target = targets; target < targets + n_targets; target++) {
        const RopeArgs& a = target->a;
        const uint64_t n = uint64_t(a.n_tokens) * a.n_heads * a.head_dim;
        KS_CHECK(!a.hadamard || a.head_dim <= codec_max_dim, "rope: hadamard of heads of %u values",
                 a.head_dim);
        all.a[all.n] = a;
        all.y[all.n] = cuda_values(target->y, n);
        all.x[all.n] = cuda_values(target->x, n);
        all.angles[all.n++] =
            cuda_values(target->angles, uint64_t(a.n_groups ? a.n_groups : a.n_tokens) * a.n_rot);
    }
    m_stream.run("rope", rope_launch, all);
}

void CudaBackend::glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up)
{
    const uint32_t n_tokens = y.cols ? a.n / y.cols : 0,
                   cols = n_tokens && a.n % y.cols == 0 ? y.cols : 1;
    KS_CHECK(a.gate_group && a.n % a.gate_group == 0 && bool(up) == bool(a.gated),
             "glu: %u values, %u to a gate, gated %u", a.n, a.gate_group, a.gated);
    m_stream.run("glu", glu_launch, a, cuda_values(y, a.n), cuda_values(gate, a.n / a.gate_group),
                 cuda_values(up, a.n), int8_copy_of(y, n_tokens, cols, cols), cols);
}

void CudaBackend::add(const AddArgs& a, const Tensor& x, const Tensor& b)
{
    m_quantized_input = {};
    m_stream.run("add", add_launch, a, cuda_values(x, uint64_t(a.rows) * a.cols),
                 cuda_values(b, uint64_t(a.b_rows) * a.cols));
}

void CudaBackend::scale(const ScaleArgs& a, const Tensor& x, const Tensor& s)
{
    m_quantized_input = {};
    m_stream.run("scale", scale_launch, a, cuda_values(x, uint64_t(a.rows) * a.cols),
                 cuda_values(s, a.rows));
}

void CudaBackend::copy_cols(const CopyColsArgs& a, const Tensor& y, const Tensor& x)
{
    m_quantized_input = {};
    m_stream.run("copy_cols", copy_cols_launch, a, cuda_values(y, uint64_t(a.rows) * a.y_cols),
                 cuda_values(x, uint64_t(a.rows) * a.x_cols));
}

void CudaBackend::softcap(const SoftcapArgs& a, const Tensor& x)
{
    m_quantized_input = {};
    m_stream.run("softcap", softcap_launch, a, cuda_values(x, a.n));
}

void CudaBackend::argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x)
{
    m_stream.run("argmax", argmax_launch, a, cuda_values<uint32_t>(out, a.rows),
                 cuda_values(x, uint64_t(a.rows) * a.cols));
}

} // namespace ks
