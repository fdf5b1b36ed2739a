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
    std::vector<uint32_t> prompts{512}, tokens{64}, depths{0};
    uint32_t repetitions = 5;
    bool ops = false;
    std::string versus;
    std::string output = "table";

    BenchOptions() { session.recipe = "exact"; }
    void add_to(OptionTable& table)
    {
        add_session(table, "how the KV cache stores tokens; default: exact, like llama-bench");
        add_seed(table, "accepted as in `knapsack run`; no effect here");
        table.add_list("-p --n-prompt", "prompt lengths to measure; 0: none; default: 512", 0,
                       1 << 24, &prompts);
        table.add_list("-n --n-gen", "numbers of tokens to generate; 0: none; default: 64", 0,
                       1 << 24, &tokens);
        table.add_list("-d --n-depth", "tokens already in the cache; default: 0", 0, 1 << 24,
                       &depths);
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
    Status finish() { return finish_session("bench"); }

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

static std::vector<BenchTest> list_tests(const BenchOptions& options)
{
    std::vector<BenchTest> tests;
    for (uint32_t depth : options.depths) {
        for (uint32_t n : options.prompts)
            if (n) tests.push_back({false, n, depth});
        for (uint32_t n : options.tokens)
            if (n) tests.push_back({true, n, depth});
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

// Brings the cache to exactly `depth` tokens. A cache that climbed or evicted slots is filled
// again, unless `depth` exceeds its slots: then every token costs the same.
static Status reach(Session& session, const std::vector<uint32_t>& ids, uint32_t depth)
{
    if (session.n_tokens() > depth && (session.evicted() || session.n_climbs())) {
        if (depth >= session.plan().slots) return {};
        session.clear();
    }
    const uint32_t held = session.n_tokens();
    if (held >= depth) return session.rewind(depth);
    return session.feed(ids.data() + held, depth - held);
}

// Runs one repetition. warm_up: first a prompt or a token that does not count, like llama-bench.
static Status run_ours(Session& session, TimedBackend* timed, const std::vector<uint32_t>& ids,
                       bool warm_up, BenchRow& row)
{
    const BenchTest& test = row.test;
    const uint32_t* next = ids.data() + test.depth;
    KS_TRY(reach(session, ids, test.depth));
    if (warm_up) {
        KS_TRY(session.feed(next, test.decode ? 1 : test.n));
        KS_TRY(reach(session, ids, test.depth));
    }
    if (timed) timed->count(true);
    Stopwatch clock;
    if (!test.decode) KS_TRY(session.feed(next, test.n));
    for (uint32_t i = 0; test.decode && i < test.n; i++) KS_TRY(session.feed(next + i, 1));
    const double seconds = clock.seconds();
    if (timed) timed->count(false);
    row.seconds += seconds;
    row.ours.push_back(test.n / seconds);
    if (interrupt::pending()) return Status(Code::interrupted, "interrupted while measuring");
    return {};
}

static Status run_peer(const std::string& command, BenchRow& row)
{
    Result<double> speed = peer_tokens_per_second(command, row.test);
    if (!speed.ok()) return speed.status();
    row.peer.push_back(speed.value());
    return {};
}

static Status run_test(Session& session, TimedBackend* timed, const std::vector<uint32_t>& ids,
                       const BenchOptions& options, BenchRow& row)
{
    const bool versus = !options.versus.empty();
    ProgressLine progress;
    if (timed) timed->reset();
    for (uint32_t r = 0; r < options.repetitions; r++) {
        if (versus) progress.show(("measuring " + row.test.name()).c_str(), r, options.repetitions);
        // The order alternates, so that a drift of the machine's speed cancels out.
        if (versus && r % 2 == 0) KS_TRY(run_peer(options.versus, row));
        KS_TRY(run_ours(session, timed, ids, versus, row));
        if (versus && r % 2 == 1) KS_TRY(run_peer(options.versus, row));
    }
    if (timed) {
        row.ops = timed->times();
        row.chosen = timed->chosen();
        row.by_device = timed->by_device();
    }
    row.hash = logits_hash(session.logits(), session.model().config().n_vocab);
    return {};
}

static TokenWork token_work(const Session& session, const BenchTest& test,
                            const WeightsWork& weights)
{
    if (test.decode)
        return {double(weights.read_bytes - weights.idle_bytes +
                       cache_read_bytes(session, test.depth + test.n / 2)),
                weights.layer_operations + weights.vocabulary_operations};
    uint32_t n_chunks = (test.n + session.plan().chunk - 1) / session.plan().chunk;
    return {double(weights.read_bytes) * n_chunks / test.n,
            weights.layer_operations + weights.vocabulary_operations / test.n};
}

// All tests in one session.
static Status run_tests(const BenchOptions& options, const WeightsWork& weights,
                        const std::vector<BenchTest>& tests, BenchReport& report)
{
    uint32_t context = 0;
    for (const BenchTest& test : tests) context = std::max(context, test.depth + test.n);
    ModelOptions session_options = options.session;
    if (session_options.context < 0) session_options.context = context;
    TimedBackend* timed = nullptr;
    if (options.ops)
        session_options.wrap = [&](std::unique_ptr<Backend> backend) {
            timed = new TimedBackend(std::move(backend));
            return std::unique_ptr<Backend>(timed);
        };
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(session_options, progress);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    if (session.n_free_tokens() < context)
        return fail(Code::no_fit, "bench: the tests need a context of %u tokens, this one holds %u",
                    context, session.plan().context);
    if (timed)
        if (Status clock = timed->start(); !clock.ok()) {
            fprintf(stderr, "--ops: %s\n", clock.message().c_str());
            timed = nullptr;
        }
    std::vector<uint32_t> ids = random_ids(session.model().config().n_vocab, context);
    // Warms up prefill and decode.
    KS_TRY(session.feed(ids.data(), std::min(context, session.plan().chunk)));
    if (session.n_tokens() < context) KS_TRY(session.feed(ids.data(), 1));
    session.clear();
    for (const BenchTest& test : tests) {
        report.rows.emplace_back();
        report.rows.back().test = test;
        report.rows.back().work = token_work(session, test, weights);
        KS_TRY(run_test(session, timed, ids, options, report.rows.back()));
    }
    report.plan = session.plan();
    report.device_name = session.model().device_name();
    report.peak_bytes = session.model().ledger().peak_bytes();
    interrupt::watch(nullptr); // the session ends here
    return {};
}

static Status bench(const BenchOptions& options)
{
    std::vector<BenchTest> tests = list_tests(options);
    if (tests.empty())
        return Status(Code::usage, "bench: nothing to measure; -p or -n needs a number above 0");
    Result<WeightsWork> weights = weights_work(options.session.model_path);
    if (!weights.ok()) return weights.status();
    BenchReport report;
    report.model = file_name(options.session.model_path);
    report.versus = options.versus;
    // Measured before and after the tests. The higher result counts: other programs only lower it.
    CpuPeaks before = measure_cpu_peaks(options.session.n_threads);
    KS_TRY(run_tests(options, weights.value(), tests, report));
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
    "after D tokens.\n"
    "GB/s: weights and KV cache that each token reads; for pp the weights, once per chunk. Gop/s: "
    "multiplications and additions with weights. The share is that of the nearer limit: memory "
    "bandwidth, or the peak of int8 dot products. Both are measured with the same number of "
    "threads before and after the tests. Float weights cannot come near the int8 peak.\n"
    "--versus: COMMAND must print JSON, like 'llama-bench -m MODEL -o json' or another build's "
    "'knapsack bench -m MODEL --json'. It runs once per repetition of a test, with '-p N -n N -d N "
    "-r 1' appended. The two programs alternate in going first.",
    start_command<BenchOptions, bench>};

} // namespace ks
