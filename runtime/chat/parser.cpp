#include "runtime/chat/program.h"
#include "runtime/chat/text.h"

#include <initializer_list>

namespace ks::jinja
{
namespace
{

constexpr size_t kMaxNodes = 100'000;
constexpr int kMaxNesting = 200;

// Binary operators, from the loosest. Tests of equality, order and containment form chains.
enum Level { kOr, kAnd, kNot, kCompare, kSum, kConcat, kProduct, kPowers, kUnary };
const struct {
    const char* text;
    Level level;
    Op op;
    char detail;
} kOperators[] = {
    {"or", kOr, Op::logical_or, 0},        {"and", kAnd, Op::logical_and, 0},
    {"==", kCompare, Op::compare, kEqual}, {"!=", kCompare, Op::compare, kNotEqual},
    {"<", kCompare, Op::compare, '<'},     {"<=", kCompare, Op::compare, kAtMost},
    {">", kCompare, Op::compare, '>'},     {">=", kCompare, Op::compare, kAtLeast},
    {"in", kCompare, Op::compare, kIn},    {"not", kCompare, Op::compare, kNotIn}, // "not in"
    {"+", kSum, Op::binary, '+'},          {"-", kSum, Op::binary, '-'},
    {"~", kConcat, Op::binary, '~'},       {"*", kProduct, Op::binary, '*'},
    {"/", kProduct, Op::binary, '/'},      {"//", kProduct, Op::binary, kFloorDivide},
    {"%", kProduct, Op::binary, '%'},      {"**", kPowers, Op::binary, kPower},
};

class Parser
{
public:
    explicit Parser(string_view source) : m_tokens(tokenize(source))
    {
        m_program.nodes.push_back({Op::block, 0, 0, 0, {}});
        for (const char* known : {"varargs", "kwargs", "caller", "loop"}) intern(known);
    }

    Program run()
    {
        try {
            body({});
        } catch (Failure& failure) {
            failure.message = "line " + std::to_string(token().line) + ": " + failure.message;
            throw;
        }
        return move(m_program);
    }

private:
    using Kids = vector<uint32_t>;
    using Words = std::initializer_list<const char*>;

    const Token& token(size_t ahead = 0) const
    {
        return m_tokens[min(m_at + ahead, m_tokens.size() - 1)];
    }
    bool is(const char* text) const
    {
        return (token().kind == kSign || token().kind == kName) && token().text == text;
    }
    bool is_any(Words words) const
    {
        return std::any_of(words.begin(), words.end(), [&](const char* w) { return is(w); });
    }
    bool accept(const char* text)
    {
        if (!is(text)) return false;
        m_at++;
        return true;
    }
    [[noreturn]] void wrong(const char* expected) const
    {
        refuse("%s expected, found '%s'", expected, printable(token().text).c_str());
    }
    void expect(const char* text)
    {
        if (!accept(text)) wrong(text);
    }

    uint32_t add(Op op, Kids kids = {}, uint32_t name = 0, int detail = 0)
    {
        if (m_program.nodes.size() >= kMaxNodes)
            refuse("the chat template has more than %zu expressions", kMaxNodes);
        m_program.nodes.push_back({op, uint8_t(detail), token().line, name, move(kids)});
        return uint32_t(m_program.nodes.size() - 1);
    }
    uint32_t constant(Value value, Op op = Op::constant)
    {
        m_program.constants.push_back(move(value));
        return add(op, {}, uint32_t(m_program.constants.size() - 1));
    }
    uint32_t intern(const string& name)
    {
        auto [found, is_new] = m_program.name_index.emplace(name, m_program.names.size());
        if (is_new) m_program.names.push_back(Text(name));
        return found->second;
    }
    uint32_t name()
    {
        if (token().kind != kName) wrong("a name");
        return intern(m_tokens[m_at++].text);
    }

    // A list up to its bracket.
    template <class Each>
    void until(const char* closer, Each each)
    {
        while (!accept(closer)) {
            each();
            if (!is(closer)) expect(",");
        }
    }

    // ---- Expressions

    uint32_t expression() { return conditional(true); }

