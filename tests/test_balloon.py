"""Stability balloons: the batched patterns against single ones, and observed wavenumbers against the predicted set."""

from dataclasses import replace

import exact
import matplotlib.pyplot as plt
import numpy as np
import pytest

from amplitude.exact.balloon import Balloon, balloon, patterns, stable_wavenumbers
from amplitude.exact.resting import resting_state
from amplitude.exact.states import find_state
from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation, fixed_points

TANH = FeedForward.scalar("tanh", scale=-0.1)


def lobes(separation, strength, eta=-0.6, n=32):
    return Block([Head(Kernel.gaussian_lobes(n, separation, 1.0, strength), eta, 1.5)], TANH)


def shifted(eta):
    """φ(y) = −0.1 tanh y + 0.3, so that g(0) = 0.3."""
    feedforward = FeedForward([[1.0]], [[-0.1]], "tanh", None, [0.3])
    return Block([Head(Kernel.gaussian_lobes(16, 3, 1.0, 2.0), eta, 1.5)], feedforward)


def two_heads(n=15):
    feedforward = FeedForward.scalar(Activation.polynomial([-0.1, 0.05, -0.2]))
    heads = [Head(Kernel.gaussian_lobes(n, 3, 1.0, 2.0), -0.5, 1.0), Head(Kernel.gaussian_lobes(n, 2, 1, 1), 0.2, -0.5)]
    return Block(heads, feedforward, attention_scale=1.5)


def gated():
    """φ(y) = −0.1 SiLU(0.2 y + 1) y: φ(0) = 0 with even and odd terms."""
    feedforward = FeedForward([[1.0]], [[-0.1]], "silu", None, None, [[0.2]], [1.0])
    return Block([Head(Kernel.gaussian_lobes(12, 2, 1.0, 2.0), -0.4, 1.5)], feedforward)


