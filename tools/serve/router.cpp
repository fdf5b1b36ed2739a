#include "tools/serve/router.h"

#include "tools/serve/answers.h"

#include "runtime/base/hash.h"

#include <algorithm>
#include <cstring>

namespace ks::serve
{

using std::chrono::seconds;

// Every path is also known with /v1 before it.
const Router::Path Router::kPaths[] = {
    {"GET", "/health", &Router::health, true, false},
    {"GET", "/livez", &Router::livez, true, false},
    {"GET", "/", &Router::page, true, false},
    {"GET", "/models", &Router::models, false, true},
    {"GET", "/metrics", &Router::metrics, false, true},
    {"GET", "/props", &Router::props, false, true},
    {"POST", "/props", &Router::not_supported, false, false},
    {"GET", "/slots", &Router::slots, false, true},
    {"POST", "/slots/*", &Router::slot_action, false, true},
    {"GET", "/knapsack/memory", &Router::memory, false, true},
    {"GET", "/models/*", &Router::models, false, true},
    {"POST", "/tokenize", &Router::tokenize, false, true},
    {"POST", "/detokenize", &Router::detokenize, false, true},
    {"POST", "/apply-template", &Router::apply_template, false, true},
    {"POST", "/chat/completions", &Router::chat, false, true},
    {"POST", "/chat/completions/input_tokens", &Router::input_tokens, false, true},
    {"POST", "/messages/count_tokens", &Router::input_tokens, false, true},
    {"POST", "/responses/input_tokens", &Router::input_tokens, false, true},
    {"POST", "/completions", &Router::completions, false, true},
    {"POST", "/completion", &Router::native, false, true},
    {"POST", "/messages", &Router::messages, false, true},
    {"POST", "/responses", &Router::responses, false, true},
    {"POST", "/embeddings", &Router::not_supported, false, false},
    {"POST", "/embedding", &Router::not_supported, false, false},
    {"POST", "/rerank", &Router::not_supported, false, false},
    {"POST", "/reranking", &Router::not_supported, false, false},
    {"POST", "/infill", &Router::not_supported, false, false},
    {"GET", "/lora-adapters", &Router::not_supported, false, false},
};

void Router::set_engine(std::shared_ptr<Engine> engine, ServerInfo info, uint64_t server_bytes)
{
    m_info = std::move(info);
    m_server_bytes = server_bytes;
    std::atomic_store(&m_engine, std::move(engine));
}

std::string Router::without_v1(const std::string& path)
{
    return path.compare(0, 4, "/v1/") == 0 ? path.substr(3) : path;
}

// *allowed: the methods of the path, if it is known.
const Router::Path* Router::find(Exchange& exchange, std::string* allowed) const
{
    const std::string path = without_v1(exchange.path());
    const std::string method = exchange.method() == "HEAD" ? "GET" : exchange.method();
    const Path* found = nullptr;
    for (const Path& one : kPaths) {
        const size_t n = strlen(one.path);
        const bool is_begin = one.path[n - 1] == '*';
        if (is_begin ? path.size() < n || path.compare(0, n - 1, one.path, n - 1) != 0
                     : path != one.path)
            continue;
        *allowed += (allowed->empty() ? "" : ", ") + std::string(one.method);
        if (method == one.method && !found) found = &one;
    }
    return found;
}

static bool is_loopback(std::string host)
{
    for (char& c : host) c = char(tolower(uint8_t(c)));
    if (host.compare(0, 7, "http://") == 0) host = host.substr(7);
    if (host.compare(0, 8, "https://") == 0) host = host.substr(8);
    const size_t end = host[0] == '[' ? host.find(']') + 1 : host.find(':');
    host = host.substr(0, end);
    return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

// Pages of other hosts that resolve to this machine must not reach a server for this machine.
HttpError Router::check_origin(Exchange& exchange) const
{
    const std::string& host = exchange.header("host");
    if (m_options.loopback && !host.empty() && !is_loopback(host))
        return {403, "permission_error", "origin_not_allowed",
                "Host: expected localhost, found '" + printable(host, 80) + "'", ""};
    return {};
}

static bool equal_in_constant_time(const std::string& a, const std::string& b)
{
    uint8_t differs = a.size() != b.size();
    for (size_t i = 0; i < a.size(); i++)
        differs |= uint8_t(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
    return !differs && !b.empty();
}

HttpError Router::check_key(Exchange& exchange) const
{
    if (m_options.keys.empty()) return {};
    std::string given = exchange.header("x-api-key");
    const std::string& bearer = exchange.header("authorization");
    if (given.empty() && bearer.size() > 7 && strncasecmp(bearer.c_str(), "bearer ", 7) == 0)
        given = bearer.substr(7);
    bool found = false;
    for (size_t i = 0; i < m_options.keys.size(); i++)
        if (equal_in_constant_time(given, m_options.keys[i])) {
            found = true;
            exchange.key = fnv_bytes(given.data(), given.size());
        }
    if (found) return {};
    return {401, "authentication_error", "invalid_api_key", "Invalid API Key", ""};
}

HttpError Router::unavailable(bool balancer) const
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    if (!engine) return {503, "unavailable_error", "loading", "Loading model", "", 1};
    if (m_refuses || (balancer && m_n_signals > 0)) return draining();
    if (engine->is_lost()) return device_lost();
    return {};
}

HttpError Router::admit(Exchange& exchange)
{
    m_metrics.connections = m_server->n_connections();
    if (HttpError error = check_origin(exchange)) return error;
    if (exchange.method() == "OPTIONS") return {};
    std::string allowed;
    const Path* path = find(exchange, &allowed);
    if (!path && !allowed.empty()) {
        exchange.add_header("Allow", allowed);
        return {405, "invalid_request_error", "method_not_allowed",
                exchange.method() + ": this path has " + allowed, ""};
    }
    if (!path || !path->is_public)
        if (HttpError error = check_key(exchange)) return error;
    if (!path)
        return {404, "not_found_error", "no_such_path",
                "there is no " + printable(exchange.path(), 80), ""};
    if (path->needs_model && !std::atomic_load(&m_engine)) return unavailable();
    return {};
}

void Router::handle(const std::shared_ptr<Exchange>& exchange)
{
    if (exchange->method() == "OPTIONS") return exchange->answer(200, "", "text/plain");
    std::string allowed;
    const Path* path = find(*exchange, &allowed);
    if (const HttpError error = (this->*path->answer)(exchange)) exchange->fail(error);
}

void Router::close(Exchange& exchange)
{
    std::string endpoint = without_v1(exchange.path());
    std::string allowed;
    const Path* path = find(exchange, &allowed);
    endpoint = path ? path->path : "other";
    const int status = exchange.with_answer([](Exchange::Answer& answer) { return answer.status; });
    if (!exchange.counted) {
        exchange.counted = true;
        m_metrics.count_request(endpoint, status ? status : 499);
        if (m_options.json_log)
            fprintf(stderr, "%s\n",
                    Json::object({{"id", exchange.id()},
                                  {"method", exchange.method()},
                                  {"path", exchange.path()},
                                  {"status", status ? status : 499},
                                  {"ms", ms_between(exchange.begun, Clock::now())}})
                        .text()
                        .c_str());
    }
    if (const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine)) engine->wake();
}

void Router::add_headers(Exchange& exchange)
{
    exchange.add_header("x-request-id", exchange.id());
    exchange.add_header("X-Content-Type-Options", "nosniff");
    const std::string& origin = exchange.header("origin");
    const bool any = std::count(m_options.origins.begin(), m_options.origins.end(), "any");
    const bool listed = std::count(m_options.origins.begin(), m_options.origins.end(), origin) > 0;
    if (origin.empty() || !(any || listed || (origin != "null" && is_loopback(origin)))) return;
    exchange.add_header("Access-Control-Allow-Origin", origin);
    exchange.add_header("Vary", "Origin");
    exchange.add_header("Access-Control-Expose-Headers",
                        "x-request-id, X-Knapsack-Ignored, X-Conversation-Id, Retry-After");
    if (any) exchange.add_header("Access-Control-Allow-Credentials", "true");
    if (exchange.method() != "OPTIONS") return;
    const std::string& asked = exchange.header("access-control-request-headers");
    exchange.add_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    exchange.add_header("Access-Control-Allow-Headers",
                        any || asked.empty() ? "*" : printable(asked, 400));
    exchange.add_header("Access-Control-Max-Age", "86400");
}

// The process may have been stopped for a while, so a long time between two ticks counts little.
void Router::watch_steps(const Engine& engine)
{
    constexpr double kMostSeconds = 1;
    const double passed = ms_between(m_last_tick, Clock::now()) / 1e3;
    const int64_t last = engine.last_step();
    m_stuck = last && last == m_last_step ? m_stuck + std::min(passed, kMostSeconds) : 0.0;
    m_last_step = last;
    m_last_tick = Clock::now();
}

bool Router::tick()
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    if (engine) watch_steps(*engine);
    m_metrics.connections = m_server->n_connections();
    if (m_leaves || (engine && engine->is_lost())) return false;
    const int n_signals = m_n_signals;
    if (n_signals == 0) return true;
    if (!engine) return false;
    if (!m_drains) {
        m_drains = true;
        m_drain_begin = Clock::now();
        engine->drain(false);
        fprintf(stderr, "stopping: answers that are being made end first\n");
    }
    // Balancers need some time to see that /health fails.
    const auto time = Clock::now() - m_drain_begin;
    const seconds delay(m_options.drain_delay), most = delay + seconds(m_options.drain_seconds);
    const bool is_over = n_signals > 1 || time > most;
    if ((time >= delay || is_over) && !m_refuses) {
        m_refuses = true;
        engine->drain(true);
    }
    if (is_over && !m_cancelled) {
        m_cancelled = true;
        engine->cancel_all();
    }
    const bool sent = m_server->n_unsent() == 0 || time > most + seconds(5);
    return !(m_refuses && engine->is_quiet() && sent);
}

