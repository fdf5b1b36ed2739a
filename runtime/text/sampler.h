// Choosing the next token from logits. Everything that a draw needs is given at construction: no allocation per token.
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
    uint32_t repeat_last_n = 64;
    std::vector<std::pair<uint32_t, float>> logit_bias; // token, added to its logit
    uint64_t seed = 0;
};

class Sampler
{
public:
    // Bytes of working memory for a vocabulary, a region of the plan.
    static uint64_t bytes_needed(uint32_t n_vocab);
    Sampler(const SamplerOptions& options, uint32_t n_vocab, void* memory);

    uint32_t sample(const float* logits); // does not change logits; also accept()s what it draws
    void accept(uint32_t token);          // for the penalties: prompt tokens may be accepted too
    void reset();                         // forgets history and rewinds the random stream

private:
    SamplerOptions m_options;
    uint32_t m_n_vocab;
    void* m_memory;
    std::vector<uint32_t> m_recent; // ring of repeat_last_n
    size_t m_n_recent = 0;
    uint64_t m_counter = 0; // draws so far: the random stream is a function of (seed, counter)
};

} // namespace ks
