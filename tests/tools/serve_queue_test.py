#!/usr/bin/env python3
"""serve from outside: the queue, clients that leave or are slow, and the end of a server."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from http_client import Closed  # noqa: E402
from serve_cases import case, run_cases  # noqa: E402
from server import chat_body, text_of  # noqa: E402
from streams import CHAT, Stream, came_from, endless, turn, user, wait_for  # noqa: E402


def cancelled(s):
    return sum(v for k, v in s.metrics().items() if k.startswith("knapsack:cancelled_total"))


class Leaver:
    """A client that leaves a server: while streaming, waiting, reading, or without a stream."""

    def __init__(self, t, server, name):
        self.t, self.server, self.name = t, server, name
        self.busy = 2 if name == "waiting" else 0
        self.running = [
            Stream(server, endless(t, server, f"{i} runs"), stop_after=2) for i in range(self.busy)
        ]
        for x in self.running:
            t.expect(x.wait_events(2), "a stream", x.error)
        body = endless(t, server, name, stream=name != "without a stream")
        if name == "reading":
            body["messages"] = [user(t.filler(6000, name))]
        self.stream = Stream(server, body, stop_after=2)
        if name == "waiting":
            t.expect(wait_for(lambda: server.memory()["queue"]["n"] == 1), "1 waiting")
        elif name in ("reading", "without a stream"):
            time.sleep(0.5)
        else:
            t.expect(self.stream.wait_events(2), f"a stream for {name}", self.stream.error)

    def is_gone(self):
        m = self.server.memory()
        n = sum(seat["state"] not in ("free", "idle") for seat in m["seats"])
        return m["queue"]["n"] == 0 and n <= self.busy + (0 if self.busy else 1)


@case("31", "a full queue")
def full_queue(t):
    with t.start(*t.endless) as s:
        running = [Stream(s, endless(t, s, f"{i}"), stop_after=2) for i in range(2)]
        t.expect(all(x.wait_events(2) for x in running), "two streams", [x.error for x in running])
        waiting = [Stream(s, chat_body(f"w{i}", max_tokens=3)) for i in range(2)]
        t.expect(wait_for(lambda: s.memory()["queue"]["n"] == 2), "2 waiting", s.memory()["queue"])
        begin = time.monotonic()
        r = s.chat(stream=True)
        seconds = time.monotonic() - begin
        if t.expect_error(r, 429, "rate_limit_error", reason="queue_full"):
            t.expect(int(r.headers.get("retry-after", 0)) >= 1, "Retry-After >= 1", r.pairs)
        t.expect(seconds < 0.25 * t.patience, "an answer at once", seconds)
        t.expect(s.get("/health").status == 200, "full is healthy")
        for x in running:
            x.leave()
        for x in waiting:
            r = x.finish(30)
            t.expect(r and r.status == 200 and x.done(), "the waiting ones finish", (r, x.error))


@case("32", "a wait that is too long")
def queue_wait(t):
    with t.start(*t.endless, "--queue-wait", 1, conversations=1) as s:
        running = Stream(s, endless(t, s, "A"), stop_after=2)
        running.wait_events(2)
        begin = time.monotonic()
        r = s.chat(stream=True)
        seconds = time.monotonic() - begin
        t.expect_error(r, 429, "rate_limit_error", reason="queue_timeout")
        t.expect(0.8 < seconds < 3 * t.patience and not r.events, "429 after a second", seconds)
        running.leave()
        s.wait_idle()
        t.expect(s.chat().status == 200, "an answer afterwards")


@case("33", "clients that leave")
def disconnects(t):
    limit = (1.0 if t.real else 0.5) * t.patience
    ask = chat_body("Tell me a tale.", max_tokens=400 if t.real else 60)
    with t.start(*t.endless) as s:
        alone = text_of(s.post(CHAT, ask))
        for name in ("streaming", "reset", "waiting", "reading", "without a stream"):
            if not t.real and name in ("reading", "without a stream"):
                continue  # too fast to be caught
            before = cancelled(s)
            other = None
            if name != "waiting":
                other = Stream(s, ask, stop_after=3)
                other.wait_events(3)
            x = Leaver(t, s, name)
            x.stream.leave(reset=name == "reset")
            t.expect(
                wait_for(x.is_gone, limit), f"work for {name} ends within {limit} s", s.memory()
            )
            if other:
                r = other.finish(60)
                t.expect(
                    r and other.done() and text_of(r) == alone,
                    f"another undisturbed by {name}",
                    (other.error, r and text_of(r)),
                )
            for y in x.running:
                t.expect(y.is_alive(), "the running stream goes on", y.error)
                y.leave()
            t.expect(s.wait_idle(limit * 3) is not None, f"idle after {name}", s.memory()["seats"])
            n = 1 + len(x.running)
            t.expect(
                cancelled(s) - before == n,
                f"cancelled_total + {n} after {name}",
                cancelled(s) - before,
            )
        t.expect(text_of(s.post(CHAT, ask)) == alone, "the same answer")


@case("34", "SIGTERM while one streams and one waits")
def drain(t):
    n = 600 if t.real else 40000
    options = [*t.endless, "--drain", 60, "--drain-delay", 2]
    with t.start(*options, conversations=1) as s:
        running = Stream(
            s,
            chat_body("Tell me a story.", max_tokens=n, logit_bias=t.no_end(s)),
            stop_after=2,
            receive_buffer=4096,
        )
        t.expect(running.wait_events(2), "a stream", running.error)
        waiting = Stream(s, chat_body("Wait."))
        wait_for(lambda: s.memory()["queue"]["n"] == 1)
        s.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        wait_for(lambda: s.get("/health").status == 503, 0.5)
        t.expect_error(s.get("/health"), 503, "unavailable_error", reason="draining")
        t.expect(s.get("/livez").status == 200, "200 of /livez")
        r = waiting.finish(10)
        t.expect(r is not None, "an answer to the waiting one", waiting.error)
        if r is not None:
            t.expect_error(r, 503, "unavailable_error", reason="draining")
            t.expect("retry-after" in r.headers, "Retry-After", r.pairs)
        time.sleep(max(0, begin + 2.5 - time.monotonic()))
        try:
            r = s.request("POST", CHAT, chat_body(), timeout=2)
            t.expect_error(r, 503, "unavailable_error", reason="draining")
        except (TimeoutError, Closed) as e:
            t.expect(False, "no chat after --drain-delay, refused at once", repr(e))
        except OSError:
            pass  # no connection
        r = running.finish(90)
        t.expect(
            running.done() and r.datas()[-1]["choices"][0]["finish_reason"] == "length",
            "a stream that ends with [DONE]",
            (running.error, [e.text for e in running.events[-2:]]),
        )
        begin = time.monotonic()
        t.expect(s.stop_only(60) == 0, "exit code 0", s.code)
        t.expect(time.monotonic() - begin < 5, "an end after the last stream", time.monotonic())


@case("35", "an end at once")
def end_at_once(t):
    for second in (True, False):
        park = t.new_folder()
        options = [*t.endless, "--park", park, "--drain-delay", 0]
        options += [] if second else ["--drain", 1]
        first = [user("Name a tree. " + t.filler(100))]
        with t.start(*options) as s:
            a = s.chat(first, max_tokens=10)
            want = None
            running = Stream(s, endless(t, s, "Forever"), stop_after=2)
            running.wait_events(2)
            s.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            if second:
                s.process.send_signal(signal.SIGTERM)
            time.sleep(0 if second else 1.5)
            running.finish(30)
            texts = [e.data for e in running.events if e.data]
            t.expect(
                texts and '"error"' in texts[-1] and "[DONE]" not in texts,
                "an error event, no [DONE]",
                (running.error, texts[-2:]),
            )
            begin = time.monotonic()
            t.expect(s.stop_only(20) == 0, "exit code 0", s.code)
            t.expect(time.monotonic() - begin < 10, "an end at once")
        next_turn = turn(first, text_of(a), "And a flower.")
        with t.start(*options) as s:
            b = s.chat(next_turn, max_tokens=10)
            t.expect(came_from(b) == "disk", "from the disk", b.json()["knapsack"])
        with t.start(*t.endless, "--park", t.new_folder()) as s:
            a = s.chat(first, max_tokens=10)
            want = s.chat(next_turn, max_tokens=10)
            t.expect(text_of(b) == text_of(want), text_of(want), text_of(b))


@case("60", "a long prompt beside an answer", real=True)
def beside(t):
    with t.start(*t.endless) as s:
        x = Stream(s, chat_body("Tell me a long story.", max_tokens=700, logit_bias=t.no_end(s)))
        x.wait_events(20)
        begin = time.monotonic()
        r = s.chat(t.filler(5000), stream=True, return_progress=True, max_tokens=2)
        end = time.monotonic()
        x.finish()
        t.expect(x.done() and r.status == 200, "both answers", (x.error, r))
        steps = [e.at for e in r.events if e.data and "prompt_progress" in e.data]
        gaps = sorted(b - a for a, b in zip(steps, steps[1:]))
        at = [e.at for e in x.events if begin < e.at < end]
        largest = max(b - a for a, b in zip(at, at[1:]))
        step = gaps[-1]
        t.expect(largest <= 2 * step + 0.05, f"no gap above 2 steps of {step:.3f} s", largest)
        t.expect(len(at) >= len(steps) - 2, f"a token in each of {len(steps)} steps", len(at))


@case("slow", "a slow reader holds nobody up")
def slow_reader(t):
    with t.start(*t.endless) as s:
        s.chat()
        x = Stream(s, endless(t, s, "A"), stop_after=2, receive_buffer=4096)
        t.expect(x.wait_events(2), "a stream", x.error)
        time.sleep(1.0)
        rss = s.rss()
        before = s.metrics()["llamacpp:tokens_predicted_total"]
        alone = text_of(s.chat("Tell me a tale.", max_tokens=50))
        for _ in range(3):
            begin = time.monotonic()
            r = s.chat("Tell me a tale.", max_tokens=50)
            t.expect(text_of(r) == alone, alone, text_of(r))
            t.expect(time.monotonic() - begin < 10, "no wait", time.monotonic() - begin)
        if not t.real:  # a real model takes long to fill the buffers
            made = s.metrics()["llamacpp:tokens_predicted_total"] - before
            t.expect(made < 4 * 60, "a paused seat", made)
        t.expect(s.rss() - rss < 1 << 20, "flat memory", s.rss() - rss)
        x.leave()
        t.expect(s.wait_idle(5) is not None, "idle afterwards", s.memory()["seats"])


@case("64", "a stopped process is not a stuck one")
def stopped(t):
    with t.start(*t.endless, "--watchdog", 2) as s:
        x = Stream(s, chat_body("Tell me.", max_tokens=200, logit_bias=t.no_end(s)), stop_after=3)
        x.wait_events(3)
        s.process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        s.process.send_signal(signal.SIGCONT)
        r = s.get("/health")
        t.expect(r.status == 200, "200 after SIGCONT", r)
        x.finish(60)
        t.expect(x.done(), "a stream that goes on", (x.error, x.events[-1:]))
        t.expect(s.chat().status == 200, "an answer")


if __name__ == "__main__":
    run_cases()
