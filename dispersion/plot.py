"""Drawings of linear theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dispersion.eigen import eigenvalues
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dispersion.ring.relation import Spectrum


def axes_for(ax: Axes | None) -> Axes:
    """`ax`, or if None those of a new pyplot figure, so that two drawings never meet on the same axes."""
    import matplotlib.pyplot as plt

    return plt.subplots()[1] if ax is None else ax


def plot_spectrum(relation: Spectrum, ax: Axes | None = None) -> Axes:
    """ρ(J(q)) of `relation`: a curve over k on a ring, a map over (k_1, k_2) on a torus."""
    ax = axes_for(ax)
    if len(relation.shape) > 2:
        raise ArgumentError("relation", f"a torus of {len(relation.shape)} axes", "a ring or a torus of two axes")
    return _curve(relation, ax) if len(relation.shape) == 1 else _map(relation, ax)


def _curve(relation: Spectrum, ax: Axes) -> Axes:
    """The grid 0 ≤ k ≤ N/2 as dots, and all q as a line where J is known there."""
    (n,) = relation.shape
    grid = np.arange(n // 2 + 1)
    ax.axhline(1, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    if callable(relation):
        fine = np.linspace(0, n / 2, 16 * n + 1)
        radius = np.abs(eigenvalues(relation(2 * np.pi * fine / n))).max(axis=-1)
        ax.plot(fine, radius, color="#0072b2", linewidth=0.8, alpha=0.5)
    ax.plot(grid, relation.growth[grid], "o", color="#0072b2", markersize=3)
    ax.set(xlabel="wavenumber $k$", ylabel=r"growth $\rho(J(q))$", xlim=(-0.02 * n, 0.52 * n))
    return ax


def _map(relation: Spectrum, ax: Axes) -> Axes:
    """ρ(J(q)) with k = 0 in the middle, coloured from its middle |Λ| = 1 on."""
    from matplotlib.colors import CenteredNorm

    k1, k2 = (np.fft.fftshift(np.fft.fftfreq(n, 1 / n)) for n in relation.shape)
    growth = np.fft.fftshift(relation.growth)
    image = ax.pcolormesh(k2, k1, growth, cmap="RdBu_r", norm=CenteredNorm(1.0), shading="nearest", rasterized=True)
    ax.set(xlabel="wavenumber $k_2$", ylabel="wavenumber $k_1$", aspect="equal")
    ax.figure.colorbar(image, ax=ax, label=r"growth $\rho(J(q))$")
    return ax
