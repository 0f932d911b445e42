"""The ground floor of long work carries what is no sweep: a study of seeds, spread, interrupted and gone on with."""

import os
from dataclasses import dataclass

import numpy as np
import pytest

from dispersion import ArgumentError
from simulate.runs.columns import Column, Part
from simulate.runs.identity import digest, total
from simulate.runs.netcdf import load
from simulate.runs.spread import jobs_of
from simulate.runs.store import Memory
from simulate.runs.task import Task
from simulate.runs.work import Work

SEEDS = {"seed": np.arange(12), "size": np.array([10, 100])}


@dataclass(frozen=True)
class Walks(Task):
    """Where random walks of given seeds and sizes end, and their extremes; the walk after `fatal` ends the process."""

    kind, made_of = "study", "walks"

    scale: float = 1.0
    fatal: int = 10**9
    error: type = KeyboardInterrupt

    @property
    def columns(self):
        return {"end": Column((), (), float, np.nan, {"long_name": "end", "units": "1"})}

    def __len__(self):
        return 24

    def walk(self, point):
        seed, size = divmod(point, 2)
        return self.scale * np.random.default_rng(seed).standard_normal(10 ** (1 + size)).cumsum()

    def run(self, first, last, given, progress):
        part = Part.blank(first, last, self.columns)
        for point in range(first, last):
            if point >= self.fatal:
                raise self.error
            walk = self.walk(point)
            part.enter("end", point - first, walk[-1])
            part.enter_custom(point - first, {"extremes": np.array([walk.min(), walk.max()])})
            progress(1)
        part.origin = self.identify(first, last, given).origin
        return part

    def identify(self, first, last, given):
        return Part(first, last, origin=total(digest((point, self.scale)) for point in range(first, last)))

    def verify(self, done, found, given):
        if not np.isfinite(found.rows("end", 0, len(self))[done]).all():
            raise ArgumentError("path", "a walk without an end", "ends")


def study(jobs=(None, None), depth="1", **task):
    return Work(Walks(**task), SEEDS, {"depth": depth}, jobs=jobs_of(*jobs), size=3, attributes={"title": "walks"})


@pytest.fixture
def whole(tmp_path):
    path = tmp_path / "whole.nc"
    assert study().run_at(path, resume=False, progress=False) == 0
    return path


@pytest.mark.parametrize("jobs", [(None, None), (2, "threading"), pytest.param((2, "loky"), marks=pytest.mark.slow)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_study_of_seeds_goes_on_to_the_same_file(tmp_path, whole, jobs, error):
    path = tmp_path / "a.nc"
    if error is KeyboardInterrupt:
        assert study(fatal=10, error=error).run_at(path, resume=True, progress=False) == 15
        assert load(path).attrs["interrupted"] == 1
    else:
        with pytest.raises(error):
            study(fatal=10, error=error).run_at(path, resume=True, progress=False)
    assert (tmp_path / "a.nc.parts").is_dir()
    assert study(jobs).run_at(path, resume=True, progress=False) == 0
    assert path.read_bytes() == whole.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.nc", "whole.nc"]


def test_its_dataset_is_the_one_in_the_file(whole):
    work, store = study(), Memory(24, Walks().columns)
    assert work.run(store, progress=False) == 0
    found = work.result(store).dataset()
    assert found.identical(load(whole))
    assert found.end.dims == ("seed", "size")
    assert found.extremes.shape == (12, 2, 2)
    assert float(found.end[3, 1]) == Walks().walk(7)[-1]


def test_another_study_is_refused_by_what_differs(whole):
    before = whole.read_bytes()
    assert study().run_at(whole, resume=True, progress=False) == 0
    for other, named in [
        ({"depth": "2"}, "another study, with another depth"),
        ({"scale": 2.0}, "another study, with other walks"),
    ]:
        with pytest.raises(ArgumentError, match=named):
            study(**other).run_at(whole, resume=True, progress=False)
    assert whole.read_bytes() == before


def test_a_file_that_is_no_study_is_refused(tmp_path, whole):
    path = tmp_path / "b.nc"
    load(whole).drop_attrs().to_netcdf(path)
    with pytest.raises(ArgumentError, match="another study or none"):
        study().run_at(path, resume=True, progress=False)
