"""The symbol λ(q) of kernels in closed form on the ring, derived with sympy and usable with numpy.

λ = Σ_r w_r z^{−r} / Σ_r w_r with w_r = e^{b_r} and z = e^{iq}, zᴺ = 1. Sums of powers are summed by
sympy for a symbolic N. The Bessel and theta sums rest on the Jacobi–Anger expansion and on Poisson
summation, which sympy does not know: their terms are derived, and the sums proved numerically.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd

import numpy as np
import sympy
from numpy.typing import ArrayLike, NDArray
from sympy import Expr, I, Rational, S, Sum, Symbol, besseli, cos, exp, oo, pi, symbols

from dispersion.errors import ArgumentError, real_number, whole_number
from dispersion.grid import grid_index
from dispersion.symbolic.derivation import Derivation, equation, truncated

k, n, r, m = symbols("k N r m", integer=True)
z, p, half = symbols("z p P")
s, phi, a, shift, q = symbols("s phi a Delta q", real=True)
order, period = symbols("n n'", integer=True)
LAMBDA = Symbol("lambda")


def uniform() -> Derivation:
    """No positional encoding: λ = 1 at z = 1, and 0 at every other z with zᴺ = 1."""
    total = _geometric(1 / z, S.Zero, n - 1)
    return Derivation(
        name="symbol-uniform",
        title="The symbol of uniform attention",
        steps=(("Sum the geometric series", equation(Sum(z**-r, (r, 0, n - 1)), total)),),
        result=(equation(Symbol("lambda_0"), S.One), equation(LAMBDA, S.Zero)),
        derived=(sympy.summation(1, (r, 0, n - 1)) / n, total.subs(z**-n, 1) / n),
        notes="The power N of z is one; the first line is for z equal to one, the second for every other z",
    )


def alibi_causal() -> Derivation:
    """Causal ALiBi, lags 0 … N−1, p = e^{−slope}: λ = (1−p)/(1−p/z)."""
    total, norm = _geometric(p / z, S.Zero, n - 1), _geometric(p, S.Zero, n - 1)
    on_ring = total.subs((p / z) ** n, p**n)
    return Derivation(
        name="symbol-alibi-causal",
        title="The symbol of causal ALiBi on the ring",
        steps=(
            ("Sum the geometric series", equation(Sum((p / z) ** r, (r, 0, n - 1)), total)),
            ("The power N of z is one", on_ring),
            ("Divide by the sum of the weights", norm),
        ),
        result=(equation(LAMBDA, ALIBI_CAUSAL),),
        derived=(on_ring / norm,),
        notes="The logit falls by minus the logarithm of p for each token; z is exp(iq)",
    )


def alibi() -> Derivation:
    """Two-sided ALiBi, N even, lags −N/2 … N/2−1: λ = (1−p)²/(1−2p cos q+p²)·(1−(−1)^k p^{N/2})/(1−p^{N/2})."""
    sign, h = Symbol("sigma"), Symbol("h", integer=True)
    ahead, behind = _geometric(p * z, S.One, h), _geometric(p / z, S.Zero, h - 1)
    # z^{N/2} = (−1)^k = σ and p^{N/2} = P.
    half_ring = {(p * z) ** (h + 1): half * sign * p * z, (p / z) ** h: half * sign}
    total = ahead.subs(half_ring) + behind.subs(half_ring)
    norm = sum(sums.subs({z: 1}).subs({p ** (h + 1): half * p, p**h: half}) for sums in (ahead, behind))
    claim = (1 - p) ** 2 / (1 - 2 * p * Symbol("c") + p**2) * (1 - sign * half) / (1 - half)
    return Derivation(
        name="symbol-alibi",
        title="The symbol of ALiBi on a ring with an even number of tokens",
        steps=(
            ("Sum the lags from minus half the ring to minus one", equation(Sum((p * z) ** r, (r, 1, h)), ahead)),
            ("Sum the lags from zero to half the ring less one", equation(Sum((p / z) ** r, (r, 0, h - 1)), behind)),
            ("Insert the half-ring powers", total),
            ("Divide by the sum of the weights", norm),
        ),
        result=(equation(LAMBDA, claim),),
        derived=(total / norm,),
        where=(equation(Symbol("c"), (z + 1 / z) / 2),),
        notes="sigma, the half-ring power of z, is plus or minus one for even or odd k; P is the half-ring power of p; "
        "c is the cosine of q",
        modulus=(sign**2 - 1,),
    )


def von_mises() -> Derivation:
    """b_r = s cos(q_0 r − φ): λ(n q_0) = Σ_m e^{−i(n+mn')φ} I_{n+mn'}(s) / Σ_m e^{−imn'φ} I_{mn'}(s).

    n' = N/gcd(k_0, N) is the number of different logits; at other wavenumbers λ = 0.
    """
    x, terms = Symbol("x"), 8
    generating = sympy.Add(*(sympy.expand((s * (x + 1 / x) / 2) ** j) / sympy.factorial(j) for j in range(terms)))
    orders = equation(sympy.expand(generating).coeff(x, 1), besseli(1, s).series(s, 0, terms).removeO())
    angle = 2 * pi * r / period - phi
    weight = exp(s * cos(angle))
    points = [(3, 1, Rational(3, 2), Rational(2, 5)), (7, 3, -2, Rational(5, 4))]
    return Derivation(
        name="symbol-von-mises",
        title="The symbol of a von Mises kernel",
        steps=(
            (
                "The exponential of a cosine generates Bessel functions, as its expansion confirms for the first "
                "harmonic, on the right the series of the Bessel function",
                orders,
            ),
            ("Hence the weights are", equation(weight, Sum(besseli(m, s) * exp(I * m * angle), (m, -oo, oo)))),
            ("Summing over the ring keeps the orders that agree modulo", period),
        ),
        result=(equation(LAMBDA, VON_MISES),),
        derived=(
            Sum(weight * exp(-2 * pi * I * order * r / period), (r, 0, period - 1)) / Sum(weight, (r, 0, period - 1)),
        ),
        notes="n counts wavenumbers in units of that of the kernel, and n' is its number of different logits",
        samples=tuple({period: N, order: j, s: strength, phi: phase} for N, j, strength, phase in points),
    )


def gaussian() -> Derivation:
    """Weights e^{−a(δ−Δ)²}, δ = key − query, on all whole δ: λ = Σ_m G(q+2πm) / Σ_m G(2πm), G = e^{−q²/4a + iqΔ}."""
    x, width = Symbol("x", real=True), Symbol("a", positive=True)
    transform = sympy.simplify(sympy.integrate(exp(-width * x**2 + I * q * x), (x, -oo, oo)))
    weight = exp(-a * (r - shift) ** 2)
    points = [(Rational(1, 2), Rational(3, 2), Rational(7, 10)), (1, -Rational(1, 3), 3)]
    return Derivation(
        name="symbol-gaussian",
        title="The symbol of a Gaussian kernel narrow against the ring",
        steps=(
            ("The Fourier transform of a centred Gaussian", transform),
            ("Poisson summation adds its copies at whole turns; the offset gives a phase", GAUSSIAN),
        ),
        result=(equation(LAMBDA, GAUSSIAN),),
        derived=(Sum(weight * exp(I * q * r), (r, -oo, oo)) / Sum(weight, (r, -oo, oo)),),
        notes="r is the key's position less the query's, Delta the offset, a the locality",
        samples=tuple({a: locality, shift: offset, q: wave} for locality, offset, wave in points),
    )


def _geometric(ratio: Expr, low: Expr, high: Expr) -> Expr:
    """Σ ratio^r from low to high, ratio ≠ 1, as sympy sums it."""
    base = Symbol("x")
    total = sympy.summation(base**r, (r, low, high))
    return total.args[-1][0].subs(base, ratio)


def _copies(wave: Expr) -> Expr:
    copy = wave + 2 * pi * m
    return Sum(exp(-(copy**2) / (4 * a) + I * copy * shift), (m, -oo, oo))


def _bessels(first: Expr) -> Expr:
    number = first + m * period
    return Sum(exp(-I * number * phi) * besseli(number, s), (m, -oo, oo))


ALIBI_CAUSAL = (1 - p) / (1 - p / z)
ALIBI = (1 - p) ** 2 / (1 - 2 * p * cos(q) + p**2) * (1 - (-1) ** k * p ** (n / 2)) / (1 - p ** (n / 2))
VON_MISES = _bessels(order) / _bessels(S.Zero)
GAUSSIAN = _copies(q) / _copies(S.Zero)

_FORMS: dict[str, tuple[tuple[Expr, ...], Expr]] = {
    "alibi": ((k, n, p), ALIBI.subs(q, 2 * pi * k / n)),
    "alibi-causal": ((k, n, p), ALIBI_CAUSAL.subs(z, exp(2 * pi * I * k / n))),
    "gaussian": ((k, n, a, shift), GAUSSIAN.subs(q, 2 * pi * k / n)),
    "von-mises": ((order, period, s, phi), VON_MISES),
}


@lru_cache
def _compiled(name: str) -> Callable[..., NDArray[np.complex128]]:
    arguments, expression = _FORMS[name]
    return sympy.lambdify(arguments, truncated(expression), ["scipy", "numpy"])


def _uniform(k: NDArray[np.int64], n: int) -> NDArray:
    return np.where(k % n == 0, 1, 0)


def _alibi(k: NDArray[np.int64], n: int, slope: float) -> NDArray:
    if n % 2:
        raise ArgumentError("n", n, "an even number: the closed form is that of an even ring")
    return _compiled("alibi")(k.astype(float), n, np.exp(-real_number("slope", slope, positive=True)))


def _alibi_causal(k: NDArray[np.int64], n: int, slope: float) -> NDArray:
    return _compiled("alibi-causal")(k, n, np.exp(-real_number("slope", slope, positive=True)))


def _von_mises(k: NDArray[np.int64], n: int, wavenumber: int, strength: float, phase: float = 0.0) -> NDArray:
    wavenumber = grid_index("wavenumber", wavenumber, n)
    common = gcd(wavenumber, n)
    number = n // common
    # j with j·k_0 ≡ k (mod N), which exists where the common factor divides k.
    j = k // common * (pow(wavenumber // common, -1, number) if number > 1 else 0) % number
    symbol = _compiled("von-mises")(j, number, real_number("strength", strength), real_number("phase", phase))
    return np.where(k % common == 0, symbol, 0)


def _gaussian(k: NDArray[np.int64], n: int, locality: float, offset: float = 0.0) -> NDArray:
    a = real_number("locality", locality, positive=True)
    return _compiled("gaussian")(k, n, a, real_number("offset", offset))


CLOSED_FORMS: dict[str, Callable[..., NDArray]] = {
    "uniform": _uniform,
    "alibi": _alibi,
    "alibi-causal": _alibi_causal,
    "von-mises": _von_mises,
    "gaussian": _gaussian,
}


def closed_form(name: str) -> Callable[..., NDArray[np.complex128]]:
    """λ(2πk/N) of a kernel as a numpy function, from the expressions derived here.

    Parameters
    ----------
    name : str
        'uniform', 'alibi' (even n; slope), 'alibi-causal' (slope), 'von-mises' (wavenumber, strength, phase) or
        'gaussian' (weights e^{−a(δ−Δ)²}, δ = key − query: locality a, offset Δ; narrow against n).

    Returns
    -------
    callable
        f(k, n, **parameters): `k` is a whole number or an array of them, the result complex128 of its shape;
        parameters as in `Kernel`.
    """
    if name not in CLOSED_FORMS:
        raise ArgumentError("name", repr(name), ", ".join(CLOSED_FORMS))
    form = CLOSED_FORMS[name]

    def symbol(k: ArrayLike, n: int, **parameters: float) -> NDArray[np.complex128]:
        whole = np.asarray(k)
        if whole.dtype.kind not in "iu":
            raise ArgumentError("k", repr(k), "whole numbers")
        whole = whole.astype(np.int64) % whole_number("n", n, 2)
        return np.asarray(form(whole, n, **parameters), dtype=np.complex128)

    return symbol


DERIVATIONS: dict[str, Callable[[], Derivation]] = {
    "symbol-uniform": uniform,
    "symbol-alibi": alibi,
    "symbol-alibi-causal": alibi_causal,
    "symbol-von-mises": von_mises,
    "symbol-gaussian": gaussian,
}
"""Every derivation of a symbol, by name."""
