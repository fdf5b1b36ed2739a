#!/usr/bin/env python3
"""What a decoded token costs, by layers, by context and by vocabulary: models of random weights (Q4_K, the vocabulary
Q6_K, 1024 wide, 16 heads over 4), measured by `bench --ops`.

    tools/cost_table.py build/knapsack [--record FILE] [-t THREADS]

--record appends a line of JSON for each measurement, as in tools/results/. Needs 350 MB in the temporary folder."""
import argparse
import datetime
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

DIM, HEADS, KV_HEADS, HEAD, FFN, MAX_CONTEXT = 1024, 16, 4, 64, 3072, 32768
LAYERS, CONTEXT, VOCABULARY = 8, 0, 32768  # while another one varies
CONTEXT_LAYERS = 4  # while the context does: reading 16K tokens takes long enough
SWEEPS = {"layers": [4, 8, 16, 32], "context": [0, 1024, 4096, 16384], "vocabulary": [8192, 32768, 131072]}
U32, F32_VALUE, STRING, ARRAY = 4, 6, 8, 9
F32, Q4_K, Q6_K = 0, 12, 14
BLOCK_BYTES = {Q4_K: 144, Q6_K: 210}  # of 256 values
SCALES = {Q4_K: ((0, 2e-4), (2, 1.5e-3)), Q6_K: ((208, 3e-5),)}  # where a block has which half float, else any bytes do
GROUPS = {"layers": ("matmul qkv", "matmul output", "matmul gate, up", "matmul down"), "vocabulary": ("matmul vocabulary",), "attention": ("attention",)}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, value):
    bodies = {U32: lambda: struct.pack("<I", value), F32_VALUE: lambda: struct.pack("<f", value), STRING: lambda: text(value),
              ARRAY: lambda: struct.pack("<IQ", STRING, len(value)) + b"".join(map(text, value))}
    return text(name) + struct.pack("<I", kind) + bodies[kind]()


