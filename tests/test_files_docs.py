"""docs/files.md lists what the readers read: every key, its default, and a range that they keep to."""

import copy
import datetime
import json
import re
import tomllib
from inspect import Parameter, signature
from pathlib import Path

import pytest
from pages import Page

from dispersion import Activation, ArgumentError, Block, Head, Kernel
from dispersion.block.encodings import BUILT_IN as KERNELS
from dispersion.block.encodings import relu_mlp
from dispersion.block.factors import OutputValue, QueryKey, Rotary
from dispersion.block.mask import AttentionMask
from dispersion.block.toml_reader import AXES, NORMS, Reader, _scaled, _weights
from figures.phase_diagram import QUANTITIES, PhaseDiagram
from figures.phase_diagram.arithmetic import LONGEST
from figures.phase_diagram.diagram import DEPTH, NAME, POINTS
from figures.phase_diagram.spec import BLOCK, DEFAULTS, OPTIONS
from training import Study, Target, engineer
from training.looped_experiment import LoopedExperiment
from training.spec import ARMS, FAMILIES, MANY, TASKS

PAGE = Page("docs/files.md")
LOOPED, BOOLEAN, ARITHMETIC = FAMILIES


def table(heading):
    """The rows of the table under a `heading`."""
    part = PAGE.text.split(f"\n{heading}\n", 1)[1]
    rows = re.search(r"\n(\| .*?)\n(?!\|)", part, re.DOTALL).group(1).split("\n")
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]


def keys(heading):
    """{key: (accepted, default)} of the table under a `heading`."""
    return {row[0].strip("`"): tuple(row[2:]) for row in table(heading)}


def parameters(function, *given):
    return {name: kind for name, kind in signature(function).parameters.items() if name not in ("self", *given)}


NORM = "### `[attention_norm]` and `[feedforward_norm]`"
READ = {
    "### `[[head]]`": parameters(Head),
    "### `[head.value]`": parameters(OutputValue),
    "### `[head.content]`": parameters(QueryKey),
    "### `[head.bias]`": parameters(AttentionMask),
    "### `[head.rotary]`": parameters(Rotary),
    "### `[feedforward]`": {**parameters(_scaled, "d"), **parameters(_weights)},
    "### `[block]`": parameters(Block, "heads", "feedforward", "attention_norm", "feedforward_norm"),
    NORM: {key: kind for norm in NORMS.values() for key, kind in parameters(norm).items()},
}
BESIDES = {"### `[block]`": {"n", "shape"}, NORM: {"type"}}


def test_examples_and_links():
    PAGE.check()


@pytest.mark.parametrize("heading", READ)
def test_every_key_and_default_of_a_block(heading):
    listed = keys(heading)
    assert set(listed) == set(READ[heading]) | BESIDES.get(heading, set())
    for name, parameter in READ[heading].items():
        default = listed[name][1]
        if parameter.default is Parameter.empty:
            assert re.search("`1` for each feature" if name == "gain" else "needed", default)
        elif parameter.default is None:
            assert re.match("none|`0`", default)
        else:
            assert default == f"`{json.dumps(parameter.default)}`"


def test_every_kernel():
    rows = {row[0].strip("`"): row[1] for row in table("### `kernel`")}
    assert tuple(rows) == KERNELS
    for name, text in rows.items():
        found = {
            key: "" if kind.default is Parameter.empty else json.dumps(kind.default)
            for key, kind in parameters(getattr(Kernel, name), "n", "shape").items()
        }
        listed = [part.split(" = ") for part in re.findall(r"`([^`]+)`", text)]
        assert {key: "".join(default) for key, *default in listed} == found
    assert all(f"`{key}`" in PAGE.text for key in (*parameters(relu_mlp), "weight"))


def test_every_activation_and_normalisation():
    accepted = keys("### `[feedforward]`")["activation"][0]
    assert set(re.findall(r'"(\w+)"', accepted)) == set(Activation.names())
    accepted = keys(NORM)["type"][0]
    assert set(re.findall(r'"(\w+)"', accepted)) == set(NORMS)


