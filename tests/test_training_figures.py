"""Figures 4, 6 and 7: claims that follow the data, drawings from saved data, and results of no other study."""

import json

import numpy as np
import pytest
import xarray as xr

pytest.importorskip("torch")

from made_studies import made

import figures.studies as studies
import tokenwaves
from dispersion import ArgumentError
from figures import fig4, fig6, fig7
from figures.families import CONTROLS, FAMILIES, angle, labels
from figures.files import read_data, write_data
from figures.making import figure_of
from figures.report import Claim
from figures.style import style
from simulate.runs.netcdf import load, save
from training import statistics
from training.experiment import BASELINE, MATCHED, MISMATCHED

MODULES = {module.NAME: module for module in (fig4, fig6, fig7)}
NAMES = [*(family.study for family in FAMILIES.values()), "sizes"]
NAMES += [study for _, controls in CONTROLS.values() for study in controls.values()]


@pytest.fixture(scope="module")
def patched():
    with pytest.MonkeyPatch.context() as context:
        context.setattr(statistics, "RESAMPLES", 99)
        yield context


@pytest.fixture(scope="module")
def data(patched):
    """The trees of the figures, from curves that are made up; controls in which nothing is matched."""
    known = {name: made(name, patched) for name in NAMES[:4]}
    lost = {MATCHED: 0.3, MISMATCHED: 0.3}
    known |= {name: made(name, patched, levels=lost) for name in NAMES[4:]}
    with pytest.MonkeyPatch.context() as context:
        context.setattr(studies, "saved", known.__getitem__)
        return {name: module.compute() for name, module in MODULES.items()}


def met(name, tree):
    claims = MODULES[name].claims(tree)
    assert len({claim.id for claim in claims}) == len(claims)
    return {claim.id: claim for claim in claims}


def changed(tree, node, **variables):
    """A copy of `tree` with other variables at a node."""
    new = tree.copy(deep=True)
    new[node] = xr.DataTree(new[node].to_dataset().assign(variables))
    return new


# Claims


def test_every_claim_of_the_issue_is_there(data):
    claims = met("fig4", data["fig4"])
    for window in (20, 50):
        for name in FAMILIES:
            for key in ("diagonal", "difference", "matched", "mismatched"):
                assert f"fig4.{name}.{key}.w{window}" in claims
        assert f"fig4.t3.gap.w{window}" in claims
        assert claims[f"fig4.sign.w{window}"].here == "36 of 36"  # 3 families, 4 tasks, 3 seeds
    assert {claim for claim in claims if ".control." in claim} == {
        f"fig4.control.{control}.{name}.{key}.w{window}"
        for control, names in (("per_loop", ("t2", "t3")), ("random_code", ("t1", "t2", "t3")))
        for name in names
        for key in ("diagonal", "difference")
        for window in (20, 50)
    }
    claims = met("fig7", data["fig7"])
    for size in (16, 32, 64, 128, 256, 512):
        assert f"fig7.order.n{size}.best" in claims
        assert f"fig7.order.n{size}.last" in claims


def test_diagonals_and_signs_follow_the_data(data):
    claims = met("fig4", data["fig4"])
    assert all(claims[f"fig4.{name}.{key}.w20"].met for name in FAMILIES for key in ("diagonal", "difference"))
    assert claims["fig4.t2.diagonal.w50"].here == 4
    study = data["fig4"]["t2"].to_dataset()
    worse = study.accuracy.copy()
    worse[1, :, 1] = 0.0  # the second task
    claims = met("fig4", changed(data["fig4"], "t2", accuracy=worse))
    assert claims["fig4.t2.diagonal.w20"].here == 3
    assert claims["fig4.sign.w20"].here == "33 of 36"
    assert not any(claims[f"fig4.{key}.w20"].met for key in ("t2.diagonal", "t2.difference", "sign"))
    assert claims["fig4.t1.diagonal.w20"].met


def test_levels_are_met_within_the_intervals_alone(data):
    """The paper's own levels, one seed a little above and one below, and the same 0.02 higher."""
    study = data["fig4"]["t1"].to_dataset()
    spread = xr.DataArray([-0.004, 0.0, 0.004], dims="seed")
    matched = xr.DataArray([0.619, 0.621, 0.623, 0.626], dims="task")
    for shift, agrees in ((0.0, True), (0.02, False)):
        level = xr.where(study.role == MATCHED, matched + shift, 0.133)
        accuracy = (level + spread).broadcast_like(study.accuracy).transpose(*study.accuracy.dims)
        claims = met("fig4", changed(data["fig4"], "t1", accuracy=accuracy))
        for window in (20, 50):
            claim = claims[f"fig4.t1.matched.w{window}"]
            assert claim.paper == "0.619 … 0.626"
            assert claim.here == f"{0.619 + shift:.3f} … {0.626 + shift:.3f}"
            assert claim.met is agrees
            assert claims[f"fig4.t1.mismatched.w{window}"].met


