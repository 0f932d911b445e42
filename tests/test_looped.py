"""Looped networks side by side are the networks of their blocks, one by one."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dataclasses import fields  # noqa: E402

from looped import random_batch, random_block, random_code  # noqa: E402

from dispersion import ArgumentError, Block, Head, Kernel, LayerNorm  # noqa: E402
from models import to_torch  # noqa: E402
from training import Looped  # noqa: E402


def alone(block, code, inputs, loops, positions=None):
    """(B, N, levels) logits of one copy by the module of its block, and what of it trains."""
    module = to_torch(block)
    embedding, readout, bias = (
        torch.tensor(getattr(code, name)).requires_grad_() for name in ("embedding", "readout", "bias")
    )
    x = embedding[inputs] + (0 if positions is None else torch.tensor(positions))
    for _ in range(loops):
        x = module(x)
    return x @ readout.T + bias, module, (embedding, readout, bias)


def networks(rng, copies=3, **keywords):
    blocks = [random_block(rng) for _ in range(copies)]
    codes = [random_code(rng) for _ in range(copies)]
    return blocks, codes, Looped(blocks, codes, dtype=torch.float64, **keywords)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("placed", [False, True])
def test_each_copy_is_the_module_of_its_block(own, placed):
    rng = np.random.default_rng(0)
    positions = [None, rng.normal(size=(16, 12)), None] if placed else None
    blocks, codes, net = networks(rng, positions=positions, loops=5)
    inputs = torch.tensor(rng.integers(0, 6, (3, 4, 16) if own else (4, 16)))
    weight = torch.tensor(rng.normal(size=(3, 4, 16, 5)))
    outputs = net(inputs)
    (outputs * weight).sum().backward()
    for copy in range(3):
        seen = inputs[copy] if own else inputs
        expected, module, code = alone(blocks[copy], codes[copy], seen, 5, positions and positions[copy])
        scale = expected.abs().max()
        assert (outputs[copy] - expected).abs().max() < 1e-12 * scale
        (expected * weight[copy]).sum().backward()
        attention = module.attention[0]
        heads = slice(3 * copy, 3 * copy + 3)
        pairs = [
            (net.stack.logits.grad[heads], torch.stack([place.logits.grad for place in attention.positions])),
            *(
                (getattr(net.stack.content, n).grad[heads], getattr(attention.content, n).grad)
                for n in ("query", "key")
            ),
            (net.stack.content.query_bias.grad[heads], attention.content.query_bias.grad),
            *((getattr(net.stack.mix, n).grad[heads], getattr(attention.mix, n).grad) for n in ("value", "output")),
            *(
                (getattr(net.stack.feedforward, n).grad[copy], getattr(module.feedforward, n).grad)
                for n in ("weight_in", "weight_out", "bias_in", "bias_out")
            ),
            *(
                (getattr(net.code, n).grad[copy], t.grad)
                for n, t in zip(("embedding", "readout", "bias"), code, strict=True)
            ),
        ]
        for found, wanted in pairs:
            assert (found - wanted).abs().max() < 1e-12 * max(1, wanted.abs().max())


def test_blocks_and_codes_come_back_bit_for_bit():
    rng = np.random.default_rng(1)
    blocks, codes, net = networks(rng)
    for before, after in zip(blocks, net.blocks(), strict=True):
        assert after.attention_scale == before.attention_scale
        for head, same in zip(before.heads, after.heads, strict=True):
            assert same.kernel is head.kernel
            for name in ("query", "key", "query_bias", "key_bias"):
                assert np.array_equal(getattr(same.query_key, name), getattr(head.query_key, name))
            assert np.array_equal(same.output_value.output, head.output_value.output)
            assert np.array_equal(same.output_value.value, head.output_value.value)
        for name in ("weight_in", "weight_out", "bias_in", "bias_out"):
            assert np.array_equal(getattr(after.feedforward, name), getattr(before.feedforward, name))
    for before, after in zip(codes, net.codes(), strict=True):
        assert all(np.array_equal(getattr(before, f.name), getattr(after, f.name)) for f in fields(before))


def test_causal_kernels_stay_causal():
    rng = np.random.default_rng(2)
    block = random_block(rng)
    causal = Kernel(np.where(np.arange(16) < 6, rng.normal(size=16), -np.inf), causal=True)
    block = Block([Head(causal, head.output_value, head.query_key) for head in block.heads], block.feedforward)
    code = random_code(rng)
    net = Looped([block], code, dtype=torch.float64, loops=2)
    inputs = torch.tensor(rng.integers(0, 6, (4, 16)))
    expected, *_ = alone(block, code, inputs, 2)
    assert (net(inputs)[0] - expected).abs().max() < 1e-12 * expected.abs().max()
    net(inputs).sum().backward()
    assert torch.isfinite(net.stack.logits.grad).all()
    with torch.no_grad():
        net.stack.logits -= 0.01 * net.stack.logits.grad
    kernel = net.blocks()[0].heads[0].kernel
    assert kernel.causal
    assert np.array_equal(np.isneginf(kernel.logits), np.isneginf(causal.logits))
    assert not np.array_equal(kernel.logits, causal.logits)


def test_held_parts_stay_and_the_rest_moves():
    rng = np.random.default_rng(3)
    _, _, net = networks(rng, frozen=[("feedforward",), ("feedforward", "positional"), ("feedforward",)])
    before = {name: weights.detach().clone() for name, weights in net.named_parameters()}
    optimiser = torch.optim.AdamW([w for w in net.parameters() if w.requires_grad], lr=0.1, weight_decay=0.3)
    for _ in range(2):
        optimiser.zero_grad()
        net(torch.tensor(random_batch(rng).inputs)).square().mean().backward()
        assert (net.stack.logits.grad[3:6] == 0).all()
        optimiser.step()
        net.hold()
    for name, weights in net.named_parameters():
        moved = (weights != before[name]).flatten(1).any(dim=1)
        if "feedforward" in name:
            assert not moved.any()
        elif name == "stack.logits":
            assert moved.tolist() == [True] * 3 + [False] * 3 + [True] * 3
        else:
            assert moved.all(), name


def test_bad_input_is_told():
    rng = np.random.default_rng(4)
    block, code = random_block(rng), random_code(rng)
    normed = Block(block.heads, block.feedforward, attention_norm=LayerNorm(np.ones(12), np.zeros(12)))
    full = Block([Head(head.kernel, head.value, head.query_key) for head in block.heads], block.feedforward)
    cases = [
        ("blocks", [], code, {}),
        (r"blocks\[1\]", [block, random_block(rng, n=18)], code, {}),
        (r"blocks\[0\]", [normed], code, {}),
        (r"blocks\[0\]", [full], code, {}),
        ("codes", [block], [code, code], {}),
        ("codes", [block], random_code(rng, d=8), {}),
        ("loops", [block], code, {"loops": 0}),
        ("positions", [block], code, {"positions": [np.zeros((16, 3))]}),
        ("frozen", [block], code, {"frozen": ("ffn",)}),
        ("frozen", [block], code, {"frozen": "feedforward"}),
        ("dtype", [block], code, {"dtype": torch.int64}),
        ("device", [block], code, {"device": "nowhere"}),
    ]
    for argument, blocks, codes, keywords in cases:
        with pytest.raises(ArgumentError, match=rf"^{argument}\b|^{argument}"):
            Looped(blocks, codes, **keywords)
