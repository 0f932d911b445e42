"""Kernels: logits, weights, and the symbol λ(q) against exact forms and against the definition."""

import cmath
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import iv

from dispersion import ArgumentError, Kernel

EXACT = 1e-13

logit_lists = st.lists(st.floats(-6, 6), min_size=2, max_size=24)


def grid(n):
    return 2 * np.pi * np.arange(n) / n


def symbol_by_definition(logits, lags, q):
    """Σ_r A_r e^{−iqr} over the given lags, one term at a time."""
    n = len(logits)
    weights = {r: math.exp(logits[r % n]) for r in lags}
    return sum(w * cmath.exp(-1j * q * r) for r, w in weights.items()) / sum(weights.values())


class TestExactRingForms:
    @pytest.mark.parametrize("n", [2, 6, 8, 32])
    @pytest.mark.parametrize("slope", [0.05, 0.5, 2.0])
    def test_two_sided_alibi(self, n, slope):
        k, p = np.arange(n), np.exp(-slope)
        free = (1 - p) ** 2 / (1 - 2 * p * np.cos(grid(n)) + p**2)
        ring = (1 - (-1.0) ** k * p ** (n / 2)) / (1 - p ** (n / 2))
        np.testing.assert_allclose(Kernel.alibi(n, slope).symbol, free * ring, rtol=0, atol=EXACT)

    @pytest.mark.parametrize("n", [2, 7, 8, 32])
    @pytest.mark.parametrize("slope", [0.05, 0.5, 2.0])
    def test_causal_alibi(self, n, slope):
        p = np.exp(-slope)
        exact = (1 - p) / (1 - p * np.exp(-1j * grid(n)))
        np.testing.assert_allclose(Kernel.alibi(n, slope, causal=True).symbol, exact, rtol=0, atol=EXACT)

    @pytest.mark.parametrize(("n", "k0"), [(32, 5), (31, 3), (32, 4), (12, 8), (9, 6), (8, 4), (16, -3), (8, 0)])
    @pytest.mark.parametrize("phase", [0.0, 0.7, -2.0])
    def test_von_mises(self, n, k0, phase):
        strength, common = 1.7, math.gcd(k0, n)
        period = n // common
        symbol = Kernel.von_mises(n, k0, strength, phase).symbol
        m = np.arange(-40, 41)

        def images(harmonic):
            order = harmonic + m * period
            return (np.exp(-1j * order * phase) * iv(order, strength)).sum()

        reached = set()
        for harmonic in range(period):
            k = harmonic * k0 % n
            reached.add(k)
            assert abs(symbol[k] - images(harmonic) / images(0)) < EXACT
        silent = [k for k in range(n) if k not in reached]
        assert len(silent) == n - period  # a kernel of period n/gcd has no other wavenumbers
        assert np.abs(symbol[silent]).max(initial=0) < EXACT

    @pytest.mark.parametrize(("n", "rate", "centre"), [(32, 0.5, 0.0), (32, 0.3, 1.6), (40, 2.0, -3.0), (33, 1.0, 2.5)])
    def test_gaussian_weights(self, n, rate, centre):
        r = Kernel.uniform(n).lags
        key_minus_query = -r
        symbol = Kernel.table(-rate * (key_minus_query - centre) ** 2).symbol

        def images(q):
            shifted = q + 2 * np.pi * np.arange(-30, 31)
            return np.exp(-(shifted**2) / (4 * rate) + 1j * shifted * centre).sum()

        exact = [images(q) / images(0.0) for q in grid(n)]
        np.testing.assert_allclose(symbol, exact, rtol=0, atol=EXACT)

    @pytest.mark.parametrize("n", [2, 3, 32])
    def test_uniform(self, n):
        np.testing.assert_allclose(Kernel.uniform(n).symbol, np.arange(n) == 0, rtol=0, atol=EXACT)

    @pytest.mark.parametrize("n", [5, 8])
    @pytest.mark.parametrize("lag", [1, -1, 3])
    def test_one_lag(self, n, lag):
        logits = np.full(n, -np.inf)
        logits[lag % n] = 0.3
        np.testing.assert_allclose(Kernel.table(logits).symbol, np.exp(-1j * grid(n) * lag), rtol=0, atol=EXACT)


