"""One Spec per rule that files of many families follow."""

from .cases import HEAD_KEYS, NEOX, WINDOW, divisors, exaone4, gemma3, glm4, olmo3
from .cases_experts import deepseek2, gpt_oss, qwen3moe
from .cases_gemma4 import QUANTISED_GEMMA4
from .forward import Spec


def with_mtp(spec):
    spec.mtp = 1
    return spec


def yarn(arch, **keys):
    """YaRN with the betas of the file, which only few families read."""
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32,
        **keys,
    }
    rope = {**NEOX, "factor": 4.0, "yarn": (32, 32.0, 1.0)}
    return Spec(arch, keys, rope=rope, biases="qkv" if arch == "qwen2" else "")


def per_layer_arrays():
    """Head counts and FFN widths by layer in a family that has none of its own."""
    return Spec(
        "llama",
        {**HEAD_KEYS, "rope.dimension_count": 16},
        heads=[4, 2, 4, 6],
        kv_heads=[2, 1, 4, 2],
        ffn=[96, 64, 32, 128],
        tied=False,
    )


def patterned(pattern):
    spec = gemma3()
    spec.keys["attention.sliding_window_pattern"] = pattern
    spec.windows, spec.layers = pattern, len(pattern)
    return spec


COMMON = {
    "C1 glm4 with an MTP block": lambda: with_mtp(glm4()),
    "C1 exaone4 with an MTP block": lambda: with_mtp(exaone4()),
    "C2 fused QKV": lambda: Spec("llama", fused_qkv=True, tied=False),
    "C2 fused QKV with its bias": lambda: Spec("qwen2", rope=NEOX, fused_qkv=True, biases="f"),
    "C2 fused QKV, separate biases": lambda: Spec("qwen2", rope=NEOX, fused_qkv=True, biases="qkv"),
    "C3 llama, all biases": lambda: Spec("llama", biases="qkvogud"),
    "C3 granite, all biases": lambda: Spec(
        "granite", {"logit_scale": 2.0}, biases="qkvogud", logit_scale=0.5
    ),
    "C3 fused QKV and biases": lambda: Spec("llama", fused_qkv=True, biases="fogud", tied=False),
    "C4 scales": lambda: Spec("llama", scales="qkvogud", tied=False),
    "C4 scale of the output": lambda: Spec("qwen2", rope=NEOX, out_scale=True, tied=False),
    "C4 scales before biases": lambda: Spec("llama", scales="qkvo", biases="qkv", tied=False),
    "C5 tied qwen2": lambda: Spec("qwen2", rope=NEOX, biases="qkv"),
    "C5 untied qwen3": lambda: Spec("qwen3", {**HEAD_KEYS}, rope=NEOX, qk="head", tied=False),
    "C6 equal arrays": lambda: Spec(
        "llama", heads=[4] * 4, kv_heads=[2] * 4, ffn=[96] * 4, tied=False
    ),
    "C6 arrays": per_layer_arrays,
    "C7 pattern": lambda: patterned([False, True, True, False, True]),
    "C7 pattern of olmo2": lambda: olmo3((False, True, False, False), scaling=False),
    "C7 pattern all windows": lambda: patterned([True, True, True]),
    "C7 pattern no windows": lambda: patterned([False, False, False]),
    "C8 defaults": lambda: Spec(
        "llama",
        {"attention.head_count_kv": None, "rope.freq_base": None},
        kv_heads=4,
        rope={"base": 1e4},
    ),
    "C8 linear factor": lambda: Spec(
        "qwen3", {**HEAD_KEYS, "rope.scaling.factor": 4.0}, rope={**NEOX, "factor": 4.0}, qk="head"
    ),
    "C8 rope_freqs": lambda: Spec("llama", rope={"divisors": divisors(8)}),
    "C9 YaRN": lambda: yarn("qwen2", **{"rope.scaling.yarn_attn_factor": 1.5}),
    "C9 attn_factor": lambda: scaled_yarn(),
    "C10 betas": lambda: yarn(
        "qwen2", **{"rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 4.0}
    ),
    "C11 gemma3, linear": lambda: gemma3("linear"),
    "C13 mistral3 as llama": lambda: Spec("mistral3", {**HEAD_KEYS}, tied=False),
}


def scaled_yarn():
    spec = yarn("qwen2", **{"rope.scaling.attn_factor": 0.75})
    spec.rope["gain"] = 0.75
    return spec


def wide(spec):
    """Columns in multiples of 256, which Q4_K needs."""
    spec.dim, spec.ffn, spec.head, spec.layers, spec.heads = 256, 256, 64, 2, 4
    if "attention.key_length" in spec.keys:
        spec.keys |= {"attention.key_length": 64, "attention.value_length": 64}
    return spec


def all_experts(spec):
    """A token has all experts, since rounded activations may choose others."""
    spec.experts.used = spec.experts.n
    spec.keys["expert_used_count"] = spec.experts.n
    return spec


# Matrices in Q8_0, in Q4_K where their columns are a multiple of 256.
QUANTISED = {
    **QUANTISED_GEMMA4,
    "Q8_0 llama": lambda: Spec("llama", biases="qkv", scales="qkvogud"),
    "Q8_0 glm4": glm4,
    "Q8_0 fused QKV": lambda: Spec("qwen2", rope=NEOX, fused_qkv=True, biases="qkv", tied=False),
    "Q8_0 qwen3moe": lambda: all_experts(qwen3moe()),
    "Q8_0 gpt-oss": lambda: all_experts(gpt_oss()),
    "Q8_0 deepseek2": lambda: deepseek2(yarn=False, experts=False, q_dim=32, key=32),
    "Q4_K llama": lambda: wide(Spec("llama")),
    "Q4_K qwen3": lambda: wide(Spec("qwen3", {**HEAD_KEYS}, rope=NEOX, qk="head", tied=False)),
}
