// The sampler and a plain float64 implementation of its chain.
#pragma once

#include "runtime/base/rng.h"
#include "runtime/text/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace ks
{

inline const float kInf = std::numeric_limits<float>::infinity();
inline const float kNan = std::numeric_limits<float>::quiet_NaN();

struct TestSampler {
    std::vector<char> memory;
    Sampler sampler;
    TestSampler(const SamplerOptions& options, uint32_t n_vocab)
        : memory(Sampler::bytes_needed(n_vocab)), sampler(options, n_vocab, memory.data())
    {
    }
};

inline uint32_t sample_once(const SamplerOptions& options, const std::vector<float>& logits)
{
    TestSampler t(options, uint32_t(logits.size()));
    return t.sampler.sample(logits.data());
}

inline std::vector<float> random_logits(uint32_t n, uint64_t seed, double scale)
{
    std::vector<float> logits(n);
    for (uint32_t i = 0; i < n; i++) {
        double radius = std::sqrt(-2 * std::log(1 - random_uniform(seed, 2 * i)));
        logits[i] =
            float(scale * radius * std::cos(6.283185307179586 * random_uniform(seed, 2 * i + 1)));
    }
    return logits;
}

using Distribution = std::map<uint32_t, double>; // by token id

// A token's logit and its id.
using Entry = std::pair<double, uint32_t>;

inline std::vector<double> softmax(const std::vector<Entry>& c)
{
    double top = c[0].first, sum = 0;
    for (auto& [l, id] : c) top = std::max(top, l);
    std::vector<double> p;
    for (auto& [l, id] : c) sum += std::exp(l - top);
    for (auto& [l, id] : c) p.push_back(std::exp(l - top) / sum);
    return p;
}

inline bool by_logit(const Entry& a, const Entry& b)
{
    return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// The tokens that are possible, with biases and penalties applied, the best first.
inline std::vector<Entry> penalised(const SamplerOptions& o, const std::vector<float>& logits,
                                    const std::vector<uint32_t>& history)
{
    std::vector<double> l(logits.begin(), logits.end());
    for (auto& [id, bias] : o.logit_bias) l[id] += double(bias);
    std::map<uint32_t, int> count;
    for (size_t i = history.size() > o.repeat_last_n ? history.size() - o.repeat_last_n : 0;
         i < history.size(); i++)
        count[history[i]]++;
    for (auto& [id, n] : count) {
        l[id] = l[id] > 0 ? l[id] / double(o.repeat_penalty) : l[id] * double(o.repeat_penalty);
        l[id] -= n * double(o.frequency_penalty) + double(o.presence_penalty);
    }
    std::vector<Entry> c;
    for (uint32_t id = 0; id < l.size(); id++)
        if (l[id] > -INFINITY) c.push_back({l[id], id});
    std::sort(c.begin(), c.end(), by_logit);
    return c;
}

inline void keep_typical(std::vector<Entry>& c, float typical_p)
{
    std::vector<double> p = softmax(c);
    double entropy = 0, sum = 0;
    for (double x : p) entropy -= x * std::log(x);
    std::vector<size_t> order(c.size());
    for (size_t i = 0; i < c.size(); i++) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return std::fabs(-std::log(p[a]) - entropy) < std::fabs(-std::log(p[b]) - entropy);
    });
    std::vector<Entry> kept;
    for (size_t i : order) {
        kept.push_back(c[i]);
        sum += p[i];
        if (sum > double(typical_p)) break;
    }
    c = kept;
    std::sort(c.begin(), c.end(), by_logit);
}

inline void keep_top_p(std::vector<Entry>& c, float top_p)
{
    std::vector<double> p = softmax(c);
    double sum = 0;
    for (size_t i = 0; i < c.size(); i++) {
        sum += p[i];
        if (sum >= double(top_p)) c.resize(i + 1);
    }
}

inline void keep_min_p(std::vector<Entry>& c, float min_p)
{
    std::vector<double> p = softmax(c);
    size_t n = 1;
    while (n < c.size() && p[n] >= p[0] * double(min_p)) n++;
    c.resize(n);
}

// The expected distribution, in float64, with full sorting. `history` holds all accepted tokens.
inline Distribution expected(const SamplerOptions& o, const std::vector<float>& logits,
                             const std::vector<uint32_t>& history)
{
    std::vector<Entry> c = penalised(o, logits, history);
    if (o.top_k > 0 && o.top_k < c.size()) c.resize(o.top_k);
    if (o.typical_p < 1) keep_typical(c, o.typical_p);
    if (o.top_p < 1) keep_top_p(c, o.top_p);
    if (o.min_p > 0) keep_min_p(c, o.min_p);
    for (auto& [logit, id] : c) logit /= double(o.temperature);
    std::vector<double> p = softmax(c);
    Distribution out;
    for (size_t i = 0; i < c.size(); i++) out[c[i].second] = p[i];
    return out;
}

// Draws from a new sampler that has accepted `history`. Every draw is from the same step.
inline std::map<uint32_t, int> draws(SamplerOptions o, const std::vector<float>& logits,
                                     const std::vector<uint32_t>& history, int n)
{
    std::map<uint32_t, int> count;
    TestSampler t(o, uint32_t(logits.size()));
    for (uint32_t token : history) t.sampler.accept(token);
    Sampler start = t.sampler;
    bool penalised = o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0;
    for (int i = 0; i < n; i++) {
        if (penalised) { // a draw would change the next step
            o.seed = uint64_t(i);
            t.sampler = Sampler(o, uint32_t(logits.size()), t.memory.data());
            for (uint32_t token : history) t.sampler.accept(token);
        }
        count[t.sampler.sample(logits.data())]++;
    }
    return count;
}

} // namespace ks
