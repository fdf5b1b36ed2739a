// What GBNF and regular expressions have in common: alternatives, groups, repetitions, classes of
// characters and escapes.
#pragma once

#include "runtime/chat/grammar.h"

namespace ks
{

class PatternParser
{
public:
    using Expr = GrammarBuilder::Expr;
    using Ranges = GrammarBuilder::Ranges;
    virtual ~PatternParser() = default;

protected:
    PatternParser(GrammarBuilder& builder, std::string_view text)
        : m_builder(builder), m_begin(text.data()), m_at(m_begin), m_end(m_begin + text.size())
    {
    }
    virtual std::string where() const = 0;
    virtual void skip(int) {} // what separates elements
    virtual bool is_end(int depth) const = 0;
    virtual Expr element(int depth) = 0;
    virtual Expr way(std::vector<Expr> parts, int) { return m_builder.seq(std::move(parts)); }
    virtual bool letter(char, Ranges&) { return false; } // behind a backslash: a class
    virtual Ranges negated(const Ranges& ranges) { return GrammarBuilder::complement(ranges); }

    [[noreturn]] void wrong(const char* expected) const;
    char peek() const { return m_at < m_end ? *m_at : '\0'; }
    bool take(char c);
    Expr alternatives(int depth);
    Expr group(int depth); // behind '('
    Ranges char_class();   // behind '['
    Ranges character();    // or an escape

    GrammarBuilder& m_builder;
    const char *m_begin, *m_at, *m_end;
    bool m_has_lazy = false; // a '?' may follow a repetition

private:
    Expr repeated(Expr part, int depth);
    uint32_t number(int base, int n_digits, uint32_t most);
};

// The texts of JSON strings, without their quotes, whose characters match a regular expression as
// JSON Schema means it, or a part of them.
GrammarBuilder::Expr parse_regex(GrammarBuilder& builder, std::string_view pattern);
// A character of a JSON string. Controls without a short escape are left out.
GrammarBuilder::Expr json_chars(GrammarBuilder& builder, const GrammarBuilder::Ranges& ranges);

} // namespace ks
