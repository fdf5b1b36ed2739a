#!/usr/bin/env python3
"""chat on a tiny model: messages on a pipe, and a user at a pseudo-terminal."""

import os
import pty
import re
import signal
import struct
import sys
import termios

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
from terminal import Terminal, has_terminal  # noqa: E402

BASE = ["--memory", "64MiB", "--temp", "0", "--device", "cpu"]


def prompt_ids(model, text):
    return [
        int(x)
        for x in knapsack("tokenize", "-m", model, "--special", stdin=text.encode()).out.split()
    ]


def test_pipe(folder, model):
    r = knapsack("chat", "-m", model, *BASE, "-n", 8, stdin=b"hello\n\nhello world\n")
    check(r.code == 0 and not r.err, f"chat on a pipe is quiet: {r.code} {r.err!r}")

    # Each message again as one whole text: a continued cache gives the answers of a new one.
    path = os.path.join(folder, "ids")
    ids, answers = [], b""
    for message in ("hello", "hello world"):
        ids += prompt_ids(
            model,
            ("<|im_end|>\n" if ids else "")
            + f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n",
        )
        with open(path, "w") as f:
            f.write(" ".join(map(str, ids)))
        j = knapsack("run", "-m", model, *BASE, "-n", 8, "--ids", path, "--json").json()
        answers += knapsack("run", "-m", model, *BASE, "-n", 8, "--ids", path).out
        ids += j["ids"]
    check(r.out == answers, f"two turns: chat wrote {r.out!r}, run {answers!r}")

    note = os.path.join(folder, "note.txt")
    with open(note, "w") as f:
        f.write("hello")
    attached = knapsack(
        "chat", "-m", model, *BASE, "-n", 8, stdin=f"/read {note}\nworld\n".encode()
    )
    typed = knapsack("chat", "-m", model, *BASE, "-n", 8, stdin=b'"""hello\n\nworld"""\n')
    slashes = knapsack("chat", "-m", model, *BASE, "-n", 8, stdin=b"hello\\\n\\\nworld\n")
    check(
        attached.code == 0 and attached.out == typed.out == slashes.out and typed.out,
        "/read, quotes and backslashes give the same message",
    )
    check(
        knapsack("chat", "-m", model, *BASE, "-n", 8, "-sys", "hello", stdin=b"hello\n").out
        != typed.out,
        "-sys is read",
    )
    again = knapsack(
        "chat", "-m", model, *BASE, "-n", 8, stdin=b"hello\n/regen\n/clear\nhello\n/exit\nhello\n"
    )
    lines = knapsack("chat", "-m", model, *BASE, "-n", 8, stdin=b"hello\n").out
    check(again.out == lines * 3, "greedy /regen repeats, /clear begins anew, /exit ends")
    lines = b"/nonsense\n/memory now\n/clear now\n/memory 1\n/read\n/regen\n"
    unknown = knapsack("chat", "-m", model, *BASE, stdin=lines)
    check(
        unknown.code == 0
        and "unknown command /nonsense" in unknown.err
        and "takes no argument" in unknown.err
        and "/memory: expected a number of bytes" in unknown.err
        and "a budget of 1 bytes" in unknown.err
        and "needs a file" in unknown.err
        and "no answer yet" in unknown.err,
        unknown.err,
    )
    check_refused(
        knapsack("chat", "-m", model, *BASE, stdin=b"/read /nowhere/at/all\n"), 6, "/nowhere/at/all"
    )
    check_refused(
        knapsack("chat", "-m", model, *BASE, stdin=b"x" * 300), 4, "context is full", "/clear"
    )
    full = knapsack(
        "chat",
        "-m",
        model,
        *BASE,
        "--logit-bias",
        "2-inf",
        "--logit-bias",
        "0-inf",
        stdin=b"hello\n",
    )
    check(
        full.code == 0 and "context of 256 tokens is full" in full.err,
        f"a full context is said: {full.err}",
    )


