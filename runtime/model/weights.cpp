#include "runtime/model/weights.h"

#include "kernels/common/formats.h"

#include <algorithm>
#include <cmath>

namespace ks
{

constexpr uint64_t kSliceBytes = 512 * 1024; // of the file, read and converted at a time

static bool is_matrix(Role role)
{
    switch (role) {
    case Role::token_embd:
    case Role::output:
    case Role::attn_q:
    case Role::attn_k:
    case Role::attn_v:
    case Role::attn_output:
    case Role::ffn_gate:
    case Role::ffn_up:
    case Role::ffn_down:
        return true;
    default:
        return false;
    }
}

static bool is_rope_table(Role role)
{
    return role == Role::rope_freqs || role == Role::rope_factors_long ||
           role == Role::rope_factors_short;
}

static uint64_t row_bytes(const TensorPart& part)
{
    const FormatInfo& info = format_info(part.tensor->format);
    return part.cols / info.block * uint64_t(info.block_bytes);
}

static uint64_t part_bytes(const TensorPart& part, uint64_t align)
{
    if (is_rope_table(part.role)) return 0; // kept on the host
    uint64_t bytes = is_matrix(part.role) ? weight_bytes(part.tensor->format, part.rows, part.cols)
                                          : 4ull * part.cols;
    return align_up(bytes, align);
}

uint64_t weights_bytes(const std::vector<TensorPart>& parts, uint64_t align,
                       std::vector<uint64_t>* split_points)
{
    uint64_t bytes = 0;
    for (const TensorPart& part : parts) {
        if (split_points) split_points->push_back(bytes);
        bytes += part_bytes(part, align);
    }
    return bytes;
}

// Rows per slice: whole tiles.
static uint64_t slice_rows(const TensorPart& part)
{
    uint64_t tiles = kSliceBytes / (row_bytes(part) * tile_rows);
    return std::max<uint64_t>(tiles, 1) * tile_rows;
}

// The staging buffer holds bytes of the file, then the same rows as tiles. A vector is one row and
// its f32 values.
static uint64_t staged_file_bytes(const TensorPart& part)
{
    return align_up(is_matrix(part.role) ? slice_rows(part) * row_bytes(part) : row_bytes(part),
                    kRegionAlign);
}

static uint64_t staged_bytes(const TensorPart& part)
{
    uint64_t laid_out = is_matrix(part.role)
                            ? weight_bytes(part.tensor->format, slice_rows(part), part.cols)
                            : 4ull * part.cols;
    return staged_file_bytes(part) + align_up(laid_out, kRegionAlign);
}

uint64_t staging_bytes(const std::vector<TensorPart>& parts)
{
    uint64_t bytes = 0;
    for (const TensorPart& part : parts) bytes = std::max(bytes, staged_bytes(part));
    return bytes;
}

// Reads a norm, bias or factor table as floats.
static Status read_vector(const Gguf& gguf, const TensorPart& part, uint8_t* file_bytes, float* out)
{
    KS_TRY(gguf.read(*part.tensor, part.first_row * row_bytes(part), file_bytes, row_bytes(part)));
    for (uint32_t i = 0; i < part.cols; i++) {
        uint32_t bits = file_bytes[2 * i] | uint32_t(file_bytes[2 * i + 1]) << 8;
        switch (part.tensor->format) {
        case Format::f32:
            memcpy(&out[i], file_bytes + 4 * i, 4);
            break;
        case Format::f16:
            out[i] = HALF_TO_FLOAT(bits);
            break;
        case Format::bf16:
            out[i] = BITS_TO_FLOAT(bits << 16);
            break;
        default:
            KS_CHECK(false, "vector of format %s", format_info(part.tensor->format).name);
        }
    }
    return {};
}

static Tensor* tensor_of(Weights& w, Role role, uint32_t il)
{
    LayerWeights* layer = il < w.layers.size() ? &w.layers[il] : nullptr;
    switch (role) {
    case Role::token_embd:
        return &w.token_embd;
    case Role::output:
        return &w.output;
    case Role::output_norm:
        return &w.output_norm;
    case Role::attn_norm:
        return &layer->attn_norm;
    case Role::attn_q:
        return &layer->attn_q;
    case Role::attn_k:
        return &layer->attn_k;
    case Role::attn_v:
        return &layer->attn_v;
    case Role::attn_q_bias:
        return &layer->attn_q_bias;
    case Role::attn_k_bias:
        return &layer->attn_k_bias;
    case Role::attn_v_bias:
        return &layer->attn_v_bias;
    case Role::attn_q_norm:
        return &layer->attn_q_norm;
    case Role::attn_k_norm:
        return &layer->attn_k_norm;
    case Role::attn_output:
        return &layer->attn_output;
    case Role::attn_post_norm:
        return &layer->attn_post_norm;
    case Role::ffn_norm:
        return &layer->ffn_norm;
    case Role::ffn_gate:
        return &layer->ffn_gate;
    case Role::ffn_up:
        return &layer->ffn_up;
    case Role::ffn_down:
        return &layer->ffn_down;
    case Role::ffn_post_norm:
        return &layer->ffn_post_norm;
    case Role::rope_freqs:
    case Role::rope_factors_long:
    case Role::rope_factors_short:
        break;
    }
    return nullptr;
}

static Status load_matrix(const Gguf& gguf, const TensorPart& part, Backend& backend,
                          const Tensor& to, uint8_t* staging)
{
    uint8_t* tiles = staging + staged_file_bytes(part);
    uint64_t offset = to.offset;
    uint64_t step = slice_rows(part);
    for (uint64_t row = 0; row < part.rows; row += step) {
        uint64_t n = std::min<uint64_t>(step, part.rows - row);
        KS_TRY(gguf.read(*part.tensor, (part.first_row + row) * row_bytes(part), staging,
                         n * row_bytes(part)));
        weight_to_tiles(part.tensor->format, staging, uint32_t(n), part.cols,
                        reinterpret_cast<uint32_t*>(tiles));
        uint64_t bytes = weight_bytes(part.tensor->format, n, part.cols);
        backend.upload(to.buffer, offset, tiles, bytes);
        offset += bytes;
    }
    return {};
}

Result<Weights> load_weights(const Gguf& gguf, const Config& config,
                             const std::vector<TensorPart>& parts, Backend& backend,
                             const Buffer& buffer, uint64_t offset, void* staging,
                             const std::function<bool(uint64_t, uint64_t)>& progress)
{
    Weights w;
    w.layers.resize(config.n_layers);
    uint8_t* file_bytes = static_cast<uint8_t*>(staging);
    const uint64_t align = backend.align();
    uint64_t done = 0, total = weights_bytes(parts, align);
    for (const TensorPart& part : parts) {
        float* values = reinterpret_cast<float*>(file_bytes + staged_file_bytes(part));
        Tensor t{buffer, offset, part.rows, part.cols, part.tensor->format};
        if (is_matrix(part.role)) {
            KS_TRY(load_matrix(gguf, part, backend, t, file_bytes));
        } else {
            KS_TRY(read_vector(gguf, part, file_bytes, values));
            t.format = Format::f32;
        }
        if (is_rope_table(part.role)) {
            for (uint32_t i = 0; i < part.cols; i++)
                if (!(values[i] > 0) || !std::isfinite(values[i]))
                    return fail(
                        Code::invalid,
                        "tensor '%s' divides rotation %u by %g, a positive number was expected",
                        printable(part.tensor->name).c_str(), i, double(values[i]));
            (part.role == Role::rope_factors_long ? w.rope_divisors_long : w.rope_divisors)
                .assign(values, values + part.cols);
            continue;
        }
        if (!is_matrix(part.role)) backend.upload(buffer, offset, values, 4ull * part.cols);
        *tensor_of(w, part.role, part.layer) = t;
        offset += part_bytes(part, align);
        done += part_bytes(part, align);
        if (progress && !progress(done, total))
            return Status(Code::interrupted, "interrupted while loading the weights");
    }
    if (config.tied) w.output = w.token_embd;
    return w;
}

} // namespace ks
