"""Derivations of weakly nonlinear theory, and their numbers against the closed forms."""

import numpy as np
import pytest
import sympy
from test_symbolic import check_printing

from amplitude.closed_forms.scalar_forms import ScalarForms
from amplitude.symbolic import DERIVATIONS, equations
from amplitude.symbolic.expansion import Expansion, Symbols
from dispersion import Activation, Kernel

SEVERAL_HEADS = [
    "base_state",
    "clusters",
    "competition",
    "homogeneous",
    "period_four",
    "period_three",
    "period_two",
    "standing",
    "travelling",
]

IDENTITY = np.array([1.0, 0.0, 0.0])


@pytest.mark.parametrize("name", DERIVATIONS)
def test_every_derivation_is_proved_and_prints(name):
    made = DERIVATIONS[name]()
    assert made.proved
    check_printing(made, name)


@pytest.mark.parametrize("name", SEVERAL_HEADS)
def test_several_heads(name):
    made = getattr(equations, name)(2)
    assert made.proved
    symbols = set().union(*(made.resolved(value).free_symbols for value in made.derived))
    assert name == "homogeneous" or sympy.Symbol("chi_2") in symbols


@pytest.mark.parametrize("name", DERIVATIONS)
def test_wrong_signs_and_factors_are_not_proved(name):
    made = DERIVATIONS[name]()
    for claim in dict.fromkeys(made.result):
        assert not made.against({str(claim.lhs): -claim.rhs}).proved
        for symbol in claim.rhs.free_symbols:
            assert not made.against({str(claim.lhs): claim.rhs.subs(symbol, 2 * symbol)}).proved


def test_the_printed_sign_of_the_travelling_coefficient_is_wrong():
    made = equations.travelling()
    printed = made.against({"beta_tr": -next(c.rhs for c in made.result if str(c.lhs) == "beta_tr")})
    assert made.proved
    assert not printed.proved
    beta, betabar = sympy.symbols("beta betabar")
    assert not made.against({"g": (beta + betabar) / 2}).proved


def random_forms(seed, n, symmetric, state=0.0):
    """Two heads, arbitrary α, η, χ: no fixed point is needed, since only the algebra is compared."""
    rng = np.random.default_rng(seed)
    kernels = []
    for _ in range(2):
        logits = rng.normal(size=n)
        kernels.append(Kernel.table(logits + np.roll(logits[::-1], 1) if symmetric else logits))
    alpha = tuple(float(value) for value in rng.normal(size=3))
    symbols = np.array([kernel.symbol for kernel in kernels])
    return ScalarForms(n, alpha, rng.normal(size=2), rng.normal(size=2), symbols, state)


def numbers(forms, subscripts):
    values = {f"alpha_{i + 1}": value for i, value in enumerate(forms.alpha)}
    for h in range(2):
        values |= {
            f"eta_{h + 1}": forms.eta[h],
            f"chi_{h + 1}": forms.chi[h],
            f"xi_{h + 1}": forms.state * forms.chi[h],
        }
        for name, k in subscripts.items():
            values[f"lambda_{name}^{h + 1}"] = forms.symbol(k)[h]
            values[f"lambdabar_{name}^{h + 1}"] = forms.symbol(-k)[h]
    return values


def cubic(forms, k):
    """c of a single wave from the multilinear forms, at the actual gain."""
    B, C, J = forms.B, forms.C, forms.J
    mean, harmonic = 2 * B(k, -k) / (abs(J(k)) ** 2 - J(0)), B(k, k) / (J(k) ** 2 - J(2 * k))
    return 3 * C(k, k, -k) + 2 * B(k, 0) * mean + 2 * B(-k, 2 * k) * harmonic


