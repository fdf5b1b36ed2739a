#!/usr/bin/env python3
"""README.md and docs/: runs the commands in blocks marked ```sh run with the small model.

Checks that links and named files exist, and that each function of the function tables is in its
file. Without models/smollm2.gguf, skips (77) the checks that need it.
"""

import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import program  # noqa: E402
from program import BINARY, CLEAN, check, run_tests  # noqa: E402

MODEL = os.path.join("models", "smollm2.gguf")
PAGES = ["README.md", *sorted(glob.glob("docs/*.md"))]
RUN = re.compile(r"^```sh run\n(.*?)^```$", re.M | re.S)
BOOK = "docs/guide.md"  # its first 1,500 characters are a text of a few hundred tokens
# Names in the pages that are not part of the tree.
BUILT = re.compile(r"^(build|models)\b|NAME|\*|knapsack\.gguf")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_names():
    for page in PAGES:
        text, here = read(page), os.path.dirname(page)
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", text):
            check(os.path.exists(os.path.join(here, link)), f"{page}: there is no {link}")
        for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text):
            check(
                BUILT.search(name)
                or os.path.exists(name)
                or "KNAPSACK" in name
                or name.startswith("docs/data/"),
                f"{page}: there is no {name}",
            )


def test_functions():
    rows = re.findall(
        r"^\| [^|]+ \| `([\w/.]+)` \| `([\w:]+)` \|$", read("docs/architecture.md"), re.M
    )
    check(len(rows) > 15, f"steps of a token: {rows}")
    for path, function in rows:
        check(
            os.path.exists(path) and re.search(rf"\b{function.split('::')[-1]}\(", read(path)),
            f"docs/architecture.md: {function} is not in {path}",
        )


def test_glossary():
    rows = re.findall(r"^\| ([\w ]+) \| ", read("docs/glossary.md"), re.M)[1:]
    check(
        10 < len(rows) <= 30 and len(set(rows)) == len(rows),
        f"{len(rows)} words of our own, at most 30",
    )


def test_commands(folder):
    n = 0
    for page in PAGES:
        blocks = RUN.findall(read(page))
        n += len(blocks)
        if not blocks:
            continue
        place = os.path.join(folder, os.path.basename(page))
        os.makedirs(os.path.join(place, "build"))
        for name, target in (
            ("build/knapsack", BINARY),
            ("model.gguf", os.path.abspath(MODEL)),
            ("models", os.path.abspath("models")),
        ):
            os.symlink(target, os.path.join(place, name))
        with open(os.path.join(place, "book.txt"), "w", encoding="utf-8") as f:
            f.write(read(BOOK)[:1500])
        for block in blocks:
            r = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=place,
                env={**CLEAN, "HOME": place},
                capture_output=True,
                text=True,
                timeout=100,
                errors="replace",
            )
            check(r.returncode == 0, f"{page}: exit {r.returncode} of\n{block}{r.stderr[-1000:]}")
    check(n > 8, f"{n} blocks are executed")


def test(folder):
    test_names()
    test_functions()
    test_glossary()
    if os.path.exists(MODEL):
        test_commands(folder)
    elif not program.failures:
        print(f"skipped: {MODEL} is not there, `tools/fetch_model.sh smollm2` fetches it")
        sys.exit(77)


run_tests(test)
