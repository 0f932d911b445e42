"""The trained rotary network of nanoguard, where it is installed: reference, closed form, derivatives, waves.

pip install --no-deps metatronnanoguard==0.1.0
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dispersion import through_layers  # noqa: E402
from models.check import check  # noqa: E402
from models.measured import measure  # noqa: E402

FOLDER = Path(__file__).parents[1] / "examples" / "trained"
SPEC = importlib.util.find_spec("nanoguard")
if SPEC is None:
    pytest.skip("nanoguard is not installed", allow_module_level=True)
PACKAGE = Path(SPEC.submodule_search_locations[0])
TOKEN, N, MEMORY = 100, 6, 2**33


def loaded(name, path):
    """The module in the file `path`, under a `name` of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


theory = loaded("nanoguard_network", FOLDER / "nanoguard_network.py")


@pytest.fixture(scope="module")
def network():
    return theory.load(PACKAGE / theory.MODEL)


@pytest.fixture(scope="module")
def x0(network):
    return network.tokens(TOKEN)


@pytest.fixture(scope="module")
def transfer(network, x0):
    return network.transfer(x0, N)


@pytest.fixture(scope="module")
def ring(network):
    return network.module(ring=True)


@pytest.fixture(scope="module")
def reference():
    """The network of the package, its file run alone, in float64."""
    model = loaded("nanoguard_reference", PACKAGE / "model.py").Classifier.from_checkpoint(str(PACKAGE / theory.MODEL))
    model = model[0].double()
    model.cls_head.float()  # it casts what it takes
    return model


def run(model, ids):
    """(N, d) normed output for the tokens `ids` and (d,) what is pooled, in a forward pass of the reference."""
    kept = []
    hooks = [
        model.transformer.h[-1].register_forward_hook(lambda _, __, out: kept.append(out[0])),
        model.cls_norm.register_forward_pre_hook(lambda _, given: kept.append(given[0][0])),
    ]
    with torch.no_grad():
        model(torch.tensor(ids)[None])
    for hook in hooks:
        hook.remove()
    out, pooled = kept
    return torch.nn.functional.rms_norm(out, out.shape[-1:]), pooled


