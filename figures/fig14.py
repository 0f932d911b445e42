"""Figure 14: a primer on pattern formation, the Swift–Hohenberg equation on a periodic line (App. L).

    ∂u/∂t = [μ + α_0 − (q_0² + ∂²)²]u + α_1u² + α_2u³,   σ(k) = μ + α_0 − (q_0² − k²)²

Near onset, μ + α_0 = 0, u = Be^{iq_0x} + c.c. with dB/dt = σB − g|B|²B, g = −3α_2 − (38/9)α_1²/q_0⁴.
a  growth rate;  b  a pattern out of noise;  c  its amplitude against the growth rate.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp
from scipy.linalg import circulant
from tqdm import tqdm

from figures.report import Claim
from figures.style import BLACK, BLUE, DIVERGING, GREY, STABLE, TWO_COLUMNS, UNSTABLE, VERMILION, centred, panel_label

NAME = "fig14"
TITLE = "Primer: growth rate, selection and saturation in the Swift–Hohenberg equation"
MOSAIC = "abc"
SIZE = (TWO_COLUMNS, 2.2)

Q0 = 1.0
ALPHA_0 = 0.0
ALPHA_2 = -1.0
ALPHA_1 = (0.0, 0.5)
"""The two families of panel c; panel b uses the first."""
WAVES = 12
"""Wavelengths 2π/q_0 in the domain."""
NOISE = 0.02
"""Standard deviation of the noise at the start of b and c."""
SEED_WAVE = 0.02
"""Height of the wave that c starts from."""
SEED = 0
MU_NOISE = 0.05
"""μ of panel b."""
NEAR_ONSET = 0.02
"""The claims are tested at growth rates up to this."""
SETTLED = 1e-3
"""Panel c shows an amplitude if it changed by less than this fraction in the last tenth of the time."""

Field = NDArray[np.float64]


def growth_rate(k: ArrayLike, mu: ArrayLike) -> Field:
    """σ(k) = μ + α_0 − (q_0² − k²)², k and mu broadcast together."""
    return np.asarray(mu) + ALPHA_0 - (Q0**2 - np.square(k)) ** 2


def saturation(alpha_1: ArrayLike) -> Field:
    """g = −3α_2 − (38/9)α_1²/q_0⁴, any shape."""
    return np.asarray(-3 * ALPHA_2 - 38 / 9 * np.square(alpha_1) / Q0**4, dtype=np.float64)


def evolve(u: Field, mu: float, alpha_1: float, times: Field) -> Field:
    """The Swift–Hohenberg equation in time: the states (times, points) at `times`, the first of them 0.

    u : (points,) initial state over `WAVES` wavelengths; mu, alpha_1 : parameters. Derivatives are
    spectral; the stiff system is integrated with backward differentiation.
    """
    k = np.fft.fftfreq(len(u), 1 / len(u)) * Q0 / WAVES
    linear = circulant(np.fft.ifft(growth_rate(k, mu)).real)
    solution = solve_ivp(
        lambda t, u: linear @ u + alpha_1 * u**2 + ALPHA_2 * u**3,
        (times[0], times[-1]),
        u,
        method="BDF",
        t_eval=times,
        jac=lambda t, u: linear + np.diag(2 * alpha_1 * u + 3 * ALPHA_2 * u**2),
        rtol=1e-7,
        atol=1e-9,
    )
    return solution.y.T


def compute(quick: bool = False, progress: bool = False) -> xr.DataTree:
    """The growth rate, a pattern that grows out of noise, and saturated amplitudes.

    quick : fewer points in space and fewer growth rates; progress : show a bar. Groups: 'dispersion', σ over
    (mu, k); 'pattern', u over (t, x) from noise; 'branch', |B| at k = q_0 over (alpha_1, sigma), the
    dominant wavenumber k, the relative change of |B| over the last tenth of the time, and g(alpha_1).
    """
    points = 96 if quick else 128
    k = np.linspace(0, 1.6 * Q0, 321)
    mu = np.array([-0.2, 0.0, 0.2])
    attributes = {
        "q0": Q0,
        "alpha_0": ALPHA_0,
        "alpha_1": list(ALPHA_1),
        "alpha_2": ALPHA_2,
        "wavelengths": WAVES,
        "points": points,
        "noise": NOISE,
        "seed_wave": SEED_WAVE,
        "seed": SEED,
        "near_onset": NEAR_ONSET,
    }
    groups = {
        "/": xr.Dataset(attrs=attributes),
        "dispersion": xr.Dataset({"sigma": (("mu", "k"), growth_rate(k, mu[:, None]))}, {"mu": mu, "k": k}),
        "pattern": _pattern(points),
        "branch": _branch(points, 8 if quick else 14, progress),
    }
    return xr.DataTree.from_dict(groups)


def _pattern(points: int) -> xr.Dataset:
    """Panel b: u over time and space, μ = `MU_NOISE`, α_1 = `ALPHA_1`[0], from Gaussian noise."""
    start = NOISE * np.random.default_rng(SEED).normal(size=points)
    t = np.linspace(0, 200, 101)
    u = evolve(start, MU_NOISE, ALPHA_1[0], t)
    x = 2 * np.pi * WAVES / Q0 * np.arange(points) / points
    return xr.Dataset({"u": (("t", "x"), u)}, {"t": t, "x": x}, {"mu": MU_NOISE})


def _branch(points: int, rates: int, progress: bool) -> xr.Dataset:
    """Panel c: every α_1 and growth rate σ = μ + α_0, each for its own time 40/σ.

    All start from the same small wave of wavenumber q_0, with noise.
    """
    sigma = np.geomspace(2e-3, 0.2, rates)
    wave = np.cos(2 * np.pi * WAVES * np.arange(points) / points)
    start = SEED_WAVE * wave + NOISE * np.random.default_rng(SEED).normal(size=points)
    runs = tqdm(list(product(ALPHA_1, sigma)), f"{NAME} branch", leave=False, disable=not progress)
    ends = [evolve(start, rate - ALPHA_0, alpha_1, np.array([0.0, 36 / rate, 40 / rate]))[1:] for alpha_1, rate in runs]
    before, spectrum = np.moveaxis(np.abs(np.fft.rfft(ends)) / points, 1, 0)
    amplitude = spectrum[:, WAVES]
    dominant = (1 + np.argmax(spectrum[:, 1:], axis=1)) * Q0 / WAVES
    over = {"amplitude": amplitude, "k": dominant, "drift": np.abs(amplitude / before[:, WAVES] - 1)}
    shape = (len(ALPHA_1), rates)
    variables = {name: (("alpha_1", "sigma"), values.reshape(shape)) for name, values in over.items()}
    g = ("alpha_1", saturation(np.array(ALPHA_1)))
    return xr.Dataset({**variables, "g": g}, {"alpha_1": list(ALPHA_1), "sigma": sigma})


def draw(data: xr.DataTree, axes: dict[str, Axes]) -> None:
    """Draw the data of `compute`."""
    _draw_dispersion(data, axes["a"])
    _draw_pattern(data, axes["b"])
    _draw_branch(data, axes["c"])
    for name, ax in axes.items():
        panel_label(ax, name)


def _draw_dispersion(data: xr.DataTree, ax: Axes) -> None:
    sigma, q0 = data["dispersion"].to_dataset()["sigma"], float(data.attrs["q0"])
    ax.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    ax.axvline(1, color=GREY, linewidth=0.5, linestyle=":", zorder=0)
    for mu, colour in zip(sigma["mu"].values, (BLUE, BLACK, VERMILION), strict=True):
        curve = sigma.sel(mu=mu)
        k = curve["k"].values / q0
        ax.plot(k, curve, color=colour, label=rf"$\mu={mu:+.1f}$" if mu else r"$\mu=0$: onset")
        ax.fill_between(k, 0, curve, where=curve.values > 0, color=colour, alpha=0.2, linewidth=0)
    ax.set(xlabel="wavenumber $k/q_0$", ylabel=r"growth rate $\sigma$", xlim=(0, 1.6), ylim=(-1.4, 0.5))
    ax.set_yticks([-1, -0.5, 0, 0.5])
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="lower center", bbox_to_anchor=(0.5, 0.0))


def _draw_pattern(data: xr.DataTree, ax: Axes) -> None:
    u = data["pattern"].to_dataset()["u"]
    wavelength = 2 * np.pi / float(data.attrs["q0"])
    image = ax.pcolormesh(u["x"] / wavelength, u["t"], u, cmap=DIVERGING, norm=centred(u), rasterized=True)
    ax.set(xlabel=r"position $xq_0/2\pi$", ylabel="time $t$", xticks=[0, 4, 8, 12])
    ax.set_title(rf"$\mu={data['pattern'].attrs['mu']:g}$")
    ax.figure.colorbar(image, ax=ax, pad=0.02, aspect=18, ticks=[-0.2, 0, 0.2]).set_label("field $u$", labelpad=-1)


def _draw_branch(data: xr.DataTree, ax: Axes) -> None:
    branch = data["branch"].to_dataset()
    largest = float(branch["sigma"].max())
    fine = np.linspace(0, 1.05 * largest, 400)
    ax.plot([-0.2 * largest, 0], [0, 0], color=BLACK, **STABLE)
    ax.plot([0, fine[-1]], [0, 0], color=BLACK, **UNSTABLE)
    for alpha_1, colour in zip(branch["alpha_1"].values, (BLUE, VERMILION), strict=True):
        family = branch.sel(alpha_1=alpha_1)
        theory = np.sqrt(fine / float(family["g"]))
        ax.plot(fine, theory, color=colour)
        settled = family.where(family["drift"] < SETTLED, drop=True)
        ax.plot(settled["sigma"], settled["amplitude"], "o", color=colour, markerfacecolor="white")
        above = {"xytext": (-3, 4), "ha": "right", "va": "bottom"}
        below = {"xytext": (3, -6), "ha": "left", "va": "top"}
        place: dict[str, Any] = {
            "textcoords": "offset points",
            "color": colour,
            "fontsize": 7,
            **(above if alpha_1 else below),
        }
        ax.annotate(rf"$\alpha_1={alpha_1:g}$", (fine[200], theory[200]), **place)
    (line,) = ax.plot([], [], color=GREY, label=r"theory $\sqrt{\sigma/g}$")
    (circle,) = ax.plot([], [], "o", color=GREY, markerfacecolor="white", label="simulation")
    ax.legend(handles=[line, circle], loc="lower right", bbox_to_anchor=(1, 0.07))
    ax.set(xlabel=r"growth rate $\sigma(q_0)$", ylabel="amplitude $|B|$", xlim=(-0.2 * largest, fine[-1]))
    ax.set(ylim=(-0.02, None), xticks=[0, 0.1, 0.2], yticks=[0, 0.1, 0.2, 0.3])


def claims(data: xr.DataTree) -> list[Claim]:
    """The claims of the primer: √(σ/g) near onset, its exponent, and the wavenumber that noise selects."""
    branch, near = data["branch"].to_dataset(), float(data.attrs["near_onset"])
    branch = branch.sel(sigma=branch["sigma"] <= near)
    theory = np.sqrt(branch["sigma"] / branch["g"])
    error = float(abs(branch["amplitude"] / theory - 1).median("sigma").max())
    log_sigma = np.log(branch["sigma"].values)
    slopes = [np.polyfit(log_sigma, np.log(row), 1)[0] for row in branch["amplitude"].values]
    exponent = float(slopes[int(np.argmax(np.abs(np.array(slopes) - 0.5)))])
    return [
        Claim(
            id="fig14.amplitude",
            claim="near onset the pattern saturates at |B| = √(σ/g)",
            paper=None,
            here=error,
            met=error <= 0.03,
            note=f"median relative error over σ ≤ {near:g}, the larger of the two α_1; met if at most 0.03",
        ),
        _selected_wavenumber(data),
        Claim(
            id="fig14.scaling",
            claim="the amplitude grows as the square root of the growth rate",
            paper=0.5,
            here=exponent,
            met=abs(exponent - 0.5) <= 0.02,
            note=f"exponent fitted over σ ≤ {near:g}, the α_1 farthest from 1/2; met within 0.02",
        ),
    ]


def _selected_wavenumber(data: xr.DataTree) -> Claim:
    """The largest Fourier mode of the last state of panel b against the largest σ(k) on its grid."""
    pattern = data["pattern"].to_dataset()
    last = pattern["u"].isel(t=-1).values
    k = np.arange(1, len(last) // 2) * float(data.attrs["q0"]) / int(data.attrs["wavelengths"])
    fastest = float(k[np.argmax(growth_rate(k, float(pattern.attrs["mu"])))])
    here = float(k[np.argmax(np.abs(np.fft.rfft(last))[1 : len(last) // 2])])
    return Claim(
        id="fig14.wavenumber",
        claim="noise grows into the wavenumber of largest growth rate",
        paper=fastest,
        here=here,
        met=here == fastest,
        note="paper: argmax σ(k) over the wavenumbers of the domain; here: the largest Fourier mode at the end of b",
    )
