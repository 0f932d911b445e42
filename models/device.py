"""Where the tensors live."""

from __future__ import annotations

import warnings

import torch

from dispersion import ArgumentError


def usable(device: str | torch.device | None) -> torch.device:
    """The torch device called `device`, the CPU if None; an ArgumentError where it cannot compute in float64."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.device("cpu" if device is None else device)
            torch.ones(1, dtype=torch.float64, device=found).sum().item()
    except Exception:  # each kind of device has its own ways to be absent
        accepted = "cpu; cuda on a machine with a GPU that PyTorch can use"
        raise ArgumentError("device", f"{str(device)!r}, which this machine does not have", accepted) from None
    return found
