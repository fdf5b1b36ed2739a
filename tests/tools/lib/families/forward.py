"""The forward pass of the families, directed by the fields of a Spec."""

import math
import struct
from dataclasses import dataclass, field

from .experts import mixture
from .latent import latent_attention
from .math64 import (
    ACTS,
    Rope,
    attend,
    layer_norm,
    log_softmax,
    matvec,
    plus,
    rms,
    scaled,
    sigmoid,
    softcap,
    times,
)
from .state import BRANCHES


@dataclass
class Spec:
    """What a family's forward pass does. Lists have one value per layer."""

    arch: str
    keys: dict = field(default_factory=dict)
    layers: int = 4
    dim: int = 64
    heads: object = 4
    kv_heads: object = 2
    head: object = 16
    ffn: object = 96
    rope: dict = field(default_factory=dict)  # arguments of Rope
    window_rope: dict = None  # those of window layers, where they differ
    has_rope: object = lambda il: True
    windows: list = None  # per layer: has a window
    window: int = 0
    norm: str = "rms"  # rms, ln or ln+bias
    eps: float = 2.0**-9  # large enough to be seen in the logits
    pre: bool = True
    post: bool = False
    parallel: bool = False
    ffn_norm: str = "ffn_norm"  # the name of the norm before the FFN
    qk: str = ""  # head, row, or ln: LayerNorm with one weight per head and value
    qk_after_rope: bool = False
    act: object = "silu"  # a name of ACTS, or a function of the layer
    gated: bool = True
    fused_qkv: bool = False
    fused_ffn: bool = False
    biases: str = ""  # of q, k, v, o, g, u, d, and f: the fused QKV matrix
    scales: str = ""  # .scale tensors, the same letters
    gated_heads: bool = False  # sigmoid of a matrix on each head of the attention's output
    gates_by_value: bool = False  # instead on each value
    sub_norms: bool = False
    experts: object = None  # Experts
    experts_beside_ffn: bool = False  # their sum, each with norms of its own
    sinks: bool = False
    embed_scale: float = 1.0
    residual: float = 1.0
    logit_scale: float = 1.0
    attn_scale: float = 0.0
    attn_cap: float = 0.0
    final_cap: float = 0.0
    value_norm: bool = False  # values are normed without weights
    keys_are_values: object = lambda il: False  # attn_v is absent: values are keys as projected
    shared_kv: int = 0  # the last layers, which read keys and values of earlier ones
    layer_dim: int = 0  # of the embeddings for each layer
    layer_scales: list = None  # factors of the layers' results
    temperature: object = None  # factor of a query by its position
    loops: int = 1
    loop_norm: bool = True
    tied: bool = True
    out_bias: bool = False
    out_scale: bool = False
    mtp: int = 0
    gated_values: bool = False  # attn_q has a gate behind each head's query
    mixers: list = None  # per layer: the kinds of its branches before the FFN
    recurrent: object = None  # state.Recurrent
    latent: object = None  # latent.Latent: keys and values are products of a token's latent
    output_norm: str = "output_norm"
    bare: tuple = ()  # norms whose names lack .weight

    def per_layer(self, value, il):
        return value[il] if isinstance(value, list) else value

    def source(self, il):
        """The layer whose keys and values a layer reads: its own, or the last of its kind."""
        own = self.layers - self.shared_kv
        kind = lambda j: bool(self.windows and self.windows[j])  # noqa: E731
        if il < own or il >= self.layers:
            return il
        return max(j for j in range(own) if kind(j) == kind(il))


def norm(m, s, name, x):
    bare = name.split(".")[-1] in s.bare
    w = m.norm(name, len(x), suffix="" if bare else ".weight")
    if s.norm == "rms":
        return rms(x, w, s.eps)
    b = m.bias(name, len(x)) if s.norm == "ln+bias" else None
    return layer_norm(x, w, b, s.eps)


