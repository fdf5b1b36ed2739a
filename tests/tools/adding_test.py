#!/usr/bin/env python3
"""Follows the table of docs/adding.md in a copy of the tree.

Adds one thing per row, in the files that the row names and in no others. The program built from
the copy must run all of them.
"""

import os
import random
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import program  # noqa: E402
from program import BINARY, check, knapsack, run_tests, tiny_model  # noqa: E402
import tiny_model as model_writer  # noqa: E402

FORMAT = """// t2_0: 256 values per block, w = d * (q - 1) with q in 0..2. 66 bytes a row.
//   word j       j = 0..15: value k's two bits are in byte 32 * (k / 128) + k % 32, from bit
//                2 * (k % 128 / 32) on
//   half         d
#if !defined(GLSL) || defined(FORMAT_t2_0)
STRUCT_BEGIN(format_t2_0)
CONST uint ggml_type = 99u;
CONST uint block = 256u;
CONST uint half_words = 4u;
CONST uint half_byte = 64u;
CONST uint words = 16u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint byte_at = 32u * (k / 128u) + k % 32u;
    uint q = (TILE_WORD(byte_at / 4u, r) >> (8u * (byte_at & 3u) + 2u * (k % 128u / 32u))) & 3u;
    return TILE_HALF(r) * (float(q) - 1.f);
}
STRUCT_END
#endif
"""
UNPACK = """
template <class S>
struct Unpack<S, format_t2_0> {
    using F = format_t2_0;
    using Group = OffsetGroup<S, 3>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        w.m = S::zero() - w.d;
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            fields_of_32<S, F>(at, g / 4 * 8, int(2 * (g & 3)), 0x03030303, w.q);
            body(w, g, 0);
        }
    }
};

"""
POLICY = """#include "runtime/kv/policies/policies.h"

namespace ks
{

// The first tokens stay.
void score_oldest(const Candidates& c, const RetainOptions&, float*, float* score)
{
    for (uint32_t i = 0; i < c.n; i++) score[i] = -float(c.positions[i]);
}

} // namespace ks
"""
COMMAND = """#include "tools/options.h"

#include <cstdio>

namespace ks
{

struct GreetOptions {
    bool evening = false;

    void add_to(OptionTable& table) { table.add_flag("--evening", "say good evening", &evening); }
    Status finish() const { return {}; }
};

static Status greet(const GreetOptions& options)
{
    puts(options.evening ? "good evening" : "good morning");
    return {};
}

extern const Command command_greet = {"greet", "say good morning", "[options]", "",
                                      start_command<GreetOptions, greet>};

} // namespace ks
"""
AT_MOST = """        table.add({"--at-most", "N", "as -n", [this](const Value& v) {
                       return has_n_predict = true, v.number(-1, INT32_MAX, &n_predict);
                   }});
"""
TEMPLATE = """    {"robots", R"({% for m in messages %}<|im_start|>human
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>robot{{ '\\n' }})"},
"""
# Row of docs/adding.md -> new files with their text, and insertions into other files in front of or
# behind an existing text.
ADDED = {
    "a weight format": [
        ("kernels/common/formats/t2_0.h", FORMAT),
        (
            "kernels/common/formats.h",
            "behind",
            '#include "kernels/common/formats/iq4_xs.h"\n',
            '#include "kernels/common/formats/t2_0.h"\n',
        ),
        ("kernels/common/formats.h", "behind", "X(iq4_xs)", " X(t2_0)"),
        (
            "kernels/cpu/unpack.h",
            "in front of",
            "\ntemplate <class S>\nstruct Unpack<S, format_q4_0> {",
            UNPACK,
        ),
        (
            "runtime/model/gguf_values.cpp",
            "behind",
            '{42, "Q2_0", 64, 18},',
            ' {99, "T2_0", 256, 66},',
        ),
    ],
    "a model family": [
        (
            "runtime/model/families.cpp",
            "in front of",
            '    Row("qwen2", ',
            '    Row("robot", rope_neox),\n',
        )
    ],
    "a codec of the cache": [
        (
            "kernels/common/codecs/q8again.h",
            lambda: read("kernels/common/codecs/q8.h").replace("q8", "q8again"),
        ),
        (
            "kernels/common/codecs.h",
            "behind",
            '#include "kernels/common/codecs/q8.h"\n',
            '#include "kernels/common/codecs/q8again.h"\n',
        ),
        ("kernels/common/codecs.h", "behind", "#define CODECS(X)", " X(q8again, 12u)"),
    ],
    "a retain policy": [
        ("runtime/kv/policies/oldest.cpp", POLICY),
        ("runtime/kv/policies/policies.h", "behind", "Score score_position,", " score_oldest,"),
        (
            "runtime/kv/policies/retain.cpp",
            "in front of",
            '    Policy("sink", ',
            '    Policy("oldest", score_oldest).same_for_all_heads(),\n',
        ),
    ],
    "a selector": [
        (
            "runtime/kv/select/select.cpp",
            "in front of",
            '    SelectorRow("quest", ',
            '    SelectorRow("pairs", select_soft).in_units_of(2).reads_first(16).for_prompts(),\n',
        )
    ],
    "a named chat template": [
        ("runtime/chat/named_templates.cpp", "in front of", '    {"chatml", ', TEMPLATE)
    ],
    "an option": [
        (
            "tools/commands/chat.cpp",
            "in front of",
            '        table.add_flag("--no-stats"',
            AT_MOST,
        )
    ],
    "a command": [
        ("tools/commands/greet.cpp", COMMAND),
        ("tools/commands/list.h", "in front of", "    X(report)", "    X(greet) \\\n"),
    ],
}


