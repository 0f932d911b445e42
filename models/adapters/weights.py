"""Weight files of trained networks: read safely, every tensor taken once, cast to float64."""

from __future__ import annotations

import json
import os
import re
import reprlib
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dispersion.errors import ArgumentError, frozen
from models.adapters.settings import MOST

Floats = NDArray[np.float64]

SAFE = "2.10"
"""The first PyTorch whose reader of weights alone has no known way to run code of the file."""
HALVES = (torch.float16, torch.bfloat16)
NUMBERS = "float16, bfloat16, float32 or float64"
HEAVIEST = 1e15
"""The largest weight: beside a larger one the 1 of a residual connection is lost in float64."""
DEEPEST = 4
"""How many mappings deep in a checkpoint a state dict may lie."""
FOLDER = ("model.safetensors", "pytorch_model.bin")
"""The file of weights in a folder, the first that is there; with .index.json after it a list of such files."""
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Ends of names in the first checkpoints, and what they are now."""
NESTED = ("state_dict", "model_state_dict", "model", "module")
"""Names under which training scripts keep the state dict in a checkpoint."""


def read_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """The tensors by name in the file `path`: .safetensors, or a state dict saved by torch (read with weights_only).

    A state dict inside a checkpoint, under 'state_dict', 'model_state_dict', 'model' or 'module', is found. A folder of
    `save_pretrained` has its weights in a file of FOLDER, or in those that an index names.
    """
    path = Path(path)
    if path.is_dir():
        return {name: tensor for file in files_in(path) for name, tensor in read_tensors(file).items()}
    if not path.is_file():
        raise ArgumentError("checkpoint", f"{str(path)!r} (no such file)", "a .safetensors, .bin, .pt or .pth file")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if torch.torch_version.TorchVersion(torch.__version__) < SAFE:
        accepted = "a .safetensors file, or PyTorch 2.10 or newer: older ones can be made to run code of such a file"
        raise ArgumentError("checkpoint", f"{path.name!r} with PyTorch {torch.__version__}", accepted)
    _refuse_compressed(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises whatever its unpickler met
        first = re.split(r"[.\n]", str(error))[0].strip() or type(error).__name__
        accepted = "a state dict of tensors saved by torch.save, readable with weights_only=True"
        raise ArgumentError("checkpoint", f"{path.name!r} ({first})", accepted) from None
    for _ in range(DEEPEST):
        if not isinstance(content, Mapping) or _is_state(content):
            break
        inner = (content[name] for name in NESTED if isinstance(content.get(name), Mapping))
        content = next(inner, content)
    if not isinstance(content, Mapping) or not _is_state(content):
        found = (
            type(content).__name__ if not isinstance(content, Mapping) else f"keys {reprlib.repr(list(content)[:5])}"
        )
        raise ArgumentError("checkpoint", f"{path.name!r} with {found}", "a state dict: tensors by name")
    return {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, torch.Tensor)}


class Weights:
    """The tensors of a checkpoint of one family, by their names after what stands before the family's own names.

    tensors : by name. family : what they are called. prefix : what stands before them.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], family: str, prefix: str = "") -> None:
        self.family, self.prefix, self.notes = family, prefix, list[str]()
        self.cast: dict[str, torch.Tensor] = {}
        """Those that were taken, in float64."""
        self._arrays: dict[str, Floats] = {}
        own = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
        self._tensors = {_renamed(name): value for name, value in own.items()}
        self._left = set(self._tensors)
        half = sorted({str(value.dtype)[6:] for value in self._tensors.values() if value.dtype in HALVES})
        if half:
            self.notes.append(
                f"the checkpoint is in half precision ({', '.join(half)}): its weights are cast to float64"
            )

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str) -> torch.Tensor | None:
        """The tensor `name` in float64 if it is of real numbers, as it is if not, or None if it is not there."""
        if name in self.cast:
            return self.cast[name]
        tensor = self._tensors.get(name)
        if tensor is None or not tensor.dtype.is_floating_point:
            return tensor
        return tensor.detach().resolve_neg().to(torch.float64)

    def names(self, pattern: str) -> list[str]:
        """The names that `pattern`, a regular expression, matches from their start."""
        return sorted(name for name in self._tensors if re.match(pattern, name))

    def count(self, pattern: str) -> int:
        """1 + the largest number that `pattern`, with one group of digits, finds in a name."""
        numbers = [found[1] for name in self._tensors if (found := re.match(pattern, name))]
        # no network has so many layers: `finish` refuses what is left
        return 1 + max((int(number) for number in numbers if len(number) < len(str(MOST))), default=-1)

    def take(self, name: str, *shape: int | None) -> Floats:
        """The tensor `name` in float64, of this `shape` (None: any size); an ArgumentError says if it is not there."""
        if name not in self._arrays:
            self._arrays[name] = self._array(name)
        array = self._arrays[name]
        fits = array.ndim == len(shape) and all(
            want in (None, size) for want, size in zip(shape, array.shape, strict=True)
        )
        if shape and not fits:
            described = ", ".join("any" if size is None else str(size) for size in shape)
            raise ArgumentError("checkpoint", f"{self.prefix}{name} of shape {array.shape}", f"shape ({described})")
        return array

    def _array(self, name: str) -> Floats:
        """The tensor `name` in float64, read-only; a tensor of `cast` shares its memory."""
        if name not in self._tensors:
            raise ArgumentError(
                "checkpoint", f"no tensor {self.prefix}{name}", f"every weight of a {self.family} layer"
            )
        tensor = self._tensors[name]
        self._left.discard(name)
        kind = _unusual(tensor)
        if kind is not None:
            raise ArgumentError("checkpoint", f"{self.prefix}{name} {kind}", NUMBERS)
        # memory of its own that blocks share, for it is read-only to all but the tensor
        made = np.empty(tuple(tensor.shape))
        self.cast[name] = torch.from_numpy(made).copy_(tensor.detach())
        largest = float(torch.linalg.vector_norm(self.cast[name], torch.inf))
        if not np.isfinite(largest):
            raise ArgumentError("checkpoint", f"{self.prefix}{name} with NaN or infinity", "finite weights")
        if largest > HEAVIEST:
            got = f"{self.prefix}{name} with {largest:.3g}"
            raise ArgumentError("checkpoint", got, f"weights of at most {HEAVIEST:g}")
        self._tensors[name] = self.cast[name]  # what it was cast from may go
        return frozen(made)

    def find(self, name: str, *shape: int | None) -> Floats | None:
        """The tensor `name` as `take` gives it, of this `shape`, or None if it is not there."""
        return self.take(name, *shape) if name in self._tensors else None

    def let_go(self) -> None:
        """Keep what was not taken apart from the file, which may go then."""
        for name in self._left:
            self._tensors[name] = self._tensors[name].clone()

    def linear(
        self, name: str, rows: int | None, columns: int | None, biased: bool | None = None
    ) -> tuple[Floats, Floats | None]:
        """(W, b) of the linear map `name`, W of `rows` and `columns` (None: any), b None without a bias; `biased` is
        whether it has one, None for as it is.
        """
        weight = self.take(f"{name}.weight", rows, columns)
        if biased is None:
            biased = f"{name}.bias" in self
        return weight, self.take(f"{name}.bias", len(weight)) if biased else None

    def finish(self, pattern: str, ignored: str = r"(?!)") -> None:
        """Refuse tensors of the layers that were not taken: names that `pattern` matches and `ignored` does not."""
        left = sorted(name for name in self._left if re.match(pattern, name) and not re.search(ignored, name))
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            accepted = f"layers of a plain {self.family} network, which have no such weight"
            raise ArgumentError("checkpoint", f"{self.prefix}{left[0]}{more}", accepted)