def project(m, s, letter, name, rows, x):
    """W x for a token, with the optional scale and bias."""
    y = matvec(m.mat(name, rows, len(x)), x)
    if letter in s.scales:
        y = scaled(y, m.scale(name))
    return plus(y, m.bias(name, rows)) if letter in s.biases else y


def heads_of(x, d):
    return [x[i : i + d] for i in range(0, len(x), d)]


def qk_norm(m, s, name, heads):
    d = len(heads[0])
    if s.qk == "row":
        row = [v for h in heads for v in h]
        return heads_of(rms(row, m.norm(name, len(row)), s.eps), d)
    if s.qk == "ln":
        w = m.norm(name, d, len(heads))
        return [layer_norm(h, g, eps=s.eps) for h, g in zip(heads, w)]
    w = m.norm(name, d)
    return [rms(h, w, s.eps) for h in heads]


def project_qkv(m, s, il, b, x, n_heads, n_kv):
    d = s.per_layer(s.head, il)
    rows = [n_heads * d * (1 + s.gated_values), n_kv * d, n_kv * d]
    if not s.fused_qkv:
        letters = "qk" if s.keys_are_values(il) else "qkv"
        y = [project(m, s, c, f"{b}attn_{c}", n, x) for c, n in zip(letters, rows)]
        return y if len(y) == 3 else [*y, y[1]]
    y = project(m, s, "f", b + "attn_qkv", sum(rows), x)
    parts = [y[: rows[0]], y[rows[0] : rows[0] + rows[1]], y[rows[0] + rows[1] :]]
    return [
        plus(p, m.bias(f"{b}attn_{c}", len(p))) if c in s.biases else p
        for c, p in zip("qkv", parts)
    ]


