// Every system call is made to fail, at every point. Each library call either works or fails with a
// sentence. Nothing leaks, the saved file is the old or the new one, and the same call succeeds
// when repeated without the fault.
#include "tests/api/open_alone.h"
#include "tests/devices.h"
#include "tests/faults/inject.h"
#include "tests/files.h"
#include "tests/fuzz/small_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <string>

using namespace ks;

namespace
{

const char* const kChatml = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + "
                            "m['content'] + '<|im_end|>' + '\n'}}{% endfor %}";

// The use of a session from open to close.
class SessionRun
{
public:
    Folder folder;
    std::string saved = folder / "s", old; // old: previous contents of the file
    std::array<float, 6> end = {};         // the last logits
    size_t n_refused = 0;
    bool lost = false; // the device: the session can only be closed

    SessionRun(const char* recipe, const char* device) : m_slow(std::string(device) != "cpu")
    {
        GgufBuilder b = smallest_model("llama", 8);
        b.string("tokenizer.chat_template", kChatml);
        std::ofstream(m_model, std::ios::binary) << b.bytes();
        m_options.struct_size = sizeof m_options;
        m_options.model_path = m_model.c_str();
        m_options.device = device;
        m_options.recipe = recipe;
        m_options.memory_bytes = 8 << 20;
        m_options.context = 100;
        m_options.n_threads = 2;
    }
    ~SessionRun() { unlink(m_model.c_str()); }
    void run(Fault fault, uint64_t n, bool all, bool* hit)
    {
        const Held before = held();
        m_fault = fault, m_hit = lost = false;
        ks_session* s = nullptr;
        char error[400] = "";
        arm(fault, n, all);
        step([&] { return open_alone(&m_options, &s, error, sizeof error); }, [&] { return error; },
             [&] { return !s; });
        m_session = s;
        if (s) live(s);
        m_session = nullptr;
        uint32_t id = 0;
        if (lost) CHECK(ks_feed(s, &id, 1) == KS_DEVICE);
        m_hit |= disarm();
        *hit = m_hit;
        ks_session_close(s);
        std::string().swap(m_new);
        const Held after = held();
        if (!m_slow)
            CHECK(after.allocations == before.allocations); // includes allocations of a driver
        CHECK(after.objects == before.objects);
        if (fault != Fault::none)
            // The GPU stand-in keeps the stacks of its threads.
            CHECK(after.blocks == before.blocks);
        CHECK(after.files == before.files);
    }

private:
    // Makes a call that may fail. After a failure the fault is disarmed, and the call must succeed.
    // Without a device nothing more can be done.
    template <class Call, class Error, class Unchanged>
    void step(const Call& call, const Error& error, const Unchanged& unchanged)
    {
        if (lost) return;
        const int code = [&] {
            const Injecting now;
            return call();
        }();
        if (code == KS_OK) return;
        m_hit |= disarm();
        n_refused++;
        const std::string sentence = error();
        CAPTURE(sentence);
        CHECK(m_hit);
        CHECK((code == KS_NO_FIT || code == KS_IO || code == KS_INVALID || code == KS_DEVICE));
        CHECK(((code == KS_NO_FIT) == (m_fault == Fault::heap || m_fault == Fault::block ||
                                       m_fault == Fault::driver) ||
               code == KS_DEVICE));
        CHECK(is_readable(sentence));
        if (m_fault == Fault::driver && m_session) {
            lost = true;
            return;
        }
        CHECK(unchanged());
        const int again = call();
        const std::string why = again ? error() : "";
        CHECK_MESSAGE(again == KS_OK, why);
    }
    static uint32_t n_tokens(const ks_session* s)
    {
        ks_stats stats = {};
        stats.struct_size = sizeof stats;
        ks_get_stats(s, &stats);
        return stats.n_tokens;
    }
    void decode(ks_session* s, int n)
    {
        for (uint32_t id = 0; n > 0; n--) {
            step([&] { return ks_sample(s, &id); }, [&] { return ks_error(s); },
                 [] { return true; });
            step([&] { return ks_feed(s, &id, 1); }, [&] { return ks_error(s); },
                 [] { return true; });
        }
    }
    void live(ks_session* s)
    {
        uint32_t n = 0;
        const auto error = [&] { return ks_error(s); };
        const auto as_before = [&] { return n_tokens(s) == n; };
        const auto in_folder = [&] {
            const std::string now = read_all(saved);
            return folder.names() == std::set<std::string>{"s"} && (now == old || now == m_new);
        };
        step([&] { return ks_feed_turn(s, "cab", "abc cab"); }, error, as_before);
        decode(s, m_slow ? 2 : 6);
        ks_sampling sampling = {};
        sampling.struct_size = sizeof sampling;
        sampling.repeat_penalty = 1.1f;
        sampling.repeat_last_n = 16;
        step([&] { return ks_set_sampling(s, &sampling); }, error, [] { return true; });
        decode(s, m_slow ? 2 : 20);
        n = n_tokens(s);
        step([&] { return ks_save(s, saved.c_str()); }, error, in_folder);
        if (lost) return;
        REQUIRE(folder.names() == std::set<std::string>{"s"});
        m_new = read_all(saved);
        uint32_t ids[64];
        size_t tokenized = 0;
        const auto tokenize = [&] {
            return (tokenized = ks_tokenize(ks_session_model(s), "abcabc ab", 9, 0, ids, 64)) == 3
                       ? KS_OK
                       : KS_NO_FIT;
        };
        step(
            tokenize, [] { return "has no sentence"; }, [&] { return tokenized == 0; });
        step([&] { return ks_feed(s, ids, tokenized); }, error, as_before);
        n = n_tokens(s);
        step([&] { return ks_rewind(s, n - 4); }, error, as_before);
        step([&] { return ks_rewind(s, 9999) == KS_USAGE ? KS_OK : KS_NO_FIT; }, error,
             [] { return true; });
        n = n_tokens(s);
        // If the file disappears while it is read, the session is empty afterwards.
        step([&] { return ks_load(s, saved.c_str()); }, error,
             [&] { return n_tokens(s) == n || n_tokens(s) == 0; });
        decode(s, m_slow ? 1 : 5);
        if (lost) return;
        const float* logits = ks_logits(s);
        std::copy_n(logits, end.size(), end.begin());
    }

