"""Experiments that fit stacked networks: batches, columns, and an experiment of one's own with another loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from dispersion import ArgumentError
from training.experiment import BASELINE
from training.fitted import Fitted, batches
from training.study import Study


@dataclass(frozen=True)
class Points:
    """Examples of a regression: x and y."""

    inputs: np.ndarray
    y: np.ndarray

    def __len__(self):
        return len(self.inputs)

    def take(self, rows):
        return Points(self.inputs[rows], self.y[rows])


@pytest.mark.parametrize(("size", "most", "each"), [(10, 4, 4), (3, 8, 3), (8, 4, 4), (1, 1, 1)])
def test_batches_pass_through_the_set_epoch_by_epoch(size, most, each):
    examples = Points(np.arange(size), np.arange(size))
    found = [batch.inputs for batch in batches(examples, most, 12, np.random.default_rng(0))]
    assert [len(batch) for batch in found] == [each] * 12
    epoch = size // each
    for first in range(0, 12 - epoch + 1, epoch):
        seen = np.concatenate(found[first : first + epoch])
        assert len(set(seen)) == len(seen)
    if size > each:
        assert not np.array_equal(np.concatenate(found[:epoch]), np.concatenate(found[epoch : 2 * epoch]))


class Lines(torch.nn.Module):
    """y = w x + b, a copy for each start."""

    def __init__(self, starts):
        super().__init__()
        self.copies = len(starts)
        self.w = torch.nn.Parameter(torch.tensor(starts, dtype=torch.float64))
        self.b = torch.nn.Parameter(torch.zeros(len(starts), dtype=torch.float64))

    def forward(self, x):
        return self.w[:, None] * x + self.b[:, None]

    def hold(self):
        pass

    def blocks(self):
        return [None] * self.copies

    def codes(self):
        return self.w.detach().tolist()


def squares(outputs, batch):
    return (outputs - batch.y).square().mean(1)


@dataclass(frozen=True)
class Start:
    """An arm: a slope."""

    slope: float

    @property
    def name(self):
        return f"{self.slope:g}"


@dataclass(frozen=True)
class Slope:
    """A task: y = slope x."""

    slope: float
    name: str = "line"


@dataclass(frozen=True)
class Regression(Fitted):
    """Straight lines, by least squares."""

    SCORES: ClassVar = {"error": {"long_name": "mean square error", "units": "1"}}

    def network(self, arms, task, seed):
        return Lines([arm.slope for arm in arms])

    def draw(self, task, count, rng):
        x = rng.standard_normal(count)
        return Points(x, task.slope * x)

    @property
    def loss(self):
        return squares

    @property
    def scores(self):
        return {"error": squares}

    @property
    def watched(self):
        return (0, self.steps)

    def seen(self, curves, arms, task):
        assert sorted(curves.snapshots) == [0, self.steps]
        return {}


def test_an_experiment_of_ones_own_with_another_loss():
    study = Study(Regression(steps=30, every=10, rate=0.1, held_out=50), [Start(2.0), Start(-1.0)], [Slope(2.0)], 2)
    data = study.run()
    assert list(data.data_vars) == ["error", "loss", "status", "reason", "role"]
    assert data.step.values.tolist() == [0, 10, 20, 30]
    assert data["update"].values.tolist() == list(range(1, 31))
    assert (data.role == BASELINE).all()
    error = data.error.sel(task="line", size=512)
    assert (error.sel(arm="2") < 0.01).all()
    assert (error.sel(arm="-1", step=0) > 4).all()
    assert (error.sel(arm="-1").diff("step") < 0).all()
    assert len(np.unique(error.sel(arm="-1", step=0))) == 2  # each seed has a held-out set of its own


def test_held_out_examples_are_none_of_the_training_set():
    seen = []

    @dataclass(frozen=True)
    class Watched(Regression):
        def draw(self, task, count, rng):
            seen.append(super().draw(task, count, rng))
            return seen[-1]

    Study(Watched(steps=1), [Start(1.0)], [Slope(2.0)], 1, (64,)).run()
    assert [len(each) for each in seen] == [64, 128]
    assert not set(seen[0].inputs) & set(seen[1].inputs)


def test_every_step_is_evaluated_where_asked_and_the_last_always():
    assert Regression(steps=12, every=5).evaluated.tolist() == [0, 5, 10, 12]
    data = Study(Regression(steps=12, every=5), [Start(1.0)], [Slope(2.0)], 1).run()
    assert data.step.values.tolist() == [0, 5, 10, 12]
    assert np.isfinite(data.error).all()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"steps": 0}, "steps"),
        ({"batch": 0}, "batch"),
        ({"every": 1.5}, "every"),
        ({"rate": 0.0}, "rate"),
        ({"clip": -1.0}, "clip"),
        ({"decay": np.nan}, "decay"),
        ({"autocast": 1}, "autocast"),
        ({"device": "abacus"}, "device"),
    ],
)
def test_bad_settings(given, name):
    with pytest.raises(ArgumentError, match=name):
        Regression(**given)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ArgumentError, match="device: got 'cuda'"):
        Regression(device="cuda")
