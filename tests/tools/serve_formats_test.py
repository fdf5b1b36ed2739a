#!/usr/bin/env python3
"""serve from outside: Anthropic's messages and OpenAI's responses."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from serve_cases import case, run_cases  # noqa: E402
from server import text_of  # noqa: E402

BILLING = "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={};"


@case("55", "messages")
def messages(t):
    body = {"max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]}
    a = t.server.post("/v1/messages", body)
    j = a.json()
    t.expect(
        a.status == 200
        and j["type"] == "message"
        and j["role"] == "assistant"
        and j["id"].startswith("msg_")
        and j["content"][0]["type"] == "text"
        and j["stop_reason"] in ("end_turn", "max_tokens")
        and j["stop_sequence"] is None
        and j["usage"]["cache_creation_input_tokens"] == 0
        and "timings" not in j,
        "a message",
        a,
    )
    t.expect(j["content"][0]["text"] == text_of(t.server.chat()), "the text of a chat", j)
    total = t.server.count("Hi")
    r = t.server.post("/v1/messages", {**body, "stream": True})
    names = [e.name for e in r.events if e.name and e.name != "ping"]
    squeezed = [n for i, n in enumerate(names) if i == 0 or n != names[i - 1]]
    t.expect(
        squeezed
        == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        and all(e.json()["type"] == e.name for e in r.events if e.name)
        and all(e.data != "[DONE]" for e in r.events),
        "the order of events",
        names,
    )
    usage = r.datas()[0]["message"]["usage"]
    t.expect(
        usage["input_tokens"] + usage["cache_read_input_tokens"] == total, f"{total} tokens", usage
    )
    text = "".join(d["delta"]["text"] for d in r.datas() if d["type"] == "content_block_delta")
    t.expect(text == j["content"][0]["text"], j["content"], text)
    n = t.server.post("/v1/messages/count_tokens", {"messages": body["messages"]}).json()
    t.expect(n == {"input_tokens": total}, {"input_tokens": total}, n)
    r = t.server.post("/v1/messages", {**body, "messages": "Hi"})
    t.expect(
        r.status == 400
        and r.json()["type"] == "error"
        and r.json()["error"]["type"] == "invalid_request_error",
        "an error in the form of this endpoint",
        r,
    )
    word = j["content"][0]["text"].strip()[2:4]
    r = t.server.post("/v1/messages", {**body, "stop_sequences": [word]}).json()
    t.expect(
        r["stop_reason"] == "stop_sequence" and r["stop_sequence"] == word, f"stop by {word!r}", r
    )
    tool = {
        "name": "f",
        "input_schema": {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]},
    }
    ask = {**body, "max_tokens": 100, "tools": [tool], "tool_choice": {"type": "any"}}
    r = t.server.post("/v1/messages", ask).json()
    calls = [c for c in r.get("content", []) if c["type"] == "tool_use"]
    t.expect(
        r.get("stop_reason") == "tool_use" and calls and calls[0]["input"] == {"a": "b"},
        "a tool_use",
        r,
    )


@case("56", "a billing header that changes")
def billing(t):
    for cch in ("aaaa1", "bbbb2"):
        system = [
            {"type": "text", "text": BILLING.format(cch)},
            {"type": "text", "text": t.filler(400, "You help.")},
        ]
        r = t.server.post(
            "/v1/messages",
            {"max_tokens": 4, "system": system, "messages": [{"role": "user", "content": "Hi"}]},
        )
        t.expect(r.status == 200, "200", r)
    read = r.json()["usage"]["cache_read_input_tokens"]
    t.expect(read > 300, "a cached beginning", r.json()["usage"])


@case("57", "responses")
def responses(t):
    body = {"input": "Hi", "max_output_tokens": 8, "temperature": 0}
    r = t.server.post("/v1/responses", body)
    j = r.json()
    t.expect(
        r.status == 200
        and j["id"].startswith("resp_")
        and j["object"] == "response"
        and j["output"][0]["type"] == "message"
        and j["output"][0]["id"].startswith("msg_")
        and j["output"][0]["content"][0]["type"] == "output_text"
        and j["status"] in ("completed", "incomplete")
        and j["usage"]["total_tokens"] == j["usage"]["input_tokens"] + j["usage"]["output_tokens"]
        and "cached_tokens" in j["usage"]["input_tokens_details"],
        "a response",
        r,
    )
    text = j["output"][0]["content"][0]["text"]
    t.expect(text == text_of(t.server.chat()), "the text of a chat", text)
    if j["status"] == "incomplete":
        t.expect(j["incomplete_details"]["reason"] == "max_output_tokens", "max_output_tokens", j)
    r = t.server.post("/v1/responses", {**body, "stream": True})
    datas = r.datas()
    names = [d["type"].removeprefix("response.") for d in datas]
    squeezed = [n for i, n in enumerate(names) if i == 0 or n != names[i - 1]]
    t.expect(
        squeezed[:-1]
        == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ]
        and squeezed[-1] in ("completed", "incomplete"),
        "the order of events",
        names,
    )
    t.expect(
        [d["sequence_number"] for d in datas] == list(range(len(datas)))
        and [e.name for e in r.events if e.name] == [d["type"] for d in datas],
        "numbers and names",
        [e.text[:60] for e in r.events],
    )
    deltas = [d for d in datas if d["type"] == "response.output_text.delta"]
    t.expect(
        "".join(d["delta"] for d in deltas) == text
        and all({"item_id", "output_index", "content_index"} <= set(d) for d in deltas)
        and datas[-1]["response"]["output"][0]["content"][0]["text"] == text,
        text,
        deltas,
    )
    for field, value in (
        ("previous_response_id", "resp_x"),
        ("background", True),
        ("conversation", "conv_x"),
    ):
        t.expect_error(t.server.post("/v1/responses", {**body, field: value}), 400, param=field)
    items = [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Be brief."}],
        },
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    ]
    r = t.server.post("/v1/responses", {**body, "input": items})
    same = t.server.count(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    )
    t.expect(r.json()["usage"]["input_tokens"] == same, f"{same} tokens", r)


if __name__ == "__main__":
    run_cases()
