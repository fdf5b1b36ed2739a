// A cache of one layer without a model. Tests feed random queries, keys and values and look at the
// tokens that keep a slot.
#pragma once

#include "runtime/base/rng.h"
#include "runtime/kv/cache.h"
#include "tests/devices.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <memory>

namespace ks
{

struct BedShape {
    uint32_t n_heads = 4, n_kv_heads = 2, head_dim = 16;
    const char* format = "f32";  // of keys and values; empty: the recipe's
    bool lossless = false;       // the coded pool is f16, whatever the recipe's codecs
    bool local = false;          // a coded layer with the model's own window
    uint32_t n_readers = 1;      // layers of a model that attend to the layer
    bool values_in_keys = false; // a row is both key and value

    uint32_t group() const { return n_heads / n_kv_heads; }
};

// One layer on one device.
struct Bed {
    Recipe recipe;
    BedShape shape;
    std::unique_ptr<Backend> backend;
    Buffer buffer;
    std::vector<uint8_t> tables;
    Cache cache;
    Tensor q, k, v, y;
    uint32_t n_seen = 0;
    bool q_clamped = false; // attention gets clamped queries too, equal to the others

    Bed(const std::string& text, uint32_t n_rows, uint32_t chunk,
        const std::string& device = "reference", int n_threads = 2, BedShape s = {})
        : recipe(
              parse_recipe(*s.format ? text + ",k=" + s.format + ",v=" + s.format : text).value()),
          shape(s)
    {
        backend = std::move(open_backend({device, n_threads, nullptr}).value());
        place(layer_spec(n_rows), n_rows, chunk);
        upload_rope_table();
    }
    ~Bed() { backend->free(buffer); }
    Bed(const Bed&) = delete;

    // The RoPE angle of pair i at a position.
    double angle(uint32_t position, uint32_t i) const
    {
        return position * std::pow(10000.0, -2.0 * i / shape.head_dim);
    }

    void hadamard(const Tensor& t, uint32_t n)
    {
        const uint32_t d = shape.head_dim;
        const RopeTarget target{{n, t.cols / d, d, 0, 0, 0, 1}, t, t, {}};
        backend->rope(&target, 1);
    }

    // Writes like a model, with the Hadamard transform for codecs that need it.
    void write(uint32_t n)
    {
        const CacheLayerSpec& spec = cache.layer(0).spec;
        if (spec.hadamard_keys()) hadamard(k, n);
        if (spec.hadamard_values()) hadamard(v, n);
        cache.write(k, shape.values_in_keys ? Tensor() : v);
    }

