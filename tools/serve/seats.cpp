#include "tools/serve/seats.h"

#include <algorithm>
#include <sys/stat.h>

namespace ks::serve
{

Status Seats::open(std::shared_ptr<Model> model, Parking parking, const SeatOptions& options)
{
    m_model = std::move(model);
    m_parking = std::move(parking);
    m_options = options;
    m_seats.resize(m_model->plan().n_sessions);
    for (uint32_t i = 0; i < m_seats.size(); i++) m_seats[i].index = i;
    Result<std::unique_ptr<Session>> session = m_model->open_session();
    if (!session.ok()) return session.status();
    Result<Conversation> opened = Conversation::open(*session.value(), options.chat_template);
    m_template_status = opened.status();
    m_has_template = opened.ok();
    if (m_has_template) m_template = std::move(opened.value());
    return options.chat_template.empty() ? Status() : m_template_status;
}

bool Seats::has_idle(int64_t index) const
{
    return std::any_of(m_seats.begin(), m_seats.end(), [&](const Seat& seat) {
        return !seat.answer && (index < 0 || seat.index == index);
    });
}

// The idle seat that holds the most of these messages; of equal ones the last used.
Seat* Seats::most_equal(const Chain& chain, size_t* n)
{
    Seat* best = nullptr;
    *n = 0;
    for (Seat& seat : m_seats) {
        if (seat.answer || !seat.session) continue;
        const size_t here = n_equal(seat.chain, chain);
        if (here < *n || here == 0) continue;
        if (here == *n && best && seat.last_use < best->last_use) continue;
        best = &seat;
        *n = here;
    }
    return best;
}

// A free seat, or the one that is idle for the longest time. Null: there is none.
Seat* Seats::victim(const Seat* but)
{
    Seat* best = nullptr;
    for (Seat& seat : m_seats) {
        if (seat.answer || &seat == but) continue;
        if (!seat.session) return &seat;
        if (!best || seat.last_use < best->last_use) best = &seat;
    }
    return best;
}

// A text that goes beyond the request is cut back only if the request is of the same conversation:
// its client says so, or an answer in it is the same, or the last answer is asked for again.
static bool is_same(const Seat& seat, const Task& task, size_t n, size_t n_request)
{
    if (!task.hint.empty() || !seat.hint.empty()) return task.hint == seat.hint;
    if (n == n_request && seat.chain.size() == n + 1) return true;
    const std::vector<jinja::Value>& messages = task.chat.messages.items();
    return std::any_of(messages.begin(), messages.begin() + int64_t(n), [](const auto& message) {
        return message.find("role")->str() == "assistant";
    });
}

// Whether n messages are so much of a text that copying it is faster than reading them.
static bool is_worth(const Seat& from, const Task& task, size_t n)
{
    constexpr size_t kBytesOfToken = 4, kMostCopied = 16; // tokens for each one that is used
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++)
        n_bytes += task.chat.messages.items()[i].find("content")->str().size();
    return n_bytes / kBytesOfToken * kMostCopied >= from.session->n_tokens();
}

Seats::Choice Seats::choose(const Chain& chain, const Task& task)
{
    size_t n = 0;
    const size_t n_on_disk = m_parking.find(chain);
    Seat* best = most_equal(chain, &n);
    const bool goes_on = best && (best->chain.size() == n || is_same(*best, task, n, chain.size()));
    if (goes_on && n >= n_on_disk) return {best, nullptr, 0};
    Seat* target = goes_on ? best : victim(best);
    if (!target) target = best;
    if (n_on_disk > n) return {target, nullptr, n_on_disk};
    return {target, target != best && best && is_worth(*best, task, n) ? best : nullptr, 0};
}

void Seats::park(Seat& seat)
{
    if (!m_parking.on() || seat.parked || seat.chain.empty()) return;
    const ChainHash tip = seat.chain.back();
    read_end(seat);
    seat.parked = true; // or will not be
    const Status status = m_parking.save(tip, *seat.session, seat.conversation);
    if (!status.ok()) {
        fprintf(stderr, "serve: a conversation is not parked: %s\n", status.message().c_str());
        return;
    }
    if (seat.older != tip && seat.older != seat.before) m_parking.remove(seat.older);
    if (seat.file != tip) seat.older = seat.file;
    seat.file = tip;
}

