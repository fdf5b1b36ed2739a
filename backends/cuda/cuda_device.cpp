#include "backends/cuda/cuda_device.h"

#include "backends/cuda/cuda_backend.h"
#include "backends/kernel_choice.h"
#include "backends/reference/reference_backend.h"

#include <algorithm>

namespace ks
{

constexpr int kMinMajor = 7; // the first with independent thread scheduling

std::string cuda_error(cudaError_t error)
{
    return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}

static bool probe_device(int index, CudaFound* found)
{
    cudaDeviceProp prop;
    int integrated = 0, n_processors = 0;
    if (cudaGetDeviceProperties(&prop, index) != cudaSuccess) return false;
    if (prop.major < kMinMajor) return false;
    if (cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, index) != cudaSuccess)
        return false;
    if (cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, index) != cudaSuccess)
        return false;
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaSetDevice(index) != cudaSuccess ||
        cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        return false;
    DeviceInfo& info = found->info;
    info = {"cuda:" + std::to_string(index),
            std::string(printable(prop.name)),
            "cuda",
            total_bytes,
            free_bytes,
            integrated != 0};
    info.name += ", sm_" + std::to_string(10 * prop.major + prop.minor) + ", " +
                 std::to_string(n_processors) + " multiprocessors";
    // The runtime counts the page cache as used and swap as free, so the system's numbers are
    // taken.
    if (info.unified) host_memory(&info.memory_bytes, &info.free_bytes);
    info.free_bytes = std::min(info.free_bytes, info.memory_bytes);
    add_attention_lines(info.paths, [](const AttentionArgs& a) {
        return explain_attention(choose_attention(a, {}), true);
    });
    found->index = index;
    found->n_processors = n_processors;
    return true;
}

static std::string why_none(cudaError_t error)
{
    int driver = 0;
    if (error == cudaErrorInsufficientDriver)
        return cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0
                   ? "its NVIDIA driver is too old for this build"
                   : "no NVIDIA driver";
    if (error == cudaErrorNoDevice) return "no NVIDIA GPU";
    return error == cudaSuccess ? "no GPU that it can use" : cuda_error(error);
}

std::vector<CudaFound> find_cuda_devices(std::string* missing)
{
    std::vector<CudaFound> devices;
    int n = 0, current = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaSuccess) error = cudaGetDevice(&current);
    if (error != cudaSuccess) n = 0;
    for (int i = 0; i < n; i++) {
        CudaFound found;
        if (probe_device(i, &found)) devices.push_back(found);
    }
    if (n) (void)cudaSetDevice(current);
    if (devices.empty() && missing) *missing = why_none(error);
    (void)cudaGetLastError();
    return devices;
}

Result<void*> cuda_block(const CudaFound& device, uint64_t bytes, cudaStream_t stream)
{
    if (device.info.unified) {
        uint64_t total_bytes, free_bytes;
        host_memory(&total_bytes, &free_bytes);
        if (bytes > free_bytes)
            return fail(Code::no_fit, "%s has %llu bytes left, %llu are wanted",
                        device.info.id.c_str(), (unsigned long long)free_bytes,
                        (unsigned long long)bytes);
    }
    void* memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(Code::no_fit, "%s cannot give %llu bytes: %s", device.info.id.c_str(),
                    (unsigned long long)bytes, cuda_error(error).c_str());
    }
    error = cudaMemsetAsync(memory, 0, bytes, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess) return memory;
    (void)cudaFree(memory);
    return fail(Code::device, "%s cannot fill %llu bytes: %s", device.info.id.c_str(),
                (unsigned long long)bytes, cuda_error(error).c_str());
}

} // namespace ks
