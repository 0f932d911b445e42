"""Steep attention: logits so large, or so far apart, that exponentials leave float64. Against forward maps."""

import numpy as np
import pytest

from dispersion import Block, FeedForward, Head, Kernel
from simulate import iterate, iterate_many, sweep

TANH = FeedForward.scalar("tanh", -0.1)
HALVING = FeedForward.scalar("tanh", -0.5)


def by_layers(block, x, layers):
    """(layers + 1, N) x, F(x), F(F(x)), … by the plain forward map."""
    states = [x]
    for _ in range(layers):
        states.append(block.forward(states[-1]))
    return np.array(states)


def check(block, start, layers=12, rtol=1e-10):
    path = iterate(block, layers, start, tolerance=None, every=1)
    expected = by_layers(block, np.asarray(start, dtype=float), layers)
    assert path.status != "diverged"
    assert path.depth == layers
    np.testing.assert_allclose(path.states[..., 0], expected, rtol=rtol, atol=1e-12 * np.abs(expected).max())
    return path


def noise(n, size, seed=0):
    return size * np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize("n", [32, 513], ids=["lanes", "fft"])
class TestSteepStates:
    @pytest.mark.parametrize(
        ("chi", "size"), [(1.5, 10.0), (1.5, 300.0), (-2.0, 30.0), (1e4, 2.0), (-1e7, 1.0), (1.5, 1e5)]
    )
    def test_layer_by_layer(self, n, chi, size):
        kernel = Kernel.gaussian_lobes(n, 4, 1.0, 2.0)
        check(Block([Head(kernel, -0.4, chi)], HALVING), noise(n, size))

    def test_two_heads_one_of_them_gentle(self, n):
        heads = [Head(Kernel.gaussian_lobes(n, 4, 1.0, 2.0), -0.3, 900.0), Head(Kernel.alibi(n, 0.4), 0.2, 0.01)]
        check(Block(heads, TANH), noise(n, 3.0))

    @pytest.mark.parametrize("size", [0.1, 3.0, 15.0, 40.0])
    def test_kernels_that_remove_lags(self, n, size):
        logits = np.full(n, -np.inf)
        logits[[0, 1, 2, n - 3]] = [0.3, -2.0, 1.0, 0.5]
        check(Block([Head(Kernel.table(logits), -0.5, 2.0)], TANH), noise(n, size))

    @pytest.mark.parametrize("depth", [650.0, 760.0, 1100.0, 3e4])
    @pytest.mark.parametrize("size", [0.5, 13.0, 17.0, 25.0])
    def test_positions_that_only_content_can_reach(self, n, depth, size):
        """All lags but a few lie so deep that e^b is zero; content of the size of `depth` brings some of them back."""
        logits = np.full(n, -depth)
        logits[[0, 1, n - 2]] = [0.0, -1.0, 0.5]
        check(Block([Head(Kernel.table(logits), -0.5, 2.0)], TANH), noise(n, size))


def test_steep_and_gentle_points_do_not_disturb_one_another():
    """Lanes of one vector: what each does depends on its own state alone, to the last bit."""
    block = Block([Head(Kernel.gaussian_lobes(32, 4, 1.0, 2.0), -0.6, 1.5)], TANH)
    starts = np.array([1e-3, 0.3, 3.0, 12.0, 18.0, 22.0, 100.0, 1e4])[:, None] * np.random.default_rng(1).normal(
        size=32
    )
    together = iterate_many(block, starts, depth=60)
    for path, start in zip(together, starts, strict=True):
        alone = iterate(block, 60, start)
        np.testing.assert_array_equal(path.state, alone.state)
        assert path.depth == alone.depth


def test_a_bounded_map_comes_back_from_far():
    """|x| = 10 χ-steep noise under tanh: not diverged, and at rest where the small start is."""
    block = Block([Head(Kernel.gaussian_lobes(32, 4, 1.0, 2.0), -0.6, 1.5)], FeedForward.scalar("tanh", -0.1))
    path = iterate(block, 100, start=10.0)
    assert path.status != "diverged"
    assert path.depth == 100
    assert np.abs(path.state).max() < 1
    found = sweep(lambda chi: Block([Head(block.heads[0].kernel, -0.6, chi)], TANH), {"chi": [1.5, 1e3]}, 100, 10.0)
    assert (found.status < 2).all()


@pytest.mark.parametrize("n", [32, 513])
def test_what_runs_away_still_diverges(n):
    block = Block([Head(Kernel.gaussian_lobes(n, 4, 1.0, 2.0), 1.0, 1.5)], TANH)
    path = iterate(block, 500, start=0.1)
    assert path.status == "diverged"
    assert np.abs(path.state).max() <= 1e6 < np.abs(block.forward(path.state)).max()


@pytest.mark.parametrize("gate", [None, 0.3])
def test_many_features_and_gates(gate):
    """The engine of all other blocks: biases of −1e5, masks, logits of 1e6."""
    n, rng = 24, np.random.default_rng(2)
    bias = np.where(rng.uniform(size=(n, n)) < 0.3, -np.inf, rng.choice([0.0, -1e5, -800.0], size=(n, n)))
    np.fill_diagonal(bias, 0.0)
    head = Head(Kernel.alibi(n, 30.0), -0.3 * np.eye(2), [[2.0, 1.0], [0.0, -1.0]], gate=gate, bias=bias)
    block = Block([head], FeedForward.elementwise("tanh", 2, -0.5))
    for size in (0.1, 20.0, 1e3):
        x = size * rng.normal(size=(n, 2))
        path = iterate(block, 8, x, tolerance=None, every=1)
        for before, after in zip(path.states[:-1], path.states[1:], strict=True):
            np.testing.assert_allclose(after, block.forward(before), rtol=1e-9, atol=1e-9 * size)
