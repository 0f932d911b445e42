"""A Layer is the map that its fields say: against loops over heads and tokens, as a module, a Block and a Chain."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dispersion import ArgumentError, Chain, LayerNorm, RMSNorm, dispersion_relation  # noqa: E402
from dispersion.block.encodings import T5, Alibi  # noqa: E402
from models.adapters import Layer, Network  # noqa: E402
from models.adapters.layer import scaled  # noqa: E402
from models.check import check  # noqa: E402
from models.measured import measure  # noqa: E402

N, D, HEADS, SIZE = 7, 8, 2, 6
RNG = np.random.default_rng(0)
TABLES = RNG.normal(size=(HEADS, 8))
ENCODINGS = tuple(T5(table, max_distance=5) for table in TABLES)


def layer(**fields):
    shapes = dict.fromkeys(("query", "key", "value"), (HEADS * SIZE, D))
    shapes |= {"out": (D, HEADS * SIZE), "weight_in": (9, D), "weight_out": (D, 9)}
    shapes |= {f"{name}_bias": shapes[name][:1] for name in ("query", "key", "value", "out")}
    rng = np.random.default_rng(1)
    arrays = {name: 0.4 * rng.normal(size=size) for name, size in shapes.items()}
    usual = {"attention_norm": RMSNorm(np.ones(D)), "feedforward_norm": None, "placement": "pre", "activation": "tanh"}
    return Layer(HEADS, **arrays | usual | fields)


def turned(one, u, position):
    """u (d_h,) of one head, its first 2r features turned pair by pair."""
    u, r = u.copy(), len(one.frequencies)
    for m, theta in enumerate(one.frequencies):
        pair = [m, m + r] if one.pairing == "half" else [2 * m, 2 * m + 1]
        turn = np.exp(1j * theta * position) * (u[pair[0]] + 1j * u[pair[1]])
        u[pair] = turn.real, turn.imag
    return u


def bucket(offset):
    """T5's bucket of key − query among 8, the farthest from 5 tokens on."""
    far, distance = 4 * (offset > 0), abs(offset)
    if distance < 2:
        return far + distance
    return far + min(3, 2 + int(np.log(distance / 2) / np.log(5 / 2) * 2))


def straight(one, x, positional):
    """The layer on `x`, token by token, straight from its fields."""

    def normed(norm, y):
        return y if norm is None else norm(y)

    pre = one.placement == "pre"
    seen = normed(one.attention_norm, x) if pre else x
    q, k, v = (
        seen @ weight.T + bias
        for weight, bias in ((one.query, one.query_bias), (one.key, one.key_bias), (one.value, one.value_bias))
    )
    mixed = np.zeros((len(x), HEADS * SIZE))
    for head in range(HEADS):
        rows = slice(head * SIZE, (head + 1) * SIZE)
        for i in range(len(x)):
            keys = range(i + 1) if one.causal else range(len(x))
            logits = []
            for j in keys:
                a, b = q[i, rows], k[j, rows]
                if one.frequencies is not None:
                    a, b = turned(one, a, i), turned(one, b, j)
                scale = 1 / np.sqrt(SIZE) if one.scale is None else one.scale
                logits.append(scale * (a @ b) + positional(head, i, j))
            weights = np.exp(logits - np.max(logits))
            mixed[i, rows] = weights @ v[list(keys), rows] / weights.sum()
    y = x + mixed @ one.out.T + one.out_bias
    y = y if pre else normed(one.attention_norm, y)
    hidden = np.tanh(normed(one.feedforward_norm, y) @ one.weight_in.T if pre else y @ one.weight_in.T)
    y = y + hidden @ one.weight_out.T
    return y if pre else normed(one.feedforward_norm, y)


def nowhere(head, i, j):
    return 0.0


KINDS = {
    "plain": ({}, nowhere),
    "no norm": ({"attention_norm": None}, nowhere),
    "post": ({"placement": "post", "feedforward_norm": LayerNorm(np.ones(D))}, nowhere),
    "scale": ({"scale": 1.3}, nowhere),
    "half": ({"frequencies": np.array([0.9, 0.3, 0.1])}, nowhere),
    "interleaved": ({"frequencies": np.array([0.9, 0.3, 0.1]), "pairing": "interleaved"}, nowhere),
    "partial": ({"frequencies": np.array([0.9, 0.3]), "causal": True}, nowhere),
    "partial, interleaved": ({"frequencies": np.array([0.9]), "pairing": "interleaved", "scale": 0.2}, nowhere),
    "T5": ({"encodings": ENCODINGS, "scale": 1.0}, lambda head, i, j: TABLES[head, bucket(j - i)]),
    "ALiBi": ({"encodings": (Alibi(0.5), Alibi(0.1))}, lambda head, i, j: -(0.5, 0.1)[head] * abs(i - j)),
    "causal ALiBi": (
        {"encodings": (Alibi(0.5, causal=True), Alibi(0.1, causal=True)), "causal": True},
        lambda head, i, j: -(0.5, 0.1)[head] * (i - j),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_the_map_that_its_fields_say(kind):
    fields, positional = KINDS[kind]
    one, x = layer(**fields), np.random.default_rng(2).normal(size=(N, D))
    expected, shorter = straight(one, x, positional), straight(one, x[:5], positional)
    module = one.module()
    for given, result in ((x, expected), (x[:5], shorter), (x[None], expected[None])):
        np.testing.assert_allclose(module(torch.tensor(given)).numpy(), result, rtol=0, atol=1e-13)
    if one.boundary == "periodic":
        np.testing.assert_allclose(one.block(N).forward(x), expected, rtol=0, atol=1e-13)
    else:
        chain = Chain(one.block(2 * N - 1), N, one.boundary)
        np.testing.assert_allclose(chain.forward(x), expected, rtol=0, atol=1e-13)
    assert one.boundary == (
        "causal" if one.causal else "open" if "T5" in kind or fields.keys() & TURNED else "periodic"
    )


TURNED = {"frequencies", "encodings"}


@pytest.mark.parametrize("kind", ["T5", "ALiBi"])
def test_a_line_closed_to_a_ring_has_its_relation_in_closed_form(kind):
    network, state = Network(kind, (layer(**KINDS[kind][0]),) * 2), np.linspace(-1, 1, D)
    line = check(network, state, 9)
    assert line.confirmed
    assert line.line.error.max() < 1e-9
    ring = check(network, state, 9, boundary="periodic")
    assert ring.confirmed
    assert (ring.source, ring.line) == ("blocks", None)
    assert ring.verdict.startswith("confirmed for the layers closed to a ring to ")
    block = network.blocks(9)[0]
    from models import to_torch

    measured = measure(to_torch(block), state, 9)
    np.testing.assert_allclose(dispersion_relation(block, state).matrices, measured.matrices, atol=1e-13)


def test_layer_scale_is_part_of_the_map_before_it():
    gain, weight, bias = RNG.normal(size=D), RNG.normal(size=(D, 3)), RNG.normal(size=D)
    x = RNG.normal(size=3)
    scaled_weight, scaled_bias = scaled(gain, weight, bias)
    np.testing.assert_allclose(scaled_weight @ x + scaled_bias, gain * (weight @ x + bias), rtol=1e-14)
    assert scaled(None, weight, bias) == (weight, bias)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 5}, "5 heads for 12 query features"),
        ({"frequencies": np.ones(4)}, "8 rotary features; accepted: at most 6"),
        ({"encodings": (Alibi(1.0),)}, "1 positional encodings; accepted: 2"),
    ],
)
def test_what_is_no_layer(fields, message):
    with pytest.raises(ArgumentError, match=message):
        replace(layer(), **fields)
