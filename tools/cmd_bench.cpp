// bench: tokens per second and how much of the memory bandwidth they use.
#include "tools/json.h"
#include "tools/program.h"

#include "runtime/kv/cache.h"
#include "runtime/model/gguf.h"
#include "runtime/model/tensor_names.h"

#include <algorithm>
#include <sys/mman.h>
#include <thread>

namespace ks
{

struct BenchTest {
    bool decode; // tg, else pp
    uint32_t n;
    uint32_t depth;
};

struct BenchRow {
    BenchTest test;
    std::vector<double> tokens_per_second; // ascending
    double gb_per_second;
    std::string hash;

    double median() const
    {
        size_t n = tokens_per_second.size();
        return (tokens_per_second[(n - 1) / 2] + tokens_per_second[n / 2]) / 2;
    }
};

static uint64_t sum_words(const uint64_t* words, size_t n)
{
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++) sum[j] += words[i + j];
    for (size_t j = 1; j < 8; j++) sum[0] += sum[j];
    return sum[0];
}

// Bytes per second of the best of a few sequential reads by all threads, of a buffer that no cache holds. 0: no memory for it.
static double read_bandwidth(int n_threads)
{
    constexpr size_t kBytes = 256 << 20;
    constexpr int kPasses = 10;
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    std::fill_n(static_cast<uint64_t*>(memory), kBytes / 8, 1u); // untouched pages would all be one page of zeros
    size_t n = size_t(std::max(1, n_threads)), part = kBytes / 8 / n;
    double best = 0;
    volatile uint64_t sink = 0;
    for (int pass = 0; pass < kPasses; pass++) {
        std::vector<uint64_t> sums(n);
        std::vector<std::thread> threads;
        Stopwatch clock;
        for (size_t i = 0; i < n; i++)
            threads.emplace_back([&, i] { sums[i] = sum_words(static_cast<uint64_t*>(memory) + i * part, part); });
        for (std::thread& thread : threads) thread.join();
        best = std::max(best, double(part * 8 * n) / clock.seconds());
        for (uint64_t sum : sums) sink = sink + sum;
    }
    munmap(memory, kBytes);
    return best;
}

// What one decoded token must read: all weights but the embedding's other rows.
static Result<uint64_t> weights_read_bytes(const std::string& path)
{
    Result<Gguf> gguf = Gguf::open(path);
    if (!gguf.ok()) return gguf.status();
    Result<Config> config = read_config(gguf.value());
    if (!config.ok()) return config.status();
    Result<std::vector<TensorPart>> parts = bind_tensors(gguf.value(), config.value());
    if (!parts.ok()) return parts.status();
    uint64_t bytes = weights_bytes(parts.value());
    if (!config.value().tied) bytes -= weights_bytes({parts.value().front()});
    return bytes;
}

