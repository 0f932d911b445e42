"""The claims of the paper about Figure 3, measured on its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import xarray as xr

from amplitude import REGIMES
from figures.fig3.beyond import FAMILY_DEPTH, KICK, OFF
from figures.fig3.blocks import DEPTH, NEAR_ONSET, SETTLED_MU
from figures.report import Claim
from simulate import STATUS

BINS = (1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
"""|Λ| between which errors are also told."""
ORDER_LIMITS = ((5, 0.005, 0.03), (7, 0.005, 0.01), (9, 0.005, 0.01), (11, 0.005, 0.003))
"""(order, largest median error near onset, and over the unstable region) up to which a claim is met."""
BEST_LIMITS = (0.0005, 0.003)
"""The same of the best form."""
STABLE = 1e-9
"""A pattern counts as stable up to a multiplier of 1 + STABLE."""
LEFT = 0.005
"""Change of arg B, in radians, by which a pattern has left its family."""
LEAVES = (5.0, 20.0)
"""Where the largest multiplier makes less than e^5 of the noise in a start on a family, it must stay there, more than
e^20, leave; between, it depends on what part of the noise that mode has. With e^15 one family was still on its way."""


def claims(data: xr.DataTree) -> list[Claim]:
    """The paper's quantitative statements about Figure 3, measured on `data` (from `compute`)."""
    paper = [*_scaling_claims(data), *_amplitude_claims(data), _wavenumber_claim(data), *_competition_claims(data)]
    return [*paper, *_beyond_claims(data)]


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
    settled = (b.critical_growth > 1 + SETTLED_MU) & (b.status < STATUS.index("diverged"))
    error = (abs(b.amplitude_theory / b.critical_amplitude - 1)).where(settled)
    near = error.where(b.critical_growth < NEAR_ONSET)
    left_out = int(((b.critical_growth > 1) & ~settled).sum())
    points = f"points; {left_out} with μ < {SETTLED_MU:g}, not settled after {DEPTH} layers, left out"
    excluded = int((settled & (b.excluded != "")).sum())
    if excluded:
        points += f"; {excluded} that the theory excludes left out"
    yield Claim(
        "fig3.amplitude.near_onset.cubic",
        "Median relative error of the cubic amplitude where |Λ| < 1.05",
        0.03,
        float(near.median()),
        float(near.median()) <= 0.03,
        f"{int(near.notnull().sum())} {points}; {_spread(near)}",
    )
    yield Claim(
        "fig3.amplitude.unstable_region.cubic",
        "Median relative error of the cubic amplitude over the unstable region",
        0.14,
        float(error.median()),
        float(error.median()) <= 0.14,
        f"{int(error.notnull().sum())} {points}. The paper does not give its ranges, on which this number depends; "
        f"{_by_growth(error, b.critical_growth)}",
    )


def _wavenumber_claim(data: xr.DataTree) -> Claim:
    c = data["wavenumber"].to_dataset()
    unstable = c.critical_growth > 1
    why = c.miss.values
    share = 1 - float((why != "").sum() / unstable.sum())
    return Claim(
        "fig3.wavenumber.linear",
        "Share of unstable points whose observed wavenumber is argmax |J(q)|",
        0.96,
        share,
        share >= 0.96,
        f"{int(unstable.sum())} points, misses: "
        + _counts(why[why != ""])
        + ". The paper does not give its range of Δ",
    )


def _competition_claims(data: xr.DataTree) -> Iterator[Claim]:
    d = data["competition"].to_dataset()
    agree = d.observed == d.predicted
    share, grows = float(agree.mean()), (d.mu > 0).any("mode")
    yield Claim(
        "fig3.competition.cubic",
        "Share of points where the predicted competition regime is the simulated one",
        0.97,
        share,
        share >= 0.97,
        f"{agree.size} points, {float((~grows).mean()):.3f} of them collapsed for no mode grows; misses: "
        + _counts(d.miss.values[~agree.values]),
    )
    yield from _by_regime("cubic", "cubic theory", d.predicted, d.observed, grows)


def _by_regime(
    name: str, theory: str, predicted: xr.DataArray, observed: xr.DataArray, counted: xr.DataArray
) -> Iterator[Claim]:
    """Shares of the points `counted` that `theory` tells apart: all, and of each regime seen (recall)."""
    agree = (predicted == observed).where(counted)
    yield _at_least(
        f"fig3.competition.{name}.growing",
        f"The same share by {theory} where a mode grows",
        float(agree.mean()),
        0.97,
        f"{int(counted.sum())} points",
    )
    for index, regime in enumerate(REGIMES):
        seen = counted & (observed == index)
        if regime in ("collapsed", "undecided") or not bool(seen.any()):
            continue
        recall, called = float(agree.where(seen).mean()), counted & (predicted == index)
        precision = float(agree.where(called).mean()) if bool(called.any()) else float("nan")
        yield _at_least(
            f"fig3.competition.{name}.{regime.replace(' ', '_')}",
            f"Share of the points seen as {regime!r} that {theory} calls so",
            recall,
            0.9,
            f"{int(seen.sum())} points; of those it calls so, {precision:.3f} are",
        )


