#!/usr/bin/env python3
"""serve from outside: completions, llama.cpp's endpoints, metrics and memory."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from serve_cases import case, run_cases  # noqa: E402
from server import chat_body, text_of  # noqa: E402


@case("50", "completions")
def completions(t):
    text = "Once upon a time there was"
    fields = {"max_tokens": 8, "temperature": 0}
    a = t.server.post("/v1/completions", {"prompt": text, **fields})
    j = a.json()
    t.expect(
        a.status == 200
        and j["object"] == "text_completion"
        and isinstance(j["choices"][0]["text"], str)
        and j["choices"][0]["finish_reason"] in ("stop", "length")
        and j["usage"]["completion_tokens"] <= 8
        and re.fullmatch(r"cmpl-[0-9A-Za-z]{24}|chatcmpl-[0-9A-Za-z]{24}", j["id"]),
        "a text_completion",
        a,
    )
    ids = t.server.post("/tokenize", {"content": text, "add_special": True}).json()["tokens"]
    b = t.server.post("/v1/completions", {"prompt": ids, **fields})
    t.expect(b.json()["choices"][0]["text"] == j["choices"][0]["text"], j["choices"], b)
    for wrong in ([1 << 30], [-1], [1.5], {"a": 1}, None, 5):
        r = t.server.post("/v1/completions", {"prompt": wrong, **fields})
        if not t.expect_error(r, 400, "invalid_request_error", param="prompt"):
            t.expect(False, f"400 for the prompt {wrong}")
    r = t.server.post("/v1/completions", {"prompt": [text, text], **fields})
    two = r.status == 200 and [c["index"] for c in r.json()["choices"]] == [0, 1]
    t.expect(two or r.status == 400, "two choices or 400", r)
    r = t.server.post("/v1/completions", {"prompt": text, "stream": True, **fields})
    streamed = "".join(c["text"] for d in r.datas() for c in d["choices"])
    t.expect(
        streamed == j["choices"][0]["text"]
        and r.events[-1].data == "[DONE]"
        and {d["object"] for d in r.datas()} == {"text_completion"},
        "the same text in a stream",
        r.datas(),
    )
    r = t.server.post("/v1/completions", {"prompt": text, "logprobs": 2, **fields})
    logprobs = r.json()["choices"][0]["logprobs"]
    t.expect(
        {"tokens", "token_logprobs", "top_logprobs", "text_offset"} <= set(logprobs)
        and "".join(logprobs["tokens"]) == j["choices"][0]["text"],
        "the object of completions",
        logprobs,
    )
    for field, value in (("suffix", "a"), ("echo", True), ("best_of", 3)):
        r = t.server.post("/v1/completions", {"prompt": text, field: value, **fields})
        t.expect_error(r, 400, param=field)


@case("51", "the native completion")
def native(t):
    body = {"prompt": "Once upon a time", "n_predict": 6, "temperature": 0}
    whole = t.server.post("/completion", body).json()
    t.expect(
        whole["stop"] is True
        and whole["stop_type"] == "limit"
        and whole["tokens_predicted"] == 6
        and whole["truncated"] is False
        and whole["tokens"] == []
        and {
            "generation_settings",
            "prompt",
            "model",
            "id_slot",
            "timings",
            "tokens_evaluated",
            "tokens_cached",
            "has_new_line",
            "stopping_word",
        }
        <= set(whole),
        "the fields of llama-server",
        whole,
    )
    t.expect(t.server.post("/completions", body).json()["content"] == whole["content"], "the same")
    r = t.server.post("/completion", {**body, "stream": True})
    datas = r.datas()
    t.expect(
        all(d["stop"] is False and d["tokens"] for d in datas[:-1])
        and datas[-1]["stop"] is True
        and datas[-1]["content"] == ""
        and datas[-1]["stop_type"] == "limit"
        and all(e.data != "[DONE]" for e in r.events),
        "events, the last one with stop, no [DONE]",
        datas,
    )
    t.expect("".join(d["content"] for d in datas) == whole["content"], whole["content"], datas)
    r = t.server.post("/completion", {**body, "n_predict": 0}).json()
    t.expect(r["tokens_predicted"] == 0 and r["content"] == "", "the prompt only", r)
    fields = ["content", "generation_settings/n_predict"]
    r = t.server.post("/completion", {**body, "response_fields": fields}).json()
    t.expect(set(r) == set(fields) and r[fields[1]] == 6, "only these fields", r)
    word = whole["content"].strip()[3:5]
    r = t.server.post("/completion", {**body, "stop": [word]}).json()
    t.expect(r["stop_type"] == "word" and r["stopping_word"] == word, f"stop by {word!r}", r)
    r = t.server.post("/completion", {**body, "n_probs": 4}).json()["completion_probabilities"]
    t.expect(len(r) == 6 and all(len(x["top_logprobs"]) == 4 for x in r), "4 alternatives", r)
    r = t.server.post("/completion", {**body, "return_tokens": True}).json()
    t.expect(len(r["tokens"]) == 6, "6 ids", r["tokens"])


@case("52", "tokens and back")
def round_trip(t):
    for text in ("plain", "a\u0000b", "\U0001f600 \U0001f9d1‍\U0001f680", "媽 ü \t\n ", "", "𝕏𐍈"):
        ids = t.server.post("/tokenize", {"content": text}).json()["tokens"]
        back = t.server.post("/detokenize", {"tokens": ids}).json()["content"]
        t.expect(back == text, repr(text), back)
    pieces = t.server.post("/tokenize", {"content": "a\U0001f600", "with_pieces": True}).json()
    data = b"".join(
        p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"])
        for p in pieces["tokens"]
    )
    t.expect(data.decode() == "a\U0001f600", "pieces with their bytes", pieces)
    t.expect_error(t.server.post("/detokenize", {"tokens": [1 << 30]}), 400, param="tokens")
    t.expect_error(t.server.post("/detokenize", {"tokens": "a"}), 400, param="tokens")
    t.expect_error(t.server.post("/tokenize", {"content": 5}), 400, param="content")
    for special, more in ((True, False), (False, True)):
        body = {"content": "<|im_end|>", "parse_special": special}
        n = len(t.server.post("/tokenize", body).json()["tokens"])
        t.expect((n > 1) == more, f"parse_special {special}", n)


@case("53", "metrics")
def metrics(t):
    t.server.chat()
    t.expect(t.server.wait_idle() is not None, "idle seats", t.server.memory())
    before = t.server.metrics()
    usage = t.server.chat("Count to ten.").json()["usage"]
    t.server.wait_idle()
    after = t.server.metrics()
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    for name, n in (
        ("prompt_tokens_total", usage["prompt_tokens"] - cached),
        ("prompt_tokens_cached_total", cached),
        ("tokens_predicted_total", usage["completion_tokens"]),
    ):
        grown = after[f"llamacpp:{name}"] - before[f"llamacpp:{name}"]
        t.expect(grown == n, f"{name} grows by {n}", grown)
    for name in ("requests_processing", "requests_deferred"):
        t.expect(after[f"llamacpp:{name}"] == 0, f"{name} 0 at rest", after[f"llamacpp:{name}"])
    names = {k.split("{")[0] for k in after}
    wanted = {
        "knapsack:requests_total",
        "knapsack:queue_length",
        "knapsack:first_token_seconds_count",
        "knapsack:token_seconds_count",
        "knapsack:queue_wait_seconds_count",
        "knapsack:seats",
        "knapsack:conversations_parked",
        "knapsack:park_bytes",
        "knapsack:resume_total",
        "knapsack:tokens_reread_total",
        "knapsack:memory_budget_bytes",
        "knapsack:memory_planned_bytes",
        "knapsack:memory_peak_bytes",
        "knapsack:slots_evicted_total",
        "knapsack:connections",
        "knapsack:cancelled_total",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        *(
            f"llamacpp:{x}"
            for x in (
                "prompt_seconds_total",
                "tokens_predicted_seconds_total",
                "n_decode_total",
                "n_tokens_max",
                "prompt_tokens_seconds",
                "predicted_tokens_seconds",
                "n_busy_slots_per_decode",
                "spec_decode_num_draft_tokens_total",
                "spec_decode_num_accepted_tokens_total",
                "spec_decode_num_drafts_total",
            )
        ),
    }
    t.expect(wanted <= names, "all metrics", sorted(wanted - names))
    served = sum(v for k, v in after.items() if k.startswith("knapsack:requests_total{"))
    t.expect(served > 0, "requests are counted", served)
    r = t.server.get("/metrics")
    t.expect(r.headers["content-type"].startswith("text/plain"), "text/plain", r.pairs)
    t.expect("process-start-time-unix" in r.headers, "Process-Start-Time-Unix", r.pairs)
    with t.start("--no-metrics", "--no-slots") as s:
        for path in ("/metrics", "/slots"):
            t.expect_error(s.get(path), 501, "not_supported_error", reason="endpoint_off")


@case("54", "names of slot files")
def slot_names(t):
    folder = t.new_folder()
    inner = os.path.join(folder, "slots")
    os.mkdir(inner)
    with t.start("--slot-save-path", inner) as s:
        s.post("/completion", {"prompt": "Hello there", "n_predict": 4, "id_slot": 0})
        names = ("../x", "a/b", "", "n" * 300, ".", "..", "a\\..\\b\0c", "/etc/x", 5, None)
        for name in names:
            for action in ("save", "restore"):
                r = s.post(f"/slots/0?action={action}", {"filename": name})
                t.expect_error(r, 400, "invalid_request_error")
        t.expect(os.listdir(inner) == [] and os.listdir(folder) == ["slots"], "nothing written")
        r = s.post("/slots/0?action=save", {"filename": "one.bin"})
        t.expect(r.status == 200 and r.json()["n_saved"] > 0, "a saved slot", r)
        n = r.json().get("n_saved")
        t.expect(os.listdir(inner) == ["one.bin"], "one file", os.listdir(inner))
        r = s.post("/slots/1?action=restore", {"filename": "one.bin"})
        t.expect(r.status == 200 and r.json()["n_restored"] == n, f"{n} restored", r)
        r = s.post("/slots/1?action=erase", {})
        t.expect(r.status == 200 and "n_erased" in r.json(), "an erased slot", r)
        for path in ("/slots/9?action=save", "/slots/0?action=fly", "/slots/x?action=save"):
            r = s.post(path, {"filename": "two.bin"})
            t.expect(r.status in (400, 404), f"400 for {path}", r)
        t.expect(os.listdir(inner) == ["one.bin"], "still one file", os.listdir(inner))
    t.expect(
        t.server.post("/slots/0?action=save", {"filename": "a"}).status in (400, 501),
        "501 without --slot-save-path",
    )


@case("props", "props and slots")
def props(t):
    j = t.server.get("/props").json()
    settings = j["default_generation_settings"]
    for name, fine in (
        ("total_slots", j["total_slots"] == 2),
        ("model_path", j["model_path"].endswith(".gguf")),
        ("model_alias", j["model_alias"] == t.alias),
        ("n_ctx", settings["n_ctx"] > 0),
        ("temperature 0.8", settings["params"]["temperature"] == 0.8),
        ("chat_template", "im_start" in j["chat_template"]),
        ("eos_token", j["eos_token"]),
        ("is_sleeping", j["is_sleeping"] is False),
        ("build_info", "build_info" in j),
        ("memory", "memory" in j),
    ):
        t.expect(fine, f"{name} in /props", {k: v for k, v in j.items() if k != "chat_template"})
    slots = t.server.get("/slots").json()
    t.expect(
        [s["id"] for s in slots] == [0, 1]
        and all(
            s["is_processing"] is False and s["n_ctx"] == settings["n_ctx"] and s["idle_s"] < 600
            for s in slots
        ),
        "two slots",
        slots,
    )
    t.expect(not any("prompt" in s for s in slots), "no prompts in /slots", slots)


@case("memory", "the plan and the live numbers")
def memory(t):
    t.server.chat()
    t.server.wait_idle()
    j = t.server.memory()
    t.expect(
        j["budget"] == (256 if t.real else 48) << 20
        and j["planned"] <= j["budget"]
        and j["peak"] == j["planned"]
        and sum(r["bytes"] for r in j["regions"]) == j["planned"]
        and {r["scope"] for r in j["regions"]} <= {"shared", "conversation", "server"},
        "regions that add up to the plan, peak = plan",
        j,
    )
    t.expect(
        len(j["seats"]) == 2
        and all(
            s["state"] in ("free", "active", "idle", "waiting") and s["forgotten"] == 0
            for s in j["seats"]
        )
        and any(
            s["state"] == "idle" and re.fullmatch(r"[0-9a-f]{16}", s["conversation"] or "")
            for s in j["seats"]
        ),
        "seats",
        j["seats"],
    )
    t.expect(j["queue"]["n"] == 0 and "quota" in j["parked"] and j["ladder"], "the rest", j)
    t.expect(
        t.server.rss() <= j["planned"] + (24 << 20), "resident <= plan + 24 MiB", t.server.rss()
    )


@case("template", "the rendered prompt is what is read")
def template(t):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    prompt = t.server.post("/apply-template", {"messages": messages}).json()["prompt"]
    t.expect("Be brief." in prompt and prompt.rstrip().endswith("assistant"), "a prompt", prompt)
    ids = t.server.post("/tokenize", {"content": prompt, "parse_special": True}).json()["tokens"]
    t.expect(len(ids) == t.server.count(messages), t.server.count(messages), len(ids))
    raw = t.server.post("/completion", {"prompt": prompt, "n_predict": 8, "temperature": 0})
    t.expect(
        raw.json()["content"].strip()
        == text_of(t.server.post("/v1/chat/completions", chat_body(messages))),
        "the answer of the raw prompt",
        raw,
    )


if __name__ == "__main__":
    run_cases()
