// Recipes with positions=compact: a token's position is its rank among the tokens that are read.
#include "tests/kv/select_bed.h"

using namespace ks;

// x after RoPE at a position, in float64.
static std::vector<double> at_position(const Bed& bed, const float* x, uint32_t position)
{
    const uint32_t half = bed.shape.head_dim / 2;
    std::vector<double> out(2 * half);
    for (uint32_t i = 0; i < half; i++) {
        const double c = std::cos(bed.angle(position, i)), s = std::sin(bed.angle(position, i)),
                     u = x[i], v = x[i + half];
        out[i] = u * c - v * s;
        out[i + half] = u * s + v * c;
    }
    return out;
}

// The expected output of one head if the tokens of `set` and the token itself have the positions 0,
// 1, 2, ...
static std::vector<double> attention_by_rank(const Bed& bed, const Text& text, const Set& set,
                                             uint32_t position, uint32_t head)
{
    const uint32_t d = bed.shape.head_dim, kv_head = head / bed.shape.group();
    const std::vector<float> q = text.query(position);
    std::vector<double> out(d);
    double norm = 0;
    uint32_t rank = 0;
    Set all = set;
    all.insert(position);
    for (uint32_t i : all) {
        const std::vector<float> k = text.key(i), v = text.value(i);
        const std::vector<double> query = at_position(bed, &q[head * d], uint32_t(set.size()));
        const std::vector<double> key = at_position(bed, &k[kv_head * d], rank++);
        double logit = 0;
        for (uint32_t j = 0; j < d; j++) logit += query[j] * key[j];
        for (uint32_t j = 0; j < d; j++) out[j] += std::exp(logit) * v[kv_head * d + j];
        norm += std::exp(logit);
    }
    for (double& x : out) x /= norm;
    return out;
}

static void positions_by_rank(const std::string& positions,
                              std::initializer_list<const char*> recipes)
{
    const Text text{8};
    for (const std::string& device : tested_names()) {
        for (const std::string recipe : recipes) {
            CAPTURE(device);
            CAPTURE(recipe);
            const bool all = recipe.find("=all") != recipe.npos;
            Bed bed(recipe + positions, all ? 260 : 128, 32, device);
            for (uint32_t at = 0; at < 224; at += 32) text.read(bed, at, 32);
            for (uint32_t at = 224; at < 250; at++) {
                std::vector<Set> read(bed.shape.n_kv_heads);
                for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++)
                    for (uint32_t position : bed.positions(h)) read[h].insert(position);
                const std::vector<std::vector<uint32_t>> before = {bed.positions(0),
                                                                   bed.positions(1)};
                const std::vector<float> y = text.read(bed, at, 1);
                const bool selects = bed.recipe.selects() && !bed.cache.layer(0).must_reselect;
                if (bed.recipe.selects() && !selects)
                    continue; // evicted since: the read tokens are no longer listed
                for (uint32_t h = 0; h < bed.shape.n_heads; h++) {
                    Set set = read[h / bed.shape.group()];
                    if (selects) {
                        set.clear();
                        for (uint32_t index : chosen(bed, h / bed.shape.group()))
                            set.insert(before[h / bed.shape.group()][index]);
                    }
                    const std::vector<double> expected = attention_by_rank(bed, text, set, at, h);
                    for (uint32_t k = 0; k < bed.shape.head_dim; k++)
                        CHECK(y[h * bed.shape.head_dim + k] ==
                              doctest::Approx(expected[k]).epsilon(3e-5));
                }
            }
            if (!all) CHECK(bed.cache.evicted() > 0);
        }
    }
}

TEST_CASE("positions=compact: a token's position is its rank among those that are read")
{
    positions_by_rank(",positions=compact",
                      {"sink", "h2o", "keydiff", "retain=all,select=tokenselect,read=64,reuse=1",
                       "h2o,select=quest,read=64"});
}
