"""Trajectories against published and independently computed values; early stop; observables."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from scipy.optimize import brentq

import simulate
from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation
from simulate import iterate, sweep
from simulate.settle import CHECK, RARER, Snapshot, checks

mpl.use("Agg")

LOBES = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0)
TANH = FeedForward.scalar("tanh", scale=-0.1)


def scalar_block(kernel, eta, feedforward=TANH):
    return Block([Head(kernel, value=eta, content=1.5)], feedforward)


def polynomial(*alpha):
    """H(h) = α_1 h + α_2 h² + α_3 h³."""
    return FeedForward.scalar(Activation.polynomial([alpha[0] - 1, *alpha[1:]]))


def eta_at(kernel, k, mu, slope=0.9):
    """The η < 0 nearest 0 with slope·|1 + ηλ_k| = 1 + μ."""
    return brentq(lambda eta: slope * abs(1 + eta * kernel.symbol[k]) - 1 - mu, -3, 0, xtol=1e-15)


@pytest.mark.parametrize(("mu", "amplitude"), [(0.002, 0.05447), (0.01, 0.11537)])
def test_standing_wave(mu, amplitude):
    path = iterate(scalar_block(LOBES, eta_at(LOBES, 4, mu)), depth=8000)
    assert path.wavenumber == 4
    assert path.amplitude == pytest.approx(amplitude, rel=1e-4)
    assert path.phase_advance == pytest.approx(0, abs=1e-6)
    assert path.spectrum[4] == pytest.approx(path.amplitude, rel=1e-14)
    assert path.heterogeneity == pytest.approx(1)


def test_travelling_wave():
    kernel = Kernel.skewed_lobe(32, separation=4, width_below=0.7, width_above=2.0, strength=1.0)
    path = iterate(scalar_block(kernel, eta_at(kernel, 3, 4.4515e-4)), depth=60_000)
    assert (path.wavenumber, path.status) == (3, "settled")
    assert path.amplitude == pytest.approx(0.012335, abs=5e-7)
    assert path.phase_advance == pytest.approx(0.03055007, abs=5e-9)


def test_alternating_wave():
    block = scalar_block(LOBES, eta_at(LOBES, 4, 1e-3), polynomial(-0.9, 0.1, 0.3))
    tokens = np.arange(32)
    path = iterate(block, depth=20_000, start=0.03 * np.cos(2 * np.pi * 4 * tokens / 32))
    assert (path.wavenumber, path.status) == (4, "settled")
    assert path.amplitude == pytest.approx(0.02198165, rel=2e-7)
    assert abs(path.phase_advance) == pytest.approx(np.pi)


def test_two_waves_coexist():
    near, far = (Kernel.gaussian_lobes(32, separation, 0.7, 1.0) for separation in (2.0, 4.5))
    kernel = 4 * ((1 - 0.4997651) * near + 0.4997651 * far)
    path = iterate(scalar_block(kernel, eta_at(kernel, 4, 0.002)), depth=60_000)
    assert path.spectrum[4] == pytest.approx(0.03277, abs=1e-5)
    assert path.spectrum[10] == pytest.approx(0.02531, abs=1e-5)


def test_balanced_clusters():
    block = scalar_block(Kernel.uniform(32), -0.6, polynomial(1.01, 0.3, -1 / 3))
    path = iterate(block, depth=400, start=0.09 * np.repeat([1.0, -1.0], 16))
    low, high = path.cluster_values
    assert (high - low) / 2 == pytest.approx(0.09444, abs=1e-5)
    assert path.mean == pytest.approx(0.00433, abs=1e-5)


def test_slow_phase_locking_is_not_settled():
    kernel = Kernel.gaussian_lobes(32, separation=1.8, width=1.0, strength=2.0)
    block = scalar_block(kernel, -0.6)

    def wave(amplitude, phase):
        return 2 * amplitude * np.cos(2 * np.pi * 8 * np.arange(32) / 32 + phase)

    creeping = iterate(block, depth=5000, start=wave(0.0413, np.pi / 8))
    assert creeping.status == "unsettled"
    assert 1e-7 < abs(creeping.phase_advance) < 1e-4
    # So close to the unstable phase π/4 that the moduli have long been still to 1e-12.
    saddle = iterate(block, depth=5000, start=wave(0.04071356, np.pi / 4 + 1e-7))
    assert saddle.status == "unsettled"
    assert saddle.amplitude == pytest.approx(0.04071356, abs=1e-8)
    locked = iterate(block, depth=200_000, start=wave(0.0413, 0.02))
    assert locked.status == "settled"
    assert locked.amplitude == pytest.approx(0.04134419, abs=5e-9)


@pytest.mark.parametrize(("turn", "settled"), [(0.9e-10, True), (1.1e-10, False), (np.pi + 0.9e-10, True), (0.3, True)])
def test_what_counts_as_settled(turn, settled):
    """Two checks of a wave of constant modulus at tolerance 64e-10, the first with Δψ = 0.3."""

    def check(advance):
        angle = 2 * np.pi * 3 * np.arange(32)[:, None] / 32
        return Snapshot.of(np.cos(angle + advance)[None], np.cos(angle)[None])

    assert check(turn).settled(check(0.3), CHECK * 1e-10).tolist() == [settled]


def test_early_stop_gives_the_state_of_the_full_depth():
    kernel = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=3.6)
    block = scalar_block(kernel, -0.8)
    short, full = iterate(block), iterate(block, tolerance=None)
    assert short.status == "settled"
    assert short.depth < 5000
    assert short.layers[-1] == short.depth
    assert (full.status, full.depth) == ("unsettled", 5000)
    np.testing.assert_allclose(short.state, full.state, rtol=0, atol=1e-9)


@pytest.mark.parametrize("slope", [0.9, 0.5])
def test_decay_settles_at_zero(slope):
    path = iterate(scalar_block(LOBES, -0.1, polynomial(slope)))
    assert (path.status, path.wavenumber) == ("settled", 0)
    assert path.depth < 5000
    assert np.abs(path.state).max() < 1e-12


def test_a_homogeneous_state_settles():
    block = Block([Head(LOBES, value=0.2, content=1.5)], polynomial(0.9, 0.0, -0.3))
    path = iterate(block)
    assert (path.status, path.wavenumber) == ("settled", 0)
    assert abs(path.mean) > 0.1
    assert path.heterogeneity < 1e-10


def test_divergence_is_marked_and_finite():
    path = iterate(Block([Head(LOBES, value=1.0, content=1.5)], TANH), depth=500, start=0.1)
    assert path.status == "diverged"
    assert path.depth < 100
    assert np.abs(path.state).max() <= 1e6
    beyond = iterate(Block([Head(LOBES, value=-0.1)], TANH), start=np.full(32, 2e6))
    assert (beyond.status, beyond.depth, len(beyond.states)) == ("diverged", 0, 1)


def test_records_are_the_layers_of_the_block():
    block = scalar_block(LOBES, -0.5)
    path = iterate(block, depth=25, start=0.3, rng=4, every=10)
    assert path.layers.tolist() == [0, 10, 20, 25]
    state = path.states[0]
    assert state == pytest.approx(0.3 * np.random.default_rng(4).standard_normal((32, 1)))
    for layer in range(1, 26):
        before, state = state, block.forward(state)
        if layer in path.layers:
            np.testing.assert_allclose(path.states[path.layers == layer][0], state, atol=1e-15)
    np.testing.assert_allclose(path.previous, before, atol=1e-15)
    assert len(iterate(block, depth=5000, tolerance=None).states) == 1001


def rotating_block(content):
    angle, gain = 1.3, 0.8116654721
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    kernel = Kernel.gaussian_lobes(32, separation=5, width=1.0, strength=2.0)
    head = Head(kernel, -gain * rotation @ np.diag([1, 0.9]), content)
    return Block([head], FeedForward.elementwise("tanh", 2, -0.1))


def test_two_features_turn_as_the_reference_says():
    tokens = np.arange(32)
    angle = 2 * np.pi * 3 * tokens / 32
    # A travelling rotating wave near its exact amplitude 0.028660 and phase advance 0.25014741.
    start = 0.057 * np.stack([np.cos(angle), np.sin(angle)], axis=-1) / np.sqrt(2)
    path = iterate(rotating_block(2 * np.eye(2)), depth=15_000, start=start)
    assert path.wavenumber == 3
    assert path.amplitude == pytest.approx(0.028660, abs=1e-6)
    assert abs(path.phase_advance) == pytest.approx(0.25014741, abs=2e-6)
    assert path.spectrum.shape == (17, 2)
    assert path.mean.shape == (2,)
    assert path.cluster_values.shape == (2, 2)
    assert path.amplitude == pytest.approx(np.hypot(*path.spectrum[3]))


def test_many_features_diverge_without_an_error():
    block = Block([Head(LOBES, np.eye(2), np.eye(2))], FeedForward.elementwise("tanh", 2, -0.1))
    path = iterate(block, depth=300)
    assert path.status == "diverged"
    assert np.abs(path.state).max() <= 1e6


@pytest.mark.parametrize(
    ("keywords", "argument"),
    [
        ({"depth": 0}, "depth"),
        ({"depth": 2.5}, "depth"),
        ({"start": np.full(32, np.nan)}, "start"),
        ({"start": np.inf}, "start"),
        ({"start": np.zeros(31)}, "start"),
        ({"start": np.zeros((32, 2))}, "start"),
        ({"tolerance": -1e-3}, "tolerance"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"every": 0}, "every"),
        ({"block": "block"}, "block"),
    ],
)
def test_refusals_name_the_argument(keywords, argument):
    with pytest.raises(ArgumentError) as caught:
        iterate(**{"block": scalar_block(LOBES, -0.5)} | keywords)
    assert caught.value.argument == argument


def test_plot_draws_every_layer():
    path = iterate(scalar_block(LOBES, -0.5), depth=30, start=0.3)
    axes = path.plot()
    (mesh,) = axes.collections
    assert mesh.get_array().size == 31 * 32
    assert mesh.norm.vmin == -mesh.norm.vmax
    assert axes.yaxis_inverted()
    mpl.pyplot.close(axes.figure)


def test_observables_of_known_waves():
    n, tokens = 12, np.arange(12)
    wave = 0.4 + 2 * 0.3 * np.cos(2 * np.pi * 2 * tokens / n + 0.5) + 0.1 * (-1.0) ** tokens
    later = 0.4 + 2 * 0.3 * np.cos(2 * np.pi * 2 * tokens / n + 0.7) + 0.1 * (-1.0) ** tokens
    np.testing.assert_allclose(simulate.spectrum(wave), [0.4, 0, 0.3, 0, 0, 0, 0.1], atol=1e-15)
    assert simulate.dominant_wavenumber(wave) == 2
    assert simulate.amplitude(wave, 6) == pytest.approx(0.1)
    assert simulate.fourier(wave)[2] == pytest.approx(0.3 * np.exp(0.5j))
    assert simulate.phase_advance(wave, later, 2) == pytest.approx(0.2)
    assert simulate.phase_advance(wave, later, -2) == pytest.approx(-0.2)
    both = np.array([wave, np.full(n, 3.0)])
    np.testing.assert_array_equal(simulate.dominant_wavenumber(both), [2, 0])
    np.testing.assert_allclose(simulate.amplitude(both, [2, 0]), [0.3, 3.0])
    assert np.isnan(simulate.phase_advance(np.zeros(n), wave, 1))
    with pytest.raises(ArgumentError):
        simulate.amplitude(wave, 12)


def test_cluster_observables():
    x = np.array([[1.0, -0.5, 1.2, -0.7], [2.0, 2.0, 2.0, 2.0], [0.0, 1.0, 5.0, 1.05]])
    np.testing.assert_allclose(simulate.cluster_values(x), [[-0.6, 1.1], [2, 2], [2.05 / 3, 5]])
    np.testing.assert_array_equal(simulate.clusters(x, 0.3), [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 2, 1]])
    np.testing.assert_allclose(simulate.heterogeneity([[1, -1], [2, 2], [0, 0]]), [1, 0, 0])


def test_importing_simulate_is_light():
    code = "import sys, simulate; print([m for m in ('numba', 'xarray', 'matplotlib', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("depth", [1, 63, 64, 65, 5000, 100_001])
def test_checks_are_regular_and_grow_rare_with_depth(depth):
    pairs = list(checks(depth))
    before = 0
    for first, second in pairs:
        assert before <= first < second <= depth
        assert second - first == CHECK or second == depth
        assert first - before <= before / RARER
        before = second
    assert before == depth


def test_a_late_stop_is_the_same_in_a_sweep_and_alone():
    def make(gain):
        return scalar_block(LOBES, -gain)

    gain = brentq(lambda gain: dispersion_relation(make(gain)).growth.max() - 1.001, 0.1, 0.6)
    start = 1e-3 * np.cos(2 * np.pi * 4 * np.arange(32) / 32)  # in phase with the ring
    point = sweep(make, {"gain": [gain]}, depth=200_000, start=start, tolerance=1e-9).isel(gain=0)
    path = iterate(make(gain), 200_000, start, tolerance=1e-9, every=200_000)
    assert path.status == "settled"
    assert CHECK * RARER < path.depth == int(point.layers)
    assert (path.state[:, 0] == point.state.values).all()
