"""Gemma 4: heads by layer, shared keys and values, embeddings for each layer."""

from .forward import Spec

WINDOW = 7
NEOX = {"pairs": "neox"}
PATTERN = [True, True, False, True, True, False]


def gemma4(layer_dim=0, shared=0, keys_are_values=True, heads=(16, 32)):
    """Window layers have heads of heads[0] values, of which full layers have fewer."""
    n, (window, full) = len(PATTERN), heads
    keys = {
        "attention.key_length": full,
        "attention.value_length": full,
        "attention.key_length_swa": window,
        "attention.value_length_swa": window,
        "rope.dimension_count": full,
        "rope.dimension_count_swa": window,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": PATTERN,
        "embedding_length_per_layer_input": layer_dim,
    }
    if shared:
        keys["attention.shared_kv_layers"] = shared
    turning = full // 8
    return Spec(
        "gemma4",
        keys,
        layers=n,
        kv_heads=[2 if w else 1 for w in PATTERN],
        head=[window if w else full for w in PATTERN],
        ffn=[96] * (n - shared) + [128] * shared,
        rope={**NEOX, "base": 1e6, "divisors": [1.0] * turning + [1e30] * (full // 2 - turning)},
        window_rope=NEOX,
        windows=PATTERN,
        window=WINDOW,
        qk="head",
        post=True,
        act="gelu",
        embed_scale=8.0,
        attn_scale=1.0,
        final_cap=30.0,
        value_norm=True,
        keys_are_values=lambda il: keys_are_values and not PATTERN[il],
        shared_kv=shared,
        layer_dim=layer_dim,
        layer_scales=[0.9 + 0.02 * il for il in range(n)],
    )


GEMMA4 = {
    "gemma4": gemma4,
    "gemma4 shared KV": lambda: gemma4(8, 3, False),
    "gemma4 shared KV, keys are values": lambda: gemma4(24, 2),
}
QUANTISED_GEMMA4 = {"Q8_0 gemma4": lambda: gemma4(32, 3, False, (32, 64))}
