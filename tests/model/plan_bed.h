// Shapes of models without files, and their plans.
#pragma once

#include "backends/reference/reference_backend.h"
#include "runtime/model/transformer.h"
#include "runtime/plan/plan.h"

#include <doctest/doctest.h>

#include <random>

namespace ks
{

inline const Family kFamily = {};

// A model's shape without a file. Only the sizes of the matrices matter.
struct Shape {
    Shape() = default;
    Shape(Shape&&) = default; // not copyable, because `parts` points into `tensors`
    Config config;
    std::vector<GgufTensor> tensors;
    std::vector<TensorPart> parts;
};

// Equal layers; five of six have a window, unless it is 0.
inline void set_layers(Config& c, uint32_t n_layers, uint32_t window)
{
    c.window = window;
    c.layers.assign(n_layers, {c.n_heads, c.n_kv_heads, c.head_dim, c.ffn_dim});
    for (uint32_t il = 0; il < n_layers; il++) c.layers[il].window = window && il % 6 < 5;
}

inline void set_head_dim(Config& c, uint32_t head_dim)
{
    c.head_dim = head_dim;
    for (LayerConfig& layer : c.layers) layer.head_dim = head_dim;
}

inline Shape random_shape(std::mt19937& rng)
{
    auto pick = [&](std::initializer_list<uint32_t> from) {
        return from.begin()[rng() % from.size()];
    };
    Shape s;
    Config& c = s.config;
    c.family = &kFamily;
    c.layers.resize(1 + rng() % 24);
    c.head_dim = pick({64, 80, 128, 256});
    c.n_kv_heads = pick({1, 2, 3, 8});
    c.n_heads = c.n_kv_heads * pick({1, 3, 4});
    c.dim = pick({256, 576, 1024});
    c.ffn_dim = pick({512, 1536, 4096});
    c.n_vocab = pick({300, 32001, 128256});
    c.n_context = pick({100, 2048, 32768, 1u << 20});
    c.rope.n_rot = c.head_dim;
    set_layers(c, c.n_layers(), pick({0, 16, 512, 4096}));
    s.tensors.reserve(2); // keeps the pointers in `parts` valid
    s.tensors.push_back(
        {"token_embd.weight", 2, {c.dim, c.n_vocab, 1, 1}, Format::q8_0, true, 8, 0, 0, 0, 0});
    s.tensors.push_back(
        {"blk.0.ffn_up.weight", 2, {c.dim, c.ffn_dim, 1, 1}, Format::q4_0, true, 2, 0, 0, 0, 0});
    s.parts.push_back({Role::token_embd, 0, &s.tensors[0], 0, c.n_vocab, c.dim});
    s.parts.push_back({Role::ffn_up, 0, &s.tensors[1], 0, c.ffn_dim, c.dim});
    return s;
}

// Heads of 256 values. window: of five of six layers, unless it is 0.
inline Shape wide_shape(uint32_t n_context, uint32_t n_layers, uint32_t window)
{
    std::mt19937 rng(8);
    Shape s = random_shape(rng);
    set_head_dim(s.config, s.config.rope.n_rot = 256);
    s.config.n_context = n_context;
    set_layers(s.config, n_layers, window);
    return s;
}

inline Plan plan_of(const Shape& s, const Backend& backend, const Recipe& recipe,
                    PlanRequest request)
{
    Result<Plan> plan = make_plan(s.config, s.parts, 123456, 4096, backend, recipe, request);
    REQUIRE(plan.ok());
    return plan.value();
}

} // namespace ks
