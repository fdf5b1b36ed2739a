#!/usr/bin/env python3
"""serve from outside: tools, schemas and grammars."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from scripted_model import TOOLS  # noqa: E402
from serve_cases import case, run_cases  # noqa: E402
from serve_schema import CITIES, SCHEMA, fits_schema, json_schema, one_tool  # noqa: E402
from server import text_of  # noqa: E402


@case("45", "tools that may be used, as Home Assistant probes")
def tools_probe(t):
    for streamed in (False, True):
        r = t.server.chat(tools=TOOLS, tool_choice="auto", max_tokens=3, stream=streamed)
        t.expect(r.status == 200, "200", r)
    plain = t.server.chat().json()["usage"]["prompt_tokens"]
    told = t.server.chat(tools=TOOLS, tool_choice="auto").json()["usage"]["prompt_tokens"]
    t.expect(told > plain + 20, "tools are in the prompt", (plain, told))


@case("46", "a tool that must be called")
def tool_required(t):
    named = {"type": "function", "function": {"name": "get_weather"}}
    other = {"type": "function", "function": {"name": "get_time"}}
    weather = [{"role": "user", "content": "What is the weather in Paris?"}]
    for choice in ("required", named):
        r = t.server.chat(weather, tools=[one_tool()], tool_choice=choice, max_tokens=200)
        if not t.expect(r.status == 200, f"200 for {choice}", r):
            continue
        c = r.json()["choices"][0]
        calls = c["message"].get("tool_calls") or []
        t.expect(
            len(calls) >= 1
            and c["finish_reason"] == "tool_calls"
            and calls[0]["type"] == "function"
            and calls[0]["id"]
            and calls[0]["function"]["name"] == "get_weather"
            and json.loads(calls[0]["function"]["arguments"])["city"] in CITIES
            and not c["message"]["content"],
            "a call of get_weather",
            r,
        )
        r = t.server.chat(
            weather, tools=[one_tool()], tool_choice=choice, max_tokens=200, stream=True
        )
        deltas = [c["delta"] for d in r.datas() for c in d["choices"]]
        calls = [x for d in deltas for x in d.get("tool_calls", [])]
        if t.expect(calls, "calls in the stream", deltas):
            first = calls[0]
            t.expect(
                first["index"] == 0
                and first["id"]
                and first["type"] == "function"
                and first["function"]["name"] == "get_weather"
                and all("id" not in x["function"] for x in calls)
                and all("id" not in x for x in calls[1:] if x["index"] == 0),
                "the first delta names the call",
                calls,
            )
            text = "".join(x["function"].get("arguments", "") for x in calls if x["index"] == 0)
            t.expect(json.loads(text)["city"] in CITIES, "arguments in JSON", text)
            t.expect(r.datas()[-1]["choices"][0]["finish_reason"] == "tool_calls", "tool_calls", r)
    t.expect_error(
        t.server.chat(weather, tools=[one_tool()], tool_choice=other), 400, param="tool_choice"
    )
    t.expect_error(t.server.chat(weather, tool_choice="required"), 400, param="tool_choice")
    t.expect_error(t.server.chat(weather, tools=[{"type": "robot"}]), 400, param="tools")
    t.expect_error(t.server.chat(weather, functions=[]), 400, param="functions", words=["tools"])
    history = [
        *weather,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny and 23 degrees"},
    ]
    r = t.server.chat(history, tools=[one_tool()])
    t.expect(r.status == 200, "200 for a result", r)
    long = t.server.chat(
        [*history[:2], {**history[2], "content": "rain " * 30}], tools=[one_tool()]
    )
    n, more = (x.json()["usage"]["prompt_tokens"] for x in (r, long))
    t.expect(n + 15 < more, "the result is in the prompt", (n, more))


@case("47", "an answer by a schema")
def schema(t):
    n, held = 100, 0
    for seed in range(n):
        r = t.server.chat(
            "The weather, as JSON.",
            response_format=json_schema(SCHEMA),
            seed=seed,
            temperature=1,
            max_tokens=100,
        )
        try:
            held += r.status == 200 and fits_schema(text_of(r))
        except (ValueError, KeyError, TypeError):
            pass
    t.expect(held == n, f"{n} answers that fit the schema", f"{held}, the last {r}")
    r = t.server.chat(response_format=json_schema(SCHEMA), stream=True, max_tokens=100)
    t.expect(r.status == 200 and fits_schema(text_of(r)), "a streamed answer that fits", r)
    r = t.server.chat(response_format={"type": "text"})
    t.expect(text_of(r) == text_of(t.server.chat()), "text is the default", r)
    limited = {"type": "object", "properties": {}, "additionalProperties": False}
    r = t.server.chat(response_format={"type": "json_object", "schema": limited}, max_tokens=20)
    t.expect(r.status == 200 and json.loads(text_of(r)) == {}, "{}", r)
    r = t.server.chat(response_format={"type": "json_object"}, max_tokens=5)
    t.expect(r.status == 200 and text_of(r).lstrip().startswith("{"), "an object", r)
    t.expect_error(t.server.chat(response_format={"type": "yaml"}), 400, param="response_format")
    for wrong in (5, {"type": "json_schema"}, {"type": "json_object", "schema": 5}):
        t.expect_error(t.server.chat(response_format=wrong), 400, param="response_format")
    r = t.server.chat(grammar='root ::= "yes" | "no"', max_tokens=20)
    t.expect(r.status == 200 and text_of(r) in ("yes", "no"), "yes or no", r)
    t.expect_error(t.server.chat(grammar="root ::= (("), 400, param="grammar")
    r = t.server.chat(json_schema={"const": "42"}, max_tokens=20)
    t.expect(r.status == 200 and text_of(r) == '"42"', '"42"', r)


@case("48", "a schema that is not supported")
def wrong_schema(t):
    bad = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    r = t.server.chat(response_format=json_schema(bad, False))
    t.expect_error(r, 400, param="response_format", words=["not", "a"])
    message = str(r.error().get("message"))
    t.expect("properties" in message or "/a" in message or ".a" in message, "its path", message)


if __name__ == "__main__":
    run_cases()
