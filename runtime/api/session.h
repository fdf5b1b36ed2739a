// A session: one model open on one device inside one budget, with the text read so far in its cache.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/status.h"
#include "runtime/kv/recipe.h"
#include "runtime/model/model.h"
#include "runtime/model/plan.h"
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

// stage: "loading weights", "reading prompt"; done of total in that stage's units. Returning false interrupts.
using Progress = std::function<bool(const char* stage, uint64_t done, uint64_t total)>;

struct SessionOptions {
    std::string model_path;
    std::string device; // empty: the best that is there
    std::string recipe = "auto";
    uint64_t memory_bytes = 0;     // hard total; 0: what the device has free
    uint64_t kv_memory_bytes = 0;  // hard cache part; 0: no limit of its own
    int64_t context = -1;          // -1: as much as fits, at most the model's; 0: the model's; else tokens
    int n_threads = 0;             // 0: as many as the machine has cores
    void* caller_memory = nullptr; // use this block instead of the system's
    size_t caller_memory_bytes = 0;
    Progress progress;                                                      // may be empty
    std::function<void(const std::string& sentence)> log;                   // may be empty
    std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap; // may be empty; puts a layer around the device
};

// Reads the model's header only, allocates nothing. A plan that does not fit is a value (fits == false), not an error.
Result<Plan> make_plan(const SessionOptions& options);

constexpr uint32_t kEndless = 1u << 31; // tokens of the longest text; positions are counted in 32 bits

double log_sum_exp(const float* logits, uint32_t n); // whose exp() the probabilities are divided by

// What goes into a saved session beside the session.
struct SavedState {
    SamplerState sampler;
    std::string note; // of the program's own, at most kMaxNoteBytes
    static constexpr uint32_t kMaxNoteBytes = 1 << 20;
};

class Session
{
public:
    ~Session();
    // Code::no_fit where the plan does not fit; make_plan() has the numbers.
    static Result<std::unique_ptr<Session>> open(const SessionOptions& options);

    const Plan& plan() const { return m_plan; }
    uint64_t peak_bytes() const { return m_ledger.peak_bytes(); } // equals plan().total_bytes
    const Ledger& ledger() const { return m_ledger; }
    const Cache& cache() const { return m_model.cache(); }
    const Config& config() const { return m_config; }
    const Tokenizer& tokenizer() const { return m_tokenizer; }
    const std::string& chat_template() const { return m_chat_template; } // as in the file, may be empty
    const std::string& device_name() const { return m_device_name; }

    // Appends tokens to the text; afterwards logits() are those after the last of them. no_fit: they do not fit into the exact
    // cache's context (nothing was read); other recipes read on for ever. interrupted: cancel() was called (n_tokens() says how many were
    // read). frames: for each token whether a chat template wrote it; none of these leaves its neighbours.
    Status feed(const uint32_t* ids, size_t n, const uint8_t* frames = nullptr);
    // The same with logits after every token: top[i] is the argmax after ids[i], logprob[i] = log p(next[i] | all up to ids[i])
    // for i < n_next. To score a text in parts, `next` is the text from the part's second token on.
    Status score(const uint32_t* ids, size_t n, const uint32_t* next, size_t n_next, double* logprob, uint32_t* top);
    // The same with `each(i)` while logits() are those after ids[i].
    Status feed_each(const uint32_t* ids, size_t n, const std::function<void(size_t i)>& each);
    const float* logits() const { return m_logits; } // (vocab), valid until the next call
    // Working memory for one Sampler, a region of the plan.
    void* sampler_memory() const { return m_sampler_memory; }

    uint32_t n_tokens() const { return m_n_tokens; }
    // Tokens that can still be fed: what the exact cache's context has left; without end where slots are given up.
    uint64_t room() const { return m_plan.recipe.exact() ? m_plan.context - m_n_tokens : kEndless - m_n_tokens; }
    // What was fed; of a text longer than the context its last tokens.
    uint32_t token(uint32_t position) const { return m_tokens[position % m_plan.context] & ~kFrameToken; }
    // The first tokens of the text that keep their slots: Cache::pin() says which, from when to when. usage: it is too late.
    Status pin(uint32_t n_tokens);
    // Forgets the tokens from n_tokens on. Where the cache no longer holds what the next token would see, the tokens before are
    // read again; no_fit: there were more than the context has.
    Status rewind(uint32_t n_tokens);
    void clear();
    // Whether logits() are those after the last token: not after rewind(), or where reading it was interrupted.
    bool has_logits() const { return m_n_tokens && m_logits_after == m_n_tokens; }

    // A session in a file (session_file.cpp says what is in it). Loading into a session of the same model and recipe, on
    // whichever device, gives what an uninterrupted one would have; any other file is refused, and the session is as it was
    // (empty, if the file changed while it was loaded).
    Status save(const SavedState& with, const std::string& path);
    Status load(const std::string& path, SavedState* with);
    void cancel() { m_cancelled.store(true); } // from any thread or a signal handler
    void clear_cancel() { m_cancelled.store(false); }
    uint64_t evicted() const { return m_model.cache().evicted(); } // slots, over all layers and heads
    uint64_t merged() const { return m_model.cache().merged(); }   // those of them that live on in another

private:
    Session() = default;
    Status open_memory(struct ModelHeader& header);
    Status load(struct ModelHeader& header);
    Status check_room(size_t n) const;
    // Reads the tokens in chunks; after each, `after(first, n)` sees which tokens of `ids` it held.
    Status read(const uint32_t* ids, size_t n, const uint8_t* frames, const std::function<Status(size_t first, uint32_t n)>& after);
    Status fetch_logits(uint32_t row);
    Status take_fingerprint(const class Gguf& gguf);
    void transfer(StateFile& file, SavedState& with);
    void check_context(StateFile& file, uint32_t context, uint32_t n_tokens) const;

    Plan m_plan;
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
    uint32_t* m_tokens = nullptr; // (context), a ring, some with kFrameToken
    void* m_sampler_memory = nullptr;
    uint32_t m_n_tokens = 0;
    uint32_t m_logits_after = 0; // so many tokens
    uint64_t m_fingerprint = 0;  // of the model file
    std::atomic<bool> m_cancelled{false};
    Progress m_progress;
    std::function<void(const std::string& sentence)> m_log;
};

} // namespace ks
