#include "tools/serve/engine.h"

#include <algorithm>
#include <cmath>

namespace ks::serve
{

using std::chrono::milliseconds, std::chrono::seconds;

static int64_t now_ns()
{
    return Clock::now().time_since_epoch().count();
}

Status Engine::open(std::shared_ptr<Model> model, Parking parking)
{
    m_model = std::move(model);
    KS_TRY(m_seats.open(m_model, std::move(parking), m_options.seats));
    m_paused_since.resize(m_seats.all().size());
    m_last_token.resize(m_seats.all().size());
    publish();
    m_last_step_ns = now_ns();
    m_thread = std::thread([this] { run(); });
    return {};
}

void Engine::stop()
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        m_stops = true;
    }
    m_changed.notify_all();
    if (m_thread.joinable()) m_thread.join();
}

int Engine::retry_after() const
{
    const double n = double(m_queue.size() + 1) / double(m_seats.all().size());
    return int(std::clamp(std::ceil(n * m_mean_seconds), 1.0, 120.0));
}

HttpError Engine::submit(Task&& task)
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        if (m_lost) return device_lost();
        const size_t n_seats = m_seats.all().size(),
                     n_free = n_seats - std::min<size_t>(m_n_active, n_seats);
        if (m_refuses || m_stops || (m_drains && m_queue.size() >= n_free)) return draining();
        if (task.seat >= int64_t(m_seats.all().size()))
            return bad_field("id_slot", "id_slot: expected a number below " +
                                            std::to_string(m_seats.all().size()));
        if (m_queue.size() >= m_options.most_queued + n_free)
            return {429,
                    "rate_limit_error",
                    "queue_full",
                    "all conversations are busy and " + std::to_string(m_queue.size()) +
                        " requests wait, as many as may",
                    "",
                    retry_after()};
        m_queue.push_back(std::move(task));
        m_metrics.queued = uint32_t(m_queue.size());
        m_wakes = true;
    }
    m_changed.notify_all();
    return {};
}

void Engine::wake()
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        m_wakes = true;
    }
    m_changed.notify_all();
}

void Engine::run_between_steps(const std::function<void(Seats&)>& job)
{
    std::unique_lock<std::mutex> guard(m_mutex);
    if (m_stops) return;
    m_jobs.push_back(&job);
    const size_t mine = ++m_n_jobs;
    m_changed.notify_all();
    m_changed.wait(guard, [&] { return m_n_jobs_done >= mine; });
}

void Engine::take_jobs()
{
    std::unique_lock<std::mutex> guard(m_mutex);
    while (!m_jobs.empty()) {
        const auto* job = m_jobs.front();
        m_jobs.pop_front();
        guard.unlock();
        (*job)(m_seats);
        guard.lock();
        m_n_jobs_done++;
        m_changed.notify_all();
    }
}

void Engine::drain(bool all)
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        m_drains = true;
        m_refuses |= all;
    }
    wake();
}

void Engine::cancel_all()
{
    m_cancels = true;
    wake();
}

bool Engine::is_quiet() const
{
    std::lock_guard<std::mutex> guard(m_mutex);
    return m_queue.empty() && m_n_active == 0;
}

EngineReport Engine::report() const
{
    std::lock_guard<std::mutex> guard(m_mutex);
    return m_report;
}

// Requests whose clients are gone, or that wait for too long.
void Engine::drop_queued()
{
    std::vector<Task> dropped;
    bool drains = false;
    int retry = 1;
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        drains = m_drains;
        retry = retry_after();
        for (size_t i = 0; i < m_queue.size();) {
            const Task& task = m_queue[i];
            const bool late = Clock::now() - task.arrived > seconds(m_options.queue_seconds);
            const bool waits = drains && (m_refuses || !m_seats.has_idle(task.seat));
            if (!late && !waits && !task.exchange->gone()) {
                i++;
                continue;
            }
            dropped.push_back(std::move(m_queue[i]));
            m_queue.erase(m_queue.begin() + int64_t(i));
        }
        m_metrics.queued = uint32_t(m_queue.size());
    }
    for (Task& task : dropped) {
        if (task.exchange->gone())
            m_metrics.cancelled_disconnect++;
        else if (drains)
            task.writer->fail(draining());
        else
            task.writer->fail({429, "rate_limit_error", "queue_timeout",
                               "all conversations were busy for " +
                                   std::to_string(m_options.queue_seconds) + " s",
                               "", retry});
    }
}

