// report: what `eval` recorded as one page of HTML that needs nothing else.
#include "tools/eval/chart.h"
#include "tools/eval/eval.h"
#include "tools/eval/lines.h"
#include "tools/option_groups.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

namespace ks
{
namespace
{

struct ReportOptions : PromptFlags {
    SessionOptions session;
    std::string output;

    void add_to(OptionTable& table)
    {
        add_model(table, &session);
        add_file(table, "what `eval --record` wrote; - is standard input");
        table.add_text("-o --output", "FILE", "where the page goes; default: standard output",
                       &output);
    }
    Status finish() const
    {
        return has_prompt ? Status()
                          : fail(Code::usage,
                                 "report: nothing to show; give what eval recorded with -f FILE");
    }
};

const char kStyle[] =
    R"(<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Knapsack: what a budget costs</title><style>
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--soft:#ddd;--faint:#f3f3f3}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#161616;--soft:#444;--faint:#222}}
@media print{:root{--ink:#000;--paper:#fff;--soft:#bbb;--faint:#fff}section{break-inside:avoid}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--ink)}
.grid{stroke:var(--soft)}.bar{stroke:var(--ink);stroke-width:1.5}svg .number{fill:#fff;font-weight:bold}svg .cell{fill:#111}
.legend{list-style:none;padding:0;columns:2;font-size:14px}.legend b{color:#fff;border-radius:1em;padding:0 .5em}
table{border-collapse:collapse;font-size:14px;margin:1em 0}th,td{padding:.2em .6em;text-align:right;border-bottom:1px solid var(--soft)}
th:first-child,td:first-child{text-align:left}tr:nth-child(even){background:var(--faint)}.wide{overflow-x:auto}
figure{margin:1em 0}.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:0 1rem}
.plan{display:flex;height:1.6em;border:1px solid var(--soft)}.plan i{display:block}
</style>
)";

bool is_text(const Json& line)
{
    return line.text("suite") == "text";
}

// A recipe in a share of the bytes, over the places that it is compared in.
struct Pool {
    std::string name;
    double share = 0, n_lines = 0, bytes_per_token = 0, hits = 0,
           cases = 0; // share: what it might take; n_lines: how many the sums are of
    double bytes = 0, exact_bytes = 0;
    double kl = 0, same_top = 0, perplexity = 0;
    std::map<double, std::vector<double>> depth_sums, depth_counts; // by length

    void add(const Json& line)
    {
        bytes_per_token += line.number("cache_bytes") / line.number("length");
        bytes += line.number("cache_bytes");
        exact_bytes += line.number("exact_bytes");
        n_lines++;
        if (is_text(line)) {
            kl += line.number("kl");
            same_top += line.number("same_top");
            perplexity += line.number("perplexity") / line.number("exact_perplexity");
            return;
        }
        hits += line.number("accuracy") * line.number("cases");
        cases += line.number("cases");
        if (!line.has("survival")) return;
        const std::vector<double> sums = line.numbers("depth_sums"),
                                  counts = line.numbers("depth_counts");
        std::vector<double>&to_sums = depth_sums[line.number("length")],
        &to_counts = depth_counts[line.number("length")];
        to_sums.resize(10);
        to_counts.resize(10);
        for (size_t i = 0; i < 10 && i < sums.size() && i < counts.size(); i++)
            to_sums[i] += sums[i], to_counts[i] += counts[i];
    }
    double mean(double sum) const { return sum / n_lines; }
    std::string of_exact() const { return rounded(100 * bytes / exact_bytes, 1) + "%"; }
};

// The suites, lengths, questions and seeds that something went through: only what went through the
// same ones is compared.
using Places = std::set<std::string>;

class Record
{
public:
    // Of the model's lines those of running text, or those of suites, as far as the exact cache can
    // do them.
    Record(const std::vector<Json>& lines, const std::string& model, bool text)
    {
        std::set<double> seeds;
        for (const Json& line : lines)
            if (line.text("model") == model && is_text(line) == text)
                seeds.insert(line.number("seed"));
        m_tells_seeds = seeds.size() > 1;
        Places usable;
        for (const Json& line : lines)
            if (line.text("model") == model && line.text("recipe") == "exact" &&
                line.number("accuracy") >= kControl)
                usable.insert(location_of(line));
        for (const Json& line : lines) {
            if (line.text("model") != model || is_text(line) != text ||
                (!text && !usable.count(location_of(line))))
                continue;
            m_lines.push_back(&line);
            m_places[cell_of(line)].insert(location_of(line));
        }
    }

    // What was gone through, first what most recipes went through.
    std::vector<Places> all() const
    {
        std::map<Places, size_t> counts;
        for (const auto& [cell, places] : m_places) counts[places] += cell.first != "exact";
        std::vector<Places> places;
        for (const auto& [these, count] : counts)
            if (count || counts.size() == 1) places.push_back(these);
        std::stable_sort(places.begin(), places.end(),
                         [&](const Places& a, const Places& b) { return counts[a] > counts[b]; });
        return places;
    }

    // All that went through these places, without what it did elsewhere.
    std::vector<Pool> pools(const Places& places) const
    {
        std::vector<Pool> pools;
        for (const Json* line : m_lines) {
            const Cell cell = cell_of(*line);
            const Places& its = m_places.at(cell);
            if (!places.count(location_of(*line)) ||
                (cell.first != "exact" &&
                 !std::includes(its.begin(), its.end(), places.begin(), places.end())))
                continue;
            auto same = [&](const Pool& p) {
                return p.name == cell.first && p.share == cell.second;
            };
            auto found = std::find_if(pools.begin(), pools.end(), same);
            if (found == pools.end()) {
                pools.push_back({});
                found = pools.end() - 1;
                found->name = cell.first;
                found->share = cell.second;
            }
            found->add(*line);
        }
        return pools;
    }

private:
    using Cell = std::pair<std::string, double>; // a recipe and its share of the bytes
    static Cell cell_of(const Json& line) { return {line.text("recipe"), line.number("share")}; }
    std::string location_of(const Json& line) const
    {
        const std::string place = line.text("suite") + " " + rounded(line.number("length"), 0) +
                                  " " + line.text("question");
        return m_tells_seeds ? place + " (seed " + rounded(line.number("seed"), 0) + ")" : place;
    }

    std::vector<const Json*> m_lines;
    std::map<Cell, Places> m_places;
    bool m_tells_seeds = false; // there are several
};

std::string list_of(const Places& places)
{
    std::string list;
    for (const std::string& place : places) list += (list.empty() ? "" : ", ") + html_text(place);
    return list;
}

// A recipe has one number and colour in all charts of a model.
uint32_t series_of(std::vector<std::string>& names, const std::string& name)
{
    const auto found = std::find(names.begin(), names.end(), name);
    const uint32_t nth = uint32_t(found - names.begin());
    if (found == names.end()) names.push_back(name);
    return nth;
}

constexpr char kBytesTitle[] = "bytes of cache per token of the text, all layers";

std::string answers_chart(const std::vector<Pool>& pools, const Places& places,
                          std::vector<std::string>& names)
{
    Chart chart;
    chart.x_title = kBytesTitle;
    chart.y_title = "answers that came";
    for (const Pool& p : pools) {
        const Interval range = wilson(p.hits, p.cases);
        chart.points.push_back({p.mean(p.bytes_per_token), p.hits / p.cases, range.low, range.high,
                                series_of(names, p.name)});
    }
    chart.series = names;
    return "<section><h3>Facts found, by what the cache may cost</h3><p>" + list_of(places) +
           ": what the exact cache can do, together; bars are 95% intervals. Up and to the left is "
           "better; points that would cover each "
           "other stand side by side.</p>" +
           chart.svg() + "</section>\n";
}

std::string text_chart(const std::vector<Pool>& pools, const Places& places,
                       std::vector<std::string>& names)
{
    Chart chart;
    chart.x_title = kBytesTitle;
    chart.y_title = "KL from exact";
    chart.percent = false;
    for (const Pool& p : pools)
        chart.points.push_back(
            {p.mean(p.bytes_per_token), p.mean(p.kl), 0, 0, series_of(names, p.name)});
    chart.series = names;
    return "<section><h3>How far the next token is from exact's</h3><p>" + list_of(places) +
           ": mean KL divergence on running text; 0 is exact, each line is ten times the one "
           "below. Down and to the left is better.</p>" +
           chart.svg() + "</section>\n";
}

std::string heat_maps(const std::vector<Pool>& pools)
{
    std::string html;
    for (const Pool& p : pools) {
        if (p.depth_sums.empty()) continue;
        HeatMap map{p.name + " in " + p.of_exact(), {}, {}, {}};
        for (int tenth = 0; tenth < 10; tenth++)
            map.columns.push_back(std::to_string(10 * tenth) + "%");
        for (const auto& [length, sums] : p.depth_sums) {
            map.rows.push_back(rounded(length, 0) + " tokens");
            map.values.push_back({});
            for (size_t i = 0; i < 10; i++) {
                const double n = p.depth_counts.at(length)[i];
                map.values.back().push_back(n > 0 ? sums[i] / n : -1);
            }
        }
        html += map.svg();
    }
    return html.empty() ? html
                        : "<section><h3>Where in the text the fact stood</h3><p>Share of answers "
                          "that came, in percent, by the depth at which the "
                          "fact stands and the length of the text.</p><div class='maps'>" +
                              html + "</div></section>\n";
}

std::string row_begin(const Pool& p)
{
    return "<tr><td><code>" + html_text(p.name) + "</code></td><td>" + p.of_exact() + "</td><td>" +
           rounded(p.mean(p.bytes_per_token), 0) + "</td><td>";
}

constexpr char kTableBegin[] = "<section class='wide'><table><tr><th>recipe</th><th>of exact's "
                               "bytes</th><th>bytes per token</th>";

std::string answers_table(const std::vector<Pool>& pools)
{
    std::string html =
        std::string(kTableBegin) + "<th>answers</th><th>95% interval</th><th>cases</th></tr>";
    for (const Pool& p : pools) {
        const Interval range = wilson(p.hits, p.cases);
        html += row_begin(p) + rounded(100 * p.hits / p.cases, 1) + "%</td><td>" +
                rounded(100 * range.low, 0) + " to " + rounded(100 * range.high, 0) + "%</td><td>" +
                rounded(p.cases, 0) + "</td></tr>\n";
    }
    return html + "</table></section>\n";
}

std::string text_table(const std::vector<Pool>& pools)
{
    std::string html = std::string(kTableBegin) +
                       "<th>KL</th><th>same top</th><th>perplexity over exact's</th></tr>";
    for (const Pool& p : pools)
        html += row_begin(p) + rounded(p.mean(p.kl), 4) + "</td><td>" +
                rounded(100 * p.mean(p.same_top), 1) + "%</td><td>" +
                rounded(p.mean(p.perplexity), 3) + "</td></tr>\n";
    return html + "</table></section>\n";
}

std::string cell_table(const std::vector<Json>& lines, const std::string& model)
{
    std::string html = "<details><summary>Every cell</summary><div "
                       "class='wide'><table><tr><th>suite</th><th>tokens</th><th>question</"
                       "th><th>recipe</th><th>share</th>"
                       "<th>result</th><th>-log p</th><th>heads that hold the fact</th><th>slots "
                       "given up</th><th>hash</th></tr>";
    for (const Json& line : lines) {
        if (line.text("model") != model) continue;
        const bool text = is_text(line);
        const std::string result = text ? "KL " + rounded(line.number("kl"), 4) + ", same top " +
                                              rounded(100 * line.number("same_top"), 1) + "%"
                                        : rounded(line.number("accuracy"), 2) + " [" +
                                              rounded(line.number("low"), 2) + " " +
                                              rounded(line.number("high"), 2) + "]";
        html += "<tr><td>" + html_text(line.text("suite")) + "</td><td>" +
                rounded(line.number("length"), 0) + "</td><td>" + html_text(line.text("question")) +
                "</td><td><code>" + html_text(line.text("recipe")) + "</code></td><td>" +
                rounded(line.number("share"), 1) + "%</td><td>" + result + "</td><td>" +
                (text ? "" : rounded(line.number("log_loss"), 3)) + "</td><td>" +
                (line.has("survival") ? rounded(100 * line.number("survival"), 0) + "%" : "") +
                "</td><td>" + rounded(line.number("evicted"), 0) + "</td><td><code>" +
                html_text(line.text("hash")) + "</code></td></tr>\n";
    }
    return html + "</table></div></details>\n";
}

// What a column of a table of contexts plans.
struct Planned {
    std::string name, recipe;
    uint64_t memory;
    uint32_t share = 0; // of the tokens, one in so many has a slot; 0: as many as there are
};

// A row for each context, from the model file's header; cell: of a plan that fits.
std::string context_table(const ReportOptions& options, const std::vector<Planned>& columns,
                          std::string (*cell)(const Plan&))
{
    std::string html = "<table><tr><th>tokens</th>";
    for (const Planned& column : columns) html += "<th>" + column.name + "</th>";
    html += "</tr>";
    for (uint32_t context = 2048; context <= 131072; context *= 2) {
        html += "<tr><td>" + grouped(context) + "</td>";
        for (const Planned& column : columns) {
            SessionOptions session = options.session;
            session.recipe = column.recipe;
            if (column.share) session.recipe += ",slots=" + std::to_string(context / column.share);
            session.context = context;
            session.memory_bytes = column.memory;
            const Result<Plan> plan = make_plan(session);
            html += "<td>" + (plan.ok() && plan.value().fits ? cell(plan.value()) : "-") + "</td>";
        }
        html += "</tr>\n";
    }
    return html + "</table></section>\n";
}

std::string needs_table(const ReportOptions& options)
{
    constexpr uint64_t kAny = uint64_t(1) << 50;
    const std::vector<Planned> columns = {
        {"<code>exact</code>", "exact", kAny},
        {"<code>q8</code>", "q8", kAny, 1},
        {"<code>turbo4,v=turbo3</code>", "turbo4,v=turbo3", kAny, 1},
        {"<code>mix, a quarter of the slots</code>", "mix", kAny, 4}};
    return "<section><h3>What a context needs</h3><p>MiB in all, weights included, with room for "
           "every token; from "
           "<code>knapsack plan</code>. A text may be longer than that: slots are then given "
           "up.</p>" +
           context_table(options, columns, [](const Plan& plan) {
               return rounded(double(plan.total_bytes) / 1048576, 0);
           });
}

// How `auto` stores keys and values in a budget, and the share of a context's tokens that have a
// slot.
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
    std::vector<Planned> columns;
    for (uint64_t budget = uint64_t(256) << 20; budget <= uint64_t(8) << 30; budget *= 2)
        columns.push_back({human_bytes(budget), "auto", budget});
    return "<section class='wide'><h3>Which budget for which context</h3><p>What <code>--kv "
           "auto</code> stores in so much memory in "
           "all (<code>--memory</code>): how keys and values are coded, and of how many tokens; no "
           "number: of all. The fewer "
           "bits, and then the fewer tokens, the more is lost; how much, the tables above "
           "say.</p>" +
           context_table(options, columns, auto_cell);
}

Result<std::string> memory_map(const ReportOptions& options)
{
    Result<Plan> made = make_plan(options.session);
    if (!made.ok()) return made.status();
    const Plan& plan = made.value();
    std::string html = "<section><h3>Where the bytes are</h3><p>" + html_text(plan.recipe_text) +
                       ", a context of " + grouped(plan.context) + ": " +
                       human_bytes(plan.total_bytes) + " in all</p><div class='plan'>";
    std::string names = "<table>";
    size_t nth = 0;
    for (const PlanRegion& region : plan.regions) {
        const double share = 100 * double(region.bytes) / double(plan.total_bytes);
        html += "<i style='width:" + rounded(share, 2) + "%;background:" + chart_colour(nth++) +
                "' title='" + region.name + "'></i>";
        names += std::string("<tr><td>") + region.name + "</td><td>" + human_bytes(region.bytes) +
                 "</td><td>" + rounded(share, 1) + "%</td></tr>";
    }
    return html + "</div>" + names + "</table></section>\n";
}

} // namespace

// A cell that several runs recorded has the same cases, so it counts once.
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
    html += "<h1>What a budget costs</h1><p>Each recipe read the same texts with the cache in "
            "fewer bytes than the exact f16 cache needs, "
            "and was "
            "asked for facts in them; <code>knapsack eval --help</code> says what the suites are. "
            "The same seed on the same machine gives "
            "the same "
            "hashes.</p>\n";
    for (const std::string& model : models) {
        html += "<h2>" + html_text(model) + "</h2>\n";
        std::vector<std::string> names;
        const Record suites(lines.value(), model, false), text(lines.value(), model, true);
        for (const Places& places : suites.all()) {
            const std::vector<Pool> pools = suites.pools(places);
            html += answers_chart(pools, places, names) + answers_table(pools) + heat_maps(pools);
        }
        for (const Places& places : text.all()) {
            const std::vector<Pool> pools = text.pools(places);
            html += text_chart(pools, places, names) + text_table(pools);
        }
        html += cell_table(lines.value(), model);
    }
    if (!options.session.model_path.empty()) {
        Result<std::string> map = memory_map(options);
        if (!map.ok()) return map.status();
        html += "<h2>Memory: " + html_text(file_name(options.session.model_path)) + "</h2>\n" +
                needs_table(options) + budget_table(options) + map.value();
    }
    html += "</html>\n";
    FILE* file = options.output.empty() ? stdout : fopen(options.output.c_str(), "wb");
    bool written = file && fwrite(html.data(), 1, html.size(), file) == html.size();
    if (file && file != stdout) written &= fclose(file) == 0;
    if (!written)
        return fail(Code::io, "%s: cannot be written: %s", printable(options.output, 200).c_str(),
                    strerror(errno));
    return {};
}

extern const Command command_report = {
    "report", "what eval recorded, as one page of HTML", "-f FILE [-o FILE] [-m MODEL]",
    "With -m also what contexts need in that model. The page is one file: charts are inline, "
    "nothing is loaded from anywhere.",
    start_command<ReportOptions, report>};

} // namespace ks