// Reads the body as JSON, makes a task of it and gives it to the engine.
HttpError Router::submit(const std::shared_ptr<Exchange>& exchange, MakeTask make)
{
    if (HttpError error = unavailable()) return error;
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    jinja::Value body;
    if (HttpError error = parse_body(exchange->body, &body)) return error;
    std::string().swap(exchange->body);
    Request request{m_info, engine->model(), exchange, Fields(body)};
    Task task;
    task.exchange = exchange;
    for (const char* name : {"x-conversation-id", "x-openwebui-chat-id"})
        if (task.hint.empty()) task.hint = exchange->header(name).substr(0, 64);
    if (HttpError error = make(request, &task)) return error;
    if (task.is_chat && !engine->seats().chat_template())
        return {501, "not_supported_error", "endpoint_off",
                "the model has no chat template that can be used (" +
                    engine->seats().template_status().message() +
                    "); start the server with --chat-template",
                ""};
    if (task.is_chat) complete_chat(m_info, &task);
    name_ignored(request);
    return engine->submit(std::move(task));
}

HttpError Router::chat(const std::shared_ptr<Exchange>& exchange)
{
    return submit(exchange, chat_task);
}

HttpError Router::completions(const std::shared_ptr<Exchange>& exchange)
{
    const bool is_openai = exchange->path().compare(0, 4, "/v1/") == 0;
    return submit(exchange, is_openai ? completions_task : native_task);
}

HttpError Router::native(const std::shared_ptr<Exchange>& exchange)
{
    return submit(exchange, native_task);
}

HttpError Router::messages(const std::shared_ptr<Exchange>& exchange)
{
    if (const HttpError error = submit(exchange, messages_task))
        exchange->fail(error, anthropic_error(error));
    return {};
}

HttpError Router::responses(const std::shared_ptr<Exchange>& exchange)
{
    return submit(exchange, responses_task);
}

HttpError Router::not_supported(const std::shared_ptr<Exchange>& exchange)
{
    return {501, "not_supported_error", "endpoint_off",
            "this server has no " + printable(exchange->path(), 80), ""};
}

} // namespace ks::serve
