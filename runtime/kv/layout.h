// What the cache of each layer holds: slots and their codecs, device tensors and host arrays, in
// bytes.
#pragma once

#include "kernels/common/codecs.h"
#include "runtime/base/backend.h"
#include "runtime/base/placer.h"
#include "runtime/kv/policies/subgen.h"
#include "runtime/kv/recipe.h"

#include <vector>

namespace ks
{

constexpr uint32_t kLeastSlots = 2;   // per head: one that is recent and one that is chosen
constexpr uint32_t kNoPosition = ~0u; // of an estimator's slots

// What a cache needs to know of a model.
struct ModelShape {
    uint32_t n_layers = 0;
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t n_rot = 0;            // values of a head that RoPE rotates
    uint32_t rope_pairs = 0;       // rope_interleaved or rope_neox
    uint32_t window = 0;           // tokens; 0: no layer has one
    uint32_t window_period = 6;    // layer il is a window layer if il % period < period - 1
    bool key_bias = false;         // keys have a bias, which codes leave out
    bool wide_normed_keys = false; // keys bear few bits badly

    bool is_window_layer(uint32_t il) const
    {
        return window != 0 && il % window_period < window_period - 1;
    }
    bool can_code() const
    {
        return head_dim % 16 == 0 && head_dim <= codec_max_dim;
    } // codecs take heads of such sizes
};

// Four number spaces: a position counts tokens of the text; an index counts the tokens of one head
// in the order of the text; a slot counts places over all heads and both pools, the plain pool
// first; a row counts places in one tensor.
struct CacheLayerSpec {
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_slots;      // per KV head
    uint32_t n_pinned = 0; // leading tokens that stay
    uint32_t window = 0;   // tokens visible beside the pinned; 0: all that are held
    bool table = false;
    bool bounded =
        false; // what it forgets counts as evicted; a window layer only forgets what nobody sees
    bool local = false;   // the window is the model's: nothing is pinned
    uint32_t n_read = 0;  // slots that a step reads, where it does not read all
    uint32_t n_coded = 0; // slots per KV head in the coded pool, for tokens that are neither among
                          // the first nor the last
    Format k = Format::f16; // of the coded pool; plain slots are f16, or f32 if it is
    Format v = Format::f16;
    uint32_t n_wave =
        0; // keys are stored without the model's bias, whose waves have so many values; 0: with it
    uint32_t n_rope_on_read =
        0;              // keys are stored as before RoPE, which rotates so many values; 0: after it
    uint32_t pairs = 0; // rope_interleaved or rope_neox

    uint32_t n_plain() const { return n_slots - n_coded; } // slots per KV head in the plain pool
    bool hadamard_keys() const
    {
        return n_coded && codec_info(k).hadamard;
    } // all of the layer's, and its queries
    bool hadamard_values() const { return n_coded && codec_info(v).hadamard; }
    // Keys of so many consecutive indexes are coded together, in consecutive rows.
    uint32_t group() const { return n_coded ? codec_info(k).group : 1; }
    // Slots are coded but for the first tokens, the last ones, those to come and those that a group
    // waits for.
    void code_slots(const Recipe& r, Format keys, Format values);
    // Slots that a decision leaves free for the tokens after it. decodes: they come one by one.
    uint32_t slack(const Recipe& r, bool decodes) const;
    // Slots of a SubGen estimator; 0: the policy has none, or the layer has too few slots for one.
    uint32_t estimator_slots(const Recipe& r) const;
    SubgenShape estimator_shape(const Recipe& r, uint32_t il, uint32_t head) const;
    uint64_t estimator_bytes(const Recipe& r) const; // of one head
};

struct CacheLayer {
    CacheLayerSpec spec;
    Recipe recipe; // or what it comes to in this layer
    KvSlots kv;
    Tensor scores; // (1, n_kv_heads * n_slots) f32, by slot: attention scores
    Selection selection;
    bool must_reselect = true; // indexes are not what they were at the last choice
    // The host's side of a table. A head's part begins at begin[head]; in it the first held[head]
    // of capacity[head] are in use.
    uint32_t* begin = nullptr;    // (n_kv_heads)
    uint32_t* held = nullptr;     // (n_kv_heads)
    uint32_t* capacity = nullptr; // (n_kv_heads)
    uint32_t* coded = nullptr; // (n_kv_heads) of the held, those in the coded pool; they follow on
                               // the plain first ones
    uint32_t* slots =
        nullptr; // (n_kv_heads * n_slots) by index: the held, then free ones, plain before coded
    uint32_t* positions = nullptr; // (n_kv_heads * n_slots) by index
    uint32_t* counts =
        nullptr; // (n_kv_heads * n_slots) by slot: tokens that it stands for; where victims merge
    float* weights = nullptr; // (n_kv_heads * n_slots, 2) by slot, the host's copy of kv.weights
    uint8_t* estimators = nullptr; // a Subgen per head

    uint32_t first_coded() const
    {
        return spec.n_kv_heads * spec.n_plain();
    } // the first slot of the coded pool
    bool in_coded_pool(uint32_t slot) const { return slot >= first_coded(); }
    uint32_t row_of(uint32_t slot) const
    {
        return slot - (in_coded_pool(slot) ? first_coded() : 0);
    } // in its pool
    // Tokens that head h can still take before a decision.
    uint32_t free_slots(uint32_t h) const
    {
        return spec.n_coded ? spec.n_plain() - (held[h] - coded[h]) : capacity[h] - held[h];
    }
    void place(uint32_t chunk, Placer& device, Placer& host);
};

// The chunk in flight.
struct Chunk {
    Tensor k, v;         // (n_kv_heads * n_rows, head_dim), where it is staged
    Tensor scores;       // (1, n_kv_heads * n_rows)
    uint32_t n_rows = 0; // per head: tokens of the largest chunk; 0: none is ever staged
    uint32_t n = 0;      // tokens
    uint32_t position = 0;
    bool staged = false;
};

// What slots have that are not coded.
inline Format plain_format(Format codec)
{
    return codec == Format::f32 ? codec : Format::f16;
}

// Slots that a step lists at most.
uint32_t read_stride(const CacheLayerSpec& s, const Recipe& recipe, uint32_t chunk);
// Indexes that a selector chooses together, beside n_first that are always read.
uint32_t select_unit(const Recipe& recipe, uint32_t n_read, uint32_t n_first);

// Codes are of keys without their bias: it would take most of a code's range.
inline bool leaves_bias_out(const ModelShape& model, const Recipe& recipe)
{
    return model.key_bias && is_coded(recipe.k);
}

// n_slots: per KV head, in layers that see everything; the context where nothing is ever evicted.
std::vector<CacheLayerSpec> cache_specs(const ModelShape& model, const Recipe& recipe,
                                        uint32_t n_slots);
// The largest of what ops will be asked for; n_tokens and max_cols are the caller's.
ScratchShape cache_scratch(const ModelShape& model, const Recipe& recipe, uint32_t n_slots);

} // namespace ks