    uint32_t conditional(bool with_condition)
    {
        const Nesting nesting(&m_depth, kMaxNesting);
        uint32_t left = binary(kOr);
        while (with_condition && accept("if")) {
            Kids kids = {left, binary(kOr)};
            if (accept("else")) kids.push_back(expression());
            left = add(Op::conditional, kids);
        }
        return left;
    }

    uint32_t binary(int level)
    {
        if (level == kUnary) return unary(true);
        if (level == kNot && accept("not")) {
            const Nesting nesting(&m_depth, kMaxNesting);
            return add(Op::logical_not, {binary(kNot)});
        }
        uint32_t left = binary(level + 1), chain = 0;
        while (true) {
            const auto* found =
                std::find_if(std::begin(kOperators), std::end(kOperators),
                             [&](auto& o) { return o.level == level && is(o.text); });
            if (found == std::end(kOperators)) return left;
            if (found->detail == kNotIn && token(1).text != "in") return left;
            m_at += found->detail == kNotIn ? 2 : 1;
            uint32_t right = binary(level + 1);
            if (level != kCompare) {
                left = add(found->op, {left, right}, 0, found->detail);
                continue;
            }
            if (!chain) left = chain = add(Op::chain, {left});
            uint32_t compare = add(Op::compare, {right}, 0, found->detail);
            m_program.nodes[chain].kids.push_back(compare);
        }
    }

    uint32_t unary(bool with_filters)
    {
        const Nesting nesting(&m_depth, kMaxNesting);
        uint32_t node = 0;
        if (is("-") || is("+")) {
            char sign = m_tokens[m_at++].text[0];
            node = add(Op::sign, {unary(false)}, 0, sign);
        } else {
            node = postfix(primary());
        }
        return with_filters ? suffix(node) : node;
    }

    uint32_t primary()
    {
        const Token& first = token();
        if (first.kind == kName) {
            const string& text = first.text;
            m_at++;
            if (text == "true" || text == "True") return constant(true);
            if (text == "false" || text == "False") return constant(false);
            if (text == "none" || text == "None") return constant(Value::none());
            uint32_t variable = intern(text);
            if (variable <= kCaller) m_implicit |= 1 << variable;
            return add(Op::name, {}, variable);
        }
        if (first.kind == kLiteral) {
            string text;
            while (token().kind == kLiteral) text += m_tokens[m_at++].text;
            return constant(Text(text));
        }
        if (first.kind == kNumber) return constant(m_tokens[m_at++].number);
        if (accept("(")) {
            if (accept(")")) return add(Op::tuple);
            uint32_t inside = tuple();
            expect(")");
            return inside;
        }
        if (accept("[")) return add(Op::list, items("]"));
        if (!accept("{")) wrong("an expression");
        Kids kids;
        until("}", [&] {
            kids.push_back(expression());
            expect(":");
            kids.push_back(expression());
        });
        return add(Op::dict, kids);
    }

    Kids items(const char* closer)
    {
        Kids kids;
        until(closer, [&] { kids.push_back(expression()); });
        return kids;
    }

    // One expression, or several with commas between them.
    uint32_t tuple(bool with_condition = true)
    {
        Kids kids = {conditional(with_condition)};
        bool single = !is(",");
        while (accept(",")) {
            if (is_any({"%}", "}}", ")"})) break;
            kids.push_back(conditional(with_condition));
        }
        return single ? kids[0] : add(Op::tuple, kids);
    }

    uint32_t postfix(uint32_t node)
    {
        while (true) {
            if (accept(".")) {
                node = token().kind == kNumber
                           ? add(Op::item, {node, constant(m_tokens[m_at++].number)})
                           : add(Op::attribute, {node}, name());
            } else if (accept("[")) {
                node = subscript(node);
            } else if (is("(")) {
                node = add(Op::call, arguments(node));
            } else {
                return node;
            }
        }
    }

    uint32_t subscript(uint32_t node)
    {
        auto part = [&] { return is(":") || is("]") ? 0 : expression(); };
        Kids kids = {node, part()};
        if (accept(":")) {
            kids.push_back(part());
            kids.push_back(accept(":") ? part() : 0);
            expect("]");
            return add(Op::slice, kids);
        }
        if (!kids[1]) wrong("a subscript");
        if (accept(",")) {
            Kids parts = items("]");
            parts.insert(parts.begin(), kids[1]);
            kids[1] = add(Op::tuple, move(parts));
        } else {
            expect("]");
        }
        return add(Op::item, kids);
    }

