#!/usr/bin/env python3
"""Writes a GGUF model with random weights in real formats, for speed measurements.

    random_model.py SHAPE FILE

SHAPE is a name of SHAPES with optional changes: 1b, 135m,layers=4 or 8b,vocab=32000,context=8192.
format=NAME gives all matrices one format of FORMATS. Without it they have those of a Q4_K_M file:
Q4_K, and Q6_K for the vocabulary and V. Routers of experts are F32."""

import collections
import math
import random
import struct
import sys

U32, F32, STR, ARR, I32 = 4, 6, 8, 9, 5
# With v_heads it is a qwen35: three of four layers are gated delta nets of k_heads and v_heads.
Shape = collections.namedtuple(
    "Shape",
    "dim layers heads kv_heads head ffn vocab context format experts used v_heads k_heads",
    defaults=(1 << 20, None, 0, 0, 0, 16),
)
STATE, KERNEL = 128, 4  # of a gated delta net
# GGUF type, values of a block, and its fields in order. An int is so many random bytes. A float is
# an f16 in which values of about 1 get that scale or minimum, a PowerOfTwo a byte for the scale.
# FourScales are bytes of NVFP4, whose exponent has a bias of 7, and SplitHalf an f16 in four parts.
PowerOfTwo = collections.namedtuple("PowerOfTwo", "scale")
FourScales = collections.namedtuple("FourScales", "scale")
SplitHalf = collections.namedtuple("SplitHalf", "scale")
Format = collections.namedtuple("Format", "type block fields")
FORMATS = {
    "f32": Format(0, 1, ()),
    "f16": Format(1, 1, ()),
    "bf16": Format(30, 1, ()),
    "q8_0": Format(8, 32, (1 / 74, 32)),
    "q4_0": Format(2, 32, (1 / 4.6, 16)),
    "q4_1": Format(3, 32, (1 / 4.6, -7.5 / 4.6, 16)),
    "q5_0": Format(6, 32, (1 / 9.2, 20)),
    "q5_1": Format(7, 32, (1 / 9.2, -15.5 / 9.2, 20)),
    "q2_k": Format(10, 256, (80, 1 / 11, 1.5 / 11)),
    "q3_k": Format(11, 256, (108, 1 / 42)),
    "q4_k": Format(12, 256, (1 / 200, 7.5 / 200, 140)),
    "q5_k": Format(13, 256, (1 / 400, 15.5 / 400, 172)),
    "q6_k": Format(14, 256, (208, 1 / 1370)),
    "iq4_nl": Format(20, 32, (1 / 71, 16)),
    "iq4_xs": Format(23, 256, (1 / 1310, 134)),
    "iq2_xxs": Format(16, 256, (1 / 55, 64)),
    "iq2_xs": Format(17, 256, (1 / 50, 72)),
    "iq2_s": Format(22, 256, (1 / 55, 80)),
    "iq3_xxs": Format(18, 256, (1 / 150, 96)),
    "iq3_s": Format(21, 256, (1 / 130, 108)),
    "mxfp4": Format(39, 32, (PowerOfTwo(1 / 2.7), 16)),
    "q1_0": Format(41, 128, (1.0, 16)),
    "q2_0": Format(42, 64, (1 / 1.2, 16)),
    "nvfp4": Format(40, 64, (FourScales(1 / 2.7), 32)),
    "tq1_0": Format(34, 256, (52, 1.2)),
    "tq2_0": Format(35, 256, (64, 1 / 1.2)),
    "iq1_s": Format(19, 256, (1 / 7, 48)),
    "iq1_m": Format(29, 256, (48, SplitHalf(1 / 7))),
}
FIELD_BYTES = {PowerOfTwo: 1, float: 2, FourScales: 4, SplitHalf: 8}

SHAPES = {
    "135m": Shape(576, 30, 9, 3, 64, 1536, 49152),
    "1b": Shape(2048, 16, 32, 8, 64, 8192, 128256),
    "3b": Shape(3072, 28, 24, 8, 128, 8192, 128256),
    "7b": Shape(4096, 32, 32, 32, 128, 11008, 32000),
    "8b": Shape(4096, 32, 32, 8, 128, 14336, 128256),
    # A qwen3moe model; ffn is the width of an expert.
    "a3b": Shape(2048, 48, 32, 4, 128, 768, 151936, experts=128, used=8),
    "qwen35-0.8b": Shape(1024, 24, 8, 2, 256, 3584, 32000, v_heads=16),
    "qwen35-4b": Shape(2560, 32, 16, 4, 256, 9216, 32000, v_heads=32),
}
PERIOD = 4001  # number of blocks before they repeat


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def pair(key, kind, value):
    if kind == STR:
        body = text(value)
    elif kind == ARR:
        of, values = value
        body = struct.pack("<IQ", of, len(values)) + b"".join(
            text(v) if of == STR else struct.pack("<i", v) for v in values
        )
    else:
        body = struct.pack("<f" if kind == F32 else "<I", value)
    return text(key) + struct.pack("<I", kind) + body


