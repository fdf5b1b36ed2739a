// attention and kv_score in prefill and decode: head sizes, formats, rings, windows, pinned tokens,
// tables, staged chunks, log-weights, coded pools, keys without the model's bias.
#include "tests/backends/attention_cases.h"

#include <cstdlib>
#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("attention: tables, staged chunks, pinned tokens, log-weights")
{
    std::vector<AttentionShape> shapes;
    for (uint32_t n_tokens : {1u, 2u, 5u, 40u, 130u}) {
        shapes.push_back(with_table(shape(n_tokens, 100, 6, 2, 64, 300)));
        shapes.push_back(with_table(with_stage(shape(n_tokens, 200, 6, 2, 64, 200), 130),
                                    13)); // a full table; heads hold different numbers of tokens
        shapes.push_back(with_weights(with_table(shape(n_tokens, 150, 6, 2, 64, 300))));
        shapes.push_back(
            with_weights(with_table(with_stage(shape(n_tokens, 200, 3, 1, 80, 200), 130))));
        shapes.push_back(with_stage(shape(n_tokens, 1000, 3, 1, 64, 150, 146, 4),
                                    140)); // pinned sinks and a ring of recent tokens
        shapes.push_back(with_stage(shape(n_tokens, 300, 4, 2, 256, 128, 128),
                                    140)); // the ring of a window layer
        shapes.push_back(with_stage(shape(n_tokens, 140, 4, 2, 64, 140, 70, 70),
                                    140)); // many pinned, not wrapped yet
        shapes.push_back(
            with_clamped(with_stage(shape(n_tokens, 1000, 3, 1, 64, 150, 146, 4), 140), 4));
        shapes.push_back(with_clamped(with_table(shape(n_tokens, 150, 6, 2, 80, 300)), 70));
        shapes.push_back(with_codes(with_table(shape(n_tokens, 150, 6, 2, 64, 170)), 4, 140, 150));
        shapes.push_back(with_clamped(
            with_weights(with_codes(with_table(with_stage(shape(n_tokens, 260, 3, 1, 80, 60), 130)),
                                    20, 220, 210)),
            20));
    }
    shapes.push_back(shape(1, 5000, 4, 2, 64, 100, 96, 4)); // a single token overwrites the oldest
    shapes.push_back(shape(1, 3, 4, 2, 64, 100, 96, 4));
    shapes.push_back(shape(3, 2, 4, 2, 64, 100, 96, 4));
    shapes.push_back(shape(1, 700, 4, 2, 64, 420, 220, 200)); // more than a group pinned
    shapes.push_back(with_stage(shape(90, 700, 4, 2, 64, 420, 220, 200), 90));
    std::vector<OpCase> cases;
    for (AttentionShape s : shapes) {
        cases.push_back(make_case(s));
        s.k = s.coded_k = Format::f32;
        cases.push_back(make_case(s));
    }
    check_ops("attention", cases);
}

// Query heads per KV head. In decode, the kernels read codes in other ways for one to four.
static std::vector<uint32_t> groups_of(uint32_t n_tokens)
{
    return n_tokens == 1 ? std::vector<uint32_t>{1, 2, 3, 4} : std::vector<uint32_t>{3};
}

TEST_CASE("attention: slots in coded pools")
{
    const Format codecs[][2] = {{Format::q8, Format::q8},         {Format::turbo4, Format::turbo3},
                                {Format::polar, Format::q4},      {Format::turbo3, Format::polar},
                                {Format::polar, Format::turbo2v}, {Format::turbo2, Format::f16},
                                {Format::turbo4, Format::polar},  {Format::q4, Format::turbo4},
                                {Format::kiviv, Format::q8}};
    std::vector<OpCase> cases;
    for (const auto& codec : codecs)
        for (uint32_t d : {64u, 80u, 128u, 192u, 256u})
            for (uint32_t n : {1u, 5u, 40u})
                for (uint32_t group : groups_of(n)) {
                    const AttentionShape staged =
                        with_table(with_stage(shape(n, 260, group, 1, d, 60), 130));
                    for (AttentionShape s :
                         {with_codes(with_table(shape(n, 150, 2 * group, 2, d, 170)), 4, 140, 150),
                          with_clamped(with_weights(with_codes(staged, 20, 220, 210)), 20)})
                        cases.push_back(make_case(with_codecs(s, codec[0], codec[1])));
                }
    check_ops("attention", cases);
}

