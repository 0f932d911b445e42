"""The compiled map against the plain one, and the exp and tanh inside it."""

import numpy as np
import pytest
from numba import njit

from dispersion import Activation, Block, FeedForward, Head, Kernel
from dispersion.block.scalar_blocks import ScalarBlocks
from dispersion.compiled import OPTIONS
from simulate.engines import _exp, _moments
from simulate.engines._lanes import LANES, load, splat, store
from simulate.engines.scalar import Batch


def over_arrays(function):
    """`function` of lanes as a function of an array."""

    @njit(**OPTIONS)
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
def exp2():
    return over_arrays(njit(lambda x: _exp.exp2_product(x, splat(1.0))))


@pytest.fixture(scope="module")
def tanh():
    return over_arrays(_exp.tanh)


def ulps(value, reference):
    return float((np.abs(value - reference) / np.spacing(np.abs(reference.astype(float)))).max())


@pytest.mark.parametrize("size", [1e-12, 0.3, 1.0, 10.0, 708.0])
def test_exp_is_within_two_ulp(exp, size):
    x = size * np.random.default_rng(0).uniform(-1, 1, 100_000)
    assert ulps(exp(x), np.exp(x.astype(np.longdouble))) <= 2


@pytest.mark.parametrize("size", [1e-12, 0.03, 0.4, 1.0, 10.0, 1020.0])
def test_exp2_is_within_two_ulp(exp2, size):
    x = size * np.random.default_rng(0).uniform(-1, 1, 100_000)
    assert ulps(exp2(x), np.exp2(x.astype(np.longdouble))) <= 2
    assert np.isnan(exp2(np.array([np.nan]))[0])


def test_division_without_the_machine_s(exp2):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=100_000), np.exp(rng.uniform(-600, 600, size=100_000))
    pairs = over_arrays(njit(lambda x: _exp.divided(x, x * x + 2.0)))
    exact = a.astype(np.longdouble) / (a.astype(np.longdouble) ** 2 + 2)
    assert ulps(pairs(a), exact) <= 2
    reciprocal = over_arrays(njit(lambda x: _exp.divided(splat(1.0), x)))
    assert ulps(reciprocal(b), 1 / b.astype(np.longdouble)) <= 1


@pytest.mark.parametrize("n", [8, 16, 32, 64, 128, 512])
def test_two_convolutions_at_a_time(n):
    rng = np.random.default_rng(n)
    weights = rng.dirichlet(np.ones(n), LANES).T
    fields = rng.normal(size=(2, n, LANES))
    symbol = np.fft.fft(weights, axis=0)
    order = _moments.frequency_order(n)
    re, im = fields.copy()
    scaled = symbol[order] / n
    _moments.convolve(re, im, scaled.real.copy(), scaled.imag.copy(), _moments.turns(n))
    expected = np.fft.ifft(np.fft.fft(fields, axis=1) * symbol, axis=1).real
    np.testing.assert_allclose([re, im], expected, rtol=0, atol=1e-14)


def test_cut_off_expansions_keep_their_promise():
    reaches, table = _moments.expansion()
    assert (np.diff(reaches) > 0).all()
    for row, z in enumerate(reaches):
        y = np.linspace(-z, z, 501)
        powers = y[:, None] ** np.arange(1, table.shape[1] + 1)
        slope = (np.arange(1, table.shape[1] + 1) * table[row] * powers / np.where(y, y, 1)[:, None]).sum(axis=1)
        away = y != 0
        np.testing.assert_allclose(1 + powers @ table[row], np.exp(y), rtol=4e-15 * np.exp(z))
        np.testing.assert_allclose(slope[away], np.exp(y)[away], rtol=4e-15 * np.exp(z))


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
    batch = Batch(ScalarBlocks.of(blocks), states[..., None])
    batch.advance(12)
    batch.advance(8)
    for _ in range(20):
        before, expected = expected, np.array([b.forward(x) for b, x in zip(blocks, expected, strict=True)])
    assert (batch.steps == 20).all()
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(batch.states[..., 0] - expected) / scale).max() < 1e-13
    assert (np.abs(batch.previous[..., 0] - before) / scale).max() < 1e-13


