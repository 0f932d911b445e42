"""Masks of a head: what they do to λ(q) and to any attention, in files, in PyTorch, in iteration; closed rows."""

import copy
import pickle

import numpy as np
import pytest
from exact import jacobian

from dispersion import (
    ArgumentError,
    AttentionMask,
    Block,
    Chain,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    attention_spectrum,
    dispersion_relation,
    full_jacobian,
    mask_logits,
)
from dispersion.grid import lag_index
from simulate import iterate


def sigmoid(m):
    return 1 / (1 + np.exp(-m))


def opened(n=6):
    """Not circulant, directional, every row with an open pair."""
    pairs = np.eye(n, k=1, dtype=bool)
    pairs[-1, 2] = pairs[2, 2] = True
    return pairs


def block(mask, d=2, kernel=None, seed=0, **settings):
    rng = np.random.default_rng(seed)
    kernel = Kernel.uniform(mask.n) if kernel is None else kernel
    head = Head(kernel, rng.normal(size=(d, d)), rng.normal(size=(d, d)), bias=mask)
    return Block([head], FeedForward.elementwise("tanh", d, -0.2), **settings)


class TestAttention:
    @pytest.mark.parametrize("contrast", [10.0, 2.0, 0.5])
    def test_rows_of_sigmoids_at_any_homogeneous_state(self, contrast):
        mask = AttentionMask.of(opened(), contrast)
        open_share, closed_share = sigmoid(contrast), sigmoid(-contrast)
        shares = np.where(opened(), open_share, closed_share)
        shares = shares / shares.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(mask.attention, shares, rtol=1e-13)
        for a in np.random.default_rng(1).normal(size=(3, 2)):
            np.testing.assert_allclose(block(mask).heads[0].attention(np.tile(a, (6, 1))), shares, rtol=1e-12)
        assert np.ptp(mask.logits) == pytest.approx(contrast, rel=1e-13)
        np.testing.assert_allclose(mask.slopes, sigmoid(-mask.m), rtol=1e-14)

    def test_neutral_is_no_mask(self):
        neutral = AttentionMask.neutral(6)
        np.testing.assert_allclose(neutral.attention, np.full((6, 6), 1 / 6), rtol=1e-15)
        x, kernel = np.random.default_rng(2).normal(size=(6, 2)), Kernel.alibi(6, 0.5)
        with_mask, without = block(neutral, kernel=kernel), block(neutral, kernel=kernel)
        without = Block([Head(kernel, without.heads[0].value, without.heads[0].content)], without.feedforward)
        np.testing.assert_allclose(with_mask.forward(x), without.forward(x), rtol=1e-13)

    def test_hard_pairs_have_no_weight_and_content_does_not_open_them(self):
        hard = AttentionMask.of(opened(), np.inf)
        np.testing.assert_array_equal(np.isneginf(hard.logits), ~opened())
        x = 30 * np.random.default_rng(3).normal(size=(6, 2))
        assert (block(hard).heads[0].attention(x)[~opened()] == 0).all()

    @pytest.mark.parametrize("contrast", [3.0, np.inf])
    def test_the_spectrum_of_the_forward_map(self, contrast):
        """`attention_spectrum` with a mask, and the derivative of the map by complex steps."""
        norm, a = LayerNorm([1.0, 2.0], [0.1, 0.0], 0.1), np.array([0.4, -0.7])
        made = block(AttentionMask.of(opened(), contrast), attention_norm=norm)
        brute = jacobian(made, np.tile(a, (6, 1)))
        np.testing.assert_allclose(full_jacobian(made, a), brute, atol=1e-12)
        found, expected = attention_spectrum(made, a).multipliers.ravel(), np.linalg.eigvals(brute)
        for value in found:
            assert np.abs(expected - value).min() < 1e-8

    def test_lambda_of_a_circulant_mask(self):
        """One open lag r: λ(q) = (a − b)e^{−iqr} at q ≠ 0, with the weights a of the open pair and b of each other."""
        n, r, c = 8, 3, 2.5
        mask = AttentionMask.of(lag_index((n,)) == r, c)
        a, b = np.exp(c) / (np.exp(c) + n - 1), 1 / (np.exp(c) + n - 1)
        q = 2 * np.pi * np.arange(n) / n
        expected = (a - b) * np.exp(-1j * q * r) + n * b * (q == 0)
        relation = dispersion_relation(block(mask))
        np.testing.assert_allclose(relation.symbols[0], expected, atol=1e-14)
        # the same by lag, as an encoding of a kernel
        by_lag = Kernel.mask(np.where(np.arange(n) == r, c, -c))
        np.testing.assert_allclose(by_lag.symbol, expected, atol=1e-14)
        np.testing.assert_allclose(
            np.sort_complex(attention_spectrum(block(mask)).symbols.round(12)), np.sort_complex(expected.round(12))
        )

    def test_contrast_opens_the_curve_between_uniform_and_hard(self):
        pairs, sizes = lag_index((8,)) == 1, []
        for contrast in (0.01, 1.0, 4.0, 10.0, np.inf):
            symbol = dispersion_relation(block(AttentionMask.of(pairs, contrast))).symbols[0]
            sizes.append(np.abs(symbol[1:]).max())
        assert np.diff(sizes).min() > 0
        assert sizes[0] < 0.002
        assert sizes[-1] == pytest.approx(1.0, abs=1e-14)

    def test_masks_that_are_not_circulant_have_no_curve(self):
        with pytest.raises(ArgumentError, match="^bias: got 10 between pairs of tokens of one lag"):
            dispersion_relation(block(AttentionMask.of(opened())))


