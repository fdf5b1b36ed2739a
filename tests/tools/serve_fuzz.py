#!/usr/bin/env python3
"""Fuzzes serve over sockets: splits, smuggling, slow senders, many connections, mutations.

    serve_fuzz.py KNAPSACK [--model FILE] [--mutations N] [--connections N] [--seed N]

The server must stay alive and its memory bounded. Equal bytes get equal answers however they are
split. Exits with 1 on a failure."""

import argparse
import json
import os
import random
import re
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from http_client import Closed  # noqa: E402
from program import check  # noqa: E402
import program  # noqa: E402
from serve_cases import Setup  # noqa: E402
from server import chat_body, open_files, skip_unless_built  # noqa: E402
from smuggling import smuggled  # noqa: E402

CHAT = "/v1/chat/completions"
OVERHEAD, GROWTH = 24 << 20, 6 << 20
ODD = [None, True, 0, -1, 1e308, 1 << 70, "", "a", [], {}, [[]], "\0", "\ud800", "x" * 3000, [None]]
SPICE = [
    b"\r\n",
    b"\n",
    b"\0",
    b"\r\n\r\n",
    b"{",
    b"}",
    b'"',
    b"\\u",
    b"chunked",
    b"Content-Length: 9",
    b"Transfer-Encoding: chunked\r\n",
    b"\xff\xfe",
    b"HTTP/1.1",
    b"%00",
    b"../",
    b"-1",
    b"[" * 200,
    b"9" * 40,
]


def seeds(server):
    """Valid requests, short to answer."""
    short = {"max_tokens": 2, "n_predict": 2, "max_output_tokens": 2}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a", 1, None]}}}
    posts = (
        (CHAT, {"messages": messages, "temperature": 0.5, "stop": ["a"], "seed": 1}),
        (CHAT, {"messages": messages, "stream": True, "logprobs": True, "top_logprobs": 2}),
        (CHAT, {"messages": messages, "tools": [tool], "tool_choice": "auto"}),
        (CHAT, {"messages": messages, "response_format": schema}),
        (CHAT, {"messages": messages, "grammar": 'root ::= "a" | "b"', "logit_bias": {"5": -1}}),
        ("/v1/completions", {"prompt": "Once", "logprobs": 1}),
        ("/completion", {"prompt": [1, 2, "a"], "n_probs": 2, "response_fields": ["content"]}),
        ("/v1/messages", {"messages": messages[1:], "system": "Hi", "stream": True}),
        ("/v1/responses", {"input": messages[1:], "instructions": "Hi"}),
        ("/tokenize", {"content": "abc", "with_pieces": True}),
        ("/detokenize", {"tokens": [5, 6]}),
        ("/apply-template", {"messages": messages}),
        ("/slots/0?action=save", {"filename": "a"}),
    )
    made = [
        (
            p,
            (
                {**short, **body}
                if "prompt" in str(body) or "messages" in body or "input" in body
                else body
            ),
        )
        for p, body in posts
    ]
    gets = ("/health", "/v1/models", "/metrics", "/props", "/slots", "/v1/knapsack/memory", "/")
    return made, [server.bytes("GET", path) for path in gets]


