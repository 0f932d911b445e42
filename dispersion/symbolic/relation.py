"""J(q) by symbolic differentiation of the block's definition, and λ(q) in closed form.

The map F of Eqs. 1–2 is written out token by token, with an undefined pointwise function φ, and
differentiated by sympy along e_q ⊗ v at 1⊗a. What comes out is compared with the closed form
J(q) = C[I + ε_a Σ_h λ_h(q) M_h], for every q of the grid at once: z = e^{iq} stays a symbol with
zᴺ = 1. That every token gives the same J(q) says that plane waves do not mix.

`DERIVATIONS` holds every derivation of linear theory by name; each is called without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import sympy
from sympy import Eq, Expr, Function, Matrix, Symbol, diag, exp, eye, ones, symbols

from dispersion.symbolic.block import SymbolicBlock, SymbolicHead, layer_norm, rational, rms_norm
from dispersion.symbolic.derivation import Derivation, equation, vanishes
from dispersion.symbolic.kernels import DERIVATIONS as KERNELS
from dispersion.symbolic.masks import DERIVATIONS as MASKS

Z, SCALE = Symbol("z"), Symbol("epsilon_a")
NOTES = (
    "A plane wave is the powers of z; w is the exponential of a positional logit, D the derivative of the feed-forward"
)


def jacobian(n: int = 3, d: int = 2, heads: int = 2) -> Derivation:
    """J(q) = C[I + ε_a Σ_h λ_h(q) M_h] (Eq. 9) for any kernels, W, M and φ.

    Parameters
    ----------
    n, d, heads : int
        Numbers of tokens, features and heads.

    Returns
    -------
    Derivation
        Its `result` is one equation for J(q) of each token.
    """
    phi, a = _Smooth("phi", d), _column("a", d)
    parts, where = _heads(n, d, heads)
    rows = _rows(SymbolicBlock(parts, phi, SCALE), a, n)
    star = a + SCALE * _sum(head.value * a for head in parts)
    claim = _entries("C", d) * (eye(d) + SCALE * _mixed(parts))
    return Derivation(
        name="jacobian",
        title="The matrix dispersion relation of a block with several heads",
        steps=(*_opening(parts, a, n), ("At a homogeneous state the feed-forward sees", _matrix_equation("y", star))),
        result=tuple(_matrix_equation("J", claim) for _ in rows),
        derived=tuple(phi.named(row, star, "D") for row in rows),
        where=_definitions("C", eye(d) + _entries("D", d)) + where,
        notes=NOTES,
        modulus=(Z**n - 1,),
    )


def jacobian_no_positions(n: int = 3, d: int = 2, heads: int = 2) -> Derivation:
    """Without positional encoding J(0) = C(I + ε_a Σ_h M_h) and J(q) = C for q ≠ 0 (Eq. 6).

    Parameters
    ----------
    n, d, heads : int
        Numbers of tokens, features and heads.

    Returns
    -------
    Derivation
        Its `result` is J_0, then J_q.
    """
    phi, a = _Smooth("phi", d), _column("a", d)
    parts, _ = _heads(n, d, heads, positions=False)
    star = a + SCALE * _sum(head.value * a for head in parts)
    row, C = phi.named(_rows(SymbolicBlock(parts, phi, SCALE), a, n)[0], star, "D"), _entries("C", d)
    return Derivation(
        name="jacobian-no-pe",
        title="Without positional encoding only the mean is mixed",
        steps=_opening(parts, a, n),
        result=(
            _matrix_equation("J_0", C * (eye(d) + SCALE * _sum(head.value for head in parts))),
            _matrix_equation("J_q", C),
        ),
        derived=(row.subs(Z, 1), row),
        where=_definitions("C", eye(d) + _entries("D", d)),
        notes=NOTES,
        # e^{iq} ≠ 1 is a root of this; J_0 contains no z.
        modulus=(sympy.Add(*(Z**j for j in range(n))),),
    )


def jacobian_layer_norm(n: int = 3, d: int = 2) -> Derivation:
    """Pre-LN: J(q) = C[I + ε_a λ(q) M N_1], C = I + Dφ·N_2 (Eq. 68), with N = DLN of Eq. 69.

    The block is differentiated with undefined normalisations, then LayerNorm's own definition is.

    Parameters
    ----------
    n, d : int
        Numbers of tokens and features.

    Returns
    -------
    Derivation
        Its `result` is one equation for J(q) of each token, then that of `layer_norm_derivative`.
    """
    phi, first, second, a = _Smooth("phi", d), _Smooth("f", d), _Smooth("g", d), _column("a", d)
    parts, where = _heads(n, d, 1)
    rows = _rows(SymbolicBlock(parts, phi, SCALE, (first, second)), a, n)
    star = a + SCALE * _sum(head.value * first(a) for head in parts)
    rows = [phi.named(row, second(star), "D") for row in rows]
    rows = [second.named(first.named(row, a, "N1"), star, "N2") for row in rows]
    claim = _entries("C", d) * (eye(d) + SCALE * _mixed(parts) * _entries("N1", d))
    norm = layer_norm_derivative()
    return Derivation(
        name="jacobian-layernorm",
        title="The dispersion relation of a block with normalisation before each branch",
        steps=(
            *_opening(parts, a, n),
            ("Attention sees the tokens after the first normalisation, the feed-forward sees", second(star)[0]),
            *norm.steps,
        ),
        result=(*(_matrix_equation("J", claim) for _ in rows), *norm.result),
        derived=(*rows, *norm.derived),
        where=_definitions("C", eye(d) + _entries("D", d) * _entries("N2", d)) + where + norm.where,
        notes=f"{NOTES}; N1, N2 are those of the normalisations",
        modulus=(Z**n - 1,),
    )


def jacobian_post_layer_norm(n: int = 3, d: int = 2) -> Derivation:
    """Post-LN: J(q) = N_2 (I + Dφ) N_1 [I + ε_a λ(q) M].

    Parameters
    ----------
    n, d : int
        Numbers of tokens and features.

    Returns
    -------
    Derivation
        Its `result` is one equation for J(q) of each token.
    """
    phi, first, second, a = _Smooth("phi", d), _Smooth("f", d), _Smooth("g", d), _column("a", d)
    parts, where = _heads(n, d, 1)
    rows = _rows(SymbolicBlock(parts, phi, SCALE, (first, second), post=True), a, n)
    star = a + SCALE * _sum(head.value * a for head in parts)
    hidden = first(star)
    rows = [second.named(row, hidden + phi(hidden), "N2") for row in rows]
    rows = [first.named(phi.named(row, hidden, "D"), star, "N1") for row in rows]
    claim = _entries("C", d) * (eye(d) + SCALE * _mixed(parts))
    return Derivation(
        name="jacobian-post-layernorm",
        title="The dispersion relation of a block with normalisation after each branch",
        steps=_opening(parts, a, n),
        result=tuple(_matrix_equation("J", claim) for _ in rows),
        derived=tuple(rows),
        where=_definitions("C", _entries("N2", d) * (eye(d) + _entries("D", d)) * _entries("N1", d)) + where,
        notes=f"{NOTES}; N1, N2 are those of the normalisations",
        modulus=(Z**n - 1,),
    )


def layer_norm_derivative(d: int = 3) -> Derivation:
    """DLN = σ⁻¹ diag(γ)[I − 11ᵀ/d − ẑẑᵀ/d] (Eq. 69).

    Parameters
    ----------
    d : int
        Number of features.

    Returns
    -------
    Derivation
        Its `result` is the (d, d) matrix N = DLN.
    """
    x, gain, epsilon = _column("x", d), _column("gamma", d), Symbol("epsilon")
    made = layer_norm(x, gain, _column("beta", d), epsilon)
    deviation = x - ones(d, 1) * sum(x) / d
    return _norm_derivative("layernorm", "The derivative of LayerNorm", x, gain, made, deviation, ones(d, d))


def rms_norm_derivative(d: int = 3) -> Derivation:
    """DRMS = σ⁻¹ diag(γ)[I − ẑẑᵀ/d], ẑ = x/σ.

    Parameters
    ----------
    d : int
        Number of features.

    Returns
    -------
    Derivation
        Its `result` is the (d, d) matrix N = DRMS.
    """
    x, gain = _column("x", d), _column("gamma", d)
    made = rms_norm(x, gain, Symbol("epsilon"))
    return _norm_derivative("rmsnorm", "The derivative of RMSNorm", x, gain, made, x, sympy.zeros(d))


def _norm_derivative(
    name: str, title: str, x: Matrix, gain: Matrix, made: Matrix, deviation: Matrix, mean: Matrix
) -> Derivation:
    """`made` = γ∘deviation/σ + …, σ² = mean of deviation² + ε; `mean` is what D(deviation) takes from the identity."""
    d, sigma = len(x), Symbol("sigma", positive=True)
    square = sum(entry**2 for entry in deviation) / d
    unit = _column("zhat", d)
    claim = diag(*gain) * (eye(d) - mean / d - unit * unit.T / d) / sigma
    return Derivation(
        name=name,
        title=title,
        steps=(("The definition, first feature", equation(Symbol("y_1"), made[0])),),
        result=(_matrix_equation("N", claim),),
        # ε is eliminated in favour of σ, which makes everything rational.
        derived=(made.jacobian(x).subs(Symbol("epsilon"), sigma**2 - square),),
        where=tuple(equation(unit[c], deviation[c] / sigma) for c in range(d)),
    )


class _Smooth:
    """An undefined smooth function of d features, whose partial derivatives are undefined functions."""

    def __init__(self, name: str, d: int) -> None:
        self.partials = [[Function(f"{name}_{c + 1}{e + 1}") for e in range(d)] for c in range(d)]
        self.functions = [_component(f"{name}_{c + 1}", self.partials[c]) for c in range(d)]

    def __call__(self, x: Matrix) -> Matrix:
        return Matrix([function(*x) for function in self.functions])

    def named(self, matrix: Matrix, at: Matrix, derivative: str) -> Matrix:
        """`matrix` with the partial derivatives at `at` as the symbols D_ce, D = `derivative`; elsewhere an error."""

        def naming(symbol: Expr) -> Callable[..., Expr]:
            def named(*arguments: Expr) -> Expr:
                if not all(vanishes(argument - entry) for argument, entry in zip(arguments, at, strict=True)):
                    raise ArithmeticError(f"{symbol} is needed at {arguments}")
                return symbol

            return named

        for function, symbol in zip(chain(*self.partials), _entries(derivative, len(at)), strict=True):
            matrix = matrix.replace(function, naming(symbol))
        return matrix


def _component(name: str, partials: Sequence[Any]) -> Any:
    def fdiff(self: Any, argindex: int = 1) -> Expr:
        return partials[argindex - 1](*self.args)

    return type(name, (Function,), {"fdiff": fdiff, "nargs": len(partials)})


def _heads(n: int, d: int, heads: int, positions: bool = True) -> tuple[tuple[SymbolicHead, ...], tuple[Eq, ...]]:
    """Heads with symbols, and the definitions λ_h = Σ_r A_r z^{−r}, A_r = w_r/Σw, w_r = e^{b_r}."""
    made, where = [], []
    for h in range(1, heads + 1):
        w = [Symbol(f"w_{h}{r}") if positions else sympy.S.One for r in range(n)]
        table = Matrix(n, n, [w[(i - j) % n] for i in range(n) for j in range(n)])
        made.append(SymbolicHead(table, _entries(f"M{h}", d), partial(_constant, _entries(f"W{h}", d))))
        where.append(equation(Symbol(f"lambda_{h}"), sum(w[r] * Z**-r for r in range(n)) / sum(w)))
    return tuple(made), tuple(where)


def _constant(content: Matrix, *_: int) -> Matrix:
    return content


def _rows(block: SymbolicBlock, a: Matrix, n: int) -> list[Matrix]:
    return block.along(a, [Z**j for j in range(n)], rational, ("seen", "average"))


def _opening(heads: Sequence[SymbolicHead], a: Matrix, n: int) -> tuple[tuple[str, Any], ...]:
    """The block and its first head, for printing."""
    w, s = sympy.IndexedBase("w"), sympy.IndexedBase("s")
    i, j, m = symbols("i j m", integer=True)
    share = w[i - j] * exp(s[i, j]) / sympy.Sum(w[i - m] * exp(s[i, m]), (m, 0, n - 1))
    x, W = Matrix(symbols(f"x_i1:{len(a) + 1}")), heads[0].content(0, 0)
    logit = (x.T * W * Matrix(symbols(f"x_j1:{len(a) + 1}")))[0]
    step, first = Symbol("epsilon"), eye(len(a))[:, 0]
    average = heads[0].average([a + step * Z**token * first for token in range(n)], 0, lambda _, x: x)
    answer = average.diff(step).subs(step, 0).applyfunc(rational)
    return (
        (
            "Attention weights, a softmax of content and positional logits",
            equation(sympy.IndexedBase("A")[i, j], share),
        ),
        ("The content logit, first head", equation(s[i, j], logit)),
        ("A plane wave in the first feature, averaged: the derivative of the weights has dropped out", answer),
    )


def _entries(name: str, d: int) -> Matrix:
    return Matrix(d, d, [Symbol(f"{name}_{c + 1}{e + 1}") for c in range(d) for e in range(d)])


def _column(name: str, d: int) -> Matrix:
    return Matrix([Symbol(f"{name}_{c + 1}") for c in range(d)])


def _sum(matrices: Any) -> Matrix:
    first, *others = matrices
    return sum(others, start=first)


def _mixed(heads: Sequence[SymbolicHead]) -> Matrix:
    """Σ_h λ_h M_h."""
    return _sum(Symbol(f"lambda_{h}") * head.value for h, head in enumerate(heads, start=1))


def _matrix_equation(name: str, matrix: Matrix) -> Eq:
    return equation(sympy.MatrixSymbol(name, *matrix.shape), matrix)


def _definitions(name: str, matrix: Matrix) -> tuple[Eq, ...]:
    return tuple(equation(*pair) for pair in zip(_entries(name, matrix.shape[0]), matrix, strict=True))


DERIVATIONS: dict[str, Callable[[], Derivation]] = {
    "jacobian": jacobian,
    "jacobian-no-pe": jacobian_no_positions,
    "jacobian-layernorm": jacobian_layer_norm,
    "jacobian-post-layernorm": jacobian_post_layer_norm,
    "layernorm": layer_norm_derivative,
    "rmsnorm": rms_norm_derivative,
    **KERNELS,
    **MASKS,
}
"""Every derivation of linear theory, by name."""
