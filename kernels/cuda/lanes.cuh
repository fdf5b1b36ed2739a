// Rows of a cache as decoding reads them: lanes of a warp share a row, of which each has eight dims, and each asks for the words of many
// rows before it uses those of the first, for it is waiting that takes the time.
#pragma once

#include "kernels/cuda/eight.cuh"
#include "kernels/cuda/mma.cuh"

namespace ks
{

// Eight dims of a row that are one lane's. Where rows have a plane of 4 or 2 bits it takes those of one word or of half a word of it,
// which are apart; else neighbours.
struct LaneDims {
    uint first, step;
    DEVICE_MEMBER uint operator[](uint k) const { return first + step * k; }
};

DEVICE LaneDims dims_of_lane(uint plane, uint j)
{
    if (plane == 4u) return {64u * (j / 8u) + j % 8u, 8u};
    if (plane == 2u) return {64u * (j / 8u) + j % 4u + 32u * (j % 8u / 4u), 4u};
    return {8u * j, 1u};
}

// The word of a plane that has a lane's fields, and it with them at its lower end.
template <uint plane> DEVICE uint word_of_lane(uint j) { return plane == 4u ? j : j / 8u * 4u + j % 4u; }
template <uint plane> DEVICE uint fields_of_lane(uint word, uint j) { return plane == 2u ? word >> 16u * (j % 8u / 4u) : word; }

// A lane's dims of a row: the values of each 8 / n of them are scale * factor * value, and, where those are codes, scale * offset times
// the codec's own offset more.
template <uint n> struct LaneRow {
    float values[8], factors[n], offsets[n], scale = 1.f;
};

// How lane j of those that share a row of d dims reads rows of a codec. It is made for a run of rows, one of which is `row`. plane: as
// LaneDims says. n_rows: as many are on their way at a time, of n_words each; fetch asks for words, decode makes the row of them. turn
// says what keys are multiplied by instead of a query, and what is added; late: it waits for memory itself. adds: to the logits of other rows.
struct LaneRows {
    static constexpr uint plane = 0u, n_factors = 1u;
    static constexpr bool are_codes = false, of_keys = true, of_values = true, late = false, adds = false;
    static constexpr float up = 1.f, down = 1.f;
    DEVICE_MEMBER static float place(uint) { return 1.f; }
    template <uint n> DEVICE_MEMBER static void turn(const float (&query)[8], float (&by)[8], float (&base)[n])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) by[k] = query[k], base[k % n] = 0.f;
    }
};

// Codes that are multiplied as they lie in a word. A float whose bits are a whole number n below 2^24 is n 2^-149, subnormal or not, so
// that one mask makes a number of a field. What it is multiplied by makes good for its place in the word and for 2^-75, what comes of it
// for the other 2^-74: no float is 2^149.
template <uint bits, uint factors, int least> struct LaneCodes : LaneRows {
    static constexpr uint plane = bits % 8u, n_factors = factors;
    static constexpr bool are_codes = true;
    static constexpr float up = 0x1p75f, down = 0x1p74f, offset = float(least);
    DEVICE_MEMBER static constexpr uint bit(uint k) { return bits == 2u ? 2u * k : bits == 4u ? 4u * (k % 4u) : 8u * (k % 4u % 3u); }
    DEVICE_MEMBER static float place(uint k) { return float(1u << bit(k)); }
    // Of dims [first, first + n): what a word does not have below its 24th bit is shifted there.
    DEVICE_MEMBER static void codes_of(uint word, uint first, uint n, float* out)
    {
        KS_UNROLL
        for (uint k = first; k < first + n; k++) {
            const uint shift = bits == 8u && k % 4u == 3u ? 24u : bits == 4u && k > 3u ? 16u : 0u;
            out[k] = BITS_TO_FLOAT(word >> shift & ((1u << bits) - 1u) << bit(k));
        }
    }
    DEVICE_MEMBER static void turn(const float (&query)[8], float (&by)[8], float (&base)[factors])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            const uint f = k * factors / 8u;
            by[k] = query[k] * (up / place(k));
            base[f] = (k * factors % 8u == 0u ? 0.f : base[f]) + query[k] * (offset / down);
        }
    }
};

