// Context-free grammars over bytes, and their builder. The nodes of a rule are a network whose
// edges are bytes or calls of rules.
#pragma once

#include "runtime/base/status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ks
{

struct GrammarNode {
    enum Kind : uint8_t { end, accept, bytes, split, call };
    Kind kind;
    uint8_t low, high; // bytes: which ones
    uint32_t next;     // the node behind
    uint32_t other;    // split: the second way; call: the rule
};

struct Grammar {
    static constexpr uint32_t kMaxNodes = 1 << 15, kMaxRules = 1 << 13, kMaxBytes = 1 << 18;
    static constexpr uint32_t kEnd = 0, kAccept = 1; // the nodes that end a rule and the text
    static constexpr uint32_t kNone = 0xffffffff;
    struct Rule {
        std::string name;
        uint32_t start = kNone;
        bool nullable = false; // matches the empty text
    };
    std::vector<GrammarNode> nodes;
    std::vector<Rule> rules;
    uint32_t root = 0;
};

// GBNF, the grammars of llama.cpp. Fails with invalid, the line and what was expected.
Result<Grammar> parse_gbnf(std::string_view text);
// The answers that a JSON schema allows, or a part of them: properties are written in the order of
// the schema, undeclared ones only if additionalProperties asks for them. A keyword that is unknown
// or not supported is refused with its path.
Result<Grammar> parse_json_schema(std::string_view text);

// Every error is a Failure.
class GrammarBuilder
{
public:
    // Makes the nodes that lead to `next` and returns the first.
    using Expr = std::function<uint32_t(uint32_t next)>;
    using Ranges = std::vector<std::pair<uint32_t, uint32_t>>; // of code points, both included
    static constexpr uint32_t kUnlimited = 0xffffffff, kMaxCode = 0x10ffff;

    Expr text(std::string bytes);
    Expr chars(Ranges ranges);
    Expr seq(std::vector<Expr> parts);
    Expr alt(std::vector<Expr> ways);
    Expr repeat(Expr part, uint32_t least, uint32_t most);
    Expr optional(Expr part) { return repeat(std::move(part), 0, 1); }
    Expr call(uint32_t rule);
    uint32_t add_rule(std::string name);
    bool defined(uint32_t rule) const { return m_grammar.rules[rule].start != Grammar::kNone; }
    void define(uint32_t rule, const Expr& body);
    // The name of a rule that matches no finite text; empty: there is none.
    std::string find_endless() const;
    Grammar build(uint32_t root); // refuses rules that are not defined

    static Ranges complement(Ranges ranges); // both without surrogates
    static Ranges intersection(const Ranges& a, const Ranges& b);

private:
    uint32_t node(GrammarNode node);
    uint32_t split(uint32_t a, uint32_t b) { return node({GrammarNode::split, 0, 0, a, b}); }
    uint32_t utf8(uint32_t low, uint32_t high, int n_bytes, uint32_t next);
    std::vector<bool> reach_end(bool through_bytes) const;

    uint32_t m_steps = 0;
    std::unordered_map<uint64_t, uint32_t> m_known; // nodes by their contents
    Grammar m_grammar = {{{GrammarNode::end, 0, 0, 0, 0}, {GrammarNode::accept, 0, 0, 0, 0}}, {}};
};

} // namespace ks
