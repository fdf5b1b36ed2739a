#include "tools/alloc_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define KS_SANITIZED 1
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&       \
    !defined(KS_SANITIZED)
#define KS_COUNTS 1
#include <link.h>
#include <unwind.h>
#endif

namespace ks
{

static std::atomic<uint64_t> g_allocations{0};
static std::atomic<bool> g_wanted{
    false}; // to tell whose an allocation is takes a microsecond: not while a model is loaded

uint64_t allocation_count()
{
    g_wanted.store(true, std::memory_order_relaxed);
    return g_allocations.load(std::memory_order_relaxed);
}

#ifdef KS_COUNTS
bool counts_allocations()
{
    return true;
}

// Code, from where to where: the program's with all that is linked into it, and that of libraries
// which allocate for whoever calls them.
struct Code {
    uintptr_t begin = 0, end = 0;
    bool has(uintptr_t at) const { return at >= begin && at < end; }
};
struct Places {
    Code program, between[2]; // the C++ library, the C library
    Places() { dl_iterate_phdr(find, this); }
    static int find(dl_phdr_info* info, size_t, void* self)
    {
        Places& places = *static_cast<Places*>(self);
        Code* code = strstr(info->dlpi_name, "libstdc++") ? &places.between[0]
                     : strstr(info->dlpi_name, "libc.so") ? &places.between[1]
                                                          : nullptr;
        if (!*info->dlpi_name && !places.program.end) code = &places.program; // the first
        for (int i = 0; code && i < info->dlpi_phnum; i++) {
            const ElfW(Phdr)& part = info->dlpi_phdr[i];
            if (part.p_type == PT_LOAD && part.p_flags & PF_X)
                *code = {uintptr_t(info->dlpi_addr + part.p_vaddr),
                         uintptr_t(info->dlpi_addr + part.p_vaddr + part.p_memsz)};
        }
        return 0;
    }
    bool is_between(uintptr_t at) const { return between[0].has(at) || between[1].has(at); }
};

struct Asker {
    const Places& places;
    uintptr_t from, found;
};
static _Unwind_Reason_Code step(_Unwind_Context* frame, void* self)
{
    Asker& query_head = *static_cast<Asker*>(self);
    const uintptr_t at = _Unwind_GetIP(frame);
    if (at == query_head.from) query_head.from = 0; // the frames before it are of this file
    if (query_head.from || query_head.places.is_between(at)) return _URC_NO_REASON;
    query_head.found = at;
    return _URC_END_OF_STACK;
}

// A driver that is loaded, and what it loads, allocates for itself.
static void count(void* caller)
{
    if (!g_wanted.load(std::memory_order_relaxed)) return;
    static const Places places;
    uintptr_t at = reinterpret_cast<uintptr_t>(caller);
    if (places.is_between(at)) {
        Asker query_head = {places, at, at};
        _Unwind_Backtrace(step, &query_head);
        at = query_head.found;
    }
    if (places.program.has(at)) g_allocations.fetch_add(1, std::memory_order_relaxed);
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
    ks::count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes)
{
    ks::count(__builtin_return_address(0));
    return __libc_calloc(n, bytes);
}
void* realloc(void* memory, size_t bytes)
{
    ks::count(__builtin_return_address(0));
    return __libc_realloc(memory, bytes);
}
void* memalign(size_t align, size_t bytes)
{
    ks::count(__builtin_return_address(0));
    return __libc_memalign(align, bytes);
}
void* aligned_alloc(size_t align, size_t bytes)
{
    ks::count(__builtin_return_address(0));
    return __libc_memalign(align, bytes);
}
int posix_memalign(void** out, size_t align, size_t bytes)
{
    if (align % sizeof(void*) || (align & (align - 1)) || align == 0) return EINVAL;
    ks::count(__builtin_return_address(0));
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}
void free(void* memory)
{
    __libc_free(memory);
}
}
#endif
