#!/usr/bin/env python3
"""Plans models of known shapes in several budgets, from files that are only a header.

    plan_shapes.py BINARY [--file NAME DIR]

Rewrites docs/data/plans.jsonl, from which scripts/tables.py makes a table of docs/models.md.
--file writes the file of one model, whose weights are a hole, and stops."""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/tools/lib"))
import gguf_writer as gguf  # noqa: E402

GIB = 1 << 30
BUDGETS = (4 * GIB, 8 * GIB, 12 * GIB)
# GGUF type, values and bytes of a block.
F32, Q4_0, Q8_0, MXFP4 = (0, 1, 4), (2, 32, 18), (8, 32, 34), (39, 32, 17)
Q4_K, Q6_K = (12, 256, 144), (14, 256, 210)


def attention(dim, heads, kv_heads, head, kind, gated=False):
    yield "attn_q.weight", kind, dim, heads * head * (2 if gated else 1)
    yield "attn_k.weight", kind, dim, kv_heads * head
    yield "attn_v.weight", kind, dim, kv_heads * head
    yield "attn_output.weight", kind, heads * head, dim


def qk_norms(head):
    yield "attn_q_norm.weight", F32, head
    yield "attn_k_norm.weight", F32, head


def dense(dim, ffn, stem="", down=Q4_K):
    yield f"ffn_gate{stem}.weight", Q4_K, dim, ffn
    yield f"ffn_up{stem}.weight", Q4_K, dim, ffn
    yield f"ffn_down{stem}.weight", down, ffn, dim


def experts(dim, ffn, n, kind):
    yield "ffn_gate_inp.weight", F32, dim, n
    yield "ffn_gate_exps.weight", kind, dim, ffn, n
    yield "ffn_up_exps.weight", kind, dim, ffn, n
    yield "ffn_down_exps.weight", kind, ffn, dim, n


def delta(dim, v_heads, k_heads, state):
    inner = v_heads * state
    cols = inner + 2 * k_heads * state
    yield "attn_qkv.weight", Q4_K, dim, cols
    yield "attn_gate.weight", Q4_K, dim, inner
    yield "ssm_alpha.weight", Q8_0, dim, v_heads
    yield "ssm_beta.weight", Q8_0, dim, v_heads
    yield "ssm_conv1d.weight", F32, 4, cols
    yield "ssm_dt.bias", F32, v_heads
    yield "ssm_a", F32, v_heads
    yield "ssm_norm.weight", F32, state
    yield "ssm_out.weight", Q4_K, inner, dim


def ends(dim, vocab, kind, tied):
    yield "token_embd.weight", kind, dim, vocab
    yield "output_norm.weight", F32, dim
    if not tied:
        yield "output.weight", kind, dim, vocab


def keys(dim, layers, heads, kv_heads, head, ffn, context, eps=1e-6, **more):
    return {
        "context_length": context,
        "embedding_length": dim,
        "block_count": layers,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": eps,
        **more,
    }


def delta_keys(v_heads, k_heads, state):
    return {
        "rope.dimension_sections": [11, 11, 10, 0],
        "rope.dimension_count": 64,
        "rope.freq_base": 1e7,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": v_heads * state,
        "ssm.state_size": state,
        "ssm.time_step_rank": v_heads,
        "ssm.group_count": k_heads,
    }


def qwen35(il, dim, heads, kv_heads, v_heads):
    yield "attn_norm.weight", F32, dim
    if (il + 1) % 4:
        yield from delta(dim, v_heads, 16, 128)
    else:
        yield from attention(dim, heads, kv_heads, 256, Q4_K, gated=True)
        yield from qk_norms(256)
    yield "post_attention_norm.weight", F32, dim


def qwen35_4b():
    pairs = keys(2560, 32, 16, 4, 256, 9216, 262144, **delta_keys(32, 16, 128))
    blocks = [[*qwen35(il, 2560, 16, 4, 32), *dense(2560, 9216)] for il in range(32)]
    return "qwen35", pairs, [*ends(2560, 248320, Q6_K, True)], blocks


def qwen36_35b_a3b():
    pairs = keys(2048, 40, 16, 2, 256, 512, 262144, **delta_keys(32, 16, 128))
    pairs |= {"expert_count": 256, "expert_used_count": 8}
    pairs |= {"expert_feed_forward_length": 512, "expert_shared_feed_forward_length": 512}
    shared = [("ffn_gate_inp_shexp.weight", F32, 2048), *dense(2048, 512, "_shexp")]
    blocks = [
        [*qwen35(il, 2048, 16, 2, 32), *experts(2048, 512, 256, Q4_K), *shared] for il in range(40)
    ]
    return "qwen35moe", pairs, [*ends(2048, 248320, Q6_K, False)], blocks


def gpt_oss(il):
    yield "attn_norm.weight", F32, 2880
    for name, *rest in attention(2880, 64, 8, 64, Q8_0):
        yield name, *rest
        yield name.replace("weight", "bias"), F32, rest[2]
    yield "attn_sinks.weight", F32, 64
    yield "post_attention_norm.weight", F32, 2880
    yield from experts(2880, 2880, 32, MXFP4)
    yield "ffn_gate_inp.bias", F32, 32
    for stem in ("gate", "up", "down"):
        yield f"ffn_{stem}_exps.bias", F32, 2880, 32


def gpt_oss_20b():
    pairs = keys(2880, 24, 64, 8, 64, 2880, 131072, eps=1e-5)
    pairs |= {"expert_count": 32, "expert_used_count": 4, "expert_feed_forward_length": 2880}
    pairs |= {"attention.sliding_window": 128, "rope.freq_base": 150000.0}
    pairs |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 32.0}
    pairs |= {"rope.scaling.original_context_length": 4096}
    return "gpt-oss", pairs, [*ends(2880, 201088, Q8_0, False)], [[*gpt_oss(i)] for i in range(24)]


