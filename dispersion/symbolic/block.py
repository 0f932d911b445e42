"""The block with sympy entries: the map F of Eqs. 1–2 written out token by token, and its derivative by sympy.

Each component has its symbolic face here: heads, activations, normalisations. A component without one is
refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import sympy
from numpy.typing import ArrayLike, NDArray
from sympy import Expr, Matrix, Symbol, exp, eye, sqrt
from sympy.polys.fields import sfield

from dispersion.block.activation import Activation
from dispersion.block.block import Block, require_periodic
from dispersion.block.factors import Rotary
from dispersion.block.feedforward import FeedForward
from dispersion.block.head import Head
from dispersion.block.normalisation import DyT, LayerNorm, Normalisation, RMSNorm
from dispersion.errors import ArgumentError, ExclusionError, instance
from dispersion.grid import Wavenumber, grid_index, positions
from dispersion.noun import Noun

Pointwise = Callable[[Matrix], Matrix]
"""A map of one token's features, (d, 1) → (d, 1)."""

Stage = Callable[[str, Matrix], Matrix]
"""What is done to each intermediate result of F, given the name of the stage."""


@dataclass(frozen=True, eq=False)
class SymbolicHead(Noun):
    """One head with sympy entries.

    Parameters
    ----------
    positional : (N, N) Matrix
        e^{b_ij}, query first.
    value : (d, d) Matrix
        M.
    content : callable
        i, j → (d, d) W, which depends on the pair of tokens for a rotary encoding alone.
    gate : Expr, optional
        g of gated positional attention, or None.
    """

    positional: Matrix
    value: Matrix
    content: Callable[[int, int], Matrix]
    gate: Expr | None = None

    def row(self, X: Sequence[Matrix], i: int, stage: Stage) -> list[Expr]:
        """A_ij(X) for all j: softmax_j of x_iᵀ W x_j + b_ij.

        Parameters
        ----------
        X : sequence of (d, 1) Matrix
            The tokens as columns.
        i : int
            The query, counted from zero.
        stage : callable
            Applied to the exponentials of the logits.

        Returns
        -------
        list of Expr
            N weights.
        """
        content = [(X[i].T * self.content(i, j) * x).applyfunc(exp) for j, x in enumerate(X)]
        content = [stage("exponential", entry)[0] for entry in content]
        positional = list(self.positional[i, :])
        if self.gate is None:
            return _shares([b * s for b, s in zip(positional, content, strict=True)])
        gated = zip(_shares(content), _shares(positional), strict=True)
        return [(1 - self.gate) * s + self.gate * b for s, b in gated]

    def average(self, X: Sequence[Matrix], i: int, stage: Stage) -> Matrix:
        """(d, 1) Σ_j A_ij(X) x_j.

        Parameters
        ----------
        X : sequence of (d, 1) Matrix
            The tokens as columns.
        i : int
            The query, counted from zero.
        stage : callable
            As in `row`.
        """
        weighted = (weight * x for weight, x in zip(self.row(X, i, stage), X, strict=True))
        return stage("average", sum(weighted, start=X[i] * 0))

    @classmethod
    def of(cls, head: Head) -> SymbolicHead:
        """The `head` with its numbers.

        Parameters
        ----------
        head : Head
            Numerical; it becomes a SymbolicHead.
        """
        if head.key_bias is not None:
            raise ExclusionError("key_bias", head.key_bias, "None: it has no symbolic form here")
        logits, content = head.positional(), _matrix(head.content)
        positional = _matrix(np.exp(logits - logits.max(axis=1, keepdims=True)))
        of_pair = (lambda i, j: content) if head.rotary is None else _rotary(head.rotary, head.kernel.shape)
        return cls(positional, _matrix(head.value), of_pair, None if head.gate is None else sympy.Float(head.gate, 17))


