"""Every family: accepted from memory and from its folder, equal to its reference, its growth that of a Jacobian.

python tests/test_families.py prints the table.
"""

import importlib.util
import resource
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("transformers") is None:
    pytest.skip("needs the reference implementations: transformers < 5", allow_module_level=True)

from families import TINY, tiny  # noqa: E402
from families import TOKENS as OF_WINDOW  # noqa: E402

from models.adapters.double import lifted, renewed  # noqa: E402
from models.adapters.registry import families, family_of  # noqa: E402
from models.check import check  # noqa: E402
from models.families import from_module, load_network  # noqa: E402

TOKENS = 6
BUILT_IN = [one for one in families().values() if one.read.__module__.startswith("models.adapters.")]


def test_every_model_type_has_a_tiny_network():
    assert {kind for one in BUILT_IN for kind in one.model_types} == {name.split()[0] for name in TINY}


def family_for(kind):
    return family_of({"model_type": kind.split()[0]})


class Stack:
    """The layers of a reference in float64, called as its own forward pass calls them, with nothing of ours between."""

    def __init__(self, model, kind):
        if family_for(kind).route == "measured":  # its tables are its own
            self.model = model.double()
        else:
            with lifted():  # tables of angles in float64 too
                self.model = type(model)(model.config).double().eval()
            self.model.load_state_dict(model.state_dict())
        self.model.config._attn_implementation = "eager"
        self.model.config.use_cache = False
        self.reference, self.tokens = family_for(kind).reference, OF_WINDOW.get(kind, TOKENS)
        with lifted():
            renewed(self.model, {} if self.reference.tables is None else self.reference.tables(self.model))

    def __call__(self, x):
        with lifted():
            for call in self.reference.calls(self.model, self.tokens).calls:
                x = call(x)
        return x


def jacobian(stack, state):
    """(N, d, N, d) of the whole stack at 1⊗`state`, by reverse-mode differentiation."""
    x = torch.tensor(np.tile(state, (stack.tokens, 1)))
    return torch.autograd.functional.jacobian(stack, x).numpy()


def growth_by_wavenumber(derivative):
    """(N/2+1,) spectral radius of Σ_r R_r e^{−iqr} at q = 2πk/N, R_r the derivative of token r by token 0."""
    q = 2 * np.pi * np.arange(TOKENS // 2 + 1) / TOKENS
    symbols = np.einsum("kr,rij->kij", np.exp(-1j * np.outer(q, np.arange(TOKENS))), derivative[:, :, 0])
    return np.abs(np.linalg.eigvals(symbols)).max(-1)


def row(kind, folder):
    """(family, route, forward error, growth error, seconds, MB) of the tiny network of this model type."""
    start, model = time.perf_counter(), tiny(kind)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    network = from_module(model)
    model.save_pretrained(folder)
    saved = load_network(folder)
    tokens = OF_WINDOW.get(kind, TOKENS)
    x = np.random.default_rng(0).normal(size=(tokens, network.d))
    assert torch.equal(network.modules[-1](torch.tensor(x)), saved.modules[-1](torch.tensor(x)))
    state = np.random.default_rng(1).normal(size=network.d)
    found = check(network, state, tokens)
    seconds = time.perf_counter() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert found.confirmed
    assert "confirmed against the network" in found.verdict

    stack = Stack(tiny(kind), kind)
    with torch.no_grad():
        theirs, mine = stack(torch.tensor(x)), torch.tensor(x)
        for module in network.modules:
            mine = module(mine)
    forward = float((mine - theirs).abs().max() / theirs.abs().max())
    derivative = jacobian(stack, state)
    if found.line is None:
        expected = growth_by_wavenumber(derivative)[[mode.k for mode in found.modes]]
        growth = np.abs(found.growth / expected - 1).max()
    else:
        size = tokens * network.d
        expected = np.linalg.svd(derivative.reshape(size, size), compute_uv=False)
        growth = np.abs(found.line.gain / expected[: len(found.line.gain)] - 1).max()
    return network.family, family_for(kind).route, forward, float(growth), seconds, memory


@pytest.mark.parametrize("kind", sorted(TINY))
def test_a_family(kind, tmp_path):
    family, _, forward, growth, _, _ = row(kind, tmp_path)
    assert family == family_for(kind).name
    assert forward < 1e-10
    assert growth < 1e-9


def around(kind):
    """The layers of a reference with its patches on a torus: their bias is that of the shortest offset."""
    model, size = tiny(kind).double(), 3
    at = torch.arange(size**2)
    offsets = [(at[:, None] // step - at[None] // step) % size for step in (size, 1)]
    rows, columns = (torch.where(one > size // 2, one - size, one) + size - 1 for one in offsets)
    index = rows * (2 * size - 1) + columns
    if kind == "swin":
        layers = model.encoder.layers[0].blocks
        for layer in layers:
            layer.attention.self.relative_position_index = index
        return lambda x: run(layers, x, lambda layer, x: layer(x, (size, size))[0])
    layers = model.encoder.layer

    def patches_alone(layer, x):
        attention = layer.attention.attention
        table = attention.relative_position_bias.relative_position_bias_table
        attention.has_relative_position_bias = False  # it is given here
        return layer(x, relative_position_bias=table[index].permute(2, 0, 1)[None])[0]

    return lambda x: run(layers, x, patches_alone)


def run(layers, x, call):
    x = x[None]
    for layer in layers:
        x = call(layer, x)
    return x[0]


@pytest.mark.parametrize("kind", ["swin", "beit"])
def test_a_window_closed_to_a_torus(kind):
    """J(q) of the kernel in closed form is that of the reference's own layers with the bias of a torus."""
    network, size = from_module(tiny(kind)), 3
    state = np.random.default_rng(1).normal(size=network.d)
    found = check(network, state, boundary="periodic")
    assert found.confirmed
    x, theirs = torch.tensor(np.tile(state, (size**2, 1))), around(kind)
    with lifted():
        derivative = torch.autograd.functional.jacobian(theirs, x).numpy()
    response = derivative[:, :, 0].reshape(size, size, network.d, network.d)
    expected = np.abs(np.linalg.eigvals(np.fft.fft2(response, axes=(0, 1)))).max(-1)
    assert found.predicted.growth.shape == (size, size)
    np.testing.assert_allclose(found.predicted.growth, expected, rtol=1e-10)
    assert np.ptp(expected) > 1e-3


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    print("| model type | family | route | forward pass | growth | seconds | MB |\n|---|---|---|---|---|---|---|")
    for kind in sorted(TINY):
        with TemporaryDirectory() as folder:
            family, route, forward, growth, seconds, memory = row(kind, folder)
        print(f"| `{kind}` | `{family}` | {route} | {forward:.0e} | {growth:.0e} | {seconds:.1f} | {memory:.0f} |")
