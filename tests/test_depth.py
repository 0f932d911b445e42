"""Products through depth against the complex-step Jacobian of the composed forward maps."""

import numpy as np
import pytest

from dispersion import (
    Activation,
    ArgumentError,
    Block,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    RMSNorm,
    dispersion_relation,
    fixed_points,
)
from dispersion.grid import positions
from dispersion.ring.depth import Propagator, along_orbit, asymptotic_rate, orbit, through_layers

STEP = 1e-20


def random_layer(seed, shape=(8,), d=2, heads=2, norm=None, placement="pre"):
    """Directional kernels, dense weights, ε_a ≠ 1, and `norm` twice."""
    rng = np.random.default_rng(seed)
    attention = [
        Head(Kernel.table(rng.normal(size=shape)), rng.normal(size=(d, d)) / np.sqrt(d), rng.normal(size=(d, d)))
        for _ in range(heads)
    ]
    feedforward = FeedForward(
        rng.normal(size=(d + 2, d)),
        0.4 * rng.normal(size=(d, d + 2)),
        "tanh",
        rng.normal(size=d + 2),
        rng.normal(size=d),
    )
    norms = [None if norm is None else norm(rng.uniform(0.5, 1.5, d), rng.normal(size=d)) for _ in range(2)]
    return Block(attention, feedforward, rng.uniform(0.3, 1.2), *norms, placement)


def composed_jacobian(blocks, a):
    """(N·d, N·d) derivative at 1⊗a of the forward maps one after the other, and (N, N, d, d) between wavenumbers."""
    n, d = blocks[0].n, blocks[0].d
    x = np.tile(a, (n, 1)) + 1j * STEP * np.eye(n * d).reshape(n * d, n, d)
    for block in blocks:
        x = block.forward(x)
    jacobian = (x.imag / STEP).reshape(n * d, n * d).T
    shape = blocks[0].shape
    token = positions(shape)
    waves = np.exp(2j * np.pi * token @ (token / np.array(shape)).T)  # e_q by row
    between = np.einsum("ki,iajb,lj->klab", waves.conj(), jacobian.reshape(n, d, n, d), waves) / n
    return jacobian, between


def check_every_wavenumber(blocks, propagator, a):
    _, between = composed_jacobian(blocks, a)
    n, d = blocks[0].n, blocks[0].d
    scale = np.abs(between).max()
    for k, matrix in enumerate(propagator.matrices.reshape(n, d, d)):
        np.testing.assert_allclose(between[k, k], matrix, rtol=0, atol=1e-12 * scale)
        between[k, k] = 0
    assert np.abs(between).max() < 1e-12 * scale  # wavenumbers do not mix
    return scale


@pytest.mark.parametrize("shape", [(7,), (8,), (3, 4)])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_along_an_orbit(shape, d):
    block, a = random_layer([d, *shape], shape, d), np.linspace(-0.4, 0.7, d)
    propagator = along_orbit(block, a, 4)
    check_every_wavenumber([block] * 4, propagator, a)
    assert propagator.matrices.shape == (*shape, d, d)
    assert not np.allclose(propagator.matrices, np.linalg.matrix_power(propagator.relations[0].matrices, 4), rtol=1e-3)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_along_an_orbit_with_normalisations(norm, placement):
    block, a = random_layer(3, (6,), 5, norm=norm, placement=placement), np.array([0.4, -1.0, 0.3, 0.2, 0.9])
    check_every_wavenumber([block] * 5, along_orbit(block, a, 5), a)


@pytest.mark.parametrize(("shape", "d"), [((6,), 2), ((6,), 5), ((3, 4), 2)])
def test_layers_of_different_weights_in_order(shape, d):
    blocks, a = [random_layer(seed, shape, d, heads=1 + seed % 2) for seed in range(4)], np.linspace(0.5, -0.2, d)
    propagator = through_layers(blocks, a)
    scale = check_every_wavenumber(blocks, propagator, a)
    backwards = Propagator(propagator.relations[::-1])  # the same matrices, the first layer on the left
    assert np.abs(backwards.matrices - propagator.matrices).max() > 0.05 * scale


def test_the_orbit_follows_the_forward_map():
    block, a = random_layer(5, (6,), 3), np.array([0.1, 0.5, -0.3])
    states, x = orbit(block, a, 5), np.tile(a, (6, 1))
    assert states.shape == (6, 3)
    for state in states:
        np.testing.assert_allclose(x, np.tile(state, (6, 1)), rtol=0, atol=1e-13)
        x = block.forward(x)
    np.testing.assert_array_equal(orbit(block, a, 0), [a])


