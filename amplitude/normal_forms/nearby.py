"""What the block itself makes of a state of a form: the exact state nearby, by Newton's method on the map.

A state of a form turns its amplitudes by Ω a layer, so the field it stands for is X(α) = X(z e^{iα}) at phases α, and
it is exact if F(X(α)) = X(α + Ω). Newton's step for X and the free Ω is solved by GMRES with forward passes alone, no
matrix of the size of the state. Its preconditioner is what theory knows: the derivative of the reduced map in the
critical modes, and e^{ihΩ} − J(k) elsewhere, for wavenumber k and harmonic h of the phases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.exact.equations import Kind
from amplitude.exact.symmetry import spectrum
from amplitude.normal_forms.manifold import feature_gauge, variables_of
from amplitude.normal_forms.reduced_map import Complex, Solution
from dispersion import Block, dispersion_relation
from dispersion.block.derivative import value_and_jacobian
from dispersion.noun import Noun, cached_property

if TYPE_CHECKING:
    from amplitude.normal_forms.form import NormalForm

Floats = NDArray[np.float64]

CYCLE = 12
"""Most layers after which a state that the lattice holds may repeat."""
ROUND = 11
"""Most phases along each of several that turn freely; along one alone 2·order + 1, as many as it has harmonics."""
STEPS = 6
"""Most steps of Newton's method."""
LITTLE = 0.1
"""Part of max|F(X) − X⁺|, and of the change of amplitudes, that may be left by the last step."""
FINE = 1e-3
"""Relative change of amplitudes that need not be known to `LITTLE` of itself."""
KRYLOV = 60
"""Most iterations of GMRES in a step."""
FORCING = 1e-2
"""Relative residual at which GMRES stops."""
PRECISE = 1e-13
"""max|F(X) − X⁺|, relative to 1 + max|X|, below which no step is needed."""
PERSISTS = 0.5
"""Relative change of the amplitudes up to which a state counts as the same one."""
FEW = 200
"""Most numbers N·d in a state of which all multipliers are computed."""
WATCHED = 512
"""Layers along which a change of others is watched."""
TINY = 1e-20
"""Step of derivatives along the imaginary axis, exact to rounding."""


