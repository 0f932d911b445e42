"""Leading singular vectors against the dense decomposition: gains apart, clustered, equal, few, none, out of range."""

import numpy as np
import pytest

pytest.importorskip("torch")

from models.singular import leading

N, COUNT = 96, 6
RNG = np.random.default_rng(0)
GAUSS = RNG.normal(size=(N, N)) / np.sqrt(N)
LEFT, RIGHT = (np.linalg.qr(RNG.normal(size=(N, N)))[0] for _ in range(2))
GAINS = {
    "four of each": np.repeat(np.linspace(3, 1, N // 4), 4),
    "five of the largest": np.repeat([4.0, 1.0], [5, N - 5]),
    "seven of the largest": np.repeat([4.0, 1.0], [7, N - 7]),
    "two": np.r_[5.0, 1.0, np.zeros(N - 2)],
    "far apart": 10.0 ** -np.linspace(0, 10, N),
}
MATRICES = {
    "random": GAUSS,
    "product": np.linalg.multi_dot([2 * RNG.normal(size=(N, N)) / np.sqrt(N) for _ in range(12)]),
    "identity": np.eye(N),
    "near the identity": np.eye(N) + 1e-3 * GAUSS,
    "rotation": LEFT,
    "tokens alike": np.kron(np.eye(N // 8), RNG.normal(size=(8, 8))),
    "projection": np.diag(np.r_[np.ones(3), np.zeros(N - 3)]),
    "nothing": np.zeros((N, N)),
    "tiny": 1e-200 * GAUSS,
    "huge": 1e200 * GAUSS,
    **{name: LEFT * gains @ RIGHT for name, gains in GAINS.items()},
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("rng", range(3))
def test_the_largest_gains_are_all_there(name, rng):
    matrix = MATRICES[name]
    rows = leading(lambda v: matrix @ v, lambda u: matrix.T @ u, N, COUNT, rng)
    np.testing.assert_allclose(rows @ rows.T, np.eye(COUNT), atol=1e-12)
    unit = np.abs(matrix).max() or 1.0
    gains = np.linalg.norm(rows @ matrix.T / unit, axis=1)
    exact = np.linalg.svd(matrix / unit)[1]
    np.testing.assert_allclose(gains, exact[:COUNT], rtol=1e-9, atol=1e-8 * exact[0])
    # singular vectors, and not only large: PᵀPv = σ²v
    again = rows @ (matrix / unit).T @ (matrix / unit)
    np.testing.assert_allclose(again, gains[:, None] ** 2 * rows, rtol=0, atol=1e-9 * exact[0] ** 2)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_all_but_one_of_few(size):
    matrix = GAUSS[:size, :size]
    rows = leading(lambda v: matrix @ v, lambda u: matrix.T @ u, size, size - 1, 0)
    gains = np.linalg.norm(rows @ matrix.T, axis=1)
    np.testing.assert_allclose(gains, np.linalg.svd(matrix)[1][:-1], rtol=1e-9)
