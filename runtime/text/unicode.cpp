#include "runtime/text/unicode.h"

#include <algorithm>
#include <iterator>

#include <utf8proc.h>

namespace ks
{

// Letters, numbers and punctuation assigned after Unicode 15.1 (16.0 to 18.0). Ranges include
// unassigned gaps.
// clang-format off
static const struct { int32_t first, last; } kLater[] = {
    {0x558, 0x558}, {0x58b, 0x58c}, {0x88f, 0x88f}, {0xc5c, 0xc5c}, {0xcdc, 0xcdc},
    {0x1b4e, 0x1b4f}, {0x1b7f, 0x1b7f}, {0x1c89, 0x1c8a}, {0x208f, 0x208f}, {0x209d, 0x209f},
    {0x2e60, 0x2e63}, {0xa7cb, 0xa7cf}, {0xa7d2, 0xa7d2}, {0xa7d4, 0xa7d4}, {0xa7da, 0xa7f1},
    {0xab6c, 0xab6d}, {0x105c0, 0x105f3}, {0x107bb, 0x107bf}, {0x10940, 0x10959},
    {0x10d40, 0x10d85}, {0x10ec2, 0x10eee}, {0x11380, 0x113d8}, {0x116d0, 0x116e3},
    {0x11b0a, 0x11bf9}, {0x11db0, 0x11df1}, {0x1246f, 0x1246f}, {0x12475, 0x1247f},
    {0x12550, 0x12686}, {0x13460, 0x143fa}, {0x16100, 0x16139}, {0x16d40, 0x16d79},
    {0x16ea0, 0x16ed3}, {0x16ff2, 0x16ff6}, {0x187f8, 0x187ff}, {0x18cd6, 0x18cff},
    {0x18d09, 0x191d2}, {0x1b123, 0x1b128}, {0x1b168, 0x1b168}, {0x1ccf0, 0x1ccf9},
    {0x1d6a6, 0x1d6a6}, {0x1df1f, 0x1df24}, {0x1df2b, 0x1dfff}, {0x1e5d0, 0x1e6ff},
    {0x2b73a, 0x2b73f}, {0x2b81e, 0x2b81e}, {0x2cea2, 0x2cead}, {0x323b0, 0x3fc3f},
};
// clang-format on
// Ideographs that Unicode 15.1 added to 15.0.
static constexpr int32_t kFirst15_1 = 0x2ebf0, kLast15_1 = 0x2ee5d;

static CharKind ascii_kind(unsigned char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharKind::letter;
    if (c >= '0' && c <= '9') return CharKind::number;
    if (c == ' ' || (c >= 9 && c <= 13)) return CharKind::space;
    return c > ' ' && c < 0x7f && c != '`' ? CharKind::punctuation : CharKind::other;
}

static bool is_space(int32_t c)
{
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static CharKind kind_of(int32_t c)
{
    if (is_space(c)) return CharKind::space;
    if (c >= kFirst15_1 && c <= kLast15_1) return CharKind::letter;
    auto later = std::lower_bound(std::begin(kLater), std::end(kLater), c,
                                  [](auto& range, int32_t value) { return range.last < value; });
    if (later != std::end(kLater) && c >= later->first) return CharKind::other;
    utf8proc_category_t category = utf8proc_category(c);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
        return CharKind::letter;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
        return CharKind::number;
    if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO)
        return CharKind::punctuation;
    return CharKind::other;
}

size_t utf8_char(const char* at, const char* end, int32_t* codepoint)
{
    utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(at), end - at, codepoint);
    return bytes > 0 ? size_t(bytes) : 0;
}

Char char_at(const char* at, const char* end)
{
    if (at == end) return {CharKind::none, 0};
    if (!(*at & 0x80)) return {ascii_kind(static_cast<unsigned char>(*at)), 1};
    int32_t codepoint;
    size_t bytes = utf8_char(at, end, &codepoint);
    if (bytes == 0) return {CharKind::other, 1};
    return {kind_of(codepoint), uint8_t(bytes)};
}

} // namespace ks
