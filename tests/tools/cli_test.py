#!/usr/bin/env python3
"""The command line on a tiny model: help, documentation, refusals, plans, environment, devices."""

import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check, check_refused, knapsack, run_tests, tiny_model  # noqa: E402

COMMANDS = "chat serve run score plan inspect tokenize render devices bench eval report".split()


def test_help():
    top = knapsack("--help")
    check(
        top.code == 0 and all(c.encode() in top.out for c in COMMANDS), "--help lists the commands"
    )
    version = knapsack("--version")
    check(
        version.code == 0
        and re.match(rb"knapsack \d+\.\d+\.\d+\nbuilt with .+\nbackends: .*cpu", version.out),
        f"--version: {version.out}",
    )
    for c in COMMANDS:
        r = knapsack(c, "--help")
        check(
            r.code == 0
            and r.out.startswith(b"knapsack " + c.encode())
            and b"--help" in r.out
            and not r.err,
            f"{c} --help",
        )
    check_refused(knapsack(), 1, *COMMANDS)
    check_refused(knapsack("evaluate\n"), 1, "evaluate", *COMMANDS)


PAGES = ["README.md", *sorted(glob.glob("docs/*.md"))]
FIRST_COLUMN = re.compile(r"^\| (`.*?) \|", re.M)  # of a Markdown table


def section(page, title):
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_pages(model):
    """Commands and options in README and docs/ are the ones in --help."""
    texts = {name: open(name, encoding="utf-8").read() for name in PAGES}
    top = re.findall(r"^  (\w+) ", knapsack("--help").out.decode(), re.M)
    check(
        top == COMMANDS and f"(`{' '.join(top)}`)" in texts["README.md"],
        f"the README lists the commands {top}",
    )
    options = {
        c: {
            o
            for names in re.findall(r"^  (-.*?)(?:  |$)", knapsack(c, "--help").out.decode(), re.M)
            for o in re.findall(r"(?:^|[ ,])(--?[\w-]+)", names)
        }
        for c in top
    }
    lines = [
        (name, line.split("build/knapsack ", 1)[1].split(" #")[0].split())
        for name, text in texts.items()
        for line in text.splitlines()
        if re.match(r"[^|`]*\bbuild/knapsack \w+ -", line)
    ]
    for name, (command, *words) in lines:
        words = words[: words.index("--versus") + 1] if "--versus" in words else words
        check(
            all(w in options[command] for w in words if re.match(r"--?[a-z]", w)),
            f"{name}: {command} {words}; there are {sorted(options[command])}",
        )
    known = set.union(*options.values()) | {"--help", "--version"}
    check(
        len(lines) >= 20 and all(len(o) > 2 for o in options.values()),
        f"{len(lines)} command lines, options {options}",
    )
    for name, text in texts.items():
        for word in re.findall(r"`(-[^`\n]+)`", re.sub(r"(?ms)^```.*?^```", "", text)):
            check(
                word.split()[0] in known
                or word.startswith(("-DKS_", "--static", "--missing", "--fit", "-tc=")),
                f"{name}: `{word}` is no option",
            )


