// Who stays, and what becomes codes: pure functions from the numbers of candidates to a decision.
// No device, no layer.
#pragma once

#include "runtime/kv/layout.h"

#include <vector>

namespace ks
{

// The same for all heads of a layer.
struct EvictionRules {
    bool evicts = false;      // else new tokens only find no slot in the plain pool
    uint32_t n_pinned = 0;    // leading indexes that stay
    uint32_t n_recent = 0;    // trailing indexes that stay
    uint32_t target = 0;      // indexes that stay, per head
    uint32_t n_estimated = 0; // slots of an estimator, behind the pinned ones
    bool heads_compete = false;
    bool weighs_template = false; // tokens of the chat template stay or leave before all others
    uint32_t n_template = 0;      // slots per head that may be spent on them
    uint32_t max_distance = ~0u;  // tokens further back than this leave first

    bool codes = false;         // there is a coded pool
    uint32_t n_coded_slots = 0; // of it, per head
    uint32_t n_plain_first = 0; // leading indexes that are never coded
    uint32_t n_plain_last = 0;  // trailing ones
    uint32_t group = 1;         // keys that are coded together

    uint32_t n_chosen() const
    {
        return target - n_pinned - n_recent;
    } // of the candidates those that stay
};

// held (n_kv_heads): tokens of each head before the chunk. n_new: tokens of the chunk.
// max_distance: what the model was trained for.
EvictionRules eviction_rules(const CacheLayerSpec& spec, const Recipe& recipe, const uint32_t* held,
                             uint32_t n_new, uint32_t max_distance);

// One head's indexes in the order of the text: the held ones, then the chunk's.
struct HeadCandidates {
    uint32_t n = 0;
    uint32_t n_held = 0;
    uint32_t n_coded = 0;           // of the held; they follow on the plain first ones
    uint32_t first = 0;             // indexes before it keep their slots and are not looked at
    uint32_t* positions = nullptr;  // (n)
    uint32_t* slots = nullptr;      // (n_held)
    float* attention = nullptr;     // (n) attention scores, where the policy wants them
    float* score = nullptr;         // (n) the policy's: the higher, the longer a candidate stays
    uint8_t* is_template = nullptr; // (n) written by a chat template around somebody's words

    bool is_coded(const EvictionRules& r, uint32_t index) const
    {
        return index >= r.n_plain_first && index - r.n_plain_first < n_coded;
    }
    bool is_sample(uint32_t index) const
    {
        return positions[index] == kNoPosition;
    } // in an estimator's slot
};

struct HeadDecision {
    uint8_t* keep = nullptr; // (n), from `first` on
    uint32_t code_end = 0;   // indexes from here on stay plain
    // Tokens that become codes are numbered. Those of [gather_begin, gather_end) share a group, and
    // come from the pool and the chunk.
    uint32_t gather_begin = 0, gather_end = 0;

    // Where the token of an index goes: codes stay codes, the first tokens and the last ones do not
    // become codes.
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
    // n_seen: tokens of the text so far. Scores of what is protected or has to leave become
    // infinite.
    const std::vector<HeadDecision>& decide(const EvictionRules& rules,
                                            std::vector<HeadCandidates>& heads, uint32_t n_heads,
                                            uint32_t n_seen);

private:
    void choose(const EvictionRules& rules, const HeadCandidates& head, HeadDecision& decision);
    void choose_among_heads(const EvictionRules& rules, const std::vector<HeadCandidates>& heads,
                            uint32_t n_heads);

    std::vector<HeadDecision> m_decisions;
    uint32_t* m_order = nullptr; // (most), or (n_heads * most) where heads compete
    float* m_scores =
        nullptr; // (n_heads * most), where heads compete: all candidates' side by side
    uint8_t* m_keep = nullptr; // (n_heads * most), where heads compete
};

} // namespace ks
