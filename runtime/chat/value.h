// Values of JSON and of chat templates. A text knows the author of each of its bytes.
#pragma once

#include "runtime/base/status.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ks::jinja
{

using std::make_shared, std::max, std::min, std::move, std::shared_ptr, std::string,
    std::string_view, std::unordered_map, std::vector;

// Authors of bytes. A message's author depends on its role.
constexpr char kByTemplate = 'f', kBySystem = 's', kByUser = 'u', kByAssistant = 'a', kByTool = 't',
               kByOther = 'x', kByTools = 'd', kByOptions = 'o';

constexpr uint64_t kMaxTextBytes = 16 << 20, kMaxItems = 1'000'000;
constexpr int kMaxDepth = 200; // of values

// An error of a parser or of a rendering. Every public function of this folder catches it.
struct Failure {
    string message;
    bool raised = false; // by raise_exception of a template
    Code code = Code::invalid;
};
[[noreturn, gnu::format(printf, 1, 2)]] void refuse(const char* format, ...);

constexpr int64_t kHeapShare = 3;

// What one rendering may use. Values that its thread makes count against the current budget.
struct Budget {
    int64_t bytes = 64 << 20; // of values; the heap holds up to kHeapShare as much
    int64_t steps = 50'000'000;
    static thread_local Budget* current; // null: values are not counted
};
void use_steps(uint64_t n); // refuses if the budget has fewer
void check_text_bytes(uint64_t bytes);
void check_items(uint64_t items);

struct Text {
    string bytes;
    string authors;    // one per byte
    bool safe = false; // `+` escapes the other side (markupsafe)

    Text() = default;
    Text(string_view text, char author = kByTemplate) { add(text, author); }
    Text(const string& text) : Text(string_view(text)) {}
    Text(const char* text) : Text(string_view(text)) {}
    void add(string_view more, char author = kByTemplate);
    void append(const Text& other, size_t begin = 0, size_t n = string::npos);
    Text part(size_t begin, size_t n = string::npos) const;
    size_t size() const { return bytes.size(); }
};

enum class Kind : uint8_t {
    undefined, // `integer` is the index of the expression that gave it
    none,
    boolean,
    integer,
    real,
    text,
    list,
    tuple,
    range,
    view, // of a dict
    lazy, // the result of map, select...: can be read once
    dict,
    name_space,
    macro,
    function,
    method,
    loop,
};

constexpr Kind kUndefined = Kind::undefined, kNone = Kind::none, kBoolean = Kind::boolean,
               kInteger = Kind::integer, kReal = Kind::real, kText = Kind::text, kList = Kind::list,
               kTuple = Kind::tuple, kRange = Kind::range, kView = Kind::view, kLazy = Kind::lazy,
               kDict = Kind::dict, kNamespace = Kind::name_space, kMacro = Kind::macro,
               kFunction = Kind::function, kMethod = Kind::method, kLoop = Kind::loop;

struct Object {
    Object() = default;
    Object(const Object&) = delete;
    ~Object();
    void count(uint64_t n_bytes); // against the current budget

    Budget* budget = nullptr;
    uint64_t bytes = 0;
};
struct TextObject;
struct List;
struct Dict;

struct Value {
    Kind kind = Kind::undefined;
    union {
        int64_t integer = 0; // and booleans
        double real;
    };
    shared_ptr<Object> object;

    Value() = default;
    Value(bool yes) : kind(Kind::boolean), integer(yes) {}
    Value(int64_t number) : kind(Kind::integer), integer(number) {}
    Value(double number) : kind(Kind::real), real(number) {}
    Value(Text text);
    Value(string_view text) : Value(Text(text)) {}
    Value(const string& text) : Value(Text(text)) {}
    Value(const char* text) : Value(string_view(text)) {}
    Value(vector<Value> items, Kind list_kind = Kind::list);
    Value(Kind any_kind, shared_ptr<Object> any_object) : kind(any_kind), object(move(any_object))
    {
    }
    static Value none() { return {Kind::none, nullptr}; }
    static Value dict(); // empty

    bool is(Kind other) const { return kind == other; }
    bool is_number() const { return kind >= Kind::boolean && kind <= Kind::real; }
    bool has_items() const { return kind >= Kind::list && kind <= Kind::lazy; }
    double number() const { return is(Kind::real) ? real : double(integer); }
    const Text& text() const;
    const string& str() const { return text().bytes; }
    List& list() const; // has_items()
    vector<Value>& items() const;
    Dict& dict_object() const;
    vector<std::pair<Value, Value>>& members() const; // of a dict
    // The value of a text key. Null: no such key, or no dict.
    const Value* find(string_view key) const;
};

struct TextObject : Object {
    Text text;
    size_t n_chars = 0; // code points
};

struct List : Object {
    vector<Value> items;
    int depth = 0;
    bool fixed = false;         // part of the request, which templates never change
    const char* view = "range"; // the Python type of a view
};

// Keeps the order of insertion.
struct Dict : Object {
    vector<std::pair<Value, Value>> items;
    unordered_map<string, size_t> index; // by key_of()
    int depth = 0;
    bool fixed = false;

    Value* find(const Value& key);
    void set(const Value& key, Value value);
};

// Equal keys of a dict give equal texts: 1, 1.0 and true are one key. Refuses lists and dicts.
string key_of(const Value& key);
int depth_of(const Value& value);
// The first author but the template in a value.
char author_in(const Value& value, int depth = 0);
// A copy whose texts are by one author.
Value by_author(const Value& value, char author);

} // namespace ks::jinja
