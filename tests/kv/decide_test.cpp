// Decisions by numbers alone, without device and cache: the tokens that stay and those to encode.
#include "runtime/kv/decide.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>

using namespace ks;

using Indices = std::vector<uint32_t>;

// Heads whose tokens have the positions 0, 1, 2, ... and scores that a test sets.
struct Heads {
    static constexpr uint32_t kMost = 256;
    std::vector<HeadCandidates> heads;
    std::vector<std::vector<uint32_t>> positions;
    std::vector<std::vector<float>> scores;
    std::vector<std::vector<uint8_t>> templates;
    std::vector<uint8_t> scratch;
    Decider decider;

    Heads(uint32_t n_heads, uint32_t n, uint32_t n_held, bool compete = false)
        : heads(n_heads), positions(n_heads), scores(n_heads), templates(n_heads)
    {
        for (uint32_t h = 0; h < n_heads; h++) {
            for (uint32_t i = 0; i < n; i++) positions[h].push_back(i);
            scores[h].assign(n, 0.f);
            templates[h].assign(n, 0);
            set(h, n, n_held);
        }
        Placer counted;
        decider.place(n_heads, kMost, compete, counted);
        scratch.resize(counted.offset + 1);
        Placer host{{scratch.data(), 0}};
        decider.place(n_heads, kMost, compete, host);
    }
    void set(uint32_t h, uint32_t n, uint32_t n_held)
    {
        heads[h].n = n;
        heads[h].n_held = n_held;
        heads[h].positions = positions[h].data();
        heads[h].score = scores[h].data();
        heads[h].is_template = templates[h].data();
    }
    Indices leaving(const EvictionRules& rules, uint32_t head = 0, uint32_t n_seen = 1000)
    {
        const std::vector<HeadDecision>& d =
            decider.decide(rules, heads, uint32_t(heads.size()), n_seen);
        Indices out;
        for (uint32_t i = 0; i < heads[head].n; i++)
            if (!d[head].keep[i]) out.push_back(i);
        return out;
    }
};

static EvictionRules evicting(uint32_t n_pinned, uint32_t n_recent, uint32_t target)
{
    EvictionRules r;
    r.evicts = true;
    r.n_pinned = n_pinned;
    r.n_recent = n_recent;
    r.target = target;
    return r;
}

TEST_CASE("decide: the lowest scores leave, of equal ones the older, never pinned or recent tokens")
{
    Heads one(1, 10, 8);
    one.scores[0] = {-9, -9, 5, 1, 4, 1, 3, 1, -9, -9};
    const EvictionRules rules = evicting(2, 2, 7);
    CHECK(one.leaving(rules) == Indices{3, 5, 7});
    CHECK(one.leaving(evicting(2, 2, 8)) == Indices{3, 5});
    CHECK(one.leaving(evicting(2, 2, 10)).empty());
    EvictionRules none = rules;
    none.evicts = false;
    CHECK(one.leaving(none).empty());
}

TEST_CASE("decide: tokens beyond the trained distance leave before all others")
{
    Heads one(1, 10, 10);
    one.scores[0] = {0, 9, 9, 9, 1, 1, 1, 1, 1, 0};
    EvictionRules rules = evicting(1, 1, 8);
    rules.max_distance = 7;
    CHECK(one.leaving(rules, 0, 10) == Indices{1, 2}); // positions 1 and 2 are 9 and 8 back
    one.scores[0] = {0, 9, 9, 9, 1, 1, 1, 1, 1, 0};    // a decision changes the scores
    rules.max_distance = 100;
    CHECK(one.leaving(rules, 0, 10) == Indices{4, 5});
}

TEST_CASE("decide: template tokens stay or leave as a whole, the newest stay first")
{
    Heads one(1, 12, 12);
    one.scores[0] = {0, 5, 1, 1, 5, 5, 5, 1, 1, 5, 5, 0};
    for (uint32_t i : {2u, 3u, 7u, 8u}) one.templates[0][i] = 1;
    EvictionRules rules = evicting(1, 1, 8);
    rules.weighs_template = true;
    const std::vector<float> scores = one.scores[0];
    rules.n_template = 4;
    CHECK(one.leaving(rules) == Indices{1, 4, 5, 6});
    one.scores[0] = scores;
    rules.n_template = 3;
    CHECK(one.leaving(rules) == Indices{1, 2, 3, 4});
    one.scores[0] = scores;
    rules.n_template = 1;
    CHECK(one.leaving(rules) == Indices{2, 3, 7, 8});
    one.scores[0] = scores;
    rules.weighs_template = false; // as in a window of the model
    CHECK(one.leaving(rules) == Indices{2, 3, 7, 8});
    one.scores[0] = {0, 1, 5, 5, 1, 1, 1, 5, 5, 5, 5, 0};
    CHECK(one.leaving(rules) == Indices{1, 4, 5, 6});
}