def files_in(folder: Path) -> list[Path]:
    """The files of weights in a `folder`; an ArgumentError if there are none."""
    for name in FOLDER:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return [folder / name]
        if index.is_file():
            return [folder / part for part in _parts(index)]
    accepted = f"one with {' or '.join(FOLDER)}, or a list of its parts in a file of that name and .index.json"
    raise ArgumentError("checkpoint", f"the folder {str(folder)!r}, which holds none of the files looked for", accepted)


def _parts(index: Path) -> list[str]:
    """The names of files that `index` lists, none of them of another folder."""
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if parts and all(Path(part).name == part for part in parts):
            return parts
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        pass
    raise ArgumentError("checkpoint", f"{str(index)!r}", "a JSON list of files beside it, weight_map by name") from None


def _renamed(name: str) -> str:
    """`name` as it is now, of a norm in the first checkpoints of BERT."""
    for old, new in OLD.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _unusual(tensor: torch.Tensor) -> str | None:
    """What keeps `tensor` from being numbers in memory, as many as it says; None if it is such."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return f"that is {'quantised' if tensor.is_quantized else 'nested' if tensor.is_nested else 'sparse'}"
    if not tensor.dtype.is_floating_point or tensor.element_size() < 2:
        return f"of {str(tensor.dtype)[6:]}"
    if tensor.device.type != "cpu":
        return f"on the device {tensor.device.type}, without numbers"
    if tensor.numel() == 0 or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"of shape {tuple(tensor.shape)}, more or less than it stores"
    return None


def _refuse_compressed(path: Path) -> None:
    """Refuse a zip file whose members are compressed or overlap: torch.save writes none, and they may swell."""
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                return
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except Exception as error:  # whatever the archive says
        first = str(error) or type(error).__name__
        raise ArgumentError("checkpoint", f"{path.name!r} ({first})", "a file that torch.save wrote") from None
    stored = all(info.compress_type == zipfile.ZIP_STORED for info in members)
    if not stored or sum(info.file_size for info in members) > path.stat().st_size:
        raise ArgumentError("checkpoint", f"{path.name!r}, compressed", "a file that torch.save wrote")


def _is_state(content: Mapping[Any, Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in content.values())


def prefix_of(tensors: Iterable[str], anchor: str) -> str | None:
    """What stands before the name that `anchor`, a regular expression, matches; None if no name does."""
    found = (re.fullmatch(rf"(|.*?\.){anchor}", name) for name in tensors)
    return min((match[1] for match in found if match), key=len, default=None)


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        accepted = "the safetensors package: pip install 'tokenwaves[torch]'"
        raise ArgumentError("checkpoint", f"{path.name!r} without safetensors installed", accepted) from None
    try:
        return dict(load_file(path))
    except Exception as error:  # the reader has exceptions of its own
        raise ArgumentError("checkpoint", f"{path.name!r} ({error})", "a .safetensors file") from None
