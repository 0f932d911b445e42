"""Encodings: each constructor against its source's formula, entry by entry for query i and key j."""

import itertools
import math

import numpy as np
import pytest

from dispersion import ArgumentError, Kernel
from dispersion.block.encodings import alibi_slopes, mask_logits, relu_mlp, t5_bucket

EXACT = 1e-13
SHAPES = [(8,), (7,), (2,), (4, 6), (5, 4), (1, 5), (3, 4, 5)]


def wrap(offset, shape):
    """Each component of an offset in [−N/2, N/2)."""
    return tuple((d + n // 2) % n - n // 2 for d, n in zip(offset, shape, strict=True))


def minus(i, j):
    return tuple(a - b for a, b in zip(i, j, strict=True))


def attention(shape, logit):
    """softmax over keys j of logit(i, j), (N, N), one entry at a time; tokens in C order."""
    tokens = list(itertools.product(*map(range, shape)))
    scores = np.array([[logit(i, j) for j in tokens] for i in tokens])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def check(kernel, logit):
    """The kernel has the attention matrix of the source, and its symbol is that matrix' eigenvalue, wave by wave."""
    shape = kernel.shape
    expected = attention(shape, logit)
    tokens = list(itertools.product(*map(range, shape)))
    by_lag = np.array([[kernel.weights[tuple(np.mod(minus(i, j), shape))] for j in tokens] for i in tokens])
    np.testing.assert_allclose(by_lag, expected, rtol=0, atol=EXACT)
    for k in tokens:
        wave = np.exp(2j * np.pi * np.array(tokens) @ (np.array(k) / np.array(shape)))
        np.testing.assert_allclose(expected @ wave, kernel.symbol[k] * wave, rtol=0, atol=EXACT)


def given(shape):
    """How a caller writes a shape: a ring by its number of tokens."""
    return shape[0] if len(shape) == 1 else shape


class TestConViT:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_centre_and_strength(self, shape):
        centre = np.array([1.3, -0.6, 0.4])[: len(shape)]

        def logit(i, j):
            return -0.37 * sum((d - c) ** 2 for d, c in zip(wrap(minus(j, i), shape), centre, strict=True))

        kernel = Kernel.convit(given(shape), centre, strength=0.37)
        check(kernel, logit)
        assert kernel.logits.shape == shape

    @pytest.mark.parametrize("shape", SHAPES)
    def test_learned_weights(self, shape):
        v = np.array([-0.21, 0.8, -0.5, 0.3])[: 1 + len(shape)]

        def logit(i, j):
            offset = wrap(minus(j, i), shape)
            return v[0] * sum(d * d for d in offset) + sum(a * d for a, d in zip(v[1:], offset, strict=True))

        check(Kernel.convit_learned(given(shape), v), logit)

    def test_initial_weights_are_those_of_a_centre(self):
        strength, centre = 0.7, np.array([1.0, -2.0])
        learned = Kernel.convit_learned((6, 5), -strength * np.array([1, *(-2 * centre)]))
        np.testing.assert_allclose(learned.weights, Kernel.convit((6, 5), centre, strength).weights, rtol=0, atol=EXACT)

    def test_looks_at_the_key_ahead(self):
        kernel = Kernel.convit((6, 8), (1, 2), 3.0)
        assert np.unravel_index(kernel.weights.argmax(), (6, 8)) == (5, 6)  # lag −1, −2

    @pytest.mark.parametrize(("shape", "centre", "rate"), [((32,), (1.6,), 0.3), ((24, 31), (-2.0, 2.5), 0.8)])
    def test_gaussian_theta_sum(self, shape, centre, rate):
        """λ = Σ_m G(q + 2πm) / Σ_m G(2πm) on each axis, G(q) = e^{−q²/4a + iqΔ}."""

        def axis(n, c):
            q = 2 * np.pi * np.arange(n)[:, None] / n + 2 * np.pi * np.arange(-30, 31)
            images = np.exp(-(q**2) / (4 * rate) + 1j * q * c).sum(axis=1)
            return images / images[0]

        exact = np.ones(1)
        for n, c in zip(shape, centre, strict=True):
            exact = np.multiply.outer(exact, axis(n, c))
        np.testing.assert_allclose(Kernel.convit(shape, centre, rate).symbol, exact[0], rtol=0, atol=EXACT)


def exact_bucket(offset, buckets, reach, bidirectional):
    """The bucket of one offset in whole numbers: ⌊k log(d/E)/log(D/E)⌋ ≥ m iff d^k E^m ≥ D^m E^k."""
    if bidirectional:
        side = buckets // 2
        distance, start = abs(offset), side if offset > 0 else 0
    else:
        side, distance, start = buckets, max(-offset, 0), 0
    exact = side // 2
    if distance < exact:
        return start + distance
    k, m = side - exact, 0
    while m < k - 1 and distance**k * exact ** (m + 1) >= reach ** (m + 1) * exact**k:
        m += 1
    return start + exact + m


class TestT5:
    @pytest.mark.parametrize("bidirectional", [True, False])
    @pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (16, 64), (8, 20), (4, 9), (31, 100), (20, 320)])
    def test_bucket(self, buckets, reach, bidirectional):
        offsets = np.arange(-330, 331).reshape(-1, 1)
        got = t5_bucket(offsets, buckets, reach, bidirectional)
        assert got.shape == offsets.shape
        assert got[:, 0].tolist() == [exact_bucket(d, buckets, reach, bidirectional) for d in range(-330, 331)]

    def test_buckets_of_the_published_models(self):
        offsets = [0, -1, 1, -7, 7, -8, 8, -16, 16, 32, 64, 127, 128, -1000]
        assert t5_bucket(offsets).tolist() == [0, 1, 17, 7, 23, 8, 24, 10, 26, 28, 30, 31, 31, 15]
        assert t5_bucket([3, 0, -1, -15, -16, -128], bidirectional=False).tolist() == [0, 0, 1, 15, 16, 31]

    @pytest.mark.parametrize("n", [40, 33])
    def test_encoder(self, n):
        table = np.random.default_rng(0).normal(size=32)
        kernel = Kernel.t5(n, table)
        check(kernel, lambda i, j: table[exact_bucket(*wrap(minus(j, i), (n,)), 32, 128, True)])
        assert not kernel.causal

    def test_decoder(self):
        table, n = np.random.default_rng(1).normal(size=8), 24
        kernel = Kernel.t5(n, table, max_distance=20, bidirectional=False)
        check(kernel, lambda i, j: table[exact_bucket(-((i[0] - j[0]) % n), 8, 20, False)])
        assert kernel.causal

    def test_looks_at_the_key_ahead(self):
        table = np.zeros(32)
        table[t5_bucket(2)] = 5.0
        assert Kernel.t5(12, table).weights.argmax() == 10  # lag −2


