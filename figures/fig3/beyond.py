"""Panels f, g, h, not in the paper: higher normal forms and exact patterns over the simulated maps b, c, d."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.random import SeedSequence
from numpy.typing import NDArray
from tqdm import tqdm

from amplitude import balloon, normal_form
from dispersion import Block, dispersion_relation
from figures.fig3.blocks import SEED, SETTLED_MU, START, N, four_and_five, tanh_block, two_lobes
from simulate import sweep

ORDERS = (3, 5, 7, 9, 11)
K = 4
"""Wavenumber of the pattern of b."""
FAMILIES = (0.0, np.pi / 8)
"""ψ of the two families of standing waves B cos(qj + ψ) of k = 4: a crest on a token, and one between two."""
FAMILY_DEPTH, ONSET_DEPTH = 10_000, 1_000_000
"""Layers from a start on each family; nearer to onset than SETTLED_MU, more."""
OFF, KICK = 0.8, 1e-6
"""Amplitude of that start and of the noise in it, in units of the exact amplitude."""
RESONANT_DEPTH = 200_000
BALLOON_STRENGTH = 2.5
NEUTRAL = 2e-5
"""A multiplier up to 1 + NEUTRAL does not show within the 5000 layers of a simulation: e^{0.1}."""


def subgrid(data: xr.Dataset, every: int) -> xr.Dataset:
    """Every `every`-th point along both axes of a map."""
    return data.isel({dim: slice(None, None, every) for dim in data.status.dims[:2]})


def amplitude_beyond(b: xr.Dataset, every: int, progress: bool = False) -> xr.Dataset:
    """Amplitudes of normal forms of the ORDERS, and of the two exact families with their stability, at the unstable
    points of every `every`-th row and column of b; `simulated`, from a start on each family, judges the latter.

    `bound` is the error that each form knows of itself, relative: the best form is the one where it is the smallest.
    `exact`, `growth`, `simulated` and `phase` are over (family): the amplitude and the largest multiplier of the exact
    pattern; and the amplitude and the distance of arg B from ψ, in radians, that a start on the family has come to.
    """
    data = subgrid(b, every)
    members, blocks = _members(data.critical_growth.values > 1, data, lambda gain, s: tanh_block(two_lobes(s), -gain))
    places, dims = tuple(np.transpose(members)), data.critical_growth.dims
    found = balloon(blocks, ks=[K], progress=progress)
    exact, growth = found.amplitude[:, 0, : len(FAMILIES)], found.growth[:, 0, : len(FAMILIES)]
    reached = [_from_family(blocks, exact[:, i], psi, progress) for i, psi in enumerate(FAMILIES)]
    by_order, bound = _by_order(blocks, progress)
    columns: dict[str, tuple[str, NDArray[np.float64]]] = {
        "amplitude_order": ("order", by_order),
        "bound": ("order", bound),
        "exact": ("family", exact),
        "growth": ("family", growth),
        "simulated": ("family", np.stack([R for R, _ in reached], axis=1)),
        "phase": ("family", np.stack([phase for _, phase in reached], axis=1)),
    }
    out = data[["critical_growth"]].assign_coords(order=list(ORDERS), family=list(FAMILIES))
    for name, (dim, values) in columns.items():
        whole = np.full((*data.critical_growth.shape, values.shape[1]), np.nan)
        whole[places] = values
        out[name] = ((*dims, dim), whole)
    return out


def _by_order(blocks: list[Block], progress: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(blocks, orders) the amplitude of the leading mode by normal forms of the ORDERS, and the bound on its error."""
    found = np.empty((2, len(blocks), len(ORDERS)))
    for row, block in enumerate(tqdm(blocks, "normal forms", leave=False, disable=None if progress else True)):
        form = normal_form(block, dispersion_relation(block).leading(), max(ORDERS))
        for column, order in enumerate(ORDERS):
            cut = form.truncated(order)
            found[:, row, column] = cut.amplitude, cut.error()
    return found[0], found[1]


