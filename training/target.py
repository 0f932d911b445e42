"""What J(q) of an engineered block is to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dispersion import ArgumentError
from dispersion.errors import real_number, whole_number
from dispersion.noun import Noun


@dataclass(frozen=True)
class Target(Noun):
    """A wanted J(q): which mode grows, how it turns each layer, and what the mean does.

    At +q_c = 2πk_c/N the multipliers of the critical features are ρ e^{i(θ ± ψ)}, ρ e^{iθ}Rot(ψ) as real matrices, and
    at −q_c their conjugates: the pattern is cos(q_c j + lθ) after l layers, its features turned by lψ.

    Parameters
    ----------
    wavenumber : int
        k_c, 1 … N/2.
    angle : float
        θ, radians per layer.
    rotation : float
        ψ, radians per layer.
    growth : float
        ρ(J(q_c)).
    homogeneous : float
        ρ(J(0)), at most `growth`.
    helicity : int
        0 for both multipliers; +1 or −1 for ρ e^{i(θ ± ψ)} alone, of the features that turn with the wave or against
        it.
    """

    wavenumber: int
    angle: float = 0.0
    rotation: float = 0.0
    growth: float = 1.10
    homogeneous: float = 1.045
    helicity: int = 0

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "wavenumber", whole_number("wavenumber", self.wavenumber, 1))
        for name in ("angle", "rotation"):
            set_field(self, name, real_number(name, getattr(self, name)))
        for name in ("growth", "homogeneous"):
            set_field(self, name, real_number(name, getattr(self, name), positive=True))
        set_field(self, "helicity", whole_number("helicity", self.helicity, -1, 1))
        if self.homogeneous > self.growth:
            raise ArgumentError("homogeneous", self.homogeneous, f"ρ(0) of at most the growth, {self.growth:g}")

    @classmethod
    def over(
        cls,
        loops: int,
        wavenumber: int,
        angle: float = 0.0,
        rotation: float = 0.0,
        growth: float = 1.10,
        homogeneous: float = 1.045,
        helicity: int = 0,
    ) -> Target:
        """The target whose angles are reached after all the `loops` of a network.

        Parameters
        ----------
        loops : int
            L, layers of the network.
        wavenumber : int
            k_c.
        angle, rotation : float
            Lθ and Lψ, radians.
        growth, homogeneous, helicity : float
            As in `Target`, the first two for each layer.
        """
        loops = whole_number("loops", loops, 1)
        angle, rotation = real_number("angle", angle) / loops, real_number("rotation", rotation) / loops
        return cls(wavenumber, angle, rotation, growth, homogeneous, helicity)

    @property
    def multipliers(self) -> tuple[complex, ...]:
        """ρ e^{i(θ + ψ)} and ρ e^{i(θ − ψ)}, the one of `helicity` or both."""
        signs = (1, -1) if self.helicity == 0 else (self.helicity,)
        return tuple(self.growth * np.exp(1j * (self.angle + sign * self.rotation)) for sign in signs)

    @property
    def label(self) -> str:
        """The target in a few characters: k_c, and the angles that are not zero in units of π."""
        turns = {"θ": self.angle, "ψ": self.rotation}
        parts = [f"{name}={value / np.pi:+.4g}π" for name, value in turns.items() if value]
        return " ".join([f"k={self.wavenumber}", *parts, *([f"helicity={self.helicity:+d}"] if self.helicity else [])])

    def like(self, other: Target) -> bool:
        """Whether wavenumber, multipliers' phases and helicity are those of another target; gains may differ.

        Parameters
        ----------
        other : Target
            The other one.
        """
        turns = [np.exp(1j * np.array([target.angle, target.rotation])) for target in (self, other)]
        same = (self.wavenumber, self.helicity) == (other.wavenumber, other.helicity)
        return same and bool(np.abs(turns[0] - turns[1]).max() < 1e-9)
