"""The real sectors q = π, π/2, 2π/3, 0 and the O(2) sector: closed forms, full map, exact states, refusals."""

import closed_forms as cf
import numpy as np
import pytest
from exact import component, cosine, iterate, multipliers, newton
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from multilinear import FullMap
from scipy.optimize import brentq, minimize_scalar, root

from amplitude import homogeneous_state, period_four, period_three, period_two
from dispersion import (
    Activation,
    ArgumentError,
    Block,
    ExclusionError,
    FeedForward,
    Head,
    Kernel,
    dispersion_relation,
    fixed_points,
)

ALPHA, FLIPPED = (0.9, 0.1, -0.3), (-0.9, 0.1, 0.3)
CASES = {
    "seed": st.integers(0, 10**6),
    "copies": st.integers(1, 3),
    "heads": st.integers(1, 3),
    "activation": st.sampled_from(["tanh", "gelu", "silu", "erf", "sine"]),
    "at": st.sampled_from(["gain", "onset", "paper"]),
}


def draw(period, seed, copies, heads, symmetric, activation, at, a):
    """A random block on period·copies tokens, its scalars where `at` wants them, and the resolvent's multiplier."""
    n = period * copies * (2 if period == 1 else 1)
    k = n // period
    signs = (1,) if period == 3 else (-1, 1)
    block = cf.random_block(seed, n, heads, symmetric, activation, a, 0.7, signs)
    s = cf.Scalars.of(block, a)
    slaved = {1: [], 2: [0], 3: [0], 4: [0, 2 * k]}[period]
    assume(all(abs(s.J(j)) < 0.98 for j in slaved))
    here = s.at_onset(k) if at == "onset" else s
    assume(here is not None and abs(here.J(k)) > 0.1 and np.abs(here.eta).max() < 4)
    assume(s.J(k).real * here.J(k).real > 0 and (period != 3 or here.J(k).real > 0))
    multiplier = here.J(k).real / (abs(here.J(k)) if at == "paper" else 1)
    assume(all(abs(multiplier**2 - here.J(j)) > 0.1 for j in slaved))
    return block, here, k, multiplier


def full_map(block, s, k, at, a):
    full = FullMap(cf.replanted(s, block) if at == "onset" else block, a)
    return full, full.mode(k)


