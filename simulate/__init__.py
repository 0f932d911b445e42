"""Iterated maps on a ring of tokens: trajectories, observables and parameter sweeps."""

from simulate.many_features import cluster_separation, grid_fourier, project, rotation, token_clusters
from simulate.observables import OBSERVABLES, Observable
from simulate.one_feature import (
    amplitude,
    cluster_values,
    clusters,
    dominant_wavenumber,
    fourier,
    heterogeneity,
    phase_advance,
    spectrum,
    turn,
)
from simulate.runs.netcdf import load, save
from simulate.settle import STATUS
from simulate.sweeps import SweepInterrupted, sweep
from simulate.trajectory import Trajectory, iterate, iterate_many

__all__ = [
    "OBSERVABLES",
    "STATUS",
    "Observable",
    "SweepInterrupted",
    "Trajectory",
    "amplitude",
    "cluster_separation",
    "cluster_values",
    "clusters",
    "dominant_wavenumber",
    "fourier",
    "grid_fourier",
    "heterogeneity",
    "iterate",
    "iterate_many",
    "load",
    "phase_advance",
    "project",
    "rotation",
    "save",
    "spectrum",
    "sweep",
    "token_clusters",
    "turn",
]