class TestClosedRows:
    M = np.array([[1.0, -2.0, 0.5], [-4.0, -4.0, -4.0], [0.0, 0.0, 0.0]])

    def test_they_are_refused(self):
        with pytest.raises(ArgumentError) as refused:
            AttentionMask(self.M)
        assert str(refused.value) == (
            "m: got row 1 of -4 throughout; accepted: an open pair in each row, or rows='isolate' or 'free': "
            "a softmax ignores a constant shift"
        )
        with pytest.raises(ArgumentError, match="^m: got row 2 of -10 throughout"):
            AttentionMask.of([[1, 0, 0], [0, 1, 1], [0, 0, 0]])
        with pytest.raises(ArgumentError, match="^m: got row 0 of -inf throughout"):
            AttentionMask([[-np.inf] * 2, [0.0, 1.0]])

    def test_free_rows_restrict_nothing(self):
        free = AttentionMask(self.M, rows="free")
        np.testing.assert_array_equal(free.m, self.M)
        np.testing.assert_allclose(free.attention[1:], 1 / 3, rtol=1e-15)
        hard = AttentionMask.of([[1, 0, 0], [0, 0, 0], [0, 0, 1]], np.inf, rows="free")
        np.testing.assert_allclose(hard.attention[1], 1 / 3, rtol=1e-15)

    def test_isolated_rows_see_themselves(self):
        isolated = AttentionMask(self.M, rows="isolate")
        np.testing.assert_array_equal(isolated.m[1], [-4, 4, -4])
        np.testing.assert_array_equal(isolated.m[[0, 2]], self.M[[0, 2]])
        hard = AttentionMask.of([[1, 0, 0], [0, 0, 0], [0, 0, 1]], np.inf, rows="isolate")
        np.testing.assert_array_equal(hard.attention[1], [0, 1, 0])

    def test_a_kernel_that_leaves_no_key_is_refused(self):
        causal = Kernel.table([0.0, -np.inf, -np.inf])
        with pytest.raises(ArgumentError, match="^bias: got a token without keys"):
            Head(causal, 0.5, bias=AttentionMask.of([[0, 1, 0], [0, 0, 1], [1, 0, 0]], np.inf))


