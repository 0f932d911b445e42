# ruff: noqa: E402 (what needs PyTorch comes after the skip)
"""Blocks as PyTorch modules and back, programs, and ConViT, against the maps and matrices of `dispersion`."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dispersion import (
    Activation,
    ArgumentError,
    Block,
    Chain,
    DyT,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    OutputValue,
    QueryKey,
    RMSNorm,
    Rotary,
    dispersion_relation,
    mask_logits,
)
from dispersion.block.encodings import Encoding
from dispersion.block.normalisation import Normalisation
from dispersion.grid import lag_index
from models import ConViT, export, load_program, measure, save_program, to_torch
from models.convit import NAMES
from models.encodings import Positional
from models.module import TorchBlock
from simulate import iterate

N, D = 8, 4
TORUS = (3, 4)


def relative(found, wanted):
    return np.abs(found - wanted).max() / np.abs(wanted).max()


def heads_of(name, shape, rng):
    """Two heads of the encoding `name`, directional, on a ring or torus of `shape`."""
    axes = len(shape)

    def kernel():
        return Kernel.table(rng.normal(size=shape))

    def content():
        return rng.normal(size=(D, D)) / 2

    def value():
        return rng.normal(size=(D, D)) / 2

    def rotary(pairing, biased):
        frequencies = 2 * np.pi / np.array(shape) * rng.integers(1, 3, size=(D // 2, axes))
        biases = rng.normal(size=(2, D)) if biased else (None, None)
        return Rotary(rng.normal(size=(D, D)), rng.normal(size=(D, D)), frequencies, pairing, *biases)

    def factors(biased):
        biases = rng.normal(size=(2, 3)) if biased else (None, None)
        keys = QueryKey(rng.normal(size=(3, D)), rng.normal(size=(3, D)), *biases)
        return OutputValue(rng.normal(size=(D, 2)), rng.normal(size=(2, D))), keys

    n = int(np.prod(shape))
    by_lag = rng.normal(size=n)[lag_index(shape)]
    logits = rng.normal(size=shape)
    logits.flat[1] = -np.inf
    make = {
        "kernel": lambda: Head(kernel(), value(), content()),
        "removed lag": lambda: Head(Kernel.table(logits), value(), content()),
        "no position": lambda: Head(Kernel.uniform(shape if axes > 1 else n), value(), content()),
        "rotary half": lambda: Head(kernel(), value(), rotary=rotary("half", False)),
        "rotary interleaved": lambda: Head(kernel(), value(), rotary=rotary("interleaved", True)),
        "gate": lambda: Head(kernel(), value(), content(), gate=0.3),
        "bias": lambda: Head(kernel(), value(), content(), bias=mask_logits(by_lag)),
        "key bias": lambda: Head(kernel(), value(), content(), key_bias=rng.normal(size=D)),
        "factors": lambda: Head(kernel(), *factors(False)),
        "biased factors": lambda: Head(kernel(), *factors(True), gate=0.2),
    }
    if name == "all":
        return [make[other]() for other in (*make, *reversed(make))]
    return [make[name](), make[name]()]


ENCODINGS = (
    "kernel",
    "removed lag",
    "no position",
    "rotary half",
    "rotary interleaved",
    "gate",
    "bias",
    "key bias",
    "factors",
    "biased factors",
    "all",
)
NORMS = {
    "none": lambda rng: None,
    "LayerNorm": lambda rng: LayerNorm(rng.normal(size=D), rng.normal(size=D)),
    "RMSNorm": lambda rng: RMSNorm(rng.normal(size=D), rng.normal(size=D), 1e-6),
    "DyT": lambda rng: DyT(rng.normal(size=D), rng.normal(size=D), 0.7),
}
CASES = [
    (encoding, norm, placement, shape)
    for encoding in ENCODINGS
    for norm in NORMS
    for placement in (("pre", "post") if norm != "none" else ("pre",))
    for shape in ((N,), TORUS)
]


def block_of(encoding, norm, placement, shape, activation="gelu", gated=False):
    rng = np.random.default_rng(1)
    feedforward = FeedForward(
        rng.normal(size=(6, D)) / 2,
        rng.normal(size=(D, 6)) / 3,
        activation,
        rng.normal(size=6),
        rng.normal(size=D),
        *((rng.normal(size=(6, D)) / 2, rng.normal(size=6)) if gated else ()),
    )
    norms = NORMS[norm](rng), NORMS[norm](rng)
    return Block(heads_of(encoding, shape, rng), feedforward, 0.6, *norms, placement, rng.normal(size=D))


@pytest.mark.parametrize(("encoding", "norm", "placement", "shape"), CASES)
class TestEveryBlock:
    def test_same_map(self, encoding, norm, placement, shape):
        block = block_of(encoding, norm, placement, shape)
        x = np.random.default_rng(2).normal(size=(2, 3, block.n, D))
        assert relative(to_torch(block)(torch.tensor(x)).detach().numpy(), block.forward(x)) <= 1e-12

    def test_there_and_back(self, encoding, norm, placement, shape, tmp_path):
        block = block_of(encoding, norm, placement, shape)
        for name, one in (("a", block), ("b", export(to_torch(block)))):
            one.save(tmp_path / f"{name}.toml")
        assert (tmp_path / "a.toml").read_bytes() == (tmp_path / "b.toml").read_bytes()
        x = np.random.default_rng(3).normal(size=(block.n, D))
        assert (export(to_torch(block)).forward(x) == block.forward(x)).all()

    def test_measured_dispersion(self, encoding, norm, placement, shape):
        block = block_of(encoding, norm, placement, shape)
        a = np.random.default_rng(4).normal(size=D)
        measured = measure(to_torch(block), a, shape)
        assert relative(measured.matrices, dispersion_relation(block, a).matrices) <= 1e-10
        assert max(measured.defect, measured.spread) < 1e-12
        assert relative(measured.image, block.homogeneous_map(a)) < 1e-12


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_same_derivative(encoding, placement):
    """Forward and reverse mode against the derivative in closed form."""
    block = block_of(encoding, "LayerNorm", placement, TORUS, gated=True)
    x = np.random.default_rng(7).normal(size=(block.n, D))
    wanted = block.jacobian(x).reshape(block.n, D, block.n, D)
    for derivative in (torch.func.jacfwd, torch.func.jacrev):
        assert relative(derivative(to_torch(block))(torch.tensor(x)).detach().numpy(), wanted) <= 1e-12


def test_heads_of_one_form_share_their_parameters():
    net = to_torch(block_of("all", "none", "pre", (N,)))
    assert net.members == [[0, 1, 2, 17, 18, 19], *([k, 19 - k] for k in range(3, 10))]
    assert net.attention[6].content.query.shape == (2, 3, D)


def test_any_number_of_tokens():
    rng = np.random.default_rng(14)
    factors = OutputValue(rng.normal(size=(D, 2)), rng.normal(size=(2, D))), QueryKey(*rng.normal(size=(2, 3, D)))
    net = TorchBlock(Block([Head(Kernel.uniform(2), *factors)]), "causal", any_length=True)
    for n in (3, 7):
        x = rng.normal(size=(n, D))
        chain = Chain(Block([Head(Kernel.uniform(2 * n - 1), *factors)]), n, "causal")
        assert relative(net(torch.tensor(x)).detach().numpy(), chain.forward(x)) <= 1e-12
    for encoding in ("kernel", "rotary half", "bias"):
        with pytest.raises(ArgumentError, match="positional logits"):
            TorchBlock(block_of(encoding, "none", "pre", (N,)), any_length=True)
    with pytest.raises(ArgumentError, match=r"shape \(…, n, 4\)"):
        net(torch.zeros(3, D + 1))


@pytest.mark.parametrize("activation", [*(name for name in Activation.names() if name != "polynomial"), "cubic"])
@pytest.mark.parametrize("gated", [False, True])
def test_every_activation(activation, gated):
    chosen = Activation.polynomial([0.5, 0.2, -0.1]) if activation == "cubic" else activation
    block = block_of("kernel", "none", "pre", (N,), chosen, gated)
    x = np.random.default_rng(5).normal(size=(N, D))
    net = to_torch(block)
    assert relative(net(torch.tensor(x)).detach().numpy(), block.forward(x)) <= 1e-12
    assert export(net).feedforward.activation == block.feedforward.activation


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_gate(placement, tmp_path):
    """There and back bit for bit, the measured J(q), and each layer of a simulation."""
    block = block_of("kernel", "RMSNorm", placement, (N,), "silu", gated=True)
    net, a = to_torch(block), np.random.default_rng(4).normal(size=D)
    for name, one in (("a", block), ("b", export(net))):
        one.save(tmp_path / f"{name}.toml")
    assert (tmp_path / "a.toml").read_bytes() == (tmp_path / "b.toml").read_bytes()
    measured = measure(net, a, (N,))
    assert relative(measured.matrices, dispersion_relation(block, a).matrices) <= 1e-10
    state = np.random.default_rng(6).normal(size=(N, D))
    path = iterate(block, depth=10, start=state, every=1)
    assert path.engine == "blas"
    with torch.no_grad():
        for before, after in itertools.pairwise(path.states):
            assert relative(net(torch.tensor(before)).numpy(), after) <= 1e-12


@pytest.mark.parametrize("boundary", ["open", "causal", "periodic"])
@pytest.mark.parametrize("encoding", ["kernel", "removed lag", "rotary half", "bias", "key bias"])
def test_same_map_with_ends(encoding, boundary):
    block = block_of(encoding, "LayerNorm", "pre", (N,))
    n = N if boundary == "periodic" else 11
    net, chain = to_torch(block, boundary, n), Chain(block, n, boundary)
    x = np.random.default_rng(6).normal(size=(2, n, D))
    assert relative(net(torch.tensor(x)).detach().numpy(), chain.forward(x)) <= 1e-12
    assert relative(export(net).forward(x[:, :N]), block.forward(x[:, :N])) == 0


def test_fifty_layers_of_simulation():
    rng = np.random.default_rng(7)
    kernel = Kernel.gaussian_lobes(16, separation=3, width=1.0, strength=2.0)
    block = Block([Head(kernel, -0.6, 1.2)], FeedForward.scalar("tanh", -0.1))
    x = 0.1 * rng.normal(size=16)
    path, net, state = iterate(block, depth=50, start=x), to_torch(block), torch.tensor(x)[:, None]
    with torch.no_grad():
        for _ in range(50):
            state = net(state)
    assert relative(state.numpy().ravel(), np.ravel(path.state)) <= 1e-10


class TestModule:
    block = block_of("gate", "LayerNorm", "pre", (N,))

    def test_trains(self):
        net = to_torch(block_of("removed lag", "DyT", "pre", (N,)))
        optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
        x, losses = torch.tensor(np.random.default_rng(8).normal(size=(4, N, D))), []
        for _ in range(20):
            loss = (net(x) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        assert np.isneginf(export(net).heads[0].kernel.logits.flat[1])
        assert relative(net(x).detach().numpy(), export(net).forward(x.numpy())) <= 1e-12

    def test_single_precision(self):
        x = np.random.default_rng(9).normal(size=(N, D))
        out = to_torch(self.block, dtype=torch.float32)(torch.tensor(x, dtype=torch.float32))
        assert out.dtype == torch.float32
        assert relative(out.detach().numpy(), self.block.forward(x)) < 1e-5

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: to_torch("block"), "block: got str"),
            (lambda: to_torch(TestModule.block, dtype=torch.float16), "dtype: got torch.float16"),
            (lambda: to_torch(TestModule.block, "open"), "gate"),
            (lambda: to_torch(TestModule.block)(torch.zeros(N + 1, D)), r"x: got shape \(9, 4\)"),
            (lambda: export(torch.nn.Linear(2, 2)), "module: got Linear"),
            (lambda: to_torch(Block([Head(Kernel.uniform(4), np.eye(2))], attention_norm=Odd.identity(2))), "got Odd"),
        ],
    )
    def test_refused(self, call, words):
        with pytest.raises(ArgumentError, match=words):
            call()


class Odd(Normalisation):
    """A normalisation of the user's own."""