def memory_tables(err):
    """Parses the output of each /memory: the slots of a head, and the rows of messages.

    A row is name -> (tokens, held in any head, share, words).
    """
    tables = []
    for part in err.split("  weights ")[1:]:
        tiers = {
            name: int(n) for n, name in re.findall(r"(\d+) (pinned|kept|merged|recent|free)", part)
        }
        rows = re.findall(
            r"^  (opening|turns? [\d a-z]*?) +([\d,]+) +([\d,]+|all) +[#.]{10} +(\d+)%(?:  (.*))?$",
            part,
            re.M,
        )
        tables.append(
            (
                tiers,
                {
                    name: (int(n), int(n) if held == "all" else int(held), int(share), words)
                    for name, n, held, share, words in rows
                },
                part,
            )
        )
    return tables


def test_memory(folder, model):
    """A conversation that outgrows its slots keeps its opening, and /memory shows the rest."""
    saved = os.path.join(folder, "memory session")
    system = "-sys", "Be kind and brief."
    chat = ["chat", "-m", model, *BASE, "-n", 8, *system, "--kv"]
    head = len(
        prompt_ids(model, "<|im_start|>system\nBe kind and brief.<|im_end|>\n<|im_start|>user\n")
    )
    talk = (
        "first message\n/memory\n\x1b[31mred \u4e2d message\nthird message of the three\n/memory\n"
    )
    for recipe, bounded in (
        ("h2o,slots=160", True),
        ("mix,slots=160,victims=merge,delta=5", True),
        ("sink,slots=160", True),
        ("exact", False),
    ):
        r = knapsack(
            *chat,
            recipe,
            stdin=f"{talk}/save {saved}\nfourth\n/memory\n".encode()
            + b"/clear\n/memory\nfirst message\n/memory\n",
            env={"LC_ALL": "C"},
        )
        again = knapsack(
            *chat,
            recipe,
            stdin=f"/load {saved}\nfourth\n/memory\n/clear\nfirst message\n/memory\n".encode(),
            env={"LC_ALL": "C"},
        )
        check(r.code == 0 and again.code == 0, f"{recipe}: {r.err} {again.err}")
        early, late, last, empty, anew = memory_tables(r.err)
        with open(saved, "rb") as f:  # the text marks tokens of the chat template and no others
            data = f.read()
        counts = []
        for ids in (
            prompt_ids(model, "<|im_end|>\n<|im_start|>user\n"),
            prompt_ids(model, "message"),
        ):
            counts.append(data.count(struct.pack(f"<{len(ids)}I", *(i | 1 << 31 for i in ids))))
        check(counts == [3, 0], f"{recipe}: the frames are marked: {counts}")
        check(
            [t[:2] for t in memory_tables(again.err)] == [last[:2], anew[:2]],
            f"{recipe}: a loaded conversation has its turns: {again.err}",
        )
        check(
            empty[0].keys() == {"free"} and empty[1] == {} and anew[:2] == early[:2],
            f"{recipe}: /clear forgets all but what begins anew: {empty} {anew}",
        )
        for tiers, rows, part in (early, late, last):
            check(
                sum(tiers.values()) in (160, 159, 158, 256),
                f"{recipe}: the tiers are all slots: {tiers}",
            )
            check(("pinned" in tiers) == bounded == ("opening" in rows), f"{recipe}: {part}")
            if bounded:
                check(
                    tiers["pinned"] == head == rows["opening"][0] == rows["opening"][1]
                    and rows["opening"][2] == 100,
                    f"{recipe}: the head of {head} stays: {part}",
                )
        if not bounded:
            check(
                "evicted" not in r.err and late[0]["kept"] > early[0]["kept"],
                "the exact cache evicts nothing",
            )
            continue
        check(
            "nothing yet" in early[2] and "tokens in each head" in late[2],
            f"{recipe}: what was evicted is said",
        )
        check(
            ("and merged" in last[2]) == ("merge" in recipe),
            f"{recipe}: what was merged is said: {last[2]}",
        )
        check(
            [list(t[1]) for t in (early, late, last)]
            == [["opening"] + [f"turn {i + 1}" for i in range(n)] for n in (1, 3, 4)],
            f"{recipe}: a row for each turn: {r.err}",
        )
        rows = late[1]
        check(
            early[1]["turn 1"][1:3] == (early[1]["turn 1"][0], 100)
            and rows["turn 1"][2] < 100
            and rows["turn 3"][2] > rows["turn 1"][2],
            f"{recipe}: the first turn gives way: {rows}",
        )
        check(
            rows["turn 1"][3] == "first message" and rows["turn 2"][3] == " [31mred   message",
            f"{recipe}: turns are named by their words: {rows}",
        )
        n = int(re.search(r"cache +(\d+) tokens", late[2])[1])
        check(
            sum(row[0] for row in rows.values()) == n,
            f"{recipe}: the turns make up the {n} tokens: {rows}",
        )
    many = memory_tables(
        knapsack(
            *chat,
            "h2o,slots=64",
            stdin=b"".join(b"message %d\n" % i for i in range(15)) + b"/memory\n",
            env={"LC_ALL": "C"},
        ).err
    )[0]
    check(
        list(many[1]) == ["opening", "turns 1 to 3", *(f"turn {i}" for i in range(4, 16))],
        f"old turns share a row: {many[2]}",
    )
    plain = knapsack(
        "run",
        "-m",
        model,
        *BASE,
        "--kv",
        "h2o,slots=64",
        "-p",
        "hello " * 30,
        "-n",
        4,
        "--session",
        saved + ".run",
    )
    text = memory_tables(
        knapsack(
            *chat,
            "h2o,slots=64",
            stdin=f"/load {saved}.run\n/memory\nhello\n/memory\n".encode(),
            env={"LC_ALL": "C"},
        ).err
    )
    check(
        plain.code == 0
        and [list(t[1]) for t in text] == [["turn 1"], ["turn 1", "turn 2"]]
        and text[0][1]["turn 1"][3] == "(a text without turns)",
        f"a text is a turn: {text}",
    )


