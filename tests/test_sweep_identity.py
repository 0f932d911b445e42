"""A sweep goes on only with itself: every block, start state and measure; names and numbers are checked first."""

import functools
import json
import math
import operator
import os

import numpy as np
import pytest

import simulate.plan
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from simulate import STATUS, load, sweep
from simulate.runs.identity import digest

N = 8
GAINS = {"gain": np.linspace(0.2, 1.2, 6)}
KERNEL = Kernel.gaussian_lobes(N, separation=2, width=0.7, strength=2.0)
HELPED, SCALE = np.sin, 2.0


def make_block(gain):
    return Block([Head(KERNEL, -gain, 1.5)], FeedForward.scalar("tanh", -0.1))


class Killed(BaseException):
    """Ends a sweep without giving it a chance to tidy up."""


def sweep_half(path, points=4, **keywords):
    """A sweep that dies when it comes to point `points`, with groups of two before it on the disk."""
    build = simulate.plan.build

    def dying(make, axes, point):
        if point >= points:
            raise Killed
        return build(make, axes, point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate.plan, "build", dying)
        with pytest.raises(Killed):
            sweep(**{"make_block": make_block, "parameters": GAINS, "depth": 20, "group": 2} | keywords, path=path)


def go_on(path, **keywords):
    defaults = {"make_block": make_block, "parameters": GAINS, "depth": 20, "group": 2, "resume": True}
    return sweep(**defaults | keywords, path=path)


def refused_unfinished_and_finished(tmp_path, first, other, named):
    """`first` goes on with itself; `other` goes on neither with its half nor with its whole."""
    path = tmp_path / "a.nc"
    sweep_half(path, **first)
    with pytest.raises(ArgumentError, match=named) as caught:
        go_on(path, **other)
    assert "\n" not in str(caught.value)
    whole = go_on(path, **first)
    assert go_on(path, **first).identical(whole)
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match="path"):
        go_on(path, **other)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.nc"]


def constant_start(value):
    return lambda block, rng: np.full((N, 1), value)


def default_start(value):
    def start(block, rng, value=value):
        return np.full((N, 1), value)

    return start


def partial_start(value):
    return functools.partial(lambda value, block, rng: np.full((N, 1), value), value)


def nested_start(value):
    return lambda block, rng: (lambda: (lambda: np.full((N, 1), value))())()


class Start:
    def __init__(self, value):
        self.value = value

    def __call__(self, block, rng):
        return np.full((N, 1), self.value)


@pytest.mark.parametrize("make", [constant_start, default_start, partial_start, nested_start, Start])
def test_start_functions_are_known_by_the_states_they_return(tmp_path, make):
    refused_unfinished_and_finished(
        tmp_path, {"start": make(0.1)}, {"start": make(0.3)}, "start states at points 0 to 1"
    )


def constant_measure(factor):
    return lambda path: {"z": factor * np.abs(path.state).max()}


def default_measure(factor):
    def measure(path, *, factor=factor):
        return {"z": factor * np.abs(path.state).max()}

    return measure


def partial_measure(factor):
    return functools.partial(lambda factor, path: {"z": factor * np.abs(path.state).max()}, factor)


def nested_measure(factor):
    return lambda path: {"z": (lambda: (lambda x: factor * x)(np.abs(path.state).max()))()}


def scaling(factor):
    return functools.partial(operator.mul, factor)


class Measure:
    def __init__(self, factor):
        self.factor = [{"factor": factor}]

    def __call__(self, path):
        return {"z": self.factor[0]["factor"] * np.abs(path.state).max()}

    def method(self, path):
        return self(path)


MEASURES = [
    constant_measure,
    default_measure,
    partial_measure,
    nested_measure,
    lambda factor: (lambda scale: lambda path: {"z": scale(np.abs(path.state).max())})(scaling(factor)),
    Measure,
    lambda factor: Measure(factor).method,
    lambda factor: lambda path, _sets={"a", "b", factor}: {"z": max(v for v in _sets if isinstance(v, float))},
]


@pytest.mark.parametrize("make", MEASURES)
def test_measures_are_known_by_all_they_hold(tmp_path, make):
    refused_unfinished_and_finished(tmp_path, {"measure": make(2.0)}, {"measure": make(3.0)}, "measure")


