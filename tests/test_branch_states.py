"""Exact states: every exact value of the theory reference, their multipliers, and what is refused."""

import exact
import numpy as np
import pytest
from scipy.optimize import brentq

from amplitude import cluster_state, clusters, period_four, standing_wave, travelling_wave
from amplitude.exact.states import ExactState, find_state
from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, LayerNorm, dispersion_relation

TANH = FeedForward.scalar("tanh", scale=-0.1)


def polynomial(a1, a2=0.1, a3=-0.3):
    return FeedForward.scalar(Activation.polynomial([a1 - 1, a2, a3]))


def neighbours(n, weights):
    logits = np.zeros(n)
    for lag, logit in weights.items():
        logits[[lag, -lag]] = logit
    return Kernel.table(logits)


def tuned(kernel, k, mu, feedforward, chi=1.5, sign=1):
    """The block with Λ_k = sign·(1 + μ)."""
    a1 = 1 + feedforward.taylor(0.0, 1)[1]
    return Block([Head(kernel, (sign * (1 + mu) / a1 - 1) / kernel.symbol[k].real, chi)], feedforward)


def lobes(mu, feedforward=TANH, sign=1):
    return tuned(Kernel.gaussian_lobes(32, 4, 1.0, 2.0), 4, mu, feedforward, sign=sign)


def near(state, guess, block):
    """`state` agrees with Newton's method on the unreduced map with complex-step derivatives."""
    x, derivative = exact.newton(block, guess, flip=state.kind == "alternating")
    np.testing.assert_allclose(state.field[:, 0], x, rtol=0, atol=1e-9)
    truth, ours = (
        np.sort_complex(np.round(values, 9)) for values in (exact.multipliers(derivative), state.multipliers)
    )
    np.testing.assert_allclose(np.abs(ours), np.abs(truth), rtol=0, atol=1e-7)
    assert state.residual < 1e-13


