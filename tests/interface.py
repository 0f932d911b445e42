"""A valid call of every public callable: where fuzzers and other tests of the whole interface start from."""

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import amplitude
import dispersion
import simulate
from dispersion import (
    Activation,
    AttentionMask,
    Block,
    Chain,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    OutputValue,
    QueryKey,
    RMSNorm,
    Rotary,
)
from dispersion.block.encodings import BUILT_IN, ENCODINGS

PACKAGES = ("dispersion", "amplitude", "simulate")

MADE = {
    # classes of results, which functions make and users only read
    "dispersion": {"AttentionSpectrum", "Branches", "Dispersion", "FixedPoint", "Mode", "Normalisation", "Optimal"}
    | {"Encoding", "Propagator", "Pseudospectrum", "Verdict"},
    "amplitude": {"BalancedMap", "Balloon", "Bifurcation", "Branch", "ClusterState", "Clusters", "Competition"}
    | {"ExactState", "HomogeneousState", "NormalForm", "Oscillation", "Partition", "PeriodFour", "PeriodThree"}
    | {"PeriodTwo", "ScalarForms", "Solution", "Wave"},
    "simulate": {"Trajectory", "SweepInterrupted"},
}

RNG = np.random.default_rng(0)
W2 = np.array([[0.4, -0.3], [0.2, 0.5]])
A2 = np.array([0.3, -0.2])
X2 = RNG.normal(size=(6, 2))
W8 = RNG.normal(size=(8, 8))
STEPS = np.arange(6)[:, None]


def crest(path: Any) -> Any:
    """A measure of a Trajectory."""
    return np.abs(path.state).max()


def scalar(n: int = 8, k: int = 2, mu: float = 0.01, alpha: tuple[float, ...] = (-0.1, 0.1, -0.3)) -> Block:
    """A scalar block just above the onset of wavenumber k: content 1.5, lobes at ±N/2k."""
    kernel = Kernel.gaussian_lobes(n, n / (2 * k), 0.6, 2.0)
    gain = ((1 + mu) / (1 + alpha[0]) - 1) / kernel.symbol[k].real
    return Block([Head(kernel, gain, 1.5)], FeedForward.scalar(Activation.polynomial(alpha)))


def vector() -> Block:
    """Two heads, two features, all biases and both normalisations but no rotary encoding."""
    heads = [Head(Kernel.alibi(6, 0.5), W2, W2.T, key_bias=A2), Head(Kernel.table(np.arange(6.0) / 3), W2 - 1)]
    feedforward = FeedForward(W8[:3, :2], W8[:2, :3], "gelu", W8[3, :3], W8[4, :2])
    return Block(heads, feedforward, 0.5, LayerNorm(A2 + 1, A2, 0.1), RMSNorm(A2 + 2), "pre", A2)


@cache
def things() -> dict[str, Any]:
    """What calls are made of."""
    ring, block = scalar(), vector()
    plain = Block([Head(Kernel.alibi(6, 0.5), W2, W2.T)], FeedForward.elementwise("tanh", 2, -0.1))
    hexagon = scalar(6, 2)
    pi = Block([Head(Kernel.table([0, 2, 0, 0, 0, 0, 0, 2]), -0.1816, 1.5)], scalar().feedforward)
    flat = Block([Head(Kernel.uniform(8), -0.6, 1.5)], FeedForward.scalar(Activation.polynomial([0.01, 0.0, -0.3])))
    short = Kernel.table([-np.inf if 2 < r < 18 else 1.0 / (1 + r % 5) for r in range(21)])
    line = Block([Head(short, -0.4, 0.5)], FeedForward.scalar("tanh", -0.1))
    wave = scalar(16, 3, 0.02)
    skewed = Block([Head(Kernel.skewed_lobe(16, 2.0, 0.7, 2.0, 1.0), -1.13, 1.5)], FeedForward.scalar("tanh", -0.1))
    found = {
        "ring": ring,
        "block": block,
        "plain": plain,
        "hexagon": hexagon,
        "pi": pi,
        "flat": flat,
        "line": line,
        "wave": wave,
        "skewed": skewed,
        "relation": dispersion.dispersion_relation(plain),
        "scalar relation": dispersion.dispersion_relation(wave),
        "chain": Chain(line, 8, "open"),
        "rotary": Rotary(W8[:2, :2], W8[2:4, :2], [np.pi / 3], "half", A2, A2),
        "mode": dispersion.dispersion_relation(wave).leading(),
        "path": simulate.iterate(plain, 8, start=0.1),
    }
    found["form"] = amplitude.normal_form(wave, found["mode"], order=3)
    start = 2 * amplitude.standing_wave(wave, 3).amplitude * np.cos(2 * np.pi * 3 * np.arange(16) / 16)
    found["start"] = start
    found["state"] = amplitude.find_state(wave, start)
    found["branch"] = amplitude.branch(family, [0.02, 0.03], found["state"])
    return found


