"""Is a homogeneous state stable on a long chain with ends? The verdict and what decides it (App. A.7, corrected).

The symbol on |z| = 1 governs any finite depth in the bulk. A chain of n tokens at depth L → ∞ is governed by its own
spectrum, which for n → ∞ tends to the bulk set and the boundary modes. What grows by the first and decays by the second
is convectively unstable: it is carried to an end and dies there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.block import Block
from dispersion.errors import ArgumentError, shown, whole_number
from dispersion.line.bulk import bulk_maximum, bulk_set
from dispersion.line.ends import boundary_modes
from dispersion.line.sectors import Sector, sectors
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow

TIE = 1e-9
"""Relative difference under which two growth factors are equal, and a growth factor is 1."""


@dataclass(frozen=True, eq=False)
class Verdict(Noun):
    """How the perturbations of a homogeneous state fare on long chains with ends.

    Attributes
    ----------
    periodic : float
        max_q ρ(J(q)) over all real q, the growth factor per layer without ends.
    wavenumber : float
        Its q in [0, π].
    bulk : float
        The largest |Λ| over the bulk set.
    boundary : float
        The largest |Λ| over the boundary modes, 0 if there are none.
    homogeneous : float
        The largest |Λ| of the perturbations equal at all tokens, which every chain has.
    multiplier : complex
        The Λ of largest modulus among those three.
    bulk_set : (K, d) complex ndarray
        Multipliers Λ of the sampled bulk set.
    modes : (M, d) complex ndarray
        Multipliers Λ of the boundary modes.
    proven : bool
        False if the bulk set is that of a symbol with matrix coefficients, which is derived only.
    """

    periodic: float
    wavenumber: float
    bulk: float
    boundary: float
    homogeneous: float
    multiplier: complex
    bulk_set: NDArray[np.complex128]
    modes: NDArray[np.complex128]
    proven: bool

    @property
    def absolute(self) -> float:
        """The growth factor per layer at L → ∞ on a long chain: the largest of bulk, boundary and homogeneous."""
        return max(self.bulk, self.boundary, self.homogeneous)

    @property
    def kind(self) -> str:
        """'absolutely unstable' if absolute > 1, 'convectively unstable' if periodic > 1 ≥ absolute, else 'stable'."""
        if self.absolute > 1 + TIE:
            return "absolutely unstable"
        return "convectively unstable" if self.periodic > 1 + TIE else "stable"

    @property
    def decided_by(self) -> str:
        """Which has the absolute growth: 'homogeneous', 'bulk' or 'boundary', the first of these if they tie."""
        growths = {"homogeneous": self.homogeneous, "bulk": self.bulk, "boundary": self.boundary}
        return next(name for name, growth in growths.items() if growth >= self.absolute * (1 - TIE))

    def __str__(self) -> str:
        return f"{self.kind}: periodic {self.periodic:.6g}, absolute {self.absolute:.6g}, decided by {self.decided_by}"


@harmless_underflow
def stability(
    block: Block, boundary: str = "open", state: ArrayLike | None = None, tokens: int | None = None, points: int = 96
) -> Verdict:
    """Whether 1⊗`state` is stable, convectively or absolutely unstable on long chains (App. A.7, corrected).

    Parameters
    ----------
    block : Block
        The chain is the limit n → ∞ at fixed lags: those its kernels carry. A kernel without lags of one sign has a
        block triangular J whose spectrum is its diagonal, and is read.
    boundary : {'open', 'causal'}
        'causal': keys j ≤ i only, the weights of lags r ≥ 0 normalised.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default. It should be a fixed point of the homogeneous map.
    tokens : int, optional
        Length of the chain that gives the first guess at the boundary modes; by default set by the lags.
    points : int
        Number of angles at which the bulk set is sampled.

    Returns
    -------
    Verdict
        Growth without ends, of the bulk, of the boundary modes and of the homogeneous perturbations.

    Raises
    ------
    ArgumentError
        Names an argument that cannot be used or a problem too large.

    Notes
    -----
    One head, heads of one kernel, and commuting C, M_h are scalar problems. Otherwise the bulk set comes from the
    middle pair of d(p+s) roots, derived only (`Verdict.proven`).
    """
    if not isinstance(boundary, str) or boundary not in ("open", "causal"):
        accepted = "'open' or 'causal'; a periodic chain has dispersion_relation"
        raise ArgumentError("boundary", shown(boundary), accepted)
    whole_number("points", points, 2)
    if tokens is not None:
        whole_number("tokens", tokens, 2)
    parts = sectors(block, boundary, state)
    periodic, wavenumber = max((_periodic(part) for part in parts), key=lambda pair: pair[0])
    bulks, leaders, modes = [], [], []
    for part in parts:
        bulk = bulk_set(part.symbol, points)
        leaders.append(bulk_maximum(part.symbol, bulk, part.growth))
        bulks.append(part.multipliers(bulk.values))
        modes.append(part.multipliers(boundary_modes(part, tokens)))
    candidates = {
        "bulk": _leading(
            [part.multipliers(np.array([value])) for part, (_, value) in zip(parts, leaders, strict=True)]
        ),
        "boundary": _leading(modes),
        "homogeneous": _leading([part.multipliers(part.homogeneous) for part in parts]),
    }
    return Verdict(
        periodic=periodic,
        wavenumber=wavenumber,
        bulk=abs(candidates["bulk"]),
        boundary=abs(candidates["boundary"]),
        homogeneous=abs(candidates["homogeneous"]),
        multiplier=max(candidates.values(), key=abs),
        bulk_set=np.concatenate([np.atleast_2d(bulk) for bulk in bulks]),
        modes=np.concatenate([np.atleast_2d(mode) for mode in modes]),
        proven=all(part.m == 1 or part.symbol.one_sided for part in parts),
    )


def _leading(multipliers: list[NDArray[np.complex128]]) -> complex:
    """The Λ of largest modulus, 0 if there are none."""
    values = np.concatenate([part.ravel() for part in multipliers])
    return complex(values[np.abs(values).argmax()]) if values.size else 0j


def _periodic(sector: Sector) -> tuple[float, float]:
    """(max_q ρ, q) over 0 ≤ q ≤ π: the largest values of a grid, refined."""
    from scipy.optimize import minimize_scalar

    def growth(q: NDArray) -> NDArray[np.float64]:
        values = np.linalg.eigvals(sector.symbol(np.exp(1j * q)))
        return sector.growth(values).max(axis=-1)

    # complex sectors are not symmetric under q → −q: the whole circle
    q = np.linspace(-np.pi, np.pi, 32 * (sector.symbol.p + sector.symbol.s + 1) + 1)
    sizes, step = growth(q), q[1] - q[0]
    best = (float(sizes.max()), float(q[sizes.argmax()]))
    for k in np.argsort(-sizes)[:4]:
        bounds = (q[k] - step, q[k] + step)
        found = minimize_scalar(
            lambda x: -growth(np.array([x]))[0], bounds=bounds, method="bounded", options={"xatol": 1e-10}
        )
        best = max(best, (float(-found.fun), float(found.x)))
    return best[0], abs((best[1] + np.pi) % (2 * np.pi) - np.pi)
