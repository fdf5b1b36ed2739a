#!/usr/bin/env python3
"""scripts/check.py finds no fault in a small correct tree, and finds each fault that is added to it."""

import os
import shutil
import subprocess
import sys
import tempfile

CHECK = os.path.abspath("scripts/check.py")
GOOD = {
    "runtime/base/a.h": '#pragma once\n#include "kernels/common/lang.h"\n#include <vector>\n',
    "runtime/model/m.cpp": '#include "runtime/base/a.h"\n\nint f(int x)\n{\n    return x;\n}\n',
    "kernels/common/lang.h": "#pragma once\n",
    "kernels/cuda/add.cu": '#include "kernels/common/lang.h"\n',
    "shaders/add.comp": "void main() {}\n",
    "kernels/cuda/move.cu": "__global__ void move_kernel(MoveArgs a, CudaCache to, const uint* from) {}\n",
    "shaders/move.comp": "layout(push_constant) uniform Block { MoveArgs a; } pushed;\nlayout(binding = 0) buffer To { uint w[]; };\nlayout(binding = 1) readonly buffer F { uint from[]; };\n",
    "kernels/cuda/fast.cu": "__global__ void __launch_bounds__(n_threads, 2)\nfast_kernel(FastArgs a, float* y, // (rows)\n const uint* __restrict__ w) {}\n// twin: a second kernel\n__global__ void g(float* z) {}\n",
    "shaders/fast.comp": "layout(push_constant) uniform Block { FastArgs a; } pushed;\nlayout(binding = 0) buffer Y { float y[]; };\nlayout(binding = 1) readonly buffer W { uint w[]; };\n",
    "examples/e.c": "#include <knapsack.h>\n",
}
LONG = "int long_one(int x)\n{\n" + "    x++;\n" * 57 + "    return x;\n}\n"
FAULTS = {
    "an include upwards": (
        "runtime/base/bad.h",
        '#include "runtime/model/m.h"\n',
        "runtime/base may not include runtime/model/m.h",
    ),
    "an include of a backend": (
        "runtime/model/bad.cpp",
        '#include "backends/cpu/x.h"\n',
        "may not include backends/cpu/x.h",
    ),
    "a private header in an example": (
        "examples/bad.c",
        '#include "runtime/api/session.h"\n',
        "may not include",
    ),
    "an include that is not from the root": (
        "runtime/kv/bad.cpp",
        '#include "a.h"\n',
        "not named from the root",
    ),
    "a long function": ("runtime/kv/bad.cpp", LONG, "a function of 61 lines"),
    "a long method": (
        "runtime/kv/bad.h",
        "class A\n{\npublic:\n    " + LONG.replace("\n", "\n    ").rstrip() + "\n};\n",
        "a function of 61 lines",
    ),
    "a long file": ("runtime/kv/bad.h", "// a line\n" * 501, "501 lines"),
    "a long script": ("scripts/bad.py", "# a line\n" * 501, "501 lines"),
    "a long page": ("docs/bad.md", "a line\n" * 251, "251 lines, at most 250"),
    "a date in a page": (
        "docs/bad.md",
        "Measured on 2026-01-02.\n",
        "docs/bad.md:1: '2026-01-02' is a date",
    ),
    "a machine in a page": ("docs/bad.md", "On an EPYC.\n", "'EPYC' is a date or a machine"),
    "a long part of the build": ("cmake/bad.cmake", "# a line\n" * 501, "501 lines"),
    "a kernel without its twin": ("kernels/cuda/lonely.cu", "\n", "lonely: only one of"),
    "twins with other buffers": (
        "shaders/move.comp",
        "layout(push_constant) uniform Block { MoveArgs a; } pushed;\n",
        "move: kernels/cuda/move.cu has buffers",
    ),
    "twins with other arguments": (
        "kernels/cuda/move.cu",
        "__global__ void move_kernel(CopyArgs a, CudaCache to, const uint* from) {}\n",
        "different arguments",
    ),
    "other buffers before a reason for a later kernel": (
        "shaders/fast.comp",
        "layout(push_constant) uniform Block { FastArgs a; } pushed;\nlayout(binding = 0) buffer W { uint w[]; };\n",
        "fast: kernels/cuda/fast.cu has buffers",
    ),
    "a kernel that waits for nobody": (
        "kernels/cuda/fast.cu",
        "// twin: none\n__global__ void __launch_bounds__(n_threads, 2)\nfast_kernel(FastArgs a, float* y, // (rows)\n const uint* w)\n{\n    y[0] = 1.f;\n}\n",
        "fast_kernel does not begin with begin_kernel()",
    ),
    "a shader without its twin": ("shaders/single.comp", "\n", "single: only one of"),
}
GOOD_ADDITIONS = {
    "a function of 60 lines": ("runtime/kv/ok.cpp", LONG.replace("    x++;\n", "", 1)),
    "a long kernel": ("kernels/cpu/ok.cpp", LONG),
    "a forward of 61 lines": ("runtime/kv/ok.cpp", LONG.replace("long_one(", "forward(")),
    "a long class": ("runtime/kv/ok.h", "class A\n{\n" + "    int x;\n" * 100 + "};\n"),
    "a page of 250 lines": ("docs/ok.md", "a line\n" * 250),
    "a file of 500 lines": ("runtime/kv/ok.h", "// a line\n" * 500),
}


def faults(extra):
    with tempfile.TemporaryDirectory() as root:
        shutil.copy(".clang-format", root)
        for path, text in {**GOOD, **extra}.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as f:
                f.write(text)
        r = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)
        return r.returncode, r.stderr + r.stdout


bad = []
for name, extra in {"nothing": {}, **{n: {p: t} for n, (p, t) in GOOD_ADDITIONS.items()}}.items():
    code, text = faults(extra)
    if code:
        bad.append(f"{name} is a fault: {text}")
for name, (path, text, words) in FAULTS.items():
    code, said = faults({path: text})
    if code != 1 or words not in said:
        bad.append(f"{name} is not found: exit {code}, {said}")
code, said = faults({f"runtime/kv/part{i}.h": "int a; // no token\n" * 500 for i in range(87)})
if code != 1 or "runtime/ has 13" not in said:
    bad.append(f"a runtime of 130,000 tokens is not found: {said}")
code, said = faults(
    {
        "README.md": "<!-- table speed-short -->\n| a table of nothing |\n<!-- end -->\n",
        "docs/data/speed.jsonl": "",
    }
)
if code != 1 or "README.md: its tables are not" not in said:
    bad.append(f"a table that is not what was recorded is not found: {said}")
if shutil.which("clang-format") and "formatting not checked" not in faults({})[1]:
    code, said = faults({"runtime/kv/ugly.h": "int  f( int x ) ;\n"})
    if code != 1 or "not formatted" not in said:
        bad.append(f"bad formatting is not found: {said}")
print("\n".join(bad))
sys.exit(1 if bad else 0)
