// The tokens that keep a slot, compared with the papers' algorithms. These are written here
// independently: lists of tokens, a softmax over the held ones, and eviction of the lowest scores
// after every read.
#include "tests/kv/cache_bed.h"

#include <functional>
#include <numeric>
#include <tuple>

using namespace ks;

constexpr BedShape kShape;
constexpr uint32_t kKvHeads = kShape.n_kv_heads, kDim = kShape.head_dim;

struct Paper {
    // The probabilities that one query gave to a token, by each query head of the KV head.
    struct QueryWeights {
        std::vector<double> p;
        uint32_t n_visible;
    };
    struct Held {
        uint32_t position;
        std::vector<float> key, value;
        std::vector<QueryWeights> queries; // all since the token was read, the oldest first

        double sum(uint32_t last) const // over the last queries
        {
            double sum = 0;
            for (size_t i = queries.size() - std::min<size_t>(last, queries.size());
                 i < queries.size(); i++)
                sum += std::accumulate(queries[i].p.begin(), queries[i].p.end(), 0.0);
            return sum;
        }
    };
    using Score = std::function<double(const Paper& paper, uint32_t head, size_t i)>;

    std::string recipe;
    uint32_t slots, sinks, recent;
    Score score;
    uint32_t delta = 1, pool = 1;
    bool ada = false;
    std::vector<std::vector<Held>> heads = std::vector<std::vector<Held>>(kKvHeads);
    std::vector<double> y = {}; // (n_heads, head_dim) of the last query

    void read(const Text& text, uint32_t from, uint32_t n)
    {
        y.assign(kShape.n_heads * kDim, 0.0);
        size_t total = 0;
        for (uint32_t h = 0; h < kKvHeads; h++) {
            const size_t before = heads[h].size();
            for (uint32_t t = from; t < from + n; t++) {
                const std::vector<float> k = text.key(t), v = text.value(t);
                heads[h].push_back({t,
                                    {&k[h * kDim], &k[h * kDim] + kDim},
                                    {&v[h * kDim], &v[h * kDim] + kDim},
                                    {}});
            }
            for (uint32_t t = 0; t < n; t++) attend(text.query(from + t), h, before + t + 1);
            total += heads[h].size();
        }
        if (total > kKvHeads * slots) decide(slots - (n == 1 ? delta - 1 : 0) - sinks - recent);
    }

    void attend(const std::vector<float>& query, uint32_t h, size_t n_visible)
    {
        for (size_t i = 0; i < n_visible; i++)
            heads[h][i].queries.push_back({{}, uint32_t(n_visible)});
        for (uint32_t g = h * kShape.group(); g < (h + 1) * kShape.group(); g++) {
            std::vector<double> p;
            for (size_t i = 0; i < n_visible; i++) {
                double logit = 0;
                for (uint32_t d = 0; d < kDim; d++)
                    logit += double(query[g * kDim + d]) * double(heads[h][i].key[d]);
                p.push_back(std::exp(logit - 40)); // logits are well below 100
            }
            const double sum = std::accumulate(p.begin(), p.end(), 0.0);
            std::fill_n(y.begin() + g * kDim, kDim, 0.0);
            for (size_t i = 0; i < n_visible; i++) {
                heads[h][i].queries.back().p.push_back(p[i] / sum);
                for (uint32_t d = 0; d < kDim; d++)
                    y[g * kDim + d] += p[i] / sum * double(heads[h][i].value[d]);
            }
        }
    }

    // (score, position, head). Of equal scores the newer token stays.
    using Candidate = std::tuple<double, uint32_t, uint32_t>;
    std::vector<Candidate> candidates(uint32_t h) const
    {
        std::vector<double> scores;
        for (size_t i = sinks; i + recent < heads[h].size(); i++)
            scores.push_back(score(*this, h, i));
        std::vector<Candidate> all;
        for (size_t i = 0; i < scores.size(); i++) {
            const size_t first = i - std::min<size_t>(i, pool / 2),
                         last = std::min(scores.size() - 1, i + pool / 2);
            all.push_back({*std::max_element(&scores[first], &scores[last] + 1),
                           heads[h][sinks + i].position, h});
        }
        std::sort(all.rbegin(), all.rend());
        return all;
    }
    void decide(size_t wanted)
    {
        std::vector<Candidate> stay, open;
        for (uint32_t h = 0; h < kKvHeads; h++) {
            const std::vector<Candidate> all = candidates(h);
            const size_t sure = ada ? wanted / 5 : wanted;
            stay.insert(stay.end(), all.begin(), all.begin() + long(sure));
            open.insert(open.end(), all.begin() + long(sure), all.end());
        }
        std::sort(open.rbegin(), open.rend());
        for (size_t i = 0; stay.size() < kKvHeads * wanted; i++) stay.push_back(open[i]);
        for (uint32_t h = 0; h < kKvHeads; h++) {
            std::vector<Held> kept;
            for (size_t i = 0; i < heads[h].size(); i++) {
                bool stays = i < sinks || i + recent >= heads[h].size();
                for (const Candidate& c : stay)
                    stays |= std::get<1>(c) == heads[h][i].position && std::get<2>(c) == h;
                if (stays) kept.push_back(heads[h][i]);
            }
            heads[h] = kept;
        }
    }
};

