// A parsed template: a flat array of nodes.
#pragma once

#include "runtime/chat/value.h"

namespace ks::jinja
{

enum class TokenKind : uint8_t { data, name, literal, number, sign };
constexpr TokenKind kData = TokenKind::data, kName = TokenKind::name, kLiteral = TokenKind::literal,
                    kNumber = TokenKind::number, kSign = TokenKind::sign;

struct Token {
    TokenKind kind; // signs are operators, brackets, the ends of tags, and "" at the end
    uint32_t line;
    string text;
    Value number = {};
};

vector<Token> tokenize(string_view source);

enum class Op : uint8_t {
    // Expressions. Children are in brackets, optional ones after '|'.
    constant,    // .name: index of Program::constants
    name,        //
    attribute,   // [object] .name
    item,        // [object, key]
    slice,       // [object, begin, end, step], 0: none
    call,        // [callee, arguments...]
    filter,      // [value, arguments...] .name
    test,        // the same; .detail: negated
    keyword,     // an argument: [value] .name
    star,        // an argument: [values]
    star_star,   // an argument: [dict]
    list,        // [items...]
    tuple,       // [items...]
    dict,        // [key, value, ...]
    sign,        // [value] .detail: '-' or '+'
    logical_not, // [value]
    logical_and, // [left, right]
    logical_or,  // [left, right]
    binary,      // [left, right] .detail: the operator's character
    chain,       // [first, compare...]
    compare,     // [right] .detail: the operator
    conditional, // [value, condition | otherwise]
    capture,     // [block]: its text, in a scope of its own
    // Statements.
    block,      // [statements...]
    text,       // .name: index of Program::constants
    print,      // [value]
    branch,     // [condition, block, condition, block, ... | otherwise]
    loop,       // [target, iterable, block, filter or 0, otherwise or 0] .detail: recursive
    set,        // [target, value]; targets are names, tuples and attributes
    with,       // [target, value, ..., block]
    macro,      // [parameters..., block] .name .detail: Implicit
    parameter,  // [| default] .name
    call_block, // [macro, call]
    break_loop,
    continue_loop,
};

// Names that a macro's body reads, which its callers may then pass.
enum Implicit : uint8_t { no_implicit = 0, uses_varargs = 1, uses_kwargs = 2, uses_caller = 4 };

// Operators of Op::binary and Op::compare by one character.
constexpr char kPower = 'p', kFloorDivide = 'd', kEqual = '=', kNotEqual = '!', kAtLeast = 'g',
               kAtMost = 'l', kIn = 'i', kNotIn = 'n';

// Names with a meaning of their own.
enum Known : uint32_t { kVarargs, kKwargs, kCaller, kLoopName };

struct Node {
    Op op;
    uint8_t detail;
    uint32_t line;
    uint32_t name; // index of Program::names or constants
    vector<uint32_t> kids;
};

struct Program {
    vector<Node> nodes; // [0] is none, the last one is the root
    vector<Value> constants;
    vector<Value> names; // texts; the first ones are of Known
    unordered_map<string, uint32_t> name_index;
};

// One level more while it lives.
struct Nesting {
    Nesting(int* depth, int most) : m_depth(depth)
    {
        if (++*m_depth > most) refuse("nested deeper than %d", most);
    }
    ~Nesting() { --*m_depth; }
    int* m_depth;
};

Program parse_program(string_view source);

} // namespace ks::jinja
