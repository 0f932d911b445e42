"""The claims of the paper about Figure 3, measured on its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import xarray as xr

from figures.fig3.blocks import DEPTH, NEAR_ONSET, SETTLED_MU
from figures.report import Claim
from simulate import STATUS


def claims(data: xr.DataTree) -> list[Claim]:
    """The paper's quantitative statements about Figure 3, measured on `data` (from `compute`)."""
    cubic = [*_scaling_claims(data), *_amplitude_claims(data), _wavenumber_claim(data), _competition_claim(data)]
    return [*cubic, *_beyond_claims(data)]


def _scaling_claims(data: xr.DataTree) -> Iterator[Claim]:
    """Slopes of log(value) against log μ over the first decade, the worst of the quantities of a series."""
    rows = {
        "standing": ("Amplitude of the standing wave", "standing", ("R",), 0.5),
        "travelling": ("Amplitude of the travelling wave", "travelling", ("R",), 0.5),
        "coexistence": ("Amplitudes of two coexisting waves", "coexistence", ("R1", "R2"), 0.5),
        "clusters": ("Half separation of the clusters", "clusters", ("u",), 0.5),
        "speed_shift": ("Speed shift of the travelling wave", "travelling", ("shift",), 1.0),
        "cluster_mean": ("Mean of the clusters", "clusters", ("m",), 1.0),
    }
    for name, (subject, series, quantities, expected) in rows.items():
        points = data[f"scaling/{series}"].to_dataset()
        points = points.sel(mu=points.mu <= 10.001 * points.mu.min())
        slopes = [np.polyfit(np.log(points.mu), np.log(points[quantity]), 1)[0] for quantity in quantities]
        slope = float(max(slopes, key=lambda value: abs(value - expected)))
        yield Claim(
            f"fig3.scaling.{name}",
            f"{subject} ~ μ^{expected:g}",
            expected,
            slope,
            abs(slope - expected) <= 0.02,
            f"exponent fitted over {float(points.mu.min()):.0e} ≤ μ ≤ {float(points.mu.max()):.0e}; met within ±0.02",
        )


def _amplitude_claims(data: xr.DataTree) -> Iterator[Claim]:
    b = data["amplitude"].to_dataset()
    settled = (b.critical_modulus > 1 + SETTLED_MU) & (b.status < STATUS.index("diverged"))
    error = (abs(b.amplitude_theory / b.critical_amplitude - 1)).where(settled)
    near = error.where(b.critical_modulus < NEAR_ONSET)
    by_growth = error.groupby_bins(b.critical_modulus, [1.0, 1.1, 1.2, 1.3, 1.4]).median()
    quarters = [f"{float(row):.3f} for {row.critical_modulus_bins.item()}" for row in by_growth if row.notnull()]
    left_out = int(((b.critical_modulus > 1) & ~settled).sum())
    points = f"points; {left_out} with μ < {SETTLED_MU:g}, not settled after {DEPTH} layers, left out"
    excluded = int((settled & (b.excluded != "")).sum())
    if excluded:
        points += f"; {excluded} that the theory excludes left out"
    yield Claim(
        "fig3.amplitude.near_onset.cubic",
        "Median relative error of the cubic amplitude where |Λ| < 1.05",
        0.03,
        float(near.median()),
        round(float(near.median()), 2) <= 0.03,
        f"{int(near.notnull().sum())} {points}",
    )
    yield Claim(
        "fig3.amplitude.unstable_region.cubic",
        "Median relative error of the cubic amplitude over the unstable region",
        0.14,
        float(error.median()),
        round(float(error.median()), 2) <= 0.14,
        f"{int(error.notnull().sum())} {points}. The paper does not give its ranges, on which this number depends: "
        f"the median by |Λ| is {', '.join(quarters)}",
    )