def vocabulary(n):
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    letters = [chr(b) if b in plain else chr(next(spare)) for b in range(256)]
    return ["<|endoftext|>"] + letters + [f"t{i}" for i in range(n - 257)]


def half(value):
    return struct.pack("<e", value)


FLOATS = {
    "f32": lambda value: struct.pack("<f", value),
    "f16": half,
    "bf16": lambda value: struct.pack("<f", value)[2:],
}


def block_bytes(name):
    if name in FLOATS:
        return len(FLOATS[name](0))
    return sum(
        field if isinstance(field, int) else FIELD_BYTES[type(field)]
        for field in FORMATS[name].fields
    )


def split_half(value, rng):
    """Four scales of 12 random bits with four bits of an f16 above each."""
    bits = struct.unpack("<H", half(value))[0]
    return struct.pack("<4H", *(rng.getrandbits(12) | (bits >> 4 * i & 15) << 12 for i in range(4)))


def blocks(name, cols, rng):
    """A period of blocks with values of about 1 / sqrt(cols) in size."""
    size = cols**-0.5
    if name in FLOATS:
        return b"".join(FLOATS[name](rng.uniform(-1.7, 1.7) * size) for _ in range(PERIOD))
    out = bytearray()
    for _ in range(PERIOD):
        for field in FORMATS[name].fields:
            if isinstance(field, int):
                out += rng.randbytes(field)
            elif isinstance(field, PowerOfTwo):
                out.append(127 + round(math.log2(size * field.scale)))
            elif isinstance(field, FourScales):
                out += bytes([8 * max(7 + round(math.log2(size * field.scale)), 1)] * 4)
            elif isinstance(field, SplitHalf):
                out += split_half(size * field.scale, rng)
            else:
                out += half(size * field)
    return bytes(out)


def attention(s):
    yield "attn_q.weight", s.dim, s.heads * s.head * (2 if s.v_heads else 1)
    yield "attn_k.weight", s.dim, s.kv_heads * s.head
    yield "attn_v.weight", s.dim, s.kv_heads * s.head
    if s.v_heads or s.experts:
        yield "attn_q_norm.weight", s.head
        yield "attn_k_norm.weight", s.head
    yield "attn_output.weight", s.heads * s.head, s.dim


def delta(s):
    inner = s.v_heads * STATE
    cols = inner + 2 * s.k_heads * STATE
    yield "attn_qkv.weight", s.dim, cols
    yield "attn_gate.weight", s.dim, inner
    yield "ssm_alpha.weight", s.dim, s.v_heads
    yield "ssm_beta.weight", s.dim, s.v_heads
    yield "ssm_conv1d.weight", KERNEL, cols
    yield "ssm_dt.bias", s.v_heads
    yield "ssm_a", s.v_heads
    yield "ssm_norm.weight", STATE
    yield "ssm_out.weight", inner, s.dim


def layout(s):
    yield "token_embd.weight", s.dim, s.vocab
    yield "output_norm.weight", s.dim
    for i in range(s.layers):
        mixer = delta if s.v_heads and (i + 1) % 4 else attention
        for name, *dims in (
            ("attn_norm.weight", s.dim),
            *mixer(s),
            ("post_attention_norm.weight" if s.v_heads else "ffn_norm.weight", s.dim),
            *(mixture(s) if s.experts else dense_ffn(s)),
        ):
            yield f"blk.{i}.{name}", *dims


def dense_ffn(s):
    return (
        ("ffn_gate.weight", s.dim, s.ffn),
        ("ffn_up.weight", s.dim, s.ffn),
        ("ffn_down.weight", s.ffn, s.dim),
    )


def mixture(s):
    return (
        ("ffn_gate_inp.weight", s.dim, s.experts),
        ("ffn_gate_exps.weight", s.dim, s.ffn, s.experts),
        ("ffn_up_exps.weight", s.dim, s.ffn, s.experts),
        ("ffn_down_exps.weight", s.ffn, s.dim, s.experts),
    )


