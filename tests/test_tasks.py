"""Controlled tasks: what is drawn is what is documented, codes read what they write, blocks know what they match."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispersion import ArgumentError
from training import (
    Batch,
    Code,
    CoherentShift,
    Engineered,
    FeatureRotation,
    Frame,
    SpectralInfilling,
    Target,
    Task,
    circle_code,
    stream,
    value_code,
)
from training.tasks import lattice

PI = np.pi
FRAME = Frame.draw(rng=3)
T1 = [SpectralInfilling(carrier=k) for k in (3, 4, 5, 7)]
T2 = [CoherentShift(shift=s) for s in (-2, -1, 1, 2)]
T3 = [FeatureRotation(turn=turn) for turn in (-PI / 2, -PI / 4, PI / 4, PI / 2)]
ALL = T1 + T2 + T3


# Draws


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_draws_come_from_their_stream(task):
    one, same = task.draw(16, stream(0, "training")), task.draw(16, stream(0, "training"))
    for name in ("inputs", "labels", "scored"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert one.inputs.shape == (16, 32)
    for other in (stream(0, "held_out"), stream(1, "training"), stream(0, "training", 1)):
        assert (task.draw(16, other).inputs != one.inputs).any(axis=1).all()


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_no_held_out_sequence_is_in_the_training_set(task):
    training, held_out = task.draw(512, stream(0, "training")), task.draw(512, stream(0, "held_out"))
    rows = {row.tobytes() for row in training.inputs}
    assert not any(row.tobytes() in rows for row in held_out.inputs)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([SpectralInfilling, CoherentShift, FeatureRotation]),
    st.integers(2, 40),
    st.integers(2, 12),
    st.sampled_from(["masked", "all"]),
    st.data(),
)
def test_any_ring_carrier_and_levels(kind, n, levels, score, data):
    carrier, block = data.draw(st.integers(1, n // 2)), data.draw(st.integers(0, n - 1))
    extra = {} if kind is FeatureRotation else {"disturbances": tuple(k for k in (3, 5) if k <= n // 2)}
    task = kind(n=n, carrier=carrier, levels=levels, block=block, masked=0.25, score=score, **extra)
    batch = task.draw(8, 0)
    hidden = batch.inputs == levels
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() <= levels
    assert batch.labels.min() >= 0
    assert batch.labels.max() < levels
    np.testing.assert_array_equal(batch.scored, hidden if score == "masked" else np.ones_like(hidden))
    assert batch.scored.any(axis=1).all()
    # a run of `block` hidden tokens around the ring, in each sequence
    runs = [np.lib.stride_tricks.sliding_window_view(np.concatenate([row, row]), max(block, 1)) for row in hidden]
    assert block == 0 or all(run.all(axis=1).any() for run in runs)


def test_a_block_of_tokens_and_a_quarter_of_the_others_are_hidden():
    task = T1[0]
    hidden = task.draw(4000, 0).inputs == task.levels
    assert hidden.mean() == pytest.approx((12 + 0.25 * 20) / 32, abs=0.005)
    # wherever the block begins
    np.testing.assert_allclose(hidden.mean(axis=0), hidden.mean(), atol=0.04)
    assert (T2[0].draw(4000, 0).inputs == 8).mean() == pytest.approx(0.25, abs=0.005)


@pytest.mark.parametrize("levels", [2, 3, 8])
@pytest.mark.parametrize("task", [T1[0], T2[0], T3[0]], ids=lambda task: task.name)
def test_levels_are_equally_likely(task, levels):
    labels = replace(task, levels=levels).draw(8000, 0).labels
    # one number for each sequence: its tokens are far from independent
    counts = np.bincount(labels[:, 0], minlength=levels) / len(labels)
    np.testing.assert_allclose(counts, 1 / levels, atol=0.02)


def test_levels_are_the_quantiles_of_the_wave():
    """Of cos alone the quantiles are those of the arcsine law, its level means known."""
    task = SpectralInfilling(amplitudes=(1.0, 1.0), nuisance=0.0, disturbances=())
    p = np.arange(9) / 8
    edges = -np.cos(PI * p)
    np.testing.assert_allclose(task.edges, edges[1:-1], atol=2e-4)
    means = 8 / PI * np.diff(-np.sin(PI * p))
    np.testing.assert_allclose(task.centres, (means - means.mean()) / means.std(), atol=2e-3)
    assert abs(T1[0].centres.mean()) < 1e-12
    assert T1[0].centres.std() == pytest.approx(1)


def test_signals_are_the_waves_that_are_documented():
    """A large sample has the power of the carrier and of the nuisance at their wavenumbers, and none elsewhere."""
    task = SpectralInfilling(carrier=5, nuisance=0.3)
    rng = np.random.default_rng(0)
    power = (np.abs(np.fft.rfft(task._signals(rng.random((4000, 4)), np.arange(32))) / 32) ** 2).mean(axis=0)
    expected = np.zeros(17)
    # ⟨a²⟩/4, a uniform on (0.7, 1.3)
    expected[[5, 11, 13]] = (1 + 0.6**2 / 12) / 4, 0.3**2 / 4, 0.3**2 / 4
    np.testing.assert_allclose(power, expected, atol=0.005)


def test_labels_of_infilling_are_what_was_hidden():
    batch = T1[1].draw(50, 0)
    seen = ~batch.scored
    np.testing.assert_array_equal(batch.inputs[seen], batch.labels[seen])


@pytest.mark.parametrize("shift", [-2, 1, 5])
def test_labels_of_a_shift_are_the_tokens_that_far_on(shift):
    task = CoherentShift(shift=shift, masked=0.0)
    batch = task.draw(20, 0)
    j = np.arange(32)
    np.testing.assert_array_equal(batch.labels, batch.inputs[:, (j + shift) % 32])
    assert batch.scored.all()
    # cos(q_0(j + s)) is cos(q_0 j + Lθ)
    turned = 8 * task.matched(8).angle
    np.testing.assert_allclose(np.cos(PI / 4 * (j + shift)), np.cos(PI / 4 * j + turned), atol=1e-12)


@pytest.mark.parametrize(("turn", "sectors"), [(-PI / 2, -2), (PI / 4, 1)])
def test_labels_of_a_rotation_are_sectors_further_on(turn, sectors):
    batch = FeatureRotation(turn=turn, score="all").draw(50, 0)
    seen = batch.inputs < 8
    np.testing.assert_array_equal((batch.inputs[seen] + sectors) % 8, batch.labels[seen])


def test_angles_of_a_rotation_advance_by_the_carrier():
    batch = FeatureRotation(turn=0.0, phase_noise=0.0, carrier=4, block=1, masked=0.0).draw(30, 0)
    np.testing.assert_array_equal(np.diff(batch.labels, axis=1) % 8, 1)
    noisy = FeatureRotation(turn=0.0, phase_noise=0.13, block=1, masked=0.0).draw(4000, 0)
    # an angle leaves its sector with the chance E|ξ|/width
    np.testing.assert_allclose(
        (np.diff(noisy.labels, axis=1) % 8 != 1).mean(), 2 * 0.13 * np.sqrt(2 / PI) / (PI / 4), rtol=0.35
    )


@pytest.mark.parametrize(
    ("task", "matched"),
    [
        (T1[0], Target(3)),
        (T2[0], Target(4, angle=-PI / 16)),
        (T2[2], Target(4, angle=PI / 32)),
        (T3[1], Target(4, rotation=-PI / 32)),
        (CoherentShift(shift=7), Target(4, angle=-PI / 32)),
    ],
)
def test_what_matches(task, matched):
    assert task.matched(8).like(matched)
    assert not any(task.matched(8).like(other) for other in (Target(4), Target(5)))


def test_names_tell_tasks_apart():
    assert len({task.name for task in ALL}) == len(ALL)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (SpectralInfilling, {"levels": 1}, "levels: got 1; accepted: a whole number of at least 2"),
        (SpectralInfilling, {"carrier": 17}, "carrier: got 17"),
        (SpectralInfilling, {"n": 8}, "block: got 12"),
        (SpectralInfilling, {"n": 16, "disturbances": [9]}, "disturbances: got 9"),
        (SpectralInfilling, {"amplitudes": (1.3, 0.7)}, "amplitudes: got .*two positive numbers, the smaller first"),
        (SpectralInfilling, {"amplitudes": (0.0, 1.0)}, "amplitudes: got 0.0"),
        (SpectralInfilling, {"nuisance": -0.1}, "nuisance: got -0.1"),
        (SpectralInfilling, {"masked": 1.0}, "masked: got 1.0"),
        (SpectralInfilling, {"block": 0, "masked": 0.0}, "score: got 'masked' with nothing masked"),
        (SpectralInfilling, {"score": "some"}, "score: got 'some'; accepted: 'masked' or 'all'"),
        (CoherentShift, {"shift": 32}, "shift: got 32"),
        (FeatureRotation, {"phase_noise": -1.0}, "phase_noise: got -1.0"),
        (FeatureRotation, {"turn": np.inf}, "turn: got inf"),
    ],
)
def test_tasks_that_make_no_sense(kind, change, message):
    with pytest.raises(ArgumentError, match=message):
        kind(**change)


# Streams and batches


def test_streams_differ_by_seed_purpose_and_part():
    draws = [stream(*key).random() for key in [(0, "frame"), (1, "frame"), (0, "arm"), (0, "arm", 0), (0, "arm", 1)]]
    assert len(set(draws)) == len(draws)
    assert stream(0, "arm", 1).random() == draws[-1]
    with pytest.raises(ArgumentError, match="purpose: got 'luck'"):
        stream(0, "luck")
    with pytest.raises(ArgumentError, match="seed: got -1"):
        stream(-1, "arm")


def test_a_batch_keeps_its_arrays_and_gives_rows():
    inputs = np.arange(6).reshape(2, 3)
    batch = Batch(inputs, inputs, inputs > 2)
    inputs[:] = 0
    assert batch.inputs[1, 2] == 5
    assert len(batch) == 2
    np.testing.assert_array_equal(batch.take([1, 1, 0]).labels, [[3, 4, 5], [3, 4, 5], [0, 1, 2]])
    np.testing.assert_array_equal(batch.take(slice(1)).scored, [[False] * 3])
    for bad, message in [
        (([[1.5]], [[1]], [[True]]), "inputs: got"),
        (([1], [1], [True]), r"inputs: got shape \(1,\)"),
        (([[1]], [[1, 2]], [[True]]), r"labels: got shape \(1, 2\)"),
        (([[1]], [[1]], [[2]]), "scored: got an array of int64"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            Batch(*bad)
    with pytest.raises(ArgumentError, match="rows: got rows beyond 2"):
        batch.take([2])


def test_the_lattice_fills_the_cube_evenly():
    points = lattice(2**12, 3)
    counts = np.histogramdd(points, bins=4, range=[(0, 1)] * 3)[0]
    assert points.shape == (2**12, 3)
    # 64 on average; independent points would scatter by 8
    assert np.abs(counts - 64).max() < 10


# Codes


@pytest.mark.parametrize("task", [T1[0], T2[0], T3[0], replace(T1[0], levels=3)], ids=lambda task: task.name)
@pytest.mark.parametrize("gain", [0.3, 3.0])
def test_a_readout_reads_what_the_embedding_wrote(task, gain):
    code = task.code(FRAME, gain, 8.0)
    logits = code.embedding[:-1] @ code.readout.T + code.bias
    np.testing.assert_array_equal(logits.argmax(axis=1), np.arange(task.levels))
    np.testing.assert_array_equal(code.embedding[-1], 0)


def test_value_logits_are_those_of_the_nearest_level():
    z = np.array([-1.5, 0.2, 1.3])
    code = value_code(z, FRAME, 2.0, 8.0)
    y = np.linspace(-2, 2, 41)
    x = 2.0 * y[:, None] * FRAME.basis[:, 0]
    expected = -8.0 / 2 * (y[:, None] - z) ** 2
    found = x @ code.readout.T + code.bias
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-12)


def test_sectors_are_read_at_their_centres():
    code = circle_code(8, FRAME, 1.0, 8.0)
    angles = np.random.default_rng(0).uniform(0, 2 * PI, 200)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ FRAME.basis[:, :2].T
    np.testing.assert_array_equal((x @ code.readout.T).argmax(axis=1), T3[0]._sector(angles))


def test_a_random_code_has_the_norms_and_no_structure():
    code = Code.random(1000, 32, 2.0, 8.0, rng=0)
    assert np.sqrt((code.embedding[:-1] ** 2).sum(axis=1).mean()) == pytest.approx(2.0, rel=0.03)
    assert np.sqrt((code.readout**2).sum(axis=1).mean()) == pytest.approx(4.0, rel=0.03)
    assert (code.embedding[:-1] @ code.readout.T).argmax(axis=1).tolist() != list(range(1000))
    np.testing.assert_array_equal(Code.random(4, 8, rng=1).readout, Code.random(4, 8, rng=1).readout)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: value_code([0.0, 1.0], FRAME, gain=0.0), "gain: got 0.0"),
        (lambda: circle_code(1, FRAME), "levels: got 1"),
        (lambda: circle_code(8, Frame.draw(4, 4)), "frame: got 1 feature for each head"),
        (lambda: Code(np.zeros((3, 4)), np.zeros((3, 4)), np.zeros(3)), "embedding: got shape"),
        (lambda: Code.random(1, 8), "levels: got 1"),
    ],
)
def test_codes_that_make_no_sense(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


# Tasks, codes and blocks together


def before_training(task, block, count=96):
    """Accuracy of the looped network as it is at the start."""
    batch, code = task.draw(count, 1), task.code(FRAME)
    x = code.embedding[batch.inputs]
    for _ in range(8):
        x = block.forward(x)
    right = (x @ code.readout.T + code.bias).argmax(axis=-1) == batch.labels
    return right[batch.scored].mean()


@pytest.mark.parametrize(
    ("family", "matched", "neighbour", "others"),
    [(T1, (0.46, 0.60), 0.16, 0.16), (T2, (0.38, 0.46), 0.25, 0.08), (T3, (0.75, 0.86), 0.2, 0.05)],
    ids=["T1", "T2", "T3"],
)
def test_the_matched_block_knows_the_task_before_training(family, matched, neighbour, others):
    blocks = [Engineered(task.matched(8)).block(task, FRAME, 0) for task in family]
    found = np.array([[before_training(task, block) for block in blocks] for task in family])
    low, high = matched
    assert ((low < np.diag(found)) & (np.diag(found) < high)).all()
    pairs = found[[0, 1, 2, 3], [1, 0, 3, 2]]
    assert pairs.max() < neighbour
    np.fill_diagonal(found, 0)
    found[[0, 1, 2, 3], [1, 0, 3, 2]] = 0
    assert found.max() < others


def test_angles_per_loop_leave_no_arm_matched():
    """8·π/4 and 8·π/2 are whole turns: what blocks of all angles do in all is the same."""

    def lead(task, angles):
        blocks = [Engineered(Target(4, angle=angle), "four").block(task, FRAME, 0) for angle in angles]
        found = [before_training(task, block) for block in blocks]
        own = T2.index(task)
        return found[own] - max(found[:own] + found[own + 1 :])

    turns = [task.matched(1).angle for task in T2]
    assert max(lead(task, turns) for task in T2[:2]) < 0.05
    assert min(lead(task, [turn / 8 for turn in turns]) for task in T2[:2]) > 0.15


# A task of one's own


@dataclass(frozen=True, kw_only=True)
class Alternation(Task):
    """Two levels in turn, hidden here and there."""

    n: int = 8
    carrier: int = 4
    levels: int = 2
    block: int = 3

    @property
    def name(self):
        return "alternation"

    def code(self, frame, gain=1.0, sharpness=8.0):
        return value_code([-1.0, 1.0], frame, gain, sharpness)

    def _sequences(self, count, rng):
        tokens = (np.arange(self.n) + rng.integers(2, size=(count, 1))) % 2
        return tokens, tokens


def test_a_new_task():
    task = Alternation()
    block = Engineered(task.matched(8)).block(task, FRAME, 0)
    assert before_training(task, block) == 1.0
