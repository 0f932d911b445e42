"""J(q) of a module as a tensor, and its growth, with gradients into the parameters.

    R_r = ∂F(X)_{j+r}/∂x_j at X = 1⊗a,   J(q) = Σ_r R_r e^{−iq·r},   ρ(q) = max |Λ|, Λ the eigenvalues of J(q)

`measure` gives the same numbers, checked and without gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import schur, solve_sylvester
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from dispersion.eigen import TOLERANCE
from dispersion.errors import ArgumentError, frozen_array
from dispersion.grid import grid_lags
from dispersion.line.chain import BOUNDARIES
from models.derivative import refused
from models.inputs import Map, device_of, grid_of, plain

CLUSTER = 1e-6
"""Eigenvalues closer than this, relative to the norm of J, count as one that is repeated."""
MODES = ("forward", "reverse")


def jacobian(
    module: Map,
    state: ArrayLike | Tensor,
    shape: tuple[int, ...] | int,
    q: ArrayLike | Tensor | None = None,
    boundary: str = "periodic",
    mode: str = "forward",
) -> Tensor:
    """J(q) of any map of hidden states at 1⊗a, with gradients into its parameters, the state and q.

    Parameters
    ----------
    module : callable
        From a tensor (N, d) to one of the same shape: a module of one floating-point type, a function of float64.
    state : (d,) array_like or Tensor
        a.
    shape : int or tuple of int
        N, (N,) or (N_1, …, N_D), tokens in C order.
    q : array_like or Tensor, optional
        Wavenumbers in radians per token, real or complex: (…) on a ring or line, (…, D) on a torus; by default those
        of the grid. Lags count within [−N/2, N/2).
    boundary : {'periodic', 'open', 'causal'}
        As in `measure`.
    mode : {'forward', 'reverse'}
        How DF is made: from d impulses into the token of J(q), or from d readings of it, which asks of `module` for no
        forward-mode derivative. Gradients of the result can be taken in either mode, whatever this one is, by
        backward or the transforms of torch.func.

    Returns
    -------
    (…, d, d) complex Tensor
        J(q); (*shape, d, d) on the grid.

    Raises
    ------
    ArgumentError
        Names what cannot be used. Whether the map is one is for `measure` to find: noise, or a derivative that
        automatic differentiation does not see, is not noticed here.
    """
    for argument, value, known in (("boundary", boundary, BOUNDARIES), ("mode", mode, MODES)):
        if value not in known:
            raise ArgumentError(argument, repr(value), ", ".join(known))
    grid = grid_of(shape)
    if boundary != "periodic" and len(grid) > 1:
        raise ArgumentError("boundary", f"{boundary!r} on a torus", "'periodic': a torus has no ends")
    axes, wavenumbers = len(grid), None if q is None else torch.as_tensor(q)
    if wavenumbers is not None and axes > 1 and wavenumbers.shape[-1:] != (axes,):
        raise ArgumentError("q", f"shape {tuple(wavenumbers.shape)}", f"(…, {axes}) on a torus")
    a = _state(module, state)
    base = a.expand(prod(grid), len(a)).clone()
    origin = 0 if boundary == "periodic" else len(base) // 2
    by_lag = _rolled(_responses(module, base, origin, mode), origin, grid, mode)
    if wavenumbers is None:
        return torch.fft.fftn(by_lag, dim=tuple(range(axes)))
    lags = torch.tensor(grid_lags(grid).reshape(-1, axes), dtype=a.dtype, device=a.device)
    kind = torch.complex128 if a.dtype == torch.float64 else torch.complex64
    phase = (wavenumbers if axes > 1 else wavenumbers[..., None]).to(a.device, kind) @ lags.T.to(kind)
    mixed = torch.exp(-1j * phase) @ by_lag.reshape(len(lags), -1).to(kind)
    return mixed.unflatten(-1, by_lag.shape[-2:])


def growth(matrices: Tensor) -> Tensor:
    """ρ = max |Λ| of matrices, with a gradient that is finite where eigenvalues repeat.

    Parameters
    ----------
    matrices : (…, d, d) Tensor
        J, real or complex.

    Returns
    -------
    (…) real Tensor
        The spectral radius.

    Notes
    -----
    The gradient is that of |Λ̄|, Λ̄ the mean of the m leading eigenvalues that lie within CLUSTER of each other,

        dρ = Re[ conj(Λ̄)/|Λ̄| · tr(P dJ) ] / m,

    P the spectral projector of the cluster, v wᴴ for one eigenvalue with wᴴv = 1. Λ̄ is smooth where the cluster is
    apart from the rest, even if J is defective there and ρ has no finite derivative. Where the repeated eigenvalue is
    semisimple, the derivative of ρ along E is max Re[conj(Λ)/|Λ| μ] over the eigenvalues μ of WᴴEV, and that above is
    their mean, so no larger for any E: a subgradient. Of several clusters of one modulus, as of conjugate pairs, it is
    the mean, and at ρ = 0 it is zero, subgradients too. First derivatives only.
    """
    if not isinstance(matrices, Tensor) or matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        got = f"shape {tuple(matrices.shape)}" if isinstance(matrices, Tensor) else type(matrices).__name__
        raise ArgumentError("matrices", got, "a tensor (…, d, d)")
    radius: Tensor = _SpectralRadius.apply(matrices)[0]
    return radius


def _state(module: Map, state: ArrayLike | Tensor) -> Tensor:
    """(d,) `state` with its gradient, of the type and on the device of the `module`."""
    if not callable(module):
        raise ArgumentError("module", type(module).__name__, "a callable on tensors (N, d)")
    parameters = module.parameters() if isinstance(module, torch.nn.Module) else iter(())
    dtype = next((numbers.dtype for numbers in parameters if numbers.is_floating_point()), torch.float64)
    given = state if isinstance(state, Tensor) else torch.tensor(frozen_array("state", plain("state", state), (None,)))
    if given.ndim != 1:
        raise ArgumentError("state", f"shape {tuple(given.shape)}", "(d,)")
    return given.to(dtype=dtype, device=device_of(module))


def _responses(module: Map, base: Tensor, origin: int, mode: str) -> Tensor:
    """(d, n, d): what comes out of each feature of token `origin` going in, or by 'reverse' what of it goes in."""

    def fn(x: Tensor) -> Tensor:
        out = module(x.clone())
        if not isinstance(out, Tensor) or out.shape != x.shape:
            got = f"a result of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise ArgumentError("module", got, f"a map to one tensor of the shape {tuple(x.shape)} of the states")
        return out

    if mode == "forward":
        along: Callable[[Tensor], Tensor] = lambda tangent: torch.func.jvp(fn, (base,), (tangent,))[1]  # noqa: E731
    else:
        back = torch.func.vjp(fn, base)[1]
        along = lambda cotangent: back(cotangent)[0]  # noqa: E731
    n, d = base.shape
    impulses = base.new_zeros(d, n, d)
    impulses[:, origin] = torch.eye(d, dtype=base.dtype, device=base.device)
    try:
        return torch.func.vmap(along)(impulses)
    except (RuntimeError, NotImplementedError) as error:
        if "forward AD" in str(error):
            raise refused(error, "module") from None
    # something in the map cannot be batched
    try:
        return torch.stack([along(impulse) for impulse in impulses])
    except (RuntimeError, NotImplementedError) as error:
        raise refused(error, "module") from None


def _rolled(responses: Tensor, origin: int, grid: tuple[int, ...], mode: str) -> Tensor:
    """(*grid, d, d) R_r by lag r, of the `responses` of a `mode`."""
    axes = tuple(range(len(grid)))
    if mode == "forward":
        return responses.movedim(0, -1).unflatten(0, grid).roll((-origin,) + (0,) * (len(grid) - 1), axes)
    # by the lag to the token that is read
    mirrored = responses.movedim(0, 1).unflatten(0, grid).flip(axes)
    return mirrored.roll((1 + origin,) + (1,) * (len(grid) - 1), axes)


class _SpectralRadius(torch.autograd.Function):
    """(ρ, its gradient) of matrices (…, d, d)."""

    @staticmethod
    def forward(matrices: Tensor) -> tuple[Tensor, Tensor]:
        if not bool(torch.isfinite(matrices).all()):
            raise ArgumentError("matrices", "numbers that are not finite", "a finite J")
        flat = matrices.detach().cpu().to(torch.complex128).numpy().reshape(-1, *matrices.shape[-2:])
        found = [_slope(matrix) for matrix in flat]
        radii = torch.tensor([radius for radius, _ in found], dtype=torch.float64).reshape(matrices.shape[:-2])
        slopes = torch.tensor(np.array([slope for _, slope in found]).reshape(matrices.shape))
        slopes = slopes if matrices.is_complex() else slopes.real
        return radii.to(matrices.real), slopes.to(matrices)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs, output[1])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> tuple[Tensor, None]:
        slopes = _Fixed.apply(*ctx.saved_tensors)
        return (slopes.conj() * tangent).real.sum((-2, -1)), None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> Tensor:
        return gradient[..., None, None] * _Fixed.apply(*ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, dims: Any, matrices: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return _SpectralRadius.apply(matrices.movedim(dims[0], 0)), (0, 0)


class _Fixed(torch.autograd.Function):
    """The slopes of ρ at some matrices, which are not differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrices: Tensor, slopes: Tensor) -> Tensor:
        return slopes.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        return

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Tensor:
        raise RuntimeError("growth cannot be differentiated twice")

    @staticmethod
    def jvp(ctx: Any, *_: Tensor) -> Tensor:
        raise RuntimeError("growth cannot be differentiated twice")


