"""Masks of attention: log σ(M) of every pair of tokens, added to the logits (arXiv 2608.00418).

At a homogeneous state a head without other positional logits has the weights A_ij = σ(m_ij) / Σ_l σ(m_il), whatever
the state. Where M depends on i − j alone, λ(q) is their Fourier transform (`Kernel.mask` is the same by lag).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.encodings import mask_logits
from dispersion.block.kernel import softmax
from dispersion.errors import ArgumentError, bool_array, choice, frozen, real_array, real_number, whole_number
from dispersion.memory import require
from dispersion.noun import Noun, cached_property

Floats = NDArray[np.float64]

ROWS = ("refuse", "isolate", "free")
"""What becomes of a row that is closed everywhere: an error, a token that sees itself alone, or no restriction."""

SATURATED = 10.0
"""The contrast of arXiv 2608.00418, where σ(−c) is 5e-5."""


@dataclass(frozen=True, eq=False)
class AttentionMask(Noun):
    """A mask that does not depend on the tokens, the `bias` of a `Head`: logits log σ(m_ij).

    A softmax ignores a constant shift: a row of one number below zero, or of −inf, looks closed and restricts nothing.
    Such a row is refused, isolated or left free, as asked for.

    Parameters
    ----------
    m : (N, N) array_like
        M, query first. −inf removes a pair for good, +inf leaves it as it is.
    rows : str
        What becomes of a row closed everywhere: 'refuse'; 'isolate', the token itself is opened, by as much as the
        rest is closed; or 'free', as it is, −inf replaced by 0.

    Raises
    ------
    ArgumentError
        NaN, another shape, or a row closed everywhere under 'refuse'.
    """

    m: Floats
    rows: str = "refuse"

    def __post_init__(self) -> None:
        choice("rows", self.rows, ROWS)
        m = np.array(real_array("m", self.m))
        if m.ndim != 2 or m.shape[0] != m.shape[1] or len(m) < 2:
            raise ArgumentError("m", f"shape {m.shape}", "shape (N, N), 2 tokens or more")
        mask_logits(m)
        closed = np.flatnonzero((m == m[:, :1]).all(axis=1) & (m[:, 0] < 0))
        if len(closed) and self.rows == "refuse":
            got = f"row {closed[0]} of {m[closed[0], 0]:g} throughout"
            accepted = "an open pair in each row, or rows='isolate' or 'free': a softmax ignores a constant shift"
            raise ArgumentError("m", got, accepted)
        if self.rows == "isolate":
            m[closed, closed] *= -1
        else:
            m[closed] = np.where(np.isneginf(m[closed]), 0.0, m[closed])
        object.__setattr__(self, "m", frozen(m))

    @classmethod
    def of(cls, opened: ArrayLike, contrast: float = SATURATED, rows: str = "refuse") -> AttentionMask:
        """M = c at open pairs and −c at closed ones: saturated where c is large, soft where it is not.

        The logits of open pairs are above those of closed ones by log σ(c) − log σ(−c) = c.

        Parameters
        ----------
        opened : (N, N) bool array_like
            Open pairs.
        contrast : float
            c > 0; inf closes for good.
        rows : str
            As in `AttentionMask`.
        """
        pairs = bool_array("opened", opened)
        c = inf if isinstance(contrast, float) and contrast == inf else real_number("contrast", contrast, positive=True)
        return cls(np.where(pairs, c, -c), rows)

    @classmethod
    def neutral(cls, n: int) -> AttentionMask:
        """M = 0, which says nothing and can learn.

        Parameters
        ----------
        n : int
            N, tokens.
        """
        n = whole_number("n", n, 2)
        require("n", f"a mask of {n:,}² pairs", 32 * n**2)
        return cls(np.zeros((n, n)))

    @property
    def n(self) -> int:
        """N."""
        return len(self.m)

    @cached_property
    def logits(self) -> Floats:
        """(N, N) log σ(m_ij), 0 or less."""
        return mask_logits(self.m)

    @cached_property
    def slopes(self) -> Floats:
        """(N, N) σ(−m_ij), what a change of m_ij does to its logit: small where the mask is saturated open."""
        return np.exp(mask_logits(-self.m))

    @cached_property
    def attention(self) -> Floats:
        """(N, N) A_ij = σ(m_ij) / Σ_l σ(m_il), of a head without other logits, at any homogeneous state."""
        return softmax(self.logits)
