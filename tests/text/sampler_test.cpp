// The sampler against a plain float64 implementation of the same chain, by the distribution of many
// draws, and edge cases.
#include "runtime/text/sampler.h"

#include "runtime/base/rng.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>
#include <limits>
#include <map>
#include <new>

using namespace ks;

size_t g_allocations = 0; // also counted for the other tests of this folder

__attribute__((weak)) void* operator new(size_t bytes)
{
    g_allocations++;
    void* memory = malloc(bytes ? bytes : 1);
    if (!memory) abort();
    return memory;
}
__attribute__((weak)) void* operator new(size_t bytes, const std::nothrow_t&) noexcept
{
    return operator new(bytes);
}
__attribute__((weak)) void operator delete(void* memory) noexcept
{
    free(memory);
}
__attribute__((weak)) void operator delete(void* memory, size_t) noexcept
{
    free(memory);
}

namespace
{

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct TestSampler {
    std::vector<char> memory;
    Sampler sampler;
    TestSampler(const SamplerOptions& options, uint32_t n_vocab)
        : memory(Sampler::bytes_needed(n_vocab)), sampler(options, n_vocab, memory.data())
    {
    }
};

uint32_t sample_once(const SamplerOptions& options, const std::vector<float>& logits)
{
    TestSampler t(options, uint32_t(logits.size()));
    return t.sampler.sample(logits.data());
}

std::vector<float> random_logits(uint32_t n, uint64_t seed, double scale)
{
    std::vector<float> logits(n);
    for (uint32_t i = 0; i < n; i++) {
        double radius = std::sqrt(-2 * std::log(1 - random_uniform(seed, 2 * i)));
        logits[i] =
            float(scale * radius * std::cos(6.283185307179586 * random_uniform(seed, 2 * i + 1)));
    }
    return logits;
}

using Distribution = std::map<uint32_t, double>;

std::vector<double> softmax(const std::vector<std::pair<double, uint32_t>>& c)
{
    double top = c[0].first, sum = 0;
    for (auto& [l, id] : c) top = std::max(top, l);
    std::vector<double> p;
    for (auto& [l, id] : c) sum += std::exp(l - top);
    for (auto& [l, id] : c) p.push_back(std::exp(l - top) / sum);
    return p;
}

// The expected distribution, in float64, with full sorting. `history` holds all accepted tokens.
Distribution expected(const SamplerOptions& o, const std::vector<float>& logits,
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
    std::vector<std::pair<double, uint32_t>> c;
    for (uint32_t id = 0; id < l.size(); id++)
        if (l[id] > -INFINITY) c.push_back({l[id], id});
    auto by_logit = [](const std::pair<double, uint32_t>& a, const std::pair<double, uint32_t>& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    };
    std::sort(c.begin(), c.end(), by_logit);
    if (o.top_k > 0 && o.top_k < c.size()) c.resize(o.top_k);
    if (o.typical_p < 1) {
        std::vector<double> p = softmax(c);
        double entropy = 0, sum = 0;
        for (double x : p) entropy -= x * std::log(x);
        std::vector<size_t> order(c.size());
        for (size_t i = 0; i < c.size(); i++) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return std::fabs(-std::log(p[a]) - entropy) < std::fabs(-std::log(p[b]) - entropy);
        });
        std::vector<std::pair<double, uint32_t>> kept;
        for (size_t i : order) {
            kept.push_back(c[i]);
            sum += p[i];
            if (sum > double(o.typical_p)) break;
        }
        c = kept;
        std::sort(c.begin(), c.end(), by_logit);
    }
    if (o.top_p < 1) {
        std::vector<double> p = softmax(c);
        double sum = 0;
        for (size_t i = 0; i < c.size(); i++) {
            sum += p[i];
            if (sum >= double(o.top_p)) c.resize(i + 1);
        }
    }
    if (o.min_p > 0) {
        std::vector<double> p = softmax(c);
        size_t n = 1;
        while (n < c.size() && p[n] >= p[0] * double(o.min_p)) n++;
        c.resize(n);
    }
    for (auto& [logit, id] : c) logit /= double(o.temperature);
    std::vector<double> p = softmax(c);
    Distribution out;
    for (size_t i = 0; i < c.size(); i++) out[c[i].second] = p[i];
    return out;
}

