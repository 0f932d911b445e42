"""Exact states exist, and no family of them is missed: short rings, odd and even numbers of tokens a period."""

from dataclasses import replace

import exact
import numpy as np
import pytest

from amplitude import (
    ExactState,
    balloon,
    find_oscillation,
    find_state,
    period_four,
    stable_wavenumbers,
    standing_start,
)
from amplitude.exact.balloon import patterns
from amplitude.exact.symmetry import shift_matrix
from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation
from simulate import iterate

BREATHING = [
    ([-2.92, 1.7, 3.7, -1.92], -0.244, (-0.1, 0.0, -0.2)),
    ([-1.38, -2.89, 1.51, -0.79, 0.94], -0.595, (-0.1, 0.2, -0.2)),
    ([0.76, -1.23, 1.56, 0.36], -0.757, (-0.1, 0.0, -0.2)),
    ([-0.14, 2.05, 2.63, -0.32], -0.538, (-0.1, 0.0, -0.2)),
]
"""Logits, η and φ of short directional rings whose R never settles."""


def ring(n, logits, k, multiplier, a1=0.9, a2=0.1, a3=-0.3):
    """A scalar block with Λ_k = `multiplier`; logits: {r: b_{±r}}, others 0."""
    table = np.zeros(n)
    for lag, value in logits.items():
        table[[lag, -lag]] = value
    kernel = Kernel.table(table)
    phi = FeedForward.scalar(Activation.polynomial([a1 - 1, a2, a3]))
    return Block([Head(kernel, (multiplier / a1 - 1) / kernel.symbol[k].real, 1.5)], phi)


def directional(logits, eta, *phi):
    """A scalar block with logits b_r and the polynomial φ."""
    return Block([Head(Kernel.table(logits), eta, 1.5)], FeedForward.scalar(Activation.polynomial(phi)))


def confirmed(state):
    """Whether `state` is what its kind says under the true map, and its multipliers those of the true derivative."""
    block, x = state.block, state.field
    image = block.forward(x)
    derivative = exact.jacobian(block, x)
    if state.kind == "alternating":
        derivative, image = exact.jacobian(block, image) @ derivative, block.forward(image)
    largest = np.abs(exact.multipliers(derivative)[0])
    return np.abs(image - x).max() <= 1e-12 and largest == pytest.approx(np.abs(state.multipliers[0]), abs=1e-9)


