"""A step of encoders with masks, side by side and as PyTorch has it, and a whole run on a Boolean task.

python benchmarks/priors.py [--models 16] [--rounds 8] [--run 0] [--epoch]

All ways take the same step from the same weights: n = 8, d = 64, 2 layers, 3 heads of 16, hidden 64, batch 32, squared
error and Adam. Times are of the processor, for each network, on one thread; ways take turns, so that a busy machine
is busy for all of them. --run trains so many steps of a study with everything it measures, of as many arms. --epoch
trains one epoch in the size of the paper and evaluates the cube once, and tells what that makes of the whole study
examples/masks-paper.study.toml here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training import fast
from training.boolean import TwoParity
from training.boolean_experiment import BooleanExperiment
from training.encoder import Encoder
from training.encoders import Encoders
from training.fitted import batches
from training.fitting import fit
from training.prior_arm import PriorArm
from training.priors import MaskPrior
from training.study import Study

N, D, LAYERS, HEADS, WIDTH, HIDDEN, BATCH, RATE = 8, 64, 2, 3, 16, 64, 32, 3e-3

Step = Callable[[], float]


class Layer(nn.Module):
    """A pre-LN layer in PyTorch, with a mask for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * HEADS * WIDTH, bias=False), nn.Linear(HEADS * WIDTH, D)
        self.mlp = nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))
        self.mask = nn.Parameter(torch.zeros(HEADS, N, N))

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, d) → (B, n, d)."""
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, HEADS, WIDTH)).permute(2, 0, 3, 1, 4)
        logits = q @ k.transpose(-1, -2) / WIDTH**0.5 + functional.logsigmoid(self.mask)
        x = x + self.out((torch.softmax(logits, dim=-1) @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Plain(nn.Module):
    """One network in PyTorch, with the numbers of an Encoder."""

    def __init__(self, made: Encoder) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(2, D), nn.Parameter(torch.empty(N, D))
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 1))
        pairs: list[tuple[Any, Any]] = [
            (self.table.weight, made.embedding),
            (self.positions, made.positions),
            (self.head[1].weight, made.readout),
            (self.head[1].bias, made.bias),
        ]
        for number, layer in enumerate(self.layers):
            rows = [weight[number].reshape(-1, D) for weight in (made.query, made.key, made.value)]
            pairs += [
                (layer.qkv.weight, np.concatenate(rows)),
                (layer.out.weight, made.output[number].reshape(D, -1)),
                (layer.out.bias, made.output_bias[number]),
                (layer.mlp[0].weight, made.weight_in[number]),
                (layer.mlp[0].bias, made.bias_in[number]),
                (layer.mlp[2].weight, made.weight_out[number]),
                (layer.mlp[2].bias, made.bias_out[number]),
                (layer.mask, made.mask[number]),
            ]
        with torch.no_grad():
            for weights, value in pairs:
                weights.copy_(torch.tensor(value))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,) outputs."""
        x = self.table(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.head(x.mean(1))[:, 0]
        return found


def plain(made: Encoder, tokens: Tensor, targets: Tensor) -> Step:
    """A step of one network."""
    net = Plain(made)
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        loss = (net(tokens) - targets).square().mean()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step


def stacked(each: list[Encoder], tokens: Tensor, targets: Tensor, compiled: bool = True) -> Step:
    """A step of `Encoders`, with its compiled parts or in PyTorch alone."""
    net = Encoders(each, [("kernel",)] * len(each))
    optimiser = torch.optim.Adam([w for w in net.parameters() if w.requires_grad], lr=RATE, fused=True)
    takes = fast._compiled

    def step() -> float:
        fast._compiled = takes if compiled else lambda x: False
        optimiser.zero_grad(set_to_none=True)
        loss = (net(tokens) - targets).square().mean(1)
        loss.sum().backward()
        optimiser.step()
        fast._compiled = takes
        return float(loss[0].detach())

    return step


def epoch() -> None:
    """Time an epoch of a run of the paper's size and an evaluation, with all threads."""
    study = Study.load(Path(__file__).parents[1] / "examples" / "masks-paper.study.toml")
    experiment, task = cast(BooleanExperiment, study.experiment), study.tasks[0]
    seen, cube = experiment.data(task, study.sizes[0], 0)
    steps = len(seen) // experiment.batch
    net = experiment.network(study.arms[:1], task, 0)
    marks: list[float] = []
    fit(
        net,
        batches(seen, experiment.batch, steps, np.random.default_rng(0)),
        cube,
        steps,
        loss=experiment.loss,
        scores=experiment.scores,
        optimiser=experiment.optimiser(study.arms[:1]),
        clip=experiment.clip,
        every=steps,
        most=experiment.MOST,
        stepped=lambda _: marks.append(perf_counter()),
    )
    # the last mark comes after the cube has been evaluated
    each, evaluation = np.diff(marks[:-1]), marks[-1] - marks[-2]
    step = float(np.median(each))
    evaluation -= step
    times = len(experiment.evaluated)
    run = experiment.steps * step + times * evaluation
    whole = run * len(study.arms) * study.units
    low, high = np.quantile(each, [0.25, 0.75])
    threads = torch.get_num_threads()
    print(f"{task.name}, n = {task.n}, {threads} threads: {steps} steps are an epoch of {len(seen)} points")
    print(f"a step {step:.3f} s ({low:.3f} … {high:.3f}), an epoch {steps * step:.0f} s, the cube {evaluation:.1f} s")
    print(f"so {experiment.steps} steps and {times} evaluations of one arm would take {run / 60:.0f} minutes, and")
    print(f"{len(study.arms)} arms in {study.units} units {whole / 3600:.0f} hours, less what is saved side by side")


def main() -> None:
    """Compare the losses, time all ways in turns, and a study if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=16, help="networks side by side")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2500, help="steps that the last column is of")
    parser.add_argument("--run", type=int, default=0, help="steps of a study to train, none by default")
    parser.add_argument("--epoch", action="store_true", help="one epoch in the size of the paper, and nothing else")
    asked = parser.parse_args()
    if asked.epoch:
        return epoch()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    each = [Encoder.draw(seed, n=N, d=D) for seed in range(asked.models)]
    tokens, targets = torch.tensor(rng.integers(0, 2, (BATCH, N))), torch.tensor(rng.normal(size=BATCH)).float()
    ways: dict[str, tuple[Step, int]] = {
        "plain, one network": (plain(each[0], tokens, targets), 1),
        "one by itself here": (stacked(each[:1], tokens, targets), 1),
        "8 side by side": (stacked(each[:8], tokens, targets), len(each[:8])),
        f"{len(each)} side by side": (stacked(each, tokens, targets), len(each)),
        f"{len(each)} in PyTorch alone": (stacked(each, tokens, targets, compiled=False), len(each)),
    }
    losses = {name: [step() for _ in range(3)] for name, (step, _) in ways.items()}
    for name, loss in losses.items():
        if np.abs(np.subtract(loss, losses["plain, one network"])).max() > 1e-3:
            raise SystemExit(f"{name}: losses {loss}, where the plain network has {losses['plain, one network']}")

    def timed(step: Step, models: int) -> float:
        start, repeats = process_time(), 5 if models == 1 else 1
        for _ in range(repeats):
            step()
        return (process_time() - start) / repeats / models

    seconds = np.array([[timed(*way) for way in ways.values()] for _ in range(asked.rounds)])
    ratios = seconds / seconds[:, :1]
    print(f"{'':28}{'models':>6}{'ms each':>9}{'ratio':>7}   25 … 75 %   s for {asked.steps} steps")
    for (name, (_, models)), times, ratio in zip(ways.items(), seconds.T, ratios.T, strict=True):
        low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75])
        spent = np.median(times)
        print(
            f"{name:28}{models:6}{spent * 1e3:9.2f}{middle:7.2f}   {low:.2f} … {high:.2f}   {spent * asked.steps:10.1f}"
        )
    if asked.run:
        arms = [PriorArm(MaskPrior(contrast=float(c))) for c in range(1, asked.models + 1)]
        for steps in (2, asked.run):  # the first loads and compiles
            watch = range(0, steps + 1, max(1, steps // 10))
            study = Study(
                BooleanExperiment(steps=steps, every=max(1, steps // 10), watch=watch), arms, [TwoParity()], 1, [256]
            )
            start = process_time()
            study.run(progress=False)
            spent = (process_time() - start) / len(arms)
        print(f"a study of {len(arms)} arms watched 11 times: {spent:.2f} s for {asked.run} steps of each")


if __name__ == "__main__":
    main()
