"""Every public callable, its valid calls bent at random: a result, or a documented error in one line."""

import resource
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from fuzzing import budget, fuzz
from hypothesis import strategies as st
from interface import LEFT_OUT, MADE, calls, exported, things
from mutations import STRANGE, bent

from dispersion import ArgumentError, AttentionMask, Head, Kernel, Mask
from dispersion.errors import shown

SECONDS = 10
"""After which a call hangs."""
ROOM = 2**31
"""Bytes that a call may take beyond what there is."""
WRITES = {"dispersion.Block.save", "simulate.save", "simulate.sweep"}


def test_every_public_callable_has_a_valid_call():
    assert set(calls()) | set(LEFT_OUT) == set(exported())
    assert set(LEFT_OUT) <= set(exported())
    assert MADE.keys() == {label.partition(".")[0] for label in exported()}


@pytest.mark.slow
@pytest.mark.parametrize("label", sorted(calls()))
def test_the_valid_calls_are_valid(label, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if label.endswith(".load"):
        pytest.skip("there is nothing to load")
    if label == "amplitude.find_oscillation":
        pytest.skip("its start is far from an oscillation")
    call, arguments = calls()[label](things())
    call(**arguments)


@contextmanager
def bounds() -> Iterator[None]:
    """A time limit, a memory limit, and no warning."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def finite(result: Any) -> bool:
    """Whether no number of the result is NaN or infinite."""
    if isinstance(result, float | complex | np.number | np.ndarray):
        return np.asarray(result).dtype.kind not in "fc" or bool(np.isfinite(result).all())
    if isinstance(result, list | tuple):
        return all(map(finite, result))
    if isinstance(result, Kernel | Mask | AttentionMask):
        return True  # logits may be −inf
    if isinstance(result, Head):
        rest = [field.name for field in fields(result) if field.name != "pair_bias"]
        return all(finite(getattr(result, name)) for name in rest) and no_more_than_removed(result.bias)
    if is_dataclass(result) and not isinstance(result, type):
        return all(finite(getattr(result, field.name)) for field in fields(result))
    return True


def no_more_than_removed(logits: np.ndarray | None) -> bool:
    """Whether logits are finite or −inf."""
    return logits is None or not (np.isnan(logits) | np.isposinf(logits)).any()


def test_a_head_whose_bias_removes_pairs_is_a_valid_result():
    bias = np.where(np.tri(6) == 0, -np.inf, 0.0)
    assert finite([Head(Kernel.uniform(6), 1.0, bias=bias)])
    for number in (np.nan, np.inf):
        assert not no_more_than_removed(np.array([0.0, number]))


MAPS = {
    # of states of any size, finite or not
    "dispersion.Activation": ("__call__", "taylor"),
    "dispersion.FeedForward": ("__call__", "taylor", "jacobian"),
    "dispersion.QueryKey": ("queries", "keys", "logits", "affine"),
    "dispersion.OutputValue": ("values", "mix", "mix_transposed"),
    "dispersion.Mask": ("logits",),
    "dispersion.Swin": ("logits",),
    "dispersion.Rotary": ("queries", "keys", "logits", "rotated", "lag_logits", "query_slope", "key_slope", "affine"),
    "dispersion.Head": ("attention", "positional"),
    "dispersion.Block": (
        "forward",
        "seen",
        "seen_jacobian",
        "mix",
        "pointwise",
        "pointwise_jacobian",
        "jacobian",
        "attended",
        "homogeneous_map",
    ),
    "dispersion.Chain": ("forward",),
    **{f"dispersion.{norm}": ("__call__", "jacobian") for norm in ("LayerNorm", "RMSNorm", "DyT")},
    "simulate": (
        *("fourier", "spectrum", "amplitude", "phase_advance", "cluster_values", "heterogeneity"),
        *("grid_fourier", "project", "turn", "rotation", "cluster_separation"),
    ),
    "simulate.Trajectory": ("projection", "mode_advance", "rotation"),
    "amplitude": ("one_mode_potential", "two_mode_potential", "balanced_map", "balanced_boundary", "balloon"),
    "amplitude.Wave": ("potential",),
    "amplitude.Clusters": ("potential",),
    "amplitude.Competition": ("potential", "pure", "transverse"),
    "amplitude.NormalForm": ("potential", "field_at", "amplitudes_of", "error"),
    "amplitude.PeriodThree": ("multipliers_at",),
    "amplitude.PeriodFour": ("amplitude_at", "phase_multiplier_at"),
    "amplitude.Branch": ("amplitude_at", "phase_advance_at"),
}
BEYOND = {f"{of}.{name}" for of, names in MAPS.items() for name in names} | {"dispersion.mask_logits"}
"""What may give NaN or infinities, and says so: where there is no answer, or it is beyond float64."""


def mutated(arguments: dict[str, Any], draws: list[int]) -> dict[str, Any]:
    """`arguments` with one of them bent or replaced, or two."""
    numbers, changed = iter(draws), dict(arguments)
    for _ in range(1 + (next(numbers) % 4 == 3)):
        if not arguments:
            break
        name = list(arguments)[next(numbers) % len(arguments)]
        makers = list(bent(arguments[name])) if next(numbers) % 2 else []
        makers = makers or list(STRANGE)
        try:
            with warnings.catch_warnings(action="ignore"):
                changed[name] = makers[next(numbers) % len(makers)]()
        except (ArithmeticError, ValueError, TypeError, IndexError):  # no such mutation of this value
            continue
    return changed


def attempt(label: str, draws: list[int]) -> None:
    """One mutated call; an AssertionError says what is wrong with how it went."""
    call, arguments = calls()[label](things())
    arguments = mutated(arguments, draws)
    said = f"{label}({', '.join(f'{name}={shown(value)}' for name, value in arguments.items())})"
    try:
        with bounds(), np.errstate(under="raise" if draws[0] % 3 == 0 else "ignore"):
            result = call(**arguments)
    except ArgumentError as error:
        result = str(error)
        if not result.isprintable():
            raise AssertionError(f"{said}: more than one line: {error}") from error
    except Exception as error:
        raise AssertionError(f"{said}: {type(error).__name__}: {error}") from error
    if label not in BEYOND:
        assert finite(result), f"{said}: {result}"


DRAWS = st.lists(st.integers(0, 999), min_size=7, max_size=7)


@budget(60)
def test_only_documented_errors(examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    things()
    labels = sorted(calls())
    fuzz(attempt, examples, label=st.sampled_from(labels), draws=DRAWS)
