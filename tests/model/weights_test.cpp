// Loading: the same bits, errors and order of errors with any number of threads, into mapped memory
// and by upload.
#include "backends/reference/reference_backend.h"
#include "runtime/model/weights.h"
#include "tests/model/cached_file.h"

#include <atomic>
#include <doctest/doctest.h>
#include <thread>
#include <unistd.h>

using namespace ks;

namespace
{

constexpr uint32_t kCols = 256;

// A backend whose memory is reached by upload() alone.
class UnmappedBackend : public ReferenceBackend
{
public:
    UnmappedBackend() : ReferenceBackend({"reference", 1, nullptr}) {}
    void* mapped(const Buffer&, uint64_t, uint64_t) const override { return nullptr; }
    void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override
    {
        n_at_once += m_n_inside++ != 0;
        ReferenceBackend::upload(to, offset, from, bytes);
        m_n_inside--;
        n_uploads++;
    }
    std::atomic<uint32_t> n_uploads{0}, n_at_once{0};

private:
    std::atomic<uint32_t> m_n_inside{0};
};

Bytes random_bytes(uint64_t n, uint32_t seed)
{
    Bytes bytes(n, 0);
    for (char& b : bytes) b = char((seed = seed * 1664525 + 1013904223) >> 24);
    return bytes;
}

// An embedding of several runs in f16, a norm, and a matrix in q4_0. No number of rows is whole
// tiles or slices.
struct Bed {
    static constexpr uint32_t kVocab = 20011, kRows = 30005;
    GgufBuilder builder;
    TempFile file;
    Gguf gguf;
    Config config;
    std::vector<TensorPart> parts;
    uint64_t bytes;

    Bed() : file("load.gguf", build(builder)), gguf(std::move(Gguf::open(file.path()).value()))
    {
        config.layers.resize(1);
        const auto tensor = [&](const char* name) { return gguf.find_tensor(name); };
        parts.push_back({Role::token_embd, 0, tensor("token_embd.weight"), 0, kVocab, kCols});
        parts.push_back({Role::attn_norm, 0, tensor("blk.0.attn_norm.weight"), 0, 1, kCols});
        parts.push_back({Role::ffn_up, 0, tensor("blk.0.ffn_up.weight"), 0, kRows, kCols});
        bytes = weights_bytes(parts, kRegionAlign);
        gguf.unmap();
    }
    static Bytes build(GgufBuilder& b)
    {
        b.tensor("token_embd.weight", {kCols, kVocab}, 1, random_bytes(2ull * kCols * kVocab, 1));
        b.tensor("blk.0.attn_norm.weight", {kCols}, 0, random_bytes(4ull * kCols, 2));
        b.tensor("blk.0.ffn_up.weight", {kCols, kRows}, 2,
                 random_bytes(18ull * kCols / 32 * kRows, 3));
        return b.bytes();
    }
    // Each tensor converted at once.
    std::vector<uint8_t> expected() const
    {
        std::vector<uint8_t> all(bytes);
        uint64_t at = 0;
        for (size_t i = 0; i < parts.size(); i++) {
            const Bytes& values = builder.tensors[i].values;
            const Format format = parts[i].tensor->format;
            if (i == 1) {
                memcpy(&all[at], values.data(), values.size());
                at += values.size();
                continue;
            }
            weight_to_tiles(format, reinterpret_cast<const uint8_t*>(values.data()), parts[i].rows,
                            kCols, reinterpret_cast<uint32_t*>(&all[at]));
            at += weight_bytes(format, parts[i].rows, kCols);
        }
        REQUIRE(at == bytes);
        return all;
    }
    // Loads into zeroed memory. The staging block has exactly the planned bytes.
    Status load(Backend& backend, int n_threads, std::vector<uint8_t>* out,
                std::function<bool(uint64_t, uint64_t)> progress = nullptr) const
    {
        ThreadPool pool(n_threads);
        pool.start();
        std::vector<uint8_t> staging(staging_bytes(parts, n_threads));
        Buffer buffer = backend.alloc(bytes).value();
        Result<Weights> weights = load_weights(gguf, config, parts, backend, buffer, 0,
                                               {staging.data(), &pool, true, std::move(progress)});
        out->resize(bytes);
        backend.download(out->data(), buffer, 0, bytes);
        backend.free(buffer);
        if (weights.ok()) {
            CHECK(weights.value().token_embd.w.rows == kVocab);
            CHECK(weights.value().layers[0].ffn_up.w.rows == kRows);
        }
        return weights.status();
    }
};

} // namespace

TEST_CASE("weights: the same tiles with any number of threads, mapped or uploaded one at a time")
{
    const Bed bed;
    const std::vector<uint8_t> expected = bed.expected();
    for (int n_threads : {1, 2, 3, 8}) {
        CAPTURE(n_threads);
        std::vector<uint8_t> got;
        ReferenceBackend mapped({"reference", 1, nullptr});
        CHECK(bed.load(mapped, n_threads, &got).ok());
        CHECK((got == expected));
        UnmappedBackend unmapped;
        CHECK(bed.load(unmapped, n_threads, &got).ok());
        CHECK((got == expected));
        CHECK(unmapped.n_uploads > 40);
        CHECK(unmapped.n_at_once == 0);
    }
}

