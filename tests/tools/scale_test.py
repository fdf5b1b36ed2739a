#!/usr/bin/env python3
"""Two workers of serve behind nginx and HAProxy, with the configurations of examples/proxy.

    scale_test.py KNAPSACK [MODEL] [--only T1,T2] [-v]

Prints what it measures with KNAPSACK_SCALE_REPORT=1."""

import contextlib
import math
import os
import random
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import serve_cases  # noqa: E402
from balancer import Haproxy, Nginx, program_path  # noqa: E402
from fleet import Talk, seat_of, two_workers, worker_of, workers_of  # noqa: E402
from serve_cases import case, run_cases  # noqa: E402
from server import chat_body, parse_metrics  # noqa: E402
from streams import Stream  # noqa: E402

NEEDS = {"T1": ["nginx"], "T2": ["nginx", "haproxy"], "T3": ["nginx", "haproxy"], "T4": ["haproxy"]}
NEEDS.update({"T5": ["nginx"], "T8": ["haproxy"], "T10": ["haproxy"]})


def report(*what):
    if os.environ.get("KNAPSACK_SCALE_REPORT"):
        print(*what, flush=True)


@case("T1", "conversations go on where they are")
def affinity(t):
    n, turns = 20, 5
    kept = {}
    for named in (True, False):
        with workers_of(t, conversations=n, memory="64MiB", real="512MiB") as workers:
            with Nginx(t.folder, workers, workers[0].key) as proxy:
                talks = [Talk(f"talk {i}", named) for i in range(n)]
                for _ in range(turns):
                    for talk in talks:
                        r = talk.turn(proxy)
                        t.expect(r.status == 200, "200", r)
                used = [sum(s["text_tokens"] > 0 for s in w.seats()) for w in workers]
        known = sum(talk.n_known for talk in talks)
        kept[named] = sum(talk.n_cached for talk in talks) / known
        report(f"T1 named {named}: {kept[named]:.1%} of {known} tokens cached, workers: {used}")
        if named:
            t.expect(sum(used) == n and min(used) > 0, f"{n} conversations on two workers", used)
    t.expect(kept[True] >= 0.95, "95% of the known tokens cached", kept)
    t.expect(kept[False] <= 0.85, "fewer without the header", kept)


def wait_for(ask, is_fine, seconds):
    """The first answer that is fine, or the last one."""
    end = time.monotonic() + seconds
    while not is_fine(answer := ask()) and time.monotonic() < end:
        time.sleep(0.02)
    return answer


def speak(proxy, until, rng, results, streams):
    """Turns of one client until the time is over."""
    talk = Talk(f"client {rng.random()}", True)
    while time.monotonic() < until:
        try:
            r = talk.turn(proxy, stream=streams, max_tokens=rng.randrange(4, 40))
            results.append((r.status, r.ended, r))
        except Exception as e:  # the case counts it
            results.append((0, False, repr(e)))
        if len(talk.messages) > 8:
            talk = Talk(f"client {rng.random()}", True)


@case("T2", "a worker drains under load, and no request fails")
def drain(t):
    for kind in (Haproxy, Nginx):
        with two_workers(t, "--drain", 30, "--drain-delay", 3) as workers:
            with kind(t.folder, workers, workers[0].key) as proxy:
                drain_first(t, workers, proxy)


def stream_on(t, proxy, workers, wanted):
    """A stream that the wanted worker answers."""
    for n in range(64):
        long = LongStream(t, proxy, f"long {n}")
        if worker_of(workers, long.name) is wanted:
            return long
        long.stream.leave()
    raise RuntimeError("no name of 64 leads to the worker")


