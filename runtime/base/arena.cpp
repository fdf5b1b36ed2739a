#include "runtime/base/arena.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace ks
{

int Ledger::find(const char* name) const
{
    int i = 0;
    while (i < m_size && strcmp(m_regions[i].name, name) != 0) i++;
    return i;
}

void Ledger::add(const char* name, uint64_t bytes)
{
    const int i = find(name);
    if (i == m_size) {
        KS_CHECK(m_size < kMaxRegions, "%d regions", m_size);
        m_regions[m_size++] = {name, 0};
    }
    m_regions[i].bytes += bytes;
    m_used += bytes;
    if (m_used > m_peak) m_peak = m_used;
}

void Ledger::release(const char* name, uint64_t bytes)
{
    const int i = find(name);
    KS_CHECK(i < m_size && bytes <= m_regions[i].bytes, "%llu bytes of %s",
             (unsigned long long)bytes, name);
    m_regions[i].bytes -= bytes;
    m_peak = m_used -= bytes;
}

MemorySource::MemorySource(void* caller_memory, size_t bytes)
{
    // Skip to the first page boundary. The bytes before it stay unused.
    uintptr_t begin = align_up(uintptr_t(caller_memory), 4096);
    size_t skipped = size_t(begin - uintptr_t(caller_memory));
    m_caller = reinterpret_cast<uint8_t*>(begin);
    m_caller_bytes = bytes > skipped ? bytes - skipped : 0;
}

Result<void*> MemorySource::take(size_t bytes)
{
    size_t whole = align_up(bytes ? bytes : 1, 4096);
    if (m_caller) {
        if (whole < bytes || whole > m_caller_bytes - m_caller_used)
            return fail(Code::no_fit, "the caller's memory has %zu bytes left, %zu are needed",
                        m_caller_bytes - m_caller_used, whole);
        void* memory = m_caller + m_caller_used;
        m_caller_used += whole;
        memset(memory, 0, whole);
        return memory;
    }
    void* memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return fail(Code::no_fit, "the system refused a block of %s: %s",
                    human_bytes(whole).c_str(), strerror(errno));
    madvise(memory, whole, MADV_HUGEPAGE);
    return memory;
}

void MemorySource::release(void* memory, size_t bytes)
{
    if (memory && !m_caller) munmap(memory, align_up(bytes ? bytes : 1, 4096));
}

void MemorySource::give_back(void* memory, size_t bytes)
{
    const uintptr_t begin = align_up(uintptr_t(memory), 4096), end = uintptr_t(memory) + bytes;
    if (!m_caller && begin + 4096 <= end)
        madvise(reinterpret_cast<void*>(begin), end / 4096 * 4096 - begin, MADV_DONTNEED);
}

Arena::~Arena()
{
    if (m_memory) m_source->release(m_memory, m_bytes);
}

Status Arena::open(MemorySource& source, Ledger& ledger, size_t bytes)
{
    Result<void*> memory = source.take(bytes);
    if (!memory.ok()) return memory.status();
    m_source = &source;
    m_ledger = &ledger;
    m_memory = static_cast<uint8_t*>(memory.value());
    m_bytes = bytes;
    m_used = 0;
    return {};
}

void* Arena::take(const char* region, size_t bytes)
{
    size_t whole = align_up(bytes, kRegionAlign);
    KS_CHECK(whole <= m_bytes - m_used, "region %s wants %zu of %zu bytes left", region, whole,
             m_bytes - m_used);
    void* memory = m_memory + m_used;
    m_used += whole;
    m_ledger->add(region, whole);
    return memory;
}

} // namespace ks
