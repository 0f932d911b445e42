"""Absolute encodings: the logits, how much of them is translation invariant, and the kernel of that part."""

import itertools

import numpy as np
import pytest

from dispersion import ArgumentError, Kernel
from dispersion.block.absolute import absolute_logits, sinusoidal, toeplitz_part, translation_invariant_share

EXACT = 1e-13


def tokens(shape):
    return list(itertools.product(*map(range, shape)))


def displacement(i, j, shape, periodic):
    return tuple((a - b) % n if periodic else a - b for a, b, n in zip(i, j, shape, strict=True))


def groups(logits, shape, periodic, diagonal):
    """{displacement: its logits}, one pair at a time."""
    found = {}
    for (x, i), (y, j) in itertools.product(enumerate(tokens(shape)), repeat=2):
        if x != y or diagonal:
            found.setdefault(displacement(i, j, shape, periodic), []).append(logits[x, y])
    return found


def circulant(kernel):
    """b_{i−j} of each pair."""
    place = tokens(kernel.shape)
    return np.array([[kernel.logits[displacement(i, j, kernel.shape, True)] for j in place] for i in place])


class TestLogits:
    def test_entry_by_entry(self):
        rng = np.random.default_rng(0)
        table, content, state = rng.normal(size=(5, 3)), rng.normal(size=(3, 3)), rng.normal(size=3)
        logits = absolute_logits(table, content, state)
        for i, j in itertools.product(range(5), repeat=2):
            assert logits[i, j] == pytest.approx((state + table[i]) @ content @ (state + table[j]), abs=EXACT)

    def test_at_zero(self):
        table = np.random.default_rng(1).normal(size=(5, 3))
        np.testing.assert_allclose(absolute_logits(table, np.eye(3)), table @ table.T, rtol=0, atol=EXACT)

    def test_sinusoidal_table(self):
        table = sinusoidal(10, 6)
        for i, k in itertools.product(range(10), range(3)):
            angle = i / 10000 ** (2 * k / 6)
            assert table[i, 2 * k] == pytest.approx(np.sin(angle), abs=EXACT)
            assert table[i, 2 * k + 1] == pytest.approx(np.cos(angle), abs=EXACT)


