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
    std::string piece(tokenizer.max_piece_bytes(), '\0');
    for (uint32_t id : ids) {
        const std::string_view text(piece.data(), tokenizer.piece(id, &piece[0], true));
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

HttpError Router::apply_template(const std::shared_ptr<Exchange>& exchange)
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    Value body;
    if (HttpError error = parse_body(exchange->body, &body)) return error;
    Request request{m_info, engine->model(), exchange, Fields(body)};
    Task task;
    if (HttpError error = chat_task(request, &task)) return error;
    show_tools(m_info, &task);
    add_template_defaults(&task);
    const Conversation* conversation = engine->seats().chat_template();
    if (!conversation) return not_supported(exchange);
    Result<jinja::Text> prompt = conversation->format().render(task.chat);
    if (!prompt.ok()) return bad_field("messages", prompt.status().message());
    exchange->answer(
        200, Json::object({{"prompt", prompt.value().bytes + task.chat.answer_begin}}).text());
    return {};
}

// The number of tokens of a prompt, in the form of the endpoint that the path names.
HttpError Router::input_tokens(const std::shared_ptr<Exchange>& exchange)
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    Value body;
    if (HttpError error = parse_body(exchange->body, &body)) return error;
    Request request{m_info, engine->model(), exchange, Fields(body)};
    const std::string path = without_v1(exchange->path());
    Task task;
    const auto make = path[1] == 'm' ? messages_task : path[1] == 'r' ? responses_task : chat_task;
    if (HttpError error = make(request, &task)) {
        if (make != messages_task) return error;
        exchange->fail(error, anthropic_error(error));
        return {};
    }
    show_tools(m_info, &task);
    add_template_defaults(&task);
    const Conversation* conversation = engine->seats().chat_template();
    if (!conversation) return not_supported(exchange);
    Result<jinja::Text> prompt = conversation->format().render(task.chat);
    if (!prompt.ok()) return bad_field("messages", prompt.status().message());
    std::vector<uint32_t> ids;
    std::vector<EncodedPart> parts;
    engine->model().tokenizer().encode(AuthoredText{prompt.value().bytes, prompt.value().authors,
                                                    conversation->format().markup(), true},
                                       ids, parts);
    exchange->answer(200, Json::object({{"input_tokens", uint64_t(ids.size())}}).text());
    return {};
}

} // namespace ks::serve
