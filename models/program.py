"""Networks as torch.export programs: files that run with PyTorch alone, and what we ourselves read of them.

program = torch.export.load("block.pt2")
y = program.module()(x)                     # x (B, N, d), any B

`torch.export.load` unpickles parts of the file and evaluates others: whoever wrote it can have any code run. The
program of a block therefore holds the block too, as text and arrays, and `load_program` reads that and nothing else.
"""

from __future__ import annotations

import base64
import io
import json
import os
import warnings
import zipfile
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from torch import Tensor, nn
from torch.export.passes import move_to_device_pass

from dispersion import Block
from dispersion.atomic import replacing
from dispersion.block.toml_reader import reason
from dispersion.errors import ArgumentError, file_path, shown, whole_number
from dispersion.line.chain import BOUNDARIES
from models.device import usable
from models.inputs import one_line
from models.module import export, to_torch

NOTE = "tokenwaves.json"
"""The file inside a program that holds its `Note`."""
DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
"""What the states of a program may be in, by name."""
OURS = "a file that save_program wrote"
TRUST = "the program of a block; trust=True runs any other, with whatever code its author put into it"


class Program(nn.Module):
    """A program that `load_program` read: (…, N, d) → (…, N, d).

    Parameters
    ----------
    module : nn.Module
        The network on (B, N, d).
    shape : tuple of int
        (N,) or (N_1, …, N_D).
    d : int
        Number of features.
    boundary : {'periodic', 'open', 'causal'}
        The ends of the tokens.
    dtype : torch.dtype
        Of its states.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, ...], d: int, boundary: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = module
        self.shape, self.d, self.boundary, self.dtype = shape, d, boundary, dtype

    def forward(self, x: Tensor) -> Tensor:
        """F(X) of states, the same shape.

        Parameters
        ----------
        x : (…, N, d) Tensor
            The states.
        """
        result: Tensor = self.network(x.reshape(-1, *x.shape[-2:]))
        return result.reshape(x.shape)

    def to_block(self) -> Block:
        """The Block that it computes, if it was built from one."""
        return export(self.network)


@dataclass(frozen=True)
class Note:
    """What a program says of itself, checked, for anyone may have written it.

    shape, d, boundary, dtype : as of a `Program`, dtype by name. toml, npz : the files of the block it was made from,
    npz in base64 and empty without large arrays; toml is empty if it was made from no block.
    """

    shape: tuple[int, ...]
    d: int
    boundary: str
    dtype: str
    toml: str = ""
    npz: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.shape, list | tuple) or not self.shape:
            raise ArgumentError("shape", repr(self.shape), "(N,) or (N_1, …, N_D)")
        object.__setattr__(self, "shape", tuple(whole_number("shape", axis, 1) for axis in self.shape))
        whole_number("d", self.d, 1)
        for name, accepted in (("boundary", BOUNDARIES), ("dtype", DTYPES)):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in accepted:
                raise ArgumentError(name, repr(value), ", ".join(accepted))
        if not isinstance(self.toml, str) or not isinstance(self.npz, str):
            raise ArgumentError("toml", type(self.toml).__name__, "the text of a block")

    @classmethod
    def read(cls, content: bytes) -> Note:
        """The note in the program with this `content`; an ArgumentError if there is none, or not such a one."""
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            found = [info for info in archive.infolist() if info.filename.endswith(f"/{NOTE}")]
            if len(found) != 1 or found[0].compress_type != zipfile.ZIP_STORED:
                raise ArgumentError(NOTE, f"{len(found)} of them, or a compressed one", "one, not compressed")
            entries = json.loads(archive.read(found[0]))
        names = [field.name for field in fields(cls)]
        if not isinstance(entries, dict) or not set(names[:4]) <= set(entries) <= set(names):
            raise ArgumentError(NOTE, shown(entries), f"an object of {', '.join(names)}")
        return cls(**entries)

    @property
    def n(self) -> int:
        """Number of tokens."""
        return prod(self.shape)

    def block(self) -> Block:
        """The block that the program was made from."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "block.toml"
            file.write_text(self.toml, encoding="utf-8", newline="\n")
            if self.npz:
                file.with_suffix(".npz").write_bytes(base64.b64decode(self.npz, validate=True))
            return Block.load(file)

    def network(self, device: torch.device) -> nn.Module:
        """The map of that block on the tokens of the program, on a `device`."""
        block = self.block()
        chained = self.boundary != "periodic" or self.shape != block.shape
        net = to_torch(block, self.boundary, self.n if chained else None, DTYPES[self.dtype], device)
        if (net.shape, net.d) != (self.shape, self.d):
            raise ArgumentError("shape", f"{self.shape} and d = {self.d}", f"{net.shape} and {net.d}, as its block has")
        return net


