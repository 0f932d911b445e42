"""The block on a chain of any length with periodic, open or causal ends (App. A.7): forward maps, Jacobians,
the core where the ends are not felt (Prop. A.2), and a bound on what exponential tails carry into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.block import Block
from dispersion.block.head import Head
from dispersion.block.kernel import Kernel, softmax
from dispersion.block.slopes import jacobian_bytes, slopes_at
from dispersion.errors import ArgumentError, choice, frozen, instance, number_array, real_number, whole_number
from dispersion.memory import require
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64, harmless_underflow

BOUNDARIES = ("periodic", "open", "causal")

STEEPEST = {
    "tanh": 1.0,
    "erf": 2 / sqrt(pi),
    "sine": 1.0,
    "relu": 1.0,
    "gelu": 1.13,
    "gelu_tanh": 1.13,
    "silu": 1.1,
    "quick_gelu": 1.1,
}
"""sup |φ'| of each activation that has one, the last four rounded up."""


@dataclass(frozen=True, eq=False)
class Chain(Noun):
    """The heads and feed-forward of a block on n tokens in a row.

    Parameters
    ----------
    block : Block
        On a ring and without gates. Its kernels say which lags exist: those they carry (`Kernel.lags`) with a finite
        logit. A block on a ring of 2n−1 tokens or more carries every lag of an open chain of n.
    n : int
        Number of tokens, at least 2; it need not be `block.n`.
    boundary : {'periodic', 'open', 'causal'}
        'periodic', lags taken mod n, which must keep them distinct (always so for n = `block.n`);
        'open', keys beyond the ends do not exist and rows are normalised over those that do;
        'causal', open and j ≤ i.

    Raises
    ------
    ArgumentError
        Names a value that cannot be used, a row left without keys among them.
    """

    block: Block
    n: int
    boundary: str

    def __post_init__(self) -> None:
        require_chain(self.block)
        object.__setattr__(self, "n", whole_number("n", self.n, 2))
        choice("boundary", self.boundary, BOUNDARIES)
        for number, head in enumerate(self.block.heads if self.boundary == "periodic" else ()):
            low, high = lag_range(positional_kernel(head))
            if low + high >= self.n:
                raise ArgumentError("n", self.n, f"more than {low + high}: lags −{low} … {high} must not wrap twice")
            if not head.query_key.periodic_on((self.n,)):
                raise ArgumentError(f"heads[{number}].rotary", "frequencies off the grid", f"multiples of 2π/{self.n}")
        heads = len(self.block.heads)
        require("n", f"{self.n}, attention weights of {heads} × {self.n:,}²", jacobian_bytes(heads, self.n, 0))
        _ = self._logits  # refuses a token without keys

    @property
    def d(self) -> int:
        """Number of features."""
        return self.block.d

    @property
    def shape(self) -> tuple[int]:
        """(n,)."""
        return (self.n,)

    @cached_property
    def _logits(self) -> list[NDArray[np.float64]]:
        kernels = [positional_kernel(head) for head in self.block.heads]
        return [frozen(chain_logits(kernel, self.n, self.boundary)) for kernel in kernels]

    def attention(self, state: ArrayLike | None = None) -> NDArray[np.float64]:
        """(heads, n, n) weights A°_ij of each head at 1⊗`state`, where all content logits but rotary ones cancel.

        Parameters
        ----------
        state : (d,) array_like, optional
            a, or a number for d = 1; zero by default.
        """
        seen = self.block.seen(self.block.homogeneous_state(state))
        kernels = [homogeneous_kernel(head, seen) for head in self.block.heads]
        return np.stack([chain_attention(kernel, self.n, self.boundary) for kernel in kernels])

    @beyond_float64
    def forward(self, x: ArrayLike) -> NDArray:
        """F(X): Eqs. 1 and 2 with the sums over the keys that exist.

        Parameters
        ----------
        x : (…, n, d) array_like
            States; (…, n) is accepted for d = 1. Complex states are accepted: F is continued analytically.

        Returns
        -------
        (…, n, d) ndarray
            The states one layer on; (…, n) for (…, n).
        """
        x = number_array("x", x)
        squeezed = self.d == 1 and x.ndim >= 1 and x.shape[-1] == self.n and x.shape[-2:] != (self.n, 1)
        if not squeezed and x.shape[-2:] != (self.n, self.d):
            also = f" or (…, {self.n})" if self.d == 1 else ""
            raise ArgumentError("x", f"shape {x.shape}", f"shape (…, {self.n}, {self.d}){also}")
        x = x[..., None] if squeezed else x
        count = x.size // (self.n * self.d)
        needed = x.itemsize * (len(self.block.heads) + 3) * count * self.n**2
        require("x", f"{count:,} states of {self.n:,} tokens", needed)
        seen, position = self.block._seen(x), np.arange(self.n)[:, None]
        heads = zip(self.block.heads, self._logits, strict=True)
        attention = [head._attention(seen, logits, position) for head, logits in heads]
        out = self.block._pointwise(x + self.block._mix(attention, seen))
        return out[..., 0] if squeezed else out

    def jacobian(self, state: ArrayLike | None = None) -> NDArray[np.float64]:
        """Derivative of F at 1⊗`state`, I⊗C + ε_a Σ_h A°_h ⊗ C M_h N_1 (Eq. 55).

        Parameters
        ----------
        state : (d,) array_like, optional
            a, or a number for d = 1; zero by default.

        Returns
        -------
        (n·d, n·d) ndarray
            Tokens before features.

        Raises
        ------
        ArgumentError
            Refuses the bytes of more than 80 % of the available memory.
        """
        needed = jacobian_bytes(len(self.block.heads), self.n, self.d)
        require("n", f"{self.n}, a Jacobian of {self.n * self.d:,}²", needed)
        return slopes_at(self.block, state).dense(self.attention(state))