class TestReferenceValues:
    """Numbers of the paper's settings, to the digits they are known to."""

    def test_two_lobes(self):
        symbol = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0).symbol
        assert symbol[:17].real.argmin() == 4
        assert symbol[4] == pytest.approx(-0.3490715, abs=5e-8)

    def test_skewed_lobe(self):
        symbol = Kernel.skewed_lobe(32, 4, width_below=0.7, width_above=2.0, strength=1.0).symbol
        assert symbol[3].real == pytest.approx(-0.0980549, abs=5e-8)
        assert symbol[3].imag == pytest.approx(-0.0299650, abs=5e-8)

    def test_mixture_with_equal_wells(self):
        near = Kernel.gaussian_lobes(32, separation=2, width=0.7, strength=1.0)
        far = Kernel.gaussian_lobes(32, separation=4.5, width=0.7, strength=1.0)

        def symbol(w):
            return (4 * ((1 - w) * near + w * far)).symbol.real

        w = brentq(lambda w: symbol(w)[4] - symbol(w)[10], 0.3, 0.7, xtol=1e-14)
        assert w == pytest.approx(0.4997651, abs=5e-8)
        assert symbol(w)[4] == pytest.approx(-0.2064007, abs=5e-8)
        assert symbol(w)[10] == pytest.approx(-0.2064007, abs=5e-8)
        assert symbol(w)[:17].min() == pytest.approx(symbol(w)[4], abs=1e-13)

    def test_quarter_wave(self):
        symbol = Kernel.gaussian_lobes(32, separation=1.8, width=1.0, strength=2.0).symbol
        assert symbol[8].real == pytest.approx(-0.1897033684, abs=5e-11)
        assert symbol[16].real == pytest.approx(0.0644545409, abs=5e-11)

    def test_wide_lobes(self):
        symbol = Kernel.gaussian_lobes(32, separation=5, width=1.0, strength=2.0).symbol
        assert symbol[:17].real.argmin() == 3
        assert symbol[3].real == pytest.approx(-0.3723418873, abs=5e-11)

    @pytest.mark.parametrize(
        ("logits", "k", "value"),
        [([0, 2, 0, 0, 0, 0, 0, 2], 4, -0.6149794590), ([0, 2, 1.4, 0, 1.4, 2], 2, -0.3794624611)],
    )
    def test_short_tables(self, logits, k, value):
        assert Kernel.table(logits).symbol[k].real == pytest.approx(value, abs=5e-11)


