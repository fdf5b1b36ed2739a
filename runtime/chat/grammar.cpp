#include "runtime/chat/grammar.h"

#include "runtime/chat/value.h"

#include <algorithm>

namespace ks
{

using jinja::refuse;
using Expr = GrammarBuilder::Expr;
using Ranges = GrammarBuilder::Ranges;

// Equal nodes are one node.
uint32_t GrammarBuilder::node(GrammarNode node)
{
    constexpr uint32_t kMaxSteps = 1 << 20;
    static_assert(Grammar::kMaxNodes <= 1 << 20, "the key has 20 bits for a node");
    const uint64_t key = uint64_t(node.kind) | uint64_t(node.low) << 3 | uint64_t(node.high) << 11 |
                         uint64_t(node.next) << 19 | uint64_t(node.other) << 39;
    const auto [at, is_new] = m_known.insert({key, uint32_t(m_grammar.nodes.size())});
    if (++m_steps > kMaxSteps || m_grammar.nodes.size() >= Grammar::kMaxNodes)
        refuse("more than %u nodes; repetitions are copies of what they repeat",
               Grammar::kMaxNodes);
    if (is_new) m_grammar.nodes.push_back(node);
    return at->second;
}

Expr GrammarBuilder::text(std::string bytes)
{
    return [this, bytes = std::move(bytes)](uint32_t next) {
        for (size_t i = bytes.size(); i-- > 0;)
            next = node({GrammarNode::bytes, uint8_t(bytes[i]), uint8_t(bytes[i]), next, 0});
        return next;
    };
}

Expr GrammarBuilder::seq(std::vector<Expr> parts)
{
    return [parts = std::move(parts)](uint32_t next) {
        for (size_t i = parts.size(); i-- > 0;) next = parts[i](next);
        return next;
    };
}

Expr GrammarBuilder::alt(std::vector<Expr> ways)
{
    return [this, ways = std::move(ways)](uint32_t next) {
        uint32_t first = ways.back()(next);
        for (size_t i = ways.size() - 1; i-- > 0;) first = split(ways[i](next), first);
        return first;
    };
}

Expr GrammarBuilder::call(uint32_t rule)
{
    return [this, rule](uint32_t next) { return node({GrammarNode::call, 0, 0, next, rule}); };
}

// What is copied becomes a rule, so that a copy is two nodes.
Expr GrammarBuilder::repeat(Expr part, uint32_t least, uint32_t most)
{
    if ((most == kUnlimited ? least : most) > 2) {
        const uint32_t rule = add_rule("a repetition");
        define(rule, part);
        part = call(rule);
    }
    return [this, part = std::move(part), least, most](uint32_t next) {
        uint32_t at = next;
        if (most == kUnlimited) { // a loop, which is a node of its own
            at = split(uint32_t(m_grammar.nodes.size()), next);
            const uint32_t begin = part(at);
            m_grammar.nodes[at].next = begin;
        }
        for (uint32_t i = least; i < most && most != kUnlimited; i++) at = split(part(at), next);
        for (uint32_t i = 0; i < least; i++) at = part(at);
        return at;
    };
}

Ranges GrammarBuilder::complement(Ranges ranges)
{
    ranges.push_back({0xd800, 0xdfff});
    std::sort(ranges.begin(), ranges.end());
    Ranges out;
    uint32_t next = 0;
    for (auto [low, high] : ranges) {
        if (low > next) out.push_back({next, low - 1});
        next = std::max(next, high + 1);
    }
    if (next <= kMaxCode) out.push_back({next, kMaxCode});
    return out;
}

Ranges GrammarBuilder::intersection(const Ranges& a, const Ranges& b)
{
    Ranges outside = complement(a);
    for (auto range : complement(b)) outside.push_back(range);
    return complement(std::move(outside));
}

Expr GrammarBuilder::chars(Ranges ranges)
{
    ranges = intersection(ranges, ranges); // sorted and merged
    return [this, ranges = std::move(ranges)](uint32_t next) {
        constexpr uint32_t kLast[] = {0x7f, 0x7ff, 0xffff, kMaxCode};
        uint32_t at = Grammar::kNone;
        for (auto [low, high] : ranges)
            for (int n_bytes = 1; n_bytes <= 4; n_bytes++) {
                const uint32_t last = std::min(high, kLast[n_bytes - 1]);
                if (low > last) continue;
                const uint32_t way = utf8(low, last, n_bytes, next);
                at = at == Grammar::kNone ? way : split(way, at);
                low = last + 1;
            }
        // No character at all: a range of bytes that is empty.
        return at != Grammar::kNone ? at : node({GrammarNode::bytes, 1, 0, next, 0});
    };
}

// Code points whose UTF-8 has n bytes. Splits the range until the bytes behind one that varies take
// all values.
uint32_t GrammarBuilder::utf8(uint32_t low, uint32_t high, int n_bytes, uint32_t next)
{
    for (int n = 1; n < n_bytes; n++) {
        const uint32_t mask = (1u << 6 * n) - 1;
        if ((low & ~mask) == (high & ~mask)) break;
        if ((low & mask) == 0 && (high & mask) == mask) continue;
        const uint32_t cut = low & mask ? low | mask : (high & ~mask) - 1;
        const uint32_t way = utf8(low, cut, n_bytes, next);
        return split(way, utf8(cut + 1, high, n_bytes, next));
    }
    constexpr uint32_t kFirst[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int n = 1; n < n_bytes; n++, low >>= 6, high >>= 6)
        next = node(
            {GrammarNode::bytes, uint8_t(0x80 | (low & 63)), uint8_t(0x80 | (high & 63)), next, 0});
    return node({GrammarNode::bytes, uint8_t(kFirst[n_bytes] | low),
                 uint8_t(kFirst[n_bytes] | high), next, 0});
}

uint32_t GrammarBuilder::add_rule(std::string name)
{
    if (m_grammar.rules.size() >= Grammar::kMaxRules)
        refuse("more than %u rules", Grammar::kMaxRules);
    m_grammar.rules.push_back({std::move(name)});
    return uint32_t(m_grammar.rules.size() - 1);
}

void GrammarBuilder::define(uint32_t rule, const Expr& body)
{
    m_grammar.rules[rule].start = body(Grammar::kEnd);
}

// For each node whether it leads to the end of its rule.
std::vector<bool> GrammarBuilder::reach_end(bool through_bytes) const
{
    const std::vector<GrammarNode>& nodes = m_grammar.nodes;
    std::vector<bool> reach(nodes.size());
    reach[Grammar::kEnd] = true;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = Grammar::kAccept + 1; i < nodes.size(); i++) {
            const GrammarNode& n = nodes[i];
            bool now = reach[n.next];
            if (n.kind == GrammarNode::bytes) now &= through_bytes && n.low <= n.high;
            if (n.kind == GrammarNode::split) now |= reach[n.other];
            if (n.kind == GrammarNode::call) now &= reach[m_grammar.rules[n.other].start];
            changed |= now != reach[i];
            reach[i] = now;
        }
    }
    return reach;
}

std::string GrammarBuilder::find_endless() const
{
    const std::vector<bool> reach = reach_end(true);
    for (const Grammar::Rule& rule : m_grammar.rules)
        if (!reach[rule.start]) return rule.name;
    return "";
}

Grammar GrammarBuilder::build(uint32_t root)
{
    for (const Grammar::Rule& rule : m_grammar.rules)
        if (rule.start == Grammar::kNone)
            refuse("rule '%s' is not defined", printable(rule.name).c_str());
    const std::vector<bool> reach = reach_end(false);
    for (Grammar::Rule& rule : m_grammar.rules) rule.nullable = reach[rule.start];
    m_grammar.root = root;
    return std::move(m_grammar);
}

} // namespace ks
