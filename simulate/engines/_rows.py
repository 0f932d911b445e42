"""Compiled parts of long scalar rings. Importing this imports numba."""

from __future__ import annotations

import numpy as np

from dispersion.compiled import entry
from simulate.engines._exp import LOG2_E, LOWEST, REMOVED, exp2_product
from simulate.engines._lanes import LANES, load, load_from, select_above, splat, store


@entry()
def exact_rows(first, last, x, keys, weights, content, ratio):  # type: ignore[no-untyped-def]
    """Write S/T (Eq. 13) of the tokens `first` to `last` into `ratio` (N,), one exponential for each pair.

    x : (N,) state, |χ|x² ≤ 600 (`steady`). keys : the same, with zeros up to a multiple of LANES.
    weights : (2N + LANES,) P_{N−1}, …, P_0 twice and then zeros. content : χ.
    """
    n = x.shape[0]
    whole = keys.shape[0] // LANES
    sums = np.empty((2, LANES))
    beyond = np.empty((1, LANES))
    for lane in range(LANES):
        beyond[0, lane] = 1.0 if (whole - 1) * LANES + lane < n else 0.0
    inside = load(beyond, 0)
    for i in range(first, last):
        tilt = splat(content * LOG2_E * x[i])
        s, t = splat(0.0), splat(0.0)
        start = n - 1 - i  # of P_i, P_{i−1}, …
        for b in range(whole):
            xj = load_from(keys, b * LANES)
            e = load_from(weights, start + b * LANES) * exp2_product(tilt, xj)
            if b == whole - 1:
                e = e * inside
            s = s + e * xj
            t = t + e
        store(sums, 0, s)
        store(sums, 1, t)
        ratio[i] = sums[0].sum() / sums[1].sum()


@entry()
def shifted_rows(first, last, x, keys, logits, content, ratio):  # type: ignore[no-untyped-def]
    """`exact_rows` where exponentials would leave float64: every row is shifted by its largest logit.

    logits : (2N + LANES,) b_{N−1}, …, b_0 in base 2 twice and then zeros, REMOVED for a lag that is not there.
    """
    n = x.shape[0]
    whole = keys.shape[0] // LANES
    sums, beyond = np.empty((2, LANES)), np.empty((1, LANES))
    for lane in range(LANES):
        beyond[0, lane] = 0.0 if (whole - 1) * LANES + lane < n else REMOVED
    outside, one, lowest = load(beyond, 0), splat(1.0), splat(LOWEST)
    for i in range(first, last):
        tilt = splat(content * LOG2_E * x[i])
        start = n - 1 - i  # of b_i, b_{i−1}, …
        top, s, t = splat(-1.7e308), splat(0.0), splat(0.0)
        for b in range(whole):
            y = tilt * load_from(keys, b * LANES) + load_from(logits, start + b * LANES)
            if b == whole - 1:
                y = y + outside
            top = select_above(y, top, y, top)
        store(sums, 0, top)
        top = splat(sums[0].max())
        for b in range(whole):
            xj = load_from(keys, b * LANES)
            y = tilt * xj + load_from(logits, start + b * LANES)
            if b == whole - 1:
                y = y + outside
            y = y - top
            e = exp2_product(select_above(lowest, y, lowest, y), one)
            s = s + e * xj
            t = t + e
        store(sums, 0, s)
        store(sums, 1, t)
        ratio[i] = sums[0].sum() / sums[1].sum()
