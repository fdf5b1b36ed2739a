// Memory as a table for a person: a line and a bar per region.
#pragma once

#include "runtime/plan/plan.h"

#include <cstdio>

namespace ks
{

// Regions, their total and the budget. `cached_share`: how much of the cache holds tokens;
// negative: nobody asks.
void print_memory(FILE* out, const Plan& plan, double cached_share = -1);
bool has_unicode(); // the locale's characters are UTF-8

} // namespace ks
