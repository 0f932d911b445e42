"""Two equal clusters over the coefficients of a block: where they hold together, to cubic order and exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.closed_forms.cluster_states import MERGED, ClusterMap
from amplitude.closed_forms.clusters import saturation
from dispersion import ArgumentError
from dispersion.errors import broadcast, real_array, real_number
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BalancedMap(Noun):
    """Two balanced clusters over the coefficients of a block; all fields of one shape.

    Attributes
    ----------
    beta : (…) ndarray
        β_cl at onset.
    boundary : (…) ndarray
        μ = β_cl(α_2/α_3)², above which they hold together to leading order; inf where α_3 ≥ 0 or β_cl ≤ 0.
    predicted : (…) ndarray of bool
        Whether they are stable by the cubic closed form.
    values : (…, 2) ndarray
        Exact values, NaN where none were found.
    within : (…, 2) ndarray
        Exact multipliers of differences inside the upper and the lower cluster.
    between : (…, 2) complex ndarray
        Exact multipliers of the two values.
    stable : (…) ndarray of bool
        Whether they are stable exactly.
    """

    beta: Floats
    boundary: Floats
    predicted: NDArray[np.bool_]
    values: Floats
    within: Floats
    between: NDArray[np.complex128]
    stable: NDArray[np.bool_]


@beyond_float64
def balanced_map(
    alpha2: ArrayLike, alpha3: ArrayLike, eta_chi: ArrayLike, mu: ArrayLike, eta: ArrayLike = -0.6
) -> BalancedMap:
    """Whether two equal clusters are stable for H(h) = (1 + μ)h + α_2h² + α_3h³.

    GELU-type maps (α_2 ≠ 0) break them below μ = β_cl(α_2/α_3)², tanh-type ones (α_2 = 0 > α_3) keep them.

    Parameters
    ----------
    alpha2, alpha3 : array_like
        α_2 and α_3; all arguments are broadcast together.
    eta_chi : array_like
        ηχ.
    mu : array_like
        μ.
    eta : array_like
        η, −2 < η < 0.

    Returns
    -------
    BalancedMap
        Of the common shape: to cubic order and exactly.
    """
    arrays = broadcast(real_array, alpha2=alpha2, alpha3=alpha3, eta_chi=eta_chi, mu=mu, eta=eta)
    shape = arrays[0].shape
    if not arrays[0].size:
        raise ArgumentError("alpha2", f"shape {shape}", "one value or more")
    if not ((arrays[-1] > -2) & (arrays[-1] < 0)).all():
        raise ArgumentError("eta", eta, "−2 < η < 0")
    a2, a3, eta_chi, mu, eta = (array.ravel() for array in arrays)
    one = np.ones_like(a2)
    beta, mean_ratio = saturation((one, a2, a3), eta, eta_chi, one)
    holds = (a3 < 0) & (beta > 0)
    with np.errstate(over="ignore"):
        boundary = np.where(holds, beta * (a2 / np.where(holds, a3, 1)) ** 2, np.inf)
    u = np.sqrt(np.where(mu * beta > 0, mu / np.where(beta == 0, 1, beta), np.nan))
    reduced = ClusterMap(
        eta[None],
        (eta_chi / eta)[None],
        lambda h: (
            (1 + mu[:, None]) * h + a2[:, None] * h**2 + a3[:, None] * h**3,
            1 + mu[:, None] + 2 * a2[:, None] * h + 3 * a3[:, None] * h**2,
        ),
    )
    start = (mean_ratio * u**2)[:, None] + u[:, None] * np.array([1.0, -1.0])
    p = np.full((len(u), 2), 0.5)
    X, converged = reduced.solve(p, np.where(np.isfinite(start), start, 0.0))
    kept = converged & (X[:, 0] - X[:, 1] > MERGED * np.abs(X).max(axis=1)) & np.isfinite(u)
    X = np.where(kept[:, None], X, np.nan)
    _, jacobian, within = reduced.advance(p, np.where(kept[:, None], X, 0.0))
    within = np.where(kept[:, None], within, np.nan)
    kept &= np.isfinite(jacobian).all(axis=(1, 2))
    between = np.where(kept[:, None], np.linalg.eigvals(np.where(kept[:, None, None], jacobian, 0.0)), np.nan)
    stable = kept & (np.abs(np.nan_to_num(within, nan=2)).max(axis=1) < 1) & (np.abs(between).max(axis=1) < 1)
    return BalancedMap(
        beta.reshape(shape),
        boundary.reshape(shape),
        (holds & (mu > 0) & (mu > boundary)).reshape(shape),
        X.reshape(*shape, 2),
        within.reshape(*shape, 2),
        between.reshape(*shape, 2),
        stable.reshape(shape),
    )


@beyond_float64
def balanced_boundary(
    alpha2: ArrayLike, alpha3: ArrayLike, eta_chi: ArrayLike, eta: ArrayLike = -0.6, factor: float = 8.0
) -> Floats:
    """The exact μ above which two equal clusters hold together: the largest multiplier within them is 1.

    Parameters
    ----------
    alpha2, alpha3, eta_chi, eta : array_like
        α_2, α_3, ηχ and η as in `balanced_map`, broadcast together.
    factor : float
        The boundary is looked for between the cubic one, β_cl(α_2/α_3)², divided and multiplied by this, a number
        above 1; by bisection.

    Returns
    -------
    (…) ndarray
        μ, NaN where there is no such change.
    """
    arrays = broadcast(real_array, alpha2=alpha2, alpha3=alpha3, eta_chi=eta_chi, eta=eta)
    a2, a3, product, gain = arrays
    factor = real_number("factor", factor)
    if factor <= 1:
        raise ArgumentError("factor", factor, "a number above 1")

    def excess(mu: Floats) -> Floats:
        within: Floats = balanced_map(a2, a3, product, np.nan_to_num(mu), gain).within.max(axis=-1) - 1
        return within

    middle = balanced_map(a2, a3, product, 0.01, gain).boundary
    middle = np.where(np.isfinite(middle) & (middle > 0), middle, np.nan)
    low, high = middle / factor, middle * factor
    bracketed = (excess(low) > 0) & (excess(high) < 0)
    for _ in range(50):
        mu = np.sqrt(low * high)
        broken = excess(mu) > 0
        low, high = np.where(broken, mu, low), np.where(broken, high, mu)
    return np.where(bracketed, np.sqrt(low * high), np.nan)