TEST_CASE("weights: of several errors the first is reported, whatever thread met it")
{
    const Bed bed;
    for (size_t part = 0; part < bed.parts.size(); part++) {
        const GgufTensor& tensor = *bed.parts[part].tensor;
        const uint64_t size = tensor.offset + tensor.bytes / 2 / 4 * 4;
        REQUIRE(truncate(bed.file.path().c_str(), off_t(size)) == 0);
        std::string first;
        for (int i = 0; i < 30; i++) {
            ReferenceBackend backend({"reference", 1, nullptr});
            std::vector<uint8_t> got;
            const Status status = bed.load(backend, 1 + i % 4, &got);
            CHECK(status.code() == Code::invalid);
            if (first.empty()) first = status.message();
            CHECK(status.message() == first);
            CHECK(first.find("ends at offset " + std::to_string(size)) != first.npos);
        }
        std::ofstream(bed.file.path(), std::ios::binary) << GgufBuilder(bed.builder).bytes();
    }
}

TEST_CASE("weights: progress rises on the calling thread, and interrupts")
{
    const Bed bed;
    for (int n_threads : {1, 3})
        for (int n_calls : {1, 3, 1000}) {
            UnmappedBackend backend;
            std::vector<uint8_t> got;
            uint64_t last = 0, total = 0;
            int n = 0;
            bool here = true, rises = true;
            const std::thread::id caller = std::this_thread::get_id();
            const Status status = bed.load(backend, n_threads, &got, [&](uint64_t d, uint64_t t) {
                here = here && std::this_thread::get_id() == caller;
                rises = rises && d >= last && d <= t;
                last = d, total = t;
                return ++n < n_calls;
            });
            CAPTURE(n_threads);
            CHECK(here);
            CHECK(rises);
            CHECK(total == bed.bytes);
            CHECK(status.code() == (n < n_calls ? Code::ok : Code::interrupted));
            CHECK((status.ok() ? last == total : n == n_calls));
        }
}

TEST_CASE("weights: rows of two matrices that alternate in one tensor")
{
    constexpr uint32_t kRun = 24, kRuns = 3000, kRowBytes = 18 * kCols / 32;
    GgufBuilder b;
    const Bytes file_rows = random_bytes(2ull * kRuns * kRun * kRowBytes, 5);
    b.tensor("blk.0.ffn_up.weight", {kCols, 2 * kRuns * kRun}, 2, file_rows);
    const TempFile file("runs.gguf", b.bytes());
    const Gguf gguf = std::move(Gguf::open(file.path()).value());
    Config config;
    config.layers.resize(1);
    std::vector<TensorPart> parts;
    for (Role role : {Role::ffn_gate, Role::ffn_up})
        parts.push_back({role, 0, &gguf.tensors()[0], uint32_t(parts.size()) * kRun, kRuns * kRun,
                         kCols, Piece::weight, kRun, 2 * kRun});
    ReferenceBackend backend({"reference", 1, nullptr});
    ThreadPool pool(2);
    pool.start();
    std::vector<uint8_t> staging(staging_bytes(parts, 2));
    Buffer buffer = backend.alloc(weights_bytes(parts, kRegionAlign)).value();
    REQUIRE(
        load_weights(gguf, config, parts, backend, buffer, 0, {staging.data(), &pool, true}).ok());
    const uint64_t bytes = weight_bytes(Format::q4_0, kRuns * kRun, kCols);
    for (uint32_t i = 0; i < 2; i++) {
        Bytes rows;
        for (uint32_t run = 0; run < kRuns; run++)
            rows += file_rows.substr((2ull * run + i) * kRun * kRowBytes, kRun * kRowBytes);
        std::vector<uint32_t> tiles(bytes / 4);
        weight_to_tiles(Format::q4_0, reinterpret_cast<const uint8_t*>(rows.data()), kRuns * kRun,
                        kCols, tiles.data());
        CHECK(memcmp(tiles.data(),
                     static_cast<uint8_t*>(buffer.data) + i * align_up(bytes, kRegionAlign),
                     bytes) == 0);
    }
    backend.free(buffer);
}

TEST_CASE("weights: where the cache is given back, a part of the file is cached at a time")
{
    constexpr uint32_t kLayers = 24, kRows = 8192; // 4 MiB each
    GgufBuilder b;
    const auto name = [](uint32_t il) { return "blk." + std::to_string(il) + ".ffn_up.weight"; };
    for (uint32_t il = 0; il < kLayers; il++) b.tensor(name(il), {kCols, kRows}, 1);
    const CachedFile cached(b.bytes());
    Gguf gguf = std::move(Gguf::open(cached.file.path()).value());
    Config config;
    config.layers.resize(kLayers);
    std::vector<TensorPart> parts;
    for (uint32_t il = 0; il < kLayers; il++)
        parts.push_back({Role::ffn_up, il, gguf.find_tensor(name(il)), 0, kRows, kCols});
    gguf.unmap();
    for (bool keeps : {true, false}) {
        if (!cached.forget()) return;
        ReferenceBackend backend({"reference", 1, nullptr});
        ThreadPool pool(2);
        pool.start();
        std::vector<uint8_t> staging(staging_bytes(parts, 2));
        Buffer buffer = backend.alloc(weights_bytes(parts, kRegionAlign)).value();
        size_t most = 0;
        const auto progress = [&](uint64_t, uint64_t) {
            most = std::max(most, cached.n_cached());
            return true;
        };
        CHECK(load_weights(gguf, config, parts, backend, buffer, 0,
                           {staging.data(), &pool, keeps, progress})
                  .ok());
        backend.free(buffer);
        CAPTURE(keeps);
        CHECK((most * 4096 > 90 << 20) == keeps);
        CHECK((most * 4096 < 60 << 20) == !keeps);
        CHECK((cached.n_cached() == 0) == !keeps);
    }
}
