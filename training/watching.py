"""What becomes of J(q) in training: growth, the leading wavenumber, and how much of the first mode is left.

J(q) is taken at two base states: at x = 0, where blocks are engineered and which the mask is embedded as at first, and
along the loops of a network that sees the mask at every position, with its embedding as it is by then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block, along_orbit, dispersion_relation
from dispersion.errors import frozen_array, instance, vector, whole_number
from dispersion.noun import Noun
from dispersion.ring.relation import Spectrum

TOGETHER = 1e-6
"""Multipliers whose moduli are this close, relatively, to the largest belong to the mode."""

LEAST = 1e-9
"""A selective part below this fraction of J(q) is rounding."""


@dataclass(frozen=True, eq=False)
class FirstMode(Noun):
    """The mode that a block singles out before training: how its J(q_c) differs from other wavenumbers'.

    Whatever all wavenumbers but q = 0 have in common, such as the residual stream and the feed-forward, drops out of
    the selective part S = J(q_c) − ⟨J(q)⟩, ⟨⟩ the mean over q ≠ 0. With P the spectral projector of J(q_c) on its
    largest multipliers, K = P S P is what `share` finds again.

    Parameters
    ----------
    wavenumber : int
        k_c ≥ 1, where J(q) grows fastest beside q = 0.
    probe : (d, d) complex array_like
        Pᴴ K Pᴴ/tr(KᴴK).
    """

    wavenumber: int
    probe: NDArray[np.complex128]

    @classmethod
    def of(cls, block: Block) -> FirstMode | None:
        """That of a block at x = 0.

        Parameters
        ----------
        block : Block
            On a ring.

        Returns
        -------
        FirstMode or None
            None for a block that singles out no wavenumber beside q = 0, as without positional logits.
        """
        if len(instance("block", block, Block).shape) != 1:
            raise ArgumentError("block", f"tokens {block.shape}", "a block on a ring")
        relation = dispersion_relation(block)
        matrices, k = relation.matrices, 1 + int(np.argmax(relation.growth[1 : block.n // 2 + 1]))
        multipliers, right = np.linalg.eig(matrices[k])
        size = np.abs(multipliers)
        largest = (size >= (1 - TOGETHER) * size.max()).astype(float)
        # P = V diag(largest) V⁻¹
        projector = np.linalg.solve(right.T, (right * largest).T).T
        kept = projector @ _selective(matrices, k) @ projector
        if np.linalg.norm(kept) <= LEAST * np.linalg.norm(matrices[k]):
            return None
        dual = projector.conj().T
        return cls(k, dual @ kept @ dual / np.vdot(kept, kept).real)

    def share(self, *relations: Spectrum) -> float:
        """How much of the mode is left: Re tr(Kᴴ P S P)/tr(KᴴK) of the selective part S of J(q_c) now.

        It is 1 for the block itself and linear in J: above 1 where the mode is amplified more than at first, cos θ
        where it is turned by a further θ, and 0 on average for a block whose values and outputs are drawn at random.

        Parameters
        ----------
        *relations : Spectrum
            Dispersion relation of the block now; of several, as along an orbit, the mean of J(q) counts.
        """
        if not relations:
            raise ArgumentError("relations", "none", "one relation or more")
        now = _selective(np.mean([relation.matrices for relation in relations], axis=0), self.wavenumber)
        return float(np.vdot(self.probe, now).real)


@dataclass(frozen=True, eq=False)
class Watched(Noun):
    """J(q) of one block at one base state.

    Parameters
    ----------
    growth : (N/2 + 1,) array_like
        Per loop, for k = 0 … N/2: ρ(J(q)), or the L-th root of ρ of the product of J(q) along L loops.
    share : float
        What is left of the first mode, as `FirstMode.share` has it; NaN where there was none.
    """

    growth: NDArray[np.float64]
    share: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "growth", frozen_array("growth", self.growth, (None,)))

    @property
    def leading(self) -> int:
        """k of the largest growth."""
        return int(self.growth.argmax())


def watch(block: Block, first: FirstMode | None = None, mask: ArrayLike | None = None, loops: int = 1) -> Watched:
    """J(q) of a block in training, beside that before it.

    Parameters
    ----------
    block : Block
        As it is now, on a ring.
    first : FirstMode, optional
        What the block singled out before training.
    mask : (d,) array_like, optional
        The embedding of the mask; by default J(q) is taken at x = 0.
    loops : int
        L. From the mask on, the base state follows a → g(a) through the loops (Eq. A.10).

    Returns
    -------
    Watched

    Raises
    ------
    ArgumentError
        Where there is no J(q), as for a block without a ring.
    """
    half = block.n // 2 + 1
    if mask is None:
        relation = dispersion_relation(block)
        relations: tuple[Spectrum, ...] = (relation,)
        growth = relation.growth
    else:
        path = along_orbit(block, vector("mask", mask, block.d), whole_number("loops", loops, 1))
        relations, growth = path.relations, np.exp(path.rate)
    return Watched(growth[:half], np.nan if first is None else first.share(*relations))


def _selective(matrices: NDArray[np.complex128], k: int) -> NDArray[np.complex128]:
    """(d, d) S of J(q) (N, d, d)."""
    return np.asarray(matrices[k] - matrices[1:].mean(axis=0))