def odd_json(rng, value):
    """Replaces, removes or adds something in a value."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        rest = dict(value)
        pick = rng.random()
        if pick < 0.15:
            del rest[key]
        elif pick < 0.3:
            rest[rng.choice(("foo", "", "n", "stream", "messages"))] = rng.choice(ODD)
        else:
            rest[key] = odd_json(rng, value[key])
        return rest
    if isinstance(value, list) and value and rng.random() < 0.7:
        i = rng.randrange(len(value))
        return [*value[:i], odd_json(rng, value[i]), *value[i + rng.randrange(2) :]]
    return rng.choice(ODD)


def odd_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, pick = rng.randrange(len(data) + 1), rng.randrange(5)
        if pick == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif pick == 1:
            del data[at : at + rng.choice((1, 3, 20))]
        elif pick == 2:
            data[at:at] = rng.choice(SPICE)
        elif pick == 3:
            data[at:at] = data[at : at + rng.choice((1, 8, 100))]
        elif data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
    return bytes(data)


def complete(data):
    """Whether the bytes hold a request that a server must answer."""
    head, end, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    n = int(length[1][:18]) if length else 0
    return bool(end) and b"hunked" not in head and n <= len(body)


def outcome(server, data, piece):
    """(status, body) of bytes that may be no request, or why there is none."""
    with server.connect(timeout=20 if complete(data) else 0.3) as c:
        try:
            c.send(data, piece)
        except OSError:
            pass
        try:
            r = c.response()
        except Closed:
            return "closed", b""
        except TimeoutError:
            return "no answer", b""
        except (OSError, ValueError) as e:
            return type(e).__name__, str(e).encode()
        return r.status, r.body


def choices_of(body):
    try:
        return json.loads(body)["choices"]
    except (ValueError, KeyError):
        return body


class Fuzz:
    def __init__(self, setup, server, rng):
        self.setup, self.server, self.rng = setup, server, rng
        self.planned = server.memory()["planned"]
        server.chat()
        self.rss, self.files = server.rss(), open_files(server.process.pid)

    def well(self, what):
        """The server is alive, answers, and is as small as before."""
        if not self.server.alive():
            check(
                False,
                f"{what}: the server ended with {self.server.process.poll()}: "
                f"{self.server.err[-500:]}",
            )
            raise SystemExit(1)
        check(self.server.wait_idle(20) is not None, f"{what}: seats are busy")
        r = self.server.chat()
        check(r.status == 200, f"{what}: 200 afterwards, found {r}")
        rss = self.server.rss()
        check(rss <= self.planned + OVERHEAD, f"{what}: resident {rss}, plan {self.planned}")
        check(rss - self.rss <= GROWTH, f"{what}: resident memory grew by {rss - self.rss}")

    def splits(self):
        data = self.server.bytes("POST", CHAT, chat_body("Tell me.", max_tokens=6))
        whole = outcome(self.server, data, 0)
        for piece in (1, 7, 100, *(self.rng.randrange(2, 300) for _ in range(5))):
            found = outcome(self.server, data, piece)
            same = whole[0] == found[0] and choices_of(whole[1]) == choices_of(found[1])
            check(whole[0] == 200 and same, f"pieces of {piece}: {whole} {found}")
        self.well("splits")

    def smuggling(self):
        good = self.server.bytes("GET", "/v1/models")
        for name, data in smuggled(json.dumps(chat_body()).encode()):
            for piece in (0, 1):
                status, body = outcome(self.server, data + good, piece)
                safe = status in (400, 413, 431, 501, 505, "closed", "ConnectionResetError")
                check(
                    safe and body.count(b'"object":"list"') == 0, f"{name}: {status} {body[:200]}"
                )
        self.well("smuggling")

    def slow_senders(self, n=64):
        slow = []
        for _ in range(n):
            try:
                c = self.server.connect(timeout=2)
                c.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: ")
                slow.append(c)
            except OSError:
                pass
        for _ in range(5):
            for c in slow:
                try:
                    c.send(b"a")
                except OSError:
                    pass
            time.sleep(0.1)
            try:
                r = self.server.request("GET", "/health", timeout=20)
                check(r.status == 200, f"health beside slow senders: {r}")
            except (OSError, Closed) as e:
                check(False, f"health beside slow senders: {e!r}")
        for c in slow:
            c.close()
        time.sleep(0.3)
        self.well("slow senders")

    def connections(self, n):
        begin = time.monotonic()
        data = self.server.bytes("GET", "/health", headers={"Connection": "close"})
        bad = 0
        for i in range(n):
            try:
                with self.server.connect(timeout=20) as c:
                    if i % 10:
                        c.send(data)
                        bad += c.response().status != 200
                    elif i % 20:
                        c.reset()
            except (OSError, Closed, ValueError):
                bad += 1
        print(f"{n} connections in {time.monotonic() - begin:.1f} s")
        check(bad == 0, f"{bad} of {n} connections failed")
        time.sleep(0.5)
        left = open_files(self.server.process.pid)
        check(left <= self.files + 2, f"{left} open files, {self.files} before")
        self.well("connections")

    def half_requests(self, n_clients=30, n=40):
        """Many clients send a part of a request and close. Others must be answered at once."""
        data = self.server.bytes("POST", CHAT, chat_body("Half.", max_tokens=5, stream=True))
        cuts = [self.rng.randrange(1, len(data)) for _ in range(n)]

        def client():
            for cut in cuts:
                try:
                    with self.server.connect(timeout=5) as c:
                        c.send(data[:cut])
                        time.sleep(0.005)
                except OSError:
                    pass

        clients = [threading.Thread(target=client, daemon=True) for _ in range(n_clients)]
        for x in clients:
            x.start()
        begin, most = time.monotonic(), 0
        while any(x.is_alive() for x in clients) and time.monotonic() < begin + 20:
            asked = time.monotonic()
            try:
                r = self.server.request("GET", "/health", timeout=5)
                fine = r.status == 200
            except (OSError, Closed):
                fine = False
            most = max(most, time.monotonic() - asked)
            check(fine, f"health beside half requests, after {most:.1f} s")
            if not fine:
                raise SystemExit(1)
            time.sleep(0.05)
        check(not any(x.is_alive() for x in clients), "half requests end within 20 s")
        self.well("half requests")

    def mutations(self, n):
        posts, gets = seeds(self.server)
        found = {}
        for i in range(n):
            path, body = self.rng.choice(posts)
            pick = self.rng.random()
            if pick < 0.45:
                data = self.server.bytes("POST", path, odd_json(self.rng, body))
            elif pick < 0.9:
                data = odd_bytes(self.rng, self.server.bytes("POST", path, body))
            else:
                data = odd_bytes(self.rng, self.rng.choice(gets))
            status, answer = outcome(self.server, data, 0)
            found[status] = found.get(status, 0) + 1
            what = f"mutation {i} {data[:600]!r}"
            check(
                status not in (500, 502) and status != "ValueError",
                f"{what}: {status} {answer[:300]}",
            )
            if isinstance(status, int) and status >= 400 and answer:
                try:
                    fine = bool(json.loads(answer)["error"]["message"])
                except (ValueError, KeyError, TypeError):
                    fine = b"<html>" in answer  # refused by libmicrohttpd itself
                check(fine, f"{what}: an error without a message: {answer[:300]}")
            if status == "no answer":
                check(not complete(data), f"{what}: no answer")
            if i % 10 == 0:
                again, _ = outcome(self.server, data, self.rng.choice((1, 7, 100)))
                check(again == status or not isinstance(status, int), f"{what}: {status}, {again}")
            if i % 200 == 199 or not self.server.alive():
                self.well(what)
        print(f"{n} mutations: {found}")
        self.well("mutations")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("knapsack")
    p.add_argument("--model")
    p.add_argument("--mutations", type=int, default=400)
    p.add_argument("--connections", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    skip_unless_built()
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(folder, args.model and os.path.abspath(args.model))
        with setup.start("--park", setup.new_folder(), "--max-answer", 64) as server:
            fuzz = Fuzz(setup, server, random.Random(args.seed))
            fuzz.splits()
            fuzz.smuggling()
            fuzz.slow_senders()
            fuzz.connections(args.connections)
            fuzz.half_requests()
            fuzz.mutations(args.mutations)
        check(server.code == 0, f"exit code 0, found {server.code}")
    n, bad = program.checks, program.failures
    print(f"seed {args.seed}: {n - bad} of {n} checks held")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