class TestShare:
    @pytest.mark.parametrize("periodic", [False, True])
    @pytest.mark.parametrize("shape", [(6,), (5,), (3, 4), (2, 3, 2)])
    def test_by_definition(self, shape, periodic):
        n = int(np.prod(shape))
        logits = np.random.default_rng(2).normal(size=(n, n))
        found = groups(logits, shape, periodic, diagonal=False)
        residual = sum(((np.array(b) - np.mean(b)) ** 2).sum() for b in found.values())
        total = sum(len(b) for b in found.values()) * np.var(np.concatenate([*found.values()]))
        share = translation_invariant_share(logits, shape, periodic)
        assert share == pytest.approx(1 - residual / total, abs=EXACT)

    def test_sinusoidal_is_exactly_toeplitz(self):
        table = sinusoidal(40, 16)
        assert translation_invariant_share(absolute_logits(table, np.eye(16))) == pytest.approx(1, abs=EXACT)
        assert translation_invariant_share(absolute_logits(table, np.eye(16)), periodic=True) < 0.99

    def test_rotated_sinusoidal_is_directional_and_toeplitz(self):
        """A content form that turns each pair of features by its own angle keeps i − j, and tells it from j − i."""
        d, angles = 8, np.array([0.3, -1.1, 2.0, 0.7])
        content = np.zeros((d, d))
        for k, angle in enumerate(angles):
            turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            content[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = turn
        logits = absolute_logits(sinusoidal(24, d), content)
        assert translation_invariant_share(logits) == pytest.approx(1, abs=EXACT)
        frequencies = 10000.0 ** (-2 * np.arange(4) / d)
        kernel = toeplitz_part(logits)
        # (sin α, cos α) R(φ) (sin β, cos β)ᵀ = cos(α − β + φ)
        expected = np.cos(np.multiply.outer(kernel.lags, frequencies) + angles).sum(axis=1)
        assert np.abs(logits[3, 1] - np.cos(2 * frequencies + angles).sum()) < EXACT
        np.testing.assert_allclose(kernel.logits, expected, rtol=0, atol=EXACT)

    def test_grid_frequencies_are_circulant(self):
        angle = 2 * np.pi * np.outer(np.arange(12), [1, 3, 5]) / 12
        table = np.hstack([np.sin(angle), np.cos(angle)])
        assert translation_invariant_share(table @ table.T, periodic=True) == pytest.approx(1, abs=EXACT)

    def test_a_grid_of_tokens_needs_its_shape(self):
        shape, d = (5, 7), 8
        rows, columns = np.array(tokens(shape)).T
        table = np.hstack([sinusoidal(5, d, base=10.0)[rows], sinusoidal(7, d, base=10.0)[columns]])
        logits = table @ table.T
        assert translation_invariant_share(logits, shape) == pytest.approx(1, abs=EXACT)
        assert translation_invariant_share(logits) < 0.98

    @pytest.mark.parametrize("n", [128, 256])
    def test_a_random_table_has_next_to_none(self, n):
        """Of n(n − 1)/2 independent pairs n − 1 numbers are fitted: a share of 2/n."""
        rng = np.random.default_rng(3)
        table = rng.normal(size=(n, 64))
        assert 1 / n < translation_invariant_share(table @ table.T) < 4 / n

    def test_the_diagonal_does_not_count(self):
        rng = np.random.default_rng(4)
        logits = rng.normal(size=(30, 30))
        share = translation_invariant_share(logits)
        assert translation_invariant_share(logits + np.diag(100 + rng.normal(size=30))) == share

    def test_does_not_depend_on_scale_or_offset(self):
        logits = np.random.default_rng(5).normal(size=(20, 20))
        share = translation_invariant_share(logits)
        assert translation_invariant_share(3.7 * logits - 5) == pytest.approx(share, abs=1e-12)

    def test_planted_share(self):
        """Equal variances of a Toeplitz part and of noise: half."""
        rng, n = np.random.default_rng(6), 300
        toeplitz = rng.normal(size=2 * n - 1)[np.subtract.outer(np.arange(n), np.arange(n)) + n - 1]
        noise = rng.normal(size=(n, n)) * toeplitz.std()
        assert translation_invariant_share(toeplitz + noise) == pytest.approx(0.5, abs=0.03)

    @pytest.mark.parametrize("level", [0.0, 0.1, 1e8])
    def test_constant_logits(self, level):
        assert translation_invariant_share(np.full((7, 7), level)) == 1

    def test_a_state_adds_a_term_of_the_key(self):
        """aᵀWp_j depends on j alone, so a* ≠ 0 spoils an exactly Toeplitz table."""
        table = sinusoidal(24, 8)
        state = np.random.default_rng(7).normal(size=8)
        assert translation_invariant_share(absolute_logits(table, np.eye(8), state)) < 0.9


class TestToeplitzPart:
    @pytest.mark.parametrize("shape", [(8,), (7,), (3, 4), (2, 3, 3)])
    def test_gives_back_a_kernel(self, shape):
        kernel = Kernel.table(np.random.default_rng(8).normal(size=shape))
        back = toeplitz_part(circulant(kernel), shape, periodic=True)
        np.testing.assert_allclose(back.logits, kernel.logits, rtol=0, atol=EXACT)
        np.testing.assert_allclose(back.symbol, kernel.symbol, rtol=0, atol=EXACT)

    @pytest.mark.parametrize("shape", [(8,), (7,), (3, 4), (2, 3, 3)])
    def test_means_of_an_open_grid(self, shape):
        n = int(np.prod(shape))
        logits = np.random.default_rng(9).normal(size=(n, n))
        found = groups(logits, shape, periodic=False, diagonal=True)
        kernel = toeplitz_part(logits, shape)
        lags = kernel.lags.reshape(*shape, len(shape))
        for index in tokens(shape):
            assert kernel.logits[index] == pytest.approx(np.mean(found[tuple(lags[index])]), abs=EXACT)

    def test_is_nearest_on_the_ring(self):
        logits = np.random.default_rng(10).normal(size=(9, 9))
        kernel = toeplitz_part(logits, periodic=True)
        residual = circulant(kernel) - logits
        for lag in range(9):
            assert sum(residual[i, (i - lag) % 9] for i in range(9)) == pytest.approx(0, abs=EXACT)


REFUSED = [
    (lambda: sinusoidal(0, 4), "n"),
    (lambda: sinusoidal(8, 5), "d"),
    (lambda: sinusoidal(8, 4, base=0.0), "base"),
    (lambda: absolute_logits(np.zeros(4), np.eye(4)), "table"),
    (lambda: absolute_logits(np.zeros((6, 4)), np.eye(3)), "content"),
    (lambda: absolute_logits(np.zeros((6, 4)), np.eye(4), np.zeros(3)), "state"),
    (lambda: absolute_logits(np.full((6, 4), np.nan), np.eye(4)), "table"),
    (lambda: translation_invariant_share(np.zeros((4, 5))), "logits"),
    (lambda: translation_invariant_share(np.zeros((1, 1))), "logits"),
    (lambda: translation_invariant_share(np.full((4, 4), np.inf)), "logits"),
    (lambda: translation_invariant_share(np.zeros((4, 4)), (3, 2)), "shape"),
    (lambda: toeplitz_part(np.zeros((4, 4)), (4, 1.0)), "shape"),
    (lambda: toeplitz_part(np.zeros(4)), "logits"),
]


@pytest.mark.parametrize(("make", "argument"), REFUSED)
def test_refusals_name_the_argument(make, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+") as refusal:
        make()
    assert refusal.value.argument == argument
