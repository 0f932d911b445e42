# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""Gates of heads as modules: trained by their logits, exact there and back, held at 0 and 1."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dispersion import Block, Head, Kernel
from models import ConViT, export, to_torch

N, D = 6, 3
RNG = np.random.default_rng(0)
VALUES, CONTENTS = RNG.normal(size=(2, 8, D, D))
X = torch.tensor(RNG.normal(size=(5, N, D)))


def gated(*gates):
    """A block of a head for each of the `gates`."""
    kernel = Kernel.table(np.arange(N) / 3.0)
    parts = zip(gates, VALUES, CONTENTS, strict=False)
    return Block([Head(kernel, value, content, gate=gate) for gate, value, content in parts])


def gates_of(net):
    return [head.gate for head in export(net).heads]


def test_gates_come_back_to_the_last_digit():
    rng = np.random.default_rng(1)
    spread = [*rng.uniform(size=4), 10.0 ** -rng.uniform(1, 300), 1 - 2.0**-53, 0.0, 1.0]
    assert gates_of(to_torch(gated(*spread))) == spread
    few = rng.uniform(size=(200, 8)) ** np.arange(1, 9)
    assert all(gates_of(to_torch(gated(*row))) == row.tolist() for row in few)


def test_the_parameter_is_the_logit_and_has_a_slope_everywhere():
    net = to_torch(gated(0.3, 0.999))
    (logit,) = (values for name, values in net.named_parameters() if name == "attention.0.gate.logit")
    np.testing.assert_allclose(logit.detach(), np.log([0.3 / 0.7, 0.999 / 0.001]), rtol=1e-12)
    weight = torch.tensor(np.random.default_rng(2).normal(size=X.shape))
    (net(X) * weight).sum().backward()
    for head in range(2):
        ends = []
        for step in (1e-5, -1e-5):
            moved = torch.tensor([0.3, 0.999], dtype=torch.float64).logit()
            moved[head] += step
            ends.append((to_torch(gated(*moved.sigmoid().tolist()))(X) * weight).sum().item())
        assert logit.grad[head].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


@pytest.mark.parametrize(("start", "target"), [(0.02, 0.9), (0.97, 0.1)])
def test_a_gate_learns_another(start, target):
    """From near one end to near the other, where a clamped gate that has left [0, 1] would be stuck."""
    net, wanted = to_torch(gated(start)), to_torch(gated(target))(X).detach()
    logit = net.attention[0].gate.logit
    optimiser = torch.optim.LBFGS([logit], max_iter=50, line_search_fn="strong_wolfe", tolerance_change=1e-15)

    def loss():
        optimiser.zero_grad()
        error = ((net(X) - wanted) ** 2).mean()
        error.backward()
        return error

    optimiser.step(loss)
    assert gates_of(net)[0] == pytest.approx(target, rel=1e-5)


@pytest.mark.parametrize(
    "optimiser",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.1, momentum=0.9),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1, weight_decay=0.1),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    ],
)
def test_gates_of_0_and_1_stay(optimiser):
    net = to_torch(gated(0.0, 0.4, 1.0))
    step = optimiser([net.attention[0].gate.logit])
    for _ in range(5):
        step.zero_grad()
        (net(X) ** 2).mean().backward()
        step.step()
    low, middle, high = gates_of(net)
    assert (low, high) == (0, 1)
    assert middle != 0.4
    assert torch.isfinite(net.attention[0].gate.logit).all()


def test_convit_trains_its_gates_alike():
    network = ConViT.preset("+I+pos", "small")
    (logit,) = (gate for name, gate in network.module().named_parameters() if name.endswith("gate.logit"))
    assert logit.requires_grad
    np.testing.assert_allclose(logit.detach(), network.gate, rtol=1e-14)
    assert gates_of(network.module()) == [head.gate for head in network.block().heads]
