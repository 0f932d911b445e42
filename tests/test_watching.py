"""What is left of an engineered mode: all at the start, nothing in a block that knows nothing of it."""

from __future__ import annotations

import numpy as np
import pytest
from looped import random_block

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation
from dispersion.block.factors import OutputValue
from training import (
    CoherentShift,
    Engineered,
    FirstMode,
    Frame,
    LoopedExperiment,
    Sinusoidal,
    Standard,
    Study,
    Target,
    engineer,
    watch,
)

WAVES = [Target(4), Target.over(8, 5, angle=np.pi / 2), Target.over(8, 4, rotation=np.pi / 4)]


def changed(block, values=None, logits=None):
    """`block` with other values and outputs, or logits, of its heads."""
    heads = [
        Head(
            head.kernel if logits is None else Kernel.table(logits(head.kernel.logits)),
            head.output_value if values is None else values(head.output_value),
            head.query_key,
        )
        for head in block.heads
    ]
    return Block(heads, block.feedforward)


@pytest.mark.parametrize("target", WAVES)
@pytest.mark.parametrize("construction", ["three", "pair", "four"])
def test_all_of_it_is_left_at_the_start(target, construction):
    block = engineer(target, construction=construction)
    first = FirstMode.of(block)
    assert first.wavenumber == target.wavenumber
    seen = watch(block, first)
    assert seen.share == pytest.approx(1, abs=1e-12)
    assert seen.leading == target.wavenumber
    assert seen.growth[target.wavenumber] == pytest.approx(1.1, abs=1e-6)
    assert len(seen.growth) == 17
    # the mask is embedded at zero, where the block stays; eigenvalues that nearly meet are known less well
    masked = watch(block, first, np.zeros(32), loops=8)
    assert masked.share == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(masked.growth, seen.growth, rtol=1e-9)


def test_it_is_what_attention_adds_at_its_wavenumber():
    """Half the values leave half of it, whatever the feed-forward adds to all wavenumbers alike."""
    block = engineer(WAVES[0])
    first = FirstMode.of(block)
    half = changed(block, lambda m: OutputValue(m.output / 2, m.value))
    assert watch(half, first).share == pytest.approx(0.5, abs=1e-12)
    assert watch(changed(block, lambda m: OutputValue(-m.output, m.value)), first).share == pytest.approx(-1, abs=1e-12)
    assert watch(changed(block, logits=np.zeros_like), first).share == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("angle", [0.3, np.pi / 2, 2.0])
def test_a_mode_whose_features_are_turned_has_the_cosine_of_the_angle_left(angle):
    block = engineer(Target(4), construction="four")
    basis = Frame.draw(rng=0).basis
    c, s = np.cos(angle), np.sin(angle)
    turn = basis @ np.kron(np.eye(16), [[c, -s], [s, c]]) @ basis.T
    turned = changed(block, lambda m: OutputValue(turn @ m.output, m.value))
    assert watch(turned, FirstMode.of(block)).share == pytest.approx(c, abs=1e-12)


def test_nothing_of_it_is_left_in_random_blocks():
    first = FirstMode.of(engineer(WAVES[1]))
    frame = Frame.draw(rng=1)
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(100):
        heads = [
            Head(
                Kernel.table(rng.normal(size=32)),
                OutputValue(rng.permutation(frame.outputs[h]) * rng.choice([-1, 1], (32, 1)), frame.values[h]),
            )
            for h in range(4)
        ]
        shares.append(watch(Block(heads, FeedForward(frame.weight_in, frame.weight_out, "tanh")), first).share)
    assert np.abs(shares).max() < 0.2
    assert abs(np.mean(shares)) < 3 * np.std(shares) / np.sqrt(len(shares))


def test_a_block_without_positions_singles_nothing_out():
    block = changed(random_block(np.random.default_rng(2)), logits=np.zeros_like)
    assert FirstMode.of(block) is None
    assert np.isnan(watch(block).share)


def test_from_the_mask_on_every_loop_counts():
    """Growth is that of the Jacobians of the loops, by differences; the share is linear, so the mean of the loops'."""
    rng = np.random.default_rng(3)
    block, mask = random_block(rng), rng.normal(size=12)
    first, loops = FirstMode.of(block), 3
    seen = watch(block, first, mask, loops)
    product, states, shares = np.eye(16 * 12), [mask], []
    for _ in range(loops):
        product = block.jacobian(np.tile(states[-1], (16, 1))) @ product
        shares.append(first.share(dispersion_relation(block, states[-1])))
        states.append(block.forward(np.tile(states[-1], (16, 1)))[0])
    token = np.arange(16)
    for k in range(9):
        wave = np.kron(np.exp(2j * np.pi * k * token / 16)[:, None], np.eye(12))
        at_k = (wave.conj().T @ product @ wave) / 16
        assert seen.growth[k] == pytest.approx(np.abs(np.linalg.eigvals(at_k)).max() ** (1 / loops), rel=1e-10)
    assert seen.share == pytest.approx(np.mean(shares), rel=1e-12)
    assert seen.share != pytest.approx(1, abs=1e-3)


def test_bad_input_is_told():
    block = random_block(np.random.default_rng(4))
    first = FirstMode.of(block)
    with pytest.raises(ArgumentError, match="mask"):
        watch(block, first, np.zeros(3))
    with pytest.raises(ArgumentError, match="loops"):
        watch(block, first, np.zeros(12), 0)
    with pytest.raises(ArgumentError, match="relations"):
        first.share()
    with pytest.raises(ArgumentError, match="block"):
        FirstMode.of("block")


def test_a_study_watches_all_its_arms():
    pytest.importorskip("torch")
    wave = Target.over(8, 4, angle=np.pi / 2)
    arms = [Engineered(wave), Standard(), Sinusoidal()]
    experiment = LoopedExperiment(steps=4, every=4, held_out=8, watch=[0, 4], frozen=[])
    data = Study(experiment, arms, [CoherentShift(carrier=4)], seeds=1, sizes=[64]).run().squeeze()
    engineered, *others = data.transpose("arm", ...).arm.values
    for prefix in ("", "masked_"):
        growth, share = data[f"{prefix}growth"].sel(arm=engineered), data[f"{prefix}share"].sel(arm=engineered)
        assert int(growth.sel(watched=0).idxmax()) == 4
        assert float(share.sel(watched=0)) == pytest.approx(1, abs=1e-6)
        assert float(share.sel(watched=4)) != 1
        assert 0.5 < float(share.sel(watched=4)) < 1.5
        assert np.isnan(data[f"{prefix}share"].sel(arm=others)).all()
    # nothing has moved the mask yet; then training has
    assert np.allclose(data.growth.sel(watched=0), data.masked_growth.sel(watched=0), rtol=1e-6)
    assert not np.allclose(data.growth.sel(watched=4), data.masked_growth.sel(watched=4), rtol=1e-6)
