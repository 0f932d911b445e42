"""What the scripts of this folder share: finding a weight file, sending waves through a network, drawing.

python examples/trained/rxnmapper_albert.py [FOLDER]
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from dispersion import Dispersion, through_layers
from figures.style import BLUE, GREY, TWO_COLUMNS, VERMILION, panel_label, save, style
from models.adapters import Network
from models.check import check

Floats = NDArray[np.float64]
SEEDS = (0,)


def inside(package: str, path: str) -> Path:
    """The file `path` inside an installed `package`, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{package} is not installed: see examples/trained/README.md")
    return Path(spec.submodule_search_locations[0]) / path


def print_check(network: Network, state: Floats, n: int) -> None:
    """The growth of each wavenumber on a ring of `n` tokens through all layers, predicted and in the forward pass."""
    found = check(network.modules, state, n, network.blocks(n), batched=True)
    print("  k   predicted growth   forward pass       relative error")
    for mode, predicted, measured, error in zip(
        found.modes, found.growth, found.measured_growth, found.error, strict=True
    ):
        print(f"  {mode.k}   {predicted:<16.10g}   {measured:<16.10g}   {error:.1e}")
    print(found.verdict)


def relative_growth(network: Network, state: Floats) -> Floats:
    """(L+1, 2) ρ(P_l(q)) |a| / |a_l| by depth, of q = 0 and of any other q: how far a perturbation grows against the
    state it perturbs. The layers do not know positions, so all q ≠ 0 share one J(q), and two tokens show both.
    """
    product, size = through_layers(network.blocks(2), state), [np.linalg.norm(state)]
    for relation in product.relations:
        assert isinstance(relation, Dispersion)
        size.append(np.linalg.norm(relation.block.homogeneous_map(relation.state)))
    return product.growth_by_depth * size[0] / np.array(size)[:, None]


def wave_gain(network: Network, token: int, n: int, samples: int = 2, rng: int = 0) -> Floats:
    """(L+1, n/2+1) rms gain by depth of waves of wavenumber k with random features, around `n` copies of a `token` at
    their true positions 1 … n, relative to the size of the state. The whole response counts, at whatever wavenumber:
    nothing here is periodic. samples : random features for each wave; rng : their seed.
    """
    assert network.embedding is not None
    generator = np.random.default_rng(rng)
    k, j = np.arange(n // 2 + 1), np.arange(n)
    waves = np.exp(2j * np.pi * np.multiply.outer(k, j) / n)[:, None, :, None]
    features = generator.normal(size=(samples, 1, network.d))
    fields = np.stack([(waves * features).real, (waves * features).imag])
    tangents = torch.tensor(fields.reshape(-1, n, network.d))
    x = torch.tensor(network.embedding(np.full(n, token), first=1))
    power = [tangents.square().sum((-2, -1)) / x.square().sum()]
    with torch.no_grad():
        for module in network.modules:
            push = torch.func.vmap(lambda t, at=x, layer=module: torch.func.jvp(layer, (at,), (t,))[1])
            tangents, x = torch.cat([push(some) for some in tangents.split(16)]), module(x)
            power.append(tangents.square().sum((-2, -1)) / x.square().sum())
    by_k = torch.stack(power).reshape(len(power), 2, len(k), samples).sum((1, 3)).numpy()
    return np.sqrt(by_k / by_k[0])


def picture(network: Network, token: int, n: int, title: str, folder: Path, name: str) -> list[Path]:
    """Save what `network` amplifies against the same architecture before training; returns the paths."""
    fresh = [network.initialised(seed) for seed in SEEDS]
    with style():
        figure = Figure(figsize=(TWO_COLUMNS, 2.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for number, net in enumerate([*fresh, network]):
            trained = net is network
            assert net.embedding is not None
            growth = relative_growth(net, net.embedding.state(token, n))
            gain = wave_gain(net, token, n)[-1]
            label = "trained" if trained else None if number else "before training"
            shown = ", ".join(f"{gain[k]:.3f} at k = {k}" for k in (0, 1, n // 4, n // 2))
            print(f"{'trained' if trained else 'before training'}: gain of waves at true positions {shown};")
            print(
                f"    growth against the state {growth[-1, 0]:.3f} of k = 0 and {growth[-1, 1]:.3f} of k ≠ 0,", end=""
            )
            print(f" at most {growth[:, 0].max():.3f} and {growth[:, 1].max():.3f} on the way")
            for at, line, what in ((0, "--", "$k = 0$"), (1, "-", "$k \\neq 0$")):
                color = (BLUE if at == 0 else VERMILION) if trained else GREY
                left.plot(growth[:, at], line, color=color, label=label and f"{label}, {what}")
            right.plot(gain, "o-", color=VERMILION if trained else GREY, markersize=2.5, label=label)
        left.axhline(1, color="0.6", linewidth=0.6, zorder=0)
        left.set(xlabel="layers", ylabel="growth against the state")
        left.set_title(title, loc="left")
        right.set(xlabel="wavenumber $k$", ylabel=f"gain in {len(network.layers)} layers", yscale="log")
        right.yaxis.set_minor_formatter(NullFormatter())
        right.axhline(1, color="0.6", linewidth=0.6, zorder=0)
        for ax, letter in ((left, "a"), (right, "b")):
            low, high = ax.get_ylim()
            ax.set_ylim(low, high * (high / low) ** 0.25 if ax is right else high + 0.25 * (high - low))
            ax.legend(loc="upper left", ncols=2)
            panel_label(ax, letter)
        return save(figure, folder, name)


def present(network: Network, name: str, file: str, token: int, text: str, tokens: int, positions: int) -> None:
    """Print and draw what a `network` with learned absolute positions amplifies around a row of one `token`.

    name : of the network; file : of the figure, without its ending; text : what the row is. tokens : on the ring of the
    check. positions : 1 … this one count for the share of their logits that is translation invariant.
    """
    assert network.embedding is not None
    for note in network.notes:
        print(f"note: {note}")
    print(f"around {text}, on a ring of {tokens} tokens:")
    print_check(network, network.embedding.state(token, tokens), tokens)
    shares = network.position_shares(slice(1, positions + 1))
    print(f"translation-invariant share of the position logits, positions 1 … {positions}: best head", end=" ")
    print(f"{shares.max():.3f}, median {np.median(shares):.3f}")
    for path in picture(network, token, 32, name, output_folder(), file):
        print(f"wrote {path}")


def output_folder() -> Path:
    """The folder named on the command line, the present one by default."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
