"""Specifications of phase diagrams and files of blocks: what is said is used, and what cannot be used is one line."""

import json
import re
import time

import numpy as np
import pytest
import xarray as xr

import tokenwaves
from dispersion import ArgumentError, Block
from figures.phase_diagram import QUANTITIES, PhaseDiagram
from figures.phase_diagram.arithmetic import LONGEST
from figures.phase_diagram.diagram import DEPTH, POINTS
from simulate import STATUS

SPEC = """
quantity = "amplitude"
depth = 100
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
GAIN, STRENGTH, VALUE = "gain = {from = 0.3, to = 0.6, points = 3}", "strength = [1.5, 2.5]", '"-gain"'


def changed(*changes):
    """SPEC with each (old, new) of `changes`."""
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def top(line):
    return ("depth = 100", f"depth = 100\n{line}")


def refusal(tmp_path, text):
    """The line that refuses `text`, which takes a moment at most."""
    path = tmp_path / "map.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    begun = time.perf_counter()
    with pytest.raises(ArgumentError) as refused:
        PhaseDiagram.load(path)
    assert time.perf_counter() - begun < 5
    line = str(refused.value)
    assert line.isprintable()
    assert len(line) < 1000
    return line


NOT_USED = [
    (top("modes = [4, 5]"), "map.toml: modes: got a key that 'amplitude' does not use"),
    ((STRENGTH, 'strength = [1.5, 2.5]\nunits = "1"'), "parameters"),
    (('"strength"', "2.0"), "parameters.strength: got a parameter that no part of the block uses"),
    ((VALUE, "-0.4"), "parameters.gain: got a parameter that no part of the block uses"),
    ((GAIN, "gain = {from = 0.3, to = 0.6, points = 3, step = 1}"), "parameters.gain"),
    (("scale = -0.1", "scale = -0.1\ncoefficients = [1.0]"), "feedforward"),
    (("scale = -0.1", "scale = -0.1\nweight_in = [[1.0]]\nweight_out = [[1.0]]"), "feedforward.scale"),
    (("content = 1.5", "content = 1.5\nname = 'a'"), "head[0].name"),
    (("width = 1.0", "width = 1.0, causal = false"), "head[0].kernel.causal"),
    (top("sede = 1"), "map.toml: sede: got an unknown key"),
]


@pytest.mark.parametrize(("change", "line"), NOT_USED)
def test_a_key_that_is_not_used_is_refused(tmp_path, change, line):
    assert line in refusal(tmp_path, changed(change))


def test_a_competition_starts_as_it_does(tmp_path):
    pair = changed(("depth = 100", "depth = 100\nmodes = [4, 5]"), ('"amplitude"', '"competition"'))
    assert "map.toml: start: got a key that 'competition' does not use" in refusal(
        tmp_path, pair.replace("depth = 100", "depth = 100\nstart = 1e-3")
    )
    for modes in (
        "[true, 2]",
        "[2]",
        "[2, 2.0]",
        '["2", 3]',
        "2",
        "[0, 2]",
        "[4, 4]",
        "[-1, 2]",
        "[2, 3, 4]",
        "[2, 9]",
    ):
        assert "map.toml: modes: got" in refusal(tmp_path, pair.replace("[4, 5]", modes))
    assert "map.toml: modes: got nothing" in refusal(tmp_path, pair.replace("modes = [4, 5]", ""))


@pytest.mark.parametrize("quantity", ["['amplitude']", "{a = 1}", "true", "1", "1979-05-27", "''", "'heigth'", "nan"])
def test_a_quantity_is_one_of_a_list(tmp_path, quantity):
    line = refusal(tmp_path, changed(('"amplitude"', quantity)))
    assert line.startswith("map.toml: quantity: got")
    assert all(name in line for name in QUANTITIES)


@pytest.mark.parametrize("value", ["true", "'3'", "[3]", "{a = 3}", "nan", "inf", "9" * 400, "-1", "1e999", "07:32:00"])
@pytest.mark.parametrize("key", ["depth", "seed", "start", "tolerance", "from", "to", "points", "list"])
def test_a_number_is_a_number(tmp_path, key, value):
    values = {"depth": 100, "seed": 0, "start": 1e-3, "tolerance": 1e-12, "from": 0.3, "to": 0.6, "points": 3}
    if key == "list":
        text = changed((STRENGTH, f"strength = [1.5, {value}]"))
        assert "map.toml: parameters.strength" in refusal(tmp_path, text)
    elif key in ("from", "to", "points"):
        table = ", ".join(f"{name} = {value if name == key else values[name]}" for name in ("from", "to", "points"))
        line = refusal(tmp_path, changed((GAIN, f"gain = {{{table}}}"))) if (key, value) != ("from", "-1") else None
        assert line is None or "map.toml: parameters.gain" in line
    else:
        text = changed(top(f"{key} = {value}")) if key != "depth" else changed(("depth = 100", f"depth = {value}"))
        assert f"map.toml: {key}: got" in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "value",
    [
        "[1.5, 1.5]",
        "[2.5, 1.5]",
        "[1.0, 3.0, 2.0]",
        "[]",
        "[1.5]",
        "{from = 1, to = 1, points = 3}",
        "{from = 2, to = 1, points = 3}",
        "{from = 1, to = 1.0000000000000002, points = 9}",
        "{from = -1e308, to = 1e308, points = 9}",
        "[[1.5, 2.5]]",
        "{from = 1, to = 2, points = 1}",
        "{from = 1, to = 2, points = 2.0}",
        "'1.5'",
        "1.5",
        "{}",
        "{from = 1, to = 2}",
    ],
)
def test_the_values_of_a_parameter_increase(tmp_path, value):
    assert "map.toml: parameters.strength" in refusal(tmp_path, changed((STRENGTH, f"strength = {value}")))


@pytest.mark.parametrize("name", ["lambda", "True", '"a b"', '"a/b"', '""', '"µ"', "k", "status", "a" * 300, '"a\\nb"'])
def test_the_name_of_a_parameter_can_be_written_in_an_expression(tmp_path, name):
    text = changed((STRENGTH, f"{name} = [1.5, 2.5]"), ('"strength"', json.dumps(name.strip('"'))))
    assert "map.toml: parameters." in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9*gain",
        "gain*9**9**9**9",
        "-" * 3000 + "gain",
        "(" * 3000 + "gain" + ")" * 3000,
        "gain" + "+gain" * 5000,
        "-" * 400 + "gain",
        "(" * 150 + "gain" + ")" * 150,
        "(-gain)**0.5",
        "1e308*10*gain/gain",
        "gain and 1",
        "gain if gain else 1",
        "gain < 1",
        "[gain]",
        "gain()",
        "gain.real",
        "gain[0]",
        "lambda: gain",
        "gain*True",
        "gain*1j",
        "gain*'a'",
        "gain*foo",
        "1//gain",
        "gain%2",
        "gain@2",
        "gain << 9**9",
        "gain*0x",
        "gain\x00",
        "1if gain else 2",
        "gain is 3",
        "'\\d' + gain",
        "f'{gain}'",
        "(gain := 3)",
        "gain/(gain - gain)",
        "0*gain/0",
        "9" * 5000 + "*gain",
        "__import__('os').system('true') + gain",
        "gain ",
        " gain",
        "gain\n",
        "-gain # less",
        "",
    ],
)
def test_an_expression_is_arithmetic_that_ends(tmp_path, expression, recwarn):
    text = changed((VALUE, json.dumps(expression).replace("\\u0000", "\\u0000")))
    line = None
    try:
        line = refusal(tmp_path, text)
    except pytest.fail.Exception:
        value = PhaseDiagram.load(tmp_path / "map.toml").block(0.3, 1.5).heads[0].value
        assert (
            expression.startswith("-" * 400) or expression.startswith("(" * 150) or "gain" in expression.split("#")[0]
        )
        assert abs(value) == pytest.approx(0.3)
    assert line is None or "gain" in line or "value" in line
    assert not recwarn.list


def test_an_expression_of_some_length_is_read(tmp_path):
    text = changed((VALUE, json.dumps("-" + "+0*gain" * ((LONGEST - 10) // 7) + "-gain")))
    (tmp_path / "map.toml").write_text(text)
    assert PhaseDiagram.load(tmp_path / "map.toml").block(0.3, 1.5).heads[0].value == pytest.approx(-0.3)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("points = 3", f"points = {10**12}"), "parameters: got 2,000,000,000,000 points"),
        (("points = 3", f"points = {POINTS}"), "parameters"),
        (("depth = 100", f"depth = {DEPTH + 1}"), "depth"),
        (("depth = 100", f"depth = {10**30}"), "depth"),
        (top(f"seed = {2**200}"), "seed"),
        (("n = 16", f"n = {2**31}"), "block.n"),
        (("n = 16", f"n = {2**62}"), "block.n"),
        (("n = 16", "shape = [65536, 65536]"), "block.shape"),
        (("n = 16", "shape = [" + "2, " * 70 + "2]"), "block.shape"),
        (("n = 16", "n = 1"), "block.n"),
    ],
)
def test_what_would_take_for_ever_is_refused_at_once(tmp_path, change, key):
    assert f"map.toml: {key}" in refusal(tmp_path, changed(change))


@pytest.mark.parametrize(
    "text", [b"\xff\xfe", b"a = " + b"[" * 5000, b"a = 1\na = 2", b"", b"= 3", b"a\0 = 1", b"\x1b[31m"]
)
def test_a_file_that_is_no_toml(tmp_path, text):
    refusal(tmp_path, text)
    with pytest.raises(ArgumentError):
        Block.load(tmp_path / "map.toml")


def test_a_file_without_an_end(tmp_path):
    for load in (PhaseDiagram.load, Block.load):
        for path in ("/dev/zero", "a\0b.toml", tmp_path):
            with pytest.raises(ArgumentError) as refused:
                load(path)
            assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["multiprocessing", "loki", "", "sequential", "a\nb"])
def test_a_scheduler_is_one_of_a_list(tmp_path, name, capsys):
    (tmp_path / "map.toml").write_text(SPEC)
    arguments = ["phase-diagram", str(tmp_path / "map.toml"), "--out", str(tmp_path), "--scheduler", name]
    assert tokenwaves.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("tokenwaves: error: --scheduler: got")
    assert "loky, threading, dask" in captured.err
    assert (captured.err.count("\n"), captured.out) == (1, "")


def test_the_estimate_comes_first_and_the_data_keep_the_specification(tmp_path, capsys, monkeypatch):
    (tmp_path / "map.diagram.toml").write_text(SPEC)
    assert tokenwaves.main(["phase-diagram", str(tmp_path / "map.diagram.toml"), "--out", str(tmp_path)]) == 0
    first, last, _, *files = capsys.readouterr().out.splitlines()
    assert first.startswith("map: 6 points (3 × 2), up to 100 layers each, about ")
    assert last.startswith("map: 6 points, 0% settled, ")
    assert [line.strip() for line in files] == [str(tmp_path / f"map.{kind}") for kind in ("pdf", "png", "nc")]
    with xr.open_dataset(tmp_path / "map.nc") as data:
        assert data.attrs["specification"] == SPEC
        assert data.attrs["quantity"] == "amplitude"


def test_a_large_map_is_estimated_before_it_starts(tmp_path, capsys, monkeypatch):
    def begun(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(PhaseDiagram, "compute", begun)
    text = changed((GAIN, "gain = {from = 0.3, to = 0.6, points = 3000}"))
    text = text.replace(STRENGTH, "strength = {from = 1, to = 3, points = 3000}")
    (tmp_path / "map.toml").write_text(text)
    assert tokenwaves.main(["phase-diagram", str(tmp_path / "map.toml"), "--out", str(tmp_path)]) == 130
    captured = capsys.readouterr()
    assert captured.out.startswith("map: 9,000,000 points (3000 × 3000), up to 100 layers each, about ")
    assert " GB of memory" in captured.out
    assert "--resume" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_every_variable_and_parameter_says_what_it_is(tmp_path, quantity):
    text = changed(('"amplitude"', f'"{quantity}"'), ("depth = 100", "depth = 5"), ("points = 3", "points = 2"))
    text = text.replace("[parameters]", "modes = [4, 5]\n[parameters]") if quantity == "competition" else text
    (tmp_path / "map.toml").write_text(text)
    data = PhaseDiagram.load(tmp_path / "map.toml").compute()
    for name, variable in {**data.data_vars, **data.coords}.items():
        assert variable.attrs.get("long_name"), name
        assert variable.attrs.get("units"), name
    assert data.gain.attrs["units"] == "1"
    assert np.array_equal(data.gain, np.linspace(0.3, 0.6, 2))


def test_a_resumed_diagram_is_the_same_document(tmp_path, capsys):
    """Another separation gives other blocks at every point, and another document."""
    path, arguments = tmp_path / "map.toml", ["phase-diagram", str(tmp_path / "map.toml"), "--out", str(tmp_path)]
    path.write_text(SPEC)
    PhaseDiagram.load(path).compute(path=tmp_path / "map.sweep.nc")
    path.write_text("# a comment is no other document\n" + SPEC)
    assert tokenwaves.main([*arguments, "--resume"]) == 0
    capsys.readouterr()
    # the last leaves the block of the first point as it is
    others = {"separation = 4": "separation = 5", "content = 1.5": "content = 1.25", VALUE: '"-gain - (gain - 0.3)"'}
    for old, new in others.items():
        path.write_text(SPEC)
        PhaseDiagram.load(path).compute(path=tmp_path / "map.sweep.nc")
        path.write_text(changed((old, new)))
        assert tokenwaves.main([*arguments, "--resume"]) == 2
        line = capsys.readouterr().err
        assert line.startswith("tokenwaves: error: ")
        assert "resume=" not in line
        assert "with another specification" in line
        assert "--resume" in line


def test_long_work_says_now_and_then_how_far_it_is(tmp_path, monkeypatch, capsys):
    from simulate.runs import progress

    (tmp_path / "map.toml").write_text(SPEC)
    arguments = ["phase-diagram", str(tmp_path / "map.toml"), "--out", str(tmp_path)]
    assert tokenwaves.main(arguments) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    assert tokenwaves.main(arguments) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(re.fullmatch(r"\d+% of the work done, about \d\d:\d\d left", line) for line in lines)
    assert lines[-1].startswith("100%")


def test_an_expression_that_fails_at_the_first_point_costs_no_other(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(changed((VALUE, '"-0.01/(gain - 0.3)"')))
    data = PhaseDiagram.load(path).compute(progress=False)
    assert [STATUS[number] for number in data.status.values[0]] == ["failed", "failed"]
    assert "division by zero" in str(data.reason.values[0, 0])
    assert (data.status.values[1:] < STATUS.index("failed")).all()
