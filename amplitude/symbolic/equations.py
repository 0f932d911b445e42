"""Amplitude equations by series expansion of the scalar map, compared with the closed forms.

`Expansion` inserts modes into F, expands the softmax and H, solves for the slaved modes and reads
off the coefficients. The closed forms are typed here only as claims: a derivation is proved if the
difference is zero as a rational function of all its symbols. λ is complex, its conjugate a symbol of
its own, unless the kernel is said to be symmetric. Resolvents D are those of the actual gain; at
onset |Λ| = 1 they become the paper's.

`DERIVATIONS` holds every derivation by name; each is called without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import sympy
from sympy import Expr, Function, Symbol, symbols, tanh

from amplitude.symbolic.expansion import Expansion, Symbols
from dispersion.symbolic.derivation import Derivation, equation

A1, A2, A3 = symbols("alpha_1:4")
D0, D2, DPI = symbols("D_0 D_2 D_pi")
ONE_WAVE = {"z": (1,), "zbar": (-1,)}
TWO_WAVES = {"z": (1, 0), "zbar": (-1, 0), "w": (0, 1), "wbar": (0, -1)}
NOTES = (
    "z is B exp(iqj); L and lambda belong to the wavenumber in the subscript, "
    "0 for the mean, c for the wave and 2 for its second harmonic"
)


def alphas() -> Derivation:
    """α_k = H⁽ᵏ⁾(y*)/k! for H = y + φ, any φ, and for φ = r tanh at any y*."""
    y, step, r, t = symbols("y s r t")
    phi = Function("phi")
    names = [*symbols("alpha_1:4"), *(Symbol(f"A_{k}") for k in (1, 2, 3))]
    general = [(y + phi(y)).diff(y, k) / sympy.factorial(k) for k in (1, 2, 3)]
    # t = tanh y* stays: tanh(y* + s) = (t + tanh s)/(1 + t tanh s).
    shifted = r * (t + tanh(step)) / (1 + t * tanh(step))
    series = (step + sympy.series(shifted, step, 0, 4).removeO()).expand()
    claims = [
        1 + phi(y).diff(y),
        phi(y).diff(y, 2) / 2,
        phi(y).diff(y, 3) / 6,
        1 + r * (1 - t**2),
        -r * t * (1 - t**2),
        -r * (1 - t**2) * (1 - 3 * t**2) / 3,
    ]
    return Derivation(
        name="alphas",
        title="The Taylor coefficients of the pointwise map",
        steps=(
            ("The map is the identity plus the feed-forward", equation(Function("H")(y), y + phi(y))),
            ("For a hyperbolic tangent of scale r, with t its value at the base state", shifted),
            ("Its series is", series),
        ),
        result=tuple(equation(*pair) for pair in zip(names, claims, strict=True)),
        derived=(*general, *(series.coeff(step, k) for k in (1, 2, 3))),
        notes="A are those of the hyperbolic tangent; at a zero base state t vanishes, and so does the second",
    )


def cumulants() -> Derivation:
    """Au + θ[Au² − (Au)²] + ½θ²[Au³ − 3(Au²)(Au) + 2(Au)³]: the mean of u under the tilted weights A e^{θu}."""
    theta, (m1, m2, m3) = Symbol("theta"), symbols("m_1:4")
    above, below = m1 + theta * m2 + theta**2 * m3 / 2, 1 + theta * m1 + theta**2 * m2 / 2
    series = sympy.series(above / below, theta, 0, 3).removeO()
    claims = (m1, m2 - m1**2, (m3 - 3 * m1 * m2 + 2 * m1**3) / 2)
    return Derivation(
        name="cumulants",
        title="An attention row is an exponential tilt of its positional weights",
        steps=(("The mean, a quotient of two averages of the exponential", above / below),),
        result=tuple(equation(Symbol(f"kappa_{k}"), claim) for k, claim in enumerate(claims)),
        derived=tuple(sympy.expand(series).coeff(theta, k) for k in range(3)),
        notes="m are the averages of the powers of the field, theta is the tilt, kappa the coefficients of its powers",
    )


def standing(heads: int = 1) -> Derivation:
    """β_st = −c of a symmetric kernel (Eqs. 96–97).

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1,): "c", (2,): "2", (3,): "3"}, symmetric=True)
    return _derivation(
        "standing",
        "The saturation coefficient of a standing wave",
        Expansion(ONE_WAVE, names),
        _wave_resolvents(names),
        {"beta_st": ("z z zbar", -1, -_wave(names))},
    )


