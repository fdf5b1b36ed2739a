#!/usr/bin/env python3
"""eval: the numbers of a cell, resuming a record, and refusals.  eval_test.py KNAPSACK"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
MODEL = pathlib.Path("models/smollm2.gguf")
FLAGS = [
    "-m",
    str(MODEL),
    "--suites",
    "passkey,text",
    "--lengths",
    "256",
    "-n",
    "2",
    "-t",
    "1",
    "--kv",
    "turbo4",
    "--kv",
    "window",
    "--json",
]


def run(*args, code=0):
    done = subprocess.run([PROGRAM, "eval", *args], capture_output=True, text=True, timeout=600)
    assert done.returncode == code, (args, done.returncode, done.stderr)
    return done


def refuses(words, *args, code):
    message = run(*args, code=code).stderr
    assert message.startswith("knapsack: ") and words in message, message


def cells(done):
    return {(c["suite"], c["recipe"]): c for c in map(json.loads, done.stdout.splitlines())}


if not MODEL.exists():
    print("skipped: no model (tools/fetch_model.sh smollm2)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    text, record = os.path.join(folder, "text"), os.path.join(folder, "record.jsonl")
    pathlib.Path(text).write_text(pathlib.Path("docs/guide.md").read_text() * 2)
    first = run(*FLAGS, "-f", text, "-o", record)
    found = cells(first)
    control, coded, window = (found["passkey", r] for r in ("exact", "turbo4", "window"))
    assert control["accuracy"] == 1 and control["cases"] == 2 and control["survival"] == 1, control
    assert control["low"] < 0.5 < control["high"] == 1, control
    assert sum(control["depth_counts"]) == 2 and sum(control["depth_sums"]) == 2, control
    assert (
        window["evicted"] > 0
        and window["survival"] < 1
        and window["log_loss"] > control["log_loss"]
    ), window
    assert coded["cache_bytes"] <= 0.25 * coded["exact_bytes"] + 1, coded
    assert (
        found["text", "turbo4"]["kl"] < found["text", "window"]["kl"]
        and 0 < found["text", "turbo4"]["same_top"] < 1
    ), found
    again = run(*FLAGS, "-f", text, "-o", record)
    assert cells(again) == found and len(open(record).readlines()) == len(found)
    fresh = cells(run(*FLAGS, "-f", text, "-s", "1"))
    assert all(fresh[k]["hash"] == found[k]["hash"] for k in found)
    other = cells(run(*FLAGS, "--suites", "passkey", "-s", "2"))
    assert other["passkey", "exact"]["hash"] != control["hash"]
    table = run(*[f for f in FLAGS if f != "--json"], "-f", text, "-o", record).stdout
    assert "turbo4" in table and "1.00 [0.34 1.00]" in table, table
    page = subprocess.run(
        [PROGRAM, "report", "-f", record, "-m", str(MODEL)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (
        page.startswith("<!doctype html>")
        and page.count("<svg") >= 4
        and "<code>turbo4</code>" in page
        and "What a context needs" in page
        and page.split("gets fewer bits")[1].count("<rect") >= 8
    )
    assert (
        "Which budget for which context" in page
        and page.count("passkey 256 at once: all cases together") == 1
    ), page
    passkeys = [
        line
        for line in map(json.loads, open(record))
        if line["suite"] == "passkey" and line["recipe"] != "window"
    ]
    others = [
        {
            **line,
            "key": line["key"] + "+",
            "suite": "niah",
            "recipe": line["recipe"].replace("turbo4", "q4"),
        }
        for line in passkeys
    ]
    mixed = os.path.join(
        folder, "mixed.jsonl"
    )  # results of other suites are not points of the same chart
    pathlib.Path(mixed).write_text(
        open(record).read() + "".join(json.dumps(line) + "\n" for line in others)
    )
    charts = subprocess.run(
        [PROGRAM, "report", "-f", mixed], capture_output=True, text=True, check=True
    ).stdout.split("<h3>Facts found")[1:]
    legends = [
        [
            r
            for r in ("exact", "turbo4", "window", "q4")
            if f"<code>{r}</code></li>" in chart.split("<h3>")[0]
        ]
        for chart in charts
    ]
    assert legends == [["exact", "turbo4", "window"], ["exact", "q4"]], legends
    seeded = os.path.join(
        folder, "seeded.jsonl"
    )  # nor are results of cases that other recipes did not run
    more = [{**line, "key": line["key"] + "+", "seed": line["seed"] + 1} for line in passkeys]
    pathlib.Path(seeded).write_text(
        open(record).read() + "".join(json.dumps(line) + "\n" for line in more)
    )
    tables = subprocess.run(
        [PROGRAM, "report", "-f", seeded], capture_output=True, text=True, check=True
    ).stdout.split("<h3>Facts found")[1:]
    cases = [
        {
            r: row.split("</td><td>")[-1].split("<")[0]
            for row in table.split("<tr>")
            for r in ("turbo4", "window")
            if f"<code>{r}</code></td>" in row
        }
        for table in (t.split("<h3>")[0] for t in tables)
    ]
    assert (
        {"turbo4": "2", "window": "2"} in cases and {"turbo4": "4"} in cases and len(cases) == 2
    ), cases
    assert "http" not in page and "<script" not in page
    twice = os.path.join(folder, "twice.jsonl")  # equal cells of two runs count once
    pathlib.Path(twice).write_text(open(record).read() * 2)
    assert (
        subprocess.run(
            [PROGRAM, "report", "-f", twice, "-m", str(MODEL)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        == page
    )
    assert (
        f"<code>turbo4</code></td><td>{100 * coded['cache_bytes'] / coded['exact_bytes']:.1f}%"
        in page
    ), page
    hostile = os.path.join(folder, "hostile.jsonl")  # numbers outside every axis still give a page
    lines = [
        {**line, "cache_bytes": bytes, "kl": kl}
        for line, bytes, kl in zip(map(json.loads, open(record)), [0, 1e300, 1, 5, 9], [1e300] * 9)
    ]
    pathlib.Path(hostile).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert (
        "</html>"
        in subprocess.run(
            [PROGRAM, "report", "-f", hostile],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    )
    pathlib.Path(hostile).write_text(
        open(record).read() + json.dumps({**lines[0], "kl": 0.5}).replace("0.5", "1e999") + "\n"
    )
    refused = subprocess.run(
        [PROGRAM, "report", "-f", hostile], capture_output=True, text=True, timeout=60
    )  # no number of JSON is infinite
    assert refused.returncode == 1 and "expected a record of eval" in refused.stderr, refused
    with open(record, "a") as cut:
        cut.write('{"key":"half')  # a line cut off by a kill
    assert cells(run(*FLAGS, "-f", text, "-o", record)) == found and len(
        open(record).readlines()
    ) == len(found)
    pathlib.Path(text).write_text(pathlib.Path("docs/guide.md").read_text()[::-1] * 2)
    changed = cells(
        run(*FLAGS, "-f", text, "-o", record)
    )  # the cells of another text are computed anew, the cells of cases are reused
    assert all((changed[k] == found[k]) == (k[0] != "text") for k in found), changed
hard = [
    "-m",
    str(MODEL),
    "--suites",
    "uuid",
    "--lengths",
    "1024",
    "-n",
    "2",
    "--kv",
    "window",
    "--json",
]
left_out = run(*hard)
assert (
    list(cells(left_out)) == [("uuid", "exact")]
    and "uuid is left out at 1024 tokens" in left_out.stderr
), left_out
assert list(cells(run(*hard, "--no-control"))) == [("uuid", "exact"), ("uuid", "window")]
refuses(
    "unknown suite 'pass'; the suites are text passkey",
    "-m",
    str(MODEL),
    "--suites",
    "pass",
    code=1,
)
refuses("the suite 'text' needs a text", "-m", str(MODEL), "--suites", "text", code=1)
refuses(
    "--shares: expected a number from 0.1 to 100, found '0'",
    "-m",
    str(MODEL),
    "--shares",
    "0",
    code=1,
)
refuses("'nonsense'", "-m", str(MODEL), "--kv", "nonsense", code=3)
refuses(
    "the smallest case of lines has",
    "-m",
    str(MODEL),
    "--suites",
    "lines",
    "--lengths",
    "70",
    code=1,
)
print("eval: ok")
