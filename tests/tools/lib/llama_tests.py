"""Which tests of llama-server apply to serve, and which of their numbers are those of its model.

The suite is written for stories260K. Its tests run here with SmolLM2-135M, so numbers of tokens
are replaced by those that llama.cpp's tokenizer counts with that model, and an expected text by
any text."""

# Beginning of a test's name, or of a file's -> reason.
NOT_APPLICABLE = {
    "test_embedding.py": "no models for embeddings",
    "test_rerank.py": "no models for reranking",
    "test_infill.py": "no fill-in-the-middle",
    "test_lora.py": "no adapters",
    "test_speculative.py": "no draft models",
    "test_vision_api.py": "no images",
    "test_router.py": "one model in each server",
    "test_mcp_servers.py": "no MCP",
    "test_tools_builtin.py": "no built-in tools",
    "test_proxy.py": "no proxy",
    "test_compat_gcp.py": "no routes of Google's cloud",
    "test_stream.py": "no replay of a stream after it is lost",
    "test_sleep.py": "no sleeping: the memory is reserved",
    "test_kv_keep_only_active.py": "reads llama-server's log",
    "test_basic.py::test_load_split_model": "downloads a model",
    "test_basic.py::test_server_multiple_addresses": "one address in each server",
    "test_basic.py::test_server_model_aliases_and_tags": "no tags",
    "test_security.py::test_access_static_assets": "files of llama-server's own page",
    "test_security.py::test_cors_proxy": "no proxy",
    "test_security.py::test_local_media": "no images",
    "test_chat_completion.py::test_chat_template_assistant_prefill": "reads __verbose",
    "test_chat_completion.py::test_chat_template_continue_final_message_vllm": "reads __verbose",
    "test_chat_completion.py::test_chat_template": "reads __verbose",
    "test_chat_completion.py::test_verbose_debug": "reads __verbose",
    "test_chat_completion.py::test_apply_chat_template": "no template of that name",
    "test_completion.py::test_completion_unified": "no memory that slots may overbook",
    "test_completion.py::test_n_probs_post_backend_sampling": "one kind of sampling",
    "test_slot_save.py::test_slot_restore_legacy": "writes llama.cpp's file format",
    "test_slot_save.py::test_slot_save_restore_": "no images",
    "test_slot_save.py::test_slot_erase_": "no images",
    "test_slot_save.py::test_slot_restore_media": "no images",
    "test_ctx_shift.py::test_ctx_shift_enabled": "recipes of --kv give up tokens instead",
    "test_metrics.py::test_metrics_embedding": "no models for embeddings",
    "test_tokenize.py::test_tokenize_with_bos": "SmolLM2 adds no BOS",
    "test_compat_anthropic.py::test_anthropic_vision_base64": "no images",
    "test_compat_anthropic.py::test_anthropic_vision_format": "expects 500; images are refused "
    "with 400",
    "test_compat_anthropic.py::test_anthropic_tool_result_with_image": "expects 500; images are "
    "refused with 400",
    "test_completion.py::test_n_probs_post_sampling": "no probabilities after the samplers",
    "test_compat_anthropic.py::test_anthropic_empty_messages": "no messages are refused with 400",
}
# The same for some parameters of a test.
NOT_WITH = [
    (
        "test_chat_completion.py::test_chat_completion[",
        {"chat_template": "This is not a chat template, it is"},
        "--chat-template takes a name or a file",
    ),
    ("test_template.py::test_reasoning", {"reasoning": "on"}, "no --reasoning"),
    ("test_template.py::test_reasoning", {"reasoning": "off"}, "no --reasoning"),
]
SLOW = "needs a large model"


class Change:
    """Changes to the tests whose name begins with `test`, and whose parameters are those of `when`.

    params: other parameters. consts: numbers in the test's body. server: attributes of the server
    before it starts. body: more fields of its completions. text: any text satisfies the test's
    regular expressions.
    """

    def __init__(self, test, text=False, when=None, **kw):
        self.test, self.text, self.when = test, text, when or {}
        self.params, self.consts = kw.get("params", {}), kw.get("consts", {})
        self.server, self.body = kw.get("server", {}), kw.get("body", {})

    def applies(self, name, params):
        return name.startswith(self.test) and all(params.get(k) == v for k, v in self.when.items())


