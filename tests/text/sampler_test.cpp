// The sampler against a plain float64 implementation of the same chain, by the distribution of many
// draws.
#include "tests/text/sampler_bed.h"

#include <cstdlib>
#include <doctest/doctest.h>
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

// Standard deviations by which chi-square exceeds its expected value (Wilson and Hilferty).
static double chi_square_excess(const Distribution& want, const std::map<uint32_t, int>& got, int n)
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

static std::vector<std::pair<const char*, SamplerOptions>> option_cases()
{
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
    return cases;
}

TEST_CASE("sampler: many draws are distributed as the options say")
{
    constexpr int kDraws = 3000;
    const std::vector<uint32_t> history = {3, 149, 3, 7, 3, 99, 0, 149, 5, 3};
    for (uint32_t n_vocab : {150u, 300u})
        for (auto& [name, o] : option_cases()) {
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
    // All bits of the seed matter.
    CHECK(sequence(1, false) != sequence(1 + (uint64_t(1) << 32), false));
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