def save_program(
    module: nn.Module,
    path: str | os.PathLike[str],
    shape: tuple[int, ...] | int | None = None,
    d: int | None = None,
    boundary: str | None = None,
) -> None:
    """Write a module to a file NAME.pt2: a torch.export program of states (B, N, d), any B.

    The file also holds the block of a module that `export` takes, so that `load_program` need not run its code.
    The file is replaced whole or not at all.

    Parameters
    ----------
    module : nn.Module
        (B, N, d) → (B, N, d), in eval mode if it has one.
    path : path-like
        NAME.pt2.
    shape : int or tuple of int, optional
        N, (N,) or (N_1, …, N_D) of its tokens. Like `d` and `boundary` it may be left out if the module has an
        attribute of that name, as those of `to_torch` and `load_program` do.
    d : int, optional
        Number of features.
    boundary : {'periodic', 'open', 'causal'}, optional
        The ends of the tokens, 'periodic' if neither this nor the module says.

    Raises
    ------
    ArgumentError
        Says what cannot be used or exported.
    """
    path = file_path("path", path)
    if path.suffix != ".pt2":
        raise ArgumentError("path", repr(str(path)), "a name that ends in .pt2")
    if not isinstance(module, nn.Module):
        raise ArgumentError("module", type(module).__name__, "an nn.Module")
    grid = getattr(module, "shape", None) if shape is None else shape
    features = getattr(module, "d", None) if d is None else d
    ends = getattr(module, "boundary", "periodic") if boundary is None else boundary
    if grid is None or features is None:
        raise ArgumentError("shape", shape, "the shape and d of the states, which this module does not tell")
    first = next(module.parameters(), torch.zeros((), dtype=torch.float64))
    axes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    note = Note(axes, features, ends, str(first.dtype).removeprefix("torch."))
    # two states: a batch of one would be taken for a constant
    example = torch.zeros(2, note.n, note.d, dtype=first.dtype, device=first.device)
    try:
        note = _with_block(note, module, example)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
            content = io.BytesIO()
            torch.export.save(program, content, extra_files={NOTE: json.dumps(asdict(note))})
    except ArgumentError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {one_line(error)}"
        accepted = f"a module of (B, {note.n}, {note.d}) that torch.export can export"
        raise ArgumentError("module", got, accepted) from error
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content.getvalue())
    except OSError as error:
        raise ArgumentError("path", f"{str(path)!r} ({reason(error)})", "a file that can be written") from None


def load_program(
    path: str | os.PathLike[str], device: str | torch.device | None = None, trust: bool = False
) -> Program:
    """The program in a file as a module (…, N, d) → (…, N, d), with its shape, d and boundary.

    Parameters
    ----------
    path : path-like
        A file that `save_program` wrote.
    device : str or torch.device, optional
        Where it runs, the CPU by default.
    trust : bool
        False builds it from the block in the file, which runs no code of the file, and refuses a program without one;
        True runs the program itself, with whatever code its author put in.

    Returns
    -------
    Program
        In the dtype that it was saved in.

    Raises
    ------
    ArgumentError
        If the file is none that `save_program` wrote, or the device is not there.
    """
    if not isinstance(trust, bool):
        raise ArgumentError("trust", repr(trust), "True or False")
    file, place = file_path("path", path), usable(device)
    try:
        content = file.read_bytes()
        note = Note.read(content)
        if not (trust or note.toml):
            raise ArgumentError("path", f"{str(path)!r}, which holds no block", TRUST)
        module = _run(content, place) if trust else note.network(place)
    except ArgumentError as error:
        if error.argument == "path":
            raise
        raise ArgumentError("path", f"{str(path)!r} ({error.argument}: got {error.got})", OURS) from None
    except OSError as error:
        raise ArgumentError("path", f"{str(path)!r} ({reason(error)})", OURS) from None
    except Exception as error:
        raise ArgumentError("path", f"{str(path)!r} ({type(error).__name__})", OURS) from error
    return Program(module, note.shape, note.d, note.boundary, DTYPES[note.dtype])


def _with_block(note: Note, module: nn.Module, example: Tensor) -> Note:
    """`note` with the block of `module`, if it has one that computes the same on states like the `example`."""
    try:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "block.toml"
            export(module).save(file)
            arrays = file.with_suffix(".npz")
            packed = base64.b64encode(arrays.read_bytes()).decode() if arrays.exists() else ""
            full = replace(note, toml=file.read_text(encoding="utf-8"), npz=packed)
        x = torch.linspace(-1, 1, example.numel()).to(example).reshape(example.shape)
        near = torch.finfo(x.dtype).eps ** 0.5
        with torch.no_grad():
            same = torch.allclose(full.network(example.device)(x), module(x), rtol=near, atol=near)
    except ArgumentError:
        same = False
    return full if same else note


def _run(content: bytes, device: torch.device) -> nn.Module:
    """The module of the torch.export program with this `content`: runs code of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(io.BytesIO(content))
    return cast(nn.Module, move_to_device_pass(program, device).module())
