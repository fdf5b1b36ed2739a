#!/usr/bin/env python3
"""The Ray Serve deployment of examples/ray on one machine, if this Python has ray[serve].

    ray_test.py KNAPSACK [MODEL]

It takes about two minutes, and Ray some hundred megabytes."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import BINARY, check, run_tests  # noqa: E402

EXAMPLE = os.path.abspath("examples/ray")
sys.path.insert(0, EXAMPLE)
# Ray's processes import the example too. They write nothing outside their folder, nor report.
os.environ["PYTHONPATH"] = EXAMPLE
os.environ["RAY_AUTH_MODE"], os.environ["RAY_USAGE_STATS_ENABLED"] = "disabled", "0"
try:
    import serve_knapsack
except ImportError as e:
    print(f"skipped: needs ray[serve] from PyPI ({e})")
    sys.exit(77)

import ray  # noqa: E402
from fleet import Talk, use_word_model  # noqa: E402
from ray import serve  # noqa: E402
from serve_cases import Setup  # noqa: E402
from server import Server, chat_body, free_port, skip_unless_built  # noqa: E402
from streams import Stream  # noqa: E402

S, QUEUE = 4, 2


class Application(Server):
    """The HTTP proxy of Serve, asked like a server."""

    def __init__(self, port):
        self.key, self.port, self.address = None, port, ("127.0.0.1", port)


def workers():
    """Processes of the program, by their command lines."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                command = f.read().split(b"\0")
        except OSError:
            continue
        if command[:2] == [BINARY.encode(), b"serve"]:
            found.append(int(pid))
    return found


def wait_for(ask, is_fine, seconds):
    begin = time.monotonic()
    while not is_fine(answer := ask()) and time.monotonic() < begin + seconds:
        time.sleep(0.1)
    return answer, time.monotonic() - begin


def test_answers(t, app):
    r = app.post("/v1/chat/completions", chat_body())
    check(r.status == 200 and r.json()["usage"]["completion_tokens"] > 0, f"an answer: {r}")
    check(app.get("/v1/models").status == 200, "a list of models")
    r = app.post("/v1/chat/completions", chat_body(n=7))
    check(r.status == 400 and r.error().get("param") == "n", f"an error of the worker: {r}")
    x = Stream(app, chat_body("Tell a story.", max_tokens=200, logit_bias=t.no_end(app)))
    first = x.wait_events(3)
    x.finish()
    check(first and x.done(), f"a stream: {x.response} {x.error}")
    span = x.events[-1].at - x.events[0].at
    check(not t.real or span > 0.5, f"events come as they are made, not at once: {span} s")
    talk = Talk("ray", True)
    for _ in range(4):
        check(talk.turn(app).status == 200, "a turn")
    check(talk.n_cached >= 0.95 * talk.n_known, f"cached: {vars(talk)}")


def test_cancel(t, app):
    def n_cancelled():
        return app.metrics()['knapsack:cancelled_total{why="disconnect"}']

    n = n_cancelled()
    x = Stream(app, chat_body("Go on.", max_tokens=50000, logit_bias=t.no_end(app)))
    check(x.wait_events(3), f"a stream: {x.response} {x.error}")
    x.leave()
    found, took = wait_for(n_cancelled, lambda found: found > n, 10)
    check(found == n + 1, f"a client that leaves cancels its answer: {found}")
    print(f"cancelled after {took:.2f} s")


def share_kept(app, named):
    """The share of the known tokens that were not read again."""
    talks = [Talk(f"ray {named} {i}", named) for i in range(S)]
    for _ in range(4):
        for talk in talks:
            check(talk.turn(app, max_tokens=8).status == 200, "a turn")
    return sum(talk.n_cached for talk in talks) / sum(talk.n_known for talk in talks)


def test_scaling(t, app):
    """Both directions. Streams that run on the replica that stops must end as they should."""
    until, faults, n = time.monotonic() + 40, [], []
    body = chat_body("Go on.", max_tokens=100 if t.real else 3000, logit_bias=t.no_end(app))

    def speak():
        while time.monotonic() < until and len(workers()) < 2:
            x = Stream(app, body)
            x.finish()
            n.append(x)
            if not x.done():
                faults.append((x.response, x.error))

    clients = [threading.Thread(target=speak) for _ in range(2 * (S + QUEUE))]
    for client in clients:
        client.start()
    found, took = wait_for(workers, lambda found: len(found) == 2, 45)
    print(f"1 to 2 replicas after {took:.1f} s under load")
    for client in clients:
        client.join()
    check(len(found) == 2, f"two replicas under load: {found}")
    state = wait_for(
        lambda: serve.status().applications["default"].status, lambda s: s == "RUNNING", 30
    )
    check(state[0] == "RUNNING", f"the application runs: {state}")
    kept = {named: share_kept(app, named) for named in (True, False)}
    print(f"cached with the name {kept[True]:.1%}, without {kept[False]:.1%}")
    check(len(workers()) == 2 and kept[True] >= 0.95, f"conversations stay: {kept}")
    check(kept[False] <= 0.9, f"both replicas answer: {kept}")
    found, took = wait_for(workers, lambda found: len(found) == 1, 90)
    print(f"2 to 1 replicas after {took:.1f} s, {len(n)} streams, {len(faults)} failed")
    check(len(found) == 1, f"one replica at rest: {found}")
    check(n and not faults, f"no stream fails: {faults[:2]}")


def parent(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def test_crash(app):
    (pid,) = workers()
    os.kill(parent(pid), 9)
    found, took = wait_for(workers, lambda found: pid not in found, 20)
    check(pid not in found, "a worker ends with its replica")
    wait_for(workers, lambda found: found, 30)
    r, took = wait_for(
        lambda: app.post("/v1/chat/completions", chat_body()), lambda r: r.status == 200, 60
    )
    check(r.status == 200, f"Serve replaces the killed replica: {r}")
    (pid,) = workers()
    os.kill(pid, 9)
    r = app.post("/v1/chat/completions", chat_body())
    check(r.status in (500, 503), f"no worker: {r}")
    r, took = wait_for(
        lambda: app.post("/v1/chat/completions", chat_body()), lambda r: r.status == 200, 60
    )
    check(r.status == 200, f"Serve replaces the replica: {r}")
    print(f"replaced after {took:.1f} s")


def test(folder):
    skip_unless_built()
    t = Setup(folder, os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None)
    use_word_model(t)
    app = Application(free_port())
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=80 << 20,
        _temp_dir=os.path.join(folder, "r"),
        log_to_driver=bool(os.environ.get("KNAPSACK_RAY_LOG")),
    )
    serve.start(http_options={"host": "127.0.0.1", "port": app.port})
    settings = serve_knapsack.Settings(
        model=t.model,
        binary=BINARY,
        memory=t.memory,
        conversations=S,
        queue=QUEUE,
        options="-c 1024",
        upscale_delay=1,
        downscale_delay=12,
        drain=20,
    )
    begin = time.monotonic()
    serve.run(serve_knapsack.app(settings), name="default")
    print(f"the application runs after {time.monotonic() - begin:.1f} s")
    try:
        check(len(workers()) == 1, f"one worker: {workers()}")
        test_answers(t, app)
        test_cancel(t, app)
        test_scaling(t, app)
        test_crash(app)
    finally:
        serve.shutdown()
        found, took = wait_for(workers, lambda found: not found, 30)
        check(not found, f"no worker is left: {found}")
        ray.shutdown()


run_tests(test)
