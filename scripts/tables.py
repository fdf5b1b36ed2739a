#!/usr/bin/env python3
"""Writes the tables of README.md and docs/, between `<!-- table NAME -->` and `<!-- end -->`.

    scripts/tables.py [--check] [ROOT]

--check changes nothing and fails if a page differs from the lines of docs/data/. A table is a
function here, from the lines of a file to text, and a pair of marks in one page.
scripts/record_bench.py and `knapsack eval -o` append lines.
"""

import argparse
import json
import pathlib
import re
import sys

MARKED = re.compile(r"(<!-- table (\S+) -->\n)(.*?)(<!-- end -->\n)", re.S)


def listed(values):
    """Each value once, in the order of first appearance."""
    return ", ".join(dict.fromkeys(map(str, values)))


def span(values):
    return (
        listed([min(values)]) if min(values) == max(values) else f"{min(values)} to {max(values)}"
    )


def header(*columns, left=1):
    return "| " + " | ".join(columns) + " |\n|" + "---|" * left + "---:|" * (len(columns) - left)


def name_of(model):
    return model.removesuffix(".gguf")


def wilson(share, n, z=1.96):
    """The 95% Wilson interval of a share of n cases."""
    middle, half = share + z * z / 2 / n, z * (share * (1 - share) / n + z * z / 4 / n / n) ** 0.5
    scale = 1 + z * z / n
    return f"{max(0, (middle - half) / scale):.2f} to {min(1, (middle + half) / scale):.2f}"


def speed_groups(lines):
    """(machine, peer) -> rows. If a test was measured several times, the last row counts."""
    groups = {}
    for line in lines:
        groups.setdefault((line["machine"], line["peer"]), {})[
            line["model"], line["depth"], line["test"]
        ] = line
    for key, rows in groups.items():
        models = [model for model, _, _ in rows]
        yield key, [rows[k] for k in sorted(rows, key=lambda k: (models.index(k[0]), k[1]))]


def speed_rows(rows):
    yield header("model", "test", "Knapsack", "peer", "ratio", left=2)
    for r in rows:
        test = r["test"] + (f"@{r['depth']}" if r["depth"] else "")
        speeds = f"{r['ours']:,.1f} | {r['peer_tokens_per_second']:,.1f} | {r['ratio']:.2f}"
        yield f"| {r['model']} | {test} | {speeds} |"


def speed(lines):
    """One table per machine and peer."""
    for (machine, peer), rows in speed_groups(lines):
        runs = span([r["runs"] for r in rows])
        yield f"Tokens per second on {machine}, and of {peer}; medians of {runs} runs in turns"
        yield f"(commit {listed(r['commit'] for r in rows)}; {listed(r['date'] for r in rows)})."
        yield ""
        yield from speed_rows(rows)
        yield ""


def speed_short(lines):
    """Beside llama.cpp, an empty cache: the first machine that measured most models."""

    def rank(group):
        (_, peer), rows = group
        return peer.startswith("llama"), len({r["model"] for r in rows})

    (machine, peer), rows = max(speed_groups(lines), key=rank)
    yield f"Tokens per second on {machine}, and of {peer}."
    yield ""
    yield from speed_rows([r for r in rows if not r["depth"]])


def formats(lines):
    """GB/s of decoding by weight format; their share of plain reading; ratios to other programs."""
    machines = list(dict.fromkeys(line["machine"] for line in lines))
    rows, columns = {}, {}
    for line in lines:
        of = machines.index(line["machine"])
        mark = f"{of + 1}: " if len(machines) > 1 else ""
        row = rows.setdefault(line["format"], {})
        if "peer" in line:
            peer = f"{mark}of {line['peer']}"
            columns[of, 1, peer] = peer
            row[peer] = f"{line['ratio']:.2f}"
        kind = f"{mark}{line['kernels']}, {line['threads']} threads"
        columns[of, 0, kind] = kind
        row.setdefault(kind, f"{line['gb_per_second']:.1f} ({line['share']:.2f})")
    for of, machine in enumerate(machines):
        own = [line for line in lines if line["machine"] == machine]
        reading = span([line["machine_gb_per_second"] for line in own])
        mark = f"{of + 1}: " if len(machines) > 1 else ""
        yield f"{mark}GB/s on {machine}, and their share of reading ({reading} GB/s; commit"
        end = "." if of + 1 == len(machines) else ";"
        yield f"{listed(line['commit'] for line in own)}); ratios to other programs, in turns{end}"
    if not machines:
        return
    yield ""
    order = [columns[key] for key in sorted(columns)]
    yield header("format", *order)
    for name, row in rows.items():
        yield f"| `{name}` | " + " | ".join(row.get(c, "") for c in order) + " |"


