"""An observable is declared once: for trajectories, sweeps and files."""

import numpy as np
import pytest

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from simulate import OBSERVABLES, STATUS, Observable, iterate, load, sweep
from simulate.results import ENDINGS

GAINS = {"gain": [0.3, 0.6, 0.9]}


def crest_of(path):
    return np.abs(path.state).max()


def profile_of(path):
    if path.wavenumber == 0:
        raise ValueError("no pattern")
    return path.state - path.state.mean()


CREST = Observable("crest", crest_of, "largest |x|", label="crest $C$")
PROFILE = Observable("profile", profile_of, "pattern", dims=("token", "feature"))


def make_block(gain, content=1.5):
    kernel = Kernel.gaussian_lobes(16, separation=3, width=1.0, strength=2.0)
    return Block([Head(kernel, -gain, content)], FeedForward.scalar("tanh", -0.1))


def turning(gain):
    angle, kernel = 1.3, Kernel.gaussian_lobes(16, 5, 1.0, 2.0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return Block([Head(kernel, -gain * turn, 2 * np.eye(2))], FeedForward.elementwise("tanh", 2, -0.1))


@pytest.mark.parametrize("make", [make_block, turning])
@pytest.mark.parametrize("jobs", [{}, {"n_jobs": 2, "backend": "threading"}])
def test_ones_own_observable_is_measured_kept_and_described(tmp_path, make, jobs):
    found = sweep(make, GAINS, 300, start=0.1, measure=["wavenumber", CREST, PROFILE], path=tmp_path / "a.nc", **jobs)
    assert found.crest.attrs == {"long_name": "largest |x|", "units": "1"}
    assert found.profile.dims == ("gain", "token", "feature")[: 2 + (make is turning)]
    assert load(tmp_path / "a.nc").identical(found)
    for place, gain in enumerate(GAINS["gain"]):
        path = iterate(make(gain), 300, 0.1, np.random.SeedSequence(0, spawn_key=(place,)))
        if path.status == "diverged":
            assert np.isnan(found.crest[place])
            continue
        assert float(found.crest[place]) == CREST(path)
        if STATUS[int(found.status[place])] == "failed":
            assert path.wavenumber == 0
            assert found.reason.values[place] == "no pattern"
        else:
            np.testing.assert_array_equal(found.profile[place].values.ravel(), PROFILE(path).ravel())


def test_a_sweep_with_another_observable_is_another_sweep(tmp_path):
    path = tmp_path / "a.nc"
    sweep(make_block, GAINS, 10, measure=CREST, path=path)
    sweep(make_block, GAINS, 10, measure=CREST, path=path, resume=True)
    other = Observable("crest", lambda path: path.state.max(), "largest |x|", label="crest $C$")
    with pytest.raises(ArgumentError, match="another sweep, with another measure"):
        sweep(make_block, GAINS, 10, measure=other, path=path, resume=True)


@pytest.mark.parametrize("name", ["state", "k", "gain", "a/b", ""])
def test_names_that_are_taken_or_no_name_are_refused_before_the_work(name):
    with pytest.raises(ArgumentError, match="measure"):
        sweep(make_block, GAINS, 10, measure=Observable(name, crest_of))
    with pytest.raises(ArgumentError, match="'crest'"):
        sweep(make_block, GAINS, 10, measure=[CREST, Observable("crest", profile_of)])


@pytest.mark.parametrize(
    ("value", "reason"), [(lambda path: np.zeros(3), "shape (3,)"), (lambda path: "x", "type <U1"), (3, "")]
)
def test_what_it_cannot_record_marks_the_point(value, reason):
    if not callable(value):
        with pytest.raises(ArgumentError, match="value"):
            Observable("bad", value)
        return
    found = sweep(make_block, GAINS, 10, measure=["state", Observable("bad", value)])
    assert (found.status == STATUS.index("failed")).all()
    assert all(reason in text for text in found.reason.values)
    assert np.isfinite(found.state).all()
    assert np.isnan(found.bad).all()


@pytest.mark.parametrize("make", [make_block, turning])
def test_the_known_ones_are_those_of_a_trajectory(make):
    """One declaration has two routes for plain scalar rings: of one path, and of many rings together."""
    found = sweep(make, GAINS, 60, start=0.1, measure=list(OBSERVABLES))
    assert list(found.data_vars) == [*OBSERVABLES, *ENDINGS]
    for place, gain in enumerate(GAINS["gain"]):
        path = iterate(make(gain), 60, 0.1, np.random.SeedSequence(0, spawn_key=(place,)))
        for name, observable in OBSERVABLES.items():
            np.testing.assert_allclose(found[name].values[place], observable(path), rtol=1e-9, atol=1e-9, err_msg=name)
            assert found[name].attrs["long_name"] == observable.long_name
