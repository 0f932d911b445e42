"""Which wavenumbers a block can keep: exact patterns of each and their stability to every perturbation on the ring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amplitude.exact.branching import REAL, pattern_branch
from amplitude.exact.continuation import MakeBlock
from amplitude.exact.equations import Floats
from amplitude.exact.resting import resting_state
from amplitude.exact.scalar_waves import fits, likeness, stable, standing_patterns
from amplitude.exact.states import ExactState, find_state
from amplitude.exact.symmetry import dominant, odd, snapped, spectrum
from amplitude.progress import progress_bar
from dispersion import ArgumentError, Block, Head, Kernel, dispersion_relation
from dispersion.errors import frozen, frozen_array, instance, items, whole_number
from dispersion.grid import grid_index
from dispersion.noun import Noun
from dispersion.quiet import harmless_underflow
from dispersion.summary import listed, numbers, paragraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWN = 800.0
"""Logit beside zeros that takes all attention: e^{−800} is 0."""

BATCH = 256
"""Blocks whose patterns are computed together."""

SHOWN = 8
"""Blocks of which a balloon says in words what it has."""
CHECKS = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""Layers after which the map may have come near a stable state."""
SEED, NOISE, TILT = 1e-2, 1e-2, 0.2
"""Where that begins: R of a mode of no known pattern, noise in parts of the largest value, a phase of no family."""
NEAR = 0.05
"""Distance of that state, in parts of the largest value."""


