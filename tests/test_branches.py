"""Branches over q: closed forms, crossings, velocities by differences and by the drift of a packet, conditioning."""

import numpy as np
import pytest

from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, Rotary, dispersion_relation
from dispersion.ring.bands import Branches, branches, derivative
from dispersion.ring.tracking import degenerate_groups

STEP = 1e-20


def linear_block(kernels, values, slope=None):
    """C = `slope` (the identity by default), one head for each kernel and value."""
    heads = [Head(kernel, value) for kernel, value in zip(kernels, values, strict=True)]
    if slope is None:
        return Block(heads)
    d = len(slope)
    return Block(heads, FeedForward(np.eye(d), np.asarray(slope) - np.eye(d), Activation.polynomial([1.0])))


def short_kernel(n, *weights):
    """Weights at lags 0, 1, 2 …; none elsewhere."""
    logits = np.full(n, -np.inf)
    logits[: len(weights)] = np.log(weights)
    return Kernel(logits, causal=True)


NEAR, FAR = short_kernel(16, 0.5, 0.5), short_kernel(16, 0.5, 0.2, 0.3)


class TestGroups:
    def test_grouping(self):
        values = [1.0, 2.0, 1.0 + 1e-9, 2.0j, 2.0 - 1e-9j, 1.0]
        groups = [group.tolist() for group in degenerate_groups(values)]
        assert groups == [[0, 2, 5], [1, 4], [3]]

    def test_a_chain_is_one_group(self):
        assert [len(group) for group in degenerate_groups([1.0, 1.2, 1.4, 1.6], tolerance=0.2)] == [4]
        assert [len(group) for group in degenerate_groups([1.6, 1.0, 1.4, 1.2], tolerance=0.126)] == [4]
        assert [len(group) for group in degenerate_groups([1.6, 1.0, 1.4, 1.2], tolerance=0.124)] == [1] * 4

    @pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
    def test_the_tolerance_is_relative(self, scale):
        values = scale * np.array([1.0, 1.0 + 1e-4, 0.5])
        assert len(degenerate_groups(values, tolerance=2e-4)) == 2
        assert len(degenerate_groups(values, tolerance=0.5e-4)) == 3

    def test_zeros_and_refusals(self):
        assert [group.tolist() for group in degenerate_groups([0.0, 0.0])] == [[0, 1]]
        for values in ([[1.0]], [np.nan]):
            with pytest.raises(ArgumentError, match="^multipliers: got"):
                degenerate_groups(values)


class TestDerivative:
    @pytest.mark.parametrize("seed", range(4))
    def test_ring_by_differences(self, random_block, seed):
        block = random_block(seed, n=7 + seed, d=3)
        relation = dispersion_relation(block, np.random.default_rng(seed).normal(size=3))
        q, step = np.array([-1.3, 0.0, 0.4, np.pi]), 1e-6
        differences = (relation(q + step) - relation(q - step)) / (2 * step)
        np.testing.assert_allclose(derivative(relation, q), differences, atol=1e-8)
        assert derivative(relation, q[:, None]).shape == (4, 1, 3, 3)

    def test_torus_by_differences(self):
        rng = np.random.default_rng(1)
        block = linear_block([Kernel.table(rng.normal(size=(4, 5))) for _ in range(2)], rng.normal(size=(2, 2, 2)))
        relation, q, step = dispersion_relation(block), rng.normal(size=(3, 2)), 1e-6
        for axis, unit in enumerate(np.eye(2)):
            differences = (relation(q + step * unit) - relation(q - step * unit)) / (2 * step)
            np.testing.assert_allclose(derivative(relation, q, axis), differences, atol=1e-8)

    def test_rotary_heads_at_a_state(self):
        rng = np.random.default_rng(2)
        rotary = Rotary(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), 2 * np.pi * np.array([1, 2]) / 8)
        block = Block([Head(Kernel.table(rng.normal(size=8)), rng.normal(size=(2, 2)), rotary=rotary)])
        relation, step = dispersion_relation(block, [0.5, -0.8]), 1e-6
        differences = (relation(0.7 + step) - relation(0.7 - step)) / (2 * step)
        np.testing.assert_allclose(derivative(relation, 0.7), differences, atol=1e-8)

    def test_refusals(self, random_block):
        with pytest.raises(ArgumentError, match="^axis: got 1"):
            derivative(dispersion_relation(random_block(0)), 0.3, axis=1)
        with pytest.raises(ArgumentError, match="^relation: got Block"):
            derivative(random_block(0), 0.3)


