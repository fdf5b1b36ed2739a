"""One Spec per family with mixtures of experts, and per rule that their files follow."""

from .experts import Experts, swiglu_oai
from .forward import Spec, f32
from .latent import Latent

HEAD_KEYS = {"attention.key_length": 16, "attention.value_length": 16}
NEOX = {"pairs": "neox"}
WINDOW = 7


def mixture(arch, keys=None, experts=None, **spec):
    e = experts or Experts()
    return Spec(arch, {**(keys or {}), **e.keys()}, experts=e, **spec)


def qwen3moe(arch="qwen3moe", keys=None, **experts):
    e = Experts(**experts)
    return mixture(arch, {**HEAD_KEYS, **(keys or {})}, e, rope=NEOX, qk="head", tied=False)


def granitemoe(arch="granitemoe", keys=None, experts=None, **spec):
    scales = {
        "attention.scale": 0.05,
        "embedding_scale": 3.0,
        "residual_scale": 0.4,
        "logit_scale": 6.0,
    }
    return mixture(
        arch,
        {**scales, **(keys or {})},
        experts or Experts(shared=24),
        embed_scale=3,
        residual=f32(0.4),
        logit_scale=1 / 6,
        attn_scale=f32(0.05),
        **spec,
    )


def granite_swa(rotates=None, fused=True):
    windows = [True, False, True, False]
    keys = {
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": windows,
    }
    if rotates:
        keys["attention.rope_pattern"] = rotates
    return granitemoe(
        "granite_swa",
        keys,
        Experts(shared=24, shared_fused=fused),
        has_rope=lambda il: not rotates or rotates[il],
        windows=windows,
        window=WINDOW,
        sinks=True,
    )


def gpt_oss(pattern=None):
    keys = {
        **HEAD_KEYS,
        "attention.sliding_window": WINDOW,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 32,
    }
    if pattern:
        keys["attention.sliding_window_pattern"] = pattern
    return mixture(
        "gpt-oss",
        keys,
        Experts(gating="chosen", norm=False, biases=True, act=swiglu_oai),
        rope={**NEOX, "base": 150000.0, "factor": 32.0, "yarn": (32, 32.0, 1.0)},
        windows=pattern or [il % 2 == 0 for il in range(4)],
        window=WINDOW,
        biases="qkvo",
        sinks=True,
        ffn_norm="post_attention_norm",
        tied=False,
    )


def bailingmoe2():
    experts = Experts(
        n=8,
        gating="sigmoid",
        scale=2.5,
        groups=(4, 2),
        selection_bias=True,
        shared=32,
        dense=(0,),
    )
    keys = {
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "expert_group_count": 4,
        "expert_group_used_count": 2,
        "leading_dense_block_count": 1,
        "rope.dimension_count": 8,
        "expert_shared_feed_forward_length": None,
    }
    s = mixture(
        "bailingmoe2", {}, experts, rope={**NEOX, "n_rot": 8}, qk="head", fused_qkv=True, tied=False
    )
    s.keys |= keys
    return s


def glm4moe(norm=True, qk="head"):
    keys = {
        "expert_weights_norm": norm,
        "leading_dense_block_count": 1,
        "rope.dimension_count": 8,
    }
    return mixture(
        "glm4moe",
        keys,
        Experts(gating="sigmoid", norm=norm, selection_bias=True, shared=24, dense=(0,)),
        rope={**NEOX, "n_rot": 8},
        qk=qk,
        biases="qkv",
        ffn_norm="post_attention_norm",
        tied=False,
        mtp=1,
    )


def ernie(step=1):
    dense = [il for il in range(4) if il < 1 or (il + 1) % step != 0]
    return mixture(
        "ernie4_5-moe",
        {"leading_dense_block_count": 1, "interleave_moe_layer_step": step},
        Experts(selection_bias=True, shared=24, dense=tuple(dense)),
    )


def mellum():
    keys = {
        **HEAD_KEYS,
        "attention.sliding_window": WINDOW,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 32,
    }
    return mixture(
        "mellum",
        keys,
        rope={**NEOX, "factor": 8.0, "yarn": (32, 32.0, 1.0)},
        window_rope=NEOX,
        windows=[il % 4 != 3 for il in range(4)],
        window=WINDOW,
        qk="head",
        tied=False,
    )


