"""Attention that is not translation invariant, against eigenvalues of the complex-step Jacobian of the forward map."""

import numpy as np
import pytest
from exact import jacobian

import dispersion.memory as memory
import dispersion.ring.general as general
from dispersion import (
    Activation,
    ArgumentError,
    Block,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    Rotary,
    dispersion_relation,
)
from dispersion.ring.general import attention_spectrum, full_jacobian, jacobian_memory, leading_multipliers


def random_block(seed, n=7, d=2, heads=1, bias=True, **settings):
    """Directional kernels, content, and biases that are not functions of the lag."""
    rng = np.random.default_rng(seed)
    attention = [
        Head(
            Kernel.table(rng.normal(size=n)),
            rng.normal(size=(d, d)),
            rng.normal(size=(d, d)),
            bias=1.5 * rng.normal(size=(n, n)) if bias else None,
        )
        for _ in range(heads)
    ]
    feedforward = FeedForward(
        rng.normal(size=(d + 1, d)), 0.3 * rng.normal(size=(d, d + 1)), "tanh", rng.normal(size=d + 1)
    )
    return Block(attention, feedforward, rng.uniform(0.3, 1.2), **settings)


def brute_force(block, a):
    """DF(1⊗a), tokens before features, by complex steps of the forward map."""
    return jacobian(block, np.tile(a, (block.n, 1)).astype(float))


def assert_same_spectrum(found, expected, atol=1e-10):
    """Each of one is near one of the other, as often: matched greedily from the largest distance on."""
    from scipy.optimize import linear_sum_assignment

    found, expected = np.ravel(found), np.ravel(expected)
    assert found.shape == expected.shape
    distance = np.abs(found[:, None] - expected)
    assert distance[linear_sum_assignment(distance)].max() < atol


def causal_bias(n, diagonal, rng=None):
    """Logits of a lower triangular A with the given diagonal (1 in the first row), and A."""
    weights = np.zeros((n, n))
    for i in range(n):
        weights[i, i] = diagonal if i else 1.0
        share = np.ones(i) if rng is None else rng.uniform(0.2, 1.0, i)
        weights[i, :i] = (1 - diagonal) * share / max(share.sum(), 1e-300)
    with np.errstate(divide="ignore"):
        return np.log(weights), weights


class TestOneHead:
    @pytest.mark.parametrize(("n", "d"), [(7, 1), (6, 2), (5, 3)])
    @pytest.mark.parametrize("seed", range(3))
    def test_the_spectrum_of_the_forward_map(self, seed, n, d):
        block, a = random_block(seed, n, d), np.random.default_rng(seed).normal(size=d)
        found = attention_spectrum(block, a)
        assert found.multipliers.shape == (n, d)
        assert_same_spectrum(found.multipliers, np.linalg.eigvals(brute_force(block, a)))
        assert_same_spectrum(found.symbols, np.linalg.eigvals(found.attention))
        assert (np.diff(found.growth) <= 1e-12).all()
        assert found.stable == (np.abs(np.linalg.eigvals(brute_force(block, a))).max() < 1)
        with pytest.raises(ArgumentError, match="attention_spectrum"):
            dispersion_relation(block, a)  # its error says where to go

    def test_normalisations_and_their_state(self):
        block = random_block(1, 5, 3, attention_norm=LayerNorm.identity(3), feedforward_norm=LayerNorm.identity(3))
        a = np.array([0.3, -0.2, 0.9])
        assert_same_spectrum(attention_spectrum(block, a).multipliers, np.linalg.eigvals(brute_force(block, a)))
        plain = random_block(1, 5, 3)
        assert np.abs(attention_spectrum(plain, a).growth - attention_spectrum(block, a).growth).max() > 0.1

    def test_rotary_heads_at_a_state(self):
        rng = np.random.default_rng(4)
        rotary = Rotary(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), 2 * np.pi * np.array([1, 2]) / 6)
        head = Head(Kernel.uniform(6), rng.normal(size=(2, 2)), rotary=rotary, bias=rng.normal(size=(6, 6)))
        a = np.array([0.8, -0.5])
        assert_same_spectrum(
            attention_spectrum(Block([head]), a).multipliers, np.linalg.eigvals(brute_force(Block([head]), a))
        )

    def test_a_circulant_head_gives_the_symbol(self):
        block = random_block(2, 8, 2, bias=False)
        assert_same_spectrum(attention_spectrum(block).multipliers, dispersion_relation(block).multipliers)
        assert_same_spectrum(attention_spectrum(block).symbols, block.heads[0].kernel.symbol)

    def test_an_attention_that_cannot_be_diagonalised(self):
        """Lower triangular, diagonal 1, .3, .3 …: one defective block. Its characteristic polynomial is that of DF."""
        n, rng = 6, np.random.default_rng(5)
        bias, weights = causal_bias(n, 0.3, rng)
        value, slope = rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
        feedforward = FeedForward(np.eye(2), slope - np.eye(2), Activation.polynomial([1.0]))
        block = Block([Head(Kernel.uniform(n), value, bias=bias)], feedforward)
        found = attention_spectrum(block)
        np.testing.assert_allclose(found.attention, weights, atol=1e-15)
        assert np.linalg.matrix_rank(weights - 0.3 * np.eye(n), tol=1e-12) == n - 1  # defective indeed
        np.testing.assert_allclose(np.sort(found.symbols.real), [0.3] * (n - 1) + [1.0], rtol=1e-15)
        dense = brute_force(block, np.zeros(2))
        for z in (0.3 + 0.4j, -1.2, 2.0 + 1.0j):  # eigenvalues of a defective matrix are lost to rounding, this is not
            assert np.linalg.det(dense - z * np.eye(2 * n)) == pytest.approx(np.prod(found.multipliers - z), rel=1e-9)
        # and each multiplier is as often an eigenvalue as claimed: (DF − Λ)^n loses n−1 dimensions per Λ of λ = .3
        lambda_one = np.linalg.eigvals(slope @ (np.eye(2) + value))
        for multiplier in np.linalg.eigvals(slope @ (np.eye(2) + 0.3 * value)):
            assert np.abs(lambda_one - multiplier).min() > 0.05
            power = np.linalg.matrix_power(dense - multiplier * np.eye(2 * n), n)
            assert np.linalg.matrix_rank(power, tol=1e-9 * np.linalg.norm(power, 2)) == 2 * n - (n - 1)

    def test_several_heads_are_refused(self):
        with pytest.raises(ArgumentError, match=r"^block: got 2 heads; accepted: one head; full_jacobian"):
            attention_spectrum(random_block(0, heads=2))


