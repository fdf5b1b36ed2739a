// iq3_xxs: 256 values per block in 8 groups of 32, w = d * (s + 1/2) / 2 * q with s in 0..15. Four
// q are an entry of the grid with signs. 98 bytes a row (3.0625 bits per value).
//   half         d
//   word j       j = 0..15: byte i is the entry of values 16j + 4i .. 16j + 4i + 3
//   word 16 + g  bits 28-31: s of group g; below, the signs of its values (even_signs)
// Levels of an entry: 4 12 20 28 36 44 52 62
#if !defined(GLSL) || defined(FORMAT_iq3_xxs)
// Entry i in half i & 1 of word i / 2, four bits per value: its level.
#define IQ3_XXS_GRID                                                                           \
    0x00020000u, 0x00110004u, 0x00170013u, 0x00220020u, 0x00420031u, 0x00750073u, 0x01030101u, \
    0x01120110u, 0x01250121u, 0x01320130u, 0x01540141u, 0x02000170u, 0x02040202u, 0x02200211u, \
    0x02310222u, 0x02370233u, 0x02570251u, 0x03010275u, 0x03100307u, 0x03250312u, 0x04130370u, \
    0x04440437u, 0x04730457u, 0x05010475u, 0x05320507u, 0x06350552u, 0x07100664u, 0x07160714u, \
    0x07610743u, 0x10031001u, 0x10121010u, 0x10231021u, 0x10321030u, 0x10471034u, 0x11001050u, \
    0x11111102u, 0x11221120u, 0x12031201u, 0x12121210u, 0x12301221u, 0x13001272u, 0x13201302u, \
    0x13461331u, 0x14011366u, 0x14501405u, 0x15241520u, 0x15711546u, 0x17221605u, 0x20001740u, \
    0x20112002u, 0x20202013u, 0x20262022u, 0x20422031u, 0x21032101u, 0x21102105u, 0x21212112u, \
    0x21632130u, 0x21702167u, 0x22022200u, 0x22172211u, 0x22222220u, 0x22402237u, 0x23012255u, \
    0x23142310u, 0x23742370u, 0x24532435u, 0x25272503u, 0x25742541u, 0x27032701u, 0x27452716u, \
    0x30103001u, 0x30213012u, 0x30503023u, 0x30723065u, 0x31023100u, 0x31313120u, 0x31463144u, \
    0x32033201u, 0x32253210u, 0x32723252u, 0x33333311u, 0x34473430u, 0x35003472u, 0x35223506u, \
    0x36143555u, 0x36633636u, 0x37603733u, 0x40174004u, 0x40374035u, 0x40574053u, 0x42204174u, \
    0x42404237u, 0x42664260u, 0x43454307u, 0x44514404u, 0x45254464u, 0x45704543u, 0x47104705u, \
    0x47304712u, 0x50415012u, 0x51005070u, 0x51265106u, 0x52145155u, 0x52725232u, 0x53535302u, \
    0x54235410u, 0x54725427u, 0x55315502u, 0x57245650u, 0x60245742u, 0x60466044u, 0x61216064u, \
    0x62176161u, 0x63306264u, 0x64446336u, 0x65526505u, 0x67036633u, 0x70036721u, 0x70077005u, \
    0x70327010u, 0x71267052u, 0x72127140u, 0x72527245u, 0x73157300u, 0x73607333u, 0x74417421u, \
    0x75027500u, 0x76307524u
STRUCT_BEGIN(format_iq3_xxs)
CONST uint ggml_type = 18u;
CONST uint block = 256u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 24u;
CONST uint words_byte = 2u;
CONST uint permuted_word = 0xffffffffu;
GRID(IQ3_XXS_GRID, 128u)
FN uint grid_levels(WORDS_PARAM uint at, uint r, uint j)
{
    uint q = iq3_nibbles(grid_entry(TILE_WORD(j / 4u, r) >> (8u * (j & 3u)) & 255u));
    uint seven = q & q >> 1 & q >> 2 & 0x01010101u;
    uint signs = even_signs(TILE_WORD(16u + j / 8u, r)) >> (4u * (j & 7u));
    return negate_bytes(8u * q + 2u * seven + 0x04040404u, signs);
}
FN float grid_scale(WORDS_PARAM uint at, uint r, uint g)
{
    return TILE_HALF(r) * (0.5f + float(TILE_WORD(16u + g / 2u, r) >> 28)) * 0.5f;
}
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    int q = int(grid_levels(WORDS at, r, k / 4u) << (24u - 8u * (k & 3u))) >> 24;
    return grid_scale(WORDS at, r, k / 16u) * float(q);
}
STRUCT_END
#endif
