// Merging: the nearest target, means of keys and values, the weight of a merged slot.
#include "kernels/cpu/codec_rows.h"
#include "runtime/base/rng.h"
#include "runtime/kv/policies/dot.h"
#include "runtime/kv/policies/merge.h"
#include "tests/kv/random_values.h"
#include "tests/sanitized.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <string>

using namespace ks;
using Floats = std::vector<float>;

// Merges a victim into a slot. Returns the slot's new number of tokens.
static uint32_t absorb(float* key, float* value, uint32_t n_tokens, const float* victim_key,
                       const float* victim_value, uint32_t n_victims, uint32_t dim)
{
    accumulate_mean(key, victim_key, merge_weight(n_victims, n_tokens), dim);
    accumulate_mean(value, victim_value, merge_weight(n_victims, n_tokens), dim);
    return n_tokens + n_victims;
}

// Merge targets with their norms.
struct Targets {
    Floats keys, norms;
    std::vector<uint32_t> indexes;
    MergeTargets t{};

    Targets(const Floats& k, uint32_t dim) : keys(k), norms(k.size() / dim), indexes(norms.size())
    {
        t = {keys.data(), indexes.data(), norms.data(), uint32_t(norms.size()), dim};
        for (uint32_t i = 0; i < t.n; i++) indexes[i] = i, t.set(i);
    }
};

TEST_CASE("merge: the nearest target has the largest cosine, whatever the norms, above a threshold")
{
    RandomValues random{1};
    uint32_t n_near = 0, n_none = 0;
    for (int round = 0; round < 600; round++) {
        const uint32_t dim = 1 + random.below(70), n = 1 + random.below(50);
        const Floats common = random.normals(dim, float(round % 3));
        Floats targets = random.normals(n * dim), key = random.normals(dim, 3);
        for (uint32_t j = 0; j < dim; j++) key[j] += 3 * common[j];
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < dim; j++)
                targets[i * dim + j] = (targets[i * dim + j] + common[j]) * float(1 + i % 5);
        uint32_t best = kNoTarget;
        float largest = kNearEnough;
        for (uint32_t i = 0; i < n; i++) {
            const float c = dot(&targets[i * dim], key.data(), dim) /
                            (key_norm(&targets[i * dim], dim) * key_norm(key.data(), dim));
            if (c >= kNearEnough && (best == kNoTarget || c > largest)) best = i, largest = c;
        }
        CAPTURE(dim);
        REQUIRE(Targets(targets, dim).t.nearest(key.data()) == best);
        (best == kNoTarget ? n_none : n_near)++;
    }
    CHECK(n_near > 100);
    CHECK(n_none > 100);
}

TEST_CASE("merge: of equal targets the first, none for keys without direction, moved targets at "
          "their new place")
{
    Targets targets({0, 0, 2, 0, 2, 0, -1, 0}, 2);
    const Floats key = {1, 0}, back = {-1, 0}, zero = {0, 0}, across = {0, 3}, odd = {NAN, 1};
    CHECK(targets.t.nearest(key.data()) == 1);
    CHECK(targets.t.nearest(back.data()) == 3);
    CHECK(targets.t.nearest(zero.data()) == kNoTarget);
    CHECK(targets.t.nearest(across.data()) == kNoTarget);
    CHECK(targets.t.nearest(odd.data()) == kNoTarget);
    CHECK(Targets({}, 2).t.nearest(key.data()) == kNoTarget);
    targets.keys[2] = 0, targets.keys[3] = 1;
    targets.t.set(1);
    CHECK(targets.t.nearest(key.data()) == 2);
    CHECK(targets.t.nearest(across.data()) == 1);
}

TEST_CASE("merge: a representative is the mean of all its tokens, in any grouping")
{
    RandomValues random{2};
    const uint32_t dim = 20, n = 30;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    std::vector<double> key(dim, 0.0), value(dim, 0.0);
    for (uint32_t i = 0; i < n * dim; i++)
        key[i % dim] += double(keys[i]) / n, value[i % dim] += double(values[i]) / n;
    for (uint32_t split : {1u, 7u, 15u}) { // two representatives; the second merges into the first
        Floats k[2], v[2];
        uint32_t count[2] = {0, 0};
        for (uint32_t i = 0; i < n; i++) {
            const int at = i >= split;
            if (count[at] == 0) {
                k[at].assign(&keys[i * dim], &keys[i * dim] + dim);
                v[at].assign(&values[i * dim], &values[i * dim] + dim);
                count[at] = 1;
            } else {
                count[at] = absorb(k[at].data(), v[at].data(), count[at], &keys[i * dim],
                                   &values[i * dim], 1, dim);
            }
        }
        CHECK(absorb(k[0].data(), v[0].data(), count[0], k[1].data(), v[1].data(), count[1], dim) ==
              n);
        for (uint32_t j = 0; j < dim; j++) {
            CHECK(double(k[0][j]) == doctest::Approx(key[j]).epsilon(1e-4));
            CHECK(double(v[0][j]) == doctest::Approx(value[j]).epsilon(1e-4));
        }
    }
}