def _at_least(name: str, claim: str, here: float, least: float, note: str) -> Claim:
    """A claim that the paper does not make, met if `here` is at `least` that."""
    return Claim(name, claim, None, here, here >= least, f"{note}; met if at least {least:g}")


def _counts(reasons: Iterable[str]) -> str:
    counted = Counter(map(str, reasons)).most_common()
    return ", ".join(f"{count} {reason}" for reason, count in counted) or "none"


def _spread(error: xr.DataArray) -> str:
    return f"{float(error.quantile(0.9)):.2g} at 90 %, {float(error.max()):.2g} at most"


def _by_growth(error: xr.DataArray, growth: xr.DataArray) -> str:
    """Median and 90 % of `error` in each of the BINS of |Λ|."""
    found = []
    for low, high in pairwise(BINS):
        part = error.where((low < growth) & (growth <= high))
        if bool(part.notnull().any()):
            median, most = float(part.median()), float(part.quantile(0.9))
            found.append(f"{median:.2g} ({most:.2g}) for {low:g} < |Λ| ≤ {high:g}")
    return "median (90 %) by growth: " + ", ".join(found)


def _beyond_claims(data: xr.DataTree) -> Iterator[Claim]:
    """What higher orders and exact patterns reach; the paper has no such values."""
    yield from _form_claims(data["beyond/amplitude"].to_dataset())
    yield from _exact_claims(data["beyond/amplitude"].to_dataset())
    yield from _selection_claims(data["beyond/wavenumber"].to_dataset())
    d = data["beyond/competition"].to_dataset()
    grows = (d.mu > 0).any("mode") & (abs(d.mu.max("mode")) > SETTLED_MU)
    yield from _by_regime("exact", "exact stability of the patterns of modes 4 and 5", d.exact, d.observed, grows)
    yield from _resonant_claims(data["beyond/resonant"].to_dataset())


def _form_claims(b: xr.Dataset) -> Iterator[Claim]:
    """Normal forms against the exact pattern of the stable family, at every unstable point."""
    error = errors(b)
    counted = (b.critical_growth > 1) & (b.growth <= 1 + STABLE).any("family")
    best, used = best_of(b, error)
    rows = [
        (f"order{order}", f"order-{order}", error.sel(order=order), near, limit) for order, near, limit in ORDER_LIMITS
    ]
    for name, told, values, near_limit, limit in [*rows, ("best", "best form's", best, *BEST_LIMITS)]:
        missing = int((counted & values.isnull()).sum())
        note = f"{int(values.notnull().sum())} points against the exact pattern, {missing} without a prediction"
        if name == "best":
            shares = [
                f"{float((used == order).where(best.notnull()).mean()):.2f} order {int(order)}" for order in b.order
            ]
            note += f", the order with the smallest bound on its own error: {', '.join(shares)}"
        near = values.where(b.critical_growth < NEAR_ONSET)
        for part, where, some, most in (
            ("near_onset", "where |Λ| < 1.05", near, near_limit),
            ("unstable_region", "over the unstable region", values, limit),
        ):
            yield Claim(
                f"fig3.amplitude.{part}.{name}",
                f"Median relative error of the {told} amplitude {where}",
                None,
                float(some.median()),
                float(some.median()) <= most,
                f"{note}; {_spread(some)}; "
                + (f"{_by_growth(some, b.critical_growth)}; " if part == "unstable_region" else "")
                + f"met if the median is at most {most:g}",
            )
    holds = (error <= b.bound).where(error.notnull() & b.bound.notnull())
    orders = ", ".join(f"{float(holds.sel(order=order).mean()):.4f} at order {int(order)}" for order in b.order)
    yield _at_least(
        "fig3.amplitude.bound",
        "Share of normal forms whose error is at most what they know of it",
        float(holds.mean()),
        0.99,
        f"{int(holds.notnull().sum())} forms of {b.sizes['order']} orders; {orders}; bound over error "
        f"{float((b.bound / error).median()):.3g} in the median",
    )


def errors(b: xr.Dataset) -> xr.DataArray:
    """(…, order) relative errors of normal forms against the exact pattern of the stable family."""
    return abs(b.amplitude_order / b.exact.where(b.growth <= 1 + STABLE).max("family") - 1)


