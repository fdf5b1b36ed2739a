#include "tools/serve/chain.h"

#include "tools/serve/requests.h"

#include "runtime/base/hash.h"
#include "runtime/chat/chat_history.h"
#include "runtime/chat/json.h"

#include <algorithm>

namespace ks::serve
{

using jinja::Value;

std::string ChainHash::text() const
{
    char out[33];
    snprintf(out, sizeof out, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
    return out;
}

static ChainHash extended(ChainHash hash, std::string_view text)
{
    const uint64_t bytes = text.size();
    hash.a = fnv_bytes(text.data(), text.size(), fnv_bytes(&bytes, sizeof bytes, hash.a));
    // The second hash has another begin and sees the first.
    hash.b = fnv_bytes(text.data(), text.size(), fnv_bytes(&hash.a, sizeof hash.a, ~hash.b));
    return hash;
}

static std::string json_text(const Value& value)
{
    jinja::WriteStyle style;
    style.sorted = true;
    return jinja::write(value, style);
}

static std::string call_text(const Value& call)
{
    const Value* function = call.find("function");
    const Value& of = function ? *function : call;
    const Value *name = of.find("name"), *arguments = of.find("arguments");
    std::string text = name && name->is(jinja::kText) ? name->str() : "";
    if (!arguments) return text;
    if (!arguments->is(jinja::kText)) return text + json_text(*arguments);
    const Result<Value> parsed = jinja::parse_json(arguments->str());
    return text + (parsed.ok() ? json_text(parsed.value()) : arguments->str());
}

ChainHash next_hash(const ChainHash& last, const Value& message)
{
    const Value *role = message.find("role"), *content = message.find("content"),
                *calls = message.find("tool_calls");
    ChainHash hash = extended(last, role && role->is(jinja::kText) ? role->str() : "");
    if (content && content->is(jinja::kText))
        hash = extended(hash, trimmed(content->str()));
    else
        hash = extended(hash, "");
    if (calls && calls->is(jinja::kList))
        for (const Value& call : calls->items()) hash = extended(hash, call_text(call));
    return hash;
}

Chain chain_of(const ChatRequest& request, uint64_t seed)
{
    ChainHash hash = {seed, ~seed};
    if (request.tools.is(jinja::kList)) hash = extended(hash, json_text(request.tools));
    for (const auto& [name, value] : request.options.members())
        if (std::none_of(std::begin(kDateNames), std::end(kDateNames),
                         [&name = name](const char* date) { return name.str() == date; }))
            hash = extended(extended(hash, name.str()), json_text(value));
    Chain chain;
    for (const Value& message : request.messages.items())
        chain.push_back(hash = next_hash(hash, message));
    return chain;
}

size_t n_equal(const Chain& a, const Chain& b)
{
    size_t n = 0;
    while (n < a.size() && n < b.size() && a[n] == b[n]) n++;
    return n;
}

} // namespace ks::serve
