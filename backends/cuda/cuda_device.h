// CUDA devices: found, measured, opened; and their memory.
#pragma once

#include "runtime/base/backend.h"

#include <cuda_runtime.h>

namespace ks
{

// One of the machine's devices that can be used, in the runtime's order, which is that of the ids.
struct CudaFound {
    DeviceInfo info;
    int index;
    int n_processors;
};
// missing: why there is none, such as "no NVIDIA driver".
std::vector<CudaFound> find_cuda_devices(std::string* missing = nullptr);

// "cudaErrorIllegalAddress (an illegal memory access was encountered)"
std::string cuda_error(cudaError_t error);

// Zeros, every page touched. What the runtime promises on a board whose memory is the host's too,
// and the system cannot give, ends the process: such a block is refused before it is asked for.
Result<void*> cuda_block(const CudaFound& device, uint64_t bytes, cudaStream_t stream);

} // namespace ks
