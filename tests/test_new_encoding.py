"""An encoding that is new, defined here: it works wherever one of ours does, and nothing else is touched."""

import re
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest

from dispersion import (
    Alibi,
    ArgumentError,
    Block,
    Encoding,
    FeedForward,
    GaussianLobes,
    Head,
    Kernel,
    about,
    dispersion_relation,
    full_jacobian,
)
from dispersion.block.encodings import BUILT_IN, ENCODINGS
from figures.phase_diagram import PhaseDiagram
from simulate import iterate, load, save, sweep

N = 16


@dataclass(frozen=True, eq=False)
class Comb(Encoding):
    """b_r = s cos²(πr/p), r the lag on a ring."""

    period: float = field(metadata=about("p", "tokens", above=0, most=64))
    strength: float = field(metadata=about("s", "a logit"))
    causal: bool = False

    ring_only = True

    def formula(self, lags, xp):
        return self.strength * xp.cos(np.pi * lags[..., 0] / self.period) ** 2


@dataclass(frozen=True)
class PlainRamp(Encoding, name="ramp"):
    slope: float

    def logits(self, shape):
        return self.slope * np.arange(np.prod(shape)).reshape(shape)


def comb(strength=1.5):
    return Kernel.of(Comb(period=4, strength=strength), N)


def block(strength=1.5):
    return Block([Head(comb(strength), -0.6, 1.5)], FeedForward.scalar("tanh", -0.1))


def test_kernel_and_dispersion():
    lags = np.arange(N)
    table = Kernel.table(1.5 * np.cos(np.pi * lags / 4) ** 2)  # of period 4, so that the representative is no matter
    np.testing.assert_allclose(comb().symbol, table.symbol, atol=1e-15)
    assert comb().encoding.period == 4.0
    assert isinstance(comb().encoding.period, float)
    relation = dispersion_relation(block())
    found = np.sort(np.abs(np.linalg.eigvals(full_jacobian(block()))))
    np.testing.assert_allclose(np.sort(relation.growth), found, atol=1e-13)


def test_files(tmp_path):
    made = block()
    path = tmp_path / "block.toml"
    made.save(path)
    assert '[head.kernel]\ntype = "comb"\nperiod = 4.0\nstrength = 1.5\ncausal = false\n' in path.read_text()
    loaded = Block.load(path)
    assert isinstance(loaded.heads[0].kernel.encoding, Comb)
    loaded.save(tmp_path / "again.toml")
    assert (tmp_path / "again.toml").read_text() == path.read_text()
    path.write_text(path.read_text().replace('type = "comb"', 'type = "ramp"').replace("period", "slope"))
    with pytest.raises(ArgumentError, match=r"head\[0\].kernel.strength: got an unknown key; accepted: slope"):
        Block.load(path)


