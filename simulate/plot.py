"""Drawings of simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dispersion.plot import axes_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simulate.trajectory import Trajectory


def plot_trajectory(path: Trajectory, ax: Axes | None = None) -> Axes:
    """x_j of the first feature over tokens (across) and layers (downwards), colours centred at 0."""
    ax = axes_for(ax)
    values = path.states[:, :, 0]
    edges = np.append(path.layers, 2 * path.layers[-1] - path.layers[-2] if len(path.layers) > 1 else 1)
    largest = np.abs(values).max() or 1.0
    mesh = ax.pcolormesh(np.arange(path.block.n + 1) - 0.5, edges, values, cmap="RdBu_r", vmin=-largest, vmax=largest)
    mesh.set_rasterized(True)
    ax.figure.colorbar(mesh, ax=ax, label="$x_j$")
    ax.set(xlabel="token $j$", ylabel="layer")
    ax.invert_yaxis()
    return ax
