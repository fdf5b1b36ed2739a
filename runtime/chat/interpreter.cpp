// Statements and expressions.
#include "runtime/chat/interpreter.h"

namespace ks::jinja
{

constexpr int kMaxRunDepth = 2000;

Interpreter::~Interpreter()
{
    for (const auto& scope : m_kept_scopes) scope->variables.clear();
    for (const Value& value : m_kept) {
        if (value.has_items())
            value.items().clear();
        else
            value.members().clear();
    }
}

Text Interpreter::run()
{
    try {
        Text out = captured(m_scope, [&] { run_node(uint32_t(m_program.nodes.size() - 1)); });
        if (out.size() > request.max_bytes)
            refuse("the prompt has more than %llu bytes", (unsigned long long)request.max_bytes);
        return out;
    } catch (Failure& failure) {
        if (!failure.raised)
            failure.message =
                "line " + std::to_string(m_program.nodes[m_at].line) + ": " + failure.message;
        throw;
    }
}

shared_ptr<Scope> Interpreter::inner_scope() const
{
    return make_shared<Scope>(Scope{m_scope, {}});
}

Text Interpreter::captured(shared_ptr<Scope> scope, const std::function<void()>& body)
{
    Output out, *outer = m_out;
    m_out = &out;
    scope.swap(m_scope);
    body();
    scope.swap(m_scope);
    m_out = outer;
    return move(out.text);
}

void Interpreter::write(const Text& text)
{
    m_out->count(2 * text.size());
    use_steps(text.size() / 64);
    m_out->text.append(text);
}

const Node& Interpreter::enter(uint32_t index)
{
    use_steps(1);
    m_at = index;
    return m_program.nodes[index];
}

// ---- Statements

Interpreter::Flow Interpreter::run_node(uint32_t index)
{
    const Nesting nesting(&m_depth, kMaxRunDepth);
    const Node& node = enter(index);
    const auto& kids = node.kids;
    Flow flow = Flow::next;
    switch (node.op) {
    case Op::block:
        for (size_t i = 0; i < kids.size() && flow == Flow::next; i++) flow = run_node(kids[i]);
        return flow;
    case Op::text:
        write(m_program.constants[node.name].text());
        return flow;
    case Op::print:
        write(text_of(evaluate(kids[0])));
        return flow;
    case Op::branch:
        for (size_t i = 0; i < kids.size(); i += 2) {
            if (i + 1 == kids.size()) return run_node(kids[i]);
            if (truth(evaluate(kids[i]))) return run_node(kids[i + 1]);
        }
        return flow;
    case Op::loop:
        return run_loop(index, items_of(evaluate(kids[1])), 0);
    case Op::set:
        assign(kids[0], evaluate(kids[1]));
        return flow;
    case Op::with:
        m_scope = inner_scope();
        for (size_t i = 0; i + 1 < kids.size(); i += 2) assign(kids[i], evaluate(kids[i + 1]));
        flow = run_node(kids.back());
        m_scope = shared_ptr<Scope>(m_scope->parent);
        return flow;
    case Op::macro:
        m_scope->variables[node.name] = make_macro(index);
        return flow;
    case Op::call_block:
        write(text_of(call_node(m_program.nodes[kids[1]], make_macro(kids[0]))));
        return flow;
    default:
        return node.op == Op::break_loop ? Flow::break_loop : Flow::continue_loop;
    }
}

Interpreter::Flow Interpreter::run_loop(uint32_t index, Values items, int64_t depth)
{
    const auto& kids = m_program.nodes[index].kids;
    auto outer = m_scope;
    auto enter_turn = [&](const Value& item) {
        use_steps(8); // for the scope
        m_scope = make_shared<Scope>(Scope{outer, {}});
        assign(kids[0], item);
    };
    auto loop = make_shared<Loop>();
    for (const Value& item : items) {
        if (kids[3]) enter_turn(item);
        if (!kids[3] || truth(evaluate(kids[3]))) loop->items.push_back(item);
    }
    loop->count(sizeof(Loop) + items.size() * sizeof(Value));
    loop->depth = depth;
    loop->node = index;
    loop->scope = outer;
    Flow flow = Flow::next;
    bool finished = false; // one turn reached its end
    for (; loop->index < loop->items.size() && flow != Flow::break_loop; loop->index++) {
        enter_turn(loop->items[loop->index]);
        m_scope->variables[kLoopName] = Value(kLoop, loop);
        flow = run_node(kids[2]);
        finished |= flow == Flow::next;
    }
    loop->changed.clear(); // may hold the loop
    m_scope = make_shared<Scope>(Scope{outer, {}});
    flow = !finished && kids[4] ? run_node(kids[4]) : Flow::next;
    m_scope = outer;
    return flow;
}

void Interpreter::assign(uint32_t target, const Value& value)
{
    const Node& node = m_program.nodes[target];
    if (node.op == Op::name) {
        m_scope->variables[node.name] = value;
    } else if (node.op == Op::attribute) {
        const Value space = evaluate(node.kids[0]), &name = m_program.names[node.name];
        if (!space.is(kNamespace) || name.str()[0] == '_')
            refuse("'%s' cannot be set in %s", printable(name.str()).c_str(), type_name(space));
        space.dict_object().set(name, value);
    } else {
        Values items = items_of(value);
        if (items.size() != node.kids.size())
            refuse("%zu values for %zu names", items.size(), node.kids.size());
        for (size_t i = 0; i < items.size(); i++) assign(node.kids[i], items[i]);
    }
}

// ---- Expressions

Value Interpreter::variable(uint32_t name)
{
    for (const Scope* scope = m_scope.get(); scope; scope = scope->parent.get())
        if (auto found = scope->variables.find(name); found != scope->variables.end())
            return found->second;
    const Function* function = find_function(m_program.names[name].str(), kGlobal);
    return function ? bound(function, kFunction, {}) : Value();
}

// An undefined value knows its name.
static Value named(Value value, const Value& name)
{
    if (value.is(kUndefined) && name.is(kText)) value.object = name.object;
    return value;
}

Value Interpreter::evaluate(uint32_t index)
{
    const Nesting nesting(&m_depth, kMaxRunDepth);
    const Node& node = enter(index);
    switch (node.op) {
    case Op::constant:
        return m_program.constants[node.name];
    case Op::name:
        return named(variable(node.name), m_program.names[node.name]);
    case Op::attribute: {
        const Value& name = m_program.names[node.name];
        return named(attribute(evaluate(node.kids[0]), name.str()), name);
    }
    case Op::item: {
        Value object = evaluate(node.kids[0]), key = evaluate(node.kids[1]);
        return named(key.is(kText) ? attribute(object, key.str(), true) : item_of(object, key),
                     key);
    }
    case Op::call:
        return call_node(node, {});
    case Op::filter:
    case Op::test: {
        Values values = {evaluate(node.kids[0])}, named_values;
        arguments(node, &values, &named_values);
        m_at = index;
        Value out = apply(m_program.names[node.name], node.op == Op::filter ? kFilter : kTest,
                          move(values), move(named_values));
        return node.op == Op::test ? truth(out) != bool(node.detail) : out;
    }
    case Op::capture:
        return captured(inner_scope(), [&] { run_node(node.kids[0]); });
    default:
        return operation(node);
    }
}

Value Interpreter::operation(const Node& node)
{
    auto kid = [&](size_t i) {
        return i < node.kids.size() && node.kids[i] ? evaluate(node.kids[i]) : Value();
    };
    Values values;
    if (node.op >= Op::slice && node.op <= Op::dict) {
        for (size_t i = 0; i < node.kids.size(); i++) values.push_back(kid(i));
        if (node.op == Op::slice) return slice_of(values[0], values[1], values[2], values[3]);
        if (node.op == Op::dict) return dict_of(values);
        return {move(values), node.op == Op::list ? kList : kTuple};
    }
    if (node.op == Op::conditional) return kid(truth(kid(1)) ? 0 : 2);
    Value left = kid(0);
    if (node.op == Op::binary) return binary(char(node.detail), left, kid(1));
    if (node.op == Op::logical_not) return !truth(left);
    if (node.op == Op::logical_and || node.op == Op::logical_or)
        return truth(left) == (node.op == Op::logical_or) ? left : kid(1);
    if (node.op == Op::sign) {
        if (!left.is_number()) refuse("a sign before %s", type_name(left));
        return binary('*', left, int64_t(node.detail == '-' ? -1 : 1));
    }
    for (size_t i = 1; i < node.kids.size(); i++) { // of Op::chain
        const Node& next = m_program.nodes[node.kids[i]];
        Value right = evaluate(next.kids[0]);
        if (!compare(char(next.detail), left, right)) return false;
        left = move(right);
    }
    return true;
}

} // namespace ks::jinja
