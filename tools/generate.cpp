#include "tools/generate.h"

#include "tools/alloc_count.h"

#include <algorithm>
#include <cmath>
#include <unistd.h>

namespace ks
{

const char* stop_name(Stop stop)
{
    static const char* const kNames[] = {"length", "eos", "string", "interrupted"};
    return kNames[int(stop)];
}

void write_text(std::string_view text)
{
    static const bool terminal = is_terminal(STDOUT_FILENO);
    if (!terminal) fwrite(text.data(), 1, text.size(), stdout);
    for (size_t i = 0; terminal && i < text.size(); i++) {
        uint8_t c = uint8_t(text[i]);
        putchar((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c);
    }
    fflush(stdout);
}

void ban_end_tokens(const Model& model, SamplerOptions& sampling)
{
    for (uint32_t id = 0; id < model.config().n_vocab; id++)
        if (model.tokenizer().is_end(id)) sampling.logit_bias.push_back({id, -INFINITY});
}

std::unique_ptr<Constraint> constraint_of(const Session& session, const Grammar& grammar)
{
    if (!session.constraint_memory()) return nullptr;
    auto made = std::make_unique<Constraint>(
        session.model().tokenizer(), session.model().config().n_vocab, session.constraint_memory());
    made->begin(grammar);
    return made;
}

static bool is_special(const Tokenizer& tokenizer, uint32_t id)
{
    const TokenType type = tokenizer.type(id);
    return type == TokenType::control || type == TokenType::user_defined;
}

static AnswerOptions answer_options(const Conversation& conversation, const Tokenizer& tokenizer,
                                    const jinja::Value& tools, uint64_t seed, bool goes_on)
{
    AnswerOptions options;
    options.goes_on = goes_on;
    options.prompt_tail = conversation.prompt_tail();
    options.tools = &tools;
    options.is_token = [&tokenizer](std::string_view text) {
        const int64_t id = tokenizer.find(text);
        return id >= 0 && is_special(tokenizer, uint32_t(id));
    };
    options.seed = seed;
    return options;
}

AnswerSink::AnswerSink(const Conversation& conversation, const Tokenizer& tokenizer,
                       const jinja::Value& tools, const std::vector<std::string>& stops,
                       uint64_t seed, Show show, const AnswerFormat* format, bool goes_on)
    : m_tokenizer(tokenizer), m_tools(tools),
      m_parser(format ? *format : conversation.format().answer_format(),
               answer_options(conversation, tokenizer, m_tools, seed, goes_on)),
      m_detokenizer(tokenizer.max_piece_bytes(), stops), m_piece(tokenizer.max_piece_bytes(), 0),
      m_show(std::move(show))
{
}

void AnswerSink::push(uint32_t id)
{
    const bool is_marker = is_special(m_tokenizer, id) && m_parser.has_marker(m_tokenizer.text(id));
    const size_t n = m_tokenizer.piece(id, m_piece.data(), is_marker);
    if (!m_parser.has_markers()) return give_content(m_detokenizer.feed({m_piece.data(), n}));
    AnswerEvents events;
    m_parser.feed({m_piece.data(), n}, is_marker, &events);
    give(events);
}

void AnswerSink::finish()
{
    AnswerEvents events;
    m_parser.finish(&events);
    give(events);
    give_content(m_detokenizer.flush());
}

void AnswerSink::give(const AnswerEvents& events)
{
    for (const AnswerEvent& event : events) {
        if (event.kind != AnswerEvent::Kind::content) {
            if (!stopped()) m_show(event);
            continue;
        }
        const size_t most = m_tokenizer.max_piece_bytes();
        for (size_t at = 0; at < event.text.size(); at += most)
            give_content(m_detokenizer.feed(std::string_view(event.text).substr(at, most)));
    }
}

void AnswerSink::give_content(std::string_view text)
{
    if (text.empty()) return;
    m_content += text;
    m_show({AnswerEvent::Kind::content, std::string(text), 0, {}, {}});
}

jinja::Value AnswerSink::message() const
{
    Result<jinja::Value> message = m_parser.message();
    if (!message.ok() || !m_parser.has_markers()) return chat_message("assistant", m_content);
    if (stopped()) message.value().dict_object().set("content", m_content);
    return message.value();
}

Status generate(Session& session, Sampler& sampler, Constraint* constraint, TokenSink& sink,
                uint64_t limit, Generated& out)
{
    Stopwatch clock;
    uint64_t allocations_before = 0;
    const auto put = [&](uint32_t id) {
        out.ids.push_back(id);
        sink.push(id);
        return !sink.stopped();
    };
    for (size_t n_fed = 0;;) {
        if (constraint && !sink.stopped())
            for (uint32_t id : constraint->take_forced(limit - out.ids.size())) {
                sampler.accept(id);
                if (!put(id)) break;
            }
        const bool complete = constraint && constraint->is_complete();
        out.stop = sink.stopped() ? Stop::string : complete ? Stop::eos : Stop::length;
        if (n_fed == 0 && !out.ids.empty()) allocations_before = allocation_count();
        if (out.stop != Stop::length || out.ids.size() == limit) break;
        const Status status = interrupt::pending()
                                  ? Status(Code::interrupted, "")
                                  : session.feed_answer(&out.ids[n_fed], out.ids.size() - n_fed);
        if (status.code() == Code::interrupted) {
            out.stop = Stop::interrupted;
            break;
        }
        KS_TRY(status);
        n_fed = out.ids.size();
        uint32_t id = 0;
        if (constraint)
            KS_TRY(constraint->sample(sampler, session.logits(), &id));
        else
            id = sampler.sample(session.logits());
        if (session.model().tokenizer().is_end(id)) {
            out.stop = Stop::eos;
            break;
        }
        put(id);
    }
    sink.finish();
    if (!out.ids.empty()) out.allocations = allocation_count() - allocations_before;
    out.seconds = clock.seconds();
    return {};
}

} // namespace ks
