"""The block's forward map against Eq. 1–2 written out, and its symmetries."""

import math

import numpy as np
import pytest
from conftest import SMOOTH
from hypothesis import given
from hypothesis import strategies as st

from dispersion import (
    Activation,
    ArgumentError,
    Block,
    Chain,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    OutputValue,
    RMSNorm,
)
from dispersion.quiet import beyond_float64, harmless_underflow

SCALAR = {
    "tanh": math.tanh,
    "gelu": lambda y: y * (1 + math.erf(y / math.sqrt(2))) / 2,
    "gelu_tanh": lambda y: y * (1 + math.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))) / 2,
    "silu": lambda y: y / (1 + math.exp(-y)),
    "quick_gelu": lambda y: y / (1 + math.exp(-1.702 * y)),
    "erf": math.erf,
    "sine": math.sin,
    "relu": lambda y: max(y, 0.0),
    "relu_squared": lambda y: max(y, 0.0) ** 2,
}


def forward_by_loops(block, x):
    """F(X) token by token and head by head, straight from Eq. 1–2."""
    n, d = x.shape
    feedforward = block.feedforward
    act = SCALAR[feedforward.activation.name]
    out = np.empty((n, d))
    for i in range(n):
        y = x[i].copy()
        for head in block.heads:
            scores = []
            for j in range(n):
                content = sum(x[i, a] * head.content[a, b] * x[j, b] for a in range(d) for b in range(d))
                scores.append(math.exp(content + head.kernel.logits[(i - j) % n]))
            for j in range(n):
                for a in range(d):
                    transported = sum(head.value[a, b] * x[j, b] for b in range(d))
                    y[a] += block.attention_scale * scores[j] / sum(scores) * transported
        out[i] = y + feedforward.bias_out
        for hidden, row in enumerate(feedforward.weight_in):
            inner = float(row @ y) + feedforward.bias_in[hidden]
            unit = act(inner)
            if feedforward.gated:
                unit = act(float(feedforward.weight_gate[hidden] @ y) + feedforward.bias_gate[hidden]) * inner
            out[i] += feedforward.weight_out[:, hidden] * unit
    return out


@pytest.mark.parametrize("activation", [*SMOOTH, "relu", "relu_squared"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("n", "d", "heads"), [(5, 1, 1), (6, 2, 3), (4, 3, 2)])
def test_forward_is_equations_1_and_2(random_block, n, d, heads, gated, activation):
    for seed in range(3):
        block = random_block([n, d, heads, seed], n, d, heads, activation, gated=gated)
        x = np.random.default_rng(seed).normal(size=(n, d))
        np.testing.assert_allclose(block.forward(x), forward_by_loops(block, x), rtol=0, atol=1e-13)


def test_attention_rows_sum_to_one(random_block):
    head = random_block(0).heads[0]
    weights = head.attention(np.random.default_rng(1).normal(size=(3, 8, 2)))
    assert weights.shape == (3, 8, 8)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=0, atol=1e-14)


def test_large_logits_do_not_overflow():
    block = Block([Head(Kernel.uniform(4), value=1.0, content=1.0)])
    x = np.array([-100.0, 0.0, 1.0, 100.0])
    np.testing.assert_allclose(block.forward(x), x + np.array([-100.0, 0.25, 100.0, 100.0]), rtol=0, atol=1e-12)


class TestSymmetry:
    @given(seed=st.integers(0, 10**6), shift=st.integers(-9, 9), d=st.integers(1, 3), n=st.integers(2, 9))
    def test_translation(self, seed, shift, d, n):
        block, x = small_block(seed, n, d), np.random.default_rng(seed + 1).normal(size=(n, d))
        shifted_first = block.forward(np.roll(x, shift, axis=0))
        np.testing.assert_allclose(shifted_first, np.roll(block.forward(x), shift, axis=0), rtol=0, atol=1e-13)

    @given(seed=st.integers(0, 10**6), d=st.integers(1, 3), n=st.integers(2, 9))
    def test_homogeneous_states_follow_g(self, seed, d, n):
        block, a = small_block(seed, n, d), np.random.default_rng(seed + 1).normal(size=d)
        x = np.tile(a, (n, 1))
        for _ in range(3):
            x, a = block.forward(x), block.homogeneous_map(a)
            np.testing.assert_allclose(x, np.tile(a, (n, 1)), rtol=0, atol=1e-12)

    def test_directional_kernels_break_reflection(self, random_block):
        block, x = random_block(2, n=7), np.random.default_rng(3).normal(size=(7, 2))
        assert np.abs(block.forward(x[::-1]) - block.forward(x)[::-1]).max() > 0.01


