// Which bytes may follow in a text of a grammar. A state is a set of positions, each a node and a
// stack of the rules that were called. Stacks share their parts (a graph-structured stack), so
// ambiguous grammars need memory that grows with their length, not with the number of readings.
#pragma once

#include "runtime/chat/grammar.h"

#include <cstddef>

namespace ks
{

class Matcher
{
public:
    static uint64_t bytes_needed() { return sizeof(Memory); }
    Matcher() = default;
    // The grammar and the memory, 8-byte aligned, must outlive this object.
    Matcher(const Grammar& grammar, void* memory);

    // What step() returns when no text of the grammar goes on so, and when the memory or the work
    // for one token does not suffice.
    static constexpr uint16_t kDead = 0xfffe, kFull = 0xfffd;
    // State 0 follows the text so far, the others follow from it.
    uint16_t step(uint16_t state, uint8_t byte);
    bool can_end() const { return m->states[0].accepts; }
    bool can_go_on() const { return m->states[0].n_heads > 0; }
    bool is_end(uint16_t state) const { return m->states[state].n_heads == 0; }
    bool is_exhausted() const { return m_work > kMaxWork; }
    // The only byte that can follow a state; -1: the text may end there, or has a choice.
    int only_byte(uint16_t state) const;
    void advance(uint16_t state); // makes it state 0
    void forget();                // all states but 0, which frees memory

private:
    static constexpr uint32_t kMaxStacks = 4096, kMaxEdges = 3 * kMaxStacks, kMaxHeads = 4096,
                              kMaxStates = 256, kNone = 0xffffffff;
    static constexpr uint16_t kUnknown = 0xffff;
    static constexpr uint64_t kMaxWork = 1 << 24; // visits and edges for one token

    // A rule that was called at one place of the text.
    struct Stack {
        uint32_t rule, first_edge;
        uint32_t previous; // of the same rule
    };
    // Who called it.
    struct Edge {
        uint32_t node;   // behind the call
        uint32_t caller; // a stack
        uint32_t next;   // edge of the same stack
    };
    struct Pool {
        uint32_t n_stacks, n_edges;
        Stack stacks[kMaxStacks];
        Edge edges[kMaxEdges];
    };
    struct Head {
        uint32_t node, stack;
    };
    struct Visit {
        Head head;
        uint32_t previous; // of the same node
    };
    struct State {
        uint32_t hash, first_head;
        uint16_t n_heads;
        bool accepts;
    };
    struct Memory {
        Pool pools[2];
        uint64_t walked[kMaxStacks];                 // the last walk of link_callers()
        uint32_t moved[kMaxStacks];                  // where reuse_stacks() or advance() puts them
        uint32_t last_visit[Grammar::kMaxNodes];     // valid if it is a visit of the node
        uint32_t last_stack[Grammar::kMaxRules + 1]; // of a rule, kNone: there is none
        Visit visits[kMaxHeads];                     // of this step
        Head heads[kMaxHeads];                       // of all states, at nodes of bytes
        State states[kMaxStates];
        uint16_t next[kMaxStates][256]; // what step() returned
    };

    Pool& pool() { return m->pools[m_pool]; }
    void visit(uint32_t node, uint32_t stack);
    void expand(Head head);
    void call(const GrammarNode& node, uint32_t caller);
    void link(uint32_t stack, uint32_t node, uint32_t caller);
    void link_callers(uint32_t stack, uint32_t of);
    void begin_step();
    void reuse_stacks();
    void drop_stacks(uint32_t n);
    uint16_t end_step();
    uint16_t find_state(uint32_t n_heads);
    uint32_t keep(uint32_t stack);

    const Grammar* m_grammar = nullptr;
    Memory* m = nullptr;
    uint32_t m_pool = 0, m_n_visits = 0, m_n_heads = 0, m_n_states = 0;
    uint32_t m_kept_stacks = 0, m_kept_edges = 0; // of state 0
    uint32_t m_first_stack = 0, m_first_edge = 0; // of this step
    bool m_accepts = false, m_overflows = false;
    uint64_t m_work = 0, m_n_walks = 0;
};

} // namespace ks
