"""Writes GGUF files and quantises weights, with the standard library only."""

import array
import struct

U32, I32, F32, BOOL, STR, ARR, U64 = 4, 5, 6, 7, 8, 9, 10
FORMS = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", 0: "<B", 12: "<d"}
T_F32, T_Q8_0, T_Q4_K = 0, 8, 12


class Typed:
    """A value with its GGUF type, where the type of the Python value is not the one wanted."""

    def __init__(self, kind, value, count=None):
        self.kind, self.value, self.count = kind, value, count


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def kind_of(value):
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return U32
    return F32 if isinstance(value, float) else STR


def body(kind, value):
    return text(value) if kind == STR else struct.pack(FORMS[kind], value)


def pair(key, value):
    """Lists are arrays of I32, F32, BOOL or STR. A Typed array has one type of values."""
    if isinstance(value, Typed) and not isinstance(value.value, list):
        return text(key) + struct.pack("<I", value.kind) + body(value.kind, value.value)
    if isinstance(value, (list, Typed)):
        values = value.value if isinstance(value, Typed) else value
        of = value.kind if isinstance(value, Typed) else kind_of(values[0])
        of = I32 if of == U32 and not isinstance(value, Typed) else of
        count = value.count if isinstance(value, Typed) and value.count else len(values)
        head = struct.pack("<IIQ", ARR, of, count)
        return text(key) + head + b"".join(body(of, v) for v in values)
    kind = kind_of(value)
    return text(key) + struct.pack("<I", kind) + body(kind, value)


def byte_letters():
    """The letters that stand for the 256 bytes in byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


def vocabulary(n):
    """Byte-level BPE with n tokens, at least 261."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_letters(), "he", "ll"]
    tokens += [f"<|{i}|>" for i in range(n - len(tokens))]
    kinds = [3] * 3 + [1] * 258 + [3] * (n - 261)
    return tokens, kinds, ["h e", "l l"]


def tokenizer_pairs(n):
    tokens, kinds, merges = vocabulary(n)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def file_bytes(pairs, tensors):
    """The file. tensors: name -> (dims, type, bytes), dims begin with the columns."""
    infos, data = [], []
    at = 0
    for name, (dims, kind, values) in tensors.items():
        infos.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at))
        padded = values + bytes(-len(values) % 32)
        data.append(padded)
        at += len(padded)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(pair(key, value) for key, value in pairs.items()) + b"".join(infos)
    return head + bytes(-len(head) % 32) + b"".join(data)


def f32(values):
    """The values rounded to F32, and their bytes."""
    rounded = array.array("f", values)
    return list(rounded), rounded.tobytes()


def half(value):
    b = struct.pack("<e", value)
    return struct.unpack("<e", b)[0], b


def q8_0(values):
    out, data = [], bytearray()
    for i in range(0, len(values), 32):
        block = values[i : i + 32]
        d, b = half(max(map(abs, block)) / 127 or 1.0)
        codes = [max(-127, min(127, round(v / d))) for v in block]
        data += b + struct.pack("32b", *codes)
        out += [d * c for c in codes]
    return out, bytes(data)


def scale_bytes(scales, mins):
    """Eight scales and eight minima of 6 bits in 12 bytes."""
    low = [s & 63 | (scales[i + 4] >> 4) << 6 for i, s in enumerate(scales[:4])]
    low += [m & 63 | (mins[i + 4] >> 4) << 6 for i, m in enumerate(mins[:4])]
    return bytes(low + [scales[i] & 15 | (mins[i] & 15) << 4 for i in range(4, 8)])


def q4_k(values):
    out, data = [], bytearray()
    for i in range(0, len(values), 256):
        parts = [values[i + j : i + j + 32] for j in range(0, 256, 32)]
        lows = [max(0.0, -min(p)) for p in parts]
        steps = [(max(p) + low) / 15 for p, low in zip(parts, lows)]
        d, d_bytes = half(max(steps) / 63 or 1.0)
        m, m_bytes = half(max(lows) / 63 or 1.0)
        scales = [max(1, min(63, round(s / d))) for s in steps]
        mins = [min(63, round(low / m)) for low in lows]
        codes = []
        for part, s, low in zip(parts, scales, mins):
            codes.append([max(0, min(15, round((v + m * low) / (d * s)))) for v in part])
            out += [d * s * c - m * low for c in codes[-1]]
        data += d_bytes + m_bytes + scale_bytes(scales, mins)
        for first, second in zip(codes[::2], codes[1::2]):
            data += bytes(a | b << 4 for a, b in zip(first, second))
    return out, bytes(data)


ENCODERS = {T_F32: f32, T_Q8_0: q8_0, T_Q4_K: q4_k}
