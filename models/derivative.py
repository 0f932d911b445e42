"""Derivatives of maps by automatic differentiation, in forward and reverse mode, held against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dispersion.errors import ArgumentError
from models.inputs import Map, Run, check_module, check_same, one_line, operator, steady
from models.sender import SETTLED, STEP, Sender, sizes

Floats = NDArray[np.float64]
Linear = Callable[[Floats], Floats]

AGREE = 10 * SETTLED
"""Relative distance from finite differences up to which a derivative is theirs, where they are known that well."""
CHANGES = 10
"""Changes from one size to the next by which differences may be off: between two kinks they change little."""
SIZES = 10
"""How many sizes are tried, each a quarter of the last: to 10⁻⁹ of a state, past most kinks beside it."""
ROUNDED = 10
"""Units in the last place that a result may be off by rounding on the way."""
KINK = 0.1
"""Share of the distance that a kink makes up if it is put down to that."""

ADJOINT = 1e4
"""Units in the last place that forward and reverse mode may be apart by rounding on the way."""

EAGER = (
    "eager attention (fused kernels have no forward-mode derivative): attn_implementation='eager' in transformers, "
    "set_fused_attn(False) in timm, torch.backends.mha.set_fastpath_enabled(False) for nn.TransformerEncoderLayer, "
    "torch.nn.attention.sdpa_kernel(SDPBackend.MATH) around any other call"
)
SEEN = (
    "a map that PyTorch differentiates as it computes it, without inference_mode, detach, .item(), numpy, a wrong jvp"
)


def pushed(fn: Map, base: Tensor, tangents: Tensor) -> Tensor:
    """(k, n, d) the derivatives of `fn` at `base` (n, d) along `tangents` (k, n, d), by forward mode in one pass."""

    def along(tangent: Tensor) -> Tensor:
        result: Tensor = torch.func.jvp(lambda x: fn(x.clone()), (base,), (tangent,))[1]
        return result

    with torch.no_grad():
        return along(tangents[0])[None] if len(tangents) == 1 else torch.func.vmap(along)(tangents)


def pulled(fn: Map, base: Tensor) -> Callable[[Tensor], Tensor]:
    """The transposed derivative of `fn` at `base` (n, d) on fields (n, d), by reverse mode; it keeps a forward pass."""
    with torch.no_grad():
        back = torch.func.vjp(lambda x: fn(x.clone()), base)[1]
    return lambda cotangent: back(cotangent)[0]


def finite(derivative: Tensor) -> Floats:
    """`derivative` as an array of its own; one that is not finite is refused."""
    values = derivative.detach().cpu().numpy().copy()
    if not np.isfinite(values).all():
        raise ArgumentError("fn", "a derivative that is not finite at this state", "a map with a derivative there")
    return values


def beside(base: Tensor, field: Floats) -> Tensor:
    """(n, d) `base` moved along `field` (n, d) by the first step of finite differences."""
    return base + _step(base, field) * torch.tensor(field, device=base.device)


def _step(base: Tensor, field: Floats) -> float:
    return STEP * float(sizes(base.cpu().numpy()) / sizes(field)) or STEP


def refused(error: Exception, argument: str = "fn") -> ArgumentError:
    """What an `error` of `pushed` along one tangent says about the map that the `argument` is."""
    if "forward AD" in str(error):
        return ArgumentError(argument, operator(error), EAGER)
    return ArgumentError(argument, one_line(error), "a map that torch.func.jvp can differentiate")


def check_derivative(fn: Map, base: Tensor, run: Run, field: Floats, derivative: Floats) -> None:
    """Refuse an `fn` whose `derivative` along `field`, both (n, d), is not that of finite differences at `base` (n, d).

    One random `field` is enough: those that what automatic differentiation leaves out maps to zero are of measure zero.
    The differences are doubted by their change from one size to the next, and by rounding, in the coarsest numbers of
    the `run` at `base`; the size with the least doubt counts. At a kink, as of ReLU at 0, it is left open which
    derivative is meant.
    """
    state = base.cpu().numpy()
    sender = Sender([fn], state, len(state), batched=False, device=base.device)
    step = _step(base, field)
    rounding = ROUNDED * run.eps * float(sizes(run.image))
    least = distance = whole = np.inf
    coarse = sender.difference(field, step)
    for _ in range(SIZES):
        step /= 4
        fine = sender.difference(field, step)
        limit = (16 * fine - coarse) / 15
        change, size = float(sizes(fine - coarse)), float(sizes(limit))
        larger = max(size, float(sizes(derivative)))
        # relative to what the differences are: where the map turns back and forth within a step they are small
        turns = CHANGES * change / max(size, np.finfo(float).tiny) * larger if change > rounding / step else 0.0
        doubt = turns + rounding / step
        if doubt < least:
            least, distance, whole = doubt, float(sizes(limit - derivative)), larger
        if doubt <= AGREE * larger:
            break
        coarse = fine
    if distance <= max(AGREE * whole, least) or sender.kink(field, step) > KINK * distance:
        return
    got = f"a derivative {distance / whole:.1e} of its size away from a finite difference along a random direction"
    raise ArgumentError("fn", got, SEEN)


def differentiated(layers: Sequence[Map], base: Tensor, rng: int) -> list[tuple[Linear, Linear]]:
    """(J, Jᵀ) of each of the `layers` along the orbit of `base` (n, d), on fields (n, d), after every check there is.

    rng : the seed of the fields with which they are checked.
    """
    found: list[tuple[Linear, Linear]] = []
    generator = np.random.default_rng(rng)
    for layer in layers:
        check_module(layer)
        field = generator.normal(size=base.shape) / np.sqrt(base.shape[-1])
        run = steady(layer, base, beside(base, field))
        there, back = _forward_mode(layer, base), _reverse_mode(layer, base)
        along = there(field)
        check_derivative(layer, base, run, field, along)
        check_transposed(field, along, back, run.eps)
        check_same(layer, base, run)
        found.append((there, back))
        base = torch.tensor(run.image, device=base.device)
    return found


def _forward_mode(fn: Map, base: Tensor) -> Linear:
    def there(v: Floats) -> Floats:
        try:
            return finite(pushed(fn, base, torch.tensor(v, device=base.device)[None])[0])
        except (RuntimeError, NotImplementedError) as error:
            raise refused(error) from None

    return there


def _reverse_mode(fn: Map, base: Tensor) -> Linear:
    try:
        pull = pulled(fn, base)
    except (RuntimeError, NotImplementedError) as error:
        raise ArgumentError("fn", one_line(error), "a map that torch.func.vjp can differentiate") from None
    return lambda u: finite(pull(torch.tensor(u, device=base.device)))


def check_transposed(v: Floats, derivative: Floats, transposed: Callable[[Floats], Floats], eps: float) -> None:
    """Refuse a map whose `transposed` derivative is not that of J, of which `derivative` = Jv: ⟨Jv, u⟩ = ⟨v, Jᵀu⟩.

    v, derivative : (n, d), v random. u is half of Jv itself, so that what is wrong counts as the part of Jᵀ that it is,
    and half random. eps : of the coarsest numbers on the way.
    """
    size = float(sizes(derivative))
    random = np.random.default_rng(len(v)).normal(size=v.shape)
    u = derivative + random * (size / float(sizes(random)))
    apart = abs(float(np.vdot(derivative, u)) - float(np.vdot(v, transposed(u))))
    if not apart <= ADJOINT * eps * size * float(sizes(u)):
        got = f"a derivative of reverse mode {apart / size / float(sizes(u)):.1e} off the transpose of forward mode's"
        raise ArgumentError("fn", got, "a map differentiated as it is computed: no no_grad, detach or wrong backward")
