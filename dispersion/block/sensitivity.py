"""How the attention of one query answers to the query, the keys and the mask (arXiv 2608.00418, Theorem 1).

    z_j = q·k_j/√d + log σ(m_j),   p = softmax(z)
    ∂p_i/∂q = (p_i/√d)(k_i − Σ_l p_l k_l),   ∂p_i/∂k_j = (p_i/√d)(δ_ij − p_j) q,   ∂p_i/∂m_j = p_i (δ_ij − p_j) σ(−m_j)

`dispersion.symbolic` derives them. Their bounds (Corollary 1) do not compare masks with queries and keys: q → tq with
k → k/t leaves the weights as they are, and the bound of masks, but divides that of queries by t and multiplies that of
keys by t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion.block.encodings import mask_logits
from dispersion.block.kernel import softmax
from dispersion.errors import ArgumentError, check_shape, frozen, frozen_array, real_array, real_number
from dispersion.noun import Noun, cached_property

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MaskedSoftmax(Noun):
    """The attention p of one query on N keys, and its derivatives.

    Parameters
    ----------
    query : (d,) array_like
        q.
    keys : (N, d) array_like
        k_j.
    m : (N,) array_like
        The mask of each key, ±inf for one that is removed or left as it is.
    """

    query: Floats
    keys: Floats
    m: Floats

    def __post_init__(self) -> None:
        query = frozen_array("query", self.query, (None,))
        keys, m = frozen_array("keys", self.keys, (None, len(query))), np.array(real_array("m", self.m))
        check_shape("m", m, (len(keys),))
        mask_logits(m)
        if np.isneginf(m).all():
            raise ArgumentError("m", "−inf for every key", "a key that is not removed")
        for name, array in (("query", query), ("keys", keys), ("m", frozen(m))):
            object.__setattr__(self, name, array)

    @cached_property
    def weights(self) -> Floats:
        """(N,) p."""
        return softmax(self.keys @ self.query / self._root + mask_logits(self.m))

    @cached_property
    def by_query(self) -> Floats:
        """(N, d) ∂p_i/∂q."""
        return self.weights[:, None] / self._root * (self.keys - self.weights @ self.keys)

    @cached_property
    def by_keys(self) -> Floats:
        """(N, N, d) ∂p_i/∂k_j."""
        return np.asarray(self._scores[:, :, None] * self.query / self._root)

    @cached_property
    def by_mask(self) -> Floats:
        """(N, N) ∂p_i/∂m_j."""
        return np.asarray(self._scores * self.slopes)

    @cached_property
    def slopes(self) -> Floats:
        """(N,) σ(−m_j)."""
        return np.exp(mask_logits(-self.m))

    @property
    def ratio(self) -> Floats:
        """(N,) |∂p_i/∂k_j| / |∂p_i/∂m_j| = |q| / (√d σ(−m_j)), the same for every i and whatever the weights."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.linalg.norm(self.query) / self._root / self.slopes)

    def bounds(self, query: float | None = None, keys: float | None = None) -> dict[str, Floats]:
        """Corollary 1: 2p_i B_k/√d, p_i|δ_ij − p_j|B_q/√d and p_i|δ_ij − p_j|σ(−m_j).

        Parameters
        ----------
        query : float, optional
            B_q ≥ |q|, by default |q|.
        keys : float, optional
            B_k ≥ |k_j|, by default that of the largest key.

        Returns
        -------
        dict
            'query' (N,), 'keys' (N, N) and 'mask' (N, N), of the norms of `by_query`, `by_keys` and `by_mask`.
        """
        found = {"query": float(np.linalg.norm(self.query)), "keys": float(np.linalg.norm(self.keys, axis=1).max())}
        for name, given in (("query", query), ("keys", keys)):
            if given is not None:
                size = real_number(name, given)
                if size < found[name]:
                    raise ArgumentError(name, size, f"a bound, {found[name]:g} or more")
                found[name] = size
        between = np.abs(self._scores)
        return {
            "query": 2 * self.weights * found["keys"] / self._root,
            "keys": between * found["query"] / self._root,
            "mask": between * self.slopes,
        }

    @property
    def _root(self) -> float:
        return float(np.sqrt(len(self.query)))

    @property
    def _scores(self) -> Floats:
        """(N, N) ∂p_i/∂z_j = p_i (δ_ij − p_j)."""
        return np.diag(self.weights) - np.outer(self.weights, self.weights)
