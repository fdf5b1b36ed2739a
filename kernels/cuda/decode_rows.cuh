// The rows of a run in attention_decode: products with the queries, softmax weights, and weighted
// values.
#pragma once

#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/lanes.cuh"

namespace ks
{

template <uint n_rows>
struct DecodeState {
    float top[n_rows], norm[n_rows]; // running maxima, and this lane's share of the norms
};

// Octet e of lane j of a query, in the order of fill_queries (attention_decode.cu).
template <uint d, uint lanes>
DEVICE void load_query(const float (&query)[d], uint j, uint e, float (&out)[8])
{
    KS_UNROLL
    for (uint i = 0u; i < 2u; i++) {
        const float4 four = reinterpret_cast<const float4*>(query)[(2u * e + i) * lanes + j];
        out[4u * i] = four.x, out[4u * i + 1u] = four.y, out[4u * i + 2u] = four.z,
                 out[4u * i + 3u] = four.w;
    }
}

// Butterfly reduction of n sums over the lanes that share a row. Lane j ends up with sum j % n. n
// is a power of two, at most `lanes`.
template <uint lanes, uint n>
DEVICE float share_sums(float (&sums)[n], uint j)
{
    KS_UNROLL
    for (uint distance = 1u; distance < lanes; distance *= 2u) KS_UNROLL
    for (uint r = 0u; r < max(1u, n / (2u * distance)); r++) {
        if (distance >= n) {
            sums[0] += __shfl_xor_sync(all_lanes, sums[0], int(distance));
            continue;
        }
        // Each lane keeps one of two sums and sends the other to the lane that keeps that one.
        const bool odd = (j & distance) != 0u;
        const float even_sum = sums[2u * r % n], odd_sum = sums[(2u * r + 1u) % n];
        sums[r] = (odd ? odd_sum : even_sum) +
                  __shfl_xor_sync(all_lanes, odd ? even_sum : odd_sum, int(distance));
    }
    return sums[0];
}

// Rows that a lane loads before it uses the first. A run has at most `lanes` rows per lane.
template <class Rows, uint lanes>
constexpr uint rows_in_flight = Rows::n_rows < lanes ? Rows::n_rows : lanes;
// Rows between two checks for the end of a run. With several queries a check saves less: there it
// comes only after all rows in flight.
template <uint n_rows>
constexpr uint rows_per_end_check = n_rows == 1u ? 4u : 32u;

template <uint n>
struct alignas(4u * n) RowBatch {
    uint rows[n];
};

// Calls start() once, then use(k, place, words) for the rows of a run. k: the row's number among
// the rows in flight. begin: the first place of this lane's group. Places after the run's end may
// be used, too; they repeat one of its rows.
template <uint lanes, uint n, uint per_end_check, class Rows, class Start, class Use>
DEVICE void for_rows(const Rows& reader, const DecodeRun& run, const uint* rows, uint begin,
                     const Start& start, const Use& use)
{
    constexpr uint lane_groups = 32u / lanes;
    if (!Rows::query_after_fetch) start();
    KS_UNROLL_BY(1)
    for (uint first = 0u; first < run.n; first += lane_groups * n) {
        const uint place = begin + first / lane_groups;
        const RowBatch<n> batch = *reinterpret_cast<const RowBatch<n>*>(rows + place);
        uint words[n][Rows::n_words];
        KS_UNROLL
        for (uint k = 0u; k < n; k++) reader.fetch(batch.rows[k], words[k]);
        if (Rows::query_after_fetch && first == 0u) start();
        KS_UNROLL
        for (uint k = 0u; k < n; k++) {
            if (k != 0u && k % per_end_check == 0u && first + k * lane_groups >= run.n) break;
            use(k, place + k, words[k]);
        }
    }
}

// The dot product of a key and a query over a lane's octets.
template <class Rows, uint n_octets, uint n>
DEVICE float decode_dot(const LaneOctet<n> (&key)[n_octets], const float (&by)[n_octets][8],
                        const float (&base)[n_octets][n])
{
    float sums[n_octets];
    KS_UNROLL
    for (uint e = 0u; e < n_octets; e++) {
        KS_UNROLL
        for (uint f = 0u; f < n; f++) {
            float part = base[e][f];
            KS_UNROLL
            for (uint k = 8u / n * f; k < 8u / n * (f + 1u); k++)
                part += by[e][k] * key[e].values[k];
            sums[e] = f == 0u ? part * key[e].factors[f] : sums[e] + part * key[e].factors[f];
        }
        sums[e] *= key[e].scale;
    }
    return n_octets == 1u ? sums[0] : sums[0] + sums[n_octets - 1u];
}

// Computes the logits of a run, by place. query(r, e, out) loads octet e of query r.
template <uint d, uint n_rows, uint n_octets, class Rows, class Query>
DEVICE void decode_logits(const Rows& reader, const DecodeRun& run, const uint* rows, uint begin,
                          const Query& query, const float* levels, float (*logits)[32])
{
    constexpr uint lanes = d / (8u * n_octets), padded_rows = n_rows == 3u ? 4u : n_rows,
                   max_keys = lanes / padded_rows < 4u ? lanes / padded_rows : 4u,
                   n = Rows::n_factors;
    // n_keys: keys whose sums are reduced together
    constexpr uint in_flight = rows_in_flight<Rows, lanes>,
                   n_keys = in_flight < max_keys ? in_flight : max_keys;
    const uint j = threadIdx.x % lanes;
    float sums[n_keys * padded_rows], by[n_rows][n_octets][8], base[n_rows][n_octets][n];
    const auto start = [&] {
        KS_UNROLL
        for (uint r = 0u; r < n_rows; r++) KS_UNROLL
        for (uint e = 0u; e < n_octets; e++) {
            float octet[8];
            query(r, e, octet);
            reader.scale_query(octet, e, by[r][e], base[r][e]);
        }
    };
    for_rows<lanes, in_flight, rows_per_end_check<n_rows>>(
        reader, run, rows, begin, start,
        [&](uint nth_in_flight, uint place, const uint(&words)[Rows::n_words]) {
            const uint at = nth_in_flight % n_keys;
            LaneOctet<n> key[n_octets];
            KS_UNROLL
            for (uint e = 0u; e < n_octets; e++) key[e] = reader.decode(words, e, levels);
            KS_UNROLL
            for (uint r = 0u; r < padded_rows; r++)
                sums[at * padded_rows + r] =
                    decode_dot<Rows>(key, by[r % n_rows], base[r % n_rows]);
            if (at + 1u < n_keys) return;
            const float sum = share_sums<lanes, n_keys * padded_rows>(sums, j) * Rows::scale_down;
            if (j >= n_keys * padded_rows || j % padded_rows >= n_rows) return;
            float& logit = logits[j % padded_rows][place - (n_keys - 1u) + j / padded_rows];
            logit = sum;
        });
}

// Converts the logits of a run to weights: of this lane's slot, 0 outside the run. Updates the
// running maxima and rescales the sums.
template <uint n_rows, uint n_octets>
DEVICE void decode_weights(const AttentionArgs& a, const Head& h, uint first_row, uint index,
                           const DecodeRun& run, DecodeState<n_rows>& state,
                           float (&sum)[n_rows][n_octets][8], const float (*logits)[32],
                           float (&weights)[n_rows])
{
    const uint group = a.n_heads / a.n_kv_heads;
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        const bool seen = run.has && sees(a, h, (first_row + r) / group, index);
        const float logit = seen ? fmaxf(masked_logit, logits[r][run.place]) : masked_logit;
        const float top = fmaxf(state.top[r], warp_max(logit)),
                    shrink = power_of_two_flushed(state.top[r] - top);
        weights[r] = logit > 0.5f * masked_logit ? power_of_two_flushed(logit - top) : 0.f;
        state.norm[r] = state.norm[r] * shrink + weights[r];
        state.top[r] = top;
        KS_UNROLL
        for (uint i = 0u; i < 8u * n_octets; i++) sum[r][i / 8u][i % 8u] *= shrink;
    }
}

