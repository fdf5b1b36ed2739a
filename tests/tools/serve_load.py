#!/usr/bin/env python3
"""Loads serve with many clients: answers, memory, gaps. Prints one line of JSON.

    serve_load.py KNAPSACK [--model FILE] [--clients N] [--requests N] [--seconds S]
                  [--memory SIZE] [--conversations N] [--queue N] [--seed N] [--kv RECIPE]

Clients hold conversations of several turns, leave in the middle, read slowly, and send broken
requests. Resident memory may never be above the plan and 24 MiB. A sample of the conversations is
repeated alone, and must get the same answers. Exits with 1 on a failure."""

import argparse
import asyncio
import collections
import json
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from http_client import request_bytes  # noqa: E402
from serve_cases import Setup  # noqa: E402
from server import open_files, quantile, skip_unless_built, text_of  # noqa: E402

CHAT = "/v1/chat/completions"
OVERHEAD, GROWTH = 24 << 20, 1 << 20
KINDS = (("turn", 66), ("leave", 12), ("slow", 6), ("broken", 8), ("look", 8))
DOCUMENTED = {400, 401, 403, 404, 408, 413, 414, 429, 431}
TOPICS = "rain iron bread moon river glass horse paper salt winter copper garden".split()


def at_rank(values, q):
    values = sorted(values)
    return round(values[min(int(q * len(values)), len(values) - 1)], 4) if values else None


class Conversation:
    def __init__(self, rng, number):
        self.secret = f"{rng.getrandbits(40):010x}"
        words = " ".join(rng.choice(TOPICS) for _ in range(rng.randrange(2, rng.choice((20, 200)))))
        self.messages = [self.user(f"My number is {self.secret}. Tell me about {words}.")]
        self.number, self.turns, self.ended = number, [], False

    def user(self, text):
        return {"role": "user", "content": text}

    def add(self, text, max_tokens, rng):
        self.turns.append((list(self.messages), max_tokens, text))
        self.messages += [
            {"role": "assistant", "content": text},
            self.user(f"And about {rng.choice(TOPICS)}, {len(self.turns)}?"),
        ]
        self.ended = len(self.turns) >= 5


