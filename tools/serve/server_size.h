// The memory that the server uses beside the model: connections and requests.
#pragma once

#include "tools/option_groups.h"

#include "runtime/api/model.h"

namespace ks::serve
{

constexpr uint32_t kConversations = 4; // by default

struct ServerSize {
    uint32_t n_connections = 0;                 // 0: chosen by the budget
    uint64_t body_bytes = 0, request_bytes = 0; // of one request, and of all

    void add_to(OptionTable& table);
    // Completes the numbers, and leaves the rest of the budget to the model. Answers may be
    // constrained, and prompts are read in small chunks, so that no answer waits for long.
    Status prepare(ModelOptions& model);
    uint64_t bytes() const;
    Plan counted_in(Plan plan) const; // as a region
};

} // namespace ks::serve
