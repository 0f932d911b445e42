"""Where a prior lives and whether training keeps it: encoders with priors on their attention, on tasks they suit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError
from dispersion.errors import choice, instance, items, real_number, whole_number
from simulate.runs.columns import Column
from simulate.runs.result import Variable
from training.encoder import POOLS, Encoder
from training.experiment import BASELINE, MATCHED, MISMATCHED
from training.fitted import Fitted
from training.patterns import ROWS, Pattern
from training.prior_arm import OPTIMISERS, PriorArm
from training.priors import Contrasted
from training.streams import stream
from training.survival import survival

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from training.encoders import Encoders
    from training.fitting import Curves

PROBE = 256
"""Inputs over which attention and the slope of the loss are averaged where training is watched."""

SURVIVAL = {
    "home": "survival s_A of the pattern at the sequence without content",
    "data": "survival s_A of the pattern in the mean attention over inputs of the training set",
    "operator": "survival s_J of the pattern at the sequence without content",
    "kept": "survival of the attention at the start, at the sequence without content",
    "size": "mean of |M|",
    "gap": "mean of log sigma(M) at open pairs less that at closed ones",
}
"""What is taken of `training.survival.survival`, and what the result says of it."""


@dataclass(frozen=True)
class PriorExperiment(Fitted):
    """Encoders that share all numbers of a seed but the prior of their arm. A subclass gives its loss and scores.

    Parameters
    ----------
    steps, batch, rate, clip, every, held_out, device, autocast, compile : int, float, str or bool
        Those of `Fitted`; the rate falls to 0 along a cosine.
    decay, decoupled : float
        Weight decay of arms trained by Adam, and of those trained by AdamW.
    d, layers, heads, width, hidden : int
        Features, layers, heads, features of a head, and hidden units of the feed-forward.
    pool : str
        What is read out: 'mean', 'cls' or 'tokens'.
    rows : str
        What tokens that the pattern does not need see: 'isolate' for themselves, 'free' for everything.
    start_row, start_column : str
        What the token that is read out sees, 'all' or 'relevant' ones, and whether others see it, 'open' or 'closed'.
    watch : sequence of int
        Numbers of steps after which it is measured what is left of the pattern; none by default.

    Raises
    ------
    ArgumentError
        Names what cannot be used.
    """

    MOST: ClassVar[int | None] = 256

    steps: int = 2500
    batch: int = 32
    rate: float = 3e-3
    decay: float = 1e-3
    clip: float | None = None
    every: int = 250
    decoupled: float = 0.1
    d: int = 64
    layers: int = 2
    heads: int = 3
    width: int = 16
    hidden: int = 64
    pool: str = "mean"
    rows: str = "isolate"
    start_row: str = "all"
    start_column: str = "closed"
    watch: Sequence[int] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d", "layers", "heads", "width", "hidden"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))
        object.__setattr__(self, "decoupled", real_number("decoupled", self.decoupled))
        if self.decoupled < 0:
            raise ArgumentError("decoupled", self.decoupled, "a number of 0 or more")
        choice("pool", self.pool, POOLS)
        choice("rows", self.rows, ROWS)
        choice("start_row", self.start_row, ("all", "relevant"))
        choice("start_column", self.start_column, ("open", "closed"))
        asked = enumerate(items("watch", self.watch))
        watch = [whole_number(f"watch[{place}]", step, 0, self.steps) for place, step in asked]
        object.__setattr__(self, "watch", tuple(sorted(set(watch))))

    @abstractmethod
    def bare_pattern(self, arm: PriorArm, task: Any, seed: int) -> Pattern:
        """The pattern of an arm, without the token that is read out.

        Parameters
        ----------
        arm : PriorArm
            One of the arms.
        task : object
            One of the tasks.
        seed : int
            Of the study, for patterns drawn at random.
        """

    @property
    @abstractmethod
    def outputs(self) -> int:
        """K, numbers that are read out."""

    def pattern(self, arm: PriorArm, task: Any, seed: int) -> Pattern:
        """The pattern of an arm, on all tokens of the network.

        Parameters
        ----------
        arm : PriorArm
            One of the arms.
        task : object
            One of the tasks.
        seed : int
            Of the study, for patterns drawn at random.
        """
        bare = self.bare_pattern(arm, task, seed)
        return bare.with_start(self.start_row, self.start_column) if self.pool == "cls" else bare

    def bare_encoder(self, task: Any, seed: int) -> Encoder:
        """What the arms of a seed share.

        Parameters
        ----------
        task : object
            Of which the tokens are.
        seed : int
            Of the study.
        """
        return Encoder.draw(
            stream(seed, "frame"),
            vocabulary=task.vocabulary,
            n=task.n,
            d=self.d,
            layers=self.layers,
            heads=self.heads,
            width=self.width,
            hidden=self.hidden,
            outputs=self.outputs,
            pool=self.pool,
        )

    def network(self, arms: Sequence[PriorArm], task: Any, seed: int) -> Encoders:
        """One copy for each arm, with its prior.

        Parameters
        ----------
        arms : sequence of PriorArm
            What is trained.
        task : object
            What it is trained on.
        seed : int
            Of the study.
        """
        from training.encoders import Encoders

        bare = self.bare_encoder(task, seed)
        # arms that differ in their training alone start alike
        different = {(arm.prior, arm.pattern): arm for arm in arms}
        made = {key: arm.prior.place(bare, self.pattern(arm, task, seed)) for key, arm in different.items()}
        each = [made[arm.prior, arm.pattern] for arm in arms]
        return Encoders(each, [arm.frozen for arm in arms], device=self.device)

    def check(self, arms: Sequence[PriorArm], task: Any, seed: int) -> None:
        """Refuse arms whose prior has no place in the network.

        Parameters
        ----------
        arms : sequence of PriorArm
            What is trained.
        task : object
            What it is trained on.
        seed : int
            Of the study.
        """
        bare = self.bare_encoder(task, seed)
        for number, arm in enumerate(arms):
            try:
                pattern = self.pattern(instance("arm", arm, PriorArm), task, seed)
                pattern.over(self.heads, bare.tokens)
                if self.watch and not pattern.restricts.any():
                    raise ArgumentError("pattern", "one that restricts no row", "one that does, or nothing to watch")
                if "kernel" in arm.prior.parts:
                    arm.prior.place(bare, pattern)
            except ArgumentError as error:
                raise ArgumentError(f"arms[{number}].{error.argument}", error.got, error.accepted) from None

    def role(self, arm: PriorArm, task: Any) -> str:
        """Matched with the correct pattern, mismatched with another, a baseline without one.

        Parameters
        ----------
        arm : PriorArm
            One of the arms.
        task : object
            One of the tasks.
        """
        if not isinstance(arm.prior, Contrasted):
            return BASELINE
        return MATCHED if arm.pattern == "correct" else MISMATCHED

    def optimiser(self, arms: Sequence[PriorArm]) -> Callable[[Any], Optimizer]:
        """Adam, with the weight decay of each arm.

        Parameters
        ----------
        arms : sequence of PriorArm
            What is trained.
        """
        import torch

        from training.decays import StackedAdam

        def of(net: Any) -> Optimizer:
            found: dict[str, dict[str, Any]] = {word: {} for word in OPTIMISERS}
            for word, size in zip(OPTIMISERS, (self.decay, self.decoupled), strict=True):
                for name, _ in net.named_parameters():
                    each = [size * (arm.optimiser == word and arm.decays(name.split(".")[-1])) for arm in arms]
                    found[word][name] = torch.tensor(each, dtype=torch.float64)
            return StackedAdam(net, self.rate, *found.values())

        return of

    @property
    def schedule(self) -> Callable[[Optimizer], LRScheduler]:
        """A cosine from the rate to 0."""
        from torch.optim.lr_scheduler import CosineAnnealingLR

        return lambda optimiser: CosineAnnealingLR(optimiser, self.steps)

    @property
    def watched(self) -> tuple[int, ...]:
        """Those of `watch`, and 0 where there are any."""
        return tuple(sorted({0, *self.watch})) if self.watch else ()

    def columns(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Column]:
        """Those of `Fitted`, and where it is watched what is left of the pattern of each arm, over `layer`.

        `survival_home`, `survival_data`, `survival_operator` and `survival_kept` are of `training.survival`, so are
        `mask_size` and `mask_gap`; `mask_slope` is the mean of |∂loss/∂M| over the pairs, without any decay.

        Parameters
        ----------
        arms : sequence of PriorArm
            What is trained.
        tasks : sequence
            What it is trained on.
        """
        found = dict(super().columns(arms, tasks))
        if not self.watch:
            return found
        sizes = len(arms), len(self.watch), self.layers
        described = {_column(name): text for name, text in SURVIVAL.items()}
        described["mask_slope"] = "mean of |dloss/dM| without decay"
        for name, text in described.items():
            attributes = {"long_name": text, "units": "1"}
            found[name] = Column(("arm", "watched", "layer"), sizes, float, np.nan, attributes)
        return found

    def coordinates(self, arms: Sequence[Any], tasks: Sequence[Any]) -> Mapping[str, Variable]:
        """Those of `Fitted`, and the steps and layers of what is watched.

        Parameters
        ----------
        arms : sequence of PriorArm
            What is trained.
        tasks : sequence
            What it is trained on.
        """
        found = dict(super().coordinates(arms, tasks))
        if not self.watch:
            return found
        steps = {"long_name": "steps taken before it was looked at", "units": "step"}
        layers = {"long_name": "layer, the first is 0", "units": "1"}
        return {
            **found,
            "watched": (("watched",), np.array(self.watch, dtype=np.int64), steps),
            "layer": (("layer",), np.arange(self.layers), layers),
        }

    def watching(self, arms: Sequence[PriorArm], task: Any, seed: int, training_set: Any) -> Callable[[Any], Any]:
        """network → what is left of the pattern of each arm, NaN for one that has diverged.

        Parameters
        ----------
        arms : sequence of PriorArm
            What is trained.
        task : object
            What it is trained on.
        seed : int
            Of the study.
        training_set : object
            Its first examples are the inputs, at most PROBE.
        """
        some, patterns = training_set.take(slice(0, PROBE)), [self.pattern(arm, task, seed) for arm in arms]
        starts: list[Encoder] = []

        def look(net: Any) -> Mapping[str, NDArray]:
            encoders = net.encoders()
            starts.extend(encoders[len(starts) :])
            found = {_column(name): np.full((len(arms), self.layers), np.nan) for name in SURVIVAL}
            for number, (now, start, pattern) in enumerate(zip(encoders, starts, patterns, strict=True)):
                if now is not None:
                    measured = survival(now, start, pattern, some.inputs)
                    for name in SURVIVAL:
                        found[_column(name)][number] = measured[name]
            return {**found, "mask_slope": self._mask_slope(net, some)}

        return look

    def seen(self, curves: Curves, arms: Sequence[PriorArm], task: Any) -> Mapping[str, NDArray]:
        """What was measured at the steps that were watched.

        Parameters
        ----------
        curves : Curves
            Of the training.
        arms : sequence of PriorArm
            What was trained.
        task : object
            What it was trained on.
        """
        looks = [curves.snapshots[step] for step in self.watch]
        return {name: np.stack([look[name] for look in looks], axis=1) for name in (looks[0] if looks else ())}

    def _mask_slope(self, net: Any, examples: Any) -> NDArray[np.float64]:
        """(arm, L) mean of |∂loss/∂M| over heads and pairs, also where M is held."""
        import torch

        from training.fitting import tensors

        batch = tensors(examples, next(net.parameters()).device)
        mask = net.numbers.mask.detach().clone().requires_grad_(True)
        outputs = torch.func.functional_call(net, {"numbers.mask": mask}, (batch.inputs,))
        (slope,) = torch.autograd.grad(self.loss(outputs, batch).sum(), mask)
        return np.asarray(slope.abs().mean(dim=(2, 3, 4)).double().cpu().numpy())


def _column(name: str) -> str:
    return f"mask_{name}" if name in ("size", "gap") else f"survival_{name}"