def travelling(heads: int = 1) -> Derivation:
    """β_tr = −e^{−iω}c of a directional kernel.

    Its sign is that for which |B| grows by |Λ| − Re β |B|², which is derived too (the paper's Eq. 119 has the other).

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1,): "c", (2,): "2", (3,): "3"})
    turn, c, cbar, beta, betabar, square = symbols("zeta c cbar beta betabar S")
    rho = Symbol("rho", positive=True)
    modulus = sympy.sqrt((rho / turn + c * square) * (rho * turn + cbar * square))
    made = _derivation(
        "travelling",
        "The saturation coefficient of a travelling wave",
        Expansion(ONE_WAVE, names),
        _wave_resolvents(names),
        {"beta_tr": ("z z zbar", -turn, -turn * _wave(names))},
    )
    return replace(
        made,
        steps=(*made.steps, ("The factor by which the modulus of the amplitude grows, S its square", modulus)),
        result=(*made.result, equation(Symbol("g"), -(beta + betabar) / 2)),
        derived=(*made.derived, modulus.diff(square).subs(square, 0)),
        where=(equation(beta, -turn * c), equation(betabar, -cbar / turn), *made.where),
        notes=f"{NOTES}; zeta is exp(-i omega), rho the modulus of the multiplier, c the cubic coefficient, "
        "g the change of that factor with S",
    )


def base_state(heads: int = 1) -> Derivation:
    """c of a wave on a base state a ≠ 0, ξ = χa, α's at y* (App. F).

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1,): "c", (2,): "2", (3,): "3"})
    L, Lbar, L2, L0 = (names.L(name) for name in ("c", "~c", "2", "0"))

    def tilted(term: Callable[[Expr, Expr, Expr], Expr], power: int = 1) -> Expr:
        return names.total(lambda s: s("eta") * s("xi") ** power * term(s("c"), s("~c"), s("2")))

    p0 = A2 * L * Lbar + A1 * tilted(lambda c, cbar, _: 1 - c * cbar)
    p2 = A2 * L**2 + A1 * tilted(lambda c, _, c2: c2 - c**2)
    Q = A2 * Lbar * L2 + A1 * tilted(lambda c, cbar, c2: c - cbar * c2)
    direct = 3 * A3 * L**2 * Lbar + A1 * _wave_tilt(names)
    direct += A1 * tilted(lambda c, cbar, c2: -3 * c - 3 * c2 * cbar + 6 * c**2 * cbar, 2) / 2
    direct += 2 * A2 * tilted(lambda c, cbar, c2: 2 * L * (1 - c * cbar) + Lbar * (c2 - c**2))
    return _derivation(
        "base-state",
        "The cubic coefficient of a wave on a base state that is not zero",
        Expansion(ONE_WAVE, names, base=True),
        _wave_resolvents(names),
        {"c": ("z z zbar", 1, direct + 4 * A2 * L * L0 * p0 / D0 + 2 * Q * p2 / D2)},
        f"{NOTES}; xi is chi times the base state",
    )


