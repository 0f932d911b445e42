"""Checks of predictions against forward passes: J(q) along the layers of a network, and waves sent through it.

    P_L(q) = J_{L−1}(q) … J_0(q),   P_L(q) v = Λ v      (Eq. A.10)

The prediction is the leading multiplier Λ of P_L(q) along the orbit a, g(a), … of a homogeneous state; the test is the
network itself, run on 1⊗a ± h·v e^{iqj}, whose response is compared with Λ v as a vector.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from dispersion import ArgumentError, Block, Chain, Propagator, through_layers
from dispersion.errors import frozen_array, shown, whole_number
from dispersion.grid import Wavenumber, conjugate_pairs, positions, wavenumber
from dispersion.line.impulse import impulses
from dispersion.noun import Noun
from dispersion.quiet import beyond_float64
from dispersion.ring.mode import Mode
from models.adapters.network import Network
from models.inputs import Map
from models.invariance import Invariance, invariance
from models.meaning import meaning
from models.measured import Measured, measure
from models.sender import MEMORY, STEP, Sender, sizes

if TYPE_CHECKING:
    from models.line import LineCheck

Complex = NDArray[np.complex128]
Floats = NDArray[np.float64]

TOLERANCE = 1e-6
"""Relative error up to which a prediction counts as confirmed."""
SAME = 1e-9
"""Relative distance of a response from the prediction under which half of a wave tells the whole."""
TURN = np.exp(1j)
"""The phase of the waves that are sent: at 0 the real part of some is zero at every other token."""
AGAINST_NETWORK, AS_REBUILT = " against the network", " for the layers as rebuilt"
"""What a verdict is about: layers that were compared with those of the network itself, or not."""
CLOSED = " for the layers closed to a ring"
"""What it is about where a line of tokens was closed."""


@dataclass(frozen=True, eq=False)
class Check(Noun):
    """What was predicted and what the network did.

    predicted : the Propagator of the layers. source : 'blocks' if it comes from Blocks, 'chains' if from Chains, where
    it is the response of the middle token, 'measured' if from `measure`.
    modes : the leading Mode of the product at each wavenumber that was sent through, by increasing k.
    response : (waves, d) complex, the derivative of the forward pass along each mode, at its wavenumber.
    leak : (waves,) share of the whole response that is at other wavenumbers.
    noise : (waves,) relative change of the response under a smaller perturbation: its uncertainty.
    defect : the circulant defect of a layer, the largest if several were measured (`Measured.defect`).
    spread : how far a layer takes the tokens of a homogeneous state apart, likewise (`Measured.spread`).
    stretch : |F(1⊗a)|/|1⊗a|, by which the layers multiply the state itself; NaN for a = 0.
    boundary : 'periodic', 'open' or 'causal'.
    line : what grows most on a line of tokens, where that is asked about; then it is what is confirmed or not.
    judge : what the verdict adds about the layers, one of the three above; empty where they are the network.
    tolerance : relative error that is confirmed: TOLERANCE, or what layers that compute in float32 inside allow.
    """

    predicted: Propagator
    source: str
    modes: tuple[Mode, ...]
    response: Complex
    leak: Floats
    noise: Floats
    defect: float
    spread: float
    stretch: float
    boundary: str = "periodic"
    line: LineCheck | None = None
    judge: str = ""
    tolerance: float = TOLERANCE

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return self.predicted.layers

    @property
    def growth(self) -> Floats:
        """(waves,) predicted growth |Λ| over the L layers."""
        return np.array([mode.growth for mode in self.modes])

    @property
    def measured_growth(self) -> Floats:
        """(waves,) growth of each wave in the forward pass, |response| for |v| = 1."""
        return np.linalg.norm(self.response, axis=-1)

    @property
    def error(self) -> Floats:
        """(waves,) |response − Λv| / |Λ|: of the whole vector, so no less than the relative error of the growth."""
        expected = np.array([mode.multiplier * mode.right for mode in self.modes])
        return np.linalg.norm(self.response - expected, axis=-1) / np.maximum(self.growth, np.finfo(float).tiny)

    @property
    def confirmed(self) -> bool:
        """Whether the error is within the tolerance at every wavenumber, and the state stays homogeneous; on a line of
        tokens whether the error is for every pattern.
        """
        return self._as_waves if self.line is None else self.line.confirmed

    @property
    def _as_waves(self) -> bool:
        return bool(self.error.max() <= self.tolerance and self.spread <= TOLERANCE)

    @property
    def relative(self) -> Floats:
        """(waves,) predicted growth against that of the state: |Λ| over `stretch`."""
        return self.growth / self.stretch if self.stretch else np.full(len(self.modes), np.nan)

    @property
    def meaning(self) -> str:
        """What this says about the network, in one sentence; `models.meaning` has the criteria."""
        return meaning(self)

    @property
    def verdict(self) -> str:
        """One line: whether the forward pass confirms the prediction, and whether anything grows."""
        told = self._of_waves if self.line is None else self.line.verdict
        told = told.replace("confirmed to", f"confirmed{self.judge} to", 1)
        return told if self.line is None else f"{told}; {self._beside_the_line}"

    @property
    def _of_waves(self) -> str:
        if self._as_waves:
            return f"confirmed to {self.error.max():.1e} at every wavenumber{within(self.tolerance)}; {self._leader}"
        if self._odd:
            return f"not confirmed: {self._worst}; {self._odd}"
        if self.boundary != "periodic":
            return f"not confirmed: {self._worst}; the ends of the line are felt: {self._leader} far from them"
        known = f"the response itself is known to {self.noise.flat[self.error.argmax()]:.1e}"
        return f"not confirmed: {self._worst} ({known}); {self._leader}"

    @property
    def _beside_the_line(self) -> str:
        """What the waves are where the patterns of the line are what is confirmed or not."""
        if self._as_waves:
            return f"as waves, {self._of_waves}"
        if self.boundary != "periodic":
            return f"J(q) holds far from the ends only: as waves, {self._worst}"
        return f"as waves, {self._worst}: {self._odd}"

    @property
    def _leader(self) -> str:
        top = self.predicted.leading()
        by = f"is multiplied by {abs(top.multiplier):.4g} in {_layers(self.layers)}"
        return f"the leading mode, k = {_named(top.k)}, {by}"

    @property
    def _worst(self) -> str:
        worst = int(np.argmax(self.error))
        return f"error {self.error[worst]:.1e} at k = {_named(self.modes[worst].k)}"

    @property
    def _odd(self) -> str:
        """What keeps waves from being modes."""
        reasons = {
            f"the map is not translation invariant, circulant defect {self.defect:.1e}": self.defect,
            f"a homogeneous state does not stay one, its tokens differ by {self.spread:.1e} after a layer": self.spread,
        }
        return "; ".join(reason for reason, size in reasons.items() if size > TOLERANCE)


@beyond_float64
def check(
    layers: Sequence[Map] | nn.Module | Network | str | os.PathLike[str],
    state: ArrayLike | str | None = None,
    shape: tuple[int, ...] | int | None = None,
    blocks: Sequence[Block] | Sequence[Chain] | None = None,
    boundary: str | None = None,
    *,
    waves: int = 32,
    batched: bool = False,
    memory: int = MEMORY,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> Check:
    """Predict what each wavenumber grows by through `layers` from the homogeneous state 1⊗a, and run them to see.

    layers : maps of float64 tensors (N, d) to the same, the first layer first; or a whole network, as `from_module` and
    `load_network` take or make it: its layers are compared with the reference implementation's own, and on a line of
    tokens what grows most is predicted and run too.
    state : a, (d,); of a network also 'mean', 'zeros' or 'token:ID', by default 'mean' if it has an embedding.
    shape : N, (N,) or (N_1, …, N_D); of a network 32 by default. blocks : the same layers as Blocks, or as Chains, from
    which the prediction is then made; None to measure J(q) of every layer. boundary : as in `measure`, by default
    'periodic', or that of the network. waves : the most wavenumbers to send through, those of the largest growth.
    batched : whether the layers take (…, N, d). memory : bytes that derivatives and batches may fill. device : of the
    states.
    progress : a bar on standard error, by default if that is a terminal.
    """
    options: dict[str, Any] = {"waves": waves, "memory": memory, "device": device, "progress": progress}
    listed = not isinstance(layers, Network | nn.Module | str | os.PathLike)
    if listed or isinstance(layers, nn.ModuleList | nn.Sequential):
        maps: list[Map] = list(layers)  # type: ignore[arg-type]
        return _of_maps(maps, state, shape, blocks, boundary or "periodic", batched, **options)
    if blocks is not None:
        raise ArgumentError("blocks", "Blocks of a whole network", "none, for it has its own")
    from models.opened import of_network

    return of_network(layers, shape, boundary).checked(state, **options)  # type: ignore[arg-type]


def _of_maps(
    layers: list[Map],
    state: ArrayLike | str | None,
    shape: tuple[int, ...] | int | None,
    blocks: Sequence[Block] | Sequence[Chain] | None,
    boundary: str,
    batched: bool,
    waves: int,
    memory: int,
    device: str | torch.device | None,
    progress: bool | None,
) -> Check:
    """`check` of maps."""
    if not layers:
        raise ArgumentError("layers", "no layer", "one map or more")
    if state is None or isinstance(state, str):
        raise ArgumentError("state", shown(state), "a, (d,), for layers that are maps")
    if shape is None:
        raise ArgumentError("shape", "none", "the number of tokens of layers that are maps")
    a = frozen_array("state", state, (None,))
    grid = tuple(shape) if isinstance(shape, tuple | list) else (whole_number("shape", shape, 2),)
    options: dict[str, Any] = {"memory": memory, "progress": progress, "device": device}

    def measured(layer: Map, base: Floats) -> Measured:
        return measure(layer, base, grid, boundary, **options)

    found: Sequence[Invariance | Measured]
    if blocks is None:
        found = relations = _along(layers, a, measured)
        predicted, source = Propagator(tuple(relations)), "measured"
    elif isinstance(blocks[0], Chain):
        predicted, source = impulses(blocks, a), "chains"  # type: ignore[arg-type]
        bases = [relation.state for relation in predicted.relations]  # type: ignore[attr-defined]
        found = [invariance(*each, grid, boundary, **options) for each in zip(layers, bases, strict=True)]
    else:
        predicted, source = through_layers(blocks, a), "blocks"  # type: ignore[arg-type]
        found = [invariance(layers[0], a, grid, boundary, **options)]
    defect, spread = (max(getattr(each, name) for each in found) for name in ("defect", "spread"))
    modes = _leading(predicted, whole_number("waves", waves, 1))
    bar = sys.stderr.isatty() if progress is None else progress
    sender = Sender(layers, a, prod(grid), batched, memory, device, bar)
    response, leak, noise = _responses(sender, modes, predicted)
    size = float(np.linalg.norm(a)) * np.sqrt(prod(grid))
    stretch = float(sizes(sender.image())) / size if size else np.nan
    made = Check(predicted, source, modes, response, leak, noise, defect, spread, stretch, boundary)
    return made if made.confirmed else replace(made, tolerance=max(TOLERANCE, sender.resolution(noise)))


def within(tolerance: float) -> str:
    """What a verdict adds where not TOLERANCE but another `tolerance` was kept."""
    return "" if tolerance == TOLERANCE else f", of the {tolerance:.1e} that float32 on the way leaves open"


def _along(layers: Sequence[Map], a: Floats, measured: Callable[[Map, Floats], Measured]) -> list[Measured]:
    """What is `measured` of each of the `layers` along the orbit of `a`."""
    relations: list[Measured] = []
    known: dict[tuple[int, bytes], Measured] = {}
    base = a
    for layer in layers:
        key = id(layer), base.tobytes()
        if key not in known:
            known[key] = measured(layer, base)
        relations.append(known[key])
        base = known[key].image
    return relations


def _leading(predicted: Propagator, waves: int) -> tuple[Mode, ...]:
    """The leading mode at each of the `waves` wavenumbers, one of each pair ±k, of the largest growth."""
    half, _ = conjugate_pairs(predicted.shape)
    order = np.argsort(-predicted.growth.ravel()[half], kind="stable")[:waves]
    return tuple(predicted.mode(wavenumber(int(half[row]), predicted.shape)) for row in sorted(order))


def _responses(sender: Sender, modes: Sequence[Mode], predicted: Propagator) -> tuple[Complex, Floats, Floats]:
    """(response, leak, noise) of each of the `modes`.

    Where the response to the real part of a wave e^{iq·j} v is that of the real part of e^{iq·j} Λv, to SAME, the
    imaginary part is not sent: a map that is not translation invariant would take it to −q too, and not pass. At
    q = −q both are sent.
    """
    scale = float(np.linalg.norm(sender.base)) or 1.0
    size = STEP * scale / _highest(modes, predicted)
    waves = TURN * np.exp(1j * np.array([positions(mode.shape) @ np.atleast_1d(mode.q) for mode in modes]))[..., None]
    fields = waves * np.array([mode.right for mode in modes])[:, None]
    response, noise = sender.limits(fields.real, size)
    at_k = 2 * (waves.conj() * response).mean(axis=1)
    expected = np.array([mode.multiplier * mode.right for mode in modes])
    away = np.linalg.norm(at_k - expected, axis=-1) > SAME * np.linalg.norm(expected, axis=-1)
    elsewhere = response - (waves * at_k[:, None]).real
    leak = sizes(elsewhere) / np.maximum(sizes(response), np.finfo(float).tiny)
    both = np.flatnonzero(away | [_real(mode) for mode in modes])
    if both.size:
        second, doubt = sender.limits(fields.imag[both], size[both])
        whole = response[both] + 1j * second
        at_k[both] = (waves[both].conj() * whole).mean(axis=1)
        total = np.maximum(sizes(whole), np.finfo(float).tiny)
        leak[both] = sizes(whole - waves[both] * at_k[both, None]) / total
        noise[both] = np.hypot(noise[both] * sizes(response[both]), doubt * sizes(second)) / total
    return at_k, leak, noise


def _real(mode: Mode) -> bool:
    """Whether e^{iq·j} is real, q = −q."""
    return not np.any(2 * np.atleast_1d(mode.k) % mode.shape)


def _highest(modes: Sequence[Mode], predicted: Propagator) -> Floats:
    """(waves,) the largest size of each of the `modes` after any number of layers, 1 before the first."""
    size, vectors = np.ones(len(modes)), np.array([mode.right for mode in modes])
    for relation in predicted.relations:
        vectors = relation.images([mode.k for mode in modes], vectors)
        size = np.maximum(size, np.linalg.norm(vectors, axis=-1))
    return size


def _named(k: Wavenumber) -> str:
    return ", ".join(map(str, np.atleast_1d(k)))


def _layers(count: int) -> str:
    return f"{count} layer{'s' * (count > 1)}"