def family(mu: float) -> Block:
    """The block of `things()['wave']` at another distance from onset."""
    return scalar(16, 3, mu)


def small(eta: float) -> Block:
    """A block of a sweep."""
    return Block([Head(Kernel.alibi(4, 0.5), eta, 1.0)])


Call = tuple[Callable[..., Any], dict[str, Any]]


def calls() -> dict[str, Callable[[dict[str, Any]], Call]]:
    """How to make a valid call of each public callable, from `things`: label → (callable, its arguments by name)."""
    D, A, S = dispersion, amplitude, simulate
    x4 = np.array([0.1, -0.2, 0.3, 0.05])
    kernels = {
        "table": {"logits": [0.0, 1.0, -1.0, 0.5], "causal": False},
        "uniform": {"n": 6},
        "gaussian_lobes": {"n": 8, "separation": 2.0, "width": 1.0, "strength": 2.0},
        "skewed_lobe": {"n": 8, "separation": 2.0, "width_below": 0.7, "width_above": 2.0, "strength": 1.0},
        "von_mises": {"n": 8, "wavenumber": 2, "strength": 1.5, "phase": 0.3},
        "alibi": {"n": 8, "slope": 0.5, "causal": True},
        "kerple_log": {"n": 8, "r1": 1.0, "r2": 0.5, "causal": False},
        "kerple_power": {"n": 8, "r1": 1.0, "r2": 0.5, "causal": False},
        "fire": {"n": 4, "mlp": D.relu_mlp([1.0, -1.0], [0.1, 0.2], [0.3, 0.4]), "c": 1.0, "threshold": 8.0},
        "convit": {"shape": (4, 4), "centre": (1.0, 0.0), "strength": 0.5},
        "convit_learned": {"shape": (4, 4), "weights": [-0.5, 1.0, 0.3]},
        "t5": {"n": 8, "table": np.linspace(-1, 1, 8), "max_distance": 16, "bidirectional": True},
        "swin": {"shape": (8, 8), "table": np.linspace(-1, 1, 15).reshape(3, 5)},
        "mask": {"m": [0.0, 1.0, -1.0, 0.5], "causal": False},
    }
    encodings = [
        (ENCODINGS[name], {k: v for k, v in a.items() if k not in ("n", "shape")}, a.get("n", a.get("shape", 4)))
        for name, a in kernels.items()
        if name != "table"
    ]
    activations = [name for name in Activation.names() if name != "polynomial"]
    rotary = {"query": W8[:2, :2], "key": W8[2:4, :2], "frequencies": [np.pi / 3], "pairing": "half"}
    rotary |= {"query_bias": A2, "key_bias": A2}
    factors = {"query": W8[:1, :2], "key": W8[2:3, :2], "query_bias": A2[:1], "key_bias": A2[1:]}
    forward = {"weight_in": W8[:3, :2], "weight_out": W8[:2, :3], "activation": "silu", "bias_in": W8[0, :3]}
    forward |= {"bias_out": A2, "weight_gate": W8[3:6, :2], "bias_gate": W8[1, :3]}
    head = {"kernel": Kernel.alibi(6, 0.5), "value": W2, "content": W2.T, "gate": 0.3, "key_bias": A2}
    head |= {"bias": np.zeros((6, 6))}
    norm = {"gain": [1.0, 2.0], "bias": [0.1, 0.2]}
    balanced = {"alpha2": [0.1, 0.2], "alpha3": -0.3, "eta_chi": -0.9, "eta": -0.6}
    sweep = {
        "make_block": small,
        "parameters": {"eta": [0.1, 0.2]},
        "depth": 3,
        "start": 0.1,
        "rng": 0,
        "progress": False,
    }
    sweep |= {"tolerance": 1e-9, "measure": ["amplitude"], "group": 1}
    table: dict[str, Callable[[dict[str, Any]], Call]] = {
        **{f"dispersion.Kernel.{name}": lambda t, n=name, a=a: (getattr(Kernel, n), a) for name, a in kernels.items()},
        **{f"dispersion.Activation.{name}": lambda t, n=name: (getattr(Activation, n), {}) for name in activations},
        **{
            f"dispersion.{kind.__name__}{method}": lambda t, k=kind, m=method, a=a, s=shape: (
                {"": k, ".logits": k(**a).logits, ".parameters": k.parameters}[m],
                {"": a, ".logits": {"shape": s}, ".parameters": {}}[m],
            )
            for kind, a, shape in encodings
            for method in ("", ".logits", ".parameters")
        },
        "dispersion.about": lambda t: (D.about, {"meaning": "w", "unit": "tokens"}),
        "dispersion.Kernel.of": lambda t: (Kernel.of, {"encoding": D.Alibi(0.5), "n": 8}),
        "dispersion.Kernel": lambda t: (Kernel, {"logits": [0.0, 1.0, -np.inf], "causal": False}),
        "dispersion.Kernel.__call__": lambda t: (Kernel.alibi(8, 0.5), {"q": [0.1, 0.2j]}),
        "dispersion.Activation": lambda t: (Activation, {"name": "polynomial", "coefficients": (0.1, 0.2)}),
        "dispersion.Activation.__call__": lambda t: (Activation.gelu(), {"y": x4}),
        "dispersion.Activation.taylor": lambda t: (Activation.gelu().taylor, {"y": x4, "order": 3}),
        "dispersion.Activation.polynomial": lambda t: (Activation.polynomial, {"coefficients": [0.1, 0.2]}),
        "dispersion.Activation.of": lambda t: (Activation.of, {"activation": "tanh"}),
        "dispersion.Activation.names": lambda t: (Activation.names, {}),
        "dispersion.FeedForward": lambda t: (FeedForward, forward),
        "dispersion.FeedForward.__call__": lambda t: (FeedForward(**forward), {"y": X2}),
        "dispersion.FeedForward.jacobian": lambda t: (FeedForward(**forward).jacobian, {"y": A2}),
        "dispersion.FeedForward.taylor": lambda t: (t["ring"].feedforward.taylor, {"y": x4, "order": 3}),
        "dispersion.FeedForward.scalar": lambda t: (FeedForward.scalar, {"activation": "tanh", "scale": 0.2}),
        "dispersion.FeedForward.elementwise": lambda t: (
            FeedForward.elementwise,
            {"activation": "tanh", "d": 2, "scale": 0.2},
        ),
        "dispersion.Rotary": lambda t: (Rotary, rotary),
        "dispersion.QueryKey": lambda t: (QueryKey, factors),
        "dispersion.OutputValue": lambda t: (OutputValue, {"output": W8[:2, :3], "value": W8[:3, :2]}),
        "dispersion.OutputValue.values": lambda t: (OutputValue(W8[:2, :3], W8[:3, :2]).values, {"x": X2}),
        **{
            f"dispersion.OutputValue.{name}": lambda t, n=name: (
                getattr(OutputValue(W2), n),
                {"weights": np.eye(6), "x": X2},
            )
            for name in ("mix", "mix_transposed")
        },
        **{
            f"dispersion.{kind}.{name}": lambda t, k=kind, n=name, a=a: (
                getattr(t["rotary"] if k == "Rotary" else QueryKey(**factors), n),
                a,
            )
            for kind in ("QueryKey", "Rotary")
            for name, a in {
                "queries": {"x": X2, "position": STEPS},
                "keys": {"x": X2, "position": STEPS},
                "logits": {"x": X2, "position": STEPS},
                "query_slope": {"position": STEPS},
                "key_slope": {"position": STEPS},
                "lag_logits": {"a": A2, "lags": STEPS},
                "affine": {"lags": STEPS},
                "periodic_on": {"shape": (6,)},
            }.items()
        },
        "dispersion.Rotary.rotated": lambda t: (t["rotary"].rotated, {"u": X2, "angle": X2[:, :1]}),
        "dispersion.AttentionMask": lambda t: (AttentionMask, {"m": W8[:6, :6], "rows": "refuse"}),
        "dispersion.AttentionMask.of": lambda t: (
            AttentionMask.of,
            {"opened": np.tri(6, dtype=bool), "contrast": 4.0, "rows": "refuse"},
        ),
        "dispersion.AttentionMask.neutral": lambda t: (AttentionMask.neutral, {"n": 6}),
        "dispersion.MaskedSoftmax": lambda t: (D.MaskedSoftmax, {"query": A2, "keys": X2, "m": W8[0, :6]}),
        "dispersion.MaskedSoftmax.bounds": lambda t: (
            D.MaskedSoftmax(A2, X2, W8[0, :6]).bounds,
            {"query": 3.0, "keys": 9.0},
        ),
        "dispersion.Head": lambda t: (Head, head),
        "dispersion.Head.attention": lambda t: (Head(**head).attention, {"x": X2}),
        "dispersion.Head.lag_weights": lambda t: (Head(**head).lag_weights, {"a": A2}),
        "dispersion.Head.positional": lambda t: (Head(**head).positional, {}),
        "dispersion.Head.symbol": lambda t: (Head(**head).symbol, {"a": A2}),
        "dispersion.Head.symbol_at": lambda t: (Head(**head).symbol_at, {"q": 0.3, "a": A2}),
        "dispersion.Block": lambda t: (
            Block,
            {
                "heads": t["block"].heads,
                "feedforward": t["block"].feedforward,
                "attention_scale": 0.5,
                "attention_norm": t["block"].attention_norm,
                "feedforward_norm": None,
                "placement": "post",
                "attention_bias": A2,
            },
        ),
        "dispersion.Block.forward": lambda t: (t["block"].forward, {"x": X2}),
        "dispersion.Block.seen": lambda t: (t["block"].seen, {"x": X2}),
        "dispersion.Block.mix": lambda t: (t["block"].mix, {"attention": [np.eye(6), np.eye(6)], "seen": X2}),
        "dispersion.Block.pointwise": lambda t: (t["block"].pointwise, {"y": X2}),
        "dispersion.Block.pointwise_jacobian": lambda t: (t["block"].pointwise_jacobian, {"y": A2}),
        "dispersion.Block.seen_jacobian": lambda t: (t["block"].seen_jacobian, {"x": A2}),
        "dispersion.Block.jacobian": lambda t: (t["block"].jacobian, {"x": X2}),
        "dispersion.Block.attended": lambda t: (t["block"].attended, {"a": A2}),
        "dispersion.Block.homogeneous_map": lambda t: (t["block"].homogeneous_map, {"a": A2}),
        "dispersion.Block.homogeneous_state": lambda t: (t["block"].homogeneous_state, {"a": A2}),
        "dispersion.Block.save": lambda t: (t["block"].save, {"path": "block.toml"}),
        "dispersion.Block.load": lambda t: (Block.load, {"path": "nothing.toml"}),
        "dispersion.Chain": lambda t: (Chain, {"block": t["line"], "n": 8, "boundary": "open"}),
        "dispersion.Chain.attention": lambda t: (t["chain"].attention, {"state": 0.1}),
        "dispersion.Chain.forward": lambda t: (t["chain"].forward, {"x": np.arange(8.0)}),
        "dispersion.Chain.jacobian": lambda t: (t["chain"].jacobian, {"state": 0.1}),
        **{
            f"dispersion.{norm_}": lambda t, n=norm_, extra=extra: (getattr(D, n), {**norm, **extra})
            for norm_, extra in {"LayerNorm": {"eps": 0.1}, "RMSNorm": {"eps": 0.1}, "DyT": {"alpha": 0.5}}.items()
        },
        **{
            f"dispersion.{n}.{m}": lambda t, n=n, m=m, a=a: (
                getattr(getattr(D, n)(**norm) if a else getattr(D, n), m),
                a or {"d": 3},
            )
            for n in ("LayerNorm", "RMSNorm", "DyT")
            for m, a in {"identity": None, "__call__": {"x": X2}, "jacobian": {"x": A2}}.items()
        },
        "dispersion.dispersion_relation": lambda t: (D.dispersion_relation, {"block": t["block"], "state": A2}),
        "dispersion.Dispersion.__call__": lambda t: (t["relation"], {"q": [0.1, 0.5]}),
        "dispersion.Dispersion.leading": lambda t: (t["relation"].leading, {}),
        "dispersion.Dispersion.images": lambda t: (
            t["relation"].images,
            {"k": [1, -2], "vectors": [[0.5, 1.0], [1j, 0.0]]},
        ),
        "dispersion.Dispersion.matrix": lambda t: (t["relation"].matrix, {"k": 1}),
        "dispersion.Dispersion.mode": lambda t: (t["relation"].mode, {"k": 1, "index": 0}),
        "dispersion.Dispersion.modes": lambda t: (t["relation"].modes, {"count": 2}),
        "dispersion.Mode.field": lambda t: (t["mode"].field, {"amplitude": 0.1, "layer": 2.0, "phase": 0.3}),
        "dispersion.Propagator.leading": lambda t: (D.along_orbit(t["plain"]).leading, {}),
        "dispersion.Propagator.images": lambda t: (
            D.along_orbit(t["plain"]).images,
            {"k": [1, -2], "vectors": [[0.5, 1.0], [1j, 0.0]]},
        ),
        "dispersion.Propagator.matrix": lambda t: (D.along_orbit(t["plain"]).matrix, {"k": 1}),
        "dispersion.Propagator.mode": lambda t: (D.along_orbit(t["plain"]).mode, {"k": 1, "index": 0}),
        "dispersion.Propagator.modes": lambda t: (D.along_orbit(t["plain"]).modes, {"count": 2}),
        "dispersion.Propagator.optimal": lambda t: (D.along_orbit(t["plain"]).optimal, {"depth": 1}),
        "dispersion.absolute_logits": lambda t: (D.absolute_logits, {"table": X2, "content": W2, "state": A2}),
        "dispersion.alibi_slopes": lambda t: (D.alibi_slopes, {"heads": 6}),
        "dispersion.along_orbit": lambda t: (D.along_orbit, {"block": t["plain"], "state": A2, "layers": 3}),
        "dispersion.asymptotic_rate": lambda t: (
            D.asymptotic_rate,
            {"block": t["plain"], "state": A2, "settle": 5, "layers": 5},
        ),
        "dispersion.attention_spectrum": lambda t: (D.attention_spectrum, {"block": t["plain"], "state": A2}),
        "dispersion.branches": lambda t: (D.branches, {"relation": t["relation"], "q": [0.1, 0.2], "tolerance": 1e-7}),
        "dispersion.chain_spectrum": lambda t: (D.chain_spectrum, {"chain": t["chain"], "state": 0.0}),
        "dispersion.core": lambda t: (D.core, {"block": t["line"], "layers": 2, "n": 20}),
        "dispersion.degenerate_groups": lambda t: (
            D.degenerate_groups,
            {"multipliers": [1.0, 1j, 1.0], "tolerance": 1e-7},
        ),
        "dispersion.derivative": lambda t: (D.derivative, {"relation": t["relation"], "q": [0.1, 0.2], "axis": 0}),
        "dispersion.fixed_points": lambda t: (
            D.fixed_points,
            {"block": t["plain"], "radius": 3.0, "starts": 2, "rng": 0},
        ),
        "dispersion.full_jacobian": lambda t: (D.full_jacobian, {"block": t["block"], "state": A2, "memory": 1e6}),
        "dispersion.jacobian_memory": lambda t: (D.jacobian_memory, {"block": t["block"]}),
        "dispersion.leading_multipliers": lambda t: (
            D.leading_multipliers,
            {"block": t["block"], "state": A2, "count": 2, "memory": 1e6, "rng": 0},
        ),
        "dispersion.mask_logits": lambda t: (D.mask_logits, {"m": W8}),
        "dispersion.orbit": lambda t: (D.orbit, {"block": t["block"], "state": A2, "layers": 3}),
        "dispersion.pseudospectrum": lambda t: (
            D.pseudospectrum,
            {"chain": t["chain"], "points": [1.1, 1j], "state": 0.0},
        ),
        "dispersion.relu_mlp": lambda t: (D.relu_mlp, {"weight_in": A2, "bias_in": A2, "weight_out": A2}),
        "dispersion.sinusoidal": lambda t: (D.sinusoidal, {"n": 6, "d": 4, "base": 100.0}),
        "dispersion.stability": lambda t: (
            D.stability,
            {"block": t["line"], "boundary": "causal", "state": 0.0, "tokens": 20, "points": 4},
        ),
        "dispersion.symbols": lambda t: (D.symbols, {"logits": W8, "axes": 1}),
        "dispersion.t5_bucket": lambda t: (
            D.t5_bucket,
            {"relative_position": [1, -2, 30], "buckets": 8, "max_distance": 16, "bidirectional": False},
        ),
        "dispersion.tail_bound": lambda t: (
            D.tail_bound,
            {"block": t["line"], "layers": 2, "distance": 3, "radius": 1.0},
        ),
        "dispersion.tail_mass": lambda t: (D.tail_mass, {"kernel": Kernel.alibi(8, 0.5), "distance": 2}),
        "dispersion.through_layers": lambda t: (D.through_layers, {"blocks": [t["plain"]] * 2, "state": A2}),
        "dispersion.toeplitz_part": lambda t: (D.toeplitz_part, {"logits": W8, "shape": (2, 4), "periodic": False}),
        "dispersion.translation_invariant_share": lambda t: (
            D.translation_invariant_share,
            {"logits": W8, "shape": (8,), "periodic": True},
        ),
        "amplitude.ScalarForms.of": lambda t: (A.ScalarForms.of, {"block": t["ring"], "state": 0.0}),
        **{
            f"amplitude.ScalarForms.{name}": lambda t, n=name, a=a: (getattr(A.ScalarForms.of(t["ring"]), n), a)
            for name, a in {
                "symbol": {"k": 1},
                "L": {"k": 1},
                "J": {"k": 1},
                "multiplier": {"k": 1},
                "B": {"k1": 1, "k2": 2},
                "C": {"k1": 1, "k2": 2, "k3": 1},
                "at_onset": {"k": 2},
                "evaluate": {"at": "gain"},
                "refuse_unstable": {},
            }.items()
        },
        "amplitude.standing_wave": lambda t: (
            A.standing_wave,
            {"block": t["wave"], "k": 3, "at": "gain", "state": 0.0},
        ),
        "amplitude.travelling_wave": lambda t: (
            A.travelling_wave,
            {"block": t["skewed"], "k": 3, "at": "paper", "state": 0.0},
        ),
        "amplitude.Wave.field": lambda t: (A.standing_wave(t["wave"], 3).field, {"layer": 1.0, "phase": 0.2}),
        "amplitude.Wave.potential": lambda t: (A.standing_wave(t["wave"], 3).potential, {"R": [0.1, 0.2]}),
        "amplitude.competition": lambda t: (
            A.competition,
            {"block": t["wave"], "k1": 2, "k2": 3, "at": "onset", "state": 0.0},
        ),
        "amplitude.Competition.pure": lambda t: (A.competition(t["wave"], 2, 3).pure, {"mode": 1}),
        "amplitude.Competition.transverse": lambda t: (A.competition(t["wave"], 2, 3).transverse, {"mode": 1}),
        "amplitude.Competition.potential": lambda t: (
            A.Competition((2, 3), 8, np.array([1.01, 1.02]), "gain", np.array([[1.0, 0.5], [0.5, 1.0]])).potential,
            {"R1": [0.1, 0.2], "R2": 0.1},
        ),
        "amplitude.clusters": lambda t: (A.clusters, {"block": t["flat"], "at": "onset"}),
        "amplitude.Clusters.potential": lambda t: (A.clusters(t["flat"]).potential, {"u": [0.1, 0.2]}),
        "amplitude.cluster_state": lambda t: (
            A.cluster_state,
            {"block": t["flat"], "fractions": (0.25, 0.75), "start": (0.1, -0.1)},
        ),
        "amplitude.partitions": lambda t: (A.partitions, {"block": t["flat"], "clusters": 2}),
        "amplitude.stable_partitions": lambda t: (A.stable_partitions, {"block": t["flat"], "clusters": 2}),
        "amplitude.balanced_boundary": lambda t: (A.balanced_boundary, {**balanced, "factor": 8.0}),
        "amplitude.balanced_map": lambda t: (A.balanced_map, {**balanced, "mu": 0.01}),
        "amplitude.balloon": lambda t: (
            A.balloon,
            {"blocks": [t["wave"]], "ks": [3], "values": [0.02], "name": "mu", "progress": False},
        ),
        "amplitude.Balloon.stable_wavenumbers": lambda t: (
            A.balloon(t["wave"], [3]).stable_wavenumbers,
            {"point": 0},
        ),
        "amplitude.stable_wavenumbers": lambda t: (A.stable_wavenumbers, {"block": t["wave"], "ks": [3]}),
        "amplitude.branch": lambda t: (
            A.branch,
            {"make_block": family, "values": [0.02, 0.03], "start": t["state"], "name": "mu", "points": 20}
            | {"kind": None, "longest": 0.03, "tolerance": 1e-11, "progress": False},
        ),
        "amplitude.Branch.amplitude_at": lambda t: (t["branch"].amplitude_at, {"k": 3}),
        "amplitude.Branch.phase_advance_at": lambda t: (t["branch"].phase_advance_at, {"k": 3}),
        "amplitude.pattern_branch": lambda t: (
            A.pattern_branch,
            {"make_block": family, "values": [0.0, 0.01], "k": 3, "phase": 0.0, "state": 0.0, "name": "mu"}
            | {"amplitude": 0.01, "points": 20, "longest": 0.03, "locate": False, "progress": False},
        ),
        "amplitude.find_state": lambda t: (
            A.find_state,
            {"block": t["wave"], "start": t["start"], "kind": "steady", "drift": None, "tolerance": 1e-12},
        ),
        "amplitude.ExactState.amplitude_at": lambda t: (t["state"].amplitude_at, {"k": 3}),
        "amplitude.ExactState.phase_advance_at": lambda t: (t["state"].phase_advance_at, {"k": 3}),
        "amplitude.ExactState.derivative": lambda t: (t["state"].derivative, {}),
        "amplitude.ExactState.eigenvectors": lambda t: (t["state"].eigenvectors, {"count": 2}),
        "amplitude.ExactState.projection": lambda t: (t["state"].projection, {"mode": t["mode"]}),
        "amplitude.homogeneous_state": lambda t: (
            A.homogeneous_state,
            {"block": Block([Head(Kernel.uniform(4), 0.12)], t["ring"].feedforward), "at": "gain", "state": 0.0},
        ),
        "amplitude.period_two": lambda t: (A.period_two, {"block": t["pi"], "at": "gain", "state": 0.0}),
        "amplitude.period_three": lambda t: (A.period_three, {"block": t["hexagon"], "at": "gain", "state": 0.0}),
        "amplitude.period_four": lambda t: (A.period_four, {"block": t["ring"], "at": "gain", "state": 0.0}),
        **{
            f"amplitude.PeriodFour.{name}": lambda t, n=name: (getattr(A.period_four(t["ring"]), n), {"psi": np.pi / 4})
            for name in ("amplitude_at", "phase_multiplier_at", "stable_at")
        },
        "amplitude.PeriodThree.amplitudes_at": lambda t: (
            A.period_three(t["hexagon"]).amplitudes_at,
            {"psi": np.pi / 3},
        ),
        "amplitude.PeriodThree.multipliers_at": lambda t: (
            A.period_three(t["hexagon"]).multipliers_at,
            {"psi": np.pi / 3, "R": 0.1},
        ),
        "amplitude.normal_form": lambda t: (
            A.normal_form,
            {"block": t["wave"], "modes": [t["mode"]], "order": 3, "state": 0.0},
        ),
        "amplitude.best_form": lambda t: (
            A.best_form,
            {"block": t["wave"], "modes": [t["mode"]], "orders": (1, 3), "state": 0.0},
        ),
        "amplitude.NormalForm.has_state_near": lambda t: (
            t["form"].has_state_near,
            {"solution": t["form"].solutions[0]},
        ),
        "amplitude.NormalForm.error": lambda t: (t["form"].error, {}),
        "amplitude.NormalForm.caveats": lambda t: (t["form"].caveats, {}),
        "amplitude.NormalForm.regime": lambda t: (
            A.normal_form(t["wave"], [t["scalar relation"].mode(k) for k in (2, 3)]).regime,
            {},
        ),
        "amplitude.NormalForm.potential": lambda t: (t["form"].potential, {"R": [0.1, 0.2]}),
        "amplitude.NormalForm.truncated": lambda t: (t["form"].truncated, {"order": 3}),
        "amplitude.NormalForm.field": lambda t: (t["form"].field, {"layer": 1.0, "solution": None}),
        "amplitude.NormalForm.field_at": lambda t: (t["form"].field_at, {"z": [0.1 + 0.1j]}),
        "amplitude.NormalForm.amplitudes_of": lambda t: (t["form"].amplitudes_of, {"solution": None}),
        "amplitude.Solution.advanced": lambda t: (t["form"].solutions[0].advanced, {"layer": 2.0}),
        "amplitude.one_mode_potential": lambda t: (A.one_mode_potential, {"R": [0.1, 0.2], "mu": 0.1, "beta": 1.0}),
        "amplitude.two_mode_potential": lambda t: (
            A.two_mode_potential,
            {"R1": [0.1, 0.2], "R2": 0.1, "mu": (1.0, 1.0), "beta_self": (1.0, 1.0), "beta_cross": 0.4},
        ),
        "amplitude.standing_start": lambda t: (
            A.standing_start,
            {"mode": t["mode"], "amplitude": 0.1, "phase": 0.2, "samples": 5, "state": 0.0},
        ),
        "simulate.Observable": lambda t: (
            S.Observable,
            {"name": "crest", "value": crest, "long_name": "largest |x|", "units": "1", "label": "crest"}
            | {"dims": ("token",), "kind": float, "together": None, "diverged": False, "by_default": True},
        ),
        "simulate.Observable.__call__": lambda t: (S.OBSERVABLES["amplitude"], {"path": t["path"]}),
        "simulate.iterate": lambda t: (
            S.iterate,
            {"block": t["plain"], "depth": 3, "start": X2, "rng": 0, "tolerance": 1e-9, "every": 2},
        ),
        "simulate.iterate_many": lambda t: (
            S.iterate_many,
            {"block": t["plain"], "starts": X2[None], "depth": 3, "tolerance": 1e-9, "every": 2},
        ),
        "simulate.sweep": lambda t: (S.sweep, sweep),
        "simulate.save": lambda t: (S.save, {"dataset": S.sweep(**sweep), "path": "saved.nc"}),
        "simulate.load": lambda t: (S.load, {"path": "nothing.nc", "lazy": False}),
        "simulate.fourier": lambda t: (S.fourier, {"x": x4}),
        "simulate.spectrum": lambda t: (S.spectrum, {"x": x4}),
        "simulate.dominant_wavenumber": lambda t: (S.dominant_wavenumber, {"x": x4}),
        "simulate.amplitude": lambda t: (S.amplitude, {"x": x4, "k": 1}),
        "simulate.phase_advance": lambda t: (S.phase_advance, {"before": x4, "after": x4[::-1], "k": 1}),
        "simulate.cluster_values": lambda t: (S.cluster_values, {"x": x4}),
        "simulate.clusters": lambda t: (S.clusters, {"x": x4, "tolerance": 0.1}),
        "simulate.heterogeneity": lambda t: (S.heterogeneity, {"x": x4}),
        "simulate.grid_fourier": lambda t: (S.grid_fourier, {"x": X2, "shape": (2, 3)}),
        "simulate.project": lambda t: (S.project, {"x": X2, "left": A2, "k": (1, 1), "shape": (2, 3)}),
        "simulate.turn": lambda t: (S.turn, {"before": [1.0, 1j], "after": [1j, 1.0]}),
        "simulate.rotation": lambda t: (S.rotation, {"before": X2, "after": X2[::-1], "plane": np.eye(2)}),
        "simulate.token_clusters": lambda t: (S.token_clusters, {"x": X2, "tolerance": 0.5}),
        "simulate.cluster_separation": lambda t: (S.cluster_separation, {"x": X2, "labels": [0, 0, 1, 1, 1, 2]}),
        **{
            f"simulate.Trajectory.{name}": lambda t, n=name, a=a: (getattr(t["path"], n), a)
            for name, a in {
                "projection": {"left": A2, "k": 1},
                "mode_advance": {"left": A2, "k": 1},
                "rotation": {"plane": np.eye(2)},
                "clusters": {"tolerance": 0.1},
                "cluster_count": {"tolerance": None},
                "cluster_separation": {"tolerance": 0.1},
            }.items()
        },
    }
    turning = lambda t: A.Oscillation(t["plain"], np.array([X2, -X2, X2]), 0.1, 0.0)  # noqa: E731
    table |= {
        "amplitude.find_oscillation": lambda t: (
            A.find_oscillation,
            {"block": t["plain"], "start": np.repeat(X2[None], 5, 0), "phase_advance": 0.3, "tolerance": 1e-12},
        ),
        "amplitude.Oscillation.amplitude_at": lambda t: (turning(t).amplitude_at, {"k": 1}),
        "amplitude.Oscillation.field": lambda t: (turning(t).field, {"theta": 0.3}),
        "amplitude.Oscillation.projection": lambda t: (turning(t).projection, {"mode": t["relation"].leading()}),
    }
    return table