class TestProgram:
    def test_runs_without_us(self, tmp_path):
        block = block_of("rotary half", "RMSNorm", "pre", (N,))
        net, path = to_torch(block), tmp_path / "block.pt2"
        save_program(net, path)
        x = torch.tensor(np.random.default_rng(10).normal(size=(3, N, D)))
        assert relative(torch.export.load(path).module()(x).detach().numpy(), block.forward(x.numpy())) <= 1e-12
        program = load_program(path)
        assert (program.shape, program.d, program.boundary, program.dtype) == ((N,), D, "periodic", torch.float64)
        assert relative(program(x[0]).detach().numpy(), block.forward(x[0].numpy())) <= 1e-12
        a = np.random.default_rng(11).normal(size=D)
        measured = measure(program, a, program.shape)
        assert relative(measured.matrices, dispersion_relation(block, a).matrices) <= 1e-10
        assert [file.name for file in tmp_path.iterdir()] == ["block.pt2"]

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda folder: save_program(to_torch(TestModule.block), folder / "block.onnx"), "ends in .pt2"),
            (lambda folder: save_program(torch.nn.Linear(2, 2), folder / "a.pt2"), "does not tell"),
            (lambda folder: save_program(lambda x: x, folder / "a.pt2", 4, 2), "module: got function"),
            (lambda folder: save_program(to_torch(TestModule.block), folder / "no" / "a.pt2"), "no such file"),
            (lambda folder: load_program(folder / "none.pt2"), "no such file"),
            (lambda folder: load_program(__file__), "BadZipFile"),
        ],
    )
    def test_refused(self, call, words, tmp_path):
        with pytest.raises(ArgumentError, match=words):
            call(tmp_path)


