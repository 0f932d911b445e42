# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""Measured dispersion relations: maps that are not translation invariant, ends, refusals, chunks."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dispersion import ArgumentError, Block, Chain, FeedForward, Head, Kernel, dispersion_relation
from models import measure, to_torch
from models.inputs import forward
from models.invariance import invariance

N, D = 12, 3


@pytest.fixture(scope="module")
def block():
    rng = np.random.default_rng(0)
    lags = (np.arange(N) + N // 2) % N - N // 2
    logits = np.where(np.abs(lags) <= 2, rng.normal(size=N), -np.inf)
    heads = [Head(Kernel.table(logits), rng.normal(size=(D, D)) / 2, rng.normal(size=(D, D)))]
    return Block(heads, FeedForward.elementwise("tanh", D, -0.2))


def test_a_planted_map_comes_back():
    """x_i → Σ_r R_r x_{i−r} + x_i²: J(q) by hand."""
    rng = np.random.default_rng(1)
    R, a = rng.normal(size=(2, D, D)), rng.normal(size=D)

    def shifts(x):
        moved = torch.roll(x, 1, 0) @ torch.tensor(R[0]).T + torch.roll(x, -3, 0) @ torch.tensor(R[1]).T
        return moved + x**2

    measured = measure(shifts, a, N)
    phase = np.exp(-2j * np.pi * np.arange(N) / N)[:, None, None]
    assert np.abs(measured.matrices - (R[0] * phase + R[1] * phase**-3 + np.diag(2 * a))).max() < 1e-13
    assert measured.defect < 1e-14
    assert measured.leading().growth == pytest.approx(measured.growth.max())


def test_a_map_that_is_not_translation_invariant_shows(block):
    weights = torch.tensor(1 + 0.1 * np.random.default_rng(2).normal(size=(N, 1)))
    net = to_torch(block)
    measured = measure(lambda x: weights * net(x), np.ones(D), N)
    assert 0.02 < measured.defect < 1
    assert 0.02 < measured.spread < 1


@pytest.mark.parametrize("boundary", ["open", "causal"])
def test_the_bulk_of_a_chain(block, boundary):
    n, a = 24, np.full(D, 0.3)
    net = to_torch(block, boundary, n)
    measured = measure(net, a, n, boundary)
    jacobian = Chain(block, n, boundary).jacobian(a).reshape(n, D, n, D)
    middle = np.roll(jacobian[:, :, n // 2].transpose(0, 1, 2), -(n // 2), axis=0)
    assert np.abs(measured.response - middle).max() < 1e-14
    # rows two tokens from the ends are those of the ring: a band of lags −2 … 2
    assert measured.defect < 1e-12
    causal = Kernel.table(np.where(np.arange(N) <= 2, block.heads[0].kernel.logits, -np.inf), causal=True)
    head = block.heads[0]
    ring = block if boundary == "open" else Block([Head(causal, head.value, head.content)], block.feedforward)
    analytic = dispersion_relation(ring, a)(measured.wavenumbers)
    assert np.abs(measured.matrices - analytic).max() < 1e-12


def test_long_range_ends_are_felt():
    block = Block([Head(Kernel.alibi(32, 0.05), 0.5 * np.eye(D))])
    assert measure(to_torch(block, "open"), np.ones(D), 32, "open").defect > 1e-3


@pytest.mark.parametrize("memory", [1, 10_000, 2**28])
def test_chunks_do_not_matter(block, memory):
    wanted = dispersion_relation(block, np.ones(D)).matrices
    assert np.abs(measure(to_torch(block), np.ones(D), N, memory=memory).matrices - wanted).max() < 1e-13


def test_what_cannot_be_batched_is_done_one_by_one(block):
    net = to_torch(block)

    def stubborn(x):
        if bool((x > 100).any()):
            raise AssertionError
        return net(x)

    wanted = dispersion_relation(block, np.ones(D)).matrices
    assert np.abs(measure(stubborn, np.ones(D), N).matrices - wanted).max() < 1e-13


def test_progress(block, capsys):
    measure(to_torch(block), np.ones(D), N, progress=True)
    assert "measuring J(q)" in capsys.readouterr().err
    measure(to_torch(block), np.ones(D), N)
    assert capsys.readouterr().err == ""


def fused(x):
    x = x[None, None]
    return nn.functional.scaled_dot_product_attention(x, x, x)[0, 0]


class Encoder(nn.Module):
    """nn.TransformerEncoderLayer on (N, d), with `dropout`."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout, batch_first=True, dtype=torch.float64)

    def forward(self, x):
        return self.layer(x[None])[0]


class TestFusedAttention:
    @pytest.mark.parametrize("fn", [fused, Encoder().eval(), Encoder().train()])
    def test_refused(self, fn):
        with pytest.raises(ArgumentError, match=r"fused attention.*attn_implementation='eager'.*SDPBackend.MATH"):
            measure(fn, np.arange(4.0), 6)

    def test_the_way_out_works(self):
        a = np.arange(4.0)
        with sdpa_kernel(SDPBackend.MATH):
            measured = measure(fused, a, 6)
        # uniform attention of identical tokens: the mean, and nothing at q ≠ 0
        assert np.abs(measured.matrices[0] - np.eye(4)).max() < 1e-12
        assert np.abs(measured.matrices[1:]).max() < 1e-12
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                assert measure(Encoder().eval(), a, 6).defect < 1e-12
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


LINEAR = nn.Linear(D, D)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: measure(LINEAR, np.ones(D), N), r"fn: got weight in torch.float32.*net.double\(\)"),
        (lambda: measure(nn.Linear(D, D).half(), np.ones(D), N), "weight in torch.float16"),
        (lambda: measure(lambda x: LINEAR(x), np.ones(D), N), "fn: got RuntimeError.*dtype.*float64"),
        (lambda: measure(lambda x: x.float(), np.ones(D), N), "a result in torch.float32"),
        (lambda: measure(lambda x: x, np.ones(D, dtype=int), N), "state: got int64"),
        (lambda: measure(lambda x: x, torch.ones(D, dtype=torch.float16), N), "state: got torch.float16"),
        (lambda: measure(lambda x: x, np.ones((D, D)), N), "state: got shape"),
        (lambda: measure(lambda x: x[:1], np.ones(D), N), r"a result of shape \(1, 3\)"),
        (lambda: measure(lambda x: (x, x), np.ones(D), N), "fn: got a tuple"),
        (lambda: measure(lambda x: x[5, 5], np.ones(D), N), "fn: got IndexError"),
        (lambda: measure(lambda x: x / 0, np.ones(D), N), "NaN or infinity"),
        (lambda: measure(lambda x: (x - 1).sqrt(), np.ones(D), N), "derivative that is not finite"),
        (lambda: measure(Encoder(0.1).train(), np.ones(4), N), r"dropout.*net.eval\(\)"),
        (lambda: measure("net", np.ones(D), N), "fn: got str"),
        (lambda: measure(lambda x: x, np.ones(D), 1), "shape"),
        (lambda: measure(lambda x: x, np.ones(D), (2, 3), "open"), "boundary: got 'open' on a torus"),
        (lambda: measure(lambda x: x, np.ones(D), N, "closed"), "boundary: got 'closed'"),
    ],
)
def test_refused_in_one_line(call, words):
    with pytest.raises(ArgumentError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_weights_do_not_count_as_tensors_of_the_forward_pass():
    """Derivatives are batched by what depends on the state."""
    run = forward(torch.nn.Linear(50, 50).double(), torch.zeros(2, 50, dtype=torch.float64))
    assert run.largest == 2 * 50


@pytest.mark.parametrize("boundary", ["periodic", "open", "causal"])
def test_invariance_is_what_measure_finds_of_it(boundary):
    """Two routes to the response at the origin: along the directions tried, and from the whole J(q)."""
    generator = np.random.default_rng(0)
    mixing, weight = torch.tensor(generator.normal(size=(2, 6, 6))[0]), torch.tensor(generator.normal(size=(3, 3)))
    fn = lambda x: x + torch.tanh(mixing @ x @ weight)  # noqa: E731
    a = [0.1, -0.4, 0.3]
    found, whole = invariance(fn, a, 6, boundary), measure(fn, a, 6, boundary)
    np.testing.assert_array_equal(found.image, whole.image)
    assert found.spread == whole.spread > 0.1
    assert found.defect == pytest.approx(whole.defect, rel=1e-12)
    assert found.defect > 0.1
