#!/usr/bin/env python3
"""Saved sessions: run --session and chat's /save and /load, with a tiny model."""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import (
    BINARY,
    CLEAN,
    check,
    check_refused,
    knapsack,
    run_tests,
    tiny_model,
)  # noqa: E402
from resume import DRAWN, GREEDY, check_resumed  # noqa: E402

BASE = ["--memory", "64MiB", "--device", "cpu"]


def test_refused(folder, model):
    saved = os.path.join(folder, "s")
    args = ["run", "-m", model, *BASE, *GREEDY, "--kv", "h2o,slots=48", "--session"]
    check_refused(knapsack(*args, saved), 1, "no tokens")
    check(not os.path.exists(saved), "a refused run writes no session")
    check(knapsack(*args, saved, "-p", "hello " * 30, "-n", 4).code == 0, "saved")
    with open(saved, "rb") as f:
        good = f.read()
    other = tiny_model(folder, name="other.gguf", seed=2)
    check_refused(
        knapsack("run", "-m", other, *BASE, "--kv", "h2o,slots=48", "--session", saved),
        2,
        "another model",
    )
    check_refused(
        knapsack("run", "-m", model, *BASE, "--kv", "h2o,slots=64", "--session", saved),
        3,
        "--kv",
        "slots=48",
    )
    with open(saved, "rb") as f:
        check(f.read() == good, "a refused session file is not changed")
    for at in (0, 9, 20, len(good) // 2, len(good) - 1):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 8]) + good[at + 1 :]):
            with open(saved, "wb") as f:
                f.write(bad)
            check_refused(knapsack(*args, saved, "-n", 1), 2, saved)
    begin = time.monotonic()
    for path in (folder, os.path.join(folder, "no", "folder"), "/dev/null"):
        check_refused(knapsack(*args, path, "-p", "x", "-n", 200, "--ignore-eos"), 6, path)
    check(time.monotonic() - begin < 30, "a path that cannot be written is refused before the run")


def test_interrupts(folder, model):
    saved = os.path.join(folder, "interrupted")
    args = ["run", "-m", model, *BASE, *GREEDY, "--kv", "sink,slots=64", "--ignore-eos", "--json"]
    p = subprocess.Popen(
        [BINARY, *map(str, args), "-p", "hello", "-n", "10000000", "--session", saved],
        stdout=subprocess.PIPE,
        env=CLEAN,
    )
    time.sleep(1.5)
    p.send_signal(signal.SIGINT)
    out = p.communicate(timeout=30)[0]
    check(
        p.returncode == 130 and os.path.exists(saved),
        f"Ctrl-C: exit {p.returncode} and a session",
    )
    n = out.count(b",", out.index(b'"ids"'), out.index(b"]", out.index(b'"ids"'))) + 1
    rest = knapsack(*args, "-n", 5, "--session", saved).json()["ids"]
    check(
        knapsack(*args, "-p", "hello", "-n", n + 5).json()["ids"][n:] == rest,
        f"a run continues after {n} tokens",
    )
    for i in range(12):
        p = subprocess.Popen(
            [BINARY, *map(str, args), "-p", "x", "-n", "3", "--session", saved],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=CLEAN,
        )
        time.sleep(i * 0.01)
        p.kill()
        p.wait()
        check(
            knapsack(*args, "-n", 1, "--session", saved).code == 0,
            "a killed run leaves the old or the new file",
        )
    check([x for x in os.listdir(folder) if x.startswith(".")] == [], "no temporary files")


def test_chat(folder, model):
    saved = os.path.join(folder, "talk of mine")
    chat = ["chat", "-m", model, *BASE, "-n", 8]
    for sampling in (GREEDY, DRAWN):

        def talk(lines, **kw):
            r = knapsack(*chat, *sampling, stdin=lines.encode(), **kw)
            check(r.code == 0, f"{lines!r}: {r.err}")
            return r.out

        begin = talk("hello\nhello world\n")
        whole = talk("hello\nhello world\nworld\n/regen\n")
        check(
            talk(f"hello\nhello world\n/save {saved}\nworld\n/regen\n") == whole,
            "saving changes nothing",
        )
        check(
            begin + talk(f"/load {saved}\nworld\n/regen\n") == whole,
            "a loaded conversation continues",
        )
        again = talk("hello\nhello world\n/regen\n")
        check(
            begin + talk(f"/load {saved}\n/regen\n") == again,
            "/regen after /load writes the last answer again",
        )
        check(
            talk(f"world world\n/load {saved}\nworld\n").endswith(talk(f"/load {saved}\nworld\n")),
            "/load replaces the conversation",
        )
    nothing = knapsack(*chat, stdin=f"/save\n/load\n/save {saved}.none\n/help\n".encode())
    check(
        nothing.code == 0
        and nothing.err.count("needs a file name") == 2
        and "no conversation to save" in nothing.err
        and "/load FILE" in nothing.err,
        nothing.err,
    )
    check(not os.path.exists(saved + ".none"), "an empty conversation writes no file")
    check_refused(knapsack(*chat, stdin=f"/load {saved}.none\n".encode()), 2, saved + ".none")
    check_refused(knapsack(*chat, stdin=f"hello\n/save {folder}\n".encode()), 6, folder)
    check(
        knapsack("run", "-m", model, *BASE, "-n", 4, "--session", saved).code == 0,
        "run continues a conversation",
    )
    mixed = knapsack(*chat, *GREEDY, stdin=f"/load {saved}\n/regen\nhello\n".encode())
    check(
        mixed.code == 0 and mixed.out and "no answer yet" in mixed.err,
        f"a chat continues a text: {mixed.err}",
    )


def test(folder):
    model = tiny_model(folder)
    check_resumed(
        folder,
        model,
        "64MiB",
        250,
        120,
        [
            "exact",
            "sink,slots=48",
            "h2o,slots=48,victims=merge",
            "ada,slots=48",
            "subgen,slots=48",
            "mix,slots=48",
        ],
    )
    test_refused(folder, model)
    test_interrupts(folder, model)
    test_chat(folder, model)


run_tests(test)
