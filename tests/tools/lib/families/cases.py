"""One Spec per family, and one per rule that many files follow (cases_common.py)."""

import math

from .cases_experts import EXPERTS, HEAD_KEYS, NEOX, WINDOW
from .cases_gemma4 import GEMMA4
from .cases_hybrids import HYBRIDS
from .cases_state import STATE
from .forward import Spec, f32, mscale
from .math64 import xielu


def divisors(n, seed=3):
    """Divisors of frequencies, as the tensor rope_freqs has them."""
    return [f32(1 + 3 * ((i * 37 + seed * 11) % 64) / 64) for i in range(n)]


def granite(finetuned=True):
    keys = {
        "attention.scale": 0.05,
        "embedding_scale": 3.0,
        "residual_scale": 0.4,
        "logit_scale": 6.0,
    }
    if not finetuned:
        keys["rope.scaling.finetuned"] = False
    return Spec(
        "granite",
        keys,
        has_rope=lambda il: finetuned,
        embed_scale=3,
        residual=f32(0.4),
        logit_scale=1 / 6,
        attn_scale=f32(0.05),
    )


def minicpm(with_keys):
    if with_keys:
        keys = {"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.0}
        scales = 3.0, f32(0.4), 1 / 2
    else:
        keys, scales = {}, (12.0, f32(1.4 / math.sqrt(4)), 64 / 256)
    return Spec("minicpm", keys, embed_scale=scales[0], residual=scales[1], logit_scale=scales[2])


def mistral3(log_multiplier, beta):
    context, factor = 8, 16.0
    keys = {
        **HEAD_KEYS,
        "rope.freq_base": 1e6,
        "rope.dimension_count": 16,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": context,
        "rope.scaling.yarn_beta_fast": 24.0,
        "rope.scaling.yarn_beta_slow": 2.0,
    }
    gain, temperature = 1.0, None
    if log_multiplier is not None:
        keys["rope.scaling.yarn_log_multiplier"] = log_multiplier
        gain = 1 / mscale(factor, log_multiplier)
    if beta:
        keys["attention.temperature_scale"] = beta
        temperature = lambda t: 1 + f32(beta) * math.log(1 + t // context)  # noqa: E731
    rope = {"base": 1e6, "factor": factor, "yarn": (context, 24.0, 2.0), "gain": gain}
    return Spec("mistral3", keys, rope=rope, temperature=temperature, tied=False)


def olmo3(pattern=(True, True, True, False), scaling=True):
    keys = {
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": list(pattern),
    }
    rope = dict(NEOX)
    if scaling:
        keys |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.yarn_attn_factor": 1.2079,
        }
        rope |= {"factor": 8.0, "yarn": (32, 32.0, 1.0)}
    return Spec(
        "olmo2",
        keys,
        rope=rope,
        window_rope=NEOX,
        windows=list(pattern),
        window=WINDOW,
        qk="row",
        pre=False,
        post=True,
        tied=False,
    )


def olmo2():
    return Spec("olmo2", rope=NEOX, qk="row", pre=False, post=True, tied=False)


def exaone4(layers=4):
    freqs = divisors(8)
    rope = {**NEOX, "divisors": freqs}
    if layers == 4:
        return Spec(
            "exaone4",
            {**HEAD_KEYS, "attention.sliding_window": WINDOW},
            rope=rope,
            qk="head",
            pre=False,
            post=True,
        )
    return Spec(
        "exaone4",
        {**HEAD_KEYS, "attention.sliding_window": WINDOW},
        layers=layers,
        dim=32,
        heads=2,
        kv_heads=1,
        ffn=32,
        rope=rope,
        has_rope=lambda il: il % 4 != 3,
        windows=[il % 4 != 3 for il in range(layers)],
        window=WINDOW,
        qk="head",
        pre=False,
        post=True,
    )


def hunyuan(alpha=0.0):
    keys = {**HEAD_KEYS}
    base = 10000.0
    if alpha:
        keys["rope.scaling.alpha"] = alpha
        base = f32(base * f32(alpha) ** (16 / 14))
    return Spec("hunyuan-dense", keys, rope={**NEOX, "base": base}, qk="head", qk_after_rope=True)


def glm4(neox=False):
    keys = {"rope.dimension_count": 8}
    if neox:
        keys["rope.dimension_sections"] = [1, 2, 1, 0]
    return Spec(
        "glm4",
        keys,
        rope={"n_rot": 8, "pairs": "neox" if neox else "norm"},
        post=True,
        fused_ffn=True,
        biases="" if neox else "qkv",
        tied=neox,
    )


GEMMA = {"rope": NEOX, "act": "gelu", "embed_scale": 8.0}


def gemma2(caps=()):
    keys = {**HEAD_KEYS, "attention.sliding_window": WINDOW}
    if caps:
        keys |= {"attn_logit_softcapping": caps[0], "final_logit_softcapping": caps[1]}
    attn_cap, final_cap = caps or (50.0, 30.0)
    return Spec(
        "gemma2",
        keys,
        **GEMMA,
        windows=[il % 2 == 0 for il in range(4)],
        window=WINDOW,
        post=True,
        attn_cap=attn_cap,
        final_cap=final_cap,
    )


def gemma3(scaling=""):
    keys = {**HEAD_KEYS, "rope.freq_base": 1e6, "attention.sliding_window": WINDOW}
    rope = {**NEOX, "base": 1e6}
    if scaling:
        keys |= {"rope.scaling.type": scaling, "rope.scaling.factor": 8.0}
        rope["factor"] = 8.0
    return Spec(
        "gemma3",
        keys,
        **{**GEMMA, "rope": rope},
        window_rope=NEOX,
        layers=7,
        windows=[il % 6 < 5 for il in range(7)],
        window=WINDOW,
        qk="head",
        post=True,
    )


def apertus():
    n, p = [0.3, 0.5, 0.2, 0.8], [0.4, 0.1, 0.9, 0.5]
    keys = {
        "=xielu.alpha_n": n,
        "=xielu.alpha_p": p,
        "=xielu.beta": [0.5] * 4,
        "=xielu.eps": [-1e-6] * 4,
    }
    act = lambda il: xielu(f32(n[il]), f32(p[il]), 0.5, -1e-6)  # noqa: E731
    return Spec("apertus", keys, rope=NEOX, qk="head", act=act, gated=False, tied=False)


def nanbeige(skip=False):
    keys = {**HEAD_KEYS, "num_loops": 2}
    if skip:
        keys["skip_loop_final_norm"] = True
    return Spec("nanbeige", keys, loops=2, loop_norm=not skip, tied=False)


LN_BIAS = {"norm": "ln+bias"}


def stablelm(parallel=False, qk=""):
    return Spec(
        "stablelm",
        {"rope.dimension_count": 4, "use_parallel_residual": parallel},
        **LN_BIAS,
        rope={**NEOX, "n_rot": 4},
        parallel=parallel,
        qk=qk,
        biases="" if qk else "qkv",
        tied=False,
    )


def command_r(layers=4):
    small = {"dim": 32, "heads": 2, "kv_heads": 1, "ffn": 32, "qk": "ln"} if layers > 4 else {}
    return Spec(
        "command-r",
        {"logit_scale": 0.25},
        norm="ln",
        layers=layers,
        parallel=True,
        logit_scale=0.25,
        **small,
    )


def cohere2():
    keys = {"attention.sliding_window": WINDOW, "logit_scale": 0.25, "rope.dimension_count": 16}
    windows = [il % 4 != 3 for il in range(4)]
    return Spec(
        "cohere2",
        keys,
        norm="ln",
        parallel=True,
        logit_scale=0.25,
        windows=windows,
        window=WINDOW,
        has_rope=lambda il: windows[il],
    )


def spark():
    pattern = [True, False, True, True]
    keys = {
        **HEAD_KEYS,
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": pattern,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
    }
    return Spec(
        "spark2_5",
        keys,
        rope={**NEOX, "base": 1e6},
        window_rope=NEOX,
        windows=pattern,
        window=WINDOW,
        gated_heads=True,
        act="gelu",
    )


def deci(ffn=(96, 64, 96, 32, 96)):
    return Spec(
        "deci",
        {**HEAD_KEYS, "rope.dimension_count": 16},
        layers=5,
        heads=[4, 0, 2, 4, 4],
        kv_heads=[2, 0, 1, 0, 4],
        ffn=list(ffn),
        tied=False,
    )


FAMILIES = {
    "llama": lambda: Spec("llama"),
    "granite": granite,
    "granite without RoPE": lambda: granite(False),
    "minicpm": lambda: minicpm(True),
    "minicpm defaults": lambda: minicpm(False),
    "mistral3": lambda: mistral3(1.0, 0.1),
    "mistral3 plain": lambda: mistral3(None, 0.0),
    "smollm3": lambda: Spec("smollm3", has_rope=lambda il: (il + 1) % 4 != 0),
    "olmo2": olmo2,
    "olmo3": olmo3,
    "exaone4": exaone4,
    "exaone4 64 layers": lambda: exaone4(64),
    "exaone": lambda: Spec("exaone", rope=NEOX),
    "hunyuan-dense": hunyuan,
    "hunyuan-dense alpha": lambda: hunyuan(8.0),
    "maincoder": lambda: Spec("maincoder", {**HEAD_KEYS}, qk="head", qk_after_rope=True),
    "ernie4_5": lambda: Spec("ernie4_5"),
    "seed_oss": lambda: Spec(
        "seed_oss",
        {**HEAD_KEYS},
        rope=NEOX,
        biases="qkv",
        ffn_norm="post_attention_norm",
        tied=False,
    ),
    "glm4": glm4,
    "glm4 sections": lambda: glm4(True),
    "gemma": lambda: Spec("gemma", {**HEAD_KEYS}, **GEMMA),
    "gemma2": lambda: gemma2((5.0, 7.0)),
    "gemma2 defaults": gemma2,
    "gemma3": gemma3,
    **GEMMA4,
    "qwen2": lambda: Spec("qwen2", rope=NEOX, biases="qkv"),
    "qwen3": lambda: Spec("qwen3", {**HEAD_KEYS}, rope=NEOX, qk="head"),
    "qwen2vl": lambda: Spec(
        "qwen2vl", {"rope.dimension_sections": [2, 3, 3, 0]}, rope=NEOX, biases="qkv", tied=False
    ),
    "qwen3vl": lambda: Spec(
        "qwen3vl",
        {**HEAD_KEYS, "rope.dimension_sections": [3, 3, 2, 0]},
        rope=NEOX,
        qk="head",
    ),
    "phi3": lambda: Spec(
        "phi3",
        {"rope.dimension_count": 12, "attention.sliding_window": WINDOW},
        rope={**NEOX, "n_rot": 12},
        fused_qkv=True,
        fused_ffn=True,
    ),
    "apertus": apertus,
    "arcee": lambda: Spec("arcee", act="relu2", gated=False),
    "nanbeige": nanbeige,
    "nanbeige skips the norm": lambda: nanbeige(True),
    "nemotron": lambda: Spec(
        "nemotron",
        {"rope.dimension_count": 8},
        **LN_BIAS,
        rope={**NEOX, "n_rot": 8},
        act="relu2",
        gated=False,
        tied=False,
    ),
    "starcoder2": lambda: Spec(
        "starcoder2", **LN_BIAS, rope=NEOX, act="gelu", gated=False, biases="qkvoud"
    ),
    "stablelm": stablelm,
    "stablelm parallel": lambda: stablelm(True),
    "stablelm QK norm": lambda: stablelm(True, "ln"),
    "phi2": lambda: Spec(
        "phi2",
        {"rope.dimension_count": 8},
        **LN_BIAS,
        rope={**NEOX, "n_rot": 8},
        kv_heads=4,
        parallel=True,
        act="gelu",
        gated=False,
        biases="qkvoud",
        out_bias=True,
        tied=False,
    ),
    "command-r": command_r,
    "command-r QK norm": lambda: command_r(64),
    "cohere2": cohere2,
    "spark2_5": spark,
    "bitnet": lambda: Spec("bitnet", rope=NEOX, sub_norms=True, scales="qkvogud"),
    "bitnet, its activation": lambda: Spec(
        "bitnet", {"hidden_activation": "relu2"}, rope=NEOX, sub_norms=True, act="relu2"
    ),
    "internlm2": lambda: Spec("internlm2", biases="qkv", tied=False),
    "xverse": lambda: Spec("xverse", tied=False),
    "pangu-embedded": lambda: Spec("pangu-embedded", rope=NEOX, biases="qkvo"),
    "jais2": lambda: Spec(
        "jais2", **LN_BIAS, rope=NEOX, act="relu2", gated=False, biases="qkvoud", tied=False
    ),
    "deci": deci,
    "deci, a layer without FFN": lambda: deci((96, 64, 0, 32, 96)),
    **EXPERTS,
    **STATE,
    **HYBRIDS,
}