TEST_CASE("merge: equal tokens merge to themselves, so attention over them is exact")
{
    RandomValues random{3};
    const uint32_t dim = 8;
    const Floats key = random.normals(dim), value = random.normals(dim), q = random.normals(dim);
    Floats k = key, v = value;
    uint32_t n = 1;
    for (int i = 0; i < 9; i++) n = absorb(k.data(), v.data(), n, key.data(), value.data(), 1, dim);
    CHECK(n == 10);
    CHECK(v == value);
    for (uint32_t j = 0; j < dim; j++) CHECK(k[j] == doctest::Approx(key[j]).epsilon(1e-5));
    CHECK(std::exp(double(log_weight(n))) == doctest::Approx(10));
}

TEST_CASE("merge: the weight is the log of the count, up to a cap; the count is not capped")
{
    CHECK(log_weight(1) == 0);
    CHECK(log_weight(2) == doctest::Approx(std::log(2.0)));
    CHECK(log_weight(64) == doctest::Approx(std::log(64.0)));
    CHECK(log_weight(65) == log_weight(64));
    CHECK(log_weight(1000000) == log_weight(64));
    Floats k = {0}, v = {0};
    const Floats one = {1};
    uint32_t n = 1;
    for (int i = 0; i < 999; i++) n = absorb(k.data(), v.data(), n, one.data(), one.data(), 1, 1);
    CHECK(n == 1000);
    CHECK(v[0] == doctest::Approx(0.999).epsilon(1e-4)); // not the mean of the last 64
}

// Tokens around a common row, each at a distance of `spread` times the row's length. Errors are RMS
// distances to the exact mean, averaged over texts.
struct Merged {
    double lost[13] = {}; // error of the slot after 2^i tokens
    double once = 0;      // error of encoding the exact mean once
};

static constexpr uint32_t kMergedDim = 64, kMergedTexts = 20, kMergedTokens = 1 << 12;

// The common row of a text, then what each of its tokens adds to it: sums of 12 uniform values less
// 6, which are nearly normal.
static Floats merged_text(uint32_t text)
{
    Floats values((kMergedTokens + 1) * kMergedDim);
    for (size_t i = 0; i < values.size(); i++) {
        double sum = -6;
        for (uint64_t k = 0; k < 12; k++) sum += random_uniform(text, i * 12 + k);
        values[i] = float(sum);
    }
    return values;
}

static void merge_into_codes(const Floats& text, Format format, double spread, Merged* out)
{
    constexpr uint32_t d = kMergedDim;
    Floats slot(d), value(d), token(d), mean(d);
    std::vector<double> sums(d);
    const auto encode = [&](Floats& x) {
        uint32_t words[d];
        uint8_t tail[4];
        encode_row(format, x.data(), d, words, tail);
        decode_row(format, words, tail, d, x.data());
    };
    const auto distance = [&](const Floats& a, const Floats& b) {
        double sum = 0;
        for (uint32_t i = 0; i < d; i++) sum += std::pow(double(a[i]) - double(b[i]), 2);
        return std::sqrt(sum / d) / kMergedTexts;
    };
    for (uint32_t n = 0, level = 0; n < kMergedTokens;) {
        const float* added = &text[(n + 1) * d];
        for (uint32_t i = 0; i < d; i++)
            sums[i] += double(token[i] = float(text[i] + spread * added[i]));
        if (n == 0)
            slot = token, n = 1;
        else
            n = absorb(slot.data(), value.data(), n, token.data(), value.data(), 1, d);
        encode(slot);
        if (n != 1u << level) continue;
        for (uint32_t i = 0; i < d; i++) mean[i] = float(sums[i] / n);
        out->lost[level++] += distance(slot, mean);
    }
    Floats once = mean;
    encode(once);
    out->once += distance(once, mean);
}

TEST_CASE("merge: encoding errors of a representative do not add up" * doctest::skip(kSanitized))
{
    const Format formats[] = {Format::q8,     Format::q4,      Format::turbo4,
                              Format::turbo3, Format::turbo2v, Format::polar};
    const double spreads[] = {0.2, 0.5};
    Merged merged[6][2];
    for (uint32_t text = 0; text < kMergedTexts; text++) {
        const Floats values = merged_text(text);
        for (int f = 0; f < 6; f++)
            for (int s = 0; s < 2; s++)
                merge_into_codes(values, formats[f], spreads[s], &merged[f][s]);
    }
    for (int f = 0; f < 6; f++)
        for (int s = 0; s < 2; s++) {
            const Merged& m = merged[f][s];
            const double spread = spreads[s];
            CAPTURE(std::string(codec_info(formats[f]).name));
            CAPTURE(spread);
            CAPTURE(m.once);
            CAPTURE(m.lost[7]);
            CHECK(m.lost[12] < 1.1 * m.lost[10]); // a random walk would double it
            // Bound: a random walk with steps of `once` that ends when the tokens' own steps are as
            // small as `once`.
            CHECK(m.lost[12] <
                  1.2 * std::sqrt(m.once * m.once + 2 * m.once * spread / std::sqrt(3.0)));
        }
}
