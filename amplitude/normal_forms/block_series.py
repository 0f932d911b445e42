"""A block applied to a truncated power series, degree by degree (the general method, derived).

A field on the critical manifold is X_j = Σ_m X_m z^m e^{iq(m)·j}: the monomial z^m carries the wavenumber
k(m) = Σ_s m_s k_s mod N, so that a positional average multiplies X_m by λ_h(k(m)) and everything else acts on
each token alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from amplitude.normal_forms.power_series import Affine, Field, Grading, Pointwise, Power, Product, Series, Sum
from dispersion import Activation, Block, DyT, ExclusionError, FeedForward, Head, LayerNorm, Normalisation, RMSNorm
from dispersion.block.kernel import softmax
from dispersion.grid import grid_lags, grid_wavenumbers, positions


class Average(Series):
    """The mean of u = s − s_0 over keys with fixed weights A_r: λ(k(m)) u_m."""

    def __init__(self, grading: Grading, seen: Series, weights: NDArray[np.float64]) -> None:
        super().__init__(grading, seen.values.shape[1], 0.0)
        self.seen = seen
        self.symbol = np.fft.fftn(weights).ravel()[grading.places()][:, None]

    def update(self, p: int) -> None:
        """λ(k(m)) u_m."""
        degree = self.table.degree(p)
        self.values[degree] = self.symbol[degree] * self.seen.values[degree]


class Attention(Series):
    """The mean of u = s − s_0 over keys with weights A_{i−j} e^{ℓ_ij}/Σ_j A_{i−j} e^{ℓ_ij}.

    ℓ_ij is the content logit less its value at the homogeneous state, a two-point series in the states of query
    and key; terms of the query alone cancel unless the logit depends on the lag (rotary encodings), which
    adds an axis of lags.
    """

    def __init__(
        self, grading: Grading, seen: Series, weights: NDArray[np.float64], content: NDArray[np.float64]
    ) -> None:
        super().__init__(grading, seen.values.shape[1], 0.0)
        self.seen, self.content, self.two = seen, content, grading.pairs
        places, lagged = grading.places(), content.ndim == 3
        if lagged:
            # A_r e^{−iq·r} for the wavenumber of each monomial and each lag r
            q = grid_wavenumbers(grading.shape).reshape(weights.size, -1)[places]
            lags = grid_lags(grading.shape).reshape(weights.size, -1)
            self.transform: NDArray = weights.ravel() * np.exp(-1j * q @ lags.T)
        else:
            self.transform = np.fft.fftn(weights).ravel()[places][:, None]
        counted = self.two.both.degrees > 0 if lagged else self.two.both.degrees > self.two.one.degrees[self.two.query]
        self.counted = counted[:, None]
        size = (len(self.two.both), self.transform.shape[1])
        self.logits, self.tilt = np.zeros(size, dtype=complex), np.zeros(size, dtype=complex)
        self.tilt[0] = 1.0
        self.denominator = np.zeros((len(self.table), 1), dtype=complex)
        self.denominator[0] = 1.0
        # s̃ = (s, 1), so that a bilinear form in s̃ holds the linear terms that biases of queries and keys make
        self.lifted = np.zeros((len(self.table), content.shape[-1]), dtype=complex)
        self.lifted[0] = np.append(seen.values[0], 1.0)

    def update(self, p: int) -> None:
        """Logits, their exponential, numerator and denominator of degree p, and the quotient."""
        self._update_logits(p)
        self._update_tilt(p)
        degree, two, both = self.table.degree(p), self.two, self.two.both.degree(p)
        weighted = (self.tilt[both] * self.transform[two.key[both]]).sum(-1, keepdims=True)
        self.denominator[degree] = two.collapse(weighted, p)
        pairs, key = two.weighted(p)
        means = (self.tilt[pairs.first] * self.transform[key]).sum(-1, keepdims=True)
        numerator = pairs.sum(means * self.seen.values[pairs.second])
        self.values[degree] = 0.0
        # (n/d)_p = n_p − Σ_{a≥1} d_a (n/d)_{p−a}, d_0 = 1
        self.values[degree] = numerator - self.product(self.denominator, self.values, p)

    def _update_logits(self, p: int) -> None:
        s, degree = self.lifted, self.two.both.degree(p)
        s[self.table.degree(p), :-1] = self.seen.values[self.table.degree(p)]
        query, key = self.two.query[degree], self.two.key[degree]
        if self.content.ndim == 3:
            theta = np.einsum("md,rde->mre", s, self.content)
            logits = np.einsum("kre,ke->kr", theta[query], s[key])
        else:
            logits = np.einsum("ke,ke->k", (s @ self.content)[query], s[key])[:, None]
        self.logits[degree] = np.where(self.counted[degree], logits, 0.0)

    def _update_tilt(self, p: int) -> None:
        # e^ℓ: p E_p = Σ_a a ℓ_a E_{p−a}
        both = self.two.both
        pairs = both.pairs(p)
        degrees = both.degrees[pairs.first][:, None]
        self.tilt[both.degree(p)] = 0.0
        self.tilt[both.degree(p)] = pairs.sum(degrees * self.logits[pairs.first] * self.tilt[pairs.second]) / p


class ScalarAttention(Series):
    """`Attention` of one feature, with logits θ_i u_j, θ_i = θ_0 + slope·u_i, by powers instead of two points:
    numerator Σ_n θ_i^n ⟨u^{n+1}⟩/n!, denominator Σ_n θ_i^n ⟨u^n⟩/n!, with the means ⟨·⟩ over A_r.
    """

    def __init__(
        self, grading: Grading, seen: Series, weights: NDArray[np.float64], slope: float, theta: float
    ) -> None:
        super().__init__(grading, 1, 0.0)
        self.seen, self.slope, self.theta = seen, slope, theta
        self.symbol = np.fft.fftn(weights).ravel()[grading.places()]
        size, order = len(self.table), grading.order
        self.u, self.tilt = np.zeros((order + 1, size), dtype=complex), np.zeros((order + 1, size), dtype=complex)
        self.tilt[:, 0] = theta ** np.arange(order + 1)
        self.factorial = np.cumprod(np.maximum(np.arange(order + 1), 1.0))[:, None]
        self.denominator = np.zeros((size, 1), dtype=complex)
        self.denominator[0] = 1.0

    def update(self, p: int) -> None:
        """Powers of u and of θ, numerator and denominator of degree p, and the quotient."""
        degree, pairs = self.table.degree(p), self.table.pairs(p)
        first, second = pairs.first, pairs.second
        self.u[1, degree] = self.seen.values[degree, 0]
        self.u[2 : p + 1, degree] = np.add.reduceat(self.u[1, first] * self.u[1:p, second], pairs.starts, axis=1)
        # θ^n = θ^{n−1}(θ_0 + slope·u), of which the first part has degree p itself; without θ_0 only n ≤ p has any
        top = len(self.tilt) - 1 if self.theta else p
        lower = np.where(self.table.degrees[first] > 0, self.slope * self.u[1, first], 0) * self.tilt[:top, second]
        grown = np.add.reduceat(lower, pairs.starts, axis=1)
        for n in range(1, top + 1):
            self.tilt[n, degree] = grown[n - 1] + self.theta * self.tilt[n - 1, degree]
        means = self.symbol * self.u
        tilts = (self.tilt[: p + 1] / self.factorial[: p + 1])[:, first]
        numerator = pairs.sum((tilts[:p] * means[1 : p + 1, second]).sum(axis=0))
        self.denominator[degree, 0] = pairs.sum((tilts[1:] * means[1 : p + 1, second]).sum(axis=0))
        self.values[degree] = 0.0
        self.values[degree] = numerator[:, None] - self.product(self.denominator, self.values, p)


class BlockSeries:
    """F applied to the series X: `field` holds X, `image` F(X); `update(p)` brings degree p up to date.

    block, state : the base state a (d,); grading : monomials and wavenumbers.
    """

    def __init__(self, block: Block, state: NDArray[np.float64], grading: Grading) -> None:
        self.grading, self.intermediates = grading, list[Series]()
        self.field = self._add(Field(grading, block.d, state))
        pre, d = block.placement == "pre", block.d
        seen = self._norm(block.attention_norm if pre else None, self.field)
        c = np.zeros(d) if block.attention_bias is None else block.attention_scale * block.attention_bias
        branches: list[Series] = [self._add(Affine(grading, self.field, np.eye(d), c))]
        for head in block.heads:
            matrix = block.attention_scale * head.value
            for part, mean in self._heads(head, seen):
                # Σ_j A_ij s_j = s_0 + the mean of u
                branches.append(self._add(Affine(grading, mean, part * matrix, part * matrix @ seen.values[0])))
        y = self._add(Sum(grading, *branches))
        if pre:
            self.image = self._residual(block.feedforward, y, self._norm(block.feedforward_norm, y))
        else:
            h = self._norm(block.attention_norm, y)
            self.image = self._norm(block.feedforward_norm, self._residual(block.feedforward, h, h))
        assert self.image.values.shape[1] == d

    def update(self, p: int) -> None:
        """Bring every intermediate series to degree p, given `field` up to degree p."""
        for series in self.intermediates:
            series.update(p)

    def _add(self, series: Series) -> Series:
        self.intermediates.append(series)
        return series

    def _heads(self, head: Head, seen: Series) -> list[tuple[float, Series]]:
        """The averages that a head mixes, with their shares: one, or two with a gate."""
        s0, grading = seen.values[0].real, self.grading
        lags = grid_lags(grading.shape).reshape(head.kernel.n, -1)
        content = head.query_key.lag_logits(s0, lags).reshape(grading.shape)
        rotation = head.query_key.affine(positions(grading.shape))
        if head.gate is None:
            return [(1.0, self._average(seen, softmax(content + head.lag_logits, len(grading.shape)), rotation))]
        return [
            (1 - head.gate, self._average(seen, softmax(content, len(grading.shape)), rotation)),
            (head.gate, self._average(seen, softmax(head.lag_logits, len(grading.shape)), np.zeros_like(rotation))),
        ]

    def _average(self, seen: Series, weights: NDArray[np.float64], content: NDArray[np.float64]) -> Series:
        if not content.any():
            return self._add(Average(self.grading, seen, weights))
        if content.shape == (2, 2):  # of s̃ = (s, 1)
            theta = content[0, 0] * seen.values[0, 0].real + content[1, 0]
            return self._add(ScalarAttention(self.grading, seen, weights, content[0, 0], theta))
        return self._add(Attention(self.grading, seen, weights, content))

    def _residual(self, feedforward: FeedForward | None, y: Series, x: Series) -> Series:
        """y + φ(x)."""
        if feedforward is None:
            return y
        grading = self.grading
        hidden: Series = self._add(Affine(grading, x, feedforward.weight_in, feedforward.bias_in))
        if feedforward.weight_gate is None or feedforward.bias_gate is None:
            hidden = self._add(Pointwise(grading, hidden, feedforward.activation))
        else:
            gate = self._add(Affine(grading, x, feedforward.weight_gate, feedforward.bias_gate))
            active = self._add(Pointwise(grading, gate, feedforward.activation))
            hidden = self._add(Product(grading, active, hidden))
        out = self._add(Affine(grading, hidden, feedforward.weight_out, feedforward.bias_out))
        return self._add(Sum(grading, y, out))

    def _norm(self, norm: Normalisation | None, x: Series) -> Series:
        """The series of a normalisation of x."""
        if norm is None:
            return x
        grading, d = self.grading, norm.d
        norm.jacobian(x.values[0].real)  # refuses a state at which it has no derivative
        if isinstance(norm, DyT):
            scaled = self._add(Affine(grading, x, norm.alpha * np.eye(d)))
            standard = self._add(Pointwise(grading, scaled, Activation.tanh()))
        elif isinstance(norm, LayerNorm | RMSNorm):
            centre = np.eye(d) - 1 / d if isinstance(norm, LayerNorm) else np.eye(d)
            centred = self._add(Affine(grading, x, centre))
            square = self._add(Product(grading, centred, centred))
            variance = self._add(Affine(grading, square, np.full((1, d), 1 / d), norm.eps))
            inverse = self._add(Power(grading, variance, -0.5))
            standard = self._add(Product(grading, centred, inverse))
        else:
            raise ExclusionError("norm", type(norm).__name__, "LayerNorm, RMSNorm or DyT")
        return self._add(Affine(grading, standard, np.diag(norm.gain), norm.bias))
