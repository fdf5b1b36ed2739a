// Prints the measurements of bench as a table, JSON, CSV or Markdown.
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
    uint64_t peak = 0;
    for (const BenchRow& row : report.rows) peak = std::max(peak, row.peak_bytes);
    printf("peak %s of a budget of %s; limits of the machine: %.1f GB/s, %.0f Gop/s in int8\n",
           human_bytes(peak).c_str(), human_bytes(report.rows[0].plan.budget_bytes).c_str(),
           report.peaks.bytes_per_second * 1e-9, report.peaks.int8_ops_per_second * 1e-9);
}

// Tokens per second of all and of each, the time of a step, and the memory of the model.
void print_sessions(const BenchReport& report)
{
    printf("\n  %-18s %9s %12s %12s %10s %12s %12s\n", "test", "sessions", "tokens/s", "for each",
           "step ms", "memory", "one more");
    for (const BenchRow& row : report.rows)
        printf("  %-18s %9u %12.1f %12.1f %10.2f %12s %12s\n", row.test.name().c_str(),
               row.test.n_sessions, row.median(), row.median() / row.test.n_sessions, row.step_ms(),
               human_bytes(row.peak_bytes).c_str(), human_bytes(row.plan.session_bytes()).c_str());
}

// A line of print_ops: calls per token, total time, time per token, share of the test's time.
void print_time(const BenchRow& row, const std::string& name, double n_calls, double seconds)
{
    const double n = double(row.n_tokens());
    printf("  %-38s", name.c_str());
    if (n_calls > 0)
        printf(" %10.2f", n_calls / n);
    else
        printf(" %10s", "");
    printf(" %10.2f %14.2f %7.1f%%", seconds * 1e3, seconds * 1e6 / n, seconds * 100 / row.seconds);
}

void print_ops(const BenchRow& row)
{
    printf("\n  %-38s %10s %10s %14s %8s %8s %8s\n", row.test.name().c_str(), "calls/token", "ms",
           "us per token", "share", "GB/s", "Gop/s");
    double sum = 0;
    for (const OpTime& op : row.ops) {
        sum += op.seconds;
        print_time(row, op.name, double(op.n_calls), op.seconds);
        if (op.weight_bytes && op.seconds > 0)
            printf(" %8.2f %8.1f", double(op.weight_bytes) * 1e-9 / op.seconds,
                   op.operations * 1e-9 / op.seconds);
        printf("\n");
        for (const KernelTime& k : op.kernels) {
            print_time(row, "  " + k.kernel, double(k.n_dispatches), k.seconds);
            printf("\n");
        }
    }
    if (row.by_device) {
        print_time(row, "the device, in total", 0, sum);
        printf("\n");
    }
    print_time(row, row.by_device ? "the host while the device was idle" : "between ops", 0,
               row.seconds - sum);
    printf("\n");
    for (const ChosenKernel& c : row.chosen)
        if (!c.kernel.empty()) printf("  attention of %s: %s\n", c.call.c_str(), c.kernel.c_str());
}

void print_versus(const BenchReport& report)
{
    printf("\nalternating with: %s\n\n", printable(report.versus, 1000).c_str());
    printf("  %-18s %12s %12s %25s %10s %25s\n", "test", "ours", "theirs", "slowest to fastest",
           "ratio", "lowest to highest");
    for (const BenchRow& row : report.rows) {
        const Spread peer = spread(row.peer), ratio = row.ratio();
        printf("  %-18s %12.1f %12.1f %25s %10.2f %25s\n", row.test.name().c_str(), row.median(),
               peer.median, range_text(peer, 1).c_str(), ratio.median,
               range_text(ratio, 2).c_str());
    }
}