class TestPeriodTwo:
    @given(**CASES, symmetric=st.booleans())
    def test_printed_form(self, seed, copies, heads, activation, at, symmetric):
        block, s, k, multiplier = draw(2, seed, copies, heads, symmetric, activation, at, 0.0)
        sector = period_two(block, at)
        np.testing.assert_allclose(
            [sector.gamma, sector.mean_ratio], cf.period_two(s, k, multiplier), rtol=1e-12, atol=1e-12
        )

    @settings(max_examples=20)
    @given(**(CASES | {"at": st.sampled_from(["gain", "onset"])}), symmetric=st.booleans(), a=st.floats(-0.8, 0.8))
    def test_full_map(self, seed, copies, heads, activation, at, symmetric, a):
        block, s, k, _ = draw(2, seed, copies, heads, symmetric, activation, at, a)
        full, mode = full_map(block, s, k, at, a)
        sector = period_two(block, at, a)
        np.testing.assert_allclose(sector.gamma, full.cube(mode), rtol=1e-8, atol=1e-9)
        mean = full.resolve(mode[0] ** 2, full.B(mode[1], mode[1])) / 2 / mode[1][0] ** 2
        np.testing.assert_allclose(sector.mean_ratio, mean[0], rtol=1e-8, atol=1e-9)

    KERNEL = cf.even_logits(8, {1: 2.0})

    def block(self, mu, alpha=ALPHA):
        sign = np.sign(alpha[0])
        return cf.polynomial(self.KERNEL, cf.eta_for(sign * (1 + mu), alpha[0], self.KERNEL.symbol[4]), 1.5, alpha)

    def test_reference(self):
        assert f"{self.KERNEL.symbol[4].real:.10f}" == "-0.6149794590"
        assert f"{self.block(0).heads[0].value[0, 0]:.10f}" == "-0.1806745079"
        sector = period_two(self.block(1e-3), at="onset")
        assert f"{sector.gamma:.10f}" == "-0.4775904835"
        assert f"{sector.amplitude:.8f}" == "0.04575854"
        assert sector.stable
        x, derivative = newton(self.block(1e-3), cosine(8, 4, sector.amplitude) + sector.mean)
        assert f"{component(x, 4).real:.8f}" == "0.04555809"
        assert f"{x.mean():.8f}" == "0.00096326"
        assert f"{multipliers(derivative)[0].real:.8f}" == "0.99799851"
        assert sector.pattern_multiplier == pytest.approx(0.998, abs=1e-12)

    def test_reference_of_the_flip(self):
        sector = period_two(self.block(1e-3, FLIPPED), at="onset")
        assert f"{sector.gamma:.10f}" == "0.5761241139"
        assert f"{sector.amplitude:.8f}" == "0.04166218"
        assert sector.stable
        x, derivative = newton(self.block(1e-3, FLIPPED), cosine(8, 4, sector.amplitude) + sector.mean, flip=True)
        assert f"{component(x, 4).real:.8f}" == "0.04156504"
        assert f"{multipliers(derivative)[0].real:.8f}" == "0.99600444"
        assert sector.pattern_multiplier == pytest.approx(0.996, abs=1e-12)

    @pytest.mark.parametrize("alpha", [ALPHA, FLIPPED])
    def test_errors_are_linear_in_mu(self, alpha):
        errors = []
        for mu in (2e-3, 1e-3, 5e-4):
            sector = period_two(self.block(mu, alpha), at="onset")
            x, _ = newton(self.block(mu, alpha), cosine(8, 4, sector.amplitude), flip=alpha is FLIPPED)
            errors.append([sector.amplitude / component(x, 4).real - 1, sector.mean / x.mean() - 1])
        if alpha is FLIPPED:  # the mean of the other phase of the flip differs at the order of the error
            errors = [error[:1] for error in errors]
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.5, atol=0.05)

    def test_nonzero_base_state(self):
        eta = cf.eta_for(1, 0.9, self.KERNEL.symbol[4])
        block = cf.polynomial(self.KERNEL, eta, 1.3, (0.9, 0.12, -0.3), 0.4)
        assert f"{period_two(block, state=0.4).gamma:.10f}" == "-0.4958416642"

    def test_no_amplitude_on_the_wrong_side(self):
        assert np.isnan(period_two(self.block(-1e-3)).amplitude)
        subcritical = period_two(self.block(1e-3, (0.9, 0.1, 1.0)))
        assert np.isnan(subcritical.amplitude)
        assert not subcritical.stable


