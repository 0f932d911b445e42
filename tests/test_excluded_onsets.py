"""Where a closed form divides by what vanishes, it says so, or has no pattern to offer; it never fails."""

import numpy as np
import pytest

from amplitude import (
    clusters,
    competition,
    homogeneous_state,
    period_four,
    period_three,
    period_two,
    standing_wave,
    travelling_wave,
)
from dispersion import Activation, Block, ExclusionError, FeedForward, Head, Kernel

AT = ("gain", "onset", "paper")


def vanishing(kernel, value=0.0):
    """α_1 = 0: every Λ is 0."""
    return Block([Head(kernel, value, 1.5)], FeedForward.scalar(Activation.polynomial([-1.0, 0.1, -0.3])))


def cancelling(kernel, k, a1=0.9):
    """1 + ηλ_k = 0 for a real λ_k: Λ = 0 at this k alone."""
    polynomial = Activation.polynomial([a1 - 1, 0.1, -0.3])
    return Block([Head(kernel, -1 / kernel.symbol[k].real, 1.5)], FeedForward.scalar(polynomial))


SYMMETRIC = Kernel.gaussian_lobes(24, 4, 1.0, 2.0)
DIRECTIONAL = Kernel.skewed_lobe(24, 4, 0.7, 2.0, 1.0)
BLOCKS = {
    "no slope": vanishing(SYMMETRIC, -0.4),
    "no value": vanishing(SYMMETRIC),
    "no positions": vanishing(Kernel.uniform(24), -0.4),
    "cancelled": cancelling(SYMMETRIC, 5),
}


@pytest.mark.parametrize("at", AT)
@pytest.mark.parametrize("name", BLOCKS)
def test_waves_and_competition_are_excluded(name, at):
    with pytest.raises(ExclusionError, match="^(block: got Λ = 0|at: got)"):
        standing_wave(BLOCKS[name], 5, at)
    with pytest.raises(ExclusionError, match="^(block: got Λ = 0|at: got)"):
        competition(BLOCKS[name], 3, 5, at)


@pytest.mark.parametrize("at", AT)
@pytest.mark.parametrize("name", ["no slope", "no value", "no positions"])
def test_real_sectors_are_excluded(name, at):
    for sector in (period_two, period_three, period_four):
        with pytest.raises(ExclusionError, match="^(block: got Λ = 0|at: got)"):
            sector(BLOCKS[name], at)


@pytest.mark.parametrize("at", AT)
def test_each_sector_that_is_cancelled_alone(at):
    for sector, k in ((period_two, 12), (period_three, 8), (period_four, 6)):
        with pytest.raises(ExclusionError):
            sector(cancelling(SYMMETRIC, k), at)
    with pytest.raises(ExclusionError):
        travelling_wave(vanishing(DIRECTIONAL, -0.4), 3, at)


def test_the_homogeneous_state_without_slope_is_that_of_the_map():
    """H(y) = .1y² − .3y³ at y = .6B: no linear term, and yet exact roots of g(B) = B, or none."""
    form = homogeneous_state(vanishing(SYMMETRIC, -0.4))
    assert form.multiplier == 0
    for root in form.roots:
        assert 0.1 * (0.6 * root) ** 2 - 0.3 * (0.6 * root) ** 3 == pytest.approx(root)
    for at in ("onset", "paper"):
        with pytest.raises(ExclusionError):
            homogeneous_state(vanishing(SYMMETRIC, -0.4), at)


def test_a_slaved_mode_in_resonance_is_excluded():
    """Λ² = J at the harmonic, exactly: λ_c = 0, λ_2c = 1/3, η = −3/2, α_1 = 1/2: Λ = 1/2, J_2 = 1/4."""
    n = 16
    weights = np.full(n, 1 / n)
    weights += 2 / (3 * n) * np.cos(2 * np.pi * 6 * np.arange(n) / n)
    kernel = Kernel.table(np.log(weights))
    polynomial = FeedForward.scalar(Activation.polynomial([-0.5, 0.1, -0.3]))
    block = Block([Head(kernel, -1.5, 1.5)], polynomial)
    assert kernel.symbol[6].real == pytest.approx(1 / 3)
    with pytest.raises(ExclusionError, match="resonance"):
        standing_wave(block, 3)


def test_clusters_whose_mean_is_in_resonance_are_excluded():
    """α_1² = α_1(1 + η): the mean follows the square of the separation without limit."""
    for a1, eta in ((0.5, -0.5), (0.0, -0.5)):
        polynomial = Activation.polynomial([a1 - 1, 0.1, -0.3])
        with pytest.raises(ExclusionError):
            clusters(Block([Head(Kernel.uniform(8), eta, 1.0)], FeedForward.scalar(polynomial)))
    with pytest.raises(ExclusionError):
        clusters(Block([Head(Kernel.uniform(8), 0.0, 1.0)]))


def linear(value=-0.4):
    """χ = 0: attention is linear."""
    polynomial = FeedForward.scalar(Activation.polynomial([-0.1]))
    return Block([Head(SYMMETRIC, value, 0.0)], polynomial)


def test_a_map_without_nonlinearity_has_no_amplitude_and_says_so_by_nan():
    block = linear()
    three, homogeneous = period_three(block), homogeneous_state(block)
    numbers = (
        period_two(block).amplitude,
        period_four(block).amplitude_at(0.0),
        *three.fold,
        homogeneous.transcritical_root,
    )
    assert np.isnan(numbers).all()
    assert not period_four(block).stable_at(0.0)
    assert three.amplitudes_at(0.0).size == homogeneous.roots.size == 0
    weak = linear(value=-0.1)
    assert standing_wave(weak, 5).amplitude == 0.0
    assert not standing_wave(weak, 5).stable
    both = competition(weak, 3, 5)
    assert both.regime == "collapsed"
    assert np.isnan([both.pure(1), both.transverse(1), *both.mixed]).all()
