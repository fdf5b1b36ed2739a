// A cache with a coded pool, and independent bookkeeping: the place of each token, its bytes, and
// attention over these bytes in float64.
#pragma once

#include "tests/backends/coded_rows.h"
#include "tests/kv/cache_bed.h"

#include <cstring>
#include <map>

namespace ks
{

// The Hadamard transform of one head, bit for bit as the op computes it.
inline void hadamard_head(float* x, uint32_t d, bool inverse)
{
    for (uint32_t base = 0, block; base < d; base += block) {
        block = hadamard_block(base, d);
        for (uint32_t i = base; !inverse && i < base + block; i++) x[i] *= hadamard_sign(i);
        for (uint32_t step = 1; step < block; step *= 2)
            for (uint32_t i = base; i < base + block; i++)
                if (!((i - base) & step)) {
                    const float a = x[i], b = x[i + step];
                    x[i] = a + b, x[i + step] = a - b;
                }
        for (uint32_t i = base; i < base + block; i++) x[i] *= hadamard_scale(block);
        for (uint32_t i = base; inverse && i < base + block; i++) x[i] *= hadamard_sign(i);
    }
}

// A row of a pool, words and then tail.
inline std::vector<uint8_t> row_bytes(const Tensor& t, uint32_t row)
{
    const uint32_t bytes = codec_info(t.format).row_bytes(t.cols),
                   tail = is_coded(t.format) ? bytes % 4 : 0;
    const CodedRow at = coded_row(t, row);
    std::vector<uint8_t> out(bytes);
    memcpy(out.data(), at.words, bytes - tail);
    if (tail) memcpy(out.data() + bytes - tail, at.tail, tail);
    return out;
}

// Tokens with keys of six kinds, so that victims find similar tokens to merge with.
struct CodedText {
    uint64_t seed;
    BedShape shape;

    mutable std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> rows{}; // by token and what

    const std::vector<float>& row(uint32_t token, uint32_t what, uint32_t n) const
    {
        std::vector<float>& out = rows[{token, what}];
        if (!out.empty()) return out;
        for (uint32_t i = 0; i < n; i++) {
            auto normal = [&](uint64_t t) {
                double sum = -2;
                for (uint64_t k = 0; k < 4; k++)
                    sum += random_uniform(seed, ((t * 4 + what) * 4096 + i) * 4 + k);
                return 1.7 * sum;
            };
            if (what == 0)
                out.push_back(float(normal(token) * 1.5 / std::sqrt(double(shape.head_dim))));
            if (what == 1) out.push_back(float(normal(1000000 + token % 6) + 0.4 * normal(token)));
            if (what == 2) out.push_back(float(normal(token)));
        }
        return out;
    }
};

// One head's token as it must be stored before it is encoded.
inline std::vector<float> stored_head(const CodedText& text, uint32_t token, uint32_t what,
                                      uint32_t head, bool rotates, Format plain)
{
    const uint32_t d = text.shape.head_dim;
    const std::vector<float>& all = text.row(token, what, text.shape.n_kv_heads * d);
    std::vector<float> x(all.begin() + head * d, all.begin() + (head + 1) * d);
    if (rotates) hadamard_head(x.data(), d, false);
    for (float& value : x)
        if (plain == Format::f16) value = HALF_TO_FLOAT(FLOAT_TO_HALF(value));
    return x;
}

class CodedCache
{
public:
    struct Held {
        uint32_t position;
        bool coded;
    };

    CodedCache(const std::string& recipe, uint32_t n_rows, uint32_t chunk, const char* device,
               const CodedText& t)
        : bed(recipe, n_rows, chunk, device, 2, t.shape), text(t), expected(t.shape.n_kv_heads)
    {
    }

    // Reads the next n tokens, numbered from `from` in the text. twin: a cache that has read them
    // and holds the same bytes.
    void read(uint32_t n, uint32_t from, const CodedCache* twin = nullptr)
    {
        const BedShape& s = text.shape;
        std::vector<float> rows[3];
        for (uint32_t t = from; t < from + n; t++)
            for (uint32_t what = 0; what < 3; what++) {
                const std::vector<float>& one =
                    text.row(t, what, (what ? s.n_kv_heads : s.n_heads) * s.head_dim);
                rows[what].insert(rows[what].end(), one.begin(), one.end());
            }
        const uint32_t position = bed.n_seen;
        tokens.resize(position);
        for (uint32_t t = 0; t < n; t++) tokens.push_back(from + t);
        if (!bed.cache.layer(0).spec.table) { // an exact cache, to compare with
            y = bed.feed(rows[0], rows[1], rows[2]);
            return;
        }
        wanted = twin ? twin->wanted : attention(rows[0], position, n);
        y = bed.feed(rows[0], rows[1], rows[2]);
        for (size_t i = 0; i < y.size(); i++) worst = std::max(worst, std::fabs(y[i] - wanted[i]));
        keep_books(position, n);
    }

