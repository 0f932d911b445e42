"""Training of networks side by side: every copy takes the same steps, and none knows of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dispersion import ArgumentError, Block
from dispersion.errors import real_number, whole_number
from training.codes import Code

Measure = Callable[[Tensor, Any], Tensor]
"""(M,) one number for each copy, of outputs (M, B, …) and a batch, whose arrays have become tensors."""


def cross_entropy(logits: Tensor, batch: Any) -> Tensor:
    """(M,) mean of −log p(label) over the scored positions, in nats.

    Parameters
    ----------
    logits : (M, B, N, levels) Tensor
        Of all copies.
    batch : object
        Tensors `labels` and `scored`, (B, N) or (M, B, N).
    """
    each = nn.functional.cross_entropy(logits.movedim(-1, 1), _labels(logits, batch), reduction="none")
    return _over_scored(each, batch)


def accuracy(logits: Tensor, batch: Any) -> Tensor:
    """(M,) fraction of the scored positions whose largest logit is the label's, NaN for a copy that has diverged.

    Parameters
    ----------
    logits : (M, B, N, levels) Tensor
        Of all copies.
    batch : object
        Tensors `labels` and `scored`, (B, N) or (M, B, N).
    """
    right = (logits.argmax(-1) == _labels(logits, batch)).to(logits.dtype)
    # adds NaN where a logit is not finite
    return _over_scored(right + 0 * logits.detach().sum(-1), batch)


SCORES: Mapping[str, Measure] = {"accuracy": accuracy, "cross_entropy": cross_entropy}
"""What is measured on held-out data if nothing else is asked for."""


def adamw(rate: float = 2e-3, decay: float = 1e-4) -> Callable[[nn.Module], Optimizer]:
    """AdamW for all that trains, with the paper's settings by default.

    Parameters
    ----------
    rate : float
        The learning rate.
    decay : float
        Decoupled weight decay.

    Returns
    -------
    callable
        net → Optimizer, as `fit` takes it.
    """
    return lambda net: torch.optim.AdamW(_trained(net), lr=rate, weight_decay=decay, fused=True)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """M networks after some number of steps.

    Parameters
    ----------
    blocks : list of Block or None
        One for each copy, None for one that has diverged.
    codes : list of Code or None
        Their embeddings and readouts.
    """

    blocks: list[Block | None]
    codes: list[Code | None]

    @classmethod
    def of(cls, net: Any) -> Snapshot:
        """What a network with `blocks` and `codes` is now.

        Parameters
        ----------
        net : Looped
            Or another with these methods.
        """
        return cls(net.blocks(), net.codes())


@dataclass(frozen=True, eq=False)
class Curves:
    """What training went through.

    Parameters
    ----------
    steps : (E,) int ndarray
        After how many steps the held-out data was scored.
    loss : (M, steps) ndarray
        On the batch of each step, before it.
    scores : mapping
        (M, E) ndarray on the held-out data, by name.
    snapshots : mapping
        What was looked at, a `Snapshot` by default, by number of steps.
    """

    steps: NDArray[np.int64]
    loss: NDArray[np.float64]
    scores: Mapping[str, NDArray[np.float64]]
    snapshots: Mapping[int, Any]


def fit(
    net: nn.Module,
    batches: Iterable[Any],
    held_out: Any,
    steps: int,
    *,
    loss: Measure = cross_entropy,
    scores: Mapping[str, Measure] = SCORES,
    optimiser: Callable[[nn.Module], Optimizer] | None = None,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    clip: float | None = 1.0,
    every: int = 5,
    watch: Collection[int] = (),
    look: Callable[[Any], Any] = Snapshot.of,
    most: int | None = None,
    autocast: bool = False,
    compile: bool = False,
    stepped: Callable[[int], object] | None = None,
) -> Curves:
    """Train the M copies of `net` in place, each by its own loss alone.

    The same networks and batches give the same curves to the last bit on one machine. A copy that diverges has NaN in
    its curves from then on and leaves the others as they are.

    Parameters
    ----------
    net : Looped
        Or any module with its `copies` and `hold`, whose parameters list the copies along their first axis.
    batches : iterable
        Frozen dataclasses of arrays, one for each step. `net` is called with their `inputs`.
    held_out : object
        One of the same kind, scored whole.
    steps : int
        How many steps to take, 0 or more.
    loss : callable
        (outputs, batch) → (M,), what each copy descends; by default `cross_entropy`.
    scores : mapping of callables
        What is measured on held-out data, by name.
    optimiser : callable, optional
        net → Optimizer that acts number by number, as all of the Adam family do; by default `adamw()`.
    schedule : callable, optional
        Optimizer → LRScheduler, moved on after each step.
    clip : float or None
        The largest norm of the gradient of one copy; None for no limit.
    every : int
        Held-out data is scored before the first step, every so many steps, and after the last.
    watch : collection of int
        Numbers of steps after which what `look` makes of the network is kept.
    look : callable
        net → object; by default a `Snapshot`.
    most : int or None
        Examples of held-out data that go through the network at once, None for all.
    autocast : bool
        Whether products are in bfloat16.
    compile : bool
        Whether `torch.compile` compiles the network first.
    stepped : callable, optional
        Called with the number of steps taken after each.

    Returns
    -------
    Curves
    """
    steps, every = whole_number("steps", steps, 0), whole_number("every", every, 1)
    if clip is not None:
        clip = real_number("clip", clip, positive=True)
    if most is not None:
        most = whole_number("most", most, 1)
    device = next(net.parameters()).device
    # PyTorch's patterns of attention take ours, which has five axes, for one of four
    run: Any = torch.compile(net, dynamic=False, options={"pattern_matcher": False}) if compile else net
    taken = (optimiser or adamw())(net)
    moved = schedule(taken) if schedule else None
    precision = _precision(device, autocast)
    unseen = tensors(held_out, device)
    found: list[list[NDArray[np.float64]]] = []
    losses: list[Tensor] = []
    snapshots: dict[int, Any] = {}

    def score(step: int) -> None:
        if step in watch:
            snapshots[step] = look(net)
        if step % every == 0 or step == steps:
            with torch.no_grad(), precision():
                parts = [run(inputs) for inputs in unseen.inputs.split(most or len(unseen.inputs))]
                outputs = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
                outputs = outputs.float() if autocast else outputs
            found.append([measure(outputs, unseen).double().cpu().numpy() for measure in scores.values()])

    score(0)
    source = iter(batches)
    for step in range(1, steps + 1):
        try:
            batch = tensors(next(source), device)
        except StopIteration:
            raise ArgumentError("batches", f"{step - 1} of them", f"one for each of {steps} steps") from None
        with precision():
            outputs = run(batch.inputs)
        each = loss(outputs.float() if autocast else outputs, batch)
        taken.zero_grad(set_to_none=True)
        each.sum().backward()
        if clip is not None:
            _clip(net, clip)
        taken.step()
        net.hold()  # type: ignore[operator]
        if moved is not None:
            moved.step()
        losses.append(each.detach())
        score(step)
        if stepped is not None:
            stepped(step)
    evaluated = sorted({*range(0, steps + 1, every), steps})
    values = np.moveaxis(np.array(found), 0, -1)
    path = torch.stack(losses, dim=1).double().cpu().numpy() if losses else np.zeros((values.shape[1], 0))
    return Curves(np.array(evaluated), path, dict(zip(scores, values, strict=True)), snapshots)


def _trained(net: nn.Module) -> list[nn.Parameter]:
    return [weights for weights in net.parameters() if weights.requires_grad]


def _clip(net: nn.Module, most: float) -> None:
    """Scale the gradient of each copy down to the norm `most`."""
    slopes = [weights.grad.view(net.copies, -1) for weights in net.parameters() if weights.grad is not None]  # type: ignore[call-overload]
    norm = torch.stack([torch.linalg.vector_norm(slope, dim=1) for slope in slopes]).square().sum(0).sqrt()
    factor = (most / norm).clamp(max=1)[:, None]
    for slope in slopes:
        slope.mul_(factor)


def _precision(device: torch.device, autocast: bool) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext()


def tensors(batch: Any, device: torch.device) -> Any:
    """The arrays in the fields of a dataclass as tensors under the same names.

    Parameters
    ----------
    batch : object
        A dataclass, such as `Batch`.
    device : torch.device
        Where they are.
    """
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return SimpleNamespace(**{name: torch.as_tensor(np.array(value), device=device) for name, value in values.items()})


def _labels(logits: Tensor, batch: Any) -> Tensor:
    return batch.labels.expand(logits.shape[:-1])


def _over_scored(values: Tensor, batch: Any) -> Tensor:
    """(M,) mean of `values` (M, B, N) over the scored positions."""
    scored = batch.scored.expand(values.shape)
    return torch.where(scored, values, 0).sum((1, 2)) / scored.sum((1, 2))
