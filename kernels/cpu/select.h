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
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// The k highest of n scores are those above a key, and of those equal to it all but the oldest n_left_out.
struct Highest {
    uint32_t key = 0, n_left_out = 0;

    // By digits from the highest on: each pass counts those that share the digits found so far.
    Highest(const float* score, uint32_t n, uint32_t k)
    {
        constexpr uint32_t kBits[3] = {11, 11, 10};
        if (k >= n) return;
        uint32_t shift = 32, counts[2048], n_above = 0, n_equal = n;
        for (uint32_t bits : kBits) {
            const uint32_t above = shift == 32 ? 0 : ~0u << shift, n_digits = 1u << bits;
            shift -= bits;
            memset(counts, 0, 4 * n_digits);
            for (uint32_t i = 0; i < n; i++) {
                const uint32_t u = ordered_bits(score[i]);
                if ((u & above) == key) counts[(u >> shift) & (n_digits - 1)]++;
            }
            uint32_t digit = n_digits;
            while (n_above + counts[--digit] < k && digit > 0) n_above += counts[digit];
            key |= digit << shift;
            n_equal = counts[digit];
        }
        n_left_out = n_equal - (k - n_above);
    }
    // Asked of all scores in order, oldest first.
    bool takes(float score)
    {
        const uint32_t u = ordered_bits(score);
        if (u != key) return u > key;
        if (n_left_out == 0) return true;
        n_left_out--;
        return false;
    }
};

// The candidates of a head that is not read as a whole, unit by unit; n is 0 after the last.
struct Unit {
    uint32_t begin, n, size, end;

    Unit(const SelectArgs& s, uint32_t before) : begin(s.n_first), size(s.unit), end(before > s.n_read ? before - s.n_last : 0)
    {
        measure();
    }
    void next()
    {
        begin += n;
        measure();
    }
    // Units begin at multiples of their size, but for the first.
    void measure()
    {
        const uint32_t whole = (begin / size + 1) * size;
        n = begin >= end ? 0 : (whole < end ? whole : end) - begin;
    }
};

// How many units a head has; 0: it is read as a whole.
inline uint32_t n_units(const SelectArgs& s, uint32_t before)
{
    return before > s.n_read ? (before - s.n_last + s.unit - 1) / s.unit - s.n_first / s.unit : 0;
}

// The highest few of indexes [from, end), in their order; of equal ones the newer.
struct FewHighest {
    uint32_t index[select_few], n = 0;

    template <class Score> FewHighest(uint32_t from, uint32_t end, const Score& score)
    {
        for (uint32_t i = from; i < end; i++) {
            uint32_t least = 0; // of those there are
            for (uint32_t k = 1; k < n; k++)
                if (ordered_bits(score(index[k])) < ordered_bits(score(index[least]))) least = k;
            if (n == select_few && ordered_bits(score(i)) < ordered_bits(score(index[least]))) continue;
            if (n == select_few) memmove(index + least, index + least + 1, (--n - least) * sizeof index[0]);
            index[n++] = i;
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
