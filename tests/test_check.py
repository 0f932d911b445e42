"""`check`: predictions against forward passes, on planted maps, blocks, programs, checkpoints and callables."""

import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tokenwaves  # noqa: E402
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel, LayerNorm, along_orbit  # noqa: E402
from models import save_program, to_torch  # noqa: E402
from models.adapters import Embedding, Network  # noqa: E402
from models.check import TOLERANCE, check  # noqa: E402
from models.families import network_from  # noqa: E402

ENCODER = {"nhead": 2, "norm_first": True, "activation": "gelu", "layer_norm_eps": 1e-5}


def planted(multipliers, v):
    """A linear map (N, d) with the multipliers (N,) of the waves e^{iqj}, times |v⟩⟨v|: known growth, no orbit."""
    symbol = torch.fft.ifft(torch.tensor(multipliers)).real
    n = len(symbol)
    i, j = np.indices((n, n))
    mixing, projector = symbol[(i - j) % n], torch.tensor(np.outer(v, v))
    return lambda x: mixing @ x @ projector


def small_block(n=6, d=3):
    generator = np.random.default_rng(3)
    head = Head(Kernel.table(generator.normal(size=n)), 0.5 * generator.normal(size=(d, d)), np.ones((d, d)))
    hidden = FeedForward(generator.normal(size=(5, d)), generator.normal(size=(d, 5)), "gelu", generator.normal(size=5))
    return Block([head], hidden, feedforward_norm=LayerNorm.identity(d))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, activation="gelu", norm_first=True)
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.save(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).state_dict(), folder / "model.pt")
    (folder / "config.json").write_text(json.dumps(ENCODER))
    return str(folder / "model.pt")


def test_planted_multipliers_come_back():
    multipliers = np.fft.fft(np.random.default_rng(0).normal(size=8))
    v = np.array([0.6, 0.8])
    found = check([planted(multipliers, v)] * 2, np.array([0.3, -0.2]), 8)
    np.testing.assert_allclose(found.growth, np.abs(multipliers[:5]) ** 2, rtol=1e-12)
    np.testing.assert_allclose(found.measured_growth, np.abs(multipliers[:5]) ** 2, rtol=1e-10)
    assert found.confirmed
    assert found.source == "measured"
    assert found.leak.max() < 1e-9


@pytest.mark.parametrize("batched", [True, False])
def test_a_block_is_confirmed_along_its_orbit(batched):
    block, a = small_block(), np.array([0.4, -0.3, 0.2])
    net = to_torch(block)
    found = check([net] * 4, a, 6, [block] * 4, batched=batched)
    np.testing.assert_allclose(found.growth, along_orbit(block, a, 4).growth[:4], rtol=1e-12)
    assert found.error.max() < 1e-8
    assert found.defect < 1e-12
    assert found.verdict.startswith("confirmed to ")
    assert "4 layers" in found.verdict
    again = check([net] * 4, a, 6, batched=batched)
    np.testing.assert_allclose(again.predicted.matrices, found.predicted.matrices, rtol=1e-9, atol=1e-9)
    assert again.confirmed


def test_a_wrong_prediction_is_not_confirmed():
    block, a = small_block(), np.array([0.4, -0.3, 0.2])
    heads = [Head(block.heads[0].kernel, 1.01 * block.heads[0].value, block.heads[0].content)]
    wrong = Block(heads, block.feedforward, feedforward_norm=block.feedforward_norm)
    found = check([to_torch(block)] * 2, a, 6, [wrong] * 2, batched=True)
    assert not found.confirmed
    assert found.error.max() > 1e3 * TOLERANCE
    assert found.verdict.startswith("not confirmed: error")