def test_the_strongest_arm_is_one_for_all_seeds(data):
    """The level is of the arm of highest mean; the sign counts the strongest of each seed."""
    study = data["fig4"]["t1"].to_dataset()
    accuracy = xr.full_like(study.accuracy, 0.1)
    accuracy[0, :, 0] = 0.5
    accuracy[0, :, 1] = 0.4
    accuracy[0, 2, 2] = 0.6  # stronger, in one seed
    claims = met("fig4", changed(data["fig4"], "t1", accuracy=accuracy))
    assert claims["fig4.t1.mismatched.w20"].here.endswith("0.400")
    sign = claims["fig4.sign.w20"]
    assert sign.here == "26 of 36"  # the other tasks of T1 have equal arms
    assert "27 of 36" in sign.note


def test_controls_without_a_matched_arm_lose_the_diagonal(data):
    claims = met("fig4", data["fig4"])
    control = {name: claim for name, claim in claims.items() if ".control." in name}
    assert all(claim.met and claim.paper is None for claim in control.values())
    kept = data["fig4"].copy()
    kept["per_loop/t2"] = kept["t2"]
    claims = met("fig4", kept)
    assert claims["fig4.control.per_loop.t2.diagonal.w20"].here == 4
    assert not claims["fig4.control.per_loop.t2.diagonal.w20"].met
    assert not claims["fig4.control.per_loop.t2.difference.w20"].met


def test_the_sense_of_turning_is_read_from_the_arms(data):
    study = data["fig6"]["t3"].to_dataset()
    sense = np.array([[0.5, 0.5, 0.2, 0.2], [0.5, 0.5, 0.2, 0.2], [0.2, 0.2, 0.5, 0.5], [0.2, 0.6, 0.5, 0.5]])
    level = xr.DataArray(sense, dims=("task", "arm"))
    claims = met("fig6", changed(data["fig6"], "t3", accuracy=level.broadcast_like(study.accuracy)))
    assert (claims["fig6.t3.sense.w20"].here, claims["fig6.t3.sense.w20"].met) == (3, False)
    assert met(
        "fig6", changed(data["fig6"], "t3", accuracy=level.where(level != 0.6, 0.2).broadcast_like(study.accuracy))
    )["fig6.t3.sense.w50"].met


def test_what_training_does_to_a_mode_is_said_from_its_share(data):
    claim = met("fig6", data["fig6"])["fig6.t1.prior"]
    assert claim.here == pytest.approx(0.3)
    assert claim.met
    assert "sharpened" in claim.note
    assert "weakened" in claim.note
    study = data["fig6"]["t1"].to_dataset()
    claim = met("fig6", changed(data["fig6"], "t1", share=0.1 + 0 * study.share))["fig6.t1.prior"]
    assert not claim.met
    assert claim.note.count("washed out") == 2


def test_the_order_of_cross_entropies(data):
    claims = met("fig7", data["fig7"])
    claim = claims["fig7.order.n16.best"]
    assert claim.here.startswith("matched < mismatched < ")
    assert claim.met
    study = data["fig7"]["sizes"].to_dataset()
    last = study.cross_entropy.copy()
    last.loc[{"size": 16, "arm": "matched", "step": study.step[-1]}] = 9.0  # it has overfitted
    claims = met("fig7", changed(data["fig7"], "sizes", cross_entropy=last))
    assert claims["fig7.order.n16.best"].met
    assert not claims["fig7.order.n16.last"].met
    assert claims["fig7.order.n16.last"].here.endswith("< matched")
    assert claims["fig7.order.n32.last"].met


