"""J(q) of any network, from impulse responses under forward-mode differentiation.

    R_r = ∂F(X)_{j+r}/∂x_j at X = 1⊗a,   J(q) = Σ_r R_r e^{−iq·r}

One directional derivative for each feature, with an impulse at one token, gives every R_r; the dense Jacobian is never
built.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dispersion.errors import ArgumentError, frozen, frozen_array, whole_number
from dispersion.line.chain import BOUNDARIES
from dispersion.memory import require
from dispersion.noun import cached_property
from dispersion.quiet import beyond_float64
from dispersion.ring.relation import Spectrum
from models.derivative import check_derivative, pushed, refused
from models.device import usable
from models.inputs import Map, check_module, check_same, device_of, grid_of, plain, steady
from models.sender import MEMORY, STEP

COPIES = 12
"""How many tensors of the size of the largest in a forward pass a directional derivative is taken to hold at once."""


@dataclass(frozen=True, eq=False)
class Measured(Spectrum):
    """J(q) of a map measured at 1⊗`state`; growth, modes and drawing as of any Spectrum.

    Attributes
    ----------
    grid : tuple of int
        (N,) or (N_1, …, N_D).
    state : (d,) ndarray
        a.
    boundary : {'periodic', 'open', 'causal'}
        The ends of the tokens.
    response : (*grid, d, d) ndarray
        R_r, the derivative of token j + r by token j, entry r mod N; j is token 0, or the middle one with ends, where
        lags beyond them count as absent: the bulk part.
    image : (d,) ndarray
        F(1⊗a) at token j.
    spread : float
        The largest distance of F(1⊗a) at another token from `image`, relative.
    defect : float
        The circulant defect, how far the derivative is from a function of the lag: the largest distance of the response
        to an impulse at another token from the shifted one, on the tokens that both reach, relative.
    """

    grid: tuple[int, ...]
    state: NDArray[np.float64]
    boundary: str
    response: NDArray[np.float64]
    image: NDArray[np.float64]
    spread: float
    defect: float

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of the ring or (N_1, …, N_D) of the torus."""
        return self.grid

    @cached_property
    def matrices(self) -> NDArray[np.complex128]:
        """(*shape, d, d) J(q) = Σ_r R_r e^{−iq·r} on the grid."""
        matrices = np.empty(self.response.shape, dtype=complex)
        for row in range(len(self.state)):  # row by row, for fftn makes copies
            matrices[..., row, :] = np.fft.fftn(self.response[..., row, :], axes=tuple(range(len(self.grid))))
        return frozen(matrices)