class TestPeriodFour:
    @given(**CASES)
    def test_printed_form(self, seed, copies, heads, activation, at):
        block, s, k, multiplier = draw(4, seed, copies, heads, True, activation, at, 0.0)
        sector = period_four(block, at)
        expected = np.sign(multiplier) * np.real(cf.period_four(s, k, multiplier))
        np.testing.assert_allclose([sector.c1, sector.c3], expected, rtol=1e-12, atol=1e-12)

    @settings(max_examples=20)
    @given(**(CASES | {"at": st.sampled_from(["gain", "onset"])}), a=st.floats(-0.8, 0.8))
    def test_full_map(self, seed, copies, heads, activation, at, a):
        block, s, k, multiplier = draw(4, seed, copies, heads, True, activation, at, a)
        full, mode = full_map(block, s, k, at, a)
        sector = period_four(block, at, a)
        expected = np.sign(multiplier) * np.array([full.cubic(mode), full.cube(mode, conjugate=True)])
        np.testing.assert_allclose([sector.c1, sector.c3], expected, rtol=1e-8, atol=1e-9)

    KERNEL = cf.even_logits(8, {2: 2.0})

    def block(self, mu, alpha=ALPHA):
        sign = np.sign(alpha[0])
        return cf.polynomial(self.KERNEL, cf.eta_for(sign * (1 + mu), alpha[0], self.KERNEL.symbol[2]), 1.5, alpha)

    def test_reference(self):
        sector = period_four(self.block(1e-3), at="onset")
        assert (f"{sector.c1:.10f}", f"{sector.c3:.10f}") == ("-1.3025240496", "-0.3473430827")
        assert f"{self.block(0).heads[0].value[0, 0]:.10f}" == "-0.1806745079"

    @pytest.mark.parametrize(
        ("psi", "predicted", "exact", "phase", "stable"),
        [
            (0.0, "0.02461929", "0.02449513", "1.00084288", False),
            (np.pi / 4, "0.03235617", "0.03221443", "0.99854083", True),
        ],
    )
    def test_families(self, psi, predicted, exact, phase, stable):
        errors = []
        for mu in (2e-3, 1e-3, 5e-4):
            sector = period_four(self.block(mu), at="onset")
            x, derivative = newton(self.block(mu), cosine(8, 2, sector.amplitude_at(psi), psi))
            B = component(x, 2)
            assert np.angle(B) == pytest.approx(psi, abs=1e-10)
            slowest = multipliers(derivative)[:2].real
            turning = slowest[np.argmin(np.abs(slowest - sector.phase_multiplier_at(psi)))]
            errors.append(
                [sector.amplitude_at(psi) / abs(B) - 1, (sector.phase_multiplier_at(psi) - 1) / (turning - 1) - 1]
            )
            assert sector.stable_at(psi) == stable == (slowest.max() < 1)
            if mu == 1e-3:
                assert f"{sector.amplitude_at(psi):.8f}" == predicted
                assert f"{abs(B):.8f}" == exact
                assert f"{turning:.8f}" == phase
        errors = np.array(errors)
        np.testing.assert_allclose(errors[1:, 0] / errors[:-1, 0], 0.5, atol=0.05)
        assert np.all(np.abs(errors[:, 1]) < 5 * np.array([2e-3, 1e-3, 5e-4]))
        for other in (psi + np.pi / 2, psi - np.pi, -psi):
            assert sector.amplitude_at(other) == pytest.approx(sector.amplitude_at(psi))

    def test_iteration_turns_to_the_stable_family(self):
        block = self.block(5e-3)
        sector = period_four(block)
        x = iterate(block, cosine(8, 2, sector.amplitude_at(0), 0.2), 6000)
        assert np.angle(component(x, 2)) == pytest.approx(np.pi / 4, abs=1e-6)
        assert abs(component(x, 2)) == pytest.approx(sector.amplitude_at(np.pi / 4), rel=0.05)

    def test_flip_alternates(self):
        errors = []
        for mu in (2e-3, 1e-3, 5e-4):
            sector = period_four(self.block(mu, FLIPPED), at="onset")
            psi = next(psi for psi in (0.0, np.pi / 4) if sector.stable_at(psi))
            assert (sector.psi, sector.amplitude) == (psi, sector.amplitude_at(psi))
            assert sector.stable
            assert sector.phase_advance == np.pi
            x, derivative = newton(self.block(mu, FLIPPED), cosine(8, 2, sector.amplitude_at(psi), psi), flip=True)
            assert multipliers(derivative)[0].real < 1
            np.testing.assert_allclose(component(self.block(mu, FLIPPED).forward(x), 2), -component(x, 2), rtol=1e-9)
            errors.append(sector.amplitude_at(psi) / abs(component(x, 2)) - 1)
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.5, atol=0.05)

    def test_setting_of_figure_3(self):
        kernel = Kernel.gaussian_lobes(32, separation=1.8, width=1.0, strength=2.0)
        assert f"{kernel.symbol[8].real:.10f}" == "-0.1897033684"
        assert f"{kernel.symbol[16].real:.10f}" == "0.0644545409"
        assert f"{cf.eta_for(1, 0.9, kernel.symbol[8]):.10f}" == "-0.5857097427"
        block = cf.tanh_block(kernel, -0.6)
        sector = period_four(block, at="onset")
        assert (f"{sector.c1:.10f}", f"{sector.c3:.10f}") == ("-1.4098403091", "0.0232155114")
        for psi, exact, stable in [(0.0, "0.04134419", True), (np.pi / 4, "0.04071356", False)]:
            x, derivative = newton(block, cosine(32, 8, sector.amplitude_at(psi), psi))
            assert f"{abs(component(x, 8)):.8f}" == exact
            assert np.angle(component(x, 8)) == pytest.approx(psi, abs=1e-9)
            assert sector.stable_at(psi) == stable == (multipliers(derivative)[0].real < 1)
            assert sector.amplitude_at(psi) == pytest.approx(float(exact), rel=0.016)

    def test_nonzero_base_state(self):
        eta = cf.eta_for(1, 0.9, self.KERNEL.symbol[2])
        sector = period_four(cf.polynomial(self.KERNEL, eta, 1.3, (0.9, 0.12, -0.3), 0.4), state=0.4)
        assert (f"{sector.c1:.10f}", f"{sector.c3:.10f}") == ("-1.2828811198", "-0.2911977914")

    def test_sign_is_that_of_the_multiplier_where_the_coefficients_are_evaluated(self):
        """Λ = 0.2 here, but the only OV gain that makes |Λ| = 1 makes Λ = −1: that is no onset of this wave."""
        block = cf.designed(8, {2: 0.2, 0: 0.3, 4: 0.2})
        assert period_four(block).multiplier == pytest.approx(0.2)
        assert cf.Scalars.of(block).at_onset(2) is None
        with pytest.raises(ExclusionError, match="no OV gain"):
            period_four(block, at="onset")

    def test_other_phases_are_refused(self):
        sector = period_four(self.block(1e-3))
        for method in (sector.amplitude_at, sector.phase_multiplier_at, sector.stable_at):
            with pytest.raises(ExclusionError, match="psi"):
                method(0.3)


