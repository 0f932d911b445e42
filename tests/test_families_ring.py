"""J(q) on a ring from the kernel in closed form is that of the reference's layers, given their bias by wrapped lag."""

import importlib.util

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("transformers") is None:
    pytest.skip("needs the reference implementations: transformers < 5", allow_module_level=True)

from families import tiny  # noqa: E402

from dispersion import Alibi, Kernel, dispersion_relation  # noqa: E402
from models.adapters.double import lifted  # noqa: E402
from models.families import from_module, network_from  # noqa: E402


def wrapped(n):
    """(n, n) key − query on a ring, −n/2 ≤ δ < n/2."""
    token = torch.arange(n)
    return (token[None] - token[:, None] + n // 2) % n - n // 2


def t5(model, n):
    attention = model.encoder.block[0].layer[0].SelfAttention
    bucket = attention._relative_position_bucket(wrapped(n))
    bias = attention.relative_attention_bias(bucket).permute(2, 0, 1)[None]
    return [lambda x, block=block: block(x[None], position_bias=bias)[0][0] for block in model.encoder.block]


def mpnet(model, n):
    encoder = model.encoder
    bias = encoder.relative_attention_bias(encoder.relative_position_bucket(wrapped(n))).permute(2, 0, 1)[None]
    return [lambda x, layer=layer: layer(x[None], position_bias=bias)[0][0] for layer in encoder.layer]


def bloom(model, n):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    slopes = build_alibi_tensor(torch.ones(1, 2), model.config.n_head, torch.float64)[:, 0, 1]
    bias = -slopes[:, None, None] * wrapped(n).abs()
    return [lambda x, block=block: block(x[None], alibi=bias, attention_mask=None)[0][0] for block in model.h]


def mpt(model, n):
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    slopes = -build_mpt_alibi_tensor(model.config.n_heads, 2)[:, 0, 0]
    bias = -slopes[:, None, None] * wrapped(n).abs()
    return [
        lambda x, block=block: block(x[None], position_bias=bias, attention_mask=None)[0][0] for block in model.blocks
    ]


def two_sided(model):
    """The network of a decoder's weights under settings of one's own, which say that it sees both sides."""
    settings = {name: value for name, value in model.config.to_dict().items() if name != "model_type"}
    if settings.get("attn_config"):
        settings["attn_config"] = {"alibi_bias_max": settings["attn_config"]["alibi_bias_max"]}
    for name in ("use_cache", "transformers_version"):
        settings.pop(name, None)
    return network_from(model.state_dict(), model.config.model_type, settings | {"is_causal": False})


RINGS = {"t5": t5, "t5 gated": t5, "mpnet": mpnet, "bloom": bloom, "bloom of 6 heads": bloom, "mpt": mpt}


@pytest.mark.parametrize("n", [7, 8])
@pytest.mark.parametrize("kind", RINGS)
def test_growth_on_a_ring(kind, n):
    network = two_sided(tiny(kind)) if kind.startswith(("bloom", "mpt")) else from_module(tiny(kind))
    assert network.boundary == "open"
    state = np.random.default_rng(0).normal(size=network.d)
    q = 2 * np.pi * np.arange(n) / n
    model = tiny(kind).double()
    x = torch.tensor(np.tile(state, (n, 1)))
    for block, layer in zip(network.blocks(n), RINGS[kind](model, n), strict=True):
        with lifted():
            derivative = torch.autograd.functional.jacobian(layer, x).numpy()
        for row in range(n):  # a function of the lag alone
            np.testing.assert_allclose(
                np.roll(derivative[:, :, row], -row, axis=0),
                derivative[:, :, 0],
                rtol=0,
                atol=1e-12 * np.abs(derivative).max(),
            )
        expected = np.einsum("kr,rij->kij", np.exp(-1j * np.outer(q, np.arange(n))), derivative[:, :, 0])
        found = dispersion_relation(block, state)(q)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        with lifted(), torch.no_grad():
            x = layer(x)
        np.testing.assert_allclose(block.homogeneous_map(state), x[0].numpy(), rtol=0, atol=1e-9 * float(x.abs().max()))
        state = x[0].numpy()


def test_the_kernels_are_those_of_the_encodings():
    network = from_module(tiny("t5"))
    table = tiny("t5").encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    for number, head in enumerate(network.blocks(300)[1].heads):
        expected = Kernel.t5(300, table[:, number].detach().double().numpy())
        np.testing.assert_array_equal(head.kernel.logits, expected.logits)
    slopes = [head.kernel.encoding.slope for head in from_module(tiny("bloom")).blocks(9)[0].heads]
    assert slopes == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    for head in two_sided(tiny("bloom")).blocks(9)[0].heads:
        assert isinstance(head.kernel.encoding, Alibi)
        assert not head.kernel.causal
