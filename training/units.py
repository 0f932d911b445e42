"""The units of work of a study: one task, seed and size each, with all arms side by side."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from multiprocessing import current_process
from threading import current_thread, main_thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import shown
from simulate.runs.columns import Column, Part
from simulate.runs.task import Progress, Task, ignored
from training import INSTALLED
from training.experiment import Experiment

STATUS = ("trained", "failed", "not run")
"""How a unit of work ended, by the number that stands for it."""

ENDINGS = {
    "status": Column(
        (),
        (),
        np.int8,
        STATUS.index("not run"),
        {
            "long_name": "how the training of all arms ended",
            "units": "1",
            "flag_values": np.arange(len(STATUS), dtype=np.int8),
            "flag_meanings": " ".join(word.replace(" ", "_") for word in STATUS),
        },
    ),
    "reason": Column((), (), object, "", {"long_name": "why the training failed, else empty", "units": "1"}),
}
"""Recorded of every unit."""


@dataclass(frozen=True)
class Units(Task):
    """The units of work of a study, numbered in C order over tasks, seeds and sizes."""

    kind, made_of, unit = "study", "arms or tasks", "step"

    experiment: Experiment
    arms: tuple[Any, ...]
    tasks: tuple[Any, ...]
    seeds: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def columns(self) -> dict[str, Column]:
        """What is recorded, by name."""
        return {**self.experiment.columns(self.arms, self.tasks), **ENDINGS}

    @property
    def steps(self) -> int:
        """Steps of progress in a unit."""
        return self.experiment.steps

    def __len__(self) -> int:
        """Number of units."""
        return len(self.tasks) * len(self.seeds) * len(self.sizes)

    def run(self, first: int, last: int, given: NDArray | None, progress: Progress = ignored) -> Part:
        """The units `first` to `last`; one whose numbers cannot be had is marked as failed, with the reason."""
        leave_interrupts()
        part = Part.blank(first, last, self.columns)
        for unit, (task, seed, size) in list(enumerate(product(self.tasks, self.seeds, self.sizes)))[first:last]:
            told = Told(progress)
            try:
                with one_thread():
                    found = self.experiment.train(self.arms, task, size, seed, told)
                for name, column in self.experiment.columns(self.arms, self.tasks).items():
                    part.enter(name, unit - first, np.asarray(found[name], dtype=column.kind).reshape(column.sizes))
                part.enter("status", unit - first, STATUS.index("trained"))
            except (ValueError, ArithmeticError) as error:  # any other is no property of the unit
                part.reasons[unit] = f"{type(error).__name__}: {shown(error, str)}"
                part.enter("status", unit - first, STATUS.index("failed"))
                part.enter("reason", unit - first, part.reasons[unit])
            progress(self.steps - told.steps)
        return part


def leave_interrupts() -> None:
    """In a worker of joblib: Ctrl-C is for the process that started it, and will end it."""
    if current_process().name.startswith("LokyProcess") and current_thread() is main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Told:
    """A Progress that counts what it is told."""

    def __init__(self, progress: Progress) -> None:
        self.steps, self._progress = 0, progress

    def __call__(self, steps: int) -> None:
        self.steps += steps
        self._progress(steps)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for whatever computes inside, so that its numbers do not depend on how many there are."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        if not INSTALLED:
            yield
            return
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
