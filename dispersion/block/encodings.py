"""Positional encodings: what makes the logits by lag of a `Kernel`.

Logits are stored by lag, query minus key. Encodings whose source counts key minus query (ConViT, T5) are given in their
own sense and turned round here. Where a source defines an encoding by distance alone, a torus has the Euclidean one.

A new encoding is a frozen dataclass that derives from `Encoding` and has the method `formula`. With that `Kernel.of`
makes its kernels, files of blocks know it by name, and PyTorch trains its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache, partial
from inspect import cleandoc
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion.errors import (
    ArgumentError,
    check_shape,
    flag,
    frozen,
    frozen_array,
    real_array,
    real_number,
    shown,
    whole_array,
    whole_number,
)
from dispersion.grid import grid_index, grid_lags
from dispersion.memory import require
from dispersion.noun import Noun, read_only
from dispersion.quiet import beyond_float64, harmless_underflow

Shape = int | tuple[int, ...]
Floats = NDArray[np.float64]

ENCODINGS: dict[str, type[Encoding]] = {}
"""Every encoding by its name in files."""


@dataclass(frozen=True)
class Parameter:
    """What a field of an encoding is, in the terms of `about`."""

    meaning: str
    unit: str = ""
    above: float | None = None
    most: float | None = None
    check: Callable[[str, Any], Any] | None = None

    def number(self, name: str, value: object) -> float:
        """`value` as a float within the bounds."""
        number = real_number(name, value, positive=self.above == 0)
        low, high = self.above, self.most
        if (low is not None and number <= low) or (high is not None and number > high):
            span = ("" if low is None else f"{low:g} < ") + name + ("" if high is None else f" ≤ {high:g}")
            raise ArgumentError(name, number, span)
        return number


def about(
    meaning: str,
    unit: str = "",
    above: float | None = None,
    most: float | None = None,
    check: Callable[[str, Any], Any] | None = None,
) -> dict[str, Parameter]:
    """The metadata of a field of an Encoding, `field(metadata=about("w", "tokens", above=0))`.

    Parameters
    ----------
    meaning, unit : str
        In words.
    above, most : float or None
        A number lies above the one and is at most the other, None for no bound.
    check : callable or None
        Makes of (name, value) the value that is kept, or raises an ArgumentError.
    """
    return {"parameter": Parameter(meaning, unit, above, most, check)}


@dataclass(frozen=True, eq=False)
class Encoding(Noun):
    """A positional encoding: logits b_r by lag on any ring or torus of tokens.

    Its subclasses are frozen dataclasses: fields that are `float`, `int` or `bool` are checked to be, and say the rest
    in their metadata (`about`). `causal` is whether lags are 0 … N−1, else −N/2 ≤ r < N/2 on each axis; `ring_only`,
    whether a torus is refused. A subclass is known to files by `name`, or by the name of the class in small letters,
    GaussianLobes as gaussian_lobes. It has the method `formula`, or `logits` where numpy alone can compute these.
    """

    encoding_name: ClassVar[str]
    ring_only: ClassVar[bool] = False
    causal = False

    def __init_subclass__(cls, name: str | None = None) -> None:
        super().__init_subclass__()
        name = name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        known = ENCODINGS.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__) or name == "table":
            raise ArgumentError("name", repr(name), "a name that no other encoding has")
        for method in {"logits", "formula"} & vars(cls).keys():
            quiet = beyond_float64(vars(cls)[method])
            quiet.__doc__ = quiet.__doc__ or getattr(Encoding, method).__doc__
            setattr(cls, method, quiet)
        told = [cleandoc(cls.__doc__ or cls.__name__), "", "Parameters", "----------"]
        for key, item in vars(cls).items():
            if isinstance(item, Field) and "parameter" in item.metadata:
                kind, parameter = cls.__annotations__.get(key, ""), item.metadata["parameter"]
                kind = getattr(kind, "__name__", str(kind)).replace("Floats", "ndarray")
                meaning = ", ".join(filter(None, (parameter.meaning, parameter.unit)))
                told += [f"{key} : {kind}", f"    {meaning}"]
        cls.__doc__ = "\n".join(told if len(told) > 4 else told[:1])
        cls.encoding_name = name
        ENCODINGS[name] = cls

    def __post_init__(self) -> None:
        for name, check in _checks(type(self)):  # type: ignore[arg-type]
            object.__setattr__(self, name, check(name, getattr(self, name)))

    @classmethod
    def parameters(cls) -> dict[str, Parameter]:
        """What each field is, by name."""
        return {item.name: item.metadata.get("parameter", Parameter(item.name)) for item in fields(cls)}

    def logits(self, shape: Shape) -> Floats:
        """b_r on a ring or torus.

        Parameters
        ----------
        shape : int or tuple of int
            Of the ring, N or (N,), or of the torus.

        Returns
        -------
        (N_1, …, N_D) ndarray
            Entry r mod N is the logit of lag r.
        """
        return np.asarray(self.formula(self._lags(shape), np))

    def formula(self, lags: Any, xp: Any) -> Any:
        """b_r of the fields, with the functions of `xp`: one formula for numpy and for PyTorch.

        Parameters
        ----------
        lags : (N_1, …, N_D, D) array of xp
            The representative of each lag, on a ring (N, 1).
        xp : module
            numpy, or torch, where the real numbers and arrays among the fields are parameters that train.

        Returns
        -------
        (N_1, …, N_D) array of xp
            Entry r mod N is the logit of lag r.
        """
        raise NotImplementedError

    def _lags(self, shape: Shape) -> Floats:
        """(N_1, …, N_D, D) the representative of each lag."""
        shape = ring_or_torus("shape", shape)
        if self.ring_only:
            whole_number("n", shape if len(shape) > 1 else shape[0], 2)
        if flag("causal", self.causal) and len(shape) > 1:
            raise ArgumentError("causal", f"True on a torus of shape {shape}", "a ring: a torus has no order")
        return grid_lags(shape, self.causal).reshape(*shape, len(shape)).astype(np.float64)


def _whole(name: str, value: object) -> int | tuple[int, ...]:
    """A wavenumber: the grid says later which there are."""
    if isinstance(value, tuple):
        return tuple(whole_number(name, part, -(2**63)) for part in value)
    return whole_number(name, value, -(2**63))


@cache
def _checks(kind: type[Encoding]) -> list[tuple[str, Callable[[str, Any], Any]]]:
    """(name, check) of each field: its own check, or that of its type."""
    found = []
    for item in fields(kind):
        parameter = kind.parameters()[item.name]
        known = {"float": parameter.number, "int": _whole, "bool": flag}
        of_type = known.get(getattr(item.type, "__name__", str(item.type)), lambda _, value: read_only(value))
        found.append((item.name, parameter.check or of_type))
    return found


def _per_axis(name: str, value: ArrayLike) -> float | Floats:
    """`value` as a finite number, or as an array of one for each axis."""
    array = real_array(name, value)
    return real_number(name, array) if array.ndim == 0 else frozen_array(name, array, (None,))


def _of_lags(name: str, value: ArrayLike) -> Floats:
    """`value` as an array of finite numbers on any number of axes."""
    array = real_array(name, value)
    return frozen_array(name, array, (None,) * array.ndim)


CAUSAL = about("whether lags are 0 … N−1, on a ring, else −N/2 ≤ r < N/2 on each axis")


@dataclass(frozen=True, eq=False)
class Uniform(Encoding):
    """No positional encoding: b = 0, so λ(q) = δ_{q0} on the grid (Eq. 6)."""

    def formula(self, lags: Any, xp: Any) -> Any:
        return xp.zeros_like(lags[..., 0])


@dataclass(frozen=True, eq=False)
class GaussianLobes(Encoding):
    """Two lobes at lags ±Δ: b_r = s[e^{−‖r−Δ‖²/2w²} + e^{−‖r+Δ‖²/2w²}] (App. I.2)."""

    separation: float | Floats = field(metadata=about("Δ, one number for each axis", "tokens", check=_per_axis))
    width: float = field(metadata=about("w", "tokens", above=0))
    strength: float = field(metadata=about("s", "a logit"))

    def formula(self, lags: Any, xp: Any) -> Any:
        separation = _for_each_axis("separation", self.separation, lags)
        lobes = (
            xp.exp(-((lags - centre) ** 2).sum(-1) / (2 * xp.square(self.width)))
            for centre in (separation, -separation)
        )
        return self.strength * sum(lobes)


@dataclass(frozen=True, eq=False)
class SkewedLobe(Encoding):
    """One lobe at lag Δ of a ring with two widths: b_r = s e^{−(r−Δ)²/2ζ²}. Directional: its waves travel."""

    ring_only = True
    separation: float = field(metadata=about("Δ", "tokens"))
    width_below: float = field(metadata=about("ζ for r ≤ Δ", "tokens", above=0))
    width_above: float = field(metadata=about("ζ for r > Δ", "tokens", above=0))
    strength: float = field(metadata=about("s", "a logit"))

    def formula(self, lags: Any, xp: Any) -> Any:
        r = lags[..., 0]
        width = xp.where(r <= self.separation, self.width_below, self.width_above)
        return self.strength * xp.exp(-((r - self.separation) ** 2) / (2 * width**2))


@dataclass(frozen=True, eq=False)
class VonMises(Encoding):
    """b_r = s cos(q_0·r − φ), q_0 = 2πk_0/N."""

    wavenumber: int | tuple[int, ...] = field(metadata=about("k_0, whole, a tuple of them on a torus", check=_whole))
    strength: float = field(metadata=about("s", "a logit"))
    phase: float = field(default=0.0, metadata=about("φ", "radians"))

    def formula(self, lags: Any, xp: Any) -> Any:
        *shape, _ = lags.shape
        index = grid_index("wavenumber", self.wavenumber, tuple(shape))
        q = 2 * np.pi * np.array(np.unravel_index(index, shape)) / np.array(shape)
        return self.strength * xp.cos(lags @ xp.asarray(q, dtype=lags.dtype) - self.phase)


@dataclass(frozen=True, eq=False)
class Alibi(Encoding):
    """ALiBi (arXiv 2108.12409): b_r = −m‖r‖, or b_r = −m r with 0 ≤ r < N if causal.
    On a torus ‖r‖ is Euclidean, as in 2D-ALiBi (arXiv 2311.00566).
    """

    slope: float = field(metadata=about("m, those of H heads being `alibi_slopes(H)`", "a logit per token"))
    causal: bool = field(default=False, metadata=CAUSAL)

    def formula(self, lags: Any, xp: Any) -> Any:
        return -self.slope * _length(lags, xp)


@dataclass(frozen=True, eq=False)
class KerpleLog(Encoding):
    """KERPLE, logarithmic (arXiv 2205.09921): b_r = −r_1 log(1 + r_2‖r‖), so A_r ∝ (1 + r_2‖r‖)^{−r_1}."""

    r1: float = field(metadata=about("r_1", "a logit", above=0))
    r2: float = field(metadata=about("r_2", "per token", above=0))
    causal: bool = field(default=False, metadata=CAUSAL)

    def formula(self, lags: Any, xp: Any) -> Any:
        return -self.r1 * xp.log1p(self.r2 * _length(lags, xp))


@dataclass(frozen=True, eq=False)
class KerplePower(Encoding):
    """KERPLE, power (arXiv 2205.09921): b_r = −r_1‖r‖^{r_2}; r_2 = 1 is ALiBi, r_2 = 2 a Gaussian. Beyond r_2 = 2 the
    kernel is not conditionally positive definite.
    """

    r1: float = field(metadata=about("r_1", "a logit", above=0))
    r2: float = field(metadata=about("r_2", above=0, most=2))
    causal: bool = field(default=False, metadata=CAUSAL)

    def formula(self, lags: Any, xp: Any) -> Any:
        return -self.r1 * _length(lags, xp) ** self.r2


def _function(name: str, value: object) -> object:
    if not callable(value):
        raise ArgumentError(name, shown(value), "a function of an array")
    return value


@dataclass(frozen=True, eq=False)
class Fire(Encoding):
    """FIRE (arXiv 2310.04418) on a ring: b_ij = f(ψ(i−j) / ψ(max(L, i))), ψ(x) = log(1 + cx), positions 1 … N. It
    depends on i − j alone only while i ≤ L, so L ≥ N is needed; then b_r = f(ψ(r)/ψ(L)),
    or f(ψ(|r|)/ψ(L)) if not causal.
    """

    ring_only = True
    mlp: Callable[[Floats], ArrayLike] = field(
        metadata=about("f, from (N,) in [0, 1] to (N,) logits, such as `relu_mlp`", check=_function)
    )
    c: float = field(metadata=about("c", "per token", above=0))
    threshold: float = field(metadata=about("L ≥ N", "tokens"))
    causal: bool = field(default=True, metadata=CAUSAL)

    def logits(self, shape: Shape) -> Floats:
        lags = self._lags(shape)
        n = len(lags)
        if self.threshold < n:
            accepted = f"L ≥ n = {n}: past L the logits depend on the query's own position, which no kernel represents"
            raise ArgumentError("threshold", self.threshold, accepted)
        scaled = np.log1p(self.c * _length(lags, np)) / np.log1p(self.c * self.threshold)
        try:
            logits = self.mlp(scaled)
        except Exception as error:
            got = f"a function that raises {type(error).__name__}: {shown(error, str)}"
            raise ArgumentError("mlp", got, f"one from ({n},) numbers to ({n},) logits") from error
        return frozen_array("mlp", logits, (n,))


@dataclass(frozen=True, eq=False)
class ConViTPosition(Encoding, name="convit"):
    """ConViT's positional attention (arXiv 2103.10697): b = −α‖δ − Δ‖², δ = key − query, −N/2 ≤ δ < N/2. Up to a
    constant this is v·(‖δ‖², δ_1, …, δ_D) with v = −α(1, −2Δ_1, …, −2Δ_D), the paper's initialisation.
    """

    centre: float | Floats = field(
        metadata=about("Δ, the offset attended to, one number for each axis", "tokens", check=_per_axis)
    )
    strength: float = field(metadata=about("α, the locality strength", "a logit per token²"))

    def formula(self, lags: Any, xp: Any) -> Any:
        centre = _for_each_axis("centre", self.centre, lags)
        return -self.strength * ((_offsets(lags, xp) - centre) ** 2).sum(-1)


@dataclass(frozen=True, eq=False)
class ConViTLearned(Encoding, name="convit_learned"):
    """ConViT's positional attention as trained: b = v·(‖δ‖², δ_1, …, δ_D), δ = key − query, −N/2 ≤ δ < N/2.

    The reference code keeps the row (δ_column, δ_row, ‖δ‖²): give it reversed. Its bias is the same for every lag and
    drops out.
    """

    weights: Floats = field(
        metadata=about("v, (1 + D,), in the paper's order", check=partial(frozen_array, shape=(None,)))
    )

    def formula(self, lags: Any, xp: Any) -> Any:
        check_shape("weights", self.weights, (1 + lags.shape[-1],))
        offsets = _offsets(lags, xp)
        return (offsets**2).sum(-1) * self.weights[0] + offsets @ self.weights[1:]


@dataclass(frozen=True, eq=False)
class T5(Encoding):
    """T5 relative attention bias (arXiv 1910.10683) on a ring: b = table[t5_bucket(δ)], δ = key − query. Encoder,
    −N/2 ≤ δ < N/2, if bidirectional; otherwise decoder, and the kernel is causal: δ = 0, −1, …, −(N−1).
    """

    ring_only = True
    table: Floats = field(
        metadata=about("(buckets,) of one head, 32 in T5", "logits", check=partial(frozen_array, shape=(None,)))
    )
    max_distance: int = field(default=128, metadata=about("from where on all share a bucket", "tokens"))
    bidirectional: bool = field(default=True, metadata=about("whether it is that of the encoder"))

    @property
    def causal(self) -> bool:  # type: ignore[override]
        """Whether lags are 0 … N−1."""
        return not self.bidirectional

    def formula(self, lags: Any, xp: Any) -> Any:
        n = len(lags)
        offsets = -np.arange(n)
        if self.bidirectional:
            offsets = (offsets + n // 2) % n - n // 2
        return self.table[_bucket("table", offsets, len(self.table), self.max_distance, self.bidirectional)]


@dataclass(frozen=True, eq=False)
class Swin(Encoding):
    """Swin's relative position bias (arXiv 2103.14030) on a sliding window of M_1 × … × M_D:
    b_r = table[r + M − 1], r = query − key, for |r| < M on every axis, and −inf outside. The fixed edges of
    Swin's own windows are left out: no kernel represents them. Where N < 2M − 1 two lags meet on the ring: their
    entries must agree.
    """

    table: Floats = field(metadata=about("(2M_1−1, …, 2M_D−1) of one head", "logits", check=_of_lags))

    def logits(self, shape: Shape) -> Floats:
        logits, table = super().logits(shape), self.table
        entries = np.ix_(
            *((np.arange(size) - size // 2) % n for size, n in zip(table.shape, logits.shape, strict=True))
        )
        if not np.allclose(logits[entries], table, rtol=1e-12, atol=1e-12):
            need = " × ".join(str(size) for size in table.shape)
            accepted = f"a torus of at least {need}, where r and r − N are not both in the window, or an open boundary"
            raise ArgumentError("shape", shape, accepted)
        return logits

    def formula(self, lags: Any, xp: Any) -> Any:
        *shape, D = lags.shape
        sizes = tuple(self.table.shape)
        check_shape("table", self.table, (None,) * D)
        if not all(size % 2 for size in sizes):
            raise ArgumentError("table", f"shape {sizes}", "odd lengths 2M − 1, one for each axis of the torus")
        # of the lags r, r ± N, … the last one in the window counts
        entry = np.ix_(*(size - 1 - (size // 2 - np.arange(n)) % n for size, n in zip(sizes, shape, strict=True)))
        inside = xp.asarray(np.all(np.broadcast_arrays(*(axis >= 0 for axis in entry)), axis=0))
        return xp.where(inside, self.table[tuple(np.maximum(axis, 0) for axis in entry)], -np.inf)


def _mask(name: str, value: ArrayLike) -> Floats:
    array = real_array(name, value)
    mask_logits(array)
    return frozen(np.array(array))


@dataclass(frozen=True, eq=False)
class Mask(Encoding):
    """A learnable mask by lag (arXiv 2608.00418): b_r = log σ(m_r), to be added to another kernel, `kernel + mask`."""

    m: Floats = field(metadata=about("(N,) or (N_1, …, N_D), entry r mod N for lag r, −inf removing it", check=_mask))
    causal: bool = field(default=False, metadata=CAUSAL)

    def formula(self, lags: Any, xp: Any) -> Any:
        if self.m.shape != (shape := lags.shape[:-1]):
            raise ArgumentError("m", f"shape {self.m.shape}", f"shape {shape}, a number for each lag")
        return _log_sigmoid(self.m, xp)


BUILT_IN = ("table", *ENCODINGS)
"""The kernels that files know without further classes: a table of logits, and the encodings above."""


@dataclass(frozen=True, eq=False)
class ReluMlp(Noun):
    """The function of `relu_mlp`."""

    weight_in: Floats
    bias_in: Floats
    weight_out: Floats

    def __call__(self, x: ArrayLike) -> Floats:
        """(…) Σ_k weight_out_k max(0, weight_in_k x + bias_in_k).

        Parameters
        ----------
        x : (…) array_like
            Numbers.
        """
        inner = real_array("x", x)[..., None] * self.weight_in + self.bias_in
        return np.asarray(np.maximum(0.0, inner) @ self.weight_out)


@harmless_underflow
def alibi_slopes(heads: int) -> Floats:
    """The standard ALiBi slopes (arXiv 2108.12409).

    Parameters
    ----------
    heads : int
        H, 1 or more.

    Returns
    -------
    (heads,) ndarray
        2^{−8h/H}, h = 1 … H, if H is a power of two. Else those of the power P below H, then every other one of 2P:
        2^{−8(h−1/2)/P}, h = 1 … H−P.
    """
    heads = whole_number("heads", heads, 1)
    require("heads", f"{heads:,} heads", 64 * heads)
    power = 1 << (heads.bit_length() - 1)
    exponents = np.concatenate([np.arange(1, power + 1), np.arange(1, heads - power + 1) - 0.5])
    return np.exp2(-8 * exponents / power)


@harmless_underflow
def t5_bucket(
    relative_position: ArrayLike, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> NDArray[np.int64]:
    """The T5 bucket of each `relative_position`, key − query (arXiv 1910.10683).

    Parameters
    ----------
    relative_position : (…) array_like
        Whole numbers, key − query.
    buckets : int
        How many, of both sides together if `bidirectional`.
    max_distance : int
        From where on all share a bucket, tokens.
    bidirectional : bool
        If true, the lower half of the buckets is for keys before the query and at it, the upper half for keys after it;
        else all are for keys before it, and keys after it count as distance 0.

    Returns
    -------
    (…) int ndarray
        Of the K buckets of a side E = ⌊K/2⌋ hold one distance each, 0 … E−1; the others are
        E + ⌊(K−E) log(distance/E) / log(max_distance/E)⌋ < K.
    """
    offsets = whole_array("relative_position", relative_position, "whole numbers, key − query")
    return _bucket("buckets", offsets, buckets, max_distance, flag("bidirectional", bidirectional))


def _bucket(argument: str, offsets: NDArray[np.int64], buckets: int, max_distance: int, two: bool) -> NDArray[np.int64]:
    """`t5_bucket`, with `buckets` called `argument` in errors."""
    one_side = whole_number(argument, buckets, 4 if two else 2) // (2 if two else 1)
    exact = one_side // 2
    reach = whole_number("max_distance", max_distance, exact + 1)
    distance = np.abs(offsets) if two else np.maximum(-offsets, 0)
    fraction = np.log(np.maximum(distance, exact) / exact) / np.log(reach / exact)
    # 1e-9 puts a distance that sits on an edge, such as 16 = 8·16^{1/4}, above it as exact arithmetic does
    logarithmic = exact + np.floor((one_side - exact) * fraction + 1e-9).astype(np.int64)
    bucket = np.where(distance < exact, distance, np.minimum(logarithmic, one_side - 1))
    return bucket + one_side * (two & (offsets > 0))


@harmless_underflow
def relu_mlp(weight_in: ArrayLike, bias_in: ArrayLike, weight_out: ArrayLike) -> ReluMlp:
    """The function x ↦ Σ_k `weight_out`_k max(0, `weight_in`_k x + `bias_in`_k): FIRE's f for one head.

    An outer bias is the same for every lag and drops out.

    Parameters
    ----------
    weight_in, bias_in, weight_out : (hidden,) array_like
        Weights and biases of the hidden units, and the weights of their sum.

    Returns
    -------
    callable
        From numbers (…) to numbers (…).
    """
    inner = frozen_array("weight_in", weight_in, (None,))
    bias = frozen_array("bias_in", bias_in, inner.shape)
    outer = frozen_array("weight_out", weight_out, inner.shape)
    return ReluMlp(inner, bias, outer)


@harmless_underflow
def mask_logits(m: ArrayLike) -> Floats:
    """log σ(m) = −log(1 + e^{−m}) of a mask `m`, to be added to the logits (arXiv 2608.00418).

    Parameters
    ----------
    m : (…) array_like
        Such as (N, N). −inf removes an entry and +inf leaves it as it is; NaN is refused.

    Returns
    -------
    (…) ndarray
        Logits, 0 or less.
    """
    values = real_array("m", m)
    if np.isnan(values).any():
        raise ArgumentError("m", "NaN", "real numbers, or ±inf")
    return np.asarray(_log_sigmoid(values, np))


def _log_sigmoid(m: Any, xp: Any) -> Any:
    return -xp.logaddexp(xp.zeros_like(m), -m)


def ring_or_torus(argument: str, value: Shape) -> tuple[int, ...]:
    """`value` as the shape of a ring or torus of two tokens or more."""
    sizes = () if isinstance(value, int) or not isinstance(value, Sequence) else value
    if len(sizes) > 1:
        shape = tuple(whole_number(argument, size, 1) for size in sizes)
        if max(shape) == 1:
            raise ArgumentError(argument, shape, "a torus of at least 2 tokens")
    else:
        shape = (whole_number(argument, sizes[0] if sizes else value, 2),)
    require(argument, f"{prod(shape):,} tokens", 8 * (2 * len(shape) + 6) * prod(shape))
    return shape


def _length(lags: Any, xp: Any) -> Any:
    """(N_1, …, N_D) Euclidean length of each lag."""
    return xp.sqrt((lags**2).sum(-1))


def _offsets(lags: Any, xp: Any) -> Any:
    """(N_1, …, N_D, D) offsets key − query, each in [−N/2, N/2)."""
    n = xp.asarray(lags.shape[:-1], dtype=lags.dtype)
    return (n // 2 - lags) % n - n // 2


def _for_each_axis(argument: str, value: Any, lags: Any) -> Any:
    """`value` if it is a number for each axis of the `lags` (…, D); a bare number will do if D = 1."""
    if np.ndim(value) or lags.shape[-1] > 1:
        check_shape(argument, value if np.ndim(value) else np.asarray(value), (lags.shape[-1],))
    return value
