"""Holds the log probabilities of a model against the float64 forward pass."""

import random
import re

import gguf_writer as gguf

from . import forward
from .maker import Maker
from .report import Files, largest

N_IDS = 18
F32_CACHE = "exact,k=f32,v=f32"
# Shares of the largest logit. The reference and the CPU multiply F32 weights in F32 or better and
# differ by the order of sums. GPUs may split F32 into two halves, which keeps 22 bits of 24, and
# have functions of their own for exp, sin and cos.
BOUNDS = {"reference": 2e-5, "cpu": 2e-5, "vulkan": 2e-4, "cuda": 2e-4}
# Activations are rounded to 8 bits before they meet quantised weights, up to 1/254 of the largest
# of a block for each of some ten products in a row.
QUANTISED = {"reference": 2e-5, "cpu": 3e-2, "vulkan": 3e-2, "cuda": 3e-2}


def coded(name, cols):
    if name.endswith("ffn_gate_inp"):
        return gguf.T_F32  # as in files: experts are chosen by small differences
    return gguf.T_Q4_K if cols % 256 == 0 else gguf.T_Q8_0


def make(name, spec, seed, formats=None):
    rng = random.Random(f"ids {name} {seed}")
    maker = Maker(spec.arch, forward.base_keys(spec), f"{name} {seed}", formats)
    ids = [rng.randrange(maker.vocab) for _ in range(N_IDS)]
    return maker, ids, forward.logits(maker, spec, ids)


def check_scores(report, folder, name, spec, seed, devices, quantised):
    maker, ids, rows = make(name, spec, seed, coded if quantised else None)
    files = Files(folder, name, gguf.file_bytes(maker.pairs(), maker.tensors), ids)
    want = forward.log_probabilities(rows, ids)
    size = max(abs(v) for row in rows for v in row)
    bounds = QUANTISED if quantised else BOUNDS
    for device in devices:
        kind = re.match(r"\w+", device)[0]
        ways = (0, N_IDS - 4) if kind in ("reference", "cpu") else (0,)
        for n_decode in ways:
            r = files.score(device, F32_CACHE, *(["--decode", n_decode] if n_decode else []))
            found = r.json()["logprob"][1:] if r.code == 0 else []
            off = largest(found, want) / size
            good = report.check(
                r.code == 0 and off <= bounds[kind],
                f"{device}, {n_decode} tokens one by one: {off:.1e} of the largest logit, "
                f"at most {bounds[kind]:.0e}; exit {r.code} {r.err.strip()[-300:]}",
            )
            report.passed("scores", device, good)
            offs = report.facts.setdefault("largest", {})
            offs[device] = max(offs.get(device, 0), off)
            if r.code != 0:  # all devices say the same
                for other in devices:
                    report.passed("scores", other, False)
                return
    files.remove()
