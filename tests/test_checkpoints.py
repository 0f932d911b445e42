"""Checkpoints and settings from strangers: no code of theirs runs, and what cannot be used is one line."""

import io
import json
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from checkpoints import FAMILIES, small  # noqa: E402

import tokenwaves  # noqa: E402
from dispersion import ArgumentError  # noqa: E402
from models.families import load_network, network_from  # noqa: E402


class Marker:
    """Pickled, it touches a file wherever it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def check(*arguments):
    return tokenwaves.main(["check", *map(str, arguments)])


def assert_one_line(capsys, *parts):
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith("tokenwaves: error: ")
    assert all(part in printed.err for part in parts), printed.err


@pytest.fixture
def encoder(tmp_path):
    """A folder with the settings of an encoder, and the path of the checkpoint that is to come."""
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["encoder"][1]))
    return tmp_path / "model.pt"


@pytest.mark.parametrize("family", FAMILIES)
def test_small_checkpoints_are_right_as_they_are(family, tmp_path, capsys):
    tensors, config = small(family)
    torch.save(tensors, tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert check(tmp_path / "model.pt", "--family", family, "--tokens", 4, "--json") == 0
    assert json.loads(capsys.readouterr().out)["confirmed"]


def legacy(thing, path):
    torch.save(thing, path, _use_new_zipfile_serialization=False)


def tar(thing, path):
    content = pickle.dumps(thing)
    with tarfile.open(path, "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def bare(thing, path):
    path.write_bytes(pickle.dumps(thing))


@pytest.mark.parametrize("write", [torch.save, legacy, tar, bare])
@pytest.mark.parametrize("suffix", [".pt", ".bin", ".pth", ".safetensors", ".ckpt"])
def test_no_code_of_a_checkpoint_runs(write, suffix, encoder, tmp_path, capsys):
    path, marker = encoder.with_suffix(suffix), tmp_path / "marker"
    write({**small("encoder")[0], "more": Marker(marker)}, path)
    assert check(path, "--family", "encoder") == 2
    assert_one_line(capsys, path.name)
    assert not marker.exists()


def test_an_old_pytorch_reads_no_pickled_checkpoint(encoder, monkeypatch, capsys):
    torch.save(small("encoder")[0], encoder)
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.9.1+cpu"))
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys, "2.9.1", ".safetensors")


NAME = "layers.0.linear1.weight"
UNUSUAL = {
    "sparse": lambda tensor: tensor.to_sparse(),
    "csr": lambda tensor: tensor.to_sparse_csr(),
    "quantised": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "meta": lambda tensor: tensor.to("meta"),
    "expanded": lambda tensor: tensor[:1, :1].expand(10**7, 10**7),
    "overlapping": lambda tensor: torch.as_strided(tensor, (10**4, 20), (0, 1)),
    "empty": lambda tensor: tensor[:0],
    "scalar": lambda tensor: tensor[0, 0],
    "complex": lambda tensor: tensor + 1j,
    "float8": lambda tensor: tensor.to(torch.float8_e4m3fn),
    "bool": lambda tensor: tensor > 0,
    "integers": lambda tensor: tensor.to(torch.int64),
    "infinite": lambda tensor: tensor / 0,
    "another shape": lambda tensor: tensor.T,
    "no tensor": lambda tensor: tensor.tolist(),
    "text": lambda tensor: "tensor",
    "nested": lambda tensor: torch.nested.nested_tensor(list(tensor)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", UNUSUAL)
def test_tensors_that_are_no_plain_numbers(kind, encoder, capsys):
    tensors = small("encoder")[0]
    torch.save(tensors | {NAME: UNUSUAL[kind](tensors[NAME])}, encoder)
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys, "checkpoint")


def test_views_are_read_as_they_are():
    tensors, config = small("encoder")
    changed = tensors | {NAME: tensors[NAME].T.contiguous().T, "layers.0.norm1.bias": torch.zeros(9)[2:6]}
    network = network_from(changed, "encoder", config)
    np.testing.assert_array_equal(network.layers[0].weight_in, tensors[NAME].double().numpy())
    negative = torch.complex(torch.zeros(4), tensors["layers.0.norm1.bias"]).conj().imag
    assert negative.is_neg()
    network = network_from(tensors | {"layers.0.norm1.bias": negative}, "encoder", config)
    np.testing.assert_array_equal(network.layers[0].attention_norm.bias, -tensors["layers.0.norm1.bias"].double())


def nested():
    """A mapping that is inside itself."""
    content = {"epoch": 1}
    content["model"] = content
    return content


def laughing():
    """Short to write and endless to print."""
    content = [1]
    for _ in range(60):
        content = [content, content]
    return {1: content}


@pytest.mark.parametrize(
    "content",
    [
        nested(),
        laughing(),
        {"state_dict": {"model": {"module": {"state_dict": {"model": {}}}}}},
        {"x" * 10**5: torch.ones(2)},
        {"a\nb\x1b[31m": torch.ones(2)},
        {NAME.replace("0", "9" * 5000): torch.ones(2)},
        {3: torch.ones(2)},
        {},
        [],
        None,
        torch.ones(2),
    ],
    ids=range(11),
)
def test_mappings_that_hold_no_network(content, encoder, capsys):
    torch.save(content, encoder)
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys)


@pytest.mark.parametrize(
    "name",
    [
        "layers.0.a\nb",
        "layers.0.\x1b[31m",
        "layers.0." + "x" * 10**5,
        "layers." + "9" * 5000 + ".norm1.weight",
        "layers.999999999999.norm1.weight",
        "layers.9999.norm1.weight",
        "layers.٣.norm1.weight",
    ],
)
def test_names_that_no_layer_has(name, encoder, capsys):
    torch.save(small("encoder")[0] | {name: torch.ones(4)}, encoder)
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys, "checkpoint")


def test_a_compressed_checkpoint_is_refused(encoder, capsys):
    """100 MB of zeros in 100 kB."""
    torch.save(small("encoder")[0], encoder)
    with zipfile.ZipFile(encoder, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data/99", bytes(10**8))
    assert encoder.stat().st_size < 10**6
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys, "compressed")


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\3\4" + bytes(50), b"PK\5\6" + bytes(18), b"\x80\2}", b"\x80\4"])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_files_that_are_no_checkpoint(content, suffix, encoder, capsys):
    path = encoder.with_suffix(suffix)
    path.write_bytes(content)
    assert check(path, "--family", "encoder") == 2
    assert_one_line(capsys, path.name)


def header(entries, length=None):
    content = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(content) if length is None else length).to_bytes(8, "little") + content


@pytest.mark.parametrize(
    "content",
    [
        header({"a": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]}}) + bytes(4),
        header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}) + bytes(4),
        header({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}) + bytes(4),
        header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}) + bytes(4),
        header({"a": 3}),
        header(b"[" * 10**5),
        header(b"{}", 2**63),
        header(b"\xff\xff"),
        header({}),
    ],
    ids=range(9),
)
def test_headers_of_safetensors(content, encoder, capsys):
    path = encoder.with_suffix(".safetensors")
    path.write_bytes(content)
    assert check(path, "--family", "encoder") == 2
    assert_one_line(capsys)


WRONG = [
    None,
    True,
    "x",
    "3",
    "",
    [],
    [1],
    {},
    {"a": 1},
    -1,
    0,
    0.5,
    10**12,
    10**400,
    float("nan"),
    float("inf"),
    -1e300,
    "\n",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_settings_of_a_wrong_type_are_one_line_or_used(family, tmp_path, capsys):
    """None takes the default; numbers that can be used are; anything else is refused by its name."""
    tensors, config = small(family)
    path, refused = tmp_path / "model.pt", []
    torch.save(tensors, path)
    for name, value in [(name, value) for name in config for value in WRONG]:
        (tmp_path / "config.json").write_text(json.dumps(config | {name: value}))
        try:
            network = load_network(path, family)
        except ArgumentError as error:
            refused.append((name.split("_")[-1], str(error)))
        else:
            assert np.isfinite(network.forward(np.eye(3, 4)).numpy()).all()
    assert len(refused) > len(config) * len(WRONG) / 2
    others = ("heads", "activation", "k_proj")  # what a setting decides
    unclear = [said for name, said in refused if "\n" in said or not any(word in said for word in (name, *others))]
    assert unclear == []


@pytest.mark.parametrize(
    ("name", "value", "family"),
    [
        ("rope_theta", "x", "rotary"),
        ("rope_theta", 0, "rotary"),
        ("rope_theta", float("nan"), "rotary"),
        ("rms_norm_eps", "1e-6", "rotary"),
        ("is_causal", "no", "rotary"),
        ("sliding_window", "\n", "rotary"),
        ("norm_first", "false", "encoder"),
        ("norm_first", 0, "encoder"),
        ("num_hidden_layers", 10**12, "albert"),
        ("num_hidden_groups", 10**12, "albert"),
        ("inner_group_num", 10**12, "albert"),
        ("layer_norm_eps", True, "bert"),
        ("hidden_act", ["gelu"], "bert"),
        ("layer_norm_eps", -1, "vit"),
    ],
)
def test_settings_are_not_guessed(name, value, family):
    tensors, config = small(family)
    with pytest.raises(ArgumentError) as refused:
        network_from(tensors, family, config | {name: value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[" * 10**5,
        b'{"a":' * 10**5,
        b"[]",
        b"3",
        b"null",
        b"{",
        b"\xff",
        b'{"nhead": ' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
)
def test_settings_that_are_no_settings(text, encoder, capsys):
    torch.save(small("encoder")[0], encoder)
    (encoder.parent / "config.json").write_bytes(text)
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys, "error: config.json: got ", str(encoder.parent / "config.json"))
    assert check(encoder, "--family", "encoder", "--config", encoder.parent / "config.json") == 2
    assert_one_line(capsys, "error: --config: got ", str(encoder.parent / "config.json"))


def test_a_setting_is_of_the_file_that_has_it(encoder, capsys):
    torch.save(small("encoder")[0], encoder)
    file = encoder.parent / "config.json"
    file.write_text(json.dumps(FAMILIES["encoder"][1] | {"soft": 3}))
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys, "error: config.json: got soft = 3, which encoder does not know")
    assert check(encoder, "--family", "encoder", "--config", file) == 2
    assert_one_line(capsys, "error: --config: got soft = 3, which encoder does not know")
    file.unlink()
    assert check(encoder, "--family", "encoder") == 2
    assert_one_line(capsys, "error: --config: got no ")


@pytest.mark.parametrize("options", [(), ("--family", "bert")])
def test_a_folder_without_a_network(tmp_path, options, capsys):
    (tmp_path / "notes.txt").write_text("none here")
    assert check(tmp_path, *options) == 2
    looked_for = ("which holds none of the files looked for", "model.safetensors", "pytorch_model.bin", ".index.json")
    assert_one_line(capsys, "checkpoint: got the folder ", str(tmp_path), *looked_for)


def test_settings_in_a_folder(encoder, capsys):
    torch.save(small("encoder")[0], encoder)
    for given in (encoder.parent, encoder.parent / "none", encoder):
        assert check(encoder, "--family", "encoder", "--config", given) == 2
        assert_one_line(capsys, "config")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [1e14, 1e30, 1e300, 1e-200, 1e-320, 0.0])
def test_weights_of_any_size_are_used_or_refused(scale, family, tmp_path, capsys):
    """Without a warning; beyond what float64 can hold in one line."""
    tensors, config = small(family)
    torch.save({name: tensor.double() * scale for name, tensor in tensors.items()}, tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps(config))
    if check(tmp_path / "model.pt", "--family", family, "--tokens", 3, "--json") == 0:
        printed = capsys.readouterr()
        assert printed.err == ""
        assert json.loads(printed.out)["d"] == 4
    else:
        assert_one_line(capsys)


def resized(tensors, prefix):
    """`tensors` with 6 features where there are 4, in those whose names begin with `prefix`."""
    sizes = {4: 6, 12: 18}
    return {
        name: torch.ones([sizes.get(size, size) for size in tensor.shape]) if name.startswith(prefix) else tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize(
    ("family", "prefix"),
    [
        ("encoder", "layers.1."),
        ("bert", "encoder.layer.1."),
        ("bert", "embeddings."),
        ("gpt2", "w"),
        ("rotary", "embed_tokens"),
        ("rotary", "norm"),
        ("vit", "pos_embed"),
    ],
)
def test_parts_of_different_sizes_are_one_line(family, prefix, tmp_path, capsys):
    tensors, config = small(family)
    torch.save(resized(tensors, prefix), tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert check(tmp_path / "model.pt", "--family", family, "--tokens", 3) == 2
    assert_one_line(capsys, "(")


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda tensors, config: load_network(None, "encoder"), "path"),
        (lambda tensors, config: load_network("a.pt", ["encoder"]), "family"),
        (lambda tensors, config: load_network("a.pt", "encoder", 3), "config"),
        (lambda tensors, config: network_from([1], "encoder", config), "tensors"),
        (lambda tensors, config: network_from({3: torch.ones(2)}, "encoder", config), "tensors"),
        (lambda tensors, config: network_from({NAME: np.ones(2)}, "encoder", config), "tensors"),
        (lambda tensors, config: network_from(tensors, None, config), "family"),
        (lambda tensors, config: network_from(tensors, "encoder", [("nhead", 2)]), "config"),
    ],
    ids=range(8),
)
def test_arguments_from_python(call, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}.*: got "):
        call(*small("encoder"))


@pytest.mark.parametrize(
    "state",
    [
        "token:" + "9" * 5000,
        "token:-1",
        "token:5",
        "token:",
        "token:٣x",
        "1e999,0,0,0",
        "nan,0,0,0",
        "1,2",
        "a.npy",
        ",",
        "1j,0,0,0",
    ],
)
def test_states_that_cannot_be_used(state, tmp_path, capsys, monkeypatch):
    tensors, config = small("bert")
    monkeypatch.chdir(tmp_path)
    torch.save(tensors, tmp_path / "model.pt")
    (tmp_path / "config.json").write_text(json.dumps(config))
    np.save(tmp_path / "a.npy", np.array([1j, 0, 0, 0]))
    assert check(tmp_path / "model.pt", "--family", "bert", "--state", state) == 2
    assert_one_line(capsys, "state")


def test_many_layers_and_tokens_are_refused_before_the_work(encoder, capsys):
    torch.save(small("encoder")[0], encoder)
    for option in ("--tokens", "--layers"):
        assert check(encoder, "--family", "encoder", option, 10**12) == 2
        assert_one_line(capsys, option)
    assert check("math:sin", "--state", "1", "--layers", 10**12) == 2
    assert_one_line(capsys, "--layers")