class TestWhatTheTokensHold:
    """Interpolated shifts are no symmetry of a short ring: its waves come to rest, alternate or breathe."""

    @pytest.mark.parametrize("psi", [0.03, 0.1, 0.3, 0.6])
    def test_a_quarter_wave_off_phase_stands(self, psi):
        block = ring(8, {2: 2.0}, 2, 1.01)
        start = exact.cosine(8, 2, period_four(block).amplitude_at(np.pi / 4), psi)
        state = find_state(block, start)
        assert state.kind == "steady"
        assert confirmed(state)
        assert state.stable == (state.amplitude == pytest.approx(0.09832, abs=1e-5))
        assert find_state(block, iterate(block, 50_000, start).state).stable
        with pytest.raises(ArgumentError, match="travel"):
            find_state(block, start, "travelling")

    @pytest.mark.parametrize(("psi", "R"), [(0.02, 0.0239324), (0.1, 0.0239324), (0.4, 0.0238976), (0.5, 0.0238976)])
    def test_a_third_wave_that_flips_alternates(self, psi, R):
        block = ring(6, {1: 2.0, 2: 1.4}, 2, -1.001, -0.9, a3=0.3)
        state = find_state(block, exact.cosine(6, 2, 0.024, psi))
        assert state.kind == "alternating"
        assert confirmed(state)
        assert state.amplitude == pytest.approx(R, abs=1e-7)
        assert state.stable == (R < 0.0239)
        late = iterate(block, 20_000, exact.cosine(6, 2, 0.024, psi)).state
        assert find_state(block, late).amplitude == pytest.approx(R, abs=1e-7)

    @pytest.mark.parametrize(("logits", "eta", "phi"), BREATHING)
    def test_a_wave_that_breathes_is_no_state(self, logits, eta, phi):
        block = directional(logits, eta, *phi)
        path = iterate(block, 3000, 0.01, every=1)
        R = np.abs(np.fft.fft(path.states[-600:, :, 0], axis=1)[:, 1]) / block.n
        assert path.status == "unsettled"
        assert np.ptp(R) > 0.1 * R.max()
        for kind in (None, "travelling"):
            with pytest.raises(ArgumentError, match="breathes"):
                find_state(block, path.state, kind)

    def test_a_cycle_whose_largest_mode_does_not_turn(self):
        """The mean alternates, and the wave on it only shrinks and grows: two layers bring the state back."""
        kernel = Kernel.gaussian_lobes(39, 4.1, 0.7, 3.0)
        block = Block([Head(kernel, -1.37, 0.0158)], FeedForward.scalar("tanh", -0.356))
        x = iterate(block, 20_000, 0.02, rng=7).state
        assert np.abs(block.forward(block.forward(x)) - x).max() < 1e-6 < np.abs(block.forward(x) - x).max()
        state = find_state(block, x)
        assert state.kind == "alternating"
        assert confirmed(state)
        assert state.stable
        assert np.abs(state.field - x).max() < 1e-5

    @pytest.mark.parametrize(("n", "k"), [(7, 3), (9, 4), (9, 2), (10, 3), (11, 5)])
    def test_the_lattice_defect_is_the_largest_anywhere(self, n, k):
        logits = np.random.default_rng(n).normal(size=n)
        block = directional(logits, -1.3, -0.1, 0.2, -0.2)
        wave = exact.cosine(n, k, 0.1) + 0.02 * np.cos(2 * np.pi * 2 * k * np.arange(n) / n + 1)
        state = ExactState(block, "travelling", wave[:, None], np.array([0.05]), 0.0)
        worst = 0.0
        for place in np.linspace(0, 1, 120, endpoint=False):
            moved = shift_matrix((n,), k, np.array([place])) @ state.field
            ahead = shift_matrix((n,), k, np.array([place + 0.05])) @ state.field
            worst = max(worst, np.abs(block.forward(moved) - ahead).max())
        assert worst / 2 <= state.lattice_defect <= worst

    @pytest.mark.parametrize("n", [12, 32])
    def test_a_wave_of_many_tokens_travels(self, n):
        block = directional(Kernel.skewed_lobe(n, 4, 0.7, 2.0, 1.0).logits, -1.2, -0.1, 0.0, 1 / 30)
        path = iterate(block, 20_000, 0.05)
        state = find_state(block, path.state)
        assert state.kind == "travelling"
        assert state.stable
        assert not state.breathes
        assert state.amplitude == pytest.approx(path.amplitude, rel=1e-3)
        assert state.phase_advance_at(path.wavenumber) == pytest.approx(path.phase_advance, rel=1e-2)


RINGS = [(3, 1), (4, 1), (5, 1), (5, 2), (6, 1), (6, 2), (6, 3), (7, 2), (9, 3), (9, 4), (10, 2), (10, 4), (15, 3)]
FAST = [(3, 1, 1, 0.0), (10, 4, 1, 0.1), (5, 2, 1, 0.0), (8, 2, 1, 0.0)]
FAMILIES = [
    *FAST,
    *(
        pytest.param(n, k, sign, a2, marks=pytest.mark.slow)
        for n, k in RINGS
        for sign in (1, -1)
        for a2 in (0.0, 0.1)
        if (n, k, sign, a2) not in FAST
    ),
]