def test_the_advantage_of_few_examples_and_of_early_steps(data):
    study = data["fig7"]["sizes"].to_dataset()
    more = xr.where((study.arm == "matched") & (study["size"] == 512), 1.0, 0.0)
    claims = met("fig7", changed(data["fig7"], "sizes", cross_entropy=study.cross_entropy - more))
    assert (claims["fig7.low_data.best"].here, claims["fig7.low_data.best"].met) == (512, False)
    few = xr.where((study.arm == "matched") & (study["size"] == 16), 1.0, 0.0)
    claims = met("fig7", changed(data["fig7"], "sizes", cross_entropy=study.cross_entropy - few))
    assert (claims["fig7.low_data.last"].here, claims["fig7.low_data.last"].met) == (16, True)
    assert claims["fig7.early.n16"].here <= 50


def test_a_mode_that_is_overtaken(data):
    study = data["fig7"]["sizes"].to_dataset()
    growth = study.growth.copy()
    growth.loc[{"arm": "mismatched", "watched": study.watched[-1], "wavenumber": 4, "seed": 0}] = 1.5
    before, after = met("fig7", data["fig7"]), met("fig7", changed(data["fig7"], "sizes", growth=growth))
    assert before["fig7.fastest.mismatched.n512"].met
    assert after["fig7.fastest.mismatched.n512"].here == 2
    assert not after["fig7.fastest.mismatched.n512"].met
    assert after["fig7.fastest.matched.n512"].met
    assert (before["fig7.grown.mismatched.n512"].here, before["fig7.grown.mismatched.n512"].met) == (0.9, False)
    growth.loc[{"arm": "mismatched", "watched": study.watched[-1], "wavenumber": 4}] = 1.2
    claim = met("fig7", changed(data["fig7"], "sizes", growth=growth))["fig7.grown.mismatched.n16"]
    assert (claim.here, claim.met) == (pytest.approx(1.2), True)


def test_one_seed_and_unfinished_results_have_claims_too(data, patched):
    one = data["fig4"].copy()
    for node in one.leaves:
        one[node.path] = xr.DataTree(node.to_dataset().isel(seed=[0]))
    claims = met("fig4", one)
    assert claims["fig4.t1.diagonal.w20"].met
    assert not claims["fig4.t1.difference.w20"].met  # one seed has no interval
    study = data["fig4"]["t1"].to_dataset()
    part = changed(
        data["fig4"], "t1", accuracy=study.accuracy.where(study.seed < 2), status=study.status.where(study.seed < 2, 2)
    )
    claims = met("fig4", part)
    assert claims["fig4.sign.w20"].here == "32 of 32"
    assert "8 of 12 units" in claims["fig4.t1.matched.w20"].note
    with style():
        figure_of(fig4, part).canvas.draw()


# Drawings


@pytest.mark.parametrize("name", MODULES)
def test_saved_data_draw(name, data, tmp_path):
    write_data(data[name], tmp_path / "a.nc")
    again = read_data(tmp_path / "a.nc")
    with style():
        figure = figure_of(MODULES[name], again)
        figure.canvas.draw()
    panels = {letter for row in MODULES[name].MOSAIC for letter in row}
    assert all(ax.has_data() for ax in figure.axes[: len(panels)])
    assert met(name, again) == met(name, data[name])


def test_angles_are_fractions_of_pi(data):
    assert [angle(x * np.pi) for x in (-0.5, 0.25, 1.0, -1.5, 0.0)] == ["−π/2", "+π/4", "+π", "−3π/2", "0"]
    turns = ["−π/2", "−π/4", "+π/4", "+π/2"]
    assert labels(data["fig4"]["t1"].to_dataset()) == (["3", "4", "5", "7"],) * 2
    for node in ("t2", "t3", "per_loop/t2", "per_loop/t3"):
        assert labels(data["fig4"][node].to_dataset()) == (turns, turns)


def test_the_report_says_where_the_results_come_from(data):
    told = data["fig4"].attrs["per_loop t2"]
    assert "12 of 12 units, 3 seeds, 50 steps" in told
    assert "torch" in told
    assert "trained for this report" in told
    saved = data["fig6"]["t1"].to_dataset().assign_attrs(command="tokenwaves train a.study.toml")
    assert "saved results of `tokenwaves train a.study.toml`: 12 of 12 units" in studies.told(saved)