def gpu(lines):
    """Tokens per second on GPUs: one table per device, one column per backend."""
    devices = {}
    for line in lines:
        devices.setdefault(line["device"], {}).setdefault((line["model"], line["depth"]), {})[
            line["backend"], line["test"]
        ] = line
    for device, rows in devices.items():
        tests = list(dict.fromkeys(key for row in rows.values() for key in row))
        every = [cell for row in rows.values() for cell in row.values()]
        commits, dates = listed(c["commit"] for c in every), listed(c["date"] for c in every)
        yield f"Tokens per second on {device} (commit {commits}; {dates})."
        yield ""
        yield header("model", "depth", *(f"{backend}: {test}" for backend, test in tests), left=1)
        for (model, depth), row in rows.items():
            yield f"| {model} | {depth:,} | " + " | ".join(
                f"{row[t]['tokens_per_second']:,}" if t in row else "" for t in tests
            ) + " |"
        yield ""


def codec_speed(lines):
    """Tokens per second by codec. Each line is one shape, and f16 has a range."""
    rows = list(lines)
    codecs = list(dict.fromkeys(codec for row in rows for codec in row["tokens_per_second"]))
    machines, commits, dates = (listed(r[k] for r in rows) for k in ("machine", "commit", "date"))
    yield (
        f"Tokens per second on {machines} (commit {commits}; {dates}); "
        "of several runs the least and the most."
    )
    yield ""
    yield header("shape and test", *(f"`{c}`" for c in codecs))
    for row in rows:
        cells = (row["tokens_per_second"].get(c, []) for c in codecs)
        yield f"| {row['shape']} | " + " | ".join(
            span(c).replace(" to ", "–") if c else "" for c in cells
        ) + " |"


SHOWN = [
    "exact",
    "auto",
    "turbo4",
    "turbo4,v=turbo3",
    "q4",
    "polar",
    "q8",
    "mix",
    "tokenselect",
    "quest",
    "infllm",
    "keydiff",
    "kcenter",
    "window",
    "sink",
    "h2o",
    "snapkv",
    "tova",
    "scissorhands",
    "pyramid",
    "ada",
    "subgen",
    "mix,victims=merge",
    "h2o,victims=merge",
]


def tasks(lines):
    """A table for each length, share and kind of question: right answers, added over seeds."""
    groups = {}
    for line in lines:
        if line["recipe"] in SHOWN and "accuracy" in line:
            groups.setdefault((line["length"], line["question"]), []).append(line)
    for (length, question), rows in groups.items():
        for share in sorted({r["share"] for r in rows if r["recipe"] != "exact"}, reverse=True):
            sums, columns = {}, []
            for r in rows:
                if r["recipe"] == "exact" or r["share"] == share:
                    cell = sums.setdefault((r["recipe"], r["model"], r["suite"]), [0, 0])
                    cell[0] += r["accuracy"] * r["cases"]
                    cell[1] += r["cases"]
                    if r["recipe"] != "exact" and (r["model"], r["suite"]) not in columns:
                        columns.append((r["model"], r["suite"]))
            most = max(n for _, n in sums.values())
            asked = (
                "the question right after the text"
                if question == "at once"
                else "the question in a turn of its own"
            )
            yield (
                f"Right answers, texts of {length:,} tokens, {asked}, "
                f"every recipe in {share:g}% of the bytes that exact needs"
            )
            yield (
                f"(seeds {listed(r['seed'] for r in rows)}). With {most} cases all of them mean "
                f"{wilson(1, most)} with 95% confidence, a half {wilson(0.5, most)}."
            )
            yield ""
            yield header("recipe", *(f"{name_of(model)}: {suite}" for model, suite in columns))
            for recipe in SHOWN:
                cells = [sums.get((recipe, *column)) for column in columns]
                if any(cells):
                    yield f"| `{recipe}` | " + " | ".join(
                        f"{c[0]:.0f} of {c[1]}" if c else "" for c in cells
                    ) + " |"
            yield ""


