// Rows of a cache as decoding reads them: lanes of a warp share a row, of which each has eight dims, or twice as many, and each asks for
// the words of many rows before it uses those of the first, for it is waiting that takes the time.
#pragma once

#include "kernels/cuda/eight.cuh"
#include "kernels/cuda/mma.cuh"

namespace ks
{

// Eight dims of a row, and whose they are. Where rows have a plane of 4 or 2 bits they are those of one word or of half a word of it,
// which are apart; else neighbours. A lane's second eight is the next one, or where that shares words with the first.
struct LaneDims {
    uint first, step;
    DEVICE_MEMBER uint operator[](uint k) const { return first + step * k; }
};
constexpr uint plane_of_angles = 1u; // neighbours, whose angles share words with those of the eight after the next

DEVICE LaneDims dims_of_eight(uint plane, uint i)
{
    if (plane == 4u) return {64u * (i / 8u) + i % 8u, 8u};
    if (plane == 2u) return {64u * (i / 8u) + i % 4u + 32u * (i % 8u / 4u), 4u};
    return {8u * i, 1u};
}

DEVICE uint eights_apart(uint plane) { return plane == 2u ? 4u : plane == plane_of_angles ? 2u : 1u; }

// The first of lane j's n eights; from one to the next it is eights_apart.
template <uint n> DEVICE uint first_eight(uint plane, uint j)
{
    const uint apart = eights_apart(plane);
    return n == 1u ? j : j % apart + j / apart * 2u * apart;
}

// The dims of lane j's eth eight.
template <uint n> DEVICE LaneDims dims_of_lane(uint plane, uint j, uint e)
{
    return dims_of_eight(plane, first_eight<n>(plane, j) + e * eights_apart(plane));
}

// The word of a plane that has an eight's fields, and those fields at its lower end.
template <uint plane> DEVICE uint word_of_eight(uint i) { return plane == 4u ? i : i / 8u * 4u + i % 4u; }
template <uint plane> DEVICE uint fields_of_eight(uint word, uint i) { return plane == 2u ? word >> 16u * (i % 8u / 4u) : word; }

// An eight of a row: the values of each 8 / n dims are scale * factor * value, and, where those are codes, scale * offset times the
// codec's own offset more.
template <uint n> struct LaneEight {
    float values[8], factors[n], offsets[n], scale = 1.f;
};

// How lane j of those that share a row of d dims reads its n eights of a codec's rows. It is made for a run of rows, one of which is `row`.
// plane: as LaneDims says. n_rows: as many are on their way at a time, of n_words each; fetch asks for words, decode makes the eth eight of
// them. turn says what keys are multiplied by instead of a query, and what is added; late: it waits for memory itself. adds: to the logits
// of other rows.
struct LaneRows {
    static constexpr uint plane = 0u, n_factors = 1u;
    static constexpr bool are_codes = false, of_keys = true, of_values = true, late = false, adds = false;
    static constexpr float up = 1.f, down = 1.f;
    DEVICE_MEMBER static float place(uint) { return 1.f; }
    template <uint n> DEVICE_MEMBER static void turn(const float (&query)[8], uint, float (&by)[8], float (&base)[n])
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
    DEVICE_MEMBER static void turn(const float (&query)[8], uint, float (&by)[8], float (&base)[factors])
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

template <class C, uint bits, uint d, uint n> struct LaneTurbo : LaneRows {
    static constexpr uint plane = bits, n_rows = 8u, n_codes = bits == 4u ? n : 1u, n_words = n_codes + (C::ranks == 4u ? 2u : 1u);
    uint i;
    const uint *codes, *signs;
    const uint16_t* scales;
    DEVICE_MEMBER LaneTurbo(const CudaCache& cache, uint, uint j)
        : i(first_eight<n>(plane, j)), codes(whole(cache.words + word_of_eight<bits>(i))),
          signs(whole(cache.words + d / 16u + i / 8u * 2u + i % 2u)),
          scales(reinterpret_cast<const uint16_t*>(row_words<RowCodec<C>>(cache, cache.n_rows, d))) // d is a multiple of 64
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<C>::words(d);
        load_words<n_codes, n_codes>(in_row(codes, r, row_bytes), words);
        words[n_codes] = __ldg(scales + r);
        if (C::ranks == 4u) words[n_words - 1u] = __ldg(in_row(signs, r, row_bytes));
    }
    DEVICE_MEMBER LaneEight<1> decode(const uint (&words)[n_words], uint e, const float* levels) const
    {
        LaneEight<1> row;
        row.factors[0] = HALF_TO_FLOAT(words[n_codes]);
        const uint fields = fields_of_eight<bits>(words[e % n_codes], i + 4u * e), places = 0x3c3c3c3cu; // in bytes, of every second code
        const uint half = bits == 4u ? 0u : i % 8u / 4u + e;                                       // of the word
        const uint signs_of_two = words[n_words - 1u] >> (i % 4u / 2u + 16u * half); // of the dims two apart in one word
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
            for (uint m = 0u; m < 2u; m++) {
                const uint sign = signs_of_two << (31u - 2u * (k + m)) & 0x80000000u;
                row.values[k + m] = C::ranks == 4u ? BITS_TO_FLOAT(FLOAT_TO_BITS(two[m]) ^ sign) : two[m];
            }
        }
        return row;
    }
};

