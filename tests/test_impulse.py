"""J(q) of the middle token of a line: the kernel of the chain against automatic differentiation of its module."""

import numpy as np
import pytest

from dispersion import Block, Chain, FeedForward, Head, Kernel, LayerNorm, OutputValue, QueryKey, Rotary
from dispersion.line.impulse import Impulse, impulses
from dispersion.ring.relation import GROUPED

N = 7


def chain(seed, boundary, d=5, rotary=False):
    rng = np.random.default_rng(seed)
    query, key = rng.normal(size=(2, 4, d)) / 2
    content = {"rotary": Rotary(query, key, [0.9, 0.1])} if rotary else {"content": QueryKey(query, key)}
    kernel = Kernel(np.zeros(2 * N - 1), causal=boundary == "causal")
    values = [OutputValue(rng.normal(size=(d, 4)) / 2, rng.normal(size=(4, d)) / 2) for _ in range(3)]
    hidden = FeedForward(rng.normal(size=(6, d)) / 2, rng.normal(size=(d, 6)) / 2, "tanh", rng.normal(size=6))
    heads = [Head(kernel, value, **content) for value in values]
    return Chain(Block(heads, hidden, attention_norm=LayerNorm.identity(d)), N, boundary)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("boundary", ["open", "causal"])
@pytest.mark.parametrize("d", [5, GROUPED])
def test_it_is_what_is_measured(boundary, rotary, d):
    pytest.importorskip("torch")
    from models import measure, to_torch

    line, a = chain(0, boundary, d, rotary), np.linspace(-1, 1, d)
    found = Impulse(line, a)
    measured = measure(to_torch(line.block, boundary, N), a, N, boundary)
    np.testing.assert_allclose(found.matrices, measured.matrices, rtol=0, atol=1e-13)
    matrices, place = found.distinct
    np.testing.assert_allclose(matrices[place], measured.matrices[: N // 2 + 1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.matrix(N - 2), measured.matrices[N - 2], rtol=0, atol=1e-13)
    ks, rng = [0, 2, N - 2, 2, -1], np.random.default_rng(1)
    vectors = rng.normal(size=(len(ks), d)) + 1j * rng.normal(size=(len(ks), d))
    expected = [measured.matrices[k] @ vector for k, vector in zip(ks, vectors, strict=True)]
    for relation in (found, measured):
        np.testing.assert_allclose(relation.images(ks, vectors), expected, rtol=0, atol=1e-12)


def test_it_is_the_column_of_the_dense_jacobian():
    line, a = chain(1, "causal"), np.linspace(0, 1, 5)
    dense = line.jacobian(a).reshape(N, 5, N, 5)[:, :, N // 2, :]
    for k in range(N):
        waves = np.exp(-2j * np.pi * k / N * (np.arange(N) - N // 2))
        np.testing.assert_allclose(Impulse(line, a).matrix(k), np.tensordot(waves, dense, axes=1), atol=1e-13)


def test_layers_follow_the_orbit():
    lines, a = [chain(seed, "causal") for seed in (2, 3)], np.linspace(0, 1, 5)
    product = impulses(lines, a)
    after = lines[0].block.homogeneous_map(a)
    expected = Impulse(lines[1], after).matrices @ Impulse(lines[0], a).matrices
    np.testing.assert_allclose(product.matrices, expected, rtol=0, atol=1e-13)