def codecs(lines):
    """KL divergence from exact, equal top tokens and perplexity, by codec of keys and of values."""
    cells, models = {}, {}
    for line in lines:
        k, v = re.fullmatch(r"exact,k=(\w+),v=(\w+)", line["recipe"]).groups()
        models.setdefault(line["model"], line)
        cells.setdefault((k, v), {})[line["model"]] = line
    first = next(iter(models.values()))
    perplexities = [f"{name_of(m)} {line['exact_perplexity']:.2f}" for m, line in models.items()]
    yield (
        f"Every token has a slot: {first['length']:,} tokens of a book (`scripts/book.py`), "
        f"read 256 at a time. Perplexity of exact: {', '.join(perplexities)}."
    )
    yield ""
    yield header(
        "keys",
        "values",
        *(f"{name_of(m)}: {what}" for m in models for what in ("KL", "same top", "perplexity")),
        left=2,
    )
    for (k, v), row in cells.items():
        yield f"| `{k}` | `{v}` | " + " | ".join(
            (
                f"{row[m]['kl']:.4f} | {row[m]['same_top']:.3f} | {row[m]['perplexity']:.2f}"
                if m in row
                else " | | "
            )
            for m in models
        ) + " |"


def systems(lines):
    """Published systems and auto at two shares: right answers and KL divergence over a text."""
    models, exact = {}, {}
    for line in lines:
        if line["seed"] not in (4402, 4404):
            continue
        (
            exact
            if line["recipe"] == "exact"
            else models.setdefault(line["model"], {}).setdefault(
                (line["recipe"], line["share"]), {}
            )
        )[(line["model"], line["suite"]) if line["recipe"] == "exact" else line["suite"]] = line
    for model, rows in models.items():
        suites = [s for s in next(iter(rows.values())) if s != "text"]
        n = sum(exact[model, s]["cases"] for s in suites)
        controls = [exact[model, s]["accuracy"] * exact[model, s]["cases"] for s in suites]
        yield (
            f"{name_of(model)}: texts of 300 tokens, right answers of {n // len(suites)} a suite "
            f"(exact: {', '.join(format(c, '.0f') for c in controls)}), "
            "95% interval over all; KL over pieces of 1,024 tokens."
        )
        yield ""
        yield header("recipe", "bytes of exact's", *suites, "interval", "KL", "same top", left=1)
        for (recipe, share), row in sorted(rows.items(), key=lambda item: -item[0][1]):
            right = [row[s]["accuracy"] * row[s]["cases"] for s in suites]
            text = row.get("text")
            yield f"| `{recipe}` | {share:g}% | " + " | ".join(
                f"{r:.0f}" for r in right
            ) + f" | {wilson(sum(right) / n, n)} | " + (
                f"{text['kl']:.4f} | {text['same_top']:.3f} |" if text else " | |"
            )
        yield ""


def ladder(lines):
    """The candidates for the ladder of auto: rungs at equal bytes."""
    wanted = ["q8", "q8,v=turbo4", "q8,v=turbo3", "q4", "turbo4", "q4,v=turbo3", "turbo4,v=turbo3"]
    rows, models = {}, {}
    for line in lines:
        if line["recipe"] in wanted:
            rows.setdefault((line["model"], line["share"], line["recipe"]), {})[
                line["suite"]
            ] = line
            models.setdefault(line["model"], []).append(line["suite"])
    for model, found in models.items():
        suites = [s for s in dict.fromkeys(found) if s != "text"]
        yield (
            f"{name_of(model)}, texts of 300 tokens, 40 cases: right answers and, in brackets, "
            "minus the mean log probability of the answer's tokens."
        )
        yield ""
        yield header("recipe", "bytes of exact's", *suites, "KL")
        for (m, share, recipe), row in sorted(
            rows.items(), key=lambda item: (-item[0][1], wanted.index(item[0][2]))
        ):
            if m == model:
                cells = [
                    (
                        f"{row[s]['accuracy'] * row[s]['cases']:.0f} ({row[s]['log_loss']:.2f})"
                        if s in row
                        else ""
                    )
                    for s in suites
                ]
                yield f"| `{recipe}` | {share:g}% | " + " | ".join(
                    cells
                ) + f" | {format(row['text']['kl'], '.4f') if 'text' in row else ''} |"
        yield ""


