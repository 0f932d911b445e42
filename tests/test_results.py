"""Results of all theories have one shape: properties where there is one answer, methods where k or ψ must be said."""

import numpy as np
import pytest

from amplitude import (
    ExactState,
    balloon,
    branch,
    cluster_state,
    clusters,
    competition,
    find_oscillation,
    find_state,
    homogeneous_state,
    normal_form,
    partitions,
    pattern_branch,
    period_four,
    period_three,
    period_two,
    standing_start,
    standing_wave,
    travelling_wave,
)
from dispersion import Activation, Block, FeedForward, Head, Kernel, dispersion_relation
from simulate import iterate

LOBES = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0)
SKEWED = Kernel.skewed_lobe(32, separation=4, width_below=0.7, width_above=2.0, strength=1.0)
CUBIC = FeedForward.scalar(Activation.polynomial([-0.1, 0.1, -0.3]))


def ring(gain, kernel=LOBES, feedforward=None):
    return Block([Head(kernel, -gain, 1.5)], feedforward or FeedForward.scalar("tanh", -0.1))


def sector(n, lags, k, mu=1e-3):
    """A block on `n` tokens whose mode k has Λ = 1 + μ; `lags`: logits by lag."""
    logits = np.zeros(n)
    for lag, value in lags.items():
        logits[[lag, -lag]] = value
    kernel = Kernel.table(logits)
    return ring(-((1 + mu) / 0.9 - 1) / kernel.symbol[k].real, kernel, CUBIC)


def form(block, k, order=5):
    return normal_form(block, dispersion_relation(block).mode(k), order)


def circle():
    c, s = np.cos(1.3), np.sin(1.3)
    turn = np.array([[c, -s], [s, c]]) @ np.diag([1.0, 0.9])
    pair = Kernel.gaussian_lobes(16, separation=3, width=1.0, strength=2.0)
    content = np.array([[0.0, -1.0], [1.0, 2.0]])
    block = Block([Head(pair, -0.84 * turn, content)], FeedForward.elementwise("tanh", 2, -0.1))
    mode = dispersion_relation(block).leading()
    both = normal_form(block, mode, 3)
    return find_oscillation(block, standing_start(mode, both.amplitude[0], samples=5), both.phase_advance[0])


RESULTS = {
    "standing wave": lambda: standing_wave(ring(0.4), 4),
    "travelling wave": lambda: travelling_wave(ring(1.2, SKEWED), 3),
    "period two": lambda: period_two(sector(8, {1: 2.0}, 4)),
    "period four": lambda: period_four(sector(8, {2: 2.0}, 2)),
    "period three": lambda: period_three(sector(6, {1: 2.0, 2: 1.4}, 2)),
    "homogeneous": lambda: homogeneous_state(ring(-0.12, Kernel.uniform(8), CUBIC)),
    "normal form": lambda: form(ring(0.4), 4),
    "exact state": lambda: find_state(ring(0.4), standing_wave(ring(0.4), 4).field()),
    "oscillation": circle,
}


@pytest.mark.parametrize("name", RESULTS)
def test_one_answer_is_a_property(name):
    result = RESULTS[name]()
    assert isinstance(result.stable, bool)
    assert result.stable
    assert np.isfinite([result.amplitude, result.phase_advance]).all()
    for of in ("amplitude", "phase_advance", "stable"):
        with pytest.raises(AttributeError):
            setattr(result, of, 1.0)


def test_all_theories_agree_on_what_an_amplitude_is():
    block = ring(0.33)
    wave, exact = standing_wave(block, 4), find_state(block, standing_wave(block, 4).field())
    path = iterate(block, 5000, wave.field())
    for result in (wave, form(block, 4), path):
        assert result.amplitude == pytest.approx(exact.amplitude, rel=0.02)
        assert result.phase_advance == pytest.approx(exact.phase_advance, abs=1e-9)


def test_what_depends_on_the_wavenumber_is_a_method():
    state = RESULTS["exact state"]()
    assert state.amplitude_at(4) == state.amplitude == state.amplitude_at(-4)
    assert state.phase_advance_at(12) == 0.0
    assert state.growth == abs(state.critical[0])
    path = branch(ring, [0.36, 0.38, 0.4], state, name="gain")
    assert path.k == 4
    np.testing.assert_array_equal(path.amplitude, path.amplitude_at(4))
    np.testing.assert_array_equal(path.phase_advance_at(4), 0.0)
    assert path.stable.all()
    turning = RESULTS["oscillation"]()
    assert turning.amplitude == turning.amplitude_at(turning.k)


def test_growth_is_a_factor_a_layer_where_two_layers_make_a_cycle():
    polynomial = FeedForward.scalar(Activation.polynomial([-1.9, 0.1, 0.3]))
    block = Block([Head(LOBES, -0.325, 1.5)], polynomial)
    state = find_state(block, standing_wave(block, 4).field())
    assert state.kind == "alternating"
    assert state.growth**2 == pytest.approx(abs(state.critical[0]), rel=1e-12)
    found = balloon(block, [4])
    assert np.nanmin(abs(found.growth - state.growth)) < 1e-9