def drain_first(t, workers, proxy):
    first, results = workers[0], []
    long = stream_on(t, proxy, workers, first)
    until = time.monotonic() + 6
    clients = [
        threading.Thread(target=speak, args=(proxy, until, random.Random(i), results, i % 2 == 0))
        for i in range(4)
    ]
    for client in clients:
        client.start()
    time.sleep(1.5)
    first.process.terminate()
    health = wait_for(lambda: first.get("/health"), lambda r: r.status == 503, 2)
    live = first.get("/livez")
    for client in clients:
        client.join()
    t.expect(health.status == 503 and live.status == 200, "503, 200", (health, live))
    if proxy.name == "haproxy":
        t.expect(proxy.states()["w1"][0] == "DOWN", "w1 is down", proxy.states())
    long.stream.finish()
    t.expect(long.stream.done(), "the running stream ends with [DONE]", long.stream.error)
    t.expect(first.stop_only(40) == 0, "exit code 0", first.code)
    failed = [r for r in results if r[0] != 200 or not r[1]]
    t.expect(len(results) > 10 and not failed, f"{proxy.name}: no request fails", failed[:3])
    n_second = sum(seat["text_tokens"] > 0 for seat in workers[1].seats())
    t.expect(n_second > 1, "conversations go on at the other worker", n_second)
    report(f"T2 {proxy.name}: {len(results)} requests, {len(failed)} failed")


class LongStream:
    """A stream of one conversation that is being answered."""

    def __init__(self, t, proxy, name, real=400, tiny=16000):
        self.name = name
        n = real if t.real else tiny
        body = chat_body(f"Tell me about {name}.", max_tokens=n, logit_bias=t.no_end(proxy))
        self.stream = Stream(proxy, body, headers={"X-Conversation-Id": name})
        if not self.stream.wait_events(4):
            raise RuntimeError(f"no stream: {self.stream.response} {self.stream.error}")


@case("T3", "kill -9 in mid-stream")
def crash(t):
    for kind in (Nginx, Haproxy):
        with two_workers(t) as workers, kind(t.folder, workers, workers[0].key) as proxy:
            streams, n = {}, 0
            while len(streams) < 2:  # one on each worker
                long = LongStream(t, proxy, f"crash {n}", 600, 9000)
                n += 1
                worker = worker_of(workers, long.name)
                if worker in streams:
                    long.stream.leave()
                else:
                    streams[worker] = long
            hidden = [proxy.get(path).status for path in ("/metrics", "/v1/metrics", "/slots")]
            t.expect(hidden == [404] * 3, f"{kind.name}: pages of one worker are hidden", hidden)
            (victim, broken), (other, whole) = streams.items()
            victim.kill()
            broken.stream.finish(20)
            t.expect(
                broken.stream.error is not None and not broken.stream.done(),
                f"{kind.name}: a broken stream without [DONE]",
                (broken.stream.error, broken.stream.events[-1:]),
            )
            again = LongStream(t, proxy, broken.name, 8, 8)
            t.expect(worker_of([other], broken.name) is other, "the retry is at the other worker")
            again.stream.finish()
            t.expect(again.stream.done(), f"{kind.name}: the retry is answered", again.stream.error)
            whole.stream.finish()
            t.expect(whole.stream.done(), f"{kind.name}: the other goes on", whole.stream.error)


@case("T4", "overload is answered with 429, and no worker goes down")
def overload(t):
    # As shipped HAProxy queues; without maxconn the workers do.
    shipped, own = [], [("maxconn 4 maxqueue 4", ""), (" if { queue(workers) ge 8 }", " if FALSE")]
    for changes, n in ((shipped, 16 + 8), (own, 2 * (2 + 2) + 8)):
        with two_workers(t, *t.endless, queue=2) as workers:
            with Haproxy(t.folder, workers, workers[0].key, changes) as proxy:
                n_tokens = 400 if t.real else 4000
                body = chat_body("Go on.", max_tokens=n_tokens, logit_bias=t.no_end(workers[0]))
                streams = [Stream(proxy, body) for _ in range(n)]
                for stream in streams:
                    stream.finish()
                down = {k: v for k, v in proxy.states().items() if v[0] != "UP" or v[1]}
        statuses = [s.response.status if s.response else 0 for s in streams]
        refused = [s.response for s in streams if s.response and s.response.status == 429]
        whole = [s for s in streams if s.done()]
        t.expect(set(statuses) == {200, 429}, "only 200 and 429", statuses)
        t.expect(
            all(1 <= int(r.headers.get("retry-after", 0)) <= 120 for r in refused),
            "Retry-After",
            [r.headers for r in refused][:1],
        )
        t.expect(len(whole) == statuses.count(200), "all answers are whole", statuses)
        t.expect(not down, "both workers stay up", down)
        report(f"T4: {n} clients: {len(whole)} answered, {len(refused)} times 429")


