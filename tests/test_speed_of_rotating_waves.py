"""A wave of a symmetric kernel and a rotating OV map runs either way: its speed is that of the member that runs."""

import numpy as np
import pytest

from dispersion import Block, FeedForward, Head, Kernel, dispersion_relation
from simulate import iterate, phase_advance, sweep, turn
from simulate.many_features import project, wave_of

LOBES = Kernel.gaussian_lobes(32, 5, 1.0, 2.0)


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def rotating(gain, content=2.0):
    """Λ = |Λ|e^{±iω} at ±k alike; these W and tanh let one of the two win."""
    value = -gain * rotation(1.3) @ np.diag([1, 0.9])
    return Block([Head(LOBES, value, content * np.eye(2))], FeedForward.elementwise("tanh", 2, -0.1))


@pytest.mark.parametrize("seed", range(4))
def test_the_speed_of_a_map_is_that_of_the_wave_that_is_there(seed):
    """ω but for O(R²), whichever of the two directions the noise chose."""
    gains = [0.82, 0.83]
    found = sweep(lambda gain: rotating(gain), {"gain": gains}, depth=1500, start=0.05, rng=seed)
    np.testing.assert_allclose(found.critical_phase_advance, found.critical_phase, atol=0.01)
    assert (found.critical_amplitude > 0.03).all()


def planted(mode, forward, backward, n=32):
    """x_j = (z v + z' v̄) e^{iqj} + c.c., (N, 2)."""
    j = np.exp(2j * np.pi * mode.k * np.arange(n) / n)[:, None]
    return 2 * np.real((forward * mode.right + backward * mode.right.conj()) * j)


@pytest.mark.parametrize(("forward", "backward"), [(0.2, 0.0), (0.0, 0.2), (0.1, 0.2j), (0.2, 0.1j), (0.2, 0.2)])
def test_planted_waves_of_either_direction(forward, backward):
    mode = dispersion_relation(rotating(0.85)).leading()
    assert mode.morphology == "rotating"
    w = np.exp(1j * mode.phase)
    fields = planted(mode, forward, backward), planted(mode, forward * w, backward * w.conj())
    before, after = wave_of(*fields, mode, (32,))
    assert abs(before) == pytest.approx(max(abs(forward), abs(backward)))
    assert turn(before, after) == pytest.approx(mode.phase)


def test_a_directional_kernel_has_no_partner():
    kernel = Kernel.skewed_lobe(32, 4, 0.7, 2.0, 1.0)
    mode = dispersion_relation(Block([Head(kernel, -0.6 * rotation(0.7))])).leading()
    assert mode.morphology == "mixed"
    fields = planted(mode, 0.01, 0.3), planted(mode, 0.01j, 0.3j)
    expected = [project(x, mode.left, mode.k) for x in fields]
    np.testing.assert_array_equal(wave_of(*fields, mode, (32,)), expected)


@pytest.mark.parametrize("seed", range(8))
def test_a_coefficient_that_is_rounding_has_no_phase(seed):
    """A standing wave at k = 4 on 32 tokens has nothing at k = 3, and k = 3 no speed."""
    rng = np.random.default_rng(seed)
    x = 0.3 * np.cos(np.pi / 4 * np.arange(32) + rng.uniform(0, 7)) + rng.normal()
    shifted = np.roll(x, 1) * (1 + 1e-16)
    assert np.isnan(phase_advance(x, shifted, 3))
    assert phase_advance(x, shifted, 4) == pytest.approx(-np.pi / 4)
    mode = dispersion_relation(rotating(0.85)).leading()
    assert mode.k == 3
    path = iterate(rotating(0.85), 3, np.column_stack([x, shifted]) / 10)
    assert np.isnan(path.mode_advance(mode.left, 3))


def test_a_state_that_dies_keeps_its_speed():
    """What decays to 1e-200 of one mode alone is no rounding of anything larger."""
    wave = 1e-200 * np.cos(np.pi / 4 * np.arange(32))
    assert phase_advance(wave, 0.5 * np.roll(wave, -1), 4) == pytest.approx(np.pi / 4)
    assert np.isnan(phase_advance(0 * wave, wave, 4))
