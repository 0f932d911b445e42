"""From a wanted J(q) to a block: one wavenumber that grows, turning by a wanted angle, and nothing else beside q = 0.

Of every head V_h = Uᵀ and O_h = U R_h with orthonormal columns U, and the feed-forward is C = ξI at zero, so that

    J(q) = ξ [I + Σ_h λ_h(q) U_h R_h U_hᵀ].                                                               (Eq. 9)

`training.constructions` has the ways to choose kernels and R_h.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Block, Dispersion, FeedForward, Head, Kernel, dispersion_relation
from dispersion.block.factors import OutputValue, QueryKey
from dispersion.errors import RNG, choice, instance, real_number, whole_number
from dispersion.noun import Noun
from training.constructions import CONSTRUCTIONS, Wave, Wish
from training.frame import Floats, Frame

EXACT = 1e-6
"""How far a multiplier may be from the wanted one."""
ROUNDING = 1e-9
"""How far above 1 what must not grow may be."""


@dataclass(frozen=True)
class Target(Noun):
    """A wanted J(q): which mode grows, how it turns each layer, and what the mean does.

    At +q_c = 2πk_c/N the multipliers of the critical features are ρ e^{i(θ ± ψ)}, ρ e^{iθ}Rot(ψ) as real matrices, and
    at −q_c their conjugates: the pattern is cos(q_c j + lθ) after l layers, its features turned by lψ.

    Parameters
    ----------
    wavenumber : int
        k_c, 1 … N/2.
    angle : float
        θ, radians per layer.
    rotation : float
        ψ, radians per layer.
    growth : float
        ρ(J(q_c)).
    homogeneous : float
        ρ(J(0)), at most `growth`.
    helicity : int
        0 for both multipliers; +1 or −1 for ρ e^{i(θ ± ψ)} alone, of the features that turn with the wave or against
        it.
    """

    wavenumber: int
    angle: float = 0.0
    rotation: float = 0.0
    growth: float = 1.10
    homogeneous: float = 1.045
    helicity: int = 0

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "wavenumber", whole_number("wavenumber", self.wavenumber, 1))
        for name in ("angle", "rotation"):
            set_field(self, name, real_number(name, getattr(self, name)))
        for name in ("growth", "homogeneous"):
            set_field(self, name, real_number(name, getattr(self, name), positive=True))
        set_field(self, "helicity", whole_number("helicity", self.helicity, -1, 1))
        if self.homogeneous > self.growth:
            raise ArgumentError("homogeneous", self.homogeneous, f"ρ(0) of at most the growth, {self.growth:g}")

    @classmethod
    def over(
        cls,
        loops: int,
        wavenumber: int,
        angle: float = 0.0,
        rotation: float = 0.0,
        growth: float = 1.10,
        homogeneous: float = 1.045,
        helicity: int = 0,
    ) -> Target:
        """The target whose angles are reached after all the `loops` of a network.

        Parameters
        ----------
        loops : int
            L, layers of the network.
        wavenumber : int
            k_c.
        angle, rotation : float
            Lθ and Lψ, radians.
        growth, homogeneous, helicity : float
            As in `Target`, the first two for each layer.
        """
        loops = whole_number("loops", loops, 1)
        angle, rotation = real_number("angle", angle) / loops, real_number("rotation", rotation) / loops
        return cls(wavenumber, angle, rotation, growth, homogeneous, helicity)

    @property
    def multipliers(self) -> tuple[complex, ...]:
        """ρ e^{i(θ + ψ)} and ρ e^{i(θ − ψ)}, the one of `helicity` or both."""
        signs = (1, -1) if self.helicity == 0 else (self.helicity,)
        return tuple(self.growth * np.exp(1j * (self.angle + sign * self.rotation)) for sign in signs)

    @property
    def label(self) -> str:
        """The target in a few characters: k_c, and the angles that are not zero in units of π."""
        turns = {"θ": self.angle, "ψ": self.rotation}
        parts = [f"{name}={value / np.pi:+.4g}π" for name, value in turns.items() if value]
        return " ".join([f"k={self.wavenumber}", *parts, *([f"helicity={self.helicity:+d}"] if self.helicity else [])])

    def like(self, other: Target) -> bool:
        """Whether wavenumber, multipliers' phases and helicity are those of another target; gains may differ.

        Parameters
        ----------
        other : Target
            The other one.
        """
        turns = [np.exp(1j * np.array([target.angle, target.rotation])) for target in (self, other)]
        same = (self.wavenumber, self.helicity) == (other.wavenumber, other.helicity)
        return same and bool(np.abs(turns[0] - turns[1]).max() < 1e-9)


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
        raise ArgumentError("target", f"{fault} by construction {construction!r}", REMEDY)
    return block


REMEDY = "a target within reach: smaller angles per layer (Target.over), construction 'four', other sharpness"


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
    grown = np.abs(there) > 1 + ROUNDING
    if apart.min(axis=0).max() > EXACT or apart[grown].min(axis=1).max(initial=0) > EXACT:
        return f"multipliers {listed(there[grown])} instead of {listed(wanted)} at k = {k}"
    if abs(growth[0] - target.homogeneous) > EXACT:
        return f"growth {growth[0]:.4g} instead of {target.homogeneous:.4g} at k = 0"
    others = np.setdiff1d(np.arange(n), [0, k, n - k])
    if others.size and growth[others].max() > 1 + ROUNDING:
        worst = others[np.argmax(growth[others])]
        return f"growth {growth[worst]:.4g}, above 1, at k = {min(worst, n - worst)}"
    return ""


def listed(values: NDArray[np.complex128]) -> str:
    """Distinct `values` as text."""
    distinct = sorted({f"{abs(value):.4g}·e^({np.angle(value):.4g}i)" for value in values})
    return ", ".join(distinct[:4]) or "none above 1"
