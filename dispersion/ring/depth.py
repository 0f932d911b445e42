"""Depth: J(q) multiplied through layers, along the orbit of a homogeneous state or through blocks of different weights.

    P_L(q) = J_{L−1}(q) … J_1(q) J_0(q),   J_l(q) = C_l(a_l)[I + ε_a Σ_h λ_h(q; a_l) M_h N_1(a_l)]      (Eqs. A.10, 180)

with later layers on the left. Products are carried as a matrix of size one and the logarithm of its scale: any depth
fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.block import Block
from dispersion.eigen import eigenvalues
from dispersion.errors import ArgumentError, frozen, instance, shown, whole_number
from dispersion.grid import conjugate_pairs, unfolded, wavenumber
from dispersion.memory import require
from dispersion.noun import Noun, cached_property
from dispersion.quiet import beyond_float64
from dispersion.ring.relation import Spectrum, dispersion_relation
from dispersion.stacks import norms, products
from dispersion.summary import numbers, on_tokens, paragraph

BATCH = 2**20
"""Numbers in the products that are measured at once."""

CLOSED = 1e-10
"""Relative distance under which an orbit has come back to where it was."""


@dataclass(frozen=True, eq=False)
class Optimal(Noun):
    """The perturbation that a product P(q) amplifies most, at each wavenumber: P v = gain · u.

    Attributes
    ----------
    log_gain : (*shape) ndarray
        Log of the largest singular value of P(q).
    input, output : (*shape, d) complex ndarray
        Unit vectors v and u; those at −q are conjugate to those at q.
    """

    log_gain: NDArray[np.float64]
    input: NDArray[np.complex128]
    output: NDArray[np.complex128]

    def __str__(self) -> str:
        place = wavenumber(int(self.log_gain.argmax()), self.log_gain.shape)
        title = f"optimal perturbations {on_tokens(self.log_gain.shape)}, d = {self.input.shape[-1]}"
        return paragraph(title, f"largest gain {numbers(self.gain.max())}, at k = {place}")

    @property
    def gain(self) -> NDArray[np.float64]:
        """(*shape) largest singular value; inf or 0 beyond float64."""
        return _exp(self.log_gain)


@dataclass(frozen=True, eq=False)
class Propagator(Spectrum):
    """The ordered product P_L(q) = J_{L−1}(q) … J_0(q) of L layers on the grid of one ring or torus.

    `multipliers`, `growth`, `leading()` and the rest are those of the product, factors per L layers; what is per
    layer says so. Arrays "by depth" have L+1 entries: the products of the first 0 … L layers.

    Parameters
    ----------
    relations : sequence of Spectrum
        The dispersion relation of each layer, the first layer first; one at least, all of one grid and d.
    """

    relations: tuple[Spectrum, ...]

    def __post_init__(self) -> None:
        relations = tuple(instance("relations", self.relations, Sequence))
        if not relations or not all(isinstance(relation, Spectrum) for relation in relations):
            raise ArgumentError("relations", [type(item).__name__ for item in relations], "one relation or more")
        grid = relations[0].shape, relations[0].d
        for number, relation in enumerate(relations):
            if (relation.shape, relation.d) != grid:
                raise _mismatch(f"relations[{number}]", (relation.shape, relation.d), grid)
        object.__setattr__(self, "relations", relations)

    def _title(self) -> str:
        return f"product of J(q) of {self.layers} layers {on_tokens(self.shape)}, d = {self.d}"

    def _span(self) -> str:
        return f" in {self.layers} layer{'s' * (self.layers > 1)}"

    def _verdict(self) -> str:
        return ""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of the ring or (N_1, …, N_D) of the torus."""
        return self.relations[0].shape

    @property
    def d(self) -> int:
        """Number of features."""
        return self.relations[0].d

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.relations)

    @cached_property
    def matrices(self) -> NDArray[np.complex128]:
        """(*shape, d, d) P_L(q) on the grid; an ArgumentError if it overflows float64 (`log_growth`, `log_gain`,
        `rate` and `optimal` do not).
        """
        matrices, place = self.distinct
        return unfolded(matrices.astype(complex)[place], self.shape)

    @cached_property
    def distinct(self) -> tuple[NDArray, NDArray[np.intp]]:
        """((G, d, d) the different P_L(q), real if all are; (K,) which each wavenumber has, one of each pair ±q)."""
        scaled, log_scale = self._product(self.layers)
        if log_scale.max() > np.log(np.finfo(float).max):
            got = f"{self.layers} layers with a product of size e^{log_scale.max():.6g}"
            raise ArgumentError("relations", got, "a product within float64, or log_growth, log_gain, rate, optimal")
        return scaled * np.exp(log_scale)[:, None, None], self.places

    @property
    def places(self) -> NDArray[np.intp]:
        """(K,) which of the different products each wavenumber has, one of each pair ±q."""
        return self._factors[1]

    @cached_property
    def log_growth(self) -> NDArray[np.float64]:
        """(L+1, *shape) log ρ of the products by depth, −inf for a nilpotent one."""
        return self._by_depth(lambda scaled: np.abs(eigenvalues(scaled)).max(axis=-1))

    @cached_property
    def log_gain(self) -> NDArray[np.float64]:
        """(L+1, *shape) log of the largest singular value of the products by depth."""
        return self._by_depth(lambda scaled: np.linalg.norm(scaled, 2, axis=(-2, -1)))

    @property
    def growth_by_depth(self) -> NDArray[np.float64]:
        """(L+1, *shape) spectral radius of the products by depth; inf or 0 beyond float64."""
        return _exp(self.log_growth)

    @property
    def gain(self) -> NDArray[np.float64]:
        """(L+1, *shape) largest singular value of the products by depth, the most that any perturbation of that
        wavenumber grows (Euclidean norm); inf or 0 beyond float64.
        """
        return _exp(self.log_gain)

    @cached_property
    def rate(self) -> NDArray[np.float64]:
        """(*shape) log ρ(P_L(q)) / L per layer; at a fixed point, or on an orbit of period L, the rate for ever."""
        scaled, log_scale = self._product(self.layers)
        return self._everywhere(_log(np.abs(eigenvalues(scaled)).max(axis=-1)) + log_scale) / self.layers

    def optimal(self, depth: int | None = None) -> Optimal:
        """The perturbation that the first `depth` layers amplify most at each wavenumber.

        Parameters
        ----------
        depth : int, optional
            0 … L; all L layers by default.

        Returns
        -------
        Optimal
            The gains, and the unit vectors before and after.
        """
        depth = self.layers if depth is None else whole_number("depth", depth, 0)
        if depth > self.layers:
            raise ArgumentError("depth", depth, f"0 … {self.layers}")
        scaled, log_scale = self._product(depth)
        u, gain, v = np.linalg.svd(scaled)  # P = u diag(gain) v, rows of v conjugated
        vectors = (self._everywhere(each.astype(complex)) for each in (v[:, 0].conj(), u[:, :, 0]))
        return Optimal(self._everywhere(_log(gain[:, 0]) + log_scale), *vectors)

    def _magnitude(self) -> NDArray[np.float64]:
        """(*shape) Σ_l ‖J_{L−1} … J_l‖ ‖J_{l−1} … J_0‖, what rounding in each layer is amplified to."""
        first = [log_scale for _, log_scale in self._products()]
        last, after = self._identity()
        total = np.zeros_like(after)
        layers = zip(reversed(self.relations), reversed(self._factors[0]), reversed(first), strict=False)
        for relation, factors, before in layers:
            total = total + _exp(before + after)
            last, after = _rescaled(last @ relation.distinct[0][factors], after)
        return self._everywhere(total)

    def _products(self) -> Iterator[tuple[NDArray[np.complex128], NDArray[np.float64]]]:
        """(P, s) of the first 0 … L layers: the different products e^s P, (G, d, d) and (G,)."""
        scaled, log_scale = self._identity()
        yield scaled, log_scale
        for number, (relation, factors) in enumerate(zip(self.relations, self._factors[0], strict=True)):
            matrices = relation.distinct[0]
            product = products(matrices, factors, scaled) if number else matrices[factors]
            scaled, log_scale = _rescaled(product, log_scale)
            yield scaled, log_scale

    @cached_property
    def _factors(self) -> tuple[list[NDArray[np.intp]], NDArray[np.intp]]:
        """((G,) for each layer, which of its matrices stands in each different product; (K,) which product has each
        wavenumber, one of each pair ±q).
        """
        place = np.zeros(len(conjugate_pairs(self.shape)[0]), dtype=np.intp)
        count = 1
        for relation in {id(relation): relation for relation in self.relations}.values():
            if count == len(place):
                break
            kinds, place = np.unique(place * len(place) + relation.places, return_inverse=True)
            count = len(kinds)
        first = np.unique(place, return_index=True)[1]
        return [relation.places[first] for relation in self.relations], place

    def _everywhere(self, values: NDArray) -> NDArray:
        """(*shape, …) `values` (G, …) of the different products at every wavenumber."""
        return unfolded(values[self._factors[1]], self.shape)

    def _identity(self) -> tuple[NDArray, NDArray[np.float64]]:
        count = self._factors[1].max() + 1
        return np.tile(np.eye(self.d), (count, 1, 1)), np.zeros(count)

    def _product(self, depth: int) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
        return next(islice(self._products(), depth, None))

    def _by_depth(self, measure: Callable[[NDArray[np.complex128]], NDArray[np.float64]]) -> NDArray[np.float64]:
        tokens = int(np.prod(self.shape))
        require("relations", f"{self.layers:,} layers of {tokens:,} wavenumbers", 16 * (self.layers + 1) * tokens)
        products = self._products()
        rows: list[NDArray[np.float64]] = []
        size = max(1, BATCH // (self.d**2 * tokens))
        while batch := list(islice(products, size)):
            scaled, log_scale = (np.array(part) for part in zip(*batch, strict=True))
            rows.extend(self._everywhere(row) for row in _log(measure(scaled)) + log_scale)
        return frozen(np.array(rows))


@beyond_float64
def orbit(block: Block, state: ArrayLike | None, layers: int) -> NDArray[np.float64]:
    """(layers+1, d) the homogeneous states a, g(a), g(g(a)), … of `block`: F(1⊗a) = 1⊗g(a).

    Parameters
    ----------
    block : Block
        The map F of one layer.
    state : (d,) array_like or None
        a, or a number for d = 1; zero for None.
    layers : int
        0 or more.

    Returns
    -------
    (layers+1, d) ndarray
        The orbit, a first.

    Raises
    ------
    ArgumentError
        Where the orbit leaves the finite numbers or meets a state where a normalisation fails.
    """
    return _states(_repeated(block, layers, 0), block, state)


@beyond_float64
def along_orbit(block: Block, state: ArrayLike | None = None, layers: int = 1) -> Propagator:
    """The product of J(q) along `layers` layers of one `block`, from the homogeneous state 1⊗`state`.

    Parameters
    ----------
    block : Block
        The map F of each layer.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default. It need not be a fixed point: the base state follows a → g(a)
        (Eq. A.10).
    layers : int
        1 or more.

    Returns
    -------
    Propagator
        P_L(q) on the grid of the block.

    Raises
    ------
    ArgumentError
        Names what cannot be used, as in `dispersion_relation` and `orbit`.
    """
    return through_layers(_repeated(block, layers, 1), state)


@beyond_float64
def through_layers(blocks: Sequence[Block], state: ArrayLike | None = None) -> Propagator:
    """The product of J(q) through layers of different weights, from the homogeneous state 1⊗`state` (Eq. 180).

    Parameters
    ----------
    blocks : sequence of Block
        That of each layer, the first layer first; one at least, all of one ring or torus and one d.
    state : (d,) array_like, optional
        a, or a number for d = 1, before the first layer; zero by default.

    Returns
    -------
    Propagator
        P_L(q) on the grid of the blocks.
    """
    if not isinstance(blocks, Sequence) or not blocks:
        raise ArgumentError("blocks", shown(blocks), "a sequence of one Block or more")
    grid = _checked(blocks[0], "blocks[0]").shape, blocks[0].d
    for number, block in enumerate(blocks):
        if (_checked(block, f"blocks[{number}]").shape, block.d) != grid:
            raise _mismatch(f"blocks[{number}]", (block.shape, block.d), grid)
    known: dict[tuple[int, bytes], Spectrum] = {}  # a layer that comes back is not computed again
    relations = []
    states = _states(blocks, blocks[0], state)[:-1]
    (n, d), distinct = (blocks[0].n, blocks[0].d), len({a.tobytes() for a in states})
    got = f"{distinct:,} states on the way, each with J(q) of {d:,} features at {n:,} wavenumbers"
    require("blocks", got, 16 * distinct * n * (d**2 + len(blocks[0].heads)))
    for block, a in zip(blocks, states, strict=True):
        key = id(block), a.tobytes()
        if key not in known:
            known[key] = dispersion_relation(block, a)
        relations.append(known[key])
    return Propagator(tuple(relations))


@beyond_float64
def asymptotic_rate(
    block: Block, state: ArrayLike | None = None, settle: int = 1000, layers: int = 1000
) -> NDArray[np.float64]:
    """(*shape) the growth rate per layer of each wavenumber as depth goes to infinity along an orbit of `block`.

    Parameters
    ----------
    block : Block
        The map F of each layer.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default.
    settle : int
        Layers left to the orbit to settle, not counted; 0 or more.
    layers : int
        Over how many the rate is then taken, 1 or more.

    Returns
    -------
    (*shape) ndarray
        If the orbit closes within `layers`, log ρ(P)/p over its period p, log ρ(J) at a fixed point; if not,
        log‖P_L‖/L, the largest Lyapunov exponent up to O(1/L).
    """
    start = orbit(block, state, whole_number("settle", settle, 0))[-1]
    path = orbit(block, start, whole_number("layers", layers, 1))
    distance = np.abs(path[1:] - start).max(axis=-1)
    closed = np.flatnonzero(distance <= CLOSED * (1 + np.abs(start).max()))
    if closed.size:
        return along_orbit(block, start, int(closed[0]) + 1).rate
    return along_orbit(block, start, layers).optimal().log_gain / layers


def _states(blocks: Sequence[Block], first: Block, state: ArrayLike | None) -> NDArray[np.float64]:
    states = [first.homogeneous_state(state)]
    with np.errstate(over="ignore", invalid="ignore"):
        for layer, block in enumerate(blocks):
            states.append(block.homogeneous_map(states[-1]))
            if not np.isfinite(states[-1]).all():
                got = f"an orbit that leaves the finite numbers in layer {layer}"
                raise ArgumentError("state", got, "a state whose orbit stays finite, or fewer layers")
    return np.array(states)


def _repeated(block: Block, layers: int, least: int) -> list[Block]:
    """`block` as often as there are layers on its orbit, `least` or more."""
    block, layers = _checked(block, "block"), whole_number("layers", layers, least)
    require("layers", f"{layers:,} layers of {block.d:,} features", layers * (16 * block.d + 120))
    return [block] * layers


def _checked(block: Block, argument: str) -> Block:
    return instance(argument, block, Block)


def _mismatch(argument: str, got: tuple, wanted: tuple) -> ArgumentError:
    described = "tokens {}, d = {}".format
    return ArgumentError(argument, described(*got), described(*wanted) + " as in the first layer")


def _rescaled(matrices: NDArray, log_scale: NDArray) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """e^s `matrices`, which are overwritten, with matrices of size one: (P, s), s = `log_scale` before."""
    size = norms(matrices)
    size[size == 0] = 1.0
    matrices /= size[:, None, None]
    return matrices, log_scale + np.log(size)


def _log(size: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(size)


def _exp(log_size: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(log_size)
