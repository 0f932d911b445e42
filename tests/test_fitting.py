"""Training side by side: each copy as if it were alone."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from looped import random_batch, random_block, random_code  # noqa: E402

from dispersion import ArgumentError  # noqa: E402
from training import Looped, accuracy, cross_entropy, fit  # noqa: E402


def nets(seed, copies=3, scale=1.0, **keywords):
    rng = np.random.default_rng(seed)
    blocks, codes = [random_block(rng, scale=scale) for _ in range(copies)], [random_code(rng) for _ in range(copies)]
    return blocks, codes, lambda: Looped(blocks, codes, loops=3, **keywords)


def data(steps, seed=9):
    rng = np.random.default_rng(seed)
    return [random_batch(rng) for _ in range(steps)], random_batch(rng, 10)


def test_loss_and_accuracy_count_scored_positions_alone():
    _, _, make = nets(0, dtype=torch.float64)
    batch = data(1)[1]
    net = make()
    curves = fit(net, [], batch, 0)
    logits = net(torch.tensor(batch.inputs)).detach().numpy()
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    rows, places = np.nonzero(batch.scored)
    chosen = p[:, rows, places, batch.labels[rows, places]]
    assert curves.steps.tolist() == [0]
    assert curves.loss.shape == (3, 0)
    np.testing.assert_allclose(curves.scores["cross_entropy"][:, 0], -np.log(chosen).mean(1), rtol=1e-12)
    right = logits.argmax(-1)[:, rows, places] == batch.labels[rows, places]
    np.testing.assert_allclose(curves.scores["accuracy"][:, 0], right.mean(1), rtol=1e-12)


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_a_copy_trains_as_if_it_were_alone(clip):
    blocks, codes, make = nets(1, dtype=torch.float64)
    batches, held_out = data(6)
    together = fit(make(), batches, held_out, 6, every=4, watch=(0, 6), clip=clip)
    assert together.steps.tolist() == [0, 4, 6]
    assert together.loss.shape == (3, 6)
    for copy in range(3):
        net = Looped([blocks[copy]], codes[copy], loops=3, dtype=torch.float64)
        alone = fit(net, batches, held_out, 6, every=4, clip=clip)
        np.testing.assert_allclose(together.loss[copy], alone.loss[0], rtol=1e-9)
        np.testing.assert_allclose(together.scores["cross_entropy"][copy], alone.scores["cross_entropy"][0], rtol=1e-9)
    assert list(together.snapshots) == [0, 6]
    first, last = (together.snapshots[step] for step in (0, 6))
    assert np.array_equal(first.codes[2].embedding, codes[2].embedding)
    assert not np.array_equal(last.blocks[2].heads[0].value, first.blocks[2].heads[0].value)


def test_one_step_is_that_of_adamw_by_hand():
    _, _, make = nets(2, copies=1, dtype=torch.float64)
    (batch,), held_out = data(1)
    net = make()
    inputs, labels, scored = (torch.tensor(getattr(batch, name)) for name in ("inputs", "labels", "scored"))
    torch.nn.functional.cross_entropy(net(inputs)[0][scored], labels[scored]).backward()
    slope, before = net.stack.mix.value.grad.clone(), net.stack.mix.value.detach().clone()
    fit(net, [batch], held_out, 1, clip=None)
    # the first step of Adam is rate · sign of the gradient, up to its ε
    expected = before * (1 - 2e-3 * 1e-4) - 2e-3 * slope / (slope.abs() + 1e-8)
    np.testing.assert_allclose(net.stack.mix.value.detach(), expected, rtol=1e-9, atol=1e-14)


def test_clipping_bounds_the_gradient_of_each_copy():
    _, _, make = nets(3, dtype=torch.float64)
    batches, held_out = data(1)
    whole, clipped = make(), make()
    fit(whole, batches, held_out, 1, clip=None, optimiser=lambda net: torch.optim.SGD(net.parameters(), lr=1.0))
    fit(clipped, batches, held_out, 1, clip=0.01, optimiser=lambda net: torch.optim.SGD(net.parameters(), lr=1.0))
    start = dict(make().named_parameters())

    def moved(net):
        return torch.cat([(w - start[name]).view(3, -1) for name, w in net.named_parameters()], dim=1).detach()

    full, short = moved(whole), moved(clipped)
    torch.testing.assert_close(short, full * (0.01 / full.norm(dim=1))[:, None], rtol=1e-8, atol=1e-12)


def test_a_copy_that_diverges_leaves_the_others():
    blocks, codes, _ = nets(4)
    batches, held_out = data(5)
    bad = replace(codes[1], readout=np.where(np.arange(5)[:, None] == 2, 1e38, codes[1].readout))
    sound = fit(Looped(blocks, codes, loops=3), batches, held_out, 5, every=1)
    broken = fit(Looped(blocks, [codes[0], bad, codes[2]], loops=3), batches, held_out, 5, every=1, watch=[5])
    assert [block is None for block in broken.snapshots[5].blocks] == [False, True, False]
    assert [code is None for code in broken.snapshots[5].codes] == [False, True, False]
    assert np.isnan(broken.loss[1]).any()
    assert np.isnan(broken.scores["accuracy"][1, -1])
    for copy in (0, 2):
        assert np.array_equal(broken.loss[copy], sound.loss[copy])
        assert np.array_equal(broken.scores["accuracy"][copy], sound.scores["accuracy"][copy])


def test_schedules_and_losses_of_ones_own():
    _, _, make = nets(5)
    batches, held_out = data(4)
    rates = []

    def optimiser(net):
        return torch.optim.SGD(net.parameters(), lr=0.5)

    def cosine(taken):
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(taken, 4)
        rates.append(schedule)
        return schedule

    def square(outputs, batch):
        return outputs.square().mean((1, 2, 3))

    curves = fit(
        make(),
        batches,
        held_out,
        4,
        optimiser=optimiser,
        schedule=cosine,
        loss=square,
        scores={"square": square},
        every=2,
    )
    assert rates[0].get_last_lr()[0] < 1e-9
    assert set(curves.scores) == {"square"}
    assert (curves.scores["square"][:, -1] < curves.scores["square"][:, 0]).all()


def test_the_same_seed_gives_the_same_bits():
    _, _, make = nets(6)
    batches, held_out = data(4)
    first, second = (fit(make(), batches, held_out, 4) for _ in range(2))
    assert np.array_equal(first.loss, second.loss)


def test_bfloat16_trains_nearly_the_same():
    _, _, make = nets(7)
    batches, held_out = data(4)
    exact, rough = (fit(make(), batches, held_out, 4, autocast=autocast) for autocast in (False, True))
    np.testing.assert_allclose(rough.loss, exact.loss, rtol=0.05)
    assert not np.array_equal(rough.loss, exact.loss)


@pytest.mark.slow
def test_a_compiled_network_is_the_same_network():
    _, _, make = nets(8, dtype=torch.float64)
    batches, held_out = data(2)
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("torch.compile needs a compiler of C++")
    compiled = fit(make(), batches, held_out, 2, compile=True)
    np.testing.assert_allclose(compiled.loss, fit(make(), batches, held_out, 2).loss, rtol=1e-9)


def test_too_few_batches_are_told():
    _, _, make = nets(0)
    batches, held_out = data(2)
    with pytest.raises(ArgumentError, match="batches"):
        fit(make(), batches, held_out, 3)
    with pytest.raises(ArgumentError, match="every"):
        fit(make(), batches, held_out, 2, every=0)


def test_scores_are_one_number_for_each_copy():
    logits = torch.zeros(2, 1, 3, 4)
    logits[0, 0, :, 1] = 50.0
    batch = type("B", (), {"labels": torch.tensor([[1, 1, 2]]), "scored": torch.tensor([[True, False, True]])})
    assert accuracy(logits, batch).tolist() == [0.5, 0.0]
    assert cross_entropy(logits, batch)[1].item() == pytest.approx(np.log(4))


def test_held_out_data_in_parts_is_scored_as_a_whole():
    _, _, make = nets(3, dtype=torch.float64)
    batches, held_out = data(2)
    whole, parts = (fit(make(), batches, held_out, 2, every=1, most=most) for most in (None, 3))
    np.testing.assert_allclose(parts.scores["cross_entropy"], whole.scores["cross_entropy"], rtol=1e-12)
    assert np.array_equal(parts.loss, whole.loss)
    with pytest.raises(ArgumentError, match="^most: got 0"):
        fit(make(), batches, held_out, 2, most=0)


def test_what_is_looked_at_is_the_callers_choice():
    _, _, make = nets(3, dtype=torch.float64)
    batches, held_out = data(2)
    curves = fit(make(), batches, held_out, 2, watch=(0, 2), look=lambda net: net.stack.logits.detach().clone())
    assert list(curves.snapshots) == [0, 2]
    assert (curves.snapshots[0] != curves.snapshots[2]).any()
