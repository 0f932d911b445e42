"""Derivations of linear theory, and the symbolic face of kernels and blocks against the others."""

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import sympy

from dispersion import (
    Activation,
    ArgumentError,
    Block,
    DyT,
    ExclusionError,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    RMSNorm,
    Rotary,
    dispersion_relation,
)
from dispersion.symbolic import DERIVATIONS, closed_form, symbolic_jacobian
from dispersion.symbolic.block import _refuse_unknown
from dispersion.symbolic.derivation import Derivation, equation, vanishes

derivation = cache(lambda name: DERIVATIONS[name]())

SPECIAL_IN_TEXT = re.compile(r"[_^&%#$~{}\\]|[^\x00-\x7f]")


def check_printing(made, name):
    latex = made.to_latex()
    assert made.name == name
    assert latex.count("{") == latex.count("}") > 0
    assert latex.count(r"\left") == latex.count(r"\right")
    assert latex.count(r"\[") == latex.count(r"\]") >= len(set(made.result))
    outside = re.sub(r"\\\[.*?\\\]", "", latex, flags=re.DOTALL).replace(rf"\textbf{{{made.title}}}", made.title)
    assert not SPECIAL_IN_TEXT.search(outside)
    assert made._repr_latex_().count("$$") == 2 * latex.count(r"\[")
    text = str(made)
    assert made.title in text
    assert made.method in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", DERIVATIONS)
def test_every_derivation_is_proved_and_prints(name):
    made = derivation(name)
    assert made.proved
    check_printing(made, name)


@pytest.mark.parametrize("name", DERIVATIONS)
def test_a_wrong_claim_is_not_proved(name):
    made = derivation(name)
    for claim in dict.fromkeys(made.result):
        other = claim.rhs + sympy.ones(*claim.rhs.shape) if claim.rhs.is_Matrix else claim.rhs + sympy.Rational(1, 7)
        wrong = made.against({str(claim.lhs): other})
        assert not wrong.proved
        assert "Not proved" in str(wrong)
        assert made.proved


def test_a_conjugated_symbol_is_not_proved():
    made, z = derivation("jacobian-layernorm"), sympy.Symbol("z")
    assert not replace(made, where=tuple(equation(item.lhs, item.rhs.subs(z, 1 / z)) for item in made.where)).proved


def test_heads_with_each_others_values_are_not_proved():
    made = derivation("jacobian")
    first, second = sympy.symbols("lambda_1 lambda_2")
    swapped = made.result[0].rhs.subs({first: second, second: first}, simultaneous=True)
    assert not made.against({"J": swapped}).proved


def test_alibi_needs_the_sign_of_half_a_turn():
    made, sigma = derivation("symbol-alibi"), sympy.Symbol("sigma")
    assert not made.against({"lambda": made.result[0].rhs.subs(sigma, 1)}).proved


@pytest.mark.parametrize("name", ["symbol-von-mises", "symbol-gaussian"])
def test_conjugates_fail_numerical_proofs(name):
    made = derivation(name)
    assert "30 digits" in made.method
    assert not made.against({"lambda": made.result[0].rhs.subs(sympy.I, -sympy.I)}).proved


def test_the_jacobian_evaluates_to_numbers():
    made = derivation("jacobian")
    rng = np.random.default_rng(0)
    kernels = [Kernel.table(rng.normal(size=3)) for _ in range(2)]
    values, W = rng.normal(size=(2, 2, 2)), rng.normal(size=(2, 2))
    block = Block(
        [Head(kernel, value) for kernel, value in zip(kernels, values, strict=True)],
        FeedForward(np.eye(2), W, Activation.polynomial([1.0])),
        attention_scale=0.7,
    )
    numbers = {"epsilon_a": 0.7, "z": np.exp(2j * np.pi / 3)}
    for c, e in np.ndindex(2, 2):
        numbers[f"D_{c + 1}{e + 1}"] = W[c, e]
        numbers |= {f"M{h + 1}_{c + 1}{e + 1}": values[h, c, e] for h in range(2)}
    numbers |= {f"w_{h + 1}{r}": np.exp(kernels[h].logits[r]) for h, r in np.ndindex(2, 3)}
    assert abs(made.evaluate(numbers)["J"] - dispersion_relation(block).matrices[1]).max() < 1e-14