// Fewer coded slots than splits, so some splits are empty. Plain slots follow the coded ones.
TEST_CASE("attention: few coded slots")
{
    std::vector<OpCase> cases;
    for (Format format : all_codecs())
        for (uint32_t d : {64u, 128u, 256u})
            for (uint32_t group : {1u, 4u})
                for (uint32_t n_coded : {1u, 2u, 3u}) {
                    const AttentionShape s = with_table(shape(1, 300, group, 1, d, 300));
                    const Format keys = codec_info(format).group == 1 && format != Format::kiviv
                                            ? format
                                            : Format::q8;
                    cases.push_back(
                        make_case(with_codecs(with_codes(s, 4, 4 + n_coded, 8), keys, format)));
                }
    check_ops("attention", cases);
}

// Several rounds per split: kernels use prefetched rows and carry the running maximum over.
TEST_CASE("attention: many coded slots")
{
    const Format codecs[][2] = {{Format::q8, Format::q4},
                                {Format::turbo4, Format::turbo3},
                                {Format::polar, Format::polar},
                                {Format::kivi, Format::kiviv}};
    std::vector<OpCase> cases;
    for (const auto& codec : codecs)
        for (uint32_t d : {64u, 128u, 256u}) {
            AttentionShape s =
                with_codecs(with_codes(with_table(shape(1, 2600, 3, 1, d, 80)), 4, 2564, 2560),
                            codec[0], codec[1]);
            cases.push_back(make_case(s));
            if (d < 256) cases.push_back(make_case(without_key_bias(s, 64, rope_neox)));
            s.size = 8; // the running maximum changes
            cases.push_back(make_case(with_weights(s)));
        }
    check_ops("attention", cases);
}

// The scratch holds few dequantised slots, so prefill dequantises in rounds. Some queries see only
// part of the slots of a round, or none.
TEST_CASE("attention: prefill over coded slots in rounds")
{
    const Format codecs[][2] = {{Format::turbo4, Format::q8},
                                {Format::polar, Format::f16},
                                {Format::f16, Format::q4},
                                {Format::kivi, Format::kiviv}};
    std::vector<AttentionShape> shapes;
    uint32_t nth = 0;
    for (uint32_t d : {64u, 128u})
        for (uint32_t n : {40u, 130u}) {
            const AttentionShape held =
                with_codes(with_table(shape(n, 700, 4, 2, d, 230), 20), 4, 676, 704);
            const AttentionShape staged =
                with_codes(with_table(with_stage(shape(n, 892, 3, 1, d, 60), 130)), 20, 852, 864);
            for (const AttentionShape& s :
                 {held, with_clamped(with_weights(staged), 20),
                  without_key_bias(with_weights(held), 64, rope_interleaved)})
                shapes.push_back(with_codecs(s, codecs[nth % 4][0], codecs[nth % 4][1])), nth++;
            AttentionShape band = with_stage(shape(n, 1000, 3, 1, d, 400, 396, 4), 140),
                           ring = shape(n, 300, 4, 2, d, 500, 130);
            band.k = ring.v = Format::f32;
            shapes.insert(shapes.end(), {band, with_clamped(band, 4), ring});
        }
    std::vector<OpCase> cases;
    for (AttentionShape& s : shapes) {
        s.small_scratch = true;
        cases.push_back(make_case(s));
    }
    check_ops("attention", cases);
}

// A table lists the rows of a code group in order, and the groups in any order.
TEST_CASE("attention: keys in group codecs")
{
    const Format codecs[][2] = {{Format::kivi, Format::kiviv},
                                {Format::kivi2, Format::kiviv},
                                {Format::kivi, Format::turbo4}};
    std::vector<OpCase> cases, scores;
    uint32_t nth = 0;
    for (uint32_t d : {64u, 80u, 96u, 128u, 256u})
        for (uint32_t n : {1u, 5u, 40u})
            for (uint32_t group : groups_of(n)) {
                const AttentionShape staged =
                    with_table(with_stage(shape(n, 260, group, 1, d, 60), 130));
                for (AttentionShape s :
                     {with_codes(with_table(shape(n, 150, 2 * group, 2, d, 170)), 4, 132, 160),
                      with_clamped(with_codes(staged, 20, 244, 224),
                                   nth % 2 ? 20 : 75), // up to the first group, or into a group
                      without_key_bias(
                          with_codes(with_table(shape(n, 190, 2 * group, 2, d, 150)), 3, 99, 128),
                          64, rope_neox)}) {
                    s = with_codecs(s, codecs[nth % 3][0], codecs[nth % 3][1]);
                    cases.push_back(make_case(s));
                    scores.push_back(score_case(s, {n / 2, score_sum, 0, 0.9f}));
                    nth++;
                }
                nth++; // shifts the pairs of shapes and codecs
            }
    check_ops("attention", cases);
    check_ops("kv_score", scores);
}

