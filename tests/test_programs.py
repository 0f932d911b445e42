"""Programs from strangers: no code of theirs runs unless trusted, and a note that is wrong is one line."""

import base64
import io
import json
import pickle
import zipfile
from contextlib import suppress

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tokenwaves  # noqa: E402
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel  # noqa: E402
from models import export, load_program, measure, save_program, to_torch  # noqa: E402
from models.check import check as find  # noqa: E402
from models.device import usable  # noqa: E402
from models.families import load_network  # noqa: E402
from models.program import NOTE  # noqa: E402

BLOCK = Block(
    [Head(Kernel.table([0.0, 1.0, 0.3, 0.2, 0.0]), [[-0.4, 0.1], [0.0, 0.3]])], FeedForward.elementwise("tanh", 2)
)


class Marker:
    """Pickled, it touches a file wherever it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def rewrite(path, changed, compressed=()):
    """Write the archive `path` anew with the members `changed`; None takes one away."""
    content = {**members(path), **changed}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            if data is not None:
                kind = zipfile.ZIP_DEFLATED if name in compressed else zipfile.ZIP_STORED
                archive.writestr(name, data, compress_type=kind)


def noted(path, **changed):
    """Write the archive `path` anew with a note that has these entries; None takes one away."""
    name = next(name for name in members(path) if name.endswith(NOTE))
    entries = {**json.loads(members(path)[name]), **changed}
    rewrite(path, {name: json.dumps({key: value for key, value in entries.items() if value is not None})})


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "net.pt2"
    save_program(to_torch(BLOCK), path)
    return path.read_bytes()


@pytest.fixture
def program(tmp_path, saved):
    path = tmp_path / "net.pt2"
    path.write_bytes(saved)
    return path


def check(*arguments):
    return tokenwaves.main(["check", *map(str, arguments)])


def pickled(thing):
    """What torch.save makes of `thing`."""
    content = io.BytesIO()
    torch.save(thing, content)
    return content.getvalue()


def with_sample_inputs(path, marker):
    rewrite(path, {"archive/data/sample_inputs/model.pt": pickled(((Marker(marker),), {}))})


def with_pickled_weights(path, marker):
    name = "archive/data/weights/model_weights_config.json"
    config = json.loads(members(path)[name])
    for entry in config["config"].values():
        entry["use_pickle"] = True
    weights = {
        name: pickled(Marker(marker)) for name in members(path) if name.startswith("archive/data/weights/weight_")
    }
    rewrite(path, {name: json.dumps(config), **weights})


def with_expressions(path, marker):
    text = members(path)["archive/models/model.json"].decode()
    code = f"open({str(marker)!r}, 'w')".replace("'", "\\u0027").replace('"', "\\u0022")
    rewrite(path, {"archive/models/model.json": text.replace('"expr_str": "', f'"expr_str": "{code} or ')})


def with_other_members(path, marker):
    content = pickle.dumps(Marker(marker))
    names = (
        "../marker",
        "/etc/tokenwaves-marker",
        "archive/extra/more.pkl",
        "archive/data.pkl",
        "archive/extra/block.npz",
    )
    rewrite(path, dict.fromkeys(names, content))


ATTACKS = [with_sample_inputs, with_pickled_weights, with_expressions, with_other_members]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_code_of_a_program_runs(attack, program, tmp_path, capsys):
    marker = tmp_path / "marker"
    attack(program, marker)
    assert check(program, "--state", "0.1,0.2", "--json") == 0  # the block in it is all that is read
    assert json.loads(capsys.readouterr().out)["kind"] == "block of a program"
    noted(program, toml="", npz="")
    assert check(program, "--state", "0.1,0.2") == 2
    assert "--trust" in capsys.readouterr().err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net.pt2"]


@pytest.mark.parametrize("attack", ATTACKS[:3])
def test_code_of_a_trusted_program_runs(attack, program, tmp_path):
    """The attacks are some: what is said of trust is so."""
    marker = tmp_path / "marker"
    attack(program, marker)
    with suppress(ArgumentError):
        load_program(program, trust=True)
    assert marker.exists()


def test_a_program_of_no_block_is_trusted_or_refused(tmp_path, capsys):
    layer, path = torch.nn.Linear(2, 2).double(), tmp_path / "net.pt2"
    save_program(layer, path, 5, 2)
    with pytest.raises(ArgumentError, match=r"path: got '.*net\.pt2', which holds no block; accepted: .*trust=True"):
        load_program(path)
    x = torch.ones(3, 5, 2, dtype=torch.float64)
    assert torch.equal(load_program(path, trust=True)(x), layer(x))
    assert check(path) == 2
    error = capsys.readouterr().err
    assert error.startswith("tokenwaves: error: model: got ")
    assert "--trust" in error
    assert error.count("\n") == 1
    assert check(path, "--trust", "--json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "program"


@pytest.mark.parametrize("boundary", ["periodic", "open", "causal"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_block_in_a_program_computes_what_the_program_does(boundary, dtype, tmp_path):
    net = to_torch(BLOCK, boundary, 5 if boundary == "periodic" else 3, dtype)
    save_program(net, tmp_path / "net.pt2")
    ours, theirs = load_program(tmp_path / "net.pt2"), load_program(tmp_path / "net.pt2", trust=True)
    assert (ours.shape, ours.d, ours.boundary, ours.dtype) == (theirs.shape, theirs.d, theirs.boundary, theirs.dtype)
    x = torch.tensor(np.random.default_rng(0).normal(size=(4, net.n, 2)), dtype=dtype)
    assert torch.allclose(ours(x), theirs(x), rtol=1e-6 if dtype == torch.float32 else 1e-13)
    assert torch.equal(ours(x), net(x))


def test_large_arrays_come_back_bit_for_bit(tmp_path):
    value = np.random.default_rng(1).normal(size=(20, 20))
    save_program(to_torch(Block([Head(Kernel.alibi(8, 0.5), value)])), tmp_path / "net.pt2")
    again = export(load_program(tmp_path / "net.pt2"))
    np.testing.assert_array_equal(again.heads[0].value, value)
    assert torch.export.load(tmp_path / "net.pt2").module() is not None


class Lying(torch.nn.Module):
    """Says that it is a block, and computes something else."""

    shape, d = (5,), 2

    def to_block(self):
        return BLOCK

    def forward(self, x):
        return 2 * x


def test_a_module_that_computes_something_else_than_its_block_is_saved_without_it(tmp_path):
    save_program(Lying(), tmp_path / "net.pt2")
    with pytest.raises(ArgumentError, match="no block"):
        load_program(tmp_path / "net.pt2")
    assert load_program(tmp_path / "net.pt2", trust=True).d == 2


class Failing(Lying):
    """Says that it is a block, and computes nothing."""

    def forward(self, x):
        raise OSError("no\nthing")


def test_a_module_that_fails_is_one_line(tmp_path):
    with pytest.raises(ArgumentError, match="module: got OSError: no thing"):
        save_program(Failing(), tmp_path / "net.pt2")


BOMB = base64.b64encode(b"PK\x05\x06" + 18 * b"\0").decode()


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"dtype": None}, NOTE),
        ({"dtype": "float7"}, "dtype"),
        ({"dtype": ["float64"]}, "dtype"),
        ({"shape": ["a"]}, "shape"),
        ({"shape": 5}, "shape"),
        ({"shape": []}, "shape"),
        ({"shape": [True]}, "shape"),
        ({"d": 1.5}, "d: got"),
        ({"d": -1}, "d: got"),
        ({"boundary": "odd"}, "boundary"),
        ({"boundary": {}}, "boundary"),
        ({"toml": 3}, "toml"),
        ({"more": 3}, NOTE),
    ],
)
def test_a_malformed_note_is_one_line(changed, words, trust, program, capsys):
    noted(program, **changed)
    with pytest.raises(ArgumentError, match=words):
        load_program(program, trust=trust)
    assert check(program, *["--trust"] * trust) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": [3]},
        {"shape": [10**30]},
        {"shape": [2**40], "boundary": "open"},
        {"shape": [5, 1]},
        {"d": 3},
        {"boundary": "open", "shape": [10**5]},
        {"toml": "x = ["},
        {"toml": "[" * 4000},
        {"toml": '[block]\nn = 3\n[[head]]\nkernel = {type = "uniform"}\nvalue = {npz = "a"}'},
        {"npz": "!"},
        {"toml": '[block]\nn = 3\n[[head]]\nkernel = {type = "uniform"}\nvalue = {npz = "a"}', "npz": BOMB},
    ],
)
def test_a_block_that_does_not_fit_is_one_line(changed, program, capsys):
    noted(program, **changed)
    assert check(program) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("note", [b"", b"[]", b"3", b"{", b"\xff", b"[" * 10**5, b'{"a":' * 10**4, b"null"])
def test_a_note_that_is_none_is_one_line(note, program, capsys):
    rewrite(program, {f"archive/extra/{NOTE}": note})
    assert check(program) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_note_is_neither_compressed_nor_there_twice(program, capsys):
    rewrite(program, {f"archive/extra/{NOTE}": b" " * 10**7}, compressed=[f"archive/extra/{NOTE}"])
    assert program.stat().st_size < 10**6
    assert check(program) == 2
    rewrite(program, {f"archive/extra/{NOTE}": b"{}", f"other/extra/{NOTE}": b"{}"})
    assert check(program) == 2
    rewrite(program, {f"archive/extra/{NOTE}": None, f"other/extra/{NOTE}": None})
    assert check(program) == 2
    assert capsys.readouterr().err.count("\n") == 3


@pytest.mark.parametrize(
    "device",
    ["meta", "abacus", "", "cuda:99", "cpu:x", "mps", "xpu", "vulkan", "fpga", "xla", "lazy", "privateuseone", "\n"],
)
def test_devices_that_cannot_compute_are_one_line(device, program, capsys):
    assert check(program, "--device", device) == 2
    error = capsys.readouterr().err
    assert error.startswith("tokenwaves: error: --device: got")
    assert error.count("\n") == 1
    with pytest.raises(ArgumentError, match="^device"):
        load_program(program, device or "none")


def test_devices_from_python():
    net, layer = to_torch(BLOCK), lambda x: 2 * x
    for call in (
        lambda: to_torch(BLOCK, device="abacus"),
        lambda: to_torch(BLOCK, device="meta"),
        lambda: measure(net, np.zeros(2), 5, device="meta"),
        lambda: find([layer], np.zeros(2), 5, device="cuda:99"),
    ):
        with pytest.raises(ArgumentError, match="^device: got"):
            call()


@pytest.mark.parametrize("path", [None, 3, b"net.pt2", "a\0.pt2", "\ud800.pt2"])
def test_names_that_no_file_has(path):
    for call in (
        load_program,
        lambda path: save_program(to_torch(BLOCK), path),
        lambda path: load_network(path, "bert"),
    ):
        with pytest.raises(ArgumentError, match="path: got"):
            call(path)


def test_trust_is_true_or_false(program):
    with pytest.raises(ArgumentError, match="trust: got 'False'"):
        load_program(program, trust="False")


def test_attention_beyond_the_memory_is_refused(tmp_path, capsys):
    text = '[block]\nn = 1000000\n[[head]]\nkernel = {type = "uniform"}\nvalue = 1\n'
    (tmp_path / "block.toml").write_text(text)
    assert check(tmp_path / "block.toml") == 2
    error = capsys.readouterr().err
    assert "bytes" in error
    assert error.count("\n") == 1


def test_the_cpu_is_a_device():
    assert usable(None).type == usable("cpu").type == usable("cpu:0").type == "cpu"


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('a\\nb')",
        "def f(:",
        "import sys\nsys.exit()",
        "import sys\nsys.exit(0)",
        "raise SystemExit('bye')",
        "1/0",
        "def f(x):\n    import sys\n    sys.exit()",
        "def f(x): raise RuntimeError('no\\nno')",
        "class F:\n    def __getattr__(self, name): raise OSError('no')\nf = F()",
        "def __getattr__(name): raise OSError('no')",
        "raise Exception",
        "raise BaseException('no')",
        "raise GeneratorExit",
        "def f(x): raise BaseException('no')",
        "import no_such_module",
        "f = property()",
        "\0",
        "x = '\\ud800'\nraise ValueError(x)",
        "def f(x): return x.tolist()",
    ],
)
def test_a_module_that_cannot_be_used_is_one_line(text, tmp_path, monkeypatch, capsys):
    (tmp_path / "strange_network.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "strange_network", raising=False)
    assert check("strange_network:f", "--state", "1") == 2
    error = capsys.readouterr().err
    assert error.startswith("tokenwaves: error: ")
    assert error.count("\n") == 1