@dataclass(frozen=True, eq=False)
class NearbyState(Noun):
    """The state of a block near one of a form.

    block : the map. predicted : (modes,) |w_sᴴB_k| of the state of the form, of what turns with z_s; exact : that of
    the state found; remaining : (modes,) about how much is still wanting. field : (N, d) the state.
    defect : max|F(X) − X⁺|. converged : whether Newton's method did. kind : of a state that repeats after one layer or
    two, else None.
    """

    block: Block
    predicted: Floats
    exact: Floats
    remaining: Floats
    field: Floats
    defect: float
    converged: bool
    kind: Kind | None

    @property
    def found(self) -> bool:
        """Whether there is a state near that of the form: its amplitudes differ by at most `PERSISTS` of themselves."""
        return self.converged and bool(np.abs(self.exact - self.predicted).max() <= PERSISTS * self.predicted.max())

    @property
    def change(self) -> float:
        """By how much the amplitudes differ, against the largest of those found."""
        return float((np.abs(self.exact - self.predicted) + self.remaining).max() / self.exact.max())

    @property
    def watched(self) -> bool:
        """Whether `growth` is measured along layers, to about 1/`WATCHED`, and not from all multipliers."""
        return self.kind is None or self.field.size > FEW

    def leaves(self, mu: float) -> bool:
        """Whether the block leaves the state: a change grows, and at more than a tenth of `mu`."""
        return self.growth - 1 > max(0.1 * mu, self.resolution)

    @property
    def resolution(self) -> float:
        """How far from 1 `growth` can tell from 1."""
        return 1.5 / WATCHED if self.watched else 1e-4

    @cached_property
    def growth(self) -> float:
        """By what factor the fastest small change of the state grows in a layer: the largest multiplier if there are
        few numbers that return after one layer or two, else along `WATCHED` layers, of a change chosen at random, or
        until wavenumbers that the state does not have have grown to a tenth of it.
        """
        x = self.field
        if not self.watched:
            layers = 1 if self.kind == "steady" else 2
            return float(np.abs(np.linalg.eigvals(value_and_jacobian(self.block, x, layers)[1])).max()) ** (1 / layers)
        u, logarithms = np.random.default_rng(0).standard_normal(x.shape), []
        moduli = spectrum(self.block.shape, x)
        others = moduli < 0.01 * moduli.max()
        for layer in range(WATCHED):
            # X, u ↦ F(X), DF(X)u
            image = self.block.forward(x + 1j * TINY * u)
            x, u = image.real, image.imag / TINY
            size = np.linalg.norm(u)
            u /= size
            logarithms.append(np.log(size))
            if layer % 16 == 15 and spectrum(self.block.shape, x)[others].max(initial=0.0) > 0.1 * moduli.max():
                break
        return float(np.exp(np.mean(logarithms[len(logarithms) // 2 :])))


def nearby_states(form: NormalForm, solution: Solution, precise: bool = False) -> list[NearbyState]:
    """The state of the block near a `solution` of `form`; of standing waves with five tokens a period or more the other
    family too, with a crest on a token or between two: no order is sure which of them is stable.

    precise : down to rounding, and not only as far as an estimate needs.
    """
    first = _Search(form, solution, solution.z)
    found = [first.run(precise)]
    waves = np.flatnonzero(form.map.complex_modes & solution.active)
    if len(waves) and first.phases.cycle and found[0].found and first.period(int(waves[0])) > 4:
        other = _Search(form, solution, first.other_family(int(waves[0]))).run(precise)
        found += [other] if other.found else []
    return found


class _Phases:
    """The phases α at which a state is taken, and harmonics of fields X(α).

    sizes : of each axis of phases; turns : (modes, axes) by how many harmonics of it a mode turns;
    advances : (axes,) how far along an axis one layer goes; free : the modes whose advances are unknown, one an axis.
    """

    def __init__(self, form: NormalForm, solution: Solution) -> None:
        f, turning = form.map, solution.turning
        modes = len(turning)
        cycle = next((p for p in range(1, CYCLE + 1) if np.abs(np.angle(np.exp(1j * p * turning))).max() < 1e-7), 0)
        self.cycle = cycle
        if cycle:
            self.sizes: tuple[int, ...] = (cycle,)
            self.turns = np.rint(turning * cycle / (2 * np.pi)).astype(int)[:, None] % cycle
            self.advances, self.free = np.array([2 * np.pi / cycle]), np.zeros(0, dtype=int)
        else:
            self.free = np.flatnonzero(f.complex_modes & solution.active)
            flips = ~f.complex_modes & (f.multipliers.real < 0)
            samples = 2 * form.order + 1 if len(self.free) == 1 else min(2 * form.order + 1, ROUND)
            self.sizes = (samples,) * len(self.free) + (2,) * bool(flips.any())
            self.turns = np.zeros((modes, len(self.sizes)), dtype=int)
            self.turns[self.free, np.arange(len(self.free))] = 1
            self.advances = turning[self.free]
            if flips.any():
                self.turns[flips, -1] = 1
                self.advances = np.append(self.advances, np.pi)
        grid = np.indices(self.sizes).reshape(len(self.sizes), -1).T
        self.alpha = (grid * (2 * np.pi / np.array(self.sizes))) @ self.turns.T
        waves = [np.fft.fftfreq(size, 1 / size).astype(int) for size in self.sizes]
        self.harmonics = np.stack(np.meshgrid(*waves, indexing="ij"), axis=-1).reshape(-1, len(self.sizes))
        self.shape, self.d = (*self.sizes, *form.block.shape), form.block.d
        self.axes = tuple(range(len(self.shape)))

    def place(self, mode: int, sign: int) -> int:
        """The number of the harmonic of z_s, or with `sign` −1 of its conjugate."""
        return int(np.ravel_multi_index(tuple(sign * self.turns[mode] % self.sizes), self.sizes))

    def transform(self, x: Floats) -> Complex:
        """(S, N, d) coefficients of fields `x` (S, N, d) over phases and tokens."""
        grid = x.reshape(*self.shape, self.d)
        found: Complex = np.fft.fftn(grid, axes=self.axes, norm="forward").reshape(x.shape)
        return found

    def inverse(self, coefficients: Complex) -> Floats:
        """(S, N, d) the fields with these `coefficients`."""
        grid = coefficients.reshape(*self.shape, self.d)
        found: Floats = np.fft.ifftn(grid, axes=self.axes, norm="forward").real.reshape(coefficients.shape)
        return found

    def turn(self, advances: Floats) -> Complex:
        """(S, 1, 1) factors of the harmonics in one layer."""
        return np.exp(1j * self.harmonics @ advances)[:, None, None]


class _Search:
    """The equations F(X(α)) = X(α + Ω) about one state, and their preconditioner."""

    def __init__(self, form: NormalForm, solution: Solution, z: Complex) -> None:
        block, f = form.block, form.map
        self.form, self.block, self.z, self.phases = form, block, z, _Phases(form, solution)
        self.gauge = feature_gauge(block)
        variables = variables_of(form.modes, block.shape)
        self.owner, self.sign = np.zeros(len(variables), dtype=int), np.ones(len(variables), dtype=int)
        self.owner[f.partner] = self.owner[f.first] = np.arange(len(z))
        self.sign[f.partner], self.sign[f.first] = -1, 1
        self.left_vectors = np.array([variable.left.conj() for variable in variables])
        self.where = (
            np.array([self.phases.place(s, sign) for s, sign in zip(self.owner, self.sign, strict=True)]),
            np.array([variable.place for variable in variables]),
        )
        self.first = f.first
        # the critical modes: e^{−iΩ}Df − 1, and how the free Ω enter, in units of |z|
        turning = self.sign * solution.turning[self.owner]
        values = np.where(self.sign > 0, z[self.owner], z[self.owner].conj())
        self.units = np.where(z != 0, np.abs(z), np.abs(z).max())[self.owner]
        self.back = np.exp(-1j * turning)
        system = self.back[:, None] * f.jacobian(z) * self.units / self.units[:, None] - np.eye(len(variables))
        speeds = -1j * (self.sign * values / self.units)[:, None] * (self.owner[:, None] == self.phases.free)
        self.reduced = -np.linalg.pinv(np.hstack([system, speeds]), rcond=1e-6)
        # all others: e^{ihΩ} − J(k)
        critical = np.zeros((len(self.phases.alpha), block.n, block.d, block.d), dtype=complex)
        for number, variable in enumerate(variables):
            critical[self.where[0][number], self.where[1][number]] += np.outer(variable.right, variable.left.conj())
        J = self.gauge @ dispersion_relation(block, form.state).matrices.reshape(-1, block.d, block.d)
        turned = self.phases.turn(self.phases.advances)[..., None] * np.eye(block.d)
        self.slaved = np.linalg.inv(turned - J + critical) @ (np.eye(block.d) - critical)
        at = z * np.exp(1j * self.phases.alpha)
        self.start = form.fields(f.monomials_at(at)).real
        self.tangents = self._tangents(at)

    def _tangents(self, at: Complex) -> Complex:
        """(V, S, N, d) ∂X/∂z_v turned with its phase."""
        slopes = self.form.map.slopes_at(at)  # (S, M, V)
        turns = np.exp(1j * self.sign * self.phases.alpha[:, self.owner])
        return np.array([self.form.fields(slopes[..., v] * turns[:, v, None]) for v in range(len(self.owner))])

    def sizes(self, x: Floats) -> Floats:
        """(modes,) |w_sᴴB_k| of fields `x` (S, N, d), of what turns with z_s."""
        part = self.phases.transform(x - self.form.state)[self.where]
        return np.abs((self.left_vectors * part).sum(axis=1))[self.first]

    def guess(self, residual: Floats) -> tuple[Floats, Floats]:
        """What theory takes for the change of X and of the free Ω that makes up for `residual` (S, N, d)."""
        parts = self.phases.transform(residual)
        found = self.reduced @ (self.back * (self.left_vectors * parts[self.where]).sum(axis=1) / self.units)
        count = len(self.owner)
        change = self.phases.inverse((self.slaved @ parts[..., None])[..., 0])
        return change + np.tensordot(found[:count] * self.units, self.tangents, axes=1).real, found[count:].real

    def period(self, wave: int) -> int:
        """Tokens until the mode `wave` repeats, along the axis on which that is soonest."""
        shape = np.array(self.block.shape)
        return int((shape // np.gcd(shape, np.atleast_1d(self.form.modes[wave].k))).min())

    def _wavenumbers(self) -> Floats:
        """(modes, D) q of each mode."""
        return 2 * np.pi * np.array([np.atleast_1d(mode.k) for mode in self.form.modes]) / np.array(self.block.shape)

    def other_family(self, wave: int) -> Complex:
        """(modes,) the amplitudes shifted by half a token, or by a quarter where half a token only changes the sign: of
        odd maps on an odd number of tokens a period of the mode `wave`.
        """
        form, x = self.form, self.start[0]
        even = self.period(wave) % 2 == 0 or form.state.any()
        half = even or np.abs(self.block.forward(-x) + self.block.forward(x)).max() > 1e-12
        shifted: Complex = self.z * np.exp(-1j * (0.5 if half else 0.25) * self._wavenumbers().sum(axis=1))
        return shifted

    def run(self, precise: bool) -> NearbyState:
        """Steps until one leaves little, or nothing if `precise`."""
        from scipy.sparse.linalg import LinearOperator, gmres

        x, advances, phases, gauge = self.start, self.phases.advances.copy(), self.phases, self.gauge

        def defect() -> Floats:
            # F(X(α)) − X(α + Ω)
            ahead = phases.inverse(phases.transform(x) * phases.turn(advances))
            return (self.block.forward(x) - ahead) @ gauge

        def applied(residual: ArrayLike) -> Floats:
            change, speed = self.guess(np.reshape(residual, x.shape))
            # δX(α + Ω) + X'(α + Ω) δΩ − DF(X(α)) δX(α)
            image = self.block.forward(x + 1j * TINY * change).imag / TINY
            faster = (phases.harmonics[:, : len(speed)] @ speed)[:, None, None]
            ahead = phases.inverse((phases.transform(change) + 1j * faster * modes) * phases.turn(advances))
            return ((ahead - image) @ gauge).ravel()

        residual, predicted, settled, remaining = defect(), self.sizes(x), False, np.full(len(self.first), np.nan)
        most = started = np.abs(residual).max()
        for _ in range(STEPS):
            modes = phases.transform(x)
            operator = LinearOperator((x.size, x.size), matvec=applied, dtype=float)
            solved, _ = gmres(operator, residual.ravel(), rtol=FORCING, restart=KRYLOV, maxiter=1)
            change, speed = self.guess(solved.reshape(x.shape))
            x, advances, last = x + change, advances + np.pad(speed, (0, len(advances) - len(speed))), most
            with np.errstate(all="ignore"):
                residual = defect()
            most, sizes = np.abs(residual).max(), self.sizes(x)
            if not most < 1e3 * started:
                settled = False
                break
            remaining = np.abs(self.sizes(x + self.guess(residual)[0]) - sizes)
            exact = most <= PRECISE * (1 + np.abs(x).max())
            small = LITTLE * max(np.abs(sizes - predicted).max(), FINE * sizes.max())
            settled |= exact or bool(most <= LITTLE * last and remaining.max() <= small)
            if exact or (settled and (not precise or most > LITTLE * last)):
                break
        kinds: dict[int, Kind] = {1: "steady", 2: "alternating"}
        return NearbyState(self.block, predicted, sizes, remaining, x[0], float(most), settled, kinds.get(phases.cycle))
