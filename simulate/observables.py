"""What is measured where a run ends: each observable is declared once, for trajectories, sweeps, files and diagrams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dispersion.errors import ArgumentError, flag, instance, shown
from simulate import one_feature
from simulate.linear import Critical, critical_modes
from simulate.many_features import wave_of

if TYPE_CHECKING:
    from dispersion.block.scalar_blocks import ScalarBlocks
    from simulate.settle import Outcome
    from simulate.trajectory import Trajectory


DIMS = ("token", "feature", "k", "axis")


@dataclass(frozen=True)
class Observable:
    """A quantity of the last state of a Trajectory; called with one, `path`, it gives its value.

    Parameters
    ----------
    name : str
        Of the variable in a dataset.
    value : callable
        From a Trajectory, its last state alone recorded, to real numbers, or to None where it is not defined.
    long_name, units : str
        Attributes in files.
    label : str
        What a plot calls it.
    dims : tuple of str
        Of the value, among 'token', 'feature', 'k' (of the half spectrum, or of all wavenumbers of a torus) and 'axis'
        (of a torus); there is no 'feature' for d = 1, and no 'axis' on a ring.
    kind : type
        float, or numpy.int32 for whole numbers, where −1 stands for no value.
    together : callable, optional
        `value` of many plain scalar rings at once.
    diverged : bool
        Whether runs that diverged have it too.
    by_default : bool
        Whether a sweep measures it unasked.
    """

    name: str
    value: Callable[[Trajectory], Any]
    long_name: str = ""
    units: str = "1"
    label: str = ""
    dims: tuple[str, ...] = ()
    kind: Any = float
    together: Callable[[ScalarRuns], NDArray] | None = None
    diverged: bool = False
    by_default: bool = True

    def __post_init__(self) -> None:
        for argument in ("name", "long_name", "units", "label"):
            instance(argument, getattr(self, argument), str)
        for argument in ("value", "together"):
            function = getattr(self, argument)
            if not (callable(function) or (argument == "together" and function is None)):
                raise ArgumentError(argument, shown(function), "a function")
        if not isinstance(self.dims, tuple) or not all(isinstance(dim, str) and dim in DIMS for dim in self.dims):
            raise ArgumentError("dims", shown(self.dims), f"a tuple of {', '.join(DIMS)}")
        if self.kind is not float and self.kind is not np.int32:
            raise ArgumentError("kind", shown(self.kind), "float or numpy.int32")
        for argument in ("diverged", "by_default"):
            flag(argument, getattr(self, argument))

    def __call__(self, path: Trajectory) -> Any:
        """Its value on a run.

        Parameters
        ----------
        path : Trajectory
            The run, of which the last state is measured.
        """
        from simulate.trajectory import Trajectory

        return self.value(instance("path", path, Trajectory))


@dataclass(frozen=True, eq=False)
class ScalarRuns:
    """P plain scalar rings with these `blocks`, which ended with this `outcome`."""

    outcome: Outcome
    blocks: ScalarBlocks

    @property
    def state(self) -> NDArray[np.float64]:
        """(P, N) the last states."""
        return self.outcome.states[..., 0]

    @property
    def before(self) -> NDArray[np.float64]:
        """(P, N) the states one layer earlier."""
        return self.outcome.previous[..., 0]

    @cached_property
    def spectrum(self) -> NDArray[np.float64]:
        """(P, N//2+1) |B_k|."""
        return one_feature.spectrum(self.state)

    @cached_property
    def dominant(self) -> NDArray[np.int64]:
        """(P,) the dominant wavenumber."""
        return one_feature.dominant_of_spectrum(self.spectrum)

    @cached_property
    def clusters(self) -> NDArray[np.float64]:
        """(P, 2) mean of the tokens below and above the mid-range."""
        return one_feature.cluster_values(self.state)

    @cached_property
    def critical(self) -> Critical:
        """The leading multiplier at the state 0."""
        return critical_modes(self.blocks)

    def size(self, k: NDArray[np.int64]) -> NDArray[np.float64]:
        """(P,) |B_k| at `k` (P,), NaN where that is below 0."""
        return np.where(k < 0, np.nan, self.spectrum[np.arange(len(k)), k])

    def advance(self, k: NDArray[np.int64]) -> NDArray[np.float64]:
        """(P,) arg(B_k after/B_k before) at `k` (P,), NaN where that is below 0."""
        return np.where(k < 0, np.nan, one_feature.phase_advance(self.before, self.state, k))


def _of_mode(value: Callable[[Any], Any]) -> Callable[[Trajectory], Any]:
    """`value` of the leading mode of a path, where it has one."""
    return lambda path: None if path.leading_mode is None else value(path.leading_mode)


def _of_wave(value: Callable[[Any, Any], Any]) -> Callable[[Trajectory], Any]:
    """`value` of the complex amplitudes of the leading mode of a path before and after the last layer."""

    def of(path: Trajectory) -> Any:
        mode = path.leading_mode
        return None if mode is None else float(value(*wave_of(path.previous, path.state, mode, path.shape)))

    return of


DECLARED = (
    Observable(
        "state",
        lambda path: path.state[:, 0] if path.block.d == 1 else path.state,
        "last state x_j; the last admissible one of a diverged point",
        dims=("token", "feature"),
        together=lambda runs: runs.state,
        diverged=True,
    ),
    Observable(
        "spectrum",
        lambda path: path.spectrum,
        "modulus |B_k| of the Fourier amplitude, B_k = fft(x)_k/N",
        dims=("k", "feature"),
        together=lambda runs: runs.spectrum,
    ),
    Observable(
        "wavenumber",
        lambda path: path.wavenumber,
        "dominant wavenumber k >= 1, 0 if homogeneous, -1 if there is no state",
        label="wavenumber $k$",
        dims=("axis",),
        kind=np.int32,
        together=lambda runs: runs.dominant,
    ),
    Observable(
        "amplitude",
        lambda path: path.amplitude,
        "|B_k| at the dominant wavenumber",
        together=lambda runs: runs.size(runs.dominant),
    ),
    Observable(
        "phase_advance",
        lambda path: path.phase_advance,
        "arg(B_k after/B_k before) at the dominant wavenumber, last layer",
        "rad",
        together=lambda runs: runs.advance(runs.dominant),
    ),
    Observable(
        "critical_wavenumber",
        _of_mode(lambda mode: mode.k),
        "wavenumber of the leading multiplier at x = 0, -1 if undefined",
        dims=("axis",),
        kind=np.int32,
        together=lambda runs: runs.critical.k,
        diverged=True,
    ),
    Observable(
        "critical_growth",
        _of_mode(lambda mode: mode.growth),
        "growth |Lambda| of the leading mode at x = 0",
        together=lambda runs: np.abs(runs.critical.multiplier),
        diverged=True,
    ),
    Observable(
        "critical_phase",
        _of_mode(lambda mode: mode.phase),
        "argument of the leading multiplier at x = 0",
        "rad",
        together=lambda runs: np.angle(runs.critical.multiplier),
        diverged=True,
    ),
    Observable(
        "critical_amplitude",
        _of_wave(lambda before, after: np.abs(after)),
        "|w* B_k| at the critical wavenumber, w the critical left vector",
        label="amplitude $R$",
        together=lambda runs: runs.size(runs.critical.k),
    ),
    Observable(
        "critical_phase_advance",
        _of_wave(one_feature.turn),
        "arg(w* B_k after/w* B_k before) at that wavenumber, last layer",
        "rad",
        label=r"phase advance $\Omega$ (rad/layer)",
        together=lambda runs: runs.advance(runs.critical.k),
    ),
    Observable(
        "mean",
        lambda path: path.mean,
        "average over tokens",
        dims=("feature",),
        together=lambda runs: runs.state.mean(axis=1),
    ),
    Observable(
        "cluster_low",
        lambda path: path.cluster_values[..., 0],
        "mean of the tokens below the mid-range (min + max)/2",
        dims=("feature",),
        together=lambda runs: runs.clusters[:, 0],
    ),
    Observable(
        "cluster_high",
        lambda path: path.cluster_values[..., 1],
        "mean of the tokens at or above the mid-range (min + max)/2",
        dims=("feature",),
        together=lambda runs: runs.clusters[:, 1],
    ),
    Observable(
        "heterogeneity",
        lambda path: path.heterogeneity,
        "|X - mean|/|X|, small at rank collapse",
        together=lambda runs: one_feature.heterogeneity(runs.state),
    ),
    Observable(
        "cluster_count",
        lambda path: path.cluster_count(),
        "number of clusters of tokens, -1 if there is no state",
        kind=np.int32,
        by_default=False,
    ),
    Observable(
        "cluster_separation",
        lambda path: path.cluster_separation(),
        "smallest distance between two cluster means, 0 for one cluster",
        by_default=False,
    ),
)

OBSERVABLES = {observable.name: observable for observable in DECLARED}
