// One measurement of `eval`: a suite at a length, by a recipe in a share of the bytes that the
// exact cache needs.
#pragma once

#include "tools/eval/suites.h"
#include "tools/program.h"

namespace ks
{

struct EvalCell {
    std::string suite; // "text" or the name of one of eval_suites()
    uint32_t length;   // tokens
    bool later;        // the question comes as a turn of its own, after the text was read
    std::string recipe;
    double share; // of the bytes that exact needs
};

struct EvalResult {
    std::string recipe; // in full
    uint64_t cache_bytes = 0, exact_bytes = 0;
    uint32_t n_cases = 0;
    double accuracy =
        0; // the share of the answers that came; text: how often the most probable token is exact's
    double log_loss = 0;       // of an answer's tokens, or of the text's
    double divergence = 0;     // KL of exact's next tokens from this one's; text only
    double exact_log_loss = 0; // text only
    double survival =
        0; // share of the heads that hold four fifths of the needle; negative: there is no needle
    std::vector<double> depth_sums,
        depth_counts; // of accuracy, by tenths of the text before the needle
    uint64_t evicted = 0, merged = 0;
    std::string hash; // of the logits at the end of every case
    double seconds = 0;
};

constexpr double kControl = 0.8; // what exact must reach, or a suite says nothing at a length

struct Interval {
    double low, high;
};
Interval wilson(double n_hits, double n); // 95%

// Token ids of a case: the text, the question, and what must follow (nothing where the model may
// write freely).
struct EvalPrompt {
    std::vector<uint32_t> text, question, answer;
    uint32_t needle_begin = 0, n_needle = 0;
    std::vector<std::string> answers;

    size_t n_tokens(const EvalSuite& suite) const
    {
        return text.size() + question.size() + answer.size() + suite.n_free;
    }
};
// The largest case of `length` tokens at most.
EvalPrompt make_prompt(const EvalSuite& suite, const Tokenizer& tokenizer, uint64_t seed,
                       uint32_t nth, uint32_t length, bool later);

Status eval_suite(Session& session, const EvalSuite& suite, const EvalCell& cell, uint64_t seed,
                  uint32_t n_cases, EvalResult& out);
// Pieces of a text, one after another, as many as there are of n_cases; `exact` reads the same
// tokens in the same parts.
Status eval_text(Session& session, Session& exact, const std::vector<uint32_t>& ids,
                 const EvalCell& cell, uint32_t n_cases, EvalResult& out);

} // namespace ks
