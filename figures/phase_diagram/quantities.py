"""What a phase diagram can show."""

from __future__ import annotations

from dataclasses import dataclass

from simulate import OBSERVABLES


@dataclass(frozen=True)
class Quantity:
    """A quantity of a phase diagram.

    simulated, theory : the variables drawn; label : of the colour bar or the axis.
    added : what its map holds besides the variables of a sweep; ring : whether it is of a ring only, a torus having no
    one number for it.
    """

    simulated: str
    theory: str
    label: str
    added: tuple[str, ...]
    ring: bool = False


def _label(name: str) -> str:
    return OBSERVABLES[name].label


WAVE = ("amplitude_theory", "phase_advance_theory", "critical_angle", "excluded")
PAIR = ("observed", "predicted", "mu", "transverse", "mode", "seed", "excluded")
QUANTITIES = {
    "amplitude": Quantity("critical_amplitude", "amplitude_theory", _label("critical_amplitude"), WAVE),
    "speed": Quantity("critical_phase_advance", "phase_advance_theory", _label("critical_phase_advance"), WAVE),
    "clusters": Quantity(
        "separation", "separation_theory", "half separation $u$", ("separation", "separation_theory", "excluded")
    ),
    "wavenumber": Quantity(
        "wavenumber", "critical_wavenumber", _label("wavenumber"), ("growth", "excluded"), ring=True
    ),
    "competition": Quantity("observed", "predicted", "regime", PAIR, ring=True),
}
"""Name → Quantity."""
