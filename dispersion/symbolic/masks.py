"""The softmax of a masked head by sympy: its derivatives, their sizes, and what a mask outside of it would do.

One query q of d features, N keys and their mask m, arXiv 2608.00418: z_j = q·k_j/√d + log σ(m_j), p = softmax(z).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy import Eq, Expr, Function, Matrix, Rational, Symbol, symbols

from dispersion.symbolic.derivation import Derivation, equation

N, D = 3, 2
"""Keys and features of the derivations."""

ROOT = Symbol("r", positive=True)
NOTES = (
    "r is the root of the number of features; p are the weights, g the sigmoid of minus m, which is one less that of m"
)


class _Exponential(Function):
    """e^x, whose products sympy leaves as they are."""

    def fdiff(self, argindex: int = 1) -> Expr:
        return self


class _Masked:
    """The softmax with symbols, and its derivatives in terms of them."""

    def __init__(self) -> None:
        self.query = Matrix(symbols(f"q_1:{D + 1}"))
        self.keys = Matrix(N, D, [Symbol(f"k_{j + 1}{c + 1}") for j in range(N) for c in range(D)])
        self.mask = Matrix(symbols(f"m_1:{N + 1}"))
        self.p, self.g = Matrix(symbols(f"p_1:{N + 1}")), Matrix(symbols(f"g_1:{N + 1}"))
        scores = self.keys * self.query / ROOT
        weights = [_Exponential(z) / (1 + _Exponential(-m)) for z, m in zip(scores, self.mask, strict=True)]
        self.softmax = Matrix([weight / sum(weights) for weight in weights])
        e, u = symbols(f"e_1:{N + 1}"), symbols(f"u_1:{N + 1}")
        self.named = {_Exponential(z): name for z, name in zip(scores, e, strict=True)}
        self.named |= {_Exponential(-m): name for m, name in zip(self.mask, u, strict=True)}
        self.where = tuple(
            equation(*pair)
            for pair in (
                *zip(self.p, self.softmax.xreplace(self.named), strict=True),
                *((self.g[j], u[j] / (1 + u[j])) for j in range(N)),
            )
        )

    def by(self, variables: Any) -> Matrix:
        """(N, …) derivatives of the weights, the exponentials of scores and of minus m as symbols."""
        return self.softmax.jacobian(list(variables)).xreplace(self.named)

    @property
    def opening(self) -> tuple[tuple[str, Any], ...]:
        i, j, m = symbols("i j m", integer=True)
        s, w, sigma = sympy.IndexedBase("s"), sympy.IndexedBase("w"), Function("sigma")
        weight = equation(w[j], sigma(sympy.IndexedBase("m")[j]) * sympy.exp(s[j]))
        share = equation(sympy.IndexedBase("p")[i], w[i] / sympy.Sum(w[m], (m, 1, N)))
        return (
            ("The score of the first key", equation(s[1], (self.keys * self.query / ROOT)[0])),
            ("A key counts by the exponential of its score and the sigmoid of its mask", weight),
            ("The softmax", share),
        )


def masked_softmax() -> Derivation:
    """Theorem 1: the derivatives of the weights p_i with respect to the query, the keys and the mask.

    dp_i/dq = (p_i/√d)(k_i − Σ_l p_l k_l), dp_i/dk_j = (p_i/√d)(δ_ij − p_j) q, dp_i/dm_j = p_i (δ_ij − p_j) σ(−m_j).

    Returns
    -------
    Derivation
        Its `result` is D_q (N, d), D_k (N, N·d) and D_m (N, N).
    """
    at = _Masked()
    p, mean = at.p, at.p.T * at.keys
    by_query = Matrix(N, D, lambda i, c: p[i] * (at.keys[i, c] - mean[c]) / ROOT)
    by_key = Matrix(N, N * D, lambda i, jc: p[i] * (int(i == jc // D) - p[jc // D]) * at.query[jc % D] / ROOT)
    by_mask = Matrix(N, N, lambda i, j: p[i] * (int(i == j) - p[j]) * at.g[j])
    return Derivation(
        name="masked-softmax",
        title="The derivatives of a softmax with a mask",
        steps=at.opening,
        result=(_named("D_q", by_query), _named("D_k", by_key), _named("D_m", by_mask)),
        derived=(at.by(at.query), at.by(at.keys), at.by(at.mask)),
        where=at.where,
        notes=NOTES,
    )


def masked_softmax_bounds() -> Derivation:
    """Corollary 1: |dp_i/dq| ≤ 2p_i B_k/√d, |dp_i/dk_j| ≤ p_i|δ_ij − p_j|B_q/√d, |dp_i/dm_j| ≤ p_i.

    Each bound follows from an identity that is proved: √d dp_i/dq / p_i = Σ_l p_l (k_i − k_l), a mean of differences of
    at most 2B_k; d|dp_i/dk_j|² = p_i²(δ_ij − p_j)²|q|²; p_i − |dp_i/dm_j|, which is a sum of products of numbers of 0
    or more. The last, d|dp_i/dk_j|² σ(−m_j)² = |q|² (dp_i/dm_j)², is why the sizes of the two say nothing without |q|.

    Returns
    -------
    Derivation
        Its `result` is V (N, d), K (N, N), G (N, N) and R (N, N), zero.
    """
    at = _Masked()
    p, query = at.p, at.query
    by_query, by_key, by_mask = at.by(query), at.by(at.keys), at.by(at.mask)
    size = Matrix(N, N, lambda i, j: sum(by_key[i, j * D + c] ** 2 for c in range(D)))
    norm = sum(entry**2 for entry in query)
    shares = at.softmax.xreplace(at.named)
    differences = Matrix(N, D, lambda i, c: sum(p[j] * (at.keys[i, c] - at.keys[j, c]) for j in range(N) if j != i))
    others = [sum(p[j] for j in range(N) if j != i) for i in range(N)]
    # others[i] is 1 − p_i
    gap = Matrix(N, N, lambda i, j: p[i] * (others[j] + p[j] * (1 - at.g[j])))
    for i in range(N):
        gap[i, i] = p[i] * (p[i] + others[i] * (1 - at.g[i]))
    return Derivation(
        name="masked-softmax-bounds",
        title="The sizes of the derivatives of a softmax with a mask",
        steps=(
            *at.opening,
            (
                "The derivative by the query, in units of the weight and the root, is a mean of differences of keys; "
                "each is of at most twice the largest key",
                differences[0, :],
            ),
            (
                "What the weight has above the size of the derivative by its own mask, a sum of products of shares",
                gap[0],
            ),
            ("And by the mask of another key", gap[1]),
        ),
        result=(
            _named("V", differences),
            _named("K", Matrix(N, N, lambda i, j: p[i] ** 2 * (int(i == j) - p[j]) ** 2 * norm / ROOT**2)),
            _named("G", gap),
            _named("R", sympy.zeros(N)),
        ),
        derived=(
            Matrix(N, D, lambda i, c: ROOT * by_query[i, c] / shares[i]),
            size,
            Matrix(N, N, lambda i, j: shares[i] - (1 if i == j else -1) * by_mask[i, j]),
            Matrix(N, N, lambda i, j: ROOT**2 * size[i, j] * at.g[j] ** 2 - norm * by_mask[i, j] ** 2),
        ),
        where=at.where,
        notes=NOTES + "; R compares keys with the mask: their derivatives differ by the size of the query and g alone",
    )


def masked_softmax_norms() -> Derivation:
    """Proposition 1: a row of a softmax has a norm of at least 1/√N, masked or not, and one of σ(M) ∘ softmax(A) has
    none: its infimum is 0, and its derivatives by the logits are smaller.

    Σp² − 1/N = Σ(p − 1/N)²; σ²Σp² → 0 as σ → 0; Σ(∂p_i/∂a_j)² − Σ(∂σ_ip_i/∂a_j)² = Σ(1 − σ_i²)p_i²(δ_ij − p_j)².

    Returns
    -------
    Derivation
        Its `result` is E, the excess of a row over 1/N, L, the limit, and H, what a row loses of its derivatives.
    """
    logits, sigma = symbols(f"a_1:{N + 1}"), symbols(f"sigma_1:{N + 1}")
    weights = [_Exponential(a) for a in logits]
    softmax = Matrix([weight / sum(weights) for weight in weights])
    e, p = symbols(f"e_1:{N + 1}"), symbols(f"p_1:{N + 1}")
    named = dict(zip(weights, e, strict=True))
    shares, slopes = softmax.xreplace(named), softmax.jacobian(logits).xreplace(named)
    outside = Matrix([s * share for s, share in zip(sigma, softmax, strict=True)]).jacobian(logits).xreplace(named)
    common, part = Symbol("sigma"), Rational(1, N)
    limit = sympy.limit(common**2 * sum(share**2 for share in p), common, 0)
    loss = sum((1 - sigma[i] ** 2) * p[i] ** 2 * (int(i == j) - p[j]) ** 2 for i in range(N) for j in range(N))
    return Derivation(
        name="masked-softmax-norms",
        title="The norm of a softmax, and of one that a mask multiplies",
        steps=(
            ("The squares of the weights of a row, which add up to one", sum(share**2 for share in p)),
            ("A mask that multiplies them takes all of it away", equation(Symbol("L"), limit)),
        ),
        result=(
            equation(Symbol("E"), sum((share - part) ** 2 for share in p)),
            equation(Symbol("L"), sympy.S.Zero),
            equation(Symbol("H"), loss),
        ),
        derived=(
            sum(share**2 for share in shares) - part,
            limit,
            sum(entry**2 for entry in slopes) - sum(entry**2 for entry in outside),
        ),
        where=tuple(equation(*pair) for pair in zip(p, shares, strict=True)),
        notes="sigma are the factors of a mask that multiplies the softmax; both sums have no negative term",
    )


def _named(name: str, matrix: Matrix) -> Eq:
    return equation(sympy.MatrixSymbol(name, *matrix.shape), matrix)


DERIVATIONS: dict[str, Callable[[], Derivation]] = {
    "masked-softmax": masked_softmax,
    "masked-softmax-bounds": masked_softmax_bounds,
    "masked-softmax-norms": masked_softmax_norms,
}
"""Every derivation of a masked softmax, by name."""
