#!/usr/bin/env python3
"""Compares the pre-tokenizers of `knapsack tokenize` with llama.cpp, id by id, on random texts, and
with Hugging Face's expressions where llama.cpp's differ (letter case, marks, groups of digits).

    pretokenizer_oracle.py KNAPSACK [--lines N] [--golden tests/text/golden_pretokenizers.h]

Needs llama-cpp-python, gguf and regex; says `skipped` without them. --golden writes the vocabulary
and one strange line for each pre-tokenizer."""

import argparse
import collections
import ctypes
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import gguf
    import llama_cpp
    import regex
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

NAMES = """
default gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4 smollm
starcoder refact command-r codeshell exaone minerva-7b mellum2 llama-bpe llama3 llama-v3 falcon3
falcon-h1 pixtral midm-2.0 lfm2 glm4 glm5 dbrx smaug-bpe chatglm-bpe qwen2 deepseek-r1-qwen megrez
kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 bailingmoe bailingmoe2 llada-moe qwen35 gpt-4o
llama4 kanana2 talkie minimax-m2 tekken minicpm5 deepseek-v3 hunyuan-dense joyai-llm hy_v4
spark2_5 seed-coder jais-2 tiny_aya cohere2moe afmoe superbpe exaone-moe laguna youtu kimi-k2
ufakzeka falcon deepseek-llm deepseek-coder bloom poro-chat gpt3-finnish viking gemma4
""".split()

# Hugging Face's expressions, one a pass, for pre-tokenizers that llama.cpp only approximates.
SUFFIX = r"(?:'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE]))"
LEAD = r"[^\r\n\p{L}\p{N}]?"
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(suffix, number, tail, up=UP, low=LOW):
    return (
        rf"{LEAD}{up}*{low}+{suffix}|{LEAD}{up}+{low}*{suffix}|{number}| ?[^\s\p{{L}}\p{{N}}]+"
        rf"[{tail}]*{SPACES}"
    )


GPT4O = cased(SUFFIX + "?", r"\p{N}{1,3}", r"\r\n/")
NOT_HAN = r"&&[^\p{Han}]]"
EXACT = {
    "gpt-4o": [GPT4O],
    "tekken": [cased("", r"\p{N}", r"\r\n/")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        cased(SUFFIX + "?", r"\p{N}", r"\r\n/"),
    ],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "afmoe": [
        r"\p{N}+",
        r"(?=(\p{N}{3})+(?!\p{N}))",
        "[一-\ufaff㐀-䶿぀-ヿ･-ﾟ⼀-⿟เ-\u0effក-៿က-႟ᄀ-ᇿ]+",
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*" + SPACES,
    ],
    "kimi-k2": [
        r"\p{Han}+|"
        + cased(SUFFIX + "?", r"\p{N}{1,3}", r"\r\n", "[" + UP + NOT_HAN, "[" + LOW + NOT_HAN)
    ],
}
EXACT.update({n: EXACT["gpt-4o"] for n in ("llama4", "kanana2", "talkie", "minimax-m2")})
EXACT["cohere2moe"] = EXACT["tiny_aya"]
WHOLE_WORDS = {"tekken", "youtu"}  # rows of EXACT that ignore merges

# What a text must not have for llama.cpp to be right: pre-tokenizer -> expression.
NOT_ASCII_CASE = r"(?=[^\x00-\x7f])[\p{Lu}\p{Ll}\p{Lt}\p{M}]"
BROKEN = {name: NOT_ASCII_CASE for name in EXACT}
for name in ("tiny_aya", "cohere2moe"):
    BROKEN[name] = NOT_ASCII_CASE + r"|[A-Z]|\p{N}[\w]|\s\s\p{N}"
BROKEN["youtu"] = NOT_ASCII_CASE + "|[A-Z]"
BROKEN["kimi-k2"] = NOT_ASCII_CASE + "|[A-Z]|々"
BROKEN["superbpe"] = r"(?=[^\x00-\x7f])\p{Nd}"
BROKEN["afmoe"] = r"\s\s\p{N}"