// Gives the seat an empty text. Where parts of the caches move, it gets a new part.
Status Seats::renew(Seat& seat)
{
    if (seat.session) park(seat);
    if (seat.session && m_model->plan().moves_shares) seat.session.reset();
    seat.chain.clear();
    seat.messages.clear();
    seat.unread.clear();
    seat.parked = false;
    seat.file = seat.older = seat.before = {};
    seat.name = seat.hint = "";
    if (!seat.session) {
        Result<std::unique_ptr<Session>> opened = m_model->open_session();
        if (!opened.ok()) return opened.status();
        seat.session = std::move(opened.value());
    }
    seat.session->clear();
    seat.conversation = m_template.in_session(*seat.session);
    return {};
}

void Seats::clear(Seat& seat)
{
    if (seat.answer || !seat.session) return;
    seat.chain.clear();
    seat.session.reset();
}

static uint64_t file_bytes(const std::string& path)
{
    struct stat info;
    return stat(path.c_str(), &info) == 0 ? uint64_t(info.st_size) : 0;
}

Status Seats::save(Seat& seat, const std::string& path, uint64_t* n_bytes)
{
    SavedState state;
    state.note = seat.conversation.save_history();
    KS_TRY(seat.session->save(state, path));
    *n_bytes = file_bytes(path);
    return {};
}

Status Seats::restore(Seat& seat, const std::string& path, uint64_t* n_bytes)
{
    SavedState state;
    KS_TRY(renew(seat));
    KS_TRY(seat.session->load(path, &state));
    *n_bytes = file_bytes(path);
    if (!seat.conversation.load_history(state.note)) seat.conversation.load();
    seat.last_use = Clock::now();
    return {};
}

// Gives the seat of the choice the text from which it goes on. Returns where that was.
const char* Seats::take_text(const Choice& choice, const Chain& chain)
{
    Seat& seat = *choice.seat;
    if (choice.n_on_disk) {
        const ChainHash& tip = chain[choice.n_on_disk - 1];
        const Status status = m_parking.load(tip, *seat.session, seat.conversation);
        if (status.ok()) {
            seat.file = tip;
            return "disk";
        }
        fprintf(stderr, "serve: a parked conversation is read again: %s\n",
                status.message().c_str());
        m_parking.remove(tip);
        return "text";
    }
    read_end(choice.copies ? *choice.copies : seat);
    if (!choice.copies) return "seat";
    if (!seat.session->copy(*choice.copies->session).ok()) return "text";
    seat.conversation.copy_history(choice.copies->conversation);
    seat.messages = choice.copies->messages;
    return "seat";
}

void Seats::keep_prompt(Seat& seat)
{
    const Session& session = *seat.session;
    const Plan& plan = session.plan();
    const uint64_t end =
        session.n_tokens() + std::min<uint64_t>(seat.answer->task().most_tokens, plan.context);
    if (!m_parking.on() || seat.chain.empty() || m_model->plan().recipe.exact() ||
        end <= plan.rungs.back().slots)
        return;
    const ChainHash tip = seat.chain.back();
    const Status status = m_parking.save(tip, *seat.session, seat.conversation);
    if (!status.ok()) return;
    if (seat.before != tip && seat.before != seat.file) m_parking.remove(seat.before);
    seat.before = tip;
}

std::unique_ptr<Generation> Seats::end(Seat& seat, bool complete)
{
    std::unique_ptr<Generation> answer = std::move(seat.answer);
    seat.last_use = Clock::now();
    if (!complete) {
        answer->cancel();
        return answer;
    }
    if (answer->state().stop == StopReason::length) seat.unread = answer->unread_ids();
    if (!answer->task().is_chat || !answer->message().is(jinja::kDict)) return answer;
    seat.chain.push_back(next_hash(seat.chain.back(), answer->message()));
    if (seat.session->n_tokens() > answer->state().n_prompt)
        seat.messages.push_back({answer->state().n_prompt, seat.session->n_tokens()});
    return answer;
}

// The last token of an answer that was cut is not read until the text goes on.
void Seats::read_end(Seat& seat)
{
    if (seat.unread.size() < seat.session->n_free_tokens())
        (void)seat.session->feed_answer(seat.unread.data(), seat.unread.size());
    seat.unread.clear();
}

bool Seats::park_one(bool all)
{
    if (!m_parking.on()) return false;
    for (Seat& seat : m_seats) {
        if (seat.answer || !seat.session || seat.parked || seat.chain.empty()) continue;
        const bool late = m_options.park_after >= 0 &&
                          Clock::now() - seat.last_use > std::chrono::seconds(m_options.park_after);
        if (!all && !late) continue;
        park(seat);
        return true;
    }
    return false;
}

} // namespace ks::serve