def test_every_key_and_default_of_a_diagram():
    listed = keys("## A phase diagram")
    assert set(listed) == set(OPTIONS)
    assert {name: listed[name][1] for name in DEFAULTS} == {name: f"`{value}`" for name, value in DEFAULTS.items()}
    assert set(re.findall(r'"(\w+)"', listed["quantity"][0])) == set(QUANTITIES)
    for name in BLOCK:
        assert f"[{name}]" in PAGE.text
    assert f"{NAME} characters at most" in PAGE.text
    assert f"{LONGEST} characters at most" in PAGE.text
    assert f"up to {AXES} whole" in PAGE.text
    assert (DEPTH, POINTS) == (10**8, 10**7)


NUMBERS = {"array": [[0.5]], "whole": 2}
KERNEL = {
    "table": {"logits": [0.0] * 8},
    "uniform": {},
    "gaussian_lobes": {"separation": 2, "width": 1.0, "strength": 2.0},
    "skewed_lobe": {"separation": 2.0, "width_below": 1.0, "width_above": 2.0, "strength": 1.0},
    "von_mises": {"wavenumber": 2, "strength": 1.0},
    "alibi": {"slope": 0.5},
    "kerple_log": {"r1": 1.0, "r2": 1.0},
    "kerple_power": {"r1": 1.0, "r2": 1.0},
    "fire": {"mlp": {"weight_in": [1.0], "bias_in": [0.0], "weight_out": [-1.0]}, "c": 1.0, "threshold": 9.0},
    "convit": {"centre": 2.0, "strength": 0.1},
    "convit_learned": {"weights": [-0.1, 0.2]},
    "t5": {"table": [0.0] * 8},
    "swin": {"table": [0.0, 1.0, 0.5]},
    "mask": {"m": [1.0] * 8},
}
DOCUMENT = {
    "block": {"n": 8},
    "head": [{"kernel": {"type": "uniform"}, "value": [[-0.4, 0.0], [0.1, -0.3]], "key_bias": [0.1, 0.2], "gate": 0.5}],
    "feedforward": {
        "activation": "polynomial",
        "coefficients": [-0.1],
        **{"weight_in": [[1.0, 0.0]], "weight_out": [[1.0], [0.0]], "bias_in": [0.1], "bias_out": [0.1, 0.0]},
        **{"weight_gate": [[1.0, 0.0]], "bias_gate": [0.0]},
    },
    "attention_norm": {"type": "LayerNorm", "gain": [1.0, 2.0], "bias": [0.0, 0.1], "eps": 0.1},
    "feedforward_norm": {"type": "DyT", "alpha": 0.5},
}
ROTARY = {"query": [[1.0, 0.0], [0.0, 1.0]], "key": [[1.0, 0.0], [0.0, 1.0]], "frequencies": [0.5]}


def places():
    """(document, the table in it that a heading describes, its heading)."""
    document = copy.deepcopy(DOCUMENT)
    yield document, document["block"], "### `[block]`"
    document = copy.deepcopy(DOCUMENT)
    yield document, document["head"][0], "### `[[head]]`"
    document = copy.deepcopy(DOCUMENT)
    document["head"][0].pop("key_bias")
    document["head"][0]["rotary"] = copy.deepcopy(ROTARY)
    yield document, document["head"][0]["rotary"], "### `[head.rotary]`"
    document = copy.deepcopy(DOCUMENT)
    document["head"][0] |= {"value": {"output": [[1.0], [0.5]], "value": [[0.3, -0.2]]}}
    yield document, document["head"][0]["value"], "### `[head.value]`"
    document = copy.deepcopy(DOCUMENT)
    document["head"][0].pop("key_bias")
    document["head"][0]["content"] = {"query": [[1.0, 0.5]], "key": [[0.3, -0.2]], "query_bias": [0.1]}
    yield document, document["head"][0]["content"], "### `[head.content]`"
    document = copy.deepcopy(DOCUMENT)
    document["head"][0]["bias"] = {"m": [[0.5] * 8] * 8}
    yield document, document["head"][0]["bias"], "### `[head.bias]`"
    document = copy.deepcopy(DOCUMENT)
    yield document, document["feedforward"], "### `[feedforward]`"
    document = copy.deepcopy(DOCUMENT)
    yield document, document["attention_norm"], NORM


