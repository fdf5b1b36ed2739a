#include "backends/cuda/cuda_stream.h"

#include <algorithm>
#include <utility>

namespace ks
{

constexpr uint64_t kStagingBytes = 4u << 20; // per direction
constexpr size_t kCommandBytes = 256u << 10; // per segment: more than a decode step needs
constexpr size_t kKnown = 6;
constexpr int kMinCommands = 8; // shorter segments do not become graphs

CudaStream::~CudaStream()
{
    if (!m_stream) return;
    (void)wait();
    (void)time_kernels(false);
    for (Segment& known : m_known)
        if (known.graph) (void)cudaGraphExecDestroy(known.graph);
    (void)cudaStreamDestroy(m_stream);
    (void)cudaFreeHost(m_up);
}

Status CudaStream::open(const CudaFound& device)
{
    m_device = device;
    enter();
    check(cudaStreamCreateWithFlags(&m_stream, cudaStreamNonBlocking), "making a stream");
    if (!m_status.ok()) return m_status;
    void* staging = nullptr;
    check(cudaHostAlloc(&staging, 2 * kStagingBytes, cudaHostAllocDefault),
          "making a staging block");
    if (!m_status.ok()) return m_status;
    m_up = static_cast<uint8_t*>(staging);
    m_down = m_up + kStagingBytes;
    m_commands.reserve(kCommandBytes);
    m_known.resize(kKnown);
    for (Segment& known : m_known) known.commands.reserve(kCommandBytes);
    return m_status;
}

void CudaStream::check(cudaError_t error, const char* what)
{
    if (error != cudaSuccess && m_status.ok())
        m_status = fail(Code::device, "%s failed while %s: %s", m_device.info.id.c_str(), what,
                        cuda_error(error).c_str());
}

// Appends a command and returns the space for its arguments. The space is zeroed, so that equal
// commands have equal padding.
void* CudaStream::take(uint64_t bytes, Play played, const KernelLabel& label)
{
    bytes = align_up(bytes, 16);
    if (m_commands.size() + sizeof(Command) + bytes > kCommandBytes) flush();
    const size_t at = m_commands.size();
    m_commands.resize(at + sizeof(Command) + bytes);
    static_assert(sizeof(Command) == 32, "without padding: commands are compared byte for byte");
    const Command command{played, uint32_t(bytes), m_op, label};
    memcpy(&m_commands[at], &command, sizeof command);
    m_n_commands++;
    return &m_commands[at + sizeof command];
}

static void play_copy(void* to, const void* from, uint64_t bytes, int kind, cudaStream_t stream)
{
    (void)cudaMemcpyAsync(to, from, bytes, cudaMemcpyKind(kind),
                          stream); // cudaGetLastError reports an error
}

void CudaStream::copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind)
{
    run("copy", play_copy, to, from, bytes, int(kind));
}

// The staging offset returns to 0 at every wait, so that equal steps have equal commands.
void CudaStream::upload(void* to, const void* from, uint64_t bytes)
{
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = std::min(bytes - done, kStagingBytes);
        if (m_n_up + n > kStagingBytes) (void)wait();
        memcpy(m_up + m_n_up, static_cast<const uint8_t*>(from) + done, n);
        copy(static_cast<uint8_t*>(to) + done, m_up + m_n_up, n, cudaMemcpyHostToDevice);
        m_n_up += align_up(n, 64);
    }
}

void CudaStream::download(void* to, const void* from, uint64_t bytes)
{
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = std::min(bytes - done, kStagingBytes);
        copy(m_down, static_cast<const uint8_t*>(from) + done, n, cudaMemcpyDeviceToHost);
        (void)wait();
        memcpy(static_cast<uint8_t*>(to) + done, m_down, n);
    }
}

void CudaStream::play(Stamps& stamps, bool captured)
{
    if (m_times_kernels) {
        read(stamps);
        stamps.commands.clear();
        stamp(stamps, 0, captured);
    }
    for (size_t at = 0; at < m_commands.size();) {
        Command command;
        memcpy(&command, &m_commands[at], sizeof command);
        command.play(&m_commands[at + sizeof command], m_stream);
        at += sizeof command + command.bytes;
        if (!m_times_kernels) continue;
        stamps.commands.emplace_back(command.op, command.label);
        stamp(stamps, stamps.commands.size(), captured);
    }
    stamps.pending = m_times_kernels && !captured;
    check(cudaGetLastError(), "starting a kernel");
}

