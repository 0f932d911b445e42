"""Weakly nonlinear theory: what the modes of linear theory become once they have grown."""

from amplitude.clusters import Clusters, ClusterState, cluster_state, clusters
from amplitude.competition import REGIMES, Competition, competition
from amplitude.forms import ScalarForms
from amplitude.potential import one_mode_potential, two_mode_potential
from amplitude.sectors import (
    HomogeneousState,
    PeriodFour,
    PeriodThree,
    PeriodTwo,
    homogeneous_state,
    period_four,
    period_three,
    period_two,
)
from amplitude.waves import Wave, standing_wave, travelling_wave

__all__ = [
    "REGIMES",
    "ClusterState",
    "Clusters",
    "Competition",
    "HomogeneousState",
    "PeriodFour",
    "PeriodThree",
    "PeriodTwo",
    "ScalarForms",
    "Wave",
    "cluster_state",
    "clusters",
    "competition",
    "homogeneous_state",
    "one_mode_potential",
    "period_four",
    "period_three",
    "period_two",
    "standing_wave",
    "travelling_wave",
    "two_mode_potential",
]