OUTSIDE = {"2 or more": 1, "1 or more": 0, "0 or more": -1, "0 to 1": 1.5, "above 0": 0}


@pytest.mark.parametrize("place", range(8))
def test_what_a_key_accepts(place):
    document, part, heading = list(places())[place]
    Reader(Path("block.toml")).block(document)
    for name, (accepted, _) in keys(heading).items():
        wrong = [datetime.date(2020, 1, 1), "x", True, *(value for text, value in OUTSIDE.items() if text in accepted)]
        for value in wrong:
            before = dict(part)
            part[name] = [value] if name == "shape" else value
            if name in ("n", "shape"):
                part.pop({"n": "shape", "shape": "n"}[name], None)
            if (name, value) != ("type", "DyT"):
                with pytest.raises(ArgumentError) as refused:
                    Reader(Path("block.toml")).block(document)
                assert name in str(refused.value), (name, value)
            part.clear()
            part.update(before)


@pytest.mark.parametrize("name", KERNELS)
def test_what_a_kernel_accepts(name):
    kernel = {"type": name, **KERNEL[name]}
    document = {"block": {"n": 8}, "head": [{"kernel": kernel, "value": 1.0}]}
    Reader(Path("block.toml")).block(document)
    row = next(row for row in table("### `kernel`") if row[0] == f"`{name}`")
    for key in re.findall(r"`(\w+)", row[1]):
        above = name.endswith(("lobe", "lobes")) and key.startswith("width")
        for value in (datetime.date(2020, 1, 1), "x", *([0.0] if above else [])):
            head = {"kernel": {**kernel, key: value}, "value": 1.0}
            with pytest.raises(ArgumentError, match=key):
                Reader(Path("block.toml")).block({**document, "head": [head]})


def test_what_a_diagram_accepts(tmp_path):
    path = tmp_path / "map.toml"
    source = PAGE.examples[1][0]
    text = re.search(r'"""(.*)"""', source, re.DOTALL).group(1)
    head, rest = text.split("[parameters]")
    for name, (accepted, _) in keys("## A phase diagram").items():
        wrong = ["2020-01-01", '"x"', "true", *(str(value) for text, value in OUTSIDE.items() if text in accepted)]
        for value in wrong:
            kept = "\n".join(line for line in head.split("\n") if not line.strip().startswith(name))
            below = rest[rest.index("[block]") :] if name == "parameters" else f"[parameters]{rest}"
            document = f"{kept}\n{name} = {value}\n{below}"
            tomllib.loads(document)
            path.write_text(document)
            with pytest.raises(ArgumentError, match=name):
                PhaseDiagram.load(path)


STUDY = tomllib.loads(re.search(r'"""(.*)"""', PAGE.examples[2][0], re.DOTALL).group(1))


def as_text(default):
    """A default as the page has it."""
    return f"`{json.dumps(list(default) if isinstance(default, tuple) else default)}`"


def test_every_key_and_default_of_a_study():
    listed = keys("## A study")
    assert set(listed) == set(LOOPED.keys)
    defaults = {**signatures(Study, MANY), **signatures(LoopedExperiment, LOOPED.settings)}
    assert {name: listed[name][1] for name in defaults} == {name: as_text(value) for name, value in defaults.items()}


def signatures(function, names):
    return {name: signature(function).parameters[name].default for name in names}


