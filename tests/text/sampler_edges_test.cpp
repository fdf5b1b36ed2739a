// The sampler at its edges: greedy, options at their limits, logits that are infinite or NaN.
#include "tests/text/sampler_bed.h"

#include <doctest/doctest.h>

using namespace ks;

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
        // Each token is penalised once, however often it was drawn.
        tokens.push_back(t.sampler.sample(logits));
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

static size_t distinct(const SamplerOptions& o, const std::vector<float>& logits)
{
    return draws(o, logits, {}, 2000).size();
}

// Nearly equal probabilities for all tokens.
static SamplerOptions all_tokens()
{
    SamplerOptions o;
    o.top_k = 0, o.top_p = 1, o.min_p = 0, o.temperature = 100, o.seed = 3;
    return o;
}

TEST_CASE("sampler: limits of top-k, top-p, min-p and typical")
{
    const std::vector<float> logits = {0, 2, 1, 2, -1};
    const SamplerOptions all = all_tokens();
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
    // The lower id wins ties.
    CHECK(draws(o, {1, 1, 1}, {}, 100) == std::map<uint32_t, int>{{0, 100}});
}

TEST_CASE("sampler: infinite, NaN and equal logits")
{
    const SamplerOptions all = all_tokens();
    CHECK(draws(all, {-kInf, -kInf, 0.5f, -kInf}, {}, 100) == std::map<uint32_t, int>{{2, 100}});
    CHECK(draws(all, {kNan, 1, kNan}, {}, 100) == std::map<uint32_t, int>{{1, 100}});
    CHECK(draws(all, {kNan, kNan, kNan}, {}, 10) == std::map<uint32_t, int>{{0, 10}});
    CHECK(draws(all, {1, kInf, 2}, {}, 10) == std::map<uint32_t, int>{{1, 10}});
    CHECK(draws(all, {42}, {}, 10) == std::map<uint32_t, int>{{0, 10}});
    CHECK(draws(all, {3e38f, -3e38f}, {}, 10) == std::map<uint32_t, int>{{0, 10}});
    CHECK(distinct(all, std::vector<float>(50, 7.f)) == 50);
    SamplerOptions o = all;
    o.temperature = 1e-30f;
    // Equal logits stay equal at any temperature.
    CHECK(draws(o, {0, 2, 1, 2, -1}, {}, 500).size() == 2);
    o = SamplerOptions();
    // 40 equal tokens; 38 of them make up 95%.
    CHECK(distinct(o, std::vector<float>(3000, 7.f)) == 38);
}
