// Chat templates: a Jinja interpreter that renders what jinja2 renders in the configuration of
// transformers (sandbox, trim_blocks, lstrip_blocks, loop controls, generation blocks).
#pragma once

#include "runtime/chat/value.h"

#include <ctime>

namespace ks::jinja
{

constexpr uint64_t kMaxTemplateBytes = 1 << 20;

struct Program; // a parsed template

// What a template reads. Values of parse_json(); each text gets the author of its place.
struct Request {
    Value messages = Value::none();
    Value tools = Value::none();
    Value options = Value::dict(); // variables by name; they never replace the others
    Value tokens = Value::dict();  // bos_token, eos_token...: texts by the template
    std::tm now = {};              // for strftime_now
    // Lists and dicts that the template made may change, and the filter from_json exists. Some
    // templates need it that transformers refuses.
    bool extended = false;
    // As transformers 5 does: drops keys of messages whose value is null, and copies the reasoning
    // to reasoning_content and thinking.
    bool normalized = false;
    uint64_t max_bytes = kMaxTextBytes; // of the prompt
    Budget budget;
};

// A template is parsed once and rendered often, by any number of threads.
class Template
{
public:
    // Fails with the line and what is wrong.
    static Result<Template> parse(std::string_view source);
    // On success the prompt with the author of each byte. An error is one sentence; *raised: it is
    // the template's own, by raise_exception.
    Status render(const Request& request, Text* out, bool* raised = nullptr) const;

private:
    std::shared_ptr<const Program> m_program;
};

} // namespace ks::jinja
