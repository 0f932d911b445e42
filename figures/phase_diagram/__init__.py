"""Phase diagrams: a block simulated over one or two parameters, with theory on the same grid, and drawn.

    diagram = PhaseDiagram(make_block, {"gain": gains, "strength": strengths}, "amplitude")
    data = diagram.compute()      # an xarray.Dataset
    figure = draw(data)           # a matplotlib Figure

`PhaseDiagram.load` reads the same from a TOML file, as `tokenwaves phase-diagram` does.
"""

from figures.phase_diagram.diagram import PhaseDiagram
from figures.phase_diagram.picture import draw
from figures.phase_diagram.quantities import QUANTITIES

__all__ = ["QUANTITIES", "PhaseDiagram", "draw"]