// Draws from a new sampler that has accepted `history`. Every draw is from the same step.
std::map<uint32_t, int> draws(SamplerOptions o, const std::vector<float>& logits,
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

// Standard deviations by which chi-square exceeds its expected value (Wilson and Hilferty).
double chi_square_excess(const Distribution& want, const std::map<uint32_t, int>& got, int n)
{
    double chi = 0, rare_want = 0, rare_got = 0;
    int bins = 0;
    auto add = [&](double w, double g) {
        chi += (g - w) * (g - w) / w;
        bins++;
    };
    for (auto& [id, p] : want) {
        double g = got.count(id) ? got.at(id) : 0;
        if (p * n >= 8) {
            add(p * n, g);
        } else {
            rare_want += p * n;
            rare_got += g;
        }
    }
    if (rare_want > 0) add(std::max(rare_want, 1.0), rare_got);
    int df = bins - 1;
    if (df < 1) return 0;
    double a = 2.0 / (9.0 * df);
    return (std::cbrt(chi / df) - (1 - a)) / std::sqrt(a);
}

} // namespace

TEST_CASE("sampler: many draws are distributed as the options say")
{
    constexpr int kDraws = 3000;
    std::vector<std::pair<const char*, SamplerOptions>> cases;
    auto add = [&](const char* name, auto set) {
        SamplerOptions o;
        o.temperature = 1;
        o.top_k = 0;
        o.top_p = 1;
        o.min_p = 0;
        set(o);
        cases.push_back({name, o});
    };
    add("defaults", [](SamplerOptions& o) { o = SamplerOptions(); });
    add("temperature 1", [](SamplerOptions&) {});
    add("temperature 0.5", [](SamplerOptions& o) { o.temperature = 0.5f; });
    add("temperature 3", [](SamplerOptions& o) { o.temperature = 3; });
    add("top-k", [](SamplerOptions& o) { o.top_k = 7; });
    add("top-p", [](SamplerOptions& o) { o.top_p = 0.7f; });
    add("min-p", [](SamplerOptions& o) { o.min_p = 0.1f; });
    add("typical", [](SamplerOptions& o) { o.typical_p = 0.5f; });
    add("typical, top-k, top-p",
        [](SamplerOptions& o) { o.typical_p = 0.8f, o.top_k = 30, o.top_p = 0.9f; });
    add("min-p before temperature", [](SamplerOptions& o) { o.min_p = 0.3f, o.temperature = 5; });
    add("repeat", [](SamplerOptions& o) { o.repeat_penalty = 1.5f; });
    add("presence", [](SamplerOptions& o) { o.presence_penalty = 2; });
    add("frequency", [](SamplerOptions& o) { o.frequency_penalty = 0.7f; });
    add("penalties over a short past", [](SamplerOptions& o) {
        o.repeat_penalty = 1.3f, o.frequency_penalty = 0.4f, o.repeat_last_n = 3;
    });
    add("penalties over no past",
        [](SamplerOptions& o) { o.repeat_penalty = 5, o.repeat_last_n = 0; });
    add("rewarded repeats",
        [](SamplerOptions& o) { o.repeat_penalty = 0.7f, o.presence_penalty = -1; });
    add("bias", [](SamplerOptions& o) {
        o.logit_bias = {{3, 4.f}, {3, -1.f}, {0, -kInf}, {149, 2.f}};
    });
    add("bias and penalties and all", [](SamplerOptions& o) {
        o = SamplerOptions();
        o.logit_bias = {{3, 5.f}};
        o.repeat_penalty = 1.1f, o.frequency_penalty = 0.2f, o.typical_p = 0.9f;
    });
    const std::vector<uint32_t> history = {3, 149, 3, 7, 3, 99, 0, 149, 5, 3};
    for (uint32_t n_vocab : {150u, 300u})
        for (auto& [name, o] : cases) {
            CAPTURE(name);
            CAPTURE(n_vocab);
            std::vector<float> logits = random_logits(n_vocab, 11 + n_vocab, 2.5);
            SamplerOptions seeded = o;
            seeded.seed = 5;
            Distribution want = expected(seeded, logits, history);
            std::map<uint32_t, int> got = draws(seeded, logits, history, kDraws);
            int outside = 0;
            for (auto& [id, count] : got) outside += want.count(id) ? 0 : count;
            CHECK(outside == 0);
            CHECK(chi_square_excess(want, got, kDraws) < 4.5);
        }
}

