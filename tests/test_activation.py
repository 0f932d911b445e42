"""Activations: values and Taylor coefficients against multiprecision references."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispersion import Activation, ArgumentError

COEFFICIENTS = (0.4, -0.3, 0.2, 0.05)

REFERENCE = {
    "tanh": (Activation.tanh(), mpmath.tanh),
    "gelu": (Activation.gelu(), lambda y: y * (1 + mpmath.erf(y / mpmath.sqrt(2))) / 2),
    "gelu_tanh": (
        Activation.gelu_tanh(),
        lambda y: y * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (y + mpmath.mpf("0.044715") * y**3))) / 2,
    ),
    "silu": (Activation.silu(), lambda y: y / (1 + mpmath.exp(-y))),
    "quick_gelu": (Activation.quick_gelu(), lambda y: y / (1 + mpmath.exp(-mpmath.mpf("1.702") * y))),
    "erf": (Activation.erf(), mpmath.erf),
    "sine": (Activation.sine(), mpmath.sin),
    "polynomial": (
        Activation.polynomial(COEFFICIENTS),
        lambda y: sum(mpmath.mpf(c) * y ** (n + 1) for n, c in enumerate(COEFFICIENTS)),
    ),
}
smooth = pytest.mark.parametrize("name", REFERENCE)


@smooth
def test_taylor_coefficients(name):
    activation, reference = REFERENCE[name]
    points = np.append(np.random.default_rng(5).uniform(-3, 3, 6), 0.0)
    with mpmath.workdps(50):
        exact = np.array([[float(c) for c in mpmath.taylor(reference, mpmath.mpf(y), 10)] for y in points])
    computed = activation.taylor(points, 10)
    assert computed.shape == (7, 11)
    np.testing.assert_allclose(computed, exact, rtol=1e-12, atol=1e-13)


@smooth
def test_values_at_real_and_complex_points(name):
    activation, reference = REFERENCE[name]
    rng = np.random.default_rng(6)
    real = rng.uniform(-4, 4, 8)
    for points in (real, real + 1j * rng.uniform(-1, 1, 8)):
        exact = np.array([complex(reference(mpmath.mpmathify(y))) for y in points.tolist()])
        np.testing.assert_allclose(activation(points), exact, rtol=1e-13, atol=1e-14)


@smooth
def test_far_away(name):
    """No overflow and no NaN where the function is flat."""
    activation, _ = REFERENCE[name]
    points = np.array([-700.0, 700.0])
    assert np.isfinite(activation(points)).all()
    assert np.isfinite(activation.taylor(points, 6)).all()


@smooth
@given(y=st.floats(-3, 3), step=st.floats(-0.05, 0.05))
def test_series_sums_to_the_function(name, y, step):
    activation, _ = REFERENCE[name]
    series = activation.taylor(y, 12) @ step ** np.arange(13)
    assert abs(series - activation(y + step)) < 1e-14 * 4


def test_shapes():
    for activation, _ in REFERENCE.values():
        assert activation(np.zeros((2, 3))).shape == (2, 3)
        assert activation.taylor(np.zeros((2, 3)), 4).shape == (2, 3, 5)
        assert activation.taylor(1, 0).shape == (1,)


def test_integer_points_are_numbers():
    np.testing.assert_array_equal(Activation.tanh().taylor(1, 5), Activation.tanh().taylor(1.0, 5))


def test_relu():
    relu = Activation.relu()
    np.testing.assert_array_equal(relu([-1.5, 0.0, 2.0]), [0, 0, 2])
    np.testing.assert_array_equal(relu.taylor([-1.5, 2.0], 1), [[0, 0], [2, 1]])
    np.testing.assert_array_equal(relu.taylor(0.0, 0), [0])
    for y, order in ((2.0, 2), ([-1.0, 0.0], 1), (-1.0, 5)):
        with pytest.raises(ArgumentError, match=r"^activation: got 'relu'"):
            relu.taylor(y, order)


def test_relu_squared():
    square = Activation.relu_squared()
    np.testing.assert_array_equal(square([-1.5, 0.0, 2.0]), [0, 0, 4])
    np.testing.assert_array_equal(square([1 + 2j, -1 + 2j]), [(1 + 2j) ** 2, 0])
    np.testing.assert_array_equal(square.taylor([-1.5, 2.0], 4), [[0, 0, 0, 0, 0], [4, 4, 1, 0, 0]])
    np.testing.assert_array_equal(square.taylor([0.0, 3.0], 1), [[0, 0], [9, 6]])
    for order in (2, 5):
        with pytest.raises(ArgumentError, match=r"^activation: got 'relu_squared', which has no second derivative"):
            square.taylor([-1.0, 0.0], order)


@pytest.mark.parametrize("name", ["gelu_tanh", "silu", "quick_gelu"])
def test_series_at_complex_points(name):
    activation, reference = REFERENCE[name]
    points = np.array([-2.5 + 0.3j, -0.4 - 0.8j, 1.7 + 0.2j])
    exact = [[complex(c) for c in mpmath.taylor(reference, mpmath.mpmathify(y), 5)] for y in points.tolist()]
    np.testing.assert_allclose(activation.taylor(points, 5), exact, rtol=1e-11, atol=1e-12)
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(activation(np.array([-700.0 + 1j, 700.0 + 1j]))).all()


NAMES = ("tanh", "gelu", "gelu_tanh", "silu", "quick_gelu", "erf", "sine", "relu", "relu_squared", "polynomial")


def test_names():
    assert Activation.names() == NAMES
    assert {Activation.relu_squared().name, *(activation.name for activation, _ in REFERENCE.values())} < set(NAMES)
    assert Activation.of("gelu") == Activation.gelu()
    assert Activation.of(Activation.sine()) == Activation.sine()


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Activation("softplus"), "activation"),
        (lambda: Activation.of("TANH"), "activation"),
        (lambda: Activation("polynomial"), "coefficients"),
        (lambda: Activation.of("polynomial"), "coefficients"),
        (lambda: Activation("tanh", (1.0,)), "coefficients"),
        (lambda: Activation.polynomial([]), "coefficients"),
        (lambda: Activation.polynomial([1.0, np.nan]), "coefficients"),
        (lambda: Activation.polynomial(2.0), "coefficients"),
        (lambda: Activation.tanh().taylor(0.0, -1), "order"),
        (lambda: Activation.tanh().taylor(0.0, 2.0), "order"),
    ],
)
def test_refusals_name_the_argument(make, argument):
    with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+"):
        make()


def test_unknown_names_are_told_the_known_ones():
    with pytest.raises(ArgumentError, match=f"'softplus'; accepted: {', '.join(NAMES)}"):
        Activation.of("softplus")
