"""Amplitudes of normal forms on random blocks: the true error, by iteration, is at most the estimate in 99 %."""

import pytest
from judges import ORDERS, forms_table, judge_forms
from random_blocks import rotating_block, vector_block


def several(short, slow, long):
    """Parametrise a test by `several` seeds: those of `short` by default, of `slow` and `long` with the marks of that
    name, slow and exhaustive."""
    marked = [(short, ()), (slow, pytest.mark.slow), (long, pytest.mark.exhaustive)]
    cases = [pytest.param(group, marks=marks, id=f"{len(group)}") for group, marks in marked if group]
    return pytest.mark.parametrize("several", cases)


@several(range(16, 19), range(20), range(76))
def test_error_is_at_most_its_estimate(several):
    check_estimates(vector_block, several, ORDERS)


@several(range(0), range(12, 14), range(26))
def test_error_is_at_most_its_estimate_of_rotating_blocks(several):
    check_estimates(rotating_block, several, ORDERS[:3])


def check_estimates(make, several, orders):
    judged = [judge_forms(make(seed), orders) for seed in several]
    print("", f"{len(several)} blocks of {make.__name__}", *forms_table(judged), sep="\n")
    spoken = [(seed, case) for seed, cases in zip(several, judged, strict=True) for case in cases if case.speaks]
    wrong = [f"seed {seed}: {case}" for seed, case in spoken if not case.right]
    assert len(spoken) >= len(several)  # not all say nothing
    assert len(wrong) <= 0.01 * len(spoken), "\n".join(wrong)