// Gives waiting requests their seats, the oldest first.
void Engine::grant()
{
    for (;;) {
        Task task;
        {
            std::lock_guard<std::mutex> guard(m_mutex);
            const auto found = std::find_if(m_queue.begin(), m_queue.end(), [&](const Task& t) {
                return m_seats.has_idle(t.seat);
            });
            if (found == m_queue.end()) return;
            task = std::move(*found);
            m_queue.erase(found);
            m_metrics.queued = uint32_t(m_queue.size());
            m_n_active++;
        }
        m_metrics.queue_wait.add(seconds_since(task.arrived));
        const HttpError error = m_seats.begin(std::move(task));
        m_metrics.tokens_reread = m_seats.n_reread();
        if (!error) continue;
        m_n_active--;
        task.writer->fail(error);
    }
}

void Engine::finish(Seat& seat, bool complete)
{
    if (complete) count(*seat.answer);
    m_mean_seconds = m_mean_seconds + (seconds_since(seat.answer->begun()) - m_mean_seconds) / 8;
    m_paused_since[seat.index] = {};
    std::unique_ptr<Generation> answer = m_seats.end(seat, complete);
    m_n_active--;
    if (complete || answer->failed()) m_ended.push_back(std::move(answer));
}

// Gives out the ends of answers. The reports of the engine know them already.
void Engine::deliver()
{
    if (m_ended.empty()) return;
    publish();
    for (const auto& answer : m_ended) answer->deliver();
    m_ended.clear();
}

void Engine::count(const Generation& answer)
{
    const AnswerState& state = answer.state();
    m_metrics.prompt_tokens += state.n_prompt - state.n_cached;
    m_metrics.prompt_tokens_cached += state.n_cached;
    m_metrics.prompt_micros += uint64_t(state.prompt_ms * 1e3);
    m_metrics.answer_tokens += state.ids.size();
    m_metrics.answer_micros += uint64_t(state.answer_ms * 1e3);
    auto& resumed = !strcmp(state.from, "disk")   ? m_metrics.resumed_disk
                    : !strcmp(state.from, "seat") ? m_metrics.resumed_seat
                                                  : m_metrics.resumed_text;
    resumed++;
    m_metrics.most_tokens = std::max<uint64_t>(m_metrics.most_tokens, state.n_text);
}

// Answers whose clients are gone, or do not read them.
void Engine::cancel_gone()
{
    const bool all = m_cancels.exchange(false);
    for (Seat& seat : m_seats.all()) {
        if (!seat.answer) continue;
        Exchange& exchange = *seat.answer->task().exchange;
        const Clock::time_point since = m_paused_since[seat.index];
        const bool stalls =
            since != Clock::time_point() && Clock::now() - since > seconds(m_options.stall_seconds);
        if (!all && !stalls && !exchange.gone()) continue;
        (exchange.gone() ? m_metrics.cancelled_disconnect
         : all           ? m_metrics.cancelled_drain
                         : m_metrics.cancelled_stall)++;
        if (!exchange.gone())
            seat.answer->task().writer->fail(
                {503, "unavailable_error", all ? "draining" : "stalled",
                 all ? "the server is stopping" : "the answer was not read", ""});
        finish(seat, false);
    }
}

bool Engine::is_paused(Seat& seat)
{
    const bool paused = seat.answer->task().exchange->unsent() > kUnsentBytes;
    Clock::time_point& since = m_paused_since[seat.index];
    if (!paused)
        since = {};
    else if (since == Clock::time_point())
        since = Clock::now();
    return paused;
}