class TestTracking:
    @pytest.mark.parametrize("seed", range(6))
    def test_eigen_equations_and_normalisation(self, random_block, seed):
        block = random_block(seed, n=8, d=4)
        relation = dispersion_relation(block)
        found = branches(relation)
        assert found.multipliers.shape == (65, 4)
        for at, values, right, left in zip(found.q, found.multipliers, found.right, found.left, strict=True):
            matrix = relation(at)
            np.testing.assert_allclose(matrix @ right, right * values, atol=1e-11)
            np.testing.assert_allclose(np.linalg.norm(right, axis=0), 1, rtol=1e-12)
            if not np.isnan(left).any():
                np.testing.assert_allclose(left.conj().T @ matrix, values[:, None] * left.conj().T, atol=1e-8)
                np.testing.assert_allclose(left.conj().T @ right, np.eye(4), atol=1e-9)

    @pytest.mark.parametrize("steps", [8, 9, 64])
    def test_a_true_crossing_is_passed_straight(self, steps):
        """Two features that do not talk, Λ = 1 + η_a λ_a(q); a shear hides which is which."""
        shear = np.array([[1.0, 0.7], [0.2, 1.0]])
        values = [shear @ np.diag(v) @ np.linalg.inv(shear) for v in ([0.8, 0.0], [0.0, 0.5])]
        symmetric = [Kernel.table(np.log([0.2, 0.4, 1e-9, 1e-9, 1e-9, 0.4])), Kernel.uniform(6)]
        far = Kernel.table(np.log([0.6, 1e-9, 0.2, 1e-9, 0.2, 1e-9]))
        relation = dispersion_relation(linear_block([symmetric[0], far], values))
        q = np.linspace(0, np.pi, steps + 1)
        found = branches(relation, q)
        expected = np.stack([1 + 0.8 * symmetric[0](q), 1 + 0.5 * far(q)], axis=-1)
        swap = np.abs(found.multipliers[0, 0] - expected[0, 0]) > 1e-9
        np.testing.assert_allclose(found.multipliers, expected[:, ::-1] if swap else expected, atol=1e-12)
        gap = (expected[:, 0] - expected[:, 1]).real
        assert gap[0] > 0 > gap[-1]  # they do cross
        assert found.overlaps.min() > 0.999

    def test_a_crossing_on_the_path_itself(self):
        """λ_near(q) and λ_far(q) meet at cos q = cos 2q, q = 2π/3, a point of the path: a degenerate group."""
        near, far = (Kernel.table(logits) for logits in (_pair(12, 1), _pair(12, 2)))
        shear = np.array([[1.0, 0.9], [0.3, 1.0]])
        values = [shear @ np.diag(v) @ np.linalg.inv(shear) for v in ([0.5, 0.0], [0.0, 0.5])]
        relation = dispersion_relation(linear_block([near, far], values))
        q = np.linspace(np.pi / 3, np.pi, 9)
        middle = 4
        assert q[middle] == pytest.approx(2 * np.pi / 3)
        found = branches(relation, q)
        slopes = np.stack([-0.5 * 0.8 * np.sin(q), -1.0 * 0.8 * np.sin(2 * q)], axis=-1)  # λ = .2 + .8 cos(mq)
        expected = np.stack([1.1 + 0.4 * np.cos(q), 1.1 + 0.4 * np.cos(2 * q)], axis=-1)
        order = np.argsort(-expected[-1])  # by size where they are furthest apart
        np.testing.assert_allclose(found.multipliers, expected[:, order], atol=1e-9)
        assert abs(np.diff(expected[middle])[0]) < 1e-12
        np.testing.assert_allclose(found.slopes[..., 0], slopes[:, order], atol=1e-7)
        first = found.right[0]
        np.testing.assert_allclose(
            np.abs(first.conj().T @ found.right[middle]), np.abs(first.conj().T @ first), atol=1e-6
        )

    @pytest.mark.parametrize("coupling", [1e-2, 1e-3])
    def test_an_avoided_crossing_is_turned_away_from(self, coupling):
        """Symmetric J: 1.1 + .4 diag(cos q, cos 2q) and a constant coupling: the order by size is kept."""
        near, far = (Kernel.table(logits) for logits in (_pair(12, 1), _pair(12, 2)))
        values = [np.diag([0.5, 0.0]), np.diag([0.0, 0.5])]
        mixing = np.array([[0.0, coupling], [coupling, 0.0]])
        block = linear_block([near, far, short_kernel(12, 1.0)], [*values, mixing])
        q = np.linspace(np.pi / 3, np.pi - 0.1, 12)
        found = branches(dispersion_relation(block), q)
        a, b = 1.1 + 0.4 * np.cos(q), 1.1 + 0.4 * np.cos(2 * q)
        split = np.hypot((a - b) / 2, coupling)
        upper, lower = (a + b) / 2 + split, (a + b) / 2 - split
        np.testing.assert_allclose(found.multipliers, np.stack([upper, lower], axis=-1), atol=1e-12)
        assert (np.sign(a - b)[0], np.sign(a - b)[-1]) == (1, -1)
        turned = np.abs(found.right[0, :, 0].conj() @ found.right[-1, :, 0])
        assert turned < 0.1  # its vector went from one feature to the other
        assert found.overlaps.min() >= 0.5

    def test_branches_of_a_directional_kernel_wind(self):
        """Λ = 1 + ηe^{−iq}: two branches with η = ±.5 that are each other's continuation only by vectors."""
        shear = np.array([[1.0, 0.5], [0.0, 1.0]])
        value = shear @ np.diag([0.5, -0.5]) @ np.linalg.inv(shear)
        kernel = short_kernel(8, 1e-300, 1.0)
        found = branches(dispersion_relation(linear_block([kernel], [value])), np.linspace(0, 2 * np.pi, 13))
        for sign, values in zip((1, -1), found.multipliers.T, strict=True):
            np.testing.assert_allclose(values, 1 + sign * 0.5 * np.exp(-1j * found.q), atol=1e-12)

    @staticmethod
    def turning(shift=0):
        """J = 1.2 + .5e^{−iq·shift}(cos q σ_z + sin q σ_y): Λ = 1.2 ± .5e^{−iq·shift}, on vectors that turn with q."""
        sigma_z, twist = np.diag([0.5, -0.5]), np.array([[0.0, 0.5], [-0.5, 0.0]])  # −i sin q · twist = sin q · σ_y/2
        logits = np.full(8, -np.inf)
        logits[0] = 0.0
        forwards, backwards = (Kernel(np.roll(logits, shift + lag)) for lag in (1, -1))
        values = [(sigma_z + twist) / 2, (sigma_z - twist) / 2]
        heads = [*zip((forwards, backwards), values, strict=True), (short_kernel(8, 1.0), 0.2 * np.eye(2))]
        return dispersion_relation(linear_block(*zip(*heads, strict=True)))

    @pytest.mark.parametrize("end", [2.6, 3.0])
    def test_vectors_that_turn_far_in_one_step_are_followed_between(self, end):
        relation = self.turning()
        vector = np.linalg.eigh(relation(0.0))[1][:, 1], np.linalg.eigh(relation(end))[1][:, 1]
        assert abs(np.vdot(*vector)) < 0.3  # it overlaps more with the other branch
        found = branches(relation, [0.0, end])
        np.testing.assert_allclose(found.multipliers, [[1.7, 0.7]] * 2, atol=1e-12)

    def test_a_weak_overlap_is_enough_to_look_between(self):
        """The wrong match, 0.56 against 0.44, would not bring the multipliers near each other."""
        found = branches(self.turning(shift=1), [0.0, 1.7])
        wave = 0.5 * np.exp(-1j * found.q)
        np.testing.assert_allclose(found.multipliers, np.stack([1.2 + wave, 1.2 - wave], axis=-1), atol=1e-12)

    def test_parallel_transport_around_the_ring(self):
        """Half a sphere is enclosed: each vector comes back with the Berry phase π."""
        found = branches(self.turning(), np.linspace(0, 2 * np.pi, 200))
        np.testing.assert_allclose(found.right[-1], -found.right[0], atol=1e-12)
        steps = np.einsum("qab,qab->qb", found.left[:-1].conj(), found.right[1:])
        np.testing.assert_allclose(np.angle(steps), 0, atol=1e-12)

    def test_degenerate_everywhere(self):
        """M = ηI: one group at every q; the vectors stay."""
        found = branches(dispersion_relation(linear_block([NEAR], [0.5 * np.eye(3)])), np.linspace(0, 3, 7))
        np.testing.assert_allclose(found.multipliers, np.tile(1 + 0.5 * NEAR(found.q), (3, 1)).T, atol=1e-13)
        np.testing.assert_allclose(found.right, np.broadcast_to(found.right[0], (7, 3, 3)), atol=1e-12)
        np.testing.assert_allclose(found.condition, 1, rtol=1e-12)

    def test_an_exceptional_point_is_owned_up_to(self):
        """J = [[1, 1], [s(q), 1]], s through zero: Λ = 1 ± √s, two real ones become a complex pair."""
        kernel = Kernel.table(_pair(12, 1))
        shift = np.array([[0.0, 0.0], [-0.2, 0.0]])
        values = [np.array([[0.0, 0.0], [1.0, 0.0]]), shift]
        block = linear_block([kernel, short_kernel(12, 1.0)], values, slope=np.eye(2))
        shear = linear_block([kernel, short_kernel(12, 1.0)], [values[0], shift + np.array([[0.0, 1.0], [0.0, 0.0]])])
        assert branches(dispersion_relation(block), [0.3, 1.0]).overlaps.shape == (1, 2)
        found = branches(dispersion_relation(shear), np.array([1.0, 1.5, np.pi / 2, 1.7, 2.2]))
        s = 0.8 * np.cos(found.q)
        np.testing.assert_allclose(np.sort_complex((found.multipliers - 1) ** 2), np.stack([s, s], -1), atol=1e-7)
        exceptional = np.abs(s) < 1e-12
        assert exceptional.sum() == 1
        assert np.isinf(found.condition[exceptional]).all()
        assert np.isnan(found.left[exceptional]).all()
        assert np.isfinite(found.condition[~exceptional]).all()
        assert found.overlaps.min() < 0.501

    def test_a_path_on_a_torus(self):
        rng = np.random.default_rng(3)
        kernels = [Kernel.table(rng.normal(size=(4, 6))) for _ in range(2)]
        relation = dispersion_relation(linear_block(kernels, 0.5 * rng.normal(size=(2, 3, 3))))
        path = np.linspace([0.2, 0.1], [2.0, -1.0], 15)
        found = branches(relation, path)
        assert found.group_velocity.shape == found.phase_velocity.shape == found.rate_slope.shape == (15, 3, 2)
        for at, values in zip(path, found.multipliers, strict=True):
            np.testing.assert_allclose(
                np.sort_complex(np.linalg.eigvals(relation(at))), np.sort_complex(values), atol=1e-12
            )
        q2 = (path**2).sum(axis=-1)
        np.testing.assert_allclose((found.phase_velocity * path[:, None]).sum(axis=-1), -found.phases, atol=1e-12)
        np.testing.assert_allclose(
            np.linalg.norm(found.phase_velocity, axis=-1) * np.sqrt(q2)[:, None], np.abs(found.phases)
        )
        # along the path the change of log Λ is the slope times the step
        fine = branches(relation, np.linspace(path[7], path[7] + 1e-5 * np.array([1.0, -2.0]), 2))
        change = np.diff(np.log(fine.multipliers), axis=0)[0]
        slope = (fine.rate_slope - 1j * fine.group_velocity)[0] @ np.array([1e-5, -2e-5])
        np.testing.assert_allclose(change, slope, rtol=1e-3, atol=1e-9)
        assert found.plot().get_xlabel() == "path length in $q$"

    def test_refusals(self, random_block):
        relation = dispersion_relation(random_block(0))
        for q in ([], [[0.1, 0.2]], [np.nan], 0.3):
            with pytest.raises(ArgumentError, match="^q: got"):
                branches(relation, q)
        with pytest.raises(ArgumentError, match="^relation: got Block"):
            branches(random_block(0))
        with pytest.raises(ArgumentError, match="^quantity: got 'x'"):
            branches(relation).plot(quantity="x")
        torus = dispersion_relation(linear_block([Kernel.uniform((3, 4))], [0.1]))
        with pytest.raises(ArgumentError, match="^q: got"):
            branches(torus)