def test_the_product_is_a_spectrum():
    blocks = [random_layer(seed, (6,), 2) for seed in range(3)]
    propagator = through_layers(blocks)
    mode = propagator.leading()
    matrix = propagator.matrices[mode.k]
    np.testing.assert_allclose(matrix @ mode.right, mode.multiplier * mode.right, atol=1e-13)
    values = np.abs(np.linalg.eigvals(propagator.matrices))
    assert abs(mode.multiplier) == pytest.approx(values.max(), rel=1e-12)
    np.testing.assert_allclose(propagator.growth, values.max(axis=-1), rtol=1e-12)
    assert propagator.layers == 3
    assert propagator.plot().get_xlabel() == "wavenumber $k$"


class TestByDepth:
    def test_growth_and_gain_of_every_partial_product(self):
        blocks, a = [random_layer(seed, (5,), 2) for seed in range(4)], [0.2, 0.3]
        propagator = through_layers(blocks, a)
        for depth in range(5):
            jacobian, between = composed_jacobian(blocks[:depth], a) if depth else (np.eye(10), None)
            # the full product: its largest singular value and spectral radius are those of the worst wavenumber
            singular = np.linalg.svd(jacobian, compute_uv=False)
            assert propagator.gain[depth].max() == pytest.approx(singular[0], rel=1e-12)
            assert propagator.growth_by_depth[depth].max() == pytest.approx(
                np.abs(np.linalg.eigvals(jacobian)).max(), rel=1e-12
            )
            for k in range(5) if depth else ():
                assert propagator.gain[depth, k] == pytest.approx(np.linalg.svd(between[k, k])[1][0], rel=1e-12)
                radius = np.abs(np.linalg.eigvals(between[k, k])).max()
                assert propagator.growth_by_depth[depth, k] == pytest.approx(radius, rel=1e-11)
        np.testing.assert_allclose(propagator.rate, np.log(propagator.growth) / 4, rtol=1e-12)

    @pytest.mark.parametrize("depth", [None, 2])
    def test_optimal_perturbations_by_the_forward_map(self, depth):
        """The field e_q v, pushed through the layers, comes out as gain · e_q u; no other grows more."""
        blocks, a = [random_layer(seed, (5,), 2) for seed in range(4)], [0.2, 0.3]
        propagator = through_layers(blocks, a)
        optimal = propagator.optimal(depth)
        jacobian, _ = composed_jacobian(blocks[:depth], a)
        for k in range(5):
            wave = np.exp(2j * np.pi * k * np.arange(5) / 5)[:, None]
            out = jacobian @ (wave * optimal.input[k]).ravel()
            np.testing.assert_allclose(out, (optimal.gain[k] * wave * optimal.output[k]).ravel(), atol=1e-12)
            assert np.linalg.norm(optimal.input[k]) == pytest.approx(1, rel=1e-12)
            assert np.linalg.norm(optimal.output[k]) == pytest.approx(1, rel=1e-12)
        np.testing.assert_allclose(optimal.gain, propagator.gain[-1 if depth is None else depth], rtol=1e-12)

    def test_a_decaying_block_can_amplify_first(self):
        """J = [[.5, 8], [0, .5]]: ρ = .5^l, but the gain is that of the shear."""
        block = Block([Head(Kernel.uniform(4), np.zeros((2, 2)))], linear(np.array([[0.5, 8.0], [0.0, 0.5]])))
        propagator = along_orbit(block, layers=12)
        np.testing.assert_allclose(propagator.growth_by_depth[:, 1], 0.5 ** np.arange(13), rtol=1e-6)
        for depth in range(13):
            power = np.linalg.matrix_power(np.array([[0.5, 8.0], [0.0, 0.5]]), depth)
            assert propagator.gain[depth, 1] == pytest.approx(np.linalg.norm(power, 2), rel=1e-12)
        assert propagator.gain[:, 1].max() > 8


def linear(matrix):
    """The feed-forward with C = `matrix`."""
    d = len(matrix)
    return FeedForward(np.eye(d), matrix - np.eye(d), Activation.polynomial([1.0]))


