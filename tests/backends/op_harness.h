// The op harness. A case is one op with one shape and seeded inputs. `reference` is compared with
// the op's formula in float64. Every other device of tested_devices() (tests/devices.h) is compared
// with `reference`. With KS_PERF=1 the cases marked `timed` are timed instead:
//     KS_PERF=1 test_backends -tc="matmul*"
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/rng.h"

#include <functional>
#include <string>
#include <vector>

namespace ks
{

// Normalised mean squared errors: sum of (found - expected)^2 over sum of expected^2.
constexpr double kExact = 0;
constexpr double kRounding = 1e-14; // one rounding to f32: (2^-24)^2 / 3 on average, with a margin
constexpr double kF32 = 1e-11;      // f32 arithmetic, exp and tanh with an error of 3e-6

class Random
{
public:
    explicit Random(uint64_t seed) : m_seed(seed) {}
    double uniform(double low, double high)
    {
        return low + (high - low) * random_uniform(m_seed, m_counter++);
    }
    uint32_t below(uint32_t n) { return uint32_t(uniform(0, n)); }
    float normal();
    std::vector<float> normals(size_t n, float scale = 1);

private:
    uint64_t m_seed, m_counter = 0;
};

// A weight in the layout of a file, with scales for values of about one.
struct FileMatrix {
    Format format;
    uint32_t rows, cols;
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> tiles() const;
    std::vector<float> values() const; // (rows, cols)
};
FileMatrix random_matrix(Format format, uint32_t rows, uint32_t cols, uint64_t seed);
void set_scales(Format format, uint8_t* block, double factor); // factor 1: values of about one
void put_iq1_m_half(uint8_t* block, uint32_t half); // the f16 scale, which iq1_m has in four parts
std::vector<Format> all_formats();

// A device and the tensors of one case. Every tensor has guard bytes on both sides and begins at an
// offset of its buffer.
class Bench
{
public:
    Bench(const std::string& device, int n_threads);
    ~Bench() { clear(); }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    Backend& backend() { return *m_backend; }
    const std::string& name() const { return m_name; }

    Tensor input(uint32_t rows, uint32_t cols, const std::vector<float>& values,
                 Format format = Format::f32);         // f32 or f16
    Tensor words(const std::vector<uint32_t>& values); // (1, n) u32
    Tensor weight(const FileMatrix& matrix);
    Tensor coded(Format format, uint32_t rows, uint32_t head_dim,
                 const std::vector<uint8_t>& bytes); // a cache
    Tensor output(uint32_t rows, uint32_t cols);     // holds NaNs
    void scratch(const ScratchShape& shape);         // holds NaNs
    void will_change(const Tensor& t);               // an input that the op writes to

    std::vector<float> read(const Tensor& t); // for a coded cache: its bytes
    std::vector<uint32_t> read_words(const Tensor& t);
    std::string damage(); // describes a write outside the results; empty: there is none
    void clear();

private:
    struct Held {
        Buffer buffer;
        uint64_t bytes;                // between the guards
        std::vector<uint8_t> expected; // the whole buffer
        bool may_change;               // the bytes between the guards may change
    };
    Tensor hold(const void* data, uint64_t bytes, bool may_change);

    std::string m_name;
    std::unique_ptr<Backend> m_backend;
    std::vector<Held> m_held;
};

struct Prepared {
    std::function<void()> run;
    std::vector<Tensor> results;    // f32, f16 or coded
    std::vector<Tensor> words = {}; // results of u32, which follow the others
};

struct OpCase {
    std::string name;
    double bound = kF32; // for any device against reference
    double energy = 0;   // lower bound of the divisor of the error, for results that may cancel out
    std::function<Prepared(Bench&)> prepare; // uploads the inputs
    std::function<std::vector<double>()>
        formula;                 // the expected results; empty: too slow to compute
    bool timed = false;          // for KS_PERF only
    bool adds_bias = false;      // only for devices with this flag in DeviceInfo
    double bytes = 0, flops = 0; // of one run
};

// Runs the cases of one op on every device.
void check_ops(const char* op, const std::vector<OpCase>& cases);

} // namespace ks
