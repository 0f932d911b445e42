"""Values on the way in: kept as given or refused in one line that survives wherever it is sent."""

import copy
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dispersion import (
    Activation,
    ArgumentError,
    Block,
    ExclusionError,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    RMSNorm,
    Rotary,
    absolute_logits,
    degenerate_groups,
    dispersion_relation,
    mask_logits,
    symbols,
    t5_bucket,
)
from simulate import iterate

COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {protocol}": lambda x, p=protocol: pickle.loads(pickle.dumps(x, p)) for protocol in range(6)},
}


@pytest.mark.parametrize("kind", [ArgumentError, ExclusionError])
@pytest.mark.parametrize("way", COPIES)
def test_an_error_says_the_same_after_a_copy(kind, way):
    error = kind("gain", (2, 3), "a finite number")
    error.add_note("at point 3")
    copied = COPIES[way](error)
    assert type(copied) is kind
    assert str(copied) == str(error) == "gain: got (2, 3); accepted: a finite number"
    assert (copied.argument, copied.got, copied.accepted) == (error.argument, error.got, error.accepted)
    assert copied.__notes__ == ["at point 3"]


def test_an_error_can_be_sent_whatever_it_is_about():
    error = ArgumentError("measure", lambda path: path, "a function")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def refuse(value):
    raise ArgumentError("value", value, "a number")


def test_an_error_comes_back_from_another_process():
    joblib = pytest.importorskip("joblib")
    with pytest.raises(ArgumentError, match="value: got 3; accepted: a number"):
        joblib.Parallel(n_jobs=2, backend="loky")([joblib.delayed(refuse)(3)])


LONG = ("a\nb", "x" * 10**5, "\0\x1b[31m", 10**5000, range(10**6), [1] * 10**4, "é" * 300)


@pytest.mark.parametrize("got", LONG, ids=range(len(LONG)))
def test_an_error_is_one_line_of_moderate_length(got):
    for error in (ArgumentError("n", got, "a number"), ArgumentError(got, 1, "a number")):
        text = str(error)
        assert text.isprintable()
        assert len(text) < 700
        assert text.endswith("; accepted: a number")


RING = Kernel.alibi(4, 0.5)
MASKED = np.ma.MaskedArray([[1.0, 2.0], [3.0, 4.0]], [[False, True], [False, False]])
NOT_REAL = {
    "complex": [[1 + 1j, 0], [0, 1]],
    "complex without an imaginary part": np.eye(2) + 0j,
    "masked": MASKED,
    "rows of which one is masked": [MASKED[0], MASKED[1]],
    "strings": [["1", "2"], ["3", "4"]],
    "bytes": np.array([[b"1", b"2"], [b"3", b"4"]]),
    "booleans": np.eye(2, dtype=bool),
    "a boolean among numbers": [[1.0, True], [2.0, 3.0]],
    "None among numbers": [[1.0, None], [2.0, 3.0]],
    "dates": np.zeros((2, 2), "datetime64[s]"),
    "times": np.zeros((2, 2), "timedelta64[s]"),
    "a set": {1.0, 2.0},
    "a generator": (x for x in [[1.0, 2.0], [3.0, 4.0]]),
    "a dictionary": {"a": 1.0},
    "rows of unlike lengths": [[1.0], [2.0, 3.0]],
    "NaN": [[np.nan, 0.0], [0.0, 1.0]],
    "infinity": [[np.inf, 0.0], [0.0, 1.0]],
    "an integer beyond float64": [[10**400, 0], [0, 1]],
    "a decimal beyond float64": [[Decimal("1e400"), 0], [0, 1]],
    "a long double beyond float64": np.full((2, 2), np.longdouble("1e4000")),
    "an instance": object(),
}
ARRAYS = {
    "value": lambda x: Head(RING, x),
    "content": lambda x: Head(RING, np.eye(2), x),
    "weight_in": lambda x: FeedForward(x, np.eye(2), "tanh"),
    "weight_out": lambda x: FeedForward(np.eye(2), x, "tanh"),
    "query": lambda x: Rotary(x, np.eye(2), [0.5]),
    "logits": Kernel.table,
    "table": lambda x: absolute_logits(x, np.eye(2)),
    "m": mask_logits,
}


@pytest.mark.parametrize("argument", ARRAYS)
@pytest.mark.parametrize("kind", NOT_REAL)
def test_what_is_no_real_number_is_refused(argument, kind):
    if kind == "infinity" and argument == "m":
        return  # leaves an entry of a mask as it is
    with pytest.raises(ArgumentError, match=f"^{argument}: got "):
        ARRAYS[argument](NOT_REAL[kind])


