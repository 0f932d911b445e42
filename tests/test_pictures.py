"""Pictures say what they show: what became of every point, what is theory, and nothing that is not in the data."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import tokenwaves
from amplitude import standing_wave
from dispersion import Block, FeedForward, Head, Kernel, dispersion_relation
from figures import check as check_picture
from figures.phase_diagram import QUANTITIES, PhaseDiagram, draw
from figures.phase_diagram.maps import observed_regime
from figures.style import style
from simulate import iterate

ROOT = Path(__file__).parent.parent
SPEC = """
quantity = "QUANTITY"
depth = DEPTH
[parameters]
gain = {from = 0.1, to = 0.9, points = 5}
strength = [1.0, 2.0, 3.0]
[block]
n = 16
[[head]]
kernel = {type = "gaussian_lobes", separation = 4, width = 1.0, strength = "strength"}
value = "SIGNgain"
content = 1.5
[feedforward]
activation = "polynomial"
coefficients = [C1, 0.0, C3]
"""


def made(tmp_path, quantity="amplitude", depth=1500, sign="-", c1=-0.1, c3=1 / 30, section=False, start=None):
    """The data of a diagram and its drawn figure."""
    text = SPEC.replace("QUANTITY", quantity).replace("SIGN", sign).replace("C1", str(c1)).replace("C3", str(c3))
    more = "\nmodes = [2, 3]" if quantity == "competition" else "" if start is None else f"\nstart = {start}"
    text = text.replace("DEPTH", f"{depth}{more}")
    if section:
        text = text.replace("strength = [1.0, 2.0, 3.0]\n", "").replace('"strength"', "2.0")
    (tmp_path / "map.toml").write_text(text)
    diagram = PhaseDiagram.load(tmp_path / "map.toml")
    data = diagram.compute()
    figure = draw(data)
    figure.canvas.draw()
    return data, figure


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def hatched(figure):
    """Number of cells with each hatch."""
    return {
        collection.get_hatch(): len(collection.get_paths())
        for collection in figure.axes[0].collections
        if collection.get_hatch()
    }


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("section", [False, True])
def test_a_diagram_of_which_every_point_diverged_says_so(tmp_path, quantity, section, recwarn):
    data, figure = made(tmp_path, quantity, depth=200, c1=2.0, c3=1.0, section=section, start=0.5)
    assert (data.status == 2).all()
    assert len(figure.axes) == 1  # no colour bar
    said = figure.axes[0].texts[0].get_text()
    assert said == f"no point has a result\n{data.status.size} diverged"
    assert f"no result: {data.status.size} diverged" in legend(figure)
    if quantity == "competition":
        assert np.isnan(data.observed).all()
    if not section:
        assert hatched(figure) == {"xxxxx": 15}
    assert not recwarn.list


def test_the_regime_of_a_run_without_a_result_is_unknown():
    assert np.isnan(observed_regime(np.array([[[np.nan, np.nan], [0.0, 0.2]], [[0.2, 0.0], [0.0, np.nan]]]))).all()


@pytest.mark.parametrize("quantity", ["amplitude", "wavenumber", "competition"])
def test_growth_of_the_mean_is_not_a_pattern_and_not_nothing(tmp_path, quantity):
    data, figure = made(tmp_path, quantity, sign="", c3=-0.3)
    growing = int((data.critical_growth > 1).sum())
    if quantity == "competition":  # runs that start in a pattern and keep it are not called growth of the mean
        growing -= int((data.wavenumber.max("seed").where(data.critical_growth > 1) > 0).sum())
    assert 0 < growing < data.critical_growth.size
    assert "$k = 0$ alone grows: no pattern" in legend(figure)
    assert hatched(figure)["////"] == growing
    _, figure = made(tmp_path, quantity)
    assert "////" not in hatched(figure)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_points_that_have_not_settled_are_marked_with_their_share(tmp_path, quantity):
    data, figure = made(tmp_path, quantity, depth=64)
    unsettled = data.status.values.reshape(5, 3, -1).max(axis=-1) == 1
    assert unsettled.mean() > 0.4
    assert f"not settled: {unsettled.mean():.0%} of the points" in legend(figure)
    assert hatched(figure)["...."] == unsettled.sum()


def test_the_legend_says_what_is_theory(tmp_path):
    _, figure = made(tmp_path)
    entries = legend(figure)
    assert r"linear threshold $\max\,|\Lambda| = 1$" in entries
    assert "cubic theory: lines, numbers" in entries
    assert "homogeneous state is stable" in entries
    _, figure = made(tmp_path, section=True)
    assert {"cubic theory", "simulated", "homogeneous state is stable"} <= set(legend(figure))
    _, figure = made(tmp_path, "competition")
    assert {"collapsed: neither of them", "$k = 2$ wins"} <= set(legend(figure))


def test_some_points_without_a_result(tmp_path, capsys):
    """1/(gain − 0.5) has no value at one of five gains, and blows up beside it."""
    text = SPEC.replace("QUANTITY", "amplitude").replace("DEPTH", "300").replace("C1", "-0.1").replace("C3", "0.5")
    path = tmp_path / "map.toml"
    path.write_text(text.replace('"SIGNgain"', '"0.1/(gain - 0.5)"'))
    assert tokenwaves.main(["phase-diagram", str(path), "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"  3 failed: expression: .* at gain = 0.5, strength = 1 .*", line) for line in lines) or any(
        re.match(r"  1 failed: expression", line) for line in lines
    )
    assert any("without theory: " in line for line in lines)
    diagram = PhaseDiagram.load(path)
    figure = draw(diagram.compute())
    assert any(re.match(r"no result: .*3 failed", entry) for entry in legend(figure))


def test_plots_of_one_script_do_not_meet():
    block = Block(
        [Head(Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0), value=-0.4, content=1.5)],
        FeedForward.scalar("tanh", scale=-0.1),
    )
    relation = dispersion_relation(block)
    wave = standing_wave(block, relation.leading().k)
    path = iterate(block, depth=50, start=1e-3, rng=0)
    drawn = [relation.plot(), wave.plot_potential(), path.plot(), relation.plot()]
    assert len({ax.figure.number for ax in drawn}) == 4
    ax = Figure().subplots()
    assert [result.plot(ax=ax) for result in (relation, path)] == [ax, ax]
    plt.close("all")


class OneLayer:
    """A check of one layer, as far as its first panel goes."""

    def __init__(self, block, layers=1):
        self.predicted = type("P", (), {"shape": block.shape, "relations": [dispersion_relation(block)] * layers})


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_panel_of_layers_is_filled(layers, random_block):
    checked = OneLayer(random_block(0, n=8, d=1, heads=1), layers)
    with style():
        ax = Figure().subplots()
        check_picture.draw_layers(checked, ax)
    assert ax.get_xlim() == (-0.5, 4.5)
    assert ax.get_ylim() == (0.5, layers + 0.5)
    (mesh,) = ax.collections
    corners = mesh.get_coordinates()
    assert np.ptp(corners[..., 1]) == layers
    assert np.ptp(corners[..., 0]) == 5


@pytest.mark.parametrize("stem", ["$x_{$", "a$b", "a_b^{c", "块", "x\\frac"])
def test_the_name_of_a_file_is_no_formula(stem, tmp_path, capsys):
    path = tmp_path / f"{stem}.toml"
    path.write_text((ROOT / "examples" / "rotating.toml").read_text(encoding="utf-8"), encoding="utf-8")
    assert tokenwaves.main(["dispersion", str(path), "--plot", str(tmp_path / "a.svg")]) == 0
    assert capsys.readouterr().err == ""
    written = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ("$" in stem) or stem in written  # a formula is written glyph by glyph


def test_examples_in_help_exist():
    sources = sorted((ROOT / "tokenwaves").glob("*.py"))
    named = re.findall(r"examples/[\w.-]+\.toml", "".join(path.read_text(encoding="utf-8") for path in sources))
    assert len(named) >= 3
    assert all((ROOT / name).exists() for name in named)


def test_labels_of_figure_9_stay_inside():
    import xarray as xr

    fig9 = pytest.importorskip("figures.fig9")
    rng = np.random.default_rng(0)
    shape = (len(fig9.NETWORKS), 12)
    values = {"first": 1 + rng.random(shape), "growth": 1 + rng.random(shape)}
    values |= {"error": 1e-10 * rng.random(shape), "mismatch": 1e-9 * rng.random(shape)}
    variables = {name: (("name", "wavenumber"), array) for name, array in values.items()}
    data = xr.Dataset({**variables, "distance": ("wavenumber", np.arange(12.0))}, coords={"name": list(fig9.NETWORKS)})
    with style():
        figure = Figure(figsize=fig9.SIZE, layout="constrained")
        axes = figure.subplot_mosaic(fig9.MOSAIC)
        fig9.draw(xr.DataTree(data), axes)
        figure.canvas.draw()
    frame = axes["d"].get_window_extent()
    (label,) = (text for text in axes["d"].texts if text.get_text().startswith("paper"))
    extent = label.get_window_extent()
    assert frame.y0 < extent.y0 < extent.y1 < frame.y1
    assert frame.x0 < extent.x0 < extent.x1 < frame.x1
