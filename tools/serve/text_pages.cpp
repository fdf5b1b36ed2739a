// The endpoints that need the tokenizer or the template alone.
#include "tools/serve/answers.h"
#include "tools/serve/router.h"

namespace ks::serve
{

using jinja::Value;

HttpError Router::tokenize(const std::shared_ptr<Exchange>& exchange)
{
    const Tokenizer& tokenizer = std::atomic_load(&m_engine)->model().tokenizer();
    Value body;
    if (HttpError error = parse_body(exchange->body, &body)) return error;
    Fields fields(body);
    std::string content;
    EncodeOptions options;
    options.add_bos = false;
    options.parse_special = true;
    bool pieces = false;
    const bool has_content = fields.text("content", &content);
    fields.boolean("add_special", &options.add_bos);
    fields.boolean("parse_special", &options.parse_special);
    fields.boolean("with_pieces", &pieces);
    if (fields.error()) return fields.error();
    std::vector<uint32_t> ids;
    if (has_content) tokenizer.encode(content, options, ids);
    if (!pieces) {
        exchange->answer(200, Json::object({{"tokens", Json(ids)}}).text());
        return {};
    }
    Json list = Json::array();
    for (uint32_t id : ids) {
        const std::string text = token_text(tokenizer, id);
        std::vector<uint32_t> bytes;
        for (char c : text) bytes.push_back(uint8_t(c));
        list.push(Json::object({{"id", id}, {"piece", is_utf8(text) ? Json(text) : Json(bytes)}}));
    }
    exchange->answer(200, Json::object({{"tokens", list}}).text());
    return {};
}

HttpError Router::detokenize(const std::shared_ptr<Exchange>& exchange)
{
    const Model& model = std::atomic_load(&m_engine)->model();
    Value body;
    if (HttpError error = parse_body(exchange->body, &body)) return error;
    Fields fields(body);
    const Value* tokens = fields.list("tokens");
    if (fields.error()) return fields.error();
    std::vector<uint32_t> ids;
    if (tokens)
        for (const Value& id : tokens->items()) {
            if (!id.is(jinja::kInteger) || id.integer < 0 || id.integer >= model.config().n_vocab)
                return bad_field("tokens", "tokens: expected token ids below " +
                                               std::to_string(model.config().n_vocab) + ", found " +
                                               describe(id));
            ids.push_back(uint32_t(id.integer));
        }
    const std::string text = model.tokenizer().decode(ids.data(), ids.size(), true);
    exchange->answer(200, Json::object({{"content", text}}).text());
    return {};
}

// The prompt of a conversation, whose request one of the endpoints reads.
HttpError Router::render(const std::shared_ptr<Exchange>& exchange, MakeTask make, Task* task,
                         jinja::Text* out)
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    Value body;
    if (HttpError error = parse_body(exchange->body, &body)) return error;
    Request request{m_info, engine->model(), exchange, Fields(body)};
    if (HttpError error = make(request, task)) return error;
    complete_chat(m_info, task);
    const Conversation* conversation = engine->seats().chat_template();
    if (!conversation) return not_supported(exchange);
    Result<jinja::Text> prompt = conversation->format().render(task->chat);
    if (!prompt.ok()) return bad_field("messages", prompt.status().message());
    *out = std::move(prompt.value());
    return {};
}

HttpError Router::apply_template(const std::shared_ptr<Exchange>& exchange)
{
    Task task;
    jinja::Text prompt;
    if (HttpError error = render(exchange, chat_task, &task, &prompt)) return error;
    exchange->answer(200, Json::object({{"prompt", prompt.bytes + task.chat.answer_begin}}).text());
    return {};
}

// The number of tokens of a prompt, in the form of the endpoint that the path names.
HttpError Router::input_tokens(const std::shared_ptr<Exchange>& exchange)
{
    const std::string path = without_v1(exchange->path());
    const auto make = path[1] == 'm' ? messages_task : path[1] == 'r' ? responses_task : chat_task;
    Task task;
    jinja::Text prompt;
    if (HttpError error = render(exchange, make, &task, &prompt)) {
        if (make != messages_task) return error;
        exchange->fail(error, anthropic_error(error));
        return {};
    }
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    std::vector<uint32_t> ids;
    std::vector<EncodedPart> parts;
    engine->model().tokenizer().encode(
        AuthoredText{prompt.bytes, prompt.authors,
                     engine->seats().chat_template()->format().markup(), true},
        ids, parts);
    exchange->answer(200, Json::object({{"input_tokens", uint64_t(ids.size())}}).text());
    return {};
}

} // namespace ks::serve
