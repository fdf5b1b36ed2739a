#!/usr/bin/env python3
"""Writes a GGUF model with random weights in real formats, for speed measurements.

    random_model.py SHAPE FILE

SHAPE is a name of SHAPES with optional changes: 1b, 135m,layers=4 or 8b,vocab=32000,context=8192"""

import collections
import random
import struct
import sys

U32, F32, STR, ARR, I32 = 4, 6, 8, 9, 5
F32_TYPE, Q8_0, Q4_K, Q6_K = 0, 8, 12, 14
Shape = collections.namedtuple(
    "Shape", "dim layers heads kv_heads head ffn vocab context", defaults=(1 << 20,)
)
SHAPES = {
    "135m": Shape(576, 30, 9, 3, 64, 1536, 49152),
    "1b": Shape(2048, 16, 32, 8, 64, 8192, 128256),
    "3b": Shape(3072, 28, 24, 8, 128, 8192, 128256),
    "7b": Shape(4096, 32, 32, 32, 128, 11008, 32000),
    "8b": Shape(4096, 32, 32, 8, 128, 14336, 128256),
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


def blocks(kind, cols, rng):
    """A period of blocks with values of about 1 / sqrt(cols) in size."""
    size = cols**-0.5
    out = bytearray()
    for _ in range(PERIOD):
        if kind == Q8_0:
            out += half(size / 74) + rng.randbytes(32)
        elif kind == Q4_K:
            out += half(size / 200) + half(size / 200 * 7.5) + rng.randbytes(140)
        else:
            out += rng.randbytes(208) + half(size / 1370)
    return bytes(out)


def layout(s):
    yield "token_embd", s.dim, s.vocab
    yield "output_norm", s.dim
    for i in range(s.layers):
        for name, *dims in (
            ("attn_norm", s.dim),
            ("attn_q", s.dim, s.heads * s.head),
            ("attn_k", s.dim, s.kv_heads * s.head),
            ("attn_v", s.dim, s.kv_heads * s.head),
            ("attn_output", s.heads * s.head, s.dim),
            ("ffn_norm", s.dim),
            ("ffn_gate", s.dim, s.ffn),
            ("ffn_up", s.dim, s.ffn),
            ("ffn_down", s.ffn, s.dim),
        ):
            yield f"blk.{i}.{name}", *dims


def kind_of(name, dims):
    if len(dims) == 1:
        return F32_TYPE
    if dims[0] % 256:
        return Q8_0
    return Q6_K if name == "token_embd" or name.endswith("attn_v") else Q4_K


def write_model(path, s, name="random"):
    pairs = [
        ("general.architecture", STR, "llama"),
        ("general.name", STR, name),
        ("llama.context_length", U32, s.context),
        ("llama.embedding_length", U32, s.dim),
        ("llama.block_count", U32, s.layers),
        ("llama.feed_forward_length", U32, s.ffn),
        ("llama.attention.head_count", U32, s.heads),
        ("llama.attention.head_count_kv", U32, s.kv_heads),
        ("llama.rope.dimension_count", U32, s.head),
        ("llama.rope.freq_base", F32, 500000.0),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("tokenizer.ggml.model", STR, "gpt2"),
        ("tokenizer.ggml.pre", STR, "smollm"),
        ("tokenizer.ggml.tokens", ARR, (STR, vocabulary(s.vocab))),
        ("tokenizer.ggml.token_type", ARR, (I32, [3] + [1] * (s.vocab - 1))),
        ("tokenizer.ggml.merges", ARR, (STR, ["t 0"])),
        ("tokenizer.ggml.bos_token_id", U32, 0),
        ("tokenizer.ggml.eos_token_id", U32, 0),
    ]
    per_block = {F32_TYPE: (1, 4), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210)}
    rng, infos, at, sizes = random.Random(1), b"", 0, []
    for tensor, *dims in layout(s):
        kind = kind_of(tensor, dims)
        values, size = per_block[kind]
        n = dims[0] * (dims[1] if len(dims) > 1 else 1)
        infos += text(tensor + ".weight") + struct.pack(
            f"<I{len(dims)}QIQ", len(dims), *dims, kind, at
        )
        sizes.append((kind, dims[0], n // values * size))
        at += (n // values * size + 31) // 32 * 32
    head_bytes = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(sizes), len(pairs))
        + b"".join(pair(*p) for p in pairs)
        + infos
    )
    periods = {}
    with open(path, "wb") as f:
        f.write(head_bytes + bytes(-len(head_bytes) % 32))
        for kind, cols, n in sizes:
            if (kind, cols) not in periods:
                periods[kind, cols] = (
                    struct.pack(f"<{cols}f", *[1.0] * cols)
                    if kind == F32_TYPE
                    else blocks(kind, cols, rng)
                )
            period = periods[kind, cols]
            for done in range(0, n, len(period)):
                f.write(period[: n - done])
            f.write(bytes(-n % 32))


def main():
    names, sizes = sys.argv[1].split(",") if len(sys.argv) == 3 else [""], {}
    try:
        for size in names[1:]:
            field, number = size.split("=")
            sizes[field] = int(number)
        shape = SHAPES[names[0]]._replace(**sizes)
    except (KeyError, ValueError):
        sys.exit(
            f"random_model.py: expected a file and one of {', '.join(SHAPES)}, with changes of "
            f"{', '.join(Shape._fields)}, found {sys.argv[1:]}"
        )
    write_model(sys.argv[2], shape, f"random {sys.argv[1]}")


if __name__ == "__main__":
    main()