class TestConViT:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize(("attention", "norm"), [("gpsa", None), ("gpsa", "pre"), ("psa", None)])
    def test_module_is_the_block(self, name, attention, norm):
        network = ConViT.preset(name, "small", attention, norm)
        x = network.state + 0.1 * np.random.default_rng(12).normal(size=(2, 64, 36))
        block = network.block()
        assert relative(network.forward(x, 1), block.forward(x)) <= 1e-12
        assert relative(export(network.module()).forward(x), block.forward(x)) <= 1e-14

    def test_measured_is_analytic(self):
        network = ConViT.preset("-I+sharp pos", "small")
        measured = measure(network.module(), network.state, network.shape)
        assert relative(measured.matrices, dispersion_relation(network.block(), network.state).matrices) <= 1e-10

    @pytest.mark.parametrize("sign", ["+", "-"])
    def test_mimetic_weights(self, sign):
        network = ConViT.preset(f"{sign}I", "paper")
        total = sum(head.value for head in network.block().heads)
        assert np.trace(total) / 216 == pytest.approx(0.4 if sign == "+" else -0.4, abs=0.01)
        random = total - np.diag(np.diag(total))
        assert random.std() * np.sqrt(216) == pytest.approx(0.4, rel=0.02)

    def test_heads_look_at_a_square_of_offsets(self):
        kernels = [head.kernel for head in ConViT.preset("default+pos", "small").block().heads]
        # lag = query − key, the negative of the offset attended to
        offsets = {tuple(-kernel.lags.reshape(-1, 2)[kernel.logits.argmax()]) for kernel in kernels}
        assert offsets == {(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
        assert ConViT.preset("default", "small").block().heads[0].kernel.logits.any() == np.False_

    def test_same_seed_same_network(self):
        one, two, other = (ConViT.preset("-I+pos", "small", rng=seed) for seed in (3, 3, 4))
        assert (one.value == two.value).all()
        assert (one.state == two.state).all()
        assert (one.value != other.value).any()

    def test_training_reaches_the_block(self):
        network = ConViT.preset("-I+pos", "small")
        net = network.module()
        with torch.no_grad():
            net.attention[0].gate.logit.fill_(-2.0)
            net.attention_scale.fill_(0.5)
        x = np.random.default_rng(13).normal(size=(64, 36))
        assert relative(net(torch.tensor(x)).detach().numpy(), export(net).forward(x)) <= 1e-12
        assert export(net).heads[3].gate == pytest.approx(1 / (1 + np.exp(2.0)))

    @pytest.mark.parametrize("wrong", [{"name": "I"}, {"size": "big"}, {"attention": "soft"}, {"norm": "post"}])
    def test_refused(self, wrong):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            ConViT.preset(**{"name": "default", **wrong})


def kernels(shape):
    """A kernel of each encoding whose parameters train, a sum of some, and one whose logits train."""
    rng, axes = np.random.default_rng(15), len(shape)
    point = tuple(rng.uniform(1, 2, axes)) if axes > 1 else 1.3
    mask = rng.normal(size=shape)
    mask.flat[2] = -np.inf
    made = {
        "uniform": Kernel.uniform(shape),
        "lobes": Kernel.gaussian_lobes(shape, point, 1.2, 2.0),
        "von_mises": Kernel.von_mises(shape, (1, 2)[:axes] if axes > 1 else 2, 1.5, 0.3),
        "alibi": Kernel.alibi(shape, 0.4),
        "kerple_log": Kernel.kerple_log(shape, 1.1, 0.7),
        "kerple_power": Kernel.kerple_power(shape, 0.3, 1.4),
        "convit": Kernel.convit(shape, point, 0.2),
        "convit_learned": Kernel.convit_learned(shape, rng.normal(size=1 + axes) / 4),
        "mask": Kernel.mask(mask),
        "table": Kernel.table(rng.normal(size=shape)),
        "swin": Kernel.swin(shape, rng.normal(size=(3,) * axes)),
        "swin all round": Kernel.swin(shape, np.ones((5,) * axes)) if axes > 1 else Kernel.swin(9, np.ones(11)),
    }
    made["sum"] = 0.5 * (made["lobes"] + -2.0 * made["table"]) + made["mask"]
    if axes == 1:
        made |= {
            "skewed": Kernel.skewed_lobe(shape[0], 1.0, 0.8, 1.5, 2.0),
            "t5": Kernel.t5(shape[0], rng.normal(size=8)),
        }
        made["causal alibi"] = Kernel.alibi(shape[0], 0.3, causal=True)
    return made


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for shape in ((9,), (3, 4)) for name in kernels(shape)])
class TestPositional:
    def test_logits_of_the_encoding(self, name, shape):
        kernel = kernels(shape)[name]
        module = Positional(kernel)
        np.testing.assert_allclose(module().detach().numpy(), kernel.logits, rtol=1e-13, atol=1e-14)
        assert module.part() is kernel

    def test_trained_parameters_come_back(self, name, shape):
        kernel = kernels(shape)[name]
        net = to_torch(Block([Head(kernel, np.eye(2)), Head(kernel, np.eye(2), np.eye(2))]))
        numbers = [values for key, values in net.named_parameters() if "positions" in key]
        x = torch.randn(2, net.n, 2, dtype=torch.float64, generator=torch.manual_seed(0))
        (net(x) ** 3).sum().backward()
        assert all(torch.isfinite(values.grad).all() and values.grad.any() for values in numbers)
        with torch.no_grad():
            for values in numbers:
                values *= 1.01
        again = export(net)
        assert relative(again.forward(x.numpy()), net(x).detach().numpy()) <= 1e-12
        trained = again.heads[0].kernel
        assert type(trained.encoding) is type(kernel.encoding) or name == "swin all round"
        assert len(trained.terms) == len(kernel.terms)
        if name == "lobes":
            assert trained.encoding.width == kernel.encoding.width * 1.01


