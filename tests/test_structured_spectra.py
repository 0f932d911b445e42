"""Spectra of block triangular and far-from-normal matrices: from diagonal blocks, from many digits, or not at all."""

import mpmath
import numpy as np
import pytest

from amplitude import find_state
from dispersion import (
    ArgumentError,
    Block,
    Chain,
    ExclusionError,
    FeedForward,
    Head,
    Kernel,
    attention_spectrum,
    chain_spectrum,
    dispersion_relation,
    full_jacobian,
    leading_multipliers,
    through_layers,
)
from dispersion.structured import components, conditioned, moved, spectrum

SKEW = {-2: 0.02, -1: 0.06, 0: 0.12, 1: 0.2, 2: 0.35, 3: 0.25}


def masked(n, order=None, prefix=0):
    """Two heads that do not commute, d = 2, under a causal mask: tokens in some `order`, a `prefix` seen by all."""
    i, j = np.indices((n, n))
    mask = np.where((j <= i) | (j < prefix), 0.0, -np.inf)
    order = np.arange(n) if order is None else order
    bias = np.empty((n, n))
    bias[np.ix_(order, order)] = mask
    values = [[-0.5, 0.6], [0.1, -0.4]], [[-0.3, -0.8], [0.2, -0.2]]
    kernels = Kernel.alibi(n, 0.3), Kernel.alibi(n, 0.6)
    return Block([Head(kernel, value, bias=bias) for kernel, value in zip(kernels, values, strict=True)])


def diagonal_blocks(block):
    """max |Λ| of C + Σ A_ii M, token by token."""
    seen = np.zeros((block.n, block.d))
    own = [np.diag(head.attention(seen)) for head in block.heads]
    blocks = [
        np.eye(2) + sum(a[i] * head.value for a, head in zip(own, block.heads, strict=True)) for i in range(block.n)
    ]
    return np.abs(np.linalg.eigvals(np.array(blocks))).max()


def open_ends(n, gain):
    """One head, d = 1, whose bias is the SKEW window with ends: no scaling of LAPACK makes it normal."""
    bias = np.full((n, n), -np.inf)
    for lag, weight in SKEW.items():
        np.fill_diagonal(bias[max(lag, 0) :, max(-lag, 0) :], np.log(weight))
    return Block([Head(Kernel.uniform(n), -gain, bias=bias)], FeedForward.scalar("tanh", -0.1))


def window():
    logits = np.full(41, -np.inf)
    logits[list(SKEW)] = np.log(list(SKEW.values()))
    return Kernel.table(logits)


def many_digits(matrix):
    with mpmath.workdps(50):
        values = mpmath.eig(mpmath.matrix(matrix.tolist()), left=False, right=False)
    return np.array([complex(value) for value in values])


class TestCausalMasks:
    @pytest.mark.parametrize("n", [64, 200])
    def test_multipliers_are_those_of_the_diagonal_blocks(self, n):
        block = masked(n)
        truth = diagonal_blocks(block)
        if n == 64:
            assert truth == pytest.approx(0.865979, abs=5e-7)
        # dense eigenvalues of the whole are wrong, the more the longer
        assert np.abs(np.linalg.eigvals(full_jacobian(block))).max() - truth > 9e-4
        found = leading_multipliers(block, count=3)
        assert abs(found[0]) == pytest.approx(truth, rel=1e-12)

    def test_in_any_order_of_the_tokens(self):
        order = np.random.default_rng(3).permutation(160)
        kernel = Kernel.uniform(160)
        turned, straight = (
            Block([Head(kernel, head.value, bias=head.bias) for head in masked(160, order).heads[:1]])
            for order in (order, None)
        )
        np.testing.assert_allclose(
            np.abs(leading_multipliers(turned)), np.abs(leading_multipliers(straight)), rtol=1e-12
        )
        np.testing.assert_allclose(attention_spectrum(turned).growth, attention_spectrum(straight).growth, rtol=1e-12)

    def test_a_prefix_that_all_see_is_one_block(self):
        n, prefix = 150, 40
        block = masked(n, prefix=prefix)
        jacobian = full_jacobian(block)
        first = np.abs(np.linalg.eigvals(jacobian[: 2 * prefix, : 2 * prefix])).max()
        rest = [np.abs(np.linalg.eigvals(jacobian[i : i + 2, i : i + 2])).max() for i in range(2 * prefix, 2 * n, 2)]
        assert abs(leading_multipliers(block, count=1)[0]) == pytest.approx(max(first, *rest), rel=1e-10)

    def test_exact_states_have_the_same_multipliers(self):
        block = masked(64)
        state = find_state(block, np.zeros((64, 2)), "steady")
        np.testing.assert_allclose(np.abs(state.multipliers[:6]), np.abs(leading_multipliers(block)), rtol=1e-12)

    def test_growth_of_a_long_run_is_that_of_the_spectrum(self):
        """Iterated, a perturbation of 48 masked tokens decays at last as the diagonal blocks say."""
        block = masked(48)
        jacobian, u = full_jacobian(block), np.random.default_rng(0).normal(size=96)
        sizes = []
        for layer in range(4000):
            u = jacobian @ u
            if layer >= 2000:
                sizes.append(np.log(np.linalg.norm(u)))
            u /= np.linalg.norm(u)
        assert np.exp(np.mean(sizes)) == pytest.approx(abs(leading_multipliers(block, count=1)[0]), abs=2e-3)


