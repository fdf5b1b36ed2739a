#include "tools/memory_view.h"

#include "tools/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <langinfo.h>

namespace ks
{

constexpr int kTextColumns = 46, kBarColumns = 32;

bool has_unicode()
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

// `filled` of the `whole` columns are full, the rest is reserved; something always shows.
static std::string bar(double whole, double filled)
{
    if (whole <= 0) return "";
    if (!has_unicode()) {
        size_t columns = size_t(std::max(1.0, std::round(whole))), full = std::min(columns, size_t(std::round(filled)));
        return std::string(full, '#') + std::string(columns - full, '.');
    }
    static const char* const kEighths[] = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589", "\u2588"};
    std::string text;
    if (filled < whole) {
        int columns = std::max(1, int(std::round(whole)));
        for (int i = 0; i < columns; i++) text += i < int(std::ceil(filled)) ? "\u2588" : "\u2591";
        return text;
    }
    for (int eighths = std::max(1, int(std::round(whole * 8))); eighths > 0; eighths -= 8) text += kEighths[std::min(eighths, 8)];
    return text;
}

static void print_row(FILE* out, const char* name, uint64_t bytes, const std::string& after)
{
    fprintf(out, "  %-12s %10s %16s%s%s\n", name, human_bytes(bytes).c_str(), grouped(bytes).c_str(), after.empty() ? "" : "  ",
            after.c_str());
}

void print_memory(FILE* out, const Plan& plan, double cached_share)
{
    int columns = is_terminal(fileno(out)) ? std::clamp(terminal_columns(fileno(out)) - kTextColumns, 4, kBarColumns) : kBarColumns;
    uint64_t largest = 1;
    for (const PlanRegion& region : plan.regions) largest = std::max(largest, region.bytes);
    for (const PlanRegion& region : plan.regions) {
        double whole = double(region.bytes) / double(largest) * columns;
        bool partly = cached_share >= 0 && strcmp(region.name, "cache") == 0;
        print_row(out, region.name, region.bytes, bar(whole, partly ? whole * cached_share : whole));
    }
    char share[64];
    snprintf(share, sizeof share, "%.1f%% of it",
             double(plan.total_bytes) / double(std::max<uint64_t>(plan.budget_bytes, 1)) * 100);
    print_row(out, "total", plan.total_bytes, share);
    print_row(out, "budget", plan.budget_bytes, "");
}

} // namespace ks