def read(path):
    with open(path) as f:
        return f.read()


def add_all(tree):
    """Adds everything to the tree. A row must name every file that it writes or edits."""
    rows = {
        row.split("|")[1].strip(): row
        for row in read("docs/adding.md").split("\n## ")[0].splitlines()
        if row.startswith("| a")
    }
    check(
        set(rows) == set(ADDED),
        f"what can be added: {sorted(rows)}, what is added here: {sorted(ADDED)}",
    )
    for name, steps in ADDED.items():
        for path, *step in steps:
            named = [
                re.escape(p).replace("NAME", r"\w+")
                for p in re.findall(r"`([\w/.]+)`", rows.get(name, ""))
            ]
            folder, file = os.path.split(path)
            check(
                any(
                    re.fullmatch(p, path) or re.fullmatch(p, file) or p == re.escape(folder + "/")
                    for p in named
                ),
                f"{name}: its row in docs/adding.md does not name {path}",
            )
            target = os.path.join(tree, path)
            if len(step) == 1:
                text = step[0] if isinstance(step[0], str) else step[0]()
            else:
                where, mark, addition = step
                text = read(target)
                check(text.count(mark) >= 1, f"{path} has no {mark!r}")
                text = text.replace(
                    mark, addition + mark if where == "in front of" else mark + addition, 1
                )
            with open(target, "w") as f:
                f.write(text)


def build(folder):
    tree, out = os.path.join(folder, "tree"), os.path.join(folder, "build")
    shutil.copytree(
        ".",
        tree,
        ignore=shutil.ignore_patterns(
            ".git", "build*", "models", "tests", "corpus", "docs", "__pycache__"
        ),
    )
    add_all(tree)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = [
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
        "-DKS_VULKAN=OFF",
        "-DKS_CUDA=OFF",
        "-DKS_TESTS=OFF",
        "-DKS_SHARED=OFF",
        "-DKS_INSTALL=OFF",
    ]
    for command in (
        ["cmake", "-S", tree, "-B", out, *generator, *options],
        ["cmake", "--build", out, "--target", "knapsack", "--parallel", "2"],
    ):
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode:
            print(f"FAILED: {' '.join(command)}: {r.stdout[-3000:]}{r.stderr[-3000:]}")
            sys.exit(1)
    program.BINARY = os.path.join(out, "knapsack")