@harmless_underflow
def core(block: Block, layers: int, n: int) -> slice:
    """The tokens on which open and periodic ends agree exactly after a number of layers (Prop. A.2).

    Parameters
    ----------
    block : Block
        Its kernels carry the lags −p … s.
    layers : int
        L, the number of layers.
    n : int
        Number of tokens.

    Returns
    -------
    slice
        Ls ≤ j < n − Lp, counted from zero: the left end is felt through s, the right end through p. Possibly empty.

    Notes
    -----
    Lξ < i ≤ n − Lξ, counted from one with ξ = max(p, s), lies within.
    """
    require_chain(block)
    layers, n = whole_number("layers", layers, 0), whole_number("n", n, 2)
    lows, highs = zip(*(lag_range(positional_kernel(head)) for head in block.heads), strict=True)
    start = min(layers * max(highs), n)
    return slice(start, max(start, n - layers * max(lows)))


@harmless_underflow
def tail_mass(kernel: Kernel, distance: int) -> float:
    """δ(ξ) = Σ_{|r| > ξ} A_r, the attention weight of a kernel beyond a distance.

    Parameters
    ----------
    kernel : Kernel
        Its attention weights are the A_r.
    distance : int
        ξ ≥ 0, in tokens.

    Returns
    -------
    float
        δ(ξ).
    """
    if len(instance("kernel", kernel, Kernel).shape) > 1:
        raise ArgumentError("kernel", f"a torus of {kernel.shape} tokens", "a ring of tokens")
    beyond = np.abs(kernel.lags) > whole_number("distance", distance, 0)
    return float(kernel.weights[beyond].sum())


@beyond_float64
def tail_bound(block: Block, layers: int, distance: int, radius: float) -> float:
    """A bound on |x°_j − x_j|, open against periodic ends, for Lξ ≤ j < n − Lξ after L layers (App. A.7).

    Parameters
    ----------
    block : Block
        What is iterated.
    layers : int
        L, the number of layers.
    distance : int
        ξ, in tokens.
    radius : float
        R with |x_j| ≤ R (Euclidean) in every token of every layer but the last, of both runs.

    Returns
    -------
    float
        e_L; inf where it is beyond float64.

    Notes
    -----
    The constants are derived. With δ_h the tail mass, m = ε_a‖M‖, w = ‖W‖R² (content moves a logit by at most w)
    and H of slope at most ℓ,
    e_{l+1} ≤ ℓ[ (1 + Σ_h m_h(1 + 2w_h)) e_l + Σ_h m_h e^{2w_h} δ_h · 4R(1 + w_h) ],   e_0 = 0.
    """
    require_chain(block)
    if not block.plain:
        raise ArgumentError("block", "a normalisation, rotary encoding, gate or bias", "a plain block")
    layers, radius = whole_number("layers", layers, 0), np.float64(real_number("radius", radius, positive=True))
    gain, source = 1.0, 0.0
    for head in block.heads:
        m = _branch_norm(block, head)
        w = float(np.linalg.norm(head.content, 2)) * radius**2
        gain += m * (1 + 2 * w)
        tail = tail_mass(head.kernel, distance)
        source += m * np.exp(2 * w) * tail * 4 * radius * (1 + w) if tail else 0.0
    reach = radius * (1 + sum(_branch_norm(block, head) for head in block.heads))
    slope, error = _steepest_slope(block, reach), 0.0
    for _ in range(layers):
        before, error = error, slope * (gain * error + source)
        if error == before:  # no tail, or beyond float64
            break
    return float("inf") if np.isnan(error) else float(error)


