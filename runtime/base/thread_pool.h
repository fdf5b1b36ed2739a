// Threads that share loops. Between consecutive loops nothing sleeps and nothing is allocated:
// workers spin for a few microseconds before they sleep. A loop never waits for a worker that has
// not joined it, so a core that is busy with another process delays nobody.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ks
{

// Cores that this process may run on. Hardware threads of one core count once, since they share its
// vector units.
int count_cores();

class ThreadPool
{
public:
    explicit ThreadPool(int n_threads)
        : m_size(n_threads < 1             ? 1
                 : n_threads > kMaxThreads ? kMaxThreads
                                           : n_threads)
    {
    }
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    static constexpr int kMaxThreads = 256;
    int size() const { return m_size; }
    void start(); // starts the workers; a pool of one thread has none

    // Calls body(i, thread) once for every i < n and returns when all calls are done. The caller is
    // thread 0. Thread t first processes the t-th part of the range, in order, and then takes
    // indexes from the other parts.
    template <class Body>
    void parallel_for(uint32_t n, const Body& body)
    {
        run(
            n,
            [](const void* context, uint32_t i, int thread) {
                (*static_cast<const Body*>(context))(i, thread);
            },
            &body);
    }

private:
    using Call = void (*)(const void* context, uint32_t i, int thread);

    struct alignas(64) Part {
        std::atomic<uint32_t> next{0};
        uint32_t end = 0;
    };

    // The gate: bit 0 is set while a loop is open, bits 1..15 count the workers inside, higher bits
    // number the loops.
    static constexpr uint64_t kOpen = 1, kInside = 2, kLoop = 1ull << 16;

    void run(uint32_t n, Call call, const void* context);
    void take_indices(int thread);
    void work(int thread);
    bool wait_for_loop(uint64_t seen);

    const int m_size;
    std::vector<std::thread> m_threads;
    std::vector<Part> m_parts;
    Call m_call = nullptr;
    const void* m_context = nullptr;
    alignas(64) std::atomic<uint64_t> m_gate{0};
    alignas(64) std::atomic<int> m_sleepers{0};
    std::atomic<bool> m_stop{false};
    std::mutex m_mutex;
    std::condition_variable m_wake;
};

} // namespace ks
