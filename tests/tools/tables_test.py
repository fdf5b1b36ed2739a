#!/usr/bin/env python3
"""scripts/tables.py and scripts/record_bench.py make tables from the recorded lines.

A different table is a fault.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check, knapsack, run_tests, tiny_model  # noqa: E402

END = (
    "<!-- end -->\n\nBetween.\n\n<!-- table codec-speed -->\n<!-- end -->\n"
    "<!-- table formats -->\n<!-- end -->\n<!-- table gpu -->\n<!-- end -->\n\nAfter.\n"
)
MARKS = "Before.\n\n<!-- table speed -->\nold\n" + END
QUALITY = "".join(
    f"<!-- table {name} -->\n<!-- end -->\n"
    for name in ("codecs", "tasks", "systems", "ladder", "selectors", "beyond")
)
EMPTY = ["codec_speed", "formats", "gpu", "codecs", "papers", "auto", "select"]
TASK = {
    "model": "tiny.gguf",
    "suite": "niah",
    "length": 1024,
    "question": "at once",
    "recipe": "exact",
    "share": 100,
    "cases": 4,
    "accuracy": 1,
    "seed": 7,
}
LINE = {
    "date": "2026-01-01",
    "commit": "abc1234",
    "machine": "M",
    "peer": "P 1.0",
    "model": "tiny",
    "test": "pp512",
    "depth": 0,
    "ours": 1234.5,
    "peer_tokens_per_second": 400.0,
    "ratio": 3.09,
    "runs": 3,
}


def script(name, *args, stdin=""):
    p = subprocess.run(
        [sys.executable, os.path.join("scripts", name), *args],
        input=stdin,
        capture_output=True,
        text=True,
    )
    return p.returncode, p.stderr


class Tree:
    def __init__(self, folder):
        self.root, self.page, self.lines = (
            folder,
            os.path.join(folder, "docs", "benchmarks.md"),
            os.path.join(folder, "docs", "data", "speed.jsonl"),
        )
        self.quality, self.tasks = os.path.join(folder, "docs", "quality.md"), os.path.join(
            folder, "docs", "data", "tasks.jsonl"
        )
        os.makedirs(os.path.dirname(self.lines), exist_ok=True)
        for name in EMPTY:
            open(os.path.join(folder, "docs", "data", name + ".jsonl"), "w").close()

    def write(self, page, *lines, tasks=()):
        for path, text in ((self.page, page), (self.quality, QUALITY)):
            with open(path, "w") as f:
                f.write(text)
        with open(self.lines, "w") as f:
            f.writelines(
                (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines
            )
        with open(self.tasks, "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in tasks)

    def table(self):
        code, said = script("tables.py", self.root)
        check(
            code == 0 and script("tables.py", "--check", self.root) == (0, ""),
            f"what was written is right: {said}",
        )
        return open(self.page).read()

    def refused(self, words):
        before = open(self.page).read()
        for args in ([], ["--check"]):
            code, said = script("tables.py", *args, self.root)
            check(
                code == 1 and words in said and open(self.page).read() == before,
                f"expected '{words}', found exit {code}: {said}",
            )


def test_tables(tree):
    tree.write(
        MARKS,
        LINE,
        {**LINE, "test": "tg64", "depth": 4096, "runs": 5},
        {**LINE, "model": "big"},
        {**LINE, "test": "tg64"},
    )
    code, said = script("tables.py", "--check", tree.root)
    check(
        code == 1 and "not what docs/data/ says" in said and open(tree.page).read() == MARKS,
        f"--check finds it and changes nothing: {said}",
    )
    page = tree.table()
    check(
        page.startswith("Before.\n\n<!-- table speed -->\n")
        and page.endswith(END)
        and "old" not in page,
        f"the text around a table stays: {page}",
    )
    rows = [
        line for line in page.splitlines() if line.startswith("| tiny") or line.startswith("| big")
    ]
    check(
        rows
        == [
            f"| {name} | 1,234.5 | 400.0 | 3.09 |"
            for name in ("tiny | pp512", "tiny | tg64", "tiny | tg64@4096", "big | pp512")
        ],
        f"rows: {page}",
    )
    check(
        "on M, and of P 1.0; medians of 3 to 5 runs" in page
        and "(commit abc1234; 2026-01-01)" in page,
        f"caption: {page}",
    )
    check(tree.table() == page, "writing it again changes nothing")
    with open(tree.page, "w") as f:
        f.write(page.replace("3.09", "4.09", 1))
    check(
        script("tables.py", "--check", tree.root)[0] == 1,
        "a number that nobody measured is a fault",
    )
    tree.write(page, LINE, {**LINE, "ours": 2000.0, "commit": "def5678"}, {**LINE, "machine": "N"})
    page = tree.table()
    check(
        "1,234.5" in page.split(" on N,")[1]
        and "2,000.0" in page
        and "1,234.5" not in page.split(" on N,")[0]
        and "(commit def5678;" in page,
        f"the last one counts, machines apart: {page}",
    )


FORMAT = {
    **{key: LINE[key] for key in ("date", "commit", "machine", "ratio")},
    "peer": "P",
    "kernels": "avx2",
    "format": "q4_k",
    "threads": 2,
    "gb_per_second": 28.04,
    "machine_gb_per_second": 30.5,
    "share": 0.92,
    "runs": 3,
}


def test_formats(tree):
    alone = {key: value for key, value in FORMAT.items() if key not in ("peer", "ratio")}
    tree.write(MARKS, LINE)
    with open(os.path.join(tree.root, "docs", "data", "formats.jsonl"), "w") as f:
        for line in (FORMAT, {**alone, "format": "q6_k"}, {**alone, "kernels": "generic"}):
            f.write(json.dumps(line) + "\n")
    page = tree.table()
    rows = [line for line in page.splitlines() if line.startswith(("| format", "| `q"))]
    check(
        rows
        == [
            "| format | avx2, 2 threads | generic, 2 threads | of P |",
            "| `q4_k` | 28.0 (0.92) | 28.0 (0.92) | 3.09 |",
            "| `q6_k` | 28.0 (0.92) |  |  |",
        ],
        f"rows: {page}",
    )
    with open(os.path.join(tree.root, "docs", "data", "formats.jsonl"), "a") as f:
        f.write(json.dumps({**alone, "machine": "Z", "format": "q6_k"}) + "\n")
    rows = [line for line in tree.table().splitlines() if line.startswith("| ")]
    check(
        "| format | 1: avx2, 2 threads | 1: generic, 2 threads | 1: of P | 2: avx2, 2 threads |"
        in rows
        and "| `q6_k` | 28.0 (0.92) |  |  | 28.0 (0.92) |" in rows,
        f"two machines: {rows}",
    )
    open(os.path.join(tree.root, "docs", "data", "formats.jsonl"), "w").close()


def test_tasks(tree):
    other = {**TASK, "recipe": "sink", "share": 25}
    tree.write(
        MARKS,
        LINE,
        tasks=[
            TASK,
            other,
            {**other, "seed": 8, "accuracy": 0.5},
            {**other, "share": 12.5, "accuracy": 0},
            {**other, "recipe": "unheard"},
            {**other, "model": "big.gguf", "suite": "sparse"},
            {**TASK, "model": "big.gguf", "suite": "dense"},
        ],
    )
    tree.table()
    quarter, eighth = open(tree.quality).read().split("Right answers")[1:]
    check(
        "texts of 1,024 tokens" in quarter
        and "in 25% of" in quarter
        and "(seeds 7, 8)" in quarter
        and "in 12.5% of" in eighth,
        f"captions: {quarter} {eighth}",
    )
    check(
        "With 8 cases all of them mean 0.68 to 1.00 with 95% confidence, a half 0.22 to 0.78."
        in quarter,
        f"intervals: {quarter}",
    )
    rows = [line for line in quarter.splitlines() if line.startswith("|") and "---" not in line]
    check(
        rows
        == [
            "| recipe | tiny: niah | big: sparse |",
            "| `exact` | 4 of 4 |  |",
            "| `sink` | 6 of 8 | 4 of 4 |",
        ],
        f"seeds add up, suites that only exact was asked are left out: {quarter}",
    )
    check("| `sink` | 0 of 4 |" in eighth, f"shares apart: {eighth}")


def test_refusals(tree):
    tree.write("No table.\n", LINE)
    tree.refused("expected one `<!-- table speed -->`")
    tree.write(MARKS + MARKS, LINE)
    script("tables.py", tree.root)
    tree.refused("expected one `<!-- table speed -->`")
    tree.write(MARKS.replace("<!-- end -->", ""), LINE)
    tree.refused("expected one `<!-- table speed -->`")
    tree.write(MARKS, LINE)
    tree.table()
    tree.write(open(tree.page).read() + "<!-- table speedy -->\n<!-- end -->\n", LINE)
    tree.refused("unknown table 'speedy'; the tables are speed-short, speed, ")
    tree.write(MARKS, LINE, '{"date":')
    tree.refused("docs/data/speed.jsonl: line 2 is not a JSON object")
    tree.write(MARKS, {k: v for k, v in LINE.items() if k != "ratio"})
    tree.refused("a line has no 'ratio'")
    tree.write(MARKS, LINE)
    tree.table()
    tree.write(
        open(tree.page).read(),
        LINE,
        tasks=[{k: v for k, v in TASK.items() if k != "seed"}, {**TASK, "recipe": "sink"}],
    )
    tree.refused("docs/data/tasks.jsonl: a line has no 'seed'")
    os.remove(tree.lines)
    tree.refused("speed.jsonl")


def test_record(tree, model):
    measured = knapsack(
        "bench",
        "-m",
        model,
        "-p",
        16,
        "-n",
        4,
        "-d",
        32,
        "-r",
        2,
        "--versus",
        f'echo \'[{{"test":"pp","n":16,"depth":32,"tokens_per_second":{{"median":10}}}},'
        '{"test":"tg","n":4,"depth":32,"tokens_per_second":{"median":5}}]\' #',
        "--json",
    )
    tree.write(MARKS, LINE)
    code, said = script(
        "record_bench.py", tree.lines, "--peer", "P 2.0", stdin=measured.out.decode()
    )
    check(code == 0, f"record_bench: {said}")
    rows, lines = measured.json(), list(map(json.loads, open(tree.lines)))[1:]
    check(
        [
            (x["model"], x["test"], x["depth"], x["peer"], x["peer_tokens_per_second"], x["runs"])
            for x in lines
        ]
        == [("tiny", "pp16", 32, "P 2.0", 10, 2), ("tiny", "tg4", 32, "P 2.0", 5, 2)],
        f"what was recorded: {lines}",
    )
    check(
        all(
            list(x) == list(LINE)
            and x["machine"] == r["device_name"]
            and x["ours"] == round(r["tokens_per_second"]["median"], 1)
            and x["ratio"] == round(r["versus"]["ratio"]["median"], 2)
            for x, r in zip(lines, rows)
        ),
        f"what was recorded: {lines} of {rows}",
    )
    page = tree.table()
    check("| tiny | tg4@32 | " in page and "P 2.0" in page, f"it has its table: {page}")
    before = open(tree.lines).read()
    for text in ("", "[]", "{}", json.dumps([{k: v for k, v in rows[0].items() if k != "versus"}])):
        code, said = script("record_bench.py", tree.lines, "--peer", "P", stdin=text)
        check(
            code == 1
            and said.startswith("record_bench.py: expected the JSON of")
            and said.count("\n") == 1
            and open(tree.lines).read() == before,
            f"{text!r} is refused: {said}",
        )


def test_tree(tree):
    """The table of push constant bytes and buffers is made from the tree.

    check.py leaves this table to this test.
    """
    files = {
        "kernels/common/args.h": "struct AddArgs {\n"
        "    uint rows; // uint of;\n    uint cols, b_rows;\n};\n",
        "backends/vulkan/x.h": "",
        "docs/architecture.md": "<!-- table push -->\n<!-- end -->\n",
        "shaders/add.comp": "layout(push_constant) uniform Block { AddArgs a; } pushed;\n"
        "layout(binding = 0) buffer X { float x[]; };\n"
        "layout(binding = 0) readonly buffer Xs { uvec4 xs[]; };\n"
        "layout(binding = 1) readonly buffer B { float b[]; };\n",
    }
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(tree.root, path)), exist_ok=True)
        with open(os.path.join(tree.root, path), "w") as f:
            f.write(text)
    check(
        script("tables.py", "--check", tree.root)[0] == 1, "a table that was not written is a fault"
    )
    tree.write(MARKS, LINE)
    tree.table()
    page = open(os.path.join(tree.root, "docs/architecture.md")).read()
    check("| `add` | 12 | 2 | AddArgs |" in page, f"three members and two bindings: {page}")
    code, said = script("tables.py", "--check")
    check(code == 0, f"the tables of this tree: {said}")


def test(folder):
    tree = Tree(folder)
    test_tables(tree)
    test_formats(tree)
    test_tasks(tree)
    test_refusals(tree)
    test_tree(tree)
    test_record(tree, tiny_model(folder))


run_tests(test)
