// bench: tokens per second, their share of the machine's limits, time per op, and a comparison with
// another program.
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"
#include "tools/option_groups.h"
#include "tools/program.h"

#include "runtime/kv/cache.h"
#include "runtime/model/gguf.h"
#include "runtime/model/tensor_names.h"

#include <cstring>

namespace ks
{

struct BenchOptions : SessionFlags, SeedFlag {
    std::vector<uint32_t> prompts, tokens{64}, depths{0}, sessions;
    uint32_t repetitions = 5;
    bool ops = false;
    std::string versus;
    std::string output = "table";

    BenchOptions() { session.recipe = "exact"; }
    void add_to(OptionTable& table)
    {
        add_session(table, "how the KV cache stores tokens; default: exact, like llama-bench");
        add_seed(table, "accepted as in `knapsack run`; no effect here");
        table.add_list("-p --n-prompt",
                       "prompt lengths to measure; 0: none; default: 512, with --sessions 0", 0,
                       1 << 24, &prompts);
        table.add_list("-n --n-gen", "numbers of tokens to generate; 0: none; default: 64", 0,
                       1 << 24, &tokens);
        table.add_list("-d --n-depth", "tokens already in the cache; default: 0", 0, 1 << 24,
                       &depths);
        table.add_list("--sessions",
                       "numbers of sessions that one model reads for, a token of each in a step; "
                       "default: 1",
                       1, kMaxSessions, &sessions);
        table.add_number("-r --repetitions", "repetitions of each test; default: 5", 1, 1000,
                         &repetitions);
        table.add_flag(
            "--ops",
            "print the time of each op (on GPUs by the device clock) and the kernels chosen", &ops);
        table.add(
            {"--versus", "COMMAND",
             "alternate each test with this shell command, to which -p -n -d -r are appended; "
             "print the ratio of the speeds",
             [this](const Value& v) { return v.filled("a command line", &versus); }});
        table.add({"-o --output", "FORMAT",
                   "output format: md, json, jsonl or csv; default: a table",
                   [this](const Value& v) { return read_output(v); }});
        table.add({"--json", nullptr, "the same as -o json",
                   [this](const Value&) { return output = "json", Status(); }});
    }
    Status finish()
    {
        if (prompts.empty()) prompts = {sessions.empty() ? 512u : 0u};
        return finish_session("bench");
    }

