#!/usr/bin/env python3
"""The page of `knapsack serve` in a headless Chromium, against a scripted server."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from browser import Browser, find_chromium  # noqa: E402
from mock_server import LADDER, MockServer, policy, seat  # noqa: E402
from program import BINARY, check, knapsack, run_tests, tiny_model  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "tools", "serve", "page.html")
with open(PAGE, "rb") as page_file:
    HTML = page_file.read()
IDLE = "!runs.size && !document.querySelector('article[aria-busy=true]')"
LAST = "document.querySelector('.message:last-child .body')"
MARKDOWN = """# Title
One *two* **three** `four<b>` and <img src=x onerror=alert(1)> text.

- a
- b
  1. nested
  2. more

| x | y |
|---|--:|
| 1 | 2 |

> quoted

```html
<script>alert(2)</script>
```

[good](https://example.org/a) [bad](javascript:alert(3)) ![no](https://example.org/b.png)
"""


def press(browser, text, where="document"):
    """Clicks the last button with this label."""
    browser.click(
        f"[...{where}.querySelectorAll('button')].filter(b => b.textContent === {text!r}).at(-1)"
    )


def say(browser, text, done=IDLE):
    browser.js("$('draft').focus()")
    browser.type(text)
    browser.key("Enter")
    return browser.until(f"{done}")


def roles(request):
    return [(m["role"], m["content"]) for m in request[2]["messages"]]


def test_source():
    text = HTML.decode()
    for word in "innerHTML outerHTML insertAdjacentHTML document.write eval( @import".split():
        check(word not in text, f"page.html contains {word}")
    links = [part.split("'")[0] for part in text.split("http://")[1:]]
    check(set(links) == {"www.w3.org/2000/svg"}, f"addresses in page.html: {links}")


def test_embedding(folder):
    """CMake and Python give the same page and policy."""
    out, script = os.path.join(folder, "page.cpp"), os.path.join(folder, "embed.cmake")
    with open(script, "w", encoding="utf-8") as f:
        f.write(f'include("{ROOT}/cmake/page.cmake")\nks_embed_page("{PAGE}" "{out}")\n')
    cmake = shutil.which("cmake")
    if not cmake:
        return
    r = subprocess.run([cmake, "-P", script], capture_output=True, text=True)
    check(r.returncode == 0, f"cmake -P: {r.stderr}")
    with open(out, "rb") as f:
        made = f.read()
    check(b'R"page(' + HTML + b')page"' in made, "the embedded page is page.html")
    check(f'"{policy(HTML)}"'.encode() in made, f"policy: {made[-500:]!r}")


def test_splitter(browser):
    """Events are the same, however the bytes are cut."""
    stream = (
        ": comment\n\ndata: one\n\ndata:{\"a\":\"ä€😀\"}\r\n\r\n: \r\nevent: x\r\ndata: two\r\n"
        "data: lines\r\n\r\nid: 7\n\ndata: cr\r\rdata: [DONE]\n\n"
    )
    expected = ["one", '{"a":"ä€😀"}', "two\nlines", "cr", "[DONE]"]
    found = browser.js(
        f"""(text => {{
          const bytes = new TextEncoder().encode(text), results = [];
          const read = (...parts) => {{
            const splitter = new EventSplitter();
            return JSON.stringify(parts.flatMap(part => splitter.push(part)));
          }};
          results.push(read(...[...bytes].map(byte => Uint8Array.of(byte))));
          for (let i = 0; i <= bytes.length; i++)
            results.push(read(bytes.subarray(0, i), bytes.subarray(i)));
          return [...new Set(results)];
        }})({json.dumps(stream)})"""
    )
    check(
        len(found) == 1 and json.loads(found[0]) == expected, f"events of a cut stream: {found}"
    )
    big = browser.js(
        "(s => { const out = [], n = new TextEncoder().encode("
        "`data: ${'x'.repeat(1 << 20)}\\n\\n`);"
        "for (let i = 0; i < n.length; i += 1000) out.push(...s.push(n.subarray(i, i + 1000)));"
        "return out.map(data => data.length); })(new EventSplitter())"
    )
    check(big == [1 << 20], f"an event of 1 MiB: {big}")


def test_stream_of_blocks(browser):
    """Markdown that arrives in pieces looks like the whole text, and old blocks stay."""
    same, kept, slow = browser.js(
        f"""(text => {{
          const whole = document.createElement('div'), grown = document.createElement('div');
          new MarkdownView(whole).show(text);
          const view = new MarkdownView(grown);
          let first, kept = true;
          for (let i = 1; i <= text.length; i++) {{
            view.show(text.slice(0, i));
            if (i > 100) kept &&= (first ??= grown.firstChild) === grown.firstChild;
          }}
          const begin = performance.now();
          for (const mark of ['**a ', '[', '`', '_a ', '*a ', '|', '> ', '- ', 'http://'])
            markdown(mark.repeat(50000 / mark.length));
          return [whole.isEqualNode(grown), kept, performance.now() - begin];
        }})({json.dumps(MARKDOWN)})"""
    )
    check(same and kept, f"a growing text: same {same}, first block kept {kept}")
    check(slow < 4000, f"50,000 characters of unclosed marks take {slow:.0f} ms")


def test_chat(server, browser):
    server.cut = lambda data: [data[i : i + 1] for i in range(len(data))]
    server.answers["Hi & <b>"] = ["Grüße 😀", ", ", "**bo", "ld**"]
    check(say(browser, "Hi & <b>"), "the answer ends")
    server.cut = None
    check(
        browser.js(f"{LAST}.textContent") == "Grüße 😀, bold"
        and browser.js(f"{LAST}.querySelector('strong').textContent") == "bold",
        "the answer is shown",
    )
    foot = browser.js("document.querySelector('.message:last-child .foot').textContent")
    check("48.3 tokens/s" in foot and "4 tokens" in foot, f"notes: {foot}")
    path, headers, body = server.chats()[-1]
    check(
        roles(server.chats()[-1]) == [("user", "Hi & <b>")]
        and body["stream"]
        and body["return_progress"]
        and "temperature" not in body
        and len(headers.get("X-Conversation-Id", "")) == 16,
        f"request: {headers} {body}",
    )
    server.answers["Markdown"] = [MARKDOWN[i : i + 7] for i in range(0, len(MARKDOWN), 7)]
    say(browser, "Markdown")
    found = browser.js(
        f"(n => ['h3', 'em', 'strong', 'p code', 'ul > li', 'ol > li', 'th', 'td', 'blockquote',"
        f"'pre', 'a', 'img', 'script'].map(s => n.querySelectorAll(s).length))({LAST})"
    )
    check(found == [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 0, 0], f"elements: {found}")
    text = browser.js(f"{LAST}.textContent")
    shown = ["<img src=x onerror=alert(1)>", "<script>alert(2)</script>", "four<b>", "bad](java"]
    for part in shown:
        check(part in text, f"{part} is shown as text in {text!r}")
    link = browser.js(f"(a => [a.href, a.rel, a.target])({LAST}.querySelector('a'))")
    check(link == ["https://example.org/a", "noopener noreferrer", "_blank"], f"link: {link}")
    browser.send("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    press(browser, "Copy", f"{LAST}.querySelector('figcaption')")
    check(browser.until(f"{LAST}.querySelector('figcaption button').textContent === 'Copied'")
          and browser.js("navigator.clipboard.readText()") == "<script>alert(2)</script>",
          "the code is copied")
    say(browser, "<img src=x onerror=alert(4)>")
    check(not browser.js("document.querySelector('#log img')"), "a user's markup is text")


def test_regenerate_and_edit(server, browser):
    before = browser.js("current.messages.length")
    server.default = ["second"]
    press(browser, "Regenerate")
    check(browser.until(IDLE + " && current.messages.at(-1).content === 'second'"), "regenerates")
    check(
        browser.js("current.messages.length") == before
        and roles(server.chats()[-1])[-1][1].startswith("<img"),
        "the answer is replaced, and was not sent",
    )
    press(browser, "Edit", "document.querySelectorAll('.message')[0]")
    browser.js("document.activeElement.value = ''")
    browser.type("edited")
    browser.key("Enter")
    check(
        browser.until(IDLE + " && current.messages.length === 2")
        and roles(server.chats()[-1]) == [("user", "edited")],
        f"an edited message begins anew: {roles(server.chats()[-1])}",
    )


def test_stop(server, browser):
    server.answers["long"] = ["begin", *[0.02, " x"] * 1000]
    gone = server.gone
    say(browser, "long", f"{LAST}?.textContent.includes('x x')")
    check(browser.js("$('send').hidden && !$('stop').hidden"), "stop replaces send")
    browser.click("$('stop')")
    check(browser.until(IDLE), "stops")
    say(browser, "long", f"{LAST}?.textContent.includes('x x')")
    browser.key("Escape")
    check(browser.until(IDLE), "Esc stops")
    end = time.monotonic() + 5
    while server.gone < gone + 2 and time.monotonic() < end:
        time.sleep(0.05)
    check(server.gone == gone + 2, f"{server.gone - gone} of 2 streams were cancelled")
    check(
        browser.js("current.messages.at(-1).stopped && current.messages.at(-1).content[0] === 'b'"),
        "what was written stays",
    )


def test_waiting(server, browser):
    server.busy, server.retry_after = 1, 3
    n = len(server.chats())
    begin = time.monotonic()
    status = "document.querySelector('.status span')?.textContent"
    check(say(browser, "busy", f"{status}?.includes('Trying again in')"), "429 counts down")
    text = browser.js(status)
    check("All places are taken. Trying again in 3 s" in text, f"countdown: {text!r}")
    check(browser.until(IDLE) and len(server.chats()) == n + 2, "the request is repeated")
    check(2.5 < time.monotonic() - begin < 6, f"after {time.monotonic() - begin:.1f} s")
    server.busy, server.retry_after = 1, 60
    say(browser, "again", f"{status}?.includes('Trying again')")
    stays = "(b => new Promise(done => setTimeout(() => done(b.isConnected), 600)))"
    check(
        browser.js(f"{stays}(document.querySelector('.status button'))"),
        "the button stays while it counts",
    )
    press(browser, "Try now")
    check(browser.until(IDLE, 3), "the countdown can be cut short")

    progress = {"prompt_progress": {"total": 2043, "cache": 43, "processed": 640, "time_ms": 9}}
    server.answers["read"] = [progress, 1.5, "x"]
    say(browser, "read", "document.querySelector('.status progress').value")
    value = browser.js(f"[{status}, document.querySelector('.status progress').value]")
    check(
        value[0] == "Reading 640 of 2,043 tokens" and abs(value[1] - 640 / 2043) < 1e-6,
        f"progress: {value}",
    )
    browser.until(IDLE)
    server.answers["fails"] = ["half", {"error": {"message": "the device is lost"}}]
    say(browser, "fails")
    problem = browser.js("document.querySelector('.message:last-child .problem').textContent")
    check(problem == "the device is lost", f"an error in a stream: {problem!r}")
    thought = {"choices": [{"delta": {"reasoning_content": "let me see"}}]}
    server.answers["think"] = [thought, "Yes."]
    say(browser, "think")
    found = browser.js("(d => [d.open, d.lastChild.textContent])(document.querySelector("
                       "'.message:last-child .thought'))")
    check(found == [False, "let me see"], f"reasoning is folded: {found}")
    say(browser, "after")
    check(
        all("let me see" not in str(m) for m in roles(server.chats()[-1])), "reasoning is not sent"
    )


def test_conversations(server, browser):
    first = browser.js("current.title")
    browser.click("$('new')")
    server.answers["slow"] = ["a", 0.8, "b"]
    say(browser, "slow", f"{LAST}?.textContent === 'a'")
    press(browser, first, "$('list')")
    check(browser.js("current.title") == first and browser.js("runs.size") == 1, "changes chats")
    check(say(browser, "meanwhile", "runs.size < 2") and browser.until(IDLE), "two at a time")
    press(browser, "slow", "$('list')")
    check(browser.js(f"{LAST}.textContent") == "ab", "a stream goes on in the background")
    browser.open(server.url)
    titles = browser.js("[...$('list').querySelectorAll('li > :first-child')].map("
                        "n => n.textContent)")
    check(set(titles) == {"slow", first}, f"after a reload: {titles}")
    check(browser.js("current.title") == "slow", "a reload stays in the conversation")
    exported = browser.js("JSON.stringify({knapsack: 1, conversations: chats})")
    press(browser, "slow", "$('list')")
    browser.click("document.querySelector('[aria-current] .remove')")
    check(browser.js("chats.length") == 1, "deletes")
    press(browser, "Undo")
    check(browser.js("chats.length") == 2, "undoes")
    browser.click("document.querySelector('[aria-current] .remove')")
    browser.js(f"importChats(new File([{json.dumps(exported)}], 'a.json'))")
    check(
        browser.js("chats.length") == 2 and "1 were here" in browser.js("$('toast').textContent"),
        "imports what is new",
    )
    for bad in ("{", "{}", '{"conversations":[{"id":"x"}]}', '{"conversations":[null]}'):
        browser.js(f"importChats(new File([{json.dumps(bad)}], 'bad.json'))")
        check("bad.json is not" in browser.js("$('toast').textContent"), f"refuses {bad}")
    check(browser.js("chats.length") == 2, "bad files change nothing")


def test_settings(server, browser):
    browser.click("$('new')")
    browser.click("document.querySelector('#settings summary')")
    for name, value in (("system", "Be brief."), ("temperature", "0.5"), ("seed", "7")):
        browser.js(f"document.querySelector('[name={name}]').focus()")
        browser.type(value)
    server.held = lambda messages: [0.9, 0.2, 1.0]
    say(browser, "with settings")
    body = server.chats()[-1][2]
    check(
        roles(server.chats()[-1])[0] == ("system", "Be brief.")
        and (body["temperature"], body["seed"]) == (0.5, 7)
        and "top_p" not in body,
        f"settings: {body}",
    )
    heights = browser.js("[...document.querySelectorAll('.held i')].map(i => i.style.height)")
    faded = browser.js("[...document.querySelectorAll('.faded')].map(n => n.textContent)")
    check(heights == ["90%", "20%", "100%"], f"held: {heights}")
    check(len(faded) == 1 and "mostly forgotten, 20% held" in faded[0], f"faded: {faded}")
    placeholder = browser.js("document.querySelector('[name=temperature]').placeholder")
    check(placeholder == "0.8", f"the server's temperature: {placeholder}")


def test_memory(server, browser):
    ids = browser.js("[current.id, chats[1].id]")
    server.seats = [
        seat(0, "active", ids[0], 1911, rung=3, forgotten=0.25),
        seat(1, "idle", ids[1], 40, idle_s=250, parked=True),
        seat(2),
    ]
    server.parked = {"n": 12, "bytes": 221249536, "quota": 1 << 30}
    browser.js("refreshMemory()")
    text = browser.js("$('memory').innerText")
    total = f"{server.planned:,}"
    for part in ("256.0 MiB", "92.1 MiB", "147.5 MiB", "6.6 MiB", f"{total}\n=\nPeak",
                 f"Peak bytes\n{total}",
                 "Places for 3 conversations", "1,911 tokens in 2,416 slots · 25% forgotten",
                 "idle 4 min, on disk too", "12 parked on disk, 211.0 MiB of 1.0 GiB",
                 "1,911 tokens: rung 3 of 4", *(f"{rung['tokens']:,}" for rung in LADDER)):
        check(part in text, f"{part!r} is in the memory panel: {text!r}")
    here = browser.js("[...document.querySelectorAll('.rung.here')].map(n => n.innerText)")
    check(len(here) == 1 and "turbo4" in here[0], f"this chat's rung: {here}")
    mine = browser.js("document.querySelector('.seat.mine').innerText")
    check("with settings" in mine, f"this chat's seat: {mine!r}")
    server.peak += 4096
    browser.js("refreshMemory()")
    text = browser.js("$('memory').innerText")
    check("≠" in text and "4,096 bytes above the plan" in text, f"peak above the plan: {text!r}")
    server.peak -= 4096


def test_widths(server, browser):
    server.answers["wide"] = ["```\n" + "x" * 400 + "\n```\n\n" + "y" * 400 + "\n\n|a" * 40]
    browser.view(1280, 800)
    say(browser, "wide")
    for width in (360, 768, 1280):
        for dark in (False, True):
            browser.view(width, 760, dark)
            for open_ in ("true", "false"):
                browser.js(f"toggleMemory({open_})")
                wide = browser.js(
                    "[document.documentElement, document.body, $('log'), $('memory')].map("
                    "n => n.scrollWidth - n.clientWidth)"
                )
                check(wide == [0, 0, 0, 0], f"{width} px, memory {open_}: {wide} px too wide")
    browser.view(360, 760)
    browser.click("$('menu')")
    check(browser.js("$('chats').checkVisibility() && $('chats').offsetWidth < 330"), "the drawer")
    browser.key("Escape")
    check(browser.until("!$('chats').checkVisibility()"), "Esc closes the drawer")
    browser.view(1280, 800)


def test_scrolling(server, browser):
    server.answers["scroll"] = [f"line {i}\n\n" for i in range(60)] + [0.6] + ["more\n\n"] * 9
    say(browser, "scroll", f"{LAST}?.textContent.includes('line 59')")
    check(browser.until("atEnd()", 1), "the log follows its end")
    browser.js("$('log').scrollTop = 50")
    browser.until(IDLE)
    check(browser.js("$('log').scrollTop") == 50, "a reader further up is not moved")
    check(browser.js("!$('end').hidden"), "a button leads to the end")
    browser.click("$('end')")
    check(browser.until("atEnd() && $('end').hidden", 1), "the button works")


def test_key(server, browser):
    server.key = "s3cret"
    browser.js("sessionStorage.clear(), localStorage.clear()")
    browser.open(server.url)
    check(browser.until("!$('key').hidden"), "a 401 asks for the key")
    browser.js("$('secret').focus()")
    browser.type("wrong")
    browser.key("Enter")
    browser.until("$('key').hidden", 1)
    check(browser.until("!$('key').hidden"), "a wrong key asks again")
    waits = "document.querySelector('.status span')?.textContent === 'Waiting for the API key'"
    check(say(browser, "with a key", waits), "a message waits for the key")
    browser.js("$('secret').focus()")
    browser.type("s3cret")
    browser.key("Enter")
    check(browser.until(IDLE + " && $('key').hidden"), "the right key goes on with the message")
    check(
        server.chats()[-1][1].get("Authorization") == "Bearer s3cret"
        and browser.js("Object.values(localStorage).every(v => !v.includes('s3cret'))"),
        "the key is sent, and kept only for the session",
    )
    server.key = None


def test_health(server, browser):
    server.progress = 0.42
    browser.open(server.url)
    check(
        browser.until("$('health').textContent.includes('Loading model 42%')"),
        "loading is shown",
    )
    server.progress = None
    check(browser.until("$('health').hidden && $('model').textContent"), "loading ends")
    server.down = True
    browser.js("refreshMemory()")
    check(browser.until("$('health').textContent.includes('does not answer')"), "a silent server")
    server.down = False
    check(browser.until("$('health').hidden"), "it answers again")


def listen(folder):
    """Starts `knapsack serve`. Returns its process and its address."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    args = ["--memory", "64MiB", "--device", "cpu", "--conversations", "2", "--port", port]
    process = subprocess.Popen(
        [BINARY, "serve", "-m", tiny_model(folder), *args], stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if line.startswith("listening on "):
            return process, line.split()[-1] + "/"
    raise RuntimeError("knapsack serve ended before it listened")


def test_program(folder):
    """The page from the program, if it has a server."""
    if knapsack("serve", "--help").code != 0:
        print("not tested: this program has no `serve`")
        return
    process, url = listen(folder)
    try:
        with urllib.request.urlopen(url) as r:
            check(r.read() == HTML, "the program has this page")
            found = r.headers["Content-Security-Policy"]
            check(found == policy(HTML), f"policy: {found}")
        with Browser() as browser:
            browser.view(1280, 800)
            check(browser.open(url, "$('model').textContent"), "the program's page opens")
            check(say(browser, "hello"), "the model's answer ends")
            message = browser.js("current.messages.at(-1)")
            check(message.get("tokens") and not message.get("problem"), f"answer: {message}")
            check(browser.until("memory?.seats.some(isMine)"), "the chat has a seat")
            text = browser.js("$('memory').innerText")
            check("\n=\n" in text, f"planned and peak are equal: {text!r}")
            check(not browser.faults, f"the console: {browser.faults}")
    finally:
        process.terminate()
        check(process.wait(60) == 0, "the server ends with 0")
        process.stderr.close()


def test(folder):
    test_source()
    test_embedding(folder)
    server = MockServer(HTML, "/below/a/proxy/")
    with Browser() as browser:
        browser.view(1280, 800)
        check(browser.open(server.url, "$('model').textContent"), "the page opens")
        check(
            browser.until("document.querySelector('.empty h2')?.textContent.startsWith('smollm2')"),
            "the model is named",
        )
        test_splitter(browser)
        test_stream_of_blocks(browser)
        test_chat(server, browser)
        test_regenerate_and_edit(server, browser)
        test_stop(server, browser)
        test_waiting(server, browser)
        test_conversations(server, browser)
        test_settings(server, browser)
        test_memory(server, browser)
        test_widths(server, browser)
        test_scrolling(server, browser)
        test_key(server, browser)
        test_health(server, browser)
        check(not browser.faults, f"the console: {browser.faults}")
    test_program(folder)


if not find_chromium():
    print("skipped: Chromium is not installed, `apt-get install chromium` installs it")
    sys.exit(77)
run_tests(test)