def small_block(seed, n, d):
    rng = np.random.default_rng(seed)
    heads = [Head(Kernel.table(rng.normal(size=n)), *rng.normal(size=(2, d, d))) for _ in range(2)]
    feedforward = FeedForward(rng.normal(size=(4, d)), rng.normal(size=(d, 4)) / 4, "tanh", rng.normal(size=4))
    return Block(heads, feedforward, attention_scale=0.3)


class TestShapes:
    def test_scalar_states_may_drop_the_feature_axis(self, random_block):
        block, x = random_block(4, d=1), np.random.default_rng(5).normal(size=(3, 8))
        dropped, kept = block.forward(x), block.forward(x[..., None])
        assert dropped.shape == (3, 8)
        assert kept.shape == (3, 8, 1)
        np.testing.assert_array_equal(dropped, kept[..., 0])

    def test_batches(self, random_block):
        block, x = random_block(6), np.random.default_rng(7).normal(size=(2, 3, 8, 2))
        together = block.forward(x)
        assert together.shape == (2, 3, 8, 2)
        for index in np.ndindex(2, 3):
            np.testing.assert_allclose(together[index], block.forward(x[index]), rtol=0, atol=1e-14)

    @pytest.mark.parametrize("shape", [(8,), (7, 2), (8, 3), (2, 8), (8, 2, 1), ()])
    def test_refused_states(self, random_block, shape):
        with pytest.raises(ArgumentError, match=rf"^x: got shape {re_shape(shape)}; accepted: shape \(…, 8, 2\)$"):
            random_block(8).forward(np.zeros(shape))

    def test_refused_scalar_states(self, random_block):
        with pytest.raises(ArgumentError, match=r"^x: .*\(…, 8, 1\) or \(…, 8\)$"):
            random_block(8, d=1).forward(np.zeros(7))

    def test_input_is_not_changed(self, random_block):
        x = np.ones((8, 2))
        block = random_block(9)
        block.forward(x)
        identity = Block([Head(Kernel.uniform(8), np.zeros((2, 2)))])
        identity.forward(x)[0] = 5
        np.testing.assert_array_equal(x, 1)


def re_shape(shape):
    return str(shape).replace("(", r"\(").replace(")", r"\)")


class TestFeedForward:
    def test_scalar_and_elementwise(self):
        y = np.linspace(-2, 2, 5)
        np.testing.assert_allclose(FeedForward.scalar("tanh", -0.1)(y[:, None])[:, 0], -0.1 * np.tanh(y), atol=1e-15)
        wide = FeedForward.elementwise(Activation.sine(), 3, 0.5)
        assert wide.d == 3
        np.testing.assert_allclose(wide(np.tile(y[:, None], 3)), 0.5 * np.sin(np.tile(y[:, None], 3)), atol=1e-15)

    @pytest.mark.parametrize("gated", [False, True])
    @pytest.mark.parametrize("activation", [*SMOOTH, "relu_squared"])
    def test_jacobian(self, random_block, activation, gated):
        feedforward = random_block(10, d=3, activation=activation, gated=gated).feedforward
        y = np.array([[0.3, -0.7, 1.1], [-1.2, 0.4, 0.1]])
        step = np.stack([feedforward(y + 1e-20j * unit).imag / 1e-20 for unit in np.eye(3)], axis=-1)
        np.testing.assert_allclose(feedforward.jacobian(y), step, rtol=0, atol=1e-13)
        np.testing.assert_array_equal(feedforward.jacobian(y[1]), feedforward.jacobian(y)[1])

    @pytest.mark.parametrize("gated", [False, True])
    @pytest.mark.parametrize("activation", SMOOTH)
    def test_taylor_sums_to_the_function(self, random_block, activation, gated):
        feedforward = random_block(11, d=1, activation=activation, gated=gated).feedforward
        for y in (0.0, -0.8, 1.3):
            for step in (0.05, -0.05):
                series = feedforward.taylor(y, 16) @ step ** np.arange(17)
                assert series == pytest.approx(feedforward(np.array([y + step]))[0], abs=1e-13)

    def test_only_a_block_without_a_gate_is_plain(self, random_block):
        assert random_block(12).plain
        assert not random_block(12, gated=True).plain

    def test_taylor_of_the_papers_branch(self):
        np.testing.assert_allclose(FeedForward.scalar("tanh", -0.1).taylor(0.0, 3), [0, -0.1, 0, 1 / 30], atol=1e-16)

    def test_none_is_no_feedforward(self):
        block = Block([Head(Kernel.uniform(4), value=-0.5)])
        np.testing.assert_allclose(block.forward(np.full(4, 2.0)), np.full(4, 1.0), atol=1e-15)
        np.testing.assert_array_equal(block.pointwise_jacobian(np.zeros(1)), [[1.0]])


HEAD = Head(Kernel.uniform(4), np.eye(2))

