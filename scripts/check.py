#!/usr/bin/env python3
"""Fails if the tree breaks a rule: allowed includes, sizes, words, twins of kernels and shaders,
pages, format.  check.py [ROOT]"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import tables

# folder -> folders and files that it may include besides itself. The longest matching prefix
# counts. This table is the architecture.
ALLOWED = {
    "kernels/common": [],
    "kernels": ["kernels/common"],
    "kernels/cpu": ["kernels/common", "runtime/base"],
    "shaders": ["kernels/common"],
    "runtime/base": ["kernels/common"],
    "runtime/text": ["runtime/base", "kernels/common"],
    "runtime/chat": ["runtime/text", "runtime/base", "kernels/common"],
    "runtime/kv": ["runtime/base", "kernels/common"],
    "runtime/model": ["runtime/text", "runtime/kv", "runtime/base", "kernels/common"],
    "runtime/plan": ["runtime/kv", "runtime/model", "runtime/base", "kernels/common"],
    "runtime/api": ["runtime"],
    "backends": ["runtime/base", "kernels"],
    "examples": [],  # only <knapsack.h>, like any user
    "tools": ["runtime", "backends", "kernels/common"],
    "tests": ["runtime", "backends", "kernels", "tools"],
}
SOURCES = {".h", ".c", ".cpp", ".cu", ".cuh", ".comp", ".glsl"}
COLUMNS = 100
FILE_TOKENS, FUNCTION_TOKENS, KERNEL_TOKENS = 4_000, 600, 1_500
# runtime/chat, an interpreter and grammars, has a limit of its own.
RUNTIME_TOKENS, CHAT_TOKENS = 134_000, 65_000
README_LINES, PAGE_LINES = 120, 250
GENERATED_PAGES = {
    "docs/benchmarks.md",
    "docs/quality.md",
}  # only these pages may name dates and machines
DATES_AND_MACHINES = re.compile(
    r"\b20\d\d-\d\d(-\d\d)?\b|\b(EPYC|Xeon|Ryzen|Zen \d|H100|H200|A100)\b"
)
# Words that the tree no longer uses -> the field's words for them.
BANNED = {
    "sight": "visibility",
    "speakers?": "representatives",
    "rope_halves": "rope_neox",
    "rope_neighbours": "rope_interleaved",
    "(un)?turned": "roped, or another verb",
    "told": "shuffled, or another verb",
    "eights?_of|eights": "octets",
    "waves?": "phasors",
    "asks_alike|asker": "query_is_similar, query_head",
    "chat frames?": "chat templates",
    "restored": "dequantized",
}
BANNED_WORD = re.compile("|".join(rf"(?P<w{i}>\b({w})\b)" for i, w in enumerate(BANNED)))
CLANG_FORMAT = "14"  # other versions break lines differently
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
NOT_A_FUNCTION = re.compile(r"\s*(template\b.*>\s*)?(class|struct|union|enum|namespace|extern)\b")


def folder_of(path):
    return max((f for f in ALLOWED if path.startswith(f + "/")), key=len, default=None)


TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\.?\d(?:[\w.]|[eEpP][+-])*|\w+'
    r"|<<=|>>=|\.\.\.|->|::|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|<<|>>|##|[^\w\s]"
)


C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def count_tokens(lines, comment="//"):
    """Tokens of the language without comments: spacing and line breaks cost nothing."""
    if comment == "//":
        lines = C_COMMENT.sub(" ", "\n".join(lines)).split("\n")
    return sum(len(TOKEN.findall(line.split(comment)[0])) for line in lines)


def check_includes(path, lines):
    here = folder_of(path)
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        if not include or here is None:
            continue
        target = include[1]
        if folder_of(target) is None:
            if (
                "/" not in target
                and (pathlib.Path(path).parent / target).suffix in SOURCES
                and not path.startswith("tests/")
            ):
                yield f"{path}:{number}: '{target}' is not named from the root"
        elif folder_of(target) != here and not any(
            target == a or target.startswith(a + "/") for a in ALLOWED[here]
        ):
            yield f"{path}:{number}: {here} may not include {target}"


def check_functions(path, lines):
    """Tokens of functions. A function's braces are alone on their lines, in the same column."""
    most = KERNEL_TOKENS if path.startswith(("kernels/", "shaders/")) else FUNCTION_TOKENS
    for begin, line in enumerate(lines):
        if line.strip() != "{" or begin == 0:
            continue
        indent = line[: line.index("{")]
        head = begin - 1  # goes back to the begin of the signature
        while (
            head > 0
            and lines[head - 1].strip()
            and not lines[head - 1].strip().endswith((";", "}", "{", ":"))
            and not lines[head - 1].lstrip().startswith(("#", "//"))
        ):
            head -= 1
        signature = " ".join(lines[head:begin])
        if NOT_A_FUNCTION.match(lines[head]) or "(" not in signature:
            continue
        ends = (i for i in range(begin, len(lines)) if lines[i].startswith(indent + "}"))
        n = count_tokens(lines[head : next(ends, len(lines) - 1) + 1])
        if n > most:
            yield f"{path}:{head + 1}: a function of {n} tokens, at most {most}"