// Where in row r, of so many bytes, something is: one instruction.
template <class T> DEVICE const T* in_row(const T* in_first, uint r, uint bytes)
{
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(in_first) + uint64_t(r) * bytes);
}

template <class C, uint bits, uint d> struct LaneTurbo : LaneRows {
    static constexpr uint plane = bits, n_rows = 8u, n_words = C::ranks == 4u ? 3u : 2u;
    uint j;
    const uint *codes, *signs;
    const uint16_t* scales;
    DEVICE_MEMBER LaneTurbo(const CudaCache& cache, uint, uint lane)
        : j(lane), codes(whole(cache.words + word_of_lane<bits>(j))), signs(whole(cache.words + d / 16u + j / 8u * 2u + j % 2u)),
          scales(reinterpret_cast<const uint16_t*>(row_words<RowCodec<C>>(cache, cache.n_rows, d))) // d is a multiple of 64
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<C>::words(d);
        words[0] = __ldg(in_row(codes, r, row_bytes));
        words[1] = __ldg(scales + r);
        if (C::ranks == 4u) words[n_words - 1u] = __ldg(in_row(signs, r, row_bytes));
    }
    DEVICE_MEMBER LaneRow<1> decode(const uint (&words)[n_words], const float* levels) const
    {
        LaneRow<1> row;
        row.factors[0] = HALF_TO_FLOAT(words[1]);
        const uint fields = fields_of_lane<bits>(words[0], j), places = 0x3c3c3c3cu; // in bytes, of every second code
        const uint signs_of_two = words[n_words - 1u] >> (j % 4u / 2u + 16u * (j % 8u / 4u)); // of the dims two apart in one word
        KS_UNROLL
        for (uint k = 0u; k < 8u; k += 2u) {
            if (bits == 4u) {
                row.values[k] = load_of_byte(levels, fields << 2u & places, k / 2u);
                row.values[k + 1u] = load_of_byte(levels, fields >> 2u & places, k / 2u);
                continue;
            }
            float two[2];
            load_of_table(turbo_pairs(levels), (k == 0u ? fields << 3u : fields >> (2u * k - 3u)) & 0x78u, two);
            KS_UNROLL
            for (uint i = 0u; i < 2u; i++) {
                const uint sign = signs_of_two << (31u - 2u * (k + i)) & 0x80000000u;
                row.values[k + i] = C::ranks == 4u ? BITS_TO_FLOAT(FLOAT_TO_BITS(two[i]) ^ sign) : two[i];
            }
        }
        return row;
    }
};

