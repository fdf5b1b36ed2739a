#!/usr/bin/env python3
"""Kills serve with kill -9 at random moments: no parked conversation is lost or mixed.

    serve_kill_test.py KNAPSACK [ROUNDS] [MODEL] [SEED]

Each conversation has a text of its own. A second server that is never killed has the same
conversations, and after each restart both must give the same answers. A parked conversation must
come back from the disk."""

import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check  # noqa: E402
import program  # noqa: E402
from serve_cases import Setup  # noqa: E402
from server import chat_body, skip_unless_built, text_of  # noqa: E402
from streams import Stream  # noqa: E402

N, TURNS, ANSWER = 4, 6, 12


class Talk:
    """A conversation, which is the same on both servers."""

    def __init__(self, name, rng):
        self.name = name
        self.messages = [self.user(f"This is talk {name}. " + "la " * rng.randrange(5, 60))]
        self.n_turns = 0
        self.parked = False

    def user(self, text):
        return {"role": "user", "content": text}

    def go_on(self, answer):
        self.messages += [
            {"role": "assistant", "content": answer},
            self.user(f"{self.name} goes on, {self.n_turns}."),
        ]
        self.n_turns += 1


def is_parked(server, conversation):
    """Whether the file of a conversation is complete."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        m = server.memory()
        seats = [x for x in m["seats"] if x["conversation"] == conversation]
        if (seats and seats[0]["parked"]) or (not seats and m["parked"]["n"]):
            return True
        time.sleep(0.01)
    return False


def speak(talk, server, reference):
    """One turn on both servers."""
    body = chat_body(talk.messages, max_tokens=ANSWER)
    want = reference.chat(talk.messages, max_tokens=ANSWER)
    found = server.chat(talk.messages, max_tokens=ANSWER)
    fine = found.status == want.status == 200
    check(fine, f"{talk.name}: 200, found {found} {want}")
    if not fine:
        return body
    text, own = text_of(want), found.json()["knapsack"]
    check(text_of(found) == text, f"{talk.name}: expected {text!r}, found {text_of(found)!r} {own}")
    if talk.parked:
        check(own["from"] == "disk", f"{talk.name} was parked, found {own}")
    talk.go_on(text)
    conversation = found.headers.get("x-conversation-id")
    talk.parked = False
    return conversation


def run(setup, rounds, rng):
    park = setup.new_folder()
    options = ["--park", park, "--park-after", 0]
    with setup.start("--park", setup.new_folder(), conversations=N) as reference:
        talks = [Talk(f"t{i}", rng) for i in range(N)]
        for k in range(rounds):
            server = setup.start(*options, conversations=N)
            if k == 0:
                for talk in talks:
                    speak(talk, server, reference)
            for i in rng.sample(range(N), rng.randrange(1, N + 1)):
                conversation = speak(talks[i], server, reference)
                if talks[i].n_turns >= TURNS:
                    talks[i] = Talk(f"t{i}.{k}", rng)
                elif rng.random() < 0.7:
                    talks[i].parked = is_parked(server, conversation)
                    check(talks[i].parked, f"{talks[i].name} is parked: {server.memory()}")
            # The moment: while an answer is made, or while idle conversations are written.
            victim = rng.choice(talks)
            body = chat_body(victim.messages, max_tokens=ANSWER)
            x = Stream(server, body) if rng.random() < 0.7 else None
            time.sleep(rng.choice((0, rng.random() * 0.004, rng.random() * 0.05)))
            check(server.alive(), f"the server ended by itself: {server.err[-300:]}")
            server.kill()
            if x is not None:
                x.join(10)
                if x.done():  # the client has the answer, and goes on from it
                    want = text_of(reference.chat(victim.messages, max_tokens=ANSWER))
                    check(text_of(x.response) == want, f"{victim.name}: expected {want!r}")
                    victim.go_on(want)
                    victim.parked = False
            left = [f for f in os.listdir(park) if f.startswith(".") or f.endswith(".tmp")]
            check(len(left) <= N + 1, f"half-written files do not pile up: {left}")
        with setup.start(*options, conversations=N) as server:
            for talk in talks:
                speak(talk, server, reference)
            m = server.memory()
            check(m["peak"] == m["planned"], f"peak = plan: {m}")
        check(server.code == 0, f"exit code 0, found {server.code}")


def main():
    skip_unless_built()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    model = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3] else None
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 30)
    with tempfile.TemporaryDirectory() as folder:
        run(Setup(folder, model, merged=True), rounds, random.Random(seed))
    n, bad = program.checks, program.failures
    print(f"{rounds} kills, seed {seed}: {n - bad} of {n} checks held")
    sys.exit(1 if bad else 0)


main()
