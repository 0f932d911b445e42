"""Many scalar blocks as arrays: what they hold is what each block says alone."""

import numpy as np
import pytest
from conftest import SMOOTH

from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation
from dispersion.block.scalar_blocks import ScalarBlocks, ScalarHeads


def various(random_block, activation="gelu"):
    """Blocks of one and of three heads, of no feed-forward and of hidden layers of different sizes."""
    bare = Block([Head(Kernel.gaussian_lobes(9, 3.0, 1.0, 1.5), -0.4, 1.2)], attention_scale=0.7)
    return [random_block(seed, 9, 1, heads, activation) for seed, heads in ((1, 1), (2, 3))] + [bare]


def test_heads_are_those_of_each_block(random_block):
    blocks = various(random_block)
    heads = ScalarHeads.of(blocks)
    assert heads.n == 9
    assert heads.logits.shape == heads.symbols.shape == (3, 3, 9)
    for place, block in enumerate(blocks):
        for h, head in enumerate(block.heads):
            np.testing.assert_array_equal(heads.symbols[place, h], head.kernel.symbol)
            assert heads.value[place, h] == block.attention_scale * head.value[0, 0]
            assert heads.content[place, h] == head.content[0, 0]
    assert not heads.value[[0, 0, 2, 2], [1, 2, 1, 2]].any()


@pytest.mark.parametrize("activation", [*SMOOTH, "relu", "relu_squared"])
def test_multipliers_are_those_of_each_block(random_block, activation):
    blocks = various(random_block, activation)
    found = ScalarBlocks.of(blocks)
    for place, block in enumerate(blocks):
        relation = dispersion_relation(block)
        np.testing.assert_allclose(found.multipliers[place], relation.matrices[:5, 0, 0], rtol=1e-13, atol=1e-14)
        assert found.pointwise[place] == pytest.approx(relation.pointwise[0, 0], rel=1e-14)


def test_polynomials_of_different_degree():
    def block(coefficients):
        part = FeedForward([[0.7], [1.1]], [[0.5, -0.2]], Activation.polynomial(coefficients), [0.3, -0.4])
        return Block([Head(Kernel.uniform(4), -0.5)], part)

    blocks = [block([-0.1, 0.2]), block([0.3]), block([0.1, 0.0, -0.3, 0.4])]
    expected = [dispersion_relation(each).pointwise[0, 0] for each in blocks]
    np.testing.assert_allclose(ScalarBlocks.of(blocks).pointwise, expected, rtol=1e-14)


def test_relu_at_its_kink_has_no_slope():
    blocks = [Block([Head(Kernel.uniform(4), 0.5)], FeedForward([[1.0]], [[0.2]], "relu", [b])) for b in (0.0, 1.0)]
    found = ScalarBlocks.of(blocks)
    np.testing.assert_array_equal(found.pointwise, [np.nan, 1.2])
    assert np.isnan(found.multipliers[0]).all()


def test_some_of_the_points(random_block):
    blocks = various(random_block)
    whole, some = ScalarBlocks.of(blocks), ScalarBlocks.of(blocks).take(np.array([2, 0]))
    assert some.activation == whole.activation
    np.testing.assert_array_equal(some.multipliers, whole.multipliers[[2, 0]])


def test_unlike_blocks_are_refused():
    def block(n=8, activation="tanh"):
        return Block([Head(Kernel.uniform(n), value=-0.5)], FeedForward.scalar(activation))

    with pytest.raises(ArgumentError, match=r"blocks\[1\].*N = 9.*N = 8"):
        ScalarBlocks.of([block(), block(9)])
    with pytest.raises(ArgumentError, match=r"blocks\[2\].*'sine'.*'tanh'"):
        ScalarBlocks.of([block(), block(), block(activation="sine")])
    two = Block([Head(Kernel.uniform(8), np.eye(2))])
    with pytest.raises(ArgumentError, match="d = 2"):
        ScalarBlocks.of([two])
    assert ScalarBlocks.of([Block([Head(Kernel.uniform(8), value=-0.5)]), block()]).activation == "tanh"
    gated = FeedForward([[1.0]], [[1.0]], "silu", weight_gate=[[1.0]])
    with pytest.raises(ArgumentError, match=r"point 3.*beyond Eqs. 1–2"):
        ScalarBlocks.of([Block([Head(Kernel.uniform(8), value=-0.5)], gated)], ["point 3"])
