#include "tools/eval/comparison.h"

#include "tools/eval/chart.h"
#include "tools/eval/eval.h"

#include <algorithm>

namespace ks
{

bool is_text_line(const Json& line)
{
    return line.text("suite") == "text";
}

void RecipeSummary::add(const Json& line)
{
    bytes_per_token += line.number("cache_bytes") / line.number("length");
    bytes += line.number("cache_bytes");
    exact_bytes += line.number("exact_bytes");
    n_lines++;
    if (is_text_line(line)) {
        kl += line.number("kl");
        same_top += line.number("same_top");
        perplexity += line.number("perplexity") / line.number("exact_perplexity");
        return;
    }
    hits += line.number("accuracy") * line.number("cases");
    cases += line.number("cases");
    if (!line.has("survival")) return;
    const std::vector<double> new_sums = line.numbers("depth_sums");
    const std::vector<double> new_counts = line.numbers("depth_counts");
    std::vector<double>& sums = depth_sums[line.number("length")];
    std::vector<double>& counts = depth_counts[line.number("length")];
    sums.resize(10);
    counts.resize(10);
    for (size_t i = 0; i < 10 && i < new_sums.size() && i < new_counts.size(); i++) {
        sums[i] += new_sums[i];
        counts[i] += new_counts[i];
    }
}

Comparison::Comparison(const std::vector<Json>& lines, const std::string& model, bool text)
{
    std::set<double> seeds;
    for (const Json& line : lines)
        if (line.text("model") == model && is_text_line(line) == text)
            seeds.insert(line.number("seed"));
    m_has_seeds = seeds.size() > 1;
    CellNames usable;
    for (const Json& line : lines)
        if (line.text("model") == model && line.text("recipe") == "exact" &&
            line.number("accuracy") >= kControl)
            usable.insert(cell_of(line));
    for (const Json& line : lines) {
        if (line.text("model") != model || is_text_line(line) != text) continue;
        if (!text && !usable.count(cell_of(line))) continue;
        m_lines.push_back(&line);
        m_cells[key_of(line)].insert(cell_of(line));
    }
}

std::vector<CellNames> Comparison::groups() const
{
    std::map<CellNames, size_t> counts;
    for (const auto& [key, cells] : m_cells) counts[cells] += key.first != "exact";
    std::vector<CellNames> groups;
    for (const auto& [cells, count] : counts)
        if (count || counts.size() == 1) groups.push_back(cells);
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const CellNames& a, const CellNames& b) { return counts[a] > counts[b]; });
    return groups;
}

std::vector<RecipeSummary> Comparison::summaries(const CellNames& cells) const
{
    std::vector<RecipeSummary> summaries;
    for (const Json* line : m_lines) {
        const RecipeKey key = key_of(*line);
        const CellNames& own = m_cells.at(key);
        const bool has_all = std::includes(own.begin(), own.end(), cells.begin(), cells.end());
        if (!cells.count(cell_of(*line)) || (key.first != "exact" && !has_all)) continue;
        auto found = std::find_if(summaries.begin(), summaries.end(), [&](const RecipeSummary& s) {
            return s.recipe == key.first && s.share == key.second;
        });
        if (found == summaries.end()) {
            found = summaries.insert(found, RecipeSummary());
            found->recipe = key.first;
            found->share = key.second;
        }
        found->add(*line);
    }
    return summaries;
}

std::string Comparison::cell_of(const Json& line) const
{
    const std::string cell =
        line.text("suite") + " " + rounded(line.number("length"), 0) + " " + line.text("question");
    return m_has_seeds ? cell + " (seed " + rounded(line.number("seed"), 0) + ")" : cell;
}

} // namespace ks
