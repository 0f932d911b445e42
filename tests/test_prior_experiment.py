"""Encoders with priors on Boolean tasks: what an arm is, what it trains, and what is measured on the way."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dispersion import ArgumentError  # noqa: E402
from training.boolean import Cyclic3, Majority3, ThreeSym, TwoParity  # noqa: E402
from training.boolean_experiment import BooleanExperiment, nearest_label, squared_error  # noqa: E402
from training.cube import nearest  # noqa: E402
from training.fitting import tensors  # noqa: E402
from training.prior_arm import PriorArm  # noqa: E402
from training.priors import KernelPrior, MaskPrior, NeutralMask, StructuredSVD  # noqa: E402
from training.study import Study  # noqa: E402

SMALL = {"d": 12, "width": 4, "hidden": 8, "batch": 16, "every": 5}


def test_arms_are_named_by_what_differs():
    assert PriorArm().name == "default"
    assert PriorArm(MaskPrior(), "wrong", "nowhere", "adamw").name == "mask, wrong, decay nowhere, adamw"
    assert PriorArm(StructuredSVD(), decay="elsewhere").name == "svd, decay elsewhere"


@pytest.mark.parametrize(
    ("arm", "held", "spared"),
    [
        (PriorArm(), {"mask", "kernel"}, {"mask", "kernel"}),
        (PriorArm(NeutralMask()), {"kernel"}, {"kernel"}),
        (PriorArm(MaskPrior(frozen=True)), {"mask", "kernel"}, {"mask", "kernel"}),
        (PriorArm(MaskPrior(), decay="elsewhere"), {"kernel"}, {"mask", "kernel"}),
        (PriorArm(KernelPrior(), decay="elsewhere"), {"mask"}, {"mask", "kernel"}),
        (PriorArm(StructuredSVD(), decay="elsewhere"), {"mask", "kernel"}, {"mask", "kernel", "query", "key"}),
        (
            PriorArm(StructuredSVD(), decay="beyond"),
            {"mask", "kernel"},
            {"mask", "kernel", "query", "key", "embedding"},
        ),
    ],
)
def test_what_an_arm_holds_and_what_decays(arm, held, spared):
    assert set(arm.frozen) == held
    parts = ("mask", "kernel", "query", "key", "value", "embedding", "readout")
    assert {part for part in parts if not arm.decays(part)} == spared
    assert not any(PriorArm(arm.prior, decay="nowhere").decays(part) for part in parts)


ARMS = [
    PriorArm(),
    PriorArm(NeutralMask()),
    PriorArm(MaskPrior()),
    PriorArm(MaskPrior(contrast=2.0), "wrong", decay="nowhere"),
    PriorArm(MaskPrior(hard=True, frozen=True)),
    PriorArm(StructuredSVD(), decay="elsewhere"),
    PriorArm(MaskPrior(), optimiser="adamw"),
    PriorArm(MaskPrior(), "permuted"),
]


@pytest.fixture(scope="module")
def study():
    experiment = BooleanExperiment(steps=12, watch=[0, 12], **SMALL)
    return Study(experiment, ARMS, [TwoParity(n=5), Majority3(n=5)], seeds=[0], sizes=[64])


@pytest.fixture(scope="module")
def data(study):
    return study.run().squeeze("seed").squeeze("size")


def test_everything_is_recorded(data):
    assert (data.status == 0).all()
    assert data.step.values.tolist() == [0, 5, 10, 12]
    assert data.role.sel(task="2parity").values.tolist() == [
        "baseline", "baseline", "matched", "mismatched", "matched", "matched", "matched", "mismatched",
    ]  # fmt: skip
    for name in ("mse", "seen_mse", "unseen_mse", "accuracy", "loss"):
        assert np.isfinite(data[name]).all(), name
    unseen = data.task == "2parity"
    share = 1 / 4
    whole = (1 - share) * data.seen_mse + share * data.unseen_mse
    np.testing.assert_allclose(data.mse.where(unseen, drop=True), whole.where(unseen, drop=True), rtol=1e-5)
    for name in ("survival_home", "survival_data", "survival_operator", "mask_size", "mask_slope"):
        assert np.isfinite(data[name]).all(), name


def test_arms_without_a_prior_start_alike_and_priors_are_there(data):
    first = data.isel(step=0)
    for name in ("mse", "unseen_mse"):
        np.testing.assert_allclose(first[name].sel(arm="default"), first[name].sel(arm="neutral"), rtol=1e-6)
    start = data.survival_home.sel(watched=0)
    placed = ["mask", "mask frozen hard", "mask, adamw", "mask, permuted", "svd, decay elsewhere"]
    np.testing.assert_allclose(start.sel(arm=placed), 1, atol=1e-3)
    assert (np.abs(start.sel(arm=["default", "neutral"])) < 0.3).all()


def test_what_moves_and_what_does_not(data):
    size = data.mask_size.sel(task="2parity")
    moved = np.abs(size.sel(watched=12) - size.sel(watched=0)).max("layer")
    assert moved.sel(arm="default") == 0
    assert moved.sel(arm="mask frozen hard") == 0
    assert moved.sel(arm="svd, decay elsewhere") == 0
    # Adam with coupled decay takes away the sum of its rates, whatever the decay: (12 + 1)/2 of 3e-3 along the cosine
    assert moved.sel(arm="mask") == pytest.approx(6.5 * 3e-3, rel=0.05)
    # the loss says little of a saturated mask
    slope = data.mask_slope.sel(task="2parity")
    assert (slope.sel(arm="mask") < 1e-2 * slope.sel(arm="neutral")).all()


def test_the_slope_of_the_mask_is_that_of_the_loss():
    """Against finite differences of the loss, for an arm that holds its mask as well."""
    experiment = BooleanExperiment(steps=1, watch=[0], **SMALL)
    task, arms = TwoParity(n=4), [PriorArm(MaskPrior(contrast=1.0)), PriorArm(MaskPrior(contrast=1.0, frozen=True))]
    net = experiment.network(arms, task, 0).double()
    examples = experiment.data(task, 16, 0)[0]
    found = experiment._mask_slope(net, examples)
    batch, mask, each = tensors(examples, torch.device("cpu")), net.numbers.mask, []
    with torch.no_grad():
        for place in np.ndindex(*mask.shape[1:]):
            values = []
            for change in (1e-5, -1e-5):
                mask[(slice(None), *place)] += change
                values.append(squared_error(net(batch.inputs), batch))
                mask[(slice(None), *place)] -= change
            each.append(((values[0] - values[1]) / 2e-5).abs().numpy())
    wanted = np.array(each).reshape(*mask.shape[1:], 2).mean(axis=(1, 2, 3)).T
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_an_arm_does_not_know_of_the_others(study, data):
    few = [ARMS[2], ARMS[5]]
    alone = Study(study.experiment, few, [study.tasks[0]], seeds=[0], sizes=[64]).run().squeeze()
    for name in ("mse", "unseen_mse", "survival_home"):
        wanted = data[name].sel(task="2parity", arm=[arm.name for arm in few])
        np.testing.assert_allclose(alone[name], wanted, rtol=2e-4, atol=1e-6)


def test_scores_by_hand():
    task = ThreeSym(n=3)
    outputs = np.random.default_rng(0).normal(size=(2, 8)) * 3
    batch = tensors(task.whole, torch.device("cpu"))
    right = nearest(outputs, task.labels) == task.values(task.cube)
    assert nearest_label(torch.tensor(outputs), batch).tolist() == right.mean(axis=1).tolist()
    errors = (outputs - task.values(task.cube)) ** 2
    np.testing.assert_allclose(squared_error(torch.tensor(outputs), batch), errors.mean(axis=1))
    seen = BooleanExperiment().scores["unseen_mse"](torch.tensor(outputs), batch)
    np.testing.assert_allclose(seen, errors[:, ~task.whole.seen].mean(axis=1))
    outputs[1, 3] = np.nan
    assert np.isnan(nearest_label(torch.tensor(outputs), batch).numpy()).tolist() == [False, True]


def test_a_token_of_its_own_is_read_out():
    experiment = BooleanExperiment(steps=2, watch=[2], pool="cls", heads=3, **SMALL)
    found = Study(experiment, [PriorArm(), PriorArm(MaskPrior())], [ThreeSym(n=4)], seeds=1, sizes=[8]).run().squeeze()
    np.testing.assert_allclose(found.survival_home.sel(arm="mask"), 1, atol=1e-3)
    assert np.isfinite(found.unseen_mse).all()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: BooleanExperiment(pool="tokens"), "pool"),
        (lambda: BooleanExperiment(watch=[3000]), r"watch\[0\]"),
        (lambda: BooleanExperiment(decoupled=-1.0), "decoupled"),
        (lambda: BooleanExperiment(rows="none"), "rows"),
        (lambda: PriorArm(pattern="right"), "pattern"),
        (lambda: PriorArm(decay="somewhere"), "decay"),
        (lambda: PriorArm(optimiser="sgd"), "optimiser"),
        (lambda: PriorArm(prior="mask"), "prior"),
        (lambda: MaskPrior(contrast=0.0), "contrast"),
        (lambda: Study(BooleanExperiment(heads=2), [PriorArm()], [ThreeSym()]), r"arms\[0\]\.pattern"),
        (lambda: Study(BooleanExperiment(), [PriorArm(KernelPrior())], [TwoParity()]), r"arms\[0\]\.pattern"),
    ],
)
def test_what_cannot_be_used_is_named(call, argument):
    with pytest.raises(ArgumentError, match=f"^{argument}: got "):
        call()


PRIORS = """
steps = 5
seeds = 1
sizes = [64]
watch = [0]
[[task]]
type = "2parity"
n = 8
[[arm]]
type = "mask"
contrast = [10, 4]
pattern = "correct"
"""


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("[10, 4]", "0"), "arm[0].contrast: got 0.0"),
        (("[10, 4]", "[10, -1]"), "arm[0].contrast: got -1.0"),
        (("[10, 4]", "[]"), "arm[0].contrast: got an empty list"),
        (('"mask"', '"kernel"'), "arm[0].pattern: got 'correct', which is not circulant"),
        (('"correct"', '"left"'), "arm[0].pattern: got 'left'"),
        (('"correct"', '"correct"\ndecay = "here"'), "arm[0].decay: got 'here'"),
        (("n = 8", "n = 2"), "task[0].n: got 2"),
        (("watch = [0]", "watch = [6]"), "watch[0]: got 6"),
    ],
)
def test_a_study_file_of_priors_is_refused_by_its_key(tmp_path, change, key):
    path = tmp_path / "own.study.toml"
    path.write_text(PRIORS.replace(*change))
    with pytest.raises(ArgumentError) as refused:
        Study.load(path).run(progress=False)
    assert key in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.slow
def test_a_hard_mask_of_the_majority_generalises():
    """A network whose tokens see themselves alone can be nothing but a sum of them before the readout's LayerNorm."""
    arms = [PriorArm(MaskPrior(hard=True, frozen=True)), PriorArm(MaskPrior())]
    found = Study(BooleanExperiment(steps=1500, every=500), arms, [Majority3(n=8)], seeds=1, sizes=[256]).run()
    last = found.isel(step=-1).squeeze()
    assert (last.seen_mse < 1e-2).all()
    assert last.accuracy.sel(arm="mask frozen hard") == 1
    assert last.unseen_mse.sel(arm="mask frozen hard") < 0.1


def test_cyclic3_has_a_circulant_prior():
    experiment = BooleanExperiment(steps=1, watch=[0], **SMALL)
    found = Study(experiment, [PriorArm(KernelPrior())], [Cyclic3(n=5)], seeds=1, sizes=[8]).run().squeeze()
    np.testing.assert_allclose(found.survival_home, 1, atol=1e-3)