def _slope(matrix: NDArray[np.complex128]) -> tuple[float, NDArray[np.complex128]]:
    """(ρ, the matrix S with dρ = Re tr(Sᴴ dJ)) of J, (d, d)."""
    values = np.diagonal(schur(matrix, output="complex")[0])
    radius = float(np.abs(values).max())
    clusters = [c for c in _clusters(values, CLUSTER * float(np.linalg.norm(matrix))) if radius <= _top(values, c)]
    return radius, sum((_cluster_slope(matrix, values, c) for c in clusters), start=0 * matrix) / len(clusters)


def _top(values: NDArray[np.complex128], cluster: NDArray[np.intp]) -> float:
    return float(np.abs(values[cluster]).max()) * (1 + TOLERANCE)


def _clusters(values: NDArray[np.complex128], within: float) -> list[NDArray[np.intp]]:
    """The numbers of the `values` that hang together by distances of at most `within`."""
    near = np.abs(values[:, None] - values) <= within
    labels = connected_components(near, directed=False)[1]
    return [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]


def _cluster_slope(
    matrix: NDArray[np.complex128], values: NDArray[np.complex128], cluster: NDArray[np.intp]
) -> NDArray[np.complex128]:
    """The S of |Λ̄| of a `cluster` of the eigenvalues `values`."""
    mean, m = values[cluster].mean(), len(cluster)
    if mean == 0:
        return np.zeros_like(matrix)
    others = np.delete(values, cluster)

    def inside(value: complex) -> bool:
        return len(others) == 0 or np.abs(values[cluster] - value).min() < np.abs(others - value).min()

    T, Z, _ = schur(matrix, output="complex", sort=inside)
    # T_11 X − X T_22 = −T_12: the projector on the cluster along the rest is Z [I, −X; 0, 0] Zᴴ
    X = solve_sylvester(T[:m, :m], -T[m:, m:], -T[:m, m:]) if m < len(values) else T[:m, m:]
    projector = Z[:, :m] @ np.hstack([np.eye(m), -X]) @ Z.conj().T
    return np.asarray(mean / abs(mean) * projector.conj().T / m)
