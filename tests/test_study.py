"""Studies with an experiment, arms and tasks of one's own: paired, never lost, the same from any worker."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from dispersion import ArgumentError
from simulate.runs.columns import Column
from training.experiment import BASELINE, MATCHED, MISMATCHED, Experiment
from training.study import Study
from training.units import STATUS

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Guess:
    """An arm: a number to start from."""

    name: str
    value: float


@dataclass(frozen=True)
class Mean:
    """A task: the mean of normal numbers."""

    name: str
    mean: float
    spread: float = 1.0


@dataclass(frozen=True)
class Averaging(Experiment):
    """Each arm goes a tenth of the way to the mean of a batch at every step."""

    length: int = 4
    rate: float = 0.1

    @property
    def steps(self):
        return self.length * 2

    def columns(self, arms, tasks):
        described = {"long_name": "estimate", "units": "1"}
        noise = Column((), (), float, np.nan, {"long_name": "first number drawn", "units": "1"})
        steps = self.length + 1
        return {"estimate": Column(("arm", "step"), (len(arms), steps), float, np.nan, described), "noise": noise}

    def coordinates(self, arms, tasks):
        return {"step": (("step",), np.arange(self.length + 1), {"long_name": "step", "units": "step"})}

    def role(self, arm, task):
        return BASELINE if np.isnan(arm.value) else MATCHED if arm.value == task.mean else MISMATCHED

    def check(self, arms, task, seed):
        if task.spread <= 0:
            raise ArgumentError("spread", task.spread, "a number above 0")

    def train(self, arms, task, size, seed, progress):
        data = task.mean + task.spread * np.random.default_rng([seed, 0]).standard_normal(size)
        batches = np.random.default_rng([seed, 1])
        if task.mean == 13 and seed == 1:
            raise ZeroDivisionError("unlucky")
        estimates = [np.array([arm.value for arm in arms])]
        for _ in range(self.length):
            estimates.append(estimates[-1] + self.rate * (batches.choice(data) - estimates[-1]))
            progress(1)
        return {"estimate": np.array(estimates).T, "noise": data[0]}


ARMS = (Guess("low", -1.0), Guess("high", 3.0), Guess("none", np.nan))
TASKS = (Mean("low", -1.0), Mean("high", 3.0))


def study(experiment=None, arms=ARMS, tasks=TASKS, seeds=3, sizes=(4, 8)):
    return Study(experiment or Averaging(), arms, tasks, seeds, sizes)


def test_every_arm_task_seed_and_size_is_there():
    data = study().run()
    assert dict(data.sizes) == {"task": 2, "seed": 3, "size": 2, "arm": 3, "step": 5}
    assert (data.status == STATUS.index("trained")).all()
    assert data.role.sel(task="low").values.tolist() == [MATCHED, MISMATCHED, BASELINE]
    assert data.arm.values.tolist() == ["low", "high", "none"]
    assert all(data[name].attrs["long_name"] and data[name].attrs["units"] for name in data.data_vars)
    assert np.isfinite(data.estimate.sel(arm=["low", "high"])).all()


def test_arms_of_a_seed_share_data_and_batches():
    data = study().run()
    gap = data.estimate.sel(arm="high") - data.estimate.sel(arm="low")
    closing = 4 * 0.9 ** np.arange(5)
    np.testing.assert_allclose(gap, np.broadcast_to(closing, gap.shape), rtol=1e-13)
    assert len(np.unique(data.noise.sel(task="low", size=4))) == 3


def test_an_arm_learns_the_same_whatever_else_is_in_the_study():
    whole = study().run()
    alone = study(arms=ARMS[1:2], tasks=TASKS[:1], seeds=(2,), sizes=(8,)).run()
    found = whole.estimate.sel(task="low", seed=2, size=8, arm="high")
    assert (alone.estimate.values.ravel() == found.values).all()


def test_two_workers_write_the_same_file(tmp_path):
    study().run(tmp_path / "one.nc")
    study().run(tmp_path / "two.nc", workers=2)
    assert (tmp_path / "one.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_study_goes_on_to_the_same_file(tmp_path, workers):
    study().run(tmp_path / "whole.nc")
    program = (
        "import test_study as t\n"
        "train = t.Averaging.train\n"
        "def dying(self, arms, task, size, seed, progress):\n"
        "    t.os._exit(9) if (task.name, seed) == ('high', 0) else None\n"
        "    return train(self, arms, task, size, seed, progress)\n"
        "t.Averaging.train = dying\n"
        f"t.study().run({str(tmp_path / 'killed.nc')!r})"
    )
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, check=False)
    assert done.returncode == 9
    assert not (tmp_path / "killed.nc").exists()
    assert (tmp_path / "killed.nc.parts").exists()
    counted = []
    with pytest.MonkeyPatch.context() as patch:
        train = Averaging.train
        patch.setattr(Averaging, "train", lambda self, *given: counted.append(given[1].name) or train(self, *given))
        data = study().run(tmp_path / "killed.nc", workers=workers)
    assert workers > 1 or counted == ["high"] * 6
    assert (tmp_path / "killed.nc").read_bytes() == (tmp_path / "whole.nc").read_bytes()
    assert set(os.listdir(tmp_path)) == {"whole.nc", "killed.nc"}
    assert data.attrs["interrupted"] == 0


def test_control_c_keeps_what_is_finished(tmp_path, monkeypatch):
    study().run(tmp_path / "whole.nc")
    train = Averaging.train

    def interrupted(self, arms, task, size, seed, progress):
        if (task.name, seed) == ("high", 1):
            raise KeyboardInterrupt
        return train(self, arms, task, size, seed, progress)

    with monkeypatch.context() as patch:
        patch.setattr(Averaging, "train", interrupted)
        data = study().run(tmp_path / "a.nc")
    assert data.attrs["interrupted"] == 1
    assert int((data.status == STATUS.index("not run")).sum()) == 4
    assert np.isnan(data.estimate.sel(task="high", seed=2)).all()
    data = study().run(tmp_path / "a.nc")
    assert data.attrs["interrupted"] == 0
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "whole.nc").read_bytes()


def test_a_finished_study_is_read_and_not_trained_again(tmp_path, monkeypatch):
    first = study().run(tmp_path / "a.nc")
    monkeypatch.setattr(Averaging, "train", lambda *_: pytest.fail("trained again"))
    assert study().run(tmp_path / "a.nc").identical(first)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"experiment": Averaging(rate=0.2)}, "another rate"),
        ({"arms": ARMS[:2]}, "another arms"),
        ({"tasks": (TASKS[0], replace(TASKS[1], spread=2.0))}, "another tasks"),
        ({"seeds": 4}, "another seeds"),
        ({"sizes": (4,)}, "another sizes"),
    ],
)
def test_another_study_at_the_path_is_refused(tmp_path, changed, what):
    study().run(tmp_path / "a.nc")
    before = (tmp_path / "a.nc").read_bytes()
    with pytest.raises(ArgumentError, match=what):
        study(**changed).run(tmp_path / "a.nc")
    assert (tmp_path / "a.nc").read_bytes() == before


def test_a_unit_that_fails_is_told_and_the_others_survive(tmp_path):
    data = study(tasks=(*TASKS, Mean("unlucky", 13.0))).run(tmp_path / "a.nc")
    failed = data.status == STATUS.index("failed")
    assert int(failed.sum()) == 2
    assert failed.sel(task="unlucky", seed=1).all()
    assert data.reason.sel(task="unlucky", seed=1, size=4).item() == "ZeroDivisionError: unlucky"
    assert np.isfinite(data.estimate.sel(arm="low").where(~failed, 0)).all()
    with pytest.raises(ArgumentError, match="unlucky"):
        study(tasks=(Mean("unlucky", 13.0),), seeds=(1,)).run()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"arms": ()}, "arms"),
        ({"arms": (ARMS[0], ARMS[0])}, r"arms\[1\]"),
        ({"arms": (3.0,)}, r"arms\[0\]"),
        ({"tasks": (Mean("flat", 0.0, 0.0),)}, "spread"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": (1, 1)}, "seeds"),
        ({"seeds": (-1,)}, "seeds"),
        ({"sizes": (0,)}, "sizes"),
        ({"sizes": 4}, "sizes"),
        ({"experiment": "fit"}, "experiment"),
    ],
)
def test_bad_input(given, name):
    with pytest.raises(ArgumentError, match=name):
        study(**given)


def test_settings_are_in_the_file():
    attributes = study().run().attrs
    assert '"spread": 1.0' in attributes["tasks"]
    assert '"type": "Averaging"' in attributes["experiment"]
    assert '"rate": 0.1' in attributes["experiment"]
    assert {"settings", "tokenwaves_version", "numpy_version", "torch_version"} <= set(attributes)