    Status read_output(const Value& v)
    {
        for (const char* format : {"md", "json", "jsonl", "csv"})
            if (!strcmp(v.text, format)) return v.string(&output);
        return v.wrong("md, json, jsonl or csv");
    }
};

// The work of a token with the weights of the whole model.
struct WeightsWork {
    uint64_t read_bytes = 0; // for one token: all weights, but one row of the embedding
    uint64_t idle_bytes = 0; // of these, experts that a token does not choose
    double layer_operations = 0, vocabulary_operations = 0;
};

static Result<WeightsWork> weights_work(const std::string& path)
{
    Result<Gguf> gguf = Gguf::open(path);
    if (!gguf.ok()) return gguf.status();
    Result<Config> config = read_config(gguf.value());
    if (!config.ok()) return config.status();
    Result<std::vector<TensorPart>> parts = bind_tensors(gguf.value(), config.value());
    if (!parts.ok()) return parts.status();
    WeightsWork work;
    work.read_bytes = weights_bytes(parts.value(), kRegionAlign);
    if (!config.value().tied)
        work.read_bytes -= weights_bytes({parts.value().front()}, kRegionAlign);
    work.vocabulary_operations = 2.0 * config.value().n_vocab * config.value().dim;
    const ExpertsConfig& experts = config.value().experts;
    for (const TensorPart& part : parts.value()) {
        if (part.rows <= 1 || part.role == Role::token_embd || part.role == Role::output) continue;
        double operations = 2.0 * part.rows * part.cols;
        if (part.of_experts() && part.is_matrix()) {
            const uint64_t bytes = weights_bytes({part}, kRegionAlign);
            work.idle_bytes += bytes / experts.n * (experts.n - experts.n_used);
            operations *= double(experts.n_used) / experts.n;
        }
        work.layer_operations += operations;
    }
    return work;
}

// Bytes of keys and values that attention reads for a token after `n_tokens`.
static uint64_t cache_read_bytes(const Session& session, uint32_t n_tokens)
{
    uint64_t bytes = 0;
    const PlanRung& rung = session.rung();
    for (const CacheLayerSpec& s :
         cache_specs(session.model().config().model_shape(), rung.recipe, rung.slots)) {
        const uint32_t n_slots = std::min(n_tokens, s.n_read ? s.n_read : s.n_slots),
                       n_coded = n_slots - std::min(n_slots, s.n_plain());
        for (Format format : {s.k, s.v}) {
            const uint64_t plain_bytes = (format == Format::f32 ? 4 : 2) * s.head_dim;
            const uint64_t coded_bytes =
                is_coded(format) ? codec_info(format).row_bytes(s.head_dim) : plain_bytes;
            bytes += s.n_kv_heads * (n_coded * coded_bytes + (n_slots - n_coded) * plain_bytes);
        }
    }
    return bytes;
}

static std::vector<BenchTest> list_tests(const BenchOptions& options, uint32_t n_sessions)
{
    std::vector<BenchTest> tests;
    for (uint32_t depth : options.depths) {
        for (uint32_t n : options.prompts)
            if (n) tests.push_back({false, n, depth, n_sessions});
        for (uint32_t n : options.tokens)
            if (n) tests.push_back({true, n, depth, n_sessions});
    }
    return tests;
}

// A fixed stream of ids, so that two runs do the same work.
static std::vector<uint32_t> random_ids(uint32_t n_vocab, size_t n)
{
    std::vector<uint32_t> ids(n);
    uint64_t state = 1;
    for (uint32_t& id : ids) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        id = uint32_t((state >> 33) % n_vocab);
    }
    return ids;
}

// The texts of one model that a test reads side by side.
using Sessions = std::vector<std::unique_ptr<Session>>;

// Brings the cache to exactly `depth` tokens. A cache that climbed or evicted slots is filled
// again, unless `depth` exceeds its slots: then every token costs the same.
static Status reach(Session& session, const uint32_t* ids, uint32_t depth)
{
    interrupt::watch(&session);
    if (session.n_tokens() > depth && (session.evicted() || session.n_climbs())) {
        if (depth >= session.plan().slots) return {};
        session.clear();
    }
    const uint32_t held = session.n_tokens();
    if (held >= depth) return session.rewind(depth);
    return session.feed(ids + held, depth - held);
}

// Text i reads the stream from its token i on, so experts are those of different tokens.
static Status reach_all(const Sessions& sessions, const std::vector<uint32_t>& ids, uint32_t depth)
{
    for (size_t i = 0; i < sessions.size(); i++) KS_TRY(reach(*sessions[i], &ids[i], depth));
    return {};
}

// Reads n tokens of each text: one each a step, or as much of a prompt as a step takes.
static Status read_all(const Sessions& sessions, const std::vector<uint32_t>& ids,
                       const BenchTest& test, uint32_t n, std::vector<double>* step_seconds)
{
    std::vector<StepInput> inputs(sessions.size());
    const uint32_t end = test.depth + n;
    for (uint32_t step = 0;; step++) {
        size_t n_left = 0;
        for (size_t i = 0; i < sessions.size(); i++) {
            StepInput& in = inputs[i];
            const uint32_t at = step ? uint32_t(in.ids + in.n_read - &ids[i]) : test.depth;
            in = {sessions[i].get(), &ids[i + at], test.decode ? at < end : end - at};
            n_left += end - at;
        }
        if (n_left == 0) return {};
        if (interrupt::pending()) return Status(Code::interrupted, "interrupted while measuring");
        Stopwatch clock;
        KS_TRY(sessions[0]->model().step(inputs.data(), inputs.size()));
        if (step_seconds) step_seconds->push_back(clock.seconds());
        for (const StepInput& in : inputs) KS_TRY(in.status);
    }
}

