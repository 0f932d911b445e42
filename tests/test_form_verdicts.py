"""Verdicts of normal forms of two modes, at every order, against iteration."""

from functools import reduce
from operator import add

import closed_forms as cf
import numpy as np
import pytest

from amplitude import REGIMES, best_form, competition, normal_form
from amplitude.normal_forms.steady import solutions
from amplitude.normal_forms.verdicts import verdict
from dispersion import Activation, Block, FeedForward, Head, Kernel, dispersion_relation
from figures.phase_diagram.maps import observed_regime
from simulate import iterate

ORDERS = (3, 5, 7, 9)


def mixture(n, lobes, value, content, series):
    """A scalar block whose kernel is Σ share · two lobes, (share, separation, width, strength) each."""
    kernel = reduce(add, (share * Kernel.gaussian_lobes(n, *lobe) for share, *lobe in lobes))
    return Block([Head(kernel, value, content)], FeedForward.scalar(Activation.polynomial(series)))


def pair(block, *ks, order):
    relation = dispersion_relation(block)
    return normal_form(block, [relation.mode(k) for k in ks], order)


def seen(block, ks, seeds=(0, 1), depth=20000):
    """The regime that iteration shows, from each wave with noise; 'undecided' if seeds disagree."""
    found = set()
    for seed in seeds:
        noise = 1e-3 * np.random.default_rng(seed).standard_normal(block.n)
        starts = [0.05 * np.cos(2 * np.pi * k * np.arange(block.n) / block.n) + noise for k in ks]
        ends = [np.abs(np.fft.fft(iterate(block, depth, start).state[:, 0]))[list(ks)] / block.n for start in starts]
        found.add(REGIMES[int(observed_regime(np.array(ends)))])
    return found.pop() if len(found) == 1 else "undecided"


class TestHighOrders:
    """A kernel on 31 tokens where k = 4 forces a little of k = 5, and the other way round, from order 6 on."""

    def block(self):
        return mixture(31, [(0.4, 4, 1, 3), (0.6, 3, 0.7, 3)], -0.284572, 1.5, [-0.1, 0.1, -0.2])

    def test_iteration(self):
        block = self.block()
        assert seen(block, (4, 5), seeds=(0,)) == competition(block, 4, 5).regime == "bistable"

    @pytest.mark.parametrize(
        "order", [3, 7, *(pytest.param(order, marks=pytest.mark.slow) for order in (4, 5, 6, 8, 9))]
    )
    def test_every_order_says_what_iteration_shows(self, order):
        assert pair(self.block(), 4, 5, order=order).regime() == "bistable"

    @pytest.mark.parametrize("order", [6, *(pytest.param(order, marks=pytest.mark.slow) for order in (7, 8))])
    def test_waves_that_force_another_are_found(self, order):
        """At these orders z_1^a drives z_2: the states are those of order 5, with a small second amplitude."""
        sizes = np.array([np.abs(s.z) for s in solutions(pair(self.block(), 4, 5, order=order).map)])
        alone = [s for s in solutions(pair(self.block(), 4, 5, order=5).map) if s.active.sum() == 1]
        alone = [s for s in alone if np.abs(s.z).max() < 0.1]
        assert len(alone) == 2
        for pure in alone:
            assert np.abs(sizes - np.abs(pure.z)).max(axis=1).min() < 0.05 * np.abs(pure.z).max()


def test_a_small_partner_does_not_count():
    """Waves that others force along: their state is that of one mode."""
    block = TestHighOrders().block()
    forced = [s for s in pair(block, 4, 5, order=7).solutions if s.active.all() and np.abs(s.z).max() < 0.1]
    sizes = np.sort([np.abs(s.z).min() / np.abs(s.z).max() for s in forced])
    assert sizes[0] < 0.05  # taking part by its amplitude, and not in the verdict
    assert pair(block, 4, 5, order=7).regime() == "bistable"


