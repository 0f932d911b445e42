"""Exact states of random blocks, judged by iteration: what is stable stays, what is not leaves, nothing is missed."""

import numpy as np
from judges import judge_clusters, judge_standing, judge_states
from random_blocks import cluster_block, ring_block, rotating_block, seeds, two_mode_kernel, vector_block

from amplitude.exact.resting import resting_state
from dispersion import dispersion_relation


@seeds(range(5, 6), range(8), range(0))
def test_random_blocks_are_near_onset(seed):
    for make, low, high in ((vector_block, 1.002, 1.02), (rotating_block, 1.002, 1.03), (ring_block, 1.003, 1.1)):
        block = make(seed)
        growth = np.abs(dispersion_relation(block, resting_state(block)).multipliers).max()
        assert low - 1e-9 <= growth <= high + 1e-9
    block, first, second = two_mode_kernel(seed)
    growth = np.abs(dispersion_relation(block).multipliers[: block.n // 2 + 1, 0])
    assert sorted(np.flatnonzero(growth > 1)) == sorted((first, second))


@seeds(range(3, 5), range(16), range(144))
def test_exact_states_of_rings_stay_as_they_say(seed):
    assert judge_states(ring_block(seed))[0] == []


@seeds(range(0), range(7, 8), range(36))
def test_exact_states_of_two_mode_kernels_stay_as_they_say(seed):
    assert judge_states(two_mode_kernel(seed)[0])[0] == []


@seeds(range(0), range(5, 6), range(76))
def test_exact_states_of_vector_blocks_stay_as_they_say(seed):
    assert judge_states(vector_block(seed))[0] == []


@seeds(range(0), range(4, 5), range(26))
def test_exact_states_of_rotating_blocks_stay_as_they_say(seed):
    assert judge_states(rotating_block(seed))[0] == []


@seeds(range(5, 6), range(3, 6), range(26))
def test_standing_waves_of_complex_multipliers_stay_as_they_say(seed):
    assert judge_standing(rotating_block(seed)) == ""


@seeds(range(3), range(12), range(60))
def test_stability_of_partitions_is_that_of_iteration(seed):
    assert judge_clusters(cluster_block(seed)) == []
