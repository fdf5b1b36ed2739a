// Two ways to run a small model: an independent forward pass in float64, and a model opened without
// a session.
#pragma once

#include "runtime/model/tensor_names.h"
#include "runtime/model/transformer.h"
#include "runtime/plan/plan.h"
#include "tests/model/tiny_model.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace ks
{

using Rows = std::vector<std::vector<double>>;

// A forward pass in float64 over the whole text, without cache and chunks, written from the
// formulas.
struct Naive {
    const TinyModel& m;
    const TinyShape& s;
    // StreamingLLM: the first and the last tokens, at their positions in the cache.
    size_t n_sinks = 0, n_slots = 0;

    const std::vector<float>& weight(const std::string& name) const
    {
        return m.tensors.at(name + ".weight");
    }

    std::vector<double> norm(const std::vector<double>& x, const std::string& name) const
    {
        const std::vector<float>& w = weight(name);
        std::vector<double> y(x.size());
        for (size_t at = 0; at < x.size(); at += w.size()) { // per head where w is shorter than x
            double sum = 0;
            for (size_t i = 0; i < w.size(); i++) sum += x[at + i] * x[at + i];
            for (size_t i = 0; i < w.size(); i++)
                y[at + i] = x[at + i] / std::sqrt(sum / double(w.size()) + 1e-5f) * w[i];
        }
        return y;
    }

    std::vector<double> linear(const std::vector<double>& x, const std::string& name) const
    {
        const std::vector<float>& w = weight(name);
        std::vector<double> y(w.size() / x.size());
        for (size_t r = 0; r < y.size(); r++)
            for (size_t i = 0; i < x.size(); i++) y[r] += w[r * x.size() + i] * x[i];
        return y;
    }

    std::vector<double> biased(std::vector<double> y, const std::string& name) const
    {
        const auto b = m.tensors.find(name + ".bias");
        for (size_t i = 0; b != m.tensors.end() && i < y.size(); i++) y[i] += b->second[i];
        return y;
    }

    void apply_rope(std::vector<double>& x, size_t position) const
    {
        size_t d = s.head_dim;
        for (size_t h = 0; h < x.size(); h += d)
            for (size_t i = 0; i < d / 2; i++) {
                double angle = double(position) * std::pow(10000.0, -2.0 * double(i) / double(d));
                double& u = x[h + (m.rope_neox() ? i : 2 * i)];
                double& v = x[h + (m.rope_neox() ? i + d / 2 : 2 * i + 1)];
                double first = u * std::cos(angle) - v * std::sin(angle);
                v = u * std::sin(angle) + v * std::cos(angle);
                u = first;
            }
    }

    // Keys and queries come without RoPE. RoPE uses positions in the cache, which count from 0.
    std::vector<double> attend_streaming(const Rows& q, const Rows& k, const Rows& v,
                                         size_t t) const
    {
        Rows keys, values;
        for (size_t j = 0; j <= t; j++) {
            if (j >= n_sinks && t - j >= n_slots - n_sinks) continue;
            std::vector<double> key = k[j];
            apply_rope(key, keys.size());
            keys.push_back(key);
            values.push_back(v[j]);
        }
        Rows queries(keys.size(), q[t]);
        apply_rope(queries.back(), keys.size() - 1);
        return attend(queries, keys, values, keys.size() - 1, 0);
    }

    std::vector<double> attend(const Rows& q, const Rows& k, const Rows& v, size_t t,
                               size_t window) const
    {
        size_t d = s.head_dim;
        std::vector<double> out(q[t].size());
        for (size_t h = 0; h < s.n_heads; h++) {
            size_t kv = h / (s.n_heads / s.n_kv_heads) * d;
            std::vector<double> weights;
            double sum = 0;
            for (size_t j = 0; j <= t; j++) {
                double logit = 0;
                for (size_t i = 0; i < d; i++)
                    logit += q[t][h * d + i] * k[j][kv + i] / std::sqrt(double(d));
                weights.push_back(window && t - j >= window ? 0.0 : std::exp(logit));
                sum += weights.back();
            }
            for (size_t j = 0; j <= t; j++)
                for (size_t i = 0; i < d; i++) out[h * d + i] += weights[j] / sum * v[j][kv + i];
        }
        return out;
    }

    void layer(Rows& x, uint32_t il) const
    {
        std::string p = "blk." + std::to_string(il) + ".";
        Rows q, k, v;
        for (size_t t = 0; t < x.size(); t++) {
            std::vector<double> h = norm(x[t], p + "attn_norm");
            q.push_back(biased(linear(h, p + "attn_q"), p + "attn_q"));
            k.push_back(biased(linear(h, p + "attn_k"), p + "attn_k"));
            v.push_back(linear(h, p + "attn_v"));
            if (m.gemma()) q[t] = norm(q[t], p + "attn_q_norm");
            if (m.gemma()) k[t] = norm(k[t], p + "attn_k_norm");
            if (n_slots) continue;
            apply_rope(q[t], t);
            apply_rope(k[t], t);
        }
        for (size_t t = 0; t < x.size(); t++) {
            bool local = m.gemma() && il % 6 < 5;
            std::vector<double> h = linear(n_slots ? attend_streaming(q, k, v, t)
                                                   : attend(q, k, v, t, local ? s.window : 0),
                                           p + "attn_output");
            if (m.gemma()) h = norm(h, p + "post_attention_norm");
            for (size_t i = 0; i < h.size(); i++) x[t][i] += h[i];
            h = norm(x[t], p + "ffn_norm");
            std::vector<double> gate = linear(h, p + "ffn_gate"), up = linear(h, p + "ffn_up");
            for (size_t i = 0; i < gate.size(); i++) {
                double g = gate[i];
                double act =
                    m.gemma()
                        ? g / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)))
                        : g / (1 + std::exp(-g));
                gate[i] = act * up[i];
            }
            h = linear(gate, p + "ffn_down");
            if (m.gemma()) h = norm(h, p + "post_ffw_norm");
            for (size_t i = 0; i < h.size(); i++) x[t][i] += h[i];
        }
    }

    Rows logits(const std::vector<uint32_t>& ids) const
    {
        Rows x;
        for (uint32_t id : ids) {
            std::vector<double> row;
            for (uint32_t i = 0; i < s.dim; i++)
                row.push_back(weight("token_embd")[id * s.dim + i] *
                              (m.gemma() ? std::sqrt(double(s.dim)) : 1.0));
            x.push_back(row);
        }
        for (uint32_t il = 0; il < s.n_layers; il++) layer(x, il);
        for (std::vector<double>& row : x) row = linear(norm(row, "output_norm"), "token_embd");
        return x;
    }
};