def require_chain(block: Block) -> None:
    """Refuse a `block` that has no chain: on a torus, or gated, its content branch being a mean over all tokens."""
    if len(instance("block", block, Block).shape) != 1:
        raise ArgumentError("block", f"a torus of {block.shape} tokens", "a ring of tokens")
    for number, head in enumerate(block.heads):
        if head.gate is not None:
            raise ArgumentError(f"heads[{number}].gate", head.gate, "None: on a chain")


def positional_kernel(head: Head) -> Kernel:
    """The kernel of `head` with its bias added."""
    return head.kernel if head.bias is None else Kernel(head.lag_logits, head.kernel.causal)


def homogeneous_kernel(head: Head, seen: NDArray[np.float64]) -> Kernel:
    """The kernel of `head` where every token sees `seen` (d,): its own, with a bias and rotary content logits added."""
    if head.plain:
        return head.kernel
    content = head.query_key.lag_logits(seen, head.kernel.lags[:, None])
    return Kernel(head.lag_logits + content, head.kernel.causal)


def lag_range(kernel: Kernel) -> tuple[int, int]:
    """(p, s) such that the lags with a finite logit lie in −p … s, p ≥ 0 and s ≥ 0."""
    lags = kernel.lags[np.isfinite(kernel.logits)]
    return max(0, -int(lags.min())), max(0, int(lags.max()))


def chain_logits(kernel: Kernel, n: int, boundary: str) -> NDArray[np.float64]:
    """(n, n) logits b_{i−j} of a chain of `n` tokens, −inf where `kernel` or the `boundary` has no such key.

    A token left without keys is refused with an ArgumentError.
    """
    i, j = np.indices((n, n))
    if boundary == "periodic":
        low, _ = lag_range(kernel)
        lag = (i - j + low) % n - low
    else:
        lag = i - j
    carried = (lag >= kernel.lags.min()) & (lag <= kernel.lags.max())
    if boundary == "causal":
        carried &= j <= i
    logits = np.where(carried, kernel.logits[lag % kernel.n], -np.inf)
    empty = np.flatnonzero(np.isneginf(logits).all(axis=-1))
    if empty.size:
        raise ArgumentError("kernel", f"no key for token {empty[0]} of {n}, {boundary}", "a key for each token")
    return logits


def chain_attention(kernel: Kernel, n: int, boundary: str) -> NDArray[np.float64]:
    """(n, n) weights A°_ij of `kernel` on `n` tokens with this `boundary`, each row normalised over the keys it has."""
    return softmax(chain_logits(kernel, n, boundary))


def _branch_norm(block: Block, head: Head) -> float:
    return abs(block.attention_scale) * float(np.linalg.norm(head.value, 2))


def _steepest_slope(block: Block, reach: float) -> float:
    """A bound on ‖DH(y)‖ over |y| ≤ `reach`."""
    if block.feedforward is None:
        return 1.0
    inward, outward = (np.linalg.norm(W, 2) for W in (block.feedforward.weight_in, block.feedforward.weight_out))
    activation = block.feedforward.activation
    size = inward * reach + np.abs(block.feedforward.bias_in).max()
    if activation.name == "relu_squared":
        slope = 2 * size
    elif activation.name == "polynomial":
        slope = sum(k * abs(c) * size ** (k - 1) for k, c in enumerate(activation.coefficients, start=1))
    else:
        slope = STEEPEST[activation.name]
    return float(1 + outward * slope * inward)
