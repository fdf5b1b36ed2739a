#!/usr/bin/env python3
"""serve with the clients that people use: openai, anthropic, langchain-openai, litellm.

    serve_clients_test.py KNAPSACK [MODEL]

Skipped without the packages. KNAPSACK_CLIENTS names another Python that has them:

    python3 -m venv DIR
    DIR/bin/pip install openai anthropic langchain-openai litellm
    KNAPSACK_CLIENTS=DIR/bin/python serve_clients_test.py KNAPSACK"""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
PACKAGES = ("openai", "anthropic", "langchain_openai", "litellm")
missing = [p for p in PACKAGES if importlib.util.find_spec(p) is None]
if missing:
    other = os.environ.get("KNAPSACK_CLIENTS", "")
    if os.path.exists(other) and os.path.realpath(sys.prefix) != os.path.realpath(
        os.path.dirname(os.path.dirname(other))
    ):
        sys.exit(subprocess.run([other, *sys.argv]).returncode)
    print(f"skipped: the packages {', '.join(missing)} are missing")
    sys.exit(77)
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download

import openai  # noqa: E402
from serve_cases import case, run_cases  # noqa: E402
from serve_schema import CITIES, SCHEMA, fits_schema, json_schema, one_tool  # noqa: E402
from server import chat_body, text_of  # noqa: E402
from streams import Stream  # noqa: E402

HI = [{"role": "user", "content": "Hi"}]
GREEDY = {"model": "any", "messages": HI, "temperature": 0, "max_tokens": 8}


def url(server):
    return f"http://127.0.0.1:{server.port}/v1"


def client(t, server=None, **kw):
    server = server or t.server
    return openai.OpenAI(base_url=url(server), api_key=kw.pop("api_key", "k1"), **kw)


@case("openai models", "a list of models")
def models(t):
    t.expect([m.id for m in client(t).models.list()] == [t.alias], t.alias)
    t.expect(client(t).models.retrieve(t.alias).owned_by == "knapsack", "knapsack")


