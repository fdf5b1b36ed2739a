// The cache: per layer, slots for every KV head, in a fixed number of bytes. A layer is of one of
// two kinds.
//   ring    holds the first n_pinned tokens and the last ones. A token's position gives its row.
//           Exact layers (a ring for the whole context), window layers, `window` and `sink`
//   table   holds the tokens that a retain policy keeps. A table per head lists its slots in the
//           order of the text, then its free slots. A new token takes the first free slot, so the
//           table changes only at an eviction
// A chunk that finds no free slots is staged: attention reads it from a buffer that all layers
// share. Then the layer evicts, and tokens of the chunk that stay move into slots. So the peak is
// the plan, whatever the prompt's length. Several layers of the model may read one layer of the
// cache. It has a buffer of its own, and evicts after its last reader.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/kv/apply.h"

#include <cstdint>
#include <vector>

namespace ks
{

class StateFile;

struct CacheBytes {
    uint64_t device = 0, host = 0; // of one text
    // Of a workspace that the caches of a model share: nothing in it outlives a layer of a step,
    // but tables that are constants.
    uint64_t workspace = 0, host_workspace = 0;
    uint64_t plane = 0; // the keys of the largest layer; its values are no longer
    uint64_t range = 0; // the largest tensor that ops see whole
};

// Where a cache lies: offsets in a buffer of the device, and host memory.
struct CacheMemory {
    Buffer buffer;
    uint64_t at = 0;
    void* host = nullptr;
    bool shares = false; // the workspace, which is then elsewhere
    uint64_t workspace_at = 0;
    void* host_workspace = nullptr;
};

constexpr uint32_t kMostClimbRows = 512; // that a climb encodes at once

// Memory for a climb: tensors of the device that nothing else uses, for n rows at once, and host
// memory of CacheBytes::plane.
struct ClimbScratch {
    Tensor values, codes, rows;
    uint32_t n = 0;
    uint8_t* host = nullptr;
};

class Cache
{
public:
    // chunk: tokens of a prompt read at once. context: the longest text in tokens; 0: no limit.
    static CacheBytes bytes_needed(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                                   uint32_t chunk, uint32_t context, const Placer& device = {},
                                   bool shares_workspace = false);
    // Places everything in exactly bytes_needed() bytes. clear() has to follow, or take_over().
    void place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk,
               uint32_t context, Backend& backend, const CacheMemory& memory);

    // Takes over the contents of another layout of the same bytes, which has read n_seen tokens
    // (cache_climb.cpp). Formats do not get longer. Allocates only if `from` evicts; what has no
    // slots here leaves then.
    void take_over(Cache& from, uint32_t n_seen, const ClimbScratch& scratch);
    void keep_pin(const Cache& from);
    // Copies the contents of a cache with the same layout elsewhere. staging: host memory of
    // n_staging bytes.
    void copy(const Cache& from, uint8_t* staging, uint64_t n_staging);

    const CacheBytes& bytes() const { return m_bytes; }
    uint32_t n_layers() const { return uint32_t(m_layers.size()); }
    const CacheLayer& layer(uint32_t il) const { return m_layers[il]; }
    // Tables of phasors and of RoPE angles that attention reads; empty where no layer does. The
    // caller fills them.
    const Tensor& phasors() const { return m_phasors; }
    const Tensor& rope_table() const { return m_rope_table; }
    // ids: a ring of the last `size` tokens, which the caller keeps up to date. trained: the
    // model's trained context.
    void set_text(const uint32_t* ids, uint32_t size, uint32_t trained);
    // Pins the first n_tokens of the text, read or not, up to a quarter of a layer's slots. Sink
    // tokens are always pinned. clear() and rewind() keep the pin. Returns false and changes
    // nothing if some of the n_seen tokens may be evicted already. Until a ring is full, the row
    // of a token is its position, whatever is pinned.
    bool pin(uint32_t n_seen, uint32_t n_tokens);
    uint32_t n_pinned() const { return m_n_pinned; } // the argument of pin()
    void clear();
    // Forgets the tokens from n_tokens on, of the n_seen that were read. Returns false and forgets
    // nothing if some layer no longer holds what the next token sees; the text has to be read
    // again.
    bool rewind(uint32_t n_seen, uint32_t n_tokens);
    bool can_rewind(uint32_t n_seen, uint32_t n_tokens) const;

    // The largest position that q_clamped has.
    uint32_t clamp_position() const;
    // Leading indexes of a layer that are read with q_clamped, when a chunk ends before position
    // `end`.
    uint32_t n_clamped(uint32_t il, uint32_t end) const;

