"""Weakly nonlinear theory: what the modes of linear theory become once they have grown."""

from amplitude.clusters import Clusters, ClusterState, cluster_state, clusters
from amplitude.competition import REGIMES, Competition, competition
from amplitude.forms import ScalarForms
from amplitude.normal_form import NormalForm, normal_form
from amplitude.potential import one_mode_potential, two_mode_potential
from amplitude.reduced import Solution
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
    "NormalForm",
    "PeriodFour",
    "PeriodThree",
    "PeriodTwo",
    "ScalarForms",
    "Solution",
    "Wave",
    "cluster_state",
    "clusters",
    "competition",
    "homogeneous_state",
    "normal_form",
    "one_mode_potential",
    "period_four",
    "period_three",
    "period_two",
    "standing_wave",
    "travelling_wave",
    "two_mode_potential",
]