// An eight is in two blocks.
template <uint d, uint n> struct LaneQ4 : LaneCodes<4u, 2u, -8> {
    static constexpr uint n_rows = 8u, n_words = n + 1u;
    const uint *codes, *scales;
    DEVICE_MEMBER LaneQ4(const CudaCache& cache, uint, uint j)
        : codes(whole(cache.words + n * j)), scales(whole(cache.words + d / 8u + n * j / 8u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_q4>::words(d);
        load_words<n, d == 64u ? 1u : n>(in_row(codes, r, row_bytes), words);
        words[n] = __ldg(in_row(scales, r, row_bytes));
    }
    DEVICE_MEMBER LaneEight<2> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneEight<2> row;
        halves_of(words[n], row.factors);
        halves_of(words[n], row.offsets);
        codes_of(words[e], 0u, 8u, row.values);
        return row;
    }
};

template <uint d, uint n> struct LaneQ8 : LaneCodes<8u, 1u, -128> {
    static constexpr uint n_rows = 8u / n, n_words = 2u * n + 1u;
    const uint *codes;
    const uint16_t* scales;
    DEVICE_MEMBER LaneQ8(const CudaCache& cache, uint, uint j)
        : codes(whole(cache.words + 2u * n * j)), scales(whole(reinterpret_cast<const uint16_t*>(cache.words + d / 4u) + n * j / 4u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_q8>::words(d);
        load_words<2u * n, d == 64u ? 1u : 2u>(in_row(codes, r, row_bytes), words);
        words[2u * n] = __ldg(in_row(scales, r, row_bytes));
    }
    DEVICE_MEMBER LaneEight<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneEight<1> row;
        row.factors[0] = row.offsets[0] = HALF_TO_FLOAT(words[2u * n]);
        codes_of(words[2u * e] ^ 0x80808080u, 0u, 4u, row.values);
        codes_of(words[2u * e + 1u] ^ 0x80808080u, 4u, 4u, row.values);
        return row;
    }
};

