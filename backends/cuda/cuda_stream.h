// The queue of commands: launches and copies, stored until a wait. The commands between two waits
// are a segment. A segment that repeats byte for byte, as in decode, becomes a CUDA graph, which is
// launched from then on. Nothing is allocated after open().
#pragma once

#include "backends/cuda/cuda_device.h"

#include <cstring>
#include <new>
#include <tuple>
#include <type_traits>

namespace ks
{

// The name of a launch in kernel timings: an op's kernel and the formats that it reads. The name's
// pointer must stay valid.
struct KernelLabel {
    const char* kernel;
    uint32_t formats[2]; // Format values; no_format: none

    static constexpr uint32_t no_format = ~0u;
    KernelLabel(const char* name = "") : kernel(name), formats{no_format, no_format} {}
    KernelLabel(const char* name, Format a) : kernel(name), formats{uint32_t(a), no_format} {}
    KernelLabel(const char* name, Format a, Format b)
        : kernel(name), formats{uint32_t(a), uint32_t(b)}
    {
    }
    bool operator==(const KernelLabel& other) const
    {
        return kernel == other.kernel && formats[0] == other.formats[0] &&
               formats[1] == other.formats[1];
    }
    std::string text() const;
};

class CudaStream
{
public:
    CudaStream() = default;
    ~CudaStream();
    CudaStream(const CudaStream&) = delete;
    CudaStream& operator=(const CudaStream&) = delete;

    Status open(const CudaFound& device);
    // Selects the device for the calling thread. Other code in the process may have selected
    // another one.
    void enter() { check(cudaSetDevice(m_device.index), "being chosen"); }
    cudaStream_t handle() const { return m_stream; }

    // Stores a call of launch(args..., stream) for later.
    template <class Launch, class... A>
    void run(const KernelLabel& label, Launch launch, const A&... args)
    {
        using Held = Call<Launch, A...>;
        static_assert(std::is_trivially_destructible<Held>::value,
                      "arguments are forgotten, not destroyed");
        new (take(sizeof(Held), Held::play, label)) Held{launch, std::tuple<A...>(args...)};
    }
    void upload(void* to, const void* from, uint64_t bytes);
    void download(void* to, const void* from, uint64_t bytes); // waits
    Status wait();
    // Starts or stops recording an event after each command.
    Status time_kernels(bool on);
    void begin_op(uint32_t op) { m_op = op; } // the op of the following commands
    std::vector<KernelTime> take_kernel_times();
    uint64_t n_graphs_launched() const { return m_n_graphs_launched; }

private:
    using Play = void (*)(const void* held, cudaStream_t stream);
    template <class Launch, class... A>
    struct Call {
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
        uint32_t bytes; // of the arguments behind the command
        uint32_t op;
        KernelLabel label;
    };
    // Events around the commands of a segment: one before the first and one after each. A graph has
    // its own.
    struct Stamps {
        std::vector<cudaEvent_t> events;
        std::vector<std::pair<uint32_t, KernelLabel>> commands; // ops and labels
        bool pending = false;                                   // recorded, but not read yet
    };
    struct Sum {
        uint32_t op;
        KernelLabel label;
        uint64_t n;
        double seconds;
    };
    // A known segment of commands. It has a graph after its second occurrence.
    struct Segment {
        std::vector<uint8_t> commands;
        cudaGraphExec_t graph = nullptr;
        uint64_t last_used = 0;
        Stamps stamps;
    };

    void* take(uint64_t bytes, Play play, const KernelLabel& label);
    void copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind);
    void flush();
    void play(Stamps& stamps, bool captured);
    void stamp(Stamps& stamps, size_t nth, bool captured);
    void read(Stamps& stamps);
    void drop_events(Stamps& stamps);
    Segment& find_segment(bool* seen);
    void make_graph(Segment& known);
    void check(cudaError_t error, const char* what);

    CudaFound m_device;
    cudaStream_t m_stream = nullptr;
    std::vector<uint8_t> m_commands; // commands that are not launched yet
    int m_n_commands = 0;
    std::vector<Segment> m_known;
    uint64_t m_n_flushes = 0, m_n_graphs_launched = 0;
    uint8_t *m_up = nullptr, *m_down = nullptr; // pinned staging memory
    uint64_t m_n_up = 0;                        // bytes of m_up in use
    Status m_status;
    bool m_times_kernels = false;
    uint32_t m_op = 0;
    Stamps m_short_stamps; // for segments without a place in m_known
    std::vector<Sum> m_sums;
};

} // namespace ks
