// KS_PERF=1: times of the codecs of the cpu backend.
#include "kernels/cpu/cpu_kernels.h"
#include "tests/backends/coded_rows.h"

#include <chrono>
#include <cstdlib>
#include <doctest/doctest.h>

using namespace ks;

enum CodecWork {
    encode_vector,
    decode_vector,
    encode_scalar,
    decode_scalar,
    logits_1,
    logits_3,
    outputs_1,
    outputs_3,
    n_kinds
};

// One tile of coded rows, and the operands of each kind of work on it.
struct CodecTile {
    static constexpr uint32_t n = 64;
    Format format;
    uint32_t d;
    const VectorKernels& vector;
    std::vector<float> x, y, logits, sums, prepared;
    std::vector<uint32_t> rows, cache;
    CodedRows pool;

    CodecTile(Format f, uint32_t head_dim, const VectorKernels& kernels)
        : format(f), d(head_dim), vector(kernels), x(Random(1).normals(n * d)), y(n * d),
          logits(3 * n), sums(3 * d), prepared(kPreparedFloats * d), cache(coded_bytes(f, n, d) / 4)
    {
        for (uint32_t i = 0; i < n; i++) rows.push_back(i);
        const uint32_t bytes = codec_info(f).row_bytes(d);
        const CodedRow all = coded_row(cache.data(), n, 0, bytes);
        pool = rows_of(vector, codec_index(f), all.words, all.tail, bytes);
    }

    void run_rows(CodecWork kind)
    {
        for (uint32_t r = 0; r < n; r++) {
            const CodedRow row = coded_row(cache.data(), n, r, codec_info(format).row_bytes(d));
            if (kind == encode_vector)
                vector.codecs[codec_index(format)].encode(&x[r * d], d, row.words, row.tail);
            if (kind == encode_scalar) encode_row(format, &x[r * d], d, row.words, row.tail);
            if (kind == decode_scalar) decode_row(format, row.words, row.tail, d, &y[r * d]);
        }
    }

    void run(CodecWork kind, uint32_t n_heads)
    {
        if (kind == decode_vector) pool.decode(pool, rows.data(), 0, n, d, y.data(), {});
        if ((kind == logits_1 || kind == logits_3) && pool.logits)
            pool.logits(pool, rows.data(), 0, n, d, pool.prepare ? prepared.data() : x.data(),
                        n_heads, logits.data(), y.data(), {});
        if ((kind == outputs_1 || kind == outputs_3) && pool.outputs)
            pool.outputs(pool, rows.data(), 0, n, d, x.data(), n_heads, sums.data(), d, {});
        if (kind == encode_vector || kind == encode_scalar || kind == decode_scalar) run_rows(kind);
    }
};

static void print_times(const CodecTile& tile, const double* seconds)
{
    printf("%-12s encode %7.1f ns a row, decode %7.1f; without vectors %7.1f, %7.1f",
           name_of(tile.format, tile.d).c_str(), seconds[encode_vector] * 1e9,
           seconds[decode_vector] * 1e9, seconds[encode_scalar] * 1e9,
           seconds[decode_scalar] * 1e9);
    if (tile.pool.logits)
        printf("; logits of one head %5.1f, of three %5.1f", seconds[logits_1] * 1e9,
               seconds[logits_3] * 1e9);
    if (tile.pool.outputs)
        printf("; outputs %5.1f, %5.1f", seconds[outputs_1] * 1e9, seconds[outputs_3] * 1e9);
    printf("\n");
}

TEST_CASE("perf: codecs" * doctest::skip(!getenv("KS_PERF")))
{
    const CpuKernels kernels = choose_cpu_kernels();
    for (uint32_t d : {64u, 128u, 256u}) {
        for (Format format : all_codecs()) {
            CodecTile tile(format, d, kernels.vector);
            double best[n_kinds]; // seconds per row
            std::fill(best, best + n_kinds, 1e9);
            for (int run = 0; run < 100 * n_kinds; run++) {
                const CodecWork kind = CodecWork(run % n_kinds);
                const uint32_t n_heads = kind == logits_3 || kind == outputs_3 ? 3 : 1;
                if (tile.pool.prepare)
                    tile.pool.prepare(tile.x.data(), n_heads, d, tile.prepared.data());
                const auto start = std::chrono::steady_clock::now();
                tile.run(kind, n_heads);
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
                best[kind] = std::min(best[kind], took.count() / tile.n);
            }
            print_times(tile, best);
        }
    }
}
