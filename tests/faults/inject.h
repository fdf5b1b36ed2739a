// Makes the n-th allocation, memory block or file call fail in any test that links inject.cpp.
#pragma once

#include <cstdint>

namespace ks
{

enum class Fault {
    none,
    heap,    // operator new throws
    block,   // the system refuses the block of the host or of the device
    file,    // open, fstat, mmap of a file, pread, write, fsync, linkat, rename, ...: EIO
    refused, // the same calls fail at limits of the system: EMFILE, ENOSPC, ENOMEM
    partly,  // pread and write transfer half of the bytes; not a failure
    again,   // pread and write return EINTR; not a failure
    driver,  // a call of a GPU driver returns an error (vulkan_calls.cpp)
};

// Arms a fault for the n-th call, counted from 1, or for all calls from it on. Replaces an earlier
// fault.
void arm(Fault fault, uint64_t n, bool all_that_follow);
bool disarm(); // returns whether any call has failed

// From one n to the next: every fourth allocation with sanitizers, which make a run ten times
// slower, unless KS_TEST_ALL=1; else 1.
uint64_t fault_step(Fault fault);

// For the replaced calls: whether this call must fail, and how many objects it made (negative:
// released).
bool fails(Fault fault);
void made_object(int n);

// Calls fail only while an object of this type exists, so calls of the test itself do not.
struct Injecting {
    Injecting();
    ~Injecting();
};

// What is currently held, for comparison before and after.
struct Held {
    int64_t allocations, blocks, files, objects; // objects: of the driver
};
Held held();

} // namespace ks