def attention_output(m, s, il, b, h, o, gates):
    if gates:
        o = times(o, [sigmoid(v) for gate in gates for v in gate])
    if s.gated_heads or s.gates_by_value:
        each = 1 if s.gates_by_value else s.per_layer(s.head, il)
        g = matvec(m.mat(b + "attn_gate", len(o) // each, len(h)), h)
        o = times(o, [sigmoid(v) for v in g for _ in range(each)])
    if s.sub_norms:
        o = rms(o, m.norm(b + "attn_sub_norm", len(o)), s.eps)
    return project(m, s, "o", b + "attn_output", s.dim, o)


def project_rotated(m, s, il, b, x, t, turn):
    """A token's heads: queries, keys, values, gates. A reader of another layer has queries."""
    n_heads, n_kv = s.per_layer(s.heads, il), s.per_layer(s.kv_heads, il)
    d = s.per_layer(s.head, il)
    if s.source(il) != il:
        q, k, v = heads_of(project(m, s, "q", b + "attn_q", n_heads * d, x), d), [], []
    else:
        q, k, v = (heads_of(p, d) for p in project_qkv(m, s, il, b, x, n_heads, n_kv))
    q, gates = (q[::2], q[1::2]) if s.gated_values else (q, None)
    if s.value_norm:
        v = [rms(y, eps=s.eps) for y in v]
    if s.qk and not s.qk_after_rope:
        q = qk_norm(m, s, b + "attn_q_norm", q)
        k = qk_norm(m, s, b + "attn_k_norm", k) if k else k
    if turn:
        q, k = [turn(y, t) for y in q], [turn(y, t) for y in k]
    if s.qk and s.qk_after_rope:
        q, k = qk_norm(m, s, b + "attn_q_norm", q), qk_norm(m, s, b + "attn_k_norm", k)
    if s.temperature:
        q = [scaled(y, s.temperature(t)) for y in q]
    return q, k, v, gates


def attention(m, s, il, h, stored):
    """The branch of all tokens. Without KV heads it is the output matrix alone (deci).

    stored: the keys and values of each layer.
    """
    b = f"blk.{il}."
    n_heads, n_kv = s.per_layer(s.heads, il), s.per_layer(s.kv_heads, il)
    if n_kv == 0:
        return [project(m, s, "o", b + "attn_output", s.dim, x) for x in h]
    windowed = bool(s.windows and s.windows[il])
    turn = None
    if s.has_rope(il):
        args = s.window_rope if windowed and s.window_rope is not None else s.rope
        turn = Rope(**{"n_rot": s.per_layer(s.head, il), **args})
    sinks = m.vector(b + "attn_sinks", n_heads, 2.0) if s.sinks else None
    out, source = [], s.source(il)
    if source == il:
        stored[il] = [], []
    for t, x in enumerate(h):
        q, k, v, gates = project_rotated(m, s, il, b, x, t, turn)
        if source == il:
            stored[il][0].append(k)
            stored[il][1].append(v)
        first = max(0, t + 1 - s.window) if windowed else 0
        o, scale = [], s.attn_scale or len(q[0]) ** -0.5
        for i, y in enumerate(q):
            j = i * n_kv // n_heads
            seen = [[r[j] for r in rows[first : t + 1]] for rows in stored[source]]
            o += attend(y, *seen, scale, s.attn_cap, sinks[i] if sinks else None)
        out.append(attention_output(m, s, il, b, x, o, gates))
    return out


def ffn(m, s, il, x, before):
    """The FFN of a token, whose state before the norm is `before`."""
    b = f"blk.{il}."
    if not s.experts or il in s.experts.dense:
        return dense_ffn(m, s, il, x)
    if not s.experts_beside_ffn:
        return mixture(m, s.experts, b, x)
    w = m.norm(b + "ffn_gate_inp", s.dim, suffix=".scale")
    router_x = scaled(rms(before, w, s.eps), s.dim**-0.5)
    y = mixture(m, s.experts, b, norm(m, s, b + "pre_ffw_norm_2", before), router_x)
    dense = norm(m, s, b + "post_ffw_norm_1", dense_ffn(m, s, il, x))
    return plus(dense, norm(m, s, b + "post_ffw_norm_2", y))


def dense_ffn(m, s, il, x):
    b, n = f"blk.{il}.", s.per_layer(s.ffn, il)
    act = s.act(il) if callable(s.act) else ACTS[s.act]
    if s.fused_ffn:
        y = project(m, s, "u", b + "ffn_up", 2 * n, x)
        y = times(act(y[:n]), y[n:])
    elif s.gated:
        g = act(project(m, s, "g", b + "ffn_gate", n, x))
        y = times(g, project(m, s, "u", b + "ffn_up", n, x))
    else:
        y = act(project(m, s, "u", b + "ffn_up", n, x))
    if s.sub_norms:
        y = rms(y, m.norm(b + "ffn_sub_norm", n), s.eps)
    return project(m, s, "d", b + "ffn_down", s.dim, y)


def branch(m, s, name, y):
    """A branch's result before it is added."""
    if s.post:
        y = norm(m, s, name, y)
    return scaled(y, s.residual) if s.residual != 1 else y


def layer_inputs(m, s, ids, x):
    """For each layer a vector per token: an embedding plus a projection of the first state."""
    n, d = s.layers, s.layer_dim
    rows = m.mat("per_layer_token_embd", m.vocab, n * d, gain=4)
    w, out = m.mat("per_layer_model_proj", n * d, s.dim), [[] for _ in range(n)]
    for i, y in zip(ids, x):
        p = scaled(matvec(w, y), s.dim**-0.5)
        for il, (a, b) in enumerate(zip(heads_of(p, d), heads_of(rows[i], d))):
            a = rms(a, m.norm("per_layer_proj_norm", d), s.eps)
            out[il].append(scaled(plus(a, scaled(b, d**0.5)), 0.5**0.5))
    return out


def layer_end(m, s, il, x, inputs):
    """What follows the FFN of a layer with inputs of its own."""
    b = f"blk.{il}."
    if s.layer_dim:
        act = ACTS[s.act]
        gates = [act(matvec(m.mat(b + "inp_gate", s.layer_dim, s.dim), t)) for t in x]
        w = m.mat(b + "proj", s.dim, s.layer_dim)
        y = [matvec(w, times(g, i)) for g, i in zip(gates, inputs[il])]
        x = [plus(t, norm(m, s, b + "post_norm", v)) for t, v in zip(x, y)]
    if s.layer_scales:
        c = m.raw(b + "layer_output_scale.weight", [s.layer_scales[il]])[0]
        x = [scaled(t, c) for t in x]
    return x


def layer(m, s, il, x, stored):
    b = f"blk.{il}."
    before = h = x
    kinds = s.mixers[min(il, len(s.mixers) - 1)] if s.mixers else ("attention",)
    if s.per_layer(s.heads, il) > 0 and kinds:
        h = [norm(m, s, b + "attn_norm", t) if s.pre else t for t in x]
    for kind in kinds if s.per_layer(s.heads, il) > 0 else ():
        if s.latent:
            y = latent_attention(m, s, il, h)
        else:
            y = BRANCHES[kind](m, s, il, h) if kind in BRANCHES else attention(m, s, il, h, stored)
        a = [branch(m, s, b + "post_attention_norm", t) for t in y]
        x = [plus(t, y) for t, y in zip(x, a)]
    if s.per_layer(s.ffn, il) == 0:
        return x if s.mixers else before  # llama.cpp leaves the whole layer out (deci)
    if not s.parallel:
        h = [norm(m, s, b + s.ffn_norm, t) if s.pre else t for t in x]
    y = [ffn(m, s, il, *of_token) for of_token in zip(h, x)]
    return [plus(t, branch(m, s, b + "post_ffw_norm", v)) for t, v in zip(x, y)]


def add_mtp(m, s):
    """A multi-token-prediction block: a layer that is not run, and its own tensors."""
    for il in range(s.layers, s.layers + s.mtp):
        layer(m, s, il, [[0.1] * s.dim], {})
        m.mat(f"blk.{il}.nextn.eh_proj", s.dim, 2 * s.dim)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            m.norm(f"blk.{il}.nextn.{name}", s.dim)


def logits(m, s, ids):
    """The logits after each of the ids. This makes every tensor of the model."""
    embed = m.mat("token_embd", m.vocab, s.dim, gain=8)
    if "divisors" in s.rope:
        m.raw("rope_freqs.weight", s.rope["divisors"])
    x = [scaled(embed[i], s.embed_scale) for i in ids]
    inputs = layer_inputs(m, s, ids, x) if s.layer_dim else None
    for loop in range(s.loops):
        stored = {}
        for il in range(s.layers):
            x = layer_end(m, s, il, layer(m, s, il, x, stored), inputs)
        if s.loop_norm and loop + 1 < s.loops:
            x = [norm(m, s, "output_norm", t) for t in x]
    out = embed if s.tied else m.mat("output", m.vocab, s.dim)
    x = [matvec(out, norm(m, s, s.output_norm, t)) for t in x]
    if s.out_scale:
        x = [scaled(t, m.scale("output")) for t in x]
    if s.out_bias:
        x = [plus(t, m.bias("output", m.vocab)) for t in x]
    add_mtp(m, s)
    return [softcap(scaled(t, s.logit_scale), s.final_cap) for t in x]


def log_probabilities(rows, ids):
    """Of ids[i] after the ids before it. The first has none."""
    return [log_softmax(row)[i] for row, i in zip(rows, ids[1:])]


def base_keys(s):
    """The keys that follow from the shape."""
    wide = s.heads * s.head != s.dim if isinstance(s.heads, int) else True
    keys = {
        "context_length": 256,
        "embedding_length": s.dim,
        "block_count": s.layers + s.mtp,
        "feed_forward_length": s.ffn,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads,
        "rope.freq_base": 10000.0,
    }
    if wide:
        keys |= {"attention.key_length": s.head, "attention.value_length": s.head}
    if s.mtp:
        keys["nextn_predict_layers"] = s.mtp
    kind = "rms_" if s.norm == "rms" else ""
    keys[f"attention.layer_norm_{kind}epsilon"] = s.eps
    return {**keys, **s.keys}


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def mscale(factor, x=1.0):
    return 0.1 * x * math.log(factor) + 1
