#include "runtime/chat/matcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ks
{

Matcher::Matcher(const Grammar& grammar, void* memory)
    : m_grammar(&grammar), m(static_cast<Memory*>(memory))
{
    memset(memory, 0, sizeof(Memory));
    std::fill_n(m->last_stack, Grammar::kMaxRules + 1, kNone);
    pool().stacks[pool().n_stacks++] = {Grammar::kMaxRules, kNone, kNone}; // the caller of the root
    begin_step();
    call({GrammarNode::call, 0, 0, Grammar::kAccept, grammar.root}, 0);
    if (end_step() != 0) m->states[0] = {}; // no text at all
    m_n_states = 1;
    advance(0);
}

uint16_t Matcher::step(uint16_t state, uint8_t byte)
{
    uint16_t& known = m->next[state][byte];
    if (known != kUnknown) return known;
    begin_step();
    const State& from = m->states[state];
    for (uint32_t i = 0; i < from.n_heads; i++) {
        const Head head = m->heads[from.first_head + i];
        const GrammarNode& node = m_grammar->nodes[head.node];
        if (node.low <= byte && byte <= node.high) visit(node.next, head.stack);
    }
    const uint16_t to = end_step();
    if (to != kFull) known = to;
    return to;
}

int Matcher::only_byte(uint16_t state) const
{
    const State& from = m->states[state];
    int byte = -1;
    for (uint32_t i = 0; i < from.n_heads; i++) {
        const GrammarNode& node = m_grammar->nodes[m->heads[from.first_head + i].node];
        if (from.accepts || node.low != node.high || (byte >= 0 && byte != node.low)) return -1;
        byte = node.low;
    }
    return byte;
}

void Matcher::begin_step()
{
    m_first_stack = pool().n_stacks;
    m_first_edge = pool().n_edges;
    m_n_visits = 0;
    m_accepts = m_overflows = false;
}

void Matcher::visit(uint32_t node, uint32_t stack)
{
    uint32_t last = m->last_visit[node];
    if (last >= m_n_visits || m->visits[last].head.node != node) last = kNone;
    for (uint32_t at = last; at != kNone; at = m->visits[at].previous, m_work++)
        if (m->visits[at].head.stack == stack) return;
    m_overflows |= m_n_visits == kMaxHeads || ++m_work > kMaxWork;
    if (m_overflows) return;
    m->last_visit[node] = m_n_visits;
    m->visits[m_n_visits++] = {{node, stack}, last};
}

void Matcher::expand(Head head)
{
    const GrammarNode& node = m_grammar->nodes[head.node];
    switch (node.kind) {
    case GrammarNode::bytes:
        return;
    case GrammarNode::accept:
        m_accepts = true;
        return;
    case GrammarNode::split:
        visit(node.next, head.stack);
        visit(node.other, head.stack);
        return;
    case GrammarNode::call:
        return call(node, head.stack);
    case GrammarNode::end: // call() has gone on behind a rule that is empty
        for (uint32_t at = pool().stacks[head.stack].first_edge;
             head.stack < m_first_stack && at != kNone; at = pool().edges[at].next)
            visit(pool().edges[at].node, pool().edges[at].caller);
    }
}

void Matcher::call(const GrammarNode& node, uint32_t caller)
{
    const uint32_t rule = node.other;
    uint32_t& stack = m->last_stack[rule];
    const bool is_new = stack == kNone || stack < m_first_stack;
    if (is_new) {
        m_overflows |= pool().n_stacks == kMaxStacks;
        if (m_overflows) return;
        pool().stacks[pool().n_stacks] = {rule, kNone, stack};
        stack = pool().n_stacks++;
    }
    // A rule that ends with a call is left at once, so that recursion at the end needs no memory.
    if (node.next == Grammar::kEnd && caller < m_first_stack) {
        m_n_walks++;
        link_callers(stack, caller);
    } else {
        link(stack, node.next, caller);
    }
    if (is_new) visit(m_grammar->rules[rule].start, stack);
    if (m_grammar->rules[rule].nullable) visit(node.next, caller);
}

void Matcher::link(uint32_t stack, uint32_t node, uint32_t caller)
{
    Stack& from = pool().stacks[stack];
    for (uint32_t at = from.first_edge; at != kNone; at = pool().edges[at].next, m_work++)
        if (pool().edges[at].node == node && pool().edges[at].caller == caller) return;
    m_overflows |= pool().n_edges == kMaxEdges;
    if (m_overflows) return;
    pool().edges[pool().n_edges] = {node, caller, from.first_edge};
    from.first_edge = pool().n_edges++;
}

void Matcher::link_callers(uint32_t stack, uint32_t of)
{
    if (m->walked[of] == m_n_walks) return;
    m->walked[of] = m_n_walks;
    for (uint32_t at = pool().stacks[of].first_edge; at != kNone; at = pool().edges[at].next) {
        const Edge edge = pool().edges[at];
        if (edge.node == Grammar::kEnd)
            link_callers(stack, edge.caller);
        else
            link(stack, edge.node, edge.caller);
    }
}

// Replaces new stacks by older ones with the same caller, so that states recur.
void Matcher::reuse_stacks()
{
    const auto* stacks = pool().stacks;
    Edge* edges = pool().edges;
    for (uint32_t i = m_first_stack; i < pool().n_stacks; i++) {
        Edge& edge = edges[stacks[i].first_edge];
        m->moved[i] = i;
        if (edge.caller >= m_first_stack && edge.caller < i) edge.caller = m->moved[edge.caller];
        for (uint32_t at = stacks[i].previous; at != kNone; at = stacks[at].previous, m_work++) {
            const Edge& other = edges[stacks[at].first_edge];
            if (edge.next != kNone || other.next != kNone || edge.node != other.node ||
                edge.caller != other.caller)
                continue;
            m->moved[i] = at;
            break;
        }
    }
}

uint16_t Matcher::end_step()
{
    for (uint32_t i = 0; i < m_n_visits && !m_overflows; i++) expand(m->visits[i].head);
    if (!m_overflows) reuse_stacks();
    bool is_fresh = false;
    uint32_t n_heads = 0;
    for (uint32_t i = 0; i < m_n_visits && !m_overflows; i++) {
        const GrammarNode& node = m_grammar->nodes[m->visits[i].head.node];
        if (node.kind != GrammarNode::bytes || node.low > node.high) continue;
        m_overflows |= m_n_heads + n_heads == kMaxHeads;
        if (m_overflows) break;
        Head& head = m->heads[m_n_heads + n_heads++] = m->visits[i].head;
        if (head.stack >= m_first_stack) head.stack = m->moved[head.stack];
        is_fresh |= head.stack >= m_first_stack;
    }
    const bool dead = n_heads == 0 && !m_accepts;
    const uint16_t state = m_overflows ? kFull : dead ? kDead : find_state(n_heads);
    const bool is_new = state == m_n_states;
    if (is_new) {
        m_n_states++;
        m_n_heads += n_heads;
    }
    if (!is_new || !is_fresh) {
        drop_stacks(m_first_stack);
        pool().n_edges = m_first_edge;
    }
    return state;
}

// Forgets the newest stacks, until n are left.
void Matcher::drop_stacks(uint32_t n)
{
    while (pool().n_stacks > n) {
        const Stack& stack = pool().stacks[--pool().n_stacks];
        m->last_stack[stack.rule] = stack.previous;
    }
}

// The state with the newest heads, perhaps a new one.
uint16_t Matcher::find_state(uint32_t n_heads)
{
    const Head* heads = m->heads + m_n_heads;
    uint32_t hash = m_accepts;
    for (uint32_t i = 0; i < n_heads; i++) hash = (hash * 31 + heads[i].node) * 31 + heads[i].stack;
    for (uint32_t i = 0; i < m_n_states; i++) {
        const State& state = m->states[i];
        if (state.hash == hash && state.accepts == m_accepts && state.n_heads == n_heads &&
            memcmp(m->heads + state.first_head, heads, n_heads * sizeof(Head)) == 0)
            return uint16_t(i);
    }
    if (m_n_states == kMaxStates) return kFull;
    m->states[m_n_states] = {hash, m_n_heads, uint16_t(n_heads), m_accepts};
    memset(m->next[m_n_states], 0xff, sizeof m->next[0]);
    return uint16_t(m_n_states);
}

// A stack's place in the other pool.
uint32_t Matcher::keep(uint32_t stack)
{
    Pool& to = m->pools[1 - m_pool];
    if (m->moved[stack] == kNone) {
        m->moved[stack] = to.n_stacks;
        to.stacks[to.n_stacks++] = pool().stacks[stack];
    }
    return m->moved[stack];
}

// Copies what the state's heads reach to the other pool.
void Matcher::advance(uint16_t state)
{
    Pool& to = m->pools[1 - m_pool];
    to.n_stacks = to.n_edges = 0;
    std::fill_n(m->moved, pool().n_stacks, kNone);
    const State from = m->states[state];
    for (uint32_t i = 0; i < from.n_heads; i++) {
        const Head head = m->heads[from.first_head + i];
        m->heads[i] = {head.node, keep(head.stack)};
    }
    for (uint32_t i = 0; i < to.n_stacks; i++) {
        uint32_t at = to.stacks[i].first_edge;
        to.stacks[i].first_edge = kNone;
        for (; at != kNone; at = pool().edges[at].next) {
            const Edge edge = pool().edges[at];
            to.edges[to.n_edges] = {edge.node, keep(edge.caller), to.stacks[i].first_edge};
            to.stacks[i].first_edge = to.n_edges++;
        }
    }
    m->states[0] = {0, 0, from.n_heads, from.accepts};
    drop_stacks(0);
    m_pool = 1 - m_pool;
    for (uint32_t i = 0; i < to.n_stacks; i++)
        to.stacks[i].previous = std::exchange(m->last_stack[to.stacks[i].rule], i);
    m_kept_stacks = to.n_stacks;
    m_kept_edges = to.n_edges;
    m_work = 0;
    forget();
}

void Matcher::forget()
{
    m_n_states = 1;
    m_n_heads = m->states[0].n_heads;
    drop_stacks(m_kept_stacks);
    pool().n_edges = m_kept_edges;
    memset(m->next[0], 0xff, sizeof m->next[0]);
}

} // namespace ks
