"""Panels f, g, h: normal forms of order 7 and exact patterns over the simulated maps b, c, d (not in the paper)."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from amplitude import balloon, normal_form
from dispersion import Block, dispersion_relation
from figures.fig3.blocks import SEED, SETTLED_MU, N, four_and_five, tanh_block, two_lobes
from simulate import sweep

ORDERS = (3, 5, 7)
RESONANT_DEPTH = 200_000
BALLOON_STRENGTH = 2.5
STEADY = 1e-10
"""A state that changes by less than this part of itself in a layer has come to rest."""
NEUTRAL = 2e-5
"""A multiplier up to 1 + NEUTRAL does not show within the 5000 layers of a simulation: e^{0.1}."""


def subgrid(data: xr.Dataset, every: int) -> xr.Dataset:
    """Every `every`-th point along both axes of a map."""
    return data.isel({dim: slice(None, None, every) for dim in data.status.dims[:2]})


def amplitude_beyond(b: xr.Dataset, every: int) -> xr.Dataset:
    """Amplitudes of normal forms of orders 3, 5, 7, and of the two exact families, on a part of the grid of b.

    `moving` is the relative change of the simulated state in one more layer. `on_branch` says whether it has come to
    rest (STEADY) with its phase settled on a family (arg B_k within 1e-3 of one), or the families do not differ; only
    there can a simulation agree with an exact state to more than what it has still to go.
    """
    data = subgrid(b, every)
    members, blocks = _members(
        data.critical_modulus.values > 1 + SETTLED_MU, data, lambda gain, s: tanh_block(two_lobes(s), -gain)
    )
    shape = data.critical_modulus.shape
    by_order = np.full((*shape, len(ORDERS)), np.nan)
    for place, block in zip(members, blocks, strict=True):
        relation = dispersion_relation(block)
        form = normal_form(block, relation.leading(), max(ORDERS))
        by_order[place] = [form.truncated(order).amplitude for order in ORDERS]
    families = np.full((*shape, 2), np.nan)
    families[tuple(np.transpose(members))] = balloon(blocks, ks=[4]).amplitude[:, 0]
    moving = np.full(shape, np.nan)
    for place, block in zip(members, blocks, strict=True):
        x = data.state.values[place]
        moving[place] = np.abs(block.forward(x) - x).max() / np.abs(x).max()
    angle = 8 * data.critical_angle.values  # the lattice locks 8 arg B at k = 4
    offset = np.stack([np.abs(np.angle(np.exp(1j * angle))), np.abs(np.angle(-np.exp(1j * angle)))], axis=-1)
    near = np.take_along_axis(families, np.argmin(offset, axis=-1)[..., None], axis=-1)[..., 0]
    alike = np.abs(families[..., 0] / families[..., 1] - 1) < 1e-7
    dims = data.critical_modulus.dims
    return data[["critical_modulus", "critical_amplitude"]].assign(
        amplitude_order=((*dims, "order"), by_order),
        order=list(ORDERS),
        exact=(dims, near),
        moving=(dims, moving),
        on_branch=(dims, ((offset.min(axis=-1) < 8e-3) | alike) & (moving < STEADY)),
    )


def resonant(c: xr.Dataset, points: int, progress: bool) -> xr.Dataset:
    """Points of c with k_c = 8, where 4q ≡ 0: simulated until the phase settles, against order 7 with lattice terms."""
    rows = np.argwhere((c.critical_wavenumber.values == 8) & (c.critical_modulus.values > 1 + 5 * SETTLED_MU))
    rows = rows[np.linspace(0, len(rows) - 1, min(points, len(rows))).astype(int)]
    separation, strength = c.separation.values[rows[:, 0]], c.strength.values[rows[:, 1]]

    def make(point: int) -> Block:
        return tanh_block(two_lobes(float(strength[point]), float(separation[point])), -0.6)

    start = 1e-3 * np.random.default_rng(SEED).standard_normal((len(rows), N)) + 0.02 * np.cos(np.pi * np.arange(N) / 2)
    numbers = np.arange(len(rows))
    run = sweep(make, {"point": numbers}, depth=RESONANT_DEPTH, start=start, rng=SEED, progress=progress)
    blocks = [make(int(p)) for p in numbers]
    predicted = [normal_form(block, dispersion_relation(block).mode(8), 7).amplitude for block in blocks]
    return xr.Dataset(
        {
            "amplitude": ("point", run.spectrum.sel(k=8).values),
            "wavenumber": ("point", run.wavenumber.values),
            "predicted": ("point", predicted),
            "separation": ("point", separation),
            "strength": ("point", strength),
        }
    )


def wavenumber_beyond(c: xr.Dataset, every: int) -> xr.Dataset:
    """Whether the exact pattern of the observed wavenumber is stable, on a part of the grid of c."""
    data = subgrid(c, every)
    observed, stable = data.wavenumber.values, np.full(data.wavenumber.shape, np.nan)
    unstable = data.critical_modulus.values > 1 + SETTLED_MU
    for k in np.unique(observed[unstable]):
        members, blocks = _members(unstable & (observed == k), data, lambda gap, s: tanh_block(two_lobes(s, gap), -0.6))
        stable[tuple(np.transpose(members))] = balloon(blocks, ks=[int(k)]).stable[:, 0] if k > 0 else False
    return data[["wavenumber", "critical_wavenumber", "critical_modulus"]].assign(stable=(data.wavenumber.dims, stable))


def stability_band(points: int) -> xr.Dataset:
    """Stable wavenumbers over the lobe separation, at one strength: a section through c."""
    separation = np.linspace(1.5, 8.0, points)
    found = balloon([tanh_block(two_lobes(BALLOON_STRENGTH, gap), -0.6) for gap in separation])
    return xr.Dataset(
        {"exists": (("separation", "k"), found.exists), "stable": (("separation", "k"), found.stable)},
        coords={"separation": separation, "k": found.ks},
        attrs={"strength": BALLOON_STRENGTH},
    )


def competition_beyond(d: xr.Dataset, every: int) -> xr.Dataset:
    """Stability of the exact patterns of modes 4 and 5, on a part of the grid of d, and the regime it decides."""
    data = subgrid(d, every)
    grows = data.mu.values > 0
    members, blocks = _members(grows.any(axis=-1), data, lambda w, s: tanh_block(four_and_five(w, s), -0.6))
    modulus = np.full((*grows.shape[:2], 2), np.nan)
    with np.errstate(invalid="ignore"):
        modulus[tuple(np.transpose(members))] = np.nanmin(
            np.where(np.isnan(found := balloon(blocks, ks=[4, 5]).modulus), np.inf, found), axis=-1
        )
    stable = modulus <= 1 + NEUTRAL
    regime = np.select([~grows.any(axis=-1), stable.all(axis=-1), stable[..., 0], stable[..., 1]], [0, 3, 1, 2], 5)
    dims = data.observed.dims
    return data[["observed", "predicted", "mu", "critical_modulus"]].assign(
        exact=(dims, regime.astype(float)), modulus=((*dims, "mode"), modulus)
    )


def _members(where: NDArray[np.bool_], data: xr.Dataset, make) -> tuple[list[tuple[int, int]], list[Block]]:  # type: ignore[no-untyped-def]
    """The places where `where` holds, and the blocks there."""
    x, y = (data[dim].values for dim in data.status.dims[:2])
    members = [(int(i), int(j)) for i, j in np.argwhere(where)]
    return members, [make(float(x[i]), float(y[j])) for i, j in members]
