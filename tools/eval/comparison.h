// Sums up the recorded results of a model. Recipes are compared only on the same cells.
#pragma once

#include "tools/json.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ks
{

// One recipe in one share of the bytes, summed over the cells of a group.
struct RecipeSummary {
    std::string recipe;
    double share = 0; // percent of exact's bytes that the recipe was allowed
    double n_lines = 0, bytes_per_token = 0, bytes = 0, exact_bytes = 0;
    double hits = 0, cases = 0;                                     // of suites
    double kl = 0, same_top = 0, perplexity = 0;                    // of running text
    std::map<double, std::vector<double>> depth_sums, depth_counts; // by length, in tenths

    void add(const Json& line);
    double mean(double sum) const { return sum / n_lines; }
};

// The names of cells: suite, length, question, and the seed if there are several.
using CellNames = std::set<std::string>;

class Comparison
{
public:
    // text: the lines of running text; else those of suites, without cells in which exact fails.
    Comparison(const std::vector<Json>& lines, const std::string& model, bool text);

    // The sets of cells that recipes were measured on, the most frequent one first.
    std::vector<CellNames> groups() const;
    // All recipes that were measured on these cells, and maybe on others.
    std::vector<RecipeSummary> summaries(const CellNames& cells) const;

private:
    using RecipeKey = std::pair<std::string, double>; // recipe and share
    static RecipeKey key_of(const Json& line)
    {
        return {line.text("recipe"), line.number("share")};
    }
    std::string cell_of(const Json& line) const;

    std::vector<const Json*> m_lines;
    std::map<RecipeKey, CellNames> m_cells;
    bool m_has_seeds = false; // more than one
};

bool is_text_line(const Json& line); // a result of the suite text

} // namespace ks
