"""Writes a GGUF model that repeats texts. The last token of a prompt decides which one.

Embeddings are one-hot, attention and FFN are zero, and the output row of a token is the sum of the
embeddings of the tokens that it follows.
"""

import struct

import gguf_writer

HEAD, CONTEXT = 32, 4096
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# chatml with tools in the notation of Hermes. The prompt ends with a line feed, and with a tab
# behind the result of a tool.
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}"
    "{% endfor %}</tools><|im_end|>\n{% endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%- for call in m.tool_calls %}{{ '\\n<tool_call>\\n' }}"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant"
    "{{ '\\t' if messages[-1].role == 'tool' else '\\n' }}{% endif %}"
)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
    },
]
# Two calls for every message, and a sentence for their results.
TWO_CALLS = {
    "\n": [
        "Let me",
        " look.",
        "\n<tool_",
        'call>\n{"name": "get_weather", "arguments": ',
        '{"city": "Paris"}}',
        "\n</tool_call>",
        '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
    ],
    "\t": ["It is noon", " and sunny."],
}


def write_scripted_model(path, script, template=TEMPLATE):
    """script: last character of a prompt -> pieces of its answer, each a token."""
    letters = gguf_writer.byte_letters()
    tokens, successors = [*CONTROL, *letters, "<|"], {}
    for last, pieces in script.items():
        at = len(CONTROL) + ord(last)
        for piece in pieces:
            successors[at] = at = len(tokens)
            tokens.append("".join(letters[b] for b in piece.encode()))
        successors[at] = tokens.index("<|im_end|>")
    n = len(tokens)
    dim = -(-n // HEAD) * HEAD
    pairs = {
        "general.architecture": "llama",
        "general.name": "scripted",
        "llama.context_length": CONTEXT,
        "llama.embedding_length": dim,
        "llama.block_count": 1,
        "llama.feed_forward_length": HEAD,
        "llama.attention.head_count": dim // HEAD,
        "llama.attention.head_count_kv": 1,
        "llama.rope.dimension_count": HEAD,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (n - len(CONTROL)),
        "tokenizer.ggml.merges": ["< |"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": template,
    }
    tokens_at = {"token_embd": {}, "output": {}}  # (row, column) -> value
    for token in range(n):
        tokens_at["token_embd"][token, token] = 1.0
    for token, successor in successors.items():
        tokens_at["output"][successor, token] = 2.0
    shapes = {
        "token_embd": (dim, n),
        "output": (dim, n),
        "output_norm": (dim,),
        "blk.0.attn_norm": (dim,),
        "blk.0.attn_q": (dim, dim),
        "blk.0.attn_k": (dim, HEAD),
        "blk.0.attn_v": (dim, HEAD),
        "blk.0.attn_output": (dim, dim),
        "blk.0.ffn_norm": (dim,),
        "blk.0.ffn_gate": (dim, HEAD),
        "blk.0.ffn_up": (dim, HEAD),
        "blk.0.ffn_down": (HEAD, dim),
    }
    tensors = {}
    for name, dims in shapes.items():
        values = [1.0 if len(dims) == 1 else 0.0] * (dims[0] * (dims[1] if len(dims) > 1 else 1))
        for (row, column), value in tokens_at.get(name, {}).items():
            values[row * dims[0] + column] = value
        tensors[name + ".weight"] = (dims, 0, struct.pack(f"<{len(values)}f", *values))
    with open(path, "wb") as f:
        f.write(gguf_writer.file_bytes(pairs, tensors))
