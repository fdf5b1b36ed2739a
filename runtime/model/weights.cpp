#include "runtime/model/weights.h"

#include "kernels/common/formats.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>

namespace ks
{

constexpr uint64_t kSliceBytes = 256 * 1024; // of the file, read and converted at a time
// Slices that a thread takes at once: more than a huge page, since threads that touch a new page
// together clear it twice.
constexpr uint64_t kRunSlices = 8;
// Of the file: requested before they are read. As many stay cached behind, more than all threads
// have in their runs.
constexpr uint64_t kAheadBytes = 16 << 20;
constexpr int kMaxLoadThreads = 8;

static uint64_t row_bytes(const TensorPart& part)
{
    const FormatInfo& info = format_info(part.tensor->format);
    return part.cols / info.block * uint64_t(info.block_bytes);
}

static uint64_t part_bytes(const TensorPart& part, uint64_t align)
{
    if (!part.on_device()) return 0;
    uint64_t bytes = part.is_matrix() ? weight_bytes(part.tensor->format, part.rows, part.cols)
                                      : 4ull * part.rows * part.cols;
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

uint64_t weights_range(const std::vector<TensorPart>& parts)
{
    uint64_t bytes = 0;
    for (TensorPart part : parts) {
        if (part.is_matrix()) part.rows = std::min(part.rows, kPartRows);
        bytes = std::max(bytes, part_bytes(part, 1));
    }
    return bytes;
}

// Rows per slice: whole tiles.
static uint64_t slice_rows(const TensorPart& part)
{
    uint64_t tiles = kSliceBytes / (row_bytes(part) * tile_rows);
    return std::max<uint64_t>(tiles, 1) * tile_rows;
}

// The staging buffer holds bytes of the file, then the same rows as tiles. A vector is read at
// once, and its f32 values follow.
static uint64_t staged_file_bytes(const TensorPart& part)
{
    const uint64_t rows = part.is_matrix() ? slice_rows(part) : part.rows;
    return align_up(rows * row_bytes(part), kRegionAlign);
}

static uint64_t staged_bytes(const TensorPart& part)
{
    uint64_t laid_out = part.is_matrix()
                            ? weight_bytes(part.tensor->format, slice_rows(part), part.cols)
                            : 4ull * part.rows * part.cols;
    return staged_file_bytes(part) + align_up(laid_out, kRegionAlign);
}

int load_threads(int n_threads)
{
    return std::min(n_threads > 0 ? n_threads : count_cores(), kMaxLoadThreads);
}

uint64_t staging_bytes(const std::vector<TensorPart>& parts, int n_threads)
{
    uint64_t bytes = 0; // of one thread
    for (const TensorPart& part : parts) bytes = std::max(bytes, staged_bytes(part));
    return bytes * uint64_t(n_threads);
}

// Reads rows of a matrix as the file has them.
static Status read_rows(const Gguf& gguf, const TensorPart& part, uint64_t row, uint64_t n_rows,
                        uint8_t* out)
{
    const uint64_t bytes = row_bytes(part);
    for (uint64_t end = row + n_rows, n; row < end; row += n, out += n * bytes) {
        n = std::min(end - row, part.run - row % part.run);
        KS_TRY(gguf.read(*part.tensor, part.row_in_tensor(row) * bytes, out, n * bytes));
    }
    return {};
}

// Reads a norm, bias, scale or table of divisors as floats.
static Status read_vector(const Gguf& gguf, const TensorPart& part, uint8_t* file_bytes, float* out)
{
    const uint32_t n = part.rows * part.cols;
    const uint64_t value_bytes = format_info(part.tensor->format).block_bytes;
    KS_TRY(gguf.read(*part.tensor, part.first * value_bytes, file_bytes, n * value_bytes));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bits = file_bytes[2 * i] | uint32_t(file_bytes[2 * i + 1]) << 8;
        float& value = out[part.transposed() ? i % part.rows * part.cols + i / part.rows : i];
        switch (part.tensor->format) {
        case Format::f32:
            memcpy(&value, file_bytes + 4 * i, 4);
            break;
        case Format::f16:
            value = HALF_TO_FLOAT(bits);
            break;
        case Format::bf16:
            value = BITS_TO_FLOAT(bits << 16);
            break;
        default:
            KS_CHECK(false, "vector of format %s", format_info(part.tensor->format).name);
        }
    }
    return {};
}

static Status check_divisors(const TensorPart& part, const float* values)
{
    for (uint32_t i = 0; i < part.cols; i++)
        if (!(values[i] > 0) || !std::isfinite(values[i]))
            return fail(Code::invalid,
                        "tensor '%s' divides rotation %u by %g, a positive number was expected",
                        printable(part.tensor->name).c_str(), i, double(values[i]));
    return {};
}

static Linear* linear_of(Weights& w, LayerWeights& layer, Role role)
{
    switch (role) {
    case Role::token_embd:
        return &w.token_embd;
    case Role::output:
        return &w.output;
    case Role::attn_q:
        return &layer.attn_q;
    case Role::attn_k:
        return &layer.attn_k;
    case Role::attn_v:
        return &layer.attn_v;
    case Role::attn_gate:
        return &layer.attn_gate;
    case Role::attn_q_a:
        return &layer.attn_q_a;
    case Role::attn_q_rope:
        return &layer.attn_q_rope;
    case Role::attn_kv_a:
        return &layer.attn_kv_a;
    case Role::attn_k_rope:
        return &layer.attn_k_rope;
    case Role::attn_output:
        return &layer.attn_output;
    case Role::ssm_in:
        return &layer.ssm_in;
    case Role::ssm_gate:
        return &layer.ssm_gate;
    case Role::ssm_dt:
        return &layer.ssm_dt;
    case Role::ssm_beta:
        return &layer.ssm_beta;
    case Role::ssm_out:
        return &layer.ssm_out;
    case Role::ffn_gate:
        return &layer.ffn_gate;
    case Role::ffn_up:
        return &layer.ffn_up;
    case Role::ffn_down:
        return &layer.ffn_down;
    case Role::ffn_router:
        return &layer.router;
    case Role::ffn_gate_shared:
        return &layer.gate_shared;
    case Role::ffn_up_shared:
        return &layer.up_shared;
    case Role::ffn_down_shared:
        return &layer.down_shared;
    case Role::ffn_shared_gate:
        return &layer.shared_gate;
    case Role::ffn_latent_down:
        return &layer.latent_down;
    case Role::ffn_latent_up:
        return &layer.latent_up;
    case Role::layer_proj:
        return &layer.layer_proj;
    case Role::layer_gate:
        return &layer.layer_gate;
    case Role::layer_output:
        return &layer.layer_output;
    default:
        return nullptr;
    }
}

static Norm* norm_of(Weights& w, LayerWeights& layer, Role role)
{
    switch (role) {
    case Role::output_norm:
        return &w.output_norm;
    case Role::attn_norm:
        return &layer.attn_norm;
    case Role::attn_q_norm:
        return &layer.attn_q_norm;
    case Role::attn_k_norm:
        return &layer.attn_k_norm;
    case Role::attn_q_a_norm:
        return &layer.attn_q_a_norm;
    case Role::attn_kv_a_norm:
        return &layer.attn_kv_a_norm;
    case Role::attn_sub_norm:
        return &layer.attn_sub_norm;
    case Role::attn_post_norm:
        return &layer.attn_post_norm;
    case Role::ssm_conv:
        return &layer.ssm_conv;
    case Role::ssm_a:
        return &layer.ssm_a;
    case Role::ssm_d:
        return &layer.ssm_d;
    case Role::ssm_norm:
        return &layer.ssm_norm;
    case Role::ffn_norm:
        return &layer.ffn_norm;
    case Role::ffn_sub_norm:
        return &layer.ffn_sub_norm;
    case Role::ffn_post_norm:
        return &layer.ffn_post_norm;
    case Role::ffn_dense_post_norm:
        return &layer.ffn_dense_post_norm;
    case Role::experts_norm:
        return &layer.experts_norm;
    case Role::experts_post_norm:
        return &layer.experts_post_norm;
    case Role::router_norm:
        return &layer.router_norm;
    case Role::layer_proj_norm:
        return &w.layer_proj_norm;
    case Role::layer_post_norm:
        return &layer.layer_post_norm;
    default:
        return nullptr;
    }
}

static ExpertsLinear* experts_of(LayerWeights& layer, Role role)
{
    return role == Role::ffn_gate_exps   ? &layer.gate_exps
           : role == Role::ffn_up_exps   ? &layer.up_exps
           : role == Role::ffn_down_exps ? &layer.down_exps
           : role == Role::attn_k_b      ? &layer.attn_k_b
           : role == Role::attn_v_b      ? &layer.attn_v_b
                                         : nullptr;
}

static Tensor& tensor_of(Weights& w, const TensorPart& part)
{
    LayerWeights& layer = w.layers[part.layer];
    if (part.role == Role::attn_sinks) return layer.attn_sinks;
    if (part.role == Role::expert_bias) return layer.expert_bias;
    if (ExpertsLinear* experts = experts_of(layer, part.role))
        return part.piece == Piece::bias     ? experts->bias
               : part.piece == Piece::scales ? experts->scales
                                             : experts->w;
    if (Linear* linear = linear_of(w, layer, part.role))
        return part.piece == Piece::bias ? linear->bias : linear->w;
    Norm* norm = norm_of(w, layer, part.role);
    return part.piece == Piece::bias ? norm->bias : norm->w;
}

// Keeps a vector that stays on the host.
static Status keep_on_host(const TensorPart& part, const float* values, Weights& w)
{
    if (part.piece == Piece::scale || part.role == Role::layer_scale) {
        LayerWeights& layer = w.layers[part.layer];
        if (!std::isfinite(values[0]))
            return fail(Code::invalid, "tensor '%s' is %g, a finite number was expected",
                        printable(part.tensor->name).c_str(), double(values[0]));
        (part.piece == Piece::scale ? linear_of(w, layer, part.role)->scale : layer.layer_scale) =
            values[0];
        return {};
    }
    KS_TRY(check_divisors(part, values));
    (part.role == Role::rope_factors_long ? w.rope_divisors_long : w.rope_divisors)
        .assign(values, values + part.cols);
    return {};
}

namespace
{

// Loads the matrices. Threads take runs of rows in the order of the parts; each thread reads,
// converts and uploads its own.
class MatrixLoader
{
public:
    MatrixLoader(const Gguf& gguf, const std::vector<TensorPart>& parts, Backend& backend,
                 const Buffer& buffer, uint64_t offset, const Loading& loading)
        : m_gguf(gguf), m_parts(parts), m_backend(backend), m_buffer(buffer), m_loading(loading),
          m_staged_bytes(staging_bytes(parts, 1)),
          m_total(weights_bytes(parts, backend.align())), m_next{0, 0, 0, offset},
          m_failed_part(parts.size())
    {
    }
    void load()
    {
        ThreadPool& pool = *m_loading.pool;
        pool.parallel_for(uint32_t(pool.size()), [this](uint32_t, int thread) {
            try {
                load_runs(thread);
            } catch (...) { // no memory for the words of an error
                std::lock_guard<std::mutex> lock(m_mutex);
                m_exception = std::current_exception();
                m_stop = true;
            }
        });
        if (m_exception) std::rethrow_exception(m_exception);
    }
    size_t failed_part() const { return m_failed_part; } // the number of parts: none
    const Status& status() const { return m_status; }    // of the failed part
    bool interrupted() const { return m_interrupted; }

private:
    struct Run {
        size_t part;
        uint64_t row, n_rows;
        uint64_t offset; // in the buffer, of the part
    };