PIECES = """ 1 12 123 1234 12345 123456 1234567 0 9 3.14 1,000 ٣٤ ½ Ⅷ x² 中 中文 日本語 かな カナ ｶﾅ 한국어 々
e\u0301 \u0301 \u0301\u0302 É Д ß ПрИвет ÉcoleДом Straße café
CAFÉ ǅ ʰ ªº ﬁ ა Ა hello World HelloWorld HTTPServer
ABC abcDEF a B the there theres camelCase snake_case x1 1x
's 'S 't 'T 're 'RE 've 'VE 'm 'M 'll 'LL 'd 'D don't DON'T I'll WE'VE o'clock l'été 'x ' ''
. , ! ? !! ?! ... … 。 ， 、 — “ ” - -- _ __ # @ & * / // /* */ \\ | || ~ ` ``` $ $5 € + += == <= => ^
( ) () [ ] { } "quoted" (a) #include <stdio.h> int main(void){return 0;} a=b+c; if(x<3&&y>=10)
http://a.b/c?d=1 😀 👍🏽 👩‍👩‍👧 ☃ مرحبا السلام، ۔
 สวัสดี ภาษาไทย नमस्ते हिन्दी। বাংলা שלום ქართული ᄀ ㄱ ㄅ ㄆ
\u200b \u200d \u00a0 \u3000 \u2028 \u0085 \ufeff \ue000 \x01 \x1f \x7f ~1 -1 +1 .5
/n /\n \r\n\n ;\r\n""".split(" ")
PIECES = [p for line in PIECES for p in (line.split("\n") if line.strip() else [line])]
GAPS = ["", "", "", " ", " ", "  ", "   ", "      ", "\t", "\t\t", " \t", "\n", "\n\n", "\r\n"]
GAPS += [" \n", " \r\n\n x", "\n  ", "\n\t", " " * 40, "\u00a0", " \u3000", "\n\n\n\n\n"]


def make_texts(rng, n):
    texts = []
    for i in range(n):
        text = ""
        for _ in range(rng.randrange(1, 14)):
            text += rng.choice(PIECES) + rng.choice(GAPS)
            if rng.random() < 0.1:
                text += "".join(rng.choice(" \t\n\rab1'É中.") for _ in range(6))
        texts.append(text)
    return texts


def byte_letters():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in keep}
    rest = (b for b in range(256) if b not in keep)
    return {**letters, **{b: chr(256 + i) for i, b in enumerate(rest)}}


LETTERS = byte_letters()


class Vocabulary:
    """Merges learned from whole texts, so that tokens cross the borders of words. With rare_first,
    the first merges are all pairs, the rarest first: a moved border shows at once."""

    def __init__(self, texts, n_merges, raw, rare_first=False):
        self.raw = raw
        corpus = [list(t.replace(" ", "▁")) if raw else self.letters(t) for t in texts]
        first = sorted({c for text in corpus for c in text})
        if raw:  # rare characters are bytes
            first = [c for i, c in enumerate(first) if ord(c) < 128 or c == "▁" or i % 5]
            self.tokens = [f"<0x{b:02X}>" for b in range(256)] + first
            self.tokens += ["\n\n", "\n\n\n", "\n\n\n\n"]
        else:
            self.tokens = [LETTERS[b] for b in range(256)]
        known, self.merges = set(self.tokens), []
        while len(self.merges) < n_merges:
            pairs = collections.Counter(p for text in corpus for p in zip(text, text[1:]))
            pairs = [p for p, _ in pairs.most_common() if p[0] in known and p[1] in known]
            if raw:
                pairs = [p for p in pairs if "\n" not in p[0] + p[1]]
            for a, b in pairs[::-1] if rare_first and not self.merges else pairs[:40]:
                if a + b not in known and len(self.merges) < n_merges:
                    known.add(a + b)
                    self.tokens.append(a + b)
                    self.merges.append((a, b))
                    corpus = [self.join(text, a, b) for text in corpus]
        if not raw:  # words without merges that lead to them
            for word in ("HelloWorld", " 中文", "snake", "123", " theres", "...", "::", "日本語"):
                word = "".join(self.letters(word))
                if word not in known:
                    self.tokens.append(word)
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.ranks = {pair: i for i, pair in enumerate(self.merges)}

    @staticmethod
    def letters(text):
        return [LETTERS[b] for b in text.encode()]

    @staticmethod
    def join(symbols, a, b):
        out = []
        for s in symbols:
            if out and out[-1] == a and s == b:
                out[-1] = a + b
            else:
                out.append(s)
        return out

    def encode_word(self, word, whole_words):
        symbols = self.letters(word)
        if whole_words and "".join(symbols) in self.ids:
            return [self.ids["".join(symbols)]]
        while True:
            pairs = enumerate(zip(symbols, symbols[1:]))
            rank, i = min(((self.ranks.get(p, 1 << 30), i) for i, p in pairs), default=(1 << 30, 0))
            if rank == 1 << 30:
                return [self.ids[s] for s in symbols]
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]

    def write(self, path, pre):
        w = gguf.GGUFWriter(str(path), "llama")
        w.add_name("pre-tokenizer oracle")
        w.add_tokenizer_model("gemma4" if self.raw else "gpt2")
        w.add_tokenizer_pre(pre)
        w.add_token_list(self.tokens + ["<|end|>"])
        byte = gguf.TokenType.BYTE if self.raw else gguf.TokenType.NORMAL
        kinds = [byte if i < 256 else gguf.TokenType.NORMAL for i in range(len(self.tokens))]
        w.add_token_types(kinds + [gguf.TokenType.CONTROL])
        w.add_token_merges([f"{a} {b}" for a, b in self.merges])
        w.add_bos_token_id(len(self.tokens))
        w.add_eos_token_id(len(self.tokens))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()


