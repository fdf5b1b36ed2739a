// Selection of pages and blocks. Bounds and representatives that are kept between choices equal the
// ones computed from all keys.
#include "tests/kv/select_bed.h"

#include <numeric>

using namespace ks;

// The upper bound of a page's logits with the queries of a head, computed from its keys.
static double page_bound(const Text& text, const std::vector<float>& q, uint32_t head,
                         uint32_t page)
{
    const BedShape& s = text.shape;
    double most = -1e30;
    for (uint32_t h = head * s.group(); h < (head + 1) * s.group(); h++) {
        double sum = 0;
        for (uint32_t d = 0; d < s.head_dim; d++) {
            double low = 1e30, high = -1e30;
            for (uint32_t i = page * select_page; i < (page + 1) * select_page; i++) {
                const double key = text.key(i)[head * s.head_dim + d];
                low = std::min(low, key);
                high = std::max(high, key);
            }
            sum += std::max(q[h * s.head_dim + d] * low, q[h * s.head_dim + d] * high);
        }
        most = std::max(most, sum);
    }
    return most;
}

// Checks that the pages that were read have the highest bounds.
static void check_pages(Bed& bed, const Text& text, const std::vector<float>& q, uint32_t position)
{
    for (uint32_t head = 0; head < text.shape.n_kv_heads; head++) {
        const Set read = chosen(bed, head);
        CHECK(read.size() <= bed.recipe.read_slots());
        double least_read = 1e30, most_left = -1e30;
        for (uint32_t page = 1; (page + 1) * select_page <= position - bed.recipe.read_last();
             page++) {
            const double bound = page_bound(text, q, head, page);
            if (read.count(page * select_page))
                least_read = std::min(least_read, bound);
            else
                most_left = std::max(most_left, bound);
        }
        CHECK(least_read > most_left - 0.05); // bounds are rounded outward to f16
    }
}

TEST_CASE("select: pages are chosen by bounds that no key exceeds")
{
    const Text text{5};
    for (const std::string& device : tested_names()) {
        Bed bed("retain=all,select=quest,read=64", 300, 32, device);
        for (uint32_t at = 0; at < 160; at += 32) text.read(bed, at, 32);
        for (uint32_t at = 160; at < 280; at++) {
            if (at == 180) { // chunks of a prompt, whose pages must be known afterwards
                for (; at < 276; at += 32) text.read(bed, at, 32);
            }
            const std::vector<float> q = text.query(at), y = text.read(bed, at, 1);
            check_read(bed, text, y, q, at);
            check_pages(bed, text, q, at);
        }
    }
}

TEST_CASE(
    "select: pages that were filled while a choice was used again are known to the next choice")
{
    const Text text{13};
    for (const std::string& device : tested_names()) {
        Bed bed("retain=all,select=quest,read=128,reuse=0.9", 500, 32, device);
        for (uint32_t at = 0; at < 160; at += 32) text.read(bed, at, 32);
        uint32_t at = 160;
        const uint32_t n_alike = bed.recipe.read_last() / 2;
        for (uint32_t nth = 0; nth < 6; nth++) {
            for (uint32_t i = 0; i < n_alike; i++, at++)
                bed.feed(text.query(1000 + nth), text.key(at), text.value(at));
            const std::vector<float> q = text.query(2000 + nth),
                                     y = bed.feed(q, text.key(at), text.value(at));
            check_read(bed, text, y, q, at);
            check_pages(bed, text, q, at++);
        }
        CHECK(state(bed)[select_reuses] > 0);
    }
}

// The attention that each of n indexes got from n queries that read everything, summed over a
// head's query heads.
static std::vector<double> attention_got(const Text& text, uint32_t head, uint32_t n)
{
    std::vector<double> got(n);
    for (uint32_t t = 0; t < n; t++) {
        const std::vector<float> q = text.query(t);
        for (uint32_t h = head * text.shape.group(); h < (head + 1) * text.shape.group(); h++) {
            std::vector<double> p(t + 1);
            double norm = 0;
            for (uint32_t i = 0; i <= t; i++)
                norm += p[i] = std::exp(dot_of(q, h, text.key(i), head, text.shape.head_dim));
            for (uint32_t i = 0; i <= t; i++) got[i] += p[i] / norm;
        }
    }
    return got;
}