def test_a_conjugated_symbol_is_not_confirmed():
    """|Λ| is the same for the mirrored kernel; the vector of the response is not."""
    block = Block([Head(Kernel.table([0.0, 2.0, 0.0, 0.0, -1.0, 0.0]), -0.7)])
    mirrored = Block([Head(Kernel.table([0.0, 0.0, -1.0, 0.0, 0.0, 2.0]), -0.7)])
    found = check([to_torch(block)], [0.1], 6, [mirrored])
    np.testing.assert_allclose(found.measured_growth, found.growth, rtol=1e-9)
    assert not found.confirmed


def test_a_map_that_knows_positions_is_told_as_such():
    ramp = torch.linspace(0.5, 1.0, 8, dtype=torch.float64)[:, None]
    found = check([lambda x: x + ramp * torch.tanh(x)], [0.1, 0.2], 8)
    assert not found.confirmed
    assert "not translation invariant" in found.verdict
    assert "does not stay one" in found.verdict
    assert found.leak.max() > 0.01


def test_a_state_that_does_not_stay_homogeneous_is_told_as_such():
    """The waves do as predicted, but around another state than the one of the prediction."""
    ramp = torch.linspace(0.5, 1.0, 8, dtype=torch.float64)[:, None]
    linear = lambda x: 0.5 * (x + x.roll(1, -2)) + ramp  # noqa: E731
    found = check([linear, linear], [0.1, 0.2], 8)
    assert found.error.max() < 1e-9
    assert found.spread == pytest.approx(0.5 / 1.2, rel=0.3)
    assert not found.confirmed
    assert "a homogeneous state does not stay one, its tokens differ by " in found.verdict


def test_spread_is_reported(command, tmp_path, monkeypatch):
    (tmp_path / "ramp.py").write_text(
        "import torch\ndef layer(x): return x + torch.arange(6, dtype=x.dtype)[:, None]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ramp", raising=False)
    arguments = ["ramp:layer", "--state", "1.0", "--tokens", 6]
    found = json.loads(command(*arguments, "--json")[1].out)
    assert found["spread"] == pytest.approx(5 / 6)
    assert "; as waves, error " in found["verdict"]
    assert "does not stay one" in found["verdict"]
    assert "spread of the state over the tokens 8.3e-01" in command(*arguments)[1].out


def test_a_step_that_shrinks_until_the_map_is_linear():
    """Near-singular normalisation: linear only within 1e-4 of the state."""
    norm = LayerNorm([1.0, 1.0], eps=1e-8)
    block = Block([Head(Kernel.alibi(4, 0.5), np.eye(2))], attention_norm=norm)
    found = check([to_torch(block)], [1.0, 1.0], 4, [block], batched=True)
    assert found.error.max() < 1e-5


def test_a_torus_and_the_most_waves():
    block = Block([Head(Kernel.convit((4, 6), (1, 0), 0.5), -1.2)], FeedForward.scalar("tanh", 0.1))
    found = check([to_torch(block)] * 2, [0.2], (4, 6), [block] * 2, waves=5, batched=True)
    assert found.confirmed
    assert len(found.modes) == 5
    top = sorted(found.predicted.growth.ravel())[::-1]
    assert found.growth.max() == pytest.approx(top[0])


def test_no_layers():
    with pytest.raises(ArgumentError, match="one map or more"):
        check([], [0.0], 4)


def test_states_of_a_network():
    generator = np.random.default_rng(0)
    tokens, positions = generator.normal(size=(5, 3)), generator.normal(size=(7, 3))
    embedding = Embedding(tokens, positions, np.ones(3), LayerNorm.identity(3), generator.normal(size=(4, 3)))
    x = embedding([2, 0, 1], first=2)
    by_hand = LayerNorm.identity(3)(tokens[[2, 0, 1]] + positions[2:5] + 1) @ embedding.weight.T
    np.testing.assert_allclose(x, by_hand, rtol=1e-14)
    expected = LayerNorm.identity(3)(tokens[4] + positions[:6].mean(0) + 1) @ embedding.weight.T
    np.testing.assert_allclose(embedding.state(4, 6), expected, rtol=1e-14)
    assert embedding.position_table(slice(1, 4)).shape == (3, 4)
    np.testing.assert_allclose(embedding.position_table().sum(0), 0, atol=1e-12)
    with pytest.raises(ArgumentError, match="ID < 5"):
        embedding.state(5)
    assert isinstance(network_from_config(), Network)


