// Special tokens: their matching order and how they are found in a text.
#include "runtime/text/vocab.h"

#include <algorithm>
#include <string>

namespace ks
{

static bool begins_with(std::string_view text, std::string_view beginning)
{
    return text.substr(0, beginning.size()) == beginning;
}

// The special tokens of phi-3 strip white space after them. No key says so; it is detected by the
// model's name.
static bool is_phi3(std::string_view name)
{
    std::string lower(name.substr(0, 256));
    for (char& c : lower) c = char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return lower.find("phi-3") != lower.npos || lower.find("phi3") != lower.npos;
}

bool Vocab::is_special(uint32_t id) const
{
    TokenType t = type(id);
    return (t == TokenType::control || t == TokenType::user_defined || t == TokenType::unknown) &&
           !text(id).empty();
}

void Vocab::fill_specials(const VocabSource& source)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < m_n_tokens; id++)
        if (is_special(id)) m_specials[n++] = {id, kNone, 0};
    KS_CHECK(n == m_n_specials, "%u of %u", n, m_n_specials);

    // Deliberately not a stable sort: tokens of equal length end up in the order of the same call
    // in llama.cpp.
    std::sort(m_specials, m_specials + n, [&](const Special& a, const Special& b) {
        return text(a.id).size() > text(b.id).size();
    });
    for (uint32_t i = 0; i < n; i++) m_specials[i].order = i;
    std::sort(m_specials, m_specials + n,
              [&](const Special& a, const Special& b) { return text(a.id) < text(b.id); });

    bool strip = is_phi3(source.name);
    memset(m_special_begins, 0, 65536 / 8);
    for (uint32_t i = 0; i < n; i++) {
        std::string_view t = text(m_specials[i].id);
        uint32_t p = i - 1; // kNone for the first
        while (p != kNone && !begins_with(t, text(m_specials[p].id))) p = m_specials[p].shorter;
        m_specials[i].shorter = p;
        uint32_t first = uint8_t(t[0]) << 8;
        if (t.size() > 1)
            m_special_begins[(first | uint8_t(t[1])) / 32] |= uint32_t(1) << (uint8_t(t[1]) % 32);
        else
            std::fill_n(m_special_begins + first / 32, 256 / 32, 0xffffffff);
        if (strip && t != "<unk>" && t != "<s>" && t != "<|endoftext|>")
            m_flags[m_specials[i].id] |= kStripsRight;
    }
}

uint32_t Vocab::find_special(const char* at, const char* end) const
{
    uint32_t begin = uint32_t(uint8_t(at[0])) << 8 | (end - at > 1 ? uint8_t(at[1]) : 0);
    if (end - at > 1 && !(m_special_begins[begin / 32] >> (begin % 32) & 1)) return kNone;

    // In sorted order, every special token that the text begins with is the last one not greater
    // than the text, or a prefix of it.
    std::string_view rest(at, size_t(end - at));
    auto behind = [&](std::string_view t, const Special& special) { return t < text(special.id); };
    uint32_t i = uint32_t(std::upper_bound(m_specials, m_specials + m_n_specials, rest, behind) -
                          m_specials) -
                 1;
    while (i != kNone && !begins_with(rest, text(m_specials[i].id))) i = m_specials[i].shorter;
    return i;
}

} // namespace ks