// An eight is in two blocks, which are those of the next one, too.
template <uint d, uint n> struct LaneKiviRow : LaneCodes<4u, 2u, 1> {
    static constexpr uint n_rows = 8u, n_words = n + 2u;
    static constexpr bool of_keys = false;
    const uint *codes, *ranges;
    DEVICE_MEMBER LaneKiviRow(const CudaCache& cache, uint, uint j)
        : codes(whole(cache.words + n * j)), ranges(whole(cache.words + d / 8u + n * j / 8u * 2u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_kiviv>::words(d);
        load_words<2u, 2u, n>(in_row(ranges, r, row_bytes), words);
        load_words<n, n>(in_row(codes, r, row_bytes), words);
    }
    DEVICE_MEMBER LaneEight<2> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneEight<2> row;
        KS_UNROLL
        for (uint b = 0u; b < 2u; b++) row.factors[b] = kivi_scale(words[n + b]), row.offsets[b] = kivi_least(words[n + b]);
        codes_of(words[e], 0u, 8u, row.values);
        return row;
    }
};

// Keys of one group, whose ranges go into the query, and until then take registers.
template <class C, uint bits, uint d, uint n> struct LaneKiviGroup : LaneCodes<bits, 1u, 1> {
    static constexpr uint n_rows = d == 256u ? 4u : 8u, n_words = bits == 4u ? n : 1u;
    static constexpr bool of_values = false, late = true;
    uint i, ranges[n][8];
    const uint* codes;
    DEVICE_MEMBER LaneKiviGroup(const CudaCache& cache, uint row, uint j) : i(first_eight<n>(bits, j))
    {
        const uint* group = row_words<GroupCodec<C>>(cache, row, d);
        KS_UNROLL
        for (uint e = 0u; e < n; e++) {
            const LaneDims dims = dims_of_eight(bits, i + e * eights_apart(bits));
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) ranges[e][k] = __ldg(group + dims[k]);
        }
        codes = whole(group + d + word_of_eight<bits>(i));
    }
    DEVICE_MEMBER void turn(const float (&query)[8], uint e, float (&by)[8], float (&base)[1]) const
    {
        base[0] = 0.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            by[k] = query[k] * kivi_scale(ranges[e][k]) * (this->up / this->place(k));
            base[0] += query[k] * kivi_least(ranges[e][k]) / this->down;
        }
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        load_words<n_words, n_words>(in_row(codes, r % kivi_rows, bits * d / 8u), words);
    }
    DEVICE_MEMBER LaneEight<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneEight<1> row;
        row.factors[0] = 1.f;
        this->codes_of(fields_of_eight<bits>(words[e % n_words], i + 4u * e), 0u, 8u, row.values);
        return row;
    }
};

