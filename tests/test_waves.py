"""Single waves: printed closed forms, the full map's Taylor coefficients, exact waves, refusals."""

import closed_forms as cf
import numpy as np
import pytest
from exact import component, cosine, gain_at, iterate, jacobian, multipliers, newton, travelling
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from multilinear import FullMap, mixed_derivative

from amplitude import standing_wave, travelling_wave
from dispersion import ArgumentError, Block, ExclusionError, FeedForward, Head, Kernel, fixed_points

LOBES = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0)
SKEWED = Kernel.skewed_lobe(32, separation=4, width_below=0.7, width_above=2.0, strength=1.0)
MODES = st.sampled_from([(7, 1), (7, 3), (10, 1), (10, 4), (11, 2), (11, 5), (12, 2), (13, 4)])
CASES = {
    "seed": st.integers(0, 10**6),
    "nk": MODES,
    "heads": st.integers(1, 3),
    "symmetric": st.booleans(),
    "activation": st.sampled_from(["tanh", "gelu", "silu", "erf", "sine"]),
    "at": st.sampled_from(["gain", "onset", "paper"]),
}


def wave_of(block, k, at="gain", state=None):
    symmetric = all(head.kernel.symmetric for head in block.heads)
    return (standing_wave if symmetric else travelling_wave)(block, k, at=at, state=state)


def draw(seed, nk, heads, symmetric, activation, at, a):
    """A block whose slaved modes decay, its scalars where `at` wants them, and the multiplier of the resolvents."""
    n, k = nk
    block = cf.random_block(seed, n, heads, symmetric, activation, a)
    s = cf.Scalars.of(block, a)
    assume(max(abs(s.J(0)), abs(s.J(2 * k))) < 0.98)
    here = s.at_onset(k) if at == "onset" else s
    assume(here is not None and abs(here.J(k)) > 0.1)
    multiplier = here.J(k) / abs(here.J(k)) if at == "paper" else here.J(k)
    assume(min(abs(abs(multiplier) ** 2 - here.J(0)), abs(multiplier**2 - here.J(2 * k))) > 0.1)
    assume(np.abs(here.eta).max() < 4)
    return block, here, multiplier


