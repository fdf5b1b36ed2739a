#!/usr/bin/env python3
"""Renames identifiers by a table, on word boundaries, and names the files where a new name was there already.   rename.py [RULES] [--dry]"""
import fnmatch
import pathlib
import re
import subprocess
import sys

CODE = (".h", ".c", ".cpp", ".cu", ".cuh", ".comp", ".glsl")
TEXT = CODE + (".py", ".sh", ".cmake", ".md")
NOT_CODE = re.compile(r'("(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|#\s*include[^\n]*)', re.S)


def read_rules(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, new, globs, flags = (line.split("\t") + ["", ""])[:4]
            yield name, re.compile(rf"(?<![A-Za-z0-9_])(?:{name})(?![A-Za-z0-9_])"), new, globs.split() or ["*"], flags == "code"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--dry"]
    root = pathlib.Path(__file__).resolve().parent.parent
    rules = list(read_rules(pathlib.Path(arguments[0]) if arguments else root / "scripts/rename.tsv"))
    files = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    n_all, unused = 0, {rule[0] for rule in rules}
    for file in files:
        if not file.endswith(TEXT) or "golden" in file or file.startswith(("tests/fuzz/corpus", "CHANGELOG", "scripts/rename")):
            continue
        old = text = (root / file).read_text(encoding="utf-8")
        known = set(re.findall(r"[A-Za-z_]\w*", "".join(NOT_CODE.split(old)[::2]))) if file.endswith(CODE) else set()
        for name, pattern, new, globs, code in rules:
            if (code and not file.endswith(CODE)) or not any(fnmatch.fnmatch(file, g) for g in globs):
                continue
            parts = NOT_CODE.split(text) if code else [text]
            n = 0
            for i in range(0, len(parts), 2):
                parts[i], n_here = pattern.subn(new, parts[i])
                n += n_here
            text = "".join(parts)
            if n:
                n_all += n
                unused.discard(name)
                if new in known:
                    print(f"{file}: {new} was there before {name} became it")
        if text != old and "--dry" not in sys.argv:
            (root / file).write_text(text, encoding="utf-8")
    print(f"{n_all} replacements; without use: {' '.join(sorted(unused)) or 'none'}")


if __name__ == "__main__":
    main()
