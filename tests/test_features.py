"""Every feature of a block, one at a time, in everything that takes a block: it is honoured or refused, never ignored.

The truth is the forward map alone, by complex steps and by iteration; the map itself is compared with the equations
written out token by token.
"""

from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import linalg, optimize

from amplitude import (
    balloon,
    branch,
    cluster_state,
    clusters,
    competition,
    find_state,
    homogeneous_state,
    normal_form,
    partitions,
    period_four,
    period_three,
    period_two,
    standing_wave,
    travelling_wave,
)
from amplitude.normal_forms.manifold import feature_gauge
from dispersion import (
    Activation,
    ArgumentError,
    Block,
    Chain,
    DyT,
    ExclusionError,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    RMSNorm,
    Rotary,
    along_orbit,
    asymptotic_rate,
    attention_spectrum,
    chain_spectrum,
    derivative,
    dispersion_relation,
    fixed_points,
    full_jacobian,
    leading_multipliers,
    orbit,
    pseudospectrum,
    stability,
    tail_bound,
    through_layers,
)
from dispersion.block.derivative import value_and_jacobian
from dispersion.grid import grid_lags
from dispersion.symbolic import symbolic_jacobian
from simulate import iterate, iterate_many, sweep
from simulate.engines.choice import engine_of

RING, TORUS, AXIS = (7,), (2, 3), (1, 6)


# --- features: what each changes in the arguments of a head and of a block -------------------------------------------


def of_head(**make):
    """A feature of the head: name of the argument → function of (rng, shape, d)."""
    return {"head": make}


def of_block(**make):
    """A feature of the block, likewise."""
    return {"block": make}


def vector(rng, shape, d):
    return rng.normal(size=d)


def by_lag(rng, shape, d):
    """(N, N) a bias that is a function of the lag."""
    return toeplitz(rng.normal(size=shape))


def removing(rng, shape, d):
    """The same, which removes one lag."""
    table = rng.normal(size=shape)
    table.flat[1] = -np.inf
    return toeplitz(table)


def toeplitz(table):
    tokens = np.array(list(np.ndindex(table.shape)))
    return np.array([[table[tuple((i - j) % table.shape)] for j in tokens] for i in tokens])


def by_pair(rng, shape, d):
    return rng.normal(size=(np.prod(shape), np.prod(shape)))


def rotary(pairing, *biased, **settings):
    """Rotary instead of bilinear content; `biased`: which of the queries and keys have biases."""

    def make(rng, shape, d):
        turns = rng.integers(1, 3, size=(2, len(shape)))
        biases = {name: rng.normal(size=4) for name in biased}
        return Rotary(*rng.normal(size=(2, 4, d)), 2 * np.pi * turns / np.array(shape), pairing, **biases)

    return of_head(rotary=make, content=lambda *_: None, **settings)


def kernel(removed=(), causal=False):
    def make(rng, shape, d):
        logits = rng.normal(size=shape)
        logits.flat[list(removed)] = -np.inf
        return Kernel.table(logits, causal)

    return of_head(kernel=make)


def norm(kind, placement, *names, **settings):
    def make(rng, shape, d):
        return kind(rng.uniform(0.6, 1.4, d), 0.4 * rng.normal(size=d), **settings)

    return of_block(placement=lambda *_: placement, **dict.fromkeys(names, make))


def feedforward(m, act="tanh", *, bias_in=False, bias_out=False, gate=False, bias_gate=False):
    def make(rng, shape, d):
        weights = rng.normal(size=(m, d)), -0.3 * rng.normal(size=(d, m)) / m
        biases = 0.6 * rng.normal(size=m) if bias_in else None, 0.2 * rng.normal(size=d) if bias_out else None
        gates = rng.normal(size=(m, d)) if gate else None, rng.normal(size=m) if bias_gate else None
        return FeedForward(*weights, act, *biases, *gates)

    return of_block(feedforward=make)


def always(value):
    return lambda *_: value


POLYNOMIAL = Activation.polynomial([0.5, 0.3, -0.2, 0.05])
NORMS = ("attention_norm", "feedforward_norm")

