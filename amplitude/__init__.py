"""Weakly nonlinear theory: what the modes of linear theory become once they have grown."""

from amplitude.closed_forms.balanced import BalancedMap, balanced_boundary, balanced_map
from amplitude.closed_forms.cluster_states import ClusterState, cluster_state
from amplitude.closed_forms.clusters import Clusters, clusters
from amplitude.closed_forms.competition import REGIMES, Competition, competition
from amplitude.closed_forms.partitions import Partition, partitions, stable_partitions
from amplitude.closed_forms.potential import one_mode_potential, two_mode_potential
from amplitude.closed_forms.resonant import (
    HomogeneousState,
    PeriodFour,
    PeriodThree,
    PeriodTwo,
    homogeneous_state,
    period_four,
    period_three,
    period_two,
)
from amplitude.closed_forms.scalar_forms import ScalarForms
from amplitude.closed_forms.waves import Wave, standing_wave, travelling_wave
from amplitude.exact.balloon import Balloon, balloon, stable_wavenumbers
from amplitude.exact.bifurcations import Bifurcation, directions
from amplitude.exact.branch import Branch, branch
from amplitude.exact.branching import pattern_branch, switch
from amplitude.exact.oscillation import Oscillation, find_oscillation, standing_start
from amplitude.exact.states import ExactState, find_state
from amplitude.normal_forms.form import NormalForm, best_form, normal_form
from amplitude.normal_forms.reduced_map import Solution

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
