"""Weakly nonlinear theory: what the modes of linear theory become once they have grown."""

from amplitude.balanced import BalancedMap, balanced_boundary, balanced_map
from amplitude.balloon import Balloon, balloon, stable_wavenumbers
from amplitude.branch import Branch, branch
from amplitude.clusters import Clusters, ClusterState, cluster_state, clusters
from amplitude.competition import REGIMES, Competition, competition
from amplitude.detection import Bifurcation, directions
from amplitude.exact import ExactState, find_state
from amplitude.forms import ScalarForms
from amplitude.normal_form import NormalForm, best_form, normal_form
from amplitude.oscillation import Oscillation, find_oscillation, standing_start
from amplitude.partitions import Partition, partitions, stable_partitions
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
from amplitude.switch import pattern_branch, switch
from amplitude.waves import Wave, standing_wave, travelling_wave

__all__ = [
    "REGIMES",
    "BalancedMap",
    "Balloon",
    "Bifurcation",
    "Branch",
    "ClusterState",
    "Clusters",
    "Competition",
    "ExactState",
    "HomogeneousState",
    "NormalForm",
    "Oscillation",
    "Partition",
    "PeriodFour",
    "PeriodThree",
    "PeriodTwo",
    "ScalarForms",
    "Solution",
    "Wave",
    "balanced_boundary",
    "balanced_map",
    "balloon",
    "best_form",
    "branch",
    "cluster_state",
    "clusters",
    "competition",
    "directions",
    "find_oscillation",
    "find_state",
    "homogeneous_state",
    "normal_form",
    "one_mode_potential",
    "partitions",
    "pattern_branch",
    "period_four",
    "period_three",
    "period_two",
    "stable_partitions",
    "stable_wavenumbers",
    "standing_start",
    "standing_wave",
    "switch",
    "travelling_wave",
    "two_mode_potential",
]
