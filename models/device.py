"""Where the tensors live."""

from __future__ import annotations

import warnings

import torch

from dispersion import ArgumentError


def usable(device: str, argument: str = "--device") -> torch.device:
    """The torch device called `device`; an ArgumentError says in one line if float64 cannot be computed on it here.

    argument : what the error calls it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.device(device)
            torch.ones(1, dtype=torch.float64, device=found).sum().item()
    except Exception:  # each kind of device has its own ways to be absent
        accepted = "cpu; cuda on a machine with a GPU that PyTorch can use"
        raise ArgumentError(argument, f"{device!r}, which this machine does not have", accepted) from None
    return found
