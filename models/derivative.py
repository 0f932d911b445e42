"""Derivatives of maps by automatic differentiation, in forward and reverse mode, held against finite differences."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dispersion.errors import ArgumentError
from models.inputs import Map, Run, one_line, operator
from models.sender import FINER, SETTLED, STEP, Sender, sizes

Floats = NDArray[np.float64]

AGREE = 10 * SETTLED
"""Relative distance from finite differences up to which a derivative is theirs, where they are known that well."""
ROUNDED = 10
"""Units in the last place that a result may be off by rounding on the way."""
KINK = 0.1
"""Share of the distance that a kink makes up if it is put down to that."""

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


def refused(error: Exception) -> ArgumentError:
    """What an `error` of `pushed` along one tangent says about the map."""
    if "forward AD" in str(error):
        return ArgumentError("fn", operator(error), EAGER)
    return ArgumentError("fn", one_line(error), "a map that torch.func.jvp can differentiate")


def check_derivative(fn: Map, base: Tensor, run: Run, field: Floats, derivative: Floats) -> None:
    """Refuse an `fn` whose `derivative` along `field`, both (n, d), is not that of finite differences at `base` (n, d).

    One random `field` is enough: those that what automatic differentiation leaves out maps to zero are of measure zero.
    The differences are doubted by twice their change from one size to the next, and by rounding, in the coarsest
    numbers of the `run` at `base`; the size with the least doubt counts. At a kink, as of ReLU at 0, it is left open
    which derivative is meant.
    """
    state = base.cpu().numpy()
    sender = Sender([fn], state, len(state), batched=False, device=base.device)
    step = STEP * float(sizes(state) / sizes(field)) or STEP
    rounding = ROUNDED * run.eps * float(sizes(run.image))
    least = distance = whole = np.inf
    coarse = sender.difference(field, step)
    for _ in range(FINER):
        step /= 4
        fine = sender.difference(field, step)
        limit = (16 * fine - coarse) / 15
        change, size = float(sizes(fine - coarse)), float(sizes(limit))
        larger = max(size, float(sizes(derivative)))
        # relative to what the differences are: where the map turns back and forth within a step they are small
        turns = 2 * change / max(size, np.finfo(float).tiny) * larger if change > rounding / step else 0.0
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
