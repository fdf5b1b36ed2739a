#include "runtime/text/unicode.h"

#include <algorithm>
#include <iterator>

#include <utf8proc.h>

namespace ks
{

using namespace char_kind;

// Assigned after Unicode 15.1 (16.0 to 18.0). Ranges include unassigned gaps.
// clang-format off
static const struct { int32_t first, last; } kLater[] = {
    {0x558, 0x558}, {0x58b, 0x58c}, {0x5c8, 0x5c9}, {0x88f, 0x88f}, {0x897, 0x897},
    {0xb53, 0xb54}, {0xc5c, 0xc5c}, {0xcdc, 0xcdc}, {0x1acf, 0x1af0}, {0x1b4e, 0x1b4f},
    {0x1b7f, 0x1b7f}, {0x1c89, 0x1c8a}, {0x208f, 0x208f}, {0x209d, 0x209f}, {0x20c1, 0x20c4},
    {0x2427, 0x2429}, {0x2b96, 0x2b96}, {0x2e60, 0x2e63}, {0x31e4, 0x31e5}, {0xa7cb, 0xa7cf},
    {0xa7d2, 0xa7d2}, {0xa7d4, 0xa7d4}, {0xa7da, 0xa7f1}, {0xab6c, 0xab6d}, {0xfbc3, 0xfbd2},
    {0xfd90, 0xfd91}, {0xfdc8, 0xfdce}, {0x105c0, 0x105f3}, {0x107bb, 0x107bf},
    {0x10940, 0x10959}, {0x10d40, 0x10d8f}, {0x10ec2, 0x10efc}, {0x11380, 0x113e2},
    {0x116d0, 0x116e3}, {0x11b0a, 0x11bf9}, {0x11db0, 0x11df1}, {0x11f5a, 0x11f5a},
    {0x1246f, 0x1246f}, {0x12475, 0x1247f}, {0x12550, 0x12686}, {0x13460, 0x143fa},
    {0x16100, 0x16139}, {0x16d40, 0x16d79}, {0x16ea0, 0x16ed3}, {0x16ff2, 0x16ff6},
    {0x187f8, 0x187ff}, {0x18cd6, 0x18cff}, {0x18d09, 0x191d2}, {0x1b123, 0x1b128},
    {0x1b168, 0x1b168}, {0x1cc00, 0x1cefd}, {0x1d127, 0x1d128}, {0x1d1eb, 0x1d1ff},
    {0x1d250, 0x1d281}, {0x1d6a6, 0x1d6a6}, {0x1db00, 0x1db1c}, {0x1df1f, 0x1df24},
    {0x1df2b, 0x1dfff}, {0x1e5d0, 0x1e6ff}, {0x1f1ae, 0x1f1ae}, {0x1f6d8, 0x1f6d9},
    {0x1f777, 0x1f77a}, {0x1f7da, 0x1f7db}, {0x1f7f1, 0x1f7ff}, {0x1f8b2, 0x1f8d8},
    {0x1fa54, 0x1fa57}, {0x1fa89, 0x1fa8f}, {0x1fabe, 0x1fabe}, {0x1fac6, 0x1facd},
    {0x1fadc, 0x1fadf}, {0x1fae9, 0x1faef}, {0x1faf9, 0x1fafa}, {0x1fbcb, 0x1fbef},
    {0x1fbfa, 0x1fbfa}, {0x2b73a, 0x2b73f}, {0x2b81e, 0x2b81e}, {0x2cea2, 0x2cead},
    {0x323b0, 0x3fc3f},
};
// By utf8proc's categories: Cn, Lu Ll Lt Lm Lo, Mn Mc Me, Nd Nl No, Pc Pd Ps Pe Pi Pf Po,
// Sm Sc Sk So, Zs Zl Zp, Cc Cf Cs Co.
static const CharKind kKinds[] = {
    kOther, kUpper, kLower, kUpper, kCaseless, kCaseless, kMark, kMark, kMark, kDigit, kNumeral,
    kNumeral, kPunctuation, kPunctuation, kPunctuation, kPunctuation, kPunctuation, kPunctuation,
    kPunctuation, kSymbol, kSymbol, kSymbol, kSymbol, kOther, kOther, kOther, kOther, kOther,
    kOther, kOther,
};
// clang-format on

static bool is_space(int32_t c)
{
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_ideograph(int32_t c)
{
    return c == 0x3005 || c == 0x303b || (c >= 0x3400 && c <= 0x9fff) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x323af);
}

static CharKind kind_of(int32_t c)
{
    if (is_space(c)) return kSpace;
    // Added by Unicode 15.1 to 15.0.
    if (c >= 0x2ebf0 && c <= 0x2ee5d) return kHan;
    if ((c >= 0x2ffc && c <= 0x2fff) || c == 0x31ef) return kSymbol;
    auto later = std::lower_bound(std::begin(kLater), std::end(kLater), c,
                                  [](auto& range, int32_t value) { return range.last < value; });
    if (later != std::end(kLater) && c >= later->first) return kOther;
    CharKind kind = kKinds[utf8proc_category(c)];
    return kind == kCaseless && is_ideograph(c) ? kHan : kind;
}

size_t utf8_char(const char* at, const char* end, int32_t* codepoint)
{
    utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(at), end - at, codepoint);
    return bytes > 0 ? size_t(bytes) : 0;
}

Char char_beyond_ascii(const char* at, const char* end)
{
    int32_t codepoint;
    size_t bytes = utf8_char(at, end, &codepoint);
    if (bytes == 0) return {-1, kOther, 1};
    return {codepoint, kind_of(codepoint), uint8_t(bytes)};
}

} // namespace ks
