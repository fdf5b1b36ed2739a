// The products with weights for AMX with bytes, and AVX-512 for the rest.
#ifdef __AMX_INT8__
#include "kernels/cpu/matmul_amx.h"

namespace ks
{

static const MatmulKernels kTable = KS_AMX_KERNELS;
const MatmulKernels* const kMatmulAmx = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::MatmulKernels* const ks::kMatmulAmx = nullptr;
#endif
