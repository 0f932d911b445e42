"""Homogeneous fixed points against planted roots and finite differences."""

import numpy as np
import pytest

from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, fixed_points


def scalar_block(value, feedforward):
    return Block([Head(Kernel.alibi(6, 0.5), value, content=1.5)], feedforward)


def states(points):
    return np.array([point.state for point in points])


def test_only_the_origin():
    (point,) = fixed_points(scalar_block(-0.4, FeedForward.scalar("tanh", -0.1)))
    np.testing.assert_allclose(point.state, [0.0], atol=1e-14)
    np.testing.assert_allclose(point.multipliers, [0.6 * 0.9], atol=1e-14)
    assert point.stable


@pytest.mark.parametrize("value", [0.0, 0.5, -0.3])
@pytest.mark.parametrize("roots", [(1.2, -0.7), (0.4, 2.0)])
def test_planted_cubic(value, roots):
    """g(a) − a = κ a(a−r)(a−s), so a ∈ {0, r, s} and Dg = 1 + κ d/da[a(a−r)(a−s)]."""
    r, s = roots
    gain, kappa = 1 + value, -0.3
    residual = kappa * np.array([r * s, -(r + s), 1.0])  # κ a(a−r)(a−s) by powers of a from the first
    coefficients = residual / gain ** np.arange(1, 4)  # and of y = (1+η)a
    coefficients[0] += 1 / gain - 1  # H(y) = y + φ(y) must give a = y/(1+η)
    points = fixed_points(scalar_block(value, FeedForward.scalar(Activation.polynomial(coefficients))))
    expected = sorted([0.0, r, s], key=abs)
    np.testing.assert_allclose(states(points)[:, 0], expected, atol=1e-12)
    for point, a in zip(points, expected, strict=True):
        slope = 1 + residual @ np.array([1, 2 * a, 3 * a**2])
        np.testing.assert_allclose(point.multipliers, [slope], atol=1e-11)
        assert point.stable == (abs(slope) < 1)


def test_two_features_that_do_not_talk():
    """φ = ½(y³ − y) on each of two features: nine states {0, ±1}²."""
    feedforward = FeedForward.elementwise(Activation.polynomial([-0.5, 0.0, 0.5]), 2)
    points = fixed_points(Block([Head(Kernel.uniform(4), np.zeros((2, 2)))], feedforward))
    expected = {(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    assert len(points) == 9
    assert {tuple(np.round(point.state).astype(int).tolist()) for point in points} == expected
    np.testing.assert_allclose(states(points), np.round(states(points)), atol=1e-12)
    distances = np.linalg.norm(states(points), axis=1)
    assert (np.diff(distances) > -1e-12).all()
    assert [point.stable for point in points] == [True] + [False] * 8


@pytest.mark.parametrize("seed", range(3))
def test_two_coupled_features(seed):
    rng = np.random.default_rng(seed)
    feedforward = FeedForward(
        rng.normal(size=(5, 2)), 1.5 * rng.normal(size=(2, 5)), "tanh", rng.normal(size=5), rng.normal(size=2)
    )
    block = Block(
        [Head(Kernel.uniform(5), rng.normal(size=(2, 2))), Head(Kernel.alibi(5, 1.0), -np.eye(2))], feedforward
    )
    points = fixed_points(block)
    assert points
    for point in points:
        a, step = point.state, 1e-6
        ring = np.tile(a, (5, 1))
        np.testing.assert_allclose(block.forward(ring), ring, rtol=0, atol=1e-10)
        slopes = [
            (block.homogeneous_map(a + step * unit) - block.homogeneous_map(a - step * unit)) / (2 * step)
            for unit in np.eye(2)
        ]
        differences = np.linalg.eigvals(np.transpose(slopes))
        np.testing.assert_allclose(np.sort_complex(point.multipliers), np.sort_complex(differences), atol=1e-6)
        assert abs(point.multipliers[0]) >= abs(point.multipliers[1])
        assert point.stable == (np.abs(differences).max() < 1)


def test_states_that_are_not_isolated_are_left_out():
    assert fixed_points(scalar_block(0.0, None)) == []  # every a is fixed
    assert fixed_points(scalar_block(0.0, FeedForward.scalar(Activation.polynomial([0.0, 1.0])))) == []  # a fold


def test_the_same_seed_finds_the_same_states():
    block = scalar_block(0.5, FeedForward.scalar("sine", 2.0))
    first, second = fixed_points(block, rng=3), fixed_points(block, rng=3)
    np.testing.assert_array_equal(states(first), states(second))
    assert len(first) > 1


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"radius": -1.0}, "radius"),
        ({"radius": np.nan}, "radius"),
        ({"starts": 0}, "starts"),
        ({"starts": 2.5}, "starts"),
    ],
)
def test_refusals_name_the_argument(settings, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+"):
        fixed_points(scalar_block(-0.4, None), **settings)