@pytest.mark.parametrize(("heading", "kinds"), [("### `[[task]]`", TASKS), ("### `[[arm]]`", ARMS)])
def test_every_key_and_default_of_tasks_and_arms(heading, kinds):
    rows = {row[0].strip("`"): row[-1] for row in table(heading)}
    assert set(rows) == set(kinds)
    part = PAGE.text.split(f"\n{heading}\n", 1)[1].split("\n| key |", 1)[1].split("\n\n", 1)[0]
    listed = {row.split("|")[1].strip(" `"): row.split("|")[-2].strip() for row in part.split("\n")[2:]}
    every = {name: parameters(kind, "loops", "folder") for name, kind in kinds.items()}
    assert set(listed) == {key for found in every.values() for key in found}
    for kind, found in every.items():
        shared = set.intersection(*map(set, every.values()))
        own = set(re.findall(r"`(\w+)`", rows[kind]))
        assert own == set(found) - shared or rows[kind] in ("all below", "none")
        assert rows[kind] != "none" or not found
        for name, parameter in found.items():
            default = parameter.default
            if default is Parameter.empty:
                assert listed[name] == "needed"
            elif name != "label":
                assert re.sub(r" for a shift$", "", listed[name]).split("; ")[
                    kind == "coherent_shift" and -1
                ] == as_text(default)


def study_tables():
    """(document, the table in it, keys that may be wrong in it)."""
    accepted = keys("## A study")
    document = copy.deepcopy(STUDY)
    yield document, document, {name: accepted[name][0] for name in accepted}
    for heading, place in (("### `[[task]]`", "task"), ("### `[[arm]]`", "arm")):
        part = PAGE.text.split(f"\n{heading}\n", 1)[1].split("\n| key |", 1)[1].split("\n\n", 1)[0]
        for kind in TASKS if place == "task" else ARMS:
            document = copy.deepcopy(STUDY)
            chosen = {
                "type": kind,
                **({"wavenumber": 5} if kind == "engineered" else {"file": "own.toml"} if kind == "block" else {}),
            }
            document[place] = [chosen]
            found = parameters({**TASKS, **ARMS}[kind], "loops", "folder")
            rows = {row.split("|")[1].strip(" `"): row.split("|")[3] for row in part.split("\n")[2:]}
            yield document, chosen, {name: rows[name] for name in found}


@pytest.mark.parametrize("place", range(9))
def test_what_a_study_accepts(place, tmp_path):
    engineer(Target(5)).save(tmp_path / "own.toml")
    document, part, accepted = list(study_tables())[place]
    load_study(tmp_path, document)
    for name, text in accepted.items():
        wrong = [datetime.date(2020, 1, 1), True, *(value for said, value in OUTSIDE.items() if said in text)]
        wrong += [] if name == "label" else ["x"]
        for value in wrong:
            before = dict(part)
            part[name] = [value] if text.startswith("a list of whole") and not isinstance(value, str) else value
            with pytest.raises(ArgumentError) as refused:
                load_study(tmp_path, document)
            assert name in str(refused.value), (name, value)
            assert "own.study.toml" in str(refused.value)
            part.clear()
            part.update(before)


PRIORS = PAGE.text.split("\n### A study of priors\n", 1)[1]
PRIOR_TASKS, PRIOR_SETTINGS, PRIOR_ARMS, PRIOR_KEYS = (
    [[cell.strip() for cell in row.split(" | ")] for row in rows.strip("\n| ").replace(" |\n| ", "\n").split("\n")]
    for rows in re.findall(r"\n\| ---.*?\n(\|.*?)\n\n", PRIORS, re.DOTALL)
)


def test_every_key_and_default_of_a_study_of_priors():
    listed = {row[0].strip("`"): row[-1].split("; ") for row in PRIOR_SETTINGS}
    both = (BOOLEAN, ARITHMETIC)
    assert set(listed) == {name for family in both for name in family.settings}
    for number, family in enumerate(both):
        for name, value in signatures(family.experiment, family.settings).items():
            stated = listed[name]
            assert stated[number if len(stated) > 1 else 0] == (as_text(value) if value is not None else "none")
    named = [(set(re.findall(r"`(\w+)`", row[0])), row[2]) for row in PRIOR_TASKS]
    for (names, text), family in zip(named, both, strict=True):
        assert names == set(family.tasks)
        for task in family.tasks.values():
            ((key, kind),) = parameters(task).items()
            assert text.startswith(f"`{key}`")
            assert text.endswith(f"`{kind.default}`")