def test_refusals(folder, model):
    base = tiny_model(folder, name="base.gguf", template=None)
    check_refused(
        knapsack("chat", "-m", base, stdin=b"hello\n"),
        3,
        "base.gguf",
        "no chat template",
        "knapsack run",
    )
    odd = tiny_model(folder, name="odd.gguf", template="{% endfor %}")
    check_refused(knapsack("chat", "-m", odd, stdin=b"hello\n"), 2, "--chat-template")
    check_refused(
        knapsack("chat", "-m", model, "--chat-template", "nonsense"), 1, "nonsense", "chatml"
    )
    chosen = knapsack(
        "chat", "-m", base, *BASE, "-n", 8, "--chat-template", "chatml", stdin=b"hello\n"
    )
    check(chosen.code == 0 and chosen.out, "--chat-template gives a base model a frame")


def test_keys(model):
    t = Terminal("chat", "-m", model, *BASE, "-n", 8)
    check("tiny.gguf" in t.expect("> $"), "a header")
    cases = {
        "/abc\r": "/abc",
        "/abX\x7fc\r": "/abc",
        "/acb\x1b[D\x1b[D\x1b[C\x7f\x1b[Cc\r": "/abc",
        "abc\x01/\r": "/abc",
        "abc\x1b[H/\x1b[FX\x1b[D\x1b[3~\r": "/abc",
        "/abc def\x17\x7f\r": "/abc",
        "zzz\x15/abc\r": "/abc",
        "/abczz\x02\x02\x0b\r": "/abc",
        "/ab\u00fc\u4e2d\x7f\x7fc\r": "/abc",
        "/abe\u0301\x7fc\r": "/abc",
        "/ab\u4e2d\x1b[D\x04c\r": "/abc",
        "zz /abc\x1b[1;5D\x1b[1;5D\x1b[3~\x1b[3~\x1b[3~\r": "/abc",
        "\x1b[A\r": "/abc",
        "/old\r": "/old",
        "/mid\x1b[A\x1b[A\x1b[B\x1b[B\r": "/mid",
        "/" + "w" * 90 + "\x01" + "\x1b[C" * 4 + "\x0b\r": "/www",
        "\x1b[99~\x1b[200~/abc\x1b[201~\r": "/abc",
        "/ab\tc\r": "/abc",
        "/abe\u0301c\x01\x1b[C\x1b[C\x1b[C\x1b[3~\r": "/abc",
    }
    for keys, want in cases.items():
        t.type(keys, re.escape(f"unknown command {want};") + r"[^>]*> $", 5)
    t.type("/help\r", "/regen[^>]*> $")
    t.type("/memory\r", r"(?s)weights.*cache.*budget.*0 of 256 tokens held.*> $")
    t.type("\x1b[200~hello\rworld\x1b[201~", "world")
    seen = t.type("\r", r"\[read \d+ at .* of 256 tokens held\]\s+> $")
    pasted = "<|im_start|>user\nhello\nworld<|im_end|>\n<|im_start|>assistant\n"
    check(
        f"[read {len(prompt_ids(model, pasted))} at" in seen,
        f"a pasted message of two lines: {seen!r}",
    )
    t.type("/regen\r", r"\[read 1 at .*\]\s+> $")
    t.type("/clear\r", r"forgotten\s+> $")
    t.type('"""one\r', r"\. $")
    t.type('two"""\r', r"held\]\s+> $")
    t.type("a message\x03", "> $")
    t.type("\x04")
    check(t.wait() == 0, f"Ctrl-D quits with 0: {t.code}")
    check("\x1b[2m" in t.raw, "figures are dim")