def test_recipes(model):
    """The tables of docs/recipes.md have the names, codecs and options of the recipe parser."""
    page = open("docs/recipes.md", encoding="utf-8").read()
    names = [
        n
        for row in FIRST_COLUMN.findall(section(page, "Names"))
        for n in re.findall(r"`(\w+)`", row)
    ]
    taken = re.search(r"possible: ([\w ]+)", knapsack("plan", "-m", model, "--kv", "unheard").err)[
        1
    ].split()
    check(
        sorted(names) == sorted(taken),
        f"names: the page has {sorted(names)}, the program {sorted(taken)}",
    )
    for name in names:
        r = knapsack("plan", "-m", model, "--kv", name)
        check(r.code == 0, f"recipe {name}: {r.err}")
    codecs = [
        c
        for row in FIRST_COLUMN.findall(section(page, "Codecs"))
        for c in re.findall(r"`(\w+)`", row)
    ]
    taken = re.search(
        r"possible: ([\w ]+)", knapsack("plan", "-m", model, "--kv", "mix,k=unheard").err
    )[1].split()
    check(
        sorted(codecs) == sorted(taken),
        f"codecs: the page has {sorted(codecs)}, the program {sorted(taken)}",
    )
    keys = {
        k
        for row in FIRST_COLUMN.findall(section(page, "Options"))
        for k in re.findall(r"`(\w+)=", row)
    }
    taken = set(
        re.findall(
            r"(\w+)=",
            knapsack("plan", "-m", model, "--kv", "mix,unheard=1").err.split("possible:")[1],
        )
    ) - {"unheard"}
    check(
        keys == taken,
        f"options: the page lacks {sorted(taken - keys)}, the program {sorted(keys - taken)}",
    )
    for recipe in (
        "exact,slots=64",
        "exact,victims=merge",
        "subgen,victims=merge",
        "subgen,split=ada",
        "keydiff,positions=offset",
        "exact,positions=compact",
        "subgen,positions=compact",
        "mix,k=turbo4,positions=compact",
        "scissorhands,select=infllm",
        "mix,read=64",
        "mix,rope=yarn",
        "mix,slots=4",
    ):
        check_refused(knapsack("plan", "-m", model, "--kv", recipe), 3, "possible")
    for name in ("hardvote", "topk"):
        spelled = ("plan", "-m", model, "--kv", f"mix,select={name}", "--device")
        check(knapsack(*spelled, "reference").code == 0, f"{name} on the reference")
        check_refused(knapsack(*spelled, "cpu"), 3, f"select={name}", "select=tokenselect")
    for gone in ("mix,positions=grouped", "mix,group=4", "mix,near=64"):
        check_refused(knapsack("plan", "-m", model, "--kv", gone), 3, "positions=compact")


def test_hostile_record(folder):
    """report answers any bytes in a record with a page or with one sentence."""
    row = (
        '{"key":"k","model":"m","suite":"niah","length":64,"question":"later","recipe":"exact",'
        '"share":100,"accuracy":1,"cases":2,"cache_bytes":9,"exact_bytes":9,"seed":1'
    )
    more = {
        "nothing": "}",
        "deep": ',"x":' + "[" * 60 + "]" * 60 + "}",
        "a text in place of a number": ',"survival":"1","depth_sums":{"a":1},'
        '"depth_counts":[1,"2",null]}',
        "a member in a text": ',"hash":"\\"suite\\":\\"text\\""}',
        "huge numbers": ',"survival":1e308,"evicted":-1e308,"log_loss":18446744073709551616}',
    }
    path = os.path.join(folder, "record.jsonl")
    for name, end in more.items():
        with open(path, "w") as f:
            f.write(row + end + "\n")
        r = knapsack("report", "-f", path)
        check(
            r.code == 0 and b"</html>" in r.out and b"niah" in r.out,
            f"report of {name}: exit {r.code} {r.err}",
        )
    bad = [
        row,
        "[" * 200000,
        row + ',"x":' + "[" * 200000 + "]" * 200000 + "}",
        row + ',"x":1e999}',
        "[]",
        "null",
        '"key suite"',
        '{"key":1,"suite":2}',
        '{"key":"k","suite":["s"]}',
        "\0",
        "\xff",
        row + "} {}",
    ]
    for text in bad:
        with open(path, "w", encoding="latin-1") as f:
            f.write(row + "}\n" + text + "\n")
        check_refused(knapsack("report", "-f", path), 1, "line 2")


