"""Positional kernels on a ring: logits by lag, attention weights, and the symbol λ(q)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import ArgumentError, frozen, real_number, whole_number


@dataclass(frozen=True, eq=False)
class Kernel:
    """Positional logits b_r on a ring of N tokens, lag r = i − j (query minus key).

    logits : (N,) float64, entry r mod N is b_r. −inf removes a lag; NaN and +inf are refused.
    causal : which representative a lag has in λ(q) away from the grid: 0 … N−1 if true,
        −N/2 ≤ r < N/2 if false. On the grid q = 2πk/N both give the same symbol.

    Kernels mix by their logits: `4 * ((1 - w) * near + w * far)` has the logits
    4[(1−w)b_near + w b_far]. An ArgumentError names what cannot be used.
    """

    logits: NDArray[np.float64]
    causal: bool = False

    def __post_init__(self) -> None:
        try:
            if np.iscomplexobj(self.logits):
                raise TypeError
            logits = np.array(self.logits, dtype=np.float64)
        except (TypeError, ValueError):
            raise ArgumentError("logits", f"{type(self.logits).__name__} that is not real", "real numbers") from None
        if logits.ndim != 1 or logits.size < 2:
            raise ArgumentError("logits", f"shape {logits.shape}", "one number for each lag, shape (N,) with N ≥ 2")
        if np.isnan(logits).any() or (logits == np.inf).any():
            raise ArgumentError("logits", "NaN or +inf", "finite numbers, or −inf to remove a lag")
        if (logits == -np.inf).all():
            raise ArgumentError("logits", "−inf at every lag", "at least one finite number")
        object.__setattr__(self, "logits", frozen(logits))

    @property
    def n(self) -> int:
        """Number of tokens N on the ring."""
        return self.logits.size

    @property
    def lags(self) -> NDArray[np.int64]:
        """(N,) the representative lag of each entry of `logits`."""
        return ring_lags(self.n, self.causal)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """(N,) attention weights A_r = softmax(b)_r at a homogeneous state, indexed by r mod N."""
        weights = np.exp(self.logits - self.logits.max())
        return frozen(weights / weights.sum())

    @cached_property
    def symbol(self) -> NDArray[np.complex128]:
        """(N,) λ(2πk/N) = Σ_r A_r e^{−2πikr/N}, k = 0 … N−1 (Eq. 7)."""
        symbol: NDArray[np.complex128] = np.fft.fft(self.weights)
        return frozen(symbol.real.astype(complex) if self.symmetric else symbol)

    def __call__(self, q: ArrayLike) -> NDArray[np.complex128]:
        """λ(q) = Σ_r A_r e^{−iqr} summed over the N lags, at any real or complex q (shape kept)."""
        q = np.asarray(q)
        return np.exp(-1j * q[..., None] * self.lags) @ self.weights.astype(complex)

    @cached_property
    def symmetric(self) -> bool:
        """Whether A_r = A_{−r} on the ring to rounding, so that λ is real on the grid."""
        mirrored = np.roll(self.weights[::-1], 1)
        return bool(np.abs(self.weights - mirrored).max() <= 64 * np.finfo(float).eps * self.weights.max())

    def __add__(self, other: Kernel) -> Kernel:
        if not isinstance(other, Kernel):
            return NotImplemented
        if self.n != other.n or self.causal != other.causal:
            got = f"{other.n} tokens, causal={other.causal}"
            raise ArgumentError("kernel", got, f"a kernel like the first: {self.n} tokens, causal={self.causal}")
        return Kernel(self.logits + other.logits, self.causal)

    def __mul__(self, strength: float) -> Kernel:
        strength, removed = real_number("strength", strength), self.logits == -np.inf
        return Kernel(np.where(removed, -np.inf, strength * np.where(removed, 0.0, self.logits)), self.causal)

    __rmul__ = __mul__

    @classmethod
    def table(cls, logits: ArrayLike, causal: bool = False) -> Kernel:
        """The kernel with these `logits`, (N,), entry r mod N being b_r, r = i − j; `causal` as in `Kernel`."""
        return cls(logits, causal)  # type: ignore[arg-type]

    @classmethod
    def uniform(cls, n: int) -> Kernel:
        """No positional encoding on `n` tokens: b = 0, so λ(q) = δ_{q0} on the grid (Eq. 6)."""
        return cls(np.zeros(whole_number("n", n, 2)))

    @classmethod
    def gaussian_lobes(cls, n: int, separation: float, width: float, strength: float) -> Kernel:
        """Two lobes at lags ±Δ: b_r = s[e^{−(r−Δ)²/2w²} + e^{−(r+Δ)²/2w²}] (App. I.2).

        n : tokens; separation : Δ, in tokens; width : w > 0, in tokens; strength : s, a logit.
        """
        lags = ring_lags(whole_number("n", n, 2))
        separation = real_number("separation", separation)
        width = real_number("width", width, positive=True)
        lobes = sum(np.exp(-((lags - centre) ** 2) / (2 * width**2)) for centre in (separation, -separation))
        return cls(real_number("strength", strength) * lobes)

    @classmethod
    def skewed_lobe(cls, n: int, separation: float, width_below: float, width_above: float, strength: float) -> Kernel:
        """One lobe at lag Δ with two widths: b_r = s e^{−(r−Δ)²/2ζ²}, ζ = `width_below` for r ≤ Δ,
        `width_above` for r > Δ, −N/2 ≤ r < N/2. Directional: its waves travel.

        n : tokens; separation : Δ; width_below, width_above : ζ > 0, in tokens; strength : s, a logit.
        """
        lags = ring_lags(whole_number("n", n, 2))
        separation = real_number("separation", separation)
        below = real_number("width_below", width_below, positive=True)
        above = real_number("width_above", width_above, positive=True)
        width = np.where(lags <= separation, below, above)
        return cls(real_number("strength", strength) * np.exp(-((lags - separation) ** 2) / (2 * width**2)))

    @classmethod
    def alibi(cls, n: int, slope: float, causal: bool = False) -> Kernel:
        """ALiBi: b_r = −m|r| with −N/2 ≤ r < N/2, or b_r = −m r with 0 ≤ r < N if `causal`.

        n : tokens; slope : m, logit per token.
        """
        lags = ring_lags(whole_number("n", n, 2), causal)
        return cls(-real_number("slope", slope) * np.abs(lags), causal)

    @classmethod
    def von_mises(cls, n: int, wavenumber: int, strength: float, phase: float = 0.0) -> Kernel:
        """b_r = s cos(q_0 r − φ), q_0 = 2πk_0/N with the whole number k_0 = `wavenumber`.

        n : tokens; strength : s, a logit; phase : φ in radians.
        """
        n = whole_number("n", n, 2)
        wavenumber = grid_index("wavenumber", wavenumber, n)
        angle = 2 * np.pi * wavenumber * np.arange(n) / n - real_number("phase", phase)
        return cls(real_number("strength", strength) * np.cos(angle))


def ring_lags(n: int, causal: bool = False) -> NDArray[np.int64]:
    """(n,) lag of each index r mod n: 0 … n−1 if `causal`, else in [−n/2, n/2)."""
    lags = np.arange(n)
    return lags if causal else (lags + n // 2) % n - n // 2


def grid_index(argument: str, k: object, n: int) -> int:
    """The whole wavenumber `k`, refused unless |k| ≤ n/2 or 0 ≤ k < n, as 0 ≤ k < n."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not -(n // 2) <= k < n:
        raise ArgumentError(argument, repr(k), f"a whole wavenumber of the grid, 0 … {n - 1} (or −{n // 2} … −1)")
    return int(k) % n