def heads():
    """Masks soft, hard and with a row left free."""
    m = np.random.default_rng(4).normal(size=(6, 6))
    m[1] = -3.0
    return [
        Head(Kernel.alibi(6, 0.3), np.eye(2), bias=mask)
        for mask in (AttentionMask(m, "free"), AttentionMask.of(opened(), np.inf), AttentionMask.of(opened(), 2.0))
    ]


class TestWhatABlockIsUsedFor:
    def test_nouns(self):
        head = heads()[0]
        assert not head.mask.m.flags.writeable
        for again in (copy.copy(head), copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
            np.testing.assert_array_equal(again.mask.m, head.mask.m)
            np.testing.assert_array_equal(again.bias, head.bias)
        assert Head(**head.arguments).mask is head.mask
        assert not head.plain
        assert Head(Kernel.uniform(6), 0.5, bias=mask_logits(head.mask.m)).mask is None

    @pytest.mark.parametrize("large", [0, 256])
    def test_files(self, tmp_path, monkeypatch, large):
        import dispersion.block.files as files

        monkeypatch.setattr(files, "LARGE", large)
        made = Block(heads())
        made.save(tmp_path / "block.toml")
        again = Block.load(tmp_path / "block.toml")
        for before, after in zip(made.heads, again.heads, strict=True):
            assert before.mask.m.tobytes() == after.mask.m.tobytes()
            assert before.mask.rows == after.mask.rows
        text = (tmp_path / "block.toml").read_text()
        assert "[head.bias]" in text
        assert 'rows = "free"' in text

    @pytest.mark.parametrize(
        ("bias", "message"),
        [
            ("{m = [[0.0, 1.0], [1.0, nan]]}", "block.toml: head[0].bias.m: got NaN"),
            ("{m = [[0.0, 1.0, 0.0]]}", "block.toml: head[0].bias.m: got shape (1, 3)"),
            ("{m = [[-1.0, -1.0], [1.0, 0.0]]}", "block.toml: head[0].bias.m: got row 0 of -1 throughout"),
            ("{m = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]}", "block.toml: head[0].bias: got a mask of 3"),
            ('{m = [[1.0, 0.0], [1.0, 0.0]], rows = "close"}', "block.toml: head[0].bias.rows: got 'close'"),
            ("{contrast = 1.0}", "block.toml: head[0].bias.contrast: got an unknown key"),
        ],
    )
    def test_files_that_are_refused(self, tmp_path, bias, message):
        text = f'[block]\nn = 2\n[[head]]\nkernel = {{type = "uniform"}}\nvalue = 1.0\nbias = {bias}\n'
        (tmp_path / "block.toml").write_text(text)
        with pytest.raises(ArgumentError) as refused:
            Block.load(tmp_path / "block.toml")
        assert str(refused.value).startswith(message)
        assert "\n" not in str(refused.value)

    def test_iteration(self):
        made = Block(heads(), FeedForward.elementwise("tanh", 2, -0.5), 0.3)
        path = iterate(made, depth=12, start=0.1)
        np.testing.assert_allclose(path.state, made.forward(path.previous), rtol=1e-12)

    def test_chains_take_masks_by_lag(self):
        mask = AttentionMask.of(lag_index((9,)) == 1, 2.0)
        soft, table = (Block([Head(Kernel.uniform(9), 0.4, bias=bias)]) for bias in (mask, mask.logits))
        x = np.random.default_rng(5).normal(size=(6, 1))
        np.testing.assert_array_equal(Chain(soft, 6, "open").forward(x), Chain(table, 6, "open").forward(x))


class TestPyTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def test_one_map_and_back(self, torch):
        from models import export, to_torch

        made = Block(heads(), FeedForward.elementwise("tanh", 2, -0.2))
        net, x = to_torch(made), np.random.default_rng(6).normal(size=(3, 6, 2))
        np.testing.assert_allclose(net(torch.tensor(x)).detach().numpy(), made.forward(x), atol=1e-14)
        for before, after in zip(made.heads, export(net).heads, strict=True):
            assert before.mask.m.tobytes() == after.mask.m.tobytes()
            assert before.mask.rows == after.mask.rows
        single = export(to_torch(made, dtype=torch.float32))
        np.testing.assert_allclose(single.heads[0].mask.m, made.heads[0].mask.m, rtol=1e-7)

    @pytest.mark.parametrize("optimiser", ["Adam", "AdamW"])
    def test_m_trains_and_closed_pairs_stay_closed(self, torch, optimiser):
        from models import export, to_torch

        made = Block(heads(), FeedForward.elementwise("tanh", 2, -0.2))
        net, x = to_torch(made), torch.tensor(np.random.default_rng(7).normal(size=(3, 6, 2)))
        steps = getattr(torch.optim, optimiser)(net.parameters(), lr=0.05, weight_decay=0.1)
        for _ in range(5):
            steps.zero_grad()
            (net(x) ** 2).sum().backward()
            steps.step()
        after = export(net)
        np.testing.assert_array_equal(after.heads[1].mask.m, made.heads[1].mask.m)
        assert (after.heads[0].mask.m != made.heads[0].mask.m).all()
        y = np.random.default_rng(8).normal(size=(6, 2))
        np.testing.assert_allclose(after.forward(y), net(torch.tensor(y)).detach().numpy(), atol=1e-13)

    def test_the_slope_of_m_is_that_of_the_logits_times_sigma(self, torch):
        """∂/∂m_ij = σ(−m_ij) ∂/∂b_ij (Theorem 1), beside the slope of a bias of the same logits."""
        from models import to_torch

        head = heads()[2]
        x = torch.tensor(np.random.default_rng(9).normal(size=(3, 6, 2)))
        slopes = []
        for bias in (head.mask, head.bias):
            net = to_torch(Block([Head(head.kernel, head.value, head.content, bias=bias)]))
            (net(x) ** 3).sum().backward()
            part = net.attention[0]
            slopes.append((part.bias if part.masks is None else part.masks.m).grad.numpy()[0])
        np.testing.assert_allclose(slopes[0], slopes[1] * head.mask.slopes, atol=1e-13)

    def test_chains_of_masks(self, torch):
        from models import to_torch

        mask = AttentionMask.of(lag_index((9,)) == 1, 2.0)
        made = Block([Head(Kernel.uniform(9), 0.4, bias=mask)])
        x = np.random.default_rng(10).normal(size=(6, 1))
        found = to_torch(made, "open", 6)(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(found, Chain(made, 6, "open").forward(x), atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentionMask([[0.0, 1.0]]), "m: got shape (1, 2)"),
        (lambda: AttentionMask([0.0, 1.0]), "m: got shape (2,)"),
        (lambda: AttentionMask([[0.0, np.nan], [0.0, 0.0]]), "m: got NaN"),
        (lambda: AttentionMask([["a", "b"], ["c", "d"]]), "m: got list that is not real"),
        (lambda: AttentionMask(np.eye(2), rows="open"), "rows: got 'open'"),
        (lambda: AttentionMask.of(np.eye(3), 0.0), "contrast: got 0.0"),
        (lambda: AttentionMask.of(np.eye(3), -1), "contrast: got -1.0"),
        (lambda: AttentionMask.of(np.eye(3), np.nan), "contrast: got nan"),
        (lambda: AttentionMask.of(np.full((3, 3), 0.5)), "opened: got float64 that is neither 0 nor 1"),
        (lambda: AttentionMask.of([[True], [True, False]]), "opened: got list"),
        (lambda: AttentionMask.of(np.ma.MaskedArray(np.eye(2, dtype=bool), np.eye(2))), "opened: got masked values"),
        (lambda: AttentionMask.neutral(1), "n: got 1"),
        (lambda: Head(Kernel.uniform(5), 0.4, bias=AttentionMask.neutral(6)), "bias: got a mask of 6 tokens"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ArgumentError) as refused:
        make()
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)
