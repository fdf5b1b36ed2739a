"""A scripted server with the HTTP surface of `knapsack serve`, for tests of its page."""

import base64
import hashlib
import http.server
import json
import re
import threading
import time

MIB = 1 << 20
LADDER = [
    {"rung": 1, "recipe": "k=f16,v=f16", "tokens": 680, "slots": 680},
    {"rung": 2, "recipe": "k=q8,v=q8", "tokens": 1184, "slots": 1184},
    {"rung": 3, "recipe": "k=turbo4,v=turbo3", "tokens": 2112, "slots": 2112},
    {"rung": 4, "recipe": "retain=mix,k=turbo4,v=turbo3", "tokens": 2416, "slots": 2416},
]
REGIONS = [
    ("weights", 96576768, "shared"),
    ("activations", 4636672, "shared"),
    ("tokenizer", 2258752, "shared"),
    ("scratch", 1105856, "shared"),
    ("staging", 1048320, "shared"),
    ("logits", 196608, "shared"),
    ("cache", 139460608, "conversation"),
    ("cache tables", 15245312, "conversation"),
    ("requests", 4 * MIB, "server"),
    ("connections", 2691072, "server"),
]


def policy(page):
    """The Content-Security-Policy of the page, computed without CMake."""
    hashes = {}
    for name in ("style", "script"):
        (found,) = re.findall(rf"<{name}>(.*?)</{name}>".encode(), page, re.S)
        hashes[name] = base64.b64encode(hashlib.sha256(found).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; "
        f"script-src 'sha256-{hashes['script']}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def seat(number, state="free", conversation=None, tokens=0, **more):
    known = {"rung": 1, "bytes": 19338240, "evicted": 0, "forgotten": 0.0, "idle_s": 0.0}
    return {
        "id": number,
        "state": state,
        "conversation": conversation,
        "text_tokens": tokens,
        "slots": 2416,
        "parked": False,
        **known,
        **more,
    }


class MockServer(http.server.ThreadingHTTPServer):
    """`answers` maps a user's last message to a list of pieces: text, a pause in seconds, or an
    event. Other messages get `default`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, page, path="/"):
        super().__init__(("127.0.0.1", 0), Handler)
        self.page, self.path = page, path
        self.key = None  # the API key that is required
        self.busy = 0  # so many requests get a 429
        self.retry_after = 1
        self.progress = None  # of loading
        self.down = False  # connections are closed without an answer
        self.answers, self.default = {}, ["Hello", " **world**", "."]
        self.held = lambda messages: [1.0] * (len(messages) + 1)
        self.knapsack = {"from": "seat", "climbs": 0}
        self.timings = {}
        self.requests = []  # (path, headers, body)
        self.seats = [seat(0), seat(1)]
        self.planned = self.peak = sum(size for _, size, _ in REGIONS)
        self.parked = {"n": 0, "bytes": 0, "quota": 1 << 30}
        self.queue = {"n": 0, "wait_s": 0.0}
        self.gone = 0  # streams that the client left
        self.cut = None  # cuts the bytes of a stream into chunks
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}{self.path}"

    def handle_error(self, request, client_address):
        pass  # a client that leaves is no fault

    def chats(self):
        return [r for r in self.requests if r[0] == "v1/chat/completions"]

    def memory(self):
        return {
            "budget": 256 * MIB,
            "planned": self.planned,
            "peak": self.peak,
            "regions": [dict(zip(("name", "bytes", "scope"), region)) for region in REGIONS],
            "ladder": LADDER,
            "seats": self.seats,
            "parked": self.parked,
            "queue": self.queue,
        }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json", **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, kind, message, more=None, **headers):
        error = {"code": status, "message": message, "type": kind, "param": None}
        self.answer(status, {"error": error, **(more or {})}, **headers)

    def route(self, body=None):
        """The path below the server's own, or None after an answer."""
        s = self.server
        if s.down:
            self.close_connection = True
            return None
        if not self.path.startswith(s.path):
            return self.refuse(404, "not_found_error", f"there is no {self.path}")
        path = self.path[len(s.path) :]
        if path == "":
            headers = {"Content_Security_Policy": policy(s.page)}
            return self.answer(200, s.page, "text/html; charset=utf-8", **headers)
        s.requests.append((path, dict(self.headers), body))
        if s.progress is not None:
            more = {"progress": s.progress}
            return self.refuse(503, "unavailable_error", "loading", more, Retry_After=1)
        if path == "health":
            return self.answer(200, {"status": "ok"})
        if s.key and self.headers.get("Authorization") != f"Bearer {s.key}":
            return self.refuse(401, "authentication_error", "the API key is wrong or absent")
        return path

    def do_GET(self):
        s = self.server
        path = self.route()
        if path == "v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "smollm2-135m-instruct"}]})
        elif path == "props":
            params = {"temperature": 0.8, "top_p": 0.95, "max_tokens": -1, "seed": 4294967295}
            settings = {"n_ctx": 2416, "params": params}
            self.answer(200, {"total_slots": 2, "default_generation_settings": settings})
        elif path == "v1/knapsack/memory":
            self.answer(200, s.memory())
        elif path is not None:
            self.refuse(404, "not_found_error", f"there is no {self.path}")

    def do_POST(self):
        s = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.route(body) is None:
            return
        if s.busy > 0:
            s.busy -= 1
            self.refuse(429, "rate_limit_error", "the queue is full", Retry_After=s.retry_after)
            return
        self.stream(body, s.answers.get(body["messages"][-1]["content"], s.default))

    def stream(self, body, pieces):
        s = self.server
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Conversation-Id", self.headers.get("X-Conversation-Id", ""))
        self.end_headers()
        try:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
            words = 0
            for piece in pieces:
                if isinstance(piece, (int, float)):
                    time.sleep(piece)
                elif isinstance(piece, dict):
                    self.event(piece)
                    if "error" in piece:
                        return self.chunk(b"")
                else:
                    words += 1
                    self.event({"choices": [{"index": 0, "delta": {"content": piece}}]})
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            timings = {"cache_n": 24, "prompt_n": 7, "prompt_ms": 60.0, "predicted_n": words}
            timings = {**timings, "predicted_per_second": 48.25, **s.timings}
            usage = {"prompt_tokens": 31, "completion_tokens": timings["predicted_n"]}
            knapsack = {**s.knapsack, "held": s.held(body["messages"])}
            last = {"choices": [], "usage": usage, "timings": timings, "knapsack": knapsack}
            self.event(last)
            self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")
        except OSError:
            s.gone += 1

    def event(self, event):
        data = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        for part in self.server.cut(data) if self.server.cut else [data]:
            self.chunk(part)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
