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
// Off until the first call: finding the caller of an allocation takes a microsecond, too long while
// a model is loaded.
static std::atomic<bool> g_wanted{false};

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

// An address range of machine code.
struct CodeRange {
    uintptr_t begin = 0, end = 0;
    bool has(uintptr_t at) const { return at >= begin && at < end; }
};
// The program itself, and the two libraries that allocate on behalf of their caller.
struct Places {
    CodeRange program, between[2]; // between: the C++ library, the C library
    Places() { dl_iterate_phdr(find, this); }
    static int find(dl_phdr_info* info, size_t, void* self)
    {
        Places& places = *static_cast<Places*>(self);
        CodeRange* code = strstr(info->dlpi_name, "libstdc++") ? &places.between[0]
                          : strstr(info->dlpi_name, "libc.so") ? &places.between[1]
                                                               : nullptr;
        if (!*info->dlpi_name && !places.program.end) code = &places.program; // listed first
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

// Walks up the stack from the frame at `from` to the first frame outside the two libraries.
struct CallerSearch {
    const Places& places;
    uintptr_t from, found;
};
static _Unwind_Reason_Code step(_Unwind_Context* frame, void* self)
{
    CallerSearch& search = *static_cast<CallerSearch*>(self);
    const uintptr_t at = _Unwind_GetIP(frame);
    if (at == search.from) search.from = 0; // earlier frames belong to this file
    if (search.from || search.places.is_between(at)) return _URC_NO_REASON;
    search.found = at;
    return _URC_END_OF_STACK;
}

// Counts only the program's allocations: drivers are loaded libraries.
static void count(void* caller)
{
    if (!g_wanted.load(std::memory_order_relaxed)) return;
    static const Places places;
    uintptr_t at = reinterpret_cast<uintptr_t>(caller);
    if (places.is_between(at)) {
        CallerSearch search = {places, at, at};
        _Unwind_Backtrace(step, &search);
        at = search.found;
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
// The program's definitions override the C library's. operator new also calls this malloc.
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
