// Barriers, warp collectives, and the start and exit of threads.
#pragma once

#include "fiber.h"

namespace cudashim
{
CUDASHIM_NOSAN inline void activate(int t)
{
    Engine& E = CUDASHIM_E;
    E.cur = t;
    threadIdx = E.th[t].tid;
    if (E.th[t].st == St::New) {
        E.th[t].st = St::Ready;
        E.th[t].stack = stack_for(t);
    }
}

// The current thread yields. It is already marked as waiting, or is still ready in random order.
CUDASHIM_NOSAN inline void reschedule()
{
    Engine& E = CUDASHIM_E;
    int me = E.cur, nx = pick_next();
    if (nx == me) return;
    if (nx < 0) {
        fail("DEADLOCK: no thread can make progress");
    }
    activate(nx);
    raw_switch(E.th[me].stack, E.th[nx].stack);
}

#if defined(CUDASHIM_TSAN)
// Orders all memory accesses of a set of threads (happens-before), through a new sync object.
template <class It>
CUDASHIM_NOSAN inline void tsan_sync(It begin, It end)
{
    Engine& E = CUDASHIM_E;
    void* me = __tsan_get_current_fiber();
    void* sv = malloc(8);
    for (It i = begin; i != end; ++i) {
        __tsan_switch_to_fiber(E.th[*i].stack->tsan, 1);
        __tsan_release(sv);
    }
    for (It i = begin; i != end; ++i) {
        __tsan_switch_to_fiber(E.th[*i].stack->tsan, 1);
        __tsan_acquire(sv);
    }
    __tsan_switch_to_fiber(me, 1);
    free(sv);
}
#endif

CUDASHIM_NOSAN inline void complete_barrier()
{
    Engine& E = CUDASHIM_E;
    const char* f = nullptr;
    int line = 0;
    int nw = (E.n + 31) / 32;
    for (int w = 0; w < nw; w++)
        for (uint32_t m = E.warp[w].bar; m; m &= m - 1) {
            Thread& h = E.th[w * 32 + __builtin_ctz(m)];
            if (!f) {
                f = h.file;
                line = h.line;
            } else if (opt().strict_sites && (h.line != line || strcmp(h.file, f)))
                fail("DIVERGENT BARRIER: threads of one block wait at different __syncthreads()");
        }
    if (opt().strict_exit && E.live < E.n)
        fail("DIVERGENT BARRIER: some threads exited while others wait at __syncthreads()");
#if defined(CUDASHIM_TSAN)
    static int ids[1024];
    int k = 0;
    for (int w = 0; w < nw; w++)
        for (uint32_t m = E.warp[w].bar; m; m &= m - 1) ids[k++] = w * 32 + __builtin_ctz(m);
    tsan_sync(ids, ids + k);
#endif
    for (int w = 0; w < nw; w++) {
        Warp& W = E.warp[w];
        for (uint32_t m = W.bar; m; m &= m - 1) E.th[w * 32 + __builtin_ctz(m)].st = St::Ready;
        W.ready |= W.bar;
        if (W.ready) E.ready_warps |= 1u << w;
        W.bar = 0;
    }
    E.bar_count = 0;
    ++stats.barriers;
}

CUDASHIM_NOSAN inline void barrier_wait(const char* file, int line)
{
    Engine& E = CUDASHIM_E;
    int t = E.cur;
    Thread& h = E.th[t];
    h.st = St::Barrier;
    h.file = file;
    h.line = line;
    set_unready(t);
    E.warp[t >> 5].bar |= 1u << (t & 31);
    if (++E.bar_count == E.live) complete_barrier();
    reschedule();
}

// Completes a warp collective. All lanes of `mask` that have not exited must arrive with the same
// kind and source line. The last lane to arrive runs `fn` over the payloads, which are on the
// lanes' stacks.
CUDASHIM_NOSAN inline void complete_coll(int w, unsigned part, CompleteFn fn, bool sync_mem)
{
    Engine& E = CUDASHIM_E;
    Warp& W = E.warp[w];
    void* pl[32];
    int first = -1;
    for (uint32_t m = part; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        Thread& h = E.th[w * 32 + l];
        if (first < 0) first = w * 32 + l;
        Thread& f = E.th[first];
        if (h.mask != f.mask) fail("WARP COLLECTIVE: lanes use different masks in one collective");
        if (h.kind != f.kind)
            fail("WARP COLLECTIVE: lanes of one mask execute different intrinsics");
        if (opt().strict_sites && (h.line != f.line || strcmp(h.file, f.file)))
            fail("WARP COLLECTIVE: lanes of one mask arrive from different source lines");
        pl[l] = h.payload;
    }
    if (fn) fn(part, pl);
    if (E.failed) return;
#if defined(CUDASHIM_TSAN)
    if (sync_mem) {
        int ids[32], k = 0;
        for (uint32_t m = part; m; m &= m - 1) ids[k++] = w * 32 + __builtin_ctz(m);
        tsan_sync(ids, ids + k);
    }
#else
    (void)sync_mem;
#endif
    for (uint32_t m = part; m; m &= m - 1) E.th[w * 32 + __builtin_ctz(m)].st = St::Ready;
    W.coll &= ~part;
    W.ready |= part;
    E.ready_warps |= 1u << w;
    ++stats.collectives;
}
inline CompleteFn
    coll_fn_[32]; // per warp: fn of the collective in progress; all its lanes have the same
inline bool coll_sync_[32];

CUDASHIM_NOSAN inline void collective(int kind, unsigned mask, void* payload, CompleteFn fn,
                                      bool sync_mem, const char* file, int line)
{
    Engine& E = CUDASHIM_E;
    int t = E.cur, w = t >> 5;
    unsigned bit = 1u << (t & 31);
    Thread& h = E.th[t];
    Warp& W = E.warp[w];
    h.kind = kind;
    h.mask = mask;
    h.payload = payload;
    h.file = file;
    h.line = line;
    if (!(mask & bit))
        fail(vfmt("WARP COLLECTIVE: calling lane not in its own mask %08x at %s:%d, %s", mask, file,
                  line, where(t)));
    if (opt().strict_exit && (mask & W.exited))
        fail(vfmt("WARP COLLECTIVE: mask %08x names lanes that already exited (%08x) at %s:%d, %s",
                  mask, mask & W.exited, file, line, where(t)));
    h.st = St::Coll;
    set_unready(t);
    W.coll |= bit;
    coll_fn_[w] = fn;
    coll_sync_[w] = sync_mem;
    if ((W.coll & mask) == (mask & W.exist & ~W.exited))
        complete_coll(w, W.coll & mask, fn, sync_mem);
    reschedule();
}

CUDASHIM_NOSAN inline void on_exit_thread()
{
    Engine& E = CUDASHIM_E;
    int t = E.cur, w = t >> 5;
    Warp& W = E.warp[w];
    E.th[t].st = St::Exited;
    set_unready(t);
    W.exited |= 1u << (t & 31);
    E.live--;
    if (W.coll) {
        int l = __builtin_ctz(W.coll);
        unsigned m = E.th[w * 32 + l].mask;
        if ((m >> (t & 31) & 1) && opt().strict_exit)
            fail(vfmt("WARP COLLECTIVE: a lane named in the mask exited while others wait: %s",
                      where(t)));
        if ((W.coll & m) == (m & W.exist & ~W.exited))
            complete_coll(w, W.coll & m, coll_fn_[w], coll_sync_[w]);
    }
    if (E.bar_count && E.bar_count == E.live) complete_barrier();
}

CUDASHIM_NOSAN inline void push_free([[maybe_unused]] Stack* s)
{
#if !defined(CUDASHIM_TSAN)
    CUDASHIM_E.free_stacks[CUDASHIM_E.nfree++] = s;
#endif
}

CUDASHIM_NOSAN inline void fiber_main()
{
    Engine& E = CUDASHIM_E;
#if defined(CUDASHIM_ASAN)
    __sanitizer_finish_switch_fiber(nullptr,
                                    E.main_stack.base ? nullptr : (const void**)&E.main_stack.base,
                                    E.main_stack.size ? nullptr : &E.main_stack.size);
#endif
    for (;;) {
        int me = E.cur;
        Stack* st = E.th[me].stack;
#if defined(CUDASHIM_TSAN)
        __tsan_acquire((void*)&E.thunk); // orders the host's writes before the kernel
#endif
        E.thunk(E.ctx);
#if defined(CUDASHIM_TSAN)
        __tsan_release((void*)&E.ctx); // orders the kernel's writes before the host's reads
#endif
        on_exit_thread();
        int nx = pick_next();
        if (nx < 0) {
            if (E.live) fail("DEADLOCK: no thread can make progress");
            push_free(st);
            raw_switch(st, &E.main_stack);
            continue;
        }
#if !defined(CUDASHIM_TSAN)
        if (E.th[nx].st == St::New) {
            E.th[nx].st = St::Ready;
            E.th[nx].stack = st;
            E.cur = nx;
            threadIdx = E.th[nx].tid;
            continue;
        } // the next thread reuses this stack, which is in the CPU's cache
#endif
        activate(nx);
        push_free(st);
        raw_switch(st, E.th[nx].stack);
    }
}

} // namespace cudashim