class TestFullJacobian:
    @pytest.mark.parametrize(("n", "d", "heads"), [(6, 1, 3), (5, 2, 2), (4, 3, 3)])
    def test_entry_by_entry(self, n, d, heads):
        for seed in range(2):
            block, a = random_block(seed, n, d, heads), np.random.default_rng(seed).normal(size=d)
            np.testing.assert_allclose(full_jacobian(block, a), brute_force(block, a), atol=1e-12)

    def test_tokens_come_before_features(self):
        """Entry (i·d + α, j·d + β) is ∂F_iα/∂x_jβ, as x.ravel() lists them."""
        block, a = random_block(3, 4, 2, 2), np.array([0.2, 0.5])
        x, step = np.tile(a, (4, 1)), 1e-6
        moved = x.copy()
        moved[3, 1] += step
        column = ((block.forward(moved) - block.forward(x)) / step).ravel()
        np.testing.assert_allclose(full_jacobian(block, a)[:, 3 * 2 + 1], column, atol=1e-5)

    def test_torus_post_normalisation_and_masks(self):
        rng = np.random.default_rng(6)
        removed = np.where(rng.uniform(size=(6, 6)) < 0.3, -np.inf, 0.0)
        np.fill_diagonal(removed, 0.0)
        heads = [
            Head(Kernel.table(rng.normal(size=(2, 3))), rng.normal(size=(3, 3)), bias=removed),
            Head(Kernel.uniform((2, 3)), rng.normal(size=(3, 3)), gate=0.4, bias=rng.normal(size=(6, 6))),
        ]
        norms = {"attention_norm": LayerNorm.identity(3), "feedforward_norm": LayerNorm.identity(3)}
        block = Block(heads, FeedForward.elementwise("gelu", 3), placement="post", **norms)
        a = np.array([0.4, -0.1, 0.2])
        np.testing.assert_allclose(full_jacobian(block, a), brute_force(block, a), atol=1e-12)

    def test_memory_is_refused_before_it_is_allocated(self, monkeypatch):
        block = random_block(0, 6, 2, 3)
        needed = jacobian_memory(block)
        assert needed >= 8 * 12**2 + 8 * 3 * 6**2
        assert full_jacobian(block, memory=needed).nbytes == 8 * 12**2
        with pytest.raises(
            ArgumentError, match=rf"^block: got .+ {needed:,} bytes; accepted: at most {needed - 1:,} bytes"
        ):
            full_jacobian(block, memory=needed - 1)
        monkeypatch.setattr(memory, "SMALL", 0)
        monkeypatch.setattr(memory, "available_memory", lambda: int(needed / 0.8) - 2)
        with pytest.raises(ArgumentError, match="^block: got a Jacobian"):
            full_jacobian(block)
        monkeypatch.setattr(memory, "available_memory", lambda: int(needed / 0.8) + 2)
        full_jacobian(block)
        monkeypatch.undo()
        large = Block([Head(Kernel.uniform(400_000), 1.0)])  # 10¹² bytes and more
        for refused in (full_jacobian, leading_multipliers):
            with pytest.raises(ArgumentError, match=r"^block: got .+ that needs [\d,]{17,} bytes"):
                refused(large)

    def test_available_memory_is_plausible(self):
        assert 2**26 < memory.available_memory() < 2**50

    @pytest.mark.parametrize("memory", [0, -1.0, np.nan, "much"])
    def test_bad_budgets(self, memory):
        with pytest.raises(ArgumentError, match="^memory: got"):
            full_jacobian(random_block(0), memory=memory)


