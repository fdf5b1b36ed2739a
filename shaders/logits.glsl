// Logits of slots. A thread has one slot's key and some of the workgroup's queries, which lie in
// shared memory. With GENERAL and the bits of `flags` (slots.glsl), RoPE is applied to keys as they
// are read, or the bias that stored keys lack is added to logits.
// The includer declares the args `a` and `pass`, the constants k_format, head_dim and flags, and
// the buffers.
const uint stride = (head_dim + 7u) / 8u * 8u; // of a query in shared memory
// Queries of a workgroup.
const uint n_rows = head_dim <= 64u    ? 16u
                    : head_dim <= 128u ? 8u
                    : head_dim <= 256u ? 4u
                    : head_dim <= 512u ? 2u
                                       : 1u;
const uint n_slots = 32u; // of a tile
const uint n_queries_each = n_rows > 4u ? n_rows / 4u : 1u; // queries of a thread

float query_value(uint i) { return uintBitsToFloat(Q_WORD(i)); }

#ifdef GENERAL
// (2, n_rows, stride): queries after RoPE by their index, then their products with the bias.
shared float queries[n_rows * stride * 2u];

// One value of the pair (u, v) after RoPE.
float rope_one(float u, float v, uint index, uint pair, bool second)
{
    float c = angles[index * a.n_rope_on_read + 2u * pair],
          s = angles[index * a.n_rope_on_read + 2u * pair + 1u];
    return second ? u * s + v * c : u * c - v * s;
}

// The dim of the other value of d's pair.
uint partner(uint d)
{
    uint pair = pair_of(a.pairs, d, a.n_rope_on_read);
    return is_second(a.pairs, d, a.n_rope_on_read)
               ? first_of_pair(a.pairs, pair)
               : second_of_pair(a.pairs, pair, a.n_rope_on_read);
}

float rope_value(uint d, float own, float other, uint index)
{
    bool second = is_second(a.pairs, d, a.n_rope_on_read);
    return rope_one(second ? other : own, second ? own : other, index,
                    pair_of(a.pairs, d, a.n_rope_on_read), second);
}

float key_value(uint r, uint tail, uint d)
{
    return d < head_dim ? row_value(k_format, r, tail, d, head_dim) : 0.f;
}

// The logit of a product of query and key.
float logit_of(float product)
{
    return has_softcap ? softcapped(product * a.scale, a.softcap) : product * a.scale;
}

// Adds the products of queries [first_row, first_row + n_queries_each) with the bias of a key at
// this position. The angle of a position is the sum of the angles of its digits
// (kernels/common/args.h).
void add_bias(uint position, uint first_row, inout float product[4])
{
    for (uint pair = 0u; pair < a.n_bias_dims / 2u; pair++) {
        float c = 1.f, s = 0.f;
        uint rest = position;
        for (uint digit = 0u; digit < phasor_digits; digit++, rest /= phasor_base) {
            uint at = (phasor_base * digit + rest % phasor_base) * a.n_bias_dims + pair;
            float dc = angles[at], ds = angles[at + a.n_bias_dims / 2u], c_before = c;
            c = c * dc - s * ds;
            s = c_before * ds + s * dc;
        }
        uint first = phasor_dim(pair, a.n_bias_dims, a.pairs),
             second = phasor_dim(a.n_bias_dims / 2u + pair, a.n_bias_dims, a.pairs);
        [[unroll]] for (uint j = 0u; j < n_queries_each; j++) {
            uint at = n_rows * stride + min(first_row + j, n_rows - 1u) * stride;
            product[j] += queries[at + first] * c + queries[at + second] * s;
        }
    }
}
#else
float logit_of(float product) { return product * a.scale; }
// attention's end_octets keeps 8 values of each thread here.
shared float queries[n_rows * stride < 8u * n_threads ? 8u * n_threads : n_rows * stride];
#endif

// Reads queries [first, first + n) of a KV head into shared memory. A query is (token, head of the
// group). before: tokens before the first one.
void read_queries(uint head, uint group, uint first, uint n, uint before)
{
    for (uint i = THREAD; i < n * stride; i += n_threads) {
        uint query = first + i / stride, t = query / group, d = i % stride;
        queries[i] = 0.f;
#ifdef GENERAL
        if (has_bias) queries[n_rows * stride + i] = 0.f;
#endif
        if (d >= head_dim) continue;
        uint at = (t * a.n_heads + head * group + query % group) * head_dim;
        queries[i] = query_value(at + d);
#ifdef GENERAL
        if (has_rope_on_read && d < a.n_rope_on_read)
            queries[i] = rope_value(d, queries[i], query_value(at + partner(d)), before + t);
        if (has_bias)
            queries[n_rows * stride + i] = query_value(a.n_tokens * a.n_heads * head_dim + at + d);
#endif
    }
}

// The products of row r's key with queries [first_row, first_row + n_queries_each), as far as they
// are below n. index: of the slot.
void dot_queries(uint r, Slots s, uint index, uint first_row, uint n, out float product[4])
{
    [[unroll]] for (uint j = 0u; j < 4u; j++) product[j] = 0.f;
    uint tail = row_tail(k_format, pass.pool_rows, r, head_dim);
    for (uint d = 0u; d < stride; d += 8u) {
        float key[8];
        row_octet(k_format, r, tail, d, head_dim, false, key);
#ifdef GENERAL
        if (has_rope_on_read)
            [[unroll]] for (uint i = 0u; i < 8u; i++)
                if (d + i < a.n_rope_on_read)
                    key[i] = rope_value(d + i, key[i], key_value(r, tail, partner(d + i)), index);
#endif
        [[unroll]] for (uint j = 0u; j < n_queries_each; j++)
            if (first_row + j < n) {
                uint at = (first_row + j) * stride + d;
                float read[2];
                READ_OCTET(read, queries, at)
                [[unroll]] for (uint i = 0u; i < 8u; i++)
                    product[j] += key[i] * OCTET_AT(read, queries, at, i);
            }
    }
#ifdef GENERAL
    if (has_bias) add_bias(position_of(s, index), first_row, product);
#endif
}
