"""Arithmetic tasks: digits, splits and patterns, and their experiment."""

import numpy as np
import pytest

from dispersion import ArgumentError
from training.arithmetic import Addition, Multiplication, digits_of


@pytest.mark.parametrize(("task", "result"), [(Addition(), np.add), (Multiplication(), np.multiply)])
def test_results_can_be_read_back(task, result):
    numbers = np.array([0, 999_999, 123_456, 7_005])
    batch = task.of(numbers)
    weights = 10 ** np.arange(3)
    a, b = batch.inputs[:, :3] @ weights, batch.inputs[:, 3:] @ weights
    assert np.array_equal(a, numbers % 1000)
    assert np.array_equal(b, numbers // 1000)
    assert np.array_equal(batch.labels[:, task.places] @ 10 ** np.arange(len(task.places)), result(a, b))
    assert np.array_equal(np.flatnonzero(batch.scored[0]), np.sort(task.places))


def test_digits_by_hand():
    assert digits_of(np.array([120, 7]), 3).tolist() == [[0, 2, 1], [7, 0, 0]]
    batch = Addition(digits=2).of(np.array([95 + 100 * 28]))
    assert batch.inputs.tolist() == [[5, 9, 8, 2]]
    assert batch.labels.tolist() == [[3, 2, 0, 1]]
    assert batch.scored.tolist() == [[True, True, False, True]]


def test_training_and_held_out_sets_have_no_pair_in_common():
    task = Addition(digits=1)
    few, held_out = task.split(30, 40, 0)
    many, same = task.split(60, 40, 0)
    rows = [set(map(tuple, batch.inputs.tolist())) for batch in (few, many, held_out, same)]
    assert [len(part) for part in rows] == [30, 60, 40, 40]
    assert rows[0] < rows[1]
    assert rows[2] == rows[3]
    assert not rows[1] & rows[2]
    assert len({tuple(row) for row in task.draw(100, 1).inputs.tolist()}) == 100


def test_patterns():
    aligned = Addition(digits=2).pattern(heads=2)
    assert aligned.open.shape == (2, 4, 4)
    assert aligned.open[1].astype(int).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    partial = Multiplication(digits=3).pattern(heads=4).open
    for head in range(3):
        assert {(int(i), int(j)) for i, j in np.argwhere(partial[head, :3, 3:])} == {
            (i, (i + head) % 3) for i in range(3)
        }
    assert partial[3, :3, 3:].all()
    assert np.array_equal(partial, partial.transpose(0, 2, 1))
    for which in ("wrong", "shifted", "permuted"):
        other = Addition().pattern(which)
        assert other.name == which
        assert (other.open.sum(-1) == 2).all()
        assert not (other.open & Addition().pattern().open).all(axis=-1).any()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: Addition(digits=0), "digits"),
        (lambda: Multiplication(digits=5), "digits"),
        (lambda: Addition(digits=1).split(80, 30, 0), "count"),
        (lambda: Addition(digits=1).draw(101, 0), "count"),
        (lambda: Addition().pattern("right"), "which"),
        (lambda: Addition().pattern(heads=0), "heads"),
    ],
)
def test_what_cannot_be_used_is_named(call, argument):
    with pytest.raises(ArgumentError) as error:
        call()
    assert error.value.argument == argument


def test_the_experiment():
    torch = pytest.importorskip("torch")
    from training.arithmetic_experiment import ArithmeticExperiment, sequence_accuracy
    from training.fitting import accuracy, tensors
    from training.prior_arm import PriorArm
    from training.priors import MaskPrior
    from training.study import Study

    with pytest.raises(ArgumentError, match="^pool: got mean"):
        ArithmeticExperiment(pool="mean")
    task = Addition(digits=1)
    batch = tensors(task.of(np.arange(100)), torch.device("cpu"))
    logits = torch.tensor(np.random.default_rng(0).normal(size=(2, 100, 2, 10)))
    right = logits.argmax(-1).numpy() == batch.labels.numpy()
    assert sequence_accuracy(logits, batch).tolist() == right.all(axis=2).mean(axis=1).tolist()
    np.testing.assert_allclose(accuracy(logits, batch), right.mean(axis=(1, 2)))

    small = {"d": 32, "width": 8, "hidden": 32, "layers": 2, "batch": 32, "rate": 1e-2, "held_out": 20}
    experiment = ArithmeticExperiment(steps=300, every=300, **small)
    arms = [PriorArm(optimiser="adamw"), PriorArm(MaskPrior(contrast=5.0), optimiser="adamw")]
    found = Study(experiment, arms, [task], seeds=1, sizes=[80]).run().squeeze()
    assert (found.status == 0).all()
    assert found.loss.isel(update=slice(-20, None)).mean("update").max() < 0.05
    assert (found.sequence_accuracy <= found.accuracy).all()
    watched = ArithmeticExperiment(steps=1, watch=[0], **small)
    found = Study(watched, arms, [Addition(digits=2), Multiplication(digits=2)], seeds=1, sizes=[80]).run().squeeze()
    np.testing.assert_allclose(found.survival_home.sel(arm=arms[1].name), 1, atol=0.03)
    with pytest.raises(ArgumentError, match="^arms\\[0\\].pattern: got one that restricts no row"):
        Study(watched, arms, [task], seeds=1, sizes=[80])