// Runs one repetition. warm_up: first a prompt or a token that does not count, like llama-bench.
static Status run_ours(const Sessions& sessions, TimedBackend* timed,
                       const std::vector<uint32_t>& ids, bool warm_up, BenchRow& row)
{
    const BenchTest& test = row.test;
    KS_TRY(reach_all(sessions, ids, test.depth));
    if (warm_up) {
        KS_TRY(read_all(sessions, ids, test, test.decode ? 1 : test.n, nullptr));
        KS_TRY(reach_all(sessions, ids, test.depth));
    }
    row.step_seconds.reserve(row.step_seconds.size() + size_t(test.n) * sessions.size());
    if (timed) timed->count(true);
    Stopwatch clock;
    KS_TRY(read_all(sessions, ids, test, test.n, &row.step_seconds));
    const double seconds = clock.seconds();
    if (timed) timed->count(false);
    row.seconds += seconds;
    row.ours.push_back(double(test.n) * double(sessions.size()) / seconds);
    return {};
}

static Status run_peer(const std::string& command, BenchRow& row)
{
    Result<double> speed = peer_tokens_per_second(command, row.test);
    if (!speed.ok()) return speed.status();
    row.peer.push_back(speed.value());
    return {};
}

static Status run_test(const Sessions& sessions, TimedBackend* timed,
                       const std::vector<uint32_t>& ids, const BenchOptions& options, BenchRow& row)
{
    const bool versus = !options.versus.empty();
    ProgressLine progress;
    if (timed) timed->reset();
    for (uint32_t r = 0; r < options.repetitions; r++) {
        if (versus) progress.show(("measuring " + row.test.name()).c_str(), r, options.repetitions);
        // The order alternates, so that a drift of the machine's speed cancels out.
        if (versus && r % 2 == 0) KS_TRY(run_peer(options.versus, row));
        KS_TRY(run_ours(sessions, timed, ids, versus, row));
        if (versus && r % 2 == 1) KS_TRY(run_peer(options.versus, row));
    }
    if (timed) {
        row.ops = timed->times();
        row.chosen = timed->chosen();
        row.by_device = timed->by_device();
    }
    row.hash = logits_hash(sessions[0]->logits(), sessions[0]->model().config().n_vocab);
    return {};
}

// A step reads the weights once for the tokens of all sessions.
static TokenWork token_work(const Session& session, const BenchRow& row, const WeightsWork& weights)
{
    const BenchTest& test = row.test;
    const double n_steps = double(row.step_seconds.size()), n_tokens = double(row.n_tokens());
    if (test.decode)
        return {double(weights.read_bytes - weights.idle_bytes) * n_steps / n_tokens +
                    double(cache_read_bytes(session, test.depth + test.n / 2)),
                weights.layer_operations + weights.vocabulary_operations};
    return {double(weights.read_bytes) * n_steps / n_tokens,
            weights.layer_operations + weights.vocabulary_operations / test.n};
}

// Opens one model with n sessions.
static Status open_sessions(const ModelOptions& options, uint32_t context, Sessions& sessions)
{
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options, progress);
    while (opened.ok()) {
        sessions.push_back(std::move(opened.value()));
        if (sessions.back()->n_free_tokens() < context)
            return fail(Code::no_fit,
                        "bench: the tests need a context of %u tokens, this one holds %u", context,
                        sessions.back()->plan().context);
        if (sessions.size() == options.n_sessions) return {};
        opened = sessions.back()->model().open_session();
    }
    return opened.status();
}