class TestDistances:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_two_sided(self, shape):
        def length(i, j):
            return math.sqrt(sum(d * d for d in wrap(minus(i, j), shape)))

        n = given(shape)
        check(Kernel.alibi(n, 0.4), lambda i, j: -0.4 * length(i, j))
        check(Kernel.kerple_log(n, 1.3, 0.6), lambda i, j: -1.3 * math.log(1 + 0.6 * length(i, j)))
        check(Kernel.kerple_power(n, 0.3, 1.5), lambda i, j: -0.3 * length(i, j) ** 1.5)

    def test_causal(self):
        n = 9
        check(Kernel.alibi(n, 0.4, causal=True), lambda i, j: -0.4 * ((i[0] - j[0]) % n))
        check(Kernel.kerple_log(n, 1.3, 0.6, causal=True), lambda i, j: -1.3 * math.log(1 + 0.6 * ((i[0] - j[0]) % n)))
        check(Kernel.kerple_power(n, 0.3, 0.5, causal=True), lambda i, j: -0.3 * ((i[0] - j[0]) % n) ** 0.5)

    def test_log_kernel_is_a_power_law_of_weights(self):
        kernel = Kernel.kerple_log(16, 2.0, 0.5)
        np.testing.assert_allclose(kernel.weights / kernel.weights[0], (1 + 0.5 * np.abs(kernel.lags)) ** -2.0)

    def test_power_kernel_ends_at_alibi_and_at_a_gaussian(self):
        shape = (5, 6)
        np.testing.assert_array_equal(Kernel.kerple_power(shape, 0.3, 1).logits, Kernel.alibi(shape, 0.3).logits)
        squared = Kernel.kerple_power(shape, 0.3, 2).weights
        np.testing.assert_allclose(squared, Kernel.convit(shape, (0, 0), 0.3).weights, rtol=0, atol=EXACT)

    def test_a_torus_of_one_line_is_the_ring(self):
        np.testing.assert_array_equal(Kernel.alibi((1, 9), 0.2).logits[0], Kernel.alibi(9, 0.2).logits)
        np.testing.assert_array_equal(Kernel.alibi((9,), 0.2).logits, Kernel.alibi(9, 0.2).logits)


