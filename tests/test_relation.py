"""J(q) and its modes against the brute-force Jacobian, the eigen-equation and the propositions."""

import numpy as np
import pytest
from conftest import SMOOTH
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, Rotary, dispersion_relation

STEP = 1e-20


def derivative(block, a, u):
    """DF(1⊗a)·u for fields u (…, N, d), by complex step of the forward map."""
    return block.forward(a + 1j * STEP * u).imag / STEP


def wavenumber_blocks(block, a):
    """(N, N, d, d): entry [k, l] takes e_{q_l} v to its component on e_{q_k}, from the full N·d Jacobian."""
    n, d = block.n, block.d
    units = np.eye(n * d).reshape(n * d, n, d)
    jacobian = derivative(block, a, units).reshape(n, d, n, d).transpose(2, 3, 0, 1)  # [i, α, j, β]
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)  # e_q by row
    return np.einsum("ki,iajb,lj->klab", waves.conj(), jacobian, waves) / n


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def scaled(factor, d):
    """The feed-forward with C = `factor`·I."""
    return FeedForward.elementwise(Activation.polynomial([factor - 1]), d)


LOBES = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0)
SKEWED = Kernel.skewed_lobe(32, 4, width_below=0.7, width_above=2.0, strength=1.0)
LOBES_5 = Kernel.gaussian_lobes(32, separation=5, width=1.0, strength=2.0)
SATURATING = FeedForward.scalar("tanh", -0.1)


def balanced_mixture():
    """4[(1−w)K_2 + w K_4.5] with λ_4 = λ_10."""
    near, far = (Kernel.gaussian_lobes(32, separation, 0.7, 1.0) for separation in (2, 4.5))

    def mixture(w):
        return 4 * ((1 - w) * near + w * far)

    return mixture(brentq(lambda w: np.subtract(*mixture(w).symbol.real[[4, 10]]), 0.3, 0.7, xtol=1e-15))


