#include "tools/sessions.h"

#include <cstring>

namespace ks
{

Status read_sessions(const Value& value, uint32_t* n, bool* most)
{
    *most = !strcmp(value.text, "max");
    return *most ? Status() : value.number(1, kMaxSessions, n);
}

Result<Plan> plan_sessions(const ModelOptions& options, const Plan& plan, uint32_t n, bool like)
{
    ModelOptions with = options;
    with.n_sessions = n;
    with.memory_bytes = plan.budget_bytes;
    if (like) {
        with.context = plan.context;
        with.recipe = plan.recipe_text;
        if (!plan.recipe.exact())
            with.recipe += ",slots=" + std::to_string(plan.slots) +
                           (plan.recipe.chunk ? "" : ",chunk=" + std::to_string(plan.chunk));
    }
    return make_plan(with);
}

uint32_t most_sessions(const ModelOptions& options, const Plan& plan, uint32_t least, bool like)
{
    return largest(least, kMaxSessions, [&](uint32_t n) {
        Result<Plan> other = plan_sessions(options, plan, n, like);
        return other.ok() && other.value().fits &&
               other.value().slots >= std::min(plan.slots, kUsefulSlots);
    });
}

} // namespace ks
