// Compares a model of two layers on the CUDA kernels and on reference: both choose the same tokens
// and hold the same tokens in every head. Codes may differ if a value lies between two codes and
// differs in its last bit.
#include "backends/cuda/cuda_backend.h"
#include "backends/reference/reference_backend.h"
#include "tests/backends/op_harness.h"
#include "tests/model/opened_model.h"
#include "tests/sanitized.h"

#include <cstdlib>
#include <cstring>
#include <deque>

using namespace ks;

// The positions that every head of every layer holds.
static std::vector<std::vector<uint32_t>> held(const Opened& opened)
{
    std::vector<std::vector<uint32_t>> out;
    for (uint32_t il = 0; il < opened.cache.n_layers(); il++) {
        const CacheLayer& l = opened.cache.layer(il);
        for (uint32_t h = 0; l.held && h < l.spec.n_kv_heads; h++)
            out.emplace_back(l.positions + l.begin[h], l.positions + l.begin[h] + l.held[h]);
    }
    return out;
}

static std::vector<uint8_t> codes(const Opened& opened)
{
    std::vector<uint8_t> out;
    for (uint32_t il = 0; il < opened.cache.n_layers(); il++) {
        const KvSlots& slots = opened.cache.layer(il).kv;
        for (const Tensor* t : {&slots.coded_k, &slots.coded_v}) {
            if (!*t) continue;
            const size_t at = out.size();
            out.resize(at + coded_bytes(t->format, t->rows, t->cols));
            opened.backend->download(&out[at], t->buffer, t->offset, out.size() - at);
        }
    }
    return out;
}

static uint32_t top(const std::vector<float>& logits)
{
    return uint32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Reads a prompt in two chunks, then decodes 70 tokens.
static void check_equal(Opened& one, Opened& other)
{
    std::vector<uint32_t> prompt;
    for (uint32_t i = 0; i < 70; i++) prompt.push_back((i * 91 + 5) % 256);
    std::vector<float> a, b;
    for (uint32_t at = 0; at < 70; at += 35) {
        b = other.read(&prompt[at], 35, at);
        a = one.read(&prompt[at], 35, at);
    }
    for (uint32_t position = 70; position < 140; position++) {
        CAPTURE(position);
        REQUIRE(top(a) == top(b));
        REQUIRE(held(one) == held(other));
        const uint32_t id = top(a);
        b = other.read(&id, 1, position);
        a = one.read(&id, 1, position);
    }
    const std::vector<uint8_t> x = codes(one), y = codes(other);
    REQUIRE(x.size() == y.size());
    size_t n_differ = 0;
    for (size_t i = 0; i < x.size(); i++) n_differ += x[i] != y[i];
    MESSAGE(n_differ << " of " << x.size() << " bytes of codes differ");
    CHECK(n_differ * 200 <= x.size());
}

static uint32_t slots_for(const Recipe& recipe, const char* text)
{
    return recipe.exact() || std::string(text).find("all") != std::string::npos ? 192 : 64;
}

TEST_CASE("cuda: a model decodes the tokens, victims and codes of reference")
{
    TinyShape shape;
    shape.dim = 128;
    shape.head_dim = 64;
    const TinyModel tiny = make_tiny_model(shape);
    for (const char* recipe :
         {"exact", "sink,slots=48", "h2o,slots=48,recent=16,k=turbo4,v=turbo3",
          "mix,slots=64,recent=16,k=q8,v=q4", "keydiff,slots=48,recent=16,k=polar,v=polar",
          "snapkv,slots=64,recent=16,k=turbo2,v=turbo2",
          "h2o,slots=64,recent=16,victims=merge,select=tokenselect,read=32",
          "retain=all,k=kivi,v=kivi"}) {
        CAPTURE(std::string(recipe));
        const Recipe parsed = parse_recipe(recipe).value();
        const uint32_t slots = slots_for(parsed, recipe);
        Opened one(tiny, "reference", slots, 35, parsed), other(tiny, "cuda:0", slots, 35, parsed);
        check_equal(one, other);
    }
}

// Quantised weights are multiplied with int8 activations, which have one scale per 16 values.
// A value between two int8 values may be rounded to either if it differs in its last bit, and later
// layers amplify this difference. So the reference takes the device's int8 values, after a check
// that each is the reference's own value rounded up or down. The op harness bounds the error of the
// rounding itself.
using Rounded =
    std::deque<std::vector<float>>; // the activations of each product, as the device rounds them

class RecordingCuda : public CudaBackend
{
public:
    explicit RecordingCuda(Rounded* noted) : m_noted(noted) {}
    void matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                const Tensor& x) override
    {
        std::vector<float> values(uint64_t(a.n_tokens) * a.cols);
        download(values.data(), x.buffer, x.offset, 4 * values.size());
        for (size_t at = 0; at < values.size();
             // the same rounding as in quantize_kernel
             at += 16) {
            float most = 0;
            for (size_t i = at; i < at + 16; i++) most = std::max(most, std::fabs(values[i]));
            for (size_t i = at; i < at + 16; i++)
                values[i] =
                    most > 0 ? float(lrintf(values[i] * (127.f / most))) * (most / 127.f) : 0;
        }
        m_noted->push_back(std::move(values));
        CudaBackend::matmul(a, targets, n_targets, x);
    }

private:
    Rounded* m_noted;
};

