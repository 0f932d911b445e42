"""Growth maps of ConViT over the wavenumbers of its torus, computed and drawn: what Figures 5a and 8 share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from numpy.typing import NDArray
from tqdm import tqdm

from dispersion import Dispersion, dispersion_relation
from dispersion.grid import conjugate_pairs
from figures.style import DIVERGING
from models.convit import PRESETS, RESIDUAL, SHARP, ConViT

CHUNK = 8
"""Matrices whose eigenvalues are found at once."""


def growth_data(
    over: Mapping[str, Sequence[str]], networks: Sequence[ConViT], size: str, seed: int, progress: bool, label: str
) -> xr.Dataset:
    """`growth_maps` as a dataset.

    over : names of the `networks`, by dimension in C order, all of the preset `size` and this `seed`.
    """
    shape, d, heads, _ = PRESETS[size]
    coordinates: dict[str, Any] = {name: list(values) for name, values in over.items()}
    coordinates |= {"k1": np.arange(shape[0]), "k2": np.arange(shape[1])}
    growth = growth_maps(networks, progress, label).reshape([len(values) for values in coordinates.values()])
    attrs = {"d": d, "heads": heads, "seed": seed, "attention_scale": RESIDUAL, "sharp_locality": SHARP}
    return xr.Dataset({"growth": (tuple(coordinates), growth)}, coordinates, attrs)


def growth_maps(networks: Sequence[ConViT], progress: bool, label: str) -> NDArray[np.float64]:
    """(networks, *shape) ρ(J(q)) of each of `networks` at its own base state; `progress`: a bar called `label`."""
    relations = [dispersion_relation(network.block(), network.state) for network in networks]
    distinct = [_distinct(relation) for relation in relations]
    maps = []
    with tqdm(total=sum(len(symbols) for symbols, _ in distinct), desc=label, disable=not progress) as bar:
        for relation, (symbols, place) in zip(relations, distinct, strict=True):
            radii = []
            for start in range(0, len(symbols), CHUNK):
                some = symbols[start : start + CHUNK]
                radii.append(np.abs(np.linalg.eigvals(matrices(relation, some))).max(axis=-1))
                bar.update(len(some))
            maps.append(np.concatenate(radii)[place].reshape(relation.shape))
    return np.array(maps)


def matrices(relation: Dispersion, symbols: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """(…, d, d) J = C + Σ_h λ_h (ε_a C M_h N_1) of `relation` where the heads have the `symbols` (…, heads)."""
    return relation.slopes.matrices(np.moveaxis(symbols, -1, 0))


def symbols_by_wavenumber(relation: Dispersion) -> NDArray[np.complex128]:
    """(N, heads) λ_h at each wavenumber of the flattened grid."""
    return relation.symbols.reshape(len(relation.symbols), -1).T


def _distinct(relation: Dispersion) -> tuple[NDArray[np.complex128], NDArray[np.intp]]:
    """(symbols, place): the different rows of λ (·, heads), −q counting as q, and which of them each q has (N,)."""
    half, partner = conjugate_pairs(relation.shape)
    symbols = symbols_by_wavenumber(relation)
    rounded = np.round(symbols[half], 12) + 0.0
    _, first, inverse = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    place = np.empty(len(partner), dtype=np.intp)
    place[partner[half]] = inverse
    place[half] = inverse
    return symbols[half][first], place


def leading(growth: xr.DataArray) -> tuple[int, int]:
    """(k_1, k_2) of the largest entry of a map, −N/2 ≤ k < N/2; the first of ±k with k_1 ≥ 0."""
    values = growth.values
    index = np.unravel_index(int(np.argmax(values)), values.shape)
    k1, k2 = (int((k + n // 2) % n - n // 2) for k, n in zip(index, values.shape, strict=True))
    return (k1, k2) if (k1, k2) >= (0, 0) or k1 == -(values.shape[0] // 2) else (-k1, -k2)


def draw_map(growth: xr.DataArray, ax: Axes, scale: Normalize) -> QuadMesh:
    """Draw ρ(J(q)) of one network, q = 0 in the middle; k = N/2 is shown at both ends, as periodic as the map is."""
    values = growth.values
    centred = np.fft.fftshift(values)
    wrapped = np.pad(centred, ((0, 1), (0, 1)), mode="wrap")
    k1, k2 = (np.arange(n + 1) - n // 2 for n in values.shape)
    mesh = ax.pcolormesh(k2, k1, wrapped, cmap=DIVERGING, norm=scale, rasterized=True)
    half: Any = values.shape[0] // 2
    ax.set(aspect="equal", xticks=[-half, 0, half], yticks=[-half, 0, half])
    return mesh
