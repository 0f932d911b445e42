"""Nouns stay what they are: read-only from the start, and after copy, deepcopy and pickle, with nothing stale."""

import copy
import importlib
import inspect
import pickle
from dataclasses import fields, is_dataclass
from functools import cache, cached_property

import numpy as np
import pytest
from interface import PACKAGES, calls, things

import amplitude
import dispersion
import simulate
from dispersion import Block, Head, Kernel, dispersion_relation
from dispersion.errors import frozen_array

NOUNS = {
    f"{package}.{name}": thing
    for package in PACKAGES
    for name in importlib.import_module(package).__all__
    if is_dataclass(thing := getattr(importlib.import_module(package), name))
    and inspect.isclass(thing)
    and fields(thing)
}
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "pickle 2": lambda thing: pickle.loads(pickle.dumps(thing, 2)),
}
BY = {
    # a call that gives one, or a list of them, where the noun is not called itself
    "dispersion.AttentionSpectrum": "dispersion.attention_spectrum",
    "dispersion.Branches": "dispersion.branches",
    "dispersion.Dispersion": "dispersion.dispersion_relation",
    "dispersion.FixedPoint": "dispersion.fixed_points",
    "dispersion.Mode": "dispersion.Dispersion.leading",
    "dispersion.Optimal": "dispersion.Propagator.optimal",
    "dispersion.Propagator": "dispersion.along_orbit",
    "dispersion.Pseudospectrum": "dispersion.pseudospectrum",
    "dispersion.Verdict": "dispersion.stability",
    "amplitude.BalancedMap": "amplitude.balanced_map",
    "amplitude.Balloon": "amplitude.balloon",
    "amplitude.Branch": "amplitude.branch",
    "amplitude.ClusterState": "amplitude.cluster_state",
    "amplitude.Clusters": "amplitude.clusters",
    "amplitude.Competition": "amplitude.competition",
    "amplitude.ExactState": "amplitude.find_state",
    "amplitude.HomogeneousState": "amplitude.homogeneous_state",
    "amplitude.NormalForm": "amplitude.normal_form",
    "amplitude.Partition": "amplitude.partitions",
    "amplitude.PeriodFour": "amplitude.period_four",
    "amplitude.PeriodThree": "amplitude.period_three",
    "amplitude.PeriodTwo": "amplitude.period_two",
    "amplitude.ScalarForms": "amplitude.ScalarForms.of",
    "amplitude.Wave": "amplitude.standing_wave",
    "simulate.Trajectory": "simulate.iterate",
}


@cache
def noun(label):
    if label == "dispersion.Normalisation":
        return dispersion.Normalisation([1.0, 2.0])
    if label == "amplitude.Solution":
        return things()["form"].solutions[0]
    if label == "amplitude.Oscillation":
        return amplitude.Oscillation(things()["plain"], np.zeros((3, 6, 2)), 0.1, 0.0)
    if label == "amplitude.Bifurcation":
        return amplitude.Bifurcation("fold", 0.1, things()["state"], 1 + 0j, 1, 0.5)
    call, arguments = calls()[BY.get(label, label)](things())
    made = call(**arguments)
    return made[0] if isinstance(made, list | tuple) else made


def cached(thing):
    """The names of its cached properties."""
    return [name for name in dir(type(thing)) if isinstance(getattr(type(thing), name), cached_property)]


def fill(thing):
    """Have it compute all that it caches."""
    for name in cached(thing):
        try:
            getattr(thing, name)
        except (ValueError, AttributeError):
            continue


def arrays(value, path=""):
    """(path, array) for each array in a noun, its parts and what it caches."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, tuple | list):
        for place, part in enumerate(value):
            yield from arrays(part, f"{path}[{place}]")
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from arrays(part, f"{path}[{key!r}]")
    elif is_dataclass(value) and not isinstance(value, type):
        names = {field.name for field in fields(value)} | set(vars(value))
        for name in sorted(names):
            yield from arrays(getattr(value, name), f"{path}.{name}")


@pytest.mark.parametrize("label", NOUNS)
def test_nouns_are_read_only(label):
    thing = noun(label)
    assert isinstance(thing, NOUNS[label])
    fill(thing)
    assert [path for path, array in arrays(thing) if array.flags.writeable] == []


@pytest.mark.parametrize("label", NOUNS)
@pytest.mark.parametrize("way", WAYS)
def test_copies_are_read_only_and_compute_anew(label, way):
    thing = noun(label)
    fill(thing)
    copied = WAYS[way](thing)
    assert not set(cached(copied)) & set(vars(copied))
    fill(copied)
    here, there = dict(arrays(thing)), dict(arrays(copied))
    assert set(there) <= set(here)  # parts compute what they cache when it is asked for
    assert [path for path, array in there.items() if array.flags.writeable] == []
    for path, array in there.items():
        np.testing.assert_array_equal(array, here[path])
    with pytest.raises(AttributeError):
        setattr(copied, fields(copied)[0].name, None)


def test_a_copied_block_cannot_be_made_to_disagree_with_itself():
    """What is written into a copy is refused, and what it says is what it does."""
    original = Block([Head(Kernel.alibi(8, 0.5), -0.4, 1.5)])
    dispersion_relation(original).leading()
    for way in WAYS.values():
        block = way(original)
        with pytest.raises(ValueError, match="read-only"):
            block.heads[0].kernel.logits[:] = 0.0
        with pytest.raises(ValueError, match="read-only"):
            block.heads[0].kernel.weights[:] = 0.0
        wave = np.cos(np.pi * np.arange(8) / 2) * 1e-9
        factor = block.forward(wave) @ wave / (wave @ wave)
        assert factor == pytest.approx(dispersion_relation(block)(np.pi / 2)[0, 0].real, abs=1e-12)


def test_what_a_trajectory_holds_is_its_own():
    path = simulate.iterate(Block([Head(Kernel.alibi(8, 0.5), -0.4, 1.5)]), 5)
    with pytest.raises(ValueError, match="read-only"):
        path.state[:] = 0.0


def test_read_only_memory_is_shared_and_no_other():
    weights = np.ones((2, 3))
    weights.flags.writeable = False
    assert frozen_array("x", weights[1:], (None, 3)).base is weights
    assert frozen_array("x", weights.T, (3, 2)).base is weights
    open_memory = np.arange(6.0)
    view = open_memory[:]
    view.flags.writeable = False
    taken = frozen_array("x", view, (None,))
    open_memory[0] = 7.0
    assert taken[0] == 0.0
    assert frozen_array("x", np.frombuffer(bytearray(16)), (None,)).base is None
