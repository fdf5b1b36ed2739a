"""Streams that are read in the background, as far as a test wants."""

import threading
import time

from server import chat_body

CHAT = "/v1/chat/completions"
EVER = 1 << 20  # tokens of an answer that does not end


class Stream(threading.Thread):
    """Sends a request and reads its answer. After `stop_after` events it waits for go_on()."""

    def __init__(self, server, body=None, path=CHAT, stop_after=None, headers=None, **kw):
        super().__init__(daemon=True)
        self.body = {"stream": True, **(body or chat_body())}
        self.server, self.path, self.stop_after = server, path, stop_after
        self.headers, self.options = headers, kw
        self.events, self.response, self.error, self.connection = [], None, None, None
        self.resume, self.begun, self.at = threading.Event(), threading.Event(), 0.0
        self.start()

    def run(self):
        try:
            self.connection = self.server.connect(**self.options)
            self.connection.send(self.server.bytes("POST", self.path, self.body, self.headers))
            self.begun.set()
            r = self.connection.head()
            if r.headers.get("content-type", "").startswith("text/event-stream"):
                self.response = r
                for event in self.connection.events(r):
                    self.events.append(event)
                    if len(self.events) == self.stop_after:
                        self.resume.wait(120)
            else:
                r.body = b"".join(self.connection.pieces(r))
                self.response = r
        except Exception as e:  # the test looks at it
            self.error = e
        self.at = time.monotonic()
        self.begun.set()

    def wait_events(self, n=1, seconds=30):
        """Whether so many events came."""
        end = time.monotonic() + seconds
        while len(self.events) < n and time.monotonic() < end and self.is_alive():
            time.sleep(0.001)
        return len(self.events) >= n

    def go_on(self):
        self.stop_after = None
        self.resume.set()

    def finish(self, seconds=120):
        """Reads to the end. Returns the response, None if there is none."""
        self.go_on()
        self.join(seconds)
        return self.response

    def done(self):
        """Whether the stream ended as it should."""
        return bool(self.events) and self.events[-1].data == "[DONE]" and self.error is None

    def leave(self, reset=False):
        """Closes the connection in the middle."""
        self.begun.wait(10)
        if reset:
            self.connection.reset()
        else:
            import socket

            try:  # a thread inside recv keeps the connection open
                self.connection.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self.connection.close()
        self.go_on()


def endless(t, server, content, **fields):
    """The body of a chat whose answer does not end."""
    return chat_body(content, max_tokens=EVER, logit_bias=t.no_end(server), **fields)


def turn(messages, answer, text):
    """The messages of the next turn, with the answer as it was received."""
    return [*messages, {"role": "assistant", "content": answer}, user(text)]


def user(text):
    return {"role": "user", "content": text}


def cached_of(r):
    return r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def came_from(r):
    return r.json()["knapsack"]["from"]


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False