def clusters(heads: int = 1) -> Derivation:
    """β_cl of two balanced clusters m ± u without positions, and at onset −ηχ − α_3 + 2(1+η)α_2²/η, m = −(α_2/η)u².

    The mode is the sign ±1 of each token, whose average is zero (Eq. 16).

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1,): None})
    eta, tilt = names.total(lambda s: s("eta")), names.total(lambda s: s("eta") * s("chi"))
    expansion = Expansion({"u": (1,)}, names, period=2)
    made = _derivation(
        "clusters",
        "The separation of two balanced clusters",
        expansion,
        {D0: ("u u", A1**2 - names.J("0"))},
        {"beta_cl": ("u u u", -1, -A1 * tilt - A3 - 2 * A2**2 * names.L("0") / D0)},
        "Tokens are m + u or m - u, and m is a multiple of the square of u; at onset the first alpha is one",
    )
    D, beta = made.derived
    onset = {"beta_onset": -tilt - A3 + 2 * (1 + eta) * A2**2 / eta, "m_2": -A2 / eta}
    mean = expansion.slaving("u u")[1] / D
    return replace(
        made,
        result=(*made.result, *(equation(Symbol(name), claim) for name, claim in onset.items())),
        derived=(*made.derived, beta.subs(D0, D).subs(A1, 1), mean.subs(A1, 1)),
    )


def competition(heads: int = 1) -> Derivation:
    """β_ij of two modes at any gains, with the mixed harmonics q_i ± q_j (Eq. 139).

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1, 0): "i", (0, 1): "j", (1, 1): "i+j", (1, -1): "i-j"})
    i, j, jbar = (names.J(name) for name in ("i", "j", "~j"))
    tilt = names.total(
        lambda s: s("eta") * s("chi") * (1 - s("j") * s("~j") + s("i+j") + s("i-j") - s("i") * (s("j") + s("~j")))
    )
    sum_, difference, cubic = Symbol("D_i+j"), Symbol("D_i-j"), names.L("i") * names.L("j") * names.L("~j")
    harmonics = names.L("0") / D0 + names.L("i+j") / sum_ + names.L("i-j") / difference
    return _derivation(
        "competition",
        "How one wave changes the growth of another",
        Expansion(TWO_WAVES, names),
        {
            D0: ("w wbar", j * jbar - names.J("0")),
            sum_: ("z w", i * j - names.J("i+j")),
            difference: ("z wbar", i * jbar - names.J("i-j")),
        },
        {"beta_ij": ("z w wbar", 1, 2 * A1 * tilt + 6 * A3 * cubic + 4 * A2**2 * cubic * harmonics)},
        "z and w are the waves i and j; L and lambda belong to the wavenumber in the subscript, 0 for the mean",
    )


def period_two(heads: int = 1) -> Derivation:
    """γ at q = π: α_1ηχ(1−λ_π²) + α_3L_π³ + 2α_2²L_π³L_0/D_0.

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1,): "pi"}, symmetric=True)
    L = names.L("pi")
    tilt = names.total(lambda s: s("eta") * s("chi") * (1 - s("pi") ** 2))
    return _derivation(
        "period-two",
        "The pattern that alternates from token to token",
        Expansion({"z": (1,)}, names, period=2),
        {D0: ("z z", names.J("pi") ** 2 - names.J("0"))},
        {"gamma": ("z z z", 1, A1 * tilt + A3 * L**3 + 2 * A2**2 * L**3 * names.L("0") / D0)},
    )


def period_three(heads: int = 1) -> Derivation:
    """a_2 and c_1 at q = 2π/3, symmetric kernels, where z̄² drives z.

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1,): "c"}, symmetric=True)
    L = names.L("c")
    tilt = names.total(lambda s: s("eta") * s("chi") * (2 + s("c") - 3 * s("c") ** 2))
    return _derivation(
        "period-three",
        "The pattern of three tokens",
        Expansion(ONE_WAVE, names, period=3),
        {D0: ("z zbar", names.J("c") ** 2 - names.J("0"))},
        {
            "a_2": ("zbar zbar", 1, A2 * L**2),
            "c_1": ("z z zbar", 1, A1 * tilt + 3 * A3 * L**3 + 4 * A2**2 * L**3 * names.L("0") / D0),
        },
    )


