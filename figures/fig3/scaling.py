"""Panel a: amplitudes and shifts near onset, theory and simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import brentq

from amplitude import clusters, competition, standing_wave, travelling_wave
from dispersion import Block, Kernel
from figures.fig3.blocks import (
    GAIN,
    SEED,
    N,
    cluster_block,
    four_and_ten,
    gain_for,
    one_lobe,
    tanh_block,
    two_lobes,
)
from figures.phase_diagram.maps import leading_wavenumber
from simulate import sweep


def scaling(points: int, progress: bool) -> Iterator[tuple[str, xr.Dataset]]:
    """(name, dataset over mu) for each series: simulated `value`s and theory's, by quantity."""
    mu = np.geomspace(2e-4, 2e-2, points)
    settings: dict[str, Any] = {"rng": SEED, "progress": progress}

    for name, kernel, gain, wave_of in (
        ("standing", two_lobes(2.0), -0.6, standing_wave),
        ("travelling", one_lobe(1.0), -1.2, travelling_wave),
    ):
        k = leading_wavenumber(tanh_block(kernel, gain))
        blocks = partial(_critical, kernel, k)
        run = sweep(blocks, {"mu": mu}, depth=100_000, **settings)
        waves = [wave_of(blocks(m), k) for m in mu]
        simulated, theory = {"R": _mode(run, k)}, {"R": [wave.amplitude for wave in waves]}
        if name == "travelling":
            onset = np.angle(GAIN * (1 + gain_for(kernel, k, 0.0) * kernel.symbol[k]))
            simulated["shift"] = np.abs(run.critical_phase_advance.values - onset)
            theory["shift"] = [abs(wave.phase_advance - onset) for wave in waves]
        yield name, _series(run, simulated, theory)

    w = brentq(lambda w: (four_and_ten(w).symbol[4] - four_and_ten(w).symbol[10]).real, 0.4, 0.6)
    blocks = partial(_critical, four_and_ten(w), 4)
    run = sweep(blocks, {"mu": mu}, depth=1_000_000, **settings)
    pairs = [competition(blocks(m), 4, 10).mixed for m in mu]
    yield (
        "coexistence",
        _series(
            run,
            {"R1": _mode(run, 4), "R2": _mode(run, 10)},
            {"R1": [pair[0] for pair in pairs], "R2": [pair[1] for pair in pairs]},
        ),
    )

    seed = 1e-2 * np.where(np.arange(N) < N // 2, 1.0, -1.0)
    run = sweep(cluster_block, {"mu": mu}, depth=100_000, start=seed, **settings)
    states = [clusters(cluster_block(m)) for m in mu]
    high, low = run.cluster_high.values, run.cluster_low.values
    yield (
        "clusters",
        _series(
            run,
            {"u": (high - low) / 2, "m": run["mean"].values},
            {"u": [state.amplitude for state in states], "m": [state.mean for state in states]},
        ),
    )


def _critical(kernel: Kernel, k: int, mu: float) -> Block:
    """The block of a `kernel` whose mode k is `mu` from onset."""
    return tanh_block(kernel, gain_for(kernel, k, mu))


def _series(run: xr.Dataset, simulated: Mapping[str, object], theory: Mapping[str, object]) -> xr.Dataset:
    data = run[["status", "layers"]].copy()
    for name in simulated:
        data[name] = ("mu", np.asarray(simulated[name], dtype=float), {"long_name": f"simulated {name}"})
        data[f"{name}_theory"] = ("mu", np.asarray(theory[name], dtype=float), {"long_name": f"predicted {name}"})
    return data


def _mode(run: xr.Dataset, k: int) -> NDArray[np.float64]:
    return run.spectrum.sel(k=k).values
