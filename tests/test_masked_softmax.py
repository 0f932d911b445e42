"""Theorem 1, Corollary 1 and Proposition 1 of arXiv 2608.00418: by sympy, by automatic differentiation, in numbers."""

import numpy as np
import pytest

from dispersion import ArgumentError, MaskedSoftmax
from dispersion.symbolic import masked_softmax, masked_softmax_bounds, masked_softmax_norms


def row(seed, n=5, d=3, size=2.0):
    rng = np.random.default_rng(seed)
    return MaskedSoftmax(rng.normal(size=d), rng.normal(size=(n, d)), size * rng.normal(size=n))


def sigmoid(m):
    return 1 / (1 + np.exp(-m))


class TestTheorem1:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("size", [0.0, 2.0, 10.0])
    def test_automatic_differentiation(self, seed, size):
        torch = pytest.importorskip("torch")
        made = row(seed, 6, 4, size)
        q, k, m = (torch.tensor(part) for part in (made.query, made.keys, made.m))

        def weights(q, k, m):
            return torch.softmax(k @ q / 2 + torch.nn.functional.logsigmoid(m), -1)

        np.testing.assert_allclose(made.weights, weights(q, k, m).numpy(), atol=1e-15)
        slopes = torch.autograd.functional.jacobian(weights, (q, k, m))
        for ours, theirs in zip((made.by_query, made.by_keys, made.by_mask), slopes, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-12, rtol=1e-12)

    def test_what_sympy_derived(self):
        """From the definition, differentiated and not claimed: three keys, two features."""
        made = row(4, 3, 2)
        names = {"r": np.sqrt(2)}
        for c in range(2):
            names[f"q_{c + 1}"] = made.query[c]
            names |= {f"k_{j + 1}{c + 1}": made.keys[j, c] for j in range(3)}
        for j in range(3):
            names[f"e_{j + 1}"] = np.exp(made.keys[j] @ made.query / np.sqrt(2))
            names[f"u_{j + 1}"] = np.exp(-made.m[j])
        derivation = masked_softmax()
        assert derivation.proved
        found = derivation.evaluate(names)
        np.testing.assert_allclose(found["D_q"], made.by_query, atol=1e-14)
        np.testing.assert_allclose(np.reshape(found["D_k"], (3, 3, 2)), made.by_keys, atol=1e-14)
        np.testing.assert_allclose(found["D_m"], made.by_mask, atol=1e-14)

    def test_a_missing_sigma_is_not_proved(self):
        import sympy

        derivation = masked_softmax()
        claim = derivation.result[2].rhs
        wrong = claim.subs({sympy.Symbol(f"g_{j}"): 1 for j in (1, 2, 3)})
        assert not derivation.against({"D_m": wrong}).proved

    def test_removed_keys(self):
        made = MaskedSoftmax([1.0, 0.5], [[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]], [-np.inf, np.inf, 0.0])
        assert made.weights[0] == 0
        for slopes in (made.by_query[0], made.by_keys[:, 0], made.by_mask[0], made.by_mask[:, :2]):
            assert (slopes == 0).all()