def network_from_config():
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    return network_from(layer.state_dict(), "encoder", ENCODER)


@pytest.fixture
def command(capsys):
    def run(*arguments):
        status = tokenwaves.main(["check", *map(str, arguments)])
        return status, capsys.readouterr()

    return run


def test_command_on_a_block(command, tmp_path):
    small_block().save(tmp_path / "block.toml")
    arguments = [tmp_path / "block.toml", "--state", "0.4,-0.3,0.2", "--layers", 3]
    status, printed = command(*arguments, "--plot", tmp_path / "check.png")
    assert (status, printed.err) == (0, "")
    lines = printed.out.splitlines()
    assert lines[0] == f"{tmp_path / 'block.toml'} (block): ring of 6 tokens, d = 3, 3 layers"
    assert lines[1] == "state 0.4,-0.3,0.2, |a| = 0.5385; J(q) from its blocks"
    assert lines[2].startswith("confirmed to ")
    assert lines[-1] == f"wrote {tmp_path / 'check.png'}"
    assert (tmp_path / "check.png").read_bytes().startswith(b"\x89PNG")
    status, printed = command(*arguments, "--json")
    found = json.loads(printed.out)
    assert status == 0
    assert found["confirmed"]
    assert [wave["k"] for wave in found["waves"]] == [0, 1, 2, 3]
    expected = along_orbit(small_block(), [0.4, -0.3, 0.2], 3)
    np.testing.assert_allclose([wave["predicted"] for wave in found["waves"]], expected.growth[:4], rtol=1e-12)
    assert found["modes"][0]["morphology"] == expected.leading().morphology


def test_command_on_a_program(command, tmp_path):
    save_program(to_torch(small_block()), tmp_path / "net.pt2")
    status, printed = command(tmp_path / "net.pt2", "--state", "0.4,-0.3,0.2", "--json", "--layers", 2)
    found = json.loads(printed.out)
    assert (status, found["confirmed"], found["source"], found["shape"]) == (0, True, "measured", [6])


def test_command_on_a_checkpoint(command, checkpoint, tmp_path):
    np.save(tmp_path / "a.npy", np.linspace(-1, 1, 6))
    status, printed = command(checkpoint, "--family", "encoder", "--state", tmp_path / "a.npy", "--tokens", 5, "--json")
    found = json.loads(printed.out)
    assert (status, found["confirmed"], found["source"], found["layers"]) == (0, True, "blocks", 2)
    assert len({round(wave["predicted"], 9) for wave in found["waves"][1:]}) == 1  # no positions: one J for q ≠ 0
    status, printed = command(checkpoint, "--family", "encoder", "--layers", 1, "--tokens", 4, "--boundary", "open")
    assert status == 0
    assert "line of 4 tokens" in printed.out
    assert "derivatives of each layer" in printed.out


def test_command_on_a_callable(command, tmp_path, monkeypatch):
    (tmp_path / "my_network.py").write_text(
        "import torch\ndef layer(x): return x + 0.3 * torch.tanh(torch.roll(x, 1, -2) - x)\nnumber = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_network", raising=False)
    status, printed = command("my_network:layer", "--state", "0.1,0.2", "--tokens", 6, "--layers", 2, "--json")
    assert (status, json.loads(printed.out)["confirmed"]) == (0, True)
    assert "" not in sys.path[:1]
    for arguments, part in [
        (["my_network:layer"], "--state: got zeros for a callable"),
        (["my_network:number", "--state", "1"], "a int; accepted: a callable"),
        (["my_network:none", "--state", "1"], "no attribute 'none'"),
        (["no_network:layer", "--state", "1"], "No module named 'no_network'"),
    ]:
        assert_one_line(command(*arguments), part)


