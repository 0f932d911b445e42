"""docs/adapters.md: its adapter is one, and one in a package of its own is seen by the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from pages import Page  # noqa: E402

from models.adapters import registry  # noqa: E402

PAGE = Page("docs/adapters.md")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry.families()))


def test_examples_and_links():
    PAGE.check()


def test_the_adapter_takes_ten_lines():
    source = PAGE.examples[1][0]
    assert len([line for line in source[source.index("def twin") :].splitlines() if line]) <= 10


def test_every_argument_of_the_decorator_is_described():
    for name in ("anchor", "within", "model_types", "route", "reference", "buffers", "harmless"):
        assert f"`{name}`" in PAGE.text


def command(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parent.parent)])}
    run = [sys.executable, "-m", "tokenwaves", "check", *map(str, arguments)]
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=False)


def package(folder, module):
    """An installed package of one module, whose families an entry point names."""
    (folder / "my_adapters.py").write_text(module, encoding="utf-8")
    about = folder / "my_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tokenwaves.families]\ntwin = my_adapters\n")


def test_a_family_of_an_installed_package(tmp_path):
    classes, adapter = (source for source, _ in PAGE.examples[:2])
    package(tmp_path, classes + adapter + "\nnetwork = Twin()\n")
    listed = command(tmp_path, "--families")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[:2] for line in listed.stdout.splitlines() if "my own networks" in line] == [["twin", "twin"]]
    found = command(tmp_path, "my_adapters:network", "--state", "0.1,0.2,0.3,-0.1,0.5,0.2,-0.4,1", "--tokens", 5)
    assert (found.returncode, found.stderr) == (0, "")
    assert "confirmed against the network to " in found.stdout
    assert "its layers are those of Twin to " in found.stdout


def test_an_installed_package_that_cannot_be_imported(tmp_path):
    package(tmp_path, "raise RuntimeError('no')\n")
    found = command(tmp_path, "--families")
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "twin = my_adapters, which raises RuntimeError: no" in found.stderr
