"""Figure 3: the scalar theory against the iterated map (App. I.2).

a  scaling laws near onset;  b  amplitude over gain and kernel strength;  c  selected wavenumber over
lobe separation and strength;  d  two-mode competition over kernel mixture and strength;
Not in the paper: e  the travelling counterpart of b;  f  errors of normal forms of order 3 to 11 and of exact patterns
at the points of b;  g  stable wavenumbers, a section through c;  h  exact stability over the map of d.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from figures.fig3 import beyond, maps
from figures.fig3.assessment import claims
from figures.fig3.blocks import one_lobe, two_lobes
from figures.fig3.drawing import draw
from figures.fig3.scaling import scaling
from figures.phase_diagram.homogeneous import Grid

__all__ = ["MOSAIC", "NAME", "SIZE", "TITLE", "claims", "compute", "draw"]

NAME = "fig3"
TITLE = "Scaling laws, amplitudes, wavenumbers and competition"
MOSAIC = [["a", "shift", "b"], ["c", "d", "e"], ["f", "g", "h"]]
SIZE = (7.0, 7.2)


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """All panels: theory and simulation on the same grids.

    quick : 24×24 grids and fewer points per scaling law, instead of 100×100; progress : show bars.
    The nodes are 'scaling/<series>', 'amplitude' (b), 'wavenumber' (c), 'competition' (d), 'travelling' (e), and on the
    same grids (every other row and column of the quick ones) 'beyond/…' (f, g, h); in each, theory and simulation
    share dimensions.
    """
    size, every = (24, 2) if quick else (100, 1)

    def grid(**spans: tuple[float, float]) -> Grid:
        return {name: np.linspace(*span, size) for name, span in spans.items()}

    nodes = {f"scaling/{name}": data for name, data in scaling(5 if quick else 13, progress)}
    nodes["amplitude"] = maps.amplitude(two_lobes, grid(gain=(0.1, 1.0), strength=(0.5, 4.0)), progress)
    nodes["wavenumber"] = maps.wavenumber(grid(separation=(1.5, 8.0), strength=(0.5, 3.0)), progress)
    nodes["competition"] = maps.competing(grid(mixture=(0.0, 1.0), strength=(1.0, 3.0)), progress)
    nodes["travelling"] = maps.amplitude(one_lobe, grid(gain=(0.2, 1.7), strength=(0.5, 2.0)), progress)
    nodes["beyond/amplitude"] = beyond.amplitude_beyond(nodes["amplitude"], every, progress)
    nodes["beyond/resonant"] = beyond.resonant(nodes["wavenumber"], 4 if quick else 16, progress)
    nodes["beyond/wavenumber"] = beyond.wavenumber_beyond(nodes["wavenumber"], every, progress)
    nodes["beyond/band"] = beyond.stability_band(27 if quick else 53)
    nodes["beyond/competition"] = beyond.competition_beyond(nodes["competition"], every)
    return xr.DataTree.from_dict(nodes)
