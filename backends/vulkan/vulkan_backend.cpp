#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>
#include <cstring>

namespace ks
{

constexpr uint64_t kStagingBytes = 1u << 20;
constexpr uint64_t kSmallBytes = 16384; // uploads up to this size avoid a wait

std::vector<DeviceInfo> find_vulkan_devices(std::vector<std::string>* refused, std::string* missing)
{
    std::vector<DeviceInfo> found;
    VulkanInstance instance;
    if (Status status = instance.open(); !status.ok()) {
        *missing = status.message();
        return found;
    }
    const std::vector<VulkanCandidate> all = instance.candidates();
    for (const VulkanCandidate& c : all) {
        if (c.refusal.empty())
            found.push_back(c.info);
        else
            refused->push_back(c.info.id + " (" + printable(c.info.name, 200) + "): " + c.refusal);
    }
    if (found.empty())
        *missing = all.empty() ? "no driver has a device" : "no device that it can use";
    return found;
}

Result<std::unique_ptr<Backend>> make_vulkan_backend(const std::string& id)
{
    std::unique_ptr<VulkanBackend> backend(new VulkanBackend);
    KS_TRY(backend->open(id));
    return std::unique_ptr<Backend>(std::move(backend));
}

Status VulkanBackend::open(const std::string& id)
{
    KS_TRY(m_device.open(id));
    KS_TRY(m_stream.open(m_device));
    m_pipelines.open(m_device, m_stream.layout());
    KS_TRY(m_device.make_block(kDummyBytes, false, &m_dummy_buffer));
    m_stream.bind_dummy(optional({}, 0));
    return m_device.make_block(kStagingBytes, true, &m_staging);
}

VulkanBackend::~VulkanBackend()
{
    (void)sync();
    m_stream.forget(m_dummy_buffer.buffer);
    m_device.free_block(m_dummy_buffer);
    m_device.free_block(m_staging);
}

Status VulkanBackend::sync()
{
    m_staged = 0;
    return m_stream.wait();
}

Result<bool> VulkanBackend::time_kernels(bool on)
{
    m_staged = 0; // after a wait, all staged bytes are copied
    KS_TRY(m_stream.time_kernels(on));
    return true;
}

std::vector<KernelTime> VulkanBackend::take_kernel_times()
{
    (void)sync(); // an error is kept until the next sync
    return m_stream.take_kernel_times();
}

DeviceInfo VulkanBackend::info() const
{
    return m_device.info();
}

// The blocks of a Buffer, in order. No tensor spans two blocks.
struct BufferPart {
    uint64_t begin;
    VulkanBlock block;
};
using BufferParts = std::vector<BufferPart>;

static const BufferPart& part_of(const Buffer& buffer, uint64_t offset)
{
    const BufferParts& parts = *static_cast<BufferParts*>(buffer.data);
    size_t nth = parts.size() - 1;
    while (parts[nth].begin > offset) nth--;
    return parts[nth];
}

// The end of a block that begins at `begin`: the last split point within the size limit, or the end
// of a single piece that is larger.
static uint64_t end_of_block(uint64_t begin, uint64_t bytes,
                             const std::vector<uint64_t>& split_points, uint64_t most)
{
    if (bytes - begin <= most) return bytes;
    const auto next = std::upper_bound(split_points.begin(), split_points.end(), begin);
    const auto after = std::upper_bound(next, split_points.end(), begin + most);
    return after != next ? *(after - 1) : next != split_points.end() ? *next : bytes;
}

Result<Buffer> VulkanBackend::alloc(uint64_t bytes, const std::vector<uint64_t>& split_points)
{
    std::unique_ptr<BufferParts> parts(new BufferParts);
    Buffer whole{parts.get(), bytes};
    const uint64_t most = std::min(kBlockBytes, m_device.limits().allocation_bytes);
    Status status;
    for (uint64_t begin = 0, end = 0; status.ok() && (begin < bytes || parts->empty());
         begin = end) {
        end = end_of_block(begin, bytes, split_points, most);
        VulkanBlock block;
        status = m_device.make_block(end - begin, false, &block);
        if (!status.ok()) break;
        parts->push_back({begin, block});
        // Fills the block with zeros. This touches every page, so memory that the system promised
        // but cannot provide fails now.
        m_stream.fill({block.buffer, 0, block.bytes}, 0);
        status = sync();
    }
    (void)parts.release();
    if (!status.ok()) {
        free(whole);
        return status;
    }
    return whole;
}

void VulkanBackend::free(Buffer& buffer)
{
    if (!buffer.data) return;
    (void)sync();
    BufferParts* parts = static_cast<BufferParts*>(buffer.data);
    for (BufferPart& part : *parts) {
        m_stream.forget(part.block.buffer);
        m_device.free_block(part.block);
    }
    delete parts;
    buffer = {};
}

VulkanBinding VulkanBackend::bytes_of(const Buffer& buffer, uint64_t offset, uint64_t bytes) const
{
    KS_CHECK(offset <= buffer.bytes && bytes <= buffer.bytes - offset,
             "%llu bytes at %llu of a buffer of %llu", (unsigned long long)bytes,
             (unsigned long long)offset, (unsigned long long)buffer.bytes);
    const BufferPart& part = part_of(buffer, offset);
    KS_CHECK(bytes <= part.block.bytes - (offset - part.begin),
             "%llu bytes at %llu lie in two blocks", (unsigned long long)bytes,
             (unsigned long long)offset);
    return {part.block.buffer, offset - part.begin, bytes, part.block.bytes};
}

void VulkanBackend::upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes)
{
    const VulkanBinding bound = bytes_of(to, offset, bytes);
    const uint8_t* data = static_cast<const uint8_t*>(from);
    uint8_t* mapped = part_of(to, offset).block.mapped;
    const bool used = mapped && m_stream.uses(bound);
    if (mapped && (!used || bytes > kSmallBytes)) {
        if (used) (void)sync();
        memcpy(mapped + bound.offset, data, bytes);
        return;
    }
    // Staged uploads: commands that still use the old bytes do not have to be waited for. The
    // staging block is a ring of parts. A part that is still in flight is waited for. After a wait
    // the ring starts at offset 0 again. So equal steps have equal offsets and equal command lists,
    // which a replay needs.
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = std::min(bytes - done, kStagingBytes / 4);
        if (m_staged + n > kStagingBytes) m_staged = 0;
        const VulkanBinding space{m_staging.buffer, m_staged, align_up(n, 256)};
        if (m_stream.uses(space)) (void)sync();
        memcpy(m_staging.mapped + m_staged, data + done, n);
        m_stream.copy({bound.buffer, bound.offset + done, n}, {m_staging.buffer, m_staged, n});
        m_staged += align_up(n, 256);
    }
}

