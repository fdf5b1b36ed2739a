// Every allocation, block and file call fails once while a model and its sessions open, step and
// close. A failed call changes nothing, works when repeated, and no session loses its text.
#include "tests/api/c_api_step_bed.h"
#include "tests/faults/inject.h"
#include "tests/files.h"
#include "tests/fuzz/small_model.h"

#include <array>
#include <functional>

using namespace ks;

namespace
{

constexpr uint32_t kCompany = 3;

class CompanyRun
{
public:
    std::array<std::array<float, 6>, kCompany> end = {}; // the last logits
    uint32_t n_refused = 0, n_refused_steps = 0;

    CompanyRun(const std::string& arch, const char* recipe)
        : m_file("faults.gguf",
                 (arch == "llama" ? smallest_model(arch) : smallest_mixed(arch)).bytes())
    {
        m_options.struct_size = sizeof m_options;
        m_options.model_path = m_file.path().c_str();
        m_options.device = "cpu";
        m_options.recipe = recipe;
        m_options.memory_bytes = 8 << 20;
        m_options.context = 64;
        m_options.n_threads = 2;
        m_options.n_sessions = kCompany;
    }
    // Whether the fault has hit a call.
    bool run(Fault fault, uint64_t n, bool all)
    {
        m_hit = false;
        const Held before = held();
        if (n) arm(fault, n, all);
        live();
        m_hit |= disarm();
        const Held after = held();
        CHECK(after.allocations == before.allocations);
        CHECK(after.blocks == before.blocks);
        CHECK(after.files == before.files);
        return m_hit;
    }

private:
    // Makes a call that may fail. Then the fault is disarmed, and the call must succeed.
    void must(const std::function<int()>& call, const std::function<bool()>& unchanged)
    {
        m_error[0] = 0;
        const int code = [&] {
            const Injecting now;
            return call();
        }();
        if (code == KS_OK) return;
        m_hit |= disarm();
        CHECK(m_hit);
        n_refused++;
        CAPTURE(m_error);
        CHECK((code == KS_NO_FIT || code == KS_IO || code == KS_INVALID || code == KS_DEVICE));
        CHECK(is_readable(m_error));
        CHECK(unchanged());
        const int again = call();
        REQUIRE_MESSAGE(again == KS_OK, m_error);
    }
    void open(uint32_t i)
    {
        must(
            [&] {
                ks_session* s = nullptr;
                const int code = ks_session_open(m_model.get(), &s, m_error, sizeof m_error);
                m_sessions[i].reset(s);
                return code;
            },
            [&] { return !m_sessions[i]; });
    }
    std::array<uint32_t, kCompany> lengths() const
    {
        std::array<uint32_t, kCompany> n = {};
        for (uint32_t i = 0; i < kCompany; i++) n[i] = stats_of(m_sessions[i]).n_tokens;
        return n;
    }
    // Reads a prompt in the first sessions and single tokens in the last one.
    void read(uint32_t salt)
    {
        std::vector<uint32_t> ids(14);
        for (size_t i = 0; i < ids.size(); i++) ids[i] = uint32_t((i * i + salt) % 5);
        size_t done[kCompany] = {};
        for (bool more = true; more;) {
            ks_step_input inputs[kCompany];
            uint32_t n = 0;
            for (uint32_t i = 0; i < kCompany; i++)
                if (done[i] < ids.size())
                    inputs[n++] = {m_sessions[i].get(), &ids[done[i]],
                                   i + 1 < kCompany ? ids.size() - done[i] : 1, 0, 0};
            more = n != 0;
            const auto before = lengths();
            const uint32_t n_before = n_refused;
            must([&] { return ks_step(m_model.get(), inputs, n, m_error, sizeof m_error); },
                 [&] {
                     for (uint32_t i = 0; i < n; i++) CHECK(inputs[i].n_read == 0);
                     return lengths() == before;
                 });
            n_refused_steps += n_refused - n_before;
            for (uint32_t k = 0; k < n; k++) {
                CHECK(inputs[k].code == KS_OK);
                for (uint32_t i = 0; i < kCompany; i++)
                    if (m_sessions[i].get() == inputs[k].session) done[i] += inputs[k].n_read;
            }
        }
    }
    void live()
    {
        must(
            [&] {
                ks_model* model = nullptr;
                const int code = ks_model_open(&m_options, &model, m_error, sizeof m_error);
                m_model.reset(model);
                return code;
            },
            [&] { return !m_model; });
        for (uint32_t i = 0; i < kCompany; i++) open(i);
        read(1);
        read(2);
        const auto before = lengths();
        {
            const Injecting now; // closing cannot fail
            m_sessions[1].reset();
        }
        open(1);
        CHECK(stats_of(m_sessions[1]).n_tokens == 0);
        CHECK(stats_of(m_sessions[0]).n_tokens == before[0]);
        read(3);
        for (uint32_t i = 0; i < kCompany; i++)
            std::copy_n(ks_logits(m_sessions[i].get()), end[i].size(), end[i].begin());
        const Injecting now;
        m_sessions[2].reset();
        m_model.reset();
        m_sessions[0].reset();
        m_sessions[1].reset();
    }

    TempFile m_file;
    ks_model_options m_options = {};
    std::unique_ptr<ks_model, CloseModel> m_model;
    Handle m_sessions[kCompany];
    bool m_hit = false;
    char m_error[400] = "";
};

// The number of calls.
uint64_t fail_each(const std::string& arch, const char* recipe, Fault fault, bool all,
                   uint32_t* n_steps = nullptr)
{
    CAPTURE(arch);
    CAPTURE(std::string(recipe));
    CompanyRun company(arch, recipe);
    for (int i = 0; i < 2; i++) CHECK(!company.run(fault, 0, false)); // one-time allocations
    const auto expected = company.end;
    uint64_t n = 1, n_failed = 0;
    for (; company.run(fault, n, all); n += fault_step(fault), n_failed++) {
        CAPTURE(n);
        REQUIRE(company.end == expected);
    }
    CHECK(company.n_refused > n_failed / 2);
    CHECK(company.n_refused <= n_failed);
    if (n_steps) *n_steps = company.n_refused_steps;
    return n - 1;
}

} // namespace

TEST_CASE("faults: the n-th allocation of a model with sessions")
{
    for (bool all : {false, true}) {
        uint32_t n_steps = 99;
        CHECK(fail_each("llama", "exact", Fault::heap, all, &n_steps) > 150);
        CHECK(n_steps == 0); // a step allocates nothing
        CHECK(fail_each("lfm2", "mix,slots=16,chunk=4", Fault::heap, all, &n_steps) > 150);
        CHECK(n_steps == 0);
    }
}

TEST_CASE("faults: the n-th block and the n-th file call of a model with sessions")
{
    for (bool all : {false, true}) {
        CHECK(fail_each("llama", "h2o,slots=16,chunk=4", Fault::block, all) == 2);
        for (Fault fault : {Fault::file, Fault::refused}) {
            uint32_t n_steps = 0;
            CHECK(fail_each("gemma4", "exact", fault, all, &n_steps) > 10);
            CHECK(n_steps > 0); // which read rows of the file
        }
    }
}
