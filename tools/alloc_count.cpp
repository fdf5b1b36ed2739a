#include "tools/alloc_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define KS_SANITIZED 1
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(KS_SANITIZED)
#define KS_COUNTS 1
#endif

namespace ks
{

static std::atomic<uint64_t> g_allocations{0};

uint64_t allocation_count()
{
    return g_allocations.load(std::memory_order_relaxed);
}

#ifdef KS_COUNTS
bool counts_allocations()
{
    return true;
}
static void count()
{
    g_allocations.fetch_add(1, std::memory_order_relaxed);
}
#else
bool counts_allocations()
{
    return false;
}
#endif

} // namespace ks

#ifdef KS_COUNTS
// The program's own definitions come before the C library's; operator new ends here, too.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes)
{
    ks::count();
    return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes)
{
    ks::count();
    return __libc_calloc(n, bytes);
}
void* realloc(void* memory, size_t bytes)
{
    ks::count();
    return __libc_realloc(memory, bytes);
}
void* memalign(size_t align, size_t bytes)
{
    ks::count();
    return __libc_memalign(align, bytes);
}
void* aligned_alloc(size_t align, size_t bytes)
{
    return memalign(align, bytes);
}
int posix_memalign(void** out, size_t align, size_t bytes)
{
    if (align % sizeof(void*) || (align & (align - 1)) || align == 0) return EINVAL;
    *out = memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}
void free(void* memory)
{
    __libc_free(memory);
}
}
#endif
