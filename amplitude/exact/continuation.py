"""Pseudo-arclength continuation of exact states: z = (u, p) with G(u; p) = 0, p a parameter of the block.

Steps are measured in |z|² = mean_j|X_j|²/U² + (p/P)² with scales U of the field and P of the parameter. From a point
and its tangent t the next is sought at z + σt, G = 0 and ⟨t, z' − z⟩ = σ: Newton's method passes folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from amplitude.exact.equations import Floats, StateEquations, least_step, newton
from amplitude.exact.states import ExactState, state_of
from dispersion import ArgumentError, Block

MakeBlock = Callable[[float], Block]


@dataclass(frozen=True, eq=False)
class Point:
    """A point of a branch: the unknown z = (u, p), (n+1,), and the unit tangent there in scaled units, (n+1,)."""

    z: Floats
    tangent: Floats
    state: ExactState

    @property
    def value(self) -> float:
        """The parameter p."""
        return float(self.z[-1])


@dataclass(frozen=True, eq=False)
class Continuation:
    """The equations of a branch, with the parameter p free.

    make_block : the block of each parameter; equations : what is solved; scale : (n+1,) the size of each entry of z, so
    that z/scale is measured; tolerance : of max|G|.
    """

    make_block: MakeBlock
    equations: StateEquations
    scale: Floats
    tolerance: float

    @classmethod
    def of(
        cls, make_block: MakeBlock, equations: StateEquations, x: Floats, span: float, tolerance: float
    ) -> Continuation:
        """The path of `equations` from the field `x` (N, d), where `span` is the size P of the parameter's range."""
        size = max(float(np.sqrt((x**2).mean())), 0.1)
        counts = np.repeat(np.bincount(equations.reduction.orbit), equations.d)
        drifts = len(equations.shape) if equations.kind == "travelling" else 0
        scale = np.concatenate([size * np.sqrt(x.size / counts), np.ones(drifts), [span]])
        return cls(make_block, equations, scale, tolerance)

    def block(self, value: float) -> Block:
        """The block at the parameter `value`; an ArgumentError says if it is none, or changes shape."""
        block = self.make_block(float(value))
        if not isinstance(block, Block):
            raise ArgumentError("make_block", type(block).__name__, "a function that returns a Block")
        if (block.shape, block.d) != (self.equations.shape, self.equations.d):
            got = f"tokens {block.shape}, d = {block.d}"
            raise ArgumentError(
                "make_block", got, f"tokens {self.equations.shape}, d = {self.equations.d} at every value"
            )
        return block

    @cached_property
    def _step(self) -> float:
        return 1e-6 * float(self.scale[-1])

    def slope(self, z: Floats) -> Floats:
        """∂G/∂p at `z`, by a central difference: exact to 1e-9, and no solution depends on it."""
        u, p = z[:-1], z[-1]
        sides = [self.equations.image(self.block(p + side * self._step), u) for side in (1, -1)]
        slope: Floats = (sides[0] - sides[1]) / (2 * self._step)
        return slope

    def solve(self, z: Floats, row: Floats, slope: Floats | None = None) -> tuple[Floats, float, int]:
        """Newton's method from the guess `z` with ⟨row, ·⟩ kept: (z, max|G|, steps); `slope` : ∂G/∂p, if known."""
        slope, row = self.slope(z) if slope is None else slope, row / self.scale
        target = row @ z

        def system(z: Floats) -> tuple[Floats, Floats]:
            # [∂G/∂u, ∂G/∂p; row] δz = −(G, ⟨row, z⟩ − target)
            residual, matrix = self.equations(self.block(z[-1]), z[:-1])
            bordered = np.vstack([np.column_stack([matrix, slope]) * self.scale, row * self.scale])
            return np.append(residual, row @ z - target), bordered

        def scaled(y: Floats) -> tuple[Floats, Floats]:
            return system(y * self.scale)

        y, size, steps = newton(scaled, z / self.scale, self.tolerance, iterations=8)
        return y * self.scale, size, steps

    def point(self, z: Floats, size: float, along: Floats, slope: Floats | None = None) -> Point:
        """The solution `z` as a point, its tangent on the side of `along` (n+1,); `size` : max|G|.

        slope : ∂G/∂p, if known. That of a point nearby will do: p turns where ∂G/∂u is singular, whatever ∂G/∂p.
        """
        block = self.block(z[-1])
        # ∂G/∂u t_u + ∂G/∂p t_p = 0, ⟨along, t⟩ = 1
        matrix = self.equations(block, z[:-1])[1]
        slope = self.slope(z) if slope is None else slope
        bordered = np.vstack([np.column_stack([matrix, slope]) * self.scale, along])
        tangent = least_step(bordered, -np.append(np.zeros(len(matrix)), 1.0))
        return Point(z, tangent / np.linalg.norm(tangent), state_of(block, self.equations, z[:-1], size))

    def between(self, a: Point, b: Point, part: float) -> Point | None:
        """The point of the branch a fraction `part` of the way from `a` to `b`, or None if Newton's method fails."""
        chord = (b.z - a.z) / self.scale
        chord /= np.linalg.norm(chord)
        guess = a.z + part * (b.z - a.z)
        slope = self.slope(guess)
        z, size, _ = self.solve(guess, chord, slope)
        return self.point(z, size, chord, slope) if size <= self.tolerance else None

    def at(self, a: Point, b: Point, value: float) -> Point | None:
        """The point at the parameter `value` between `a` and `b`, or None if Newton's method fails."""
        along = np.zeros(len(a.z))
        along[-1] = 1.0
        part = (value - a.value) / (b.value - a.value)
        z, size, _ = self.solve(a.z + part * (b.z - a.z), along)
        z[-1] = value
        return self.point(z, size, (b.z - a.z) / self.scale) if size <= self.tolerance else None


@dataclass(frozen=True)
class Walk:
    """How far and how finely to follow: the `window` of the parameter, at most `points` more points, steps σ of at
    most `longest`, beginning with `first`; `locate` : also locate bifurcations."""

    window: tuple[float, float]
    points: int
    longest: float
    first: float
    locate: bool = True


def walk(path: Continuation, start: Point, plan: Walk) -> Iterator[Point | str]:
    """The points after `start` along its tangent, and last the reason why there are no more."""
    point, step = start, plan.first
    low, high = min(plan.window), max(plan.window)
    for _ in range(plan.points):
        while True:
            guess = point.z + step * point.tangent * path.scale
            slope = path.slope(guess)
            z, size, steps = path.solve(guess, point.tangent, slope)
            if size <= path.tolerance:
                after = path.point(z, size, point.tangent, slope)
                if after.tangent @ point.tangent >= 0.9:
                    break
            step /= 2
            if step < 1e-6 * plan.longest:
                yield f"no step of the branch succeeds near {point.value:.6g}"
                return
        if not low <= after.value <= high:
            edge = low if after.value < low else high
            last = path.at(point, after, edge) if point.value != edge else None
            if last is not None:
                yield last
            yield f"the parameter reached {edge:.6g}"
            return
        yield after
        point = after
        if point.tangent @ start.tangent > 0.99 and np.linalg.norm((z - start.z) / path.scale) < 0.5 * step:
            yield "the branch closed on itself"
            return
        step = min(step * (1.5 if steps <= 4 else 0.7 if steps > 6 else 1.0), plan.longest)
    yield "the most points that were allowed"