// An eight is half a block of 16: one angle of level 3, two of level 2, four of level 1 below it, which are under one shift in four words.
template <uint d, uint n> struct LanePolar : LaneRows {
    using C = codec_polar;
    static constexpr uint plane = plane_of_angles, n_factors = 4u, n_rows = 4u, n_words = 8u;
    const uint row_bytes = 4u * RowCodec<C>::words(d);
    uint i;
    const CudaCache& cache;
    const uint *rows, *firsts, *seconds;
    const uint16_t* radii;
    DEVICE_MEMBER LanePolar(const CudaCache& of, uint, uint j)
        : i(first_eight<n>(plane, j)), cache(of), rows(whole(of.words)),
          firsts(whole(of.words + (d == 64u ? 0u : i / 16u * 8u + 4u * (i & 1u)))), seconds(whole(of.words + bit_of(2u) / 32u)),
          radii(whole(reinterpret_cast<const uint16_t*>(of.words) + d / 8u + i / 2u))
    {
    }
    DEVICE_MEMBER uint bit_of(uint level) const { return polar_bit(d, level, level == 2u ? 2u * i : i >> (level - 3u)); }
    // The word that has a level's angles of the lane; it may be the bytes that fill none.
    DEVICE_MEMBER uint word_of(uint r, uint tail, uint level) const
    {
        const uint first = polar_bit(d, level, 0u) / 32u, last = polar_bit(d, level, d / 2u / (1u << (level - 1u)) - 1u) / 32u;
        if (first == last) return 4u * first < row_bytes ? __ldg(in_row(rows, r, row_bytes) + first) : tail;
        return level == 2u ? __ldg(in_row(seconds, r, row_bytes)) : __ldg(in_row(rows + bit_of(level) / 32u, r, row_bytes));
    }
    // Words: four of level 1, the radii, of levels 2, 3 and 4.
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint tail = row_tail<RowCodec<C>>(cache, r, d);
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) words[k] = __ldg(in_row(firsts, r, row_bytes) + k);
        words[4] = n == 2u ? __ldg(reinterpret_cast<const uint*>(in_row(radii, r, row_bytes))) : __ldg(in_row(radii, r, row_bytes));
        KS_UNROLL
        for (uint level = 2u; level < 5u; level++) words[3u + level] = word_of(r, tail, level);
    }
    // Eight times the code of angle a of a level in the eth eight, which is where its cosine and sine are in a table.
    DEVICE_MEMBER static uint angle_of(uint e, uint level, uint a) { return e * (level == 2u ? 4u : 4u >> (level - 2u)) + a; }
    DEVICE_MEMBER uint low_of(const uint (&words)[n_words], uint e, uint level, uint a) const
    {
        const uint word = words[3u + level];
        return __funnelshift_r(word, word, bit_of(level) - 3u) >> 2u * angle_of(e, level, a) & 0x18u;
    }
    DEVICE_MEMBER LaneEight<4> decode(const uint (&words)[n_words], uint e, const float* levels) const
    {
        LaneEight<4> row;
        row.scale = HALF_TO_FLOAT(words[4] >> 16u * e & 0xffffu);
        row.scale *= load_of_table(polar_top(levels), low_of(words, e, 4u, 0u) | 4u * (i & 1u));
        angles(words, e, levels, row.factors);
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) {
            float first[2];
            load_of_table(levels, __funnelshift_r(words[k], words[k], 4u * (d == 64u ? i : i % 16u / 2u) - 3u) >> (d == 64u ? 8u : 4u) * e & 0x78u, first);
            row.values[2u * k] = first[0];
            row.values[2u * k + 1u] = first[1];
        }
        return row;
    }
    // Products of levels 3 and 2.
    DEVICE_MEMBER void angles(const uint (&words)[n_words], uint e, const float* levels, float (&out)[4]) const
    {
        KS_UNROLL
        for (uint a = 0u; a < 2u; a++) {
            float second[2];
            load_of_table(polar_products(levels, a), 4u * low_of(words, e, 3u, 0u) | low_of(words, e, 2u, a), second);
            KS_UNROLL
            for (uint k = 0u; k < 2u; k++) out[2u * a + k] = second[k];
        }
    }
};

// Rows that are not coded, and those beside coded ones, whose plane says which dims are a lane's.
template <uint d, uint n> struct LaneHalves : LaneRows {
    static constexpr uint n_rows = 4u / n, n_words = 4u * n;
    const uint* words_of_lane;
    uint apart;
    DEVICE_MEMBER LaneHalves(const CudaCache& cache, uint plane_of_lane, uint j)
        : words_of_lane(whole(cache.words + 4u * first_eight<n>(plane_of_lane, j))), apart(4u * eights_apart(plane_of_lane))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        load_words<4u, 4u>(in_row(words_of_lane, r, 2u * d), words);
        if constexpr (n == 2u) load_words<4u, 4u, 4u>(in_row(words_of_lane + apart, r, 2u * d), words);
    }
    DEVICE_MEMBER LaneEight<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneEight<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) halves_of(words[4u * e + k], row.values + 2u * k);
        return row;
    }
};
template <uint d, uint n> struct LaneApart : LaneRows {
    static constexpr uint n_rows = 1u, n_words = 8u * n;
    const CudaCache& cache;
    uint plane, i;
    DEVICE_MEMBER LaneApart(const CudaCache& of, uint plane_of_lane, uint j) : cache(of), plane(plane_of_lane), i(first_eight<n>(plane, j)) {}
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint16_t* halves = reinterpret_cast<const uint16_t*>(cache.words) + uint64_t(r) * d;
        const uint* floats = cache.words + uint64_t(r) * d;
        KS_UNROLL
        for (uint e = 0u; e < n; e++) {
            const LaneDims dims = dims_of_eight(plane, i + e * eights_apart(plane));
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) words[8u * e + k] = cache.format == plain_f16 ? __ldg(halves + dims[k]) : __ldg(floats + dims[k]);
        }
    }
    DEVICE_MEMBER LaneEight<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneEight<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            const uint word = words[8u * e + k];
            row.values[k] = cache.format == plain_f16 ? HALF_TO_FLOAT(word) : BITS_TO_FLOAT(word);
        }
        return row;
    }
};

