"""docs/architecture.md is so: rooms and files are there, and each thing it says how to add is added once."""

import ast
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from test_arrows import ALLOWED, imported

import figures
import tokenwaves
from dispersion import (
    ArgumentError,
    Block,
    ExclusionError,
    FeedForward,
    Head,
    Kernel,
    Normalisation,
    dispersion_relation,
)
from simulate import iterate, plan, sweep
from simulate.engines import choice
from simulate.engines.engine import Engine
from simulate.engines.states import OneMap

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


# The page


def test_every_room_is_on_the_page():
    named = set(re.findall(r"^\| `([\w/]+)` \|", PAGE, re.MULTILINE)) | {"amplitude", "amplitude/symbolic"}
    rooms = {
        path.parent.relative_to(ROOT).as_posix() for name in ALLOWED for path in (ROOT / name).rglob("__init__.py")
    }
    assert named == {room for room in rooms if not re.fullmatch(r"figures/fig\d+", room)}


def test_every_file_and_test_of_the_page_is_there():
    named = re.findall(rf"`((?:{'|'.join(ALLOWED)}|tests)/[\w/.]+)(?:::(\w+))?`", PAGE)
    assert len(named) > 20
    for file, test in named:
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_the_ground_floor_of_long_work_knows_nothing_above_it():
    for path in (ROOT / "simulate" / "runs").glob("*.py"):
        assert imported(path) & set(ALLOWED) <= {"dispersion", "simulate"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simulate"):
                assert node.module.startswith("simulate.runs"), path


@pytest.mark.parametrize("package", [name for name in ALLOWED if name != "tokenwaves"])
def test_options_are_known_to_the_command_line_alone(package):
    for path in (ROOT / package).rglob("*.py"):
        found = re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text(encoding="utf-8"))
        assert not found, (path, found)


# A normalisation


class Squash(Normalisation):
    """z = x/√(1 + x²)."""

    def _standard(self, x):
        return x / np.sqrt(1 + x**2)

    def _derivative(self, x):
        return (1 + x**2)[..., None] ** -1.5 * np.eye(self.d)


def block_with(norm):
    head = Head(Kernel.gaussian_lobes(8, 3, 1.0, 2.0), [[-0.4, 0.1], [0.0, -0.3]], 0.5 * np.eye(2))
    return Block([head], FeedForward.elementwise("tanh", 2, -0.1), 1.0, norm, norm)


def test_a_new_normalisation(tmp_path, monkeypatch):
    from amplitude import normal_form
    from dispersion.block import toml_reader
    from dispersion.symbolic import SymbolicBlock

    block, still = block_with(Squash([1.0, 2.0], [0.1, 0.0])), block_with(Squash([1.0, 2.0]))
    state, step, q, u = np.array([0.2, -0.1]), 1e-6, 2 * np.pi * 3 / 8, np.array([1.0, 0.5])
    relation = dispersion_relation(block, state)
    at, carrier = np.tile(state, (8, 1)), np.exp(1j * q * np.arange(8))[:, None]
    wave = step * (carrier * u).real
    change = (block.forward(at + wave) - block.forward(at - wave)) / (2 * step)
    np.testing.assert_allclose(change, (carrier * (relation(q) @ u)).real, atol=1e-8)
    path = iterate(block, depth=20, start=0.1)
    np.testing.assert_allclose(path.state, block.forward(path.previous), rtol=1e-12)

    monkeypatch.setitem(toml_reader.NORMS, "Squash", Squash)
    block.save(tmp_path / "block.toml")
    read = Block.load(tmp_path / "block.toml")
    assert type(read.attention_norm) is Squash
    np.testing.assert_array_equal(read.forward(at), block.forward(at))

    with pytest.raises(ExclusionError, match="norm: got Squash"):
        SymbolicBlock.of(block)
    with pytest.raises(ExclusionError, match="norm: got Squash"):
        normal_form(still, [dispersion_relation(still).leading()])
    if find_spec("torch"):
        from models import to_torch

        with pytest.raises(ArgumentError, match="got Squash"):
            to_torch(block)


# A figure


FIGURE = '''
"""A line."""

import numpy as np
import xarray as xr

from figures.report import Claim
from figures.style import BLUE, ONE_COLUMN

NAME, TITLE = "fig0", "A line"
MOSAIC, SIZE = [["a"]], (ONE_COLUMN, 2)


def compute(quick=False, progress=False):
    return xr.Dataset({"y": ("x", np.arange(3.0))}, {"x": [0, 1, 2]}, {"seed": 0})


def draw(data, axes):
    axes["a"].plot(data.x, data.y, color=BLUE)


def claims(data):
    return [Claim("fig0.end", "it ends at 2", 2.0, float(data.y[-1]), bool(data.y[-1] == 2))]
'''


