// Chooses the next token from logits. All memory is passed at construction: no allocation per
// token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ks
{

struct SamplerOptions {
    float temperature = 0.8f; // 0: greedy, the lower id on ties
    uint32_t top_k = 40;      // 0: off
    float top_p = 0.95f;      // 1: off
    float min_p = 0.05f;      // 0: off
    float typical_p = 1.0f;   // 1: off
    float repeat_penalty = 1.0f;
    float presence_penalty = 0.0f;
    float frequency_penalty = 0.0f;
    uint32_t repeat_last_n = 64;                        // at most kMaxRepeatLastN
    std::vector<std::pair<uint32_t, float>> logit_bias; // (token, bias added to its logit)
    uint64_t seed = 0;
};

// The position of a sampler in its random stream and its recent tokens. A sampler with the same
// options continues from it.
struct SamplerState {
    uint64_t seed = 0;
    uint64_t n_draws = 0;
    std::vector<uint32_t> recent; // the last repeat_last_n tokens, oldest first
};

// Which tokens may be chosen.
class TokenFilter
{
public:
    virtual ~TokenFilter() = default;
    virtual bool allows(uint32_t id) = 0;
};

class Sampler
{
public:
    static constexpr uint32_t kMaxRepeatLastN = 1 << 20;
    // Working memory for a vocabulary in bytes, a region of the plan.
    static uint64_t bytes_needed(uint32_t n_vocab);
    Sampler(const SamplerOptions& options, uint32_t n_vocab, void* memory);

    uint32_t sample(const float* logits); // does not modify logits; accept()s the chosen token
    // The same without accept(). Asks the filter, null: all tokens are allowed, only about tokens
    // that may be chosen. Any token if it allows none.
    uint32_t choose(const float* logits, TokenFilter* filter = nullptr);
    // Records a token for the penalties. Prompt tokens may be accepted, too.
    void accept(uint32_t token);
    void reset(); // clears the history and restarts the random stream
    SamplerState state() const;
    // Sets everything except the seed, which is an option.
    void set_state(const SamplerState& state);

private:
    struct Candidate {
        float logit;
        uint32_t id;
    };
    // A token with a modified logit: biased, or penalised as recent.
    struct Change {
        uint32_t id;
        uint32_t n_seen;
        float logit;
    };
    static bool better(const Candidate& a, const Candidate& b)
    {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    }

    bool is_allowed(uint32_t id) const { return !m_filter || m_filter->allows(id); }
    void collect_changes(const float* logits);
    template <class Take>
    void scan(const float* logits, float& threshold, Take take) const;
    uint32_t greedy(const float* logits) const;
    size_t gather(const float* logits);
    size_t keep_typical(size_t n);
    size_t keep_top_p(size_t n);
    size_t keep_min_p(size_t n);
    uint32_t draw(size_t n);

    SamplerOptions m_options;
    uint32_t m_n_vocab;
    Candidate* m_candidates;         // (n_vocab)
    std::vector<uint32_t> m_recent;  // ring of the last repeat_last_n tokens
    size_t m_n_recent = 0;           // tokens accepted so far
    bool m_penalises;                // any penalty for recent tokens is on
    std::vector<Change> m_changes;   // of this step, by ascending id
    TokenFilter* m_filter = nullptr; // of choose()
    uint64_t m_counter = 0; // number of draws; the random stream is a function of (seed, counter)
};

} // namespace ks
