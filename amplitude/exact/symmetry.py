"""Translations and reflections of a field of tokens: real shifts, and the subspace that its own symmetries leave."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dispersion import ArgumentError, Block, Mode
from dispersion.errors import instance
from dispersion.grid import Wavenumber, conjugate_pairs, lag_index, mirrored, positions, wavenumber

Floats = NDArray[np.float64]

SAME = 1e-8
"""Relative difference under which a field counts as equal to its image under a symmetry."""


@lru_cache(maxsize=256)
def unwrapped(shape: tuple[int, ...], k: tuple[int, ...]) -> tuple[Floats, NDArray[np.bool_]]:
    """(N, D) wavenumber q̃ of each flat index on each axis, as the harmonics of a wave at `k` have it, and whether it
    is the last harmonic of an even number, which has no sign.

    A wave X_j = g(qj) of n tokens a period has n harmonics m, |m| ≤ n/2, at mq, and mq may lie outside (−π, π]. An
    axis with k = 0 is unwrapped as for k = 1.
    """
    columns, last = [], []
    for size, part in zip(shape, k, strict=True):
        part = part % size or 1
        common = gcd(part, size)
        n = size // common
        index = np.arange(size)
        offset = (index + (common - 1) // 2) % common - (common - 1) // 2
        m = (index - offset) // common * pow(part // common, -1, n) % n if n > 1 else 0 * index
        m = m - n * (2 * m > n)
        columns.append(2 * np.pi * (part * m + offset) / size)
        last.append((2 * m == n) & (offset == 0))
    grid = positions(shape)
    axes = range(len(shape))
    return (
        np.stack([columns[axis][grid[:, axis]] for axis in axes], axis=1),
        np.stack([last[axis][grid[:, axis]] for axis in axes], axis=1),
    )


def shift_matrix(
    shape: tuple[int, ...], k: Wavenumber, drift: Floats, derivative: int | None = None, unitary: bool = False
) -> NDArray:
    """(N, N) T_s, which moves a wave by s tokens towards larger j: g(qj) ↦ g(q(j − s)) with g interpolated.

    shape : tokens; k : of the wave; drift : s, (D,); derivative : an axis, for ∂T/∂s along it.
    unitary : the last of an even number of harmonics turns too, so that T is unitary but complex; otherwise it is
        multiplied by the cosine, so that real fields stay real.
    """
    q, last = unwrapped(shape, k if isinstance(k, tuple) else (k,))
    turn = np.exp(-1j * q * drift)
    slope = -1j * q * turn
    if not unitary:
        turn = np.where(last, turn.real, turn)
        slope = np.where(last, slope.real, slope)
    if derivative is not None:
        turn[:, derivative] = slope[:, derivative]
    kernel = np.fft.ifftn(turn.prod(axis=1).reshape(shape)).ravel()
    return (kernel if unitary else kernel.real)[lag_index(shape)]


def slides_of(shape: tuple[int, ...], k: Wavenumber, x: Floats) -> list[Floats]:
    """∂X along each axis of `shape`, (N, d): the infinitesimal translations of the wave `x` (N, d) at `k`."""
    return [-shift_matrix(shape, k, np.zeros(len(shape)), axis) @ x for axis in range(len(shape))]


def dominant(shape: tuple[int, ...], x: NDArray) -> Wavenumber:
    """The wavenumber k ≠ 0 of the largest |fft(X)[k]| of `x` (N, d), one of each pair ±k; 0 if homogeneous."""
    moduli = spectrum(shape, x).ravel()
    half, _ = conjugate_pairs(shape)
    moduli = moduli[half]
    moduli[0] = 1e-9 * (1 + np.abs(x).max())
    return wavenumber(int(half[moduli.argmax()]), shape)


def spectrum(shape: tuple[int, ...], x: NDArray) -> Floats:
    """(*shape) |X_k| of the field `x` (N, d): the norm over features of fft(X)[k]/N."""
    modes = np.fft.fftn(x.reshape(*shape, -1), axes=range(len(shape))) / len(x)
    return np.asarray(np.linalg.norm(modes, axis=-1))


def circulant(block: Block) -> bool:
    """Whether attention depends on i − j alone, so that translations commute with the map."""
    try:
        return all(head.lag_logits is not None and head.periodic for head in block.heads)
    except ArgumentError:
        return False


def uniform(block: Block) -> bool:
    """Whether attention knows no positions at all, so that every permutation of tokens commutes with the map."""
    return all(
        head.rotary is None and np.ptp(weights) <= 1e-14 * weights.max()
        for head in block.heads
        for weights in (np.exp(head.lag_logits - head.lag_logits.max()),)
    )


def odd(block: Block) -> bool:
    """Whether F(−X) = −F(X)."""
    x = 0.7 * np.sin(np.arange(1.0, 1 + block.n * block.d) ** 2).reshape(block.n, block.d)
    return bool(np.abs(block.forward(x) + block.forward(-x)).max() <= 1e-14)


def flips(block: Block) -> list[NDArray[np.int64]]:
    """The sign changes of axes (D,), ±1, under which j ↦ ±j commutes with the map of `block`, the identity first."""
    signs = [np.array(sign) for sign in product([1, -1], repeat=len(block.shape))]
    if any(head.rotary is not None for head in block.heads):
        return signs[:1]
    return [sign for sign in signs if all(_flips(head.lag_logits, sign) for head in block.heads)]


def _flips(logits: Floats, sign: NDArray) -> bool:
    weights = np.exp(logits - logits.max())
    image = weights
    for axis in np.flatnonzero(sign < 0):
        image = np.moveaxis(mirrored(np.moveaxis(image, axis, -1), 1), -1, axis)
    return bool(np.abs(image - weights).max() <= 1e-13 * weights.max())


def moves(shape: tuple[int, ...], sign: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N, N) row c is the permutation j ↦ c + `sign`·j of the tokens of `shape`; `sign` : ±1 for each axis."""
    return _moves(shape, tuple(int(s) for s in sign))


