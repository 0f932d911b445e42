"""The derivative of the full map against complex steps of the forward pass, one feature of a block at a time."""

import exact
import numpy as np
import pytest
from conftest import SMOOTH

from dispersion import (
    ArgumentError,
    Block,
    DyT,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    Normalisation,
    QueryKey,
    RMSNorm,
    Rotary,
)
from dispersion.block.derivative import value_and_jacobian


def agrees(block, x):
    image, derivative = value_and_jacobian(block, x)
    truth = exact.jacobian(block, x)
    np.testing.assert_allclose(image, block.forward(x), rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(derivative, block.jacobian(x))
    np.testing.assert_allclose(derivative, truth, rtol=0, atol=1e-12 * max(1.0, np.abs(truth).max()))


def state(seed, n, d, scale=0.7):
    return scale * np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("activation", [*SMOOTH, "relu", "relu_squared"])
@pytest.mark.parametrize(("n", "d", "heads"), [(7, 1, 1), (8, 1, 2), (6, 2, 3), (5, 4, 2)])
@pytest.mark.parametrize("gated", [False, True])
def test_plain_and_gated_blocks(random_block, activation, n, d, heads, gated):
    agrees(random_block([n, d], n, d, heads, activation, gated=gated), state(1, n, d))


def head(d=3, n=6, **options):
    rng = np.random.default_rng(5)
    content = {} if "rotary" in options or "content" in options else {"content": rng.normal(size=(d, d))}
    return Head(Kernel.table(rng.normal(size=n)), rng.normal(size=(d, d)), **content, **options)


def factors(*biases, d=3):
    return QueryKey(*np.random.default_rng(11).normal(size=(2, 4, d)), *biases)


def rotary(pairing, *biases, d=3, n=6):
    rng = np.random.default_rng(6)
    weights, frequencies = rng.normal(size=(2, 4, d)), 2 * np.pi * np.array([1, 2]) / n
    return Rotary(*weights, frequencies, pairing, *biases)


BIAS = np.where(np.eye(6, k=2) > 0, -np.inf, np.random.default_rng(7).normal(size=(6, 6)))


@pytest.mark.parametrize(
    "options",
    [
        {"gate": 0.3},
        {"bias": BIAS},
        {"rotary": rotary("half")},
        {"rotary": rotary("interleaved")},
        {"rotary": rotary("half", [0.1, -0.2, 0.3, 0.4], [0.5, 0.1, -0.6, 0.2]), "gate": 0.6, "bias": BIAS},
        {"key_bias": [0.3, -0.5, 0.2]},
        {"content": factors()},
        {"content": factors([0.1, -0.2, 0.3, 0.4], [0.5, 0.1, -0.6, 0.2]), "gate": 0.6},
    ],
    ids=["gate", "bias", "rotary", "interleaved", "rotary with all", "key bias", "factors", "factors with all"],
)
def test_heads(options):
    agrees(Block([head(**options), head()], attention_scale=0.4, attention_bias=[0.1, -0.3, 0.2]), state(2, 6, 3))


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm, DyT])
def test_normalisations(norm, placement):
    rng = np.random.default_rng(8)
    norms = [norm(rng.normal(size=3), rng.normal(size=3)) for _ in range(2)]
    feedforward = FeedForward(rng.normal(size=(5, 3)), rng.normal(size=(3, 5)), "gelu", rng.normal(size=5))
    x = state(3, 6, 3)
    agrees(Block([head()], feedforward, 0.7, *norms, placement), x)
    agrees(Block([head()], None, 0.7, norms[0], None, placement), x)
    agrees(Block([head()], feedforward, 0.7, None, norms[1], placement), x)
    agrees(Block([head()], None, 0.7, None, norms[1], placement), x)


def test_a_torus():
    kernel = Kernel.gaussian_lobes((3, 4), (1, 1), 0.8, 1.5)
    rng = np.random.default_rng(9)
    turning = Rotary(rng.normal(size=(2, 2)), rng.normal(size=(2, 2)), [[2 * np.pi / 3, np.pi / 2]])
    heads = [Head(kernel, rng.normal(size=(2, 2)), rng.normal(size=(2, 2))), Head(kernel, np.eye(2), rotary=turning)]
    agrees(Block(heads, FeedForward.elementwise("tanh", 2, -0.1)), state(4, 12, 2))


def test_at_a_homogeneous_state_it_is_the_dispersion_relation(random_block):
    from dispersion import dispersion_relation

    block, a = random_block(3, 6, 2, 2), np.array([0.3, -0.2])
    _, derivative = value_and_jacobian(block, np.tile(a, (6, 1)))
    waves = np.exp(2j * np.pi * np.outer(np.arange(6), np.arange(6)) / 6)
    for k, matrix in enumerate(dispersion_relation(block, state=a).matrices):
        basis = np.kron(waves[:, k : k + 1], np.eye(2))
        np.testing.assert_allclose(derivative @ basis, basis @ matrix, rtol=0, atol=1e-12)


def test_relu_at_its_kink_is_refused():
    block = Block([Head(Kernel.uniform(4), 0.5)], FeedForward.scalar("relu"))
    with pytest.raises(ArgumentError, match="activation"):
        value_and_jacobian(block, np.zeros((4, 1)))


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm, DyT])
def test_slopes_of_many_tokens_at_once(norm, placement):
    rng = np.random.default_rng(10)
    first, second = (norm(rng.normal(size=3), rng.normal(size=3)) for _ in range(2))
    block = Block([head()], FeedForward.elementwise("gelu", 3, 0.4), 0.7, first, second, placement)
    x = rng.normal(size=(4, 5, 3))
    for function in (first.jacobian, block.pointwise_jacobian, block.seen_jacobian):
        slopes = function(x)
        assert slopes.shape == (4, 5, 3, 3)
        np.testing.assert_allclose(slopes[2, 3], function(x[2, 3]), rtol=1e-14)
    steps = block.pointwise(x[..., None, :] + 1e-30j * np.eye(3)).imag / 1e-30
    np.testing.assert_allclose(block.pointwise_jacobian(x), np.swapaxes(steps, -1, -2), rtol=0, atol=1e-13)


def test_a_scalar_state_needs_no_axis_for_its_feature(random_block):
    block, x = random_block(2, 5, 1), state(5, 5, 1)
    np.testing.assert_array_equal(block.jacobian(x[:, 0]), block.jacobian(x))


@pytest.mark.parametrize("x", [np.zeros((2, 4, 1)), np.zeros(3), np.zeros(4) + 0j, "x"])
def test_what_is_not_one_real_state_is_refused(x):
    with pytest.raises(ArgumentError, match="^x: got"):
        Block([Head(Kernel.uniform(4), 0.5)]).jacobian(x)


def test_rotary_frequencies_off_the_grid_are_refused():
    turning = Rotary(np.eye(2), np.eye(2), [0.3])
    with pytest.raises(ArgumentError, match="rotary"):
        Block([Head(Kernel.uniform(4), np.eye(2), rotary=turning)]).jacobian(np.ones((4, 2)))


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm, DyT])
def test_formulas_of_normalisations_are_their_complex_steps(norm):
    rng = np.random.default_rng(12)
    one, x = norm(rng.normal(size=4), rng.normal(size=4)), rng.normal(size=(3, 5, 4))
    steps = one.gain[:, None] * Normalisation._derivative(one, x)
    np.testing.assert_allclose(one.jacobian(x), steps, rtol=0, atol=1e-14)
