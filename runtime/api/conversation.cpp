#include "runtime/api/conversation.h"

#include <algorithm>

namespace ks
{

Result<Conversation> Conversation::open(Session& session, std::string_view chosen)
{
    const NamedTemplate* named = find_named_template(chosen);
    const std::string_view text = named ? named->text
                                  : chosen.empty()
                                      ? std::string_view(session.model().chat_template())
                                      : chosen;
    if (text.empty()) return Status(Code::unsupported, "the model has no chat template");
    Result<ChatFormat> format = ChatFormat::open(text, session.model().tokenizer(),
                                                 rendering_bytes(session.model().plan().context));
    if (!format.ok()) return format.status();
    for (uint32_t id : format.value().end_tokens()) session.model().add_end_token(id);
    return Conversation(session, std::move(format.value()));
}

Conversation Conversation::in_session(Session& session) const
{
    Conversation other(session, m_format);
    if (session.n_tokens()) other.load();
    return other;
}

bool Conversation::load_history(std::string_view saved)
{
    ChatHistory history;
    if (!history.restore(saved) || history.n_tokens() > m_session->n_tokens()) return false;
    m_history = std::move(history);
    return true;
}

// The tokens that the session read or forgot since the last step.
void Conversation::follow_session()
{
    const uint32_t n_tokens = m_session->n_tokens();
    if (n_tokens < m_history.n_tokens()) m_history.truncate(n_tokens);
    std::vector<uint32_t> ids;
    const uint32_t n_new = n_tokens - m_history.n_tokens();
    if (m_history.n_tokens() == 0 || n_new > m_session->model().plan().context) {
        if (n_tokens) m_history.load(n_tokens);
        return;
    }
    for (uint32_t i = m_history.n_tokens(); i < n_tokens; i++) ids.push_back(m_session->token(i));
    m_history.add_answer(m_session->model().tokenizer(), ids.data(), ids.size());
}

Result<PromptStep> Conversation::step_to(jinja::Text prompt, std::string_view answer_begin,
                                         bool keeps_answers)
{
    follow_session();
    m_prompt_tail = prompt.bytes.substr(prompt.authors.find_last_not_of(kTemplateAuthor) + 1);
    if (!answer_begin.empty()) prompt.add(answer_begin, jinja::kByAssistant);
    m_next = m_history;
    const PromptStep step =
        m_next.advance(m_session->model().tokenizer(), std::move(prompt), m_format.markup(),
                       [&](uint32_t n) { return !keeps_answers || m_session->can_rewind(n); });
    const uint64_t n_free = m_session->n_free_tokens() + m_session->n_tokens() - step.n_kept;
    if (step.ids.size() >= n_free)
        return fail(
            Code::no_fit, "the context is full: this message needs %zu tokens, %llu of %u are left",
            step.ids.size() + 1, (unsigned long long)n_free, m_session->model().plan().context);
    return step;
}

Result<PromptStep> Conversation::prompt(const ChatRequest& request, bool keeps_answers)
{
    Result<jinja::Text> prompt = m_format.render(request);
    if (!prompt.ok()) return prompt.status();
    return step_to(std::move(prompt.value()), request.answer_begin, keeps_answers);
}

// Removes the older half of the messages but those before the first user message. The user says
// the next one, and an answer is left. False: that is impossible.
static bool remove_older(std::vector<jinja::Value>& messages)
{
    const auto has_role = [](const char* role) {
        return [role](const jinja::Value& message) { return message.find("role")->str() == role; };
    };
    const auto begin = std::find_if(messages.begin(), messages.end(), has_role("user"));
    auto end = begin + (messages.end() - begin) / 2;
    end = std::find_if(end, messages.end(), has_role("user"));
    if (end == begin || std::find_if(end, messages.end(), has_role("assistant")) == messages.end())
        return false;
    messages.erase(begin, end);
    return true;
}

Result<PromptStep> Conversation::continue_prompt(ChatRequest& request)
{
    Result<jinja::Text> prompt = m_format.render(request);
    for (bool removed = false; prompt.status().code() == Code::no_fit; removed = true) {
        if (!remove_older(request.messages.items())) break;
        if (!removed) load();
        prompt = m_format.render(request);
    }
    if (!prompt.ok()) return prompt.status();
    return step_to(std::move(prompt.value()));
}

Result<PromptStep> Conversation::next_turn(const char* system, std::string_view user,
                                           const std::tm& now)
{
    if (m_session->n_tokens() == 0) {
        ChatRequest request;
        std::vector<jinja::Value> messages;
        if (system) messages.push_back(chat_message("system", system));
        messages.push_back(chat_message("user", user));
        request.messages = jinja::Value(std::move(messages));
        request.now = now;
        return prompt(request);
    }
    m_history.load(m_session->n_tokens());
    Result<jinja::Text> turn = m_format.render_turn(user, now);
    if (!turn.ok()) return turn.status();
    return step_to(std::move(turn.value()));
}

Status Conversation::begin(const PromptStep& step)
{
    KS_TRY(m_session->rewind(step.n_kept));
    return step.n_kept ? Status() : m_session->pin(n_prefix_tokens(step.authors));
}

Status Conversation::end_early()
{
    end();
    m_history.truncate(m_session->n_tokens());
    const uint32_t n = m_history.n_tokens();
    if (m_session->can_rewind(n)) return m_session->rewind(n);
    m_session->clear();
    return {};
}

Status Conversation::read(const PromptStep& step)
{
    KS_TRY(begin(step));
    const std::vector<uint8_t> mask = template_mask(step.authors);
    const Status status = m_session->feed(step.ids.data(), step.ids.size(), mask.data());
    if (status.ok())
        end();
    else if (status.code() == Code::interrupted)
        KS_TRY(m_session->rewind(step.n_kept));
    return status;
}

} // namespace ks