def ternary_model(folder):
    """Writes two models with the same values: one in T2_0, one in F32."""
    rng = random.Random(3)

    def blocks(n):
        return [[rng.randrange(3) for _ in range(256)] for _ in range(n // 256)]

    def packed(block):
        out = bytearray(64)
        for k, q in enumerate(block):
            out[32 * (k // 128) + k % 32] |= q << (2 * (k % 128 // 32))
        return bytes(out) + struct.pack("<e", 0.125)

    values = {}

    def as_ternary(name, n):
        values[name] = blocks(n)
        return 99, b"".join(map(packed, values[name]))

    def as_floats(name, n):
        return 0, struct.pack(f"<{n}f", *(0.125 * (q - 1) for block in values[name] for q in block))

    return [
        tiny_model(folder, name=f"ternary{i}.gguf", dim=256, weights=weights)
        for i, weights in enumerate((as_ternary, as_floats))
    ]


def ids(model, recipe, *more, n=40):
    made = knapsack(
        "run",
        "-m",
        model,
        "-p",
        "hello world",
        "-n",
        n,
        "--temp",
        0,
        "--ignore-eos",
        "--kv",
        recipe,
        "--json",
        *more,
    )
    check(made.code == 0, f"run --kv {recipe} {more}: exit {made.code}: {made.err}")
    return made.json()["ids"] if made.code == 0 else made.err


def test(folder):
    build(folder)
    model = tiny_model(folder)
    ternary, floats = ternary_model(folder)
    with open(f"{folder}/text", "w") as f:
        f.write("hello world, hello again and again")
    for device, most in (("reference", 1e-5), ("cpu", 0.1)):
        same = [
            knapsack("score", "-m", m, "-f", f"{folder}/text", "--json", "--device", device).json()[
                "logprob"
            ][1:]
            for m in (ternary, floats)
        ]
        check(
            len(same[0]) > 10
            and max(abs(a - b) for a, b in zip(*same)) < most * max(map(abs, same[0])),
            f"{device}: the weight format has the values of F32: {same}",
        )
    check(b"T2_0" in knapsack("inspect", "-m", ternary).out, "inspect names the format")
    robot, qwen = (
        tiny_model(folder, name=name + ".gguf", architecture=name) for name in ("robot", "qwen2")
    )
    check(
        ids(robot, "exact") == ids(qwen, "exact"),
        "the family that has the flags of qwen2 computes as qwen2",
    )
    check(
        all(
            ids(model, "q8again,recent=4", "--device", d)
            == ids(model, "q8,recent=4", "--device", d)
            != ids(model, "turbo2,recent=4", "--device", d)
            for d in ("cpu", "reference")
        ),
        "the codec gives the tokens of the copied one",
    )
    first = knapsack(
        "run",
        "-m",
        model,
        "-p",
        "hello" * 60,
        "-n",
        30,
        "--temp",
        0,
        "--json",
        "--kv",
        "retain=oldest,slots=32,sink=0,recent=8",
    )
    check(
        first.code == 0 and first.json()["evicted"] > 0 and "oldest" in first.json()["recipe"],
        f"the policy evicts: {first.out} {first.err}",
    )
    check(
        ids(model, "retain=oldest,slots=200") == ids(model, "exact"),
        "with enough slots the policy is exact",
    )
    check(len(ids(model, "mix,slots=128,select=pairs,read=64", n=150)) == 150, "the selector runs")
    robots = ["--chat-template", "robots", "--temp", 0, "--at-most", 8, "--no-stats"]
    said = knapsack("chat", "-m", model, *robots, stdin=b"hello\n")
    turn = knapsack(
        "tokenize",
        "-m",
        model,
        "--special",
        stdin=b"<|im_start|>human\nhello<|im_end|>\n<|im_start|>robot\n",
    ).out
    with open(f"{folder}/turn", "wb") as f:
        f.write(turn)
    same = knapsack("run", "-m", model, "--ids", f"{folder}/turn", "-n", 8, "--temp", 0)
    check(
        said.code == 0 and said.out.strip() and said.out.strip() == same.out.strip(),
        f"chat with the template and the option: {said.out} is not {same.out}: {said.err}",
    )
    check(
        knapsack("greet").out == b"good morning\n"
        and knapsack("greet", "--evening").out == b"good evening\n",
        "the command, and its own option",
    )
    check(
        b"--evening" in knapsack("greet", "--help").out and b"greet" in knapsack("--help").out,
        "both are in the help",
    )
    check(
        knapsack("plan", "-m", model, "--at-most", 8).code == 1,
        "an option exists in its command only",
    )


assert os.path.isfile(BINARY)
run_tests(test)
