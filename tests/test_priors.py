"""Priors: the same attention from every place, by SVD and by descent; what is refused."""

from dataclasses import fields

import numpy as np
import pytest

from dispersion import ArgumentError, Head, Kernel, attention_spectrum, mask_logits
from dispersion.block.kernel import softmax
from training.encoder import Encoder
from training.patterns import Pattern, pattern_of
from training.priors import (
    KernelPrior,
    MaskPrior,
    NeutralMask,
    NoPrior,
    StructuredOpt,
    StructuredSVD,
    by_descent,
    by_svd,
    contrasted,
)

ENCODER = Encoder.draw(0)
CYCLIC, TWO = pattern_of("cyclic3", 8), pattern_of("2parity", 8)
PRIORS = [NoPrior(), NeutralMask(), MaskPrior(4.0), MaskPrior(hard=True), KernelPrior(4.0), StructuredSVD(4.0)]
PRIORS += [StructuredOpt(4.0, steps=20)]


def bare(encoder):
    """An encoder without queries: masks and kernels alone make its attention."""
    from dataclasses import replace

    return replace(encoder, query=np.zeros_like(encoder.query))


def wanted(pattern, contrast, encoder=ENCODER):
    return softmax(contrast * pattern.over(encoder.query.shape[1], encoder.tokens).astype(float))


@pytest.mark.parametrize("contrast", [0.5, 4.0, 10.0])
def test_all_places_start_from_one_attention(contrast):
    at = wanted(CYCLIC, contrast)
    for prior, start in (
        (MaskPrior(contrast), bare(ENCODER)),
        (KernelPrior(contrast), bare(ENCODER)),
        (StructuredSVD(contrast), ENCODER),
    ):
        home = prior.place(start, CYCLIC).home_attention
        np.testing.assert_allclose(home, np.broadcast_to(at, home.shape), atol=1e-11, err_msg=prior.name)


def test_a_pattern_of_its_own_in_each_head_and_a_classification_token():
    three, encoder = pattern_of("threesym", 8).with_start(), Encoder.draw(1, pool="cls")
    for prior, start in ((MaskPrior(), bare(encoder)), (StructuredSVD(), encoder)):
        home = prior.place(start, three).home_attention
        np.testing.assert_allclose(home, np.broadcast_to(wanted(three, 10, encoder), home.shape), atol=1e-10)


def test_nothing_but_the_parts_is_replaced():
    for prior in PRIORS:
        placed = prior.place(ENCODER, CYCLIC)
        for item in fields(Encoder):
            before, after = getattr(ENCODER, item.name), getattr(placed, item.name)
            if item.name not in prior.parts:
                assert np.array_equal(before, after) if isinstance(before, np.ndarray) else before == after
        changed = any(not np.array_equal(getattr(ENCODER, part), getattr(placed, part)) for part in prior.parts)
        assert changed != isinstance(prior, NoPrior | NeutralMask)


def test_masks():
    opened = TWO.allowed
    soft = MaskPrior(4.0).place(ENCODER, TWO).mask
    assert soft.shape == (2, 3, 8, 8)
    np.testing.assert_array_equal(soft[1, 2], np.where(opened, 4.0, -4.0))
    hard = MaskPrior(4.0, hard=True).place(ENCODER, TWO)
    assert (hard.mask[0, 0][~opened] == -np.inf).all()
    assert (hard.home_attention[:, :, ~opened] == 0).all()
    free = pattern_of("2parity", 8, rows="free")
    assert (MaskPrior(4.0).place(ENCODER, free).mask[:, :, 2:] == -4.0).all()  # as the paper: a constant shift
    np.testing.assert_allclose(
        MaskPrior(4.0).place(ENCODER, free).home_attention[0, :, 2:], ENCODER.home_attention[0, :, 2:], rtol=1e-13
    )
    assert (MaskPrior(4.0, hard=True).place(ENCODER, free).mask[:, :, 2:] == 0).all()
    assert (NeutralMask().place(ENCODER, TWO).mask == 0).all()
    np.testing.assert_allclose(NeutralMask().place(ENCODER, TWO).home_attention, ENCODER.home_attention, rtol=1e-14)


