"""What a phase diagram can show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import xarray as xr

from dispersion import ArgumentError
from dispersion.errors import shown
from figures.phase_diagram.maps import cluster_map, competition_map, observable_map, wave_map, wavenumber_map
from simulate import OBSERVABLES, Observable


@dataclass(frozen=True)
class Quantity:
    """A quantity of a phase diagram.

    Parameters
    ----------
    name : str
        In specifications and data.
    simulated, theory : str
        The variables drawn, '' for no theory.
    label : str
        Of the colour bar or the axis.
    compute : callable
        Its map, of `figures.phase_diagram.maps`.
    added : tuple of str
        What that holds besides the variables of a sweep.
    ring : bool
        Whether it is of a ring only, a torus having no one number for it.
    """

    name: str
    simulated: str
    theory: str
    label: str
    compute: Callable[..., xr.Dataset]
    added: tuple[str, ...]
    ring: bool = False

    @classmethod
    def of(cls, given: object) -> Quantity:
        """The quantity of this name, or that shows an Observable of one number.

        Parameters
        ----------
        given : str or Observable
            A name among QUANTITIES, or an Observable without `dims` and by another name.
        """
        if not isinstance(given, Observable):
            if not isinstance(given, str) or given not in QUANTITIES:
                raise ArgumentError("quantity", shown(given), ", ".join(QUANTITIES))
            return QUANTITIES[given]
        if given.dims or given.name in QUANTITIES:
            accepted = f"an Observable of one number, by another name than {', '.join(QUANTITIES)}"
            raise ArgumentError("quantity", f"{given.name!r} of {given.dims}", accepted)
        label = given.label or given.long_name or given.name
        return cls(given.name, given.name, "", label, partial(observable_map, given), ("excluded", given.name))


def _label(name: str) -> str:
    return OBSERVABLES[name].label


WAVE = ("amplitude_theory", "phase_advance_theory", "critical_angle", "excluded")
CLUSTERS = ("separation", "separation_theory", "excluded")
PAIR = ("observed", "predicted", "mu", "transverse", "mode", "seed", "excluded")
DECLARED = (
    Quantity("amplitude", "critical_amplitude", "amplitude_theory", _label("critical_amplitude"), wave_map, WAVE),
    Quantity(
        "speed", "critical_phase_advance", "phase_advance_theory", _label("critical_phase_advance"), wave_map, WAVE
    ),
    Quantity("clusters", "separation", "separation_theory", "half separation $u$", cluster_map, CLUSTERS),
    Quantity(
        "wavenumber",
        "wavenumber",
        "critical_wavenumber",
        _label("wavenumber"),
        wavenumber_map,
        ("growth", "excluded"),
        ring=True,
    ),
    Quantity("competition", "observed", "predicted", "regime", competition_map, PAIR, ring=True),
)
QUANTITIES = {quantity.name: quantity for quantity in DECLARED}