class TestPeriodThree:
    @given(**CASES)
    def test_printed_form(self, seed, copies, heads, activation, at):
        block, s, k, multiplier = draw(3, seed, copies, heads, True, activation, at, 0.0)
        sector = period_three(block, at)
        np.testing.assert_allclose(
            [sector.a2, sector.c1], np.real(cf.period_three(s, k, multiplier)), rtol=1e-12, atol=1e-12
        )

    @given(**CASES, a=st.floats(-1, 1))
    def test_quadratic_coefficient_at_a_base_state(self, seed, copies, heads, activation, at, a):
        block, s, k, multiplier = draw(3, seed, copies, heads, True, activation, at, a)
        expected = cf.period_three(s, k, multiplier)[0].real
        np.testing.assert_allclose(period_three(block, at, a).a2, expected, rtol=1e-12, atol=1e-12)

    @settings(max_examples=20)
    @given(**(CASES | {"at": st.sampled_from(["gain", "onset"])}), a=st.floats(-0.8, 0.8))
    def test_full_map(self, seed, copies, heads, activation, at, a):
        block, s, k, _ = draw(3, seed, copies, heads, True, activation, at, a)
        full, mode = full_map(block, s, k, at, a)
        q = mode[1]
        turned = (mode[0], q / (q[0] / abs(q[0])), mode[2] / (q[0] / abs(q[0])))
        sector = period_three(block, at, a)
        expected = [full.square(turned, conjugate=True), full.cubic_without_harmonic(turned)]
        np.testing.assert_allclose([sector.a2, sector.c1], expected, rtol=1e-8, atol=1e-9)

    KERNEL = cf.even_logits(6, {1: 2.0, 2: 1.4})

    def block(self, mu):
        return cf.polynomial(self.KERNEL, cf.eta_for(1 + mu, 0.9, self.KERNEL.symbol[2]), 1.5, ALPHA)

    def test_reference(self):
        assert f"{self.KERNEL.symbol[2].real:.10f}" == "-0.3794624611"
        assert f"{self.block(0).heads[0].value[0, 0]:.10f}" == "-0.2928118655"
        sector = period_three(self.block(-1e-3), at="onset")
        assert (f"{sector.a2:.10f}", f"{sector.c1:.10f}") == ("0.1234567901", "-1.5976620365")
        assert f"{sector.fold[0]:.8f}" == "-0.00238498"
        small, large = sector.amplitudes_at(0.0)
        assert (f"{small:.8f}", f"{large:.8f}") == ("0.00919387", "0.06807953")
        assert sector.amplitudes_at(np.pi).size == 0
        assert (sector.amplitude, sector.stable, sector.phase_advance) == (large, True, 0.0)
        for R, exact in [(small, "0.00921456"), (large, "0.06654305")]:
            x, derivative = newton(self.block(-1e-3), cosine(6, 2, R))
            assert f"{component(x, 2).real:.8f}" == exact
            radial, turning = sector.multipliers_at(0.0, R)
            near = multipliers(derivative)[:2].real
            assert sorted(near)[::-1] == pytest.approx(sorted([radial, turning])[::-1], abs=1.2e-3)
            assert (near.max() < 1) == (large == R)

    def test_fold_of_the_exact_branch(self):
        """μ of the exact state as a function of its amplitude has its minimum at the fold."""

        def mu_of(R):
            def residual(unknown):
                block = self.block(unknown[1])
                x = unknown[0] + cosine(6, 2, R)
                change = block.forward(x) - x
                return [change.mean(), component(change, 2).real / R]

            return root(residual, [0.0, -1e-3], tol=1e-14).x[1]

        fold = minimize_scalar(mu_of, bounds=(0.03, 0.05), method="bounded", options={"xatol": 1e-7})
        assert f"{fold.fun:.8f}" == "-0.00236164"
        assert period_three(self.block(0), at="onset").fold[1] == pytest.approx(fold.x, rel=0.02)

    def test_both_states_are_reached_where_both_are_stable(self):
        block = self.block(-1e-3)
        small, large = period_three(block).amplitudes_at(0.0)
        assert np.abs(iterate(block, cosine(6, 2, 0.8 * small), 8000)).max() < 1e-3
        settled = iterate(block, cosine(6, 2, 1.5 * small), 8000)
        assert component(settled, 2).real == pytest.approx(large, rel=0.04)

    def test_error_is_linear_in_mu(self):
        errors = []
        for mu in (-4e-4, -2e-4, -1e-4):
            small, _ = period_three(self.block(mu), at="onset").amplitudes_at(0.0)
            x, _ = newton(self.block(mu), cosine(6, 2, small))
            errors.append(small / component(x, 2).real - 1)
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.5, atol=0.1)

    def test_phase_of_a_directional_family(self):
        sector = period_three(self.block(1e-3), at="onset")
        (R,) = sector.amplitudes_at(np.pi / 3)
        x, derivative = newton(self.block(1e-3), cosine(6, 2, R, np.pi / 3))
        assert component(x, 2) == pytest.approx(R * np.exp(1j * np.pi / 3), rel=5e-3)
        np.testing.assert_allclose(
            sorted(multipliers(derivative)[:2].real), sorted(sector.multipliers_at(np.pi / 3, R)), atol=1e-4
        )
        with pytest.raises(ExclusionError, match="psi"):
            sector.amplitudes_at(0.2)

    def test_nonzero_base_state(self):
        eta = cf.eta_for(1, 0.9, self.KERNEL.symbol[2])
        sector = period_three(cf.polynomial(self.KERNEL, eta, 1.3, (0.9, 0.12, -0.3), 0.4), state=0.4)
        assert (f"{sector.a2:.10f}", f"{sector.c1:.10f}") == ("0.2198801961", "-1.6715039476")