    std::string m_model = std::string(folder.path) + ".gguf", m_new;
    ks_model_options m_options = {};
    Fault m_fault = Fault::none;
    bool m_hit = false, m_slow; // a slow device gets fewer tokens
    ks_session* m_session = nullptr;
};

// If a driver does not report its features, the library uses other kernels, whose results are only
// close.
bool is_close(const std::array<float, 6>& end, const std::array<float, 6>& expected, Fault fault)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < end.size(); i++)
        error += std::pow(double(end[i]) - double(expected[i]), 2),
            size += std::pow(double(expected[i]), 2);
    return fault == Fault::driver ? error < 0.05 * 0.05 * size : end == expected;
}

// Tries every n until a run ends before its n-th call.
uint64_t run_all(const char* recipe, Fault fault, bool all_that_follow, const char* device = "cpu")
{
    SessionRun life(recipe, device);
    bool hit = false;
    for (int i = 0; i < 2; i++)
        life.run(Fault::none, 1, false, &hit); // one-time allocations exist after this
    const std::array<float, 6> expected = life.end;
    life.old = read_all(life.saved);
    uint64_t n = 1, n_failed = 0;
    for (;; n += fault_step(fault), n_failed++) {
        CAPTURE(n);
        life.run(fault, n, all_that_follow, &hit);
        REQUIRE((life.lost || is_close(life.end, expected, fault)));
        if (!hit) break;
    }
    // Failures that do no harm: resolving a link, stat of the old file, access to /proc, creating a
    // file without a name. A driver need not support an extension, cache shaders, report features
    // or free memory, or accept the repeated choice of a device.
    const uint64_t harmless = fault == Fault::file || fault == Fault::refused ? 4
                              : fault == Fault::driver                        ? 18
                                                                              : 0;
    const bool refuses = fault != Fault::partly && fault != Fault::again;
    CHECK(life.n_refused <= (refuses ? n_failed : 0));
    CHECK(life.n_refused + harmless >= (refuses ? n_failed : 0));
    MESSAGE(std::string(recipe), ": ", n - 1, " calls, ", n_failed, " of them failed, ",
            life.n_refused, " refusals");
    return n - 1;
}

const char* const kRecipes[] = {"exact", "h2o,slots=24,victims=merge,k=turbo4,v=q8",
                                "mix,slots=32,select=tokenselect,read=24"};

} // namespace

TEST_CASE("faults: the n-th allocation")
{
    for (const char* recipe : kRecipes)
        for (bool all : {false, true}) CHECK(run_all(recipe, Fault::heap, all) > 200);
}

TEST_CASE("faults: the n-th block of memory, the host's or the device's")
{
    for (const char* recipe : kRecipes)
        for (bool all : {false, true}) CHECK(run_all(recipe, Fault::block, all) == 2);
}

TEST_CASE("faults: the n-th call for a file")
{
    for (const char* recipe : kRecipes)
        for (Fault fault : {Fault::file, Fault::refused})
            for (bool all : {false, true}) CHECK(run_all(recipe, fault, all) > 20);
}

TEST_CASE("faults: files that are read and written in parts")
{
    for (Fault fault : {Fault::partly, Fault::again}) CHECK(run_all(kRecipes[1], fault, false) > 5);
}

// Whether faults reach the driver of this device. They do not reach the linked CUDA runtime, but
// they reach its stand-in.
static bool is_intercepted(const std::string& device)
{
#ifdef KS_CUDA
    return device.find("cuda") == 0;
#elif defined(KS_VULKAN)
    return device.find("vulkan") == 0;
#else
    return device.empty();
#endif
}

// Covers memory and every other driver call. KS_TEST_BACKEND=vulkan or cuda. KS_TEST_ALL=1 also
// refuses all calls from the n-th on, and adds a cache that evicts.
TEST_CASE("faults: the n-th call of a GPU's driver")
{
    const bool all = getenv("KS_TEST_ALL");
    // Vulkan is initialised once per process, so it must be refused here.
    arm(Fault::driver, 1, true);
    {
        const Injecting now;
        for (const DeviceInfo& device : list_devices()) CHECK(!is_intercepted(device.id));
    }
    disarm();
    for (const std::string& device : tested_names()) {
        if (!is_intercepted(device)) continue;
        for (int recipe = 0; recipe < (all ? 2 : 1); recipe++)
            for (int that_follow = 0; that_follow < (all ? 2 : 1); that_follow++)
                CHECK(run_all(kRecipes[recipe], Fault::driver, that_follow, device.c_str()) > 50);
    }
}