@beyond_float64
def measure(
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
) -> Measured:
    """The dispersion relation of any map of hidden states, measured at the homogeneous state 1⊗a.

    Parameters
    ----------
    fn : callable
        From a float64 tensor (N, d) to one of the same shape: a module in float64 and eval mode, a function.
    state : (d,) array_like
        a.
    shape : int or tuple of int
        N, (N,) or (N_1, …, N_D), tokens in C order.
    boundary : {'periodic', 'open', 'causal'}
        'periodic', or 'open' or 'causal' for a line of tokens, where J(q) is the bulk part: the response to an impulse
        at the middle token. 'open' is also for learned absolute positions; the defect says what it leaves out.
    memory : int
        Bytes that the derivatives taken at once may fill.
    probes : int
        How many other tokens are tried for the defect, each in a random direction (with ends, in the middle half).
    rng : int
        The seed of these.
    progress : bool, optional
        A bar on standard error, by default if that is a terminal.
    device : str or torch.device, optional
        Of the states, that of the parameters of a module by default.

    Returns
    -------
    Measured
        J(q) on the grid, with the circulant defect.

    Raises
    ------
    ArgumentError
        Names what cannot be used: half precision or float32 weights, fused attention, training mode with dropout, a
        result of another shape or another from run to run, buffers that are written, a derivative that automatic
        differentiation does not see.

    Notes
    -----
    d + probes + 1 directional derivatives by torch.func.jvp, the last along a random direction, where it is compared
    with finite differences.
    """
    grid = grid_of(shape)
    a = frozen_array("state", plain("state", state), (None,))
    if boundary not in BOUNDARIES:
        raise ArgumentError("boundary", repr(boundary), ", ".join(BOUNDARIES))
    if boundary != "periodic" and len(grid) > 1:
        raise ArgumentError("boundary", f"{boundary!r} on a torus", "'periodic': a torus has no ends")
    n, d = prod(grid), len(a)
    require("shape", f"responses of {n:,} tokens and {d:,} features", 8 * 4 * n * d**2)
    probes = min(whole_number("probes", probes, 1), n - 1)
    check_module(fn)
    where = device_of(fn) if device is None else usable(device)
    base = torch.tensor(a, device=where).expand(n, d).contiguous()
    field = np.random.default_rng([1, rng]).normal(size=(n, d)) / np.sqrt(d)
    scale = STEP * (float(np.linalg.norm(a)) or 1.0)
    run = steady(fn, base, base + scale * torch.tensor(field, device=base.device))
    at_once = max(1, whole_number("memory", memory, 1) // (COPIES * 8 * max(run.largest, n * d)))
    origin = 0 if boundary == "periodic" else n // 2
    derivative = _Derivative(fn, base, at_once, sys.stderr.isatty() if progress is None else progress)

    response = derivative([origin] * d, np.eye(d), "measuring J(q)")
    generator = np.random.default_rng(rng)
    others = _others(origin, n, boundary)
    tokens = generator.choice(others, min(probes, len(others)), replace=False)
    directions = generator.normal(size=(len(tokens), d)) / np.sqrt(d)
    probed = derivative([int(token) for token in tokens], directions, "")
    pairs = zip(tokens, directions, probed, strict=True)
    defect = max(_distance(response, origin, u, v, int(token), grid, boundary) for token, v, u in pairs)
    along = derivative.along(torch.tensor(field, device=base.device)[None])[0]
    check_derivative(fn, base, run, field, along)
    check_same(fn, base, run)
    # (d directions, n, d features) → (lag, feature out, feature in)
    by_lag = _rolled(np.moveaxis(response, 0, -1), -origin, grid)
    image = run.image
    away = np.abs(image - image[origin]).max() / (np.abs(image).max() or 1.0)
    lags = frozen(by_lag.reshape(*grid, d, d))
    return Measured(grid, a, boundary, lags, frozen(image[origin].copy()), float(away), float(defect))


class _Derivative:
    """Directional derivatives of `fn` at `base`, `at_once` of them in one pass."""

    def __init__(self, fn: Map, base: Tensor, at_once: int, progress: bool) -> None:
        self.fn, self.base, self.at_once, self.progress = fn, base, at_once, progress

    def __call__(self, tokens: list[int], directions: NDArray[np.float64], label: str) -> NDArray[np.float64]:
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
        responses = self._pushed(tangents).detach().cpu().numpy().copy()
        if not np.isfinite(responses).all():
            raise ArgumentError("fn", "a derivative that is not finite at this state", "a map with a derivative there")
        return responses

    def _pushed(self, tangents: Tensor) -> Tensor:
        try:
            return pushed(self.fn, self.base, tangents)
        except (RuntimeError, NotImplementedError) as error:
            if len(tangents) == 1 or "forward AD" in str(error):
                raise refused(error) from None
        # something in fn cannot be batched: one at a time
        self.at_once = 1
        return torch.cat([self._pushed(tangent[None]) for tangent in tangents])


def _distance(
    response: NDArray, origin: int, u: NDArray, v: NDArray, token: int, grid: tuple[int, ...], boundary: str
) -> float:
    """Relative distance of the response `u` (n, d) to the impulse `v` at `token` from the one at `origin`, shifted."""
    n = len(u)
    expected = np.tensordot(v, response, axes=1)
    if boundary == "periodic":
        shifted = _rolled(expected, token - origin, grid)
    else:
        step = token - origin
        overlap = slice(max(0, step), min(n, n + step))
        shifted, u = expected[overlap.start - step : overlap.stop - step], u[overlap]
    size = float(np.linalg.norm(shifted))
    return float(np.linalg.norm(u - shifted)) / (size or 1.0)


def _rolled(values: NDArray, step: int, grid: tuple[int, ...]) -> NDArray:
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
