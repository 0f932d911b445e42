"""What a line of tokens makes of an impulse at its middle token, as a function of the wavenumber."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.block.slopes import Slopes, slopes_at
from dispersion.line.chain import Chain
from dispersion.noun import cached_property
from dispersion.ring.depth import Propagator
from dispersion.ring.relation import GROUPED, Mixed


@dataclass(frozen=True, eq=False)
class Impulse(Mixed):
    """J(q) = Σ_r R_r e^{−iq·r} of the response R_r of token j + r of a chain to an impulse at token j = ⌊n/2⌋.

    At a homogeneous state R_r = δ_r0 C + Σ_h A_{j+r, j} ε_a C M_h N_1 (Eq. 55), so that λ_h(q) is the transform of a
    column of the attention weights A. Lags beyond the ends are absent, and the grid is that of a ring of n tokens.

    Attributes
    ----------
    chain : Chain
        The line.
    state : (d,) ndarray
        The base state a of 1⊗a.
    """

    chain: Chain
    state: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return self.chain.shape

    @cached_property
    def slopes(self) -> Slopes:
        """C, the channels and what else of the block does not depend on q."""
        return slopes_at(self.chain.block, self.state)

    @cached_property
    def symbols(self) -> NDArray[np.complex128]:
        """(heads, n) λ_h(q) = Σ_r A_{j+r, j} e^{−iq·r}."""
        j = self.chain.n // 2
        return np.asarray(np.fft.fft(np.roll(self.attention[:, :, j], -j, axis=-1), axis=-1))

    @cached_property
    def attention(self) -> NDArray[np.float64]:
        """(heads, n, n) A of each head."""
        return self.chain.attention(self.state)

    def _kind(self, group: int) -> NDArray:
        # many different ones are not kept
        return super()._kind(group) if self.d < GROUPED else self.slopes.matrices(self._kinds[0][:, [group]])[0]

    def _images(self, groups: NDArray[np.intp], vectors: NDArray) -> NDArray:
        if self.d < GROUPED:
            return super()._images(groups, vectors)
        # as of tokens each of which sees itself alone, by λ_h(q)
        weights = [np.diag(symbol[groups]) for symbol in self._kinds[0]]
        return self.slopes.apply(weights, vectors)


def impulses(chains: list[Chain] | tuple[Chain, ...], state: ArrayLike | None = None) -> Propagator:
    """The product of J(q) of the middle token through layers, each a chain, from 1⊗`state`; see Impulse.

    Parameters
    ----------
    chains : sequence of Chain
        That of each layer, the first layer first.
    state : (d,) array_like, optional
        a, or a number for d = 1, before the first layer; zero by default.
    """
    a, relations = chains[0].block.homogeneous_state(state), []
    for chain in chains:
        relations.append(Impulse(chain, a))
        a = chain.block.homogeneous_state(chain.block.homogeneous_map(a))
    return Propagator(tuple(relations))