void* VulkanBackend::mapped(const Buffer& to, uint64_t offset, uint64_t bytes) const
{
    uint8_t* block = part_of(to, offset).block.mapped;
    return block ? block + bytes_of(to, offset, bytes).offset : nullptr;
}

void VulkanBackend::download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes)
{
    const VulkanBinding bound = bytes_of(from, offset, bytes);
    uint8_t* data = static_cast<uint8_t*>(to);
    if (uint8_t* mapped = part_of(from, offset).block.mapped) {
        (void)sync();
        memcpy(data, mapped + bound.offset, bytes);
        return;
    }
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = std::min(bytes - done, kStagingBytes);
        m_stream.copy({m_staging.buffer, 0, n}, {bound.buffer, bound.offset + done, n});
        (void)sync();
        memcpy(data + done, m_staging.mapped, n);
    }
}

void VulkanBackend::fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word)
{
    if (bytes) m_stream.fill(bytes_of(to, offset, bytes), word);
}

VulkanBackend::Groups VulkanBackend::threads_for(uint64_t n) const
{
    return {std::min<uint64_t>((n + kThreads - 1) / kThreads, m_device.limits().max_groups)};
}

VulkanBinding VulkanBackend::values(const Tensor& t, uint64_t n) const
{
    KS_CHECK(uint64_t(t.rows) * t.cols >= n, "%llu values of (%u, %u)", (unsigned long long)n,
             t.rows, t.cols);
    return bytes_of(t.buffer, t.offset, 4 * n);
}

VulkanBinding VulkanBackend::optional(const Tensor& t, uint64_t n) const
{
    return t ? values(t, n) : VulkanBinding{m_dummy_buffer.buffer, 0, kDummyBytes, kDummyBytes};
}

// Parts begin at multiples of 64 tiles, whose size in bytes is a multiple of 256 in every format.
uint32_t VulkanBackend::weight_rows(const Tensor& w) const
{
    const uint64_t bytes = weight_bytes(w.format, w.rows, w.cols), step = kPartRows;
    if (bytes <= m_device.limits().range_bytes) return w.rows;
    return uint32_t(std::max<uint64_t>(1, m_device.limits().range_bytes /
                                              weight_bytes(w.format, step, w.cols)) *
                    step);
}

