# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""J(q) with gradients: against measured and closed forms, finite differences, and growth where eigenvalues repeat."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.autograd import gradcheck
from torch.func import functional_call

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel, LayerNorm, dispersion_relation
from models import growth, jacobian, measure, to_torch

D = 3


def block_on(shape, seed=0):
    rng = np.random.default_rng(seed)
    heads = [
        Head(Kernel.table(rng.normal(size=shape)), *rng.normal(size=(2, D, D)) / 2, gate=gate) for gate in (0.3, None)
    ]
    hidden = FeedForward(rng.normal(size=(4, D)), rng.normal(size=(D, 4)), "gelu", rng.normal(size=4))
    return Block(heads, hidden, 0.6, LayerNorm(rng.normal(size=D), rng.normal(size=D)))


A = np.array([0.4, -0.7, 0.2])


class TestMatrices:
    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    @pytest.mark.parametrize("shape", [(7,), (6,), (3, 4), (2, 3, 2)])
    def test_as_measured_and_as_in_closed_form(self, shape, mode):
        block = block_on(shape)
        net = to_torch(block)
        found = jacobian(net, A, shape, mode=mode).detach().numpy()
        assert found.shape == (*shape, D, D)
        assert np.abs(found - measure(net, A, shape).matrices).max() < 1e-12
        relation = dispersion_relation(block, A)
        assert np.abs(found - relation.matrices).max() < 1e-12
        rng = np.random.default_rng(1)
        q = rng.normal(size=(2, 5) if len(shape) == 1 else (2, 5, len(shape)))
        for chosen in (q, q + 0.1j * rng.normal(size=q.shape)):
            found = jacobian(net, A, shape, chosen, mode=mode).detach().numpy()
            assert found.shape == (2, 5, D, D)
            assert np.abs(found - relation(chosen)).max() < 1e-12

    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    @pytest.mark.parametrize("boundary", ["open", "causal"])
    def test_the_bulk_of_a_line(self, boundary, mode):
        lags = np.r_[0.3, 0.1, -0.4, np.full(7, -np.inf)] if boundary == "causal" else None
        kernel = Kernel.table(lags, causal=True) if boundary == "causal" else Kernel.alibi(10, 4.0)
        net = to_torch(
            Block([Head(kernel, np.diag([0.5, -0.2, 0.1]))], FeedForward.elementwise("tanh", D, 0.3)), boundary
        )
        found = jacobian(net, A, 10, boundary=boundary, mode=mode).detach().numpy()
        wanted = measure(net, A, 10, boundary).matrices
        # rows and columns of the middle token are the same but for what the ends cut off
        assert np.abs(found - wanted).max() < (1e-12 if mode == "forward" or boundary == "causal" else 1e-6)

    def test_what_cannot_be_batched(self):
        net = to_torch(block_on((6,)))

        def stubborn(x):
            return net(x) if float(x.detach().sum()) < 1e9 else x

        for mode in ("forward", "reverse"):
            assert (
                np.abs(jacobian(stubborn, A, 6, mode=mode).detach().numpy() - measure(net, A, 6).matrices).max() < 1e-12
            )

    def test_reverse_mode_needs_no_derivative_of_forward_mode(self):
        def fused(x):
            return nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0]

        with pytest.raises(ArgumentError, match="fused attention"):
            jacobian(fused, A, 6)
        found = jacobian(fused, A, 6, mode="reverse").numpy()
        assert np.abs(found[0] - np.eye(D)).max() < 1e-12
        assert np.abs(found[1:]).max() < 1e-12

    def test_single_precision_and_maps_that_work_in_place(self):
        block = block_on((6,))
        found = jacobian(to_torch(block, dtype=torch.float32), A, 6)
        assert found.dtype == torch.complex64
        assert np.abs(found.detach().numpy() - dispersion_relation(block, A).matrices).max() < 1e-5
        found = jacobian(lambda x: x.mul_(2).roll(1, 0), A, 6)
        assert np.abs(found[1].numpy() - 2 * np.exp(-1j * np.pi / 3) * np.eye(D)).max() < 1e-14


