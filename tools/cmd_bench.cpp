// bench: tokens per second, how near they come to what the machine can do, and where the time goes.
#include "tools/json.h"
#include "tools/program.h"
#include "tools/timed_backend.h"

#include "backends/cpu/cpu_peaks.h"
#include "runtime/kv/cache.h"
#include "runtime/model/gguf.h"
#include "runtime/model/tensor_names.h"

#include <algorithm>

namespace ks
{

struct BenchTest {
    bool decode; // tg, else pp
    uint32_t n;
    uint32_t depth;

    std::string name() const { return (decode ? "tg" : "pp") + std::to_string(n) + (depth ? "@" + std::to_string(depth) : ""); }
};

// What a token must at least cost.
struct TokenWork {
    double read_bytes;
    double operations;
};

struct BenchRow {
    BenchTest test;
    TokenWork work;
    std::vector<double> tokens_per_second; // ascending
    double seconds;                        // of all repetitions
    std::vector<OpTime> ops;               // of all repetitions; empty where nobody asked
    std::string hash;

    double median() const
    {
        size_t n = tokens_per_second.size();
        return (tokens_per_second[(n - 1) / 2] + tokens_per_second[n / 2]) / 2;
    }
    uint64_t n_tokens() const { return uint64_t(test.n) * tokens_per_second.size(); }
};

struct BenchReport {
    Plan plan;
    std::string model, device_name;
    uint64_t peak_bytes;
    CpuPeaks peaks;
    std::vector<BenchRow> rows;