def _pair(n, m):
    """Logits of the weights .2 at lag 0 and .4 at ±m: λ = .2 + .8 cos(mq)."""
    logits = np.full(n, -np.inf)
    logits[[0, m, -m]] = np.log([0.2, 0.4, 0.4])
    return logits


class TestVelocity:
    @pytest.mark.parametrize("seed", range(4))
    def test_group_velocity_by_differences_of_the_phase(self, random_block, seed):
        relation, step = dispersion_relation(random_block(seed, n=9, d=3)), 1e-5
        for q in (0.6, 1.9):
            found = branches(relation, [q - step, q, q + step])
            logs = np.log(found.multipliers[2] / found.multipliers[0]) / (2 * step)
            np.testing.assert_allclose(found.group_velocity[1], -logs.imag, atol=1e-6)
            np.testing.assert_allclose(found.rate_slope[1], logs.real, atol=1e-6)
            assert np.abs(found.group_velocity[1]).max() > 0.01

    def test_phase_velocity(self):
        found = branches(dispersion_relation(linear_block([NEAR], [0.5])), np.array([0.0, 0.5, -0.5, 1.5]))
        omega = np.angle(1 + 0.5 * NEAR(found.q))
        np.testing.assert_allclose(found.phase_velocity[1:, 0], -omega[1:] / found.q[1:], rtol=1e-12)
        assert np.isnan(found.phase_velocity[0]).all()
        assert (found.phase_velocity[1:] > 0).all()  # it looks back, to i − 1: patterns move on

    @pytest.mark.parametrize("k", [24, 60, 96])
    @pytest.mark.parametrize("mirror", [False, True])
    def test_a_packet_drifts_at_the_group_velocity(self, k, mirror):
        """The centre of |envelope|² under the linearised map; a mirrored kernel sends it the other way."""
        n, layers = 512, 10
        logits = np.full(n, -np.inf)
        logits[[0, 1, 3]] = np.log([0.3, 0.3, 0.4])
        kernel = Kernel(logits[-np.arange(n) % n] if mirror else logits)
        block = Block([Head(kernel, -0.5)], FeedForward.scalar("tanh", -0.1))
        token, q = np.arange(n), 2 * np.pi * k / n
        slope = branches(dispersion_relation(block), [q]).rate_slope[0, 0]
        # the packet's spectrum, of variance 1/(2·50²) about q, has moved up the growth by then
        found = branches(dispersion_relation(block), [q + layers * slope / 50**2])
        packet = np.exp(-(((token - n / 2) / 50) ** 2) / 2 + 1j * q * token)

        def push(u):
            real, imaginary = (block.forward(1j * STEP * part).imag / STEP for part in (u.real, u.imag))
            return real + 1j * imaginary

        def centre(u):
            return (token * np.abs(u) ** 2).sum() / (np.abs(u) ** 2).sum()

        start, u = centre(packet), packet
        for _ in range(layers):
            u = push(u)
        velocity = (centre(u) - start) / layers
        predicted = found.group_velocity[0, 0]
        assert velocity == pytest.approx(predicted, rel=0.01)
        assert abs(predicted - found.phase_velocity[0, 0]) > 0.02  # it is not the phase velocity
        assert np.sign(predicted) == np.sign(velocity)

    def test_alternating_branches_have_phase_pi(self):
        """Symmetric kernels and Λ < 0: rounding must not send ω to −π."""
        rng = np.random.default_rng(8)
        kernels = [Kernel.table(_pair(12, 1)), Kernel.table(_pair(12, 2))]
        found = branches(dispersion_relation(linear_block(kernels, rng.normal(size=(2, 2, 2)) / 9, -np.eye(2))))
        assert (found.multipliers.real < 0).all()
        np.testing.assert_array_equal(found.phases[found.multipliers.imag == 0], np.pi)
        assert (found.multipliers.imag == 0).mean() > 0.5

    def test_nan_where_the_multiplier_vanishes(self):
        found = branches(dispersion_relation(linear_block([NEAR], [0.0], slope=[[0.0]])), [0.4])
        assert np.isnan(found.group_velocity).all()
        assert (found.rate == -np.inf).all()


