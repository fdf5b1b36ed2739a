// Counters and gauges for Prometheus. Any thread may read them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace ks::serve
{

class Histogram
{
public:
    static constexpr std::array<double, 24> kBounds = {
        .001, .002, .003, .005, .007, .01, .015, .02, .03, .04, .05, .07,
        .1,   .15,  .2,   .3,   .5,   1,   2,    5,   10,  30,  120, 600};
    void add(double seconds);
    void write(std::string& out, const char* name, const char* help) const;

private:
    std::array<std::atomic<uint64_t>, kBounds.size() + 1> m_counts{};
    std::atomic<uint64_t> m_micros{0};
};

struct Metrics {
    using Counter = std::atomic<uint64_t>;
    Counter prompt_tokens{0}, prompt_tokens_cached{0}, prompt_micros{0};
    Counter answer_tokens{0}, answer_micros{0};
    Counter steps{0}, step_rows{0}, most_tokens{0};
    Counter resumed_seat{0}, resumed_disk{0}, resumed_text{0};
    Counter tokens_reread{0}, slots_evicted{0};
    Counter cancelled_disconnect{0}, cancelled_stall{0}, cancelled_drain{0};
    Counter n_parked{0}, park_bytes{0};
    std::atomic<uint32_t> active{0}, idle{0}, free{0}, queued{0}, connections{0};
    Histogram queue_wait, first_token, token, step;

    void count_request(const std::string& endpoint, int status);
    // budget, planned, peak: bytes.
    std::string text(uint64_t budget, uint64_t planned, uint64_t peak) const;

private:
    void write_common(std::string& out) const;
    void write_own(std::string& out) const;

    mutable std::mutex m_mutex;
    std::map<std::pair<std::string, int>, uint64_t> m_requests;
};

} // namespace ks::serve
