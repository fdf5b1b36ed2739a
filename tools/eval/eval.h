// One measurement of `eval`: a suite at a length, with a recipe in a share of the exact cache's
// bytes.
#pragma once

#include "tools/eval/suites.h"
#include "tools/program.h"

namespace ks
{

struct EvalCell {
    std::string suite; // "text" or the name of one of eval_suites()
    uint32_t length;   // tokens
    bool later;        // the question is fed separately, after the text
    std::string recipe;
    double share; // percent of the bytes that exact needs
};

struct EvalResult {
    std::string recipe; // in full
    uint64_t cache_bytes = 0, exact_bytes = 0;
    uint32_t n_cases = 0;
    double accuracy = 0; // share of right answers; text: how often the top tokens agree with exact
    double log_loss = 0; // per token of the answers, or of the text
    double divergence = 0;     // KL divergence from exact; text only
    double exact_log_loss = 0; // text only
    double survival = 0;       // share of heads that hold 80% of the needle; negative: no needle
    std::vector<double> depth_sums, depth_counts; // of accuracy, by the tenth with the needle
    uint64_t evicted = 0, merged = 0;
    std::string hash; // of the logits at the end of every case
    double seconds = 0;
};

constexpr double kControl = 0.8; // the accuracy that exact must reach, or a suite is left out

struct Interval {
    double low, high;
};
Interval wilson(double n_hits, double n); // the 95% score interval

// A case as token ids. `answer` is empty if the suite has n_free.
struct EvalPrompt {
    std::vector<uint32_t> text, question, answer;
    uint32_t needle_begin = 0, n_needle = 0;
    std::vector<std::string> answers;

    size_t n_tokens(const EvalSuite& suite) const
    {
        return text.size() + question.size() + answer.size() + suite.n_free;
    }
};
// The largest case of at most `length` tokens.
EvalPrompt make_prompt(const EvalSuite& suite, const Tokenizer& tokenizer, uint64_t seed,
                       uint32_t nth, uint32_t length, bool later);

Status eval_suite(Session& session, const EvalSuite& suite, const EvalCell& cell, uint64_t seed,
                  uint32_t n_cases, EvalResult& out);
// Measures at most n_cases consecutive pieces of a text. `exact` is fed the same tokens.
Status eval_text(Session& session, Session& exact, const std::vector<uint32_t>& ids,
                 const EvalCell& cell, uint32_t n_cases, EvalResult& out);

} // namespace ks
