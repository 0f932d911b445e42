"""The command line on random arguments and mutated files: it works or refuses in one line, and soon."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from fuzzing import budget, fuzz
from hypothesis import strategies as st

import tokenwaves
from dispersion.block.encodings import BUILT_IN

ROOT = Path(__file__).parent.parent
LIMIT = 10
"""Seconds that a refusal or a small job may take."""

SPEC = """
quantity = "amplitude"
depth = 20
seed = 1
[parameters]
gain = {from = 0.3, to = 0.6, points = 2}
strength = [1.5, 2.5]
[block]
n = 8
[[head]]
kernel = {type = "gaussian_lobes", separation = 2, width = 1.0, strength = "strength"}
value = "-gain"
content = 1.5
[feedforward]
activation = "tanh"
scale = -0.1
"""
SPECS = [
    SPEC,
    SPEC.replace('"amplitude"', '"competition"').replace("seed = 1", "modes = [2, 3]"),
    SPEC.replace('"amplitude"', '"wavenumber"').replace("strength = [1.5, 2.5]", "").replace('"strength"', "2"),
    SPEC.replace('"amplitude"', '"clusters"').replace("seed = 1", "tolerance = 0"),
    SPEC.replace('"amplitude"', '"speed"').replace("seed = 1", "start = 0.1").replace("n = 8", "shape = [4, 3]"),
]
BLOCKS = [
    '[block]\nn = 8\n[[head]]\nkernel = {type = "alibi", slope = 0.5, causal = true}\nvalue = [[0.3, 0], [0, -0.2]]\n'
    'content = [[1.0, 0.0], [0.0, 1.0]]\n[feedforward]\nactivation = "gelu"\nweight_in = [[1.0, 0.2]]\n'
    'weight_out = [[0.1], [0.2]]\nbias_in = [0.1]\n[attention_norm]\ntype = "LayerNorm"\neps = 0.1\n',
    '[block]\nshape = [4, 4]\nattention_scale = 0.5\n[[head]]\nkernel = [{type = "uniform"}, {type = "convit", '
    "centre = [1, 0], strength = 0.5, weight = 2.0}]\nvalue = -0.4\ngate = 0.5\nkey_bias = [0.1]\n",
    "[block]\nn = 8\n[[head]]\nvalue = [[0.3, 0.1], [0.0, -0.2]]\nkernel = {logits = [0, 1, 2, 3, 3, 2, 1, -inf]}\n"
    "[head.rotary]\nquery = [[1, 0], [0, 1]]\nkey = [[1, 0], [0, 1]]\nfrequencies = [0.785398163397448]\n",
    '[block]\nn = 6\nplacement = "post"\n[[head]]\nkernel = {type = "t5", table = [0, 1, 2, 3, 4, 5]}\nvalue = 1.0\n'
    '[feedforward_norm]\ntype = "DyT"\n[feedforward]\nactivation = "polynomial"\ncoefficients = [0.1, 0.2]\n',
]
KERNELS = list(BUILT_IN)
VALUES = [
    *(
        [
            "true",
            "nan",
            "inf",
            "-inf",
            "-1",
            "0",
            "1",
            "2",
            "3",
            "0.5",
            "-0.0",
            "1e308",
            "-1e308",
            "1e-320",
            "1.0",
            "[]",
            "{}",
            "[[]]",
            "1979-05-27",
            "07:32:00",
            "''",
            "'x'",
            "['a']",
        ]
    ),
    *("[1, 2]", "[2, 1]", "[0.5, 0.5]", "[[1.0, 2.0], [3.0, 4.0]]", "[true, 2]", "[1e-300, 1e300]", "[-1e9, 0.0, 1e9]"),
    *("9" * 400, "0x7fffffffffffffff", "2147483648", "4611686018427387904", "1_000_000_000_000", "'''a\nb'''"),
    *(
        [
            '"gain"',
            '"-gain"',
            '"gain**gain"',
            '"9**9**9*gain"',
            '"1/(gain-0.3)"',
            '"(gain"',
            '"gain/0"',
            '"(0-gain)**0.5"',
            '"$x_{"',
        ]
    ),
    *('"1e308*10*gain"', '"strength*gain"', '"-' + "-" * 3000 + 'gain"', '{npz = "a"}', '"\\u0000"'),
    *(f"{{from = {a}, to = {b}, points = {n}}}" for a, b, n in ((0, 1, 2), (1, 1, 3), (0, 1e300, 3))),
    *(['"tanh"', '"relu"', '"polynomial"', '"sine"', '"pre"', '"LayerNorm"', '"RMSNorm"', '"half"']),
    *(['"amplitude"', '"speed"', '"clusters"', '"wavenumber"', '"competition"']),
    *(f'{{type = "{name}"}}' for name in KERNELS),
    *('{type = "alibi", slope = 1e300}', '{type = "uniform", weight = inf}', "{logits = [-inf, 0, 0, 0, 0, 0, 0, 0]}"),
]
LINES = [
    *(
        [
            "[block]",
            "[[head]]",
            "[head]",
            "[parameters]",
            "[feedforward]",
            "[attention_norm]",
            "[head.rotary]",
            "[a.b]",
            "x",
            "\x00",
            "\ufeff",
        ]
    ),
    *("modes = [2, 3]", "start = 0.1", "start = 0", "depth = 3", "n = 8", "shape = [2, 4]", "key_bias = [0.1]"),
    *(
        "gate = 0.5",
        'type = "RMSNorm"',
        "gain = [1.0]",
        "bias = [1.0]",
        "mean = [1, 2]",
        "lambda = [1, 2]",
        "\r",
        "= 1",
    ),
    *("coefficients = [1.0, 2.0]", "'a' = 1", "k" * 3000 + " = 1", "a = " + "[" * 2000, '"a\\nb" = 1', "é = 1"),
]
CHANGES = ("value", "value", "value", "part", "line", "drop", "twice", "damage")


@st.composite
def mutated(draw, texts):
    """A text of `texts` with up to four changes: other values and keys, lines added, left out, repeated, damaged."""
    lines = draw(st.sampled_from(texts)).strip("\n").split("\n")
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        line, change = (
            lines[at],
            draw(st.sampled_from(["value", "value", "value", "part", "line", "drop", "twice", "damage"])),
        )
        if change == "value" and "=" in line:
            lines[at] = f"{line.split('=')[0]}= {draw(st.sampled_from(VALUES))}"
        elif change == "part":
            places = list(re.finditer(r'"\w+"|-?\d+(\.\d+)?|\w+(?= =)', line))
            if places:
                place = draw(st.sampled_from(places))
                lines[at] = line[: place.start()] + draw(st.sampled_from(VALUES)) + line[place.end() :]
        elif change == "line":
            lines.insert(at, draw(st.sampled_from(LINES)))
        elif change == "drop" and len(lines) > 1:
            del lines[at]
        elif change == "twice":
            lines.insert(draw(st.integers(0, len(lines))), line)
        elif change == "damage":
            cut = draw(st.integers(0, len(line)))
            lines[at] = line[:cut] + draw(st.text(max_size=3)) + line[cut + draw(st.integers(0, 2)) :]
    return "\n".join(lines) + "\n"


LONG = "x" * 300
STATES = ["0", "0.1", "0.1,0.2", "-0.1,0.2", "nan", "1e308,1e308", "a", "", ",", "1" * 400, "state.npy", "bad.npy"]
STATES += ["block.toml", "token:3", "mean", "zeros", "token:", "/dev/null", ".", "a\0b"]
NUMBERS = ["0", "1", "2", "-1", "99", "a", "", "1e3", "9" * 400, "3.5", "nan", " 7", "²"]
FILES = [
    "missing.toml",
    ".",
    "",
    "state.npy",
    "/dev/null",
    LONG,
    "a\0.toml",
    "block.toml/x",
    "-",
    "--",
    "ä.toml",
    "\ud800",
]
PICTURES = ["a.png", "a.pdf", "a.svg", "a.PNG", "a.gif", "a", ".png", "missing/a.png", "folder.png", "", "\0.png"]
PICTURES += [LONG + ".png"]
WORDS = ["--help", "--version", "-h", "--", "-x", "--plo", "--state=", "extra", "--json=1", "\0", "a" * 9999, "--modes"]
OPTIONS = {
    "dispersion": {"--state": STATES, "--modes": NUMBERS, "--plot": PICTURES, "--json": None, "--fixed-points": None},
    "phase-diagram": {
        "--out": [".", "out", "block.toml", "block.toml/x", "", "/proc/x", "\0", LONG],
        "--scheduler": ["multiprocessing", "loki", "", "a\nb", "threading"],
        "--resume": None,
    },
    "check": {
        **{"--state": STATES, "--tokens": NUMBERS, "--layers": [*NUMBERS[:3], *NUMBERS[5:]], "--plot": PICTURES},
        **{"--family": ["bert", "vit", "x", ""], "--config": FILES, "--boundary": ["periodic", "open", "causal", "x"]},
        **{"--device": ["cpu", "cuda", "meta", "", "cuda:99", "\0"], "--json": None},
    },
    "figures": {"--out": ["out", "block.toml", "\0", "block.toml/x"], "--quick": None, "--fast": None},
    "derive": {"--latex": None},
}
NAMES = {"figures": ["fig99", "", "fig2.png", "a\nb", "fig2 fig3"], "derive": ["rmsnorm", "x", "", "a\nb"]}
"""What stands for the file; of figures those that there are take long."""


@st.composite
def command_lines(draw):
    """(arguments, text of the file that they name, or None)."""
    command = draw(st.sampled_from([*OPTIONS, "phase-diagram", "dispersion", "dispersion", "check"]))
    text = None
    arguments = [command]
    if command in NAMES:
        arguments += draw(st.lists(st.sampled_from(NAMES[command]), min_size=command == "figures", max_size=2))
    elif draw(st.integers(0, 9)):
        wrong_kind = not draw(st.integers(0, 19))
        text = draw(mutated(SPECS if (command == "phase-diagram") != wrong_kind else BLOCKS))
        arguments.append("file.toml")
    else:
        arguments.append(draw(st.sampled_from([*FILES, "os:nothing", "math:sin", "nowhere:f", "sys:exit", ":", "a:"])))
    for name in draw(st.lists(st.sampled_from(list(OPTIONS[command])), max_size=3, unique=True)):
        values = OPTIONS[command][name]
        value = None if values is None else draw(st.sampled_from(values))
        arguments += [name] if value is None else [name, value] if draw(st.booleans()) else [f"{name}={value}"]
    if not draw(st.integers(0, 9)):
        arguments.insert(draw(st.integers(0, len(arguments))), draw(st.sampled_from([*WORDS, *OPTIONS])))
    return arguments, text


class Hung(BaseException):
    """More than LIMIT seconds of work."""


def run(arguments):
    """(status, output, error, warnings) of the command line in this process, an exception being one of it."""

    def late(*_):
        raise Hung

    output, error = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)  # of this process, whatever else the machine does
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(error),
        ):
            warnings.simplefilter("always")
            try:
                status = tokenwaves.main(arguments)
            except SystemExit as stop:
                status = stop.code
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return status, output.getvalue(), error.getvalue(), [str(warning.message) for warning in warned]


def judge(status, output, error, warned):
    assert status in (0, 2)
    # torch and joblib say what they will change one day
    assert not [text for text in warned if "deprecated" not in text]
    if status == 2:
        assert error.startswith("tokenwaves: error: ")
        assert error.count("\n") == 1
        assert error[:-1].isprintable()
        assert len(error) < 1500
    else:
        assert error == ""
        assert output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("state.npy", [0.1, 0.2])
    Path("bad.npy").write_bytes(Path("state.npy").read_bytes()[:-9])
    Path("folder.png").mkdir()
    Path("block.toml").write_text(BLOCKS[0], encoding="utf-8")
    return tmp_path


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="no timer to end what hangs")
@budget(15)
def test_it_works_or_refuses_in_one_line(examples, folder):
    counts = {0: 0, 2: 0}
    for command, text in (("phase-diagram", SPEC), ("check", BLOCKS[1])):  # what is loaded once is not counted
        Path("file.toml").write_text(text, encoding="utf-8")
        tokenwaves.main([command, "file.toml"])

    def prop(line):
        arguments, text = line
        if text is not None:
            Path("file.toml").write_text(text, encoding="utf-8", errors="surrogatepass")
        found = run(arguments)
        judge(*found)
        counts[found[0]] += 1

    fuzz(prop, examples, command_lines())
    assert all(counts.values())


@pytest.mark.slow
def test_it_does_so_in_a_process_of_its_own(folder):
    def prop(line):
        arguments, text = line
        if text is not None:
            Path("file.toml").write_text(text, encoding="utf-8", errors="surrogatepass")
        # what a system passes on
        arguments = [argument for argument in arguments if "\0" not in argument and argument != "\ud800"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tokenwaves",
                *(a.encode("utf-8", "surrogateescape") for a in arguments if a != "\ud800"),
            ],
            capture_output=True,
            env=environment,
            timeout=60,
        )
        judge(done.returncode, done.stdout.decode(), done.stderr.decode(), [])

    fuzz(prop, 12, command_lines())
