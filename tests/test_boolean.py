"""Boolean tasks: their values, what is seen, and what functions of least degree say of the rest."""

from itertools import combinations

import numpy as np
import pytest

from dispersion import ArgumentError
from training.boolean import TASKS, Cyclic3, Majority3, ThreeSym, TwoParity, Values
from training.cube import MOST, cube, minimum_degree, nearest

EXPECTED = {
    "2parity": (4.0, 16.0, 1 / 4, 0.75, 0.75, 0.75),
    "cyclic3": (8.0, 64.0, 1 / 8, 0.875, 0.9283, 0.875),
    "majority3": (1.0, 4.0, 1 / 4, 0.875, 0.875, 0.75),
    "threesym": (9.625, 19.25, 1 / 2, None, 0.5, 0.5),
}
"""Of the interpolators at n = 15 (masks.md): error on the cube and on the unseen part, its share, and accuracy by the
nearest label, by sign, and within 1/2."""


@pytest.mark.parametrize("kind", TASKS)
def test_the_interpolators_and_their_losses(kind):
    task = kind(n=15)
    f, g, unseen = task.values(task.cube), task.minimum_degree, ~task.seen(task.cube)
    np.testing.assert_allclose(g, task.closed_form(task.cube), atol=1e-13)
    error, hidden, share, near, sign, close = EXPECTED[task.name]
    assert ((f - g) ** 2).mean() == pytest.approx(error, abs=1e-12)
    assert ((f - g) ** 2)[unseen].mean() == pytest.approx(hidden, abs=1e-12)
    assert unseen.mean() == share
    if near is not None:
        assert (nearest(g, task.labels) == f).mean() == near
    assert (np.sign(g) == np.sign(f)).mean() == pytest.approx(sign, abs=5e-5)
    assert (np.abs(f - g) < 0.5).mean() == close


def test_values_by_hand():
    x = np.array([[1, -1, -1, 1], [-1, -1, -1, -1], [-1, -1, 1, 1.0]])
    assert TwoParity(n=4).values(x).tolist() == [-1, 1, 1]
    assert Majority3(n=4).values(x).tolist() == [-1, -1, -1]
    assert Cyclic3(n=4).values(x).tolist() == [1 - 1 - 1 + 1, -4, 1 - 1 + 1 - 1]
    assert ThreeSym(n=4).values(x).tolist() == [-1 - 1.25 - 1.5, 1.25, 1 + 1.25 - 1.5]
    assert [kind(n=4).seen(x).tolist() for kind in TASKS] == [
        [True, False, False],
        [True, False, True],
        [True, False, False],
        [True, False, True],
    ]


def monomials(x, degree):
    """(B, K) products of at most `degree` of the variables."""
    n = x.shape[1]
    chosen = [part for d in range(degree + 1) for part in combinations(range(n), d)]
    return np.stack([x[:, list(part)].prod(axis=1) for part in chosen], axis=1)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("n", [4, 5, 7])
def test_no_function_of_lower_degree_fits_and_one_of_that_degree_does(kind, n):
    """Another route: monomials degree by degree, and least squares on the seen points."""
    task = kind(n=n)
    x, f, seen = task.cube, task.values(task.cube), task.seen(task.cube)
    for degree in range(n + 1):
        basis = monomials(x, degree)
        weights = np.linalg.lstsq(basis[seen], f[seen], rcond=None)[0]
        if np.abs(basis[seen] @ weights - f[seen]).max() < 1e-9:
            break
    profile = np.linalg.lstsq(monomials(x, n), task.minimum_degree, rcond=None)[0]
    assert np.abs(profile[basis.shape[1] :]).max(initial=0) < 1e-12
    assert np.abs(profile[monomials(x, degree - 1).shape[1] : basis.shape[1]]).max() > 0.1


@pytest.mark.parametrize("seed", range(6))
def test_the_degree_profile_is_least_for_any_seen_part(seed):
    """Against one least-squares problem with weights so far apart that the order of degrees is kept."""
    rng = np.random.default_rng(seed)
    n = 4
    f, seen = rng.normal(size=2**n), rng.random(2**n) < 0.6
    seen[0] = True
    g = minimum_degree(f, seen)
    assert np.array_equal(g[seen], f[seen])
    x = cube(n)
    inverse = np.linalg.inv(monomials(x, n))
    degree = np.repeat(np.arange(n + 1), [1, 4, 6, 4, 1])
    weighted = 300.0 ** degree[:, None] * inverse
    unseen = ~seen
    best = np.linalg.lstsq(weighted[:, unseen], -weighted[:, seen] @ f[seen], rcond=None)[0]
    np.testing.assert_allclose(g[unseen], best, atol=1e-3)
    profile = [np.sum((inverse @ g)[degree == d] ** 2) for d in range(n, -1, -1)]
    for _ in range(20):
        other = g + np.where(seen, 0, rng.normal(size=2**n)) * 10.0 ** rng.uniform(-3, 0)
        assert profile < [np.sum((inverse @ other)[degree == d] ** 2) for d in range(n, -1, -1)]


def test_variables_that_do_not_matter_to_the_seen_part_change_nothing():
    """The reduction to the variables that do, against the whole problem of another order."""
    rng = np.random.default_rng(1)
    small = rng.random(8) < 0.7
    small[0] = True
    f = rng.normal(size=32)
    first = minimum_degree(f, np.repeat(small, 4))
    last = minimum_degree(f.reshape(8, 4).T.ravel(), np.tile(small, 4))
    np.testing.assert_allclose(first.reshape(8, 4).T.ravel(), last, atol=1e-12)


def test_draws_are_of_the_seen_part():
    task = TwoParity(n=5)
    assert len(task.draw(1000, 0)) == 24
    drawn = task.draw(7, 0)
    assert isinstance(drawn, Values)
    assert len(drawn) == 7
    assert len(np.unique(drawn.inputs, axis=0)) == 7
    assert drawn.seen.all()
    assert np.array_equal(drawn.targets, task.values(1.0 - 2 * drawn.inputs))
    assert len(drawn.take([0, 3])) == 2
    assert not np.array_equal(task.draw(7, 1).inputs, drawn.inputs)


def test_nearest_label():
    assert nearest([0.9, -3.0, 0.2], [-1.0, 1.0]).tolist() == [1, -1, 1]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: TwoParity(n=2), "n"),
        (lambda: Cyclic3(n=3), "n"),
        (lambda: Majority3(n=MOST + 1), "n"),
        (lambda: minimum_degree(np.zeros(6), np.ones(6, dtype=bool)), "seen"),
        (lambda: minimum_degree(np.zeros(4), np.zeros(4, dtype=bool)), "seen"),
        (lambda: minimum_degree(np.zeros(8), np.ones(4, dtype=bool)), "values"),
        (lambda: TwoParity().draw(0, 0), "count"),
    ],
)
def test_what_cannot_be_used_is_named(call, argument):
    with pytest.raises(ArgumentError) as error:
        call()
    assert error.value.argument == argument
