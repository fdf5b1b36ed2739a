// Applies a decision to a layer: assigns slots, merges victims, and lists the rows that the device
// has to move.
#pragma once

#include "runtime/kv/candidates.h"

namespace ks
{

// Rows that move from one tensor to another: lists of pairs (from row, to row). The ways run in
// this order; no way overwrites a row that a later one reads.
struct Moves {
    // gathered: scratch for one group per head whose rows come from the plain pool and the chunk.
    enum Way {
        plain_to_coded,
        chunk_to_coded,
        plain_to_gathered,
        chunk_to_gathered,
        gathered_to_coded,
        chunk_to_plain,
        n_ways
    };
    uint32_t* list[n_ways] = {};
    uint32_t n[n_ways] = {};

    void add(Way way, uint32_t from, uint32_t to)
    {
        list[way][2 * n[way]] = from;
        list[way][2 * n[way]++ + 1] = to;
    }
};

struct EvictionCounts {
    uint32_t evicted = 0, merged = 0;
};

// One eviction of a layer: its tokens, the staged chunk, and the decision for each head.
struct Eviction {
    Backend& backend;
    CacheLayer& layer;
    uint32_t il;
    const Chunk& chunk;
    const EvictionRules& rules;
    const std::vector<HeadCandidates>& heads;
    const std::vector<HeadDecision>& decisions;

    HeadRows rows_of(uint32_t h) const { return {backend, layer, chunk, heads[h], h}; }
};

class Applier
{
public:
    // Scratch for n_heads heads of `most` indexes and n_slots slots.
    void place(const Recipe& recipe, uint32_t n_heads, uint32_t n_slots, uint32_t most,
               uint32_t head_dim, Placer& host);
    // Changes the layer's tables. The rows change when the caller makes the moves.
    // keys: scratch (most, head_dim).
    EvictionCounts apply(const Eviction& e, const Gatherer& gathered, RowTransfer& rows,
                         float* keys, Moves& moves);

private:
    // Slots of one pool that no head uses.
    struct FreeSlots {
        uint32_t* slots = nullptr; // (n_kv_heads * n_slots)
        uint32_t n = 0, next = 0;
        uint32_t take();
    };
    void merge_victims(const Eviction& e, uint32_t h, RowTransfer& rows, float* keys);
    void estimate_victims(const Eviction& e, uint32_t h, RowTransfer& rows, float* keys);
    void write_estimator(const Eviction& e, uint32_t h, RowTransfer& rows, const float* keys);
    uint32_t tokens_of(const Eviction& e, uint32_t h, uint32_t index) const;
    void list_free_slots(const Eviction& e);
    void assign_slots(const Eviction& e, uint32_t h, const Gatherer& gathered, Moves& moves);
    void assign_free_slots(const Eviction& e, uint32_t h);

    EvictionCounts m_counts;
    FreeSlots m_free_plain, m_free_coded;
    float* m_attention = nullptr; // (n_kv_heads * n_slots) by slot: scores after the eviction

    // For victims=merge.
    uint32_t* m_tokens = nullptr;  // (n_heads * most) by index: tokens that the slot represents
    uint8_t* m_changed = nullptr;  // (most) by index: 1 for merged victims and their targets
    uint32_t* m_targets = nullptr; // (most) indexes of tokens that stay
    float* m_norms = nullptr;      // (most) norms of the targets' keys
    uint32_t* m_into = nullptr;    // (most) by merged victim: the index of its target
    float* m_shares = nullptr;     // (most) by merged victim: its share in the mean

    // For an estimator (SubGen).
    uint32_t* m_sources = nullptr;        // (most) by estimator slot: the index whose row it gets
    uint32_t* m_sources_before = nullptr; // (most)
    float* m_numerator = nullptr;         // (most) log-weights by estimator slot
    float* m_denominator = nullptr;       // (most)
    SubgenChanges m_changes{};

    float* m_values = nullptr; // (most, head_dim) rows of values, for merging and estimating
    uint32_t m_most = 0;
};

} // namespace ks