    Kids arguments(uint32_t callee)
    {
        Kids kids = {callee};
        bool named = false;
        expect("(");
        until(")", [&] {
            if (accept("*")) {
                kids.push_back(add(Op::star, {expression()}));
            } else if (accept("**")) {
                kids.push_back(add(Op::star_star, {expression()}));
            } else if (token().kind == kName && token(1).text == "=") {
                uint32_t keyword = name();
                m_at++;
                kids.push_back(add(Op::keyword, {expression()}, keyword));
                named = true;
            } else {
                if (named) wrong("a named argument");
                kids.push_back(expression());
            }
        });
        return kids;
    }

    uint32_t filter(uint32_t node)
    {
        uint32_t filter_name = name();
        return add(Op::filter, is("(") ? arguments(node) : Kids{node}, filter_name);
    }

    uint32_t suffix(uint32_t node)
    {
        while (true) {
            if (accept("|"))
                node = filter(node);
            else if (accept("is"))
                node = test(node);
            else if (is("("))
                node = add(Op::call, arguments(node));
            else
                return node;
        }
    }

    uint32_t test(uint32_t node)
    {
        bool negated = accept("not");
        uint32_t test_name = name();
        Kids kids = {node};
        const TokenKind kind = token().kind;
        if (is("(")) {
            kids = arguments(node);
        } else if (is("is")) {
            wrong("one test");
        } else if (kind == kLiteral || kind == kNumber || is("[") || is("{") ||
                   (kind == kName && !is_any({"else", "or", "and"}))) {
            kids.push_back(postfix(primary()));
        }
        return add(Op::test, kids, test_name, negated);
    }

    // ---- Statements

    // Statements up to one of the words, which becomes the current token.
    uint32_t body(Words words)
    {
        const Nesting nesting(&m_depth, kMaxNesting);
        Kids kids;
        while (!is("")) {
            if (token().kind == kData) {
                kids.push_back(constant(Text(m_tokens[m_at++].text), Op::text));
            } else if (accept("{{")) {
                kids.push_back(add(Op::print, {tuple()}));
                expect("}}");
            } else {
                expect("{%");
                if (is_any(words)) return add(Op::block, kids);
                kids.push_back(statement());
                expect("%}");
            }
        }
        if (words.size()) wrong(*words.begin());
        return add(Op::block, kids);
    }

    // The rest of a tag, the body and the word that ends it.
    uint32_t body_until(const char* end)
    {
        accept(":");
        expect("%}");
        uint32_t block = body({end});
        m_at++;
        return block;
    }

    uint32_t statement()
    {
        static const struct {
            const char* word;
            uint32_t (Parser::*parse)();
        } kStatements[] = {
            {"if", &Parser::branch},         {"for", &Parser::loop},
            {"set", &Parser::set},           {"macro", &Parser::macro},
            {"call", &Parser::call_block},   {"filter", &Parser::filter_block},
            {"with", &Parser::with},         {"generation", &Parser::generation},
            {"break", &Parser::jump},        {"continue", &Parser::jump},
            {"block", &Parser::named_block}, {"print", &Parser::print},
        };
        for (const auto& [word, parse] : kStatements) {
            if (!is(word)) continue;
            if (parse != &Parser::jump) m_at++;
            return (this->*parse)();
        }
        wrong("a statement");
    }

    uint32_t branch()
    {
        Kids kids;
        do {
            kids.push_back(tuple(false));
            accept(":");
            expect("%}");
            kids.push_back(body({"elif", "else", "endif"}));
        } while (accept("elif"));
        if (accept("else"))
            kids.push_back(body_until("endif"));
        else
            expect("endif");
        return add(Op::branch, kids);
    }