def format_of(shape, name, dims):
    if len(dims) == 1 or "ssm_conv1d" in name or "ffn_gate_inp" in name:
        return "f32"
    if shape.format:
        return shape.format
    if dims[0] % 256:
        return "q8_0"
    return "q6_k" if name.startswith("token_embd") or ".attn_v." in name else "q4_k"


def architecture_pairs(s):
    """The keys of the architecture, without its name before them."""
    yield "context_length", U32, s.context
    yield "embedding_length", U32, s.dim
    yield "block_count", U32, s.layers
    yield "feed_forward_length", U32, s.ffn
    yield "attention.head_count", U32, s.heads
    yield "attention.head_count_kv", U32, s.kv_heads
    yield "rope.dimension_count", U32, 64 if s.v_heads else s.head
    yield "rope.freq_base", F32, 500000.0
    yield "attention.layer_norm_rms_epsilon", F32, 1e-5
    if s.experts or s.v_heads:
        yield "attention.key_length", U32, s.head
        yield "attention.value_length", U32, s.head
    if s.experts:
        yield "expert_count", U32, s.experts
        yield "expert_used_count", U32, s.used
        yield "expert_feed_forward_length", U32, s.ffn
    if not s.v_heads:
        return
    yield "rope.dimension_sections", ARR, (I32, [11, 11, 10, 0])
    yield "ssm.conv_kernel", U32, KERNEL
    yield "ssm.state_size", U32, STATE
    yield "ssm.inner_size", U32, s.v_heads * STATE
    yield "ssm.time_step_rank", U32, s.v_heads
    yield "ssm.group_count", U32, s.k_heads


def write_model(path, s, name="random"):
    family = "qwen35" if s.v_heads else "qwen3moe" if s.experts else "llama"
    pairs = [
        ("general.architecture", STR, family),
        ("general.name", STR, name),
        *((f"{family}.{key}", *rest) for key, *rest in architecture_pairs(s)),
        ("tokenizer.ggml.model", STR, "gpt2"),
        ("tokenizer.ggml.pre", STR, "smollm"),
        ("tokenizer.ggml.tokens", ARR, (STR, vocabulary(s.vocab))),
        ("tokenizer.ggml.token_type", ARR, (I32, [3] + [1] * (s.vocab - 1))),
        ("tokenizer.ggml.merges", ARR, (STR, ["t 0"])),
        ("tokenizer.ggml.bos_token_id", U32, 0),
        ("tokenizer.ggml.eos_token_id", U32, 0),
    ]
    rng, infos, at, sizes = random.Random(1), b"", 0, []
    for tensor, *dims in layout(s):
        kind = format_of(s, tensor, dims)
        n = math.prod(dims)
        n_bytes = n // FORMATS[kind].block * block_bytes(kind)
        infos += text(tensor) + struct.pack(
            f"<I{len(dims)}QIQ", len(dims), *dims, FORMATS[kind].type, at
        )
        constant = len(dims) == 1 or "ssm_conv1d" in tensor
        key = (-1 if tensor.endswith("ssm_a") else 1) if constant else (kind, dims[0])
        sizes.append((key, n_bytes))
        at += (n_bytes + 31) // 32 * 32
    head_bytes = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(sizes), len(pairs))
        + b"".join(pair(*p) for p in pairs)
        + infos
    )
    periods = {}
    with open(path, "wb") as f:
        f.write(head_bytes + bytes(-len(head_bytes) % 32))
        for key, n in sizes:  # of a vector, the key is its values
            if isinstance(key, tuple) and key not in periods:
                periods[key] = blocks(*key, rng)
            period = periods[key] if isinstance(key, tuple) else FLOATS["f32"](key) * (n // 4)
            for done in range(0, n, len(period)):
                f.write(period[: n - done])
            f.write(bytes(-n % 32))


def main():
    names, changes = sys.argv[1].split(",") if len(sys.argv) == 3 else [""], {}
    try:
        for change in names[1:]:
            field, value = change.split("=")
            changes[field] = value if field == "format" else int(value)
        shape = SHAPES[names[0]]._replace(**changes)
        if shape.format and shape.dim % FORMATS[shape.format].block:
            raise ValueError
    except (KeyError, ValueError):
        sys.exit(
            f"random_model.py: expected SHAPE FILE, one of {', '.join(SHAPES)}, with changes of "
            f"{', '.join(Shape._fields)}, found {sys.argv[1:]}"
        )
    write_model(sys.argv[2], shape, f"random {sys.argv[1]}")


if __name__ == "__main__":
    main()
