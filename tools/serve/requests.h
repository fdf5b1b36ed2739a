// Reads what the requests of several endpoints have in common.
#pragma once

#include "tools/serve/engine.h"
#include "tools/serve/fields.h"

namespace ks::serve
{

// What the endpoints know of the server.
struct ServerInfo {
    std::string model_id, model_path, fingerprint, chat_template;
    std::vector<std::string> aliases;
    int64_t created = 0; // the time of the model file
    uint64_t file_bytes = 0, n_parameters = 0;
    bool strict_model = false;
    uint64_t most_answer = ~0ull; // tokens, where a request names no number
    SamplerOptions sampling;      // defaults
    bool has_seed = false;
    uint32_t n_sessions = 1;
};

struct Request {
    const ServerInfo& info;
    const Model& model;
    std::shared_ptr<Exchange> exchange;
    Fields fields;
};

// Sampling, stop strings, seed, limits and biases. `dialect`: the names of the fields.
enum class Dialect { openai, native, anthropic, responses };
void read_sampling(Request& request, Dialect dialect, Task* task);
// The tokens that have these biases: {"15": -100}, [[15, -1], ["text", false]].
// openai: ids alone.
void read_biases(Request& request, const char* name, bool openai, SamplerOptions* sampling);
// response_format, grammar and json_schema.
void read_format(Request& request, Task* task);
void set_schema(Request& request, const std::string& path, const jinja::Value& schema, Task* task);
jinja::Value object_schema(); // of any object
// Tools in the form of chat/completions, and which of them may be called.
void read_tools(Request& request, Task* task);
void set_tools(Request& request, const jinja::Value& tools, const jinja::Value& choice, Task* task);
// What a chat needs beside the fields of its request. Where the template knows no tools, the
// messages describe them, the calls and the results. Templates expect variables of servers: today's
// date, and that the model may think.
void complete_chat(const ServerInfo& info, Task* task);
void show_tools(Task* task);
constexpr const char* kDateNames[] = {"date_string", "datetime"};
jinja::Value plain_message(const jinja::Value& message); // of such a conversation
// Messages in the form of chat/completions, as templates take them.
jinja::Value read_messages(Request& request, const char* name, Task* task);
jinja::Value normal_messages(Request& request, const std::string& path,
                             const std::vector<jinja::Value>& messages, Task* task);
// The text of a message: a string, or parts of the type text.
std::string message_text(Request& request, const std::string& path, const jinja::Value& content);
std::string text_field(const jinja::Value& object, const char* name); // "": there is none
// A call, and a function that may be called, in the form of chat/completions. A null is left out.
jinja::Value chat_call(std::string_view id, std::string_view name, const jinja::Value& arguments);
jinja::Value chat_tool(const jinja::Value& name, const jinja::Value* description,
                       const jinja::Value* parameters);
// Adds a part of an answer to the last message, if that is one of the assistant.
void add_answer(std::vector<jinja::Value>* messages, const std::string& reasoning,
                const std::string& text, const std::vector<jinja::Value>& calls);
void read_template_options(Request& request, Task* task);
// Refuses more than one answer to a request.
void refuse_several(Fields& fields, const char* name);
bool read_stream(Fields& fields, Task* task); // whether the answer is a stream
bool wants_usage(Fields& fields);             // at the end of a stream
// The prompt of a text completion: a string, token ids, or both in an array. Special tokens are
// found in strings.
void read_prompt(Request& request, Task* task);
// Instructions, input and tools in the form of /v1/responses.
void read_response_input(Request& request, Task* task);
// Names the fields that were not understood in a header.
void name_ignored(Request& request);
void check_model_name(Request& request, const std::string& name);

std::string random_id(const char* begin); // and 24 letters and digits
std::string token_text(const Tokenizer& tokenizer,
                       uint32_t id); // its bytes, also of control tokens

} // namespace ks::serve