class TestHomogeneous:
    @given(**CASES, symmetric=st.booleans())
    def test_printed_form(self, seed, copies, heads, activation, at, symmetric):
        block, s, _, _ = draw(1, seed, copies, heads, symmetric, activation, at, 0.0)
        sector = homogeneous_state(block, at)
        np.testing.assert_allclose([sector.b2, sector.b3], cf.homogeneous(s), rtol=1e-12, atol=1e-12)

    @settings(max_examples=20)
    @given(**(CASES | {"at": st.sampled_from(["gain", "onset"])}), symmetric=st.booleans(), a=st.floats(-0.8, 0.8))
    def test_full_map(self, seed, copies, heads, activation, at, symmetric, a):
        block, s, _, _ = draw(1, seed, copies, heads, symmetric, activation, at, a)
        full, mode = full_map(block, s, 0, at, a)
        one = (mode[0], mode[1] / mode[1][0], mode[2] * mode[1][0].conj())
        sector = homogeneous_state(block, at, a)
        expected = [full.square(one), full.cube(one, slaved=False)]
        np.testing.assert_allclose([sector.b2, sector.b3], expected, rtol=1e-8, atol=1e-9)

    def test_reference(self):
        block = cf.polynomial(cf.even_logits(8, {1: 2.0}), 1.001 / 0.9 - 1, 1.5, ALPHA)
        sector = homogeneous_state(block, at="onset")
        assert f"{sector.transcritical_root:.4f}" == "-0.0081"
        found = fixed_points(block)[1]
        assert f"{found.state[0]:.10f}" == "-0.0078768040"
        assert f"{found.multipliers[0].real:.10f}" == "0.9989743908"
        assert homogeneous_state(block).roots[0] == pytest.approx(found.state[0], rel=1e-9)  # H is cubic here
        assert sector.roots[0] == pytest.approx(found.state[0], rel=3e-3)
        assert (sector.amplitude, sector.stable) == (abs(sector.roots[0]), True)

    def test_error_is_linear_in_mu(self):
        errors = []
        for mu in (2e-3, 1e-3, 5e-4):
            block = cf.polynomial(Kernel.uniform(8), (1 + mu) / 0.9 - 1, 1.5, ALPHA)
            predicted = homogeneous_state(block, at="onset").transcritical_root
            errors.append(predicted / fixed_points(block)[1].state[0] - 1)
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.5, atol=0.05)

    @pytest.mark.parametrize(("a3", "saturates"), [(0.3, True), (-0.3, False)])
    def test_flip_coefficient(self, a3, saturates):
        mu = 1e-3
        block = cf.polynomial(Kernel.uniform(8), (1 + mu) / 0.9 - 1, 1.5, (-0.9, 0.1, a3))
        sector = homogeneous_state(block, at="onset")
        coefficient = sector.flip_coefficient
        assert (coefficient > 0) == saturates == sector.stable
        if saturates:
            x, derivative = newton(block, np.full(8, np.sqrt(mu / coefficient)), flip=True)
            assert sector.amplitude == pytest.approx(np.sqrt(mu / coefficient))
            swing = (x - block.forward(x)) / 2
            np.testing.assert_allclose(swing, np.sqrt(mu / coefficient), rtol=2e-3)
            uniform = np.ones(8) @ derivative @ np.ones(8) / 8
            assert uniform == pytest.approx(1 - 4 * mu, abs=2e-5)

    def test_roots_of_lower_degree(self):
        linear = Block([Head(Kernel.uniform(8), 0.1, 1.5)])
        assert homogeneous_state(linear).roots.size == 0
        quadratic = cf.polynomial(Kernel.uniform(8), 0.12, 1.5, (0.9, 0.1, 0.0))
        np.testing.assert_allclose(
            homogeneous_state(quadratic).roots, [-(0.9 * 1.12 - 1) / (0.1 * 1.12**2)], rtol=1e-12
        )
        pitchfork = homogeneous_state(cf.polynomial(Kernel.uniform(8), 0.12, 1.5, (0.9, 0.0, -0.3)))
        np.testing.assert_allclose(np.sort(pitchfork.roots), np.sqrt(0.008 / (0.3 * 1.12**3)) * np.array([-1, 1]))


