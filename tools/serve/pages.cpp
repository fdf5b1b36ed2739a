// The endpoints that describe the server.
#include "tools/plan_json.h"
#include "tools/serve/answers.h"
#include "tools/serve/router.h"

#include <cstring>

namespace ks::serve
{

HttpError Router::health(const std::shared_ptr<Exchange>& exchange)
{
    if (HttpError error = unavailable(true)) {
        exchange->add_header("Retry-After", std::to_string(error.retry_after));
        const bool loads = !std::atomic_load(&m_engine);
        exchange->answer(503, "{\"error\":" + error.json() +
                                  (loads ? ",\"progress\":" + std::to_string(m_progress) : "") +
                                  "}");
        return {};
    }
    const double stuck = m_stuck;
    if (m_options.watchdog_seconds && stuck > m_options.watchdog_seconds)
        return {503,     "unavailable_error",
                "stuck", "no step has ended for " + std::to_string(int(stuck)) + " s",
                "",      5};
    exchange->answer(200, "{\"status\":\"ok\"}");
    return {};
}

HttpError Router::livez(const std::shared_ptr<Exchange>& exchange)
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    if (engine && engine->is_lost()) return device_lost();
    exchange->answer(200, "{\"status\":\"ok\"}");
    return {};
}

HttpError Router::models(const std::shared_ptr<Exchange>& exchange)
{
    const Model& model = std::atomic_load(&m_engine)->model();
    const Config& config = model.config();
    Json meta = Json::object({{"n_vocab", config.n_vocab},
                              {"n_ctx_train", config.n_context},
                              {"n_ctx", model.plan().context},
                              {"n_embd", config.dim},
                              {"n_params", m_info.n_parameters},
                              {"size", m_info.file_bytes}});
    Json one = Json::object({{"id", m_info.model_id},
                             {"object", "model"},
                             {"created", m_info.created},
                             {"owned_by", "knapsack"},
                             {"aliases", Json(m_info.aliases)},
                             {"tags", Json::array()},
                             {"meta", meta}});
    const std::string path = without_v1(exchange->path());
    if (path != "/models") {
        const std::string id = path.substr(8);
        if (std::find(m_info.aliases.begin(), m_info.aliases.end(), id) == m_info.aliases.end())
            return {404, "not_found_error", "model_not_found",
                    "this server has " + m_info.model_id + ", not '" + printable(id, 80) + "'", ""};
        exchange->answer(200, one.text());
        return {};
    }
    exchange->answer(200,
                     Json::object({{"object", "list"}, {"data", Json::array().push(one)}}).text());
    return {};
}

// The model's and the server's.
Router::MemoryBytes Router::memory_bytes() const
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    const Plan& plan = engine->model().plan();
    return {plan.budget_bytes + m_server_bytes, plan.total_bytes + m_server_bytes,
            engine->report().peak_bytes + m_server_bytes};
}

Json Router::bytes_json() const
{
    const MemoryBytes bytes = memory_bytes();
    return Json::object(
        {{"budget", bytes.budget}, {"planned", bytes.planned}, {"peak", bytes.peak}});
}

HttpError Router::metrics(const std::shared_ptr<Exchange>& exchange)
{
    if (!m_options.metrics)
        return {501, "not_supported_error", "endpoint_off",
                "this server was started with --no-metrics", ""};
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    const MemoryBytes bytes = memory_bytes();
    exchange->add_header("Process-Start-Time-Unix", std::to_string(m_begin));
    exchange->answer(200, m_metrics.text(bytes.budget, bytes.planned, bytes.peak),
                     "text/plain; version=0.0.4");
    return {};
}

