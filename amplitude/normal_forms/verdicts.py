"""What becomes of two modes: the states come from a form, and the block itself says which of them exist and last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from amplitude.exact.equations import Kind
from amplitude.exact.states import ExactState
from amplitude.normal_forms.manifold import place_of
from amplitude.normal_forms.nearby import NearbyState, nearby_states
from amplitude.normal_forms.reduced_map import STABLE, Solution

if TYPE_CHECKING:
    from amplitude.normal_forms.form import NormalForm

PRESENT = 0.1
"""A mode takes part in a state from this part of the largest amplitude on: less is a harmonic, or forced."""
MARGIN = 0.02
"""|Λ| − 1, in parts of the largest μ, that iteration hardly shows."""
SLOW = 3e-4
"""|Λ| − 1 that thousands of layers hardly show."""
HELD = 0.01
"""Distance of a multiplier from 1 up to which the lattice may pull the phase of a wave."""
DENSE = 1000
"""Most numbers N·d in a state of which all multipliers are computed."""


def judged(form: NormalForm, solution: Solution) -> tuple[tuple[bool, ...], bool | None] | None:
    """Which modes take part in the state that the block has near a `solution` of `form`, and whether it is stable, None
    if that cannot be told; None if it has no state there.

    States that repeat after one layer or two are judged by all their multipliers, others by those of the form and by
    what hundreds of layers make of a small change.
    """
    near = nearby_states(form, solution, precise=True)
    if not near[0].found:
        return None
    parts = near[0].exact / near[0].exact.max()
    modes = tuple(bool(part) for part in parts >= PRESENT)
    stable = _stable(form, solution, near)
    unclear = bool(((parts > 0.7 * PRESENT) & (parts < 2 * PRESENT)).any())
    return modes, None if unclear and stable else stable


def _stable(form: NormalForm, solution: Solution, near: list[NearbyState]) -> bool | None:
    """Whether one of the states `near` a `solution` is stable."""
    mu = max(abs(abs(mode.multiplier) - 1) for mode in form.modes)
    slow = min(SLOW, MARGIN * mu)
    if near[0].kind is None or form.block.n * form.block.d > DENSE:
        margin = max(slow, near[0].change * np.abs(solution.multipliers - 1).max())
        excess = float(np.abs(solution.multipliers).max()) - 1
        if all(state.leaves(mu) for state in near):
            return False
        # what the form says grows, and layers should have shown
        shown = excess > 0.2 * mu and all(excess > 2 * state.resolution for state in near)
        return None if abs(excess) < margin or shown else excess < 0
    moduli = [_largest_multiplier(form, near[0].kind, state) for state in near]
    return False if min(moduli) > 1 + slow else None if min(moduli) > 1 + STABLE else True


def _largest_multiplier(form: NormalForm, kind: Kind, near: NearbyState) -> float:
    """The largest modulus of the multipliers of a state, but for slow ones that turn phases alone: which way the
    lattice pulls the waves is no matter of which of them are there.
    """
    block = form.block
    state = ExactState(block, kind, near.field, np.zeros(len(block.shape)), near.defect)
    values, vectors = np.linalg.eig(state.derivative())

    def amplitudes(x: NDArray) -> NDArray:
        """(…, modes) w_sᴴB_k of fields `x` (N·d, …)."""
        grid = np.moveaxis(x.reshape(*block.shape, block.d, -1), -1, 0)
        B = np.fft.fftn(grid, axes=tuple(range(1, 1 + len(block.shape))), norm="forward").reshape(
            len(grid), -1, block.d
        )
        return np.stack([B[:, place_of(mode.k, block.shape)] @ mode.left.conj() for mode in form.modes], axis=-1)

    (z,) = amplitudes((near.field - form.state).ravel())
    # |Im(z̄_s δz_s)|/|z_s|, of an eigenvector, against |δz|: how much of it turns phases
    moved = amplitudes(vectors.real)
    waves = np.abs(z) >= PRESENT * np.abs(z).max()
    turned = np.abs((moved[:, waves] * z[waves].conj()).imag) / np.abs(z[waves])
    phases = np.linalg.norm(turned, axis=1) > 0.9 * np.linalg.norm(moved, axis=1)
    slides = phases & (np.abs(values - 1) < HELD) & (np.abs(values.imag) < 1e-9)
    return float(np.abs(values[~slides]).max())


def verdict(states: Iterable[tuple[tuple[bool, ...], bool | None]], growing: tuple[bool, ...], alone: bool) -> str:
    """One of `amplitude.REGIMES` from `states`, each the modes that take part in it and whether it lasts.

    growing : which of the modes grow. alone : whether no other mode does.
    """
    judged: dict[tuple[bool, ...], list[bool | None]] = {}
    for modes, stable in states:
        judged.setdefault(modes, []).append(stable)
    last = {modes for modes, found in judged.items() if True in found}
    if any(None in found for modes, found in judged.items() if modes not in last):
        return "undecided"
    if not any(growing):
        return "undecided" if last or not alone else "collapsed"
    one, two, both = (True, False), (False, True), (True, True)
    if any(grows and pure not in judged for grows, pure in zip(growing, (one, two), strict=True)):
        return "undecided"
    verdicts: dict[frozenset[tuple[bool, ...]], str] = {
        frozenset({one}): "mode 1",
        frozenset({two}): "mode 2",
        frozenset({one, two}): "bistable",
        frozenset({both}): "coexistence",
    }
    return verdicts.get(frozenset(last), "undecided")
