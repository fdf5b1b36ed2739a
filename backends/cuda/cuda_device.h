// CUDA devices and their memory.
#pragma once

#include "runtime/base/backend.h"

#include <cuda_runtime.h>

namespace ks
{

// A usable device. The numbers in ids follow the runtime's order.
struct CudaFound {
    DeviceInfo info;
    int index;
    int n_processors;
};
// Returns all usable devices. missing: the reason if there is none, such as "no NVIDIA driver".
std::vector<CudaFound> find_cuda_devices(std::string* missing = nullptr);

// The name and the text of an error: "cudaErrorIllegalAddress (an illegal memory access was
// encountered)".
std::string cuda_error(cudaError_t error);

// Allocates a block of zeros and touches every page. On a board with unified memory the runtime may
// promise more than the system has, and the process would be killed. So such a block is refused
// beforehand.
Result<void*> cuda_block(const CudaFound& device, uint64_t bytes, cudaStream_t stream);

} // namespace ks
