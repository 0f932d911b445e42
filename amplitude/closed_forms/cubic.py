"""The cubic terms of waves, B_i⁺ = Λ_i B_i + (β_ii|B_i|² + β_ij|B_j|²)B_i, from B and C of `ScalarForms`."""

from __future__ import annotations

from typing import NamedTuple

from amplitude.closed_forms.scalar_forms import ScalarForms


class SelfCoupling(NamedTuple):
    """How a wave B acts on itself: c of c|B|²B, and the modes that follow it, X_0 = mean·|B|², X_2q = harmonic·B²."""

    coefficient: complex
    mean: complex
    harmonic: complex


def self_coupling(forms: ScalarForms, k: int, multiplier: complex, harmonic: bool = True) -> SelfCoupling:
    """c = 3C(q,q,−q) + 2B(q,0)X_0 + 2B(−q,2q)X_2, X_0 = 2B(q,−q)/(|Λ|²−J_0), X_2 = B(q,q)/(Λ²−J_2q).

    k : of the wave; multiplier : Λ in the resolvents; harmonic : whether 2q is slaved, not the mode −q itself.
    """
    B, slaved = forms.B, forms.slaved
    mean = slaved(2 * B(k, -k), abs(multiplier) ** 2, 0)
    second = slaved(B(k, k), multiplier**2, 2 * k) if harmonic else 0j
    c = 3 * forms.C(k, k, -k) + 2 * B(k, 0) * mean + 2 * B(-k, 2 * k) * second
    return SelfCoupling(c, mean, second)


def cross_coupling(forms: ScalarForms, i: int, multiplier_i: complex, j: int, multiplier_j: complex) -> complex:
    """β_ij = 6C(i,j,−j) + 2B(i,0)X_0 + 2B(−j,i+j)X_{i+j} + 2B(j,i−j)X_{i−j}: how the wave j acts on the wave i.

    X_0 = 2B(j,−j)/(|Λ_j|²−J_0), X_{i+j} = 2B(i,j)/(Λ_iΛ_j−J_{i+j}), X_{i−j} = 2B(i,−j)/(Λ_iΛ̄_j−J_{i−j}).
    """
    B, slaved = forms.B, forms.slaved
    mean = slaved(2 * B(j, -j), abs(multiplier_j) ** 2, 0)
    total = slaved(2 * B(i, j), multiplier_i * multiplier_j, i + j)
    difference = slaved(2 * B(i, -j), multiplier_i * multiplier_j.conjugate(), i - j)
    return 6 * forms.C(i, j, -j) + 2 * B(i, 0) * mean + 2 * B(-j, i + j) * total + 2 * B(j, i - j) * difference
