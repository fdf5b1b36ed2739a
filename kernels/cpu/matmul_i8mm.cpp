// Weight products for ARMv8.6 with the int8 matrix multiply (I8MM); the dot product handles the
// rest.
#ifdef __ARM_FEATURE_MATMUL_INT8
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_i8mm.h"

namespace ks
{

// The weights must be reordered. That pays only for more tokens than matvec keeps in registers.
template <class F, int format>
void matmul_i8mm(const MatmulTask& m)
{
    if constexpr (F::block > 1) {
        if (m.n_tokens > I8mm::matvec_tokens) return matmul_tiled<I8mm, F>(m);
    }
    kMatmulNeon->matmul[format](m); // every processor with I8MM has the dot product
}

#define KS_I8MM_HALVES_ENTRY(name) has_half_scales<I8mm, format_##name>(),
#define KS_I8MM_ENTRY(name) matmul_i8mm<format_##name, cpu_format_##name>,
static const MatmulKernels kTable = {
    quantize<I8mm>, {FORMATS(KS_I8MM_HALVES_ENTRY)}, {FORMATS(KS_I8MM_ENTRY)}, dot_peak<I8mm>};
const MatmulKernels* const kMatmulI8mm = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::MatmulKernels* const ks::kMatmulI8mm = nullptr;
#endif
