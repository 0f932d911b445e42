"""Two modes: printed and measured coefficients, exact mixed states, verdicts against iteration, refusals."""

from itertools import islice

import closed_forms as cf
import numpy as np
import pytest
from exact import component, cosine, iterate, multipliers, newton
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from multilinear import FullMap
from scipy.optimize import brentq

from amplitude import REGIMES, Competition, competition, standing_wave, travelling_wave
from dispersion import ArgumentError, Block, ExclusionError, Head, Kernel


def resonant(n, i, j):
    """Whether n_1q_i + n_2q_j ≡ 0 with 0 < |n_1| + |n_2| ≤ 4."""
    return any((a * i + b * j) % n == 0 for a in range(-4, 5) for b in range(-4, 5) if 0 < abs(a) + abs(b) <= 4)


PAIRS = [
    (n, i, j)
    for n in (13, 16, 17, 19)
    for i in range(1, (n + 1) // 2)
    for j in range(1, (n + 1) // 2)
    if i != j and not resonant(n, i, j)
]
CASES = {
    "seed": st.integers(0, 10**6),
    "nij": st.sampled_from(PAIRS),
    "heads": st.integers(1, 3),
    "symmetric": st.booleans(),
    "activation": st.sampled_from(["tanh", "gelu", "silu", "erf", "sine"]),
    "at": st.sampled_from(["gain", "onset", "paper"]),
}


def draw(seed, nij, heads, symmetric, activation, at, a):
    n, i, j = nij
    block = cf.random_block(seed, n, heads, symmetric, activation, a, strength=0.6)
    s = cf.Scalars.of(block, a)
    assume(max(abs(s.J(k)) for k in (0, 2 * i, 2 * j, i + j, i - j)) < 0.98)
    here = s.at_onset(max((i, j), key=lambda k: abs(s.J(k)))) if at == "onset" else s
    assume(here is not None and min(abs(here.J(i)), abs(here.J(j))) > 0.1)
    assume(np.abs(here.eta).max() < 4)
    m_i, m_j = (here.J(k) / (abs(here.J(k)) if at == "paper" else 1) for k in (i, j))
    gaps = [abs(m_i) ** 2 - here.J(0), abs(m_j) ** 2 - here.J(0), m_i**2 - here.J(2 * i), m_j**2 - here.J(2 * j)]
    gaps += [m_i * m_j - here.J(i + j), m_i * np.conj(m_j) - here.J(i - j), m_j * np.conj(m_i) - here.J(j - i)]
    assume(np.abs(gaps).min() > 0.1)
    return block, here, m_i, m_j


class TestCoefficients:
    @given(**CASES)
    def test_printed_form(self, seed, nij, heads, symmetric, activation, at):
        block, s, m_i, m_j = draw(seed, nij, heads, symmetric, activation, at, 0.0)
        _, i, j = nij
        c = competition(block, i, j, at)
        beta = np.array(
            [
                [cf.single_mode(s, i, m_i), cf.cross(s, i, j, m_i, m_j)],
                [cf.cross(s, j, i, m_j, m_i), cf.single_mode(s, j, m_j)],
            ]
        )
        phases = np.array([[m_i], [m_j]])
        rounding = 1e-12 * max(1, np.abs(beta).max())  # sums of terms of this size, which may cancel
        np.testing.assert_allclose(c.coefficients, -np.abs(phases) / phases * beta, rtol=1e-12, atol=rounding)
        np.testing.assert_allclose(c.mu, [abs(cf.Scalars.of(block).J(k)) - 1 for k in (i, j)], atol=1e-13)

    @settings(max_examples=15)
    @given(
        **(CASES | {"nij": st.sampled_from(PAIRS[:8]), "at": st.sampled_from(["gain", "onset"])}),
        a=st.one_of(st.just(0.0), st.floats(-0.8, 0.8)),
    )
    def test_full_map(self, seed, nij, heads, symmetric, activation, at, a):
        block, s, m_i, m_j = draw(seed, nij, heads, symmetric, activation, at, a)
        _, i, j = nij
        c = competition(block, i, j, at, a)
        full = FullMap(cf.replanted(s, block) if at == "onset" else block, a)
        first, second = full.mode(i), full.mode(j)
        beta = [[full.cubic(first), full.cross(first, second)], [full.cross(second, first), full.cubic(second)]]
        phases = np.array([[m_i], [m_j]])
        np.testing.assert_allclose(c.coefficients, -np.abs(phases) / phases * beta, rtol=1e-8, atol=1e-9)

    @given(seed=st.integers(0, 10**6), nij=st.sampled_from(PAIRS), symmetric=st.booleans())
    def test_the_diagonal_is_that_of_single_waves_and_order_does_not_matter(self, seed, nij, symmetric):
        block, *_ = draw(seed, nij, 2, symmetric, "gelu", "gain", 0.0)
        _, i, j = nij
        c, swapped = competition(block, i, j), competition(block, j, -i)
        wave = standing_wave if symmetric else travelling_wave
        np.testing.assert_allclose(np.diag(c.coefficients), [wave(block, i).beta, wave(block, j).beta], rtol=1e-13)
        np.testing.assert_allclose(swapped.coefficients, c.coefficients[::-1, ::-1], rtol=1e-12, atol=1e-13)

    @given(seed=st.integers(0, 10**6), nij=st.sampled_from(PAIRS))
    def test_equal_gains_of_one_symmetric_head_have_equal_cross_coefficients(self, seed, nij):
        n, i, j = nij
        rng = np.random.default_rng(seed)
        decay = dict(enumerate(rng.uniform(0.8, 0.95, n // 2 + 1)))
        block = cf.one_head(n, decay | {0: 0.1, i: 1.02, j: 1.02}, (0.9, rng.normal(), rng.normal()), rng.normal())
        assume(block is not None)
        c12, c21 = competition(block, i, j).cross_coefficients
        assert c12 == pytest.approx(c21, rel=1e-9, abs=1e-9)

    def test_equal_gains_of_several_heads_have_not(self):
        """Σηχλ_i² need not equal Σηχλ_j² where Σηλ_i = Σηλ_j."""
        block = cf.designed(13, {0: 0.3, 1: 1.02, 5: 1.02, 2: 0.5, 3: -0.1, 4: 0.2, 6: 0.4})
        c12, c21 = competition(block, 1, 5).cross_coefficients
        full = FullMap(block)
        first, second = full.mode(1), full.mode(5)
        np.testing.assert_allclose(
            [c12, c21], [-full.cross(first, second).real, -full.cross(second, first).real], rtol=1e-8
        )
        assert abs(c12 - c21) > 0.01 * abs(c12)


def mixture(w):
    near, far = (Kernel.gaussian_lobes(32, separation, 0.7, 1.0) for separation in (2, 4.5))
    return 4 * ((1 - w) * near + w * far)


W_EQUAL = brentq(lambda w: (mixture(w).symbol[4] - mixture(w).symbol[10]).real, 0.3, 0.7, xtol=1e-15)


def coexisting(mu):
    kernel = mixture(W_EQUAL)
    return cf.tanh_block(kernel, cf.eta_for(1 + mu, 0.9, kernel.symbol[4]))


class TestCoexistenceReference:
    def test_coefficients(self):
        kernel = mixture(W_EQUAL)
        assert f"{W_EQUAL:.7f}" == "0.4997651"
        assert [f"{kernel.symbol[k].real:.7f}" for k in (4, 10)] == ["-0.2064007"] * 2
        assert f"{cf.eta_for(1, 0.9, kernel.symbol[4]):.7f}" == "-0.5383273"
        c = competition(coexisting(0.002), 4, 10, at="onset")
        assert [f"{s:.5f}" for s in c.self_coefficients] == ["1.16276", "1.20373"]
        assert [f"{s:.5f}" for s in c.cross_coefficients] == ["1.09801"] * 2
        assert c.regime == "coexistence"

    def test_amplitudes(self):
        block = coexisting(0.002)
        c = competition(block, 4, 10, at="onset")
        assert [f"{R:.5f}" for R in c.mixed] == ["0.03301", "0.02584"]
        np.testing.assert_array_equal(c.amplitudes, [c.mixed])
        x, derivative = newton(block, cosine(32, 4, c.mixed[0]) + cosine(32, 10, c.mixed[1]))
        exact = [abs(component(x, k)) for k in (4, 10)]
        assert [f"{R:.5f}" for R in exact] == ["0.03277", "0.02532"]
        leading = multipliers(derivative)
        np.testing.assert_allclose(leading[:2], 1, atol=3e-6)  # two translations

    def test_multipliers(self):
        errors = []
        for mu in (0.002, 0.001, 0.0005):
            c = competition(coexisting(mu), 4, 10, at="onset")
            _, derivative = newton(coexisting(mu), cosine(32, 4, c.mixed[0]) + cosine(32, 10, c.mixed[1]))
            predicted = np.linalg.eigvals(-2 * np.outer(c.mixed, c.mixed) * c.coefficients.real)
            slow = predicted[np.argmin(np.abs(predicted))]
            assert predicted.min() == pytest.approx(-2 * mu, rel=1e-4)
            errors.append((multipliers(derivative)[2] - 1) / slow - 1)
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.5, atol=0.1)

    def test_iteration_approaches_that_state_from_either_side(self):
        block = coexisting(0.01)
        c = competition(block, 4, 10)
        x, _ = newton(block, cosine(32, 4, c.mixed[0]) + cosine(32, 10, c.mixed[1]))
        exact = np.array([abs(component(x, k)) for k in (4, 10)])
        starts = np.array([cosine(32, 4, R) + cosine(32, 10, S) for R, S in [(0.09, 0.01), (0.01, 0.09)]])
        settled = iterate(block, starts, 20_000)
        for x in settled:
            np.testing.assert_allclose([abs(component(x, k)) for k in (4, 10)], exact, rtol=0.01)

    def test_error_is_linear_in_mu(self):
        errors = []
        for mu in (0.002, 0.001, 0.0005):
            c = competition(coexisting(mu), 4, 10, at="onset")
            x, _ = newton(coexisting(mu), cosine(32, 4, c.mixed[0]) + cosine(32, 10, c.mixed[1]))
            errors.append([c.mixed[0] / abs(component(x, 4)) - 1, c.mixed[1] / abs(component(x, 10)) - 1])
        ratios = np.divide(errors[1:], errors[:-1])
        np.testing.assert_allclose(ratios, 0.5, atol=0.05)


def panel_d(w, s):
    first = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=s)
    second = Kernel.gaussian_lobes(32, separation=3, width=0.7, strength=s)
    return cf.tanh_block((1 - w) * first + w * second, -0.6)


def kept(block, k, others, layers=1500):
    """Whether the wave of wavenumber k, disturbed by the others, wins."""
    noise = 1e-3 * np.random.default_rng(k).normal(size=block.n)
    x = iterate(block, cosine(block.n, k, 0.025) + noise, layers)
    amplitudes = {other: abs(component(x, other)) for other in others}
    return max(amplitudes, key=amplitudes.get) == k


class TestRegimes:
    @pytest.mark.parametrize(
        ("w", "s", "regime"),
        [(w, 2, "mode 1") for w in (0.0, 0.2, 0.4, 0.5)]
        + [(0.6, 2, "bistable")]
        + [(w, 2, "mode 2") for w in (0.8, 0.9, 1.0)]
        + [(w, 1, "collapsed") for w in np.linspace(0, 1, 5)],
    )
    def test_panel_d(self, w, s, regime):
        block = panel_d(w, s)
        assert competition(block, 4, 5).regime == regime
        if regime == "collapsed":
            rest = iterate(block, cosine(32, 4, 0.025) + cosine(32, 5, 0.025), 1500)
            assert np.abs(rest).max() < 1e-12
        else:
            survivors = tuple(kept(block, k, range(1, 17)) for k in (4, 5))
            assert survivors == {"mode 1": (True, False), "mode 2": (False, True), "bistable": (True, True)}[regime]

    @pytest.mark.parametrize("regime", ["coexistence", "bistable", "mode 1", "mode 2"])
    def test_verdicts_against_iteration(self, regime):
        """Random blocks with two growing modes whose verdict is `regime`, from pure and mixed seeds."""
        n, i, j = QUIET
        for block, c in islice(blocks_with(regime, 1), 2):
            starts = [cosine(n, i, R) + cosine(n, j, S) for R, S in [(0.03, 0.03), (0.03, 1e-3), (1e-3, 0.03)]]
            finals = [[abs(component(x, k)) for k in (i, j)] for x in iterate(block, np.array(starts), 12_000)]
            for final in finals:
                assert (np.abs(c.amplitudes - final).max(axis=1) / np.abs(c.amplitudes).max()).min() < 0.1
            if regime == "bistable":
                assert finals[1][0] > 50 * finals[1][1]
                assert finals[2][1] > 50 * finals[2][0]

    def test_transverse_multiplier_of_the_exact_pure_wave(self):
        errors = []
        sector = np.exp(2j * np.pi * np.outer(np.arange(32), np.arange(2, 32, 4)) / 32) / np.sqrt(32)
        for mu in (0.004, 0.002, 0.001):
            block = coexisting(mu)
            c = competition(block, 4, 10)
            _, derivative = newton(block, cosine(32, 4, c.pure(1)))
            exact = multipliers(sector.conj().T @ derivative @ sector)[0]
            assert exact.real > 1 + 0.04 * mu
            errors.append((c.transverse(1) - 1) / (exact.real - 1) - 1)
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.5, atol=0.05)

    def test_names(self):
        assert REGIMES == ("collapsed", "mode 1", "mode 2", "bistable", "coexistence", "undecided")


QUIET = (32, 3, 5)
"""Tokens and two modes: no resonance n_1q_1 + n_2q_2 ≡ 0 below |n_1| + |n_2| = 8."""


def blocks_with(regime, seed):
    """(block, competition) with one head on the modes `QUIET`, μ ≈ 0.002, whose clear verdict is `regime`."""
    rng = np.random.default_rng(seed)
    n, i, j = QUIET
    ratio = {"mode 1": (1.3, 0.7), "mode 2": (0.7, 1.3)}.get(regime, (1.0, 1.0))
    while True:
        alpha = (0.9, rng.uniform(-0.2, 0.2), rng.uniform(-2.0, -0.2))
        mu = 0.002 * rng.uniform(0.9, 1.1, 2) * ratio
        decay = dict(enumerate(rng.uniform(0.75, 0.88, n // 2 + 1)))
        block = cf.one_head(n, decay | {0: 0.1, i: 1 + mu[0], j: 1 + mu[1]}, alpha, rng.uniform(-3, 3))
        if block is None:
            continue
        c = competition(block, i, j)
        margins = [abs(c.transverse(mode) - 1) / mu.max() for mode in (1, 2)]
        s, cross = c.self_coefficients, c.cross_coefficients
        clear = min(margins) > 0.3 and abs(s.prod() - cross.prod()) > 0.5 * s.prod() and s.min() > 1 and cross.min() > 0
        if c.regime == regime and clear:
            yield block, c


def planned(mu, coefficients):
    return Competition((1, 5), 13, 1 + np.array(mu) + 0j, "gain", np.array(coefficients, dtype=complex))


class TestAmplitudeEquations:
    """The verdicts are those of the cubic equations themselves, iterated."""

    @given(
        mu=st.tuples(*[st.floats(-0.02, 0.02)] * 2),
        own=st.tuples(*[st.floats(0.3, 3)] * 2),
        other=st.tuples(*[st.floats(-3, 5)] * 2),
    )
    def test_regime(self, mu, own, other):
        c = planned(mu, [[own[0], other[0]], [other[1], own[1]]])
        margins = [abs(m) for m in mu] + [abs(own[0] * own[1] - other[0] * other[1])]
        margins += [abs(c.transverse(mode) - 1) for mode in (1, 2) if mu[mode - 1] > 0]
        assume(min(margins) > 2e-3)
        assume(own[0] * own[1] > other[0] * other[1] or min(other) > 0)  # bounded
        # near μ = 0, where no layer overshoots the mixed state
        mixed = np.nan_to_num(c.mixed)
        assume(np.abs(np.linalg.eigvals(2 * np.outer(mixed, mixed) * c.coefficients.real)).max() < 1)
        R = 0.05 * np.array([[1, 1e-3], [1e-3, 1], [1, 1], [0.2, 1], [1, 0.2]]).T
        for _ in range(12_000):
            R = R * (1 + np.array(mu)[:, None] - c.coefficients.real @ R**2)
        finals = np.round(R, 5)
        assert len(c.amplitudes) > 0
        for final in finals.T:
            assert np.abs(c.amplitudes - final).max(axis=1).min() < 2e-3
        if c.regime == "bistable":
            assert finals[0, 0] > finals[1, 0]
            assert finals[0, 1] < finals[1, 1]

    def test_equal_gains(self):
        for cross, regime in [(0.4, "coexistence"), (-0.9, "coexistence"), (2.5, "bistable"), (1.1, "bistable")]:
            assert planned([0.01, 0.01], [[1, cross], [cross, 1]]).regime == regime
        assert planned([0.01, 0.01], [[1, -1.1], [-1.1, 1]]).regime == "undecided"
        assert planned([0.01, 0.01], [[-1, 0.4], [0.4, 1]]).regime in ("undecided", "mode 2")

    def test_undecided_has_no_amplitudes(self):
        c = planned([0.01, 0.01], [[-1, 0], [0, -1]])
        assert c.regime == "undecided"
        assert c.amplitudes.shape == (0, 2)
        assert np.isnan(c.pure(1))

    def test_mixed_amplitudes(self):
        c = planned([0.01, 0.012], [[1.0, 0.4], [0.7, 1.3]])
        det = 1.3 - 0.28
        np.testing.assert_allclose(c.mixed**2, [(0.013 - 0.0048) / det, (0.012 - 0.007) / det], rtol=1e-13)
        assert c.transverse(1) == pytest.approx(1 + 0.012 - 0.7 * 0.01)

    def test_phase_advances_are_those_of_the_amplitude_equations(self):
        matrix = np.array([[1.0 + 0.5j, 0.4 - 2.0j], [0.3 + 1.5j, 1.2 - 0.7j]])
        multipliers_ = np.array([1.001 * np.exp(0.3j), 1.0012 * np.exp(-0.8j)])
        c = Competition((1, 5), 13, multipliers_, "gain", matrix)
        assert c.regime == "coexistence"
        units = multipliers_ / np.abs(multipliers_)
        B = np.array([0.02, 0.02 + 0j])
        for _ in range(30_000):
            before, B = B, multipliers_ * B - units * (matrix @ np.abs(B) ** 2) * B
        np.testing.assert_allclose(np.abs(B), c.amplitudes[0], rtol=2e-3)
        shift = c.phase_advances[0] - np.angle(multipliers_)
        np.testing.assert_allclose(np.angle(B / before / units), shift, rtol=5e-3)
        assert np.abs(shift).min() > 4e-4

    def test_potential_gives_the_amplitude_equations(self):
        c = competition(coexisting(0.01), 4, 10)
        s1, s2 = c.self_coefficients
        cross = c.cross_coefficients[0]
        R1, R2 = np.meshgrid(np.linspace(-0.2, 0.2, 7), np.linspace(-0.2, 0.2, 5))
        h = 0.05

        def slope(V):
            return (8 * (V(h) - V(-h)) - V(2 * h) + V(-2 * h)) / (12 * h)

        first = -slope(lambda step: c.potential(R1 + step, R2))
        second = -slope(lambda step: c.potential(R1, R2 + step))
        np.testing.assert_allclose(first, R1 * (c.mu[0] - s1 * R1**2 - cross * R2**2), rtol=0, atol=1e-14)
        np.testing.assert_allclose(second, R2 * (c.mu[1] - s2 * R2**2 - cross * R1**2), rtol=0, atol=1e-14)

    def test_potential_is_refused_where_there_is_none(self):
        with pytest.raises(ExclusionError, match="c_12 = c_21"):
            planned([0.01, 0.01], [[1, 0.4], [0.41, 1]]).potential(0.1, 0.1)

    def test_phase_advances_of_a_travelling_winner(self):
        rng = np.random.default_rng(0)
        decay = {0: 0.3, 2: 0.2, 3: 0.1, 4: 0.3j, 6: 0.2}
        for _ in range(20):
            alpha = (0.9, rng.uniform(-0.3, 0.3), rng.uniform(-1, -0.3))
            modes = {1: 1.01 * np.exp(0.4j), 5: 1.008 * np.exp(-0.9j)}
            block = cf.designed(13, decay | modes, alpha, rng.uniform(-1, 1))
            c = competition(block, 1, 5)
            if c.regime not in ("bistable", "coexistence", "mode 1", "mode 2"):
                continue
            for amplitudes, advances in zip(c.amplitudes, c.phase_advances, strict=True):
                x = iterate(block, cosine(13, 1, amplitudes[0]) + cosine(13, 5, amplitudes[1]), 3000)
                later = block.forward(x)
                for k, R, advance in zip((1, 5), amplitudes, advances, strict=True):
                    if R == 0:
                        continue
                    linear = np.angle(modes[k])
                    assert abs(component(x, k)) == pytest.approx(R, rel=0.06)
                    turn = np.angle(component(later, k) / component(x, k))
                    assert turn - linear == pytest.approx(advance - linear, rel=0.15, abs=2e-4)
            return
        pytest.fail("no verdict in 20 blocks")


class TestRefusals:
    block = coexisting(0.002)

    @pytest.mark.parametrize(
        ("k1", "k2", "reason"),
        [
            (4, 4, "the same mode"),
            (4, 28, "the same mode"),
            (0, 4, "0 < k < 32/2"),
            (16, 4, "0 < k < 32/2"),
            (4, 12, r"≡ 0 \(mod 32\)"),
            (5, 10, "≡ 0"),
            (3, 9, "≡ 0"),
            (8, 3, "≡ 0"),
        ],
    )
    def test_modes(self, k1, k2, reason):
        with pytest.raises(ExclusionError, match=reason):
            competition(self.block, k1, k2)

    def test_every_resonance_of_fourth_order_is_refused_and_no_other(self):
        n = 16
        quiet = cf.designed(n, dict.fromkeys(range(n // 2 + 1), 0.99999))
        for i in range(1, 8):
            for j in range(1, 8):
                if i == j:
                    continue
                if resonant(n, i, j):
                    with pytest.raises(ExclusionError, match="≡ 0"):
                        competition(quiet, i, j)
                else:
                    assert competition(quiet, i, j).k == (i, j)

    def test_resonance_is_accepted_at_complex_multipliers(self):
        """3k_1 ≡ k_2, but Λ_1³ is far from Λ_2."""
        block = cf.designed(13, {0: 0.3, 1: 1.01 * np.exp(0.5j), 3: 1.01 * np.exp(-0.4j), 2: 0.2, 4: 0.3, 6: 0.1})
        c, full = competition(block, 1, 3), FullMap(block)
        first, second = full.mode(1), full.mode(3)
        expected = -full.cross(first, second) * np.exp(-0.5j)
        np.testing.assert_allclose(c.coefficients[0, 1], expected, rtol=1e-8)

    def test_second_order_resonance_is_accepted_at_complex_multipliers(self):
        """2k_1 ≡ k_2, but Λ_1² is far from Λ_2: z_1² stays a slaved term."""
        block = cf.designed(13, {0: 0.3, 1: 1.01 * np.exp(0.5j), 2: 1.01 * np.exp(-0.4j), 3: 0.2, 4: 0.3})
        c, full = competition(block, 1, 2), FullMap(block)
        first, second = full.mode(1), full.mode(2)
        np.testing.assert_allclose(c.coefficients[0, 1], -full.cross(first, second) * np.exp(-0.5j), rtol=1e-8)

    def test_unstable_slaved_modes(self):
        block = cf.designed(13, {1: 1.01, 5: 1.01, 6: 1.2, 0: 0.3, 2: 0.2, 3: 0.2, 4: 0.1})
        with pytest.raises(ExclusionError, match="slaved wavenumber 6"):
            competition(block, 1, 5)
        with pytest.raises(ExclusionError, match="slaved wavenumber 0"):
            competition(cf.designed(13, {1: 1.01, 5: 1.01, 6: 0.2, 0: 1.3, 2: 0.2, 3: 0.2, 4: 0.1}), 1, 5)

    def test_arguments(self):
        with pytest.raises(ArgumentError, match="at: "):
            competition(self.block, 4, 10, at="somewhere")
        with pytest.raises(ArgumentError, match="k2: "):
            competition(self.block, 4, 32)
        with pytest.raises(ArgumentError, match="fixed point"):
            competition(self.block, 4, 10, state=0.2)
        with pytest.raises(ExclusionError, match="d = 2"):
            competition(Block([Head(mixture(0.5), -0.3 * np.eye(2))]), 4, 10)
