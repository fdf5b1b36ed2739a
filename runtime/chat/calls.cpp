// Calls, attributes and the table of functions.
#include "runtime/chat/interpreter.h"

#include <algorithm>
#include <iterator>

namespace ks::jinja
{

constexpr int kMaxCalls = 100;
constexpr int64_t kScopeBytes = 256;

Value dict_of(const Values& pairs)
{
    Value out = Value::dict();
    for (size_t i = 0; i < pairs.size(); i += 2) out.dict_object().set(pairs[i], pairs[i + 1]);
    return out;
}

// Takes a named argument out of `named`.
static bool take(Values* named, string_view name, Value* out)
{
    for (auto at = named->begin(); at < named->end(); at += 2) {
        if (at->str() != name) continue;
        *out = at[1];
        named->erase(at, at + 2);
        return true;
    }
    return false;
}

void Interpreter::arguments(const Node& node, Values* values, Values* named)
{
    for (size_t i = 1; i < node.kids.size(); i++) {
        const Node& kid = m_program.nodes[node.kids[i]];
        Value value =
            evaluate(kid.op >= Op::keyword && kid.op <= Op::star_star ? kid.kids[0] : node.kids[i]);
        if (kid.op == Op::keyword) {
            named->insert(named->end(), {m_program.names[kid.name], value});
        } else if (kid.op == Op::star) {
            for (const Value& item : items_of(value)) values->push_back(item);
        } else if (kid.op == Op::star_star) {
            if (!value.is(kDict)) refuse("** needs a dict, not %s", type_name(value));
            for (const auto& [key, item] : value.members()) {
                if (!key.is(kText)) refuse("a name is a text, not %s", type_name(key));
                named->insert(named->end(), {key, item});
            }
        } else {
            values->push_back(value);
        }
    }
}

Value Interpreter::call_node(const Node& node, const Value& caller)
{
    Value callee = evaluate(node.kids[0]);
    Values values, named;
    arguments(node, &values, &named);
    if (!caller.is(kUndefined)) named.insert(named.end(), {m_program.names[kCaller], caller});
    const Nesting nesting(&m_calls, kMaxCalls);
    if (callee.is(kMacro))
        return call_macro(static_cast<Macro&>(*callee.object), move(values), move(named));
    if (callee.is(kFunction) || callee.is(kMethod)) {
        const Bound& function = static_cast<Bound&>(*callee.object);
        if (callee.is(kMethod)) values.insert(values.begin(), function.self);
        return call_function(*function.function, move(values), move(named));
    }
    if (callee.is(kUndefined)) refuse_undefined(callee);
    auto loop = std::static_pointer_cast<Loop>(callee.object);
    if (!callee.is(kLoop) || !loop->node || !m_program.nodes[loop->node].detail ||
        values.size() != 1)
        refuse("%s cannot be called", type_name(callee));
    return captured(loop->scope,
                    [&] { run_loop(loop->node, items_of(values[0]), loop->depth + 1); });
}

Value Interpreter::make_macro(uint32_t node)
{
    auto macro = make_shared<Macro>();
    macro->count(sizeof(Macro));
    macro->node = node;
    macro->scope = m_scope;
    Budget::current->bytes -= kScopeBytes;
    m_kept_scopes.push_back(m_scope);
    return {kMacro, move(macro)};
}

Value Interpreter::call_macro(const Macro& macro, Values values, Values named)
{
    const Node& node = m_program.nodes[macro.node];
    size_t n_parameters = node.kids.size() - 1, n_given = min(values.size(), n_parameters);
    auto scope = make_shared<Scope>(Scope{macro.scope, {}});
    auto& variables = scope->variables;
    return captured(scope, [&] {
        for (size_t i = 0; i < n_parameters; i++) {
            const Node& parameter = m_program.nodes[node.kids[i]];
            Value value;
            value.object = m_program.names[parameter.name].object;
            if (i < n_given)
                value = values[i];
            else if (!take(&named, value.str(), &value) && !parameter.kids.empty())
                value = evaluate(parameter.kids[0]);
            variables[parameter.name] = value;
        }
        values.erase(values.begin(), values.begin() + ptrdiff_t(n_given));
        if (node.detail & uses_caller) take(&named, "caller", &variables[kCaller]);
        if (node.detail & uses_varargs) variables[kVarargs] = Value(values, kTuple), values.clear();
        if (node.detail & uses_kwargs) variables[kKwargs] = dict_of(named), named.clear();
        if (!values.empty() || !named.empty())
            refuse("a macro got more arguments than it has parameters");
        run_node(node.kids.back());
    });
}

Value Interpreter::call_function(const Function& function, Values values, Values named)
{
    Call call{*this, {}};
    size_t next = function.where != kGlobal;
    if (next) call.values.push_back(values[0]);
    for (string_view rest = function.parameters; !rest.empty();) {
        string_view word = rest.substr(0, rest.find(' '));
        rest.remove_prefix(min(rest.size(), word.size() + 1));
        Value value;
        if (word == "**") {
            value = dict_of(named);
            named.clear();
        } else if (word == "*") {
            value = Value(Values(values.begin() + ptrdiff_t(next), values.end()), kTuple);
            next = values.size();
        } else if (next < values.size()) {
            value = values[next++];
        } else if (!take(&named, word.substr(0, word.find('?')), &value) && word.back() != '?') {
            refuse("%s() needs more arguments", function.names);
        }
        call.values.push_back(value);
    }
    if (next < values.size() || !named.empty())
        refuse("%s() got too many arguments", function.names);
    return function.run(call);
}

Value Interpreter::apply(const Value& name, unsigned where, Values values, Values named)
{
    const Function* found = name.is(kText) ? find_function(name.str(), where) : nullptr;
    if (!found || ((found->where & kChanges) && !request.extended))
        refuse("there is no %s '%s'", where == kFilter ? "filter" : "test",
               printable(text_of(name).bytes).c_str());
    return call_function(*found, move(values), move(named));
}

Value bound(const Function* function, Kind kind, const Value& self)
{
    auto made = make_shared<Bound>();
    made->function = function;
    made->self = self;
    return {kind, move(made)};
}

static Value loop_attribute(const Loop& loop, string_view name)
{
    int64_t at = int64_t(loop.index), n = int64_t(loop.items.size());
    const std::pair<const char*, int64_t> kNumbers[] = {
        {"index", at + 1},
        {"index0", at},
        {"length", n},
        {"revindex", n - at},
        {"revindex0", n - at - 1},
        {"depth", loop.depth + 1},
        {"depth0", loop.depth},
    };
    for (auto [word, number] : kNumbers)
        if (name == word) return number;
    if (name == "first") return at == 0;
    if (name == "last") return at == n - 1;
    int64_t wanted = name == "nextitem"   ? at + 1
                     : name == "previtem" ? at - 1
                     : name == "current"  ? at
                                          : n;
    return wanted >= 0 && wanted < n ? loop.items[size_t(wanted)] : Value();
}

// Methods that change a value exist only for what the template made.
static bool may_change(const Value& object, const Request& request)
{
    bool fixed =
        object.is(kDict) ? object.dict_object().fixed : !object.is(kList) || object.list().fixed;
    return request.extended && !fixed;
}

Value Interpreter::attribute(const Value& object, string_view name, bool item_first)
{
    if (object.is(kUndefined)) refuse_undefined(object);
    bool has_keys = object.is(kDict) || object.is(kNamespace);
    const Value* item = has_keys ? object.dict_object().find(name) : nullptr;
    const Function* method =
        starts_with(name, "_") ? nullptr : find_function(name, methods_of(object));
    if (item && (item_first || !method)) return *item;
    if (!method && object.is(kLoop))
        return loop_attribute(static_cast<Loop&>(*object.object), name);
    if (object.is(kTuple) && (name == "grouper" || name == "list")) // of the filter groupby
        return item_of(object, int64_t(name == "list"));
    if (!method || (method->where & kChanges && !may_change(object, request))) return {};
    return bound(method, kMethod, object);
}

Value Interpreter::at_path(const Value& object, const Value& path)
{
    if (!path.is(kText)) return item_of(object, path);
    const string& text = path.str();
    size_t dot = text.find('.');
    string part = text.substr(0, dot);
    bool digits = part.find_first_not_of("0123456789") == kAll && part.size() < 18;
    Value item =
        digits ? item_of(object, int64_t(atoll(part.c_str()))) : attribute(object, part, true);
    return dot == kAll ? item : at_path(item, text.substr(dot + 1));
}

namespace
{

// All names of all functions, sorted. It is no map: what it allocates would outlive every session.
struct FunctionIndex {
    std::pair<string_view, const Function*> rows[256];
    size_t n = 0;

