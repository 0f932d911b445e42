"""The streams of the command line: any encoding, closed, full or read by nobody, and Ctrl-C at any moment."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tokenwaves
from figures import fig2
from tokenwaves import streams

ROOT = Path(__file__).parent.parent
ROTATING = str(ROOT / "examples" / "rotating.toml")
COMMAND = [sys.executable, "-m", "tokenwaves"]
POSIX = pytest.mark.skipif(os.name != "posix", reason="redirects as a shell does")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SPEC = """
quantity = "amplitude"
depth = 20
[parameters]
gain = [0.3, 0.6]
[block]
n = 8
[[head]]
kernel = {type = "alibi", slope = 0.5}
value = "-gain"
"""


def shell(line, cwd, **environment):
    """What the shell command `line` gives, with $T for the command line."""
    return subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        cwd=cwd,
        env={**ENVIRONMENT, "T": " ".join(COMMAND), "B": ROTATING, **environment},
        timeout=120,
    )


def one_line(stderr):
    text = stderr.decode() if isinstance(stderr, bytes) else stderr
    assert text.startswith("tokenwaves: ")
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "ascii"])
def test_every_encoding_of_the_output(encoding, tmp_path):
    done = shell("$T dispersion $B --modes 2", tmp_path, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode(encoding).splitlines()
    assert "max |Lambda| = " in lines[2]
    # the columns stay under their names
    assert len({len(line) for line in lines[4:7]}) == 1
    assert "?" not in done.stdout.decode(encoding)


def test_what_stands_for_a_character_that_is_missing():
    pairs = {"Λ": "Lambda", "γ": "gamma", "ω": "omega", "−": "-", "–": "-", "…": "...", "²": "^2", "×": "x", "é": "e"}
    pairs |= {"₁": "_1", "→": "->", "≤": "<=", "√": "sqrt", "\ud800": "?", "字": "?", "ᵀ": "^T", "β̄": "beta"}
    for character, text in pairs.items():
        assert character.encode("ascii", streams.FALLBACK) == text.encode()
    assert "|Λ| × é".encode("latin-1", streams.FALLBACK) == b"|Lambda| \xd7 \xe9"


@POSIX
@pytest.mark.parametrize("arguments", ["dispersion $B", "--help", "--version"])
def test_a_closed_output_is_refused(arguments, tmp_path):
    done = shell(f"$T {arguments} >&-", tmp_path)
    assert done.returncode == 2
    assert "output: got closed" in one_line(done.stderr)


@POSIX
def test_a_closed_standard_error_changes_nothing_else(tmp_path):
    done = shell("$T dispersion $B --modes 1 2>&-", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith(f"{ROTATING}: ring of 32 tokens")
    done = shell("$T dispersion missing.toml 2>&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")
    done = shell("$T dispersion 2>&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", ["dispersion $B", "dispersion --help", "--version"])
def test_a_full_output_is_one_line(arguments, tmp_path):
    done = shell(f"$T {arguments} > /dev/full", tmp_path)
    assert done.returncode == 2
    assert "output: got no space left on device" in one_line(done.stderr)
    assert shell(f"$T {arguments} x y z 2> /dev/full", tmp_path).returncode in (0, 2)


@POSIX
def test_a_reader_that_goes_away(tmp_path):
    done = shell("$T derive | head -1; echo ${PIPESTATUS[0]}", tmp_path)
    assert done.stderr == b""
    assert done.stdout.decode().splitlines()[-1] in {"0", "1"}
    # nobody listens from the start
    done = shell("(sleep .5; $T dispersion $B; echo $? >&2) | true", tmp_path)
    assert done.stderr.decode() == "1\n"


def test_wrong_usage_is_one_line(capsys):
    for arguments in ([], ["picture" * 2000], ["figures", "--fast"], ["dispersion", "x", "--modes", "a" * 9999]):
        with pytest.raises(SystemExit) as stop:
            tokenwaves.main(arguments)
        captured = capsys.readouterr()
        assert (stop.value.code, captured.out) == (2, "")
        assert len(one_line(captured.err)) < 1000


def test_a_long_key_is_cut_short(tmp_path, capsys):
    (tmp_path / "block.toml").write_text(f"{'k' * 10000} = 1\n[block]\nn = 8\n")
    for name in ("dispersion", "phase-diagram", "check"):
        assert tokenwaves.main([name, str(tmp_path / "block.toml")]) == 2
        assert len(one_line(capsys.readouterr().err)) < 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["dispersion", "a\0b.toml"],
        ["dispersion", ROTATING, "--state", "a\0.npy"],
        ["dispersion", ROTATING, "--plot", "a\0.png"],
        ["phase-diagram", "a\0b"],
        ["check", "a\0b.toml"],
        ["figures", "fig2", "--out", "\0"],
        ["figures", "fig\0"],
        ["derive", "\0"],
    ],
)
def test_a_name_with_nul_is_refused(arguments, capsys):
    assert tokenwaves.main(arguments) == 2
    assert "NUL" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("extension", ["png", "pdf", "nc"])
@pytest.mark.parametrize("name", ["phase-diagram", "figures"])
def test_a_folder_in_the_place_of_a_file(name, extension, tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    stem = "spec" if name == "phase-diagram" else "fig2"
    (tmp_path / f"{stem}.{extension}").mkdir()
    arguments = [str(tmp_path / "spec.toml")] if name == "phase-diagram" else ["fig2", "--quick"]
    assert tokenwaves.main([name, *arguments, "--out", str(tmp_path)]) == 2
    assert f"{stem}.{extension}" in one_line(capsys.readouterr().err)


def test_a_picture_in_the_place_of_a_folder(tmp_path, capsys):
    (tmp_path / "modes.png").mkdir()
    assert tokenwaves.main(["dispersion", ROTATING, "--plot", str(tmp_path / "modes.png")]) == 2
    assert "a directory" in one_line(capsys.readouterr().err)


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 1000, 8000, 20_000])
@pytest.mark.parametrize("arguments", [["phase-diagram", "spec.toml"], ["figures", "fig2", "--quick"], ["dispersion"]])
def test_a_full_disk_is_one_line(arguments, limit, tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    arguments = [*arguments, ROTATING, "--plot", "modes.png"] if arguments == ["dispersion"] else arguments

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, cwd=tmp_path, env=ENVIRONMENT, preexec_fn=limited, timeout=120
    )
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert re.search("(?i)file too large|HDF error", one_line(done.stderr))
    assert not list(tmp_path.glob(".*"))


def interrupted(arguments, after, cwd):
    """(status, stderr) of a command line that gets Ctrl-C so many seconds `after` Python has started, which nobody can
    catch.
    """
    program = """