FEATURES = {
    "none": {},
    "two heads": {"heads": 2},
    "gate": of_head(gate=always(0.3)),
    "bias": of_head(bias=by_lag),
    "bias that removes a lag": of_head(bias=removing),
    "bias by pairs": of_head(bias=by_pair),
    "gate and bias": of_head(gate=always(0.3), bias=by_lag),
    "key_bias": of_head(key_bias=vector),
    "gate and key_bias": of_head(gate=always(0.3), key_bias=vector),
    "rotary": rotary("half"),
    "rotary, interleaved": rotary("interleaved"),
    "rotary, query_bias": rotary("half", "query_bias"),
    "rotary, key_bias": rotary("half", "key_bias"),
    "rotary, both biases": rotary("interleaved", "query_bias", "key_bias"),
    "rotary and gate": rotary("half", "query_bias", "key_bias", gate=always(0.4)),
    "rotary and bias": rotary("half", bias=by_lag),
    "attention_bias": of_block(attention_bias=vector),
    "attention_bias, scaled": of_block(attention_bias=vector, attention_scale=always(0.6)),
    "attention_scale": of_block(attention_scale=always(0.6)),
    "attention_scale < 0": of_block(attention_scale=always(-0.7)),
    **{
        f"{kind.__name__}, {placement}, {'both' if len(names) > 1 else names[0]}": norm(kind, placement, *names, **keys)
        for kind, keys in ((LayerNorm, {"eps": 0.1}), (RMSNorm, {"eps": 0.2}), (DyT, {"alpha": 0.8}))
        for placement in ("pre", "post")
        for names in (NORMS[:1], NORMS[1:], NORMS)
    },
    "window": kernel(removed=(3, 4)),
    "causal kernel": kernel(causal=True),
    "causal window": kernel(removed=(4, 5, 6), causal=True),
    "few hidden units": feedforward(1),
    "many hidden units": feedforward(6),
    "bias_in": feedforward(4, bias_in=True),
    "bias_out": feedforward(4, bias_out=True),
    "bias_in and bias_out": feedforward(4, bias_in=True, bias_out=True),
    "GLU": feedforward(4, gate=True),
    "SwiGLU with biases": feedforward(4, "silu", bias_in=True, bias_out=True, gate=True, bias_gate=True),
    "polynomial": feedforward(3, POLYNOMIAL, bias_in=True),
    **{name: feedforward(3, name, bias_in=True) for name in Activation.names() if name not in ("tanh", "polynomial")},
    "no feed-forward": of_block(feedforward=always(None)),
    "torus": {"shape": TORUS},
    "torus, an axis of one": {"shape": AXIS},
    "torus, bias": {"shape": TORUS, **of_head(bias=by_lag)},
    "torus, key_bias": {"shape": TORUS, **of_head(key_bias=vector)},
    "torus, rotary": {"shape": TORUS, **rotary("half", "query_bias", "key_bias")},
    "two tokens": {"shape": (2,)},
    "three tokens": {"shape": (3,)},
}


@lru_cache(maxsize=512)
def case(feature, d, shape=RING, seed=3):
    """(block, a): a block with one feature over a plain one, and a state that is not a fixed point."""
    changes, rng, extra = FEATURES[feature], np.random.default_rng(seed), np.random.default_rng([8, seed])
    shape = changes.get("shape", shape)
    heads = []
    for number in range(changes.get("heads", 1)):
        arguments = {"kernel": Kernel.table(1.2 * rng.normal(size=shape)), "value": 0.4 * rng.normal(size=(d, d))}
        arguments["content"] = rng.normal(size=(d, d))
        if number == 0:
            arguments |= {name: make(extra, shape, d) for name, make in changes.get("head", {}).items()}
        heads.append(Head(**arguments))
    parts = {"feedforward": FeedForward(rng.normal(size=(d, d)), -0.3 * rng.normal(size=(d, d)), "tanh")}
    parts |= {name: make(extra, shape, d) for name, make in changes.get("block", {}).items()}
    return Block(heads, **parts), 0.3 * rng.normal(size=d)


# --- the truth -------------------------------------------------------------------------------------------------------


