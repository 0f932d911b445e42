"""Priors on attention: one pattern placed in the mask, in a relative kernel, or in queries and keys.

All places have the same gap c between the logits of open and closed pairs, log σ(c) − log σ(−c) = c, so that at the
sequence without content they start from one and the same attention, as far as the rank of a head allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, mask_logits
from dispersion.block.kernel import softmax
from dispersion.errors import flag, frozen_array, instance, real_number, whole_number
from dispersion.noun import Noun
from training.patterns import Pattern

if TYPE_CHECKING:
    from training.encoder import Encoder

Floats = NDArray[np.float64]

SATURATED = 10.0
"""The contrast of the mask-prior paper."""

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Of Adam."""


@dataclass(frozen=True)
class Prior(Noun):
    """What an encoder starts from. A subclass gives `name`, `parts` and `_placed`.

    Parameters
    ----------
    frozen : bool
        Whether the parts in which the prior is are not trained.
    """

    parts: ClassVar[tuple[str, ...]]
    """The fields of an `Encoder` in which the prior is."""

    label: ClassVar[str]
    """The place in a word, as in tables."""

    frozen: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        flag("frozen", self.frozen)

    @property
    def name(self) -> str:
        """As in tables."""
        return self.label + (" frozen" if self.frozen else "")

    def place(self, encoder: Encoder, pattern: Pattern) -> Encoder:
        """An encoder with this prior.

        Parameters
        ----------
        encoder : Encoder
            As it would be without, its masks and kernels constant.
        pattern : Pattern
            Of as many tokens, and as many heads or one for all.

        Returns
        -------
        Encoder
            With other `parts`, the same in every layer or made for it, and all else as it was.

        Raises
        ------
        ArgumentError
            If there is no place for such a pattern.
        """
        layers, heads, _, _ = encoder.query.shape
        opened = instance("pattern", pattern, Pattern).over(heads, encoder.tokens)
        return self._placed(encoder, pattern, np.broadcast_to(opened, (layers, *opened.shape)))

    def _placed(self, encoder: Encoder, pattern: Pattern, opened: NDArray[np.bool_]) -> Encoder:
        """`encoder` with the pairs `opened` (L, H, T, T) of the `pattern`."""
        raise NotImplementedError


@dataclass(frozen=True)
class NoPrior(Prior):
    """No prior and no mask: M = 0, which a softmax does not see, and not trained.

    Parameters
    ----------
    frozen : bool
        Whether M is not trained; `NeutralMask` is what trains it.
    """

    parts = ("mask",)
    label = "default"
    frozen: bool = field(default=True, kw_only=True)

    @property
    def name(self) -> str:
        """As in tables."""
        return self.label

    def _placed(self, encoder: Encoder, pattern: Pattern, opened: NDArray[np.bool_]) -> Encoder:
        return replace(encoder, mask=np.zeros(opened.shape))


@dataclass(frozen=True)
class NeutralMask(Prior):
    """A mask that is trained from M = 0, whatever the pattern.

    Parameters
    ----------
    frozen : bool
        Whether M is not trained.
    """

    parts = ("mask",)
    label = "neutral"

    def _placed(self, encoder: Encoder, pattern: Pattern, opened: NDArray[np.bool_]) -> Encoder:
        return replace(encoder, mask=np.zeros(opened.shape))


@dataclass(frozen=True)
class Contrasted(Prior):
    """A prior with a contrast.

    Parameters
    ----------
    contrast : float
        c, by which the logit of an open pair is above that of a closed one.
    frozen : bool
        Whether the parts in which the prior is are not trained.
    """

    contrast: float = SATURATED

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "contrast", real_number("contrast", self.contrast, positive=True))

    @property
    def name(self) -> str:
        """As in tables; the contrast is named if it is not that of the paper."""
        size = "" if self.contrast == SATURATED else f" {self.contrast:g}"
        return self.label + size + (" frozen" if self.frozen else "")


@dataclass(frozen=True)
class MaskPrior(Contrasted):
    """M = c at open pairs and −c at closed ones; rows that the pattern leaves free have −c throughout.

    Parameters
    ----------
    contrast : float
        c.
    frozen : bool
        Whether M is not trained.
    hard : bool
        Whether closed pairs have −∞, for good; rows left free then have 0.
    """

    parts = ("mask",)
    label = "mask"
    hard: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("hard", self.hard)

    @property
    def name(self) -> str:
        """As in tables."""
        return super().name + (" hard" if self.hard else "")

    def _placed(self, encoder: Encoder, pattern: Pattern, opened: NDArray[np.bool_]) -> Encoder:
        return replace(encoder, mask=contrasted(opened, self.contrast, self.hard))


@dataclass(frozen=True)
class KernelPrior(Contrasted):
    """The logits by lag log σ(±c) of a circulant pattern: what a relative bias can hold of a mask.

    Parameters
    ----------
    contrast : float
        c.
    frozen : bool
        Whether the kernel is not trained.
    """

    parts = ("kernel",)
    label = "kernel"

    def _placed(self, encoder: Encoder, pattern: Pattern, opened: NDArray[np.bool_]) -> Encoder:
        logits = mask_logits(contrasted(pattern.by_lag, self.contrast))
        return replace(encoder, kernel=np.broadcast_to(logits, opened.shape[:-1]))


