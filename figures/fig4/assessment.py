"""The claims of Figure 4: diagonals, levels, signs and controls."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from figures.early import Early
from figures.families import CONTROLS, FAMILIES, Range, windows_of
from figures.report import Claim
from figures.studies import marked
from training.statistics import over_seeds


def claims(data: xr.DataTree) -> list[Claim]:
    """Diagonals, levels and paired differences of each family at each window, signs, and what controls do to them."""
    studies = {name: data[name].to_dataset() for name in FAMILIES}
    found: list[Claim] = []
    for window in windows_of(studies["t1"]):
        families = {name: Early.of(name, study, window) for name, study in studies.items()}
        found += marked(_claims(window, families), studies.values())
        for control, (title, nodes) in CONTROLS.items():
            for name in nodes:
                study = data[f"{control}/{name}"].to_dataset()
                pair = Early.of(name, study, window), families[name]
                found += marked(_control(f"fig4.control.{control}.{name}", title, *pair), [study])
    return found


def _claims(window: int, families: dict[str, Early]) -> Iterator[Claim]:
    for early in families.values():
        yield from _levels(early)
    positive = sum(int(early.found.positive.sum()) for early in families.values())
    pairs = sum(int(early.found.seeds.sum()) for early in families.values())
    fixed = sum(int((early.matched > early.strongest).sum()) for early in families.values())
    yield Claim(
        f"fig4.sign.w{window}",
        f"every seed of every task has the matched arm above the mismatched one, steps 0 to {window}",
        f"{pairs} of {pairs}",
        f"{positive} of {pairs}",
        positive == pairs,
        "the strongest mismatched arm of each seed; with the one of highest mean for all seeds, as in the paper, "
        f"{fixed} of {pairs}",
    )


def _levels(early: Early) -> Iterator[Claim]:
    """Claims of one family at one window."""
    name, steps = early.name.upper(), f"steps 0 to {early.window}"

    def label(key: str) -> str:
        return f"fig4.{early.name}.{key}.w{early.window}"

    tasks = early.tasks
    yield Claim(
        label("diagonal"),
        f"the matched arm of each task of {name} has the highest early AUC, {steps}",
        tasks,
        early.diagonal,
        early.diagonal == tasks,
        "tasks of 4, means over seeds",
    )
    clear = int((early.found.low > 0).sum())
    largest = float(early.found.p.max())
    yield Claim(
        label("difference"),
        f"the matched arm of each task of {name} is above the strongest mismatched one of the same seed, {steps}",
        None,
        _range(early.found.difference),
        clear == tasks,
        f"mean paired differences of the tasks; met if all bootstrap intervals over seeds are above 0, {clear} are; "
        f"signed-rank p at most {largest:.2g}",
    )
    yield _level(label("matched"), f"early AUC of matched arms of {name}, {steps}", early.family.matched, early.matched)
    about = f"early AUC of the strongest mismatched arms of {name}, {steps}"
    if early.family.mismatched:
        yield _level(label("mismatched"), about, early.family.mismatched, early.strongest)
    if early.family.gap:
        low, high = (early.family.matched[0] - early.family.gap[1], early.family.matched[1] - early.family.gap[0])
        yield _level(label("mismatched"), about, (low, high), early.strongest, "paper: matched less differences; ")
        about = f"differences of matched and strongest mismatched arms of {name}, {steps}"
        yield _level(label("gap"), about, early.family.gap, early.matched - early.strongest)


def _level(label: str, claim: str, paper: Range, values: xr.DataArray, note: str = "") -> Claim:
    """Whether the `paper`'s lowest and highest of four tasks lie within the intervals of those of `values`."""
    found = over_seeds(values)
    low, high = float(found.low.min()), float(found.high.max())
    met = low <= paper[0] and paper[1] <= high
    off = (float(found.difference.min()) + float(found.difference.max()) - sum(paper)) / 2
    differs = "" if met else f"; ours is other than the paper's, {off:+.3f} in the middle of the range"
    return Claim(
        label,
        claim,
        f"{paper[0]:.3f} … {paper[1]:.3f}",
        _range(found.difference),
        met,
        f"{note}lowest and highest task, means over seeds; met if the paper's are within the bootstrap intervals, "
        f"{low:.3f} … {high:.3f} together{differs}",
    )


def _range(values: xr.DataArray) -> str:
    return f"{float(values.min()):.3f} … {float(values.max()):.3f}"


def _control(label: str, title: str, control: Early, main: Early) -> Iterator[Claim]:
    """What a control does to the diagonal, and to the mean paired difference."""
    name, steps = control.name.upper(), f"steps 0 to {control.window}"
    tasks = control.tasks
    yield Claim(
        f"{label}.diagonal.w{control.window}",
        f"with {title} the diagonal of {name} is lost, {steps}",
        None,
        control.diagonal,
        control.diagonal < tasks,
        f"a control of ours; tasks of {tasks}; met if any is missed",
    )
    here, there = (over_seeds(early.differences.mean("task")) for early in (control, main))
    yield Claim(
        f"{label}.difference.w{control.window}",
        f"with {title} matched arms of {name} stand out less, {steps}",
        None,
        float(here.difference),
        bool(here.high < there.low),
        f"a control of ours; matched less strongest mismatched of the same seed, mean over tasks and seeds, in "
        f"[{float(here.low):.3f}, {float(here.high):.3f}]; engineered {float(there.difference):.3f} in "
        f"[{float(there.low):.3f}, {float(there.high):.3f}]; met if below",
    )