void print_table(const BenchReport& report)
{
    printf("%s, %s\n", printable(report.device_name, 200).c_str(),
           report.rows[0].plan.recipe_text.c_str());
    print_machine(report);
    printf("\n  %-18s %12s %25s %10s %10s %10s\n", "test", "tokens/s", "slowest to fastest", "GB/s",
           "Gop/s", "of limit");
    for (const BenchRow& row : report.rows)
        printf("  %-18s %12.1f %25s %10.2f %10.1f %9.1f%% %s\n", row.test.name().c_str(),
               row.median(), range_text(spread(row.ours), 1).c_str(), report.gb_per_second(row),
               report.gigaops_per_second(row), report.limit_share(row) * 100, report.limit(row));
    if (report.of_sessions) print_sessions(report);
    if (!report.versus.empty()) print_versus(report);
    for (const BenchRow& row : report.rows)
        if (!row.ops.empty()) print_ops(row);
}

// Escapes bars, which would end the cell.
std::string markdown_cell(const std::string& text)
{
    std::string cell = printable(text, 200);
    for (size_t at = 0; (at = cell.find('|', at)) != cell.npos; at += 2) cell.insert(at, 1, '\\');
    return cell;
}

void print_markdown(const BenchReport& report)
{
    const bool versus = !report.versus.empty();
    printf(
        "| model | recipe | test | tokens/s | slowest to fastest | GB/s | Gop/s | of limit |%s%s\n",
        report.of_sessions ? " sessions | for each | step ms |" : "",
        versus ? " theirs | slowest to fastest | ratio | lowest to highest |" : "");
    printf("|---|---|---|---:|---|---:|---:|---|%s%s\n",
           report.of_sessions ? "---:|---:|---:|" : "", versus ? "---:|---|---:|---|" : "");
    for (const BenchRow& row : report.rows) {
        printf("| %s | `%s` | %s | %.1f | %s | %.2f | %.1f | %.1f%% %s |",
               markdown_cell(report.model).c_str(), row.plan.recipe_text.c_str(),
               row.test.name().c_str(), row.median(), range_text(spread(row.ours), 1).c_str(),
               report.gb_per_second(row), report.gigaops_per_second(row),
               report.limit_share(row) * 100, report.limit(row));
        if (report.of_sessions)
            printf(" %u | %.1f | %.2f |", row.test.n_sessions, row.median() / row.test.n_sessions,
                   row.step_ms());
        if (versus) {
            const Spread peer = spread(row.peer), ratio = row.ratio();
            printf(" %.1f | %s | %.2f | %s |", peer.median, range_text(peer, 1).c_str(),
                   ratio.median, range_text(ratio, 2).c_str());
        }
        printf("\n");
    }
    printf("\n%s; ", printable(report.device_name, 200).c_str());
    print_machine(report);
    if (versus) printf("\nalternating with: `%s`\n", printable(report.versus, 1000).c_str());
}

Json spread_json(const Spread& s)
{
    return Json::object({{"median", s.median}, {"min", s.min}, {"max", s.max}});
}

// The members that JSON and CSV share.
Json row_json(const BenchReport& report, const BenchRow& row)
{
    Json json = Json::object(
        {{"test", row.test.decode ? "tg" : "pp"}, {"n", row.test.n}, {"depth", row.test.depth}});
    json.set({{"sessions", row.test.n_sessions}, {"step_ms", row.step_ms()}});
    json.set("tokens_per_second", spread_json(spread(row.ours)));
    json.set("tokens_per_second_each", row.median() / row.test.n_sessions);
    json.set({{"gb_per_second", report.gb_per_second(row)},
              {"bandwidth_share", report.bandwidth_share(row)}});
    json.set({{"gigaops_per_second", report.gigaops_per_second(row)},
              {"int8_share", report.int8_share(row)}});
    json.set({{"limit", report.limit(row)}, {"limit_share", report.limit_share(row)}});
    json.set("machine_gb_per_second", report.peaks.bytes_per_second * 1e-9);
    json.set("machine_gigaops_per_second", report.peaks.int8_ops_per_second * 1e-9);
    json.set({{"peak_bytes", row.peak_bytes},
              {"plan_bytes", row.plan.total_bytes},
              {"bytes_per_session", row.plan.session_bytes()},
              {"budget_bytes", row.plan.budget_bytes}});
    json.set(
        {{"logits_hash", row.hash}, {"recipe", row.plan.recipe_text}, {"device", row.plan.device}});
    json.set({{"device_name", report.device_name},
              {"model", report.model},
              {"repetitions", uint32_t(row.ours.size())}});
    if (row.peer.empty()) return json;
    Json versus = Json::object(
        {{"command", report.versus}, {"tokens_per_second", spread_json(spread(row.peer))}});
    return json.set("versus", versus.set("ratio", spread_json(row.ratio())));
}

