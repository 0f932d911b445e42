"""Clusters without positional encoding: closed form, exact reduction, full spectrum, stability, refusals."""

import closed_forms as cf
import numpy as np
import pytest
from exact import iterate, jacobian, multipliers
from hypothesis import assume, given
from hypothesis import strategies as st
from multilinear import FullMap

from amplitude import cluster_state, clusters
from dispersion import Activation, ArgumentError, Block, ExclusionError, Head, Kernel


def uniform_block(eta, chi, alpha, n=8, scale=1.0):
    """A block of one head for each entry of `eta`, `chi`."""
    heads = [Head(Kernel.uniform(n), e, c) for e, c in zip(np.atleast_1d(eta), np.atleast_1d(chi), strict=True)]
    return cf.planted(heads, [1.0], [1.0], Activation.polynomial([alpha[0] - 1, *alpha[1:]]), [0.0], 0.0, scale)


def tokens(state, n):
    """(n,) the cluster values, each on its share of the tokens."""
    return np.repeat(state.values, np.rint(state.fractions * n).astype(int))


REFERENCE = (0.3, -1 / 3)


def reference(mu, n=8):
    return uniform_block(-0.6, 1.5, (1 + mu, *REFERENCE), n)


class TestClosedForm:
    @given(
        eta=st.lists(st.floats(-0.6, -0.05), min_size=1, max_size=3),
        chi=st.floats(-2, 2),
        a2=st.floats(-1, 1),
        a3=st.floats(-1, 1),
        scale=st.floats(0.5, 1.0),
    )
    def test_printed_form_at_onset(self, eta, chi, a2, a3, scale):
        chi = chi + np.arange(len(eta))
        block = uniform_block(eta, chi, (1.02, a2, a3), scale=scale)
        c = clusters(block, at="onset")
        beta, ratio = cf.cluster_coefficients(cf.Scalars.of(block))
        np.testing.assert_allclose([c.beta, c.mean_ratio], [beta, ratio], rtol=1e-12, atol=1e-12)
        assert c.mu == pytest.approx(0.02, abs=1e-14)

    @pytest.mark.parametrize("at", ["gain", "onset", "paper"])
    @pytest.mark.parametrize("alpha", [(1.0, 0.3, -0.4), (1.1, -0.5, 0.2)])
    def test_full_map(self, at, alpha):
        """The sector (1, …, −1, …) of the full map, at the multiplier the resolvent is taken."""
        alpha = (1.0, *alpha[1:]) if at == "onset" else alpha
        block = uniform_block([-0.4, -0.3], [1.5, -0.5], alpha)
        full = FullMap(block)
        q = np.repeat([1.0, -1.0], 4)
        multiplier = 1.0 if at == "paper" else alpha[0]
        mean = full.resolve(multiplier**2, full.B(q, q)) / 2
        cube = (q / 8) @ (full.C(q, q, q) / 6 + full.B(q, mean))
        c = clusters(block, at=at)
        np.testing.assert_allclose([c.beta, c.mean_ratio], [-cube.real, mean[0].real], rtol=1e-8)

    def test_reference(self):
        c = clusters(reference(0.01), at="onset")
        assert f"{c.beta:.7f}" == "1.1133333"
        assert (f"{c.amplitude:.5f}", f"{c.mean:.5f}") == ("0.09477", "0.00449")
        state = cluster_state(reference(0.01))
        upper, lower = state.values
        assert (f"{(upper - lower) / 2:.5f}", f"{state.mean:.5f}") == ("0.09444", "0.00433")
        np.testing.assert_allclose(c.values, [c.mean + c.amplitude, c.mean - c.amplitude], rtol=1e-14)

    @pytest.mark.parametrize("at", ["gain", "onset"])
    def test_error_is_linear_in_mu(self, at):
        errors = []
        for mu in (0.01, 0.005, 0.0025):
            c, state = clusters(reference(mu), at=at), cluster_state(reference(mu))
            upper, lower = state.values
            errors.append([2 * c.amplitude / (upper - lower) - 1, c.mean / state.mean - 1])
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.5, atol=0.1)

    def test_error_with_the_resolvent_of_onset_is_of_that_order_too(self):
        for mu in (0.01, 0.005, 0.0025):
            c, state = clusters(reference(mu), at="paper"), cluster_state(reference(mu))
            assert abs(2 * c.amplitude / np.ptp(state.values) - 1) < mu
            assert abs(c.mean / state.mean - 1) < 8 * mu

    def test_no_amplitude_where_cubic_order_gives_none(self):
        assert clusters(reference(-0.01)).amplitude == 0
        subcritical = clusters(uniform_block(-0.6, 1.5, (1.01, 0.1, 2.0)))
        assert subcritical.beta < 0
        assert np.isnan(subcritical.amplitude)
        assert not subcritical.stable

    def test_potential(self):
        c = clusters(reference(0.01))
        u, h = np.linspace(-0.2, 0.2, 9), 0.05
        force = -(8 * (c.potential(u + h) - c.potential(u - h)) - c.potential(u + 2 * h) + c.potential(u - 2 * h))
        np.testing.assert_allclose(force / (12 * h), c.mu * u - c.beta * u**3, rtol=0, atol=1e-14)


