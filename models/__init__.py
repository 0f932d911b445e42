"""Real networks: PyTorch modules of blocks and back, J(q) measured on any callable, and ConViT.

The names need PyTorch, the extra [torch], and are loaded when first used; `import models` works without it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.convit import ConViT
    from models.differentiable import growth, jacobian
    from models.measured import Measured, measure
    from models.module import export, to_torch
    from models.program import Program, load_program, save_program

_HOME = {
    "ConViT": "convit",
    "Measured": "measured",
    "Program": "program",
    "export": "module",
    "growth": "differentiable",
    "jacobian": "differentiable",
    "load_program": "program",
    "measure": "measured",
    "save_program": "program",
    "to_torch": "module",
}
"""The module of each name."""

INSTALLED = find_spec("torch") is not None
"""Whether PyTorch is installed; without it nothing is exported."""

__all__ = [
    "ConViT",
    "Measured",
    "Program",
    "export",
    "growth",
    "jacobian",
    "load_program",
    "measure",
    "save_program",
    "to_torch",
]
if not INSTALLED:
    __all__.clear()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'models' has no attribute {name!r}")
    if not INSTALLED:
        raise ImportError("models needs PyTorch: pip install 'tokenwaves[torch]'")
    return getattr(import_module(f"models.{_HOME[name]}"), name)