// A lane's dims are in two blocks.
template <uint d> struct LaneQ4 : LaneCodes<4u, 2u, -8> {
    static constexpr uint n_rows = 8u, n_words = 2u;
    const uint *codes, *scales;
    DEVICE_MEMBER LaneQ4(const CudaCache& cache, uint, uint j)
        : codes(whole(cache.words + j)), scales(whole(cache.words + d / 8u + j / 8u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[2]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_q4>::words(d);
        words[0] = __ldg(in_row(codes, r, row_bytes));
        words[1] = __ldg(in_row(scales, r, row_bytes));
    }
    DEVICE_MEMBER LaneRow<2> decode(const uint (&words)[2], const float*) const
    {
        LaneRow<2> row;
        halves_of(words[1], row.factors);
        halves_of(words[1], row.offsets);
        codes_of(words[0], 0u, 8u, row.values);
        return row;
    }
};

template <uint d> struct LaneQ8 : LaneCodes<8u, 1u, -128> {
    static constexpr uint n_rows = 8u, n_words = 3u;
    const uint *codes;
    const uint16_t* scales;
    DEVICE_MEMBER LaneQ8(const CudaCache& cache, uint, uint j)
        : codes(whole(cache.words + 2u * j)), scales(whole(reinterpret_cast<const uint16_t*>(cache.words + d / 4u) + j / 4u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[3]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_q8>::words(d);
        uint two[2];
        load_words<2u, d == 64u ? 1u : 2u>(in_row(codes, r, row_bytes), two);
        words[0] = two[0], words[1] = two[1];
        words[2] = __ldg(in_row(scales, r, row_bytes));
    }
    DEVICE_MEMBER LaneRow<1> decode(const uint (&words)[3], const float*) const
    {
        LaneRow<1> row;
        row.factors[0] = row.offsets[0] = HALF_TO_FLOAT(words[2]);
        codes_of(words[0] ^ 0x80808080u, 0u, 4u, row.values);
        codes_of(words[1] ^ 0x80808080u, 4u, 4u, row.values);
        return row;
    }
};

// A lane's dims are in two blocks, or in one.
template <class C, uint bits, uint d> struct LaneKiviRow : LaneCodes<bits, bits / 2u, 1> {
    static constexpr uint n_rows = 8u, n_ranges = bits / 2u, n_words = 1u + n_ranges;
    static constexpr bool of_keys = false;
    uint j;
    const uint *codes, *ranges;
    DEVICE_MEMBER LaneKiviRow(const CudaCache& cache, uint, uint lane)
        : j(lane), codes(whole(cache.words + word_of_lane<bits>(j))),
          ranges(whole(cache.words + bits * d / 32u + j / (2u * bits) * n_ranges))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<C>::words(d);
        uint of_blocks[n_ranges];
        load_words<n_ranges, n_ranges>(in_row(ranges, r, row_bytes), of_blocks);
        words[0] = __ldg(in_row(codes, r, row_bytes));
        KS_UNROLL
        for (uint b = 0u; b < n_ranges; b++) words[1u + b] = of_blocks[b];
    }
    DEVICE_MEMBER LaneRow<n_ranges> decode(const uint (&words)[n_words], const float*) const
    {
        LaneRow<n_ranges> row;
        KS_UNROLL
        for (uint b = 0u; b < n_ranges; b++) row.factors[b] = kivi_scale(words[1u + b]), row.offsets[b] = kivi_least(words[1u + b]);
        this->codes_of(fields_of_lane<bits>(words[0], j), 0u, 8u, row.values);
        return row;
    }
};

// Keys of one group, whose ranges go into the query.
template <class C, uint bits, uint d> struct LaneKiviGroup : LaneCodes<bits, 1u, 1> {
    static constexpr uint n_rows = 8u, n_words = 1u;
    static constexpr bool of_values = false, late = true;
    uint j, ranges[8];
    const uint* codes;
    DEVICE_MEMBER LaneKiviGroup(const CudaCache& cache, uint row, uint lane) : j(lane)
    {
        const uint* group = row_words<GroupCodec<C>>(cache, row, d);
        const LaneDims dims = dims_of_lane(bits, j);
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) ranges[k] = __ldg(group + dims[k]);
        codes = whole(group + d + word_of_lane<bits>(j));
    }
    DEVICE_MEMBER void turn(const float (&query)[8], float (&by)[8], float (&base)[1]) const
    {
        base[0] = 0.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            by[k] = query[k] * kivi_scale(ranges[k]) * (this->up / this->place(k));
            base[0] += query[k] * kivi_least(ranges[k]) / this->down;
        }
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[1]) const { words[0] = __ldg(in_row(codes, r % kivi_rows, bits * d / 8u)); }
    DEVICE_MEMBER LaneRow<1> decode(const uint (&words)[1], const float*) const
    {
        LaneRow<1> row;
        row.factors[0] = 1.f;
        this->codes_of(fields_of_lane<bits>(words[0], j), 0u, 8u, row.values);
        return row;
    }
};

