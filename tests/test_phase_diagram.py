"""Phase diagrams: specifications, their maps, and the command line."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from amplitude import REGIMES, standing_wave
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation, fixed_points
from figures.phase_diagram import QUANTITIES, PhaseDiagram, draw
from figures.phase_diagram.maps import observed_regime
from simulate import OBSERVABLES, STATUS, Observable, sweep

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.diagram.toml"))
SPEC = """
quantity = "amplitude"
depth = 1500
[parameters]
gain = {from = 0.3, to = 0.6, points = 3}
strength = [1.5, 2.5]
[block]
n = 16
[[head]]
kernel = {type = "gaussian_lobes", separation = 4, width = 1.0, strength = "strength"}
value = "-gain"
content = 1.5
[feedforward]
activation = "tanh"
scale = -0.1
"""


SHIFTED = """
quantity = "wavenumber"
depth = 5000
[parameters]
gain = [0.2, 0.3, 0.36]
[block]
n = 16
[[head]]
kernel = {type = "gaussian_lobes", separation = 3, width = 1.0, strength = 2.0}
value = "-gain"
content = 1.5
[feedforward]
activation = "tanh"
weight_in = [[1.0]]
weight_out = [[-0.1]]
bias_out = [0.3]
"""
PLANE = """
shape = [8, 8]
[[head]]
kernel = {type = "table", logits = LOGITS}
value = "-gain"
content = "strength"
[feedforward]
activation = "tanh"
scale = -0.1
"""
PAIR = """
n = 16
[[head]]
kernel = {type = "gaussian_lobes", separation = 4, width = 1.0, strength = "strength"}
value = [["-gain", 0.05], [0.05, "-gain"]]
content = [[1.5, 0.0], [0.0, 1.5]]
[feedforward]
activation = "tanh"
weight_in = [[1.0, 0.0], [0.0, 1.0]]
weight_out = [[-0.1, 0.0], [0.0, -0.1]]
"""


def torus(quantity):
    lag = np.stack(np.meshgrid(*(np.fft.fftfreq(8, 1 / 8),) * 2, indexing="ij"), axis=-1)
    logits = 3 * np.exp(-((np.abs(lag[..., 0]) - 2) ** 2) / 2 - lag[..., 1] ** 2 / 2)
    return other(quantity, PLANE.replace("LOGITS", str(logits.tolist())))


def other(quantity, block, depth=400):
    """SPEC with another quantity and block."""
    text = SPEC[: SPEC.index("n = 16")] + block.lstrip()
    text = text.replace('"amplitude"', f'"{quantity}"').replace("depth = 1500", f"depth = {depth}")
    return text.replace("[parameters]", "modes = [4, 5]\n[parameters]", quantity == "competition")


def drawn(diagram, **settings):
    """The data of a diagram and the axes it is drawn on."""
    data = diagram.compute(**settings)
    figure = draw(data)
    figure.canvas.draw()
    return data, figure.axes[0]


def written(folder, text):
    path = folder / "map.toml"
    path.write_text(text)
    return path


def command(*arguments):
    program = [sys.executable, "-m", "tokenwaves", "phase-diagram", *map(str, arguments)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True)


def test_arithmetic_in_a_specification(tmp_path):
    diagram = PhaseDiagram.load(written(tmp_path, SPEC.replace('"-gain"', '"-gain*(1 + strength/2)**2"')))
    assert list(diagram.parameters) == ["gain", "strength"]
    assert diagram.block(0.3, 2.0).heads[0].value == pytest.approx(-0.3 * 4)
    assert diagram.block(0.3, 2.0).heads[0].kernel.logits.max() == pytest.approx(2.0, rel=1e-6)


def make_block(gain, strength=2.0):
    return Block([Head(Kernel.gaussian_lobes(16, 4, 1.0, strength), -gain, 1.5)], FeedForward.scalar("tanh", -0.1))


def test_from_python_as_from_toml(tmp_path):
    read = PhaseDiagram.load(written(tmp_path, SPEC))
    said = PhaseDiagram(make_block, read.parameters, depth=read.depth, seed=read.seed)
    assert said.estimate == read.estimate
    data, other = said.compute(), read.compute()
    assert data.assign_attrs(other.attrs).identical(other)
    assert draw(data).axes[0].get_xlabel() == "gain"


def test_ones_own_observable_is_drawn_as_it_is_declared(tmp_path):
    from figures.files import read_data, write_data

    crest = Observable("crest", lambda path: np.abs(path.state).max(), "largest |x|", label="crest $C$")
    grid = {"gain": np.linspace(0.3, 0.6, 4)}
    data = PhaseDiagram(make_block, grid, crest, depth=300).compute()
    np.testing.assert_array_equal(data.crest, sweep(make_block, grid, 300, measure=crest).crest)
    figure = draw(read_data(write_data(data, tmp_path / "section.nc")).to_dataset())
    assert figure.axes[0].get_ylabel() == "crest $C$"
    read = PhaseDiagram.load(written(tmp_path, SPEC.replace("depth = 1500", "depth = 60")))
    data, ax = drawn(replace(read, quantity=crest))
    assert data.crest.dims == ("gain", "strength")
    assert ax.figure.axes[-1].get_ylabel() == "crest $C$"
    known = PhaseDiagram(make_block, grid, OBSERVABLES["heterogeneity"], depth=300)
    assert drawn(known)[1].get_ylabel() == OBSERVABLES["heterogeneity"].long_name
    for bad, of in ((OBSERVABLES["state"], grid), (OBSERVABLES["amplitude"], grid), (crest, {"crest": [0.3, 0.6]})):
        with pytest.raises(ArgumentError, match="quantity|parameters"):
            PhaseDiagram(lambda **values: make_block(*values.values()), of, bad)


def test_the_data_are_enough_to_draw(tmp_path):
    from figures.files import read_data, write_data

    data = PhaseDiagram(make_block, {"gain": [0.3, 0.6]}, "competition", depth=20, modes=[3, 4]).compute()
    write_data(data, tmp_path / "map.nc")
    figure = draw(read_data(tmp_path / "map.nc").to_dataset())
    assert [ax.get_xlabel() for ax in figure.axes] == ["gain"]
    with pytest.raises(ArgumentError, match="data: got no phase diagram"):
        draw(xr.Dataset())


def test_a_diagram_runs_on_workers():
    diagram = PhaseDiagram(make_block, {"gain": np.linspace(0.3, 0.6, 4)}, depth=20)
    assert diagram.compute().identical(diagram.compute(n_jobs=2, backend="threading", group=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantity": "size"}, "quantity: got 'size'; accepted: amplitude, speed"),
        ({"quantity": None}, "quantity: got None"),
        ({"parameters": {}}, "parameters: got 0; accepted: a table of one or two"),
        ({"parameters": [1, 2]}, r"parameters: got \[1, 2\]"),
        ({"parameters": {"gain": [0.6, 0.3]}}, "parameters.gain: got .* from the lowest to the highest"),
        ({"parameters": {"gain": [[0.3]]}}, "parameters.gain: got .* a list of numbers"),
        ({"parameters": {"gain": ["a"]}}, "parameters.gain: got .* a list of numbers"),
        ({"parameters": {"gain": [0.3, np.nan]}}, "parameters.gain: got"),
        ({"parameters": {"gain": []}}, "parameters.gain: got .* one number or more"),
        ({"parameters": {"gain": [0.3], "strength": [1.0, 2.0]}}, "parameters.gain: got .* two values or more"),
        ({"parameters": {"two words": [0.3]}}, "parameters.two words: got .* a name of letters"),
        ({"depth": 0}, "depth: got 0"),
        ({"depth": 10**9}, "depth: got 1000000000; accepted: a whole number of at most"),
        ({"seed": -1}, "seed: got -1"),
        ({"tolerance": -1.0}, "tolerance: got -1"),
        ({"start": 0.0}, "start: got 0"),
        ({"modes": [3, 4]}, "modes: got .* 'amplitude' does not use it"),
        ({"quantity": "competition"}, "modes: got nothing"),
        ({"quantity": "competition", "modes": (3, 3)}, "modes: got .* two different"),
        ({"quantity": "competition", "modes": (3.0, 4)}, "modes: got .* two different whole"),
    ],
)
def test_what_no_diagram_is_made_of(changes, message):
    with pytest.raises(ArgumentError, match=message):
        PhaseDiagram(**{"make_block": make_block, "parameters": {"gain": [0.3, 0.6]}, **changes})


def test_the_map_is_the_simulation_with_theory_beside_it(tmp_path):
    diagram = PhaseDiagram.load(written(tmp_path, SPEC))
    data = diagram.compute()
    assert data.critical_amplitude.dims == ("gain", "strength")
    for place in np.ndindex(3, 2):
        gain, strength = (float(values[i]) for values, i in zip(diagram.parameters.values(), place, strict=True))
        block = diagram.block(gain, strength)
        wave = standing_wave(block, int(data.critical_wavenumber.values[place]))
        assert float(data.amplitude_theory.values[place]) == pytest.approx(wave.amplitude, nan_ok=True)
        assert data.critical_growth.values[place] == pytest.approx(abs(wave.multiplier))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name.split(".")[0] for path in EXAMPLES])
def test_examples_load_and_draw(path):
    diagram = PhaseDiagram.load(path)
    coarse = {name: values[:: max(1, len(values) // 4)] for name, values in diagram.parameters.items()}
    _, ax = drawn(replace(diagram, parameters=coarse, depth=300))
    assert ax.get_xlabel() == next(iter(coarse))


def test_theory_stands_where_the_block_rests(tmp_path):
    """Where g(0) ≠ 0: growth at 0 is below 1 for gain 0.3, and yet k = 3 grows."""
    diagram = PhaseDiagram.load(written(tmp_path, SHIFTED))
    data, _ = drawn(diagram)
    for place, gain in enumerate(diagram.parameters["gain"]):
        block = diagram.block(gain)
        (rest,) = fixed_points(block)
        growth = dispersion_relation(block, rest.state).growth
        assert data.growth.values[place] == pytest.approx(growth[:9], abs=1e-10)
        assert float(data.critical_growth[place]) == pytest.approx(growth.max(), abs=1e-10)
        assert (data.amplitude[place] > 0.1) == (growth.max() > 1)
        assert dispersion_relation(block).growth.max() < 1 or gain != 0.3
    assert data.critical_growth.attrs["long_name"].endswith("at the homogeneous state that g reaches from 0")
    assert not any(data.excluded.values)


def test_cubic_theory_stands_where_the_block_rests(tmp_path):
    diagram = PhaseDiagram.load(written(tmp_path, SHIFTED.replace('"wavenumber"', '"amplitude"')))
    data, _ = drawn(diagram)
    assert not any(data.excluded.values)
    (rest,) = fixed_points(diagram.block(0.3))
    wave = standing_wave(diagram.block(0.3), 3, state=rest.state)
    assert float(data.amplitude_theory[1]) == pytest.approx(wave.amplitude)
    assert float(data.critical_amplitude[1]) == pytest.approx(0.1714, abs=1e-4)
    pair = PhaseDiagram.load(written(tmp_path, SHIFTED.replace('"wavenumber"', '"competition"\nmodes = [2, 3]')))
    data, _ = drawn(pair)
    assert data.critical_growth.values == pytest.approx(
        [
            dispersion_relation(pair.block(g), fixed_points(pair.block(g))[0].state).growth.max()
            for g in (0.2, 0.3, 0.36)
        ]
    )


def test_a_mean_that_runs_away_has_no_threshold(tmp_path):
    """g(a) = (1 − gain)a + 0.3 with gain 2.5: shown as simulated, not grey, with the reason."""
    text = SHIFTED.replace("[[-0.1]]", "[[0.0]]").replace("[0.2, 0.3, 0.36]", "[0.3, 2.5]")
    for quantity in ("wavenumber", "amplitude"):
        data, _ = drawn(PhaseDiagram.load(written(tmp_path, text.replace("wavenumber", quantity))))
        assert [bool(reason) for reason in data.excluded.values] == [False, True]
        assert "g does not settle" in str(data.excluded.values[1])
        assert np.isnan(data.critical_growth.values[1])
        assert data.critical_wavenumber.values[1] == -1


@pytest.mark.parametrize("quantity", ["amplitude", "speed", "clusters"])
@pytest.mark.parametrize("make", [torus, lambda quantity: other(quantity, PAIR)], ids=["torus", "d = 2"])
def test_maps_beyond_a_scalar_ring(tmp_path, quantity, make):
    data, _ = drawn(PhaseDiagram.load(written(tmp_path, make(quantity))))
    assert all(data.excluded.values.ravel())
    simulated = QUANTITIES[quantity].simulated
    assert data[simulated].dims == ("gain", "strength")
    assert np.isfinite(data[simulated]).all()


def test_wavenumbers_of_two_features(tmp_path):
    data, _ = drawn(PhaseDiagram.load(written(tmp_path, other("wavenumber", PAIR))))
    assert not any(data.excluded.values.ravel())
    assert data.growth.max("k").values == pytest.approx(data.critical_growth.values)


def test_a_separation_of_two_features_is_a_distance(tmp_path):
    diagram = PhaseDiagram.load(written(tmp_path, other("clusters", PAIR)))
    data = diagram.compute()
    sides = (data.cluster_high - data.cluster_low).values / 2
    assert data.separation.values == pytest.approx(np.linalg.norm(sides, axis=-1))


EXCLUDED = {
    "bias_out": ("scale = -0.1", "weight_in = [[1.0]]\nweight_out = [[-0.1]]\nbias_out = [0.2]"),
    "relu": ('"tanh"', '"relu"'),
    "key_bias": ("content = 1.5", "content = 1.5\nkey_bias = [0.2]"),
    "norm": ("[feedforward]", '[attention_norm]\ntype = "RMSNorm"\neps = 1.0\n[feedforward]'),
    "resonance": ("[4, 5]", "[4, 8]"),
}


@pytest.mark.parametrize(
    ("case", "quantity"),
    [(case, name) for case in EXCLUDED for name in QUANTITIES if case != "resonance" or name == "competition"],
)
def test_a_refused_theory_costs_no_simulation(tmp_path, case, quantity):
    old, new = EXCLUDED[case]
    block = SPEC[SPEC.index("n = 16") :]
    text = other(quantity, block).replace(old, new)
    data, _ = drawn(PhaseDiagram.load(written(tmp_path, text)))
    simulated, theory = QUANTITIES[quantity].simulated, QUANTITIES[quantity].theory
    if case == "relu" and quantity in ("amplitude", "speed"):  # no leading mode whose amplitude it could be
        assert np.isfinite(data.amplitude).all()
    else:
        assert np.isfinite(data[simulated]).all()
    if quantity == "competition" and case != "bias_out":
        assert all(data.excluded.values.ravel())
        assert np.isnan(data[theory]).all()
    if quantity != "wavenumber":
        assert np.array_equal(data.excluded != "", np.isnan(data[theory])) or quantity in ("amplitude", "clusters")
    if case == "relu":
        assert all("relu" in reason for reason in data.excluded.values.ravel() if quantity != "clusters")


def test_a_point_without_a_block_costs_no_other(tmp_path):
    text = SPEC.replace('"-gain"', '"0.1/(gain - 0.6)"')
    data, _ = drawn(PhaseDiagram.load(written(tmp_path, text)))
    assert "division by zero" in str(data.excluded.values[-1, 0])
    assert (data.status.values[-1] == STATUS.index("failed")).all()
    assert not any("expression" in reason for reason in data.excluded.values[:-1].ravel())
    assert np.isfinite(data.critical_amplitude.values[:-1]).all()


def test_a_map_that_is_stable_everywhere_is_drawn(tmp_path):
    text = other("wavenumber", SPEC[SPEC.index("n = 16") :]).replace("from = 0.3, to = 0.6", "from = 0.01, to = 0.02")
    data, ax = drawn(PhaseDiagram.load(written(tmp_path, text)))
    assert (data.critical_growth < 1).all()
    assert ax.get_xlabel() == "gain"


def test_regimes_are_read_off_two_seeds():
    R = {
        "collapsed": [[1e-5, 0], [0, 1e-5]],
        "mode 1": [[0.2, 0], [0.2, 0.001]],
        "mode 2": [[0, 0.2], [0, 0.2]],
        "bistable": [[0.2, 0], [0, 0.2]],
        "coexistence": [[0.2, 0.1], [0.2, 0.1]],
        "undecided": [[0.2, 0], [0.2, 0.1]],
    }
    observed = observed_regime(np.array(list(R.values())))
    assert [REGIMES[int(i)] for i in observed] == list(R)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('"amplitude"', '"height"', "quantity"),
        ('"amplitude"', '"competition"', "modes"),
        ('"-gain"', '"-gain + __import__(1)"', "expression"),
        ("gain = {from = 0.3, to = 0.6, points = 3}", "gain = {from = 0.3, to = 0.6}", "parameters.gain"),
        ("gain = {from = 0.3, to = 0.6, points = 3}\nstrength = [1.5, 2.5]", "", "parameters"),
        ("width = 1.0", "width = -1.0", "width"),
        ("depth = 1500", "depth = 0", "depth"),
        ("depth = 1500", "depht = 15", "depht"),
        ('"amplitude"', '"competition"\nmodes = [4, 9]', "modes"),
        ('"amplitude"', '"competition"\nmodes = [4, 4]', "modes"),
        ("gain = {from = 0.3, to = 0.6, points = 3}", "gain = [0.3]", "parameters.gain"),
        ("gain = {", "mean = {from = 0.1, to = 0.2, points = 2}\ngain = {", "parameters"),
    ],
)
def test_refusals_name_the_key(tmp_path, old, new, key):
    assert old in SPEC
    with pytest.raises(ArgumentError, match=key):
        PhaseDiagram.load(written(tmp_path, SPEC.replace(old, new)))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (torus("wavenumber"), "quantity"),
        (torus("competition"), "quantity"),
        (other("competition", PAIR), "quantity"),
        (SHIFTED.replace("gain = [", "growth = [").replace("-gain", "-growth"), "parameters.growth"),
        (SHIFTED.replace("gain = [", "mean = [").replace("-gain", "-mean"), "parameters.mean"),
    ],
)
def test_what_a_quantity_cannot_show_is_refused_before_the_sweep(tmp_path, text, key):
    with pytest.raises(ArgumentError) as refused:
        PhaseDiagram.load(written(tmp_path, text))
    assert refused.value.argument == f"map.toml: {key}"
    assert "\n" not in str(refused.value)


def test_the_command_writes_the_map(tmp_path):
    done = command(written(tmp_path, SPEC), "--out", tmp_path / "maps")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "maps").iterdir()} == {"map.nc", "map.pdf", "map.png"}
    with xr.open_dataset(tmp_path / "maps" / "map.nc") as data:
        assert data.sizes["gain"] == 3
        assert json.loads(json.dumps(data.attrs["depth"], default=int)) == 1500


def test_the_command_refuses_in_one_line(tmp_path):
    for arguments in (["nowhere.toml"], [written(tmp_path, "quantity = 3")]):
        done = command(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("tokenwaves: error: ")
        assert done.stderr.count("\n") == 1
