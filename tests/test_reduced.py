"""Reduced maps: planted resonances, every steady state, stability against iteration, regimes against closed forms."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from amplitude import REGIMES, Competition
from amplitude.normal_forms.monomials import monomials, two_point
from amplitude.normal_forms.reduced_map import ReducedMap
from amplitude.normal_forms.steady import _real_roots, solution_at, solutions
from amplitude.normal_forms.verdicts import verdict


def planted(order, *modes):
    """The map of modes given as (Λ, terms), terms by exponents of z_1, z̄_1, …; a mode with a real Λ and
    `real` terms has one variable. The conjugates follow.
    """
    conjugate = []
    for mode in modes:
        number = len(conjugate)
        conjugate += [number] if len(mode) == 3 else [number + 1, number]
    table, conjugate = monomials(len(conjugate), order), tuple(conjugate)
    coefficients = np.zeros((len(conjugate), len(table)), dtype=complex)
    own = [s for s, partner in enumerate(conjugate) if s <= partner]
    for s, (multiplier, terms, *_) in zip(own, modes, strict=True):
        unit = tuple(int(t == s) for t in range(len(conjugate)))
        for exponents, value in {unit: multiplier, **terms}.items():
            coefficients[s, table.number_of(exponents)] = value
            mirrored = np.array(exponents)[list(conjugate)]
            coefficients[conjugate[s], table.number_of(mirrored)] = np.conj(value)
    return ReducedMap(table, coefficients, conjugate)


def steady(f):
    """The solutions, checked to be steady: f(z) = e^{iΩ}z."""
    found = solutions(f)
    for solution in found:
        turned = solution.z * np.exp(1j * np.nan_to_num(solution.phase_advances))
        np.testing.assert_allclose(f(solution.z), turned, atol=1e-11 * np.abs(solution.z).max())
    return found


class TestMonomials:
    @pytest.mark.parametrize(("variables", "order"), [(1, 4), (2, 5), (3, 3)])
    def test_products(self, variables, order):
        table = monomials(variables, order)
        rng = np.random.default_rng(0)
        x = 0.5 * rng.normal(size=variables)
        a, b = (np.where(table.degrees <= order // 2, rng.normal(size=len(table)), 0) for _ in range(2))
        product = np.concatenate(
            [table.pairs(p).sum(a[table.pairs(p).first] * b[table.pairs(p).second]) for p in range(order + 1)]
        )
        powers = np.prod(x**table.exponents, axis=1)
        assert powers @ product == pytest.approx((powers @ a) * (powers @ b), rel=1e-12)
        variable, parent = table.parents
        np.testing.assert_array_equal(
            table.exponents[1:], (table.exponents[parent] + np.eye(variables, dtype=int)[variable])[1:]
        )

    def test_two_points(self):
        two = two_point(2, 3)
        np.testing.assert_array_equal(
            two.one.exponents[two.total], two.both.exponents[:, :2] + two.both.exponents[:, 2:]
        )
        values = np.random.default_rng(1).normal(size=len(two.both))
        x = np.array([0.3, -0.7])
        collapsed = np.concatenate([two.collapse(values[two.both.degree(p)], p) for p in range(4)])
        both = np.prod(np.tile(x, 2) ** two.both.exponents, axis=1)
        assert np.prod(x**two.one.exponents, axis=1) @ collapsed == pytest.approx(both @ values)


class TestMap:
    def map(self):
        return planted(
            4,
            (1.02 * np.exp(0.3j), {(2, 1, 0): -1 - 0.4j, (1, 0, 1): 0.2 + 0.1j, (1, 0, 2): 0.3j}),
            (0.97, {(0, 0, 3): -0.5, (1, 1, 0): 0.25}, "real"),
        )

    def test_values_and_derivatives(self):
        f, z = self.map(), np.array([0.2 + 0.1j, -0.3])
        one, two = z
        expected = 1.02 * np.exp(0.3j) * one - (1 + 0.4j) * abs(one) ** 2 * one
        expected += (0.2 + 0.1j) * one * two + 0.3j * one * two**2
        np.testing.assert_allclose(f(z), [expected, 0.97 * two - 0.5 * two**3 + 0.25 * abs(one) ** 2], rtol=1e-14)
        np.testing.assert_allclose(f(np.array([z, z])), [f(z)] * 2)
        J, step = f.jacobian(z), 1e-6
        for change, columns in ((np.array([1, 0]), [1, 1, 0]), (np.array([1j, 0]), [1j, -1j, 0]), ([0, 1], [0, 0, 1])):
            slope = (f(z + step * np.array(change)) - f(z - step * np.array(change))) / (2 * step)
            np.testing.assert_allclose((J @ columns)[f.first], slope, atol=1e-9)

    def test_parts(self):
        f = self.map()
        assert f.nonlinear_terms[1] == {(0, 0, 3): -0.5, (1, 1, 0): 0.25}
        np.testing.assert_array_equal(f.complex_modes, [True, False])
        one = f.restricted(0)
        assert one.nonlinear_terms == ({(2, 1): -1 - 0.4j},)
        assert f.restricted(1).nonlinear_terms == ({(3,): -0.5},)
        assert f.truncated(2).nonlinear_terms[0] == {(1, 0, 1): 0.2 + 0.1j}
        assert one.phase_free
        assert not f.phase_free


class TestResonances:
    """Lattice terms in maps written down by hand, and the phase symmetries they leave."""

    @pytest.mark.parametrize("mu", [0.01, -0.001])
    def test_third(self, mu):
        a, c = 0.12, -1.6
        f = planted(3, (1 + mu, {(0, 2): a, (2, 1): c}))
        directions, offset = f.phases
        assert len(directions) == 0
        np.testing.assert_allclose(offset, 0, atol=1e-15)
        expected = []
        for side in (1, -1):  # ψ = 0 and π/3: μ + σR + cR² = 0
            sigma = a * side
            for R in np.roots([c, sigma, mu]):
                if np.isreal(R) and R.real > 0:
                    expected.append((R.real, 1 + sigma * R.real + 2 * c * R.real**2, 1 - 3 * sigma * R.real))
        found = steady(f)
        assert len(found) == len(expected)
        for solution, (R, radial, turning) in zip(found, sorted(expected), strict=True):
            assert abs(solution.z[0]) == pytest.approx(R)
            assert np.sort(solution.multipliers) == pytest.approx(np.sort([radial, turning]))

    @pytest.mark.parametrize("sign", [1, -1])
    def test_quarter(self, sign):
        mu, c1, c3 = 0.01, -1.3, -0.35
        f = planted(3, (sign * (1 + mu), {(2, 1): sign * c1, (0, 3): sign * c3}))
        one, two = steady(f)
        for solution, side in ((one, 1), (two, -1)):
            R2 = -mu / (c1 + side * c3)
            assert abs(solution.z[0]) ** 2 == pytest.approx(R2)
            assert np.angle(solution.z[0]) == pytest.approx(0 if side > 0 else np.pi / 4)
            assert solution.phase_advances[0] == pytest.approx(0 if sign > 0 else np.pi)
            assert np.sort(solution.multipliers) == pytest.approx(np.sort([1 - 2 * mu, 1 - 4 * side * c3 * R2]))
        assert [one.stable, two.stable] == [False, True]

    @pytest.mark.parametrize("twist", [0.0, 0.003])
    def test_quarter_with_a_quarter_turn(self, twist):
        """Λ = ie^{iτ}(1+μ): locked at Ω = π/2, also off resonance."""
        mu, c1, c3 = 0.01, -1.3 - 0.4j, 0.5 - 0.2j
        f = planted(3, (1j * np.exp(1j * twist) * (1 + mu), {(2, 1): 1j * c1, (0, 3): 1j * c3}))
        directions, offset = f.phases
        assert len(directions) == 0
        np.testing.assert_allclose(offset, np.pi / 2, atol=1e-12)
        found = steady(f)
        assert len(found) == 2
        for solution in found:
            assert solution.phase_advances[0] == pytest.approx(np.pi / 2)
            self.check_stability(f, solution)

    def test_detuned_beyond_locking(self):
        """The phase runs through: what is left is the average, and iteration agrees."""
        mu, c1, c3 = 0.01, -1.3 + 0j, 0.02
        f = planted(3, (1j * np.exp(0.03j) * (1 + mu), {(2, 1): 1j * c1, (0, 3): 1j * c3}))
        (solution,) = solutions(f)
        assert solution.stable
        z, track = np.array([0.05 + 0j]), []
        for _ in range(4000):
            z = f(z)
            track.append(z[0])
        assert np.abs(track[2000:]).mean() == pytest.approx(abs(solution.z[0]), rel=1e-3)
        rate = np.polyfit(np.arange(2000), np.unwrap(np.angle(track[2000:])), 1)[0]
        assert rate == pytest.approx(solution.phase_advances[0], rel=1e-3)

    def test_a_flip_that_ties_a_quarter_turn(self):
        """z_2 real with Λ_2 = −1 at q = π, z_1 with Λ_1 = i at π/2: z̄_1z_2 and z_1² + z̄_1² make Ω = (π/2, π)."""
        f = planted(
            3,
            (1.01j, {(2, 1, 0): -1j, (0, 1, 1): 0.3j}),
            (-1.01, {(0, 0, 3): 1.0, (2, 0, 0): -0.02, (0, 2, 0): -0.02}, "real"),
        )
        directions, offset = f.phases
        assert len(directions) == 0
        np.testing.assert_allclose(offset, [np.pi / 2, np.pi], atol=1e-12)
        found = steady(f)
        both = [solution for solution in found if solution.active.all()]
        assert both
        for solution in both:
            np.testing.assert_allclose(solution.phase_advances, [np.pi / 2, np.pi], atol=1e-9)
            self.check_stability(f, solution)

    def test_an_absent_mode_turns_with_the_one_it_is_tied_to(self):
        """z_1²z̄_2 in f_2: on the state z_1 alone the multipliers are those of the real Jacobian in its frame."""
        L = 1.01 * np.exp(0.4j)
        turn = L / abs(L)
        f = planted(
            3,
            (L, {(2, 1, 0, 0): (-1 + 2j) * turn, (1, 0, 1, 1): -2 * turn, (0, 1, 2, 0): 0.4 * turn}),
            (L, {(0, 0, 2, 1): (-1 + 2j) * turn, (1, 1, 1, 0): -2 * turn, (2, 0, 0, 1): 0.4 * turn}),
        )
        directions, _ = f.phases
        np.testing.assert_allclose(np.abs(directions), [[np.sqrt(0.5)] * 2])
        alone = next(solution for solution in steady(f) if list(solution.active) == [True, False])
        self.check_stability(f, alone)
        R2 = abs(alone.z[0]) ** 2
        frame = np.exp(1j * alone.phase_advances[0])
        block = np.array([[L - 2 * turn * R2, 0.4 * turn * R2], [0, 0]]) / frame
        block[1] = block[0].conj()[::-1]
        expected = np.linalg.eigvals(block)
        assert all(np.abs(alone.multipliers - value).min() < 1e-10 for value in expected)

    @staticmethod
    def check_stability(f, solution):
        """Iterate f from nearby: it stays iff the solution is stable."""
        rng = np.random.default_rng(0)
        z = solution.z + 1e-4 * np.abs(solution.z).max() * (rng.normal(size=2)[: len(solution.z)] + 0j)
        if f.complex_modes.all():
            z = z + 1e-4j * np.abs(solution.z).max() * rng.normal(size=len(z))
        for _ in range(6000):
            z = f(z)
            if np.abs(z).max() > 10:
                break
        gap = np.abs(np.abs(z) - np.abs(solution.z)).max() / np.abs(solution.z).max()
        assert (gap < 1e-3) == solution.stable


COEFFICIENT = st.floats(-2, 2)


class TestSeveralModes:
    @settings(max_examples=40)
    @given(
        mu=st.tuples(st.floats(-0.02, 0.03), st.floats(-0.02, 0.03)),
        s=st.tuples(st.floats(0.3, 2), st.floats(0.3, 2)),
        c=st.tuples(COEFFICIENT, COEFFICIENT),
        omega=st.tuples(st.sampled_from([0.0, 0.7]), st.sampled_from([0.0, -1.1])),
        imaginary=st.floats(-1, 1),
    )
    def test_cubic_regimes_are_those_of_the_closed_form(self, mu, s, c, omega, imaginary):
        turn = np.exp(1j * np.array(omega))
        matrix = np.array([[s[0], c[0]], [c[1], s[1]]])
        assume(abs(np.linalg.det(matrix)) > 0.05 and min(map(abs, mu)) > 1e-3)
        closed = Competition((3, 5), 32, turn * (1 + np.array(mu)), "gain", matrix + 0j)
        edges = [closed.transverse(i) - 1 for i in (1, 2) if closed.mu[i - 1] > 0]
        # the closed form is that of leading order in μ: not so near to its boundaries
        assume(all(abs(edge) > max(1e-4, 0.05 * max(mu)) for edge in edges))
        shift = 1j * imaginary * (np.array(omega) != 0)
        f = planted(
            3,
            (turn[0] * (1 + mu[0]), {(2, 1, 0, 0): turn[0] * (shift[0] - s[0]), (1, 0, 1, 1): -turn[0] * c[0]}),
            (turn[1] * (1 + mu[1]), {(0, 0, 2, 1): turn[1] * (shift[1] - s[1]), (1, 1, 1, 0): -turn[1] * c[1]}),
        )
        mixed = [solution for solution in solutions(f) if solution.active.all() and np.abs(solution.z).max() < 0.6]
        # the closed form drops what is of higher order in μ
        if not np.isnan(closed.mixed).any() and closed.mixed.max() < 0.3:
            assume(np.abs(np.linalg.eigvals(matrix)).min() > 0.1)
            assert mixed
        assert self.regime(f) in REGIMES
        if max(closed.pure(i) for i in (1, 2) if mu[i - 1] > 0) < 0.25 if max(mu) > 0 else False:
            agreed = self.regime(f) == closed.regime
            large = not np.isnan(closed.mixed).any() and closed.mixed.max() > 0.2
            assert agreed or large

    @staticmethod
    def regime(f):
        growing = tuple(bool(grows) for grows in np.abs(f.multipliers) > 1)
        states = [(tuple(map(bool, solution.active)), solution.stable) for solution in solutions(f)]
        return verdict(states, growing, alone=True)

    @pytest.mark.parametrize(
        ("mu", "cross", "regime"),
        [
            ((-0.01, -0.02), (0.5, 0.5), "collapsed"),
            ((0.02, 0.001), (0.9, 0.9), "mode 1"),
            ((-0.001, 0.02), (0.9, 0.9), "mode 2"),
            ((0.02, 0.02), (2.0, 2.0), "bistable"),
            ((0.02, 0.015), (0.4, 0.4), "coexistence"),
            ((0.02, 0.02), (-1.5, -1.5), "undecided"),
        ],
    )
    def test_regimes(self, mu, cross, regime):
        f = planted(
            3,
            (1 + mu[0], {(2, 1, 0, 0): -1, (1, 0, 1, 1): -cross[0]}),
            (1 + mu[1], {(0, 0, 2, 1): -1, (1, 1, 1, 0): -cross[1]}),
        )
        assert self.regime(f) == regime

    @settings(max_examples=20)
    @given(seed=st.integers(0, 10**6))
    def test_every_state_of_quintic_maps(self, seed):
        """Real coefficients, two modes at very unequal gains: all roots of two polynomials in ρ_1, ρ_2."""
        rng = np.random.default_rng(seed)
        mu = np.array([0.2, 0.004]) * rng.uniform(0.5, 1.5, 2)
        A, b = rng.uniform(0.3, 1.5, (2, 2)), rng.uniform(-0.5, 0.2, (2, 2))
        modes = []
        for s in range(2):
            terms = {}
            for t in range(2):
                cubic, quintic = np.zeros((2, 4), dtype=int)
                cubic[2 * s] += 1
                cubic[[2 * t, 2 * t + 1]] += 1
                quintic[2 * s] += 1
                quintic[[2 * t, 2 * t + 1]] += 2
                terms[tuple(cubic)], terms[tuple(quintic)] = -A[s, t], b[s, t]
            modes.append((1 + mu[s], terms))
        f = planted(5, *modes)
        found = [np.abs(solution.z) ** 2 for solution in steady(f) if solution.active.all()]
        # μ_s − A ρ + b ρ² = 0: bracket on a fine grid of ρ_1, ρ_2 in (0, 0.6)
        expected = _mixed_roots(mu, A, b)
        for root in expected:
            assert any(np.abs(root - other).max() < 1e-6 for other in found)

    def test_three_modes(self):
        mu, s, c = 0.01, 1.0, 0.4
        units = np.eye(6, dtype=int)
        modes = []
        for i in range(3):
            terms = {tuple(units[2 * i] + units[2 * j] + units[2 * j + 1]): -(s if i == j else c) for j in range(3)}
            modes.append((1 + mu, terms))
        found = steady(planted(3, *modes))
        sizes = {1: np.sqrt(mu / s), 2: np.sqrt(mu / (s + c)), 3: np.sqrt(mu / (s + 2 * c))}
        small = [solution for solution in found if np.abs(solution.z).max() < 0.5]
        assert sorted(solution.active.sum() for solution in small) == [1, 1, 1, 2, 2, 2, 3]
        for solution in small:
            np.testing.assert_allclose(np.abs(solution.z[solution.active]), sizes[solution.active.sum()], rtol=1e-9)
            assert solution.stable == solution.active.all()

    def test_marginal_lattice_phases_are_not_called_unstable(self):
        """n = 8 at R = 0.01: the phase multiplier differs from 1 by 1e-12."""
        f = planted(7, (1.0001, {(2, 1): -1.0, (0, 7): 1e-3}))
        first = solutions(f)[0]
        assert first.stable
        assert solution_at(f, first.z).stable


def _mixed_roots(mu, A, b):
    def gaps(rho):
        return mu[:, None] - A @ rho + b @ rho**2

    side = np.linspace(1e-4, 0.6, 300)
    grid = np.array(np.meshgrid(side, side, indexing="ij"))
    values = gaps(grid.reshape(2, -1)).reshape(2, 300, 300)
    roots = []
    change = [np.ptp(np.sign(np.stack([v[:-1, :-1], v[1:, :-1], v[:-1, 1:], v[1:, 1:]])), axis=0) > 0 for v in values]
    for i, j in np.argwhere(change[0] & change[1]):
        rho = grid[:, i, j].copy()
        for _ in range(30):
            jacobian = -A + 2 * b * rho
            if abs(np.linalg.det(jacobian)) < 1e-9:
                break
            rho = rho - np.linalg.solve(jacobian, gaps(rho[:, None])[:, 0])
        near = np.abs(rho - grid[:, i, j]).max() < 0.01 and np.abs(gaps(rho[:, None])).max() < 1e-13
        if near and rho.min() > 1e-4:
            roots.append(rho)
    return roots


@pytest.mark.parametrize("last", [0.0, 1e-17, -1e-32, 1e-300])
def test_a_highest_coefficient_of_rounding_costs_no_root(last):
    (root,) = [x for x in _real_roots(np.array([-0.01, 1.0, 0.0, last])) if abs(x) < 1]
    assert root == pytest.approx(0.01, rel=1e-14)
