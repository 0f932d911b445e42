"""What the arms of one seed share: the directions of features and all weights that no arm engineers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import RNG, frozen_array, generator, real_number, whole_number
from dispersion.noun import Noun

Floats = NDArray[np.float64]
ORTHONORMAL = 1e-9
"""How far products of columns may be from 0 and 1."""


@dataclass(frozen=True, eq=False)
class Frame(Noun):
    """Random weights that all arms of one seed have in common, so that arms differ by what they engineer alone.

    Parameters
    ----------
    basis : (d, d) array_like
        Orthonormal columns, the directions in which blocks are engineered and tokens coded: head h has the columns
        h·d_h … (h+1)·d_h − 1, d_h = d/H.
    queries, keys : (H, d_h, d) array_like
        Q_h and K_h of the content logits.
    values : (H, d_h, d) array_like
        V_h of the standard initialisation.
    outputs : (H, d, d_h) array_like
        O_h of the standard initialisation.
    hidden : (m, d) array_like
        G, orthonormal columns, of the engineered feed-forward.
    weight_in : (m, d) array_like
        W_in of the standard initialisation.
    weight_out : (d, m) array_like
        W_out of the standard initialisation.
    """

    basis: Floats
    queries: Floats
    keys: Floats
    values: Floats
    outputs: Floats
    hidden: Floats
    weight_in: Floats
    weight_out: Floats

    def __post_init__(self) -> None:
        d = len(frozen_array("basis", self.basis, (None, None)))
        heads, d_h, _ = frozen_array("queries", self.queries, (None, None, d)).shape
        m = len(frozen_array("hidden", self.hidden, (None, d)))
        if heads * d_h != d:
            raise ArgumentError("queries", f"{heads} heads of width {d_h}", f"heads of width d/H, d = {d}")
        shapes: dict[str, tuple[int, ...]] = {
            "basis": (d, d),
            "queries": (heads, d_h, d),
            "keys": (heads, d_h, d),
            "values": (heads, d_h, d),
            "outputs": (heads, d, d_h),
            "hidden": (m, d),
            "weight_in": (m, d),
            "weight_out": (d, m),
        }
        for name, shape in shapes.items():
            object.__setattr__(self, name, frozen_array(name, getattr(self, name), shape))
        for name in ("basis", "hidden"):
            columns = getattr(self, name)
            if np.abs(columns.T @ columns - np.eye(d)).max() > ORTHONORMAL:
                raise ArgumentError(name, "columns that are not orthonormal", "orthonormal columns, as of Frame.draw")

    @classmethod
    def draw(cls, d: int = 32, heads: int = 4, width: int | None = None, content: float = 1.0, rng: RNG = 0) -> Frame:
        """A frame drawn at random.

        Orthonormal parts are uniform (Haar). Q_h and K_h are normal with variance content²/d, the standard weights
        are uniform as those of nn.Linear.

        Parameters
        ----------
        d : int
            Number of features, a multiple of `heads`.
        heads : int
            Number of heads H.
        width : int, optional
            m, hidden units of the feed-forward, d or more; 2d by default.
        content : float
            Scale of the queries and keys.
        rng : int or numpy.random.Generator
            Source of randomness.

        Raises
        ------
        ArgumentError
            If the sizes do not fit.
        """
        heads, d = whole_number("heads", heads, 1), whole_number("d", d, 1)
        if d % heads:
            raise ArgumentError("d", d, f"a multiple of the number of heads, {heads}")
        m = whole_number("width", 2 * d if width is None else width, d)
        content = real_number("content", content)
        rng, d_h = generator("rng", rng), d // heads
        return cls(
            orthonormal(rng, d, d),
            content * rng.standard_normal((heads, d_h, d)) / np.sqrt(d),
            content * rng.standard_normal((heads, d_h, d)) / np.sqrt(d),
            linear(rng, d, d).reshape(heads, d_h, d),
            np.ascontiguousarray(linear(rng, d, d).reshape(d, heads, d_h).swapaxes(0, 1)),
            orthonormal(rng, m, d),
            linear(rng, m, d),
            linear(rng, d, m),
        )

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.basis)

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return len(self.queries)

    @property
    def head_width(self) -> int:
        """d_h = d/H."""
        return self.d // self.heads

    def directions(self, head: int) -> Floats:
        """(d, d_h) U of one head: its columns of `basis`.

        Parameters
        ----------
        head : int
            Which, 0 … H−1.
        """
        return self.basis[:, head * self.head_width : (head + 1) * self.head_width]


def orthonormal(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """(rows, columns) orthonormal columns, uniform (Haar)."""
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return q * np.sign(np.diagonal(r))


def linear(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """(rows, columns) uniform on ±1/√columns, as nn.Linear has it."""
    return rng.uniform(-1, 1, (rows, columns)) / np.sqrt(columns)