def afmoe(of_window=16):
    """of_window: values of a head in window layers. The others have 16."""
    keys = {
        **HEAD_KEYS,
        "attention.sliding_window": WINDOW,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "leading_dense_block_count": 1,
    }
    windows = [il % 4 != 3 for il in range(4)]
    if of_window != 16:
        keys |= {"attention.key_length_swa": of_window, "attention.value_length_swa": of_window}
        keys |= {"attention.scale": 0.25, "rope.dimension_count_swa": of_window}
    return mixture(
        "afmoe",
        keys,
        Experts(gating="sigmoid", scale=2.5, selection_bias=True, shared=32, dense=(0,)),
        head=[of_window if w else 16 for w in windows],
        attn_scale=0.25,
        rope=NEOX,
        has_rope=lambda il: windows[il],
        windows=windows,
        window=WINDOW,
        embed_scale=8.0,
        qk="head",
        gates_by_value=True,
        post=True,
        tied=False,
    )


def deepseek2(gating="sigmoid", yarn=True, experts=True, **latent):
    c = Latent(log_multiplier=f32(0.0707) if yarn else 0.0, **latent)
    keys = {"leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_norm": True}
    keys |= {"expert_weights_scale": 1.8}
    keys["expert_gating_func"] = {"softmax": 1, "sigmoid": 2}[gating]
    rope = {}
    if yarn:
        keys |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
        keys["rope.scaling.original_context_length"] = 32
        rope = {"factor": 4.0, "yarn": (32, 32.0, 1.0)}
    e = Experts(gating=gating, scale=f32(1.8), selection_bias=True, shared=32, dense=(0,))
    if not experts:
        return Spec("deepseek2", c.keys(), latent=c, rope=rope, tied=False)
    s = mixture("deepseek2", {**keys, **c.keys()}, e, latent=c, rope=rope, tied=False)
    s.keys["expert_shared_feed_forward_length"] = None
    return s


def many_heads():
    """More heads than a tile of a processor's attention has rows."""
    s = deepseek2(yarn=False, experts=False, value=8)
    s.heads, s.layers = 130, 2
    return s


EXPERTS = {
    "qwen3moe": qwen3moe,
    "qwen3moe, fused gate and up": lambda: qwen3moe(fused=True),
    "qwen3moe, scales": lambda: qwen3moe(scales=True),
    "qwen3moe, many experts": lambda: qwen3moe(n=40, used=9, ffn=8),
    "qwen3vlmoe": lambda: qwen3moe("qwen3vlmoe", {"rope.dimension_sections": [3, 3, 2, 0]}),
    "qwen2moe": lambda: mixture(
        "qwen2moe",
        {},
        Experts(norm=False, shared=24, gated_shared=True),
        rope=NEOX,
        biases="qkv",
        tied=False,
    ),
    "olmoe": lambda: mixture(
        "olmoe", {}, Experts(norm=False), rope=NEOX, kv_heads=4, qk="row", tied=False
    ),
    "mixtral": lambda: mixture("llama", tied=False),
    "granitemoe": granitemoe,
    "granite_swa": lambda: granite_swa([True, False, True, True]),
    "granite_swa, all layers rotate": lambda: granite_swa(fused=False),
    "gpt-oss": gpt_oss,
    "gpt-oss, a pattern": lambda: gpt_oss([False, True, True, False]),
    "ernie4_5-moe": ernie,
    "ernie4_5-moe, every second layer": lambda: ernie(2),
    "hunyuan-moe": lambda: mixture(
        "hunyuan-moe", {**HEAD_KEYS}, Experts(shared=24), rope=NEOX, qk="head", qk_after_rope=True
    ),
    "bailingmoe2": bailingmoe2,
    "glm4moe": glm4moe,
    "glm4moe, neither norm": lambda: glm4moe(False, ""),
    "deepseek2": lambda: deepseek2(q_dim=24, biases=True),
    "deepseek2 lite": lambda: deepseek2("softmax", key=24, value=8),
    "deepseek2, many heads": many_heads,
    "deepseek2, dense, no YaRN": lambda: deepseek2(yarn=False, experts=False, dim=40, q_dim=24),
    "mellum": mellum,
    "afmoe": afmoe,
    "afmoe, wide heads in windows": lambda: afmoe(24),
    "afmoe, narrow heads in windows": lambda: afmoe(8),
}