class TestSlopes:
    @pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
    def test_powers_of_two(self, heads):
        np.testing.assert_allclose(
            alibi_slopes(heads), [2 ** (-8 * h / heads) for h in range(1, heads + 1)], rtol=1e-15
        )

    @pytest.mark.parametrize("heads", [3, 5, 6, 7, 12, 13, 71])
    def test_others_fill_in_from_twice_the_power(self, heads):
        power = 2 ** int(math.log2(heads))
        between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1)][::2]
        expected = [2 ** (-8 * h / power) for h in range(1, power + 1)] + between[: heads - power]
        np.testing.assert_allclose(alibi_slopes(heads), expected, rtol=1e-15)

    def test_twelve_heads(self):
        half = 0.5 ** np.arange(1, 9)
        np.testing.assert_allclose(alibi_slopes(12), [*half, *(2**0.5 * half[:4])], rtol=1e-15)


class TestSwin:
    @pytest.mark.parametrize(
        ("shape", "window"),
        [((9,), (3,)), ((5,), (3,)), ((7, 8), (2, 3)), ((5, 7), (3, 4)), ((4, 5, 6), (2, 3, 1))],
    )
    def test_window(self, shape, window):
        table = np.random.default_rng(2).normal(size=[2 * m - 1 for m in window])

        def logit(i, j):
            lag = wrap(minus(i, j), shape)
            inside = all(abs(r) < m for r, m in zip(lag, window, strict=True))
            return table[tuple(r + m - 1 for r, m in zip(lag, window, strict=True))] if inside else -np.inf

        check(Kernel.swin(given(shape), table), logit)

    def test_entries_of_a_window_are_those_of_the_bias_matrix(self):
        """Inside one window of 3 × 4 the reference's bias, indexed query − key + M − 1, is met exactly."""
        table = np.random.default_rng(3).normal(size=(5, 7))
        kernel = Kernel.swin((12, 10), table)
        for i, j in itertools.product(itertools.product(range(3), range(4)), repeat=2):
            assert kernel.logits[tuple(np.mod(minus(i, j), (12, 10)))] == table[i[0] - j[0] + 2, i[1] - j[1] + 3]

    def test_where_two_lags_meet(self):
        """A window as wide as the torus is translation invariant only if the table repeats."""
        with pytest.raises(ArgumentError, match="at least 7, .*open boundary") as refusal:
            Kernel.swin(4, np.arange(7.0))
        assert refusal.value.argument == "shape"
        ring = np.array([0.3, -1.0, 0.5, 2.0])
        np.testing.assert_array_equal(Kernel.swin(4, ring[np.arange(-3, 4) % 4]).logits, ring)

    def test_looks_back_where_the_query_is_ahead(self):
        table = np.zeros((5, 5))
        table[3, 1] = 4.0  # query − key = (1, −1)
        assert np.unravel_index(Kernel.swin((8, 8), table).weights.argmax(), (8, 8)) == (1, 7)


