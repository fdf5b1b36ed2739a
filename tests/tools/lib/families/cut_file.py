"""A file from which a session still reads loses its end meanwhile."""

import os
import subprocess
from types import SimpleNamespace

from program import BINARY, CLEAN

CHAT = ["chat", "-t", "1", "--device", "cpu", "--chat-template", "chatml", "-n", "4", "-c", "128"]


def check_cut(report, files):
    with subprocess.Popen(
        [BINARY, *CHAT, "-m", files.model, "--memory", "64MiB"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=CLEAN,
    ) as p:
        p.stdin.write(b"he\n")
        p.stdin.flush()
        p.stdout.read(1)  # the session is open
        os.truncate(files.model, 4096)
        err = p.communicate(b"hello\n", timeout=300)[1].decode()
    sentences = [line for line in err.split("\n") if line.startswith("knapsack: ")]
    result = SimpleNamespace(code=p.returncode, err=err, sentences=sentences)
    report.refused(result, (2,), "a file that lost its end")
    report.check("ends at offset" in err, f"a file that lost its end: {err[-300:]!r}")
