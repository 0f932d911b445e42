"""Survival of a prior: one scale for all places, Kronecker sums without their matrix, Parseval, and drift by decay."""

from dataclasses import replace

import numpy as np
import pytest

from dispersion import ArgumentError, Block, Head, Kernel, dispersion_relation
from dispersion.block.kernel import softmax
from training.encoder import Encoder
from training.patterns import Pattern, pattern_of
from training.priors import KernelPrior, MaskPrior, NeutralMask, StructuredSVD
from training.survival import drift, on_the_curve, operator, overlap, spectral, survival

ENCODER = Encoder.draw(0, d=32, width=12)
INPUTS = np.random.default_rng(0).integers(0, 2, (16, 8))
CYCLIC, TWO = pattern_of("cyclic3", 8), pattern_of("2parity", 8)


def weights(rng, *shape):
    return softmax(rng.normal(size=shape))


def test_what_is_kept_and_what_is_gone():
    P, U = TWO.target[None], np.full((1, 8, 8), 1 / 8)
    rows = TWO.restricts[None]
    for t in (0.0, 0.3, 1.0, -0.2, 1.4):
        assert overlap(U + t * (P - U), P, rows) == pytest.approx(t, abs=1e-14)
    M = np.random.default_rng(1).normal(size=(1, 3, 3))
    for t in (0.0, 0.3, 1.0):
        assert operator(U + t * (P - U), M, P, rows) == pytest.approx(t, abs=1e-14)
    assert operator(P, M, P) == 1.0
    assert operator(U, M, P) == 0.0


def test_free_rows_do_not_count():
    rng = np.random.default_rng(2)
    free = pattern_of("2parity", 8, rows="free")
    P, rows = free.target[None], free.restricts[None]
    A, B = weights(rng, 2, 1, 8, 8)
    B[:, :2] = A[:, :2]
    M = rng.normal(size=(1, 3, 3))
    assert overlap(A, P, rows) == overlap(B, P, rows)
    assert operator(A, M, P, rows) == operator(B, M, P, rows)


def test_the_operator_is_that_of_the_whole_matrix():
    rng = np.random.default_rng(3)
    A, P = weights(rng, 2, 3, 5, 5)
    M, U = rng.normal(size=(3, 4, 4)), np.full((3, 5, 5), 0.2)
    rows = rng.uniform(size=(3, 5)) < 0.7

    def J(attention):
        return sum(np.kron(np.where(rows[h][:, None], attention[h], A[h]), M[h]) for h in range(3))

    expected = 1 - np.linalg.norm(J(A) - J(P)) / np.linalg.norm(J(U) - J(P))
    assert operator(A, M, P, rows) == pytest.approx(expected, abs=1e-14)
    moduli = [np.sort(np.abs(np.linalg.eigvals(J(one)))) for one in (A, P, U)]
    expected = 1 - np.linalg.norm(moduli[0] - moduli[1]) / np.linalg.norm(moduli[2] - moduli[1])
    assert spectral(A, M, P, rows) == pytest.approx(expected, abs=1e-9)


def test_spectra_are_blind_to_which_tokens_are_coupled():
    M = np.random.default_rng(4).normal(size=(1, 3, 3))
    wrong = pattern_of("2parity", 8, "wrong")
    assert spectral(wrong.target[None], M, TWO.target[None]) == pytest.approx(1.0, abs=1e-7)
    assert operator(wrong.target[None], M, TWO.target[None]) < 0.5
    assert overlap(wrong.target[None], TWO.target[None]) < 0.5