def test_usage(model):
    check_refused(
        knapsack("run", "-p", "x"), 1, "-m", "KNAPSACK_MODEL", "tools/fetch_model.sh smollm2"
    )
    check_refused(knapsack("run", "-m", model), 1, "-p", "-f", "--ids")
    check_refused(knapsack("score", "-m", model), 1, "-f")
    check_refused(knapsack("plan", "-m", model, "--nonsense"), 1, "--nonsense")
    check_refused(knapsack("plan", "-m", model, "\x1b[2Jx"), 1, "\\x1b[2Jx")
    check_refused(knapsack("plan", "-m"), 1, "-m", "FILE")
    check_refused(knapsack("plan", "-m", model, "--json=1"), 1, "--json", "no value")
    check_refused(knapsack("run", "-m", model, "-p", "a", "-f", "b"), 1, "-f", "twice")
    check_refused(knapsack("run", "-m", model, "-p", "", "-n", 1), 1, "no tokens")
    for size in (
        "",
        "0",
        "-1",
        "x",
        "1Q",
        "1.5GiB",
        "12 KiB",
        " 5",
        "99999999999999999999",
        "18446744073709551615KiB",
        "0x10",
        "9999999999GiB",
    ):
        check_refused(knapsack("plan", "-m", model, "--memory", size), 1, "--memory", "KiB")
    for option, value in (
        ("-c", "-1"),
        ("-c", "1e3"),
        ("-t", "0"),
        ("-n", "-2"),
        ("-n", "12x"),
        ("-n", ""),
        ("--temp", "-1"),
        ("--temp", "nan"),
        ("--temp", "inf"),
        ("--top-p", "2"),
        ("--logit-bias", "5"),
        ("--logit-bias", "x+1"),
        ("--logit-bias", "5+"),
        ("--logit-bias", "99999999999+1"),
        ("--repeat-penalty", "0"),
        ("-s", "-2"),
        ("--stop", ""),
    ):
        check_refused(knapsack("run", "-m", model, "-p", "a", option, value), 1, option)
    check_refused(
        knapsack("run", "-m", model, "-p", "a", "--logit-bias", "100000+1"),
        1,
        "100000",
        "vocabulary",
    )
    check_refused(knapsack("run", "-m", model, "-p", "a", "--session", ""), 1, "--session")
    check_refused(knapsack("bench", "-m", model, "-p", "1,x"), 1, "-p")
    check_refused(knapsack("bench", "-m", model, "-p", "0", "-n", "0"), 1, "-p", "-n")


def test_files(folder, model):
    check_refused(
        knapsack("run", "-m", os.path.join(folder, "none.gguf"), "-p", "x"), 2, "none.gguf"
    )
    bad = os.path.join(folder, "bad.gguf")
    with open(bad, "wb") as f:
        f.write(b"not a model")
    for command, *rest in (
        ["plan"],
        ["inspect"],
        ["tokenize"],
        ["chat"],
        ["bench"],
        ["run", "-p", "x"],
        ["score", "-f", bad],
    ):
        check_refused(knapsack(command, "-m", bad, *rest), 2, "bad.gguf")
    check_refused(
        knapsack("run", "-m", model, "-f", os.path.join(folder, "none.txt")), 6, "none.txt"
    )
    check_refused(knapsack("run", "-m", model, "-f", folder), 6)
    ids = os.path.join(folder, "bad.ids")
    for text in ("1 2 x", "1 -2", "4294967296", "1,2"):
        with open(ids, "w") as f:
            f.write(text)
        check_refused(knapsack("score", "-m", model, "-f", ids, "--ids"), 1, "bad.ids")
    with open(ids, "w") as f:
        f.write("1 2 264")
    check_refused(knapsack("run", "-m", model, "--ids", ids), 1, "264", "vocabulary")
    check_refused(knapsack("plan", "-m", model, "--kv", "h3o"), 3, "h3o")
    check_refused(knapsack("plan", "-m", model, "--device", "abacus"), 5, "abacus")
    full = knapsack("plan", "-m", model)
    check(
        full.code == 0 and b"It fits." in full.out and b"weights" in full.out, "plan prints a table"
    )
    if os.path.exists("/dev/full"):
        code = os.system(f"'{sys.argv[1]}' devices >/dev/full 2>'{folder}/err'")
        check(
            os.waitstatus_to_exitcode(code) == 6
            and open(f"{folder}/err").read().startswith("knapsack: standard output"),
            "a full disk is exit 6",
        )


