"""Damages a model in ways that a file of its family can be damaged."""

import itertools
import math
import os
import random
import shutil
import struct
import subprocess

import gguf_writer as gguf
from gguf_writer import ARR, BOOL, F32, I32, STR, U32, U64, Typed

from . import forward
from .maker import Maker
from .report import Files, strict_json

SECONDS = 5
REPLAYED = 250
# Tensors without which a file is another valid model of its family.
OPTIONAL = (".bias", ".scale", "output.weight", "rope_freqs.weight")
OPTIONAL_OF = {
    "stablelm": ("ffn_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight"),
    "gemma4": ("layer_output_scale.weight", "attn_v.weight"),
    "command-r": ("attn_q_norm.weight", "attn_k_norm.weight"),
    "glm4moe": ("attn_q_norm.weight", "attn_k_norm.weight"),
    "falcon-h1": ("ssm_norm.weight",),
}
BAD_NUMBERS = (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e38, 1e-38, -0.0)
COUNTS = (0, 1, 3, 5, 7, 255, 65537, 2**31 - 1, 2**31, 2**32 - 1)


class Mutation:
    """What was done, the keys and tensors then, and whether the file must be refused."""

    def __init__(self, what, pairs, tensors, must_fail=False, patch=None):
        self.what, self.must_fail, self.patch = what, must_fail, patch
        self.pairs, self.tensors = pairs, tensors

    def bytes(self):
        data = gguf.file_bytes(self.pairs, self.tensors)
        return self.patch(data) if self.patch else data


def optional(maker, name):
    return name.endswith(OPTIONAL + OPTIONAL_OF.get(maker.arch, ())) or ".nextn." in name


