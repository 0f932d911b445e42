"""Iterated maps on a ring of tokens: trajectories, observables and parameter sweeps."""

from simulate.observables import (
    amplitude,
    cluster_values,
    clusters,
    dominant_wavenumber,
    fourier,
    heterogeneity,
    phase_advance,
    spectrum,
)
from simulate.settle import STATUS
from simulate.store import load, save
from simulate.sweeps import SweepInterrupted, sweep
from simulate.trajectory import Trajectory, iterate

__all__ = [
    "STATUS",
    "SweepInterrupted",
    "Trajectory",
    "amplitude",
    "cluster_values",
    "clusters",
    "dominant_wavenumber",
    "fourier",
    "heterogeneity",
    "iterate",
    "load",
    "phase_advance",
    "save",
    "spectrum",
    "sweep",
]
