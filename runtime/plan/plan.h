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
};

struct Plan {
    bool fits = false;
    uint64_t budget_bytes = 0;    // what was asked for, or what the device has free
    uint64_t kv_budget_bytes = 0; // of the cache alone; 0: none
    uint64_t total_bytes = 0;     // sum of the regions
    uint64_t smallest_bytes = 0;  // the smallest budget that works with these options
    uint64_t bytes_per_token = 0; // of the cache: its bytes over the tokens of the context
    uint32_t context = 0;         // tokens; a text may outgrow it where slots are given up
    uint32_t slots = 0;           // per KV head, in the layers that see every token
    uint32_t chunk = 0;           // tokens of a prompt read at once
    Recipe recipe;
    std::string recipe_text; // full: "exact,k=f16,v=f16"
    std::string device;      // id
    std::vector<PlanRegion> regions;

    uint64_t region_bytes(const char* name) const;
};

struct PlanRequest {
    uint64_t memory_bytes = 0;    // hard total; 0: what the device has free
    uint64_t kv_memory_bytes = 0; // hard cache part; 0: no limit of its own
    int64_t context = -1; // -1: as much as fits, at most the model's; 0: the model's; else tokens
};

struct TensorPart;

// tokenizer_bytes and sampler_bytes come from those who own these tables.
Result<Plan> make_plan(const Config& config, const std::vector<TensorPart>& parts,
                       uint64_t tokenizer_bytes, uint64_t sampler_bytes, const Backend& backend,
                       const Recipe& recipe, const PlanRequest& request);

// One sentence: what is missing and what to change.
Status no_fit(const Plan& plan);

} // namespace ks
