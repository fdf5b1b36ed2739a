// A session: one model on one device in one budget, with the text read so far in its cache.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/status.h"
#include "runtime/kv/recipe.h"
#include "runtime/model/model.h"
#include "runtime/plan/plan.h"
#include "runtime/text/sampler.h"
#include "runtime/text/tokenizer.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ks
{

class StateFile;

// stage: "loading weights" (bytes) or "reading prompt" (tokens). Returning false interrupts.
using Progress = std::function<bool(const char* stage, uint64_t done, uint64_t total)>;

struct SessionOptions {
    std::string model_path;
    std::string device; // empty: the best device
    std::string recipe = "auto";
    uint64_t memory_bytes = 0;    // hard limit of the total; 0: the free memory of the device
    uint64_t kv_memory_bytes = 0; // hard limit of the cache; 0: none
    // In tokens. -1: as many as fit, at most the model's context; 0: the model's context.
    int64_t context = -1;
    int n_threads = 0;             // 0: one per core
    void* caller_memory = nullptr; // used instead of memory of the system
    size_t caller_memory_bytes = 0;
    bool constrained = false; // plans memory for a Constraint
    bool renders = false;     // plans memory for a chat template although the model has none
    Progress progress;        // may be empty
    std::function<void(const std::string& sentence)> log; // may be empty
    // Wraps the device in another backend; may be empty.
    std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap;
};

// Reads only the header of the model and allocates nothing. A plan that does not fit is not an
// error: it has fits == false.
Result<Plan> make_plan(const SessionOptions& options);

constexpr uint32_t kMaxTokens = 1u << 31; // maximum tokens of a text; positions have 32 bits
constexpr uint32_t kUnknownToken = 0x7fffffff;

double log_sum_exp(const float* logits, uint32_t n); // log of the sum of exp(logits)

// What a saved session holds beside the session itself.
struct SavedState {
    SamplerState sampler;
    std::string note; // owned by the program, at most kMaxNoteBytes
    static constexpr uint32_t kMaxNoteBytes = 1 << 20;
};

class Session
{
public:
    ~Session();
    // Fails with no_fit if the plan does not fit; make_plan() has the numbers.
    static Result<std::unique_ptr<Session>> open(const SessionOptions& options);

    const Plan& plan() const { return m_plan; }
    uint64_t peak_bytes() const { return m_ledger.peak_bytes(); } // equals plan().total_bytes
    const Ledger& ledger() const { return m_ledger; }
    const Cache& cache() const { return m_model.cache(); }
    const Config& config() const { return m_config; }
    const Tokenizer& tokenizer() const { return m_tokenizer; }
    void add_end_token(uint32_t id) { m_tokenizer.mark_end(id); } // ends an answer from now on
    // As in the file; may be empty.
    const std::string& chat_template() const { return m_chat_template; }
    const std::string& device_name() const { return m_device_name; }

    // Appends tokens to the text. Afterwards logits() follow the last token. no_fit: the context of
    // the exact cache is too small, and nothing was read; other recipes never fill up. interrupted:
    // cancel() was called; n_tokens() says how many tokens were read. template_mask (n): 1 for
    // tokens that a chat template wrote; adjacent ones are evicted together.
    Status feed(const uint32_t* ids, size_t n, const uint8_t* template_mask = nullptr);
    // Like feed() for tokens that were generated, perhaps none.
    Status feed_answer(const uint32_t* ids, size_t n);
    // Like feed() with logits after every token. top[i] is the argmax after ids[i]. logprob[i] =
    // log p(next[i] | all up to ids[i]) for i < n_next. To score a text in parts, `next` is the
    // text from the second token of the part on.
    Status score(const uint32_t* ids, size_t n, const uint32_t* next, size_t n_next,
                 double* logprob, uint32_t* top);
    // Like feed(), calling `each(i)` while logits() follow ids[i].
    Status feed_each(const uint32_t* ids, size_t n, const std::function<void(size_t i)>& each);
    const float* logits() const { return m_logits; } // (n_vocab), valid until the next call
    // Working memory of one Sampler, a region of the plan.
    void* sampler_memory() const { return m_sampler_memory; }
    // Memory of one Constraint, in the same region; null without SessionOptions::constrained.
    void* constraint_memory() const;

    // The rung in force. Before tokens are read that it does not hold, the session climbs to the
    // next one. clear() goes back to the first; a rewind does only if it reads the text again.
    const PlanRung& rung() const { return m_plan.rungs[m_model.rung()]; }
    uint32_t n_climbs() const { return m_n_climbs; } // since clear()
    double climb_seconds() const { return m_climb_seconds; }
    uint32_t n_tokens() const { return m_n_tokens; }
    // Tokens that can still be fed: the free context of the exact cache; practically unlimited if
    // the recipe evicts.
    uint64_t n_free_tokens() const
    {
        return m_plan.recipe.exact() ? m_plan.context - m_n_tokens : kMaxTokens - m_n_tokens;
    }
    // A token of the text. Of a text longer than the context, only the last tokens are kept. After
    // going back in such a text, earlier ones are kUnknownToken.
    uint32_t token(uint32_t position) const
    {
        return m_tokens[position % m_plan.context] & ~kTemplateToken;
    }
    // Pins the first tokens of the text: they keep their slots, see Cache::pin(). usage: some of
    // them are already evicted.
    Status pin(uint32_t n_tokens);
    // Forgets all but the first n_tokens tokens. They are read again if the cache no longer holds
    // what the next token would see. With recurrent layers, they are read again from the newest
    // snapshot on: snapshots are taken before several tokens are fed, and here. no_fit: that is
    // necessary, and the text is longer than the context.
    Status rewind(uint32_t n_tokens);
    // Whether rewind() need not read the text again from its beginning.
    bool can_rewind(uint32_t n_tokens) const;
    void clear();
    // Whether logits() follow the last token. They do not after rewind() or an interrupted call.
    bool has_logits() const { return m_n_tokens && m_logits_after == m_n_tokens; }

    // Changes the budget of a session whose recipe has several rungs, to at most that at open. A
    // smaller one climbs, if necessary to rungs that the budget at open did not need, and evicts at
    // the end of the ladder; with a larger one, codes stay and there are more slots. On failure the
    // budget and the text are as before.
    Status set_memory(uint64_t bytes);

    // Saves or loads a session; session_file.cpp defines the contents. Loading needs the same model
    // and recipe on any device, and gives the state of an uninterrupted session. Under `auto` the
    // budgets may differ: codes are kept where they fit, and else the text is read again. Another
    // file is refused, and the session stays unchanged. If the file changes during loading, or if
    // reading is interrupted, the session becomes empty.
    Status save(const SavedState& with, const std::string& path);
    Status load(const std::string& path, SavedState* with);
    void cancel() { m_cancelled.store(true); } // from any thread or a signal handler
    void clear_cancel() { m_cancelled.store(false); }
    // Tokens that lost their slot, summed over all layers and heads; merged(): those that were
    // merged into another slot.
    uint64_t evicted() const { return m_model.cache().evicted(); }
    uint64_t merged() const { return m_model.cache().merged(); }

private:
    Session() = default;
    Status open_memory(struct ModelHeader& header);
    Status load(struct ModelHeader& header);
    RecurrentState place_state(uint64_t offset);
    Status check_free_tokens(size_t n) const;
    Status feed_as(bool is_prompt, const uint32_t* ids, size_t n, const uint8_t* template_mask);
    std::vector<Cache> place_caches(const Plan& plan);
    // The first rung, from one on, that holds n tokens, or else the last.
    static uint32_t rung_for(const Plan& plan, uint32_t from, uint64_t n);
    // plan: of other slots, which replaces this session's. from: the cache that climbs; null: that
    // in force.
    void climb(uint32_t to, Plan* plan = nullptr, Cache* from = nullptr);
    // Reads the tokens in chunks and calls `after(first, n)` with the range of `ids` after each
    // chunk.
    Status read(const uint32_t* ids, size_t n, const uint8_t* template_mask, bool is_prompt,
                const std::function<Status(size_t first, uint32_t n)>& after);
    uint32_t rewind_begin(uint32_t n_tokens) const;
    uint32_t first_known() const; // the first token from which on all are kept
    Status read_again(uint32_t first, uint32_t end);
    Status fetch_logits(uint32_t row);
    Status take_fingerprint(const class Gguf& gguf);
    struct SavedRung;
    bool find_rung(const std::string& text, uint32_t context, SavedRung& saved) const;
    void place_saved(StateFile& file, SavedRung& saved, uint32_t n_known, uint32_t n_tokens);
    uint32_t transfer_text(StateFile& file, uint32_t context, uint32_t n_tokens);
    void transfer(StateFile& file, SavedState& with, SavedRung& saved);
    Status settle(SavedRung& saved);
    void check_context(StateFile& file, uint32_t context, uint32_t n_tokens,
                       const SavedRung& saved) const;

    Plan m_plan;
    Plan m_opened; // whose regions are allocated; m_plan differs after set_memory()
    Ledger m_ledger;
    MemorySource m_memory;
    Arena m_host;
    std::unique_ptr<Backend> m_backend;
    Buffer m_device;
    Config m_config;
    Model m_model;
    Tokenizer m_tokenizer;
    std::string m_chat_template;
    std::string m_device_name;
    float* m_logits = nullptr;    // (n_vocab)
    uint32_t* m_tokens = nullptr; // (context), a ring; some tokens carry kTemplateToken
    void* m_sampler_memory = nullptr;
    uint8_t* m_tables = nullptr;  // of the cache
    uint8_t* m_staging = nullptr; // of the weights while they are loaded, then of climbs
    uint32_t m_n_climbs = 0;
    double m_climb_seconds = 0;
    bool m_constrained = false; // the memory is for a Constraint, too
    uint32_t m_n_tokens = 0;
    uint32_t m_logits_after = 0; // number of tokens before logits()
    uint64_t m_fingerprint = 0;  // of the model file
    std::atomic<bool> m_cancelled{false};
    Progress m_progress;
    std::function<void(const std::string& sentence)> m_log;
};

} // namespace ks
