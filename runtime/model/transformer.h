// The forward pass, written once for all model families and backends. A layer is a dozen op calls.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/kv/cache.h"
#include "runtime/kv/recurrent.h"
#include "runtime/model/config.h"
#include "runtime/model/layer_rows.h"
#include "runtime/model/weights.h"

#include <algorithm>
#include <vector>

namespace ks
{

// Tokens whose logits are computed in one call: of a text alone, and of many texts.
constexpr uint32_t kLogitRows = 4, kMostLogitRows = 8;

// Consecutive tokens of one text that a step reads.
struct Span {
    Cache* cache;
    RecurrentState* state;
    const uint32_t* ids; // (n)
    uint32_t n, position;
    uint32_t first = 0; // its first row in the activations, which forward() sets
};

// The rows of a buffer that this step uses.
inline Tensor first_rows(Tensor t, uint32_t n)
{
    t.rows = n;
    return t;
}

// The rows of a span.
inline Tensor rows_of(Tensor t, const Span& span)
{
    t.offset += 4ull * span.first * t.cols;
    t.rows = t.rows ? span.n : 0;
    return t;
}

// Rows of the activations in which n_sessions texts can read a token, and one of them a chunk.
uint32_t step_rows(const Config& c, const Backend& backend, uint32_t chunk, uint32_t n_sessions);

// Rows whose logits one call computes in a model with n_sessions.
constexpr uint32_t logit_rows(uint32_t n_sessions)
{
    return std::clamp(n_sessions, kLogitRows, kMostLogitRows);
}

// The buffers of a forward pass over one step, allocated once. `chunk` stands for its rows. A
// recurrent branch uses q, k, v, att, gate and up for what it has in their place
// (forward_state.cpp).
struct Activations {
    Tensor x;              // (chunk, dim), the residual stream
    Tensor h;              // (chunk, dim), normed input or output of a branch
    Tensor q;              // (chunk, n_heads * head_dim) of the largest layer, like the following
    Tensor q_roped;        // like q, after RoPE; only if queries before RoPE are compared
    Tensor q_clamped;      // like q, at the clamped position; only if slots are pinned
    Tensor q_bias;         // like q; only if keys are stored without their bias
    Tensor q_bias_clamped; // like q_bias; only if, in addition, slots are pinned
    Tensor k;              // (chunk, n_kv_heads * head_dim)
    Tensor v;              // (chunk, n_kv_heads * head_dim)
    Tensor att;            // (chunk, n_heads * head_dim)
    Tensor gate;           // (chunk, ffn_dim); also gates of attention, or values for one layer
    Tensor up;             // (chunk, ffn_dim)
    Tensor expert_logits;  // (chunk, experts); later the gates of the shared expert (chunk, 1)
    Tensor expert_ids;     // (chunk, experts of a token) u32
    Tensor expert_weights; // (chunk, experts of a token)
    Tensor expert_gate;    // (chunk * experts of a token, dim of an expert)
    Tensor expert_up;      // like expert_gate
    Tensor expert_out;     // (chunk * experts of a token, dim)
    Tensor logits;         // (n_logits, n_vocab)
    Tensor layer_inputs;   // (chunk, layer_dim) for each layer, one after the other
    Tensor layer_scales;   // (n_layers, chunk): the scale of a layer, for each token
    Tensor ones;           // (1, head_dim): the weights of a norm without weights
    Tensor head_ids;       // (chunk, n_heads) u32: 0, 1, ...; only of latent attention

    void place(const Config& c, const Recipe& recipe, uint32_t chunk, Placer& p,
               uint32_t n_logits = kLogitRows);
};

// Inputs of a step, in one block that is uploaded once per step.
struct StepInputs {
    Tensor ids;            // (1, chunk) u32
    Tensor angles;         // (chunk, n_rot): (cos, sin) per pair
    Tensor angles_window;  // (chunk, n_rot) of window layers
    Tensor angles_clamped; // (chunk, n_rot), at the clamped position; only if slots are pinned
    Tensor temperatures;   // (1, chunk): factors of the queries; only if they depend on positions
    Tensor layer_rows;     // words: tiles of (chunk * n_layers, layer_dim)
    Tensor layer_ids;      // (1, n_layers * chunk) u32: the row of each of layer_inputs

    void place(const Config& c, const Recipe& recipe, uint32_t chunk, Placer& p);
};

RecurrentShape recurrent_shape(const Config& c);
// n_slots: as for cache_specs().
ScratchShape scratch_shape(const Config& c, const Recipe& recipe, uint32_t n_slots, uint32_t chunk);

class Transformer
{
public:
    Transformer() = default;
    // `step_host` is the host copy of the step inputs, with the layout of StepInputs::place().
    // cache: of any text; its tables are filled for all of them. rows: of the activations.
    void open(const Config& config, Weights weights, const Cache& cache, Backend& backend,
              const Activations& activations, const StepInputs& step, uint8_t* step_host,
              uint32_t rows, uint32_t context);
    void set_layer_rows(LayerRows rows) { m_layer_rows = std::move(rows); }

