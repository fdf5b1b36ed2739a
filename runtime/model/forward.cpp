// The forward pass: a layer is an attention branch and an FFN branch.
#include "runtime/model/transformer.h"

#include <cmath>

namespace ks
{

Status Transformer::forward(Span* spans, uint32_t n_spans)
{
    m_spans = spans;
    m_n_spans = n_spans;
    uint32_t n = 0;
    for (uint32_t i = 0, next = 0; i < n_spans; i++) {
        spans[i].first = next;
        n = next + spans[i].n;
        next = row_of_next(next, spans[i].n);
    }
    KS_CHECK(n > 0 && n <= m_rows, "a step of %u rows in %u", n, m_rows);
    KS_TRY(fill_step(n));
    const Tensor x = first_rows(m_a.x, n);
    m_backend->embed({n, m_c.dim, m_c.embedding_scale}, x, m_w.token_embd.w,
                     shaped(m_step.ids, 1, n));
    if (m_c.layer_dim) embed_for_layers(n);
    const uint32_t n_cached = m_c.n_cached();
    uint32_t il_state = 0;
    for (uint32_t loop = 0; loop < m_c.n_loops; loop++) {
        if (loop && m_c.norms_between_loops) norm(x, x, m_w.output_norm);
        for (uint32_t il = 0; il < m_c.n_layers(); il++) {
            const LayerConfig& c = m_c.layers[il];
            const Layer layer{c, m_w.layers[il], n, il, loop * n_cached + c.il_cache, il_state};
            if (c.n_heads) attention_branch(layer);
            if (c.recurrent) recurrent_branch(layer);
            if (c.ffn_dim) ffn_branch(layer);
            if (m_c.family->layer_inputs) layer_end(layer);
            il_state += c.recurrent;
        }
    }
    return {};
}

// Makes the inputs of all layers: embeddings plus projections of the first states. Their factor
// 1 / sqrt(2) is one of layer_output.
void Transformer::embed_for_layers(uint32_t n)
{
    const uint32_t n_layers = m_c.n_layers(), dim = m_c.layer_dim;
    const Tensor x = first_rows(m_a.x, n), h = shaped(m_a.gate, n, dim), &rows = m_step.layer_rows,
                 first = layer_input(0, n), last = layer_input(n_layers, n);
    const uint32_t n_rows = uint32_t((last.offset - first.offset) / (4ull * dim));
    m_backend->embed({n_rows, dim, std::sqrt(float(dim))}, first_rows(first, n_rows),
                     {rows.buffer, rows.offset, n * n_layers, dim, m_c.layer_table.format},
                     shaped(m_step.layer_ids, 1, n_rows));
    for (uint32_t il = 0; il < n_layers; il++) {
        const Linear& w = m_w.layers[il].layer_proj;
        const MatmulTarget target{h, w.w, float(w.scale / std::sqrt(double(m_c.dim)))};
        m_backend->matmul({n, dim, m_c.dim, 0}, &target, 1, x);
        norm(h, h, m_w.layer_proj_norm);
        m_backend->add({n, dim, n}, layer_input(il, n), h);
    }
}

void Transformer::add_bias(const Tensor& y, const Tensor& bias)
{
    if (bias) m_backend->add({y.rows, y.cols, 1}, y, bias);
}

// Norms the rows of y, or the heads in them.
void Transformer::norm(const Tensor& y, const Tensor& x, const Norm& w, uint32_t first_row)
{
    const uint32_t cols = w.w.cols, rows = y.rows * (y.cols / cols);
    m_backend->norm({rows, cols, m_c.norm_eps, first_row, m_c.family->norm_kind, w.w.rows}, y, x,
                    w.w);
    add_bias(shaped(y, rows, cols), w.bias);
}

// The input of a branch: norm(x) in h, or x where the family has no such norm.
Tensor Transformer::normed(const Tensor& h, const Tensor& x, const Norm& w)
{
    if (!w.w) return x;
    norm(h, x, w);
    return h;
}

void Transformer::attention_branch(const Layer& layer)
{
    const LayerWeights& w = layer.w;
    const Tensor h = first_rows(m_a.h, layer.n);
    const Tensor in = normed(h, first_rows(m_a.x, layer.n), w.attn_norm);
    if (!layer.c.attends()) return add_branch(w.attn_output, w.attn_post_norm, in);

    const Tensor att = shaped(m_a.att, layer.n, layer.c.q_cols());
    attend(layer, in, att);
    if (w.attn_sub_norm.w) norm(att, att, w.attn_sub_norm);
    add_branch(w.attn_output, w.attn_post_norm, m_c.latent.dim ? latent_values(layer, att) : att);
}

void Transformer::attend(const Layer& layer, const Tensor& x, const Tensor& att)
{
    const LayerWeights& w = layer.w;
    const uint32_t n = layer.n, n_gates = w.attn_gate.w.rows, kv_cols = layer.c.kv_cols();
    const bool owns_kv = layer.c.owns_kv, latent = m_c.latent.dim != 0;
    const Tensor q = shaped(m_a.q, n, att.cols), k = shaped(m_a.k, owns_kv ? n : 0, kv_cols),
                 v = latent ? Tensor() : shaped(m_a.v, k.rows, kv_cols),
                 gates = shaped(m_a.gate, n, n_gates);
    const MatmulTarget of_heads{gates, w.attn_gate.w, w.attn_gate.scale};

    if (latent)
        project_latent(layer, x, q, k);
    else
        project_qkv(layer, x, q, k, v);
    if (w.attn_gate.w) m_backend->matmul({n, n_gates, m_c.dim, 0}, &of_heads, 1, x);
    if (v && m_c.family->value_norm)
        norm(v, w.attn_v.w ? v : k, {shaped(m_a.ones, 1, layer.c.head_dim), {}});
    if (!m_c.family->qk_norm_after_rope) norm_qk(w, {q}, k);
    if (m_step.temperatures) m_backend->scale({n, q.cols}, q, m_step.temperatures);
    for (uint32_t i = 0; i < m_n_spans; i++) {
        const Span& s = m_spans[i];
        const Tensor keys = rows_of(k, s), values = rows_of(v, s);
        s.cache->begin_layer(layer.il_cache, s.n, s.position);
        const Queries queries = apply_rope(layer, s, rows_of(q, s), keys, values);
        if (owns_kv) s.cache->write(keys, values);
        s.cache->attend(rows_of(att, s), queries, m_c.attention_scale, m_c.attention_softcap,
                        w.attn_sinks);
        s.cache->end_layer();
    }
    if (w.attn_gate.w) {
        add_bias(gates, w.attn_gate.bias);
        m_backend->glu({n * att.cols, act_sigmoid, att.cols / n_gates, 1, 0, 0, 0, 0}, att, gates,
                       att);
    }
}

// q, k, v = W x + bias
void Transformer::project_qkv(const Layer& layer, const Tensor& x, const Tensor& q, const Tensor& k,
                              const Tensor& v)
{
    const LayerWeights& w = layer.w;
    const MatmulTarget qkv[] = {{q, w.attn_q.w, w.attn_q.scale},
                                {k, w.attn_k.w, w.attn_k.scale},
                                {v, w.attn_v.w, w.attn_v.scale}};
    m_backend->matmul({layer.n, q.cols, m_c.dim, 0}, qkv,
                      w.attn_v.w        ? 3
                      : layer.c.owns_kv ? 2
                                        : 1,
                      x);
    add_bias(q, w.attn_q.bias);
    add_bias(k, w.attn_k.bias);
    add_bias(v, w.attn_v.bias);
}

void Transformer::norm_qk(const LayerWeights& w, std::initializer_list<Tensor> queries,
                          const Tensor& k)
{
    if (w.attn_q_norm.w)
        for (const Tensor& q : queries)
            if (q) norm(q, q, w.attn_q_norm);
    if (w.attn_k_norm.w) norm(k, k, w.attn_k_norm);
}

// A target of rope() with all heads of x. angles may be empty: then only the Hadamard transform is
// applied.
RopeTarget Transformer::rope_target(const Layer& layer, const Tensor& y, const Tensor& x,
                                    const Tensor& angles, bool hadamard) const
{
    const uint32_t n_rot = angles ? angles.cols : 0, head_dim = layer.c.head_dim;
    return {
        {x.rows, x.cols / head_dim, head_dim, n_rot, m_c.rope_pairs, 0, hadamard}, y, x, angles};
}

// Sets queries.bias: the products of queries with the key bias, which attention adds to logits when
// keys are stored without it. A product is RoPE by the query's position, then rope() by the bias
// pairs of the KV head (detach_key_bias).
void Transformer::multiply_by_key_bias(const Layer& layer, const Span& span, const Tensor& q,
                                       const Tensor& angles, const Tensor& clamped_angles,
                                       Queries& queries)
{
    const Tensor& bias = layer.w.key_bias_pairs;
    const int n_targets = queries.q_clamped ? 2 : 1;
    queries.bias = rows_of(shaped(m_a.q_bias, layer.n, q.cols), span);
    if (queries.q_clamped)
        queries.bias_clamped = rows_of(shaped(m_a.q_bias_clamped, layer.n, q.cols), span);
    const RopeTarget by_position[] = {
        rope_target(layer, queries.bias, q, angles, false),
        rope_target(layer, queries.bias_clamped, q, clamped_angles, false)};
    RopeTarget by_bias[] = {
        rope_target(layer, queries.bias, queries.bias, bias, false),
        rope_target(layer, queries.bias_clamped, queries.bias_clamped, bias, false)};
    for (RopeTarget& target : by_bias) target.a.n_groups = bias.rows;
    m_backend->rope(by_position, n_targets);
    m_backend->rope(by_bias, n_targets);
}

// Applies RoPE to queries and keys, unless attention applies it as it reads keys, and norms that
// come after it. Applies the Hadamard transform where codecs need it.
Queries Transformer::apply_rope(const Layer& layer, const Span& span, const Tensor& q,
                                const Tensor& k, const Tensor& v)
{
    const Cache& cache = *span.cache;
    const CacheLayerSpec& spec = cache.layer(layer.il_cache).spec;
    const uint32_t n = layer.n;
    const bool local = layer.c.window, rope = layer.c.rope, sees_all = rope && !local,
               norms = m_c.family->qk_norm_after_rope, hadamard = spec.hadamard_keys();
    const Tensor angles =
                     rows_of(first_rows(local ? m_step.angles_window : m_step.angles, rope), span),
                 clamped_angles = rows_of(m_step.angles_clamped, span);

    // Everything that reads q before RoPE comes first, since q itself may be rotated in place.
    Queries queries{q, {}};
    if (sees_all && m_a.q_clamped && cache.n_clamped(layer.il_cache, span.position + span.n)) {
        queries.q_clamped = rows_of(shaped(m_a.q_clamped, n, q.cols), span);
        const RopeTarget target =
            rope_target(layer, queries.q_clamped, q, clamped_angles, hadamard && !norms);
        m_backend->rope(&target, 1);
    }
    if (layer.w.key_bias_pairs)
        multiply_by_key_bias(layer, span, q, angles, clamped_angles, queries);
    if (sees_all && cache.compares_queries()) {
        queries.q_before_rope = q;
        queries.q = rows_of(shaped(m_a.q_roped, n, q.cols), span);
    }

    RopeTarget targets[3];
    int n_targets = 0;
    if (!spec.n_rope_on_read && (rope || (hadamard && !norms))) {
        targets[n_targets++] = rope_target(layer, queries.q, q, angles, hadamard && !norms);
        if (k) targets[n_targets++] = rope_target(layer, k, k, angles, hadamard && !norms);
    }
    if (v && spec.hadamard_values()) targets[n_targets++] = rope_target(layer, v, v, {}, true);
    if (n_targets) m_backend->rope(targets, n_targets);
    if (!norms) return queries;

    norm_qk(layer.w, {queries.q, queries.q_clamped}, k);
    const RopeTarget transforms[] = {
        rope_target(layer, queries.q, queries.q, {}, true), rope_target(layer, k, k, {}, true),
        rope_target(layer, queries.q_clamped, queries.q_clamped, {}, true)};
    if (hadamard) m_backend->rope(transforms, queries.q_clamped ? 3 : 2);
    return queries;
}

// A layer without an FFN norm is parallel: its FFN reads what attention has read.
void Transformer::ffn_branch(const Layer& layer)
{
    const LayerWeights& w = layer.w;
    const Tensor x = first_rows(m_a.x, layer.n), h = first_rows(m_a.h, layer.n);
    const bool parallel = w.attn_norm.w && !w.ffn_norm.w;
    if (w.experts_norm.w) return experts_beside_ffn(layer);
    const Tensor in = parallel ? h : normed(h, x, w.ffn_norm);
    if (layer.c.experts) return experts_branch(layer, in);
    const Tensor values = ffn_values(layer, w.ffn_gate, w.ffn_up, in);
    if (w.ffn_sub_norm.w) norm(values, values, w.ffn_sub_norm);
    add_branch(w.ffn_down, w.ffn_post_norm, values);
}

// What the last matrix of a dense FFN or of the shared expert reads.
Tensor Transformer::ffn_values(const Layer& layer, const Linear& w_gate, const Linear& w_up,
                               const Tensor& in)
{
    const uint32_t n = layer.n, cols = w_up.w.rows;
    const float* xielu = layer.c.xielu;
    const bool gated = m_c.family->gated;
    const Tensor gate = shaped(m_a.gate, n, cols), up = gated ? shaped(m_a.up, n, cols) : Tensor();
    const MatmulTarget targets[] = {{gate, w_gate.w, w_gate.scale},
                                    {gated ? up : gate, w_up.w, w_up.scale}};
    m_backend->matmul({n, cols, m_c.dim, 0}, targets + !gated, 1 + gated, in);
    add_bias(gate, gated ? w_gate.bias : w_up.bias);
    if (gated) add_bias(up, w_up.bias);
    m_backend->glu({n * cols, m_c.activation, 1, gated, xielu[0], xielu[1], xielu[2], xielu[3]},
                   gate, gate, up);
    return gate;
}

// Adds the branch that reads the layer's inputs, and scales the layer's result.
void Transformer::layer_end(const Layer& layer)
{
    const LayerWeights& w = layer.w;
    const uint32_t n = layer.n, dim = m_c.layer_dim;
    const Tensor x = first_rows(m_a.x, n), gate = shaped(m_a.gate, n, dim);
    if (dim) {
        const MatmulTarget target{gate, w.layer_gate.w, w.layer_gate.scale};
        m_backend->matmul({n, dim, m_c.dim, 0}, &target, 1, x);
        add_bias(gate, w.layer_gate.bias);
        m_backend->glu({n * dim, m_c.activation, 1, 1, 0, 0, 0, 0}, gate, gate,
                       layer_input(layer.il, n));
        Linear output = w.layer_output;
        output.scale *= float(std::sqrt(0.5));
        add_branch(output, w.layer_post_norm, gate);
    }
    if (w.layer_scale == 1) return;
    Tensor scales = shaped(m_a.layer_scales, 1, n);
    scales.offset += 4ull * layer.il * m_a.layer_scales.cols;
    m_backend->scale({n, m_c.dim}, x, scales);
}

// x += W in. With post norms, x += norm(W in).
void Transformer::add_branch(const Linear& w, const Norm& post_norm, const Tensor& in)
{
    const uint32_t n = in.rows;
    const bool normed = bool(post_norm.w);
    const MatmulTarget target{first_rows(normed ? m_a.h : m_a.x, n), w.w,
                              w.scale * m_c.residual_scale};
    m_backend->matmul({n, w.w.rows, w.w.cols, normed ? 0u : 1u}, &target, 1, in);
    add_bias(target.y, w.bias);
    if (normed) add_normed(post_norm, target.y);
}

// x += norm(h), in place of h.
void Transformer::add_normed(const Norm& post_norm, const Tensor& h)
{
    norm(h, h, post_norm);
    m_backend->add({h.rows, m_c.dim, h.rows}, first_rows(m_a.x, h.rows), h);
}

void Transformer::logits(uint32_t first, uint32_t n)
{
    KS_CHECK(n > 0 && n <= m_a.logits.rows && first + n <= m_rows, "logits of %u tokens from %u", n,
             first);
    const Tensor h = first_rows(m_a.h, n), y = first_rows(m_a.logits, n);
    norm(h, m_a.x, m_w.output_norm, first);
    const MatmulTarget target{y, m_w.output.w, m_w.output.scale * m_c.logit_scale};
    m_backend->matmul({n, m_c.n_vocab, m_c.dim, 0}, &target, 1, h);
    add_bias(y, m_w.output.bias);
    if (m_c.final_softcap != 0) m_backend->softcap({n * m_c.n_vocab, m_c.final_softcap}, y);
}

} // namespace ks
