"""Products, norms and eigenvalues of stacks of matrices, some of them real, large and small: those of plain algebra."""

import numpy as np
import pytest

from dispersion.eigen import eigenvalues
from dispersion.stacks import LARGE, norms, products

PLACES = np.array([2, 0, 3, 1])


def stack(d, seed, real):
    """Four complex matrices, of which those at `real` have no imaginary part."""
    rng = np.random.default_rng(seed)
    matrices = (rng.normal(size=(4, d, d)) + 1j * rng.normal(size=(4, d, d))) / np.sqrt(d)
    matrices[real] = matrices[real].real
    return matrices


@pytest.mark.parametrize("d", [3, LARGE - 1, LARGE, LARGE + 13])
def test_products(d):
    left, right = stack(d, 0, [0, 2]), stack(d, 1, [0, 3])
    before = left.copy(), right.copy()
    made = products(left, PLACES, right)
    expected = np.array([left[place] @ each for place, each in zip(PLACES, right, strict=True)])
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-13)
    np.testing.assert_array_equal((left, right), before)
    # the first is of real matrices alone
    assert not made[0].imag.any()
    one_real = products(left.real.copy(), PLACES, right)
    np.testing.assert_allclose(one_real, left.real[PLACES] @ right, rtol=0, atol=1e-13)
    np.testing.assert_allclose(norms(made), [np.sqrt((abs(each) ** 2).sum()) for each in expected], rtol=1e-12)


@pytest.mark.parametrize("d", [3, LARGE])
def test_eigenvalues_of_real_ones_among_others(d):
    matrices = stack(d, 2, [1])
    values = eigenvalues(matrices)
    assert values.dtype == complex
    for found, matrix in zip(values, matrices, strict=True):
        alone = np.linalg.eigvals(matrix)
        apart = abs(found[:, None] - alone)
        assert max(apart.min(axis=0).max(), apart.min(axis=1).max()) < 1e-11
        np.testing.assert_allclose(found.sum(), np.trace(matrix), atol=1e-12)
    # of a large real one the pairs are exact
    if d >= LARGE:
        np.testing.assert_array_equal(np.sort_complex(values[1]), np.sort_complex(values[1].conj()))