    // Whether some layer compares its queries with earlier ones, before RoPE.
    bool compares_queries() const { return m_recipe.compares_queries(); }

    // A chunk of n tokens at `position` in one layer: writes keys and values, attends, evicts. Of
    // several readers, each begins, attends and ends; only the first writes. The
    // layer's spec says whether keys and queries come before or after RoPE, and whether they and
    // values come after the Hadamard transform. y is without the transform.
    void begin_layer(uint32_t il, uint32_t n, uint32_t position);
    // v: empty where a row is both key and value.
    void write(const Tensor& k, const Tensor& v);
    // sinks: of the layer's heads (1, n_heads), or empty.
    void attend(const Tensor& y, const Queries& q, float scale, float softcap,
                const Tensor& sinks = {});
    void end_layer();

    // Saves, checks or loads the contents after n_seen tokens (cache_file.cpp). A failure while
    // loading leaves the cache unusable until clear().
    void transfer(StateFile& file, uint32_t n_seen);

    // Tokens that lost their slot, summed over all layers and heads.
    uint64_t evicted() const { return m_evicted; }
    // Those of them that were merged into another slot.
    uint64_t merged() const { return m_merged; }

private:
    static void pin_layer(CacheLayerSpec& spec, const Recipe& recipe, uint32_t n_tokens);
    void transfer_choice(StateFile& file, uint32_t il, const CacheLayer& layer);
    void transfer_layer(StateFile& file, uint32_t il, CacheLayer& layer, uint32_t n_seen);
    struct Largest;
    struct Places;
    Largest place_layers(const std::vector<CacheLayerSpec>& specs, uint32_t chunk, uint32_t context,
                         Places& p);
    void place_layouts(uint32_t n_kv_heads, Places& p);
    void place_chunk(const Largest& largest, uint32_t chunk, Places& p);
    CacheBytes place_all(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                         uint32_t chunk, uint32_t context, Places p);
    void place_decisions(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                         uint32_t chunk, Placer& device, Placer& host);
    bool wants_scores(KvScoreArgs* s) const;
    SelectArgs select_args() const;
    void drop_last(CacheLayer& layer, uint32_t head, uint32_t n);
    uint64_t pack_plane(const CacheLayer& from, const CacheLayer& to, bool keys,
                        const ClimbScratch& scratch) const;
    void place_plane(const CacheLayer& to, bool keys, const ClimbScratch& scratch) const;
    void count_ids(uint32_t position, uint32_t n_seen);
    void reset(uint32_t n_seen, const uint32_t* positions);
    void squeeze(const Cache& to, uint32_t n_seen);
    void ring_moves();
    void evict(const EvictionRules& rules);
    void make_moves();
    void send_layouts(uint32_t position);
    void upload_table(const CacheLayer& layer, uint32_t head, uint32_t first);

    Recipe m_recipe;
    Backend* m_backend = nullptr;
    CacheMemory m_memory;
    CacheBytes m_bytes;
    std::vector<CacheLayer> m_layers;
    Gatherer m_gatherer;
    Decider m_decider;
    Applier m_applier;
    RowTransfer m_rows;
    float* m_keys = nullptr; // (most, head_dim) of one head, or (m_rows.n_at_once(), head_dim)
    TextSeen m_text;
    uint32_t m_trained = ~0u;    // the model's trained context
    std::vector<Chunk> m_chunks; // the first for all layers with one reader
    Chunk* m_chunk = nullptr;    // that of the layer in flight
    // Scratch for groups whose rows come from the plain pool and the chunk, in the plain format.
    Tensor m_gathered_k; // (n_kv_heads * group, head_dim)
    Tensor m_gathered_v; // (n_kv_heads * group, head_dim)
    Tensor m_lse;        // (chunk, n_heads)
    Tensor m_rope_table; // (indexes that a layer reads, n_rope_on_read)
    Tensor m_phasors;    // (phasor_digits * phasor_base, n_bias_dims)
    Moves m_moves;
    Tensor m_device_moves[Moves::n_ways];
    Tensor m_layouts; // (n_layers, n_kv_heads * layout_words), each row aligned as a tensor
    uint32_t* m_host_layouts = nullptr; // the host's copy

    CacheLayer* m_layer = nullptr; // the layer in flight
    uint32_t m_il = 0;             // its number
    uint32_t m_n_pinned = 0;
    uint64_t m_evicted = 0, m_merged = 0;
};

} // namespace ks
