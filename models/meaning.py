"""What the numbers of a check mean, in one sentence, by criteria on the numbers alone.

Growth counts against the size of the state: ρ(k)/s for the growth ρ(k) of the leading mode at k and the factor s by
which the layers multiply the state itself, or ρ(k) where the state is zero. With r(k) this growth at the wavenumbers
that were sent, K of them, one of each pair ±k, ordered by |q|:

    all alike          the largest r is at most 1 + EVEN times the smallest
    collapse           r(0) is the largest, and no other is more than COLLAPSE r(0)
    low-pass           r(0) is the largest, and the last r the smallest or all others alike
    high-pass          the last r is the largest, and r(0) the smallest or all others alike
    band at k          the largest r is between, more than EVEN above r(0) and above the last
    uneven             none of these

The leading mode travels if 0 < q < π, J(q) is not real, and it turns by more than TURNS; it then moves by −arg Λ/q
tokens, up to whole wavelengths. On a line the memory is the mean distance between the centres of a pattern before and
after, weighted by the squares of the gains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dispersion.grid import Wavenumber

if TYPE_CHECKING:
    from models.check import Check
    from models.line import LineCheck

EVEN = 0.1
"""Relative difference of growth that counts as none."""
COLLAPSE = 0.1
"""Share of r(0) that no other r exceeds in a collapse to the common mode."""
TURNS = 0.01
"""Radians by which a mode that travels turns at least."""
NEAR = 0.5
"""Tokens under which a pattern counts as staying where it is."""


def meaning(checked: Check) -> str:
    """What `checked` says about the network, in one sentence; where its prediction failed, that it says nothing."""
    if not checked.confirmed:
        return "nothing can be read from predictions that the forward pass does not confirm"
    if checked.line is not None:
        return f"{_memory(checked.line)}, {_largest(float(checked.line.gain[0]), checked.stretch)}"
    parts = [_filter(checked), *_travel(checked), _largest(float(checked.growth.max()), checked.stretch)]
    return ", ".join(parts)


def _filter(checked: Check) -> str:
    """Which wavenumbers grow most."""
    lengths = [np.linalg.norm((np.atleast_1d(mode.q) + np.pi) % (2 * np.pi) - np.pi) for mode in checked.modes]
    order = np.argsort(lengths, kind="stable")
    growth = checked.growth[order]
    ks = [checked.modes[place].k for place in order]
    if _alike(growth):
        return "all wavenumbers grow alike"
    if np.any(ks[0]):
        return f"of the wavenumbers that were sent k = {_named(ks[int(growth.argmax())])} grows most"
    first, rest = growth[0], growth[1:]
    top = int(growth.argmax())
    times = max(first, growth[top]) / (rest.max() if top == 0 else first)
    if top == 0 and rest.max() <= COLLAPSE * first:
        return f"tokens collapse to their common mode: what they share grows {times:.3g} times as much as what differs"
    if top == 0 and (_alike(rest) or rest.argmin() == len(rest) - 1):
        return f"a low-pass filter: what all tokens share grows {times:.3g} times as much as what differs"
    if first == growth.min() and (_alike(rest) or top == len(growth) - 1):
        return f"a high-pass filter: what differs between tokens grows {times:.3g} times as much as what they share"
    if growth[top] > (1 + EVEN) * max(first, growth[-1]):
        return f"a band at k = {_named(ks[top])} grows most"
    return f"no simple filter: k = {_named(ks[top])} grows most"


def _travel(checked: Check) -> list[str]:
    """Whether and how far the leading mode travels."""
    mode = checked.predicted.leading()
    if not isinstance(mode.k, int) or not 0 < 2 * mode.k < mode.n or abs(mode.phase) <= TURNS:
        return []
    if not checked.predicted.matrix(mode.k).imag.any():
        return []
    moved = -mode.phase / float(mode.q)
    return [f"the leading wave travels {abs(moved):.2g} tokens towards {'later' if moved > 0 else 'earlier'} ones"]


def _memory(line: LineCheck) -> str:
    """How far what grows most is carried on a line."""
    distance = np.abs(np.diff(line.centres, axis=1)[:, 0])
    memory = float(np.average(distance, weights=line.gain**2))
    if memory < NEAR:
        return "what grows most stays at its tokens"
    return f"what grows most is carried over {memory:.2g} tokens, a memory of that order"


def _largest(growth: float, stretch: float) -> str:
    if not np.isfinite(stretch) or stretch == 0:
        return f"and the largest growth is {growth:.3g}"
    return f"and the largest growth is {growth / stretch:.3g} times that of the state"


def _alike(growth: NDArray[np.float64]) -> bool:
    return bool(growth.max() <= (1 + EVEN) * growth.min())


def _named(k: Wavenumber) -> str:
    return ", ".join(map(str, np.atleast_1d(k)))