class TestGradients:
    """Of a fixed real number made of J(q), into parameters, state and q."""

    net = to_torch(block_on((5,)))
    names = tuple(name for name, _ in net.named_parameters())
    values = tuple(values.detach() for values in net.parameters())

    @staticmethod
    def readout(matrices):
        weights = torch.tensor(np.random.default_rng(2).normal(size=(2, *matrices.shape)))
        return (matrices.real * weights[0] + matrices.imag * weights[1]).sum()

    def value(self, values, mode="forward", q=None, state=A):
        module = lambda x: functional_call(self.net, dict(zip(self.names, values, strict=True)), x)  # noqa: E731
        return self.readout(jacobian(module, state, 5, q, mode=mode))

    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    def test_into_every_parameter(self, mode):
        """backward(), torch.func.grad and torch.func.jvp against differences along a random direction of each."""
        self.net.zero_grad()
        self.readout(jacobian(self.net, A, 5, mode=mode)).backward()
        rng = np.random.default_rng(3)
        by_func = torch.func.grad(lambda values: self.value(values, mode))(self.values)
        for number, (name, parameter) in enumerate(self.net.named_parameters()):
            if parameter.numel() == 0:
                continue
            along = [torch.zeros_like(values) for values in self.values]
            along[number] = torch.tensor(rng.normal(size=tuple(parameter.shape)))
            ends = [
                self.value([v + h * t for v, t in zip(self.values, along, strict=True)], mode).item()
                for h in (1e-4, -1e-4, 2e-4, -2e-4)
            ]
            wanted = (8 * (ends[0] - ends[1]) - (ends[2] - ends[3])) / 12e-4
            by_jvp = torch.func.jvp(lambda *values: self.value(values, mode), self.values, tuple(along))[1].item()
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for found in (
                (gradient * along[number]).sum().item(),
                (by_func[number] * along[number]).sum().item(),
                by_jvp,
            ):
                assert found == pytest.approx(wanted, rel=1e-8, abs=1e-9), name

    def test_into_the_state_and_q(self):
        state = torch.tensor(A, requires_grad=True)
        q = torch.tensor([0.3, -1.1], dtype=torch.float64, requires_grad=True)
        for mode in ("forward", "reverse"):
            function = lambda state, q: torch.view_as_real(jacobian(self.net, state, 5, q, mode=mode))  # noqa: B023, E731
            # forward_ad of torch.autograd cannot be nested, torch.func.jvp can
            assert gradcheck(function, (state, q), check_forward_ad=mode == "reverse")
        moved = torch.func.jvp(lambda state: jacobian(self.net, state, 5), (state,), (torch.ones_like(state),))[1]
        ends = [jacobian(self.net, state + h, 5) for h in (1e-5, -1e-5)]
        assert torch.allclose(moved, (ends[0] - ends[1]) / 2e-5, atol=1e-8)


def planted(values, seed=0, real=False):
    """(matrix, V, W) with eigenvalues or blocks `values` in a random basis V, W = V⁻ᴴ."""
    rng = np.random.default_rng(seed)
    middle = values if np.ndim(values) == 2 else np.diag(values)
    basis = rng.normal(size=middle.shape) + (0 if real else 1j * rng.normal(size=middle.shape))
    return basis @ middle @ np.linalg.inv(basis), basis, np.linalg.inv(basis).conj().T


def slope(matrix):
    matrix = torch.tensor(matrix, requires_grad=True)
    growth(matrix).backward()
    return matrix.grad.numpy()