class TestLeadingMultipliers:
    def test_a_map_without_a_derivative_but_zero(self):
        block = Block([Head(Kernel.uniform(300), 0.5)], attention_norm=LayerNorm([1.0]), placement="post")
        assert (leading_multipliers(block, 0.0, 3) == 0).all()

    @pytest.mark.parametrize("seed", range(2))
    def test_several_heads_without_the_matrix(self, seed, monkeypatch):
        """N·d = 264: matrix-free, dense, and complex steps of the forward map."""
        block, a = random_block(seed, 88, 3, 3), np.array([0.1, -0.2, 0.3])
        first, second = (head.attention(np.tile(a, (88, 1))) for head in block.heads[:2])
        assert np.abs(first @ second - second @ first).max() > 1e-3  # they do not commute
        everything = np.linalg.eigvals(brute_force(block, a))
        everything = everything[np.argsort(-np.abs(everything))]
        dense = np.linalg.eigvals(full_jacobian(block, a))
        assert_same_spectrum(dense, everything, 1e-9)
        monkeypatch.setattr(general, "spectrum", None)  # not to be called
        found = leading_multipliers(block, a, 8)
        assert found.shape == (8,)
        np.testing.assert_allclose(np.abs(found), np.abs(everything[:8]), rtol=1e-9)
        for value in found:
            assert np.abs(everything - value).min() < 1e-9

    @pytest.mark.parametrize("count", [1, 3, 12])
    def test_small_blocks_are_dense(self, count):
        block = random_block(4, 6, 2, 2)
        expected = np.linalg.eigvals(brute_force(block, np.zeros(2)))
        found = leading_multipliers(block, count=count)
        np.testing.assert_allclose(np.abs(found), np.sort(np.abs(expected))[::-1][:count], rtol=1e-10)

    @pytest.mark.parametrize("seed", [5, 7])
    def test_a_complex_pair_is_not_cut(self, seed):
        """Of the leading pair the one with ω > 0 comes first, also when only one is asked for."""
        block = random_block(seed, 140, 2, 2)
        everything = np.linalg.eigvals(full_jacobian(block))
        leading = everything[np.argmax(np.abs(everything))]
        assert abs(leading.imag) > 0.01
        (found,) = leading_multipliers(block, count=1)
        assert found == pytest.approx(complex(leading.real, abs(leading.imag)), rel=1e-10)

    def test_the_same_seed_gives_the_same_numbers(self):
        block = random_block(7, 140, 2, 2)
        np.testing.assert_array_equal(leading_multipliers(block, rng=3), leading_multipliers(block, rng=3))

    @pytest.mark.parametrize("count", [0, 15, 2.5])
    def test_bad_counts(self, count):
        with pytest.raises(ArgumentError, match="^count: got"):
            leading_multipliers(random_block(0, 7, 2), count=count)

    def test_other_refusals(self):
        for function in (attention_spectrum, full_jacobian, leading_multipliers):
            with pytest.raises(ArgumentError, match="^block: got str"):
                function("block")
            with pytest.raises(ArgumentError, match="^state: got"):
                function(random_block(0, 5, 2), [0.1])
        normed = random_block(0, 5, 3, attention_norm=LayerNorm(np.ones(3), eps=0.0))
        with pytest.raises(ArgumentError, match="^state: got no variance"):
            full_jacobian(normed)
