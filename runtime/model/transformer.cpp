// The buffers of the forward pass, and the inputs of a step.
#include "runtime/model/transformer.h"

#include "runtime/base/placer.h"
#include "runtime/model/rope.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ks
{

static bool pins(const Recipe& recipe)
{
    return !recipe.exact(); // with sink=0 as well: Cache::pin() may come later
}

// Rows of the inputs of one layer: n, or more so that those of each layer are aligned.
static uint32_t layer_stride(const Config& c, uint32_t n, uint64_t align)
{
    while (4ull * n * c.layer_dim % align) n++;
    return n;
}

// Values of a token that the last matrix of attention or of a recurrent branch reads.
static uint32_t branch_cols(const Config& c)
{
    const RecurrentConfig& r = c.recurrent;
    return std::max({c.out_cols(), r.inner(), r.n_heads ? 0 : r.conv_cols});
}

void Activations::place(const Config& c, const Recipe& recipe, uint32_t chunk, Placer& p,
                        uint32_t n_logits)
{
    const RecurrentConfig& r = c.recurrent;
    const uint32_t q_cols = c.q_cols(), kv_cols = std::max(c.kv_cols(), r.n_heads),
                   out_cols = std::max(q_cols, branch_cols(c));
    const LatentConfig& latent = c.latent;
    const bool no_bias = leaves_bias_out(c.model_shape(), recipe);
    x = p.take(chunk, c.dim);
    h = p.take(chunk, c.dim);
    q = p.take(chunk, out_cols);
    q_roped = p.take(recipe.compares_queries() ? chunk : 0, q_cols);
    q_clamped = p.take(pins(recipe) ? chunk : 0, q_cols);
    q_bias = p.take(no_bias ? chunk : 0, q_cols);
    q_bias_clamped = p.take(no_bias && pins(recipe) ? chunk : 0, q_cols);
    k = p.take(chunk, kv_cols);
    v = p.take(latent.dim ? 0 : chunk, kv_cols);
    att = p.take(chunk, out_cols);
    const AttentionGates gates = c.family->attention_gates;
    const uint32_t n_gates = gates == AttentionGates::none      ? 0
                             : gates == AttentionGates::by_head ? c.n_heads
                                                                : q_cols;
    gate = p.take(chunk, std::max({c.ffn_dim, n_gates, c.layer_dim, r.conv_cols,
                                   c.n_heads * std::max(latent.key_dim, latent.value_dim),
                                   latent.dim ? c.rope.n_rot : 0}));
    up = p.take(chunk,
                std::max({c.ffn_dim, r.conv_cols, c.experts.latent_dim, latent.q_dim, latent.dim}));
    const uint32_t n_choices = chunk * c.experts.n_used;
    expert_logits = p.take(c.experts.n ? chunk : 0, c.experts.n);
    expert_ids = p.take(1, n_choices);
    expert_weights = p.take(1, n_choices);
    expert_gate = p.take(n_choices, c.experts.dim);
    expert_up = p.take(n_choices, c.experts.dim);
    expert_out = p.take(n_choices, c.expert_cols());
    logits = p.take(n_logits, c.n_vocab);
    layer_inputs =
        p.take(c.layer_dim ? c.n_layers() * layer_stride(c, chunk, p.align) : 0, c.layer_dim);
    layer_scales =
        p.take(c.family->layer_inputs ? c.n_layers() : 0, uint32_t(align_up(chunk, p.align / 4)));
    ones = p.take(c.family->value_norm, c.head_dim);
    head_ids = p.take(latent.dim ? chunk : 0, c.n_heads);
}

void StepInputs::place(const Config& c, const Recipe& recipe, uint32_t chunk, Placer& p)
{
    ids = p.take(1, chunk);
    angles = p.take(chunk, c.rope.n_rot);
    angles_window = p.take(c.window ? chunk : 0, c.rope_window.n_rot);
    angles_clamped = p.take(pins(recipe) ? chunk : 0, c.rope.n_rot);
    temperatures = p.take(c.temperature != 0, chunk);
    layer_rows = p.take(c.layer_dim != 0, uint32_t(LayerRows::tile_bytes(c, chunk) / 4));
    layer_ids = p.take(c.layer_dim != 0, c.n_layers() * layer_stride(c, chunk, p.align));
}

RecurrentShape recurrent_shape(const Config& c)
{
    const RecurrentConfig& r = c.recurrent;
    const auto n = std::count_if(c.layers.begin(), c.layers.end(),
                                 [](const LayerConfig& layer) { return layer.recurrent; });
    return {uint32_t(n), r.kernel ? r.kernel - 1 : 0, r.conv_cols, r.inner(), r.state_dim};
}

ScratchShape scratch_shape(const Config& c, const Recipe& recipe, uint32_t n_slots, uint32_t chunk)
{
    ScratchShape shape = cache_scratch(c.model_shape(), recipe, n_slots);
    shape.n_tokens = std::max(chunk, kLogitRows);
    const uint32_t n_heads = c.latent.dim ? c.n_heads : 0; // with matrices of their own
    shape.expert_cols = std::max({c.expert_cols(), c.experts.dim, c.latent.dim, c.latent.key_dim});
    shape.max_cols =
        std::max({c.dim, c.ffn_dim, shape.expert_cols, branch_cols(c), c.latent.q_dim});
    shape.n_experts = std::max(c.experts.n, n_heads);
    shape.expert_rows = chunk * std::max(c.experts.n_used, n_heads);
    return shape;
}

// The first row of a span is a multiple of this, so that the ops can see its rows of each tensor.
static uint32_t row_step(const Config& c, uint64_t align)
{
    std::vector<uint32_t> cols = {c.dim,
                                  c.rope.n_rot,
                                  c.rope_window.n_rot,
                                  c.recurrent.conv_cols,
                                  c.recurrent.inner(),
                                  c.recurrent.n_heads};
    for (const LayerConfig& layer : c.layers) {
        cols.push_back(layer.q_cols());
        cols.push_back(layer.kv_cols());
    }
    uint32_t step = 1;
    const auto misaligned = [&](uint32_t n) { return 4ull * n * step % align != 0; };
    while (std::any_of(cols.begin(), cols.end(), misaligned)) step *= 2;
    return step;
}

uint32_t step_rows(const Config& c, const Backend& backend, uint32_t chunk, uint32_t n_sessions)
{
    if (n_sessions == 1) return chunk;
    const uint32_t step = row_step(c, backend.range_align());
    return uint32_t(align_up(chunk, step)) + (n_sessions - 1) * step;
}

void Transformer::open(const Config& config, Weights weights, const Cache& cache, Backend& backend,
                       const Activations& activations, const StepInputs& step, uint8_t* step_host,
                       uint32_t rows, uint32_t context)
{
    m_c = config;
    m_w = std::move(weights);
    m_backend = &backend;
    m_a = activations;
    m_step = step;
    m_step_host = step_host;
    m_rows = rows;
    m_row_step = row_step(m_c, backend.range_align());
    bool beyond = context > m_c.rope_original_context && !m_w.rope_divisors_long.empty();
    const std::vector<double>& divisors = beyond ? m_w.rope_divisors_long : m_w.rope_divisors;
    m_frequencies = rope_frequencies(m_c, m_c.rope, divisors);
    m_frequencies_window = rope_frequencies(m_c, m_c.rope_window, divisors);
    if (cache.rope_table()) fill_rope_table(cache.rope_table());
    if (cache.phasors()) detach_key_bias(cache);
    fill_layers();
}

// The activations are free between two steps.
ClimbScratch Transformer::climb_scratch(uint8_t* staging) const
{
    return {m_a.q, m_a.att, m_a.h, std::min(m_rows, kMostClimbRows), staging};
}

// Fills the activations that are constants.
void Transformer::fill_layers()
{
    const auto fill = [&](const Tensor& t, uint64_t row, float value) {
        const uint64_t bytes = 4ull * t.cols;
        m_backend->fill(t.buffer, t.offset + row * bytes, bytes, FLOAT_TO_BITS(value));
    };
    if (m_a.ones) fill(m_a.ones, 0, 1);
    std::vector<uint32_t> ids(uint64_t(m_a.head_ids.rows) * m_a.head_ids.cols);
    for (size_t i = 0; i < ids.size(); i++) ids[i] = uint32_t(i % m_c.n_heads);
    if (!ids.empty())
        m_backend->upload(m_a.head_ids.buffer, m_a.head_ids.offset, ids.data(), 4 * ids.size());
    for (uint32_t il = 0; il < m_a.layer_scales.rows; il++)
        fill(m_a.layer_scales, il, m_w.layers[il].layer_scale);
}

// The inputs of a layer for n tokens.
Tensor Transformer::layer_input(uint32_t il, uint32_t n) const
{
    Tensor t = m_a.layer_inputs;
    t.offset += 4ull * il * layer_stride(m_c, n, m_backend->align()) * m_c.layer_dim;
    t.rows = n;
    return t;
}

// Fills the phasors, and converts the biases of layers whose keys are stored without them.
void Transformer::detach_key_bias(const Cache& cache)
{
    const Tensor& phasors = cache.phasors();
    const uint32_t half = m_c.rope.n_rot / 2;
    std::vector<float> row(m_c.rope.n_rot);
    for (uint32_t r = 0; r < phasors.rows; r++) {
        const double position = std::pow(double(phasor_base), r / phasor_base) * (r % phasor_base),
                     scale = r < phasor_base ? m_c.rope.mscale : 1;
        for (uint32_t i = 0; i < half; i++) {
            row[i] = float(std::cos(position * m_frequencies[i]) * scale);
            row[half + i] = float(std::sin(position * m_frequencies[i]) * scale);
        }
        m_backend->upload(phasors.buffer, phasors.offset + 4ull * r * m_c.rope.n_rot, row.data(),
                          4ull * m_c.rope.n_rot);
    }
    for (uint32_t il = 0; il < m_c.n_layers(); il++) {
        if (!m_c.layers[il].stores()) continue;
        const bool detached = cache.layer(m_c.layers[il].il_cache).spec.n_bias_dims != 0;
        if (detached && m_w.layers[il].attn_k.bias)
            detach_key_bias(m_w.layers[il], m_c.layers[il].head_dim);
    }
}

// Converts each bias (b, b') of a RoPE pair to the angles (b, -b') for the op rope. rope maps a
// query (u, v) to (u b + v b', v b - u b'), the factors of the cosine and the sine of a position.
void Transformer::detach_key_bias(LayerWeights& w, uint32_t head_dim)
{
    Tensor& biases = w.attn_k.bias;
    const uint32_t half = m_c.rope.n_rot / 2, n_kv_heads = biases.cols / head_dim;
    std::vector<float> bias(biases.cols), pairs(n_kv_heads * m_c.rope.n_rot);
    m_backend->download(bias.data(), biases.buffer, biases.offset, 4ull * bias.size());
    for (uint32_t h = 0; h < n_kv_heads; h++) {
        const float* b = &bias[h * head_dim];
        for (uint32_t i = 0; i < half; i++) {
            pairs[h * m_c.rope.n_rot + 2 * i] = b[phasor_dim(i, m_c.rope.n_rot, m_c.rope_pairs)];
            pairs[h * m_c.rope.n_rot + 2 * i + 1] =
                -b[phasor_dim(half + i, m_c.rope.n_rot, m_c.rope_pairs)];
        }
    }
    w.key_bias_pairs = {biases.buffer, biases.offset, n_kv_heads, m_c.rope.n_rot, Format::f32};
    biases = {};
    m_backend->upload(w.key_bias_pairs.buffer, w.key_bias_pairs.offset, pairs.data(),
                      4ull * pairs.size());
}

// Writes (cos, sin) of each pair for n positions. Positions beyond `last` are clamped to it.
static void fill_angles(float* out, const std::vector<double>& f, uint32_t n, uint32_t position,
                        uint32_t last, double mscale)
{
    for (uint32_t t = 0; t < n; t++) {
        for (double frequency : f) {
            double angle = double(std::min(position + t, last)) * frequency;
            *out++ = float(std::cos(angle) * mscale);
            *out++ = float(std::sin(angle) * mscale);
        }
    }
}

void Transformer::fill_rope_table(const Tensor& rope_table)
{
    std::vector<float> row(rope_table.cols);
    for (uint32_t r = 0; r < rope_table.rows; r++) {
        fill_angles(row.data(), m_frequencies, 1, r, ~0u, m_c.rope.mscale);
        m_backend->upload(rope_table.buffer, rope_table.offset + 4ull * r * rope_table.cols,
                          row.data(), 4ull * rope_table.cols);
    }
}

Status Transformer::fill_layer_rows(const uint32_t* ids, uint32_t n)
{
    const Tensor &rows = m_step.layer_rows, &row_ids = m_step.layer_ids;
    if (!rows) return {};
    const auto host = [&](const Tensor& t) {
        return reinterpret_cast<uint32_t*>(m_step_host + (t.offset - m_step.ids.offset));
    };
    const uint32_t n_layers = m_c.n_layers(), stride = layer_stride(m_c, n, m_backend->align());
    KS_TRY(m_layer_rows.read(m_c, ids, n, host(rows)));
    for (uint32_t il = 0; il < n_layers; il++)
        for (uint32_t t = 0; t < stride; t++)
            host(row_ids)[il * stride + t] = std::min(t, n - 1) * n_layers + il;
    m_backend->upload(rows.buffer, rows.offset, host(rows), LayerRows::tile_bytes(m_c, n));
    m_backend->upload(row_ids.buffer, row_ids.offset, host(row_ids), 4ull * n_layers * stride);
    return {};
}

Status Transformer::fill_step(uint32_t n)
{
    const auto host = [&](const Tensor& t) {
        return reinterpret_cast<float*>(m_step_host + (t.offset - m_step.ids.offset));
    };
    uint32_t* ids = reinterpret_cast<uint32_t*>(host(m_step.ids));
    // Rows between two spans repeat a token, and nothing reads them.
    std::fill_n(ids, n, m_spans[0].ids[0]);
    for (uint32_t i = 0; i < m_n_spans; i++)
        std::copy_n(m_spans[i].ids, m_spans[i].n, ids + m_spans[i].first);
    KS_TRY(fill_layer_rows(ids, n));
    for (uint32_t i = 0; i < m_n_spans; i++) {
        const Span& s = m_spans[i];
        const auto fill = [&](const Tensor& angles, const std::vector<double>& frequencies,
                              uint32_t last, double mscale) {
            fill_angles(host(angles) + uint64_t(s.first) * angles.cols, frequencies, s.n,
                        s.position, last, mscale);
        };
        fill(m_step.angles, m_frequencies, ~0u, m_c.rope.mscale);
        if (m_c.window)
            fill(m_step.angles_window, m_frequencies_window, ~0u, m_c.rope_window.mscale);
        if (m_step.angles_clamped)
            fill(m_step.angles_clamped, m_frequencies, s.cache->clamp_position(), m_c.rope.mscale);
        for (uint32_t t = 0; m_step.temperatures && t < s.n; t++) {
            const double periods = std::floor(double(s.position + t) / m_c.rope_original_context);
            host(m_step.temperatures)[s.first + t] =
                float(1 + m_c.temperature * std::log1p(periods));
        }
    }
    for (const Tensor* t : {&m_step.angles, &m_step.angles_window, &m_step.angles_clamped})
        if (*t) m_backend->upload(t->buffer, t->offset, host(*t), 4ull * n * t->cols);
    for (const Tensor* t : {&m_step.ids, &m_step.temperatures})
        if (*t) m_backend->upload(t->buffer, t->offset, host(*t), 4ull * n);
    return {};
}

} // namespace ks
