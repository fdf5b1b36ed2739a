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
    void finish(uint32_t head, const SelectArgs& s, uint32_t* out_view) const
    {
        out_view[view_before] = n;
        out_view[view_begin] = head * s.stride;
        out_view[view_coded_begin] = coded_begin;
        out_view[view_coded_end] = coded_end;
    }
};

} // namespace ks