    FunctionIndex()
    {
        for (auto [functions, n_functions] :
             {value_functions(), text_functions(), list_functions(), global_functions()})
            for (const Function* f = functions; f < functions + n_functions; f++)
                for (string_view rest = f->names; !rest.empty();
                     rest.remove_prefix(min(rest.find(' '), rest.size() - 1) + 1)) {
                    KS_CHECK(n < std::size(rows), "more than %zu functions", n);
                    rows[n++] = {rest.substr(0, rest.find(' ')), f};
                }
        std::sort(rows, rows + n);
    }
};

} // namespace

const Function* find_function(string_view name, unsigned where)
{
    static const FunctionIndex index;
    const auto* end = index.rows + index.n;
    const auto* row = std::lower_bound(
        index.rows, end, name, [](const auto& r, string_view wanted) { return r.first < wanted; });
    for (; row < end && row->first == name; row++)
        if (row->second->where & where) return row->second;
    return nullptr;
}

unsigned methods_of(const Value& value)
{
    if (value.is(kText)) return kTextMethod;
    if (value.is(kDict)) return kDictMethod;
    if (value.is(kLoop)) return kLoopMethod;
    if (value.is(kReal)) return kRealMethod;
    return value.is(kList) || value.is(kTuple) ? kListMethod : 0u;
}

} // namespace ks::jinja