class TestRefusals:
    @pytest.mark.parametrize(("function", "n"), [(period_two, 7), (period_three, 8), (period_four, 6)])
    def test_tokens(self, function, n):
        with pytest.raises(ExclusionError, match=f"N = {n}"):
            function(cf.polynomial(Kernel.uniform(n), -0.3, 1.5, ALPHA))

    @pytest.mark.parametrize(("function", "n"), [(period_three, 6), (period_four, 8)])
    def test_directional_kernels(self, function, n):
        kernel = Kernel.table(2.0 * (np.arange(n) == 1))
        with pytest.raises(ExclusionError, match="directional"):
            function(cf.polynomial(kernel, -0.3, 1.5, ALPHA))

    @pytest.mark.parametrize(("function", "n"), [(period_three, 6), (period_four, 8)])
    def test_mirrored_heads_of_different_content(self, function, n):
        """J(q) is real, and the coefficients are not."""
        logits = np.random.default_rng(0).normal(size=n)
        heads = [
            Head(Kernel.table(table), -0.3, content)
            for table, content in ((logits, 2.0), (np.roll(logits[::-1], 1), -1.0))
        ]
        block = Block(heads, FeedForward.scalar(Activation.polynomial([1, 0.5, -1]), -0.05))
        assert abs(dispersion_relation(block).multipliers.imag).max() < 1e-12
        with pytest.raises(ExclusionError, match="directional"):
            function(block)

    def test_flip_of_period_three(self):
        kernel = cf.even_logits(6, {1: 2.0, 2: 1.4})
        block = cf.polynomial(kernel, cf.eta_for(-1.001, -0.9, kernel.symbol[2]), 1.5, FLIPPED)
        with pytest.raises(ExclusionError, match="standing_wave"):
            period_three(block)

    @pytest.mark.parametrize("function", [period_two, period_three, period_four])
    def test_unstable_mean(self, function):
        with pytest.raises(ExclusionError, match="slaved wavenumber 0"):
            function(cf.polynomial(Kernel.uniform(12), 0.3, 1.5, ALPHA))

    def test_unstable_second_harmonic(self):
        block = cf.designed(8, {0: 0.3, 2: 1.001, 4: 1.1})
        with pytest.raises(ExclusionError, match="slaved wavenumber 4"):
            period_four(block)

    @pytest.mark.parametrize("function", [period_two, period_three, period_four, homogeneous_state])
    def test_common(self, function):
        block = cf.polynomial(Kernel.uniform(12), -0.3, 1.5, ALPHA)
        with pytest.raises(ArgumentError, match="at: "):
            function(block, at="late")
        with pytest.raises(ArgumentError, match="fixed point"):
            function(block, state=0.3)
        with pytest.raises(ExclusionError, match="d = 2"):
            function(Block([Head(Kernel.uniform(12), -0.3 * np.eye(2))]))


