"""Drawing an effective potential, whichever theory it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dispersion.plot import axes_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_potential(
    V: Callable[[NDArray[np.float64]], NDArray[np.float64]], stationary: Mapping[float, bool], ax: Axes | None = None
) -> Axes:
    """Draw a potential over signed amplitudes, its minima as filled dots and its maxima as open ones.

    V : the potential; stationary : its stationary R and whether each is a minimum; ax : the axes, by default those of
    a new figure. Returns the axes.
    """
    ax = axes_for(ax)
    R = np.linspace(-1.6, 1.6, 401) * (max(map(abs, stationary)) or 1.0)
    (line,) = ax.plot(R, V(R))
    for place, minimum in stationary.items():
        at, face = np.array([place]), line.get_color() if minimum else "white"
        ax.plot(at, V(at), "o", color=line.get_color(), markerfacecolor=face, markersize=5, zorder=3)
    ax.set(xlabel="amplitude $R$", ylabel="potential $V(R)$")
    return ax