// Adds the weighted values of a run. scratch: the weights by place.
template <uint d, uint n_rows, uint n_octets, class Rows>
DEVICE void decode_values(const Rows& reader, const DecodeRun& run, const uint* rows, uint begin,
                          const float (&weights)[n_rows], const float* levels, float (*scratch)[32],
                          float (&sum)[n_rows][n_octets][8])
{
    constexpr uint n = Rows::n_factors, lanes = d / (8u * n_octets);
    float base[n_rows][n_octets][n] = {};
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        scratch[r][run.place] = weights[r] * Rows::scale_up;
        KS_UNROLL
        for (uint i = 0u; i < 8u * n_octets; i++)
            sum[r][i / 8u][i % 8u] *= reader.field_scale(i % 8u) / Rows::scale_down;
    }
    __syncwarp();
    for_rows<lanes, rows_in_flight<Rows, lanes>, rows_per_end_check<n_rows>>(
        reader, run, rows, begin, [] {},
        [&](uint, uint place, const uint(&words)[Rows::n_words]) {
            KS_UNROLL
            for (uint e = 0u; e < n_octets; e++) {
                const LaneOctet<n> value = reader.decode(words, e, levels);
                KS_UNROLL
                for (uint r = 0u; r < n_rows; r++) {
                    const float weight = scratch[r][place] * value.scale;
                    KS_UNROLL
                    for (uint f = 0u; f < n; f++) {
                        const float p = weight * value.factors[f];
                        if (Rows::are_codes) base[r][e][f] += weight * value.offsets[f];
                        KS_UNROLL
                        for (uint k = 8u / n * f; k < 8u / n * (f + 1u); k++)
                            sum[r][e][k] += p * value.values[k];
                    }
                }
            }
        });
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) KS_UNROLL
    for (uint i = 0u; i < 8u * n_octets; i++) {
        const uint e = i / 8u, k = i % 8u;
        if constexpr (Rows::are_codes)
            sum[r][e][k] = sum[r][e][k] * (Rows::scale_down / reader.field_scale(k)) +
                           base[r][e][k * n / 8u] * (Rows::offset / Rows::scale_up);
    }
}

} // namespace ks
