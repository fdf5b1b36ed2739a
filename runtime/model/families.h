// The model families: a row of flags each. Families differ in nothing else.
#pragma once

#include "kernels/common/args.h"

#include <cstdint>
#include <string_view>

namespace ks
{

// Where a layer has norms: on the input of a branch, on its output, or on both. In a parallel layer
// both branches read one norm.
enum class Norms { before, after, both, parallel };

// Norms of queries and keys: none, one per head, one over all heads of a token, or LayerNorms with
// weights for each head, which files may lack.
enum class QkNorm { none, head, row, layer_norms };

// Sigmoids that multiply the output of attention: one per head, one per value, or one per value
// whose rows of attn_q follow those of the head's query.
enum class AttentionGates { none, by_head, by_value, in_queries };

// The layers that rotate queries and keys. Without window layers, `windows` are all.
enum class RopeLayers { all, windows, not_every_fourth, none };

// What recurrent layers do: a gated short convolution, the gated delta rule, or Mamba 2.
enum class Recurrent { none, conv, delta, mamba2 };

// Which layers are recurrent: by the file's interval or array, those without KV heads, or all,
// beside attention.
enum class RecurrentLayers { by_interval, without_kv_heads, all };

// Whether the weights of the chosen experts are divided by their sum.
enum class ExpertNorm { always, never, key };

// What the key logit_scale means. Such families need it.
enum class LogitScale { none, factor, divisor };

struct Family {
    const char* name = "";   // general.architecture
    uint32_t rope_pairs = 0; // rope_interleaved or rope_neox

    uint32_t activation = act_silu;
    bool gated = true;          // the FFN has a gate
    bool fused_gate_up = false; // ffn_up holds the gate's rows, then its own
    Norms norms = Norms::before;
    uint32_t norm_kind = norm_rms;
    bool sub_norms = false; // attn_sub_norm and ffn_sub_norm, before a branch's last matrix
    const char* ffn_norm = "ffn_norm"; // the name of the norm before the FFN
    bool optional_ffn_norm = false;    // files without it are parallel
    QkNorm qk_norm = QkNorm::none;
    bool optional_qk_norm = false; // files may lack these norms
    bool qk_norm_after_rope = false;
    // Values are normed without weights. Without attn_v they are the keys as projected.
    bool value_norm = false;
    bool shared_kv = false;    // attention.shared_kv_layers: the last layers store no keys
    bool layer_inputs = false; // embeddings for each layer, and layer_output_scale
    AttentionGates attention_gates = AttentionGates::none;
    bool scaled_embedding = false; // by sqrt(dim)
    bool partial_layers = false;   // layers may lack heads, KV heads or the FFN
    bool one_branch = false;       // a layer is an FFN, recurrent, or attention
    bool loops = false;            // num_loops: the layers run several times
    bool sinks = false;            // attn_sinks: a logit of each head beside its keys'
    const char* output_norm = "output_norm";

    // Attention over a latent of each token (MLA): keys and values of all heads are products of it.
    bool latent = false;

    Recurrent recurrent = Recurrent::none;
    RecurrentLayers recurrent_layers = RecurrentLayers::without_kv_heads;

    bool experts = false;            // FFNs may be mixtures of experts
    uint32_t gating = route_softmax; // how experts are chosen, where the file has no key
    uint32_t sigmoid_vocab = 0; // a vocabulary whose models have route_sigmoid instead; 0: none
    ExpertNorm expert_norm = ExpertNorm::always;
    bool gated_shared = false;       // a sigmoid multiplies the shared expert's output
    bool experts_beside_ffn = false; // layers add experts and a dense FFN, each with its norms

    uint32_t window_period =
        0;               // layer il is a window layer if il % period < period - 1; 0: none is
    uint32_t window = 0; // tokens, where the file has no key
    uint32_t window_layers = 0;   // only a model of so many layers has windows; 0: any
    double window_rope_base = 0;  // 0: that of the other layers
    bool window_unscaled = false; // window layers ignore RoPE scaling
    RopeLayers rope_layers = RopeLayers::all;
    bool rope_optional = false;    // rope.scaling.finetuned = false: no layer rotates
    bool rope_by_sections = false; // rope.dimension_sections turn the pairs into rope_neox
    bool yarn_betas = false;       // the file's yarn_beta_fast and yarn_beta_slow count

    LogitScale logit_scale = LogitScale::none;
    bool minicpm_scales = false;  // a file without scales has MiniCPM's
    float softcap = 0;            // of logits, where the file has no key
    float attention_softcap = 0;  // likewise; 0: the family has none
    float attention_scale = 0;    // 0: by the size of a head
    uint32_t scaled_by_width = 0; // so many layers: the attention scale is by dim / n_heads
};

const Family* find_family(std::string_view name); // null: unknown
uint32_t count_families();
// What this build lacks for a known family, such as "mixtures of experts"; null: unknown.
const char* missing_feature(std::string_view name);

} // namespace ks
