"""Partitions into clusters: the p = 1/4 example, completeness, brute-force spectra, simulation, the map of balance."""

import closed_forms as cf
import numpy as np
import pytest
from exact import jacobian, multipliers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import root

from amplitude import cluster_state, clusters
from amplitude.closed_forms.balanced import balanced_boundary, balanced_map
from amplitude.closed_forms.partitions import partitions, stable_partitions
from dispersion import Activation, ArgumentError, Block, ExclusionError, FeedForward, Head, Kernel
from simulate import iterate


def uniform_block(eta, chi, alpha, n=12):
    heads = [Head(Kernel.uniform(n), e, c) for e, c in zip(np.atleast_1d(eta), np.atleast_1d(chi), strict=True)]
    return cf.planted(heads, [1.0], [1.0], Activation.polynomial([alpha[0] - 1, *alpha[1:]]), [0.0])


def example(n=12):
    """α = (1.05, 0.1, −0.3), η = −0.6, χ = 1.5."""
    return uniform_block(-0.6, 1.5, (1.05, 0.1, -0.3), n)


class TestPartitions:
    def test_example(self):
        """p = 1/4 is stable where the balanced partition is not."""
        found = {tuple(p.counts): p for p in partitions(example())}
        quarter = found[3, 9]
        assert [f"{value:.8f}" for value in quarter.state.values] == ["0.37002325", "-0.12148847"]
        assert [f"{value:.8f}" for value in quarter.state.within] == ["0.96196896", "0.97460997"]
        assert [f"{value.real:.8f}" for value in np.sort(quarter.state.between)[::-1]] == ["0.87751350", "0.36377017"]
        assert quarter.stable
        assert not found[6, 6].stable
        np.testing.assert_allclose(found[6, 6].state.values, cluster_state(example()).values, rtol=1e-10)
        assert [tuple(p.counts) for p in stable_partitions(example())] == [(2, 10), (3, 9), (4, 8)]

    @settings(max_examples=12)
    @given(seed=st.integers(0, 10**6), clusters=st.sampled_from([2, 3]), heads=st.integers(1, 2))
    def test_brute_force(self, seed, clusters, heads):
        """Every state is a fixed point of the N-token map, with its N multipliers."""
        rng = np.random.default_rng(seed)
        n = 12 if clusters == 2 else 6
        alpha = (rng.uniform(1.02, 1.15), rng.uniform(-0.2, 0.2), rng.uniform(-0.6, -0.2))
        block = uniform_block(rng.uniform(-0.5, -0.2, heads), rng.uniform(0.3, 2, heads), alpha, n)
        found = partitions(block, clusters)
        assert clusters == 3 or len(found) >= n - 1
        for partition in found:
            assert partition.counts.sum() == n
            assert (np.diff(partition.state.values) < 0).all()
            x = partition.tokens
            np.testing.assert_allclose(block.forward(x), x, atol=1e-11)
            full = multipliers(jacobian(block, x))
            np.testing.assert_allclose(
                np.sort_complex(np.round(full, 9)), np.sort_complex(np.round(partition.multipliers, 9)), atol=1e-7
            )
            assert partition.stable == (abs(full[0]) < 1)

    @pytest.mark.parametrize("alpha", [(1.05, 0.1, -0.3), (1.1, -0.15, -0.5), (0.98, 0.4, -0.3)])
    def test_none_is_missed(self, alpha):
        """Root finding from random starts finds no others."""
        rng, block = np.random.default_rng(0), uniform_block(-0.6, 1.5, alpha)
        known = {}
        for partition in partitions(block):
            known.setdefault(tuple(partition.counts), []).append(partition.state.values)
        for j in range(1, 12):
            for _ in range(20):
                start = np.repeat(np.sort(rng.uniform(-0.8, 0.8, 2))[::-1], [j, 12 - j])

                def gap(X, j=j):
                    x = np.repeat(X, [j, 12 - j])
                    return (block.forward(x) - x)[[0, -1]]

                result = root(gap, start[[0, -1]], tol=1e-13)
                if np.abs(gap(result.x)).max() > 1e-11 or result.x[0] - result.x[1] < 1e-4:
                    continue
                if np.abs(result.x).max() < 1.2:  # a cubic also has states far out
                    assert any(np.abs(result.x - X).max() < 1e-6 for X in known.get((j, 12 - j), [])), (j, result.x)

    def test_simulation_ends_in_one_of_the_stable_ones(self):
        block = example()
        stable = stable_partitions(block)
        reached = set()
        for seed in range(8):
            path = iterate(block, 6000, 0.3, rng=seed)
            x = np.sort(path.state[:, 0])[::-1]
            if np.ptp(x) < 1e-6:
                continue
            place = [i for i, p in enumerate(stable) if np.abs(p.tokens - x).max() < 1e-6]
            assert place, x
            reached.add(place[0])
        assert len(reached) >= 2

    def test_stable_ones_attract(self):
        rng, block = np.random.default_rng(1), example()
        for partition in partitions(block):
            x = partition.tokens + 1e-4 * rng.normal(size=12)
            path = iterate(block, 3000, x)
            assert (np.abs(path.state[:, 0] - partition.tokens).max() < 1e-3) == partition.stable

    def test_activations(self):
        """tanh-type (α_2 = 0 > α_3) keeps balanced clusters, GELU-type (α_2 ≠ 0 = α_3) breaks them."""
        head = Head(Kernel.uniform(8), -0.6, 1.5)
        tanh = Block([head], FeedForward.scalar("tanh", 0.05))
        gelu = Block([head], FeedForward.scalar("gelu", 0.1))
        assert clusters(tanh).stable
        assert not clusters(gelu).stable
        assert (4, 4) in [tuple(p.counts) for p in stable_partitions(tanh)]
        assert (4, 4) not in [tuple(p.counts) for p in stable_partitions(gelu)]

    def test_refusals(self):
        with pytest.raises(ArgumentError, match="clusters: "):
            partitions(example(), 4)
        with pytest.raises(ArgumentError, match="clusters: "):
            partitions(example(2), 3)
        with pytest.raises(ExclusionError, match="positional"):
            partitions(cf.tanh_block(Kernel.gaussian_lobes(8, 2, 1.0, 1.0), -0.5))
        with pytest.raises(ExclusionError, match="d = 2"):
            partitions(Block([Head(Kernel.uniform(8), -0.3 * np.eye(2))]))


