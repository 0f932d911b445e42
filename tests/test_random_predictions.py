"""What theory predicts of random blocks, judged by iteration: a prediction may say nothing, and must not be wrong."""

import numpy as np
import pytest
from random_blocks import ring_block, rotating_block, two_mode_kernel, vector_block

from amplitude.resting import resting_state
from dispersion import dispersion_relation


@pytest.mark.parametrize("seed", range(3))
def test_random_blocks_are_near_onset(seed):
    for make, low, high in ((vector_block, 1.002, 1.02), (rotating_block, 1.002, 1.03), (ring_block, 1.003, 1.1)):
        block = make(seed)
        growth = np.abs(dispersion_relation(block, resting_state(block)).multipliers).max()
        assert low - 1e-9 <= growth <= high + 1e-9
    block, first, second = two_mode_kernel(seed)
    growth = np.abs(dispersion_relation(block).multipliers[: block.n // 2 + 1, 0])
    assert sorted(np.flatnonzero(growth > 1)) == sorted((first, second))