def test_plan(model):
    r = knapsack("plan", "-m", model, "--json", "--memory", "64MiB")
    p = r.json()
    need = {
        "fits",
        "budget_bytes",
        "total_bytes",
        "smallest_bytes",
        "context",
        "slots",
        "bytes_per_token",
        "recipe",
        "device",
        "regions",
    }
    check(
        need <= set(p) and p["fits"] and p["budget_bytes"] == 64 << 20 and p["context"] == 256,
        f"plan --json: {p}",
    )
    check(
        sum(x["bytes"] for x in p["regions"]) == p["total_bytes"] and "k=f16" in p["recipe"],
        "regions add up",
    )
    for size in ("65536KiB", "64M", "65536K", str(64 << 20), "67108864B"):
        check(
            knapsack("plan", "-m", model, "--json", "--memory", size).json()["budget_bytes"]
            == 64 << 20,
            f"--memory {size}",
        )
    small = p["smallest_bytes"]
    check(knapsack("plan", "-m", model, "--memory", small).code == 0, "smallest_bytes works")
    refused = knapsack("plan", "-m", model, "--json", "--memory", small - 1)
    check_refused(refused, 4, str(small))
    check(
        refused.json()["fits"] is False and refused.json()["smallest_bytes"] == small,
        "a refusal has its JSON",
    )
    table = knapsack("plan", "-m", model, "--memory", small - 1)
    check_refused(table, 4)
    check(b"It does not fit" in table.out and b"weights" in table.out, "a refusal has its table")
    check_refused(knapsack("run", "-m", model, "-p", "x", "--memory", small - 1), 4, str(small))
    check(
        knapsack("plan", "-m", model, "--json", "-ctk", "f32", "--kv", "exact").json()["recipe"]
        == "exact,k=f32,v=f16",
        "-ctk",
    )
    for typed, meant in (
        ("q8_0", "q8"),
        ("q4_0", "q4"),
        ("f16", "f16"),
        ("turbo4", "turbo4"),
        ("polar", "polar"),
    ):
        recipe = knapsack(
            "plan", "-m", model, "--json", "--kv", "mix", "-ctk", typed, "--cache-type-v", typed
        ).json()["recipe"]
        check(f",k={meant},v={meant}," in recipe, f"-ctk {typed}: {recipe}")
    check(
        ",k=q8,v=turbo3,"
        in knapsack("plan", "-m", model, "--json", "--kv", "turbo3", "-ctk", "q8_0").json()[
            "recipe"
        ],
        "-ctk beside a short name",
    )
    check(
        "k=q8,v=f16" in knapsack("plan", "-m", model, "--json", "-ctk", "q8").json()["recipe"],
        "-ctk without --kv",
    )
    check_refused(knapsack("plan", "-m", model, "-ctk", "q5_1"), 3, "q5_1", "turbo4")
    check_refused(knapsack("plan", "-m", model, "-ctv", ""), 1, "-ctv")
    check_refused(
        knapsack("plan", "-m", model, "-ctk", "q8_0", "--kv", "mix,k=q4"), 1, "-ctk", "--kv"
    )
    check_refused(
        knapsack("plan", "-m", model, "-ctv", "q8_0", "--kv", "mix,slots=64,v=f16"),
        1,
        "-ctv",
        "--kv",
    )
    check(
        knapsack("plan", "-m", model, "-ctv", "q8_0", "--kv", "mix,k=q4").code == 0,
        "-ctv beside k=",
    )


def test_plan_sessions(model):
    def plan(*args):
        return knapsack("plan", "-m", model, "--json", "--memory", "64MiB", *args).json()

    one, two, four = (plan("-c", "128", "--sessions", n) for n in (1, 2, 4))
    check([p["sessions"] for p in (one, two, four)] == [1, 2, 4], "the sessions of a plan")
    check(
        plan("-c", "128")["sessions"] == 1 and "most_sessions" not in plan("-c", "128"),
        "a plan is for one session",
    )
    own, more = four["bytes_per_session"], four["total_bytes"] - two["total_bytes"]
    check(
        own == two["bytes_per_session"] and 2 * own <= more <= 2 * own + (64 << 10),
        f"two sessions more cost {more}, {own} each",
    )
    # most_sessions is the last number that fits.
    most = four["most_sessions"]
    small = two["total_bytes"] + 5 * own
    most = plan("-c", "128", "--sessions", 2, "--kv", "exact", "--memory", small)["most_sessions"]
    codes = [
        knapsack(
            *["plan", "-m", model, "-c", 128, "--sessions", n, "--kv", "exact", "--memory", small]
        ).code
        for n in (most, most + 1)
    ]
    check(2 < most <= 7 and codes == [0, 4], f"{most} sessions fit: {codes}")
    filled = plan("-c", "128", "--sessions", "max", "--kv", "exact", "--memory", small)
    check(filled["fits"] and filled["sessions"] == most, f"--sessions max: {filled['sessions']}")
    # The memory of a server is not for sessions.
    served = plan("--serve", "--conversations", "max", "--kv", "turbo4,slots=64")
    check(
        served["fits"] and served["most_sessions"] == served["sessions"] < 256,
        f"--conversations max: {served['sessions']}, there is room for {served['most_sessions']}",
    )
    bounded = plan("--sessions", 3, "--kv", "turbo4,slots=64")
    check(
        bounded["slots"] == 64 and bounded["most_sessions"] > 3,
        f"sessions with the same slots: {bounded}",
    )
    table = knapsack("plan", "-m", model, "--memory", "64MiB", "-c", 128, "--sessions", 4).out
    check(
        re.search(rb"\n  sessions +4, each has .* of its own, one more costs .*\n", table)
        and b"the budget has room for " in table,
        f"the sessions in words: {table}",
    )
    for wrong in ("0", "257", "many"):
        check_refused(knapsack("plan", "-m", model, "--sessions", wrong), 1, "--sessions")
    check_refused(
        knapsack("plan", "-m", model, "--memory", one["total_bytes"], "--sessions", 200), 4, "200"
    )


