// The cache: per layer, slots for every KV head, in a fixed number of bytes. A layer is one of two
// kinds.
//   ring    the first n_pinned tokens and the last ones, each where its position says: exact layers
//   (a ring with room for the
//           whole context), window layers, `window` and `sink`
//   table   slots that a retain policy fills. A table per head lists its slots in the order of the
//   text; after the slots in use
//           come the free ones, so a new token takes the next, and the table changes only when
//           something is evicted
// A chunk that finds no room is staged: it is read from a place of its own, one for all layers, and
// when a layer has read it, that layer decides who stays and takes the survivors over. So the peak
// is the plan, whatever the prompt's length.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/kv/apply.h"

#include <cstdint>
#include <vector>

namespace ks
{

class StateFile;

struct CacheBytes {
    uint64_t device = 0, host = 0;
};

// A layer's slots, over its heads, by what they hold.
struct CacheTiers {
    uint64_t pinned = 0, kept = 0, merged = 0, recent = 0, free = 0;
};

class Cache
{
public:
    // chunk: tokens of a prompt read at once. context: tokens that the text may have; 0: any
    // number.
    static CacheBytes bytes_needed(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                                   uint32_t chunk, uint32_t context, const Placer& device = {});
    // Lays everything out, exactly bytes_needed(), and empties it.
    void place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk,
               uint32_t context, Backend& backend, const Buffer& buffer, uint64_t offset,
               void* host);

    uint32_t n_layers() const { return uint32_t(m_layers.size()); }
    const CacheLayer& layer(uint32_t il) const { return m_layers[il]; }
    // What the layers that store keys without their bias read at every position; the caller fills
    // it.
    const Tensor& waves() const { return m_waves; }
    const Tensor& rope_table() const { return m_rope_table; }
    // ids: a ring of the last `size` tokens, kept up to date by the caller. trained: the longest
    // distance that the model knows.
    void set_text(const uint32_t* ids, uint32_t size, uint32_t trained);
    // The first n_tokens of the text, read or still to come, stay, as far as they take no more than
    // a quarter of a layer's slots; the sink tokens do anyway, and clear() and rewind() change
    // nothing of it. False, and nothing is changed: of the n_seen tokens some may have given up
    // their slots. Until a ring is full a token's row is its position, whatever is pinned.
    bool pin(uint32_t n_seen, uint32_t n_tokens);
    uint32_t n_pinned() const { return m_n_pinned; } // as was asked for
    void clear();
    // Forgets the tokens from n_tokens on, when n_seen had been read. False, and nothing is
    // forgotten: some layer no longer holds what the next token would have seen, so the text has to
    // be read again.
    bool rewind(uint32_t n_seen, uint32_t n_tokens);

    // Pinned tokens are seen as if the query were at this position at most.
    uint32_t clamp_position() const;
    // How many leading slots of a layer are seen by far queries, when a chunk ends before `end`.
    uint32_t n_clamped(uint32_t il, uint32_t end) const;

    // Whether some layer compares its queries with earlier ones: it wants them as they were before
    // RoPE, too.
    bool compares_queries() const { return m_recipe.compares_queries(); }

    // A chunk of n tokens at `position` in one layer: its keys and values are written, attended to,
    // and then some leave. They, and queries, come as the layer's spec wants them: before RoPE or
    // after it, rotated or not; y is what values were before.
    void begin_layer(uint32_t il, uint32_t n, uint32_t position);
    void write(const Tensor& k, const Tensor& v);
    void attend(const Tensor& y, const Queries& q, float scale);
    void end_layer();

    // After n_seen tokens (cache_view.cpp).
    CacheTiers tiers(uint32_t il, uint32_t n_seen) const;
    // Adds to heads[i] how many heads hold position first + i, in the layers that give up slots;
    // returns how many there are.
    uint32_t count_holders(uint32_t n_seen, uint32_t first, uint32_t n, uint32_t* heads) const;
    // Which share of these heads holds at least `most` of the n positions from `first` on; 1 where
    // nothing is given up.
    double share_holding(uint32_t n_seen, uint32_t first, uint32_t n, double most) const;

    // Saves, checks or loads what is held after n_seen tokens (cache_file.cpp says what). A failure
    // while loading leaves nothing that is of use: clear() then.
    void transfer(StateFile& file, uint32_t n_seen);

    uint64_t evicted() const
    {
        return m_evicted;
    } // slots that were given up, over all layers and heads
    uint64_t merged() const { return m_merged; } // how many of them live on in another slot

private:
    static void pin_layer(CacheLayerSpec& spec, const Recipe& recipe, uint32_t n_tokens);
    void transfer_choice(StateFile& file, uint32_t il, const CacheLayer& layer);
    void transfer_layer(StateFile& file, uint32_t il, CacheLayer& layer, uint32_t n_seen);
    struct Largest;
    Largest place_layers(const std::vector<CacheLayerSpec>& specs, uint32_t chunk, uint32_t context,
                         Placer& device, Placer& host);
    void place_layouts(uint32_t n_kv_heads, Placer& device, Placer& host);
    void place_chunk(const Largest& largest, uint32_t chunk, Placer& device, Placer& host);
    CacheBytes place_all(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                         uint32_t chunk, uint32_t context, Placer device, Placer host);
    void place_decisions(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                         uint32_t chunk, Placer& device, Placer& host);
    bool wants_scores(KvScoreArgs* s) const;
    SelectArgs select_args() const;
    void drop_last(CacheLayer& layer, uint32_t head, uint32_t n);
    void ring_moves();
    void evict();
    void make_moves();
    void send_layouts(uint32_t position);
    void upload_table(const CacheLayer& layer, uint32_t head, uint32_t first);

    Recipe m_recipe;
    Backend* m_backend = nullptr;
    std::vector<CacheLayer> m_layers;
    Gatherer m_gatherer;
    Decider m_decider;
    Applier m_applier;
    RowTransfer m_rows;
    float* m_keys = nullptr; // (most, head_dim) of one head, or (m_rows.n_at_once(), head_dim)
    TextSeen m_text;
    uint32_t m_trained = ~0u; // tokens that the model knows the distance of
    Chunk m_chunk;            // where the chunk in flight is staged
    Tensor m_gathered_k; // (n_kv_heads * group, head_dim) as the plain pool: groups whose rows come
                         // from two tensors
    Tensor m_gathered_v; // (n_kv_heads * group, head_dim)
    Tensor m_lse;        // (chunk, n_heads)
    Tensor m_rope_table; // (indexes that a layer reads, n_rope_on_read)
    Tensor m_waves;      // (wave_digits * wave_base, n_wave)
    Moves m_moves;
    Tensor m_device_moves[Moves::n_ways];
    Tensor m_layouts; // (n_layers, n_kv_heads * layout_words), rows begin where tensors may
    uint32_t* m_host_layouts = nullptr; // the same

    CacheLayer* m_layer = nullptr; // in flight
    uint32_t m_il = 0;
    uint32_t m_n_pinned = 0;
    uint64_t m_evicted = 0, m_merged = 0;
};

} // namespace ks