TEST_CASE("decide: heads that compete share the slots, each keeps at least a fifth")
{
    Heads two(2, 12, 12, true);
    for (uint32_t i = 0; i < 12; i++)
        two.scores[0][i] = 100 + float(i), two.scores[1][i] = float(i);
    EvictionRules rules = evicting(1, 1, 7);
    rules.heads_compete = true;
    const Indices first = two.leaving(rules, 0), second = two.leaving(rules, 1);
    CHECK(first.size() + second.size() == 2 * (12 - 7));
    CHECK(first == Indices{1});                          // 9 of its 10 candidates
    CHECK(second == Indices{1, 2, 3, 4, 5, 6, 7, 8, 9}); // the newest: its fifth of five
    rules.heads_compete = false;
    CHECK(two.leaving(rules, 1) == Indices{1, 2, 3, 4, 5});
}

TEST_CASE("decide: an estimator keeps its own slots and takes all other candidates")
{
    Heads one(1, 12, 8);
    EvictionRules rules = evicting(2, 3, 8);
    rules.n_estimated = 4;
    CHECK(one.leaving(rules) == Indices{2, 3, 4, 5, 6, 7, 8}); // the first victims
    for (uint32_t i = 2; i < 6; i++) one.positions[0][i] = kNoPosition;
    CHECK(one.leaving(rules) == Indices{6, 7, 8});
}

TEST_CASE("decide: tokens between the first and the last ones are encoded")
{
    Heads one(1, 20, 16);
    one.heads[0].n_coded = 5;
    EvictionRules rules;
    rules.codes = true;
    rules.n_coded_slots = 32;
    rules.n_plain_first = 2;
    rules.n_plain_last = 6;
    const HeadDecision d = one.decider.decide(rules, one.heads, 1, 20)[0];
    CHECK(d.code_end == 14);
    for (uint32_t i = 0; i < 20; i++)
        CHECK(d.is_plain(rules, one.heads[0], i) == (i < 2 || i >= 14));
    CHECK(one.heads[0].is_coded(rules, 6));
    CHECK_FALSE(one.heads[0].is_coded(rules, 7));
    one.heads[0].n_coded = 14; // coded tokens stay coded
    CHECK_FALSE(one.decider.decide(rules, one.heads, 1, 20)[0].is_plain(rules, one.heads[0], 15));
}

TEST_CASE("decide: groups are encoded as a whole, and a group from two places is gathered")
{
    Heads one(1, 110, 50);
    one.heads[0].n_coded = 0;
    EvictionRules rules;
    rules.codes = true;
    rules.group = 32;
    rules.n_coded_slots = 96;
    rules.n_plain_first = 4;
    rules.n_plain_last = 10;
    HeadDecision d = one.decider.decide(rules, one.heads, 1, 110)[0];
    CHECK(d.code_end == 4 + 96); // 96 tokens between the first and the last ones
    CHECK(d.gather_begin == 32);
    CHECK(d.gather_end == 64); // 46 of its tokens are in the pool
    rules.n_plain_last = 11;
    d = one.decider.decide(rules, one.heads, 1, 110)[0];
    CHECK(d.code_end == 4 + 64);
    rules.n_coded_slots = 32;
    d = one.decider.decide(rules, one.heads, 1, 110)[0];
    CHECK(d.code_end == 4 + 32);
    CHECK(d.gather_begin == d.gather_end);
}

TEST_CASE("decide: rules follow from a layer and its recipe")
{
    CacheLayerSpec spec{4, 2, 64, 100, 4};
    spec.table = spec.bounded = true;
    const uint32_t held[] = {100, 100};
    const Recipe h2o = parse_recipe("h2o,delta=5,recent=20").value();
    EvictionRules r = eviction_rules(spec, h2o, held, 1, 77);
    CHECK(r.evicts);
    CHECK(r.target == 96); // four free slots for the tokens after this one
    CHECK(r.n_pinned == 4);
    CHECK(r.n_recent == 20);
    CHECK(r.max_distance == 77);
    CHECK(r.weighs_template);
    CHECK(r.n_template == 12);
    CHECK(eviction_rules(spec, h2o, held, 32, 77).target == 100); // a chunk of a prompt leaves none
    CHECK_FALSE(eviction_rules(spec, parse_recipe("q8").value(), held, 1, 77).evicts);
    const uint32_t few[] = {60, 60};
    CHECK_FALSE(eviction_rules(spec, h2o, few, 1, 77).evicts);
    // A window layer whose keys are coded in groups forgets whole groups.
    const Recipe window = parse_recipe("kivi").value().for_window_layer();
    CacheLayerSpec local{4, 2, 64, 300, 0};
    local.table = local.local = true;
    local.code_slots(window, Format::kivi, Format::kivi);
    REQUIRE(local.group() == 32);
    const uint32_t all[] = {300, 300};
    r = eviction_rules(local, window, all, 1, 77);
    CHECK(r.evicts);
    CHECK((301 - r.target) % 32 == 0);
    CHECK(301 - r.target >= window.delta_of(300));
    CHECK_FALSE(r.weighs_template);
}
