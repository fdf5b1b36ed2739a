"""Starts `knapsack serve` for the tests, and asks it for answers, memory and metrics."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

from http_client import Connection, free_port, request_bytes
from program import BINARY, CLEAN

KEY = "k1"
SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(\{[^}]*\})? (\S+)$")


def skip_unless_built():
    """Exits with 77 if the program was built without the server."""
    p = subprocess.run([BINARY, "serve"], capture_output=True, env=CLEAN, timeout=60)
    text = (p.stdout + p.stderr).decode(errors="replace")
    if "libmicrohttpd" in text:
        print("skipped: the program has no server, which needs libmicrohttpd")
        sys.exit(77)


def is_sanitized():
    """Whether a sanitizer is in the program, whose memory is not in the plan."""
    with open(BINARY, "rb") as f:
        data = f.read()
    return any(name in data for name in (b"__asan_init", b"__tsan_init", b"__msan_init"))


SANITIZED = is_sanitized()


def resident(pid):
    """Bytes of a process in memory; 0 under a sanitizer."""
    if SANITIZED:
        return 0
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def parse_metrics(text):
    """Prometheus' text format -> {name or name{labels}: value}. Raises ValueError on bad lines."""
    values, types, helps = {}, {}, set()
    for line in text.split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            types[name] = kind
        elif line.startswith("# HELP "):
            helps.add(line.split(" ", 3)[2])
        elif line and not line.startswith("#"):
            m = SAMPLE.match(line)
            if not m:
                raise ValueError(f"not a sample: {line!r}")
            name = m[1]
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            if name not in types and types.get(base) not in ("histogram", "summary"):
                raise ValueError(f"{name} has no TYPE line")
            if name not in helps and base not in helps:
                raise ValueError(f"{name} has no HELP line")
            if name + (m[2] or "") in values:
                raise ValueError(f"{name}{m[2] or ''} is there twice")
            values[name + (m[2] or "")] = float(m[3])
    return values


def quantile(metrics, name, q):
    """A quantile of a histogram, linear within its bucket. None without samples."""
    buckets = sorted(
        (float(m[1]), value)
        for key, value in metrics.items()
        if (m := re.match(re.escape(name) + r'_bucket\{le="([^"]+)"\}$', key))
    )
    low, before = 0, 0
    for bound, n in buckets:
        if n > before and n >= q * buckets[-1][1]:
            return low + (bound - low) * (q * buckets[-1][1] - before) / (n - before)
        low, before = bound, n
    return None


class Server:
    """A running server. Leaving the `with` block stops it.

    options are those of the command line; keys=() starts it without a key.
    """

    def __init__(self, model, *options, keys=(KEY,), unix=None, env=None, wait=60, ready=True):
        self.model, self.key = model, keys[0] if keys else None
        self.port = None if unix else free_port()
        self.address = unix or ("127.0.0.1", self.port)
        where = ["--unix", unix] if unix else ["--port", self.port]
        keyed = [x for key in keys for x in ("--api-key", key)]
        self.command = [BINARY, "serve", "-m", model, *where, *keyed, *options]
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            [str(x) for x in self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**CLEAN, "KNAPSACK_PEAK_SECONDS": "0.1", **(env or {})},
        )
        self.lines, self.listening = [], threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.code = None
        if ready:
            self.wait_ready(wait)

    def _read(self):
        for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self.lines.append(text)
            if text.startswith("listening on "):
                self.listening.set()
        self.listening.set()

    @property
    def err(self):
        return "\n".join(self.lines)

    def wait_listening(self, seconds=60):
        if not self.listening.wait(seconds) or not any(
            line.startswith("listening on ") for line in self.lines
        ):
            raise RuntimeError(f"the server does not listen: {self.err[-500:]}")

    def wait_ready(self, seconds=60):
        self.wait_listening(seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.get("/health").status == 200:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"the server is not ready: {self.err[-500:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, seconds=60):
        """Ends the server with SIGTERM. Returns its exit code."""
        if self.code is None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            try:
                self.code = self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                self.code = "not ended by SIGTERM"
            self.reader.join(10)
        return self.code

    def stop_only(self, seconds=60):
        """Waits for the end of a server that was told to stop. Returns its exit code."""
        try:
            self.code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return "still running"
        self.reader.join(10)
        return self.code

    def kill(self):
        self.process.kill()
        self.code = self.process.wait()
        self.reader.join(10)

    def alive(self):
        return self.process.poll() is None

    def rss(self):
        return resident(self.process.pid)

    def connect(self, **kw):
        return Connection(self.address, **kw)

    def headers(self, headers=None):
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return {**key, **(headers or {})}

    def bytes(self, method, path, body=None, headers=None, **kw):
        """The bytes of a request with the server's key."""
        return request_bytes(method, path, body, self.headers(headers), **kw)

    def request(self, method, path, body=None, headers=None, timeout=120, **kw):
        with self.connect(timeout=timeout) as c:
            try:
                c.send(self.bytes(method, path, body, headers, **kw))
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before the end of a large body
            return c.response(method)

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def chat(self, content="Hi", **fields):
        """A chat completion, greedy and short unless fields say otherwise. None leaves one out."""
        return self.post("/v1/chat/completions", chat_body(content, **fields))

    @contextlib.contextmanager
    def stream(self, path, body, headers=None, **kw):
        """Yields (connection, response with its head only): events are read by the caller."""
        with self.connect(**kw) as c:
            c.send(self.bytes("POST", path, {**body, "stream": True}, headers))
            yield c, c.head()

    def metrics(self):
        return parse_metrics(self.get("/metrics").body.decode())

    def memory(self):
        return self.get("/v1/knapsack/memory").json()

    def seats(self):
        return self.memory()["seats"]

    def count(self, content):
        """The tokens of a chat prompt."""
        answer = self.post("/v1/chat/completions/input_tokens", {"messages": messages_of(content)})
        return answer.json()["input_tokens"]

    def wait_idle(self, seconds=10):
        """Waits until no seat works. Returns the seconds it took, None when they run out."""
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            if not any(seat["state"] not in ("free", "idle") for seat in self.seats()):
                return time.monotonic() - begin
            time.sleep(0.005)
        return None


def messages_of(content):
    return content if isinstance(content, list) else [{"role": "user", "content": content}]


def chat_body(content="Hi", **fields):
    body = {"messages": messages_of(content), "max_tokens": 8, "temperature": 0, **fields}
    return {k: v for k, v in body.items() if v is not None}


def text_of(response):
    """The text of a chat completion, streamed or not."""
    if response.events:
        deltas = [c["delta"].get("content") for d in response.datas() for c in d.get("choices", [])]
        return "".join(x for x in deltas if x)
    return response.json()["choices"][0]["message"]["content"]


def logprobs_of(response):
    return response.json()["choices"][0]["logprobs"]["content"]
