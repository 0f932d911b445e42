"""Drawings of linear theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dispersion.relation import Dispersion


def plot_relation(relation: Dispersion, ax: Axes | None = None) -> Axes:
    """ρ(J(q)) against k = qN/2π for 0 ≤ k ≤ N/2: the grid as dots, all q as a line."""
    import matplotlib.pyplot as plt

    ax = plt.gca() if ax is None else ax
    n = relation.block.n
    fine = np.linspace(0, n / 2, 16 * n + 1)
    radius = np.abs(np.linalg.eigvals(relation(2 * np.pi * fine / n))).max(axis=-1)
    grid = np.arange(n // 2 + 1)
    ax.axhline(1, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    ax.plot(fine, radius, color="#0072b2", linewidth=0.8, alpha=0.5)
    ax.plot(grid, relation.growth[grid], "o", color="#0072b2", markersize=3)
    ax.set(xlabel="wavenumber $k$", ylabel=r"growth $\rho(J(q))$", xlim=(-0.02 * n, 0.52 * n))
    return ax
