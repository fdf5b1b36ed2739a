// The n-th allocation, block of memory or call for a file fails, on purpose, in any test that links inject.cpp.
#pragma once

#include <cstdint>

namespace ks
{

enum class Fault {
    none,
    heap,    // operator new throws
    block,   // the system refuses a block: the host's one or the device's
    file,    // open, fstat, mmap of a file, pread, write, fsync, linkat, rename, ...: EIO
    refused, // the same calls as where the system's limits are reached: EMFILE, ENOSPC, ENOMEM
    partly,  // pread and write do half of what was asked for: no failure
    again,   // pread and write return EINTR: no failure
    driver,  // a call of a GPU's driver returns an error (vulkan_calls.cpp)
};

// From the n-th call on, 1 being the first, only that one or all that follow; forgets what was armed before.
void arm(Fault fault, uint64_t n, bool all_that_follow);
bool disarm(); // whether any call has failed

// For those who stand in for a call: whether it is one that fails, and that it made something, or took it back.
bool fails(Fault fault);
void made_object(int n);

// Calls fail only while there is one of these: a test's own do not.
struct Injecting {
    Injecting();
    ~Injecting();
};

// What is held now: to be the same before and after.
struct Held {
    int64_t allocations, blocks, files, objects; // the driver's
};
Held held();

} // namespace ks