def test_the_parameters_of_an_encoding_train():
    """Attention of a wider lobe is learned by its width."""
    x = torch.randn(5, 16, 2, dtype=torch.float64, generator=torch.manual_seed(1))
    wide, narrow = (Block([Head(Kernel.gaussian_lobes(16, 4, width, 2.0), -np.eye(2))]) for width in (2.0, 1.0))
    net, target = to_torch(narrow), to_torch(wide)(x).detach()
    width = net.attention[0].positions[0].encoding.width
    optimiser = torch.optim.Adam([width], lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        ((net(x) - target) ** 2).mean().backward()
        optimiser.step()
    assert export(net).heads[0].kernel.encoding.width == pytest.approx(2.0, abs=1e-3)


@dataclass(frozen=True, eq=False)
class Notch(Encoding):
    """An encoding of the user's own whose logits numpy alone computes."""

    depth: float

    def logits(self, shape):
        logits = np.zeros(shape)
        logits.flat[0] = -self.depth
        return logits


def test_an_encoding_without_a_formula_trains_its_logits():
    block = Block([Head(Kernel.of(Notch(2.0), 6), np.eye(2), np.eye(2))])
    x = np.random.default_rng(16).normal(size=(6, 2))
    net = to_torch(block)
    assert relative(net(torch.tensor(x)).detach().numpy(), block.forward(x)) <= 1e-14
    assert export(net).heads[0].kernel.encoding.depth == 2.0
    assert [name for name, _ in net.named_parameters() if "positions" in name] == ["attention.0.positions.0.logits"]
