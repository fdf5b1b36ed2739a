// The main function of delta and ssm_scan, which define token().
void main()
{
    LOAD_ARGS(a)
    uint n_rows = a.n_heads * a.head_dim;
    uint row = min(STATE_ROW, n_rows - 1u), head = row / a.head_dim;
    bool writes = STATE_ROW < n_rows;
    float m[max_values];
    FOR_VALUES(v) m[v] = state[row * a.state_dim + COLUMN(v)];
    for (uint t = 0u; t < a.n_tokens; t++) {
        float step = softplus(dt[t * a.n_heads + head] + dt_bias[head]);
        float result = token(m, t, row, head, exponential(decays[head] * step), step);
        if (writes && LANE == 0u) y[t * n_rows + row] = result;
    }
    FOR_VALUES(v) if (writes) state[row * a.state_dim + COLUMN(v)] = m[v];
}
