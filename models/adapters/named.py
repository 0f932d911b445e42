"""A layer whose maps and norms are tensors of their own: its family says only what they are called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dispersion import LayerNorm
from models.adapters.layer import Layer, scaled
from models.adapters.weights import Weights

PARTS = ("query", "key", "value", "out", "norm_1", "in", "outward", "norm_2")
"""What a family names: the maps of attention and the norm of its branch, those of the feed-forward likewise."""


def norm_named(weights: Weights, name: str, d: int, eps: float) -> LayerNorm:
    """The LayerNorm `name`.

    Parameters
    ----------
    weights : Weights
        The state dict.
    name : str
        Without what stands before its weight and bias.
    d : int
        Number of features.
    eps : float
        What is added to the variance.
    """
    return LayerNorm(weights.take(f"{name}.weight", d), weights.take(f"{name}.bias", d), eps)


def layer_named(
    weights: Weights,
    at: str,
    names: Mapping[str, str],
    *,
    heads: int,
    eps: float,
    placement: str,
    activation: str,
    unbiased: Collection[str] = (),
    **more: Any,
) -> Layer:
    """The Layer whose tensors are `at` with the `names` of PARTS after it.

    Parameters
    ----------
    weights : Weights
        The state dict.
    at : str
        What stands before all names, with its point.
    names : mapping of str to str
        Of each of PARTS; 'gain_1' and 'gain_2' too where there is LayerScale.
    heads : int
        H.
    eps : float
        Of both norms.
    placement : {'pre', 'post'}
        Of the norms.
    activation : str
        Its name in `Activation`.
    unbiased : collection of str
        Which maps have no bias.
    more : Any
        Other fields of Layer.
    """
    d = weights.take(f"{at}{names['query']}.weight", None, None).shape[1]

    def linear(part: str, rows: int | None, columns: int) -> Any:
        return weights.linear(at + names[part], rows, columns, part not in unbiased)

    def gain(part: str) -> Any:
        return weights.take(at + names[part], d) if part in names else None

    (query, query_bias), (key, key_bias), (value, value_bias) = (linear(part, d, d) for part in PARTS[:3])
    out, out_bias = scaled(gain("gain_1"), *linear("out", d, d))
    weight_in, bias_in = linear("in", None, d)
    weight_out, bias_out = scaled(gain("gain_2"), *linear("outward", d, len(weight_in)))
    return Layer(
        heads=heads,
        query=query,
        key=key,
        value=value,
        out=out,
        attention_norm=norm_named(weights, at + names["norm_1"], d, eps),
        feedforward_norm=norm_named(weights, at + names["norm_2"], d, eps),
        placement=placement,
        weight_in=weight_in,
        weight_out=weight_out,
        activation=activation,
        query_bias=query_bias,
        key_bias=key_bias,
        value_bias=value_bias,
        out_bias=out_bias,
        bias_in=bias_in,
        bias_out=bias_out,
        **more,
    )
