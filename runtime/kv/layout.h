// The shape of each layer's cache: slots and their codecs, device tensors and host arrays.
#pragma once

#include "kernels/common/codecs.h"
#include "runtime/base/backend.h"
#include "runtime/base/placer.h"
#include "runtime/kv/policies/subgen.h"
#include "runtime/kv/recipe.h"

#include <algorithm>
#include <vector>

namespace ks
{

constexpr uint32_t kLeastSlots = 2;   // per head: a recent one and a chosen one
constexpr uint32_t kNoPosition = ~0u; // the position of an estimator's slots

// What a cache needs to know about a layer of attention.
struct LayerShape {
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;
    bool window = false;    // sees ModelShape::window tokens
    uint32_t n_rot = 0;     // values of a head that RoPE rotates; 0: none
    uint32_t n_readers = 1; // layers of the model that attend to this one, itself included

    // Whether codecs support the size of the heads.
    bool can_code() const { return head_dim % 16 == 0 && head_dim <= codec_max_dim; }
};

// What a cache needs to know about a model.
struct ModelShape {
    std::vector<LayerShape> layers;
    uint32_t rope_pairs = 0;        // rope_interleaved or rope_neox
    uint32_t window = 0;            // tokens
    bool key_bias = false;          // keys have a bias, and coded keys are stored without it
    bool wide_normed_keys = false;  // keys lose much in few bits
    bool normed_after_rope = false; // keys cannot be rotated once more
    bool sinks = false;             // heads have sinks (attention_sinks)
    bool values_in_keys = false;    // a row is both key and value

    const LayerShape* uncodable() const; // a layer whose heads no codec supports; null: none
};

// Four kinds of numbers:
//   position   of a token in the text
//   index      of a token among those that a head holds, in the order of the text
//   slot       a place in the cache, over all heads and both pools, the plain pool first
//   row        of a pool or of the staged chunk. A plain slot and its row have the same number
struct CacheLayerSpec {
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_slots;      // per KV head
    uint32_t n_pinned = 0; // leading tokens that stay
    uint32_t window = 0;   // tokens visible beside the pinned; 0: all that are held
    bool table = false;
    bool bounded = false;        // tokens that the model would still see lose their slots
    bool local = false;          // the window is the model's; nothing is pinned
    bool sinks = false;          // heads have sinks
    bool values_in_keys = false; // a row is both key and value: there is no pool of values
    uint32_t n_read = 0;         // slots that a step reads; 0: all
    uint32_t n_coded = 0;        // slots per KV head in the coded pool
    Format k = Format::f16; // of the coded pool; f32 there makes the plain pool f32, else it is f16
    Format v = Format::f16;
    uint32_t n_bias_dims =
        0; // phasor values, where keys are stored without the model's bias; else 0
    uint32_t n_rope_on_read = 0; // RoPE's dims, where keys are stored before RoPE; else 0
    uint32_t pairs = 0;          // rope_interleaved or rope_neox
    uint32_t n_readers = 1;      // layers of the model that attend to it in a step

