#!/usr/bin/env python3
"""serve from outside: framing, limits and connections."""

import base64
import json
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from http_client import Closed, Connection, request_bytes  # noqa: E402
from serve_cases import case, run_cases  # noqa: E402
from server import chat_body, text_of  # noqa: E402
from smuggling import smuggled  # noqa: E402
from streams import CHAT  # noqa: E402


@case("36", "framing that proxies read differently")
def smuggling(t):
    for name, data in smuggled(json.dumps(chat_body()).encode()):
        with t.server.connect(timeout=20) as c:
            try:
                c.send(data)
                r = c.response()
                refused = r.status in (400, 431, 501, 505) or (
                    name in ("a huge chunk size", "a length of 30 digits") and r.status == 413
                )
                if not t.expect(refused, f"400 for {name}", r):
                    continue
            except (Closed, OSError, ValueError) as e:
                # A connection closed without an answer is safe.
                t.expect(not isinstance(e, TimeoutError), f"an answer to {name}", repr(e))
                continue
            t.expect(c.is_closed(), f"a closed connection after {name}")
    t.expect(t.server.chat().status == 200, "an answer afterwards")


@case("37", "large heads")
def large_heads(t):
    for name, path, headers, statuses in (
        ("a head of 17 KiB", "/health", [("X-A", "b" * (17 << 10))], (431,)),
        ("65 headers of 300 bytes", "/health", [(f"X-{i}", "b" * 300) for i in range(65)], (431,)),
        ("a URI of 9 KiB", "/health?" + "a" * (9 << 10), [], (414, 431)),
    ):
        with t.server.connect(timeout=20) as c:
            c.send(request_bytes("GET", path, headers=headers))
            r = c.response()
            t.expect(r.status in statuses, f"{statuses} for {name}", r)


@case("38", "a body of 100 MB by its length")
def large_length(t):
    for expect in (False, True):
        head = [("Authorization", "Bearer k1"), ("Content-Length", 100 << 20)]
        head += [("Expect", "100-continue")] if expect else []
        with t.server.connect(timeout=20) as c:
            c.send(request_bytes("POST", CHAT, headers=head))
            begin = time.monotonic()
            r = c.response()
            t.expect_error(r, 413, "invalid_request_error", reason="body_too_large")
            t.expect(
                not r.interim and time.monotonic() - begin < 2,
                "the answer before the body, without 100",
                r.interim,
            )
    body = json.dumps(chat_body()).encode()
    with t.server.connect(timeout=20) as c:
        headers = [("Authorization", "Bearer k1"), ("Content-Length", len(body))]
        c.send(request_bytes("POST", CHAT, headers=[*headers, ("Expect", "100-continue")]))
        begin = time.monotonic()
        first = c.line()
        t.expect(b" 100" in first and time.monotonic() - begin < 2, "100 for a small body", first)
        c.line()
        c.send(body)
        t.expect(c.response().status == 200, "200 after 100-continue")


@case("39", "a chunked body of 100 MB")
def large_chunks(t):
    t.server.chat()
    before, most = t.server.rss(), 0
    with t.server.connect(timeout=60) as c:
        c.send(
            request_bytes(
                "POST",
                CHAT,
                headers=[("Authorization", "Bearer k1"), ("Transfer-Encoding", "chunked")],
            )
        )
        chunk = b"10000\r\n" + b"[" * 65536 + b"\r\n"
        c.socket.settimeout(2)
        try:
            for _ in range(1600):
                c.send(chunk)
                most = max(most, t.server.rss())
        except OSError:
            pass  # the server closed, or stopped reading
        try:
            r = c.response()
            t.expect(r.status == 413, "413", r)
        except (Closed, OSError):
            pass  # the answer is lost when the server resets the connection
    t.expect(most - before < 6 << 20, "flat memory", most - before)
    t.expect(t.server.chat().status == 200, "an answer afterwards")


