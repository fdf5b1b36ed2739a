// The measurements of bench, and how they are printed.
#pragma once

#include "tools/bench/timed_backend.h"

#include "backends/cpu/cpu_peaks.h"
#include "runtime/plan/plan.h"

#include <algorithm>

namespace ks
{

struct BenchTest {
    bool decode;    // tg; false: pp
    uint32_t n;     // tokens of each session
    uint32_t depth; // tokens in the cache before the test
    uint32_t n_sessions;

    std::string name() const
    {
        return (decode ? "tg" : "pp") + std::to_string(n) +
               (depth ? "@" + std::to_string(depth) : "") +
               (n_sessions > 1 ? " x" + std::to_string(n_sessions) : "");
    }
};

// The least work for one token.
struct TokenWork {
    double read_bytes;
    double operations;
};

struct Spread {
    double median, min, max;
};

inline Spread spread(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

struct BenchRow {
    BenchTest test;
    TokenWork work;
    Plan plan; // of the model with these sessions
    uint64_t peak_bytes = 0;
    double seconds = 0;      // of all repetitions
    std::vector<OpTime> ops; // of all repetitions; empty without --ops
    std::vector<ChosenKernel> chosen;
    bool by_device = false;   // ops were timed by the device's clock
    std::string hash;         // of the first session's logits at the end
    std::vector<double> ours; // tokens per second of each repetition, of all sessions together
    std::vector<double> step_seconds; // of all repetitions
    std::vector<double> peer;         // of --versus, in pairs with `ours`; else empty

    double median() const { return spread(ours).median; }
    double step_ms() const { return spread(step_seconds).median * 1e3; }
    uint64_t n_tokens() const { return uint64_t(test.n_sessions) * test.n * ours.size(); }
    Spread ratio() const // of pairs of neighbouring runs
    {
        std::vector<double> ratios;
        for (size_t i = 0; i < peer.size(); i++) ratios.push_back(ours[i] / peer[i]);
        return spread(ratios);
    }
};

struct BenchReport {
    std::string model, device_name, versus;
    bool of_sessions = false; // --sessions was given
    CpuPeaks peaks;
    std::vector<BenchRow> rows;

    double gb_per_second(const BenchRow& row) const
    {
        return row.work.read_bytes * row.median() * 1e-9;
    }
    double gigaops_per_second(const BenchRow& row) const
    {
        return row.work.operations * row.median() * 1e-9;
    }
    double bandwidth_share(const BenchRow& row) const
    {
        return gb_per_second(row) * 1e9 / peaks.bytes_per_second;
    }
    double int8_share(const BenchRow& row) const
    {
        return gigaops_per_second(row) * 1e9 / peaks.int8_ops_per_second;
    }
    bool is_bandwidth(const BenchRow& row) const // the nearer limit is the bandwidth
    {
        return bandwidth_share(row) >= int8_share(row);
    }
    const char* limit(const BenchRow& row) const
    {
        return is_bandwidth(row) ? "bandwidth" : "int8";
    }
    double limit_share(const BenchRow& row) const
    {
        return std::max(bandwidth_share(row), int8_share(row));
    }
};

// format: "table", or a value of --output.
void print_bench(const BenchReport& report, const std::string& format);

} // namespace ks
