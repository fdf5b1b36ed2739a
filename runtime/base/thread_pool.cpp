#include "runtime/base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sched.h>
#include <set>
#include <utility>

namespace ks
{

int count_cores()
{
    std::set<std::pair<int, int>> cores;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        int ids[2] = {0, cpu};
        const char* names[2] = {"physical_package_id", "core_id"};
        for (int i = 0; i < 2; i++) {
            char path[96];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, names[i]);
            FILE* file = fopen(path, "r");
            if (file && fscanf(file, "%d", &ids[i]) != 1) ids[i] = cpu;
            if (file) fclose(file);
        }
        cores.insert({ids[0], ids[1]});
    }
    return std::max(1, int(cores.size()));
}

static void relax()
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until ready() for about `microseconds`; returns false on timeout. The clock is read rarely,
// since it costs more than a pause.
template <class Ready>
static bool spin(int microseconds, const Ready& ready)
{
    auto begin = std::chrono::steady_clock::now();
    do {
        for (int i = 0; i < 32; i++) {
            if (ready()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(microseconds));
    return false;
}

constexpr int kSpinMicroseconds = 50;

ThreadPool::~ThreadPool()
{
    {
        std::lock_guard<std::mutex> lock(m_mutex);
        m_stop = true;
    }
    m_wake.notify_all();
    for (std::thread& thread : m_threads) thread.join();
}

void ThreadPool::start()
{
    if (!m_threads.empty() || m_size == 1) return;
    m_parts = std::vector<Part>(size_t(m_size));
    for (int thread = 1; thread < m_size; thread++)
        m_threads.emplace_back([this, thread] { work(thread); });
}

void ThreadPool::run(uint32_t n, Call call, const void* context)
{
    if (n <= 1 || m_threads.empty()) {
        for (uint32_t i = 0; i < n; i++) call(context, i, 0);
        return;
    }
    m_call = call;
    m_context = context;
    for (int t = 0; t < m_size; t++) {
        m_parts[size_t(t)].next.store(uint32_t(uint64_t(n) * uint64_t(t) / uint64_t(m_size)),
                                      std::memory_order_relaxed);
        m_parts[size_t(t)].end = uint32_t(uint64_t(n) * uint64_t(t + 1) / uint64_t(m_size));
    }
    // Sequentially consistent on both sides: either this thread sees the sleeper, or the sleeper
    // sees the open gate.
    m_gate.fetch_add(kLoop | kOpen);
    if (m_sleepers.load() > 0) {
        { // a sleeper between its check of the gate and its wait holds the mutex
            std::lock_guard<std::mutex> lock(m_mutex);
        }
        m_wake.notify_all();
    }
    take_indices(0);
    uint64_t inside = m_gate.fetch_sub(kOpen, std::memory_order_acq_rel) & (kLoop - 2);
    auto empty = [this] { return (m_gate.load(std::memory_order_acquire) & (kLoop - 2)) == 0; };
    while (inside && !spin(kSpinMicroseconds, empty)) std::this_thread::yield();
}

void ThreadPool::take_indices(int thread)
{
    for (int t = 0; t < m_size; t++) {
        Part& part = m_parts[size_t((thread + t) % m_size)];
        while (part.next.load(std::memory_order_relaxed) < part.end) {
            uint32_t i = part.next.fetch_add(1, std::memory_order_relaxed);
            if (i < part.end) m_call(m_context, i, thread);
        }
    }
}

// Returns false when the pool ends. Loops are numbered, so a worker never enters the same loop
// twice.
bool ThreadPool::wait_for_loop(uint64_t seen)
{
    auto open = [&] {
        uint64_t gate = m_gate.load();
        return ((gate & kOpen) && gate / kLoop != seen) || m_stop.load(std::memory_order_relaxed);
    };
    if (!spin(kSpinMicroseconds, open)) {
        std::unique_lock<std::mutex> lock(m_mutex);
        m_sleepers.fetch_add(1);
        m_wake.wait(lock, open);
        m_sleepers.fetch_sub(1);
    }
    return !m_stop.load(std::memory_order_relaxed);
}

void ThreadPool::work(int thread)
{
    uint64_t seen = 0;
    while (wait_for_loop(seen)) {
        uint64_t gate = m_gate.load(std::memory_order_relaxed);
        while ((gate & kOpen) &&
               !m_gate.compare_exchange_weak(gate, gate + kInside, std::memory_order_acq_rel)) {
        }
        if (!(gate & kOpen)) continue;
        seen = gate / kLoop;
        take_indices(thread);
        m_gate.fetch_sub(kInside, std::memory_order_acq_rel);
    }
}

} // namespace ks
