"""Drives a headless Chromium through its DevTools protocol, on a pair of pipes."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}


def find_chromium():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. `faults` lists what its console calls errors, violations of the CSP included."""

    def __init__(self, seconds=20):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, page_end = os.pipe()
        self.read, self.seconds, self.pending, self.number = read, seconds, b"", 0
        browser_end, self.write = os.pipe()
        flags = "--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run"
        flags += " --disable-dev-shm-usage --disable-background-networking --mute-audio"
        flags += " --disable-component-update --force-color-profile=srgb --hide-scrollbars"
        # A mouse, which a headless browser lacks.
        flags += " --blink-settings=primaryHoverType=2,availableHoverTypes=2"
        flags += ",primaryPointerType=4,availablePointerTypes=4"
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{browser_end} 4>&{page_end}', "bash", find_chromium()]
            + [*flags.split(), f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(browser_end, page_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(browser_end)
        os.close(page_end)
        self.session, self.faults = None, []
        pages = self.send("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in pages if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def close(self):
        os.close(self.write)  # ends the browser
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, method, **params):
        self.number += 1
        call = {"id": self.number, "method": method, "params": params}
        if self.session:
            call["sessionId"] = self.session
        os.write(self.write, json.dumps(call).encode() + b"\0")
        while True:
            message = self.receive()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.note(message.get("method"), message.get("params", {}))

    def receive(self):
        end = time.monotonic() + self.seconds
        while b"\0" not in self.pending:
            if not select.select([self.read], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser was silent for {self.seconds} s")
            data = os.read(self.read, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self.pending += data
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append(details.get("exception", details).get("description", str(details)))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.faults.append(str(params["args"]))
        elif method == "Log.entryAdded":
            entry = params["entry"]
            # A request that fails on purpose is an entry of the network.
            if entry["level"] in ("error", "warning") and entry["source"] != "network":
                self.faults.append(entry["text"])

    def js(self, code):
        """The value of an expression, which may be a promise."""
        result = self.send(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{code}: {result['exceptionDetails']['exception']['description']}")
        return result["result"].get("value")

    def until(self, code, seconds=10):
        """Waits until an expression is true, and not an exception. Returns whether it became so."""
        end = time.monotonic() + seconds
        code = f"(() => {{ try {{ return Boolean({code}); }} catch {{ return false; }} }})()"
        while time.monotonic() < end:
            if self.js(code):
                return True
            time.sleep(0.02)
        return False

    def open(self, url, ready="document.readyState === 'complete'"):
        self.send("Page.navigate", url=url)
        return self.until(f"location.href.startsWith({json.dumps(url)}) && {ready}")

    def view(self, width, height, dark=False, scale=1):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def click(self, node):
        """Clicks the middle of the element that an expression gives, once it has come to rest."""
        x, y, seen = self.js(
            "(async () => { const frame = () => new Promise(requestAnimationFrame);"
            f" await frame(); await frame(); const n = {node};"
            " n.scrollIntoView({block: 'nearest'}); await frame();"
            " const r = n.getBoundingClientRect();"
            " const x = r.x + r.width / 2, y = r.y + r.height / 2;"
            " return [x, y, n.contains(document.elementFromPoint(x, y))]; })()"
        )
        if not seen:
            raise RuntimeError(f"a click at {x}, {y} does not meet {node}")
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def type(self, text):
        self.send("Input.insertText", text=text)

    def key(self, name, modifiers=0):
        code, text = KEYS[name]
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
                text=text if kind == "keyDown" else "",
            )

    def screenshot(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
