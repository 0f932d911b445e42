"""The Taylor coefficients of a scalar block on Fourier modes: everything a cubic theory needs.

Around 1⊗a, with u = x − a and ξ_h = χ_h a, the attention row of token i is an exponential tilt of
A_h by θ_i = ξ_h + χ_h u_i, so its mean of u expands in cumulants (App. F):

    Au + θ[Au² − (Au)²] + ½θ²[Au³ − 3(Au²)(Au) + 2(Au)³] + …

and F = α_1 y + α_2 y² + α_3 y³ + … with y = u + Σ_h η_h(that mean). On modes u = Σ_k u_k e^{iqj}
a positional average multiplies a product of modes by λ_h at its total wavenumber, hence

    F_k = J_k u_k + Σ_{k1+k2≡k} B(k1,k2) u_k1 u_k2 + Σ_{k1+k2+k3≡k} C(k1,k2,k3) u_k1 u_k2 u_k3 + …

over ordered pairs and triples, B and C symmetric. Every coefficient of this package is a few B and
C, joined by the resolvents of the slaved modes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispersion import ArgumentError, Block, ExclusionError
from dispersion.block.scalar_blocks import ScalarHeads
from dispersion.errors import choice, instance, whole_number
from dispersion.noun import Noun

At = Literal["gain", "onset", "paper"]
"""Where coefficients are evaluated: see `ScalarForms.evaluate`."""


ROUNDING = 1e-14
"""Relative size under which a multiplier or the gap of a resonance is zero."""


@dataclass(frozen=True, eq=False)
class ScalarForms(Noun):
    """J, B and C of a scalar (d = 1) block at the homogeneous fixed point a.

    Wavenumbers are whole and taken modulo n.

    Parameters
    ----------
    n : int
        Number of tokens.
    alpha : (float, float, float)
        (α_1, α_2, α_3), Taylor coefficients of H at y* = a + Σηa.
    eta, chi : (heads,) ndarray
        ε_a·value and content.
    symbols : (heads, n) complex ndarray
        λ_h on the grid.
    state : float
        a.
    """

    n: int
    alpha: tuple[float, float, float]
    eta: NDArray[np.float64]
    chi: NDArray[np.float64]
    symbols: NDArray[np.complex128]
    state: float = 0.0

    @classmethod
    def of(cls, block: Block, state: ArrayLike | None = None) -> ScalarForms:
        """The forms of a block at a homogeneous fixed point.

        Parameters
        ----------
        block : Block
            Scalar, plain (Eqs. 1–2) but for any pointwise φ.
        state : float, optional
            a, which must be a fixed point of g; 0 by default.
        """
        instance("block", block, Block)
        if block.d != 1:
            raise ExclusionError("block", f"d = {block.d}", "d = 1: the closed forms are scalar")
        if not replace(block, feedforward=None).plain:  # any pointwise φ will do, gated or not
            raise ExclusionError(
                "block", "a block beyond Eqs. 1–2", "a ring, and no norm, gate, bias or rotary encoding"
            )
        a = block.homogeneous_state(state)
        residual = float(np.abs(block.homogeneous_map(a) - a).max())
        if residual > 1e-9 * (1 + abs(a[0])):
            raise ArgumentError("state", f"{a[0]:g} with |g(a) − a| = {residual:.2g}", "a fixed point of g")
        taylor = np.zeros(4) if block.feedforward is None else block.feedforward.taylor(block.attended(a)[0], 3)
        alpha = 1 + float(taylor[1]), float(taylor[2]), float(taylor[3])
        heads = ScalarHeads.of([block])
        return cls(block.n, alpha, heads.value[0], heads.content[0], heads.symbols[0], float(a[0]))

    def symbol(self, k: int) -> NDArray[np.complex128]:
        """(heads,) λ_h at one wavenumber.

        Parameters
        ----------
        k : int
            Wavenumber, modulo n.
        """
        return self.symbols[:, whole_number("k", k, -(2**62)) % self.n]

    def L(self, k: int) -> complex:
        """L_k = 1 + Σ_h η_h λ_h(k), the attention branch with its residual.

        Parameters
        ----------
        k : int
            Wavenumber, modulo n.
        """
        return complex(1 + self.eta @ self.symbol(k))

    def J(self, k: int) -> complex:
        """J_k = α_1 L_k, the multiplier of the mode k.

        Parameters
        ----------
        k : int
            Wavenumber, modulo n.
        """
        return self.alpha[0] * self.L(k)

    def multiplier(self, k: int) -> complex:
        """Λ = J_k of a mode whose amplitude is asked for.

        Parameters
        ----------
        k : int
            Wavenumber, modulo n.

        Raises
        ------
        ExclusionError
            If Λ is zero, but for rounding.
        """
        multiplier = self.J(k)
        if abs(multiplier) <= ROUNDING * abs(self.alpha[0]) * float(1 + np.abs(self.eta) @ np.abs(self.symbol(k))):
            raise ExclusionError(
                "block", f"Λ = 0 at the wavenumber {k % self.n}", "Λ ≠ 0 of a mode that has an amplitude"
            )
        return multiplier

    def slaved(self, drive: complex, product: complex, k: int) -> complex:
        """drive/(product − J_k): the amplitude of a mode that follows critical ones.

        Parameters
        ----------
        drive : complex
            What the critical modes put into it.
        product : complex
            The product of their multipliers.
        k : int
            Wavenumber of the mode that follows, modulo n.

        Raises
        ------
        ExclusionError
            If `product` and J_k are equal, but for rounding: the mode is in resonance.
        """
        gap = product - self.J(k)
        if abs(gap) <= ROUNDING * (abs(product) + abs(self.J(k))):
            got = f"a slaved mode in resonance, J = {self.J(k):.6g} at the wavenumber {k % self.n}"
            raise ExclusionError("block", got, f"J other than {complex(product):.6g}, what drives it, there")
        return drive / gap

    def B(self, k1: int, k2: int) -> complex:
        """B(1,2) = α_2 L_1 L_2 + α_1 Σ_h η_h ξ_h (λ_12 − λ_1 λ_2).

        Parameters
        ----------
        k1, k2 : int
            Wavenumbers 1 and 2, modulo n.
        """
        a1, a2, _ = self.alpha
        return a2 * self.L(k1) * self.L(k2) + a1 * self._tilt(self.state * self.chi, k1, k2)

    def C(self, k1: int, k2: int, k3: int) -> complex:
        """C(1,2,3), the cubic coefficient of three modes.

        Parameters
        ----------
        k1, k2, k3 : int
            Wavenumbers 1, 2 and 3, modulo n.

        Notes
        -----
        With ⟨·⟩ the mean over which of them is number 1:

        C(1,2,3) = α_3 L_1 L_2 L_3 + ⟨α_1 Σηχ(λ_23 − λ_2λ_3) + 2α_2 L_1 Σηξ(λ_23 − λ_2λ_3)⟩
        + ½α_1 Σηξ²(λ_123 − 3⟨λ_23 λ_1⟩ + 2λ_1λ_2λ_3).
        """
        a1, a2, a3 = self.alpha
        xi = self.state * self.chi
        total = a3 * self.L(k1) * self.L(k2) * self.L(k3)
        third = self.symbol(k1 + k2 + k3) + 2 * self.symbol(k1) * self.symbol(k2) * self.symbol(k3)
        for first, second, last in ((k1, k2, k3), (k2, k3, k1), (k3, k1, k2)):
            total += a1 * self._tilt(self.chi, second, last) / 3
            total += 2 * a2 * self.L(first) * self._tilt(xi, second, last) / 3
            third = third - self.symbol(second + last) * self.symbol(first)
        return complex(total + a1 * (self.eta * xi**2) @ third / 2)

    def _tilt(self, tilt: NDArray[np.float64], k1: int, k2: int) -> complex:
        """Σ_h η_h θ_h (λ_h(k1+k2) − λ_h(k1) λ_h(k2)): the covariance of two modes under A."""
        covariance = self.symbol(k1 + k2) - self.symbol(k1) * self.symbol(k2)
        return complex((self.eta * tilt) @ covariance)

    def at_onset(self, k: int) -> ScalarForms:
        """The same forms with every η_h scaled by the t > 0 nearest to 1 for which |J_k| = 1; the α's are kept.

        Parameters
        ----------
        k : int
            Wavenumber, modulo n.

        Raises
        ------
        ExclusionError
            If no such t exists, or only one at which a real Λ has changed its sign.
        """
        s = self.L(k) - 1
        # |1 + ts|² = 1/α_1²: |s|² t² + 2 Re(s) t + 1 − 1/α_1² = 0
        square, half, slope = abs(s) ** 2, s.real, self.alpha[0] ** 2
        discriminant = half**2 - square * (1 - 1 / slope) if slope else np.nan
        roots = (-half + np.array([-1, 1]) * np.sqrt(discriminant)) / square if square > 0 <= discriminant else []
        real = abs(s.imag) <= 1e-12 * abs(s)
        positive = [float(t) for t in roots if t > 0 and (not real or (1 + t * s.real) * (1 + s.real) > 0)]
        if not positive:
            raise ExclusionError("at", f"'onset' for k = {k}", "'gain' here: no OV gain makes |Λ| = 1")
        return replace(self, eta=min(positive, key=lambda t: abs(t - 1)) * self.eta)

    def evaluate(self, at: At, *modes: int) -> tuple[ScalarForms, list[complex]]:
        """The forms and the multipliers from which coefficients are computed.

        Parameters
        ----------
        at : {'gain', 'onset', 'paper'}
            'gain': the block as it is, resolvents with its own Λ (D_0 = |Λ|² − J_0, D_2 = Λ² − J_2);
            'onset': every η scaled until the first of `modes` to become critical has |Λ| = 1;
            'paper': the block as it is, resolvents with Λ/|Λ|, as the paper prints them (Eq. 117).
        *modes : int
            Wavenumbers of the critical modes.

        Returns
        -------
        (ScalarForms, list of complex)
            The forms, and the multiplier of each of `modes`.
        """
        choice("at", at, ("gain", "onset", "paper"))
        if at == "gain":
            return self, [self.J(k) for k in modes]
        if at == "paper":
            return self, [self.multiplier(k) / abs(self.J(k)) for k in modes]
        forms = self.at_onset(max(modes, key=lambda k: abs(self.J(k)), default=0))
        return forms, [forms.J(k) for k in modes]

    def refuse_unstable(self, *slaved: int, critical: tuple[int, ...] = ()) -> None:
        """Refuse slaved modes that are not linearly stable.

        Parameters
        ----------
        *slaved : int
            Their wavenumbers, modulo n.
        critical : tuple of int
            Wavenumbers that are left out, ± each.

        Raises
        ------
        ExclusionError
            If one of the `slaved` modes, ± the `critical` ones aside, is not linearly stable.
        """
        free = {sign * k % self.n for k in critical for sign in (1, -1)}
        for k in slaved:
            if k % self.n not in free and not abs(self.J(k)) < 1:
                raise ExclusionError(
                    "block", f"|J| = {abs(self.J(k)):.6g} at the slaved wavenumber {k % self.n}", "|J| < 1 there"
                )
