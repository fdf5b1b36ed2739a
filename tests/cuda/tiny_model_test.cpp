// A model of two layers decodes on the CUDA kernels as on reference: the same tokens, the same tokens held by every head, the same codes
// but where a value that differs in its last bit lies between two.
#include "tests/model/opened_model.h"

#include <cstdlib>

using namespace ks;

// Positions that every head of every layer holds.
static std::vector<std::vector<uint32_t>> held(const Opened& opened)
{
    std::vector<std::vector<uint32_t>> out;
    for (uint32_t il = 0; il < opened.model.cache().n_layers(); il++) {
        const CacheLayer& l = opened.model.cache().layer(il);
        for (uint32_t h = 0; l.held && h < l.spec.n_kv_heads; h++)
            out.emplace_back(l.positions + l.begin[h], l.positions + l.begin[h] + l.held[h]);
    }
    return out;
}

static std::vector<uint8_t> codes(const Opened& opened)
{
    std::vector<uint8_t> out;
    for (uint32_t il = 0; il < opened.model.cache().n_layers(); il++) {
        const KvSlots& slots = opened.model.cache().layer(il).slots;
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

TEST_CASE("cuda: a model decodes the tokens, victims and codes of reference")
{
    TinyShape shape;
    shape.dim = 128;
    shape.head_dim = 64;
    const TinyModel tiny = make_tiny_model(shape);
    std::vector<uint32_t> prompt;
    for (uint32_t i = 0; i < 70; i++) prompt.push_back((i * 91 + 5) % 256);
    for (const char* recipe : {"exact", "sink,slots=48", "h2o,slots=48,recent=16,k=turbo4,v=turbo3", "mix,slots=64,recent=16,k=q8,v=q4",
                               "keydiff,slots=48,recent=16,k=polar5,v=polar", "snapkv,slots=64,recent=16,k=turbo2,v=turbo2",
                               "h2o,slots=64,recent=16,victims=merge,select=tokenselect,read=32", "retain=all,k=kivi,v=kivi"}) {
        CAPTURE(recipe);
        const Recipe parsed = parse_recipe(recipe).value();
        const uint32_t slots = parsed.exact() || std::string(recipe).find("all") != std::string::npos ? 192 : 64;
        Opened one(tiny, "reference", slots, 35, parsed), other(tiny, "cuda:0", slots, 35, parsed);
        std::vector<float> a, b;
        for (uint32_t at = 0; at < 70; at += 35) {
            a = one.read(&prompt[at], 35, at);
            b = other.read(&prompt[at], 35, at);
        }
        for (uint32_t position = 70; position < 140; position++) {
            REQUIRE(top(a) == top(b));
            REQUIRE(held(one) == held(other));
            const uint32_t id = top(a);
            a = one.read(&id, 1, position);
            b = other.read(&id, 1, position);
        }
        const std::vector<uint8_t> x = codes(one), y = codes(other);
        REQUIRE(x.size() == y.size());
        size_t n_differ = 0;
        for (size_t i = 0; i < x.size(); i++) n_differ += x[i] != y[i];
        MESSAGE(n_differ << " of " << x.size() << " bytes of codes differ");
        CHECK(n_differ * 200 <= x.size());
    }
}
