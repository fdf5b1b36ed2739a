#!/usr/bin/env python3
"""serve from outside: limits, seeds, biases and unknown fields of chat completions."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from serve_cases import case, run_cases  # noqa: E402
from server import logprobs_of, text_of  # noqa: E402


def first_id(t, content):
    """The id of the first token of the greedy answer, by the native endpoint."""
    prompt = t.server.post("/apply-template", {"messages": content}).json()["prompt"]
    r = t.server.post(
        "/completion", {"prompt": prompt, "n_predict": 1, "n_probs": 1, "temperature": 0}
    )
    return r.json()["completion_probabilities"][0]["id"]


@case("10", "max_tokens")
def max_tokens(t):
    j = t.server.chat(max_tokens=1).json()
    t.expect(
        j["usage"]["completion_tokens"] == 1 and j["choices"][0]["finish_reason"] == "length",
        "one token and length",
        j,
    )
    for wrong in (0, "5", 1.5, -2, [], 1 << 40):
        t.expect_error(t.server.chat(max_tokens=wrong), 400, param="max_tokens")
    t.expect_error(t.server.chat(max_tokens=1 << 70), 400)
    t.expect(t.server.chat(max_tokens=5.0).status == 200, "5.0 is an integer")
    with t.start("--max-answer", 40, "--kv", "exact", "-c", 256) as s:
        for limit, most in ((-1, 256), (None, 40)):
            j = s.chat("Tell me a story.", max_tokens=limit).json()
            n, reason = j["usage"]["completion_tokens"], j["choices"][0]["finish_reason"]
            t.expect(
                8 < n <= most and (reason == "stop" or limit == -1 or n == 40),
                f"at most {most} tokens with {limit}",
                (n, reason),
            )


@case("11", "two limits")
def two_limits(t):
    j = t.server.chat(max_tokens=5, max_completion_tokens=3).json()
    t.expect(j["usage"]["completion_tokens"] == 3, "3 tokens", j)
    j = t.server.chat(max_tokens=None, max_completion_tokens=3).json()
    t.expect(j["usage"]["completion_tokens"] == 3, "3 tokens", j)
    t.expect_error(t.server.chat(max_completion_tokens="a"), 400, param="max_completion_tokens")


@case("12", "seeds")
def seeds(t):
    texts = [
        text_of(t.server.chat("Tell me a story.", seed=seed, temperature=1, max_tokens=16))
        for seed in (7, 7, 8)
    ]
    t.expect(texts[0] == texts[1], "equal answers with one seed", texts)
    t.expect(texts[0] != texts[2], "another answer with another seed", texts)
    for field, wrong in (
        ("temperature", "hot"),
        ("temperature", -1),
        ("top_p", 2),
        ("seed", "x"),
        ("presence_penalty", 3),
        ("stream", "yes"),
        ("top_k", 1.5),
    ):
        t.expect_error(t.server.chat(**{field: wrong}), 400, "invalid_request_error", param=field)


@case("13", "two answers to one request")
def two_answers(t):
    r = t.server.chat("Tell me a story.", n=2, temperature=1, seed=3, max_tokens=16)
    if r.status == 400:
        t.expect_error(r, 400, param="n")
        return
    choices = r.json()["choices"]
    t.expect(
        [c["index"] for c in choices] == [0, 1]
        and choices[0]["message"]["content"] != choices[1]["message"]["content"],
        "two different answers",
        choices,
    )
    for wrong in (0, 1000, "a"):
        t.expect_error(t.server.chat(n=wrong), 400, param="n")


@case("15", "top_logprobs without logprobs, and too many")
def wrong_logprobs(t):
    t.expect_error(t.server.chat(top_logprobs=3), 400, param="top_logprobs")
    t.expect_error(t.server.chat(logprobs=True, top_logprobs=21), 400, param="top_logprobs")
    t.expect_error(t.server.chat(logprobs=3), 400, param="logprobs")


@case("16", "logit_bias")
def logit_bias(t):
    messages = [{"role": "user", "content": "Hi"}]
    token = first_id(t, messages)
    r = t.server.chat(logprobs=True, logit_bias={str(token): -100})
    first = logprobs_of(t.server.chat(logprobs=True))[0]["token"]
    t.expect(logprobs_of(r)[0]["token"] != first, f"another token than {first!r}", r)
    r = t.server.chat(logit_bias={"40": 100}, max_tokens=4)
    piece = t.server.post("/detokenize", {"tokens": [40] * 4}).json()["content"]
    t.expect(text_of(r).strip() == piece.strip(), f"only {piece!r}", r)
    for wrong in ({"x": 1}, {"5": "a"}, {"9999999": 1}, 5):
        t.expect_error(t.server.chat(logit_bias=wrong), 400, param="logit_bias")


@case("49", "unknown fields are named")
def unknown(t):
    r = t.server.chat(foo=1, bar={"a": [1]}, user="me", store=True, metadata={"a": "b"})
    named = {x.strip() for x in r.headers.get("x-knapsack-ignored", "").split(",")}
    t.expect(
        r.status == 200 and {"foo", "bar"} <= named and not {"user", "messages"} & named,
        "foo and bar",
        r.pairs,
    )
    t.expect("x-knapsack-ignored" not in t.server.chat().headers, "no header without them")
    r = t.server.chat(**{"a\r\nX-Evil": 1, "ü": 1, "b" * 5000: 1})
    t.expect(
        r.status == 200 and "x-evil" not in r.headers, "names that cannot break the head", r.pairs
    )
    for field, value in (
        ("mirostat", 2),
        ("dry_multiplier", 0.8),
        ("xtc_probability", 0.5),
        ("modalities", ["audio"]),
        ("audio", {"voice": "a"}),
    ):
        t.expect_error(t.server.chat(**{field: value}), 400, "invalid_request_error", param=field)
    r = t.server.chat(mirostat=0, xtc_probability=0, dry_multiplier=0, modalities=["text"])
    t.expect(r.status == 200, "samplers that are off", r)
    r = t.server.chat(**{name: None for name in ("stop", "tools", "seed", "logit_bias", "user")})
    t.expect(r.status == 200, "null is absent", r)


@case("progress", "the progress of a prompt")
def progress(t):
    r = t.server.chat(t.filler(2000), stream=True, return_progress=True, max_tokens=2)
    steps = [d["prompt_progress"] for d in r.datas() if "prompt_progress" in d]
    t.expect(
        len(steps) >= 2
        and steps[0]["processed"] == steps[0]["cache"]
        and steps[-1]["processed"] == steps[-1]["total"]
        and all(a["processed"] < b["processed"] for a, b in zip(steps, steps[1:]))
        and len({s["total"] for s in steps}) == 1
        and all("time_ms" in s for s in steps),
        "rising steps up to the whole prompt",
        steps,
    )
    r = t.server.chat(stream=True, timings_per_token=True)
    t.expect(all("timings" in d for d in r.datas()[1:-1]), "timings in each chunk", r.datas()[:3])


if __name__ == "__main__":
    run_cases()
