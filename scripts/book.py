#!/usr/bin/env python3
"""Writes the text that docs/quality.md measures: "The Rust Programming Language" without markup.

    scripts/book.py CLONE > book.txt

CLONE is a clone of https://github.com/rust-lang/book. The text comes from one fixed commit, and its
checksum must equal the checksum of the measured text."""

import hashlib
import re
import subprocess
import sys

COMMIT = "917544888a55e4da7109bdba8c88c893c0da70f4"
SHA256 = "b2ed9e3285063e4e60e793debb14869fddab2ab2fc94210f7737f5881d3d0ffb"

# Removed: code, comments, includes, tags, link targets (reference definitions, then inline ones),
# heading marks, repeated empty lines.
CUTS = [
    (r"```.*?```", "", re.S),
    (r"<!--.*?-->", "", re.S),
    (r"\{\{#.*?\}\}", "", 0),
    (r"</?[A-Za-z][^>]*>", "", 0),
    (r"^\[[^\]]+\]:.*$", "", re.M),
    (r"\[([^\]]*)\](\[[^\]]*\]|\([^)]*\))", r"\1", 0),
    (r"^#+ ", "", re.M),
    (r"\n{3,}", "\n\n", 0),
]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)

    def git(*args):
        done = subprocess.run(
            ["git", "-C", sys.argv[1], *args],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            sys.exit(f"{sys.argv[1]}: git {args[0]} of commit {COMMIT}: {done.stderr.strip()}")
        return done.stdout

    files = git("ls-tree", "-r", "--name-only", COMMIT, "src").split()
    pages = sorted(f for f in files if re.match(r"src/ch.*\.md$", f)) + sorted(
        f for f in files if re.match(r"src/appendix.*\.md$", f)
    )
    texts = []
    for page in pages:
        text = git("show", f"{COMMIT}:{page}")
        for pattern, by, flags in CUTS:
            text = re.sub(pattern, by, text, flags=flags)
        texts.append(text.strip())
    book = ("\n\n".join(texts) + "\n").encode()
    found = hashlib.sha256(book).hexdigest()
    if found != SHA256:
        sys.exit(f"{sys.argv[1]}: the text's SHA-256 is {found}, not {SHA256}")
    sys.stdout.buffer.write(book)


if __name__ == "__main__":
    main()
