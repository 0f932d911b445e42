"""Patterns of attention: what is open, what becomes of closed rows, and the ways of getting a pattern wrong."""

import copy
import pickle

import numpy as np
import pytest

from dispersion import ArgumentError
from training.patterns import KINDS, TASKS, Pattern, pattern_of


def pairs_of(opened):
    return {tuple(pair) for pair in np.argwhere(opened).tolist()}


def test_the_patterns_of_the_tasks():
    two = pattern_of("2parity", 5)
    assert pairs_of(two.open) == {(0, 1), (1, 0)}
    assert pairs_of(two.allowed) == {(0, 1), (1, 0), (2, 2), (3, 3), (4, 4)}
    assert pairs_of(pattern_of("cyclic3", 4).open) == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert pairs_of(pattern_of("majority3", 4).open) == {(i, i) for i in range(4)}
    three = pattern_of("threesym", 4, rows="free")
    assert pairs_of(three.allowed) == {(0, 0, 1), (0, 1, 0), (1, 1, 2), (1, 2, 1), (2, 2, 0), (2, 0, 2)}


def test_wrong_patterns_are_wrong_in_every_restricted_row():
    for task in TASKS:
        for n in (6, 8, 9):
            right = pattern_of(task, n, rows="free")
            for which in KINDS[1:]:
                wrong = pattern_of(task, n, which, rows="free", rng=3)
                assert wrong.name == which
                assert wrong.open.sum() == right.open.sum()
                both = right.restricts & wrong.restricts
                assert (wrong.open != right.open).any(axis=-1)[both].all(), (task, which)
    assert pairs_of(pattern_of("2parity", 6, "wrong").open) == {(2, 3), (3, 2)}
    assert pairs_of(pattern_of("2parity", 6, "shifted").open) == {(0, 2), (1, 1)}
    assert pairs_of(pattern_of("cyclic3", 6, "shifted").open) == {(i, (i + 2) % 6) for i in range(6)}


def test_isolated_rows_stay_so_when_the_rest_is_misspecified():
    shifted = pattern_of("2parity", 5, "shifted")
    assert pairs_of(shifted.allowed) == {(0, 2), (1, 1), (2, 2), (3, 3), (4, 4)}


def test_permutations_are_of_the_seed():
    draws = [pattern_of("cyclic3", 9, "permuted", rng=seed).open for seed in (0, 0, 1)]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()
    assert not (draws[0] & pattern_of("cyclic3", 9).open).any()
    rng = np.random.default_rng(0)
    pattern = Pattern(rng.uniform(size=(3, 7, 7)) < 0.5, rows="free")
    for seed in range(20):
        moved = pattern.permuted(seed)
        assert (moved.open != pattern.open).any(axis=-1)[pattern.restricts].all()
        assert (moved.open.sum(axis=-1) == pattern.open.sum(axis=-1)).all()


def test_closed_rows_are_refused_isolated_or_free():
    opened = [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    with pytest.raises(ArgumentError, match="^open: got row 2 closed everywhere; accepted: .* a constant shift$"):
        Pattern(opened)
    with pytest.raises(ArgumentError, match="row 2 of head 1 closed"):
        Pattern([[[1, 0, 0]] * 3, opened])
    isolated, free = Pattern(opened, rows="isolate"), Pattern(opened, rows="free")
    assert isolated.restricts.tolist() == [True, True, True]
    assert free.restricts.tolist() == [True, True, False]
    np.testing.assert_array_equal(isolated.target[2], [0, 0, 1])
    np.testing.assert_array_equal(free.target[2], np.full(3, 1 / 3))
    assert (isolated.open == free.open).all()


def test_targets_are_distributions():
    pattern = Pattern([[1, 1, 0], [1, 1, 1], [0, 0, 1]])
    np.testing.assert_array_equal(pattern.target, [[0.5, 0.5, 0], [1 / 3] * 3, [0, 0, 1]])
    assert pattern.restricts.tolist() == [True, False, True]


def test_a_classification_token():
    pattern = Pattern.pairs(3, [(0, 1)])
    started = pattern.with_start()
    assert pairs_of(started.open) == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (2, 1)}
    assert pairs_of(started.allowed) == pairs_of(started.open) | {(3, 3)}
    assert pairs_of(pattern.with_start("relevant", "open").open) == {(0, 1), (0, 2), (1, 2), (2, 1), (1, 0), (2, 0)}
    assert pattern.with_start().name == pattern.name


def test_lags_of_circulant_patterns():
    cyclic = pattern_of("cyclic3", 5)
    assert cyclic.circulant
    assert cyclic.by_lag.tolist() == [False, False, False, False, True]  # key i + 1 has lag −1
    assert pattern_of("majority3", 5).by_lag.tolist() == [True, False, False, False, False]
    for other in (pattern_of("2parity", 5), cyclic.with_start()):
        assert not other.circulant
        with pytest.raises(ArgumentError, match="which is not circulant"):
            _ = other.by_lag


def test_patterns_fit_networks():
    two, three = pattern_of("2parity", 5), pattern_of("threesym", 5)
    assert two.over(3, 5).shape == three.over(3, 5).shape == (3, 5, 5)
    assert (two.over(3, 5) == two.allowed).all()
    for pattern, heads, n in ((two, 3, 6), (three, 2, 5)):
        with pytest.raises(ArgumentError, match="^pattern: got 'correct' of shape"):
            pattern.over(heads, n)


def test_nouns():
    pattern = Pattern([[0, 1], [1, 0]])
    assert not pattern.open.flags.writeable
    for again in (copy.deepcopy(pattern), pickle.loads(pickle.dumps(pattern))):
        assert (again.open == pattern.open).all()


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Pattern([[1, 0]]), "open: got shape (1, 2)"),
        (lambda: Pattern([1, 0]), "open: got shape (2,)"),
        (lambda: Pattern([[1]]), "open: got shape (1, 1)"),
        (lambda: Pattern([[0.5, 1], [1, 0]]), "open: got float64 that is neither 0 nor 1"),
        (lambda: Pattern([[np.nan, 1], [1, 0]]), "open: got NaN"),
        (lambda: Pattern([["a", "b"], ["b", "c"]]), "open: got <U1"),
        (lambda: Pattern([[1, 0], [1]]), "open: got list"),
        (lambda: Pattern(np.eye(2), 3), "name: got int"),
        (lambda: Pattern(np.eye(2), rows="close"), "rows: got 'close'"),
        (lambda: Pattern.pairs(4, [(0, 4)]), "pairs: got 4"),
        (lambda: Pattern.pairs(4, [(0, 1, 2)]), "pairs: got (0, 1, 2)"),
        (lambda: Pattern.pairs(1, []), "n: got 1"),
        (lambda: Pattern.neighbours(4, [0.5]), "offsets: got 0.5"),
        (lambda: Pattern.stacked([]), "patterns: got []"),
        (lambda: Pattern.stacked([Pattern.diagonal(3), Pattern.diagonal(4)]), "patterns: got 3 tokens"),
        (lambda: Pattern.diagonal(3).with_start("some"), "row: got 'some'"),
        (lambda: pattern_of("parity", 5), "task: got 'parity'"),
        (lambda: pattern_of("2parity", 5, "bad"), "which: got 'bad'"),
        (lambda: pattern_of("2parity", 3), "n: got 3"),
        (lambda: Pattern.diagonal(3).permuted("x"), "rng: got 'x'"),
    ],
)
def test_refusals(make, argument):
    with pytest.raises(ArgumentError) as refused:
        make()
    assert str(refused.value).startswith(argument)
    assert "\n" not in str(refused.value)
