"""How far a map is from translation invariant at a homogeneous state, from its derivatives along impulses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dispersion.errors import ArgumentError, frozen, frozen_array, whole_number
from dispersion.line.chain import BOUNDARIES
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64
from models.derivative import beside, check_derivative, finite, pushed, refused
from models.device import usable
from models.inputs import Map, check_module, check_same, device_of, grid_of, plain, steady
from models.sender import MEMORY

COPIES = 12
"""How many tensors of the size of the largest in a forward pass a directional derivative is taken to hold at once."""


@dataclass(frozen=True, eq=False)
class Invariance(Noun):
    """How far a map is from one that is translation invariant, `image`, `spread` and `defect` being those of Measured.

    Parameters
    ----------
    image : (d,) ndarray
        F(1⊗a) at the token of J(q).
    spread : float
        How far F(1⊗a) at other tokens is from it.
    defect : float
        The circulant defect.
    """

    image: NDArray[np.float64]
    spread: float
    defect: float


@beyond_float64
def invariance(
    fn: Map,
    state: ArrayLike,
    shape: tuple[int, ...] | int,
    boundary: str = "periodic",
    *,
    memory: int = MEMORY,
    probes: int = 3,
    rng: int = 0,
    progress: bool | None = None,
    device: str | torch.device | None = None,
) -> Invariance:
    """How far any map of hidden states is from translation invariant at 1⊗a: what `measure` finds of it, without J(q).

    Parameters
    ----------
    fn, state, shape, boundary, memory, probes, rng, progress, device
        As in `measure`.

    Returns
    -------
    Invariance
        The defect, the spread and the image.

    Notes
    -----
    2 probes + 1 directional derivatives: an impulse at another token, and the same at the token of J(q).
    """
    probe = Probe(fn, state, shape, boundary, memory, rng, progress, device)
    return probe.invariance(probes, lambda directions: probe.derivative([probe.origin] * len(directions), directions))


class Probe:
    """A map at 1⊗a, checked, and its derivative there."""

    def __init__(
        self,
        fn: Map,
        state: ArrayLike,
        shape: tuple[int, ...] | int,
        boundary: str,
        memory: int,
        rng: int,
        progress: bool | None,
        device: str | torch.device | None,
    ) -> None:
        self.fn, self.grid, self.boundary, self.rng = fn, grid_of(shape), boundary, rng
        self.state = a = frozen_array("state", plain("state", state), (None,))
        if boundary not in BOUNDARIES:
            raise ArgumentError("boundary", repr(boundary), ", ".join(BOUNDARIES))
        if boundary != "periodic" and len(self.grid) > 1:
            raise ArgumentError("boundary", f"{boundary!r} on a torus", "'periodic': a torus has no ends")
        n, d = prod(self.grid), len(a)
        check_module(fn)
        where = device_of(fn) if device is None else usable(device)
        self.base = base = torch.tensor(a, device=where).expand(n, d).contiguous()
        self.field = np.random.default_rng([1, rng]).normal(size=(n, d)) / np.sqrt(d)
        self.run = steady(fn, base, beside(base, self.field))
        at_once = max(1, whole_number("memory", memory, 1) // (COPIES * 8 * max(self.run.largest, n * d)))
        self.origin = 0 if boundary == "periodic" else n // 2
        self.derivative = _Derivative(fn, base, at_once, sys.stderr.isatty() if progress is None else progress)

    def invariance(self, probes: int, at_origin: Callable[[NDArray], NDArray]) -> Invariance:
        """From impulses at `probes` other tokens, and the responses (k, n, d) to the same directions (k, d) at the
        origin that `at_origin` gives.
        """
        n, d = self.base.shape
        generator = np.random.default_rng(self.rng)
        others = _others(self.origin, n, self.boundary)
        tokens = generator.choice(others, min(whole_number("probes", probes, 1), n - 1, len(others)), replace=False)
        directions = generator.normal(size=(len(tokens), d)) / np.sqrt(d)
        probed = self.derivative([int(token) for token in tokens], directions)
        pairs = zip(tokens, at_origin(directions), probed, strict=True)
        defect = max(_distance(v, u, int(token), self.origin, self.grid, self.boundary) for token, v, u in pairs)
        along = self.derivative.along(torch.tensor(self.field, device=self.base.device)[None])[0]
        check_derivative(self.fn, self.base, self.run, self.field, along)
        check_same(self.fn, self.base, self.run)
        image = self.run.image
        away = np.abs(image - image[self.origin]).max() / (np.abs(image).max() or 1.0)
        return Invariance(frozen(image[self.origin].copy()), float(away), float(defect))


class _Derivative:
    """Directional derivatives of `fn` at `base`, `at_once` of them in one pass."""

    def __init__(self, fn: Map, base: Tensor, at_once: int, progress: bool) -> None:
        self.fn, self.base, self.at_once, self.progress = fn, base, at_once, progress

    def __call__(self, tokens: list[int], directions: NDArray[np.float64], label: str = "") -> NDArray[np.float64]:
        """(k, n, d) the responses to impulses `directions` (k, d), one at each of `tokens`; `label` of the bar."""
        from tqdm import tqdm

        n, d = self.base.shape
        responses = np.empty((len(tokens), n, d))
        with tqdm(total=len(tokens), desc=label, disable=not (self.progress and label), leave=False) as bar:
            for start in range(0, len(tokens), self.at_once):
                some = slice(start, min(start + self.at_once, len(tokens)))
                tangents = self.base.new_zeros((some.stop - start, n, d))
                for row, (token, direction) in enumerate(zip(tokens[some], directions[some], strict=True)):
                    tangents[row, token] = torch.as_tensor(direction, device=self.base.device)
                responses[some] = self.along(tangents)
                bar.update(len(tangents))
        return responses

    def along(self, tangents: Tensor) -> NDArray[np.float64]:
        """(k, n, d) along `tangents` (k, n, d)."""
        return finite(self._pushed(tangents))

    def _pushed(self, tangents: Tensor) -> Tensor:
        try:
            return pushed(self.fn, self.base, tangents)
        except (RuntimeError, NotImplementedError) as error:
            if len(tangents) == 1 or "forward AD" in str(error):
                raise refused(error) from None
        # something in fn cannot be batched: one at a time
        self.at_once = 1
        return torch.cat([self._pushed(tangent[None]) for tangent in tangents])


def _distance(expected: NDArray, u: NDArray, token: int, origin: int, grid: tuple[int, ...], boundary: str) -> float:
    """Relative distance of the response `u` (n, d) to an impulse at `token` from that `expected`, to the same at
    `origin`, shifted.
    """
    n = len(u)
    if boundary == "periodic":
        shifted = rolled(expected, token - origin, grid)
    else:
        step = token - origin
        overlap = slice(max(0, step), min(n, n + step))
        shifted, u = expected[overlap.start - step : overlap.stop - step], u[overlap]
    size = float(np.linalg.norm(shifted))
    return float(np.linalg.norm(u - shifted)) / (size or 1.0)


def rolled(values: NDArray, step: int, grid: tuple[int, ...]) -> NDArray:
    """`values` (n, …) moved by the displacement from token 0 to token `step`, periodically on the `grid`."""
    n = prod(grid)
    if step % n == 0:
        return values
    steps = [int(part) for part in np.unravel_index(step % n, grid)]
    moved = np.roll(values.reshape(*grid, *values.shape[1:]), steps, tuple(range(len(grid))))
    return moved.reshape(values.shape)


def _others(origin: int, n: int, boundary: str) -> NDArray[np.int64]:
    """The tokens that may be probed: all but `origin`; with ends, those of the middle half."""
    low, high = (0, n) if boundary == "periodic" else (n // 4, max(n // 4 + 2, -(-3 * n // 4)))
    return np.setdiff1d(np.arange(low, min(high, n)), [origin])
