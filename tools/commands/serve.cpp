// serve: answers requests over HTTP in the form of OpenAI, llama.cpp and Anthropic.
#include "tools/json.h"
#include "tools/serve/router.h"
#include "tools/serve/server_size.h"
#include "tools/sessions.h"
#include "tools/terminal/memory_view.h"

#include "runtime/api/knapsack.h"
#include "runtime/base/hash.h"
#include "runtime/model/gguf.h"

#include <csignal>
#include <cstring>
#include <sys/stat.h>

namespace ks
{

struct ServeOptions : SessionFlags, SamplingFlags {
    serve::HttpOptions http;
    serve::RouterOptions router;
    serve::EngineOptions engine;
    serve::ServerSize size;
    ChatTemplateFlags chat_template;
    std::vector<std::string> aliases;
    std::string key_file, park_folder;
    uint64_t park_bytes = 1 << 30;
    bool most_conversations = false, no_key = false, strict_model = false;
    bool no_page = false, no_slots = false, no_metrics = false;

    void add_to(OptionTable& table);
    void add_conversations(OptionTable& table);
    void add_access(OptionTable& table);
    Status finish();
    Status read_keys();
};

void ServeOptions::add_conversations(OptionTable& table)
{
    table.add({"--conversations", "N|max",
               "that are held at once; max: as many as fit with 256 slots each; default: 4",
               [this](const Value& v) {
                   return read_sessions(v, &session.n_sessions, &most_conversations);
               }});
    table.add_number("--queue", "requests that may wait; more are answered with 429; default: 16",
                     0, 1000, &engine.most_queued);
    table.add_number("--queue-wait", "seconds that a request may wait; default: 30", 1, 86400,
                     &engine.queue_seconds);
    table.add_text("--park", "DIR",
                   "keep idle conversations as session files in this folder; default: off",
                   &park_folder);
    table.add({"--park-bytes", "SIZE", "of these files; the oldest are removed; default: 1GiB",
               [this](const Value& v) { return v.bytes(&park_bytes); }});
    table.add_number("--park-after",
                     "seconds without a request until a conversation is parked; -1: when its "
                     "memory is needed; default: 30",
                     -1, 1 << 30, &engine.seats.park_after);
    table.add_text("--slot-save-path", "DIR", "folder of /slots?action=save; default: off",
                   &router.slot_folder);
    chat_template.add_template(table);
}

void ServeOptions::add_access(OptionTable& table)
{
    table.add_text("--host", "NAME", "address to listen on; default: 127.0.0.1", &http.host);
    table.add_number("--port", "to listen on; 0: any free one; default: 8080", 0, 65535,
                     &http.port);
    table.add_text("--unix", "PATH", "listen on a socket of the file system instead",
                   &http.unix_path);
    table.add({"--api-key", "KEY", "that requests must give; may be repeated; default: none",
               [this](const Value& v) {
                   router.keys.push_back(v.text);
                   return Status();
               },
               "KNAPSACK_API_KEY"});
    table.add_text("--api-key-file", "FILE", "a key in each line", &key_file);
    table.add_flag("--no-key", "listen on other addresses than this machine's without a key",
                   &no_key);
    table.add({"--cors-origin", "ORIGIN|any",
               "of pages that may use this server; may be repeated; default: those of this machine",
               [this](const Value& v) {
                   router.origins.push_back(v.text);
                   return Status();
               }});
    table.add_flag("--no-ui", "no page at /", &no_page);
    table.add_flag("--no-slots", "no /slots", &no_slots);
    table.add_flag("--no-metrics", "no /metrics", &no_metrics);
    table.add_number("--drain", "seconds that answers may take after SIGTERM; default: 60", 0,
                     86400, &router.drain_seconds);
    table.add_number("--drain-delay",
                     "seconds after SIGTERM in which connections are still taken; default: 0", 0,
                     3600, &router.drain_delay);
    table.add_number("--watchdog",
                     "seconds without a step until /health fails; 0: never; default: 60", 0, 86400,
                     &router.watchdog_seconds);
    table.add({"--log", "text|json", "json: a line for each request; default: text",
               [this](const Value& v) {
                   router.json_log = !strcmp(v.text, "json");
                   return router.json_log || !strcmp(v.text, "text") ? Status()
                                                                     : v.wrong("text or json");
               }});
}

void ServeOptions::add_to(OptionTable& table)
{
    session.n_sessions = serve::kConversations;
    add_session(table);
    add_conversations(table);
    size.add_to(table);
    add_access(table);
    table.add({"--alias", "NAME", "of the model; names separated by commas; default: its file name",
               [this](const Value& v) { return v.names(&aliases); }});
    table.add_flag("--strict-model", "refuse requests for models of other names", &strict_model);
    n_predict = -1;
    table.add({"-n --n-predict --max-answer", "N",
               "tokens of an answer where the request names no number; -1: as many as fit, at most "
               "4096 where tokens are given up; default: -1",
               [this](const Value& v) { return v.number(-1, INT32_MAX, &n_predict); }});
    add_sampling(table);
}

Status ServeOptions::read_keys()
{
    if (key_file.empty()) return {};
    std::string text;
    KS_TRY(read_file(key_file, &text));
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
        end = std::min(text.find('\n', at), text.size());
        std::string line = text.substr(at, end - at);
        while (!line.empty() && isspace(uint8_t(line.back()))) line.pop_back();
        if (!line.empty()) router.keys.push_back(line);
    }
    return router.keys.empty() ? fail(Code::usage, "--api-key-file: %s has no key",
                                      printable(key_file, 200).c_str())
                               : Status();
}

