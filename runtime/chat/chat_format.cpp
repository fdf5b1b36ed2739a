#include "runtime/chat/chat_format.h"

#include "runtime/chat/chat_history.h"
#include "runtime/chat/json.h"

#include <algorithm>
#include <iterator>

namespace ks
{

using jinja::Value;

Value chat_message(std::string_view role, std::string_view content)
{
    Value message = Value::dict();
    message.dict_object().set("role", role);
    message.dict_object().set("content", content);
    return message;
}

std::tm local_time()
{
    const std::time_t now = std::time(nullptr);
    std::tm out = {};
    localtime_r(&now, &out);
    return out;
}

Value template_tokens(const Tokenizer& tokenizer)
{
    Value tokens = Value::dict();
    auto add = [&](const char* name, int64_t id) {
        if (id >= 0) tokens.dict_object().set(name, tokenizer.text(uint32_t(id)));
    };
    add("bos_token", tokenizer.bos());
    add("eos_token", tokenizer.eos());
    return tokens;
}

// Templates join the role with their markup, so it must be one of these.
static const char* const kRoles[] = {"system",   "developer", "user",        "assistant", "tool",
                                     "function", "ipython",   "observation", "root"};

Status check_messages(const Value& messages)
{
    if (!messages.is(jinja::Kind::list))
        return fail(Code::usage, "messages: expected a list of messages with role and content");
    for (const Value& message : messages.list().items) {
        const Value* role = message.find("role");
        if (!role || !role->is(jinja::Kind::text))
            return fail(Code::usage, "messages: a message has no role; expected system, developer, "
                                     "user, assistant or tool");
        const std::string& name = role->text().bytes;
        if (std::none_of(std::begin(kRoles), std::end(kRoles),
                         [&](const char* known) { return name == known; }))
            return fail(Code::usage,
                        "messages: expected the role system, developer, user, assistant or tool, "
                        "found '%s'",
                        printable(name).c_str());
    }
    return {};
}

Status check_tools(const Value& tools)
{
    const auto is_object = [](const Value& tool) { return tool.is(jinja::kDict); };
    if (tools.is(jinja::kList) &&
        std::all_of(tools.items().begin(), tools.items().end(), is_object))
        return {};
    return Status(Code::usage, "tools: expected a list of tool definitions");
}

Result<ChatRequest> read_chat_request(std::string_view json)
{
    Result<Value> read = jinja::parse_json(json);
    if (!read.ok()) return read.status();
    ChatRequest request;
    auto take = [&](const char* key, Value& to, jinja::Kind kind, const char* expected) {
        const Value* value = read.value().find(key);
        if (!value || value->is(jinja::Kind::none)) return Status();
        if (!value->is(kind)) return fail(Code::usage, "%s: expected %s", key, expected);
        to = *value;
        return Status();
    };
    KS_TRY(take("messages", request.messages, jinja::Kind::list, "a list of messages"));
    KS_TRY(take("tools", request.tools, jinja::Kind::list, "a list of tool definitions"));
    if (!request.tools.is(jinja::kNone)) KS_TRY(check_tools(request.tools));
    KS_TRY(take("options", request.options, jinja::Kind::dict, "an object"));
    KS_TRY(check_messages(request.messages));
    return request;
}

Result<ChatFormat> ChatFormat::open(std::string_view template_text, const Tokenizer& tokenizer,
                                    uint64_t heap_bytes)
{
    ChatFormat format;
    Result<jinja::Template> parsed = jinja::Template::parse(template_text);
    if (!parsed.ok()) return parsed.status();
    format.m_template = std::move(parsed.value());
    format.m_text = std::string(template_text);
    format.m_heap_bytes = heap_bytes;
    format.m_answer_format = &find_answer_format(template_text);
    format.m_tokens = template_tokens(tokenizer);
    format.find_end(tokenizer);
    return format;
}

Result<jinja::Text> ChatFormat::render(const ChatRequest& request) const
{
    KS_TRY(check_messages(request.messages));
    jinja::Request rendering;
    rendering.messages = request.messages;
    rendering.tools = request.tools;
    rendering.options = Value::dict();
    rendering.options.dict_object().set("add_generation_prompt", true);
    if (request.options.is(jinja::Kind::dict))
        for (const auto& option : request.options.dict_object().items)
            rendering.options.dict_object().set(option.first, option.second);
    rendering.tokens = m_tokens;
    rendering.now = request.now;
    rendering.budget.bytes = int64_t(m_heap_bytes) / jinja::kHeapShare;
    rendering.extended = rendering.normalized = true;
    jinja::Text out;
    KS_TRY(m_template.render(rendering, &out));
    return out;
}

Result<jinja::Text> ChatFormat::render_turn(std::string_view user, const std::tm& now) const
{
    ChatRequest request;
    request.messages = Value(std::vector<Value>{
        chat_message("user", "q"), chat_message("assistant", "a"), chat_message("user", user)});
    request.now = now;
    return render(request);
}

// The end of an answer, and of one that calls a tool: the first token behind it that is no marker
// of the format.
void ChatFormat::find_end(const Tokenizer& tokenizer)
{
    Result<Value> calls = jinja::parse_json(
        R"([{"type": "function", "id": "call00000", "function": {"name": "f", "arguments": {}}}])");
    Value call = chat_message("assistant", ""), result = chat_message("tool", "r");
    call.dict_object().set("tool_calls", calls.value());
    result.dict_object().set("tool_call_id", "call00000");
    ChatRequest called;
    called.messages = Value(std::vector<Value>{chat_message("user", "q"), call, result});
    const Result<jinja::Text> prompts[] = {render_turn("q", {}), render(called)};
    for (const Result<jinja::Text>& prompt : prompts) {
        if (!prompt.ok()) continue; // a template for other conversations
        std::string_view text = text_behind_answer(prompt.value());
        text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
        std::vector<uint32_t> ids;
        std::vector<EncodedPart> parts;
        tokenizer.encode(
            AuthoredText{text, std::string(text.size(), kTemplateAuthor), m_text, true}, ids,
            parts);
        bool found = false, ended = false;
        for (size_t i = 0; i < parts.size() && !ended; i++) {
            const uint32_t id = ids[parts[i].tokens_end - 1];
            const bool is_end = parts[i].special && !m_answer_format->has(tokenizer.text(id));
            if (is_end) m_end_tokens.push_back(id);
            ended = is_end || (found && !parts[i].special);
            found |= parts[i].special;
        }
        if (&prompt != &prompts[0] || found || text.empty()) continue;
        const size_t end = text[0] == '<'   ? text.find('>')
                           : text[0] == '[' ? text.find(']')
                                            : text.npos;
        if (end != text.npos && !m_answer_format->has(text.substr(0, end + 1)))
            m_stop_text = text.substr(0, end + 1);
    }
}

} // namespace ks
