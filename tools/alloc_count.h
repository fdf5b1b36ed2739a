// Counts the heap allocations that the program asks for, in all threads, so that "none per token"
// is measured and not claimed.
#pragma once

#include <cstdint>

namespace ks
{

bool counts_allocations();   // false under sanitizers and where the C library cannot be wrapped
uint64_t allocation_count(); // since it was asked for the first time

} // namespace ks
