// The interface, and what a template sees of a request.
#include "runtime/chat/jinja.h"

#include "runtime/chat/interpreter.h"

namespace ks::jinja
{
namespace
{

char author_of_role(string_view role)
{
    static const struct {
        const char* roles;
        char author;
    } kRoles[] = {
        {" system developer root ", kBySystem},
        {" user ", kByUser},
        {" assistant model ", kByAssistant},
        {" tool function observation ipython ", kByTool},
    };
    for (auto [roles, author] : kRoles)
        if (string_view(roles).find(" " + string(role) + " ") != kAll) return author;
    return kByOther;
}

// A known role is the template's word, as are the keys.
Value with_authors(const Value& message)
{
    const Value* role = message.find("role");
    char author = role && role->is(kText) ? author_of_role(role->str()) : kByOther;
    if (!message.is(kDict)) return by_author(message, author);
    Value out = Value::dict();
    for (const auto& [key, value] : message.members())
        out.dict_object().set(
            key, by_author(value, &value == role && author != kByOther ? kByTemplate : author));
    out.dict_object().fixed = true;
    return out;
}

Value normalized(const Value& message)
{
    if (!message.is(kDict)) return message;
    Value out = Value::dict(), reasoning;
    for (const char* key : {"reasoning", "thinking", "reasoning_content"})
        if (const Value* found = message.find(key); found && !found->is(kNone)) reasoning = *found;
    if (!reasoning.is(kUndefined)) out.dict_object().set("thinking", reasoning);
    for (const auto& [key, value] : message.members())
        if (!value.is(kNone)) out.dict_object().set(key, value);
    if (!reasoning.is(kUndefined)) out.dict_object().set("reasoning_content", reasoning);
    return out;
}

// Values that this thread makes count against a budget while it lives.
struct Counting {
    explicit Counting(Budget* budget) { std::swap(Budget::current, before = budget); }
    ~Counting() { Budget::current = before; }
    Budget* before;
};

} // namespace

Interpreter::Interpreter(const Program& program, const Request& asked)
    : request(asked), m_program(program), m_scope(make_shared<Scope>())
{
    auto define = [&](const string& name, const Value& value) {
        auto found = program.name_index.find(name);
        if (found != program.name_index.end()) m_scope->variables[found->second] = value;
    };
    define("documents", Value::none());
    define("add_generation_prompt", false);
    for (const auto& [name, value] : request.options.members())
        define(name.str(), by_author(value, kByOptions));
    for (const auto& [name, value] : request.tokens.members()) define(name.str(), value);
    define("tools", by_author(request.tools, kByTools));
    Value messages = by_author(request.messages, kByOther);
    if (messages.is(kList))
        for (size_t i = 0; i < messages.items().size(); i++) {
            const Value& message = request.messages.items()[i];
            messages.items()[i] = with_authors(request.normalized ? normalized(message) : message);
        }
    define("messages", messages);
    m_scope = inner_scope();
}

Result<Template> Template::parse(string_view source)
{
    if (source.size() > kMaxTemplateBytes)
        return fail(Code::invalid, "the chat template has %zu bytes, at most %llu are read",
                    source.size(), (unsigned long long)kMaxTemplateBytes);
    for (size_t at = 0; at < source.size(); at += next_char(source, at).bytes)
        if (next_char(source, at).code < 0)
            return fail(Code::invalid, "the chat template is not UTF-8 at byte %zu", at);
    try {
        Template out;
        out.m_program = make_shared<const Program>(parse_program(source));
        return out;
    } catch (const Failure& failure) {
        return Status(Code::invalid, "the chat template is wrong in " + failure.message);
    }
}

Status Template::render(const Request& request, Text* out, bool* raised) const
{
    Budget budget = request.budget;
    const Counting counting(&budget);
    if (raised) *raised = false;
    try {
        *out = Interpreter(*m_program, request).run();
        return {};
    } catch (const Failure& failure) {
        if (raised) *raised = failure.raised;
        const char* kind =
            failure.raised ? "the chat template raised: " : "the chat template failed in ";
        return Status(failure.code, kind + failure.message);
    }
}

} // namespace ks::jinja