def arrivals(t, server):
    """Times at which bytes of a stream came, and the number of events."""
    body = chat_body("Tell me a long story.", max_tokens=300, stream=True)
    times, n = [], 0
    with server.connect() as c:
        c.send(server.bytes("POST", "/v1/chat/completions", {**body, "logit_bias": t.bias}))
        begin = time.monotonic()
        while b"[DONE]" not in c.buffer:
            before = len(c.buffer)
            if not c.fill():
                break
            n += c.buffer.count(b"\n\n", max(0, before - 1))
            times.append(time.monotonic() - begin)
    return times, n


# A token of the random model takes less time than a packet.
@case("T5", "streams are not buffered", real=True)
def buffering(t):
    with two_workers(t) as workers:
        t.bias = t.no_end(workers[0])
        shares, gaps = {}, {}
        # nginx's defaults, with the worker's header X-Accel-Buffering and without it.
        default = [("proxy_buffering off;", ""), ("proxy_http_version 1.1;", "")]
        ignores = ("        location / {", "location / { proxy_ignore_headers X-Accel-Buffering;")
        kinds = {"direct": None, "as shipped": [], "default": default}
        kinds["buffered"] = [*default, ignores]
        for kind, changes in kinds.items():
            if changes is None:
                times, n = arrivals(t, workers[0])
            else:
                with Nginx(t.folder, workers, workers[0].key, changes) as proxy:
                    times, n = arrivals(t, proxy)
            shares[kind] = len(times) / max(n, 1)
            gap = sorted(b - a for a, b in zip(times, times[1:]))
            gaps[kind] = [1000 * gap[int(len(gap) * q)] for q in (0.5, 0.9, 0.99)]
            quantiles = ", ".join(f"{x:.1f}" for x in gaps[kind])
            report(f"T5 {kind}: {n} events in {len(times)} arrivals, p50, p90, p99: {quantiles} ms")
        for kind in ("as shipped", "default"):
            t.expect(shares[kind] > 0.7 * shares["direct"], f"{kind}: arrivals as direct", shares)
            slow = [a > 2 * b + 5 for a, b in zip(gaps[kind][:2], gaps["direct"])]
            t.expect(not any(slow), f"{kind}: gaps as direct", gaps)
        t.expect(shares["buffered"] < 0.5 * shares["direct"], "the control is buffered", shares)


@case("T8", "a conversation goes on from the shared folder")
def shared_park(t):
    park = t.new_folder()
    with two_workers(t, "--park", park, "--park-after", 0) as workers:
        with Haproxy(t.folder, workers, workers[0].key) as proxy:
            talk = Talk("parked", True)
            for _ in range(2):
                t.expect(talk.turn(proxy).status == 200, "200")
            first = worker_of(workers, talk.name)
            seat = wait_for(lambda: seat_of(first, talk.name), lambda seat: seat["parked"], 10)
            t.expect(seat["parked"], "a parked conversation", seat)
            first.kill()
            talk.n_known = talk.n_cached = 0
            r = talk.turn(proxy)
            own = r.json()["knapsack"]
            t.expect(own["from"] == "disk", "from disk", own)
            t.expect(talk.n_cached >= 0.95 * talk.n_known, "95% cached", vars(talk))
            report(f"T8: {talk.n_cached} of {talk.n_known} tokens cached, from {own['from']}")


