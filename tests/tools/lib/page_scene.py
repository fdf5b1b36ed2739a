"""A conversation in the mock server that shows most of the page, for its screenshots."""

from mock_server import seat

SORTING = """Keep a **heap** of the hundred largest values while you read:

| way | time | memory |
|:--|--:|--:|
| sort all | n log n | n |
| heap | n log k | k |

```python
import heapq

with open("times.log") as log:
    slowest = heapq.nlargest(100, map(float, log))
```
"""
QUESTIONS = [
    (
        "How do I find the slowest hundred of 40 million response times? It is Python on a small "
        "board, a few megabytes at most.",
        SORTING,
    ),
    ("Thanks! It found the culprit within a minute.", "Good to hear. Ask when the next one comes."),
    (
        "And the median, also in one pass?",
        "Exactly, no: the median needs all values, or two passes. Closely, yes:\n\n"
        "1. Count the times in **buckets** whose limits grow by 1%: about 1,400 of them.\n"
        "2. Walk through the buckets until half of the values are behind you.\n"
        "3. The limit of that bucket is the median, at most 1% too high.\n\n"
        "That takes 11 KB, whatever the length of the log.",
    ),
]
OTHERS = [
    "Name the parts of a mechanical clock",
    "Translate this menu for my guests",
    "Why does bread dough rise slowly …",
    "A birthday poem for a sailor",
    "Explain binomial coefficients to a child",
]


def ask(browser, text):
    browser.js("document.getElementById('draft').focus()")
    browser.type(text)
    browser.key("Enter")
    browser.until("!runs.size && !document.querySelector('[aria-busy=true]')")


def play(server, browser):
    """Talks until the screen is worth a picture."""
    browser.js(
        f"for (const title of {OTHERS[::-1]!r}) store.save({{...newChat(), title, messages: ["
        "{role: 'user', content: title}]}); chats = store.all(); showChats(); ''"
    )
    shares = [0.83, 0.92, 0.27, 0.41, 1, 1]
    server.held = lambda messages: shares[: len(messages) + 1]
    server.timings = {"predicted_per_second": 61.4, "predicted_n": 96}
    for question, answer in QUESTIONS:
        server.answers[question] = [answer]
        ask(browser, question)
    server.knapsack = {"from": "seat", "climbs": 1}
    ids = browser.js("chats.map(chat => chat.id)")
    server.seats = [
        seat(0, "idle", ids[0], 2891, rung=4, evicted=5, forgotten=0.17, idle_s=1.4),
        seat(1, "active", "5c1e07aa93d2b64f", 903, rung=2),
        seat(2, "idle", ids[2], 1611, rung=3, idle_s=252, parked=True),
        seat(3, "idle", ids[3], 5310, rung=4, evicted=9, forgotten=0.58, idle_s=1870, parked=True),
        seat(4),
    ]
    server.parked = {"n": 12, "bytes": 221249536, "quota": 1 << 30}
    browser.js("refreshMemory()")