TEST_CASE("sampler: random options keep exactly the tokens that the float64 chain keeps")
{
    auto u = [i = uint64_t(0)]() mutable { return random_uniform(77, i++); };
    for (int round = 0; round < 300; round++) {
        SamplerOptions o;
        o.seed = uint64_t(round);
        o.temperature = 1000; // makes all kept tokens about equally probable
        o.top_k = u() < 0.3 ? 0 : uint32_t(1 + u() * 40);
        o.top_p = u() < 0.3 ? 1 : float(u());
        o.min_p = u() < 0.3 ? 0 : float(u() * 0.3);
        o.typical_p = u() < 0.5 ? 1 : float(u());
        std::vector<float> logits =
            random_logits(uint32_t(2 + u() * 60), uint64_t(round), 1 + 2 * u());
        CAPTURE(round);
        Distribution want = expected(o, logits, {});
        std::map<uint32_t, int> got = draws(o, logits, {}, int(want.size() * 25));
        CHECK(got.size() == want.size());
        for (auto& [id, count] : got) CHECK(want.count(id) == 1);
    }
}

TEST_CASE("sampler: greedy")
{
    SamplerOptions o;
    o.temperature = 0;
    CHECK(sample_once(o, {1, 3, 2}) == 1);
    CHECK(sample_once(o, {1, 3, 3, 3}) == 1); // ties: the lower id
    CHECK(sample_once(o, {-kInf, -kInf, -5}) == 2);
    CHECK(sample_once(o, {kNan, -1, kNan, -2}) == 1);
    CHECK(sample_once(o, {kNan, -kInf, kNan}) == 1);
    CHECK(sample_once(o, {kNan, kNan}) == 0);
    CHECK(sample_once(o, {-kInf, -kInf}) == 0);
    CHECK(sample_once(o, {0, kInf, kInf}) == 1);
    CHECK(sample_once(o, {-2.5f}) == 0);
    for (uint32_t n : {1u, 63u, 64u, 65u, 200u, 1000u})
        for (uint32_t at : {0u, n / 2, n - 1}) { // every position in a block, and both ends
            std::vector<float> logits(n, -1.f);
            logits[at] = 1;
            CHECK(sample_once(o, logits) == at);
        }
    o.temperature = -1;
    CHECK(sample_once(o, {1, 3, 2}) == 1);
    o.temperature = kNan;
    CHECK(sample_once(o, {1, 3, 2}) == 1);

    o.temperature = 0;
    o.logit_bias = {{0, 10.f}, {1, -kInf}, {9, 100.f}}; // 9 is not a token
    CHECK(sample_once(o, {1, 30, 2}) == 0);
    o = SamplerOptions();
    o.temperature = 0;
    o.presence_penalty = 1;
    TestSampler t(o, 4);
    const float logits[] = {3.5f, 3, 2.2f, 0};
    std::vector<uint32_t> tokens;
    for (int i = 0; i < 5; i++)
        tokens.push_back(
            t.sampler.sample(logits)); // each token is penalised once, however often it was drawn
    CHECK(tokens == std::vector<uint32_t>{0, 1, 0, 0, 0});
    t.sampler.reset();
    CHECK(t.sampler.sample(logits) == 0);
    CHECK(t.sampler.sample(logits) == 1);

    o = SamplerOptions();
    o.temperature = 0;
    o.repeat_penalty = 2;
    TestSampler below(o, 2);
    const float negative[] = {-1, -1.5f};
    CHECK(below.sampler.sample(negative) == 0);
    CHECK(below.sampler.sample(negative) == 1); // a penalty also lowers negative logits
}