class TestGrowth:
    def test_value(self):
        found = growth(jacobian(to_torch(block_on((3, 4))), A, (3, 4))).detach().numpy()
        np.testing.assert_allclose(found, dispersion_relation(block_on((3, 4)), A).growth, rtol=1e-12)

    @pytest.mark.parametrize("real", [False, True])
    def test_of_single_eigenvalues(self, real):
        """Complex matrices, and real ones with a leading pair of conjugate eigenvalues."""
        middle = np.array([[0.9, 0.5, 0], [-0.5, 0.9, 0], [0, 0, 0.7]]) if real else np.array([1.2j, 0.4, -0.8])
        matrices = np.stack([planted(middle, seed, real)[0] for seed in range(2)])
        tensor = torch.tensor(matrices, requires_grad=True)
        assert gradcheck(growth, tensor, check_forward_ad=True)
        assert (tensor.dtype == torch.float64) == real

    def test_under_transforms(self):
        matrices = torch.tensor(np.stack([planted([1.0, 0.5, 0.2j], seed)[0] for seed in range(4)]))
        one_by_one = torch.stack([torch.func.grad(growth)(matrix) for matrix in matrices])
        assert torch.equal(torch.func.vmap(torch.func.grad(growth))(matrices), one_by_one)
        assert torch.equal(torch.func.grad(lambda m: growth(m).sum())(matrices), one_by_one)
        tangent = torch.ones_like(matrices)
        pushed = torch.func.vmap(lambda m, t: torch.func.jvp(growth, (m,), (t,))[1])(matrices, tangent)
        assert torch.allclose(pushed, (one_by_one.conj() * tangent).real.sum((-2, -1)))

    def test_a_second_derivative_is_refused(self):
        matrix = torch.tensor(planted([1.0, 0.5], real=True)[0], requires_grad=True)
        (first,) = torch.autograd.grad(growth(matrix), matrix, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            first.abs().sum().backward()
        for outer in (torch.func.jacrev, torch.func.jacfwd):
            for inner in (torch.func.jacrev, torch.func.jacfwd):
                with pytest.raises(RuntimeError, match="differentiated twice"):
                    outer(inner(growth))(matrix)

    @pytest.mark.parametrize("values", [[1.0] * 4, [-0.3 + 0.4j] * 4, [1.0, 1.0, 0.5, 0.2], [2j, 2j, 2j, 1.9j]])
    def test_a_repeated_eigenvalue_gives_a_subgradient(self, values):
        """No larger than the derivative of ρ in any direction: ⟨S, E⟩ ≤ [ρ(J + tE) − ρ(J)]/t + O(t), and their mean."""
        matrix, V, W = planted(values)
        S, m = slope(matrix), np.isclose(values, values[0]).sum()
        assert np.isfinite(S).all()
        rng = np.random.default_rng(4)
        for _ in range(20):
            E = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
            turn = np.conj(values[0]) / abs(values[0])
            split = np.linalg.eigvals(turn * (W[:, :m].conj().T @ E @ V[:, :m])).real
            assert np.vdot(S, E).real == pytest.approx(split.mean(), rel=1e-9, abs=1e-9)
            t = 1e-6
            steep = (np.abs(np.linalg.eigvals(matrix + t * E)).max() - abs(values[0])) / t
            assert steep == pytest.approx(split.max(), abs=2e-3)
            assert np.vdot(S, E).real <= steep + 1e-3

    def test_the_mean_of_eigenvalues_apart_or_together_is_smooth(self):
        """At a defective matrix ρ grows as √t, and the gradient is that of the mean of what the one becomes."""
        jordan = np.array([[1.1, 1.0, 0, 0], [0, 1.1, 0, 0], [0, 0, 0.4, 1.0], [0, 0, 0, -0.7]])
        for matrix in (jordan, planted(jordan, 5)[0]):
            S, rng, t = slope(matrix), np.random.default_rng(6), 1e-5
            assert np.isfinite(S).all()
            for _ in range(5):
                E = rng.normal(size=(4, 4))
                ends = [np.sort_complex(np.linalg.eigvals(matrix + h * E))[-2:].mean() for h in (t, -t)]
                assert np.vdot(S, E).real == pytest.approx((abs(ends[0]) - abs(ends[1])) / (2 * t), rel=1e-4, abs=1e-4)

    def test_equal_moduli_share(self):
        """±1: half of each one's gradient, a subgradient of the larger of the two."""
        matrix, V, W = planted([1.0, -1.0, 0.3])
        wanted = sum(sign * np.outer(W[:, k], V[:, k].conj()) for k, sign in ((0, 1), (1, -1))) / 2
        np.testing.assert_allclose(slope(matrix), wanted, atol=1e-12)

    @pytest.mark.parametrize("matrix", [np.zeros((3, 3)), np.eye(3, k=1), 1e-200 * np.eye(2), np.ones((1, 1))])
    def test_it_is_finite_everywhere(self, matrix):
        S = slope(matrix)
        assert np.isfinite(S).all()
        assert np.vdot(S, matrix) == pytest.approx(np.abs(np.linalg.eigvals(matrix)).max())

    def test_random_neighbours_of_repeated_eigenvalues(self):
        for seed in range(30):
            rng = np.random.default_rng(seed)
            matrix = planted(np.kron(np.eye(2), [[1.0, rng.integers(2)], [0, 1.0]]), seed)[0]
            S = slope(matrix + 10.0 ** -rng.integers(4, 17) * rng.normal(size=(4, 4)))
            assert np.isfinite(S).all()
            # ρ is homogeneous of degree 1, and so is the mean up to the width of the cluster
            assert np.vdot(S, matrix).real == pytest.approx(1, abs=0.1)


class TestTraining:
    @pytest.mark.parametrize("target", [1.1, 0.6])
    @pytest.mark.parametrize("start", ["random", "all eigenvalues equal"])
    def test_growth_goes_where_it_is_sent(self, start, target):
        kernel = Kernel.gaussian_lobes(12, separation=3, width=1.0, strength=2.0)
        value = -0.8 * np.eye(D) if start != "random" else np.random.default_rng(7).normal(size=(D, D)) / 2
        net, q = (
            to_torch(Block([Head(kernel, value, np.eye(D))], FeedForward.elementwise("tanh", D, -0.2))),
            2 * np.pi / 4,
        )
        optimiser = torch.optim.LBFGS(net.parameters(), max_iter=50, line_search_fn="strong_wolfe")

        def loss():
            optimiser.zero_grad()
            distance = (growth(jacobian(net, np.zeros(D), 12, q)) - target) ** 2
            distance.backward()
            return distance

        optimiser.step(loss)
        assert measure(net, np.zeros(D), 12).growth[3] == pytest.approx(target, abs=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: jacobian("net", A, 6), "module: got str"),
        (lambda: jacobian(torch.tanh, np.ones((2, D)), 6), "state: got shape"),
        (lambda: jacobian(torch.tanh, torch.ones(2, D), 6), r"state: got shape \(2, 3\)"),
        (lambda: jacobian(torch.tanh, A, 1), "shape"),
        (lambda: jacobian(torch.tanh, A, (2, 3), [0.5, 0.1, 0.3]), r"q: got shape \(3,\); accepted: \(…, 2\)"),
        (lambda: jacobian(torch.tanh, A, (2, 3), boundary="open"), "boundary: got 'open' on a torus"),
        (lambda: jacobian(torch.tanh, A, 6, boundary="shut"), "boundary: got 'shut'"),
        (lambda: jacobian(torch.tanh, A, 6, mode="both"), "mode: got 'both'"),
        (lambda: jacobian(lambda x: x[:2], A, 6), r"module: got a result of shape \(2, 3\)"),
        (lambda: growth(np.eye(2)), "matrices: got ndarray"),
        (lambda: growth(torch.ones(2, 3)), r"matrices: got shape \(2, 3\)"),
        (lambda: growth(torch.tensor([[np.nan]])), "matrices: got numbers that are not finite"),
    ],
)
def test_refused(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()
