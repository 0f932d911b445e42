"""Runs of layers near a state, and from them the derivative of the whole by finite differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.device import usable
from models.inputs import Map, forward

Floats = NDArray[np.float64]

MEMORY = 2**28
"""Bytes that what is computed at once may fill, by default."""
COPIES = 16
"""How many tensors of the size of the largest a batch is taken to hold at once, with room for the caches."""
STEP = 1e-3
"""First size of a perturbation, relative to the base state; smaller ones follow where it is not yet linear."""
FINER = 6
"""How many sizes are tried, each a quarter of the last."""
SETTLED = 1e-6
"""Relative change between two sizes of perturbation under which the response counts as linear."""
DOUBT = 30
"""The largest error in units of the noise: twice the change from one size to the next, of which that is a fifteenth."""
COARSEST = 1e-2
"""Relative error of a response from which nothing is known by it."""


class Sender:
    """Runs of the `layers` on states of `n` tokens near `base`, (d,) for all or (n, d), as many at once as fit."""

    def __init__(
        self,
        layers: Sequence[Map],
        base: Floats,
        n: int,
        batched: bool,
        memory: int = MEMORY,
        device: str | torch.device | None = None,
        progress: bool = False,
    ) -> None:
        self.layers, self.base, self.n, self.progress = layers, base, n, progress
        self.device = None if device is None else usable(device)
        # attention of 16 heads and a feed-forward of 4 d features are taken for the largest tensors
        largest = 8 * n * max(16 * n, 4 * base.shape[-1])
        self.at_once = max(1, memory // (COPIES * largest)) if batched else 0

    def limits(self, fields: NDArray, size: Floats) -> tuple[NDArray, Floats]:
        """(derivatives (waves, N, d), noise (waves,)) along `fields`: central differences, extrapolated to size 0.

        fields : (waves, N, d), complex or real, as the derivatives are then. size : (waves,) of the first perturbation
        of each; smaller ones follow.
        """
        coarse = self._derivative(fields, size)
        best, noise = coarse, np.full(len(fields), np.inf)
        todo = np.arange(len(fields))
        for _ in range(FINER):
            size = size / 4
            fine = self._derivative(fields[todo], size[todo])
            # central differences err by h²: (16 D(h/4) − D(h))/15 by h⁴
            limit = (16 * fine - coarse) / 15
            change = sizes(limit - fine) / np.maximum(sizes(limit), np.finfo(float).tiny)
            better = change < noise[todo]
            best[todo[better]], noise[todo[better]] = limit[better], change[better]
            left = change > SETTLED
            if not left.any():
                break
            todo, coarse = todo[left], fine[left]
        return best, noise

    def resolution(self, noise: Floats) -> float:
        """The relative error of responses of this `noise` by rounding of layers that compute in float32 or less on the
        way, 0 of those in float64 throughout.
        """

        def whole(x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

        base = torch.tensor(np.broadcast_to(self.base, (self.n, self.base.shape[-1])).copy(), device=self.device)
        exact = forward(whole, base).eps == torch.finfo(torch.float64).eps
        return 0.0 if exact else min(COARSEST, DOUBT * float(noise.max()))

    def difference(self, field: Floats, size: float) -> Floats:
        """(n, d) the central difference of this `size` along `field` (n, d)."""
        return np.asarray(self._derivative(field[None], np.array([size]))[0])

    def image(self) -> Floats:
        """(n, d) what the layers make of the base state."""
        return np.asarray(self._run(np.broadcast_to(self.base, (1, self.n, self.base.shape[-1])))[0])

    def kink(self, field: Floats, size: float) -> float:
        """How far the derivatives along `field` (n, d) and against it differ, 0 for a smooth map, from two sizes."""
        middle = self.image()

        def bend(step: float) -> Floats:
            plus, minus = self._run(self.base + step * np.stack([field, -field]))
            return np.asarray((plus + minus - 2 * middle) / (2 * step))

        # the bend of curvature goes as the size
        return float(sizes((4 * bend(size / 4) - bend(size)) / 3))

    def _derivative(self, fields: NDArray, size: Floats) -> NDArray:
        """(waves, N, d) central differences along `fields` (waves, N, d) of these sizes, `size` (waves,)."""
        step = size[:, None, None]
        if np.iscomplexobj(fields):
            parts = self._derivative(np.concatenate([fields.real, fields.imag]), np.tile(size, 2))
            return np.asarray(parts[: len(fields)] + 1j * parts[len(fields) :])
        plus, minus = np.split(self._run(self.base + np.concatenate([step * fields, -step * fields])), 2)
        return np.asarray((plus - minus) / (2 * step))

    def _run(self, states: Floats) -> Floats:
        """The layers on each of `states` (B, N, d)."""
        from tqdm import tqdm

        out = np.empty_like(states)
        step = self.at_once or 1
        label = "running the network"
        with tqdm(total=len(states), desc=label, disable=not self.progress, leave=False) as bar, torch.no_grad():
            for start in range(0, len(states), step):
                x = torch.tensor(states[start : start + step], device=self.device)
                x = x if self.at_once else x[0]
                for layer in self.layers:
                    x = layer(x)
                out[start : start + step] = x.cpu().numpy()
                bar.update(min(step, len(states) - start))
        return out


def sizes(fields: NDArray) -> Floats:
    """(…) the norms of `fields` (…, n, d)."""
    return np.asarray(np.linalg.norm(fields, axis=(-2, -1)))
