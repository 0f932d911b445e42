"""The slopes of a block at a homogeneous state: matrix, action and transpose agree with complex steps of the map."""

import numpy as np
import pytest
from exact import jacobian

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel, LayerNorm, OutputValue, full_jacobian
from dispersion.block.slopes import Slopes, slopes_at


def blocks(random_block):
    rng = np.random.default_rng(0)
    factors, narrow = (OutputValue(rng.normal(size=(3, m)), rng.normal(size=(m, 3))) for m in (2, 1))
    heads = [Head(Kernel.gaussian_lobes(5, 2.0, 1.0, 1.0), factors, rng.normal(size=(3, 3))), random_head(rng)]
    norms = [LayerNorm(rng.normal(size=3), rng.normal(size=3)) for _ in range(2)]
    part = FeedForward(rng.normal(size=(4, 3)), rng.normal(size=(3, 4)), "gelu", rng.normal(size=4))
    of_factors = Block([heads[0], Head(Kernel.alibi(5, 0.7), narrow)], part, 0.6, *norms)
    return [
        random_block(1, 5, 3, 2),
        Block(heads, part, 0.6, *norms),
        Block(heads, part, 0.6, *norms, "post"),
        of_factors,
    ]


def random_head(rng):
    return Head(Kernel.table(rng.normal(size=5)), rng.normal(size=(3, 3)), bias=rng.normal(size=(5, 5)))


def test_action_transpose_and_matrix_are_those_of_the_map(random_block):
    a, u = np.array([0.3, -0.2, 0.5]), np.random.default_rng(1).normal(size=(5, 3))
    for block in blocks(random_block):
        slopes = slopes_at(block, a)
        attention = slopes.attention()
        truth = jacobian(block, np.tile(a, (5, 1)))
        np.testing.assert_allclose(slopes.dense(attention), truth, rtol=0, atol=1e-12)
        np.testing.assert_allclose(slopes.apply(attention, u).ravel(), truth @ u.ravel(), rtol=0, atol=1e-12)
        transposed = slopes.apply_transposed(attention, u).ravel()
        np.testing.assert_allclose(transposed, truth.T @ u.ravel(), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(full_jacobian(block, a), slopes.dense(attention))
        for head, channel in zip(block.heads, slopes.channels, strict=True):
            alone = block.attention_scale * slopes.pointwise @ head.value @ slopes.inner
            np.testing.assert_allclose(channel, alone, rtol=0, atol=1e-13)


def test_the_homogeneous_map_has_the_slope_of_uniform_symbols(random_block):
    a = np.array([0.3, -0.2, 0.5])
    for block in blocks(random_block):
        slopes = Slopes(block, a)
        ones = np.ones(len(block.heads), dtype=complex)
        np.testing.assert_allclose(slopes.homogeneous, slopes.matrices(ones), rtol=0, atol=1e-13)


def test_slopes_that_are_not_numbers_are_refused():
    flat = Block([Head(Kernel.uniform(4), np.eye(2))], attention_norm=LayerNorm([1.0, 1.0], eps=0.0))
    steep = Block([Head(Kernel.uniform(4), 1e200)], FeedForward.scalar("sine", 1e200))
    for block in (flat, steep):
        with pytest.raises(ArgumentError, match="^state: got"):
            slopes_at(block, None)
    with pytest.raises(ArgumentError, match="^block: got str"):
        slopes_at("block", None)
