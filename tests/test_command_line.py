"""The command line, as its user meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tokenwaves
from figures import NAMES, fig2

ROOT = Path(__file__).parent.parent


def command(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "tokenwaves", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env=environment,
        timeout=120,
    )


def assert_one_line_error(status, stderr, *parts):
    assert status == 2
    lines = stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tokenwaves: error: ")
    assert all(part in lines[0] for part in parts)


def test_figures_in_a_process_of_its_own(tmp_path):
    done = command("figures", "fig2", "--quick", "--out", "made", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # no bar where the output is not a terminal
    assert done.stderr == ""
    for name in ("fig2.pdf", "fig2.png", "fig2.nc", "report.json", "report.md"):
        assert (tmp_path / "made" / name).stat().st_size > 0
        assert str(Path("made") / name) in done.stdout
    assert all(row["met"] for row in json.loads((tmp_path / "made" / "report.json").read_text())["claims"])


def test_unknown_figure_in_a_process_of_its_own(tmp_path):
    done = command("figures", "fig99", cwd=tmp_path)
    assert_one_line_error(done.returncode, done.stderr, "fig99", *NAMES)
    assert list(tmp_path.iterdir()) == []


def test_help_loads_nothing_heavy(tmp_path):
    heavy = "import sys, tokenwaves\ntry: tokenwaves.main(['figures', '--help'])\nexcept SystemExit: pass\n"
    heavy += "print(sorted({'numpy', 'scipy', 'matplotlib', 'xarray', 'numba'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", heavy],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr.strip() == "[]"
    assert "example: tokenwaves figures" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["figures", "--help"]])
def test_help(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        tokenwaves.main(arguments)
    assert stop.value.code == 0
    assert "example: tokenwaves" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        tokenwaves.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("tokenwaves ")


@pytest.mark.parametrize("arguments", [[], ["pictures"], ["figures", "--fast"]])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        tokenwaves.main(arguments)
    assert stop.value.code == 2
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_folder_that_cannot_be_written(out, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(fig2, "compute", lambda **_: pytest.fail("computed before looking at the folder"))
    status = tokenwaves.main(["figures", "fig2", "--out", str(tmp_path / out)])
    assert_one_line_error(status, capsys.readouterr().err, out)


def test_interrupt(tmp_path, capsys, monkeypatch):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fig2, "compute", interrupted)
    assert tokenwaves.main(["figures", "fig2", "--out", str(tmp_path)]) == 130
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_other_errors_are_not_hidden(tmp_path, monkeypatch):
    def broken(**_):
        raise ValueError("a bug")

    monkeypatch.setattr(fig2, "compute", broken)
    with pytest.raises(ValueError, match="a bug"):
        tokenwaves.main(["figures", "fig2", "--out", str(tmp_path)])
