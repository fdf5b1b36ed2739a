#include "runtime/text/detokenizer.h"

#include <algorithm>
#include <cstdint>

namespace ks
{

Detokenizer::Detokenizer(size_t max_piece_bytes, std::vector<std::string> stops)
    : m_stops(std::move(stops))
{
    size_t longest = 0;
    for (const std::string& stop : m_stops) longest = std::max(longest, stop.size());
    m_held.reserve(max_piece_bytes + longest + 4);
}

void Detokenizer::reset()
{
    m_held.clear();
    m_given = 0;
    m_stop = kNoStop;
}

std::string_view Detokenizer::give(size_t n)
{
    m_given = n;
    return std::string_view(m_held).substr(0, n);
}

size_t Detokenizer::stop_begin(size_t end)
{
    size_t longest = 0;
    for (size_t i = 0; i < m_stops.size(); i++) {
        size_t n = m_stops[i].size();
        if (n <= longest || n > end || m_held.compare(end - n, n, m_stops[i]) != 0) continue;
        longest = n;
        m_stop = i;
    }
    return longest ? end - longest : m_held.npos;
}

size_t open_character(std::string_view text)
{
    for (size_t n = 1; n <= 3 && n <= text.size(); n++) {
        auto lead = uint8_t(text[text.size() - n]),
             second = n > 1 ? uint8_t(text[text.size() - n + 1]) : uint8_t(0);
        if ((lead & 0xc0) == 0x80) continue;
        size_t whole = lead >= 0xc2 && lead <= 0xdf   ? 2
                       : lead >= 0xe0 && lead <= 0xef ? 3
                       : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                      : 1;
        // Prefixes of overlong forms, surrogates and code points above U+10FFFF can never be
        // completed.
        bool bad = n > 1 && ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                             (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f));
        return n < whole && !bad ? n : 0;
    }
    return 0;
}

size_t Detokenizer::certain_bytes() const
{
    size_t n = m_held.size(), begin = n;
    for (const std::string& stop : m_stops) {
        size_t at = stop.size() <= n ? n - stop.size() + 1 : 0;
        while (at < begin && stop.compare(0, n - at, m_held, at, n - at) != 0) at++;
        begin = std::min(begin, at);
    }
    return begin - open_character(std::string_view(m_held).substr(0, begin));
}

std::string_view Detokenizer::feed(std::string_view piece)
{
    m_held.erase(0, m_given);
    m_given = 0;
    if (stopped_by()) return {};
    size_t seen = m_held.size();
    m_held += piece;
    for (size_t end = seen + 1; end <= m_held.size(); end++) {
        size_t begin = stop_begin(end);
        if (begin == m_held.npos) continue;
        m_held.resize(begin);
        return give(begin);
    }
    return give(certain_bytes());
}

std::string_view Detokenizer::flush()
{
    m_held.erase(0, m_given);
    return give(stopped_by() ? 0 : m_held.size());
}

} // namespace ks