def test_names_that_scripts_rely_on():
    block = Block(
        heads=[Head(Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0), value=-0.4, content=1.5)],
        feedforward=FeedForward.scalar("tanh", scale=-0.1),
    )
    mode = dispersion_relation(block).leading()
    wave = standing_wave(block, mode.k)
    made = normal_form(block, [mode], order=7)
    path = iterate(block, depth=5000, start=1e-3, rng=0)
    assert np.isfinite([wave.beta, wave.mu, wave.amplitude, made.phase_advance, path.phase_advance]).all()
    assert made.coefficients
    assert made.amplitude == pytest.approx(path.amplitude, rel=2e-3)
    assert made.field(32).shape == path.state.shape == (32, 1)
    np.testing.assert_allclose(made.field(32), made.field(), atol=1e-12)


def test_a_form_without_a_state_is_not_stable():
    made = form(Block([Head(LOBES, -0.33)], FeedForward.scalar("tanh", -0.1)), 4, 3)
    assert not made.stable
    assert np.isnan(made.amplitude)
    assert clusters(ring(0.6, Kernel.uniform(8), FeedForward([[2.0]], [[0.01]], "tanh"))).stable
    assert competition(ring(0.6), 4, 5).amplitudes.shape[1] == 2


def uniform(scale=0.01):
    return ring(0.6, Kernel.uniform(8), FeedForward([[2.0]], [[scale]], "tanh"))


SAYS = {
    "standing wave": ("Standing wave, k = 4 on 32 tokens", "growth 1.025666 a layer, rate +0.0253", "amplitude 0.1741"),
    "travelling wave": ("Travelling wave, k = 3 on 32 tokens", "phase advance 0.03226 rad a layer", "other modes"),
    "period two": ("Pattern of q = π", "growth 1.001000", "gamma = -0.4814"),
    "period four": ("Pattern of q = π/2", "ψ = 0.7854", "c1 = -1.314, c3 = -0.3507"),
    "period three": ("Pattern of q = 2π/3", "amplitude 0.08433", "stable"),
    "homogeneous": ("Pattern of q = 0", "growth 1.008000", "stable"),
    "normal form": ("Normal form of order 5, k = 4 on 32 tokens, d = 1", "amplitude 0.1687", "k = 3 (|Λ| = 0.9966)"),
    "exact state": ("Exact steady state, k = 4 on 32 tokens, d = 1", "small changes: growth 0.999986", "residual"),
    "oscillation": ("Invariant circle through 5 fields, k = 3 on 16 tokens, d = 2", "phase advance 0.25", "stable"),
}


@pytest.mark.parametrize("name", SAYS)
def test_a_result_says_what_it_is(name):
    said = str(RESULTS[name]())
    assert all(part in said for part in SAYS[name])
    assert 1 < len(said.splitlines()) < 8
    assert max(map(len, said.splitlines())) < 120


def test_several_modes_and_clusters_say_what_they_are():
    said = str(competition(ring(0.6), 4, 5))
    assert "Competition of k = 4 and 5 on 32 tokens" in said
    assert "mode 1: stable (R_1, R_2) (0.2594, 0)" in said
    assert "values 0.1455, -0.1455" in str(clusters(uniform()))
    assert "Exact state of 2 clusters, values 0.1457, -0.1457" in str(cluster_state(uniform()))
    assert str(partitions(uniform())[0]).startswith("8 tokens in clusters of 1, 7")
    both = normal_form(ring(0.6), [dispersion_relation(ring(0.6)).mode(k) for k in (4, 5)], 3)
    assert "k = 4, 5 on 32 tokens" in str(both)


def test_branches_and_balloons_say_what_they_are():
    path = pattern_branch(ring, (0.3, 0.6), k=4, name="gain")
    said = str(path)
    assert said.startswith(f"Branch of {len(path)} exact steady states, k = 4")
    assert f"{path.stable.sum()} of them stable" in said
    assert "gain from 0.3183 to 0.6, amplitude from 0 to 0.24" in said
    (event,) = path.bifurcations
    assert str(event) == "branch point at 0.5693, amplitude 0.2393 of k = 4"
    assert str(event) in said
    assert "ended: the parameter reached 0.6" in said
    few = balloon([ring(gain) for gain in (0.2, 0.6)], values=(0.2, 0.6), name="gain")
    assert "gain = 0.2: no pattern" in str(few)
    assert "gain = 0.6: stable k = 4; unstable k = 3, 5" in str(few)
    many = balloon([ring(0.2)] * 10, [4])
    assert str(many).endswith("and 2 blocks more")


def test_printing_does_not_compute_thousands_of_multipliers():
    kernel = Kernel.gaussian_lobes(1200, separation=150, width=30.0, strength=2.0)
    state = ExactState(ring(0.1, kernel), "steady", np.zeros((1200, 1)), np.zeros(1), 0.0)
    assert "the multipliers of its 1200 numbers are not computed" in str(state)
    assert "_spectrum" not in vars(state)