def test_vanishing():
    x, y, z = sympy.symbols("x y z")
    assert vanishes((x + y) ** 2 / x - x - 2 * y - y**2 / x)
    assert not vanishes(x / y - y / x)
    assert vanishes(z**4 - z, [z**3 - 1])
    assert not vanishes(z**4 - 1, [z**3 - 1])
    assert vanishes(sympy.S.Zero)
    assert not vanishes(sympy.S.One)


def test_a_derivation_compares_what_was_derived_with_the_claim():
    x, y = sympy.symbols("x y")
    made = Derivation("name", "A title", (), (equation(x, y + 1),), (y + 2,))
    assert not made.proved
    assert made.against({"x": y + 2}).proved
    assert made.evaluate({"y": 1.0}) == {"x": 3.0}
    assert made.evaluate({}) == {}


def off_centre(n, locality, offset):
    return Kernel.table(-locality * (-Kernel.uniform(n).lags - offset) ** 2)


KERNELS = [
    ("uniform", Kernel.uniform(7), {}),
    ("alibi", Kernel.alibi(32, 0.3), {"slope": 0.3}),
    ("alibi", Kernel.alibi(6, 1.1), {"slope": 1.1}),
    ("alibi-causal", Kernel.alibi(31, 0.2, causal=True), {"slope": 0.2}),
    ("von-mises", Kernel.von_mises(32, 4, 1.7, 0.3), {"wavenumber": 4, "strength": 1.7, "phase": 0.3}),
    ("von-mises", Kernel.von_mises(12, 9, -2.5, 2.0), {"wavenumber": 9, "strength": -2.5, "phase": 2.0}),
    ("von-mises", Kernel.von_mises(7, 5, 3.0), {"wavenumber": 5, "strength": 3.0}),
    ("von-mises", Kernel.von_mises(8, 0, 0.4, 1.0), {"wavenumber": 0, "strength": 0.4, "phase": 1.0}),
    ("von-mises", Kernel.von_mises(6, 3, 1.0, 1.0), {"wavenumber": 3, "strength": 1.0, "phase": 1.0}),
    ("gaussian", off_centre(32, 0.4, 1.5), {"locality": 0.4, "offset": 1.5}),
    ("gaussian", off_centre(41, 1.3, -2.0), {"locality": 1.3, "offset": -2.0}),
]


@pytest.mark.parametrize(("name", "kernel", "parameters"), KERNELS, ids=lambda value: str(value)[:20])
def test_closed_forms_are_the_symbols_of_kernels(name, kernel, parameters):
    n, form = kernel.n, closed_form(name)
    assert abs(form(np.arange(n), n, **parameters) - kernel.symbol).max() < 1e-13
    one = form(-1, n, **parameters)
    assert one.shape == ()
    assert abs(one - kernel.symbol[-1]) < 1e-13


def test_closed_forms_refuse():
    with pytest.raises(ArgumentError, match="name: got 'lobes'; accepted: uniform"):
        closed_form("lobes")
    with pytest.raises(ArgumentError, match="n: got 7"):
        closed_form("alibi")(0, 7, slope=1.0)
    with pytest.raises(ArgumentError, match="slope"):
        closed_form("alibi")(0, 8, slope=-1.0)
    with pytest.raises(ArgumentError, match="k: got 0.5"):
        closed_form("uniform")(0.5, 8)


def complex_step(block, k, a):
    """J(q) from derivatives of the forward pass along cos and sin of each feature, projected on e_q."""
    angle = 2 * np.pi * k * np.arange(block.n) / block.n
    J = np.empty((block.d, block.d), dtype=complex)
    for c in range(block.d):
        along = [wave[:, None] * np.eye(block.d)[c] for wave in (np.cos(angle), np.sin(angle))]
        real, imaginary = (block.forward(a + 1e-30j * u).imag / 1e-30 for u in along)
        J[:, c] = np.exp(-1j * angle) @ (real + 1j * imaginary) / block.n
    return J


def network(rng, d, activation):
    hidden = d + 1
    shapes = ((hidden, d), (d, hidden), (hidden,), (d,))
    weights = [rng.normal(size=shape) for shape in shapes]
    return FeedForward(weights[0], weights[1], activation, *weights[2:])


def random_head(rng, n, d, **extra):
    content = None if "rotary" in extra else rng.normal(size=(d, d))
    return Head(Kernel.table(rng.normal(size=n)), rng.normal(size=(d, d)), content, **extra)


