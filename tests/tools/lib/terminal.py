"""Runs the program on a pseudo-terminal."""

import os
import pty
import re
import select
import signal
import termios
import time

from program import BINARY, CLEAN, check


def has_terminal():
    """Whether pseudo-terminals can be opened here. Prints why not."""
    try:
        for fd in pty.openpty():
            os.close(fd)
    except OSError as e:
        print(f"no terminal to test on: {e}")
        return False
    return True


class Terminal:
    """Runs the program on a terminal of 40 columns and collects its output."""

    def __init__(self, *args, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BINARY, [BINARY, *map(str, args)], {**CLEAN, "TERM": "xterm", **(env or {})})
        (
            termios.tcsetwinsize(self.fd, (12, 40))
            if hasattr(termios, "tcsetwinsize")
            else os.system(f"stty rows 12 cols 40 </proc/self/fd/{self.fd}")
        )
        self.before = termios.tcgetattr(self.fd)
        self.raw, self.code = "", None
        self.at = 0

    def pump(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.raw += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                self.code = (
                    os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                    if self.code is None
                    else self.code
                )

    def text(self):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.raw[self.at :])

    def expect(self, pattern, seconds=30):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text()):
            if self.code is not None or time.monotonic() > end:
                check(False, f"expected /{pattern}/ on the terminal, found {self.text()[-400:]!r}")
                return ""
            self.pump(0.2)
        check(True, pattern)
        found = self.text()
        self.at = len(self.raw)
        return found

    def type(self, keys, pattern=None, seconds=30):
        os.write(self.fd, keys.encode() if isinstance(keys, str) else keys)
        return self.expect(pattern, seconds) if pattern else ""

    def wait(self, seconds=30):
        end = time.monotonic() + seconds
        while self.code is None and time.monotonic() < end:
            self.pump(0.2)
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.code