def selectors(lines):
    """Right answers by selector and by slots read per step, added over seeds."""
    sums, columns, cases = {}, [], {}
    for line in lines:
        found = re.fullmatch(r"mix,select=(tokenselect|quest|infllm),read=(\d+)", line["recipe"])
        if (
            line["question"] != "later"
            or line["length"] != 1024
            or not found
            and line["recipe"] != "exact"
        ):
            continue
        column = (line["model"], line["suite"])
        columns += [column] if column not in columns else []
        cell = sums.setdefault((found[1], int(found[2])) if found else ("exact", 0), {}).setdefault(
            column, [0, 0]
        )
        cell[0] += line["accuracy"] * line["cases"]
        cell[1] += line["cases"]
    yield (
        "Right answers, texts of 1,024 tokens, every token in f16, "
        "the question in a turn of its own."
    )
    yield ""
    yield header("selector", "slots read", *(f"{name_of(m)}: {s}" for m, s in columns))
    for (selector, read), row in sorted(
        sums.items(), key=lambda item: (item[0][0] != "exact", item[0][0], item[0][1])
    ):
        yield f"| `{selector}` | {read or 'all'} | " + " | ".join(
            f"{row[c][0]:.0f} of {row[c][1]}" if c in row else "" for c in columns
        ) + " |"


def beyond(lines):
    """Texts longer than the model's trained context."""
    sums = {}
    for line in lines:
        if line["length"] == 12288:
            cell = sums.setdefault(line["recipe"], {}).setdefault(line["suite"], [0, 0])
            cell[0] += line["accuracy"] * line["cases"]
            cell[1] += line["cases"]
    yield header("recipe", "niah", "passkey")
    for recipe, row in sums.items():
        yield f"| `{recipe}` | " + " | ".join(
            f"{row[s][0]:.0f} of {row[s][1]}" for s in ("niah", "passkey")
        ) + " |"


def families(lines):
    """The families of models. A family that fails somewhere is a fault of the data."""
    yield header("`general.architecture`", "models", "tried on", left=3)
    for line in lines:
        tests = [line[test] for test in ("scores", "recipes", "sessions", "mutations")]
        failed = [device for test in tests for device, good in test.items() if not good]
        if failed:
            raise ValueError(f"{line['family']} fails on {listed(failed)}")
        real = f"a real file: {line['real']}, against llama.cpp; " if line["real"] else ""
        places = listed(device.split(":")[0] for device in line["scores"])
        yield f"| `{line['family']}` | {line['models']} | {real}synthetic files: {places} |"


def plans(lines):
    """What plan says of models of known shapes in several budgets."""
    yield header("model", "budget", "weights", "state", "context", "cache", "recipe", left=1)
    for line in lines:
        sizes = [f"{line[k] / 2**30:.2f}" for k in ("weights", "state", "cache")]
        start = f"| {line['model']} | {line['budget_bytes'] >> 30} GiB | {sizes[0]} | {sizes[1]} |"
        if line["fits"]:
            held = line["slots"] / line["context"]
            recipe = f"`{line['recipe']}`" + (f", {held:.0%} of the tokens" if held < 1 else "")
            yield f"{start} {line['context']:,} | {sizes[2]} | {recipe} |"
        else:
            least = line["smallest_bytes"] / 2**30
            yield f"{start} | | does not fit, {least:.2f} GiB would |"


def struct_sizes(root):
    """Bytes of each struct that a push block may contain. All members have 4 bytes."""
    sizes = {"uint": 4, "float": 4}
    for path in [
        *sorted((root / "kernels" / "common").glob("*.h")),
        *sorted((root / "backends" / "vulkan").glob("*.h")),
    ]:
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for name, body in re.findall(r"\bstruct (\w+)\s*\{([^{}]*)\}", text):
            members = re.findall(r"\b(?:uint|uint32_t|float|int)\s+([^;()]+);", body)
            sizes[name] = 4 * sum(len(m.split(",")) for m in members)
    return sizes


