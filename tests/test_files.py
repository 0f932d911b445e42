"""Blocks as files: exact round trips, the same bytes, and refusals that name the key."""

import dataclasses
import inspect
import io
import os
import subprocess
import sys
import threading
import tomllib
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dispersion.block.files
from dispersion import (
    Activation,
    ArgumentError,
    AttentionMask,
    Block,
    DyT,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    Normalisation,
    OutputValue,
    QueryKey,
    RMSNorm,
    Rotary,
)
from dispersion.atomic import replacing
from dispersion.block.encodings import BUILT_IN as KERNELS
from dispersion.block.encodings import relu_mlp
from dispersion.block.files import LARGE
from dispersion.block.stored import read_numbers

NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from([0.0, -0.0, 5e-324, -2.2e-310, 0.1, 1e16, 1.7976931348623157e308])
LOGITS = st.floats(-1e3, 1e3) | st.sampled_from([-0.0, -np.inf, 5e-324])


def state_of(thing):
    """Everything in `thing`, bit for bit, as something to compare."""
    if dataclasses.is_dataclass(thing):
        return type(thing), [state_of(getattr(thing, field.name)) for field in dataclasses.fields(thing)]
    if isinstance(thing, np.ndarray):
        return thing.shape, thing.dtype, thing.tobytes()
    if isinstance(thing, tuple):
        return [state_of(entry) for entry in thing]
    return thing.hex() if isinstance(thing, float) else thing


def assert_round_trip(block, folder):
    path = folder / "block.toml"
    block.save(path)
    again = Block.load(path)
    assert state_of(again) == state_of(block)
    first = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    again.save(path)
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == first
    return first


@st.composite
def blocks(draw):
    shape = draw(st.sampled_from([(2,), (5,), (8,), (2, 3), (2, 1, 3)]))
    n, D, d = int(np.prod(shape)), len(shape), draw(st.integers(1, 3))

    def numbers(*size):
        return draw(arrays(float, size, elements=NUMBERS))

    def maybe(make):
        return make() if draw(st.booleans()) else None

    def norm():
        gain, bias = numbers(d), maybe(lambda: numbers(d))
        kind = draw(st.sampled_from([LayerNorm, RMSNorm, DyT]))
        return kind(gain, bias, draw(st.floats(0, 1)))

    def head():
        logits = draw(arrays(float, shape, elements=LOGITS).filter(lambda b: np.isfinite(b).any()))
        kernel = Kernel.table(logits, causal=draw(st.booleans()))
        positional = Head(kernel, 0.0).positional()

        def rotary():
            biases = maybe(lambda: numbers(4)), maybe(lambda: numbers(4))
            return Rotary(numbers(4, d), numbers(4, d), numbers(2, D), draw(st.sampled_from(PAIRINGS)), *biases)

        def usable(bias):
            return np.isfinite(bias + positional).any(axis=1).all()

        content = {"rotary": maybe(rotary)}
        if content["rotary"] is None:
            content = {"content": maybe(lambda: numbers(d, d)), "key_bias": maybe(lambda: numbers(d))}
        bias = maybe(lambda: draw(arrays(float, (n, n), elements=LOGITS).filter(usable)))
        if bias is not None and draw(st.booleans()):
            bias = AttentionMask(bias, draw(st.sampled_from(["isolate", "free"])))
            bias = bias if usable(bias.logits) else None
        return Head(kernel, numbers(d, d), gate=maybe(lambda: draw(st.floats(0, 1))), bias=bias, **content)

    def feedforward():
        m, names = draw(st.integers(1, 3)), [name for name in Activation.names() if name != "polynomial"]
        activation = draw(st.sampled_from(names) | arrays(float, 3, elements=NUMBERS).map(Activation.polynomial))
        biases = maybe(lambda: numbers(m)), maybe(lambda: numbers(d))
        gate = maybe(lambda: (numbers(m, d), maybe(lambda: numbers(m)))) or ()
        return FeedForward(numbers(m, d), numbers(d, m), activation, *biases, *gate)

    heads = [head() for _ in range(draw(st.integers(1, 2)))]
    placement = draw(st.sampled_from(["pre", "post"]))
    norms = maybe(norm), maybe(norm)
    return Block(heads, maybe(feedforward), draw(NUMBERS), *norms, placement, maybe(lambda: numbers(d)))


