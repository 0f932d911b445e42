"""Adam with a weight decay of each copy against the Adam and AdamW of PyTorch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_encoders import encoder, tokens  # noqa: E402

from training.decays import StackedAdam  # noqa: E402
from training.encoders import Encoders  # noqa: E402

WAYS = [(torch.optim.Adam, 0.3), (torch.optim.AdamW, 0.3), (torch.optim.Adam, 0.0), (torch.optim.Adam, 0.05)]
"""The optimiser of each copy, with its decay of all but the masks."""


def trained(net, optimiser, inputs):
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 6)
    for _ in range(6):
        optimiser.zero_grad(set_to_none=True)
        (net(inputs) - 1).square().flatten(1).mean(1).sum().backward()
        optimiser.step()
        net.hold()
        schedule.step()
    return net.encoders()


def test_each_copy_is_trained_as_by_its_own_optimiser():
    each = [encoder(seed) for seed in range(len(WAYS))]
    inputs = torch.tensor(tokens(1, each[0]))
    net = Encoders(each, dtype=torch.float64)
    decays = [
        {
            name: torch.tensor([decay * (kind is way and "mask" not in name) for way, decay in WAYS])
            for name, _ in net.named_parameters()
        }
        for kind in (torch.optim.Adam, torch.optim.AdamW)
    ]
    together = trained(net, StackedAdam(net, 0.02, *decays), inputs)
    for made, (way, decay), found in zip(each, WAYS, together, strict=True):
        alone = Encoders([made], dtype=torch.float64)
        named = dict(alone.named_parameters())
        groups = [
            {"params": [weights for name, weights in named.items() if "mask" not in name], "weight_decay": decay},
            {"params": [named["numbers.mask"]], "weight_decay": 0.0},
        ]
        (wanted,) = trained(alone, way(groups, lr=0.02), inputs)
        for name in ("embedding", "query", "mask", "weight_out", "readout"):
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-9, err_msg=name)
            assert np.abs(getattr(found, name) - getattr(made, name)).max() > 1e-3


def test_what_is_held_stays_to_the_last_bit():
    each = [encoder(seed) for seed in range(2)]
    net = Encoders(each, frozen=[("mask", "query"), ()], dtype=torch.float64)
    everything = {name: torch.full((2,), 0.5) for name, _ in net.named_parameters()}
    first, second = trained(net, StackedAdam(net, 0.02, everything, everything), torch.tensor(tokens(1, each[0])))
    assert np.array_equal(first.mask, each[0].mask)
    assert np.array_equal(first.query, each[0].query)
    assert not np.array_equal(first.key, each[0].key)
    assert not np.array_equal(second.mask, each[1].mask)
