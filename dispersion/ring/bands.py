"""The multipliers as continuous functions of q: branches, how fast their waves move, how well they are conditioned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.kernel import symbol_at
from dispersion.errors import ArgumentError, choice, frozen, real_array, real_number, whole_number
from dispersion.noun import Noun, cached_property
from dispersion.plot import axes_for
from dispersion.quiet import harmless_underflow
from dispersion.ring.mode import DEFECTIVE
from dispersion.ring.relation import Dispersion
from dispersion.ring.tracking import DEGENERATE, HALVINGS, follow, point, separation
from dispersion.summary import growth, number, paragraph, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUNDING = 1e-14
"""Imaginary part, relative to the largest |Λ| at that q, that counts as zero."""


@harmless_underflow
def derivative(relation: Dispersion, q: ArrayLike, axis: int = 0) -> NDArray[np.complex128]:
    """(…, d, d) dJ/dq of a `relation` at `q`.

    Parameters
    ----------
    relation : Dispersion
        As `dispersion_relation` makes it.
    q : (…) or (…, D) array_like
        Wavenumbers, (…) on a ring and (…, D) on a torus.
    axis : int
        Which component of q on a torus, 0 … D−1.

    Returns
    -------
    (…, d, d) complex ndarray
        dJ/dq on that axis.

    Notes
    -----
    λ'(q) = −i Σ_r r A_r e^{−iqr} over the lags that λ has away from the grid, −N/2 ≤ r < N/2 or 0 … N−1
    (`Kernel.lags`); on the grid too it is the slope of that curve.
    """
    _require_dispersion(relation)
    D = len(relation.shape)
    if whole_number("axis", axis, 0) >= D:
        raise ArgumentError("axis", axis, f"0 … {D - 1}")
    seen, slopes = relation.block.seen(relation.state), []
    for head in relation.block.heads:
        lags = head.kernel.lags
        along = lags.reshape(*relation.shape, D)[..., axis]
        slopes.append(-1j * symbol_at(along * head.lag_weights(seen), lags, q))
    result: NDArray[np.complex128] = np.tensordot(np.array(slopes), relation.channels.astype(complex), axes=(0, 0))
    return result


@dataclass(frozen=True, eq=False)
class Branches(Noun):
    """Eigenvalues and eigenvectors of J(q), continuous along a sequence of wavenumbers; branch b is always number b.

    Attributes
    ----------
    relation : Dispersion
        The dispersion relation.
    q : (Q,) or (Q, D) ndarray
        Wavenumbers in radians per token, (Q,) on a ring, (Q, D) on a torus.
    multipliers : (Q, d) complex ndarray
        Λ_b(q), ordered by decreasing modulus where the branches are furthest apart.
    right, left : (Q, d, d) complex ndarray
        Column b belongs to branch b: Jv = Λv, |v| = 1, wᴴJ = Λwᴴ and wᴴv = 1; right vectors turn as little as they can
        from one q to the next. Left ones are NaN where Λ is defective.
    overlaps : (Q−1, d) ndarray
        How much of each branch is carried over to the next q, 1 in the limit of small steps; the least of the steps in
        between. About ½ or less, the connection is undecided, as at an exceptional point.
    """

    relation: Dispersion
    q: NDArray[np.float64]
    multipliers: NDArray[np.complex128]
    right: NDArray[np.complex128]
    left: NDArray[np.complex128]
    overlaps: NDArray[np.float64]

    def __str__(self) -> str:
        count, branches = self.multipliers.shape
        place = int(self.growth.max(axis=1).argmax())
        title = f"{branches} branch{'es' * (branches > 1)} of multipliers at {count} wavenumbers"
        largest = f"largest {growth(self.growth[place].max())}, at q = {vector(self.q[place])}"
        least = f"least overlap of neighbours {number(self.overlaps.min())}" if self.overlaps.size else ""
        return paragraph(title, largest, least)

    @property
    def growth(self) -> NDArray[np.float64]:
        """(Q, d) |Λ|, the factor per layer."""
        return np.abs(self.multipliers)

    @property
    def rate(self) -> NDArray[np.float64]:
        """(Q, d) γ = log|Λ| per layer; −inf for Λ = 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.growth)

    @property
    def phases(self) -> NDArray[np.float64]:
        """(Q, d) ω = arg Λ in (−π, π], radians per layer."""
        return np.angle(self.multipliers)

    @property
    def condition(self) -> NDArray[np.float64]:
        """(Q, d) |w||v|/|wᴴv|: a perturbation E of J moves Λ by at most this times ‖E‖; inf where defective."""
        size = np.linalg.norm(self.left, axis=-2)
        return np.where(np.isnan(size), np.inf, size)

    @property
    def phase_velocity(self) -> NDArray[np.float64]:
        """−ω/q, tokens per layer: (Q, d) on a ring; −ωq/|q|², (Q, d, D), on a torus. NaN at q = 0."""
        q = self._vectors()
        square = (q**2).sum(axis=-1, keepdims=True)
        inverse = np.divide(q, square, out=np.full_like(q, np.nan), where=square > 0)
        return self._by_axis(-self.phases[..., None] * inverse[:, None, :])

    @property
    def group_velocity(self) -> NDArray[np.float64]:
        """−dω/dq = −Im(Λ'/Λ), the velocity of an envelope in tokens per layer: (Q, d) on a ring, (Q, d, D) on a torus.

        NaN where Λ is zero or defective.
        """
        return self._by_axis(-self._logarithmic_slope.imag)

    @property
    def rate_slope(self) -> NDArray[np.float64]:
        """dγ/dq = Re(Λ'/Λ): (Q, d) on a ring, (Q, d, D) on a torus; NaN where Λ is zero or defective."""
        return self._by_axis(self._logarithmic_slope.real)

    @cached_property
    def slopes(self) -> NDArray[np.complex128]:
        """(Q, d, D) dΛ/dq = wᴴ (dJ/dq) v / wᴴv on each axis."""
        axes = [derivative(self.relation, self.q, axis) for axis in range(len(self.relation.shape))]
        values = [np.einsum("qab,qac,qcb->qb", self.left.conj(), slope, self.right) for slope in axes]
        return frozen(np.stack(values, axis=-1))

    @cached_property
    def _logarithmic_slope(self) -> NDArray[np.complex128]:
        multipliers = self.multipliers[..., None]
        nothing = np.full_like(self.slopes, complex(np.nan, np.nan))
        return np.divide(self.slopes, multipliers, out=nothing, where=multipliers != 0)

    def plot(self, ax: Axes | None = None, quantity: str = "growth") -> Axes:
        """Draw the branches against q, or along the path on a torus.

        Parameters
        ----------
        ax : Axes, optional
            The axes, by default those of a new figure.
        quantity : str
            'growth' for |Λ| or 'phase' for arg Λ.

        Returns
        -------
        Axes
            The axes.
        """
        drawn = {
            "growth": (self.growth, 1.0, r"growth $|\Lambda|$"),
            "phase": (self.phases, 0.0, r"phase $\omega$ (rad/layer)"),
        }
        choice("quantity", quantity, drawn)
        ax = axes_for(ax)
        values, level, label = drawn[quantity]
        steps = np.linalg.norm(np.diff(self._vectors(), axis=0), axis=-1)
        ring = self.q.ndim == 1
        ax.axhline(level, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
        ax.plot(self.q if ring else np.append(0.0, np.cumsum(steps)), values, linewidth=1.2)
        ax.set(xlabel="wavenumber $q$" if ring else "path length in $q$", ylabel=label)
        return ax

    def _vectors(self) -> NDArray[np.float64]:
        """(Q, D)."""
        return self.q.reshape(len(self.q), -1)

    def _by_axis(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values[..., 0] if self.q.ndim == 1 else values


@harmless_underflow
def branches(relation: Dispersion, q: ArrayLike | None = None, tolerance: float = DEGENERATE) -> Branches:
    """Follow the eigenvalues of a `relation` along the wavenumbers `q` by the overlap of left and right eigenvectors.

    Parameters
    ----------
    relation : Dispersion
        As `dispersion_relation` makes it.
    q : (Q,) or (Q, D) array_like, optional
        (Q,) on a ring, (Q, D) a path on a torus, at least one; by default 8N+1 values on [0, π] of a ring.
    tolerance : float
        That of `degenerate_groups`. Inside a group vectors are rotated to their neighbours, and only there.

    Returns
    -------
    Branches
        Multipliers and vectors by branch, continuous along q.

    Notes
    -----
    Branches i, j of neighbouring q overlap by the share of |w_iᴴv_j · w_jᴴv_i| in its sum over j. Where the best match
    of all leaves one under 0.7, or two come close, the interval is halved, up to 12 times: a true crossing is passed
    straight; an avoided one is turned away from, unless it is narrower than that.
    """
    _require_dispersion(relation)
    q, tolerance = _path(relation.shape, q), real_number("tolerance", tolerance)
    values, vectors = np.linalg.eig(relation(q))
    points = [point(at, *pair) for at, *pair in zip(q, values, vectors, strict=True)]
    # start where the branches are furthest apart and go both ways
    start = int(np.argmax([separation(found.multipliers) for found in points]))
    line, overlaps = {start: points[start]}, np.ones((max(len(q) - 1, 0), relation.d))
    for step, stop in ((1, len(q)), (-1, -1)):
        for place in range(start + step, stop, step):
            before = line[place - step]
            line[place], overlap = follow(relation, before, points[place], tolerance, HALVINGS)
            overlaps[min(place, place - step)] = overlap
    ordered = [line[place] for place in range(len(q))]
    multipliers = np.array([each.multipliers for each in ordered])
    real = np.abs(multipliers.imag) <= ROUNDING * np.abs(multipliers).max(axis=-1, keepdims=True)
    multipliers.imag[real] = 0.0  # else ω of a negative one would hop between π and −π
    left = np.array([each.left for each in ordered])
    defective = np.linalg.norm(left, axis=-2, keepdims=True) > 1 / DEFECTIVE
    return Branches(
        relation,
        frozen(q),
        frozen(multipliers),
        frozen(np.array([each.right for each in ordered])),
        frozen(np.where(defective, np.nan, left)),
        frozen(overlaps),
    )


def _path(shape: tuple[int, ...], q: ArrayLike | None) -> NDArray[np.float64]:
    D = len(shape)
    if q is None and D == 1:
        return np.linspace(0, np.pi, 8 * shape[0] + 1)
    path = np.array(np.nan if q is None else real_array("q", q))
    if path.ndim != min(D, 2) or path.shape[1:] != (D,) * (D > 1) or not path.size or not np.isfinite(path).all():
        wanted = "(Q,)" if D == 1 else f"(Q, {D})"
        raise ArgumentError("q", f"shape {path.shape}", f"finite wavenumbers of shape {wanted}")
    return path


def _require_dispersion(relation: Dispersion) -> None:
    if not isinstance(relation, Dispersion):
        raise ArgumentError("relation", type(relation).__name__, "a Dispersion, as dispersion_relation makes it")