def rotary(rng, n, d, pairing):
    return Rotary(rng.normal(size=(4, d)), rng.normal(size=(4, d)), 2 * np.pi * np.array([1, 2]) / n, pairing)


def blocks():
    rng = np.random.default_rng(5)
    gain = rng.uniform(0.5, 1.5, 2)
    polynomial = Activation.polynomial([0.1, 0.2, -0.3])
    plain = [random_head(rng, 3, 2), random_head(rng, 3, 2)]
    bias = 0.3 * np.cos(2 * np.pi * (np.arange(3)[:, None] - np.arange(3) - 0.5) / 3)
    yield "plain, d = 1", Block([random_head(rng, 4, 1) for _ in range(2)], network(rng, 1, "gelu"), 0.6)
    removed = Head(Kernel.table([0.2, -np.inf, 0.1]), 0.8, 0.5)
    yield "polynomial, a lag removed", Block([removed], network(rng, 1, polynomial))
    yield "two heads", Block(plain, network(rng, 2, "tanh"), 0.6)
    yield "no feed-forward", Block([random_head(rng, 4, 2)])
    yield "gate", Block([random_head(rng, 3, 2, gate=0.3)], network(rng, 2, "silu"))
    yield "bias", Block([random_head(rng, 3, 2, bias=bias)], network(rng, 2, "erf"))
    yield "rotary", Block([random_head(rng, 3, 2, rotary=rotary(rng, 3, 2, "half"))], network(rng, 2, "sine"))
    yield "rotary, interleaved", Block([random_head(rng, 4, 1, rotary=rotary(rng, 4, 1, "interleaved"))])
    yield (
        "pre-LN",
        Block(
            [random_head(rng, 3, 2)],
            network(rng, 2, "gelu"),
            1.0,
            LayerNorm(gain, eps=0.5),
            DyT(gain, gain, alpha=0.8),
        ),
    )
    yield (
        "post-LN",
        Block(
            [random_head(rng, 3, 2)],
            network(rng, 2, "tanh"),
            1.0,
            RMSNorm(gain, gain),
            LayerNorm(gain, eps=1.0),
            "post",
        ),
    )


BLOCKS = dict(blocks())


@pytest.mark.parametrize("name", BLOCKS)
def test_symbolic_numeric_and_complex_step_agree(name):
    block = BLOCKS[name]
    a = np.array([0.4, -0.7])[: block.d]
    relation = dispersion_relation(block, a)
    made = symbolic_jacobian(block, 1, a)
    assert made.shape == (block.d, block.d)
    assert abs(made.imag).max() > 1e-5  # a conjugate would show
    assert abs(made - relation.matrices[1]).max() < 1e-10
    assert abs(made - complex_step(block, 1, a)).max() < 1e-10


def test_symbolic_jacobian_on_a_torus_and_at_zero():
    rng = np.random.default_rng(2)
    block = Block([Head(Kernel.table(rng.normal(size=(2, 3))), 0.7, 0.3)], FeedForward.scalar("tanh", 0.4))
    expected = dispersion_relation(block)((0.0, 2 * np.pi / 3))
    assert abs(symbolic_jacobian(block, (0, 1)) - expected).max() < 1e-12


def test_symbolic_jacobian_refuses():
    rng = np.random.default_rng(3)
    head = random_head(rng, 3, 1)
    for kinked in ("relu", "relu_squared"):
        with pytest.raises(ExclusionError, match=f"activation: got '{kinked}'"):
            symbolic_jacobian(Block([head], FeedForward.scalar(kinked)), 1, 0.3)
    with pytest.raises(ArgumentError, match="block: got int"):
        symbolic_jacobian(3, 1)
    with pytest.raises(ArgumentError, match="k: got 7"):
        symbolic_jacobian(Block([head]), 7)
    masked = Block([random_head(rng, 3, 1, bias=rng.normal(size=(3, 3)))])
    with pytest.raises(ArgumentError, match="attention by lag"):
        symbolic_jacobian(masked, 1, 0.3)


@dataclass(frozen=True)
class Component:
    size: float
    extra: float | None = None


def test_components_without_a_symbolic_face_are_refused():
    with pytest.raises(ExclusionError, match=r"extra: got 1\.0"):
        _refuse_unknown(Component(1.0, 1.0), "size")
    _refuse_unknown(Component(1.0), "size")


def test_importing_the_packages_leaves_sympy_alone():
    code = "import sys, dispersion, amplitude; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
