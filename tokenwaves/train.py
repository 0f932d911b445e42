"""`tokenwaves train`: arms trained on tasks as a study file says, and a short table of who learned early."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tokenwaves.streams import say

if TYPE_CHECKING:
    from pathlib import Path

    from xarray import Dataset

    from tokenwaves.arguments import Commands
    from training.study import Study


def add(commands: Commands) -> argparse.ArgumentParser:
    """The parser of the verb, added to `commands`."""
    parser = commands.add_parser(
        "train",
        help="train networks from engineered and other starts on controlled tasks",
        description="Train every arm of a study on every task from every seed, all arms of a seed on the same data, "
        "and write the learning curves as netCDF. An interrupted study goes on when the same command is given again. "
        "Needs PyTorch.",
        epilog="example: tokenwaves train examples/quick.study.toml --out quick.nc",
    )
    parser.add_argument("study", metavar="STUDY.toml", help="the study (see examples/ and docs/files.md)")
    parser.add_argument(
        "--out", metavar="FILE", help="netCDF file to write (default: the name of the study in the current folder)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes, of one thread each (default: one for each core, 1 on cuda)"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--autocast", action="store_true", help="products in bfloat16")
    parser.add_argument("--compile", action="store_true", help="compile the networks with torch.compile first")
    parser.set_defaults(also={"path": "--out"})
    return parser


def run(options: argparse.Namespace) -> int:
    """Train what is not trained yet of the study in the file `options.study`."""
    import time
    from pathlib import Path

    from dispersion import ArgumentError

    if find_spec("torch") is None:
        raise ArgumentError("train", "no PyTorch", "an environment with it: pip install 'tokenwaves[torch]'")
    from training.study import Study

    given = {name: getattr(options, name) for name in ("device", "autocast", "compile")}
    study = Study.load(options.study, **given)
    path = Path(options.out or f"{Path(options.study).stem.removesuffix('.study')}.nc")
    workers = options.workers
    if workers is None:
        workers = min(_cores(), study.units) if options.device == "cpu" else 1
    print(f"{path.stem}: {study.estimate}", flush=True)
    start = time.perf_counter()
    data = _trained(study, path, workers)
    if data is None:
        say("tokenwaves: interrupted; the same command goes on from what is finished")
        return 130
    print(f"{path.stem}: {int((data.status == 0).sum())} of {study.units} units, {time.perf_counter() - start:.1f} s")
    print(*lines(data, study.experiment.OUTCOME), f"  {path}", sep="\n")
    return 0


def _trained(study: Study, path: Path, workers: int) -> Dataset | None:
    """The result of `study`, kept at `path`; None if interrupted."""
    try:
        data = study.run(path, workers=workers, progress=None if sys.stderr.isatty() else "lines")
    except KeyboardInterrupt:
        return None
    return None if data.attrs["interrupted"] else data


def lines(data: Dataset, outcome: str | None = None) -> list[str]:
    """A table of the early learning of matched against mismatched arms; of a score after the last step where there are
    not both, or where an `outcome` is what counts.
    """
    from tokenwaves.output import aligned
    from training.experiment import MATCHED, MISMATCHED
    from training.statistics import windows

    last = int(data.step.max())
    if outcome or not {MATCHED, MISMATCHED} <= set(data.role.values.flat):
        score = data[outcome or "accuracy"].isel(step=-1)
        cells = [(task, size) for task in data.task.values for size in data["size"].values]
        several = data.sizes["size"] > 1
        head = ("arm", *(f"{task}, {size}" if several else str(task) for task, size in cells))
        means = score.mean("seed")
        rows = [
            (str(arm), *(f"{float(means.sel(task=task, size=size, arm=arm)):.4g}" for task, size in cells))
            for arm in data.arm.values
        ]
        return [f"  {score.long_name}, after {last} steps, mean over seeds", *aligned([head, *rows])]
    found = windows(data) or windows(data, (last,))
    head = ("task", "size", "steps", "matched", "mismatched", "difference", "95 % interval", "seeds", "p")
    rows = [
        (
            *(str(task), str(size), f"0-{window}", f"{cell.matched:.3f}", f"{cell.mismatched:.3f}"),
            *(f"{cell.difference:+.3f}", f"{cell.low:+.3f} … {cell.high:+.3f}" if cell.seeds > 1 else "-"),
            *(f"{cell.positive:.0f}/{cell.seeds:.0f}", f"{cell.p:.2g}" if cell.seeds > 1 else "-"),
        )
        for task in data.task.values
        for size in data["size"].values
        for window, all_cells in found.items()
        for cell in [all_cells.sel(task=task, size=size)]
    ]
    caption = "  mean held-out accuracy: matched arm against the strongest mismatched one of the same seed"
    return [caption, *aligned([head, *rows])]


def _cores() -> int:
    from joblib import cpu_count

    return int(cpu_count())
