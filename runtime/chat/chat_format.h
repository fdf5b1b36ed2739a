// How a model talks: its chat template and what follows from it.
#pragma once

#include "runtime/chat/answer.h"
#include "runtime/chat/jinja.h"
#include "runtime/text/tokenizer.h"

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

// A conversation as programs send it: messages with roles, tool definitions or none, and variables
// of the template.
struct ChatRequest {
    jinja::Value messages = jinja::Value::none();
    jinja::Value tools = jinja::Value::none();
    jinja::Value options = jinja::Value::dict();
    std::tm now = {};         // local time
    std::string answer_begin; // the answer begins with this text, which the model goes on with
};

std::tm local_time(); // now
// bos_token and eos_token, as the template's words.
jinja::Value template_tokens(const Tokenizer& tokenizer);
// Reads {"messages": [...], "tools": [...], "options": {...}}.
Result<ChatRequest> read_chat_request(std::string_view json);

class ChatFormat
{
public:
    // Fails with the line of the template and what is wrong. The tokenizer must outlive the format.
    // heap_bytes: of one rendering; beyond them it fails with no_fit.
    static Result<ChatFormat> open(std::string_view template_text, const Tokenizer& tokenizer,
                                   uint64_t heap_bytes = 64 << 20);

    // The prompt for the next answer: with add_generation_prompt, unless the options deny it.
    Result<jinja::Text> render(const ChatRequest& request) const;
    // The prompt for an answer to `user` in a conversation whose past is unknown. The unknown past
    // is an answer 'a'; what matters is the text behind it.
    Result<jinja::Text> render_turn(std::string_view user, const std::tm& now) const;
    // What the template writes: see AuthoredText.
    std::string_view markup() const { return m_text; }
    const AnswerFormat& answer_format() const { return *m_answer_format; }
    // The template ends an answer with one of these tokens,
    const std::vector<uint32_t>& end_tokens() const { return m_end_tokens; }
    // or with a text that the vocabulary lacks as a token; "": none.
    const std::string& stop_text() const { return m_stop_text; }

private:
    void find_end(const Tokenizer& tokenizer);

    jinja::Template m_template;
    const AnswerFormat* m_answer_format = nullptr;
    std::string m_text;
    jinja::Value m_tokens = jinja::Value::dict();
    uint64_t m_heap_bytes = 0;
    std::vector<uint32_t> m_end_tokens;
    std::string m_stop_text;
};

// Fails unless the value is a list of messages with known roles.
Status check_messages(const jinja::Value& messages);
Status check_tools(const jinja::Value& tools); // a list of objects
jinja::Value chat_message(std::string_view role, std::string_view content);

// Templates for files without one.
struct NamedTemplate {
    const char *name, *text;
};
const NamedTemplate* find_named_template(std::string_view name); // null: no such template
std::string template_names();                                    // "chatml, gemma, ..."

} // namespace ks