@dataclass(frozen=True, eq=False)
class SymbolicBlock(Noun):
    """The map F with sympy entries.

    Parameters
    ----------
    heads : tuple of SymbolicHead
        At least one.
    pointwise : callable
        φ, (d, 1) → (d, 1).
    scale : Expr
        ε_a, 1 by default.
    norms : pair of callable, optional
        (n_1, n_2), normalisations of single tokens, or None.
    post : bool
        False: y_i = x_i + attention of n_1(x) and F = y + φ(n_2(y)). True: h = n_1(y) and F = n_2(h + φ(h)).
    """

    heads: tuple[SymbolicHead, ...]
    pointwise: Pointwise
    scale: Expr = sympy.S.One
    norms: tuple[Pointwise, Pointwise] | None = None
    post: bool = False

    def forward(self, X: Sequence[Matrix], stage: Stage = lambda _, x: x) -> list[Matrix]:
        """F(X), token by token.

        Parameters
        ----------
        X : sequence of (d, 1) Matrix
            The tokens as columns.
        stage : callable
            Applied to each intermediate result; by default it leaves them as they are.

        Returns
        -------
        list of (d, 1) Matrix
            The tokens one layer on.
        """
        first, second = self.norms or (_same, _same)
        seen = X if self.post else [stage("seen", first(x)) for x in X]
        y = []
        for i, x in enumerate(X):
            attended = sum((head.value * head.average(seen, i, stage) for head in self.heads), start=x * 0)
            y.append(stage("token", x + self.scale * attended))
        if not self.post:
            return [row + self.pointwise(stage("normalised", second(row))) for row in y]
        hidden = [stage("normalised", first(row)) for row in y]
        return [second(stage("hidden", row + self.pointwise(row))) for row in hidden]

    def along(
        self, a: Matrix, wave: Sequence[Expr], simple: Callable[[Expr], Expr], where: Sequence[str] = ()
    ) -> list[Matrix]:
        """DF(1⊗a) applied to e_q ⊗ I, token by token, each divided by that token's entry of e_q.

        Each intermediate result is expanded to first order around a, which is all that its derivative needs.

        Parameters
        ----------
        a : (d, 1) Matrix
            The state.
        wave : sequence of Expr
            The N entries of e_q.
        simple : callable
            What the coefficients of an intermediate result are simplified by.
        where : sequence of str
            At which stages they are, at all of them by default.

        Returns
        -------
        list of (d, d) Matrix
            N results, all equal to J(q) if e_q ⊗ v keeps its form.
        """
        step, columns = Symbol("epsilon"), []

        def first_order(name: str, x: Matrix) -> Matrix:
            parts = [x.subs(step, 0), x.diff(step).subs(step, 0)]
            if not where or name in where:
                parts = [part.applyfunc(simple) for part in parts]
            return parts[0] + step * parts[1]

        for c in range(len(a)):
            X = [a + step * entry * eye(len(a))[:, c] for entry in wave]
            columns.append([row.diff(step).subs(step, 0) for row in self.forward(X, first_order)])
        return [Matrix.hstack(*(column[i] for column in columns)) / entry for i, entry in enumerate(wave)]

    @classmethod
    def of(cls, block: Block) -> SymbolicBlock:
        """The `block` with its numbers.

        Parameters
        ----------
        block : Block
            Numerical; it becomes a SymbolicBlock.

        Raises
        ------
        ExclusionError
            Names a component without a symbolic form.
        """
        _refuse_unknown(
            block, "heads", "feedforward", "attention_scale", "attention_norm", "feedforward_norm", "placement"
        )
        return cls(
            tuple(SymbolicHead.of(head) for head in block.heads),
            _feedforward(block.feedforward),
            sympy.Float(block.attention_scale, 17),
            (_norm(block.attention_norm), _norm(block.feedforward_norm)),
            block.placement == "post",
        )