Status ServeOptions::finish()
{
    KS_TRY(serve::HttpServer::check_built());
    KS_TRY(finish_session("serve"));
    KS_TRY(finish_sampling());
    KS_TRY(read_keys());
    engine.seats.chat_template = chat_template.chosen;
    router.loopback = !http.unix_path.empty() || http.host == "localhost" || http.host == "::1" ||
                      http.host == "[::1]" || http.host.compare(0, 4, "127.") == 0;
    router.page = !no_page;
    router.slots = !no_slots;
    router.metrics = !no_metrics;
    if (!router.loopback && router.keys.empty() && !no_key)
        return fail(Code::usage,
                    "--host: %s can be reached from other machines, so give --api-key, or --no-key",
                    printable(http.host, 80).c_str());
    return {};
}

static serve::Router* g_router = nullptr;
static serve::HttpServer* g_server = nullptr;

static void on_stop(int)
{
    g_router->drain();
    g_server->wake();
}

static void catch_signals(serve::Router& router, serve::HttpServer& server)
{
    g_router = &router;
    g_server = &server;
    struct sigaction action = {};
    action.sa_handler = on_stop;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
}

static serve::ServerInfo server_info(const ServeOptions& options, const Model& model)
{
    serve::ServerInfo info;
    std::string name = file_name(options.session.model_path);
    if (name.size() > 5 && name.substr(name.size() - 5) == ".gguf") name.resize(name.size() - 5);
    info.aliases = options.aliases.empty() ? std::vector<std::string>{name} : options.aliases;
    std::sort(info.aliases.begin(), info.aliases.end());
    info.model_id = info.aliases[0];
    info.model_path = options.session.model_path;
    struct stat file;
    if (stat(info.model_path.c_str(), &file) == 0) {
        info.created = int64_t(file.st_mtime);
        info.file_bytes = uint64_t(file.st_size);
    }
    if (Result<Gguf> gguf = Gguf::open(info.model_path); gguf.ok())
        for (const GgufTensor& tensor : gguf.value().tensors())
            info.n_parameters += tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    const uint64_t hash = fnv_bytes(&info.file_bytes, 8, fnv_bytes(name.data(), name.size()));
    char text[64];
    snprintf(text, sizeof text, "b%d.%d-%08x", KS_VERSION_MAJOR, KS_VERSION_MINOR, unsigned(hash));
    info.fingerprint = text;
    info.chat_template = options.engine.seats.chat_template.empty()
                             ? model.chat_template()
                             : options.engine.seats.chat_template;
    info.strict_model = options.strict_model;
    constexpr uint64_t kMostAnswer = 4096;
    if (options.n_predict >= 0)
        info.most_answer = uint64_t(options.n_predict);
    else if (!model.plan().recipe.exact())
        info.most_answer = kMostAnswer;
    info.sampling = options.sampling;
    info.has_seed = options.has_seed;
    info.n_sessions = model.plan().n_sessions;
    return info;
}

