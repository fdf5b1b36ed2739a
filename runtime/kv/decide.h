// Which tokens stay, and which of them are encoded: pure functions of the candidates' numbers, with
// no device and no layer.
#pragma once

#include "runtime/kv/layout.h"

#include <vector>

namespace ks
{

// The rules of one eviction, the same for all heads of a layer.
struct EvictionRules {
    bool evicts = false;      // false: every token stays, and some are encoded
    uint32_t n_pinned = 0;    // leading indexes that stay
    uint32_t n_recent = 0;    // trailing indexes that stay
    uint32_t target = 0;      // indexes that stay, per head
    uint32_t n_estimated = 0; // slots of an estimator; they follow the pinned ones
    bool heads_compete = false;
    bool weighs_template = false; // tokens of the chat template are decided on before all others
    uint32_t n_template = 0;      // slots per head for tokens of the chat template
    uint32_t max_distance = ~0u;  // tokens further back than this leave first

    bool codes = false;         // the layer has a coded pool
    uint32_t n_coded_slots = 0; // of the coded pool, per head
    uint32_t n_plain_first = 0; // leading indexes that are never coded
    uint32_t n_plain_last = 0;  // trailing indexes that are not yet coded
    uint32_t group = 1;         // keys that are coded together

    // The number of candidates that stay.
    uint32_t n_chosen() const { return target - n_pinned - n_recent; }
};

// held (n_kv_heads): indexes of each head before the chunk. n_new: tokens of the chunk.
// max_distance: the trained context, less a margin for the next chunk.
EvictionRules eviction_rules(const CacheLayerSpec& spec, const Recipe& recipe, const uint32_t* held,
                             uint32_t n_new, uint32_t max_distance);

// One head's indexes: the held ones, then the chunk's. Arrays (n) are by index.
struct HeadCandidates {
    uint32_t n = 0;
    uint32_t n_held = 0;
    uint32_t n_coded = 0;           // held indexes that are coded; they follow the plain first ones
    uint32_t first = 0;             // earlier indexes keep their slots and have no values
    uint32_t* positions = nullptr;  // (n)
    uint32_t* slots = nullptr;      // (n_held)
    float* attention = nullptr;     // (n) attention scores, if the recipe reads them
    float* score = nullptr;         // (n) the policy's score: the highest stay
    uint8_t* is_template = nullptr; // (n) the chat template wrote the token

    bool is_coded(const EvictionRules& r, uint32_t index) const
    {
        return index >= r.n_plain_first && index - r.n_plain_first < n_coded;
    }
    // Whether an index is a slot of an estimator.
    bool is_sample(uint32_t index) const { return positions[index] == kNoPosition; }
};

struct HeadDecision {
    uint8_t* keep = nullptr; // (n) by index, from `first` on: 1 if it stays
    uint32_t code_end = 0;   // indexes from here on are plain
    // The tokens that are encoded now are numbered in order. Numbers [gather_begin, gather_end) are
    // the group whose rows come from both the plain pool and the chunk.
    uint32_t gather_begin = 0, gather_end = 0;

    // Whether an index is in the plain pool after the eviction. Coded tokens stay coded; the first
    // and the last tokens stay plain.
    bool is_plain(const EvictionRules& r, const HeadCandidates& head, uint32_t index) const
    {
        return !r.codes ||
               (!head.is_coded(r, index) && (index < r.n_plain_first || index >= code_end));
    }
};

class Decider
{
public:
    // Scratch for n_heads heads of `most` indexes.
    void place(uint32_t n_heads, uint32_t most, bool heads_compete, Placer& host);
    // n_seen: tokens of the text so far. Protected tokens get the score infinity, tokens that
    // have to leave -infinity.
    const std::vector<HeadDecision>& decide(const EvictionRules& rules,
                                            std::vector<HeadCandidates>& heads, uint32_t n_heads,
                                            uint32_t n_seen);

private:
    void choose(const EvictionRules& rules, const HeadCandidates& head, HeadDecision& decision);
    void choose_among_heads(const EvictionRules& rules, const std::vector<HeadCandidates>& heads,
                            uint32_t n_heads);

    std::vector<HeadDecision> m_decisions;
    uint32_t* m_order = nullptr; // (most), or (n_heads * most) where heads compete
    // Where heads compete: the scores and decisions of all candidates, head by head.
    float* m_scores = nullptr; // (n_heads * most)
    uint8_t* m_keep = nullptr; // (n_heads * most)
};

} // namespace ks