// A lane has half a block of 16: one angle of level 3, two of level 2, four of level 1 below it, which are under one shift in four words.
template <class C, bool fine, uint d> struct LanePolar : LaneRows {
    static constexpr uint n_factors = 4u, n_rows = 4u, n_words = fine ? 11u : 8u;
    const uint row_bytes = 4u * RowCodec<C>::words(d);
    uint j;
    const CudaCache& cache;
    const uint *rows, *firsts, *seconds;
    const uint16_t* radii;
    DEVICE_MEMBER LanePolar(const CudaCache& of, uint, uint lane)
        : j(lane), cache(of), rows(whole(of.words)), firsts(whole(of.words + (d == 64u ? 0u : j / 16u * 8u + 4u * (j & 1u)))),
          seconds(whole(of.words + bit_of(2u, false) / 32u)),
          radii(whole(reinterpret_cast<const uint16_t*>(of.words) + d / 8u + j / (fine ? 4u : 2u)))
    {
    }
    // Of the lane's angles of a level, or of their high bits.
    DEVICE_MEMBER uint bit_of(uint level, bool high) const
    {
        return polar_bit(d, fine, level, level == 2u ? 2u * j : j >> (level - 3u), high);
    }
    // The word that has them, which may be the bytes that fill none.
    DEVICE_MEMBER uint word_of(uint r, uint tail, uint level, bool high) const
    {
        const uint bit = bit_of(level, high);
        if (level == 2u && !high) return __ldg(in_row(seconds, r, row_bytes));
        return bit < 8u * row_bytes ? __ldg(in_row(rows, r, row_bytes) + bit / 32u) : tail;
    }
    // Words: four of level 1, the radius, of levels 2, 3, 4 and 5, the high bits of 2 and of 3.
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint tail = row_tail<RowCodec<C>>(cache, r, d);
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) words[k] = __ldg(in_row(firsts, r, row_bytes) + k);
        words[4] = __ldg(in_row(radii, r, row_bytes));
        KS_UNROLL
        for (uint level = 2u; level < 5u; level++) words[3u + level] = word_of(r, tail, level, false);
        if constexpr (fine) {
            words[8] = word_of(r, tail, 5u, false);
            words[9] = word_of(r, tail, 2u, true);
            words[10] = word_of(r, tail, 3u, true);
        }
    }
    // Eight times the code of angle i of a level, which is where its cosine and sine are in a table; high: its high bit.
    DEVICE_MEMBER uint low_of(const uint (&words)[n_words], uint level, uint i) const
    {
        const uint word = words[3u + level];
        return __funnelshift_r(word, word, bit_of(level, false) + 2u * i - 3u) & 0x18u;
    }
    DEVICE_MEMBER uint high_of(const uint (&words)[n_words], uint level, uint i) const
    {
        const uint word = words[n_words - 4u + level];
        return __funnelshift_r(word, word, bit_of(level, true) + i - 5u) & 0x20u;
    }
    DEVICE_MEMBER LaneRow<4> decode(const uint (&words)[n_words], const float* levels) const
    {
        LaneRow<4> row;
        row.scale = HALF_TO_FLOAT(words[4]);
        if constexpr (fine) row.scale *= load_of_table(polar_at(levels, 5u), low_of(words, 5u, 0u) | 4u * (j / 2u & 1u));
        row.scale *= load_of_table(polar_at(levels, 4u), low_of(words, 4u, 0u) | 4u * (j & 1u));
        angles(words, levels, row.factors);
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) {
            float first[2];
            load_of_table(levels, __funnelshift_r(words[k], words[k], 4u * (d == 64u ? j : j % 16u / 2u) - 3u) & 0x78u, first);
            row.values[2u * k] = first[0];
            row.values[2u * k + 1u] = first[1];
        }
        return row;
    }
    // Products of levels 3 and 2.
    DEVICE_MEMBER void angles(const uint (&words)[n_words], const float* levels, float (&out)[4]) const
    {
        float third[2] = {1.f, 1.f}, second[2];
        if constexpr (fine) load_of_table(polar_at(levels, 3u), low_of(words, 3u, 0u) | high_of(words, 3u, 0u), third);
        KS_UNROLL
        for (uint i = 0u; i < 2u; i++) {
            if constexpr (fine)
                load_of_table(polar_at(levels, 2u), low_of(words, 2u, i) | high_of(words, 2u, i), second);
            else
                load_of_table(polar_products(levels, i), 4u * low_of(words, 3u, 0u) | low_of(words, 2u, i), second);
            KS_UNROLL
            for (uint k = 0u; k < 2u; k++) out[2u * i + k] = third[i] * second[k];
        }
    }
};