class TestFarFromNormal:
    @pytest.mark.parametrize("n", [14, pytest.param(36, marks=pytest.mark.slow)])
    def test_what_is_told_is_right_and_its_error_bounds_it(self, n):
        block = open_ends(n, 1.2)
        found = attention_spectrum(block)
        truth = many_digits(full_jacobian(block))
        distance = np.abs(found.multipliers[:, 0][:, None] - truth).min(axis=1)
        assert (distance <= found.errors).all()
        assert found.growth[0] == pytest.approx(np.abs(truth).max(), abs=float(found.errors[0]))

    def test_a_verdict_that_rounding_would_turn_is_refused(self):
        block = open_ends(120, 1.2)
        chain = Chain(Block([Head(window(), -1.2)], block.feedforward), 120, "open")
        truth = np.abs(chain_spectrum(chain)).max()
        assert truth == pytest.approx(0.96464286, abs=1e-7)  # stable, where plain eigenvalues grow
        assert np.abs(np.linalg.eigvals(full_jacobian(block))).max() > 1
        found = attention_spectrum(block)
        with pytest.raises(ExclusionError, match="^stable: got"):
            _ = found.stable
        with pytest.raises(ExclusionError, match="^block: got a Jacobian too far from normal"):
            leading_multipliers(block, count=2)
        assert found.errors.max() > 1e-2

    @pytest.mark.slow
    def test_beyond_the_dense_limit(self):
        with pytest.raises(ArgumentError):
            leading_multipliers(open_ends(300, 1.2), count=2)

    def test_normal_matrices_are_told_to_the_last_digits(self):
        rng = np.random.default_rng(0)
        for n in (60, 160):  # dense, and by its action alone
            block = Block([Head(Kernel.table(rng.normal(size=n)), 0.3 * rng.normal(size=(2, 2))) for _ in range(2)])
            relation = dispersion_relation(block)
            assert abs(leading_multipliers(block)[0]) == pytest.approx(relation.growth.max(), rel=1e-12)
            assert relation.errors.max() < 1e-13


class TestFeatures:
    def test_triangular_maps_of_many_features_in_any_order(self):
        """J(q) = 1 + λM with M block triangular, blocks of 2 far apart in size: the blocks decide."""
        rng, d = np.random.default_rng(1), 40
        value = np.kron(np.tril(rng.normal(size=(d // 2, d // 2)), -1), 3 * rng.normal(size=(2, 2)))
        for b in range(0, d, 2):
            value[b : b + 2, b : b + 2] = [[-0.5, 0.4], [-0.4, -0.5]]
        order = rng.permutation(d)
        kernel = Kernel.gaussian_lobes(12, 3, 1.0, 2.0)
        block = Block([Head(kernel, value[np.ix_(order, order)])])
        truth = np.abs(1 + kernel.symbol * (-0.5 + 0.4j))
        np.testing.assert_allclose(dispersion_relation(block).growth, truth, rtol=1e-12)
        deep = through_layers([block] * 3)
        np.testing.assert_allclose(deep.growth, truth**3, rtol=1e-12)

    def test_a_stack_that_rounding_decides_is_refused(self):
        """Nilpotent but for rounding: a strictly triangular M in a turned basis, ρ(J) = C = .95 in truth."""
        rng, d = np.random.default_rng(2), 48
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
        value = basis @ np.triu(2 * np.ones((d, d)), 1) @ basis.T
        block = Block([Head(Kernel.uniform(8), value)], FeedForward.elementwise("tanh", d, -0.05))
        relation = dispersion_relation(block)
        assert relation.growth.max() > 1.05  # q = 0; in truth .95
        with pytest.raises(ExclusionError, match="^stable: got"):
            _ = relation.stable
        with pytest.raises(ExclusionError, match="^stable: got"):
            _ = through_layers([block] * 2).stable


class TestComponents:
    def test_of_a_permuted_block_triangular_pattern(self):
        rng = np.random.default_rng(4)
        sizes = [3, 1, 4, 2]
        edges = np.repeat(range(4), sizes)
        pattern = edges[:, None] >= edges
        order = rng.permutation(10)
        found = components(pattern[np.ix_(order, order)])
        labels = sorted(tuple(sorted(set(edges[order][part]))) for part in found)
        assert labels == [(0,), (1,), (2,), (3,)]
        assert sorted(map(len, found)) == sorted(sizes)
        assert sorted(np.concatenate(found)) == list(range(10))

    def test_the_bound_holds_for_planted_perturbations(self):
        rng = np.random.default_rng(5)
        for m in (2, 3, 6):
            for _ in range(20):
                matrix = np.triu(rng.normal(size=(m, m))) + 1e-3 * rng.normal(size=(m, m))
                values, cosines = conditioned(matrix)
                error = 1e-9 * rng.normal(size=(m, m))
                distance = float(np.linalg.norm(error))
                bound = moved(distance, float(np.linalg.norm(matrix)), cosines, m)
                apart = np.abs(values[:, None] - np.linalg.eigvals(matrix + error)).min(axis=1)
                assert (apart <= 1.01 * bound + 1e-12).all()

    def test_a_jordan_block_in_a_turned_basis(self):
        basis = np.linalg.qr(np.random.default_rng(6).normal(size=(5, 5)))[0]
        values, errors = spectrum(basis @ (0.7 * np.eye(5) + np.eye(5, k=1)) @ basis.T)
        assert (np.abs(values - 0.7) <= errors).all()
        assert np.abs(values - 0.7).max() > 1e-5
