"""Chains with periodic, open and causal ends: maps, Jacobians, the core of Prop. A.2, exponential tails."""

import numpy as np
import pytest

from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, RMSNorm, Rotary, dispersion_relation
from dispersion.line.chain import Chain, _steepest_slope, core, tail_bound, tail_mass
from dispersion.line.sectors import chain_spectrum


def by_weight(weights, n=16):
    """The kernel on a ring of n tokens with these attention weights by lag."""
    logits = np.full(n, -np.inf)
    for lag, weight in weights.items():
        logits[lag % n] = np.log(weight)
    return Kernel.table(logits)


SKEW = {-2: 0.02, -1: 0.06, 0: 0.12, 1: 0.2, 2: 0.35, 3: 0.25}


def ranged_block(n, d=2, seed=0):
    """Two heads with content, lags −2 … 3 and −1 … 2, and a tanh feed-forward."""
    rng = np.random.default_rng(seed)
    kernels = [by_weight(SKEW, n), by_weight({-1: 0.3, 0: 0.2, 2: 0.5}, n)]
    heads = [Head(kernel, rng.normal(size=(d, d)) / 2, rng.normal(size=(d, d)) / 2) for kernel in kernels]
    return Block(heads, FeedForward(rng.normal(size=(3, d)), rng.normal(size=(d, 3)) / 2, "tanh"), 0.7)


def written_out(block, x, boundary):
    """F(X) by loops over the keys that exist (Eqs. 1, 2)."""
    n, y = len(x), x.copy()
    for head in block.heads:
        lags = {int(lag): head.kernel.logits[lag % block.n] for lag in head.kernel.lags}
        for i in range(n):
            keys = [j for j in range(n) if i - j in lags and not (boundary == "causal" and j > i)]
            weights = np.array([np.exp(x[i] @ head.content @ x[j] + lags[i - j]) for j in keys])
            mean = weights @ x[keys] / weights.sum()
            y[i] = y[i] + block.attention_scale * head.value @ mean
    return block.pointwise(y)


@pytest.mark.parametrize("boundary", ["open", "causal"])
@pytest.mark.parametrize("n", [3, 8, 13])
def test_forward_is_the_sum_over_the_keys_that_exist(random_block, boundary, n):
    for block in (random_block(1, n=8), ranged_block(9)):
        x = np.random.default_rng(n).normal(size=(n, 2))
        np.testing.assert_allclose(Chain(block, n, boundary).forward(x), written_out(block, x, boundary), atol=1e-13)


def test_a_periodic_chain_is_the_block(random_block):
    for seed in range(3):
        block = random_block(seed)
        chain, x = Chain(block, block.n, "periodic"), np.random.default_rng(seed).normal(size=(4, block.n, block.d))
        np.testing.assert_allclose(chain.forward(x), block.forward(x), rtol=0, atol=1e-14)
        spectrum = np.linalg.eigvals(chain.jacobian(0.3 * np.ones(2)))
        relation = dispersion_relation(block, 0.3 * np.ones(2))
        for value in relation.multipliers.ravel():
            assert np.abs(spectrum - value).min() < 1e-10


def test_a_longer_ring_keeps_the_lags():
    """A block on 9 tokens, on a periodic chain of 20, is the same kernel on a ring of 20."""
    x = np.random.default_rng(0).normal(size=(20, 2))
    same = ranged_block(20).forward(x)
    np.testing.assert_allclose(Chain(ranged_block(9), 20, "periodic").forward(x), same, rtol=0, atol=1e-14)


@pytest.mark.parametrize("boundary", ["periodic", "open", "causal"])
def test_jacobian_is_the_derivative_of_forward(boundary):
    block, n, state = ranged_block(12), 12, np.array([0.4, -0.7])
    chain, step = Chain(block, n, boundary), 1e-30
    base = np.tile(state, (n, 1)).astype(complex)
    columns = [chain.forward(base + 1j * step * e.reshape(n, 2)).imag.ravel() / step for e in np.eye(2 * n)]
    np.testing.assert_allclose(chain.jacobian(state), np.array(columns).T, rtol=0, atol=1e-14)


