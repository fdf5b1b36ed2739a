// Logits of slots: a thread has one slot's key and asks some of the queries that lie in shared memory. Keys come as they are stored:
// they are turned by their index, or what a bias left out adds to the logit, where `flags` says so. Before it is included:
// args `a`, `pass`, the constants k_format, head_dim, flags, lanes, and the buffers.
const uint stride = (head_dim + 7u) / 8u * 8u; // of a query
const uint n_rows = head_dim <= 64u ? 16u : head_dim <= 128u ? 8u : head_dim <= 256u ? 4u : 2u; // queries of a workgroup
const uint n_slots = 32u;                      // of a tile
const uint n_asked = n_rows > 4u ? n_rows / 4u : 1u; // queries of a thread

// (2, n_rows, stride): queries, turned by their index; then turned as for groups, or their product with the bias
shared float queries[n_rows * stride * 2u];

struct Turned {
    float near;
    float grouped;
};

float turn(float u, float v, uint index, uint pair, bool second)
{
    float c = angles[index * a.n_turn + 2u * pair], s = angles[index * a.n_turn + 2u * pair + 1u];
    return second ? u * s + v * c : u * c - v * s;
}

// Where the other value of d's pair is.
uint partner(uint d)
{
    uint half_turn = a.n_turn / 2u;
    return a.pairs == rope_neighbours ? d ^ 1u : d < half_turn ? d + half_turn : d - half_turn;
}
bool is_second(uint d) { return a.pairs == rope_neighbours ? (d & 1u) != 0u : d >= a.n_turn / 2u; }
uint pair_of(uint d) { return a.pairs == rope_neighbours ? d / 2u : d % (a.n_turn / 2u); }

Turned turn_value(uint d, float own, float other, uint index, uint grouped_index)
{
    bool second = is_second(d);
    float u = second ? other : own, v = second ? own : other;
    Turned t;
    t.near = turn(u, v, index, pair_of(d), second);
    t.grouped = has_groups ? turn(u, v, grouped_index, pair_of(d), second) : 0.f;
    return t;
}

float query_value(uint i) { return uintBitsToFloat(Q_WORD(i)); }

// Query `first + i` of a head's (token, head of the group), for all n that the workgroup has.
void read_queries(uint head, uint group, uint first, uint n, uint before)
{
    for (uint i = THREAD; i < n * stride; i += n_threads) {
        uint query = first + i / stride, t = query / group, d = i % stride;
        queries[i] = 0.f;
        if (has_groups || has_waves) queries[n_rows * stride + i] = 0.f;
        if (d >= head_dim) continue;
        uint at = (t * a.n_heads + head * group + query % group) * head_dim;
        float own = query_value(at + d);
        queries[i] = own;
        if (has_turns && d < a.n_turn) {
            uint far = has_groups ? GROUPED_QUERY(before + t, a.group, a.n_near) : 0u;
            Turned turned = turn_value(d, own, query_value(at + partner(d)), before + t, far);
            queries[i] = turned.near;
            own = turned.grouped;
        }
        if (has_groups) queries[n_rows * stride + i] = own;
        if (has_waves) queries[n_rows * stride + i] = query_value(a.n_tokens * a.n_heads * head_dim + at + d);
    }
}

float key_value(uint r, uint tail, uint d) { return d < head_dim ? row_value(k_format, r, tail, d, head_dim) : 0.f; }

// The products of row r's key, of a slot with this index at this position, with queries [first_row, first_row + n_asked) of the
// first n that are there; query 0 is the head's first_query.
void ask(uint r, uint index, uint position, uint first_row, uint n, uint before, uint group, uint first_query, out float product[4])
{
    float grouped_product[4];
    [[unroll]] for (uint j = 0u; j < 4u; j++) product[j] = grouped_product[j] = 0.f;
    uint tail = row_tail(k_format, pass.pool_rows, r, head_dim);
    for (uint d = 0u; d < stride; d += 8u) {
        float near[8], far[8];
        row_eight(k_format, r, tail, d, head_dim, false, near);
        [[unroll]] for (uint i = 0u; i < 8u; i++) far[i] = near[i];
        if (has_turns)
            [[unroll]] for (uint i = 0u; i < 8u; i++)
                if (d + i < a.n_turn) {
                    Turned turned = turn_value(d + i, near[i], key_value(r, tail, partner(d + i)), index, has_groups ? index / a.group : 0u);
                    near[i] = turned.near;
                    far[i] = turned.grouped;
                }
        [[unroll]] for (uint j = 0u; j < n_asked; j++)
            if (first_row + j < n) {
                uint at = (first_row + j) * stride + d;
                float read[2];
                READ_EIGHT(read, queries, at)
                [[unroll]] for (uint i = 0u; i < 8u; i++) product[j] += near[i] * EIGHTH(read, queries, at, i);
                if (has_groups) {
                    at += n_rows * stride;
                    READ_EIGHT(read, queries, at)
                    [[unroll]] for (uint i = 0u; i < 8u; i++) grouped_product[j] += far[i] * EIGHTH(read, queries, at, i);
                }
            }
    }
    if (has_groups)
        [[unroll]] for (uint j = 0u; j < n_asked; j++)
            if (before + (first_query + first_row + j) / group >= index + a.n_near) product[j] = grouped_product[j];
    if (!has_waves) return;
    for (uint pair = 0u; pair < a.n_wave / 2u; pair++) {
        float c = 1.f, s = 0.f;
        for (uint digit = 0u, rest = position; digit < wave_digits; digit++, rest /= wave_base) {
            uint at = (wave_base * digit + rest % wave_base) * a.n_wave + pair;
            float dc = angles[at], ds = angles[at + a.n_wave / 2u], was = c;
            c = c * dc - s * ds;
            s = was * ds + s * dc;
        }
        uint first = WAVE_PLACE(pair, a.n_wave, a.pairs), second = WAVE_PLACE(a.n_wave / 2u + pair, a.n_wave, a.pairs);
        [[unroll]] for (uint j = 0u; j < n_asked; j++) {
            uint at = n_rows * stride + min(first_row + j, n_rows - 1u) * stride;
            product[j] += queries[at + first] * c + queries[at + second] * s;
        }
    }
}