class TestReference:
    """Theory reference, section 6."""

    @pytest.mark.parametrize(("mu", "R"), [(0.002, "0.05447"), (0.01, "0.11537")])
    def test_standing(self, mu, R):
        block = lobes(mu)
        guess = standing_wave(block, 4).field()
        state = find_state(block, guess)
        assert (state.kind, state.k, f"{state.amplitude:.5f}") == ("steady", 4, R)
        assert state.stable
        near(state, guess, block)

    def test_travelling(self):
        kernel = Kernel.skewed_lobe(32, 4, 0.7, 2.0, 1.0)
        symbol = kernel.symbol[3]
        eta = brentq(lambda eta: abs(0.9 * (1 + eta * symbol)) - 1 - 4.4515e-4, -1.3, -1.0)
        block = Block([Head(kernel, eta, 1.5)], TANH)
        state = find_state(block, travelling_wave(block, 3).field())
        assert state.kind == "travelling"
        assert f"{state.amplitude:.6f}" == "0.012335"
        assert state.projection(dispersion_relation(block).leading()) == pytest.approx(state.amplitude, rel=1e-12)
        assert f"{state.phase_advance:.8f}" == "0.03055007"
        assert state.phase_advance_at(6) == pytest.approx(2 * state.phase_advance_at(3))
        assert state.stable
        assert state.residual < 1e-13 > state.lattice_defect
        assert state.multipliers[state.sliding] == pytest.approx(1, abs=1e-12)
        x = exact.iterate(block, state.field, 500)
        turned = np.angle(exact.component(x, 3)[0] / exact.component(state.field, 3)[0])
        assert turned == pytest.approx((500 * state.phase_advance + np.pi) % (2 * np.pi) - np.pi, abs=1e-10)

    def test_pi(self):
        kernel = neighbours(8, {1: 2.0})
        state = find_state(tuned(kernel, 4, 1e-3, polynomial(0.9)), exact.cosine(8, 4, 0.0457))
        assert f"{state.amplitude_at(4):.8f} {state.field.mean():.8f}" == "0.04555809 0.00096326"
        assert f"{state.multipliers[0].real:.8f}" == "0.99799851"

    def test_flip(self):
        block = tuned(neighbours(8, {1: 2.0}), 4, 1e-3, polynomial(-0.9, a3=0.3), sign=-1)
        guess = exact.cosine(8, 4, 0.0416)
        state = find_state(block, guess)
        assert state.kind == "alternating"
        assert f"{state.amplitude_at(4):.8f} {state.multipliers[0].real:.8f}" == "0.04156504 0.99600444"
        assert state.phase_advance == pytest.approx(np.pi)
        near(state, guess, block)

    @pytest.mark.parametrize(
        ("psi", "R", "phase", "stable"),
        [(0, "0.02449513", "1.00084288", False), (np.pi / 4, "0.03221443", "0.99854083", True)],
    )
    def test_half_pi(self, psi, R, phase, stable):
        block = tuned(neighbours(8, {2: 2.0}), 2, 1e-3, polynomial(0.9))
        guess = exact.cosine(8, 2, period_four(block).amplitude_at(psi), psi)
        state = find_state(block, guess)
        assert f"{state.amplitude_at(2):.8f}" == R
        assert state.stable == stable
        assert f"{state.multipliers[np.abs(state.multipliers - float(phase)).argmin()].real:.8f}" == phase
        near(state, guess, block)

    @pytest.mark.parametrize(("start", "R", "stable"), [(0.0092, "0.00921456", False), (0.068, "0.06654305", True)])
    def test_third(self, start, R, stable):
        block = tuned(neighbours(6, {1: 2.0, 2: 1.4}), 2, -1e-3, polynomial(0.9))
        state = find_state(block, exact.cosine(6, 2, start))
        assert f"{state.amplitude_at(2):.8f}" == R
        assert state.stable == stable

    def test_homogeneous(self):
        block = Block([Head(neighbours(8, {1: 2.0}), (1.001 / 0.9) - 1, 1.5)], polynomial(0.9))
        state = find_state(block, np.full(8, -0.0081))
        assert f"{state.field[0, 0]:.10f} {state.k}" == "-0.0078768040 0"
        assert np.abs(state.multipliers - 0.9989743908).min() < 1e-10

    def test_alternating(self):
        block = lobes(1e-3, polynomial(-0.9, a3=0.3), sign=-1)
        guess = exact.cosine(32, 4, 0.022)
        state = find_state(block, guess)
        assert (state.kind, f"{state.amplitude:.8f}") == ("alternating", "0.02198165")
        near(state, guess, block)

    @pytest.mark.parametrize(("psi", "R", "stable"), [(0, "0.04134419", True), (np.pi / 4, "0.04071356", False)])
    def test_eight(self, psi, R, stable):
        block = Block([Head(Kernel.gaussian_lobes(32, 1.8, 1.0, 2.0), -0.6, 1.5)], TANH)
        guess = exact.cosine(32, 8, period_four(block).amplitude_at(psi), psi)
        state = find_state(block, guess)
        assert (f"{state.amplitude:.8f}", state.stable) == (R, stable)
        assert len(state.sliding) == 0
        near(state, guess, block)


class TestClusters:
    def block(self, mu=0.05):
        feedforward = FeedForward.scalar(Activation.polynomial([mu, 0.1, -0.3]))
        return Block([Head(Kernel.uniform(32), -0.6, 1.5)], feedforward)

    @pytest.mark.parametrize("share", [8, 16])
    def test_it_is_the_reduced_state(self, share):
        """p = 1/4 of the reference is 8 of 32 tokens."""
        block, p = self.block(), share / 32
        reduced = cluster_state(block, [p, 1 - p])
        field = np.where(np.arange(32) < share, *reduced.values)
        noise = np.random.default_rng(0).permutation(32)
        state = find_state(block, field[noise] + 1e-3 * np.sign(field[noise]))
        np.testing.assert_allclose(state.field[:, 0], field[noise], rtol=0, atol=1e-12)
        expected = [*np.repeat(reduced.within, [share - 1, 31 - share]), *reduced.between]
        np.testing.assert_allclose(np.sort(state.multipliers.real), np.sort(np.real(expected)), rtol=0, atol=1e-10)
        assert state.stable == reduced.stable == (share == 8)
        if share == 8:
            assert [f"{value:.8f}" for value in reduced.values] == ["0.37002325", "-0.12148847"]

    def test_from_the_closed_form(self):
        block = Block(self.block(0.01).heads, FeedForward.scalar(Activation.polynomial([0.01, 0.3, -1 / 3])))
        start = np.where(np.arange(32) % 2 == 0, *clusters(block).values)
        state = find_state(block, start, "steady")
        assert f"{np.ptp(state.field) / 2:.5f} {state.field.mean():.5f}" == "0.09444 0.00433"


