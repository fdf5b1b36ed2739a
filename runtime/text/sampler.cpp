#include "runtime/text/sampler.h"

#include "runtime/base/rng.h"
#include "runtime/base/status.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ks
{
namespace
{

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Moves the best items to the front, best first, up to and including the first for which enough()
// is true; returns their number. Costs O(n) plus O(log n) per kept item, so it never sorts the
// whole vocabulary.
template <class T, class Better, class Enough>
size_t keep_best(T* items, size_t n, Better better, Enough enough)
{
    auto worse = [&](const T& a, const T& b) { return better(b, a); };
    std::make_heap(items, items + n, worse);
    size_t left = n;
    while (left > 0) {
        std::pop_heap(items, items + left, worse);
        left--;
        if (enough(items[left])) break;
    }
    std::reverse(items, items + n);
    return n - left;
}

} // namespace

uint64_t Sampler::bytes_needed(uint32_t n_vocab)
{
    return uint64_t(n_vocab) * sizeof(Candidate);
}

Sampler::Sampler(const SamplerOptions& options, uint32_t n_vocab, void* memory)
    : m_options(options), m_n_vocab(n_vocab), m_candidates(static_cast<Candidate*>(memory))
{
    KS_CHECK(n_vocab > 0 && memory, "n_vocab %u, memory %p", n_vocab, memory);
    const SamplerOptions& o = m_options;
    m_penalises = o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0;
    m_recent.resize(std::min(o.repeat_last_n, kMaxRepeatLastN));
    m_changes.reserve((m_penalises ? m_recent.size() : 0) + o.logit_bias.size());
}

void Sampler::accept(uint32_t token)
{
    KS_CHECK(token < m_n_vocab, "token %u of %u", token, m_n_vocab);
    if (!m_recent.empty()) m_recent[m_n_recent++ % m_recent.size()] = token;
}

void Sampler::reset()
{
    m_n_recent = 0;
    m_counter = 0;
}

SamplerState Sampler::state() const
{
    SamplerState state{m_options.seed, m_counter, {}};
    const size_t n = std::min(m_n_recent, m_recent.size());
    for (size_t i = m_n_recent - n; i < m_n_recent; i++)
        state.recent.push_back(m_recent[i % m_recent.size()]);
    return state;
}

void Sampler::set_state(const SamplerState& state)
{
    reset();
    m_counter = state.n_draws;
    for (uint32_t token : state.recent) accept(token);
}

void Sampler::collect_changes(const float* logits)
{
    const SamplerOptions& o = m_options;
    m_changes.clear();
    for (size_t i = 0; m_penalises && i < std::min(m_n_recent, m_recent.size()); i++)
        m_changes.push_back({m_recent[i], 1, 0});
    for (const auto& [id, bias] : o.logit_bias)
        if (id < m_n_vocab) m_changes.push_back({id, 0, bias});
    std::sort(m_changes.begin(), m_changes.end(),
              [](const Change& a, const Change& b) { return a.id < b.id; });
    size_t n = 0;
    for (const Change& change : m_changes) {
        if (n > 0 && m_changes[n - 1].id == change.id) {
            m_changes[n - 1].n_seen += change.n_seen;
            m_changes[n - 1].logit += change.logit;
        } else {
            m_changes[n++] = change;
        }
    }
    m_changes.resize(n);
    for (Change& c : m_changes) {
        c.logit += logits[c.id];
        if (c.n_seen == 0) continue;
        c.logit = c.logit > 0 ? c.logit / o.repeat_penalty : c.logit * o.repeat_penalty;
        c.logit -= float(c.n_seen) * o.frequency_penalty + o.presence_penalty;
    }
}

// Calls take(logit, id) in ascending order of ids for every logit above the threshold, which take()
// may raise. NaN is skipped.
template <class Take>
void Sampler::scan(const float* logits, float& threshold, Take take) const
{
    // Most blocks have nothing to take. The compiler vectorises the test for that.
    constexpr uint32_t kBlock = 64;
    uint32_t at = 0;
    for (size_t i = 0; i <= m_changes.size(); i++) {
        uint32_t end = i < m_changes.size() ? m_changes[i].id : m_n_vocab;
        while (at < end) {
            uint32_t stop = std::min(at + kBlock, end);
            int any = 0;
            if (stop - at == kBlock)
                for (uint32_t j = 0; j < kBlock; j++) any |= logits[at + j] > threshold;
            else
                any = 1;
            for (; any && at < stop; at++)
                if (logits[at] > threshold && is_allowed(at)) take(logits[at], at);
            at = stop;
        }
        if (i < m_changes.size() && m_changes[i].logit > threshold && is_allowed(end))
            take(m_changes[i].logit, end);
        at = end + 1;
    }
}

uint32_t Sampler::greedy(const float* logits) const
{
    float best = kMinusInfinity;
    uint32_t token = m_n_vocab;
    scan(logits, best, [&](float logit, uint32_t id) {
        best = logit;
        token = id;
    });
    if (token < m_n_vocab) return token;
    for (bool or_nan : {false, true}) // all logits are -inf or NaN
        for (uint32_t id = 0; id < m_n_vocab; id++)
            if (is_allowed(id) && (or_nan || !std::isnan(logits[id]))) return id;
    return 0;
}

// Collects the candidates: the best top_k, best first. Without top_k, all tokens above -inf in
// order of ids.
size_t Sampler::gather(const float* logits)
{
    const size_t k = m_options.top_k;
    const bool limited = k > 0 && k < m_n_vocab;
    const size_t capacity =
        limited ? std::min<size_t>(m_n_vocab, 4 * k + 1024) : m_n_vocab + size_t(1);
    Candidate* c = m_candidates;
    float threshold = kMinusInfinity;
    size_t n = 0;
    scan(logits, threshold, [&](float logit, uint32_t id) {
        c[n++] = {logit, id};
        if (n < capacity) return;
        std::nth_element(c, c + k - 1, c + n, better);
        threshold = c[k - 1].logit;
        n = k;
    });
    if (limited) {
        std::partial_sort(c, c + std::min(k, n), c + n, better);
        n = std::min(k, n);
    }
    return n;
}

// Locally typical sampling: keeps the tokens whose surprisal is nearest to the entropy, until their
// probabilities exceed typical_p.
size_t Sampler::keep_typical(size_t n)
{
    Candidate* c = m_candidates;
    const double top = std::min_element(c, c + n, better)->logit;
    double sum = 0, weighted = 0;
    for (size_t i = 0; i < n; i++) {
        double weight = std::exp(c[i].logit - top);
        sum += weight;
        weighted += weight * (c[i].logit - top);
    }
    const double typical = top + weighted / sum; // the logit whose surprisal equals the entropy
    double kept = 0;
    return keep_best(
        c, n,
        [&](const Candidate& a, const Candidate& b) {
            double da = std::fabs(a.logit - typical), db = std::fabs(b.logit - typical);
            return da < db || (da == db && better(a, b));
        },
        [&](const Candidate& a) {
            return (kept += std::exp(a.logit - top) / sum) > m_options.typical_p;
        });
}

size_t Sampler::keep_top_p(size_t n)
{
    Candidate* c = m_candidates;
    const double top = std::min_element(c, c + n, better)->logit;
    double sum = 0, kept = 0;
    for (size_t i = 0; i < n; i++) sum += std::exp(c[i].logit - top);
    return keep_best(c, n, better, [&](const Candidate& a) {
        return (kept += std::exp(a.logit - top) / sum) >= m_options.top_p;
    });
}

size_t Sampler::keep_min_p(size_t n)
{
    Candidate* c = m_candidates;
    const double least = std::min_element(c, c + n, better)->logit +
                         std::log(std::min(1.0, double(m_options.min_p)));
    return size_t(std::remove_if(c, c + n, [&](const Candidate& a) { return a.logit < least; }) -
                  c);
}

uint32_t Sampler::draw(size_t n)
{
    const Candidate* c = m_candidates;
    const double top = std::min_element(c, c + n, better)->logit;
    auto weight = [&](size_t i) { return std::exp((c[i].logit - top) / m_options.temperature); };
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += weight(i);
    double left = random_uniform(m_options.seed, m_counter++) * sum;
    size_t chosen = 0;
    for (size_t i = 0; i < n && left >= 0; i++) {
        double w = weight(i);
        if (w > 0) chosen = i; // rounding may leave a remainder: then the last such token
        left -= w;
    }
    return c[chosen].id;
}

// The samplers run in llama.cpp's default order, so equal options mean the same.
uint32_t Sampler::choose(const float* logits, TokenFilter* filter)
{
    const SamplerOptions& o = m_options;
    m_filter = filter;
    collect_changes(logits);
    size_t n = o.temperature > 0 ? gather(logits) : 0;
    uint32_t token;
    if (n == 0 || std::any_of(m_candidates, m_candidates + n,
                              [](const Candidate& c) { return std::isinf(c.logit); })) {
        token = greedy(logits);
    } else {
        if (o.typical_p < 1) n = keep_typical(n);
        if (o.top_p < 1) n = keep_top_p(n);
        if (o.min_p > 0) n = keep_min_p(n);
        token = draw(n);
    }
    return token;
}

uint32_t Sampler::sample(const float* logits)
{
    const uint32_t token = choose(logits);
    accept(token);
    return token;
}

} // namespace ks
