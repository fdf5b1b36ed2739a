// The kernels of matmul_amx.h for processors that have AVX2 only: tile registers in plain C++, as they are configured.
#include "tests/backends/simd_bits.h"
#ifdef __AVX2__
#include <doctest/doctest.h>
#include <immintrin.h>

struct EmulatedTiles {
    bool configured = false;
    int row_bytes[8] = {}, rows[8] = {};
    uint8_t bytes[8][16][64] = {};
};
static thread_local EmulatedTiles s_tiles;

static void emulated_loadconfig(const void* config)
{
    const uint8_t* bytes = static_cast<const uint8_t*>(config);
    REQUIRE(bytes[0] == 1);
    s_tiles = EmulatedTiles();
    s_tiles.configured = true;
    for (int i = 0; i < 8; i++) {
        s_tiles.row_bytes[i] = bytes[16 + 2 * i];
        s_tiles.rows[i] = bytes[48 + i];
        REQUIRE((s_tiles.rows[i] <= 16 && s_tiles.row_bytes[i] <= 64 && bytes[17 + 2 * i] == 0));
    }
}

static void emulated_release()
{
    s_tiles = EmulatedTiles();
}

static void emulated_zero(int tile)
{
    REQUIRE(s_tiles.configured);
    memset(s_tiles.bytes[tile], 0, sizeof s_tiles.bytes[tile]);
}

static void emulated_loadd(int tile, const void* from, size_t stride)
{
    emulated_zero(tile);
    for (int r = 0; r < s_tiles.rows[tile]; r++)
        memcpy(s_tiles.bytes[tile][r], static_cast<const uint8_t*>(from) + size_t(r) * stride, size_t(s_tiles.row_bytes[tile]));
}

static void emulated_stored(int tile, void* to, size_t stride)
{
    REQUIRE(s_tiles.configured);
    for (int r = 0; r < s_tiles.rows[tile]; r++)
        memcpy(static_cast<uint8_t*>(to) + size_t(r) * stride, s_tiles.bytes[tile][r], size_t(s_tiles.row_bytes[tile]));
}

// c += a b, signed a, b with the sign that Byte has; the shapes must fit, as the processor demands.
template <class Byte> static void emulated_multiply(int c, int a, int b)
{
    EmulatedTiles& s = s_tiles;
    REQUIRE((s.rows[c] == s.rows[a] && s.row_bytes[c] == s.row_bytes[b] && s.row_bytes[a] == 4 * s.rows[b]));
    for (int m = 0; m < s.rows[c]; m++) {
        for (int n = 0; n < s.row_bytes[c] / 4; n++) {
            int32_t sum;
            memcpy(&sum, &s.bytes[c][m][4 * n], 4);
            for (int k = 0; k < s.row_bytes[a]; k++) sum += int8_t(s.bytes[a][m][k]) * Byte(s.bytes[b][k / 4][4 * n + k % 4]);
            memcpy(&s.bytes[c][m][4 * n], &sum, 4);
        }
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbsud
#undef _tile_dpbssd
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_dpbsud emulated_multiply<uint8_t>
#define _tile_dpbssd emulated_multiply<int8_t>
#define KS_AMX_FEW kMatmulAvx2
#include "kernels/cpu/matmul_amx.h"

namespace ks
{

static const MatmulKernels kTable = KS_AMX_KERNELS;
const MatmulKernels* const kMatmulAmxEmulated = &kTable;

} // namespace ks
#else
const ks::MatmulKernels* const ks::kMatmulAmxEmulated = nullptr;
#endif
