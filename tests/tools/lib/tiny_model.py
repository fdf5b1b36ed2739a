"""Writes a GGUF model of a few hundred kilobytes with random weights.

The model is a llama with two layers, byte-level BPE and the chatml template.
"""

import random
import struct

U32, F32, BOOL, STR, ARR, I32 = 4, 6, 7, 8, 9, 5
DIM, HEAD, N_HEADS, N_KV, FFN, LAYERS, CONTEXT = 64, 32, 2, 1, 96, 2, 256
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def pair(key, kind, value):
    body = {
        U32: lambda: struct.pack("<I", value),
        F32: lambda: struct.pack("<f", value),
        BOOL: lambda: struct.pack("<?", value),
        STR: lambda: text(value),
        ARR: lambda: struct.pack("<IQ", value[0], len(value[1]))
        + b"".join(text(v) if value[0] == STR else struct.pack("<i", v) for v in value[1]),
    }
    return text(key) + struct.pack("<I", kind) + body[kind]()


def vocabulary():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    letters = [chr(b) if b in plain else chr(next(spare)) for b in range(256)]
    merges = ["h e", "l l", "he ll", "hell o", "\u0120 w"]
    tokens = (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        + letters
        + [m.replace(" ", "") for m in merges]
    )
    return tokens, [3] * 3 + [1] * (len(tokens) - 3), merges


def write_model(path, template=CHATML, seed=1, architecture="llama", dim=DIM, weights=None):
    """Writes the model file.

    weights(name, n) gives the type and the bytes of a matrix whose rows have a multiple of 256
    values. All other matrices are F32.
    """
    tokens, types, merges = vocabulary()
    a = architecture + "."
    pairs = [
        ("general.architecture", STR, architecture),
        ("general.name", STR, "tiny"),
        (a + "context_length", U32, CONTEXT),
        (a + "embedding_length", U32, dim),
        (a + "block_count", U32, LAYERS),
        (a + "feed_forward_length", U32, FFN),
        (a + "attention.head_count", U32, N_HEADS),
        (a + "attention.head_count_kv", U32, N_KV),
        (a + "rope.dimension_count", U32, HEAD),
        (a + "rope.freq_base", F32, 10000.0),
        (a + "attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("tokenizer.ggml.model", STR, "gpt2"),
        ("tokenizer.ggml.pre", STR, "smollm"),
        ("tokenizer.ggml.tokens", ARR, (STR, tokens)),
        ("tokenizer.ggml.token_type", ARR, (I32, types)),
        ("tokenizer.ggml.merges", ARR, (STR, merges)),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
    ]
    if dim != DIM:
        pairs += [
            (a + "attention.key_length", U32, HEAD),
            (a + "attention.value_length", U32, HEAD),
        ]
    if template:
        pairs.append(("tokenizer.chat_template", STR, template))
    tensors = [("token_embd", dim, len(tokens)), ("output_norm", dim)]
    for i in range(LAYERS):
        tensors += [
            (f"blk.{i}.{name}", *dims)
            for name, *dims in (
                ("attn_norm", dim),
                ("attn_q", dim, N_HEADS * HEAD),
                ("attn_k", dim, N_KV * HEAD),
                ("attn_v", dim, N_KV * HEAD),
                ("attn_output", N_HEADS * HEAD, dim),
                ("ffn_norm", dim),
                ("ffn_gate", dim, FFN),
                ("ffn_up", dim, FFN),
                ("ffn_down", FFN, dim),
            )
        ]
    rng, infos, data = random.Random(seed), b"", b""
    for name, *dims in tensors:
        n = dims[0] * (dims[1] if len(dims) > 1 else 1)
        if weights and len(dims) > 1 and dims[0] % 256 == 0:
            kind, values = weights(name, n)
        else:
            kind, values = 0, struct.pack(
                f"<{n}f", *([1.0] * n if len(dims) == 1 else [rng.gauss(0, 0.3) for _ in range(n)])
            )
        infos += text(name + ".weight") + struct.pack(
            f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data)
        )
        data += values + bytes(-len(values) % 32)
    head = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(tensors), len(pairs))
        + b"".join(pair(*p) for p in pairs)
        + infos
    )
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)