class TestLongDepth:
    @pytest.mark.parametrize("factor", [3.0, 0.2])
    def test_ten_thousand_layers(self, factor):
        values = np.array([[0.1, -0.3], [0.2, 0.05]])
        rng = np.random.default_rng(0)
        block = Block([Head(Kernel.table(rng.normal(size=6)), values)], linear(factor * np.eye(2)))
        propagator = along_orbit(block, layers=10_000)
        relation = dispersion_relation(block)
        np.testing.assert_allclose(propagator.rate, np.log(relation.growth), rtol=1e-12)
        np.testing.assert_allclose(propagator.log_growth[-1], 10_000 * np.log(relation.growth), rtol=1e-12)
        assert np.isfinite(propagator.log_gain).all()
        np.testing.assert_allclose(propagator.log_gain[-1], 10_000 * np.log(relation.growth), atol=3)
        np.testing.assert_allclose(asymptotic_rate(block), np.log(relation.growth), rtol=1e-12)
        if factor > 1:
            assert propagator.gain[-1].max() == np.inf
            with pytest.raises(ArgumentError, match=r"^relations: got 10000 layers .+; accepted: .+ log_growth"):
                propagator.matrices  # noqa: B018

    def test_a_nilpotent_block_dies(self):
        block = Block([Head(Kernel.uniform(4), np.zeros((2, 2)))], linear(np.array([[0.0, 1.0], [0.0, 0.0]])))
        propagator = along_orbit(block, layers=3)
        np.testing.assert_array_equal(propagator.gain[:, 1], [1, 1, 0, 0])
        assert (propagator.rate == -np.inf).all()

    @pytest.mark.parametrize(("gain", "period"), [(1.8, 1), (3.2, 2), (3.5, 4)])
    def test_periodic_orbits_of_the_logistic_map(self, gain, period):
        """g(a) = r a(1−a) with η = 0 at q = 0; λ weighs the value elsewhere."""
        block = logistic(gain)
        start = orbit(block, 0.3, 3000)[-1]
        cycle = orbit(block, start, period)
        np.testing.assert_allclose(cycle[-1], cycle[0], rtol=1e-12)
        product = np.prod([dispersion_relation(block, a).matrices for a in cycle[:-1]], axis=0)[:, 0, 0]
        expected = np.log(np.abs(product)) / period
        np.testing.assert_allclose(asymptotic_rate(block, 0.3, settle=3000, layers=50), expected, rtol=1e-9)
        assert (np.abs(expected - expected[0]) > 1e-3)[1:].all()

    def test_chaos(self):
        """r = 4: the Lyapunov exponent of the homogeneous state is log 2."""
        rate = asymptotic_rate(logistic(4.0 - 1e-9), 0.3, settle=10, layers=2000)
        assert rate[0] == pytest.approx(np.log(2), abs=0.02)


def logistic(gain):
    """Two heads that cancel at q = 0 only, so that g(a) = r a(1−a)."""
    heads = [Head(Kernel.alibi(6, 1.0), 0.3), Head(Kernel.uniform(6), -0.3)]
    return Block(heads, FeedForward.scalar(Activation.polynomial([gain - 1, -gain])))