import sys, tokenwaves
inner = tokenwaves._main
def started(arguments):
    print("started", flush=True)
    return inner(arguments)
tokenwaves._main = started
sys.exit(tokenwaves.main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=ENVIRONMENT,
    )
    assert process.stdout.readline() == b"started\n"
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr.decode()


def test_ctrl_c_in_imports(tmp_path, monkeypatch, capsys):
    """Whatever an import makes of it."""
    import builtins

    plain = builtins.__import__

    def importing(name, *arguments, **settings):
        if name == "tokenwaves.dispersion_report":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return plain(name, *arguments, **settings)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever began the tests may have left out
    monkeypatch.setattr(builtins, "__import__", importing)
    status = tokenwaves.main(["dispersion", ROTATING])
    monkeypatch.undo()
    signal.signal(signal.SIGINT, before)
    assert status == 130
    assert "interrupted" in one_line(capsys.readouterr().err)


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["dispersion", ROTATING, "--plot", "a.png"], ["derive", "standing"], ["figures", "fig2", "--quick"]]
)
def test_ctrl_c_at_any_moment(arguments, tmp_path):
    for after in (0, 0.03, 0.1, 0.2, 0.3, 0.5, 0.8, 1.3):
        status, stderr = interrupted(arguments, after, tmp_path)
        assert (status, stderr) == (0, "") or (status == 130 and one_line(stderr)), (after, status, stderr)


def test_an_interruption_is_one_line_and_130(tmp_path, capsys, monkeypatch):
    def stop(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fig2, "compute", stop)
    assert tokenwaves.main(["figures", "fig2", "--out", str(tmp_path)]) == 130
    one_line(capsys.readouterr().err)