class TestParseval:
    """For circulant patterns survival is a statement on the dispersion curve."""

    @pytest.mark.parametrize("n", [7, 8])
    def test_of_circulant_attention(self, n):
        rng, P = np.random.default_rng(n), pattern_of("cyclic3", n)
        target = np.fft.fft(P.by_lag / P.by_lag.sum())
        for kernel in (Kernel.table(rng.normal(size=n)), Kernel.mask(3 * rng.normal(size=n))):
            block = Block([Head(kernel, 0.4)])
            relation = dispersion_relation(block)
            A = block.heads[0].attention(np.zeros((n, 1)))
            # the curve of the relation, and the entries of the weights
            assert on_the_curve(relation.symbols[0], target) == pytest.approx(
                float(overlap(A[None], P.target[None])), abs=1e-14
            )

    def test_a_conjugated_curve_is_another(self):
        P = pattern_of("cyclic3", 8)
        target = np.fft.fft(P.by_lag.astype(float))
        assert on_the_curve(target, target) == pytest.approx(1.0)
        assert abs(on_the_curve(target.conj(), target)) < 0.2

    def test_of_any_attention_by_its_part_by_lag(self):
        rng, P = np.random.default_rng(5), pattern_of("cyclic3", 8)
        A = weights(rng, 8, 8)
        lags = (np.arange(8)[:, None] - np.arange(8)) % 8
        by_lag = np.array([A[lags == r].mean() for r in range(8)])
        curve = on_the_curve(np.fft.fft(by_lag), np.fft.fft(P.by_lag.astype(float)))
        assert curve == pytest.approx(float(overlap(A[None], P.target[None])), abs=1e-14)

    def test_of_a_network(self):
        """Of kernels in an encoder without queries: from its blocks' own dispersion relations, layer by layer."""
        start = replace(ENCODER, query=np.zeros_like(ENCODER.query))
        placed = KernelPrior(2.0).place(start, CYCLIC)
        target = np.broadcast_to(np.fft.fft(CYCLIC.by_lag.astype(float)), (3, 8))
        found = survival(placed, placed, CYCLIC, INPUTS)["home"]
        for block, kept in zip(placed.blocks, found, strict=True):
            relation = dispersion_relation(block, np.random.default_rng(6).normal(size=32))
            assert on_the_curve(relation.symbols, target) == pytest.approx(kept, abs=1e-13)


class TestNetworks:
    def test_every_place_starts_from_the_same(self):
        start = replace(ENCODER, query=np.zeros_like(ENCODER.query))
        for contrast in (1.0, 4.0, 10.0):
            # one open pair in a row of 8 with logits c above the others
            expected = (np.exp(contrast) / (np.exp(contrast) + 7) - 1 / 8) / (7 / 8)
            for prior, encoder in ((MaskPrior, start), (KernelPrior, start), (StructuredSVD, ENCODER)):
                placed = prior(contrast).place(encoder, CYCLIC)
                found = survival(placed, placed, CYCLIC, INPUTS)
                np.testing.assert_allclose(found["home"], expected, atol=1e-10)
                np.testing.assert_allclose(found["kept"], 1.0, atol=1e-12)
                np.testing.assert_allclose(found["operator"], expected, atol=1e-9)
            np.testing.assert_allclose(
                survival(MaskPrior(contrast).place(start, CYCLIC), start, CYCLIC, INPUTS)["data"], expected, atol=1e-10
            )

    def test_content_enters_the_scores_of_queries_and_keys_alone(self):
        start = replace(ENCODER, query=np.zeros_like(ENCODER.query))
        svd = survival(StructuredSVD(4.0).place(ENCODER, CYCLIC), ENCODER, CYCLIC, INPUTS)
        mask = survival(MaskPrior(4.0).place(start, CYCLIC), start, CYCLIC, INPUTS)
        assert (np.abs(mask["home"] - mask["data"]) < 1e-12).all()
        assert (svd["home"] - svd["data"] > 0.02).all()

    def test_neutral_masks(self):
        neutral = NeutralMask().place(ENCODER, CYCLIC)
        found = survival(neutral, neutral, CYCLIC, INPUTS)
        assert (np.abs(found["home"]) < 0.2).all()
        assert (found["size"] == 0).all()
        assert (found["gap"] == 0).all()
        uniform = replace(ENCODER, query=np.zeros_like(ENCODER.query))
        assert np.isnan(survival(uniform, uniform, CYCLIC, INPUTS)["kept"]).all()

    def test_sizes_and_gaps_of_masks(self):
        soft = survival(*[MaskPrior(3.0).place(ENCODER, TWO)] * 2, TWO, INPUTS)
        np.testing.assert_allclose(soft["size"], 3.0)
        np.testing.assert_allclose(soft["gap"], 3.0)
        hard = survival(*[MaskPrior(3.0, hard=True).place(ENCODER, TWO)] * 2, TWO, INPUTS, spectra=True)
        np.testing.assert_allclose(hard["size"], 3.0)
        assert (hard["gap"] == np.inf).all()
        np.testing.assert_allclose(hard["home"], 1.0)
        assert hard["spectral"].shape == (2,)