TEST_CASE("sampler: borders")
{
    auto distinct = [](const SamplerOptions& o, const std::vector<float>& logits) {
        return draws(o, logits, {}, 2000).size();
    };
    const std::vector<float> logits = {0, 2, 1, 2, -1};
    SamplerOptions all;
    all.top_k = 0, all.top_p = 1, all.min_p = 0, all.temperature = 100, all.seed = 3;
    CHECK(distinct(all, logits) == 5);

    SamplerOptions o = all;
    o.top_k = 1;
    CHECK(draws(o, logits, {}, 100) == std::map<uint32_t, int>{{1, 100}}); // on ties the lower id
    o.top_k = 4;
    CHECK(distinct(o, logits) == 4);
    for (uint32_t k : {5u, 6u, 4000000000u}) {
        o.top_k = k;
        CHECK(distinct(o, logits) == 5);
    }
    o = all;
    o.top_p = 1e-9f;
    CHECK(draws(o, logits, {}, 100) == std::map<uint32_t, int>{{1, 100}});
    o.top_p = 0;
    CHECK(draws(o, logits, {}, 100) == std::map<uint32_t, int>{{1, 100}});
    o = all;
    o.min_p = 1;
    CHECK(draws(o, logits, {}, 100).size() == 2); // both of the best
    o.min_p = 7;
    CHECK(draws(o, logits, {}, 100).size() == 2);
    o = all;
    o.typical_p = 0;
    CHECK(distinct(o, logits) == 1);
    CHECK(draws(o, {1, 1, 1}, {}, 100) ==
          std::map<uint32_t, int>{{0, 100}}); // on ties the lower id

    CHECK(draws(all, {-kInf, -kInf, 0.5f, -kInf}, {}, 100) == std::map<uint32_t, int>{{2, 100}});
    CHECK(draws(all, {kNan, 1, kNan}, {}, 100) == std::map<uint32_t, int>{{1, 100}});
    CHECK(draws(all, {kNan, kNan, kNan}, {}, 10) == std::map<uint32_t, int>{{0, 10}});
    CHECK(draws(all, {1, kInf, 2}, {}, 10) == std::map<uint32_t, int>{{1, 10}});
    CHECK(draws(all, {42}, {}, 10) == std::map<uint32_t, int>{{0, 10}});
    CHECK(draws(all, {3e38f, -3e38f}, {}, 10) == std::map<uint32_t, int>{{0, 10}});
    CHECK(distinct(all, std::vector<float>(50, 7.f)) == 50);
    o = all;
    o.temperature = 1e-30f;
    CHECK(draws(o, logits, {}, 500).size() == 2); // equal logits stay equal at any temperature
    o = SamplerOptions();
    CHECK(distinct(o, std::vector<float>(3000, 7.f)) ==
          38); // 40 equal tokens; 38 of them make up 95%
}

TEST_CASE("sampler: top-k of a vocabulary in any order is what sorting gives")
{
    for (uint32_t n_vocab : {1200u, 5000u})
        for (uint32_t k : {1u, 40u, 100u})
            for (int order = 0; order < 4; order++) {
                std::vector<float> logits = random_logits(n_vocab, 3, 2);
                if (order == 1) std::sort(logits.begin(), logits.end());
                if (order == 2) std::sort(logits.rbegin(), logits.rend());
                if (order == 3)
                    for (float& l : logits) l = std::floor(l); // many ties
                SamplerOptions o;
                o.top_k = k, o.top_p = 1, o.min_p = 0, o.temperature = 1e6f;
                Distribution want = expected(o, logits, {});
                std::map<uint32_t, int> got = draws(o, logits, {}, int(15 * k));
                CAPTURE(n_vocab);
                CAPTURE(k);
                CAPTURE(order);
                CHECK(got.size() == want.size());
                for (auto& [id, count] : got) CHECK(want.count(id) == 1);
            }
}

TEST_CASE("sampler: the draws are a function of seed and counter")
{
    std::vector<float> logits = random_logits(500, 1, 1);
    auto sequence = [&](uint64_t seed, bool reset_in_between) {
        SamplerOptions o;
        o.seed = seed;
        TestSampler t(o, 500);
        std::vector<uint32_t> out;
        for (int i = 0; i < 50; i++) out.push_back(t.sampler.sample(logits.data()));
        if (reset_in_between) {
            t.sampler.reset();
            for (uint32_t& token : out) token = t.sampler.sample(logits.data());
        }
        return out;
    };
    CHECK(sequence(1, false) == sequence(1, false));
    CHECK(sequence(1, false) == sequence(1, true));
    CHECK(sequence(1, false) != sequence(2, false));
    CHECK(sequence(1, false) !=
          sequence(1 + (uint64_t(1) << 32), false)); // all bits of the seed matter
}

TEST_CASE("sampler: a step allocates nothing, whatever it needs, and leaves the logits alone")
{
    std::vector<float> logits = random_logits(5000, 1, 2);
    const std::vector<float> before = logits;
    for (int full = 0; full < 2; full++) {
        SamplerOptions o;
        o.repeat_penalty = 1.1f, o.frequency_penalty = 0.1f, o.typical_p = 0.9f,
        o.repeat_last_n = 100;
        o.logit_bias = {{1, 1.f}, {4999, -2.f}};
        if (full) o.top_k = 0;
        TestSampler t(o, 5000);
        size_t allocations = g_allocations;
        for (int i = 0; i < 300; i++) t.sampler.sample(logits.data());
        CHECK(g_allocations == allocations);
    }
    std::vector<int> counted(10);
    CHECK(g_allocations > 0);
    CHECK(logits == before);
}