def _from_family(
    blocks: list[Block], exact: NDArray[np.float64], psi: float, progress: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(blocks,) |B| and the distance of arg B from `psi` after a start at OFF times the `exact` amplitude of a family.

    The noise of size KICK in the start grows where the family is unstable.
    """
    wave = 2 * OFF * np.cos(2 * np.pi * K / N * np.arange(N) + psi) + KICK * np.random.default_rng(SEED).normal(size=N)
    onset = np.array([dispersion_relation(block).growth.max() < 1 + SETTLED_MU for block in blocks])
    B = np.empty(len(blocks), dtype=complex)
    for part, depth in ((onset, ONSET_DEPTH), (~onset, FAMILY_DEPTH)):
        some = np.flatnonzero(part)
        if len(some):
            settings: dict[str, Any] = {"depth": depth, "start": exact[some, None] * wave, "progress": progress}
            run = sweep(lambda point: blocks[point], {"point": some}, measure="state", **settings)
            B[some] = np.fft.fft(run.state.values, axis=-1)[:, K] / N
    period = N // K
    return np.abs(B), np.abs(np.angle(np.exp(1j * period * (np.angle(B) - psi)))) / period


def resonant(c: xr.Dataset, points: int, progress: bool) -> xr.Dataset:
    """Points of c with k_c = 8, where 4q ≡ 0: from a phase on no family until it settles, against order 7 with lattice
    terms.
    """
    rows = np.argwhere((c.critical_wavenumber.values == 8) & (c.critical_growth.values > 1 + 5 * SETTLED_MU))
    rows = rows[np.linspace(0, len(rows) - 1, min(points, len(rows))).astype(int)]
    separation, strength = c.separation.values[rows[:, 0]], c.strength.values[rows[:, 1]]

    def make(point: int) -> Block:
        return tanh_block(two_lobes(float(strength[point]), float(separation[point])), -0.6)

    generator = np.random.default_rng(SEED)
    psi = generator.uniform(0, np.pi / 4, len(rows))  # 0 and π/4 are the families
    wave = 0.02 * np.cos(np.pi * np.arange(N) / 2 + psi[:, None])
    numbers = np.arange(len(rows))
    settings: dict[str, Any] = {"start": wave + START * generator.normal(size=wave.shape), "progress": progress}
    run = sweep(make, {"point": numbers}, depth=RESONANT_DEPTH, rng=SEED, **settings)
    blocks = [make(int(p)) for p in numbers]
    forms = [normal_form(block, dispersion_relation(block).mode(8), 7) for block in blocks]
    return xr.Dataset(
        {
            "amplitude": ("point", run.spectrum.sel(k=8).values),
            "wavenumber": ("point", run.wavenumber.values),
            "start_phase": ("point", psi),
            "phase": ("point", np.angle(np.fft.fft(run.state.values, axis=-1)[:, 8])),
            "predicted": ("point", [form.amplitude for form in forms]),
            "predicted_phase": (
                "point",
                [np.nan if (z := form.solution) is None else np.angle(z.z[0]) for form in forms],
            ),
            "separation": ("point", separation),
            "strength": ("point", strength),
        }
    )


def wavenumber_beyond(c: xr.Dataset, every: int, progress: bool = False) -> xr.Dataset:
    """The wavenumbers with a stable exact pattern at every `every`-th row and column of c, and two forecasts of the one
    among them that is seen.

    `fastest` is the one that grows fastest; `first` the one that gets first from the start to its exact amplitude,
    n_k = log(R_k/|B_k(0)|)/log|Λ_k| layers: what is decided by linear growth alone.
    """
    data = subgrid(c, every)
    unstable = data.critical_growth.values > 1
    members, blocks = _members(unstable, data, lambda gap, s: tanh_block(two_lobes(s, gap), -0.6))
    found = balloon(blocks, progress=progress)
    places, shape = tuple(np.transpose(members)), data.wavenumber.shape
    growth = data.growth.values[places][:, found.ks]
    points = np.ravel_multi_index(tuple(every * np.transpose(members)), c.wavenumber.shape)
    seeds = (SeedSequence(SEED, spawn_key=(int(p),)) for p in points)  # as `sweep` draws its starts
    start = np.array([START * np.random.default_rng(seed).standard_normal(N) for seed in seeds])
    before = np.abs(np.fft.fft(start, axis=1))[:, found.ks] / N
    reached = np.where(np.isnan(found.amplitude), 0.0, found.amplitude).max(axis=-1)
    stable = found.stable
    with np.errstate(divide="ignore", invalid="ignore"):
        layers = np.where(stable, np.log(reached / before) / np.log(growth), np.inf)
    every_k = np.zeros((*shape, data.sizes["k"]), dtype=bool)
    every_k[(*(axis[:, None] for axis in places), found.ks[None])] = stable
    forecasts = {"fastest": np.where(stable, growth, -np.inf).argmax(axis=1), "first": layers.argmin(axis=1)}
    out = data[["wavenumber", "critical_wavenumber", "critical_growth"]]
    out = out.assign(stable=((*data.wavenumber.dims, "k"), every_k))
    for name, columns in forecasts.items():
        forecast = np.full(shape, -1)
        forecast[places] = np.where(stable.any(axis=1), found.ks[columns], -1)
        out[name] = (data.wavenumber.dims, forecast)
    return out


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
    """Stability of the exact patterns of modes 4 and 5, at every `every`-th row and column of d, and the regime that
    it decides.
    """
    data = subgrid(d, every)
    grows = data.mu.values > 0
    members, blocks = _members(grows.any(axis=-1), data, lambda w, s: tanh_block(four_and_five(w, s), -0.6))
    growth = np.full((*grows.shape[:2], 2), np.nan)
    with np.errstate(invalid="ignore"):
        growth[tuple(np.transpose(members))] = np.nanmin(
            np.where(np.isnan(found := balloon(blocks, ks=[4, 5]).growth), np.inf, found), axis=-1
        )
    stable = growth <= 1 + NEUTRAL
    regime = np.select([~grows.any(axis=-1), stable.all(axis=-1), stable[..., 0], stable[..., 1]], [0, 3, 1, 2], 5)
    dims = data.observed.dims
    return data[["observed", "predicted", "mu", "critical_growth"]].assign(
        exact=(dims, regime.astype(float)), growth=((*dims, "mode"), growth)
    )


def _members(where: NDArray[np.bool_], data: xr.Dataset, make) -> tuple[list[tuple[int, int]], list[Block]]:  # type: ignore[no-untyped-def]
    """The places where `where` holds, and the blocks there."""
    x, y = (data[dim].values for dim in data.status.dims[:2])
    members = [(int(i), int(j)) for i, j in np.argwhere(where)]
    return members, [make(float(x[i]), float(y[j])) for i, j in members]