def split(texts, pattern):
    """Each piece becomes its matches and what lies between them."""
    out = []
    for text in texts:
        at = 0
        for m in regex.finditer(pattern, text, regex.V1):
            out += [text[at : m.start()], m.group()]
            at = m.end()
        out.append(text[at:])
    return [t for t in out if t]


def by_expression(vocabulary, pre, texts):
    answers = []
    for text in texts:
        words = [text]
        for pattern in EXACT[pre]:
            words = split(words, pattern)
        whole = pre in WHOLE_WORDS
        answers.append([id for w in words for id in vocabulary.encode_word(w, whole)])
    return answers


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def silent(level, text, data):
    pass


def by_llama(path, texts, add_special=False):
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, f"llama.cpp does not open {path}"
    vocab = llama_cpp.llama_model_get_vocab(model)
    answers = []
    for text in texts:
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        n = llama_cpp.llama_tokenize(vocab, data, len(data), ids, len(ids), add_special, False)
        answers.append(list(ids[:n]))
    llama_cpp.llama_model_free(model)
    return answers


def by_knapsack(program, path, texts, *options):
    data = b"\0".join(t.encode() for t in texts) + b"\0"
    made = subprocess.run(
        [program, "tokenize", "-m", path, "-0", *options], input=data, capture_output=True
    )
    if made.returncode:
        return made.stderr.decode()
    return [[int(i) for i in line.split()] for line in made.stdout.decode().split("\n")[:-1]]


def first_difference(texts, ours, theirs):
    if isinstance(ours, str):
        return ours
    assert len(ours) == len(theirs) == len(texts)
    bad = [i for i in range(len(texts)) if ours[i] != theirs[i]]
    if not bad:
        return None
    i = min(bad, key=lambda i: len(texts[i]))
    what = f"{len(bad)} of {len(texts)} differ, as {texts[i]!r}"
    return f"{what}\n    ours   {ours[i]}\n    theirs {theirs[i]}"


def compare(program, folder, vocabularies, texts):
    n_bad = 0
    for pre in NAMES:
        vocabulary = vocabularies[pre == "gemma4"]
        path = folder / f"{pre}.gguf"
        vocabulary.write(path, pre)
        broken = regex.compile(BROKEN.get(pre, r"(?!)"))
        simple = [t for t in texts if not broken.search(t)]
        checks = [("llama.cpp", simple, by_llama(path, simple), ["--no-bos"])]
        checks.append(("llama.cpp with BOS", simple[:9], by_llama(path, simple[:9], True), []))
        if pre in EXACT:
            exact = by_expression(vocabulary, pre, texts)
            checks.append(("Hugging Face", texts, exact, ["--no-bos"]))
        for whose, which, ids, options in checks:
            bad = first_difference(which, by_knapsack(program, path, which, *options), ids)
            n_bad += bad is not None
            print(f"{pre:18} {whose:20} {len(which):5} texts: {bad or 'equal'}", flush=True)
        path.unlink()
    return n_bad