def test_what_is_a_real_number_is_kept():
    exact = np.array([[0.5, -2.0], [3.0, 0.25]])
    same = [
        exact.tolist(),
        exact.astype(np.float16),
        exact.astype(object),
        [[Fraction(1, 2), Decimal(-2)], [np.int8(3), np.float32(0.25)]],
        np.ma.MaskedArray(exact, False),
        np.asfortranarray(exact),
        tuple(map(tuple, exact)),
    ]
    for given in same:
        value = Head(RING, given).value
        assert value.dtype == np.float64
        np.testing.assert_array_equal(value, exact)
    pandas = pytest.importorskip("pandas")
    np.testing.assert_array_equal(Head(RING, pandas.DataFrame(exact)).value, exact)
    xarray = pytest.importorskip("xarray")
    np.testing.assert_array_equal(Head(RING, xarray.DataArray(exact)).value, exact)


NUMBERS = {
    "gate": lambda x: Head(RING, 0.4, gate=x),
    "attention_scale": lambda x: Block([Head(RING, 0.4)], attention_scale=x),
    "eps": lambda x: LayerNorm([1.0, 1.0], eps=x),
    "strength": lambda x: x * RING if isinstance(x, float | int) else RING * x,
    "slope": lambda x: Kernel.alibi(4, x),
    "scale": lambda x: FeedForward.scalar("tanh", x),
    "tolerance": lambda x: degenerate_groups([1.0, 2.0], x),
}


@pytest.mark.parametrize("argument", NUMBERS)
@pytest.mark.parametrize(
    "number",
    ["0.3", b"1", True, np.True_, None, 1j, np.complex128(1), np.nan, -np.inf, 10**400, [0.3], {0.3}, np.ma.masked],
    ids=repr,
)
def test_a_number_is_a_finite_real_number(argument, number):
    if number is None and argument == "gate":
        return  # no gate
    with pytest.raises((ArgumentError, TypeError) if argument == "strength" else ArgumentError) as refused:
        NUMBERS[argument](number)
    assert str(refused.value).startswith((f"{argument}: got ", "unsupported operand", "can't multiply"))


def test_numbers_of_other_types_are_kept():
    for number in (np.float32(0.5), Fraction(1, 2), Decimal("0.5"), np.array(0.5), np.array(Fraction(1, 2))):
        gate = Head(RING, 0.4, gate=number).gate
        assert type(gate) is float
        assert gate == 0.5


def test_a_bias_of_pairs_keeps_all_of_itself_or_is_refused():
    bias = np.zeros((4, 4), dtype=complex)
    bias[0, 1] = 1j
    for wrong in (bias, np.ma.MaskedArray(np.zeros((4, 4)), np.eye(4)), np.full((4, 4), "1"), np.zeros((4, 4), bool)):
        with pytest.raises(ArgumentError, match="^bias: "):
            Head(RING, 0.4, bias=wrong)


def test_symbols_are_those_of_kernels():
    logits = np.array([[0.0, 1.0, -np.inf, 2.0], [3.0, 1.0, 0.5, 0.0]])
    np.testing.assert_array_equal(symbols(logits), [Kernel.table(row).symbol for row in logits])
    for wrong in (
        logits + 0j,
        [[-np.inf] * 4, [0.0] * 4],
        [[np.inf, 0.0]],
        [[np.nan, 0.0]],
        np.ma.masked_less(logits, 0),
    ):
        with pytest.raises(ArgumentError, match="^logits: "):
            symbols(wrong)
    for axes in (0, 3, 1.0, True):
        with pytest.raises(ArgumentError):
            symbols(logits, axes)


@pytest.mark.parametrize("flags", ["no", 0, 1, None, np.array([True])])
def test_a_flag_is_true_or_false(flags):
    for make in (lambda x: Kernel.table([0.0, 1.0], causal=x), lambda x: Kernel.alibi(4, 0.5, causal=x)):
        with pytest.raises(ArgumentError, match="^causal: "):
            make(flags)
    with pytest.raises(ArgumentError, match="^bidirectional: "):
        t5_bucket([1, 2], bidirectional=flags)


def test_an_activation_has_numbers_for_coefficients():
    assert Activation("polynomial", [1, Fraction(1, 2)]).coefficients == (1.0, 0.5)
    for wrong in (("a",), [np.nan], [1j], 3.0, None, [True]):
        with pytest.raises(ArgumentError):
            Activation("polynomial", wrong)
    for name in (None, 3, ["tanh"], np.array(["tanh"])):
        with pytest.raises(ArgumentError, match="^activation: "):
            Activation(name)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.int64, np.uint8, object])
