"""Figure 1: a taxonomy of patterns. What a block makes of noise, above the dispersion relation that says so.

a  clusters: no positional encoding, every k ≥ 1 has the same Λ, an odd saturating feed-forward keeps two values;
b  standing wave: a symmetric kernel, one feature;  c  travelling wave: one lobe of the two;
d  feature rotation: the kernel of b, and an OV map that turns two features into one another. The modes ±ω of either
   direction have the same |Λ|; the normal form says that they stand, and the features turn in place;
e  mixed: the kernel of c with the OV map of d.

The paper gives no parameters for its Fig. 1; these are ours. All blocks are tuned to |Λ| = 1.05 at their leading
mode. Each number of the theory stands beside the simulated one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from scipy.optimize import brentq

from amplitude import cluster_state, normal_form
from dispersion import Block, FeedForward, Head, Kernel, Mode, dispersion_relation
from figures.report import Claim
from figures.style import BLUE, DIVERGING, GREY, TWO_COLUMNS, VERMILION, centred, panel_label
from simulate import clusters as cluster_labels
from simulate import iterate

NAME = "fig1"
TITLE = "Taxonomy: clusters, standing, travelling, feature-rotating and mixed patterns, each predicted"
PANELS = ("clusters", "standing", "travelling", "rotating", "mixed")
MOSAIC = (
    [list(PANELS)] * 6 + [[f"{name} dispersion" for name in PANELS]] * 4 + [[f"{name} numbers" for name in PANELS]] * 3
)
SIZE = (TWO_COLUMNS, 4.15)

N = 32
GROWTH = 1.05
"""|Λ| of the leading mode of each block."""
SEPARATION, WIDTH = 4.8, 1.5
"""Lag and width of the lobes, tokens: at ±4.8 in b and d, at +4.8 alone in c and e."""
STRENGTH = {"symmetric": 2.5, "directional": 3.0}
"""Height of the lobes of the logits."""
C = 0.75
"""α_1 of b to e: φ(h) = (C − 1) tanh(h) on each feature."""
CHI = 2.0
"""Size of the content form W: χ for one feature, χ times a rotation by TURN_CONTENT for two."""
TURN, TURN_CONTENT = 0.8, 1.0
"""Angles, radians, by which the OV map M = −gR(TURN) and the content form W = χR(TURN_CONTENT) turn two features."""
CLUSTER_ETA = -0.6
CLUSTER_GAIN = 8.0
"""φ(h) = (|Λ| − 1)/8 · tanh(8h) in a: α_1 = |Λ|, α_2 = 0, α_3 = −1.07."""

START, SEED = 0.003, 31
"""Standard deviation of the noise at layer 0, and its seed: one with ±k about equal in d, which shortens the time
that the pattern drifts before it stands."""
WINDOW = 280
"""Layers shown."""
ORDER = 7
"""Of the normal forms of b to e."""
LINEAR = 20
"""Layers from the start over which rate and phase are measured, of the same noise made FAINT times smaller."""
FAINT = 1e-3
LATE = 200
"""Layers at the end over which amplitude and phase advance are measured."""

TOLERANCE = {"rate": 1e-9, "phase_advance": 1e-3, "amplitude": 0.01}
"""Absolute, absolute and relative distance to the prediction up to which a claim is met."""
TIE = 1e-6
"""Relative difference of the sizes of k and −k that rounding may make."""
IDS = {"rate": "growth"}
"""Names of quantities in the ids of claims, which stay as they are."""
QUANTITIES = ("k", "rate", "phase", "phase_advance", "amplitude")
"""What is predicted and measured; k is 0 where no wavenumber is selected."""

Floats = NDArray[np.float64]


# The blocks


def block_of(name: str) -> Block:
    """The block of a panel, `name` one of PANELS, with |Λ| = GROWTH at its leading mode."""
    if name == "clusters":
        rise = GROWTH - 1
        feedforward = FeedForward([[CLUSTER_GAIN]], [[rise / CLUSTER_GAIN]], "tanh")
        return Block([Head(Kernel.uniform(N), CLUSTER_ETA, CHI)], feedforward)
    if name in ("standing", "rotating"):
        kernel = Kernel.gaussian_lobes(N, SEPARATION, WIDTH, STRENGTH["symmetric"])
    else:
        kernel = Kernel.skewed_lobe(N, SEPARATION, WIDTH, WIDTH, STRENGTH["directional"])
    if name in ("rotating", "mixed"):
        value, content = rotation(TURN), CHI * rotation(TURN_CONTENT)
    else:
        value, content = np.eye(1), CHI * np.eye(1)
    return _tuned(lambda gain: Block([Head(kernel, -gain * value, content)], _saturating(len(value))))


def rotation(angle: float) -> Floats:
    """(2, 2) rotation by `angle`, radians."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _saturating(d: int) -> FeedForward:
    return FeedForward.elementwise("tanh", d, C - 1)


