"""The experiment of T1–T3: shared weights, roles, controls, and arms and tasks of one's own."""

from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("torch")

from dispersion import ArgumentError, Block, Head, Kernel
from training import (
    Arm,
    Batch,
    Code,
    CoherentShift,
    Engineered,
    FeatureRotation,
    LoopedExperiment,
    SpectralInfilling,
    Standard,
    Study,
    Target,
)
from training.experiment import BASELINE, MATCHED, MISMATCHED
from training.units import STATUS

SMALL = {"d": 8, "heads": 4, "width": 16, "batch": 8, "held_out": 16, "steps": 2}
FAMILIES = {
    "t1": ([SpectralInfilling(carrier=k) for k in (3, 4, 5, 7)], [Target.over(8, k) for k in (3, 4, 5, 7)]),
    "t2": (
        [CoherentShift(shift=s) for s in (-2, -1, 1, 2)],
        [Target.over(8, 4, angle=a * np.pi / 4) for a in (-2, -1, 1, 2)],
    ),
    "t3": (
        [FeatureRotation(turn=a * np.pi / 4) for a in (-2, -1, 1, 2)],
        [Target.over(8, 4, rotation=a * np.pi / 4) for a in (-2, -1, 1, 2)],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_arm_of_a_family_is_matched_to_one_task(family):
    tasks, targets = FAMILIES[family]
    experiment = LoopedExperiment()
    arms = [Engineered(target) for target in targets]
    roles = [[experiment.role(arm, task) for arm in arms] for task in tasks]
    assert roles == [[MATCHED if arm == task else MISMATCHED for arm in range(4)] for task in range(4)]
    assert {experiment.role(Standard(), task) for task in tasks} == {BASELINE}
    gains = [Engineered(Target(t.wavenumber, t.angle, t.rotation, growth=1.2, homogeneous=1.1)) for t in targets]
    assert [experiment.role(arm, task) for arm, task in zip(gains, tasks, strict=True)] == [MATCHED] * 4


def test_per_loop_an_arm_turns_by_the_angle_of_its_task_in_each():
    task = CoherentShift(shift=1)
    each, together = Target(4, angle=np.pi / 4), Target.over(8, 4, angle=np.pi / 4)
    roles = {
        angles: [LoopedExperiment(angles=angles).role(Engineered(t, "four"), task) for t in (each, together)]
        for angles in ("accumulated", "per loop")
    }
    assert roles == {"accumulated": [MISMATCHED, MATCHED], "per loop": [MATCHED, MISMATCHED]}
    Study(LoopedExperiment(angles="per loop"), [Engineered(each, "four")], [task])
    with pytest.raises(ArgumentError, match=r"arms\[0\]\.target"):
        Study(LoopedExperiment(angles="per loop"), [Engineered(each, "three")], [task])


def test_arms_of_a_seed_share_what_they_do_not_engineer():
    experiment, task = LoopedExperiment(), SpectralInfilling()
    net = experiment.network([Engineered(Target(3)), Engineered(Target(5)), Standard()], task, seed=1)
    first, second, standard = net.blocks()
    for one, two, three in zip(first.heads, second.heads, standard.heads, strict=True):
        np.testing.assert_array_equal(one.content, two.content)
        np.testing.assert_array_equal(one.content, three.content)
        assert not np.array_equal(one.value, three.value)
    assert not np.array_equal(first.heads[0].kernel.logits, second.heads[0].kernel.logits)
    codes = net.codes()
    assert all((code.embedding == codes[0].embedding).all() for code in codes)
    assert all((code.readout == codes[0].readout).all() for code in codes)
    other = experiment.network([Engineered(Target(3))], task, seed=2).blocks()[0]
    assert not np.array_equal(other.heads[0].content, first.heads[0].content)


def test_the_feed_forward_is_held_in_engineered_arms_and_trained_in_standard_ones():
    @dataclass(frozen=True)
    class Kept(LoopedExperiment):
        def seen(self, curves, arms, task):
            first, last = (curves.snapshots[step].blocks for step in (0, self.steps))
            moved.append(
                [
                    not np.array_equal(a.feedforward.weight_in, b.feedforward.weight_in)
                    for a, b in zip(first, last, strict=True)
                ]
            )
            return super().seen(curves, arms, task)

    for frozen, expected in ((("feedforward",), [False, True]), ((), [True, True])):
        moved = []
        experiment = Kept(**SMALL, watch=(0, 2), frozen=frozen)
        data = Study(experiment, [Engineered(Target(4)), Standard()], [SpectralInfilling()], 1, (16,)).run()
        assert (data.status == STATUS.index("trained")).all()
        assert moved == [expected]


def test_an_arm_learns_the_same_whatever_stands_beside_it():
    wave, other = Engineered(Target(4)), Engineered(Target(7))
    tasks = [SpectralInfilling()]
    alone = Study(LoopedExperiment(**SMALL), [wave], tasks, [3], (16,)).run()
    beside = Study(LoopedExperiment(**SMALL), [Standard(), other, wave], [CoherentShift(), *tasks], 4, (8, 16)).run()
    found = beside.sel(task=tasks[0].name, seed=3, size=16, arm=wave.name)
    for name in ("loss", "accuracy", "cross_entropy"):
        assert (alone[name].values.ravel() == found[name].values.ravel()).all(), name


@dataclass(frozen=True)
class Near(Arm):
    """An arm of one's own: all heads look at the token on the left."""

    strength: float
    name: str = "near"

    def block(self, task, frame, seed):
        made = Engineered(Target(4)).block(task, frame, seed)
        kernel = Kernel.table(self.strength * (np.arange(task.n) == 1))
        return Block([Head(kernel, head.output_value, head.query_key) for head in made.heads], made.feedforward)


@dataclass(frozen=True)
class Repeat:
    """A task of one's own: two letters on a short ring; the label of a hidden token is that of its left neighbour."""

    n: int = 8
    levels: int = 2
    name: str = "repeat"

    def draw(self, count, rng):
        letters = rng.integers(2, size=(count, self.n))
        hidden = np.arange(self.n) % 2 == 1
        labels = np.where(hidden, np.roll(letters, 1, axis=1), letters)
        return Batch(np.where(hidden, 2, letters), labels, np.broadcast_to(hidden, labels.shape))

    def code(self, frame, gain, sharpness):
        return Code.random(self.levels, frame.d, gain, sharpness, rng=0)


def test_an_arm_and_a_task_of_ones_own_need_no_change_of_the_package(tmp_path):
    arms = [Near(4.0), Near(0.0, "flat")]
    study = Study(
        LoopedExperiment(**{**SMALL, "steps": 20}, rate=0.02, frozen=("positional", "content")),
        arms,
        [Repeat()],
        1,
        (64,),
    )
    data = study.run(tmp_path / "a.nc", workers=2)
    assert data.arm.values.tolist() == ["near", "flat"]
    assert (data.role == BASELINE).all()
    last = data.accuracy.squeeze().isel(step=-1)
    assert last.sel(arm="near") > 0.9  # who looks at neighbours learns what they say
    assert last.sel(arm="flat") < 0.75
    again = Study(study.experiment, [Near(4.0), Near(0.1, "flat")], [Repeat()], 1, (64,))
    with pytest.raises(ArgumentError, match="another arms"):
        again.run(tmp_path / "a.nc")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"loops": 0}, "loops"),
        ({"d": 0}, "d"),
        ({"code": "none"}, "code"),
        ({"angles": "never"}, "angles"),
        ({"gain": 0.0}, "gain"),
        ({"frozen": ("everything",)}, r"frozen\[0\]"),
        ({"watch": (301,)}, r"watch\[0\]"),
        ({"content": np.inf}, "content"),
    ],
)
def test_bad_settings(given, name):
    with pytest.raises(ArgumentError, match=name):
        LoopedExperiment(**given)


def test_what_is_watched_has_one_ring():
    tasks = [SpectralInfilling(), SpectralInfilling(n=48, carrier=3)]
    Study(LoopedExperiment(), [Engineered(Target(4))], tasks)
    with pytest.raises(ArgumentError, match="watch"):
        Study(LoopedExperiment(watch=(0,)), [Engineered(Target(4))], tasks)


def test_a_random_code_is_one_for_all_arms_of_a_seed():
    experiment, task = LoopedExperiment(code="random"), SpectralInfilling()
    first, second = (experiment.codes(task, seed) for seed in (0, 1))
    assert np.array_equal(first.embedding, experiment.codes(task, 0).embedding)
    assert not np.array_equal(first.embedding, second.embedding)
    gram = first.embedding[:-1] @ first.readout.T
    assert np.linalg.matrix_rank(gram) == task.levels  # no line: the task's own has rank 1
    assert np.linalg.matrix_rank(LoopedExperiment().codes(task, 0).embedding) == 1