def assert_one_line(result, *parts):
    status, printed = result
    assert status == 2
    assert printed.out == ""
    lines = printed.err.strip().splitlines()
    assert len(lines) == 1
    assert all(part in lines[0] for part in parts)


def test_bad_input_is_one_line(command, checkpoint, tmp_path):
    small_block().save(tmp_path / "block.toml")
    block, encoder = tmp_path / "block.toml", [checkpoint, "--family", "encoder"]
    for arguments, parts in [
        (["none.toml"], ["none.toml", "no such file"]),
        (["none.pt2"], ["none.pt2", "no such file"]),
        ([checkpoint], ["--family", "no config.json that says a model_type", "bert"]),
        ([checkpoint, "--family", "bert"], ["family", "'bert'", "encoder"]),
        ([checkpoint, "--family", "none"], ["family", "'none'"]),
        ([*encoder, "--config", "none.json"], ["config", "none.json"]),
        ([*encoder, "--layers", "9"], ["--layers", "at most the 2"]),
        ([*encoder, "--layers", "0"], ["--layers", "at least 1"]),
        ([*encoder, "--tokens", "1"], ["--tokens", "at least 2"]),
        ([*encoder, "--state", "token:3"], ["--state", "no embedding"]),
        ([*encoder, "--state", "mean"], ["--state", "no embedding"]),
        ([*encoder, "--state", "1,2"], ["--state", "(6,)"]),
        ([*encoder, "--state", "word"], ["--state", "'word'", "token:ID"]),
        ([block, "--tokens", "7"], ["--tokens", "6"]),
        ([block, "--boundary", "open"], ["--boundary"]),
        ([block, "--plot", "a.gif"], ["--plot", ".pdf"]),
        ([block, "--device", "abacus"], ["--device", "'abacus'"]),
    ]:
        assert_one_line(command(*arguments), *parts)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_so(command, tmp_path):
    small_block().save(tmp_path / "block.toml")
    result = command(tmp_path / "block.toml", "--device", "cuda")
    assert_one_line(result, "--device", "'cuda', which this machine does not have")


def test_without_torch_it_says_what_to_install(command, monkeypatch):
    import tokenwaves.check

    monkeypatch.setattr(tokenwaves.check, "find_spec", lambda _: None)
    assert_one_line(command("anything.toml"), "pip install 'tokenwaves[torch]'")


def test_a_map_that_takes_waves_to_the_opposite_wavenumber_is_not_confirmed():
    """At q = π/2 every other token of a real wave may be zero: a map that treats these otherwise is told."""
    gains = torch.tensor([1.0, 2.0] * 4, dtype=torch.float64)[:, None]
    found = check([lambda x: gains * x], [0.0], 8)
    np.testing.assert_allclose(found.response, 1.5, rtol=1e-9)
    np.testing.assert_allclose(found.leak, np.sqrt(0.1), rtol=1e-9)
    assert not found.confirmed


def test_both_halves_of_a_wave_are_sent_where_one_does_not_tell():
    """Twice the states where the map is not as predicted: then the response at q comes from e^{iqj} itself."""
    block, a, states = small_block(), np.array([0.4, -0.3, 0.2]), []
    net = to_torch(block)

    def counted(x):
        states.append(len(x))
        return net(x)

    runs = []
    for factor in (1.0, 1.001):
        heads = [Head(block.heads[0].kernel, factor * block.heads[0].value, block.heads[0].content)]
        states.clear()
        wrong = Block(heads, block.feedforward, feedforward_norm=block.feedforward_norm)
        found = check([counted], a, 6, [wrong], batched=True)
        runs.append((sum(s for s in states if s > 6), found.measured_growth, found.leak))
    assert runs[1][0] > 1.2 * runs[0][0]
    np.testing.assert_allclose(runs[1][1], runs[0][1], rtol=1e-2)
    assert max(runs[0][2].max(), runs[1][2].max()) < 1e-8