class Mutator:
    def __init__(self, maker, spec, rng):
        self.rng, self.maker = rng, maker
        self.pairs, self.tensors = maker.pairs(), maker.tensors
        prefix = maker.arch + "."
        own = [k for k in self.pairs if k.startswith((prefix, "xielu"))]
        self.numbers = [k for k in own if isinstance(self.pairs[k], (int, float))]
        self.arrays = [k for k in own if isinstance(self.pairs[k], list)]
        self.own, self.prefix = own, prefix
        self.run_tensors = [t for t in self.tensors if not self.skipped(t, spec)]

    @staticmethod
    def skipped(name, spec):
        """The tensor belongs to a layer that is not run."""
        if not name.startswith("blk."):
            return False
        il = int(name.split(".")[1])
        runs = spec.mixers or spec.per_layer(spec.ffn, il) > 0
        return il >= spec.layers or not runs

    def keys(self, what, must_fail=False, **changes):
        pairs = {**self.pairs, **changes}
        return Mutation(what, {k: v for k, v in pairs.items() if v is not None}, self.tensors)

    def with_key(self, key, value):
        shown = value.value if isinstance(value, Typed) else value
        return self.keys(f"{key} = {str(shown)[:40]}", **{key: value})

    def with_tensor(self, what, name, tensor, must_fail=False):
        tensors = {**self.tensors, name: tensor}
        tensors = {k: v for k, v in tensors.items() if v is not None}
        return Mutation(what, self.pairs, tensors, must_fail)

    def missing(self, name):
        needed = not optional(self.maker, name)
        return self.with_tensor(f"without {name}", name, None, needed)

    def number(self):
        key = self.rng.choice(self.numbers)
        if isinstance(self.pairs[key], bool):
            return self.with_key(key, not self.pairs[key])
        if isinstance(self.pairs[key], int):
            near = (self.pairs[key] + self.rng.choice((-1, 1)), self.pairs[key] * 2)
            value = self.rng.choice(COUNTS + tuple(max(0, v) for v in near))
            return self.with_key(key, Typed(U32, value))
        return self.with_key(key, self.rng.choice(BAD_NUMBERS))

    def wrong_type(self):
        key = self.rng.choice(self.own)
        values = [
            Typed(STR, "text"),
            Typed(BOOL, True),
            Typed(F32, 2.5),
            Typed(I32, -4),
            Typed(U64, 2**40),
            Typed(12, math.nan),
            Typed(STR, ["a", "b"]),
            Typed(F32, [1.5, math.nan]),
            Typed(I32, [-1, 4]),
            Typed(BOOL, [True]),
            Typed(U32, [], None),
        ]
        return self.with_key(key, self.rng.choice(values))

    def array(self):
        """A wrong length, or a wrong value, of an array, or an array where a number was."""
        layers = self.pairs[self.prefix + "block_count"]
        if self.arrays and self.rng.random() < 0.6:
            key = self.rng.choice(self.arrays)
            values = list(self.pairs[key])
        else:
            name = self.rng.choice(
                ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
            )
            key = self.prefix + name
            value = self.pairs.get(key, 2)
            values = value if isinstance(value, list) else [value] * layers
        of = gguf.kind_of(values[0])
        length = self.rng.choice((0, 1, len(values) - 1, len(values) + 1, 3 * len(values)))
        if self.rng.random() < 0.5:
            values = (values * 3)[:length]
        elif of == F32:
            values = list(values)
            values[self.rng.randrange(len(values))] = self.rng.choice(BAD_NUMBERS)
        elif of == U32:
            values = list(values)
            bad = self.rng.choice((0, -1, 3, 5, 2**31 - 1, -(2**31)))
            values[self.rng.randrange(len(values))] = bad
        else:
            values = [not v for v in values]
        return self.with_key(key, Typed(I32 if of == U32 else of, values))

    def array_count(self):
        """An array that says it has many more values than the file."""
        key = self.rng.choice(self.arrays) if self.arrays else "tokenizer.ggml.token_type"
        values = self.pairs[key]
        of = gguf.kind_of(values[0])
        count = self.rng.choice((2**31, 2**40, 2**62, 2**64 - 1))
        return self.with_key(key, Typed(I32 if of == U32 else of, list(values), count))

    def shape(self):
        name = self.rng.choice(self.run_tensors)
        dims, kind, data = self.tensors[name]
        changes = [
            (dims[0] + 32, *dims[1:]),
            (dims[0] // 2 or 2, *dims[1:]),
            (*dims, 2),
            (0, *dims[1:]),
            (2**62, *dims[1:]),
            (*dims[:-1], dims[-1] + 1),
        ]
        if len(dims) > 1 and dims[0] != dims[1]:
            changes.append((dims[1], dims[0]))
        new = self.rng.choice(changes)
        size = math.prod(new) if 0 < math.prod(new) < 2**22 else 0
        data = (data * (size * 4 // max(1, len(data)) + 1))[: size * 4] if size else data
        return self.with_tensor(f"{name} of {new}", name, (new, kind, data), True)

    def type(self):
        name = self.rng.choice(self.run_tensors)
        dims, _, data = self.tensors[name]
        kind = self.rng.choice((1, 2, 3, 8, 12, 14, 24, 26, 30, 39, 99, 2**32 - 1))
        return self.with_tensor(f"{name} of type {kind}", name, (dims, kind, data))

    def scale(self):
        """A .scale tensor with a strange number, or with several."""
        matrices = [t for t in self.run_tensors if len(self.tensors[t][0]) == 2]
        name = self.rng.choice(matrices).removesuffix(".weight") + ".scale"
        value = self.rng.choice(BAD_NUMBERS)
        n = self.rng.choice((1, 1, 1, 2, 64))
        tensor = ((n,), gguf.T_F32, struct.pack("<f", value) * n)
        return self.with_tensor(f"{name} {n} x {value}", name, tensor, n > 1)

    def values(self):
        name = self.rng.choice(self.run_tensors)
        dims, kind, data = self.tensors[name]
        value = struct.pack("<f", self.rng.choice(BAD_NUMBERS))
        at = 4 * self.rng.randrange(len(data) // 4)
        tensor = (dims, kind, data[:at] + value + data[at + 4 :])
        return self.with_tensor(f"{value.hex()} in {name}", name, tensor)

    def known_keys(self):
        """Keys that files of other families have."""
        key = self.rng.choice(
            (
                "attention.scale",
                "logit_scale",
                "residual_scale",
                "embedding_scale",
                "attn_logit_softcapping",
                "final_logit_softcapping",
                "attention.sliding_window",
                "attention.sliding_window_pattern",
                "rope.scaling.factor",
                "rope.scaling.alpha",
                "rope.scaling.yarn_log_multiplier",
                "rope.scaling.yarn_beta_fast",
                "rope.scaling.original_context_length",
                "rope.freq_base_swa",
                "rope.dimension_count_swa",
                "attention.key_length_swa",
                "attention.rope_pattern",
                "attention.temperature_scale",
                "nextn_predict_layers",
                "num_loops",
                "rope.dimension_count",
                "rope.dimension_sections",
                "expert_count",
                "attention.q_lora_rank",
                "attention.kv_lora_rank",
                "context_length",
            )
        )
        value = self.rng.choice(
            [Typed(F32, v) for v in BAD_NUMBERS] + [Typed(U32, c) for c in COUNTS]
        )
        return self.with_key(self.prefix + key, value)

    def heads(self):
        """Heads of other sizes or in other numbers than the tensors have."""
        key = lambda name: self.prefix + "attention." + name  # noqa: E731
        suffix = self.rng.choice(("", "_swa"))
        size = self.rng.choice((2, 6, 24, 48, 512, 576, 2**16))
        n = self.rng.choice((97, 128, 512, 1024, 1025, 4096))
        changes = self.rng.choice(
            (
                {key("key_length" + suffix): size, key("value_length" + suffix): size},
                {key("key_length" + suffix): size},
                {key("key_length_mla"): size, key("value_length_mla"): size},
                {key("head_count"): n, key("head_count_kv"): self.rng.choice((1, n))},
                {self.prefix + "rope.dimension_count" + suffix: size},
            )
        )
        if self.rng.random() < 0.3:
            changes[key("scale")] = 0.25
        counts = [v for k, v in changes.items() if "head_count" in k]
        return self.keys(f"heads: {changes}", bool(counts), **changes)

    def header(self):
        at = self.rng.choice((4, 8, 16))
        value = self.rng.choice((0, 1, 2**31, 2**40, 2**63))
        width = 4 if at == 4 else 8
        new = (value % 2 ** (8 * width)).to_bytes(width, "little")
        patch = lambda data: data[:at] + new + data[at + width :]  # noqa: E731
        return Mutation(f"{value} at byte {at}", self.pairs, self.tensors, False, patch)

    def cut(self):
        share = self.rng.random()
        patch = lambda data: data[: int(len(data) * share)]  # noqa: E731
        return Mutation(f"the first {share:.3f} of it", self.pairs, self.tensors, True, patch)

    def dropped_key(self):
        key = self.rng.choice(self.own)
        return self.keys(f"without {key}", **{key: None})

    def extra_tensor(self):
        name = self.rng.choice(
            (
                "blk.0.attn_sinks.weight",
                "blk.0.ffn_gate_inp.weight",
                "blk.7.attn_norm.weight",
                "output.bias",
                "blk.0.attn_qkv.weight",
                "blk.0.ffn_up.bias",
            )
        )
        return self.with_tensor(f"with {name}", name, ((8,), gguf.T_F32, bytes(32)))

    def some(self):
        ways = (
            self.number,
            self.number,
            self.wrong_type,
            self.array,
            self.array_count,
            self.shape,
            self.type,
            self.scale,
            self.values,
            self.known_keys,
            self.known_keys,
            self.heads,
            self.heads,
            self.header,
            self.cut,
            self.dropped_key,
            self.extra_tensor,
        )
        return self.rng.choice(ways)()


def check_mutation(report, files, mutation, recipe):
    files.rewrite(mutation.bytes())
    runs = [files.run("plan", "cpu", "--kv", recipe, "--json", "-c", 64)]
    if runs[0].code == 0:
        runs.append(files.score("cpu", recipe, context=64))
    good = True
    for r in runs:
        what = f"{mutation.what}"
        if r.code == 0:
            good &= report.check(strict_json(r) is not None, f"{what}: not JSON")
        else:
            good &= report.refused(r, (2, 3), what)
        good &= report.check(r.seconds < SECONDS, f"{what}: {r.seconds:.1f} s")
    return good & report.check(
        not mutation.must_fail or runs[-1].code != 0, f"{mutation.what}: it runs"
    )


def mutations(maker, spec, rng, n):
    """n damaged files: a third of them lacks one tensor, in order, the others are drawn."""
    mutator = Mutator(maker, spec, rng)
    names = [*mutator.run_tensors]
    rng.shuffle(names)
    for i in range(n):
        if i % 3 == 0 and i // 3 < len(names):
            yield mutator.missing(names[i // 3])
        else:
            yield mutator.some()


def replay(report, folder, whole, damaged, program):
    """Gives the whole file and the damaged ones to a fuzz target, many in one process."""
    inputs = os.path.join(folder, "inputs")
    os.mkdir(inputs)
    for i, data in enumerate([whole, *damaged]):
        with open(os.path.join(inputs, f"{i:06}"), "wb") as f:
            f.write(data)
    r = subprocess.run([program, inputs, "0"], capture_output=True, text=True)
    shutil.rmtree(inputs)
    return report.check(r.returncode == 0, f"{program} returned {r.returncode}: {r.stderr[:2000]}")


def check_mutations(report, folder, name, spec, seed, n, program=None):
    """Damaged files are refused or run, by the binary or, REPLAYED at a time, by a fuzz target."""
    maker = Maker(spec.arch, forward.base_keys(spec), f"{name} {seed}")
    forward.logits(maker, spec, [1])
    changed = mutations(maker, spec, random.Random(f"mutations {name} {seed}"), n)
    good = True
    if program:
        whole = gguf.file_bytes(maker.pairs(), maker.tensors)
        while some := [m.bytes() for m in itertools.islice(changed, REPLAYED)]:
            good &= replay(report, folder, whole, some, program)
    else:
        files = Files(folder, name + " damaged", b"", [5, 9, 11, 70])
        for mutation in changed:
            good &= check_mutation(report, files, mutation, "exact")
        files.remove()
    report.passed("mutations", "cpu", good)