@pytest.mark.parametrize("boundary", ["periodic", "open", "causal"])
def test_homogeneous_states_stay_homogeneous(boundary):
    block, a = ranged_block(12), np.array([0.4, -0.7])
    out = Chain(block, 12, boundary).forward(np.tile(a, (12, 1)))
    np.testing.assert_allclose(out, np.tile(block.homogeneous_map(a), (12, 1)), atol=1e-14)


def test_scalar_states_may_drop_the_feature_axis():
    block = Block([Head(by_weight(SKEW), -0.4, 1.5)], FeedForward.scalar("tanh", -0.1))
    chain, x = Chain(block, 12, "open"), np.random.default_rng(0).normal(size=(3, 12))
    np.testing.assert_array_equal(chain.forward(x), chain.forward(x[..., None])[..., 0])


def test_attention_is_normalised_over_existing_keys():
    chain = Chain(Block([Head(by_weight(SKEW), 1.0)]), 10, "causal")
    A = chain.attention()[0]
    assert chain.attention().shape == (1, 10, 10)
    np.testing.assert_allclose(A.sum(axis=1), 1, atol=1e-15)
    assert not np.triu(A, 1).any()
    np.testing.assert_allclose(np.diagonal(A)[:4], [1, 0.12 / 0.32, 0.12 / 0.67, 0.12 / 0.92], rtol=1e-14)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_open_and_periodic_agree_on_the_core(layers):
    """Prop. A.2, nonlinear: exact inside, and it ends where the proposition says."""
    n, block = 32, ranged_block(32)
    ring, chain = Chain(block, n, "periodic"), Chain(block, n, "open")
    x = y = np.random.default_rng(5).normal(size=(n, 2))
    for _ in range(layers):
        x, y = ring.forward(x), chain.forward(y)
    inside = core(block, layers, n)
    assert (inside.start, inside.stop) == (3 * layers, n - 2 * layers)
    assert np.abs(x[inside] - y[inside]).max() <= 8 * np.finfo(float).eps * np.abs(x).max()
    assert np.abs(x[inside.start - 1] - y[inside.start - 1]).max() > 1e-12
    assert np.abs(x[inside.stop] - y[inside.stop]).max() > 1e-12


def test_the_core_may_be_empty():
    inside = core(ranged_block(12), 5, 12)
    assert np.arange(12)[inside].size == 0


def furnished_block(n, frequencies, seed=2):
    """Rotary content logits, a bias by lag, and both RMSNorms before their branches."""
    rng = np.random.default_rng(seed)
    rotary = Rotary(rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), frequencies)
    norms = [RMSNorm(rng.uniform(0.5, 1.5, size=3)) for _ in range(2)]
    lag = np.subtract.outer(np.arange(n), np.arange(n)) % n
    heads = [
        Head(by_weight(SKEW, n), rng.normal(size=(3, 3)) / 2, rotary=rotary),
        Head(by_weight(SKEW, n), rng.normal(size=(3, 3)) / 2, rng.normal(size=(3, 3)), bias=rng.normal(size=n)[lag]),
    ]
    return Block(heads, FeedForward.elementwise("tanh", 3, -0.3), 0.7, *norms)


STATE = np.array([0.5, -0.8, 0.3])


def test_a_furnished_periodic_chain_is_the_block():
    block = furnished_block(12, 2 * np.pi * np.array([1, 3]) / 12)
    x = np.random.default_rng(0).normal(size=(12, 3))
    np.testing.assert_allclose(Chain(block, 12, "periodic").forward(x), block.forward(x), rtol=0, atol=1e-14)
    spectrum = np.linalg.eigvals(Chain(block, 12, "periodic").jacobian(STATE))
    for value in dispersion_relation(block, STATE).multipliers.ravel():
        assert np.abs(spectrum - value).min() < 1e-10


