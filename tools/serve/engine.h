// The thread that steps all conversations of the model.
#pragma once

#include "tools/serve/metrics.h"
#include "tools/serve/seats.h"

#include <condition_variable>
#include <deque>
#include <thread>

namespace ks::serve
{

// What other threads see of a seat.
struct SeatReport {
    uint32_t index = 0;
    const char* state = "free"; // idle, active, paused
    std::string conversation, rung;
    uint32_t n_text = 0, slots = 0, rung_index = 0;
    uint64_t bytes = 0, evicted = 0;
    double forgotten = 0;
    bool parked = false;
    Clock::time_point last_use;
    uint32_t n_answer = 0; // tokens so far
    SamplerOptions sampling;
    bool was_used = false; // sampling is that of an answer
};

struct EngineReport {
    std::vector<SeatReport> seats;
    uint32_t n_parked = 0;
    uint64_t parked_bytes = 0, most_parked_bytes = 0;
    uint64_t peak_bytes = 0;
};

struct EngineOptions {
    SeatOptions seats;
    size_t most_queued = 16;
    int queue_seconds = 30;
    int stall_seconds = 30;
};

class Engine
{
public:
    Engine(const EngineOptions& options, Metrics& metrics) : m_options(options), m_metrics(metrics)
    {
    }
    ~Engine() { stop(); }
    Status open(std::shared_ptr<Model> model, Parking parking);
    void stop(); // parks what is idle

    // From another thread. An error if the queue is full.
    HttpError submit(Task&& task);
    void wake(); // an exchange is gone, or its client has read
    // Calls `job` between two steps, with the engine waiting.
    void run_between_steps(const std::function<void(Seats&)>& job);
    // The server stops. Requests do not wait any more; all: none is taken.
    void drain(bool all);
    void cancel_all();

    bool is_quiet() const;                         // no request waits or is answered
    bool is_lost() const { return m_lost.load(); } // the device failed
    // The time of the last step; 0: no step is due.
    int64_t last_step() const { return m_n_active ? m_last_step_ns.load() : 0; }
    EngineReport report() const;
    const Model& model() const { return *m_model; }
    const Seats& seats() const { return m_seats; } // constant parts: its template
    const EngineOptions& options() const { return m_options; }

private:
    void run();
    void take_jobs();
    void drop_queued();
    void grant();
    void cancel_gone();
    bool step();
    void finish(Seat& seat, bool complete);
    void deliver();
    void count(const Generation& answer);
    bool is_paused(Seat& seat);
    void publish();
    int retry_after() const;

    const EngineOptions m_options;
    Metrics& m_metrics;
    std::shared_ptr<Model> m_model;
    Seats m_seats;
    std::thread m_thread;
    mutable std::mutex m_mutex;
    std::condition_variable m_changed;
    std::deque<Task> m_queue;
    std::deque<const std::function<void(Seats&)>*> m_jobs;
    size_t m_n_jobs_done = 0, m_n_jobs = 0;
    bool m_stops = false, m_wakes = false, m_drains = false, m_refuses = false;
    std::atomic<bool> m_cancels{false}, m_lost{false};
    std::atomic<uint32_t> m_n_active{0};
    std::atomic<int64_t> m_last_step_ns{0};
    std::atomic<double> m_mean_seconds{1}; // of an answer
    uint32_t m_turn = 0;                   // whose prompt is read first
    EngineReport m_report;
    std::vector<StepInput> m_inputs;
    std::vector<std::unique_ptr<Generation>> m_ended; // not given out yet
    std::vector<Seat*> m_stepped;
    std::vector<Clock::time_point> m_paused_since, m_last_token;
};

} // namespace ks::serve