def helped(path):
    return {"z": SCALE * HELPED(np.abs(path.state).max())}


def helping(path):
    return helped(path)


def own_helper(x):
    return x


def by_helper(path):
    return {"z": own_helper(np.abs(path.state).max())}


@pytest.mark.parametrize(
    ("measure", "name", "value"),
    [
        (helped, "HELPED", np.tan),
        (helping, "HELPED", np.tan),
        (helping, "SCALE", 2.5),
        (by_helper, "own_helper", lambda x: 1.5 * x),
    ],
)
def test_measures_are_known_by_the_globals_they_name(tmp_path, monkeypatch, measure, name, value):
    path = tmp_path / "a.nc"
    sweep_half(path, measure=measure)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), name, value)
        with pytest.raises(ArgumentError, match="another measure"):
            go_on(path, measure=measure)
    go_on(path, measure=measure)
    monkeypatch.setitem(globals(), name, value)
    with pytest.raises(ArgumentError, match="another sweep"):
        go_on(path, measure=measure)


def test_a_measure_whose_change_no_code_shows_is_measured_again(tmp_path):
    threshold = tmp_path / "threshold"

    def measure(path):
        return {"z": float(threshold.read_text()) * np.abs(path.state).max()}

    threshold.write_text("2.0")
    path = tmp_path / "a.nc"
    sweep_half(path, measure=measure)
    threshold.write_text("3.0")
    with pytest.raises(ArgumentError, match=r"another measure: z at point 0"):
        go_on(path, measure=measure)
    threshold.write_text("2.0")
    go_on(path, measure=measure)
    threshold.write_text("3.0")
    with pytest.raises(ArgumentError, match=r"another measure: z at point 0"):
        go_on(path, measure=measure)


def later(number):
    """Blocks that differ at point 3 alone."""
    return lambda gain: Block([Head(KERNEL, -gain, number if gain > 0.7 else 1.5)], FeedForward.scalar("tanh", -0.1))


def test_every_block_counts_and_not_the_first_alone(tmp_path):
    first, other = {"make_block": later(1.5)}, {"make_block": later(1.2)}
    refused_unfinished_and_finished(tmp_path, first, other, "other blocks or start states at points 2 to 3")


def test_a_call_that_differs_where_nothing_is_done_yet_goes_on(tmp_path):
    path = tmp_path / "a.nc"
    sweep_half(path, points=2, make_block=later(1.5))
    go_on(path, make_block=later(1.2))
    alone = sweep(later(1.2), GAINS, 20, path=tmp_path / "b.nc")
    assert load(path).identical(alone)


def failing(reason):
    def make(gain):
        if gain < 0.3:
            raise KeyError(reason, object())
        return make_block(gain)

    return make


def test_reasons_of_failures_count(tmp_path):
    first, other = {"make_block": failing("one")}, {"make_block": failing("two")}
    refused_unfinished_and_finished(tmp_path, first, other, "other blocks or start states at points 0 to 1")


def test_the_text_of_identity_counts(tmp_path):
    first, other = {"identity": "separation = 3"}, {"identity": "separation = 5"}
    refused_unfinished_and_finished(tmp_path, first, other, "another identity")
    first, other = ({"identity": {"recipe": text}} for text in ("separation = 3", "separation = 5"))
    refused_unfinished_and_finished(tmp_path, first, other, "another recipe")


def test_what_is_the_same_by_value_has_one_digest():
    def made(factor):
        table = {"x": np.arange(3.0), "y": (factor, None, True)}
        return lambda path, other={"b", "a"}: (table, other, math.sin)

    assert digest(made(2.0)) == digest(made(2.0))
    assert digest(made(2.0)) != digest(made(2))
    assert digest([1, [2]]) != digest([[1], 2])
    assert digest(make_block(0.5)) == digest(make_block(0.5)) != digest(make_block(0.6))
    around = []
    around.append(around)
    assert digest(around) == digest(around)


def statuses(dataset):
    return [STATUS[number] for number in dataset.status.values.ravel()]


def test_starts_that_all_diverge_leave_a_dataset():
    found = sweep(make_block, GAINS, depth=20, start=1e7)
    assert statuses(found) == ["diverged"] * 6
    assert (found.layers == 0).all()
    mixed = sweep(make_block, GAINS, depth=20, start=lambda block, rng: 1e7 if block.heads[0].value < -0.5 else 1e-3)
    assert "reason" in mixed