def best_of(b: xr.Dataset, error: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The `error` (…, order) of the form with the smallest bound on it, and its order; NaN where there is none."""
    bound = b.bound.fillna(np.inf)
    place, there = bound.argmin("order"), np.isfinite(bound.min("order"))
    return error.isel(order=place).drop_vars("order").where(there), b.order[place].drop_vars("order").where(there)


def _exact_claims(b: xr.Dataset) -> Iterator[Claim]:
    """The exact families against simulations that start on them, off their amplitude and with a little noise."""
    stable = b.growth <= 1 + STABLE
    error = abs(b.simulated / b.exact - 1).where(stable)
    points, both = int(stable.any("family").sum()), int(stable.all("family").sum())
    missing = int(((b.critical_growth > 1) & ~stable.any("family")).sum())
    here = float(error.max())
    yield Claim(
        "fig3.amplitude.exact",
        "Largest relative error of the exact amplitude of every stable family",
        None,
        here,
        here <= 1e-6,
        f"{points} unstable points, {both} of them with both families stable, {missing} with neither, simulated from "
        f"{OFF:g} of the amplitude on the family; met if at most 1e-6",
    )
    # what the largest multiplier makes of the noise of the start
    gained = FAMILY_DEPTH * np.log(b.growth.where(~stable & (b.critical_growth > 1 + SETTLED_MU)))
    left = b.phase > LEFT
    told = (left == (gained > 0.5 * (LEAVES[0] + LEAVES[1]))).where((gained < LEAVES[0]) | (gained > LEAVES[1]))
    between = int(((gained >= LEAVES[0]) & (gained <= LEAVES[1])).sum())
    yield Claim(
        "fig3.amplitude.exact.unstable",
        "Share of unstable families that simulations leave where the largest multiplier gives time to, and only there",
        None,
        float(told.mean()),
        float(told.mean()) == 1.0,
        f"{int((gained > LEAVES[1]).sum())} families whose largest multiplier makes more than e^{LEAVES[1]:g} of noise "
        f"of {KICK:g} in {FAMILY_DEPTH} layers, {int((gained < LEAVES[0]).sum())} less than e^{LEAVES[0]:g}; {between} "
        f"between left out (limits of the second choice). Left: arg B has moved by more than {LEFT:g}; met if all",
    )


def _selection_claims(c: xr.Dataset) -> Iterator[Claim]:
    """Which of the stable patterns of panel c is seen."""
    grown = c.critical_growth > 1 + SETTLED_MU
    count = c.stable.sum("k")
    seen = c.stable.isel(k=c.wavenumber.clip(min=0)) & (c.wavenumber > 0)
    one, several = grown & (count == 1), grown & (count > 1)

    def share(agree: xr.DataArray, where: xr.DataArray) -> float:
        return float(agree.where(where).mean())

    yield _at_least(
        "fig3.wavenumber.balloon",
        "Share of unstable points whose observed wavenumber has a stable exact pattern",
        share(seen, grown),
        0.999,
        f"{int(grown.sum())} points, {int(several.sum())} with several stable wavenumbers",
    )
    yield _at_least(
        "fig3.wavenumber.only_stable",
        "Share of points with one stable wavenumber where that is the observed one",
        share(seen, one),
        0.999,
        f"{int(one.sum())} points, misses {int((one & ~seen).sum())}",
    )
    for name, told, limit in (
        ("fastest", "Share of points where the fastest-growing of the stable wavenumbers is observed", 0.95),
        ("first", "Share of points where the stable wavenumber that linear growth saturates first is observed", 0.97),
    ):
        agree = c[name] == c.wavenumber
        yield _at_least(
            f"fig3.wavenumber.{name}",
            told,
            share(agree, grown),
            limit,
            f"{int(grown.sum())} points; {share(agree, several):.3f} of the {int(several.sum())} with several stable "
            f"wavenumbers"
            + (", from the start of each simulation and the exact amplitudes" if name == "first" else ""),
        )


def _resonant_claims(k8: xr.Dataset) -> Iterator[Claim]:
    settled = k8.wavenumber == 8
    error = abs(k8.predicted / k8.amplitude - 1).where(settled)
    median = float(error.median())
    yield Claim(
        "fig3.resonant.k8",
        "Median relative error of the order-7 amplitude with its resonant terms at k_c = 8, from any phase",
        None,
        median,
        median <= 0.001,
        f"{int(error.notnull().sum())} of {error.size} points of panel c, from random phases until the lattice has "
        f"drawn them to a family; {_spread(error)}; met if at most 0.001",
    )
    offset = abs((4 * (k8.phase - k8.predicted_phase) + np.pi) % (2 * np.pi) - np.pi) / 4
    told = settled & k8.predicted.notnull()
    met = float((offset < LEFT).where(told).mean())
    yield Claim(
        "fig3.resonant.k8.phase",
        "Share of those points that come to the phase that the order-7 form calls stable",
        None,
        met,
        met == 1.0,
        f"{int(told.sum())} points; arg B within {LEFT:g} of it modulo π/2; met if all",
    )
