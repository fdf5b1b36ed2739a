#!/usr/bin/env python3
"""serve from outside: health, keys, origins, paths and the page."""

import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from http_client import request_bytes  # noqa: E402
from serve_cases import case, run_cases  # noqa: E402
from server import chat_body  # noqa: E402
from streams import CHAT  # noqa: E402


@case("1", "health without a key")
def health(t):
    for path in ("/health", "/v1/health"):
        r = t.server.request("GET", path, headers={"Authorization": "none"})
        t.expect(r.status == 200 and r.json() == {"status": "ok"}, '200 {"status":"ok"}', (path, r))
    t.expect(t.server.get("/livez").status == 200, "200 of /livez")


@case("2", "health while the weights load", real=True)
def loading(t):
    with t.start(ready=False) as s:
        s.wait_listening()
        r = s.get("/health")
        if t.expect_error(r, 503, "unavailable_error", reason="loading"):
            t.expect(int(r.headers.get("retry-after", 0)) >= 1, "Retry-After", r.pairs)
            t.expect(0 <= r.json()["progress"] < 1, "progress", r)
        s.wait_ready()
        t.expect(s.chat().status == 200, "an answer after loading")


@case("3", "models need the key")
def models(t):
    r = t.server.get("/v1/models")
    t.expect(r.status == 200 and r.json()["object"] == "list", "200 and a list", r)
    model = r.json()["data"][0]
    t.expect(
        model["id"] == t.alias
        and model["object"] == "model"
        and isinstance(model["created"], int)
        and model["owned_by"] == "knapsack",
        f"the model {t.alias}",
        model,
    )
    meta = model.get("meta", {})
    t.expect(
        {"n_vocab", "n_ctx_train", "n_ctx", "n_embd", "n_params", "size"} <= set(meta), "meta", meta
    )
    t.expect(t.server.get("/models").json() == r.json(), "the same without /v1")
    t.expect(t.server.get(f"/v1/models/{t.alias}").json() == model, "the model by its name")
    t.expect_error(t.server.get("/v1/models/nope"), 404, "not_found_error")
    r = t.server.request("GET", "/v1/models", headers={"Authorization": "none"})
    t.expect_error(r, 401, "authentication_error")
    with t.start("--alias", "other", "--strict-model") as s:
        t.expect(s.get("/v1/models").json()["data"][0]["id"] == "other", "--alias is the id")
        r = s.chat(model="unknown")
        t.expect_error(r, 404, "not_found_error", reason="model_not_found")
        t.expect(s.chat(model="other").status == 200, "200 for the alias")


