// The ledger counts every byte that a session holds, by region, and keeps the peak. The arena is
// the one host block: a session takes its regions in order at open and frees the whole block at
// close.
#pragma once

#include "runtime/base/status.h"

#include <cstddef>
#include <cstdint>

namespace ks
{

// Bytes. The plan and the ledger round the size of every region up to it.
constexpr size_t kRegionAlign = 64;

constexpr uint64_t align_up(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) / align * align;
}

struct Region {
    const char* name; // static text: "weights", "cache", ...
    uint64_t bytes;
};

class Ledger
{
public:
    static constexpr int kMaxRegions = 32;
    void add(const char* name, uint64_t bytes);
    void release(const char* name, uint64_t bytes); // the peak begins anew
    uint64_t used_bytes() const { return m_used; }
    uint64_t peak_bytes() const { return m_peak; }
    int size() const { return m_size; }
    const Region& operator[](int i) const { return m_regions[i]; }

private:
    int find(const char* name) const; // its index; size(): there is none
    Region m_regions[kMaxRegions] = {};
    int m_size = 0;
    uint64_t m_used = 0;
    uint64_t m_peak = 0;
};

// The source of large blocks: the operating system, or one block that the caller owns.
class MemorySource
{
public:
    MemorySource() = default;
    MemorySource(void* caller_memory, size_t bytes);
    // Page-aligned and zeroed. Fails if there are too few bytes.
    Result<void*> take(size_t bytes);
    void release(void* memory, size_t bytes);
    // Gives whole pages back to the system until they are written again.
    void give_back(void* memory, size_t bytes);

private:
    uint8_t* m_caller = nullptr;
    size_t m_caller_bytes = 0;
    size_t m_caller_used = 0;
};

class Arena
{
public:
    Arena() = default;
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Status open(MemorySource& source, Ledger& ledger, size_t bytes);
    // Aborts if the total exceeds the planned bytes: that is a bug.
    void* take(const char* region, size_t bytes);
    template <class T>
    T* take_array(const char* region, size_t count)
    {
        return static_cast<T*>(take(region, count * sizeof(T)));
    }
    size_t used_bytes() const { return m_used; }

private:
    MemorySource* m_source = nullptr;
    Ledger* m_ledger = nullptr;
    uint8_t* m_memory = nullptr;
    size_t m_bytes = 0;
    size_t m_used = 0;
};

} // namespace ks
