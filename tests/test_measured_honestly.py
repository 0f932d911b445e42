# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""Maps that are not what they seem: what they do to their input, to themselves, and to derivatives."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from dispersion import ArgumentError
from models import measure
from models.inputs import forward

N, D = 5, 2
A = np.array([1.0, 0.5])


class TestMemory:
    """Tensors are never shared with a map, in or out."""

    def test_a_map_that_works_in_place(self):
        def cubic(x):
            x += 0.5 * x**3
            return x

        found = measure(cubic, A, N)
        np.testing.assert_allclose(found.matrices, np.tile(np.diag(1 + 1.5 * A**2), (N, 1, 1)), atol=1e-15)
        np.testing.assert_allclose(found.image, A + 0.5 * A**3, rtol=1e-15)
        assert max(found.defect, found.spread) < 1e-15

    def test_a_map_that_overwrites_its_input_with_zeros(self):
        def spoil(x):
            y = torch.tanh(x)
            x.zero_()
            return y

        np.testing.assert_allclose(measure(spoil, A, N).matrices[1], np.diag(1 / np.cosh(A) ** 2), rtol=1e-14)

    def test_a_map_that_returns_the_same_tensor_every_time(self):
        kept = torch.zeros(N, D, dtype=torch.float64)

        def reuse(x):
            return x + x**2 if torch._C._functorch.peek_interpreter_stack() else torch.add(x, x**2, out=kept)

        base = torch.tensor(np.tile(A, (N, 1)))
        image = forward(reuse, base).image
        forward(reuse, 2 * base)
        np.testing.assert_allclose(image, np.tile(A + A**2, (N, 1)), rtol=1e-15)
        np.testing.assert_allclose(measure(reuse, A, N).matrices[0], np.diag(1 + 2 * A), rtol=1e-15)


class Square(torch.autograd.Function):
    """x², with a derivative that is half as large again as it is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * ctx.saved_tensors[0] * tangent

    @staticmethod
    def backward(ctx, cotangent):
        return 3 * ctx.saved_tensors[0] * cotangent


class Dumb(Square):
    """x², without a derivative of forward mode."""

    generate_vmap_rule = True
    jvp = torch.autograd.Function.jvp


def inference(x):
    with torch.inference_mode():
        return x + x**2


def through_numpy(x):
    return x + torch.tensor(np.array(x.tolist()) ** 2)


HIDDEN = {
    "inference_mode": inference,
    "detach": lambda x: x + x.detach() ** 2,
    "a small part detached": lambda x: x + 1e-3 * x.detach() ** 2,
    "data": lambda x: x * x.data,
    "item": lambda x: x * x[0, 0].item(),
    "item of the mean": lambda x: x / (1 + (x**2).mean().item()),
    "numpy": through_numpy,
    "a wrong jvp of nothing": lambda x: torch.ones_like(x) + Square.apply(x) - x * x.detach(),
    "a wrong jvp": lambda x: x + Square.apply(x),
    "detached attention": lambda x: x + torch.softmax(x.detach() @ x.T, -1) @ torch.tanh(x.detach()),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_derivative_that_forward_mode_does_not_see(name):
    with pytest.raises(
        ArgumentError, match=r"fn: got a derivative .* finite difference .*inference_mode, detach"
    ) as caught:
        measure(HIDDEN[name], A, N)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fn", "words"),
    [(lambda x: x + Dumb.apply(x), "jvp"), (lambda x: x * torch.tensor(x.numpy()), "storage")],
)
def test_a_map_without_a_derivative_of_forward_mode(fn, words):
    with pytest.raises(ArgumentError, match=f"fn: got .*{words}.*torch.func.jvp can differentiate"):
        measure(fn, A, N)


class Single(nn.Module):
    """A map that computes in float32 inside, as some attention does."""

    def forward(self, x):
        return x + torch.softmax((x @ x.T).float(), -1).double() @ torch.tanh(x)


ROUGH = {
    "constant": lambda x: torch.full_like(x, 0.3) + 0 * x,
    "nearly constant": lambda x: 100 + 1e-9 * x,
    "steep": lambda x: torch.tanh(1e5 * (x - 1)),
    "kink": torch.relu,
    "kinks of a network": nn.Sequential(nn.Linear(D, 9, bias=False), nn.ReLU(), nn.Linear(9, D)).double(),
    "float32 inside": Single(),
    "no_grad": torch.no_grad()(lambda x: x + x**2),
    "large": lambda x: 1e12 * torch.sin(x),
    "short waves": lambda x: torch.sin(1e3 * x),
    "rounded on the way": lambda x: x + 1e-3 * ((x**2 + 1e9) - 1e9),
    "small": lambda x: 1e-200 * torch.sin(x),
}


@pytest.mark.parametrize("name", ROUGH)
@pytest.mark.parametrize("size", [0.0, 1.0, 1e3])
def test_what_is_seen_is_not_doubted(name, size):
    """Rounding, kinks at the very state and steep maps are not taken for a derivative that is not seen."""
    fn, base = ROUGH[name], torch.tensor(np.tile(size * A, (N, 1)))
    with torch.no_grad():
        exact = torch.func.jacfwd(fn)(base)[:, :, 0].sum(0).numpy()
    np.testing.assert_allclose(measure(fn, size * A, N).matrices[0], exact, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("seed", [17, *range(12)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardswish])
def test_kinks_beside_a_state_are_not_doubted(activation, seed):
    """LayerNorm at zero is steep: kinks stand close, and some behind others."""
    torch.manual_seed(seed)
    first, act, last = nn.Linear(16, 256), activation(), nn.Linear(256, 16)
    net = nn.Sequential(nn.LayerNorm(16), first, act, nn.Linear(256, 256), act, last).double()
    measure(lambda x: x + net(x) + 0.1 * net(x.roll(1, 0)), np.zeros(16), 12, probes=1)


class Attention(nn.Module):
    """nn.MultiheadAttention, whose dropout is an attribute and not a module."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 1, dropout=0.5, batch_first=True, dtype=torch.float64)

    def forward(self, x):
        return self.attention(x[None], x[None], x[None])[0][0]


