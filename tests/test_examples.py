"""The example blocks show what they say they show."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tokenwaves
from dispersion import Block, dispersion_relation

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ["low-pass", "high-pass", "band-pass", "travelling", "rotating"]
CLAIM = r"Leading mode: k = (\d+), (\w+)"


def relation_of(name):
    return dispersion_relation(Block.load(EXAMPLES / f"{name}.toml"))


def test_there_are_five_and_the_readme_lists_their_claims():
    assert {path.stem for path in EXAMPLES.glob("*.toml") if "." not in path.stem} == set(NAMES)
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        k, morphology = re.search(CLAIM, (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")).groups()
        assert re.search(rf"`{name}.toml`.*k = {k}, {morphology} \|", readme)


@pytest.mark.parametrize("name", NAMES)
def test_the_leading_mode_is_as_the_file_says(name):
    k, morphology = re.search(CLAIM, (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")).groups()
    mode = relation_of(name).leading()
    assert (mode.k, mode.morphology) == (int(k), morphology)
    assert mode.growth > 1


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_prints_the_same(name, capsys):
    assert tokenwaves.main(["dispersion", str(EXAMPLES / f"{name}.toml"), "--json", "--modes", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    modes = relation_of(name).modes(3)
    assert [(m["k"], m["morphology"], m["multiplier"]) for m in printed["modes"]] == [
        (m.k, m.morphology, [m.multiplier.real, m.multiplier.imag]) for m in modes
    ]
    assert printed["verdict"] == "unstable"
    assert printed["growth"] == pytest.approx(abs(modes[0].multiplier), rel=1e-14)


def test_low_and_high_pass_are_monotone_and_the_band_is_not():
    low, high, band = (relation_of(name).growth[:17] for name in NAMES[:3])
    assert (np.diff(low) < 0).all()
    assert list(np.flatnonzero(low > 1)) == [0, 1]
    assert (np.diff(high) > 0).all()
    assert list(np.flatnonzero(band > 1)) == [2, 3, 4]
    block = Block.load(EXAMPLES / "band-pass.toml")
    near, far = (np.diff(head.kernel.symbol.real[:17] * head.value[0, 0]) for head in block.heads)
    # neither head alone prefers a length (the far one is cut off at N/2, which leaves a ripple)
    assert (near <= 1e-15).all()
    assert (far >= -1e-4).all()


def test_directional_kernel_and_rotating_value():
    travelling, rotating = relation_of("travelling"), relation_of("rotating")
    assert not travelling.block.heads[0].kernel.symmetric
    assert rotating.block.heads[0].kernel.symmetric
    np.testing.assert_allclose(travelling.phases[1:, 0], -travelling.phases[:0:-1, 0], atol=1e-14)
    np.testing.assert_allclose(rotating.multipliers[:, 0], rotating.multipliers[:, 1].conj(), atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_the_pattern_stays_finite(name):
    block = Block.load(EXAMPLES / f"{name}.toml")
    x = 1e-3 * np.random.default_rng(0).normal(size=(block.n, block.d))
    for _ in range(600):
        x = block.forward(x)
    assert 0.05 < np.abs(x).max() < 5
