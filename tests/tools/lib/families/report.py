"""Collects the checks of one model in a worker process, and the runs of the program."""

import json
import math
import os
import time

from program import BINARY, Result

# The program with the CUDA kernels of tests/cuda_shim, built for this test.
SHIM, SHIM_BINARY = "cuda (emulated)", BINARY + "_shim"


class Report:
    def __init__(self, name):
        self.name, self.checks, self.failures, self.facts = name, 0, [], {}

    def check(self, condition, what):
        self.checks += 1
        if not condition:
            self.failures.append(f"{self.name}: {what}")
        return bool(condition)

    def refused(self, r, codes, what):
        """The program ended with one of the codes, and with one readable sentence."""
        fine = (
            r.code in codes
            and len(r.sentences) == 1
            and len(r.sentences[0]) <= 400
            and r.sentences[0].isascii()
            and r.sentences[0].isprintable()
        )
        return self.check(fine, f"{what}: exit {r.code}, {r.err.strip()[-500:]!r}")

    def passed(self, test, device, good):
        """A fact is true only if all checks of the test on the device hold."""
        devices = self.facts.setdefault(test, {})
        devices[device] = devices.get(device, True) and bool(good)


class Files:
    """A model file and a file of ids in the worker's folder."""

    def __init__(self, folder, name, data, ids):
        stem = "".join(c if c.isalnum() else "_" for c in name)
        self.model = os.path.join(folder, stem + ".gguf")
        self.ids = os.path.join(folder, stem + ".ids")
        self.rewrite(data)
        with open(self.ids, "w", encoding="utf-8") as f:
            f.write(" ".join(map(str, ids)))

    def rewrite(self, data):
        with open(self.model, "wb") as f:
            f.write(data)

    def remove(self):
        os.unlink(self.model)
        os.unlink(self.ids)

    def run(self, command, device, *args):
        binary, device = (SHIM_BINARY, "cuda") if device == SHIM else (BINARY, device)
        begin = time.monotonic()
        args = [command, "-m", self.model, "-t", 1, "--device", device, *args]
        r = Result(args, b"", {}, binary)
        r.seconds = time.monotonic() - begin
        return r

    def score(self, device, recipe, *args, context=256):
        args = ["-f", self.ids, "--ids", "--json", "--kv", recipe, "-c", context, *args]
        return self.run("score", device, *args)


def strict_json(r):
    """The JSON of a run, or None: it is not JSON, or has numbers that are not finite."""

    def no(constant):
        raise ValueError(constant)

    try:
        return json.loads(r.out.decode(), parse_constant=no)
    except ValueError:
        return None


def finite(values):
    return all(v is not None and math.isfinite(v) for v in values)


def largest(a, b):
    """The largest difference. Infinite where a value is missing or not finite."""
    if len(a) != len(b) or not finite(a):
        return math.inf
    return max(abs(x - y) for x, y in zip(a, b))