def check_words(path, lines):
    for number, line in enumerate(lines, 1):
        for found in BANNED_WORD.finditer(line):
            instead = [*BANNED.values()][int(found.lastgroup[1:])]
            yield f"{path}:{number}: write {instead} instead of '{found[0]}'"


def check_size(path, lines):
    """Tokens of a file, columns of its lines, and tokens of its functions."""
    source = pathlib.Path(path).suffix in SOURCES
    n = count_tokens(lines, "//" if source else "#")
    if n > FILE_TOKENS:
        yield f"{path}: {n} tokens, at most {FILE_TOKENS}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS}"
    if source:
        yield from check_functions(path, lines)


def cuda_buffers(text):
    """The buffers among the first kernel's parameters: [{name}]."""
    head = re.sub(
        r"//[^\n]*|__launch_bounds__\([^)]*\)|__restrict__", "", text[text.find("__global__") :]
    )
    parameters = re.findall(
        r"(\w+)\s*(\*?)\s*(\w+)\s*(?=,|$)", head[head.find("(") + 1 : head.find(")")]
    )
    return [{name.lower()} for kind, pointer, name in parameters if pointer or kind == "CudaCache"]


def shader_buffers(text):
    """A shader's buffers in the order of bindings, each as the names of its block and its array."""
    found = re.findall(r"layout\(binding = (\d+)\)[\w ]* buffer (\w+) \{ \w+ (\w+)\[\]; \}", text)
    return [{block.lower(), array} for _, block, array in sorted(found, key=lambda f: int(f[0]))]


def check_kernels(path, text):
    """Every CUDA kernel waits for the previous one (kernels/cuda/cuda_util.cuh)."""
    for found in re.finditer(
        r"__global__[^;{(]*?(\w+)\([^;{]*\{\s*([^\n]*)",
        re.sub(r"//[^\n]*|__launch_bounds__\([^)]*\)", "", text),
    ):
        if found[2] not in ("begin_kernel();", "}"):
            yield f"{path}: {found[1]} does not begin with begin_kernel()"


def check_twins(root):
    """kernels/cuda/<op>.cu and shaders/<op>.comp have the same arguments and buffers.
    '// twin: none' and a reason marks a file without a twin, '// twin: ' and a reason marks a
    difference. After a .cu file's first kernel, the line is about the kernels that follow.
    """
    files = [
        {p.stem: p.read_text(encoding="utf-8") for p in (root / f).glob(g)}
        for f, g in (("kernels/cuda", "*.cu"), ("shaders", "*.comp"))
    ]
    if not all(files):
        return
    for stem in sorted(files[0].keys() ^ files[1].keys()):
        if "// twin: none" not in files[0].get(stem, files[1].get(stem)):
            yield f"{stem}: only one of kernels/cuda/{stem}.cu and shaders/{stem}.comp is there"
    for stem in sorted(files[0].keys() & files[1].keys()):
        cuda, shader = files[0][stem], files[1][stem]
        names = [re.search(r"\b(\w+Args)\b a\b", text) for text in (cuda, shader)]
        if "// twin: " in cuda.split("__global__")[0] + shader:
            continue
        if any(names) and (not all(names) or names[0][1] != names[1][1]):
            yield f"{stem}: kernels/cuda/{stem}.cu and shaders/{stem}.comp have different arguments"
        ours, theirs = cuda_buffers(cuda), shader_buffers(shader)
        if len(ours) != len(theirs) or not all(a & b for a, b in zip(ours, theirs)):
            found = f"{[*map(min, ours)]}, shaders/{stem}.comp {[*map(max, theirs)]}"
            yield f"{stem}: kernels/cuda/{stem}.cu has buffers {found}"