// Rows that are not coded, and those beside coded ones, whose plane says which dims are a lane's.
template <uint d> struct LaneHalves : LaneRows {
    static constexpr uint n_rows = 4u, n_words = 4u;
    const uint* words_of_lane;
    DEVICE_MEMBER LaneHalves(const CudaCache& cache, uint, uint j) : words_of_lane(whole(cache.words + 4u * j)) {}
    DEVICE_MEMBER void fetch(uint r, uint (&words)[4]) const { load_words<4u, 4u>(in_row(words_of_lane, r, 2u * d), words); }
    DEVICE_MEMBER LaneRow<1> decode(const uint (&words)[4], const float*) const
    {
        LaneRow<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) halves_of(words[k], row.values + 2u * k);
        return row;
    }
};
template <uint d> struct LaneApart : LaneRows {
    static constexpr uint n_rows = 1u, n_words = 8u;
    const CudaCache& cache;
    uint plane, j;
    DEVICE_MEMBER LaneApart(const CudaCache& of, uint plane_of_lane, uint lane) : cache(of), plane(plane_of_lane), j(lane) {}
    DEVICE_MEMBER void fetch(uint r, uint (&words)[8]) const
    {
        const LaneDims dims = dims_of_lane(plane, j);
        const uint16_t* halves = reinterpret_cast<const uint16_t*>(cache.words) + uint64_t(r) * d;
        const uint* floats = cache.words + uint64_t(r) * d;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) words[k] = cache.format == plain_f16 ? __ldg(halves + dims[k]) : __ldg(floats + dims[k]);
    }
    DEVICE_MEMBER LaneRow<1> decode(const uint (&words)[8], const float*) const
    {
        LaneRow<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) row.values[k] = cache.format == plain_f16 ? HALF_TO_FLOAT(words[k]) : BITS_TO_FLOAT(words[k]);
        return row;
    }
};

// Waves of positions, by their lowest digit: what the keys' bias is multiplied by.
template <uint d> struct LaneWaves : LaneRows {
    static constexpr uint n_rows = 4u, n_words = 8u;
    static constexpr bool adds = true;
    const float* waves;
    uint n;
    DEVICE_MEMBER LaneWaves(const float* of, uint n_wave, uint j) : waves(of + 8u * j), n(8u * j < n_wave ? n_wave : 0u) {}
    DEVICE_MEMBER void fetch(uint r, uint (&words)[8]) const
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) words[k] = 0u;
        if (n != 0u) load_words<8u, 4u>(reinterpret_cast<const uint*>(waves + uint64_t(r) * n), words);
    }
    DEVICE_MEMBER LaneRow<1> decode(const uint (&words)[8], const float*) const
    {
        LaneRow<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) row.values[k] = BITS_TO_FLOAT(words[k]);
        return row;
    }
};

template <class C, uint d> struct LaneLoad;
#define KS_ROWS(Codec, ...) \
    template <uint d> struct LaneLoad<Codec, d> { \
        using Rows = __VA_ARGS__; \
    }
KS_ROWS(RowCodec<codec_turbo4>, LaneTurbo<codec_turbo4, 4u, d>);
KS_ROWS(RowCodec<codec_turbo3>, LaneTurbo<codec_turbo3, 2u, d>);
KS_ROWS(RowCodec<codec_turbo2>, LaneTurbo<codec_turbo2, 2u, d>);
KS_ROWS(RowCodec<codec_turbo2v>, LaneTurbo<codec_turbo2v, 2u, d>);
KS_ROWS(RowCodec<codec_q4>, LaneQ4<d>);
KS_ROWS(RowCodec<codec_q8>, LaneQ8<d>);
KS_ROWS(RowCodec<codec_polar>, LanePolar<codec_polar, false, d>);
KS_ROWS(RowCodec<codec_polar5>, LanePolar<codec_polar5, true, d>);
KS_ROWS(RowCodec<codec_kiviv>, LaneKiviRow<codec_kiviv, 4u, d>);
KS_ROWS(RowCodec<codec_kivi2v>, LaneKiviRow<codec_kivi2v, 2u, d>);
KS_ROWS(GroupCodec<codec_kivi>, LaneKiviGroup<codec_kivi, 4u, d>);
KS_ROWS(GroupCodec<codec_kivi2>, LaneKiviGroup<codec_kivi2, 2u, d>);
#undef KS_ROWS

