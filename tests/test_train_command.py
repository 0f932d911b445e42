"""`tokenwaves train`: trains, goes on, prints a table, and refuses what it cannot use in one line."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tokenwaves
from simulate.runs.netcdf import load
from training import Study, Target, engineer
from training.experiment import BASELINE, MATCHED, MISMATCHED
from training.fitted import Fitted

SMALL = """
steps = 20
seeds = [0]
sizes = [256]
held_out = 64
watch = [0, 20]

[[task]]
type = "spectral_infilling"
carrier = 4

[[arm]]
type = "engineered"
wavenumber = 4

[[arm]]
type = "engineered"
wavenumber = 7
"""

TINY = SMALL.replace("20", "1").replace("256", "8").replace("64", "4").replace("steps", "batch = 4\nsteps")


def written(folder, text=TINY, name="a.study.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_matched_wave_learns_early(tmp_path, capsys):
    """The whole way: file, training, result, table; the gap over 4 seeds of trials was 0.475 to 0.482."""
    out = tmp_path / "result.nc"
    assert tokenwaves.main(["train", written(tmp_path, SMALL), "--out", str(out), "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert str(out) in printed
    assert "1 unit (1 task × 1 seed × 1 size) of 2 arms, 20 steps each" in printed
    data = load(out)
    accuracy = data.accuracy.squeeze().mean("step")
    assert float(accuracy[0] - accuracy[1]) > 0.3
    row = next(line for line in printed.splitlines() if "infilling k=4" in line).split()
    assert "0-20" in row
    assert f"{float(accuracy[0]):.3f}" in row
    assert f"{float(accuracy[1]):.3f}" in row
    assert row[-3:] == ["-", "1/1", "-"]  # one seed has no interval
    assert data.role.values.tolist() == [[MATCHED, MISMATCHED]]
    assert data.attrs["specification"] == SMALL
    growth = data.growth.sel(watched=0).squeeze()
    assert growth.isel(arm=0)[4] == pytest.approx(1.10, abs=1e-6)
    assert growth.isel(arm=1)[7] == pytest.approx(1.10, abs=1e-6)
    assert growth[:, 0].values == pytest.approx([1.045, 1.045], abs=1e-6)
    assert np.isfinite(data.growth).all()
    assert float(abs(data.growth.diff("watched")).max()) > 1e-4  # training moves it


def test_the_same_command_goes_on_to_the_same_file(tmp_path, capsys, monkeypatch):
    spec = written(tmp_path, TINY.replace("seeds = [0]", "seeds = 3"))
    assert tokenwaves.main(["train", spec, "--out", str(tmp_path / "whole.nc"), "--workers", "1"]) == 0
    train, seen = Fitted.train, []

    def interrupted(self, arms, task, size, seed, progress):
        seen.append(seed)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return train(self, arms, task, size, seed, progress)

    monkeypatch.setattr(Fitted, "train", interrupted)
    out = str(tmp_path / "a.nc")
    capsys.readouterr()
    assert tokenwaves.main(["train", spec, "--out", out, "--workers", "1"]) == 130
    told = capsys.readouterr().err
    assert told.splitlines()[-1] == "tokenwaves: interrupted; the same command goes on from what is finished"
    assert tokenwaves.main(["train", spec, "--out", out, "--workers", "1"]) == 0
    assert seen == [0, 1, 1, 2]
    assert Path(out).read_bytes() == (tmp_path / "whole.nc").read_bytes()


@pytest.mark.slow
def test_two_workers_write_the_same_file(tmp_path):
    study = Study.load(
        written(
            tmp_path,
            SMALL.replace("seeds = [0]", "seeds = 2")
            .replace("steps = 20", "steps = 5")
            .replace("watch = [0, 20]", "watch = [0, 5]"),
        )
    )
    study.run(tmp_path / "one.nc")
    study.run(tmp_path / "two.nc", workers=2)
    assert (tmp_path / "one.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()


def test_by_default_the_result_is_here_and_baselines_have_a_table_too(tmp_path, capsys, monkeypatch):
    text = re.sub(
        r"\[\[arm\]\].*", '[[arm]]\ntype = "standard"\n\n[[arm]]\ntype = "random_mode"\n', TINY, flags=re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    assert tokenwaves.main(["train", written(tmp_path, text, "mine.study.toml"), "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "mine.nc").exists()
    assert (load(tmp_path / "mine.nc").role == BASELINE).all()
    assert re.search(r"arm\s+infilling k=4\n\s+standard\s+\d\S+\n\s+random mode\s+\d", printed)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            'type = "engineered"',
            'type = "engineer"',
            r"a.study.toml: arm\[0\].type: got 'engineer'; accepted: engineered",
        ),
        (
            "wavenumber = 7",
            "wavenumber = 17",
            r"arm\[1\].wavenumber: got 17; accepted: a mode of the ring of 32 tokens",
        ),
        ("wavenumber = 7", "wavenumber = 7\nhomogeneous = 1.2", r"arm\[1\].homogeneous: got 1.2; accepted: .*1.1"),
        ("wavenumber = 7", "wavenumber = 4", r"arm\[1\]: got .*k=4.*; accepted: .*name of its own"),
        ("wavenumber = 7", "wavenumber = 4\nangle = 6.0", r"arm\[1\].target: got growth 1.393, above 1, at k = 8"),
        ("carrier = 4", "carrier = 4\nlevels = 1", r"task\[0\].levels: got 1; accepted: a whole number of at least 2"),
        ("carrier = 4", "carrier = 20", r"task\[0\].carrier: got 20; accepted: a whole number from 1 to 16"),
        ("carrier = 4", "career = 4", r"task\[0\].career: got an unknown key"),
        ("steps = 1", "steps = 0", r"steps: got 0"),
        ("steps = 1", "step = 1", r"step: got an unknown key"),
        ("steps = 1", 'steps = 1\nfrozen = ["all"]', r"frozen\[0\]: got 'all'"),
        ("watch = [0, 1]", "watch = [0, 9]", r"watch\[1\]: got 9"),
        ("seeds = [0]", "seeds = [0, 0]", r"seeds: got \[0, 0\]"),
        ("sizes = [8]", "sizes = 8", r"sizes: got 8"),
        ("[[task]]", "[task]", r"task: got .*; accepted: \[\[task\]\], in two brackets"),
    ],
)
def test_bad_files_are_one_line(tmp_path, capsys, old, new, line):
    assert old in TINY
    spec = written(tmp_path, TINY.replace(old, new))
    assert tokenwaves.main(["train", spec, "--out", str(tmp_path / "a.nc"), "--workers", "1"]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert told.startswith("tokenwaves: error: a.study.toml: ")
    assert re.search(line, told), told
    assert not list(tmp_path.glob("*.nc*"))


def test_a_block_file_is_an_arm(tmp_path, capsys):
    engineer(Target(5, growth=1.15), rng=7).save(tmp_path / "mine.toml")
    text = f'{TINY}\n[[arm]]\ntype = "block"\nfile = "mine.toml"\n'
    assert tokenwaves.main(["train", written(tmp_path, text), "--out", str(tmp_path / "a.nc"), "--workers", "1"]) == 0
    data = load(tmp_path / "a.nc")
    assert data.arm.values.tolist() == ["k=4", "k=7", "mine"]
    assert data.role.sel(arm="mine").item() == BASELINE
    growth = data.growth.sel(arm="mine", watched=0).squeeze()
    assert (int(growth.argmax("wavenumber")), float(growth.max())) == (5, pytest.approx(1.15, abs=1e-6))
    capsys.readouterr()
    engineer(Target(5, growth=1.12), rng=7).save(tmp_path / "mine.toml")  # the same name, another block
    spec = written(tmp_path, text)
    assert tokenwaves.main(["train", spec, "--out", str(tmp_path / "a.nc"), "--workers", "1"]) == 2
    assert "another arms" in capsys.readouterr().err
    for other, line in (
        ("none.toml", r"arm\[2\]\.file: got 'none.toml'"),
        ("mine.toml", r"arm.*2.*\.given: got a block"),
    ):
        if other == "mine.toml":
            engineer(Target(3), n=16).save(tmp_path / "mine.toml")
        spec = written(tmp_path, text.replace("mine.toml", other))
        assert tokenwaves.main(["train", spec, "--out", str(tmp_path / "b.nc"), "--workers", "1"]) == 2
        assert re.search(line, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["none.study.toml"], "none.study.toml"),
        (["SPEC", "--workers", "0"], "--workers: got 0"),
        (["SPEC", "--out", "no/where.nc"], "--out: got"),
        pytest.param(
            ["SPEC", "--device", "cuda"],
            "--device: got 'cuda', which this machine does not have",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_bad_options_are_one_line(tmp_path, capsys, monkeypatch, options, line):
    monkeypatch.chdir(tmp_path)
    spec = written(tmp_path)
    assert tokenwaves.main(["train", *(spec if word == "SPEC" else word for word in options)]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert line in told


def test_a_file_of_another_study_is_refused_and_stays(tmp_path, capsys):
    out = tmp_path / "a.nc"
    assert tokenwaves.main(["train", written(tmp_path), "--out", str(out), "--workers", "1"]) == 0
    before = out.read_bytes()
    for old, new, what in (("batch = 4", "batch = 2", "batch"), ("carrier = 4", "carrier = 5", "tasks")):
        capsys.readouterr()
        spec = written(tmp_path, TINY.replace(old, new))
        assert tokenwaves.main(["train", spec, "--out", str(out), "--workers", "1"]) == 2
        told = capsys.readouterr().err
        assert len(told.splitlines()) == 1
        assert "--out: got" in told
        assert f"another {what}" in told
        assert out.read_bytes() == before


OUTCOMES = """
steps = 4
every = 2
seeds = 2
sizes = {sizes}
batch = 4
d = 8

