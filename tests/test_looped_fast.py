"""Compiled parts of looped networks do what PyTorch does, in float32."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from looped import random_block, random_code  # noqa: E402

from training import Looped  # noqa: E402
from training.fast import activated, attention  # noqa: E402


def compare(function, arguments, weight):
    """Relative errors of the value in float32 and of its derivatives, against float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        inputs = [value.to(dtype, copy=True).requires_grad_() for value in arguments]
        value = function(*inputs)
        (value * weight.to(dtype)).sum().backward()
        results.append([value.detach(), *(each.grad for each in inputs)])
    return [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in zip(*results, strict=True)]


# whole blocks of everything, parts of a block, less than a block, and the sizes of the paper
SIZES = [(2, 2, 8, 4, 4, 16), (2, 3, 7, 5, 6, 21), (1, 1, 2, 1, 1, 1), (1, 4, 32, 8, 8, 64)]


@pytest.mark.parametrize("size", SIZES)
def test_attention_and_its_derivative(size):
    copies, heads, n, inner, outer, batch = size
    numbers = torch.Generator().manual_seed(0)
    projected, pairs, weight = (
        torch.randn(shape, generator=numbers, dtype=torch.float64)
        for shape in (
            (copies, heads * (2 * inner + outer), n * batch),
            (copies, heads, n, n),
            (copies, heads * outer, n * batch),
        )
    )
    errors = compare(lambda p, b: attention(p, b, inner), (projected, pairs), weight)
    assert max(errors) < 2e-6


def test_pairs_that_are_not_there_have_no_weight_and_no_derivative():
    numbers = torch.Generator().manual_seed(1)
    projected = torch.randn(1, 12, 5 * 3, generator=numbers, requires_grad=True)
    pairs = torch.full((1, 1, 5, 5), -torch.inf)
    pairs[..., range(5), range(5)] = 3.0
    pairs.requires_grad_()
    mixed = attention(projected, pairs, 4)
    assert torch.equal(mixed, projected[:, 8:].detach())
    mixed.sum().backward()
    assert torch.equal(projected.grad[:, 8:], torch.ones(1, 4, 15))
    assert (projected.grad[:, :8] == 0).all()
    assert (pairs.grad == 0).all()


@pytest.mark.parametrize("spread", [0.0, 60.0, 1e4])
def test_large_logits(spread):
    """A row whose logits lie far apart: what underflows is nothing, and nothing overflows."""
    numbers = torch.Generator().manual_seed(2)
    projected = torch.randn(1, 12, 6 * 16, generator=numbers, dtype=torch.float64)
    pairs = spread * torch.randn(1, 1, 6, 6, generator=numbers, dtype=torch.float64).float().double()
    weight = torch.randn(1, 4, 6 * 16, generator=numbers, dtype=torch.float64)
    errors = compare(lambda p, b: attention(p, b, 4), (projected, pairs), weight)
    # float32 knows a logit of size s to s · 6e-8
    assert max(errors[:2]) < 1e-6 * max(3, spread / 3)


def test_what_is_not_a_number_stays_with_its_sequence_and_copy():
    projected = torch.ones(2, 12, 5, 16)
    projected[1, 0, 2, 3] = torch.nan
    mixed = attention(projected.flatten(2), torch.zeros(2, 1, 5, 5), 4).unflatten(2, (5, 16))
    nan = torch.zeros(2, 5, 16, dtype=torch.bool)
    nan[1, 2, 3] = True
    assert torch.equal(mixed.isnan().all(dim=1), nan)
    assert torch.equal(mixed.isnan().any(dim=1), nan)


@pytest.mark.parametrize("columns", [16, 48, 7, 37])
def test_tanh_and_its_derivative(columns):
    numbers = torch.Generator().manual_seed(3)
    product = torch.randn(2, 3, columns, generator=numbers, dtype=torch.float64)
    bias, weight = torch.randn(2, 3, generator=numbers).double(), torch.randn(2, 3, columns, generator=numbers).double()
    assert max(compare(lambda x, b: activated(1 * x, b, "tanh"), (product, bias), weight)) < 1e-6


def test_tanh_is_within_four_units_in_the_last_place():
    x = np.concatenate([np.geomspace(1e-30, 30, 40_000), -np.geomspace(1e-3, 30, 8_000)]).astype(np.float32)
    found = activated(torch.tensor(x)[None, None], torch.zeros(1, 1), "tanh")[0, 0].numpy()
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(found - exact) <= 4 * np.spacing(np.abs(exact).astype(np.float32))).all()
    ends = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0] * 4)[None, None]
    made = activated(ends, torch.zeros(1, 1), "tanh")[0, 0]
    assert made[:2].tolist() == [1.0, -1.0]
    assert made[2].isnan()
    assert made[3] == 0


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_other_activations_are_those_of_pytorch(activation):
    x = torch.randn(1, 2, 5, generator=torch.Generator().manual_seed(4))
    expected = getattr(torch.nn.functional, activation)(x + 0.5)
    assert torch.equal(activated(x, torch.full((1, 2), 0.5), activation), expected)


def test_a_network_in_float32_is_that_in_float64():
    rng = np.random.default_rng(5)
    blocks, codes = [random_block(rng, n=9) for _ in range(2)], [random_code(rng) for _ in range(2)]
    inputs = torch.tensor(rng.integers(0, 6, (21, 9)))
    single, double = (Looped(blocks, codes, loops=4, dtype=dtype) for dtype in (torch.float32, torch.float64))
    outputs = [net(inputs) for net in (single, double)]
    for found in outputs:
        found.square().mean().backward()
    assert (outputs[0] - outputs[1]).abs().max() < 3e-6 * outputs[1].abs().max()
    for (name, one), two in zip(single.named_parameters(), double.parameters(), strict=True):
        # a bias of the keys changes no weight: its derivative is zero, and rounding of those of the queries
        scale = double.stack.content.query_bias.grad if name.endswith("key_bias") else two.grad
        assert (one.grad - two.grad).abs().max() < 1e-5 * scale.abs().max(), name


def test_second_derivatives_are_refused_in_float32_and_there_in_float64():
    rng = np.random.default_rng(6)
    block, code = random_block(rng, n=6), random_code(rng)
    inputs = torch.tensor(rng.integers(0, 6, (2, 6)))
    for dtype in (torch.float32, torch.float64):
        net = Looped([block], code, loops=2, dtype=dtype)
        (slope,) = torch.autograd.grad(net(inputs).square().sum(), net.code.embedding, create_graph=True)
        if dtype == torch.float64:
            slope.square().sum().backward()
            assert torch.isfinite(net.code.embedding.grad).all()
        else:
            with pytest.raises(RuntimeError, match="once_differentiable"):
                slope.square().sum().backward()