def random_blocks(kind, n_values, rng):
    if kind == F32:
        return struct.pack("<f", 1.0) * n_values
    size, some = BLOCK_BYTES[kind], 1000  # so many different ones are enough
    blocks = bytearray(rng.randbytes(some * size))
    for at, scale in SCALES[kind]:
        for i, byte in enumerate(struct.pack("<e", scale)):
            blocks[at + i :: size] = bytes([byte]) * some
    n_bytes = n_values // 256 * size
    return (bytes(blocks) * (n_bytes // len(blocks) + 1))[:n_bytes]


def write_model(path, layers, vocabulary):
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    letters = [chr(b) if b in plain else chr(next(spare)) for b in range(256)]
    tokens = letters + [f"~{i}~" for i in range(vocabulary - 256)]
    keys = [("general.architecture", STRING, "llama"), ("llama.context_length", U32, MAX_CONTEXT), ("llama.embedding_length", U32, DIM),
            ("llama.block_count", U32, layers), ("llama.feed_forward_length", U32, FFN), ("llama.attention.head_count", U32, HEADS),
            ("llama.attention.head_count_kv", U32, KV_HEADS), ("llama.rope.dimension_count", U32, HEAD), ("llama.rope.freq_base", F32_VALUE, 1e5),
            ("llama.attention.layer_norm_rms_epsilon", F32_VALUE, 1e-5), ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
            ("tokenizer.ggml.tokens", ARRAY, tokens), ("tokenizer.ggml.merges", ARRAY, ["q z"])]
    tensors = [("token_embd", Q6_K, DIM, vocabulary), ("output_norm", F32, DIM, 1)]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}", *shape) for name, *shape in (
            ("attn_norm", F32, DIM, 1), ("attn_q", Q4_K, DIM, HEADS * HEAD), ("attn_k", Q4_K, DIM, KV_HEADS * HEAD), ("attn_v", Q4_K, DIM, KV_HEADS * HEAD),
            ("attn_output", Q4_K, HEADS * HEAD, DIM), ("ffn_norm", F32, DIM, 1), ("ffn_gate", Q4_K, DIM, FFN), ("ffn_up", Q4_K, DIM, FFN), ("ffn_down", Q4_K, FFN, DIM))]
    rng, infos, data, offset = random.Random(1), b"", [], 0
    for name, kind, cols, rows in tensors:
        dims = (cols, rows) if rows > 1 else (cols,)
        infos += text(name + ".weight") + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        values = random_blocks(kind, cols * rows, rng)
        data += [values, bytes(-len(values) % 32)]
        offset += len(values) + len(data[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(key(*k) for k in keys) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        f.writelines(data)


def measure(args, model, depths):
    """A row of bench for each depth."""
    command = [args.program, "bench", "-m", model, "-p", "0", "-n", str(args.tokens), "-d", ",".join(map(str, depths)), "-r", "7", "--ops", "--json", "--kv", "exact"]
    out = subprocess.run(command + (["-t", str(args.threads)] if args.threads else []), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return json.loads(out)


def row_of(row, **shape):
    shares = {op["op"]: op["share"] for op in row["ops"]}
    return {**shape, "tokens_per_second": round(row["tokens_per_second"]["median"], 1), "ms_per_token": round(1e3 / row["tokens_per_second"]["median"], 3),
            "gb_per_second": round(row["gb_per_second"], 2), "limit": row["limit"], "limit_share": round(row["limit_share"], 3),
            "shares": {name: round(share, 4) for name, share in shares.items()}, "device": row["device_name"]}


def sweep(args, by, folder):
    path = os.path.join(folder, "model.gguf")
    shape = {"layers": LAYERS, "context": CONTEXT, "vocabulary": VOCABULARY}
    values = getattr(args, by)
    if by == "context":
        shape["layers"] = CONTEXT_LAYERS
        write_model(path, CONTEXT_LAYERS, VOCABULARY)
        return [row_of(row, **{**shape, by: n}) for n, row in zip(values, measure(args, path, values))]
    rows = []
    for n in values:
        shape[by] = n
        write_model(path, shape["layers"], shape["vocabulary"])
        rows.append(row_of(measure(args, path, [CONTEXT])[0], **shape))
    return rows


def print_sweep(by, rows):
    print(f"\n{by:>10} {'ms/token':>9} {'GB/s':>7} {'of limit':>9}" + "".join(f" {g:>11}" for g in GROUPS) + f" {'the rest':>11}")
    for r in rows:
        parts = [sum(r["shares"].get(op, 0) for op in ops) for ops in GROUPS.values()]
        print(f"{r[by]:>10} {r['ms_per_token']:9.2f} {r['gb_per_second']:7.1f} {r['limit_share']:9.0%}" + "".join(f" {p:11.1%}" for p in [*parts, 1 - sum(parts)]))
    if len(rows) > 1:
        step = (rows[-1]["ms_per_token"] - rows[0]["ms_per_token"]) / (rows[-1][by] - rows[0][by])
        unit, times = ("a layer", 1) if by == "layers" else (f"1024 of {by}", 1024)
        print(f"{'':>10} {step * times:9.3f} ms for {unit}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("program")
    ap.add_argument("--record", metavar="FILE")
    ap.add_argument("-t", "--threads", type=int, default=0)
    ap.add_argument("-n", "--tokens", type=int, default=32)
    for by, values in SWEEPS.items():
        ap.add_argument("--" + by, type=lambda s: [int(n) for n in s.split(",") if n], default=values, metavar="N,...")
    args = ap.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        for by in SWEEPS:
            rows = sweep(args, by, folder) if getattr(args, by) else []
            if rows:
                print_sweep(by, rows)
            with open(args.record or os.devnull, "a", encoding="utf-8") as f:
                for r in rows:
                    f.write(json.dumps({"date": datetime.date.today().isoformat(), "commit": commit, "sweep": by, **r}, separators=(",", ":")) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