    void load_runs(int thread)
    {
        Run run;
        while (take(&run)) {
            Status status = load_run(run, thread);
            if (!status.ok()) fail(run, std::move(status));
            if (thread == 0 && m_loading.progress && !m_loading.progress(m_done, m_total))
                m_stop = m_interrupted = true;
        }
    }

    bool take(Run* run)
    {
        std::lock_guard<std::mutex> lock(m_mutex);
        while (m_next.part < m_parts.size() &&
               (!m_parts[m_next.part].is_matrix() || m_next.row >= m_parts[m_next.part].rows)) {
            m_next.offset += part_bytes(m_parts[m_next.part++], m_backend.align());
            m_next.row = 0;
        }
        if (m_stop || m_next.part == m_parts.size()) return false;
        const TensorPart& part = m_parts[m_next.part];
        m_next.n_rows = std::min(kRunSlices * slice_rows(part), part.rows - m_next.row);
        *run = m_next;
        m_next.row += m_next.n_rows;
        return true;
    }

    Status load_run(const Run& run, int thread)
    {
        const TensorPart& part = m_parts[run.part];
        const GgufTensor& tensor = *part.tensor;
        uint8_t* file_bytes =
            static_cast<uint8_t*>(m_loading.staging) + uint64_t(thread) * m_staged_bytes;
        const uint64_t begin = part.row_in_tensor(run.row) * row_bytes(part);
        m_gguf.prefetch(tensor, begin + kAheadBytes, run.n_rows * row_bytes(part));
        if (!m_loading.keeps_cached) m_gguf.uncache_before(tensor, begin, kAheadBytes);
        for (uint64_t row = run.row, end = row + run.n_rows, n; row < end; row += n) {
            n = std::min(slice_rows(part), end - row);
            KS_TRY(read_rows(m_gguf, part, row, n, file_bytes));
            const uint64_t to = run.offset + weight_bytes(tensor.format, row, part.cols),
                           bytes = weight_bytes(tensor.format, n, part.cols);
            void* mapped = m_backend.mapped(m_buffer, to, bytes);
            void* tiles = mapped ? mapped : file_bytes + staged_file_bytes(part);
            weight_to_tiles(tensor.format, file_bytes, uint32_t(n), part.cols,
                            static_cast<uint32_t*>(tiles));
            m_done += bytes;
            if (mapped) continue;
            std::lock_guard<std::mutex> lock(m_mutex);
            m_backend.upload(m_buffer, to, tiles, bytes);
        }
        return {};
    }

