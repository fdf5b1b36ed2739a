// A session: one text that a model has read, in its part of the cache.
#pragma once

#include "runtime/api/model.h"

#include <atomic>

namespace ks
{

class StateFile;

constexpr uint32_t kMaxTokens = 1u << 31; // maximum tokens of a text; positions have 32 bits
constexpr uint32_t kUnknownToken = 0x7fffffff;

// What a saved session holds beside the session itself.
struct SavedState {
    SamplerState sampler;
    std::string note; // owned by the program, at most kMaxNoteBytes
    static constexpr uint32_t kMaxNoteBytes = 1 << 20;
};

class Session
{
public:
    ~Session(); // Model::open_session() makes one

    Model& model() const { return *m_model; }
    // That of a model with this session alone, in the budget in force.
    const Plan& plan() const { return m_plan; }
    const Cache& cache() const { return m_caches[m_rung]; }

    // Appends tokens to the text. Afterwards logits() follow the last token. no_fit: the context of
    // the exact cache is too small, and nothing was read; other recipes never fill up. interrupted:
    // cancel() was called; n_tokens() says how many tokens were read. template_mask (n): 1 for
    // tokens that a chat template wrote; adjacent ones are evicted together.
    Status feed(const uint32_t* ids, size_t n, const uint8_t* template_mask = nullptr);
    // Like feed() for tokens that were generated, perhaps none.
    Status feed_answer(const uint32_t* ids, size_t n);
    // Like feed(), calling `each(i)` while logits() follow ids[i].
    Status feed_each(const uint32_t* ids, size_t n, const std::function<void(size_t i)>& each);
    const float* logits() const { return m_logits; } // (n_vocab), valid until the next call
    // Working memory of one Sampler, a region of the plan.
    void* sampler_memory() const { return m_model->host_part("sampler", m_seat); }
    // Memory of one Constraint, in the same region; null without ModelOptions::constrained.
    void* constraint_memory() const;

