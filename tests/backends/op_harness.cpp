#include "tests/backends/op_harness.h"

#include "kernels/common/formats.h"
#include "tests/devices.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>

namespace ks
{

constexpr uint64_t kGuardBytes = 256;
constexpr uint32_t kNan = 0x7fc00000u;

float Random::normal()
{
    double u = 1.0 - random_uniform(m_seed, m_counter), v = random_uniform(m_seed, m_counter + 1);
    m_counter += 2;
    return float(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

std::vector<float> Random::normals(size_t n, float scale)
{
    std::vector<float> out(n);
    for (float& value : out) value = scale * normal();
    return out;
}

Bench::Bench(const std::string& device, int n_threads) : m_name(device)
{
    if (n_threads) m_name += ", " + std::to_string(n_threads) + " threads";
    Result<std::unique_ptr<Backend>> opened = open_backend({device, n_threads, nullptr});
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    m_backend = std::move(opened.value());
}

Tensor Bench::hold(const void* data, uint64_t bytes, bool may_change)
{
    uint64_t whole = align_up(bytes, kRegionAlign) + 2 * kGuardBytes;
    Result<Buffer> buffer = m_backend->alloc(whole);
    REQUIRE_MESSAGE(buffer.ok(), buffer.status().message());
    Held held{buffer.value(), bytes, std::vector<uint8_t>(whole), may_change};
    for (uint64_t i = 0; i < whole; i += 4) memcpy(&held.expected[i], &kNan, 4);
    if (data) memcpy(&held.expected[kGuardBytes], data, bytes);
    m_backend->upload(held.buffer, 0, held.expected.data(), whole);
    m_held.push_back(held);
    Tensor t;
    t.buffer = held.buffer;
    t.offset = kGuardBytes;
    return t;
}

Tensor Bench::input(uint32_t rows, uint32_t cols, const std::vector<float>& values, Format format)
{
    REQUIRE(values.size() == uint64_t(rows) * cols);
    std::vector<uint16_t> f16;
    if (format == Format::f16)
        for (float value : values) f16.push_back(uint16_t(FLOAT_TO_HALF(value)));
    Tensor t = format == Format::f16 ? hold(f16.data(), f16.size() * 2, false)
                                     : hold(values.data(), values.size() * 4, false);
    t.rows = rows;
    t.cols = cols;
    t.format = format;
    return t;
}

Tensor Bench::words(const std::vector<uint32_t>& values)
{
    Tensor t = hold(values.data(), values.size() * 4, false);
    t.rows = 1;
    t.cols = uint32_t(values.size());
    return t;
}

Tensor Bench::weight(const FileMatrix& matrix)
{
    std::vector<uint32_t> tiles = matrix.tiles();
    Tensor t = hold(tiles.data(), tiles.size() * 4, false);
    t.rows = matrix.rows;
    t.cols = matrix.cols;
    t.format = matrix.format;
    return t;
}

Tensor Bench::coded(Format format, uint32_t rows, uint32_t head_dim,
                    const std::vector<uint8_t>& bytes)
{
    REQUIRE(bytes.size() == coded_bytes(format, rows, head_dim));
    Tensor t = hold(bytes.data(), bytes.size(), false);
    t.rows = rows;
    t.cols = head_dim;
    t.format = format;
    return t;
}

Tensor Bench::output(uint32_t rows, uint32_t cols)
{
    Tensor t = hold(nullptr, uint64_t(rows) * cols * 4, true);
    t.rows = rows;
    t.cols = cols;
    return t;
}

void Bench::scratch(const ScratchShape& shape)
{
    uint64_t bytes = m_backend->scratch_bytes(shape);
    Tensor t = hold(nullptr, bytes, true);
    m_backend->set_scratch(t.buffer, t.offset, shape);
}

void Bench::will_change(const Tensor& t)
{
    for (Held& held : m_held)
        if (held.buffer.data == t.buffer.data) held.may_change = true;
}

std::vector<float> Bench::read(const Tensor& t)
{
    std::vector<float> out(uint64_t(t.rows) * t.cols);
    if (t.format == Format::f32) {
        m_backend->download(out.data(), t.buffer, t.offset, out.size() * 4);
        return out;
    }
    if (is_coded(t.format)) {
        std::vector<uint8_t> bytes(coded_bytes(t.format, t.rows, t.cols));
        m_backend->download(bytes.data(), t.buffer, t.offset, bytes.size());
        return std::vector<float>(bytes.begin(), bytes.end());
    }
    std::vector<uint16_t> f16(out.size());
    m_backend->download(f16.data(), t.buffer, t.offset, f16.size() * 2);
    for (size_t i = 0; i < out.size(); i++) out[i] = HALF_TO_FLOAT(f16[i]);
    return out;
}

std::vector<uint32_t> Bench::read_words(const Tensor& t)
{
    std::vector<uint32_t> out(uint64_t(t.rows) * t.cols);
    m_backend->download(out.data(), t.buffer, t.offset, out.size() * 4);
    return out;
}

std::string Bench::damage()
{
    for (size_t n = 0; n < m_held.size(); n++) {
        const Held& held = m_held[n];
        std::vector<uint8_t> found(held.expected.size());
        m_backend->download(found.data(), held.buffer, 0, found.size());
        if (held.may_change) // only the guards are compared
            std::copy_n(held.expected.begin() + kGuardBytes, held.bytes,
                        found.begin() + kGuardBytes);
        if (found == held.expected) continue;
        for (size_t i = 0; i < found.size(); i++) {
            if (found[i] == held.expected[i]) continue;
            return "tensor " + std::to_string(n) + " of the case, byte " +
                   std::to_string(int64_t(i) - int64_t(kGuardBytes)) + " of " +
                   std::to_string(held.bytes);
        }
    }
    return "";
}

void Bench::clear()
{
    for (Held& held : m_held) m_backend->free(held.buffer);
    m_held.clear();
}

static std::vector<float> run_once(const OpCase& c, Bench& bench)
{
    Prepared p = c.prepare(bench);
    p.run();
    Status status = bench.backend().sync();
    CHECK_MESSAGE(status.ok(), status.message());
    CHECK(bench.damage() == "");
    std::vector<float> found;
    for (const Tensor& t : p.results) {
        std::vector<float> part = bench.read(t);
        found.insert(found.end(), part.begin(), part.end());
    }
    for (const Tensor& t : p.words)
        for (uint32_t word : bench.read_words(t)) found.push_back(float(word));
    bench.clear();
    return found;
}

template <class T>
static void check_error(const std::vector<float>& found, const std::vector<T>& expected,
                        double energy, double bound)
{
    REQUIRE(found.size() == expected.size());
    double error = 0, sum = 0;
    size_t not_finite = 0;
    for (size_t i = 0; i < found.size(); i++) {
        if (double(found[i]) == double(expected[i])) {
            if (std::isfinite(found[i])) sum += double(found[i]) * found[i];
            continue;
        }
        double difference = double(found[i]) - double(expected[i]);
        not_finite += !std::isfinite(difference);
        error += difference * difference;
        sum += double(expected[i]) * expected[i];
    }
    CHECK(not_finite == 0);
    double nmse = error == 0 ? 0 : error / std::max(sum, energy);
    CHECK(nmse <= bound);
}

// Every device except reference. The cpu also runs with one and with three threads. Three may be
// more than there are cores.
static std::vector<std::unique_ptr<Bench>> open_benches()
{
    std::vector<std::unique_ptr<Bench>> benches;
    for (const DeviceInfo& device : tested_devices()) {
        if (device.backend == "reference") continue;
        benches.emplace_back(new Bench(device.id, 0));
        if (device.backend != "cpu" || getenv("KS_PERF")) continue;
        benches.emplace_back(new Bench(device.id, 1));
        benches.emplace_back(new Bench(device.id, 3));
    }
    return benches;
}

static bool same_bits(const std::vector<float>& a, const std::vector<float>& b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

static void check_case(const OpCase& c, Bench& reference,
                       std::vector<std::unique_ptr<Bench>>& benches)
{
    CAPTURE(c.name);
    std::vector<float> expected = run_once(c, reference), before;
    std::string device;
    if (c.formula) check_error(expected, c.formula(), c.energy, kRounding);
    for (std::unique_ptr<Bench>& bench : benches) {
        CAPTURE(bench->name());
        if (c.adds_bias && !bench->backend().info().adds_bias) continue;
        std::vector<float> found = run_once(c, *bench);
        check_error(found, expected, c.energy, c.bound);
        CHECK(same_bits(found, run_once(c, *bench))); // independent of the order of threads
        if (bench->backend().info().id == device)
            CHECK(same_bits(found, before)); // and of their number
        device = bench->backend().info().id;
        before = found;
    }
}

static void time_case(const char* op, const OpCase& c, Bench& bench)
{
    using Clock = std::chrono::steady_clock;
    Prepared p = c.prepare(bench);
    p.run();
    std::vector<double> seconds; // per run, one entry per batch
    double batch = 1, total = 0;
    while (total < 0.5 || seconds.size() < 5) {
        auto start = Clock::now();
        for (int i = 0; i < int(batch); i++) p.run();
        Status status = bench.backend().sync();
        CHECK_MESSAGE(status.ok(), status.message());
        double took = std::chrono::duration<double>(Clock::now() - start).count();
        total += took;
        if (took > 0.01 || total > 0.5)
            seconds.push_back(took / int(batch));
        else
            batch = std::max(batch * 2, std::min(batch * 100, 0.02 / took * batch));
    }
    std::sort(seconds.begin(), seconds.end());
    double median = seconds[seconds.size() / 2];
    printf("%-10s %-84s %-9s %9.1f us %8.2f GB/s %8.2f GFLOP/s\n", op, c.name.c_str(),
           bench.name().c_str(), median * 1e6, c.bytes / median / 1e9, c.flops / median / 1e9);
    fflush(stdout);
    bench.clear();
}

void check_ops(const char* op, const std::vector<OpCase>& cases)
{
    std::vector<std::unique_ptr<Bench>> benches = open_benches();
    const char* perf = getenv("KS_PERF");
    if (perf && strcmp(perf, "reference") == 0) benches.emplace_back(new Bench("reference", 0));
    Bench reference("reference", 0);
    // One case of each n, for slow builds and devices. It is drawn: a fixed step would meet the
    // period of the lists and never reach some shapes.
    const char* every = getenv("KS_TEST_EVERY");
    const size_t step = every ? std::max(1ul, strtoul(every, nullptr, 10)) : 1;
    for (size_t begin = 0; begin < cases.size(); begin += step) {
        const double n = double(std::min(step, cases.size() - begin));
        const OpCase& c = cases[begin + size_t(random_uniform(1, begin) * n)];
        if (!perf && !c.timed) check_case(c, reference, benches);
        for (std::unique_ptr<Bench>& bench : benches)
            if (perf && c.timed) time_case(op, c, *bench);
    }
}

} // namespace ks