class TestClosedForms:
    @given(**CASES)
    def test_printed_form(self, seed, nk, heads, symmetric, activation, at):
        block, s, multiplier = draw(seed, nk, heads, symmetric, activation, at, 0.0)
        wave = wave_of(block, nk[1], at)
        c = cf.single_mode(s, nk[1], multiplier)
        np.testing.assert_allclose(wave.coefficient, c, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(wave.beta, -np.conj(multiplier) / abs(multiplier) * c, rtol=1e-12, atol=1e-12)
        assert isinstance(wave.beta, float) == symmetric
        np.testing.assert_allclose(wave.multiplier, cf.Scalars.of(block).J(nk[1]), rtol=1e-13)

    @given(**CASES, a=st.floats(-1, 1))
    def test_nonzero_base_state(self, seed, nk, heads, symmetric, activation, at, a):
        block, s, multiplier = draw(seed, nk, heads, symmetric, activation, at, a)
        wave = wave_of(block, nk[1], at, a)
        c = cf.single_mode_at_state(s, nk[1], multiplier)
        np.testing.assert_allclose(wave.coefficient, c, rtol=1e-12, atol=1e-11)

    @given(seed=st.integers(0, 10**6), nk=MODES, symmetric=st.booleans())
    def test_the_two_printed_forms_agree_at_the_origin(self, seed, nk, symmetric):
        s = cf.Scalars.of(cf.random_block(seed, nk[0], 2, symmetric))
        c = cf.single_mode(s, nk[1], 1.1j)
        np.testing.assert_allclose(cf.single_mode_at_state(s, nk[1], 1.1j), c, rtol=1e-12, atol=1e-12)

    def test_onset_needs_a_gain_that_reaches_it(self):
        block = cf.designed(7, {1: 1.3 + 0.2j, 0: 0.3, 2: 0.3}, alpha=(1.2, 0.1, -0.3))
        assert cf.Scalars.of(block).at_onset(1) is None
        assert travelling_wave(block, 1).mu > 0.3
        with pytest.raises(ExclusionError, match="no OV gain"):
            travelling_wave(block, 1, at="onset")


class TestFullMap:
    @pytest.mark.parametrize(("radius", "phases"), [(0.02, 10), (0.06, 14)])
    def test_cauchy_integrals_do_not_depend_on_their_circle(self, radius, phases):
        block = cf.random_block(5, 11, 2, False, "tanh", 0.4)
        rng = np.random.default_rng(0)
        directions = rng.uniform(-0.7, 0.7, (3, 11)) + 1j * rng.uniform(-0.7, 0.7, (3, 11))
        for count in (1, 2, 3):
            here = mixed_derivative(block, 0.4, directions[:count])
            there = mixed_derivative(block, 0.4, directions[:count], radius, phases)
            np.testing.assert_allclose(there, here, rtol=0, atol=2e-11 if count == 3 else 1e-12)

    def test_linear_map_is_the_complex_step_jacobian(self):
        block = cf.random_block(8, 9, 2, False, "silu", -0.3)
        np.testing.assert_allclose(FullMap(block, -0.3).A, jacobian(block, np.full(9, -0.3)), rtol=0, atol=1e-13)

    @settings(max_examples=40)
    @given(**CASES, a=st.one_of(st.just(0.0), st.floats(-0.8, 0.8)))
    def test_wave(self, seed, nk, heads, symmetric, activation, at, a):
        block, s, multiplier = draw(seed, nk, heads, symmetric, activation, at, a)
        wave = wave_of(block, nk[1], at, a)
        full = FullMap(cf.replanted(s, block) if at == "onset" else block, a)
        mode = full.mode(nk[1])
        np.testing.assert_allclose(mode[0], s.J(nk[1]), rtol=1e-11)
        np.testing.assert_allclose(wave.coefficient, full.cubic(mode, multiplier), rtol=1e-8, atol=1e-9)

    def test_alternating(self):
        negative = {k: -0.9 + 0.1 * (k != 3) for k in range(6)}
        block = cf.designed(11, negative, alpha=(-0.8, 0.3, 0.2))
        wave, full = standing_wave(block, 3), FullMap(block)
        assert wave.omega == pytest.approx(np.pi, abs=1e-12)
        np.testing.assert_allclose(wave.coefficient, full.cubic(full.mode(3)), rtol=1e-8)
        np.testing.assert_allclose(wave.beta, wave.coefficient.real, rtol=1e-14)

    def test_at_a_fixed_point_that_was_searched_for(self):
        heads = [Head(Kernel.table(np.random.default_rng(4).normal(size=11)), -0.6, 1.2)]
        feedforward = FeedForward([[1.1]], [[-0.7]], "gelu", [0.3], [0.35])
        block = Block(heads, feedforward)
        (a,) = next(point.state for point in fixed_points(block) if point.stable)
        assert abs(a) > 0.1
        full = FullMap(block, a)
        wave = travelling_wave(block, 2, state=a)
        np.testing.assert_allclose(wave.coefficient, full.cubic(full.mode(2)), rtol=1e-8)
        np.testing.assert_allclose(
            wave.coefficient, cf.single_mode_at_state(cf.Scalars.of(block, a), 2, wave.multiplier)
        )

    def test_slaved_modes(self):
        block = cf.random_block(16, 11, 2, False, "gelu", 0.4)
        wave = travelling_wave(block, 3, state=0.4)
        full = FullMap(block, 0.4)
        L, q, _ = full.mode(3)
        q = q / q[0]
        mean = full.resolve(abs(L) ** 2, full.B(q, q.conj()))
        harmonic = full.resolve(L**2, full.B(q, q)) / 2
        np.testing.assert_allclose(wave.mean_ratio, mean.mean().real, rtol=1e-8)
        np.testing.assert_allclose(wave.harmonic_ratio, harmonic[0], rtol=1e-8)


def gradient(potential, R, h=0.05):
    """dV/dR by the five-point rule, exact for quartics."""
    return (8 * (potential(R + h) - potential(R - h)) - potential(R + 2 * h) + potential(R - 2 * h)) / (12 * h)


def halves(errors):
    """Whether each error is half of the one before, within 20 %: a relative error proportional to μ."""
    errors = np.abs(errors)
    return np.all(np.abs(errors[1:] / errors[:-1] - 0.5) < 0.1)


class TestStandingReference:
    eta0 = cf.eta_for(1, 0.9, LOBES.symbol[4])

    def block(self, mu):
        return cf.tanh_block(LOBES, cf.eta_for(1 + mu, 0.9, LOBES.symbol[4]))

    def test_coefficients(self):
        assert np.argmin(LOBES.symbol[:17].real) == 4
        assert f"{LOBES.symbol[4].real:.7f}" == "-0.3490715"
        assert f"{self.eta0:.7f}" == "-0.3183047"
        for mu in (0.002, 0.05):
            assert f"{standing_wave(self.block(mu), 4, at='onset').beta:.7f}" == "0.6543843"

    @pytest.mark.parametrize(
        ("mu", "onset", "gain", "exact"),
        [(0.002, "0.05528", "0.05466", "0.05447"), (0.01, "0.12362", "0.11709", "0.11537")],
    )
    def test_amplitude(self, mu, onset, gain, exact):
        block = self.block(mu)
        wave = standing_wave(block, 4, at="onset")
        assert f"{wave.amplitude:.5f}" == onset
        assert f"{standing_wave(block, 4).amplitude:.5f}" == gain
        x, derivative = newton(block, wave.field())
        assert f"{abs(component(x, 4)):.5f}" == exact
        leading = multipliers(derivative)[:2]
        assert abs(leading[0] - 1) < 2e-6  # translation
        assert leading[1].real == pytest.approx(1 - 2 * mu, abs=7 * mu**2)
        settled = iterate(block, wave.field(), int(8 / mu))
        assert f"{abs(component(settled, 4)):.5f}" == exact

    @pytest.mark.parametrize("at", ["onset", "gain", "paper"])
    def test_error_is_linear_in_mu(self, at):
        errors = []
        for mu in (0.004, 0.002, 0.001):
            wave = standing_wave(self.block(mu), 4, at=at)
            assert wave.mu == pytest.approx(mu, rel=1e-10)
            x, _ = newton(self.block(mu), wave.field())
            errors.append(wave.amplitude / abs(component(x, 4)) - 1)
        assert halves(np.array(errors))
        assert abs(errors[0] / 0.004) < 9


class TestTravellingReference:
    def block(self, mu):
        return cf.tanh_block(SKEWED, gain_at(lambda eta: 0.9 * (1 + eta * SKEWED.symbol[3]), mu, -2, -0.5))

    def test_coefficients(self):
        block = self.block(0)
        symbol = SKEWED.symbol[3]
        assert f"{block.heads[0].value[0, 0]:.7f}" == "-1.1279089"
        assert (f"{symbol.real:.7f}", f"{symbol.imag:.7f}") == ("-0.0980549", "-0.0299650")
        wave = travelling_wave(self.block(1e-3), 3, at="onset")
        assert (f"{wave.beta.real:.7f}", f"{wave.beta.imag:.7f}") == ("2.9119445", "-0.0392335")
        assert f"{travelling_wave(block, 3).omega:.7f}" == "0.0304227"

    def test_amplitude_and_advance(self):
        block = self.block(4.4515e-4)
        wave = travelling_wave(block, 3, at="onset")
        assert (f"{wave.amplitude:.6f}", f"{wave.phase_advance:.8f}") == ("0.012364", "0.03055002")
        x, advance = travelling(block, wave.field(), 3, wave.phase_advance)
        assert (f"{abs(component(x, 3)):.6f}", f"{advance:.8f}") == ("0.012335", "0.03055007")

    def test_iteration_reaches_that_wave(self):
        block = self.block(2e-3)
        wave = travelling_wave(block, 3, at="onset")
        x, advance = travelling(block, wave.field(), 3, wave.phase_advance)
        settled = iterate(block, wave.field(), 5000)
        turn = np.angle(component(block.forward(settled), 3) / component(settled, 3))
        assert abs(component(settled, 3)) == pytest.approx(abs(component(x, 3)), rel=1e-7)
        assert turn == pytest.approx(advance, rel=1e-8)

    def test_errors_are_linear_in_mu(self):
        errors, shifts = [], []
        for mu in (2e-3, 1e-3, 5e-4):
            block = self.block(mu)
            wave = travelling_wave(block, 3, at="onset")
            x, advance = travelling(block, wave.field(), 3, wave.phase_advance)
            errors.append(wave.amplitude / abs(component(x, 3)) - 1)
            shifts.append((wave.phase_advance - wave.omega) / (advance - wave.omega) - 1)
        assert halves(np.array(errors))
        assert halves(np.array(shifts))


class TestAlternatingReference:
    def block(self, mu):
        return cf.polynomial(LOBES, cf.eta_for(-1 - mu, -0.9, LOBES.symbol[4]), 1.5, (-0.9, 0.1, 0.3))

    def test_values(self):
        assert f"{self.block(0).heads[0].value[0, 0]:.10f}" == "-0.3183047140"
        block = self.block(1e-3)
        wave = standing_wave(block, 4, at="onset")
        assert f"{wave.coefficient.real:.10f}" == "2.0632290645"
        assert f"{wave.amplitude:.8f}" == "0.02201538"
        x, derivative = newton(block, wave.field(), flip=True)
        assert f"{abs(component(x, 4)):.8f}" == "0.02198165"
        np.testing.assert_allclose(component(block.forward(x), 4), -component(x, 4), rtol=1e-10)
        assert multipliers(derivative)[1].real == pytest.approx(1 - 4e-3, abs=3e-5)

    def test_error_is_linear_in_mu(self):
        errors = []
        for mu in (2e-3, 1e-3, 5e-4):
            wave = standing_wave(self.block(mu), 4, at="onset")
            x, _ = newton(self.block(mu), wave.field(), flip=True)
            errors.append(wave.amplitude / abs(component(x, 4)) - 1)
        assert halves(np.array(errors))


class TestPredictions:
    @pytest.mark.parametrize("a", [0.0, 0.3])
    def test_field_of_a_standing_wave_is_exact_to_third_order(self, a):
        errors, cruder = [], []
        for mu in (1e-4, 5e-5, 2.5e-5):
            block = cf.polynomial(LOBES, cf.eta_for(1 + mu, 0.9, LOBES.symbol[4]), 1.5, (0.9, 0.3, -0.6), a)
            wave = standing_wave(block, 4, state=a)
            x, _ = newton(block, wave.field())
            errors.append(np.abs(wave.field() - x).max())
            cruder.append(np.abs(a + cosine(32, 4, wave.amplitude) - x).max())
        slope = np.log2(np.divide(errors[:-1], errors[1:]))
        np.testing.assert_allclose(slope, 1.5, atol=0.05)  # R³ ~ μ^{3/2}
        np.testing.assert_allclose(np.log2(np.divide(cruder[:-1], cruder[1:])), 1.0, atol=0.05)

    @pytest.mark.parametrize("mirror", [False, True])
    def test_field_of_a_travelling_wave_moves_as_the_map_moves_it(self, mirror):
        kernel = Kernel.table(np.roll(SKEWED.logits[::-1], 1)) if mirror else SKEWED
        residuals = []
        for mu in (2e-3, 1e-3, 5e-4):
            eta = gain_at(lambda eta: 0.9 * (1 + eta * kernel.symbol[3]), mu, -2, -0.5)
            block = cf.polynomial(kernel, eta, 1.5, (0.9, 0.3, -0.6))
            wave = travelling_wave(block, 3)
            assert np.sign(wave.phase_advance) == (-1 if mirror else 1)
            x, advance = travelling(block, wave.field(), 3, wave.phase_advance)
            assert np.sign(advance) == np.sign(wave.phase_advance)
            assert abs(advance - wave.phase_advance) < 0.02 * abs(advance - wave.omega)
            assert advance - wave.omega == pytest.approx(wave.phase_advance - wave.omega, rel=0.05)
            residuals.append(np.abs(wave.field() - x).max())
            later = wave.field(layer=40)
            turned = component(later, 3) / component(wave.field(), 3)
            np.testing.assert_allclose(turned, np.exp(40j * wave.phase_advance), rtol=1e-12)
            moved = iterate(block, x, 40)
            np.testing.assert_allclose(component(moved, 3) / component(x, 3), np.exp(40j * advance), rtol=1e-9)
        np.testing.assert_allclose(np.log2(np.divide(residuals[:-1], residuals[1:])), 1.5, atol=0.15)

    def test_pattern_moves_towards_smaller_tokens_for_positive_advance(self):
        """x_j ~ cos(qj + Ωl): a crest sits at j = −Ωl/q."""
        eta = gain_at(lambda eta: 0.9 * (1 + eta * SKEWED.symbol[3]), 2e-3, -2, -0.5)
        block = cf.tanh_block(SKEWED, eta)
        wave = travelling_wave(block, 3)
        fine = np.arange(0, 32, 0.01)

        def crest(x, near):
            B = component(x, 3)
            values = np.real(B * np.exp(2j * np.pi * 3 * fine / 32))
            crests = fine[np.isclose(values, values.max(), rtol=1e-4)]
            return crests[np.argmin(np.abs(crests - near))]

        start = crest(wave.field(), 32 / 3)
        end = crest(iterate(block, wave.field(), 50), start)
        assert end - start == pytest.approx(-50 * wave.phase_advance * 32 / (6 * np.pi), abs=0.3)

    def test_subcritical_waves_have_no_cubic_amplitude(self):
        block = cf.polynomial(LOBES, cf.eta_for(1.01, 0.9, LOBES.symbol[4]), 1.5, (0.9, 0.0, 3.0))
        wave = standing_wave(block, 4)
        assert not wave.supercritical
        assert not wave.stable
        assert np.isnan(wave.amplitude)
        seed = cosine(32, 4, 1e-3)
        grown = iterate(block, seed, 250)
        assert abs(component(grown, 4)) > 5 * abs(component(seed, 4))

    def test_below_onset(self):
        wave = standing_wave(cf.tanh_block(LOBES, -0.3), 4)
        assert wave.mu < 0
        assert wave.amplitude == 0
        assert not wave.stable

    def test_potential_is_the_amplitude_equation(self):
        wave = standing_wave(cf.tanh_block(LOBES, -0.33), 4)
        R = np.linspace(-0.3, 0.3, 13)
        force = -gradient(wave.potential, R)
        np.testing.assert_allclose(force, wave.mu * R - wave.beta * R**3, rtol=0, atol=1e-14)

    def test_conjugate_wavenumbers_are_one_wave(self):
        block = cf.random_block(16, 11, 2, False, "gelu")
        first = travelling_wave(block, 3)
        assert travelling_wave(block, -3) == first == travelling_wave(block, 8)


class TestLattice:
    @pytest.mark.parametrize(("n", "k"), [(6, 2), (9, 3), (12, 4), (12, 3), (8, 2)])
    def test_refused_at_real_multiplier(self, n, k):
        m = n // np.gcd(n, k)
        kernel = cf.even_logits(n, {1: 2.0, 2: 1.4})
        block = cf.polynomial(kernel, cf.eta_for(1.001, 0.9, kernel.symbol[k]), 1.5, (0.9, 0.1, -0.3))
        with pytest.raises(ExclusionError, match=f"{m}q ≡ 0"):
            standing_wave(block, k)

    @pytest.mark.parametrize(("n", "k"), [(6, 2), (9, 3), (12, 3), (8, 2)])
    @pytest.mark.parametrize("size", [0.98, 1.002])
    def test_accepted_at_complex_multiplier(self, n, k, size):
        block = cf.designed(n, {k: size * np.exp(0.7j), 0: 0.3} | ({2 * k: 0.2} if 3 * k % n else {}))
        wave, full = travelling_wave(block, k), FullMap(block)
        np.testing.assert_allclose(wave.multiplier, size * np.exp(0.7j), rtol=1e-12)
        np.testing.assert_allclose(wave.coefficient, full.cubic(full.mode(k, near=wave.multiplier)), rtol=1e-8)

    @pytest.mark.parametrize("m", [3, 4])
    def test_refused_at_a_complex_root_of_unity(self, m):
        extra = {4: 0.2} if m == 4 else {}
        with pytest.raises(ExclusionError, match=f"{m}q ≡ 0"):
            travelling_wave(cf.designed(2 * m, {2: 1.001 * np.exp(2j * np.pi / m), 0: 0.3} | extra), 2)

    @pytest.mark.parametrize("size", [0.98, 1.001])
    def test_three_is_accepted_and_four_refused_at_minus_one(self, size):
        kernel = cf.even_logits(6, {1: 2.0, 2: 1.4})
        block = cf.polynomial(kernel, cf.eta_for(-size, -0.9, kernel.symbol[2]), 1.5, (-0.9, 0.1, 0.3))
        wave, full = standing_wave(block, 2), FullMap(block)
        np.testing.assert_allclose(wave.coefficient, full.cubic(full.mode(2)), rtol=1e-8)
        kernel = cf.even_logits(8, {2: 2.0})
        block = cf.polynomial(kernel, cf.eta_for(-size, -0.9, kernel.symbol[2]), 1.5, (-0.9, 0.1, 0.3))
        with pytest.raises(ExclusionError, match="4q ≡ 0"):
            standing_wave(block, 2)

    def test_alternating_three_token_wave_has_the_predicted_amplitude(self):
        kernel = cf.even_logits(6, {1: 2.0, 2: 1.4})
        block = cf.polynomial(kernel, cf.eta_for(-1.001, -0.9, kernel.symbol[2]), 1.5, (-0.9, 0.1, 0.3))
        c = cf.single_mode(cf.Scalars.of(block), 2, -1.001)
        x, _ = newton(block, cosine(6, 2, np.sqrt(1e-3 / c.real)), flip=True)
        assert abs(component(x, 2)) == pytest.approx(np.sqrt(1e-3 / c.real), rel=0.01)
        assert standing_wave(block, 2).amplitude == pytest.approx(abs(component(x, 2)), rel=0.01)


class TestRefusals:
    standing = cf.tanh_block(LOBES, -0.32)
    travelling = cf.tanh_block(SKEWED, -1.13)

    @pytest.mark.parametrize(("function", "kernel"), [(standing_wave, LOBES), (travelling_wave, SKEWED)])
    def test_many_features(self, function, kernel):
        block = Block([Head(kernel, -0.3 * np.eye(2), np.eye(2))])
        with pytest.raises(ExclusionError, match="d = 2"):
            function(block, 4)

    def test_kernels_of_the_other_kind(self):
        with pytest.raises(ExclusionError, match="travelling_wave"):
            standing_wave(self.travelling, 3)
        with pytest.raises(ExclusionError, match="standing_wave"):
            travelling_wave(self.standing, 4)

    @pytest.mark.parametrize(("k", "name"), [(0, "homogeneous_state"), (16, "period_two"), (8, "period_four")])
    def test_special_sectors(self, k, name):
        kernel = Kernel.gaussian_lobes(32, separation=1.8, width=1.0, strength=2.0)
        with pytest.raises(ExclusionError, match=name):
            standing_wave(
                cf.tanh_block(kernel, cf.eta_for(1.001, 0.9, kernel.symbol[8])) if k == 8 else self.standing, k
            )

    def test_unstable_slaved_modes(self):
        with pytest.raises(ExclusionError, match=r"\|J\| = .* at the slaved wavenumber 0"):
            standing_wave(cf.polynomial(LOBES, 0.5, 1.5, (0.9, 0.1, -0.3)), 4)
        kernel = Kernel.von_mises(32, 4, -2.0)
        block = cf.polynomial(kernel, cf.eta_for(1.1, 0.9, kernel.symbol[4]), 1.5, (0.9, 0.1, -0.3))
        with pytest.raises(ExclusionError, match="slaved wavenumber 4"):
            standing_wave(block, 2)

    @pytest.mark.parametrize("at", ["Onset", "", None, 1])
    def test_place_of_evaluation(self, at):
        with pytest.raises(ArgumentError, match="at: "):
            standing_wave(self.standing, 4, at=at)

    @pytest.mark.parametrize("k", [33, -17, 4.0, "4", True, None])
    def test_wavenumbers_off_the_grid(self, k):
        with pytest.raises(ArgumentError, match="k: "):
            standing_wave(self.standing, k)

    def test_state_that_moves(self):
        with pytest.raises(ArgumentError, match="a fixed point of g"):
            standing_wave(self.standing, 4, state=0.3)

    def test_not_a_block(self):
        with pytest.raises(ArgumentError, match="a Block"):
            standing_wave(LOBES, 4)

    def test_relu(self):
        block = Block([Head(LOBES, -0.3, 1.5)], FeedForward.scalar("relu", -0.1))
        with pytest.raises(ArgumentError, match="smooth"):
            standing_wave(block, 4)