// What a token at `position` should read beside its own: the first and last tokens, and the blocks
// whose keys with the most attention have the highest mean logits.
static Set expected_blocks(const Recipe& recipe, const Text& text, const std::vector<float>& q,
                           uint32_t position)
{
    const BedShape& s = text.shape;
    const uint32_t n_first = recipe.read_first(), n_last = recipe.read_last(),
                   n_slots = recipe.read_slots() - n_first - n_last, end = position - n_last;
    uint32_t unit = 128;
    while (4 * unit > n_slots) unit /= 2;
    std::vector<std::pair<double, uint32_t>> votes; // and the begin of the block
    for (uint32_t begin = n_first; begin < end; begin = (begin / unit + 1) * unit)
        votes.push_back({0, begin});
    for (uint32_t head = 0; head < s.n_kv_heads; head++) {
        const std::vector<double> got = attention_got(text, head, position);
        for (auto& [vote, begin] : votes) {
            const uint32_t stop = std::min(end, (begin / unit + 1) * unit),
                           n = std::min(4u, stop - begin);
            std::vector<uint32_t> order(stop - begin);
            std::iota(order.begin(), order.end(), begin);
            std::sort(order.begin(), order.end(),
                      [&](uint32_t a, uint32_t b) { return got[a] > got[b]; });
            for (uint32_t h = head * s.group(); h < (head + 1) * s.group(); h++)
                for (uint32_t k = 0; k < n; k++)
                    vote += dot_of(q, h, text.key(order[k]), head, s.head_dim) / n;
        }
    }
    std::sort(votes.rbegin(), votes.rend());
    votes.resize(n_slots / unit);
    Set expected;
    for (uint32_t i = 0; i < position; i++)
        if (i < n_first || i >= end) expected.insert(i);
    for (const auto& [vote, begin] : votes)
        for (uint32_t i = begin; i < std::min(end, (begin / unit + 1) * unit); i++)
            expected.insert(i);
    return expected;
}

TEST_CASE("select: blocks are chosen by their keys with the most attention")
{
    const Text text{9};
    const BedShape& s = text.shape;
    for (const std::string& device : tested_names()) {
        Bed bed("retain=all,select=infllm,read=160", 300, 32, device);
        for (uint32_t at = 0; at < 161; at++) text.read(bed, at, 1);
        for (uint32_t at = 161; at < 170; at++) {
            const std::vector<float> q = text.query(at), y = text.read(bed, at, 1);
            check_read(bed, text, y, q, at);
            for (uint32_t head = 0; head < s.n_kv_heads; head++)
                CHECK(chosen(bed, head).size() <= bed.recipe.read_slots());
            if (at > 161)
                continue; // earlier queries have read all tokens, so all attention is known
            const Set expected = expected_blocks(bed.recipe, text, q, at);
            CHECK(expected.size() < at);
            for (uint32_t head = 0; head < s.n_kv_heads; head++)
                CHECK(chosen(bed, head) == expected);
        }
    }
}

// The representatives of a block change only if it was read. A device that keeps them chooses the
// same blocks as the reference, which compares all keys.
TEST_CASE("select: kept block representatives give the same choice as all keys")
{
    const Text text{14};
    for (const std::string& device : tested_names()) {
        for (const char* recipe :
             {"retain=all,select=infllm,read=96", "retain=all,select=infllm,read=160,reuse=0.2",
              "retain=snapkv,observe=8,slots=400,select=infllm,read=96",
              "retain=h2o,split=ada,slots=200,select=infllm,read=96"}) {
            CAPTURE(device);
            CAPTURE(std::string(recipe));
            Bed one(recipe, 400, 32), other(recipe, 400, 32, device);
            for (Bed* bed : {&one, &other}) {
                bed->cache.set_text(nullptr, 0, 256); // trained on 256 tokens
                bed->q_clamped = true;
            }
            for (uint32_t at = 0; at < 380;) {
                // A prompt comes in chunks, a later one at 260.
                const uint32_t n = at < 160 || at == 260 ? 32 : 1;
                text.read(one, at, n);
                text.read(other, at, n);
                for (uint32_t head = 0; head < text.shape.n_kv_heads && at > 160; head++)
                    CHECK(chosen(one, head) == chosen(other, head));
                at += n;
            }
            CHECK(state(one)[select_choices] == state(other)[select_choices]);
        }
    }
}
