"""Files that anyone may have written, damaged and twisted at random: used, or refused in one line, and soon."""

import io
import json
import time
import tomllib
import warnings
import zipfile

import numpy as np
import pytest
from fuzzing import budget, fuzz
from hypothesis import strategies as st

import tokenwaves
from dispersion import Block, FeedForward, Head, Kernel, LayerNorm, Rotary

LONGEST = 10.0
"""Seconds of work that a command may take."""
NUMBERS = st.integers(-3, 9) | st.sampled_from([2**31, 2**63, 10**400]) | st.floats()
TEXT = st.text(max_size=4) | st.sampled_from(["float64", "causal", "gelu", "\n", "9" * 30, "a.b", "\x1b["])
LEAVES = st.none() | st.booleans() | NUMBERS | TEXT
VALUES = st.recursive(
    LEAVES, lambda few: st.lists(few, max_size=3) | st.dictionaries(TEXT, few, max_size=2), max_leaves=4
)


@st.composite
def damaged(draw, content):
    """`content` (bytes) with a few bytes changed, cut out, doubled or put in."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.sampled_from([1, 2, 8, 64, len(content)])))
        part = content[start:stop]
        kinds = [draw(st.binary(max_size=4)), bytes(len(part)), b"\xff" * len(part), b"", 2 * part]
        content[start:stop] = draw(st.sampled_from(kinds))
    return bytes(content)


@st.composite
def twisted(draw, value):
    """`value`, of JSON, with a few of its entries changed, taken out, renamed or put in."""
    if draw(st.integers(0, 5)) == 0:
        return draw(VALUES)
    if isinstance(value, dict) and value:
        name = draw(st.sampled_from(sorted(value)))
        rest = {key: entry for key, entry in value.items() if key != name}
        kind = draw(st.integers(0, 7))
        if kind == 0:
            return rest
        if kind == 1:
            return rest | {draw(TEXT): value[name]}
        return value | {name: draw(twisted(value[name]))}
    if isinstance(value, list) and value:
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(twisted(value[index])), *value[index + 1 :]][
            : draw(st.integers(1, len(value) + 3))
        ]
    return draw(VALUES)


def repacked(content, changed):
    """The zip file `content` with the members `changed`, (name, bytes or None) pairs, its checksums right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in (members | dict(changed)).items():
            if data is not None:
                archive.writestr(name, data)
    return made.getvalue()


@st.composite
def members_damaged(draw, content):
    """The zip file `content` with some of its members damaged, missing or more than there were."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = draw(st.sampled_from(sorted(members)))
    data = draw(st.none() | damaged(members[name]) | st.binary(max_size=20))
    return repacked(content, [(draw(st.just(name) | st.sampled_from(["../x", "more", name + ".npy"])), data)])


def assert_used_or_one_line(capsys, *arguments):
    """`tokenwaves` with these arguments ends well, or says in one line what is wrong, without a warning before it."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        status = tokenwaves.main([str(argument) for argument in arguments])
    took = time.process_time() - start
    printed = capsys.readouterr()
    assert took < LONGEST
    if status == 0:
        assert printed.err == ""
    else:
        assert (status, printed.out, printed.err.count("\n"), [str(one.message) for one in warned]) == (2, "", 1, [])
        assert printed.err.startswith("tokenwaves: error: ")
        assert printed.err[:-1].isprintable()
        assert len(printed.err) < 2000


def block():
    """One with every kind of table."""
    kernel = Kernel.table([0.0, 1.0, 0.5, -np.inf])
    heads = [
        Head(kernel, [[-0.4, 0.1], [0.0, 0.3]], [[1.0, 0.0], [0.2, 0.5]], gate=0.5, bias=np.zeros((4, 4))),
        Head(kernel, np.eye(2), rotary=Rotary(np.eye(2), np.eye(2), [np.pi / 2])),
    ]
    norm = LayerNorm([1.0, 2.0], eps=0.1)
    return Block(heads, FeedForward([[1.0, 0.5]], [[0.1], [0.2]], "gelu", [0.1]), 0.5, norm, attention_bias=[0.1, 0.0])