// Opens the model while the server answers that it is loading.
static Status open_engine(const ServeOptions& options, serve::Router& router,
                          serve::Metrics& metrics, std::shared_ptr<serve::Engine>* out)
{
    ModelOptions model_options = options.session;
    model_options.progress = [&router](const char* stage, uint64_t done, uint64_t total) {
        if (strcmp(stage, "loading weights") != 0) return true;
        router.set_progress(total ? double(done) / double(total) : 0);
        return !router.stops();
    };
    Result<std::shared_ptr<Model>> model = Model::open(model_options);
    if (!model.ok()) return model.status();
    serve::Parking parking;
    if (!options.park_folder.empty()) {
        umask(0077);
        Result<serve::Parking> opened =
            serve::Parking::open(options.park_folder, options.park_bytes);
        if (!opened.ok()) return opened.status();
        parking = std::move(opened.value());
    }
    auto engine = std::make_shared<serve::Engine>(options.engine, metrics);
    KS_TRY(engine->open(model.value(), std::move(parking)));
    *out = engine;
    router.set_engine(engine, server_info(options, *model.value()), options.size.bytes());
    return {};
}

static Status serve_model(ServeOptions options)
{
    KS_TRY(options.size.prepare(options.session));
    Result<Plan> plan = make_plan(options.session);
    if (!plan.ok()) return plan.status();
    if (options.most_conversations && plan.value().fits) {
        options.session.n_sessions = most_sessions(options.session, plan.value(), 1, false);
        plan = make_plan(options.session);
        if (!plan.ok()) return plan.status();
    }
    const Plan counted = options.size.counted_in(plan.value());
    if (!counted.fits)
        return with_flags(no_fit(counted), Code::no_fit, "--memory, --conversations");
    print_memory(stderr, counted);
    fprintf(stderr, "conversations: %u, each of at most %s tokens%s; recipe %s on %s\n",
            counted.n_sessions, grouped(counted.context).c_str(),
            counted.recipe.exact() ? "" : ", beyond which tokens are given up",
            counted.recipe_text.c_str(), counted.device.c_str());
    options.http.n_connections = options.size.n_connections;
    options.http.body_bytes = options.size.body_bytes;
    options.http.request_bytes = options.size.request_bytes;
    serve::Metrics metrics;
    serve::Router router(options.router, metrics);
    Result<std::unique_ptr<serve::HttpServer>> opened =
        serve::HttpServer::open(options.http, router);
    if (!opened.ok()) return opened.status();
    serve::HttpServer& server = *opened.value();
    router.set_server(&server);
    catch_signals(router, server);
    fprintf(stderr, "listening on %s\n", server.address().c_str());
    Status status;
    std::shared_ptr<serve::Engine> engine;
    std::thread opener([&] {
        status = open_engine(options, router, metrics, &engine);
        if (!status.ok()) router.leave();
        server.wake();
    });
    server.run();
    router.leave();
    opener.join();
    if (engine) engine->stop();
    if (engine && engine->is_lost()) return Status(Code::device, "the device failed");
    if (!status.ok() && status.code() != Code::interrupted) return status;
    if (engine)
        fprintf(stderr, "peak %s, planned %s\n",
                human_bytes(engine->report().peak_bytes + options.size.bytes()).c_str(),
                human_bytes(counted.total_bytes).c_str());
    return {};
}

static Status serve_command(const ServeOptions& options)
{
    return serve_model(options);
}

extern const Command command_serve = {
    "serve", "answer requests over HTTP, in the form of OpenAI, llama.cpp and Anthropic",
    "-m MODEL [options]",
    "Several conversations share the budget. Each goes on from what it holds; idle ones give "
    "memory to others, and with --park they are kept in files.\n"
    "SIGTERM ends the server when the answers that are being made are complete.",
    start_command<ServeOptions, serve_command>};

} // namespace ks
