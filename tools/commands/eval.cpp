// eval: measures what a recipe loses in a smaller cache.
#include "tools/eval/eval.h"
#include "tools/eval/lines.h"
#include "tools/json.h"
#include "tools/option_groups.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unistd.h>

namespace ks
{
namespace
{

struct EvalOptions : PromptFlags, SeedFlag {
    ModelOptions session;
    std::vector<std::string> recipes;
    std::vector<std::string> suites{"passkey", "niah", "sparse"};
    std::vector<uint32_t> lengths{1024};
    std::vector<double> shares{25};
    uint32_t n_cases = 20;
    bool later = false;
    bool no_control = false;
    std::string record;
    bool json = false;

    EvalOptions() { seed = 1; } // not random, so that results can be reproduced
    void add_to(OptionTable& table)
    {
        add_model(table, &session);
        add_device(table, &session);
        auto add_recipe = [this](const Value& v) {
            recipes.push_back(v.text);
            return Status();
        };
        table.add({"--kv", "RECIPE", "recipe to compare with exact; may be repeated; default: auto",
                   add_recipe});
        add_threads(table, &session);
        add_file(table);
        add_seed(table, "seed of the generated cases; default: 1");
        table.add({"--suites", "NAME,...", "suites to measure; default: passkey,niah,sparse",
                   [this](const Value& v) { return v.names(&suites); }});
        table.add_list("--lengths", "tokens of each case: text, question and answer; default: 1024",
                       64, 1 << 24, &lengths);
        table.add({"--shares", "PERCENT,...",
                   "sizes of the cache, in percent of what exact needs; default: 25",
                   [this](const Value& v) { return v.percents(&shares); }});
        table.add_number("-n --cases", "cases per suite, or pieces of the text; default: 20", 1,
                         100000, &n_cases);
        table.add_flag(
            "--later",
            "ask in a separate turn, so that the text is evicted before the question is known",
            &later);
        table.add_flag(
            "--no-control",
            "also measure suites in which exact itself fails, such as texts beyond the context",
            &no_control);
        table.add_text(
            "-o --record", "FILE",
            "append each result to FILE as a line of JSON; skip results that are there already",
            &record);
        table.add_flag("--json", "print each result as a line of JSON on standard output", &json);
    }
    Status finish()
    {
        if (recipes.empty()) recipes = {"auto"};
        return check_model("eval", session);
    }
};

struct Eval {
    explicit Eval(const EvalOptions& o) : options(o) {}

