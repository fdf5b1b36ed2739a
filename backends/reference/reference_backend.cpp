#include "backends/reference/reference_backend.h"

#include "kernels/common/formats.h"
#include "kernels/cpu/codec_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace ks
{

std::string processor_name()
{
    std::string name = "unknown processor";
    FILE* file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        const char* colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        name = printable(std::string_view(colon + 2, strcspn(colon + 2, "\n")));
        break;
    }
    if (file) fclose(file);
    return name;
}

void host_memory(uint64_t* total_bytes, uint64_t* free_bytes)
{
    *total_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    *free_bytes = *total_bytes;
    FILE* file = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) *free_bytes = kib * 1024;
    if (file) fclose(file);
}

ReferenceBackend::ReferenceBackend(const BackendOptions& options)
    : m_memory(options.memory ? options.memory : &m_system)
{
}

DeviceInfo ReferenceBackend::info() const
{
    DeviceInfo info{"reference", processor_name() + ", 1 thread, float64", "reference", 0, 0, true};
    host_memory(&info.memory_bytes, &info.free_bytes);
    info.ablations = true;
    return info;
}

Result<Buffer> ReferenceBackend::alloc(uint64_t bytes, const std::vector<uint64_t>&)
{
    Result<void*> memory = m_memory->take(bytes);
    if (!memory.ok()) return memory.status();
    return Buffer{memory.value(), bytes};
}

void ReferenceBackend::free(Buffer& buffer)
{
    m_memory->release(buffer.data, buffer.bytes);
    buffer = {};
}

static uint8_t* at(const Buffer& buffer, uint64_t offset, uint64_t bytes)
{
    KS_CHECK(offset <= buffer.bytes && bytes <= buffer.bytes - offset,
             "%llu bytes at %llu of a buffer of %llu", (unsigned long long)bytes,
             (unsigned long long)offset, (unsigned long long)buffer.bytes);
    return static_cast<uint8_t*>(buffer.data) + offset;
}

void ReferenceBackend::give_back(const Buffer& buffer, uint64_t offset, uint64_t bytes)
{
    m_memory->give_back(at(buffer, offset, bytes), bytes);
}

void ReferenceBackend::upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes)
{
    memcpy(at(to, offset, bytes), from, bytes);
}

void* ReferenceBackend::mapped(const Buffer& to, uint64_t offset, uint64_t bytes) const
{
    return at(to, offset, bytes);
}

void ReferenceBackend::download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes)
{
    memcpy(to, at(from, offset, bytes), bytes);
}

void ReferenceBackend::fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word)
{
    uint32_t* words = reinterpret_cast<uint32_t*>(at(to, offset, bytes));
    std::fill(words, words + bytes / 4, word);
}

static uint64_t row_bytes(const ScratchShape& shape)
{
    return align_up(std::max<uint64_t>(4ull * shape.max_cols, 16ull * shape.head_dim),
                    kRegionAlign);
}

uint64_t ReferenceBackend::scratch_bytes(const ScratchShape& shape) const
{
    uint64_t select_bytes;
    place_select(shape, nullptr, &select_bytes);
    return row_bytes(shape) + select_bytes;
}

void ReferenceBackend::set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape)
{
    uint8_t* memory = at(buffer, offset, ReferenceBackend::scratch_bytes(shape));
    uint64_t select_bytes;
    m_row = reinterpret_cast<float*>(memory);
    m_select = place_select(shape, memory + row_bytes(shape), &select_bytes);
    m_shape = shape;
}

void check_values(const char* op, const Tensor& t, uint64_t n)
{
    KS_CHECK(uint64_t(t.rows) * t.cols >= n, "%s: %llu values in a tensor of (%u, %u)", op,
             (unsigned long long)n, t.rows, t.cols);
    uint64_t bytes = n * (t.format == Format::f16 ? 2 : 4);
    KS_CHECK(t.offset <= t.buffer.bytes && bytes <= t.buffer.bytes - t.offset,
             "%s: %llu bytes at %llu of a buffer of %llu", op, (unsigned long long)bytes,
             (unsigned long long)t.offset, (unsigned long long)t.buffer.bytes);
}

template <class F>
static void decode_row(const uint32_t* w, uint32_t row, uint32_t cols, float* out)
{
    const uint32_t stride = F::half_words + tile_rows * F::words;
    const uint32_t* tile = w + uint64_t(row / tile_rows) * (cols / F::block) * stride;
    for (uint32_t b = 0; b < cols / F::block; b++, tile += stride)
        for (uint32_t k = 0; k < F::block; k++) *out++ = F::value(tile, 0, row % tile_rows, k);
}

void decode_row(const Tensor& w, uint32_t row, float* out)
{
    KS_CHECK(row < w.rows, "row %u of %u", row, w.rows);
    switch (w.format) {
#define KS_ROW(name)                                                                               \
    case Format::name:                                                                             \
        return decode_row<format_##name>(w.ptr<uint32_t>(), row, w.cols, out);
        FORMATS(KS_ROW)
#undef KS_ROW
    default:
        break;
    }
    KS_CHECK(false, "format %d", int(w.format));
}

void check_weight(const char* op, const Tensor& w)
{
    uint64_t bytes = weight_bytes(w.format, w.rows, w.cols);
    KS_CHECK(w.cols % format_info(w.format).block == 0, "%s: rows of %u values in blocks of %u", op,
             w.cols, format_info(w.format).block);
    KS_CHECK(w.offset <= w.buffer.bytes && bytes <= w.buffer.bytes - w.offset,
             "%s: %llu bytes at %llu of a buffer of %llu", op, (unsigned long long)bytes,
             (unsigned long long)w.offset, (unsigned long long)w.buffer.bytes);
}

