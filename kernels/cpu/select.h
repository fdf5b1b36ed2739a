// Top-k of scores, and the list of slots that attention reads after a selection.
#pragma once

#include "kernels/common/args.h"

#include <string.h>

namespace ks
{

inline uint32_t ordered_bits(float score)
{
    return ordered_key(FLOAT_TO_BITS(score));
}

// The k highest of n scores. Among equal scores the newest win.
class TopK
{
public:
    TopK(const float* score, uint32_t n, uint32_t k) : m_score(score), m_n(n)
    {
        if (n > kMostBlocks * m_block) m_block = (n + kMostBlocks - 1) / kMostBlocks;
        const uint32_t n_blocks = (n + m_block - 1) / m_block;
        for (uint32_t b = 0; b < n_blocks; b++) m_tops[b] = top_of(b);
        if (k >= n) return;
        // At least k scores reach the k-th highest block maximum. Scores below the first digit of
        // that maximum are not among the k. `high` holds the others, if they fit.
        uint32_t least = 0, high[kMostBlocks], n_high = 0;
        if (k < n_blocks)
            least = find(1, k, [&](const auto& body) {
                for (uint32_t b = 0; b < n_blocks; b++) body(m_tops[b]);
            });
        for_blocks(least, [&](uint32_t i) {
            const uint32_t u = ordered_bits(score[i]);
            if (n_high < kMostBlocks) high[n_high] = u;
            n_high += u >= least;
        });
        m_key = find(3, k, [&](const auto& body) {
            if (n_high <= kMostBlocks)
                for (uint32_t i = 0; i < n_high; i++) body(high[i]);
            else
                for_blocks(least, [&](uint32_t i) { body(ordered_bits(score[i])); });
        });
    }
    // Calls take(i) for the index of each of the k, oldest first.
    template <class Take>
    void each(const Take& take) const
    {
        uint32_t n_equal = 0;
        for_blocks(m_key, [&](uint32_t i) {
            const uint32_t u = ordered_bits(m_score[i]);
            if (u < m_key) return;
            if (in_top_k(u, m_key, n_equal, m_n_left_out)) take(i);
            n_equal += u == m_key;
        });
    }

private:
    static constexpr uint32_t kMostBlocks = 4096;

    uint32_t end_of(uint32_t block) const
    {
        return (block + 1) * m_block < m_n ? (block + 1) * m_block : m_n;
    }
    uint32_t top_of(uint32_t block) const
    {
        uint32_t top = 0;
        for (uint32_t i = block * m_block, end = end_of(block); i < end; i++) {
            const uint32_t u = ordered_bits(m_score[i]);
            top = u > top ? u : top;
        }
        return top;
    }
    // Calls body(i) for every index of the blocks whose maximum reaches `least`.
    template <class Body>
    void for_blocks(uint32_t least, const Body& body) const
    {
        for (uint32_t block = 0; block * m_block < m_n; block++)
            for (uint32_t i = block * m_block, end = m_tops[block] < least ? i : end_of(block);
                 i < end; i++)
                body(i);
    }
    // Radix select: the first n_digits digits of the k-th highest value, followed by zeros.
    // pass(body) calls body with each value. Each pass counts the values that share the digits
    // found so far.
    template <class Pass>
    uint32_t find(uint32_t n_digits, uint32_t k, const Pass& pass)
    {
        constexpr uint32_t kBits[3] = {11, 11, 10};
        uint32_t key = 0, shift = 32, counts[2048], n_above = 0;
        for (uint32_t nth = 0; nth < n_digits; nth++) {
            const uint32_t above = shift == 32 ? 0 : ~0u << shift, base = 1u << kBits[nth];
            shift -= kBits[nth];
            memset(counts, 0, 4 * base);
            pass([&](uint32_t u) {
                if ((u & above) == key) counts[(u >> shift) & (base - 1)]++;
            });
            uint32_t digit = base;
            while (n_above + counts[--digit] < k && digit > 0) n_above += counts[digit];
            key |= digit << shift;
            m_n_left_out = counts[digit] - (k - n_above);
        }
        return key;
    }

