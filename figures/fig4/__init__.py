"""Figure 4: who learns early, z-scores of the early AUC over the arms of each task (Sec. 6.2, App. J).

a–c  T1 to T3, steps 0 to 20;  d–f  steps 0 to 50. Rows are tasks, columns the arms; frames are the matched arms.
Not in the paper: g–i  the matched arm less the strongest mismatched one of the same seed, with its bootstrap interval,
here and in two controls: angles turned in every loop, and a random embedding and readout.
"""

from __future__ import annotations

import xarray as xr

from figures.families import CONTROLS, QUICK, family_data, tree
from figures.fig4.assessment import claims
from figures.fig4.drawing import draw
from figures.studies import results

__all__ = ["MOSAIC", "NAME", "SIZE", "TITLE", "claims", "compute", "draw"]

NAME = "fig4"
TITLE = "Early learning of matched and mismatched arms on three families of tasks"
MOSAIC = [list("abc")] * 4 + [list("def")] * 4 + [list("ghi")] * 3
SIZE = (7.0, 6.4)


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """Learning curves of the studies of each family, 't1' to 't3', and of their controls, '<control>/t1' and on.

    quick : trains small studies on the spot, in place of the saved ones; progress : show bars.
    """
    nodes = family_data(quick, progress)
    for control, (_, studies) in CONTROLS.items():
        for name, study in studies.items():
            data = results(study, (QUICK[0], 1) if quick else None, progress)
            nodes[f"{control}/{name}"] = data.isel(size=0)
    return tree(nodes)