class TestBalance:
    @settings(max_examples=25)
    @given(
        a2=st.floats(-0.3, 0.3),
        a3=st.floats(-0.8, 0.3),
        product=st.floats(-1.5, -0.1),
        mu=st.floats(0.002, 0.1),
        eta=st.floats(-1.2, -0.2),
    )
    def test_points_are_those_of_the_block(self, a2, a3, product, mu, eta):
        here = balanced_map(a2, a3, product, mu, eta)
        block = uniform_block(eta, product / eta, (1 + mu, a2, a3), 8)
        onset = clusters(uniform_block(eta, product / eta, (1.0, a2, a3), 8))
        assert here.beta == pytest.approx(onset.beta, rel=1e-9, abs=1e-9)
        if here.predicted:
            assert a3 < 0 < here.beta
            u = np.sqrt(mu / here.beta)
            assert abs(a2) <= -a3 * u * (1 + 1e-9)
        if np.isnan(here.values).any():
            return
        x = np.repeat(here.values, 4)
        np.testing.assert_allclose(block.forward(x), x, atol=1e-10)
        full = multipliers(jacobian(block, x))
        assert here.stable == (abs(full[0]) < 1)
        expected = np.concatenate([np.repeat(here.within + 0j, 3), here.between])
        assert all(np.abs(expected - value).min() < 1e-7 for value in full)

    def test_boundary(self):
        """μ = β_cl(α_2/α_3)² to leading order: the exact one differs by a share of order μ."""
        a2 = np.array([0.01, 0.02, 0.04])
        cubic = balanced_map(a2, -0.3, -0.9, 0.01).boundary
        exact = balanced_boundary(a2, -0.3, -0.9)
        errors = exact / cubic - 1
        assert np.abs(errors).max() < 0.03
        np.testing.assert_allclose(errors[1:] / errors[:-1], 4, rtol=0.25)  # μ grows as α_2²
        for side, stable in ((0.999, False), (1.001, True)):
            np.testing.assert_array_equal(balanced_map(a2, -0.3, -0.9, side * exact).stable, stable)

    def test_map(self):
        """Over (α_2, μ): exact and predicted differ only near the boundary."""
        a2, mu = np.linspace(-0.06, 0.06, 25)[:, None], np.linspace(0.002, 0.05, 25)[None]
        here = balanced_map(a2, -0.3, -0.9, mu)
        assert here.stable.shape == here.predicted.shape == (25, 25)
        assert here.values.shape == here.within.shape == here.between.shape == (25, 25, 2)
        differ = here.stable != here.predicted
        assert np.abs(np.broadcast_to(mu, differ.shape)[differ] / here.boundary[differ] - 1).max() < 0.15
        assert here.predicted.any()
        assert not here.predicted.all()
        np.testing.assert_array_equal(here.stable, here.stable[::-1])  # α_2 → −α_2
        assert here.stable[12].all()  # tanh-type

    def test_nothing_holds_without_saturation(self):
        here = balanced_map([0.1, 0.1], [0.0, 0.3], -0.9, 0.02)
        assert not here.stable.any()
        assert not here.predicted.any()
        assert np.isinf(here.boundary).all()
        assert np.isnan(balanced_boundary(0.1, 0.2, -0.9))
        with pytest.raises(ArgumentError, match="eta: "):
            balanced_map(0.1, -0.3, -0.9, 0.02, 0.4)
