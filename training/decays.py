"""Adam for networks side by side, each with a weight decay of its own, coupled or decoupled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Decays = Mapping[str, Tensor]
"""(M,) weight decay of each copy, by the name of a parameter; none where a name is missing."""


class StackedAdam(torch.optim.Adam):
    """Adam number by number, where copies differ in weight decay: Adam with `coupled`, AdamW with `decoupled`.

    Coupled decay λ adds λθ to the gradient before Adam normalises it, as torch.optim.Adam does; decoupled decay
    multiplies θ by 1 − rate·λ, as torch.optim.AdamW does.

    Parameters
    ----------
    net : nn.Module
        Its parameters list the copies along their first axis.
    rate : float
        The learning rate.
    coupled, decoupled : mapping
        (M,) Tensor by the name of a parameter.
    """

    def __init__(self, net: nn.Module, rate: float, coupled: Decays, decoupled: Decays) -> None:
        named = {name: weights for name, weights in net.named_parameters() if weights.requires_grad}
        super().__init__(named.values(), lr=rate, fused=True)
        self._coupled, self._decoupled = (_broadcast(named, decays) for decays in (coupled, decoupled))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; `closure` is not used.

        Parameters
        ----------
        closure : None
            Of the interface of PyTorch.
        """
        rate = self.param_groups[0]["lr"]
        for weights, decay in self._coupled:
            if weights.grad is not None:
                weights.grad.addcmul_(weights, decay)
        for weights, decay in self._decoupled:
            weights.addcmul_(weights, decay, value=-rate)
        return super().step(closure)


def _broadcast(named: Mapping[str, nn.Parameter], decays: Decays) -> list[tuple[nn.Parameter, Tensor]]:
    """Parameters that decay in some copy, each with a tensor that broadcasts to it."""
    found = []
    for name, each in decays.items():
        weights = named.get(name)
        if weights is not None and each.any():
            decay = each.to(weights).view(-1, *[1] * (weights.ndim - 1))
            found.append((weights, decay))
    return found
