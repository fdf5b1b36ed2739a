// Which of many have the highest scores, and the list that attention then reads.
#pragma once

#include "kernels/common/args.h"

#include <string.h>

namespace ks
{

// Scores as integers of the same order.
inline uint32_t ordered_bits(float score)
{
    uint32_t u;
    memcpy(&u, &score, 4);
    return u ^ ((0u - (u >> 31)) | 0x80000000u);
}

// The k highest of n scores; of equal ones the newest.
class Highest
{
public:
    Highest(const float* score, uint32_t n, uint32_t k) : m_score(score), m_n(n)
    {
        if (n > kMostBlocks * m_block) m_block = (n + kMostBlocks - 1) / kMostBlocks;
        const uint32_t n_blocks = (n + m_block - 1) / m_block;
        for (uint32_t b = 0; b < n_blocks; b++) m_tops[b] = top_of(b);
        if (k >= n) return;
        // At least k scores come to the k-th highest of the tops, so blocks whose tops are below it have none of the k.
        if (k < n_blocks)
            m_key = find(k, [&](const auto& body) {
                for (uint32_t b = 0; b < n_blocks; b++) body(m_tops[b]);
            });
        const uint32_t least = m_key;
        m_key = find(k, [&](const auto& body) { for_blocks(least, [&](uint32_t i) { body(ordered_bits(score[i])); }); });
    }
    // take(i) for each of them, oldest first.
    template <class Take> void each(const Take& take) const
    {
        uint32_t n_left_out = m_n_left_out;
        for_blocks(m_key, [&](uint32_t i) {
            const uint32_t u = ordered_bits(m_score[i]);
            if (u < m_key) return;
            if (u > m_key || n_left_out == 0) return take(i);
            n_left_out--;
        });
    }

private:
    static constexpr uint32_t kMostBlocks = 4096;

    uint32_t top_of(uint32_t block) const
    {
        uint32_t top = 0;
        for (uint32_t i = block * m_block, end = end_of(block); i < end; i++)
            top = ordered_bits(m_score[i]) > top ? ordered_bits(m_score[i]) : top;
        return top;
    }
    uint32_t end_of(uint32_t block) const { return (block + 1) * m_block < m_n ? (block + 1) * m_block : m_n; }
    // body(i) for the scores of all blocks that come to `least`.
    template <class Body> void for_blocks(uint32_t least, const Body& body) const
    {
        for (uint32_t block = 0; block * m_block < m_n; block++)
            for (uint32_t i = block * m_block, end = m_tops[block] < least ? i : end_of(block); i < end; i++) body(i);
    }
    // The k-th highest of what pass(body) gives to body. By digits from the highest on: each pass counts those that share the digits
    // found so far.
    template <class Pass> uint32_t find(uint32_t k, const Pass& pass)
    {
        constexpr uint32_t kBits[3] = {11, 11, 10};
        uint32_t key = 0, shift = 32, counts[2048], n_above = 0, n_equal = 0;
        for (uint32_t bits : kBits) {
            const uint32_t above = shift == 32 ? 0 : ~0u << shift, n_digits = 1u << bits;
            shift -= bits;
            memset(counts, 0, 4 * n_digits);
            pass([&](uint32_t u) {
                if ((u & above) == key) counts[(u >> shift) & (n_digits - 1)]++;
            });
            uint32_t digit = n_digits;
            while (n_above + counts[--digit] < k && digit > 0) n_above += counts[digit];
            key |= digit << shift;
            n_equal = counts[digit];
        }
        m_n_left_out = n_equal - (k - n_above);
        return key;
    }

    const float* m_score;
    uint32_t m_n, m_block = 8, m_key = 0, m_n_left_out = 0; // of those equal to the key, the oldest are left out
    uint32_t m_tops[kMostBlocks];                           // of blocks, the highest of each
};

// How many units of candidates a head has; 0: it is read as a whole.
inline uint32_t n_units(const SelectArgs& s, uint32_t before)
{
    return before > s.n_read ? (before - s.n_last + s.unit - 1) / s.unit - s.n_first / s.unit : 0;
}

// One of them. Units begin at multiples of their size, but for the first.
struct Unit {
    uint32_t begin, n;

    Unit(const SelectArgs& s, uint32_t before, uint32_t nth)
    {
        const uint32_t end = (s.n_first / s.unit + nth + 1) * s.unit, last = before - s.n_last;
        begin = nth ? end - s.unit : s.n_first;
        n = (end < last ? end : last) - begin;
    }
};

// The highest few of indexes [from, end), in their order; of equal ones the newer.
struct FewHighest {
    uint32_t index[select_few], n = 0;

    template <class Score> FewHighest(uint32_t from, uint32_t end, const Score& score)
    {
        uint32_t bits[select_few], least = 0; // of those there are
        for (uint32_t i = from; i < end; i++) {
            const uint32_t u = ordered_bits(score(i));
            if (n == select_few) {
                if (u < bits[least]) continue;
                n--;
                memmove(index + least, index + least + 1, (n - least) * sizeof index[0]);
                memmove(bits + least, bits + least + 1, (n - least) * sizeof bits[0]);
            }
            index[n] = i;
            bits[n++] = u;
            least = 0;
            for (uint32_t k = 1; k < n; k++) least = bits[k] < bits[least] ? k : least;
        }
    }
};

// One head's part of what select makes.
struct ChosenList {
    const uint32_t* view;  // of the slots
    const uint32_t* table; // of the slots, from the head's first on
    uint32_t* to;
    uint32_t n = 0, coded_begin = 0, coded_end = 0;

    void add(uint32_t index)
    {
        if (index < view[view_coded_begin]) coded_begin = coded_end = n + 1;
        if (index >= view[view_coded_begin] && index < view[view_coded_end]) coded_end = n + 1;
        to[n++] = table[index];
    }
    void add_range(uint32_t from, uint32_t end)
    {
        for (; from < end; from++) add(from);
    }
    void finish(uint32_t first, uint32_t* out_view) const
    {
        out_view[view_before] = n;
        out_view[view_begin] = first;
        out_view[view_coded_begin] = coded_begin;
        out_view[view_coded_end] = coded_end;
    }
};

} // namespace ks