STRANGE = [
    "HelloWorld HTTPServer's DON'T x'LL 1234567 12345abc 12345  \t \r\n\n x#inc _a/b/\n//…  "
    "\u00a0 12 don't X'S x'LLy 'VEz (a)`$+ \x01b",
    "中文123日本語カナ人々 e\u0301É ÉcoleДомstraße٣٤٥٦ ½Ⅷ 😀\u200d👧 สวัสดี 안녕 ㄅ،。 !!\r\n\n   "
    "\n   !!\u0301 😀  \n      ",
]


def c_string(text):
    out, after_hex = "", False
    for b in text.encode():
        plain = 32 <= b < 127 and chr(b) not in '"\\?'
        out += ('""' if plain and after_hex else "") + (chr(b) if plain else f"\\x{b:02x}")
        after_hex = not plain
    return f'"{out}"'


def strings(items):
    lines = [""]
    for item in map(c_string, items):
        if len(lines[-1]) + len(item) > 120:
            lines.append("")
        lines[-1] += item + ", "
    return "\n".join("    " + line.rstrip() for line in lines)


def write_golden(out, folder):
    vocabularies = [Vocabulary(STRANGE, n, raw, True) for n, raw in ((400, False), (150, True))]
    rows = {}
    for pre in NAMES:
        vocabulary = vocabularies[pre == "gemma4"]
        path = folder / f"{pre}.gguf"
        vocabulary.write(path, pre)
        adds_bos = len(by_llama(path, ["a"], True)[0]) == 2
        if pre in EXACT:
            ids = by_expression(vocabulary, pre, STRANGE)
        else:
            ids = by_llama(path, STRANGE)
        lines = tuple(" ".join(map(str, i)) for i in ids)
        rows.setdefault((lines, adds_bos), []).append(pre)
    n = 256
    text = f"""// Made by {pathlib.Path(__file__).name}: a vocabulary, strange lines, and their
// ids by llama.cpp, or by Hugging Face's expressions where llama.cpp only approximates them.
#pragma once

namespace golden
{{

// Tokens after those of the 256 bytes, and merges: byte-level BPE, then UTF-8 with U+2581.
static const char* const kPreTokens[] = {{
{strings(vocabularies[0].tokens[n:])}
}};
static const char* const kPreMerges[] = {{
{strings(a + " " + b for a, b in vocabularies[0].merges)}
}};
static const char* const kRawTokens[] = {{
{strings(vocabularies[1].tokens[n:])}
}};
static const char* const kRawMerges[] = {{
{strings(a + " " + b for a, b in vocabularies[1].merges)}
}};
static const char* const kStrangeLines[] = {{
{strings(STRANGE)}
}};

struct PreTokenizerCase {{
    const char* names; // separated by spaces
    bool adds_bos;
    const char* ids[{len(STRANGE)}]; // of each line
}};
static const PreTokenizerCase kPreTokenizerCases[] = {{
"""
    for (lines, adds_bos), names in rows.items():
        ids = "".join(f'\n      "{line}",' for line in lines)
        text += f'    {{"{" ".join(names)}", {str(adds_bos).lower()}, {{{ids}}}}},\n'
    pathlib.Path(out).write_text(text + "};\n\n} // namespace golden\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("knapsack")
    parser.add_argument("--lines", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden")
    options = parser.parse_args()
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    texts = make_texts(random.Random(options.seed), options.lines)
    vocabularies = [Vocabulary(texts[:400], 1200, False), Vocabulary(texts[:400], 800, True)]
    with tempfile.TemporaryDirectory() as folder:
        n_bad = compare(options.knapsack, pathlib.Path(folder), vocabularies, texts)
        if options.golden:
            write_golden(options.golden, pathlib.Path(folder))
    sys.exit(n_bad > 0)


if __name__ == "__main__":
    main()
