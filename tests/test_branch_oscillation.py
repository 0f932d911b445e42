"""Standing waves of complex multipliers: invariant circles against iteration and the theory reference."""

import exact
import numpy as np
import pytest

from amplitude.exact.oscillation import find_oscillation, standing_start
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation

TURN = np.array([[np.cos(1.3), -np.sin(1.3)], [np.sin(1.3), np.cos(1.3)]])
STANDING, TRAVELLING = [[0, -1], [1, 2]], 2 * np.eye(2)


def block(content, g=0.8116654721):
    """The O(2) block of the theory reference at μ = 5e-4."""
    kernel = Kernel.gaussian_lobes(32, 5, 1.0, 2.0)
    return Block([Head(kernel, -g * TURN @ np.diag([1, 0.9]), content)], FeedForward.elementwise("tanh", 2, -0.1))


def found(content, **options):
    mode = dispersion_relation(block(content)).leading()
    return find_oscillation(block(content), standing_start(mode, 0.021, **options), mode.phase)


def test_the_reference():
    state = found(STANDING)
    assert state.k == 3
    assert f"{state.projection(dispersion_relation(block(STANDING)).leading()):.6f}" == "0.020966"
    assert state.phase_advance == pytest.approx(0.2500876, abs=5e-6)
    assert state.residual < 1e-13
    assert state.defect < 1e-7
    assert state.stable


def test_it_is_where_the_iterated_map_goes():
    x = exact.iterate(block(STANDING), standing_start(dispersion_relation(block(STANDING)).leading(), 0.018)[0], 12_000)
    path = [x]
    for _ in range(2000):
        path.append(block(STANDING).forward(path[-1]))
    # ⟨X_k e^{−iΩl}⟩ over many turns, each weighted so that the ends do not count
    state = found(STANDING)
    weights = np.hanning(len(path)) / np.hanning(len(path)).sum()
    modes = np.array([exact.component(x, 3) for x in path])
    turned = (weights * np.exp(-1j * state.phase_advance * np.arange(len(path)))) @ modes
    assert np.linalg.norm(turned) == pytest.approx(state.amplitude, rel=1e-4)


def test_more_samples_change_nothing_but_the_defect():
    few, many = found(STANDING, samples=7), found(STANDING)
    assert many.defect < 0.01 * few.defect
    assert few.amplitude == pytest.approx(many.amplitude, rel=1e-5)
    assert few.phase_advance == pytest.approx(many.phase_advance, abs=1e-8)
    theta = 0.7
    after = block(STANDING).forward(many.field(theta))
    np.testing.assert_allclose(after, many.field(theta + many.phase_advance), rtol=0, atol=1e-8)


def test_where_travelling_waves_win_it_is_unstable():
    state = found(TRAVELLING)
    assert not state.stable
    neutral = np.sort(np.abs(np.abs(state.multipliers) - 1))[:2]
    np.testing.assert_allclose(neutral, 0, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"block": 3}, "block"),
        ({"start": np.zeros((4, 32, 2))}, "start"),
        ({"start": np.zeros((5, 31, 2))}, "start"),
        ({"start": np.ones((5, 32, 2))}, "start"),
        ({"phase_advance": np.nan}, "phase_advance"),
    ],
)
def test_refusals(changes, argument):
    mode = dispersion_relation(block(STANDING)).leading()
    arguments = {"block": block(STANDING), "start": standing_start(mode, 0.02, samples=5), "phase_advance": 0.25}
    with pytest.raises(ArgumentError) as refused:
        find_oscillation(**(arguments | changes))
    assert refused.value.argument == argument
