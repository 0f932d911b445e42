"""Wavenumbers with equal λ(q) share one J(q), and heads with equal λ(q) one channel: the same numbers."""

import numpy as np
import pytest

import dispersion.ring.relation as relation_module
from dispersion import (
    ArgumentError,
    Block,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    OutputValue,
    dispersion_relation,
    through_layers,
)
from dispersion.block.factors import summed
from dispersion.block.slopes import Slopes, slopes_at
from dispersion.grid import conjugate_pairs
from dispersion.ring.relation import GROUPED, ROUNDING, alike

N, D = 31, GROUPED
UNIFORM = Kernel(np.zeros(N))
"""Without positions: λ = 1 at q = 0 and 0 elsewhere, but for the rounding of 31 weights of 1/31."""
CUT = Kernel.table(np.where(np.arange(N) < 3, 0.0, -np.inf))


def block(seed, kernels=(UNIFORM, UNIFORM, UNIFORM), factors=True):
    rng = np.random.default_rng(seed)

    def value():
        output, values = rng.normal(size=(D, 4)) / 4, rng.normal(size=(4, D)) / 4
        return OutputValue(output, values) if factors else output @ values

    m = D + 2
    hidden = FeedForward(rng.normal(size=(m, D)) / 4, rng.normal(size=(D, m)) / 4, "tanh", rng.normal(size=m))
    return Block([Head(kernel, value()) for kernel in kernels], hidden, 0.7, LayerNorm.identity(D))


def head_by_head(block, a):
    """(K, d, d) J(q) of each wavenumber, one of a pair ±q, every head and wavenumber by itself."""
    slopes = Slopes(block, a)
    symbols = np.array([head.symbol(slopes.seen) for head in block.heads])[:, conjugate_pairs((N,))[0]]
    maps = [block.attention_scale * slopes.pointwise @ head.value @ slopes.inner for head in block.heads]
    return np.array([slopes.pointwise + sum(z * m for z, m in zip(row, maps, strict=True)) for row in symbols.T])


def test_images_of_what_they_do_not_fit_are_refused():
    relation = dispersion_relation(block(0), np.zeros(D))
    for k, vectors, argument in (([], [], "k"), (3, np.ones((1, D)), "k"), ([1], np.ones(D), "vectors")):
        with pytest.raises(ArgumentError, match=argument):
            relation.images(k, vectors)
    with pytest.raises(ArgumentError, match="k"):
        relation.images([N + 1.5], np.ones((1, D)))


