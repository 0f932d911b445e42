"""What linear theory finds says in a few lines what it is when printed."""

from pathlib import Path

import numpy as np
import pytest

from dispersion import (
    Block,
    Chain,
    FeedForward,
    Head,
    Kernel,
    along_orbit,
    attention_spectrum,
    branches,
    dispersion_relation,
    fixed_points,
    pseudospectrum,
    stability,
)
from dispersion.ring import relation as relations

ROTATING = Block.load(Path(__file__).parent.parent / "examples" / "rotating.toml")
LOBES = Kernel.gaussian_lobes(32, separation=4, width=1.0, strength=2.0)
BLOCK = Block([Head(LOBES, value=-0.4, content=1.5)], FeedForward.scalar("tanh", scale=-0.1))
TORUS = Block([Head(Kernel.uniform((4, 6)), value=0.3)])
RESULTS = {
    "relation": lambda: dispersion_relation(ROTATING),
    "mode": lambda: dispersion_relation(ROTATING).leading(),
    "torus": lambda: dispersion_relation(TORUS),
    "mode of a torus": lambda: dispersion_relation(TORUS).leading(),
    "propagator": lambda: along_orbit(ROTATING, layers=12),
    "optimal": lambda: along_orbit(ROTATING, layers=12).optimal(),
    "fixed point": lambda: fixed_points(ROTATING)[0],
    "branches": lambda: branches(dispersion_relation(ROTATING)),
    "attention": lambda: attention_spectrum(BLOCK),
    "verdict": lambda: stability(BLOCK),
    "pseudospectrum": lambda: pseudospectrum(Chain(BLOCK, 8, "open"), np.linspace(0.5, 1.5, 5)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_few_lines_to_read(name):
    result = RESULTS[name]()
    lines = str(result).splitlines()
    assert 1 <= len(lines) <= 4
    assert all(len(line) < 120 and "array(" not in line for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    assert repr(result).startswith(type(result).__name__)


def test_a_relation_and_its_mode():
    relation = dispersion_relation(ROTATING)
    mode = relation.leading()
    assert str(relation).splitlines() == [
        "J(q) on 32 tokens, d = 2, 1 head, at the state 0",
        f"  largest growth {mode.growth:.6f} a layer, rate {mode.rate:+.3g}, at k = 3: rotating",
        "  not stable",
    ]
    assert str(mode).splitlines() == [
        "Rotating mode, k = 3 on 32 tokens, d = 2",
        f"  growth {mode.growth:.6f}, rate {mode.rate:+.3g}, phase {mode.phase:+.3g} rad",
    ]
    assert "stable" in str(dispersion_relation(Block([Head(Kernel.uniform(4), -0.5)]))).splitlines()[-1]
    assert "on 4×6 tokens, d = 1" in str(dispersion_relation(TORUS))


def test_a_product_says_over_how_many_layers():
    product = along_orbit(ROTATING, layers=12)
    assert f"largest growth {product.growth.max():.6f} in 12 layers" in str(product)
    assert "log_growth" in str(along_orbit(ROTATING, layers=100_000))  # beyond float64


def test_a_mode_that_vanishes():
    text = str(dispersion_relation(Block([Head(Kernel.uniform(4), [[-1.0, 1.0], [0.0, -1.0]])])).modes(99)[-1])
    assert "growth 0.000000, rate -inf" in text


def test_printing_starts_no_long_work(monkeypatch):
    monkeypatch.setattr(relations, "LARGEST", 10)
    relation = dispersion_relation(ROTATING)
    assert "not computed" in str(relation)
    assert "multipliers" not in vars(relation)
    relation.leading()
    assert "not computed" not in str(relation)


def test_where_rounding_leaves_stability_open_it_says_so():
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 12)))
    M = turn @ (np.triu(np.full((12, 12), 400.0), 1) - 0.5 * np.eye(12)) @ turn.T
    text = str(dispersion_relation(Block([Head(Kernel.uniform(2), M)], FeedForward.elementwise("tanh", 12, -0.1))))
    assert "stability undecided: |Λ| = " in text.splitlines()[-1]
