"""The compiled map against the plain one, and the exp and tanh inside it."""

import numpy as np
import pytest
from numba import njit

from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel
from simulate import _exp
from simulate._engine import Batch, pack
from simulate._lanes import LANES, load, store


def over_arrays(function):
    """`function` of lanes as a function of an array."""

    @njit(**_exp.OPTIONS)
    def rows(x, out):
        for row in range(x.shape[0]):
            store(out, row, function(load(x, row)))

    def whole(x):
        padded = np.resize(np.asarray(x, dtype=float), (-(-np.size(x) // LANES), LANES))
        out = np.empty_like(padded)
        rows(padded, out)
        return out.ravel()[: np.size(x)]

    return whole


@pytest.fixture(scope="module")
def exp():
    return over_arrays(_exp.exp)


@pytest.fixture(scope="module")
def tanh():
    return over_arrays(_exp.tanh)


def ulps(value, reference):
    return float((np.abs(value - reference) / np.spacing(np.abs(reference.astype(float)))).max())


@pytest.mark.parametrize("size", [1e-12, 0.3, 1.0, 10.0, 708.0])
def test_exp_is_within_two_ulp(exp, size):
    x = size * np.random.default_rng(0).uniform(-1, 1, 100_000)
    assert ulps(exp(x), np.exp(x.astype(np.longdouble))) <= 2


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1e-3, 0.1, 0.4, 1.0, 5.0, 25.0, 1e5])
def test_tanh_is_within_four_ulp_and_odd(tanh, size):
    x = size * np.random.default_rng(1).uniform(-1, 1, 100_000)
    assert ulps(tanh(x), np.tanh(x.astype(np.longdouble))) <= 4
    np.testing.assert_array_equal(tanh(-x), -tanh(x))


def test_exp_and_tanh_at_the_ends(exp, tanh):
    ends = np.array([np.nan, np.inf, -np.inf, 0.0, 1e4, -1e4])
    np.testing.assert_allclose(exp(ends), [np.nan, *np.exp([708, -708, 0, 708, -708])], rtol=1e-15)
    np.testing.assert_array_equal(tanh(ends), [np.nan, 1, -1, 0, 1, -1])


def random_block(rng, n, heads, hidden, activation):
    """A random block whose iterates stay of order one."""

    def kernel():
        logits = rng.normal(size=n)
        logits[rng.integers(n)] = -np.inf
        return Kernel.table(logits)

    made = [Head(kernel(), value=-0.1 * rng.uniform(), content=abs(rng.normal())) for _ in range(heads)]
    if activation is None:
        return Block(made, None, 0.7)
    if activation == "polynomial":
        activation = Activation.polynomial(0.3 * rng.normal(size=rng.integers(1, 5)))
    unit_in, unit_out = rng.normal(size=(hidden, 1)), 0.02 * rng.normal(size=(1, hidden))
    bias_in, bias_out = 0.3 * rng.normal(size=hidden), 0.01 * rng.normal(size=1)
    return Block(made, FeedForward(unit_in, unit_out, activation, bias_in, bias_out), 0.7)


@pytest.mark.parametrize("n", [2, 9, 16])
@pytest.mark.parametrize("activation", [None, *Activation.names()])
def test_engine_equals_the_block(activation, n):
    rng = np.random.default_rng([n, len(activation or "")])
    blocks = [random_block(rng, n, 1 + p % 3, 1 + p % 4, activation) for p in range(LANES + 3)]
    states = expected = 0.1 * rng.normal(size=(len(blocks), n))
    batch = Batch(pack(blocks), states)
    batch.advance(12)
    batch.advance(8)
    for _ in range(20):
        before, expected = expected, np.array([b.forward(x) for b, x in zip(blocks, expected, strict=True)])
    assert (batch.steps == 20).all()
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(batch.states - expected) / scale).max() < 1e-13
    assert (np.abs(batch.previous - before) / scale).max() < 1e-13


def test_a_point_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(5)
    blocks = [random_block(rng, 11, 1 + p % 3, 1 + p % 2, "tanh") for p in range(3 * LANES)]
    states = rng.normal(size=(len(blocks), 11))
    together = Batch(pack(blocks), states)
    together.advance(50)
    for chosen in ([0], [LANES + 3, 2, 5], range(1, 2 * LANES)):
        some = Batch(pack([blocks[p] for p in chosen]), states[list(chosen)])
        some.advance(50)
        np.testing.assert_array_equal(some.states, together.states[list(chosen)])


def test_small_calls_equal_one_call(monkeypatch):
    rng = np.random.default_rng(6)
    blocks = [random_block(rng, 8, 2, 2, "sine") for _ in range(5 * LANES)]
    states = rng.normal(size=(len(blocks), 8))
    results = []
    for size in (1e12, 1.0):
        monkeypatch.setattr("simulate._engine.INTERACTIONS_PER_CALL", size)
        batch = Batch(pack(blocks), states)
        batch.advance(7)
        results.append((batch.states, batch.previous, batch.steps))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_translating_the_start_translates_the_orbit():
    rng = np.random.default_rng(7)
    block = random_block(rng, 12, 2, 2, "gelu")
    x = 0.5 * rng.normal(size=12)
    batch = Batch(pack([block] * 2), np.array([x, np.roll(x, 5)]))
    batch.advance(30)
    np.testing.assert_allclose(batch.states[1], np.roll(batch.states[0], 5), rtol=0, atol=1e-14)


def test_a_diverging_lane_stops_at_its_last_admissible_state():
    kernel = Kernel.alibi(8, 0.5)
    growing = Block([Head(kernel, value=1.0)], FeedForward.scalar("tanh", -0.1))
    calm = Block([Head(kernel, value=-0.5, content=1.0)], FeedForward.scalar("tanh", -0.1))
    batch = Batch(pack([growing, calm, growing]), np.array([np.ones(8), np.ones(8), np.full(8, 1e-3)]))
    batch.advance(33)
    batch.advance(7)
    assert batch.steps.tolist() == [20, 40, 31]  # 0.9 · 2²⁰ < 10⁶ is the last
    expected = np.ones(8)
    for _ in range(20):
        expected = growing.forward(expected)
    np.testing.assert_allclose(batch.states[0], expected, rtol=1e-13)
    assert expected.max() < 1e6 < growing.forward(expected).max()
    last, beyond = batch.states[2], growing.forward(batch.states[2])
    assert last.max() < 1e6 < beyond.max()


def test_unlike_blocks_are_refused():
    def block(n=8, activation="tanh"):
        return Block([Head(Kernel.uniform(n), value=-0.5)], FeedForward.scalar(activation))

    with pytest.raises(ArgumentError, match=r"blocks\[1\].*N = 9.*N = 8"):
        pack([block(), block(9)])
    with pytest.raises(ArgumentError, match=r"blocks\[2\].*'sine'.*'tanh'"):
        pack([block(), block(), block(activation="sine")])
    two = Block([Head(Kernel.uniform(8), np.eye(2))])
    with pytest.raises(ArgumentError, match="d = 2"):
        pack([two])
    assert pack([Block([Head(Kernel.uniform(8), value=-0.5)]), block()]).activation == "tanh"
