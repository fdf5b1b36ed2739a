// A model: a file opened on one device in one budget. Its sessions share everything but their
// texts.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/fair_mutex.h"
#include "runtime/base/status.h"
#include "runtime/model/transformer.h"
#include "runtime/plan/plan.h"
#include "runtime/text/sampler.h"
#include "runtime/text/tokenizer.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ks
{

class Session;

// stage: "loading weights" (bytes) or "reading prompt" (tokens). Returning false interrupts.
using Progress = std::function<bool(const char* stage, uint64_t done, uint64_t total)>;

struct ModelOptions {
    std::string model_path;
    std::string device; // empty: the best device
    std::string recipe = "auto";
    uint64_t memory_bytes = 0;    // hard limit of the total; 0: the free memory of the device
    uint64_t kv_memory_bytes = 0; // hard limit of the caches; 0: none
    // In tokens. -1: as many as fit, at most the model's context; 0: the model's context.
    int64_t context = -1;
    int n_threads = 0;             // 0: one per core
    uint32_t n_sessions = 1;       // that can be open at once
    bool fixed_shares = false;     // each has an equal part of the caches, also under auto
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
Result<Plan> make_plan(const ModelOptions& options);

// The next tokens of a text, of which a step reads at most a chunk.
struct StepInput {
    Session* session = nullptr;
    const uint32_t* ids = nullptr; // (n)
    size_t n = 0;
    const uint8_t* template_mask = nullptr; // as for Session::feed(); may be null
    size_t n_read = 0;                      // by the step; 0: there was no room, or an error
    Status status = {};                     // why this text did not take part
};

class Model : public std::enable_shared_from_this<Model>
{
public:
    ~Model();
    // Fails with no_fit if the plan does not fit; make_plan() has the numbers.
    static Result<std::shared_ptr<Model>> open(const ModelOptions& options);
    // An empty text. no_fit: as many sessions as planned are open. A session keeps the model alive.
    // If shares of the caches move (Plan::moves_shares): the first session has all of their bytes,
    // the next one takes what is free. If nothing is, the session whose last step is the oldest, on
    // a tie the largest, gives up half of what it has. A session that is about to climb or to evict
    // first takes free bytes beside its own.
    Result<std::unique_ptr<Session>> open_session();

    // Reads the next tokens of several texts together: of each one that has a single token, and in
    // the order of the inputs a chunk of each longer one, as far as the activations have rows.
    // What a text reads, and with which chunks, does not depend on the others. After the last of
    // its tokens logits follow. An input that is wrong by itself gets a status and is left out. A
    // failure concerns all.
    Status step(StepInput* inputs, size_t n_inputs);

    const Plan& plan() const { return m_plan; }
    const Ledger& ledger() const { return m_ledger; }
    // What a thread needs to read plan(), rung() or cache() of a session, or ledger(), while others
    // use sessions of this model.
    FairMutex& mutex() const { return m_mutex; }
    const Config& config() const { return m_config; }
    const Tokenizer& tokenizer() const { return m_tokenizer; }
    void add_end_token(uint32_t id) { m_tokenizer.mark_end(id); } // ends an answer from now on
    // As in the file; may be empty.
    const std::string& chat_template() const { return m_chat_template; }
    const std::string& device_name() const { return m_device_name; }

private:
    friend class Session;
    Model() = default;
    Status open_memory(struct ModelHeader& header);
    Status load(struct ModelHeader& header);
    void give_back_staging(); // its pages, until the next climb or copy
    Status take_fingerprint(const class Gguf& gguf);
    uint8_t* host_part(const char* region, uint32_t part) const;
    struct Parts {
        uint32_t first, n;
    };
    Result<Parts> take_parts(uint32_t seat);
    void begin_step(StepInput* inputs, size_t n_inputs);
    void download_logits(uint32_t row, float* out);
    void suppress(float* logits) const;
    Status fetch_logits(uint32_t row, float* out);
    Status end_step();

    Plan m_plan; // all regions that are allocated
    Ledger m_ledger;
    MemorySource m_memory;
    Arena m_host;
    std::unique_ptr<Backend> m_backend;
    Buffer m_device;
    Config m_config;
    Transformer m_transformer;
    Tokenizer m_tokenizer;
    std::string m_chat_template;
    std::string m_device_name;
    std::vector<uint8_t*> m_regions; // on the host, like Plan::regions
    uint64_t m_fingerprint = 0;      // of the file
    bool m_constrained = false;      // sampler memory is for a Constraint, too
    Progress m_progress;
    std::function<void(const std::string& sentence)> m_log;
    std::vector<Session*> m_seats; // open sessions, or null
    std::vector<Session*> m_parts; // of the caches: whose they are, or null
    uint64_t m_n_steps = 0;
    std::vector<Span> m_spans;        // of the step in flight
    std::vector<StepInput*> m_inputs; // whose they are
    mutable FairMutex m_mutex;        // of the device, and of what is not constant here
};

} // namespace ks
