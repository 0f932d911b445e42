"""The experiment of T1–T3: looped networks whose block is what an arm makes it, on tasks over a ring of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import choice, items, real_number, whole_number
from simulate.runs.columns import Column
from simulate.runs.result import Variable
from training import INSTALLED
from training.codes import Code
from training.experiment import BASELINE, MATCHED, MISMATCHED
from training.fitted import Fitted
from training.frame import Frame
from training.streams import stream
from training.watching import FirstMode, watch

if TYPE_CHECKING:
    from training.fitting import Curves
    from training.looped import Looped

CODES = ("task", "random")
"""Embedding and readout: those of the task, or drawn at random."""

STATES = {"": "at x = 0", "masked_": "along the loops from the embedded mask on"}
"""Where J(q) is watched, by what the names of variables begin with."""

ANGLES = ("accumulated", "per loop")
"""What the angles of a task are to those of a block: reached after all loops together, or after each."""


@dataclass(frozen=True)
class LoopedExperiment(Fitted):
    """Embedding → one block applied L times → readout, and J(q) of that block on the way.

    Parameters
    ----------
    steps, batch, rate, decay, clip, every, held_out, device, autocast, compile : int, float, str or bool
        Those of `Fitted`.
    loops : int
        L.
    d, heads, width : int
        Features, heads and hidden units of the frame that the arms of a seed share.
    content : float
        Scale of its queries and keys.
    code : str
        'task' for the embedding and readout that the task has, 'random' for random ones.
    gain, sharpness : float
        Of the code: norm of the embedding, and of the readout by it.
    frozen : sequence of str
        Parts of the network that are held where the arm lets them be, `training.looped.PARTS`.
    angles : str
        'accumulated' where the matched arm turns by the angle of the task in all loops, 'per loop' in each, a control.
    watch : sequence of int
        Numbers of steps after which J(q) of the block is computed; none by default.

    Raises
    ------
    ArgumentError
        Names what cannot be used.
    """

    loops: int = 8
    d: int = 32
    heads: int = 4
    width: int = 64
    content: float = 1.0
    code: str = "task"
    gain: float = 1.0
    sharpness: float = 8.0
    frozen: Sequence[str] = ("feedforward",)
    angles: str = "accumulated"
    watch: Sequence[int] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("loops", "d", "heads", "width"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))
        for name in ("gain", "sharpness"):
            object.__setattr__(self, name, real_number(name, getattr(self, name), positive=True))
        object.__setattr__(self, "content", real_number("content", self.content))
        choice("code", self.code, CODES)
        choice("angles", self.angles, ANGLES)
        object.__setattr__(self, "frozen", tuple(items("frozen", self.frozen)))
        if INSTALLED:
            from training.looped import PARTS

            for place, part in enumerate(self.frozen):
                choice(f"frozen[{place}]", part, PARTS)
        asked = enumerate(items("watch", self.watch))
        watch = [whole_number(f"watch[{place}]", step, 0, self.steps) for place, step in asked]
        object.__setattr__(self, "watch", tuple(sorted(set(watch))))

    def frame(self, seed: int) -> Frame:
        """What the arms of a seed share.

        Parameters
        ----------
        seed : int
            Of the study.
        """
        return Frame.draw(self.d, self.heads, self.width, self.content, stream(seed, "frame"))

    def codes(self, task: Any, seed: int) -> Code:
        """Embedding and readout of all arms of a seed.

        Parameters
        ----------
        task : object
            Whose tokens they are of.
        seed : int
            Of the study.
        """
        if self.code == "random":
            return Code.random(task.levels, self.d, self.gain, self.sharpness, stream(seed, "code"))
        return task.code(self.frame(seed), self.gain, self.sharpness)

    def network(self, arms: Sequence[Any], task: Any, seed: int) -> Looped:
        """One copy for each arm, from the frame of the seed.

        Parameters
        ----------
        arms : sequence of Arm
            What is trained.
        task : object
            What it is trained on.
        seed : int
            Of the study.
        """
        from training.looped import Looped

        frame = self.frame(seed)
        return Looped(
            [arm.block(task, frame, seed) for arm in arms],
            self.codes(task, seed),
            self.loops,
            positions=[arm.positions(task, frame) for arm in arms],
            frozen=[arm.held(self.frozen) for arm in arms],
            device=self.device,
        )

    def check(self, arms: Sequence[Any], task: Any, seed: int) -> None:
        """Refuse arms whose block cannot be made for the task.

        Parameters
        ----------
        arms : sequence of Arm
            What is trained.
        task : object
            What it is trained on.
        seed : int
            Of the study.
        """
        frame = self.frame(seed)
        self.codes(task, seed)
        for number, arm in enumerate(arms):
            try:
                arm.block(task, frame, seed)
            except ArgumentError as error:
                raise ArgumentError(f"arms[{number}].{error.argument}", error.got, error.accepted) from None

    def role(self, arm: Any, task: Any) -> str:
        """Matched if the target of the arm has the structure of the task, a baseline if the arm has no target.

        Parameters
        ----------
        arm : Arm
            One of the arms.
        task : object
            One of the tasks.
        """
        target = getattr(arm, "target", None)
        if target is None:
            return BASELINE
        return MATCHED if target.like(task.matched(self.turning)) else MISMATCHED

    @property
    def turning(self) -> int:
        """Loops in which a block turns by the angle of its task."""
        return self.loops if self.angles == ANGLES[0] else 1

    @property
    def watched(self) -> tuple[int, ...]:
        """Those of `watch`, and 0 where there are any."""
        return tuple(sorted({0, *self.watch})) if self.watch else ()

    def columns(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Column]:
        """Those of `Fitted`, and where J(q) is watched `growth` over `watched` and `wavenumber`, and `share`.

        They are taken at x = 0 and, as `masked_growth` and `masked_share`, from the embedded mask on (`watch`);
        positions that an arm adds to it do not count.

        Parameters
        ----------
        arms : sequence of Arm
            What is trained.
        tasks : sequence
            What it is trained on.
        """
        if not self.watch:
            return super().columns(arms, tasks)
        sizes = len(arms), len(self.watch), waves(tasks)
        found = dict(super().columns(arms, tasks))
        for prefix, state in STATES.items():
            growth = {"long_name": f"growth rho(J(q)) per loop {state}, of the block as trained so far", "units": "1"}
            share = {"long_name": f"share of the first mode that is left {state}", "units": "1"}
            found[f"{prefix}growth"] = Column(("arm", "watched", "wavenumber"), sizes, float, np.nan, growth)
            found[f"{prefix}share"] = Column(("arm", "watched"), sizes[:2], float, np.nan, share)
        return found

    def coordinates(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Variable]:
        """Those of `Fitted`, and the steps and wavenumbers of what is watched.

        Parameters
        ----------
        arms : sequence of Arm
            What is trained.
        tasks : sequence
            What it is trained on.
        """
        if not self.watch:
            return super().coordinates(arms, tasks)
        steps = {"long_name": "steps taken before J(q) was computed", "units": "step"}
        k = {"long_name": "wavenumber k, q = 2 pi k/N", "units": "1"}
        return {
            **super().coordinates(arms, tasks),
            "watched": (("watched",), np.array(self.watch, dtype=np.int64), steps),
            "wavenumber": (("wavenumber",), np.arange(waves(tasks)), k),
        }

    def seen(self, curves: Curves, arms: Sequence[Any], task: Any) -> Mapping[str, NDArray]:
        """J(q) at the steps that were watched; NaN for an arm that has diverged.

        Parameters
        ----------
        curves : Curves
            Of the training.
        arms : sequence of Arm
            What is trained.
        task : object
            What it is trained on.
        """
        if not self.watch:
            return {}
        found = {
            name: np.full(column.sizes, np.nan)
            for name, column in self.columns(arms, [task]).items()
            if "watched" in column.dims
        }
        for arm, before in enumerate(curves.snapshots[0].blocks):
            first = None if before is None else FirstMode.of(before)
            for place, step in enumerate(self.watch):
                block, code = curves.snapshots[step].blocks[arm], curves.snapshots[step].codes[arm]
                if block is None or code is None:
                    continue
                for prefix, mask in zip(STATES, (None, code.embedding[-1]), strict=True):
                    watched = watch(block, first, mask, self.loops)
                    found[f"{prefix}growth"][arm, place] = watched.growth
                    found[f"{prefix}share"][arm, place] = watched.share
        return found


def waves(tasks: Sequence[Any]) -> int:
    """N/2 + 1 of the ring that all `tasks` share."""
    sizes = {task.n for task in tasks}
    if len(sizes) > 1:
        raise ArgumentError("watch", f"tasks with {sorted(sizes)} tokens", "tasks on one ring, or nothing to watch")
    return int(sizes.pop()) // 2 + 1
