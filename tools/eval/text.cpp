// Compares the next-token distributions of a recipe with those of the exact cache on the same text.
#include "tools/eval/eval.h"
#include "tools/scores.h"

#include <algorithm>
#include <cmath>

namespace ks
{

constexpr size_t kMostKept = 64 << 20; // bytes of logits kept from exact
constexpr uint32_t kLongestPart = 256; // tokens fed at once

// Turns logits into log probabilities.
static void normalise(float* x, uint32_t n)
{
    const float off = float(log_sum_exp(x, n));
    for (uint32_t i = 0; i < n; i++) x[i] -= off;
}

struct TextSums {
    double n = 0, same_top = 0, divergence = 0, loss = 0, exact_loss = 0;

    void add(const float* exact, const float* ours, uint32_t n_vocab, const uint32_t* next)
    {
        n++;
        same_top += std::max_element(exact, exact + n_vocab) - exact ==
                    std::max_element(ours, ours + n_vocab) - ours;
        double sum = 0;
        for (uint32_t i = 0; i < n_vocab; i++)
            sum += std::exp(double(exact[i])) * (double(exact[i]) - double(ours[i]));
        divergence += sum;
        if (!next) return;
        loss -= double(ours[*next]);
        exact_loss -= double(exact[*next]);
    }
};

// Feeds a part of the text to both sessions and compares their distributions at evenly spaced
// tokens. first: the position of the part in its text. The parts do not change which tokens are
// compared.
static Status compare(Session& session, Session& exact, const uint32_t* ids, uint32_t first,
                      uint32_t n, uint32_t n_after, TextSums& sums)
{
    const uint32_t n_vocab = session.model().config().n_vocab;
    const uint32_t stride = uint32_t((4ull * n_vocab * kLongestPart + kMostKept - 1) / kMostKept);
    auto compared = [&](size_t i) { return (first + i) % stride == 0; };
    std::vector<float> kept, ours(n_vocab);
    KS_TRY(exact.feed_each(ids, n, [&](size_t i) {
        if (compared(i)) kept.insert(kept.end(), exact.logits(), exact.logits() + n_vocab);
    }));
    float* theirs = kept.data();
    return session.feed_each(ids, n, [&](size_t i) {
        if (!compared(i)) return;
        ours.assign(session.logits(), session.logits() + n_vocab);
        normalise(ours.data(), n_vocab);
        normalise(theirs, n_vocab);
        sums.add(theirs, ours.data(), n_vocab, i + 1 < n + n_after ? ids + i + 1 : nullptr);
        theirs += n_vocab;
    });
}

Status eval_text(Session& session, Session& exact, const std::vector<uint32_t>& ids,
                 const EvalCell& cell, uint32_t n_cases, EvalResult& out)
{
    TextSums sums;
    std::string hashes;
    const uint32_t part = std::min(session.plan().chunk, kLongestPart);
    for (uint32_t c = 0; c < n_cases && size_t(c + 1) * cell.length <= ids.size(); c++) {
        session.clear();
        exact.clear();
        const uint32_t* text = ids.data() + size_t(c) * cell.length;
        for (uint32_t at = 0; at < cell.length; at += part) {
            const uint32_t n = std::min(part, cell.length - at);
            KS_TRY(compare(session, exact, text + at, at, n, at + n < cell.length, sums));
        }
        out.n_cases++;
        out.evicted += session.evicted();
        out.merged += session.merged();
        hashes += logits_hash(session.logits(), session.model().config().n_vocab);
    }
    if (sums.n == 0)
        return fail(Code::usage, "eval: expected at least %u tokens in the text of -f, found %zu",
                    cell.length, ids.size());
    out.accuracy = sums.same_top / sums.n;
    out.divergence = sums.divergence / sums.n;
    out.log_loss = sums.loss / sums.n;
    out.exact_log_loss = sums.exact_loss / sums.n;
    out.survival = -1;
    out.hash = bytes_hash(hashes.data(), hashes.size());
    return {};
}

} // namespace ks