[[task]]
type = "{task}"

[[arm]]
type = "default"

[[arm]]
type = "mask"
pattern = ["correct", "wrong"]
"""


@pytest.mark.parametrize(
    ("task", "sizes", "score"),
    [("2parity", [64], "unseen_mse"), ("addition", [8, 16], "sequence_accuracy")],
)
def test_a_study_of_priors_has_a_table_of_outcomes(tmp_path, capsys, task, sizes, score):
    spec = written(tmp_path, OUTCOMES.format(task=task, sizes=sizes))
    assert tokenwaves.main(["train", spec, "--out", str(tmp_path / "a.nc"), "--workers", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    data = load(tmp_path / "a.nc")
    head = next(place for place, line in enumerate(printed) if "after 4 steps, mean over seeds" in line)
    titles = [task] if len(sizes) == 1 else [f"{task}, {size}" for size in sizes]
    assert printed[head + 1].split("  ")[-len(sizes) :] == titles
    rows = {row.rsplit(None, len(sizes))[0].strip(): row.split()[-len(sizes) :] for row in printed[head + 2 : head + 5]}
    assert list(rows) == ["default", "mask", "mask, wrong"]
    for arm, cells in rows.items():
        means = data[score].isel(task=0, step=-1).sel(arm=arm).mean("seed").values
        assert [float(cell) for cell in cells] == pytest.approx(means, rel=1e-3)
