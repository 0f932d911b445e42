"""Blocks of many features, long rings and tori: every engine against the plain map, and what is measured."""

import numpy as np
import pytest

import simulate
import simulate.engines.vector
import simulate.plan
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from dispersion.block.factors import Rotary
from dispersion.block.normalisation import DyT, LayerNorm, RMSNorm
from dispersion.block.scalar_blocks import ScalarBlocks
from dispersion.line.chain import Chain
from simulate import iterate, iterate_many, sweep
from simulate.engines import choice
from simulate.engines.engine import Engine
from simulate.engines.long import LongRing
from simulate.engines.scalar import Batch
from simulate.engines.states import OneMap, States
from simulate.engines.vector import VectorMap

D = 6


def matrices(rng, count, rank=D):
    return [0.5 * rng.normal(size=(D, rank)) @ rng.normal(size=(rank, D)) / rank for _ in range(count)]


def block_of(kind, n=20):
    """A random block with what `kind` names."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    keywords = [{}, {}]
    norms = {}
    if "mask" in kind:
        mask = np.where(rng.uniform(size=(n, n)) < 0.5, -np.inf, rng.normal(size=(n, n)))
        np.fill_diagonal(mask, 0)
        keywords[0]["bias"] = mask
    if "gate" in kind:
        keywords[1]["gate"] = 0.3
    for pairing in ("half", "interleaved"):
        if pairing in kind:
            frequencies = 2 * np.pi * rng.integers(0, n, 2) / n
            biases = rng.normal(size=(2, 4)) if "bias" in kind else ()
            keywords[1]["rotary"] = Rotary(*rng.normal(size=(2, 4, D)), frequencies, pairing, *biases)
    if "bias" in kind:
        keywords[0]["key_bias"] = rng.normal(size=D)
        norms["attention_bias"] = rng.normal(size=D)
    if "pre" in kind or "post" in kind:
        gain = rng.uniform(0.5, 1.5, D)
        second = DyT(gain) if "dyt" in kind else RMSNorm(gain)
        norms |= {"attention_norm": LayerNorm(gain), "feedforward_norm": second}
        norms["placement"] = "pre" if "pre" in kind else "post"
    shape = (4, n // 4) if "torus" in kind else (n,)
    rank = 2 if "low rank" in kind else D
    heads = []
    for extra, value, content in zip(keywords, matrices(rng, 2, rank), matrices(rng, 2, rank), strict=True):
        content = None if "rotary" in extra else content
        heads.append(Head(Kernel(rng.normal(size=shape)), value, content, **extra))
    hidden = FeedForward(rng.normal(size=(9, D)), 0.1 * rng.normal(size=(D, 9)), "gelu", rng.normal(size=9))
    if "swiglu" in kind:
        weights = hidden.weight_in, hidden.weight_out
        hidden = FeedForward(*weights, "silu", None, None, rng.normal(size=(9, D)), rng.normal(size=9))
    return Block(heads, hidden, 0.7, **norms)


KINDS = [
    "plain",
    "low rank",
    "mask",
    "gate",
    "half",
    "interleaved",
    "pre",
    "post dyt",
    "torus",
    "torus gate",
    "pre gate mask low rank",
    "post interleaved",
    "bias",
    "bias low rank",
    "bias half",
    "pre bias interleaved gate mask",
    "swiglu",
    "pre half swiglu",
]


@pytest.mark.parametrize("kind", KINDS)
def test_vector_engine_equals_the_block(kind):
    block = block_of(kind)
    x = np.random.default_rng(1).normal(size=(3, block.n, D))
    np.testing.assert_allclose(VectorMap(block)(x), block.forward(x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("boundary", ["periodic", "open", "causal"])
def test_vector_engine_equals_the_chain(boundary):
    rng = np.random.default_rng(2)
    lag = np.abs(np.fft.fftfreq(41, 1 / 41))
    kernel = Kernel.table(np.where(lag < 6, -lag, -np.inf))
    frequencies = [2 * np.pi / 21, 0.0] if boundary == "periodic" else [0.37, 0.11]
    rotary = Rotary(*rng.normal(size=(2, 4, D)), frequencies, "half", *rng.normal(size=(2, 4)))
    value, content = matrices(rng, 2)
    heads = [Head(kernel, value, content, key_bias=rng.normal(size=D)), Head(kernel, content, rotary=rotary)]
    block = Block(heads, None, 0.7, attention_bias=rng.normal(size=D))
    chain = Chain(block, 21, boundary)
    x = rng.normal(size=(2, 21, D))
    np.testing.assert_allclose(VectorMap(chain)(x), chain.forward(x), rtol=0, atol=1e-13)
    path = iterate(chain, depth=20, start=0.1, rng=3, every=20)
    state = path.states[0]
    for _ in range(20):
        state = chain.forward(state)
    np.testing.assert_allclose(path.state, state, rtol=0, atol=1e-12 * np.abs(state).max())
    assert path.engine == "blas"
    assert path.shape == (21,)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_threads_share_the_heads_and_change_no_bit(heads, monkeypatch):
    rng = np.random.default_rng(heads)
    n, d = 300, 20
    kernel = Kernel.table(-np.abs(np.fft.fftfreq(n, 1 / n)))
    made = [Head(kernel, *rng.normal(size=(2, d, d)) / d) for _ in range(heads)]
    block = Block(made, FeedForward(rng.normal(size=(3 * d, d)), 0.1 * rng.normal(size=(d, 3 * d)), "tanh"))
    x = rng.normal(size=(2, n, d))
    monkeypatch.setattr(simulate.engines.vector, "ALONE", 1.0)
    states = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(simulate.engines.vector, "thread_count", lambda threads=threads: threads)
        states.append(VectorMap(block)(x))
    np.testing.assert_allclose(states[0], block.forward(x), rtol=0, atol=1e-13)
    assert all((state == states[0]).all() for state in states)


def scalar_block(n, content=1.5):
    heads = [
        Head(Kernel.gaussian_lobes(n, 4, 1.0, 2.0), -0.5, content),
        Head(Kernel.skewed_lobe(n, 6, 0.7, 2.0, 1.0), 0.1, -content / 3),
    ]
    return Block(heads, FeedForward.scalar("tanh", -0.1))


@pytest.mark.parametrize("n", [16, 30, 128])
@pytest.mark.parametrize("size", [1e-3, 0.1, 0.5, 2.0])
def test_three_engines_are_one_map(n, size):
    block = scalar_block(n)
    start = size * np.random.default_rng(n).standard_normal(n)
    lanes = Batch(ScalarBlocks.of([block]), start[None, :, None])
    engines = [States(engine(block), start[None, :, None]) for engine in (LongRing, VectorMap)]
    for engine in (lanes, *engines):
        engine.advance(40)
    expected = lanes.states[0, :, 0]
    for engine in engines:
        np.testing.assert_allclose(engine.states[0, :, 0], expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        assert engine.steps.tolist() == [40]


@pytest.mark.parametrize("n", [1000, 1021])
@pytest.mark.parametrize("size", [1e-4, 0.3, 0.8, 3.0])
def test_long_rings(n, size):
    block = scalar_block(n)
    x = size * np.random.default_rng(0).uniform(-1, 1, n)
    ring = LongRing(block)
    expected = block.forward(x)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(ring.layer(x), expected, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(ring.layer(x, 0), expected, rtol=0, atol=1e-12 * scale)


def test_the_number_of_terms_follows_the_state():
    ring = LongRing(scalar_block(600))
    counts = [ring.terms(np.full(600, size)) for size in (1e-4, 1e-2, 0.1, 0.5, 1.0, 2.0)]
    assert counts == [*sorted(counts[:-1]), 0]
    assert counts[0] == 2


class Plain(Engine):
    """A new engine: blocks of seven tokens as `Block.forward` has them."""

    name = "plain"

    def fits(self, model):
        return model.n == 7

    def system(self, models):
        return OneMap(models[0].forward)

    def operations(self, model):
        return 1e3

    def bytes(self, model, points):
        return 1e3


def test_an_engine_is_one_class_and_its_place_among_the_others(monkeypatch):
    engines = (*choice.ENGINES[:-1], Plain(), choice.ENGINES[-1])
    for module in (choice, simulate.plan):
        monkeypatch.setattr(module, "ENGINES", engines)
    gated = Block([Head(Kernel.uniform(7), -0.5, 1.0, gate=0.5)])
    path = iterate(gated, 20, start=0.1)
    assert path.engine == "plain"
    state = path.states[0]
    for _ in range(20):
        state = gated.forward(state)
    np.testing.assert_array_equal(path.state, state)
    found = sweep(lambda gate: Block([Head(Kernel.uniform(7), -0.5, 1.0, gate=gate)]), {"gate": [0.2, 0.5]}, 20)
    assert found.engine.values.tolist() == [2, 2]
    assert iterate(scalar_block(32), 2).engine == "lanes"


def test_engine_is_chosen_by_kind_and_size():
    assert iterate(scalar_block(32), 2).engine == "lanes"
    assert iterate(scalar_block(512), 2).engine == "lanes"
    long = iterate(scalar_block(600), 70, start=0.1)
    assert long.engine == "fft"
    assert long.depth == 70
    gated = Block([Head(Kernel.uniform(8), -0.5, 1.0, gate=0.5)])
    assert iterate(gated, 2).engine == "blas"
    assert iterate(Chain(scalar_block(64), 32, "open"), 2).engine == "blas"


def test_a_long_ring_diverges_like_a_short_one():
    heads = [Head(Kernel.gaussian_lobes(600, 4, 1.0, 2.0), 1.0, 1.5)]
    path = iterate(Block(heads, FeedForward.scalar("tanh", -0.1)), depth=500, start=0.1)
    assert path.status == "diverged"
    assert np.abs(path.state).max() <= 1e6 < np.abs(path.block.forward(path.state)).max()


@pytest.mark.parametrize(
    "block", [scalar_block(32), scalar_block(600), block_of("plain")], ids=["lanes", "fft", "blas"]
)
def test_many_starts_are_many_trajectories(block):
    starts = np.array([0.3, 0.02, 1e7])[:, None, None] * np.random.default_rng(4).normal(size=(3, block.n, block.d))
    paths = iterate_many(block, starts, depth=150, every=40)
    assert paths[2].status == "diverged"
    for path, start in zip(paths, starts, strict=True):
        alone = iterate(block, depth=150, start=start, every=40)
        assert (alone.status, alone.engine) == (path.status, path.engine)
        np.testing.assert_array_equal(alone.layers, path.layers)
        np.testing.assert_allclose(alone.states, path.states, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(alone.previous, path.previous, rtol=1e-12, atol=1e-14)
    with pytest.raises(ArgumentError, match="starts"):
        iterate_many(block, np.zeros((2, block.n + 1, block.d)))


# Observables


def wave(shape, k, vector, phase=0.0):
    """2 Re of vector e^{i(q·j + phase)}, (N, d)."""
    place = np.indices(shape).reshape(len(shape), -1).T
    angle = place @ (2 * np.pi * np.array(k) / np.array(shape))
    return 2 * (np.exp(1j * (angle + phase))[:, None] * np.asarray(vector)).real


def test_projection_finds_the_mode():
    rng = np.random.default_rng(5)
    v = rng.normal(size=3) + 1j * rng.normal(size=3)
    w = rng.normal(size=3) + 1j * rng.normal(size=3)
    w /= np.conj(np.vdot(w, v))  # wᴴv = 1
    for shape, k in (((12,), 3), ((4, 6), (1, 2))):
        before, after = (wave(shape, k, 0.2 * v, phase) for phase in (0.4, 0.6))
        assert simulate.project(before, w, k, shape) == pytest.approx(0.2 * np.exp(0.4j))
        z = [simulate.project(x, w, k, shape) for x in (before, after)]
        assert simulate.turn(*z) == pytest.approx(0.2)
        assert simulate.grid_fourier(np.stack([before, after]), shape).shape == (2, before.shape[0], 3)
    assert np.isnan(simulate.turn(0, 1))
    with pytest.raises(ArgumentError, match="left"):
        simulate.project(before, w[:2], k, shape)


def test_rotation_in_a_plane_of_features():
    tokens = np.random.default_rng(6).normal(size=(20, 4))
    angle = 0.3
    turned = tokens.copy()
    c, s = np.cos(angle), np.sin(angle)
    turned[:, [1, 3]] = tokens[:, [1, 3]] @ np.array([[c, s], [-s, c]])
    plane = np.eye(4)[[1, 3]]
    assert simulate.rotation(tokens, turned, plane) == pytest.approx(angle)
    assert simulate.rotation(tokens, turned, np.eye(4)[[0, 2]]) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ArgumentError, match="plane"):
        simulate.rotation(tokens, turned, np.eye(3)[:2])


def test_clusters_of_tokens():
    centres = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    x = centres[[0, 1, 1, 2, 0, 2]] + 1e-3 * np.random.default_rng(7).normal(size=(6, 2))
    labels = simulate.token_clusters(x, 0.1)
    assert labels.tolist() == [0, 1, 1, 2, 0, 2]
    assert simulate.cluster_separation(x, labels) == pytest.approx(1, abs=0.01)
    assert simulate.token_clusters(np.zeros((5, 2)), 0.1).tolist() == [0] * 5
    assert simulate.cluster_separation(x, np.zeros(6)) == 0


def test_a_torus_selects_its_mode():
    lag = np.stack(np.meshgrid(*(np.fft.fftfreq(8, 1 / 8),) * 2, indexing="ij"), axis=-1)
    logits = 3 * np.exp(-((np.abs(lag[..., 0]) - 2) ** 2) / 2 - lag[..., 1] ** 2 / 2)
    block = Block([Head(Kernel(logits), -0.9, 1.5)], FeedForward.scalar("tanh", -0.1))
    path = iterate(block, depth=1500)
    assert path.wavenumber == (2, 0)
    assert path.spectrum.shape == (8, 8)
    assert path.spectrum[2, 0] == pytest.approx(path.amplitude)
    assert path.amplitude > 0.1
    found = sweep(lambda eta: Block([Head(Kernel(logits), eta, 1.5)], block.feedforward), {"eta": [-0.9]}, depth=1500)
    assert found.wavenumber.dims == ("eta", "axis")
    assert found.wavenumber.values.tolist() == [[2, 0]]
    assert found.critical_wavenumber.values.tolist() == [[2, 0]]
    assert found.spectrum.dims == ("eta", "k_1", "k_2")
    np.testing.assert_allclose(found.critical_amplitude, found.amplitude, rtol=1e-9)


def test_a_sweep_of_vector_blocks():
    angle, kernel = 1.3, Kernel.gaussian_lobes(32, 5, 1.0, 2.0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def make(gain):
        return Block(
            [Head(kernel, -gain * turn @ np.diag([1, 0.9]), 2 * np.eye(2))], FeedForward.elementwise("tanh", 2, -0.1)
        )

    found = sweep(make, {"gain": [0.6, 0.85]}, depth=400, start=0.05)
    assert found.state.dims == ("gain", "token", "feature")
    assert found.spectrum.sizes == {"gain": 2, "k": 17, "feature": 2}
    assert found.critical_wavenumber.values.tolist() == [3, 3]
    for point, gain in enumerate((0.6, 0.85)):
        path = iterate(make(gain), 400, 0.05, np.random.SeedSequence(0, spawn_key=(point,)))
        here = found.isel(gain=point)
        np.testing.assert_array_equal(here.state, path.state)
        mode = path.leading_mode
        either = [abs(path.projection(left, 3)) for left in (mode.left, mode.left.conj())]
        assert float(here.critical_amplitude) == pytest.approx(max(either))
        assert float(here.heterogeneity) == pytest.approx(path.heterogeneity)
    assert float(found.critical_phase_advance[1]) == pytest.approx(float(found.critical_phase[1]), abs=0.05)
    chains = sweep(lambda gain: Chain(make(gain), 12, "open"), {"gain": [0.6]}, depth=5)
    assert int(chains.critical_wavenumber[0]) == -1
    assert np.isnan(chains.critical_amplitude[0])
