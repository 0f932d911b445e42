"""Statistics of studies on curves made by hand, against scipy and formulas called directly."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from dispersion import ArgumentError
from training import statistics
from training.experiment import BASELINE, MATCHED, MISMATCHED

STEPS = np.arange(0, 61, 5)


def curves(seeds=6, rng=0):
    """Accuracy that rises linearly with step, faster where arm and task match; cross-entropy that turns at step 30."""
    draw = np.random.default_rng(rng)
    rates = np.array([[0.010, 0.004, 0.006, 0.011], [0.003, 0.012, 0.005, 0.002]])
    noise = draw.uniform(-0.001, 0.001, (2, seeds, 1, 4))
    accuracy = (rates[:, None, None, :] + noise)[..., None] * STEPS
    entropy = 2 + (STEPS - 30.0) ** 2 / 900 - accuracy
    dims = ("task", "seed", "size", "arm", "step")
    roles = [[MATCHED, MISMATCHED, MISMATCHED, BASELINE], [MISMATCHED, MATCHED, MISMATCHED, BASELINE]]
    return xr.Dataset(
        {"accuracy": (dims, accuracy), "cross_entropy": (dims, entropy), "role": (("task", "arm"), roles)},
        {"task": ["a", "b"], "seed": np.arange(seeds), "size": [64], "arm": ["a", "b", "c", "random"], "step": STEPS},
    )


@pytest.mark.parametrize("window", [0, 20, 50])
def test_early_auc_is_the_mean_over_evaluated_steps(window):
    data = curves()
    found = statistics.early_auc(data, window)
    rates = data.accuracy.isel(step=-1) / STEPS[-1]
    np.testing.assert_allclose(found, rates.drop_vars("step") * window / 2, rtol=1e-12, atol=1e-15)
    assert found.dims == ("task", "seed", "size", "arm")


def test_a_window_that_was_not_evaluated_is_refused():
    for window in (7, 65):
        with pytest.raises(ArgumentError, match="window"):
            statistics.early_auc(curves(), window)


def test_z_scores_have_mean_0_and_spread_1_over_arms():
    auc = statistics.early_auc(curves(), 50)
    scores = statistics.z_scores(auc)
    np.testing.assert_allclose(scores.mean("arm"), 0, atol=1e-12)
    np.testing.assert_allclose((scores**2).mean("arm"), 1, rtol=1e-12)
    expected = stats.zscore(auc.mean("seed").sel(task="b", size=64).values)
    np.testing.assert_allclose(scores.sel(task="b", size=64), expected, rtol=1e-12)
    assert np.isnan(statistics.z_scores(auc * 0)).all()


def test_paired_differences_against_scipy():
    data = curves()
    auc = statistics.early_auc(data, 20)
    found = statistics.paired(auc, data.role)
    for task, match, others in (("a", "a", ["b", "c"]), ("b", "b", ["a", "c"])):
        values = auc.sel(task=task, size=64)
        differences = (values.sel(arm=match) - values.sel(arm=others).max("arm")).values
        cell = found.sel(task=task, size=64)
        assert cell.difference == pytest.approx(differences.mean(), rel=1e-12)
        assert cell.difference == pytest.approx(float(cell.matched - cell.mismatched), rel=1e-12)
        interval = stats.bootstrap(
            (differences,), np.mean, n_resamples=9999, random_state=np.random.default_rng(0)
        ).confidence_interval
        assert (cell.low, cell.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
        assert differences.min() < cell.low < cell.difference < cell.high < differences.max()
        assert (cell.positive, cell.seeds) == (6, 6)
        assert cell.p == pytest.approx(2 / 2**6, rel=1e-12)  # all of one sign: the least there is
        assert cell.diagonal
        assert cell.strongest == "c"


def test_the_baseline_is_no_mismatch_and_the_interval_covers_as_it_says():
    data = curves()
    found = statistics.paired(statistics.early_auc(data, 20), data.role)
    assert found.sel(task="a").diagonal.all()  # `random` is the highest of task a
    draw = np.random.default_rng(1)
    dims = {"task": 200, "seed": 12, "size": 1, "arm": 2}
    values = xr.DataArray(np.stack([draw.normal(0.3, 1, (200, 12, 1)), np.zeros((200, 12, 1))], -1), dims=tuple(dims))
    values = values.assign_coords(arm=["m", "o"])
    role = xr.DataArray([[MATCHED, MISMATCHED]] * 200, dims=("task", "arm"))
    covered = statistics.paired(values, role)
    inside = float(((covered.low < 0.3) & (covered.high > 0.3)).mean())
    assert 0.86 < inside < 0.97  # of 95 %, a little less for 12 seeds


def test_two_arms_by_name():
    data = curves()
    auc = statistics.early_auc(data, 20)
    found = statistics.over_seeds(auc.sel(arm="a") - auc.sel(arm="b"))
    difference = (auc.sel(arm="a") - auc.sel(arm="b")).sel(size=64)
    np.testing.assert_allclose(found.difference.sel(size=64), difference.mean("seed"), rtol=1e-12)
    assert found.positive.sel(size=64).values.tolist() == [6, 0]
    assert found.p.values == pytest.approx(stats.wilcoxon(difference.sel(task="a")).pvalue)
    turned = statistics.over_seeds(auc.sel(arm="b") - auc.sel(arm="a"))
    np.testing.assert_allclose(turned.difference, -found.difference, rtol=1e-12)
    np.testing.assert_allclose(turned.low, -found.high, atol=2e-4)  # another sample of the bootstrap
    assert all(found[name].attrs["long_name"] for name in found)


def test_the_strongest_is_that_of_each_seed():
    values = xr.DataArray(
        [[[[1.0, 0.5, 0.0]], [[1.0, 0.0, 0.9]]]],
        dims=("task", "seed", "size", "arm"),
        coords={"arm": ["m", "x", "y"]},
    )
    role = xr.DataArray([[MATCHED, MISMATCHED, MISMATCHED]], dims=("task", "arm"))
    found = statistics.paired(values, role).squeeze()
    assert found.difference == pytest.approx((0.5 + 0.1) / 2)
    assert found.strongest == "y"


def test_what_cannot_be_said_is_nan():
    data = curves()
    auc = statistics.early_auc(data, 20)
    none = statistics.paired(auc, xr.full_like(data.role, BASELINE))
    assert np.isnan(none.difference).all()
    assert not none.diagonal.any()
    assert (none.strongest == "").all()
    one = statistics.paired(auc.isel(seed=[0]), data.role)
    assert np.isfinite(one.difference).all()
    assert np.isnan(one.low).all()
    assert np.isnan(one.p).all()
    part = statistics.paired(auc.where(auc.seed < 4), data.role)
    assert (part.seeds == 4).all()
    equal = statistics.paired(auc * 0, data.role)
    assert (equal.p == 1).all()
    assert (equal.low == 0).all()
    assert (equal.positive == 0).all()
    with pytest.raises(ArgumentError, match="confidence"):
        statistics.paired(auc, data.role, confidence=1.0)


def test_best_and_last_step():
    data = curves()
    found = statistics.at_steps(data)
    index = data.cross_entropy.values.argmin(-1)
    assert (found.best_step.values == STEPS[index]).all()
    np.testing.assert_array_equal(found.best, data.cross_entropy.values.min(-1))
    np.testing.assert_array_equal(found.last, data.cross_entropy.values[..., -1])
    highest = statistics.at_steps(data, "accuracy")
    np.testing.assert_array_equal(highest.best, data.accuracy.values.max(-1))
    assert np.isnan(statistics.at_steps(data.where(data.seed > 0)).best.sel(seed=0)).all()
    with pytest.raises(ArgumentError, match="name"):
        statistics.at_steps(data, "loss")


def test_windows_are_side_by_side():
    data = curves()
    found = statistics.windows(data)
    assert list(found) == [20, 50]
    assert list(statistics.windows(data.sel(step=slice(0, 40)))) == [20]
    assert found[50].difference.sel(task="a").item() > found[20].difference.sel(task="a").item()