class TestVerdict:
    """The verdict from which states last."""

    one, two, both = (True, False), (False, True), (True, True)

    @pytest.mark.parametrize(
        ("states", "growing", "expected"),
        [
            ([("one", True), ("two", False)], (1, 1), "mode 1"),
            ([("one", True), ("two", True), ("both", False)], (1, 1), "bistable"),
            ([("one", False), ("two", False), ("both", True)], (1, 1), "coexistence"),
            ([("one", True)], (1, 0), "mode 1"),
            ([("one", True)], (1, 1), "undecided"),  # the second grows, and where it goes is not known
            ([("one", True), ("two", None)], (1, 1), "undecided"),
            ([("one", True), ("one", None), ("two", False)], (1, 1), "mode 1"),  # one phase of it lasts
            ([("one", True), ("two", False), ("both", True)], (1, 1), "undecided"),
            ([("one", False), ("two", False)], (1, 1), "undecided"),
            ([], (0, 0), "collapsed"),
            ([("one", True)], (0, 0), "undecided"),
        ],
    )
    def test_cases(self, states, growing, expected):
        states = [(getattr(self, name), lasts) for name, lasts in states]
        assert verdict(states, tuple(map(bool, growing)), alone=True) == expected

    def test_others_that_grow_keep_from_collapse(self):
        assert verdict([], (False, False), alone=False) == "undecided"


def random_pair(seed):
    """A mixture of two lobes with two modes that grow about alike and no third, and the two wavenumbers."""
    rng = np.random.default_rng(seed)
    while True:
        n, share = int(rng.integers(24, 40)), rng.uniform(0.3, 0.7)
        lobes = [(w, rng.uniform(1.5, 7), rng.uniform(0.5, 1.3), rng.uniform(1, 4)) for w in (share, 1 - share)]
        a1, a2, a3 = rng.uniform(0.8, 0.97), rng.choice([0.0, rng.uniform(-0.2, 0.2)]), rng.uniform(-0.5, 0.1)
        symbol = mixture(n, lobes, 0.0, 1.0, [0.0]).heads[0].kernel.symbol.real[1 : (n + 1) // 2]
        if not symbol.min() < 0:
            continue
        value = ((1 + 10 ** rng.uniform(-2.6, -1.6)) / a1 - 1) / symbol.min()
        block = mixture(n, lobes, value, rng.uniform(0.5, 2.5), [a1 - 1, a2, a3])
        growth = np.abs(dispersion_relation(block).multipliers[: n // 2 + 1, 0])
        i, j, third = (int(k) for k in np.argsort(-growth)[:3])
        if growth[j] > 1 + 0.5 * (growth[i] - 1) and growth[third] < 1 and 0 < 2 * i < n and 0 < 2 * j < n:
            return block, i, j


def compare(seeds, orders):
    """How many verdicts were given of those possible; none may differ from iteration."""
    given = 0
    for seed in seeds:
        block, i, j = random_pair(seed)
        observed = seen(block, (i, j))
        for order in orders:
            regime = pair(block, i, j, order=order).regime()
            if regime != "undecided":
                assert regime == observed, (seed, order)
                given += 1
    return given / (len(seeds) * len(orders))


@pytest.mark.slow
def test_random_pairs():
    assert compare(range(8), (3, 7)) > 0.6


@pytest.mark.exhaustive
def test_many_random_pairs():
    assert compare(range(36), ORDERS) > 0.7


def test_collapse_needs_that_nothing_grows():
    """Of two modes that decay while a third grows nothing is said."""
    kernel = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0)
    block = cf.tanh_block(kernel, cf.eta_for(1.01, 0.9, kernel.symbol[4]))
    assert pair(block, 2, 6, order=3).regime() == "undecided"
    quiet = cf.tanh_block(kernel, cf.eta_for(0.99, 0.9, kernel.symbol[4]))
    assert pair(quiet, 4, 5, order=5).regime() == "collapsed"
    assert best_form(quiet, dispersion_relation(quiet).mode(4)).amplitude == 0