def symbolic_jacobian(block: Block, k: Wavenumber, state: ArrayLike | None = None) -> NDArray[np.complex128]:
    """J(q) of a block by symbolic differentiation of its F, for small N and d.

    The numbers of the block are inserted into F and sympy differentiates along e_q ⊗ v.

    Parameters
    ----------
    block : Block
        On a ring or torus.
    k : int or tuple of int
        Wavenumber on the grid.
    state : (d,) array_like, optional
        a, or a number for d = 1; zero by default.

    Returns
    -------
    (d, d) complex ndarray
        J(q).

    Raises
    ------
    ArgumentError
        If differentiation along e_q ⊗ v does not give e_q again.
    ExclusionError
        Names what has no symbolic derivative (ReLU).
    """
    instance("block", block, Block)
    require_periodic(block)
    index = np.unravel_index(grid_index("k", k, block.shape), block.shape)
    wave = np.exp(2j * np.pi * (positions(block.shape) * np.array(index) / np.array(block.shape)).sum(axis=-1))
    column = _matrix(block.homogeneous_state(state)[:, None])
    rows = SymbolicBlock.of(block).along(column, [_number(entry) for entry in wave], sympy.N)
    tokens = np.array([np.array(row.evalf(), dtype=np.complex128) for row in rows])
    spread = np.abs(tokens - tokens[0]).max()
    if spread > 1e-9 * max(1.0, np.abs(tokens).max()):
        raise ArgumentError(
            "block", f"a plane wave that tokens answer differently, by {spread:.3g}", "attention by lag"
        )
    return tokens.mean(axis=0)


def layer_norm(x: Matrix, gain: Matrix, bias: Matrix, epsilon: Expr) -> Matrix:
    """LN(x) = γ∘(x − mean)/√(var + ε) + β of one token `x`, (d, 1), `gain` γ, `bias` β, `epsilon` ε."""
    mean = sum(x) / len(x)
    scale = sqrt(sum((entry - mean) ** 2 for entry in x) / len(x) + epsilon)
    return Matrix([g * (entry - mean) / scale + b for entry, g, b in zip(x, gain, bias, strict=True)])


def rms_norm(x: Matrix, gain: Matrix, epsilon: Expr) -> Matrix:
    """RMS(x) = γ∘x/√(mean x² + ε) of one token `x`, (d, 1), `gain` γ, `epsilon` ε."""
    scale = sqrt(sum(entry**2 for entry in x) / len(x) + epsilon)
    return Matrix([g * entry / scale for entry, g in zip(x, gain, strict=True)])


def _norm(norm: Normalisation | None) -> Pointwise:
    """The symbolic face of a normalisation."""
    if norm is None:
        return _same
    gain, bias = _matrix(norm.gain[:, None]), _matrix(norm.bias[:, None])
    if isinstance(norm, LayerNorm):
        return lambda x: layer_norm(x, gain, bias, sympy.Float(norm.eps, 17))
    if isinstance(norm, RMSNorm):
        return lambda x: rms_norm(x, gain, sympy.Float(norm.eps, 17)) + bias
    if isinstance(norm, DyT):
        alpha = sympy.Float(norm.alpha, 17)
        return lambda x: Matrix([g * sympy.tanh(alpha * entry) for g, entry in zip(gain, x, strict=True)]) + bias
    raise ExclusionError("norm", type(norm).__name__, "LayerNorm, RMSNorm or DyT")


