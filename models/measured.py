"""J(q) of any network, from impulse responses under forward-mode differentiation.

    R_r = ∂F(X)_{j+r}/∂x_j at X = 1⊗a,   J(q) = Σ_r R_r e^{−iq·r}

One directional derivative for each feature, with an impulse at one token, gives every R_r; the dense Jacobian is never
built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import frozen
from dispersion.memory import require
from dispersion.noun import cached_property
from dispersion.quiet import beyond_float64
from dispersion.ring.relation import Spectrum
from models.inputs import Map
from models.invariance import Probe, rolled
from models.sender import MEMORY


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
    probe = Probe(fn, state, shape, boundary, memory, rng, progress, device)
    grid, (n, d) = probe.grid, probe.base.shape
    require("shape", f"responses of {n:,} tokens and {d:,} features", 8 * 4 * n * d**2)
    response = probe.derivative([probe.origin] * d, np.eye(d), "measuring J(q)")
    found = probe.invariance(probes, lambda directions: np.tensordot(directions, response, axes=1))
    # (d directions, n, d features) → (lag, feature out, feature in)
    lags = frozen(rolled(np.moveaxis(response, 0, -1), -probe.origin, grid).reshape(*grid, d, d))
    return Measured(grid, probe.state, boundary, lags, found.image, found.spread, found.defect)