    // Keeps the error of the first part in their order.
    void fail(const Run& run, Status status)
    {
        std::lock_guard<std::mutex> lock(m_mutex);
        m_stop = true;
        if (run.part > m_failed_part || (run.part == m_failed_part && run.row > m_failed_row))
            return;
        m_failed_part = run.part;
        m_failed_row = run.row;
        m_status = std::move(status);
    }

    const Gguf& m_gguf;
    const std::vector<TensorPart>& m_parts;
    Backend& m_backend;
    const Buffer& m_buffer;
    const Loading& m_loading;
    const uint64_t m_staged_bytes, m_total;
    std::mutex m_mutex; // of the following, and of uploads
    Run m_next;
    size_t m_failed_part;
    uint64_t m_failed_row = 0;
    Status m_status;
    std::exception_ptr m_exception;
    std::atomic<uint64_t> m_done{0};
    std::atomic<bool> m_stop{false}, m_interrupted{false};
};

} // namespace

Result<Weights> load_weights(const Gguf& gguf, const Config& config,
                             const std::vector<TensorPart>& parts, Backend& backend,
                             const Buffer& buffer, uint64_t offset, const Loading& loading)
{
    MatrixLoader matrices(gguf, parts, backend, buffer, offset, loading);
    matrices.load();
    Weights w;
    w.layers.resize(config.n_layers());
    uint8_t* file_bytes = static_cast<uint8_t*>(loading.staging);
    for (size_t i = 0; i < parts.size(); i++) {
        const TensorPart& part = parts[i];
        if (i == matrices.failed_part()) return matrices.status();
        Tensor t{buffer, offset, part.rows, part.cols, part.tensor->format};
        offset += part_bytes(part, backend.align());
        if (!part.is_matrix()) {
            float* values = reinterpret_cast<float*>(file_bytes + staged_file_bytes(part));
            KS_TRY(read_vector(gguf, part, file_bytes, values));
            if (!part.on_device()) {
                KS_TRY(keep_on_host(part, values, w));
                continue;
            }
            // The bias of a branch's output is scaled like the output.
            const bool of_branch = part.role == Role::attn_output || part.role == Role::ssm_out ||
                                   part.role == Role::ffn_down ||
                                   part.role == Role::ffn_down_shared;
            for (uint32_t j = 0; of_branch && j < part.cols; j++)
                values[j] *= config.residual_scale;
            t.format = Format::f32;
            backend.upload(buffer, t.offset, values, 4ull * part.rows * part.cols);
        }
        tensor_of(w, part) = t;
    }
    if (!loading.keeps_cached) gguf.uncache();
    const uint64_t total = weights_bytes(parts, backend.align());
    if (matrices.interrupted() || (loading.progress && !loading.progress(total, total)))
        return Status(Code::interrupted, "interrupted while loading the weights");
    if (config.tied) w.output = w.token_embd;
    return w;
}

} // namespace ks
