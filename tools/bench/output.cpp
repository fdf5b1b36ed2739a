// The forms in which bench prints what it measured.
#include "tools/bench/bench.h"
#include "tools/json.h"
#include "tools/program.h"

namespace ks
{
namespace
{

std::string range_text(const Spread& s, int decimals)
{
    char text[64];
    snprintf(text, sizeof text, "%.*f to %.*f", decimals, s.min, decimals, s.max);
    return text;
}

void print_machine(const BenchReport& report)
{
    printf("peak %s of a budget of %s; the machine reads %.1f GB/s and multiplies %.0f Gop/s in int8\n",
           human_bytes(report.peak_bytes).c_str(), human_bytes(report.plan.budget_bytes).c_str(), report.peaks.bytes_per_second * 1e-9,
           report.peaks.int8_ops_per_second * 1e-9);
}

void print_ops(const BenchRow& row)
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

void print_versus(const BenchReport& report)
{
    printf("\nin turns with: %s\n\n", printable(report.versus, 1000).c_str());
    printf("  %-14s %12s %12s %25s %10s %25s\n", "test", "ours", "theirs", "slowest to fastest", "ratio", "least to most");
    for (const BenchRow& row : report.rows) {
        const Spread peer = spread(row.peer), ratio = row.ratio();
        printf("  %-14s %12.1f %12.1f %25s %10.2f %25s\n", row.test.name().c_str(), row.median(), peer.median, range_text(peer, 1).c_str(),
               ratio.median, range_text(ratio, 2).c_str());
    }
}

void print_table(const BenchReport& report)
{
    printf("%s, %s\n", printable(report.device_name, 200).c_str(), report.plan.recipe_text.c_str());
    print_machine(report);
    printf("\n  %-14s %12s %25s %10s %10s %10s\n", "test", "tokens/s", "slowest to fastest", "GB/s", "Gop/s", "of limit");
    for (const BenchRow& row : report.rows)
        printf("  %-14s %12.1f %25s %10.2f %10.1f %9.1f%% %s\n", row.test.name().c_str(), row.median(),
               range_text(spread(row.ours), 1).c_str(), report.gb_per_second(row), report.gigaops_per_second(row),
               report.limit_share(row) * 100, report.limit(row));
    if (!report.versus.empty()) print_versus(report);
    for (const BenchRow& row : report.rows)
        if (!row.ops.empty()) print_ops(row);
}

// A bar would end the cell.
std::string markdown_cell(const std::string& text)
{
    std::string cell = printable(text, 200);
    for (size_t at = 0; (at = cell.find('|', at)) != cell.npos; at += 2) cell.insert(at, 1, '\\');
    return cell;
}

void print_markdown(const BenchReport& report)
{
    const bool versus = !report.versus.empty();
    printf("| model | recipe | test | tokens/s | slowest to fastest | GB/s | Gop/s | of limit |%s\n",
           versus ? " theirs | slowest to fastest | ratio | least to most |" : "");
    printf("|---|---|---|---:|---|---:|---:|---|%s\n", versus ? "---:|---|---:|---|" : "");
    for (const BenchRow& row : report.rows) {
        printf("| %s | `%s` | %s | %.1f | %s | %.2f | %.1f | %.1f%% %s |", markdown_cell(report.model).c_str(),
               report.plan.recipe_text.c_str(), row.test.name().c_str(), row.median(), range_text(spread(row.ours), 1).c_str(),
               report.gb_per_second(row), report.gigaops_per_second(row), report.limit_share(row) * 100, report.limit(row));
        if (versus) {
            const Spread peer = spread(row.peer), ratio = row.ratio();
            printf(" %.1f | %s | %.2f | %s |", peer.median, range_text(peer, 1).c_str(), ratio.median, range_text(ratio, 2).c_str());
        }
        printf("\n");
    }
    printf("\n%s; ", printable(report.device_name, 200).c_str());
    print_machine(report);
    if (versus) printf("\nin turns with: `%s`\n", printable(report.versus, 1000).c_str());
}

// A row of JSON and a row of CSV have the same members; begin() and end() are around those of one thing.
struct JsonRow {
    Json& json;

    void begin(const char* name) { json.key(name).open('{'); }
    void end() { json.close('}'); }
    template <class T> void member(const char* name, const T& value) { json.member(name, value); }
};

struct CsvRow {
    std::string names, values;
    std::vector<std::string> prefixes{""};

