// render: writes the prompt that a chat template makes of a conversation.
#include "tools/json.h"
#include "tools/option_groups.h"
#include "tools/program.h"

#include "runtime/chat/chat_format.h"
#include "runtime/chat/json.h"
#include "runtime/model/gguf.h"

#include <ctime>
#include <iostream>

namespace ks
{

struct RenderOptions {
    ModelOptions session;
    bool batch = false;
    bool authors = false;
    bool tokens = false;

    void add_to(OptionTable& table)
    {
        add_model(table, &session);
        table.add_flag("--batch", "standard input holds one request per line", &batch);
        table.add_flag("--authors", "say who wrote which bytes", &authors);
        table.add_flag("--tokens", "print token ids; needs -m", &tokens);
    }
    Status finish() const
    {
        if (tokens) return check_model("render --tokens", session);
        return {};
    }
};

namespace
{

// The clock of strftime_now if the request has none: the same request gives the same prompt.
constexpr const char* kClock = "2026-03-05T09:07:08";

Status read_time(const jinja::Value* text, std::tm* out)
{
    if (text && !text->is(jinja::Kind::text)) return fail(Code::usage, "$now is no text");
    const char* end =
        strptime(text ? text->text().bytes.c_str() : kClock, "%Y-%m-%dT%H:%M:%S", out);
    if (!end || *end) return fail(Code::usage, "$now is a time like %s", kClock);
    timegm(out);
    return {};
}

bool is_text(const jinja::Value* value, std::string_view text)
{
    return value && value->is(jinja::Kind::text) && value->text().bytes == text;
}

Status read_request(const jinja::Value& in, jinja::Request* out)
{
    if (const jinja::Value* messages = in.find("messages")) out->messages = *messages;
    if (const jinja::Value* tools = in.find("tools")) out->tools = *tools;
    const jinja::Value* options = in.find("options");
    if (!options || options->is(jinja::Kind::none)) return read_time(nullptr, &out->now);
    if (!options->is(jinja::Kind::dict)) return fail(Code::usage, "the options are no object");
    const jinja::Value* normalized = options->find("$hf_messages");
    out->extended = is_text(options->find("$profile"), "ext");
    out->normalized = normalized && normalized->is(jinja::Kind::boolean) && normalized->integer;
    for (const auto& [key, value] : options->dict_object().items) {
        const std::string& name = key.text().bytes;
        const bool token = name == "bos_token" || name == "eos_token";
        (token ? out->tokens : out->options).dict_object().set(key, value);
    }
    return read_time(options->find("$now"), &out->now);
}

// [["f", 12], ["u", 5], ...]
Json runs_of(const std::string& authors)
{
    Json runs = Json::array();
    for (size_t begin = 0, end; begin < authors.size(); begin = end) {
        end = std::min(authors.find_first_not_of(authors[begin], begin), authors.size());
        Json run = Json::array();
        run.push(std::string(1, authors[begin])).push(uint64_t(end - begin));
        runs.push(run);
    }
    return runs;
}

class Renderer
{
public:
    explicit Renderer(const RenderOptions& options) : m_options(options) {}

    Status open()
    {
        if (m_options.session.model_path.empty()) return {};
        Result<Gguf> gguf = Gguf::open(m_options.session.model_path);
        if (!gguf.ok()) return gguf.status();
        Result<VocabSource> vocab = gguf.value().vocab();
        if (!vocab.ok()) return vocab.status();
        m_template = std::string(vocab.value().chat_template);
        Result<std::unique_ptr<LoadedTokenizer>> loaded = load_tokenizer(vocab.value());
        if (!loaded.ok()) return loaded.status();
        m_tokenizer = std::move(loaded.value());
        return {};
    }

    Status render(std::string_view line, jinja::Text* out, bool* raised)
    {
        Result<jinja::Value> in = jinja::parse_json(line);
        if (!in.ok()) return in.status();
        jinja::Request request;
        KS_TRY(read_request(in.value(), &request));
        const jinja::Value* text = in.value().find("template");
        if (text && !text->is(jinja::Kind::text))
            return fail(Code::usage, "the template is no text");
        if (!text && m_template.empty()) return fail(Code::usage, "there is no chat template");
        m_markup = text ? text->text().bytes : m_template;
        if (m_tokenizer) {
            const jinja::Value given = request.tokens; // they override the model's
            request.tokens = template_tokens(m_tokenizer->tokenizer);
            for (const auto& [key, value] : given.dict_object().items)
                request.tokens.dict_object().set(key, value);
        }
        Result<jinja::Template> parsed = jinja::Template::parse(m_markup);
        if (!parsed.ok()) return parsed.status();
        return parsed.value().render(request, out, raised);
    }

    // One line of --batch.
    Json answer(std::string_view line)
    {
        jinja::Text text;
        bool raised = false;
        const Status status = render(line, &text, &raised);
        Json out = Json::object({{"ok", status.ok()}});
        if (!status.ok())
            return out.set({{"kind", raised ? "raise" : "wrong"}, {"message", status.message()}});
        out.set("text", text.bytes);
        if (m_options.authors) out.set("authors", runs_of(text.authors));
        if (m_options.tokens) out.set("ids", ids_of(text));
        return out;
    }

    void print(const jinja::Text& text)
    {
        if (m_options.authors) {
            Json::object({{"text", text.bytes}, {"authors", runs_of(text.authors)}}).print();
        } else if (m_options.tokens) {
            const std::vector<uint32_t> ids = ids_of(text);
            for (size_t i = 0; i < ids.size(); i++) printf(i ? " %u" : "%u", ids[i]);
            putchar('\n');
        } else {
            fwrite(text.bytes.data(), 1, text.size(), stdout);
        }
    }

private:
    std::vector<uint32_t> ids_of(const jinja::Text& text) const
    {
        std::vector<uint32_t> ids;
        std::vector<EncodedPart> parts;
        m_tokenizer->tokenizer.encode(AuthoredText{text.bytes, text.authors, m_markup, true}, ids,
                                      parts);
        return ids;
    }

    const RenderOptions& m_options;
    std::string m_template, m_markup; // the model's, and the last one that was rendered
    std::unique_ptr<LoadedTokenizer> m_tokenizer;
};

} // namespace

static Status render(const RenderOptions& options)
{
    Renderer renderer(options);
    KS_TRY(renderer.open());
    std::string line;
    if (options.batch) {
        while (std::getline(std::cin, line)) {
            if (line.empty()) continue;
            renderer.answer(line).print();
            fflush(stdout);
        }
        return {};
    }
    jinja::Text text;
    KS_TRY(read_file("-", &line));
    KS_TRY(renderer.render(line, &text, nullptr));
    renderer.print(text);
    return {};
}

extern const Command command_render = {"render", "write the prompt of a conversation",
                                       "[-m MODEL] [options]",
                                       "Reads JSON {\"template\", \"messages\", \"tools\", "
                                       "\"options\"} from standard input. Without a\n"
                                       "template it takes the model's. Keys of the options are "
                                       "variables of the template; $now is its\n"
                                       "clock.",
                                       start_command<RenderOptions, render>};

} // namespace ks
