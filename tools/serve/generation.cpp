#include "tools/serve/generation.h"

#include "tools/cache_statistics.h"
#include "tools/serve/requests.h"

#include "runtime/chat/json.h"

#include <algorithm>
#include <cmath>

namespace ks::serve
{

Generation::Generation(Session& session, Conversation* conversation, Task task, PromptStep step,
                       AnswerState state, std::vector<TextRange> messages)
    : m_session(session), m_conversation(conversation), m_task(std::move(task)),
      m_step(std::move(step)), m_mask(template_mask(m_step.authors)),
      m_messages(std::move(messages)), m_state(std::move(state)), m_begun(Clock::now())
{
    m_state.seed = m_task.sampling.seed;
    m_session.clear_cancel();
    m_task.writer->begin(m_state);
    if (m_task.wants_progress) m_task.writer->progress(m_state);
}

void Generation::make_sink()
{
    const Tokenizer& tokenizer = m_session.model().tokenizer();
    std::vector<std::string> stops = m_task.stops;
    if (!m_task.is_chat || m_task.is_call) {
        m_sink = std::make_unique<TextSink>(tokenizer, stops, [this](std::string_view text) {
            if (m_task.is_call)
                m_json += text;
            else if (!text.empty())
                give({AnswerEvent::Kind::content, std::string(text), 0, {}, {}});
        });
        return;
    }
    if (!m_conversation->format().stop_text().empty())
        stops.push_back(m_conversation->format().stop_text());
    m_sink = std::make_unique<AnswerSink>(
        *m_conversation, tokenizer, m_task.chat.tools, stops, m_state.seed,
        [this](const AnswerEvent& event) { give(event); },
        m_task.plain_tools ? &find_answer_format("<tool_call>") : nullptr,
        !m_task.chat.answer_begin.empty());
}

void Generation::give(const AnswerEvent& event)
{
    m_task.writer->give(event, m_reports, m_state);
    m_reports.clear();
}

StepInput Generation::next_input()
{
    StepInput in;
    in.session = &m_session;
    if (reads_prompt()) {
        in.ids = m_step.ids.data() + m_n_read;
        in.n = n_unread();
        in.template_mask = m_mask.empty() ? nullptr : m_mask.data() + m_n_read;
    } else {
        in.ids = m_state.ids.data() + m_n_fed;
        in.n = m_state.ids.size() - m_n_fed;
    }
    return in;
}

bool Generation::fail(const HttpError& error)
{
    m_error = error;
    return true;
}

void Generation::deliver()
{
    if (m_error)
        m_task.writer->fail(m_error);
    else
        m_task.writer->end(m_state, m_reports);
}

bool Generation::after_step(const StepInput& in)
{
    if (!in.status.ok()) {
        if (in.status.code() == Code::no_fit && !reads_prompt()) return end(StopReason::length);
        return fail({500, "server_error", "internal", in.status.message(), ""});
    }
    if (!reads_prompt()) {
        m_n_fed += in.n_read;
        return m_n_fed == m_state.ids.size() && choose();
    }
    m_n_read += in.n_read;
    m_state.n_read += uint32_t(in.n_read);
    m_state.prompt_ms = ms_between(m_begun, Clock::now());
    if (m_task.wants_progress) m_task.writer->progress(m_state);
    constexpr double kSilentMs = 15e3;
    if (m_state.prompt_ms - m_last_sign > kSilentMs) {
        m_task.writer->keep_alive();
        m_last_sign = m_state.prompt_ms;
    }
    if (reads_prompt()) return false;
    begin_answer();
    return choose();
}

void Generation::begin_answer()
{
    if (m_conversation) m_conversation->end();
    m_read = Clock::now();
    m_state.prompt_ms = ms_between(m_begun, m_read);
    const uint32_t n_vocab = m_session.model().config().n_vocab;
    SamplerOptions sampling = m_task.sampling;
    if (m_task.ignore_eos) ban_end_tokens(m_session.model(), sampling);
    m_sampler = std::make_unique<Sampler>(sampling, n_vocab, m_session.sampler_memory());
    // The tokens before, whether they were read now or earlier.
    const uint32_t n = m_session.n_tokens(), context = m_session.model().plan().context;
    for (uint32_t p = n - std::min({n, context, m_task.sampling.repeat_last_n}); p < n; p++)
        if (m_session.token(p) < n_vocab) m_sampler->accept(m_session.token(p));
    if (m_task.constrained) m_constraint = constraint_of(m_session, m_task.grammar);
    make_sink();
}

// Chooses a token, and those that must follow.
bool Generation::choose()
{
    if (m_state.ids.size() >= m_task.most_tokens) return end(StopReason::length);
    uint32_t id = 0;
    if (m_constraint) {
        const Status status = m_constraint->sample(*m_sampler, m_session.logits(), &id);
        if (!status.ok())
            return fail({500, "server_error", "internal", status.message(), "response_format"});
    } else {
        id = m_sampler->sample(m_session.logits());
    }
    if (m_session.model().tokenizer().is_end(id)) return end(StopReason::eos);
    report(id);
    if (push(id)) return end(StopReason::word);
    if (m_constraint)
        for (uint32_t next : m_constraint->take_forced(m_task.most_tokens - m_state.ids.size())) {
            m_sampler->accept(next);
            if (push(next)) return end(StopReason::word);
        }
    if (m_constraint && m_constraint->is_complete()) return end(StopReason::eos);
    const bool late = m_task.most_ms > 0 && ms_between(m_read, Clock::now()) > m_task.most_ms;
    if (m_state.ids.size() >= m_task.most_tokens || late ||
        m_session.n_free_tokens() < m_state.ids.size() - m_n_fed)
        return end(StopReason::length);
    return false;
}

// True: a stop string ends the answer.
bool Generation::push(uint32_t id)
{
    m_state.ids.push_back(id);
    m_state.answer_ms = ms_between(m_read, Clock::now());
    m_sink->push(id);
    return m_sink->stopped();
}

// The log probabilities of a token and of the most probable ones, before any sampling.
void Generation::report(uint32_t id)
{
    if (m_task.n_logprobs < 0) return;
    const float* logits = m_session.logits();
    const uint32_t n = m_session.model().config().n_vocab;
    const Tokenizer& tokenizer = m_session.model().tokenizer();
    const float most = *std::max_element(logits, logits + n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += std::exp(double(logits[i]) - most);
    const double norm = most + std::log(sum);
    const auto choice = [&](uint32_t i) {
        return TokenReport::Choice{i, float(std::max(logits[i] - norm, -9999.0)),
                                   token_text(tokenizer, i)};
    };
    TokenReport report{choice(id), {}};
    std::vector<uint32_t> order(n);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    const uint32_t n_top = std::min(uint32_t(m_task.n_logprobs), n);
    std::partial_sort(order.begin(), order.begin() + n_top, order.end(),
                      [&](uint32_t a, uint32_t b) {
                          return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
                      });
    for (uint32_t i = 0; i < n_top; i++) report.top.push_back(choice(order[i]));
    m_reports.push_back(std::move(report));
}

// The JSON of an answer that had to be a call.
void Generation::give_call()
{
    const Result<jinja::Value> parsed = jinja::parse_json(m_json);
    const jinja::Value* name = parsed.ok() ? parsed.value().find("name") : nullptr;
    const jinja::Value* arguments = parsed.ok() ? parsed.value().find("arguments") : nullptr;
    if (!name || !name->is(jinja::kText) || !arguments) { // the answer was cut
        give({AnswerEvent::Kind::content, m_json, 0, {}, {}});
        m_message = chat_message("assistant", m_json);
        return;
    }
    char id[32];
    snprintf(id, sizeof id, "call_%016llx",
             (unsigned long long)(m_state.seed * 0x9e3779b97f4a7c15ull + m_state.n_text));
    give({AnswerEvent::Kind::call, jinja::write(*arguments), 0, id, name->str()});
    m_message = chat_message("assistant", "");
    m_message.dict_object().set("tool_calls", jinja::Value(std::vector<jinja::Value>{
                                                  chat_call(id, name->str(), *arguments)}));
    m_state.stop = StopReason::calls;
}

// What the session holds after the answer.
void Generation::take_numbers()
{
    m_state.n_text = m_session.n_tokens();
    m_state.rung = m_session.rung().recipe_text;
    m_state.n_climbs = m_session.n_climbs();
    m_state.slots = m_session.plan().slots;
    m_state.forgotten = forgotten_share(m_session);
    take_held();
}

// The share of each message that is held, as a mean of the heads that evict.
void Generation::take_held()
{
    const uint32_t n = m_state.n_text;
    if (n > m_state.n_prompt) m_messages.push_back({m_state.n_prompt, n});
    m_state.held.assign(m_messages.size(), 1);
    if (m_session.evicted() == 0) return;
    std::vector<uint32_t> heads(n);
    const uint32_t n_heads = count_holders(m_session.cache(), n, 0, n, heads.data());
    for (size_t i = 0; i < m_messages.size() && n_heads; i++) {
        const auto [begin, end] = m_messages[i];
        uint64_t sum = 0;
        for (uint32_t p = begin; p < end; p++) sum += heads[p];
        m_state.held[i] = double(sum) / (double(n_heads) * (end - begin));
    }
}

double forgotten_share(const Session& session)
{
    uint64_t n_heads = 0;
    const Cache& cache = session.cache();
    for (uint32_t il = 0; il < cache.n_layers(); il++)
        if (evicts(cache.layer(il))) n_heads += cache.layer(il).spec.n_kv_heads;
    const double n_cells = double(n_heads) * session.n_tokens();
    return n_cells > 0 ? double(session.evicted()) / n_cells : 0;
}

bool Generation::end(StopReason why)
{
    m_state.stop = why;
    take_numbers();
    if (m_sink) m_sink->finish();
    if (m_sink && m_sink->stopped()) {
        m_state.stop = StopReason::word;
        m_state.stop_word = *m_sink->stopped_by();
        if (m_conversation && m_state.stop_word == m_conversation->format().stop_text())
            m_state.stop = StopReason::eos;
    }
    if (m_task.is_call) {
        give_call();
    } else if (m_task.is_chat) {
        m_message = static_cast<AnswerSink&>(*m_sink).message();
        if (const jinja::Value* calls = m_message.find("tool_calls");
            calls && why != StopReason::length && calls->is(jinja::kList) &&
            !calls->items().empty())
            m_state.stop = StopReason::calls;
    }
    if (m_task.plain_tools && m_message.is(jinja::kDict)) m_message = plain_message(m_message);
    const jinja::Value* content = m_message.find("content");
    if (!m_task.chat.answer_begin.empty() && content && content->is(jinja::kText))
        m_message.dict_object().set("content", m_task.chat.answer_begin + content->str());
    return true;
}

void Generation::cancel()
{
    if (m_conversation && !m_sampler) (void)m_conversation->end_early();
}

} // namespace ks::serve
