// Gathers what an eviction is decided on: each token's position, slot and attention score, and the
// policy's score.
#pragma once

#include "runtime/kv/rows.h"

namespace ks
{

// A flag of an id: a chat template wrote the token.
constexpr uint32_t kTemplateToken = 1u << 31;

// The text of the tokens, as far as it is known.
struct TextSeen {
    // Ids are counted by their remainder: a count per id would take more bytes than it is worth.
    static constexpr uint32_t kBuckets = 4096;
    // (size) A ring: the id of position p is ids[p % size], with or without kTemplateToken. It
    // includes the chunk's ids.
    const uint32_t* ids = nullptr;
    uint32_t size = 0;
    uint16_t* counts = nullptr;  // (kBuckets) how often ids of a bucket were read
    uint32_t max_distance = ~0u; // the model does not know larger distances

    bool knows(uint32_t position, uint32_t n_seen) const
    {
        return position < n_seen && n_seen - position <= size;
    }
    uint32_t bucket(uint32_t position) const
    {
        return (ids[position % size] & ~kTemplateToken) % kBuckets;
    }
    bool is_template(uint32_t position, uint32_t n_seen) const
    {
        return knows(position, n_seen) && ids[position % size] & kTemplateToken;
    }
};

// The state of a layer from which candidates are gathered.
struct DecisionInput {
    Backend& backend;
    const CacheLayer& layer;
    const Chunk& chunk;
    const TextSeen& text;

    uint32_t n_seen() const { return chunk.position + chunk.n; } // tokens of the text
};

class Gatherer
{
public:
    // Scratch for n_heads heads of `most` indexes. all_keys: the policy gets all keys of a head at
    // once, else parts of rows.n_at_once().
    void place(const Recipe& recipe, uint32_t n_heads, uint32_t n_slots, uint32_t chunk,
               uint32_t most, uint32_t head_dim, bool all_keys, Placer& host);
    // rows reads keys into `keys`: (most, head_dim) with all_keys, else (rows.n_at_once(),
    // head_dim).
    std::vector<HeadCandidates>& gather(const DecisionInput& in, const EvictionRules& rules,
                                        RowTransfer& rows, float* keys);

    // The attention scores of the device, if the recipe reads them: (n_kv_heads * n_slots) by slot,
    // and (n_kv_heads * chunk.n_rows) by row of the chunk.
    const float* slot_attention() const { return m_slot_attention; }
    const float* chunk_attention() const { return m_chunk_attention; }

private:
    void gather_head(const DecisionInput& in, const EvictionRules& rules, uint32_t h);
    void share_attention(uint32_t n_heads);
    void count_ids(const DecisionInput& in, const HeadCandidates& head);
    void score(const DecisionInput& in, const EvictionRules& rules, uint32_t h, RowTransfer& rows,
               float* keys);

    std::vector<HeadCandidates> m_heads;
    bool m_all_keys = false;
    float* m_slot_attention = nullptr;  // (n_kv_heads * n_slots) by slot
    float* m_chunk_attention = nullptr; // (n_kv_heads * chunk) by row of the chunk
    float* m_scratch = nullptr;         // retain_scratch_floats() floats for the policy
    uint32_t* m_id_counts = nullptr;    // (most) by index
};

} // namespace ks
