// Messages of a request, as templates take them.
#include "tools/serve/requests.h"

#include "runtime/chat/json.h"

#include <algorithm>

namespace ks::serve
{

using jinja::Value;

std::string message_text(Request& request, const std::string& path, const Value& content)
{
    if (content.is(jinja::kText)) return content.str();
    if (content.is(jinja::kNone)) return "";
    if (!content.is(jinja::kList)) {
        request.fields.fail(bad_field(path, path +
                                                ": expected a string or an array of parts, "
                                                "found " +
                                                describe(content)));
        return "";
    }
    std::string text;
    for (size_t i = 0; i < content.items().size(); i++) {
        const Value& part = content.items()[i];
        const Value *type = part.find("type"), *value = part.find("text");
        const std::string kind = type && type->is(jinja::kText) ? type->str() : "text";
        const std::string at = path + "[" + std::to_string(i) + "]";
        if (kind == "refusal") continue;
        if (kind != "text" && kind != "input_text" && kind != "output_text")
            request.fields.fail(
                unsupported_field(at, at + ": parts of the type " + printable(kind, 40) +
                                          " (images, audio, files) are not supported, only text"));
        else if (!value || !value->is(jinja::kText))
            request.fields.fail(bad_field(at, at + ".text: expected a string"));
        else
            text += value->str();
    }
    return text;
}

static std::string role_of(Request& request, const std::string& path, const Value& message)
{
    const Value* role = message.find("role");
    const std::string name = role && role->is(jinja::kText) ? role->str() : "";
    for (const char* known : {"system", "developer", "user", "assistant", "tool", "function"})
        if (name == known)
            return name == "developer" ? "system" : name == "function" ? "tool" : name;
    request.fields.fail(bad_field(path + ".role", path +
                                                      ".role: expected system, user, assistant "
                                                      "or tool, found " +
                                                      (role ? describe(*role) : "nothing")));
    return "user";
}

// Calls whose arguments are objects, as templates take them; clients send them as JSON texts.
static Value read_calls(const Value& calls)
{
    std::vector<Value> out;
    for (const Value& call : calls.items()) {
        const Value* function = call.find("function");
        const Value* arguments = function ? function->find("arguments") : nullptr;
        out.push_back(call);
        if (!arguments || !arguments->is(jinja::kText)) continue;
        const std::string& text = arguments->str();
        const Result<Value> parsed = jinja::parse_json(text.empty() ? "{}" : text);
        if (parsed.ok() && parsed.value().is(jinja::kDict))
            out.back() =
                chat_call(text_field(call, "id"), text_field(*function, "name"), parsed.value());
    }
    return Value(std::move(out));
}

// One message with its content as a text.
static Value read_message(Request& request, const std::string& path, const Value& message)
{
    if (!message.is(jinja::kDict)) {
        request.fields.fail(bad_field(path, path + ": expected an object"));
        return chat_message("user", "");
    }
    const std::string role = role_of(request, path, message);
    const Value *content = message.find("content"), *calls = message.find("tool_calls");
    if (!content && role != "assistant")
        request.fields.fail(bad_field(path + ".content", path + ".content: expected a string"));
    Value out = chat_message(role, content ? message_text(request, path + ".content", *content)
                                           : std::string());
    for (const char* name : {"reasoning_content", "tool_call_id", "name"})
        if (const Value* value = message.find(name); value && value->is(jinja::kText))
            out.dict_object().set(name, *value);
    if (calls && calls->is(jinja::kList) && !calls->items().empty())
        out.dict_object().set("tool_calls", read_calls(*calls));
    return out;
}

static bool has_role(const Value& message, const char* role)
{
    return message.find("role")->str() == role;
}

// Joins the first system messages. Templates know no later ones: they go to the next message of the
// user.
Value normal_messages(Request& request, const std::string& path, const std::vector<Value>& messages,
                      Task* task)
{
    std::vector<Value> out;
    std::string late;
    for (size_t i = 0; i < messages.size(); i++) {
        Value message = read_message(request, path + "[" + std::to_string(i) + "]", messages[i]);
        const std::string& text = message.find("content")->str();
        if (has_role(message, "system") && out.size() == 1 && has_role(out[0], "system")) {
            out[0] = chat_message("system", out[0].find("content")->str() + "\n\n" + text);
            continue;
        }
        if (has_role(message, "system") && !out.empty()) {
            late += text + "\n\n";
            continue;
        }
        if (has_role(message, "user") && !late.empty()) {
            message.dict_object().set("content", late + text);
            late.clear();
        }
        out.push_back(std::move(message));
    }
    if (!late.empty()) out.push_back(chat_message("user", late.substr(0, late.size() - 2)));
    const bool continues = !out.empty() && has_role(out.back(), "assistant");
    if (continues && out.size() > 1 && has_role(out[out.size() - 2], "assistant"))
        request.fields.fail(bad_field(path, path + ": the last two messages are of the assistant; "
                                                   "at most one can be continued"));
    if (continues && !out.back().find("tool_calls")) { // the answer begins with it
        task->chat.answer_begin = out.back().find("content")->str();
        out.pop_back();
    }
    return Value(std::move(out));
}

Value read_messages(Request& request, const char* name, Task* task)
{
    const Value* list = request.fields.list(name);
    if (!list || list->items().empty()) {
        request.fields.fail(
            bad_field(name, std::string(name) + ": expected a list with at least one message"));
        return Value(std::vector<Value>{});
    }
    Value messages = normal_messages(request, name, list->items(), task);
    if (!request.fields.error() && messages.items().empty())
        request.fields.fail(bad_field(name, std::string(name) + ": there is nothing to answer"));
    return messages;
}

} // namespace ks::serve