PAIRINGS = ["half", "interleaved"]


@given(blocks(), st.sampled_from([0, 3, LARGE]))
def test_round_trip(tmp_path_factory, block, large):
    """Every feature, with every array, some or none in the npz file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispersion.block.files, "LARGE", large)
        assert_round_trip(block, tmp_path_factory.mktemp("block"))


def test_small_blocks_are_one_file_and_large_arrays_go_beside_it(tmp_path, random_block):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    assert set(assert_round_trip(random_block(0), small)) == {"block.toml"}
    files = assert_round_trip(random_block(1, n=LARGE + 1, d=17), large)
    assert set(files) == {"block.toml", "block.npz"}
    text = files["block.toml"].decode()
    assert 'logits = {npz = "head[0].kernel.logits"}' in text
    assert max(map(len, text.splitlines())) < 1000
    assert len(tomllib.loads(text)["feedforward"]["bias_in"]) == 19
    with np.load(large / "block.npz", allow_pickle=False) as stored:
        assert stored["head[1].value"].shape == (17, 17)


def test_what_is_written_reads_well(tmp_path):
    feedforward = FeedForward.scalar("tanh", scale=-0.1)
    Block([Head(Kernel.table([0.0, -np.inf, 0.1]), -0.4, 1.5)], feedforward).save(tmp_path / "block.toml")
    assert (tmp_path / "block.toml").read_text() == (
        '[block]\nn = 3\nattention_scale = 1.0\nplacement = "pre"\n\n'
        "[[head]]\nvalue = -0.4\ncontent = 1.5\n\n"
        "[head.kernel]\nlogits = [0.0, -inf, 0.1]\ncausal = false\n\n"
        '[feedforward]\nweight_in = [[1.0]]\nweight_out = [[-0.1]]\nactivation = "tanh"\n'
    )


def test_a_gate_is_written_and_read(tmp_path):
    text = '[feedforward]\nactivation = "silu"\nweight_in = [[1.0]]\nweight_out = [[2.0]]\n'
    made = load(tmp_path, HEAD + text + "weight_gate = [[0.5]]\n").feedforward
    assert (made.weight_gate.tolist(), made.bias_gate.tolist()) == ([[0.5]], [0.0])
    assert float(made(np.array([3.0]))[0]) == pytest.approx(2 * 3 * 1.5 / (1 + np.exp(-1.5)), rel=1e-15)
    with pytest.raises(ArgumentError, match=r"feedforward\.bias_gate: got a bias without weight_gate"):
        load(tmp_path, HEAD + text + "bias_gate = [0.5]\n")
    with pytest.raises(ArgumentError, match=r"feedforward\.weight_gate: got shape"):
        load(tmp_path, HEAD + text + "weight_gate = [[0.5, 1.0]]\n")
    with pytest.raises(ArgumentError, match=r"feedforward\.weight_in: got nothing"):
        load(tmp_path, HEAD + '[feedforward]\nactivation = "silu"\nweight_gate = [[0.5]]\n')


def load(tmp_path, text):
    (tmp_path / "block.toml").write_text(text, encoding="utf-8")
    return Block.load(tmp_path / "block.toml")


HEAD = '[block]\nn = 8\n[[head]]\nkernel = {type = "alibi", slope = 0.5}\nvalue = 0.4\n'
WRITTEN = {
    "table": (
        8,
        "logits = [0, 1, 2, 3, 4, 5, 6, -inf], causal = true",
        lambda: Kernel.table([*range(7), -np.inf], True),
    ),
    "uniform": (8, "", lambda: Kernel.uniform(8)),
    "gaussian_lobes": (
        [4, 6],
        "separation = [1, 2], width = 1.0, strength = 2.0",
        lambda: Kernel.gaussian_lobes((4, 6), (1, 2), 1.0, 2.0),
    ),
    "skewed_lobe": (
        8,
        "separation = 2, width_below = 0.5, width_above = 2, strength = 1",
        lambda: Kernel.skewed_lobe(8, 2, 0.5, 2, 1),
    ),
    "von_mises": (
        [4, 6],
        "wavenumber = [1, 2], strength = 1, phase = 0.3",
        lambda: Kernel.von_mises((4, 6), (1, 2), 1, 0.3),
    ),
    "alibi": (8, "slope = 0.5, causal = true", lambda: Kernel.alibi(8, 0.5, True)),
    "kerple_log": (8, "r1 = 1, r2 = 2", lambda: Kernel.kerple_log(8, 1, 2)),
    "kerple_power": (8, "r1 = 1, r2 = 2", lambda: Kernel.kerple_power(8, 1, 2)),
    "fire": (
        8,
        "mlp = {weight_in = [1, 2], bias_in = [0, 1], weight_out = [3, -1]}, c = 0.1, threshold = 9",
        lambda: Kernel.fire(8, relu_mlp([1, 2], [0, 1], [3, -1]), 0.1, 9),
    ),
    "convit": ([4, 4], "centre = [1, -1], strength = 0.5", lambda: Kernel.convit((4, 4), (1, -1), 0.5)),
    "convit_learned": (8, "weights = [-0.5, 1.0]", lambda: Kernel.convit_learned(8, [-0.5, 1.0])),
    "t5": (8, "table = [1, 2, 3, 4], max_distance = 5", lambda: Kernel.t5(8, [1, 2, 3, 4], 5)),
    "swin": (8, "table = [1, 2, 3]", lambda: Kernel.swin(8, [1, 2, 3])),
    "mask": (8, "m = [0, 1, 2, 3, 4, 5, 6, -inf]", lambda: Kernel.mask([*range(7), -np.inf])),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_constructor_of_a_kernel(name, tmp_path):
    tokens, arguments, make = WRITTEN[name]
    size = f"n = {tokens}" if isinstance(tokens, int) else f"shape = {tokens}"
    comma = ", " if arguments else ""
    block = load(tmp_path, f'[block]\n{size}\n[[head]]\nkernel = {{type = "{name}"{comma}{arguments}}}\nvalue = 1\n')
    assert state_of(block.heads[0].kernel) == state_of(make())
    assert_round_trip(block, tmp_path)


def test_a_list_of_kernels_is_the_weighted_sum_of_their_logits(tmp_path):
    text = HEAD.replace("kernel = {", "kernel = [{logits = [0, 1, -inf, 0, 0, 0, 0, 0], weight = -2}, {")
    block = load(tmp_path, text.replace("0.5}", "0.5}]"))
    expected = -2 * Kernel.table([0, 1, -np.inf, 0, 0, 0, 0, 0]) + Kernel.alibi(8, 0.5)
    np.testing.assert_array_equal(block.heads[0].kernel.logits, expected.logits)


def test_short_forms(tmp_path):
    """Whole numbers, a shape of one axis, a gain of one, a scalar feed-forward on two features; a file from Windows."""
    text = """[block]