// The keys and values that a token sees after `n_tokens`.
static uint64_t cache_read_bytes(const Session& session, uint32_t n_tokens)
{
    if (n_tokens == 0) return 0;
    const Recipe& recipe = session.plan().recipe;
    uint64_t bytes = 0;
    for (const CacheLayerSpec& spec : cache_specs(session.config(), recipe, session.plan().slots))
        bytes += uint64_t(std::min(n_tokens, spec.n_rows)) * spec.n_kv_heads * spec.head_dim *
                 ((recipe.k == Format::f32 ? 4 : 2) + (recipe.v == Format::f32 ? 4 : 2));
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

static Status run_test(Session& session, const BenchTest& test, const std::vector<uint32_t>& ids, uint32_t repetitions,
                       std::vector<double>& out)
{
    for (uint32_t r = 0; r < repetitions; r++) {
        KS_TRY(reach(session, ids, test.depth));
        const uint32_t* next = ids.data() + test.depth;
        Stopwatch clock;
        if (!test.decode) KS_TRY(session.feed(next, test.n));
        for (uint32_t i = 0; test.decode && i < test.n; i++) KS_TRY(session.feed(next + i, 1));
        out.push_back(test.n / clock.seconds());
        if (interrupt::pending()) return Status(Code::interrupted, "interrupted while measuring");
    }
    std::sort(out.begin(), out.end());
    return {};
}

static double read_gigabytes_per_token(const Session& session, const BenchTest& test, uint64_t weights)
{
    if (test.decode) return double(weights + cache_read_bytes(session, test.depth + test.n / 2)) * 1e-9;
    uint32_t n_chunks = (test.n + session.plan().chunk - 1) / session.plan().chunk;
    return double(weights) * n_chunks / test.n * 1e-9;
}

static void print_table(const Session& session, const std::vector<BenchRow>& rows, double bandwidth)
{
    const Plan& plan = session.plan();
    printf("%s, %s\n", printable(session.device_name(), 200).c_str(), plan.recipe_text.c_str());
    printf("peak %s of a budget of %s, read bandwidth %.1f GB/s\n\n", human_bytes(session.peak_bytes()).c_str(),
           human_bytes(plan.budget_bytes).c_str(), bandwidth * 1e-9);
    printf("  %-14s %12s %25s %10s %10s\n", "test", "tokens/s", "slowest to fastest", "GB/s", "of peak");
    for (const BenchRow& row : rows) {
        std::string name = (row.test.decode ? "tg" : "pp") + std::to_string(row.test.n);
        if (row.test.depth) name += "@" + std::to_string(row.test.depth);
        char range[48];
        snprintf(range, sizeof range, "%.1f to %.1f", row.tokens_per_second.front(), row.tokens_per_second.back());
        printf("  %-14s %12.1f %25s %10.2f %9.1f%%\n", name.c_str(), row.median(), range, row.gb_per_second,
               row.gb_per_second * 1e11 / bandwidth);
    }
}

static void print_json(const Session& session, const std::vector<BenchRow>& rows, double bandwidth, const std::string& model)
{
    const Plan& plan = session.plan();
    Json json;
    json.open('[');
    for (const BenchRow& row : rows) {
        json.open('{').member("test", row.test.decode ? "tg" : "pp").member("n", row.test.n).member("depth", row.test.depth);
        json.key("tokens_per_second").open('{').member("median", row.median()).member("min", row.tokens_per_second.front());
        json.member("max", row.tokens_per_second.back()).close('}').member("gb_per_second", row.gb_per_second);
        json.member("bandwidth_share", row.gb_per_second * 1e9 / bandwidth).member("peak_bytes", session.peak_bytes());
        json.member("plan_bytes", plan.total_bytes).member("budget_bytes", plan.budget_bytes).member("logits_hash", row.hash);
        json.member("recipe", plan.recipe_text)
            .member("device", plan.device)
            .member("device_name", session.device_name())
            .member("model", model);
        json.close('}');
    }
    json.close(']').print();
}

Status cmd_bench(const Options& options)
{
    std::vector<BenchTest> tests = list_tests(options);
    if (tests.empty()) return Status(Code::usage, "bench: nothing to measure; give -p or -n a number above 0");
    uint32_t context = 0;
    for (const BenchTest& test : tests) context = std::max(context, test.depth + test.n);
    SessionOptions session_options = options.session;
    if (session_options.context < 0) session_options.context = context;
    Result<uint64_t> weights = weights_read_bytes(options.session.model_path);
    if (!weights.ok()) return weights.status();
    double bandwidth = read_bandwidth(options.session.n_threads ? options.session.n_threads : int(std::thread::hardware_concurrency()));

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
    std::vector<BenchRow> rows;
    for (const BenchTest& test : tests) {
        BenchRow row{test, {}, 0, ""};
        KS_TRY(run_test(session, test, ids, options.repetitions, row.tokens_per_second));
        row.gb_per_second = read_gigabytes_per_token(session, test, weights.value()) * row.median();
        row.hash = logits_hash(session.logits(), session.config().n_vocab);
        rows.push_back(row);
    }
    progress.end();
    if (options.json)
        print_json(session, rows, bandwidth, file_name(options.session.model_path));
    else
        print_table(session, rows, bandwidth);
    return {};
}

} // namespace ks