// Waves of positions, by their lowest digit: what the keys' bias is multiplied by. A lane has one eight.
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
    DEVICE_MEMBER LaneEight<1> decode(const uint (&words)[8], uint, const float*) const
    {
        LaneEight<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) row.values[k] = BITS_TO_FLOAT(words[k]);
        return row;
    }
};

template <class C, uint d, uint n> struct LaneLoad;
#define KS_ROWS(Codec, ...) \
    template <uint d, uint n> struct LaneLoad<Codec, d, n> { \
        using Rows = __VA_ARGS__; \
    }
KS_ROWS(RowCodec<codec_turbo4>, LaneTurbo<codec_turbo4, 4u, d, n>);
KS_ROWS(RowCodec<codec_turbo3>, LaneTurbo<codec_turbo3, 2u, d, n>);
KS_ROWS(RowCodec<codec_turbo2>, LaneTurbo<codec_turbo2, 2u, d, n>);
KS_ROWS(RowCodec<codec_turbo2v>, LaneTurbo<codec_turbo2v, 2u, d, n>);
KS_ROWS(RowCodec<codec_q4>, LaneQ4<d, n>);
KS_ROWS(RowCodec<codec_q8>, LaneQ8<d, n>);
KS_ROWS(RowCodec<codec_polar>, LanePolar<d, n>);
KS_ROWS(RowCodec<codec_kiviv>, LaneKiviRow<d, n>);
KS_ROWS(GroupCodec<codec_kivi>, LaneKiviGroup<codec_kivi, 4u, d, n>);
KS_ROWS(GroupCodec<codec_kivi2>, LaneKiviGroup<codec_kivi2, 2u, d, n>);
#undef KS_ROWS

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
    if (format == nth++) return lane_format<typename LaneLoad<RowCodec<codec_##name>, 64u, 1u>::Rows>();
    CODECS(KS_CASE)
#undef KS_CASE
#define KS_CASE(name) \
    if (format == nth++) return lane_format<typename LaneLoad<GroupCodec<codec_##name>, 64u, 1u>::Rows>();
    GROUP_CODECS(KS_CASE)
#undef KS_CASE
    return {};
}

// The plane that decides which dims are a lane's: that of the pool which has most of a long text.
static inline __host__ __device__ uint plane_of_pools(const CudaCache& plain, const CudaCache& coded)
{
    return lane_format_of(coded.words != nullptr ? coded.format : plain.format).plane;
}

// body(what reads a lane's n eights of rows of d dims of a pool, one of which is row). coded: it may be of any format, else it is of halves;
// of keys no codec is one of values alone, nor the other way round.
template <uint d, uint n, bool coded, bool values, class Body>
DEVICE void with_lane_rows(const CudaCache& cache, uint row, uint plane, uint j, const Body& body)
{
    if (!coded || (cache.format == plain_f16 && plane < 2u)) return body(LaneHalves<d, n>(cache, plane, j));
    if (cache.format < first_codec) return body(LaneApart<d, n>(cache, plane, j));
    with_codec(cache.format, [&](auto codec) {
        using Rows = typename LaneLoad<decltype(codec), d, n>::Rows;
        if constexpr (values ? Rows::of_values : Rows::of_keys) body(Rows(cache, row, j));
    });
}

} // namespace ks
