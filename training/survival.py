"""How much of a prior is left in a network, on one scale for every place in which it can be.

With U = 1/T and the sums over the rows that the pattern P restricts,

    s_A = ⟨A − U, P − U⟩ / |P − U|²,   s_J = 1 − |J(A) − J(P)| / |J(U) − J(P)|,   J(A) = Σ_h A_h ⊗ M_h,

1 where the pattern is kept and 0 where it is gone, with the values M_h = O_h V_h of the network as they are. For
circulant A and P, Parseval makes s_A a statement on dispersion curves (`on_the_curve`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError
from dispersion.errors import check_shape, frozen_array, instance, number_array, real_array, real_number
from training.patterns import Pattern

if TYPE_CHECKING:
    from training.encoder import Encoder

Floats = NDArray[np.float64]


def survival(
    now: Encoder, start: Encoder, pattern: Pattern, inputs: ArrayLike, spectra: bool = False
) -> Mapping[str, Floats]:
    """What of a pattern is in each layer of an encoder.

    Parameters
    ----------
    now : Encoder
        The network.
    start : Encoder
        As it was before training, with its prior.
    pattern : Pattern
        P, the yardstick; the network need not have had it as its prior.
    inputs : (B, n) int array_like
        Tokens, over which attention is averaged.
    spectra : bool
        Whether to compare spectra as well, which takes eigenvalues of (T·d)² matrices.

    Returns
    -------
    mapping
        (L,) each: `home`, s_A at the sequence without content, and `data`, s_A of the mean attention over `inputs`;
        `operator`, s_J at the sequence without content; `kept`, s_A with the attention of `start` in place of P, NaN
        where that is uniform; `size`, the mean of |M| over what is finite; `gap`, the mean of log σ(M) at open pairs
        less that at closed ones, in rows that are restricted, infinite where pairs are closed for good; and `spectral`.

    Raises
    ------
    ArgumentError
        A pattern for other tokens or heads, or one that restricts nothing.
    """
    heads, n = now.query.shape[1], now.tokens
    instance("pattern", pattern, Pattern).over(heads, n)
    home, before = now.home_attention, start.home_attention
    restricted = np.broadcast_to(pattern.restricts, (heads, n))
    target = np.broadcast_to(pattern.target, (heads, n, n))
    values = np.einsum("ldhw,lhwe->lhde", now.output, now.value)
    found = {
        "home": overlap(home, target, restricted),
        "data": overlap(now.attention(inputs).mean(axis=2), target, restricted),
        "operator": np.array([operator(*each, target, restricted) for each in zip(home, values, strict=True)]),
        "kept": overlap(home, before, restricted),
        "size": np.array([np.abs(layer[np.isfinite(layer)]).mean() for layer in now.mask]),
        "gap": _gap(now.mask, np.broadcast_to(pattern.allowed, (heads, n, n)), restricted),
    }
    if spectra:
        found["spectral"] = np.array([spectral(*each, target, restricted) for each in zip(home, values, strict=True)])
    return found


def overlap(attention: ArrayLike, target: ArrayLike, restricted: ArrayLike | None = None) -> Floats:
    """s_A = ⟨A − U, P − U⟩ / |P − U|², U = 1/T.

    Parameters
    ----------
    attention : (…, H, T, T) array_like
        A.
    target : (…, H, T, T) array_like
        P.
    restricted : (H, T) bool array_like, optional
        The rows that count, by default all.

    Returns
    -------
    (…) ndarray
        1 kept, 0 gone, more and less possible; NaN where the target is uniform in all rows that count.
    """
    A, P = real_array("attention", attention), real_array("target", target)
    if A.ndim < 3 or P.shape[-3:] != A.shape[-3:]:
        raise ArgumentError("target", f"shape {P.shape}", f"that of the attention, {A.shape}")
    rows = _rows(restricted, A.shape[-3:-1])
    U = 1 / A.shape[-1]
    moved, wanted = np.where(rows, A - U, 0), np.where(rows, P - U, 0)
    size, over = (wanted**2).sum(axis=(-3, -2, -1)), (moved * wanted).sum(axis=(-3, -2, -1))
    flat = size <= (1e-14 * A.shape[-1]) ** 2
    return np.where(flat, np.nan, over / np.where(flat, 1, size))


def operator(attention: ArrayLike, values: ArrayLike, target: ArrayLike, restricted: ArrayLike | None = None) -> float:
    """s_J = 1 − |J(A) − J(P)| / |J(U) − J(P)|, J(A) = Σ_h A_h ⊗ M_h, in the Frobenius norm.

    No (T·d)² matrix is made: |Σ_h D_h ⊗ M_h|² = Σ_{hk} ⟨D_h, D_k⟩ ⟨M_h, M_k⟩.

    Parameters
    ----------
    attention : (H, T, T) array_like
        A.
    values : (H, d, d) array_like
        M_h.
    target : (H, T, T) array_like
        P.
    restricted : (H, T) bool array_like, optional
        The rows that count, by default all.

    Returns
    -------
    float
        1 kept, 0 gone; NaN where the target acts as uniform attention does.
    """
    A, M, P, rows = _layer(attention, values, target, restricted)
    gram = np.einsum("hde,kde->hk", M, M)

    def norm(difference: Floats) -> float:
        D = np.where(rows, difference, 0).reshape(len(difference), -1)
        return float(np.sqrt(max(0.0, (gram * (D @ D.T)).sum())))

    whole = norm(1 / A.shape[-1] - P)
    return 1 - norm(A - P) / whole if whole > 0 else np.nan


def spectral(attention: ArrayLike, values: ArrayLike, target: ArrayLike, restricted: ArrayLike | None = None) -> float:
    """`operator` with the moduli of the spectra of J in place of J, in descending order: a supplement to it.

    Rows that do not count have the attention A throughout. It measures how strong a pattern is, and is blind to which
    tokens it couples.

    Parameters
    ----------
    attention, values, target, restricted : array_like
        As of `operator`.

    Returns
    -------
    float
        1 kept, 0 gone; NaN where the target has the spectrum of uniform attention.
    """
    A, M, P, rows = _layer(attention, values, target, restricted)

    def moduli(weights: Floats) -> Floats:
        n, d = A.shape[-1], M.shape[-1]
        J = np.einsum("hij,hde->idje", np.where(rows, weights, A), M).reshape(n * d, n * d)
        return np.sort(np.abs(np.linalg.eigvals(J)))[::-1]

    wanted, uniform = moduli(P), moduli(np.full_like(A, 1 / A.shape[-1]))
    whole = np.linalg.norm(uniform - wanted)
    return float(1 - np.linalg.norm(moduli(A) - wanted) / whole) if whole > 1e-12 * np.linalg.norm(wanted) else np.nan


def on_the_curve(symbol: ArrayLike, target: ArrayLike) -> float:
    """s_A of circulant A and P from their dispersion curves, by Parseval.

    s_A = Σ_{q≠0} Re(λ_A(q) λ̄_P(q)) / Σ_{q≠0} |λ_P(q)|². Where A is not circulant, that of its part by lag.

    Parameters
    ----------
    symbol, target : (…, N) array_like
        λ_A(q) and λ_P(q) on the grid of a ring, of one head or several.

    Returns
    -------
    float
        `overlap` of the attention weights; NaN where λ_P(q) = 0 for all q ≠ 0.
    """
    now, wanted = number_array("symbol", symbol), number_array("target", target)
    check_shape("target", wanted, now.shape)
    size = (np.abs(wanted[..., 1:]) ** 2).sum()
    return float((now[..., 1:] * wanted[..., 1:].conj()).real.sum() / size) if size > 0 else np.nan


def drift(
    contrast: float, rates: ArrayLike, decay: float, decoupled: bool = False, betas: tuple[float, float] = (0.9, 0.999)
) -> Floats:
    """|m| of a mask entry that nothing but weight decay moves.

    With coupled decay, as of Adam, the step is normalised by the decay term itself: |m| falls by about the learning
    rate a step, whatever the decay. With decoupled decay, as of AdamW, it falls by the factor 1 − rate · decay.

    Parameters
    ----------
    contrast : float
        |m| at first.
    rates : (steps,) array_like
        Learning rate of each step.
    decay : float
        Weight decay.
    decoupled : bool
        Whether it is that of AdamW.
    betas : (float, float)
        Of Adam, whose ε is 1e-8.

    Returns
    -------
    (steps + 1,) ndarray
        |m| before each step and after the last.
    """
    m, decay = real_number("contrast", contrast, positive=True), real_number("decay", decay)
    found, mean, square = [m], 0.0, 0.0
    for step, rate in enumerate(frozen_array("rates", rates, (None,)).tolist(), start=1):
        if decoupled:
            m *= 1 - rate * decay
        else:
            slope = decay * m
            mean, square = mean + (1 - betas[0]) * (slope - mean), betas[1] * square + (1 - betas[1]) * slope**2
            size = np.sqrt(square / (1 - betas[1] ** step)) + 1e-8
            m -= rate * mean / (1 - betas[0] ** step) / size
        found.append(m)
    return np.abs(found)


def _rows(restricted: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """(H, T, 1) the rows that count; an ArgumentError if there are none."""
    rows = np.ones(shape, dtype=bool) if restricted is None else np.asarray(restricted)
    if rows.shape != shape or rows.dtype != bool:
        raise ArgumentError("restricted", f"{rows.dtype} of shape {rows.shape}", f"bool of shape {shape}")
    if not rows.any():
        raise ArgumentError("pattern", "one that restricts no row", "one that does")
    return rows[..., None]


def _layer(
    attention: ArrayLike, values: ArrayLike, target: ArrayLike, restricted: ArrayLike | None
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    A = frozen_array("attention", attention, (None, None, None))
    M, P = frozen_array("values", values, (len(A), None, None)), frozen_array("target", target, A.shape)
    return A, M, P, _rows(restricted, A.shape[:-1])


def _gap(mask: Floats, opened: NDArray[np.bool_], restricted: NDArray[np.bool_]) -> Floats:
    """(L,) mean of log σ(M) at open pairs less that at closed ones."""
    logits = -np.logaddexp(0, -mask)
    rows = restricted[..., None]
    return np.array([layer[opened & rows].mean() - layer[~opened & rows].mean() for layer in logits])
