"""Which of two modes wins, at every order, on random blocks, judged by iteration."""

from judges import ORDERS, judge_regimes, judge_rotation
from random_blocks import rotating_block, seeds, two_mode_kernel


@seeds(range(4, 7, 2), range(4, 14), range(72))
def test_regimes_of_two_modes_are_those_of_iteration(seed):
    verdicts = judge_regimes(*two_mode_kernel(seed))
    assert not [f"{order}: {verdicts[order]}" for order in ORDERS if verdicts[order].startswith("wrong")]


@seeds(range(0), range(7, 8), range(26))
def test_waves_of_complex_multipliers_travel_or_stand_as_they_say(seed):
    verdicts = judge_rotation(rotating_block(seed))
    assert not [f"{order}: {verdict}" for order, verdict in verdicts.items() if verdict.startswith("wrong")]