def test_every_key_and_default_of_arms_of_priors():
    listed = {row[0].strip("`"): row[-1] for row in PRIOR_KEYS}
    kinds = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[-1])) for row in PRIOR_ARMS}
    found = {name: parameters(kind) for name, kind in BOOLEAN.arms.items()}
    assert kinds == {name: set(keys) for name, keys in found.items()}
    assert set(listed) == {key for keys in found.values() for key in keys}
    for keys_of in found.values():
        assert {name: listed[name] for name in keys_of} == {n: as_text(kind.default) for n, kind in keys_of.items()}


PRIOR_STUDY = {"steps": 2, "seeds": 1, "sizes": [16], "task": [{"type": "2parity"}], "arm": [{"type": "mask"}]}


@pytest.mark.parametrize("kind", BOOLEAN.arms)
def test_what_an_arm_of_a_prior_accepts(kind, tmp_path):
    task = "cyclic3" if kind == "kernel" else "2parity"  # kernels need a circulant pattern
    document = {**PRIOR_STUDY, "task": [{"type": task}]}
    assert len(load_study(tmp_path, {**document, "arm": [{"type": kind, "decay": ["nowhere", "elsewhere"]}]}).arms) == 2
    for name in parameters(BOOLEAN.arms[kind]):
        for value in (datetime.date(2020, 1, 1), "x", [], 0):
            if (name, value) == ("contrast", []):
                assert load_study(tmp_path, {**document, "arm": [{"type": kind, name: [2, 1]}]}).arms
            with pytest.raises(ArgumentError) as refused:
                load_study(tmp_path, {**document, "arm": [{"type": kind, name: value}]})
            assert f"arm[0].{name}: got" in str(refused.value), (name, value)


@pytest.mark.parametrize("task", [*BOOLEAN.tasks, *ARITHMETIC.tasks])
def test_what_a_study_of_priors_accepts(task, tmp_path):
    family = BOOLEAN if task in BOOLEAN.tasks else ARITHMETIC
    heads = 3 if family is BOOLEAN else 4
    document = {**PRIOR_STUDY, "heads": heads, "task": [{"type": task}], "arm": [{"type": "default"}]}
    assert isinstance(load_study(tmp_path, document).experiment, family.experiment)
    for name in family.settings:
        for value in (datetime.date(2020, 1, 1), "x", True, -1):
            with pytest.raises(ArgumentError) as refused:
                load_study(tmp_path, {**document, name: value})
            assert f"own.study.toml: {name}" in str(refused.value), (name, value)
    for name in (*family.without, "loops", "device"):
        with pytest.raises(ArgumentError, match=f"{name}: got an unknown key"):
            load_study(tmp_path, {**document, name: 8})
    key = "n" if family is BOOLEAN else "digits"
    for other, wrong in ((task, rf"task\[1\].*\b{key}\b.*: got 99"), ("spectral_infilling", r"task\[1\]\.type: got")):
        with pytest.raises(ArgumentError, match=wrong):
            load_study(tmp_path, {**document, "task": [{"type": task}, {"type": other, key: 99}]})


def load_study(folder, document):
    path = folder / "own.study.toml"
    path.write_text(as_toml(document))
    return Study.load(path)


def as_toml(document):
    tables = {name: document[name] for name in ("task", "arm") if isinstance(document.get(name), list)}
    lines = [f"{name} = {in_toml(value)}" for name, value in document.items() if name not in tables]
    for name, rows in tables.items():
        for row in rows:
            pairs = row.items() if isinstance(row, dict) else []
            lines += [f"[[{name}]]", *(f"{key} = {in_toml(value)}" for key, value in pairs)]
    return "\n".join(lines)


def in_toml(value):
    if isinstance(value, list):
        return f"[{', '.join(map(in_toml, value))}]"
    return value.isoformat() if isinstance(value, datetime.date) else json.dumps(value)