class TestJacobian:
    @pytest.mark.parametrize("activation", SMOOTH)
    @pytest.mark.parametrize(("n", "d", "heads"), [(8, 1, 1), (7, 1, 3), (8, 2, 2), (5, 3, 1), (6, 3, 3)])
    def test_every_wavenumber_block(self, random_block, n, d, heads, activation):
        for seed in range(2):
            block = random_block([n, d, heads, seed], n, d, heads, activation)
            a = np.random.default_rng(seed).normal(size=d)
            blocks, relation = wavenumber_blocks(block, a), dispersion_relation(block, a)
            for k in range(n):
                np.testing.assert_allclose(blocks[k, k], relation.matrices[k], rtol=0, atol=1e-12)
                np.testing.assert_allclose(blocks[k, k], relation(2 * np.pi * k / n), rtol=0, atol=1e-12)
                blocks[k, k] = 0
            assert np.abs(blocks).max() < 1e-12  # wavenumbers do not mix

    def test_polynomial_feedforward(self, random_block):
        block = random_block(3, 6, 2, 2, Activation.polynomial([0.5, -0.2, 0.1]))
        a = np.array([0.4, -0.3])
        blocks, matrices = wavenumber_blocks(block, a), dispersion_relation(block, a).matrices
        np.testing.assert_allclose(blocks[np.arange(6), np.arange(6)], matrices, rtol=0, atol=1e-12)

    def test_directional_kernels_give_complex_blocks(self, random_block):
        """Else the test above could not tell J(q) from its conjugate."""
        assert np.abs(dispersion_relation(random_block(4)).matrices.imag).max() > 0.1

    @given(seed=st.integers(0, 10**6), q=st.floats(-7, 7), d=st.integers(1, 3))
    def test_opposite_wavenumbers_are_conjugate(self, seed, q, d):
        rng = np.random.default_rng(seed)
        heads = [Head(Kernel.table(rng.normal(size=6)), rng.normal(size=(d, d))) for _ in range(2)]
        relation = dispersion_relation(Block(heads, FeedForward.elementwise("gelu", d)), rng.normal(size=d))
        np.testing.assert_allclose(relation(-q), relation(q).conj(), rtol=0, atol=1e-13)
        np.testing.assert_allclose(relation.matrices[-2], relation.matrices[2].conj(), rtol=0, atol=1e-13)

    def test_formula(self):
        """J = C[I + ε_a Σ_h λ_h(q) M_h], the head's own λ with the head's own M."""
        rng = np.random.default_rng(5)
        kernels, values = [LOBES, SKEWED], rng.normal(size=(2, 2, 2))
        heads = [Head(kernel, value) for kernel, value in zip(kernels, values, strict=True)]
        relation = dispersion_relation(Block(heads, scaled(0.7, 2), attention_scale=0.4))
        q = np.array([[0.3, 1.1, -2.0]])
        attention = sum(kernel(q)[..., None, None] * m for kernel, m in zip(kernels, values, strict=True))
        expected = 0.7 * (np.eye(2) + 0.4 * attention)
        assert relation(q).shape == (1, 3, 2, 2)
        np.testing.assert_allclose(relation(q), expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(relation.pointwise, 0.7 * np.eye(2), rtol=0, atol=1e-15)

    def test_ordered_product_along_an_orbit(self, random_block):
        """Four layers of a moving base state: later layers on the left (Eq. A.10)."""
        block, a = random_block(6, n=6), np.array([0.2, -0.1])
        x, product = a + 1j * STEP * np.eye(12).reshape(12, 6, 2), np.eye(2)
        for _ in range(4):
            product = dispersion_relation(block, a).matrices @ product
            x, a = block.forward(x), block.homogeneous_map(a)
        jacobian = (x.imag / STEP).reshape(6, 2, 6, 2).transpose(2, 3, 0, 1)
        waves = np.exp(2j * np.pi * np.outer(np.arange(6), np.arange(6)) / 6)
        blocks = np.einsum("ki,iajb,kj->kab", waves.conj(), jacobian, waves) / 6
        np.testing.assert_allclose(blocks, product, rtol=1e-12, atol=1e-12)


class TestGrid:
    def test_multipliers_growth_and_phases(self, random_block):
        relation = dispersion_relation(random_block(7, n=9, d=3), [0.1, 0.2, -0.3])
        np.testing.assert_allclose(relation.wavenumbers, 2 * np.pi * np.arange(9) / 9)
        assert relation.multipliers.shape == relation.phases.shape == (9, 3)
        for k, matrix in enumerate(relation.matrices):
            values = np.linalg.eigvals(matrix)
            np.testing.assert_allclose(np.sort(np.abs(values))[::-1], np.abs(relation.multipliers[k]), rtol=1e-13)
            for value in relation.multipliers[k]:
                assert abs(np.linalg.det(matrix - value * np.eye(3))) < 1e-12
            assert relation.growth[k] == pytest.approx(np.abs(values).max(), rel=1e-13)
        np.testing.assert_allclose(np.exp(1j * relation.phases) * np.abs(relation.multipliers), relation.multipliers)

    @pytest.mark.parametrize(("value", "stable"), [(-0.31, True), (-0.33, False), (0.11, True), (0.12, False)])
    def test_stable(self, value, stable):
        assert dispersion_relation(Block([Head(LOBES, value)], SATURATING)).stable is stable

    def test_results_are_read_only(self, random_block):
        relation = dispersion_relation(random_block(8))
        for array in (relation.matrices, relation.multipliers, relation.pointwise, relation.state):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0

    def test_plot_draws_the_growth(self):
        from matplotlib.figure import Figure

        relation, ax = dispersion_relation(Block([Head(LOBES, -0.4)], SATURATING)), Figure().subplots()
        assert relation.plot(ax=ax) is ax
        drawn = [line.get_xydata() for line in ax.lines]
        expected = np.column_stack([np.arange(17), relation.growth[:17]])
        assert any(line.shape == expected.shape and np.allclose(line, expected) for line in drawn)


class TestModes:
    @given(seed=st.integers(0, 10**6), n=st.integers(2, 9), d=st.integers(1, 4))
    def test_eigen_equations(self, seed, n, d):
        rng = np.random.default_rng(seed)
        block = Block([Head(Kernel.table(rng.normal(size=n)), rng.normal(size=(d, d)))], scaled(0.8, d))
        relation = dispersion_relation(block)
        for k in range(n // 2 + 1):
            for index in range(d):
                mode, matrix = relation.mode(k, index), relation.matrices[k]
                # an eigenvalue of condition κ = |w| is only defined to κ·eps
                tolerance = 1e-13 * max(1.0, np.linalg.norm(mode.left)) * max(1.0, np.linalg.norm(matrix))
                v, w, multiplier = mode.right, mode.left, mode.multiplier
                np.testing.assert_allclose(matrix @ v, multiplier * v, rtol=0, atol=tolerance)
                np.testing.assert_allclose(w.conj() @ matrix, multiplier * w.conj(), rtol=0, atol=tolerance)
                assert abs(np.vdot(w, v) - 1) < 1e-13 * max(1.0, np.linalg.norm(w))
                assert np.linalg.norm(v) == pytest.approx(1, abs=1e-14)
                assert abs(abs(multiplier) - abs(relation.multipliers[k, index])) < tolerance

    def test_leading_is_the_argmax(self, random_block):
        for seed in range(10):
            relation = dispersion_relation(random_block(seed, n=11, d=3, heads=3))
            mode = relation.leading()
            radii = [np.abs(np.linalg.eigvals(relation.matrices[k])).max() for k in range(6)]
            assert mode.k == int(np.argmax(radii))
            assert abs(mode.multiplier) == pytest.approx(max(radii), rel=1e-13)
            assert (mode.n, mode.q) == (11, 2 * np.pi * mode.k / 11)
            assert mode.growth == pytest.approx(max(radii), abs=1e-13)
            assert mode.rate == pytest.approx(np.log(max(radii)), abs=1e-13)
            assert np.exp(mode.rate + 1j * mode.phase) == pytest.approx(mode.multiplier, rel=1e-13)

    def test_ties_go_to_the_smallest_wavenumber(self):
        assert dispersion_relation(Block([Head(Kernel.uniform(12), -0.5)], SATURATING)).leading().k == 1
        relation = dispersion_relation(Block([Head(balanced_mixture(), -0.6)], SATURATING))
        assert relation.leading().k == 4
        assert {mode.k for mode in relation.modes(2)} == {4, 10}

    @staticmethod
    def tied_relations():
        """Weights on even lags only: λ(q+π) = λ(q), so k and N/2 − k have equal |Λ|, up to rounding."""
        for seed in range(40):
            logits = np.random.default_rng(seed).normal(size=18)
            logits[1::2] = -np.inf
            yield dispersion_relation(Block([Head(Kernel.table(logits), -0.9)], SATURATING))

    def test_leading_at_ties_that_rounding_breaks(self):
        assert all(relation.leading().k <= 4 for relation in self.tied_relations())

    def test_modes_agree_with_leading_at_ties(self):
        for relation in self.tied_relations():
            assert relation.modes(1)[0].k == relation.leading().k

    def test_modes_are_ordered_over_all_wavenumbers_and_branches(self, random_block):
        relation = dispersion_relation(random_block(9, n=8, d=2))
        modes = relation.modes(10)
        everything = np.sort(np.abs(np.linalg.eigvals(relation.matrices[:5])).ravel())[::-1]
        np.testing.assert_allclose([abs(mode.multiplier) for mode in modes], everything, rtol=1e-12)
        assert sorted(mode.k for mode in modes) == sorted([0, 1, 2, 3, 4] * 2)
        assert [mode.k for mode in relation.modes(3)] == [mode.k for mode in modes[:3]]
        assert len(relation.modes(99)) == 10
        assert relation.modes(1)[0].k == relation.leading().k

    def test_negative_wavenumbers_are_their_partners(self, random_block):
        relation = dispersion_relation(random_block(10))
        for k in (1, 3, 4):
            assert relation.mode(-k).k == k
            assert relation.mode(-k).multiplier == relation.mode(k).multiplier

    @pytest.mark.parametrize("seed", range(4))
    def test_a_defective_multiplier_has_no_left_vector(self, seed):
        """J similar to a Jordan block: wᴴv = 1 has no solution, and saying so is not an error."""
        rng = np.random.default_rng(seed)
        for d in (2, 3):
            jordan, basis = -np.eye(d) + np.eye(d, k=1), np.eye(d) if seed == 0 else rng.normal(size=(d, d))
            relation = dispersion_relation(Block([Head(LOBES, basis @ jordan @ np.linalg.inv(basis))]))
            mode = relation.mode(4)
            assert np.isnan(mode.left).all()
            assert np.linalg.norm(relation.matrices[4] @ mode.right - mode.multiplier * mode.right) < 1e-12


class TestField:
    @pytest.mark.parametrize("activation", SMOOTH)
    def test_predicts_the_linearised_map(self, random_block, activation):
        """u ← DF u, layer after layer, in magnitude, phase and direction of travel."""
        block, a = random_block(12, n=9, d=2, activation=activation), np.array([0.3, -0.2])
        for mode in dispersion_relation(block, a).modes(10):
            u = mode.field(0.3, phase=0.7)
            for layer in range(1, 6):
                u = derivative(block, a, u)
                scale = abs(mode.multiplier) ** layer
                np.testing.assert_allclose(u, mode.field(0.3, layer, phase=0.7), rtol=0, atol=1e-12 * max(scale, 1))

    @pytest.mark.parametrize(("lag", "direction"), [(1, +1), (-1, -1)])
    def test_direction_of_travel(self, lag, direction):
        """A head that copies token i − lag carries a wave towards +lag: crest velocity −ω/q."""
        logits = np.full(32, -np.inf)
        logits[lag % 32] = 0.0
        mode = dispersion_relation(Block([Head(Kernel.table(logits), 0.5)])).mode(2)
        assert np.sign(-mode.phase / mode.q) == direction
        crests = [int(np.argmax(mode.field(1.0, layer, phase=-8 * mode.q)[:16, 0])) for layer in (0, 9, 18)]
        assert crests[0] == 8
        assert np.sign(np.diff(crests)).tolist() == [direction] * 2
        assert crests[1] - crests[0] == round(-9 * mode.phase / mode.q)

    def test_amplitude_is_the_fourier_coefficient(self, random_block):
        mode = dispersion_relation(random_block(13, n=9)).mode(2)
        u = mode.field(0.25, phase=0.4)
        assert u.shape == (9, 2)
        assert u.dtype == np.float64
        coefficients = np.fft.fft(u, axis=0) / 9
        np.testing.assert_allclose(coefficients[2], 0.25 * np.exp(0.4j) * mode.right, rtol=0, atol=1e-14)
        np.testing.assert_allclose(np.delete(coefficients, [2, 7], axis=0), 0, atol=1e-14)


class TestMorphology:
    def test_homogeneous(self):
        mode = dispersion_relation(Block([Head(LOBES, 0.4)], SATURATING)).leading()
        assert (mode.k, mode.morphology) == (0, "homogeneous")

    def test_standing(self):
        mode = dispersion_relation(Block([Head(LOBES, -0.4)], SATURATING)).leading()
        assert (mode.k, mode.morphology, mode.phase) == (4, "standing", 0.0)
        assert not mode.right.imag.any()

    def test_standing_at_the_shortest_wave(self):
        mode = dispersion_relation(Block([Head(Kernel.alibi(8, 0.5), -0.5)])).leading()
        assert (mode.k, mode.morphology) == (4, "standing")

    def test_travelling(self):
        mode = dispersion_relation(Block([Head(SKEWED, -1.13)], SATURATING)).leading()
        assert (mode.k, mode.morphology) == (3, "travelling")

    def test_travelling_in_several_features(self):
        """A symmetric value map: real v, complex Λ."""
        value = np.array([[-1.2, 0.3], [0.3, -0.8]])
        mode = dispersion_relation(Block([Head(SKEWED, value)], scaled(0.9, 2))).leading()
        assert (mode.k, mode.morphology) == (3, "travelling")
        np.testing.assert_allclose(mode.right.imag, 0, atol=1e-14)

    def test_rotating(self):
        value = -0.8085104380 * rotation(1.3) @ np.diag([1, 0.9])
        mode = dispersion_relation(Block([Head(LOBES_5, value)], FeedForward.elementwise("tanh", 2, -0.1))).leading()
        assert (mode.k, mode.morphology) == (3, "rotating")
        assert np.linalg.norm(mode.right.imag) > 0.1

    def test_mixed(self):
        mode = dispersion_relation(Block([Head(SKEWED, -1.2 * rotation(0.4))], scaled(0.9, 2))).leading()
        assert (mode.k, mode.morphology) == (3, "mixed")

    def test_alternating(self):
        flip = FeedForward.scalar(Activation.polynomial([-1.9, 0.1, 0.3]))
        mode = dispersion_relation(Block([Head(LOBES, -0.4)], flip)).leading()
        assert (mode.k, mode.morphology) == (4, "alternating")
        assert mode.phase == pytest.approx(np.pi)
        np.testing.assert_allclose(mode.field(1.0, 1), -abs(mode.multiplier) * mode.field(1.0), atol=1e-12)

    def test_alternating_at_zero_wavenumber(self):
        mode = dispersion_relation(Block([Head(LOBES, -5.0)])).leading()
        assert (mode.k, mode.morphology) == (0, "alternating")

    def test_a_real_kernel_with_a_real_multiplier_never_rotates(self):
        """A repeated real multiplier of a diagonalisable J, split by rounding only."""
        rng = np.random.default_rng(14)
        for _ in range(100):
            basis = rng.normal(size=(3, 3))
            value = basis @ np.diag([-1, -1, 0.5]) @ np.linalg.inv(basis)
            assert dispersion_relation(Block([Head(LOBES, value)])).mode(4).morphology == "standing"


class TestOnset:
    """Critical value strengths of the paper's settings: |Λ| = 1 at the named wavenumber."""

    WEAK = FeedForward.scalar(Activation.polynomial([-0.1, 0.1, -0.3]))

    @pytest.mark.parametrize(
        ("kernel", "value", "k"),
        [
            (LOBES, -0.3183047140, 4),
            (Kernel.gaussian_lobes(32, 1.8, 1.0, 2.0), -0.5857097427, 8),
            (Kernel.table([0, 2, 0, 0, 0, 0, 0, 2]), -0.1806745079, 4),
            (Kernel.table([0, 0, 2, 0, 0, 0, 2, 0]), -0.1806745079, 2),
            (Kernel.table([0, 2, 1.4, 0, 1.4, 2]), -0.2928118655, 2),
        ],
    )
    def test_standing(self, kernel, value, k):
        mode = dispersion_relation(Block([Head(kernel, value)], self.WEAK)).leading()
        assert (mode.k, mode.morphology) == (k, "standing")
        last_digit = 0.5e-10 * 0.9 * abs(kernel.symbol[k])
        assert mode.multiplier == pytest.approx(1, abs=1.01 * last_digit)

    def test_two_wavenumbers_at_once(self):
        kernel = balanced_mixture()
        relation = dispersion_relation(Block([Head(kernel, -0.5383273)], SATURATING))
        for k in (4, 10):
            assert relation.mode(k).multiplier == pytest.approx(1, abs=0.5e-7 * 0.9 * abs(kernel.symbol[k]))

    def test_travelling(self):
        mode = dispersion_relation(Block([Head(SKEWED, -1.1279089)], SATURATING)).leading()
        assert mode.k == 3
        assert abs(mode.multiplier) == pytest.approx(1, abs=1e-8)
        assert mode.phase == pytest.approx(0.0304227, abs=5e-8)

    def test_rotating(self):
        value = -0.8085104380 * rotation(1.3) @ np.diag([1, 0.9])
        mode = dispersion_relation(Block([Head(LOBES_5, value)], FeedForward.elementwise("tanh", 2, -0.1))).leading()
        assert abs(mode.multiplier) == pytest.approx(1, abs=5e-11)
        assert abs(mode.phase) == pytest.approx(0.2502447681, abs=1e-10)


@st.composite
def decreasing_kernels(draw):
    """Kernels of 16 tokens whose symbol is real and strictly decreasing on 0 ≤ q ≤ π."""
    if draw(st.booleans()):
        kernel = Kernel.alibi(16, draw(st.floats(0.3, 3)))
    else:
        lags = np.abs(Kernel.uniform(16).lags)
        weights = np.zeros(16)
        for _ in range(draw(st.integers(1, 3))):
            weights += draw(st.floats(0.1, 1)) * np.exp(-draw(st.floats(0.1, 1)) * lags**2)
            weights += draw(st.floats(0.0, 1)) * draw(st.floats(0.1, 0.7)) ** lags
        kernel = Kernel.table(np.log(weights))
    assume(kernel.symmetric and np.diff(kernel.symbol[:9].real).max() < -1e-6)
    return kernel


class TestPropositions:
    @given(seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(1, 3))
    def test_without_positions(self, seed, n, d):
        """Prop. 4.2: J(0) = C(I+V), J(q≠0) = C; ρ decides, and all q ≠ 0 are degenerate."""
        rng = np.random.default_rng(seed)
        value, a = rng.normal(size=(d, d)), rng.normal(size=d)
        feedforward = FeedForward(rng.normal(size=(3, d)), rng.normal(size=(d, 3)), "tanh", rng.normal(size=3))
        relation = dispersion_relation(Block([Head(Kernel.uniform(n), value)], feedforward), a)
        attended = a + value @ a
        c = np.eye(d) + feedforward.jacobian(attended)
        np.testing.assert_allclose(relation.matrices[0], c @ (np.eye(d) + value), rtol=0, atol=1e-12)
        np.testing.assert_allclose(relation.matrices[1:], np.broadcast_to(c, (n - 1, d, d)), rtol=0, atol=1e-12)
        homogeneous = np.abs(np.linalg.eigvals(c @ (np.eye(d) + value))).max()
        heterogeneous = np.abs(np.linalg.eigvals(c)).max()
        assume(abs(homogeneous - heterogeneous) > 1e-6)
        assert relation.leading().k == (0 if homogeneous > heterogeneous else 1)

    @given(
        kernel=decreasing_kernels(),
        c=st.floats(0.2, 2),
        d=st.integers(1, 2),
        regime=st.sampled_from(["positive", "between", "below"]),
        factor=st.floats(0.05, 0.95),
    )
    def test_decreasing_symbols_select_an_end(self, kernel, c, d, regime, factor):
        """Prop. 4.4, Eq. 8: k = 0, or N/2, or 0 with a sign flip; nothing in between."""
        threshold = -2 / (1 + kernel.symbol[8].real)
        eta = {"positive": 3 * factor, "between": threshold * factor, "below": threshold * (1 + factor)}[regime]
        mode = dispersion_relation(Block([Head(kernel, eta * np.eye(d))], scaled(c, d))).leading()
        assert mode.k == (8 if regime == "between" else 0)
        expected = c * (1 + eta * (kernel.symbol[8].real if regime == "between" else 1))
        assert mode.multiplier == pytest.approx(expected, rel=1e-12)
        assert (mode.multiplier.real < 0) == (regime == "below")
        assert mode.morphology == {"positive": "homogeneous", "between": "standing", "below": "alternating"}[regime]

    @given(kernel=decreasing_kernels(), seed=st.integers(0, 10**6))
    def test_no_value_map_selects_an_interior_wave(self, kernel, seed):
        """C = cI and any V: ρ = c max_ν |1 + νλ(q)|, never largest strictly between 0 and π."""
        value = np.random.default_rng(seed).normal(size=(2, 2))
        assume(np.linalg.cond(np.linalg.eig(value)[1]) < 1e3)
        relation = dispersion_relation(Block([Head(kernel, value)], scaled(0.6, 2)))
        radii = 0.6 * np.abs(1 + np.linalg.eigvals(value) * kernel.symbol[:, None]).max(axis=1)
        np.testing.assert_allclose(relation.growth, radii, rtol=1e-10)
        assert relation.leading().k in (0, 8)


@pytest.mark.parametrize(
    ("ask", "argument"),
    [
        (lambda r: r.mode(8), "k"),
        (lambda r: r.mode(-5), "k"),
        (lambda r: r.mode(1.0), "k"),
        (lambda r: r.mode(1, 2), "index"),
        (lambda r: r.mode(1, -1), "index"),
        (lambda r: r.modes(0), "count"),
        (lambda r: r.leading().field(np.nan), "amplitude"),
        (lambda r: r.leading().field(1.0, layer=np.nan), "layer"),
        (lambda r: r.leading().field(1.0, phase=np.inf), "phase"),
        (lambda r: dispersion_relation(r.block, [1.0]), "state"),
        (lambda r: dispersion_relation(r.block, 1.0), "state"),
        (lambda r: dispersion_relation(r.block, [np.nan, 0.0]), "state"),
        (lambda r: dispersion_relation("block"), "block"),
    ],
)
def test_refusals_name_the_argument(random_block, ask, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+"):
        ask(dispersion_relation(random_block(15)))


def test_relu_is_refused_at_its_kink_only():
    block = Block([Head(Kernel.uniform(4), -0.5)], FeedForward.scalar("relu"))
    assert dispersion_relation(block, 1.0).pointwise == [[2.0]]
    with pytest.raises(ArgumentError, match=r"^activation: got 'relu'"):
        dispersion_relation(block).leading()


@pytest.mark.parametrize("seed", range(12))
def test_the_leading_wavenumber_is_that_of_the_leading_mode(random_block, seed):
    relation = dispersion_relation(random_block(seed, n=7 + seed % 4, d=1 + seed % 3))
    assert relation.leading_wavenumber == relation.leading().k


def test_a_state_whose_logits_leave_float64_is_refused():
    rotary = Rotary(np.eye(2), np.eye(2), [np.pi / 4])
    block = Block([Head(Kernel.uniform(8), 0.3 * np.eye(2), rotary=rotary)])
    with pytest.raises(ArgumentError, match="^state: got logits beyond float64"):
        dispersion_relation(block, [1e308, 1e308])