    void begin(const char* name) { prefixes.push_back(prefixes.back() + name + "_"); }
    void end() { prefixes.pop_back(); }
    void cell(const char* name, const std::string& value)
    {
        const char* comma = names.empty() ? "" : ",";
        names += comma + prefixes.back() + name;
        values += comma + value;
    }
    void member(const char* name, const std::string& value)
    {
        std::string quoted = printable(value, 1000);
        for (size_t at = 0; (at = quoted.find('"', at)) != quoted.npos; at += 2) quoted.insert(at, 1, '"');
        cell(name, "\"" + quoted + "\"");
    }
    void member(const char* name, const char* value) { member(name, std::string(value)); }
    template <class Number> void member(const char* name, const Number& value) { cell(name, Json().value(value).text()); }
};

template <class Row> void spread_member(Row& out, const char* name, const Spread& s)
{
    out.begin(name);
    out.member("median", s.median);
    out.member("min", s.min);
    out.member("max", s.max);
    out.end();
}

template <class Row> void write_members(Row& out, const BenchReport& report, const BenchRow& row)
{
    out.member("test", row.test.decode ? "tg" : "pp");
    out.member("n", row.test.n);
    out.member("depth", row.test.depth);
    spread_member(out, "tokens_per_second", spread(row.ours));
    out.member("gb_per_second", report.gb_per_second(row));
    out.member("bandwidth_share", report.bandwidth_share(row));
    out.member("gigaops_per_second", report.gigaops_per_second(row));
    out.member("int8_share", report.int8_share(row));
    out.member("limit", report.limit(row));
    out.member("limit_share", report.limit_share(row));
    out.member("machine_gb_per_second", report.peaks.bytes_per_second * 1e-9);
    out.member("machine_gigaops_per_second", report.peaks.int8_ops_per_second * 1e-9);
    out.member("peak_bytes", report.peak_bytes);
    out.member("plan_bytes", report.plan.total_bytes);
    out.member("budget_bytes", report.plan.budget_bytes);
    out.member("logits_hash", row.hash);
    out.member("recipe", report.plan.recipe_text);
    out.member("device", report.plan.device);
    out.member("device_name", report.device_name);
    out.member("model", report.model);
    out.member("repetitions", uint32_t(row.ours.size()));
    if (row.peer.empty()) return;
    out.begin("versus");
    out.member("command", report.versus);
    spread_member(out, "tokens_per_second", spread(row.peer));
    spread_member(out, "ratio", row.ratio());
    out.end();
}

void write_ops(Json& json, const BenchRow& row)
{
    const double n = double(row.n_tokens());
    json.key("ops").open('[');
    for (const OpTime& op : row.ops) {
        json.open('{').member("op", op.name).member("calls_per_token", double(op.n_calls) / n);
        json.member("microseconds_per_token", op.seconds * 1e6 / n).member("share", op.seconds / row.seconds).close('}');
    }
    json.close(']');
}

void write_json(Json& json, const BenchReport& report, const BenchRow& row)
{
    json.open('{');
    JsonRow members{json};
    write_members(members, report, row);
    json.array("samples", row.ours);
    if (!row.peer.empty()) json.array("versus_samples", row.peer);
    if (!row.ops.empty()) write_ops(json, row);
    json.close('}');
}

void print_json(const BenchReport& report)
{
    Json json;
    json.open('[');
    for (const BenchRow& row : report.rows) write_json(json, report, row);
    json.close(']').print();
}

void print_json_lines(const BenchReport& report)
{
    for (const BenchRow& row : report.rows) {
        Json json;
        write_json(json, report, row);
        json.print();
    }
}

void print_csv(const BenchReport& report)
{
    for (const BenchRow& row : report.rows) {
        CsvRow csv;
        write_members(csv, report, row);
        if (&row == &report.rows.front()) printf("%s\n", csv.names.c_str());
        printf("%s\n", csv.values.c_str());
    }
}

} // namespace

void print_bench(const BenchReport& report, const std::string& format)
{
    if (format == "json") return print_json(report);
    if (format == "jsonl") return print_json_lines(report);
    if (format == "csv") return print_csv(report);
    if (format == "md") return print_markdown(report);
    print_table(report);
}

} // namespace ks