def written_out(block, x, position, logits):
    """F(X) by Eqs. 1 and 2, token by token; `logits` (n, n) for each head, `position` (n, D) of the tokens."""
    seen = [x_i if block.placement == "post" else normed(block.attention_norm, x_i) for x_i in x]
    mixed = np.zeros_like(x)
    for head, b in zip(block.heads, logits, strict=True):
        for i, j_sum in enumerate(mixed):
            content = np.array([pair(head, seen[i], seen[j], position[i], position[j]) for j in range(len(x))])
            g = head.gate
            A = shares(content + b[i]) if g is None else (1 - g) * shares(content) + g * shares(b[i])
            j_sum += sum(A[j] * head.value @ seen[j] for j in range(len(x)))
    c = 0 if block.attention_bias is None else block.attention_bias
    y = x + block.attention_scale * (mixed + c)
    if block.placement == "pre":
        return np.array([v + phi(block.feedforward, normed(block.feedforward_norm, v)) for v in y])
    h = [normed(block.attention_norm, v) for v in y]
    return np.array([normed(block.feedforward_norm, v + phi(block.feedforward, v)) for v in h])


def pair(head, s_i, s_j, i, j):
    """The content logit of one pair of tokens."""
    if head.rotary is None:
        return s_i @ head.content @ s_j + (0 if head.key_bias is None else head.key_bias @ s_j)
    r, total = head.rotary, 0.0
    q = r.query @ s_i + (0 if r.query_bias is None else r.query_bias)
    k = r.key @ s_j + (0 if r.key_bias is None else r.key_bias)
    for m, theta in enumerate(r.frequencies):
        a, b = (m, m + len(q) // 2) if r.pairing == "half" else (2 * m, 2 * m + 1)
        # a rotation of the plane is a phase: Re conj(e^{iθi} q) e^{iθj} k
        total += (
            np.conj(np.exp(1j * theta @ i) * (q[a] + 1j * q[b])) * np.exp(1j * theta @ j) * (k[a] + 1j * k[b])
        ).real
    return total / np.sqrt(len(q))


def shares(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def normed(norm, v):
    if norm is None:
        return v
    if isinstance(norm, DyT):
        z = np.tanh(norm.alpha * v)
    else:
        v = v - v.mean() if isinstance(norm, LayerNorm) else v
        z = v / np.sqrt((v**2).mean() + norm.eps)
    return norm.gain * z + norm.bias


def phi(part, v):
    if part is None:
        return 0 * v
    inward = part.weight_in @ v + part.bias_in
    hidden = part.activation(inward)
    if part.weight_gate is not None:
        hidden = part.activation(part.weight_gate @ v + part.bias_gate) * inward
    return part.weight_out @ hidden + part.bias_out


def lag_table(head, lags):
    """Positional logits of `head` at whole `lags` (n, n, D) of its ring or torus."""
    index = tuple(np.moveaxis(lags % np.array(head.kernel.shape), -1, 0))
    logits = head.kernel.logits[index]
    if head.bias is None:
        return logits
    return logits + head.bias[np.ravel_multi_index(index, head.kernel.shape), 0]


def complex_step(forward, x):
    """(n·d, n·d) DF at the field `x` (n, d)."""
    n, d = x.shape
    units = np.eye(n * d).reshape(n * d, n, d)
    return (forward(x + 1e-30j * units).imag / 1e-30).reshape(n * d, n * d).T


def uniformly(a, n):
    return np.tile(a, (n, 1))


def field(n, d, seed=0, size=0.6):
    return size * np.random.default_rng(seed).normal(size=(n, d))


def jacobian(block, a):
    return complex_step(block.forward, uniformly(a, block.n))


def plane_waves(block, J):
    """(N, d, d) what J (N·d, N·d) does to each plane wave, in C order; none of it may leave the wave."""
    n, d = block.n, block.d
    tokens = np.array(list(np.ndindex(block.shape)))
    e = np.exp(2j * np.pi * (tokens / block.shape) @ tokens.T)
    parts = np.einsum("ki,iajb,lj->klab", e.conj(), J.reshape(n, d, n, d), e) / n
    assert np.abs(parts[~np.eye(n, dtype=bool)]).max(initial=0) < 1e-9
    return parts[np.arange(n), np.arange(n)]


def distance(values, truth):
    """The largest distance of two sets of numbers, each matched once."""
    values, truth = np.ravel(values), np.ravel(truth)
    assert values.shape == truth.shape
    gaps = np.abs(values[:, None] - truth)
    return gaps[optimize.linear_sum_assignment(gaps)].max()


def close(values, truth, tolerance=1e-9):
    np.testing.assert_allclose(values, truth, rtol=0, atol=tolerance * (1 + np.abs(truth).max()))


def fixed_state(block):
    """(d,) a with g(a) = a, up to what LayerNorm leaves free."""
    P = feature_gauge(block)
    Q = np.eye(block.d) - P
    for seed in range(30):
        start = np.random.default_rng(seed).normal(size=block.d)
        found = optimize.root(lambda a: P @ (block.homogeneous_map(P @ a) - P @ a) + Q @ a, start, tol=1e-14)
        a = P @ found.x
        if np.abs(P @ (block.homogeneous_map(a) - a)).max() < 1e-12 and np.abs(a).max() < 5:
            return a
    return None


# --- everything that takes a block: (block, a) → nothing, or an assertion fails -------------------------------------


def the_map(block, a):
    x, position = field(block.n, block.d), np.array(list(np.ndindex(block.shape)))
    lags = position[:, None] - position
    tables = [lag_table(replaced(head), lags) + (0 if head.bias is None else head.bias) for head in block.heads]
    close(block.forward(x), written_out(block, x, position, tables), 1e-12)


def replaced(head):
    """`head` without its bias."""
    return Head(head.kernel, head.value)


def homogeneous_maps(block, a):
    states = orbit(block, a, 2)
    close(uniformly(block.homogeneous_map(a), block.n), block.forward(uniformly(a, block.n)))
    for before, after in pairwise(states):
        close(uniformly(after, block.n), block.forward(uniformly(before, block.n)))


def dense_jacobian(block, a):
    close(full_jacobian(block, a), jacobian(block, a))


def multipliers(block, a):
    truth = np.linalg.eigvals(jacobian(block, a))
    assert distance(leading_multipliers(block, a, len(truth)), truth) < 1e-6
    if len(block.heads) == 1:
        assert distance(attention_spectrum(block, a).multipliers, truth) < 1e-6


def relation(block, a):
    found, J = dispersion_relation(block, a), jacobian(block, a)
    close(found.matrices.reshape(-1, block.d, block.d), plane_waves(block, J))
    assert abs(abs(found.leading().multiplier) - np.abs(np.linalg.eigvals(J)).max()) < 1e-9


def relation_off_the_grid(block, a):
    n, d = block.n, block.d
    response = jacobian(block, a).reshape(n, d, n, d)[:, :, 0]
    lags = grid_lags(block.shape, block.heads[0].kernel.causal).reshape(n, -1)
    q = np.random.default_rng(0).normal(size=(3, len(block.shape)))
    phases = np.exp(-1j * q @ lags.T)
    found, at = dispersion_relation(block, a), q if len(block.shape) > 1 else q[:, 0]
    close(found(at) - found.pointwise, np.einsum("qr,rab->qab", phases, response - at_token_0(found.pointwise, n)))
    for axis in range(len(block.shape)):
        slope = np.einsum("qr,rab->qab", -1j * lags[:, axis] * phases, response)
        close(derivative(found, at, axis), slope)


def at_token_0(matrix, n):
    return np.eye(n)[:, 0, None, None] * matrix


def along(block, a):
    second = block.homogeneous_map(a)
    product = jacobian(block, second) @ jacobian(block, a)
    for propagator in (along_orbit(block, a, 2), through_layers([block, replace(block)], a)):
        close(propagator.matrices.reshape(-1, block.d, block.d), plane_waves(block, product))
        close(propagator.gain[-1].max(), np.linalg.norm(product, 2))


def rate(block, a):
    close(asymptotic_rate(block, a, settle=0, layers=1).max(), np.log(np.linalg.norm(jacobian(block, a), 2)))


def homogeneous_states(block, a):
    for point in fixed_points(block, starts=4):
        state = uniformly(point.state, block.n)
        close(block.forward(state), state)
        slopes = complex_step(block.forward, state).reshape(block.n, block.d, block.n, block.d)[0].sum(axis=1)
        assert distance(point.multipliers, np.linalg.eigvals(slopes)) < 1e-6


def any_state(block, a):
    x = field(block.n, block.d)
    image, slope = value_and_jacobian(block, x)
    close(image, block.forward(x))
    close(slope, complex_step(block.forward, x), 1e-10)


def manifold(block, a):
    """X(f(z)) = F(X(z)) up to z⁴: the error falls 2⁴-fold where z is halved, and 2³-fold if a cubic term is wrong."""
    P, found = feature_gauge(block), dispersion_relation(block, a)
    modes = [mode for mode in found.modes(2 * block.n) if np.abs(P @ mode.right).max() > 1e-6]
    mode = next((mode for mode in modes if np.any(mode.k)), modes[0])
    form, errors = normal_form(block, mode, 3, a), []
    for size in (0.02, 0.01):
        z = size * np.where(form.map.complex_modes, 0.6 + 0.4j, 1.0)
        errors.append(np.abs((form.field_at(form.map(z)) - block.forward(form.field_at(z))) @ P).max())
    assert errors[1] < 1e-14 or errors[0] > 13 * errors[1]


def exact_state(block, a):
    if not np.array_equal(feature_gauge(block), np.eye(block.d)):
        return  # LayerNorm leaves the mean over features free: no state is isolated
    found = find_state(block, uniformly(a, block.n), "steady")
    close(block.forward(found.field), found.field)
    assert distance(found.multipliers, np.linalg.eigvals(complex_step(block.forward, found.field))) < 1e-5
    path = branch(lambda p: replace(block, attention_scale=p * block.attention_scale), [1, 1.01, 1.02], found)
    for p, point in zip(path.values, path.states, strict=True):
        scaled = replace(block, attention_scale=p * block.attention_scale)
        close(scaled.forward(point.field), point.field)


def engine(block, a):
    start = field(block.n, block.d, size=0.4)
    states = [start]
    for _ in range(4):
        states.append(block.forward(states[-1]))
    close(iterate(block, 4, start, tolerance=None, every=1).states, np.array(states))
    close(iterate_many(block, np.stack([start, start]), 4, tolerance=None)[1].state, states[-1])


def swept(block, a):
    start = field(block.n, block.d, size=0.4)
    data = sweep(lambda p: block, {"p": [0]}, 2, start, tolerance=None, progress=False, measure=["state", *CRITICAL])
    close(data.state.values.reshape(block.n, block.d), block.forward(block.forward(start)))
    try:
        truth = np.abs(np.linalg.eigvals(jacobian(block, np.zeros(block.d)))).max()
        dispersion_relation(block)
    except ArgumentError:
        assert np.isnan(data.critical_growth.item())
    else:
        close(data.critical_growth.item(), truth, 1e-7)


CRITICAL = ("critical_growth", "critical_wavenumber")


def module(block, a):
    torch = pytest.importorskip("torch")
    from models import export, to_torch

    x = field(block.n, block.d)
    net = to_torch(block)
    close(net(torch.tensor(x)).detach().numpy(), block.forward(x), 1e-12)
    np.testing.assert_array_equal(export(net).forward(x), block.forward(x))


def measured(block, a):
    pytest.importorskip("torch")
    from models import measure, to_torch

    found = measure(to_torch(block), a, block.shape)
    J = jacobian(block, a).reshape(block.n, block.d, block.n, block.d)
    close(found.response.reshape(-1, block.d, block.d), J[:, :, 0])


CONSUMERS = {
    maker.__name__: maker
    for maker in (
        the_map,
        homogeneous_maps,
        dense_jacobian,
        multipliers,
        relation,
        relation_off_the_grid,
        along,
        rate,
        homogeneous_states,
        any_state,
        manifold,
        exact_state,
        engine,
        swept,
        module,
        measured,
    )
}

AT_A_FIXED_POINT = ("manifold", "exact_state")
"""What is given a homogeneous fixed point, not just any state."""

BY_WAVENUMBER = ("relation", "relation_off_the_grid", "along", "rate", "manifold")
"""What needs attention that depends on i − j alone."""


def fixed_case(feature, d):
    """The first `case` that has a homogeneous fixed point, and that."""
    cases = (case(feature, d, seed=seed)[0] for seed in range(3, 33))
    return next((block, a) for block in cases if (a := fixed_state(block)) is not None)


def refused(consumer, feature):
    """Whether an ArgumentError is the right answer."""
    if feature == "bias by pairs":
        return consumer in BY_WAVENUMBER
    return feature == "relu" and consumer == "manifold"


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_feature_is_honoured_or_refused(consumer, feature):
    for d in (2,) if consumer in ("module", "measured") else (1, 2):
        block, a = (fixed_case if consumer in AT_A_FIXED_POINT else case)(feature, d)
        if consumer in ("engine", "swept") and engine_of(block).together and feature in Activation.names():
            continue  # one compilation each: tests/test_simulate_engine.py has them
        if d == 1 and feature.startswith("LayerNorm"):
            continue  # LayerNorm of one feature is a constant
        if refused(consumer, feature):
            with pytest.raises(ArgumentError):
                CONSUMERS[consumer](block, a)
        else:
            CONSUMERS[consumer](block, a)


WITHOUT_SYMBOLS = [name for name in FEATURES if "key_bias" in name or "query_bias" in name or "both biases" in name]
WITHOUT_SYMBOLS += ["rotary and gate", "torus, rotary", "attention_bias", "attention_bias, scaled"]


@pytest.mark.parametrize("feature", WITHOUT_SYMBOLS)
def test_the_symbolic_derivative_refuses_what_it_has_no_form_for(feature):
    """The others are in tests/test_three_faces.py."""
    block, a = case(feature, 1, (3,))
    with pytest.raises(ArgumentError):
        symbolic_jacobian(block, (1, 1) if len(block.shape) > 1 else 1, a)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_file_keeps_the_feature(feature, tmp_path):
    for d in (1, 2):
        block, _ = case(feature, d)
        block.save(tmp_path / "block.toml")
        x = field(block.n, d)
        np.testing.assert_array_equal(Block.load(tmp_path / "block.toml").forward(x), block.forward(x))


# --- chains ----------------------------------------------------------------------------------------------------------

ON_A_CHAIN = [name for name in FEATURES if "torus" not in name and "tokens" not in name] + ["rotary, off the grid"]


def chain_case(feature, d):
    if feature != "rotary, off the grid":
        return case(feature, d, (9,))
    block, a = case("rotary, both biases", d, (9,))
    turned = block.heads[0].rotary
    rotary = Rotary(turned.query, turned.key, [0.37, 1.1], turned.pairing, turned.query_bias, turned.key_bias)
    return replace(block, heads=(Head(block.heads[0].kernel, block.heads[0].value, rotary=rotary),)), a


@pytest.mark.parametrize("boundary", ["open", "causal", "periodic"])
@pytest.mark.parametrize("feature", ON_A_CHAIN)
def test_a_chain_honours_or_refuses(feature, boundary):
    for d in (1, 2):
        block, a = chain_case(feature, d)
        n = block.n if boundary == "periodic" else 5
        if "gate" in feature or feature == "bias by pairs" or (feature.endswith("off the grid") and n == block.n):
            with pytest.raises(ArgumentError):
                Chain(block, n, boundary)
            continue
        chain, x, position = Chain(block, n, boundary), field(n, d), np.arange(n)[:, None]
        lag, tables = position - position.T, []
        for head in block.heads:
            ends = head.kernel.lags.min(), head.kernel.lags.max()
            there = (boundary == "periodic") | (
                (lag >= ends[0]) & (lag <= ends[1]) & (lag >= -n * (boundary == "open"))
            )
            tables.append(np.where(there, lag_table(head, lag[..., None]), -np.inf))
        close(chain.forward(x), written_out(block, x, position, tables), 1e-12)
        the_linear_chain(chain, a)
        path, state = iterate(chain, 2, x, tolerance=None), chain.forward(chain.forward(x))
        close(path.state, state)


def the_linear_chain(chain, a):
    n, d, block = chain.n, chain.d, chain.block
    state = uniformly(a, n)
    J = complex_step(chain.forward, state)
    close(chain.jacobian(a), J)
    C, seen = block.pointwise_jacobian(block.attended(a)), block.seen_jacobian(a)
    parts = [block.attention_scale * C @ head.value @ seen for head in block.heads]
    close(np.kron(np.eye(n), C) + sum(map(np.kron, chain.attention(a), parts)), J)
    points = np.array([1.2 + 0.3j, -0.4j])
    truth = [np.linalg.svd(z * np.eye(n * d) - J, compute_uv=False)[-1] for z in points]
    close(pseudospectrum(chain, points, a).smallest, truth, 1e-7)
    if chain.boundary != "periodic":
        assert distance(chain_spectrum(chain, a), np.linalg.eigvals(J)) < 1e-3


SHORT = np.abs(np.fft.fftfreq(9, 1 / 9)) <= 1


@pytest.mark.parametrize("boundary", ["open", "causal"])
@pytest.mark.parametrize(
    "feature", [name for name in ON_A_CHAIN if name in ("none", "two heads") or "bias" in name or "rotary" in name]
)
def test_a_verdict_honours_the_feature(feature, boundary):
    block, a = chain_case(feature, 1)
    if "gate" in feature or feature == "bias by pairs":
        with pytest.raises(ArgumentError):
            stability(block, boundary, a)
        return
    heads = [replace_kernel(head, np.where(SHORT, head.kernel.logits, -np.inf)) for head in block.heads]
    block, n = replace(block, heads=tuple(heads)), 9
    chain = Chain(block, n, boundary)
    row = complex_step(chain.forward, uniformly(a, n))[n // 2]
    q = np.linspace(0, np.pi, 2001)
    verdict = stability(block, boundary, a)
    close(verdict.homogeneous, abs(row.sum()))
    close(verdict.periodic, np.abs(np.exp(-1j * q[:, None] * (n // 2 - np.arange(n))) @ row).max(), 1e-5)


def replace_kernel(head, logits):
    content = None if head.rotary else head.content
    return Head(Kernel.table(logits), head.value, content, head.rotary, head.gate, head.bias, head.key_bias)


# --- closed forms: d = 1 on a ring, nothing beyond Eqs. 1 and 2 ------------------------------------------------------

PLAIN = [
    "none",
    "two heads",
    "attention_scale",
    "causal kernel",
    "many hidden units",
    "bias_in",
    "bias_out",
    "polynomial",
]
PLAIN += ["SwiGLU with biases", "gelu"]


def scalar(feature, n, symmetric):
    """(block, a) of n tokens with the feature, and a stable homogeneous fixed point a: closed forms are made there."""
    for seed in range(60):
        block, _ = case(feature, 1, (n,), seed)
        heads = []
        for head in block.heads:
            logits = head.kernel.logits
            logits = logits + np.roll(logits[::-1], 1) if symmetric else logits
            heads.append(Head(Kernel.table(logits, head.kernel.causal), -0.3 * abs(head.value), head.content))
        block = replace(block, heads=tuple(heads))
        a = fixed_state(block)
        if a is not None and dispersion_relation(block, a).growth.max() < 0.99:
            return block, a
    raise AssertionError


def form_of(block, a, *ks):
    """The terms of the normal form of the modes `ks`, which `manifold` checks against the map."""
    found = dispersion_relation(block, a)
    return [defaultdict(complex, terms) for terms in normal_form(block, [found.mode(k) for k in ks], 3, a).coefficients]


@pytest.mark.parametrize("feature", PLAIN)
def test_a_closed_form_honours_the_feature(feature):
    block, a = scalar(feature, 12, symmetric=True)
    close(standing_wave(block, 2, state=a).coefficient, form_of(block, a, 2)[0][2, 1])
    close(period_two(block, state=a).gamma, form_of(block, a, 6)[0][(3,)])
    three, four = period_three(block, state=a), period_four(block, state=a)
    close([three.a2, three.c1], [form_of(block, a, 4)[0][m] for m in ((0, 2), (2, 1))])
    close([four.c1, four.c3], [form_of(block, a, 3)[0][m] for m in ((2, 1), (0, 3))])
    u = 0.02 * np.cos(np.pi * (np.arange(12) + 0.5) / 12)
    g = [block.homogeneous_map(a + step)[0] - a[0] for step in u]
    whole = homogeneous_state(block, state=a)
    close([whole.multiplier, whole.b2, whole.b3], np.polynomial.polynomial.polyfit(u, g, 7)[1:4], 1e-4)
    block, a = scalar(feature, 12, symmetric=False)
    close(travelling_wave(block, 1, state=a).coefficient, form_of(block, a, 1)[0][2, 1])
    block, a = scalar(feature, 13, symmetric=False)
    pair = competition(block, 1, 5, state=a)
    one, two = form_of(block, a, 1, 5)
    truth = [[one[2, 1, 0, 0], one[1, 0, 1, 1]], [two[1, 1, 1, 0], two[0, 0, 2, 1]]]
    close(-pair.coefficients * np.exp(1j * np.angle(pair.multipliers))[:, None], np.array(truth))


UNIFORM = {
    "none": {},
    "two heads": {"heads": [Head(Kernel.uniform(6), -0.3, 0.3), Head(Kernel.uniform(6), -0.2, 0.1)]},
    "attention_scale": {"attention_scale": 0.7},
    "polynomial": {"feedforward": FeedForward([[1.0]], [[0.05]], Activation.polynomial([1, 0.05, -0.5, 0.1]))},
    "bias_in": {"feedforward": FeedForward([[1.2]], [[0.05]], "tanh", [0.1], [-0.05 * np.tanh(0.1)])},
}


@pytest.mark.parametrize("feature", UNIFORM)
def test_clusters_honour_the_feature(feature):
    parts = {"heads": [Head(Kernel.uniform(6), -0.6, 0.3)], "feedforward": FeedForward.scalar("tanh", 0.05)}
    block = Block(**(parts | UNIFORM[feature]))
    pair = Block([Head(Kernel.uniform(2), head.value, head.content) for head in block.heads], block.feedforward)
    pair = replace(pair, attention_scale=block.attention_scale)
    close(-clusters(block).beta, form_of(pair, np.zeros(1), 1)[0][(3,)])
    found = partitions(block)
    assert found
    for partition in found:
        state = partition.tokens[:, None]
        close(block.forward(state), state)
        assert distance(partition.multipliers, np.linalg.eigvals(complex_step(block.forward, state))) < 1e-7
    half = next(partition for partition in found if partition.counts[0] == 3)
    close(cluster_state(block, start=half.state.values).values, half.state.values)


CLOSED = [standing_wave, travelling_wave, competition, clusters, cluster_state, partitions]
SECTORS = [period_two, period_three, period_four, homogeneous_state]
BEYOND = [
    name for name in FEATURES if any(part in name for part in ("gate", "key_bias", "rotary", "Norm", "DyT", "torus"))
]
BEYOND += ["bias", "bias by pairs", "attention_bias"]


@pytest.mark.parametrize("function", CLOSED + SECTORS)
def test_a_closed_form_refuses_what_is_beyond_its_derivation(function):
    modes = {standing_wave: (2,), travelling_wave: (2,), competition: (1, 2)}.get(function, ())
    for feature in BEYOND:
        with pytest.raises(ExclusionError):
            function(case(feature, 1)[0], *modes)
    with pytest.raises(ExclusionError):
        function(case("none", 2)[0], *modes)


@pytest.mark.parametrize("feature", [*BEYOND, "GLU"])
def test_the_bound_on_tails_refuses_what_it_is_not_derived_for(feature):
    with pytest.raises(ArgumentError):
        tail_bound(case(feature, 1)[0], 1, 1, 1.0)


LOBES = Kernel.gaussian_lobes(16, 3, 1.0, 2.0)
PATTERNED = {
    "none": {},
    "attention_scale": {"attention_scale": 1.2},
    "attention_bias": {"attention_bias": [0.05]},
    "key_bias": {"heads": [Head(LOBES, -0.5, 1.5, key_bias=[0.6])]},
    "bias": {"heads": [Head(LOBES, -0.45, 1.5, bias=toeplitz(0.1 * LOBES.logits))]},
    "two heads": {"heads": [Head(LOBES, -0.4, 1.5), Head(Kernel.gaussian_lobes(16, 2, 1.0, 1.0), -0.1, 0.7)]},
    "bias_in": {"feedforward": FeedForward([[1.0]], [[-0.1]], "tanh", [0.2], [0.1 * np.tanh(0.2)])},
    "DyT": {"attention_norm": DyT([1.2], alpha=0.9)},
}


@pytest.mark.parametrize("feature", PATTERNED)
def test_a_balloon_honours_the_feature(feature):
    parts = {"heads": [Head(LOBES, -0.5, 1.5)], "feedforward": FeedForward.scalar("tanh", -0.1)} | PATTERNED[feature]
    block = Block(**parts)
    found = balloon(block, [3])
    a = fixed_points(block, starts=4)[0].state
    x = np.array(a + 0.1 * np.cos(2 * np.pi * 3 * np.arange(16) / 16)[:, None])
    for _ in range(1500):
        x = block.forward(x)
    close(found.amplitude[0, 0, 0], abs(np.fft.fft(x[:, 0])[3]) / 16, 1e-6)
    grown = linalg.eigvals(complex_step(block.forward, x))
    close(found.growth[0, 0, 0], np.abs(grown).max(), 1e-5)
