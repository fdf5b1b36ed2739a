"""The recurrent branches of a layer, token by token. A Spec says their sizes."""

import math
from dataclasses import dataclass
from operator import mul

from .math64 import matvec, plus, rms, scaled, sigmoid, silu, softplus, times


@dataclass
class Recurrent:
    """The shape of a model's recurrent layers. A short convolution has only a kernel."""

    kernel: int = 4
    heads: int = 4
    groups: int = 2
    head: int = 16
    state: int = 16
    normed: bool = True
    biased: bool = True

    def keys(self):
        return {
            "ssm.conv_kernel": self.kernel,
            "ssm.inner_size": self.heads * self.head,
            "ssm.state_size": self.state,
            "ssm.time_step_rank": self.heads,
            "ssm.group_count": self.groups,
        }


def convolve(w, rows, bias=None):
    """Causal, column by column. w has the kernel of each column."""
    kernel, out = len(w[0]), []
    for t in range(len(rows)):
        y = list(bias) if bias else [0.0] * len(w)
        for j in range(kernel):
            if t + j >= kernel - 1:
                row = rows[t + j - kernel + 1]
                y = [v + k[j] * x for v, k, x in zip(y, w, row)]
        out.append(y)
    return out


def parts(x, *sizes):
    """Consecutive parts of x; each size is a number of values, or (rows, values)."""
    found, at = [], 0
    for size in sizes:
        rows, n = size if isinstance(size, tuple) else (1, size)
        found.append([x[at + r * n : at + (r + 1) * n] for r in range(rows)])
        at += rows * n
    return [f if isinstance(size, tuple) else f[0] for f, size in zip(found, sizes)]


def short_conv(m, s, il, h):
    b = f"blk.{il}.shortconv."
    p = [parts(matvec(m.mat(b + "in_proj", 3 * s.dim, s.dim), x), *[s.dim] * 3) for x in h]
    w = m.mat(b + "conv", s.dim, s.recurrent.kernel)
    y = convolve(w, [times(first, u) for first, _, u in p])
    out = m.mat(b + "out_proj", s.dim, s.dim)
    return [matvec(out, times(gate, v)) for (_, gate, _), v in zip(p, y)]


def negative(m, name, n, column=False):
    """Minus e to normal values, as ssm_a has."""
    dims = (1, n) if column else (n,)
    values = m.put(name, dims, lambda: [-math.exp(v) for v in m.gauss(n, 0, 1)])
    return [v[0] for v in values] if column else values


def l2_normed(x, eps, factor=1.0):
    return scaled(x, factor / math.sqrt(sum(map(mul, x, x)) + eps))


def delta(m, s, il, h):
    b, r, n = f"blk.{il}.", s.recurrent, s.recurrent.state
    cols, inner = 2 * r.groups * n + r.heads * n, r.heads * n
    mixed = [matvec(m.mat(b + "attn_qkv", cols, s.dim), x) for x in h]
    gates = [matvec(m.mat(b + "attn_gate", inner, s.dim), x) for x in h]
    alphas = [matvec(m.mat(b + "ssm_alpha", r.heads, s.dim), x) for x in h]
    betas = [matvec(m.mat(b + "ssm_beta", r.heads, s.dim), x) for x in h]
    a, dt = negative(m, b + "ssm_a", r.heads), m.bias(b + "ssm_dt", r.heads)
    mixed = [silu(x) for x in convolve(m.mat(b + "ssm_conv1d", cols, r.kernel), mixed)]
    w, out = m.norm(b + "ssm_norm", n), m.mat(b + "ssm_out", s.dim, inner)
    state = [[[0.0] * n for _ in range(n)] for _ in range(r.heads)]
    found = []
    for x, gate, alpha, beta in zip(mixed, gates, alphas, betas):
        q, k, v = parts(x, (r.groups, n), (r.groups, n), (r.heads, n))
        q, k = [l2_normed(y, s.eps, n**-0.5) for y in q], [l2_normed(y, s.eps) for y in k]
        y = []
        for i in range(r.heads):
            key, query = k[i % r.groups], q[i % r.groups]
            decay = math.exp(a[i] * softplus(alpha[i] + dt[i]))
            rows = [scaled(row, decay) for row in state[i]]
            steps = [sigmoid(beta[i]) * (u - sum(map(mul, o, key))) for u, o in zip(v[i], rows)]
            state[i] = [plus(row, scaled(key, step)) for row, step in zip(rows, steps)]
            y += rms([sum(map(mul, row, query)) for row in state[i]], w, s.eps)
        found.append(matvec(out, times(y, silu(gate))))
    return found


def mamba2(m, s, il, h):
    b, r, n = f"blk.{il}.", s.recurrent, s.recurrent.state
    inner, cols = r.heads * r.head, r.heads * r.head + 2 * r.groups * n
    w = m.mat(b + "ssm_in", inner + cols + r.heads, s.dim)
    p = [parts(matvec(w, x), inner, cols, r.heads) for x in h]
    kernels = m.mat(b + "ssm_conv1d", cols, r.kernel)
    bias = m.bias(b + "ssm_conv1d", cols) if r.biased else None
    mixed = [silu(x) for x in convolve(kernels, [x for _, x, _ in p], bias)]
    dt_bias, a = m.bias(b + "ssm_dt", r.heads), negative(m, b + "ssm_a", r.heads, True)
    d = [v[0] for v in m.put(b + "ssm_d", (1, r.heads), lambda: m.gauss(r.heads, 0, 1))]
    part = inner // r.groups
    norms = m.norm(b + "ssm_norm", part, r.groups) if r.normed else None
    out = m.mat(b + "ssm_out", s.dim, inner)
    state = [[[0.0] * n for _ in range(r.head)] for _ in range(r.heads)]
    found = []
    for x, (gate, _, dt) in zip(mixed, p):
        u, first, second = parts(x, (r.heads, r.head), (r.groups, n), (r.groups, n))
        y = []
        for i in range(r.heads):
            g, step = i // (r.heads // r.groups), softplus(dt[i] + dt_bias[i])
            decay = math.exp(step * a[i])
            state[i] = [
                plus(scaled(row, decay), scaled(first[g], step * value))
                for row, value in zip(state[i], u[i])
            ]
            y += [
                sum(map(mul, row, second[g])) + d[i] * value for row, value in zip(state[i], u[i])
            ]
        y = times(y, silu(gate))
        if norms:
            y = [v for i, w in enumerate(norms) for v in rms(y[i * part :][:part], w, s.eps)]
        found.append(matvec(out, y))
    return found


BRANCHES = {"conv": short_conv, "delta": delta, "mamba2": mamba2}