def period_four(heads: int = 1) -> Derivation:
    """c_1 and c_3 at q = π/2, symmetric kernels, where z̄³ drives z.

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {(1,): "c", (2,): "pi"}, symmetric=True)
    L, square = names.L("c"), names.J("c") ** 2
    tilt = names.total(lambda s: s("eta") * s("chi") * (2 * (1 - s("c") ** 2) + s("pi") - s("c") ** 2))
    locking = names.total(lambda s: s("eta") * s("chi") * (s("pi") - s("c") ** 2))
    mean, harmonic = names.L("0") / D0, names.L("pi") / DPI
    return _derivation(
        "period-four",
        "The pattern of four tokens",
        Expansion(ONE_WAVE, names, period=4),
        {D0: ("z zbar", square - names.J("0")), DPI: ("z z; zbar zbar", square - names.J("pi"))},
        {
            "c_1": ("z z zbar", 1, A1 * tilt + 3 * A3 * L**3 + 2 * A2**2 * L**3 * (2 * mean + harmonic)),
            "c_3": ("zbar zbar zbar", 1, A1 * locking + A3 * L**3 + 2 * A2**2 * L**3 * harmonic),
        },
    )


def homogeneous(heads: int = 1) -> Derivation:
    """b_2 = α_2L_0² and b_3 = α_3L_0³ at q = 0: attention drops out.

    Parameters
    ----------
    heads : int
        Number of heads.
    """
    names = Symbols(heads, {})
    L = names.L("0")
    return _derivation(
        "homogeneous",
        "The uniform pattern",
        Expansion({"z": (0,)}, names),
        {},
        {"b_2": ("z z", 1, A2 * L**2), "b_3": ("z z z", 1, A3 * L**3)},
    )


def _wave_tilt(names: Symbols) -> Expr:
    """Σηχ[2(1−|λ_c|²) + λ_2 − λ_c²]."""
    return names.total(lambda s: s("eta") * s("chi") * (2 * (1 - s("c") * s("~c")) + s("2") - s("c") ** 2))


def _wave(names: Symbols) -> Expr:
    """The closed form of c at a zero base state."""
    cubic = names.L("c") ** 2 * names.L("~c")
    harmonics = 2 * names.L("0") / D0 + names.L("2") / D2
    return A1 * _wave_tilt(names) + 3 * A3 * cubic + 2 * A2**2 * cubic * harmonics


def _wave_resolvents(names: Symbols) -> dict[Expr, tuple[str, Expr]]:
    """D_0 = |Λ|² − J_0 and D_2 = Λ² − J_2."""
    c, cbar = names.J("c"), names.J("~c")
    return {D0: ("z zbar", c * cbar - names.J("0")), D2: ("z z", c**2 - names.J("2"))}


def _derivation(
    name: str,
    title: str,
    expansion: Expansion,
    resolvents: Mapping[Expr, tuple[str, Expr]],
    coefficients: Mapping[str, tuple[str, Expr, Expr]],
    notes: str = NOTES,
) -> Derivation:
    """What every derivation here does.

    resolvents : symbol D → (the slaved monomials it belongs to, the claim); coefficients : name →
        (monomial, factor, claim): the claim is compared with factor × the coefficient found.
    """
    owner = {pair: D for D, (pairs, _) in resolvents.items() for pair in pairs.split("; ")}
    slaved = {pair: expansion.slaving(pair) for pair in owner}
    driven = {pair: expansion.slaved[expansion.exponents(pair)] for pair in owner}
    inserted = {driven[pair]: p / owner[pair] for pair, (_, p) in slaved.items()}
    shown = {key: factor * expansion.coefficient(m) for key, (m, factor, _) in coefficients.items()}
    found = {key: value.subs(inserted) for key, value in shown.items()}
    if left := set().union(*(value.free_symbols for value in found.values())) & set(expansion.slaved.values()):
        raise ArithmeticError(f"{name} needs resolvents for {left}")
    field = sympy.Add(*map(Symbol, expansion.modes), *(X * _product(pair) for pair, X in driven.items()))
    claims = [(D, claim) for D, (pairs, claim) in resolvents.items() for _ in pairs.split("; ")]
    claims += [(Symbol(key), claim) for key, (_, _, claim) in coefficients.items()]
    steps = [("The state less its base: the modes, and those of the modes they drive that are needed", field)]
    steps += [("Invariance at second order gives", equation(X, value)) for X, value in inserted.items()]
    steps += [
        (f"The coefficient of {m.replace(' ', ' times ')} gives", equation(Symbol(key), shown[key]))
        for key, (m, _, _) in coefficients.items()
    ]
    return Derivation(
        name=name,
        title=title,
        steps=tuple(steps),
        result=tuple(equation(*claim) for claim in claims),
        derived=(*(D for D, _ in slaved.values()), *found.values()),
        where=expansion.names.definitions,
        notes=notes,
    )


def _product(monomial: str) -> Expr:
    return sympy.Mul(*map(Symbol, monomial.split()))


DERIVATIONS: dict[str, Callable[[], Derivation]] = {
    "alphas": alphas,
    "cumulants": cumulants,
    "standing": standing,
    "travelling": travelling,
    "base-state": base_state,
    "clusters": clusters,
    "competition": competition,
    "period-two": period_two,
    "period-three": period_three,
    "period-four": period_four,
    "homogeneous": homogeneous,
}
"""Every derivation of weakly nonlinear theory, by name."""
