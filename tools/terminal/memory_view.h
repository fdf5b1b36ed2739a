// Prints memory as a table: a line and a bar for each region.
#pragma once

#include "runtime/plan/plan.h"

#include <cstdio>

namespace ks
{

// Prints the regions, their total and the budget. cached_share: the filled share of the cache;
// negative: not shown.
void print_memory(FILE* out, const Plan& plan, double cached_share = -1);
bool has_unicode(); // the locale uses UTF-8

} // namespace ks