    void check_places() const
    {
        const CacheLayer& l = bed.cache.layer(0);
        for (uint32_t h = 0; h < text.shape.n_kv_heads; h++) {
            REQUIRE(l.held[h] == expected[h].size());
            uint32_t n_coded = 0;
            for (uint32_t i = 0; i < l.held[h]; i++) {
                REQUIRE(l.positions[l.begin[h] + i] == expected[h][i].position);
                REQUIRE(l.in_coded_pool(l.slots[l.begin[h] + i]) == expected[h][i].coded);
                n_coded += expected[h][i].coded;
            }
            REQUIRE(l.coded[h] == n_coded);
        }
    }

    // Checks every token that is not merged with others. Returns the number of coded ones.
    uint32_t check_bytes() const
    {
        const CacheLayer& l = bed.cache.layer(0);
        uint32_t checked = 0;
        for (uint32_t h = 0; h < text.shape.n_kv_heads; h++)
            for (uint32_t i = 0; i < l.held[h]; i++) {
                const uint32_t slot = l.slots[l.begin[h] + i], position = expected[h][i].position;
                if (position == kNoPosition || (l.counts && l.counts[slot] > 1)) continue;
                for (uint32_t what = 1; what < 3; what++) {
                    const Tensor& pool = pool_of(slot, what);
                    const uint32_t row = slot - (l.in_coded_pool(slot) ? l.first_coded() : 0);
                    const std::vector<float> x =
                        stored_head(text, tokens[position], what, h, rotates(what), plain(what));
                    REQUIRE(row_bytes(pool, row) ==
                            encode(pool.format, x.data(), uint32_t(x.size())));
                }
                checked += expected[h][i].coded;
            }
        return checked;
    }

    // The bytes of every slot in use, as the tables list them.
    std::vector<uint8_t> all_bytes() const
    {
        const CacheLayer& l = bed.cache.layer(0);
        std::vector<uint8_t> out;
        for (uint32_t h = 0; h < text.shape.n_kv_heads; h++)
            for (uint32_t i = 0; i < l.held[h]; i++) {
                const uint32_t slot = l.slots[l.begin[h] + i];
                for (uint32_t what = 1; what < 3; what++) {
                    const std::vector<uint8_t> one = row_bytes(
                        pool_of(slot, what), slot - (l.in_coded_pool(slot) ? l.first_coded() : 0));
                    out.insert(out.end(), one.begin(), one.end());
                }
            }
        return out;
    }

    bool rewind(uint32_t n_tokens)
    {
        if (!bed.cache.rewind(bed.n_seen, n_tokens)) return false;
        for (std::vector<Held>& head : expected) head.resize(head.size() - (bed.n_seen - n_tokens));
        bed.n_seen = n_tokens;
        return true;
    }

    Bed bed;
    CodedText text;
    std::vector<std::vector<Held>> expected; // by head, in the order of the text
    std::vector<uint32_t> tokens;            // by position, as the text numbers them
    std::vector<float> y;                    // of the last chunk
    std::vector<double> wanted;              // by the formula
    double worst = 0;                        // difference of an output from the formula

private:
    bool rotates(uint32_t what) const
    {
        const CacheLayerSpec& s = bed.cache.layer(0).spec;
        return s.n_coded && codec_info(what == 1 ? s.k : s.v).hadamard;
    }
    Format plain(uint32_t what) const
    {
        const KvSlots& slots = bed.cache.layer(0).kv;
        return what == 1 ? slots.k.format : slots.v.format;
    }
    const Tensor& pool_of(uint32_t slot, uint32_t what) const
    {
        const CacheLayer& l = bed.cache.layer(0);
        if (l.in_coded_pool(slot)) return what == 1 ? l.kv.coded_k : l.kv.coded_v;
        return what == 1 ? l.kv.k : l.kv.v;
    }

