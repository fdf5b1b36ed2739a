// Retain policies: the table, the choice by score, the split over layers and heads, and policies by
// position and by attention. References are written from the papers' descriptions.
#include "tests/kv/retain_util.h"

#include <doctest/doctest.h>
#include <set>
#include <sstream>
#include <tuple>

using namespace ks;

// Causal attention of n queries to n keys, row by row.
static std::vector<std::vector<double>> causal_softmax(RandomValues& random, uint32_t n,
                                                       double spread)
{
    std::vector<std::vector<double>> p(n);
    for (uint32_t j = 0; j < n; j++) {
        double sum = 0;
        for (uint32_t i = 0; i <= j; i++)
            p[j].push_back(std::exp(spread * double(random.normal())));
        for (double x : p[j]) sum += x;
        for (double& x : p[j]) x /= sum;
    }
    return p;
}

TEST_CASE("retain: every policy is found by its name and has its properties")
{
    std::istringstream names(retain_names());
    std::string name;
    std::vector<std::string> all;
    while (names >> name) {
        const RetainPolicy* policy = find_retain(name);
        REQUIRE(policy != nullptr);
        CHECK(policy->name == name);
        CHECK((policy->score != nullptr));
        CHECK(policy->evicts == (name != "all"));
        all.push_back(name);
    }
    CHECK(all == std::vector<std::string>{"all", "window", "sink", "h2o", "scissorhands", "tova",
                                          "snapkv", "keydiff", "mix", "kcenter", "subgen"});
    CHECK(find_retain("h2") == nullptr);
    CHECK(find_retain("") == nullptr);
    CHECK(find_retain("scissorhands")->scores == scores_below);
    CHECK_FALSE(find_retain("h2o")->observes);
    CHECK(find_retain("tova")->one_set);
    CHECK(find_retain("keydiff")->scores == scores_none);
    CHECK((find_retain("mix")->keys && find_retain("mix")->scores == scores_sum &&
           find_retain("mix")->observes));
}

TEST_CASE("retain: the highest scores stay, of equal ones the newer token")
{
    CHECK(highest({1, 3, 2, 3, 0}, 2) == Indices{1, 3});
    CHECK(highest({5, 5, 5, 5}, 2) == Indices{2, 3});
    CHECK(highest({5, 1, 5, 1}, 3) == Indices{0, 2, 3});
    CHECK(highest({5, 1}, 0) == Indices{});
    CHECK(highest({5, 1}, 9) == Indices{0, 1});
    CHECK(highest({}, 3) == Indices{});
    CHECK(highest({NAN, -INFINITY, NAN, 1}, 2) == Indices{1, 3}); // NaN leaves first
    RandomValues random{1};
    for (int round = 0; round < 300; round++) {
        const uint32_t n = 1 + random.below(60), n_keep = random.below(n + 3);
        Floats score(n);
        for (float& x : score) x = float(random.below(7)); // many ties
        CHECK(highest(score, n_keep) == top({score.begin(), score.end()}, n_keep));
    }
}

// Slow reference: the floor of each head, then one by one the best token that is left.
static Indices kept_of_heads(const Floats& score, uint32_t n_heads, uint32_t n, uint32_t total,
                             uint32_t floor)
{
    const uint32_t sure = std::min({floor, n, std::min(total, n_heads * n) / n_heads});
    std::set<uint32_t> kept, open;
    for (uint32_t h = 0; h < n_heads; h++) {
        for (uint32_t i : top({score.begin() + h * n, score.begin() + (h + 1) * n}, sure))
            kept.insert(h * n + i);
        for (uint32_t i = 0; i < n; i++) open.insert(h * n + i);
    }
    for (uint32_t i : kept) open.erase(i);
    while (kept.size() < std::min<size_t>(total, n_heads * n)) {
        uint32_t best = *open.begin();
        for (uint32_t i : open)
            if (std::make_tuple(score[i], i % n, i / n) >
                std::make_tuple(score[best], best % n, best / n))
                best = i;
        kept.insert(best);
        open.erase(best);
    }
    return Indices(kept.begin(), kept.end());
}

TEST_CASE("retain: over heads the total is exact, the floor holds, and the best of all heads stay")
{
    RandomValues random{2};
    for (int round = 0; round < 300; round++) {
        const uint32_t n_heads = 1 + random.below(6), n = 1 + random.below(40),
                       floor = random.below(12);
        const uint32_t total = random.below(n_heads * n + 5);
        Floats score(n_heads * n);
        for (float& x : score) x = round % 2 ? random.normal() : float(random.below(5));
        Indices order(n_heads * n);
        std::vector<uint8_t> keep(n_heads * n, 9);
        mark_top_k_of_heads(score.data(), n_heads, n, total, floor, order.data(), keep.data());
        const Indices kept = kept_of(keep);
        CAPTURE(n_heads);
        CAPTURE(n);
        CAPTURE(total);
        CAPTURE(floor);
        CHECK(kept.size() == std::min(total, n_heads * n));
        CHECK(std::all_of(keep.begin(), keep.end(), [](uint8_t k) { return k <= 1; }));
        CHECK(kept == kept_of_heads(score, n_heads, n, total, floor));
    }
    // One head holds nearly all the attention: it gets nearly all the slots.
    Indices order(20);
    std::vector<uint8_t> keep(20);
    Floats score(20, 0.1f);
    std::fill_n(score.begin(), 10, 2.0f);
    mark_top_k_of_heads(score.data(), 2, 10, 10, 2, order.data(), keep.data());
    CHECK(std::count(keep.begin(), keep.begin() + 10, 1) == 8);
}