class TestFire:
    mlp = staticmethod(relu_mlp([1.0, -2.0, 0.7], [0.1, 0.8, -0.2], [-1.5, 0.9, 0.4]))

    def source(self, i, j, c, threshold):
        """The bias of query i and key j ≤ i, counted from 1, term by term."""
        x = math.log(1 + c * (i - j)) / math.log(1 + c * max(threshold, i))
        hidden = [max(0.0, w * x + b) for w, b in [(1.0, 0.1), (-2.0, 0.8), (0.7, -0.2)]]
        return -1.5 * hidden[0] + 0.9 * hidden[1] + 0.4 * hidden[2]

    @pytest.mark.parametrize("threshold", [12, 20.5])
    def test_below_the_threshold(self, threshold):
        n, c = 12, 0.3
        kernel = Kernel.fire(n, self.mlp, c, threshold)
        for i in range(1, n + 1):
            for j in range(1, i + 1):
                assert kernel.logits[i - j] == pytest.approx(self.source(i, j, c, threshold), abs=EXACT)
        assert kernel.causal
        check(kernel, lambda i, j: self.source(1 + (i[0] - j[0]) % n, 1, c, threshold))

    def test_two_sided(self):
        kernel = Kernel.fire(9, np.sin, 0.5, 16, causal=False)
        check(kernel, lambda i, j: math.sin(math.log1p(0.5 * abs(wrap(minus(i, j), (9,))[0])) / math.log1p(8.0)))

    def test_above_the_threshold_no_kernel_represents_it(self):
        assert abs(self.source(12, 10, 0.3, 6) - self.source(8, 6, 0.3, 6)) > 1e-2
        with pytest.raises(ArgumentError, match="depend on the query's own position") as refusal:
            Kernel.fire(12, self.mlp, 0.3, 6)
        assert refusal.value.argument == "threshold"


class TestMask:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_weights_are_normalised_sigmoids(self, shape):
        m = np.random.default_rng(4).normal(size=shape, scale=3)
        kernel = Kernel.uniform(given(shape)) + Kernel.mask(m)
        check(kernel, lambda i, j: math.log(1 / (1 + math.exp(-m[tuple(np.mod(minus(i, j), shape))]))))

    def test_multiplies_another_kernel(self):
        m = np.random.default_rng(5).normal(size=9)
        base = Kernel.alibi(9, 0.3, causal=True)
        weights = base.weights / (1 + np.exp(-m))
        np.testing.assert_allclose((base + Kernel.mask(m, causal=True)).weights, weights / weights.sum(), rtol=1e-13)

    def test_extremes(self):
        with np.errstate(over="raise", invalid="raise"):
            logits = mask_logits([[-np.inf, -800.0], [800.0, np.inf]])
        np.testing.assert_array_equal(logits, [[-np.inf, -800.0], [0.0, 0.0]])