@pytest.mark.parametrize(
    "norm",
    [
        None,
        RMSNorm.identity(2),
        LayerNorm.identity(
            2,
        ),
    ],
)
def test_states_of_any_type_go_through_in_float64(dtype, norm):
    block = Block([Head(RING, np.eye(2), np.eye(2))], FeedForward.elementwise("gelu", 2), attention_norm=norm)
    x = np.array([[1, 100], [2, 40], [30, 120], [7, 9]], dtype=dtype)
    out = block.forward(x)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, block.forward(x.astype(np.float64)))
    activated = Activation.silu()(x)
    np.testing.assert_array_equal(activated, Activation.silu()(x.astype(np.float64)))


def test_states_that_are_no_numbers_are_refused():
    block = Block([Head(RING, 0.4, 1.0)])
    for wrong in (["1"] * 4, np.ma.MaskedArray(np.zeros(4), [1, 0, 0, 0]), np.zeros(4, bool), [None] * 4, None, "abcd"):
        with pytest.raises(ArgumentError, match="^x: "):
            block.forward(wrong)


@pytest.mark.parametrize("q", ["0.3", np.inf, np.nan, None, True, [0.1, np.inf], np.ma.masked, 1e3j, {0.3}], ids=repr)
def test_a_wavenumber_is_a_finite_number(q):
    relation = dispersion_relation(Block([Head(RING, 0.4, 1.0)]))
    for at in (relation, RING):
        with pytest.raises(ArgumentError, match="^q: "):
            at(q)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-150, 1.0, 1e150, 1e200, 5e307])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_normalisations_of_any_size(size, eps):
    """Against 40 digits more than enough: fractions and Python integers."""
    pattern = [3.0, -1.0, 2.0, 0.5]
    x = np.array(pattern) * size
    exact = [Fraction(value) for value in x.tolist()]
    for norm, mean in ((RMSNorm, Fraction(0)), (LayerNorm, sum(exact) / 4)):
        square = sum((value - mean) ** 2 for value in exact) / 4 + Fraction(eps)
        root = Decimal(square.numerator).scaleb(0) / Decimal(square.denominator)
        expected = [float(Decimal((v - mean).numerator) / Decimal((v - mean).denominator) / root.sqrt()) for v in exact]
        np.testing.assert_allclose(norm([1.0] * 4, eps=eps)(x), expected, rtol=2e-15)
        torch = pytest.importorskip("torch")
        from models.layers import Norm

        with torch.no_grad():
            np.testing.assert_allclose(Norm(norm([1.0] * 4, eps=eps))(torch.tensor(x)), expected, rtol=2e-15)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_derivatives_of_normalisations_of_any_size(size):
    x = np.array([3.0, -1.0, 2.0, 0.5])
    for norm in (RMSNorm([1.0, 2.0, 3.0, 4.0], eps=0.0), LayerNorm([1.0, 2.0, 3.0, 4.0], eps=0.0)):
        np.testing.assert_allclose(norm.jacobian(size * x) * size, norm.jacobian(x), rtol=1e-14)


def test_a_normalised_block_iterates_from_tiny_states():
    simulate = pytest.importorskip("simulate")
    block = Block([Head(RING, np.eye(2), np.eye(2))], feedforward_norm=RMSNorm([1.0, 1.0], eps=0.0), placement="post")
    x = np.array([[1.0, 100], [2, 40], [30, 120], [7, 9]]) * 1e-202
    np.testing.assert_allclose(simulate.iterate(block, depth=1, start=x).state, block.forward(x), rtol=1e-12)


def test_logits_and_states_at_the_ends_of_float64_come_without_a_warning():
    with np.errstate(all="raise"):
        assert np.isfinite(symbols([1e308, -1e308])).all()
        assert np.isfinite(Kernel.table([1e308, -1e308]).symbol).all()
        with pytest.raises(ArgumentError, match="inf"):
            Kernel.table(np.full(8, 1e308)) + Kernel.table(np.full(8, 1e308))
        path = iterate(Block([Head(Kernel.alibi(8, 0.3), -0.4, 1.5)]), 200, np.full((8, 1), 1e-300))
        assert path.amplitude < 1e-300
        assert path.wavenumber == 0
        assert np.isnan(path.phase_advance) or abs(path.phase_advance) <= np.pi
