"""The trained nanoguard 0.1.0, a bidirectional rotary network with re-injected input: what it amplifies.

pip install --no-deps metatronnanoguard==0.1.0
python examples/trained/nanoguard_rotary.py [FOLDER]
"""

from pathlib import Path

import numpy as np
from common import inside, output_folder
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from nanoguard_network import MODEL, Floats, NanoGuard, Transfer, load

from figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, TWO_COLUMNS, VERMILION, panel_label, save, style
from models.check import check
from models.measured import measure

LETTER_D = 100
"""The token d."""
TOKENS = np.linspace(300, 8000, 8).astype(int)
"""The base states of the figure."""
N, K = 32, np.array([0, 1, 2, 3, 4, 6, 8, 12, 16])
"""Tokens on the ring of the figure, and the wavenumbers drawn."""
LINE = 32
"""Tokens on the line."""


def print_ring(network: NanoGuard, x0: Floats, n: int) -> None:
    """The growth of each wavenumber on a ring of `n` tokens, in closed form and in the forward pass."""
    transfer, found = network.transfer(x0, n), check([network.module(ring=True)], x0, n, batched=True)
    measured = found.predicted.relations[0].matrices
    far = np.linalg.norm(measured - transfer.matrices) / np.linalg.norm(transfer.matrices)
    print(f"x0 → output around 1⊗x0 on a ring of {n} tokens: closed form and derivative differ by {far:.1e}, ", end="")
    print(f"circulant defect {found.defect:.1e}")
    print("  k   closed form        forward pass       relative error")
    for mode, run in zip(found.modes, found.measured_growth, strict=True):
        predicted = transfer.growth[mode.k]
        print(f"  {mode.k}   {predicted:<16.10g}   {run:<16.10g}   {abs(run - predicted) / predicted:.1e}")
    print(found.verdict)


def print_line(network: NanoGuard, x0: Floats) -> None:
    """How far the network as trained, on a line, is from translation invariance: each layer, and all of it."""
    line = network.module(ring=False)
    maps = [*zip(line.layers, network.states(x0), strict=True), (line, x0)]
    defects = [measure(fn, state, LINE, "open").defect for fn, state in maps]
    layers = ", ".join(f"{defect:.2g}" for defect in defects[:-1])
    print(f"on a line of {LINE} tokens, as trained: circulant defect of the layers {layers}, of x0 → output", end=" ")
    print(f"{defects[-1]:.2g}")


def amplified(network: NanoGuard, token: int) -> tuple[Floats, Floats, Floats, Floats]:
    """(K,) largest and rms singular value of G(q) at a row of one `token`, (K,) share of G(q) that attention makes,
    |G(q) − G°|/|G(q)| in Frobenius norm with G° for λ_h = 0, and (L, K) rms over heads of |λ_h(q)|.

    x0 and the output have one size, so the gains are against the size of the state.
    """
    transfer = network.transfer(network.tokens(token), N)
    matrices = transfer(transfer.wavenumbers[K])
    size = np.linalg.norm(matrices, axis=(-2, -1))
    largest = np.linalg.norm(matrices, 2, axis=(-2, -1))
    share = np.linalg.norm(matrices - transfer.alone, axis=(-2, -1)) / size
    return largest, size / np.sqrt(network.d), share, head_rms(transfer)


def head_rms(transfer: Transfer) -> Floats:
    """(L, K) rms over heads of |λ_h(q)|."""
    return np.sqrt(np.mean(np.abs(transfer.symbols[..., K]) ** 2, axis=1))


def spread(ax: Axes, rows: Floats, color: str, line: str, label: str) -> None:
    """Draw the median over tokens of `rows` (tokens, K), and the range of their middle half."""
    low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    ax.fill_between(K, low, high, color=color, alpha=0.2, linewidth=0)
    ax.plot(K, middle, line, color=color, markersize=3, label=label)


def picture(network: NanoGuard, folder: Path) -> list[Path]:
    """Save what `network` amplifies by wavenumber against random weights of the same sizes; returns the paths."""
    kinds = (("random", GREY, network.shuffled(0)), ("trained", VERMILION, network))
    with style():
        figure = Figure(figsize=(TWO_COLUMNS, 2.5), layout="constrained")
        gains, shares, symbols = figure.subplots(1, 3)
        for name, color, net in kinds:
            found = zip(*(amplified(net, int(token)) for token in TOKENS), strict=True)
            largest, rms, share, by_layer = map(np.array, found)
            print_amplified(name, largest, rms, share, by_layer)
            spread(gains, largest, color, "o-", f"{name}, largest singular value")
            spread(gains, rms, color, "s--", f"{name}, random features")
            spread(shares, share, color, "o-", name)
            if net is network:
                for layer, shade in enumerate((BLUE, GREEN, ORANGE, PURPLE)):
                    symbols.plot(K, by_layer[:, layer].mean(axis=0), color=shade, label=f"layer {layer + 1}")
            else:
                symbols.plot(K, by_layer.mean(axis=(0, 1)), "--", color=color, label="random")
        gains.set(ylabel="gain of $G(q)$ against the state")
        gains.axhline(1, color="0.6", linewidth=0.6, zorder=0)
        shares.set(ylabel=r"attention's part $|G - G^{\circ}|/|G|$", yscale="log")
        symbols.set(ylabel=r"rms over heads $|\lambda_h(q)|$", yscale="log")
        for ax, letter in ((gains, "a"), (shares, "b"), (symbols, "c")):
            ax.set(xlabel=f"wavenumber $k$ of {N} tokens", xticks=range(0, N // 2 + 1, 4))
            ax.yaxis.set_minor_formatter(NullFormatter())
            panel_label(ax, letter)
        gains.set_ylim(0, 1.5 * gains.get_ylim()[1])
        gains.legend(loc="upper right")
        shares.legend(loc="upper right")
        symbols.legend(loc="upper right")
        return save(figure, folder, "nanoguard_rotary")


def print_amplified(name: str, largest: Floats, rms: Floats, share: Floats, by_layer: Floats) -> None:
    """The numbers behind the figure: medians over tokens at k = 0, 1, 4 and N/2."""
    print(f"{name} weights, median of {len(TOKENS)} tokens at k = 0, 1, 4, {N // 2} of {N}:")
    shown = [int(np.flatnonzero(k == K)[0]) for k in (0, 1, 4, N // 2)]
    rows = {"largest gain": largest, "rms gain": rms, "attention's part": share, "|λ|": by_layer.mean(axis=1)}
    for what, values in rows.items():
        print(f"    {what:16s}", *(f"{value:.3g}" for value in np.median(values, axis=0)[shown]))


def main() -> None:
    """Print what the network does to waves and draw it."""
    network = load(inside("nanoguard", MODEL))
    r, c = (", ".join(f"{value:.2f}" for value in values) for values in (network.residual, network.reinjection))
    print(f"nanoguard: d = {network.d}, {len(network.layers)} layers; r = {r}; c = {c}")
    x0 = network.tokens(LETTER_D)
    print_ring(network, x0, 8)
    print_line(network, x0)
    for path in picture(network, output_folder()):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