    // The rung in force. Before tokens are read that it does not hold, the session climbs to the
    // next one. clear() goes back to the first; a rewind does only if it reads the text again.
    const PlanRung& rung() const { return m_plan.rungs[m_rung]; }
    uint32_t n_climbs() const { return m_n_climbs; } // since clear()
    double climb_seconds() const { return m_climb_seconds; }
    uint32_t n_tokens() const { return m_n_tokens; }
    // Tokens that can still be fed: the free context of the exact cache; practically unlimited if
    // the recipe evicts.
    uint64_t n_free_tokens() const
    {
        return m_model->plan().recipe.exact() ? m_model->plan().context - m_n_tokens
                                              : kMaxTokens - m_n_tokens;
    }
    // A token of the text. Of a text longer than the context, only the last tokens are kept. After
    // going back in such a text, earlier ones are kUnknownToken.
    uint32_t token(uint32_t position) const
    {
        return m_tokens[position % m_model->plan().context] & ~kTemplateToken;
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

    // Changes the budget of a model whose recipe has several rungs, to at most that at open. The
    // cache of this session changes, that of others does not. A smaller one climbs, if necessary to
    // rungs that the budget at open did not need, and evicts at the end of the ladder; with a
    // larger one, codes stay and there are more slots. On failure the budget and the text are as
    // before.
    Status set_memory(uint64_t bytes);

    // Saves or loads a session; session_file.cpp defines the contents. Loading needs the same model
    // and recipe on any device, and gives the state of an uninterrupted session. Under `auto` the
    // budgets may differ: codes are kept where they fit, and else the text is read again. Another
    // file is refused, and the session stays unchanged. If the file changes during loading, or if
    // reading is interrupted, the session becomes empty.
    Status save(const SavedState& with, const std::string& path, bool sync = true);
    Status load(const std::string& path, SavedState* with);
    // Becomes a copy of another session of the model: text, cache, state and logits. no_fit: this
    // session's share of the caches has fewer slots; nothing was changed.
    Status copy(Session& from);
    void cancel() { m_cancelled.store(true); } // from any thread or a signal handler
    void clear_cancel() { m_cancelled.store(false); }
    // Tokens that lost their slot, summed over all layers and heads; merged(): those that were
    // merged into another slot.
    uint64_t evicted() const { return cache().evicted(); }
    uint64_t merged() const { return cache().merged(); }

private:
    friend class Model;
    Session(std::shared_ptr<Model> model, uint32_t seat, uint32_t first_part, uint32_t n_parts);
    Backend& device() const { return *m_model->m_backend; }
    Plan opened() const { return m_model->plan().of_session(m_n_parts); } // what is allocated
    Cache& own_cache() { return m_caches[m_rung]; }
    static CacheMemory cache_memory(const Model& model, uint32_t first_part);
    static std::vector<Cache> place_caches(const Model& model, const Plan& plan,
                                           uint32_t first_part);
    void set_text(std::vector<Cache>& caches) const;
    // The parts of a step: whether an input can be read, the begin of its text, tokens of the next
    // chunk, and what its reading changes.
    Status check_input(const StepInput& in) const;
    void begin_prompt(const StepInput& in);
    uint32_t next_chunk(size_t left) const;
    Span begin_step(const StepInput& in);
    void end_step(const StepInput& in);
    Status feed_as(bool is_prompt, const uint32_t* ids, size_t n, const uint8_t* template_mask);
    // The first rung, from one on, that holds n tokens, or else the last.
    static uint32_t rung_for(const Plan& plan, uint32_t from, uint64_t n);
    // plan: of other slots, which replaces this session's, with caches in the parts from first_part
    // on. from: the cache that climbs; null: that in force.
    void climb(uint32_t to, Plan* plan = nullptr, uint32_t first_part = 0, Cache* from = nullptr);
    // Goes to other parts of the caches, of which it uses at most `limit` bytes.
    Status refit(uint32_t first_part, uint32_t n_parts, uint64_t limit);
    void grow(uint64_t n_tokens);
    void account();
    // Reads the tokens in chunks and calls `after(first, n)` with the range of `ids` after each
    // chunk.
    Status read(const uint32_t* ids, size_t n, const uint8_t* template_mask, bool is_prompt,
                const std::function<Status(size_t first, uint32_t n)>& after);
    uint32_t rewind_begin(uint32_t n_tokens) const;
    uint32_t first_known() const; // the first token from which on all are kept
    Status read_again(uint32_t first, uint32_t end);
    struct SavedRung;
    bool find_rung(const std::string& text, uint32_t context, SavedRung& saved) const;
    static uint64_t longer_by(const std::vector<CacheLayerSpec>& specs, const SavedRung& saved,
                              uint64_t align);
    void place_saved(StateFile& file, SavedRung& saved, uint32_t n_known, uint32_t n_tokens);
    uint32_t transfer_text(StateFile& file, uint32_t context, uint32_t n_tokens);
    void transfer(StateFile& file, SavedState& with, SavedRung& saved);
    Status settle(SavedRung& saved);
    void check_context(StateFile& file, uint32_t context, uint32_t n_tokens,
                       const SavedRung& saved) const;

    std::shared_ptr<Model> m_model;
    uint32_t m_seat;                  // which part of the regions of sessions is its own
    uint32_t m_first_part, m_n_parts; // of the caches
    uint64_t m_limit = ~0ull;         // bytes of these parts, by set_memory()
    uint64_t m_given_back[2] = {};    // of them, on the device and on the host
    uint64_t m_last_step = 0;
    Plan m_plan;                 // differs after set_memory()
    std::vector<Cache> m_caches; // the rungs of the ladder, layouts of the same bytes
    uint32_t m_rung = 0;         // in force
    RecurrentState m_state;
    float* m_logits;    // (n_vocab)
    uint32_t* m_tokens; // (context), a ring; some tokens carry kTemplateToken
    uint32_t m_n_climbs = 0;
    double m_climb_seconds = 0;
    bool m_in_prompt = false; // a step has left tokens of a prompt unread
    uint32_t m_n_tokens = 0;
    uint32_t m_logits_after = 0; // number of tokens before logits()
    std::atomic<bool> m_cancelled{false};
};

} // namespace ks
