// Weights in units of 32 values. Each word of a unit is read once. Value i of a unit is
// scale[i / 16] * level(i) + offset[i / 16]. kernels/common/formats.h must be included before.
// load_unit(at, r, s) reads unit s of row r of the tile-block at word `at`.
// levels(j) has the levels of values 4 j .. 4 j + 3 as signed bytes. Formats of single values (f32,
// f16, bf16) have level() only.
uint low[8], high[8];
vec2 scale, offset;

#define EACH(n) [[unroll]] for (uint j = 0u; j < n; j++)
#define NIBBLES(j) (low[(j) & 3u] >> ((j) & 4u) & 0x0f0f0f0fu)
#define F16_PAIR(word) unpackHalf2x16(word)

uint iq4_levels(uint nibbles)
{
    uint word = 0u;
    EACH(4u) word |= (uint(iq4_level(nibbles >> 8u * j & 15u)) & 255u) << 8u * j;
    return word;
}
uint e2m1_levels(uint nibbles)
{
    uint word = 0u;
    EACH(4u) word |= (uint(e2m1_level(nibbles >> 8u * j & 15u)) & 255u) << 8u * j;
    return word;
}

#if defined(FORMAT_f32) || defined(FORMAT_f16) || defined(FORMAT_bf16)
#define NO_BLOCKS
const bool has_offset = false, has_groups = false;
uint unit_at, unit_row;
void load_unit(uint at, uint r, uint s)
{
    unit_at = at;
    unit_row = r;
    scale = vec2(1.f);
}
float level(uint i) { return value(unit_at, unit_row, i); }

#elif defined(FORMAT_q8_0)
const bool has_offset = false, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(8u) low[j] = TILE_WORD(j, r);
    scale = vec2(TILE_HALF(r));
}
uint levels(uint j) { return low[j]; }

#elif defined(FORMAT_q4_0)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(4u) low[j] = TILE_WORD(j, r);
    scale = vec2(TILE_HALF(r));
    offset = -8.f * scale;
}
uint levels(uint j) { return NIBBLES(j); }

#elif defined(FORMAT_q4_1)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(4u) low[j] = TILE_WORD(1u + j, r);
    vec2 dm = F16_PAIR(TILE_WORD(0u, r));
    scale = dm.xx;
    offset = dm.yy;
}
uint levels(uint j) { return NIBBLES(j); }

#elif defined(FORMAT_q5_0) || defined(FORMAT_q5_1)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
#ifdef FORMAT_q5_0
    const uint first = 1u;
    scale = vec2(TILE_HALF(r));
    offset = -16.f * scale;
#else
    const uint first = 2u;
    vec2 dm = F16_PAIR(TILE_WORD(0u, r));
    scale = dm.xx;
    offset = dm.yy;
#endif
    EACH(4u) low[j] = TILE_WORD(first + j, r);
    high[0] = TILE_WORD(first - 1u, r);
}
uint levels(uint j) { return NIBBLES(j) | (high[0] >> j & 0x01010101u) << 4; }

#elif defined(FORMAT_q2_k)
const bool has_offset = true, has_groups = true;
void load_unit(uint at, uint r, uint s)
{
    EACH(8u) low[j] = TILE_WORD(4u + s / 4u * 8u + j, r) >> 2u * (s & 3u);
    vec2 dm = F16_PAIR(TILE_WORD(20u, r));
    uint sm = TILE_WORD(s / 2u, r) >> 16u * (s & 1u);
    scale = dm.x * vec2(sm & 15u, sm >> 8 & 15u);
    offset = -dm.y * vec2(sm >> 4 & 15u, sm >> 12 & 15u);
}
uint levels(uint j) { return low[j] & 0x03030303u; }

#elif defined(FORMAT_q3_k)
const bool has_offset = true, has_groups = true;
void load_unit(uint at, uint r, uint s)
{
    EACH(8u) low[j] = TILE_WORD(8u + s / 4u * 8u + j, r) >> 2u * (s & 3u);
    EACH(8u) high[j] = TILE_WORD(j, r) >> s;
    uint g = 2u * s, shift = 8u * (g & 3u);
    uint bits = TILE_WORD(24u + (g & 7u) / 4u, r) >> shift + 4u * (g / 8u),
         more = TILE_WORD(26u, r) >> shift + 2u * (g / 4u);
    uvec2 both = uvec2((bits & 15u) | (more & 3u) << 4, (bits >> 8 & 15u) | (more >> 8 & 3u) << 4);
    scale = TILE_HALF(r) * (vec2(both) - 32.f);
    offset = -4.f * scale;
}
uint levels(uint j) { return (low[j] & 0x03030303u) | (high[j] & 0x01010101u) << 2; }

#elif defined(FORMAT_q4_k) || defined(FORMAT_q5_k)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
#ifdef FORMAT_q5_k
    const uint first = 12u;
    EACH(8u) high[j] = TILE_WORD(4u + j, r) >> s;
#else
    const uint first = 4u;
