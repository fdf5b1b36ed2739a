#!/usr/bin/env python3
"""Writes the tables of README.md that are made from recorded lines, between `<!-- table NAME -->` and `<!-- end -->`.

    scripts/readme_tables.py [--check] [ROOT]

--check changes nothing and fails where the page and the lines of tools/results/ differ. A table is a function here, from the lines
of a file to text, and a pair of marks in the page; scripts/record_bench.py appends lines."""
import argparse
import json
import pathlib
import re
import sys

MARKED = re.compile(r"(<!-- table (\S+) -->\n)(.*?)(<!-- end -->\n)", re.S)


def listed(values):
    """Each once, in their order."""
    return ", ".join(dict.fromkeys(map(str, values)))


def span(values):
    return listed([min(values)]) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def speed(lines):
    """Of what was measured several times the last; a table for each machine and peer."""
    groups = {}
    for line in lines:
        groups.setdefault((line["machine"], line["peer"]), {})[line["model"], line["depth"], line["test"]] = line
    for (machine, peer), rows in groups.items():
        models = [model for model, _, _ in rows]
        rows = [rows[key] for key in sorted(rows, key=lambda key: (models.index(key[0]), key[1]))]
        yield f"Tokens per second on {machine}, and of {peer}; medians of {span([r['runs'] for r in rows])} runs in turns"
        yield f"(commit {listed(r['commit'] for r in rows)}; {listed(r['date'] for r in rows)}). `pp` reads a prompt, `tg` decodes, `@` after so many tokens."
        yield "\n| model | test | Knapsack | peer | ratio |\n|---|---|---:|---:|---:|"
        for r in rows:
            test = r["test"] + (f"@{r['depth']}" if r["depth"] else "")
            yield f"| {r['model']} | {test} | {r['ours']:,.1f} | {r['peer_tokens_per_second']:,.1f} | {r['ratio']:.2f} |"
        yield ""


def wilson(share, n, z=1.96):
    """The 95% interval of a share of n."""
    middle, half = share + z * z / 2 / n, z * (share * (1 - share) / n + z * z / 4 / n / n) ** 0.5
    return f"{max(0, (middle - half) / (1 + z * z / n)):.2f} to {min(1, (middle + half) / (1 + z * z / n)):.2f}"


SHOWN = ["exact", "auto", "mix", "turbo4", "polar", "tokenselect", "keydiff", "kcenter", "h2o", "h2o,victims=merge", "sink", "subgen"]


def tasks(lines):
    """A table for each length, share and way to ask: right answers of a recipe, those of several seeds together; of SHOWN."""
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
            asked = "the question right after the text" if question == "at once" else "the question in a turn of its own"
            yield f"Right answers, texts of {length:,} tokens, {asked}, every recipe in {share:g}% of the bytes that exact needs"
            yield f"(seeds {listed(r['seed'] for r in rows)}). With {most} cases all of them mean {wilson(1, most)} with 95% confidence, a half {wilson(0.5, most)}."
            yield "\n| recipe | " + " | ".join(f"{model.removesuffix('.gguf')}: {suite}" for model, suite in columns) + " |\n|---|" + "---:|" * len(columns)
            for recipe in SHOWN:
                cells = [sums.get((recipe, *column)) for column in columns]
                if any(cells):
                    yield f"| `{recipe}` | " + " | ".join(f"{c[0]:.0f} of {c[1]}" if c else "" for c in cells) + " |"
            yield ""


TABLES = {"speed": ("cpu.jsonl", speed), "tasks": ("tasks.jsonl", tasks)}


def read_lines(path):
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise ValueError(f"line {number} is no JSON object")
        yield line


def table(root, name):
    """Its text; ValueError: why there is none."""
    if name not in TABLES:
        raise ValueError(f"there is no table '{name}', there are {', '.join(TABLES)}")
    file, write = TABLES[name]
    try:
        return "\n".join(write(read_lines(root / "tools" / "results" / file)))
    except KeyError as e:
        raise ValueError(f"tools/results/{file}: a line has no {e}") from e
    except (OSError, ValueError) as e:
        raise ValueError(f"tools/results/{file}: {e}") from e


def rewrite(root, page):
    """The page as it should be, and what is wrong with its marks or lines."""
    faults = []

    def fill(found):
        try:
            return found[1] + table(root, found[2]) + found[4]
        except ValueError as e:
            faults.append(f"README.md: table {found[2]}: {e}")
            return found[0]

    filled = MARKED.sub(fill, page)
    for name in TABLES:
        if [m[2] for m in MARKED.finditer(page)].count(name) != 1:
            faults.append(f"README.md: expected one `<!-- table {name} -->` with its `<!-- end -->`")
    return filled, faults


def check(root):
    """Faults of the page, for scripts/check.py."""
    page = (root / "README.md").read_text(encoding="utf-8")
    filled, faults = rewrite(root, page)
    return faults + (["README.md: its tables are not what tools/results/ says; scripts/readme_tables.py writes them"] if filled != page else [])


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--check", action="store_true")
    ap.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    args = ap.parse_args()
    if args.check:
        faults = check(args.root)
    else:
        page = (args.root / "README.md").read_text(encoding="utf-8")
        filled, faults = rewrite(args.root, page)
        if filled != page:
            (args.root / "README.md").write_text(filled, encoding="utf-8")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
