// Feeds the cases of a suite and counts the right answers.
#include "tools/cache_statistics.h"
#include "tools/eval/eval.h"
#include "tools/scores.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace ks
{

Interval wilson(double n_hits, double n)
{
    constexpr double z = 1.959964;
    const double p = n_hits / n, d = 1 + z * z / n, middle = (p + z * z / 2 / n) / d;
    const double half = z * std::sqrt(p * (1 - p) / n + z * z / 4 / n / n) / d;
    return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

static std::vector<uint32_t> encode(const Tokenizer& tokenizer, const std::string& text,
                                    bool begins)
{
    std::vector<uint32_t> ids;
    EncodeOptions options;
    options.add_bos = begins;
    tokenizer.encode(text, options, ids);
    return ids;
}

// Splits the encoding of question and answer. A tokenizer may join the end of one with the
// beginning of the other, so the question is the common prefix of both encodings.
static void split_answer(EvalPrompt& prompt, const std::vector<uint32_t>& with_answer)
{
    size_t n = 0;
    while (n < prompt.question.size() && n < with_answer.size() &&
           prompt.question[n] == with_answer[n])
        n++;
    prompt.question.resize(n);
    prompt.answer.assign(with_answer.begin() + ptrdiff_t(n), with_answer.end());
}

static EvalPrompt encode_case(const EvalCase& c, const Tokenizer& tokenizer, bool forced,
                              bool later)
{
    EvalPrompt prompt;
    prompt.answers = c.answers;
    prompt.needle_begin = uint32_t(encode(tokenizer, c.before, true).size());
    prompt.n_needle =
        c.needle.empty()
            ? 0
            : uint32_t(encode(tokenizer, c.before + c.needle, true).size()) - prompt.needle_begin;
    const std::string text = c.before + c.needle + c.after;
    if (later) prompt.text = encode(tokenizer, text, true);
    const std::string head = later ? "" : text;
    prompt.question = encode(tokenizer, head + c.question, !later);
    if (forced) split_answer(prompt, encode(tokenizer, head + c.question + c.answers[0], !later));
    return prompt;
}

EvalPrompt make_prompt(const EvalSuite& suite, const Tokenizer& tokenizer, uint64_t seed,
                       uint32_t nth, uint32_t length, bool later)
{
    auto make = [&](uint32_t size) {
        Dice dice(seed, suite.name, nth);
        return encode_case(suite.make(dice, size), tokenizer, suite.n_free == 0, later);
    };
    auto fits = [&](uint32_t size) { return make(size).n_tokens(suite) <= length; };
    uint32_t low = 1, high = 2;
    while (high < length && fits(high)) low = high, high *= 2;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        (fits(middle) ? low : high) = middle;
    }
    return make(low);
}

static uint32_t most_probable(const Session& session)
{
    const float* logits = session.logits();
    return uint32_t(std::max_element(logits, logits + session.model().config().n_vocab) - logits);
}

// *hit is 1 if greedy decoding would generate exactly the answer.
static Status follow_answer(Session& session, const EvalPrompt& prompt, double* hit,
                            double* log_loss)
{
    *hit = 1;
    for (size_t i = 0; i < prompt.answer.size(); i++) {
        const uint32_t id = prompt.answer[i];
        if (most_probable(session) != id) *hit = 0;
        const double log_probability =
            double(session.logits()[id]) -
            log_sum_exp(session.logits(), session.model().config().n_vocab);
        *log_loss -= log_probability / double(prompt.answer.size());
        if (i + 1 < prompt.answer.size()) KS_TRY(session.feed(&id, 1));
    }
    return {};
}

static std::string lower(std::string text)
{
    for (char& c : text) c = char(tolower(uint8_t(c)));
    return text;
}

// *hit is the share of the answers that the model generates in n_free tokens.
static Status write_answer(Session& session, const EvalPrompt& prompt, uint32_t n_free, double* hit)
{
    const Tokenizer& tokenizer = session.model().tokenizer();
    std::string text, piece(tokenizer.max_piece_bytes(), 0);
    for (uint32_t i = 0; i < n_free; i++) {
        const uint32_t id = most_probable(session);
        if (tokenizer.is_end(id)) break;
        text.append(piece.data(), tokenizer.piece(id, piece.data()));
        if (i + 1 < n_free) KS_TRY(session.feed(&id, 1));
    }
    uint32_t n_found = 0;
    for (const std::string& answer : prompt.answers)
        n_found += lower(text).find(lower(answer)) != std::string::npos;
    *hit = double(n_found) / double(prompt.answers.size());
    return {};
}

Status eval_suite(Session& session, const EvalSuite& suite, const EvalCell& cell, uint64_t seed,
                  uint32_t n_cases, EvalResult& out)
{
    double survival = 0;
    uint32_t n_needles = 0;
    std::string hashes;
    out.depth_sums.assign(10, 0);
    out.depth_counts.assign(10, 0);
    for (uint32_t i = 0; i < n_cases; i++) {
        const EvalPrompt prompt =
            make_prompt(suite, session.model().tokenizer(), seed, i, cell.length, cell.later);
        if (prompt.n_tokens(suite) > cell.length)
            return fail(Code::usage,
                        "eval: the smallest case of %s has %zu tokens; --lengths allows %u",
                        suite.name, prompt.n_tokens(suite), cell.length);
        session.clear();
        if (!prompt.text.empty()) KS_TRY(session.feed(prompt.text.data(), prompt.text.size()));
        KS_TRY(session.feed(prompt.question.data(), prompt.question.size()));
        if (prompt.n_needle) {
            survival += share_holding(session.cache(), session.n_tokens(), prompt.needle_begin,
                                      prompt.n_needle, 0.8);
            n_needles++;
        }
        double hit = 0;
        if (suite.n_free)
            KS_TRY(write_answer(session, prompt, suite.n_free, &hit));
        else
            KS_TRY(follow_answer(session, prompt, &hit, &out.log_loss));
        out.accuracy += hit / n_cases;
        const uint32_t tenth = std::min(9u, 10 * prompt.needle_begin / cell.length);
        out.depth_sums[tenth] += hit;
        out.depth_counts[tenth]++;
        out.evicted += session.evicted();
        out.merged += session.merged();
        hashes += logits_hash(session.logits(), session.model().config().n_vocab);
    }
    out.n_cases = n_cases;
    out.log_loss /= n_cases;
    out.survival = n_needles ? survival / n_needles : -1;
    out.hash = bytes_hash(hashes.data(), hashes.size());
    return {};
}

} // namespace ks