def _wavenumber_claim(data: xr.DataTree) -> Claim:
    c = data["wavenumber"].to_dataset()
    unstable = c.critical_modulus > 1
    why = c.miss.values
    share = 1 - float((why != "").sum() / unstable.sum())
    return Claim(
        "fig3.wavenumber.linear",
        "Share of unstable points whose observed wavenumber is argmax |J(q)|",
        0.96,
        share,
        round(share, 2) >= 0.96,
        f"{int(unstable.sum())} points, misses: "
        + _counts(why[why != ""])
        + ". The paper does not give its range of Δ",
    )


def _competition_claim(data: xr.DataTree) -> Claim:
    d = data["competition"].to_dataset()
    agree = d.observed == d.predicted
    share = float(agree.mean())
    unstable = (d.mu > 0).any("mode")
    why = d.miss.values[~agree.values]
    return Claim(
        "fig3.competition.cubic",
        "Share of points where the predicted competition regime is the simulated one",
        0.97,
        share,
        round(share, 2) >= 0.97,
        f"{agree.size} points ({float(agree.where(unstable).mean()):.3f} of the unstable ones), misses: "
        + _counts(why),
    )


def _counts(reasons: Iterable[str]) -> str:
    counted = Counter(map(str, reasons)).most_common()
    return ", ".join(f"{count} {reason}" for reason, count in counted) or "none"


def _beyond_claims(data: xr.DataTree) -> Iterator[Claim]:
    """What order 7 and exact patterns reach; the paper has no such values."""
    b = data["beyond/amplitude"].to_dataset()
    error = abs(b.amplitude_order.sel(order=7) / b.critical_amplitude - 1).where(b.critical_modulus > 1 + SETTLED_MU)
    points = int(error.notnull().sum())
    near = float(error.where(b.critical_modulus < NEAR_ONSET).median())
    everywhere = float(error.median())
    part = f"{points} points, a part of the grid of panel b"
    yield Claim(
        "fig3.amplitude.near_onset.order7",
        "Median relative error of the order-7 amplitude where |Λ| < 1.05",
        None,
        near,
        near <= 0.005,
        f"{part}; met if at most 0.005",
    )
    yield Claim(
        "fig3.amplitude.unstable_region.order7",
        "Median relative error of the order-7 amplitude over the unstable region",
        None,
        everywhere,
        everywhere <= 0.01,
        f"{part}; met if at most 0.01",
    )
    exact = abs(b.exact / b.critical_amplitude - 1).where(b.on_branch)
    here = float(exact.max())
    yield Claim(
        "fig3.amplitude.exact",
        "Largest relative error of the exact amplitude where the simulated state is on the branch",
        None,
        here,
        here <= 1e-6,
        f"{int(exact.notnull().sum())} of {points} points are at rest, their phase on a family; met if at most 1e-6",
    )
    c = data["beyond/wavenumber"].to_dataset()
    inside = c.stable.where(c.critical_modulus > 1 + SETTLED_MU)
    yield Claim(
        "fig3.wavenumber.balloon",
        "Share of unstable points whose observed wavenumber has a stable exact pattern",
        None,
        float(inside.mean()),
        float(inside.mean()) >= 0.995,
        f"{int(inside.notnull().sum())} points; met if at least 0.995",
    )
    d = data["beyond/competition"].to_dataset()
    settled = abs(d.mu.max("mode")) > SETTLED_MU
    agree = (d.exact == d.observed).where(settled)
    yield Claim(
        "fig3.competition.exact",
        "Share of points where exact stability of modes 4 and 5 gives the simulated regime",
        None,
        float(agree.mean()),
        float(agree.mean()) >= 0.99,
        f"{int(agree.notnull().sum())} points with |μ| > {SETTLED_MU:g}; met if at least 0.99",
    )
    k8 = data["beyond/resonant"].to_dataset()
    resonant = abs(k8.predicted / k8.amplitude - 1).where(k8.wavenumber == 8)
    median = float(resonant.median())
    yield Claim(
        "fig3.resonant.k8",
        "Median relative error of the order-7 amplitude with its resonant terms at k_c = 8, phase settled",
        None,
        median,
        median <= 0.01,
        f"{int(resonant.notnull().sum())} points of panel c, simulated for longer; met if at most 0.01",
    )