def push(root):
    """Push constant bytes and storage buffers of each shader."""
    sizes, rows = struct_sizes(root), []
    for path in sorted((root / "shaders").glob("*.comp")):
        text = path.read_text(encoding="utf-8")
        block = re.search(r"layout\(push_constant\) uniform \w+\s*\{([^}]*)\}", text)
        members = re.findall(r"(\w+)\s+\w+;", block[1]) if block else []
        buffers = {int(n) for n in re.findall(r"layout\(binding = (\d+)\)[\w ]* buffer ", text)}
        rows.append((path.stem, sum(sizes[m] for m in members), len(buffers), " + ".join(members)))
    yield header("shader", "bytes pushed, of 128", "buffers, of 8", "push block")
    for name, bytes_pushed, n_buffers, members in sorted(rows, key=lambda r: (-r[1], r[0])):
        yield f"| `{name}` | {bytes_pushed} | {n_buffers} | {members} |"


# name -> page, file in docs/data/, function. File None: made from the sources; check.py ignores it.
TABLES = {
    "speed-short": ("README.md", "speed.jsonl", speed_short),
    "speed": ("docs/benchmarks.md", "speed.jsonl", speed),
    "codec-speed": ("docs/benchmarks.md", "codec_speed.jsonl", codec_speed),
    "formats": ("docs/benchmarks.md", "formats.jsonl", formats),
    "gpu": ("docs/benchmarks.md", "gpu.jsonl", gpu),
    "codecs": ("docs/quality.md", "codecs.jsonl", codecs),
    "tasks": ("docs/quality.md", "tasks.jsonl", tasks),
    "systems": ("docs/quality.md", "papers.jsonl", systems),
    "ladder": ("docs/quality.md", "auto.jsonl", ladder),
    "selectors": ("docs/quality.md", "select.jsonl", selectors),
    "beyond": ("docs/quality.md", "select.jsonl", beyond),
    "families": ("docs/models.md", "families.jsonl", families),
    "plans": ("docs/models.md", "plans.jsonl", plans),
    "push": ("docs/architecture.md", None, push),
}


def read_lines(path):
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise ValueError(f"line {number} is not a JSON object")
        yield line


def table(root, name):
    """The text of a table. A ValueError gives the reason if there is none."""
    if name not in TABLES:
        raise ValueError(f"unknown table '{name}'; the tables are {', '.join(TABLES)}")
    _, file, write = TABLES[name]
    if file is None:
        return "\n".join(write(root)) + "\n"
    try:
        lines = list(read_lines(root / "docs" / "data" / file))
        return "\n".join(write(lines)).rstrip("\n") + "\n" if lines else ""
    except KeyError as e:
        raise ValueError(f"docs/data/{file}: a line has no {e}") from e
    except (OSError, ValueError) as e:
        raise ValueError(f"docs/data/{file}: {e}") from e


def rewrite(root, name, page):
    """The page with its current tables, and the faults of its marks or lines."""
    faults = []

    def fill(found):
        try:
            return found[1] + table(root, found[2]) + found[4]
        except ValueError as e:
            faults.append(f"{name}: table {found[2]}: {e}")
            return found[0]

    filled = MARKED.sub(fill, page)
    for wanted in (t for t, row in TABLES.items() if row[0] == name):
        if [m[2] for m in MARKED.finditer(page)].count(wanted) != 1:
            faults.append(f"{name}: expected one `<!-- table {wanted} -->` with its `<!-- end -->`")
    return filled, faults


def pages(root):
    """Every existing page with tables: its path, its text, its rewritten text and its faults."""
    for name in dict.fromkeys(row[0] for row in TABLES.values()):
        path = root / name
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            yield path, text, *rewrite(root, name, text)


def check(root, tree=True):
    """Faults of the pages. tree=False (scripts/check.py) skips tables made from the sources."""
    for path, text, filled, faults in pages(root):
        if not tree and path.name == "architecture.md":
            continue
        yield from faults
        if filled != text:
            where = path.relative_to(root)
            yield f"{where}: its tables are not what docs/data/ says; run scripts/tables.py"


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--check", action="store_true")
    ap.add_argument(
        "root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent
    )
    args = ap.parse_args()
    faults = list(check(args.root)) if args.check else []
    for path, text, filled, found in () if args.check else pages(args.root):
        faults += found
        if filled != text:
            path.write_text(filled, encoding="utf-8")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
