"""Three faces of one block: J(q) in closed form and by sympy, against the automatic derivative of the forward map.

The automatic one is a complex step of `Block.forward` along every entry of the state, projected on plane waves. The
others are compared with it wavenumber by wavenumber: the union of their spectra would not tell J(q) from its conjugate.
"""

import itertools
import zlib

import numpy as np
import pytest
from conftest import SMOOTH

from dispersion import (
    Block,
    DyT,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    RMSNorm,
    Rotary,
    alibi_slopes,
    dispersion_relation,
    mask_logits,
    relu_mlp,
)
from dispersion.block.encodings import BUILT_IN
from dispersion.symbolic import symbolic_jacobian

CLOSE = 5e-11  # two faces that are this close to the third are within 1e-10 of each other

RING, TORUS = (7,), (4, 5)
"""Tokens for the numeric face, besides the small ones."""

SMALL = {RING: (3,), TORUS: (2, 3)}
"""Tokens for the symbolic face."""


# --- encodings: shape, rng → the arguments of a head ----------------------------------------------------------------


def of_kernel(make):
    """An encoding that is a kernel made from the tokens, n on a ring, and random numbers."""

    def arguments(shape, rng, d):
        kernel = make(shape[0] if len(shape) == 1 else shape, rng)
        return {"kernel": kernel, "content": rng.normal(size=(d, d))}

    return arguments


def rotary(pairing, biased=False, **extra):
    """A rotary encoding on the grid, besides a table."""

    def arguments(shape, rng, d):
        turns = rng.integers(-1, 2, size=(2, len(shape))) + np.eye(2, len(shape), dtype=int)
        query, key = 0.7 * rng.normal(size=(2, 4, d))
        biases = rng.normal(size=(2, 4)) if biased else ()
        encoding = Rotary(query, key, 2 * np.pi * turns / np.array(shape), pairing, *biases)
        return {"kernel": Kernel.table(rng.normal(size=shape)), "rotary": encoding, **extra}

    return arguments


def gate(shape, rng, d):
    return of_kernel(table)(shape, rng, d) | {"gate": 0.3}


def key_bias(shape, rng, d):
    return of_kernel(table)(shape, rng, d) | {"key_bias": rng.normal(size=d)}


def bias(shape, rng, d):
    """An N×N mask that is a function of the lag, written out pair by pair, besides a table."""
    m = rng.normal(size=shape)
    tokens = np.array(list(np.ndindex(shape)))
    pairs = [[m[tuple((i - j) % shape)] for j in tokens] for i in tokens]
    return of_kernel(table)(shape, rng, d) | {"bias": mask_logits(pairs)}


def table(n, rng):
    return Kernel.table(rng.normal(size=n))


