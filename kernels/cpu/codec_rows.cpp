#include "kernels/cpu/codec_rows.h"

#include "runtime/base/status.h"

namespace ks
{

void encode_row(Format format, const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
{
    uint16_t* f16 = reinterpret_cast<uint16_t*>(words);
    switch (format) {
    case Format::f32:
        memcpy(words, x, 4ull * d);
        return;
    case Format::f16:
        for (uint32_t i = 0; i < d; i++) f16[i] = uint16_t(FLOAT_TO_HALF(x[i]));
        return;
#define KS_ENCODE(name, number)                                                                    \
    case Format::name:                                                                             \
        return encode_row<codec_##name>(x, d, words, tail);
        CODECS(KS_ENCODE)
#undef KS_ENCODE
    default:
        KS_CHECK(false, "format %d", int(format));
    }
}

void decode_row(Format format, const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    const uint16_t* f16 = reinterpret_cast<const uint16_t*>(words);
    switch (format) {
    case Format::f32:
        memcpy(x, words, 4ull * d);
        return;
    case Format::f16:
        for (uint32_t i = 0; i < d; i++) x[i] = HALF_TO_FLOAT(f16[i]);
        return;
#define KS_DECODE(name, number)                                                                    \
    case Format::name:                                                                             \
        return decode_row<codec_##name>(words, tail, d, x);
        CODECS(KS_DECODE)
#undef KS_DECODE
    default:
        KS_CHECK(false, "format %d", int(format));
    }
}

void encode_group(Format format, const float* x, uint32_t d, uint32_t* words)
{
    switch (format) {
#define KS_ENCODE(name, number)                                                                    \
    case Format::name:                                                                             \
        return codec_##name::encode(x, words, d);
        GROUP_CODECS(KS_ENCODE)
#undef KS_ENCODE
    default:
        KS_CHECK(false, "format %d", int(format));
    }
}

void decode_group_row(Format format, const uint32_t* words, uint32_t nth, uint32_t d, float* x)
{
    switch (format) {
#define KS_DECODE(name, number)                                                                    \
    case Format::name:                                                                             \
        for (uint32_t i = 0; i < d; i++) x[i] = codec_##name::value(words, 0, nth, i, d);          \
        return;
        GROUP_CODECS(KS_DECODE)
#undef KS_DECODE
    default:
        KS_CHECK(false, "format %d", int(format));
    }
}

void check_group_moves(Format format, const uint32_t* moves, uint32_t n)
{
    const CodecInfo& info = codec_info(format);
    KS_CHECK(n % info.group == 0, "%s: %u rows in groups of %u", info.name, n, info.group);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = moves[2 * (i / info.group * info.group) + 1], to = moves[2 * i + 1];
        KS_CHECK(first % info.group == 0 && to == first + i % info.group,
                 "%s: move %u to row %u of the group at %u", info.name, i, to, first);
    }
}

} // namespace ks
