#!/usr/bin/env python3
"""serve from outside: conversations that go on, come back, and stay apart."""

import os
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from serve_cases import case, run_cases  # noqa: E402
from server import chat_body, open_files, text_of  # noqa: E402
from streams import CHAT, Stream, cached_of, came_from, turn, user  # noqa: E402


@case("24", "a prompt longer than a conversation")
def too_long(t):
    with t.start("--kv", "exact", "-c", 256) as s:
        for streamed in (False, True):
            r = s.chat(t.filler(400), stream=streamed)
            if t.expect_error(
                r,
                400,
                "exceed_context_size_error",
                words=["exceeds the available context size"],
                reason="context_length_exceeded",
            ):
                e = r.error()
                t.expect(e["n_prompt_tokens"] > e["n_ctx"] == 256, "both numbers", e)
            t.expect(not r.events, "no stream", r.pairs)
        r = s.post("/v1/completions", {"prompt": t.filler(400)})
        t.expect_error(r, 400, "exceed_context_size_error")
        t.expect(s.chat().status == 200, "an answer afterwards")


@case("25", "a prompt of 8 times the slots")
def evicting(t):
    with t.start("--kv", "sink,slots=256") as s:
        r = s.chat(t.filler(8 * 256))
        t.expect(r.status == 200 and r.json()["knapsack"]["forgotten"] > 0, "200, forgotten > 0", r)
        own = r.json()["knapsack"]
        t.expect(0.7 < own["forgotten"] < 1 and own["slots"] == 256, "about 7 of 8 forgotten", own)
        t.expect(len(own.get("held", [])) >= 1, "the share held of each message", own)
        s.wait_idle()
        m = s.memory()
        t.expect(m["peak"] == m["planned"], "peak = plan", (m["peak"], m["planned"]))
        seat = next(x for x in m["seats"] if x["conversation"])
        t.expect(seat["evicted"] > 0 and seat["forgotten"] > 0, "evicted slots", seat)


@case("26", "an answer that does not fit")
def full(t):
    with t.start("--kv", "exact", "-c", 256, "--max-answer", 4096) as s:
        r = s.chat("Write a long story.", max_tokens=4000, logit_bias=t.no_end(s))
        j = r.json()
        t.expect(
            r.status == 200
            and j["choices"][0]["finish_reason"] == "length"
            and 254 <= j["usage"]["total_tokens"] <= 257,
            "length at 256 tokens",
            j["usage"],
        )


@case("27", "a second turn reads only what is new")
def second_turn(t):
    first = [user("Name a colour. " + t.filler(200))]
    a = t.server.chat(first, max_tokens=20)
    total = a.json()["usage"]["total_tokens"]
    b = t.server.chat(turn(first, text_of(a), "Another one."), max_tokens=20)
    usage = b.json()["usage"]
    t.expect(cached_of(b) >= total - 2, f"at least {total - 2} cached tokens", usage)
    new = t.server.count("Another one.") + 8
    t.expect(b.json()["timings"]["prompt_n"] <= new, f"at most {new} tokens read", b.json())
    t.expect(came_from(b) == "seat", "from the seat", b.json()["knapsack"])
    one, two = (r.headers.get("x-conversation-id") for r in (a, b))
    t.expect(one and one == two, "one X-Conversation-Id", (one, two))


@case("28", "white space at the end of an answer")
def trimmed(t):
    for change in (str.rstrip, lambda s: s + "\n", lambda s: s + "  "):
        first = [user(f"Name a bird. {id(change)} " + t.filler(200))]
        a = t.server.chat(first, max_tokens=20)
        total = a.json()["usage"]["total_tokens"]
        b = t.server.chat(turn(first, change(text_of(a)), "Another one."))
        t.expect(cached_of(b) >= total - 2, f"at least {total - 2} cached", b.json()["usage"])