// All tests with one number of sessions, in one model.
static Status run_tests(const BenchOptions& options, const WeightsWork& weights,
                        const std::vector<BenchTest>& tests, BenchReport& report)
{
    uint32_t context = 0;
    for (const BenchTest& test : tests) context = std::max(context, test.depth + test.n);
    ModelOptions session_options = options.session;
    session_options.n_sessions = tests[0].n_sessions;
    // `auto` is measured in the context that the budget gives, as `run` and `chat` use it.
    const Result<Recipe> recipe = parse_recipe(session_options.recipe);
    const bool automatic = recipe.ok() && recipe.value().automatic;
    if (session_options.context < 0 && !automatic) session_options.context = context;
    TimedBackend* timed = nullptr;
    if (options.ops)
        session_options.wrap = [&](std::unique_ptr<Backend> backend) {
            timed = new TimedBackend(std::move(backend));
            return std::unique_ptr<Backend>(timed);
        };
    Sessions sessions;
    KS_TRY(open_sessions(session_options, context, sessions));
    if (timed)
        if (Status clock = timed->start(); !clock.ok()) {
            fprintf(stderr, "--ops: %s\n", clock.message().c_str());
            timed = nullptr;
        }
    Session& session = *sessions[0];
    const Model& model = session.model();
    const std::vector<uint32_t> ids = random_ids(model.config().n_vocab, context + sessions.size());
    // Warms up prefill and decode.
    KS_TRY(session.feed(ids.data(), std::min(context, session.plan().chunk)));
    if (session.n_tokens() < context) KS_TRY(session.feed(ids.data(), 1));
    session.clear();
    for (const BenchTest& test : tests) {
        report.rows.emplace_back();
        BenchRow& row = report.rows.back();
        row.test = test;
        KS_TRY(run_test(sessions, timed, ids, options, row));
        row.work = token_work(session, row, weights);
        row.plan = model.plan();
        row.peak_bytes = model.ledger().peak_bytes();
    }
    report.device_name = model.device_name();
    interrupt::watch(nullptr); // the sessions end here
    return {};
}

static Status bench(const BenchOptions& options)
{
    if (list_tests(options, 1).empty())
        return Status(Code::usage, "bench: nothing to measure; -p or -n needs a number above 0");
    Result<WeightsWork> weights = weights_work(options.session.model_path);
    if (!weights.ok()) return weights.status();
    BenchReport report;
    report.model = file_name(options.session.model_path);
    report.versus = options.versus;
    report.of_sessions = !options.sessions.empty();
    // Measured before and after the tests. The higher result counts: other programs only lower it.
    CpuPeaks before = measure_cpu_peaks(options.session.n_threads);
    for (uint32_t n : report.of_sessions ? options.sessions : std::vector<uint32_t>{1})
        KS_TRY(run_tests(options, weights.value(), list_tests(options, n), report));
    CpuPeaks after = measure_cpu_peaks(options.session.n_threads);
    report.peaks = {std::max(before.bytes_per_second, after.bytes_per_second),
                    std::max(before.int8_ops_per_second, after.int8_ops_per_second)};
    print_bench(report, options.output);
    return {};
}

extern const Command command_bench = {
    "bench", "measure tokens per second and their share of the machine's limits",
    "-m MODEL [options]",
    "Tests: ppN reads a prompt of N tokens at once, tgN generates N tokens one by one. @D means "
    "after D tokens, xS that S sessions of one model do so together; tokens/s counts all of them.\n"
    "The context is as long as the tests need; with --kv auto it is as long as fits.\n"
    "GB/s: weights and KV cache that each token reads; for pp the weights, once per chunk. Gop/s: "
    "multiplications and additions with weights. The share is that of the nearer limit: memory "
    "bandwidth, or the peak of int8 dot products. Both are measured with the same number of "
    "threads before and after the tests. Float weights cannot come near the int8 peak.\n"
    "--versus: COMMAND must print JSON, like 'llama-bench -m MODEL -o json' or another build's "
    "'knapsack bench -m MODEL --json'. It runs once per repetition of a test, with '-p N -n N -d N "
    "-r 1' appended. The two programs alternate in going first.",
    start_command<BenchOptions, bench>};

} // namespace ks