// A model put together from its parts, without a session.
struct Opened {
    Gguf gguf;
    std::unique_ptr<Backend> backend;
    Buffer buffer;
    std::vector<uint8_t> staging, step_host;
    Config config;
    Transformer model;
    Cache cache;

    std::vector<uint8_t> tables;

    // bias_in_codes: keys are stored with their bias, for comparison. lossless: f16 instead of
    // codes. given: a backend instead of `device`.
    Opened(const TinyModel& tiny, const char* device, uint32_t context, uint32_t chunk,
           Recipe recipe, bool bias_in_codes = false, bool lossless = false,
           std::unique_ptr<Backend> given = nullptr)
    {
        TempFile file("tiny.gguf", tiny.file);
        gguf = std::move(Gguf::open(file.path()).value());
        config = read_config(gguf).value();
        if (bias_in_codes) config.key_bias = false;
        std::vector<TensorPart> parts = bind_tensors(gguf, config).value();
        backend = given ? std::move(given) : std::move(open_backend({device, 2, nullptr}).value());
        std::vector<CacheLayerSpec> specs = cache_specs(config.model_shape(), recipe, context);
        for (CacheLayerSpec& spec : specs)
            if (lossless) spec.k = spec.v = Format::f16;
        const uint32_t slots = context;
        context = recipe.exact() ? context : 0;
        const uint64_t align = backend->align();
        const CacheBytes bytes = Cache::bytes_needed(specs, recipe, chunk, context, {{}, 0, align});
        const uint64_t cache_at = weights_bytes(parts, align);
        Placer counted{{}, cache_at + bytes.device, align}, placer = counted;
        Activations activations;
        StepInputs step;
        activations.place(config, recipe, chunk, counted);
        const uint64_t step_at = counted.offset;
        step.place(config, recipe, chunk, counted);
        const uint64_t scratch_at = counted.offset;
        tables.resize(bytes.host);
        buffer = backend
                     ->alloc(scratch_at +
                             backend->scratch_bytes(scratch_shape(config, recipe, slots, chunk)))
                     .value();
        backend->set_scratch(buffer, scratch_at, scratch_shape(config, recipe, slots, chunk));
        staging.resize(staging_bytes(parts, 2));
        step_host.resize(scratch_at - step_at);
        ThreadPool pool(2);
        pool.start();
        Result<Weights> weights =
            load_weights(gguf, config, parts, *backend, buffer, 0, {staging.data(), &pool});
        REQUIRE(weights.ok());
        cache.place(specs, recipe, chunk, context, *backend, {buffer, cache_at, tables.data()});
        cache.clear();
        placer.buffer = buffer;
        activations.place(config, recipe, chunk, placer);
        step.place(config, recipe, chunk, placer);
        model.open(config, weights.value(), cache, *backend, activations, step, step_host.data(),
                   chunk, context);
    }
    ~Opened() { backend->free(buffer); }

    std::vector<float> read(const uint32_t* ids, uint32_t n, uint32_t position)
    {
        Span span{&cache, nullptr, ids, n, position};
        REQUIRE(model.forward(&span, 1).ok());
        model.logits(n - 1, 1);
        std::vector<float> row(config.n_vocab);
        backend->download(row.data(), model.logits_tensor().buffer, model.logits_tensor().offset,
                          4ull * row.size());
        return row;
    }
};

inline double largest_difference(const std::vector<float>& got, const std::vector<double>& want)
{
    double worst = 0;
    for (size_t i = 0; i < want.size(); i++) worst = std::max(worst, std::abs(got[i] - want[i]));
    return worst;
}

} // namespace ks
