#include "runtime/model/model.h"

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

void Activations::place(const Config& c, const Recipe& recipe, uint32_t chunk, Placer& p)
{
    x = p.take(chunk, c.dim);
    h = p.take(chunk, c.dim);
    q = p.take(chunk, c.n_heads * c.head_dim);
    q_roped = p.take(recipe.compares_queries() ? chunk : 0, c.n_heads * c.head_dim);
    q_clamped = p.take(pins(recipe) ? chunk : 0, c.n_heads * c.head_dim);
    q_bias = p.take(leaves_bias_out(c.model_shape(), recipe) ? chunk : 0, c.n_heads * c.head_dim);
    q_bias_clamped = p.take(leaves_bias_out(c.model_shape(), recipe) && pins(recipe) ? chunk : 0,
                            c.n_heads * c.head_dim);
    k = p.take(chunk, c.n_kv_heads * c.head_dim);
    v = p.take(chunk, c.n_kv_heads * c.head_dim);
    att = p.take(chunk, c.n_heads * c.head_dim);
    gate = p.take(chunk, c.ffn_dim);
    up = p.take(chunk, c.ffn_dim);
    logits = p.take(kLogitRows, c.n_vocab);
}

void StepInputs::place(const Config& c, const Recipe& recipe, uint32_t chunk, Placer& p)
{
    ids = p.take(1, chunk);
    angles = p.take(chunk, c.n_rot);
    angles_window = p.take(c.window ? chunk : 0, c.n_rot);
    angles_clamped = p.take(pins(recipe) ? chunk : 0, c.n_rot);
}

ScratchShape scratch_shape(const Config& c, const Recipe& recipe, uint32_t n_slots, uint32_t chunk)
{
    ScratchShape shape = cache_scratch(c.model_shape(), recipe, n_slots);
    shape.n_tokens = std::max(chunk, kLogitRows);
    shape.max_cols = std::max({c.dim, c.ffn_dim, c.n_heads * c.head_dim});
    return shape;
}

void Model::open(const Config& config, Weights weights, Cache cache, Backend& backend,
                 const Activations& activations, const StepInputs& step, uint8_t* step_host,
                 uint32_t chunk, uint32_t context)
{
    m_c = config;
    m_w = std::move(weights);
    m_cache = std::move(cache);
    m_backend = &backend;
    m_a = activations;
    m_step = step;
    m_step_host = step_host;
    m_chunk = chunk;
    bool beyond = context > m_c.rope_original_context && !m_w.rope_divisors_long.empty();
    m_frequencies = rope_frequencies(m_c, beyond ? m_w.rope_divisors_long : m_w.rope_divisors);
    m_frequencies_window = rope_frequencies_window(m_c);
    if (m_cache.rope_table()) fill_rope_table();
    if (m_cache.phasors()) detach_key_bias();
}

// Fills the phasors, and converts each bias (b, b') of a RoPE pair to the angles (b, -b') for the
// op rope. rope maps a query (u, v) to (u b + v b', v b - u b'), the factors of the cosine and the
// sine of a position.
void Model::detach_key_bias()
{
    const Tensor& phasors = m_cache.phasors();
    const uint32_t half = m_c.n_rot / 2;
    std::vector<float> row(m_c.n_rot), bias(m_c.n_kv_heads * m_c.head_dim),
        pairs(m_c.n_kv_heads * m_c.n_rot);
    for (uint32_t r = 0; r < phasors.rows; r++) {
        const double position = std::pow(double(phasor_base), r / phasor_base) * (r % phasor_base),
                     scale = r < phasor_base ? m_c.rope_mscale : 1;
        for (uint32_t i = 0; i < half; i++) {
            row[i] = float(std::cos(position * m_frequencies[i]) * scale);
            row[half + i] = float(std::sin(position * m_frequencies[i]) * scale);
        }
        m_backend->upload(phasors.buffer, phasors.offset + 4ull * r * m_c.n_rot, row.data(),
                          4ull * m_c.n_rot);
    }
    for (uint32_t il = 0; il < m_c.n_layers; il++) {
        LayerWeights& w = m_w.layers[il];
        if (!m_cache.layer(il).spec.n_bias_dims || !w.attn_k_bias) continue;
        m_backend->download(bias.data(), w.attn_k_bias.buffer, w.attn_k_bias.offset,
                            4ull * bias.size());
        for (uint32_t h = 0; h < m_c.n_kv_heads; h++) {
            const float* b = &bias[h * m_c.head_dim];
            for (uint32_t i = 0; i < half; i++) {
                pairs[h * m_c.n_rot + 2 * i] = b[phasor_dim(i, m_c.n_rot, m_c.family->rope_pairs)];
                pairs[h * m_c.n_rot + 2 * i + 1] =
                    -b[phasor_dim(half + i, m_c.n_rot, m_c.family->rope_pairs)];
            }
        }
        w.key_bias_pairs = {w.attn_k_bias.buffer, w.attn_k_bias.offset, m_c.n_kv_heads, m_c.n_rot,
                            Format::f32};
        w.attn_k_bias = {};
        m_backend->upload(w.key_bias_pairs.buffer, w.key_bias_pairs.offset, pairs.data(),
                          4ull * pairs.size());
    }
}