@pytest.mark.parametrize("group", [None, 1, 4])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError, TypeError, IndexError, AssertionError, StopIteration])
def test_a_point_that_raises_costs_no_other(error, group):
    def make(gain):
        if 0.3 < gain < 0.5:
            raise error("a reason")
        return make_block(gain)

    found = sweep(make, GAINS, depth=20, group=group)
    assert statuses(found).count("failed") == 1
    assert error.__name__ in found.reason.values[1]
    assert "a reason" in found.reason.values[1]
    whole = sweep(make_block, GAINS, depth=20)
    np.testing.assert_array_equal(found.state[2:], whole.state[2:])

    def measure(path):
        if 0.3 < -path.block.heads[0].value[0, 0] < 0.5:
            raise error("a reason")
        return {"z": 1.0}

    found = sweep(make_block, GAINS, depth=20, measure=["state", measure], group=group)
    assert statuses(found).count("failed") == 1
    assert "a reason" in found.reason.values[1]
    assert found.z.sum() == 5

    def start(block, rng):
        if 0.3 < -block.heads[0].value[0, 0] < 0.5:
            raise error("a reason")
        return rng.normal(size=(N, 1))

    found = sweep(make_block, GAINS, depth=20, start=start, group=group)
    assert statuses(found).count("failed") == 1
    assert "a reason" in found.reason.values[1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "NoneType"),
        (5.0, "float"),
        ({"z": None}, "object"),
        ({"z": object()}, "object"),
        ({"z": [[1.0], [1.0, 2.0]]}, "different lengths"),
        ({"z": np.zeros(3)}, r"shape \(3,\)"),
        ({"z": np.ma.masked_equal([1.0], 1.0)}, "masked"),
        ({"z": 1j}, "complex"),
        ({"a/b": 1.0}, "a/b"),
        ({"gain": 1.0}, "'gain'"),
    ],
)
@pytest.mark.parametrize("group", [None, 1])
def test_a_measure_that_cannot_be_recorded_costs_no_other_point(bad, reason, group):
    def measure(path):
        return bad if -path.block.heads[0].value[0, 0] > 1.1 else {"z": 1.0}

    found = sweep(make_block, GAINS, depth=20, measure=measure, group=group)
    assert statuses(found)[:-1].count("failed") == 0
    assert statuses(found)[-1] == "failed"
    assert found.z.values.tolist()[:-1] == [1.0] * 5
    assert found.reason[-1].str.contains(reason)


def test_a_measure_that_always_fails_leaves_the_rest():
    for bad in (lambda path: None, lambda path: 1 / 0):
        found = sweep(make_block, GAINS, depth=20, measure=[bad, "state"])
        assert statuses(found) == ["failed"] * 6
        assert np.isfinite(found.state).all()


def test_what_no_point_could_recover_from_is_not_swallowed():
    def exhausted(gain):
        raise MemoryError if gain > 0.5 else KeyError

    with pytest.raises(MemoryError):
        sweep(exhausted, GAINS, depth=20)


def never(**point):
    raise AssertionError("the sweep should have been refused before any block was made")


@pytest.mark.parametrize(
    "name", ["", "a/b", " a", "a ", "-a", "a\n", "a\0b", "\ud800", "e\u0301", "x" * 300, 3, None, "state", "k"]
)
def test_names_that_no_file_can_hold_are_refused_first(name):
    with pytest.raises(ArgumentError, match="parameters"):
        sweep(never, {name: [1.0]})


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0], dtype=np.float16),
        np.array([1.0], dtype=np.longdouble),
        np.ma.masked_equal([1.0, 2.0], 1.0),
        ["a\0b"],
        ["\ud800"],
        [[1.0], [1.0, 2.0]],
        [2**70],
        [1j],
        [None],
        [b"a"],
    ],
)
def test_values_that_no_file_can_hold_are_refused_first(values):
    with pytest.raises(ArgumentError, match="parameters"):
        sweep(never, {"a": values})


