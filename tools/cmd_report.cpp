// report: what `eval` recorded as one page of HTML that needs nothing else.
#include "tools/chart.h"
#include "tools/eval.h"
#include "tools/eval_lines.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>

namespace ks
{
namespace
{

const char kStyle[] = R"(<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
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

// A recipe in a share of the bytes, over all suites that exact itself can do.
struct Pool {
    std::string name;
    double share = 0, hits = 0, cases = 0, bytes_per_token = 0, n_lines = 0, kl = 0, n_texts = 0, text_bytes = 0;
    std::map<double, std::vector<double>> depth_sums, depth_counts; // by length

    void add(const EvalLine& line)
    {
        const double bytes = line.number("cache_bytes") / line.number("length");
        if (line.text("suite") == "text") {
            kl += line.number("kl");
            text_bytes += bytes;
            n_texts++;
            return;
        }
        hits += line.number("accuracy") * line.number("cases");
        cases += line.number("cases");
        bytes_per_token += bytes;
        n_lines++;
        if (!line.has("survival")) return;
        const std::vector<double> sums = line.numbers("depth_sums"), counts = line.numbers("depth_counts");
        std::vector<double>&to_sums = depth_sums[line.number("length")], &to_counts = depth_counts[line.number("length")];
        to_sums.resize(10);
        to_counts.resize(10);
        for (size_t i = 0; i < 10 && i < sums.size() && i < counts.size(); i++) to_sums[i] += sums[i], to_counts[i] += counts[i];
    }
};

std::string place_of(const EvalLine& line)
{
    return line.text("suite") + " " + rounded(line.number("length"), 0) + " " + line.text("question");
}

std::vector<Pool> pool(const std::vector<EvalLine>& lines, const std::string& model)
{
    std::map<std::string, bool> usable;
    for (const EvalLine& line : lines)
        if (line.text("model") == model && line.text("recipe") == "exact") usable[place_of(line)] = line.number("accuracy") >= kControl;
    std::vector<Pool> pools;
    for (const EvalLine& line : lines) {
        if (line.text("model") != model || (line.text("suite") != "text" && !usable[place_of(line)])) continue;
        auto same = [&](const Pool& p) { return p.name == line.text("recipe") && p.share == line.number("share"); };
        auto found = std::find_if(pools.begin(), pools.end(), same);
        if (found == pools.end()) {
            pools.push_back({});
            found = pools.end() - 1;
            found->name = line.text("recipe");
            found->share = line.number("share");
        }
        found->add(line);
    }
    return pools;
}

uint32_t series_of(Chart& chart, const std::string& name)
{
    for (uint32_t i = 0; i < chart.series.size(); i++)
        if (chart.series[i] == name) return i;
    chart.series.push_back(name);
    return uint32_t(chart.series.size() - 1);
}

std::string charts(const std::vector<Pool>& pools)
{
    Chart answers, text;
    answers.x_title = text.x_title = "bytes of cache per token of the text, all layers";
    answers.y_title = "answers that came";
    text.y_title = "KL from exact";
    text.percent = false;
    text.y_high = 0.01;
    for (const Pool& p : pools) {
        if (p.cases > 0) {
            const Interval range = wilson(p.hits, p.cases);
            answers.points.push_back({p.bytes_per_token / p.n_lines, p.hits / p.cases, range.low, range.high, series_of(answers, p.name)});
        }
        if (p.n_texts > 0) text.points.push_back({p.text_bytes / p.n_texts, p.kl / p.n_texts, 0, 0, series_of(text, p.name)});
    }
    std::string html;
    if (!answers.points.empty())
        html +=
            "<section><h3>Facts found, by what the cache may cost</h3><p>All suites that the exact cache can do, together; bars are 95% "
            "intervals. Up and to the left is better; points that would cover each other stand side by side.</p>" +
            answers.svg() + "</section>\n";
    if (!text.points.empty())
        html +=
            "<section><h3>How far the next token is from exact's</h3><p>Mean KL divergence on running text; 0 is exact. Down and to the "
            "left is better.</p>" +
            text.svg() + "</section>\n";
    return html;
}

std::string heat_maps(const std::vector<Pool>& pools)
{
    std::string html;
    for (const Pool& p : pools) {
        if (p.depth_sums.empty()) continue;
        HeatMap map{p.name + " in " + rounded(p.share, 1) + "%", {}, {}, {}};
        for (int tenth = 0; tenth < 10; tenth++) map.columns.push_back(std::to_string(10 * tenth) + "%");
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
    return html.empty()
               ? html
               : "<section><h3>Where in the text the fact stood</h3><p>Share of answers that came, in percent, by the depth at which the "
                 "fact stands and the length of the text.</p><div class='maps'>" +
                     html + "</div></section>\n";
}

std::string pool_table(const std::vector<Pool>& pools)
{
    std::string html =
        "<section class='wide'><table><tr><th>recipe</th><th>of exact's bytes</th><th>bytes per token</th><th>answers</th><th>95% "
        "interval</th><th>cases</th><th>KL</th></tr>";
    for (const Pool& p : pools) {
        const Interval range = p.cases > 0 ? wilson(p.hits, p.cases) : Interval{0, 0};
        html += "<tr><td><code>" + html_text(p.name) + "</code></td><td>" + rounded(p.share, 1) + "%</td><td>" +
                rounded(p.n_lines > 0 ? p.bytes_per_token / p.n_lines : p.text_bytes / p.n_texts, 0) + "</td><td>" +
                (p.cases > 0 ? rounded(100 * p.hits / p.cases, 1) + "%" : "") + "</td><td>" +
                (p.cases > 0 ? rounded(100 * range.low, 0) + " to " + rounded(100 * range.high, 0) + "%" : "") + "</td><td>" +
                rounded(p.cases, 0) + "</td><td>" + (p.n_texts > 0 ? rounded(p.kl / p.n_texts, 4) : "") + "</td></tr>\n";
    }
    return html + "</table></section>\n";
}

std::string cell_table(const std::vector<EvalLine>& lines, const std::string& model)
{
    std::string html = "<details><summary>Every cell</summary><div "
                       "class='wide'><table><tr><th>suite</th><th>tokens</th><th>question</th><th>recipe</th><th>share</th>"
                       "<th>result</th><th>-log p</th><th>heads that hold the fact</th><th>slots given up</th><th>hash</th></tr>";
    for (const EvalLine& line : lines) {
        if (line.text("model") != model) continue;
        const bool text = line.text("suite") == "text";
        const std::string result =
            text
                ? "KL " + rounded(line.number("kl"), 4) + ", same top " + rounded(100 * line.number("same_top"), 1) + "%"
                : rounded(line.number("accuracy"), 2) + " [" + rounded(line.number("low"), 2) + " " + rounded(line.number("high"), 2) + "]";
        html += "<tr><td>" + html_text(line.text("suite")) + "</td><td>" + rounded(line.number("length"), 0) + "</td><td>" +
                html_text(line.text("question")) + "</td><td><code>" + html_text(line.text("recipe")) + "</code></td><td>" +
                rounded(line.number("share"), 1) + "%</td><td>" + result + "</td><td>" + (text ? "" : rounded(line.number("log_loss"), 3)) +
                "</td><td>" + (line.has("survival") ? rounded(100 * line.number("survival"), 0) + "%" : "") + "</td><td>" +
                rounded(line.number("evicted"), 0) + "</td><td><code>" + html_text(line.text("hash")) + "</code></td></tr>\n";
    }
    return html + "</table></div></details>\n";
}

// What a context needs in all, by recipe; from the model file's header.
Result<std::string> memory_tables(const Options& options)
{
    const struct {
        const char *name, *recipe;
        uint32_t share; // of the tokens, one in so many has a slot; 0: the recipe takes no slots
    } kRows[] = {
        {"exact", "exact", 0}, {"q8", "q8", 1}, {"turbo4,v=turbo3", "turbo4,v=turbo3", 1}, {"mix, a quarter of the slots", "mix", 4}};
    Result<Plan> whole = make_plan(options.session);
    if (!whole.ok()) return whole.status();
    std::string html = "<section><h3>What a context needs</h3><p>MiB in all, weights included, with room for every token; from "
                       "<code>knapsack plan</code>. A text may be longer than that: slots are then given up.</p><table><tr><th>tokens</th>";
    for (const auto& row : kRows) html += std::string("<th><code>") + row.name + "</code></th>";
    html += "</tr>";
    for (uint32_t context = 2048; context <= 131072; context *= 2) {
        html += "<tr><td>" + grouped(context) + "</td>";
        for (const auto& row : kRows) {
            SessionOptions session = options.session;
            session.recipe = row.recipe;
            if (row.share) session.recipe += ",slots=" + std::to_string(context / row.share);
            session.context = context;
            session.memory_bytes = uint64_t(1) << 50;
            Result<Plan> plan = make_plan(session);
            html += "<td>" + (plan.ok() && plan.value().fits ? rounded(double(plan.value().total_bytes) / 1048576, 0) : "-") + "</td>";
        }
        html += "</tr>\n";
    }
    html += "</table><h3>Where the bytes are</h3><p>" + html_text(whole.value().recipe_text) + ", a context of " +
            grouped(whole.value().context) + ": " + human_bytes(whole.value().total_bytes) + " in all</p><div class='plan'>";
    std::string names = "<table>";
    size_t nth = 0;
    for (const PlanRegion& region : whole.value().regions) {
        const double share = 100 * double(region.bytes) / double(whole.value().total_bytes);
        html += "<i style='width:" + rounded(share, 2) + "%;background:" + chart_colour(nth++) + "' title='" + region.name + "'></i>";
        names += std::string("<tr><td>") + region.name + "</td><td>" + human_bytes(region.bytes) + "</td><td>" + rounded(share, 1) +
                 "%</td></tr>";
    }
    return html + "</div>" + names + "</table></section>\n";
}

} // namespace

Status cmd_report(const Options& options)
{
    Result<std::vector<EvalLine>> lines = read_eval_lines(options.file);
    if (!lines.ok()) return lines.status();
    std::vector<std::string> models;
    for (const EvalLine& line : lines.value())
        if (std::find(models.begin(), models.end(), line.text("model")) == models.end()) models.push_back(line.text("model"));
    std::string html = kStyle;
    html += "<h1>What a budget costs</h1><p>Each recipe read the same texts with the cache in fewer bytes than the exact f16 cache needs, "
            "and was "
            "asked for facts in them; <code>knapsack eval --help</code> says what the suites are. The same seed on the same machine gives "
            "the same "
            "hashes.</p>\n";
    for (const std::string& model : models) {
        const std::vector<Pool> pools = pool(lines.value(), model);
        html +=
            "<h2>" + html_text(model) + "</h2>\n" + charts(pools) + pool_table(pools) + heat_maps(pools) + cell_table(lines.value(), model);
    }
    if (!options.session.model_path.empty()) {
        Result<std::string> tables = memory_tables(options);
        if (!tables.ok()) return tables.status();
        html += "<h2>Memory: " + html_text(file_name(options.session.model_path)) + "</h2>\n" + tables.value();
    }
    html += "</html>\n";
    FILE* file = options.record.empty() ? stdout : fopen(options.record.c_str(), "wb");
    bool written = file && fwrite(html.data(), 1, html.size(), file) == html.size();
    if (file && file != stdout) written &= fclose(file) == 0;
    if (!written) return fail(Code::io, "%s: cannot be written: %s", printable(options.record, 200).c_str(), strerror(errno));
    return {};
}

} // namespace ks