class TestReflectionSymmetricOscillation:
    """The O(2) sector, d = 2: A⁺ = e^{iθ}A(1 + μ + a|A|² + b|B|²), B likewise with wavenumber −k."""

    KERNEL = Kernel.gaussian_lobes(32, separation=5, width=1.0, strength=2.0)
    CONTENT = {"standing": np.array([[0.0, -1.0], [1.0, 2.0]]), "travelling": 2 * np.eye(2)}  # noqa: RUF012

    def block(self, g, kind):
        rotation = np.array([[np.cos(1.3), -np.sin(1.3)], [np.sin(1.3), np.cos(1.3)]])
        head = Head(self.KERNEL, -g * rotation @ np.diag([1, 0.9]), self.CONTENT[kind])
        return Block([head], FeedForward.elementwise("tanh", 2, -0.1))

    def multiplier(self, g):
        return np.linalg.eigvals(dispersion_relation(self.block(g, "standing")).matrices[3])[0]

    def gain(self, mu):
        return brentq(lambda g: abs(self.multiplier(g)) - 1 - mu, 0.5, 1.2, xtol=1e-15)

    def coefficients(self, g, kind):
        """e^{iθ}(1+μ), a, b and the vectors v, w at gain g."""
        full, L = FullMap(self.block(g, kind)), self.multiplier(g)
        L = L if L.imag > 0 else np.conj(L)
        there, back = full.mode(3, near=L), full.mode(-3, near=L)
        unit = L / abs(L)
        v, w = there[1].reshape(32, 2)[0], 32 * there[2].reshape(32, 2)[0]
        return L, full.cubic(there) / unit, full.cross(there, back) / unit, v, w

    def test_onset(self):
        assert (f"{self.KERNEL.symbol[3].real:.10f}", np.argmin(self.KERNEL.symbol.real)) == ("-0.3723418873", 3)
        assert f"{self.gain(0):.10f}" == "0.8085104380"
        assert f"{abs(np.angle(self.multiplier(self.gain(0)))):.10f}" == "0.2502447681"
        assert f"{self.gain(5e-4):.10f}" == "0.8116654721"

    @pytest.mark.parametrize(
        ("kind", "a", "b"),
        [
            ("standing", "-0.7302061286-0.3617666842j", "-0.3965358785-1.9576607076j"),
            ("travelling", "-0.6049161276-1.1723634474j", "-1.7210788711-3.2346912207j"),
        ],
    )
    def test_coefficients(self, kind, a, b):
        _, measured_a, measured_b, v, _ = self.coefficients(self.gain(0), kind)
        assert np.linalg.norm(v) == pytest.approx(1, abs=1e-12)
        assert (f"{measured_a:.10f}", f"{measured_b:.10f}") == (a, b)
        if kind == "travelling":
            assert measured_a.real < 0
            assert measured_b.real < measured_a.real
        else:
            assert measured_b.real > measured_a.real
            assert (measured_a + measured_b).real < 0

    @pytest.mark.parametrize(
        ("kind", "predicted", "simulated", "advance"),
        [("standing", "0.021001", "0.020966", "0.25008760"), ("travelling", "0.028666", "0.028660", "0.25014741")],
    )
    def test_amplitude_and_advance(self, kind, predicted, simulated, advance):
        """With the coefficients at the actual gain; the block iterated from the prediction."""
        errors = []
        for mu in (5e-4, 2.5e-4):
            g = self.gain(mu)
            L, a, b, v, w = self.coefficients(g, kind)
            c = a + b if kind == "standing" else a
            R = np.sqrt(-mu / c.real)
            turn = np.angle(L) + c.imag * R**2
            wave = np.exp(6j * np.pi * np.arange(32) / 32)
            wave = 2 * wave.real if kind == "standing" else wave
            x = iterate(self.block(g, kind), 2 * np.real(R * wave[:, None] * v), 10_000)
            track = []
            for _ in range(2500):
                track.append(np.vdot(w, component(x, 3)))
                x = self.block(g, kind).forward(x)
            found = np.abs(track).mean()
            slope = np.polyfit(np.arange(2500), np.unwrap(np.angle(track)), 1)[0]
            other = abs(np.vdot(w, component(x, -3)))
            assert other == pytest.approx(found, rel=0.01) if kind == "standing" else other < 1e-3 * found
            errors.append([R / found - 1, (turn - np.angle(L)) / (slope - np.angle(L)) - 1])
            if mu == 5e-4:
                assert (f"{R:.6f}", f"{turn:.8f}") == (predicted, advance)
                assert f"{found:.6f}" == simulated
        assert errors[1][0] / errors[0][0] == pytest.approx(0.5, abs=0.05)
        assert np.abs(errors)[:, 1].max() < 0.01

    def test_feed_forward_alone_makes_the_cross_coefficient_twice_the_own(self):
        rotation = np.array([[np.cos(1.3), -np.sin(1.3)], [np.sin(1.3), np.cos(1.3)]])
        block = Block(
            [Head(self.KERNEL, -0.8 * rotation @ np.diag([1, 0.9]))], FeedForward.elementwise("tanh", 2, -0.1)
        )
        full = FullMap(block)
        L = full.mode(3)[0]
        there, back = full.mode(3, near=L), full.mode(-3, near=L)
        assert full.cross(there, back) == pytest.approx(2 * full.cubic(there), rel=1e-8)