class Cache(nn.Module):
    """Attention to all that it has ever seen: at a homogeneous state it does not show."""

    def __init__(self):
        super().__init__()
        self.seen = None

    def forward(self, x):
        self.seen = x.clone() if self.seen is None else torch.cat([self.seen, x])
        return x + torch.softmax(x @ self.seen.T, -1) @ self.seen


class Memory(nn.Module):
    """A recurrence that goes on where the last call left it."""

    def __init__(self):
        super().__init__()
        self.last = torch.zeros(D, dtype=torch.float64)

    def forward(self, x):
        self.last = 0.5 * self.last + x.mean(0)
        return x + self.last


class Counter(nn.Module):
    """A module that counts its calls, which its results do not show."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return torch.tanh(x)


class Lazy(nn.Module):
    """A module that makes a table when it first runs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", None)

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(1, 2, x.shape[-1], dtype=x.dtype)
        return torch.tanh(x) * self.table


def noise_of_numpy():
    generator = np.random.default_rng(0)
    return lambda x: x + torch.tensor(generator.normal(size=tuple(x.shape)))


RANDOM = {
    "attention with dropout": lambda: Attention().train(),
    "functional dropout": lambda: lambda x: nn.functional.dropout(x, 0.5, training=True),
    "dropout of what is zero at the state": lambda: (
        lambda x: x + nn.functional.dropout(torch.tanh(x - torch.tensor(A)), 0.5)
    ),
    "noise": lambda: lambda x: x + 1e-6 * torch.randn_like(x),
    "noise of numpy": noise_of_numpy,
    "a cache": Cache,
    "a memory": Memory,
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_map_that_differs_from_run_to_run(name):
    with pytest.raises(ArgumentError, match=r"fn: got results of one state that differ .*net.eval\(\)") as caught:
        measure(RANDOM[name](), A, N)
    assert "\n" not in str(caught.value)


def test_dropout_in_eval_mode_and_a_seed_inside_are_fine():
    def seeded(x):
        torch.manual_seed(3)
        return x**2 + nn.functional.dropout(torch.ones_like(x), 0.5, training=True) + torch.rand_like(x)

    np.testing.assert_allclose(measure(seeded, A, N).matrices[0], np.diag(2 * A), rtol=1e-14)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        net = Attention().eval()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert measure(net, A, N).defect < 1e-12
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize(("module", "name"), [(nn.BatchNorm1d(D).double(), "running_mean"), (Counter(), "calls")])
def test_a_module_that_writes_its_buffers(module, name):
    """It is refused by the name of the buffer, and left as it was."""
    before = {key: value.clone() for key, value in module.named_buffers()}
    with pytest.raises(ArgumentError, match=rf"fn: got .*writes its buffer {name}.*net.eval\(\)"):
        measure(module, A, N)
    assert all(torch.equal(value, before[key]) for key, value in module.named_buffers())


def test_buffers_that_are_made_once_or_only_read_are_fine():
    norm = nn.BatchNorm1d(D).double().eval()
    np.testing.assert_allclose(measure(norm, A, N).matrices[0], np.eye(D) / np.sqrt(1 + 1e-5), rtol=1e-14)
    slopes = np.diag(np.array([1, 2]) / np.cosh(A) ** 2)
    np.testing.assert_allclose(measure(Lazy(), A, N).matrices[0], slopes, rtol=1e-14)