// Reads chunks of the sizes, again and again, up to four times as many tokens as slots.
static void compare(const Paper& start, const std::vector<uint32_t>& sizes = {1})
{
    const Text text{start.slots * 7ull + start.recent};
    for (const std::string device : {"reference", "cpu"}) {
        Paper paper = start;
        Bed bed(paper.recipe, paper.slots, 32, device.c_str());
        for (size_t step = 0; bed.n_seen < 4 * paper.slots; step++) {
            const uint32_t n = sizes[step % sizes.size()];
            paper.read(text, bed.n_seen, n);
            const std::vector<float> y = text.read(bed, bed.n_seen, n);
            CAPTURE(paper.recipe);
            CAPTURE(device);
            CAPTURE(bed.n_seen);
            uint32_t n_held = 0;
            for (uint32_t h = 0; h < kKvHeads; h++) {
                std::vector<uint32_t> expected;
                for (const Paper::Held& held : paper.heads[h]) expected.push_back(held.position);
                REQUIRE(bed.positions(h) == expected);
                n_held += uint32_t(expected.size());
            }
            // Attention over the held tokens, whatever their order in memory.
            for (uint32_t i = 0; i < paper.y.size(); i++)
                REQUIRE(double(y[y.size() - paper.y.size() + i]) ==
                        doctest::Approx(paper.y[i]).epsilon(1e-4).scale(1));
            REQUIRE(bed.cache.evicted() == kKvHeads * bed.n_seen - n_held);
        }
        CHECK(bed.cache.evicted() >= uint64_t(kKvHeads) * 3 * paper.slots);
    }
}

static double sum_of_all(const Paper& paper, uint32_t h, size_t i)
{
    return paper.heads[h][i].sum(~0u);
}

static double decayed_sum(const Paper& paper, uint32_t h, size_t i, float decay)
{
    double sum = 0;
    for (const Paper::QueryWeights& query : paper.heads[h][i].queries)
        sum = sum * double(decay) + std::accumulate(query.p.begin(), query.p.end(), 0.0);
    return sum;
}

TEST_CASE("papers: H2O at delta = 1, with a recent half and without (frozen), and in chunks")
{
    compare({"h2o,sink=0,recent=20,delta=1,lifetime=0", 40, 0, 20, sum_of_all});
    compare({"h2o,sink=4,recent=8,delta=1,lifetime=0", 32, 4, 8, sum_of_all});
    compare({"h2o,sink=0,recent=1,delta=1,lifetime=0", 32, 0, 1, sum_of_all});
    compare({"h2o,sink=4,recent=8,delta=1,lifetime=0", 32, 4, 8, sum_of_all}, {17, 1, 1, 5, 32});
    compare({"h2o,sink=4,recent=8,delta=6,lifetime=0", 32, 4, 8, sum_of_all, 6},
            {1, 1, 1, 1, 1, 1, 1, 1, 9});
}

TEST_CASE("papers: decayed H2O, and H2O by lifetime: the mean over the queries that saw the token")
{
    const auto decayed = [](const Paper& paper, uint32_t h, size_t i) {
        return decayed_sum(paper, h, i, 0.9f);
    };
    const auto mean = [](const Paper& paper, uint32_t h, size_t i) {
        return sum_of_all(paper, h, i) / double(paper.heads[h][i].queries.size());
    };
    for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{1}, {17, 1, 1, 5, 32}}) {
        compare({"h2o,sink=2,recent=9,delta=1,lifetime=0,decay=0.9", 40, 2, 9, decayed}, sizes);
        compare({"h2o,sink=2,recent=9,delta=1", 40, 2, 9, mean}, sizes);
    }
}