@lru_cache(maxsize=64)
def _moves(shape: tuple[int, ...], sign: tuple[int, ...]) -> NDArray[np.int64]:
    token = positions(shape)
    image = (token[:, None, :] + np.array(sign) * token[None, :, :]) % np.array(shape)
    return np.ravel_multi_index(tuple(np.moveaxis(image, -1, 0)), shape)


def twist(block: Block, kind: str, x: Floats) -> NDArray[np.int64] | None:
    """(N,) a reflection R of the ring such that the state sought from the field `x` (N, d) has F(X) = RX.

    Waves of an odd number n of tokens a period, at the phase π/2n, have it: alternating ones of any map, and steady
    ones of an odd map, where it is −RX. None for other fields, and where RX = X.
    """
    wave = x - x.mean(axis=0)
    size = float(np.abs(wave).max())
    if len(block.shape) > 1 or not size > 0 or not circulant(block) or len(flips(block)) == 1:
        return None
    images = moves(block.shape, np.array([-1]))
    if np.abs(wave[images] - wave).max(axis=(1, 2)).min() <= SAME * size:
        return None
    apart = np.abs(wave[images] + wave).max(axis=(1, 2))
    if kind == "alternating":
        apart = np.minimum(apart, np.abs(block.forward(x)[images] - x).max(axis=(1, 2)))
    elif np.abs(x - wave).max() > SAME * size or not odd(block):
        return None
    return images[apart.argmin()] if apart.min() <= SAME * size else None


