#!/usr/bin/env python3
"""scripts/check.py finds no fault in a small correct tree and every fault that is added to it."""

import os
import shutil
import subprocess
import sys
import tempfile

CHECK = os.path.abspath("scripts/check.py")
FAST = (
    "__global__ void __launch_bounds__(n_threads, 2) fast_kernel(FastArgs a, float* y, // (rows)\n"
    + " " * 60
    + "const uint* __restrict__ w){}"
)
GOOD = {
    "runtime/base/a.h": '#pragma once\n#include "kernels/common/lang.h"\n#include <vector>\n',
    "runtime/model/m.cpp": '#include "runtime/base/a.h"\n\nint f(int x)\n{\n    return x;\n}\n',
    "kernels/common/lang.h": "#pragma once\n",
    "kernels/cuda/add.cu": '#include "kernels/common/lang.h"\n',
    "shaders/add.comp": "void main() {}\n",
    "kernels/cuda/move.cu": "__global__ void move_kernel(MoveArgs a, CudaCache to, "
    "const uint* from) {}\n",
    "shaders/move.comp": "layout(push_constant) uniform Block { MoveArgs a; } pushed;\n"
    "layout(binding = 0) buffer To { uint w[]; };\n"
    "layout(binding = 1) readonly buffer F { uint from[]; };\n",
    "kernels/cuda/fast.cu": FAST.format("\n{\n}\n")
    + "// twin: a second kernel\n__global__ void g(float* z) {}\n",
    "shaders/fast.comp": "layout(push_constant) uniform Block { FastArgs a; } pushed;\n"
    "layout(binding = 0) buffer Y { float y[]; };\n"
    "layout(binding = 1) readonly buffer W { uint w[]; };\n",
    "examples/e.c": "#include <knapsack.h>\n",
}


def statements(tokens, indent=""):
    """Statements of 3 and 4 tokens, one a line. Comments are no tokens."""
    fours = tokens % 3
    threes = (tokens - 4 * fours) // 3
    return f"{indent}x++; // no token\n" * threes + f"{indent}x = 1;\n" * fours


def function(tokens):
    return "int long_one(int x)\n{\n" + statements(tokens - 11, "    ") + "    return x;\n}\n"


def method(tokens):
    body = function(tokens).replace("\n", "\n    ").rstrip()
    return "class A\n{\npublic:\n    " + body + "\n};\n"


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
    "a long function": ("runtime/kv/bad.cpp", function(601), "a function of 601 tokens"),
    "a long method": ("runtime/kv/bad.h", method(601), "a function of 601 tokens"),
    "a long kernel": ("kernels/cpu/bad.cpp", function(1501), "a function of 1501 tokens"),
    "a long file": ("runtime/kv/bad.h", statements(4001), "4001 tokens, at most 4000"),
    "a long script": ("scripts/bad.py", "word\n" * 4001, "4001 tokens, at most 4000"),
    "a wide line": ("runtime/kv/bad.h", "// " + "x" * 98 + "\n", "bad.h:1: 101 columns"),
    "a wide line of a shader": ("shaders/add.comp", "// " + "x" * 98 + "\n", "1: 101 columns"),
    "a wide line of a script": ("tests/bad.sh", "\n#" + "x" * 100 + "\n", "bad.sh:2: 101 columns"),
    "a word that the tree no longer uses": (
        "runtime/kv/bad.h",
        "// a wave\n",
        "bad.h:1: write phasors instead of 'wave'",
    ),
    "a script that cannot be started": (
        "scripts/bad.py",
        "#!/usr/bin/env python3\n",
        "bad.py: begins with '#!' but is not executable",
    ),
    "a long page": ("docs/bad.md", "a line\n" * 251, "251 lines, at most 250"),
    "a date in a page": (
        "docs/bad.md",
        "Measured on 2026-01-02.\n",
        "docs/bad.md:1: '2026-01-02' is a date",
    ),
    "a machine in a page": ("docs/bad.md", "On an EPYC.\n", "'EPYC' is a date or a machine"),
    "a long part of the build": ("cmake/bad.cmake", "word\n" * 4001, "4001 tokens"),
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
        "layout(push_constant) uniform Block { FastArgs a; } pushed;\n"
        "layout(binding = 0) buffer W { uint w[]; };\n",
        "fast: kernels/cuda/fast.cu has buffers",
    ),
    "a kernel that waits for nobody": (
        "kernels/cuda/fast.cu",
        "// twin: none\n" + FAST.format("\n{\n    y[0] = 1.f;\n}\n"),
        "fast_kernel does not begin with begin_kernel()",
    ),
    "a shader without its twin": ("shaders/single.comp", "\n", "single: only one of"),
}
GOOD_ADDITIONS = {
    "a function of 600 tokens": ("runtime/kv/ok.cpp", function(600)),
    "a method of 600 tokens": ("runtime/kv/ok.h", method(600)),
    "a kernel of 1,500 tokens": ("kernels/cpu/ok.cpp", function(1500)),
    "a long class": ("runtime/kv/ok.h", "class A\n{\n" + "    int x;\n" * 300 + "};\n"),
    "a page of 250 lines": ("docs/ok.md", "a line\n" * 250),
    "a file of 4,000 tokens": ("runtime/kv/ok.h", statements(4000)),
    "a script of 4,000 tokens": ("scripts/ok.py", "word # a comment\n" * 4000),
    "strings of several words": ("runtime/kv/ok.h", 'char t[] = "a b c d e";\n' * 571),
    "a line of 100 columns": ("runtime/kv/ok.h", "// " + "x" * 97 + "\n"),
    "golden data": ("tests/golden.py", "a" * 101 + "\nword" * 4001),
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
n_good = int(faults({})[1].split("runtime/ ")[1].split()[0])
for tokens, expected in ((133_999, 0), (134_000, 1)):
    parts = {f"runtime/kv/part{i}.h": statements(3000) for i in range(44)}
    parts["runtime/kv/rest.h"] = statements(tokens - 44 * 3000 - n_good)
    code, said = faults(parts)
    found = f"runtime/ without chat/ has {tokens} tokens" in said
    if code != expected or found != bool(expected):
        bad.append(f"a runtime of {tokens} tokens: exit {code}, {said}")
parts = {f"runtime/chat/part{i}.h": statements(3000) for i in range(22)}
if "runtime/chat/ has 66000 tokens" not in faults(parts)[1]:
    bad.append("a runtime/chat/ of 66000 tokens is not found")
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