#endif
    EACH(8u) low[j] = TILE_WORD(first + s / 2u * 8u + j, r) >> 4u * (s & 1u);
    uint shift = 8u * (s & 3u), a = TILE_WORD(1u, r) >> shift, b = TILE_WORD(2u, r) >> shift,
         c = TILE_WORD(3u, r) >> shift;
    vec2 dm = F16_PAIR(TILE_WORD(0u, r));
    scale = vec2(dm.x * float(s < 4u ? a & 63u : (c & 15u) | (a >> 2 & 48u)));
    offset = vec2(-dm.y * float(s < 4u ? b & 63u : (c >> 4 & 15u) | (b >> 2 & 48u)));
}
#ifdef FORMAT_q5_k
uint levels(uint j) { return (low[j] & 0x0f0f0f0fu) | (high[j] & 0x01010101u) << 4; }
#else
uint levels(uint j) { return low[j] & 0x0f0f0f0fu; }
#endif

#elif defined(FORMAT_q6_k)
const bool has_offset = true, has_groups = true;
void load_unit(uint at, uint r, uint s)
{
    uint n = s / 4u, part = s & 3u, sums = TILE_WORD(48u + s / 2u, r) >> 16u * (s & 1u);
    EACH(8u) low[j] = TILE_WORD(n * 16u + (part & 1u) * 8u + j, r) >> 4u * (part / 2u);
    EACH(8u) high[j] = TILE_WORD(32u + n * 8u + j, r) >> 2u * part;
    scale = TILE_HALF(r) * vec2(int(sums << 24) >> 24, int(sums << 16) >> 24);
    offset = -32.f * scale;
}
uint levels(uint j) { return (low[j] & 0x0f0f0f0fu) | (high[j] & 0x03030303u) << 4; }

#elif defined(FORMAT_iq4_nl)
const bool has_offset = false, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(4u) low[j] = TILE_WORD(j, r);
    scale = vec2(TILE_HALF(r));
}
uint levels(uint j) { return iq4_levels(NIBBLES(j)); }

#elif defined(FORMAT_iq4_xs)
const bool has_offset = false, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(4u) low[j] = TILE_WORD(2u + 4u * s + j, r);
    uint head = TILE_WORD(0u, r);
    uint six = (TILE_WORD(1u, r) >> 4u * s & 15u) | (head >> 16u + 2u * s & 3u) << 4;
    scale = vec2(HALF_TO_FLOAT(head & 0xffffu) * (float(six) - 32.f));
}
uint levels(uint j) { return iq4_levels(NIBBLES(j)); }

#elif defined(FORMAT_mxfp4)
const bool has_offset = false, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(4u) low[j] = TILE_WORD(j, r);
    scale = vec2(mxfp4_scale(at, r));
}
uint levels(uint j) { return e2m1_levels(NIBBLES(j)); }

#elif defined(FORMAT_nvfp4)
const bool has_offset = false, has_groups = true;
void load_unit(uint at, uint r, uint s)
{
    EACH(4u) low[j] = TILE_WORD(1u + 4u * s + j, r);
    scale = vec2(nvfp4_scale(at, r, 2u * s), nvfp4_scale(at, r, 2u * s + 1u));
}
uint levels(uint j)
{
    return e2m1_levels(low[j / 4u * 2u + (j & 1u)] >> 2u * (j & 2u) & 0x0f0f0f0fu);
}

#elif defined(FORMAT_q1_0)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    low[0] = TILE_WORD(s, r);
    offset = vec2(-TILE_HALF(r));
    scale = -2.f * offset;
}
uint levels(uint j) { return low[0] >> j & 0x01010101u; }

#elif defined(FORMAT_q2_0)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(2u) low[j] = TILE_WORD(2u * s + j, r);
    scale = vec2(TILE_HALF(r));
    offset = -scale;
}
uint levels(uint j) { return low[j / 4u] >> 2u * (j & 3u) & 0x03030303u; }

#elif defined(FORMAT_tq2_0)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(8u) low[j] = TILE_WORD(s / 4u * 8u + j, r) >> 2u * (s & 3u);
    scale = vec2(TILE_HALF(r));
    offset = -scale;
}
uint levels(uint j) { return low[j] & 0x03030303u; }

#elif defined(FORMAT_tq1_0)
const bool has_offset = true, has_groups = false;
void load_unit(uint at, uint r, uint s)
{
    EACH(8u) low[j] = tq1_levels(at, r, 8u * s + j);
    scale = vec2(TILE_HALF(r));
    offset = -scale;
}
uint levels(uint j) { return low[j]; }

#else // a format with a grid
#define HAS_GRID
#if defined(FORMAT_iq2_xs) || defined(FORMAT_iq2_s) || defined(FORMAT_iq1_m)
const bool has_offset = false, has_groups = true;
#else
const bool has_offset = false, has_groups = false;
#endif
void load_unit(uint at, uint r, uint s)
{
    EACH(8u) low[j] = grid_levels(at, r, 8u * s + j);
    scale = vec2(grid_scale(at, r, 2u * s), grid_scale(at, r, 2u * s + 1u));
}
uint levels(uint j) { return low[j]; }
#endif

// Shaders with units of a grid format hold its grid in shared memory.
#ifndef HAS_GRID
void load_grid() {}
#endif

#ifndef NO_BLOCKS
float level(uint i) { return float(int(levels(i / 4u) << (24u - 8u * (i & 3u))) >> 24); }
#endif