@dataclass(frozen=True)
class StructuredSVD(Contrasted):
    """Queries and keys whose scores at the sequence without content are c at open pairs and 0 elsewhere, by SVD.

    Exact where the pattern has at most the rank that a head has, and there are no more tokens than features. Layer by
    layer, since what a layer sees depends on those before it. Features of a head that are left over keep the queries
    they had, with keys of zero: they say nothing at first, and learn.

    Parameters
    ----------
    contrast : float
        c.
    frozen : bool
        Whether queries and keys are not trained.
    """

    parts = ("query", "key")
    label = "svd"

    def _placed(self, encoder: Encoder, pattern: Pattern, opened: NDArray[np.bool_]) -> Encoder:
        for layer, pairs in enumerate(opened):
            query, key = np.array(encoder.query), np.array(encoder.key)
            query[layer], key[layer] = by_svd(encoder.home[layer], self.contrast * pairs, query[layer])
            encoder = replace(encoder, query=query, key=key)
        return encoder


@dataclass(frozen=True)
class StructuredOpt(Contrasted):
    """Queries and keys trained before all else: Adam on the squared error of the attention weights at the sequence
    without content, whose target is the softmax of c at open pairs and 0 elsewhere, from where they are.

    Parameters
    ----------
    contrast : float
        c.
    frozen : bool
        Whether queries and keys are not trained afterwards.
    steps : int
        Of Adam, in each layer.
    rate : float
        Its learning rate.
    """

    parts = ("query", "key")
    label = "opt"
    steps: int = 2000
    rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "steps", whole_number("steps", self.steps, 1))
        object.__setattr__(self, "rate", real_number("rate", self.rate, positive=True))

    def _placed(self, encoder: Encoder, pattern: Pattern, opened: NDArray[np.bool_]) -> Encoder:
        for layer, pairs in enumerate(opened):
            query, key = np.array(encoder.query), np.array(encoder.key)
            start = query[layer], key[layer], self.steps, self.rate
            query[layer], key[layer] = by_descent(encoder.home[layer], self.contrast * pairs, *start)
            encoder = replace(encoder, query=query, key=key)
        return encoder


def contrasted(opened: NDArray[np.bool_], contrast: float, hard: bool = False) -> Floats:
    """M = ±c of open and closed pairs, or c and −∞ if `hard`, where rows without an open pair are 0.

    Parameters
    ----------
    opened : (…, T) bool ndarray
        Open pairs.
    contrast : float
        c > 0.
    hard : bool
        Whether closed pairs are closed for good.
    """
    contrast = real_number("contrast", contrast, positive=True)
    if not flag("hard", hard):
        return np.where(opened, contrast, -contrast)
    return np.where(opened.any(axis=-1, keepdims=True), np.where(opened, contrast, -np.inf), 0.0)


def by_svd(home: Floats, logits: Floats, query: Floats) -> tuple[Floats, Floats]:
    """Queries and keys of H heads whose scores q_i·k_j/√w are given ones, up to a constant in each row.

    √w home⁺ Z home⁺ᵀ = QᵀK, Z the scores less the mean of each row cut to the rank w of a head, shared evenly.

    Parameters
    ----------
    home : (T, d) ndarray
        What queries and keys are made of.
    logits : (H, T, T) ndarray
        The scores.
    query : (H, w, d) ndarray
        What features that are left over keep as queries.

    Returns
    -------
    query, key : (H, w, d) ndarray
    """
    home = frozen_array("home", home, (None, None))
    H, w, d = query.shape
    logits = frozen_array("logits", logits, (H, len(home), len(home)))
    if home.shape[1] != d:
        raise ArgumentError("home", f"{home.shape[1]} features", f"{d} as in query")
    left, size, right = np.linalg.svd(logits - logits.mean(axis=-1, keepdims=True))
    rank = int((size > size.max(initial=0) * len(home) * np.finfo(float).eps).any(axis=0).sum())
    kept = min(rank, w)
    inverse, share = np.linalg.pinv(home), np.sqrt(np.sqrt(w) * size[:, :kept, None])
    made, key = np.array(query), np.zeros_like(query)
    made[:, :kept] = share * left[:, :, :kept].transpose(0, 2, 1) @ inverse.T
    key[:, :kept] = share * right[:, :kept] @ inverse.T
    return made, key


def by_descent(
    home: Floats, logits: Floats, query: Floats, key: Floats, steps: int = 2000, rate: float = 1e-3
) -> tuple[Floats, Floats]:
    """Queries and keys of H heads after Adam on Σ (softmax(q_i·k_j/√w) − softmax(logits))².

    Parameters
    ----------
    home : (T, d) ndarray
        What queries and keys are made of.
    logits : (H, T, T) ndarray
        Those of the wanted weights.
    query, key : (H, w, d) ndarray
        Where they start.
    steps : int
        How many.
    rate : float
        Learning rate.

    Returns
    -------
    query, key : (H, w, d) ndarray
    """
    home = frozen_array("home", home, (None, None))
    wanted, root = softmax(frozen_array("logits", logits, (len(query), len(home), len(home)))), np.sqrt(query.shape[1])
    weights = np.array([query, key])
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, steps + 1):
        queries, keys = home @ weights.swapaxes(-1, -2)
        shares = softmax(queries @ keys.swapaxes(-1, -2) / root)
        error = 2 * shares * (shares - wanted)
        # the derivative of the softmax
        slope = (error - shares * error.sum(axis=-1, keepdims=True)) / root
        slopes = np.array([(slope @ keys).swapaxes(-1, -2), (slope.swapaxes(-1, -2) @ queries).swapaxes(-1, -2)]) @ home
        mean += (1 - BETAS[0]) * (slopes - mean)
        square += (1 - BETAS[1]) * (slopes**2 - square)
        size = np.sqrt(square / (1 - BETAS[1] ** step)) + EPSILON
        weights -= rate / (1 - BETAS[0] ** step) * mean / size
    return weights[0], weights[1]