def _tuned(make: Callable[[float], Block]) -> Block:
    """The block of the smallest gain g at which max_q ρ(J(q)) = GROWTH; ρ grows with g."""
    return make(brentq(lambda gain: dispersion_relation(make(gain)).growth.max() - GROWTH, 0.05, 4.0, xtol=1e-14))


# Theory and simulation


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """Prediction and simulation of each panel.

    quick : half the depth; progress : unused, it takes seconds. One group a panel:
    'state' over (layer, token, feature) from the noise on, |Λ| over (k, branch), 'theory' and 'simulated'
    over the QUANTITIES; attributes say what the block's mode and the observed pattern are called.
    """
    depth = 1000 if quick else 2000
    attributes = {"n": N, "growth": GROWTH, "start": START, "seed": SEED, "depth": depth, "order": ORDER}
    attributes |= {"separation": SEPARATION, "width": WIDTH, "C": C, "content": CHI, "turn": TURN}
    attributes |= {
        "turn_content": TURN_CONTENT,
        "linear_layers": LINEAR,
        "linear_start": FAINT * START,
        "late_layers": LATE,
    }
    groups = {"/": xr.Dataset(attrs=attributes)}
    for name in PANELS:
        block = block_of(name)
        linear = iterate(block, LINEAR, FAINT * START, rng=SEED, tolerance=None, every=1)
        early = iterate(block, WINDOW, START, rng=SEED, tolerance=None, every=1)
        later = iterate(block, depth - WINDOW - LATE, early.state, tolerance=None)
        late = iterate(block, LATE, later.state, tolerance=None, every=1)
        panel = _clusters if name == "clusters" else _waves
        groups[name] = panel(block, linear.states, early.states, late.states)
    return xr.DataTree.from_dict(groups)


