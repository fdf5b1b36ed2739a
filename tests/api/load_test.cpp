// Loading beside the rest of a session: what is planned for it, its threads, and the system's cache
// of the file.
#include "backends/reference/reference_backend.h"
#include "tests/model/cached_file.h"
#include "tests/model/tiny_model.h"
#include "tests/open_session.h"

#include <doctest/doctest.h>

using namespace ks;

namespace
{

// A device that shares the host's memory and has so many bytes free.
class SmallMemory : public ReferenceBackend
{
public:
    explicit SmallMemory(uint64_t free_bytes)
        : ReferenceBackend({"reference", 1, nullptr}), m_free_bytes(free_bytes)
    {
    }
    DeviceInfo info() const override
    {
        DeviceInfo info = ReferenceBackend::info();
        info.free_bytes = m_free_bytes;
        return info;
    }

private:
    const uint64_t m_free_bytes;
};

TinyShape shape()
{
    TinyShape s;
    s.dim = 128;
    s.ffn_dim = 512;
    return s;
}

uint32_t n_entries(const char* folder)
{
    DIR* dir = opendir(folder);
    uint32_t n = 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

} // namespace

TEST_CASE("load: staging is planned for each thread, at most eight, and no thread stays")
{
    const TempFile file("threads.gguf", make_tiny_model(shape()).file);
    ModelOptions options;
    options.model_path = file.path();
    options.device = "reference";
    options.context = 64;
    options.n_threads = 1;
    const uint64_t of_one = make_plan(options).value().region_bytes("staging");
    const uint32_t n_before = n_entries("/proc/self/task");
    for (int n_threads : {1, 2, 3, 8, 100}) {
        options.n_threads = n_threads;
        const Plan plan = make_plan(options).value();
        CHECK(plan.region_bytes("staging") == of_one * uint64_t(std::min(n_threads, 8)));
        const std::unique_ptr<Session> session = std::move(open_session(options).value());
        CHECK(session->model().ledger().peak_bytes() == plan.total_bytes);
        CHECK(n_entries("/proc/self/task") == n_before);
    }
}

TEST_CASE("load: the file leaves the system's cache if its bytes do not fit twice")
{
    const CachedFile cached(make_tiny_model(shape()).file);
    REQUIRE(cached.n_cached() > 300);
    if (!cached.forget()) return;
    ModelOptions options;
    options.model_path = cached.file.path();
    options.context = 64;
    options.n_threads = 2;
    uint64_t free_bytes = 1 << 30;
    options.wrap = [&](std::unique_ptr<Backend>) {
        return std::unique_ptr<Backend>(new SmallMemory(free_bytes));
    };
    const Plan plan = make_plan(options).value();
    const uint64_t twice = plan.total_bytes + plan.region_bytes("weights");
    for (const auto& [bytes, keeps] : {std::pair(twice, true), {twice - 1, false}}) {
        free_bytes = bytes;
        CHECK(open_session(options).ok());
        CAPTURE(keeps);
        CHECK((cached.n_cached() > 300) == keeps);
        CHECK((cached.n_cached() == 0) == !keeps);
    }
}
