#!/usr/bin/env python3
"""Runs the program in a pseudo-terminal and writes the contents of the screen as SVG.

    scripts/terminal_svg.py build/knapsack MODEL.gguf docs/img/session.svg

Commands and messages are typed like a user's. The picture shows only the file name of the model,
and no name of the CPU.
"""

import fcntl
import html
import os
import pty
import re
import select
import shutil
import struct
import sys
import tempfile
import termios
import time

COLUMNS, ROWS = 106, 200
BUDGET = "128MiB"
COMMANDS = [
    (f"knapsack plan -m smollm2.gguf --memory {BUDGET}", []),
    (
        f"knapsack chat -m smollm2.gguf --memory {BUDGET} --temp 0",
        ["Why is the sky blue? Answer in one sentence.", "/exit"],
    ),
]
BLOCKS = "█▉▊▋▌▍▎▏▒░"
CONTROL = re.compile(r"\x1b\[([?\d;]*)([@-~])|\x1b[()].|\x1b.|.", re.S)


class Screen:
    """The part of a terminal that the program uses: text, colours, cursor movement."""

    def __init__(self):
        self.cells = [[]]  # a row is a list of (character, style)
        self.row = self.column = 0
        self.style = ""

    def put(self, character):
        if self.column == COLUMNS:
            self.row, self.column = self.row + 1, 0
        self.reach()
        line = self.cells[self.row]
        line.extend([(" ", "")] * (self.column + 1 - len(line)))
        line[self.column] = (character, "bar" if character in BLOCKS else self.style)
        self.column += 1

    def reach(self):
        while self.row >= len(self.cells):
            self.cells.append([])

    def write(self, text):
        for found in CONTROL.finditer(text):
            numbers = [int(n) for n in re.findall(r"\d+", found[1] or "")]
            n, end = (numbers or [0])[0], found[2]
            if end is None:
                self.plain(found[0])
            elif end == "m":
                self.style = {0: "", 1: "bold", 2: "dim"}.get(n, "colour")
            elif end == "K":
                self.reach()
                del self.cells[self.row][self.column :]
            elif end == "J":
                del self.cells[self.row + 1 :]
                del self.cells[self.row][self.column :]
            elif end in "ABCD":
                step = max(1, n) * (-1 if end in "AD" else 1)
                self.row, self.column = (
                    (max(0, self.row + step), self.column)
                    if end in "AB"
                    else (self.row, max(0, self.column + step))
                )
            elif end == "G":
                self.column = max(0, n - 1)

    def plain(self, character):
        if character == "\n":
            self.row += 1
            self.reach()
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character >= " " and not character.startswith("\x1b"):
            self.put(character)


def run(screen, argv, typed, folder):
    """Runs one command. Each message is typed when the prompt appears."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(
            argv[0],
            argv,
            {
                "PATH": os.environ["PATH"],
                "TERM": "xterm-256color",
                "LANG": "C.UTF-8",
                "HOME": folder,
            },
        )
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    waiting, held, last = list(typed), b"", time.time()
    while True:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            held += data
            text = held.decode(errors="ignore")
            held, last = b"", time.time()
            screen.write(text)
        elif (
            waiting
            and time.time() - last > 0.7
            and "".join(c for c, _ in screen.cells[-1]).startswith(">")
        ):
            os.write(fd, waiting.pop(0).encode() + b"\r")
    os.waitpid(pid, 0)


def rows_of(binary, model):
    screen = Screen()
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(model), os.path.join(folder, "smollm2.gguf"))
        for command, typed in COMMANDS:
            screen.style = "bold"
            screen.write("$ " + command)
            screen.style = ""
            screen.write("\r\n")
            run(screen, [os.path.abspath(binary), *command.split()[1:]], typed, folder)
            screen.column = 0
            if screen.cells[screen.row]:
                screen.write("\r\n")
            screen.write("\r\n")
    rows = []
    for cells in screen.cells:
        text = "".join(c for c, _ in cells)
        cut = re.search(r" \([^()]*thread[^()]*\)", text)  # the name of the CPU
        rows.append(cells[: cut.start()] + cells[cut.end() :] if cut else cells)
    while rows and not any(c != " " for c, _ in rows[-1]):
        rows.pop()
    return [
        row
        for i, row in enumerate(rows)
        if any(c != " " for c, _ in row) or i and any(c != " " for c, _ in rows[i - 1])
    ]


def svg(rows):
    """Draws a dark terminal. Each run of one style in a row is a text at its first column."""
    wide, high, left, top = 8.43, 19, 16, 40
    width, height = int(2 * left + wide * COLUMNS), top + high * len(rows) + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="Knapsack in a terminal: a plan, then a chat inside {BUDGET}">',
        "<style>text{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d6deeb;"
        "white-space:pre}.bold{font-weight:bold;fill:#fff}.dim{fill:#8793a8}"
        ".colour,.bar{fill:#82aaff}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#101724"/>',
        '<g fill="#3b4658"><circle cx="20" cy="18" r="5"/><circle cx="38" cy="18" r="5"/>'
        '<circle cx="56" cy="18" r="5"/></g>',
    ]
    for number, row in enumerate(rows):
        at = 0
        while at < len(row):
            end = at
            while end < len(row) and row[end][1] == row[at][1]:
                end += 1
            text = "".join(c for c, _ in row[at:end])
            if text.strip():
                style = f' class="{row[at][1]}"' if row[at][1] else ""
                lead = len(text) - len(text.lstrip())
                body = text.strip()
                out.append(
                    f'<text x="{left + wide * (at + lead):.1f}" y="{top + high * number + 14}" '
                    f'textLength="{wide * len(body):.1f}" xml:space="preserve"{style}>'
                    f"{html.escape(body)}</text>"
                )
            at = end
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 4 or not shutil.which(sys.argv[1]):
        sys.exit("usage: terminal_svg.py PROGRAM MODEL OUTPUT.svg")
    with open(sys.argv[3], "w", encoding="utf-8") as f:
        f.write(svg(rows_of(sys.argv[1], sys.argv[2])))


if __name__ == "__main__":
    main()
