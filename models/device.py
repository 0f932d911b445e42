"""Where the tensors live."""

from __future__ import annotations

import torch

from dispersion import ArgumentError


def usable(device: str) -> torch.device:
    """The torch device called `device`; an ArgumentError says in one line if this machine does not have it."""
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError):
        accepted = "cpu; cuda on a machine with a GPU that PyTorch can use"
        raise ArgumentError("--device", f"{device!r}, which this machine does not have", accepted) from None
    return found