VulkanBinding VulkanBackend::weight_part(const Tensor& w, const RowRange& part) const
{
    return bytes_of(w.buffer, w.offset + weight_bytes(w.format, part.first_row, w.cols),
                    weight_bytes(w.format, part.n_rows, w.cols));
}

void VulkanBackend::embed(const EmbedArgs& a, const Tensor& y, const Tensor& table,
                          const Tensor& ids)
{
    KS_CHECK(table.cols == a.dim, "embed: dim %u, table (%u, %u)", a.dim, table.rows, table.cols);
    const uint32_t step = weight_rows(table);
    for (uint32_t row = 0; row < table.rows; row += step) {
        const RowRange part{row, std::min(step, table.rows - row)};
        const VulkanBinding bound[] = {values(y, uint64_t(a.n_tokens) * a.dim),
                                       weight_part(table, part), values(ids, a.n_tokens)};
        struct {
            EmbedArgs a;
            RowRange part;
        } push{a, part};
        run("embed", format_info(table.format).name, {}, push, bound,
            {std::min(a.n_tokens, m_device.limits().max_groups)});
    }
}

void VulkanBackend::norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w)
{
    KS_CHECK(a.w_rows > 0 && w.cols == a.dim, "norm: %u rows of %u, w (%u, %u)", a.w_rows, a.dim,
             w.rows, w.cols);
    const uint64_t n = uint64_t(a.rows) * a.dim, first = uint64_t(a.first_row) * a.dim;
    const VulkanBinding bound[] = {values(y, n), values(x, first + n),
                                   values(w, uint64_t(a.w_rows) * a.dim)};
    run(reduces() ? "norm_sums" : "norm", "", {}, a, bound, {a.rows});
}

void VulkanBackend::rope(const RopeTarget* targets, int n_targets)
{
    for (const RopeTarget* target = targets; target < targets + n_targets; target++) {
        const RopeArgs& a = target->a;
        const uint64_t n_heads = uint64_t(a.n_tokens) * a.n_heads, n = n_heads * a.head_dim;
        KS_CHECK(!a.hadamard || a.head_dim <= codec_max_dim, "rope: Hadamard heads of %u values",
                 a.head_dim);
        const VulkanBinding bound[] = {
            values(target->y, n), values(target->x, n),
            optional(target->angles, uint64_t(a.n_groups ? a.n_groups : a.n_tokens) * a.n_rot)};
        if (a.hadamard)
            run("rope_hadamard", "", {}, a, bound, {n_heads});
        else
            run("rope", "", {}, a, bound, threads_for(n - n_heads * (a.n_rot / 2)));
    }
}

void VulkanBackend::glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up)
{
    KS_CHECK(a.gate_group && a.n % a.gate_group == 0 && bool(up) == bool(a.gated),
             "glu: %u values, %u to a gate, gated %u", a.n, a.gate_group, a.gated);
    const VulkanBinding bound[] = {values(y, a.n), values(gate, a.n / a.gate_group),
                                   optional(up, a.n)};
    run("glu", "", {}, a, bound, threads_for(a.n));
}

void VulkanBackend::add(const AddArgs& a, const Tensor& x, const Tensor& b)
{
    const uint64_t n = uint64_t(a.rows) * a.cols;
    const VulkanBinding bound[] = {values(x, n), values(b, uint64_t(a.b_rows) * a.cols)};
    run("add", "", {}, a, bound, threads_for(n));
}

void VulkanBackend::scale(const ScaleArgs& a, const Tensor& x, const Tensor& s)
{
    const uint64_t n = uint64_t(a.rows) * a.cols;
    const VulkanBinding bound[] = {values(x, n), values(s, a.rows)};
    run("scale", "", {}, a, bound, threads_for(n));
}

void VulkanBackend::copy_cols(const CopyColsArgs& a, const Tensor& y, const Tensor& x)
{
    const VulkanBinding bound[] = {values(y, uint64_t(a.rows) * a.y_cols),
                                   values(x, uint64_t(a.rows) * a.x_cols)};
    run("copy_cols", "", {}, a, bound, threads_for(uint64_t(a.rows) * a.cols));
}

void VulkanBackend::softcap(const SoftcapArgs& a, const Tensor& x)
{
    const VulkanBinding bound[] = {values(x, a.n)};
    run("softcap", "", {}, a, bound, threads_for(a.n));
}

void VulkanBackend::argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x)
{
    const VulkanBinding bound[] = {values(out, a.rows), values(x, uint64_t(a.rows) * a.cols)};
    run("argmax", "", {}, a, bound, {a.rows});
}

} // namespace ks
