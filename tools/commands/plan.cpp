// plan: the memory that a model and its sessions would allocate.
#include "tools/json.h"
#include "tools/option_groups.h"
#include "tools/plan_json.h"
#include "tools/program.h"
#include "tools/serve/server_size.h"
#include "tools/sessions.h"
#include "tools/terminal/memory_view.h"

#include "runtime/model/gguf.h"

#include <cstring>

namespace ks
{

struct PlanOptions : SessionFlags, SeedFlag, GrammarFlags {
    bool json = false;
    bool of_sessions = false; // --sessions was given
    bool wants_most = false;  // --sessions max
    bool serves = false;      // --serve
    serve::ServerSize server;

    void add_to(OptionTable& table)
    {
        add_session(table);
        table.add({"--sessions --conversations", "N|max",
                   "plan for N sessions of one model; max: for as many as fit with 256 slots each, "
                   "or those of -c or of the recipe; default: 1",
                   [this](const Value& v) {
                       of_sessions = true;
                       return read_sessions(v, &session.n_sessions, &wants_most);
                   }});
        table.add_flag("--serve",
                       "plan for `knapsack serve`: its connections and requests are counted too, "
                       "and --conversations means --sessions",
                       &serves);
        server.add_to(table);
        add_seed(table, "accepted as in `knapsack run`; no effect here");
        add_grammar(table);
        add_json(table, &json);
    }
    Status finish()
    {
        KS_TRY(finish_session("plan"));
        KS_TRY(finish_grammar(session));
        if (serves && !of_sessions) session.n_sessions = serve::kConversations;
        of_sessions |= serves;
        return serves ? server.prepare(session) : Status();
    }
};

// model: the plan without the memory of a server.
static void print_json(const Plan& plan, const Plan& model, const PlanOptions& options)
{
    Json regions = Json::array();
    for (const PlanRegion& region : plan.regions)
        regions.push(Json::object(
            {{"name", region.name}, {"bytes", region.bytes}, {"on_device", region.on_device}}));
    Json json = Json::object({{"model", file_name(options.session.model_path)},
                              {"fits", plan.fits},
                              {"budget_bytes", plan.budget_bytes}});
    json.set({{"kv_budget_bytes", plan.kv_budget_bytes},
              {"total_bytes", plan.total_bytes},
              {"smallest_bytes", plan.smallest_bytes}});
    json.set({{"context", plan.context},
              {"slots", plan.slots},
              {"chunk", plan.chunk},
              {"bytes_in_file", plan.bytes_in_file},
              {"bytes_per_token", plan.bytes_per_token}});
    json.set({{"layers", plan.n_layers},
              {"cached_layers", plan.n_cached_layers},
              {"state_layers", plan.n_state_layers},
              {"snapshots", plan.n_snapshots}});
    json.set({{"sessions", plan.n_sessions}, {"bytes_per_session", plan.session_bytes()}});
    if (options.of_sessions && plan.fits)
        json.set("most_sessions", std::max(plan.n_sessions, most_sessions(options.session, model,
                                                                          plan.n_sessions, true)));
    json.set("ladder", ladder_json(plan));
    json.set({{"recipe", plan.recipe_text},
              {"grade", plan.study.empty() ? "product" : "study"},
              {"device", plan.device},
              {"regions", regions}});
    json.print();
}

// The trained context of the model; 0 if unknown. The plan already read the file, so errors are
// ignored here.
static uint32_t model_context(const std::string& path)
{
    Result<Gguf> gguf = Gguf::open(path);
    if (!gguf.ok()) return 0;
    Result<Config> config = read_config(gguf.value());
    return config.ok() ? config.value().n_context : 0;
}

// Up to how many tokens a text is held in each recipe.
static void print_ladder(const Plan& plan)
{
    const char* begin = "ladder";
    for (const PlanRung& rung : plan.rungs) {
        if (plan.rungs.size() < 2 || !rung.slots) continue;
        const std::string codecs = std::string("k=") + codec_info(rung.recipe.k).name +
                                   ",v=" + codec_info(rung.recipe.v).name;
        printf("  %-12s every token %s up to %s%s\n", begin,
               rung.recipe.codes() ? ("in " + codecs).c_str() : "exact",
               grouped(rung.slots).c_str(),
               &rung == &plan.rungs.back() ? ", then tokens are given up" : "");
        begin = "";
    }
}

// What a session costs, how many fit with the slots in force, and how many slots other numbers
// have.
static void print_sessions(const Plan& plan, const ModelOptions& options)
{
    const uint32_t n = plan.n_sessions;
    printf("  %-12s %u, %s %s of its own", "sessions", n, n > 1 ? "each has" : "with",
           human_bytes(plan.session_bytes()).c_str());
    if (!plan.fits) return (void)printf("\n");
    const uint32_t most = std::max(n, most_sessions(options, plan, n, true));
    Plan like = plan;
    like.budget_bytes += 2 * plan.session_bytes();
    Result<Plan> next = plan_sessions(options, like, n + 1, true);
    if (next.ok()) printf(", one more costs %s", human_bytes(next.value().session_bytes()).c_str());
    printf("\n  %-12s the budget has room for %u%s with %s slots", "", most,
           most == kMaxSessions ? ", the most that a model can have," : "",
           grouped(plan.slots).c_str());
    for (uint32_t other = 2 * n; other <= kMaxSessions; other *= 2) {
        Result<Plan> fewer = plan_sessions(options, plan, other, false);
        if (!fewer.ok() || !fewer.value().fits || fewer.value().slots < kLeastOfRung) break;
        if (fewer.value().slots < plan.slots)
            printf(", for %u with %s", other, grouped(fewer.value().slots).c_str());
    }
    printf("\n");
    if (plan.moves_shares)
        printf("  %-12s that is with all of them open: one alone has the caches of all\n", "");
}

static void print_table(const Plan& plan, const Plan& model, const PlanOptions& options)
{
    std::string device = plan.device;
    for (const DeviceInfo& info : list_devices())
        if (info.id == plan.device) device += " (" + printable(info.name, 200) + ")";
    printf("%s on %s\n\n", file_name(options.session.model_path).c_str(), device.c_str());
    print_memory(stdout, plan);
    if (options.session.memory_bytes == 0)
        printf("  %-12s without --memory the budget is the free memory of the device\n", "");
    printf("\n  %-12s %s tokens", "context", grouped(plan.context).c_str());
    if (uint32_t most = model_context(options.session.model_path))
        printf(", the model was trained with %s", grouped(most).c_str());
    printf("\n  %-12s %s slots per KV head, %s bytes per token", "cache",
           grouped(plan.slots).c_str(), grouped(plan.bytes_per_token).c_str());
    if (plan.kv_budget_bytes) printf(", --kv-memory %s", human_bytes(plan.kv_budget_bytes).c_str());
    if (plan.n_state_layers)
        printf("\n  %-12s %u of %u hold a cache, %u a state of fixed size, kept in %u snapshot%s",
               "layers", plan.n_cached_layers, plan.n_layers, plan.n_state_layers, plan.n_snapshots,
               plan.n_snapshots == 1 ? "" : "s");
    printf("\n  %-12s %s\n", "recipe", plan.recipe_text.c_str());
    print_ladder(plan);
    if (!plan.study.empty()) printf("  %-12s study: %s\n", "grade", plan.study.c_str());
    if (plan.bytes_in_file)
        printf("  %-12s %s of the weights stay there, and rows of them are read\n", "file",
               human_bytes(plan.bytes_in_file).c_str());
    printf("  %-12s a prompt is read in chunks of %u tokens\n", "chunk", plan.chunk);
    if (options.of_sessions) print_sessions(model, options.session);
    printf("  %-12s --memory %llu (%s)%s\n", "smallest", (unsigned long long)plan.smallest_bytes,
           human_bytes(plan.smallest_bytes).c_str(),
           options.session.context < 0 ? ", with a short context" : "");
    if (plan.exceeds_range())
        printf("\nIt does not fit: %s.\n", no_fit(plan).message().c_str());
    else
        printf("\n%s\n", plan.fits
                             ? "It fits."
                             : "It does not fit. Raise --memory to the smallest budget, lower -c, "
                               "or use a smaller model.");
}

static Status plan(const PlanOptions& options)
{
    Result<Plan> made = make_plan(options.session);
    if (!made.ok()) return made.status();
    if (options.wants_most && made.value().fits) {
        const uint32_t most = most_sessions(options.session, made.value(), 1, false);
        made = plan_sessions(options.session, made.value(), most, false);
        if (!made.ok()) return made.status();
    }
    const Plan& model = made.value();
    const Plan plan = options.serves ? options.server.counted_in(model) : model;
    if (options.session.device.empty() && options.json)
        fprintf(stderr, "device: %s\n", plan.device.c_str());
    if (options.json)
        print_json(plan, model, options);
    else
        print_table(plan, model, options);
    return plan.fits ? Status()
                     : with_flags(no_fit(plan), Code::no_fit, "--memory, --kv-memory, -c");
}

extern const Command command_plan = {
    "plan",
    "print the memory that a model and its sessions would allocate, without loading the model",
    "-m MODEL [options]", "Reads only the header of the model file.",
    start_command<PlanOptions, plan>};

} // namespace ks