@pytest.mark.parametrize("factors", [True, False])
@pytest.mark.parametrize(
    ("kernels", "count"),
    [((UNIFORM,) * 3, 2), ((UNIFORM, CUT, UNIFORM), N // 2 + 1), ((CUT, Kernel.alibi(N, 0.4)), N // 2 + 1)],
)
def test_matrices_are_those_of_each_wavenumber(kernels, count, factors):
    a = np.linspace(-1, 1, D)
    relation = dispersion_relation(block(0, kernels, factors), a)
    matrices, place = relation.distinct
    assert len(matrices) == count
    assert place.shape == (N // 2 + 1,)
    expected = head_by_head(relation.block, a)
    np.testing.assert_allclose(matrices[place], expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(relation.matrices[conjugate_pairs((N,))[0]], expected, rtol=0, atol=1e-14)
    values = relation.multipliers[: N // 2 + 1]
    for row, matrix in zip(values, expected, strict=True):
        np.testing.assert_allclose(np.sort(np.abs(row)), np.sort(np.abs(np.linalg.eigvals(matrix))), atol=1e-12)
    for k in (1, N // 2, N - 1):
        np.testing.assert_allclose(relation.matrix(k), relation.matrices[k], rtol=0, atol=1e-15)
    ks = [0, 3, N - 3, -2, N // 2]
    real, imaginary = np.random.default_rng(1).normal(size=(2, len(ks), D))
    vectors = real + 1j * imaginary
    expected_images = np.array([relation.matrix(k) @ v for k, v in zip(ks, vectors, strict=True)])
    np.testing.assert_allclose(relation.images(ks, vectors), expected_images, rtol=0, atol=1e-13)
    for k in (0, 1, N // 2):
        mode = relation.mode(k, 1)
        np.testing.assert_allclose(expected[k] @ mode.right, mode.multiplier * mode.right, atol=1e-13)
        np.testing.assert_allclose(mode.left.conj() @ expected[k], mode.multiplier * mode.left.conj(), atol=1e-12)
        assert mode.k == k


def test_a_real_relation_stays_real():
    assert dispersion_relation(block(0)).distinct[0].dtype == float
    assert dispersion_relation(block(0, (CUT,))).distinct[0].dtype == complex


def test_products_of_layers_with_other_groups():
    """2 matrices in one layer and 16 in another: the product at each wavenumber is its own."""
    a = np.linspace(-1, 1, D)
    blocks = [block(1), block(2, (UNIFORM, CUT)), block(3)]
    product = through_layers(blocks, a)
    expected, base = np.eye(D), a
    for layer in blocks:
        expected, base = head_by_head(layer, base) @ expected, layer.homogeneous_map(base)
    half = conjugate_pairs((N,))[0]
    np.testing.assert_allclose(product.matrices[half], expected, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(product.matrices[-1], product.matrices[1].conj())
    largest = np.linalg.norm(expected, 2, axis=(1, 2))
    np.testing.assert_allclose(product.gain[-1][half], largest, rtol=1e-12)
    np.testing.assert_allclose(product.optimal().gain[half], largest, rtol=1e-12)
    moduli = np.abs(np.linalg.eigvals(expected)).max(-1)
    np.testing.assert_allclose(product.growth[half], moduli, rtol=1e-11)
    np.testing.assert_allclose(product.rate[half], np.log(moduli) / 3, rtol=0, atol=1e-11)
    same = through_layers([blocks[0], blocks[2]], a)
    assert len(same.distinct[0]) == 2
    assert same.errors.shape == (N,)


def test_symbols_alike_up_to_rounding_are_of_one_kind():
    symbols = np.array([[1.0, 1e-17, 0.5, -2e-17, 0.5 + 1e-9j, 0.5], [1.0, 0.0, 0.25, 0.0, 0.25, 0.25]], dtype=complex)
    first, place = alike(symbols)
    np.testing.assert_array_equal(first, [0, 1, 2, 4])
    np.testing.assert_array_equal(place, [0, 1, 2, 1, 3, 2])
    apart = np.arange(5) * 3 * ROUNDING + 0j
    assert len(alike(apart[None])[0]) == 5


def test_the_sum_of_value_maps_with_and_without_factors():
    rng = np.random.default_rng(0)
    maps = [OutputValue(rng.normal(size=(5, r)), rng.normal(size=(r, 5))) for r in (1, 2)]
    maps.append(OutputValue(rng.normal(size=(5, 5))))
    np.testing.assert_allclose(summed(maps), sum(part.matrix for part in maps), rtol=1e-13)
    np.testing.assert_array_equal(summed(maps[2:]), maps[2].matrix)


def test_channels_are_finite_unless_they_are_not():
    def of(size):
        return Block([Head(UNIFORM, OutputValue(np.full((D, 2), size), np.full((2, D), size)))])

    assert Slopes(of(1e100), np.zeros(D)).finite
    assert Slopes(of(1e153), np.zeros(D)).finite
    with pytest.raises(ArgumentError, match="not finite"):
        slopes_at(of(1e155), None)


@pytest.mark.parametrize("kernels", [(UNIFORM,) * 3, (CUT, UNIFORM)])
def test_a_mode_by_itself_is_that_of_all(kernels, monkeypatch):
    """Inverse iteration against the whole eigendecomposition."""
    one = block(4, kernels)
    expected = [dispersion_relation(one).mode(k, index) for k in (0, 1, N // 2) for index in (0, 1, 5, D - 1)]
    monkeypatch.setattr(relation_module, "LARGE", 1)
    monkeypatch.setattr(relation_module, "Eigensystem", None)
    relation = dispersion_relation(one)
    found = [relation.mode(k, index) for k in (0, 1, N // 2) for index in (0, 1, 5, D - 1)]
    for a, b in zip(found, expected, strict=True):
        assert abs(a.multiplier - b.multiplier) < 1e-13 * max(1, a.growth)
        np.testing.assert_allclose(a.right, b.right, rtol=0, atol=1e-11)
        np.testing.assert_allclose(a.left, b.left, rtol=0, atol=1e-10)
        assert (a.k, a.morphology) == (b.k, b.morphology)


def test_modes_of_equal_multipliers_are_those_of_the_whole(monkeypatch):
    one = Block([Head(UNIFORM, -0.5 * np.eye(D))])
    expected = dispersion_relation(one).mode(1)
    monkeypatch.setattr(relation_module, "LARGE", 1)
    np.testing.assert_array_equal(dispersion_relation(one).mode(1).right, expected.right)