    // Tracks the coded tokens by the rule: when a chunk finds too few plain slots, all tokens
    // between the first and the last ones are encoded.
    void keep_books(uint32_t position, uint32_t n)
    {
        const CacheLayer& l = bed.cache.layer(0);
        const uint32_t n_rows = l.spec.n_slots, sink = bed.recipe.sink_of(n_rows),
                       recent = bed.recipe.plain_recent_of(n_rows);
        bool staged = false;
        for (const std::vector<Held>& head : expected) {
            const uint32_t plain = uint32_t(std::count_if(
                head.begin(), head.end(), [](const Held& one) { return !one.coded; }));
            staged |= plain + n > n_rows - l.spec.n_coded;
        }
        for (uint32_t h = 0; h < expected.size(); h++) {
            std::vector<Held>& head = expected[h];
            for (uint32_t t = 0; t < n; t++) head.push_back({position + t, false});
            for (size_t i = sink; staged && i + extra_plain(head.size()) + recent < head.size();
                 i++)
                head[i].coded = true;
            if (!staged || bed.recipe.exact()) continue;
            const std::vector<uint32_t> stay = bed.positions(h);
            const auto gone = [&](const Held& one) {
                return std::find(stay.begin(), stay.end(), one.position) == stay.end();
            };
            head.erase(std::remove_if(head.begin(), head.end(), gone), head.end());
            const size_t estimated = size_t(std::count(stay.begin(), stay.end(), kNoPosition));
            const size_t known =
                size_t(std::count_if(head.begin(), head.end(),
                                     [](const Held& one) { return one.position == kNoPosition; }));
            head.insert(head.begin() + std::min<long>(sink, long(head.size())), estimated - known,
                        Held{kNoPosition, true});
        }
    }
    // Without eviction: the number of last tokens that fit into no coded slot.
    size_t extra_plain(size_t n) const
    {
        const CacheLayerSpec& s = bed.cache.layer(0).spec;
        const size_t most =
            s.n_coded + bed.recipe.sink_of(s.n_slots) + bed.recipe.plain_recent_of(s.n_slots);
        return bed.recipe.exact() && n > most ? n - most : 0;
    }

    // Keys and values of one head as attention reads them, with the biases of the logits.
    struct HeadRows {
        std::vector<std::vector<float>> k, v;
        std::vector<float> num_bias, den_bias; // in the sum over values, in the sum of weights

        void add(std::vector<float> key, std::vector<float> value, float a, float b)
        {
            k.push_back(std::move(key)), v.push_back(std::move(value));
            num_bias.push_back(a), den_bias.push_back(b);
        }
    };

    HeadRows held_rows(uint32_t h) const
    {
        const CacheLayer& l = bed.cache.layer(0);
        const auto decoded = [&](uint32_t slot, uint32_t what) {
            const Tensor& pool = pool_of(slot, what);
            const uint32_t row = slot - (l.in_coded_pool(slot) ? l.first_coded() : 0);
            return decode(pool.format, row_bytes(pool, row), text.shape.head_dim);
        };
        HeadRows rows;
        for (uint32_t i = 0; i < l.held[h]; i++) {
            const uint32_t slot = l.slots[l.begin[h] + i];
            rows.add(decoded(slot, 1), decoded(slot, 2), l.weights ? l.weights[2 * slot] : 0,
                     l.weights ? l.weights[2 * slot + 1] : 0);
        }
        return rows;
    }

    // The output of one query head, in float64 up to the inverse transform of the values.
    std::vector<float> attend(std::vector<float> q, const HeadRows& rows) const
    {
        const uint32_t d = text.shape.head_dim;
        if (rotates(1)) hadamard_head(q.data(), d, false);
        std::vector<double> sums(d);
        double sum = 0;
        for (size_t i = 0; i < rows.k.size(); i++) {
            double logit = 0;
            for (uint32_t k = 0; k < d; k++) logit += double(q[k]) * rows.k[i][k];
            sum += std::exp(logit + rows.den_bias[i]);
            const double weight = std::exp(logit + rows.num_bias[i]);
            for (uint32_t k = 0; k < d; k++) sums[k] += weight * rows.v[i][k];
        }
        std::vector<float> out(d);
        for (uint32_t k = 0; k < d; k++) out[k] = float(sums[k] / sum);
        if (rotates(2)) hadamard_head(out.data(), d, true);
        return out;
    }

    std::vector<double> attention(const std::vector<float>& queries, uint32_t position, uint32_t n)
    {
        const BedShape& s = text.shape;
        const uint32_t d = s.head_dim;
        std::vector<double> out(queries.size());
        for (uint32_t h = 0; h < s.n_kv_heads; h++) {
            HeadRows rows = held_rows(h);
            for (uint32_t t = 0; t < n; t++) {
                const auto stored = [&](uint32_t what) {
                    return stored_head(text, tokens[position + t], what, h, rotates(what),
                                       plain(what));
                };
                rows.add(stored(1), stored(2), 0, 0);
                for (uint32_t g = 0; g < s.group(); g++) {
                    const size_t at = (size_t(t) * s.n_heads + h * s.group() + g) * d;
                    const std::vector<float> q(queries.begin() + long(at),
                                               queries.begin() + long(at + d));
                    const std::vector<float> one = attend(q, rows);
                    std::copy(one.begin(), one.end(), out.begin() + long(at));
                }
            }
        }
        return out;
    }
};

} // namespace ks
