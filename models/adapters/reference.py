"""The reference implementation of a family: where its layers are, and how it calls them.

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
TOKENS = 8
"""Of a forward pass, where the network leaves it open."""


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
    count, padding = vocabulary(model), getattr(model.config, "pad_token_id", None)
    known = torch.tensor([token for token in range(min(count or 0, 1000)) if token != padding])
    return known[(7 * torch.arange(n) + 3) % len(known)][None]


def vocabulary(model: Any) -> int | None:
    """How many tokens `model` knows, None if it is given no tokens.

    Parameters
    ----------
    model : nn.Module
        Of transformers.
    """
    inputs = getattr(model, "get_input_embeddings", None)
    if inputs is not None:
        found: int | None = getattr(inputs(), "num_embeddings", None)
        return found
    return getattr(getattr(model, "config", None), "vocab_size", None)


def of_pixels(model: Any, n: int, **more: Any) -> Tensor:
    """(1, N, d) what a vision model makes of a random image, whose size says N.

    Parameters
    ----------
    model : nn.Module
        Of transformers.
    n : int
        Not used.
    more : Any
        What else the model is given.
    """
    size, generator = model.config.image_size, torch.Generator().manual_seed(0)
    height, width = (size, size) if isinstance(size, int) else size
    pixels = torch.randn(1, model.config.num_channels, height, width, generator=generator, dtype=torch.float64)
    result: Tensor = model(pixel_values=pixels, **more).last_hidden_state
    return result


@dataclass(frozen=True)
class Reference:
    """Where the layers of a reference implementation are, and how it is run.

    Parameters
    ----------
    layers : str
        A regular expression for the names of the modules that are its layers, as `named_modules` has them; where it
        matches the empty name and no other, the module is itself the one layer.
    run : callable
        Runs a model on n tokens, those of `token_ids` if it has a vocabulary, and gives its last hidden states.
    model : str
        The class in transformers that is built from the settings, or an auto class for that of the model_type.
    package : str
        Where it is from.
    renamed : callable or None
        From settings to settings, where those of the installed version have other names.
    build : callable or None
        From settings to a model, where it is not of transformers.
    tokens : callable or None
        From the config of a model to how many tokens show all that its layers are, TOKENS by default.
    tables : callable or None
        From a model to its tables in float64, by the names of the parameters and buffers that keep them in float32.
    """

    layers: str
    run: Run = of_tokens
    model: str = "AutoModel"
    package: str = "transformers"
    renamed: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    build: Callable[[Mapping[str, Any]], nn.Module] | None = None
    tokens: Callable[[Any], int] | None = None
    tables: Callable[[Any], Mapping[str, Tensor]] | None = None

    @property
    def installed(self) -> bool:
        """Whether the package can be imported."""
        return find_spec(self.package) is not None

    def calls(self, model: nn.Module, n: int | None = None) -> Pass:
        """A forward pass of `model`, each call of a layer with what it was given.

        Parameters
        ----------
        model : nn.Module
            The whole network, in float64.
        n : int, optional
            Number of tokens, by default as many as show all.
        """
        if n is None:
            n = TOKENS if self.tokens is None else max(TOKENS, self.tokens(model.config))
        parts = {name: module for name, module in model.named_modules() if re.fullmatch(self.layers, name)}
        calls: list[Call] = []

        def seen(name: str) -> Any:
            def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
                calls.append(Call(name, module, args, kwargs, _hidden(output)))

            return hook

        named = {name: module for name, module in parts.items() if name or len(parts) == 1}
        hooks = [module.register_forward_hook(seen(name), with_kwargs=True) for name, module in named.items()]
        try:
            with torch.no_grad():
                last = self.run(model, n)
        finally:
            for handle in hooks:
                handle.remove()
        return Pass(tuple(calls), last)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer in a forward pass: the map of the layer, as the network uses it.

    Parameters
    ----------
    name : str
        Of the module.
    module : nn.Module
        The layer.
    args : tuple of Any
        What it was given.
    kwargs : mapping of str to Any
        What it was given by name.
    output : Tensor
        The hidden states that it gave back.
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Tensor

    @property
    def input(self) -> Tensor:
        """The hidden states that it was given."""
        found: Tensor = self.args[0] if self.args else self.kwargs["hidden_states"]
        return found

    def __call__(self, x: Tensor) -> Tensor:
        """The layer on other hidden states, (n, d) → (n, d).

        Parameters
        ----------
        x : (n, d) Tensor
            In place of those that it was given.
        """
        x = x.reshape(*self.input.shape[:-2], *x.shape[-2:])
        if self.args:
            out = self.module(x, *self.args[1:], **self.kwargs)
        else:
            out = self.module(**{**self.kwargs, "hidden_states": x})
        found = _hidden(out)
        return found.reshape(found.shape[-2:])


@dataclass(frozen=True, eq=False)
class Pass:
    """A forward pass.

    Parameters
    ----------
    calls : tuple of Call
        Of the layers, in the order in which they were called.
    last : Tensor
        The last hidden states, after whatever follows the last layer.
    """

    calls: tuple[Call, ...]
    last: Tensor


def _hidden(output: Any) -> Tensor:
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found
