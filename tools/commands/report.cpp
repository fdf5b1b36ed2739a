// report: turns the results of `eval` into a page of HTML without external files.
#include "tools/eval/chart.h"
#include "tools/eval/comparison.h"
#include "tools/eval/eval.h"
#include "tools/eval/lines.h"
#include "tools/option_groups.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>

namespace ks
{
namespace
{

struct ReportOptions : PromptFlags {
    ModelOptions session;
    std::string output;

    void add_to(OptionTable& table)
    {
        add_model(table, &session);
        add_file(table, "read the results that `eval --record` wrote; -: standard input");
        table.add_text("-o --output", "FILE", "write the page to FILE; default: standard output",
                       &output);
    }
    Status finish() const
    {
        return has_prompt ? Status()
                          : fail(Code::usage, "report: no results given; use -f FILE with a file "
                                              "that eval recorded");
    }
};

const char kStyle[] = R"(<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Knapsack: what a budget costs</title><style>
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--soft:#ddd;--faint:#f3f3f3}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#161616;--soft:#444;--faint:#222}}
@media print{:root{--ink:#000;--paper:#fff;--soft:#bbb;--faint:#fff}section{break-inside:avoid}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--ink)}
.grid{stroke:var(--soft)}.bar{stroke:var(--ink);stroke-width:1.5}
svg .number{fill:#fff;font-weight:bold}svg .cell{fill:#111}
.legend{list-style:none;padding:0;columns:2;font-size:14px}
.legend b{color:#fff;border-radius:1em;padding:0 .5em}
table{border-collapse:collapse;font-size:14px;margin:1em 0}
th,td{padding:.2em .6em;text-align:right;border-bottom:1px solid var(--soft)}
th:first-child,td:first-child{text-align:left}tr:nth-child(even){background:var(--faint)}
figure{margin:1em 0}.wide{overflow-x:auto}
.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:0 1rem}
</style>
)";

std::string list_text(const CellNames& cells)
{
    std::string list;
    for (const std::string& cell : cells) list += (list.empty() ? "" : ", ") + html_text(cell);
    return list;
}

std::string code(const std::string& text)
{
    return "<code>" + html_text(text) + "</code>";
}

// A row of a table. tag: "td" or "th".
std::string table_row(const std::string& tag, const std::vector<std::string>& cells)
{
    std::string row = "<tr>";
    for (const std::string& cell : cells) row += "<" + tag + ">" + cell + "</" + tag + ">";
    return row + "</tr>\n";
}

std::string percent_of_exact(const RecipeSummary& s)
{
    return rounded(100 * s.bytes / s.exact_bytes, 1) + "%";
}

// The index of a recipe, which gives its number and colour in all charts of a model.
uint32_t series_of(std::vector<std::string>& series, const std::string& recipe)
{
    const auto found = std::find(series.begin(), series.end(), recipe);
    const uint32_t index = uint32_t(found - series.begin());
    if (found == series.end()) series.push_back(recipe);
    return index;
}

std::string chart_section(bool text, const std::vector<RecipeSummary>& summaries,
                          const CellNames& cells, std::vector<std::string>& series)
{
    Chart chart;
    chart.x_title = "bytes of KV cache per token of text, all layers";
    chart.y_title = text ? "KL divergence from exact" : "right answers";
    chart.percent = !text;
    for (const RecipeSummary& s : summaries) {
        const Interval range = text ? Interval{0, 0} : wilson(s.hits, s.cases);
        const double y = text ? s.mean(s.kl) : s.hits / s.cases;
        chart.points.push_back(
            {s.mean(s.bytes_per_token), y, range.low, range.high, series_of(series, s.recipe)});
    }
    chart.series = series;
    const std::string title = text ? "Distance from the exact cache on running text"
                                   : "Facts found, by the bytes of the cache";
    const std::string note =
        text ? ": mean KL divergence of the next token; 0 is exact, the axis is logarithmic. Lower "
               "left is better."
             : ": all cases together, without suites in which the exact cache itself fails. Bars "
               "are 95% intervals. Upper left is better. Points that would overlap stand side by "
               "side.";
    return "<section><h3>" + title + "</h3><p>" + list_text(cells) + note + "</p>" + chart.svg() +
           "</section>\n";
}

std::string heat_maps(const std::vector<RecipeSummary>& summaries)
{
    std::string html;
    for (const RecipeSummary& s : summaries) {
        if (s.depth_sums.empty()) continue;
        HeatMap map{s.recipe + " in " + percent_of_exact(s), {}, {}, {}};
        for (int tenth = 0; tenth < 10; tenth++)
            map.columns.push_back(std::to_string(10 * tenth) + "%");
        for (const auto& [length, sums] : s.depth_sums) {
            map.rows.push_back(rounded(length, 0) + " tokens");
            map.values.push_back({});
            for (size_t i = 0; i < 10; i++) {
                const double n = s.depth_counts.at(length)[i];
                map.values.back().push_back(n > 0 ? sums[i] / n : -1);
            }
        }
        html += map.svg();
    }
    if (html.empty()) return html;
    return "<section><h3>Right answers, by the place of the fact</h3><p>In percent, by the "
           "depth of the fact and the length of the text.</p><div class='maps'>" +
           html + "</div></section>\n";
}

std::string summary_table(bool text, const std::vector<RecipeSummary>& summaries)
{
    std::vector<std::string> head{"recipe", "of exact's bytes", "bytes per token"};
    if (text)
        head.insert(head.end(), {"KL divergence", "same top token", "perplexity over exact's"});
    else
        head.insert(head.end(), {"right answers", "95% interval", "cases"});
    std::string html = "<section class='wide'><table>" + table_row("th", head);
    for (const RecipeSummary& s : summaries) {
        std::vector<std::string> row{code(s.recipe), percent_of_exact(s),
                                     rounded(s.mean(s.bytes_per_token), 0)};
        if (text) {
            row.insert(row.end(),
                       {rounded(s.mean(s.kl), 4), rounded(100 * s.mean(s.same_top), 1) + "%",
                        rounded(s.mean(s.perplexity), 3)});
        } else {
            const Interval range = wilson(s.hits, s.cases);
            row.insert(row.end(),
                       {rounded(100 * s.hits / s.cases, 1) + "%",
                        rounded(100 * range.low, 0) + " to " + rounded(100 * range.high, 0) + "%",
                        rounded(s.cases, 0)});
        }
        html += table_row("td", row);
    }
    return html + "</table></section>\n";
}

std::string result_text(const Json& line)
{
    if (is_text_line(line))
        return "KL " + rounded(line.number("kl"), 4) + ", same top token " +
               rounded(100 * line.number("same_top"), 1) + "%";
    return rounded(line.number("accuracy"), 2) + " [" + rounded(line.number("low"), 2) + " " +
           rounded(line.number("high"), 2) + "]";
}

std::string table_of_cells(const std::vector<Json>& lines, const std::string& model)
{
    std::string html =
        "<details><summary>All results</summary><div class='wide'><table>" +
        table_row("th", {"suite", "tokens", "question", "recipe", "share", "result", "-log p",
                         "heads that hold the fact", "evicted slots", "hash"});
    for (const Json& line : lines) {
        if (line.text("model") != model) continue;
        html += table_row(
            "td", {html_text(line.text("suite")), rounded(line.number("length"), 0),
                   html_text(line.text("question")), code(line.text("recipe")),
                   rounded(line.number("share"), 1) + "%", result_text(line),
                   is_text_line(line) ? "" : rounded(line.number("log_loss"), 3),
                   line.has("survival") ? rounded(100 * line.number("survival"), 0) + "%" : "",
                   rounded(line.number("evicted"), 0), code(line.text("hash"))});
    }
    return html + "</table></div></details>\n";
}

std::string model_section(const std::vector<Json>& lines, const std::string& model)
{
    std::string html = "<h2>" + html_text(model) + "</h2>\n";
    std::vector<std::string> series;
    for (bool text : {false, true}) {
        const Comparison comparison(lines, model, text);
        for (const CellNames& cells : comparison.groups()) {
            const std::vector<RecipeSummary> summaries = comparison.summaries(cells);
            html += chart_section(text, summaries, cells, series) + summary_table(text, summaries);
            if (!text) html += heat_maps(summaries);
        }
    }
    return html + table_of_cells(lines, model);
}

// A column of a table of contexts.
struct PlanColumn {
    std::string name, recipe;
    uint64_t memory;
    uint32_t tokens_per_slot = 0; // 0: the recipe says nothing about slots
};

// A table with a row for each context. Plans need only the header of the model file. cell: the text
// for a plan that fits.
std::string context_table(const ReportOptions& options, const std::vector<PlanColumn>& columns,
                          std::string (*cell)(const Plan&))
{
    std::vector<std::string> row{"tokens"};
    for (const PlanColumn& column : columns) row.push_back(column.name);
    std::string html = "<table>" + table_row("th", row);
    for (uint32_t context = 2048; context <= 131072; context *= 2) {
        row = {grouped(context)};
        for (const PlanColumn& column : columns) {
            ModelOptions session = options.session;
            session.recipe = column.recipe;
            if (column.tokens_per_slot)
                session.recipe += ",slots=" + std::to_string(context / column.tokens_per_slot);
            session.context = context;
            session.memory_bytes = column.memory;
            const Result<Plan> plan = make_plan(session);
            row.push_back(plan.ok() && plan.value().fits ? cell(plan.value()) : "-");
        }
        html += table_row("td", row);
    }
    return html + "</table></section>\n";
}

std::string needs_table(const ReportOptions& options)
{
    constexpr uint64_t kAny = uint64_t(1) << 50;
    const std::vector<PlanColumn> columns = {
        {"<code>exact</code>", "exact", kAny},
        {"<code>q8</code>", "q8", kAny, 1},
        {"<code>turbo4,v=turbo3</code>", "turbo4,v=turbo3", kAny, 1},
        {"<code>mix</code>, a slot for every fourth token", "mix", kAny, 4}};
    return "<section><h3>What a context needs</h3><p>MiB in total, with the weights, from "
           "<code>knapsack plan</code>. Longer texts are possible: all but <code>exact</code> then "
           "evict tokens.</p>" +
           context_table(options, columns, [](const Plan& plan) {
               return rounded(double(plan.total_bytes) / 1048576, 0);
           });
}

// The codecs that `auto` chooses, and the percentage of the context that has slots.
std::string auto_cell(const Plan& plan)
{
    const std::string k = codec_info(plan.recipe.k).name, v = codec_info(plan.recipe.v).name;
    const double share = 100.0 * plan.slots / plan.context;
    const bool all = plan.recipe.exact() || plan.slots >= plan.context;
    return k + (k == v ? "" : "/" + v) +
           (all ? "" : ", " + rounded(share, share < 10 ? 1 : 0) + "%");
}

std::string budget_table(const ReportOptions& options)
{
    std::vector<PlanColumn> columns;
    for (uint64_t budget = uint64_t(256) << 20; budget <= uint64_t(8) << 30; budget *= 2)
        columns.push_back({human_bytes(budget), "auto", budget});
    return "<section class='wide'><h3>Which budget for which context</h3><p>What <code>--kv "
           "auto</code> chooses for each <code>--memory</code>: the codecs of keys and values, and "
           "the percentage of tokens that fit, if not all. Fewer bits lose more, fewer tokens lose "
           "most.</p>" +
           context_table(options, columns, auto_cell);
}

std::string codecs_of(const Recipe& recipe)
{
    const std::string k = codec_info(recipe.k).name, v = codec_info(recipe.v).name;
    return recipe.codes() ? "k=" + k + ",v=" + v : "exact";
}

std::string ladder_chart(const ReportOptions& options)
{
    constexpr int kBudgets = 8;
    ModelOptions session = options.session;
    session.recipe = "auto";
    session.memory_bytes = uint64_t(1) << 50;
    const Result<Plan> whole = make_plan(session);
    if (!whole.ok()) return {};
    const double least = double(whole.value().smallest_bytes),
                 most = double(whole.value().total_bytes);
    BarChart chart;
    chart.x_title = "tokens of text";
    chart.most = whole.value().context;
    for (const Recipe& recipe : whole.value().ladder) series_of(chart.series, codecs_of(recipe));
    session.context = int64_t(whole.value().context);
    for (int i = 0; i < kBudgets; i++) {
        const double bytes = least * std::pow(most / least, double(i) / (kBudgets - 1));
        session.memory_bytes = (uint64_t(bytes) + 1048575) / 1048576 * 1048576;
        const Result<Plan> plan = make_plan(session);
        if (!plan.ok() || !plan.value().fits) continue;
        BarChart::Bar bar{human_bytes(session.memory_bytes), {}};
        for (const PlanRung& rung : plan.value().rungs)
            if (rung.slots)
                bar.parts.push_back(
                    {double(rung.slots), series_of(chart.series, codecs_of(rung.recipe))});
        chart.bars.push_back(bar);
    }
    return "<section><h3>When a cache under <code>auto</code> gets fewer bits</h3><p>For each "
           "<code>--memory</code>: a text that grows up to the end of a bar's part has all its "
           "tokens in that format. Behind the end of a bar tokens are given up.</p>" +
           chart.svg() + "</section>\n";
}

} // namespace

// Several runs may record the same cell. It counts once.
static void drop_repeats(std::vector<Json>& lines)
{
    std::set<std::string> keys;
    lines.erase(
        std::remove_if(lines.begin(), lines.end(),
                       [&](const Json& line) { return !keys.insert(line.text("key")).second; }),
        lines.end());
}

static Status report(const ReportOptions& options)
{
    Result<std::vector<Json>> lines = read_eval_lines(options.file);
    if (!lines.ok()) return lines.status();
    drop_repeats(lines.value());
    std::vector<std::string> models;
    for (const Json& line : lines.value())
        if (std::find(models.begin(), models.end(), line.text("model")) == models.end())
            models.push_back(line.text("model"));
    std::string html = kStyle;
    html += "<h1>What a budget costs</h1><p>Every recipe read the same texts with a smaller cache "
            "than the exact f16 cache, and was asked for facts in them. <code>knapsack eval "
            "--help</code> describes the suites. The same seed on the same machine gives the same "
            "hashes.</p>\n";
    for (const std::string& model : models) html += model_section(lines.value(), model);
    if (!options.session.model_path.empty()) {
        Result<Plan> plan = make_plan(options.session); // fails if the model is unreadable
        if (!plan.ok()) return plan.status();
        html += "<h2>Memory: " + html_text(file_name(options.session.model_path)) + "</h2>\n" +
                needs_table(options) + budget_table(options) + ladder_chart(options);
    }
    html += "</html>\n";
    FILE* file = options.output.empty() ? stdout : fopen(options.output.c_str(), "wb");
    bool written = file && fwrite(html.data(), 1, html.size(), file) == html.size();
    if (file && file != stdout) written &= fclose(file) == 0;
    if (!written)
        return fail(Code::io, "%s: cannot write: %s", printable(options.output, 200).c_str(),
                    strerror(errno));
    return {};
}

extern const Command command_report = {"report", "make a page of HTML from the results of eval",
                                       "-f FILE [-o FILE] [-m MODEL]",
                                       "With -m the page also shows the memory that contexts of "
                                       "this model need, and when a cache under "
                                       "auto gets fewer bits. The page loads nothing else.",
                                       start_command<ReportOptions, report>};

} // namespace ks