static void check_without_bias(const std::vector<uint32_t>& tokens)
{
    std::vector<OpCase> cases, scores;
    for (uint32_t n_tokens : tokens) {
        for (AttentionShape s :
             {without_key_bias(
                  with_codes(with_table(shape(n_tokens, 150, 6, 2, 64, 170), 5), 4, 140, 150), 64,
                  rope_neox),
              without_key_bias(with_table(shape(n_tokens, 90, 14, 2, 64, 300)), 64, rope_neox),
              without_key_bias(
                  with_codes(with_table(with_stage(shape(n_tokens, 260, 3, 1, 80, 60), 130)), 20,
                             220, 210),
                  80, rope_interleaved),
              without_key_bias(with_table(shape(n_tokens, 90, 3, 1, 80, 300)), 32, rope_neox),
              without_key_bias(with_table(shape(n_tokens, 90, 3, 1, 80, 300)), 20,
                               rope_interleaved),
              without_key_bias(
                  with_clamped(with_weights(with_codes(
                                   with_table(with_stage(shape(n_tokens, 260, 3, 1, 128, 60), 130)),
                                   20, 220, 210)),
                               20),
                  128, rope_neox)}) {
            cases.push_back(make_case(s));
            s.coded_k = Format::turbo4;
            if (s.n_coded) cases.push_back(make_case(s));
            if (!s.weighted) scores.push_back(score_case(s, {n_tokens / 2, score_sum, 0, 0.9f}));
        }
    }
    check_ops("attention", cases);
    check_ops("kv_score", scores);
}

TEST_CASE("attention: keys without their bias")
{
    check_without_bias({1, 3});
}

TEST_CASE("attention: keys without their bias in long chunks")
{
    check_without_bias({40, 130});
}

TEST_CASE("kv_score")
{
    std::vector<OpCase> cases;
    for (uint32_t n_tokens : {1u, 3u, 40u, 130u}) {
        for (AttentionShape s :
             {with_table(shape(n_tokens, 100, 6, 2, 64, 300)),
              with_table(with_stage(shape(n_tokens, 200, 9, 3, 64, 200), 130), 13),
              with_weights(with_table(with_stage(shape(n_tokens, 200, 4, 2, 80, 200), 130))),
              with_stage(shape(n_tokens, 1000, 3, 1, 64, 150, 146, 4), 140),
              shape(n_tokens, 10, 8, 1, 64),
              with_clamped(
                  with_codes(with_table(with_stage(shape(n_tokens, 200, 6, 2, 64, 50), 130)), 20,
                             180, 160),
                  20)}) {
            const uint32_t half = n_tokens / 2;
            for (const KvScoreArgs& score : {KvScoreArgs{0, score_sum, score_decays, 1},
                                             KvScoreArgs{half, score_sum, score_clears, 1},
                                             KvScoreArgs{0, score_sum, score_decays, 0.9f},
                                             KvScoreArgs{0, score_sum, score_adds, 0.9f},
                                             KvScoreArgs{half, score_below, score_decays, 1}})
                cases.push_back(score_case(s, score));
        }
    }
    check_ops("kv_score", cases);
}

TEST_CASE("attention: head sizes and groups")
{
    std::vector<OpCase> cases;
    for (uint32_t head_dim : {64u, 80u, 96u, 128u, 256u, 512u, 576u}) {
        cases.push_back(make_case(shape(1, 0, 2, 1, head_dim)));
        cases.push_back(make_case(shape(1, 100, 4, 2, head_dim)));
        cases.push_back(make_case(shape(37, 0, 4, 1, head_dim)));
    }
    for (uint32_t group = 1; group <= 8; group++) {
        cases.push_back(make_case(shape(1, 70, 2 * group, 2, 64)));
        cases.push_back(make_case(shape(9, 21, 3 * group, 3, 64)));
    }
    for (uint32_t n_heads : {96u, 97u, 130u}) // of one key: as many as the rows of a CPU's tile
        for (uint32_t n : {1u, 5u}) cases.push_back(make_case(shape(n, 70, n_heads, 1, 576)));
    check_ops("attention", cases);
}

