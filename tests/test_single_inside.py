# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""Maps of float64 states that compute in float32 on the way: said so, and confirmed as far as that allows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from models.check import TOLERANCE, check
from models.line import line_check

N, D = 6, 3
RNG = np.random.default_rng(0)
VALUE, CONTENT = torch.tensor(RNG.normal(size=(2, D, D)) / 2)
STATES, A = RNG.normal(size=(N, D)), np.array([0.4, -0.3, 0.2])


def attention(x, dtype, wrong=1.0):
    weights = torch.softmax((x @ CONTENT @ x.T).to(dtype), -1).to(x.dtype)
    near = torch.tanh(x.roll(1, 0).to(dtype)).to(x.dtype)
    return x + wrong * weights @ x @ VALUE + 0.3 * near


def single(x):
    return attention(x, torch.float32)


def test_float64_keeps_the_usual_tolerance():
    found = line_check([lambda x: attention(x, torch.float64)] * 2, STATES, patterns=2)
    assert (found.confirmed, found.tolerance) == (True, TOLERANCE)
    assert "float32" not in found.verdict


def test_what_grows_most_is_confirmed_as_far_as_float32_allows():
    exact = line_check([lambda x: attention(x, torch.float64)] * 2, STATES, patterns=2)
    found = line_check([single] * 2, STATES, patterns=2)
    np.testing.assert_allclose(found.gain, exact.gain, rtol=1e-5)
    assert found.confirmed
    assert TOLERANCE < found.error.max() <= found.tolerance < 1e-2
    assert f"of the {found.tolerance:.1e} that float32 on the way leaves open" in found.verdict


def test_waves_are_confirmed_as_far_as_float32_allows():
    found = check([single] * 2, A, N)
    assert found.confirmed
    assert TOLERANCE < found.error.max() <= found.tolerance < 1e-2
    assert "that float32 on the way leaves open" in found.verdict


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_a_wrong_prediction_is_still_not_confirmed(kind):
    """Chains and blocks of other numbers are told, in float32 too."""
    from dispersion import Block, Head, Kernel
    from models import to_torch

    block, other = (
        Block([Head(Kernel.uniform(N), value, np.eye(D))]) for value in (0.5 * np.eye(D), 0.505 * np.eye(D))
    )
    net = to_torch(block)
    layer = net if kind == "float64" else lambda x: net(x) + 0 * torch.tanh(x.float()).double()
    assert check([layer], A, N, [block]).confirmed
    found = check([layer], A, N, [other])
    assert not found.confirmed
    assert found.tolerance == TOLERANCE or kind == "float32"
