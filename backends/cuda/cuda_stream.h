// What was enqueued: launches and copies, kept until somebody waits. What was enqueued between two waits and comes again, byte for
// byte, as a decoded token's does, is made a graph and from then on launched as one. Nothing is allocated after open().
#pragma once

#include "backends/cuda/cuda_device.h"

#include <cstring>
#include <new>
#include <tuple>
#include <type_traits>

namespace ks
{

class CudaStream
{
public:
    CudaStream() = default;
    ~CudaStream();
    CudaStream(const CudaStream&) = delete;
    CudaStream& operator=(const CudaStream&) = delete;

    Status open(const CudaFound& device);
    // Makes the device the calling thread's: which one that is, is the process's affair, and others may have changed it.
    void enter() { check(cudaSetDevice(m_device.index), "being chosen"); }
    cudaStream_t handle() const { return m_stream; }

    // launch(args..., stream), later.
    template <class Launch, class... A> void run(Launch launch, const A&... args)
    {
        using Held = Call<Launch, A...>;
        static_assert(std::is_trivially_destructible<Held>::value, "arguments are forgotten, not destroyed");
        new (take(sizeof(Held), Held::play)) Held{launch, std::tuple<A...>(args...)};
    }
    void upload(void* to, const void* from, uint64_t bytes);
    void download(void* to, const void* from, uint64_t bytes); // waits
    Status wait();
    uint64_t n_graphs_launched() const { return m_n_graphs_launched; }

private:
    using Play = void (*)(const void* held, cudaStream_t stream);
    template <class Launch, class... A> struct Call {
        Launch launch;
        std::tuple<A...> args;
        static void play(const void* held, cudaStream_t stream)
        {
            const Call& call = *static_cast<const Call*>(held);
            std::apply([&](const A&... a) { call.launch(a..., stream); }, call.args);
        }
    };
    struct Command {
        Play play;
        uint64_t bytes; // of what follows it
    };
    // A segment of commands that was seen, and its graph once it came twice.
    struct Known {
        std::vector<uint8_t> commands;
        cudaGraphExec_t graph = nullptr;
        uint64_t last_used = 0;
    };

    void* take(uint64_t bytes, Play play);
    void copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind);
    void flush();
    void play();
    Known& recall(bool* seen);
    void make_graph(Known& known);
    void check(cudaError_t error, const char* what);

    CudaFound m_device;
    cudaStream_t m_stream = nullptr;
    std::vector<uint8_t> m_commands; // what is not enqueued yet
    int m_n_commands = 0;
    std::vector<Known> m_known;
    uint64_t m_n_flushes = 0, m_n_graphs_launched = 0;
    uint8_t *m_up = nullptr, *m_down = nullptr; // staging, which the device reads and writes by itself
    uint64_t m_n_up = 0;                        // what is on its way
    Status m_status;
};

} // namespace ks