TEST_CASE("retain: slots over layers add up to the average exactly")
{
    RandomValues random{3};
    for (int round = 0; round < 500; round++) {
        const uint32_t n_layers = 1 + random.below(80), average = random.below(3000),
                       floor = random.below(200);
        for (Split split : {Split::uniform, Split::ada, Split::pyramid}) {
            Indices slots(n_layers, 12345);
            split_slots(split, n_layers, average, floor, slots.data());
            CHECK(std::accumulate(slots.begin(), slots.end(), uint64_t(0)) ==
                  uint64_t(n_layers) * average);
            CHECK(std::is_sorted(slots.rbegin(), slots.rend()));
            CHECK(slots.back() >= std::min(floor, average));
            if (split != Split::pyramid) CHECK(slots.front() == slots.back());
        }
    }
    // The published integer step of this case (7) adds up to 4016 instead of 3840.
    Indices slots(32);
    split_slots(Split::pyramid, 32, 120, 0, slots.data());
    CHECK(slots.front() == 234);
    CHECK(slots.back() == 6);
    for (uint32_t il = 0; il < 32; il++) CHECK(std::fabs(slots[il] - (234 - il * 228 / 31.0)) < 1);
}

TEST_CASE("retain: window and sink drop the oldest")
{
    // Floats cannot distinguish the last three.
    const Indices positions = {4, 9, 30000000, 30000001, 30000002};
    Candidates c;
    c.n = 5;
    c.n_seen = 30000003;
    c.positions = positions.data();
    for (const char* name : {"all", "window", "sink", "subgen"}) {
        CHECK(highest(scores(name, c), 3) == Indices{2, 3, 4});
        CHECK(highest(scores(name, c), 1) == Indices{4});
    }
}

// H2O as published: one token after the other, attention over the kept tokens, growing sums. The
// smallest sum outside the recent tokens leaves. logit[j][i] is that of query j and key i.
static std::vector<std::set<uint32_t>> h2o_paper(const std::vector<Floats>& logit,
                                                 uint32_t capacity, uint32_t recent)
{
    std::vector<std::set<uint32_t>> history;
    std::set<uint32_t> kept;
    std::vector<double> sum(logit.size(), 0.0);
    for (uint32_t j = 0; j < logit.size(); j++) {
        kept.insert(j);
        double z = 0;
        for (uint32_t i : kept) z += std::exp(double(logit[j][i]));
        for (uint32_t i : kept) sum[i] += std::exp(double(logit[j][i])) / z;
        if (kept.size() > capacity) {
            uint32_t victim = *kept.begin();
            for (uint32_t i : kept)
                if (i + recent <= j && sum[i] < sum[victim]) victim = i;
            kept.erase(victim);
        }
        history.push_back(kept);
    }
    return history;
}

// The same with slots, attention scores and the policy. Recent tokens are no candidates.
static std::vector<std::set<uint32_t>> h2o_replay(const std::vector<Floats>& logit,
                                                  uint32_t capacity, uint32_t recent,
                                                  const RetainOptions& o)
{
    std::vector<std::set<uint32_t>> history;
    Indices positions;
    Floats probability_sums;
    for (uint32_t j = 0; j < logit.size(); j++) {
        positions.push_back(j);
        probability_sums.push_back(0);
        Floats p;
        float sum = 0;
        for (uint32_t i : positions) p.push_back(std::exp(logit[j][i]));
        for (float x : p) sum += x;
        for (size_t slot = 0; slot < p.size(); slot++)
            probability_sums[slot] = float(o.decay) * probability_sums[slot] + p[slot] / sum;
        if (positions.size() > capacity) {
            Candidates c;
            c.n = uint32_t(positions.size()) - recent;
            c.n_seen = j + 1;
            c.positions = positions.data();
            c.scores = probability_sums.data();
            const Indices stay = highest(scores("h2o", c, o), c.n - 1);
            uint32_t victim = 0;
            while (victim < stay.size() && stay[victim] == victim) victim++;
            positions.erase(positions.begin() + victim);
            probability_sums.erase(probability_sums.begin() + victim);
        }
        history.emplace_back(positions.begin(), positions.end());
    }
    return history;
}

