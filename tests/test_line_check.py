# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""What grows most on a line of tokens: Chains against forward passes of causal and rotary networks."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tokenwaves
from dispersion import LayerNorm, RMSNorm
from models.adapters.layer import Layer
from models.adapters.network import Network
from models.line import line_check
from models.subject import Subject

N, D, HEADS = 7, 8, 2
STATE = np.linspace(-1, 1, D)


def layer(seed, causal=True, rotary=False, gated=False):
    rng = np.random.default_rng(seed)
    norm = (RMSNorm if rotary else LayerNorm)(rng.uniform(0.5, 1.5, D))
    arrays = dict(zip(("query", "key", "value", "out"), rng.normal(size=(4, D, D)) / np.sqrt(D), strict=True))
    arrays |= {f"{name}_bias": rng.normal(size=D) for name in ("query", "key", "value", "out")}
    arrays |= {"weight_in": rng.normal(size=(9, D)) / np.sqrt(D), "weight_out": rng.normal(size=(D, 9)) / 9}
    arrays["frequencies"] = np.array([0.9, 0.13]) if rotary else None
    if gated:
        arrays["weight_gate"] = rng.normal(size=(9, D)) / np.sqrt(D)
    return Layer(
        HEADS, attention_norm=norm, feedforward_norm=norm, placement="pre", activation="silu", causal=causal, **arrays
    )


KINDS = {
    "causal": (layer(0), layer(1), layer(2)),
    "causal, rotary, gated": (layer(3, rotary=True, gated=True), layer(4, rotary=True, gated=True)),
    "open, rotary": (layer(5, causal=False, rotary=True),) * 3,
}


@pytest.fixture(params=KINDS)
def network(request):
    return Network(request.param, KINDS[request.param])


@pytest.mark.parametrize("batched", [True, False])
def test_patterns_are_confirmed_and_are_the_singular_vectors(network, batched):
    found = line_check(network.modules, STATE, network.chains(N), patterns=4, batched=batched)
    assert found.confirmed
    assert found.error.max() < 1e-9
    assert found.verdict.startswith("confirmed to ")
    derivative, x = np.eye(N * D), torch.tensor(np.tile(STATE, (N, 1)))
    for module in network.modules:
        step = torch.func.jacrev(module)(x).reshape(N * D, N * D).numpy()
        derivative, x = step @ derivative, module(x)
    np.testing.assert_allclose(found.gain, np.linalg.svd(derivative)[1][:4], rtol=1e-10)
    inputs = found.inputs.reshape(4, -1)
    np.testing.assert_allclose(inputs @ inputs.T, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(found.expected.reshape(4, -1), inputs @ derivative.T, rtol=0, atol=1e-10)
    assert ((found.centres >= 0) & (found.centres <= N - 1)).all()


def test_chains_of_other_weights_are_not_confirmed():
    network, other = (Network("causal", (layer(seed), layer(1))) for seed in (0, 9))
    found = line_check(network.modules, STATE, other.chains(N))
    assert not found.confirmed
    assert found.verdict.startswith("not confirmed on the line of tokens: error ")


def test_a_subject_has_it_on_a_line_alone(network):
    chains = tuple(network.chains(N))
    options = {"name": "x", "kind": "rotary", "layers": network.modules, "shape": (N,), "d": D}
    assert Subject(**options).line_check(STATE) is None
    assert Subject(**options, chains=chains, boundary=network.boundary).line_check(STATE).confirmed


@pytest.fixture
def checkpoint(tmp_path):
    """A GPT-2 of two layers with random weights, as a file with its settings beside it."""
    rng = torch.Generator().manual_seed(0)
    sizes = {"wte.weight": (20, D), "wpe.weight": (16, D), "ln_f.weight": (D,), "ln_f.bias": (D,)}
    for number in (0, 1):
        maps = {"attn.c_attn": (D, 3 * D), "attn.c_proj": (D, D), "mlp.c_fc": (D, 4 * D), "mlp.c_proj": (4 * D, D)}
        for name, size in {"ln_1": (D,), "ln_2": (D,), **maps}.items():
            sizes |= {f"h.{number}.{name}.weight": size, f"h.{number}.{name}.bias": size[-1:]}
    tensors = {name: torch.randn(size, generator=rng) / D**0.5 for name, size in sizes.items()}
    torch.save(tensors, tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps({"n_head": HEADS, "model_type": "gpt2"}))
    return str(tmp_path / "model.pt")


def test_command_on_a_causal_checkpoint(checkpoint, capsys):
    arguments = ["check", checkpoint, "--family", "gpt2", "--state", "token:3", "--tokens", "6"]
    assert tokenwaves.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confirmed"]
    assert found["boundary"] == "causal"
    assert [pattern["error"] < 1e-8 for pattern in found["patterns"]] == [True] * 6
    assert tokenwaves.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "confirmed against the network to " in printed
    assert "; J(q) holds far from the ends only: as waves, error " in printed
    assert "not confirmed" not in printed
    assert printed.index("what grows most on the line over 2 layers") < printed.index("waves over 2 layers, as J(q)")
    assert tokenwaves.main([*arguments, "--boundary", "open", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confirmed"]
    assert len(found["patterns"]) == 6
