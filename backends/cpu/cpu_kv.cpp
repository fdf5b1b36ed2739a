// kv_write, kv_read and kv_move with the kernels of the codecs.
#include "backends/cpu/cpu_backend.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kValuesToEncode = 16; // touched once in the time that encoding one value takes

CodedRows CpuBackend::coded_rows(const Tensor& t) const
{
    const uint32_t row_bytes = codec_info(t.format).row_bytes(t.cols);
    const CodedRow first =
        codec_info(t.format).group == 1 ? coded_row(t, 0) : CodedRow{coded_group(t, 0), nullptr};
    return rows_of(m_kernels.vector, codec_index(t.format), first.words, first.tail, row_bytes);
}

void CpuBackend::encode(const Tensor& to, uint64_t row, const float* x) const
{
    const CodedRow out = coded_row(to, row);
    m_kernels.vector.codecs[codec_index(to.format)].encode(x, to.cols, out.words, out.tail);
}

void CpuBackend::decode(const Tensor& from, uint64_t row, float* x) const
{
    const CodedRows rows = coded_rows(from);
    const uint32_t only = uint32_t(row);
    rows.decode(rows, &only, 0, 1, from.cols, x, {});
}

void CpuBackend::kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x,
                          const Tensor& table, const Tensor& head_layout)
{
    if (to.k) check_kv_write(a, to.k, x.k);
    if (to.v) check_kv_write(a, to.v, x.v);
    const uint32_t effort = is_coded(to.k.format) || is_coded(to.v.format) ? kValuesToEncode : 1;
    for_rows(a.n_tokens, 2 * a.n_kv_heads * a.head_dim * effort, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++) {
            for (uint32_t h = 0; h < a.n_kv_heads; h++) {
                const uint32_t row = kv_write_row(a, table, head_layout, h, t);
                const uint64_t at = (uint64_t(t) * a.n_kv_heads + h) * a.head_dim;
                if (to.k) encode(to.k, row, x.k.ptr() + at);
                if (to.v) encode(to.v, row, x.v.ptr() + at);
            }
        }
    });
}

void CpuBackend::kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                         const Tensor& rows)
{
    check_rows("kv_read", from, from.rows, a.head_dim);
    for_rows(a.n, a.head_dim * (is_coded(from.format) ? kValuesToEncode : 1),
             [&](uint32_t begin, uint32_t end) {
                 for (uint32_t i = begin; i < end; i++) {
                     const uint32_t row = rows.ptr<uint32_t>()[i];
                     KS_CHECK(row < from.rows, "kv_read: row %u of %u", row, from.rows);
                     decode(from, row, y.ptr() + uint64_t(i) * a.head_dim);
                 }
             });
}

void CpuBackend::kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                         const Tensor& moves)
{
    if (to.format == from.format || !is_coded(to.format))
        return ReferenceBackend::kv_move(a, to, from, moves);
    check_rows("kv_move", from, from.rows, a.head_dim);
    check_rows("kv_move", to, to.rows, a.head_dim);
    const uint32_t group = codec_info(to.format).group;
    const EncodeKernel encode_group = m_kernels.vector.codecs[codec_index(to.format)].encode;
    if (group > 1) check_group_moves(to.format, moves.ptr<uint32_t>(), a.n_moves);
    for_rows(
        a.n_moves / group, a.head_dim * kValuesToEncode * group, [&](uint32_t begin, uint32_t end) {
            float values[kMostInGroup * codec_max_dim];
            for (uint32_t i = begin * group; i < end * group; i++) {
                const uint32_t* move = moves.ptr<uint32_t>() + 2 * i;
                KS_CHECK(move[0] < from.rows && move[1] < to.rows,
                         "kv_move: row %u of %u to %u of %u", move[0], from.rows, move[1], to.rows);
                decode(from, move[0], values + i % group * a.head_dim);
                if (group == 1) encode(to, move[1], values);
                if (group > 1 && i % group == group - 1)
                    encode_group(values, a.head_dim, coded_group(to, move[1]), nullptr);
            }
        });
}

} // namespace ks