@case("T10", "a conversation that a worker named is found by the name")
def learned(t):
    with workers_of(t, conversations=12, memory="64MiB", real="384MiB") as workers:
        with Haproxy(t.folder, workers, workers[0].key) as proxy:
            talks = [Talk(f"learned {i}", False) for i in range(12)]
            for _ in range(3):
                for talk in talks:
                    r = talk.turn(proxy)
                    t.expect(r.status == 200, "200", r)
                    talk.name = r.headers["x-conversation-id"]
                    talk.named = True
            used = [sum(s["text_tokens"] > 0 for s in w.seats()) for w in workers]
    cached, known = sum(x.n_cached for x in talks), sum(x.n_known for x in talks)
    report(f"T10: {cached / known:.1%} of {known} known tokens cached, workers have {used}")
    t.expect(cached >= 0.95 * known, "95% cached", (cached, known))
    t.expect(min(used) > 0, "conversations on both workers", used)


def parse_by_library(text):
    """Sums of all samples by Prometheus' own parser, None without prometheus-client."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        return None
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def desired_replicas(values, target):
    """The formula of the HorizontalPodAutoscaler, with its tolerance."""
    ratio = sum(values) / (len(values) * target)
    return len(values) if abs(ratio - 1) <= 0.1 else math.ceil(len(values) * ratio)


@case("T9", "an autoscaler follows the queue")
def autoscale(t):
    with open("examples/kubernetes/autoscale.yaml", encoding="utf-8") as f:
        text = f.read()
    target = int(re.search(r'averageValue: "(\d+)"', text)[1])
    least = int(re.search(r"minReplicas: (\d+)", text)[1])
    n_clients, most, streams, steps = 12, 2, [], [least]  # two workers have room here
    with contextlib.ExitStack() as stack:

        def start():
            more = workers_of(
                t, "--queue-wait", 600, conversations=2, memory="64MiB", real="192MiB", n=1
            )
            return stack.enter_context(more)[0]

        fleet = [start() for _ in range(least)]
        plain = fleet[0].get("/metrics").body.decode()
        library = parse_by_library(plain)
        if library is not None:
            own = parse_metrics(plain)
            same = {k: v for k, v in library.items() if not k.endswith("_created")}
            t.expect(all(own[k] == v for k, v in same.items()) and same, "equal metrics", same)
        body = chat_body("Go on.", max_tokens=60 if t.real else 6000)
        body["logit_bias"] = t.no_end(fleet[0])
        until = time.monotonic() + (10 if t.real else 4)
        end, queues = until + 300, []
        while time.monotonic() < end and not (len(steps) > 2 and steps[-1] == least):
            running = [s for s in streams if s.is_alive()]
            for i in range(n_clients - len(running) if time.monotonic() < until else 0):
                streams.append(Stream(fleet[i % len(fleet)], body))
            time.sleep(0.3)
            values = [w.metrics()["knapsack:queue_length"] for w in fleet]
            queues.append(values)
            wanted = max(least, min(most, desired_replicas(values, target)))
            if wanted > len(fleet):
                fleet.append(start())
            elif wanted < len(fleet):
                last = fleet.pop()
                t.expect(last.stop() == 0, "exit code 0", last.code)
            if len(fleet) != steps[-1]:
                steps.append(len(fleet))
        for stream in streams:
            stream.finish()
    failed = [s for s in streams if not s.done()]
    report(f"T9: replicas {steps}, queues {queues[:4]} … {queues[-2:]}, {len(streams)} streams")
    t.expect(queues[0] == [n_clients - 2], f"{n_clients - 2} requests wait", queues[0])
    t.expect(steps == [least, most, least], "up and down", (steps, queues))
    t.expect(not failed, "no stream fails", [(s.response, s.error) for s in failed][:2])


def main():
    skipped = False
    for registered in list(serve_cases.CASES):
        missing = [x for x in NEEDS.get(registered[0], []) if not program_path(x)]
        if missing:
            print(f"skipped: {registered[0]}, {registered[1]}: needs {' and '.join(missing)}")
            serve_cases.CASES.remove(registered)
            skipped = True
    try:
        run_cases()
    except SystemExit as e:
        sys.exit(77 if e.code == 0 and skipped else e.code)


main()
