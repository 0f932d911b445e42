"""The Transformer block: heads, feed-forward and normalisations, and the map F they make.

    A^h_ij(X) = softmax_j(x_iᵀ W_h x_j + b^h_{i−j})
    y_i = x_i + ε_a [Σ_h Σ_j A^h_ij(X) M_h x_j + c]                                               (Eq. 1, c = 0)
    F(X)_i = H(y_i),   H(y) = y + φ(y)                                                            (Eq. 2)

Pre-normalised: the heads see LN_1(x), and H(y) = y + φ(LN_2(y)). Post-normalised:
H(y) = LN_2(h + φ(h)), h = LN_1(y).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.feedforward import FeedForward
from dispersion.block.head import Head
from dispersion.block.normalisation import Normalisation
from dispersion.errors import (
    ArgumentError,
    choice,
    frozen,
    frozen_array,
    instance,
    number_array,
    optional_vector,
    real_array,
    real_number,
    real_states,
    states,
)
from dispersion.grid import positions
from dispersion.memory import require
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64


@dataclass(frozen=True, eq=False)
class Block(Noun):
    """A weight-tied Transformer block on a ring or torus of N tokens with d features: the map F.

    Parameters
    ----------
    heads : sequence of Head
        At least one, all of one d and one ring or torus.
    feedforward : FeedForward or None
        φ, or None for φ = 0.
    attention_scale : float
        ε_a, the residual scale of the attention branch.
    attention_norm, feedforward_norm : Normalisation or None
        LN_1 and LN_2, None for none.
    placement : str
        Where they stand, 'pre' or 'post'.
    attention_bias : (d,) array_like or None
        c, added to the attention branch, as biases of values and outputs make; None for zero.
    """

    heads: tuple[Head, ...]
    feedforward: FeedForward | None
    attention_scale: float
    attention_norm: Normalisation | None
    feedforward_norm: Normalisation | None
    placement: str
    attention_bias: NDArray[np.float64] | None

    def __init__(
        self,
        heads: Sequence[Head],
        feedforward: FeedForward | None = None,
        attention_scale: float = 1.0,
        attention_norm: Normalisation | None = None,
        feedforward_norm: Normalisation | None = None,
        placement: str = "pre",
        attention_bias: ArrayLike | None = None,
    ) -> None:
        if not isinstance(heads, Sequence) or isinstance(heads, str):
            raise ArgumentError("heads", type(heads).__name__, "a sequence of one Head or more")
        heads = tuple(heads)
        if not heads or not all(isinstance(head, Head) for head in heads):
            raise ArgumentError("heads", [type(head).__name__ for head in heads], "one Head or more")
        shape, d = heads[0].kernel.shape, heads[0].d
        for number, head in enumerate(heads):
            if (head.kernel.shape, head.d) != (shape, d):
                got = f"tokens {head.kernel.shape}, d = {head.d}"
                raise ArgumentError(f"heads[{number}]", got, f"tokens {shape}, d = {d} as in the first head")
        branches = {
            "feedforward": (feedforward, FeedForward),
            "attention_norm": (attention_norm, Normalisation),
            "feedforward_norm": (feedforward_norm, Normalisation),
        }
        for name, (part, kind) in branches.items():
            if not isinstance(part, kind | None):
                raise ArgumentError(name, type(part).__name__, f"a {kind.__name__} or None")
            if part is not None and part.d != d:
                raise ArgumentError(name, f"d = {part.d}", f"d = {d} as in the heads")
        choice("placement", placement, ("pre", "post"))
        set_field = object.__setattr__
        set_field(self, "heads", heads)
        set_field(self, "feedforward", feedforward)
        set_field(self, "attention_scale", real_number("attention_scale", attention_scale))
        set_field(self, "attention_norm", attention_norm)
        set_field(self, "feedforward_norm", feedforward_norm)
        set_field(self, "placement", placement)
        set_field(self, "attention_bias", optional_vector("attention_bias", attention_bias, d))

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of the ring or (N_1, …, N_D) of the torus of tokens, which states list in C order."""
        return self.heads[0].kernel.shape

    @property
    def n(self) -> int:
        """Number of tokens N."""
        return self.heads[0].kernel.n

    @property
    def d(self) -> int:
        """Number of features d."""
        return self.heads[0].d

    @property
    def plain(self) -> bool:
        """Whether the block is just Eqs. 1–2 on a ring: no normalisation, gate or c, and `Head.plain` heads."""
        extras = (self.attention_norm, self.feedforward_norm, self.attention_bias)
        gated = self.feedforward is not None and self.feedforward.gated
        plain = not gated and all(head.plain for head in self.heads)
        return plain and all(extra is None for extra in extras) and len(self.shape) == 1

    def save(self, path: str | PathLike[str]) -> None:
        """Write the block to the file `path`, bit for bit.

        Parameters
        ----------
        path : str or PathLike
            NAME.toml; large arrays go to NAME.npz beside it.

        Raises
        ------
        ArgumentError
            If it cannot be written.
        """
        from dispersion.block.files import save_block

        save_block(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Block:
        """The block in the TOML file `path`, as `save` or a person wrote it (docs/files.md has every key).

        Parameters
        ----------
        path : str or PathLike
            The TOML file.

        Raises
        ------
        ArgumentError
            Names the key that cannot be used, as in head[1].value.
        """
        from dispersion.block.files import load_block

        return load_block(path)

    @beyond_float64
    def forward(self, x: ArrayLike) -> NDArray:
        """F(X) for states X.

        Computed in float64 whatever the type of x. Complex states are accepted: F is continued analytically. What
        leaves float64 on the way, or was not finite, gives inf or NaN.

        Parameters
        ----------
        x : (…, N, d) array_like
            States, real or complex; (…, N) is accepted for d = 1.

        Returns
        -------
        (…, N, d) ndarray
            F(X), (…, N) for x of that shape.
        """
        require_periodic(self)
        x, squeezed = self._states(x)
        require("x", f"{x.size // (self.n * self.d):,} states of {self.n:,} tokens", forward_memory(self, x))
        seen, position = self._seen(x), positions(self.shape)
        attention = [head._attention(seen, head.positional(), position) for head in self.heads]
        out = self._pointwise(x + self._mix(attention, seen))
        return out[..., 0] if squeezed else out

    @beyond_float64
    def seen(self, x: NDArray) -> NDArray:
        """(…, d) what the heads see: LN_1(x) if pre-normalised, else x itself.

        Parameters
        ----------
        x : (…, d) ndarray
            States.
        """
        return self._seen(states("x", x, self.d))

    def _seen(self, x: NDArray) -> NDArray:
        return x if self.placement == "post" else _normalised(self.attention_norm, x)

    @beyond_float64
    def mix(self, attention: Sequence[NDArray], seen: NDArray) -> NDArray:
        """(…, n, d) the attention branch ε_a (Σ_h A_h S M_hᵀ + c).

        Parameters
        ----------
        attention : sequence of (…, n, n) ndarray
            Weights A_h, one for each head.
        seen : (…, n, d) ndarray
            S, what the heads see.
        """
        seen = states("seen", seen, None, self.d)
        if len(instance("attention", attention, Sequence)) != len(self.heads):
            raise ArgumentError("attention", f"weights of {len(attention)} heads", f"those of {len(self.heads)}")
        return self._mix([states("attention", weights, None, seen.shape[-2]) for weights in attention], seen)

    def _mix(self, attention: Sequence[NDArray], seen: NDArray) -> NDArray:
        heads = zip(attention, self.heads, strict=True)
        mixed = np.asarray(sum(head.output_value._mix(weights, seen) for weights, head in heads))
        return self.attention_scale * (mixed if self.attention_bias is None else mixed + self.attention_bias)

    @beyond_float64
    def pointwise(self, y: NDArray) -> NDArray:
        """(…, d) H(y): feed-forward and normalisations after the attention branch.

        Parameters
        ----------
        y : (…, d) ndarray
            States after the attention branch.
        """
        return self._pointwise(states("y", y, self.d))

    def _pointwise(self, y: NDArray) -> NDArray:
        if self.placement == "pre":
            return y + self._feedforward(_normalised(self.feedforward_norm, y))
        h = _normalised(self.attention_norm, y)
        return _normalised(self.feedforward_norm, h + self._feedforward(h))

    @beyond_float64
    def pointwise_jacobian(self, y: NDArray) -> NDArray[np.float64]:
        """(…, d, d) derivative DH: C at y*.

        Parameters
        ----------
        y : (…, d) ndarray
            Real states.
        """
        y, first, second = real_states("y", y, self.d), self.attention_norm, self.feedforward_norm
        if self.placement == "pre":
            return np.eye(self.d) + _chained(self._feedforward_slope(_normalised(second, y)), second, y)
        h = _normalised(first, y)
        slope = np.eye(self.d) + self._feedforward_slope(h)
        if second is not None:
            slope = second.jacobian(h + self._feedforward(h)) @ slope
        return _chained(slope, first, y)

    def seen_jacobian(self, x: NDArray) -> NDArray[np.float64]:
        """(…, d, d) derivative N_1 of `seen`.

        Parameters
        ----------
        x : (…, d) ndarray
            Real states.
        """
        x = real_states("x", x, self.d)
        norm = None if self.placement == "post" else self.attention_norm
        return np.broadcast_to(np.eye(self.d), (*x.shape, self.d)) if norm is None else norm.jacobian(x)

    @beyond_float64
    def jacobian(self, x: ArrayLike) -> NDArray[np.float64]:
        """(N·d, N·d) derivative DF at any real state.

        Parameters
        ----------
        x : (N, d) array_like
            The state; (N,) for d = 1.

        Returns
        -------
        (N·d, N·d) ndarray
            Tokens before features in both axes.

        Raises
        ------
        ArgumentError
            Where there is no derivative, ReLU at its kink or a normalisation without variance; and refuses more than 80
            % of the available memory.
        """
        from dispersion.block.derivative import value_and_jacobian

        x, _ = self._states(real_array("x", x))
        if x.ndim != 2:
            raise ArgumentError("x", f"shape {x.shape}", f"one state, ({self.n}, {self.d})")
        return value_and_jacobian(self, x)[1]

    @beyond_float64
    def attended(self, a: ArrayLike | None = None) -> NDArray[np.float64]:
        """(d,) y* = a + ε_a (Σ_h M_h LN_1(a) + c), what H acts on at the homogeneous state 1⊗a.

        Parameters
        ----------
        a : (d,) array_like or None
            A number is accepted for d = 1; zero for None.
        """
        a = self.homogeneous_state(a)
        # every row of the attention weights sums to one
        one = np.ones((1, 1))
        return a + self._mix([one] * len(self.heads), self._seen(a)[None, :])[0]

    @beyond_float64
    def homogeneous_map(self, a: ArrayLike) -> NDArray[np.float64]:
        """(d,) g(a) = H(y*): F(1⊗a) = 1⊗g(a).

        Parameters
        ----------
        a : (d,) array_like
            A number is accepted for d = 1.
        """
        return self._pointwise(self.attended(a))

    def homogeneous_state(self, a: ArrayLike | None) -> NDArray[np.float64]:
        """(d,) the features `a` of a homogeneous state as an array.

        Parameters
        ----------
        a : (d,) array_like or None
            A number is accepted for d = 1; zero for None.
        """
        if a is None:
            return frozen(np.zeros(self.d))
        state = real_array("state", a)
        return frozen_array("state", state.reshape(1) if self.d == 1 and state.ndim == 0 else state, (self.d,))

    def _feedforward(self, y: NDArray) -> NDArray:
        return np.zeros_like(y) if self.feedforward is None else self.feedforward._image(y)

    def _feedforward_slope(self, y: NDArray) -> NDArray[np.float64]:
        return np.zeros((*y.shape, self.d)) if self.feedforward is None else self.feedforward.jacobian(y)

    def _states(self, x: ArrayLike) -> tuple[NDArray, bool]:
        x = number_array("x", x)
        if x.ndim >= 2 and x.shape[-2:] == (self.n, self.d):
            return x, False
        if self.d == 1 and x.ndim >= 1 and x.shape[-1] == self.n:
            return x[..., None], True
        also = f" or (…, {self.n})" if self.d == 1 else ""
        raise ArgumentError("x", f"shape {x.shape}", f"shape (…, {self.n}, {self.d}){also}")


def forward_memory(block: Block, x: NDArray) -> int:
    """The bytes that F of states `x` (…, N, d) takes: N×N weights of all heads at once, and more as they are made."""
    pairs = x.size // block.d * block.n
    return x.dtype.itemsize * ((len(block.heads) + 3) * pairs + 6 * x.size) + 8 * 3 * block.n**2


def require_periodic(block: Block) -> None:
    """Raise an ArgumentError if a rotary frequency of `block` does not fit its ring or torus."""
    for number, head in enumerate(block.heads):
        if not head.periodic:
            accepted = f"multiples of 2π/N on tokens {block.shape}, or Chain(block, n, 'open') for a line"
            raise ArgumentError(f"heads[{number}].rotary", "frequencies off the grid", accepted)


def _normalised(norm: Normalisation | None, x: NDArray) -> NDArray:
    return x if norm is None else norm._image(x)


def _chained(slope: NDArray[np.float64], norm: Normalisation | None, x: NDArray) -> NDArray[np.float64]:
    """`slope` (…, d, d) times the derivative of `norm` at `x` (…, d)."""
    return slope if norm is None else slope @ norm.jacobian(x)
