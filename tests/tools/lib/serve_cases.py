"""Numbered cases of the server's tests, and the models and servers that they share.

A test is called with the program's path and, if wanted, a model: without one it uses a small
random model. `--only 5,33` runs some cases.
"""

import contextlib
import itertools
import os
import sys
import tempfile
import time
import traceback

import server as server_module
from scripted_model import TEMPLATE
from tiny_model import write_model

WORDS = [" " + "".join(w) for w in itertools.product("bdkmnrst", "aeio", "lmnr")][:128]
TINY_CONTEXT = 4096
CASES = []


def case(number, title, real=False):
    """Registers a case. real: only with a real model."""

    def register(run):
        CASES.append((number, title, real, run))
        return run

    return register


def write_chat_model(path, merged=False):
    """A random model that answers in words, with a chatml template and tools."""
    words = [word.strip() for word in WORDS] if merged else WORDS
    write_model(path, template=TEMPLATE, context=TINY_CONTEXT, words=words, merged=merged)
    return path


class Setup:
    """What a case gets: a model, servers, and expect().

    merged: the small model tokenizes an answer as it was made. By default it does not, so answers
    have to be continued as they were made.
    """

    def __init__(self, folder, model, merged=False):
        self.folder, self.real = folder, model is not None
        self.model = model or write_chat_model(os.path.join(folder, "tiny.gguf"), merged)
        self.memory = "256MiB" if self.real else "48MiB"
        self.patience = 8 if server_module.SANITIZED else 1  # a factor of limits in seconds
        self.alias = os.path.basename(self.model)[: -len(".gguf")]
        # An evicting recipe whose answers have no end.
        self.endless = ["--kv", "sink,slots=256", "--max-answer", 1 << 20]
        self.shared, self.faults, self.n_folders = None, [], 0

    def expect(self, condition, expected, found=""):
        if not condition:
            self.faults.append(f"expected {expected}, found {str(found)[:300]!r}")
        return bool(condition)

    def expect_error(self, response, status, kind=None, param=None, words=(), reason=None):
        """Checks the status, the error object and the words of its message."""
        e = response.error()
        text = str(e.get("message", "")).lower()
        fine = (
            response.status == status
            and isinstance(e.get("message"), str)
            and e["message"]
            and (kind is None or e.get("type") == kind)
            and (param is None or str(e.get("param", "")).startswith(param))
            and (reason is None or e.get("reason") == reason)
            and all(w.lower() in text for w in words)
        )
        wanted = [str(status), kind, param and f"param {param}", reason, *words]
        return self.expect(fine, f"an error with {[w for w in wanted if w]}", response)

    def new_folder(self):
        self.n_folders += 1
        path = os.path.join(self.folder, f"park{self.n_folders}")
        os.mkdir(path, 0o700)
        return path

    def options(self, conversations=2, queue=2, memory=None):
        return [
            *("--memory", memory or self.memory, "--device", "cpu"),
            *("--conversations", conversations, "--queue", queue),
        ]

    def start(self, *more, conversations=2, queue=2, memory=None, **kw):
        """A server of the case's own, to be used with `with`."""
        return server_module.Server(
            self.model, *self.options(conversations, queue, memory), *more, **kw
        )

    @property
    def server(self):
        """The server that cases share, started when it is not there."""
        if self.shared is None or not self.shared.alive():
            self.shared = self.start("--park", self.new_folder())
        return self.shared

    def close(self):
        if self.shared is not None:
            self.expect(self.shared.stop() == 0, "exit code 0 after SIGTERM", self.shared.code)
            self.shared = None

    def no_end(self, server):
        """A logit_bias that keeps answers from ending by themselves."""
        ids = [
            server.post("/tokenize", {"content": marker, "parse_special": True}).json()["tokens"]
            for marker in ("<|im_end|>", "<|endoftext|>", "<|im_start|>")
        ]
        return {str(x[0]): -100 for x in ids if len(x) == 1}

    def filler(self, n_tokens, salt=""):
        """A text of about so many tokens."""
        if not self.real:
            return (f"{salt} " + "abcdefghi " * (n_tokens // 10 + 1))[:n_tokens]
        words = "the old house by the sea has seven windows and a green door "
        return f"{salt} " + words * (n_tokens // 13) + words[: 5 * (n_tokens % 13)]


def run_case(setup, number, title, run):
    setup.faults = []
    try:
        run(setup)
    except Exception as e:  # one case may not end the others
        where = traceback.extract_tb(e.__traceback__)
        lines = [f.lineno for f in where if f.filename == run.__code__.co_filename]
        setup.faults.append(f"line {lines[-1] if lines else 0}: {type(e).__name__}: {e}"[:400])
    if setup.shared is not None and not setup.shared.alive():
        setup.faults.append(
            f"the server ended with {setup.shared.process.poll()}: {setup.shared.err[-300:]!r}"
        )
        setup.shared = None
    for fault in setup.faults:
        print(f"FAILED: case {number}, {title}: {fault}", flush=True)
    return not setup.faults


def run_cases():
    """Runs the registered cases and exits: 0 if all held, 77 without a server in the program."""
    args = sys.argv[2:]
    only = None
    if "--only" in args:
        i = args.index("--only")
        only = set(args[i + 1].split(","))
        del args[i : i + 2]
    verbose = "-v" in args
    args = [a for a in args if a != "-v"]
    model = os.path.abspath(args[0]) if args else None
    server_module.skip_unless_built()
    chosen = [
        c for c in CASES if (only is None or c[0] in only) and (model is not None or not c[2])
    ]
    held = 0
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(folder, model)
        for number, title, _, run in chosen:
            begin = time.monotonic()
            fine = run_case(setup, number, title, run)
            held += fine
            if verbose:
                print(
                    f"case {number} {'held' if fine else 'failed'} "
                    f"in {time.monotonic() - begin:.1f} s: {title}",
                    flush=True,
                )
        with contextlib.suppress(Exception):
            setup.close()
    print(f"{held} of {len(chosen)} cases held")
    sys.exit(0 if held == len(chosen) else 1)
