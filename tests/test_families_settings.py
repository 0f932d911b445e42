"""Every setting of a family is read or refused: what would change its map cannot be missed."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("transformers") is None:
    pytest.skip("needs the reference implementations: transformers < 5", allow_module_level=True)

from families import TINY, tiny  # noqa: E402

from dispersion import ArgumentError  # noqa: E402
from models.families import network_from  # noqa: E402


def refused(kind, change, message):
    model = tiny(kind)
    with pytest.raises(ArgumentError, match=message) as caught:
        network_from(model.state_dict(), None, model.config.to_dict() | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", sorted(TINY))
def test_a_setting_that_nobody_knows(kind):
    refused(kind, {"novel": 3}, "novel = 3, which .* does not know")


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("t5", {"d_kv": 5}, "d_kv = 5; accepted: 6"),
        ("t5", {"is_gated_act": True}, "is_gated_act = True"),
        ("t5", {"dense_act_fn": "silu"}, "dense_act_fn = 'silu'"),
        ("t5", {"feed_forward_proj": "gated-relu"}, "wi_1"),
        ("t5", {"relative_attention_num_buckets": 16}, r"shape \(16, 3\)"),
        ("t5", {"num_heads": 6}, "d_kv = 6; accepted: 3"),
        ("mpnet", {"relative_attention_num_buckets": 16}, r"shape \(16, 3\)"),
        ("mpnet", {"hidden_act": "mish"}, "activation: got 'mish'"),
        (
            "bloom",
            {"apply_residual_connection_post_layernorm": True},
            "apply_residual_connection_post_layernorm = True",
        ),
        ("bloom", {"slow_but_exact": True}, "slow_but_exact = True"),
        ("bloom", {"n_head": 5}, "5 heads for a map to 72 features"),
        ("bloom", {"num_attention_heads": 8}, "num_attention_heads = 8; accepted: 4"),
        ("bloom", {"is_causal": False}, "which differs in layer 0"),
        ("mpt", {"no_bias": False}, "no_bias = False"),
        ("mpt", {"expansion_ratio": 2}, "expansion_ratio = 2"),
        ("mpt", {"norm_type": "rmsnorm"}, "norm_type = 'rmsnorm'"),
        ("mpt", {"attn_config": [1]}, r"attn_config = \[1\]"),
        ("mpt", {"attn_config": {"alibi": False}}, "alibi = False"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln = True"),
        ("mpt", {"attn_config": {"clip_qkv": 6.0}}, "clip_qkv = 6.0"),
        ("mpt", {"attn_config": {"prefix_lm": True}}, "prefix_lm = True"),
        ("mpt", {"attn_config": {"rope": True}}, "rope = True"),
        ("mpt", {"attn_config": {"alibi_bias_max": 4}}, "which differs in layer 0"),  # transformers has 8 always
        ("opt", {"enable_bias": False}, "which have no such weight"),
        ("opt without biases", {"enable_bias": True}, r"no tensor .*q_proj\.bias"),
        ("opt", {"layer_norm_elementwise_affine": False}, "which have no such weight"),
        ("modernbert", {"norm_bias": True}, r"no tensor layers.0.mlp_norm.bias"),
        ("modernbert", {"mlp_bias": True}, r"no tensor layers.0.mlp.Wi.bias"),
        ("modernbert with biases", {"attention_bias": False}, "which have no such weight"),
        ("modernbert", {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ("modernbert", {"local_rope_theta": 0.0}, "local_rope_theta: got 0"),
        ("esm", {"position_embedding_type": "absolute"}, "position_embedding_type = 'absolute'; accepted: 'rotary'"),
        ("esm", {"is_folding_model": True}, "is_folding_model = True"),
        ("esm", {"emb_layer_norm_before": True}, "no tensor embeddings.layer_norm.weight"),
        ("esm", {"num_attention_heads": 8}, "rotary heads of 3 features"),
        ("roformer", {"rotary_value": True}, "rotary_value = True"),
        ("gemma", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
        ("gemma", {"layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
        ("deberta-v2", {"conv_kernel_size": 3}, "conv_kernel_size = 3"),
        ("gptj", {"rotary": False}, "rotary = False"),
        ("clip_text_model", {"max_position_embeddings": 25}, "max_position_embeddings = 25; accepted: 24"),
        ("clip_text_model", {"num_attention_heads": 5}, "5 heads for 24 query features"),
        ("clip_text_model", {"hidden_act": "mish"}, "activation: got 'mish'"),
        ("clip_vision_model", {"num_hidden_layers": 3}, "num_hidden_layers = 3; accepted: 2"),
        ("clip_vision_model", {"image_size": 10}, r"position_embedding\.weight of shape \(26, 24\)"),
        ("siglip_text_model", {"hidden_size": 25}, "hidden_size = 25; accepted: 24"),
        ("siglip_text_model", {"is_decoder": True}, "is_decoder = True"),
        ("siglip_vision_model", {"layer_norm_eps": -1.0}, "layer_norm_eps: got -1.0"),
        ("siglip_vision_model", {"intermediate_size": 41}, "intermediate_size = 41; accepted: 40"),
        ("bart", {"encoder_layers": 3}, "encoder_layers = 3; accepted: 2"),
        ("bart", {"encoder_attention_heads": 5}, "5 heads for 24 query features"),
        ("bart", {"normalize_before": True}, "normalize_before = True, which bart does not know"),
        ("bart", {"add_final_layer_norm": True}, "add_final_layer_norm = True, which bart does not know"),
        ("bart", {"is_decoder": True}, "is_decoder = True"),
        ("whisper", {"max_source_positions": 13}, "max_source_positions = 13; accepted: 12"),
        ("whisper", {"activation_function": "mish"}, "activation: got 'mish'"),
        ("deit", {"qkv_bias": False}, "which have no such weight"),
        ("deit without biases", {"qkv_bias": True}, r"no tensor .*query\.bias"),
        ("vit_mae", {"intermediate_size": 41}, "intermediate_size = 41; accepted: 40"),
        ("yolos", {"use_mid_position_embeddings": True}, "use_mid_position_embeddings = True"),
        ("yolos", {"num_detection_tokens": 4}, r"detection_tokens of shape \(1, 4, 24\)"),
        ("swin", {"window_size": 4}, r"shape \(25, 3\); accepted: shape \(49, any\)"),
        ("swin", {"depths": [3, 2]}, r"depths = \[3, 2\]; accepted: 2 of the stage"),
        ("swin", {"num_heads": [4, 4]}, r"num_heads = \[4, 4\]; accepted: 3 of the stage"),
        ("swin", {"mlp_ratio": 3.0}, r"shape \(72, 24\) by the settings"),
        ("swin", {"qkv_bias": False}, "which have no such weight"),
        ("swin", {"patch_norm": False}, "patch_norm = False, which swin does not know"),
        ("beit", {"use_relative_position_bias": False}, "which have no such weight"),
        ("beit", {"use_shared_relative_position_bias": True}, r"no tensor encoder\.relative_position_bias"),
        ("beit", {"layer_scale_init_value": 0}, "which have no such weight"),
        ("beit", {"num_attention_heads": 4}, r"shape \(28, 3\)"),
        ("qwen3", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_what_would_change_the_map(kind, change, message):
    refused(kind, change, message)


def test_a_window_that_is_not_said_is_the_usual_one():
    model = tiny("mistral")
    config = model.config.to_dict()
    del config["sliding_window"]
    usual = network_from(model.state_dict(), None, config)
    without = network_from(model.state_dict(), None, config | {"sliding_window": None})
    assert {len(one.table) for one in usual.layers[0].encodings} == {2 * 4096 - 1}
    assert without.layers[0].encodings is None
    refused("llama", {"sliding_window": 3}, "sliding_window = 3")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("t5", {"relative_attention_max_distance": 20}),
        ("t5", {"layer_norm_epsilon": 1e-2}),
        ("mpnet", {"layer_norm_eps": 1e-2}),
        ("mpt", {"attn_config": {"softmax_scale": 0.3}}),
        ("opt", {"activation_function": "gelu"}),
        ("opt", {"do_layer_norm_before": False}),
        ("modernbert", {"local_attention": 2}),
        ("modernbert", {"global_attn_every_n_layers": 1}),
        ("modernbert", {"global_rope_theta": 10.0}),
        ("modernbert", {"hidden_activation": "silu"}),
        ("esm", {"token_dropout": False}),
        ("gemma", {"rope_theta": 100.0}),
        ("mistral", {"sliding_window": 5}),
        ("mistral", {"sliding_window": 11}),  # of 12 tokens
        ("gemma", {"hidden_act": "silu"}),
        ("qwen3", {"rope_theta": 100.0}),
        ("gpt_neox", {"use_parallel_residual": False}),
        ("clip_text_model", {"hidden_act": "gelu"}),
        ("clip_vision_model", {"layer_norm_eps": 1e-2}),
        ("siglip_vision_model", {"hidden_act": "relu"}),
        ("bart", {"scale_embedding": False}),
        ("whisper", {"activation_function": "relu"}),
        ("deit", {"layer_norm_eps": 1e-2}),
        ("yolos", {"num_attention_heads": 4}),
        ("beit", {"hidden_act": "relu"}),
    ],
)
def test_what_is_read_changes_the_map_as_it_changes_the_reference(kind, change):
    """`network_from` compares each with the reference of its settings."""
    model = tiny(kind)
    config = model.config.to_dict()
    before, after = (network_from(model.state_dict(), None, settings) for settings in (config, config | change))
    assert after.comparison.error < 1e-10
    tokens = 12 if before.window is None else before.window.tokens
    x = torch.randn(tokens, before.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    same = torch.allclose(before.forward(x), after.forward(x), rtol=1e-6)
    ids = [3, 1, 4]
    assert not same or abs(before.embedding(ids) - after.embedding(ids)).max() > 1e-6
