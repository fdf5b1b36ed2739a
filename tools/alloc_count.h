// Counts the program's heap allocations in all threads. Allocations inside GPU drivers do not
// count.
#pragma once

#include <cstdint>

namespace ks
{

bool counts_allocations();   // false under sanitizers and without glibc
uint64_t allocation_count(); // allocations since the first call of this function

} // namespace ks
