"""Amplitudes of normal forms on random blocks: the true error, by iteration, is at most the estimate in 99 %."""

import pytest
from judges import ORDERS, forms_table, judge_forms
from random_blocks import rotating_block, vector_block


def blocks(short, slow, long):
    """Parametrise a test by `count`: so many blocks by default, with -m slow and with -m exhaustive."""
    marked = [(short, ()), (slow, pytest.mark.slow), (long, pytest.mark.exhaustive)]
    return pytest.mark.parametrize("count", [pytest.param(count, marks=marks) for count, marks in marked if count])


@blocks(4, 24, 76)
def test_error_is_at_most_its_estimate(count):
    check_estimates(vector_block, count, ORDERS)


@blocks(0, 4, 26)
def test_error_is_at_most_its_estimate_of_rotating_blocks(count):
    check_estimates(rotating_block, count, ORDERS[:3])


def check_estimates(make, count, orders):
    judged = [judge_forms(make(seed), orders) for seed in range(count)]
    print("", f"{count} blocks of {make.__name__}", *forms_table(judged), sep="\n")
    spoken = [(seed, case) for seed, cases in enumerate(judged) for case in cases if case.speaks]
    wrong = [f"seed {seed}: {case}" for seed, case in spoken if not case.right]
    assert len(spoken) >= count  # not all say nothing
    assert len(wrong) <= 0.01 * len(spoken), "\n".join(wrong)
