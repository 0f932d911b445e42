"""Figures 5a, 8 and 9: their claims on the small networks, and data that draw themselves again."""

import numpy as np
import pytest
import xarray as xr

pytest.importorskip("torch")

from dispersion import dispersion_relation
from figures import fig5, fig8, fig9
from figures.files import read_data, write_data
from figures.making import figure_of
from figures.style import style
from models import ConViT

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
