"""Writes a GGUF model of a few hundred kilobytes with random weights.

The model is a llama with two layers, byte-level BPE and the chatml template.
"""

import random
import struct

import gguf_writer

DIM, HEAD, N_HEADS, N_KV, FFN, LAYERS, CONTEXT = 64, 32, 2, 1, 96, 2, 256
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def vocabulary(words=(), merged=False):
    merges = ["h e", "l l", "he ll", "hell o", "\u0120 w"]
    if merged:
        parts = dict.fromkeys(f"{w[:i]} {w[i]}" for w in words for i in range(1, len(w)))
        merges += [p for p in parts if p.replace(" ", "") not in words]
    tokens = (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        + gguf_writer.byte_letters()
        + [m.replace(" ", "") for m in merges]
        + [word.replace(" ", "\u0120") for word in words]
    )
    if merged:
        merges += [p for p in parts if p.replace(" ", "") in words]
    return tokens, [3] * 3 + [1] * (len(tokens) - 3), merges


def write_model(
    path,
    template=CHATML,
    seed=1,
    architecture="llama",
    dim=DIM,
    weights=None,
    context=CONTEXT,
    words=(),
    merged=False,
):
    """Writes the model file.

    weights(name, n) gives the type and the bytes of a matrix whose rows have a multiple of 256
    values. All other matrices are F32. With words, which are tokens, the model answers in them
    and never ends by itself. merged: they have merges, so an answer is tokenized as it was made.
    """
    tokens, types, merges = vocabulary(words, merged)
    a = architecture + "."
    pairs = {
        "general.architecture": architecture,
        "general.name": "tiny",
        a + "context_length": context,
        a + "embedding_length": dim,
        a + "block_count": LAYERS,
        a + "feed_forward_length": FFN,
        a + "attention.head_count": N_HEADS,
        a + "attention.head_count_kv": N_KV,
        a + "rope.dimension_count": HEAD,
        a + "rope.freq_base": 10000.0,
        a + "attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }
    if dim != DIM:
        pairs[a + "attention.key_length"] = pairs[a + "attention.value_length"] = HEAD
    if template:
        pairs["tokenizer.chat_template"] = template
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
    if words:
        tensors.append(("output", dim, len(tokens)))
    rng, written = random.Random(seed), {}
    for name, *dims in tensors:
        n = dims[0] * (dims[1] if len(dims) > 1 else 1)
        if weights and len(dims) > 1 and dims[0] % 256 == 0:
            kind, values = weights(name, n)
        else:
            kind, values = 0, struct.pack(
                f"<{n}f", *([1.0] * n if len(dims) == 1 else [rng.gauss(0, 0.3) for _ in range(n)])
            )
        if name == "output":  # all logits are small except those of words
            rest = (len(tokens) - len(words)) * dim
            values = bytes(4 * rest) + values[4 * rest :]
        written[name + ".weight"] = (dims, kind, values)
    with open(path, "wb") as f:
        f.write(gguf_writer.file_bytes(pairs, written))
