"""Which of two modes wins, at every order, on random kernels, judged by iteration."""

from judges import ORDERS, judge_regimes
from random_blocks import seeds, two_mode_kernel


@seeds(4, 7, slow=20, long=72)
def test_regimes_of_two_modes_are_those_of_iteration(seed):
    verdicts = judge_regimes(*two_mode_kernel(seed))
    assert not [f"{order}: {verdicts[order]}" for order in ORDERS if verdicts[order].startswith("wrong")]
