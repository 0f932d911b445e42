"""Compiled functions are kept from run to run, and compiled anew when any of their source changes."""

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dispersion import compiled

ROOT = Path(__file__).parents[1]
RUN = """
from simulate.engines._rows import exact_rows
import numpy as np
exact_rows(0, 4, np.ones(4), np.ones(8), np.ones(16), 1.0, np.empty(4))
print(len(exact_rows.stats.cache_hits), len(exact_rows.stats.cache_misses))
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
    other = copy / "simulate" / "engines" / "_exp.py"
    other.write_text(other.read_text() + "\n# changed\n")
    assert hits_and_misses(copy, kept) == (0, 1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder that holds a compiled function, and its one file."""
    folder = tmp_path_factory.mktemp("kept")
    assert hits_and_misses(ROOT, folder) == (0, 1)
    (file,) = folder.rglob("*.nbc")
    return folder, file


DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "one byte": lambda content: content[:-1],
    "flipped": lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
    "zeroed": lambda content: bytes(len(content)),
    "longer": lambda content: content + b"more",
    "pickle": lambda content: pickle.dumps(("key", "data")),
    "another's": lambda content: with_digest(pickle.dumps(("key", "data"))),
    "nothing to unpickle": lambda content: with_digest(b"nothing"),
}


def with_digest(content):
    return hashlib.sha256(content).digest() + content


@pytest.mark.parametrize(
    "name", ["flipped", *(pytest.param(name, marks=pytest.mark.slow) for name in ("empty", "another's"))]
)
def test_a_damaged_file_is_compiled_anew(name, kept):
    folder, file = kept
    whole = file.read_bytes()
    file.write_bytes(DAMAGE[name](whole))
    assert hits_and_misses(ROOT, folder) == (0, 1)
    assert len(list(folder.rglob("*.nbc"))) == 1


@pytest.mark.parametrize("name", DAMAGE)
def test_of_a_damaged_file_nothing_is_loaded(name, tmp_path):
    files = compiled._Files(tmp_path, "f")
    files.save(("key", 1), list(range(10**4)))
    assert files.load(("key", 1)) == list(range(10**4))
    assert files.load(("key", 2)) is None  # the same signature of another source
    (file,) = tmp_path.iterdir()
    file.write_bytes(DAMAGE[name](file.read_bytes()))
    try:
        loaded = files.load(("key", 1))
    except pickle.UnpicklingError:  # `_Kept` compiles anew
        loaded = None
    assert loaded is None
    file.unlink()
    file.mkdir()
    assert files.load(("key", 1)) is None


class Cache(compiled._Kept):
    """One whose files cannot be written, or hold what numba cannot use."""

    def __init__(self, error):
        self.error = error

    def _load_overload(self, sig, target_context):
        raise self.error

    _save_overload = _load_overload


def test_what_can_be_neither_loaded_nor_saved_is_compiled(monkeypatch):
    function = compiled.entry()(lambda x: x + 1)
    function._cache = Cache(OSError("the disk is full"))
    assert function(1) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files here")
def test_the_folder_is_the_users_alone(tmp_path, monkeypatch):
    umask = os.umask(0)
    try:
        folder = compiled.own_folder(tmp_path)
    finally:
        os.umask(umask)
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    (folder / "mine").touch()
    assert [file.name for file in compiled.own_folder(tmp_path).iterdir()] == ["mine"]
    folder.chmod(0o777)  # anyone may have put it there
    assert list(compiled.own_folder(tmp_path).iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(OSError, match="another's"):
        compiled.own_folder(tmp_path)
    folder.unlink()
    folder.touch()
    with pytest.raises(OSError, match="exists"):
        compiled.own_folder(tmp_path)
    folder.unlink()
    folder.mkdir()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    folder.rename(tmp_path / f"tokenwaves-{user + 1}")
    with pytest.raises(OSError, match="another's"):
        compiled.own_folder(tmp_path)


def test_works_without_a_folder_of_its_own(monkeypatch):
    def refused(parent):
        raise PermissionError

    monkeypatch.setattr(compiled, "own_folder", refused)
    assert compiled.entry()(lambda x: x + 1)(1) == 2


def test_works_without_a_folder_to_write_to(monkeypatch):
    def refused(function, variant):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled, "_Kept", refused)
    assert compiled.entry()(lambda x: x + 1)(1) == 2