def test_a_contrast_is_a_gap_of_logits():
    m = contrasted(np.array([[True, False]]), 3.7)
    assert np.diff(mask_logits(m))[0] == pytest.approx(-3.7, rel=1e-14)


def test_the_kernel_is_a_mask_by_lag():
    """In `dispersion` both are one head, and have one spectrum."""
    kernel = KernelPrior(3.0).place(bare(ENCODER), CYCLIC)
    mask = MaskPrior(3.0).place(bare(ENCODER), CYCLIC)
    gap = kernel.blocks[0].heads[1].positional() - mask.blocks[0].heads[1].positional()
    np.testing.assert_allclose(gap, mask_logits(0.0), rtol=1e-13)  # the neutral mask beside the kernel
    heads = [
        Head(Kernel.table(kernel.kernel[0, 0]), 0.5),
        Head(Kernel.uniform(8), 0.5, bias=mask_logits(mask.mask[0, 0])),
    ]
    from dispersion import Block

    spectra = [attention_spectrum(Block([head])).multipliers for head in heads]
    np.testing.assert_allclose(*spectra, atol=1e-12)
    symbol = heads[0].kernel.symbol
    # one open lag r = −1: λ(q) = a e^{iq} + b(δ_{q0}N − e^{iq}), a and b the weights of open and closed pairs
    a, b = np.exp(3) / (np.exp(3) + 7), 1 / (np.exp(3) + 7)
    q = 2 * np.pi * np.arange(8) / 8
    np.testing.assert_allclose(symbol, (a - b) * np.exp(1j * q) + 8 * b * (q == 0), atol=1e-14)


class TestSvd:
    def test_scores_are_exact_up_to_a_constant_in_each_row(self):
        rng = np.random.default_rng(0)
        home, logits, query = rng.normal(size=(6, 9)), rng.normal(size=(2, 6, 6)), rng.normal(size=(2, 7, 9))
        q, k = by_svd(home, logits, query)
        scores = (home @ q.swapaxes(1, 2)) @ (home @ k.swapaxes(1, 2)).swapaxes(1, 2) / np.sqrt(7)
        gap = scores - logits
        np.testing.assert_allclose(gap, gap[..., :1] * np.ones(6), atol=1e-12)

    def test_a_rank_too_small_gives_the_nearest(self):
        """By Eckart and Young: no other scores of that rank are nearer, constants in rows aside."""
        rng = np.random.default_rng(1)
        home, logits = rng.normal(size=(6, 9)), rng.normal(size=(1, 6, 6))
        centred = logits - logits.mean(axis=-1, keepdims=True)
        q, k = by_svd(home, logits, rng.normal(size=(1, 2, 9)))
        scores = (home @ q[0].T) @ (home @ k[0].T).T / np.sqrt(2)
        assert np.linalg.norm(scores - centred[0]) == pytest.approx(np.linalg.norm(np.linalg.svd(centred[0])[1][2:]))

    def test_what_is_left_over_of_a_head_says_nothing_and_learns(self):
        placed = StructuredSVD().place(ENCODER, TWO)
        rank = np.linalg.matrix_rank(10.0 * TWO.allowed - 10.0 * TWO.allowed.mean(axis=1, keepdims=True))
        assert rank < 16
        np.testing.assert_array_equal(placed.query[:, :, rank:], ENCODER.query[:, :, rank:])
        assert (placed.key[:, :, rank:] == 0).all()

    def test_even_shares(self):
        placed = StructuredSVD().place(ENCODER, CYCLIC)
        sizes = [np.linalg.norm(part[0, 0, :7] @ ENCODER.home[0].T) for part in (placed.query, placed.key)]
        assert sizes[0] == pytest.approx(sizes[1], rel=1e-12)