class Int8Reference : public ReferenceBackend
{
public:
    explicit Int8Reference(Rounded* noted)
        : ReferenceBackend({"reference", 1, nullptr}), m_noted(noted)
    {
    }
    void matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                const Tensor& x) override
    {
        REQUIRE(!m_noted->empty());
        const std::vector<float> rounded = std::move(m_noted->front());
        m_noted->pop_front();
        REQUIRE(rounded.size() == uint64_t(a.n_tokens) * a.cols);
        for (size_t at = 0; at < rounded.size(); at += 16) {
            float most = 0;
            for (size_t i = at; i < at + 16; i++) most = std::max(most, std::fabs(x.ptr()[i]));
            for (size_t i = at; i < at + 16; i++)
                worst = std::max(worst,
                                 std::fabs(x.ptr()[i] - rounded[i]) * 127 / std::max(most, 1e-30f));
        }
        Buffer buffer = alloc(4 * rounded.size()).value();
        upload(buffer, 0, rounded.data(), 4 * rounded.size());
        Tensor bytes = x;
        bytes.buffer = buffer;
        bytes.offset = 0;
        for (int i = 0; i < n_targets; i++) {
            MatmulArgs one = a;
            one.rows = targets[i].w.rows;
            ReferenceBackend::matmul(one, &targets[i], 1,
                                     format_info(targets[i].w.format).block == 1 ? x : bytes);
        }
        free(buffer);
    }
    float worst = 0; // largest rounding error, in int8 steps

private:
    Rounded* m_noted;
};

// The formats of a file's matrices in llama.cpp's mixes: of most matrices, of the matrices with
// more bits, of the embeddings.
struct Mix {
    const char* name;
    Format most, finer, table;
};

static TinyModel quantised_model(const Mix& mix)
{
    TinyShape shape;
    shape.dim = 256;
    shape.ffn_dim = 512;
    shape.head_dim = 64;
    uint64_t seed = 0;
    shape.coded = [&](const std::string& name, uint64_t cols, uint64_t rows, float deviation,
                      Bytes* bytes) {
        const bool finer =
            name.find("attn_v") != std::string::npos || name.find("ffn_down") != std::string::npos;
        const Format format = name == "token_embd.weight" ? mix.table
                              : finer                     ? mix.finer
                                                          : mix.most;
        FileMatrix m = random_matrix(format, uint32_t(rows), uint32_t(cols), seed++);
        for (size_t at = 0; at < m.bytes.size(); at += format_info(format).block_bytes)
            set_scales(format, &m.bytes[at], deviation);
        bytes->assign(m.bytes.begin(), m.bytes.end());
        return format_info(format).ggml_type;
    };
    return make_tiny_model(shape);
}

TEST_CASE(
    "cuda: a model in the formats of files decodes the tokens, victims and codes of reference")
{
    for (const Mix& mix : {Mix{"Q4_K_M", Format::q4_k, Format::q6_k, Format::q6_k},
                           Mix{"Q8_0", Format::q8_0, Format::q8_0, Format::q8_0},
                           Mix{"IQ4_XS", Format::iq4_xs, Format::q5_k, Format::q6_k},
                           Mix{"Q4_0", Format::q4_0, Format::q4_1, Format::q8_0},
                           Mix{"Q3_K_M", Format::q3_k, Format::q5_0, Format::q2_k},
                           Mix{"IQ2_M", Format::iq2_s, Format::iq3_s, Format::iq3_xxs},
                           Mix{"IQ2_XXS", Format::iq2_xxs, Format::mxfp4, Format::iq2_xs},
                           Mix{"Q1_0", Format::q1_0, Format::q2_0, Format::q1_0},
                           Mix{"TQ1_0", Format::tq1_0, Format::tq2_0, Format::nvfp4},
                           Mix{"IQ1_M", Format::iq1_m, Format::iq1_s, Format::q4_k}}) {
        if (kSanitized && mix.most != Format::q4_k) continue;
        const TinyModel tiny = quantised_model(mix);
        for (const char* recipe :
             {"exact", "h2o,slots=48,recent=16,k=turbo4,v=turbo3",
              "mix,slots=64,recent=16,k=q8,v=q4",
              "h2o,slots=64,recent=16,victims=merge,select=tokenselect,read=32",
              "retain=all,k=kivi,v=polar"}) {
            CAPTURE(std::string(mix.name));
            // The reference takes long to look up the values of a grid.
            if (mix.finer >= Format::iq2_xxs && strcmp(recipe, "exact") != 0) continue;
            CAPTURE(std::string(recipe));
            const Recipe parsed = parse_recipe(recipe).value();
            const uint32_t slots = slots_for(parsed, recipe);
            Rounded noted;
            auto cuda = std::make_unique<RecordingCuda>(&noted);
            REQUIRE(cuda->open(find_cuda_devices()[0]).ok());
            Opened other(tiny, "", slots, 35, parsed, false, false, std::move(cuda));
            Opened one(tiny, "", slots, 35, parsed, false, false,
                       std::make_unique<Int8Reference>(&noted));
            check_equal(one, other);
            const float worst = static_cast<Int8Reference*>(one.backend.get())->worst;
            MESSAGE("values are up to " << worst << " steps from their int8 values");
            CHECK(worst > 0.49f);
            CHECK(worst < 1);
        }
    }
}