// The rows of a buffer that this chunk uses.
static Tensor first_rows(Tensor t, uint32_t n)
{
    t.rows = n;
    return t;
}

static Tensor first_cols(Tensor t, uint32_t n)
{
    t.cols = n;
    return t;
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

void Model::fill_rope_table()
{
    const Tensor& rope_table = m_cache.rope_table();
    std::vector<float> row(rope_table.cols);
    for (uint32_t r = 0; r < rope_table.rows; r++) {
        fill_angles(row.data(), m_frequencies, 1, r, ~0u, m_c.rope_mscale);
        m_backend->upload(rope_table.buffer, rope_table.offset + 4ull * r * rope_table.cols,
                          row.data(), 4ull * rope_table.cols);
    }
}

void Model::fill_step(const uint32_t* ids, uint32_t n, uint32_t position)
{
    auto host = [&](const Tensor& t) {
        return reinterpret_cast<float*>(m_step_host + (t.offset - m_step.ids.offset));
    };
    fill_angles(host(m_step.angles), m_frequencies, n, position, ~0u, m_c.rope_mscale);
    if (m_c.window)
        fill_angles(host(m_step.angles_window), m_frequencies_window, n, position, ~0u,
                    m_c.rope_mscale);
    if (m_step.angles_clamped)
        fill_angles(host(m_step.angles_clamped), m_frequencies, n, position,
                    m_cache.clamp_position(), m_c.rope_mscale);
    m_backend->upload(m_step.ids.buffer, m_step.ids.offset, ids, 4ull * n);
    for (const Tensor* t : {&m_step.angles, &m_step.angles_window, &m_step.angles_clamped})
        if (*t) m_backend->upload(t->buffer, t->offset, host(*t), 4ull * n * m_c.n_rot);
}

void Model::forward(const uint32_t* ids, uint32_t n, uint32_t position)
{
    KS_CHECK(n > 0 && n <= m_chunk, "%u tokens in a chunk of %u", n, m_chunk);
    m_position = position;
    fill_step(ids, n, position);
    EmbedArgs a{n, m_c.dim, m_c.family->scale_embedding ? std::sqrt(float(m_c.dim)) : 1.f};
    m_backend->embed(a, first_rows(m_a.x, n), m_w.token_embd, first_cols(m_step.ids, n));
    for (uint32_t il = 0; il < m_c.n_layers; il++) {
        m_cache.begin_layer(il, n, position);
        attention_branch(m_w.layers[il], il, n);
        m_cache.end_layer();
        ffn_branch(m_w.layers[il], n);
    }
}

void Model::attention_branch(const LayerWeights& w, uint32_t il, uint32_t n)
{
    Backend& b = *m_backend;
    Tensor x = first_rows(m_a.x, n), h = first_rows(m_a.h, n), att = first_rows(m_a.att, n);
    Tensor q = first_rows(m_a.q, n), k = first_rows(m_a.k, n), v = first_rows(m_a.v, n);

    b.norm({n, m_c.dim, m_c.norm_eps, 0, norm_rms, 1}, h, x, w.attn_norm);
    MatmulTarget qkv[] = {{q, w.attn_q}, {k, w.attn_k}, {v, w.attn_v}};
    b.matmul({n, w.attn_q.rows, m_c.dim, 0}, qkv, 3, h);
    if (w.attn_q_bias) b.add({n, q.cols, 1}, q, w.attn_q_bias);
    if (w.attn_k_bias) b.add({n, k.cols, 1}, k, w.attn_k_bias);
    if (w.attn_v_bias) b.add({n, v.cols, 1}, v, w.attn_v_bias);
    if (w.attn_q_norm)
        b.norm({n * m_c.n_heads, m_c.head_dim, m_c.norm_eps, 0, norm_rms, 1}, q, q, w.attn_q_norm);
    if (w.attn_k_norm)
        b.norm({n * m_c.n_kv_heads, m_c.head_dim, m_c.norm_eps, 0, norm_rms, 1}, k, k,
               w.attn_k_norm);
    const Queries queries = apply_rope(q, k, v, il);
    m_cache.write(k, v);
    m_cache.attend(att, queries, m_c.attention_scale);
    add_branch(w.attn_post_norm, w.attn_output, att, n);
}

// A target of rope() with all heads of x. angles may be empty: then only the Hadamard transform is
// applied.
RopeTarget Model::rope_target(const Tensor& y, const Tensor& x, const Tensor& angles,
                              bool hadamard) const
{
    const uint32_t n_rot = angles ? m_c.n_rot : 0;
    return {
        {x.rows, x.cols / m_c.head_dim, m_c.head_dim, n_rot, m_c.family->rope_pairs, 0, hadamard},
        y,
        x,
        angles};
}

// Sets queries.bias: the products of queries with the key bias, which attention adds to logits when
// keys are stored without it. A product is RoPE by the query's position, then rope() by the bias
// pairs of the KV head (detach_key_bias).
void Model::multiply_by_key_bias(const Tensor& bias, const Tensor& q, const Tensor& angles,
                                 const Tensor& clamped_angles, Queries& queries)
{
    const int n_targets = queries.q_clamped ? 2 : 1;
    queries.bias = first_rows(m_a.q_bias, q.rows);
    if (queries.q_clamped) queries.bias_clamped = first_rows(m_a.q_bias_clamped, q.rows);
    const RopeTarget by_position[] = {rope_target(queries.bias, q, angles, false),
                                      rope_target(queries.bias_clamped, q, clamped_angles, false)};
    RopeTarget by_bias[] = {rope_target(queries.bias, queries.bias, bias, false),
                            rope_target(queries.bias_clamped, queries.bias_clamped, bias, false)};
    for (RopeTarget& target : by_bias) target.a.n_groups = m_c.n_kv_heads;
    m_backend->rope(by_position, n_targets);
    m_backend->rope(by_bias, n_targets);
}

// Applies RoPE to queries and keys, unless attention applies it as it reads keys. Applies the
// Hadamard transform where codecs need it.
Queries Model::apply_rope(const Tensor& q, const Tensor& k, const Tensor& v, uint32_t il)
{
    const CacheLayerSpec& spec = m_cache.layer(il).spec;
    const uint32_t n = q.rows;
    const bool local = m_c.is_window_layer(il), hadamard = spec.hadamard_keys();
    const Tensor angles = first_rows(local ? m_step.angles_window : m_step.angles, n),
                 clamped_angles = first_rows(m_step.angles_clamped, n);

    // Everything that reads q before RoPE comes first, since q itself may be rotated in place.
    Queries queries{q, {}};
    if (!local && m_a.q_clamped && m_cache.n_clamped(il, m_position + n)) {
        queries.q_clamped = first_rows(m_a.q_clamped, n);
        const RopeTarget target = rope_target(queries.q_clamped, q, clamped_angles, hadamard);
        m_backend->rope(&target, 1);
    }
    if (const Tensor& bias = m_w.layers[il].key_bias_pairs)
        multiply_by_key_bias(bias, q, angles, clamped_angles, queries);
    if (!local && m_cache.compares_queries()) {
        queries.q_before_rope = q;
        queries.q = first_rows(m_a.q_roped, n);
    }

    RopeTarget targets[3];
    int n_targets = 0;
    if (!spec.n_rope_on_read) {
        targets[n_targets++] = rope_target(queries.q, q, angles, hadamard);
        targets[n_targets++] = rope_target(k, k, angles, hadamard);
    }
    if (spec.hadamard_values()) targets[n_targets++] = rope_target(v, v, {}, true);
    if (n_targets) m_backend->rope(targets, n_targets);
    return queries;
}

void Model::ffn_branch(const LayerWeights& w, uint32_t n)
{
    Backend& b = *m_backend;
    Tensor x = first_rows(m_a.x, n), h = first_rows(m_a.h, n), gate = first_rows(m_a.gate, n),
           up = first_rows(m_a.up, n);

    b.norm({n, m_c.dim, m_c.norm_eps, 0, norm_rms, 1}, h, x, w.ffn_norm);
    MatmulTarget gate_up[] = {{gate, w.ffn_gate}, {up, w.ffn_up}};
    b.matmul({n, m_c.ffn_dim, m_c.dim, 0}, gate_up, 2, h);
    b.glu({n * m_c.ffn_dim, m_c.family->activation, 1, 1, 0, 0, 0, 0}, gate, gate, up);
    add_branch(w.ffn_post_norm, w.ffn_down, gate, n);
}

// x += W in. With post norms, x += norm(W in).
void Model::add_branch(const Tensor& post_norm, const Tensor& w, const Tensor& in, uint32_t n)
{
    Backend& b = *m_backend;
    Tensor x = first_rows(m_a.x, n), h = first_rows(m_a.h, n);
    MatmulTarget target{post_norm ? h : x, w};
    b.matmul({n, w.rows, w.cols, post_norm ? 0u : 1u}, &target, 1, in);
    if (!post_norm) return;
    b.norm({n, m_c.dim, m_c.norm_eps, 0, norm_rms, 1}, h, h, post_norm);
    b.add({n, m_c.dim, n}, x, h);
}

void Model::logits(uint32_t first, uint32_t n)
{
    KS_CHECK(n > 0 && n <= kLogitRows && first + n <= m_chunk, "logits of %u tokens from %u", n,
             first);
    Tensor h = first_rows(m_a.h, n);
    m_backend->norm({n, m_c.dim, m_c.norm_eps, first, norm_rms, 1}, h, m_a.x, m_w.output_norm);
    MatmulTarget target{first_rows(m_a.logits, n), m_w.output};
    m_backend->matmul({n, m_c.n_vocab, m_c.dim, 0}, &target, 1, h);
    if (m_c.final_softcap != 0) m_backend->softcap({n * m_c.n_vocab, m_c.final_softcap}, target.y);
}

} // namespace ks
