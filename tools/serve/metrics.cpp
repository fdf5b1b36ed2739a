#include "tools/serve/metrics.h"

#include <cstdio>

namespace ks::serve
{

void Histogram::add(double seconds)
{
    size_t i = 0;
    while (i < kBounds.size() && seconds > kBounds[i]) i++;
    m_counts[i]++;
    m_micros += uint64_t(seconds * 1e6);
}

static std::string number(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.10g", value);
    return text;
}

static void write_head(std::string& out, const std::string& name, const char* help,
                       const char* type)
{
    out += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void Histogram::write(std::string& out, const char* name, const char* help) const
{
    write_head(out, name, help, "histogram");
    uint64_t n = 0;
    for (size_t i = 0; i <= kBounds.size(); i++) {
        n += m_counts[i];
        out += std::string(name) + "_bucket{le=\"" +
               (i < kBounds.size() ? number(kBounds[i]) : "+Inf") + "\"} " + std::to_string(n) +
               "\n";
    }
    out += std::string(name) + "_sum " + number(double(m_micros) / 1e6) + "\n" + std::string(name) +
           "_count " + std::to_string(n) + "\n";
}

void Metrics::count_request(const std::string& endpoint, int status)
{
    std::lock_guard<std::mutex> guard(m_mutex);
    m_requests[{endpoint, status}]++;
}

static void add(std::string& out, const char* name, const char* type, const char* help,
                double value)
{
    write_head(out, name, help, type);
    out += std::string(name) + " " + number(value) + "\n";
}

// Values of one name with different labels.
static void add_labelled(std::string& out, const std::string& name, const char* type,
                         const char* help, const char* label,
                         std::initializer_list<std::pair<const char*, uint64_t>> values)
{
    write_head(out, name, help, type);
    for (const auto& [text, value] : values)
        out += name + "{" + label + "=\"" + text + "\"} " + std::to_string(value) + "\n";
}

static constexpr const char *kCounter = "counter", *kGauge = "gauge";

// The names of llama.cpp's server, and of vLLM where balancers look for them.
void Metrics::write_common(std::string& out) const
{
    const auto rate = [](uint64_t n, uint64_t micros) {
        return micros ? double(n) * 1e6 / double(micros) : 0;
    };
    add(out, "llamacpp:prompt_tokens_total", kCounter, "Tokens of prompts that were read.",
        double(prompt_tokens));
    add(out, "llamacpp:prompt_tokens_cached_total", kCounter,
        "Tokens of prompts that were held already.", double(prompt_tokens_cached));
    add(out, "llamacpp:prompt_seconds_total", kCounter, "Time of reading prompts.",
        double(prompt_micros) / 1e6);
    add(out, "llamacpp:tokens_predicted_total", kCounter, "Tokens of answers.",
        double(answer_tokens));
    add(out, "llamacpp:tokens_predicted_seconds_total", kCounter, "Time of generating answers.",
        double(answer_micros) / 1e6);
    add(out, "llamacpp:n_decode_total", kCounter, "Steps of the model.", double(steps));
    add(out, "llamacpp:n_tokens_max", kCounter, "The longest text in tokens.", double(most_tokens));
    for (const char* name : {"num_drafts", "num_draft_tokens", "num_accepted_tokens"})
        add(out, ("llamacpp:spec_decode_" + std::string(name) + "_total").c_str(), kCounter,
            "Of speculation, which this server has not.", 0);
    add(out, "llamacpp:prompt_tokens_seconds", kGauge, "Tokens of prompts read in a second.",
        rate(prompt_tokens, prompt_micros));
    add(out, "llamacpp:predicted_tokens_seconds", kGauge, "Tokens generated in a second.",
        rate(answer_tokens, answer_micros));
    add(out, "llamacpp:requests_processing", kGauge, "Requests in seats.", active);
    add(out, "llamacpp:requests_deferred", kGauge, "Requests that wait.", queued);
    add(out, "llamacpp:n_busy_slots_per_decode", kGauge, "Mean number of texts in a step.",
        steps ? double(step_rows) / double(steps) : 0);
    const uint32_t n_seats = active + idle + free;
    add(out, "vllm:num_requests_running", kGauge, "Requests in seats.", active);
    add(out, "vllm:num_requests_waiting", kGauge, "Requests that wait.", queued);
    add(out, "vllm:kv_cache_usage_perc", kGauge, "Share of the seats that are taken.",
        n_seats ? double(active) / n_seats : 0);
}

void Metrics::write_own(std::string& out) const
{
    add(out, "knapsack:queue_length", kGauge, "Requests that wait.", queued);
    add(out, "knapsack:connections", kGauge, "Open connections.", connections);
    add_labelled(out, "knapsack:seats", kGauge, "Places for conversations.", "state",
                 {{"active", active}, {"idle", idle}, {"free", free}});
    add(out, "knapsack:conversations_parked", kGauge, "Session files.", double(n_parked));
    add(out, "knapsack:park_bytes", kGauge, "Bytes of session files.", double(park_bytes));
    add_labelled(out, "knapsack:resume_total", kCounter, "Where conversations went on from.",
                 "from", {{"seat", resumed_seat}, {"disk", resumed_disk}, {"text", resumed_text}});
    add(out, "knapsack:tokens_reread_total", kCounter,
        "Tokens of known texts that were read again.", double(tokens_reread));
    add(out, "knapsack:slots_evicted_total", kCounter, "Slots given up, over all layers and heads.",
        double(slots_evicted));
    add_labelled(out, "knapsack:cancelled_total", kCounter, "Answers that ended early.", "why",
                 {{"disconnect", cancelled_disconnect},
                  {"stall", cancelled_stall},
                  {"drain", cancelled_drain}});
}

std::string Metrics::text(uint64_t budget, uint64_t planned, uint64_t peak) const
{
    std::string out;
    write_common(out);
    write_own(out);
    add(out, "knapsack:memory_budget_bytes", kGauge, "The budget.", double(budget));
    add(out, "knapsack:memory_planned_bytes", kGauge, "What the plan allocates.", double(planned));
    add(out, "knapsack:memory_peak_bytes", kGauge, "The most bytes held at any time.",
        double(peak));
    queue_wait.write(out, "knapsack:queue_wait_seconds", "Time until a seat is granted.");
    first_token.write(out, "knapsack:first_token_seconds", "Time until the first token.");
    token.write(out, "knapsack:token_seconds", "Time of a token after the first.");
    step.write(out, "knapsack:step_seconds", "Time of a step of the model.");
    write_head(out, "knapsack:requests_total", "Answered requests.", kCounter);
    std::lock_guard<std::mutex> guard(m_mutex);
    for (const auto& [key, n] : m_requests)
        out += "knapsack:requests_total{endpoint=\"" + key.first + "\",status=\"" +
               std::to_string(key.second) + "\"} " + std::to_string(n) + "\n";
    return out;
}

} // namespace ks::serve
