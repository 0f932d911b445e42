"""The network itself is the judge: a rebuilt network is that of its reference, or is refused in one line."""

import importlib.util
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tokenwaves  # noqa: E402
from dispersion import ArgumentError, LayerNorm  # noqa: E402
from models.adapters import Layer, Network  # noqa: E402
from models.check import check  # noqa: E402
from models.families import first_difference, from_module, load_network, network_from, own_layers  # noqa: E402

REFERENCE = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs the reference implementations: transformers < 5"
)
SMALL = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 20}
GPT = {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 16, "vocab_size": 20}
VIT = {**SMALL, "image_size": 8, "patch_size": 2}
DINO = {name: value for name, value in VIT.items() if name not in ("intermediate_size", "vocab_size")}
ROTARY = {**SMALL, "num_attention_heads": 6, "num_key_value_heads": 2}


def scrambled(model, seed=0):
    """`model` in eval mode with every parameter random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = name.endswith("weight") and parameter.ndim == 1
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + gain)
    return model.eval()


def made(kind, **settings):
    """The model of transformers of this `kind`, its weights random and in float32."""
    import transformers

    config = getattr(transformers, f"{kind.removesuffix('ForMaskedLM').removesuffix('ForCausalLM')}Config")
    small = {"max_position_embeddings": 16} if kind.startswith(("Bert", "Roberta", "Yoso")) else {}
    name = kind if kind.endswith("LM") else f"{kind}Model"
    return scrambled(getattr(transformers, name)(config(**small, **settings)))


LIVE = {
    "Bert": SMALL | {"hidden_act": "gelu_new"},
    "BertForMaskedLM": SMALL,
    "Albert": SMALL | {"embedding_size": 12, "num_hidden_groups": 2, "num_hidden_layers": 4},
    "GPT2": GPT,
    "Llama": ROTARY | {"rope_theta": 500.0},
    "LlamaForCausalLM": ROTARY | {"rope_theta": 500.0, "attention_bias": True, "mlp_bias": True},
    "Mistral": ROTARY,
    "Qwen2": ROTARY,
    "ViT": VIT,
    "Dinov2": DINO,
}
SINGLE = ("Llama", "LlamaForCausalLM", "Mistral", "Qwen2", "ViT", "Dinov2")


@REFERENCE
@pytest.mark.parametrize("kind", LIVE)
def test_a_live_model_and_its_folder_are_compared_with_the_reference(kind, tmp_path):
    model = made(kind, **LIVE[kind])
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    live = from_module(model)
    model.save_pretrained(tmp_path)
    saved = load_network(tmp_path)
    x = torch.tensor(np.random.default_rng(0).normal(size=(6, 24)))
    assert torch.equal(live.forward(x), saved.forward(x))
    for network in (live, saved):
        assert network.comparison.error < 1e-10
        assert "transformers" in network.comparison.note
        # computing in float32 inside is seen, and only there
        assert (network.comparison.single is not None) == (kind in SINGLE)
        if kind in SINGLE:
            assert 1e-9 < network.comparison.single < 1e-5
            assert "float32" in network.comparison.note
    for name, parameter in model.named_parameters():  # the model is left as it was
        assert torch.equal(parameter, before[name])
    assert parameter.dtype == torch.float32


@REFERENCE
@pytest.mark.parametrize("shards", ["model.safetensors", "pytorch_model.bin"])
def test_a_folder_of_several_files(shards, tmp_path):
    model = made("Bert", **SMALL)
    model.save_pretrained(tmp_path, max_shard_size="6KB", safe_serialization=shards.startswith("model"))
    assert (tmp_path / f"{shards}.index.json").is_file()
    assert load_network(tmp_path).comparison.error < 1e-12
    index = json.loads((tmp_path / f"{shards}.index.json").read_text())
    index["weight_map"] = dict.fromkeys(index["weight_map"], "../elsewhere.safetensors")
    (tmp_path / f"{shards}.index.json").write_text(json.dumps(index))
    with pytest.raises(ArgumentError, match="a JSON list of files beside it"):
        load_network(tmp_path)


@REFERENCE
@pytest.mark.parametrize("cast", ["half", "bfloat16", "double"])
def test_the_first_names_of_norms_and_other_precisions(cast, tmp_path):
    model = getattr(made("BertForMaskedLM", **SMALL), cast)()
    model.save_pretrained(tmp_path)
    found, live = load_network(tmp_path), from_module(model.train())
    assert model.training
    assert found.comparison.error < 1e-12
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {}
    for name, tensor in model.state_dict().items():
        end = next((end for end in names if name.endswith(end)), None)
        old[name if end is None else name.removesuffix(end) + names[end]] = tensor
    first = network_from(old, "bert", model.config.to_dict())
    x = torch.tensor(np.random.default_rng(0).normal(size=(6, 24)))
    for network in (found, first):
        assert torch.equal(network.forward(x), live.forward(x))
    assert any("half precision" in note for note in found.notes) == (cast != "double")


# Inputs that were once misread


def one_line(call, *parts):
    with pytest.raises(ArgumentError) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert all(part in str(refused.value) for part in parts), refused.value


@REFERENCE
@pytest.mark.parametrize(
    ("kind", "settings", "family"), [("OpenAIGPT", GPT, "gpt2"), ("Yoso", SMALL, "bert"), ("Roberta", SMALL, "bert")]
)
def test_another_architecture_under_the_same_names(kind, settings, family):
    model = made(kind, **settings)
    config = model.config.to_dict()
    one_line(lambda: network_from(model.state_dict(), family, config), "model_type", model.config.model_type)
    renamed = config | {"model_type": family}
    untyped = {name: value for name, value in config.items() if name != "model_type"}
    if kind == "OpenAIGPT":
        one_line(lambda: network_from(model.state_dict(), family, renamed), "afn = 'gelu'")
        one_line(lambda: network_from(model.state_dict(), family, untyped), "no activation_function")
    if kind == "Yoso":
        one_line(lambda: network_from(model.state_dict(), family, renamed), "max_position_embeddings = 16")
        longer = renamed | {"max_position_embeddings": 18}
        one_line(lambda: network_from(model.state_dict(), family, longer), "which bert does not know")


@REFERENCE
def test_post_norm_gpt_misread_as_gpt2_is_no_confirmation():
    """The weights of another network, and the settings of a GPT-2: then it is a GPT-2, and judged as one."""
    model = made("OpenAIGPT", **GPT)
    network = network_from(
        model.state_dict(), "gpt2", {**GPT, "activation_function": "gelu", "layer_norm_epsilon": 1e-5}
    )
    assert network.comparison is None
    found = check(network, "zeros", 4)
    assert "for the layers as rebuilt" in found.verdict
    assert "against the network" not in found.verdict


TIMM = {"num_heads": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "block_fn": "Block"}


def timm_tensors():
    sizes = {"attn.qkv": (36, 12), "attn.proj": (12, 12), "mlp.fc1": (20, 12), "mlp.fc2": (12, 20)}
    shapes = {f"blocks.0.{name}.{part}": size[: 2 - (part == "bias")] for name, size in sizes.items() for part in PARTS}
    shapes |= {f"{name}.{part}": (12,) for name in ("blocks.0.norm1", "blocks.0.norm2", "norm") for part in PARTS}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


PARTS = ("weight", "bias")


def straight_timm(tensors, x, act):
    """A pre-LN block and the norm after it, straight from their description."""

    def norm(name, y):
        return nn.functional.layer_norm(y, (12,), tensors[f"{name}.weight"], tensors[f"{name}.bias"], 1e-6)

    def linear(name, y):
        return nn.functional.linear(y, tensors[f"blocks.0.{name}.weight"], tensors[f"blocks.0.{name}.bias"])

    q, k, v = linear("attn.qkv", norm("blocks.0.norm1", x)).reshape(-1, 3, 3, 4).permute(1, 2, 0, 3)
    mixed = (torch.softmax(q @ k.mT / 2, -1) @ v).transpose(0, 1).flatten(1)
    y = x + linear("attn.proj", mixed)
    return norm("norm", y + linear("mlp.fc2", act(linear("mlp.fc1", norm("blocks.0.norm2", y)))))


def test_a_timm_checkpoint_says_what_its_blocks_are():
    tensors = timm_tensors()
    for name in TIMM:  # the same names are in a ResPostBlock, and with QuickGELU
        rest = {key: value for key, value in TIMM.items() if key != name}
        one_line(lambda: network_from(tensors, "vit", rest), f"no {name}")  # noqa: B023
    one_line(
        lambda: network_from(tensors, "vit", TIMM | {"block_fn": "ResPostBlock"}), "block_fn = 'ResPostBlock'", "Block"
    )
    x = torch.tensor(np.random.default_rng(0).normal(size=(5, 12)))
    doubled = {name: tensor.double() for name, tensor in tensors.items()}
    for name, act in {"gelu": nn.functional.gelu, "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y)}.items():
        network = network_from(tensors, "vit", TIMM | {"hidden_act": name})
        torch.testing.assert_close(network.forward(x), straight_timm(doubled, x, act), rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"init_values": 0.3}, {"act": "QuickGELU"}, {"pre_norm": True}])
def test_live_timm(options):
    try:
        import timm
        from timm.models.vision_transformer import ResPostBlock
    except Exception as error:  # a torchvision that does not fit raises whatever it raises
        pytest.skip(f"needs timm and a torchvision that fits: {error}")

    sizes = {"embed_dim": 24, "num_heads": 3, "depth": 2, "img_size": 32, "patch_size": 8}
    if "act" in options:
        options = {"act_layer": timm.layers.QuickGELU}
    model = scrambled(timm.create_model("vit_tiny_patch16_224", **sizes, **options))
    assert from_module(model).comparison.error < 1e-12
    other = scrambled(timm.create_model("vit_tiny_patch16_224", **sizes, block_fn=ResPostBlock))
    one_line(lambda: from_module(other), "ResPostBlock")


def test_an_encoder_says_its_settings():
    layer = scrambled(nn.TransformerEncoderLayer(12, 3, 16, activation="gelu", layer_norm_eps=1e-3))
    settings = {"nhead": 3, "norm_first": False, "activation": "gelu", "layer_norm_eps": 1e-3}
    for name in settings:
        rest = {key: value for key, value in settings.items() if key != name}
        one_line(lambda: network_from(layer.state_dict(), "encoder", rest), f"no {name}")  # noqa: B023
    x = torch.tensor(np.random.default_rng(0).normal(size=(5, 12)))
    network = network_from(layer.state_dict(), "encoder", settings)
    with torch.no_grad():
        torch.testing.assert_close(network.forward(x), layer.double()(x), rtol=0, atol=1e-12)


@REFERENCE
def test_rope_parameters_alone(tmp_path):
    model = made("Llama", **ROTARY, rope_theta=500.0)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_theta"]

    def network(parameters):
        (tmp_path / "config.json").write_text(json.dumps(config | {"rope_parameters": parameters}))
        return load_network(tmp_path)

    x = torch.tensor(np.random.default_rng(0).normal(size=(6, 24)))
    for parameters in ({"rope_theta": 500.0}, {"rope_theta": 500.0, "rope_type": "default"}):
        found = network(parameters)
        assert found.comparison.error < 1e-10
        assert torch.equal(found.forward(x), from_module(model).forward(x))
    assert not torch.allclose(network({"rope_type": "default"}).forward(x), from_module(model).forward(x))
    one_line(lambda: network({"rope_theta": 500.0, "rope_type": "dynamic"}), "rope_type = 'dynamic'")
    one_line(lambda: network({"rope_theta": 500.0, "factor": 2.0}), "factor = 2.0")
    config["rope_theta"] = 1000.0
    one_line(lambda: network({"rope_theta": 500.0}), "rope_theta = 1000.0", "500.0")


# Modules of torch in memory


def assert_right(stack, network):
    x = torch.tensor(np.random.default_rng(0).normal(size=(5, 12)))
    with torch.no_grad():
        torch.testing.assert_close(network.forward(x), stack.double()(x), rtol=0, atol=1e-12)
    assert network.comparison.error < 1e-14
    assert "torch" in network.comparison.note


@pytest.mark.parametrize(
    "activation",
    ["relu", nn.functional.gelu, nn.GELU(approximate="tanh"), torch.tanh, nn.SiLU(), lambda x: x.relu() ** 2],
)
def test_activations_are_known_by_what_they_do(activation):
    layer = scrambled(nn.TransformerEncoderLayer(12, 3, 16, activation=activation))
    assert_right(layer, from_module(layer))
    layer.activation = nn.Softplus()
    one_line(lambda: from_module(layer), "the activation Softplus")


@pytest.mark.parametrize("batch_first", [True, False])
def test_each_layer_is_read_on_its_own(batch_first):
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=batch_first)
    stack = scrambled(nn.TransformerEncoder(layer, 4, nn.LayerNorm(12, eps=1e-2), enable_nested_tensor=False))
    stack.layers[1].norm_first = True
    stack.layers[2].activation = nn.GELU(approximate="tanh")
    stack.layers[2].norm2.eps = 1e-1
    stack.layers[3].norm1.eps = 1e-3
    network = from_module(stack)
    assert [layer.placement for layer in network.layers] == ["post", "pre", "post", "post"]
    assert_right(stack, network)


def test_a_compiled_module_is_what_it_was():
    layer = scrambled(nn.TransformerEncoderLayer(12, 3, 16))
    assert_right(layer, from_module(torch.compile(layer)))
    assert first_difference(torch.compile(layer)) is None


def test_attention_that_is_more_than_attention():
    layer = scrambled(nn.TransformerEncoderLayer(12, 3, 16))
    layer.self_attn = scrambled(nn.MultiheadAttention(12, 3, add_zero_attn=True))
    one_line(lambda: from_module(layer), "add_zero_attn")
    layer.self_attn = scrambled(nn.MultiheadAttention(12, 3, add_bias_kv=True))
    one_line(lambda: from_module(layer), "add_bias_kv")
    layer.self_attn = scrambled(nn.MultiheadAttention(12, 3))
    layer.norm2 = nn.RMSNorm(12)
    one_line(lambda: from_module(layer), "norm2", "RMSNorm")


class Doubled(nn.TransformerEncoderLayer):
    """Its feed-forward counts twice."""

    def _ff_block(self, x):
        return 2 * super()._ff_block(x)


def test_a_forward_of_ones_own_is_seen():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, 16), 3, enable_nested_tensor=False)
    stack.layers[1] = Doubled(12, 3, 16, dropout=0.0)
    one_line(lambda: from_module(scrambled(stack)), "layer 1 (", "TransformerEncoder")


# Where a network differs


@REFERENCE
@pytest.mark.parametrize("size", [1e-1, 1e-8])
def test_the_first_layer_and_part_that_differ(size):
    model = made("Bert", **SMALL | {"num_hidden_layers": 4})
    assert first_difference(model) is None
    layers = model.encoder.layer
    layers[3].output.LayerNorm.eps = size
    layers[2].attention.output.LayerNorm.eps = size
    found = first_difference(model)
    assert (found.layer, found.part) == (2, "attention norm")
    assert found.size < size
    one_line(lambda: from_module(model), "layer 2 (attention norm)", "e-")
    layers[1].intermediate.intermediate_act_fn = nn.SiLU()
    assert (first_difference(model).layer, first_difference(model).part) == (1, "activation")
    layers[0].attention.self.register_forward_hook(lambda _, args, out: (out[0] * (1 + size), *out[1:]))
    assert (first_difference(model).layer, first_difference(model).part) == (0, "attention")


@REFERENCE
def test_embeddings_and_last_norms_are_compared_too():
    model = made("Bert", **SMALL)
    model.embeddings.register_forward_hook(lambda _, args, out: out * 1.001)
    one_line(lambda: from_module(model), "embedding by")
    model = made("GPT2", **GPT)
    model.ln_f.eps = 1e-2
    one_line(lambda: from_module(model), "final norm by")


@REFERENCE
def test_tables_of_ones_own_are_no_rounding():
    """Angles that differ by more than float32 rounds: seen, though the reference computes in float32 inside."""
    model = made("Llama", **ROTARY)
    model.rotary_emb.inv_freq *= 1 + 1e-5
    one_line(lambda: from_module(model), "layer 0 (")


@REFERENCE
def test_a_config_that_does_not_fit_the_weights():
    model = made("Bert", **SMALL)
    for change, part in [
        ({"hidden_size": 48}, "hidden_size = 48"),
        ({"num_hidden_layers": 3}, "num_hidden_layers = 3"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"hidden_act": "silu", "window": 3}, "window = 3, which bert does not know"),
        ({"is_decoder": True}, "is_decoder = True"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
    ]:
        one_line(lambda: network_from(model.state_dict(), "bert", model.config.to_dict() | change), part)  # noqa: B023


# check


@REFERENCE
@pytest.mark.parametrize(("kind", "settings"), [("Bert", SMALL), ("GPT2", GPT), ("Llama", ROTARY), ("ViT", VIT)])
def test_check_of_a_live_model(kind, settings, tmp_path, capsys):
    model = made(kind, **settings)
    found = check(model, shape=5)
    assert found.confirmed
    assert "confirmed against the network to " in found.verdict
    assert (found.line is None) == (kind in ("Bert", "ViT"))
    model.save_pretrained(tmp_path)
    assert tokenwaves.main(["check", str(tmp_path), "--tokens", "5", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"].startswith("confirmed against the network to ")
    assert any("transformers" in note for note in printed["notes"])
    if kind == "Bert":
        np.testing.assert_allclose([wave["predicted"] for wave in printed["waves"]], found.growth, rtol=1e-12)
        assert check(tmp_path, "token:3", 5).confirmed
        assert check(from_module(model), np.zeros(24), (5,)).confirmed


@REFERENCE
@pytest.mark.parametrize(
    ("kind", "settings", "layers"),
    [
        ("GPTNeoX", SMALL, r"layers\.\d+"),
        ("Mamba", {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 20, "state_size": 4}, r"layers\.\d+"),
    ],
)
def test_check_of_a_network_of_any_kind(kind, settings, layers):
    model = made(kind, **settings)
    network = own_layers(model, layers, "causal")
    assert len(network.layers) == 2
    found, state = check(network, "token:3", 4), network.embedding.state(3)
    assert found.confirmed
    assert found.verdict.startswith("confirmed against the network to ")
    double = made(kind, **settings).double()
    ids = torch.full((1, 4), 3)
    embedded = double.get_input_embeddings()(ids).detach()
    np.testing.assert_allclose(embedded[0, 0].numpy(), state, rtol=1e-12)

    def whole(x):  # the network as it is, before its last norm
        seen = []
        name = "final_layer_norm" if kind == "GPTNeoX" else "norm_f"
        handle = getattr(double, name).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        double(inputs_embeds=x[None], use_cache=False)
        handle.remove()
        return seen[0][0]

    size = 4 * network.d
    derivative = torch.autograd.functional.jacobian(whole, embedded[0]).reshape(size, size)
    expected = np.linalg.svd(derivative.numpy(), compute_uv=False)[: len(found.line.gain)]
    np.testing.assert_allclose(found.line.gain, expected, rtol=1e-5)  # softmax and angles of the one in float32
    one_line(lambda: own_layers(model, r"none\.\d+"), "layers")


def test_check_of_an_unknown_network():
    one_line(lambda: check(nn.Linear(2, 2)), "module", "Linear")
    one_line(lambda: check([nn.Linear(2, 2).double()]), "state")
    one_line(lambda: check([nn.Linear(2, 2).double()], np.zeros(2)), "shape")
    layer = scrambled(nn.TransformerEncoderLayer(12, 3, 16))
    one_line(lambda: check(layer, shape=(2, 2)), "shape")
    assert check(layer, np.linspace(-1, 1, 12), 4).confirmed


def test_a_network_that_was_not_compared_is_as_rebuilt():
    rng, norm = np.random.default_rng(0), LayerNorm(np.ones(4))
    maps = {name: 0.3 * rng.normal(size=(4, 4)) for name in ("query", "key", "value", "out", "weight_in", "weight_out")}
    layer = Layer(2, attention_norm=norm, feedforward_norm=norm, placement="post", activation="tanh", **maps)
    found = check(Network("mine", (layer,)), np.linspace(-1, 1, 4), 5)
    assert found.confirmed
    assert found.verdict.startswith("confirmed for the layers as rebuilt to ")
