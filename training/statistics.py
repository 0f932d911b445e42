"""What a study says: early learning, paired differences between arms, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import choice, real_number, whole_number
from training.experiment import MATCHED, MISMATCHED

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

WINDOWS = (20, 50)
"""Steps over which early learning is averaged, always both."""

RESAMPLES = 9999
"""Of a bootstrap interval."""

ROUNDING = 1e-12
"""Seeds whose differences are this close, relatively, do not differ."""


def early_auc(data: Dataset, window: int) -> DataArray:
    """Mean of the held-out accuracy at the evaluated steps 0 to `window`, a normalised area under the learning curve.

    Parameters
    ----------
    data : xarray.Dataset
        Of a study, with `accuracy` over `step`.
    window : int
        Its last step, one that was evaluated.

    Returns
    -------
    xarray.DataArray
        Over task, seed, size and arm, 0 to 1; NaN where nothing was trained.

    Raises
    ------
    ArgumentError
        A step at which nothing was evaluated.
    """
    window = whole_number("window", window, 0)
    if window not in data.step.values:
        raise ArgumentError("window", window, f"an evaluated step: {', '.join(map(str, data.step.values[:8]))}, …")
    mean = data.accuracy.sel(step=slice(0, window)).mean("step", skipna=False)
    return mean.rename("early_auc").assign_attrs(long_name=f"mean held-out accuracy, steps 0 to {window}", units="1")


def z_scores(values: DataArray) -> DataArray:
    """Mean over seeds, then (value − mean over arms) / standard deviation over arms, for each task and size.

    Parameters
    ----------
    values : xarray.DataArray
        Over seed and arm at least.

    Returns
    -------
    xarray.DataArray
        Without seed; NaN where all arms are equal.
    """
    means = values.mean("seed")
    spread = means.std("arm")
    scores = (means - means.mean("arm")) / spread.where(spread > 0)
    return scores.rename("z").assign_attrs(long_name="z-score over arms", units="1")


def at_steps(data: Dataset, name: str = "cross_entropy") -> Dataset:
    """A score at the last step and at the best step of each curve.

    Parameters
    ----------
    data : xarray.Dataset
        Of a study.
    name : str
        'cross_entropy', best where lowest, or 'accuracy', best where highest; both held-out.

    Returns
    -------
    xarray.Dataset
        `last`, `best` and `best_step`, over task, seed, size and arm.

    Raises
    ------
    ArgumentError
        Another name.
    """
    import xarray

    name = choice("name", name, ("cross_entropy", "accuracy"))
    curve = data[name]
    filled = curve.fillna(np.inf) if name == "cross_entropy" else -curve.fillna(-np.inf)
    place = filled.argmin("step")
    trained = curve.notnull().any("step")
    best = curve.isel(step=place).drop_vars("step").where(trained)
    steps = data.step.isel(step=place).drop_vars("step").where(trained)
    return xarray.Dataset(
        {
            "last": curve.isel(step=-1, drop=True).assign_attrs(long_name=f"{name} at the last step", units="1"),
            "best": best.assign_attrs(long_name=f"{name} at its best step", units="1"),
            "best_step": steps.assign_attrs(long_name="step of the best score", units="step"),
        }
    )


def paired(values: DataArray, role: DataArray, confidence: float = 0.95, rng: int = 0) -> Dataset:
    """Matched arm minus the strongest mismatched arm of the same seed, for each task and size.

    The strongest is chosen anew for each seed, which can only make the difference smaller than with one chosen for all.

    Parameters
    ----------
    values : xarray.DataArray
        Of task, seed, size and arm; more is better.
    role : xarray.DataArray
        Of task and arm, as in a study.
    confidence : float
        Of the interval, between 0 and 1.
    rng : int
        Seed of the bootstrap.

    Returns
    -------
    xarray.Dataset
        Over task and size: the means `matched` and `mismatched`, all of `over_seeds`, `diagonal`, whether the mean of
        the matched arm over seeds is above that of every mismatched one, and `strongest`, the mismatched arm of
        highest mean. NaN for tasks without a matched or a mismatched arm.

    Raises
    ------
    ArgumentError
        A confidence outside of 0 to 1.
    """
    matched = values.where(role == MATCHED).max("arm")
    others = values.where(role == MISMATCHED)
    strongest = others.max("arm")
    means = others.mean("seed")
    there = means.notnull().any("arm") & matched.notnull().any("seed")
    names = values.arm.isel(arm=means.fillna(-np.inf).argmax("arm")).drop_vars("arm")
    return over_seeds(matched - strongest, confidence, rng).assign(
        matched=_mean(matched, "mean of the matched arm"),
        mismatched=_mean(strongest, "mean of the strongest mismatched arm of each seed"),
        diagonal=(matched.mean("seed") > means.max("arm")) & there,
        strongest=names.where(there, ""),
    )


def over_seeds(differences: DataArray, confidence: float = 0.95, rng: int = 0) -> Dataset:
    """How sure paired differences are, such as values.sel(arm='a') − values.sel(arm='b').

    Parameters
    ----------
    differences : xarray.DataArray
        Over seed at least; NaN where a seed has none.
    confidence : float
        Of the interval, between 0 and 1.
    rng : int
        Seed of the bootstrap.

    Returns
    -------
    xarray.Dataset
        Without seed: the mean `difference`, its bootstrap interval `low` to `high` (bias-corrected and accelerated,
        scipy.stats.bootstrap over seeds; NaN for fewer than two), `positive`, the seeds with a difference above 0, of
        `seeds`, and `p` of the two-sided Wilcoxon signed-rank test.

    Raises
    ------
    ArgumentError
        A confidence outside of 0 to 1.
    """
    import xarray

    confidence = real_number("confidence", confidence, positive=True)
    if confidence >= 1:
        raise ArgumentError("confidence", confidence, "a number between 0 and 1")
    differences = differences.transpose(..., "seed")
    rows = differences.values.reshape(-1, differences.sizes["seed"])
    cells = np.array([_interval(row, confidence, rng) for row in rows])
    dims, shape = differences.dims[:-1], differences.shape[:-1]
    found = {
        name: (dims, part.reshape(shape), described)
        for (name, described), part in zip(LONG.items(), cells.T, strict=True)
    }
    attributes = {"confidence": confidence, "resamples": RESAMPLES, "rng": rng}
    return xarray.Dataset({"difference": _mean(differences, "mean paired difference"), **found}, attrs=attributes)


def windows(data: Dataset, steps: Sequence[int] = WINDOWS) -> dict[int, Dataset]:
    """`paired` of the early learning over each of several windows, side by side.

    Parameters
    ----------
    data : xarray.Dataset
        Of a study.
    steps : sequence of int
        The last steps of the windows; those after the last step of the study are left out.

    Returns
    -------
    dict
        {window: as `paired`}.
    """
    last = int(data.step.max())
    return {window: paired(early_auc(data, window), data.role) for window in steps if window <= last}


LONG = {
    "low": {"long_name": "lower end of the bootstrap interval of the mean difference", "units": "1"},
    "high": {"long_name": "upper end of the bootstrap interval of the mean difference", "units": "1"},
    "positive": {"long_name": "seeds with a difference above 0", "units": "1"},
    "seeds": {"long_name": "seeds with a difference", "units": "1"},
    "p": {"long_name": "two-sided p of the Wilcoxon signed-rank test over seeds", "units": "1"},
}


def _mean(values: DataArray, described: str) -> DataArray:
    return values.mean("seed").assign_attrs(long_name=described, units="1")


def _interval(values: NDArray[np.float64], confidence: float, rng: int) -> list[Any]:
    """[low, high, positive, seeds, p] of the differences of seeds, NaN aside."""
    from scipy.stats import bootstrap, wilcoxon

    values = values[np.isfinite(values)]
    positive, seeds = int((values > 0).sum()), len(values)
    if seeds < 2:
        return [np.nan, np.nan, positive, seeds, np.nan]
    p = float(wilcoxon(values).pvalue) if values.any() else 1.0
    if np.ptp(values) <= ROUNDING * np.abs(values).max():
        return [values[0], values[0], positive, seeds, p]
    generator = np.random.default_rng(rng)
    interval = bootstrap(
        (values,), np.mean, confidence_level=confidence, n_resamples=RESAMPLES, random_state=generator
    ).confidence_interval
    return [float(interval.low), float(interval.high), positive, seeds, p]