TEST_CASE(
    "retain: h2o without decay and lifetime is the paper's algorithm, which freezes on old tokens")
{
    RandomValues random{4};
    RetainOptions paper;
    paper.lifetime = false;
    for (uint32_t recent : {0u, 1u, 4u}) {
        std::vector<Floats> logit;
        for (int j = 0; j < 120; j++) logit.push_back(random.normals(120, 0.5f));
        CHECK(h2o_replay(logit, 12, recent, paper) == h2o_paper(logit, 12, recent));
        // The number of steps that evict an old token, in the second half of the text.
        using History = std::vector<std::set<uint32_t>>;
        const auto moves = [&](const History& history) {
            int n = 0;
            for (size_t j = 60; j < history.size(); j++) {
                std::set<uint32_t> old = history[j - 1];
                for (uint32_t i : history[j]) old.erase(i);
                n += !old.empty() && *old.begin() + recent + 1 < j;
            }
            return n;
        };
        RetainOptions fair;
        const std::set<uint32_t> last = h2o_replay(logit, 12, recent, paper).back(),
                                 fair_last = h2o_replay(logit, 12, recent, fair).back();
        if (recent == 0) {
            CHECK(moves(h2o_paper(logit, 12, 0)) == 0); // frozen: each new token is evicted at once
            CHECK(*last.rbegin() < 60);
        }
        CHECK(moves(h2o_replay(logit, 12, recent, fair)) > 5);
        CHECK(std::accumulate(last.begin(), last.end(), 0u) <
              std::accumulate(fair_last.begin(), fair_last.end(), 0u));
    }
}

TEST_CASE("retain: h2o's lifetime divides by the weights of the queries that saw the token")
{
    for (double decay : {1.0, 0.99, 0.5}) {
        const Indices positions = {0, 5, 90, 99};
        Floats probability_sums;
        for (uint32_t position : positions) {
            double sum = 0;
            for (uint32_t j = position; j < 100; j++)
                sum = decay * sum + 0.25; // every query gives it a quarter
            probability_sums.push_back(float(sum));
        }
        Candidates c;
        c.n = 4;
        c.n_seen = 100;
        c.positions = positions.data();
        c.scores = probability_sums.data();
        RetainOptions o;
        o.decay = decay;
        for (float x : scores("h2o", c, o)) CHECK(x == doctest::Approx(0.25));
        o.lifetime = false;
        CHECK(scores("h2o", c, o) == probability_sums);
    }
}

TEST_CASE("retain: scissorhands, tova and snapkv choose the same as their papers")
{
    RandomValues random{5};
    for (int round = 0; round < 60; round++) {
        const uint32_t n = 40 + random.below(60), observe = 1 + random.below(16),
                       n_keep = 1 + random.below(30);
        const uint32_t n_old = n - observe, pool = 1 + 2 * random.below(5);
        const auto p = causal_softmax(random, n, 1.5);
        std::vector<double> below(n_old), last(n_old), seen(n_old), pooled(n_old);
        for (uint32_t i = 0; i < n_old; i++) {
            last[i] = double(float(p[n - 1][i]));
            for (uint32_t j = n - observe; j < n; j++) {
                below[i] -= p[j][i] < 1.0 / (j + 1);
                seen[i] += p[j][i];
            }
            seen[i] = double(float(seen[i]));
        }
        for (int i = 0; i < int(n_old); i++)
            for (int neighbour = i - int(pool / 2); neighbour <= i + int(pool / 2); neighbour++)
                if (neighbour >= 0 && neighbour < int(n_old))
                    pooled[i] = std::max(pooled[i], seen[neighbour]);
        Candidates c;
        c.n = n_old;
        c.n_seen = n;
        RetainOptions o;
        o.pool = pool;
        const auto choose = [&](const char* name, const std::vector<double>& values, float sign) {
            Floats given;
            for (double x : values) given.push_back(sign * float(x));
            c.scores = given.data();
            return highest(scores(name, c, o), n_keep);
        };
        CHECK(choose("scissorhands", below, -1) == top(below, n_keep));
        CHECK(choose("tova", last, 1) == top(last, n_keep));
        CHECK(choose("snapkv", seen, 1) == top(pooled, n_keep));
    }
}

TEST_CASE("retain: snapkv spreads a peak over its neighbours and no further")
{
    const Floats probability_sums = {0, 0, 0, 0, 9, 0, 0, 0, 0, 5};
    Candidates c;
    c.n = 10;
    c.scores = probability_sums.data();
    RetainOptions o;
    o.pool = 3;
    CHECK(scores("snapkv", c, o) == Floats{0, 0, 0, 9, 9, 9, 0, 0, 5, 5});
    o.pool = 1;
    CHECK(scores("snapkv", c, o) == probability_sums);
    o.pool = 101; // wider than the text
    CHECK(scores("snapkv", c, o) == Floats(10, 9.0f));
}
