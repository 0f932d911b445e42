"""Values on the way in: kept as given or refused in one line that survives wherever it is sent."""

import copy
import pickle

import pytest

from dispersion import ArgumentError, ExclusionError

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