@dataclass(frozen=True, eq=False)
class Balloon(Noun):
    """Exact patterns of P blocks over K wavenumbers and up to three families each.

    Attributes
    ----------
    name : str
        What the parameter is called.
    values : (P,) ndarray
        The parameter at each block.
    ks : (K,) ndarray of int
        Wavenumbers.
    amplitude : (P, K, 3) ndarray
        R of the families of `patterns`, with ψ = 0, π/n and π/2n; NaN where there is none.
    growth : (P, K, 3) ndarray
        By what factor the fastest small change of each grows in a layer, the largest |Λ|.
    lost : (P, K) ndarray of bool
        Whether the mode grows and yet no pattern of its wavenumber was found.
    """

    name: str
    values: Floats
    ks: NDArray[np.int64]
    amplitude: Floats
    growth: Floats
    lost: NDArray[np.bool_]

    @property
    def exists(self) -> NDArray[np.bool_]:
        """(P, K) whether a pattern of this wavenumber was found."""
        return np.asarray(np.isfinite(self.amplitude).any(axis=-1))

    @property
    def stable(self) -> NDArray[np.bool_]:
        """(P, K) whether one of its families is stable to every perturbation that fits the ring."""
        return np.asarray(stable(self.growth).any(axis=-1))

    @property
    def unresolved(self) -> NDArray[np.bool_]:
        """(P, K) whether the mode grows and none of its families is stable: they give way to something that is not
        followed here, of another wavenumber, or of this one with a broken symmetry; `stable_wavenumbers` goes there."""
        return np.asarray((self.exists | self.lost) & ~self.stable)

    def stable_wavenumbers(self, point: int) -> tuple[int, ...]:
        """The wavenumbers of which a family is stable at one block, in increasing order.

        Parameters
        ----------
        point : int
            Number of the block, 0 … P−1.
        """
        return tuple(int(k) for k in self.ks[self.stable[whole_number("point", point, 0, len(self.values) - 1)]])

    def __str__(self) -> str:
        """What it is, in a few lines: those of the first blocks."""
        kinds, lines = {"stable": self.stable, "unstable": self.exists & ~self.stable, "lost": self.lost}, []
        for place, value in enumerate(self.values[:SHOWN]):
            ks = {kind: listed(self.ks[chosen[place]]) for kind, chosen in kinds.items()}
            found = "; ".join(f"{kind} k = {those}" for kind, those in ks.items() if those)
            lines.append(f"{self.name} = {numbers(value)}: {found or 'no pattern'}")
        more = len(self.values) - SHOWN
        return paragraph(
            f"exact patterns of {len(self.values)} blocks, k = {listed(self.ks) or 'none'}",
            *lines,
            f"and {more} blocks more" if more > 0 else "",
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw wavenumbers over the parameter, stable ones filled and unstable ones hollow.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.

        Returns
        -------
        Axes
            Those drawn on.
        """
        from amplitude.exact.drawing import plot_balloon

        return plot_balloon(self, ax)


@harmless_underflow
def balloon(
    blocks: Block | Iterable[Block],
    ks: Sequence[int] | None = None,
    values: ArrayLike | None = None,
    name: str = "parameter",
    progress: bool = False,
) -> Balloon:
    """The stability balloon of one block or several: which wavenumbers have a stable exact pattern.

    Every pattern is solved for exactly, and its stability read off all N·d multipliers: Eckhaus, and every other
    sideband of the ring. Patterns are followed from their onset on the homogeneous state 1⊗a, 0 or, where g(0) ≠ 0,
    the fixed point that g reaches from 0; whether a mode grows is judged there too.

    Parameters
    ----------
    blocks : Block or iterable of Block
        P of them, on rings of one N.
    ks : (K,) sequence of int, optional
        The wavenumbers asked about, by default all with |Λ_k| > 1 in some block. A pattern of a wavenumber that does
        not grow, |Λ_k| ≤ 1, is not looked for.
    values : (P,) array_like, optional
        The parameter of each block, by default 0 … P−1.
    name : str
        What the parameter is called.
    progress : bool
        Whether to show a bar, on a terminal.

    Returns
    -------
    Balloon
        Amplitude and growth of every family at every block and wavenumber.

    Raises
    ------
    ArgumentError
        If g of a block does not settle.

    Notes
    -----
    Scalar blocks with symmetric kernels and φ(0) = 0 are solved in batches, some hundred a second at N = 32; others,
    and those without a feed-forward, one by one.
    """
    blocks = [blocks] if isinstance(blocks, Block) else items("blocks", blocks)
    for number, block in enumerate(blocks):
        if len(instance(f"blocks[{number}]", block, Block).shape) != 1 or block.n != blocks[0].n:
            raise ArgumentError(f"blocks[{number}]", f"tokens {block.shape}", f"a ring of {blocks[0].n} tokens")
    if not blocks:
        raise ArgumentError("blocks", "none", "one Block or more")
    n = blocks[0].n
    marks = frozen(np.arange(len(blocks)) * 1.0) if values is None else frozen_array("values", values, (len(blocks),))
    bases = [_base(f"blocks[{number}]", block) for number, block in enumerate(blocks)]
    multipliers = np.array(
        [
            dispersion_relation(block, state=a).multipliers[: n // 2 + 1, 0]
            for block, a in zip(blocks, bases, strict=True)
        ]
    )
    grows = np.abs(multipliers) > 1
    grows[:, 0] = False
    if ks is None:
        wanted = np.flatnonzero(grows.any(axis=0))
    else:
        asked = [grid_index("ks", k, (n,)) for k in items("ks", ks)]
        wanted = np.unique([min(index, n - index) for index in asked]).astype(int)
        if len(wanted) and wanted[0] == 0:
            raise ArgumentError("ks", 0, "wavenumbers of patterns, 1 … N/2")
    shape = (len(blocks), len(wanted), 3)
    amplitude, growth = np.full(shape, np.nan), np.full(shape, np.nan)
    with progress_bar(progress, int(grows[:, wanted].sum()), "patterns") as bar:
        for column, k in enumerate(int(k) for k in wanted):
            standing = grows[:, k] & (multipliers[:, k].real > 1) & np.array([fits(block) for block in blocks])
            missing = grows[:, k].copy()
            for members in _batches(blocks, np.flatnonzero(standing)):
                families = _families(blocks[members[0]], k, 1.0)
                for family, (phase, centre) in enumerate(families):
                    fields, found, largest = standing_patterns([blocks[i] for i in members], k, phase, centre)
                    places = members[found]
                    amplitude[places, column, family] = np.abs(np.fft.fft(fields[found], axis=1)[:, k]) / n
                    growth[places, column, family] = largest[found]
                missing[members] = np.isnan(amplitude[members, column, : len(families)]).any(axis=1)
                bar.update(len(members))
            for place in np.flatnonzero(missing):
                for family, state in enumerate(_patterns(blocks[place], k, bases[place])):
                    if state is not None:
                        amplitude[place, column, family] = state.amplitude_at(k)
                        growth[place, column, family] = state.growth
                bar.update(0 if standing[place] else 1)
    lost = grows[:, wanted] & np.isnan(amplitude).all(axis=-1)
    return Balloon(name, marks, frozen(wanted), frozen(amplitude), frozen(growth), frozen(lost))


@harmless_underflow
def stable_wavenumbers(block: Block, ks: Sequence[int] | None = None) -> tuple[int, ...]:
    """The wavenumbers with a stable exact pattern on the ring of a block.

    Those of `balloon`, and of the stable states to which the map itself leads where a growing mode has no stable
    family: their mean, their reflection or their period may be broken, and by default their wavenumber be any. Which
    of all these is observed depends on the start. Patterns that never come to rest (Oscillation) are not among them.

    Parameters
    ----------
    block : Block
        On a ring.
    ks : (K,) sequence of int, optional
        The wavenumbers asked about, see `balloon`.

    Returns
    -------
    tuple of int
        Wavenumbers in increasing order.
    """
    found = balloon(block, ks)
    stable = set(found.stable_wavenumbers(0))
    if found.unresolved.any():
        a = _base("block", block)
        for column in np.flatnonzero(found.unresolved[0]):
            size = np.nanmax(found.amplitude[0, column]) if found.exists[0, column] else SEED
            mode = dispersion_relation(block, state=a).mode(int(found.ks[column]))
            for phase in (0.0,) if odd(block) else (0.0, np.pi):
                state = _settled(block, a + mode.field(size, phase=phase + TILT), stable)
                k = 0 if state is None else state.k
                if isinstance(k, int) and k and (ks is None or k in found.ks):
                    stable.add(k)
    return tuple(sorted(stable))


def _settled(block: Block, x: Floats, known: set[int]) -> ExactState | None:
    """The stable exact state to which the map itself leads from near `x` (N, d), or None if there is none, or if it
    passes one of a wavenumber `known` to have a stable state."""
    noise = np.random.default_rng(0).standard_normal(x.shape)
    x, layer = x + NOISE * float(np.abs(x).max()) * noise, 0
    with np.errstate(all="ignore"):
        for check in CHECKS:
            while layer < check:
                x, layer = block.forward(x), layer + 1
            if not np.isfinite(x).all() or dominant(block.shape, x) in known:
                return None
            # where only the phase is still on its way, the families that it may go to
            for field in (x, *snapped(block, x)):
                with suppress(ArgumentError):
                    state = find_state(block, field)
                    if np.abs(state.spectrum - spectrum(block.shape, x)).max() > NEAR * np.abs(x).max():
                        break
                    if state.stable:
                        return state
    return None


def patterns(block: Block, k: int) -> list[ExactState | None]:
    """The exact patterns of wavenumber `k` of a `block` on a ring, followed from onset to the block.

    Families of standing or alternating waves cos(qj + ψ) of n tokens a period: ψ = 0, a crest on a token, and ψ = π/n;
    for n = 2 only the first. For odd n the map x ↦ −x makes one of these two where F is odd, and the other family has
    a node on a token, ψ = π/2n; so it has where waves alternate. Or one travelling wave. None where no branch arrives,
    or one arrives with another dominant wavenumber. Branches are followed as ε_a grows to its own value. Where that
    does not arrive, as without a feed-forward, where Λ = 1 at ε_a = 0 for all modes alike, they are followed as a
    damping of each token by itself falls to 0. The homogeneous state is that of `balloon`.
    """
    return _patterns(block, grid_index("k", k, block.shape), _base("block", block))


def _patterns(block: Block, k: int, a: Floats) -> list[ExactState | None]:
    """`patterns` that leave the homogeneous state 1⊗`a`."""
    found: list[ExactState | None] = []
    multiplier = dispersion_relation(block, state=a).mode(k).multiplier
    families = _families(block, k, multiplier.real)
    turns = abs(multiplier.imag) > REAL * abs(multiplier)
    mirrored = len(families) == 3 and odd(block)
    for number, (phase, _) in enumerate(families):
        if number and turns and (found[0] is None or found[0].kind == "travelling"):
            break
        if number == 1 and mirrored:
            found.append(None if found[0] is None else replace(found[0], field=-found[0].field))
        else:
            arrivals = (_arrival(block, *way, k, phase, a) for way in _ways(block, k, a))
            found.append(next((state for state in arrivals if state is not None), None))
    return found


def _ways(block: Block, k: int, a: Floats) -> Iterator[tuple[MakeBlock, tuple[float, float]]]:
    """Blocks over a parameter that is 1 at `block` itself, and the (start, stop) from which on an onset is sought."""
    scale = block.attention_scale
    yield lambda part: replace(block, attention_scale=part * scale), (0.0, 1.0)
    damping = 2 * _damping_to_onset(block, k, a)
    if np.isfinite(damping):
        yield lambda part: _damped(block, (1 - part) * damping), (1.0, 0.0)


def _arrival(
    block: Block, make_block: MakeBlock, window: tuple[float, float], k: int, phase: float, a: Floats
) -> ExactState | None:
    """The pattern of `block` to which the branch from the first onset in `window` leads, or None."""
    try:
        path = pattern_branch(make_block, window, k, phase, a, points=400, longest=0.1, locate=False)
        last = path.states[-1]
        arrived = path.values[-1] == 1.0 and last.k == min(k % block.n, -k % block.n)
        return find_state(block, last.field, last.kind, last.drift) if arrived else None
    except ArgumentError:
        return None


def _damped(block: Block, damping: float) -> Block:
    """`block` with one head more, y_i = x_i − ε_a·`damping`·LN_1(x_i) + …: each token attends to itself alone."""
    own = np.zeros(block.n)
    own[0] = OWN
    return replace(block, heads=(*block.heads, Head(Kernel.table(own), -damping * np.eye(block.d))))


def _damping_to_onset(block: Block, k: int, a: Floats) -> float:
    """The damping at which |Λ_k| = 1, to first order: d|Λ| = −ε_a Re(e^{−iω} wᴴ C N_1 v) for each unit of it."""
    relation = dispersion_relation(block, state=a)
    mode = relation.mode(k)
    inner = block.attention_scale * mode.left.conj() @ relation.pointwise @ relation.slopes.inner @ mode.right
    with np.errstate(all="ignore"):
        return float((abs(mode.multiplier) - 1) / (inner * np.exp(-1j * mode.phase)).real)


def _base(name: str, block: Block) -> Floats:
    """(d,) the homogeneous state from which patterns of `block`, the argument `name`, are followed."""
    try:
        return resting_state(block)
    except ArgumentError as error:
        raise ArgumentError(name if error.argument == "block" else error.argument, error.got, error.accepted) from None


def _families(block: Block, k: int, multiplier: float) -> list[tuple[float, int]]:
    """(ψ, c) of the families of standing waves cos(qj + ψ) of a `multiplier`: the phase, and a c with X_{c−j} = ±X_j,
    − for ψ = π/2n."""
    common = gcd(k, block.n)
    period = block.n // common
    if period == 2:
        return [(0.0, 0)]
    inverse = pow(k // common, -1, period)
    families = [(0.0, 0), (np.pi / period, -inverse % period)]
    if period % 2 and (multiplier < 0 or odd(block)):
        families.append((np.pi / (2 * period), (period - 1) // 2 * inverse % period))
    return families


def _batches(blocks: Sequence[Block], members: NDArray[np.int64]) -> Iterable[NDArray[np.int64]]:
    """The `members` of `blocks` in groups that can be computed together."""
    groups: dict[object, list[int]] = {}
    for place in members:
        groups.setdefault(likeness(blocks[place]), []).append(int(place))
    for group in groups.values():
        rest = iter(group)
        while batch := list(islice(rest, BATCH)):
            yield np.array(batch)