@case("29", "an answer generated again")
def regenerate(t):
    for kv in ([], t.endless[:2]):
        with t.start("--park", t.new_folder(), *kv) as s:
            first = [user("Name a river. " + t.filler(180))]
            a = s.chat(first, max_tokens=20)
            s.wait_idle()
            before = s.metrics()
            b = s.chat(first, max_tokens=20)
            s.wait_idle()
            t.expect(text_of(a) == text_of(b), text_of(a), text_of(b))
            n = a.json()["usage"]["prompt_tokens"]
            t.expect(cached_of(b) >= n // 2, f"no full read of {n} tokens", b.json()["usage"])
            after = s.metrics()
            resumed = sum(
                v - before.get(k, 0)
                for k, v in after.items()
                if k.startswith("knapsack:resume_total")
            )
            t.expect(resumed == 1, "resume_total + 1", resumed)
            c = s.chat(turn(first, text_of(a), "And a lake."), max_tokens=8)
            d = s.chat(turn(first, text_of(a), "And a hill."), max_tokens=8)
            edited = (
                kv or cached_of(d) >= n // 2
            )  # where slots were given up, the text is read again
            t.expect(c.status == d.status == 200 and edited, "an edited turn", d.json()["usage"])


@case("30", "a conversation comes back from the disk")
def detour(t):
    first = [user("Name a planet. " + t.filler(200))]
    with t.start("--park", t.new_folder()) as s:
        a = s.chat(first, max_tokens=20)
        want = s.chat(turn(first, text_of(a), "Another one."), max_tokens=20)
    with t.start("--park", t.new_folder()) as s:
        a = s.chat(first, max_tokens=20)
        total = a.json()["usage"]["total_tokens"]
        for i in range(2):
            s.chat([user(f"{i} " + t.filler(100))], max_tokens=5)
        b = s.chat(turn(first, text_of(a), "Another one."), max_tokens=20)
        t.expect(came_from(b) == "disk", "from the disk", b.json()["knapsack"])
        t.expect(cached_of(b) >= total - 2, f"at least {total - 2} cached", b.json()["usage"])
        t.expect(text_of(b) == text_of(want), text_of(want), text_of(b))
        t.expect(s.memory()["parked"]["n"] >= 1, "parked conversations", s.memory()["parked"])
        c = s.chat(turn(turn(first, text_of(a), "Another one."), text_of(b), "More."))
        t.expect(came_from(c) == "seat", "from the seat now", c.json()["knapsack"])


@case("58", "clients together get what they get alone")
def together(t):
    n = 4
    bodies = [
        chat_body(f"{i} Tell me about {w}. " + t.filler(60 * i), max_tokens=40, logprobs=True)
        for i, w in enumerate(("rain", "iron", "bread", "the moon"))
    ]

    def outcome(r):
        content = r.json()["choices"][0]["logprobs"]["content"]
        return text_of(r), [x["bytes"] for x in content]

    with t.start(conversations=n) as s:
        alone = [outcome(s.post(CHAT, body)) for body in bodies]
    with t.start(conversations=n) as s:
        found = [None] * n

        def ask(i):
            found[i] = outcome(s.post(CHAT, bodies[i]))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(n)]
        for x in threads:
            x.start()
        for x in threads:
            x.join(120)
    for i in range(n):
        t.expect(found[i] == alone[i], alone[i][0], found[i] and found[i][0])


@case("59", "4 clients and 50 turns")
def many_turns(t):
    turns = 50
    with t.start("--park", t.new_folder(), queue=8) as s:
        s.chat()
        marks, statuses, gate = {}, [], threading.Barrier(4)

        def client(i):
            messages = [user(f"{i}: begin")]
            for k in range(turns):
                while True:
                    r = s.chat(messages, max_tokens=6)
                    statuses.append(r.status)
                    if r.status != 429:
                        break
                    time.sleep(0.05)
                if r.status != 200:
                    return
                if len(messages) > 20:
                    messages = [user(f"{i}: again {k}")]
                else:
                    messages = turn(messages, text_of(r), f"{i}.{k}")
                if k == turns // 3 and gate.wait(120) == 0:
                    marks["rss"], marks["files"] = s.rss(), open_files(s.process.pid)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for x in threads:
            x.start()
        for x in threads:
            x.join(300)
        t.expect(set(statuses) <= {200, 429}, "200 and 429 only", set(statuses))
        t.expect(statuses.count(200) >= 4 * turns, f"{4 * turns} turns", statuses.count(200))
        s.wait_idle()
        grown = s.rss() - marks["rss"]
        t.expect(grown < 1 << 20, "less than 1 MiB of growth", grown)
        time.sleep(0.2)
        files = open_files(s.process.pid)
        t.expect(files <= marks["files"] + 1, f"at most {marks['files'] + 1} open files", files)
        m = s.memory()
        t.expect(m["peak"] == m["planned"], "peak = plan", m)
        t.expect(s.rss() <= m["planned"] + (24 << 20), "resident <= plan + 24 MiB", s.rss())


