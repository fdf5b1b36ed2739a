#!/usr/bin/env python3
"""run, score, tokenize and inspect on a tiny model: their results and JSON fields."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check, check_refused, knapsack, run_tests, tiny_model  # noqa: E402
from scripted_model import TOOLS, TWO_CALLS, write_scripted_model  # noqa: E402


def test_run(folder, model):
    base = [
        "run",
        "-m",
        model,
        "-p",
        "hello world",
        "--temp",
        "0",
        "--memory",
        "64MiB",
        "--device",
        "cpu",
    ]
    j = knapsack(*base, "-n", 40, "--ignore-eos", "--json").json()
    need = {
        "text",
        "prompt_tokens",
        "ids",
        "stop",
        "plan_bytes",
        "peak_bytes",
        "host_allocations",
        "prefill_seconds",
        "decode_seconds",
        "evicted",
        "merged",
        "recipe",
        "logits_hash",
    }
    check(
        need <= set(j)
        and len(j["ids"]) == 40
        and j["stop"] == "length"
        and j["plan_bytes"] == j["peak_bytes"],
        f"run --json: {j}",
    )
    check(j["host_allocations"] in (0, None), f"allocations in decode: {j['host_allocations']}")
    check(
        j["plan_bytes"]
        == knapsack("plan", "-m", model, "--json", "--memory", "64MiB").json()["total_bytes"],
        "plan prints the bytes of the run",
    )
    plain = knapsack(*base, "-n", 40, "--ignore-eos")
    check(
        plain.code == 0
        and plain.out.decode(errors="replace").rstrip("\n") == j["text"].rstrip("\n")
        and not plain.err,
        "the same text without --json",
    )
    again = knapsack(*base, "-n", 40, "--ignore-eos", "--json", "-t", 1).json()
    check(
        again["ids"] == j["ids"] and again["logits_hash"] == j["logits_hash"],
        "one thread gives the same bits",
    )
    check(2 not in j["ids"] and 0 not in j["ids"], "--ignore-eos never chooses an end token")
    stop = next(c for c in j["text"][3:] if c.isascii() and c.isprintable())
    cut = knapsack(*base, "-n", 40, "--ignore-eos", "--json", "--stop", stop).json()
    check(
        cut["stop"] == "string" and cut["text"] == j["text"][: j["text"].index(stop)],
        f"--stop {stop!r}: {cut['text']!r} of {j['text']!r}",
    )
    check(knapsack(*base, "-n", 0, "--json").json()["ids"] == [], "-n 0 writes no token")
    forced = knapsack(*base, "-n", 5, "--json", "--logit-bias", "104+inf").json()
    check(forced["ids"] == [104] * 5 or forced["ids"][0] == 104, f"--logit-bias: {forced['ids']}")
    ended = knapsack(*base, "-n", 5, "--json", "--logit-bias", "2+1000").json()
    check(
        ended["ids"] == [] and ended["stop"] == "eos" and ended["text"] == "",
        "an end token ends the text and is not part of it",
    )
    seeds = [
        knapsack("run", "-m", model, "-p", "x", "-n", 20, "--json", "-s", s).json()["ids"]
        for s in (1, 1, 2)
    ]
    check(seeds[0] == seeds[1] != seeds[2], "equal seeds give equal texts")
    check_refused(knapsack(*base, "-n", 300), 4, "300", "256")
    to_end = knapsack(*base, "-n", -1, "--ignore-eos", "--json").json()
    check(
        to_end["prompt_tokens"] + len(to_end["ids"]) == 256 and to_end["stop"] == "length",
        "-n -1 fills the context",
    )
    long = os.path.join(folder, "long.txt")
    with open(long, "w") as f:
        f.write("z" * 300)
    check_refused(knapsack("run", "-m", model, "-f", long), 4, "300", "256")
    check(
        knapsack("run", "-m", model, "-f", "-", "-n", 1, "--json", stdin=b"hello").json()[
            "prompt_tokens"
        ]
        == 1,
        "-f - is standard input",
    )


def test_chat(folder):
    """A conversation with tools, its calls, and their results sent back."""
    model, path = os.path.join(folder, "scripted.gguf"), os.path.join(folder, "talk.json")
    write_scripted_model(model, TWO_CALLS)
    talk = {"messages": [{"role": "user", "content": "weather?"}], "tools": TOOLS}

    def answer(*more):
        with open(path, "w") as f:
            json.dump(talk, f)
        return knapsack("run", "-m", model, "--memory", "64MiB", "--chat", path, *more)

    j = answer("--json").json()
    message = j["message"]
    functions = [call["function"] for call in message.get("tool_calls", [])]
    check(
        message["content"] == "Let me look."
        and functions
        == [
            {"name": "get_weather", "arguments": {"city": "Paris"}},
            {"name": "get_time", "arguments": {}},
        ]
        and j["stop"] == "eos",
        f"run --chat gives the calls: {j}",
    )
    plain = answer()
    check(
        plain.out.startswith(b"Let me look.") and b'"get_time"' in plain.out,
        f"run --chat prints the calls: {plain.out!r}",
    )
    talk["messages"].append(message)
    for call in message["tool_calls"]:
        result = {"role": "tool", "tool_call_id": call["id"], "content": "noon"}
        talk["messages"].append({**result, "name": call["function"]["name"]})
    told = answer("--json").json()["message"]
    check(
        told == {"role": "assistant", "content": "It is noon and sunny."},
        f"run --chat reads the results: {told}",
    )
    cut = answer("--json", "--stop", "noon").json()["message"]
    check(cut["content"] == "It is ", f"--stop ends the content: {cut}")
    for tools in (["get_time"], {"name": "get_time"}):
        talk["tools"] = tools
        check_refused(answer(), 1, "tools", "list of tool definitions")


def test_score(folder, model):
    path = os.path.join(folder, "text.txt")
    with open(path, "wb") as f:
        f.write(b"hello world, \xff\xfe and so on\n" * 5)
    base = ["score", "-m", model, "-f", path, "--json", "--device", "cpu"]
    whole = knapsack(*base).json()
    n = len(whole["ids"])
    check(
        whole["logprob"][0] is None
        and len(whole["logprob"]) == len(whole["top"]) == n
        and all(x < 0 for x in whole["logprob"][1:]),
        "score --json",
    )
    check(whole["plan_bytes"] == whole["peak_bytes"] and whole["evicted"] == 0, "score's bytes")
    for k in (1, 7, n, n + 5):
        part = knapsack(*base, "--decode", k).json()
        check(
            part["top"] == whole["top"]
            and max(abs(a - b) for a, b in zip(part["logprob"][1:], whole["logprob"][1:])) < 1e-3,
            f"--decode {k} gives the same tokens and log-probabilities",
        )
    ids = os.path.join(folder, "ids")
    with open(ids, "w") as f:
        f.write(" ".join(map(str, whole["ids"])) + "\n")
    check(
        knapsack("score", "-m", model, "-f", ids, "--ids", "--json", "--device", "cpu").json()
        == whole,
        "--ids scores the same",
    )
    check(b"perplexity" in knapsack("score", "-m", model, "-f", path).out, "score for a person")


def test_tokenize(model):
    check(knapsack("tokenize", "-m", model, stdin=b"hello w").out == b"262 263\n", "tokenize")
    check(
        knapsack("tokenize", "-m", model, "-0", stdin=b"hello\0\0 w\0").out == b"262\n\n263\n",
        "tokenize -0",
    )
    check(
        knapsack("tokenize", "-m", model, "-0", "--json", stdin=b"hello\0h").json()
        == [[262], [107]],
        "tokenize --json",
    )
    plain, special = (
        knapsack("tokenize", "-m", model, *f, stdin=b"<|im_end|>").out.split()
        for f in ([], ["--special"])
    )
    check(special == [b"2"] and len(plain) > 1, "control tokens are parsed only with --special")
    noise = bytes(range(1, 256))
    check(
        len(knapsack("tokenize", "-m", model, stdin=noise).out.split()) == 255,
        "any bytes are a text",
    )


def test_inspect(folder, model):
    r = knapsack("inspect", "-m", model)
    check(
        r.code == 0
        and b"llama" in r.out
        and b"blk.1.ffn_up.weight" in r.out
        and b"Jinja" in r.out
        and b"BPE" in r.out,
        "inspect",
    )
    j = knapsack("inspect", "-m", model, "--json").json()
    check(
        j["model"]["n_layers"] == 2 and len(j["tensors"]) == 20 and j["template"] is True,
        "inspect --json",
    )
    other = tiny_model(folder, name="other.gguf", architecture="abacus\n")
    r = knapsack("inspect", "-m", other)
    check_refused(r, 3, "abacus")
    check(b"blk.1.ffn_up.weight" in r.out, "inspect prints the tensors of an unsupported model")


def test(folder):
    model = tiny_model(folder)
    test_run(folder, model)
    test_chat(folder)
    test_score(folder, model)
    test_tokenize(model)
    test_inspect(folder, model)


run_tests(test)
