"""Small checkpoints of every family with random weights: tensors by name and settings."""

import torch

D, M, HEADS, VOCABULARY, POSITIONS = 4, 6, 2, 5, 7


def _norms(*names):
    return {f"{name}.{part}": (D,) for name in names for part in ("weight", "bias")}


def _maps(**sizes):
    shapes = {}
    for name, (rows, columns) in sizes.items():
        shapes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    return shapes


def _under(prefix, *shapes):
    return {prefix + name: shape for part in shapes for name, shape in part.items()}


_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": (VOCABULARY, D),
    "embeddings.position_embeddings.weight": (POSITIONS, D),
    "embeddings.token_type_embeddings.weight": (2, D),
    **_norms("embeddings.LayerNorm"),
}
_BERT = _under(
    "",
    _maps(**{f"attention.self.{part}": (D, D) for part in ("query", "key", "value")}),
    _maps(**{"attention.output.dense": (D, D), "intermediate.dense": (M, D), "output.dense": (D, M)}),
    _norms("attention.output.LayerNorm", "output.LayerNorm"),
)
_ALBERT = _under(
    "encoder.albert_layer_groups.0.albert_layers.0.",
    _maps(**{f"attention.{part}": (D, D) for part in ("query", "key", "value", "dense")}),
    _maps(ffn=(M, D), ffn_output=(D, M)),
    _norms("attention.LayerNorm", "full_layer_layer_norm"),
)
_ENCODER = {"self_attn.in_proj_weight": (3 * D, D), "self_attn.in_proj_bias": (3 * D,)} | _under(
    "", _maps(**{"self_attn.out_proj": (D, D)}, linear1=(M, D), linear2=(D, M)), _norms("norm1", "norm2")
)
_VIT = _under(
    "blocks.0.",
    _maps(**{"attn.qkv": (3 * D, D), "attn.proj": (D, D), "mlp.fc1": (M, D), "mlp.fc2": (D, M)}),
    _norms("norm1", "norm2"),
    {"ls1.gamma": (D,), "ls2.gamma": (D,)},
)
_GPT2 = {}
for _name, _size in {
    "attn.c_attn": (D, 3 * D),
    "attn.c_proj": (D, D),
    "mlp.c_fc": (D, M),
    "mlp.c_proj": (M, D),
}.items():
    _GPT2 |= {f"h.0.{_name}.weight": _size, f"h.0.{_name}.bias": _size[1:]}
_ROTARY = {f"self_attn.{part}_proj.weight": (D if part in "qo" else 2, D) for part in "qkvo"}
_ROTARY["self_attn.o_proj.weight"] = (D, D)
_ROTARY |= {"input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,)}
_ROTARY |= {"mlp.up_proj.weight": (M, D), "mlp.gate_proj.weight": (M, D), "mlp.down_proj.weight": (D, M)}

FAMILIES = {
    "bert": (
        _EMBEDDINGS | _under("encoder.layer.0.", _BERT) | _under("encoder.layer.1.", _BERT),
        {"num_attention_heads": HEADS, "hidden_act": "gelu", "layer_norm_eps": 1e-5},
    ),
    "albert": (
        _EMBEDDINGS | _maps(**{"encoder.embedding_hidden_mapping_in": (D, D)}) | _ALBERT,
        {"num_attention_heads": HEADS, "num_hidden_layers": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    ),
    "gpt2": (
        {"wte.weight": (VOCABULARY, D), "wpe.weight": (POSITIONS, D)} | _GPT2 | _norms("h.0.ln_1", "h.0.ln_2", "ln_f"),
        {"n_head": HEADS, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
    ),
    "rotary": (
        {"embed_tokens.weight": (VOCABULARY, D), "norm.weight": (D,)} | _under("layers.0.", _ROTARY),
        {
            "num_attention_heads": HEADS,
            "num_key_value_heads": 1,
            "rope_theta": 50.0,
            "rms_norm_eps": 1e-6,
            "hidden_act": "silu",
            "is_causal": True,
            "model_type": "mistral",
            "sliding_window": 8,
        },
    ),
    "encoder": (
        _under("layers.0.", _ENCODER) | _under("layers.1.", _ENCODER),
        {"nhead": HEADS, "norm_first": True, "activation": "gelu", "layer_norm_eps": 1e-5},
    ),
    "vit": (
        {"pos_embed": (1, POSITIONS, D), "patch_embed.proj.bias": (D,)} | _VIT,
        {"num_heads": HEADS, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "block_fn": "Block"},
    ),
}
"""Shapes of the tensors and the settings, by family."""


def small(family, seed=0):
    """(tensors, config) of a small network of the `family`."""
    generator = torch.Generator().manual_seed(seed)
    shapes, config = FAMILIES[family]
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}, dict(config)