@pytest.mark.parametrize(
    "keywords",
    [
        {"depth": 10**30},
        {"depth": 2**63},
        {"rng": 2**200},
        {"rng": 2**63},
        {"path": "a\0b"},
        {"path": 5},
        {"path": "/dev/null"},
        {"path": "/tmp"},
        {"measure": 5},
        {"measure": [5]},
        {"measure": [["state"]]},
        {"make_block": 5},
    ],
)
def test_settings_that_no_file_can_hold_are_refused_first(keywords):
    (argument,) = keywords
    with pytest.raises(ArgumentError, match=argument):
        sweep(**{"make_block": never, "parameters": GAINS} | keywords)


def torus(**point):
    kernel = Kernel.table(np.random.default_rng(0).normal(size=(3, 4)))
    return Block([Head(kernel, -0.3, 1.0)])


def test_names_of_other_variables_are_refused_before_the_work():
    for axis in ("k_1", "k_2"):
        with pytest.raises(ArgumentError, match=f"'{axis}'"):
            sweep(torus, {axis: [1.0]}, depth=2)
    sweep(torus, {"k_3": [1.0]}, depth=2)
    ran = []

    def make(**point):
        ran.append(point)
        return make_block(0.5)

    for axis, given in [
        ("crest", {"crest": 1.0}),
        ("crest_0", {"crest": np.zeros(3)}),
        ("a", {"": 1.0}),
        ("a", {"max/min": 1.0}),
        ("a", {"b": np.zeros(3), "b_0": 1.0}),
        ("a", {3: 1.0}),
        ("a", {"token": 1.0}),
    ]:
        ran.clear()
        with pytest.raises(ArgumentError, match="measure"):
            sweep(make, {axis: np.arange(5.0)}, depth=2, measure=lambda path, given=given: given)
        assert len(ran) == 1


def test_strings_of_pandas_are_strings(tmp_path):
    for number, kind in enumerate((object, np.dtypes.StringDType())):
        values = np.array(["tanh", "sine"], dtype=kind)
        found = sweep(lambda name: make_block(0.5), {"name": values}, depth=2, path=tmp_path / f"{number}.nc")
        assert found.name.values.tolist() == ["tanh", "sine"]


def named(name):
    return Block([Head(KERNEL, -0.5)], FeedForward.scalar(name) if name else None)


@pytest.mark.parametrize("group", [None, 1, 2, 3])
@pytest.mark.parametrize("path", [None, "a.nc"])
def test_mixed_activations_are_refused_however_the_points_are_grouped(tmp_path, group, path):
    names = ["", "tanh", "tanh", "", "sine", "tanh"]
    path = path and tmp_path / path
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"block of point [45]: got activation"):
            sweep(named, {"name": names}, depth=2, group=group, path=path, resume=path is not None)


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def wandering(gain):
        os.chdir(tmp_path / "elsewhere")
        return make_block(gain)

    found = sweep(wandering, GAINS, depth=5, path="a.nc", resume=True)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert load(tmp_path / "a.nc").identical(found)


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "a.nc").symlink_to(tmp_path / "b.nc")
    sweep(make_block, GAINS, depth=5, path=tmp_path / "a.nc")
    assert (tmp_path / "a.nc").is_symlink()
    assert (tmp_path / "b.nc").is_file()


def test_attributes_are_the_same_from_memory_and_from_a_file(tmp_path):
    found = sweep(make_block, GAINS, depth=5, rng=2**63 - 1, path=tmp_path / "a.nc")
    alone = sweep(make_block, GAINS, depth=5, rng=2**63 - 1)
    assert found.attrs == alone.attrs
    assert {name: type(value) for name, value in found.attrs.items()} == {
        name: type(value) for name, value in alone.attrs.items()
    }
    assert json.loads(json.dumps(found.attrs))["seed"] == 2**63 - 1


def test_reasons_are_lines_that_files_hold(tmp_path):
    for text in ("a\0b", "\ud800", "x" * 10**6, "two\nlines", ""):

        def make(gain, text=text):
            if gain > 0.5:
                raise ValueError(text)
            return make_block(gain)

        found = sweep(make, GAINS, depth=5, path=tmp_path / "a.nc")
        assert found.identical(sweep(make, GAINS, depth=5).assign_coords(found.coords))
        reason = str(found.reason.values[-1])
        assert reason
        assert len(reason) < 1000
        assert "\n" not in reason
