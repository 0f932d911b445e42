"""Arms: what each initialises, and what all of one seed have in common."""

from dataclasses import dataclass

import numpy as np
import pytest

from dispersion import ArgumentError, dispersion_relation
from training import (
    Arm,
    CoherentShift,
    Engineered,
    Frame,
    RandomMode,
    Sinusoidal,
    SpectralInfilling,
    Standard,
    Target,
    engineer,
)
from training.arms import unrelated

FRAME = Frame.draw(rng=2)
TASK = SpectralInfilling(carrier=4)
ARMS = [Engineered(TASK.matched(8)), Engineered(Target(7)), RandomMode(), Standard(), Sinusoidal()]


def test_arms_differ_by_what_they_engineer_alone():
    blocks = [arm.block(TASK, FRAME, 0) for arm in ARMS]
    for block in blocks:
        assert (block.n, block.d, len(block.heads)) == (32, 32, 4)
        for head, query, key in zip(block.heads, FRAME.queries, FRAME.keys, strict=True):
            np.testing.assert_array_equal(head.query_key.query, query)
            np.testing.assert_array_equal(head.query_key.key, key)
            assert head.output_value.value.shape == (8, 32)
            assert head.kernel.encoding is None
    for one, other in ((0, 1), (0, 2)):
        np.testing.assert_array_equal(blocks[one].feedforward.weight_in, blocks[other].feedforward.weight_in)
    for mine, yours in zip(blocks[3].heads, blocks[4].heads, strict=True):
        np.testing.assert_array_equal(mine.value, yours.value)
        np.testing.assert_array_equal(mine.kernel.logits, 0)


def test_arms_stand_side_by_side_in_a_network():
    torch = pytest.importorskip("torch")
    from training import Looped

    blocks = [arm.block(TASK, FRAME, 0) for arm in ARMS]
    positions = [arm.positions(TASK, FRAME) for arm in ARMS]
    held = [arm.held(("feedforward",)) for arm in ARMS]
    net = Looped(blocks, TASK.code(FRAME), 8, positions, held, dtype=torch.float64)
    inputs = TASK.draw(4, 0).inputs
    logits = net(torch.tensor(inputs)).detach().numpy()
    code = TASK.code(FRAME)
    for block, position, found in zip(blocks, positions, logits, strict=True):
        x = code.embedding[inputs] + (0 if position is None else position)
        for _ in range(8):
            x = block.forward(x)
        np.testing.assert_allclose(found, x @ code.readout.T + code.bias, rtol=1e-10, atol=1e-10)


def test_names_and_what_is_held():
    assert [arm.name for arm in ARMS] == ["k=4", "k=7", "random mode", "standard", "sinusoidal"]
    assert Engineered(Target(4, 0.1), label="fast").name == "fast"
    held = [arm.held(("feedforward",)) for arm in ARMS]
    assert held == [("feedforward",)] * 3 + [(), ("positional",)]


@pytest.mark.parametrize("construction", ["three", "pair", "four"])
def test_an_engineered_arm_is_the_block_of_its_target(construction):
    target = CoherentShift(shift=2).matched(8)
    arm = Engineered(target, construction, contraction=0.85, sharpness=3.0)
    block = arm.block(TASK, FRAME, 5)
    same = engineer(target, 32, contraction=0.85, sharpness=3.0, construction=construction, frame=FRAME)
    for mine, yours in zip(block.heads, same.heads, strict=True):
        np.testing.assert_array_equal(mine.kernel.logits, yours.kernel.logits)
        np.testing.assert_array_equal(mine.value, yours.value)
    with pytest.raises(ArgumentError, match="target: got growth 1.424"):
        Engineered(Target(4, angle=np.pi / 2)).block(TASK, FRAME, 0)


# A random mode


