// The plan: every byte that a session will hold, computed from the model file's header before
// anything is allocated. Opening the session allocates exactly these regions.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/kv/recipe.h"
#include "runtime/model/config.h"

#include <string>
#include <vector>

namespace ks
{

struct PlanRegion {
    const char* name;
    uint64_t bytes;
    bool on_device;
    bool of_sessions = false; // equal parts, one for each session
};

constexpr uint32_t kMaxSessions = 256; // of a model
constexpr uint32_t kLeastOfRung = 64;  // tokens; less is not worth a rung

// A recipe that is in force until the text has more than `slots` tokens. The last rung evicts then.
struct PlanRung {
    Recipe recipe;
    std::string recipe_text;
    uint32_t slots; // per KV head, in the layers that see every token; 0: the rung is left out

    // As for Cache::place().
    uint32_t context() const { return recipe.exact() ? slots : 0; }
};

struct Plan {
    bool fits = false;
    uint64_t budget_bytes = 0;    // the requested budget, or the free memory of the device
    uint64_t kv_budget_bytes = 0; // of the cache alone; 0: none
    uint64_t total_bytes = 0;     // sum of the regions
    uint64_t range_bytes = 0;     // DeviceInfo::range_bytes
    uint64_t largest_bytes = 0;   // of the largest tensor that ops see whole
    const char* largest = "";     // the region that has it
    uint64_t smallest_bytes = 0;  // the smallest budget that works with these options
    uint64_t bytes_in_file = 0;   // of the model that stay there; a step reads rows of them
    uint64_t bytes_per_token = 0; // bytes of the cache divided by `slots`
    uint32_t context = 0;         // tokens; longer texts fit if the recipe evicts
    uint32_t slots = 0;           // per KV head, in the layers that see every token
    uint32_t chunk = 0;           // tokens of a prompt read at once
    uint32_t n_layers = 0;        // of the model
    uint32_t n_cached_layers = 0; // whose keys and values the cache holds
    uint32_t n_state_layers = 0;  // that are recurrent, with a state of a fixed size
    uint32_t n_snapshots = 0;     // of that state, in host memory
    uint32_t n_sessions = 1;
    bool shares_workspace = false; // between the caches of several sessions
    // A session that is alone has the bytes of all caches, and gives of them to others.
    bool moves_shares = false;
    uint32_t rows = 0;    // of the activations
    int load_threads = 1; // that read and convert the weights
    // False: the weights do not fit twice into memory that the device shares with the host, so the
    // system's cache of the file is given back while it is read.
    bool keeps_cached = true;
    // What the cache climbs through as a text grows; one if the recipe is fixed. All have one
    // chunk, and the most bytes of each region are planned.
    std::vector<PlanRung> rungs;
    // The recipes that `auto` chooses from, whatever the budget. Each is that of a last rung.
    // Empty: the recipe is fixed.
    std::vector<Recipe> ladder;
    uint32_t most_slots = 0; // of a rung in any budget: scratch is planned for as many
    Recipe recipe;           // of the last rung, like `slots`
    std::string recipe_text; // full: "exact,k=f16,v=f16"
    std::string study;       // why the recipe has study grade; empty: product grade
    std::string device;      // id
    std::vector<PlanRegion> regions;

    uint64_t region_bytes(const char* name) const;
    uint64_t part_bytes(const char* name) const; // of each session
    // Where a region of the device begins in its memory, or one of its parts.
    uint64_t offset_of(const char* name, uint32_t part = 0) const;
    uint64_t cache_bytes() const;   // what kv_budget_bytes limits
    uint64_t session_bytes() const; // what one session holds
    // That of a model with one session, which has so many of the equal parts of the caches.
    Plan of_session(uint32_t n_parts = 1) const;
    bool exceeds_range() const { return range_bytes && largest_bytes > range_bytes; }
    void set_region(const char* name, uint64_t bytes);
};

struct PlanRequest {
    uint64_t memory_bytes = 0;    // hard limit of the total; 0: the free memory of the device
    uint64_t kv_memory_bytes = 0; // hard limit of the cache; 0: none
    int64_t context = -1; // -1: as much as fits, at most the model's; 0: the model's; else tokens
    int n_threads = 1;    // of the host; 0: one per core
    uint32_t n_sessions = 1;
    bool fixed_shares = false; // of the caches; else under auto they move
    bool renders = false;      // conversations with a chat template
};

// Heap memory of rendering a conversation. Templates need up to 40 bytes for each of its bytes.
constexpr uint64_t rendering_bytes(uint32_t context)
{
    return (1 << 19) + 96ull * context;
}

struct TensorPart;

// tokenizer_bytes: Tokenizer::bytes_needed(). sampler_bytes: Sampler::bytes_needed(),
// and Constraint::bytes_needed() if answers follow a grammar.
Result<Plan> make_plan(const Config& config, const std::vector<TensorPart>& parts,
                       uint64_t tokenizer_bytes, uint64_t sampler_bytes, const Backend& backend,
                       const Recipe& recipe, const PlanRequest& request);

// Sets the rungs to those of the ladder that the budgets of the plan need, their slots to the most
// that fit them and its scratch, and the regions of the cache. A rung is left out if it holds few
// tokens, or few more than the one before; not the first one, and not in_force, which the text is
// in. slots 0: the last rung does not fit. opened: the plan whose regions are allocated, which
// limit those of the cache; null: none are.
void fit_rungs(const Config& config, const Backend& backend, Plan& plan, size_t in_force,
               const Plan* opened);

// One sentence: how many bytes are missing, and what to change; or what the device cannot see
// whole.
Status no_fit(const Plan& plan);

} // namespace ks