Json kernels_json(const OpTime& op, double n_tokens)
{
    Json json = Json::array();
    for (const KernelTime& k : op.kernels) {
        Json item = Json::object(
            {{"kernel", k.kernel}, {"dispatches_per_token", double(k.n_dispatches) / n_tokens}});
        json.push(item.set("microseconds_per_token", k.seconds * 1e6 / n_tokens));
    }
    return json;
}

Json attention_json(const BenchRow& row)
{
    Json json = Json::array();
    for (const ChosenKernel& c : row.chosen)
        json.push(Json::object({{"call", c.call}, {"kernel", c.kernel}, {"calls", c.n_calls}}));
    return json;
}

Json ops_json(const BenchRow& row)
{
    const double n = double(row.n_tokens());
    Json json = Json::array();
    for (const OpTime& op : row.ops) {
        Json item = Json::object({{"op", op.name}, {"calls_per_token", double(op.n_calls) / n}});
        item.set({{"microseconds_per_token", op.seconds * 1e6 / n},
                  {"share", op.seconds / row.seconds}});
        if (row.by_device) item.set("kernels", kernels_json(op, n));
        json.push(item);
    }
    return json;
}

Json full_row_json(const BenchReport& report, const BenchRow& row)
{
    Json json = row_json(report, row);
    json.set("samples", row.ours);
    if (!row.peer.empty()) json.set("versus_samples", row.peer);
    if (row.ops.empty()) return json;
    return json.set({{"ops", ops_json(row)},
                     {"ops_clock", row.by_device ? "device" : "host"},
                     {"attention", attention_json(row)}});
}

void print_json(const BenchReport& report)
{
    Json json = Json::array();
    for (const BenchRow& row : report.rows) json.push(full_row_json(report, row));
    json.print();
}

// A member of an object within is named OUTER_INNER.
void add_cells(const Json& object, const std::string& prefix, std::string& names,
               std::string& values)
{
    for (const Json::Member& member : object.members()) {
        if (member.value.is_object()) {
            add_cells(member.value, prefix + member.name + "_", names, values);
            continue;
        }
        std::string cell = member.value.is_text()
                               ? printable(object.text(member.name.c_str()), 1000)
                               : member.value.text();
        for (size_t at = 0; (at = cell.find('"', at)) != cell.npos; at += 2)
            cell.insert(at, 1, '"');
        names += (names.empty() ? "" : ",") + prefix + member.name;
        values += values.empty() ? "" : ",";
        values += member.value.is_text() ? "\"" + cell + "\"" : cell;
    }
}

void print_csv(const BenchReport& report)
{
    for (const BenchRow& row : report.rows) {
        std::string names, values;
        add_cells(row_json(report, row), "", names, values);
        if (&row == &report.rows.front()) printf("%s\n", names.c_str());
        printf("%s\n", values.c_str());
    }
}

} // namespace

void print_bench(const BenchReport& report, const std::string& format)
{
    if (format == "json") return print_json(report);
    if (format == "csv") return print_csv(report);
    if (format == "md") return print_markdown(report);
    if (format == "table") return print_table(report);
    for (const BenchRow& row : report.rows) full_row_json(report, row).print();
}

} // namespace ks