class TestTori:
    """The constructors that were for rings first."""

    @pytest.mark.parametrize("shape", SHAPES)
    def test_gaussian_lobes(self, shape):
        centre = np.array([1.5, -0.5, 1.0])[: len(shape)]

        def logit(i, j):
            lag = np.array(wrap(minus(i, j), shape))
            return -1.3 * sum(math.exp(-((lag - c) ** 2).sum() / (2 * 0.8**2)) for c in (centre, -centre))

        check(Kernel.gaussian_lobes(given(shape), centre, 0.8, -1.3), logit)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_von_mises(self, shape):
        k = (1, -2, 2)[-len(shape) :] if shape[0] > 2 or len(shape) > 1 else (1,)
        k = tuple(max(-(n // 2), min(a, n - 1)) for a, n in zip(k, shape, strict=True))

        def logit(i, j):
            q_r = sum(2 * math.pi * a * r / n for a, r, n in zip(k, minus(i, j), shape, strict=True))
            return 1.4 * math.cos(q_r - 0.6)

        check(Kernel.von_mises(given(shape), given(k), 1.4, phase=0.6), logit)

    def test_uniform(self):
        check(Kernel.uniform((3, 4)), lambda i, j: 0.0)


REFUSED = [
    (lambda: Kernel.uniform((1, 1)), "n"),
    (lambda: Kernel.uniform(()), "n"),
    (lambda: Kernel.uniform((3, 0)), "n"),
    (lambda: Kernel.uniform((3, 2.0)), "n"),
    (lambda: Kernel.alibi((3, 4), 1.0, causal=True), "causal"),
    (lambda: Kernel.kerple_log((3, 4), 1.0, 1.0, causal=True), "causal"),
    (lambda: Kernel.kerple_log(8, 0.0, 1.0), "r1"),
    (lambda: Kernel.kerple_log(8, 1.0, -1.0), "r2"),
    (lambda: Kernel.kerple_power(8, -1.0, 1.0), "r1"),
    (lambda: Kernel.kerple_power(8, 1.0, 2.5), "r2"),
    (lambda: Kernel.kerple_power(8, 1.0, 0.0), "r2"),
    (lambda: Kernel.convit((4, 4), 1.0, 1.0), "centre"),
    (lambda: Kernel.convit((4, 4), (1.0, 2.0, 3.0), 1.0), "centre"),
    (lambda: Kernel.convit((4, 4), (1.0, np.nan), 1.0), "centre"),
    (lambda: Kernel.convit((4, 4), "ab", 1.0), "centre"),
    (lambda: Kernel.convit((4, 4), (1.0, 1.0), np.inf), "strength"),
    (lambda: Kernel.convit((4, 0), (1.0, 1.0), 1.0), "shape"),
    (lambda: Kernel.convit_learned((4, 4), [1.0, 2.0]), "weights"),
    (lambda: Kernel.t5((4, 4), np.zeros(32)), "n"),
    (lambda: Kernel.t5(8, np.zeros((32, 8))), "table"),
    (lambda: Kernel.t5(8, np.zeros(3)), "table"),
    (lambda: Kernel.t5(8, np.zeros(1), bidirectional=False), "table"),
    (lambda: Kernel.t5(8, np.zeros(32), max_distance=8), "max_distance"),
    (lambda: Kernel.t5(8, np.zeros(32), max_distance=128.0), "max_distance"),
    (lambda: t5_bucket([0.5, 1.0]), "relative_position"),
    (lambda: t5_bucket([[1], [1, 2]]), "relative_position"),
    (lambda: t5_bucket([1, 2], buckets=2), "buckets"),
    (lambda: Kernel.swin((8, 8), np.zeros(5)), "table"),
    (lambda: Kernel.swin((8, 8), np.zeros((5, 4))), "table"),
    (lambda: Kernel.swin((8, 8), np.full((5, 5), np.nan)), "table"),
    (lambda: Kernel.swin((4, 8), np.arange(25.0).reshape(5, 5)), "shape"),
    (lambda: Kernel.fire((4, 4), np.sin, 1.0, 16), "n"),
    (lambda: Kernel.fire(8, np.sin, 0.0, 16), "c"),
    (lambda: Kernel.fire(8, np.sin, 1.0, np.inf), "threshold"),
    (lambda: Kernel.fire(8, np.sin, 1.0, 7), "threshold"),
    (lambda: Kernel.fire(8, np.sum, 1.0, 16), "mlp"),
    (lambda: Kernel.fire(8, lambda x: x * np.nan, 1.0, 16), "mlp"),
    (lambda: relu_mlp([[1.0]], [1.0], [1.0]), "weight_in"),
    (lambda: relu_mlp([1.0], [1.0, 2.0], [1.0]), "bias_in"),
    (lambda: relu_mlp([1.0], [1.0], [1.0, 2.0]), "weight_out"),
    (lambda: Kernel.mask([0.0, np.nan]), "m"),
    (lambda: Kernel.mask(["open", "shut"]), "m"),
    (lambda: mask_logits(np.array([1j, 0.0])), "m"),
    (lambda: Kernel.gaussian_lobes((8, 8), 2, 1.0, 1.0), "separation"),
    (lambda: Kernel.von_mises((8, 8), 2, 1.0), "wavenumber"),
    (lambda: Kernel.von_mises((8, 8), (2, 8), 1.0), "wavenumber"),
    (lambda: alibi_slopes(0), "heads"),
    (lambda: alibi_slopes(2.0), "heads"),
]


@pytest.mark.parametrize(("make", "argument"), REFUSED)
def test_refusals_name_the_argument(make, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+") as refusal:
        make()
    assert refusal.value.argument == argument


def test_a_function_of_fire_that_raises_is_told():
    with pytest.raises(ArgumentError, match=r"^mlp: got a function that raises TypeError: .* \(4,\)"):
        Kernel.fire(4, float, c=1.0, threshold=8.0)