def agree(found, expected):
    return abs(found - expected) < 1e-12 * max(1.0, abs(expected))


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_waves(seed):
    forms = random_forms(seed, 16, symmetric=True)
    found = equations.standing(2).evaluate(numbers(forms, {"c": 3, "2": 6}))
    assert agree(found["beta_st"], -cubic(forms, 3))
    assert agree(found["D_0"], abs(forms.J(3)) ** 2 - forms.J(0))

    forms = random_forms(seed, 16, symmetric=False)
    turn = abs(forms.J(3)) / forms.J(3)
    found = equations.travelling(2).evaluate(numbers(forms, {"c": 3, "2": 6}) | {"zeta": turn})
    assert agree(found["beta_tr"], -turn * cubic(forms, 3))
    assert "g" not in found

    forms = random_forms(seed, 16, symmetric=False, state=0.7)
    assert agree(equations.base_state(2).evaluate(numbers(forms, {"c": 3, "2": 6}))["c"], cubic(forms, 3))


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_two_waves(seed):
    forms = random_forms(seed, 17, symmetric=False)
    B, C, J, (i, j) = forms.B, forms.C, forms.J, (3, 5)
    mean = 2 * B(j, -j) / (abs(J(j)) ** 2 - J(0))
    total = 2 * B(i, j) / (J(i) * J(j) - J(i + j))
    difference = 2 * B(i, -j) / (J(i) * J(-j) - J(i - j))
    expected = 6 * C(i, j, -j) + 2 * B(i, 0) * mean + 2 * B(-j, i + j) * total + 2 * B(j, i - j) * difference
    found = equations.competition(2).evaluate(numbers(forms, {"i": i, "j": j, "i+j": i + j, "i-j": i - j}))
    assert agree(found["beta_ij"], expected)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_special_sectors(seed):
    forms = random_forms(seed, 12, symmetric=True)
    B, C, J = forms.B, forms.C, forms.J

    found = equations.period_two(2).evaluate(numbers(forms, {"pi": 6}))
    assert agree(found["gamma"], C(6, 6, 6) + 2 * B(6, 0) * B(6, 6) / (J(6) ** 2 - J(0)))

    found = equations.period_three(2).evaluate(numbers(forms, {"c": 4}))
    assert agree(found["a_2"], B(-4, -4))
    assert agree(found["c_1"], 3 * C(4, 4, -4) + 4 * B(4, 0) * B(4, -4) / (J(4) ** 2 - J(0)))

    found = equations.period_four(2).evaluate(numbers(forms, {"c": 3, "pi": 6}))
    harmonic = B(3, 3) / (J(3) ** 2 - J(6))
    assert agree(found["c_1"], cubic(forms, 3))
    assert agree(found["c_3"], C(-3, -3, -3) + 2 * B(-3, 6) * harmonic)

    found = equations.homogeneous(2).evaluate(numbers(forms, {}))
    assert agree(found["b_2"], B(0, 0))
    assert agree(found["b_3"], C(0, 0, 0))


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_clusters(seed):
    # Without positions λ = δ_{q0}, and two balanced clusters are any mode that is its own conjugate.
    forms = random_forms(seed, 8, symmetric=True)
    forms = ScalarForms(8, forms.alpha, forms.eta, forms.chi, np.array([Kernel.uniform(8).symbol] * 2))
    found = equations.clusters(2).evaluate(numbers(forms, {}))
    B, C, J = forms.B, forms.C, forms.J
    assert agree(found["beta_cl"], -(C(4, 4, 4) + 2 * B(4, 0) * B(4, 4) / (J(4) ** 2 - J(0))))


@pytest.mark.parametrize("activation", [Activation.tanh(), Activation.gelu(), Activation.sine()])
def test_numbers_of_taylor_coefficients(activation):
    y, r = 0.3, -0.1
    made = equations.alphas()
    if activation.name == "tanh":
        found = made.evaluate({"r": r, "t": np.tanh(y)})
        expected = r * activation.taylor(y, 3)
        values = [found[f"A_{k}"] for k in (1, 2, 3)]
        np.testing.assert_allclose(values, expected[1:] + IDENTITY, rtol=1e-14)
        zero = made.evaluate({"r": r, "t": 0.0})
        np.testing.assert_allclose([zero[f"A_{k}"] for k in (1, 2, 3)], [0.9, 0, 1 / 30], atol=1e-15)
        return
    point, phi = sympy.Symbol("y"), sympy.Function("phi")
    faces = {"gelu": point * (1 + sympy.erf(point / sympy.sqrt(2))) / 2, "sine": sympy.sin(point)}
    values = [value.subs(phi(point), faces[activation.name]).doit().subs(point, y) for value in made.derived[:3]]
    np.testing.assert_allclose(np.array(values, dtype=float), activation.taylor(y, 3)[1:] + IDENTITY, rtol=1e-13)


def test_a_needed_resolvent_cannot_be_forgotten():
    names = Symbols(1, {(1,): "c", (2,): "2"})
    expansion = Expansion({"z": (1,), "zbar": (-1,)}, names)
    with pytest.raises(ArithmeticError, match="needs resolvents"):
        equations._derivation("name", "Title", expansion, {}, {"c": ("z z zbar", sympy.S.One, sympy.S.Zero)})