void ReferenceBackend::embed(const EmbedArgs& a, const Tensor& y, const Tensor& table,
                             const Tensor& ids)
{
    KS_CHECK(table.cols == a.dim, "embed: dim %u, table (%u, %u)", a.dim, table.rows, table.cols);
    check_weight("embed", table);
    check_values("embed", y, uint64_t(a.n_tokens) * a.dim);
    check_values("embed", ids, a.n_tokens);
    for (uint32_t t = 0; t < a.n_tokens; t++) {
        float* row = y.ptr() + uint64_t(t) * a.dim;
        decode_row(table, ids.ptr<uint32_t>()[t], row);
        for (uint32_t i = 0; i < a.dim; i++) row[i] *= a.scale;
    }
}

double reference_dot(const float* a, const float* b, uint32_t n)
{
    double sum[8] = {};
    uint32_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (uint32_t i = 0; i < 8; i++) sum[i] += double(a[k + i]) * b[k + i];
    for (; k < n; k++) sum[0] += double(a[k]) * b[k];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

void ReferenceBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                              const Tensor& x)
{
    KS_CHECK(a.cols <= m_shape.max_cols, "matmul: %u cols, scratch for %u", a.cols,
             m_shape.max_cols);
    check_values("matmul", x, uint64_t(a.n_tokens) * a.cols);
    for (int i = 0; i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        const Tensor& y = targets[i].y;
        KS_CHECK(w.cols == a.cols && (i > 0 || w.rows == a.rows), "matmul: (%u, %u), w (%u, %u)",
                 a.rows, a.cols, w.rows, w.cols);
        check_weight("matmul", w);
        check_values("matmul", y, uint64_t(a.n_tokens) * w.rows);
        for (uint32_t r = 0; r < w.rows; r++) {
            decode_row(w, r, m_row);
            for (uint32_t t = 0; t < a.n_tokens; t++) {
                float& out = y.ptr()[uint64_t(t) * w.rows + r];
                double sum =
                    targets[i].scale * reference_dot(m_row, x.ptr() + uint64_t(t) * a.cols, a.cols);
                out = float(a.accumulate ? out + sum : sum);
            }
        }
    }
}

void check_target(const RopeTarget& target)
{
    const RopeArgs& a = target.a;
    KS_CHECK(a.n_rot % 2 == 0 && a.n_rot <= a.head_dim, "rope: n_rot %u of %u values", a.n_rot,
             a.head_dim);
    KS_CHECK(!a.hadamard || a.head_dim <= codec_max_dim, "rope: hadamard of heads of %u values",
             a.head_dim);
    for (const Tensor* t : {&target.y, &target.x})
        check_values("rope", *t, uint64_t(a.n_tokens) * a.n_heads * a.head_dim);
    if (a.n_rot)
        check_values("rope", target.angles,
                     uint64_t(a.n_groups ? a.n_groups : a.n_tokens) * a.n_rot);
}

// Rotates the pairs of every head by the target's angles.
static void apply_rope(const RopeTarget& target)
{
    const RopeArgs& a = target.a;
    uint32_t half = a.n_rot / 2;
    for (uint32_t t = 0; t < a.n_tokens; t++) {
        for (uint32_t h = 0; h < a.n_heads; h++) {
            const float* angle = target.angles.ptr() +
                                 uint64_t(a.n_groups ? h / (a.n_heads / a.n_groups) : t) * a.n_rot;
            const float* from = target.x.ptr() + (uint64_t(t) * a.n_heads + h) * a.head_dim;
            float* to = target.y.ptr() + (uint64_t(t) * a.n_heads + h) * a.head_dim;
            for (uint32_t i = 0; i < half; i++) {
                const uint32_t first = first_of_pair(a.pairs, i),
                               second = second_of_pair(a.pairs, i, a.n_rot);
                double c = angle[2 * i], s = angle[2 * i + 1], u = from[first], v = from[second];
                to[first] = float(u * c - v * s);
                to[second] = float(u * s + v * c);
            }
            for (uint32_t i = a.n_rot; i < a.head_dim; i++) to[i] = from[i];
        }
    }
}

// H of one block of a head: butterflies at distances 1, 2, 4, ..., then the scale.
static void hadamard_transform(float* x, uint32_t block)
{
    for (uint32_t step = 1; step < block; step *= 2)
        for (uint32_t i = 0; i < block; i++) {
            if (i & step) continue;
            const float a = x[i], b = x[i + step];
            x[i] = a + b;
            x[i + step] = a - b;
        }
    for (uint32_t i = 0; i < block; i++) x[i] *= hadamard_scale(block);
}

void hadamard_head(float* head, uint32_t head_dim, bool inverse)
{
    for (uint32_t base = 0, block; base < head_dim; base += block) {
        block = hadamard_block(base, head_dim);
        for (uint32_t i = base; !inverse && i < base + block; i++) head[i] *= hadamard_sign(i);
        hadamard_transform(head + base, block);
        for (uint32_t i = base; inverse && i < base + block; i++) head[i] *= hadamard_sign(i);
    }
}

void ReferenceBackend::rope(const RopeTarget* targets, int n_targets)
{
    for (const RopeTarget* target = targets; target < targets + n_targets; target++) {
        const RopeArgs& a = target->a;
        check_target(*target);
        apply_rope(*target);
        for (uint64_t i = 0; a.hadamard && i < uint64_t(a.n_tokens) * a.n_heads; i++)
            hadamard_head(target->y.ptr() + i * a.head_dim, a.head_dim, false);
    }
}

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options)
{
    return std::unique_ptr<Backend>(new ReferenceBackend(options));
}

} // namespace ks
