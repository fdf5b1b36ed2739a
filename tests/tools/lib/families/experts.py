"""The forward pass of mixtures of experts."""

import math
from dataclasses import dataclass

from .math64 import matvec, plus, scaled, sigmoid, silu, times


@dataclass
class Experts:
    """A mixture of experts. `dense` are the layers without one."""

    n: int = 6
    used: int = 2
    ffn: int = 32
    gating: str = "softmax"  # softmax, sigmoid, or chosen: the softmax of the chosen logits
    norm: bool = True
    scale: float = 1.0
    groups: tuple = (1, 1)  # how many, and how many of them are used
    selection_bias: bool = False
    biases: bool = False  # of the router and of the experts
    scales: bool = False  # .scale tensors with a value for each expert
    fused: bool = False  # gate and up are one tensor
    shared: int = 0  # the width of the shared expert
    shared_fused: bool = False  # its gate and up are one tensor
    gated_shared: bool = False
    dense: tuple = ()
    act: object = None  # f(gate, up); None: SwiGLU
    gated: bool = True  # otherwise act is f(up)
    latent: int = 0  # width of the experts' input and output; 0: the model's

    def keys(self):
        keys = {
            "expert_count": self.n,
            "expert_used_count": self.used,
            "expert_feed_forward_length": self.ffn,
        }
        if self.latent:
            keys["moe_latent_size"] = self.latent
        if self.shared:
            keys["expert_shared_feed_forward_length"] = self.shared
        return keys


def swiglu(gate, up):
    return times(silu(gate), up)


def swiglu_oai(gate, up):
    gate = [min(v, 7.0) for v in gate]
    up = [max(-7.0, min(v, 7.0)) + 1 for v in up]
    return times([g * sigmoid(1.702 * g) for g in gate], up)


def softmax(x):
    high = max(x)
    e = [math.exp(v - high) for v in x]
    return scaled(e, 1 / sum(e))


def best(scores, n):
    """Indexes of the n largest, the lower first on ties."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])[:n]


def route(m, e, b, x):
    logits = matvec(m.mat(b + "ffn_gate_inp", e.n, len(x), gain=3), x)
    if e.biases:
        logits = plus(logits, m.bias(b + "ffn_gate_inp", e.n))
    p = logits
    if e.gating != "chosen":
        p = softmax(logits) if e.gating == "softmax" else [sigmoid(v) for v in logits]
    scores = plus(p, m.bias(b + "exp_probs_b", e.n)) if e.selection_bias else list(p)
    if e.groups[0] > 1:
        size = e.n // e.groups[0]
        parts = [scores[i : i + size] for i in range(0, e.n, size)]
        kept = best([sum(sorted(part)[-2:]) for part in parts], e.groups[1])
        scores = [v if i // size in kept else -math.inf for i, v in enumerate(scores)]
    ids = best(scores, e.used)
    w = [p[i] for i in ids]
    if e.gating == "chosen":
        w = softmax(w)
    if e.norm:
        w = scaled(w, 1 / max(sum(w), 2.0**-14))
    return ids, scaled(w, e.scale)


class Bank:
    """The matrices of one kind of all experts."""

    def __init__(self, m, e, name, rows, cols):
        self.w = m.experts(name, e.n, rows, cols)
        self.bias = m.expert_biases(name, e.n, rows) if e.biases else None
        self.scales = m.expert_scales(name, e.n) if e.scales else None

    def __call__(self, i, x):
        y = matvec(self.w[i], x)
        if self.scales:
            y = scaled(y, self.scales[i])
        return plus(y, self.bias[i]) if self.bias else y


def gate_up(m, e, b, dim):
    """A function of an expert and its input: the gate's values, if any, and those of up."""
    if e.fused:
        both = Bank(m, e, b + "ffn_gate_up_exps", 2 * e.ffn, dim)

        def halves(i, x):
            y = both(i, x)
            return y[: e.ffn], y[e.ffn :]

        return halves
    names = ("gate", "up") if e.gated else ("up",)
    banks = [Bank(m, e, f"{b}ffn_{name}_exps", e.ffn, dim) for name in names]
    return lambda i, x: [bank(i, x) for bank in banks]


def shared_expert(m, e, b, x):
    n, act = e.shared, e.act or swiglu
    names = ("gate", "up") if e.gated and not e.shared_fused else ("up",)
    rows = 2 * n if e.shared_fused else n
    y = [v for name in names for v in matvec(m.mat(f"{b}ffn_{name}_shexp", rows, len(x)), x)]
    y = act(y[:n], y[n:]) if e.gated else act(y)
    y = matvec(m.mat(b + "ffn_down_shexp", len(x), n), y)
    if e.gated_shared:
        w = m.vector(b + "ffn_gate_inp_shexp", len(x))
        y = scaled(y, sigmoid(sum(times(w, x))))
    return y


def mixture(m, e, b, x, router_x=None):
    """The FFN of a token. The router may read another vector."""
    ids, weights = route(m, e, b, router_x or x)
    z = matvec(m.mat(b + "ffn_latent_down", e.latent, len(x)), x) if e.latent else x
    both, down = gate_up(m, e, b, len(z)), Bank(m, e, b + "ffn_down_exps", len(z), e.ffn)
    act = e.act or swiglu
    y = [0.0] * len(z)
    for i, w in zip(ids, weights):
        y = plus(y, scaled(down(i, act(*both(i, z))), w))
    if e.latent:
        y = matvec(m.mat(b + "ffn_latent_up", len(x), e.latent), y)
    return plus(y, shared_expert(m, e, b, x)) if e.shared else y
