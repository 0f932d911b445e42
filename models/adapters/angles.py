"""Frequencies of rotary encodings by the settings of transformers: θ, and how it is stretched to longer texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log, pi
from typing import Any

import numpy as np

from dispersion import ArgumentError
from dispersion.errors import real_number, shown
from models.adapters.layer import Floats
from models.adapters.settings import Settings

TYPES = ("default", "linear", "llama3", "yarn")
"""The rope_types whose frequencies do not depend on the number of tokens."""


@dataclass(frozen=True, eq=False)
class Angles:
    """A rotary encoding.

    Parameters
    ----------
    frequencies : (r,) ndarray
        Radians per token.
    factor : float
        What rotated queries and keys are multiplied by, each.
    """

    frequencies: Floats
    factor: float = 1.0

    def scale(self, size: int) -> float | None:
        """What queries times keys are multiplied by in a head of `size` features, None for 1/√size.

        Parameters
        ----------
        size : int
            d_h.
        """
        return None if self.factor == 1.0 else self.factor**2 / float(np.sqrt(size))


def angles(settings: Settings, features: int) -> Angles:
    """The Angles of the settings rope_theta and rope_scaling, or rope_parameters with both.

    Parameters
    ----------
    settings : Settings
        The config.
    features : int
        How many features of a head turn, an even number.

    Notes
    -----
    θ_m = θ^{−2m/2r}. Linear scaling divides it by s. That of LLaMA 3.1 does so where the context of the training, L,
    has few turns n = Lθ_m/2π: θ_m[t + (1−t)/s], t = (n − low)/(high − low) cut to 0 … 1. YaRN (arXiv 2309.00071) has t
    by the number of the pair, and multiplies queries and keys by a factor.
    """
    inside, name = settings.find("rope_parameters"), "rope_parameters"
    if inside is None:
        inside, name = settings.find("rope_scaling"), "rope_scaling"
    elif settings.find("rope_scaling") is not None:
        raise ArgumentError("config", "rope_scaling beside rope_parameters", "one of the two")
    if not isinstance(inside, Mapping | None):
        raise ArgumentError("config", f"{name} = {shown(inside)}", "a JSON object")
    within = Settings({"model_type": "default", **(inside or {})})
    theta = _theta(settings, within)
    kind = within.find("rope_type") or within.find("type") or "default"
    within.only("type", kind)
    with np.errstate(over="ignore"):  # infinite ones are refused with the layer
        plain = theta ** (-2 * np.arange(features // 2) / features)
    if kind == "default":
        found = Angles(plain)
    elif kind == "linear":
        found = Angles(plain / _positive(within, "factor"))
    elif kind == "llama3":
        found = Angles(_llama3(within, plain))
    elif kind == "yarn":
        found = _yarn(settings, within, plain, theta)
    else:
        raise ArgumentError("config", f"rope_type = {shown(kind)}", ", ".join(TYPES))
    within.finish(name)
    return found


def _positive(within: Settings, name: str, default: float | None = None) -> float:
    return real_number(name, within.number(name, default), positive=True)


def _theta(settings: Settings, within: Settings) -> float:
    inside, outside = within.find("rope_theta"), settings.find("rope_theta")
    if inside is None:
        own = settings if settings.find("rope_parameters") is None else within
        inside = own.get("rope_theta", 10000.0)
    theta = _positive(Settings({"rope_theta": inside}), "rope_theta")
    if outside is not None and outside != theta:
        raise ArgumentError("config", f"rope_theta = {shown(outside)}", f"{theta}, as in rope_parameters")
    return theta


def _llama3(within: Settings, plain: Floats) -> Floats:
    low, high = _positive(within, "low_freq_factor"), _positive(within, "high_freq_factor")
    if not low < high:
        raise ArgumentError("config", f"low_freq_factor = {low}", f"less than the high_freq_factor, {high}")
    turns = _positive(within, "original_max_position_embeddings") * plain / (2 * pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(plain * (kept + (1 - kept) / _positive(within, "factor")))


def _yarn(settings: Settings, within: Settings, plain: Floats, theta: float) -> Angles:
    r, s = len(plain), _positive(within, "factor")
    beside: Any = settings.find("max_position_embeddings")
    context = _positive(within, "original_max_position_embeddings", beside)
    first, last = (
        r * log(context / (turns * 2 * pi)) / log(theta)
        for turns in (_positive(within, "beta_fast", 32.0), _positive(within, "beta_slow", 1.0))
    )
    if within.flag("truncate", True):
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, 2 * r - 1)
    ramp = np.clip((np.arange(r) - first) / ((last - first) or 1e-3), 0, 1)
    both = [within.find(name) for name in ("mscale", "mscale_all_dim")]
    over, under = both if all(both) else (1.0, 0.0)
    factor = (1 + 0.1 * over * log(max(s, 1))) / (1 + 0.1 * under * log(max(s, 1)))
    return Angles(plain * (1 - ramp + ramp / s), _positive(within, "attention_factor", factor))


def theta_named(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """`settings` as transformers 4 knows them: what is in rope_parameters under rope_theta and rope_scaling.

    Parameters
    ----------
    settings : mapping of str to Any
        The config.
    """
    inside = dict(settings.get("rope_parameters") or {})
    rest = {name: value for name, value in settings.items() if name != "rope_parameters"}
    if "rope_theta" in inside:
        rest["rope_theta"] = inside.pop("rope_theta")
    return rest | ({"rope_scaling": inside} if inside.get("rope_type", "default") != "default" else {})