def test_a_random_mode_has_the_gains_and_not_the_carrier():
    found = set()
    for seed in range(60):
        relation = dispersion_relation(RandomMode().block(TASK, FRAME, seed))
        k = relation.leading_wavenumber
        found.add(k)
        assert relation.growth[k] == pytest.approx(1.10, abs=1e-9)
        assert relation.growth[0] == pytest.approx(1.045, abs=1e-9)
    assert found == set(unrelated(32, 4))


@pytest.mark.parametrize(
    ("n", "carrier", "related"),
    [(32, 4, {4, 12}), (32, 3, {1, 3}), (32, 5, {5, 9}), (32, 7, {7, 13}), (12, 3, {1, 3, 5})],
)
def test_what_is_related_to_a_carrier(n, carrier, related):
    """By the waves themselves: cos(qj) or its cube overlaps with the carrier's, whatever the phases."""
    j = np.arange(n)

    def overlaps(k):
        waves = [np.cos(2 * np.pi * k * j / n + phase) for phase in (0.3, 1.1)]
        carriers = np.exp(2j * np.pi * carrier * j / n)
        return any(abs(wave**power @ carriers) > 1e-9 * n for wave in waves for power in (1, 3))

    assert {k for k in range(1, n // 2 + 1) if overlaps(k)} == related
    assert set(unrelated(n, carrier)) == set(range(1, n // 2 + 1)) - related


def test_modes_that_cannot_be_reached_are_passed_over():
    """On 8 tokens a pair at k = 2 lets its harmonic k = 4 grow to 1.08, and 1 and 3 are related to the carrier."""
    task = SpectralInfilling(n=8, carrier=1, block=4, disturbances=())
    arm = RandomMode(construction="pair", homogeneous=1.09)
    assert unrelated(8, 1) == [2, 4]
    assert {dispersion_relation(arm.block(task, FRAME, seed)).leading_wavenumber for seed in range(8)} == {4}
    with pytest.raises(ArgumentError, match=r"task: got 3 tokens, carrier 1; accepted: a ring with a wavenumber"):
        arm.block(SpectralInfilling(n=3, carrier=1, block=1, disturbances=()), FRAME, 0)
    with pytest.raises(ArgumentError, match="homogeneous: got 1.2"):
        RandomMode(homogeneous=1.2).block(task, FRAME, 0)


# Standard initialisations


def test_sinusoidal_positions():
    table = Sinusoidal(scale=0.5).positions(TASK, FRAME)
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), 0.5, atol=1e-12)
    m, j = 3, 7
    np.testing.assert_allclose(table[j, 2 * m] / table[j, 2 * m + 1], np.tan(j / 10000 ** (2 * m / 32)), rtol=1e-12)
    assert Standard().positions(TASK, FRAME) is None
    with pytest.raises(ArgumentError, match="scale: got 0.0"):
        Sinusoidal(scale=0.0)


def test_a_standard_block_prefers_no_wavenumber_but_the_mean():
    relation = dispersion_relation(Standard().block(TASK, FRAME, 0))
    assert relation.leading_wavenumber == 0
    np.testing.assert_allclose(relation.growth[1:], relation.growth[1], rtol=1e-12)
    weights = FRAME.weight_in
    assert np.abs(weights).max() <= 1 / np.sqrt(32)
    assert weights.std() == pytest.approx(1 / np.sqrt(3 * 32), rel=0.05)


# An arm of one's own


@dataclass(frozen=True)
class Loud(Arm):
    """An engineered arm of twice the gain on the mean."""

    @property
    def name(self):
        return "loud"

    def _block(self, task, frame, seed):
        return engineer(Target(task.carrier, homogeneous=1.09), task.n, frame=frame)


def test_a_new_arm():
    arm = Loud()
    assert dispersion_relation(arm.block(TASK, FRAME, 0)).growth[0] == pytest.approx(1.09)
    assert arm.positions(TASK, FRAME) is None
    assert arm.held(("feedforward",)) == ("feedforward",)
    for bad, message in [((TASK, "frame", 0), "frame: got str"), ((TASK, FRAME, -1), "seed: got -1")]:
        with pytest.raises(ArgumentError, match=message):
            arm.block(*bad)
