// How many sessions a budget has room for.
#pragma once

#include "tools/options.h"

#include "runtime/api/session.h"
#include "runtime/plan/fit.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kUsefulSlots = 256; // fewer are of no use in a conversation

// N or max.
Status read_sessions(const Value& value, uint32_t* n, bool* most);
// The plan with other sessions in the same budget. like: each has the slots of `plan`; else what
// the options give it.
Result<Plan> plan_sessions(const ModelOptions& options, const Plan& plan, uint32_t n, bool like);
// The most sessions, from `least` on, of which each has the slots of `plan`, or at least
// kUsefulSlots.
uint32_t most_sessions(const ModelOptions& options, const Plan& plan, uint32_t least, bool like);

} // namespace ks
