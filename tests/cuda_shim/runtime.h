// The part of the CUDA runtime that the backend calls. Device memory is host memory. Every command
// is complete when its call returns. A stream in capture does nothing until its graph is launched.
#pragma once

#include "intrinsics.h"

#include <chrono>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrIntegrated = 18 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0;

struct CUstream_st {
    cudashim::Work* captured = nullptr;
};
struct CUgraph_st {
    cudashim::Work work;
};
struct CUgraphExec_st {
    cudashim::Work work;
};
using cudaStream_t = CUstream_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor;
};

namespace cudashim
{
template <class F>
void enqueue(cudaStream_t stream, F work)
{
    if (stream && stream->captured)
        stream->captured->push_back(work);
    else
        work();
}
inline Work* captured(cudaStream_t stream)
{
    return stream ? stream->captured : nullptr;
}
inline uint64_t n_graph_launches = 0;

// For tests. refuses(): whether the current call fails. made(n): an object was created (n = 1) or
// destroyed (n = -1).
inline bool (*refuses)() = nullptr;
inline void (*made)(int n) = nullptr;
inline cudaError_t last_error = cudaSuccess;
inline bool refused()
{
    if (!refuses || !refuses()) return false;
    last_error = cudaErrorMemoryAllocation;
    return true;
}
inline void count(int n)
{
    if (made) made(n);
}
} // namespace cudashim

inline const char* cudaGetErrorName(cudaError_t e)
{
    return e == cudaSuccess                 ? "cudaSuccess"
           : e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                            : "cudaErrorInvalidValue";
}
inline const char* cudaGetErrorString(cudaError_t e)
{
    return cudaGetErrorName(e);
}
inline cudaError_t cudaGetLastError()
{
    const cudaError_t error = cudashim::last_error;
    cudashim::last_error = cudaSuccess;
    return error;
}

// CUDASHIM_DRIVER: the driver's version as the runtime returns it. 0 means no driver; any other
// version is too old.
inline cudaError_t cudaDriverGetVersion(int* version)
{
    const char* set = std::getenv("CUDASHIM_DRIVER");
    *version = set ? atoi(set) : 13000;
    return cudaSuccess;
}
// CUDASHIM_DEVICES=0: a machine without a device.
inline cudaError_t cudaGetDeviceCount(int* n)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    const char* set = std::getenv("CUDASHIM_DEVICES");
    if (std::getenv("CUDASHIM_DRIVER")) return cudaErrorInsufficientDriver;
    if (set && atoi(set) == 0) return cudaErrorNoDevice;
    *n = set ? atoi(set) : 1;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    *prop = {};
    snprintf(prop->name, sizeof prop->name, "CUDA kernels as C++");
    prop->totalGlobalMem = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
    prop->major = 8;
    prop->minor = 7;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    const char* integrated = std::getenv("CUDASHIM_INTEGRATED");
    *value = which == cudaDevAttrIntegrated ? integrated && atoi(integrated) : 2;
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    *total = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
    *free = size_t(sysconf(_SC_AVPHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
    return cudaSuccess;
}

// Allocates exactly n bytes, so that a sanitizer's red zone begins at the end, and fills them with
// NaNs. More memory than the machine has is refused here, because a sanitizer's allocator would end
// the program.
inline cudaError_t cudaMalloc(void** p, size_t n)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    void* v = nullptr;
    if (n > size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE)) ||
        posix_memalign(&v, 256, n))
        return cudaErrorMemoryAllocation;
    memset(v, 0xff, n);
    *p = v;
    cudashim::count(1);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMalloc(T** p, size_t n)
{
    void* v = nullptr;
    const cudaError_t error = cudaMalloc(&v, n);
    *p = static_cast<T*>(v);
    return error;
}
inline cudaError_t cudaFree(void* p)
{
    if (p) cudashim::count(-1);
    free(p);
    return cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** p, size_t n, unsigned)
{
    return cudaMalloc(p, n);
}
inline cudaError_t cudaFreeHost(void* p)
{
    return cudaFree(p);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind,
                                   cudaStream_t stream)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    cudashim::enqueue(stream, [=] { memcpy(to, from, n); });
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int byte, size_t n, cudaStream_t stream)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    cudashim::enqueue(stream, [=] { memset(to, byte, n); });
    return cudaSuccess;
}
template <class F>
cudaError_t cudaFuncSetAttribute(F* f, cudaFuncAttribute, int v)
{
    if (size_t(v) > cudashim::opt().max_dyn_optin) return cudaErrorInvalidValue;
    cudashim::dyn_optin()[reinterpret_cast<const void*>(f)] = size_t(v);
    return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    *stream = new CUstream_st;
    cudashim::count(1);
    return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    cudashim::count(-1);
    return cudaSuccess;
}
// Events take the host's time.
struct CUevent_st {
    double milliseconds = 0;
};
using cudaEvent_t = CUevent_st*;
constexpr unsigned cudaEventRecordDefault = 0, cudaEventRecordExternal = 1;
inline cudaError_t cudaEventCreate(cudaEvent_t* event)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    *event = new CUevent_st;
    cudashim::count(1);
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    cudashim::count(-1);
    return cudaSuccess;
}
// As in the runtime, the external flag is only valid in a capture. In a capture, an event without
// it would not be recorded.
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    if ((flags == cudaEventRecordExternal) != (stream->captured != nullptr))
        return cudaErrorInvalidValue;
    cudashim::enqueue(stream, [=] {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        event->milliseconds = std::chrono::duration<double, std::milli>(now).count();
    });
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    *milliseconds = float(end->milliseconds - begin->milliseconds);
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    stream->captured = new cudashim::Work;
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph)
{
    if (!stream->captured) return cudaErrorInvalidValue;
    *graph = new CUgraph_st{*stream->captured};
    delete stream->captured;
    stream->captured = nullptr;
    cudashim::count(1);
    return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                 unsigned long long)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    *exec = new CUgraphExec_st{graph->work};
    cudashim::count(1);
    return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t)
{
    if (cudashim::refused()) return cudaErrorMemoryAllocation;
    cudashim::n_graph_launches++;
    for (auto& work : exec->work) work();
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    cudashim::count(-1);
    return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    cudashim::count(-1);
    return cudaSuccess;
}
