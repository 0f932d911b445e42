"""A phase diagram: what is swept and what is shown."""

from __future__ import annotations

import json
import os
import tomllib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from math import prod
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block
from dispersion.errors import real_number, shown, whole_number
from figures.phase_diagram.homogeneous import sample
from figures.phase_diagram.quantities import QUANTITIES, Quantity
from simulate import Observable
from simulate.results import RESERVED

DEPTH, POINTS = 10**8, 10**7
"""The most layers and points."""
NAME = 64
"""Characters of a parameter's name."""


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """A phase diagram to be computed.

    Parameters
    ----------
    make_block : callable
        A Block from the parameters by name; called at a few points to check the other arguments.
    parameters : mapping
        Name → increasing numbers, one or two; they become the axes.
    quantity : str or Observable
        What is shown: 'amplitude' or 'speed' (modulus and phase advance of the leading mode), 'clusters' (half the
        separation of two), 'wavenumber' (the dominant one of a ring) or 'competition' (which of two modes of a scalar
        ring is left by runs that start in each); or an Observable of one number, which has no theory.
    depth : int
        Layers at most.
    seed : int
        Of the starts.
    tolerance : float
        Of the early stop, 0 for none.
    start : float
        Standard deviation of the normal start; of no use to a competition.
    modes : (2,) sequence of int, optional
        The two wavenumbers of a competition, which alone has them.
    specification : str
        The text it was read from, if it was; kept in the data.

    Raises
    ------
    ArgumentError
        Names what cannot be used.
    """

    make_block: Callable[..., Block]
    parameters: Mapping[str, Any]
    quantity: str | Observable = "amplitude"
    depth: int = 5000
    seed: int = 0
    tolerance: float = 1e-12
    start: float = 1e-3
    modes: Sequence[int] | None = None
    specification: str = ""

    def __post_init__(self) -> None:
        checked = {
            "parameters": _checked_axes(self.parameters),
            "depth": whole_number("depth", self.depth, 1),
            "seed": whole_number("seed", self.seed, 0),
            "tolerance": real_number("tolerance", self.tolerance),
            "start": real_number("start", self.start, positive=True),
            "modes": _checked_modes(self.modes, self.shown.name),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.depth > DEPTH:
            raise ArgumentError("depth", self.depth, f"a whole number of at most {DEPTH:,} layers")
        if self.tolerance < 0:
            raise ArgumentError("tolerance", self.tolerance, "a number above 0, or 0 for no early stop")
        self._check_block(sample(self.block, self.parameters))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PhaseDiagram:
        """The diagram that a TOML file specifies.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        ArgumentError
            Names the key that cannot be used, or is not used.
        """
        from figures.phase_diagram.spec import load

        return load(path)

    @property
    def shown(self) -> Quantity:
        """What `quantity` stands for."""
        return Quantity.of(self.quantity)

    def block(self, *point: float) -> Block:
        """The block at one point of the diagram.

        Parameters
        ----------
        *point : float
            The values of the parameters, in their order.
        """
        return self.make_block(**dict(zip(self.parameters, map(float, point), strict=True)))

    @property
    def points(self) -> int:
        """How many there are."""
        return prod(map(len, self.parameters.values()))

    @property
    def estimate(self) -> str:
        """How much work it is: points, layers and memory, at most."""
        block = sample(self.block, self.parameters)
        shape = " × ".join(f"{len(values)}" for values in self.parameters.values())
        runs = f"{shape}, two starts each" if self.modes else shape
        # last state, spectrum and numbers of each point, held twice while they are written
        memory = 2 * self.points * (1 + (self.modes is not None)) * 8 * (2 * block.n * block.d + 30)
        size = f"{memory / 1e9:.1f} GB" if memory > 1e8 else f"{max(1, round(memory / 1e6))} MB"
        return f"{self.points:,} points ({runs}), up to {self.depth:,} layers each, about {size} of memory"

    def compute(self, **sweep: Any) -> xr.Dataset:
        """The simulated map with theory on the same grid.

        Parameters
        ----------
        **sweep : object
            path, resume, progress, backend, … of `simulate.sweep`.

        Returns
        -------
        xarray.Dataset
            One dimension for each of the `parameters`.
        """
        settings: dict[str, Any] = {"depth": self.depth, "rng": self.seed, "tolerance": self.tolerance}
        settings |= {"identity": {"specification": self._identity}, **sweep}
        settings |= {"start": self.start} if self.modes is None else {"modes": self.modes, "seed": self.seed}
        data = self.shown.compute(self.block, self.parameters, **settings)
        return data.assign_attrs(quantity=self.shown.name, specification=self.specification)

    @property
    def _identity(self) -> str:
        """What the specification says, whatever its comments and spaces."""
        return json.dumps(tomllib.loads(self.specification), sort_keys=True, default=str)

    def _check_block(self, block: Block) -> None:
        """Refuse a quantity that the `block` does not have, modes that do not fit it, and names that are taken."""
        quantity, modes = self.shown, self.modes
        if quantity.ring and len(block.shape) > 1:
            others = ", ".join(name for name, other in QUANTITIES.items() if not other.ring)
            got = f"{quantity.name!r} on tokens {block.shape}"
            raise ArgumentError("quantity", got, f"a ring; on a torus {others}")
        if modes is not None and block.d > 1:
            others = ", ".join(name for name in QUANTITIES if name != quantity.name)
            got = f"{quantity.name!r} with d = {block.d}"
            raise ArgumentError("quantity", got, f"d = 1; with more features {others}")
        if modes is not None and (not all(1 <= k <= block.n // 2 for k in modes) or modes[0] == modes[1]):
            raise ArgumentError("modes", list(modes), f"two different wavenumbers, 1 … {block.n // 2}")
        for name in self.parameters:
            if name in RESERVED or name in quantity.added:
                raise ArgumentError(f"parameters.{name}", "the name of a result", "another name")


def check_size(sizes: Sequence[int]) -> None:
    """Refuse a grid of too many points; `sizes` : of its axes."""
    if prod(sizes) > POINTS:
        raise ArgumentError("parameters", f"{prod(sizes):,} points", f"at most {POINTS:,}")


def increasing(values: NDArray[np.float64]) -> bool:
    """Whether `values` (n,) are finite and each is greater than the one before."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values).all() and (np.diff(values) > 0).all())


def _checked_axes(parameters: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.float64]]:
    if not isinstance(parameters, Mapping) or not 1 <= len(parameters) <= 2:
        got = f"{len(parameters)}" if isinstance(parameters, Mapping) else shown(parameters)
        raise ArgumentError("parameters", got, "a table of one or two parameters")
    axes = {name: _checked_axis(name, values, len(parameters)) for name, values in parameters.items()}
    check_size([len(values) for values in axes.values()])
    return axes


def _checked_axis(name: str, values: ArrayLike, axes: int) -> NDArray[np.float64]:
    """The values of the parameter `name`, one of so many `axes`."""
    plain = isinstance(name, str) and name.isidentifier() and not iskeyword(name)
    if not plain or len(name) > NAME or unicodedata.normalize("NFKC", name) != name:
        accepted = f"a name of letters, digits and _, {NAME} characters at most"
        raise ArgumentError(f"parameters.{name}", shown(name), accepted)
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty((0, 0))
    if numbers.ndim != 1:
        raise ArgumentError(f"parameters.{name}", shown(values), "a list of numbers")
    if len(numbers) < axes:
        accepted = "two values or more, for a map over two parameters" if axes > 1 else "one number or more"
        raise ArgumentError(f"parameters.{name}", shown(values), accepted)
    if not increasing(numbers):
        accepted = "different numbers, from the lowest to the highest"
        raise ArgumentError(f"parameters.{name}", shown(values), accepted)
    numbers.flags.writeable = False
    return numbers


def _checked_modes(modes: Any, quantity: str) -> tuple[int, int] | None:
    if quantity != "competition":
        if modes is not None:
            raise ArgumentError("modes", shown(modes), f"None, as {quantity!r} does not use it")
        return None
    if not isinstance(modes, Sequence) or len(modes) != 2 or any(type(k) is not int for k in modes):
        got = "nothing" if modes is None else shown(modes)
        raise ArgumentError("modes", got, "two different whole wavenumbers, such as [4, 5]")
    return modes[0], modes[1]
