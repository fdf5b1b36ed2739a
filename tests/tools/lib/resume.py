"""Compares a run in parts, saved in between, with one run."""

import os

from program import check, knapsack

GREEDY, DRAWN = ["--temp", "0"], [
    "--temp",
    "1.5",
    "-s",
    5,
    "--repeat-penalty",
    1.3,
    "--repeat-last-n",
    20,
]


def write_ids(folder, ids):
    path = os.path.join(folder, "ids")
    with open(path, "w") as f:
        f.write(" ".join(map(str, ids)))
    return path


def check_resumed(folder, model, memory, n_vocab, n, recipes):
    """A run in three parts, the second one without a prompt, gives the same tokens as one run."""
    saved = os.path.join(folder, "parts")
    prompt = write_ids(folder, [i * i * 31 % n_vocab for i in range(3, n)])
    for recipe in recipes:
        for sampling in (GREEDY, DRAWN):
            args = [
                "run",
                "-m",
                model,
                "--kv",
                recipe,
                "--memory",
                memory,
                "--device",
                "cpu",
                *sampling,
                "--ignore-eos",
                "--json",
            ]
            whole = knapsack(*args, "--ids", prompt, "-n", 33).json()
            parts = [knapsack(*args, "--ids", prompt, "-n", 16, "--session", saved).json()]
            parts.append(knapsack(*args, "-n", 16, "--session", saved).json())
            if "-s" in args:  # without -s the saved seed is used
                del args[args.index("-s") : args.index("-s") + 2]
            parts.append(knapsack(*args, "-p", "", "-n", 1, "--session", saved).json())
            check(
                sum((p["ids"] for p in parts), []) == whole["ids"],
                f"{recipe} {sampling}: {whole['ids']} is not {[p['ids'] for p in parts]}",
            )
            check(
                parts[1]["prompt_tokens"] == 0
                and parts[2]["evicted"] >= whole["evicted"]
                and parts[0]["seed"] == parts[2]["seed"],
                "the figures go on",
            )
            check([x for x in os.listdir(folder) if x.startswith(".")] == [], "no temporary files")
            os.unlink(saved)