@case("39a", "a message of a megabyte without a space")
def long_word(t):
    t.server.chat()
    before = t.server.rss()
    with t.start(*t.endless) as s:
        s.chat()
        before = s.rss()
        size = 1 << 20 if t.real else 1 << 18
        for text in ("a" * size, base64.b64encode(os.urandom(size * 3 // 4)).decode()):
            begin = time.monotonic()
            r = s.post(CHAT, chat_body(text), timeout=600)
            t.expect(r.status in (200, 400, 413), "200 or 400", r)
            print(f"a word of {size} bytes: {r.status} in {time.monotonic() - begin:.1f} s")
            t.expect(s.rss() - before < 8 << 20, "flat memory", s.rss() - before)


@case("43", "requests on one connection")
def keep_alive(t):
    with t.server.connect() as c:
        for i in range(100):
            body = chat_body(max_tokens=1) if i % 10 == 9 else None
            method, path = ("POST", CHAT) if body else ("GET", "/health")
            c.send(t.server.bytes(method, path, body))
            r = c.response()
            t.expect(r.status == 200, f"200 for request {i}", r)
    with t.server.connect() as c:
        c.send(t.server.bytes("GET", "/health") + t.server.bytes("GET", "/v1/models"))
        first, second = c.response(), c.response()
        t.expect(
            first.json() == {"status": "ok"} and second.json()["object"] == "list",
            "two requests in one packet answered in order",
            (first, second),
        )
    with t.server.connect() as c:
        data = t.server.bytes("POST", CHAT, chat_body(max_tokens=2))
        c.send(data + data)
        texts = [text_of(c.response()) for _ in range(2)]
        t.expect(texts[0] == texts[1], "two chats in one packet answered", texts)
    with t.server.connect() as c:
        c.send(t.server.bytes("GET", "/health", headers={"Connection": "close"}))
        t.expect(c.response().status == 200 and c.is_closed(), "Connection: close is obeyed")


@case("44", "HTTP/1.0")
def old_version(t):
    with t.server.connect() as c:
        c.send(t.server.bytes("POST", CHAT, chat_body(stream=True), version="1.0"))
        r = c.response()
        t.expect("transfer-encoding" not in r.headers, "no chunks", r.pairs)
        t.expect(
            r.status == 200 and r.events and r.events[-1].data == "[DONE]", "a whole stream", r
        )
        t.expect(c.is_closed(), "a closed connection")
    r = t.server.get("/health", version="1.0")
    t.expect(r.json() == {"status": "ok"}, "health", r)


@case("split", "a request in pieces gives the same answer")
def pieces(t):
    data = t.server.bytes("POST", CHAT, chat_body("Tell me about the sea.", max_tokens=12))
    texts = []
    for piece in (0, 1, 7, 100):
        with t.server.connect() as c:
            c.send(data, piece)
            texts.append(text_of(c.response()))
    t.expect(texts[0] and len(set(texts)) == 1, "equal answers", texts)


@case("unix", "a Unix socket")
def unix_socket(t):
    path = os.path.join(t.folder, "socket")
    with t.start(unix=path) as s:
        t.expect(s.chat().status == 200, "an answer")
        t.expect(os.stat(path).st_mode & 0o777 == 0o600, "mode 0600", oct(os.stat(path).st_mode))
    t.expect(not os.path.exists(path), "no socket after the end")


@case("health", "health answers while the engine works")
def busy_health(t):
    with t.start(*t.endless) as s, s.stream(CHAT, chat_body(max_tokens=1 << 20)) as (c, r):
        t.expect(r.status == 200, "a stream", r)
        times = []
        for _ in range(20):
            begin = time.monotonic()
            t.expect(s.get("/health").status == 200, "200")
            times.append(time.monotonic() - begin)
        t.expect(sorted(times)[10] < 0.2, "health within 0.2 s", sorted(times)[10])
        c.close()


@case("slowloris", "slow senders leave room for others")
def slow_senders(t):
    with t.start("--connections", 8) as s:
        slow = []
        try:
            for _ in range(16):
                c = Connection(s.address, timeout=5)
                slow.append(c)
                c.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")
            for i in range(5):
                for c in slow:
                    try:
                        c.send(b"alhost"[i : i + 1])
                    except OSError:
                        pass
                time.sleep(0.2)
                try:
                    r = s.request("GET", "/health", timeout=10)
                    t.expect(r.status == 200, "health while all connections are slow", r)
                except (OSError, Closed) as e:
                    t.expect(False, "health while all connections are slow", repr(e))
        finally:
            for c in slow:
                c.close()
        time.sleep(0.2)
        t.expect(s.chat().status == 200, "an answer afterwards")


@case("bind", "an open address needs a key, a taken one is refused")
def bind(t):
    import subprocess

    from program import BINARY, CLEAN

    def run(*args):
        p = subprocess.run(
            [BINARY, "serve", "-m", t.model, *map(str, t.options()), *map(str, args)],
            capture_output=True,
            env=CLEAN,
            timeout=60,
        )
        return p.returncode, p.stderr.decode()

    code, err = run("--host", "0.0.0.0", "--port", "0")
    t.expect(code not in (0, 139) and "key" in err, "a refusal that names the key", (code, err))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, err = run("--port", taken.getsockname()[1])
        t.expect(
            code == 6 and str(taken.getsockname()[1]) in err, "exit 6 for a taken port", (code, err)
        )
    code, err = run("--memory", "1KiB")
    t.expect(code == 4, "exit 4 for a small budget", (code, err[-200:]))


if __name__ == "__main__":
    run_cases()