LEFT_OUT = {
    "amplitude.ScalarForms.slaved": "takes what the closed forms compute",
    "amplitude.NormalForm.fields": "takes what its map computes",
    "amplitude.switch": "needs a branch with a bifurcation: seconds",
    "amplitude.directions": "needs a bifurcation: seconds",
    **{f"dispersion.{kind.__name__}.formula": "called by `logits`" for kind in map(ENCODINGS.get, BUILT_IN[1:])},
}
"""What is left out, and why; besides drawing."""


def exported() -> dict[str, Callable[..., Any]]:
    """Every function, class and public method of the packages, by label; drawing and classes of results aside."""
    found: dict[str, Callable[..., Any]] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
                continue
            if name not in MADE[package]:
                found[f"{package}.{name}"] = thing
            for attribute in dir(thing) if inspect.isclass(thing) and name not in ("Encoding", "Normalisation") else ():
                member = getattr(thing, attribute)
                public = not attribute.startswith("_") or (attribute == "__call__" and "__call__" in vars_of(thing))
                if public and "plot" not in attribute and (inspect.isfunction(member) or inspect.ismethod(member)):
                    found[f"{package}.{name}.{attribute}"] = member
    return found


def vars_of(thing: type) -> set[str]:
    """The names defined by a class and its bases, but for those of `object` and `type`."""
    return {name for base in thing.__mro__ if base is not object for name in vars(base)}