@case("61", "a park folder that cannot be written")
def no_folder(t):
    park = t.new_folder()
    with t.start("--park", park) as s:
        shutil.rmtree(park)
        first = [user("Name a stone. " + t.filler(100))]
        a = s.chat(first, max_tokens=10)
        for i in range(3):
            t.expect(s.chat([user(f"{i} " + t.filler(50))]).status == 200, "200")
        b = s.chat(turn(first, text_of(a), "Another."), max_tokens=10)
        t.expect(b.status == 200 and came_from(b) == "text", "read from the text again", b)
        t.expect("park" in s.err.lower(), "a line in the log", s.err[-300:])
    park = t.new_folder()
    with t.start("--park", park, "--park-bytes", "1KiB") as s:
        for i in range(4):
            t.expect(s.chat([user(f"{i} " + t.filler(50))]).status == 200, "200")
        size = sum(os.path.getsize(os.path.join(park, f)) for f in os.listdir(park))
        t.expect(size <= 1024, "at most 1 KiB of files", size)


@case("parkfile", "damaged park files are refused")
def damaged(t):
    park = t.new_folder()
    first = [user("Name a fish. " + t.filler(150))]
    with t.start("--park", park) as s:
        a = s.chat(first, max_tokens=10)
        next_turn = turn(first, text_of(a), "Another.")
    t.expect(os.stat(park).st_mode & 0o777 == 0o700, "mode 0700")
    files = [os.path.join(park, f) for f in os.listdir(park)]
    modes = [oct(os.stat(f).st_mode & 0o777) for f in files]
    t.expect(modes and set(modes) == {"0o600"}, "files of mode 0600", modes)
    with t.start("--park", t.new_folder()) as s:
        s.chat(first, max_tokens=10)
        want = text_of(s.chat(next_turn, max_tokens=10))
    for harm in ("cut", "bit", "noise", "none"):
        copy = t.new_folder()
        for f in files:
            with open(f, "rb") as source:
                data = bytearray(source.read())
            if harm == "cut":
                data = data[: len(data) // 2]
            elif harm == "bit":
                data[len(data) // 2] ^= 1
            elif harm == "noise":
                data = bytearray(os.urandom(len(data)))
            with open(os.path.join(copy, os.path.basename(f)), "wb") as out:
                out.write(data)
            os.chmod(out.name, 0o600)
        with t.start("--park", copy) as s:
            r = s.chat(next_turn, max_tokens=10)
            t.expect(r.status == 200, f"200 with {harm}", r)
            t.expect(
                came_from(r) == ("disk" if harm == "none" else "text"),
                f"from the {'disk' if harm == 'none' else 'text'} with {harm}",
                r.json()["knapsack"],
            )
            if harm == "none":
                t.expect(text_of(r) == want, want, text_of(r))


@case("double", "the same request twice at once")
def double(t):
    body = chat_body("Tell me twice. " + t.filler(100), max_tokens=30)
    with t.start("--park", t.new_folder()) as s:
        want = text_of(s.post(CHAT, body))
    with t.start("--park", t.new_folder()) as s:
        xs = [Stream(s, body) for _ in range(2)]
        for x in xs:
            r = x.finish(60)
            t.expect(x.done() and text_of(r) == want, want, (x.error, r and text_of(r)))


@case("hint", "conversations with one beginning stay apart")
def apart(t):
    system = {"role": "system", "content": t.filler(300, "You help.")}
    with t.start("--park", t.new_folder(), conversations=3) as s:
        chats = {name: [system, user(f"I am {name}.")] for name in ("Ann", "Ben", "Cid")}
        texts = {}
        for k in range(3):
            for name, messages in chats.items():
                r = s.chat(messages, max_tokens=8, user=name)
                if k:
                    t.expect(came_from(r) in ("seat", "disk"), "found again", r.json()["knapsack"])
                texts[name, k] = text_of(r)
                chats[name] = turn(messages, text_of(r), f"More {k}.")
    for name in chats:
        with t.start(conversations=3) as s:
            messages = [system, user(f"I am {name}.")]
            for k in range(3):
                r = s.chat(messages, max_tokens=8)
                t.expect(text_of(r) == texts[name, k], texts[name, k], text_of(r))
                messages = turn(messages, text_of(r), f"More {k}.")


if __name__ == "__main__":
    run_cases()
