"""Checks on a line of tokens, where ends, masks and positions leave no waves: the patterns that grow most.

The derivative of L layers along the orbit of a state X_0, X_{l+1} = F_l(X_l),

    P = D_{L−1} … D_0,   D_l = DF_l(X_l),   P v = σ u,

has the singular vectors v of the perturbations that grow most, σ times. The test is the network itself, whose response
to v is compared with σu as a vector. D_l is that of Theorem 4.1 where the layers are Chains and X_0 = 1⊗a, for any
attention A_h,

    D_l = I⊗C_l + Σ_h A_h ⊗ (ε_a C_l M_h N_1),

and else comes from automatic differentiation, for any map and any state. J(q) is what P is far from the ends, where
there is such a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Chain, Propagator
from dispersion.errors import frozen_array, whole_number
from dispersion.line.impulse import impulses
from dispersion.noun import Noun
from models.check import TOLERANCE, within
from models.derivative import differentiated
from models.device import usable
from models.inputs import Map, device_of, plain
from models.sender import MEMORY, STEP, Sender, sizes
from models.singular import leading

Floats = NDArray[np.float64]
Linear = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class LineCheck(Noun):
    """What was predicted on a line of tokens and what the network did, for the patterns that grow most.

    layers : their number L. source : 'chains' if the prediction comes from Chains, 'derivatives' if from automatic
    differentiation. inputs : (m, n, d) the singular vectors v, |v| = 1, by decreasing gain.
    expected : (m, n, d) P v = σu. response : (m, n, d) the derivative of the forward pass along each v.
    noise : (m,) relative change of the response under a smaller perturbation: its uncertainty.
    tolerance : relative error that is confirmed: TOLERANCE, or what layers that compute in float32 inside allow.
    """

    layers: int
    source: str
    inputs: Floats
    expected: Floats
    response: Floats
    noise: Floats
    tolerance: float = TOLERANCE

    @property
    def gain(self) -> Floats:
        """(m,) predicted growth σ."""
        return sizes(self.expected)

    @property
    def measured_gain(self) -> Floats:
        """(m,) growth in the forward pass."""
        return sizes(self.response)

    @property
    def error(self) -> Floats:
        """(m,) |response − σu| / σ: of the whole field, so no less than the relative error of the growth."""
        return sizes(self.response - self.expected) / np.maximum(self.gain, np.finfo(float).tiny)

    @property
    def centres(self) -> Floats:
        """(m, 2) the mean token, counted from 0 and weighted by the square of the field, of v and of σu."""
        tokens = np.arange(self.inputs.shape[1])
        weights = np.stack([np.square(fields).sum(-1) for fields in (self.inputs, self.expected)], axis=1)
        return np.asarray(weights @ tokens / weights.sum(-1))

    @property
    def confirmed(self) -> bool:
        """Whether the error is within the tolerance for every pattern."""
        return bool(self.error.max() <= self.tolerance)

    @property
    def verdict(self) -> str:
        """One line: whether the forward pass confirms the prediction, and how far anything grows."""
        leader = f"what grows most on it is multiplied by {self.gain[0]:.4g}"
        if self.confirmed:
            return f"confirmed to {self.error.max():.1e} on the line of tokens{within(self.tolerance)}; {leader}"
        worst = int(np.argmax(self.error))
        known = f"the response itself is known to {self.noise[worst]:.1e}"
        return f"not confirmed on the line of tokens: error {self.error[worst]:.1e} of pattern {worst + 1} ({known})"


def line_check(
    layers: Sequence[Map],
    state: ArrayLike,
    chains: Sequence[Chain] | None = None,
    *,
    known: Propagator | None = None,
    tokens: int | None = None,
    patterns: int = 6,
    batched: bool = False,
    memory: int = MEMORY,
    device: str | torch.device | None = None,
    progress: bool = False,
    rng: int = 0,
) -> LineCheck:
    """Predict what grows most through `layers` on a line of tokens around a state, and run them to see.

    layers : maps of float64 tensors (n, d) to the same, the first layer first. state : (n, d), or a, (d,), for 1⊗a.
    chains : the same layers as Chains, from which the prediction is then made, around 1⊗a; None to differentiate the
    layers: they have to give the same every time, and derivatives that finite differences agree with and whose
    transposes are those of reverse mode. known : what `impulses` made of the chains at `state`, where it is at hand.
    tokens : n, where neither the state nor chains tell. patterns : how many, of
    the largest gain. rng : the seed of what is random. The rest as in `check`.
    """
    if not layers:
        raise ArgumentError("layers", "no layer", "one map or more")
    base = _state(state, chains, tokens)
    if chains is None:
        where = device_of(layers[0]) if device is None else usable(device)
        steps = differentiated(layers, torch.tensor(base, device=where), rng)
    else:
        steps = _of_chains(impulses(list(chains), base[0]) if known is None else known)
    shape = base.shape

    def through(v: Floats) -> list[Floats]:
        """(n, d) v after 0 … L layers."""
        return list(accumulate(steps, lambda u, step: step[0](u), initial=v.reshape(shape)))

    def back(u: Floats) -> Floats:
        for _, transposed in reversed(steps):
            u = transposed(u.reshape(shape))
        return u.ravel()

    rows = leading(
        lambda v: through(v)[-1].ravel(),
        back,
        base.size,
        min(whole_number("patterns", patterns, 1), base.size - 1),
        rng,
    )
    paths = np.array([through(v) for v in rows])
    inputs, expected = paths[:, 0], paths[:, -1]
    # small enough where it is largest
    scale = STEP * (float(sizes(base)) / np.sqrt(len(base)) or 1.0) / sizes(paths).max(axis=1)
    sender = Sender(layers, base, len(base), batched, memory, device, progress)
    response, noise = sender.limits(inputs, scale)
    source = "derivatives" if chains is None else "chains"
    found = LineCheck(len(layers), source, inputs, expected, response, noise)
    return found if found.confirmed else replace(found, tolerance=max(TOLERANCE, sender.resolution(noise)))


def _state(state: ArrayLike, chains: Sequence[Chain] | None, tokens: int | None) -> Floats:
    """(n, d) the `state` at every token."""
    if chains is not None:
        a, n = frozen_array("state", plain("state", state), (chains[0].d,)), chains[0].n
    else:
        given = np.asarray(plain("state", state), dtype=np.float64)
        if given.ndim == 2 and tokens in (None, len(given)):
            return frozen_array("state", given, (None, None))
        if given.ndim != 1 or tokens is None:
            got = f"shape {given.shape}" + ("" if tokens is None else f" and {tokens} tokens")
            raise ArgumentError("state", got, "(n, d), or (d,) and tokens=n")
        a, n = frozen_array("state", given, (None,)), whole_number("tokens", tokens, 2)
    return np.tile(a, (n, 1))


def _of_chains(known: Propagator) -> list[tuple[Linear, Linear]]:
    """(D_l, its transpose) of each layer that `impulses` made one of, on fields (n, d)."""
    pairs = [(each.slopes, each.attention) for each in known.relations]  # type: ignore[attr-defined]
    return [(partial(slopes.apply, A), partial(slopes.apply_transposed, A)) for slopes, A in pairs]
