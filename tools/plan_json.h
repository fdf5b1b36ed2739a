// Parts of a plan in JSON.
#pragma once

#include "tools/json.h"

#include "runtime/plan/plan.h"

namespace ks
{

Json ladder_json(const Plan& plan); // the rungs that a text climbs through

} // namespace ks
