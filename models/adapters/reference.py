"""The reference implementation of a family: built from its settings, and its layers as they are called.

Hooks see every call of a layer in a forward pass of the whole network, with the masks, rotations and biases that the
network hands it; the same call with other hidden states is the map of the layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

Run = Callable[[nn.Module, int], Tensor]


def of_tokens(model: nn.Module, n: int) -> Tensor:
    """(1, n, d) what a text model makes of `n` tokens.

    Parameters
    ----------
    model : nn.Module
        Of transformers.
    n : int
        Number of tokens.
    """
    result: Tensor = model(input_ids=token_ids(model, n)).last_hidden_state
    return result


def token_ids(model: Any, n: int) -> Tensor:
    """(1, n) tokens of the vocabulary of `model`, none of them its padding.

    Parameters
    ----------
    model : nn.Module
        Of transformers.
    n : int
        How many.
    """
    vocabulary, padding = model.get_input_embeddings().num_embeddings, getattr(model.config, "pad_token_id", None)
    known = torch.tensor([token for token in range(min(vocabulary, 1000)) if token != padding])
    return known[(7 * torch.arange(n) + 3) % len(known)][None]


def of_pixels(model: Any, n: int) -> Tensor:
    """(1, N, d) what a vision model makes of a random image, whose size says N.

    Parameters
    ----------
    model : nn.Module
        Of transformers.
    n : int
        Not used.
    """
    size, generator = model.config.image_size, torch.Generator().manual_seed(0)
    height, width = (size, size) if isinstance(size, int) else size
    pixels = torch.randn(1, model.config.num_channels, height, width, generator=generator, dtype=torch.float64)
    result: Tensor = model(pixel_values=pixels).last_hidden_state
    return result


@dataclass(frozen=True)
class Reference:
    """Where the layers of a reference implementation are.

    Parameters
    ----------
    layers : str
        A regular expression for the names of the modules that are its layers, as `named_modules` has them.
    run : callable
        Runs a model on n tokens, and gives its last hidden states.
    model : str
        The class in transformers that is built from the settings, 'AutoModel' for the one of the model_type.
    package : str
        Where it is from.
    renamed : callable or None
        From settings to settings, where those of the installed version have other names.
    """

    layers: str
    run: Run = of_tokens
    model: str = "AutoModel"
    package: str = "transformers"
    renamed: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None

    @property
    def installed(self) -> bool:
        """Whether the package can be imported."""
        return find_spec(self.package) is not None

    def parts(self, model: nn.Module) -> dict[str, nn.Module]:
        """The modules of the layers by name.

        Parameters
        ----------
        model : nn.Module
            The whole network.
        """
        return {name: module for name, module in model.named_modules() if re.fullmatch(self.layers, name)}