shape = [8]
attention_scale = 2
placement = "post"
[[head]]
kernel = {type = "uniform"}
value = [[1, 0], [0, 1]]
rotary = {query = [[1, 0], [0, 1]], key = [[1, 0], [0, 1]], frequencies = [0]}
[feedforward]
activation = "polynomial"
coefficients = [1, 0, -1]
scale = 0.5
[attention_norm]
type = "DyT"
alpha = 2
"""
    (tmp_path / "block.toml").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    by_hand = Block(
        [Head(Kernel.uniform(8), np.eye(2), rotary=Rotary(np.eye(2), np.eye(2), [0.0]))],
        FeedForward.elementwise(Activation.polynomial([1, 0, -1]), 2, 0.5),
        2.0,
        DyT([1, 1], alpha=2.0),
        placement="post",
    )
    assert state_of(Block.load(tmp_path / "block.toml")) == state_of(by_hand)


UNIFORM = "[block]\nn = 8\n[[head]]\nvalue = 0.4\n"
REFUSED = [
    ("", "block", "nothing"),
    ("x", "block.toml", "="),
    ("[block]\nn = 8\n", "head", "nothing"),
    (HEAD.replace("[[head]]", "[head]"), "head", "two brackets"),
    (HEAD + "[extra]\n", "extra", "feedforward_norm"),
    (HEAD.replace("n = 8", "n = 1"), "block.n", "at least 2"),
    (HEAD.replace("n = 8", "n = true"), "block.n", "whole number"),
    (HEAD.replace("n = 8", "n = 2147483648"), "block.n", "bytes"),
    (HEAD.replace("n = 8", "shape = [1048576, 4194304]"), "block.shape", "bytes"),
    (HEAD.replace("n = 8", "n = " + "9" * 90), "block.n", ""),
    (HEAD.replace("n = 8", ""), "block", "shape = "),
    (HEAD.replace("n = 8", "n = 8\nshape = [8]"), "block", "n and shape"),
    (HEAD.replace("n = 8", 'shape = [4, "a"]'), "block.shape[1]", "'a'"),
    (HEAD.replace("n = 8", "n = 8\nattention_scale = inf"), "block.attention_scale", "finite"),
    (HEAD.replace("n = 8", 'n = 8\nplacement = "mid"'), "block.placement", "'pre' or 'post'"),
    (HEAD.replace("n = 8", "n = 8\nfeedforward = 3"), "block.feedforward", "unknown"),
    (HEAD + "colour = 1\n", "head[0].colour", "kernel, value, content"),
    (HEAD.replace("value = 0.4", ""), "head[0].value", "nothing"),
    (HEAD + "gate = 2.0\n", "head[0].gate", "between 0 and 1"),
    (HEAD + "gate = true\n", "head[0].gate", "a number"),
    (HEAD + 'content = "a"\n', "head[0].content", "nested list"),
    (HEAD + "content = [[true]]\n", "head[0].content", "True"),
    (HEAD + "content = [[1.0], [1.0, 2.0]]\n", "head[0].content", "equal length"),
    (HEAD + "content = 1979-05-27\n", "head[0].content", "date"),
    (HEAD + "bias = [[0.0]]\n", "head[0].bias", "(8×8)"),
    (HEAD + '[[head]]\nkernel = {type = "uniform"}\nvalue = [[1.0, 2.0]]\n', "head[1].value", "(1, 2)"),
    (HEAD + '[[head]]\nkernel = {type = "uniform"}\nvalue = [[1, 0], [0, 1]]\n', "head[1]", "d = 2"),
    (
        HEAD + "content = 1\n[head.rotary]\nquery = [[1], [1]]\nkey = [[1], [1]]\nfrequencies = [0]\n",
        "head[0].content",
        "",
    ),
    (HEAD + "[head.rotary]\nquery = [[1]]\nkey = [[1]]\nfrequencies = [0]\n", "head[0].rotary.query", "even"),
    (HEAD + "[head.rotary]\nquery = [[1]]\n", "head[0].rotary.key", "nothing"),
    (UNIFORM + "kernel = 3\n", "head[0].kernel", "table"),
    (UNIFORM + "kernel = []\n", "head[0].kernel", "empty"),
    (UNIFORM + 'kernel = {type = "alibo"}\n', "head[0].kernel.type", "gaussian_lobes"),
    (UNIFORM + 'kernel = {type = "alibi"}\n', "head[0].kernel.slope", "nothing"),
    (UNIFORM + 'kernel = {type = "alibi", slope = 1, causal = 1}\n', "head[0].kernel.causal", "true or false"),
    (UNIFORM + "kernel = {logits = [0.0, 1.0]}\n", "head[0].kernel", "(8,)"),
    (UNIFORM + "kernel = {logits = [nan, 0, 0, 0, 0, 0, 0, 0]}\n", "head[0].kernel.logits", "NaN"),
    (UNIFORM + 'kernel = {type = "von_mises", wavenumber = 9, strength = 1}\n', "head[0].kernel.wavenumber", "9"),
    (UNIFORM + 'kernel = [{type = "uniform", weight = inf}]\n', "head[0].kernel[0].weight", "finite"),
    (
        UNIFORM + 'kernel = [{type = "uniform"}, {type = "alibi", slope = 1, causal = true}]\n',
        "head[0].kernel",
        "causal",
    ),
    (HEAD + '[feedforward]\nactivation = "tan"\n', "feedforward.activation", "tanh, gelu"),
    (HEAD + '[feedforward]\nactivation = "tanh"\nscale = 1\nbias_in = [0]\n', "feedforward.scale", "weight_in"),
    (HEAD + '[feedforward]\nactivation = "polynomial"\n', "feedforward.coefficients", "polynomial"),
    (HEAD + "[attention_norm]\ngain = [1]\n", "attention_norm.type", "LayerNorm, RMSNorm, DyT"),
    (HEAD + '[attention_norm]\ntype = "RMSNorm"\neps = -1\n', "attention_norm.eps", "≥ 0"),
    (HEAD + '[attention_norm]\ntype = "RMSNorm"\ngain = [1, 1]\n', "attention_norm", "d = 2"),
    (HEAD + 'content = {npz = "c"}\n', "head[0].content.npz", "no such file"),
    (HEAD + "content = " + "9" * 400 + "\n", "head[0].content", "float64"),
    (HEAD + "content = " + "9" * 5000 + "\n", "block.toml", "limit"),
    (HEAD + "content = " + "[" * 3000, "block.toml", "TOML"),
]


@pytest.mark.parametrize(("text", "key", "part"), REFUSED, ids=[f"{key}-{part}" for _, key, part in REFUSED])
def test_refusals_name_the_key(text, key, part, tmp_path):
    with pytest.raises(ArgumentError) as refused:
        load(tmp_path, text)
    assert refused.value.argument.removeprefix("block.toml: ") == key
    assert "block.toml" in str(refused.value)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_argument_is_of_a_kind_the_reader_does_not_know():
    from dispersion.block.toml_reader import SCALARS, _scaled, _weights

    known = {*SCALARS, "Kernel", "Rotary | None", "Callable[[Floats], ArrayLike]", "ArrayLike", "ArrayLike | None"}
    known |= {"ArrayLike | OutputValue", "ArrayLike | QueryKey | None", "ArrayLike | AttentionMask | None", "Floats"}
    constructors = [getattr(Kernel, name) for name in KERNELS]
    constructors += [
        Head,
        AttentionMask,
        OutputValue,
        QueryKey,
        Rotary,
        relu_mlp,
        LayerNorm,
        RMSNorm,
        DyT,
        _scaled,
        _weights,
    ]
    for function in constructors:
        kinds = {name: kind.annotation for name, kind in inspect.signature(function).parameters.items()}
        given = {kinds.pop("n", "int"), kinds.pop("shape", "int"), kinds.pop("d", "int")}
        assert given <= {"int", "Shape"}
        assert set(kinds.values()) <= known, function


@pytest.mark.parametrize(
    ("stored", "part"),
    [
        (b"no zip file", "npz"),
        ({"a": np.array([{}], dtype=object)}, "allow_pickle"),
        ({"a": np.array(["x"])}, "there is none"),
        ({"b": np.ones((1, 1))}, "b"),
    ],
)
def test_bad_npz_files(stored, part, tmp_path):
    if isinstance(stored, bytes):
        (tmp_path / "block.npz").write_bytes(stored)
    else:
        np.savez(tmp_path / "block.npz", **stored)
    with pytest.raises(ArgumentError, match=r"head\[0\]\.content\.npz") as refused:
        load(tmp_path, HEAD + 'content = {npz = "a"}\n')
    assert part in str(refused.value)


def test_files_that_are_not_there_or_cannot_be_written(tmp_path, random_block):
    with pytest.raises(ArgumentError, match=r"nothing\.toml.*no such file"):
        Block.load(tmp_path / "nothing.toml")
    with pytest.raises(ArgumentError, match="directory"):
        Block.load(tmp_path)
    with pytest.raises(ArgumentError, match=r"\.toml"):
        random_block(0).save(tmp_path / "block.txt")
    with pytest.raises(ArgumentError, match="no such file"):
        random_block(0).save(tmp_path / "missing" / "block.toml")
    (tmp_path / "latin.toml").write_bytes(b'x = "\xe9"')
    with pytest.raises(ArgumentError, match=r"latin\.toml"):
        Block.load(tmp_path / "latin.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["latin.toml"]


@pytest.mark.parametrize(
    "path", [None, 3, True, b"x.toml", ["x.toml"], "a\0.toml", "\ud800.toml", "", "x" * 300 + ".toml"]
)
def test_names_that_no_file_has(path, tmp_path, random_block, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (Block.load, random_block(0).save):
        with pytest.raises(ArgumentError, match="path: got"):
            call(path)
    assert list(tmp_path.iterdir()) == []


class Other(Normalisation):
    pass


def test_a_normalisation_without_a_name_is_refused(tmp_path):
    block = Block([Head(Kernel.uniform(4), 1.0)], attention_norm=Other([1.0]))
    with pytest.raises(ArgumentError, match=r"attention_norm: got Other; accepted: LayerNorm, RMSNorm, DyT"):
        block.save(tmp_path / "block.toml")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_files(tmp_path, random_block, monkeypatch):
    before = assert_round_trip(random_block(1, n=LARGE + 1), tmp_path)
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(ArgumentError):
        random_block(2, n=LARGE + 1).save(tmp_path / "block.toml")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_npz_that_was_saved_with_no_block_stays(tmp_path, random_block):
    """Whatever lies beside: another's arrays, no arrays at all, a link, a folder."""
    path, arrays, large = tmp_path / "w.toml", tmp_path / "w.npz", random_block(1, n=LARGE + 1)
    np.savez(arrays, mine=np.arange(3))
    before = arrays.read_bytes()
    for text in (None, "", "x = [", HEAD, HEAD + 'content = {npz = "yours"}\n'):
        if text is not None:
            path.write_text(text)
        with pytest.raises(ArgumentError, match=r"path: got .*w\.toml' beside w\.npz"):
            large.save(path)
        assert (arrays.read_bytes(), path.read_text() if path.exists() else None) == (before, text)
    random_block(0).save(path)  # needs no npz
    assert arrays.read_bytes() == before
    path.write_text(HEAD + 'content = {npz = "mine"}\n')  # a block's after all
    large.save(path)
    assert state_of(Block.load(path)) == state_of(large)
    random_block(0).save(path)
    large.save(path)
    path.unlink()
    large.save(path)
    assert state_of(Block.load(path)) == state_of(large)
    for stranger in (b"", b"PK", b"mine"):
        arrays.write_bytes(stranger)
        with pytest.raises(ArgumentError, match="not saved with a block"):
            large.save(path)
        assert arrays.read_bytes() == stranger
    arrays.unlink()
    arrays.mkdir()
    with pytest.raises(ArgumentError, match="not saved with a block"):
        large.save(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["w.npz", "w.toml"]


@pytest.mark.parametrize("linked", ["w.toml", "w.npz"])
@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_symbolic_links_are_neither_replaced_nor_followed(linked, target, tmp_path, random_block):
    (tmp_path / "there").write_text("mine")
    (tmp_path / linked).symlink_to(target)
    with pytest.raises(ArgumentError, match=f"path: got .*{linked}', a symbolic link"):
        random_block(1, n=LARGE + 1).save(tmp_path / "w.toml")
    assert (tmp_path / linked).is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([linked, "there"])
    assert (tmp_path / "there").read_text() == "mine"


def test_many_who_save_to_one_path_all_end_well(tmp_path, random_block):
    """Each with arrays of its own; what is there in the end is one of the blocks, whole."""
    path, made = tmp_path / "w.toml", [random_block(seed, n=LARGE + 1) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda block: block.save(path), made * 3))
    assert state_of(Block.load(path)) in [state_of(block) for block in made]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["w.npz", "w.toml"]