TEST_CASE("attention: values in the rows of keys")
{
    std::vector<OpCase> cases;
    for (uint32_t d : {40u, 64u, 128u, 576u})
        for (uint32_t n : {1u, 3u, 21u}) {
            cases.push_back(make_case(with_values_in_keys(shape(n, 90, 5, 1, d))));
            cases.push_back(make_case(
                with_values_in_keys(with_table(with_stage(shape(n, 100, 20, 1, d, 100), 21)))));
            if (d == 576) cases.push_back(make_case(with_values_in_keys(shape(n, 30, 130, 1, d))));
            if (d % 16 != 0) continue;
            AttentionShape s = with_codes(with_table(shape(n, 150, 16, 1, d, 170)), 4, 140, 150);
            s.a.n_clamped = n == 3 ? 4 : 0;
            cases.push_back(make_case(with_values_in_keys(with_codecs(s, Format::q8, Format::q8))));
        }
    check_ops("attention", cases);
}

TEST_CASE("attention: contexts, windows and rings")
{
    std::vector<OpCase> cases;
    for (uint32_t first : {0u, 1u, 6u, 7u, 8u, 15u, 31u, 63u, 64u, 255u, 1000u})
        cases.push_back(make_case(shape(1, first, 4, 2, 64)));
    cases.push_back(make_case(shape(3, 50, 4, 2, 64, 200)));  // more slots than positions
    cases.push_back(make_case(shape(130, 0, 3, 1, 64)));      // a long chunk
    cases.push_back(make_case(shape(64, 300, 3, 1, 64)));     // a later chunk
    cases.push_back(make_case(shape(1, 64, 2, 1, 64, 64)));   // a ring that wrapped by one
    cases.push_back(make_case(shape(1, 1037, 2, 1, 64, 48))); // a ring that wrapped many times
    cases.push_back(
        make_case(shape(10, 500, 4, 2, 64, 48))); // overwritten rows are masked for all queries
    cases.push_back(make_case(shape(48, 96, 2, 1, 64, 48)));  // a chunk as long as the ring
    cases.push_back(make_case(shape(1, 90, 4, 1, 64, 0, 1))); // windows
    cases.push_back(make_case(shape(1, 90, 4, 1, 64, 0, 32)));
    cases.push_back(make_case(shape(1, 10, 4, 1, 64, 0, 32))); // not full yet
    cases.push_back(make_case(shape(50, 0, 4, 1, 64, 0, 13)));
    cases.push_back(make_case(shape(16, 700, 4, 1, 64, 80, 64))); // a ring of window and chunk
    cases.push_back(make_case(shape(16, 704, 4, 1, 64, 79, 64))); // the smallest such ring
    cases.push_back(make_case(shape(1, 705, 4, 1, 256, 80, 64)));
    cases.push_back(make_case(shape(16, 700, 4, 1, 64, 40, 64))); // a ring smaller than its window
    cases.push_back(
        make_case(shape(80, 30000, 1, 1, 64))); // more slots than one loop of a shader covers
    check_ops("attention", cases);
}

TEST_CASE("attention: cache formats and steep logits")
{
    std::vector<OpCase> cases;
    for (Format k : {Format::f16, Format::f32}) {
        for (Format v : {Format::f16, Format::f32}) {
            for (AttentionShape s : {shape(1, 77, 6, 2, 64), shape(11, 30, 4, 4, 80, 0, 9)}) {
                s.k = k;
                s.v = v;
                for (float size : {0.f, 1.f, 30.f}) { // 0: equal probabilities, 30: nearly one-hot
                    s.size = size;
                    cases.push_back(make_case(s));
                }
            }
        }
    }
    check_ops("attention", cases);
}

TEST_CASE("attention: times")
{
    if (!getenv("KS_PERF")) return;
    std::vector<OpCase> cases;
    for (uint32_t first : {511u, 4095u, 32767u}) {
        cases.push_back(make_case(shape(1, first, 9, 3, 64), true));
        cases.push_back(make_case(shape(1, first, 4, 1, 256), true));
        cases.push_back(make_case(shape(1, first, 32, 8, 128), true));
    }
    for (uint32_t first : {0u, 1792u}) {
        cases.push_back(make_case(shape(256, first, 9, 3, 64), true));
        cases.push_back(make_case(shape(256, first, 4, 1, 256), true));
        cases.push_back(make_case(shape(256, first, 32, 8, 128), true));
    }
    cases.push_back(make_case(shape(256, 4096, 4, 1, 256, 768, 512), true));
    check_ops("attention", cases);
}
