// What is known of a layer's tokens before a decision: where they lie, what attention gave them,
// and the policy's scores.
#pragma once

#include "runtime/kv/rows.h"

namespace ks
{

constexpr uint32_t kTemplateToken =
    1u << 31; // beside an id: written by a chat template around somebody's words

// The text behind the slots, as far as it is known.
struct TextSeen {
    static constexpr uint32_t kBuckets = 4096; // ids are counted by remainder: a vocabulary's own
                                               // counts would cost more than they say
    const uint32_t* ids = nullptr; // (size) a ring: the id at position p is in [p % size], the
                                   // chunk's own included, some with kTemplateToken
    uint32_t size = 0;
    uint16_t* counts = nullptr; // (kBuckets) how often ids were read
    uint32_t q_clamped = ~0u; // tokens further back than the model was trained for; they have to go

    bool knows(uint32_t position, uint32_t n_seen) const
    {
        return position < n_seen && n_seen - position <= size;
    }
    uint32_t bucket(uint32_t position) const
    {
        return (ids[position % size] & ~kTemplateToken) % kBuckets;
    }
    bool is_frame(uint32_t position, uint32_t n_seen) const
    {
        return knows(position, n_seen) && ids[position % size] & kTemplateToken;
    }
};

// What the last decisions of a layer are made from.
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
    // Scratch for n_heads heads of `most` indexes. all_keys: the policy has all keys of a head at
    // once, else as many as rows moves.
    void place(const Recipe& recipe, uint32_t n_heads, uint32_t n_slots, uint32_t chunk,
               uint32_t most, uint32_t head_dim, bool all_keys, Placer& host);
    // rows: how keys are read, into keys (most, head_dim) or (rows.n_at_once(), head_dim).
    std::vector<HeadCandidates>& gather(const DecisionInput& in, const EvictionRules& rules,
                                        RowTransfer& rows, float* keys);

    // Attention scores as they are on the device; none where nobody wants them.
    const float* slot_attention() const
    {
        return m_slot_attention;
    } // (n_kv_heads * n_slots) by slot
    const float* chunk_attention() const
    {
        return m_chunk_attention;
    } // (n_kv_heads * chunk.n_rows) by row

private:
    void gather_head(const DecisionInput& in, const EvictionRules& rules, uint32_t h);
    void share_attention(uint32_t n_heads);
    void count_ids(const DecisionInput& in, const HeadCandidates& head);
    void score(const DecisionInput& in, const EvictionRules& rules, uint32_t h, RowTransfer& rows,
               float* keys);

    std::vector<HeadCandidates> m_heads;
    bool m_all_keys = false;
    float* m_slot_attention = nullptr;  // (n_kv_heads * n_slots)
    float* m_chunk_attention = nullptr; // (n_kv_heads * chunk)
    float* m_scratch = nullptr;         // the policy's
    uint32_t* m_id_counts = nullptr;    // (most)
};

} // namespace ks