// The known segment that equals the commands. If there is none, the least recently used one is
// replaced.
CudaStream::Segment& CudaStream::find_segment(bool* seen)
{
    for (Segment& known : m_known) {
        *seen = known.commands == m_commands;
        if (*seen) return known;
    }
    Segment& oldest =
        *std::min_element(m_known.begin(), m_known.end(), [](const Segment& a, const Segment& b) {
            return a.last_used < b.last_used;
        });
    if (oldest.graph) check(cudaGraphExecDestroy(oldest.graph), "forgetting a graph");
    oldest.graph = nullptr;
    oldest.commands = m_commands; // within the reserved capacity
    return oldest;
}

void CudaStream::make_graph(Segment& known)
{
    cudaGraph_t graph = nullptr;
    read(known.stamps); // before the capture, in which waiting is not allowed
    check(cudaStreamBeginCapture(m_stream, cudaStreamCaptureModeThreadLocal), "recording a step");
    play(known.stamps, true);
    check(cudaStreamEndCapture(m_stream, &graph), "recording a step");
    if (m_status.ok())
        check(cudaGraphInstantiateWithFlags(&known.graph, graph, 0), "making a graph");
    if (graph) check(cudaGraphDestroy(graph), "making a graph");
}

void CudaStream::flush()
{
    enter();
    if (m_n_commands && m_status.ok()) {
        bool seen = false;
        Segment* known = m_n_commands >= kMinCommands ? &find_segment(&seen) : nullptr;
        if (known) known->last_used = ++m_n_flushes;
        if (seen && !known->graph) make_graph(*known);
        if (known && known->graph && m_status.ok()) {
            if (m_times_kernels) read(known->stamps);
            check(cudaGraphLaunch(known->graph, m_stream), "launching a graph");
            known->stamps.pending = m_times_kernels;
            m_n_graphs_launched++;
        } else if (m_status.ok()) {
            play(known ? known->stamps : m_short_stamps, false);
        }
    }
    m_commands.clear();
    m_n_commands = 0;
}

std::string KernelLabel::text() const
{
    std::string text = kernel;
    for (uint32_t format : formats)
        if (format != no_format)
            text += std::string(" ") + (format < uint32_t(Format::n_weights)
                                            ? format_info(Format(format)).name
                                            : codec_info(Format(format)).name);
    return text;
}

// In a capture, cudaEventRecordExternal makes the event a node of the graph.
void CudaStream::stamp(Stamps& stamps, size_t nth, bool captured)
{
    if (nth == stamps.events.size()) {
        cudaEvent_t event = nullptr;
        check(cudaEventCreate(&event), "making an event");
        stamps.events.push_back(event);
    }
    if (stamps.events[nth] && m_status.ok())
        check(cudaEventRecordWithFlags(stamps.events[nth], m_stream,
                                       captured ? cudaEventRecordExternal : cudaEventRecordDefault),
              "recording an event");
}

// Adds the times of the segment's commands. Waits if the segment has not run yet.
void CudaStream::read(Stamps& stamps)
{
    if (!stamps.pending) return;
    stamps.pending = false;
    check(cudaEventSynchronize(stamps.events[stamps.commands.size()]), "running");
    for (size_t i = 0; i < stamps.commands.size() && m_status.ok(); i++) {
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, stamps.events[i], stamps.events[i + 1]),
              "reading an event");
        const auto& [op, label] = stamps.commands[i];
        auto sum =
            std::find_if(m_sums.begin(), m_sums.end(), [op = op, label = label](const Sum& s) {
                return s.op == op && s.label == label;
            });
        if (sum == m_sums.end()) sum = m_sums.insert(m_sums.end(), {op, label, 0, 0});
        sum->n++;
        sum->seconds += milliseconds * 1e-3;
    }
}

void CudaStream::drop_events(Stamps& stamps)
{
    for (cudaEvent_t event : stamps.events)
        if (event) (void)cudaEventDestroy(event);
    stamps = {};
}

// Existing graphs are dropped, because events are part of a graph.
Status CudaStream::time_kernels(bool on)
{
    (void)wait();
    for (Segment& known : m_known) {
        if (known.graph) check(cudaGraphExecDestroy(known.graph), "forgetting a graph");
        known.graph = nullptr;
        known.commands.clear();
        drop_events(known.stamps);
    }
    drop_events(m_short_stamps);
    m_sums.clear();
    m_times_kernels = on;
    return m_status;
}

std::vector<KernelTime> CudaStream::take_kernel_times()
{
    (void)wait(); // an error is kept until the next wait
    for (Segment& known : m_known) read(known.stamps);
    read(m_short_stamps);
    std::vector<KernelTime> times;
    for (const Sum& sum : m_sums) times.push_back({sum.op, sum.label.text(), sum.n, sum.seconds});
    m_sums.clear();
    return times;
}

Status CudaStream::wait()
{
    flush();
    if (m_stream) check(cudaStreamSynchronize(m_stream), "running");
    m_n_up = 0;
    return m_status;
}

} // namespace ks