def write_all(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """The files of a block whose arrays all lie in the npz file."""
    monkeypatch.setattr("dispersion.block.files.LARGE", 0)
    block().save(tmp_path / "block.toml")
    return {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}


HAND = b"""[block]
n = 4
[[head]]
kernel = [{type = "alibi", slope = 0.5, weight = 2}, {type = "von_mises", wavenumber = 1, strength = 1.0}]
value = [[1.0, 0.2], [0.1, -1e-1]]
content = 1.5
key_bias = [0.1, 0.2]
[feedforward]
activation = "polynomial"
coefficients = [1, 0, -1]
scale = -0.1
[attention_norm]
type = "RMSNorm"
gain = [1, 1]
"""


def as_toml(value):
    """`value`, of JSON, as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {as_toml(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return '"none"' if value is None else str(value) if isinstance(value, float) else json.dumps(value)


def tables(document):
    return "\n".join(f"{json.dumps(name)} = {as_toml(value)}" for name, value in document.items()).encode()


@budget(20, 2500)
def test_block_files(examples, tmp_path, capsys):
    document = tomllib.loads(HAND.decode())

    def prop(content):
        (tmp_path / "block.toml").write_bytes(content)
        assert_used_or_one_line(capsys, "dispersion", tmp_path / "block.toml")

    fuzz(prop, examples, damaged(HAND) | twisted(document).filter(lambda made: isinstance(made, dict)).map(tables))


@budget(20, 2500)
def test_arrays_of_blocks(examples, tmp_path, saved, capsys):
    def prop(content):
        write_all(tmp_path, saved | {"block.npz": content})
        assert_used_or_one_line(capsys, "dispersion", tmp_path / "block.toml")

    content = saved["block.npz"]
    with np.load(io.BytesIO(content)) as stored:
        names = stored.files

    def other(name, array):
        member = io.BytesIO()
        np.save(member, array, allow_pickle=True)
        return repacked(content, [(f"{name}.npy", member.getvalue())])

    dtypes = st.sampled_from(["f2", "f4", "f8", "i1", "u8", "c16", "?", "U3", "M8[s]", "O", ">f8"])
    arrays = st.tuples(st.lists(st.integers(0, 4), max_size=3), dtypes).map(lambda pair: np.zeros(pair[0], pair[1]))
    fuzz(prop, examples, damaged(content) | members_damaged(content) | st.builds(other, st.sampled_from(names), arrays))


def small_checkpoint(family):
    pytest.importorskip("torch")
    from checkpoints import small

    return small(family)


def torch_saved(tensors):
    torch = pytest.importorskip("torch")
    content = io.BytesIO()
    torch.save(tensors, content)
    return content.getvalue()


def assert_checkpoint(capsys, folder, family, config, suffix, content):
    path = folder / f"model{suffix}"
    path.write_bytes(content)
    (folder / "config.json").write_bytes(config)
    assert_used_or_one_line(capsys, "check", path, "--family", family, "--tokens", 3)


ALL = ("bert", "albert", "gpt2", "rotary", "encoder", "vit")


@budget(20, 2000)
def test_settings(examples, tmp_path, capsys):
    made = {family: small_checkpoint(family) for family in ALL}
    contents = {family: torch_saved(tensors) for family, (tensors, _) in made.items()}

    def prop(data):
        family = data.draw(st.sampled_from(ALL))
        config = made[family][1]
        text = data.draw(
            twisted(config).map(lambda value: json.dumps(value).encode()) | damaged(json.dumps(config).encode())
        )
        assert_checkpoint(capsys, tmp_path, family, text, ".pt", contents[family])

    fuzz(prop, examples, st.data())


@budget(20, 2000)
def test_tensors(examples, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    made = {family: small_checkpoint(family) for family in ALL}
    dtypes = [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2]
    changes = [
        lambda tensor: tensor.T if tensor.ndim == 2 else tensor[None],
        lambda tensor: tensor[:1],
        lambda tensor: tensor[:0],
        lambda tensor: torch.cat([tensor, tensor]),
        lambda tensor: tensor.to_sparse(),
        lambda tensor: tensor.to("meta"),
        lambda tensor: tensor.flatten()[0].expand(tensor.shape),
        lambda tensor: tensor * torch.tensor(torch.nan),
        lambda tensor: tensor.double() * 1e30,
        lambda tensor: tensor.double() * 1e-300,
        lambda tensor: tensor * 0,
        lambda tensor: tensor.tolist(),
        lambda tensor: None,
        *(lambda tensor, dtype=dtype: tensor.to(dtype) for dtype in dtypes),
    ]

    def prop(data):
        family = data.draw(st.sampled_from(ALL))
        tensors, config = made[family]
        tensors = dict(tensors)
        for name in data.draw(st.lists(st.sampled_from(sorted(tensors)), min_size=1, max_size=3, unique=True)):
            kind = data.draw(st.integers(-2, len(changes) - 1))
            tensor = tensors[name] if kind == -1 else tensors.pop(name)
            if kind < 0:
                tensors[data.draw(TEXT | st.just(name.replace("0", "1")) | TEXT.map(lambda text: name + text))] = tensor  # noqa: B023
            else:
                tensors[name] = changes[kind](tensor)
        assert_checkpoint(capsys, tmp_path, family, json.dumps(config).encode(), ".pt", torch_saved(tensors))

    fuzz(prop, examples, st.data())


@budget(20, 2000)
def test_pickled_checkpoints(examples, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    tensors, config = small_checkpoint("encoder")
    content, old = torch_saved(tensors), io.BytesIO()
    torch.save(tensors, old, _use_new_zipfile_serialization=False)

    def prop(content):
        assert_checkpoint(capsys, tmp_path, "encoder", json.dumps(config).encode(), ".pt", content)

    fuzz(prop, examples, damaged(content) | members_damaged(content) | damaged(old.getvalue()))


@budget(20, 2000)
def test_safetensors(examples, tmp_path, capsys):
    tensors, config = small_checkpoint("encoder")
    content = pytest.importorskip("safetensors.torch").save(tensors)
    length = 8 + int.from_bytes(content[:8], "little")

    def with_header(header):
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[length:]

    def prop(content):
        assert_checkpoint(capsys, tmp_path, "encoder", json.dumps(config).encode(), ".safetensors", content)

    fuzz(prop, examples, damaged(content) | twisted(json.loads(content[8:length])).map(with_header))


@budget(20, 2000)
def test_programs(examples, tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    from models import save_program, to_torch
    from models.program import NOTE

    monkeypatch.setattr("dispersion.block.files.LARGE", 8)
    path = tmp_path / "net.pt2"
    save_program(to_torch(Block([Head(Kernel.alibi(4, 0.5), 0.3 * np.eye(2), bias=np.zeros((4, 4)))])), path)
    content, name = path.read_bytes(), f"archive/extra/{NOTE}"
    with zipfile.ZipFile(path) as archive:
        note = json.loads(archive.read(name))

    def prop(content):
        path.write_bytes(content)
        assert_used_or_one_line(capsys, "check", path)

    notes = twisted(note).map(lambda value: repacked(content, [(name, json.dumps(value).encode())]))
    texts = damaged(note["toml"].encode()).map(lambda text: text.decode(errors="replace"))
    blocks = texts.map(lambda text: repacked(content, [(name, json.dumps(note | {"toml": text}).encode())]))
    fuzz(prop, examples, damaged(content) | members_damaged(content) | notes | blocks)