@case("4", "keys")
def keys(t):
    def ask(headers):
        with t.server.connect() as c:
            c.send(request_bytes("POST", CHAT, chat_body(), headers))
            return c.response()

    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer k2"}, 401),
        ({"Authorization": "Bearer k1"}, 200),
        ({"Authorization": "bearer k1"}, 200),
        ({"X-Api-Key": "k1"}, 200),
        ({"X-Api-Key": "k"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer k1k1"}, 401),
    ):
        r = ask(headers)
        t.expect(r.status == status, f"{status} for {headers}", r)
        if status == 401:
            t.expect_error(r, 401, "authentication_error", reason="invalid_api_key")
    t.expect("k1" not in t.server.err, "no key in the log", t.server.err)
    t.expect('"k1"' not in t.server.get("/props").body.decode(), "no key in /props")
    path = os.path.join(t.folder, "keys")
    with open(path, "w") as f:
        f.write("first\nsecond\n")
    with t.start("--api-key-file", path, keys=(), env={"KNAPSACK_API_KEY": "third"}) as s:
        for key, status in (("first", 200), ("second", 200), ("third", 200), ("fourth", 401)):
            s.key = key
            t.expect(s.chat().status == status, f"{status} for the key {key}")


@case("two keys", "conversations of different keys stay apart")
def two_keys(t):
    ask = t.filler(300, "Secret.")
    with t.start(keys=("k1", "k2"), conversations=3) as s:
        s.chat(ask)
        s.key = "k2"
        r = s.chat(ask)
        cached = r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        t.expect(cached == 0, "no cached tokens of another key", r.json()["usage"])
        again = s.chat(ask).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        t.expect(again > 0, "cached tokens of the same key", again)


@case("40", "paths and methods")
def paths(t):
    t.expect_error(t.server.get("/nope"), 404, "not_found_error")
    r = t.server.get(CHAT)
    t.expect(
        r.status == 404 or (r.status == 405 and "POST" in r.headers.get("allow", "")),
        "405 with Allow: POST",
        (r, r.pairs),
    )
    r = t.server.request("HEAD", "/health")
    t.expect(r.status == 200 and not r.body, "200 without a body for HEAD", r)
    r = t.server.post("/props", {})
    t.expect(r.status in (404, 405, 501), "no POST /props", r)
    t.expect_error(t.server.post("/v1/embeddings", {"input": "a"}), 501, "not_supported_error")
    for path in ("/v1/../v1/models", "//v1/models", "/v1/models%00", "/v1/models%2f.."):
        r = t.server.get(path)
        t.expect(r.status in (400, 403, 404), f"404 for {path}", r)


@case("41", "origins")
def origins(t):
    def preflight(server, origin, method="OPTIONS"):
        return server.request(
            method,
            CHAT if method == "OPTIONS" else "/health",
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, content-type",
                "Authorization": "none",
            },
        )

    for origin in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:3000"):
        r = preflight(t.server, origin)
        t.expect(
            r.status in (200, 204) and r.headers.get("access-control-allow-origin") == origin,
            f"{origin} allowed",
            r.pairs,
        )
        allowed = r.headers.get("access-control-allow-headers", "").lower()
        t.expect("authorization" in allowed and "content-type" in allowed, "headers", allowed)
        t.expect("POST" in r.headers.get("access-control-allow-methods", ""), "methods", r.pairs)
    for origin in ("http://evil.example", "http://localhost.evil.example", "http://notlocalhost"):
        r = preflight(t.server, origin)
        t.expect(
            r.status in (200, 204) and "access-control-allow-origin" not in r.headers,
            f"{origin} not allowed",
            (r, r.pairs),
        )
        r = preflight(t.server, origin, "GET")
        t.expect("access-control-allow-origin" not in r.headers, f"{origin} not allowed", r.pairs)
    with t.start("--cors-origin", "http://evil.example") as s:
        r = preflight(s, "http://evil.example", "GET")
        t.expect(
            r.headers.get("access-control-allow-origin") == "http://evil.example",
            "an origin named by --cors-origin",
            r.pairs,
        )


@case("42", "the host of another site")
def hosts(t):
    for host, status in (
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("LOCALHOST:1", 200),
    ):
        r = t.server.get("/v1/models", host=host)
        t.expect(r.status == status, f"{status} for Host: {host}", r)
    t.expect_error(
        t.server.get("/v1/models", host="evil.example"),
        403,
        "permission_error",
        reason="origin_not_allowed",
    )


@case("ids", "ids and fingerprint")
def ids(t):
    a, b = t.server.chat(), t.server.chat(stream=True)
    for r in (a, b, t.server.get("/nope"), t.server.get("/health")):
        t.expect(r.headers.get("x-request-id"), "x-request-id", r.pairs)
    seen = {r.headers["x-request-id"] for r in (a, b)}
    t.expect(len(seen) == 2, "different request ids", seen)
    j = a.json()
    t.expect(re.fullmatch(r"chatcmpl-[0-9A-Za-z]{24}", j["id"]), "the form of the id", j["id"])
    t.expect(j["system_fingerprint"].startswith("b"), "system_fingerprint", j["system_fingerprint"])
    t.expect(abs(j["created"] - time.time()) < 60, "created in seconds", j["created"])


@case("62", "the page")
def page(t):
    r = t.server.request("GET", "/", headers={"Authorization": "none", "Accept": "text/html"})
    text = r.body.decode()
    t.expect(r.status == 200 and text.lower().startswith("<!doctype html>"), "the page", r)
    t.expect(
        r.headers.get("content-type", "").startswith("text/html")
        and "default-src 'none'" in r.headers.get("content-security-policy", "")
        and "unsafe-inline" not in r.headers.get("content-security-policy", "")
        and r.headers.get("x-content-type-options") == "nosniff",
        "a strict CSP",
        r.pairs,
    )
    urls = [
        u
        for u in re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", text)
        if re.match(r"(https?:)?//", u)
    ]
    t.expect(not urls, "no URL of another site that is loaded", urls)
    with t.start("--no-ui") as s:
        t.expect_error(s.get("/"), 404, "not_found_error")


@case("63", "the page never parses text as HTML")
def no_html(t):
    text = t.server.get("/").body.decode()
    t.expect("<script" in text, "the page", text)
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        t.expect(word not in text, f"a page without {word}", text.count(word))


if __name__ == "__main__":
    run_cases()