REFUSED = [
    (lambda: Head("uniform", 1.0), "kernel"),
    (lambda: Head(Kernel.uniform(4), np.ones((2, 3))), "value"),
    (lambda: Head(Kernel.uniform(4), np.ones(2)), "value"),
    (lambda: Head(Kernel.uniform(4), np.nan), "value"),
    (lambda: Head(Kernel.uniform(4), np.eye(2) * 1j), "value"),
    (lambda: Head(Kernel.uniform(4), np.eye(2), np.eye(3)), "content"),
    (lambda: Head(Kernel.uniform(4), np.eye(2), 1.0), "content"),
    (lambda: Head(Kernel.uniform(4), 1.0, np.inf), "content"),
    (lambda: Block([]), "heads"),
    (lambda: Block([Kernel.uniform(4)]), "heads"),
    (lambda: Block(HEAD), "heads"),
    (lambda: Block([HEAD, Head(Kernel.uniform(4), np.eye(3))]), r"heads\[1\]"),
    (lambda: Block([HEAD, HEAD, Head(Kernel.uniform(5), np.eye(2))]), r"heads\[2\]"),
    (lambda: Block([HEAD], FeedForward.scalar("tanh")), "feedforward"),
    (lambda: Head(Kernel.table([0, -np.inf, -np.inf]), 0.3, bias=np.where(np.eye(3) == 1, -np.inf, 0)), "bias"),
    (lambda: Block([HEAD], FeedForward.elementwise("tanh", 3)), "feedforward"),
    (lambda: Block([HEAD], np.tanh), "feedforward"),
    (lambda: Block([HEAD], attention_scale=np.nan), "attention_scale"),
    (lambda: Block([HEAD]).homogeneous_map([1.0]), "state"),
    (lambda: Block([HEAD]).homogeneous_map(1.0), "state"),
    (lambda: Block([HEAD]).attended([np.nan, 0.0]), "state"),
    (lambda: FeedForward(np.ones((3, 2)), np.ones((3, 2)), "tanh"), "weight_out"),
    (lambda: FeedForward(np.ones(3), np.ones((3, 2)), "tanh"), "weight_in"),
    (lambda: FeedForward(np.ones((3, 2)), np.ones((2, 3)), "tanh", bias_in=np.zeros(2)), "bias_in"),
    (lambda: FeedForward(np.ones((3, 2)), np.ones((2, 3)), "tanh", bias_out=np.zeros(3)), "bias_out"),
    (lambda: FeedForward(np.ones((3, 2)), np.ones((2, 3)), "swish"), "activation"),
    (lambda: FeedForward(np.ones((3, 2)), np.ones((2, 3)), np.tanh), "activation"),
    (lambda: FeedForward.elementwise("tanh", 0), "d"),
    (lambda: FeedForward.scalar("tanh", np.inf), "scale"),
    (lambda: FeedForward.elementwise("tanh", 2).taylor(0.0, 3), "feedforward"),
]


def test_a_block_with_an_attention_bias_is_not_plain():
    assert not Block([HEAD], attention_bias=[0.1, 0.2]).plain


@pytest.mark.parametrize(("make", "argument"), REFUSED)
def test_refusals_name_the_argument(make, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+"):
        make()


PARTS = ("block", "head", "factors", "feedforward", "normalisation")


def test_a_forward_pass_checks_its_states_once(monkeypatch):
    rng = np.random.default_rng(0)
    head = Head(Kernel.alibi(4, 0.3), OutputValue(rng.normal(size=(2, 1)), rng.normal(size=(1, 2))), np.eye(2))
    feedforward = FeedForward.elementwise("gelu", 2, 0.3)
    block = Block([head] * 4, feedforward, 1.0, LayerNorm.identity(2), RMSNorm.identity(2))
    x, chain = rng.normal(size=(4, 2)), Chain(block, 4, "open")
    expected = block.forward(x), chain.forward(x)

    def refuse(*_):
        raise AssertionError("checked again")

    for part in PARTS:
        monkeypatch.setattr(f"dispersion.block.{part}.states", refuse)
    monkeypatch.setattr("dispersion.block.activation.number_array", refuse)
    for method in (block.seen, block.pointwise, head.attention, feedforward, block.attention_norm):
        with pytest.raises(AssertionError):
            method(x)
    for now, before in zip((block.forward(x), chain.forward(x)), expected, strict=True):
        assert np.array_equal(now, before)


def test_what_is_quiet_is_not_wrapped_again():
    def function():
        return np.array([1e-300]) * 1e-300, np.array([1e300]) * 1e300

    quiet = beyond_float64(function)
    assert harmless_underflow(quiet) is quiet
    quieter = beyond_float64(harmless_underflow(function))
    with np.errstate(all="raise"):
        assert quieter() == (0, np.inf)
