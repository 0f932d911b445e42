"""Positional kernels on a ring or torus: logits by lag, attention weights, and the symbol λ(q)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.encodings import (
    T5,
    Alibi,
    ConViTLearned,
    ConViTPosition,
    Encoding,
    Fire,
    Floats,
    GaussianLobes,
    KerpleLog,
    KerplePower,
    Mask,
    Shape,
    SkewedLobe,
    Swin,
    Uniform,
    VonMises,
    ring_or_torus,
)
from dispersion.errors import (
    ArgumentError,
    flag,
    frozen,
    frozen_logits,
    instance,
    number_array,
    real_number,
    whole_number,
)
from dispersion.grid import grid_lags, mirrored
from dispersion.memory import require
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64

STEEP = 700.0
"""Largest |Im q·r| at which λ(q) is computed: e^709 is the end of float64."""


@dataclass(frozen=True, eq=False)
class Kernel(Noun):
    """Positional logits b_r on a ring of N tokens, or on a torus of N_1 × … × N_D; lag r = i − j (query minus key).

    Kernels mix by their logits: `4 * ((1 - w) * near + w * far)` has the logits
    4[(1−w)b_near + w b_far]. An ArgumentError names what cannot be used.

    A kernel knows what it was made of: its `encoding`, the Encoding, or None; its `terms`, (weight, kernel) for each
    kernel of a sum or multiple. A sum of tables is a table: it has neither.

    Parameters
    ----------
    logits : (N,) or (N_1, …, N_D) array_like
        float64, entry r mod N is b_r. −inf removes a lag; NaN and +inf are refused.
    causal : bool
        Which representative a lag has in λ(q) away from the grid: 0 … N−1 if true, −N/2 ≤ r < N/2 if false, on each
        axis. On the grid q = 2πk/N both give the same symbol.
    """

    logits: NDArray[np.float64]
    causal: bool = False
    encoding: Encoding | None = field(default=None, init=False)
    terms: tuple[tuple[float, Kernel], ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        logits = frozen_logits("logits", self.logits)
        if logits.ndim < 1 or min(logits.shape) < 1 or logits.size < 2:
            accepted = "one number for each lag, shape (N,) or (N_1, …, N_D), 2 tokens or more"
            raise ArgumentError("logits", f"shape {logits.shape}", accepted)
        if np.count_nonzero(logits == -np.inf) == logits.size:
            raise ArgumentError("logits", "−inf at every lag", "at least one finite number")
        object.__setattr__(self, "logits", logits)
        object.__setattr__(self, "causal", flag("causal", self.causal))

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) for a ring, (N_1, …, N_D) for a torus."""
        return self.logits.shape

    @property
    def n(self) -> int:
        """Number of tokens, N or N_1 ⋯ N_D."""
        return self.logits.size

    @property
    def lags(self) -> NDArray[np.int64]:
        """The representative lag of each entry of `logits`: (N,) on a ring, (N_1, …, N_D, D) on a torus."""
        return grid_lags(self.shape, self.causal)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Attention weights A_r = softmax(b)_r at a homogeneous state, indexed as `logits`."""
        return frozen(softmax(self.logits, self.logits.ndim))

    @cached_property
    def symbol(self) -> NDArray[np.complex128]:
        """λ(q) = Σ_r A_r e^{−iq·r} on the grid q = 2πk/N, indexed by k, the shape of `logits` (Eq. 7)."""
        return frozen(grid_symbol(self.weights, len(self.shape)))

    def __call__(self, q: ArrayLike) -> NDArray[np.complex128]:
        """λ(q) = Σ_r A_r e^{−iq·r} summed over all lags, at any real or complex q.

        Parameters
        ----------
        q : (…) or (…, D) array_like
            Radians per token, (…) on a ring, (…, D) on a torus.

        Returns
        -------
        (…) complex ndarray
            λ(q).
        """
        return symbol_at(self.weights, self.lags, q)

    @cached_property
    def symmetric(self) -> bool:
        """Whether A_r = A_{−r} to rounding, so that λ is real on the grid."""
        return bool(is_symmetric(self.weights, len(self.shape)))

    @beyond_float64
    def __add__(self, other: Kernel) -> Kernel:
        if not isinstance(other, Kernel):
            return NotImplemented
        if self.shape != other.shape or self.causal != other.causal:
            got = f"shape {other.shape}, causal={other.causal}"
            raise ArgumentError("kernel", got, f"a kernel like the first: shape {self.shape}, causal={self.causal}")
        return self._mixed(self.logits + other.logits, self._parts + other._parts)

    @beyond_float64
    def __mul__(self, strength: float) -> Kernel:
        strength, removed = real_number("strength", strength), self.logits == -np.inf
        logits = np.where(removed, -np.inf, strength * np.where(removed, 0.0, self.logits))
        return self._mixed(logits, tuple((strength * weight, kernel) for weight, kernel in self._parts))

    __rmul__ = __mul__

    @property
    def _parts(self) -> tuple[tuple[float, Kernel], ...]:
        return self.terms or ((1.0, self),)

    def _mixed(self, logits: Floats, terms: tuple[tuple[float, Kernel], ...]) -> Kernel:
        kernel = Kernel(logits, self.causal)
        if any(term.encoding is not None for _, term in terms):
            object.__setattr__(kernel, "terms", terms)
        return kernel

    @classmethod
    @beyond_float64
    def of(cls, encoding: Encoding, n: Shape) -> Kernel:
        """The kernel of an `encoding` on a ring or torus.

        Parameters
        ----------
        encoding : Encoding
            The positional encoding.
        n : int or tuple of int
            Number of tokens, or the shape of a torus.
        """
        shape = ring_or_torus("n", n)
        kernel = cls(instance("encoding", encoding, Encoding).logits(shape), encoding.causal)
        if kernel.shape != shape:
            raise ArgumentError("encoding", f"logits of shape {kernel.shape}", f"shape {shape}, one for each lag")
        object.__setattr__(kernel, "encoding", encoding)
        return kernel

    @classmethod
    def table(cls, logits: ArrayLike, causal: bool = False) -> Kernel:
        """The kernel with these `logits`.

        Parameters
        ----------
        logits : (N,) or (N_1, …, N_D) array_like
            Entry r mod N is b_r, r = i − j.
        causal : bool
            As in `Kernel`.
        """
        return cls(logits, causal)  # type: ignore[arg-type]

    @classmethod
    def uniform(cls, n: Shape) -> Kernel:
        """No positional encoding: `Uniform` on a ring or torus.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or the shape of a torus.
        """
        return cls.of(Uniform(), n)

    @classmethod
    def gaussian_lobes(cls, n: Shape, separation: ArrayLike, width: float, strength: float) -> Kernel:
        """`GaussianLobes` on a ring or torus.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or the shape of a torus.
        separation, width, strength : float
            Those of `GaussianLobes`; `separation` is one number for each axis.
        """
        return cls.of(GaussianLobes(separation, width, strength), n)  # type: ignore[arg-type]

    @classmethod
    def skewed_lobe(cls, n: int, separation: float, width_below: float, width_above: float, strength: float) -> Kernel:
        """`SkewedLobe` on a ring.

        Parameters
        ----------
        n : int
            Number of tokens.
        separation, width_below, width_above, strength : float
            Those of `SkewedLobe`.
        """
        return cls.of(SkewedLobe(separation, width_below, width_above, strength), n)

    @classmethod
    def von_mises(cls, n: Shape, wavenumber: int | tuple[int, ...], strength: float, phase: float = 0.0) -> Kernel:
        """`VonMises` on a ring or torus.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or the shape of a torus.
        wavenumber : int or tuple of int
            That of `VonMises`, k_0, a tuple on a torus.
        strength, phase : float
            Those of `VonMises`, s and φ.
        """
        return cls.of(VonMises(wavenumber, strength, phase), n)

    @classmethod
    def alibi(cls, n: Shape, slope: float, causal: bool = False) -> Kernel:
        """`Alibi` on a ring or torus.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or the shape of a torus.
        slope : float
            That of `Alibi`, m, a logit per token.
        causal : bool
            Whether lags are 0 … N−1, on a ring.
        """
        return cls.of(Alibi(slope, causal), n)

    @classmethod
    def kerple_log(cls, n: Shape, r1: float, r2: float, causal: bool = False) -> Kernel:
        """`KerpleLog` on a ring or torus.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or the shape of a torus.
        r1, r2 : float
            Those of `KerpleLog`, a logit and per token.
        causal : bool
            Whether lags are 0 … N−1, on a ring.
        """
        return cls.of(KerpleLog(r1, r2, causal), n)

    @classmethod
    def kerple_power(cls, n: Shape, r1: float, r2: float, causal: bool = False) -> Kernel:
        """`KerplePower` on a ring or torus.

        Parameters
        ----------
        n : int or tuple of int
            Number of tokens, or the shape of a torus.
        r1, r2 : float
            Those of `KerplePower`, a logit and the power.
        causal : bool
            Whether lags are 0 … N−1, on a ring.
        """
        return cls.of(KerplePower(r1, r2, causal), n)

    @classmethod
    def fire(
        cls, n: int, mlp: Callable[[Floats], ArrayLike], c: float, threshold: float, causal: bool = True
    ) -> Kernel:
        """`Fire` on a ring.

        Parameters
        ----------
        n : int
            Number of tokens.
        mlp : callable
            That of `Fire`, f, from (N,) in [0, 1] to (N,) logits.
        c, threshold : float
            Those of `Fire`, per token and in tokens.
        causal : bool
            Whether lags are 0 … N−1.
        """
        return cls.of(Fire(mlp, c, threshold, causal), n)

    @classmethod
    def convit(cls, shape: Shape, centre: ArrayLike, strength: float) -> Kernel:
        """`ConViTPosition` on a ring or torus.

        Parameters
        ----------
        shape : int or tuple of int
            That of the tokens, a number on a ring.
        centre : float or (D,) array_like
            That of `ConViTPosition`, Δ, tokens, one number for each axis.
        strength : float
            That of `ConViTPosition`, α, a logit per token².
        """
        return cls.of(ConViTPosition(centre, strength), ring_or_torus("shape", shape))  # type: ignore[arg-type]

    @classmethod
    def convit_learned(cls, shape: Shape, weights: ArrayLike) -> Kernel:
        """`ConViTLearned` on a ring or torus.

        Parameters
        ----------
        shape : int or tuple of int
            That of the tokens, a number on a ring.
        weights : (1 + D,) array_like
            Those of `ConViTLearned`, v, in the paper's order.
        """
        return cls.of(ConViTLearned(weights), ring_or_torus("shape", shape))  # type: ignore[arg-type]

    @classmethod
    def t5(cls, n: int, table: ArrayLike, max_distance: int = 128, bidirectional: bool = True) -> Kernel:
        """`T5` on a ring.

        Parameters
        ----------
        n : int
            Number of tokens.
        table : (buckets,) array_like
            That of `T5`, logits of one head.
        max_distance : int
            From where on all share a bucket, tokens.
        bidirectional : bool
            Whether it is that of the encoder.
        """
        return cls.of(T5(table, max_distance, bidirectional), n)  # type: ignore[arg-type]

    @classmethod
    def swin(cls, shape: Shape, table: ArrayLike) -> Kernel:
        """`Swin` on a ring or torus.

        Parameters
        ----------
        shape : int or tuple of int
            That of the tokens, a number on a ring.
        table : (2M_1−1, …, 2M_D−1) array_like
            That of `Swin`, logits of one head.
        """
        return cls.of(Swin(table), ring_or_torus("shape", shape))  # type: ignore[arg-type]

    @classmethod
    def mask(cls, m: ArrayLike, causal: bool = False) -> Kernel:
        """`Mask` on as many tokens as `m` has numbers.

        Parameters
        ----------
        m : (N,) or (N_1, …, N_D) array_like
            That of `Mask`, entry r mod N for lag r.
        causal : bool
            Whether lags are 0 … N−1, on a ring.
        """
        mask = Mask(m, causal)  # type: ignore[arg-type]
        return cls.of(mask, mask.m.shape)


@beyond_float64
def symbols(logits: ArrayLike, axes: int = 1) -> NDArray[np.complex128]:
    """λ(q) on the grid of many kernels at once: what `Kernel(logits).symbol` is for one.

    Parameters
    ----------
    logits : (…, N) or (…, N_1, …, N_D) array_like
        Finite or −inf, not −inf at every lag.
    axes : int
        D, how many of the last axes are those of lags.

    Returns
    -------
    complex ndarray
        λ(q), of the same shape.
    """
    if isinstance(logits, np.ndarray):
        require("logits", f"{logits.size:,} logits", 48 * logits.size)
    logits = frozen_logits("logits", logits)
    over = tuple(range(-whole_number("axes", axes, 1), 0))
    if logits.ndim < axes or logits.size == 0:
        raise ArgumentError("logits", f"shape {logits.shape}", f"one number for each lag on the last {axes} axes")
    if np.isneginf(logits).all(axis=over).any():
        raise ArgumentError("logits", "a kernel that is −inf at every lag", "at least one finite number in each")
    return grid_symbol(softmax(logits, axes), axes)


@beyond_float64
def softmax(logits: NDArray, axes: int = 1) -> NDArray:
    """Softmax over the last `axes`; complex logits are continued analytically."""
    over = tuple(range(-axes, 0))
    weights = logits - logits.real.max(axis=over, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=over, keepdims=True)
    return weights


def grid_symbol(weights: NDArray[np.float64], axes: int) -> NDArray[np.complex128]:
    """Σ_r A_r e^{−iq·r} on the grid of `weights` (…, N_1, …, N_D), D = `axes`; real where symmetric."""
    over = tuple(range(-axes, 0))
    symbol: NDArray[np.complex128] = np.fft.fftn(weights, axes=over)
    symbol.imag[is_symmetric(weights, axes)] = 0.0
    return symbol


def symbol_at(weights: NDArray[np.float64], lags: NDArray[np.int64], q: ArrayLike) -> NDArray[np.complex128]:
    """Σ_r A_r e^{−iq·r} at `q` (…), or (…, D) if `weights` has D > 1 axes; `lags` as of `grid_lags`."""
    q, D = number_array("q", q), weights.ndim
    if not np.isfinite(q).all():
        raise ArgumentError("q", "values that are not finite", "finite wavenumbers")
    if D == 1:
        q = q[..., None]
    elif q.ndim < 1 or q.shape[-1] != D:
        raise ArgumentError("q", f"shape {q.shape}", f"shape (…, {D}), one wavenumber for each axis")
    count = q.size // D
    require("q", f"{count:,} wavenumbers of kernels with {weights.size:,} lags", 48 * count * weights.size)
    phases = q @ lags.reshape(-1, D).T.astype(float)
    if np.abs(phases.imag).max(initial=0.0) > STEEP:
        raise ArgumentError("q", f"e^(Im q·r) of up to e^{np.abs(phases.imag).max():.3g}", f"at most e^{STEEP:.0f}")
    return np.exp(-1j * phases) @ weights.ravel().astype(complex)


def is_symmetric(weights: NDArray[np.float64], axes: int) -> NDArray[np.bool_]:
    """(…) whether A_r = A_{−r} to rounding, of `weights` (…, N_1, …, N_D), D = `axes`."""
    over = tuple(range(-axes, 0))
    gap = np.abs(weights - mirrored(weights, axes)).max(axis=over)
    return np.asarray(gap <= 64 * np.finfo(float).eps * weights.max(axis=over))