    // Memory for a climb between two steps. staging: host memory of CacheBytes::plane.
    ClimbScratch climb_scratch(uint8_t* staging) const;

    // Reads the tokens of spans of different texts. Their final states stay in x, a row each. An
    // error, of a file that has rows of tokens, comes before anything changes.
    Status forward(Span* spans, uint32_t n_spans);
    // The first row of the span that follows one of n tokens at row `first`.
    uint32_t row_of_next(uint32_t first, uint32_t n) const
    {
        return first + uint32_t(align_up(n, m_row_step));
    }
    uint32_t rows() const { return m_rows; }
    // Computes logits of rows [first, first + n) of the last step into the first of the rows of
    // logits_tensor().
    void logits(uint32_t first, uint32_t n);
    const Tensor& logits_tensor() const { return m_a.logits; }

private:
    // A layer in a step of n rows. The state counts only recurrent layers.
    struct Layer {
        const LayerConfig& c;
        const LayerWeights& w;
        uint32_t n;
        uint32_t il;
        uint32_t il_cache, il_state;
    };
    void detach_key_bias(const Cache& cache);
    void detach_key_bias(LayerWeights& w, uint32_t head_dim);
    void fill_rope_table(const Tensor& rope_table);
    void fill_layers();
    Status fill_step(uint32_t n);
    Status fill_layer_rows(const uint32_t* ids, uint32_t n);
    Tensor layer_input(uint32_t il, uint32_t n) const;
    void embed_for_layers(uint32_t n);
    void add_bias(const Tensor& y, const Tensor& bias);
    void norm(const Tensor& y, const Tensor& x, const Norm& w, uint32_t first_row = 0);
    Tensor normed(const Tensor& h, const Tensor& x, const Norm& w);
    void attention_branch(const Layer& layer);
    void attend(const Layer& layer, const Tensor& x, const Tensor& att);
    void project_qkv(const Layer& layer, const Tensor& x, const Tensor& q, const Tensor& k,
                     const Tensor& v);
    void project_latent(const Layer& layer, const Tensor& x, const Tensor& q, const Tensor& k);
    Tensor latent_values(const Layer& layer, const Tensor& att);
    void multiply_heads(const Layer& layer, const Tensor& y, const ExpertsLinear& w,
                        const Tensor& x);
    void copy_cols(const Tensor& y, uint32_t y_first, const Tensor& x, uint32_t x_first,
                   uint32_t cols);
    void norm_qk(const LayerWeights& w, std::initializer_list<Tensor> queries, const Tensor& k);
    RopeTarget rope_target(const Layer& layer, const Tensor& y, const Tensor& x,
                           const Tensor& angles, bool hadamard) const;
    void multiply_by_key_bias(const Layer& layer, const Span& span, const Tensor& q,
                              const Tensor& angles, const Tensor& clamped_angles, Queries& queries);
    Queries apply_rope(const Layer& layer, const Span& span, const Tensor& q, const Tensor& k,
                       const Tensor& v);
    void recurrent_branch(const Layer& layer);
    Tensor short_conv(const Layer& layer, const Tensor& x);
    Tensor scan(const Layer& layer, const Tensor& x);
    void convolve(const Layer& layer, const Tensor& y, const Tensor& x);
    void ffn_branch(const Layer& layer);
    void experts_branch(const Layer& layer, const Tensor& in);
    void experts_beside_ffn(const Layer& layer);
    Tensor ffn_values(const Layer& layer, const Linear& w_gate, const Linear& w_up,
                      const Tensor& in);
    void route(const Layer& layer, const Tensor& in);
    void run_experts(const Layer& layer, const Tensor& in);
    void shared_expert(const Layer& layer, const Tensor& in);
    void add_normed(const Norm& post_norm, const Tensor& h);
    void layer_end(const Layer& layer);
    void add_branch(const Linear& w, const Norm& post_norm, const Tensor& in);

    Config m_c;
    Weights m_w;
    Backend* m_backend = nullptr;
    Activations m_a;
    StepInputs m_step;
    uint8_t* m_step_host = nullptr;
    LayerRows m_layer_rows;
    uint32_t m_rows = 0;
    uint32_t m_row_step = 1;       // the first row of a span is a multiple of it
    const Span* m_spans = nullptr; // of the step in flight
    uint32_t m_n_spans = 0;
    std::vector<double> m_frequencies, m_frequencies_window; // radians per position, one per pair
};

} // namespace ks