    // queries: those of all readers, one reader after the other, like the result.
    std::vector<float> feed(const std::vector<float>& queries, const std::vector<float>& keys,
                            const std::vector<float>& values)
    {
        const uint32_t n = uint32_t(keys.size() / (shape.n_kv_heads * shape.head_dim));
        std::vector<float> out(queries.size());
        backend->upload(buffer, k.offset, keys.data(), 4 * keys.size());
        backend->upload(buffer, v.offset, values.data(), 4 * values.size());
        for (size_t at = 0; at < out.size(); at += n * q.cols) {
            cache.begin_layer(0, n, n_seen);
            if (at == 0) write(n);
            backend->upload(buffer, q.offset, &queries[at], 4ull * n * q.cols);
            if (cache.layer(0).spec.hadamard_keys()) hadamard(q, n);
            cache.attend(y, {q, q_clamped ? q : Tensor()}, 1, 0);
            cache.end_layer();
            backend->download(&out[at], buffer, y.offset, 4ull * n * y.cols);
        }
        n_seen += n;
        return out;
    }
    std::vector<uint32_t> positions(uint32_t head) const
    {
        const CacheLayer& l = cache.layer(0);
        return std::vector<uint32_t>(l.positions + l.begin[head],
                                     l.positions + l.begin[head] + l.held[head]);
    }

private:
    CacheLayerSpec layer_spec(uint32_t n_rows) const
    {
        const BedShape& s = shape;
        CacheLayerSpec spec{s.n_heads, s.n_kv_heads,   s.head_dim,     n_rows, 0,
                            0,         recipe.codes(), !recipe.exact()};
        if (!recipe.exact() && !recipe.is_ring()) spec.table = true;
        if (recipe.ropes_on_read()) spec.table = true;
        if (recipe.selects()) spec.table = true, spec.n_read = recipe.read_slots();
        auto codec = [&](Format wanted) { return s.lossless ? Format::f16 : wanted; };
        if (recipe.codes())
            spec.code_slots(s.local ? recipe.for_window_layer() : recipe, codec(recipe.k),
                            codec(recipe.v));
        if (s.local)
            spec.table = spec.local = true, spec.bounded = false,
            spec.window = n_rows + 1 - recipe.for_window_layer().delta_of(n_rows);
        if (recipe.is_ring()) spec.n_pinned = recipe.sink, spec.window = n_rows - recipe.sink;
        if (recipe.ropes_on_read()) spec.n_rope_on_read = s.head_dim, spec.pairs = rope_neox;
        spec.n_readers = s.n_readers;
        spec.values_in_keys = s.values_in_keys;
        return spec;
    }
    // One buffer holds the cache, the scratch and the tensors of a chunk.
    void place(const CacheLayerSpec& spec, uint32_t n_rows, uint32_t chunk)
    {
        const BedShape& s = shape;
        const uint32_t most = n_rows * s.n_kv_heads;
        const ScratchShape scratch{chunk,      64,   s.n_heads, s.n_kv_heads,
                                   s.head_dim, most, most,      most};
        const CacheBytes bytes =
            Cache::bytes_needed({spec}, recipe, chunk, 0, {{}, 0, backend->align()});
        const uint64_t scratch_at = bytes.device,
                       inputs_at = scratch_at + backend->scratch_bytes(scratch);
        Placer inputs{{}, inputs_at, backend->align()};
        for (int pass = 0; pass < 2; pass++) {
            inputs.offset = inputs_at;
            q = inputs.take(chunk, s.n_heads * s.head_dim);
            k = inputs.take(chunk, s.n_kv_heads * s.head_dim);
            v = inputs.take(chunk, s.n_kv_heads * s.head_dim);
            y = inputs.take(chunk, s.n_heads * s.head_dim);
            if (pass == 0) inputs.buffer = buffer = backend->alloc(inputs.offset).value();
        }
        backend->set_scratch(buffer, scratch_at, scratch);
        tables.resize(bytes.host + 1);
        cache.place({spec}, recipe, chunk, 0, *backend, {buffer, 0, tables.data()});
        cache.clear();
    }
    void upload_rope_table()
    {
        const Tensor& rope_table = cache.rope_table();
        std::vector<float> angles;
        for (uint32_t i = 0; i < rope_table.rows * rope_table.cols; i++)
            angles.push_back(
                float(i % 2 ? std::sin(angle(i / rope_table.cols, i % rope_table.cols / 2))
                            : std::cos(angle(i / rope_table.cols, i % rope_table.cols / 2))));
        if (rope_table)
            backend->upload(buffer, rope_table.offset, angles.data(), 4 * angles.size());
    }
};

// Tokens of a text: queries, keys and values, the same for every cache that reads it.
struct Text {
    uint64_t seed;
    BedShape shape{};
    std::vector<float> row(uint32_t token, uint32_t what, uint32_t n) const
    {
        std::vector<float> out;
        for (uint32_t i = 0; i < n; i++) {
            double sum = -6; // nearly normal
            for (uint64_t k = 0; k < 12; k++)
                sum += random_uniform(seed, ((uint64_t(token) * 4 + what) * 4096 + i) * 12 + k);
            out.push_back(float(sum));
        }
        return out;
    }
    std::vector<float> query(uint32_t token) const
    {
        return row(token, 0, shape.n_heads * shape.head_dim);
    }
    std::vector<float> key(uint32_t token) const
    {
        return row(token, 1, shape.n_kv_heads * shape.head_dim);
    }
    std::vector<float> value(uint32_t token) const
    {
        return row(token, 2, shape.n_kv_heads * shape.head_dim);
    }
    std::vector<float> read(Bed& bed, uint32_t from, uint32_t n) const
    {
        std::vector<float> rows[3];
        for (uint32_t t = from; t < from + n; t++) {
            const std::vector<float> one[3] = {query(t), key(t), value(t)};
            for (int what = 0; what < 3; what++)
                rows[what].insert(rows[what].end(), one[what].begin(), one[what].end());
        }
        return bed.feed(rows[0], rows[1], rows[2]);
    }
};

} // namespace ks