class TestCondition:
    @pytest.mark.parametrize("seed", range(3))
    def test_the_worst_perturbation_moves_a_multiplier_by_the_condition_number(self, random_block, seed):
        """δΛ = wᴴEv/wᴴv, at its largest for E = wvᴴ/|w||v|."""
        relation, size = dispersion_relation(random_block(seed, d=3)), 1e-7
        found = branches(relation, [0.9])
        matrix = relation(0.9)
        for b in range(3):
            w, v = found.left[0, :, b], found.right[0, :, b]
            worst = np.outer(w, v.conj()) / np.linalg.norm(w)
            moved = np.linalg.eigvals(matrix + size * worst)
            shift = np.abs(moved - found.multipliers[0, b]).min() / size
            assert shift == pytest.approx(found.condition[0, b], rel=1e-3)
            rng = np.random.default_rng(b)
            for _ in range(20):
                other = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))
                other /= np.linalg.norm(other, 2)
                shift = np.abs(np.linalg.eigvals(matrix + size * other) - found.multipliers[0, b]).min() / size
                assert shift <= found.condition[0, b] * (1 + 1e-3)
        assert found.condition.max() > 1.05

    def test_agrees_with_mode(self, random_block):
        relation = dispersion_relation(random_block(5, n=9, d=3))
        found = branches(relation, relation.wavenumbers[:5])
        for k in range(5):
            modes = [relation.mode(k, index) for index in range(3)]
            by_size = np.argsort(-np.abs(found.multipliers[k]), kind="stable")
            expected = sorted(mode.condition for mode in modes)
            np.testing.assert_allclose(np.sort(found.condition[k]), expected, rtol=1e-8)
            assert abs(found.multipliers[k, by_size[0]]) == pytest.approx(abs(modes[0].multiplier), rel=1e-12)


@pytest.mark.parametrize("quantity", ["growth", "phase"])
def test_plot(random_block, quantity):
    import matplotlib.pyplot as plt

    found = branches(dispersion_relation(random_block(0, d=3)))
    assert isinstance(found, Branches)
    figure, ax = plt.subplots()
    assert found.plot(ax, quantity) is ax
    expected = np.abs(found.multipliers) if quantity == "growth" else found.phases
    drawn = [line.get_ydata() for line in ax.lines[1:]]
    np.testing.assert_array_equal(np.transpose(drawn), expected)
    plt.close(figure)
