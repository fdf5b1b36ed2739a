// Runs a parsed template.
#pragma once

#include "runtime/chat/jinja.h"
#include "runtime/chat/program.h"
#include "runtime/chat/text.h"

#include <functional>

namespace ks::jinja
{

class Interpreter;
using Values = vector<Value>;
constexpr size_t kAll = string::npos;

// Where a function of the table can be called.
enum Where : unsigned {
    kFilter = 1,
    kTest = 2,
    kGlobal = 4,
    kTextMethod = 8,
    kDictMethod = 16,
    kListMethod = 32,
    kLoopMethod = 64,
    kRealMethod = 128,
    kChanges = 256, // its list or dict
};

// The arguments of a call, in the order of the function's parameters; undefined: not given.
struct Call {
    Interpreter& in;
    Values values;

    Value& operator[](size_t i) { return values[i]; }
    bool has(size_t i) const { return !values[i].is(kUndefined); }
    const Text& text(size_t i) const; // refuses other values
    Text written(size_t i) const;     // any value as text
    int64_t integer(size_t i, int64_t otherwise) const;
    bool flag(size_t i) const;
};

struct Function {
    const char* names;      // with a space between them
    unsigned where;         // of Where
    const char* parameters; // a word each; "?" behind it: optional; "*", "**": all others
    Value (*run)(Call&);
};
using FunctionTable = std::pair<const Function*, size_t>;
FunctionTable value_functions(), text_functions(), list_functions(), global_functions();
const Function* find_function(string_view name, unsigned where);
unsigned methods_of(const Value& value);

// ---- Operators and conversions (operators.cpp)

const char* type_name(const Value& value);
[[noreturn]] void refuse_undefined(const Value& value);
bool truth(const Value& value);
Text text_of(const Value& value); // as printed
Text repr_of(const Value& value); // as printed in a list
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
bool compare(char op, const Value& left, const Value& right);
Value binary(char op, const Value& left, const Value& right);
Value repeated(const Text& text, int64_t n);
int64_t length_of(const Value& value);
// All items: of a list, the keys of a dict, the characters of a text. A lazy list is empty after.
Values items_of(const Value& value);
Value item_of(const Value& object, const Value& key); // undefined: none
// Undefined and none are no bounds.
Value slice_of(const Value& object, const Value& first, const Value& last,
               const Value& stride = {});
Text html_escaped(const Text& text);

// ---- Formats (format.cpp)

Value format_percent(const Text& format, const Value& values);
Value format_braces(const Text& format, const Values& values, Dict& named);
Text padded(const Text& text, int64_t width, char align, const Text& fill);
Text write_time(string_view format, const std::tm& now);

struct Scope {
    shared_ptr<Scope> parent;
    unordered_map<uint32_t, Value> variables; // by index of Program::names
};

struct Macro : Object {
    uint32_t node = 0;
    shared_ptr<Scope> scope; // of its definition
};

struct Loop : Object {
    Values items;
    size_t index = 0;
    int64_t depth = 0;
    uint32_t node = 0;
    shared_ptr<Scope> scope;
    Values changed; // the last arguments of loop.changed
};

// A value and a function: a method. Without a value: a global.
struct Bound : Object {
    const Function* function = nullptr;
    Value self;
};

struct Output : Object {
    Text text;
};

Value bound(const Function* function, Kind kind, const Value& self);
Value dict_of(const Values& pairs); // key, value, key, value...

class Interpreter
{
public:
    Interpreter(const Program& program, const Request& request);
    ~Interpreter();
    Text run();

    // `named` alternates names and values.
    Value call_function(const Function& function, Values values, Values named = {});
    // A filter or test by name, on a value and further arguments.
    Value apply(const Value& name, unsigned where, Values values, Values named = {});
    Value attribute(const Value& object, string_view name, bool item_first = false);
    // A path like "a.b.0".
    Value at_path(const Value& object, const Value& path);
    void keep(const Value& value) { m_kept.push_back(value); }

    const Request& request;

private:
    enum class Flow { next, break_loop, continue_loop };

    Flow run_node(uint32_t index);
    Flow run_loop(uint32_t index, Values items, int64_t depth);
    Value evaluate(uint32_t index);
    Value operation(const Node& node);
    Value variable(uint32_t name);
    Text captured(shared_ptr<Scope> scope, const std::function<void()>& body);
    const Node& enter(uint32_t index);
    shared_ptr<Scope> inner_scope() const;
    void write(const Text& text);
    void assign(uint32_t target, const Value& value);
    void arguments(const Node& node, Values* values, Values* named);
    Value call_macro(const Macro& macro, Values values, Values named);
    Value make_macro(uint32_t node);
    Value call_node(const Node& node, const Value& caller);

    const Program& m_program;
    shared_ptr<Scope> m_scope;
    Output* m_out = nullptr;
    uint32_t m_at = 0; // the node that runs
    int m_depth = 0, m_calls = 0;
    // Values and scopes that may be part of cycles. The end of the rendering clears them.
    Values m_kept;
    vector<shared_ptr<Scope>> m_kept_scopes;
};

} // namespace ks::jinja
