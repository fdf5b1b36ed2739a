"""A random model: its keys, and its tensors in the order in which a forward pass asks for them."""

import random

import gguf_writer as gguf

VOCAB = 272


class Maker:
    """Makes a tensor at its first use. The forward pass reads the values that the file has.

    formats(name, cols) gives the type of a matrix.
    """

    def __init__(self, arch, keys, seed, formats=None, vocab=VOCAB):
        self.arch, self.keys, self.vocab = arch, keys, vocab
        self.rng, self.formats = random.Random(f"{arch} {seed}"), formats
        self.tensors, self.values = {}, {}

    def put(self, name, dims, values, kind=gguf.T_F32):
        if name not in self.values:
            rounded, data = gguf.ENCODERS[kind](values())
            cols = dims[0]
            if len(dims) > 1:
                rounded = [rounded[i : i + cols] for i in range(0, len(rounded), cols)]
            self.tensors[name], self.values[name] = (dims, kind, data), rounded
        return self.values[name]

    def gauss(self, n, mean, spread):
        draw = self.rng.gauss
        return [draw(mean, spread) for _ in range(n)]

    def mat(self, name, rows, cols, gain=1.0):
        kind = self.formats(name, cols) if self.formats else gguf.T_F32
        return self.put(
            name + ".weight",
            (cols, rows),
            lambda: self.gauss(rows * cols, 0, gain * cols**-0.5),
            kind,
        )

    def experts(self, name, n, rows, cols):
        """The matrices of n experts."""
        kind = self.formats(name, cols) if self.formats else gguf.T_F32
        all_rows = self.put(
            name + ".weight",
            (cols, rows, n),
            lambda: self.gauss(n * rows * cols, 0, cols**-0.5),
            kind,
        )
        return [all_rows[i : i + rows] for i in range(0, n * rows, rows)]

    def expert_biases(self, name, n, rows):
        return self.put(name + ".bias", (rows, n), lambda: self.gauss(n * rows, 0, 0.3))

    def expert_scales(self, name, n):
        return self.put(
            name + ".scale", (n,), lambda: [self.rng.uniform(0.5, 1.5) for _ in range(n)]
        )

    def vector(self, name, n, spread=0.3):
        return self.put(name + ".weight", (n,), lambda: self.gauss(n, 0, spread))

    def norm(self, name, *dims, suffix=".weight"):
        n = dims[0] * (dims[1] if len(dims) > 1 else 1)
        return self.put(name + suffix, dims, lambda: self.gauss(n, 1, 0.2))

    def bias(self, name, n):
        return self.put(name + ".bias", (n,), lambda: self.gauss(n, 0, 0.3))

    def scale(self, name):
        return self.put(name + ".scale", (1,), lambda: [self.rng.uniform(0.5, 1.5)])[0]

    def raw(self, name, values):
        return self.put(name, (len(values),), lambda: values)

    def pairs(self):
        """The keys of the file. A key that begins with '=' has no prefix, None leaves it out."""
        pairs = {"general.architecture": self.arch, "general.name": "synthetic"}
        for key, value in self.keys.items():
            if value is not None:
                pairs[key[1:] if key[0] == "=" else f"{self.arch}.{key}"] = value
        return {**pairs, **gguf.tokenizer_pairs(self.vocab)}

    def write(self, path):
        with open(path, "wb") as f:
            f.write(gguf.file_bytes(self.pairs(), self.tensors))