def check_pages(root):
    """README and docs/: lengths, tables equal to docs/data/, dates only in generated pages."""
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        name = path.relative_to(root).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        most = README_LINES if name == "README.md" else PAGE_LINES
        if len(lines) > most:
            yield f"{name}: {len(lines)} lines, at most {most}"
        if name != "README.md" and name not in GENERATED_PAGES:
            for number, line in enumerate(lines, 1):
                found = DATES_AND_MACHINES.search(line)
                if found:
                    pages = " and ".join(sorted(GENERATED_PAGES))
                    yield f"{name}:{number}: '{found[0]}' is a date or a machine; {pages} have them"
    yield from tables.check(root, tree=False)


def check_format(root, files):
    tool = shutil.which("clang-format")
    version = (
        subprocess.run([tool, "--version"], capture_output=True, text=True).stdout if tool else ""
    )
    if f"version {CLANG_FORMAT}." not in version:
        print(
            f"check: formatting not checked, it needs clang-format {CLANG_FORMAT}", file=sys.stderr
        )
        return
    names = [
        f
        for f in files
        if pathlib.Path(f).suffix in {".h", ".c", ".cpp", ".cu", ".cuh"}
        and not f.startswith("kernels/common/")
        and "golden" not in f
    ]
    jobs = [
        subprocess.Popen(
            [tool, "--dry-run", *names[i::4]], cwd=root, stderr=subprocess.PIPE, text=True
        )
        for i in range(4)
        if names[i::4]
    ]
    seen = set()
    for job in jobs:
        for line in job.communicate()[1].splitlines():
            if "clang-format-violations" in line and (file := line.split(":")[0]) not in seen:
                seen.add(file)
                yield f"{line.split(': warning')[0]}: not formatted; scripts/format.sh does it"


def main():
    root = pathlib.Path(
        sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    ).resolve()
    kinds = SOURCES | {".py", ".sh"}
    files = sorted(
        p.relative_to(root).as_posix()
        for f in {"scripts", *(a.split("/")[0] for a in ALLOWED)}
        for p in (root / f).rglob("*")
        if p.suffix in kinds and p.is_file()
    )
    files += sorted(
        p.relative_to(root).as_posix() for g in ("CMakeLists.txt", "cmake/*") for p in root.glob(g)
    )
    faults, tokens = [], {"rest": 0, "chat": 0}
    for path in files:
        lines = (root / path).read_text(encoding="utf-8", errors="replace").splitlines()
        if not (path.startswith("tests/") and "golden" in path):
            faults += check_size(path, lines)
        if not path.startswith(("scripts/check.py", "tests/tools/", "tests/fuzz/corpus")):
            faults += check_words(path, lines)
        if lines and lines[0].startswith("#!") and not os.access(root / path, os.X_OK):
            faults.append(f"{path}: begins with '#!' but is not executable")
        if pathlib.Path(path).suffix in SOURCES:
            if path.startswith("runtime/"):
                room = "chat" if path.startswith("runtime/chat/") else "rest"
                tokens[room] += count_tokens(lines)
            faults += check_includes(path, lines)
        if path.endswith(".cu") and path.startswith("kernels/"):
            faults += check_kernels(path, "\n".join(lines))
    for name, room, most in (
        ("runtime/ without chat/", "rest", RUNTIME_TOKENS),
        ("runtime/chat/", "chat", CHAT_TOKENS),
    ):
        if tokens[room] >= most:
            faults.append(f"{name} has {tokens[room]} tokens, fewer than {most} are wanted")
    faults += check_pages(root)
    faults += [*check_twins(root), *check_format(root, files)]
    print("\n".join(faults), file=sys.stderr)
    sizes = f"runtime/ {tokens['rest']} tokens, runtime/chat/ {tokens['chat']}"
    print(f"check: {len(files)} files, {sizes}, {len(faults)} faults")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
