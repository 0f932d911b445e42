"""The command line, as its user meets it."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from math import log, pi
from pathlib import Path

import numpy as np
import pytest

import tokenwaves
from dispersion import Block, FeedForward, Head, Kernel, LayerNorm, fixed_points
from figures import NAMES, fig2

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.toml") if "." not in path.stem)
COMMANDS = [verb.replace("_", "-") for verb in tokenwaves.VERBS]
ROTATING = str(ROOT / "examples" / "rotating.toml")


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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_loads_nothing_heavy(name, tmp_path):
    heavy = f"import sys, tokenwaves\ntry: tokenwaves.main(['{name}', '--help'])\nexcept SystemExit: pass\n"
    heavy += "heavy = {'numpy', 'scipy', 'sympy', 'matplotlib', 'xarray', 'numba', 'torch'}\n"
    heavy += "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", heavy],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr.strip() == "[]"
    assert f"example: tokenwaves {name}" in done.stdout


def test_help_is_quick(tmp_path):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert command("--help", cwd=tmp_path).returncode == 0
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
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


@pytest.mark.parametrize(
    "arguments",
    [[], ["pictures"], ["figures", "--fast"], ["dispersion"], ["dispersion", "x", "--modes", "a"], ["check"]],
)
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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_dispersion_in_a_process_of_its_own(path, tmp_path, capsys):
    done = command("dispersion", path, "--plot", "modes.pdf", "--modes", 3, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert tokenwaves.main(["dispersion", str(path), "--json", "--modes", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = done.stdout.splitlines()
    assert lines[0] == f"{path}: ring of 32 tokens, d = {found['d']}, {found['heads']} head{'s' * (found['heads'] > 1)}"
    assert lines[1] == "state 0, a fixed point"
    assert lines[2] == f"unstable: max |Λ| = {found['growth']:.6f} at k = {found['modes'][0]['k']}"
    assert lines[-1] == "wrote modes.pdf"
    assert (tmp_path / "modes.pdf").read_bytes().startswith(b"%PDF")
    table = [re.split(r"\s{2,}", line.strip()) for line in lines[4:8]]
    assert table[0] == ["k", "q", "|Λ|", "γ", "ω", "wavelength", "morphology", "condition"]
    assert len({len(line) for line in lines[4:8]}) == 1
    for row, mode in zip(table[1:], found["modes"], strict=True):
        assert row[0] == str(mode["k"])
        assert row[6] == mode["morphology"]
        shown = [float(row[column]) for column in (1, 2, 3, 4, 7)]
        numbers = [mode[name] for name in ("q", "growth", "rate", "phase", "condition")]
        np.testing.assert_allclose(shown, numbers, atol=6e-5)
        assert row[5] == ("–" if mode["wavelength"] is None else f"{mode['wavelength']:.2f}")
        assert mode["q"] == pytest.approx(2 * pi * mode["k"] / 32)
        assert mode["rate"] == pytest.approx(log(abs(complex(*mode["multiplier"]))))


def test_json_in_a_process_of_its_own(tmp_path):
    done = command("dispersion", ROTATING, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["modes"][0]["morphology"] == "rotating"


def test_dispersion_on_a_torus(tmp_path, capsys):
    block = Block([Head(Kernel.convit((8, 6), (1, 0), 0.5), -1.2)], FeedForward.scalar("tanh", 0.1))
    block.save(tmp_path / "torus.toml")
    assert tokenwaves.main(["dispersion", str(tmp_path / "torus.toml"), "--plot", str(tmp_path / "map.png")]) == 0
    printed = capsys.readouterr().out
    assert "torus of 8 × 6 tokens" in printed
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert tokenwaves.main(["dispersion", str(tmp_path / "torus.toml"), "--json"]) == 0
    mode = json.loads(capsys.readouterr().out)["modes"][0]
    q = np.abs((np.array(mode["q"]) + pi) % (2 * pi) - pi)
    assert mode["wavelength"] == pytest.approx(2 * pi / np.hypot(*q))


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_picture_each_time(kind, tmp_path, capsys):
    made = []
    for name in (f"a.{kind}", f"b.{kind.upper()}"):
        assert tokenwaves.main(["dispersion", ROTATING, "--json", "--plot", str(tmp_path / name)]) == 0
        assert json.loads(capsys.readouterr().out)["plot"] == str(tmp_path / name)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1] != b""
    assert len(list(tmp_path.iterdir())) == 2


def test_state_by_numbers_and_by_file(tmp_path, capsys):
    np.save(tmp_path / "state.npy", [-0.1, 0.2])
    found = []
    for state in (["--state", "-0.1,0.2"], ["--state=-0.1,0.2"], ["--state", str(tmp_path / "state.npy")]):
        assert tokenwaves.main(["dispersion", ROTATING, "--json", *state]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] == found[2]
    assert found[0]["state"] == [-0.1, 0.2]
    assert tokenwaves.main(["dispersion", ROTATING, "--state", "-.1,.2"]) == 0
    assert "state (-0.1, 0.2), not a fixed point: one layer moves it by 0.195" in capsys.readouterr().out


def test_fixed_points_are_listed(tmp_path, capsys):
    block = Block([Head(Kernel.alibi(8, 0.5), 0.3)], FeedForward.scalar("sine", -0.5))
    block.save(tmp_path / "block.toml")
    arguments = ["dispersion", str(tmp_path / "block.toml"), "--fixed-points"]
    assert tokenwaves.main([*arguments, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["fixed_points"]
    assert [point["state"] for point in listed] == [point.state.tolist() for point in fixed_points(block)]
    assert tokenwaves.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines[lines.index("homogeneous fixed points, and max |Λ| at k = 0:") + 1 :]) == len(listed) > 1


def test_numbers_that_json_lacks(tmp_path, capsys):
    """Λ = 0 has the rate −∞, a defective Λ no finite condition number, k = 0 no wavelength."""
    Block([Head(Kernel.uniform(4), [[-1.0, 1.0], [0.0, -1.0]])]).save(tmp_path / "block.toml")
    assert tokenwaves.main(["dispersion", str(tmp_path / "block.toml"), "--modes", "99", "--json"]) == 0
    last = json.loads(capsys.readouterr().out)["modes"][-1]
    assert (last["k"], last["rate"], last["wavelength"], last["condition"]) == (0, None, None, None)
    assert tokenwaves.main(["dispersion", str(tmp_path / "block.toml"), "--modes", "99"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[2] == "marginal: max |Λ| = 1.000000 at k = 1"
    assert "defective" in printed.splitlines()[-1]


BAD = [
    (["missing.toml"], ["missing.toml", "no such file"]),
    (["bad.toml"], ["bad.toml: head[0].value: got 'a'"]),
    ([ROTATING, "--state", "1,2,3"], ["--state", "(3,)"]),
    ([ROTATING, "--state", "a"], ["--state", "0.1,0.2"]),
    ([ROTATING, "--state", "-inf,0"], ["--state", "finite"]),
    ([ROTATING, "--state", "missing.npy"], ["--state", "missing.npy"]),
    ([ROTATING, "--modes", "0"], ["--modes", "at least 1"]),
    ([ROTATING, "--plot", "modes.gif"], ["--plot", ".pdf, .png, .svg"]),
    ([ROTATING, "--plot", "missing/modes.png"], ["--plot", "no such file"]),
    (["three.toml", "--plot", "modes.png"], ["--plot", "3 axes"]),
    (["normed.toml"], ["--state", "another state"]),
]


@pytest.fixture
def bad_files(tmp_path):
    (tmp_path / "bad.toml").write_text('[block]\nn = 8\n[[head]]\nkernel = {type = "uniform"}\nvalue = "a"\n')
    Block([Head(Kernel.uniform((2, 2, 2)), 1.0)]).save(tmp_path / "three.toml")
    norm = LayerNorm([1.0, 1.0], eps=0)
    Block([Head(Kernel.uniform(4), np.eye(2))], attention_norm=norm).save(tmp_path / "normed.toml")
    return {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(("arguments", "parts"), BAD)
def test_bad_input_is_one_line(arguments, parts, tmp_path, bad_files, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status = tokenwaves.main(["dispersion", *arguments])
    captured = capsys.readouterr()
    assert_one_line_error(status, captured.err, *parts)
    assert captured.out == ""
    assert {path.name for path in tmp_path.iterdir()} == bad_files


def test_bad_input_in_a_process_of_its_own(tmp_path, bad_files):
    done = command("dispersion", "bad.toml", cwd=tmp_path)
    assert_one_line_error(done.returncode, done.stderr, "head[0].value")


def test_derive_lists_every_derivation(capsys):
    from amplitude.symbolic import DERIVATIONS as NONLINEAR
    from dispersion.symbolic import DERIVATIONS as LINEAR

    assert tokenwaves.main(["derive"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*LINEAR, *NONLINEAR]
    assert not set(LINEAR) & set(NONLINEAR)
    assert all(len(line.split()) > 2 for line in lines)


def test_derive_prints_one(capsys):
    from dispersion.symbolic import DERIVATIONS

    derivation = DERIVATIONS["rmsnorm"]()
    assert tokenwaves.main(["derive", "rmsnorm"]) == 0
    assert capsys.readouterr().out == f"{derivation}\n"
    assert derivation.proved
    assert tokenwaves.main(["derive", "rmsnorm", "--latex"]) == 0
    assert capsys.readouterr().out == f"{derivation.to_latex()}\n"


def test_derive_names_what_there_is(capsys):
    status = tokenwaves.main(["derive", "everything"])
    assert_one_line_error(status, capsys.readouterr().err, "'everything'", "layernorm", "standing")


@pytest.mark.skipif(os.name != "posix", reason="closes a pipe as a shell does")
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    program = f"{sys.executable} -m tokenwaves dispersion {ROTATING} --json --modes 34 | true; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", "1"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["a$\\frac$", "\udcff", "x" * 200])
def test_a_picture_of_a_file_with_any_name(name, tmp_path, capsys):
    path = tmp_path / f"{name}.toml"
    shutil.copy(ROTATING, path)
    assert tokenwaves.main(["dispersion", str(path), "--plot", str(tmp_path / "a.pdf")]) == 0
    assert capsys.readouterr().err == ""


def test_multipliers_near_the_end_of_float64(tmp_path, capsys):
    path = tmp_path / "huge.toml"
    path.write_text('[block]\nn = 8\nattention_scale = 1e307\n[[head]]\nkernel = {type = "uniform"}\nvalue = -0.4\n')
    tokenwaves.main(["dispersion", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert "max |Λ| = 4.00000e+306" in lines[2]
    assert "4.00000e+306" in lines[5]
    assert max(map(len, lines)) < 120
