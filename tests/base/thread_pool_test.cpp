#include "runtime/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <thread>
#include <vector>

using ks::ThreadPool;

TEST_CASE("thread_pool: every index is called once, by a thread of the pool")
{
    for (int n_threads : {1, 2, 3, 8}) {
        ThreadPool pool(n_threads);
        pool.start();
        CHECK(pool.size() == n_threads);
        for (uint32_t n : {0u, 1u, 2u, 7u, 8u, 9u, 1000u}) {
            CAPTURE(n_threads);
            CAPTURE(n);
            std::vector<int> calls(
                n, 0); // not atomic: TSan reports two calls with the same index as a race
            std::atomic<int> strangers{0};
            pool.parallel_for(n, [&](uint32_t i, int thread) {
                calls[i]++;
                if (thread < 0 || thread >= n_threads) strangers++;
            });
            CHECK(strangers == 0);
            CHECK(calls == std::vector<int>(n, 1));
        }
    }
}

TEST_CASE("thread_pool: a loop reads what the loop before it wrote")
{
    ThreadPool pool(3);
    pool.start();
    std::vector<uint32_t> a(257, 0), b(257, 0);
    for (uint32_t round = 1; round <= 3000; round++) {
        pool.parallel_for(257, [&](uint32_t i, int) { a[i] = b[(i * 7 + 1) % 257] + 1; });
        pool.parallel_for(257, [&](uint32_t i, int) { b[i] = a[(i * 5 + 3) % 257]; });
        if (round % 1000 == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(2)); // so that the workers sleep
    }
    CHECK(a == std::vector<uint32_t>(257, 3000));
    CHECK(b == std::vector<uint32_t>(257, 3000));
}

TEST_CASE("thread_pool: a thread runs one index at a time")
{
    ThreadPool pool(4);
    pool.start();
    std::vector<int> busy(4, 0);
    std::atomic<int> overlaps{0};
    for (int round = 0; round < 200; round++) {
        pool.parallel_for(64, [&](uint32_t, int thread) {
            if (busy[size_t(thread)]++ != 0) overlaps++;
            busy[size_t(thread)]--;
        });
    }
    CHECK(overlaps == 0);
}

TEST_CASE("thread_pool: other threads finish the rest beside a slow index")
{
    ThreadPool pool(2);
    pool.start();
    pool.parallel_for(2, [](uint32_t, int) {}); // the worker has started
    std::atomic<uint32_t> done{0};
    pool.parallel_for(64, [&](uint32_t i, int) {
        // The first index of thread 0 waits for all other indexes. The loop ends only if the other
        // thread takes them.
        if (i == 0) {
            auto begin = std::chrono::steady_clock::now();
            while (done < 63 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
                std::this_thread::yield();
        }
        if (i == 0) CHECK(done == 63);
        done++;
    });
    CHECK(done == 64);
}

TEST_CASE("thread_pool: pools without a start or a loop end cleanly, and two pools coexist")
{
    ThreadPool idle(4);
    ThreadPool a(2), b(2);
    a.start();
    b.start();
    uint64_t sum_a = 0, sum_b = 0;
    uint64_t part_a[2] = {}, part_b[2] = {};
    a.parallel_for(100, [&](uint32_t i, int thread) { part_a[thread] += i; });
    b.parallel_for(100, [&](uint32_t i, int thread) { part_b[thread] += i; });
    sum_a = part_a[0] + part_a[1];
    sum_b = part_b[0] + part_b[1];
    CHECK(sum_a == 4950);
    CHECK(sum_b == 4950);
    idle.parallel_for(3, [&](uint32_t, int thread) { CHECK(thread == 0); });
}