def test_diagram(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(
        'quantity = "amplitude"\ndepth = 50\n[parameters]\ns = [1.0, 2.0]\n[block]\nn = 16\n[[head]]\n'
        'kernel = {type = "comb", period = 4, strength = "s"}\nvalue = -0.6\ncontent = 1.5\n'
    )
    assert PhaseDiagram.load(path).compute().amplitude.shape == (2,)


def test_simulation_and_sweep(tmp_path):
    path = iterate(block(), 20, start=0.1, rng=0)
    table = Block([Head(Kernel.table(comb().logits), -0.6, 1.5)], block().feedforward)
    np.testing.assert_array_equal(path.state, iterate(table, 20, start=0.1, rng=0).state)
    found = sweep(block, {"strength": [1.0, 2.0]}, depth=20, start=0.1, rng=0, measure=["amplitude"], progress=False)
    save(found, tmp_path / "sweep.nc")
    assert load(tmp_path / "sweep.nc").amplitude.shape[0] == 2


def test_pytorch_trains_its_parameters():
    torch = pytest.importorskip("torch")
    from models import export, to_torch

    net, x = to_torch(block()), np.eye(N)[:, :1]
    parameters = dict(net.attention[0].positions[0].encoding.named_parameters())
    assert list(parameters) == ["period", "strength"]
    (net(torch.tensor(x)) ** 2).sum().backward()

    def loss(**changed):
        kernel = Kernel.of(replace(comb().encoding, **changed), N)
        return (Block([Head(kernel, -0.6, 1.5)], block().feedforward).forward(x) ** 2).sum()

    step = 1e-6
    for name, value in (("period", 4.0), ("strength", 1.5)):
        slope = (loss(**{name: value + step}) - loss(**{name: value - step})) / (2 * step)
        assert float(parameters[name].grad) == pytest.approx(slope, rel=1e-6)
    with torch.no_grad():
        parameters["period"].fill_(5.0)
    assert export(net).heads[0].kernel.logits.tobytes() == Kernel.of(Comb(5.0, 1.5), N).logits.tobytes()


def test_sums_keep_what_they_are_made_of(tmp_path):
    plain = Kernel.table(np.arange(N) / 8)
    mixed = comb() + -0.5 * Kernel.alibi(N, 0.3) + plain
    assert [type(kernel.encoding) for _, kernel in mixed.terms] == [Comb, Alibi, type(None)]
    assert [weight for weight, _ in mixed.terms] == [1.0, -0.5, 1.0]
    assert (2 * (plain + plain)).terms == ()
    path = tmp_path / "block.toml"
    Block([Head(mixed, 0.5)]).save(path)
    loaded = Block.load(path).heads[0].kernel
    assert [type(kernel.encoding) for _, kernel in loaded.terms] == [Comb, Alibi, type(None)]
    assert loaded.logits.tobytes() == mixed.logits.tobytes()
    # 3·(0.1 b) is not (3·0.1) b to the last digit: the numbers come first
    odd = 3 * (0.1 * comb())
    Block([Head(odd, 0.5)]).save(path)
    assert Block.load(path).heads[0].kernel.logits.tobytes() == odd.logits.tobytes()


def test_every_encoding_declares_its_fields():
    for name in BUILT_IN[1:]:
        kind = ENCODINGS[name]
        assert set(kind.parameters()) == {item.name for item in fields(kind)}
        for key, parameter in kind.parameters().items():
            assert re.search(rf"^{key} : .+\n    {re.escape(parameter.meaning)}", kind.__doc__, re.M)
    width = GaussianLobes.parameters()["width"]
    assert (width.unit, width.above, width.most) == ("tokens", 0, None)
    assert PlainRamp.parameters()["slope"].meaning == "slope"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Comb(0.0, 1.0), "period: got 0.0; accepted: a finite positive number"),
        (lambda: Comb(65, 1.0), "period: got 65.0; accepted: 0 < period ≤ 64"),
        (lambda: Comb(2, "x"), "strength: got 'x'; accepted: a finite number"),
        (lambda: Comb(2, 1.0, 1), "causal: got 1; accepted: True or False"),
        (lambda: PlainRamp(np.nan), "slope: got nan; accepted: a finite number"),
        (lambda: Kernel.of(Comb, 8), "encoding: got type; accepted: an Encoding"),
        (lambda: Kernel.of(Comb(2, 1.0), (4, 4)), "n: got (4, 4); accepted: a whole number of at least 2"),
        (lambda: Kernel.of(Alibi(0.5), 1), "n: got 1; accepted: a whole number of at least 2"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ArgumentError) as refused:
        make()
    assert str(refused.value) == message


def test_a_name_is_taken_once():
    with pytest.raises(ArgumentError, match="name: got 'alibi'; accepted: a name that no other encoding has"):
        type("Other", (Encoding,), {}, name="alibi")
    with pytest.raises(ArgumentError, match="'table'"):
        type("Table", (Encoding,), {})


def test_logits_of_another_shape_are_refused():
    @dataclass(frozen=True)
    class Short(Encoding):
        def logits(self, shape):
            return np.zeros(3)

    try:
        with pytest.raises(ArgumentError, match=r"encoding: got logits of shape \(3,\); accepted: shape \(8,\)"):
            Kernel.of(Short(), 8)
    finally:
        del ENCODINGS["short"]