// A token of each answer, and chunks of the prompts in turn. False: there is nothing to do.
bool Engine::step()
{
    m_inputs.clear();
    m_stepped.clear();
    std::vector<Seat>& seats = m_seats.all();
    for (size_t i = 0; i < seats.size(); i++) {
        Seat& seat = seats[(i + m_turn) % seats.size()];
        if (!seat.answer || is_paused(seat)) continue;
        m_inputs.push_back(seat.answer->next_input());
        m_stepped.push_back(&seat);
    }
    if (m_inputs.empty()) return false;
    m_turn++;
    const Clock::time_point begin = Clock::now();
    const Status status = m_model->step(m_inputs.data(), m_inputs.size());
    m_last_step_ns = now_ns();
    m_metrics.step.add(seconds_since(begin));
    m_metrics.steps++;
    if (!status.ok()) {
        m_lost = true;
        fprintf(stderr, "serve: the device failed: %s\n", status.message().c_str());
        for (Seat* seat : m_stepped) {
            seat->answer->task().writer->fail(
                {500, "server_error", "device_lost", status.message(), ""});
            seat->answer.reset();
            m_n_active--;
        }
        return true;
    }
    for (size_t i = 0; i < m_stepped.size(); i++) {
        Seat& seat = *m_stepped[i];
        if (m_inputs[i].n_read == 0 && m_inputs[i].status.ok()) continue;
        m_metrics.step_rows++;
        const bool was_prompt = seat.answer->reads_prompt();
        const bool ended = seat.answer->after_step(m_inputs[i]);
        const bool begins = was_prompt && !seat.answer->reads_prompt();
        if (begins)
            m_metrics.first_token.add(seconds_since(seat.answer->task().arrived));
        else if (!was_prompt)
            m_metrics.token.add(seconds_since(m_last_token[seat.index]));
        m_last_token[seat.index] = Clock::now();
        if (begins && !ended) m_seats.keep_prompt(seat);
        if (ended) finish(seat, !seat.answer->failed());
    }
    deliver();
    return true;
}

void Engine::publish()
{
    EngineReport report;
    uint32_t n_active = 0, n_idle = 0, n_free = 0;
    uint64_t n_evicted = 0;
    for (const Seat& seat : m_seats.all()) {
        SeatReport r;
        r.index = seat.index;
        if (seat.session) {
            const Session& session = *seat.session;
            r.state = !seat.answer                                        ? "idle"
                      : m_paused_since[seat.index] != Clock::time_point() ? "paused"
                                                                          : "active";
            r.conversation = seat.name;
            r.rung = session.rung().recipe_text;
            r.rung_index = uint32_t(&session.rung() - session.plan().rungs.data());
            r.n_text = session.n_tokens();
            r.slots = session.plan().slots;
            r.bytes = session.plan().session_bytes();
            r.evicted = session.evicted();
            r.parked = seat.parked;
            r.last_use = seat.answer ? Clock::now() : seat.last_use;
            r.forgotten = forgotten_share(session);
            n_evicted += r.evicted;
            if (seat.answer) {
                r.n_answer = uint32_t(seat.answer->state().ids.size());
                r.sampling = seat.answer->task().sampling;
                r.was_used = true;
            } else if (seat.index < m_report.seats.size()) {
                r.sampling = m_report.seats[seat.index].sampling;
                r.was_used = m_report.seats[seat.index].was_used;
                r.n_answer = m_report.seats[seat.index].n_answer;
            }
        }
        (!seat.session ? n_free : seat.answer ? n_active : n_idle)++;
        report.seats.push_back(std::move(r));
    }
    m_metrics.active = n_active;
    m_metrics.idle = n_idle;
    m_metrics.free = n_free;
    m_metrics.slots_evicted = std::max<uint64_t>(m_metrics.slots_evicted, n_evicted);
    m_metrics.n_parked = report.n_parked = m_seats.parking().n_files();
    m_metrics.park_bytes = report.parked_bytes = m_seats.parking().n_bytes();
    report.most_parked_bytes = m_seats.parking().most_bytes();
    report.peak_bytes = m_model->ledger().peak_bytes();
    std::lock_guard<std::mutex> guard(m_mutex);
    m_report = std::move(report);
}

void Engine::run()
{
    Clock::time_point last_report;
    uint32_t last_active = 0;
    for (;;) {
        take_jobs();
        drop_queued();
        cancel_gone();
        if (!m_lost) grant();
        const bool stepped = !m_lost && step();
        const bool parked = !stepped && m_seats.park_one(false);
        if (last_active != m_n_active || parked || Clock::now() - last_report > milliseconds(50)) {
            publish();
            last_report = Clock::now();
            last_active = m_n_active;
        }
        std::unique_lock<std::mutex> guard(m_mutex);
        if (m_stops) break;
        if (stepped || parked) continue;
        const auto most = m_n_active || !m_queue.empty() ? milliseconds(20) : milliseconds(200);
        m_changed.wait_for(guard, most, [&] { return m_stops || m_wakes || !m_jobs.empty(); });
        m_wakes = false;
    }
    cancel_gone();
    while (!m_lost && m_seats.park_one(true)) {
    }
    take_jobs();
    publish();
}

} // namespace ks::serve