@pytest.mark.parametrize("boundary", ["open", "causal"])
def test_furnished_chains_need_no_grid(boundary):
    """Rotary frequencies off the grid, on a chain with ends: the derivative, and the spectrum by sectors."""
    chain, step = Chain(furnished_block(12, [0.37, 0.9]), 8, boundary), 1e-30
    base = np.tile(STATE, (8, 1)).astype(complex)
    columns = [chain.forward(base + 1j * step * e.reshape(8, 3)).imag.ravel() / step for e in np.eye(24)]
    jacobian = chain.jacobian(STATE)
    np.testing.assert_allclose(jacobian, np.array(columns).T, rtol=0, atol=1e-14)
    spectrum = chain_spectrum(chain, STATE)
    assert np.poly(spectrum).real == pytest.approx(np.poly(jacobian), rel=1e-10, abs=1e-9)


def test_the_core_of_a_furnished_block():
    block = furnished_block(24, 2 * np.pi * np.array([1, 3]) / 24)
    x = y = np.random.default_rng(5).normal(size=(24, 3))
    for _ in range(2):
        x, y = Chain(block, 24, "periodic").forward(x), Chain(block, 24, "open").forward(y)
    inside = core(block, 2, 24)
    assert np.abs(x - y)[inside].max() <= 8 * np.finfo(float).eps * np.abs(x).max()
    assert np.abs(x - y).max() > 1e-3


def test_a_bias_shortens_the_range_as_a_kernel_does():
    near = np.abs(np.fft.fftfreq(11, 1 / 11)) <= 2
    lag = np.subtract.outer(np.arange(11), np.arange(11)) % 11
    window = np.where(near, 0.0, -np.inf)
    by_kernel = Block([Head(Kernel.table(window), 0.3)])
    by_bias = Block([Head(Kernel.uniform(11), 0.3, bias=window[lag])])
    assert core(by_bias, 1, 11) == core(by_kernel, 1, 11) == slice(2, 9)
    x = np.random.default_rng(0).normal(size=7)
    rings = [Chain(block, 7, "periodic").forward(x) for block in (by_bias, by_kernel)]
    np.testing.assert_allclose(*rings, rtol=0, atol=1e-15)


TAILED = {
    "alibi": Kernel.alibi(64, 0.7),
    "gaussian weights": Kernel.table(-0.1 * (((np.arange(64) + 32) % 64 - 32) - 1.0) ** 2),
}


@pytest.mark.parametrize("kernel", TAILED.values(), ids=TAILED)
@pytest.mark.parametrize(("layers", "distance"), [(1, 12), (2, 10), (3, 8)])
def test_exponential_tails_stay_under_the_bound(kernel, layers, distance):
    block = Block([Head(kernel, -0.6, 0.3)], FeedForward.scalar("tanh", -0.1))
    ring, chain = Chain(block, 64, "periodic"), Chain(block, 64, "open")
    x = y = np.random.default_rng(layers).uniform(-1, 1, size=64)
    radius = 0.0
    for _ in range(layers):
        radius = max(radius, np.abs(x).max(), np.abs(y).max())
        x, y = ring.forward(x), chain.forward(y)
    inside = slice(layers * distance, 64 - layers * distance)
    bound = tail_bound(block, layers, distance, radius)
    error = np.abs(x - y)[inside].max()
    assert 0 < error <= bound + 1e-15
    assert bound < 1e3 * layers * tail_mass(kernel, distance)  # O(L δ(ξ)), as it should be


@pytest.mark.parametrize("activation", [*(name for name in Activation.names() if name != "polynomial"), "cubic"])
def test_slopes_stay_under_their_bound(activation):
    rng, reach = np.random.default_rng(3), 1.5
    activation = Activation.polynomial([0.4, -0.3, 0.2]) if activation == "cubic" else activation
    weights = rng.normal(size=(4, 3)), rng.normal(size=(3, 4))
    block = Block([Head(Kernel.uniform(4), np.eye(3))], FeedForward(*weights, activation, rng.normal(size=4)))
    y = rng.normal(size=(2000, 3))
    y *= reach * rng.uniform(size=(2000, 1)) / np.linalg.norm(y, axis=1, keepdims=True)
    slopes = np.eye(3) + block.feedforward.jacobian(y)
    assert np.linalg.norm(slopes, 2, axis=(1, 2)).max() <= _steepest_slope(block, reach)
    scalar = FeedForward.scalar(activation).jacobian(np.linspace(-reach, reach, 2000)[:, None])
    unit = _steepest_slope(Block([Head(Kernel.uniform(4), 1.0)], FeedForward.scalar(activation)), reach)
    assert 0.6 * (unit - 1) < np.abs(scalar).max() <= unit - 1


