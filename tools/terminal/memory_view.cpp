#include "tools/terminal/memory_view.h"

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

// A bar of `whole` columns, of which `filled` are full. At least one column is shown.
static std::string bar(double whole, double filled)
{
    if (whole <= 0) return "";
    bool unicode = has_unicode();
    std::string text;
    if (filled < whole || !unicode) {
        int columns = std::max(1, int(std::round(whole))),
            full = filled < whole ? int(std::ceil(filled)) : columns;
        for (int i = 0; i < columns; i++)
            text += i < full ? (unicode ? "\u2588" : "#") : (unicode ? "\u2591" : ".");
        return text;
    }
    static const char* const kEighths[] = {"",       "\u258f", "\u258e", "\u258d", "\u258c",
                                           "\u258b", "\u258a", "\u2589", "\u2588"};
    for (int eighths = std::max(1, int(std::round(whole * 8))); eighths > 0; eighths -= 8)
        text += kEighths[std::min(eighths, 8)];
    return text;
}

static void print_row(FILE* out, const char* name, uint64_t bytes, const std::string& after)
{
    fprintf(out, "  %-12s %10s %16s%s%s\n", name, human_bytes(bytes).c_str(),
            grouped(bytes).c_str(), after.empty() ? "" : "  ", after.c_str());
}

void print_memory(FILE* out, const Plan& plan, double cached_share)
{
    int columns = is_terminal(fileno(out))
                      ? std::clamp(terminal_columns(fileno(out)) - kTextColumns, 4, kBarColumns)
                      : kBarColumns;
    uint64_t largest = 1;
    for (const PlanRegion& region : plan.regions) largest = std::max(largest, region.bytes);
    for (const PlanRegion& region : plan.regions) {
        double whole = double(region.bytes) / double(largest) * columns;
        bool partly = cached_share >= 0 && strcmp(region.name, "cache") == 0;
        print_row(out, region.name, region.bytes,
                  bar(whole, partly ? whole * cached_share : whole));
    }
    char share[64];
    snprintf(share, sizeof share, "%.1f%% used",
             double(plan.total_bytes) / double(std::max<uint64_t>(plan.budget_bytes, 1)) * 100);
    print_row(out, "total", plan.total_bytes, "");
    print_row(out, "budget", plan.budget_bytes, share);
}

} // namespace ks
