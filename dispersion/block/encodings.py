"""Kernels of the positional encodings, as constructors of `Kernel`.

Logits are stored by lag, query minus key. Encodings whose source counts key minus query (ConViT, T5) are given in their
own sense and turned round here. Where a source defines an encoding by distance alone, a torus has the Euclidean one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import (
    ArgumentError,
    flag,
    frozen_array,
    real_array,
    real_number,
    shown,
    whole_array,
    whole_number,
)
from dispersion.grid import grid_index, grid_lags
from dispersion.memory import require
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64, harmless_underflow

Shape = int | tuple[int, ...]
Floats = NDArray[np.float64]


class Encodings(Noun):
    """Constructors of `Kernel`, which see for the meaning of logits and lags.

    `n` or `shape` is the number of tokens of a ring or, where a tuple (N_1, …, N_D) is accepted, the shape of a torus.
    A lag is −N/2 ≤ r < N/2 on each axis, or 0 ≤ r < N if `causal`, which is for rings only.
    """

    def __init__(self, logits: Floats, causal: bool = False) -> None: ...

    @classmethod
    @beyond_float64
    def table(cls, logits: ArrayLike, causal: bool = False) -> Self:
        """The kernel with these `logits`, (N,) or (N_1, …, N_D), entry r mod N being b_r, r = i − j; `causal` as in
        `Kernel`.
        """
        return cls(logits, causal)  # type: ignore[arg-type]

    @classmethod
    @beyond_float64
    def uniform(cls, n: Shape) -> Self:
        """No positional encoding: b = 0 on `n` tokens or a torus of shape `n`, so λ(q) = δ_{q0} on the grid (Eq. 6)."""
        return cls(np.zeros(_shape("n", n)))

    @classmethod
    @beyond_float64
    def gaussian_lobes(cls, n: Shape, separation: ArrayLike, width: float, strength: float) -> Self:
        """Two lobes at lags ±Δ: b_r = s[e^{−‖r−Δ‖²/2w²} + e^{−‖r+Δ‖²/2w²}] (App. I.2).

        n : tokens, or the shape of a torus; separation : Δ in tokens, one number for each axis;
        width : w > 0, in tokens; strength : s, a logit.
        """
        lags = _lags("n", n)
        separation = _vector("separation", separation, lags.shape[-1])
        width = np.float64(real_number("width", width, positive=True))
        lobes = sum(np.exp(-((lags - centre) ** 2).sum(-1) / (2 * width**2)) for centre in (separation, -separation))
        return cls(real_number("strength", strength) * lobes)

    @classmethod
    @beyond_float64
    def skewed_lobe(cls, n: int, separation: float, width_below: float, width_above: float, strength: float) -> Self:
        """One lobe at lag Δ with two widths: b_r = s e^{−(r−Δ)²/2ζ²}, ζ = `width_below` for r ≤ Δ,
        `width_above` for r > Δ, −N/2 ≤ r < N/2. Directional: its waves travel.

        n : tokens; separation : Δ; width_below, width_above : ζ > 0, in tokens; strength : s, a logit.
        """
        lags = _ring("n", n)
        separation = real_number("separation", separation)
        below = real_number("width_below", width_below, positive=True)
        above = real_number("width_above", width_above, positive=True)
        width = np.where(lags <= separation, below, above)
        return cls(real_number("strength", strength) * np.exp(-((lags - separation) ** 2) / (2 * width**2)))

    @classmethod
    @beyond_float64
    def von_mises(cls, n: Shape, wavenumber: int | tuple[int, ...], strength: float, phase: float = 0.0) -> Self:
        """b_r = s cos(q_0·r − φ), q_0 = 2πk_0/N with the whole number k_0 = `wavenumber`, a tuple on a torus.

        n : tokens, or the shape of a torus; strength : s, a logit; phase : φ in radians.
        """
        shape = _shape("n", n)
        index = grid_index("wavenumber", wavenumber, shape)
        q = 2 * np.pi * np.array(np.unravel_index(index, shape)) / np.array(shape)
        angle = _lags("n", n) @ q - real_number("phase", phase)
        return cls(real_number("strength", strength) * np.cos(angle))

    @classmethod
    @beyond_float64
    def alibi(cls, n: Shape, slope: float, causal: bool = False) -> Self:
        """ALiBi (arXiv 2108.12409): b_r = −m‖r‖ with −N/2 ≤ r < N/2, or b_r = −m r with 0 ≤ r < N if `causal`.
        On a torus ‖r‖ is Euclidean, as in 2D-ALiBi (arXiv 2311.00566).

        n : tokens, or the shape of a torus; slope : m, logit per token; those of H heads are `alibi_slopes(H)`.
        """
        return cls(-real_number("slope", slope) * _distance("n", n, causal), causal)

    @classmethod
    @beyond_float64
    def kerple_log(cls, n: Shape, r1: float, r2: float, causal: bool = False) -> Self:
        """KERPLE, logarithmic (arXiv 2205.09921): b_r = −r_1 log(1 + r_2‖r‖), so A_r ∝ (1 + r_2‖r‖)^{−r_1}.

        n : tokens, or the shape of a torus; r1 > 0, a logit; r2 > 0, per token; causal : lags 0 … N−1 only.
        """
        r1, r2 = real_number("r1", r1, positive=True), real_number("r2", r2, positive=True)
        return cls(-r1 * np.log1p(r2 * _distance("n", n, causal)), causal)

    @classmethod
    @beyond_float64
    def kerple_power(cls, n: Shape, r1: float, r2: float, causal: bool = False) -> Self:
        """KERPLE, power (arXiv 2205.09921): b_r = −r_1‖r‖^{r_2}; r_2 = 1 is ALiBi, r_2 = 2 a Gaussian.

        n : tokens, or the shape of a torus; r1 > 0; 0 < r2 ≤ 2, beyond which the kernel is not conditionally positive
        definite; causal : lags 0 … N−1 only.
        """
        r1, r2 = real_number("r1", r1, positive=True), real_number("r2", r2, positive=True)
        if r2 > 2:
            raise ArgumentError("r2", r2, "0 < r2 ≤ 2")
        return cls(-r1 * _distance("n", n, causal) ** r2, causal)

    @classmethod
    @beyond_float64
    def fire(cls, n: int, mlp: Callable[[Floats], ArrayLike], c: float, threshold: float, causal: bool = True) -> Self:
        """FIRE (arXiv 2310.04418): b_ij = f(ψ(i−j) / ψ(max(L, i))), ψ(x) = log(1 + cx), positions 1 … N. It depends on
        i − j alone only while i ≤ L, so L ≥ N is needed; then b_r = f(ψ(r)/ψ(L)).

        n : tokens; mlp : f, from (N,) in [0, 1] to (N,) logits, such as `relu_mlp`; c > 0, per token; threshold :
        L ≥ N, in tokens; causal : lags 0 … N−1, else f acts on ψ(|r|), −N/2 ≤ r < N/2.
        """
        if not callable(mlp):
            raise ArgumentError("mlp", shown(mlp), "a function of an array")
        distance, c = _distance("n", whole_number("n", n, 2), causal), real_number("c", c, positive=True)
        threshold = real_number("threshold", threshold)
        if threshold < n:
            accepted = f"L ≥ n = {n}: past L the logits depend on the query's own position, which no kernel represents"
            raise ArgumentError("threshold", threshold, accepted)
        return cls(frozen_array("mlp", mlp(np.log1p(c * distance) / np.log1p(c * threshold)), (n,)), causal)

    @classmethod
    @beyond_float64
    def convit(cls, shape: Shape, centre: ArrayLike, strength: float) -> Self:
        """ConViT's positional attention (arXiv 2103.10697): b = −α‖δ − Δ‖², δ = key − query, −N/2 ≤ δ < N/2. Up to a
        constant this is v·(‖δ‖², δ_1, …, δ_D) with v = −α(1, −2Δ_1, …, −2Δ_D), the paper's initialisation.

        shape : tokens, or the shape of a torus; centre : Δ, the offset attended to, one number for each axis;
        strength : α, the locality strength, a logit per token².
        """
        offsets = _offsets("shape", shape)
        centre = _vector("centre", centre, offsets.shape[-1])
        return cls(-real_number("strength", strength) * ((offsets - centre) ** 2).sum(-1))

    @classmethod
    @beyond_float64
    def convit_learned(cls, shape: Shape, weights: ArrayLike) -> Self:
        """ConViT's positional attention as trained: b = v·(‖δ‖², δ_1, …, δ_D), δ = key − query, −N/2 ≤ δ < N/2.

        shape : tokens, or the shape of a torus; weights : v, (1 + D,), in the paper's order. The reference code keeps
        the row (δ_column, δ_row, ‖δ‖²): give it reversed. Its bias is the same for every lag and drops out.
        """
        offsets = _offsets("shape", shape)
        weights = frozen_array("weights", weights, (1 + offsets.shape[-1],))
        return cls((offsets**2).sum(-1) * weights[0] + offsets @ weights[1:])

    @classmethod
    @beyond_float64
    def t5(cls, n: int, table: ArrayLike, max_distance: int = 128, bidirectional: bool = True) -> Self:
        """T5 relative attention bias (arXiv 1910.10683): b = `table`[t5_bucket(δ)], δ = key − query.

        n : tokens; table : (buckets,) logits of one head, 32 in T5; max_distance : from where on all share a bucket;
        bidirectional : encoder, −N/2 ≤ δ < N/2. Otherwise decoder, and the kernel is causal: δ = 0, −1, …, −(N−1).
        """
        table, bidirectional = frozen_array("table", table, (None,)), flag("bidirectional", bidirectional)
        offsets = _offsets("n", whole_number("n", n, 2))[..., 0] if bidirectional else -_ring("n", n, causal=True)
        return cls(table[_bucket("table", offsets, len(table), max_distance, bidirectional)], not bidirectional)

    @classmethod
    @beyond_float64
    def swin(cls, shape: Shape, table: ArrayLike) -> Self:
        """Swin's relative position bias (arXiv 2103.14030) on a sliding window of M_1 × … × M_D:
        b_r = `table`[r + M − 1], r = query − key, for |r| < M on every axis, and −inf outside. The fixed edges of
        Swin's own windows are left out: no kernel represents them.

        shape : tokens, or the shape of a torus; table : (2M_1−1, …, 2M_D−1) logits of one head. Where N < 2M − 1 two
        lags meet on the ring: their entries must agree.
        """
        shape = _shape("shape", shape)
        table = frozen_array("table", table, (None,) * len(shape))
        if not all(size % 2 for size in table.shape):
            raise ArgumentError("table", f"shape {table.shape}", "odd lengths 2M − 1, one for each axis of the torus")
        lags = [np.arange(size) - size // 2 for size in table.shape]
        entries = np.ix_(*(lag % n for lag, n in zip(lags, shape, strict=True)))
        logits = np.full(shape, -np.inf)
        logits[entries] = table
        if not np.allclose(logits[entries], table, rtol=1e-12, atol=1e-12):
            need = " × ".join(str(size) for size in table.shape)
            accepted = f"a torus of at least {need}, where r and r − N are not both in the window, or an open boundary"
            raise ArgumentError("shape", shape, accepted)
        return cls(logits)

    @classmethod
    @beyond_float64
    def mask(cls, m: ArrayLike, causal: bool = False) -> Self:
        """A learnable mask by lag (arXiv 2608.00418): b_r = log σ(m_r), to be added to another kernel: `kernel + mask`.

        m : (N,) or (N_1, …, N_D), entry r mod N for lag r; −inf removes a lag; causal as in `Kernel`.
        """
        return cls(mask_logits(m), causal)


@harmless_underflow
def alibi_slopes(heads: int) -> Floats:
    """The standard ALiBi slopes (arXiv 2108.12409), (heads,): 2^{−8h/H}, h = 1 … H, if H = `heads` is a power of two.
    Else those of the power P below H, then every other one of 2P: 2^{−8(h−1/2)/P}, h = 1 … H−P.
    """
    heads = whole_number("heads", heads, 1)
    require("heads", f"{heads:,} heads", 64 * heads)
    power = 1 << (heads.bit_length() - 1)
    exponents = np.concatenate([np.arange(1, power + 1), np.arange(1, heads - power + 1) - 0.5])
    return np.exp2(-8 * exponents / power)


@harmless_underflow
def t5_bucket(
    relative_position: ArrayLike, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> NDArray[np.int64]:
    """The T5 bucket of each `relative_position` (…), whole numbers, key − query (arXiv 1910.10683).

    If `bidirectional`, the lower half of the `buckets` is for keys before the query and at it, the upper half for keys
    after it; else all are for keys before it, and keys after it count as distance 0. Of the K buckets of a side
    E = ⌊K/2⌋ hold one distance each, 0 … E−1; the others are E + ⌊(K−E) log(distance/E) / log(max_distance/E)⌋ < K.
    """
    offsets = whole_array("relative_position", relative_position, "whole numbers, key − query")
    return _bucket("buckets", offsets, buckets, max_distance, flag("bidirectional", bidirectional))


def _bucket(argument: str, offsets: NDArray[np.int64], buckets: int, max_distance: int, two: bool) -> NDArray[np.int64]:
    """`t5_bucket`, with `buckets` called `argument` in errors."""
    one_side = whole_number(argument, buckets, 4 if two else 2) // (2 if two else 1)
    exact = one_side // 2
    reach = whole_number("max_distance", max_distance, exact + 1)
    distance = np.abs(offsets) if two else np.maximum(-offsets, 0)
    fraction = np.log(np.maximum(distance, exact) / exact) / np.log(reach / exact)
    # 1e-9 puts a distance that sits on an edge, such as 16 = 8·16^{1/4}, above it as exact arithmetic does
    logarithmic = exact + np.floor((one_side - exact) * fraction + 1e-9).astype(np.int64)
    bucket = np.where(distance < exact, distance, np.minimum(logarithmic, one_side - 1))
    return bucket + one_side * (two & (offsets > 0))


@harmless_underflow
def relu_mlp(weight_in: ArrayLike, bias_in: ArrayLike, weight_out: ArrayLike) -> Callable[[Floats], Floats]:
    """The function x ↦ Σ_k `weight_out`_k max(0, `weight_in`_k x + `bias_in`_k), each (hidden,): FIRE's f for one head.
    An outer bias is the same for every lag and drops out.
    """
    inner = frozen_array("weight_in", weight_in, (None,))
    bias = frozen_array("bias_in", bias_in, inner.shape)
    outer = frozen_array("weight_out", weight_out, inner.shape)
    return lambda x: np.maximum(0.0, real_array("x", x)[..., None] * inner + bias) @ outer


@harmless_underflow
def mask_logits(m: ArrayLike) -> Floats:
    """log σ(m) = −log(1 + e^{−m}) of a mask `m` (…), such as (N, N), to be added to the logits (arXiv 2608.00418).

    −inf removes an entry and +inf leaves it as it is; NaN is refused.
    """
    values = real_array("m", m)
    if np.isnan(values).any():
        raise ArgumentError("m", "NaN", "real numbers, or ±inf")
    return -np.logaddexp(0.0, -values)


def _shape(argument: str, value: Shape) -> tuple[int, ...]:
    """`value` as the shape of a ring or torus of two tokens or more."""
    if isinstance(value, Sequence) and len(value) > 1:
        shape = tuple(whole_number(argument, size, 1) for size in value)
        if max(shape) == 1:
            raise ArgumentError(argument, shape, "a torus of at least 2 tokens")
    else:
        shape = (whole_number(argument, value[0] if isinstance(value, Sequence) and value else value, 2),)
    require(argument, f"{prod(shape):,} tokens", 8 * (2 * len(shape) + 6) * prod(shape))
    return shape


def _ring(argument: str, n: int, causal: bool = False) -> NDArray[np.int64]:
    """(n,) lags of a ring, after checking `n`."""
    return grid_lags(_shape(argument, whole_number(argument, n, 2)), causal)


def _lags(argument: str, value: Shape, causal: bool = False) -> NDArray[np.int64]:
    """(N_1, …, N_D, D) lags, on a ring too."""
    shape = _shape(argument, value)
    if flag("causal", causal) and len(shape) > 1:
        raise ArgumentError("causal", f"True on a torus of shape {shape}", "a ring: a torus has no order")
    return grid_lags(shape, causal).reshape(*shape, len(shape))


def _distance(argument: str, value: Shape, causal: bool = False) -> Floats:
    """(N_1, …, N_D) Euclidean length of each lag."""
    return np.sqrt((_lags(argument, value, causal) ** 2).sum(-1))


def _offsets(argument: str, value: Shape) -> NDArray[np.int64]:
    """(N_1, …, N_D, D) offsets key − query by lag, each in [−N/2, N/2)."""
    n = np.array(_shape(argument, value))
    return (n // 2 - _lags(argument, value)) % n - n // 2


def _vector(argument: str, value: Any, D: int) -> Floats:
    """`value` as (D,) finite numbers; a bare number will do if D = 1."""
    return frozen_array(argument, value if isinstance(value, Iterable) or D > 1 else [value], (D,))