    const EvalOptions& options;
    FILE* record = nullptr;     // of -o; null: none
    std::vector<Json> lines;    // of the record when it was opened
    std::vector<uint32_t> text; // of -f
    uint32_t n_cells = 0, n_done = 0;
    Stopwatch clock;
};

struct MatrixRow {
    std::string recipe;
    double share;
    std::vector<std::string> cells; // by suite
};

std::string cell_key(const Eval& eval, const EvalCell& cell)
{
    const std::string how = cell.later ? "later" : "at once";
    return file_name(eval.options.session.model_path) + "|" + cell.suite + "|" +
           std::to_string(cell.length) + "|" + how + "|" + cell.recipe + "|" +
           std::to_string(cell.share) + "|" + std::to_string(eval.options.n_cases) + "|" +
           (cell.suite == "text" ? bytes_hash(eval.text.data(), 4 * eval.text.size())
                                 : std::to_string(eval.options.seed));
}

Json cell_line(const Eval& eval, const EvalCell& cell, const EvalResult& r)
{
    const bool text = cell.suite == "text";
    const Interval interval = wilson(r.accuracy * r.n_cases, r.n_cases);
    Json json = Json::object(
        {{"key", cell_key(eval, cell)}, {"model", file_name(eval.options.session.model_path)}});
    json.set({{"suite", cell.suite},
              {"length", cell.length},
              {"question", cell.later ? "later" : "at once"},
              {"recipe", cell.recipe}});
    json.set({{"share", cell.share},
              {"plan", r.recipe},
              {"cache_bytes", r.cache_bytes},
              {"exact_bytes", r.exact_bytes}});
    json.set({{"cases", r.n_cases}, {text ? "same_top" : "accuracy", r.accuracy}});
    if (text)
        json.set({{"kl", r.divergence},
                  {"perplexity", std::exp(r.log_loss)},
                  {"exact_perplexity", std::exp(r.exact_log_loss)}});
    else
        json.set({{"low", interval.low}, {"high", interval.high}, {"log_loss", r.log_loss}});
    if (r.survival >= 0) json.set("survival", r.survival);
    if (!text) json.set({{"depth_sums", r.depth_sums}, {"depth_counts", r.depth_counts}});
    return json.set({{"evicted", r.evicted},
                     {"merged", r.merged},
                     {"seed", eval.options.seed},
                     {"hash", r.hash},
                     {"seconds", r.seconds}});
}

// A cell of the printed table. Made from the recorded line, so that old and new results look alike.
std::string table_cell(const EvalCell& cell, const Json& line)
{
    char text[80];
    if (cell.suite == "text")
        snprintf(text, sizeof text, "%.4f %5.1f%% x%.3f", line.number("kl"),
                 100 * line.number("same_top"),
                 line.number("perplexity") / line.number("exact_perplexity"));
    else
        snprintf(text, sizeof text, "%.2f [%.2f %.2f]", line.number("accuracy"), line.number("low"),
                 line.number("high"));
    return text;
}

void show_progress(const Eval& eval, const EvalCell& cell)
{
    if (!is_terminal(STDERR_FILENO)) return;
    const double left =
        eval.n_done ? eval.clock.seconds() / eval.n_done * (eval.n_cells - eval.n_done) : 0;
    fprintf(stderr, "\r\033[K%u of %u: %s, %u tokens, %s", eval.n_done + 1, eval.n_cells,
            cell.suite.c_str(), cell.length, cell.recipe.c_str());
    if (eval.n_done) fprintf(stderr, ", %.0f min left", std::ceil(left / 60));
}

const EvalSuite* find_suite(const std::string& name)
{
    for (const EvalSuite& suite : eval_suites())
        if (name == suite.name) return &suite;
    return nullptr;
}

Result<std::unique_ptr<Session>> open(const Eval& eval, const std::string& recipe, uint32_t length,
                                      uint64_t cache_bytes)
{
    ModelOptions options = eval.options.session;
    options.recipe = recipe;
    options.context = length;
    options.kv_memory_bytes = cache_bytes;
    options.progress = [](const char*, uint64_t, uint64_t) { return !interrupt::pending(); };
    Result<std::shared_ptr<Model>> model = Model::open(options);
    if (!model.ok()) return model.status();
    return model.value()->open_session();
}

// Measures a cell, or finds its line in the record.
Result<Json> measure(Eval& eval, const EvalCell& cell, Session& session, Session& exact)
{
    for (const Json& line : eval.lines)
        if (line.text("key") == cell_key(eval, cell)) return line;
    show_progress(eval, cell);
    Stopwatch clock;
    EvalResult r;
    if (cell.suite == "text")
        KS_TRY(eval_text(session, exact, eval.text, cell, eval.options.n_cases, r));
    else
        KS_TRY(eval_suite(session, *find_suite(cell.suite), cell, eval.options.seed,
                          eval.options.n_cases, r));
    r.recipe = session.plan().recipe_text;
    r.cache_bytes = session.plan().cache_bytes();
    r.exact_bytes = exact.plan().cache_bytes();
    r.seconds = clock.seconds();
    Json line = cell_line(eval, cell, r);
    if (eval.record &&
        (fprintf(eval.record, "%s\n", line.text().c_str()) < 0 || fflush(eval.record) != 0))
        return fail(Code::io, "%s: cannot write: %s", printable(eval.options.record, 200).c_str(),
                    strerror(errno));
    return line;
}

void print_matrix(const Eval& eval, uint32_t length, const std::vector<MatrixRow>& rows)
{
    printf("\n%u tokens, %u cases of each suite, seed %llu\n  %-38s %8s", length,
           eval.options.n_cases, (unsigned long long)eval.options.seed, "recipe", "of exact");
    for (const std::string& suite : eval.options.suites)
        printf(" %20s", suite == "text" ? "KL, same top, ppl" : suite.c_str());
    printf("\n");
    for (const MatrixRow& row : rows) {
        printf("  %-38s %7g%%", row.recipe.c_str(), row.share);
        for (const std::string& cell : row.cells) printf(" %20s", cell.c_str());
        printf("\n");
    }
    fflush(stdout);
}

// Measures one recipe in all suites at one length. dropped: by suite, true if exact itself fails.
Status eval_recipe(Eval& eval, uint32_t length, const std::string& recipe, double share,
                   Session& exact, std::vector<bool>& dropped, std::vector<MatrixRow>& rows)
{
    const bool control = recipe == "exact";
    std::unique_ptr<Session> own;
    std::string refused;
    if (!control) {
        Result<std::unique_ptr<Session>> opened =
            open(eval, recipe, length, uint64_t(double(exact.plan().cache_bytes()) * share / 100));
        if (opened.ok())
            own = std::move(opened.value());
        else if (opened.status().code() == Code::no_fit)
            refused = "does not fit";
        else
            return opened.status();
    }
    Session& session = own ? *own : exact;
    interrupt::watch(&session);
    MatrixRow row{recipe, share, {}};
    for (size_t s = 0; s < eval.options.suites.size(); s++) {
        const EvalCell cell{eval.options.suites[s], length, eval.options.later, recipe, share};
        std::string shown = control && cell.suite == "text" ? "0" : dropped[s] ? "-" : refused;
        if (shown.empty()) {
            Result<Json> line = measure(eval, cell, session, exact);
            if (!line.ok()) return line.status();
            shown = table_cell(cell, line.value());
            if (eval.options.json) line.value().print();
            const bool plain = line.value().text("plan").find("k=f16,v=f16") != std::string::npos;
            if (!control && plain && line.value().number("evicted") == 0) shown += "!";
            if (control && !eval.options.no_control && line.value().number("accuracy") < kControl)
                dropped[s] = true;
        }
        row.cells.push_back(shown);
        eval.n_done++;
    }
    interrupt::watch(nullptr);
    rows.push_back(row);
    return {};
}

Status eval_length(Eval& eval, uint32_t length)
{
    Result<std::unique_ptr<Session>> exact = open(eval, "exact", length, 0);
    if (!exact.ok()) return exact.status();
    if (eval.options.from_file && eval.text.empty())
        KS_TRY(read_prompt(eval.options, exact.value()->model().tokenizer(), false, eval.text));
    std::vector<bool> dropped(eval.options.suites.size());
    std::vector<MatrixRow> rows;
    Status status = eval_recipe(eval, length, "exact", 100, *exact.value(), dropped, rows);
    for (double share : eval.options.shares)
        for (const std::string& recipe : eval.options.recipes)
            if (status.ok())
                status = eval_recipe(eval, length, recipe, share, *exact.value(), dropped, rows);
    if (is_terminal(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
    if (!eval.options.json && !rows.empty()) print_matrix(eval, length, rows);
    for (size_t s = 0; s < dropped.size(); s++)
        if (dropped[s])
            fprintf(stderr, "%s is left out at %u tokens: exact itself finds fewer than %.0f%%\n",
                    eval.options.suites[s].c_str(), length, 100 * kControl);
    return status;
}

// Opens the file of -o for appending and reads its earlier results.
Status open_record(Eval& eval)
{
    const std::string& path = eval.options.record;
    if (path.empty()) return {};
    if (access(path.c_str(), F_OK) == 0) {
        size_t whole_bytes = 0;
        Result<std::vector<Json>> lines = read_eval_lines(path, &whole_bytes);
        if (!lines.ok()) return lines.status();
        eval.lines = std::move(lines.value());
        if (truncate(path.c_str(), off_t(whole_bytes)) != 0)
            return fail(Code::io, "%s: cannot write: %s", printable(path, 200).c_str(),
                        strerror(errno));
    }
    eval.record = fopen(path.c_str(), "ab");
    if (!eval.record)
        return fail(Code::io, "%s: cannot open: %s", printable(path, 200).c_str(), strerror(errno));
    return {};
}

Status check_suites(const EvalOptions& options)
{
    std::string known = "text";
    for (const EvalSuite& suite : eval_suites()) known += std::string(" ") + suite.name;
    for (const std::string& name : options.suites) {
        if (name != "text" && !find_suite(name))
            return fail(Code::usage, "eval: unknown suite '%s'; the suites are %s",
                        printable(name).c_str(), known.c_str());
        if (name == "text" && !options.from_file)
            return fail(Code::usage, "eval: the suite 'text' needs a text; use -f FILE");
    }
    return {};
}

} // namespace

static Status eval(const EvalOptions& options)
{
    KS_TRY(check_suites(options));
    for (const std::string& recipe : options.recipes) {
        Result<Recipe> parsed = parse_recipe(recipe);
        if (!parsed.ok()) return parsed.status();
    }
    Eval eval(options);
    KS_TRY(open_record(eval));
    eval.n_cells = uint32_t(options.lengths.size() * options.suites.size() *
                            (1 + options.recipes.size() * options.shares.size()));
    Status status;
    for (uint32_t length : options.lengths)
        if (status.ok()) status = eval_length(eval, length);
    if (eval.record && fclose(eval.record) != 0 && status.ok())
        status = fail(Code::io, "%s: cannot write", options.record.c_str());
    return status;
}

extern const Command command_eval = {
    "eval", "measure what a compressed cache loses: facts in long texts, next tokens",
    "-m MODEL [--kv RECIPE]... [options]",
    "Suites: passkey number niah first last sparse dense recency lines uuid multikey multivalue "
    "multiquery vt cwe fwe text.\n"
    "All but text ask for facts in texts generated from the seed. A result is the share of right "
    "answers and its 95% interval. A suite is left out if exact itself finds fewer than 80%.\n"
    "text reads -f FILE beside the exact cache. Its results are the KL divergence from exact, how "
    "often both expect the same next token, and the ratio of the perplexities.\n"
    "! marks a recipe that fitted without any compression.",
    start_command<EvalOptions, eval>};

} // namespace ks