    // Names, tuples of names, and attributes of namespaces.
    uint32_t target(bool attributes)
    {
        const Nesting nesting(&m_depth, kMaxNesting);
        Kids kids;
        bool single = true;
        do {
            if (!kids.empty() && is_any({"in", "=", ")"})) break;
            if (accept("(")) {
                kids.push_back(target(attributes));
                expect(")");
            } else {
                if (is_any({"true", "True", "false", "False", "none", "None"}) ||
                    (m_loops && is("loop")))
                    wrong("another name");
                uint32_t variable = add(Op::name, {}, name());
                kids.push_back(attributes && accept(".") ? add(Op::attribute, {variable}, name())
                                                         : variable);
            }
            single = kids.size() == 1 && !is(",");
        } while (accept(","));
        return single ? kids[0] : add(Op::tuple, kids);
    }

    uint32_t loop()
    {
        int loops = m_loops++;
        Kids kids = {target(false)};
        if (is("=")) wrong("in");
        expect("in");
        kids.push_back(tuple(false));
        kids.resize(5);
        if (accept("if")) kids[3] = expression();
        bool recursive = accept("recursive");
        accept(":");
        expect("%}");
        kids[2] = body({"else", "endfor"});
        m_loops = loops;
        if (accept("else"))
            kids[4] = body_until("endfor");
        else
            expect("endfor");
        return add(Op::loop, kids, 0, recursive);
    }

    uint32_t set()
    {
        uint32_t variable = target(true);
        return add(Op::set,
                   {variable, accept("=") ? tuple() : filtered_block("endset", accept("|"))});
    }

    uint32_t filter_block() { return add(Op::print, {filtered_block("endfilter", true)}); }

    // Filters, and then the text that they change.
    uint32_t filtered_block(const char* end, bool filters)
    {
        uint32_t captured = add(Op::capture), value = captured;
        for (; filters; filters = accept("|")) value = filter(value);
        uint32_t block = body_until(end);
        m_program.nodes[captured].kids = {block};
        return value;
    }

    Kids parameters()
    {
        Kids kids;
        bool has_default = false;
        expect("(");
        until(")", [&] {
            uint32_t parameter = name();
            bool optional = accept("=");
            if (has_default && !optional) wrong("a default");
            has_default = optional;
            kids.push_back(add(Op::parameter, optional ? Kids{expression()} : Kids{}, parameter));
        });
        return kids;
    }

    uint32_t macro_body(Kids kids, const char* end, uint32_t macro_name)
    {
        int implicit = m_implicit, loops = m_loops;
        m_implicit = m_loops = 0;
        kids.push_back(body_until(end));
        uint32_t node = add(Op::macro, kids, macro_name, m_implicit);
        m_implicit = implicit;
        m_loops = loops;
        return node;
    }

    uint32_t macro()
    {
        uint32_t macro_name = name();
        return macro_body(parameters(), "endmacro", macro_name);
    }

    uint32_t call_block()
    {
        Kids kids = is("(") ? parameters() : Kids{};
        uint32_t call = expression();
        if (m_program.nodes[call].op != Op::call) wrong("a call");
        uint32_t caller = macro_body(kids, "endcall", intern("caller"));
        return add(Op::call_block, {caller, call});
    }

    uint32_t with()
    {
        Kids kids;
        while (!is("%}")) {
            kids.push_back(target(false));
            expect("=");
            kids.push_back(expression());
            if (!accept(",")) break;
        }
        kids.push_back(body_until("endwith"));
        return add(Op::with, kids);
    }

    uint32_t generation()
    {
        int loops = m_loops;
        m_loops = 0;
        uint32_t node = add(Op::print, {add(Op::capture, {body_until("endgeneration")})});
        m_loops = loops;
        return node;
    }

    uint32_t jump()
    {
        if (!m_loops) wrong("a statement outside of loops");
        return add(m_tokens[m_at++].text == "break" ? Op::break_loop : Op::continue_loop);
    }

    uint32_t named_block()
    {
        name();
        return body_until("endblock");
    }

    uint32_t print()
    {
        Kids kids;
        do kids.push_back(add(Op::print, {expression()}));
        while (accept(","));
        return add(Op::block, kids);
    }

    vector<Token> m_tokens;
    size_t m_at = 0;
    Program m_program;
    int m_depth = 0;
    int m_loops = 0;    // around the current statement, in the same macro
    int m_implicit = 0; // what the current macro reads
};

} // namespace

Program parse_program(string_view source)
{
    return Parser(source).run();
}

} // namespace ks::jinja