class TestDrift:
    RATES = 3e-3 * (1 + np.cos(np.pi * np.arange(2500) / 2500)) / 2

    def test_coupled_decay_takes_the_learning_rate_off_a_step_whatever_it_is(self):
        for decay in (1e-3, 1e-1):
            fallen = 10 - drift(10.0, self.RATES, decay)
            assert 0.85 < fallen[-1] / self.RATES.sum() <= 1
            assert fallen[100] / self.RATES[:100].sum() == pytest.approx(1, abs=0.02)

    def test_it_is_what_masks_of_the_trials_did(self):
        """Contrast 10 at rate 3e-3: 6.53 after 2500 steps of a cosine, 2.83 after 3000 constant ones."""
        assert drift(10.0, self.RATES, 1e-3)[-1] == pytest.approx(6.53, abs=0.005)
        assert drift(10.0, np.full(3000, 3e-3), 1e-3)[-1] == pytest.approx(2.83, abs=0.005)

    def test_decoupled_decay_is_a_factor(self):
        assert drift(10.0, self.RATES, 0.1, decoupled=True)[-1] == pytest.approx(
            10 * np.exp(-0.1 * self.RATES.sum()), rel=1e-3
        )
        assert (drift(4.0, self.RATES, 0.0) == 4.0).all()

    @pytest.mark.parametrize("decoupled", [False, True])
    def test_it_is_what_torch_does(self, decoupled):
        torch = pytest.importorskip("torch")
        m = torch.nn.Parameter(torch.tensor([10.0, -10.0], dtype=torch.float64))
        kind = torch.optim.AdamW if decoupled else torch.optim.Adam
        optimiser, path = kind([m], lr=1.0, weight_decay=0.05), [10.0]
        for rate in self.RATES[:300]:
            optimiser.param_groups[0]["lr"] = rate
            optimiser.zero_grad()
            (0 * m).sum().backward()
            optimiser.step()
            path.append(m[0].item())
        found = drift(10.0, self.RATES[:300], 0.05, decoupled)
        np.testing.assert_allclose(found, path, rtol=1e-12)
        assert m[1].item() == -m[0].item()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: survival(ENCODER, ENCODER, pattern_of("cyclic3", 9), INPUTS), "pattern: got 'correct' of shape (9"),
        (lambda: survival(ENCODER, ENCODER, Pattern(np.ones((8, 8))), INPUTS), "pattern: got one that restricts no"),
        (lambda: survival(ENCODER, ENCODER, np.eye(8), INPUTS), "pattern: got ndarray"),
        (lambda: survival(ENCODER, ENCODER, CYCLIC, INPUTS[:, 1:]), "inputs: got shape (16, 7)"),
        (lambda: overlap(np.eye(3), np.eye(3)), "target: got shape (3, 3)"),
        (lambda: overlap(np.ones((1, 2, 2)), np.ones((1, 2, 2)), [True]), "restricted: got bool of shape (1,)"),
        (lambda: operator(np.full((1, 2, 2), np.nan), np.ones((1, 1, 1)), np.ones((1, 2, 2))), "attention: got 4 val"),
        (lambda: on_the_curve([1, 0], [1, 0, 0]), "target: got shape (3,)"),
        (lambda: drift(0.0, [1e-3], 0.1), "contrast: got 0.0"),
        (lambda: drift(1.0, [np.nan], 0.1), "rates: got 1 values"),
    ],
)
def test_refusals(act, message):
    with pytest.raises(ArgumentError) as refused:
        act()
    assert str(refused.value).startswith(message)
