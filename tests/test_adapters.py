"""Adapters reproduce their reference implementations in float64, and their Blocks the layers."""

import importlib.util
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dispersion import ArgumentError, Chain  # noqa: E402
from models.families import from_module, load_network, network_from  # noqa: E402

REFERENCE = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs the reference implementations: transformers < 5"
)
IDS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
SMALL = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "num_hidden_layers": 3}
EAGER = {"attn_implementation": "eager"}
TIMM = {"num_heads": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "block_fn": "Block"}


def scrambled(model, seed=0):
    """`model` in float64 and eval mode with every parameter random, biases and gains too."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = name.endswith("weight") and parameter.ndim == 1
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.2 + gain)
    return model


def softmax_in_float64(monkeypatch):
    """Some references take the softmax in float32, whatever their weights."""

    def softmax(x, dim, dtype=None):
        return torch.softmax(x, dim)

    monkeypatch.setattr(nn.functional, "softmax", softmax)


def hidden_states(model, **inputs):
    with torch.no_grad():
        found = model(**inputs, output_hidden_states=True)
    return [state[0].numpy() for state in found.hidden_states], found.last_hidden_state[0].numpy()


def assert_layer_by_layer(network, states, last, tolerance=1e-12):
    """`states`: what the reference holds before the first layer and after each; `last`: its result."""
    for layer, (module, before) in enumerate(zip(network.modules, states, strict=False)):
        with torch.no_grad():
            after = module(torch.tensor(before)).numpy()
        if layer + 1 < len(network.modules):  # the last state of some references is normalised already
            np.testing.assert_allclose(after, states[layer + 1], rtol=0, atol=tolerance * np.abs(after).max())
    result = network.forward(states[0]).numpy()
    np.testing.assert_allclose(result, last, rtol=0, atol=tolerance * np.abs(last).max())


def assert_blocks_are_the_layers(network, n=9):
    x = np.random.default_rng(1).normal(size=(2, n, network.d))
    for block, module in zip(network.blocks(n), network.modules, strict=True):
        run = block.forward if network.boundary == "periodic" else Chain(block, n, "causal").forward
        expected = module(torch.tensor(x)).numpy()
        np.testing.assert_allclose(run(x), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@REFERENCE
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_bert(activation):
    import transformers

    config = transformers.BertConfig(**SMALL, **EAGER, vocab_size=20, max_position_embeddings=16, hidden_act=activation)
    model = scrambled(transformers.BertModel(config))
    network = network_from(model.state_dict(), "bert", config.to_dict())
    states, last = hidden_states(model, input_ids=torch.tensor(IDS)[None])
    np.testing.assert_allclose(network.embedding(IDS), states[0], atol=1e-13)
    assert_layer_by_layer(network, states, last)
    assert (network.boundary, network.d, len(network.layers)) == ("periodic", 24, 3)
    assert_blocks_are_the_layers(network)


@REFERENCE
@pytest.mark.parametrize("groups", [1, 2])
def test_albert(groups):
    import transformers

    extra = {"num_hidden_groups": groups, "inner_group_num": 1, "hidden_act": "gelu", "embedding_size": 12}
    config = transformers.AlbertConfig(**SMALL | {"num_hidden_layers": 5}, **EAGER, **extra, vocab_size=20)
    model = scrambled(transformers.AlbertModel(config))
    network = network_from(model.state_dict(), "albert", config.to_dict())
    states, last = hidden_states(model, input_ids=torch.tensor(IDS)[None])
    np.testing.assert_allclose(network.embedding(IDS), states[0], atol=1e-13)
    assert_layer_by_layer(network, states, last)
    assert len({id(module) for module in network.modules}) == len({id(block) for block in network.blocks(8)}) == groups
    assert_blocks_are_the_layers(network)


@REFERENCE
@pytest.mark.parametrize("activation", ["gelu_new", "tanh"])
def test_gpt2(activation):
    import transformers

    sizes = {"n_embd": 24, "n_head": 3, "n_layer": 3, "n_positions": 16, "vocab_size": 20}
    config = transformers.GPT2Config(**sizes, **EAGER, activation_function=activation)
    model = scrambled(transformers.GPT2Model(config))
    network = network_from(model.state_dict(), "gpt2", config.to_dict())
    states, last = hidden_states(model, input_ids=torch.tensor(IDS)[None])
    np.testing.assert_allclose(network.embedding(IDS), states[0], atol=1e-13)
    assert_layer_by_layer(network, states, last)
    assert network.boundary == "causal"
    assert_blocks_are_the_layers(network)


@REFERENCE
@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_rotary(kind, monkeypatch):
    import transformers

    settings = {**SMALL, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 20, "rms_norm_eps": 1e-5}
    config = getattr(transformers, f"{kind}Config")(**settings, **EAGER, rope_theta=500.0)
    model = scrambled(getattr(transformers, f"{kind}Model")(config))
    network = network_from(model.state_dict(), "rotary", config.to_dict())
    inputs = {"input_ids": torch.tensor(IDS)[None]}
    # the reference drops to float32 in its norms, rotations and softmax, whatever the weights
    states, last = hidden_states(model, **inputs)
    assert_layer_by_layer(network, states, last, 1e-5)
    in_float64(model, monkeypatch)
    states, last = hidden_states(model, **inputs)
    assert_layer_by_layer(network, states, last)
    assert_blocks_are_the_layers(network)


def in_float64(model, monkeypatch):
    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotation(self, x, position_ids):
        half = torch.arange(0, x.shape[-1] // self.config.num_attention_heads, 2, dtype=torch.float64)
        size = 2 * len(half)
        angle = position_ids[..., None].double() * self.config.rope_theta ** (-half / size)
        return torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)

    softmax_in_float64(monkeypatch)
    monkeypatch.setattr(type(model.norm), "forward", norm)
    monkeypatch.setattr(type(model.rotary_emb), "forward", rotation)


@REFERENCE
@pytest.mark.parametrize("scaled", [False, True])
def test_vit(scaled, monkeypatch):
    import transformers

    softmax_in_float64(monkeypatch)

    sizes = {**SMALL, "image_size": 8, "patch_size": 2}
    if scaled:
        del sizes["intermediate_size"]
        model = transformers.Dinov2Model(transformers.Dinov2Config(**sizes, **EAGER, mlp_ratio=2))
    else:
        model = transformers.ViTModel(transformers.ViTConfig(**sizes, **EAGER))
    model = scrambled(model)
    network = network_from(model.state_dict(), "vit", model.config.to_dict())
    pixels = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    states, last = hidden_states(model, pixel_values=pixels)
    assert_layer_by_layer(network, states, last)
    assert_blocks_are_the_layers(network)
    assert len(network.embedding.positions) == 16
    if scaled:
        timm = network_from(timm_names(model.state_dict()), "vit", TIMM)
        assert_layer_by_layer(timm, states, last)


def timm_names(tensors):
    """The state dict of a DINOv2 of transformers under the names of timm, whose q, k and v are one matrix."""
    renamed = {}
    for name, tensor in tensors.items():
        if ".attention.attention." in name:
            if ".query." not in name:
                continue
            parts = [tensors[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
            name, tensor = name.replace("attention.attention.query", "attn.qkv"), torch.cat(parts)
        for old, new in {
            "encoder.layer.": "blocks.",
            "attention.output.dense": "attn.proj",
            "layer_scale1.lambda1": "ls1.gamma",
            "layer_scale2.lambda1": "ls2.gamma",
            "layernorm.": "norm.",
            "embeddings.position_embeddings": "pos_embed",
            "embeddings.patch_embeddings.projection": "patch_embed.proj",
        }.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_torch_encoder(norm_first, activation, bias):
    options = {"batch_first": True, "norm_first": norm_first, "activation": activation, "bias": bias, "dropout": 0.0}
    layer = nn.TransformerEncoderLayer(24, 3, 40, layer_norm_eps=1e-4, dtype=torch.float64, **options)
    stack = scrambled(nn.TransformerEncoder(layer, 3, nn.LayerNorm(24, eps=1e-4), enable_nested_tensor=False))
    network = from_module(stack)
    x = torch.randn(2, 9, 24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for each, module in zip(stack.layers, network.modules, strict=True):
        for training in (True, False):  # torch takes another path in eval mode
            with torch.no_grad():
                expected = each.train(training)(x)
            torch.testing.assert_close(module(x), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(network.forward(x), stack.train()(x), rtol=0, atol=1e-11)
    assert_blocks_are_the_layers(network)
    alone = from_module(stack.layers[1])
    torch.testing.assert_close(alone.modules[0](x), network.modules[1](x), rtol=0, atol=0)


ENCODER = {"nhead": 3, "norm_first": False, "activation": "relu", "layer_norm_eps": 1e-5}


@pytest.fixture(scope="module")
def tensors():
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    return scrambled(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).state_dict()


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("prefix", ["", "net.encoder."])
def test_checkpoint_files(suffix, prefix, tensors, tmp_path):
    path = tmp_path / f"model.{suffix}"
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    if suffix == "pt":
        torch.save({"epoch": 3, "model_state_dict": named}, path)
    else:
        pytest.importorskip("safetensors.torch").save_file(named, path)
    (tmp_path / "config.json").write_text(json.dumps(ENCODER))
    x = np.random.default_rng(0).normal(size=(4, 12))
    expected = network_from(tensors, "encoder", ENCODER).forward(x)
    assert torch.equal(load_network(path, "encoder").forward(x), expected)
    (tmp_path / "config.json").rename(tmp_path / "other.json")
    assert torch.equal(load_network(path, "encoder", tmp_path / "other.json").forward(x), expected)
    with pytest.raises(ArgumentError, match="config: got no layer_norm_eps"):
        load_network(path, "encoder")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_cast_with_a_note(dtype, tensors):
    network = network_from({name: tensor.to(dtype) for name, tensor in tensors.items()}, "encoder", ENCODER)
    assert [note for note in network.notes if "half precision" in note and str(dtype)[6:] in note]
    assert network.forward(np.ones((4, 12))).dtype == torch.float64
    assert not [note for note in network_from(tensors, "encoder", ENCODER).notes if "half" in note]


@pytest.mark.parametrize(
    ("family", "change", "config", "message"),
    [
        ("diffusion", {}, {}, "family: got 'diffusion'; accepted: .*bert, .*encoder, gpt2"),
        ("bert", {}, {}, "family: got 'bert' for tensors of encoder; accepted: encoder"),
        ("encoder", {"layers.1.linear2.weight": None}, {}, "no tensor layers.1.linear2.weight"),
        (
            "encoder",
            {"layers.1.linear2.weight": torch.ones(12, 17)},
            {},
            r"shape \(12, 17\); accepted: shape \(12, 16\)",
        ),
        ("encoder", {"layers.0.norm1.weight": torch.full((12,), np.nan)}, {}, "norm1.weight with NaN"),
        ("encoder", {"layers.0.norm1.weight": torch.ones(12, dtype=torch.int8)}, {}, "of int8; accepted: float16"),
        ("encoder", {"layers.0.multihead_attn.in_proj_weight": torch.ones(36, 12)}, {}, "which have no such weight"),
        ("encoder", {}, {"activation": "mish"}, "activation: got 'mish'; accepted: tanh, gelu"),
        ("encoder", {}, {"nhead": 5}, "config: got 5 heads for 12 query features"),
        ("encoder", {}, {"nhead": "3"}, "nhead: got '3'; accepted: a whole number"),
    ],
)
def test_what_does_not_fit_is_one_line(family, change, config, message, tensors):
    changed = {name: value for name, value in {**tensors, **change}.items() if value is not None}
    with pytest.raises(ArgumentError, match=message) as caught:
        network_from(changed, family, ENCODER | config)
    assert "\n" not in str(caught.value)


class NotWeights:
    pass


@pytest.mark.parametrize("content", [NotWeights(), [1, 2], {"a": 1}])
def test_files_without_weights(content, tmp_path):
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(ArgumentError, match="checkpoint: got 'model.pt'") as caught:
        load_network(tmp_path / "model.pt", "bert")
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_broken(tmp_path):
    with pytest.raises(ArgumentError, match="no such file"):
        load_network(tmp_path / "none.bin", "bert")
    for name in ("broken.bin", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(ArgumentError, match=name):
            load_network(tmp_path / name, "bert")
    with pytest.raises(ArgumentError, match=r"TransformerEncoder"):
        from_module(nn.Linear(2, 2))


def straight_rotary(tensors, x, heads, theta, eps):
    """A pre-RMSNorm layer with rotary half-split pairs, causal, gated or not, straight from its description."""

    def norm(name, y):
        return tensors[name] * y / np.sqrt((y**2).mean(-1, keepdims=True) + eps)

    size = x.shape[1] // heads
    seen, out = norm("layers.0.input_layernorm.weight", x), np.zeros_like(x)
    q, k, v = (seen @ tensors[f"layers.0.self_attn.{part}_proj.weight"].T for part in "qkv")
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            logits = np.zeros(i + 1)
            for j in range(i + 1):
                for pair in range(size // 2):
                    angle = (i - j) * theta ** (-2 * pair / size)
                    (a, b), (c, d) = (u[t, rows][[pair, pair + size // 2]] for u, t in ((q, i), (k, j)))
                    logits[j] += np.real((a + 1j * b) * np.exp(1j * angle) * (c - 1j * d))
            weights = np.exp(logits / np.sqrt(size))
            mixed = weights @ v[: i + 1, rows] / weights.sum()
            out[i] += tensors["layers.0.self_attn.o_proj.weight"][:, rows] @ mixed
    y = x + out
    z = norm("layers.0.post_attention_layernorm.weight", y)
    inner = z @ tensors["layers.0.mlp.up_proj.weight"].T
    hidden = inner / (1 + np.exp(-inner))
    if "layers.0.mlp.gate_proj.weight" in tensors:
        gate = z @ tensors["layers.0.mlp.gate_proj.weight"].T
        hidden = gate / (1 + np.exp(-gate)) * inner
    return y + hidden @ tensors["layers.0.mlp.down_proj.weight"].T


@pytest.mark.parametrize("gated", [False, True])
def test_rotary_layer_is_a_block(gated):
    generator = np.random.default_rng(0)
    shapes = {f"self_attn.{part}_proj.weight": (8, 8) for part in "qkvo"}
    shapes |= {"input_layernorm.weight": (8,), "post_attention_layernorm.weight": (8,)}
    shapes |= {"mlp.up_proj.weight": (12, 8), "mlp.down_proj.weight": (8, 12)}
    shapes |= {"mlp.gate_proj.weight": (12, 8)} if gated else {}
    tensors = {f"layers.0.{name}": generator.normal(size=shape) for name, shape in shapes.items()}
    config = {
        "num_attention_heads": 2,
        "rope_theta": 50.0,
        "rms_norm_eps": 1e-3,
        "hidden_act": "silu",
        "is_causal": True,
    }
    network = network_from({name: torch.tensor(value) for name, value in tensors.items()}, "rotary", config)
    x = generator.normal(size=(7, 8))
    expected = straight_rotary(tensors, x, 2, 50.0, 1e-3)
    np.testing.assert_allclose(network.forward(x).numpy(), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(Chain(network.blocks(7)[0], 7, "causal").forward(x), expected, rtol=0, atol=1e-12)
    assert network.boundary == "causal"
    for change in ({"rope_scaling": {"type": "linear"}}, {"model_type": "gemma"}):
        with pytest.raises(ArgumentError, match="config: got"):
            network_from({name: torch.tensor(value) for name, value in tensors.items()}, "rotary", config | change)
