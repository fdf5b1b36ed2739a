"""The forward pass of latent attention (MLA), as DeepSeek-V2's paper states it: with keys and
values of every head, where the program multiplies queries and results instead."""

import math
from dataclasses import dataclass

from .math64 import Rope, attend, matvec, plus, rms


@dataclass
class Latent:
    dim: int = 32  # of a token's latent
    rot: int = 8  # values of a key that RoPE rotates, which all heads share
    key: int = 16  # values of a head's key without RoPE
    value: int = 16
    q_dim: int = 0  # of the latent that queries come from; 0: they come from the input
    log_multiplier: float = 0.0  # as the file has it
    biases: bool = False

    def keys(self):
        keys = {
            "attention.kv_lora_rank": self.dim,
            "attention.key_length": self.dim + self.rot,
            "attention.value_length": self.dim,
            "attention.key_length_mla": self.key + self.rot,
            "attention.value_length_mla": self.value,
            "attention.head_count_kv": 1,
            "rope.dimension_count": self.rot,
        }
        if self.q_dim:
            keys["attention.q_lora_rank"] = self.q_dim
        if self.log_multiplier:
            keys["rope.scaling.yarn_log_multiplier"] = self.log_multiplier
        return keys

    def wider(self):
        """The row of a token has a multiple of 16 values, which the codecs need."""
        return Latent(**{**self.__dict__, "dim": 2 * self.dim, "rot": 2 * self.rot})


def linear(m, c, name, rows, x):
    y = matvec(m.mat(name, rows, len(x)), x)
    return plus(y, m.bias(name, rows)) if c.biases else y


def columns(w, x):
    """The product of x with the columns of w."""
    return [sum(row[i] * v for row, v in zip(w, x)) for i in range(len(w[0]))]


def project(m, s, b, x, t, turn):
    """A token's queries, and its keys and values by head."""
    c, n, low = s.latent, s.heads, x
    if c.q_dim:
        low = linear(m, c, b + "attn_q_a", c.q_dim, x)
        low = rms(low, m.norm(b + "attn_q_a_norm", c.q_dim), s.eps)
    from_low = m.mat(b + ("attn_q_b" if c.q_dim else "attn_q"), n * (c.key + c.rot), len(low))
    q = matvec(from_low, low)
    low = linear(m, c, b + "attn_kv_a_mqa", c.dim + c.rot, x)
    latent = rms(low[: c.dim], m.norm(b + "attn_kv_a_norm", c.dim), s.eps)
    shared = turn(low[c.dim :], t)
    heads = [q[i * (c.key + c.rot) :][: c.key + c.rot] for i in range(n)]
    q = [h[: c.key] + turn(h[c.key :], t) for h in heads]
    to_keys = m.experts(b + "attn_k_b", n, c.dim, c.key)
    to_values = m.experts(b + "attn_v_b", n, c.value, c.dim)
    k = [columns(w, latent) + shared for w in to_keys]
    return q, k, [matvec(w, latent) for w in to_values]


def latent_attention(m, s, il, h):
    b, c = f"blk.{il}.", s.latent
    turn = Rope(**{"n_rot": c.rot, **s.rope})
    factor = s.rope.get("factor", 1.0)
    scale = (1 + c.log_multiplier * math.log(factor)) ** 2 / math.sqrt(c.key + c.rot)
    if "yarn" in s.rope:
        turn.gain = 1.0
    rows, out = [], []
    for t, x in enumerate(h):
        rows.append(project(m, s, b, x, t, turn))
        o = []
        for i, q in enumerate(rows[t][0]):
            o += attend(q, [k[i] for _, k, _ in rows], [v[i] for _, _, v in rows], scale)
        out.append(matvec(m.mat(b + "attn_output", s.dim, len(o)), o))
    return out
