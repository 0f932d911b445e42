"""Compiled functions are kept from run to run, and compiled anew when any of their source changes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulate import _compiled

ROOT = Path(__file__).parents[1]
RUN = """
from simulate._rows import exact_rows, two_powers
import numpy as np
two_powers(np.zeros(4, complex), np.ones(4), np.full(4, 3.0), 1.0, 1.0)
print(len(two_powers.stats.cache_hits), len(two_powers.stats.cache_misses))
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the packages that compiled functions need."""
    for name in ("dispersion", "simulate"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def hits_and_misses(folder, kept):
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(kept)}
    done = subprocess.run([sys.executable, "-c", RUN], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split()))


def test_kept_until_the_source_of_any_of_them_changes(copy):
    kept = copy / "kept"
    assert hits_and_misses(copy, kept) == (0, 1)
    assert hits_and_misses(copy, kept) == (1, 0)
    other = copy / "simulate" / "_exp.py"
    other.write_text(other.read_text() + "\n# changed\n")
    assert hits_and_misses(copy, kept) == (0, 1)


def test_works_without_a_folder_to_write_to(monkeypatch):
    def refused(function, variant):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(_compiled, "_Kept", refused)
    assert _compiled.entry()(lambda x: x + 1)(1) == 2
