#!/usr/bin/env python3
"""Tests two properties of long runs: memory does not grow, and sessions survive kill -9.

The program is killed at random moments. Each time the session must continue exactly from its old or
its new file.

    scripts/soak.py build/knapsack [SECONDS] [SEED]

Each test gets half of the time, which is 60 seconds by default. Exits with 1 on failure."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "tools", "lib")
)
from tiny_model import write_model  # noqa: E402

# Allowed growth in bytes: memory of the C library, and the list of generated tokens for --json.
SLACK, PER_TOKEN = 1 << 20, 16


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stream(command, seconds):
    """Decodes until interrupted. Resident memory may not grow after a fifth of the time."""
    p = subprocess.Popen(
        [*command, "-p", "hello", "-n", "2000000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(seconds / 5)
    first = most = resident(p.pid)
    end = time.monotonic() + seconds * 4 / 5
    while time.monotonic() < end and p.poll() is None:
        most = max(most, resident(p.pid))
        time.sleep(0.2)
    p.send_signal(signal.SIGINT)
    made = json.loads(p.communicate(timeout=60)[0])
    print(
        f"stream: {len(made['ids'])} tokens, {made['evicted']} slots evicted, "
        f"{most - first} bytes of growth, {made['host_allocations']} allocations"
    )
    return (
        p.returncode == 130
        and most - first <= SLACK + PER_TOKEN * len(made["ids"])
        and made["peak_bytes"] == made["plan_bytes"]
        and made["host_allocations"] == 0
    )


def killed(command, folder, seconds, rng):
    """Each round decodes some tokens or is killed. Three more tokens show where the session is."""
    saved = os.path.join(folder, "session")
    command = [*command, "--session", saved]

    def go_on(n, *more):
        return json.loads(
            subprocess.run([*command, "-n", str(n), *more], capture_output=True, check=True).stdout
        )["ids"]

    begin = time.monotonic()
    whole = json.loads(
        subprocess.run(
            [*command[:-2], "-p", "hello", "-n", "4000", "-s", "5"], capture_output=True, check=True
        ).stdout
    )["ids"]
    go_on(1, "-p", "hello", "-s", "5")
    at, rounds, kept = 1, 0, 0
    longest = 0.3
    while time.monotonic() - begin < seconds and at < len(whole) - 60:
        n = rng.randrange(1, 50)
        started = time.monotonic()
        p = subprocess.Popen(
            [*command, "-n", str(n)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            p.wait(rng.uniform(0, longest))
            longest = max(0.05, 1.2 * (time.monotonic() - started))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        ids = go_on(3)
        old, new = whole[at : at + 3], whole[at + n : at + n + 3]
        if ids not in (old, new) or (p.returncode == 0 and ids != new):
            print(f"killed: after {rounds} rounds {ids} is neither {old} nor {new}")
            return False
        kept += ids == new
        at += 3 + (n if ids == new else 0)
        rounds += 1
    left = [name for name in os.listdir(folder) if name.startswith(".")]
    print(f"killed: {rounds} rounds, the new file {kept} times, {len(left)} files left behind")
    return rounds > 0 and not left


def main():
    program, seconds = os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        write_model(model)
        command = [
            program,
            "run",
            "-m",
            model,
            "--device",
            "cpu",
            "--memory",
            "64MiB",
            "--kv",
            "mix,slots=48",
            "-t",
            "1",
            "--temp",
            "1",
            "--ignore-eos",
            "--json",
        ]
        fine = [stream(command, seconds / 2), killed(command, folder, seconds / 2, rng)]
    sys.exit(0 if all(fine) else 1)


main()
