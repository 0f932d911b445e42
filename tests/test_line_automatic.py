# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""What grows most through any map of tokens, differentiated: against chains, dense derivatives and planted gains."""

import inspect
import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_line_check import KINDS, STATE, N
from torch import nn

import tokenwaves
from dispersion import ArgumentError
from models.adapters.network import Network
from models.families import network_from
from models.line import line_check
from models.subject import Subject

D = len(STATE)
STATES = torch.tensor(np.random.default_rng(0).normal(size=(N, D)))


def dense(layers, x):
    """(nd, nd) the derivative of `layers` at `x`, by reverse mode."""
    x, product = torch.as_tensor(x), np.eye(x.shape[0] * x.shape[1])
    for layer in layers:
        product = torch.func.jacrev(layer)(x).reshape(len(product), -1).detach().numpy() @ product
        x = layer(x).detach()
    return product


def assert_leading(found, derivative, rtol=1e-9):
    """`found` is confirmed, and its patterns are leading singular vectors of `derivative`."""
    assert found.confirmed, found.verdict
    assert found.source == "derivatives"
    count = len(found.gain)
    np.testing.assert_allclose(found.gain, np.linalg.svd(derivative)[1][:count], rtol=rtol)
    inputs = found.inputs.reshape(count, -1)
    np.testing.assert_allclose(inputs @ inputs.T, np.eye(count), atol=1e-9)
    np.testing.assert_allclose(found.expected.reshape(count, -1), inputs @ derivative.T, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_as_chains_predict(kind):
    """Two routes, Theorem 4.1 and automatic differentiation, around a homogeneous state."""
    network = Network(kind, KINDS[kind][:2])
    exact = line_check(network.modules, STATE, network.chains(N), patterns=3)
    found = line_check(network.modules, STATE, tokens=N, patterns=3)
    assert (exact.source, found.source) == ("chains", "derivatives")
    assert_same(found, exact)
    assert found.confirmed


def assert_same(found, exact):
    np.testing.assert_allclose(found.gain, exact.gain, rtol=1e-10)
    signs = np.sign(np.einsum("mnd,mnd->m", found.inputs, exact.inputs))[:, None, None]
    np.testing.assert_allclose(signs * found.inputs, exact.inputs, atol=1e-10)
    np.testing.assert_allclose(signs * found.expected, exact.expected, atol=1e-10 * exact.gain[0])


def test_gpt2_itself_as_its_chains_predict():
    """transformers' own blocks, differentiated, against Chains of the checkpoint."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3}
    config = transformers.GPT2Config(**sizes, initializer_range=0.3, attn_implementation="eager")
    net = transformers.GPT2Model(config).double().eval()
    chains = network_from(net.state_dict(), "gpt2", config.to_dict()).chains(9)
    layers = [lambda x, block=block: block(x[None])[0].reshape(x.shape) for block in net.h]
    a = np.random.default_rng(1).normal(size=12)
    exact = line_check(layers, a, chains, patterns=3)
    found = line_check(layers, a, tokens=9, patterns=3)
    assert exact.confirmed
    assert found.confirmed
    assert_same(found, exact)


@pytest.mark.parametrize("kind", KINDS)
def test_at_any_state(kind):
    """Tokens that differ: the weights of attention move too, which no chain knows."""
    modules = Network(kind, KINDS[kind][:2]).modules
    found = line_check(modules, STATES.numpy(), patterns=3)
    derivative = dense(modules, STATES)
    assert_leading(found, derivative)
    assert np.abs(dense(modules, np.tile(STATE, (N, 1))) - derivative).max() > 0.1


def test_planted_gains_come_back():
    rng = np.random.default_rng(2)
    left, right = (np.linalg.qr(rng.normal(size=(12, 12)))[0] for _ in range(2))
    gains = np.r_[5.0, 5.0, 3.0, np.linspace(1, 0.1, 9)]
    matrix = torch.tensor(left * gains @ right)
    found = line_check([lambda x: (matrix @ x.ravel()).reshape(x.shape)], np.zeros((4, 3)), patterns=3)
    np.testing.assert_allclose(found.gain, gains[:3], rtol=1e-12)
    np.testing.assert_allclose(np.abs(found.inputs[2].ravel()), np.abs(right[2]), atol=1e-9)
    assert found.confirmed


class StateSpace(nn.Module):
    """x + C h, h_i = exp(−Δ_i A) h_{i−1} + Δ_i B_i x_i, with Δ and B from x if `selective`."""

    def __init__(self, d, size, selective):
        super().__init__()
        self.rates = nn.Parameter(torch.linspace(0.2, 2, size))
        self.inward, self.outward = nn.Linear(d, size), nn.Linear(size, d)
        self.step = nn.Linear(d, 1) if selective else None
        self.double()

    def forward(self, x):
        hidden, outs = x.new_zeros(len(self.rates)), []
        for token in x:
            step = 0.5 if self.step is None else nn.functional.softplus(self.step(token))
            hidden = torch.exp(-step * self.rates) * hidden + step * self.inward(token)
            outs.append(self.outward(hidden))
        return x + torch.stack(outs)


@pytest.mark.parametrize("selective", [False, True])
def test_a_state_space_model(selective):
    torch.manual_seed(1)
    layers = [StateSpace(4, 3, selective) for _ in range(2)]
    x = STATES[:5, :4]
    found = line_check(layers, x.numpy(), patterns=3)
    assert_leading(found, dense(layers, x))
    # a recurrence remembers: what grows most moves towards later tokens
    assert found.centres[0, 1] >= found.centres[0, 0]


def test_mamba(monkeypatch):
    """Layers of transformers' MambaModel, in float64 where it casts to float32."""
    mamba = pytest.importorskip("transformers.models.mamba.modeling_mamba")
    torch.manual_seed(0)
    sizes = {"hidden_size": 4, "num_hidden_layers": 2, "state_size": 3, "expand": 2, "time_step_rank": 1}
    config = mamba.MambaConfig(vocab_size=8, residual_in_fp32=False, initializer_range=0.5, **sizes)
    net = mamba.MambaModel(config).double().eval()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for layer in net.layers:
        layer.norm = nn.RMSNorm(4, 1e-5, dtype=torch.float64)
    layers = [lambda x, layer=layer: layer(x[None])[0] for layer in net.layers]
    found = line_check(layers, STATES[:5, :4].numpy(), patterns=2)
    assert_leading(found, dense(layers, STATES[:5, :4]))


def test_positions_on_a_ring():
    """A map that knows where a token is, though it has no ends."""
    ramp = torch.linspace(0.5, 1.5, N, dtype=torch.float64)[:, None]
    layers = [lambda x: x + ramp * torch.tanh(x.roll(1, 0))] * 3
    found = line_check(layers, STATE, tokens=N, patterns=3)
    assert_leading(found, dense(layers, np.tile(STATE, (N, 1))))
    # it grows most where the ramp is steepest
    assert found.centres[0].mean() > N / 2


def test_a_map_that_maps_all_to_one():
    found = line_check([lambda x: torch.ones_like(x) + 0 * x], STATES.numpy())
    assert found.confirmed
    np.testing.assert_array_equal(found.gain, 0)


class Wrong(torch.autograd.Function):
    """sin x, whose backward is wrong by a hundredth."""

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        return torch.cos(ctx.saved_tensors[0]) * tangent

    @staticmethod
    def backward(ctx, cotangent):
        return 1.01 * torch.cos(ctx.saved_tensors[0]) * cotangent


def fused(x):
    x = x[None, None]
    return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)[0, 0]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda x: x + Wrong.apply(x), "derivative of reverse mode .* off the transpose of forward mode's"),
        (torch.no_grad()(torch.sin), "derivative of reverse mode .* no no_grad"),
        (lambda x: x + 1e-4 * torch.no_grad()(torch.sin)(x), "derivative of reverse mode"),
        (lambda x: x + torch.sin(x.detach()), "finite difference along a random direction"),
        (lambda x: nn.functional.dropout(x, 0.5, training=True), "differ .* from run to run"),
        (fused, "fused attention"),
        (lambda x: x + (x - x.detach()).abs().sqrt(), "not finite"),
        (lambda x: x.float(), "a result in torch.float32"),
        (lambda x: x[:1], r"a result of shape \(1, 8\)"),
        (nn.Linear(D, D), "weight in torch.float32"),
        (nn.Sequential(nn.Linear(D, D).double(), nn.Dropout(0.1)), "training mode, with dropout"),
        ("layer", "got str"),
    ],
)
def test_refused_in_one_line(layer, words):
    """The second layer, at the image of the first."""
    with pytest.raises(ArgumentError, match=f"fn: .*{words}") as caught:
        line_check([torch.tanh, layer], STATES.numpy())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: line_check([], STATE), "layers: got no layer"),
        (
            lambda: line_check([torch.tanh], STATE),
            r"state: got shape \(8,\); accepted: \(n, d\), or \(d,\) and tokens=n",
        ),
        (lambda: line_check([torch.tanh], STATES, tokens=N + 1), r"state: got shape \(7, 8\) and 8 tokens"),
        (lambda: line_check([torch.tanh], STATES[None]), r"state: got shape \(1, 7, 8\)"),
        (lambda: line_check([torch.tanh], np.full((N, D), np.nan)), "state"),
        (lambda: line_check([torch.tanh], STATE, tokens=1), "tokens"),
        (lambda: line_check([torch.tanh], STATES, patterns=0), "patterns"),
    ],
)
def test_states_that_are_refused(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


def running_mean(x):
    return x + 0.5 * torch.tanh(torch.cumsum(x, 0) / (1 + torch.arange(len(x)))[:, None])


def test_a_subject_without_chains():
    causal = Subject("x", "callable", (running_mean,), (N,), D, boundary="causal")
    assert causal.line_check(STATE).source == "derivatives"
    ring = Subject("x", "callable", (running_mean,), (N,), D)
    assert ring.line_check(STATE) is None
    assert ring.checked(STATE).line.confirmed
    invariant = Subject("x", "callable", (lambda x: x + torch.tanh(x.roll(1, -2)),), (N,), D)
    assert invariant.checked(STATE).line is None


def test_command_on_a_causal_callable(tmp_path, monkeypatch, capsys):
    (tmp_path / "running.py").write_text(f"import torch\n{inspect.getsource(running_mean)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "running", raising=False)
    arguments = ["check", "running:running_mean", "--state", "0.1,0.2", "--tokens", "6", "--layers", "2"]
    for more in (["--boundary", "causal"], []):
        assert tokenwaves.main([*arguments, *more, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["confirmed"]
        assert [pattern["error"] < 1e-8 for pattern in found["patterns"]] == [True] * 6
        assert found["verdict"].startswith("confirmed to ")
    assert tokenwaves.main([*arguments, "--boundary", "causal"]) == 0
    assert "what grows most on the line over 2 layers" in capsys.readouterr().out
