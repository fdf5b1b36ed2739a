// Prompts of text completions.
#include "tools/serve/requests.h"

#include <algorithm>

namespace ks::serve
{

using jinja::Value;

static bool is_text(const Value& value)
{
    return value.is(jinja::kText);
}

static bool is_list(const Value& value)
{
    return value.is(jinja::kList);
}

// A text, alone or as {"prompt_string": TEXT}; null: it is none.
static const Value* text_in(const Value& value)
{
    const Value* text = value.find("multimodal_data") ? nullptr : value.find("prompt_string");
    return is_text(value) ? &value : text && is_text(*text) ? text : nullptr;
}

// An array of arrays, or of several strings and nothing else.
static bool is_several(const std::vector<Value>& items)
{
    return items.size() > 1 && (std::any_of(items.begin(), items.end(), is_list) ||
                                std::all_of(items.begin(), items.end(), is_text));
}

void read_prompt(Request& request, Task* task)
{
    Fields& fields = request.fields;
    const uint32_t n_vocab = request.model.config().n_vocab;
    const auto wrong = [&](const std::string& path, const std::string& found) {
        fields.fail(bad_field("prompt", path +
                                            ": expected a string or an array of token ids below " +
                                            std::to_string(n_vocab) + ", found " + found));
    };
    const Value* prompt = fields.find("prompt");
    if (!prompt) return wrong("prompt", "nothing");
    if (!text_in(*prompt) && !is_list(*prompt)) return wrong("prompt", describe(*prompt));
    std::vector<Value> items = {*prompt};
    if (is_list(items[0])) items = prompt->items();
    if (is_several(items))
        return fields.fail(unsupported_field(
            "prompt", "prompt: one prompt is answered by a request, not " +
                          std::to_string(items.size()) + "; send a request for each"));
    if (items.size() == 1 && is_list(items[0])) {
        const Value only = items[0];
        items = only.items();
    }
    // Encoding takes up to 100 bytes for each byte of a word.
    constexpr size_t kBytesOfToken = 16;
    const size_t most = kBytesOfToken * std::max(request.model.plan().context, 4096u);
    size_t n_bytes = 0;
    for (const Value& item : items) n_bytes += is_text(item) ? item.str().size() : 0;
    if (n_bytes > most) {
        HttpError error = {400, "exceed_context_size_error", "context_length_exceeded",
                           "the request (" + std::to_string(n_bytes) +
                               " bytes) exceeds the available context size (at most " +
                               std::to_string(most) + " bytes)",
                           "prompt"};
        error.n_ctx = request.model.plan().context;
        error.n_prompt_tokens = n_bytes / 4;
        return fields.fail(error);
    }
    EncodeOptions options;
    options.parse_special = true;
    for (size_t i = 0; i < items.size(); i++) {
        const Value& item = items[i];
        if (const Value* text = text_in(item)) {
            options.add_bos = i == 0;
            request.model.tokenizer().encode(text->str(), options, task->ids);
        } else if (item.is(jinja::kInteger) && item.integer >= 0 && item.integer < n_vocab) {
            task->ids.push_back(uint32_t(item.integer));
        } else {
            return wrong("prompt[" + std::to_string(i) + "]", describe(item));
        }
    }
    if (task->ids.empty())
        fields.fail(bad_field("prompt", "prompt: it has no tokens, expected at least 1"));
}

} // namespace ks::serve