def window(n, rng):
    """As wide as fits, M = (N + 1)/2 rounded down: on an even axis it leaves out the lag −N/2."""
    sizes = (n,) if isinstance(n, int) else n
    return Kernel.swin(n, rng.normal(size=[2 * ((size + 1) // 2) - 1 for size in sizes]))


def mlp(rng):
    return relu_mlp(rng.normal(size=4), rng.normal(size=4), 2 * rng.normal(size=4))


ENCODINGS = {
    "uniform": (RING, of_kernel(lambda n, rng: Kernel.uniform(n))),
    "table": (RING, of_kernel(table)),
    "table, torus": (TORUS, of_kernel(table)),
    "gaussian_lobes": (RING, of_kernel(lambda n, rng: Kernel.gaussian_lobes(n, 1.4, 0.8, 2.0))),
    "skewed_lobe": (RING, of_kernel(lambda n, rng: Kernel.skewed_lobe(n, 0.8, 0.5, 1.5, 2.0))),
    "alibi": (RING, of_kernel(lambda n, rng: Kernel.alibi(n, alibi_slopes(8)[0]))),
    "alibi, causal": (RING, of_kernel(lambda n, rng: Kernel.alibi(n, alibi_slopes(8)[0], causal=True))),
    "von_mises": (RING, of_kernel(lambda n, rng: Kernel.von_mises(n, 1, 1.3, phase=0.6))),
    "von_mises, torus": (TORUS, of_kernel(lambda n, rng: Kernel.von_mises(n, (1, 1), 1.3, phase=0.6))),
    "convit": (RING, of_kernel(lambda n, rng: Kernel.convit(n, 0.7, 0.4))),
    "convit, torus": (TORUS, of_kernel(lambda n, rng: Kernel.convit(n, (0.7, -0.4), 0.4))),
    "convit_learned": (TORUS, of_kernel(lambda n, rng: Kernel.convit_learned(n, [-0.3, 0.5, 0.8]))),
    "t5": (RING, of_kernel(lambda n, rng: Kernel.t5(n, rng.normal(size=8), 5))),
    "t5, decoder": (RING, of_kernel(lambda n, rng: Kernel.t5(n, rng.normal(size=4), 5, bidirectional=False))),
    "kerple_log": (RING, of_kernel(lambda n, rng: Kernel.kerple_log(n, 1.5, 0.7))),
    "kerple_log, causal": (RING, of_kernel(lambda n, rng: Kernel.kerple_log(n, 1.5, 0.7, causal=True))),
    "kerple_power": (RING, of_kernel(lambda n, rng: Kernel.kerple_power(n, 0.4, 1.5))),
    "swin": (TORUS, of_kernel(window)),
    "fire": (RING, of_kernel(lambda n, rng: Kernel.fire(n, mlp(rng), 0.8, 9))),
    "mask": (RING, of_kernel(lambda n, rng: Kernel.alibi(n, 0.3) + Kernel.mask(2 * rng.normal(size=n)))),
    "bias": (RING, bias),
    "bias, torus": (TORUS, bias),
    "rotary, half": (RING, rotary("half")),
    "rotary, interleaved": (RING, rotary("interleaved")),
    "rotary, torus": (TORUS, rotary("half")),
    "rotary, biased": (RING, rotary("half", biased=True)),
    "key_bias": (RING, key_bias),
    "gate": (RING, gate),
    "gate, torus": (TORUS, gate),
    "gate, rotary": (RING, rotary("interleaved", gate=0.4)),
}

WITHOUT_SYMBOLIC = {"rotary, biased", "key_bias"}
"""Encodings that have no symbolic face yet."""

MIRRORED = {"uniform", "gaussian_lobes", "alibi", "kerple_log", "kerple_power"}
"""Encodings with A_r = A_{−r}, whose λ(q) is real."""


# --- normalisations: d, rng → the arguments of a block ---------------------------------------------------------------


def both(norm, placement="pre", **settings):
    def arguments(d, rng):
        norms = [norm(rng.uniform(0.5, 1.5, size=d), rng.normal(size=d), **settings) for _ in range(2)]
        return {"attention_norm": norms[0], "feedforward_norm": norms[1], "placement": placement}

    return arguments


# LayerNorm of one feature is constant: with d = 1 its J(q) does not depend on q
NORMS = {
    "none": lambda d, rng: {},
    "pre-LN": both(LayerNorm, eps=0.2),
    "post-LN": both(LayerNorm, "post", eps=0.2),
    "RMSNorm": both(RMSNorm, eps=0.2),
    "DyT": both(DyT, alpha=0.8),
}


def block_and_state(shape, encoding, norm, heads, d):
    """Random weights, the same at each call. The second head is a table: λ_2 is complex, and the M_h do not commute."""
    rng = np.random.default_rng([*shape, zlib.crc32(f"{encoding} {norm}".encode()), heads, d])
    made = [ENCODINGS[encoding][1](shape, rng, d)] + [of_kernel(table)(np.array(shape), rng, d)] * (heads - 1)
    attention = [Head(value=rng.normal(size=(d, d)) / np.sqrt(d), **arguments) for arguments in made]
    sizes = (d + 1, d), (d, d + 1), d + 1, d
    weights = [rng.normal(size=size) / np.sqrt(d) for size in sizes]
    feedforward = FeedForward(weights[0], weights[1], "tanh", weights[2], weights[3])
    return Block(attention, feedforward, 0.8, **NORMS[norm](d, rng)), rng.normal(size=d)


def waves(shape):
    """(N, N) the entries e^{iq·j} of each plane wave, k by row and j by column, and the k in that order."""
    tokens = np.array(list(np.ndindex(shape)))
    return np.exp(2j * np.pi * (tokens / shape) @ tokens.T), [tuple(k.tolist()) for k in tokens]


def automatic(block, a):
    """(N, N, d, d): entry [k, l] takes e_{q_l} v to its component on e_{q_k}, from derivatives of the forward pass."""
    n, d, step = block.n, block.d, 1e-30
    units = np.eye(n * d).reshape(n * d, n, d)
    jacobian = (block.forward(a + 1j * step * units).imag / step).reshape(n, d, n, d)  # [j, β, i, α]
    e, _ = waves(block.shape)
    return np.einsum("ki,jbia,lj->klab", e.conj(), jacobian, e) / n


def numeric(block, a):
    """J(q) from the closed form, on the grid and by calling the relation there."""
    relation = dispersion_relation(block, a)
    called = relation(relation.wavenumbers)
    np.testing.assert_allclose(called, relation.matrices, rtol=0, atol=1e-13)
    return {k: relation.matrices[k] for k in np.ndindex(block.shape)}


def symbolic(block, a):
    """J(q) by sympy: at the largest k, where it is complex; for one scalar head on a ring at the smaller ones too."""
    largest = tuple(n // 2 for n in block.shape)
    every = len(largest) == block.d == len(block.heads) == 1
    k = itertools.product(range(largest[0] + 1)) if every else [largest]
    return {at: symbolic_jacobian(block, at[0] if len(at) == 1 else at, a) for at in k}


def quick(number, encoding):
    """The (norm, heads, d) for which the symbolic face of an encoding, the one of this number, is tried by default."""
    if ENCODINGS[encoding][0] == TORUS:
        return {("RMSNorm", 1, 1)}
    if encoding == "table":
        return {("none", 2, 2), ("pre-LN", 1, 2), ("post-LN", 1, 2)}
    if encoding.split(",")[0] in ("bias", "rotary", "gate"):
        return {(list(NORMS)[number % len(NORMS)], 1, 2)}
    return {(("none", "RMSNorm", "DyT")[number % 3], 1 + number % 2, 1)}


def cases():
    """Every combination for the numeric face. For the symbolic one d ≤ 2, and d = 5 with one encoding for each
    normalisation; on a torus d = 2 with one normalisation for each encoding.
    """
    wide = dict(zip(NORMS, ("rotary, half", "alibi, causal", "gate", "bias", "convit"), strict=True))
    for (number, encoding), (turn, norm), heads, d in itertools.product(
        enumerate(ENCODINGS), enumerate(NORMS), (1, 2), (1, 2, 5)
    ):
        yield pytest.param("numeric", encoding, norm, heads, d)
        if encoding in WITHOUT_SYMBOLIC:
            continue
        affordable = ENCODINGS[encoding][0] == RING or number % len(NORMS) == turn
        if d == 1 or (d == 2 and affordable) or (d == 5 and encoding == wide[norm]):
            marks = () if (norm, heads, d) in quick(number, encoding) else pytest.mark.exhaustive
            if not marks and not encoding.startswith("table") and (d == 2 or ENCODINGS[encoding][0] == TORUS):
                marks = pytest.mark.slow
            yield pytest.param("symbolic", encoding, norm, heads, d, marks=marks)


@pytest.mark.parametrize(("face", "encoding", "norm", "heads", "d"), list(cases()))
def test_a_face_agrees_with_the_automatic_derivative(face, encoding, norm, heads, d):
    shape = ENCODINGS[encoding][0]
    for tokens in (SMALL[shape], shape) if face == "numeric" else (SMALL[shape],):
        block, a = block_and_state(tokens, encoding, norm, heads, d)
        derived, k = automatic(block, a), waves(tokens)[1]
        for at, J in {"numeric": numeric, "symbolic": symbolic}[face](block, a).items():
            place = k.index(at)
            assert np.abs(J - derived[place, place]).max() < CLOSE
            derived[place, place] = 0
        if face == "numeric":
            assert np.abs(derived).max() < CLOSE  # plane waves do not mix


@pytest.mark.parametrize(
    "activation", [pytest.param(name, marks=pytest.mark.slow if name == "gelu_tanh" else ()) for name in SMOOTH]
)
@pytest.mark.parametrize("gated", [False, True])
def test_feedforwards(random_block, activation, gated):
    """Each smooth activation, with a gate and without, at d = 2."""
    block, a = random_block(2, 3, 2, 1, activation, 3, gated), np.array([0.4, -0.7])
    derived = automatic(block, a)
    for face in (numeric, symbolic):
        for (k,), J in face(block, a).items():
            assert np.abs(J - derived[k, k]).max() < CLOSE
            assert k == 0 or np.abs(J.imag).max() > 1e-3


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("heads", [1, 2])
def test_a_conjugate_would_not_pass(encoding, heads):
    """On both sizes, but for mirror-symmetric encodings alone, whose J(q) is real."""
    for tokens in (ENCODINGS[encoding][0], SMALL[ENCODINGS[encoding][0]]):
        imaginary = dispersion_relation(*block_and_state(tokens, encoding, "none", heads, 2)).matrices.imag
        if heads == 1 and encoding in MIRRORED:
            assert not imaginary.any()
        else:
            assert np.abs(imaginary).max() > 1e-3


def test_every_constructor_of_a_kernel_is_among_the_encodings():
    constructors = set(BUILT_IN)
    assert constructors <= {name.split(",")[0] for name in ENCODINGS}