class TestAnyStart:
    def test_a_noisy_field_without_symmetry(self):
        block = lobes(0.01)
        x = exact.iterate(block, 1e-2 * np.random.default_rng(1).normal(size=32), 4000)
        state = find_state(block, x)
        assert state.kind == "steady"
        assert state.amplitude_at(4) == pytest.approx(0.11537, abs=5e-6)
        assert np.abs(block.forward(state.field) - state.field).max() < 1e-12

    def test_a_vector_block_with_layer_norm(self, random_block):
        plain = random_block(11, 6, 3, 2)
        norm = LayerNorm(np.ones(3), np.full(3, 0.1))
        block = Block(plain.heads, plain.feedforward, 0.1, norm, norm, "post")
        x = exact.iterate(block, np.random.default_rng(3).normal(size=(6, 3)), 300)
        state = find_state(block, x)
        values = exact.multipliers(exact.jacobian(block, state.field))
        np.testing.assert_allclose(np.abs(state.multipliers), np.abs(values), rtol=0, atol=1e-9)

    def test_a_torus(self):
        kernel = Kernel.gaussian_lobes((8, 8), (2, 0), 1.0, 3.0)
        k = tuple(int(i) for i in np.unravel_index(kernel.symbol.real.argmin(), (8, 8)))
        eta = (1.01 / 0.9 - 1) / kernel.symbol[k].real
        block = Block([Head(kernel, eta, 1.5)], TANH)
        angle = 2 * np.pi * (np.arange(8)[:, None] * k[0] + np.arange(8) * k[1]) / 8
        state = find_state(block, 0.2 * np.cos(angle).ravel())
        assert state.k in (k, tuple(-part % 8 for part in k))
        assert state.residual < 1e-13
        np.testing.assert_allclose(block.forward(state.field), state.field, rtol=0, atol=1e-13)

    def test_a_bias_of_no_symmetry(self):
        rng = np.random.default_rng(5)
        block = Block([Head(Kernel.uniform(6), 0.5, 0.3, bias=rng.normal(size=(6, 6)))], polynomial(0.8))
        state = find_state(block, np.full(6, 0.3))
        np.testing.assert_allclose(block.forward(state.field), state.field, rtol=0, atol=1e-13)

    def test_eigenvectors(self):
        state = find_state(lobes(0.01), standing_wave(lobes(0.01), 4).field())
        values, vectors = state.eigenvectors(4)
        assert vectors.shape == (4, 32, 1)
        for value, vector in zip(values, vectors, strict=True):
            flat = vector.ravel()
            np.testing.assert_allclose(state.derivative() @ flat, value * flat, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.abs(values), np.abs(state.multipliers[:4]), rtol=0, atol=1e-12)


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "argument"),
        [
            ({"block": 3}, "block"),
            ({"start": np.zeros(5)}, "start"),
            ({"start": np.full(32, np.nan)}, "start"),
            ({"kind": "wobbling"}, "kind"),
            ({"drift": [1.0, 2.0]}, "drift"),
            ({"tolerance": -1.0}, "tolerance"),
            ({"start": 40 * np.sin(np.arange(32))}, "start"),
        ],
    )
    def test_arguments(self, changes, argument):
        arguments = {"block": lobes(0.01), "start": exact.cosine(32, 4, 0.1)} | changes
        with pytest.raises(ArgumentError) as refused:
            find_state(**arguments)
        assert refused.value.argument == argument

    def test_a_pattern_below_onset_falls_back(self):
        with pytest.raises(ArgumentError, match="homogeneous|reached"):
            find_state(lobes(-0.01), exact.cosine(32, 4, 0.02))

    def test_a_cycle_that_is_none(self):
        block = lobes(0.01)
        with pytest.raises(ArgumentError, match="steady state"):
            find_state(block, standing_wave(block, 4).field(), "alternating")

    def test_nothing_travels_without_translations(self):
        block = Block([Head(Kernel.uniform(4), 0.5, bias=np.diag([1.0, 2, 3, 4]))])
        with pytest.raises(ArgumentError) as refused:
            find_state(block, np.array([0.1, 0.2, 0.3, 0.2]), "travelling")
        assert refused.value.argument == "kind"


def test_it_is_immutable():
    state = find_state(lobes(0.01), standing_wave(lobes(0.01), 4).field())
    assert isinstance(state, ExactState)
    with pytest.raises(ValueError, match="read-only"):
        state.field[0] = 1.0
    with pytest.raises(AttributeError):
        state.kind = "travelling"