CHAT, NATIVE = "test_chat_completion.py::", "test_completion.py::"
BOOK = "What is the best book"
PARTS = [{"type": "text", "text": "What is"}, {"type": "text", "text": "the best book"}]
CODE = "Write the fibonacci function in c++."
MEANING = "I believe the meaning of life is"
JOKE = "Write a joke about AI from a very long prompt which will not be truncated"
ENDLESS = {"ignore_eos": True}  # SmolLM2 ends some of these texts at once
SHORT = {"max_tokens": 8, "n_predicted": 8}
CHANGES = [
    Change(CHAT + "test_chat_completion[", text=True),
    Change(CHAT + "test_chat_completion[", when={"user_prompt": "Hey"}, params={"n_prompt": 16}),
    Change(CHAT + "test_chat_completion[", when={"user_prompt": BOOK}, params={"n_prompt": 20}),
    Change(CHAT + "test_chat_completion[", when={"user_prompt": PARTS}, params={"n_prompt": 20}),
    Change(
        CHAT + "test_chat_completion[",
        when={"user_prompt": CODE},
        params={"n_prompt": 29, **SHORT},
    ),
    Change(CHAT + "test_chat_completion_cached", consts={77: 26, 76: 25, 51: 19, 47: 15}),
    Change(CHAT + "test_chat_completion_stream[", text=True),
    Change(
        CHAT + "test_chat_completion_stream[", when={"user_prompt": BOOK}, params={"n_prompt": 20}
    ),
    Change(
        CHAT + "test_chat_completion_stream[",
        when={"user_prompt": CODE},
        params={"n_prompt": 29, **SHORT},
    ),
    Change(CHAT + "test_chat_completion_with_openai_library", text=True),
    # 70 tokens in chunks of 64, and a report before the first.
    Change(CHAT + "test_return_progress", when={"reuse_cache": False}, params={"batch_count": 3}),
    Change(NATIVE + "test_completion[", text=True),
    Change(NATIVE + "test_completion_stream[", text=True),
    Change(NATIVE + "test_completion", when={"prompt": MEANING}, params={"n_prompt": 7}),
    Change(
        NATIVE + "test_completion",
        when={"prompt": JOKE},
        params={"n_prompt": 15, "n_predict": 24, "n_predicted": 24},
    ),
    Change(NATIVE + "test_completion_with_openai_library", text=True),
    Change(NATIVE + "test_completion_stream_with_openai_library", text=True),
    # The prompt has 224 tokens, 128 with two slots are less.
    Change(NATIVE + "test_nocache_long_input_prompt", server={"n_ctx": 256}),
    Change(NATIVE + "test_completion_response_fields", consts={"<s> ": ""}),
    # " Hello 3" is 3 tokens, without a BOS.
    Change(NATIVE + "test_completion_prompt_cache", consts={5: 3, 2: 0}, server={"n_slots": 2}),
    Change("test_ctx_shift.py::test_ctx_shift_disabled_long", server={"n_ctx": 256}),
    # The prompt has 4 tokens, the cache 256, and the last token needs no place in it. `truncated`
    # is false where nothing of the prompt is cut.
    Change(
        "test_ctx_shift.py::test_ctx_shift_disabled_short",
        when={"n_predict": -1},
        params={"n_token_output": 253, "truncated": False},
    ),
    Change("test_ctx_shift.py::test_ctx_shift_disabled_short", body=ENDLESS),
    Change(NATIVE + "test_completion_parallel_slots", body=ENDLESS),
    Change(
        "test_slot_save.py::test_slot_save_restore",
        text=True,
        consts={21: 7, 84: 70, 6: 2},
        body=ENDLESS,
    ),
    Change("test_slot_save.py::test_slot_erase", text=True, consts={21: 7}, body=ENDLESS),
    Change("test_compat_oai_responses.py::test_responses_with_openai", text=True),
    Change("test_compat_oai_responses.py::test_responses_stream_with_openai", text=True),
]


def reason_of(name, params, is_slow):
    """Why a test does not apply, or None."""
    if is_slow:
        return SLOW
    for test, when, reason in NOT_WITH:
        if name.startswith(test) and all(params.get(k) == v for k, v in when.items()):
            return reason
    fitting = [k for k in NOT_APPLICABLE if name.startswith(k)]
    for k in sorted(fitting, key=len, reverse=True):
        if "::" not in k or name[len(k) :][:1] in ("", "[", "_") or k[-1] == "_":
            return NOT_APPLICABLE[k]
    return None