def relative(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def test_the_line_equals_the_reference_with_exact_angles_and_rounding_them_is_seen(network, reference):
    ids = np.random.default_rng(0).integers(0, 8192, size=48)
    with torch.no_grad():
        ours = network.module(ring=False)(torch.tensor(network.tokens(ids)))
    rounded, _ = run(reference, ids)
    assert 1e-6 < relative(ours, rounded) < 1e-3  # bfloat16 cosines and sines, 8 bits

    m = torch.arange(64, dtype=torch.float64)
    angle = torch.arange(1024, dtype=torch.float64)[:, None] / 10000 ** (m / 64)
    kept = reference.cos, reference.sin
    reference.cos, reference.sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
    out, pooled = run(reference, ids)
    reference.cos, reference.sin = kept
    np.testing.assert_allclose(ours, out, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.mean(dim=0), pooled, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [5, 6])
def test_the_ring_is_translation_invariant_and_has_the_logits_of_the_line_where_lags_are_short(network, ring, n):
    x = torch.tensor(network.tokens(np.arange(300, 300 + n)))
    with torch.no_grad():
        torch.testing.assert_close(ring(x.roll(1, 0)), ring(x).roll(1, 0), rtol=0, atol=1e-12)
        q, k = torch.randn(2, 4, n, 128, dtype=torch.float64, generator=torch.manual_seed(0))
        line = network.module(ring=False).layers[0].attention[0].content.products(q, k, None)
        found = ring.layers[0].attention[0].content.products(q, k, None)
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    short = (lag >= -(n // 2)) & (lag < n - n // 2)
    np.testing.assert_allclose(found[:, short], line[:, short], rtol=0, atol=1e-11)
    assert float((found - line)[:, ~short].abs().max()) > 1e-3


def test_homogeneous_states_and_output_are_those_of_the_map(network, ring, x0, transfer):
    x = torch.tensor(x0).expand(N, -1)
    with torch.no_grad():
        for layer, z, relation, r, c in zip(
            ring.layers, network.states(x0), transfer.relations, network.residual, network.reinjection, strict=True
        ):
            np.testing.assert_allclose(r * x[0].numpy() + c * x0, z, rtol=1e-12)
            x = layer(torch.tensor(z).expand(N, -1))
            np.testing.assert_allclose(x[2], relation.block.homogeneous_map(z), rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(ring(torch.tensor(x0).expand(N, -1))[1], network.norm(x[0].numpy()), atol=1e-12)


def test_waves_through_the_derivative_of_the_ring_as_the_closed_form_says(network, ring, x0, transfer):
    """Random features at every wavenumber: each layer with J_l(q), the whole network with G(q)."""
    generator = np.random.default_rng(1)
    v = generator.normal(size=network.d)
    maps = [*zip(ring.layers, network.states(x0), transfer.relations, strict=True), (ring, x0, transfer)]
    for fn, state, relation in maps:
        base = torch.tensor(state).repeat(N, 1)
        for k in range(N):
            wave = np.exp(2j * np.pi * k * np.arange(N) / N)[:, None]
            with torch.no_grad():
                real, imag = (
                    torch.func.jvp(fn, (base,), (torch.tensor(part * v),))[1].numpy() for part in (wave.real, wave.imag)
                )
            assert relative(real + 1j * imag, wave * (relation.matrices[k] @ v)) < 1e-12


def test_the_transfer_is_a_product_of_pairs(network, x0, transfer):
    """G is the upper half of the product of [[r J, c J], [0, I]] on pairs (x, x0), which starts at (x0, x0)."""
    d, k = network.d, 1
    pair = np.vstack([np.eye(d), np.eye(d)]).astype(complex)
    for r, c, relation in zip(network.residual, network.reinjection, transfer.relations, strict=True):
        pair = np.vstack([relation.matrices[k] @ (r * pair[:d] + c * pair[d:]), pair[d:]])
    assert relative(transfer.final @ pair[:d], transfer.matrices[k]) < 1e-13
    np.testing.assert_allclose(transfer.matrices[-1], transfer.matrices[1].conj(), atol=1e-13)
    # off the grid and on it
    np.testing.assert_allclose(transfer(transfer.wavenumbers[2]), transfer.matrices[2], atol=1e-12)
    # without re-injection it would be the product along the orbit
    plain = through_layers([relation.block for relation in transfer.relations], network.states(x0)[0])
    assert relative(transfer.matrices[1], transfer.final @ plain.matrices[1] * network.residual.prod()) > 0.1


def test_growth_of_waves_in_the_forward_pass(network, ring, x0, transfer):
    step = 1e-6 * np.linalg.norm(x0)
    for k in range(N // 2 + 1):
        mode = transfer.mode(k)
        field = np.exp(1j * mode.q * np.arange(N))[:, None] * mode.right
        states = x0 + step * np.array([field.real, -field.real, field.imag, -field.imag])
        with torch.no_grad():
            plus, minus, plus_i, minus_i = ring(torch.tensor(states)).numpy()
        response = (plus - minus + 1j * (plus_i - minus_i)) / (2 * step)
        assert relative(response, mode.multiplier * field) < 1e-6
        assert np.linalg.norm(response) / np.linalg.norm(field) == pytest.approx(transfer.growth[k], rel=1e-6)


def test_attention_is_a_small_low_pass_part_of_what_the_network_does(transfer):
    """Around equal tokens: most of G(q) is a token's own path, and what attention adds falls with k."""
    matrices = transfer.matrices[: N // 2 + 1]
    share = np.linalg.norm(matrices - transfer.alone, axis=(-2, -1)) / np.linalg.norm(matrices, axis=(-2, -1))
    assert 0.05 < share[0] < 0.2
    assert (share[1:] < share[0] / 2).all()
    np.testing.assert_allclose(transfer.symbols[..., 0], 1)


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 7])
def test_the_closed_form_is_what_is_measured(network, ring, x0, n):
    transfer = network.transfer(x0, n)
    maps = [*zip(ring.layers, network.states(x0), transfer.relations, strict=True), (ring, x0, transfer)]
    for fn, state, relation in maps:
        found = measure(fn, state, n)
        assert relative(found.matrices, relation.matrices) < 1e-12
        assert found.defect < 1e-13
        assert found.spread < 1e-13


@pytest.mark.slow
def test_check_confirms_the_growth_through_the_whole_network(network, ring, x0, transfer):
    found = check([ring], x0, N, batched=True)
    assert found.confirmed
    predicted = np.array([transfer.growth[mode.k] for mode in found.modes])
    np.testing.assert_allclose(found.measured_growth, predicted, rtol=1e-7)


@pytest.mark.slow
def test_the_line_is_not_translation_invariant(network, x0):
    found = measure(network.module(ring=False), x0, 16, "open")
    assert 1e-3 < found.defect < 1e-2


@pytest.mark.slow
def test_the_script_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr("sys.argv", ["nanoguard_rotary", str(tmp_path)])
    script = loaded("nanoguard_rotary", FOLDER / "nanoguard_rotary.py")
    script.main()
    assert "confirmed to" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"nanoguard_rotary.pdf", "nanoguard_rotary.png"}
