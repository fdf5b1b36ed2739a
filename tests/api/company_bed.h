// Texts in one model with several sessions, and each alone in a model of its own.
#pragma once

#include "tests/api/session_file_bed.h"
#include "tools/bench/timed_backend.h"

#include <random>

namespace ks
{

// A device whose ops see only ranges that begin at multiples of 256 bytes.
class PaddedBackend : public TimedBackend
{
public:
    using TimedBackend::TimedBackend;
    uint64_t range_align() const override { return 256; }
};

inline std::unique_ptr<Backend> padded(std::unique_ptr<Backend> backend)
{
    return std::make_unique<PaddedBackend>(std::move(backend));
}

inline bool same_rungs(const Plan& a, const Plan& b)
{
    bool same = a.fits && b.fits && a.chunk == b.chunk && a.context == b.context &&
                a.n_snapshots == b.n_snapshots && a.rungs.size() == b.rungs.size();
    for (size_t i = 0; same && i < a.rungs.size(); i++)
        same = a.rungs[i].slots == b.rungs[i].slots &&
               a.rungs[i].recipe_text == b.rungs[i].recipe_text;
    return same;
}

// A text that a session of a model with others reads, and that another one reads alone.
struct Pair {
    std::unique_ptr<Session> session, alone;
    std::vector<uint32_t> prompt; // being read, in several steps
    size_t n_read = 0;            // of it
    bool at_once = false;         // alone reads the prompt in one call when it ends
    bool aborted = false;         // the last prompt was given up in the middle
    uint32_t n_steps = 0;         // the steps of the prompt

    bool reads() const { return !prompt.empty(); }
    // One step of the text alone.
    void step_alone(const uint32_t* ids, size_t n)
    {
        StepInput in{alone.get(), ids, n};
        REQUIRE(alone->model().step(&in, 1).ok());
        REQUIRE_MESSAGE(in.status.ok(), in.status.message());
        REQUIRE(in.n_read > 0);
    }
    // The text alone reads what the session has read of the prompt.
    void follow()
    {
        const bool ends = n_read == prompt.size();
        if (ends && at_once) {
            const Status status = alone->feed(prompt.data(), prompt.size());
            REQUIRE_MESSAGE(status.ok(), status.message());
        }
        const uint32_t before = session->n_tokens() - uint32_t(n_read);
        while (!at_once && alone->n_tokens() < session->n_tokens()) {
            const size_t done = alone->n_tokens() - before;
            step_alone(&prompt[done], prompt.size() - done);
        }
        if (ends) prompt.clear();
        if (ends) aborted = false;
    }
    void give_up()
    {
        if (!reads()) return;
        at_once = false;
        if (n_read) follow();
        aborted |= n_read != 0;
        prompt.clear();
    }
    void check() const
    {
        if (reads() && at_once) return;
        REQUIRE(session->n_tokens() == alone->n_tokens());
        REQUIRE(session->evicted() == alone->evicted());
        REQUIRE(session->merged() == alone->merged());
        REQUIRE(same_rungs(session->plan(), alone->plan()));
        REQUIRE(session->rung().slots == alone->rung().slots);
        REQUIRE(session->n_climbs() == alone->n_climbs());
        REQUIRE(session->has_logits() == alone->has_logits());
        if (!session->has_logits()) return;
        const size_t n_vocab = session->model().config().n_vocab;
        REQUIRE(memcmp(session->logits(), alone->logits(), 4 * n_vocab) == 0);
    }
    void check_text() const
    {
        const uint32_t n = session->n_tokens(), context = session->plan().context;
        bool same = session->n_tokens() == alone->n_tokens();
        for (uint32_t p = n - std::min(n, context); same && p < n; p++)
            same = session->token(p) == alone->token(p);
        REQUIRE(same);
    }
};

} // namespace ks