@dataclass(frozen=True, eq=False)
class Reduction:
    """Fields that are constant on orbits of tokens: a subspace that the map leaves invariant.

    orbit : (N,) number of each token's orbit, 0 … m−1; first : (m,) the first token of each.
    """

    orbit: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of(cls, block: Block, x: Floats, reflections: bool = True) -> Reduction:
        """The orbits of the symmetries that `block` and the field `x` (N, d) share.

        reflections : also use reflections, and permutations where attention is uniform.
        """
        n = len(x)
        if not circulant(block):
            return cls(np.arange(n), np.arange(n))
        close = SAME * max(float(np.abs(x).max()), 1e-300)
        if reflections and uniform(block):
            label = (np.abs(x[:, None] - x[None, :]).max(axis=-1) <= close).argmax(axis=1)
        else:
            label = np.arange(n)
            for sign in flips(block)[: None if reflections else 1]:
                images = moves(block.shape, sign)
                kept = images[np.abs(x[images] - x).max(axis=(1, 2)) <= close]
                # orbits of the group that all kept moves generate together
                label = np.minimum(label, kept.min(axis=0, initial=n))
            label = _closed(label)
        first, orbit = np.unique(label, return_inverse=True)
        return cls(orbit, first)

    @property
    def size(self) -> int:
        """Number m of orbits."""
        return len(self.first)

    def restrict(self, x: Floats) -> Floats:
        """(m·d,) the values of the field `x` (N, d), averaged over each orbit."""
        if self.size == len(self.orbit):
            return x.ravel()
        totals = np.zeros((self.size, x.shape[1]))
        np.add.at(totals, self.orbit, x)
        return (totals / np.bincount(self.orbit)[:, None]).ravel()

    def expand(self, c: Floats, d: int) -> Floats:
        """(N, d) the field with the values `c` (m·d,) on the orbits; `d` features."""
        return c.reshape(-1, d)[self.orbit]

    def reduce(self, matrix: Floats, d: int) -> Floats:
        """(m·d, m·d) of a `matrix` (N·d, N·d) that commutes with the symmetries; `d` features."""
        m, n = self.size, len(self.orbit)
        if m == n:
            return matrix
        rows = matrix.reshape(n, d, n, d)[self.first]
        indicator = (self.orbit[:, None] == np.arange(m)).astype(float)
        return np.swapaxes(np.swapaxes(rows, 2, 3) @ indicator, 2, 3).reshape(m * d, m * d)


def projection(shape: tuple[int, ...], x: NDArray, mode: Mode) -> float:
    """|wᴴX_k| of the field `x` (N, d), X_k = fft(X)[k]/N, w the left vector of `mode`; |w| = 1/|wᴴv| may exceed 1."""
    if (instance("mode", mode, Mode).shape, mode.left.size) != (shape, x.shape[1]):
        got = f"one of tokens {mode.shape}, d = {mode.left.size}"
        raise ArgumentError("mode", got, f"a mode of tokens {shape}, d = {x.shape[1]}")
    modes = np.fft.fftn(x.reshape(*shape, -1), axes=range(len(shape))) / len(x)
    return float(abs(np.vdot(mode.left, modes[mode.k])))


def snapped(block: Block, x: Floats) -> list[Floats]:
    """The fields nearest to the wave `x` (N, d), a little shifted, at the phases where waves of its families are.

    A wave of n tokens a period is even where its phase is a multiple of π/n, and is made so. For odd n it is odd about
    its mean at the multiples of π/2n between (`twist`). Empty on a torus, or where reflections do not commute with
    `block`.
    """
    shape, k = block.shape, dominant(block.shape, x)
    if len(shape) > 1 or not k or not circulant(block) or len(flips(block)) == 1:
        return []
    (n,) = shape
    part = int(k if isinstance(k, int) else k[0])
    period = n // gcd(part, n)
    between = 1 + period % 2
    q, step = 2 * np.pi * part / n, np.pi / period / between
    wave = np.exp(-1j * q * np.arange(n)) @ x
    phase = float(np.angle(wave[np.abs(wave).argmax()]))
    fields = []
    near = int(np.floor(phase / step))
    for nearest in sorted(range(near - between + 1, near + between + 1), key=lambda m: abs(m * step - phase)):
        moved = shift_matrix(shape, k, np.array([(phase - nearest * step) / q])) @ x
        mean, sign = moved.mean(axis=0), 1 if nearest % between == 0 else -1
        images = mean + sign * (moved[moves(shape, np.array([-1]))] - mean)
        fields.append((moved + images[np.abs(images - moved).max(axis=(1, 2)).argmin()]) / 2)
    return fields


def _closed(label: NDArray[np.int64]) -> NDArray[np.int64]:
    """Follow each label (N,) to the smallest one of its chain."""
    while (label[label] != label).any():
        label = label[label]
    return label
