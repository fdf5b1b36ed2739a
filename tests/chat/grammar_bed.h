// Which texts a grammar matches, byte by byte.
#pragma once

#include "runtime/chat/matcher.h"

#include <memory>

namespace ks
{

class Texts
{
public:
    explicit Texts(Result<Grammar> grammar)
        : m_grammar(std::move(grammar)), m_memory(new uint64_t[Matcher::bytes_needed() / 8])
    {
    }
    const Status& status() const { return m_grammar.status(); }
    const Grammar& grammar() const { return m_grammar.value(); }

    // Bytes that the grammar accepts, and whether it may end behind them.
    std::pair<size_t, bool> walk(std::string_view text)
    {
        Matcher matcher(m_grammar.value(), m_memory.get());
        for (size_t i = 0; i < text.size(); i++) {
            const uint16_t state = matcher.step(0, uint8_t(text[i]));
            if (state >= Matcher::kFull) return {i, false};
            matcher.advance(state);
        }
        return {text.size(), matcher.can_end()};
    }
    bool matches(std::string_view text)
    {
        const auto [n, ends] = walk(text);
        return n == text.size() && ends;
    }

private:
    Result<Grammar> m_grammar;
    std::unique_ptr<uint64_t[]> m_memory;
};

} // namespace ks
