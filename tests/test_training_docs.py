"""docs/training.md prints what it says it prints, and its examples are studies that can be run."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from pages import Page

from training import Study
from training.experiment import BASELINE, MATCHED, MISMATCHED

PAGE = Page("docs/training.md")
EXAMPLES = Path(__file__).parent.parent / "examples"
CONTROLS = ["per-loop-rotation", "per-loop-shift", "random-code-infilling", "random-code-rotation", "random-code-shift"]
NAMES = sorted([*CONTROLS, "infilling", "quick", "rotation", "shift", "sizes"])
PRIORS = ["kernels", *(f"{name}{size}" for name in ("addition", "masks", "multiplication") for size in ("", "-paper"))]


def test_examples_and_links():
    PAGE.check()


def test_a_curve_takes_ten_lines():
    lines = [line for line in PAGE.examples[0][0].splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 10


def test_every_study_is_in_the_readme():
    assert sorted(path.name.split(".")[0] for path in EXAMPLES.glob("*.study.toml")) == sorted([*NAMES, *PRIORS])
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}.study.toml`" in readme for name in (*NAMES, *PRIORS))


@pytest.mark.parametrize("name", NAMES)
def test_every_example_can_be_run(name):
    study = Study.load(EXAMPLES / f"{name}.study.toml")
    roles = [[study.experiment.role(arm, task) for arm in study.arms] for task in study.tasks]
    assert all(row.count(MATCHED) == 1 and MISMATCHED in row for row in roles)
    if len(study.arms) == 4:
        assert [row.index(MATCHED) for row in roles] == [0, 1, 2, 3]
        assert (study.units, study.experiment.steps) == ((16, 50) if "-" in name else (48, 100))
    if name == "sizes":
        assert list(study.sizes) == [16, 32, 64, 128, 256, 512]
        assert roles == [[MATCHED, MISMATCHED, BASELINE, BASELINE, BASELINE]]
    assert json.dumps(study.specification)