class TestExactReduction:
    @given(
        seed=st.integers(0, 10**6),
        counts=st.lists(st.integers(1, 5), min_size=2, max_size=4),
        heads=st.integers(1, 2),
    )
    def test_spectrum_is_that_of_the_full_map(self, seed, counts, heads):
        """Also away from fixed points the reduction is exact; here at the fixed points Newton finds."""
        rng = np.random.default_rng(seed)
        n = sum(counts)
        alpha = (rng.uniform(1.05, 1.2), rng.uniform(-0.2, 0.2), rng.uniform(-0.6, -0.3))
        block = uniform_block(rng.uniform(-0.5, -0.2, heads), rng.uniform(0.5, 2, heads), alpha, n)
        fractions = np.array(counts) / n
        start = np.sort(rng.uniform(-0.8, 0.8, len(counts)))
        start = None if len(counts) == 2 else start - fractions @ start
        try:
            state = cluster_state(block, fractions, start)
        except ArgumentError:
            assume(False)
        x = tokens(state, n)
        np.testing.assert_allclose(block.forward(x), x, rtol=0, atol=1e-11)
        multiplicity = np.array(counts) - 1
        reduced = np.concatenate([state.between, np.repeat(state.within, multiplicity)])
        full = np.linalg.eigvals(jacobian(block, x))
        assert reduced.size == n
        assert np.abs(state.between.imag).max() < 1e-7
        np.testing.assert_allclose(np.sort(reduced.real), np.sort(full.real), rtol=0, atol=1e-7)
        assert state.mean == pytest.approx(x.mean(), abs=1e-14)

    def test_unequal_partition(self):
        block = uniform_block(-0.6, 1.5, (1.05, 0.1, -0.3), 32)
        state = cluster_state(block, (0.25, 0.75))
        np.testing.assert_array_equal(np.round(state.values, 8), [0.37002325, -0.12148847])
        np.testing.assert_array_equal(np.round(state.within, 8), [0.96196896, 0.97460997])
        np.testing.assert_array_equal(np.round(sorted(state.between.real), 8), [0.36377017, 0.87751350])
        assert state.stable
        x = tokens(state, 32)
        spectrum = multipliers(jacobian(block, x))
        np.testing.assert_allclose(spectrum[:23], state.within[1], atol=1e-12)
        np.testing.assert_allclose(spectrum[23:30], state.within[0], atol=1e-12)
        np.testing.assert_allclose(spectrum[30:], np.sort(state.between)[::-1], atol=1e-12)
        balanced = cluster_state(block)
        assert not balanced.stable
        assert not clusters(block).stable
        settled = iterate(block, x + 1e-2 * np.random.default_rng(0).normal(size=32), 2000)
        np.testing.assert_allclose(settled, x, rtol=0, atol=1e-10)

    def test_one_cluster_is_a_homogeneous_state(self):
        block = reference(0.05)
        state = cluster_state(block, (1.0,), (0.0,))
        np.testing.assert_allclose(state.values, 0, atol=1e-14)
        np.testing.assert_allclose(state.within, 1.05, rtol=1e-13)
        np.testing.assert_allclose(state.between, 1.05 * 0.4, rtol=1e-13)