    const float* m_score;
    uint32_t m_n, m_block = 8, m_key = 0;
    uint32_t m_n_left_out = 0;    // the oldest scores equal to m_key that are not among the k
    uint32_t m_tops[kMostBlocks]; // the highest score of each block
};

inline uint32_t n_units(const SelectArgs& s, uint32_t before)
{
    return count_units(before, s.n_read, s.n_first, s.n_last, s.unit);
}

// One unit of candidates.
struct Unit {
    uint32_t begin, n;

    Unit(const SelectArgs& s, uint32_t before, uint32_t nth)
        : begin(unit_bound(nth, before, s.n_first, s.n_last, s.unit)),
          n(unit_bound(nth + 1, before, s.n_first, s.n_last, s.unit) - begin)
    {
    }
    uint32_t n_representatives() const { return count_representatives(n); }
};

// The select_n_representatives highest of indexes [from, end), in ascending order. Among equal
// scores the newest win.
struct TopFew {
    uint32_t index[select_n_representatives], n = 0;

    template <class Score>
    TopFew(uint32_t from, uint32_t end, const Score& score)
    {
        // (score << 32 | index), the highest first; zero: none.
        uint64_t best[select_n_representatives] = {};
        for (uint32_t i = from; i < end; i++) {
            uint64_t now = uint64_t(ordered_bits(score(i))) << 32 | i;
            if (now < best[select_n_representatives - 1]) continue;
            for (uint64_t& kept : best) {
                const uint64_t higher = kept > now ? kept : now;
                now = kept > now ? now : kept;
                kept = higher;
            }
        }
        while (n < select_n_representatives && best[n]) {
            uint32_t at = n++;
            for (; at > 0 && index[at - 1] > uint32_t(best[n - 1]); at--) index[at] = index[at - 1];
            index[at] = uint32_t(best[n - 1]);
        }
    }
};

// The units of a head that are read: those with the most votes.
inline TopK best_units(const SelectArgs& s, uint32_t before, const float* votes)
{
    return {votes, n_units(s, before), count_taken(s.n_read, s.n_first, s.n_last, s.unit)};
}

// The list of slots that select writes for one head.
struct ChosenList {
    const uint32_t* head_layout; // of the slots
    const uint32_t* table;       // of the slots, from the head's first on
    uint32_t* to;
    uint32_t n = 0, coded_begin = 0, coded_end = 0;

    void add(uint32_t index)
    {
        if (index < head_layout[layout_coded_begin]) coded_begin = coded_end = n + 1;
        if (in_coded_pool(index, head_layout[layout_coded_begin], head_layout[layout_coded_end]))
            coded_end = n + 1;
        to[n++] = table[index];
    }
    void add_range(uint32_t from, uint32_t end)
    {
        for (; from < end; from++) add(from);
    }
    void finish(uint32_t first, uint32_t* out_layout) const
    {
        out_layout[layout_n_held] = n;
        out_layout[layout_table_begin] = first;
        out_layout[layout_coded_begin] = coded_begin;
        out_layout[layout_coded_end] = coded_end;
    }
};

// Adds the representatives of all units of a head. representatives(unit, nth) points to the indexes
// of one unit's representatives.
template <class Representatives>
void add_representatives(ChosenList& list, const SelectArgs& s,
                         const Representatives& representatives)
{
    for (uint32_t nth = 0; nth < n_units(s, list.head_layout[layout_n_held]); nth++) {
        const Unit unit(s, list.head_layout[layout_n_held], nth);
        const uint32_t* index = representatives(unit, nth);
        for (uint32_t k = 0; k < unit.n_representatives(); k++) list.add(index[k]);
    }
}

} // namespace ks