HttpError Router::props(const std::shared_ptr<Exchange>& exchange)
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    const Model& model = engine->model();
    const Tokenizer& tokenizer = model.tokenizer();
    const auto token_text = [&](int64_t id) {
        return id < 0 ? std::string() : std::string(tokenizer.text(uint32_t(id)));
    };
    Json params = sampling_json(m_info.sampling);
    params.set("n_predict",
               m_info.most_answer == ~0ull ? int64_t(-1) : int64_t(m_info.most_answer));
    if (!m_info.has_seed) params.set("seed", 4294967295u);
    Json settings = Json::object({{"n_ctx", model.plan().context}, {"params", params}});
    Json json = Json::object({{"default_generation_settings", settings},
                              {"total_slots", m_info.n_sessions},
                              {"model_alias", m_info.model_id},
                              {"model_path", m_info.model_path},
                              {"chat_template", m_info.chat_template},
                              {"build_info", m_info.fingerprint}});
    json.set({{"bos_token", token_text(tokenizer.bos())},
              {"eos_token", token_text(tokenizer.eos())},
              {"is_sleeping", false},
              {"recipe", model.plan().recipe_text},
              {"chunk", model.plan().chunk},
              {"device", printable(model.device_name(), 200)}});
    json.set("limits", Json::object({{"body_seconds", kBodySeconds},
                                     {"idle_seconds", kIdleSeconds},
                                     {"stall_seconds", kStallSeconds},
                                     {"queue", uint64_t(engine->options().most_queued)},
                                     {"queue_seconds", engine->options().queue_seconds}}));
    json.set("memory", bytes_json());
    exchange->answer(200, json.text());
    return {};
}

HttpError Router::slots(const std::shared_ptr<Exchange>& exchange)
{
    if (!m_options.slots)
        return {501, "not_supported_error", "endpoint_off",
                "this server was started with --no-slots", ""};
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    Json list = Json::array();
    bool has_idle = false;
    for (const SeatReport& seat : engine->report().seats) {
        const bool works = !strcmp(seat.state, "active") || !strcmp(seat.state, "paused");
        has_idle |= !works;
        Json json = Json::object({{"id", seat.index},
                                  {"n_ctx", engine->model().plan().context},
                                  {"speculative", false},
                                  {"is_processing", works}});
        if (seat.was_used) {
            json.set("params", sampling_json(seat.sampling));
            json.set("next_token",
                     Json::array().push(Json::object({{"has_next_token", works},
                                                      {"n_remain", -1},
                                                      {"n_decoded", works ? seat.n_answer : 0}})));
        }
        json.set({{"conversation", seat.conversation.empty() ? Json() : Json(seat.conversation)},
                  {"n_tokens", seat.n_text},
                  {"slots_held", std::min(seat.n_text, seat.slots)},
                  {"idle_s", works || !seat.was_used ? 0 : seconds_since(seat.last_use)}});
        list.push(json);
    }
    if (!has_idle && exchange->query("fail_on_no_slot") == "1")
        return {503, "unavailable_error", "no_slot", "no slot available", "", 1};
    exchange->answer(200, list.text());
    return {};
}

HttpError Router::memory(const std::shared_ptr<Exchange>& exchange)
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    const Plan& plan = engine->model().plan();
    const EngineReport report = engine->report();
    Json regions = Json::array();
    for (const PlanRegion& region : plan.regions)
        regions.push(Json::object({{"name", region.name},
                                   {"bytes", region.bytes},
                                   {"scope", region.of_sessions ? "conversation" : "shared"}}));
    regions.push(
        Json::object({{"name", "server"}, {"bytes", m_server_bytes}, {"scope", "server"}}));
    Json seats = Json::array();
    for (const SeatReport& seat : report.seats) {
        const bool is_free = !strcmp(seat.state, "free");
        Json json = Json::object({{"id", seat.index},
                                  {"state", seat.state},
                                  {"conversation", is_free ? Json() : Json(seat.conversation)},
                                  {"text_tokens", seat.n_text},
                                  {"slots", seat.slots},
                                  {"rung", seat.rung_index}});
        json.set({{"recipe", seat.rung},
                  {"bytes", seat.bytes},
                  {"evicted", seat.evicted},
                  {"forgotten", seat.forgotten},
                  {"idle_s", is_free ? 0 : seconds_since(seat.last_use)},
                  {"parked", seat.parked}});
        seats.push(json);
    }
    Json json = bytes_json();
    json.set({{"regions", regions}, {"ladder", ladder_json(plan)}, {"seats", seats}});
    json.set({{"parked", Json::object({{"n", report.n_parked},
                                       {"bytes", report.parked_bytes},
                                       {"quota", report.most_parked_bytes}})},
              {"queue", Json::object({{"n", uint32_t(m_metrics.queued)}})}});
    exchange->answer(200, json.text());
    return {};
}

} // namespace ks::serve