@case("openai chat", "chats, streamed and not")
def chats(t):
    c = client(t)
    r = c.chat.completions.create(**GREEDY)
    want = text_of(t.server.chat())
    t.expect(r.choices[0].message.content == want, want, r)
    t.expect(r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, "usage", r)
    chunks = list(
        c.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(x.choices[0].delta.content or "" for x in chunks if x.choices)
    t.expect(text == want and chunks[-1].usage.total_tokens == r.usage.total_tokens, want, text)
    raw = c.chat.completions.with_raw_response.create(**GREEDY, extra_body={"foo": 1})
    t.expect(
        raw.headers.get("x-knapsack-ignored") == "foo" and raw.request_id, "headers", raw.headers
    )
    r = c.completions.create(model="any", prompt="Once", max_tokens=4, temperature=0)
    t.expect(r.choices[0].text, "a completion", r)


@case("openai async", "8 tasks at once")
def tasks(t):
    async def all_of():
        async with openai.AsyncOpenAI(base_url=url(t.server), api_key="k1", max_retries=20) as c:
            return await asyncio.gather(*(c.chat.completions.create(**GREEDY) for _ in range(8)))

    texts = {r.choices[0].message.content for r in asyncio.run(all_of())}
    t.expect(texts == {text_of(t.server.chat())}, "one answer 8 times", texts)


@case("openai tools", "a tool that must be called")
def tools(t):
    c = client(t)
    ask = {**GREEDY, "max_tokens": 200, "tools": [one_tool()], "tool_choice": "required"}
    call = c.chat.completions.create(**ask).choices[0].message.tool_calls[0]
    t.expect(
        call.function.name == "get_weather"
        and json.loads(call.function.arguments)["city"] in CITIES,
        "a call",
        call,
    )
    with c.chat.completions.stream(**ask) as events:
        final = events.get_final_completion()
    calls = final.choices[0].message.tool_calls
    t.expect(calls and json.loads(calls[0].function.arguments)["city"] in CITIES, "a call", final)
    answered = [
        *HI,
        {"role": "assistant", "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    r = c.chat.completions.create(**{**ask, "messages": answered, "tool_choice": "none"})
    t.expect(not r.choices[0].message.tool_calls, "no call", r)


@case("openai schema", "an answer by a schema")
def schema(t):
    r = client(t).chat.completions.create(
        **{**GREEDY, "max_tokens": 100}, response_format=json_schema(SCHEMA)
    )
    t.expect(fits_schema(r.choices[0].message.content), "JSON that fits", r)
    import typing

    import pydantic

    class Answer(pydantic.BaseModel):
        city: typing.Literal["Paris", "Rome"]
        warm: bool

    r = client(t).chat.completions.parse(**{**GREEDY, "max_tokens": 100}, response_format=Answer)
    t.expect(isinstance(r.choices[0].message.parsed, Answer), "an Answer", r)


@case("57", "responses by openai's stream")
def responses(t):
    c = client(t)
    n = 60 if t.real else 8  # the small model never ends by itself
    fields = {"model": "any", "input": "Hi", "max_output_tokens": n, "temperature": 0}
    want = text_of(t.server.chat(max_tokens=n))
    with c.responses.stream(**fields) as stream:
        deltas = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response().output_text if t.real else deltas
    t.expect(final == deltas == want, want, (final, deltas))
    t.expect(c.responses.create(**fields).output_text == want, want)
    try:
        c.responses.create(**fields, previous_response_id="resp_x")
        t.expect(False, "400 for previous_response_id")
    except openai.BadRequestError as e:
        t.expect(e.param == "previous_response_id", "the field's name", e)


@case("openai errors", "exceptions")
def errors(t):
    def raised(kind, make):
        try:
            make()
        except kind as e:
            return e
        except openai.OpenAIError as e:
            t.expect(False, kind.__name__, repr(e))
        else:
            t.expect(False, kind.__name__, "no exception")
        return None

    c = client(t)
    e = raised(openai.BadRequestError, lambda: c.chat.completions.create(**GREEDY, top_logprobs=3))
    t.expect(e and e.param == "top_logprobs" and e.request_id, "param", e)
    wrong = client(t, api_key="wrong")
    raised(openai.AuthenticationError, lambda: wrong.chat.completions.create(**GREEDY))
    raised(openai.NotFoundError, lambda: c.models.retrieve("nope"))
    with t.start(*t.endless, "--queue-wait", 1, conversations=1, queue=1) as s:
        x = Stream(s, chat_body(max_tokens=1 << 20, logit_bias=t.no_end(s)), stop_after=2)
        x.wait_events(2)
        patient = client(t, s, max_retries=1)
        begin = time.monotonic()
        raised(openai.RateLimitError, lambda: patient.chat.completions.create(**GREEDY))
        t.expect(time.monotonic() - begin > 2, "a second try after Retry-After")
        x.leave()
        s.wait_idle()
        stream = patient.chat.completions.create(
            **{**GREEDY, "max_tokens": 1 << 20}, logit_bias=t.no_end(s), stream=True
        )
        for _, chunk in zip(range(3), stream):
            t.expect(chunk.id, "a chunk")
        stream.close()
        t.expect(s.wait_idle(2) is not None, "idle after close()", s.memory()["seats"])


@case("anthropic", "messages by Anthropic's client")
def anthropic_client(t):
    import anthropic

    c = anthropic.Anthropic(base_url=f"http://127.0.0.1:{t.server.port}", api_key="k1")
    fields = {"model": "any", "max_tokens": 8, "messages": HI, "temperature": 0}
    want = text_of(t.server.chat())
    fields.pop("temperature")
    fields["extra_body"] = {"temperature": 0}
    t.expect(c.messages.create(**fields).content[0].text == want, want)
    with c.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    t.expect(text == want and final.usage.output_tokens > 0, want, (text, final))
    n = c.messages.count_tokens(model="any", messages=HI).input_tokens
    t.expect(n == t.server.count("Hi"), t.server.count("Hi"), n)
    try:
        anthropic.Anthropic(base_url=c.base_url, api_key="wrong").messages.create(**fields)
        t.expect(False, "AuthenticationError")
    except anthropic.AuthenticationError:
        pass


@case("langchain", "a call by LangChain")
def langchain(t):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        base_url=url(t.server), api_key="k1", model="any", temperature=0, max_tokens=8
    )
    want = text_of(t.server.chat())
    t.expect(model.invoke("Hi").content == want, want)
    t.expect("".join(x.content for x in model.stream("Hi")) == want, want)


@case("litellm", "a call by LiteLLM, and its error for long prompts")
def litellm_client(t):
    import litellm

    where = {"model": "openai/any", "api_key": "k1"}
    r = litellm.completion(
        **where, api_base=url(t.server), messages=HI, temperature=0, max_tokens=8
    )
    t.expect(r.choices[0].message.content == text_of(t.server.chat()), "the answer", r)
    with t.start("--kv", "exact", "-c", 256) as s:
        long = [{"role": "user", "content": t.filler(500)}]
        try:
            litellm.completion(**where, api_base=url(s), messages=long, num_retries=0)
            t.expect(False, "ContextWindowExceededError")
        except litellm.ContextWindowExceededError:
            pass


if __name__ == "__main__":
    run_cases()
