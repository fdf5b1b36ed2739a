// A recursive mutex that threads get in the order in which they ask for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace ks
{

class FairMutex
{
public:
    void lock()
    {
        std::unique_lock<std::mutex> guard(m_mutex);
        if (m_depth == 0 || m_owner != std::this_thread::get_id()) {
            const uint64_t turn = m_n_asked++;
            m_changed.wait(guard, [&] { return m_depth == 0 && turn == m_n_served; });
            m_owner = std::this_thread::get_id();
            m_n_served++;
        }
        m_depth++;
    }
    void unlock()
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        if (--m_depth == 0) m_changed.notify_all();
    }

private:
    std::mutex m_mutex;
    std::condition_variable m_changed;
    std::thread::id m_owner;
    uint64_t m_n_asked = 0, m_n_served = 0;
    uint32_t m_depth = 0;
};

} // namespace ks