# Saved results


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place of its own for saved results and study files."""
    (tmp_path / "examples").mkdir()
    for file in studies.EXAMPLES.glob("*.study.toml"):
        (tmp_path / "examples" / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(studies, "FOLDER", tmp_path)
    monkeypatch.setattr(studies, "EXAMPLES", tmp_path / "examples")
    return tmp_path


@pytest.fixture(scope="module")
def shift(patched):
    """Results of the study `shift`, with made-up curves."""
    return made("shift", patched, seeds=12, steps=100)


@pytest.fixture
def kept(folder, shift):
    """The same, saved."""
    (folder / "results").mkdir()
    save(shift, folder / "results" / "shift.nc")
    assert studies.keep([str(folder / "results" / "shift.nc")]) == [folder / "shift.nc"]
    return shift


def test_kept_results_are_small_and_the_same(kept):
    data = studies.saved("shift")
    assert not {"loss", "masked_growth"} & set(data)
    assert data.attrs["command"] == "tokenwaves train examples/shift.study.toml"
    for name in data.data_vars:
        if data[name].dtype.kind == "f":
            np.testing.assert_allclose(data[name], kept[name], rtol=1e-7)
        else:
            np.testing.assert_array_equal(data[name], kept[name])
    assert {name: data.attrs[name] for name in kept.attrs} == kept.attrs


def test_results_of_another_study_are_refused_in_one_line(folder, kept, monkeypatch, capsys):
    path = folder / "examples" / "shift.study.toml"
    text = path.read_text()
    path.write_text(text.replace("# T2", "# A comment is no setting. T2"))
    studies.saved("shift")
    for old, new, what in (
        ("seeds = 12", "seeds = 11", "seeds"),
        ("steps = 100", "steps = 100\nrate = 0.001", "experiment"),
        ("sizes = [512]", "sizes = [256]", "sizes"),
        ("shift = 2", "shift = 3", "tasks"),
        ("angle = -1.5707963267948966", "angle = -1.57", "arms"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(ArgumentError, match=rf"not of shift.study.toml, results with other {what}"):
            studies.saved("shift")
    monkeypatch.setattr(fig4, "compute", lambda **_: studies.saved("shift"))
    assert tokenwaves.main(["figures", "fig4", "--out", str(folder / "figs")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "tokenwaves train examples/shift.study.toml" in lines[0]


def test_without_results_the_command_is_named(folder):
    with pytest.raises(ArgumentError, match="no saved results of the study 'shift'.*tokenwaves train"):
        studies.saved("shift")


def test_without_study_files_the_results_say_what_they_are_of(folder, kept, monkeypatch):
    monkeypatch.setattr(studies, "EXAMPLES", folder / "nowhere")
    assert studies.saved("shift").attrs["specification"] == kept.attrs["specification"]
    assert studies.specified("shift").units == 48


def test_a_setting_that_came_later_does_not_count(shift):
    study, known = studies.specified("shift"), json.loads(shift.attrs["experiment"])
    study.recognise(shift)
    del known["content"]
    study.recognise(shift.assign_attrs(experiment=json.dumps(known)))
    for wrong in ({**known, "content": 2.0}, {**known, "gone": 1}):
        with pytest.raises(ArgumentError, match="other experiment"):
            study.recognise(shift.assign_attrs(experiment=json.dumps(wrong)))
    with pytest.raises(ArgumentError, match="no results of a study"):
        study.recognise(xr.Dataset())


def test_a_claim_of_a_quick_study_says_so(shift):
    (claim,) = studies.marked([Claim("a", "b", 1, 1, True, "note")], [shift])
    assert claim.note == "note; of the quick study, 100 steps"


# The studies that come with the package


SAVED = [name for name in NAMES if (studies.FOLDER / f"{name}.nc").exists()]


@pytest.mark.parametrize("name", SAVED)
def test_saved_results_are_of_the_study_files(name):
    data = studies.saved(name)
    assert (studies.FOLDER / f"{name}.nc").stat().st_size < 500_000
    trained = data.status == 0
    assert trained.any()
    assert (np.isfinite(data.accuracy).all(("arm", "step")) == trained).all()
    assert {MATCHED, MISMATCHED} <= set(data.role.values.flat) <= {MATCHED, MISMATCHED, BASELINE}


@pytest.mark.slow
def test_quick_figures_train_and_meet_what_they_can(tmp_path):
    assert tokenwaves.main(["figures", *MODULES, "--quick", "--out", str(tmp_path)]) == 0
    claims = {claim["id"]: claim for claim in json.loads((tmp_path / "report.json").read_text())["claims"]}
    assert all("quick study" in claim["note"] for claim in claims.values())
    assert all(claims[f"fig4.{name}.diagonal.w20"]["met"] for name in FAMILIES)
    assert "fig4.t1.diagonal.w50" not in claims
    assert claims["fig4.sign.w20"]["paper"] == "24 of 24"
    assert load(tmp_path / "fig4.nc") is not None
