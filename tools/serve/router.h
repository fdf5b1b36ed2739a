// What the server does with requests: keys, origins, paths, and the states of the server.
#pragma once

#include "tools/json.h"
#include "tools/serve/engine.h"
#include "tools/serve/http.h"
#include "tools/serve/requests.h"

#include <ctime>

namespace ks::serve
{

struct RouterOptions {
    std::vector<std::string> keys;    // none: no key is needed
    std::vector<std::string> origins; // that browsers may call from; "any": all
    bool loopback = true;             // only programs of this machine can connect
    bool page = true, slots = true, metrics = true;
    std::string slot_folder; // of /slots?action=save
    int drain_seconds = 60, drain_delay = 0, watchdog_seconds = 60;
    bool json_log = false;
};

class Router : public HttpHandler
{
public:
    Router(RouterOptions options, Metrics& metrics)
        : m_options(std::move(options)), m_metrics(metrics)
    {
    }
    // The model is open: from now on questions are answered.
    void set_engine(std::shared_ptr<Engine> engine, ServerInfo info, uint64_t server_bytes);
    void set_progress(double share) { m_progress = share; }
    void set_server(HttpServer* server) { m_server = server; }
    // Called by a signal handler. The second one ends at once.
    void drain() { m_n_signals++; }
    void leave() { m_leaves = true; } // the model could not be opened
    bool stops() const { return m_leaves || m_n_signals > 0; }

    HttpError admit(Exchange& exchange) override;
    void handle(const std::shared_ptr<Exchange>& exchange) override;
    void close(Exchange& exchange) override;
    bool tick() override;
    void add_headers(Exchange& exchange) override;

private:
    using Answer = HttpError (Router::*)(const std::shared_ptr<Exchange>&);
    struct Path {
        const char *method, *path;
        Answer answer;
        bool is_public, needs_model;
    };
    static const Path kPaths[];
    static std::string without_v1(const std::string& path);
    const Path* find(Exchange& exchange, std::string* allowed) const;
    void watch_steps(const Engine& engine);
    HttpError check_origin(Exchange& exchange) const;
    HttpError check_key(Exchange& exchange) const;
    // If the server takes no questions. balancer: it should get no new ones.
    HttpError unavailable(bool balancer = false) const;
    struct MemoryBytes {
        uint64_t budget, planned, peak;
    };
    MemoryBytes memory_bytes() const;
    Json bytes_json() const;
    using MakeTask = HttpError (*)(Request&, Task*);
    HttpError submit(const std::shared_ptr<Exchange>& exchange, MakeTask make);
    HttpError render(const std::shared_ptr<Exchange>& exchange, MakeTask make, Task* task,
                     jinja::Text* out);

    HttpError health(const std::shared_ptr<Exchange>& exchange);
    HttpError livez(const std::shared_ptr<Exchange>& exchange);
    HttpError page(const std::shared_ptr<Exchange>& exchange);
    HttpError models(const std::shared_ptr<Exchange>& exchange);
    HttpError metrics(const std::shared_ptr<Exchange>& exchange);
    HttpError props(const std::shared_ptr<Exchange>& exchange);
    HttpError slots(const std::shared_ptr<Exchange>& exchange);
    HttpError slot_action(const std::shared_ptr<Exchange>& exchange);
    HttpError memory(const std::shared_ptr<Exchange>& exchange);
    HttpError tokenize(const std::shared_ptr<Exchange>& exchange);
    HttpError detokenize(const std::shared_ptr<Exchange>& exchange);
    HttpError apply_template(const std::shared_ptr<Exchange>& exchange);
    HttpError input_tokens(const std::shared_ptr<Exchange>& exchange);
    HttpError chat(const std::shared_ptr<Exchange>& exchange);
    HttpError completions(const std::shared_ptr<Exchange>& exchange);
    HttpError native(const std::shared_ptr<Exchange>& exchange);
    HttpError messages(const std::shared_ptr<Exchange>& exchange);
    HttpError responses(const std::shared_ptr<Exchange>& exchange);
    HttpError not_supported(const std::shared_ptr<Exchange>& exchange);

    const RouterOptions m_options;
    Metrics& m_metrics;
    HttpServer* m_server = nullptr;
    std::shared_ptr<Engine> m_engine; // null: the model is being opened
    ServerInfo m_info;
    uint64_t m_server_bytes = 0;
    std::atomic<double> m_progress{0};
    std::atomic<int> m_n_signals{0};
    std::atomic<bool> m_leaves{false};
    const int64_t m_begin = std::time(nullptr);
    Clock::time_point m_drain_begin, m_last_tick;
    int64_t m_last_step = 0;        // that the last tick saw
    std::atomic<double> m_stuck{0}; // seconds without a step while one is due
    bool m_drains = false, m_refuses = false, m_cancelled = false;
};

} // namespace ks::serve
