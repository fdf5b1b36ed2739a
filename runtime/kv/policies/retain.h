// Which tokens keep a slot. A policy is a pure function: it gives a score to each candidate of one
// KV head, and the highest scores stay. Candidates are all tokens except pinned and recent ones.
// Adding a policy: one file here and one row in the table of retain.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ks
{

// The attention score of a slot, summed over the query heads of its KV head.
enum ScoreKind : uint32_t {
    scores_none = 0,
    scores_sum = 1,   // sum of probabilities
    scores_below = 2, // number of probabilities below 1 / slots
};

// The candidates of one KV head, oldest first. Arrays that the policy does not read are null.
struct Candidates {
    uint32_t n = 0;
    uint32_t n_seen = 0; // tokens read so far; the newest has position n_seen - 1
    uint32_t head_dim = 0;
    uint32_t n_keep = 0; // how many stay, so kcenter need not order the others; 0: unknown
    const uint32_t* positions = nullptr; // (n) ascending
    const uint32_t* tokens = nullptr;    // (n) ids
    const uint32_t* counts = nullptr;    // (n) how often the candidate's id was read so far
    const float* scores = nullptr;       // (n) attention scores
    const float* keys = nullptr;         // (n, head_dim), or null if read_keys is set
    // Reads the keys of candidates [first, first + n), n <= most_keys; valid until the next call.
    const float* (*read_keys)(const void* from, uint32_t first, uint32_t n) = nullptr;
    const void* keys_from = nullptr;
    uint32_t most_keys = 0;

    // Calls each(i, key) for all candidates in order. Does nothing without keys.
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
    // snapkv, mix, scissorhands, tova: the last queries before an eviction whose attention counts.
    uint32_t observe = 32;
    // snapkv, mix: the width of max pooling over neighbours in the text; odd.
    uint32_t pool = 7;
    // h2o: the factor of a sum after every token; 1: no decay, as in the paper.
    double decay = 1;
    // h2o: divides sums by the number of queries that could see the token; false: the paper's sum.
    bool lifetime = true;
};

struct RetainPolicy {
    const char* name = "";
    // Sets score[i] of each candidate; the highest stay. scratch: retain_scratch_floats() floats.
    void (*score)(const Candidates& c, const RetainOptions& o, float* scratch,
                  float* score) = nullptr;
    ScoreKind scores = scores_none; // which attention scores it reads
    bool observes = false;   // scores are of the last `observe` queries only, not of every query
    bool keys = false;       // reads keys
    bool all_keys = false;   // needs all keys of a head at once
    bool waits = false;      // evicts as rarely as possible: the cost is quadratic in the slots
    bool one_set = false;    // all KV heads of a layer keep the same tokens, by summed scores
    bool counts = false;     // reads how often ids were read
    bool evicts = true;      // false: every token stays
    bool keeps_last = false; // the last tokens stay, so a ring is enough
    bool estimates = false;  // victims go into a SubGen estimator
    bool study = false;      // study grade: a published policy that mix is compared with
    uint32_t scratch = 0;    // floats per candidate, in addition to head_dim floats
};

const RetainPolicy* find_retain(std::string_view name); // null: no such policy
std::string retain_names();                             // "all window sink h2o ...", for messages
uint64_t retain_scratch_floats(const RetainPolicy& policy, uint32_t n_candidates,
                               uint32_t head_dim);

// Marks the n_keep candidates with the highest scores. On ties the newer one stays. order: (n)
// scratch.
void mark_top_k(const float* score, uint32_t n, uint32_t n_keep, uint32_t* order, uint8_t* keep);

// Ada-KV: marks the n_keep_total highest scores of all heads together, and at least `floor` of each
// head. score, order, keep: (n_heads, n).
void mark_top_k_of_heads(const float* score, uint32_t n_heads, uint32_t n, uint32_t n_keep_total,
                         uint32_t floor, uint32_t* order, uint8_t* keep);

// Sets the slots of each layer, n_layers * average in all. uniform and ada: the same for all
// layers. pyramid: fewer in later layers (PyramidKV with beta 20), at least `floor`.
enum class Split : uint8_t { uniform, pyramid, ada };
void split_slots(Split split, uint32_t n_layers, uint32_t average, uint32_t floor, uint32_t* slots);

} // namespace ks