def test_a_block_is_loaded_whole_while_others_are_saved(tmp_path, random_block):
    path, made = tmp_path / "w.toml", [random_block(seed, n=LARGE + 1) for seed in range(2)]
    made[0].save(path)
    ended = threading.Event()

    def save():
        while not ended.is_set():
            for block in made:
                block.save(path)

    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(save)
        try:
            found = [state_of(Block.load(path)) for _ in range(60)]
        finally:
            ended.set()
        saving.result()
    whole = [state_of(block) for block in made]
    assert all(state in whole for state in found)


SAVE = """
import sys
from dispersion import Block
block = Block.load(sys.argv[1])
for _ in range(20):
    block.save(sys.argv[2])
"""


@pytest.mark.slow
def test_many_processes_that_save_to_one_path_all_end_well(tmp_path, random_block):
    path, made = tmp_path / "w.toml", [random_block(seed, n=LARGE + 1) for seed in range(4)]
    for number, block in enumerate(made):
        block.save(tmp_path / f"{number}.toml")
    commands = [[sys.executable, "-c", SAVE, tmp_path / f"{number}.toml", path] for number in range(4)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    assert [process.communicate()[1] for process in running] == [""] * 4
    assert state_of(Block.load(path)) in [state_of(block) for block in made]


def test_someone_who_holds_the_folder_does_not_hold_up_a_save_for_ever(tmp_path, random_block, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(dispersion.block.files, "PATIENCE", 3)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    random_block(0).save(tmp_path / "w.toml")
    os.close(descriptor)
    assert (tmp_path / "w.toml").exists()


def test_only_arrays_that_are_named_are_read(tmp_path):
    """800 MB of zeros, in 800 kB, that no one asked for."""
    np.savez_compressed(tmp_path / "block.npz", a=np.array([[2.0]]))
    with zipfile.ZipFile(tmp_path / "block.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b.npy", npy((10**7,)) + bytes(8 * 10**7))
        archive.writestr("c.npy", b"no array")
    tracemalloc.start()
    try:
        block = load(tmp_path, HEAD + 'content = {npz = "a"}\n')
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()
    assert block.heads[0].content == [[2.0]]
    with pytest.raises(ArgumentError, match=r"accepted: an array of real numbers in block\.npz: a, b$"):
        load(tmp_path, HEAD + 'content = {npz = "c!"}\n')


def npy(shape, dtype="<f8"):
    """The first bytes of a .npy file of this shape, whatever follows."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": dtype, "fortran_order": False, "shape": shape})
    return content.getvalue()


DAMAGED = {
    "short": npy((4,)) + bytes(24),
    "long": npy((4,)) + bytes(40),
    "huge": npy((10**15,)) + bytes(8),
    "overflow": npy((2**62, 2**62)) + bytes(8),
    "negative": npy((-1,)) + bytes(8),
    "header": b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    "version": b"\x93NUMPY\x09\x00" + bytes(100),
    "two": b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1L,), }".ljust(128),
    "empty": b"",
    "pickle": b"cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_an_array_that_is_not_what_it_says_is_refused(content, kind, tmp_path, recwarn):
    with zipfile.ZipFile(tmp_path / "block.npz", "w", kind) as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(ArgumentError, match=r"head\[0\]\.content\.npz"):
        load(tmp_path, HEAD + 'content = {npz = "a"}\n')
    (tmp_path / "a.npy").write_bytes(content)
    if content != DAMAGED["long"]:  # numpy lets be what follows an array
        with pytest.raises(ValueError, match="."):
            read_numbers(tmp_path / "a.npy")
    assert not recwarn.list


def test_numbers_of_a_file(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    assert read_numbers(tmp_path / "a.npy").tolist() == [0, 1, 2]
    with pytest.raises(OSError, match="No such file"):
        read_numbers(tmp_path / "b.npy")
    np.savez(tmp_path / "zip.npz", a=np.arange(3))
    (tmp_path / "zip.npz").rename(tmp_path / "zip.npy")
    np.save(tmp_path / "c.npy", np.array([1j]))
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    for name in ("zip", "c", "o"):
        with pytest.raises(ValueError, match="."):
            read_numbers(tmp_path / f"{name}.npy")


def test_replacing_is_all_or_nothing(tmp_path):
    def fail():
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_replacing_writes_through_links_and_never_over_what_is_no_file(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "null").symlink_to(os.devnull)
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    for name in ("folder", "null"):
        with pytest.raises(OSError, match="directory|regular"), replacing(tmp_path / name):
            pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder", "link", "null"]