def test_tail_mass_of_alibi():
    """δ(ξ) = 2p^{ξ+1}/(1+p) without the ring's cut, p = e^{−m}."""
    p = np.exp(-0.7)
    assert tail_mass(TAILED["alibi"], 5) == pytest.approx(2 * p**6 / (1 + p), rel=1e-8)
    assert tail_mass(TAILED["alibi"], 40) == 0


def test_a_bound_for_polynomials_and_without_feed_forward():
    kernel, x = TAILED["alibi"], np.random.default_rng(0).uniform(-0.3, 0.3, size=64)
    bounds = []
    for feedforward in (None, FeedForward.scalar(Activation.polynomial([-0.1, 0.1, -0.3]))):
        block = Block([Head(kernel, 0.5, 1.0)], feedforward)
        error = np.abs(Chain(block, 64, "open").forward(x) - Chain(block, 64, "periodic").forward(x))[10:-10].max()
        bounds.append(tail_bound(block, 1, 10, 0.3))
        assert error <= bounds[-1]
    assert bounds[0] < bounds[1]


def test_memory_is_estimated_before_it_is_taken(monkeypatch):
    block = ranged_block(9)
    monkeypatch.setattr("dispersion.memory.SMALL", 0)
    monkeypatch.setattr("dispersion.memory.available_memory", lambda: 10**9)
    with pytest.raises(ArgumentError, match="n: got 20000, attention weights of .* that needs 19,200,000,000"):
        Chain(block, 20000, "open")
    chain = Chain(block, 80, "open")
    monkeypatch.setattr("dispersion.memory.available_memory", lambda: 10**5)
    with pytest.raises(ArgumentError, match="n: got 80, a Jacobian of 160² that needs .* at most 80,000 bytes"):
        chain.jacobian(np.zeros(block.d))


def test_refusals(random_block):
    block = ranged_block(9)
    with pytest.raises(ArgumentError, match="boundary: got 'reflecting'"):
        Chain(block, 9, "reflecting")
    with pytest.raises(ArgumentError, match="n: got 1"):
        Chain(block, 1, "open")
    with pytest.raises(ArgumentError, match=r"n: got 5; accepted: more than 5"):
        Chain(block, 5, "periodic")
    with pytest.raises(ArgumentError, match="block: got Head"):
        Chain(block.heads[0], 9, "open")
    with pytest.raises(ArgumentError, match="no key for token 0"):
        Chain(Block([Head(by_weight({1: 0.5, 2: 0.5}), 1.0)]), 9, "open")
    with pytest.raises(ArgumentError, match="no key for token 0"):
        Chain(Block([Head(by_weight({-1: 0.5, 1: 0.5}), 1.0)]), 9, "causal")
    with pytest.raises(ArgumentError, match="x: got shape"):
        Chain(block, 9, "open").forward(np.zeros((9, 3)))
    with pytest.raises(ArgumentError, match="x: got shape"):
        Chain(block, 9, "open").forward(np.zeros(9))
    with pytest.raises(ArgumentError, match="distance"):
        tail_mass(block.heads[0].kernel, -1)
    with pytest.raises(ArgumentError, match=r"heads\[0\].gate"):
        Chain(Block([Head(by_weight(SKEW), 1.0, gate=0.5)]), 9, "open")
    with pytest.raises(ArgumentError, match="torus"):
        Chain(Block([Head(Kernel(np.zeros((4, 4))), 1.0)]), 9, "open")
    with pytest.raises(ArgumentError, match=r"heads\[0\].rotary"):
        Chain(furnished_block(12, [0.37, 0.9]), 12, "periodic")
    with pytest.raises(ArgumentError, match="plain block"):
        tail_bound(furnished_block(12, [0.37, 0.9]), 1, 1, 1.0)
    with pytest.raises(ArgumentError, match="gate or bias; accepted: a plain block"):
        tail_bound(random_block(0, gated=True), 1, 1, 1.0)
    with pytest.raises(ArgumentError, match="radius"):
        tail_bound(block, 1, 1, 0.0)
