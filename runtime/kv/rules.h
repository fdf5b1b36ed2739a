// Every combination that a recipe cannot have, in one table: a condition, and a sentence that says
// what is possible.
#pragma once

#include "runtime/kv/layout.h"

namespace ks
{

// Refuses what no model and no device can do.
Status check_recipe(const Recipe& recipe);
// Refuses what this model, or this device's attention, cannot do.
Status check_recipe(const Recipe& recipe, const ModelShape& model, const DeviceInfo& device);

} // namespace ks
