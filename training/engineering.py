"""From a wanted J(q) to a block: one wavenumber that grows, turning by a wanted angle, and nothing else beside q = 0.

Of every head V_h = Uᵀ and O_h = U R_h with orthonormal columns U, and the feed-forward is C = ξI at zero, so that

    J(q) = ξ [I + Σ_h λ_h(q) U_h R_h U_hᵀ].                                                               (Eq. 9)

`training.constructions` has the ways to choose kernels and R_h.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Block, Dispersion, FeedForward, Head, Kernel, dispersion_relation
from dispersion.block.factors import OutputValue, QueryKey
from dispersion.errors import RNG, choice, instance, real_number, whole_number
from training.constructions import CONSTRUCTIONS, Wave, Wish
from training.frame import Floats, Frame
from training.target import Target

EXACT = 1e-6
"""How far a multiplier may be from the wanted one."""
ROUNDING = 1e-9
"""How far above 1 what must not grow may be."""


def engineer(
    target: Target,
    n: int = 32,
    d: int = 32,
    heads: int = 4,
    contraction: float = 0.9,
    sharpness: float = 4.0,
    construction: str = "three",
    rng: RNG = 0,
    frame: Frame | None = None,
) -> Block:
    """A block whose J(q) at zero is the `target`, and grows nowhere else but at q = 0.

    Parameters
    ----------
    target : Target
        What J(q) is to be.
    n : int
        N, tokens of the ring.
    d, heads : int
        Features and heads of the frame that is drawn if none is given.
    contraction : float
        ξ of C = ξI, between 0 and 1: the multiplier of features and wavenumbers left alone.
    sharpness : float
        s of the kernels b_r = s cos(q_c r − φ), logits.
    construction : str
        'three', one kernel on all heads but one; 'pair', two opposite ones; 'four', four in quadrature.
    rng : int or numpy.random.Generator
        Draws the frame if none is given.
    frame : Frame, optional
        The shared weights.

    Returns
    -------
    Block
        Its J(q) has been computed and found to be the target: the wanted multipliers at ±q_c and ρ at 0 to 1e-6, and
        nothing else above 1.

    Raises
    ------
    ArgumentError
        If the target cannot be reached: why, and the growth that would come out.
    """
    block = unverified(target, n, contraction, sharpness, construction, frame or Frame.draw(d, heads, rng=rng))
    fault = missed(dispersion_relation(block), target)
    if fault:
        raise ArgumentError("target", f"{fault} by construction {construction!r}", remedy(target, n, construction))
    return block


def remedy(target: Target, n: int, construction: str) -> str:
    """What to ask for instead of a `target` that cannot be reached."""
    if 2 * target.wavenumber == n and (target.helicity or target.angle):
        return "an angle of 0 and helicity 0 at k = N/2, where J(q) is real"
    other = "" if construction == "four" else "construction 'four', "
    return f"smaller angles for each layer (Target.over), {other}kernels less sharp or a longer ring"


def unverified(target: Target, n: int, contraction: float, sharpness: float, construction: str, frame: Frame) -> Block:
    """What `engineer` makes, whatever its J(q) is.

    Raises
    ------
    ArgumentError
        If the equations of the construction have no solution.
    """
    instance("target", target, Target)
    n, frame = whole_number("n", n, 2), instance("frame", frame, Frame)
    xi = real_number("contraction", contraction, positive=True)
    if xi >= 1:
        raise ArgumentError("contraction", xi, "ξ between 0 and 1")
    if target.wavenumber > n // 2:
        raise ArgumentError("wavenumber", target.wavenumber, f"a mode of the ring of {n} tokens, 1 … {n // 2}")
    if target.homogeneous < xi:
        accepted = f"ρ(0) of at least ξ = {xi:g}, which other features have"
        raise ArgumentError("homogeneous", target.homogeneous, accepted)
    wish = Wish(target, n, xi, real_number("sharpness", sharpness, positive=True), frame.heads, frame.head_width)
    waves = CONSTRUCTIONS[choice("construction", construction, CONSTRUCTIONS)](wish)
    heads = [wave_head(wave, wish, frame, number) for number, wave in enumerate(waves)]
    return Block(heads, contracting(xi, frame.hidden))


def wave_head(wave: Wave, wish: Wish, frame: Frame, number: int) -> Head:
    """The head of number `number` with kernel and R as `wave` has them."""
    u = frame.directions(wave.place)
    kernel = Kernel.table(wish.kernel(wave.phase).logits)
    return Head(kernel, OutputValue(u @ turning(wave.gain, u.shape[1]), u.T), shared_content(frame, number))


def shared_content(frame: Frame, number: int) -> QueryKey:
    """Queries and keys of the head of number `number`."""
    return QueryKey(frame.queries[number], frame.keys[number])


def turning(gain: complex, size: int) -> Floats:
    """(size, size) a + b𝒥 of gain a + ib, 𝒥 turning each plane of two features by π/2; a last odd feature has none."""
    if np.imag(gain) == 0:
        return float(np.real(gain)) * np.eye(size)
    plane = np.array([[gain.real, -gain.imag], [gain.imag, gain.real]])
    matrix = np.zeros((size, size))
    planes = size // 2 * 2
    matrix[:planes, :planes] = np.kron(np.eye(size // 2), plane)
    return matrix


def contracting(xi: float, hidden: Floats) -> FeedForward:
    """tanh feed-forward with C = ξI at zero: W_in = aG, W_out = −aGᵀ, a² = 1 − ξ."""
    a = np.sqrt(1 - xi)
    return FeedForward(a * hidden, -a * hidden.T, "tanh")


def missed(relation: Dispersion, target: Target) -> str:
    """In what J(q) is not the `target`, as text; empty if it is."""
    n, k = relation.block.n, target.wavenumber
    there, growth = relation.multipliers[k], relation.growth
    wanted = np.array(target.multipliers)
    apart = np.abs(there[:, None] - wanted)
    large = np.abs(there) > min(1.0, target.growth) + EXACT
    if apart.min(axis=0).max() > EXACT or apart[large].min(axis=1).max(initial=0) > EXACT:
        return f"multipliers {listed(there[:1] if not large.any() else there[large])}, not {listed(wanted)}, at k = {k}"
    if abs(growth[0] - target.homogeneous) > EXACT:
        return f"growth {growth[0]:.4g}, not {target.homogeneous:.4g}, at k = 0"
    others = np.setdiff1d(np.arange(n // 2 + 1), [0, k])
    if others.size and growth[others].max() > 1 + ROUNDING:
        worst = others[np.argmax(growth[others])]
        return f"growth {growth[worst]:.4g}, above 1, at k = {worst}, {source(n, k, worst)},"
    return ""


def source(n: int, k: int, other: int) -> str:
    """What makes wavenumber `other` grow where kernels are made for `k`."""
    order = next((m for m in range(2, n) if m * k % n in (other, n - other)), 0)
    return f"harmonic {order} of the kernels" if order else "which the kernels do not touch"


def listed(values: NDArray[np.complex128]) -> str:
    """Distinct `values` as text."""
    angles = np.round(np.angle(values), 4) + 0.0
    distinct = sorted({f"{abs(value):.4g}·e^({angle:g}i)" for value, angle in zip(values, angles, strict=True)})
    return ", ".join(distinct[:4])
