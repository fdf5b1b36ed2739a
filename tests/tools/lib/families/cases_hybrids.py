"""Families whose layers have more than experts: recurrent branches, or a dense FFN beside."""

from .cases_gemma4 import gemma4
from .cases_state import granitehybrid, lfm2, qwen35
from .experts import Experts
from .math64 import ACTS, times


def with_experts(spec, arch, experts, **keys):
    spec.arch, spec.experts = arch, experts
    spec.keys = {**spec.keys, **experts.keys(), **keys}
    return spec


def qwen35moe():
    return with_experts(qwen35(), "qwen35moe", Experts(shared=24, gated_shared=True))


def lfm2moe():
    experts = Experts(gating="sigmoid", selection_bias=True, dense=(0,))
    keys = {"leading_dense_block_count": 1, "expert_gating_func": 2}
    return with_experts(lfm2(), "lfm2moe", experts, **keys)


def granitehybrid_experts():
    return with_experts(granitehybrid(), "granitehybrid", Experts(shared=24))


def gelu_glu(gate, up):
    return times(ACTS["gelu"](gate), up)


def gemma4_experts():
    spec = with_experts(gemma4(), "gemma4", Experts(fused=True, act=gelu_glu))
    spec.experts_beside_ffn = True
    return spec


HYBRIDS = {
    "qwen35moe": qwen35moe,
    "lfm2moe": lfm2moe,
    "granitehybrid experts": granitehybrid_experts,
    "gemma4 experts": gemma4_experts,
}