@pytest.mark.parametrize("n", [8, 16, 32, 64, 512])
def test_moments_and_exponentials_are_one_map(n):
    """Lanes side by side whose |χ| max x² lies in every range of the expansion, and beyond."""
    rng = np.random.default_rng(n)
    blocks = [random_block(rng, n, 1 + p % 2, 1, "tanh") for p in range(3 * LANES)]
    sizes = np.geomspace(1e-5, 3, len(blocks))
    states = sizes[:, None] * rng.normal(size=(len(blocks), n))
    batch = Batch(ScalarBlocks.of(blocks), states[..., None])
    batch.advance(3)
    for _ in range(3):
        states = np.array([b.forward(x) for b, x in zip(blocks, states, strict=True)])
    scale = np.abs(states).max(axis=1, keepdims=True)
    assert (np.abs(batch.states[..., 0] - states) / scale).max() < 2e-13


@pytest.mark.parametrize("n", [11, 16])
def test_a_point_does_not_depend_on_its_neighbours(n):
    rng = np.random.default_rng(5)
    blocks = [random_block(rng, n, 1 + p % 3, 1 + p % 2, "tanh") for p in range(3 * LANES)]
    states = np.geomspace(1e-3, 2, len(blocks))[:, None] * rng.normal(size=(len(blocks), n))
    together = Batch(ScalarBlocks.of(blocks), states[..., None])
    together.advance(50)
    for chosen in ([0], [LANES + 3, 2, 5], range(1, 2 * LANES)):
        some = Batch(ScalarBlocks.of([blocks[p] for p in chosen]), states[list(chosen), :, None])
        some.advance(50)
        np.testing.assert_array_equal(some.states, together.states[list(chosen)])


def test_small_calls_equal_one_call(monkeypatch):
    rng = np.random.default_rng(6)
    blocks = [random_block(rng, 8, 2, 2, "sine") for _ in range(5 * LANES)]
    states = rng.normal(size=(len(blocks), 8))
    results = []
    for size in (1e12, 1.0):
        monkeypatch.setattr("simulate.engines.scalar.INTERACTIONS_PER_CALL", size)
        batch = Batch(ScalarBlocks.of(blocks), states[..., None])
        batch.advance(7)
        results.append((batch.states, batch.previous, batch.steps))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_translating_the_start_translates_the_orbit():
    rng = np.random.default_rng(7)
    block = random_block(rng, 12, 2, 2, "gelu")
    x = 0.5 * rng.normal(size=12)
    batch = Batch(ScalarBlocks.of([block] * 2), np.array([x, np.roll(x, 5)])[..., None])
    batch.advance(30)
    np.testing.assert_allclose(batch.states[1], np.roll(batch.states[0], 5, axis=0), rtol=0, atol=1e-14)


def test_a_diverging_lane_stops_at_its_last_admissible_state():
    kernel = Kernel.alibi(8, 0.5)
    growing = Block([Head(kernel, value=1.0)], FeedForward.scalar("tanh", -0.1))
    calm = Block([Head(kernel, value=-0.5, content=1.0)], FeedForward.scalar("tanh", -0.1))
    batch = Batch(ScalarBlocks.of([growing, calm, growing]), np.ones((3, 8, 1)) * [[[1]], [[1]], [[1e-3]]])
    batch.advance(33)
    batch.advance(7)
    assert batch.steps.tolist() == [20, 40, 31]  # 0.9 · 2²⁰ < 10⁶ is the last
    expected = np.ones(8)
    for _ in range(20):
        expected = growing.forward(expected)
    np.testing.assert_allclose(batch.states[0, :, 0], expected, rtol=1e-13)
    assert expected.max() < 1e6 < growing.forward(expected).max()
    last, beyond = batch.states[2], growing.forward(batch.states[2])
    assert last.max() < 1e6 < beyond.max()
