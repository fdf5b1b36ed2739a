// The slots that a selector chose, and attention over them.
#pragma once

#include "tests/kv/cache_bed.h"

#include <set>

namespace ks
{

using Set = std::set<uint32_t>;

// The indexes that a head read in the last step, without the chunk's own tokens.
inline Set chosen(Bed& bed, uint32_t head)
{
    const CacheLayer& layer = bed.cache.layer(0);
    const Selection& selection = layer.selection;
    std::vector<uint32_t> head_layout(selection.head_layout.rows * layout_words),
        table(selection.table.cols);
    bed.backend->download(head_layout.data(), selection.head_layout.buffer,
                          selection.head_layout.offset, 4 * head_layout.size());
    bed.backend->download(table.data(), selection.table.buffer, selection.table.offset,
                          4 * table.size());
    const uint32_t *rows = layer.slots + layer.begin[head],
                   *v = head_layout.data() + head * layout_words;
    Set indexes;
    uint32_t last = 0;
    for (uint32_t i = 0; i < v[layout_n_held]; i++) {
        const uint32_t index = uint32_t(
            std::find(rows, rows + layer.held[head], table[v[layout_table_begin] + i]) - rows);
        REQUIRE(index < layer.held[head]);
        CHECK((i == 0 || index > last)); // in order
        indexes.insert(last = index);
    }
    return indexes;
}

inline std::vector<uint32_t> state(Bed& bed)
{
    const Tensor& t = bed.cache.layer(0).selection.state;
    std::vector<uint32_t> words(select_words);
    bed.backend->download(words.data(), t.buffer, t.offset, 4 * select_words);
    return words;
}

inline double dot_of(const std::vector<float>& q, uint32_t head, const std::vector<float>& k,
                     uint32_t kv_head, uint32_t d)
{
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) sum += double(q[head * d + i]) * k[kv_head * d + i];
    return sum;
}

// Attention of one token over some indexes and itself.
inline std::vector<double> attention_over(const Text& text, const std::vector<float>& q,
                                          const Set& set, uint32_t position, uint32_t head)
{
    const uint32_t d = text.shape.head_dim, kv_head = head / text.shape.group();
    std::vector<double> out(d);
    double norm = 0;
    Set all = set;
    all.insert(position);
    for (uint32_t i : all) {
        const double weight = std::exp(dot_of(q, head, text.key(i), kv_head, d));
        const std::vector<float> v = text.value(i);
        for (uint32_t k = 0; k < d; k++) out[k] += weight * v[kv_head * d + k];
        norm += weight;
    }
    for (double& x : out) x /= norm;
    return out;
}

inline void check_read(Bed& bed, const Text& text, const std::vector<float>& y,
                       const std::vector<float>& q, uint32_t position)
{
    const BedShape& s = text.shape;
    for (uint32_t h = 0; h < s.n_heads; h++) {
        const std::vector<double> expected =
            attention_over(text, q, chosen(bed, h / s.group()), position, h);
        for (uint32_t k = 0; k < s.head_dim; k++)
            CHECK(y[h * s.head_dim + k] == doctest::Approx(expected[k]).epsilon(2e-5));
    }
}

} // namespace ks
