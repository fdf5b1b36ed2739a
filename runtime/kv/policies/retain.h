// Which tokens keep a slot. A policy is a pure function: what is known of the candidates of one KV
// head -> a score for each; the highest scores stay. Candidates are the tokens that no rule
// protects (pinned and recent ones are not among them). Adding a policy: one file here and one row
// in the table of retain.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ks
{

// What attention tells about each slot, summed over the query heads of its KV head.
enum ScoreKind : uint32_t {
    scores_none = 0,
    scores_sum = 1,   // of probabilities
    scores_below = 2, // how many probabilities were below 1 / slots
};

// The candidates of one KV head, oldest first. What the policy did not ask for is null.
struct Candidates {
    uint32_t n = 0;
    uint32_t n_seen = 0; // tokens read so far; the newest has position n_seen - 1
    uint32_t head_dim = 0;
    uint32_t n_keep = 0; // how many will stay, for what costs more to order than to choose
                         // (kcenter); 0: not known
    const uint32_t* positions = nullptr; // (n) ascending
    const uint32_t* tokens = nullptr;    // (n) ids
    const uint32_t* counts = nullptr;    // (n) how often the candidate's id was read so far
    const float* scores = nullptr;       // (n)
    const float* keys = nullptr;         // (n, head_dim)
    // Where keys are not all held at once: those of candidates [first, first + n), n <= most_keys,
    // until the next call.
    const float* (*read_keys)(const void* from, uint32_t first, uint32_t n) = nullptr;
    const void* keys_from = nullptr;
    uint32_t most_keys = 0;

    // Calls each(i, key) for all candidates in order, if there are keys.
    template <class Each>
    void each_key(const Each& each) const
    {
        for (uint32_t first = 0, part; first < n && has_keys(); first += part) {
            part = keys ? n : n - first < most_keys ? n - first : most_keys;
            const float* rows = keys ? keys : read_keys(keys_from, first, part);
            for (uint32_t i = 0; i < part; i++) each(first + i, rows + uint64_t(i) * head_dim);
        }
    }
    bool has_keys() const { return keys || read_keys; }
};

struct RetainOptions {
    uint32_t observe =
        32; // snapkv, mix, scissorhands, tova: queries before an eviction that are looked at
    uint32_t pool =
        7; // snapkv, mix: a score is the largest among so many neighbours in the text; odd
    double decay = 1; // h2o: by what a sum shrinks with every token; 1: never (the paper)
    bool lifetime =
        true; // h2o: sums are divided by the queries that could see the token; false: the paper
};

struct RetainPolicy {
    const char* name = "";
    // score[i]: the higher, the longer candidate i stays. scratch: retain_scratch_floats() floats.
    void (*score)(const Candidates& c, const RetainOptions& o, float* scratch,
                  float* score) = nullptr;
    ScoreKind scores = scores_none; // which attention scores it reads
    bool observes = false; // of the last `observe` queries before an eviction, else of every query
    bool keys = false;     // reads the keys
    bool all_keys = false; // and wants them all at once
    bool waits = false;    // decides as seldom as may be: a decision costs the square of the slots
    bool one_set =
        false; // all KV heads of a layer keep the same tokens: attention is summed over them
    bool counts = false; // reads how often ids were read
    bool evicts = true;  // false: has no victims of its own
    bool keeps_last =
        false; // the last tokens stay: their positions say where they lie, and no table is needed
    bool estimates = false; // victims go into a SubGen estimator
    uint32_t scratch = 0;   // floats for each candidate, beside head_dim
};

const RetainPolicy* find_retain(std::string_view name); // null: there is none
std::string retain_names();                             // "all window sink h2o ...", for messages
uint64_t retain_scratch_floats(const RetainPolicy& policy, uint32_t n_candidates,
                               uint32_t head_dim);

// Marks the n_keep candidates of the highest scores; among equal scores the newer one stays. order:
// (n) scratch.
void mark_top_k(const float* score, uint32_t n, uint32_t n_keep, uint32_t* order, uint8_t* keep);

// Ada: n_keep_total over all heads by their scores together, each head at least `floor`. score,
// order, keep: (n_heads, n).
void mark_top_k_of_heads(const float* score, uint32_t n_heads, uint32_t n, uint32_t n_keep_total,
                         uint32_t floor, uint32_t* order, uint8_t* keep);

// Slots per layer whose sum is n_layers * average, never more: the same for all, or fewer in later
// layers (PyramidKV with beta 20), by largest remainder, each at least `floor`.
enum class Split : uint8_t { uniform, pyramid, ada };
void split_slots(Split split, uint32_t n_layers, uint32_t average, uint32_t floor, uint32_t* slots);

} // namespace ks