class TestCorollary1:
    def test_the_identities_behind_it(self):
        assert masked_softmax_bounds().proved

    @pytest.mark.parametrize("size", [0.0, 2.0, 10.0])
    def test_norms_are_within_their_bounds_and_reach_them(self, size):
        closest = dict.fromkeys(("query", "keys", "mask"), 0.0)
        for seed in range(50):
            made = row(seed, 4, 3, size)
            bounds = made.bounds()
            norms = {
                "query": np.linalg.norm(made.by_query, axis=-1),
                "keys": np.linalg.norm(made.by_keys, axis=-1),
                "mask": np.abs(made.by_mask),
            }
            for name, norm in norms.items():
                assert (norm <= bounds[name] * (1 + 1e-12)).all()
                closest[name] = max(closest[name], (norm / bounds[name]).max())
            assert (bounds["mask"] <= made.weights[:, None]).all()
        assert closest["keys"] == pytest.approx(1)  # with B_q = |q| this bound is the norm itself
        assert closest["mask"] == pytest.approx(1)
        assert 0.3 < closest["query"] < 1
        wide = made.bounds(query=10.0, keys=20.0)
        assert (wide["query"] > bounds["query"]).all()
        assert (wide["mask"] == bounds["mask"]).all()

    def test_the_bounds_of_masks_and_keys_cannot_be_compared_without_the_query(self):
        """The reviewer's point: their ratio is |q|/(√d σ(−m)), anything at one and the same attention."""
        made = row(7, 4, 16)
        ratio = np.linalg.norm(made.by_keys, axis=-1) / np.abs(made.by_mask)
        np.testing.assert_allclose(ratio, np.broadcast_to(made.ratio, (4, 4)), rtol=1e-12)
        assert np.ptp(ratio, axis=0).max() < 1e-12 * ratio.max()  # the weights drop out of it
        order = []
        for t in (1 / 50, 50):
            turned = MaskedSoftmax(t * made.query, made.keys / t, made.m)
            np.testing.assert_allclose(turned.weights, made.weights, rtol=1e-12)
            bounds = turned.bounds()
            np.testing.assert_allclose(bounds["mask"], made.bounds()["mask"], rtol=1e-12)
            order.append(set(np.ravel(bounds["keys"] > bounds["mask"]).tolist()))
        assert order == [{False}, {True}]

    def test_in_the_networks_of_the_trials(self):
        """n = 8, d = 64, w = 16 before training: |q|/√w is 0.57 on average. So a closed pair answers to its mask 1.7
        times as strongly as to its key, an open one at contrast 10 13,000 times less: by saturation, not by its place.
        """
        from training import Encoder

        sizes = []
        for seed in range(5):
            encoder = Encoder.draw(seed)
            for head in range(3):
                queries, keys = (encoder.home[0] @ part[0, head].T for part in (encoder.query, encoder.key))
                for q in queries:
                    at = MaskedSoftmax(q, keys, np.where(np.arange(8) == 1, 10.0, -10.0))
                    sizes.append(at.ratio[:2])
        closed, opened = np.mean(sizes, axis=0)
        assert closed == pytest.approx(0.5716, abs=1e-3)
        assert opened == pytest.approx(closed * sigmoid(10) / sigmoid(-10), rel=1e-9)
        assert 12_500 < opened < 12_700


class TestProposition1:
    def test_the_identities(self):
        assert masked_softmax_norms().proved

    def test_norms_of_attention(self):
        for seed in range(20):
            A = np.array([row(100 * seed + i, 6, 3, 5.0).weights for i in range(6)])
            assert np.linalg.norm(A) >= 1
            assert (np.linalg.norm(A, axis=1) >= 1 / np.sqrt(6) - 1e-15).all()
        uniform = MaskedSoftmax(np.zeros(3), np.zeros((6, 3)), np.full(6, -30.0))
        assert np.linalg.norm(uniform.weights) == pytest.approx(1 / np.sqrt(6), rel=1e-14)  # closed all over: no change
        assert np.linalg.norm(sigmoid(uniform.m) * np.full(6, 1 / 6)) < 1e-12  # a factor outside takes it all

    def test_a_factor_outside_takes_from_the_derivatives(self):
        made = row(3, 5)
        scores = np.diag(made.weights) - np.outer(made.weights, made.weights)
        outside = sigmoid(made.m)[:, None] * scores
        assert np.linalg.norm(outside) < np.linalg.norm(scores)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: MaskedSoftmax([1.0], [[1.0, 2.0]], [0.0]), "keys: got shape (1, 2)"),
        (lambda: MaskedSoftmax([1.0], [[1.0], [2.0]], [0.0]), "m: got shape (1,)"),
        (lambda: MaskedSoftmax([1.0], [[1.0], [2.0]], [0.0, np.nan]), "m: got NaN"),
        (lambda: MaskedSoftmax([np.nan], [[1.0]], [0.0]), "query: got 1 values that are not finite"),
        (lambda: MaskedSoftmax([1.0], [[1.0], [2.0]], [-np.inf] * 2), "m: got −inf for every key"),
        (lambda: row(0).bounds(query=1e-3), "query: got 0.001"),
        (lambda: row(0).bounds(keys=np.nan), "keys: got nan"),
    ],
)
def test_refusals(act, message):
    with pytest.raises(ArgumentError) as refused:
        act()
    assert str(refused.value).startswith(message)
