"""The studies behind Figures 4, 6 and 7: their results, saved beside this file, or small ones trained on the spot.

`python -m figures.studies RESULT.nc …` saves here what `tokenwaves train` has written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import numpy as np
import xarray as xr

from dispersion import ArgumentError
from dispersion.atomic import replacing
from figures.report import Claim
from simulate.runs.netcdf import load
from training.units import STATUS

if TYPE_CHECKING:
    from training.looped_experiment import LoopedExperiment
    from training.study import Study

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"
"""Where the study files are in a clone; elsewhere the saved results have their text."""

DROPPED = ("loss", "masked_growth")
"""What no figure needs."""


def results(name: str, quick: tuple[int, int] | None, progress: bool = False) -> xr.Dataset:
    """The results of the study `name`: saved, or if `quick` says (steps, seeds) those of a smaller study."""
    return saved(name) if quick is None else trained(name, *quick, progress)


def saved(name: str) -> xr.Dataset:
    """The saved results of the study `name`, refused unless they are of the study file as it is."""
    path = FOLDER / f"{name}.nc"
    if not path.exists():
        raise ArgumentError("figure", f"no saved results of the study {name!r}", f"those of: {command(name)}")
    data = load(path)
    try:
        specified(name).recognise(data)
    except ArgumentError as error:
        got = f"saved results that are not of {name}.study.toml, {error.got}"
        raise ArgumentError("figure", got, f"those of: {command(name)}") from None
    return data.assign({key: values.astype(np.float64) for key, values in _floats(data)})


def command(name: str) -> str:
    """What makes the results of the study `name` again."""
    return f"tokenwaves train examples/{name}.study.toml"


def specified(name: str) -> Study:
    """The study `name`, from its file."""
    from training.study import Study

    file = f"{name}.study.toml"
    if (EXAMPLES / file).exists():
        return Study.load(EXAMPLES / file)
    with TemporaryDirectory() as folder:
        path = Path(folder) / file
        path.write_text(load(FOLDER / f"{name}.nc").attrs["specification"], encoding="utf-8")
        return Study.load(path)


@lru_cache
def trained(name: str, steps: int, seeds: int, progress: bool = False) -> xr.Dataset:
    """Results of a smaller study: so many steps and seeds, and of the training sets the smallest and the largest."""
    from joblib import cpu_count

    if find_spec("torch") is None:
        raise ArgumentError("quick", "no PyTorch", "an installation with the extra [torch]")
    study = specified(name)
    whole = cast("LoopedExperiment", study.experiment)
    experiment = replace(whole, steps=steps, watch=[step for step in whole.watch if step <= steps])
    sizes = sorted({min(study.sizes), max(study.sizes)})
    small = replace(study, experiment=experiment, seeds=seeds, sizes=sizes)
    return small.run(workers=min(small.units, cpu_count()), progress=progress)


def kept(data: xr.Dataset, name: str) -> xr.Dataset:
    """The results of the study `name` as they are saved: what figures need, in single precision."""
    specified(name).recognise(data)
    small = data.drop_vars(DROPPED, errors="ignore")
    single = {key: values.astype(np.float32) for key, values in _floats(small)}
    return small.assign(single).assign_attrs(command=command(name))


def keep(paths: Iterable[str]) -> list[Path]:
    """Save the results of studies at `paths` here, each by the name of its file."""
    written = []
    for path in map(Path, paths):
        small = kept(load(path), path.stem)
        packed = {key: {"zlib": True, "complevel": 9} for key, values in small.data_vars.items() if values.ndim > 3}
        with replacing(FOLDER / f"{path.stem}.nc") as temporary:
            small.to_netcdf(temporary, engine="netcdf4", encoding=packed)
        written.append(FOLDER / f"{path.stem}.nc")
    return written


def _floats(data: xr.Dataset) -> list[tuple[Hashable, xr.DataArray]]:
    return [(key, values) for key, values in data.data_vars.items() if values.dtype.kind == "f"]


def told(data: xr.Dataset) -> str:
    """Where results come from, in words."""
    done, units = int((data.status == STATUS.index("trained")).sum()), data.status.size
    size = f"{done} of {units} units, {data.sizes['seed']} seeds, {int(data.step.max())} steps"
    versions = ", ".join(
        f"{package} {data.attrs[f'{package}_version']}" for package in ("tokenwaves", "torch", "numpy")
    )
    made = f"saved results of `{data.attrs['command']}`" if "command" in data.attrs else "trained for this report"
    return f"{made}: {size}; {versions}"


def marked(claims: Iterable[Claim], studies: Iterable[xr.Dataset]) -> list[Claim]:
    """`claims` with a note if they are of quick or unfinished studies."""
    notes = []
    for data in studies:
        undone = int((data.status != STATUS.index("trained")).sum())
        if "command" not in data.attrs:
            notes.append(f"of the quick study, {int(data.step.max())} steps")
        if undone:
            notes.append(f"of unfinished results, {data.status.size - undone} of {data.status.size} units")
    note = "; ".join(dict.fromkeys(notes))
    return [replace(claim, note="; ".join(filter(None, (claim.note, note)))) for claim in claims]