def test_interrupts(model):
    t = Terminal(
        "chat", "-m", model, *BASE, "-c", 60000, "--logit-bias", "2-inf", "--logit-bias", "0-inf"
    )
    t.expect("> $")
    t.type("hello\r", r"hello\s+\S+")
    t.type("\x03", r"\[read .*\]\s+> $", 10)
    t.type("/exit", "/exit")
    t.type("\x03", "> $")
    os.write(t.fd, b"\x03")
    check(t.wait() == 130, f"Ctrl-C at the prompt quits with 130: {t.code}")

    t = Terminal("chat", "-m", model, *BASE, "--no-stats", "-n", 4, env={"NO_COLOR": "1"})
    t.expect("> $")
    seen = t.type("hello\r", r"(?s)hello.*> $")
    check(
        "[read" not in seen and "\x1b[2m" not in t.raw and "\x1b[0m" not in t.raw,
        "--no-stats and NO_COLOR",
    )
    before = termios.tcgetattr(t.fd)[3]
    os.kill(t.pid, signal.SIGTERM)
    check(
        t.wait() == -signal.SIGTERM and not before & termios.ICANON,
        "the editor reads keys, SIGTERM ends",
    )


def test_terminal_restored(model):
    """The terminal's mode is restored during an answer, after a fatal signal, and at the end."""
    t = Terminal(
        "chat", "-m", model, *BASE, "-c", 60000, "--logit-bias", "2-inf", "--logit-bias", "0-inf"
    )
    t.expect("> $")
    t.type("hello\r", r"hello\s+\S+")
    check(termios.tcgetattr(t.fd)[3] == t.before[3], "cooked while an answer is written")
    t.type("\x03", r"\]\s+> $", 10)
    read_end, write_end = os.pipe()
    chat = f"'{BINARY}' chat -m '{model}' --device cpu --memory 64MiB"
    shell = f"{chat}; stty -a </dev/tty >/dev/fd/{write_end}"
    pid, fd = pty.fork()
    if pid == 0:
        os.set_inheritable(write_end, True)
        os.execve("/bin/sh", ["sh", "-c", shell], {**CLEAN, "TERM": "xterm"})
    os.close(write_end)
    seen = b""
    while not seen.endswith(b"> ") and b"> \r" not in seen:
        seen += os.read(fd, 4096)
    os.write(fd, b"\x04")
    modes = b""
    while part := os.read(read_end, 4096):
        modes += part
    check(
        b"icanon" in modes
        and not any(x in modes for x in (b"-icanon", b"-echo ", b"-isig", b"-icrnl")),
        f"the terminal's modes at the end: {modes}",
    )
    os.kill(t.pid, signal.SIGKILL)


def test(folder):
    model = tiny_model(folder)
    test_pipe(folder, model)
    test_memory(folder, model)
    test_refusals(folder, model)
    if not has_terminal():
        return
    test_keys(model)
    test_interrupts(model)
    test_terminal_restored(model)


run_tests(test)