def test_a_new_figure(tmp_path, monkeypatch, capsys):
    (tmp_path / "fig0.py").write_text(FIGURE)
    monkeypatch.setattr(figures, "__path__", [*figures.__path__, str(tmp_path)])
    monkeypatch.setattr(figures, "NAMES", (*figures.NAMES, "fig0"))
    assert tokenwaves.main(["figures", "fig0", "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("fig0: 1 of 1 claims met")
    assert {path.name for path in (tmp_path / "out").glob("fig0.*")} == {"fig0.pdf", "fig0.png", "fig0.nc"}
    (row,) = json.loads((tmp_path / "out" / "report.json").read_text())["claims"]
    assert (row["id"], row["met"]) == ("fig0.end", True)
    monkeypatch.delitem(sys.modules, "figures.fig0")


# A command


COMMAND = '''
"""`tokenwaves count`."""


def add(commands):
    parser = commands.add_parser("count", help="the tokens of a kernel", epilog="example: tokenwaves count --tokens 8")
    parser.add_argument("--tokens", dest="n", type=int, default=8)
    return parser


def run(options):
    from dispersion import Kernel

    print(Kernel.uniform(options.n).n)
    return 0
'''


def test_a_new_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "count.py").write_text(COMMAND)
    monkeypatch.setattr(tokenwaves, "__path__", [*tokenwaves.__path__, str(tmp_path)])
    monkeypatch.setattr(tokenwaves, "VERBS", (*tokenwaves.VERBS, "count"))
    assert tokenwaves.main(["count", "--tokens", "5"]) == 0
    assert capsys.readouterr().out == "5\n"
    assert tokenwaves.main(["count", "--tokens", "-1"]) == 2
    assert capsys.readouterr().err.startswith("tokenwaves: error: --tokens: got -1")
    with pytest.raises(SystemExit):
        tokenwaves.main(["--help"])
    assert "the tokens of a kernel" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "tokenwaves.count")


# An engine


class Plain(Engine):
    """Two features, by the block itself."""

    name = "plain"

    def fits(self, model):
        return isinstance(model, Block) and model.d == 2

    def system(self, models):
        return OneMap(models[0].forward)

    def operations(self, model):
        return 4.0 * model.n**2

    def bytes(self, model, points):
        return 64.0 * points * model.n**2


def test_a_new_engine(monkeypatch):
    expected = iterate(block_with(None), depth=40, start=0.1)
    engines = (Plain(), *choice.ENGINES)
    for module in (choice, plan):
        monkeypatch.setattr(module, "ENGINES", engines)
    path = iterate(block_with(None), depth=40, start=0.1)
    assert (expected.engine, path.engine) == ("blas", "plain")
    np.testing.assert_allclose(path.state, expected.state, rtol=1e-12)
    data = sweep(lambda gain: block_with(None), {"gain": [1.0, 2.0]}, depth=40, start=0.1)
    assert list(data.engine.values) == [0, 0]


# An adapter


def test_a_new_adapter(tmp_path, monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    from dispersion import LayerNorm
    from models.adapters import Layer, Network, family, registry

    monkeypatch.setattr(registry, "_REGISTERED", dict(registry.families()))

    @family("single", "one layer", route="ring", anchor="q", within=".", model_types=("single",))
    def single(weights, settings):
        d = weights.take("q", None, None).shape[1]
        maps = {name: weights.take(name[0], d, d) for name in ("query", "key", "value", "out", "weight_in")}
        norms = {"attention_norm": LayerNorm(np.ones(d)), "feedforward_norm": LayerNorm(np.ones(d))}
        layer = Layer(1, **maps, **norms, placement="pre", weight_out=maps["weight_in"].T, activation="tanh")
        return Network(weights.family, (layer,))

    rng = np.random.default_rng(0)
    torch.save({name: torch.tensor(0.3 * rng.standard_normal((4, 4))) for name in "qkvow"}, tmp_path / "model.pt")
    state = ["--state", "0.3,-0.1,0.2,0.5", "--config", str(tmp_path / "config.json")]
    (tmp_path / "config.json").write_text('{"model_type": "single"}')
    assert tokenwaves.main(["check", str(tmp_path / "model.pt"), "--family", "single", *state, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["d"], found["confirmed"]) == ("single", 4, True)
    (tmp_path / "config.json").write_text('{"model_type": "single", "window": 3}')
    assert tokenwaves.main(["check", str(tmp_path / "model.pt"), "--family", "single", *state]) == 2
    assert "window = 3, which single does not know" in capsys.readouterr().err
