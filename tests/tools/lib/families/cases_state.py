"""Families with recurrent layers."""

from .experts import Experts
from .forward import Spec, f32
from .math64 import relu2
from .state import Recurrent

HEAD_KEYS = {"attention.key_length": 16, "attention.value_length": 16}
NEOX = {"pairs": "neox"}
ATTENDS, FFN_ONLY = ("attention",), ()


def kv_heads(mixers):
    return [2 if "attention" in kinds else 0 for kinds in mixers]


def lfm2(kernel=3, tied=True):
    mixers = [("conv",), ATTENDS, ("conv",), ATTENDS]
    return Spec(
        "lfm2",
        {"shortconv.l_cache": kernel},
        kv_heads=kv_heads(mixers),
        rope=NEOX,
        qk="head",
        mixers=mixers,
        recurrent=Recurrent(kernel=kernel),
        output_norm="token_embd_norm",
        tied=tied,
    )


def qwen35(pattern=None, **shape):
    recurrent = Recurrent(**shape)
    keys = {
        **HEAD_KEYS,
        **recurrent.keys(),
        "rope.dimension_count": 8,
        "rope.dimension_sections": [2, 1, 1, 0],
        "rope.freq_base": 1e7,
    }
    if pattern:
        keys["attention.recurrent_layers"] = pattern
    linear = pattern or [(il + 1) % 4 != 0 for il in range(4)]
    return Spec(
        "qwen35",
        keys,
        rope={**NEOX, "n_rot": 8, "base": 1e7},
        qk="head",
        gated_values=True,
        mixers=[("delta",) if is_linear else ATTENDS for is_linear in linear],
        recurrent=recurrent,
        ffn_norm="post_attention_norm",
        mtp=1 if pattern else 0,
    )


def nemotron_h(old=False, experts=None):
    mixers = [("mamba2",), ATTENDS, FFN_ONLY, ("mamba2",), FFN_ONLY]
    recurrent = Recurrent(heads=8, head=12)
    keys = {**HEAD_KEYS, **recurrent.keys(), **(experts.keys() if experts else {})}
    spec = Spec(
        "nemotron_h_moe" if experts else "nemotron_h",
        keys,
        layers=5,
        kv_heads=kv_heads(mixers),
        ffn=[0 if kinds else 96 for kinds in mixers],
        has_rope=lambda il: False,
        mixers=mixers,
        recurrent=recurrent,
        ffn_norm="attn_norm",
        act="relu2",
        gated=False,
        experts=experts,
        tied=False,
    )
    if old:
        keys |= {"attention.layer_norm_epsilon": spec.eps, "attention.layer_norm_rms_epsilon": None}
    return spec


def nemotron_h_moe(latent=0, scale=2.5, **experts):
    s = nemotron_h(
        experts=Experts(
            gating="sigmoid",
            selection_bias=True,
            scale=scale,
            shared=24,
            act=relu2,
            gated=False,
            latent=latent,
            **experts,
        )
    )
    s.keys |= {"expert_weights_norm": True, "expert_weights_scale": scale}
    return s


def granitehybrid(finetuned=False):
    mixers = [("mamba2",), ("mamba2",), ATTENDS, ("mamba2",)]
    recurrent = Recurrent(heads=4, groups=1, head=32, state=32)
    keys = {
        **recurrent.keys(),
        "attention.scale": 0.05,
        "embedding_scale": 3.0,
        "residual_scale": 0.4,
        "logit_scale": 6.0,
    }
    if not finetuned:
        keys["rope.scaling.finetuned"] = False
    return Spec(
        "granitehybrid",
        keys,
        kv_heads=kv_heads(mixers),
        has_rope=lambda il: finetuned,
        mixers=mixers,
        recurrent=recurrent,
        embed_scale=3,
        residual=f32(0.4),
        logit_scale=1 / 6,
        attn_scale=f32(0.05),
    )


def falcon_h1(normed=True):
    recurrent = Recurrent(heads=6, groups=2, head=10, state=16, normed=normed)
    return Spec(
        "falcon-h1",
        {**HEAD_KEYS, **recurrent.keys()},
        rope=NEOX,
        mixers=[("attention", "mamba2")] * 4,
        recurrent=recurrent,
        bare=("ffn_norm",),
        tied=False,
    )


STATE = {
    "lfm2": lfm2,
    "lfm2 kernel of 4": lambda: lfm2(4, False),
    "qwen35": qwen35,
    "qwen35 array": lambda: qwen35([True, False, True, True], heads=6, groups=3, kernel=3),
    "nemotron_h": nemotron_h,
    "nemotron_h older epsilon": lambda: nemotron_h(True),
    "nemotron_h_moe": nemotron_h_moe,
    "nemotron_h_moe, latent": lambda: nemotron_h_moe(40),
    "nemotron_h_moe, wide latent": lambda: nemotron_h_moe(136, n=12, used=1, ffn=8),
    "granitehybrid": granitehybrid,
    "granitehybrid with RoPE": lambda: granitehybrid(True),
    "falcon-h1": falcon_h1,
    "falcon-h1 without norm": lambda: falcon_h1(False),
}
