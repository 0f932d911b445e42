"""Networks as torch.export programs, files that run with PyTorch alone.

program = torch.export.load("block.pt2")
y = program.module()(x)                     # x (B, N, d), any B
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export.passes import move_to_device_pass

from dispersion.errors import ArgumentError, whole_number
from dispersion.files import reason, replacing

NOTE = "tokenwaves.json"
"""The file inside a program that holds its shape and boundary."""


class Program(nn.Module):
    """A program that `load_program` read: (…, N, d) → (…, N, d).

    module : the network on (B, N, d). shape : (N,) or (N_1, …, N_D); d : features; boundary : 'periodic', 'open' or
    'causal'; dtype : of its states.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, ...], d: int, boundary: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = module
        self.shape, self.d, self.boundary, self.dtype = shape, d, boundary, dtype

    def forward(self, x: Tensor) -> Tensor:
        """F(X) of states `x` (…, N, d), the same shape."""
        result: Tensor = self.network(x.reshape(-1, *x.shape[-2:]))
        return result.reshape(x.shape)


def save_program(
    module: nn.Module,
    path: str | os.PathLike[str],
    shape: tuple[int, ...] | int | None = None,
    d: int | None = None,
    boundary: str | None = None,
) -> None:
    """Write `module` to the file `path`, NAME.pt2: a torch.export program of states (B, N, d), any B.

    module : an nn.Module (B, N, d) → (B, N, d), in eval mode if it has one. shape : N, (N,) or (N_1, …, N_D) of its
    tokens; d : features; boundary : 'periodic', 'open' or 'causal'. Each may be left out if the module has an attribute
    of that name, as those of `to_torch` and `load_program` do; boundary is else 'periodic'.
    The file is replaced whole or not at all. An ArgumentError says what cannot be used or exported.
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise ArgumentError("path", repr(str(path)), "a name that ends in .pt2")
    if not isinstance(module, nn.Module):
        raise ArgumentError("module", type(module).__name__, "an nn.Module")
    grid = getattr(module, "shape", None) if shape is None else shape
    features = getattr(module, "d", None) if d is None else d
    ends = getattr(module, "boundary", "periodic") if boundary is None else boundary
    if grid is None or features is None:
        raise ArgumentError("shape", shape, "the shape and d of the states, which this module does not tell")
    axes = tuple(whole_number("shape", axis, 1) for axis in (grid if isinstance(grid, tuple | list) else (grid,)))
    n, features = torch.Size(axes).numel(), whole_number("d", features, 1)
    first = next(module.parameters(), torch.zeros((), dtype=torch.float64))
    # two states: a batch of one would be taken for a constant
    example = torch.zeros(2, n, features, dtype=first.dtype, device=first.device)
    note = {"shape": axes, "d": features, "boundary": ends, "dtype": str(first.dtype).removeprefix("torch.")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
            content = io.BytesIO()
            torch.export.save(program, content, extra_files={NOTE: json.dumps(note)})
    except ArgumentError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ArgumentError("module", got, f"a module of (B, {n}, {features}) that torch.export can export") from error
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content.getvalue())
    except OSError as error:
        raise ArgumentError("path", f"{str(path)!r} ({reason(error)})", "a file that can be written") from None


def load_program(path: str | os.PathLike[str], device: str | torch.device | None = None) -> Program:
    """The program in the file `path` as a module (…, N, d) → (…, N, d), with its shape, d and boundary.

    device : where it runs, the CPU by default. An ArgumentError says if the file is none that `save_program` wrote, or
    the device is not there.
    """
    extra = {NOTE: ""}
    accepted = "a file that save_program wrote"
    try:
        content = Path(path).read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            ours = any(name.endswith(f"/{NOTE}") for name in archive.namelist())
        if not ours:
            raise ArgumentError("path", f"{str(path)!r}, without {NOTE}", accepted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(io.BytesIO(content), extra_files=extra)
        note = json.loads(extra[NOTE])
    except ArgumentError:
        raise
    except OSError as error:
        raise ArgumentError("path", f"{str(path)!r} ({reason(error)})", accepted) from None
    except Exception as error:
        raise ArgumentError("path", f"{str(path)!r} ({type(error).__name__})", accepted) from error
    place = torch.device("cpu" if device is None else device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device", repr(str(device)), "'cpu': PyTorch finds no GPU here")
    program = move_to_device_pass(program, place)
    dtype = getattr(torch, note["dtype"])
    return Program(program.module(), tuple(note["shape"]), note["d"], note["boundary"], dtype)