class TestLogits:
    @pytest.mark.parametrize("n", [7, 8])
    def test_gaussian_lobes(self, n):
        kernel = Kernel.gaussian_lobes(n, separation=1.5, width=0.8, strength=-1.3)
        for r in range(-(n // 2), (n + 1) // 2):
            lobes = math.exp(-((r - 1.5) ** 2) / (2 * 0.8**2)) + math.exp(-((r + 1.5) ** 2) / (2 * 0.8**2))
            assert kernel.logits[r % n] == pytest.approx(-1.3 * lobes, abs=EXACT)

    @pytest.mark.parametrize("separation", [2, 2.5, -1])
    def test_skewed_lobe(self, separation):
        kernel = Kernel.skewed_lobe(9, separation, width_below=0.6, width_above=1.7, strength=0.9)
        for r in range(-4, 5):
            width = 0.6 if r <= separation else 1.7
            assert kernel.logits[r % 9] == pytest.approx(
                0.9 * math.exp(-((r - separation) ** 2) / (2 * width**2)), abs=EXACT
            )

    def test_lag_is_query_minus_key(self):
        assert Kernel.skewed_lobe(16, 3, 0.5, 0.5, 1.0).weights.argmax() == 3
        assert Kernel.skewed_lobe(16, -3, 0.5, 0.5, 1.0).weights.argmax() == 13

    @pytest.mark.parametrize(("n", "lags"), [(6, [0, 1, 2, -3, -2, -1]), (5, [0, 1, 2, -2, -1]), (2, [0, -1])])
    def test_lags(self, n, lags):
        np.testing.assert_array_equal(Kernel.uniform(n).lags, lags)
        np.testing.assert_array_equal(Kernel.alibi(n, 1.0, causal=True).lags, np.arange(n))

    def test_logits_are_owned_and_read_only(self):
        given_logits = np.zeros(4)
        kernel = Kernel.table(given_logits)
        given_logits[0] = 1
        assert kernel.logits[0] == 0
        for array in (kernel.logits, kernel.weights, kernel.symbol):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1

    def test_mixing(self):
        rng = np.random.default_rng(1)
        a, b = rng.normal(size=(2, 9))
        mixed = 4 * (0.3 * Kernel.table(a) + Kernel.table(b) * 0.7)
        np.testing.assert_allclose(mixed.logits, 4 * (0.3 * a + 0.7 * b), rtol=0, atol=1e-14)
        assert (2 * Kernel.table(a, causal=True)).causal
        assert (Kernel.table(a, causal=True) + Kernel.table(b, causal=True)).causal

    def test_shift_of_all_logits_changes_nothing(self):
        logits = np.random.default_rng(2).normal(size=8)
        np.testing.assert_allclose(Kernel.table(logits + 900).symbol, Kernel.table(logits).symbol, rtol=0, atol=1e-12)

    def test_strength_zero_of_a_windowed_kernel(self):
        """A removed lag stays removed however strong the rest is."""
        window = Kernel.table([0.5, 1.0, -np.inf, 0.2])
        np.testing.assert_allclose((0.0 * window).weights, [1 / 3, 1 / 3, 0, 1 / 3], rtol=0, atol=EXACT)


class TestSymbol:
    @given(logits=logit_lists, causal=st.booleans(), q=st.floats(-10, 10))
    def test_is_the_sum_over_the_documented_lags(self, logits, causal, q):
        n = len(logits)
        lags = range(n) if causal else range(-(n // 2), (n + 1) // 2)
        exact = symbol_by_definition(logits, lags, q)
        assert abs(Kernel.table(logits, causal)(q) - exact) < EXACT * n

    @pytest.mark.parametrize("causal", [False, True])
    def test_continues_to_complex_wavenumbers(self, causal):
        logits = np.random.default_rng(3).normal(size=8)
        lags = range(8) if causal else range(-4, 4)
        for q in (0.4 + 0.3j, -1.2j, 2.0 - 0.5j):
            exact = symbol_by_definition(logits, lags, q)
            assert abs(Kernel.table(logits, causal)(q) - exact) < EXACT * (1 + abs(exact))

    @given(logits=logit_lists, causal=st.booleans())
    def test_on_the_grid(self, logits, causal):
        kernel, n = Kernel.table(logits, causal), len(logits)
        np.testing.assert_allclose(kernel(grid(n)), kernel.symbol, rtol=0, atol=EXACT * n)
        for k in range(n):
            exact = symbol_by_definition(logits, range(n), 2 * math.pi * k / n)
            assert abs(kernel.symbol[k] - exact) < EXACT * n

    @given(logits=logit_lists, causal=st.booleans(), q=st.floats(-10, 10))
    def test_bounds_and_conjugation(self, logits, causal, q):
        kernel = Kernel.table(logits, causal)
        assert abs(kernel(0.0) - 1) < EXACT
        assert abs(kernel.symbol[0] - 1) < EXACT
        assert abs(kernel(q)) <= 1 + EXACT
        assert abs(kernel(-q) - np.conj(kernel(q))) < EXACT

    @given(logits=logit_lists)
    def test_symmetric_kernels_are_real(self, logits):
        half = np.array(logits)
        kernel = Kernel.table(half + np.roll(half[::-1], 1))
        assert kernel.symmetric
        assert not kernel.symbol.imag.any()

    def test_directional_kernels_are_not(self):
        kernel = Kernel.skewed_lobe(32, 4, 0.7, 2.0, 1.0)
        assert not kernel.symmetric
        assert np.abs(kernel.symbol.imag).max() > 0.01

    def test_shape_is_kept(self):
        kernel = Kernel.alibi(8, 0.3)
        assert kernel(0.1).shape == ()
        assert kernel(np.zeros((2, 3))).shape == (2, 3)
        assert kernel(0.1).dtype == kernel.symbol.dtype == np.complex128

    def test_rows_of_the_attention_matrix(self):
        """e_q is an eigenvector of A_ij = A_{i−j}, built entry by entry."""
        kernel = Kernel.table(np.random.default_rng(4).normal(size=7))
        matrix = np.array([[kernel.weights[(i - j) % 7] for j in range(7)] for i in range(7)])
        for k, q in enumerate(grid(7)):
            wave = np.exp(1j * q * np.arange(7))
            np.testing.assert_allclose(matrix @ wave, kernel.symbol[k] * wave, rtol=0, atol=EXACT)


REFUSED = [
    (lambda: Kernel.table([0.0, np.nan, 0.0]), "logits"),
    (lambda: Kernel.table([0.0, np.inf, 0.0]), "logits"),
    (lambda: Kernel.table([-np.inf, -np.inf]), "logits"),
    (lambda: Kernel.table(np.zeros((3, 0))), "logits"),
    (lambda: Kernel.table(0.0), "logits"),
    (lambda: Kernel.table([1.0]), "logits"),
    (lambda: Kernel.table(["near", "far"]), "logits"),
    (lambda: Kernel.table(np.array([1.0, 1j])), "logits"),
    (lambda: Kernel.uniform(1), "n"),
    (lambda: Kernel.uniform(8.0), "n"),
    (lambda: Kernel.gaussian_lobes(32, 4, -1.0, 2.0), "width"),
    (lambda: Kernel.gaussian_lobes(32, 4, 0.0, 2.0), "width"),
    (lambda: Kernel.gaussian_lobes(32, np.nan, 1.0, 2.0), "separation"),
    (lambda: Kernel.gaussian_lobes(32, 4, 1.0, np.inf), "strength"),
    (lambda: Kernel.gaussian_lobes(-32, 4, 1.0, 2.0), "n"),
    (lambda: Kernel.skewed_lobe(32, 4, -0.7, 2.0, 1.0), "width_below"),
    (lambda: Kernel.skewed_lobe(32, 4, 0.7, 0.0, 1.0), "width_above"),
    (lambda: Kernel.alibi(32, np.nan), "slope"),
    (lambda: Kernel.alibi(32, "steep"), "slope"),
    (lambda: Kernel.von_mises(32, 32, 1.0), "wavenumber"),
    (lambda: Kernel.von_mises(32, -17, 1.0), "wavenumber"),
    (lambda: Kernel.von_mises(32, 2.5, 1.0), "wavenumber"),
    (lambda: Kernel.von_mises(32, 2, 1.0, phase=np.nan), "phase"),
    (lambda: Kernel.uniform(8) + Kernel.uniform(9), "kernel"),
    (lambda: Kernel.alibi(8, 1.0) + Kernel.alibi(8, 1.0, causal=True), "kernel"),
    (lambda: Kernel.uniform(8) * np.nan, "strength"),
    (lambda: Kernel.uniform(8) * Kernel.uniform(8), "strength"),
]


@pytest.mark.parametrize(("make", "argument"), REFUSED)
def test_refusals_name_the_argument(make, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+") as refusal:
        make()
    assert refusal.value.argument == argument
    assert isinstance(refusal.value, ValueError)


def test_kernels_add_only_to_kernels():
    with pytest.raises(TypeError):
        Kernel.uniform(8) + 1.0
