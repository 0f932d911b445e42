"""Encoders side by side against a plain network of PyTorch's own modules, and against Blocks."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dispersion import ArgumentError  # noqa: E402
from models import to_torch  # noqa: E402
from training.encoder import POOLS, Encoder  # noqa: E402
from training.encoders import LAYERED, Encoders  # noqa: E402
from training.fast import normalised  # noqa: E402

FORM = {"vocabulary": 3, "n": 5, "d": 12, "layers": 2, "heads": 3, "width": 4, "hidden": 10, "outputs": 2}


def encoder(seed, pool="mean", **sizes):
    """A network whose numbers are all random."""
    rng = np.random.default_rng(seed)
    made = Encoder.draw(rng, pool=pool, **{**FORM, **sizes})
    arrays = {f.name: getattr(made, f.name) for f in fields(made) if isinstance(getattr(made, f.name), np.ndarray)}
    return replace(made, **{name: value + 0.3 * rng.normal(size=value.shape) for name, value in arrays.items()})


def tokens(seed, made, count=7):
    n = made.tokens - (made.start is not None)
    return np.random.default_rng(seed).integers(0, len(made.embedding), (count, n))


class Plain(nn.Module):
    """One network as it is written in PyTorch: (B, T, d) states, LayerNorm, Linear, softmax, GELU."""

    def __init__(self, made):
        super().__init__()
        self.made, d = made, made.query.shape[-1]
        self.table = nn.Embedding(len(made.embedding), d)
        self.norms = nn.ModuleList([nn.LayerNorm(d, eps=made.eps) for _ in range(2 * len(made.query) + 1)])
        self.head = nn.Linear(d, len(made.bias))
        self.double()
        numbers = {f.name: getattr(made, f.name) for f in fields(made) if isinstance(getattr(made, f.name), np.ndarray)}
        taken = {"embedding", "attention_gain", "attention_shift", "mlp_gain", "mlp_shift"}
        taken |= {"final_gain", "final_shift", "readout", "bias"}
        self.rest = nn.ParameterDict({name: torch.tensor(v) for name, v in numbers.items() if name not in taken})
        with torch.no_grad():
            self.table.weight.copy_(torch.tensor(made.embedding))
            self.head.weight.copy_(torch.tensor(made.readout))
            self.head.bias.copy_(torch.tensor(made.bias))
            gains = [g for pair in zip(made.attention_gain, made.mlp_gain, strict=True) for g in pair]
            shifts = [s for pair in zip(made.attention_shift, made.mlp_shift, strict=True) for s in pair]
            for norm, gain, shift in zip(
                self.norms, [*gains, made.final_gain], [*shifts, made.final_shift], strict=True
            ):
                norm.weight.copy_(torch.tensor(gain))
                norm.bias.copy_(torch.tensor(shift))

    def forward(self, inputs):
        w, T = self.rest, self.made.tokens
        x = self.table(inputs)
        if "start" in w:
            x = torch.cat([w["start"].expand(len(x), 1, -1), x], dim=1)
        x = x + w["positions"]
        lag = (torch.arange(T)[:, None] - torch.arange(T)) % T
        for layer in range(len(self.made.query)):
            y = self.norms[2 * layer](x)
            for h in range(self.made.query.shape[1]):
                q, k, v = (nn.functional.linear(y, w[name][layer, h]) for name in ("query", "key", "value"))
                logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
                logits = logits + torch.log(torch.sigmoid(w["mask"][layer, h])) + w["kernel"][layer, h][lag]
                x = x + torch.softmax(logits, dim=-1) @ v @ w["output"][layer, :, h].T
            x = x + w["output_bias"][layer]
            y = nn.functional.linear(self.norms[2 * layer + 1](x), w["weight_in"][layer], w["bias_in"][layer])
            x = x + nn.functional.linear(nn.functional.gelu(y), w["weight_out"][layer], w["bias_out"][layer])
        x = {"mean": x.mean(1), "cls": x[:, 0], "tokens": x}[self.made.pool]
        return self.head(self.norms[-1](x))

    def slopes(self):
        """The gradient by the names of Encoder."""
        of = {name: weights.grad for name, weights in self.rest.items()}
        each = [norm.weight.grad for norm in self.norms], [norm.bias.grad for norm in self.norms]
        of["embedding"], of["readout"], of["bias"] = self.table.weight.grad, self.head.weight.grad, self.head.bias.grad
        for name, place in (("gain", 0), ("shift", 1)):
            of[f"attention_{name}"], of[f"mlp_{name}"] = (torch.stack(each[place][first:-1:2]) for first in (0, 1))
            of[f"final_{name}"] = each[place][-1]
        return of


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_copy_is_a_plain_network_in_value_and_gradient(pool, outputs):
    each = [encoder(seed, pool, outputs=outputs) for seed in range(3)]
    net, inputs = Encoders(each, dtype=torch.float64), torch.tensor(tokens(9, each[0]))
    found = net(inputs)
    wanted = [Plain(made) for made in each]
    outputs_of = [plain(inputs) for plain in wanted]
    if outputs == 1 and pool != "tokens":
        outputs_of = [values[..., 0] for values in outputs_of]
    torch.testing.assert_close(found, torch.stack(outputs_of), rtol=0, atol=1e-12)
    weights = torch.tensor(np.random.default_rng(3).normal(size=found.shape))
    (found * weights).sum().backward()
    sum((values * part).sum() for values, part in zip(outputs_of, weights, strict=True)).backward()
    for name, parameter in net.numbers.named_parameters():
        for copy, plain in enumerate(wanted):
            torch.testing.assert_close(parameter.grad[copy], plain.slopes()[name], rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("pool", POOLS)
def test_the_noun_says_what_the_networks_compute(pool):
    each = [encoder(seed, pool) for seed in range(2)]
    inputs = tokens(4, each[0])
    found = Encoders(each, dtype=torch.float64)(torch.tensor(inputs)).detach().numpy()
    np.testing.assert_allclose(found, [made(inputs) for made in each], atol=1e-12)


def test_numbers_come_back_to_the_last_bit():
    each = [encoder(seed, "cls") for seed in range(2)]
    each[1] = replace(each[1], mask=np.where(np.eye(6) > 0, -np.inf, each[1].mask))
    for before, after in zip(each, Encoders(each, dtype=torch.float64).encoders(), strict=True):
        for field in fields(before):
            assert np.array_equal(getattr(before, field.name), getattr(after, field.name)), field.name


def test_layers_are_blocks():
    made = encoder(1)
    x = torch.tensor(np.random.default_rng(2).normal(size=(3, 5, 12)))
    w = Encoders([made], dtype=torch.float64)
    for layer, block in enumerate(made.blocks):
        of = {name: getattr(w.numbers, name)[:, layer] for name in LAYERED} | {"pairs": w._pairs()[:, layer]}
        # (B, T, d) → (1, d, T·B)
        through = w._layer(x.permute(2, 1, 0).flatten(1)[None], of, made.eps)[0].unflatten(-1, (5, 3)).permute(2, 1, 0)
        torch.testing.assert_close(through, to_torch(block)(x), rtol=0, atol=1e-12)
        np.testing.assert_allclose(through.detach().numpy(), block.forward(x.numpy()), atol=1e-12)


def test_a_sequence_without_content_sees_the_mask_alone():
    """With the same position everywhere attention is the row-normalised σ(M)."""
    made = encoder(2)
    level = replace(made, positions=np.tile(made.positions[:1], (5, 1)), kernel=0 * made.kernel)
    mask = 1 / (1 + np.exp(-made.mask))
    np.testing.assert_allclose(level.home_attention[0], (mask / mask.sum(-1, keepdims=True))[0], atol=1e-12)
    seen = made.home[0] @ (made.query[0, 1].T @ made.key[0, 1]) @ made.home[0].T / 2
    lag = (np.arange(5)[:, None] - np.arange(5)) % 5
    logits = seen + np.log(mask[0, 1]) + made.kernel[0, 1][lag]
    wanted = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(made.home_attention[0, 1], wanted, atol=1e-12)


def test_attention_over_data_is_that_of_the_layers():
    made = encoder(3, "cls")
    inputs = tokens(1, made, 4)
    weights = made.attention(inputs)
    assert weights.shape == (2, 3, 4, 6, 6)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-12)
    states = made.states(inputs)
    block = made.blocks[1]
    mixed = sum(
        head.output_value.mix(weights[1, h], block.attention_norm(states[1])) for h, head in enumerate(block.heads)
    )
    y = states[1] + mixed + made.output_bias[1]
    np.testing.assert_allclose(y + block.feedforward(block.feedforward_norm(y)), states[2], atol=1e-12)


def test_a_pair_closed_for_good_stays_closed():
    made = encoder(5)
    shut = replace(made, mask=np.where(np.eye(5) > 0, made.mask, -np.inf))
    net = Encoders([made, shut], dtype=torch.float64)
    optimiser = torch.optim.Adam(net.parameters(), 0.1, weight_decay=0.1)
    net(torch.tensor(tokens(1, made))).square().sum().backward()
    optimiser.step()
    first, second = net.encoders()
    assert np.isfinite(first.mask).all()
    assert np.array_equal(np.isneginf(second.mask), np.isneginf(shut.mask))
    np.testing.assert_allclose(second.home_attention, np.broadcast_to(np.eye(5), (2, 3, 5, 5)), atol=1e-15)


def test_what_is_held_has_no_gradient():
    each = [encoder(seed) for seed in range(3)]
    net = Encoders(each, frozen=[("mask", "kernel"), ("kernel",), ("kernel", "query")])
    net(torch.tensor(tokens(1, each[0]))).square().sum().backward()
    numbers = net.numbers
    assert not numbers.kernel.requires_grad
    assert [bool(part.any()) for part in numbers.mask.grad] == [False, True, True]
    assert [bool(part.any()) for part in numbers.query.grad] == [True, True, False]


def test_float32_is_float64_rounded():
    each = [encoder(seed, d=32, n=8) for seed in range(2)]
    inputs = torch.tensor(tokens(1, each[0], 21))
    slopes = []
    for dtype in (torch.float64, torch.float32):
        net = Encoders(each, dtype=dtype)
        found = net(inputs)
        found.square().sum().backward()
        slopes.append([found, *(weights.grad for weights in net.parameters())])
    for wide, narrow in zip(*slopes, strict=True):
        assert (wide - narrow).abs().max() < 3e-5 * wide.abs().max()


@pytest.mark.parametrize("columns", [5, 16, 37, 64])
def test_the_compiled_normalisation(columns):
    rng = np.random.default_rng(columns)
    x, slope, gain, shift = (rng.normal(size=shape) for shape in ((3, 20, columns),) * 2 + ((3, 20),) * 2)
    found = []
    for dtype in (torch.float64, torch.float32):
        leaves = [torch.tensor(value, dtype=dtype, requires_grad=True) for value in (x + 2, gain, shift)]
        made = normalised(*leaves, 1e-5)
        made.backward(torch.tensor(slope, dtype=dtype))
        found.append([made.detach(), *(leaf.grad for leaf in leaves)])
    wanted = nn.functional.layer_norm(torch.tensor(x + 2).transpose(1, 2), (20,), eps=1e-5).transpose(1, 2)
    wanted = wanted * torch.tensor(gain)[..., None] + torch.tensor(shift)[..., None]
    torch.testing.assert_close(found[0][0], wanted, rtol=0, atol=1e-13)
    for wide, narrow in zip(*found, strict=True):
        assert (wide - narrow).abs().max() < 4e-6 * wide.abs().max()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: Encoders([]), "encoders"),
        (lambda: Encoders([encoder(0), encoder(0, "cls")]), "encoders"),
        (lambda: Encoders([encoder(0)], frozen=[("masks",)]), "frozen"),
        (lambda: Encoders([encoder(0)], frozen=["mask"]), "frozen"),
        (lambda: Encoders([encoder(0)], dtype=torch.float16), "dtype"),
        (lambda: Encoder.draw(0, pool="max"), "pool"),
        (lambda: replace(encoder(0), mask=np.zeros((2, 3, 5, 4))), "mask"),
        (lambda: replace(encoder(0), key=encoder(0).key[:1]), "key"),
        (lambda: replace(encoder(0), start=np.zeros(12)), "start"),
        (lambda: encoder(0)(np.zeros((2, 4), dtype=int)), "inputs"),
        (lambda: encoder(0)(np.full((2, 5), 3)), "inputs"),
    ],
)
def test_what_cannot_be_used_is_named(call, argument):
    with pytest.raises(ArgumentError) as error:
        call()
    assert error.value.argument == argument
