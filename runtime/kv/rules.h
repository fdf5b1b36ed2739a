// Every refusal of a recipe, in tables: a condition, and one sentence that says what is possible.
#pragma once

#include "runtime/kv/layout.h"

#include <string>
#include <string_view>

namespace ks
{

// Refuses a name or an option that this build does not have, if there is a nearest one to name.
// key: of an option or an environment variable; "": value is the name of a recipe.
Status check_missing(std::string_view key, std::string_view value);
// Refuses combinations that no model and no device can run.
Status check_recipe(const Recipe& recipe);
// Refuses combinations that this model or this device cannot run.
Status check_recipe(const Recipe& recipe, const ModelShape& model, const DeviceInfo& device);

// Why the recipe has study grade on this model, as one sentence; empty: it has product grade.
std::string study_reason(const Recipe& recipe, const ModelShape& model);

} // namespace ks
