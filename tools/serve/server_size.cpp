#include "tools/serve/server_size.h"

#include "tools/serve/http.h"

#include <algorithm>

namespace ks::serve
{

void ServerSize::add_to(OptionTable& table)
{
    table.add_number("--connections", "of clients at once; default: 64, in small budgets fewer", 1,
                     1024, &n_connections);
    table.add({"--request-pool", "SIZE",
               "memory for the bodies of all requests; one body may have half of it; default: "
               "8MiB, in small budgets less",
               [this](const Value& v) { return v.bytes(&request_bytes); }});
}

uint64_t ServerSize::bytes() const
{
    return n_connections * (kConnectionBytes + kUnsentBytes) + request_bytes;
}

Status ServerSize::prepare(ModelOptions& model)
{
    constexpr uint64_t kSmallBudget = 64 << 20;
    const bool is_small = model.memory_bytes && model.memory_bytes < kSmallBudget;
    if (!n_connections) n_connections = is_small ? 16 : 64;
    if (!request_bytes) request_bytes = is_small ? 1 << 20 : 8 << 20;
    body_bytes = request_bytes / 2;
    model.constrained = model.renders = true;
    Result<Recipe> recipe = parse_recipe(model.recipe);
    if (!recipe.ok()) return recipe.status();
    Result<Plan> plan = make_plan(model);
    if (!plan.ok()) return plan.status();
    // On the CPU 32 rows take half the time of 64, and prompts are read 5% slower.
    const uint32_t chunk = plan.value().device == "cpu" ? 32 : 64;
    if (!recipe.value().chunk) model.recipe += ",chunk=" + std::to_string(chunk);
    if (!model.memory_bytes) model.memory_bytes = plan.value().budget_bytes;
    if (model.memory_bytes <= bytes())
        return fail(Code::no_fit,
                    "the connections and requests of the server need %s, the budget has %s",
                    human_bytes(bytes()).c_str(), human_bytes(model.memory_bytes).c_str());
    model.memory_bytes -= bytes();
    return {};
}

Plan ServerSize::counted_in(Plan plan) const
{
    plan.regions.push_back({"server", bytes(), false});
    plan.total_bytes += bytes();
    plan.budget_bytes += bytes();
    plan.smallest_bytes += bytes();
    return plan;
}

} // namespace ks::serve