class TestBaseStates:
    """Fixed points of blocks with normalisations, as base states."""

    @staticmethod
    def check(block, points, expected=None):
        d = block.d
        for point in points:
            a, step = point.state, 1e-6
            ring = np.tile(a, (block.n, 1))
            np.testing.assert_allclose(block.forward(ring), ring, rtol=0, atol=1e-10)
            slopes = [
                (block.homogeneous_map(a + step * unit) - block.homogeneous_map(a - step * unit)) / (2 * step)
                for unit in np.eye(d)
            ]
            differences = np.linalg.eigvals(np.transpose(slopes))
            np.testing.assert_allclose(np.sort(np.abs(point.multipliers)), np.sort(np.abs(differences)), atol=1e-6)
            at_zero = dispersion_relation(block, a).multipliers.reshape(-1, d)[0]
            np.testing.assert_allclose(np.abs(point.multipliers), np.abs(at_zero), atol=1e-7)
            assert point.stable == (np.abs(differences).max() < 1)
            rate = along_orbit(block, a, 3).rate
            np.testing.assert_allclose(rate, np.log(dispersion_relation(block, a).growth), atol=1e-6)
        if expected is not None:
            assert min(np.abs(point.state - expected).max() for point in points) < 1e-8

    @pytest.mark.parametrize("eps", [0.0, 1e-5])
    @pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
    @pytest.mark.parametrize(("shape", "d"), [((4,), 3), ((2, 3), 8)])
    def test_post_normalised(self, norm, eps, shape, d):
        block = random_layer(d, shape, d, norm=lambda gain, bias: norm(gain, bias, eps=eps), placement="post")
        points = fixed_points(block, starts=30)
        assert points
        self.check(block, points)
        # what a long orbit settles on is one of them
        settled = orbit(block, np.linspace(-1, 1, d), 500)
        if np.abs(settled[-1] - settled[-2]).max() < 1e-12:
            assert min(np.abs(point.state - settled[-1]).max() for point in points) < 1e-8

    @pytest.mark.parametrize("norms", [(RMSNorm, RMSNorm), (LayerNorm, RMSNorm), (LayerNorm, None)])
    @pytest.mark.parametrize("d", [3, 5, 8])
    def test_pre_normalised_with_a_planted_state(self, norms, d):
        """b_out is chosen so that a* is fixed; without it the residual stream of a random block drifts for ever."""
        first, second = (None if norm is None else norm(np.ones(d), eps=0.0) for norm in norms)
        loose, rng = random_layer(d + 10, (4,), d), np.random.default_rng(d)
        planted = rng.normal(size=d)

        def built(bias):
            old = loose.feedforward
            feedforward = FeedForward(old.weight_in, old.weight_out, old.activation, old.bias_in, bias)
            return Block(loose.heads, feedforward, loose.attention_scale, first, second)

        block = built(planted - built(np.zeros(d)).homogeneous_map(planted))
        points = fixed_points(block, starts=100)
        self.check(block, points, planted)

    @pytest.mark.parametrize("seed", [0, [1, 3], 2])
    def test_two_layernorms_before_their_branches_leave_the_mean_free(self, seed):
        block = random_layer(seed, (4,), 3, norm=LayerNorm)
        a = np.array([0.3, -1.0, 0.4])
        np.testing.assert_allclose(block.homogeneous_map(a + 2), block.homogeneous_map(a) + 2, atol=1e-12)
        assert fixed_points(block, starts=40) == []

    def test_the_origin_of_a_layernorm_without_eps_is_refused_as_base_state(self):
        block = random_layer(0, (4,), 3, norm=lambda gain, bias: LayerNorm(gain, bias, eps=0.0), placement="post")
        with pytest.raises(ArgumentError, match="^state: got no variance"):
            dispersion_relation(block)
        assert fixed_points(block, starts=20)  # the start at the origin is passed over


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "argument"),
        [
            (lambda: along_orbit("block"), "block"),
            (lambda: orbit(None, 0.0, 3), "block"),
            (lambda: along_orbit(logistic(2.0), layers=0), "layers"),
            (lambda: orbit(logistic(2.0), 0.1, -1), "layers"),
            (lambda: along_orbit(logistic(2.0), [0.1, 0.2], 3), "state"),
            (lambda: through_layers([]), "blocks"),
            (lambda: through_layers(logistic(2.0)), "blocks"),
            (lambda: through_layers([logistic(2.0), None]), r"blocks\[1\]"),
            (lambda: through_layers([random_layer(0, (6,), 1), random_layer(0, (6,), 2)]), r"blocks\[1\]"),
            (lambda: through_layers([random_layer(0, (6,), 2), random_layer(0, (2, 3), 2)]), r"blocks\[1\]"),
            (lambda: Propagator(()), "relations"),
            (lambda: Propagator((logistic(2.0),)), "relations"),
            (
                lambda: Propagator(tuple(dispersion_relation(random_layer(0, (n,), 1)) for n in (5, 6))),
                r"relations\[1\]",
            ),
            (lambda: along_orbit(logistic(2.0), layers=2).optimal(3), "depth"),
            (lambda: orbit(logistic(2.0), 5.0, 50), "state"),  # runs away
            (lambda: asymptotic_rate(logistic(2.0), settle=-1), "settle"),
            (lambda: asymptotic_rate(logistic(2.0), layers=0), "layers"),
        ],
    )
    def test_the_argument_is_named(self, make, argument):
        with pytest.raises(ArgumentError, match=rf"^{argument}: got .+; accepted: .+"):
            make()

    def test_layernorm_without_variance(self):
        block = random_layer(0, (6,), 3, norm=lambda gain, bias: LayerNorm(gain, bias, eps=0.0))
        with pytest.raises(ArgumentError, match="^state: got no variance"):
            along_orbit(block, np.zeros(3), 2)