// Where the rows of a cache lie, whatever its format; of groups, what all rows of one share comes first.
struct RowPlaces {
    const char *rows, *tails;
    uint row_bytes, tail_bytes, group_bytes;
};

template <uint d> DEVICE RowPlaces places_of(const CudaCache& cache)
{
    RowPlaces to = {reinterpret_cast<const char*>(cache.words), nullptr, cache.format == plain_f16 ? 2u * d : 4u * d, 0u, 0u};
    with_codec(cache.format, [&](auto codec) {
        using C = decltype(codec);
        const uint* tails = cache.words + uint64_t(cache.n_rows) * C::words(d);
        if (C::group == 1u)
            to = {reinterpret_cast<const char*>(cache.words), reinterpret_cast<const char*>(tails), 4u * C::words(d), C::n_tail(d), 0u};
        else
            to = {reinterpret_cast<const char*>(cache.words), nullptr, 4u * (C::words(d) - d) / C::group, 0u, 4u * C::words(d)};
    });
    return to;
}

// By one lane; what a group's rows share is asked for by all of its lanes.
template <uint d> DEVICE void ask_for_row(const RowPlaces& places, uint row)
{
    const char* at = places.rows + uint64_t(row) * places.row_bytes;
    if (places.group_bytes != 0u) {
        const char* group = places.rows + uint64_t(row / kivi_rows) * places.group_bytes;
        ask_for(group + row % kivi_rows * (4u * d / kivi_rows));
        at = group + 4u * d + row % kivi_rows * places.row_bytes;
    }
    KS_UNROLL_BY(1)
    for (uint i = 0u; i < places.row_bytes; i += 32u) ask_for(at + i);
    ask_for(at + places.row_bytes - 1u);
    if (places.tail_bytes != 0u) ask_for(places.tails + uint64_t(row) * places.tail_bytes);
}

// What lanes want to know of a format before they read it.
struct LaneFormat {
    uint plane = 0u;
    bool of_keys = true, of_values = true;
};

template <class Rows> static inline __host__ __device__ LaneFormat lane_format() { return {Rows::plane, Rows::of_keys, Rows::of_values}; }

static inline __host__ __device__ LaneFormat lane_format_of(uint format)
{
    uint nth = first_codec;
#define KS_CASE(name) \
    if (format == nth++) return lane_format<typename LaneLoad<RowCodec<codec_##name>, 64u>::Rows>();
    CODECS(KS_CASE)
#undef KS_CASE
#define KS_CASE(name) \
    if (format == nth++) return lane_format<typename LaneLoad<GroupCodec<codec_##name>, 64u>::Rows>();
    GROUP_CODECS(KS_CASE)
#undef KS_CASE
    return {};
}

// The plane that decides which dims are a lane's: that of the pool which has most of a long text.
static inline __host__ __device__ uint plane_of_pools(const CudaCache& plain, const CudaCache& coded)
{
    return lane_format_of(coded.words != nullptr ? coded.format : plain.format).plane;
}

// body(what reads rows of d dims of a pool, one of which is row). coded: it may be of any format, else it is of halves; of keys no codec is
// one of values alone, nor the other way round.
template <uint d, bool coded, bool values, class Body>
DEVICE void with_lane_rows(const CudaCache& cache, uint row, uint plane, uint j, const Body& body)
{
    if (!coded || (cache.format == plain_f16 && plane == 0u)) return body(LaneHalves<d>(cache, row, j));
    if (cache.format < first_codec) return body(LaneApart<d>(cache, plane, j));
    with_codec(cache.format, [&](auto codec) {
        using Rows = typename LaneLoad<decltype(codec), d>::Rows;
        if constexpr (values ? Rows::of_values : Rows::of_keys) body(Rows(cache, row, j));
    });
}

} // namespace ks