BLOCKS = {
    "paper": lobes(4, 2),
    "k = 8": lobes(1.8, 2.0),
    "k = 16": lobes(5.0, 3.0),
    "odd ring": two_heads(),
    "N = 12": lobes(2, 2.5, n=12),
    "gated": gated(),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_batch_finds_what_single_branches_find(name):
    block = BLOCKS[name]
    whole = balloon(block)
    assert len(whole.ks)
    assert not whole.lost.any()
    for column, k in enumerate(whole.ks):
        single = patterns(block, int(k))
        for family, state in enumerate(single):
            assert state is not None
            assert whole.amplitude[0, column, family] == pytest.approx(state.amplitude_at(int(k)), abs=1e-10)
            assert whole.growth[0, column, family] == pytest.approx(np.abs(state.multipliers).max(), abs=1e-9)
            values = exact.multipliers(exact.jacobian(block, state.field))
            assert whole.growth[0, column, family] == pytest.approx(np.abs(values).max(), abs=1e-7)
        assert whole.stable[0, column] == any(state.stable for state in single)


def test_the_papers_block_keeps_only_one_wavenumber():
    whole = balloon(lobes(4, 2))
    assert whole.ks.tolist() == [3, 4, 5]
    assert whole.stable_wavenumbers(0) == stable_wavenumbers(lobes(4, 2)) == (4,)
    # k = 3 exists and gives way
    place = whole.ks.tolist().index(3)
    assert whole.exists[0, place]
    state = find_state(lobes(4, 2), exact.cosine(32, 3, whole.amplitude[0, place, 0]))
    x = exact.iterate(lobes(4, 2), state.field + 1e-3 * np.random.default_rng(0).normal(size=(32, 1)), 3000)
    assert np.abs(np.fft.rfft(x[:, 0]))[1:].argmax() + 1 == 4


@pytest.mark.parametrize("eta", [-0.42, -0.6, -0.9])
def test_a_stable_wavenumber_stays_and_an_unstable_one_leaves(eta):
    """At w = 0.6 two lobes make k = 4 and 5 compete (theory reference, panel d)."""
    kernel = 2.0 * (0.4 * Kernel.gaussian_lobes(32, 4, 1.0, 1.0) + 0.6 * Kernel.gaussian_lobes(32, 3, 0.7, 1.0))
    block = Block([Head(kernel, eta, 1.5)], TANH)
    whole = balloon(block, [4, 5])
    for column, k in enumerate([4, 5]):
        if not whole.exists[0, column]:
            continue
        start = exact.cosine(32, k, whole.amplitude[0, column, 0])
        x = exact.iterate(block, start + 1e-3 * np.random.default_rng(k).normal(size=32), 4000)
        assert (np.abs(np.fft.rfft(x))[1:].argmax() + 1 == k) == whole.stable[0, column]
    if eta == -0.6:
        assert whole.stable_wavenumbers(0) == (4, 5)


def test_what_is_observed_is_in_the_set():
    blocks = [lobes(separation, strength) for separation in (2, 3.5, 5, 6.5) for strength in (1.5, 3.0)]
    whole = balloon(blocks)
    seen = 0
    for place, block in enumerate(blocks):
        if dispersion_relation(block).growth.max() < 1.005:
            continue
        x = exact.iterate(block, 1e-3 * np.random.default_rng(place).normal(size=32), 6000)
        assert np.abs(np.fft.rfft(x))[1:].argmax() + 1 in whole.stable_wavenumbers(place)
        seen += 1
    assert seen >= 5


def test_a_sweep_and_its_drawing():
    etas = np.linspace(-0.25, -1.0, 16)
    whole = balloon([lobes(4, 2, eta) for eta in etas], values=etas, name="η")
    assert whole.values.tolist() == etas.tolist()
    column = whole.ks.tolist().index(4)
    assert not whole.exists[etas > -0.318, column].any()
    assert whole.stable[etas < -0.32, column].all()
    assert not whole.lost.any()
    figure, ax = plt.subplots()
    assert whole.plot(ax) is ax
    hollow, filled = ax.lines
    assert len(filled.get_xdata()) == whole.stable.sum()
    assert len(hollow.get_xdata()) == (whole.exists & ~whole.stable).sum()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("η", "wavenumber $k$")
    plt.close(figure)


def test_a_batch_is_the_sum_of_its_blocks():
    blocks = [lobes(separation, 2.0) for separation in (3, 4, 5)] + [two_heads(32)]
    together = balloon(blocks)
    for place, block in enumerate(blocks):
        alone = balloon(block, together.ks.tolist())
        np.testing.assert_allclose(alone.amplitude[0], together.amplitude[place], rtol=0, atol=1e-12)
        np.testing.assert_allclose(alone.growth[0], together.growth[place], rtol=0, atol=1e-9)


def test_travelling_waves():
    block = Block([Head(Kernel.skewed_lobe(32, 4, 0.7, 2.0, 1.0), -1.3, 1.5)], TANH)
    whole = balloon(block)
    assert whole.stable_wavenumbers(0) == (3,)
    assert np.isnan(whole.amplitude[..., 1]).all()


def test_vector_block():
    turn = np.array([[np.cos(1.3), -np.sin(1.3)], [np.sin(1.3), np.cos(1.3)]])
    kernel = Kernel.gaussian_lobes(32, 5, 1.0, 2.0)
    block = Block(
        [Head(kernel, -0.83 * turn @ np.diag([1, 0.9]), 2 * np.eye(2))], FeedForward.elementwise("tanh", 2, -0.1)
    )
    assert stable_wavenumbers(block) == (3,)


def test_below_onset_there_is_nothing():
    whole = balloon(lobes(4, 2, -0.2))
    assert isinstance(whole, Balloon)
    assert whole.stable_wavenumbers(0) == ()
    assert len(whole.ks) == 0
    assert not balloon(lobes(4, 2, -0.2), [4]).exists.any()


@pytest.mark.parametrize(("eta", "R"), [(-0.3, 0.17139), (-0.36, 0.19142)])
def test_growth_is_judged_at_the_homogeneous_state(eta, R):
    """Where g(0) ≠ 0 neither the growth at 0 nor its absence says anything: patterns leave the state g settles in."""
    block = shifted(eta)
    whole = balloon(block, [3])
    assert not whole.lost.any()
    assert stable_wavenumbers(block, [3]) == (3,)
    assert whole.amplitude[0, 0, 1] == pytest.approx(R, abs=1e-5)
    x = exact.iterate(block, 1e-3 * np.random.default_rng(0).normal(size=16), 20000)
    assert np.abs(np.fft.fft(x))[3] / 16 == pytest.approx(whole.amplitude[0, 0, 1], rel=1e-5)


def test_resting_state_is_where_g_ends():
    block = shifted(-0.3)
    a = np.zeros(1)
    for _ in range(3000):
        a = block.homogeneous_map(a)
    assert resting_state(block) == pytest.approx(a, abs=1e-13)
    assert resting_state(lobes(4, 2)).tolist() == [0.0]
    (nearest,) = fixed_points(block)
    assert resting_state(block) == pytest.approx(nearest.state, abs=1e-12)


@pytest.mark.parametrize("eta", [0.5, -2.5])
def test_a_block_whose_mean_does_not_settle_is_refused(eta):
    """g(a) = (1 + η)a + 0.3 has |slope| > 1 and runs away."""
    feedforward = FeedForward([[1.0]], [[0.0]], "tanh", None, [0.3])
    block = Block([Head(Kernel.gaussian_lobes(16, 3, 1.0, 2.0), eta, 1.5)], feedforward)
    with pytest.raises(ArgumentError, match=r"g does not settle") as refused:
        balloon([lobes(4, 2, n=16), block], [3])
    assert refused.value.argument == "blocks[1]"
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_without_a_feedforward():
    """Then F(X) = X is ΣA_h(X)M_hX = 0 whatever ε_a: patterns are the same, stable ones stay while ε_a is small."""
    block = Block([Head(Kernel.gaussian_lobes(16, 3, 1.0, 2.0), -0.3, 1.5)])
    whole, other = balloon(block), balloon(replace(block, attention_scale=2.0))
    assert not whole.lost.any()
    assert whole.stable_wavenumbers(0) == other.stable_wavenumbers(0) == (2, 3)
    np.testing.assert_allclose(whole.amplitude, other.amplitude, atol=1e-10)
    x = exact.iterate(block, exact.cosine(16, 3, 0.3) + 1e-4 * np.random.default_rng(0).normal(size=16), 30000)
    place = whole.ks.tolist().index(3)
    assert np.abs(np.fft.fft(x))[3] / 16 == pytest.approx(whole.amplitude[0, place, 0], abs=1e-6)
    values = exact.multipliers(exact.jacobian(block, find_state(block, x).field))
    assert np.abs(values).max() == pytest.approx(whole.growth[0, place, 0], abs=1e-8)


def test_travelling_waves_without_a_feedforward():
    block = Block([Head(Kernel.skewed_lobe(32, 4, 0.7, 2.0, 1.0), -1.1, 1.5)])
    whole = balloon(block, [3])
    x = exact.iterate(block, 1e-3 * np.random.default_rng(0).normal(size=32), 5000)
    assert np.abs(np.fft.fft(x))[3] / 32 == pytest.approx(whole.amplitude[0, 0, 0], abs=1e-8)
    assert whole.stable_wavenumbers(0) == (3,)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"blocks": []}, "blocks"),
        ({"blocks": [lobes(4, 2), 3]}, r"blocks[1]"),
        ({"blocks": [lobes(4, 2), lobes(2, 2, n=12)]}, r"blocks[1]"),
        ({"blocks": Block([Head(Kernel.uniform((4, 4)), 0.5)])}, r"blocks[0]"),
        ({"blocks": lobes(4, 2), "ks": [0]}, "ks"),
        ({"blocks": lobes(4, 2), "ks": [40]}, "ks"),
        ({"blocks": lobes(4, 2), "values": [1.0, 2.0]}, "values"),
    ],
)
def test_refusals(arguments, named):
    with pytest.raises(ArgumentError) as refused:
        balloon(**arguments)
    assert refused.value.argument == named


@pytest.mark.slow
def test_speed():
    """10⁴ blocks at N = 32 in a couple of minutes: 400 in under 25 s, for busy machines."""
    import time

    blocks = [
        lobes(separation, strength) for separation in np.linspace(1.5, 8, 20) for strength in np.linspace(0.5, 3, 20)
    ]
    begin = time.perf_counter()
    whole = balloon(blocks)
    assert time.perf_counter() - begin < 25
    assert whole.lost.sum() <= 2
