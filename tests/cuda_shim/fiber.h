// Fibers: the context switch, the stacks, and the choice of the next fiber.
#pragma once

#include "config.h"

namespace cudashim
{

using Sp = void*;
extern "C" void cudashim_swap(Sp* save, Sp to);
#if defined(__x86_64__)
__asm__(R"(
.pushsection .text.cudashim_swap,"axG",@progbits,cudashim_swap,comdat
.weak cudashim_swap
.type cudashim_swap,@function
.p2align 4
cudashim_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx # not `ret`: the return-stack predictor is always wrong here, the BTB mostly right
  jmp *%rcx
.size cudashim_swap,.-cudashim_swap
.popsection
)");
#elif defined(__aarch64__)
__asm__(R"(
.pushsection .text.cudashim_swap,"axG",%progbits,cudashim_swap,comdat
.weak cudashim_swap
.type cudashim_swap,%function
.p2align 4
cudashim_swap:
  sub sp, sp, #176
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8,  d9,  [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8,  d9,  [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
.size cudashim_swap,.-cudashim_swap
.popsection
)");
#endif

struct Stack {
    Sp sp{};
    char* base = nullptr; // above the guard page
    size_t size = 0;
    void* fake = nullptr; // ASan
    void* tsan = nullptr; // TSan fiber
    int color = 0;
};

enum class St : uint8_t { New, Ready, Barrier, Coll, Exited };
struct Thread {
    Stack* stack = nullptr;
    uint3 tid{};
    St st = St::New;
    int kind = 0; // collective kind
    unsigned mask = 0;
    const char* file = nullptr;
    int line = 0;
    void* payload = nullptr;
};
struct Warp {
    uint32_t exist = 0, ready = 0, exited = 0, bar = 0, coll = 0;
};
using CompleteFn = void (*)(unsigned participants, void** payload);

struct SharedVar {
    const void* key = nullptr;
    char* p = nullptr;
};

struct Engine {
    Thread th[1024];
    Warp warp[32];
    uint32_t ready_warps = 0;
    int n = 0, live = 0, bar_count = 0;
    int cur = -1;
    Order order = Order::Forward;
    uint64_t rng = 1;
    // kernel
    const char* name = "";
    void (*thunk)(void*) = nullptr;
    void* ctx = nullptr;
    // stacks
    Stack main_stack;
    Stack* free_stacks[4096] = {};
    int nfree = 0; // plain arrays, because TSan would instrument std:: containers
    Stack* all_stacks[4096] = {};
    int nall = 0;
    Stack* tsan_pool[4096] = {};
    uint64_t block_no = 0;
    // shared memory arena
    char* arena = nullptr;
    size_t arena_cap = 0, arena_pos = 0, arena_high = 0, block_base = 0;
    SharedVar sv[64] = {};
    int nsv = 0;
    char* dyn = nullptr;
    size_t dyn_bytes = 0;
    size_t static_bytes = 0;
    // failure
    bool failed = false;
    char msg[4096] = {};
    bool in_kernel = false;
};
inline Engine engine_; // constant-initialised, so that no access has a guard or an indirection
inline std::recursive_mutex launch_mutex_;
#define CUDASHIM_E (::cudashim::engine_)

struct TsanIgnore { // keeps TSan from checking the code that reports errors
#if defined(CUDASHIM_TSAN)
    TsanIgnore()
    {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    }
    ~TsanIgnore()
    {
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
#else
    TsanIgnore() {}
    ~TsanIgnore() {}
#endif
};
// Formats a message into one of several static buffers in turn. A failing fiber is abandoned, so it
// must not own heap memory.
CUDASHIM_COLD inline const char* vfmt(const char* f, ...)
{
    TsanIgnore ig;
    static char ring[8][2048];
    static unsigned n;
    char* b = ring[n++ & 7];
    va_list a;
    va_start(a, f);
    vsnprintf(b, 2048, f, a);
    va_end(a);
    return b;
}

CUDASHIM_NOSAN inline void raw_switch(Stack* from, Stack* to,
                                      [[maybe_unused]] bool from_dead = false)
{
    ++stats.switches;
#if defined(CUDASHIM_ASAN)
    __sanitizer_start_switch_fiber(&from->fake, to->base, to->size);
#endif
#if defined(CUDASHIM_TSAN)
    __tsan_switch_to_fiber(to->tsan, 1 /* no synchronisation */);
#endif
    cudashim_swap(&from->sp, to->sp);
#if defined(CUDASHIM_ASAN)
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

void fiber_main();
inline __attribute__((noreturn)) void fiber_entry()
{
    fiber_main();
    __builtin_trap();
}

CUDASHIM_COLD inline void stack_init(Stack* s)
{
#if defined(CUDASHIM_ASAN)
    __asan_unpoison_memory_region(s->base, s->size);
    s->fake = nullptr;
#endif
#if defined(CUDASHIM_TSAN)
    if (s->tsan) __tsan_destroy_fiber(s->tsan);
    s->tsan = __tsan_create_fiber(0);
#endif
    // Stack colouring: different offsets keep the top frames of the stacks out of the same L1 sets.
    char* top = s->base + s->size - 256 - size_t((s->color * 5) & 63) * 64;
    top = (char*)((uintptr_t)top & ~uintptr_t(63));
    void** p = (void**)top;
#if defined(__x86_64__)
    *--p = nullptr; // fake return address: rsp % 16 == 8 on function entry
    *--p = (void*)&fiber_entry;
    for (int i = 0; i < 6; i++) *--p = nullptr;
#else
    p -= 22;
    for (int i = 0; i < 22; i++) p[i] = nullptr;
    p[11] = (void*)&fiber_entry; // x30
#endif
    s->sp = p;
}

CUDASHIM_COLD inline Stack* stack_new()
{
    Engine& E = CUDASHIM_E;
    if (E.nall == 4096) abort();
    auto* s = new (malloc(sizeof(Stack))) Stack;
    size_t pg = 4096, sz = opt().stack_bytes;
    void* m = mmap(nullptr, sz + pg, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) {
        perror("mmap");
        abort();
    }
    mprotect(m, pg, PROT_NONE); // guard page
    s->base = (char*)m + pg;
    s->size = sz;
    s->color = E.nall;
    stack_init(s);
    E.all_stacks[E.nall++] = s;
    return s;
}

CUDASHIM_NOSAN inline Stack* stack_for([[maybe_unused]] int t)
{
    Engine& E = CUDASHIM_E;
#if defined(CUDASHIM_TSAN)
    return E.tsan_pool[int(E.block_no % 4) * 1024 + t];
#else
    return E.nfree ? E.free_stacks[--E.nfree] : stack_new();
#endif
}

CUDASHIM_NOSAN inline uint32_t rnd()
{
    uint64_t& x = CUDASHIM_E.rng;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return uint32_t(x >> 16);
}
inline int nth_bit(uint32_t m, int k)
{
    while (k--) m &= m - 1;
    return __builtin_ctz(m);
}

CUDASHIM_NOSAN inline int pick_next()
{
    Engine& E = CUDASHIM_E;
    if (!E.ready_warps) return -1;
    int w, l;
    switch (E.order) {
    case Order::Forward:
        w = __builtin_ctz(E.ready_warps);
        l = __builtin_ctz(E.warp[w].ready);
        break;
    case Order::Reverse:
        w = 31 - __builtin_clz(E.ready_warps);
        l = 31 - __builtin_clz(E.warp[w].ready);
        break;
    default:
        w = nth_bit(E.ready_warps, rnd() % __builtin_popcount(E.ready_warps));
        l = nth_bit(E.warp[w].ready, rnd() % __builtin_popcount(E.warp[w].ready));
    }
    return w * 32 + l;
}
CUDASHIM_NOSAN inline void set_unready(int t)
{
    Engine& E = CUDASHIM_E;
    Warp& w = E.warp[t >> 5];
    w.ready &= ~(1u << (t & 31));
    if (!w.ready) E.ready_warps &= ~(1u << (t >> 5));
}

CUDASHIM_COLD inline const char* where(int t)
{
    Engine& E = CUDASHIM_E;
    Thread& h = E.th[t];
    return vfmt("thread (%u,%u,%u) [warp %d lane %d] block (%u,%u,%u)", h.tid.x, h.tid.y, h.tid.z,
                t >> 5, t & 31, blockIdx.x, blockIdx.y, blockIdx.z);
}
CUDASHIM_COLD inline void dump_waiters(std::string& s)
{
    Engine& E = CUDASHIM_E;
    std::map<std::string, std::pair<int, int>> g; // description -> count, first thread
    for (int t = 0; t < E.n; t++) {
        Thread& h = E.th[t];
        std::string k;
        if (h.st == St::Barrier)
            k = vfmt("waiting at __syncthreads %s:%d", h.file, h.line);
        else if (h.st == St::Coll)
            k = vfmt("waiting at warp collective (mask %08x) %s:%d", h.mask, h.file, h.line);
        else if (h.st == St::Exited)
            k = "exited";
        else
            k = "runnable";
        auto& e = g[k];
        if (!e.first++) e.second = t;
    }
    for (auto& [k, c] : g)
        s += vfmt("\n    %4d thread(s) %s, first: %s", c.first, k.c_str(), where(c.second));
}
// Reports an error from a kernel thread or the scheduler. The block is abandoned, and launch()
// throws.
CUDASHIM_COLD inline void fail(const char* m)
{
    Engine& E = CUDASHIM_E;
    if (E.failed) return;
    {
        TsanIgnore ig;
        std::string full = vfmt("cudashim: kernel '%s': %s", E.name, m);
        dump_waiters(full);
        if (std::getenv("CUDASHIM_ABORT")) {
            fprintf(stderr, "%s\n", full.c_str());
            abort();
        }
        snprintf(E.msg, sizeof E.msg, "%s", full.c_str());
    }
    if (!E.in_kernel) throw Error(E.msg);
    E.failed = true;
    raw_switch(E.th[E.cur].stack, &E.main_stack, true);
    __builtin_trap();
}

} // namespace cudashim