class TestFamilies:
    """Every phase at which a wave can be at rest is followed, on rings of every length."""

    @pytest.mark.parametrize(("n", "k", "sign", "a2"), FAMILIES)
    def test_one_of_them_is_what_iteration_comes_to(self, n, k, sign, a2):
        logits = {r: -2 * np.cos(2 * np.pi * k * r / n) for r in range(1, n // 2 + 1)}
        block = ring(n, logits, k, 1.03 * sign, 0.9 * sign, a2, -0.3 * sign)
        states = patterns(block, k)
        period = n // np.gcd(k, n)
        assert len(states) == (1 if period == 2 else 3 if period % 2 and (sign < 0 or not a2) else 2)
        assert all(state is not None and confirmed(state) for state in states)
        again = [find_state(block, state.field) for state in states]
        assert [state.kind for state in again] == [state.kind for state in states]
        held = [state.amplitude_at(k) for state in states if state.stable]
        assert 1 <= len(held) < max(len(states), 2)
        if period % 2 and not a2:  # x ↦ −x
            assert states[0].amplitude_at(k) == pytest.approx(states[1].amplitude_at(k), rel=1e-12)
            assert states[0].stable == states[1].stable != states[2].stable
        path = iterate(block, 10_000, 0.01, rng=1)
        spread = np.ptp([state.amplitude_at(k) for state in states])
        assert path.wavenumber == k
        assert np.abs(np.array(held) - path.amplitude).min() <= (1e-8 if path.status == "settled" else spread + 1e-12)
        assert stable_wavenumbers(block) == (k,)

    def test_the_third_family_of_three_tokens(self):
        block = Block([Head(Kernel.gaussian_lobes(9, 1.5, 1.0, 3.0), -0.6, 1.5)], FeedForward.scalar("tanh", -0.1))
        assert stable_wavenumbers(block) == balloon(block).stable_wavenumbers(0) == (3,)
        path = iterate(block, 20_000, 0.1)
        assert path.wavenumber == 3
        found = balloon(block, [3])
        assert found.amplitude[0, 0, 2] == pytest.approx(path.amplitude, rel=1e-10)
        assert found.amplitude[0, 0, 0] == pytest.approx(found.amplitude[0, 0, 1], rel=1e-12)
        assert not found.unresolved.any()

    def test_another_branch_of_the_same_wavenumber(self):
        """Two modes grow, and 1 ≡ 3·3 (mod 8): the waves from the onset of 3 give way to one that holds more of 1."""
        logits = [0.83, -1.89, 0.26, -0.84, 3.58, -0.84, 0.26, -1.89]
        block = directional(logits, -1.0, -0.271, 0.0, 0.111)
        block = replace(block, heads=[Head(block.heads[0].kernel, block.heads[0].value, [[1.37]])])
        found = balloon(block, [3])
        assert found.unresolved.tolist() == [[True]]
        assert found.stable_wavenumbers(0) == ()
        assert stable_wavenumbers(block, [3]) == (3,)
        path = iterate(block, 20_000, exact.cosine(8, 3, 0.1) + 1e-3 * np.sin(np.arange(8) ** 2))
        assert (path.status, path.wavenumber) == ("settled", 3)
        assert path.amplitude > 1.2 * found.amplitude[0, 0, :2].max()
        assert find_state(block, path.state).stable

    def test_alone_and_in_batches_they_are_the_same(self):
        kernel = Kernel.gaussian_lobes(9, 1.5, 1.0, 3.0)
        blocks = [Block([Head(kernel, eta, 1.5)], FeedForward.scalar("tanh", -0.1)) for eta in (-0.55, -0.6)]
        found = balloon(blocks, [3])
        for place, block in enumerate(blocks):
            states = patterns(block, 3)
            np.testing.assert_allclose(found.amplitude[place, 0], [s.amplitude_at(3) for s in states], rtol=1e-11)
            np.testing.assert_allclose(found.growth[place, 0], [abs(s.multipliers[0]) for s in states], atol=1e-9)


def test_a_circle_of_too_few_samples_is_none():
    turn = np.array([[-0.140, -0.389], [0.471, -0.116]])
    heads = [Head(Kernel.gaussian_lobes(39, 4.96, 0.91, 3.92), turn, [[-0.852, -1.11], [-1.948, 1.734]])]
    block = Block(heads, FeedForward(np.eye(2), -0.1115 * np.eye(2), "tanh"))
    mode = dispersion_relation(block).leading()
    with pytest.raises(ArgumentError, match="more fields"):
        find_oscillation(block, standing_start(mode, 0.2, samples=5), mode.phase)
    circle = find_oscillation(block, standing_start(mode, 0.2, samples=17), mode.phase)
    assert circle.defect < 1e-3