def gemma4(il):
    head = 512 if (il + 1) % 6 == 0 else 256
    yield "attn_norm.weight", F32, 2560
    yield from attention(2560, 8, 2, head, Q4_K)
    yield from qk_norms(head)
    for name in ("post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"):
        yield f"{name}.weight", F32, 2560
    yield from dense(2560, 10240)
    yield "inp_gate.weight", Q4_K, 2560, 256
    yield "proj.weight", Q4_K, 256, 2560
    yield "layer_output_scale.weight", F32, 1


def gemma4_e4b():
    pairs = keys(2560, 42, 8, 2, 512, 10240, 131072)
    pairs |= {"attention.key_length_swa": 256, "attention.value_length_swa": 256}
    pairs |= {"attention.sliding_window": 512, "attention.shared_kv_layers": 18}
    pairs |= {"attention.sliding_window_pattern": [(il + 1) % 6 != 0 for il in range(42)]}
    pairs |= {"embedding_length_per_layer_input": 256, "final_logit_softcapping": 30.0}
    pairs |= {"rope.dimension_count": 512, "rope.dimension_count_swa": 256}
    pairs |= {"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4}
    whole = [
        *ends(2560, 262144, Q6_K, True),
        ("per_layer_token_embd.weight", Q6_K, 42 * 256, 262144),
        ("per_layer_model_proj.weight", Q8_0, 2560, 42 * 256),
        ("per_layer_proj_norm.weight", F32, 256),
        ("rope_freqs.weight", F32, 256),
    ]
    return "gemma4", pairs, whole, [[*gemma4(il)] for il in range(42)]


def latent(dim, heads, key, value):
    yield "attn_norm.weight", F32, dim
    yield "attn_q.weight", Q4_K, dim, heads * (key + 64)
    yield "attn_kv_a_mqa.weight", Q4_K, dim, 512 + 64
    yield "attn_kv_a_norm.weight", F32, 512
    yield "attn_k_b.weight", Q8_0, key, 512, heads
    yield "attn_v_b.weight", Q4_K, 512, value, heads
    yield "attn_output.weight", Q4_K, heads * value, dim
    yield "ffn_norm.weight", F32, dim


def deepseek_v2_lite():
    pairs = keys(2048, 27, 16, 1, 576, 10944, 163840)
    pairs |= {"attention.kv_lora_rank": 512, "rope.dimension_count": 64}
    pairs |= {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    pairs |= {"expert_count": 64, "expert_used_count": 6, "expert_feed_forward_length": 1408}
    pairs |= {"expert_shared_count": 2, "leading_dense_block_count": 1}
    pairs |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 40.0}
    pairs |= {"rope.scaling.original_context_length": 4096}
    pairs |= {"rope.scaling.yarn_log_multiplier": 0.0707}
    mixture = [*experts(2048, 1408, 64, Q4_0), *dense(2048, 2816, "_shexp")]
    first = [*dense(2048, 10944, down=Q4_0)]
    blocks = [[*latent(2048, 16, 128, 128), *(mixture if il else first)] for il in range(27)]
    return "deepseek2", pairs, [*ends(2048, 102400, Q6_K, False)], blocks


MODELS = {
    "Qwen3.5-4B": qwen35_4b,
    "Gemma 4 E4B": gemma4_e4b,
    "DeepSeek-V2-Lite": deepseek_v2_lite,
    "gpt-oss-20b": gpt_oss_20b,
    "Qwen3.6-35B-A3B": qwen36_35b_a3b,
}


def write_header(path, name):
    architecture, pairs, whole, blocks = MODELS[name]()
    vocab = whole[0][-1]
    pairs = {f"{architecture}.{key}": value for key, value in pairs.items()}
    named = {"general.architecture": architecture, "general.name": name}
    pairs = {**named, **pairs, **gguf.tokenizer_pairs(vocab)}
    layers = [(f"blk.{il}.{n}", *rest) for il, block in enumerate(blocks) for n, *rest in block]
    infos, at = [], 0
    for tensor, (kind, block, size), *dims in [*whole, *layers]:
        info = struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        infos.append(gguf.text(tensor) + info)
        at += -(-(math.prod(dims) // block * size) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs))
    head += b"".join(gguf.pair(*p) for p in pairs.items()) + b"".join(infos)
    head += bytes(-len(head) % 32)
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(len(head) + at)


def plan(binary, path, budget):
    command = [binary, "plan", "-m", path, "--device", "cpu", "--memory", str(budget), "--json"]
    r = subprocess.run(command, capture_output=True, text=True)
    if r.returncode not in (0, 4):  # 4: does not fit
        sys.exit(r.stderr)
    return json.loads(r.stdout)


def main():
    if len(sys.argv) == 5 and sys.argv[2] == "--file" and sys.argv[3] in MODELS:
        return write_header(os.path.join(sys.argv[4], sys.argv[3] + ".gguf"), sys.argv[3])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            path = os.path.join(folder, "model.gguf")
            write_header(path, name)
            for budget in BUDGETS:
                p = plan(sys.argv[1], path, budget)
                regions = {r["name"]: r["bytes"] for r in p["regions"]}
                row = {k: p[k] for k in ("budget_bytes", "fits", "total_bytes", "smallest_bytes")}
                row |= {k: p[k] for k in ("context", "slots", "recipe", "bytes_per_token")}
                row |= {k: regions.get(k, 0) for k in ("weights", "cache", "state")}
                lines.append(json.dumps({"model": name, **row}))
    (ROOT / "docs/data/plans.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