TEST_CASE("papers: Scissorhands counts the last queries that gave less than the even share")
{
    const auto below = [](uint32_t last) {
        return [=](const Paper& paper, uint32_t h, size_t i) {
            const std::vector<Paper::QueryWeights>& queries = paper.heads[h][i].queries;
            double sum = 0;
            for (size_t k = queries.size() - std::min<size_t>(last, queries.size());
                 k < queries.size(); k++)
                for (double p : queries[k].p) sum -= p < 1.0 / queries[k].n_visible;
            return sum;
        };
    };
    compare({"scissorhands,sink=2,recent=9,delta=10,observe=7", 40, 2, 9, below(7), 10});
    compare({"scissorhands,sink=2,recent=9,delta=10,observe=10", 40, 2, 9, below(10), 10});
    compare({"scissorhands,sink=2,recent=9,delta=1,observe=7", 40, 2, 9, below(7)}, {7, 20, 31});
    // A history longer than delta decays instead of ending.
    const auto all = [](const Paper& paper, uint32_t h, size_t i) {
        double sum = 0;
        for (const Paper::QueryWeights& query : paper.heads[h][i].queries) {
            sum *= double(1 - 1 / 4096.f);
            for (double p : query.p) sum -= p < 1.0 / query.n_visible;
        }
        return sum;
    };
    compare({"scissorhands,sink=2,recent=9,delta=1,observe=4096", 40, 2, 9, all});
}

// The sum over all heads of the layer, which keep the same tokens.
static Paper::Score by_layer(uint32_t last)
{
    return [=](const Paper& paper, uint32_t, size_t i) {
        double sum = 0;
        for (const std::vector<Paper::Held>& held : paper.heads) sum += held[i].sum(last);
        return sum;
    };
}

TEST_CASE("papers: TOVA keeps the tokens that the last query attends to, over all heads")
{
    for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{1}, {17, 1, 1, 5, 32}}) {
        compare({"tova,sink=0,recent=1,delta=1,observe=1", 40, 0, 1, by_layer(1)}, sizes);
        compare({"tova,sink=4,recent=8,delta=1,observe=1", 32, 4, 8, by_layer(1)}, sizes);
    }
    compare({"tova,sink=4,recent=8,delta=6,observe=4", 32, 4, 8, by_layer(4), 6});
    compare({"tova,sink=4,recent=8,delta=1", 32, 4, 8, by_layer(8)},
            {8, 20, 31}); // the last queries of a chunk
}

static Paper::Score by_head(uint32_t last)
{
    return [=](const Paper& paper, uint32_t h, size_t i) { return paper.heads[h][i].sum(last); };
}

TEST_CASE("papers: SnapKV keeps the tokens that the last queries attend to, with their neighbours")
{
    for (uint32_t pool : {1u, 3u, 7u}) {
        const std::string text = ",recent=8,pool=" + std::to_string(pool);
        compare({"snapkv,sink=0,delta=1,observe=1" + text, 40, 0, 8, by_head(1), 1, pool});
        compare({"snapkv,sink=4,delta=1,observe=1" + text, 40, 4, 8, by_head(1), 1, pool},
                {17, 1, 1, 5, 32});
        // First the chunks of a prompt. Then decoding, with windows shorter than delta and as long
        // as delta.
        compare({"snapkv,sink=4,delta=1,observe=8" + text, 40, 4, 8, by_head(8), 1, pool},
                {8, 20, 31});
        compare({"snapkv,sink=4,delta=9,observe=4" + text, 40, 4, 8, by_head(4), 9, pool});
        compare({"snapkv,sink=4,delta=8,observe=8" + text, 40, 4, 8, by_head(8), 8, pool});
    }
    // A window longer than delta decays.
    const auto decays = [](const Paper& paper, uint32_t h, size_t i) {
        return decayed_sum(paper, h, i, 1 - 1 / 16.f);
    };
    compare({"snapkv,sink=4,recent=8,delta=1,observe=16,pool=3", 40, 4, 8, decays, 1, 3});
}

TEST_CASE("papers: Ada-KV gives more slots to heads with spread attention, and each head its share")
{
    for (uint32_t pool : {1u, 5u}) {
        const std::string text = ",recent=8,pool=" + std::to_string(pool);
        compare({"ada,sink=0,delta=1,observe=1" + text, 40, 0, 8, by_head(1), 1, pool, true});
        compare({"ada,sink=4,delta=1,observe=8" + text, 40, 4, 8, by_head(8), 1, pool, true},
                {8, 20, 31});
        compare({"ada,sink=4,delta=9,observe=9" + text, 40, 4, 8, by_head(9), 9, pool, true});
    }
}
