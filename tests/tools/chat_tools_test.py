#!/usr/bin/env python3
"""chat --tools with a model that repeats two calls: on a pipe and at a pseudo-terminal."""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check, check_refused, knapsack, run_tests  # noqa: E402
from scripted_model import TOOLS, TWO_CALLS, write_scripted_model  # noqa: E402
from terminal import Terminal, has_terminal  # noqa: E402

BASE = ["--memory", "64MiB", "--temp", "0", "--device", "cpu"]
CALLS = b'Let me look.\n[get_weather {"city": "Paris"}]\n[get_time {}]\n'
TOLD = b"It is noon and sunny.\n"


def scripted(folder):
    """The options of a chat with a model that calls two tools."""
    model, tools = os.path.join(folder, "scripted.gguf"), os.path.join(folder, "tools.json")
    write_scripted_model(model, TWO_CALLS)
    with open(tools, "w") as f:
        json.dump(TOOLS, f)
    return ["chat", "-m", model, *BASE, "--tools", tools]


def test_tools(folder):
    chat = scripted(folder)
    saved, half = os.path.join(folder, "tools session"), os.path.join(folder, "half session")
    r = knapsack(*chat, stdin=b"weather?\nsunny\n12:00\nand now?\nrainy\n13:00\n")
    check(
        r.code == 0 and not r.err and r.out == (CALLS + TOLD) * 2,
        f"lines behind an answer with calls are their results: {r.out!r} {r.err!r}",
    )
    lines = f"weather?\nsunny\n/memory\n/save {half}\n12:00\n/save {saved}\n/memory\n"
    r = knapsack(*chat, stdin=lines.encode(), env={"LC_ALL": "C"})
    check(r.code == 0 and r.out == CALLS + TOLD, f"commands between results: {r.out!r} {r.err!r}")
    n_held = [int(n) for n in re.findall(r"cache +(\d+) of", r.err)]
    talk = os.path.join(folder, "talk.json")
    with open(talk, "w") as f:
        json.dump({"messages": [{"role": "user", "content": "weather?"}], "tools": TOOLS}, f)
    once = knapsack("run", *chat[1:3], *BASE, "--chat", talk, "--json").json()
    check(
        n_held[0] == once["prompt_tokens"] + len(once["ids"]),
        f"the template gets the tools: {n_held} {once}",
    )
    rows = b"weather?\nsunny\n12:00\n/memory\n"
    rows = knapsack(*chat, "--kv", "h2o", stdin=rows, env={"LC_ALL": "C"}).err
    check(
        re.search(r"turn 1 .*  weather\?\n  turn 2 .*  get_time: 12:00\n", rows),
        f"results have a row of their own: {rows}",
    )
    with open(saved, "rb") as f:
        data = f.read()
    note = data[data.rindex(b"\nmessages ") + 10 :].decode(errors="replace")
    messages = json.JSONDecoder().raw_decode(note)[0]
    calls = messages[1]["tool_calls"]
    check(
        [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
        and [c["function"]["name"] for c in calls] == ["get_weather", "get_time"]
        and calls[0]["id"] != calls[1]["id"]
        and [(m["tool_call_id"], m["name"], m["content"]) for m in messages[2:4]]
        == [(calls[0]["id"], "get_weather", "sunny"), (calls[1]["id"], "get_time", "12:00")],
        f"results name their calls: {messages}",
    )
    again = knapsack(
        *chat, stdin=f"/load {half}\n12:00\n/memory\n".encode(), env={"LC_ALL": "C"}
    )
    check(
        again.out == TOLD and f" {n_held[1]} of 4,096 tokens" in again.err,
        f"a loaded conversation waits for the second result: {again.out!r} {n_held} {again.err}",
    )
    after = knapsack(*chat, stdin=f"/load {saved}\nand now?\n".encode())
    check(after.out == CALLS, f"a loaded conversation goes on: {after.out!r} {after.err!r}")
    r = knapsack(*chat, stdin=b"weather?\nsunny\n/regen\nrainy\n12:00\n/regen\n/clear\nhello\n")
    check(
        r.code == 0 and r.out == CALLS * 2 + TOLD * 2 + CALLS,
        f"/regen drops the results and /clear the calls: {r.out!r} {r.err!r}",
    )
    plain = knapsack(*chat[:-2], stdin=b"weather?\nsunny\n")
    check(plain.out == CALLS * 2, f"without --tools every line is a message: {plain.out!r}")
    for text, words in (("{}", "expected a list"), ("[1]", "expected a list"), ("[", "JSON")):
        with open(saved, "w") as f:
            f.write(text)
        check_refused(knapsack(*chat, "--tools", saved), 1 if words[0] == "e" else 2, words, saved)
    check_refused(knapsack(*chat, "--tools", "/nowhere"), 6, "/nowhere")


def test_memory(folder):
    """A conversation that grows beyond the memory of rendering goes on without its beginning."""
    model = os.path.join(folder, "long.gguf")
    write_scripted_model(model, {"\n": ["Go", " on."]})
    chat = ["chat", "-m", model, *BASE, "--kv", "sink,slots=256"]
    n, size = 12, 20_000
    lines = b"".join(b"%d " % i + b"a b " * (size // 4) + b"\n" for i in range(n))
    saved = os.path.join(folder, "long session")
    r = knapsack(*chat, stdin=lines + f"/save {saved}\n/memory\n".encode(), env={"LC_ALL": "C"})
    check(r.code == 0 and r.out == b"Go on.\n" * n, f"a long conversation: {r.out!r} {r.err!r}")
    n_held = int(re.search(r"cache +([\d,]+) tokens", r.err)[1].replace(",", ""))
    check(n_held >= n * size, f"the session has read all of it: {n_held}")
    with open(saved, "rb") as f:
        n_kept = f.read().count(b'"role": "user"')
    check(0 < n_kept < n, f"{n_kept} of {n} messages are kept")
    plan = knapsack("plan", "-m", model, *BASE[:2], *BASE[4:], "--json").json()
    regions = {region["name"]: region["bytes"] for region in plan["regions"]}
    check(
        regions.get("chat template") == 2**19 + 96 * plan["context"],
        f"rendering is in the plan: {plan}",
    )
    huge = b"x " * 500_000 + b"\n"
    check_refused(knapsack(*chat, stdin=huge), 4, "too much memory", "/clear")


def test_tools_terminal(folder):
    t = Terminal(*scripted(folder))
    t.expect("\n> $")
    calls = r'Let me look\.\n\[get_weather \{"city": "Paris"\}\]\n\[get_time \{\}\]\n\[read'
    t.type("weather?\r", calls + r".*\]\s+get_weather 1/2> $")
    t.type("sunny\r", r"get_time 2/2> $")
    t.type("/regen\r", calls + r".*\]\s+get_weather 1/2> $")
    t.type("a\\\r", r"\. $")
    t.type("b\r", r"get_time 2/2> $")
    t.type("\r", r"get_time 2/2> $")
    t.type("12:00\r", r"It is noon and sunny\.\s+\[read .*\]\s+> $")
    t.type("again\r", calls + r".*\]\s+get_weather 1/2> $")
    t.type("x\x03", "get_weather 1/2> $")
    t.type("/clear\r", r"forgotten\s+> $")
    t.type("\x04")
    check(t.wait() == 0, f"Ctrl-D quits with 0: {t.code}")


def test(folder):
    test_tools(folder)
    test_memory(folder)
    if has_terminal():
        test_tools_terminal(folder)


run_tests(test)