def _dataset(block: Block, early: Floats, theory: list[float], simulated: list[float]) -> xr.Dataset:
    growth = np.abs(dispersion_relation(block).multipliers[: N // 2 + 1])
    return xr.Dataset(
        {
            "state": (("layer", "token", "feature"), early),
            "growth": (("wavenumber", "branch"), growth),
            "theory": ("quantity", theory),
            "simulated": ("quantity", simulated),
        },
        {"quantity": list(QUANTITIES)},
        {"value": block.heads[0].value.ravel()},
    )


def _clusters(block: Block, linear: Floats, early: Floats, late: Floats) -> xr.Dataset:
    """Two clusters: u is half their separation. How the noise divides the tokens is seen, the rest predicted.

    linear, early, late : (T, N, 1) states, out of faint noise, out of noise, and saturated.
    """
    last = late[-1, :, 0]
    labels = cluster_labels(last, 1e-6)
    upper = int((labels == labels.max()).sum())
    state = cluster_state(block, (upper / N, 1 - upper / N))
    # γ and ω of every k ≥ 1, which are all alike
    first, grown = (np.fft.rfft(linear[layer, :, 0])[1:] for layer in (0, -1))
    gain = np.log(grown / first) / LINEAR
    mode = dispersion_relation(block).leading()
    theory = [0.0, mode.rate, mode.phase, 0.0, float(np.ptp(state.values)) / 2]
    change = float(np.abs(late[-1] - late[-2]).max())
    simulated = [0.0, gain.real.mean(), gain.imag.mean(), change, float(np.ptp(last)) / 2]
    return _dataset(block, early, theory, simulated).assign_attrs(
        predicted="clusters" if state.stable else "none",
        observed="clusters" if labels.max() == 1 else f"{labels.max() + 1} values",
        upper=upper,
        selection=float(np.abs(gain.real - mode.rate).max()),
    )


def _waves(block: Block, linear: Floats, early: Floats, late: Floats) -> xr.Dataset:
    """The leading mode and its normal form against the projection wᴴB_k of the states on that mode.

    linear, early, late : (T, N, d) consecutive states, out of faint noise, out of noise, and saturated.
    """
    mode = dispersion_relation(block).leading()
    form = normal_form(block, [mode], ORDER)
    # a rotation in place breathes as its features turn: root mean squares over the same number of layers
    expected = np.array([form.field(layer=layer) for layer in range(len(late))])
    (R, turn), (R_seen, turn_seen) = (_saturated(states, mode) for states in (expected, late))
    B = _projected(linear, mode)
    rate = np.log(np.abs(B[-1] / B[0])) / LINEAR
    phase = np.angle(B[1:] / B[:-1]).mean()
    theory = [float(np.sum(mode.k)), mode.rate, mode.phase, turn, R]
    k = np.linalg.norm(np.fft.rfft(late[-1], axis=0), axis=1)[1:].argmax() + 1
    simulated = [float(k), float(rate), float(phase), turn_seen, R_seen]
    data = _dataset(block, early, theory, simulated)
    solution = form.solution
    waves = 0 if solution is None else int(solution.active.sum())
    # of ±k of a symmetric kernel both, and the pattern keeps its place, or one, and it moves
    moves = mode.morphology == "rotating" and waves == 1
    return data.assign_attrs(
        predicted="mixed" if moves else mode.morphology, observed=observed_morphology(late), error=form.error()
    )


def _projected(states: Floats, mode: Mode) -> NDArray[np.complex128]:
    """(T,) wᴴB_k of `states` (T, N, d)."""
    coefficients: NDArray[np.complex128] = np.fft.fft(states, axis=1)[:, mode.k] / N @ mode.left.conj()
    return coefficients


def _saturated(states: Floats, mode: Mode) -> tuple[float, float]:
    """Root mean square of |wᴴB_k| and mean phase advance of `states` (T, N, d), of k or −k, whichever is larger.

    They are alike for one feature, where −k is but the conjugate, and in a wave that stands: k then.
    """
    forward, backward = _projected(states, mode), _projected(states[:, -np.arange(N) % N], mode)
    B = backward if np.linalg.norm(backward) > (1 + TIE) * np.linalg.norm(forward) else forward
    phase = np.unwrap(np.angle(B))
    return float(np.sqrt(np.mean(np.abs(B) ** 2))), round(float((phase[-1] - phase[0]) / (len(phase) - 1)), 15) + 0.0


def observed_morphology(states: Floats) -> str:
    """'standing', 'travelling', 'rotating' or 'mixed', from consecutive `states` (T, N, d) alone, d = 1 or 2.

    Two questions. Does the pattern keep its place: is there a contrast between tokens in Σ_features x² averaged over
    layers? Do features turn: does the angle of (x_1, x_2) at the tokens advance, by the mean of its sine over 0.01?
    """
    power = (states**2).sum(axis=2).mean(axis=0)
    in_place = power.std() > 0.1 * power.mean()
    turns = False
    if states.shape[2] == 2:
        z = states[..., 0] + 1j * states[..., 1]
        step = (z[1:] * z[:-1].conj()).sum()
        turns = abs(step.imag) > 0.01 * abs(step)
    return {(True, False): "standing", (False, False): "travelling", (True, True): "rotating"}.get(
        (bool(in_place), bool(turns)), "mixed"
    )


# Drawing


TITLES = {
    "clusters": ("clusters", "no positional encoding"),
    "standing": ("standing wave", "symmetric PE"),
    "travelling": ("travelling wave", "directional PE"),
    "rotating": ("feature rotation", "symmetric PE, rotating OV"),
    "mixed": ("mixed", "directional PE, rotating OV"),
}
WHEEL = ("#b2182b", "#e8b000", "#2166ac", "#2a0a45")
"""Colours of the directions +x_1, +x_2, −x_1, −x_2 of the feature plane: red and blue as in the other panels, light
and dark across, so that they differ to every eye.
"""
ROWS = {
    "k": ("$k$", "{:.0f}"),
    "rate": (r"$\gamma$", "{:.4f}"),
    "phase": (r"$\omega$", "{:.4f}"),
    "phase_advance": (r"$\Omega$", "{:.4f}"),
    "amplitude": ("$R$", "{:.4f}"),
}


FOOTNOTE = (
    r"$k$ wavenumber   ·   $\gamma$ growth rate per layer   ·   $\omega$, $\Omega$ phase advance per layer, rad,"
    r" while it grows and once saturated   ·   $R$ amplitude (clusters: half their separation)"
)


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw `data` (from `compute`): images of the states, |Λ| over k, and the numbers below."""
    for letter, name in zip("abcde", PANELS, strict=True):
        panel, first = data[name].to_dataset(), name == PANELS[0]
        _draw_states(panel, axes[name])
        _draw_dispersion(panel, axes[f"{name} dispersion"])
        _draw_numbers(panel, axes[f"{name} numbers"], first)
        title, subtitle = TITLES[name]
        axes[name].set_title(f"{title}\n", linespacing=1.15)
        axes[name].annotate(
            subtitle, (0.5, 1), (0, 3), "axes fraction", "offset points", ha="center", fontsize=5.8, color="0.35"
        )
        panel_label(axes[name], letter, x=2, y=12)
        for ax in (axes[name], axes[f"{name} dispersion"]):
            ax.tick_params(labelleft=first)
    axes[PANELS[0]].set_ylabel("token $j$")
    axes[f"{PANELS[0]} dispersion"].set_ylabel(r"growth $|\Lambda|$")
    axes[PANELS[0]].figure.supxlabel(FOOTNOTE, fontsize=6, color="0.35")


def _draw_states(panel: xr.Dataset, ax: Axes) -> None:
    """Tokens over layers: one feature by a diverging scale, two by colour for direction and depth of it for length."""
    state = panel.state.values
    layers, tokens = state.shape[:2]
    place: dict[str, Any] = {"origin": "lower", "aspect": "auto", "extent": (-0.5, layers - 0.5, -0.5, tokens - 0.5)}
    if state.shape[2] == 1:
        ax.imshow(state[..., 0].T, cmap=DIVERGING, norm=centred(state), **place)
        _scale_key(ax, float(np.abs(state).max()))
    else:
        ax.imshow(np.swapaxes(direction_colours(state), 0, 1), **place)
        _direction_key(ax)
    ax.set(xlabel="layer", xticks=[0, 100, 200], yticks=[0, 10, 20, 30])


def direction_colours(x: Floats) -> Floats:
    """(…, 3) the colour of each vector of `x` (…, 2): its direction on the WHEEL, fading to white as |x| → 0."""
    angle, size = np.arctan2(x[..., 1], x[..., 0]), np.linalg.norm(x, axis=-1)
    corners, wheel = np.arange(4) * np.pi / 2, np.array([to_rgb(colour) for colour in WHEEL])
    colour = np.stack([np.interp(angle, corners, wheel[:, part], period=2 * np.pi) for part in range(3)], axis=-1)
    return 1 + (colour - 1) * (size / size.max())[..., None]


def _scale_key(ax: Axes, largest: float) -> None:
    key = ax.inset_axes((0.05, 0.66, 0.05, 0.25))
    key.imshow(np.linspace(-1, 1, 65)[:, None], cmap=DIVERGING, aspect="auto", origin="lower", extent=(0, 1, -1, 1))
    key.set(xticks=[], yticks=[-1, 1])
    key.set_yticklabels([f"−{largest:.2f}", f"+{largest:.2f}"])
    key.yaxis.tick_right()
    key.tick_params(length=0, pad=1.5, labelsize=5.5)
    for label in key.get_yticklabels():
        label.set_path_effects([withStroke(linewidth=1.5, foreground="white")])


def _direction_key(ax: Axes) -> None:
    side = np.linspace(-1, 1, 121)
    x = np.stack(np.meshgrid(side, side), axis=-1)
    inside = np.linalg.norm(x, axis=-1) <= 1
    colours = np.dstack([direction_colours(x * inside[..., None]), inside])
    key = ax.inset_axes((0.05, 0.63, 0.27, 0.27))
    key.imshow(colours, origin="lower", extent=(-1, 1, -1, 1), aspect="equal")
    key.set_axis_off()
    look: dict[str, Any] = {"fontsize": 5.5, "path_effects": [withStroke(linewidth=1.5, foreground="white")]}
    key.text(1.1, 0, "$x_1$", ha="left", va="center", **look)
    key.text(0, 1.05, "$x_2$", ha="center", va="bottom", **look)


def _draw_dispersion(panel: xr.Dataset, ax: Axes) -> None:
    growth = panel.growth.values
    k = np.arange(len(growth))
    ax.axhline(1, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    for branch in range(growth.shape[1] - 1, -1, -1):
        colour = BLUE if branch == 0 else GREY
        ax.plot(k, growth[:, branch], "-o", color=colour, linewidth=0.7, markersize=1.9, markeredgewidth=0)
    # on a wave its wavenumber; in clusters every one
    chosen = int(panel.theory.sel(quantity="k"))
    if chosen:
        ax.plot(chosen, growth[chosen, 0], "o", markersize=5, markerfacecolor="none", color=VERMILION)
    told, place, offset, side = (
        (f"$k={chosen}$", chosen, (5, 2), "left") if chosen else ("all $k\\geq1$", 8, (0, 3), "center")
    )
    look: dict[str, Any] = {"textcoords": "offset points", "color": VERMILION, "ha": side, "fontsize": 7}
    ax.annotate(told, (place, growth[place, 0]), offset, **look)
    ax.set(xlabel="wavenumber $k$", xlim=(-0.7, N // 2 + 0.7), xticks=[0, 4, 8, 12, 16])
    ax.set(ylim=(0, GROWTH + 0.2), yticks=[0, 0.5, 1])


def _draw_numbers(panel: xr.Dataset, ax: Axes, labelled: bool) -> None:
    """The theory's numbers beside those of the simulation, one row each."""
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    heights = np.append(0.93, np.linspace(0.74, 0.03, len(ROWS)))
    columns = {"theory": 0.44, "simulated": 0.97}
    line: dict[str, Any] = {"fontsize": 6.5, "va": "center"}
    ax.axhline(0.845, 0.03, 1, color="0.6", linewidth=0.5)
    for column, x in columns.items():
        ax.text(x, heights[0], column, ha="right", color="0.35", **line)
        for (quantity, (symbol, form)), y in zip(ROWS.items(), heights[1:], strict=True):
            value = float(panel[column].sel(quantity=quantity))
            text = "none" if quantity == "k" and value == 0 else _number(value, form)
            ax.text(x, y, text, ha="right", **line)
            if labelled and column == "theory":
                ax.text(-0.1, y, symbol, ha="right", **line)


def _number(value: float, form: str) -> str:
    text = form.format(value)
    return "0" if float(text) == 0 else text.replace("-", "−")


# Claims


def claims(data: xr.DataTree) -> list[Claim]:
    """That each pattern is the predicted one, with the predicted numbers (Props. 4.2, 4.6, Sec. 5.2)."""
    return [claim for name in PANELS for claim in _claims_of(name, data[name].to_dataset())]


def _claims_of(name: str, panel: xr.Dataset) -> list[Claim]:
    columns = (panel.theory, panel.simulated)
    theory, seen = ({str(q): float(column.sel(quantity=q)) for q in QUANTITIES} for column in columns)
    pattern, clustered = TITLES[name][0], name == "clusters"
    found = [
        Claim(
            f"fig1.{name}.morphology",
            f"The pattern that grows out of noise ({pattern})",
            name,
            str(panel.observed),
            panel.observed == panel.predicted == name,
            f"told from the states alone; predicted: {panel.predicted}",
        )
    ]
    if clustered:
        found.append(
            Claim(
                "fig1.clusters.wavenumber",
                "No wavenumber is selected: every k ≥ 1 grows at the same rate (largest difference from γ)",
                0.0,
                float(panel.selection),
                panel.selection <= TOLERANCE["rate"],
                f"out of noise, over {LINEAR} layers; met up to {TOLERANCE['rate']:g}",
            )
        )
    else:
        found.append(
            Claim(
                f"fig1.{name}.wavenumber",
                f"Saturated wavenumber k ({pattern})",
                None,
                int(seen["k"]),
                theory["k"] == seen["k"],
                f"predicted: {theory['k']:.0f} = argmax |Λ(q)|",
            )
        )
    told = {
        "rate": "Growth rate γ out of noise, per layer",
        "phase_advance": "Phase advance Ω once saturated, radians per layer",
        "amplitude": "Half the separation u" if clustered else "Amplitude R once saturated",
    }
    method = (
        "exact cluster state" if clustered else f"normal form, by its own estimate to {panel.attrs.get('error', 0):.0e}"
    )
    for quantity, limit in TOLERANCE.items():
        relative = quantity == "amplitude"
        error = abs(seen[quantity] - theory[quantity]) / (theory[quantity] if relative else 1)
        note = f"predicted: {theory[quantity]:.6g}{f' ({method})' if relative else ''}; "
        note += f"{'relative' if relative else 'absolute'} error {error:.1e}, met up to {limit:g}"
        met = error <= limit
        found.append(
            Claim(
                f"fig1.{name}.{IDS.get(quantity, quantity)}",
                f"{told[quantity]} ({pattern})",
                None,
                seen[quantity],
                met,
                note,
            )
        )
    return found