class Load:
    def __init__(self, server, args):
        self.server, self.args = server, args
        self.rng = random.Random(args.seed)
        self.left = args.requests
        self.end = time.monotonic() + args.seconds if args.seconds else None
        self.statuses, self.kinds = collections.Counter(), collections.Counter()
        self.faults, self.gaps, self.firsts, self.samples = [], [], [], []
        self.conversations, self.most, self.n_tokens = [], 0, 0
        self.planned = server.memory()["planned"]

    def fault(self, text):
        self.faults.append(text)
        if len(self.faults) <= 20:
            print(f"FAILED: {text}", flush=True)

    def more(self):
        self.left -= 1
        return self.left >= 0 and (self.end is None or time.monotonic() < self.end)

    async def connect(self, limit=1 << 16):
        return await asyncio.open_connection(*self.server.address, limit=limit)

    async def head(self, reader):
        data = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 300)
        lines = data.decode("latin-1").split("\r\n")
        headers = dict(x.lower().split(": ", 1) for x in lines[1:] if ": " in x)
        status = int(lines[0].split(" ")[1])
        return (await self.head(reader)) if status == 100 else (status, headers)

    async def pieces(self, reader, headers):
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readuntil(b"\r\n")
        else:
            yield await reader.readexactly(int(headers.get("content-length", 0)))

    async def ask(self, data, leave_after=None, slowly=False):
        """Sends a request. Returns (status, headers, body or None if the client left)."""
        reader, writer = await self.connect(4096 if slowly else 1 << 16)
        body, n, last = b"", 0, None
        begin = time.monotonic()
        try:
            writer.write(data)
            await writer.drain()
            if leave_after == 0:
                await asyncio.sleep(0.005)
                return None, {}, None
            status, headers = await self.head(reader)
            async for piece in self.pieces(reader, headers):
                now = time.monotonic()
                if b'"delta":{"content"' in piece or b'"delta": {"content"' in piece:
                    if last is None:
                        self.firsts.append(now - begin)
                    elif not slowly:
                        self.gaps.append(now - last)
                    last = now
                body += piece
                n += 1
                if leave_after is not None and n >= leave_after and status == 200:
                    return status, headers, None
                if slowly:
                    await asyncio.sleep(0.02)
            return status, headers, body
        finally:
            writer.transport.abort() if leave_after else writer.close()

    def check_json(self, status, body, what):
        try:
            j = json.loads(body)
        except ValueError:
            self.fault(f"{what}: expected JSON with {status}, found {body[:200]!r}")
            return None
        if status != 200 and not (status in DOCUMENTED and j.get("error", {}).get("message")):
            self.fault(f"{what}: expected a documented error, found {status} {body[:200]!r}")
        return j

    def answer(self, status, headers, body, what):
        """The text of a complete answer, or None."""
        if "event-stream" not in headers.get("content-type", ""):
            j = self.check_json(status, body, what)
            if status != 200 or j is None:
                return None
            self.n_tokens += j["usage"]["completion_tokens"]
            return j["choices"][0]["message"]["content"]
        lines = [x[6:] for x in body.decode().split("\n") if x.startswith("data: ")]
        if not lines or lines[-1] != "[DONE]":
            self.fault(f"{what}: a stream without [DONE]: {lines[-2:]}")
            return None
        choices = [c for x in lines[:-1] for c in json.loads(x)["choices"]]
        if choices[-1]["finish_reason"] not in ("stop", "length"):
            self.fault(f"{what}: a stream without a reason: {lines[-3:]}")
        self.n_tokens += len(choices) - 2
        return "".join(c["delta"].get("content") or "" for c in choices)

    async def turn(self, talk, kind):
        max_tokens = self.rng.randrange(1, self.rng.choice((8, 64)))
        streamed = kind != "turn" or self.rng.random() < 0.6
        body = {"messages": talk.messages, "max_tokens": max_tokens, "temperature": 0}
        body |= {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
        data = self.server.bytes("POST", CHAT, body)
        leave = self.rng.choice((0, 1, 2, 5, 20)) if kind == "leave" else None
        for _ in range(400):
            status, headers, got = await self.ask(data, leave, kind == "slow")
            self.statuses[status] += 1
            if status != 429:
                break
            if "retry-after" not in headers:
                self.fault("429 without Retry-After")
            await asyncio.sleep(0.05 + self.rng.random() * 0.3)
        if kind == "leave" or got is None:
            talk.ended = True  # how much of the answer was made is not known
            return
        text = self.answer(status, headers, got, f"conversation {talk.number}")
        if text is None:
            talk.ended = True
            return
        for other in self.conversations:
            if other is not talk and other.secret in text:
                self.fault(f"conversation {talk.number} got {other.secret} of {other.number}")
        talk.add(text, max_tokens, self.rng)

    async def broken(self):
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})
        good = self.server.bytes("POST", CHAT, body.encode())
        kind = self.rng.randrange(7)
        if kind == 0:  # half a request
            reader, writer = await self.connect()
            writer.write(good[: self.rng.randrange(1, len(good))])
            await asyncio.sleep(self.rng.random() * 0.1)
            writer.transport.abort()
            return
        data = {
            1: self.server.bytes("POST", CHAT, body.encode()[: self.rng.randrange(60)]),
            2: self.server.bytes("POST", CHAT, {"messages": self.rng.choice(([], 5, "a", [5]))}),
            3: request_bytes("POST", CHAT, body.encode(), {"Authorization": "Bearer wrong"}),
            4: self.server.bytes("POST", "/nope", body.encode()),
            5: self.server.bytes("GET", "/health", headers={"X-A": "b" * 20000}),
            6: good.replace(b"Content-Length: ", b"Content-Length: +"),
        }[kind]
        try:
            status, _, got = await self.ask(data)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        self.statuses[status] += 1
        if status == 200 or status not in DOCUMENTED:
            self.fault(f"broken request {kind}: {status} {got[:200]!r}")

    async def look(self):
        path = self.rng.choice(("/health", "/metrics", "/v1/knapsack/memory", "/slots", "/props"))
        status, _, got = await self.ask(self.server.bytes("GET", path))
        self.statuses[status] += 1
        if status != 200:
            self.fault(f"GET {path}: {status} {got[:200]!r}")
        elif path.endswith("memory"):
            m = json.loads(got)
            if m["peak"] > m["planned"]:
                self.fault(f"peak {m['peak']} above the plan {m['planned']}")

    async def client(self):
        names, weights = zip(*KINDS)
        talk = None
        while self.more():
            kind = self.rng.choices(names, weights)[0]
            self.kinds[kind] += 1
            try:
                if kind == "broken":
                    await self.broken()
                elif kind == "look":
                    await self.look()
                else:
                    if talk is None or talk.ended or self.rng.random() < 0.2:
                        talk = Conversation(self.rng, len(self.conversations))
                        self.conversations.append(talk)
                    await self.turn(talk, kind)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as e:
                self.fault(f"{kind}: {e!r}")
                talk = None
                if not self.server.alive():
                    return

    async def watch(self):
        begin = time.monotonic()
        while True:
            if not self.server.alive():
                self.fault(f"the server ended: {self.server.err[-300:]}")
                return
            rss = self.server.rss()
            self.samples.append((time.monotonic() - begin, rss))
            if rss > self.planned + OVERHEAD and rss > self.most:
                self.fault(f"resident {rss}, the plan is {self.planned}")
            self.most = max(self.most, rss)
            await asyncio.sleep(0.05)

    async def run(self):
        watch = asyncio.ensure_future(self.watch())
        await asyncio.gather(*(self.client() for _ in range(self.args.clients)))
        await asyncio.sleep(0.2)  # the loop closes the last sockets
        watch.cancel()

    def growth(self):
        """Growth of resident memory over the second half, between the maxima of its halves."""
        half = [rss for _, rss in self.samples[len(self.samples) // 2 :]]
        middle = len(half) // 2
        return max(half[middle:]) - max(half[:middle]) if middle else 0


def repeat_alone(load, setup, options, n):
    """Repeats conversations one after the other on a fresh server. Returns how many."""
    whole = [c for c in load.conversations if c.turns]
    chosen = random.Random(load.args.seed).sample(whole, min(n, len(whole)))
    with setup.start("--park", setup.new_folder(), *options, **load.options) as server:
        for talk in chosen:
            for k, (messages, max_tokens, text) in enumerate(talk.turns):
                alone = text_of(server.chat(messages, max_tokens=max_tokens))
                if alone != text:
                    load.fault(
                        f"conversation {talk.number}, turn {k}: alone {alone!r}, "
                        f"in the load {text!r}"
                    )
                    break
    return len(chosen)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("knapsack")
    p.add_argument("--model")
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--requests", type=int, default=250)
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--memory")
    p.add_argument("--conversations", type=int, default=4)
    p.add_argument("--queue", type=int, default=16)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--kv")
    p.add_argument("--alone", type=int, default=20, help="conversations that are repeated alone")
    p.add_argument("--steps", type=float, help="most of a step's p99 over its median")
    return p.parse_args()


def main():
    args = arguments()
    skip_unless_built()
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(folder, args.model and os.path.abspath(args.model))
        more = ["--kv", args.kv] if args.kv else []
        options = {
            "conversations": args.conversations,
            "queue": args.queue,
            "memory": args.memory,
        }
        with setup.start("--park", setup.new_folder(), *more, **options) as server:
            server.chat()
            files = open_files(server.process.pid)
            load = Load(server, args)
            load.options = options
            begin = time.monotonic()
            asyncio.run(load.run())
            seconds = time.monotonic() - begin
            idle = server.wait_idle(30) if server.alive() else None
            metrics, memory = server.metrics(), server.memory()
            time.sleep(0.3)
            left = open_files(server.process.pid)
            if idle is None:
                load.fault(f"seats are busy after the load: {memory['seats']}")
            if memory["peak"] != memory["planned"]:
                load.fault(f"peak {memory['peak']}, the plan is {memory['planned']}")
            if left > files + args.conversations + 2:
                load.fault(f"{left} open files, {files} before")
        if server.code != 0:
            load.fault(f"exit code {server.code}")
        if load.growth() > GROWTH:
            load.fault(f"resident memory grows by {load.growth()} bytes in the second half")
        n_alone = repeat_alone(load, setup, more, args.alone)
        steps = {q: quantile(metrics, "knapsack:step_seconds", q) for q in (0.5, 0.99)}
        if args.steps and not (steps[0.5] and steps[0.99] <= args.steps * steps[0.5]):
            load.fault(f"steps {steps}")
        result = {
            "clients": args.clients,
            "requests": args.requests - max(load.left, 0),
            "seconds": round(seconds, 1),
            "kinds": dict(load.kinds),
            "statuses": {str(k): v for k, v in load.statuses.items()},
            "conversations": len(load.conversations),
            "repeated_alone": n_alone,
            "tokens_per_second": round(load.n_tokens / seconds, 1),
            "gap_p50": at_rank(load.gaps, 0.5),
            "gap_p99": at_rank(load.gaps, 0.99),
            "gap_max": at_rank(load.gaps, 1),
            "first_p50": at_rank(load.firsts, 0.5),
            "first_p99": at_rank(load.firsts, 0.99),
            "step_p50": round(steps[0.5], 4),
            "step_p99": round(steps[0.99], 4),
            "planned": load.planned,
            "resident_max": load.most,
            "resident_growth": load.growth(),
            "open_files": [files, left],
            "seed": args.seed,
            "faults": len(load.faults),
        }
        print(json.dumps(result))
    sys.exit(1 if load.faults else 0)


if __name__ == "__main__":
    main()