    double bandwidth_share(const BenchRow& row) const { return row.work.read_bytes * row.median() / peaks.bytes_per_second; }
    double int8_share(const BenchRow& row) const { return row.work.operations * row.median() / peaks.int8_ops_per_second; }
    bool is_bandwidth(const BenchRow& row) const { return bandwidth_share(row) >= int8_share(row); } // the limit that is nearer
    double limit_share(const BenchRow& row) const { return std::max(bandwidth_share(row), int8_share(row)); }
};

// Of the whole model.
struct WeightsWork {
    uint64_t read_bytes = 0; // all weights but the embedding's other rows
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
    work.read_bytes = weights_bytes(parts.value());
    if (!config.value().tied) work.read_bytes -= weights_bytes({parts.value().front()});
    work.vocabulary_operations = 2.0 * config.value().n_vocab * config.value().dim;
    for (const TensorPart& part : parts.value())
        if (part.rows > 1 && part.role != Role::token_embd && part.role != Role::output)
            work.layer_operations += 2.0 * part.rows * part.cols;
    return work;
}

// The keys and values that attention reads after `n_tokens`, coded slots as what their codes take.
static uint64_t cache_read_bytes(const Session& session, uint32_t n_tokens)
{
    uint64_t bytes = 0;
    for (const CacheLayerSpec& s : cache_specs(session.config(), session.plan().recipe, session.plan().slots)) {
        const uint32_t n_slots = std::min(n_tokens, s.n_read ? s.n_read : s.n_rows), n_coded = n_slots - std::min(n_slots, s.n_plain());
        for (Format format : {s.k, s.v}) {
            const uint64_t plain_bytes = (format == Format::f32 ? 4 : 2) * s.head_dim;
            const uint64_t coded_bytes = is_coded(format) ? codec_info(format).row_bytes(s.head_dim) : plain_bytes;
            bytes += s.n_kv_heads * (n_coded * coded_bytes + (n_slots - n_coded) * plain_bytes);
        }
    }
    return bytes;
}

static std::vector<BenchTest> list_tests(const Options& options)
{
    std::vector<BenchTest> tests;
    for (uint32_t depth : options.bench_depths) {
        for (uint32_t n : options.bench_prompts)
            if (n) tests.push_back({false, n, depth});
        for (uint32_t n : options.bench_tokens)
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

// Brings the cache to exactly `depth` tokens; one that evicts cannot go back, but costs the same wherever it is beyond.
static Status reach(Session& session, const std::vector<uint32_t>& ids, uint32_t depth)
{
    const uint32_t held = session.n_tokens();
    if (held > depth && session.evicted()) return {};
    if (held >= depth) return session.rewind(depth);
    return session.feed(ids.data() + held, depth - held);
}

static Status run_test(Session& session, TimedBackend* timed, const std::vector<uint32_t>& ids, uint32_t repetitions, BenchRow& row)
{
    const BenchTest& test = row.test;
    if (timed) timed->reset();
    for (uint32_t r = 0; r < repetitions; r++) {
        KS_TRY(reach(session, ids, test.depth));
        const uint32_t* next = ids.data() + test.depth;
        if (timed) timed->count(true);
        Stopwatch clock;
        if (!test.decode) KS_TRY(session.feed(next, test.n));
        for (uint32_t i = 0; test.decode && i < test.n; i++) KS_TRY(session.feed(next + i, 1));
        const double seconds = clock.seconds();
        if (timed) timed->count(false);
        row.seconds += seconds;
        row.tokens_per_second.push_back(test.n / seconds);
        if (interrupt::pending()) return Status(Code::interrupted, "interrupted while measuring");
    }
    if (timed) row.ops = timed->times();
    std::sort(row.tokens_per_second.begin(), row.tokens_per_second.end());
    row.hash = logits_hash(session.logits(), session.config().n_vocab);
    return {};
}

static TokenWork token_work(const Session& session, const BenchTest& test, const WeightsWork& weights)
{
    if (test.decode)
        return {double(weights.read_bytes + cache_read_bytes(session, test.depth + test.n / 2)),
                weights.layer_operations + weights.vocabulary_operations};
    uint32_t n_chunks = (test.n + session.plan().chunk - 1) / session.plan().chunk;
    return {double(weights.read_bytes) * n_chunks / test.n, weights.layer_operations + weights.vocabulary_operations / test.n};
}

static void print_ops(const BenchRow& row)
{
    printf("\n  %-20s %12s %14s %8s %8s %8s\n", row.test.name().c_str(), "calls", "us per token", "share", "GB/s", "Gop/s");
    const double n = double(row.n_tokens());
    double rest = row.seconds;
    for (const OpTime& op : row.ops) {
        rest -= op.seconds;
        printf("  %-20s %12.2f %14.2f %7.1f%%", op.name, double(op.n_calls) / n, op.seconds * 1e6 / n, op.seconds * 100 / row.seconds);
        if (op.weight_bytes) printf(" %8.2f %8.1f", double(op.weight_bytes) * 1e-9 / op.seconds, op.operations * 1e-9 / op.seconds);
        printf("\n");
    }
    printf("  %-20s %12s %14.2f %7.1f%%\n", "between ops", "", rest * 1e6 / n, rest * 100 / row.seconds);
}

static void print_table(const BenchReport& report)
{
    const Plan& plan = report.plan;
    printf("%s, %s\n", printable(report.device_name, 200).c_str(), plan.recipe_text.c_str());
    printf("peak %s of a budget of %s; the machine reads %.1f GB/s and multiplies %.0f Gop/s in int8\n\n",
           human_bytes(report.peak_bytes).c_str(), human_bytes(plan.budget_bytes).c_str(), report.peaks.bytes_per_second * 1e-9,
           report.peaks.int8_ops_per_second * 1e-9);
    printf("  %-14s %12s %25s %10s %10s %10s\n", "test", "tokens/s", "slowest to fastest", "GB/s", "Gop/s", "of limit");
    for (const BenchRow& row : report.rows) {
        char range[48];
        snprintf(range, sizeof range, "%.1f to %.1f", row.tokens_per_second.front(), row.tokens_per_second.back());
        printf("  %-14s %12.1f %25s %10.2f %10.1f %9.1f%% %s\n", row.test.name().c_str(), row.median(), range,
               row.work.read_bytes * row.median() * 1e-9, row.work.operations * row.median() * 1e-9, report.limit_share(row) * 100,
               report.is_bandwidth(row) ? "bandwidth" : "int8");
    }
    for (const BenchRow& row : report.rows)
        if (!row.ops.empty()) print_ops(row);
}

static void ops_member(Json& json, const BenchRow& row)
{
    const double n = double(row.n_tokens());
    json.key("ops").open('[');
    for (const OpTime& op : row.ops) {
        json.open('{').member("op", op.name).member("calls_per_token", double(op.n_calls) / n);
        json.member("microseconds_per_token", op.seconds * 1e6 / n).member("share", op.seconds / row.seconds).close('}');
    }
    json.close(']');
}

static void print_json(const BenchReport& report)
{
    const Plan& plan = report.plan;
    Json json;
    json.open('[');
    for (const BenchRow& row : report.rows) {
        json.open('{').member("test", row.test.decode ? "tg" : "pp").member("n", row.test.n).member("depth", row.test.depth);
        json.key("tokens_per_second").open('{').member("median", row.median()).member("min", row.tokens_per_second.front());
        json.member("max", row.tokens_per_second.back()).close('}');
        json.member("gb_per_second", row.work.read_bytes * row.median() * 1e-9).member("bandwidth_share", report.bandwidth_share(row));
        json.member("gigaops_per_second", row.work.operations * row.median() * 1e-9).member("int8_share", report.int8_share(row));
        json.member("limit", report.is_bandwidth(row) ? "bandwidth" : "int8").member("limit_share", report.limit_share(row));
        json.member("machine_gb_per_second", report.peaks.bytes_per_second * 1e-9);
        json.member("machine_gigaops_per_second", report.peaks.int8_ops_per_second * 1e-9);
        json.member("peak_bytes", report.peak_bytes).member("plan_bytes", plan.total_bytes).member("budget_bytes", plan.budget_bytes);
        json.member("logits_hash", row.hash).member("recipe", plan.recipe_text).member("device", plan.device);
        json.member("device_name", report.device_name).member("model", report.model);
        if (!row.ops.empty()) ops_member(json, row);
        json.close('}');
    }
    json.close(']').print();
}

// All tests in one session.
static Status run_tests(const Options& options, const WeightsWork& weights, const std::vector<BenchTest>& tests, BenchReport& report)
{
    uint32_t context = 0;
    for (const BenchTest& test : tests) context = std::max(context, test.depth + test.n);
    SessionOptions session_options = options.session;
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
    if (session.room() < context)
        return fail(Code::no_fit, "bench: a depth with its test needs %u tokens, the context holds %u", context, session.plan().context);
    std::vector<uint32_t> ids = random_ids(session.config().n_vocab, context);
    KS_TRY(session.feed(ids.data(), std::min(context, session.plan().chunk))); // warms up both paths
    if (session.n_tokens() < context) KS_TRY(session.feed(ids.data(), 1));
    session.clear();
    for (const BenchTest& test : tests) {
        report.rows.push_back({test, token_work(session, test, weights), {}, 0, {}, ""});
        KS_TRY(run_test(session, timed, ids, options.repetitions, report.rows.back()));
    }
    report.plan = session.plan();
    report.device_name = session.device_name();
    report.peak_bytes = session.peak_bytes();
    interrupt::watch(nullptr); // the session ends here
    return {};
}

Status cmd_bench(const Options& options)
{
    std::vector<BenchTest> tests = list_tests(options);
    if (tests.empty()) return Status(Code::usage, "bench: nothing to measure; give -p or -n a number above 0");
    Result<WeightsWork> weights = weights_work(options.session.model_path);
    if (!weights.ok()) return weights.status();
    BenchReport report;
    report.model = file_name(options.session.model_path);
    // Twice, with all tests between: other work on the machine makes a limit look lower, never higher.
    CpuPeaks before = measure_cpu_peaks(options.session.n_threads);
    KS_TRY(run_tests(options, weights.value(), tests, report));
    CpuPeaks after = measure_cpu_peaks(options.session.n_threads);
    report.peaks = {std::max(before.bytes_per_second, after.bytes_per_second),
                    std::max(before.int8_ops_per_second, after.int8_ops_per_second)};
    if (options.json)
        print_json(report);
    else
        print_table(report);
    return {};
}

} // namespace ks