    uint32_t n_plain() const { return n_slots - n_coded; } // slots per KV head in the plain pool
    // All keys of the layer and its queries are transformed, plain ones as well.
    bool hadamard_keys() const { return n_coded && codec_info(k).hadamard; }
    bool hadamard_values() const { return n_coded && codec_info(v).hadamard; }
    // Keys of so many consecutive indexes are coded together, in consecutive rows.
    uint32_t group() const { return n_coded ? codec_info(k).group : 1; }
    // Sets the codecs and n_coded. Plain slots remain for the first tokens, the last ones, those
    // before the next eviction, and those that wait until their group is full.
    void code_slots(const Recipe& r, Format keys, Format values);
    // Slots that an eviction leaves free for later tokens. decodes: they come one by one.
    uint32_t slack(const Recipe& r, bool decodes) const;
    // Slots of a SubGen estimator; 0: the policy has none, or the layer has too few slots for one.
    uint32_t estimator_slots(const Recipe& r) const;
    SubgenShape estimator_shape(const Recipe& r, uint32_t il, uint32_t head) const;
    uint64_t estimator_bytes(const Recipe& r) const; // of one head
};

// What a climb brings into a layer: the same indexes of every head, which are the last tokens.
struct Moved {
    uint32_t first = 0;                      // the first index of the layer that it comes from
    uint32_t held = 0, coded = 0;            // indexes from there on, and how many become coded
    uint32_t coded_begin = 0, coded_end = 0; // indexes that were coded before, counted from `first`
    uint64_t packed_at[2] = {}, packed_bytes[2] = {}; // of values and of keys, between two steps
};

struct CacheLayer {
    CacheLayerSpec spec;
    Recipe recipe; // the session's, or for_window_layer() of it
    KvSlots kv;
    Tensor scores; // (1, n_kv_heads * n_slots) f32, by slot: attention scores
    Selection selection;
    bool must_reselect = true; // the last choice of a selector is no longer valid
    uint32_t n_reads = 0;      // readers that have begun in this step
    uint32_t chunk_index = 0;  // of the staged chunk that it uses
    Moved moved;
    // The host's copy of a table. The part of head h begins at begin[h] and has capacity[h] entries
    // by index: held[h] slots in use, then free slots, plain ones before coded ones.
    uint32_t* begin = nullptr;     // (n_kv_heads)
    uint32_t* held = nullptr;      // (n_kv_heads)
    uint32_t* capacity = nullptr;  // (n_kv_heads)
    uint32_t* coded = nullptr;     // (n_kv_heads) coded indexes; they follow the plain first ones
    uint32_t* slots = nullptr;     // (n_kv_heads * n_slots) by index
    uint32_t* positions = nullptr; // (n_kv_heads * n_slots) by index
    uint32_t* counts = nullptr;    // (n_kv_heads * n_slots) by slot: tokens merged in it; or null
    float* weights = nullptr; // (n_kv_heads * n_slots, 2) by slot, the host's copy of kv.weights
    uint8_t* estimators = nullptr; // a Subgen per head

    // The first slot of the coded pool.
    uint32_t first_coded() const { return spec.n_kv_heads * spec.n_plain(); }
    bool in_coded_pool(uint32_t slot) const { return slot >= first_coded(); }
    // The row of a slot in its pool.
    uint32_t row_of(uint32_t slot) const
    {
        return slot - (in_coded_pool(slot) ? first_coded() : 0);
    }
    // The slot of an index after a climb: rows in the order of indexes.
    uint32_t slot_after_climb(uint32_t h, uint32_t i) const
    {
        const uint32_t n_plain = spec.n_plain(), n = moved.coded,
                       first = std::min(moved.held, recipe.sink_of(spec.n_slots));
        const bool moves = i < moved.held;
        if (moves ? i < first || i - first >= n : i - n < n_plain)
            return h * n_plain + i - (i < first ? 0 : n);
        return first_coded() + h * spec.n_coded + i - (moves ? first : n_plain);
    }
    // Tokens that head h can take before the next eviction.
    uint32_t free_slots(uint32_t h) const
    {
        return spec.n_coded ? spec.n_plain() - (held[h] - coded[h]) : capacity[h] - held[h];
    }
    void place(uint32_t chunk, Placer& device, Placer& host);
};

// The chunk in flight. Token t of it has the row n_rows * head + t where it is staged.
struct Chunk {
    Tensor k, v;         // (n_kv_heads * n_rows, head_dim)
    Tensor scores;       // (1, n_kv_heads * n_rows) attention scores by row
    uint32_t n_rows = 0; // per head: tokens of the largest chunk; 0: none is ever staged
    uint32_t n = 0;      // tokens
    uint32_t position = 0;
    bool staged = false;
};

// The format of the plain pool beside a coded pool.
inline Format plain_format(Format codec)
{
    return codec == Format::f32 ? codec : Format::f16;
}

// Entries per head of the table that select writes.
uint32_t read_stride(const CacheLayerSpec& s, const Recipe& recipe, uint32_t chunk);
// Indexes that a selector chooses together. n_first: indexes that are always read.
uint32_t select_unit(const Recipe& recipe, uint32_t n_read, uint32_t n_first);

// Coded keys are stored without their bias, which would take most of a code's range.
inline bool leaves_bias_out(const ModelShape& model, const Recipe& recipe)
{
    return model.key_bias && is_coded(recipe.k);
}

// n_slots: per KV head, in layers that see everything; the context where nothing is ever evicted.
std::vector<CacheLayerSpec> cache_specs(const ModelShape& model, const Recipe& recipe,
                                        uint32_t n_slots);
// The maxima over all layers. The caller sets n_tokens and max_cols.
ScratchShape cache_scratch(const ModelShape& model, const Recipe& recipe, uint32_t n_slots);

} // namespace ks
