"""Every cache recipe with a model: enough room, too little room, plans and sessions."""

import copy
import os
import random

import gguf_writer as gguf

from . import forward
from .cut_file import check_cut
from .maker import Maker
from .report import Files, finite, largest

N_IDS, CONTEXT, SLOTS = 96, 128, 64
MEMORY = ["--memory", "64MiB"]
# Recipes whose keys and values are f16: with room for every token they are exact.
ROOMY = ["auto", "mix,slots=104", "h2o,slots=104", "sink,slots=104", "tokenselect"]
COMPACT = "sink,slots=64,positions=compact"
BOUNDED = ["mix,slots=64", "h2o,slots=64", "sink,slots=64", "tokenselect,read=32", COMPACT]
CODED = "exact,k=turbo4,v=turbo3"
CODED_LATENTS = "exact,k=q8,v=q8"
# A row of latent attention is key and value.
REFUSED_LATENTS = [CODED, "exact,k=q8,v=f16", "mix,slots=64,victims=merge", "subgen,slots=64"]
# The mean difference of a log probability by CODED, as a share of the largest one. Random models
# spread small differences over all layers.
CODED_BOUND = 0.05


def doubled(value):
    return [2 * v for v in value] if isinstance(value, list) else 2 * value


def wider(spec):
    """The spec with heads of twice the size, which the codecs need. All tokens see a window."""
    s = copy.deepcopy(spec)
    s.head, s.dim = doubled(s.head), 2 * s.dim
    for key in ("key_length", "value_length", "key_length_swa", "value_length_swa"):
        if "attention." + key in s.keys:
            s.keys["attention." + key] *= 2
    for key in ("rope.dimension_count", "rope.dimension_count_swa", "rope.dimension_sections"):
        if key in s.keys:
            s.keys[key] = doubled(s.keys[key])
    for rope in (s.rope, s.window_rope or {}):
        if "n_rot" in rope:
            rope["n_rot"] *= 2
        if "divisors" in rope:
            rope["divisors"] = rope["divisors"] * 2
    if s.latent:
        s.latent = s.latent.wider()
        s.keys |= s.latent.keys()
    return s


def make_files(folder, name, spec, seed):
    spec = wider(spec)
    maker = Maker(spec.arch, forward.base_keys(spec), f"{name} {seed} wide")
    forward.logits(maker, spec, [1])
    rng = random.Random(f"ids {name} {seed}")
    ids = [rng.randrange(maker.vocab) for _ in range(N_IDS)]
    return Files(folder, name + " wide", gguf.file_bytes(maker.pairs(), maker.tensors), ids)


def check_plan(report, files, device, recipe, scored):
    """What plan says is what the ledger counted."""
    r = files.run("plan", device, "--kv", recipe, "-c", CONTEXT, *MEMORY, "--json")
    planned = r.json()["total_bytes"] if r.code == 0 else None
    return report.check(
        planned == scored["plan_bytes"] == scored["peak_bytes"],
        f"{device}, {recipe}: plan says {planned}, score {scored['plan_bytes']} planned and "
        f"{scored['peak_bytes']} at the peak",
    )


def scored(report, files, device, recipe, spec):
    """The result of score, or None: the recipe is refused or failed."""
    r = files.score(device, recipe, *MEMORY, context=CONTEXT)
    # A key that is normed after RoPE cannot be given another position.
    if recipe == COMPACT and spec.qk_after_rope:
        good = report.refused(r, (3,), f"{device}, {recipe}")
        good &= report.check("compact" in r.err, f"{device}, {recipe}: says {r.err!r}")
    else:
        good = report.check(r.code == 0, f"{device}, {recipe}: exit {r.code} {r.err[-300:]}")
    if not good:
        report.passed("recipes", device, False)
    return r.json() if r.code == 0 else None


def check_recipes(report, files, device, spec):
    exact = scored(report, files, device, "exact", spec)
    if exact is None:
        return
    want = exact["logprob"][1:]
    good = report.check(finite(want), f"{device}, exact: not finite")
    good &= check_plan(report, files, device, "exact", exact)
    for recipe in ROOMY:
        found = scored(report, files, device, recipe, spec)
        if found is None:
            continue
        off = largest(found["logprob"][1:], want)
        good &= report.check(off == 0, f"{device}, {recipe} with room: {off:.1e} off exact")
        good &= check_plan(report, files, device, recipe, found)
    for recipe in BOUNDED:
        found = scored(report, files, device, recipe, spec)
        if found is None:
            continue
        evicts = "slots=" in recipe
        good &= report.check(
            finite(found["logprob"][1:]) and (found["evicted"] > 0) == evicts,
            f"{device}, {recipe}: {found['evicted']} evicted, {found['logprob'][-3:]}",
        )
        good &= check_plan(report, files, device, recipe, found)
    for recipe in REFUSED_LATENTS if spec.latent else ():
        r = files.score(device, recipe, *MEMORY, context=CONTEXT)
        good &= report.refused(r, (3,), f"{device}, {recipe}")
        good &= report.check("latent" in r.err, f"{device}, {recipe}: says {r.err!r}")
    coded = CODED_LATENTS if spec.latent else CODED
    found = scored(report, files, device, coded, spec)
    if found is not None:
        codes = found["logprob"][1:]
        high = max(abs(v) for v in want)
        off = sum(abs(a - b) for a, b in zip(codes, want)) / len(want) / high
        good &= report.check(
            finite(codes) and 0 < off <= CODED_BOUND,
            f"{device}, {coded}: {off:.3f} off exact, at most {CODED_BOUND}",
        )
        good &= check_plan(report, files, device, coded, found)
        report.facts.setdefault(coded, {})[device] = off
    report.passed("recipes", device, good)


def check_sessions(report, files, device, recipes):
    """A run in two parts gives the tokens of one run."""
    saved, good = files.model + ".session", True
    for recipe in recipes:
        args = [device, "--kv", recipe, "-c", CONTEXT, *MEMORY]
        args += ["--temp", "0", "--ignore-eos", "--json"]
        whole = files.run("run", *args, "--ids", files.ids, "-n", 12)
        parts = [files.run("run", *args, "--ids", files.ids, "-n", 5, "--session", saved)]
        parts.append(files.run("run", *args, "-n", 7, "--session", saved))
        runs = [whole, *parts]
        if report.check(
            all(r.code == 0 for r in runs),
            f"{device}, {recipe}: run ends with {[r.code for r in runs]} {parts[-1].err[-200:]}",
        ):
            ids = [r.json()["ids"] for r in runs]
            good &= report.check(
                ids[0] == ids[1] + ids[2] and len(ids[0]) == 12,
                f"{device}, {recipe}: {ids[0]} is not {ids[1:]}",
            )
            sizes = [(r.json()["plan_bytes"], r.json()["peak_bytes"]) for r in runs]
            good &= report.check(
                all(a == b for a, b in sizes), f"{device}, {recipe}: plan and peak {sizes}"
            )
        else:
            good = False
        if os.path.exists(saved):
            os.unlink(saved)
    report.passed("sessions", device, good)


def check_family(report, folder, name, spec, seed, devices):
    files = make_files(folder, name, spec, seed)
    for device in devices:
        check_recipes(report, files, device, spec)
        check_sessions(report, files, device, ["exact", "mix,slots=64"])
    if spec.layer_dim:
        check_cut(report, files)
    files.remove()