class TestStability:
    @pytest.mark.parametrize(
        ("a2", "mu"), [(a2, mu) for mu in (0.002, 0.01) for a2 in (0.0, 0.5, 0.85, -0.85, 1.15, -1.15, 2.0)]
    )
    @pytest.mark.parametrize("a3", [-0.4, -1.0])
    def test_clusters_hold_together_iff_a2_is_small(self, a2, mu, a3):
        """`a2` in units of the border |α_3|u."""
        u = np.sqrt(mu / (0.9 - a3))
        block = uniform_block(-0.6, 1.5, (1 + mu, a2 * abs(a3) * u, a3))
        c, state = clusters(block), cluster_state(block)
        assert c.stable == (abs(a2) < 1)
        assert state.stable == c.stable
        assert (np.abs(state.within).max() < 1) == c.stable
        np.testing.assert_allclose(state.within, c.within_multipliers, rtol=0, atol=4 * mu**1.5)

    def test_the_border_is_a_distance_to_onset(self):
        """At fixed α_2 ≠ 0 balanced clusters spread near onset and hold from μ = β(α_2/α_3)² on."""
        a2, a3 = 0.02, -0.5
        border = (0.9 - a3) * (a2 / a3) ** 2
        for factor, holds in [(0.5, False), (0.85, False), (1.15, True), (3.0, True)]:
            block = uniform_block(-0.6, 1.5, (1 + factor * border, a2, a3))
            assert cluster_state(block).stable == holds
            assert clusters(block).stable == holds

    @pytest.mark.parametrize("a2", [0.5, 1.5])
    def test_iteration_agrees(self, a2):
        mu, a3 = 0.02, -0.6
        block = uniform_block(-0.6, 1.5, (1 + mu, a2 * 0.6 * np.sqrt(mu / 1.5), a3))
        state = cluster_state(block)
        x = tokens(state, 8)
        disturbed = iterate(block, x + 1e-5 * np.random.default_rng(3).normal(size=8), 1500)
        spread = max(np.ptp(disturbed[:4]), np.ptp(disturbed[4:]))
        assert (spread < 1e-6) == clusters(block).stable
        assert (spread > 1e-3) == (not clusters(block).stable)

    def test_positive_cubic_coefficient_never_holds(self):
        block = uniform_block(-0.6, 1.5, (1.01, 0.0, 0.2))
        assert clusters(block).beta > 0
        assert not clusters(block).stable
        assert not cluster_state(block).stable


class TestRefusals:
    def test_positional_encoding(self):
        logits = np.zeros(8)
        logits[1] = 0.1
        for function in (clusters, cluster_state):
            with pytest.raises(ExclusionError, match="positional encoding"):
                function(cf.polynomial(Kernel.table(logits), -0.6, 1.5, (1.01, 0.3, -0.3)))

    def test_many_features(self):
        with pytest.raises(ExclusionError, match="d = 2"):
            clusters(Block([Head(Kernel.uniform(8), -0.5 * np.eye(2))]))

    @pytest.mark.parametrize("eta", [-2.0, -2.5, 0.0, 0.4])
    def test_mean_that_is_not_stable(self, eta):
        with pytest.raises(ExclusionError, match="−2 < η < 0"):
            clusters(uniform_block(eta, 1.5, (1.01, 0.1, -0.3)))

    @pytest.mark.parametrize("at", ["Gain", "", None])
    def test_place_of_evaluation(self, at):
        with pytest.raises(ArgumentError, match="at: "):
            clusters(reference(0.01), at=at)

    @pytest.mark.parametrize("fractions", [(0.5, 0.6), (1.0, 0.0), (-0.5, 1.5), ((0.5, 0.5),), ()])
    def test_fractions(self, fractions):
        with pytest.raises(ArgumentError, match="fractions: "):
            cluster_state(reference(0.01), fractions)

    def test_first_guess(self):
        with pytest.raises(ArgumentError, match="start: "):
            cluster_state(reference(0.01), (0.25, 0.25, 0.5))
        with pytest.raises(ArgumentError, match="start: "):
            cluster_state(reference(0.01), (0.5, 0.5), (0.1, 0.2, 0.3))
        with pytest.raises(ArgumentError, match="do not merge"):
            cluster_state(reference(0.01), (0.5, 0.5), (1e-3, 1e-3))
        with pytest.raises(ArgumentError, match="start: "):
            cluster_state(reference(-0.01))

    def test_origin_that_moves(self):
        heads = [Head(Kernel.uniform(8), -0.6, 1.5)]
        with pytest.raises(ArgumentError, match="a fixed point of g"):
            clusters(Block(heads, cf.FeedForward([[1.0]], [[1.0]], "gelu", [0.3])))
