"""Figures 5a, 8 and 9: their claims on the small networks, and data that draw themselves again."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

pytest.importorskip("torch")

import torch

from dispersion import Block, dispersion_relation
from figures import fig5, fig8, fig9
from figures.check import draw
from figures.files import read_data, write_data
from figures.making import figure_of
from figures.style import style
from models import ConViT, to_torch
from models.check import check

EXAMPLES = Path(__file__).parent.parent / "examples"
MODULES = (fig5, fig8, fig9)


@pytest.fixture(scope="module")
def data():
    return {module.NAME: module.compute(quick=True) for module in MODULES}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.NAME)
def test_claims_are_met_and_saved_data_draw(module, data, tmp_path):
    write_data(data[module.NAME], tmp_path / "a.nc")
    saved = read_data(tmp_path / "a.nc")
    claims = module.claims(saved)
    assert claims
    assert all(claim.met for claim in claims), [claim for claim in claims if not claim.met]
    with style():
        figure = figure_of(module, saved)
        figure.canvas.draw()
    assert all(ax.has_data() for ax in figure.axes)


def test_a_map_is_the_growth_of_its_block(data):
    network = ConViT.preset("-I+pos", "small")
    wanted = dispersion_relation(network.block(), network.state).growth
    assert np.abs(data["fig5"]["growth"].sel(name="-I+pos") - wanted).max() < 1e-12
    assert np.abs(data["fig9"]["first"].sel(name="-I+pos").max() - wanted.max() ** 12) < 1e-9


def test_finite_depth_claims_fail_where_they_should(data):
    broken = data["fig9"].copy(deep=True)
    broken["error"][0, 3] = 1e-7
    broken["growth"][1] = broken["growth"][1].values[::-1]
    met = {claim.id: claim.met for claim in fig9.claims(xr.DataTree(broken))}
    assert met == {
        "fig9.finite_depth.error": False,
        "fig9.finite_depth.error.plus_I_pos": False,
        "fig9.pearson.plus_I_pos": True,
        "fig9.finite_depth.error.minus_I_pos": True,
        "fig9.pearson.minus_I_pos": False,
        "fig9.finite_depth.error.engineered": True,
        "fig9.pearson.engineered": True,
    }


def small_gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=20, n_positions=16)
    return transformers.GPT2Model(config).eval()


def test_a_check_on_a_line_draws_what_is_confirmed():
    found = check(small_gpt2(), shape=8)
    figure = draw(found, "GPT-2")
    left, right = figure.axes
    profiles = [line.get_ydata() for line in left.lines if len(line.get_ydata())]
    assert len(profiles) == 6
    assert all(np.linalg.norm(profile) == pytest.approx(1) for profile in profiles)
    predicted, measured = (line.get_ydata() for line in right.lines[:2])
    np.testing.assert_array_equal(predicted, found.line.gain)
    np.testing.assert_array_equal(measured, found.line.measured_gain)
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels == ["predicted", "forward pass", "as before, 1", f"the state, {found.stretch:.3g}"]


def test_one_layer_shows_its_multipliers():
    block = Block.load(EXAMPLES / "rotating.toml")
    found = check([to_torch(block)], np.zeros(2), block.shape, [block])
    left, right = draw(found, "rotating").axes[:2]
    (dots,) = left.collections
    half = found.predicted.multipliers[: block.n // 2 + 1].ravel()
    np.testing.assert_array_equal(np.asarray(dots.get_offsets()), np.stack([half.real, half.imag], axis=-1))
    assert [text.get_text() for text in right.get_legend().get_texts()][-1] == "as before, 1"
