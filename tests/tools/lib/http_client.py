"""An HTTP/1.1 client that sends exact bytes, and keeps the time of every event that it reads."""

import json
import socket
import time

TIMEOUT = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Closed(Exception):
    """The peer closed the connection before an answer was complete."""


class Event:
    """An event of a stream: its lines, its time, and the JSON of its data."""

    def __init__(self, text, at):
        self.text, self.at = text, at
        self.name = self.data = None
        for line in text.split("\n"):
            field, _, value = line.partition(":")
            if field == "event":
                self.name = value.strip()
            elif field == "data":
                self.data = value[1:] if value.startswith(" ") else value
        self.comment = self.data is None and self.name is None

    def json(self):
        return json.loads(self.data)


class Response:
    def __init__(self):
        self.status, self.version, self.reason = 0, "", ""
        self.headers, self.pairs = {}, []  # names in lower case; all lines in order
        self.interim = []  # status of each 1xx answer
        self.body, self.chunks, self.events = b"", [], []
        self.ended = False  # the framing says that the body is complete
        self.begin = self.head_at = self.end = 0.0

    def json(self):
        return json.loads(self.body.decode())  # strict: invalid UTF-8 fails

    def error(self):
        """The error object of the body, or {}."""
        try:
            return self.json().get("error", {})
        except (ValueError, AttributeError):
            return {}

    def datas(self):
        """The JSON of all events with data, without [DONE]."""
        return [e.json() for e in self.events if e.data and e.data != "[DONE]"]

    def __repr__(self):
        return f"{self.status} {self.body[:300].decode(errors='replace')}"


class Connection:
    """One socket. address is (host, port), or the path of a Unix socket."""

    def __init__(self, address, timeout=TIMEOUT, receive_buffer=0):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def send(self, data, piece=0, pause=0.0):
        """Sends data whole, or in pieces of so many bytes."""
        for i in range(0, len(data), piece or max(len(data), 1)):
            self.socket.sendall(data[i : i + piece] if piece else data)
            if pause:
                time.sleep(pause)

    def fill(self):
        data = self.socket.recv(1 << 16)
        self.buffer += data
        return len(data) > 0

    def is_closed(self, seconds=2):
        """Whether the server closes the connection within so many seconds."""
        self.socket.settimeout(seconds)
        try:
            while True:
                if not self.socket.recv(1 << 16):
                    return True
        except TimeoutError:
            return False
        except OSError:
            return True

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.fill():
                raise Closed(f"in a line, after {self.buffer[:80]!r}")
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def exactly(self, n):
        while len(self.buffer) < n:
            if not self.fill():
                raise Closed(f"{len(self.buffer)} of {n} bytes")
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def head(self):
        """Reads up to the end of the head. Interim answers are passed over."""
        response = Response()
        response.begin = time.monotonic()
        while True:
            status = self.line().decode("latin-1")
            parts = status.split(" ", 2)
            if len(parts) < 2 or not parts[0].startswith("HTTP/1."):
                raise ValueError(f"expected a status line, found {status!r}")
            response.version, response.status = parts[0], int(parts[1])
            response.reason = parts[2] if len(parts) > 2 else ""
            pairs = []
            while line := self.line():
                name, colon, value = line.decode("latin-1").partition(":")
                if not colon or name != name.strip():
                    raise ValueError(f"expected a header line, found {line!r}")
                pairs.append((name, value.strip()))
            if response.status >= 200:
                break
            response.interim.append(response.status)
        response.pairs = pairs
        response.headers = {name.lower(): value for name, value in pairs}
        response.head_at = time.monotonic()
        return response

    def pieces(self, response, method="GET"):
        """Yields the body as it comes: chunks, or what one call of recv gives."""
        headers = response.headers
        if method == "HEAD" or response.status in (204, 304):
            pass
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int(self.line().split(b";")[0], 16)
                if size == 0:
                    while self.line():  # trailers
                        pass
                    break
                chunk = self.exactly(size)
                if self.exactly(2) != b"\r\n":
                    raise ValueError("a chunk does not end with CRLF")
                response.chunks.append(chunk)
                yield chunk
        elif "content-length" in headers:
            yield self.exactly(int(headers["content-length"]))
        else:
            while self.buffer or self.fill():
                data, self.buffer = self.buffer, b""
                yield data
        response.ended = True

    def events(self, response):
        """Yields the events of a stream as they come."""
        rest = b""
        for piece in self.pieces(response):
            response.body += piece
            rest += piece
            while b"\n\n" in rest:
                text, rest = rest.split(b"\n\n", 1)
                event = Event(text.decode(), time.monotonic())
                response.events.append(event)
                yield event
        response.end = time.monotonic()
        if rest:
            raise ValueError(f"the stream ends inside an event: {rest[:80]!r}")

    def response(self, method="GET"):
        """Reads a whole answer."""
        response = self.head()
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            for _ in self.events(response):
                pass
        else:
            response.body = b"".join(self.pieces(response, method))
        response.end = time.monotonic()
        return response


def request_bytes(method, path, body=None, headers=(), version="1.1", host="127.0.0.1"):
    """The bytes of a request. body is bytes, or an object that is sent as JSON."""
    lines = [f"{method} {path} HTTP/{version}"]
    headers = list(headers.items() if isinstance(headers, dict) else headers)
    if host is not None:
        lines.append(f"Host: {host}")
    if body is not None:
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.insert(0, ("Content-Type", "application/json"))
        headers.append(("Content-Length", len(body)))
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8") + (body or b"")
