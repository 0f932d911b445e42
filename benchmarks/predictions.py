"""How good the predictions of theory are on random blocks, judged by iteration: counts, errors and their estimates.

python benchmarks/predictions.py [--blocks 76] [--pairs 36] [--rotating 26] [--rings 72]      0 leaves a kind out

What is wrong is printed line by line. The whole takes about half an hour; the same blocks are tested by
python -m pytest -m exhaustive tests/test_random_predictions.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import judges
from random_blocks import ring_block, rotating_block, two_mode_kernel, vector_block

from dispersion import Block


def forms(name: str, make: Callable[[int], Block], seeds: range, orders: tuple[int, ...]) -> None:
    """The amplitudes of normal forms, with their own estimates of the error."""
    judged = [judges.judge_forms(make(seed), orders) for seed in tqdm(seeds, f"{name}, forms", disable=None)]
    print(f"\n{name}: amplitude of the leading mode by normal forms", *judges.forms_table(judged), sep="\n")
    seen = [judges.noise_amplitudes(make(seed)) for seed in tqdm(seeds, f"{name}, noise", disable=None)]
    best = [judges.best_case(cases) for cases in judged]
    known = [(case, R) for case, R in zip(best, seen, strict=True) if case is not None]
    come = sum(any(abs(case.predicted / R - 1) <= case.estimate + 1e-4 for R in ends) for case, ends in known)
    print(f"{len(known)} of {len(judged)} blocks have a prediction; from noise {come} come to it")
    for seed, cases in zip(seeds, judged, strict=True):
        for case in cases:
            if case.speaks and not case.right:
                print(f"  seed {seed}: {case}")


def regimes(seeds: range) -> None:
    """The verdicts on two modes."""
    judged = [judges.judge_regimes(*two_mode_kernel(seed)) for seed in tqdm(seeds, "pairs", disable=None)]
    _verdicts("two modes: regimes, and those of the closed form alone", seeds, judged)


def waves(seeds: range) -> None:
    """The verdicts on standing against travelling waves."""
    judged = [judges.judge_rotation(rotating_block(seed)) for seed in tqdm(seeds, "waves", disable=None)]
    _verdicts("rotating blocks: whether waves travel or stand", seeds, judged)


def _verdicts(title: str, seeds: range, judged: list[dict[object, str]]) -> None:
    print(f"\n{title}", *judges.regimes_table(judged), sep="\n")
    for seed, verdicts in zip(seeds, judged, strict=True):
        for order, verdict in verdicts.items():
            if verdict.startswith("wrong"):
                print(f"  seed {seed}, {order}: {verdict}")


def states(name: str, make: Callable[[int], Block], seeds: range) -> None:
    """Exact states and the families that stability balloons know."""
    judged = [judges.judge_states(make(seed)) for seed in tqdm(seeds, name, disable=None)]
    ends, tried, stable = (sum(counts[key] for _, counts in judged) for key in ("ends", "states", "stable"))
    wrong = sum(len(faults) for faults, _ in judged)
    print(f"\n{name}: {tried} exact states, {stable} of them stable; {ends} ends of trajectories; {wrong} wrong")
    for seed, (faults, _) in zip(seeds, judged, strict=True):
        for fault in faults:
            print(f"  seed {seed}: {fault}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, number in (("blocks", 76), ("pairs", 36), ("rotating", 26), ("rings", 72)):
        parser.add_argument(f"--{option}", type=int, default=number)
    chosen = parser.parse_args()
    if chosen.blocks:
        forms("vector blocks", vector_block, range(chosen.blocks), judges.ORDERS)
        states("vector blocks", vector_block, range(chosen.blocks))
    if chosen.pairs:
        regimes(range(chosen.pairs))
        states("kernels of two modes", lambda seed: two_mode_kernel(seed)[0], range(chosen.pairs))
    if chosen.rings:
        states("rings", ring_block, range(chosen.rings))
    if chosen.rotating:
        forms("rotating blocks", rotating_block, range(chosen.rotating), (3, 5, 7))
        waves(range(chosen.rotating))
        states("rotating blocks", rotating_block, range(chosen.rotating))
