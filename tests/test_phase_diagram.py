"""Phase diagrams: specifications, their maps, and the command line."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from amplitude import REGIMES, standing_wave
from dispersion import ArgumentError
from figures.diagram.maps import observed_regime
from figures.diagram.spec import load_diagram

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


def written(folder, text):
    path = folder / "map.toml"
    path.write_text(text)
    return path


def command(*arguments):
    program = [sys.executable, "-m", "tokenwaves", "phase-diagram", *map(str, arguments)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True)


def test_arithmetic_in_a_specification(tmp_path):
    diagram = load_diagram(written(tmp_path, SPEC.replace('"-gain"', '"-gain*(1 + strength/2)**2"')))
    assert list(diagram.grid) == ["gain", "strength"]
    assert diagram.block(0.3, 2.0).heads[0].value == pytest.approx(-0.3 * 4)
    assert diagram.block(0.3, 2.0).heads[0].kernel.logits.max() == pytest.approx(2.0, rel=1e-6)


def test_the_map_is_the_simulation_with_theory_beside_it(tmp_path):
    diagram = load_diagram(written(tmp_path, SPEC))
    data = diagram.compute()
    assert data.critical_amplitude.dims == ("gain", "strength")
    for place in np.ndindex(3, 2):
        gain, strength = (float(values[i]) for values, i in zip(diagram.grid.values(), place, strict=True))
        block = diagram.block(gain, strength)
        wave = standing_wave(block, int(data.critical_wavenumber.values[place]))
        assert float(data.amplitude_theory.values[place]) == pytest.approx(wave.amplitude, nan_ok=True)
        assert data.critical_modulus.values[place] == pytest.approx(abs(wave.multiplier))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name.split(".")[0] for path in EXAMPLES])
def test_examples_load_and_draw(path):
    from matplotlib.figure import Figure

    diagram = load_diagram(path)
    coarse = {name: values[:: max(1, len(values) // 4)] for name, values in diagram.grid.items()}
    small = type(diagram)(diagram.path, diagram.quantity, coarse, diagram.document, diagram.settings, diagram.modes)
    ax = Figure().subplots()
    small.draw(small.compute(depth=300), ax)
    assert ax.get_xlabel() == next(iter(coarse))


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
    ],
)
def test_refusals_name_the_key(tmp_path, old, new, key):
    assert old in SPEC
    with pytest.raises(ArgumentError, match=key):
        load_diagram(written(tmp_path, SPEC.replace(old, new)))


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