class TestOpt:
    def test_its_slopes_are_those_of_differences(self):
        """One tiny step of Adam from zero moments goes against the sign of each slope."""
        rng = np.random.default_rng(2)
        home, logits = rng.normal(size=(4, 5)), rng.normal(size=(2, 4, 4))
        q, k = 0.3 * rng.normal(size=(2, 2, 3, 5))

        def loss(q, k):
            scores = (home @ q.swapaxes(1, 2)) @ (home @ k.swapaxes(1, 2)).swapaxes(1, 2) / np.sqrt(3)
            return ((softmax(scores) - softmax(logits)) ** 2).sum()

        moved = by_descent(home, logits, q, k, 1, 1e-6)
        for part, (before, after) in enumerate(zip((q, k), moved, strict=True)):
            for place in np.ndindex(*q.shape):
                step = np.zeros_like(q)
                step[place] = 1e-6
                ends = [loss(*(w + sign * step * (i == part) for i, w in enumerate((q, k)))) for sign in (1, -1)]
                slope = (ends[0] - ends[1]) / 2e-6
                if abs(slope) > 1e-5:
                    assert (after - before)[place] == pytest.approx(-1e-6 * np.sign(slope), rel=1e-2)

    def test_torch_takes_the_same_steps(self):
        torch = pytest.importorskip("torch")
        rng = np.random.default_rng(3)
        home, logits = rng.normal(size=(5, 6)), 4 * np.broadcast_to(np.eye(5), (2, 5, 5))
        start = 0.4 * rng.normal(size=(2, 2, 4, 6))
        weights = [torch.tensor(part, requires_grad=True) for part in start]
        optimiser, x = torch.optim.Adam(weights, lr=1e-2), torch.tensor(home)
        aim = torch.softmax(torch.tensor(logits), -1)
        for _ in range(30):
            scores = (x @ weights[0].mT) @ (x @ weights[1].mT).mT / 2
            loss = ((torch.softmax(scores, -1) - aim) ** 2).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        for ours, theirs in zip(by_descent(home, logits, *start, 30, 1e-2), weights, strict=True):
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-9)

    def test_it_gets_there(self):
        placed = StructuredOpt(steps=400, rate=1e-2).place(ENCODER, CYCLIC)
        error = np.abs(placed.home_attention - wanted(CYCLIC, 10.0)).max()
        assert error < 0.05 < np.abs(ENCODER.home_attention - wanted(CYCLIC, 10.0)).max()


def test_names():
    names = [prior.name for prior in (*PRIORS, MaskPrior(), MaskPrior(frozen=True), MaskPrior(2, True, frozen=True))]
    assert names == [
        "default",
        "neutral",
        "mask 4",
        "mask hard",
        "kernel 4",
        "svd 4",
        "opt 4",
        "mask",
        "mask frozen",
        "mask 2 frozen hard",
    ]


@pytest.mark.parametrize("kind", [MaskPrior, KernelPrior, StructuredSVD, StructuredOpt])
@pytest.mark.parametrize("contrast", [0.0, -1.0, np.nan, np.inf, "10"])
def test_contrasts_are_positive_numbers(kind, contrast):
    with pytest.raises(ArgumentError, match="^contrast: got [^\n]*; accepted: a finite positive number$"):
        kind(contrast)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: MaskPrior().place(ENCODER, pattern_of("cyclic3", 9)), "pattern: got 'correct' of shape (9, 9)"),
        (lambda: MaskPrior().place(ENCODER, Pattern([np.eye(8)] * 2)), "pattern: got 'pattern' of shape (2, 8, 8)"),
        (lambda: KernelPrior().place(ENCODER, TWO), "pattern: got 'correct', which is not circulant"),
        (lambda: MaskPrior().place(ENCODER, np.eye(8)), "pattern: got ndarray"),
        (lambda: MaskPrior(frozen=1), "frozen: got 1"),
        (lambda: MaskPrior(hard="yes"), "hard: got 'yes'"),
        (lambda: StructuredOpt(steps=0), "steps: got 0"),
        (lambda: StructuredOpt(rate=-1.0), "rate: got -1.0"),
        (lambda: by_svd(np.full((3, 4), np.nan), np.zeros((1, 3, 3)), np.zeros((1, 2, 4))), "home: got 12 values"),
        (lambda: by_svd(np.ones((3, 4)), np.zeros((1, 2, 3)), np.zeros((1, 2, 4))), "logits: got shape"),
        (lambda: by_svd(np.ones((3, 5)), np.zeros((1, 3, 3)), np.zeros((1, 2, 4))), "home: got 5 features"),
    ],
)
def test_refusals(act, message):
    with pytest.raises(ArgumentError) as refused:
        act()
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)