def test_environment(model):
    env = {"KNAPSACK_MODEL": model, "KNAPSACK_MEMORY": "32MiB", "KNAPSACK_DEVICE": "reference"}
    p = knapsack("plan", "--json", env=env)
    check(
        p.json()["budget_bytes"] == 32 << 20 and p.json()["device"] == "reference" and not p.err,
        f"the environment is the default: {p.err}",
    )
    check(
        knapsack("plan", "--json", "--memory", "33MiB", env=env).json()["budget_bytes"] == 33 << 20,
        "a flag counts more",
    )
    check_refused(
        knapsack("plan", env={**env, "KNAPSACK_MEMORY": "lots"}), 1, "KNAPSACK_MEMORY", "lots"
    )
    said = knapsack("run", "-m", model, "-p", "hello", "-n", 1)
    check(
        said.err.startswith("device: ") and said.err.count("\n") == 1,
        f"the default device is said: {said.err!r}",
    )


def test_devices():
    devices = knapsack("devices", "--json").json()
    check(
        {"cpu", "reference"} <= {d["id"] for d in devices}
        and all({"id", "name", "backend", "memory_bytes", "unified"} <= set(d) for d in devices),
        "devices",
    )


def test_backends(model):
    """The backends that are built in, and device names without a driver."""
    states = (
        re.search(rb"^backends: (.*)$", knapsack("--version").out, re.M)[1].decode().split(", ")
    )
    check(
        [s.split(" ")[0] for s in states] == ["cuda", "cpu", "vulkan", "reference"]
        and "generic)" in states[1],
        f"--version: {states}",
    )
    for backend, state in (("cuda", states[0]), ("vulkan", states[2])):
        listed, said = (
            backend in {d["backend"] for d in knapsack("devices", "--json").json()},
            knapsack("devices").out.decode(),
        )
        check(
            listed == (state == backend) != (f"  {backend}: " in said),
            f"devices and --version agree: {state}: {said}",
        )
        if "not built in" in state:
            check_refused(
                knapsack("plan", "-m", model, "--device", backend),
                5,
                f"'{backend}'",
                "is not built in",
                "there are:",
                "cpu",
            )
        elif not listed:
            check_refused(
                knapsack("plan", "-m", model, "--device", f"{backend}:0"),
                5,
                f"{backend} is built in, no",
                "there are:",
                "cpu",
            )
    check_refused(
        knapsack("plan", "-m", model, "--device", "abacus"), 5, "'abacus'", "no such device", "cpu"
    )
    check_refused(knapsack("plan", "-m", model, "--device", "vulkan:99"), 5, "'vulkan:99'")
    if "not built in" in states[2]:
        return
    none = {"VK_ICD_FILENAMES": "/dev/null", "VK_DRIVER_FILES": "/dev/null"}
    check(
        b"vulkan (built in; no driver found)" in knapsack("--version", env=none).out,
        "--version without a Vulkan driver",
    )
    check(
        b"vulkan: built in, no driver found" in knapsack("devices", env=none).out,
        "devices without a Vulkan driver",
    )
    for device in ("vulkan", "vulkan:0"):
        check_refused(
            knapsack("plan", "-m", model, "--device", device, env=none),
            5,
            f"device '{device}'",
            "vulkan is built in, no driver found",
            "cpu, reference",
        )


def test(folder):
    model = tiny_model(folder)
    test_help()
    test_pages(model)
    test_recipes(model)
    test_hostile_record(folder)
    test_usage(model)
    test_files(folder, model)
    test_plan(model)
    test_plan_sessions(model)
    test_environment(model)
    test_devices()
    test_backends(model)


run_tests(test)
