// Begins answers: what a seat reads for a request.
#include "tools/serve/seats.h"

#include <algorithm>
#include <cstring>

namespace ks::serve
{

AnswerState Seats::state_of(const Seat& seat) const
{
    AnswerState state;
    state.seat = seat.index;
    state.slots = seat.session->plan().slots;
    state.context = m_model->plan().context;
    state.conversation = seat.name;
    return state;
}

static HttpError too_long(uint32_t n_prompt, uint32_t n_context, const char* field)
{
    HttpError error = {400, "exceed_context_size_error", "context_length_exceeded",
                       "the request (" + std::to_string(n_prompt) +
                           " tokens) exceeds the available context size (" +
                           std::to_string(n_context) + " tokens)",
                       field};
    error.n_prompt_tokens = n_prompt;
    error.n_ctx = n_context;
    return error;
}

// About the tokens of a prompt that is too long to be rendered.
static uint32_t estimate_tokens(const Tokenizer& tokenizer, const ChatRequest& chat)
{
    constexpr size_t kSample = 16 << 10;
    EncodeOptions options;
    options.add_bos = false;
    double n = 0;
    for (const jinja::Value& message : chat.messages.items()) {
        const std::string& text = message.find("content")->str();
        std::vector<uint32_t> ids;
        tokenizer.encode(std::string_view(text).substr(0, kSample), options, ids);
        if (!text.empty())
            n += double(ids.size()) * double(text.size()) / double(std::min(text.size(), kSample));
    }
    return uint32_t(std::min(n, 1e9));
}

static HttpError prompt_error(const Status& status, uint32_t n_prompt, uint32_t n_context)
{
    if (status.code() == Code::no_fit) return too_long(n_prompt, n_context, "messages");
    return {400, "invalid_request_error", "bad_field", status.message(), "messages"};
}

HttpError Seats::begin(Task&& task)
{
    return task.is_chat ? begin_chat(std::move(task)) : begin_text(std::move(task));
}

// Where the messages lie in the text, by the authors of its tokens.
void Seats::note_messages(Seat& seat, const PromptStep& step)
{
    auto& list = seat.messages;
    while (!list.empty() && list.back().second > step.n_kept) list.pop_back();
    // The last token of an answer may be read only now.
    const bool ends_answer = !list.empty() && list.back().second == step.n_kept &&
                             step.authors.substr(0, 1) == std::string(1, jinja::kByAssistant);
    char last = ends_answer ? jinja::kByAssistant : 0;
    for (size_t i = 0; i < step.authors.size(); i++) {
        const char author = step.authors[i];
        const uint32_t at = step.n_kept + uint32_t(i);
        if (author == kTemplateAuthor) {
            last = 0;
        } else if (author == last) {
            list.back().second = at + 1;
        } else {
            list.push_back({at, at + 1});
            last = author;
        }
    }
}

// What the seat must read for a chat. A cache that cannot go back so far loads the file of the text
// before the answer, or reads all again. keeps_answers: as for Conversation::prompt().
Result<PromptStep> Seats::step_of(Seat& seat, const Chain& chain, const Task& task,
                                  bool keeps_answers, const char** from)
{
    const uint32_t n_had = seat.session->n_tokens();
    Result<PromptStep> step = seat.conversation.prompt(task.chat, keeps_answers);
    const auto goes_back = [&] { return seat.session->can_rewind(step.value().n_kept); };
    if (!step.ok() || goes_back()) return step;
    const size_t n_file = !strcmp(*from, "disk") ? 0 : m_parking.find(chain);
    m_n_reread += n_had;
    seat.session->clear();
    if (n_file) *from = take_text({&seat, nullptr, n_file}, chain);
    step = seat.conversation.prompt(task.chat, false);
    if (!step.ok() || goes_back()) return step;
    seat.session->clear();
    return seat.conversation.prompt(task.chat, false);
}

// Names the conversation of a request, and notes its messages.
void Seats::name(Seat& seat, const Chain& chain, const Task& task, const PromptStep& step)
{
    const std::vector<jinja::Value>& messages = task.chat.messages.items();
    size_t first = 0; // message of the user
    while (first + 1 < messages.size() && messages[first].find("role")->str() != "user") first++;
    seat.chain = chain;
    seat.parked = false;
    seat.hint = task.hint;
    seat.name = task.hint.empty() ? chain[first].text().substr(0, 16) : task.hint;
    note_messages(seat, step);
}

HttpError Seats::begin_chat(Task&& task)
{
    const Chain chain = chain_of(task.chat, task.exchange->key);
    Choice choice = choose(chain, task);
    if (task.seat >= 0 && choice.seat->index != task.seat)
        choice = {&m_seats[size_t(task.seat)], nullptr, m_parking.find(chain)};
    Seat& seat = *choice.seat;
    const size_t n_here = seat.session ? n_equal(seat.chain, chain) : 0;
    const bool stays = !choice.copies && !choice.n_on_disk && n_here;
    const bool goes_on = stays && n_here == seat.chain.size();
    if (!stays)
        if (const Status status = renew(seat); !status.ok())
            return {500, "server_error", "internal", status.message(), ""};
    const char* from = take_text(choice, chain);
    Result<PromptStep> step = step_of(seat, chain, task, goes_on || choice.n_on_disk, &from);
    Status status = step.status();
    if (status.ok()) status = seat.conversation.begin(step.value());
    uint32_t n_prompt = seat.conversation.n_prompt_tokens();
    const uint32_t n_context = m_model->plan().context;
    if (status.ok() && n_prompt >= n_context && m_model->plan().recipe.exact())
        status = Status(Code::no_fit, "");
    if (!status.ok()) {
        if (!stays) clear(seat);
        if (!step.ok() && n_prompt < n_context)
            n_prompt = estimate_tokens(m_model->tokenizer(), task.chat);
        return prompt_error(status, n_prompt, n_context);
    }
    name(seat, chain, task, step.value());
    AnswerState state = state_of(seat);
    state.n_cached = state.n_read = step.value().n_kept;
    state.n_prompt = n_prompt;
    state.from = state.n_cached ? from : "text";
    seat.answer =
        std::make_unique<Generation>(*seat.session, &seat.conversation, std::move(task),
                                     std::move(step.value()), std::move(state), seat.messages);
    return {};
}

// The tokens at the beginning that a session holds.
static uint32_t n_common(const Session& session, const std::vector<uint32_t>& ids)
{
    uint32_t n = 0;
    const uint32_t most = std::min<uint32_t>(session.n_tokens(), uint32_t(ids.size()));
    if (session.n_tokens() > session.model().plan().context) return 0;
    while (n < most && session.token(n) == ids[n]) n++;
    return n;
}

HttpError Seats::begin_text(Task&& task)
{
    const uint32_t n_context = m_model->plan().context, n_ids = uint32_t(task.ids.size());
    if (m_model->plan().recipe.exact() && n_ids >= n_context)
        return too_long(n_ids, n_context, "prompt");
    Seat* seat = nullptr;
    uint32_t most = 0;
    for (Seat& other : m_seats) {
        if (other.answer || !other.session || (task.seat >= 0 && other.index != task.seat))
            continue;
        // The last token is read again, for its logits.
        const uint32_t n = std::min(n_common(*other.session, task.ids), n_ids - 1);
        if (n <= most || !other.session->can_rewind(n)) continue;
        // A conversation is not cut back for another text.
        if (!other.chain.empty() && 2 * n < other.session->n_tokens()) continue;
        most = n;
        seat = &other;
    }
    if (!seat) seat = task.seat >= 0 ? &m_seats[size_t(task.seat)] : victim(nullptr);
    if (most == 0)
        if (const Status status = renew(*seat); !status.ok())
            return {500, "server_error", "internal", status.message(), ""};
    if (const Status status = seat->session->rewind(most); !status.ok())
        return {500, "server_error", "internal", status.message(), ""};
    seat->chain.clear();
    seat->messages.clear();
    seat->unread.clear();
    seat->conversation = m_template.in_session(*seat->session);
    seat->name = seat->hint = task.hint;
    AnswerState state = state_of(*seat);
    state.n_cached = state.n_read = most;
    state.n_prompt = n_ids;
    state.from = most ? "seat" : "text";
    PromptStep step;
    step.ids.assign(task.ids.begin() + most, task.ids.end());
    seat->answer = std::make_unique<Generation>(*seat->session, nullptr, std::move(task),
                                                std::move(step), std::move(state));
    return {};
}

} // namespace ks::serve