def _rotary(rotary: Rotary, shape: tuple[int, ...]) -> Callable[[int, int], Matrix]:
    """i, j → (R(θ·i)Q)ᵀ R(θ·j)K/√d_h."""
    _refuse_unknown(rotary, "query", "key", "frequencies", "pairing")
    angle = positions(shape) @ rotary.frequencies.T

    def rotation(i: int) -> NDArray[np.float64]:
        c, s = np.diag(np.cos(angle[i])), np.diag(np.sin(angle[i]))
        if rotary.pairing == "half":
            return np.block([[c, -s], [s, c]])
        blocks = [[np.cos(t), -np.sin(t), np.sin(t), np.cos(t)] for t in angle[i]]
        turned = np.zeros((2 * len(blocks), 2 * len(blocks)))
        for m, block in enumerate(blocks):
            turned[2 * m : 2 * m + 2, 2 * m : 2 * m + 2] = np.reshape(block, (2, 2))
        return turned

    def content(i: int, j: int) -> Matrix:
        pair = (rotation(i) @ rotary.query).T @ rotation(j) @ rotary.key
        return _matrix(pair / np.sqrt(len(rotary.query)))

    return content


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "tanh": sympy.tanh,
    "gelu": lambda y: y * (1 + sympy.erf(y / sqrt(2))) / 2,
    "gelu_tanh": lambda y: y * (1 + sympy.tanh(sqrt(2 / sympy.pi) * (y + sympy.Rational("0.044715") * y**3))) / 2,
    "silu": lambda y: y / (1 + exp(-y)),
    "quick_gelu": lambda y: y / (1 + exp(-sympy.Rational("1.702") * y)),
    "erf": sympy.erf,
    "sine": sympy.sin,
}
"""The symbolic face of each activation but the polynomial."""


def activation_expression(activation: Activation, y: Expr) -> Expr:
    """The `activation` at the expression `y`; an ExclusionError if it has no symbolic form (ReLU and its square)."""
    if activation.name == "polynomial":
        return sum(sympy.Float(c, 17) * y**power for power, c in enumerate(activation.coefficients, start=1))
    if activation.name not in ACTIVATIONS:
        raise ExclusionError("activation", repr(activation.name), ", ".join([*ACTIVATIONS, "polynomial"]))
    return ACTIVATIONS[activation.name](y)


def _feedforward(feedforward: FeedForward | None) -> Pointwise:
    if feedforward is None:
        return lambda y: y * 0
    weights = "weight_in", "bias_in", "weight_out", "bias_out", "weight_gate", "bias_gate"
    _refuse_unknown(feedforward, "activation", *weights)
    inner, outer = _matrix(feedforward.weight_in), _matrix(feedforward.weight_out)
    bias_in, bias_out = _matrix(feedforward.bias_in[:, None]), _matrix(feedforward.bias_out[:, None])
    act = partial(activation_expression, feedforward.activation)
    if feedforward.weight_gate is None or feedforward.bias_gate is None:
        return lambda y: outer * (inner * y + bias_in).applyfunc(act) + bias_out
    gate, bias_gate = _matrix(feedforward.weight_gate), _matrix(feedforward.bias_gate[:, None])

    def gated(y: Matrix) -> Matrix:
        hidden = (gate * y + bias_gate).applyfunc(act).multiply_elementwise(inner * y + bias_in)
        return outer * hidden + bias_out

    return gated


def _refuse_unknown(component: Any, *known: str) -> None:
    """Refuse a component with a setting that this module would ignore."""
    for field in fields(component):
        if field.name not in known and getattr(component, field.name) is not None:
            raise ExclusionError(field.name, getattr(component, field.name), "None: it has no symbolic form here")


def rational(expression: Expr) -> Expr:
    """`expression` as a reduced rational function of its symbols and exponentials."""
    names: dict[Expr, Expr] = {}

    def name(power: Expr) -> Expr:
        for known, symbol in names.items():
            ratio = sympy.cancel(power / known)
            if ratio.is_Integer:
                return symbol**ratio
        return names.setdefault(power, sympy.Dummy())

    named = expression.replace(exp, name)
    return sfield(named)[1].as_expr() if named.free_symbols else named


def _number(value: complex) -> Expr:
    return sympy.Float(value.real, 17) + sympy.I * sympy.Float(value.imag, 17)


def _matrix(array: NDArray[np.float64]) -> Matrix:
    return Matrix(*array.shape, [sympy.Float(value, 17) for value in array.ravel()])


def _shares(weights: Sequence[Expr]) -> list[Expr]:
    total = sum(weights)
    return [weight / total for weight in weights]


def _same(x: Matrix) -> Matrix:
    return x
